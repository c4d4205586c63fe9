//! Parts of the configuration in which one key chooses a design and the other keys are the design's parameters.
//!
//! Such a part is read in two steps: first its keys, then their values, by the types that the chosen design gives them.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// The keys of a part that have not been read yet.
pub struct Part(Map<String, Value>);

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Map::deserialize(from).map(Self)
    }
}

impl Part {
    /// Removes a key and returns its value. Error: the value has the wrong type.
    pub fn take<T: DeserializeOwned>(&mut self, key: &str) -> serde_json::Result<Option<T>> {
        self.0.remove(key).map(serde_json::from_value).transpose()
    }

    /// Reads all remaining keys as parameters. Errors: an unknown key, a missing key, or a value of the wrong type.
    pub fn rest<T: DeserializeOwned>(self) -> serde_json::Result<T> {
        serde_json::from_value(Value::Object(self.0))
    }
}

/// Defines the enum of a configuration whose key `model` chooses a design; without the key it is the first design. Each
/// line gives the variant, the design's type, its name and its description. `$Contract` is the trait that supplies the
/// parameters, their validation and their samples.
#[macro_export]
macro_rules! model_choice {
    (
        $(#[$meta:meta])* $Config:ident by $Contract:ident
        { $($Variant:ident($Design:ty) = $name:literal, $text:literal;)* }
    ) => {
        /// Name and description of every design, for lists and error messages; the first is the default.
        pub const DESIGNS: &[(&str, &str)] = &[$(($name, $text)),*];

        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, schemars::JsonSchema)]
        #[serde(tag = "model", deny_unknown_fields)]
        #[schemars(transform = Self::make_model_optional)]
        pub enum $Config {
            $(#[doc = $text] #[serde(rename = $name)] $Variant(<$Design as $Contract>::Parameters),)*
        }

        impl<'de> serde::Deserialize<'de> for $Config {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let part = <$crate::choice::Part as serde::Deserialize>::deserialize(from)?;
                Self::from_part(part).map_err(serde::de::Error::custom)
            }
        }

        impl $Config {
            /// Reads the remaining keys of a part of the configuration.
            pub fn from_part(mut part: $crate::choice::Part) -> serde_json::Result<Self> {
                let model: Option<String> = part.take("model")?;
                match model.as_deref().unwrap_or(DESIGNS[0].0) {
                    $($name => part.rest().map(Self::$Variant),)*
                    other => Err(serde::de::Error::custom(format!("`{other}` is not known"))),
                }
            }

            fn make_model_optional(schema: &mut schemars::Schema) {
                $crate::choice::make_model_optional(schema, DESIGNS[0].0);
            }

            /// The design's name.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$Variant(_) => $name,)* }
            }

            /// Refuses impossible parameters; `key` is the part of the configuration that contains them.
            pub fn validate(&self, key: &str) -> Result<(), $crate::error::EngineError> {
                match self { $(Self::$Variant(parameters) => <$Design as $Contract>::validate(parameters, key),)* }
            }

            /// Parameters of every registered design, for tests.
            pub fn samples() -> Vec<Self> {
                let mut all = Vec::new();
                $(all.extend(<$Design as $Contract>::samples().into_iter().map(Self::$Variant));)*
                all
            }
        }
    };
}
/// Makes `model` optional in the schema's variant of the default design.
pub fn make_model_optional(schema: &mut schemars::Schema, default: &str) {
    for variant in schema.get_mut("oneOf").and_then(Value::as_array_mut).into_iter().flatten() {
        if variant["properties"]["model"]["const"] == default {
            variant["properties"]["model"]["default"] = default.into();
            let required = variant["required"].as_array_mut().expect("the tag is required");
            required.retain(|key| key != "model");
        }
    }
}

/// Adds a key that every variant of a choice must have.
pub fn add_required(schema: &mut schemars::Schema, key: &str, part: &schemars::Schema) {
    for variant in schema.get_mut("oneOf").and_then(Value::as_array_mut).into_iter().flatten() {
        variant["properties"][key] = part.clone().into();
        variant["required"].as_array_mut().expect("a design has parameters").push(key.into());
    }
}
