//! The micro-benchmarks that fault, as a table. Both the runs on the host and the traces are made from it.

/// Pages that a benchmark accesses, or spans if it accesses only some: more than a TLB covers, less than caches hold.
const PAGES: usize = 2048;
/// Number of one-page mappings: with few mappings, the result would not hold for thousands.
const SINGLE_PAGES: usize = 256;
/// Pages that a read fault on a file maps around the address (`fault_around_bytes` of mm/memory.c, 64 KiB).
const WINDOW_PAGES: usize = 16;

/// The memory that a benchmark accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// Private and anonymous, in 4 KiB pages.
    Anonymous,
    /// One private mapping of a file that is in the page cache.
    File,
    /// One mapping per page of the file, so that a fault cannot map neighbours (`do_fault_around` stays within the
    /// VMA). Adjacent mappings are not adjacent in the file, so that the kernel does not merge them.
    FileByPage,
}

/// Preparation before the measured accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// The memory is mapped but not accessed.
    Nothing,
    /// Every page is read.
    Read,
    /// Every page is written, and the process forks; the child stays alive and accesses nothing.
    WriteAndFork,
}

/// A benchmark whose every access faults. Its cost is the time of the accesses minus the time of the same accesses
/// repeated.
#[derive(Clone, Copy, Debug)]
pub struct FaultBenchmark {
    /// Its name in results.
    pub name: &'static str,
    /// Kind of the memory.
    pub kind: MemoryKind,
    /// Preparation before the measured accesses.
    pub before: Before,
    /// Whether the measured accesses are stores; otherwise they are loads.
    pub writes: bool,
    /// Pages of the memory.
    pub pages: usize,
    /// Distance of the accessed pages, in pages.
    pub step: usize,
}

impl FaultBenchmark {
    /// Numbers of the accessed pages.
    pub fn touched(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.pages).step_by(self.step)
    }

    /// Number of faults per pass.
    pub fn faults(&self) -> usize {
        self.pages.div_ceil(self.step)
    }
}

/// The benchmarks; comments name the functions of Linux's mm/memory.c that handle their faults.
pub const FAULTS: &[FaultBenchmark] = &[
    // do_anonymous_page: maps the zero page for a read.
    FaultBenchmark {
        name: "zero-page-read",
        kind: MemoryKind::Anonymous,
        before: Before::Nothing,
        writes: false,
        pages: PAGES,
        step: 1,
    },
    // do_anonymous_page: maps a zeroed frame for a write.
    FaultBenchmark {
        name: "first-write",
        kind: MemoryKind::Anonymous,
        before: Before::Nothing,
        writes: true,
        pages: PAGES,
        step: 1,
    },
    // do_wp_page on the zero page: maps a zeroed frame instead.
    FaultBenchmark {
        name: "zero-page-write",
        kind: MemoryKind::Anonymous,
        before: Before::Read,
        writes: true,
        pages: PAGES,
        step: 1,
    },
    // do_wp_page on a page shared with a child: copies it.
    FaultBenchmark {
        name: "forked-write",
        kind: MemoryKind::Anonymous,
        before: Before::WriteAndFork,
        writes: true,
        pages: PAGES,
        step: 1,
    },
    // do_read_fault for a single page in the page cache.
    FaultBenchmark {
        name: "file-read",
        kind: MemoryKind::FileByPage,
        before: Before::Nothing,
        writes: false,
        pages: SINGLE_PAGES,
        step: 1,
    },
    // do_read_fault that maps 16 pages around the address.
    FaultBenchmark {
        name: "file-read-around",
        kind: MemoryKind::File,
        before: Before::Nothing,
        writes: false,
        pages: PAGES,
        step: WINDOW_PAGES,
    },
];

/// The file's page that mapping `number` maps, for [`MemoryKind::FileByPage`]: in descending order.
pub fn file_page(pages: usize, number: usize) -> usize {
    pages - 1 - number
}
