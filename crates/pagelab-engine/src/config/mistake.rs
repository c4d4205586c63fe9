//! Explains why a configuration does not match its schema: the key in the user's notation, what is wrong, and what is
//! allowed.
//!
//! Deserialisation decides whether a configuration is valid ([`super::assemble`]). If it fails, this module finds the
//! reason in the schema, so types need no error texts of their own for unknown or missing keys or for values of the
//! wrong kind. Only types with their own notation, such as sizes, provide their text.

use pagelab_trace::quantity::Bytes;
use pagelab_trace::suggestion::nearest;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::Switch;
use pagelab_base::code_cost::CodeCycles;
use pagelab_base::error::EngineError;

/// Most mistakes that one error lists.
const MOST_MISTAKES: usize = 4;

/// The error text of a type for a value; none if the type accepts it.
type Refusal = fn(&Value) -> Option<String>;

/// Types with their own notation: names in the schema, and error texts.
const NOTATIONS: [(&str, Refusal); 3] =
    [("Bytes", refusal::<Bytes>), ("Switch", refusal::<Switch>), ("CodeCycles", refusal::<CodeCycles>)];

fn refusal<T: DeserializeOwned>(value: &Value) -> Option<String> {
    if !matches!(value, Value::String(_) | Value::Number(_) | Value::Bool(_)) {
        // For a list, such a type would return the generic text of its deserialiser.
        return Some(format!("{} is not possible; a single value belongs here", shown(value)));
    }
    T::deserialize(value).err().map(|error| error.to_string())
}

/// A key and what is wrong with it.
struct SchemaError {
    key: String,
    what: String,
}

/// The error for a configuration that failed to deserialise; none if it matches the schema.
pub fn explain(schema: &Value, tree: &Value) -> Option<EngineError> {
    let mut search = Search { definitions: &schema["$defs"], found: Vec::new() };
    search.check(schema, tree, "");
    let mut found = search.found.into_iter();
    let SchemaError { key, mut what } = found.next()?;
    for SchemaError { key, what: more } in found.by_ref().take(MOST_MISTAKES - 1) {
        what += &format!(" - {key}: {more}");
    }
    match found.count() {
        0 => {}
        more => what += &format!(" - and {more} more"),
    }
    Some(EngineError::config(key, what))
}

struct Search<'s> {
    definitions: &'s Value,
    found: Vec<SchemaError>,
}

impl<'s> Search<'s> {
    fn add(&mut self, key: &str, what: String) {
        self.found.push(SchemaError { key: key.to_owned(), what });
    }

    /// The definition that a schema refers to, with its name.
    fn resolve(&self, schema: &'s Value) -> (Option<&'s str>, &'s Value) {
        match schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")) {
            Some(name) => (Some(name), &self.definitions[name]),
            None => (None, schema),
        }
    }

    /// Adds the mistakes in the value of a key.
    fn check(&mut self, schema: &'s Value, value: &Value, key: &str) {
        let (name, schema) = self.resolve(schema);
        if let Some((_, refusal)) = NOTATIONS.iter().find(|(notation, _)| Some(*notation) == name) {
            if let Some(what) = refusal(value) {
                self.add(key, what);
            }
            return;
        }
        if let Some(forms) = schema["anyOf"].as_array() {
            self.check_forms(forms, value, key);
        } else if let Some(variants) = schema["oneOf"].as_array() {
            match tag(variants) {
                Some(tag) => self.check_design(variants, tag, value, key),
                None => self.check_variant(variants, value, key),
            }
        } else if schema["enum"].is_array() {
            self.check_name(&names(std::slice::from_ref(schema)), value, key);
        } else {
            self.check_kind(schema, value, key);
        }
    }

    /// Checks a value that may have one of several forms, including null. If it has none, reports the mistakes against
    /// the most similar form: an object for an object, a number for a number if there is such a form, otherwise names.
    fn check_forms(&mut self, forms: &'s [Value], value: &Value, key: &str) {
        if value.is_null() {
            return;
        }
        let may_be_null = forms.iter().any(|form| form["type"] == "null");
        let is_number = |form: &Value| form["type"] == "integer" || form["type"] == "number";
        let of_number = value.is_number() && forms.iter().any(|form| is_number(self.resolve(form).1));
        let forms = forms.iter().filter(|form| form["type"] != "null");
        let like = |form: &Value| match value {
            Value::Object(_) => form["type"] == "object",
            _ if of_number => is_number(form),
            _ => form["enum"].is_array() || form["oneOf"].as_array().is_some_and(|variants| tag(variants).is_none()),
        };
        let tried = forms.map(|form| {
            let mut search = Search { definitions: self.definitions, found: Vec::new() };
            search.check(form, value, key);
            (!search.found.is_empty(), !like(self.resolve(form).1), search.found)
        });
        if let Some((true, _, mut found)) = tried.min_by_key(|&(wrong, unlike, _)| (wrong, unlike)) {
            let of_key = found.iter_mut().find(|mistake| may_be_null && mistake.key == key);
            of_key.into_iter().for_each(|mistake| mistake.what.push_str("; null for none"));
            self.found.extend(found);
        }
    }

    /// Checks a value that is one of several names, or an object whose only key is a name with parameters.
    fn check_variant(&mut self, variants: &'s [Value], value: &Value, key: &str) {
        let with_parameters = |name: &str| variants.iter().find_map(|variant| variant["properties"].get(name));
        if let Some(part) = value.as_object().filter(|part| part.len() == 1)
            && let Some((name, parameters)) = part.iter().next()
            && let Some(schema) = with_parameters(name)
        {
            return self.check(schema, parameters, &format!("{key}.{name}"));
        }
        let keys = variants.iter().filter_map(|variant| variant["properties"].as_object()).flat_map(Map::keys);
        let objects: Vec<String> = keys.map(|name| format!("{{\"{name}\":{{}}}}")).collect();
        let known: Vec<&str> = names(variants).into_iter().chain(objects.iter().map(String::as_str)).collect();
        self.check_name(&known, value, key);
    }

    /// Checks that a value is one of several names.
    fn check_name(&mut self, known: &[&str], value: &Value, key: &str) {
        match value.as_str() {
            Some(name) if known.contains(&name) => {}
            Some(name) => self.add(key, unknown_name(name, known)),
            None => self.add(key, format!("{} is not possible; {}", shown(value), allowed(known))),
        }
    }

    /// Checks a part in which the key `tag` selects a design and the other keys are its parameters.
    fn check_design(&mut self, variants: &'s [Value], tag: &str, value: &Value, key: &str) {
        let known: Vec<&str> =
            variants.iter().filter_map(|variant| variant["properties"][tag]["const"].as_str()).collect();
        let Some(part) = value.as_object() else {
            let meant = value.as_str().filter(|name| known.contains(name)).unwrap_or(known[0]);
            let chosen =
                variants.iter().find(|variant| variant["properties"][tag]["const"] == meant).expect("it is known");
            let what = format!(
                "{} is not possible; keys belong here: write {}; of `{tag}` {}",
                shown(value),
                self.example(chosen),
                allowed(&known)
            );
            return self.add(key, what);
        };
        let chosen = match part.get(tag) {
            Some(Value::String(name)) => {
                variants.iter().find(|variant| variant["properties"][tag]["const"] == name.as_str())
            }
            Some(_) => None,
            // A design whose key `tag` is optional is the default.
            None => variants.iter().find(|variant| !required(variant).any(|key| key == tag)),
        };
        match (chosen, part.get(tag)) {
            (Some(chosen), _) => self.check_members(chosen, part, key),
            (None, Some(name)) => self.check_name(&known, name, &below(key, tag)),
            (None, None) => self.add(key, format!("the key `{tag}` is missing; {}", allowed(&known))),
        }
    }

    fn check_kind(&mut self, schema: &'s Value, value: &Value, key: &str) {
        let kinds: Vec<&str> = match &schema["type"] {
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            kind => kind.as_str().into_iter().collect(),
        };
        let Some(&kind) = kinds.iter().find(|kind| **kind != "null") else { return };
        if value.is_null() && kinds.len() > 1 {
            return;
        }
        let (fits, wanted) = match kind {
            "object" => match value.as_object() {
                Some(part) => return self.check_members(schema, part, key),
                None => (false, format!("keys belong here: write {}", self.example(schema))),
            },
            "array" => match value.as_array() {
                Some(list) => return self.check_elements(schema, list, key),
                None => (false, format!("a list belongs here: write [{}, …]", self.example(&schema["items"]))),
            },
            "integer" => whole_number(schema, value),
            "number" => (value.is_number(), "a number belongs here".to_owned()),
            "boolean" => (value.is_boolean(), "allowed are true and false".to_owned()),
            _ => (value.is_string(), "a text belongs here".to_owned()),
        };
        if !fits {
            self.add(key, format!("{} is not possible; {wanted}", shown(value)));
        }
    }

    fn check_elements(&mut self, schema: &'s Value, list: &[Value], key: &str) {
        for (index, element) in list.iter().enumerate() {
            self.check(&schema["items"], element, &below(key, &element_name(element, index)));
        }
    }

    /// Checks the keys of a part and their values.
    fn check_members(&mut self, schema: &'s Value, part: &Map<String, Value>, key: &str) {
        let none = Map::new();
        let known = schema["properties"].as_object();
        let names: Vec<&str> = known.unwrap_or(&none).keys().map(String::as_str).collect();
        for (name, value) in part {
            match known.and_then(|known| known.get(name)) {
                Some(schema) => self.check(schema, value, &below(key, name)),
                None if schema["additionalProperties"].is_object() => {
                    self.check(&schema["additionalProperties"], value, &below(key, name));
                }
                None => self.add(&below(key, name), unknown_key(name, &names)),
            }
        }
        // A key under a misspelt name is not missing.
        let meant = |wanted: &&str| part.keys().any(|name| nearest(name, names.iter().copied()) == Some(*wanted));
        let missing = required(schema).filter(|name| !part.contains_key(*name) && !meant(name));
        let missing: Vec<&str> = missing.collect();
        if let [name] = missing[..] {
            self.add(key, format!("the key `{name}` is missing"));
        } else if let [some @ .., last] = &missing[..] {
            self.add(key, format!("the keys `{}` and `{last}` are missing", some.join("`, `")));
        }
    }

    /// An example of a value of a schema, with dots for the values.
    fn example(&self, schema: &'s Value) -> String {
        let (_, schema) = self.resolve(schema);
        let members = |schema: &Value| {
            let member = |name: &str| match &schema["properties"][name]["const"] {
                Value::Null => format!("\"{name}\":…"),
                name_of_design => format!("\"{name}\":{name_of_design}"),
            };
            format!("{{{}}}", required(schema).map(member).collect::<Vec<_>>().join(","))
        };
        match (schema["oneOf"].as_array(), schema["enum"].as_array()) {
            (Some(variants), _) if tag(variants).is_some() => members(&variants[0]),
            (Some(variants), _) => format!("{:?}", names(variants)[0]),
            (None, Some(names)) => names[0].to_string(),
            (None, None) if schema["type"] == "object" => members(schema),
            (None, None) => "…".to_owned(),
        }
    }
}

/// The required keys of a part.
fn required(schema: &Value) -> impl Iterator<Item = &str> {
    schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// The key that distinguishes variants; none if they are names.
pub(super) fn tag(variants: &[Value]) -> Option<&str> {
    let properties = variants[0]["properties"].as_object()?;
    properties.iter().find(|(_, schema)| schema["const"].is_string()).map(|(key, _)| key.as_str())
}

/// Names of variants that have no keys.
fn names(variants: &[Value]) -> Vec<&str> {
    variants
        .iter()
        .flat_map(|variant| variant["enum"].as_array().map_or(std::slice::from_ref(&variant["const"]), Vec::as_slice))
        .filter_map(Value::as_str)
        .collect()
}

/// Whether a value is a whole number in the schema's range, and the text of that range.
fn whole_number(schema: &Value, value: &Value) -> (bool, String) {
    let least = schema["minimum"].as_u64().unwrap_or(0);
    let most = match (schema["maximum"].as_u64(), schema["format"].as_str()) {
        (Some(most), _) => Some(most),
        (None, Some("uint8")) => Some(u64::from(u8::MAX)),
        (None, Some("uint16")) => Some(u64::from(u16::MAX)),
        (None, Some("uint32")) => Some(u64::from(u32::MAX)),
        (None, _) => None,
    };
    let fits = value.as_u64().is_some_and(|number| (least..=most.unwrap_or(u64::MAX)).contains(&number));
    // For a value that is not a number, the range of the type would not help: usually it is wider than what makes
    // sense.
    let range = match (value.is_number(), most) {
        (false, _) => return (fits, "a whole number belongs here".to_owned()),
        (true, Some(most)) => format!("{least} to {most}"),
        (true, None) => format!("{least} and more"),
    };
    (fits, format!("allowed are whole numbers, {range}"))
}

fn unknown_name(name: &str, known: &[&str]) -> String {
    // For short names a suggestion would be arbitrary.
    let near = nearest(name, known.iter().copied()).filter(|_| name.chars().count() > 3);
    let near = near.map_or(String::new(), |near| format!("did you mean {near}? "));
    format!("`{name}` is not known; {near}{}", allowed(known))
}

/// The error text for an unknown key.
pub fn unknown_key(name: &str, known: &[&str]) -> String {
    // A number is an index, for which a suggestion would be arbitrary.
    let near = nearest(name, known.iter().copied()).filter(|_| name.parse::<u64>().is_err());
    match near {
        Some(near) => format!("there is no key `{name}`; did you mean `{near}`?"),
        None => format!("there is no key `{name}`; the keys are {}", known.join(", ")),
    }
}

fn allowed(known: &[&str]) -> String {
    format!("allowed {} {}", if known.len() == 1 { "is" } else { "are" }, known.join(", "))
}

/// The full key of `part` below `key`.
fn below(key: &str, part: &str) -> String {
    if key.is_empty() { part.to_owned() } else { format!("{key}.{part}") }
}

/// How keys name a list element: by its name, or else by its index.
pub fn element_name(element: &Value, index: usize) -> String {
    element.get("name").and_then(Value::as_str).map_or_else(|| index.to_string(), str::to_owned)
}

/// A value as errors show it.
fn shown(value: &Value) -> String {
    const MOST: usize = 40;
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if text.chars().count() <= MOST {
        return format!("`{text}`");
    }
    format!("`{}…`", text.chars().take(MOST).collect::<String>())
}
