//! Access to a layer's engine where it is known to be this one.

use crate::fault_engine::kernel_side::EngineState;
use crate::fault_engine::smu::state::Smu;
use crate::layer::Layer;
use pagelab_base::memory::PhysMem;

const ANOTHER: &str = "a layer is asked for an engine that it does not have";

/// The layer's engine, if it is this one.
pub fn find(layer: &Layer) -> Option<&Smu> {
    let Some(EngineState::Smu(smu)) = &layer.mechanisms.engine else { return None };
    Some(smu)
}

/// The layer's engine. Panics if it is not this one.
pub fn smu(layer: &Layer) -> &Smu {
    find(layer).expect(ANOTHER)
}

/// The layer's engine, mutable. Panics if it is not this one.
pub fn smu_mut(layer: &mut Layer) -> &mut Smu {
    with_memory(layer).0
}

/// The engine with the memory that holds its rings.
pub fn with_memory(layer: &mut Layer) -> (&mut Smu, &mut PhysMem) {
    let Some(EngineState::Smu(smu)) = &mut layer.mechanisms.engine else { panic!("{ANOTHER}") };
    (smu, &mut layer.memory.contents)
}
