//! Assembles a [`Config`] from presets, files and overrides.

use std::path::{Path, PathBuf};

use pagelab_trace::suggestion::nearest;
use serde_json::Value;
use serde_path_to_error::Segment;

use super::designs::Node;
use super::extend::extend;
use super::mistake;
use super::{Config, EngineConfig, PresetKind, presets};
use pagelab_base::error::EngineError;

/// Names that mean "no device".
const NOTHING: [&str; 3] = ["off", "none", "null"];

/// Parts of a run's configuration. A name is that of a built-in preset, or the path of a TOML file of the same form,
/// with or without `.toml`.
#[derive(Clone, Debug, Default)]
pub struct Assembly<'a> {
    /// Machine preset; none for the first of `pagelab list machines`.
    pub machine: Option<&'a str>,
    /// System preset; none for the first of `pagelab list systems`.
    pub system: Option<&'a str>,
    /// Kernel preset; keys in the system's table `kernel` override it. None for the first of `pagelab list kernels`.
    pub kernel: Option<&'a str>,
    /// `key=value` overrides, applied in order.
    pub set: &'a [String],
}

/// Assembles the effective configuration. Consistency between its keys is not yet checked (see `Config::validate`).
///
/// Errors: an unknown preset (the error lists the known ones), a file that cannot be read or parsed, an unknown key, or
/// a value of the wrong type (the error contains the key's path and the allowed values).
pub fn assemble(assembly: &Assembly) -> Result<Config, EngineError> {
    let mut tree = serde_json::Map::new();
    tree.insert("machine".into(), load(PresetKind::Machine, assembly.machine)?);
    let mut system = load(PresetKind::System, assembly.system)?;
    let mut kernel = load(PresetKind::Kernel, assembly.kernel)?;
    bring_kernel_keys(&mut system, &mut kernel);
    let of_machine = take_machine_keys(&mut system)?;
    tree.insert("system".into(), system);
    tree.insert("kernel".into(), kernel);
    let engine = serde_json::to_value(EngineConfig::default()).expect("engine defaults serialise");
    tree.insert("engine".into(), engine);
    let mut tree = Value::Object(tree);
    fill_in_drives(&mut tree["kernel"])?;
    fill_in_core(&mut tree["machine"])?;
    // A design that the command chooses has none of the keys that the system's list sets for another.
    for sets in [&of_machine[..], assembly.set] {
        let mut written = UserKeys::default();
        for set in sets {
            apply(&mut tree, set, &mut written)?;
        }
    }
    let config: Config = serde_path_to_error::deserialize(&tree).map_err(|refused| {
        let schema = serde_json::to_value(schemars::schema_for!(Config)).expect("a schema is JSON");
        mistake::explain(&schema, &tree)
            .unwrap_or_else(|| EngineError::config(as_written(refused.path(), &tree), refused.inner().to_string()))
    })?;
    config.validate()?;
    Ok(config)
}

/// Applies an override, `key=value`, and notes its key.
fn apply<'k>(tree: &mut Value, set: &'k str, written: &mut UserKeys<'k>) -> Result<(), EngineError> {
    let (key, value) = set.split_once('=').ok_or_else(|| EngineError::config(set, "write overrides as key=value"))?;
    let key = key.trim();
    if key.is_empty() {
        let what = "the key before `=` is missing; write overrides as key=value, and `pagelab schema` shows the keys";
        return Err(EngineError::config(format!("`{set}`"), what));
    }
    let value = parse_value(value.trim());
    let is_table = value.is_object();
    *place(tree, key)? = value;
    drop_keys_of_other_designs(tree, key, written)?;
    written.add(key, is_table);
    fill_in_drives(&mut tree["kernel"])?;
    fill_in_core(&mut tree["machine"])
}

/// Keys that the user set, individually or as a table. Keys that come from a named preset are not included.
#[derive(Default)]
struct UserKeys<'k> {
    keys: Vec<&'k str>,
    tables: Vec<&'k str>,
}

impl<'k> UserKeys<'k> {
    fn add(&mut self, key: &'k str, is_table: bool) {
        if is_table { self.tables.push(key) } else { self.keys.push(key) }
    }

    fn contains(&self, part: &str, key: &str) -> bool {
        let is_the_key = |other: &&str| other.strip_prefix(part).and_then(|rest| rest.strip_prefix('.')) == Some(key);
        self.tables.contains(&part) || self.keys.iter().chain(&self.tables).any(is_the_key)
    }
}

/// If `key` selects a design or a drive: removes the keys that a preset set for the previous design and the user did
/// not set.
fn drop_keys_of_other_designs(tree: &mut Value, key: &str, written: &UserKeys) -> Result<(), EngineError> {
    let Some((part, last)) = key.rsplit_once('.') else { return Ok(()) };
    let is_written = |name: &str| written.contains(part, name);
    let node = Node::root().at(part.split('.'));
    if last == "drive" && matches!(part, "kernel.storage" | "kernel.swap") {
        let device = Node::root().at(["kernel", "storage"]).expect("a kernel may have storage");
        if let Some(keys) = place(tree, part)?.as_object_mut() {
            keys.retain(|name, _| !device.has_key(name) || is_written(name));
        }
    } else if let Some(node) = node.filter(|node| node.is_chosen_by(last))
        && let Some(keys) = place(tree, part)?.as_object_mut()
    {
        let name = keys[last].clone();
        node.retain_keys_of(&name, keys, is_written);
    }
    Ok(())
}

/// Moves the table `kernel` of a system into the kernel; its keys override those of the kernel preset.
fn bring_kernel_keys(system: &mut Value, kernel: &mut Value) {
    let brought = system.as_object_mut().and_then(|keys| keys.remove("kernel"));
    if let (Some(Value::Object(brought)), Some(kernel)) = (brought, kernel.as_object_mut()) {
        kernel.extend(brought);
    }
}

/// Takes the list `machine` out of a system: overrides of the machine's keys, such as `cores=4`.
fn take_machine_keys(system: &mut Value) -> Result<Vec<String>, EngineError> {
    let Some(keys) = system.as_object_mut().and_then(|keys| keys.remove("machine")) else { return Ok(Vec::new()) };
    let wrong = || {
        let what = "a system's machine is a list of overrides of the machine's keys: write [\"cores=4\"]";
        EngineError::config("system.machine", what)
    };
    let keys = keys.as_array().ok_or_else(wrong)?;
    keys.iter().map(|key| key.as_str().map(|key| format!("machine.{key}")).ok_or_else(wrong)).collect()
}

/// Replaces drive names in a kernel (`storage = NAME`, or a key `drive` of `storage` and `swap`) by the drives' keys.
/// Keys next to a name override them.
fn fill_in_drives(kernel: &mut Value) -> Result<(), EngineError> {
    if let Some(name) = kernel["storage"].as_str().filter(|name| !NOTHING.contains(name)) {
        kernel["storage"] = serde_json::json!({ "drive": name });
    }
    for part in ["storage", "swap"] {
        let Some(keys) = kernel[part].as_object_mut() else { continue };
        let Some(name) = keys.remove("drive") else { continue };
        let Some(name) = name.as_str() else {
            let what = format!("{name} is not a name; `pagelab list drives` describes the presets");
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

/// Replaces the name of a machine's core (`core = NAME`) by the core's keys.
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

/// A path in the tree in the user's notation: list elements by name.
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

/// The preset or file called `name`, merged with those that it extends.
fn load(kind: PresetKind, name: Option<&str>) -> Result<Value, EngineError> {
    let name = name.unwrap_or_else(|| presets(kind).next().expect("every kind has a preset").name);
    load_extending(kind, name, Path::new(""), &mut Vec::new())
}

/// Like [`load`], for a name in a file of `folder`. `extending` are the files that extend this one.
fn load_extending(
    kind: PresetKind,
    name: &str,
    folder: &Path,
    extending: &mut Vec<PathBuf>,
) -> Result<Value, EngineError> {
    let preset = presets(kind).find(|preset| preset.name == name);
    let file = folder.join(name);
    let with_ending = folder.join(format!("{name}.toml"));
    let file = match preset {
        Some(_) => None,
        None if name.ends_with(".toml") || file.is_file() => Some(file),
        None if with_ending.is_file() => Some(with_ending),
        None => return Err(unknown(kind, name, extending.last().map(PathBuf::as_path))),
    };
    let table = match (&file, preset) {
        (Some(file), _) => std::fs::read_to_string(file)
            .map_err(|e| EngineError::config(kind.name(), format!("cannot read `{}`: {e}", file.display())))?
            .parse()
            .map_err(|e: toml::de::Error| {
                EngineError::config(kind.name(), format!("`{name}` is not valid TOML: {e}"))
            })?,
        (None, preset) => preset.expect("it is a preset, or a file").table(),
    };
    let mut own = serde_json::to_value(table).map_err(|e| EngineError::config(kind.name(), e.to_string()))?;
    let base = match own.as_object_mut().and_then(|own| own.remove("base")) {
        None => return Ok(own),
        Some(Value::String(base)) => base,
        Some(other) => {
            let what = format!("`{name}`: base = {other} is not a name; write a preset's name or a TOML file");
            return Err(EngineError::config(kind.name(), what));
        }
    };
    let file = file.unwrap_or_else(|| name.into());
    if let Some(first) = extending.iter().position(|other| is_same_file(other, &file)) {
        let chain: Vec<String> =
            extending[first..].iter().chain([&file]).map(|file| file.display().to_string()).collect();
        let what = format!("`{}` extends itself: {}", file.display(), chain.join(" -> "));
        return Err(EngineError::config(kind.name(), what));
    }
    let own_folder = file.parent().unwrap_or(Path::new("")).to_owned();
    let called = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    extending.push(file);
    let mut base = load_extending(kind, &base, &own_folder, extending)?;
    // Names in the base are resolved first, because the extending file may replace only some of their keys.
    match kind {
        PresetKind::Machine => fill_in_core(&mut base)?,
        PresetKind::Kernel => fill_in_drives(&mut base)?,
        PresetKind::System | PresetKind::Drive | PresetKind::Window => {}
    }
    let Value::Object(own) = own else { unreachable!("a TOML document is a table") };
    Ok(extend(kind, base, own, &called))
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real(one) == real(other)
}

/// Most names that an error lists.
const MOST_NAMES: usize = 12;

/// The error for a name that is neither a preset nor a file. `extending` is the file that extends it, if any.
fn unknown(kind: PresetKind, name: &str, extending: Option<&Path>) -> EngineError {
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
    let name = match extending {
        Some(file) => format!("`{}` extends `{name}`, which", file.display()),
        None => format!("`{name}`"),
    };
    let what = format!(
        "{name} is neither a preset nor a TOML file; {help} `pagelab list {kind}s` describes the presets{measured}"
    );
    EngineError::config(kind, what)
}

/// The slot of a dotted key. A list element is named by its index or by its `name`.
fn place<'t>(tree: &'t mut Value, key: &str) -> Result<&'t mut Value, EngineError> {
    let mut at = tree;
    let mut path = String::new();
    for part in key.split('.') {
        if at.is_null() {
            *at = Value::Object(serde_json::Map::new());
        }
        // Only top-level keys are checked here. A deeper key may be absent because it is optional; if it is unknown,
        // deserialisation rejects it.
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

/// Index of a list element by its `name` or its number.
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
