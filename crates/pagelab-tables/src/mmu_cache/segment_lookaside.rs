//! Segment look-aside buffer (POWER).
//!
//! Models: a fully associative array of segments, which a walk must know before it can search the hashed table. A hit
//! spares all references to the segment table. After a miss the kernel's handler, or hardware, searches the segment
//! table and replaces the oldest entry (Linux: round robin). Entries do not tell processes apart, so a switch to
//! another process drops them, and the kernel drops the entry of a segment that is pointed to another virtual segment
//! (`slbie`). The kernel's own segments have fixed entries.
//! Source: Power ISA, book III (segment lookaside buffer, `slbie`, `slbia`, `slbmte`); POWER8 Processor User's Manual
//! (32 entries per thread); Linux arch/powerpc/mm/book3s64/slb.c (`do_slb_fault`, `switch_slb`, `SLB_NUM_BOLTED`).
//! Parameters: `machine.mmu_cache.segment_lookaside`: entries, fixed entries of the kernel, latency of a look-up, who
//! handles a miss, cycles of the handler, whether a switch of processes drops the entries.
//! Stats: `layer.NAME.mmu_cache.segments.*`.
//! Deviations: it is asked when all TLBs have missed. On POWER only the first-level one holds effective addresses, and
//! the second one is asked for virtual addresses. A handler's references are those of the walk. The threads of a core
//! share an array. A segment whose base page size changes is not dropped.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Asid, Design, Geometry, MmuCacheGeometry, SparedRefs, cacheable};
use crate::page_table::{UpperEntries, WalkList, WalkRef};
use pagelab_base::addr::VirtAddr;
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::memory::PhysMem;
use pagelab_base::rng::Rng;

/// Who finds a segment that the buffer lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SegmentFill {
    /// A handler of the kernel, after an interrupt.
    #[default]
    Software,
    /// Hardware, which searches the segment table itself.
    Hardware,
}

/// Segment look-aside buffer (Power ISA, book III).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SegmentLookasideConfig {
    /// Entries of a core. Default: 32 (POWER8).
    pub entries: u32,
    /// Entries among these that always hold the kernel's own segments. Default: 2 (Linux).
    pub fixed: u32,
    /// Cycles of a look-up. Default: 2, estimated: as the paging-structure caches of Intel's processors.
    pub latency_cycles: u32,
    /// Who finds a segment after a miss.
    pub fill: SegmentFill,
    /// Cycles of the kernel's handler without its references to the segment table. Default: 150, estimated: an
    /// interrupt and about 100 instructions.
    pub handler_cycles: u32,
    /// Whether a switch to another process drops the entries (`slbia`). If not, entries know their process.
    pub flush_on_switch: bool,
}

impl Default for SegmentLookasideConfig {
    fn default() -> Self {
        Self {
            entries: 32,
            fixed: 2,
            latency_cycles: 2,
            fill: SegmentFill::Software,
            handler_cycles: 150,
            flush_on_switch: true,
        }
    }
}

impl SegmentLookasideConfig {
    /// Whether all parameters have their defaults.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Geometry for SegmentLookasideConfig {
    fn together(&mut self, cores: u32, extra_latency_cycles: u32) {
        self.entries = self.entries.saturating_mul(cores);
        self.latency_cycles = self.latency_cycles.saturating_add(extra_latency_cycles);
    }
}

/// Counts of a segment look-aside buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentCounts {
    /// Walks that found their segment.
    pub hits: u64,
    /// Walks that did not.
    pub misses: u64,
    /// Cycles of the kernel's handler, without references.
    pub handler_cycles: Cycles,
    /// Switches of processes that dropped the entries.
    pub switches: u64,
    /// Entries that were dropped since their segments were pointed to other virtual segments, or since all translations
    /// of the process were; not those of a switch.
    pub invalidated: u64,
}

impl std::ops::AddAssign for SegmentCounts {
    fn add_assign(&mut self, other: Self) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.handler_cycles += other.handler_cycles;
        self.switches += other.switches;
        self.invalidated += other.invalidated;
    }
}

/// The number of no segment.
const INVALID: u64 = u64::MAX;

/// The largest buffer, which is searched entry by entry.
const MAX_ENTRIES: u32 = 4096;

/// The segment look-aside buffer of a layer on a core.
#[derive(Clone)]
pub struct SegmentLookaside {
    /// Segments for programs, of which the first `used` have been written. [`INVALID`] stands for one that was dropped.
    segments: Vec<(Asid, u64)>,
    /// log2 of the bytes of the segments that it holds.
    shift: u8,
    used: usize,
    /// The entry that is replaced next.
    next: usize,
    /// The process whose walk was the last.
    current: Option<Asid>,
    flush_on_switch: bool,
    latency_cycles: Cycles,
    handler_cycles: Cycles,
    counts: SegmentCounts,
}

impl SegmentLookaside {
    /// An empty buffer.
    pub fn new(config: &SegmentLookasideConfig) -> Result<Self, EngineError> {
        let SegmentLookasideConfig { entries, fixed, latency_cycles, fill, handler_cycles, flush_on_switch } = *config;
        if fixed >= entries || entries > MAX_ENTRIES {
            let what = format!(
                "{entries} entries, of which {fixed} are the kernel's, are not possible; allowed are 1 to {MAX_ENTRIES} entries, more \
                 than the kernel's"
            );
            return Err(EngineError::config("machine.mmu_cache.segment_lookaside", what));
        }
        let handler_cycles = if fill == SegmentFill::Software { handler_cycles } else { 0 };
        Ok(Self {
            segments: vec![(Asid(0), 0); (entries - fixed) as usize],
            shift: 0,
            used: 0,
            next: 0,
            current: None,
            flush_on_switch,
            latency_cycles: latency_cycles.into(),
            handler_cycles: handler_cycles.into(),
            counts: SegmentCounts::default(),
        })
    }

    /// Drops all entries; returns how many there were.
    fn clear(&mut self) -> u64 {
        let held = self.segments[..self.used].iter().filter(|(_, segment)| *segment != INVALID).count();
        (self.used, self.next) = (0, 0);
        held as u64
    }
}

/// The segments among a walk's references, which the page's own search follows; 0 for a walk through another table,
/// such as the direct map's.
fn segment_refs(refs: &[WalkRef]) -> usize {
    let Some(first) = refs.first().filter(|first| [28, 40].contains(&first.shift)) else { return 0 };
    refs.iter().take_while(|r| r.shift == first.shift).count()
}

impl Design for SegmentLookaside {
    const DROPPED_WITH_PAGES: bool = false;

    fn new(geometry: &MmuCacheGeometry, _: &Rng) -> Result<Self, EngineError> {
        Self::new(&geometry.segment_lookaside)
    }

    fn samples(geometry: &MmuCacheGeometry) -> Vec<MmuCacheGeometry> {
        let segment_lookaside = SegmentLookasideConfig {
            entries: 2,
            fixed: 1,
            fill: SegmentFill::Hardware,
            flush_on_switch: false,
            ..SegmentLookasideConfig::default()
        };
        vec![geometry.clone(), MmuCacheGeometry { segment_lookaside, ..geometry.clone() }]
    }

    fn keeps(entries: UpperEntries) -> Result<(), &'static str> {
        if entries == UpperEntries::Segments { Ok(()) } else { Err("no table of segments") }
    }

    #[inline]
    fn look_up(&mut self, asid: Asid, va: VirtAddr, list: &WalkList) -> SparedRefs {
        let refs = list.refs();
        let count = segment_refs(refs);
        if count == 0 {
            return SparedRefs { skip: 0, by_entry: false, cycles: Cycles::ZERO };
        }
        if self.flush_on_switch && self.current.replace(asid).is_some_and(|last| last != asid) {
            self.clear();
            self.counts.switches += 1;
        }
        let segment = (asid, refs[0].prefix(va));
        if count < refs.len() && self.segments[..self.used].contains(&segment) {
            self.counts.hits += 1;
            return SparedRefs { skip: (1 << count) - 1, by_entry: false, cycles: self.latency_cycles };
        }
        self.counts.misses += 1;
        self.counts.handler_cycles += self.handler_cycles;
        SparedRefs { skip: 0, by_entry: false, cycles: self.latency_cycles + self.handler_cycles }
    }

    /// Inserts the segment that the walk found and did not skip.
    #[inline(never)]
    fn fill(&mut self, asid: Asid, va: VirtAddr, list: &WalkList, read: usize, skip: u32, _: &PhysMem) {
        let (refs, count) = (list.refs(), segment_refs(list.refs()));
        if count == 0 || skip != 0 || count == refs.len() || read < count.min(cacheable(list)) {
            return;
        }
        self.shift = refs[0].shift;
        self.segments[self.next] = (asid, refs[0].prefix(va));
        self.used = self.used.max(self.next + 1);
        self.next = (self.next + 1) % self.segments.len();
    }

    fn invalidate_segments(&mut self, asid: Asid, start: VirtAddr, end: VirtAddr) {
        let range = start.0 >> self.shift..end.0.div_ceil(1 << self.shift);
        for (process, segment) in &mut self.segments[..self.used] {
            if *process == asid && range.contains(segment) {
                *segment = INVALID;
                self.counts.invalidated += 1;
            }
        }
    }

    fn segment_counts(&self) -> Option<SegmentCounts> {
        Some(self.counts)
    }

    /// Drops all entries, since they are not tagged by address space.
    fn flush(&mut self, asid: Asid) {
        if self.current.is_none_or(|current| current == asid) || !self.flush_on_switch {
            self.counts.invalidated += self.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_table::Leaf;
    use pagelab_base::addr::PhysAddr;

    /// A walk with two references to the segment table and one to the page's group.
    fn full_walk() -> WalkList {
        let mut list = WalkList::new();
        list.set([(2, 28), (2, 28), (1, 12)].map(|(level, shift)| WalkRef {
            addr: PhysAddr(0),
            level,
            shift,
            factor: 1,
            step: 0,
        }));
        list.leaf = Leaf::nothing(1);
        list
    }

    fn pass(buffer: &mut SegmentLookaside, asid: u16, segment: u64) -> bool {
        let (list, va) = (full_walk(), VirtAddr(segment << 28 | 0x1234));
        let spared = buffer.look_up(Asid(asid), va, &list);
        assert!([0, 0b11].contains(&spared.skip));
        buffer.fill(Asid(asid), va, &list, 2, spared.skip, &PhysMem::default());
        spared.skip != 0
    }

    #[test]
    fn the_oldest_segment_is_replaced_and_the_kernels_entries_never() {
        let config = SegmentLookasideConfig { entries: 5, fixed: 2, ..SegmentLookasideConfig::default() };
        let mut buffer = SegmentLookaside::new(&config).unwrap();
        let found: Vec<bool> = [1, 2, 3, 1, 4, 1, 4, 3].map(|segment| pass(&mut buffer, 7, segment)).to_vec();
        assert_eq!(found, [false, false, false, true, false, false, true, true], "1 is the oldest when 4 comes");
        let cycles = 150_u64 * 5;
        let counts =
            SegmentCounts { hits: 3, misses: 5, handler_cycles: Cycles::from(cycles), ..SegmentCounts::default() };
        assert_eq!(buffer.segment_counts(), Some(counts));
    }

    #[test]
    fn an_invalidated_segment_is_looked_for_again() {
        let config = SegmentLookasideConfig { flush_on_switch: false, ..SegmentLookasideConfig::default() };
        let mut buffer = SegmentLookaside::new(&config).unwrap();
        for (asid, segment) in [(7, 1), (7, 2), (7, 3), (8, 2)] {
            assert!(!pass(&mut buffer, asid, segment));
        }
        buffer.invalidate_segments(Asid(7), VirtAddr(2 << 28), VirtAddr(3 << 28));
        assert_eq!(buffer.counts.invalidated, 1);
        let hits = [(7, 1), (7, 2), (7, 3), (8, 2), (7, 2)].map(|(asid, segment)| pass(&mut buffer, asid, segment));
        assert_eq!(hits, [true, false, true, true, true]);
        // A flush drops the four that are left, and one of them was dropped before.
        buffer.invalidate_segments(Asid(8), VirtAddr(2 << 28), VirtAddr(3 << 28));
        buffer.flush(Asid(7));
        assert_eq!(buffer.counts.invalidated, 1 + 1 + 3);
    }

    #[test]
    fn a_switch_of_processes_drops_all_segments() {
        let with = |flush_on_switch| SegmentLookasideConfig { flush_on_switch, ..SegmentLookasideConfig::default() };
        for (flush_on_switch, hits) in [(true, 0), (false, 8)] {
            let mut buffer = SegmentLookaside::new(&with(flush_on_switch)).unwrap();
            for _ in 0..5 {
                for asid in [7, 8] {
                    pass(&mut buffer, asid, 1);
                }
            }
            assert_eq!(buffer.counts.hits, hits);
            assert_eq!(buffer.counts.switches, if flush_on_switch { 9 } else { 0 });
        }
    }
}
