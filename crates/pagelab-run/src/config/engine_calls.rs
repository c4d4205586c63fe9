//! Configuration of the calls with which the programs of a run enable and disable their kernel's fault engine.

use pagelab_trace::quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineCallAt {
    /// Accesses of its source before it.
    pub after: u64,
    /// Whether it enables the engine; otherwise it disables it.
    pub enable: bool,
}

/// Calls of each main source in the order of their positions: `enable@ACCESSES` and `disable@ACCESSES`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
#[schemars(with = "Vec<String>")]
pub struct EngineCalls(pub Vec<EngineCallAt>);

impl EngineCalls {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl TryFrom<Vec<String>> for EngineCalls {
    type Error = String;

    fn try_from(texts: Vec<String>) -> Result<Self, String> {
        let calls = texts.iter().map(|text| parse(text)).collect::<Result<Vec<_>, _>>()?;
        if !calls.is_sorted_by_key(|call| call.after) {
            return Err(format!("{}: calls must be in the order of their positions", texts.join(", ")));
        }
        Ok(Self(calls))
    }
}

impl From<EngineCalls> for Vec<String> {
    fn from(calls: EngineCalls) -> Self {
        let text = |call: &EngineCallAt| format!("{}@{}", if call.enable { "enable" } else { "disable" }, call.after);
        calls.0.iter().map(text).collect()
    }
}

fn parse(text: &str) -> Result<EngineCallAt, String> {
    let wrong = || format!("`{text}` is no call: allowed are enable@ACCESSES and disable@ACCESSES, such as disable@1M");
    let (call, after) = text.split_once('@').ok_or_else(wrong)?;
    let enable = match call {
        "enable" => true,
        "disable" => false,
        _ => return Err(wrong()),
    };
    Ok(EngineCallAt { after: quantity::parse_count(after).map_err(|_| wrong())?, enable })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(texts: &[&str]) -> Result<EngineCalls, String> {
        EngineCalls::try_from(texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn calls_are_read_and_written_alike() {
        let calls = read(&["enable@0", "disable@1M"]).unwrap();
        let each = [(0, true), (1_000_000, false)].map(|(after, enable)| EngineCallAt { after, enable });
        assert_eq!(calls.0, each);
        assert_eq!(Vec::from(calls), ["enable@0", "disable@1000000"]);
    }

    #[test]
    fn wrong_calls_are_refused_with_what_is_allowed() {
        for text in ["enable", "start@5", "disable@", "disable@-1", "@3"] {
            assert!(read(&[text]).unwrap_err().contains("enable@ACCESSES"), "{text}");
        }
        assert!(read(&["enable@5", "disable@4"]).unwrap_err().contains("in the order"));
    }
}
