//! What a user can get wrong, or the machine can run out of, said once and clearly.

use pagelab_trace::TraceError;

/// An error of a run. A broken invariant of the simulator is never one of these: it is an assertion.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A configuration value that cannot be: `key` is its full path, `what` says what is wrong and what is allowed.
    #[error("{key}: {what}")]
    Config {
        /// Full path of the key, such as `machine.cache.l1.ways`.
        key: String,
        /// What is wrong, and what is allowed.
        what: String,
    },
    /// A source of accesses cannot be read, or is none.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A layer has no frame left. `what` names the layer, its memory and who asked.
    #[error("out of memory: {what}")]
    OutOfMemory {
        /// The layer, its memory and who asked for more.
        what: String,
    },
    /// `--check` found a translation that no mapping explains.
    #[error("check failed: {what}")]
    Check {
        /// The translation, and what the kernels' records say instead.
        what: String,
    },
    /// The caller's progress callback asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl EngineError {
    /// The error of a configuration's key, given by its full path.
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

/// Why a design of a layer is impossible, by its parameters or where it stands: the key, within the layer, and what is
/// allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerConfigError {
    /// The key, within the layer.
    pub key: String,
    /// What is wrong, and what is allowed.
    pub what: String,
}

impl LayerConfigError {
    /// The error of a key within the layer.
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

    /// The error of a layer's configuration.
    pub fn of_layer(self, layer: &str) -> EngineError {
        EngineError::config(format!("system.layers.{layer}.{}", self.key), self.what)
    }
}
