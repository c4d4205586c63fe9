//! khugepaged: replaces small pages by large pages.
//!
//! Models: at each wake-up it continues where it stopped, through the mappings that may have large pages. For each
//! aligned 2 MiB it reads the page table and the metadata of the pages. If enough of them are present, at least one has
//! been accessed, and none is shared, swapped out or of a file, it allocates a large page, copies them to it and maps
//! it in their place. With `kernel.held_locks`, it holds the lock of the page-table page while it reads its entries.
//! Source: Linux mm/khugepaged.c (`khugepaged_scan_mm_slot`, `hpage_collapse_scan_pmd`, `collapse_huge_page`; in 4.9
//! and 4.19 `khugepaged_scan_pmd`).
//! Parameters: `kernel.threads.khugepaged` (`scan_sleep_cycles`, `pages_to_scan`, `max_ptes_none`),
//! `kernel.held_locks`.
//! Deviations: pages on the swap device are not read back (`max_ptes_swap` of 0), and shared pages (`max_ptes_shared`
//! of 0) and pages of files stay. The copy is made before the mapping is locked; if a fault prevents the lock then, the
//! place is skipped. Linux takes the lock of the page-table page again to isolate and clear the entries.

use crate::config::SpinLocks;
use crate::effects::Effects;
use crate::fault::gets_large_pages;
use crate::layer::Layer;
use crate::locks::TaskId;
use crate::memory::page_metadata;
use crate::os::Os;
use crate::reclaim::Pressure;
use crate::table_lock::{TableLocked, TableLocking};
use crate::threads::{Counter, Thread};
use crate::vma::{VaRange, Vma, VmaKind};
use pagelab_base::addr::{FRAME_BYTES, FRAME_SHIFT, LINE_BYTES, PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::{CpuId, DIRECT_MAP, LayerId, SpaceId, SpaceIx};
use pagelab_base::lock_kind::LockKind;
use pagelab_base::step::{BlockKey, Next, RefKind, Step};
use pagelab_tables::page_table::{Mapping, PteFlags, Removed, WalkList};
use pagelab_trace::MapFlags;
use parameters::Parameters;

/// Its configuration. This module is below the kernels and imports nothing from them.
pub mod parameters {
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use crate::threads::config::ThreadParameters;
    use pagelab_base::error::{EngineError, between};

    /// Parameters of khugepaged (`/sys/kernel/mm/transparent_hugepage/khugepaged`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    pub struct Parameters {
        /// Cycles from the end of a scan to the next one (`scan_sleep_millisecs`, 10 s in Linux).
        pub scan_sleep_cycles: u64,
        /// Number of 4 KiB pages that each scan examines (4096 in Linux).
        pub pages_to_scan: u32,
        /// Number of the 512 pages that may be missing (511 in Linux).
        pub max_ptes_none: u32,
    }

    impl ThreadParameters for Parameters {
        const MAKES_LARGE_PAGES: bool = true;

        fn validate(&self, key: &str) -> Result<(), EngineError> {
            between(&format!("{key}.max_ptes_none"), self.max_ptes_none, 0, 511)?;
            between(&format!("{key}.pages_to_scan"), self.pages_to_scan, 1, u32::MAX)?;
            if self.scan_sleep_cycles == 0 {
                let what = "0 is not possible; allowed is 1 and more";
                return Err(EngineError::config(format!("{key}.scan_sleep_cycles"), what));
            }
            Ok(())
        }

        fn samples() -> Vec<Self> {
            vec![
                Self { scan_sleep_cycles: 20_000, pages_to_scan: 4096, max_ptes_none: 511 },
                Self { scan_sleep_cycles: 200_000, pages_to_scan: 512, max_ptes_none: 64 },
            ]
        }
    }
}

const LARGE: PageSize = PageSize::Size2M;

#[derive(Clone, Debug, PartialEq, Eq)]
enum KhugepagedState {
    /// Take the lock of the place's page-table page.
    Lock(TableLocking),
    /// Find the next place, and examine its pages.
    Scan,
    /// Copy the pages of the place to a large page.
    Copy { frame: Pfn, pages: Vec<Removed> },
}

/// The first address space of a program, and its lowest address.
const START: (SpaceIx, VirtAddr) = (DIRECT_MAP.next(), VirtAddr(0));

/// Counters.
#[derive(Clone, Copy, Debug, Default)]
struct KhugepagedCounts {
    scanned: u64,
    collapsed: u64,
    no_frame: u64,
}

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Khugepaged {
    layer: LayerId,
    config: Parameters,
    /// Position of the next scan: number of the address space, and address.
    cursor: (SpaceIx, VirtAddr),
    counts: KhugepagedCounts,
    /// The current place: number of the address space, and address.
    at: Option<(SpaceIx, VirtAddr)>,
    /// Pages examined since it woke up.
    scanned: u64,
    /// Whether it has started over since it woke up.
    wrapped: bool,
    state: KhugepagedState,
    /// The page-table page whose lock it holds.
    held: Option<Pfn>,
}

impl Khugepaged {
    /// The thread of a layer, asleep, before its first pass.
    pub fn new(layer: LayerId, config: Parameters) -> Self {
        let (cursor, counts) = (START, KhugepagedCounts::default());
        let state = KhugepagedState::Scan;
        Self { layer, config, cursor, counts, at: None, scanned: 0, wrapped: false, state, held: None }
    }

    /// The current place, unless it has been unmapped meanwhile. A process that has ended has no table either.
    fn place(&self, layer: &Layer) -> Option<(SpaceIx, VirtAddr)> {
        self.at.filter(|&(space, place)| layer.spaces[space].vmas.find(place).is_some())
    }

    /// Plans the reads of the place's entries and of its pages' metadata.
    fn plan_scan(&self, layer: &Layer, step: &mut Step) {
        let Some((space, place)) = self.place(layer) else { return };
        let mut list = WalkList::new();
        layer.spaces[space].table.walk(&layer.memory.contents, place, &mut list);
        let pages = layer.mapped(space, place, place + LARGE.bytes());
        let small = pages.first().is_some_and(|page| page.mapping.size == PageSize::Size4K);
        if let Some(entry) = list.refs().last().filter(|_| small) {
            plan_entries(layer, space, entry.addr, &pages, step);
            pages.iter().for_each(|page| step.kernel(RefKind::Read, page_metadata(page.mapping.pfn)));
        }
    }

    /// Goes to the next place, starting over once after the last one, or ends.
    fn advance(&mut self, os: &mut Os, config: &Parameters) -> Next {
        let layer = &mut os.layers[self.layer];
        if self.scanned >= u64::from(config.pages_to_scan) {
            return Next::Done;
        }
        self.at = next_place(layer, self.cursor);
        if self.at.is_none() && !std::mem::replace(&mut self.wrapped, true) {
            self.at = next_place(layer, START);
        }
        let Some((space, place)) = self.at else {
            self.cursor = START;
            return Next::Done;
        };
        self.cursor = (space, place + LARGE.bytes());
        if os.costs.held_locks.is_some() && self.table(&os.layers[self.layer]).is_some() {
            self.state = KhugepagedState::Lock(TableLocking::Take);
        }
        Next::Continue
    }

    /// The page-table page of the current place's small pages; `None` if it has none of its own.
    fn table(&self, layer: &Layer) -> Option<Pfn> {
        let (space, place) = self.place(layer)?;
        let space = &layer.spaces[space];
        let mut list = WalkList::new();
        space.table.walk(&layer.memory.contents, place, &mut list);
        let entry = list.refs().last().filter(|last| last.level == 1)?;
        space.table.has_table_per_large_page().then(|| space.lock_frame(entry.addr))
    }

    /// Takes the lock of the place's page-table page, or waits for it. Goes on without if the table is gone.
    fn commit_lock(&mut self, os: &mut Os, task: TaskId, locking: TableLocking) -> Next {
        let Some(frame) = self.table(&os.layers[self.layer]) else {
            locking.give_up(&mut os.locks);
            return Next::Continue;
        };
        let (key, queued) =
            (BlockKey::PageTable { layer: self.layer, frame }, os.costs.spin_locks == SpinLocks::Queued);
        match locking.commit(&mut os.locks, queued, key, task) {
            TableLocked::Holds => self.held = Some(frame),
            TableLocked::Continues(next) => self.state = KhugepagedState::Lock(next),
            TableLocked::Waits(next, key) => {
                self.state = KhugepagedState::Lock(next);
                return Next::Block(key);
            }
        }
        Next::Continue
    }

    /// Replaces the small pages by the large one, if nothing has changed and no fault has locked the place.
    fn collapse(&mut self, os: &mut Os, effects: &mut Effects, cpu: CpuId, frame: Pfn, pages: &[Removed]) {
        let (space, start) = self.at.expect("a place was copied");
        let end = start + LARGE.bytes();
        let range = VaRange { start, end };
        let id = SpaceId { layer: self.layer, index: space };
        let free = os.locks.may_change(id, Some(range), os.costs.fault_lock) && os.engine_block_key(id).is_none();
        let layer = &mut os.layers[self.layer];
        let context = layer.context(cpu, space);
        let vma = layer.spaces[space].vmas.find(start).filter(|vma| vma.end >= end).cloned();
        let now = if vma.is_some() { layer.mapped(space, start, end) } else { Vec::new() };
        let same = now.len() == pages.len()
            && now.iter().zip(pages).all(|(a, b)| (a.va, a.mapping.pfn) == (b.va, b.mapping.pfn))
            && pages.iter().all(|page| is_exclusive(layer, page))
            && !layer.has_contents(space, range);
        let Some(vma) = vma.filter(|_| free && same) else {
            layer.free_block(context, frame, LARGE.order());
            return;
        };
        os.account_for_taken(id);
        let layer = &mut os.layers[self.layer];
        if !layer.has_room(context, space, start, LARGE) {
            layer.free_block(context, frame, LARGE.order());
            self.counts.no_frame += 1;
            return;
        }
        // Unmapped pages that an engine may map must not be mapped any more.
        layer.drop_words(context, space, range);
        for page in &now {
            layer.unmap(context, space, page);
            layer.put_page(context, &page.mapping);
        }
        layer.free_leaf_table(context, space, start);
        let writable = vma.prot.write;
        let flags = PteFlags { writable, user: true, executable: vma.prot.execute, accessed: true, dirty: writable };
        let mapping = Mapping { pfn: frame, size: LARGE, flags };
        layer.map(context, space, start, mapping).expect("the table has room");
        layer.list_page(&mapping);
        self.counts.collapsed += 1;
        effects.invalidate(id, range);
    }
}

impl Thread for Khugepaged {
    type Parameters = Parameters;

    fn new_in_layer(id: LayerId, layer: &Layer, parameters: &Parameters) -> Option<Self> {
        (layer.paging.page_size > PageSize::Size4K).then(|| Self::new(id, *parameters))
    }

    fn layer(&self) -> LayerId {
        self.layer
    }

    fn sleep_cycles(&self) -> Option<Cycles> {
        Some(self.config.scan_sleep_cycles.into())
    }

    fn begin(&mut self) {
        *self = Self { cursor: self.cursor, counts: self.counts, ..Self::new(self.layer, self.config) };
    }

    fn plan(&self, os: &Os, step: &mut Step) {
        let layer = &os.layers[self.layer];
        match &self.state {
            KhugepagedState::Lock(locking) => {
                if let Some(table) = self.table(layer) {
                    locking.plan(layer, &os.locks, table, step);
                }
            }
            KhugepagedState::Scan => {
                self.plan_scan(layer, step);
                if let Some(table) = self.held {
                    step.kernel_independent(RefKind::Write, page_metadata(table));
                    step.note_lock(LockKind::PageTable);
                }
            }
            KhugepagedState::Copy { frame, pages } => {
                for page in pages {
                    step.kernel(RefKind::Load { bytes: FRAME_BYTES }, page.mapping.pfn.addr());
                }
                step.kernel(RefKind::Zero { bytes: LARGE.bytes() }, frame.addr());
            }
        }
    }

    fn commit(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId) -> Next {
        let config = self.config;
        match std::mem::replace(&mut self.state, KhugepagedState::Scan) {
            KhugepagedState::Copy { frame, pages } => self.collapse(os, effects, task.cpu, frame, &pages),
            KhugepagedState::Lock(locking) => return self.commit_lock(os, task, locking),
            KhugepagedState::Scan => {
                if let Some(frame) = self.held.take() {
                    os.locks.release(BlockKey::PageTable { layer: self.layer, frame }, task);
                }
                let layer = &mut os.layers[self.layer];
                if let Some((space, place)) = self.place(layer) {
                    self.scanned += 1 << LARGE.order();
                    self.counts.scanned += 1;
                    let context = layer.context(task.cpu, space);
                    let pages = layer.mapped(space, place, place + LARGE.bytes());
                    if can_collapse(layer, space, place, &pages, &config) {
                        let limited =
                            matches!(layer.memory.pressure(LARGE.order(), context.group), Some(Pressure::Limit(_)));
                        let Some(frame) = (if limited { None } else { layer.take_page(context, LARGE.order()) }) else {
                            self.counts.no_frame += 1;
                            return self.advance(os, &config);
                        };
                        self.state = KhugepagedState::Copy { frame, pages };
                        return Next::Continue;
                    }
                }
            }
        }
        self.advance(os, &config)
    }

    fn held_frames(&self) -> u64 {
        if matches!(self.state, KhugepagedState::Copy { .. }) { 1 << LARGE.order() } else { 0 }
    }

    fn counters() -> &'static [Counter<Self>] {
        &[
            ("khugepaged.scanned", |thread| thread.counts.scanned, "Places of 2 MiB that khugepaged looked at"),
            ("khugepaged.collapsed", |thread| thread.counts.collapsed, "Large pages that replaced small ones"),
            (
                "khugepaged.no_frame",
                |thread| thread.counts.no_frame,
                "Places that were ripe when no large page was free, or the page table had no room for one",
            ),
        ]
    }
}

/// Plans the reads of a place's entries: of their table, which has this entry, or of each mapped page's line.
fn plan_entries(layer: &Layer, space: SpaceIx, entry: PhysAddr, pages: &[Removed], step: &mut Step) {
    let table = &layer.spaces[space].table;
    if table.has_table_per_large_page() {
        step.kernel(RefKind::Load { bytes: FRAME_BYTES }, entry.align_down(FRAME_BYTES));
        return;
    }
    let lines = pages.iter().map(|page| table.entry(&layer.memory.contents, page.va, PageSize::Size4K));
    let mut lines: Vec<_> = lines.map(|entry| entry.align_down(LINE_BYTES)).collect();
    lines.dedup();
    lines.into_iter().for_each(|line| step.kernel(RefKind::Read, line));
}

/// Returns the first aligned 2 MiB from `from` on in a mapping that may have large pages, over all address spaces.
fn next_place(layer: &Layer, from: (SpaceIx, VirtAddr)) -> Option<(SpaceIx, VirtAddr)> {
    let eligible = |vma: &Vma| {
        let anonymous = vma.kind != VmaKind::File && vma.kind != VmaKind::Special && !vma.is_shared();
        let explicit = vma.flags.contains(MapFlags::HUGETLB);
        anonymous && !explicit && gets_large_pages(vma, layer.paging.large_pages)
    };
    for space in layer.spaces.numbers_from(from.0) {
        let least = if space == from.0 { from.1.0 } else { 0 };
        for vma in layer.spaces[space].vmas.iter().filter(|vma| vma.end.0 > least && eligible(vma)) {
            let place = vma.start.0.max(least).next_multiple_of(LARGE.bytes());
            if place + LARGE.bytes() <= vma.end.0 {
                return Some((space, VirtAddr(place)));
            }
        }
    }
    None
}

/// Whether a page can be copied and freed: it belongs to one address space, or is the zero page.
fn is_exclusive(layer: &Layer, page: &Removed) -> bool {
    let pfn = page.mapping.pfn;
    let own = layer.memory.page_use.are_exclusive(pfn, 0);
    page.mapping.size == PageSize::Size4K && (own || pfn == layer.memory.page_use.zero_page())
}

/// Whether the pages of a place should become a large page.
fn can_collapse(layer: &Layer, space: SpaceIx, place: VirtAddr, pages: &[Removed], config: &Parameters) -> bool {
    let range = VaRange { start: place, end: place + LARGE.bytes() };
    let zero = layer.memory.page_use.zero_page();
    let there = pages.iter().filter(|page| page.mapping.pfn != zero).count() as u64;
    let none = (LARGE.bytes() >> FRAME_SHIFT) - there;
    let accessed = pages.iter().any(|page| page.mapping.flags.accessed);
    there > 0
        && none <= u64::from(config.max_ptes_none)
        && accessed
        && !layer.has_contents(space, range)
        && pages.iter().all(|page| is_exclusive(layer, page))
}
