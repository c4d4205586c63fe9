//! Costs of each step of a fault: cycles of the preset, and references to the kernel's data.

use super::parts::BatchLock;
use super::work::{FaultWork, pages};
use super::{Fault, FaultState};
use crate::config::{ClearingOrder, FaultLock, VmaIndex};
use crate::entry_word::EntryWord;
use crate::fault::stage::Stage;
use crate::fault::supply::plan_supply;
use crate::layer::words::WordOf;
use crate::layer::{AddressSpace, CpuLine, Layer};
use crate::memory::page_metadata;
use crate::os::Os;
use crate::vma::VaRange;
use pagelab_base::addr::{FRAME_BYTES, LINE_BYTES, PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::code_cost::CodeCost;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::SpaceId;
use pagelab_base::io::DeviceRequest;
use pagelab_base::lock_kind::LockKind;
use pagelab_base::step::{RefKind, Step};
use pagelab_tables::page_table::WalkList;

/// Cache lines of the saved registers of an exception (`struct pt_regs`, 168 bytes).
const REGISTER_LINES: u64 = 3;
/// Ranges per node of the maple tree, in inner nodes and in leaves (`MAPLE_ARANGE64_SLOTS`, `MAPLE_RANGE64_SLOTS`).
const MAPLE_FANOUT: u64 = 10;
const MAPLE_LEAF: u64 = 16;
/// Lines that a search reads of a maple-tree node of 256 bytes: one of pivots, one of slots.
const MAPLE_NODE_LINES: u64 = 2;

/// The numbers below `pages` in the order in which Linux's `process_huge_page` takes them: first those that are farther
/// from `last` than all on its other side, then from both sides in turn, and `last` at the end.
fn towards(last: u64, pages: u64) -> impl Iterator<Item = u64> {
    // `last` is the first page of the second half of `near`, or its last page.
    let is_low = 2 * last <= pages;
    let half = if is_low { last } else { pages - last };
    let near = if is_low { 0 } else { pages - 2 * half };
    let far = if is_low { (2 * half..pages).rev().chain(0..0) } else { (0..0).rev().chain(0..near) };
    far.chain((0..half).flat_map(move |n| [near + n, near + 2 * half - 1 - n]))
}

/// Plans the search for the VMA that starts at `start`, and the lock of the mappings; of a VMA only if the search
/// `takes_vma`. The lines of a node of the index depend on the
/// part of the address space that the node covers, so that searches near each other share nodes.
pub fn plan_vma_search(os: &Os, id: SpaceId, start: VirtAddr, lock: FaultLock, takes_vma: bool, step: &mut Step) {
    let layer = &os.layers[id.layer];
    let space = &layer.spaces[id.index];
    let vmas = space.vmas.len() as u64;
    let (depth, lines) = match os.costs.vma_index {
        VmaIndex::RbTree => (vmas.checked_ilog2().map_or(0, |log| log + 1), 1),
        VmaIndex::MapleTree => (1 + vmas.div_ceil(MAPLE_LEAF).max(1).ilog(MAPLE_FANOUT), MAPLE_NODE_LINES),
    };
    let lock_line = layer.fault_lock_line(lock, id.index, start);
    if lock == FaultLock::Mm {
        step.take_lock(LockKind::MmapRead, lock_line);
    }
    for level in 0..depth {
        let covered = start.0 >> (12 + 4 * (depth - 1 - level)).min(47);
        for line in 0..lines {
            let read = if level + line as u32 == 0 { Step::kernel_independent } else { Step::kernel };
            read(step, RefKind::Read, space.object_line(covered << 8 | u64::from(level) << 1 | line));
        }
    }
    let vma = space.object_line(start.0);
    if lock == FaultLock::Mm || vma != lock_line {
        step.kernel(RefKind::Read, vma);
    }
    if lock == FaultLock::Vma && takes_vma {
        step.take_lock(LockKind::Vma, lock_line);
    }
}

/// Plans that pages leave the balloon: its list, the exit to tell the host their numbers, and the host's work.
fn plan_deflation(os: &Os, layer: &Layer, frames: &[Pfn], step: &mut Step) {
    let host = layer.mechanisms.balloon.deflation_page_cycles.map_or(Cycles::ZERO, Cycles::from);
    step.preset += CodeCost::from_cycles(os.costs.vm_exit_cycles);
    step.cycles += host * frames.len() as u64;
    frames.iter().for_each(|&frame| step.kernel(RefKind::Write, page_metadata(frame)));
}

impl Fault {
    /// See `Activity::plan` of the simulation. Returns the stage of the step.
    pub fn plan(&self, os: &Os, step: &mut Step) -> Stage {
        let (layer, stage) = (&os.layers[self.request.space.layer], self.stage());
        if self.progress.accounted > 0 {
            step.preset += self.progress.accounted * os.costs.fault.accounting();
        }
        if !self.plan_io(os, layer, step) {
            self.plan_preset(os, layer, stage as usize, step);
            self.plan_state(os, layer, step);
        }
        stage
    }

    /// Plans the references of the state's step.
    #[inline(always)]
    fn plan_state(&self, os: &Os, layer: &Layer, step: &mut Step) {
        let context = self.context(os);
        let space = &layer.spaces[self.request.space.index];
        let cpu = |line: CpuLine| layer.data.cpu_line(self.request.cpu, line);
        match &self.progress.state {
            FaultState::Entry => {
                if os.hosts(self.request.space.layer) {
                    step.preset += CodeCost::from_cycles(os.costs.vm_exit_cycles);
                }
                for line in 0..REGISTER_LINES {
                    step.kernel_independent(RefKind::Write, cpu(CpuLine::Stack) + line * LINE_BYTES);
                }
            }
            FaultState::Collision => self.plan_collision(os, step),
            FaultState::Lookup => self.plan_lookup(os, layer, step),
            &FaultState::AnonVma { locked } => self.plan_anon_vma(os, layer, locked, step),
            FaultState::Walk => self.plan_walk(os, layer, step),
            FaultState::NextEntry => self.plan_next_entry(os, step),
            &FaultState::Fill { levels, new } => self.plan_fill(os, layer, levels, new, step),
            FaultState::Table { block } => {
                step.kernel(RefKind::Zero { bytes: FRAME_BYTES << block.order }, block.first.addr());
                step.kernel(RefKind::Write, page_metadata(block.first));
                step.kernel(RefKind::Locked, self.entry(os));
                step.note_lock(LockKind::PageTable);
                if space.table.missing_tables(&layer.memory.contents, self.target.page, self.target.size) > 1 {
                    step.before_pte = step.refs.len();
                }
            }
            FaultState::Place(action) => {
                let page = self.wanted_page(os, layer);
                layer.mechanisms.placement.plan(page.as_ref(), action, &layer.memory.view(context), step);
            }
            FaultState::Allocation => step.kernel_independent(RefKind::Write, cpu(CpuLine::FreeLists)),
            FaultState::Refill { batch, lock } => self.plan_refill(os, layer, batch, *lock, step),
            FaultState::Split { frame } => self.plan_split(os, *frame, step),
            FaultState::Reclaim(scan) => scan.plan(os, self.request.space.layer, step),
            FaultState::Supply => plan_supply(os, layer, self.request.cpu, true, step),
            FaultState::WriteBack { scan } => scan.plan_io(step),
            FaultState::Dissolve(work) => work.plan(layer, step),
            FaultState::Deflate { frames } => plan_deflation(os, layer, frames, step),
            FaultState::Read { pages } => {
                for &(_, frame) in pages {
                    step.kernel(RefKind::Write, page_metadata(frame));
                }
                step.io.storage = self.reads(layer, pages);
                self.plan_give_up(os, layer, step);
            }
            FaultState::Zeroing if self.progress.work == FaultWork::SwapIn => self.plan_swap_in(layer, step),
            FaultState::Zeroing => self.plan_zeroing(os.costs.clearing_order, step),
            FaultState::ChargeRead { pages } => {
                layer.plan_charge(self.request.cpu, space.group, pages.len() as u32, step);
            }
            FaultState::Charge => layer.plan_charge(self.request.cpu, space.group, 1 << self.target.order, step),
            FaultState::Rmap => self.plan_rmap(layer, space, step),
            &FaultState::Lru { lock } => self.plan_lru(os, layer, space.group, lock, step),
            FaultState::Lock(locking) => {
                locking.plan(layer, &os.locks, space.lock_frame(self.entry(os)), step);
            }
            FaultState::TakeReady { .. } => self.plan_take_ready(layer, step),
            FaultState::Install { entry } => {
                if let FaultWork::Copy { .. } = self.progress.work {
                    layer.mechanisms.placement.plan_copied(
                        self.request.space.index,
                        self.request.va,
                        &layer.memory.view(context),
                        step,
                    );
                }
                self.plan_install(os, *entry, step);
            }
            FaultState::Rehash { lines, .. } | FaultState::Parts { lines } => {
                lines.iter().for_each(|&line| step.kernel(RefKind::Write, line))
            }
            FaultState::Return => self.plan_return(os, layer, step),
        }
    }

    /// Plans the release of the lock and the return to the program.
    fn plan_return(&self, os: &Os, layer: &Layer, step: &mut Step) {
        let index = self.request.space.index;
        if self.held.mappings && layer.has_several_cpus() {
            let start = self.vma_start(&layer.spaces[index]);
            let lock = self.lock(os);
            step.take_lock(lock.kind(), layer.fault_lock_line(lock, index, start));
        }
        let stack = layer.data.cpu_line(self.request.cpu, CpuLine::Stack);
        for line in 0..REGISTER_LINES {
            step.kernel_independent(RefKind::Read, stack + line * LINE_BYTES);
        }
    }

    /// Plans the preset's cost of the step.
    fn plan_preset(&self, os: &Os, layer: &Layer, stage: usize, step: &mut Step) {
        // A stage of several steps is charged once.
        if !matches!(
            self.progress.state,
            FaultState::NextEntry
                | FaultState::Fill { .. }
                | FaultState::Table { .. }
                | FaultState::Split { .. }
                | FaultState::Parts { .. }
                | FaultState::Lock(_)
                | FaultState::AnonVma { .. }
                | FaultState::Place(_)
                | FaultState::TakeReady { .. }
                | FaultState::Rehash { .. }
                | FaultState::Refill { .. }
                | FaultState::Lru { lock: BatchLock::Take }
                | FaultState::Reclaim(_)
                | FaultState::WriteBack { .. }
                | FaultState::Dissolve(_)
                | FaultState::Deflate { .. }
                | FaultState::Read { .. }
                | FaultState::Supply
        ) {
            let cost = os.costs.stage_cost(self.progress.kind, stage);
            step.preset += cost.cost();
            if cost.page_instructions > 0 {
                step.preset += self.extra_pages(layer) * cost.page_cost();
            }
            layer.plan_stage_lines(stage, cost.lines, self.request.cpu, self.request.space.index, step);
        }
        if layer.paging.shadowed && self.writes_tables() {
            step.preset += CodeCost::from_cycles(os.costs.vm_exit_cycles);
        }
    }

    /// Number of further pages to map: of a folio, or around a page of a file.
    fn extra_pages(&self, layer: &Layer) -> u64 {
        match self.progress.work {
            FaultWork::Cached { .. } => {
                let comes = |&at: &VirtAddr| {
                    at != self.target.page
                        && layer.is_unmapped(self.request.space.index, at)
                        && self.cached(layer, at).is_some()
                };
                pages(self.target.around).filter(comes).count() as u64
            }
            FaultWork::Fresh => (1 << (self.target.order - self.target.size.order())) - 1,
            _ => 0,
        }
    }

    /// The page of the page cache that belongs to an address around the fault's.
    fn cached(&self, layer: &Layer, at: VirtAddr) -> Option<Pfn> {
        let FaultWork::Cached { file, page } = self.progress.work else { return None };
        layer
            .memory
            .page_use
            .cached(file, page.wrapping_add(at.0 / FRAME_BYTES).wrapping_sub(self.target.page.0 / FRAME_BYTES))
    }

    /// Plans reading the page back from its slot.
    fn plan_swap_in(&self, layer: &Layer, step: &mut Step) {
        step.kernel_independent(RefKind::Write, page_metadata(self.target.frame));
        let Some(WordOf { word: EntryWord::Swap(slot), .. }) = layer.word(self.request.space.index, self.target.page)
        else {
            unreachable!("{:?} is in the swap area", self.target.page)
        };
        step.io.swap.push(DeviceRequest::read(slot.lba(), 1));
    }

    /// Requests for pages of a file that are read together.
    pub(super) fn reads(&self, layer: &Layer, pages: &[(u64, Pfn)]) -> Vec<DeviceRequest> {
        let FaultWork::Read { file, .. } = self.progress.work else { unreachable!("only such a fault reads") };
        let storage = layer.storage().expect("pages are read from storage");
        // Pages whose blocks are still unwritten are not read.
        let held = pages.iter().map(|&(number, _)| number).filter(|&number| !storage.is_unwritten(file, number));
        let mut numbers: Vec<u64> = held.collect();
        numbers.sort_unstable();
        storage.reads(file, numbers.into_iter())
    }

    /// Plans zeroing of the frame, or copying.
    fn plan_zeroing(&self, order: ClearingOrder, step: &mut Step) {
        step.kernel(RefKind::Write, page_metadata(self.target.frame));
        let mut fill = |offset: u64, bytes: u64| {
            if let FaultWork::Copy { from } = self.progress.work {
                step.kernel(RefKind::Load { bytes }, from.addr() + offset);
            }
            step.kernel(RefKind::Zero { bytes }, self.target.frame.addr() + offset);
        };
        match order {
            ClearingOrder::TowardsFault if self.target.order <= PageSize::Size2M.order() => {
                let faulting = (self.request.va.0 - self.target.page.0) / FRAME_BYTES;
                towards(faulting, 1 << self.target.order).for_each(|page| fill(page * FRAME_BYTES, FRAME_BYTES));
            }
            ClearingOrder::Ascending | ClearingOrder::TowardsFault => fill(0, FRAME_BYTES << self.target.order),
        }
    }

    fn plan_rmap(&self, layer: &Layer, space: &AddressSpace, step: &mut Step) {
        // The VMA's anon_vma or the file's mapping, then the page's map count.
        step.kernel_independent(RefKind::Read, space.object_line(!self.vma_start(space).0));
        match self.progress.work {
            FaultWork::Cached { .. } => {
                for frame in pages(self.target.around).filter_map(|at| self.cached(layer, at)) {
                    step.kernel(RefKind::Locked, page_metadata(frame));
                }
            }
            _ => step.kernel_independent(RefKind::Write, page_metadata(self.target.frame)),
        }
    }

    fn plan_install(&self, os: &Os, entry: PhysAddr, step: &mut Step) {
        let layer = &os.layers[self.request.space.layer];
        let space = &layer.spaces[self.request.space.index];
        let mut line = u64::MAX;
        let several = match self.progress.work {
            FaultWork::Cached { .. } => self.target.around,
            // A folio.
            FaultWork::Fresh if self.target.order > self.target.size.order() => {
                VaRange { start: self.target.page, end: self.target.end() }
            }
            _ => VaRange { start: self.target.page, end: self.target.page },
        };
        for at in pages(several) {
            let other = space.table.entry(&layer.memory.contents, at, PageSize::Size4K);
            if other.0 / LINE_BYTES != line {
                step.kernel_independent(RefKind::Write, other);
                line = other.0 / LINE_BYTES;
            }
        }
        if line == u64::MAX {
            step.kernel_independent(RefKind::Write, entry);
        }
        layer.plan_count(self.request.cpu, space, os.costs.rss_batch, step);
        // Release of the lock.
        step.kernel_independent(RefKind::Write, page_metadata(space.lock_frame(entry)));
        step.note_lock(LockKind::PageTable);
    }

    /// The lines that are written for a page that the walker has left to the kernel.
    pub(super) fn hidden_lines(&self, os: &Os) -> Option<[PhysAddr; 2]> {
        let layer = &os.layers[self.request.space.layer];
        let table = &layer.spaces[self.request.space.index].table;
        table.hidden_lines(&layer.memory.contents, self.request.va)
    }

    /// Plans the search of a chain, and the exchange of two of its slots.
    fn plan_collision(&self, os: &Os, step: &mut Step) {
        let mut list = WalkList::new();
        self.walk(os, &mut list);
        list.refs().iter().for_each(|found| step.kernel(RefKind::Read, found.addr));
        self.hidden_lines(os).into_iter().flatten().for_each(|line| step.kernel(RefKind::Write, line));
    }

    /// Start of the VMA, if there is one.
    pub(super) fn vma_start(&self, space: &AddressSpace) -> VirtAddr {
        space.vmas.find(self.request.va).map_or(self.request.va, |vma| vma.start)
    }

    /// The last entry that a walk for the page reads.
    pub(super) fn entry(&self, os: &Os) -> PhysAddr {
        let layer = &os.layers[self.request.space.layer];
        let table = &layer.spaces[self.request.space.index].table;
        table.entry(&layer.memory.contents, self.request.va, self.target.size)
    }
}

#[cfg(test)]
mod tests {
    use super::towards;

    #[test]
    fn pages_come_from_both_ends_towards_the_last() {
        let order = |last, pages| towards(last, pages).collect::<Vec<u64>>();
        assert_eq!(order(0, 4), [3, 2, 1, 0]);
        assert_eq!(order(3, 8), [7, 6, 0, 5, 1, 4, 2, 3]);
        assert_eq!(order(5, 8), [0, 1, 2, 7, 3, 6, 4, 5]);
        assert_eq!(order(4, 8), [0, 7, 1, 6, 2, 5, 3, 4]);
        for last in 0..16 {
            let mut all = order(last, 16);
            assert_eq!(all.last(), Some(&last));
            all.sort_unstable();
            assert!(all.into_iter().eq(0..16), "{last}");
        }
    }
}
