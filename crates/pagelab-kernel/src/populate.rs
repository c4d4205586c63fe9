//! Populating: mapping pages before any access, as MAP_POPULATE, MADV_POPULATE_* or a placement policy ask.
//!
//! Models: the pages of a range are handled one after the other by the stages of a fault, without exception and return.
//! Pages that are already present are skipped, including those that a fault on a file has mapped around its own page.
//! Pages that fault-around leaves out, because they are not in the page cache, get a fault of their own.
//! Source: Linux `populate_vma_page_range`, `faultin_page` (mm/gup.c).
//! Parameters: those of the fault's stages.
//! Deviations: the VMA is looked up for every page; Linux looks it up once per VMA.

use crate::effects::Effects;
use crate::fault::{Ahead, Fault, FaultOutcome};
use crate::locks::TaskId;
use crate::os::Os;
use crate::vma::VaRange;
use pagelab_base::error::EngineError;
use pagelab_base::ids::{CpuId, SpaceId};
use pagelab_base::step::Next;

/// The activity, see the module's text.
#[derive(Clone, Debug)]
pub struct Populate {
    space: SpaceId,
    range: VaRange,
    why: Ahead,
    cpu: CpuId,
    fault: Fault,
}

impl Populate {
    /// Populates a range that is not empty.
    pub fn new(space: SpaceId, range: VaRange, why: Ahead, cpu: CpuId) -> Self {
        Self { space, range, why, cpu, fault: Fault::populate(space, range.start, why, cpu) }
    }

    /// The handling of the current page.
    pub fn fault(&self) -> &Fault {
        &self.fault
    }

    /// See `Activity::commit` of the simulation.
    pub fn commit(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId) -> Result<Next, EngineError> {
        let cpu = task.cpu;
        let next = self.fault.commit(os, effects, task)?;
        let refused = self.fault.outcome() == FaultOutcome::Refused;
        let reached = self.fault.present_to();
        if next != Next::Done || refused || reached >= self.range.end {
            return Ok(next);
        }
        let layer = &os.layers[self.space.layer];
        if self.why == Ahead::Policy && !layer.may_map_ahead(layer.context(cpu, self.space.index)) {
            return Ok(next);
        }
        self.fault = Fault::populate(self.space, reached, self.why, self.cpu);
        Ok(Next::Continue)
    }
}
