//! The page-fault handler of a kernel.
//!
//! Models: an activity of named stages ([`Stage`]), each with the instructions and cycles that the kernel preset gives and
//! with references to the kernel's data, which go through TLB and caches: saved registers on the CPU's stack, the lock and
//! the nodes of the VMA index, page-table entries, the allocator's lists, page metadata, the CPU's batches for cgroup and
//! LRU lists, and every so often the line behind each batch that all CPUs share. What a fault maps is decided after its
//! walk ([`Work`]): a zeroed frame, the zero page, a copy of a write-protected page, that page itself if nobody else uses
//! it, or a page of the page cache and those around it.
//!
//! The first handler of a page takes the page's key and does the work; others that fault on the page meanwhile wait, then
//! find the translation and return. The PTE is written under the lock of its page-table page.
//! Source: Linux `exc_page_fault`, `handle_mm_fault`, `do_anonymous_page`, `do_wp_page`, `do_read_fault`, `do_cow_fault`,
//! `do_shared_fault`, `do_fault_around` (mm/memory.c), `filemap_map_pages` (mm/filemap.c).
//! Parameters: `kernel.fault.*` (instructions and cycles of each stage beyond its references), `kernel.fault_lock`,
//! `kernel.vma_index`, `kernel.zero_page`, `kernel.fault_around_bytes`, `kernel.pages_per_fault`, `kernel.lru_batch`,
//! `kernel.charge_batch`, `kernel.vm_exit_cycles`.
//! Deviations: in Linux two handlers of one page both allocate and zero a frame, and the one that comes second to the PTE
//! lock gives its frame back; here it waits from the end of its walk, so a frame is never allocated twice. A mapping call
//! waits for faults in its way, but not the other way round, since it is made at once. Pages larger than 4 KiB are neither
//! inherited nor shared: a forked child has its own. A kernel's objects of an address space share one frame.

mod plan;
mod stage;

pub use stage::{FaultCounters, Stage};

use super::Os;
use super::frame_alloc::FramePurpose;
use super::vma::{HugeAdvice, VaRange, Vma, VmaKind};
use crate::activity::{BlockKey, Next};
use crate::addr::{FRAME_BYTES, FRAME_SHIFT, PageSize, Pfn, VirtAddr};
use crate::config::LargePages;
use crate::error::EngineError;
use crate::layer::{Layer, SpaceId};
use crate::page_table::{Leaf, Mapping, PteFlags, WalkList};
use crate::walker::{Intent, PageFault};
use pagelab_trace::MapFlags;

/// Scans in a row that may find nothing to give back before a fault does without: several times through the lists, whose
/// pages' accessed bits the scans clear.
const MAX_FRUITLESS: u32 = 1 << 16;

/// What the step under way does.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Entry,
    Lookup,
    Walk,
    /// Zero a new page-table page and link it.
    Table {
        frame: Pfn,
    },
    Allocation,
    /// Scan the oldest pages.
    Reclaim,
    /// The CPU's list of free pages was empty: under the zone's lock it got what these pages' metadata tells.
    Refill {
        descriptors: Vec<Pfn>,
    },
    /// Wait until those that leave are written.
    WriteBack {
        pages: u32,
    },
    Zeroing,
    Charge,
    Rmap,
    Lru,
    /// Take the lock of the page-table page.
    Lock,
    Install,
    Return,
}

/// What is to be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// A zeroed frame.
    Fresh,
    ZeroPage,
    /// A copy of a page that stays as it is.
    Copy {
        from: Pfn,
    },
    /// A page that was swapped out.
    SwapIn,
    /// A page of shared anonymous memory: the frame that others map, or else a zeroed one.
    Shared {
        page: u64,
        present: bool,
    },
    /// The write-protected page itself.
    Reuse,
    /// A page of a file, in the page cache.
    Cached {
        file: u32,
        page: u64,
    },
}

/// How a finished fault ended for the access that raised it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Translate again.
    Retry,
    /// The access cannot be made: no mapping, or one that forbids it.
    Refused,
}

/// A fault being handled; see the module's text.
#[derive(Clone, Debug)]
pub struct Fault {
    space: SpaceId,
    /// Address that is to be mapped: the faulting one, then those of further pages.
    va: VirtAddr,
    intent: Intent,
    cpu: usize,
    state: State,
    work: Work,
    /// First address and size of the page to be mapped, and its permissions; known after the lookup.
    page: VirtAddr,
    size: PageSize,
    flags: PteFlags,
    /// The frame to be mapped, from its allocation on.
    frame: Pfn,
    /// Pages around the one at the address that are mapped with it, itself included.
    around: VaRange,
    /// Pages still to be mapped after this one.
    further: u32,
    /// The fault is in the counters.
    counted: bool,
    /// Scans in a row that gave nothing back.
    fruitless: u32,
    /// An exception of the program; otherwise the kernel populates a mapping.
    exception: bool,
    /// The page's key: held from the walk to the end of its page by the handler that maps it.
    key: BlockKey,
    locked: bool,
    /// Whether it holds off changes of the mappings.
    reads: bool,
    outcome: Outcome,
}

impl Fault {
    /// The handler, on a CPU, of what hardware reports.
    pub fn new(fault: &PageFault, cpu: usize) -> Self {
        let page = VirtAddr(fault.va.0 & !(FRAME_BYTES - 1));
        Self {
            space: fault.space,
            va: fault.va,
            intent: fault.intent,
            cpu,
            state: State::Entry,
            work: Work::Fresh,
            page,
            size: PageSize::Size4K,
            flags: PteFlags { writable: false, user: true, executable: false, accessed: true, dirty: false },
            frame: Pfn(0),
            around: VaRange { start: page, end: page },
            further: 0,
            counted: false,
            fruitless: 0,
            exception: true,
            key: BlockKey::Page { space: fault.space, page: fault.va.0 >> FRAME_SHIFT },
            locked: false,
            reads: false,
            outcome: Outcome::Retry,
        }
    }

    /// The kernel's own handling of a page that it populates.
    pub fn populate(space: SpaceId, va: VirtAddr, intent: Intent, cpu: usize) -> Self {
        Self { state: State::Lookup, exception: false, ..Self::new(&PageFault { space, va, intent }, cpu) }
    }

    pub fn space(&self) -> SpaceId {
        self.space
    }

    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// First address behind the page that was mapped.
    pub fn end(&self) -> VirtAddr {
        VirtAddr((self.page.0 + self.size.bytes()).max(self.around.end.0))
    }

    pub fn stage(&self) -> Stage {
        match self.state {
            State::Entry => Stage::Entry,
            State::Lookup => Stage::Lookup,
            State::Walk | State::Table { .. } => Stage::Walk,
            State::Allocation | State::Refill { .. } | State::Reclaim | State::WriteBack { .. } => Stage::Allocation,
            State::Zeroing => Stage::Zeroing,
            State::Charge => Stage::Charge,
            State::Rmap => Stage::Rmap,
            State::Lru => Stage::Lru,
            State::Lock | State::Install => Stage::Install,
            State::Return => Stage::Return,
        }
    }

    fn layer<'a>(&self, os: &'a mut Os) -> &'a mut Layer {
        &mut os.layers[usize::from(self.space.layer)]
    }

    fn counters<'a>(&self, os: &'a mut Os) -> &'a mut FaultCounters {
        &mut os.faults[usize::from(self.space.layer)]
    }

    /// Lists the references of a walk for the page; into a list of the caller's, which is large.
    fn walk(&self, os: &Os, list: &mut WalkList) {
        let layer = &os.layers[usize::from(self.space.layer)];
        layer.spaces[self.space.index as usize].table.walk(&layer.mem, self.va, list);
    }

    /// What a walk for the page ends at.
    fn leaf(&self, os: &Os) -> Leaf {
        let mut list = WalkList::new();
        self.walk(os, &mut list);
        list.leaf
    }

    /// See [`crate::activity::Activity::commit`].
    pub fn commit(&mut self, os: &mut Os, cpu: usize) -> Result<Next, EngineError> {
        self.layer(os).acting_cpu = cpu as u32;
        self.state = match self.state {
            State::Entry => State::Lookup,
            State::Lookup => self.look_up(os, cpu),
            State::Walk => {
                let leaf = self.leaf(os);
                let Some(work) = self.choose(os, &leaf)? else {
                    if self.exception && !self.counted {
                        (self.counted, self.further) = (true, 0);
                        self.counters(os).raced += 1;
                    }
                    return Ok(self.page_done(os, cpu));
                };
                if !os.locks.acquire(self.key, cpu) {
                    return Ok(Next::Block(self.key));
                }
                (self.locked, self.work) = (true, work);
                if let Work::Shared { present: true, .. } = work {
                    // From here on it cannot go away.
                    let frame = self.frame;
                    self.layer(os).pages.share(frame);
                }
                match leaf {
                    Leaf::NotPresent { level } => {
                        self.shrink_to(level);
                        self.next_table(os)?
                    }
                    Leaf::Present(_) => self.after_tables(),
                }
            }
            State::Table { frame } => {
                self.link(os, frame);
                self.next_table(os)?
            }
            State::Allocation if self.fruitless < MAX_FRUITLESS && self.layer(os).is_short(self.size.order()) => {
                State::Reclaim
            }
            State::Allocation => {
                let order = self.size.order();
                match self.layer(os).take_page(order) {
                    Some(frame) => {
                        self.frame = frame;
                        let effects = self.layer(os).last_effects();
                        if effects.zone_locks.is_empty() {
                            State::Zeroing
                        } else {
                            State::Refill { descriptors: effects.descriptors.clone() }
                        }
                    }
                    // No contiguous block: a smaller page serves as well.
                    None if self.size > PageSize::Size4K => {
                        self.set_size(smaller(self.size));
                        self.next_table(os)?
                    }
                    None => return Err(self.layer(os).out_of_memory("a page of a program")),
                }
            }
            State::Reclaim => self.reclaim(os),
            State::WriteBack { .. } => State::Allocation,
            State::Refill { .. } => State::Zeroing,
            State::Zeroing => State::Charge,
            State::Charge => {
                let batch = os.costs.charge_batch;
                let pages = 1 << self.size.order();
                let of = &mut self.layer(os).cpus[cpu];
                if of.charged < pages {
                    of.charged += batch.max(pages);
                }
                of.charged -= pages;
                State::Rmap
            }
            State::Rmap if matches!(self.work, Work::Shared { present: true, .. }) => State::Lock,
            State::Rmap => State::Lru,
            State::Lru => {
                let (batch, frame) = (os.costs.lru_batch as usize, self.frame);
                let lru = &mut self.layer(os).cpus[cpu].lru;
                if lru.len() >= batch {
                    lru.clear();
                }
                lru.push(frame);
                State::Lock
            }
            State::Lock => {
                let key = self.table_key(os);
                if !os.locks.acquire(key, cpu) {
                    return Ok(Next::Block(key));
                }
                State::Install
            }
            State::Install => {
                let key = self.table_key(os);
                self.install(os)?;
                os.locks.release(key, cpu);
                return Ok(self.page_done(os, cpu));
            }
            State::Return => {
                self.end_read(os, cpu);
                return Ok(Next::Done);
            }
        };
        Ok(Next::Continue)
    }

    /// Scans for pages that can leave.
    fn reclaim(&mut self, os: &mut Os) -> State {
        let gone = self.layer(os).scan_pages();
        if gone.is_empty() {
            self.fruitless += 1;
            return State::Allocation;
        }
        self.fruitless = 0;
        let pages = gone.len() as u32;
        for (index, va) in gone {
            let space = SpaceId { layer: self.space.layer, index };
            let range = VaRange { start: va, end: VirtAddr(va.0 + FRAME_BYTES) };
            match os.invalid.iter_mut().find(|(of, _)| *of == space) {
                Some((_, ranges)) => ranges.push(range),
                None => os.invalid.push((space, vec![range])),
            }
        }
        State::WriteBack { pages }
    }

    fn look_up(&mut self, os: &mut Os, cpu: usize) -> State {
        let layer = self.layer(os);
        let (wanted, large_pages) = (layer.page_size, layer.large_pages);
        let vmas = &mut layer.spaces[self.space.index as usize].vmas;
        let Some(vma) = vmas.find_or_grow(self.va) else {
            self.outcome = Outcome::Refused;
            self.counters(os).outside += u64::from(self.exception);
            return State::Return;
        };
        let allowed = match self.intent {
            Intent::Load => vma.prot.read || vma.prot.write || vma.prot.execute,
            Intent::Store => vma.prot.write,
            // Imported traces and synthetic programs know nothing of execute permission.
            Intent::Fetch => vma.prot.execute || vma.prot.read,
        };
        if !allowed {
            self.outcome = Outcome::Refused;
            self.counters(os).forbidden += u64::from(self.exception);
            return State::Return;
        }
        self.flags.executable = vma.prot.execute;
        let anonymous = !is_file(vma);
        let large = anonymous && gets_large_pages(vma, large_pages);
        let size = if large { largest_inside(vma, self.va, wanted) } else { PageSize::Size4K };
        let range = vma.range();
        let following = ((vma.end.0 - 1) >> FRAME_SHIFT) - (self.va.0 >> FRAME_SHIFT);
        self.set_size(size);
        if anonymous && self.exception && size == PageSize::Size4K {
            self.further = (os.costs.pages_per_fault - 1).min(following as u32);
        }
        os.locks.read_mappings(self.space, range, cpu);
        self.reads = true;
        State::Walk
    }

    /// What is to be done about the page at `va`, given what a walk finds there; nothing if it can be accessed by now.
    fn choose(&mut self, os: &mut Os, leaf: &Leaf) -> Result<Option<Work>, EngineError> {
        let (store, va) = (self.intent == Intent::Store, self.va);
        let zero_page = os.costs.zero_page.0;
        let around = os.costs.fault_around_bytes.0;
        let layer = self.layer(os);
        let vma = layer.spaces[self.space.index as usize].vmas.find(va);
        let vma = vma.expect("mappings do not change during a fault").clone();
        if let Leaf::Present(mapping) = *leaf {
            if mapping.flags.writable || !store {
                return Ok(None);
            }
            self.set_size(mapping.size);
            let reuse = vma.is_shared() || layer.pages.is_exclusive(mapping.pfn);
            if reuse {
                self.frame = mapping.pfn;
            }
            self.flags = PteFlags { writable: true, dirty: true, ..mapping.flags };
            return Ok(Some(match () {
                () if reuse => Work::Reuse,
                () if mapping.pfn == layer.pages.zero_page() => Work::Fresh,
                () => Work::Copy { from: mapping.pfn },
            }));
        }
        self.flags.writable = vma.prot.write;
        // Linux installs writable anonymous pages dirty (`do_anonymous_page`: pte_mkwrite(pte_mkdirty)).
        self.flags.dirty = vma.prot.write;
        if let Some(name) = vma.file.as_ref().filter(|_| is_file(&vma)) {
            let file = layer.pages.file(name);
            let page = |va: VirtAddr| (vma.file_offset + (va.0 - vma.start.0)) >> FRAME_SHIFT;
            let frame = layer.cached_page(file, page(va))?;
            if store && !vma.is_shared() {
                return Ok(Some(Work::Copy { from: frame }));
            }
            // Until the first store, a page that can be written is not dirty (shared) or not yet a copy (private).
            (self.flags.writable, self.flags.dirty) = (store, store);
            (self.frame, self.around) = (frame, VaRange { start: self.page, end: VirtAddr(self.page.0 + FRAME_BYTES) });
            if !store {
                self.around = window(&vma, va, around);
                for at in pages(self.around) {
                    layer.cached_page(file, page(at))?;
                }
            }
            return Ok(Some(Work::Cached { file, page: page(self.page) }));
        }
        if vma.is_shared() && self.size == PageSize::Size4K {
            let page = (vma.file_offset + (self.page.0 - vma.start.0)) >> FRAME_SHIFT;
            let frame = layer.pages.object(page);
            self.frame = frame.unwrap_or(self.frame);
            return Ok(Some(Work::Shared { page, present: frame.is_some() }));
        }
        if layer.reclaim.as_ref().is_some_and(|reclaim| reclaim.swap.holds(self.space.index, va)) {
            self.set_size(PageSize::Size4K);
            return Ok(Some(Work::SwapIn));
        }
        let untouched = !store && !vma.is_shared() && !vma.flags.contains(MapFlags::WRITTEN_BEFORE);
        if zero_page && untouched && self.size == PageSize::Size4K && vma.kind != VmaKind::Special {
            (self.flags.writable, self.flags.dirty) = (false, false);
            self.frame = layer.pages.zero_page();
            return Ok(Some(Work::ZeroPage));
        }
        Ok(Some(Work::Fresh))
    }

    fn set_size(&mut self, size: PageSize) {
        self.size = size;
        self.page = VirtAddr(self.va.0 & !(size.bytes() - 1));
        // All that may come to map a part of this page meet at its first 4 KiB.
        self.key = BlockKey::Page { space: self.space, page: self.page.0 >> FRAME_SHIFT };
    }

    /// Where a table stands already, the page is no larger than what the table maps by an entry. The key stays that of the
    /// larger page.
    fn shrink_to(&mut self, level: u8) {
        let key = self.key;
        while self.size > PageSize::ALL[usize::from(level.clamp(1, 3)) - 1] {
            self.set_size(smaller(self.size));
        }
        self.key = key;
    }

    /// Goes for the next missing table, or on to the page itself.
    fn next_table(&self, os: &mut Os) -> Result<State, EngineError> {
        let layer = self.layer(os);
        let table = &layer.spaces[self.space.index as usize].table;
        if table.missing_tables(&layer.mem, self.page, self.size) == 0 {
            return Ok(self.after_tables());
        }
        Ok(State::Table { frame: layer.take_frame(FramePurpose::PageTable, "a page table")? })
    }

    fn after_tables(&self) -> State {
        match self.work {
            Work::Fresh | Work::SwapIn | Work::Copy { .. } | Work::Shared { present: false, .. } => State::Allocation,
            Work::Cached { .. } | Work::Shared { present: true, .. } => State::Rmap,
            Work::ZeroPage | Work::Reuse => State::Lock,
        }
    }

    /// Links a zeroed table, unless another handler was faster.
    fn link(&self, os: &mut Os, frame: Pfn) {
        let layer = self.layer(os);
        let space = &mut layer.spaces[self.space.index as usize];
        layer.mem.create(frame);
        if space.table.link_table(&mut layer.mem, self.page, self.size, frame).is_some() {
            self.counters(os).tables += 1;
        } else {
            layer.mem.destroy(frame);
            layer.free_frames(frame, 0);
        }
    }

    /// The lock of the page-table page that the leaf entry is in.
    fn table_key(&self, os: &Os) -> BlockKey {
        BlockKey::PageTable { layer: self.space.layer, frame: self.entry(os).pfn() }
    }

    /// Writes the PTE, and those of the pages around.
    fn install(&mut self, os: &mut Os) -> Result<(), EngineError> {
        let (space, page) = (self.space.index, self.page);
        let leaf = self.leaf(os);
        let layer = self.layer(os);
        let (mut mapped, mut replaced) = (1_u64, false);
        match (self.work, leaf) {
            (Work::Cached { file, page: first }, _) => {
                mapped = 0;
                for at in pages(self.around) {
                    let number = first.wrapping_add(at.0 >> FRAME_SHIFT).wrapping_sub(page.0 >> FRAME_SHIFT);
                    let pfn = layer.pages.cached(file, number).expect("it was brought in before");
                    if layer.is_unmapped(space, at) {
                        layer.map(space, at, Mapping { pfn, size: self.size, flags: self.flags });
                        mapped += 1;
                    }
                }
            }
            (Work::Reuse, Leaf::Present(old)) => {
                layer.remap(space, page, Mapping { flags: self.flags, ..old });
            }
            (_, Leaf::Present(old)) => {
                layer.remap(space, page, Mapping { pfn: self.frame, size: self.size, flags: self.flags });
                layer.put_page(&old);
                replaced = true;
            }
            (Work::Shared { page: number, present: false }, _) => {
                match layer.pages.object(number) {
                    // Another process was faster.
                    Some(theirs) => {
                        layer.drop_page(self.frame);
                        layer.pages.share(theirs);
                        self.frame = theirs;
                    }
                    None => layer.pages.set_object(number, self.frame),
                }
                layer.map(space, page, Mapping { pfn: self.frame, size: self.size, flags: self.flags });
            }
            (_, Leaf::NotPresent { .. }) => {
                layer.map(space, page, Mapping { pfn: self.frame, size: self.size, flags: self.flags });
            }
        }
        if self.work == Work::SwapIn {
            let reclaim = layer.reclaim.as_mut().expect("the page was swapped out");
            reclaim.swap.remove(space, page);
            reclaim.counters.swapped_in += 1;
        }
        if matches!(self.work, Work::Fresh | Work::SwapIn | Work::Copy { .. } | Work::Reuse) {
            layer.list_page(space, page, &Mapping { pfn: self.frame, size: self.size, flags: self.flags });
        }
        if replaced {
            os.invalid.push((self.space, vec![VaRange { start: page, end: self.end() }]));
        }
        let (work, exception, size) = (self.work, self.exception, self.size);
        let counters = self.counters(os);
        match work {
            Work::ZeroPage => counters.zero_page += 1,
            Work::Copy { .. } => counters.copied += 1,
            Work::Reuse => counters.reused += 1,
            Work::Cached { .. } => {
                // Another fault's window may have had the page itself by now.
                (counters.cached, counters.around) = (counters.cached + 1, counters.around + mapped.saturating_sub(1))
            }
            Work::SwapIn => counters.major += 1,
            Work::Fresh | Work::Shared { .. } => {}
        }
        counters.populated += if exception { 0 } else { mapped };
        counters.pages[size as usize] += mapped;
        Ok(())
    }

    /// The page at `va` is mapped: goes on to the next one, or ends.
    fn page_done(&mut self, os: &mut Os, cpu: usize) -> Next {
        if self.locked {
            os.locks.release(self.key, cpu);
            self.locked = false;
            // As Linux counts them (`mm_account_fault`): population too.
            self.counters(os).minor += u64::from(!self.counted && self.work != Work::SwapIn);
            self.counted = true;
        }
        if self.further > 0 && matches!(self.work, Work::Fresh) {
            self.further -= 1;
            self.va = VirtAddr(self.page.0 + FRAME_BYTES);
            self.set_size(PageSize::Size4K);
            self.state = State::Walk;
            return Next::Continue;
        }
        if !self.exception {
            self.end_read(os, cpu);
            return Next::Done;
        }
        self.state = State::Return;
        Next::Continue
    }

    /// The mappings may change again.
    fn end_read(&mut self, os: &mut Os, cpu: usize) {
        if std::mem::take(&mut self.reads) {
            os.locks.end_read(self.space, cpu);
        }
    }
}

/// A mapping of a file's pages.
fn is_file(vma: &Vma) -> bool {
    vma.kind == VmaKind::File && vma.file.is_some()
}

/// Whether a mapping may have pages above 4 KiB (Linux `thp_vma_allowable_order`).
fn gets_large_pages(vma: &Vma, policy: LargePages) -> bool {
    let explicit = vma.flags.contains(MapFlags::HUGETLB);
    match (vma.advice.huge, policy) {
        _ if explicit => true,
        (HugeAdvice::NoHuge, _) => false,
        (HugeAdvice::Huge, _) | (HugeAdvice::None, LargePages::Always) => true,
        (HugeAdvice::None, LargePages::Madvise) => false,
    }
}

/// The 4 KiB pages of a range.
fn pages(range: VaRange) -> impl Iterator<Item = VirtAddr> {
    (range.start.0..range.end.0).step_by(FRAME_BYTES as usize).map(VirtAddr)
}

/// The window of `bytes` around `va`: it begins at a multiple of its size or with the VMA, and ends with what one
/// page-table page maps at the latest (Linux `do_fault_around`).
fn window(vma: &Vma, va: VirtAddr, bytes: u64) -> VaRange {
    let table = PageSize::Size2M.bytes();
    let start = (va.0 & !(bytes - 1)).max(vma.start.0);
    let end = (start + bytes).min(vma.end.0).min((va.0 & !(table - 1)) + table);
    VaRange { start: VirtAddr(start), end: VirtAddr(end) }
}

fn smaller(size: PageSize) -> PageSize {
    PageSize::ALL[(size as usize).saturating_sub(1)]
}

/// The largest page, up to `wanted`, whose aligned place around `va` lies inside the VMA.
fn largest_inside(vma: &Vma, va: VirtAddr, wanted: PageSize) -> PageSize {
    let inside = |size: &PageSize| {
        let start = va.0 & !(size.bytes() - 1);
        *size <= wanted && vma.start.0 <= start && start + size.bytes() <= vma.end.0
    };
    PageSize::ALL.into_iter().rev().find(inside).unwrap_or(PageSize::Size4K)
}
