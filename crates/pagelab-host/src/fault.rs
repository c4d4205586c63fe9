//! The micro-benchmarks that fault, as a table: what is run on the host and what is written as a trace are both made of
//! it.

/// Pages that a benchmark touches, or spans if it touches only some: more than a TLB reaches, less than caches hold.
const PAGES: usize = 2048;
/// Mappings of one page each; what is told of a program with few mappings would not hold for thousands.
const SINGLE_PAGES: usize = 256;
/// Pages of the window that a read fault of a file maps (`fault_around_bytes` of mm/memory.c, 64 KiB).
const WINDOW_PAGES: usize = 16;

/// The memory that a benchmark works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Private and anonymous, in 4 KiB pages.
    Anonymous,
    /// One private mapping of a file that the page cache holds.
    File,
    /// A mapping for each page of the file, which no fault can map others around (`do_fault_around` stays within the
    /// VMA). Neighbours lie apart in the file, so that the kernel does not merge them.
    FileByPage,
}

/// What precedes the accesses that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// The memory is mapped and left alone.
    Nothing,
    /// Every page is read.
    Read,
    /// Every page is written, and the process forks; the child stays and touches nothing.
    WriteAndFork,
}

/// A benchmark whose every access faults: its cost is that of the accesses less that of the same accesses made again.
#[derive(Clone, Copy, Debug)]
pub struct FaultBenchmark {
    /// What results call it.
    pub name: &'static str,
    /// What the memory is.
    pub kind: Kind,
    /// What precedes the accesses that are measured.
    pub before: Before,
    /// Whether the accesses that are measured are stores; else they are loads.
    pub writes: bool,
    /// Pages of the memory.
    pub pages: usize,
    /// Every so many of them are touched.
    pub step: usize,
}

impl FaultBenchmark {
    /// Pages touched, by their number.
    pub fn touched(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.pages).step_by(self.step)
    }

    /// Faults of one pass.
    pub fn faults(&self) -> usize {
        self.pages.div_ceil(self.step)
    }
}

/// The benchmarks, by the functions of Linux's mm/memory.c that handle their faults.
pub const FAULTS: &[FaultBenchmark] = &[
    // do_anonymous_page, which maps the zero page for a read.
    FaultBenchmark {
        name: "zero-page-read",
        kind: Kind::Anonymous,
        before: Before::Nothing,
        writes: false,
        pages: PAGES,
        step: 1,
    },
    // do_anonymous_page, which maps a zeroed frame for a write.
    FaultBenchmark {
        name: "first-write",
        kind: Kind::Anonymous,
        before: Before::Nothing,
        writes: true,
        pages: PAGES,
        step: 1,
    },
    // do_wp_page on the zero page: a zeroed frame in its place.
    FaultBenchmark {
        name: "zero-page-write",
        kind: Kind::Anonymous,
        before: Before::Read,
        writes: true,
        pages: PAGES,
        step: 1,
    },
    // do_wp_page on a page that a child has too: a copy.
    FaultBenchmark {
        name: "forked-write",
        kind: Kind::Anonymous,
        before: Before::WriteAndFork,
        writes: true,
        pages: PAGES,
        step: 1,
    },
    // do_read_fault of a single page of the page cache.
    FaultBenchmark {
        name: "file-read",
        kind: Kind::FileByPage,
        before: Before::Nothing,
        writes: false,
        pages: SINGLE_PAGES,
        step: 1,
    },
    // do_read_fault that maps a window of 16 pages.
    FaultBenchmark {
        name: "file-read-around",
        kind: Kind::File,
        before: Before::Nothing,
        writes: false,
        pages: PAGES,
        step: WINDOW_PAGES,
    },
];

/// Page of the file that the mapping of page `number` maps, for [`Kind::FileByPage`]: backwards.
pub fn file_page(pages: usize, number: usize) -> usize {
    pages - 1 - number
}
