//! Errors that a user can cause, or that a lack of simulated memory can.

use pagelab_trace::TraceError;

/// An error of a run. A broken invariant of the simulator is not one of these: it is an assertion that panics.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// An impossible value in the configuration: `key` is its full path, `what` says what is wrong and what is allowed.
    #[error("{key}: {what}")]
    Config {
        /// Full path of the key, such as `machine.cache.l1.ways`.
        key: String,
        /// What is wrong, and what is allowed.
        what: String,
    },
    /// A trace or workload cannot be read, or does not exist.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A layer has no free frame left. `what` names the layer, its memory and who asked for the frame.
    #[error("out of memory: {what}")]
    OutOfMemory {
        /// The layer, its memory and who asked for more.
        what: String,
    },
    /// `--check` found a translation that no mapping of a kernel explains.
    #[error("check failed: {what}")]
    Check {
        /// The translation, and what the kernels' page tables and records contain instead.
        what: String,
    },
    /// The caller's progress callback asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl EngineError {
    /// An error at the key with this full path.
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

/// A layer's design that is impossible by its parameters or in this layer: the key within the layer, and what is
/// allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerConfigError {
    /// The key, within the layer.
    pub key: String,
    /// What is wrong, and what is allowed.
    pub what: String,
}

impl LayerConfigError {
    /// An error at a key within the layer.
    pub fn new(key: &str, what: impl Into<String>) -> Self {
        Self { key: key.to_owned(), what: what.into() }
    }

    /// Refuses a value outside a range.
    pub fn unless_between<T: PartialOrd + std::fmt::Display>(
        key: &str,
        value: T,
        least: T,
        most: T,
    ) -> Result<(), Self> {
        if least <= value && value <= most {
            return Ok(());
        }
        Err(Self::new(key, format!("{value} is out of range; allowed are {least} to {most}")))
    }

    /// The error with the key's full path.
    pub fn into_engine_error(self, layer: &str) -> EngineError {
        EngineError::config(format!("system.layers.{layer}.{}", self.key), self.what)
    }
}
