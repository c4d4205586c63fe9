//! Parts of a configuration with a choice of designs, such as `machine.core.model`. If the design changes, keys that a
//! preset set for the previous design and the new one lacks are removed.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::Config;
use super::mistake::tag;

static SCHEMA: LazyLock<Value> =
    LazyLock::new(|| serde_json::to_value(schemars::schema_for!(Config)).expect("a schema is JSON"));

/// A part of the configuration's schema.
#[derive(Clone, Copy)]
pub struct Node(&'static Value);

impl Node {
    /// The whole configuration.
    pub fn root() -> Self {
        Self(&SCHEMA)
    }

    /// The part at these keys; none if the schema does not contain them. List elements may have any key.
    pub fn at<'k>(self, keys: impl IntoIterator<Item = &'k str>) -> Option<Self> {
        keys.into_iter().try_fold(self, Self::child)
    }

    /// The part at a key of this part.
    pub fn child(self, key: &str) -> Option<Self> {
        let schema = resolve(self.0);
        if let Some(forms) = schema["anyOf"].as_array().or(schema["oneOf"].as_array()) {
            return forms.iter().find_map(|form| Self(form).child(key));
        }
        [&schema["properties"][key], &schema["additionalProperties"], &schema["items"]]
            .into_iter()
            .find(|part| part.is_object())
            .map(Self)
    }

    /// The key that chooses the design of this part, and the designs; none if no key does.
    fn choice(self) -> Option<(&'static str, &'static [Value])> {
        let schema = resolve(self.0);
        if let Some(forms) = schema["anyOf"].as_array() {
            return forms.iter().find_map(|form| Self(form).choice());
        }
        let designs = schema["oneOf"].as_array()?;
        tag(designs).map(|key| (key, designs.as_slice()))
    }

    /// Whether a key chooses the design of this part.
    pub fn is_chosen_by(self, key: &str) -> bool {
        self.choice().is_some_and(|(tag, _)| tag == key)
    }

    /// Whether some design of this part has the key.
    pub fn has_key(self, key: &str) -> bool {
        self.choice().is_some_and(|(_, designs)| designs.iter().any(|design| has(design, key)))
    }

    /// Removes from `part` the keys of other designs that the design `name` lacks, except those for which `keep` is
    /// true. An unknown name changes nothing; deserialisation reports it.
    pub fn retain_keys_of(self, name: &Value, part: &mut Map<String, Value>, keep: impl Fn(&str) -> bool) {
        let Some((tag, designs)) = self.choice() else { return };
        if let Some(design) = designs.iter().find(|design| design["properties"][tag]["const"] == *name) {
            part.retain(|key, _| has(design, key) || !self.has_key(key) || keep(key));
        }
    }

    /// Merges `own` into `part`: tables key by key, lists of named elements by name; everything else is replaced whole.
    pub fn merge(this: Option<Self>, part: &mut Value, own: Value) {
        match (part, own) {
            (Value::Object(part), Value::Object(own)) => {
                let choice = this.and_then(|node| Some((node, node.choice()?.0)));
                if let Some((node, name)) = choice.and_then(|(node, tag)| Some((node, own.get(tag)?))) {
                    node.retain_keys_of(name, part, |_| false);
                }
                for (key, value) in own {
                    Self::merge(this.and_then(|node| node.child(&key)), part.entry(key).or_insert(Value::Null), value);
                }
            }
            (Value::Array(part), Value::Array(own)) if !own.is_empty() && part.iter().chain(&own).all(is_named) => {
                for element in own {
                    match part.iter_mut().find(|other| other["name"] == element["name"]) {
                        Some(other) => Self::merge(this.and_then(|node| node.child("0")), other, element),
                        None => part.push(element),
                    }
                }
            }
            (part, own) => *part = own,
        }
    }
}

fn is_named(element: &Value) -> bool {
    element["name"].is_string()
}

fn has(design: &Value, key: &str) -> bool {
    design["properties"].get(key).is_some()
}

/// The definition that a schema refers to, or else the schema itself.
fn resolve(schema: &'static Value) -> &'static Value {
    match schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")) {
        Some(name) => &SCHEMA["$defs"][name],
        None => schema,
    }
}
