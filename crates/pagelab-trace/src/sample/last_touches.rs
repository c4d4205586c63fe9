//! The last touches of a skipped stretch: the lines of each thread, in the order of their last touches.
//!
//! Caches and TLBs with LRU replacement contain, after the stretch, what these touches alone would bring in. So
//! replaying them warms up structures of any size, and costs one access per line instead of all accesses.
//! Source: Barr, Pan, Zhang, Asanović, "Accelerating Multiprocessor Simulation with a Memory Timestamp Record", ISPASS
//! 2005.
//! Deviations: a replay makes the touches, where the paper rebuilds the caches' arrays; for a line only its thread's
//! last touch counts, and whether the thread wrote to it.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::{Access, AccessKind, Batch, Branches, ProcessIx, ThreadIx};

const LINE_SHIFT: u32 = 6;
const PAGE_SHIFT: u32 = 12;
const LARGE_PAGE_SHIFT: u32 = 21;
const LINES_PER_PAGE: usize = 1 << (PAGE_SHIFT - LINE_SHIFT);
/// Recent pages of a thread that are found without a look-up: they cover 32 MiB.
const RECENT: usize = 1 << 13;
/// No page: page numbers have 52 bits, and are stored times two.
const NONE: u64 = u64::MAX;

/// Limits on the touches.
#[derive(Clone, Copy)]
struct Limits {
    /// Number of the last touched lines that are touched again; for pages touched before those, one line per page.
    lines: usize,
    /// Maximum number of such pages; for older ones, one line per 2 MiB.
    small_pages: usize,
    /// Maximum number of known pages per thread; beyond it the older half is dropped.
    pages: usize,
}

/// Lines of 32 MiB, and pages of 2 GiB.
const LIMITS: Limits = Limits { lines: 1 << 19, small_pages: usize::MAX, pages: 1 << 19 };
/// Number of pages with one line if a reach was requested: 64 MiB, more than TLBs cover.
const SMALL_PAGES: usize = 1 << 14;

/// A touched page; a page's data and code are separate.
#[derive(Clone)]
struct Page {
    /// Its number times two, plus one if instructions were fetched from it.
    key: u64,
    /// Time of each line's last touch; 0 if it was not touched.
    when: [u32; LINES_PER_PAGE],
    /// Lines that were written.
    written: u64,
}

/// Pages that a thread has touched.
struct ThreadPages {
    process: ProcessIx,
    pages: Vec<Page>,
    /// Index of a page, by its key.
    index: HashMap<u64, u32>,
    /// The most recently touched page for each value of the lower bits, with its index.
    recent: Box<[(u64, u32)]>,
    /// The code page of its last access; 0 if unknown.
    code_page: u64,
    /// Maximum number of pages.
    most: usize,
}

impl ThreadPages {
    fn new(process: ProcessIx, most: usize) -> Self {
        let recent = vec![(NONE, 0); RECENT].into_boxed_slice();
        Self { process, pages: Vec::new(), index: HashMap::new(), recent, code_page: 0, most }
    }

    #[inline]
    fn touch(&mut self, key: u64, line: u64, when: u32, writes: bool) {
        let (known, at) = self.recent[(key >> 1) as usize % RECENT];
        let at = if known == key { at } else { self.look_up(key) };
        let page = &mut self.pages[at as usize];
        page.when[line as usize % LINES_PER_PAGE] = when;
        page.written |= u64::from(writes) << line;
    }

    #[cold]
    #[inline(never)]
    fn look_up(&mut self, key: u64) -> u32 {
        if self.pages.len() >= self.most {
            self.forget_older_half();
        }
        let pages = &mut self.pages;
        let at = *self.index.entry(key).or_insert_with(|| {
            pages.push(Page { key, when: [0; LINES_PER_PAGE], written: 0 });
            pages.len() as u32 - 1
        });
        self.recent[(key >> 1) as usize % RECENT] = (key, at);
        at
    }

    /// Switches to another code page. For code only pages are recorded, since there are no instruction caches.
    fn enter_code_page(&mut self, code_page: u64, when: u32) {
        let left = std::mem::replace(&mut self.code_page, code_page);
        for (page, when) in [(left, when), (code_page, when.saturating_add(1))] {
            if page != 0 {
                self.touch(page << 1 | 1, 0, when, false);
            }
        }
    }

    fn forget_older_half(&mut self) {
        let newest = |page: &Page| page.when.iter().copied().max().unwrap_or(0);
        let mut all: Vec<u32> = self.pages.iter().map(newest).collect();
        let (_, &mut median, _) = all.select_nth_unstable(self.pages.len() / 2 - 1);
        self.pages.retain(|page| newest(page) > median);
        self.index_again();
    }

    /// Clears the touches of the pages from `first` to `last`, inclusive.
    fn forget(&mut self, first: u64, last: u64) {
        let clear = |page: &mut Page| (page.when, page.written) = ([0; LINES_PER_PAGE], 0);
        if last - first < self.pages.len() as u64 {
            for key in first << 1..=last << 1 | 1 {
                if let Some(&at) = self.index.get(&key) {
                    clear(&mut self.pages[at as usize]);
                }
            }
        } else {
            self.pages.iter_mut().filter(|page| (first..=last).contains(&(page.key >> 1))).for_each(clear);
        }
    }

    fn index_again(&mut self) {
        self.index = self.pages.iter().enumerate().map(|(at, page)| (page.key, at as u32)).collect();
        self.recent.fill((NONE, 0));
    }
}

/// A line's last touch by a thread, sorted by time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Touch {
    when: u32,
    thread: ThreadIx,
    /// Number of the line times two, plus one for a fetch.
    line: u64,
    writes: bool,
    /// Whether no other line of the page was touched later.
    ends_page: bool,
}

impl Touch {
    fn access(&self) -> Access {
        let kind = match (self.line & 1 == 1, self.writes) {
            (true, _) => AccessKind::Fetch,
            (false, true) => AccessKind::Store,
            (false, false) => AccessKind::Load,
        };
        Access { gap: 0, ..Access::new(kind, self.line >> 1 << LINE_SHIFT, 1) }
    }
}

/// The last touches of a skipped stretch.
pub(super) struct LastTouches {
    limits: Limits,
    threads: BTreeMap<ThreadIx, ThreadPages>,
    /// The current stretch; a new stretch begins without touches.
    stretch: u64,
    /// Number of accesses so far. Beyond 4 G accesses in a stretch, the order of the last ones is lost.
    clock: u32,
}

impl Default for LastTouches {
    fn default() -> Self {
        Self { limits: LIMITS, threads: BTreeMap::new(), stretch: 0, clock: 0 }
    }
}

impl LastTouches {
    /// Limits the touches at the end of a stretch to the last touched lines, up to this many bytes, and fewer lines of
    /// what was touched before.
    pub(super) fn reach(&mut self, bytes: u64) {
        let lines = usize::try_from(bytes >> LINE_SHIFT).unwrap_or(usize::MAX);
        self.limits = Limits { lines: lines.min(LIMITS.lines), small_pages: SMALL_PAGES, ..self.limits };
    }

    /// Prepares for accesses of a thread in `stretch`.
    pub(super) fn begin(&mut self, stretch: u64, thread: ThreadIx, process: ProcessIx) -> Touching<'_> {
        if self.stretch != stretch {
            (self.stretch, self.clock) = (stretch, 0);
            self.threads.clear();
        }
        let thread = self.threads.entry(thread).or_insert_with(|| ThreadPages::new(process, self.limits.pages));
        Touching { thread, clock: &mut self.clock }
    }

    /// Drops touches of a range of a process's pages, which have been unmapped or changed.
    pub(super) fn forget(&mut self, process: ProcessIx, addr: u64, len: u64) {
        if len == 0 {
            return;
        }
        let (first, last) = (addr >> PAGE_SHIFT, addr.saturating_add(len - 1) >> PAGE_SHIFT);
        self.threads
            .values_mut()
            .filter(|touches| touches.process == process)
            .for_each(|touches| touches.forget(first, last));
    }

    /// Drops a process's writes, since after a copying fork its pages are read-only until they are written again.
    pub(super) fn forget_writes(&mut self, process: ProcessIx) {
        let pages = self
            .threads
            .values_mut()
            .filter(|touches| touches.process == process)
            .flat_map(|touches| &mut touches.pages);
        pages.for_each(|page| page.written = 0);
    }

    /// Drops all touches of a process.
    pub(super) fn forget_process(&mut self, process: ProcessIx) {
        self.threads.retain(|_, touches| touches.process != process);
    }

    /// Drops all touches of a thread.
    pub(super) fn forget_thread(&mut self, thread: ThreadIx) {
        self.threads.remove(&thread);
    }

    /// Moves the touches to a batch, with branches and contexts if `read` has those of its accesses; returns how many.
    pub(super) fn make(&mut self, batch: &mut Batch, read: &Batch) -> u64 {
        let touches = self.sorted();
        for run in touches.chunk_by(|one, other| one.thread == other.thread) {
            batch.accesses.extend(run.iter().map(Touch::access));
            if !read.branches.is_empty() {
                batch.branches.resize(batch.accesses.len(), Branches::NONE);
            }
            if !read.contexts.is_empty() {
                batch.contexts.resize(batch.accesses.len(), 0);
            }
            batch.close_run(run[0].thread);
        }
        touches.len() as u64
    }

    fn sorted(&mut self) -> Vec<Touch> {
        let mut touches = Vec::new();
        for (&thread, touched) in &self.threads {
            for page in &touched.pages {
                let newest = page.when.iter().copied().max().unwrap_or(0);
                for (at, &when) in page.when.iter().enumerate().filter(|(_, when)| **when > 0) {
                    let line = (page.key >> 1) << (PAGE_SHIFT - LINE_SHIFT) | at as u64;
                    let (line, writes) = (line << 1 | page.key & 1, page.written >> at & 1 == 1);
                    touches.push(Touch { when, thread, line, writes, ends_page: when == newest });
                }
            }
        }
        self.threads.clear();
        touches.sort_unstable();
        self.thin_out(&mut touches);
        touches
    }

    /// Drops older touches, whose lines and pages caches and TLBs no longer hold.
    fn thin_out(&self, touches: &mut Vec<Touch>) {
        let Limits { lines, small_pages, .. } = self.limits;
        let older = touches.len().saturating_sub(lines);
        if older == 0 {
            return;
        }
        let (mut at, mut pages, mut large_pages) = (touches.len(), 0, HashSet::new());
        // Backwards, since whether a touch is the last one in its 2 MiB depends on later touches.
        touches.reverse();
        touches.retain(|touch| {
            at -= 1;
            let large_page = touch.line >> (LARGE_PAGE_SHIFT - LINE_SHIFT + 1);
            let ends_large_page = touch.ends_page && large_pages.insert((touch.thread, touch.line & 1, large_page));
            if at >= older {
                return true;
            }
            pages += usize::from(touch.ends_page);
            touch.ends_page && (pages <= small_pages || ends_large_page)
        });
        touches.reverse();
    }
}

/// Records the accesses of a thread.
pub(super) struct Touching<'a> {
    thread: &'a mut ThreadPages,
    clock: &'a mut u32,
}

impl Touching<'_> {
    /// Records an access.
    #[inline]
    pub(super) fn touch(&mut self, access: &Access) {
        let before = *self.clock;
        *self.clock = before.saturating_add(1);
        let code_page = access.pc >> PAGE_SHIFT;
        if code_page != self.thread.code_page && !access.maker.is_kernel() {
            self.thread.enter_code_page(code_page, before);
        }
        let fetched = u64::from(access.kind == AccessKind::Fetch);
        let first = access.vaddr >> LINE_SHIFT;
        let last = access.vaddr.saturating_add(u64::from(access.size_bytes) - 1) >> LINE_SHIFT;
        let writes = access.kind.writes();
        for line in first..=last {
            let page = line >> (PAGE_SHIFT - LINE_SHIFT);
            self.thread.touch(page << 1 | fetched, line % LINES_PER_PAGE as u64, *self.clock, writes);
        }
    }
}

#[cfg(test)]
#[path = "last_touches_tests.rs"]
mod tests;
