//! kpoold, the kernel thread that fills the queues of free pages.
//!
//! Models: a thread that wakes up periodically and fills the queues of all units, until they are full or memory is
//! short.
//! Source: as in [`super`], slide "Management of Free Page Queue".
//! Parameters: `fault_engine.kpoold_cycles`; 0 for none.

use crate::effects::Effects;
use crate::fault::supply::plan_supply;
use crate::fault_engine::kernel_side::SupplyOutcome;
use crate::fault_engine::smu::engine_access::{self, smu, smu_mut};
use crate::layer::Layer;
use crate::locks::TaskId;
use crate::needs::Need;
use crate::os::Os;
use crate::threads::{Delay, EngineThread};
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::{CpuId, LayerId};
use pagelab_base::step::{Next, RefKind, Step};

/// The thread, see the module's text.
#[derive(Clone, Debug)]
pub struct Kpoold {
    layer: LayerId,
    cpu: CpuId,
}

impl EngineThread for Kpoold {
    fn new_in_layer(id: LayerId, layer: &Layer) -> Vec<Self> {
        let wanted = engine_access::find(layer).filter(|smu| smu.parameters.kpoold_cycles > 0);
        wanted.map(|_| Self { layer: id, cpu: CpuId(0) }).into_iter().collect()
    }

    fn layer(&self) -> LayerId {
        self.layer
    }

    fn delay(&self, layer: &Layer) -> Option<Delay> {
        Some(Delay::FromEnd(Cycles(smu(layer).parameters.kpoold_cycles)))
    }

    fn wakes_for(&self, _: Need) -> bool {
        false
    }

    fn begin(&mut self) {}

    fn plan(&self, os: &Os, step: &mut Step) {
        let layer = &os.layers[self.layer];
        let engine = smu(layer);
        let unit = &engine.units[engine.next_supplied(false)];
        if unit.free.is_full() {
            step.kernel(RefKind::Read, unit.free.head());
        } else {
            plan_supply(os, layer, self.cpu, false, step);
        }
    }

    fn commit(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId) -> Next {
        self.cpu = task.cpu;
        match os.supply(effects, self.layer, task.cpu, false) {
            SupplyOutcome::One => Next::Continue,
            SupplyOutcome::Enough | SupplyOutcome::NoMemory => {
                smu_mut(&mut os.layers[self.layer]).counters.kpoold_passes += 1;
                Next::Done
            }
        }
    }

    fn charge(&self, os: &mut Os, cycles: Cycles) {
        smu_mut(&mut os.layers[self.layer]).counters.kpoold_cycles += cycles;
    }
}
