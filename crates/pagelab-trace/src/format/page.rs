//! The page that is being filled. Its accesses are stored as columns from the start: an address, and an index into the
//! dictionary of sites, which a recorder looks up once for all executions of the same code.

use super::{
    AccessCounts, FIRST_PART_ROWS, PAGE_ROWS, PARTS_OF_ONE_SIZE, columns,
    dictionary::{Dictionary, Site},
    indices,
    last_waits::LastWaits,
    planes::Planes,
};
use crate::{Access, Batch, Branches, Event, ThreadIx};

/// Accesses that are copied at once, so that copying does not branch on their number.
pub(crate) const GROUP: usize = 4;
/// Rows of a page, plus those that are copied beyond its end.
const ROOM: usize = PAGE_ROWS + GROUP;

/// Allocated on the heap; an array would be on the stack first.
fn zeros<T: Copy + Default>() -> Box<[T; ROOM]> {
    vec![T::default(); ROOM].into_boxed_slice().try_into().ok().expect("as many as there are")
}

/// A run of accesses of one thread, given by its index in the part's dictionary, up to `end` in the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexRun {
    pub thread: u16,
    pub end: usize,
}

/// A page of accesses and the events among them, on its way to the encoder.
#[derive(Default)]
pub(super) struct Page {
    pub rows: usize,
    pub addresses: Planes,
    /// None if the trace has no dependencies.
    pub waits: Option<Planes>,
    /// Indices into the dictionary of sites in Parquet's encoding.
    pub sites: Vec<u8>,
    pub runs: Vec<IndexRun>,
    pub events: Vec<Event>,
    pub counts: AccessCounts,
}

impl Page {
    /// Empties the page and keeps its memory.
    pub(super) fn clear(&mut self) {
        self.rows = 0;
        self.runs.clear();
        self.events.clear();
        self.counts = AccessCounts::default();
    }
}

/// The dictionaries of a part that has ended.
pub(super) struct PartDictionaries {
    pub sites: Vec<Site>,
    pub threads: Vec<ThreadIx>,
}

/// Messages from the writer, in the order of the trace.
#[expect(clippy::large_enum_variant, reason = "one per 65,536 rows, most of them pages")]
pub(super) enum Message {
    Page(Page),
    /// The part ends with the pages so far, at least one.
    EndOfPart(PartDictionaries),
}

/// The columns of the open page, in a form that a loop which appends to them keeps in registers.
pub(crate) struct Columns<'a> {
    addresses: &'a mut [u64; ROOM],
    sites: &'a mut [u16; ROOM],
    waits: &'a mut [u32; ROOM],
    rows: usize,
    counts: AccessCounts,
}

impl Columns<'_> {
    #[inline(always)]
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Appends `len` accesses of which everything but the addresses is known: their sites and dependencies, in at least
    /// one whole group, and their counts. `group` returns the addresses of a group; those beyond the last access do not
    /// matter. Returns the words of the dependencies, to be completed; none if `group` returns none, or if there is no
    /// room.
    #[inline(always)]
    pub(crate) fn append(
        &mut self,
        len: usize,
        known: &[([u16; GROUP], [u32; GROUP])],
        counts: &AccessCounts,
        group: impl Fn(usize) -> Option<[u64; GROUP]>,
    ) -> Option<&mut [u32]> {
        // Rows are written before it is known whether they are needed: a branch would often be mispredicted.
        for (number, (sites, waits)) in known.iter().enumerate() {
            let at = self.rows + number * GROUP;
            *self.addresses.get_mut(at..)?.first_chunk_mut()? = group(number)?;
            *self.sites.get_mut(at..)?.first_chunk_mut()? = *sites;
            *self.waits.get_mut(at..)?.first_chunk_mut()? = *waits;
        }
        let begin = self.rows;
        self.rows += len;
        self.counts.add(counts);
        self.waits.get_mut(begin..)
    }
}

/// The page that is being filled, and the dictionaries of its part. Its columns stay at the same addresses, in the
/// caches of the host's core that fills them; what leaves has fewer bytes.
pub(crate) struct OpenPage {
    addresses: Box<[u64; ROOM]>,
    /// Indices into the dictionary of sites.
    indices: Box<[u16; ROOM]>,
    /// What accesses depend on ([`columns::waits_of`]).
    waits: Box<[u32; ROOM]>,
    /// Whether dependencies will be read.
    dependencies: bool,
    last_waits: LastWaits,
    page: Page,
    thread: ThreadIx,
    sites: Dictionary<Site>,
    threads: Dictionary<ThreadIx>,
    part: u32,
    /// Maximum number of rows of a part.
    most_rows: usize,
    /// Number of the part's rows in the pages before this one.
    rows_before: usize,
    /// A part that ended before this page, because its dictionaries are full.
    ended: Option<PartDictionaries>,
}

/// The results of taking a page, in this order.
pub(super) struct FullPage {
    pub ended_before: Option<PartDictionaries>,
    pub page: Page,
    pub ended_after: Option<PartDictionaries>,
}

impl OpenPage {
    /// Parts have at most `most_rows` rows.
    pub(crate) fn new(most_rows: usize, dependencies: bool) -> Self {
        Self {
            addresses: zeros(),
            indices: zeros(),
            waits: zeros(),
            dependencies,
            last_waits: LastWaits::new(),
            page: Page::default(),
            thread: ThreadIx(0),
            sites: Dictionary::new(),
            threads: Dictionary::new(),
            part: 0,
            most_rows,
            rows_before: 0,
            ended: None,
        }
    }

    /// Whether dependencies will be read.
    #[inline(always)]
    pub(crate) fn tells_dependencies(&self) -> bool {
        self.dependencies
    }

    /// Number of the part. Site indices are valid while it stays the same.
    #[inline(always)]
    pub(crate) fn part(&self) -> u32 {
        self.part
    }

    #[inline(always)]
    pub(crate) fn rows(&self) -> usize {
        self.page.rows
    }

    /// Number of rows of a full part: later parts are larger, so that long traces have few files.
    fn rows_of_part(&self) -> usize {
        let doublings = (self.part / PARTS_OF_ONE_SIZE).min(usize::BITS - 1 - FIRST_PART_ROWS.ilog2());
        (FIRST_PART_ROWS << doublings).min(self.most_rows)
    }

    /// Number of rows of a full page.
    pub(crate) fn capacity(&self) -> usize {
        PAGE_ROWS.min(self.rows_of_part() - self.rows_before)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.page.rows == 0 && self.page.events.is_empty()
    }

    /// Sets the thread of the following accesses.
    pub(crate) fn switch_to(&mut self, thread: ThreadIx) {
        if thread != self.thread {
            self.close_run();
            self.thread = thread;
        }
    }

    fn close_run(&mut self) {
        let end = self.page.rows;
        if self.page.runs.last().map_or(0, |run| run.end) == end {
            return;
        }
        let thread = self.threads.index_of(self.thread).unwrap_or_else(|| {
            self.begin_part();
            self.threads.index_of(self.thread).expect("a page has no more threads than a dictionary has room for")
        });
        match self.page.runs.last_mut() {
            Some(run) if run.thread == thread => run.end = end,
            _ => self.page.runs.push(IndexRun { thread, end }),
        }
    }

    /// Index of a site in this part, which may be a new part if the dictionary is full. Until they are used, at most as
    /// many new sites may be requested as the page has room for.
    #[inline(always)]
    pub(crate) fn index_of(&mut self, site: Site) -> u16 {
        match self.sites.index_of(site) {
            Some(index) => index,
            None => self.index_in_new_part(site),
        }
    }

    #[cold]
    #[inline(never)]
    fn index_in_new_part(&mut self, site: Site) -> u16 {
        self.begin_part();
        self.sites.index_of(site).expect("a page has no more sites than a dictionary has room for")
    }

    /// Moves the page to a new part, since the dictionaries of the old one are full.
    fn begin_part(&mut self) {
        let old = self.end_part();
        for index in &mut self.indices[..self.page.rows] {
            *index = self.sites.index_of(old.sites[usize::from(*index)]).expect("fewer than there were");
        }
        for run in &mut self.page.runs {
            run.thread = self.threads.index_of(old.threads[usize::from(run.thread)]).expect("fewer than there were");
        }
        self.ended = Some(old);
    }

    fn end_part(&mut self) -> PartDictionaries {
        self.part += 1;
        self.rows_before = 0;
        PartDictionaries { sites: self.sites.take(), threads: self.threads.take() }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.page.rows == self.capacity()
    }

    /// Appends accesses of the current thread with the branches before each, as long as there is room; returns how
    /// many. An empty `branches` means no branches.
    pub(crate) fn append(&mut self, accesses: &[Access], branches: &[Branches]) -> usize {
        let room = self.capacity() - self.page.rows;
        let now = &accesses[..room.min(accesses.len())];
        self.page.counts.add(&AccessCounts::from_accesses(now));
        for (n, access) in now.iter().enumerate() {
            let index = self.index_of(Site::from_access(access));
            let at = self.page.rows;
            self.indices[at] = index;
            self.addresses[at] = access.vaddr;
            if self.dependencies {
                self.waits[at] = columns::waits_of(access.maker, branches.get(n).copied().unwrap_or_default());
            }
            self.page.rows = at + 1;
        }
        now.len()
    }

    /// Lets `append` append accesses of the current thread.
    #[inline(always)]
    pub(crate) fn fill(&mut self, append: impl FnOnce(&mut Columns<'_>)) {
        let Page { rows, counts, .. } = &mut self.page;
        let (addresses, sites, waits) = (&mut *self.addresses, &mut *self.indices, &mut *self.waits);
        let mut columns = Columns { addresses, sites, waits, rows: *rows, counts: *counts };
        append(&mut columns);
        (*rows, *counts) = (columns.rows, columns.counts);
    }

    pub(super) fn add_event(&mut self, event: Event) {
        self.page.events.push(event);
    }

    pub(super) fn events(&self) -> usize {
        self.page.events.len()
    }

    /// Removes the page and continues with `next`, which is empty.
    pub(super) fn take(&mut self, next: Page) -> FullPage {
        self.close_run();
        let mut page = std::mem::replace(&mut self.page, next);
        if page.rows > 0 {
            page.addresses.split(&self.addresses[..page.rows]);
            indices::put(&mut page.sites, &self.indices[..page.rows]);
            if self.dependencies {
                let waits = &mut self.waits[..page.rows];
                self.last_waits.omit_repeated(&self.indices[..page.rows], waits);
                page.waits.get_or_insert_default().split_words(waits);
            }
        }
        let ended_before = self.ended.take();
        self.rows_before += page.rows;
        let ended_after = (self.rows_before == self.rows_of_part()).then(|| self.end_part());
        FullPage { ended_before, page, ended_after }
    }

    /// Appends the accesses to a batch and empties the page, which must not contain events.
    pub(crate) fn drain_into(&mut self, batch: &mut Batch) {
        debug_assert!(self.page.events.is_empty());
        self.close_run();
        let (sites, threads) = (self.sites.values(), self.threads.values());
        let waits = &self.waits[..if self.dependencies { self.page.rows } else { 0 }];
        batch.branches.extend(waits.iter().map(|&waits| columns::branches_of(waits)));
        let rows = self.addresses[..self.page.rows].iter().zip(&self.indices[..self.page.rows]);
        let mut accesses = rows.zip(&self.waits[..]).map(|((&vaddr, &site), &waits)| {
            let access = sites[usize::from(site)].access(vaddr);
            let tells = self.dependencies && !access.maker.is_kernel();
            if tells { access.after(usize::from(waits as u8)) } else { access }
        });
        let mut at = 0;
        for run in &self.page.runs {
            batch.accesses.extend(accesses.by_ref().take(run.end - at));
            batch.close_run(threads[usize::from(run.thread)]);
            at = run.end;
        }
        self.rows_before += self.page.rows;
        self.page.clear();
        self.ended = None;
        if self.rows_before == self.rows_of_part() {
            self.end_part();
        }
    }

    /// Ends the part after all its pages were taken; none if it has no pages.
    pub(super) fn finish_part(&mut self) -> Option<PartDictionaries> {
        (self.rows_before > 0).then(|| self.end_part())
    }
}
