//! Faults in kernels with a placement policy ([`crate::placement`]): the steps to the frame that it chooses.

use super::work::FaultWork;
use super::{Fault, FaultState};
use crate::effects::Effects;
use crate::fault::stage::Stage;
use crate::layer::{CpuLine, Layer};
use crate::locks::{TaskId, TaskLocks};
use crate::os::Os;
use crate::placement::{PlacementProgress, PlacementStep, WantedPage};
use crate::vma::VmaKind;
use pagelab_base::step::BlockKey;

impl Fault {
    /// The first step towards a frame for the page: that of the policy, if it serves the page.
    pub(super) fn begin_allocation(&self, os: &Os) -> FaultState {
        let context = self.context(os);
        let layer = &os.layers[self.request.space.layer];
        let step = self
            .wanted_page(os, layer)
            .and_then(|page| layer.mechanisms.placement.begin(&page, &layer.memory.view(context)));
        step.map_or(FaultState::Allocation, FaultState::Place)
    }

    /// The page, if a policy may choose its frame: private anonymous memory that has none yet.
    pub(super) fn wanted_page(&self, os: &Os, layer: &Layer) -> Option<WantedPage> {
        if !layer.mechanisms.placement.chooses()
            || self.target.skips_policy
            || !matches!(self.progress.work, FaultWork::Fresh | FaultWork::SwapIn)
        {
            return None;
        }
        let space = &layer.spaces[self.request.space.index];
        let vma = space.vmas.find(self.request.va).filter(|_| space.uses_placement)?;
        if vma.is_shared() || vma.file.is_some() || vma.kind == VmaKind::Special {
            return None;
        }
        Some(WantedPage {
            space: self.request.space,
            va: self.request.va,
            page: self.target.page,
            order: self.target.order,
            mapping: vma.range(),
            fresh: self.progress.work == FaultWork::Fresh,
            cpu: self.request.cpu,
            allocation: os.costs.stage_cost(self.progress.kind, Stage::Allocation as usize).cost(),
            free_lists: layer.data.cpu_line(self.request.cpu, CpuLine::FreeLists),
            zone: layer.data.zone_line(),
            counters: layer.spaces[self.request.space.index].counter_line(),
            objects: layer.objects(self.request.space.index),
        })
    }

    /// Carries out a step of the policy. Fails with the key to wait for and the step to repeat.
    pub(super) fn place(
        &mut self,
        os: &mut Os,
        effects: &mut Effects,
        task: TaskId,
        step: PlacementStep,
    ) -> Result<FaultState, (BlockKey, PlacementStep)> {
        let context = self.context(os);
        let layer = self.layer(os);
        if layer.mechanisms.placement.wants_room_first()
            && let Some(state) = self.make_room(os, effects)
        {
            return Ok(state);
        }
        let page = self.wanted_page(os, &os.layers[self.request.space.layer]);
        let (placement, mut memory) = os.layers[self.request.space.layer].placing(context);
        let mut locks = TaskLocks { locks: &mut os.locks, task };
        Ok(match placement.commit(page.as_ref(), step, &mut memory, &mut locks) {
            PlacementProgress::Go(step) => FaultState::Place(step),
            PlacementProgress::Wait(key, step) => return Err((key, step)),
            PlacementProgress::Taken { frame, refilled } => {
                self.target.frame = frame;
                refilled.map_or(FaultState::Zeroing, |batch| self.refill(os, batch))
            }
            PlacementProgress::Ordinary => {
                self.target.skips_policy = true;
                FaultState::Allocation
            }
            PlacementProgress::Again => self.begin_allocation(os),
            PlacementProgress::Reclaim(pressure) => FaultState::reclaim(pressure),
        })
    }

    /// The step that gives back memory of the policy, which comes before any other way to get memory.
    pub(super) fn give_back(&mut self, os: &mut Os) -> Option<FaultState> {
        self.layer(os).mechanisms.placement.give_back().map(FaultState::Place)
    }
}
