//! Runs requests: sources and their CPUs, systems and overrides in; results out.

mod catalogue;
mod job;
pub mod lines;
mod live;
mod request;
mod sample;
pub mod sources;
mod system_run;
mod system_text;

pub use catalogue::*;
pub use job::run;
pub use live::run_live;
pub use request::*;
pub use sample::SampleReport;
pub use sources::SourceResult;
