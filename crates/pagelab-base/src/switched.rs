//! Optional parts of the configuration: `off`, or parameters.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::choice::Part;

/// `off`, or the part's parameters; `on` means default parameters where none is required.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Switched<P> {
    /// The part is absent.
    #[default]
    Off,
    /// The part is present, with these parameters.
    On(P),
}

impl<P> Switched<P> {
    /// Whether the part is present.
    pub fn is_on(&self) -> bool {
        matches!(self, Self::On(_))
    }

    /// Whether the part is absent.
    pub fn is_off(&self) -> bool {
        !self.is_on()
    }

    /// The parameters, if it is on.
    pub fn on(&self) -> Option<&P> {
        if let Self::On(parameters) = self { Some(parameters) } else { None }
    }
}

impl<P: Serialize> Serialize for Switched<P> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self::On(parameters) = self else { return false.serialize(to) };
        match serde_json::to_value(parameters).map_err(serde::ser::Error::custom)? {
            Value::Object(none) if none.is_empty() => true.serialize(to),
            some => some.serialize(to),
        }
    }
}

impl<'de, P: DeserializeOwned> Deserialize<'de> for Switched<P> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        let parameters = match &value {
            Value::Null | Value::Bool(false) => return Ok(Self::Off),
            Value::String(text) if text == "off" => return Ok(Self::Off),
            Value::Bool(true) => Value::Object(Map::new()),
            Value::String(text) if text == "on" => Value::Object(Map::new()),
            Value::Object(_) => value,
            Value::String(_) | Value::Number(_) | Value::Array(_) => {
                let what = format!("{value} is not possible; write `on`, `off` or parameters in braces");
                return Err(D::Error::custom(what));
            }
        };
        let part = Part::deserialize(parameters).map_err(D::Error::custom)?;
        part.rest().map(Self::On).map_err(D::Error::custom)
    }
}

impl<P: JsonSchema> JsonSchema for Switched<P> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Switched_{}", P::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        // Inline, since the parameter types of many designs have the same name.
        let parameters = P::json_schema(generator);
        json_schema!({ "anyOf": [{ "type": "boolean" }, { "enum": ["on", "off"] }, parameters] })
    }
}
