//! Access to a layer's engine where it is known to be this one.

use crate::fault_engine::kernel_side::EngineState;
use crate::fault_engine::mfoe::state::Mfoe;
use crate::layer::Layer;
use pagelab_base::memory::PhysMem;

const ANOTHER: &str = "a layer is asked for an engine that it does not have";

/// The layer's engine, if it is this one.
pub fn find(layer: &Layer) -> Option<&Mfoe> {
    let Some(EngineState::Mfoe(mfoe)) = &layer.mechanisms.engine else { return None };
    Some(mfoe)
}

/// The layer's engine. Panics if it is not this one.
pub fn mfoe(layer: &Layer) -> &Mfoe {
    find(layer).expect(ANOTHER)
}

/// The layer's engine, mutable. Panics if it is not this one.
pub fn mfoe_mut(layer: &mut Layer) -> &mut Mfoe {
    with_memory(layer).0
}

/// The engine with the memory that holds its tables.
pub fn with_memory(layer: &mut Layer) -> (&mut Mfoe, &mut PhysMem) {
    let Some(EngineState::Mfoe(mfoe)) = &mut layer.mechanisms.engine else { panic!("{ANOTHER}") };
    (mfoe, &mut layer.memory.contents)
}
