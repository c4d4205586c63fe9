//! Whole runs: their configuration, and properties of all runs.

#[path = "../common/mod.rs"]
mod common;

mod check;
mod config_errors;
mod copies;
mod extended_presets;
mod fast_path;
mod layer_errors;
mod lines;
mod profile;
mod properties;
mod quantum;
mod recorded;
mod reference;
mod sample;
mod skeleton;
mod speculation_errors;
mod tlb_organisation_errors;
mod tlb_stage_errors;
