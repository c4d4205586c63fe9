//! Assembles the configuration of a run.
//!
//! [`assemble`] builds the [`Config`] of a run from presets (a machine, a system, a kernel), then the engine's
//! defaults, then the user's `--set key=value` overrides. Other keys keep the preset's value; the effective
//! configuration is written with every result.

mod assemble;
mod designs;
mod extend;
mod mistake;
mod preset;

pub use assemble::{Assembly, assemble};
pub use mistake::explain;
pub use pagelab_base::switch::Switch;
pub use pagelab_kernel::config::*;
pub use pagelab_run::config::*;
pub use pagelab_translate::config::*;
pub use preset::{Preset, PresetKind, presets};
