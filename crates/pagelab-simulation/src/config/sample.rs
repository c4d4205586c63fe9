//! Which windows of a source are replayed and measured.

use std::fmt;

use pagelab_trace::sample::Sampling;
use pagelab_trace::{SourceInfo, TraceError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which part of the main source is replayed, as `off`, `auto` or `every=N,length=N[,warm=N][,offset=N]` in
/// instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum SampleConfig {
    /// All of it.
    #[default]
    Off,
    /// Windows by its length.
    Auto,
    /// These windows.
    Windows(Sampling),
}

impl TryFrom<String> for SampleConfig {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "off" => Ok(Self::Off),
            "auto" => Ok(Self::Auto),
            windows => windows.parse().map(Self::Windows).map_err(|error: TraceError| error.to_string()),
        }
    }
}

impl From<SampleConfig> for String {
    fn from(sample: SampleConfig) -> Self {
        sample.to_string()
    }
}

impl fmt::Display for SampleConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Auto => f.write_str("auto"),
            Self::Windows(sampling) => sampling.fmt(f),
        }
    }
}

impl SampleConfig {
    /// Whether all is replayed.
    pub fn is_off(&self) -> bool {
        *self == Self::Off
    }

    /// The windows of the first `max_accesses` accesses of a source; none if all of these are replayed.
    ///
    /// # Errors
    /// [`TraceError::Usage`] if it is too short for windows by its length.
    pub fn sampling_for(&self, source: &SourceInfo, max_accesses: Option<u64>) -> Result<Option<Sampling>, TraceError> {
        match self {
            Self::Off => Ok(None),
            Self::Auto => {
                // A source that cannot tell is taken for as long as it may be.
                let most = source.accesses.into_iter().chain(max_accesses).min();
                Sampling::scaled(most).map(Some)
            }
            Self::Windows(sampling) => Ok(Some(*sampling)),
        }
    }
}
