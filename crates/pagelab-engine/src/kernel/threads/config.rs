//! What the configuration says of kernel threads: which there are, and with which parameters.
//!
//! It lies below the kernels. Of a thread's file it knows the module `parameters` alone, which imports nothing of them either.

use std::borrow::Cow;
use std::fmt::Debug;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::base::choice::Part;
use crate::base::error::EngineError;

/// Parameters of a kernel thread, which refuse unknown fields; a thread that needs none has a type without fields.
pub trait ThreadParameters: Clone + Debug + PartialEq + Serialize + DeserializeOwned + JsonSchema {
    /// Whether the thread makes large pages of small ones, in the mappings that may have them.
    const MAKES_LARGE_PAGES: bool = false;

    /// Refuses impossible values; `key` is the part of the configuration that they are in.
    fn validate(&self, _key: &str) -> Result<(), EngineError> {
        Ok(())
    }

    /// Those that the conformance tests run it with.
    fn samples() -> Vec<Self>;
}

/// Whether kernels have a thread: `off`, or its parameters, for which `on` stands if none must be given.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ThreadConfig<P> {
    /// Kernels have no such thread.
    #[default]
    Off,
    /// The kernel of each layer that has work for it has one, with these parameters.
    On(P),
}

impl<P> ThreadConfig<P> {
    /// Whether kernels have the thread.
    pub fn is_on(&self) -> bool {
        matches!(self, Self::On(_))
    }
}

impl<P: Serialize> Serialize for ThreadConfig<P> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self::On(parameters) = self else { return false.serialize(to) };
        match serde_json::to_value(parameters).map_err(serde::ser::Error::custom)? {
            Value::Object(none) if none.is_empty() => true.serialize(to),
            some => some.serialize(to),
        }
    }
}

impl<'de, P: ThreadParameters> Deserialize<'de> for ThreadConfig<P> {
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

impl<P: JsonSchema> JsonSchema for ThreadConfig<P> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("ThreadConfig_{}", P::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        // Inline, as every thread calls its parameters the same.
        let parameters = P::json_schema(generator);
        json_schema!({ "anyOf": [{ "type": "boolean" }, { "enum": ["on", "off"] }, parameters] })
    }
}

/// Makes the part of the configuration that has a key for each thread.
macro_rules! make_config {
    (of_kernels { $($module:ident::$Thread:ident = $text:literal;)+ } of_engines { $($engine:tt)+ }) => {
        /// Name and description of every kernel thread, for lists and error messages.
        pub const THREADS: &[(&str, &str)] = &[$((stringify!($module), $text)),+];

        /// The threads of the kernels, but for those that have nothing to do in a layer.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub struct ThreadsConfig {
            $(#[doc = $text] pub $module: ThreadConfig<super::$module::parameters::Parameters>,)+
        }

        impl ThreadsConfig {
            /// Refuses impossible parameters; `key` is the part of the configuration that they are in.
            pub fn validate(&self, key: &str) -> Result<(), EngineError> {
                $(if let ThreadConfig::On(parameters) = &self.$module {
                    parameters.validate(&format!("{key}.{}", stringify!($module)))?;
                })+
                Ok(())
            }

            /// Each thread alone, with each of its samples.
            pub fn samples() -> Vec<Self> {
                let mut all = Vec::new();
                $({
                    let samples = super::$module::parameters::Parameters::samples().into_iter();
                    all.extend(samples.map(|of| Self { $module: ThreadConfig::On(of), ..Self::default() }));
                })+
                all
            }

            /// Names of the threads that are on.
            pub fn running(&self) -> Vec<&'static str> {
                let mut names = Vec::new();
                $(names.extend(self.$module.is_on().then_some(stringify!($module)));)+
                names
            }

            /// Names of all threads that make large pages.
            pub fn that_make_large_pages() -> Vec<&'static str> {
                let mut names = Vec::new();
                $(names.extend(
                    super::$module::parameters::Parameters::MAKES_LARGE_PAGES.then_some(stringify!($module)),
                );)+
                names
            }
        }
    };
}
kernel_threads!(make_config);
