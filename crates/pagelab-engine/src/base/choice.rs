//! Parts of the configuration in which one key chooses a design and the others are the design's parameters.
//!
//! Such a part is read in two steps: first its keys, then each by the type that the choice gives it. An error of the second
//! step names the key below the part, and [`place`] joins it to the part's own path.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// What an error's text begins with if a key below the part follows.
const BELOW: char = '.';

/// The keys of a part that have not been read.
pub struct Part {
    keys: Map<String, Value>,
    /// Those that have been asked for.
    asked: Vec<String>,
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self { keys: Map::deserialize(from)?, asked: Vec::new() })
    }
}

impl Part {
    /// Takes a key out. Errors: its value has the wrong type.
    pub fn take<T: DeserializeOwned>(&mut self, key: &str) -> Result<Option<T>, String> {
        self.asked.push(key.to_owned());
        self.keys.remove(key).map(|value| read(value, key)).transpose()
    }

    /// Takes a key out that must be there.
    pub fn require<T: DeserializeOwned>(&mut self, key: &str) -> Result<T, String> {
        self.take(key)?.ok_or_else(|| format!("missing field `{key}`"))
    }

    /// Reads all other keys as parameters. Errors: a key that they do not have, with those that the part may have; one that is
    /// missing; a value of the wrong type.
    pub fn rest<T: DeserializeOwned + JsonSchema>(self) -> Result<T, String> {
        let schema = schemars::schema_for!(T);
        let properties = schema.get("properties").and_then(Value::as_object);
        let mut known: Vec<&str> = properties.into_iter().flat_map(|of| of.keys().map(String::as_str)).collect();
        if let Some(unknown) = self.keys.keys().find(|key| !known.contains(&key.as_str())) {
            known.extend(self.asked.iter().map(String::as_str));
            let known = known.join("`, `");
            return Err(format!("{BELOW}{unknown}: unknown field `{unknown}`, expected one of `{known}`"));
        }
        read(Value::Object(self.keys), "")
    }
}

/// Reads a value at a path below the part.
fn read<T: DeserializeOwned>(value: Value, at: &str) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        // The path of the value itself is a dot.
        let within = error.path().to_string();
        let path: Vec<&str> = [at, &within].into_iter().filter(|part| !part.is_empty() && *part != ".").collect();
        let text = error.inner();
        if path.is_empty() { text.to_string() } else { format!("{BELOW}{}: {text}", path.join(".")) }
    })
}

/// The path that an error is of, and its text: where a part was read, the path of the key in it.
pub fn place(path: &str, text: &str) -> (String, String) {
    match text.strip_prefix(BELOW).and_then(|text| text.split_once(": ")) {
        Some((below, text)) => (format!("{path}.{below}"), text.to_owned()),
        None => (path.to_owned(), text.to_owned()),
    }
}

/// Makes the enum of a configuration whose key `model` chooses a design, the first one if it is absent. A line is a variant, the
/// design, its name and its description; `$Contract` is the trait that has the parameters, their checks and their samples.
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
                let part = <$crate::base::choice::Part as serde::Deserialize>::deserialize(from)?;
                Self::of_part(part).map_err(serde::de::Error::custom)
            }
        }

        impl $Config {
            /// Reads what is left of a part of the configuration.
            pub fn of_part(mut part: $crate::base::choice::Part) -> Result<Self, String> {
                let model: Option<String> = part.take("model")?;
                match model.as_deref().unwrap_or(DESIGNS[0].0) {
                    $($name => part.rest().map(Self::$Variant),)*
                    other => Err($crate::base::choice::unknown_model(other, DESIGNS)),
                }
            }

            fn make_model_optional(schema: &mut schemars::Schema) {
                $crate::base::choice::make_model_optional(schema, DESIGNS[0].0);
            }

            /// The design's name.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$Variant(_) => $name,)* }
            }

            /// Refuses impossible parameters; `key` is the part of the configuration that they are in.
            pub fn validate(&self, key: &str) -> Result<(), $crate::base::error::EngineError> {
                match self { $(Self::$Variant(parameters) => <$Design as $Contract>::validate(parameters, key),)* }
            }

            /// Parameters of every registered design to test it with.
            pub fn samples() -> Vec<Self> {
                let mut all = Vec::new();
                $(all.extend(<$Design as $Contract>::samples().into_iter().map(Self::$Variant));)*
                all
            }
        }
    };
}
pub(crate) use model_choice;

/// The error of a `model` that nobody has registered.
pub fn unknown_model(name: &str, known: &[(&str, &str)]) -> String {
    let known: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    format!("{BELOW}model: `{name}` is not known; allowed are {}", known.join(", "))
}

/// Lets the schema of a choice have the default without `model`.
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
pub fn add_required(schema: &mut schemars::Schema, key: &str, of: &schemars::Schema) {
    for variant in schema.get_mut("oneOf").and_then(Value::as_array_mut).into_iter().flatten() {
        variant["properties"][key] = of.clone().into();
        variant["required"].as_array_mut().expect("a design has parameters").push(key.into());
    }
}
