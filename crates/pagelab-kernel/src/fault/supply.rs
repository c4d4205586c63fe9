//! Preparing frames for a fault engine: its costs, and waking kswapd if there is no memory.

use super::{Fault, FaultState};
use crate::context::KernelContext;
use crate::effects::Effects;
use crate::fault::stage::Stage;
use crate::fault_engine::kernel_side::{EngineState, SupplyOutcome};
use crate::layer::{CpuLine, Layer};
use crate::needs::Need;
use crate::os::Os;
use pagelab_base::ids::{CpuId, LayerId};
use pagelab_base::step::{RefKind, Step};

impl Os {
    /// Prepares a frame for a layer's engine, on a CPU; wakes kswapd if memory is short.
    pub fn supply(&mut self, effects: &mut Effects, id: LayerId, cpu: CpuId, in_fault: bool) -> SupplyOutcome {
        let layer = &mut self.layers[id];
        let context = KernelContext::on(cpu);
        let supplied = layer.with_engine(context, |engine, memory| engine.supply(memory, in_fault));
        if supplied == SupplyOutcome::NoMemory {
            effects.wake(id, Need::Memory);
        }
        supplied
    }
}

impl Fault {
    /// Supplies the engine first, if it had no frame. The handler holds no locks yet, and no page that it maps can be
    /// reclaimed meanwhile.
    pub(super) fn after_entry(&self, os: &Os) -> FaultState {
        let lacks =
            os.layers[self.request.space.layer].mechanisms.engine.as_ref().is_some_and(EngineState::lacks_frames);
        match () {
            () if self.hidden_lines(os).is_some() => FaultState::Collision,
            () if lacks => FaultState::Supply,
            () => FaultState::Lookup,
        }
    }

    /// Prepares one frame; repeats until the engine has enough.
    pub(super) fn supply(&self, os: &mut Os, effects: &mut Effects, cpu: CpuId) -> FaultState {
        match os.supply(effects, self.request.space.layer, cpu, true) {
            SupplyOutcome::One => FaultState::Supply,
            SupplyOutcome::Enough | SupplyOutcome::NoMemory => FaultState::Lookup,
        }
    }
}

/// Plans the cost of preparing a frame.
pub fn plan_supply(os: &Os, layer: &Layer, cpu: CpuId, in_fault: bool, step: &mut Step) {
    step.preset += os.costs.fault.all()[Stage::Allocation as usize].cost();
    step.kernel(RefKind::Write, layer.data.cpu_line(cpu, CpuLine::FreeLists));
    layer.mechanisms.engine.as_ref().expect("it asks for frames").plan_supply(in_fault, step);
}
