//! The ordered set of VMAs and its operations.

use std::sync::atomic::{AtomicUsize, Ordering};

use pagelab_trace::event::Protection;

use super::{VaRange, Vma, VmaAdvice, VmaChange, VmaError};
use pagelab_base::addr::{FRAME_BYTES, VirtAddr};

/// Lowest address of a mapping (Linux `vm.mmap_min_addr`, default of most distributions).
const LOWEST_ADDRESS: VirtAddr = VirtAddr(0x1_0000);

/// Limits of the growth of stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackLimits {
    /// Largest size of a stack VMA (`RLIMIT_STACK`, default 8 MiB).
    pub max_bytes: u64,
    /// Smallest distance to the accessible mapping below (`stack_guard_gap`, default 256 pages).
    pub guard_gap_bytes: u64,
}

impl Default for StackLimits {
    fn default() -> Self {
        Self { max_bytes: 8 << 20, guard_gap_bytes: 256 * FRAME_BYTES }
    }
}

/// Index of the last look-up's hit. It is a hint: every use checks it, so a stale one costs only time and results never
/// depend on it. Atomic so that several threads can read a set.
#[derive(Debug, Default)]
struct LastHit(AtomicUsize);

impl Clone for LastHit {
    fn clone(&self) -> Self {
        Self(AtomicUsize::new(self.0.load(Ordering::Relaxed)))
    }
}

/// Effect of the alignment in the last brk(2) call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BrkOutcome {
    /// The heap ends where the trace says.
    #[default]
    AsRecorded,
    /// The heap ends at a later multiple of the alignment.
    Aligned,
    /// A neighbouring mapping leaves no room for that, so the heap ends where the trace says.
    Refused,
}

/// The heap of an address space (`heap.rs`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Heap {
    pub(super) alignment: u64,
    /// The heap according to the trace, in whole pages; `None` before the first brk(2).
    pub(super) recorded: Option<VaRange>,
    /// End of its mapped pages; with an alignment, often later than the recorded end.
    pub(super) mapped_end: VirtAddr,
    pub(super) outcome: BrkOutcome,
}

impl Default for Heap {
    fn default() -> Self {
        Self { alignment: FRAME_BYTES, recorded: None, mapped_end: VirtAddr(0), outcome: BrkOutcome::default() }
    }
}

impl Heap {
    /// The heap of the same process after everything has been unmapped.
    fn cleared(self) -> Self {
        Self { alignment: self.alignment, ..Self::default() }
    }
}

/// The VMAs of one address space; see the folder's text.
#[derive(Clone, Debug, Default)]
pub struct VmaSet {
    /// In ascending order and disjoint; no two neighbours can be merged.
    vmas: Vec<Vma>,
    /// The ends of the VMAs, for look-ups: eight to a cache line.
    ends: Vec<VirtAddr>,
    last_hit: LastHit,
    mapped_pages: u64,
    pub(super) heap: Heap,
    limits: StackLimits,
    engine: EngineFlag,
}

/// The process's flag of a fault engine.
#[derive(Clone, Copy, Debug, Default)]
struct EngineFlag {
    /// The process does not have the engine, and its new mappings are not served.
    off: bool,
    /// A new program begins without it.
    off_at_start: bool,
}

impl VmaSet {
    /// An address space without mappings, whose stack grows up to these limits.
    pub fn new(limits: StackLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// The same address space; with `off`, programs begin without the fault engine.
    pub fn with_engine_off(mut self, off: bool) -> Self {
        self.engine = EngineFlag { off, off_at_start: off };
        self
    }

    /// Whether the process does not have the fault engine of its kernel.
    pub fn engine_is_off(&self) -> bool {
        self.engine.off
    }

    /// Gives the process the engine, or takes it away.
    pub fn set_engine_off(&mut self, off: bool) {
        self.engine.off = off;
    }

    /// The advice of mappings that the process makes now.
    pub(super) fn advice_of_new(&self) -> VmaAdvice {
        VmaAdvice { unserved: self.engine.off, ..VmaAdvice::default() }
    }

    /// The VMAs in ascending order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Vma> {
        self.vmas.iter()
    }

    /// Number of VMAs.
    pub fn len(&self) -> usize {
        self.vmas.len()
    }

    /// Whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.vmas.is_empty()
    }

    /// Number of 4 KiB pages in all VMAs.
    pub fn mapped_pages(&self) -> u64 {
        self.mapped_pages
    }

    /// Number of VMAs that begin before `addr`.
    pub fn number_before(&self, addr: VirtAddr) -> usize {
        self.vmas.partition_point(|vma| vma.start < addr)
    }

    /// The VMA that contains `addr`.
    #[inline]
    pub fn find(&self, addr: VirtAddr) -> Option<&Vma> {
        let hint = self.last_hit.0.load(Ordering::Relaxed);
        if let Some(vma) = self.vmas.get(hint).filter(|vma| vma.contains(addr)) {
            return Some(vma);
        }
        let at = self.first_ending_after(addr);
        let vma = self.vmas.get(at).filter(|vma| vma.start <= addr)?;
        self.last_hit.0.store(at, Ordering::Relaxed);
        Some(vma)
    }

    /// Like [`Self::find`], for an access by the program: a stack above `addr` grows down to it if the limits allow
    /// (Linux `expand_downwards`). Growth does not change translations.
    pub fn find_or_grow(&mut self, addr: VirtAddr) -> Option<&Vma> {
        if let Some(range) = self.growth(addr) {
            let grown = self.vmas[self.first_ending_after(addr)].over(range);
            self.rebuild(range, |_| vec![grown]);
        }
        self.find(addr)
    }

    /// The range that a stack would add if it grew down to `addr`; `None` if that is mapped, or no stack may grow
    /// there.
    pub fn growth(&self, addr: VirtAddr) -> Option<VaRange> {
        if self.find(addr).is_some() {
            return None;
        }
        let at = self.first_ending_after(addr);
        let stack = self.vmas.get(at).filter(|vma| vma.grows_down())?;
        let start = addr.align_down(FRAME_BYTES);
        if start < LOWEST_ADDRESS || stack.end.0 - start.0 > self.limits.max_bytes {
            return None;
        }
        if let Some(below) = at.checked_sub(1).map(|below| &self.vmas[below]) {
            let guarded = below.is_accessible() && !below.grows_down();
            if guarded && start.0 - below.end.0 < self.limits.guard_gap_bytes {
                return None;
            }
        }
        Some(VaRange { start, end: stack.start })
    }

    /// Maps `vma` and replaces whatever is in its range. `populate` is passed on.
    pub fn map(&mut self, vma: Vma, populate: bool) -> Vec<VmaChange> {
        let range = vma.range();
        self.put(vma, VmaChange::Mapped { range, populate })
    }

    /// Maps `vma` and replaces whatever is in its range; returns the changes, `new` last.
    pub(super) fn put(&mut self, vma: Vma, new: VmaChange) -> Vec<VmaChange> {
        let range = vma.range();
        let mut changes = self.unmap(range);
        self.rebuild(range, |_| vec![vma]);
        changes.push(new);
        changes
    }

    /// Unmaps `range`; returns one [`VmaChange::Unmapped`] for each piece, ascending.
    pub fn unmap(&mut self, range: VaRange) -> Vec<VmaChange> {
        let pieces = self.take(range);
        let room = self.room_of(range);
        pieces.into_iter().map(|vma| VmaChange::Unmapped { vma, room }).collect()
    }

    /// A range together with the gaps around it.
    pub fn room_of(&self, range: VaRange) -> VaRange {
        let behind = self.first_ending_after(range.end);
        let before = self.vmas.partition_point(|vma| vma.start < range.start);
        VaRange {
            start: before.checked_sub(1).map_or(VirtAddr(0), |at| self.vmas[at].end.min(range.start)),
            end: self.vmas.get(behind).map_or(VaRange::ALL.end, |vma| vma.start.max(range.end)),
        }
    }

    /// Unmaps everything, as exec and exit do.
    pub fn clear(&mut self) -> Vec<VmaChange> {
        self.ends.clear();
        self.mapped_pages = 0;
        self.heap = self.heap.cleared();
        self.engine.off = self.engine.off_at_start;
        self.vmas.drain(..).map(|vma| VmaChange::Unmapped { vma, room: VaRange::ALL }).collect()
    }

    /// Sets the protection of the mapped parts of `range` to `prot`; returns one [`VmaChange::Protected`] for each
    /// piece that had another protection.
    pub fn protect(&mut self, range: VaRange, prot: Protection) -> Vec<VmaChange> {
        let pieces = self.modify(range, |vma| {
            vma.prot = prot;
            vma.account();
        });
        let changed = pieces.into_iter();
        changed.map(|old| VmaChange::Protected { range: old.range(), from: old.prot, to: prot }).collect()
    }

    /// Changes the advice of the mapped parts of `range`.
    pub fn advise(&mut self, range: VaRange, mut change: impl FnMut(&mut VmaAdvice)) {
        self.modify(range, |vma| change(&mut vma.advice));
    }

    /// Notes that the VMA at an address has anonymous pages.
    pub fn add_anon_vma(&mut self, addr: VirtAddr) {
        let at = self.first_ending_after(addr);
        if let Some(vma) = self.vmas.get_mut(at).filter(|vma| vma.start <= addr) {
            vma.anon_vma = true;
        }
    }

    /// The mapped parts of `range`, ascending, one per VMA.
    pub fn mapped_parts(&self, range: VaRange) -> impl Iterator<Item = VaRange> + '_ {
        let first = self.first_ending_after(range.start);
        let inside = self.vmas[first..].iter().take_while(move |vma| vma.start < range.end && !range.is_empty());
        inside.map(move |vma| vma.range().intersection(range))
    }

    /// Moves or resizes mappings as `mremap(2)` does: `old` becomes `new`. Other mappings in `new` are unmapped. An
    /// empty `old` creates a second mapping of the same shared memory. Errors leave the set unchanged.
    pub fn remap(&mut self, old: VaRange, new: VaRange) -> Result<Vec<VmaChange>, VmaError> {
        if new.is_empty() {
            return Err(VmaError::Empty { addr: new.start.0 });
        }
        let growth = new.len_bytes().saturating_sub(old.len_bytes());
        let last = if old.is_empty() { old.start } else { old.end - 1 };
        // The VMA that new pages, if any, continue.
        let model = match (growth, self.find(last)) {
            (0, _) => None,
            (_, Some(vma)) => Some(vma.clone()),
            (_, None) => return Err(VmaError::NotMapped { addr: last.0 }),
        };
        if self.mapped_parts(old).next().is_none() && !old.is_empty() {
            return Err(VmaError::NotMapped { addr: old.start.0 });
        }
        let in_place = old.start == new.start && !old.is_empty();
        if !in_place && old.overlaps(new) {
            return Err(VmaError::Overlap { old: old.start.0, new: new.start.0 });
        }

        let kept = old.start + old.len_bytes().min(new.len_bytes());
        let mut changes = Vec::new();
        if !in_place {
            changes.append(&mut self.unmap(new));
        }
        changes.append(&mut self.unmap(VaRange { start: kept, end: old.end }));
        let moved_end = new.start + (kept.0 - old.start.0);
        if !in_place && !old.is_empty() {
            let moved = VaRange { start: old.start, end: kept };
            let pieces = self.take(moved);
            // The new mapping exists before the old one goes, and may need the same tables.
            let room = self.room_of(moved).room_beside(moved, new);
            let target = |addr: VirtAddr| new.start + (addr.0 - old.start.0);
            changes.extend(pieces.iter().map(|p| VmaChange::Moved { from: p.range(), to: target(p.start), room }));
            self.rebuild(VaRange { start: new.start, end: moved_end }, |_| {
                pieces
                    .into_iter()
                    .map(|piece| {
                        let to = target(piece.start);
                        piece.moved_to(to)
                    })
                    .collect()
            });
        }
        if let Some(model) = model {
            let end_of_old = model.over(VaRange { start: old.end, end: old.end });
            let mut extension = if in_place { end_of_old } else { end_of_old.moved_to(moved_end) };
            extension.end = new.end;
            changes.append(&mut self.map(extension, false));
        }
        Ok(changes)
    }

    /// The unmapped parts of `range`.
    pub(super) fn gaps(&self, range: VaRange) -> Vec<VaRange> {
        let mut gaps = Vec::new();
        let mut start = range.start;
        for part in self.mapped_parts(range) {
            gaps.push(VaRange { start, end: part.start });
            start = part.end;
        }
        gaps.push(VaRange { start, end: range.end });
        gaps.retain(|gap| gap.start < gap.end);
        gaps
    }

    /// The VMAs that a forked child starts with. Pages of VMAs advised `wipe_on_fork` must not be inherited.
    pub fn fork(&self) -> Self {
        let mut child = Self { heap: self.heap, engine: self.engine, ..Self::new(self.limits) };
        child.vmas = self.vmas.iter().filter(|vma| !vma.advice.dont_fork).cloned().collect();
        child.ends = child.vmas.iter().map(|vma| vma.end).collect();
        child.mapped_pages = child.vmas.iter().map(Vma::pages).sum();
        child
    }

    /// The VMAs that end after `addr`, ascending.
    pub(super) fn vmas_behind(&self, addr: VirtAddr) -> impl Iterator<Item = &Vma> {
        self.vmas[self.first_ending_after(addr)..].iter()
    }

    /// Number of bytes below a VMA into which nothing may grow.
    pub(super) fn guard_gap(&self, vma: &Vma) -> u64 {
        if vma.grows_down() { self.limits.guard_gap_bytes } else { 0 }
    }

    /// Index of the first VMA that ends after `addr`.
    #[inline]
    fn first_ending_after(&self, addr: VirtAddr) -> usize {
        self.ends.partition_point(|&end| end <= addr)
    }

    /// Removes the mapped parts of `range` and returns them, ascending.
    fn take(&mut self, range: VaRange) -> Vec<Vma> {
        let mut taken = Vec::new();
        if self.mapped_parts(range).next().is_some() {
            self.rebuild(range, |inside| {
                taken = inside;
                Vec::new()
            });
        }
        taken
    }

    /// Applies `change` to the mapped parts of `range`, and splits VMAs at its edges only where that makes a
    /// difference. Returns the old state of the changed pieces.
    fn modify(&mut self, range: VaRange, mut change: impl FnMut(&mut Vma)) -> Vec<Vma> {
        let mut before = Vec::new();
        let parts: Vec<VaRange> = self.mapped_parts(range).collect();
        for part in parts {
            let old = self.find(part.start).expect("a mapped part lies in a VMA").over(part);
            let mut new = old.clone();
            change(&mut new);
            if new != old {
                self.rebuild(part, |_| vec![new]);
                before.push(old);
            }
        }
        before
    }

    /// The only place where VMAs change: replaces the contents of `range`, split at its edges, by the result of
    /// `contents`, which must be ascending and inside `range`. Neighbours are merged if possible.
    fn rebuild(&mut self, range: VaRange, contents: impl FnOnce(Vec<Vma>) -> Vec<Vma>) {
        let first = self.first_ending_after(range.start);
        let count = self.vmas[first..].iter().take_while(|vma| vma.start < range.end).count();
        // One more on either side, which may be merged.
        let from = first.saturating_sub(1);
        let to = (first + count + 1).min(self.vmas.len());

        let (mut before, mut inside, mut after) = (Vec::new(), Vec::new(), Vec::new());
        for vma in &self.vmas[from..to] {
            let whole = vma.range();
            let left = VaRange { start: whole.start, end: whole.end.min(range.start) };
            let middle = whole.intersection(range);
            let right = VaRange { start: whole.start.max(range.end), end: whole.end };
            for (part, list) in [(left, &mut before), (middle, &mut inside), (right, &mut after)] {
                if part.start < part.end {
                    list.push(vma.over(part));
                }
            }
        }
        let old_pages: u64 = self.vmas[from..to].iter().map(Vma::pages).sum();
        let mut joined: Vec<Vma> = Vec::with_capacity(before.len() + inside.len() + after.len() + 1);
        for vma in before.into_iter().chain(contents(inside)).chain(after) {
            match joined.last_mut() {
                Some(last) if last.continues_in(&vma) => {
                    (last.end, last.anon_vma) = (vma.end, last.anon_vma || vma.anon_vma);
                }
                _ => joined.push(vma),
            }
        }
        self.mapped_pages = self.mapped_pages - old_pages + joined.iter().map(Vma::pages).sum::<u64>();
        self.ends.splice(from..to, joined.iter().map(|vma| vma.end));
        self.vmas.splice(from..to, joined);
    }

    /// # Panics
    /// If the set contradicts itself. For tests and `--check`.
    pub fn check_invariants(&self) {
        assert!(self.vmas.iter().all(|vma| vma.start < vma.end), "an empty VMA");
        for pair in self.vmas.windows(2) {
            assert!(pair[0].end <= pair[1].start, "VMAs overlap: {pair:?}");
            assert!(!pair[0].continues_in(&pair[1]), "VMAs that should be one: {pair:?}");
        }
        assert!(self.ends.iter().copied().eq(self.vmas.iter().map(|vma| vma.end)), "ends differ");
        assert_eq!(self.mapped_pages, self.vmas.iter().map(Vma::pages).sum::<u64>());
    }
}
