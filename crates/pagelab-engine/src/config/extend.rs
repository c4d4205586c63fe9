//! Presets that extend others: `base = "NAME"` and the differences.

use serde_json::{Map, Value};

use super::PresetKind;
use super::designs::Node;
use super::mistake::element_name;

/// Keys that describe a preset and do not affect the simulation.
const HEAD: [&str; 3] = ["name", "description", "origin"];

/// Merges the preset `own` into the one that it extends. Origins are inherited, except those of values that `own`
/// replaces.
///
/// Args: `called` names `own` if it has no key `name`.
pub fn extend(kind: PresetKind, mut base: Value, mut own: Map<String, Value>, called: &str) -> Value {
    let name = own.get("name").cloned().unwrap_or_else(|| called.into());
    let based_on = base["name"].as_str().unwrap_or_default().to_owned();
    let description = own.get("description").cloned();
    let description = description.unwrap_or_else(|| format!("as {based_on}, with changes").into());
    let own_origin = own.remove("origin");
    own.retain(|key, _| !HEAD.contains(&key.as_str()));
    let mut origin = base["origin"].take();
    if origin.is_null() {
        origin = Value::Object(Map::new());
    }

    let mut written = Vec::new();
    for (key, value) in &own {
        list_leaves(key, value, &mut written);
    }
    for (key, value) in own {
        let node = node_of(kind, &key);
        Node::merge(node, &mut base[key.as_str()], value);
    }
    base["name"] = name.clone();
    base["description"] = description;
    if let (Some(origin), Some(name)) = (origin.as_object_mut(), name.as_str()) {
        replace_origins(origin, own_origin.as_ref().and_then(Value::as_object), &written, name);
        origin.retain(|key, _| is_there(&base, key));
    }
    base["origin"] = match own_origin {
        Some(wrong) if !wrong.is_object() => wrong,
        _ => origin,
    };
    base
}

/// The schema of a preset's key.
fn node_of(kind: PresetKind, key: &str) -> Option<Node> {
    match (kind, key) {
        (PresetKind::System, "kernel") => Node::root().child("kernel"),
        (PresetKind::Machine | PresetKind::System | PresetKind::Kernel, _) => Node::root().at([kind.name(), key]),
        (PresetKind::Drive, _) => Node::root().at(["kernel", "storage"]),
        (PresetKind::Window, _) => Node::root().at(["machine", "core"]),
    }
}

/// Collects the dotted keys of all single values and lists below a key.
fn list_leaves(path: &str, value: &Value, leaves: &mut Vec<String>) {
    match value {
        Value::Object(part) => {
            for (key, value) in part {
                list_leaves(&format!("{path}.{key}"), value, leaves);
            }
        }
        Value::Array(list) if !list.is_empty() && list.iter().all(|element| element["name"].is_string()) => {
            for (index, element) in list.iter().enumerate() {
                list_leaves(&format!("{path}.{}", element_name(element, index)), element, leaves);
            }
        }
        _ => leaves.push(path.to_owned()),
    }
}

/// Removes the origins of overwritten values, and adds those of the extending preset.
fn replace_origins(origin: &mut Map<String, Value>, own: Option<&Map<String, Value>>, written: &[String], name: &str) {
    let is_at_or_below = |key: &str, ancestor: &str| {
        key.strip_prefix(ancestor).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    origin.retain(|key, _| !written.iter().any(|leaf| is_at_or_below(key, leaf)));
    let has_own = |leaf: &str| own.is_some_and(|own| own.keys().any(|key| is_at_or_below(leaf, key)));
    for leaf in written.iter().filter(|leaf| !leaf.ends_with(".name") && !has_own(leaf)) {
        origin.insert(leaf.clone(), format!("{name}, which gives no origin").into());
    }
    origin.extend(own.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())));
}

/// Whether a preset contains the key of an origin. List elements are named by name or index.
fn is_there(preset: &Value, key: &str) -> bool {
    let mut parts = key.split('.');
    parts
        .try_fold(preset, |at, part| match at {
            Value::Array(list) => list
                .iter()
                .find(|element| element["name"] == part)
                .or_else(|| part.parse::<usize>().ok().and_then(|index| list.get(index))),
            _ => at.get(part),
        })
        .is_some()
}
