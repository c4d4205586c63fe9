//! The heap of an address space: its end according to `brk(2)`, and how far it is mapped.
//!
//! Models: the heap ends where the trace says. With an alignment, it is mapped up to the next multiple, as by an
//! allocator that moves the program break in steps of a huge page. A heap that shrinks releases whole steps. A step
//! must keep the gap to the next mapping that brk(2) requires.
//! Source: glibc 2.35 malloc/malloc.c (`sysmalloc`, `systrim` with `thp_pagesize`, which `glibc.malloc.hugetlb=1`
//! sets); Linux 6.1 mm/mmap.c (`brk`).
//! Parameters: `system.layers.NAME.brk_alignment_bytes`.
//! Stats: `layer.NAME.brk.*`.
//! Deviations from the source:
//! - glibc continues in a new mapping if brk(2) fails. Addresses of a trace cannot move, so the heap then ends where
//!   the trace says.
//! - A mapping of the trace at a place to which the heap was extended replaces that part of the heap. Linux would have
//!   placed the mapping elsewhere.
//! - glibc also requests huge pages by madvise(2). Here `large_pages` or the trace decides.

use pagelab_trace::event::{MapFlags, Protection};
use pagelab_trace::quantity::Bytes;

use super::set::{BrkOutcome, Heap};
use super::{VaRange, Vma, VmaAdvice, VmaChange, VmaError, VmaKind, VmaSet};
use pagelab_base::addr::{FRAME_BYTES, PageSize, VirtAddr};
use pagelab_base::error::LayerConfigError;
use pagelab_base::measure::Measure;

/// Rejects an impossible alignment; `guest` is a layer that this one hosts.
pub fn check_brk_alignment(bytes: Bytes, guest: Option<&str>) -> Result<(), LayerConfigError> {
    const KEY: &str = "brk_alignment_bytes";
    let (least, most) = (FRAME_BYTES, PageSize::Size1G.bytes());
    if !bytes.0.is_power_of_two() || !(least..=most).contains(&bytes.0) {
        let what = format!("{bytes} is not possible; allowed are powers of two from 4 KiB (one page) to 1 GiB");
        return Err(LayerConfigError::new(KEY, what));
    }
    match guest {
        Some(guest) => {
            let what = format!("no program runs on a layer that hosts others: set it for `{guest}`, which runs on it");
            Err(LayerConfigError::new(KEY, what))
        }
        None => Ok(()),
    }
}

/// Number of brk(2) calls, by the effect of the alignment.
#[derive(Clone, Copy, Debug, Default)]
pub struct BrkCounters {
    aligned: u64,
    refused: u64,
}

impl BrkCounters {
    /// Counts the last brk(2) call of an address space.
    pub fn count(&mut self, outcome: BrkOutcome) {
        match outcome {
            BrkOutcome::AsRecorded => {}
            BrkOutcome::Aligned => self.aligned += 1,
            BrkOutcome::Refused => self.refused += 1,
        }
    }

    /// The counters, as statistics of a layer.
    pub fn measures(&self) -> Vec<Measure> {
        vec![
            Measure::count("brk.aligned", self.aligned, "Calls of brk(2) whose heap was extended to the next multiple"),
            Measure::count(
                "brk.refused",
                self.refused,
                "Calls of brk(2) whose heap was not extended, because a mapping behind it left no room",
            ),
        ]
    }
}

impl VmaSet {
    /// The same address space with a heap whose mapped end is a multiple of `alignment`; without an alignment, of a
    /// page.
    pub fn with_brk_alignment(mut self, alignment: Option<Bytes>) -> Self {
        self.heap.alignment = alignment.map_or(FRAME_BYTES, |bytes| bytes.0);
        self
    }

    /// Effect of the alignment in the last brk(2) call.
    pub fn brk_outcome(&self) -> BrkOutcome {
        self.heap.outcome
    }

    /// Makes the heap span `start..end` (in bytes, rounded up to whole pages as by `brk(2)`), or extends it to the next
    /// multiple of the alignment. Growth does not affect other mappings; Linux would have refused to grow into them.
    pub fn set_brk(&mut self, start: u64, end: u64) -> Result<Vec<VmaChange>, VmaError> {
        if end < start {
            return Err(VmaError::HeapEndsBeforeStart { start, end });
        }
        let round_up = |addr: u64| addr.checked_next_multiple_of(FRAME_BYTES).map(VirtAddr);
        let past_the_end = VmaError::PastTheEnd { addr: start, len: end - start };
        let recorded = match (round_up(start), round_up(end)) {
            (Some(start), Some(end)) => VaRange { start, end },
            _ => return Err(past_the_end),
        };
        let (old_end, old_mapped_end) = match self.heap.recorded {
            Some(old) if old.start == recorded.start => (old.end, self.heap.mapped_end),
            _ => {
                let end = self.end_of_heap_vmas(recorded.start);
                (end, end)
            }
        };
        let (aligned, outcome) = self.aligned_end(recorded);
        // A heap that grows unmaps nothing, and one that shrinks maps nothing.
        let shrinks = recorded.end < old_end;
        let mapped_end = if shrinks { aligned.min(old_mapped_end) } else { aligned.max(old_mapped_end) };
        self.heap = Heap { recorded: Some(recorded), mapped_end, outcome, ..self.heap };
        if shrinks {
            return Ok(self.shrink_heap(old_end, old_mapped_end));
        }
        let gaps = self.gaps(VaRange { start: old_end, end: mapped_end });
        let advice = self.advice_of_new();
        Ok(gaps.into_iter().flat_map(|gap| self.map(heap_vma(gap, advice), false)).collect())
    }

    /// End of a heap with the alignment.
    fn aligned_end(&self, recorded: VaRange) -> (VirtAddr, BrkOutcome) {
        let as_recorded = (recorded.end, BrkOutcome::AsRecorded);
        // An allocator that has requested nothing has no heap.
        if recorded.is_empty() || recorded.end.is_aligned(self.heap.alignment) {
            return as_recorded;
        }
        let refused = (recorded.end, BrkOutcome::Refused);
        let Some(end) = recorded.end.0.checked_next_multiple_of(self.heap.alignment) else { return refused };
        let next = self.vmas_behind(recorded.end).find(|vma| vma.kind != VmaKind::Heap);
        // A page, and the guard gap of a stack, must stay free.
        let room = next.map_or(VaRange::ALL.end.0, |vma| vma.start.0.saturating_sub(self.guard_gap(vma)));
        if end.saturating_add(FRAME_BYTES) <= room { (VirtAddr(end), BrkOutcome::Aligned) } else { refused }
    }

    /// Unmaps what a shrinking heap releases. `old_end` is its old end in the trace, `old_mapped_end` its old mapped
    /// end. Of the heap itself, the part behind the last necessary step is unmapped; of other mappings, the part that
    /// the heap releases in the trace.
    fn shrink_heap(&mut self, old_end: VirtAddr, old_mapped_end: VirtAddr) -> Vec<VmaChange> {
        let end = self.heap.recorded.map_or(old_end, |recorded| recorded.end);
        let own = VaRange { start: self.heap.mapped_end, end: old_mapped_end };
        let others = VaRange { start: end, end: old_end };
        let gone: Vec<VaRange> = self
            .vmas_behind(end)
            .take_while(|vma| vma.start < old_mapped_end)
            .map(|vma| vma.range().intersection(if vma.kind == VmaKind::Heap { own } else { others }))
            .filter(|range| !range.is_empty())
            .collect();
        gone.into_iter().flat_map(|range| self.unmap(range)).collect()
    }

    /// End of the contiguous heap VMAs that begin at `start`. A recording that starts in mid-run shows the heap as a
    /// mapping before its first `brk`.
    fn end_of_heap_vmas(&self, start: VirtAddr) -> VirtAddr {
        self.vmas_behind(start)
            .filter(|vma| vma.kind == VmaKind::Heap)
            .fold(start, |end, vma| if vma.start <= end { vma.end } else { end })
    }
}

fn heap_vma(range: VaRange, advice: VmaAdvice) -> Vma {
    Vma {
        start: range.start,
        end: range.end,
        prot: Protection::READ_WRITE,
        flags: MapFlags::anonymous_private(),
        kind: VmaKind::Heap,
        file: None,
        file_offset: 0,
        advice,
        accounted: true,
        anon_vma: false,
    }
}

#[cfg(test)]
mod tests {
    use pagelab_trace::event::EventKind;
    use pagelab_trace::{case_seed, cases};

    use super::*;
    use pagelab_base::rng::Rng;

    const PAGE: u64 = FRAME_BYTES;
    const STEP: u64 = 2 << 20;
    /// Part of a step behind the last multiple, since programs end anywhere.
    const START: u64 = 16 * STEP + 5 * PAGE;
    /// Growth of glibc's heap, in bytes.
    const TOP_PAD: u64 = 132 << 10;

    fn aligned() -> VmaSet {
        VmaSet::default().with_brk_alignment(Some(Bytes(STEP)))
    }

    fn brk(set: &mut VmaSet, bytes: u64) -> Vec<VmaChange> {
        let changes = set.apply(&EventKind::Brk { start: START, end: START + bytes }).unwrap();
        set.check_invariants();
        changes
    }

    fn mmap(set: &mut VmaSet, addr: u64, len: u64, flags: u32) {
        let (prot, flags) = (Protection::READ_WRITE, MapFlags(flags));
        set.apply(&EventKind::Mmap { addr, len, prot, flags, file: None, file_offset: 0 }).unwrap();
    }

    fn spans(set: &VmaSet) -> Vec<(u64, u64, VmaKind)> {
        set.iter().map(|vma| (vma.start.0, vma.end.0, vma.kind)).collect()
    }

    fn heap(end: u64) -> (u64, u64, VmaKind) {
        (START, end, VmaKind::Heap)
    }

    const ANON: u32 = MapFlags::PRIVATE | MapFlags::ANONYMOUS;

    #[test]
    fn a_heap_grows_and_shrinks_by_whole_steps() {
        let mut set = aligned();
        assert_eq!(brk(&mut set, 0), [], "nothing was asked for");
        assert_eq!(set.brk_outcome(), BrkOutcome::AsRecorded);
        let range = VaRange { start: VirtAddr(START), end: VirtAddr(17 * STEP) };
        assert_eq!(brk(&mut set, TOP_PAD), [VmaChange::Mapped { range, populate: false }]);
        assert_eq!(set.brk_outcome(), BrkOutcome::Aligned);
        assert_eq!(brk(&mut set, 2 * TOP_PAD), []);
        brk(&mut set, STEP + TOP_PAD);
        assert_eq!(spans(&set), [heap(18 * STEP)]);
        brk(&mut set, 18 * STEP - START);
        assert_eq!((spans(&set), set.brk_outcome()), (vec![heap(18 * STEP)], BrkOutcome::AsRecorded));
        brk(&mut set, 3 * STEP + TOP_PAD);
        assert_eq!(spans(&set), [heap(20 * STEP)]);
        // The part of a step stays.
        assert_eq!(brk(&mut set, 3 * STEP), []);
        let changes = brk(&mut set, STEP);
        let range = VaRange { start: VirtAddr(18 * STEP), end: VirtAddr(20 * STEP) };
        assert!(matches!(&changes[..], [VmaChange::Unmapped { vma, .. }] if vma.range() == range), "{changes:?}");
        assert_eq!(spans(&set), [heap(18 * STEP)]);
        brk(&mut set, 0);
        assert_eq!(spans(&set), []);
    }

    #[test]
    fn a_neighbour_refuses_the_step_and_keeps_its_place() {
        // One byte more than the gap that brk(2) requires.
        for (neighbour, outcome) in [(18 * STEP, BrkOutcome::Refused), (18 * STEP + PAGE, BrkOutcome::Aligned)] {
            let mut set = aligned();
            brk(&mut set, TOP_PAD);
            mmap(&mut set, neighbour, PAGE, ANON);
            brk(&mut set, STEP + TOP_PAD);
            let refused = outcome == BrkOutcome::Refused;
            let end = if refused { START + STEP + TOP_PAD } else { 18 * STEP };
            assert_eq!(spans(&set), [heap(end), (neighbour, neighbour + PAGE, VmaKind::Anonymous)]);
            assert_eq!(set.brk_outcome(), outcome);
        }
        // A stack needs its guard gap.
        let mut set = aligned();
        mmap(&mut set, 17 * STEP + 100 * PAGE, PAGE, ANON | MapFlags::GROWSDOWN);
        brk(&mut set, TOP_PAD);
        assert_eq!(set.brk_outcome(), BrkOutcome::Refused);
    }

    #[test]
    fn a_mapping_in_the_added_part_survives_all_heap_changes() {
        let mut set = aligned();
        brk(&mut set, STEP + TOP_PAD);
        let inside = 18 * STEP - 10 * PAGE;
        mmap(&mut set, inside, PAGE, ANON);
        let neighbour = (inside, inside + PAGE, VmaKind::Anonymous);
        let behind = (inside + PAGE, 18 * STEP, VmaKind::Heap);
        assert_eq!(spans(&set), [heap(inside), neighbour, behind]);
        // It grows, and there is no room for a step: the part added before stays.
        brk(&mut set, STEP + 2 * TOP_PAD);
        assert_eq!((spans(&set), set.brk_outcome()), (vec![heap(inside), neighbour, behind], BrkOutcome::Refused));
        brk(&mut set, TOP_PAD);
        assert_eq!(spans(&set), [heap(17 * STEP), neighbour]);
        brk(&mut set, 0);
        assert_eq!(spans(&set), [neighbour]);
    }

    /// With and without an alignment, the mappings of the trace are the same; only the heap is larger.
    #[test]
    fn an_alignment_adds_pages_of_the_heap_and_changes_nothing_else() {
        const PAGES: u64 = 64;
        let (mut added, mut refused) = (0, 0);
        for seed in 0..cases(40) {
            let mut rng = Rng::new(case_seed(seed), "aligned heap");
            let step = PAGE << (1 + rng.below(4));
            let (mut plain, mut set) = (VmaSet::default(), VmaSet::default().with_brk_alignment(Some(Bytes(step))));
            for _ in 0..400 {
                let (addr, len) = (START + rng.below(PAGES) * PAGE, (1 + rng.below(3)) * PAGE);
                let (prot, flags) = (Protection::READ_WRITE, MapFlags(ANON));
                let event = match rng.below(4) {
                    0 => EventKind::Mmap { addr, len, prot, flags, file: None, file_offset: 0 },
                    1 => EventKind::Munmap { addr, len },
                    _ => EventKind::Brk { start: START, end: START + rng.below(PAGES / 2 * PAGE) },
                };
                plain.apply(&event).unwrap();
                set.apply(&event).unwrap();
                set.check_invariants();
                refused += u64::from(set.brk_outcome() == BrkOutcome::Refused);
                for page in 0..2 * PAGES {
                    let at = VirtAddr(START + page * PAGE);
                    let kind = |set: &VmaSet| set.find(at).map(|vma| vma.kind);
                    if kind(&plain) != kind(&set) {
                        assert_eq!((kind(&plain), kind(&set)), (None, Some(VmaKind::Heap)), "{event:?} at {at:?}");
                        added += 1;
                    }
                }
            }
        }
        assert!(added > 1000 && refused > 100, "{added} {refused}");
    }

    #[test]
    fn children_and_new_programs_have_the_same_alignment() {
        let mut set = aligned();
        brk(&mut set, TOP_PAD);
        let mut child = set.fork();
        brk(&mut child, STEP);
        assert_eq!(spans(&child), [heap(18 * STEP)]);
        set.clear();
        brk(&mut set, STEP);
        assert_eq!(spans(&set), [heap(18 * STEP)]);
    }

    #[test]
    fn impossible_alignments_are_refused() {
        for bytes in [0, 1024, 3 * PAGE, 2 << 30] {
            assert!(check_brk_alignment(Bytes(bytes), None).unwrap_err().what.contains("powers of two from 4 KiB"));
        }
        for bytes in [PAGE, STEP, 1 << 30] {
            check_brk_alignment(Bytes(bytes), None).unwrap();
        }
        assert!(check_brk_alignment(Bytes(STEP), Some("guest")).unwrap_err().what.contains("`guest`"));
    }
}
