//! Presets that extend others, and changes of designs: explicit settings are kept, keys that do not apply are dropped.

use pagelab_engine::base::error::EngineError;
use pagelab_engine::config::{Assembly, Config, assemble};
use std::path::Path;

fn with_set(set: &[&str]) -> Result<Config, EngineError> {
    let set: Vec<String> = set.iter().map(|text| (*text).to_owned()).collect();
    assemble(&Assembly { set: &set, ..Assembly::default() })
}

fn error(result: Result<Config, EngineError>) -> String {
    match result {
        Err(EngineError::Config { key, what }) => format!("{key}: {what}"),
        other => panic!("expected a configuration error, found {other:?}"),
    }
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn machine(name: &str) -> Result<Config, EngineError> {
    assemble(&Assembly { machine: Some(name), ..Assembly::default() })
}

#[test]
fn keys_of_the_former_design_fall_away() {
    for set in [
        &["machine.core.model=window"] as &[&str],
        &["machine.core.window=300", "machine.core.model=window"],
        &["machine.core.model=window", "machine.core.window=300"],
        &["machine.core.model=window", "machine.core.model=in-order", "machine.core.l1_hit_hidden=true"],
        &["system.layers.native.page_table.kind=hashed-open", "system.layers.native.mmu_cache=none"],
        &["system.layers.native.page_table.kind=flattened", "system.layers.native.page_table.merge=l4l3+l2l1"],
        &["system.layers.0.page_table.kind=elastic-cuckoo", "system.layers.0.mmu_cache=none"],
        &[
            "kernel.storage=z-ssd-sz985",
            "kernel.storage.model=fixed-latency",
            "kernel.storage.read_cycles=1",
            "kernel.storage.write_cycles=1",
        ],
        &["kernel.storage=z-ssd-sz985", "kernel.storage.drive=disk"],
        &["kernel.storage={\"read_cycles\":1,\"write_cycles\":1,\"queue_depth\":2}", "kernel.storage=disk"],
    ] {
        with_set(set).unwrap_or_else(|e| panic!("{set:?}: {e}"));
    }
    let config = with_set(&["machine.core.model=window"]).unwrap();
    let core = serde_json::to_value(&config.machine.core).unwrap();
    // Keys of both designs are kept, as are keys that the user did not set.
    assert_eq!(core["cycles_per_instruction"], 0.5);
    assert_eq!(core["window"], 224);
}

#[test]
fn every_design_can_be_chosen_in_place_of_every_other() {
    let systems =
        ["mfoe", "hwdp", "radix-ptemagnet", "radix-ca-paging", "radix-eager", "elastic-cuckoo", "hashed-power"];
    for system in systems {
        for set in [
            "placement.kind=order0",
            "placement.kind=eager",
            "fault_engine.kind=smu",
            "fault_engine.kind=mfoe",
            "page_table.kind=hashed-chained",
            "page_table.kind=linear",
        ] {
            let set = [format!("system.layers.0.{set}")];
            let assembled = assemble(&Assembly { system: Some(system), set: &set, ..Assembly::default() });
            // Some need keys without defaults, or cannot be combined; none is rejected for a key of another design.
            if let Err(error) = assembled {
                assert!(!error.to_string().contains("there is no key"), "{system} {set:?}: {error}");
            }
        }
    }
}

#[test]
fn a_key_that_the_user_wrote_is_refused_and_not_dropped() {
    let told = error(with_set(&["machine.core.l1_hit_hidden=false", "machine.core.model=window"]));
    assert!(told.starts_with("machine.core.l1_hit_hidden: there is no key"), "{told}");
    let told = error(with_set(&["machine.core.model=window", "machine.core.l1_hit_hidden=false"]));
    assert!(told.starts_with("machine.core.l1_hit_hidden: there is no key"), "{told}");
    let table = r#"machine.core={"cycles_per_instruction":1,"l1_hit_hidden":true}"#;
    let told = error(with_set(&[table, "machine.core.model=window"]));
    assert!(told.starts_with("machine.core.l1_hit_hidden: there is no key"), "{told}");
    let told = error(with_set(&["machine.core.model=windw"]));
    assert!(told.contains("did you mean window?"), "{told}");
}

#[test]
fn a_machine_extends_another() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"
        base = "kabylake-7700hq"
        frequency_mhz = 3600
        cache.l3.size_bytes = "8MiB"
        cache.l3.ways = 16
        [origin]
        frequency_mhz = "measured"
    "#;
    let file = write(folder.path(), "mine.toml", text);
    let (base, mine) = (machine("kabylake-7700hq").unwrap().machine, machine(&file).unwrap().machine);
    assert_eq!((mine.name.as_str(), mine.frequency_mhz, mine.cores), ("mine", 3600, base.cores));
    assert_eq!(mine.description, "as kabylake-7700hq, with changes");
    let l3 = serde_json::to_value(&mine.cache).unwrap()["l3"].clone();
    assert_eq!((&l3["ways"], &l3["latency_cycles"]), (&16.into(), &42.into()));
    assert_eq!(mine.origin["frequency_mhz"], "measured");
    assert_eq!(mine.origin["cores"], base.origin["cores"]);
    assert_eq!(mine.origin["cache.l3"], base.origin["cache.l3"]);
    assert_eq!(mine.origin["cache.l3.ways"], "mine, which gives no origin");
    // A file extends another in its own folder, whatever the current folder; also without `.toml`.
    let file = write(folder.path(), "its.toml", "base = \"mine\"\ncore = \"skylake\"\nname = \"its\"");
    let its = machine(&file).unwrap().machine;
    assert_eq!((its.name.as_str(), its.frequency_mhz), ("its", 3600));
    assert!(serde_json::to_string(&its.core).unwrap().contains("\"window\""));
    let file =
        write(folder.path(), "third.toml", "base = \"its\"\ncore.model = \"in-order\"\ncore.l1_hit_hidden = true");
    assert!(machine(&file).unwrap().machine.origin.keys().all(|key| key != "core.window"));
}

#[test]
fn a_system_says_what_it_needs_of_the_machine() {
    let folder = tempfile::tempdir().unwrap();
    let keys = r#"["cores=3", "tlb.speculation={\"model\":\"spec-tlb\",\"region_pages\":64}"]"#;
    let file = write(folder.path(), "mine.toml", &format!("base = \"radix\"\nmachine = {keys}"));
    let assembled = |set: &[&str]| {
        let set: Vec<String> = set.iter().map(|text| (*text).to_owned()).collect();
        assemble(&Assembly { machine: Some("epyc-9654"), system: Some(&file), set: &set, ..Assembly::default() })
    };
    let speculation = |config: &Config| serde_json::to_value(&config.machine.tlb.speculation).unwrap();
    let config = assembled(&[]).unwrap();
    assert_eq!((config.machine.name.as_str(), config.machine.cores), ("epyc-9654", 3));
    assert_eq!(speculation(&config)["region_pages"], 64);
    // The command's overrides come later, and another design has no keys of this one.
    let config = assembled(&["machine.cores=2", "machine.tlb.speculation.model=spot"]).unwrap();
    assert_eq!((config.machine.cores, speculation(&config)["model"].as_str()), (2, Some("spot")));
    for (wrong, said) in [
        ("machine = \"tlb.stages.victim=on\"", "system.machine: a system's machine is a list"),
        ("machine = [3]", "system.machine: a system's machine is a list"),
        ("machine = [\"tlb.stage.victim=on\"]", "machine.tlb.stage"),
        ("machine = [\"cores\"]", "write overrides as key=value"),
        // A key that the list sets itself is not dropped with the design that it is of.
        (
            "machine = [\"core.l1_hit_hidden=false\", \"core.model=window\"]",
            "machine.core.l1_hit_hidden: there is no key",
        ),
    ] {
        let file = write(folder.path(), "wrong.toml", &format!("base = \"radix\"\n{wrong}"));
        let told = error(assemble(&Assembly { system: Some(&file), ..Assembly::default() }));
        assert!(told.contains(said), "{wrong}: {told}");
    }
}

#[test]
fn systems_kernels_and_drives_extend_others() {
    let folder = tempfile::tempdir().unwrap();
    let text = "base = \"nested-radix\"\n[[layers]]\nname = \"host\"\npage_size = \"2M\"\n[kernel]\nswappiness = 10";
    let file = write(folder.path(), "huge-host.toml", text);
    let config = assemble(&Assembly { system: Some(&file), ..Assembly::default() }).unwrap();
    let layers = serde_json::to_value(&config.system.layers).unwrap();
    assert_eq!((&layers[0]["name"], &layers[0]["page_size"]), (&"guest".into(), &"4K".into()));
    assert_eq!((&layers[1]["name"], &layers[1]["page_size"]), (&"host".into(), &"2M".into()));
    assert_eq!(layers.as_array().unwrap().len(), 2);
    assert_eq!(serde_json::to_value(&config.kernel).unwrap()["swappiness"], 10);

    let text = "base = \"linux-6.12\"\nfault.entry.cycles = 700";
    let kernel = write(folder.path(), "slow-entry.toml", text);
    let drive = write(folder.path(), "slow.toml", "base = \"disk\"\n[device]\nqueue_depth = 7");
    let set = [format!("kernel.storage={drive}")];
    let config = assemble(&Assembly { kernel: Some(&kernel), set: &set, ..Assembly::default() }).unwrap();
    let kernel = serde_json::to_value(&config.kernel).unwrap();
    assert_eq!(kernel["fault"]["entry"]["cycles"], 700);
    assert_eq!(kernel["fault"]["entry"]["instructions"], 180);
    assert_eq!(kernel["storage"]["queue_depth"], 7);
    assert_eq!(kernel["storage"]["model"], "drive");
}

#[test]
fn a_base_that_is_unknown_or_goes_round_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "mine.toml", "base = \"kabylake-7700h\"");
    let told = error(machine(&file));
    assert!(
        told.contains("mine.toml` extends `kabylake-7700h`, which") && told.contains("did you mean kabylake-7700hq?"),
        "{told}"
    );
    let file = write(folder.path(), "mine.toml", "base = 3");
    assert!(error(machine(&file)).contains("write a preset's name"));
    let file = write(folder.path(), "mine.toml", "base = \"other\"");
    write(folder.path(), "other.toml", "base = \"mine.toml\"");
    let told = error(machine(&file));
    assert!(told.contains("mine.toml` extends itself: ") && told.contains("other.toml -> "), "{told}");
    let file = write(folder.path(), "mine.toml", "base = \"gem5-timing\"\ncache.l9.ways = 3");
    assert!(error(machine(&file)).starts_with("machine.cache.l9: there is no key"));
}
