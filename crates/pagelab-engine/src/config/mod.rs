//! Putting the configuration of a run together.
//!
//! A run's [`Config`] is put together from presets (a machine, a system, a kernel's costs), the engine's defaults and
//! the user's `--set key=value` overrides, in this order; [`assemble`] does it. What the user does not name keeps the
//! preset's value, and the effective configuration is written with every result.

mod assemble;
mod designs;
mod extend;
mod mistake;
mod preset;

pub use assemble::{Assembly, assemble};
pub use pagelab_base::switch::Switch;
pub use pagelab_kernel::config::*;
pub use pagelab_simulation::config::*;
pub use pagelab_translate::config::*;
pub use preset::{Preset, PresetKind, presets};
