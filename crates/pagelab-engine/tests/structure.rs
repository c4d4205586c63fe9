//! The structure of the simulator's sources: imports, lengths of functions, places of files.
//!
//! The compiler ensures that no crate imports a later one. This test does the same for the folders within a crate
//! (*rooms*), and forbids circles of files. A `mod.rs` is a file of its own here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, ItemUse, UseTree, Visibility};

/// Maximum number of lines of a function.
const LONGEST_FUNCTION: usize = 80;

/// The crates of the simulator, from the lowest up, with their rooms in the same order. No room imports a later one. A
/// room is a folder or file of the crate. A part of it that has another rank is named by its path, with `*` for any
/// name.
const CRATES: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("tables", &["page_table", "mmu_cache"]),
    ("hardware", &["cache", "core_model", "device"]),
    (
        "kernel",
        &[
            "entry_word",
            "page_ranges",
            "ballooned",
            "frames",
            "vma",
            "shadows",
            "mmap_misses",
            "invalidation",
            "needs",
            "dissolve",
            // Parameters of what stands above, which the configuration has.
            "fault_engine::config",
            "fault_engine::*::parameters",
            "threads::config",
            "threads::*::parameters",
            "scheduler",
            "fault::stage",
            "fault::latencies",
            "config",
            "fault::work",
            "locks",
            "effects",
            "translation_cache",
            "reclaim",
            "context",
            "memory",
            "placement",
            // What a layer keeps for its engine; what the engine does is above the kernels.
            "fault_engine::kernel_side",
            "fault_engine::mfoe::tables",
            "fault_engine::mfoe::ready",
            "fault_engine::smu::free_pages",
            "fault_engine::smu::queue_pair",
            "fault_engine::smu::unit",
            "fault_engine::*::state",
            "direct_segment",
            "inverted_table",
            "frame_tags",
            "table_blocks",
            "home",
            "layer",
            "table_lock",
            "held_batches",
            "reclaim::scan",
            "reclaim::segments",
            "reclaim::advised",
            "os",
            "scanning",
            "fault",
            "mapping",
            "mapping_call",
            "populate",
            "files",
            "sync",
            "page_out",
            "threads",
            "fault_engine",
        ],
    ),
    ("translate", &[]),
    ("run", &["config", "observe", "programs"]),
    ("simulation", &["machine", "collect", "cpu", "agenda"]),
    ("engine", &["config", "run"]),
];

/// Imports that close a circle of files or lead upwards. The list may only become shorter: an import that is no longer
/// there, or no longer does either, fails the tests.
const KNOWN: &[(&str, &str)] = &[
    // A table or record whose file has the type that its parts extend.
    ("tables::page_table::hashed::chained", "tables::page_table::hashed"),
    ("tables::page_table::hashed::open", "tables::page_table::hashed"),
    ("tables::page_table::hashed::power", "tables::page_table::hashed"),
    ("tables::page_table::hashed::shared", "tables::page_table::hashed"),
    ("tables::page_table::elastic_cuckoo::layer", "tables::page_table::elastic_cuckoo"),
    ("hardware::cache::shape", "hardware::cache"),
    ("hardware::cache::stats", "hardware::cache"),
    ("hardware::cache::exact::page", "hardware::cache::exact"),
    ("kernel::fault::io", "kernel::fault"),
    ("kernel::fault::parts", "kernel::fault"),
    ("kernel::vma::apply", "kernel::vma"),
    ("kernel::vma::set", "kernel::vma"),
    ("run::observe::profile::code", "run::observe::profile"),
    ("run::observe::profile::pages", "run::observe::profile"),
    ("run::observe::profile::report", "run::observe::profile"),
    ("run::observe::profile::samples", "run::observe::profile"),
    ("run::observe::profile::stacks", "run::observe::profile"),
    ("engine::run::sample", "engine::run"),
    ("engine::run::sources", "engine::run"),
    // The macro that lists the policies makes the type of their parameters.
    ("kernel::config::system", "kernel::placement"),
    // Memory keeps the record of contents, whose checks are methods of the layer.
    ("kernel::memory", "kernel::layer::contents"),
];

/// A module: a source file without its inline modules, or an inline module.
struct Module {
    path: Vec<String>,
    /// The path of the module that is the whole file.
    file: Vec<String>,
    items: Vec<syn::Item>,
}

/// Names used in a module: paths from the crate's root, and its re-exports with their names.
#[derive(Default)]
struct Names {
    within: Vec<String>,
    file: Vec<String>,
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
        // Who imports a re-export imports the item's own file.
        match self.rooted(&path) {
            Some(path) if public => _ = self.exported.insert(known_as.to_owned(), path),
            Some(path) => _ = self.used.insert(path),
            None => {}
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
        // The first part may be the name of a child.
        if parts.len() > 1 {
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
            add(path.clone(), &path, file.items, modules);
        }
    }
}

/// Adds a module and its inline modules.
fn add(path: Vec<String>, file: &[String], items: Vec<syn::Item>, modules: &mut Vec<Module>) {
    for item in &items {
        if let syn::Item::Mod(syn::ItemMod { attrs, ident, content: Some((_, within)), .. }) = item
            && !is_test(attrs)
        {
            add([&path[..], &[ident.to_string()]].concat(), file, within.clone(), modules);
        }
    }
    modules.push(Module { path, file: file.to_vec(), items });
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
            let mut names = Names { within: module.path.clone(), file: module.file, ..Names::default() };
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

type Imports = BTreeMap<Vec<String>, BTreeSet<Vec<String>>>;

/// The modules of other files that each module imports.
fn imports(names: &BTreeMap<Vec<String>, Names>) -> Imports {
    let imported = |what: &Names| {
        let targets = what.used.iter().filter_map(|path| module_of(names, path));
        targets.filter(|target| !target.is_empty() && names[target].file != what.file).collect()
    };
    names.iter().map(|(module, what)| (module.clone(), imported(what))).collect()
}

/// The files that each file imports.
fn files(names: &BTreeMap<Vec<String>, Names>) -> Imports {
    let mut files = Imports::new();
    for (module, targets) in imports(names) {
        let file = files.entry(names[&module].file.clone()).or_default();
        file.extend(targets.iter().map(|target| names[target].file.clone()));
    }
    files
}

/// All modules reachable from a module by imports.
fn reached(imports: &Imports, from: &[String]) -> BTreeSet<Vec<String>> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from.to_vec()]);
    while let Some(next) = open.pop() {
        open.extend(imports[&next].iter().filter(|module| seen.insert((*module).clone())).cloned());
    }
    seen
}

fn path_of(module: &str) -> Vec<String> {
    module.split("::").map(str::to_owned).collect()
}

#[test]
fn no_files_import_each_other() {
    let mut files = files(&names());
    assert!(files.len() > 300, "the sources were read");
    assert!(files.values().map(BTreeSet::len).sum::<usize>() > 1500, "and what they import");
    let upwards: BTreeSet<_> = upwards(&files).into_iter().collect();
    for (from, to) in KNOWN.iter().map(|&(from, to)| (path_of(from), path_of(to))) {
        let is_there = files.get(&from).is_some_and(|targets| targets.contains(&to));
        let is_needed = reached(&files, &to).contains(&from) || upwards.contains(&(from.clone(), to.clone()));
        assert!(is_there && is_needed, "remove {} → {} from the list", from.join("::"), to.join("::"));
        files.get_mut(&from).expect("it is there").remove(&to);
    }
    let mut circles = BTreeSet::new();
    for file in files.keys() {
        let reached = reached(&files, file);
        if reached.contains(file) {
            let back = |other: &&Vec<String>| self::reached(&files, other).contains(file);
            let circle: BTreeSet<String> = reached.iter().filter(back).map(|path| path.join("::")).collect();
            circles.insert(circle);
        }
    }
    assert!(circles.is_empty(), "files import each other: {circles:#?}");
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

/// A unit test there would never run: the crate's manifest says `test = false`.
#[test]
fn the_simulation_has_no_unit_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("pagelab-simulation");
    let mut folders = vec![root.join("src")];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(!text.contains("#[test]") && !text.contains("cfg(test)"), "{}: never runs", path.display());
            files += 1;
        }
    }
    assert!(files > 50, "{files} files were read");
}

/// Index of a module's room among all rooms; none for a crate's root, which declares the rooms.
fn rank(module: &[String]) -> Option<usize> {
    let rooms = CRATES.iter().flat_map(|(name, rooms)| {
        let own: &[&str] = if rooms.is_empty() { &[""] } else { rooms };
        own.iter().map(move |room| [&[(*name).to_owned()][..], &path_of(room)].concat())
    });
    let rooms = rooms.map(|room| room.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>()).enumerate();
    // A part of a room has the rank of its own.
    rooms.filter(|(_, room)| is_in(module, room)).max_by_key(|(_, room)| room.len()).map(|(rank, _)| rank)
}

fn is_in(module: &[String], room: &[String]) -> bool {
    module.len() >= room.len() && room.iter().zip(module).all(|(part, own)| part == "*" || part == own)
}

/// The imports that lead to a later room.
fn upwards(imports: &Imports) -> Vec<(Vec<String>, Vec<String>)> {
    let mut upwards = Vec::new();
    for (module, targets) in imports {
        let Some(own) = rank(module) else { continue };
        let above = targets.iter().filter(|target| rank(target).is_some_and(|rank| rank > own));
        upwards.extend(above.map(|target| (module.clone(), target.clone())));
    }
    upwards
}

#[test]
fn no_room_imports_one_above_it() {
    let known: BTreeSet<_> = KNOWN.iter().map(|&(from, to)| (path_of(from), path_of(to))).collect();
    let upwards = upwards(&imports(&names())).into_iter().filter(|import| !known.contains(import));
    let upwards: Vec<_> = upwards.map(|(from, to)| format!("{} → {}", from.join("::"), to.join("::"))).collect();
    assert!(upwards.is_empty(), "{} imports lead upwards: {upwards:#?}", upwards.len());
}

#[test]
fn every_file_lies_in_a_room() {
    let modules: Vec<Vec<String>> = names().into_keys().collect();
    for (name, rooms) in CRATES.iter().filter(|(_, rooms)| !rooms.is_empty()) {
        let without = modules.iter().filter(|module| module[0] == *name && module.len() > 1 && rank(module).is_none());
        let without: Vec<_> = without.map(|module| module.join("::")).collect();
        assert!(without.is_empty(), "pagelab-{name}: {without:?} is in no room");
        for room in *rooms {
            let path = [&[(*name).to_owned()][..], &path_of(room)].concat();
            assert!(modules.iter().any(|module| is_in(module, &path)), "pagelab-{name} has no room {room}");
        }
    }
}
