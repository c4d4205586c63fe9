//! What a user can get wrong, or the machine can run out of, said once and clearly.

use pagelab_trace::TraceError;

/// An error of a run. A broken invariant of the simulator is never one of these: it is an assertion.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A configuration value that cannot be: `key` is its full path, `what` says what is wrong and what is allowed.
    #[error("{key}: {what}")]
    Config { key: String, what: String },
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A layer has no frame left. `what` names the layer, its memory and who asked.
    #[error("out of memory: {what}")]
    OutOfMemory { what: String },
    /// `--check` found a translation that no mapping explains.
    #[error("check failed: {what}")]
    Check { what: String },
    /// The caller's progress callback asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl EngineError {
    pub fn config(key: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Config { key: key.into(), what: what.into() }
    }
}

/// Refuses a value outside a range.
pub fn between(key: &str, value: u32, least: u32, most: u32) -> Result<(), EngineError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(EngineError::config(key, format!("{value} is out of range; allowed are {least} to {most}")))
}
