//! Puts a [`Config`] together from presets, files and overrides.

use std::path::Path;

use pagelab_trace::suggestion::nearest;
use serde_json::Value;
use serde_path_to_error::Segment;

use super::mistake;
use super::{Config, EngineConfig, PresetKind, presets};
use crate::base::error::EngineError;

/// What somebody may write who wants no device.
const NOTHING: [&str; 3] = ["off", "none", "null"];

/// What a run's configuration is made of. Names are built-in presets or paths of TOML files of the same form, whose
/// `.toml` may be left out.
#[derive(Clone, Debug, Default)]
pub struct Assembly<'a> {
    /// Machine preset; none for the first of `pagelab list machines`.
    pub machine: Option<&'a str>,
    /// System preset; none for the first of `pagelab list systems`.
    pub system: Option<&'a str>,
    /// Kernel preset, whose keys those of the system's table `kernel` replace; none for the first of `pagelab list
    /// kernels`.
    pub kernel: Option<&'a str>,
    /// `key=value` overrides, applied in order.
    pub set: &'a [String],
}

/// The effective configuration, not yet validated against itself (see `Config::validate`).
///
/// Errors: an unknown preset (the known ones are named), a file that cannot be read or parsed, an unknown key or a
/// value of the wrong type (the key's path and what is allowed are named).
pub fn assemble(assembly: &Assembly) -> Result<Config, EngineError> {
    let mut tree = serde_json::Map::new();
    tree.insert("machine".into(), load(PresetKind::Machine, assembly.machine)?);
    let mut system = load(PresetKind::System, assembly.system)?;
    let mut kernel = load(PresetKind::Kernel, assembly.kernel)?;
    bring_kernel_keys(&mut system, &mut kernel);
    tree.insert("system".into(), system);
    tree.insert("kernel".into(), kernel);
    let engine = serde_json::to_value(EngineConfig::default()).expect("engine defaults serialise");
    tree.insert("engine".into(), engine);
    let mut tree = Value::Object(tree);
    fill_in_drives(&mut tree["kernel"])?;
    fill_in_core(&mut tree["machine"])?;
    for set in assembly.set {
        let (key, value) =
            set.split_once('=').ok_or_else(|| EngineError::config(set, "an override is written key=value"))?;
        let key = key.trim();
        if key.is_empty() {
            let what =
                "no key stands before `=`; an override is written key=value, and `pagelab schema` shows the keys";
            return Err(EngineError::config(format!("`{set}`"), what));
        }
        *place(&mut tree, key)? = parse_value(value.trim());
        fill_in_drives(&mut tree["kernel"])?;
        fill_in_core(&mut tree["machine"])?;
    }
    let config: Config = serde_path_to_error::deserialize(&tree).map_err(|refused| {
        let schema = serde_json::to_value(schemars::schema_for!(Config)).expect("a schema is JSON");
        mistake::explain(&schema, &tree)
            .unwrap_or_else(|| EngineError::config(as_written(refused.path(), &tree), refused.inner().to_string()))
    })?;
    config.validate()?;
    Ok(config)
}

/// A system may bring keys of its kernel, in a table `kernel`: they prevail over those of the kernel preset.
fn bring_kernel_keys(system: &mut Value, kernel: &mut Value) {
    let brought = system.as_object_mut().and_then(|of| of.remove("kernel"));
    if let (Some(Value::Object(brought)), Some(kernel)) = (brought, kernel.as_object_mut()) {
        kernel.extend(brought);
    }
}

/// Puts the keys of the drives that a kernel names (`storage = NAME`, or a key `drive` of `storage` and `swap`) in place of the names.
/// Keys that stand beside a name prevail.
fn fill_in_drives(kernel: &mut Value) -> Result<(), EngineError> {
    if let Some(name) = kernel["storage"].as_str().filter(|name| !NOTHING.contains(name)) {
        kernel["storage"] = serde_json::json!({ "drive": name });
    }
    for part in ["storage", "swap"] {
        let Some(keys) = kernel[part].as_object_mut() else { continue };
        let Some(name) = keys.remove("drive") else { continue };
        let Some(name) = name.as_str() else {
            let what = format!("{name} is no name; `pagelab list drives` describes the presets");
            return Err(EngineError::config(format!("kernel.{part}.drive"), what));
        };
        let at_its_key = |error| match error {
            EngineError::Config { what, .. } => EngineError::config(format!("kernel.{part}"), what),
            other => other,
        };
        let drive = load(PresetKind::Drive, Some(name)).map_err(at_its_key)?;
        let Some(device) = drive["device"].as_object() else {
            let what = format!("`{name}` has no table `device` with the keys of a device");
            return Err(EngineError::config(format!("kernel.{part}"), what));
        };
        for (key, value) in device {
            keys.entry(key).or_insert_with(|| value.clone());
        }
    }
    Ok(())
}

/// Puts the keys of the core that a machine names (`core = NAME`) in place of the name.
fn fill_in_core(machine: &mut Value) -> Result<(), EngineError> {
    let Some(name) = machine["core"].as_str() else { return Ok(()) };
    let at_its_key = |error| match error {
        EngineError::Config { what, .. } => EngineError::config("machine.core", what),
        other => other,
    };
    let preset = load(PresetKind::Window, Some(name)).map_err(at_its_key)?;
    if !preset["core"].is_object() {
        let what = format!("`{name}` has no table `core` with the keys of a core");
        return Err(EngineError::config("machine.core", what));
    }
    machine["core"] = preset["core"].clone();
    Ok(())
}

/// A path in the tree as a user writes it: elements of lists by their names.
fn as_written(path: &serde_path_to_error::Path, tree: &Value) -> String {
    let mut at = tree;
    let mut parts = Vec::new();
    for segment in path {
        match segment {
            Segment::Map { key } => {
                at = &at[key];
                parts.push(key.clone());
            }
            Segment::Seq { index } => {
                at = &at[*index];
                parts.push(mistake::element_name(at, *index));
            }
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    parts.join(".")
}

fn load(kind: PresetKind, name: Option<&str>) -> Result<Value, EngineError> {
    let read = |path: &str| {
        std::fs::read_to_string(path)
            .map_err(|e| EngineError::config(kind.name(), format!("cannot read `{path}`: {e}")))
    };
    let preset = match name {
        None => presets(kind).next(),
        Some(name) => presets(kind).find(|preset| preset.name == name),
    };
    let table = match (preset, name) {
        (Some(preset), _) => preset.table(),
        (None, None) => unreachable!("every kind has a preset"),
        (None, Some(name)) => {
            let text = match name {
                name if name.ends_with(".toml") || Path::new(name).is_file() => read(name)?,
                name if Path::new(&format!("{name}.toml")).is_file() => read(&format!("{name}.toml"))?,
                name => return Err(unknown(kind, name)),
            };
            text.parse().map_err(|e: toml::de::Error| {
                EngineError::config(kind.name(), format!("`{name}` is not valid TOML: {e}"))
            })?
        }
    };
    serde_json::to_value(table).map_err(|e| EngineError::config(kind.name(), e.to_string()))
}

/// More names than so many are too many for an error.
const MOST_NAMES: usize = 12;

/// The error of a name that is neither a preset's nor a file's.
fn unknown(kind: PresetKind, name: &str) -> EngineError {
    let known: Vec<&str> = presets(kind).map(|preset| preset.name).collect();
    let help = match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean {near}?"),
        None if known.len() > MOST_NAMES => {
            format!("there are {} presets, such as {}.", known.len(), known[..3].join(", "))
        }
        None => format!("the presets are {}.", known.join(", ")),
    };
    let measured = match kind {
        PresetKind::Kernel => "; `pagelab calibrate` measures this machine's and writes this-host.toml",
        PresetKind::Drive => "; `pagelab calibrate --fio` fits one to measurements of yours",
        PresetKind::Machine | PresetKind::System | PresetKind::Window => "",
    };
    let kind = kind.name();
    let what = format!(
        "`{name}` is neither a preset nor a TOML file; {help} `pagelab list {kind}s` describes the presets{measured}"
    );
    EngineError::config(kind, what)
}

/// The slot of a dotted key. An element of a list is named by its number or by its `name`.
fn place<'t>(tree: &'t mut Value, key: &str) -> Result<&'t mut Value, EngineError> {
    let mut at = tree;
    let mut path = String::new();
    for part in key.split('.') {
        if at.is_null() {
            *at = Value::Object(serde_json::Map::new());
        }
        // Only the top is fixed; deeper down a key may be absent because it is optional, and the typed definition refuses
        // it if it is unknown.
        let known = match at {
            Value::Object(map) => !path.is_empty() || map.contains_key(part),
            Value::Array(list) => element(list, part).is_some(),
            _ => return Err(EngineError::config(key, format!("`{path}` is a single value and has no parts"))),
        };
        if !known {
            let what = mistake::unknown_key(part, &members(at).iter().map(String::as_str).collect::<Vec<_>>());
            return Err(EngineError::config(key, if path.is_empty() { what } else { format!("in `{path}` {what}") }));
        }
        at = match at {
            Value::Object(map) => map.entry(part).or_insert(Value::Null),
            Value::Array(list) => {
                let index = element(list, part).expect("checked above");
                &mut list[index]
            }
            _ => unreachable!("checked above"),
        };
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(part);
    }
    Ok(at)
}

/// Index of a list's element by its `name` or its number.
fn element(list: &[Value], part: &str) -> Option<usize> {
    let named = list.iter().position(|v| v.get("name").and_then(Value::as_str) == Some(part));
    named.or_else(|| part.parse().ok().filter(|&index: &usize| index < list.len()))
}

fn members(value: &Value) -> Vec<String> {
    match value {
        Value::Object(map) => map.keys().cloned().collect(),
        Value::Array(list) => list.iter().enumerate().map(|(i, element)| mistake::element_name(element, i)).collect(),
        _ => Vec::new(),
    }
}

/// JSON where it parses as JSON (numbers, booleans, lists, objects), otherwise a string.
fn parse_value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}
