//! Allocating frames for a fault in the ordinary way, and making room for them.

use super::parts::smaller;
use super::work::FaultWork;
use super::{Fault, FaultState};
use crate::context::KernelContext;
use crate::dissolve::Dissolve;
use crate::effects::Effects;
use crate::locks::TaskId;
use crate::needs::Need;
use crate::os::Os;
use crate::reclaim::{Dissolution, Dissolved, Pressure, ReclaimScan};
use crate::scanning::{ScanProgress, Scanning};
use pagelab_base::addr::{FRAME_BYTES, PageSize, Pfn};
use pagelab_base::error::EngineError;
use pagelab_base::ids::CpuId;
use pagelab_base::step::{BlockKey, Next};

/// Number of consecutive scans that may free nothing before a fault gives up reclaim: enough for several passes over
/// the lists, whose accessed bits the scans clear.
const MAX_FRUITLESS: u32 = 1 << 16;

impl Fault {
    /// Allocates the frames that the work needs, or starts to make room for them.
    pub(super) fn allocate(&mut self, os: &mut Os, effects: &mut Effects) -> Result<FaultState, EngineError> {
        let context = self.context(os);
        if let Some(state) = self.make_room(os, effects) {
            return Ok(state);
        }
        let (order, tries) = (self.target.order, self.tries_reclaim());
        let layer = self.layer(os);
        // A fault may dip into the reserves when memory is short, but may not exceed its cgroup's limit.
        let limited = matches!(layer.memory.pressure(order, context.group), Some(Pressure::Limit(_)));
        if let FaultWork::Read { file, page } = self.progress.work {
            let pages = self.take_window(os, file, page);
            let layer = self.layer(os);
            return match () {
                () if !pages.is_empty() => Ok(FaultState::ChargeRead { pages }),
                () if layer.memory.page_use.cached(file, page).is_some() => Ok(FaultState::Read { pages }),
                () if tries && layer.memory.can_reclaim(Pressure::Memory) => Ok(FaultState::reclaim(Pressure::Memory)),
                () => self.last_resort(os).ok_or_else(|| self.layer(os).out_of_memory("a page of a file")),
            };
        }
        if let Some(frame) = if limited { None } else { layer.take_page(context, order) } {
            let refilled = layer.last_effects().zone_batch();
            self.target.frame = frame;
            return Ok(refilled.map_or(FaultState::Zeroing, |batch| self.refill(os, batch)));
        }
        if let (FaultWork::Copy { .. }, true) = (self.progress.work, self.target.size > PageSize::Size4K) {
            // A large page that should have been copied whole is split, so that a part of it can be copied.
            let frame = layer.take_split_table(context, self.request.space.index)?;
            self.progress.work = FaultWork::Split;
            return Ok(FaultState::Split { frame });
        }
        // No contiguous block: a smaller page works as well.
        if self.target.size > PageSize::Size4K {
            self.target.set_size(smaller(self.target.size), self.request.va);
            self.target.skips_policy = false;
            return self.next_table(os);
        }
        if order > 0 {
            let vma = layer.spaces[self.request.space.index].vmas.find(self.request.va);
            let vma = vma.expect("mappings do not change during a fault").clone();
            let layer = &mut os.layers[self.request.space.layer];
            self.set_folio(layer, &vma, order - 1);
            return Ok(FaultState::Allocation);
        }
        if limited {
            return Err(layer.cgroup_limit_error(context));
        }
        if tries && layer.memory.can_reclaim(Pressure::Memory) {
            return Ok(FaultState::reclaim(Pressure::Memory));
        }
        if let Some(state) = self.give_back(os) {
            return Ok(state);
        }
        if self.layer(os).give_back_table_frames(context) {
            return Ok(FaultState::Allocation);
        }
        self.last_resort(os).ok_or_else(|| self.layer(os).out_of_memory("a page of a program"))
    }

    /// What to do before anything fails for want of memory: take memory of a late segment, or pages of the balloon.
    pub(super) fn last_resort(&self, os: &mut Os) -> Option<FaultState> {
        self.dissolve(os).or_else(|| self.deflate(os))
    }

    /// Takes memory of a late segment, since nothing else can be reclaimed.
    fn dissolve(&self, os: &Os) -> Option<FaultState> {
        let layer = &os.layers[self.request.space.layer];
        let work = (!self.progress.keeps_segments).then(|| Dissolution::next(layer, Dissolve::LastResort));
        work.flatten().map(|work| FaultState::Dissolve(Box::new(work)))
    }

    /// Goes on with a part of a late segment. Allocates again behind it.
    pub(super) fn commit_dissolution(
        &mut self,
        os: &mut Os,
        effects: &mut Effects,
        mut work: Box<Dissolution>,
        task: TaskId,
    ) -> FaultState {
        let id = self.request.space.layer;
        match work.commit(&mut os.layers[id], effects, id, task.cpu) {
            Dissolved::Continues => return FaultState::Dissolve(work),
            Dissolved::Ends => self.progress.fruitless = 0,
            Dissolved::Keeps => self.progress.keeps_segments = true,
        }
        self.after_reclaim(os, task)
    }

    /// Takes pages back from the guest's balloon before anything fails for want of memory.
    fn deflate(&self, os: &mut Os) -> Option<FaultState> {
        let frames = os.layers[self.request.space.layer].mechanisms.balloon.deflate();
        (!frames.is_empty()).then_some(FaultState::Deflate { frames })
    }

    /// The host knows that these pages have left the balloon: frees them, and allocates again.
    pub(super) fn deflated(&mut self, os: &mut Os, frames: &[Pfn], task: TaskId) -> FaultState {
        let mut memory = os.layers[self.request.space.layer].memory_for(KernelContext::on(task.cpu));
        frames.iter().for_each(|&frame| memory.free(frame, 0));
        self.after_reclaim(os, task)
    }

    /// The frames have their contents: zeros, a copy, or a page from the swap area.
    pub(super) fn filled(&mut self, os: &mut Os, effects: &mut Effects) -> FaultState {
        if self.progress.work == FaultWork::SwapIn {
            effects.note_page_read(self.request.space.layer, self.target.frame);
        }
        let zeroed = matches!(self.progress.work, FaultWork::Fresh | FaultWork::Hole { .. });
        self.counters(os).zeroed_bytes += u64::from(zeroed) * (FRAME_BYTES << self.target.order);
        FaultState::Charge
    }

    /// The frames are charged to the cgroup.
    pub(super) fn charged(&mut self, os: &mut Os, cpu: CpuId) -> FaultState {
        self.charge_pages(os, cpu, 1 << self.target.order);
        FaultState::Rmap
    }

    /// Charges pages to the cgroup.
    pub(super) fn charge_pages(&mut self, os: &mut Os, cpu: CpuId, pages: u32) {
        let (context, batch) = (self.context(os), os.costs.charge_batch);
        self.layer(os).consume_charge(cpu, context.group, pages, batch);
    }

    /// What must happen before memory is allocated, if it is short; `None` if nothing must.
    pub(super) fn make_room(&mut self, os: &mut Os, effects: &mut Effects) -> Option<FaultState> {
        let context = self.context(os);
        let tries = self.tries_reclaim();
        if self.layer(os).memory.pressure(self.target.order, context.group).is_some() {
            // Pages that are not accounted for cannot be reclaimed.
            self.progress.accounted += os.account_for_all(self.request.space.layer);
        }
        let layer = self.layer(os);
        let (crowded, low) =
            (layer.mechanisms.placement.is_crowded(&layer.memory.view(context)), layer.memory.is_low());
        if let Some(state) = (crowded || low).then(|| self.give_back(os)).flatten() {
            return Some(state);
        }
        if low {
            self.layer(os).give_back_table_frames(context);
            effects.wake(self.request.space.layer, Need::Memory);
        }
        let layer = self.layer(os);
        let pressure = layer.memory.pressure(self.target.order, context.group)?;
        if tries && layer.memory.can_reclaim(pressure) {
            return Some(FaultState::reclaim(pressure));
        }
        if pressure == Pressure::Memory { self.dissolve(os) } else { None }
    }

    /// Whether another scan is worth while.
    pub(super) fn tries_reclaim(&self) -> bool {
        self.progress.fruitless < MAX_FRUITLESS
    }

    /// Pages of a scan have been written back.
    pub(super) fn written_back(&mut self, os: &mut Os, scan: &ReclaimScan, task: TaskId) -> FaultState {
        os.written_back(self.request.space.layer, scan, task);
        self.after_reclaim(os, task)
    }

    /// A scan is over: allocates the page, or walks again if the scan was for a page table.
    fn after_reclaim(&mut self, os: &mut Os, task: TaskId) -> FaultState {
        let layer = self.layer(os);
        let contents = &layer.memory.contents;
        let table = &layer.spaces[self.request.space.index].table;
        if table.missing_tables(contents, self.target.page, self.target.size) > 0 {
            return self.look_again(os, task);
        }
        self.begin_allocation(os)
    }

    /// Goes on with a scan for pages to reclaim. If it finds only pages that are being written, the fault waits for
    /// these (Linux `reclaim_throttle`, VMSCAN_THROTTLE_WRITEBACK), and scans again.
    pub(super) fn reclaim(
        &mut self,
        os: &mut Os,
        effects: &mut Effects,
        mut work: Box<Scanning>,
        task: TaskId,
    ) -> Result<FaultState, Next> {
        let layer = self.request.space.layer;
        let scan = match work.commit(os, effects, layer, task) {
            ScanProgress::Continues => return Ok(FaultState::Reclaim(work)),
            ScanProgress::Waits(key) => {
                self.progress.state = FaultState::Reclaim(work);
                return Err(Next::Block(key));
            }
            ScanProgress::Ends(scan) => scan,
        };
        if scan.freed == 0 {
            // While the scan put pages back, the write may have ended.
            let key = scan.under_writeback.map(|lba| BlockKey::Writeback { layer, lba });
            if let Some(key) = key.filter(|&key| os.locks.is_held(key)) {
                self.progress.state = FaultState::reclaim(work.pressure());
                return Err(Next::Block(key));
            }
            self.progress.fruitless += 1;
            return Ok(self.after_reclaim(os, task));
        }
        self.progress.fruitless = 0;
        if scan.io.is_empty() {
            return Ok(self.after_reclaim(os, task));
        }
        Ok(FaultState::WriteBack { scan })
    }
}
