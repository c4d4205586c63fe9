//! On/off switches of the configuration.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A switch, written `on` or `off` (or as a boolean).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "SwitchText", into = "bool")]
#[schemars(with = "SwitchText")]
pub struct Switch(pub bool);

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum SwitchText {
    Bool(bool),
    Text(String),
}

impl TryFrom<SwitchText> for Switch {
    type Error = String;

    fn try_from(text: SwitchText) -> Result<Self, String> {
        match text {
            SwitchText::Bool(value) => Ok(Self(value)),
            SwitchText::Text(text) => match text.as_str() {
                "on" | "true" => Ok(Self(true)),
                "off" | "false" => Ok(Self(false)),
                _ => Err(format!("`{text}` is not a switch; write `on` or `off`")),
            },
        }
    }
}

impl From<Switch> for bool {
    fn from(switch: Switch) -> bool {
        switch.0
    }
}
