//! The structure of the simulator's sources: imports, lengths of functions, places of files.
//!
//! The compiler ensures that no crate imports a later one. This test does the same for the folders within a crate
//! (*rooms*), and forbids cycles between files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, ItemUse, UseTree, Visibility};

/// Maximum number of lines of a function.
const LONGEST_FUNCTION: usize = 80;

/// The crates of the simulator, from the lowest up, with their rooms in the same order. No room imports a later one.
const CRATES: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("tables", &["page_table", "mmu_cache"]),
    ("hardware", &["cache", "core_model", "device"]),
    ("kernel", &[]),
    ("translate", &[]),
    ("simulation", &["config", "observe", "programs", "machine", "collect", "cpu", "agenda"]),
    ("engine", &["config", "run"]),
];

/// A module: a source file without its inline modules, or an inline module.
struct Module {
    path: Vec<String>,
    items: Vec<syn::Item>,
}

/// Names used in a file: paths from the crate's root, and its re-exports with their names.
#[derive(Default)]
struct Names {
    within: Vec<String>,
    used: BTreeSet<Vec<String>>,
    exported: BTreeMap<String, Vec<String>>,
    functions: Vec<(usize, usize, String)>,
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Ident>().is_ok_and(|condition| condition == "test")
    })
}

impl Names {
    /// The path from the crate's root, if it is in the crate.
    fn rooted(&self, path: &[String]) -> Option<Vec<String>> {
        let ups = path.iter().take_while(|part| *part == "super").count();
        match path.first()?.as_str() {
            "crate" => Some([&self.within[..1], &path[1..]].concat()),
            name if name.starts_with("pagelab_") => Some([&[name["pagelab_".len()..].to_owned()], &path[1..]].concat()),
            "self" => Some([&self.within[..], &path[1..]].concat()),
            "super" => Some([&self.within[..self.within.len().checked_sub(ups)?], &path[ups..]].concat()),
            // Possibly a child.
            _ => Some([&self.within[..], path].concat()),
        }
    }

    fn tree(&mut self, tree: &UseTree, before: &mut Vec<String>, public: bool) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.tree(&path.tree, before, public);
                before.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|item| self.tree(item, before, public)),
            UseTree::Glob(_) => self.used.extend(self.rooted(before)),
            UseTree::Name(name) => self.leaf(before, &name.ident.to_string(), &name.ident.to_string(), public),
            UseTree::Rename(name) => self.leaf(before, &name.ident.to_string(), &name.rename.to_string(), public),
        }
    }

    fn leaf(&mut self, before: &[String], name: &str, known_as: &str, public: bool) {
        let path: Vec<String> = before.iter().cloned().chain((name != "self").then(|| name.to_owned())).collect();
        if let Some(path) = self.rooted(&path) {
            if public {
                self.exported.insert(known_as.to_owned(), path.clone());
            }
            self.used.insert(path);
        }
    }

    fn function(&mut self, name: &str, span: proc_macro2::Span) {
        self.functions.push((span.end().line - span.start().line + 1, span.start().line, name.to_owned()));
    }
}

impl<'a> Visit<'a> for Names {
    fn visit_item_use(&mut self, item: &'a ItemUse) {
        if !is_test(&item.attrs) {
            self.tree(&item.tree, &mut Vec::new(), !matches!(item.vis, Visibility::Inherited));
        }
    }

    /// An inline module is handled separately.
    fn visit_item_mod(&mut self, _: &'a syn::ItemMod) {}

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        if !is_test(&item.attrs) {
            self.function(&item.sig.ident.to_string(), item.block.span());
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            self.function(&item.sig.ident.to_string(), item.block.span());
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let first = parts[0].as_str();
        if parts.len() > 1 && (["crate", "super", "self"].contains(&first) || first.starts_with("pagelab_")) {
            self.used.extend(self.rooted(&parts));
        }
        visit::visit_path(self, path);
    }
}

fn sources(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name(format!("pagelab-{name}")).join("src")
}

fn read(folder: &Path, path: &[String], modules: &mut Vec<Module>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for entry in entries {
        let name = entry.file_stem().unwrap().to_str().unwrap().to_owned();
        let below = || path.iter().cloned().chain([name.clone()]).collect::<Vec<_>>();
        if entry.is_dir() {
            read(&entry, &below(), modules);
        } else if entry.extension().is_some_and(|extension| extension == "rs") && !is_of_tests(&name) {
            let file = syn::parse_file(&std::fs::read_to_string(&entry).unwrap()).unwrap();
            let path = if name == "mod" || name == "lib" { path.to_vec() } else { below() };
            add(path, file.items, modules);
        }
    }
}

/// Adds a module and its inline modules.
fn add(path: Vec<String>, items: Vec<syn::Item>, modules: &mut Vec<Module>) {
    for item in &items {
        if let syn::Item::Mod(syn::ItemMod { attrs, ident, content: Some((_, within)), .. }) = item
            && !is_test(attrs)
        {
            add([&path[..], &[ident.to_string()]].concat(), within.clone(), modules);
        }
    }
    modules.push(Module { path, items });
}

/// Files that are declared under `#[cfg(test)]`.
fn is_of_tests(name: &str) -> bool {
    name == "tests" || name.ends_with("_tests") || name == "test_support" || name == "properties"
}

/// The names used in each module, by its path.
fn names() -> BTreeMap<Vec<String>, Names> {
    let mut modules = Vec::new();
    CRATES.iter().for_each(|(name, _)| read(&sources(name), &[(*name).to_owned()], &mut modules));
    modules
        .into_iter()
        .map(|module| {
            let mut names = Names { within: module.path.clone(), ..Names::default() };
            module.items.iter().for_each(|item| names.visit_item(item));
            (module.path, names)
        })
        .collect()
}

/// The module of the item at a path, following re-exports.
fn module_of(names: &BTreeMap<Vec<String>, Names>, path: &[String]) -> Option<Vec<String>> {
    let depth = (0..=path.len()).rev().find(|&n| names.contains_key(&path[..n]))?;
    let (module, rest) = path.split_at(depth);
    let exported = rest.first().and_then(|name| names[module].exported.get(name));
    match exported {
        Some(target) if target.as_slice() != path => module_of(names, target),
        Some(_) | None => Some(module.to_vec()),
    }
}

/// The modules that each module imports. A folder's `mod.rs` and the files below it count as one.
fn imports(names: &BTreeMap<Vec<String>, Names>) -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
    let related = |a: &[String], b: &[String]| a.starts_with(b) || b.starts_with(a);
    let of = |module: &Vec<String>, what: &Names| {
        let targets = what.used.iter().filter_map(|path| module_of(names, path));
        targets.filter(|target| !target.is_empty() && !related(target, module)).collect()
    };
    names.iter().map(|(module, what)| (module.clone(), of(module, what))).collect()
}

/// All modules reachable from a module by imports.
fn reached(imports: &BTreeMap<Vec<String>, BTreeSet<Vec<String>>>, from: &[String]) -> BTreeSet<Vec<String>> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from.to_vec()]);
    while let Some(next) = open.pop() {
        open.extend(imports[&next].iter().filter(|module| seen.insert((*module).clone())).cloned());
    }
    seen
}

#[test]
fn no_modules_import_each_other() {
    let names = names();
    let imports = imports(&names);
    assert!(imports.len() > 100, "the sources were read");
    assert!(imports.values().map(BTreeSet::len).sum::<usize>() > 500, "and what they import");
    let mut circles = BTreeSet::new();
    for module in imports.keys() {
        let reached = reached(&imports, module);
        if reached.contains(module) {
            let back = |other: &&Vec<String>| self::reached(&imports, other).contains(module);
            let circle: BTreeSet<String> = reached.iter().filter(back).map(|path| path.join("::")).collect();
            circles.insert(circle);
        }
    }
    assert!(circles.is_empty(), "modules import each other: {circles:#?}");
}

#[test]
fn functions_are_short_enough_to_be_read_at_once() {
    let names = names();
    let mut long: Vec<String> = Vec::new();
    for (module, names) in &names {
        let functions = names.functions.iter().filter(|(lines, ..)| *lines > LONGEST_FUNCTION);
        long.extend(functions.map(|(lines, at, name)| format!("{}:{at} {name}: {lines} lines", module.join("::"))));
    }
    assert!(long.is_empty(), "longer than {LONGEST_FUNCTION} lines: {long:#?}");
}

/// Index of a module's room among all rooms; none for a crate's root, which declares the rooms.
fn rank(module: &[String]) -> Option<usize> {
    let rooms = CRATES.iter().flat_map(|(name, rooms)| {
        let own: &[&str] = if rooms.is_empty() { &[""] } else { rooms };
        own.iter().map(move |room| (*name, *room))
    });
    let is_in = |(name, room): (&str, &str)| {
        module[0] == name && (room.is_empty() || module.get(1).is_some_and(|of| of == room))
    };
    rooms.into_iter().position(is_in)
}

#[test]
fn no_room_imports_one_above_it() {
    let names = names();
    let mut upwards = BTreeSet::new();
    for (module, targets) in imports(&names) {
        let above = |target: &&Vec<String>| rank(target) > rank(&module) && rank(&module).is_some();
        upwards.extend(
            targets.iter().filter(above).map(|target| format!("{} → {}", module.join("::"), target.join("::"))),
        );
    }
    assert!(upwards.is_empty(), "{} imports lead upwards: {upwards:#?}", upwards.len());
}

#[test]
fn every_file_lies_in_a_room() {
    for (name, rooms) in CRATES.iter().filter(|(_, rooms)| !rooms.is_empty()) {
        let entries = std::fs::read_dir(sources(name)).unwrap().map(|entry| entry.unwrap().file_name());
        let found: BTreeSet<String> = entries.map(|name| name.into_string().unwrap()).collect();
        let expected = rooms.iter().map(|room| (*room).to_owned()).chain(["lib.rs".to_owned()]).collect();
        assert_eq!(found, expected, "pagelab-{name}");
    }
}
