//! Runs requests: sources and their CPUs, systems and overrides in; results out.

mod job;
pub mod lines;
mod live;
mod sample;
pub mod sources;
mod system_text;

pub use job::*;
pub use live::run_live;
pub use sample::SampleReport;
