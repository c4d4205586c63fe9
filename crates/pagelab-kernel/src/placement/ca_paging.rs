//! Contiguity-aware paging: each page gets the frame that continues those of its mapping, if that is free.
//!
//! Models: the first fault of a mapping chooses a place for the whole mapping: the next run of free blocks of the
//! largest order that is large enough, or the largest run, searched from the last choice on (next fit). The place is
//! remembered as an [`Offset`] from pages to frames. Each later fault, of a small or a large page, requests exactly the
//! frame at its offset. Nothing is reserved: if that frame is taken, a new place is chosen for the rest of the mapping,
//! and its offset applies from that page on. If there is no run, the page gets the allocator's next frame. A mapping
//! keeps a limited number of offsets; the oldest is forgotten first.
//! Source: Alverti, Psomadakis, Karakostas, Gandhi, Nikas, Goumas, Koziris, "Enhancing and exploiting contiguity for
//! fast memory virtualization" (ISCA 2020), its software part.
//! Parameters: `system.layers.NAME.placement` of kind `ca-paging`: `max_offsets`, `cycles`, `instructions`.
//! Stats: `layer.NAME.ca_paging.*`.
//! Deviations from the source: a place has the same address bits below the size of a block as its mapping, so that
//! large pages and lines of PTEs fit. Free memory is searched, while the paper keeps a contiguity map. Copies of pages
//! that are written after a fork, shared memory, files and the pages of khugepaged are placed in the ordinary way. A
//! frame on a CPU's list of free pages counts as taken. Remainders of split blocks next to a mapping's frames go to the
//! lists for smaller blocks, so other memory may be allocated there: of the same mobility with Linux's allocator, of
//! any with the plain buddy allocator. The authors' kernel was not compared and may differ in these choices: a page
//! follows the last offset chosen at or below it, if there is one; small pages whose frame is taken choose a new place,
//! as large ones do; offsets are dropped with what is unmapped and move with what is moved; a forked child starts
//! without offsets.

use std::collections::BTreeMap;
use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PlacementProgress, Policy, PolicyContext, WantedPage};
use crate::frames::frame_alloc::ZoneBatch;
use crate::locks::TaskLocks;
use crate::memory::{Memory, MemoryView, page_metadata};
use crate::reclaim::Pressure;
use crate::vma::VaRange;
use pagelab_base::addr::{FRAME_SHIFT, PageSize, Pfn, VirtAddr};
use pagelab_base::code_cost::{CodeCost, CodeCycles};
use pagelab_base::error::LayerConfigError;
use pagelab_base::ids::SpaceIx;
use pagelab_base::lock_kind::LockKind;
use pagelab_base::measure::Measure;
use pagelab_base::step::{RefKind, Step};

/// Order of the blocks that are searched, if the allocator has blocks of that size: the largest of x86-64 Linux.
const RUN_ORDER: u32 = 10;

/// The difference between the numbers of a page and its frame, in wrapping arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset(u64);

impl Offset {
    fn between(va: VirtAddr, pfn: u64) -> Self {
        Self(pfn.wrapping_sub(va.page_number()))
    }

    /// The frame that a page should get.
    pub fn target(self, va: VirtAddr) -> Pfn {
        Pfn(va.page_number().wrapping_add(self.0))
    }
}

/// An offset, and the end of the range that it was chosen for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Chosen {
    end: VirtAddr,
    offset: Offset,
    /// Sequence number within its address space.
    age: u64,
}

/// The offsets of the mappings of an address space, by the address from which each applies.
#[derive(Clone, Debug, Default)]
struct Offsets {
    chosen: BTreeMap<VirtAddr, Chosen>,
    made: u64,
}

impl Offsets {
    /// The offset for a page of a mapping: the last one chosen at or below it, for this mapping or one that it was
    /// split from; otherwise, in a mapping that has grown downwards, the next above.
    pub fn find(&self, va: VirtAddr, mapping: VaRange) -> Option<Offset> {
        let below = self.chosen.range(..=va).next_back();
        let below = below.filter(|&(&start, chosen)| va < chosen.end || start >= mapping.start);
        below.or_else(|| self.chosen.range(va..mapping.end).next()).map(|(_, chosen)| chosen.offset)
    }

    /// Remembers an offset for the rest of a mapping; true if another one had to be forgotten.
    fn remember(&mut self, from: VirtAddr, mapping: VaRange, offset: Offset, most: u32) -> bool {
        let kept = || self.chosen.range(mapping.start..mapping.end).filter(|&(&start, _)| start != from);
        let oldest = kept().min_by_key(|(_, chosen)| chosen.age).map(|(&start, _)| start);
        let oldest = oldest.filter(|_| kept().count() >= most as usize);
        oldest.iter().for_each(|start| _ = self.chosen.remove(start));
        self.made += 1;
        self.chosen.insert(from, Chosen { end: mapping.end, offset, age: self.made });
        oldest.is_some()
    }

    /// Forgets the offsets of a range.
    pub fn forget(&mut self, range: VaRange) {
        self.cut_out(range);
    }

    /// Moves the offsets of a range to another range of the same size.
    pub fn shift(&mut self, from: VaRange, to: VirtAddr) {
        let moved = |va: VirtAddr| to + (va.0 - from.start.0);
        for (start, chosen) in self.cut_out(from) {
            let offset = Offset::between(moved(start), chosen.offset.target(start).0);
            self.chosen.insert(moved(start), Chosen { end: moved(chosen.end), offset, ..chosen });
        }
    }

    /// Removes and returns the offsets inside a range; the parts on both sides stay.
    fn cut_out(&mut self, range: VaRange) -> Vec<(VirtAddr, Chosen)> {
        let below = self.chosen.range(..range.start).next_back().map(|(&start, &chosen)| (start, chosen));
        let inside = self.chosen.range(range.start..range.end).map(|(&start, &chosen)| (start, chosen));
        let overlapping: Vec<_> =
            below.into_iter().chain(inside).filter(|(_, chosen)| chosen.end > range.start).collect();
        let (mut out, behind) = (Vec::new(), self.chosen.contains_key(&range.end));
        for (start, chosen) in overlapping {
            self.chosen.remove(&start);
            if start < range.start {
                self.chosen.insert(start, Chosen { end: range.start, ..chosen });
            }
            out.push((start.max(range.start), Chosen { end: chosen.end.min(range.end), ..chosen }));
            // The last of them also applies after the range.
            if chosen.end > range.end && !behind {
                self.chosen.insert(range.end, chosen);
            }
        }
        out
    }
}

/// Counters of a layer.
#[derive(Clone, Copy, Debug, Default)]
struct CaPagingCounters {
    /// Places chosen for mappings without an offset.
    pub placed: u64,
    /// Places chosen for the rest of a mapping, since a frame was taken.
    pub placed_again: u64,
    /// Times that there was no free block of the largest order.
    pub no_run: u64,
    /// Offsets forgotten for newer ones.
    pub forgotten: u64,
    /// Pages that got the frame at their offset, and pages whose frame was taken.
    pub hits: u64,
    pub misses: u64,
}

/// Parameters of contiguity-aware paging.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CaPagingConfig {
    /// Offsets that a mapping remembers, 1 to 1024; 64 as in the paper.
    pub max_offsets: u32,
    /// Cycles of a look-up of an offset or a search for free memory, beyond its references. This and the instructions
    /// are estimates.
    pub cycles: CodeCycles,
    /// Instructions of a look-up of an offset or a search for free memory.
    pub instructions: u32,
}

impl Default for CaPagingConfig {
    fn default() -> Self {
        Self { max_offsets: 64, cycles: CodeCycles::Stated(20), instructions: 60 }
    }
}

/// A step on the way to the frame at an offset. A fault reads its mapping's offset and requests the frame there. If
/// there is no offset, or that frame is taken, it chooses a place under the zone's lock and requests the frame there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllocTarget {
    /// Look up the offset and take its frame.
    Target,
    /// Choose a place and take the frame there.
    Place {
        /// The offset whose frame was taken; `None` if there was no offset.
        failed: Option<Offset>,
    },
}

/// The placement state of a layer.
#[derive(Clone, Debug)]
pub struct CaPaging {
    config: CaPagingConfig,
    /// By number of the space.
    offsets: Vec<Offsets>,
    counters: CaPagingCounters,
}

impl CaPaging {
    fn offset(&self, page: &WantedPage) -> Option<Offset> {
        self.offsets.get(page.space.index.index())?.find(page.page, page.mapping)
    }

    fn offsets_of(&mut self, space: SpaceIx) -> &mut Offsets {
        let index = space.index();
        if index >= self.offsets.len() {
            self.offsets.resize_with(index + 1, Offsets::default);
        }
        &mut self.offsets[index]
    }

    /// Chooses a place for a mapping: for all of it if the page has no offset, otherwise for the rest from the page on.
    /// False if there is no free run.
    fn place(&mut self, page: &WantedPage, memory: &mut Memory) -> bool {
        let again = self.offset(page).is_some();
        let mapping = page.mapping;
        let from = if again { page.page } else { mapping.start };
        let run = find_place(&memory.view(), from, mapping, &mut Vec::new());
        let (before, block) = (place_in_block(&memory.view(), from), 1 << run_order(&memory.view()));
        let Some(run) = run else {
            self.counters.no_run += 1;
            return false;
        };
        let frames = before + ((mapping.end.0 - from.0) >> FRAME_SHIFT);
        let end = (run.start.0 + frames.next_multiple_of(block)).min(run.end.0);
        memory.frames.allocator.set_rover(Pfn(end));
        let (offset, most) = (Offset::between(from, run.start.0 + before), self.config.max_offsets);
        let forgotten = self.offsets_of(page.space.index).remember(from, mapping, offset, most);
        let counters = &mut self.counters;
        *if again { &mut counters.placed_again } else { &mut counters.placed } += 1;
        counters.forgotten += u64::from(forgotten);
        true
    }
}

impl Policy for CaPaging {
    type Config = CaPagingConfig;
    type Step = AllocTarget;

    const ABOUT: &'static str = "the frame that continues the mapping's others, if it is free";

    fn new(config: &CaPagingConfig) -> Self {
        Self { config: config.clone(), offsets: Vec::new(), counters: CaPagingCounters::default() }
    }

    fn check(config: &CaPagingConfig, around: &PolicyContext) -> Result<(), LayerConfigError> {
        if !(1..=1024).contains(&config.max_offsets) {
            let what = format!("{} is out of range; allowed are 1 to 1024", config.max_offsets);
            return Err(LayerConfigError::new("placement.max_offsets", what));
        }
        if around.page_size == PageSize::Size1G {
            let what = "pages of 1G are larger than the blocks that are looked for; allowed are 4K and 2M";
            return Err(LayerConfigError::new("page_size", what));
        }
        Ok(())
    }

    fn samples() -> Vec<CaPagingConfig> {
        vec![CaPagingConfig::default(), CaPagingConfig { max_offsets: 2, ..CaPagingConfig::default() }]
    }

    fn begin(&self, _: &WantedPage, _: &MemoryView) -> Option<AllocTarget> {
        Some(AllocTarget::Target)
    }

    fn plan(&self, page: Option<&WantedPage>, action: &AllocTarget, memory: &MemoryView, step: &mut Step) {
        let page = page.expect("it keeps no memory that another fault would give back");
        // The line of a mapping's offsets; not the line of its lock.
        let line = page.object_line(page.mapping.start.0 + 1);
        step.preset += CodeCost::new(self.config.instructions, self.config.cycles);
        match action {
            AllocTarget::Target => {
                step.kernel(RefKind::Read, line);
                if let Some(offset) = self.offset(page) {
                    step.preset += page.allocation;
                    let target = offset.target(page.page);
                    // Read whether it is free, if it is memory at all.
                    if memory.frames.allocator.frames().contains(&target) {
                        step.kernel(RefKind::Read, page_metadata(target));
                    }
                }
            }
            AllocTarget::Place { .. } => {
                step.preset += page.allocation;
                step.kernel(RefKind::Locked, page.zone);
                step.note_lock(LockKind::Zone);
                let mut looked = Vec::new();
                let from = if self.offset(page).is_some() { page.page } else { page.mapping.start };
                find_place(memory, from, page.mapping, &mut looked);
                looked.into_iter().for_each(|run| step.kernel(RefKind::Read, page_metadata(run)));
                step.kernel(RefKind::Write, line);
            }
        }
    }

    fn commit(
        &mut self,
        page: Option<&WantedPage>,
        action: AllocTarget,
        memory: &mut Memory,
        _: &mut TaskLocks,
    ) -> PlacementProgress<AllocTarget> {
        let page = page.expect("it keeps no memory that another fault would give back");
        if let Some(Pressure::Limit(_)) = memory.view().pressure(page.order) {
            return PlacementProgress::Ordinary;
        }
        let offset = self.offset(page);
        match action {
            AllocTarget::Target => {}
            // Another fault of the mapping has chosen meanwhile.
            AllocTarget::Place { failed } if offset != failed => {}
            AllocTarget::Place { .. } => {
                if !self.place(page, memory) {
                    return PlacementProgress::Ordinary;
                }
            }
        }
        if let Some(target) = self.offset(page).map(|offset| offset.target(page.page)) {
            let taken = memory.take_page_at(target, page.order);
            *if taken { &mut self.counters.hits } else { &mut self.counters.misses } += 1;
            if taken {
                let batch = ZoneBatch { descriptors: memory.frames.effects.descriptors.clone(), moved: 1 };
                return PlacementProgress::Taken { frame: target, refilled: Some(batch) };
            }
        }
        match action {
            AllocTarget::Target => PlacementProgress::Go(AllocTarget::Place { failed: offset }),
            AllocTarget::Place { .. } => PlacementProgress::Ordinary,
        }
    }

    fn wants_room_first(&self) -> bool {
        true
    }

    fn mapping_gone(&mut self, space: SpaceIx, range: VaRange) {
        self.offsets_of(space).forget(range);
    }

    fn mapping_moved(&mut self, space: SpaceIx, from: VaRange, to: VirtAddr) {
        self.offsets_of(space).shift(from, to);
    }

    fn space_ended(&mut self, space: SpaceIx, _: &mut Memory) {
        *self.offsets_of(space) = Offsets::default();
    }

    fn measures(&self) -> Vec<Measure> {
        let counters = &self.counters;
        let count = |what: &str, value, text: &str| Measure::count(format!("ca_paging.{what}"), value, text);
        vec![
            count("placed", counters.placed, "Places chosen for mappings that had none"),
            count(
                "placed_again",
                counters.placed_again,
                "Places chosen for the rest of a mapping whose frame was taken",
            ),
            count("no_run", counters.no_run, "Times that there was no free block of the largest order to choose"),
            count("forgotten", counters.forgotten, "Offsets of mappings that newer ones replaced"),
            count("hits", counters.hits, "Pages that got the frame that continues their mapping's frames"),
            count("misses", counters.misses, "Requested frames that were not free"),
        ]
    }
}

/// Order of the blocks with which places begin and end.
fn run_order(memory: &MemoryView) -> u32 {
    RUN_ORDER.min(memory.frames.allocator.max_order())
}

/// Number of a block's frames before that of a page.
fn place_in_block(memory: &MemoryView, va: VirtAddr) -> u64 {
    va.page_number() & ((1 << run_order(memory)) - 1)
}

/// The free memory for the rest of a mapping from a page on; adds the first frames of the runs that were examined to
/// `looked`.
fn find_place(memory: &MemoryView, from: VirtAddr, mapping: VaRange, looked: &mut Vec<Pfn>) -> Option<Range<Pfn>> {
    let frames = ((mapping.end.0 - from.0) >> FRAME_SHIFT) + place_in_block(memory, from);
    memory.frames.allocator.find_run(run_order(memory), frames, memory.context.cpu, looked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> VaRange {
        VaRange { start: VirtAddr::from_page_number(start), end: VirtAddr::from_page_number(end) }
    }

    /// Targets of the pages `0..count`, in a mapping about which only these offsets are known.
    fn targets(offsets: &Offsets, count: u64) -> Vec<Option<u64>> {
        let target = |n: u64| {
            let va = VirtAddr::from_page_number(n);
            offsets.find(va, range(n, n + 1)).map(|offset| offset.target(va).0)
        };
        (0..count).map(target).collect()
    }

    fn remember(offsets: &mut Offsets, from: u64, mapping: VaRange, pfn: u64, most: u32) -> bool {
        let va = VirtAddr::from_page_number(from);
        offsets.remember(va, mapping, Offset::between(va, pfn), most)
    }

    #[test]
    fn cutting_a_range_keeps_the_offsets_on_both_sides() {
        let mut offsets = Offsets::default();
        remember(&mut offsets, 0, range(0, 10), 100, 64);
        remember(&mut offsets, 6, range(0, 10), 206, 64);
        assert_eq!(targets(&offsets, 10), (100..106).chain(206..210).map(Some).collect::<Vec<_>>());
        // Of both: the last one also applies after it.
        offsets.forget(range(4, 8));
        let rest = |n: u64| (!(4..8).contains(&n)).then_some(if n < 4 { 100 + n } else { 200 + n });
        assert_eq!(targets(&offsets, 10), (0..10).map(rest).collect::<Vec<_>>());
        offsets.shift(range(2, 9), VirtAddr::from_page_number(20));
        let moved = |n: u64| match n {
            0 | 1 => Some(100 + n),
            9 => Some(209),
            20 | 21 => Some(102 + n - 20),
            26 => Some(208),
            _ => None,
        };
        assert_eq!(targets(&offsets, 30), (0..30).map(moved).collect::<Vec<_>>());
        offsets.forget(range(0, 30));
        assert_eq!(offsets.chosen, BTreeMap::new());
    }

    #[test]
    fn the_oldest_offset_of_a_mapping_is_forgotten_first() {
        let (mut offsets, mapping) = (Offsets::default(), range(10, 20));
        assert!(!remember(&mut offsets, 2, range(0, 5), 7, 2));
        assert!(!remember(&mut offsets, 14, mapping, 500, 2));
        assert!(!remember(&mut offsets, 10, mapping, 300, 2));
        assert!(remember(&mut offsets, 17, mapping, 900, 2));
        assert!(!remember(&mut offsets, 17, mapping, 901, 2), "in its own place");
        let kept: Vec<u64> = offsets.chosen.keys().map(|va| va.page_number()).collect();
        assert_eq!(kept, [2, 10, 17], "another mapping's is no matter");
        let target = |n: u64| {
            offsets.find(VirtAddr::from_page_number(n), mapping).unwrap().target(VirtAddr::from_page_number(n))
        };
        assert_eq!([10, 16, 17, 19].map(target), [300, 306, 901, 903].map(Pfn));
        // Grown in both directions.
        let grown = range(8, 30);
        let target =
            |n: u64| offsets.find(VirtAddr::from_page_number(n), grown).unwrap().target(VirtAddr::from_page_number(n));
        assert_eq!([8, 29].map(target), [298, 913].map(Pfn));
    }
}
