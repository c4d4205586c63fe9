//! Configuration of sampling: which windows of a source are replayed and measured.

use std::fmt;

use pagelab_trace::sample::Sampling;
use pagelab_trace::{SourceInfo, TraceError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The part of the main source that is replayed, as `off`, `auto` or `every=N,length=N[,warm=N][,offset=N]` in
/// instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum SampleConfig {
    /// The whole source.
    #[default]
    Off,
    /// Windows chosen by the length of the source.
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
    /// Whether the whole source is replayed.
    pub fn is_off(&self) -> bool {
        *self == Self::Off
    }

    /// The windows of the first `max_accesses` accesses of a source; `None` to replay all of these.
    ///
    /// # Errors
    /// [`TraceError::Usage`] if it is too short for windows chosen by its length.
    pub fn sampling_for(&self, source: &SourceInfo, max_accesses: Option<u64>) -> Result<Option<Sampling>, TraceError> {
        match self {
            Self::Off => Ok(None),
            Self::Auto => {
                // A source of unknown length counts as long as it may be.
                let most = source.accesses.into_iter().chain(max_accesses).min();
                Sampling::scaled(most).map(Some)
            }
            Self::Windows(sampling) => Ok(Some(*sampling)),
        }
    }
}
