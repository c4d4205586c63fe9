//! Mapping pages ahead of any access, as MAP_POPULATE and MADV_POPULATE_* ask for, or a placement policy.
//!
//! Models: the pages of a range are handled one after the other by the stages of a fault without exception and return.
//! Those that are present by then are passed over, also those that a fault on a file has mapped around its own. What
//! the page cache does not have, such a fault leaves out, and it gets one of its own.
//! Source: Linux `populate_vma_page_range`, `faultin_page` (mm/gup.c).
//! Parameters: those of the fault's stages.
//! Deviations: the look-up of the VMA is made for every page, where Linux makes it once a VMA.

use crate::effects::Effects;
use crate::fault::{Ahead, Fault, Outcome};
use crate::locks::TaskId;
use crate::os::Os;
use crate::vma::VaRange;
use pagelab_base::error::EngineError;
use pagelab_base::ids::{CpuId, SpaceId};
use pagelab_base::step::Next;

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Populate {
    space: SpaceId,
    range: VaRange,
    why: Ahead,
    cpu: CpuId,
    fault: Fault,
}

impl Populate {
    /// For the pages of a range that is not empty.
    pub fn new(space: SpaceId, range: VaRange, why: Ahead, cpu: CpuId) -> Self {
        Self { space, range, why, cpu, fault: Fault::populate(space, range.start, why, cpu) }
    }

    /// The handling of the page under way.
    pub fn fault(&self) -> &Fault {
        &self.fault
    }

    /// See `Activity::commit` of the simulation.
    pub fn commit(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId) -> Result<Next, EngineError> {
        let cpu = task.cpu;
        let next = self.fault.commit(os, effects, task)?;
        let refused = self.fault.outcome() == Outcome::Refused;
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
