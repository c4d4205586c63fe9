//! A user's mistake is one error, with the key, the mistake and the allowed values.

use crate::common::ScriptWriter;
use pagelab_engine::base::error::EngineError;
use pagelab_engine::config::{Assembly, Config, PresetKind, assemble, explain, presets};
use pagelab_engine::machine::simulation::{PlacedSource, Simulation};
use pagelab_trace::EventKind;

/// The result of building and running a configuration.
pub fn outcome(machine: &str, system: &str, set: &[&str]) -> Result<(), EngineError> {
    let file = format!("{}/tests/systems/{system}.toml", env!("CARGO_MANIFEST_DIR"));
    let system = if std::path::Path::new(&file).exists() { &file } else { system };
    let mut all = vec!["machine.memory_bytes=256MiB".to_owned()];
    all.extend(set.iter().map(|s| (*s).to_owned()));
    let config = assemble(&Assembly { machine: Some(machine), system: Some(system), kernel: None, set: &all })?;
    let mut script = ScriptWriter::new();
    script.mmap(0, 0x7f00_0000_0000, 512 << 20);
    for page in 0..(512 << 8) {
        script.store(0, 0x7f00_0000_0000 + page * 4096);
        if set.iter().all(|s| !s.contains("memory_bytes=")) {
            break;
        }
    }
    script.event(0, EventKind::Exit { code: 0 });
    let placed = PlacedSource { source: script.finish(), cpus: vec![0], memory_limit: None };
    Simulation::new(&config, vec![placed], None)?.run(&mut |_| true)
}

pub const MACHINE: &str = "sandybridge-e5-2420";

/// The key and text of the error for overrides of `system`.
pub fn config_error(system: &str, set: &[&str]) -> (String, String) {
    match outcome(MACHINE, system, set) {
        Err(EngineError::Config { key, what }) => (key, what),
        other => panic!("{system} {set:?}: expected a configuration error, found {other:?}"),
    }
}

/// Each case: system, overrides, the error's key, and words in its text.
pub fn assert_refused(cases: &[(&str, &[&str], &str, &[&str])]) {
    for (system, set, key, words) in cases {
        let (found, what) = config_error(system, set);
        assert_eq!(found, *key, "{system} {set:?}: {what}");
        for word in *words {
            assert!(what.contains(word), "{system} {set:?}: `{what}` does not say `{word}`");
        }
        assert!(!what.contains('\n'), "{system} {set:?}: one line, not `{what}`");
    }
}

#[test]
fn valid_configurations_are_not_refused() {
    for system in ["radix", "nested-radix", "nested-3"] {
        outcome(MACHINE, system, &[]).unwrap();
    }
    const MADVISE: &str = "system.layers.0.large_pages=madvise";
    const KHUGEPAGED: &str =
        r#"kernel.threads.khugepaged={"scan_sleep_cycles":1000000,"pages_to_scan":4096,"max_ptes_none":511}"#;
    for with in ["system.layers.0.page_size=2M", r#"system.layers.0.folios=["32KiB"]"#, KHUGEPAGED] {
        outcome(MACHINE, "radix", &[MADVISE, with]).unwrap();
    }
}

#[test]
fn unknown_keys_and_values_of_the_wrong_type() {
    assert_refused(&[
        ("radix", &["machine.tlb.l1x=3"], "machine.tlb.l1x", &["no key `l1x`", "did you mean `l1d`?"]),
        ("radix", &["engine.sed=3"], "engine.sed", &["no key `sed`", "did you mean `seed`?"]),
        ("radix", &["=3"], "`=3`", &["the key before `=` is missing", "key=value"]),
        ("radix", &["motor.seed=3"], "motor.seed", &["no key `motor`", "machine", "system", "kernel", "engine"]),
        ("radix", &["machine.cores.size=3"], "machine.cores.size", &["machine.cores", "single value"]),
        ("radix", &["system.layers.guest.page_size=4K"], "system.layers.guest.page_size", &["guest", "native"]),
        ("radix", &["machine.tlb.l1d.7.ways=4"], "machine.tlb.l1d.7.ways", &["7", "0, 1, 2"]),
        ("radix", &["machine.cores=many"], "machine.cores", &["many", "a whole number"]),
        ("radix", &["machine.cores=-1"], "machine.cores", &["-1", "whole numbers, 0 to 4294967295"]),
        ("radix", &["machine.memory_bytes=much"], "machine.memory_bytes", &["much"]),
        ("radix", &["system.layers.0.page_size=8K"], "system.layers.native.page_size", &["8K", "4K", "2M", "1G"]),
        (
            "radix",
            &["system.layers.0.mmu_cache=big"],
            "system.layers.native.mmu_cache",
            &["big", "paging-structure", "none"],
        ),
        ("radix", &["engine.check=maybe"], "engine.check", &["maybe", "on", "off"]),
        ("radix", &["machine.cache.l1.policy=fifo"], "machine.cache.l1.policy", &["fifo", "lru", "srrip"]),
        ("radix", &["engine.seed"], "engine.seed", &["key=value"]),
    ]);
}

#[test]
fn impossible_prefetchers() {
    const L1: &str = "machine.prefetch.l1";
    const NEXT_PAGE: &str = "machine.prefetch.tlb.next_page";
    assert_refused(&[
        ("radix", &["machine.prefetch.l1.nextline=on"], "machine.prefetch.l1.nextline", &["did you mean `next_line`?"]),
        ("radix", &["machine.prefetch.l1.stream=maybe"], "machine.prefetch.l1.stream", &["allowed are on, off"]),
        (
            "radix",
            &["machine.prefetch.l2.ip_stride=on"],
            "machine.prefetch.l2.ip_stride",
            &["l2", "do not contain", "allowed is l1"],
        ),
        (
            "radix",
            &["machine.cache.l3=null", "machine.prefetch.l3.next_line=on"],
            "machine.prefetch.l3",
            &["no l3", "machine.cache.l3"],
        ),
        ("radix", &["machine.prefetch.l1.buffers=0"], "machine.prefetch.l1.buffers", &["0", "1 to 256"]),
        (
            "radix",
            &[&format!("{L1}.next_line={{\"degree\":33}}")],
            "machine.prefetch.l1.next_line.degree",
            &["1 to 32"],
        ),
        (
            "radix",
            &[&format!("{L1}.ip_stride={{\"entries\":10,\"ways\":4}}")],
            "machine.prefetch.l1.ip_stride.ways",
            &["10 entries", "4"],
        ),
        (
            "radix",
            &[&format!("{L1}.ip_stride={{\"distance\":0}}")],
            "machine.prefetch.l1.ip_stride.distance",
            &["1 to 64"],
        ),
        ("radix", &[&format!("{L1}.stream={{\"train\":1}}")], "machine.prefetch.l1.stream.train", &["2 to 255"]),
        (
            "radix",
            &[&format!("{L1}.next_line={{\"trigger\":\"never\"}}")],
            "machine.prefetch.l1.next_line.trigger",
            &["never", "miss", "tagged", "always"],
        ),
        (
            "radix",
            &[&format!("{NEXT_PAGE}={{\"entries\":65537}}")],
            "machine.prefetch.tlb.next_page.entries",
            &["0 to 65536"],
        ),
        (
            "radix",
            &["machine.prefetch.tlb.asp={\"rows\":6}"],
            "machine.prefetch.tlb.asp.ways",
            &["6 rows", "sets of 4", "divisors"],
        ),
        (
            "nested-radix-shadow",
            &[&format!("{NEXT_PAGE}=on")],
            NEXT_PAGE,
            &["`guest`", "shadow", "allowed there is off"],
        ),
    ]);
}

#[test]
fn impossible_memories() {
    const NODES: &str = "machine.memory.nodes";
    let half = |key: &str| format!("{NODES}=[{{\"size_bytes\":\"128MiB\",\"remote_latency_cycles\":160{key}}}]");
    let two = |more: &str| {
        let node = format!("{{\"size_bytes\":\"128MiB\",\"remote_latency_cycles\":160{more}}}");
        format!("{NODES}=[{node},{node}]")
    };
    assert_refused(&[
        ("radix", &["machine.memory.bytes_per_cycle=0"], "machine.memory.bytes_per_cycle", &["0", "1/64 to 4096"]),
        (
            "radix",
            &["machine.bulk.store_bytes_per_cycle.l3=0"],
            "machine.bulk.store_bytes_per_cycle.l3",
            &["0 is", "1/64 to 4096"],
        ),
        ("radix", &["machine.bulk.non_temporal_bytes=63"], "machine.bulk.non_temporal_bytes", &["63", "64 bytes"]),
        ("radix", &["machine.bulk.cost=free"], "machine.bulk.cost", &["latency", "bandwidth"]),
        ("radix", &["kernel.clearing_order=any"], "kernel.clearing_order", &["ascending", "towards-fault"]),
        ("radix", &["machine.memory.placement=any"], "machine.memory.placement", &["first-touch", "interleaved"]),
        ("radix", &[&half("")], NODES, &["128MiB in total", "machine.memory_bytes", "256MiB"]),
        ("radix", &[&two(""), "machine.cores=1"], NODES, &["2 nodes", "1 cores"]),
        (
            "radix",
            &[&two(",\"latency_cycles\":30")],
            "machine.memory.nodes.0.latency_cycles",
            &["30 must be more", "last cache"],
        ),
        ("radix", &[&two(",\"bytes_per_cycle\":1e9")], "machine.memory.nodes.0.bytes_per_cycle", &["1/64 to 4096"]),
        (
            "radix",
            &[&two(""), "system.layers.native.frame_allocator={\"kind\":\"buddy\"}"],
            "system.layers.native.frame_allocator",
            &["`linux`", "interleaved"],
        ),
        (
            "radix",
            &[
                &two(""),
                "system.layers.native.frame_allocator={\"kind\":\"linux\",\"nodes\":[{\"memory_bytes\":\"256MiB\"}]}",
            ],
            "system.layers.native.frame_allocator.nodes",
            &["machine.memory.nodes", "interleaved"],
        ),
    ]);
}

/// Each error contains the key in the user's notation and the allowed values, but no internal types.
#[test]
fn values_of_the_wrong_form_say_which_is_right() {
    const PLACEMENT: &str = "system.layers.native.placement";
    let setting = |part: &str, value: &str| format!("{PLACEMENT}{part}={value}");
    let tlb = |arrays: &str| format!("machine.tlb.l1d={arrays}");
    let thread = "kernel.threads.khugepaged";
    let cases: [(String, &str, &[&str]); 22] = [
        ("kernel.threads.kswapd=3".into(), "kernel.threads.kswapd", &["`3` is not possible; allowed are on, off"]),
        (format!("{thread}=maybe"), thread, &["`maybe` is not known; allowed are on, off"]),
        (
            format!(r#"{thread}={{"scan_sleep_cycle":1,"max_ptes_none":0}}"#),
            "kernel.threads.khugepaged.scan_sleep_cycle",
            &["did you mean `scan_sleep_cycles`?", "kernel.threads.khugepaged: the key `pages_to_scan` is missing"],
        ),
        (
            setting("", "bogus"),
            PLACEMENT,
            &["`bogus` is not possible", r#"write {"kind":"order0"}"#, "ptemagnet, eager"],
        ),
        (setting("", "eager"), PLACEMENT, &[r#"write {"kind":"eager"}"#]),
        (setting(".kind", "pte-magnet"), "system.layers.native.placement.kind", &["did you mean ptemagnet?", "order0"]),
        (setting("", r#"{"cycles":3}"#), PLACEMENT, &["the key `kind` is missing; allowed are order0, ptemagnet"]),
        (
            setting("", r#"{"kind":"ptemagnet","cylces":3}"#),
            "system.layers.native.placement.cylces",
            &["did you mean `cycles`?"],
        ),
        (
            setting("", r#"{"kind":"ptemagnet","cycles":"x"}"#),
            "system.layers.native.placement.cycles",
            &["`x` is not possible", "a whole number"],
        ),
        (
            setting("", r#"{"kind":"eager","largest_block":"much"}"#),
            "system.layers.native.placement.largest_block",
            &["'much' is not a size", "2GiB"],
        ),
        ("machine.tlb.l2={}".into(), "machine.tlb.l2", &[r#"write [{"pages":…,"entries":…,"ways":…}, …]"#]),
        (tlb(r#"[{"entries":64}]"#), "machine.tlb.l1d.0", &["the keys `pages` and `ways` are missing"]),
        (
            tlb(r#"[{"pages":["4X"],"entries":64,"ways":4}]"#),
            "machine.tlb.l1d.0.pages.0",
            &["`4X` is not known; allowed are 4K, 2M, 1G"],
        ),
        ("machine.tlb.l2_latency_cycles=1.5".into(), "machine.tlb.l2_latency_cycles", &["`1.5`", "whole numbers"]),
        ("machine.cach.l1.ways=4".into(), "machine.cach", &["did you mean `cache`?"]),
        ("machne.cores=4".into(), "machne.cores", &["no key `machne`; did you mean `machine`?"]),
        (
            "system.layers.nativ.page_size=4K".into(),
            "system.layers.nativ.page_size",
            &["in `system.layers`", "did you mean `native`?"],
        ),
        ("system.layers.0.page_siz=4K".into(), "system.layers.native.page_siz", &["did you mean `page_size`?"]),
        ("system.layers=3".into(), "system.layers", &["`3` is not possible", "a list belongs here"]),
        (
            r#"system.layers.native.age={"free":0.5,"sed":3}"#.into(),
            "system.layers.native.age.free",
            &["no key `free`", "age.sed", "did you mean `seed`?", "age: the keys `free_fraction`"],
        ),
        ("engine.seed={}".into(), "engine.seed", &["`{}` is not possible", "a whole number"]),
        ("kernel.name=3".into(), "kernel.name", &["`3` is not possible", "a text"]),
    ];
    for (set, key, words) in cases {
        assert_refused(&[("radix", &[&set], key, words)]);
        let (_, what) = config_error("radix", &[&set]);
        for jargon in ["u8", "u32", "u64", "map", "sequence", "enum", "field", "variant", "invalid type", "Config"] {
            assert!(!what.contains(jargon), "{set}: `{what}` speaks of `{jargon}`");
        }
    }
    let (_, what) = config_error("radix", &[r#"system.layers.0.page_table={"kind":"radix","levls":4}"#]);
    assert!(what.contains("did you mean `levels`?") && !what.contains("missing"), "it is there, misspelt: {what}");
}

/// Parts in which the key `model` selects a design: their errors are like those of any other part.
#[test]
fn keys_of_a_chosen_design() {
    const SWAP: &str = r#"kernel.swap={"size_bytes":"1GiB","read_cycles":1,"write_cycles":1,"queue_depth":1}"#;
    const STORAGE: &str = r#"kernel.storage={"read_cycles":1,"write_cycles":1,"queue_depth":1}"#;
    let near = &["no key `reed_cycles`", "did you mean `read_cycles`?"];
    let (of_storage, of_swap) = (&["no key `size`", "model, queue_depth, read_cycles, write_cycles"], &["size_bytes"]);
    assert_refused(&[
        ("radix", &[STORAGE, "kernel.storage.reed_cycles=3"], "kernel.storage.reed_cycles", near),
        ("radix", &[SWAP, "kernel.swap.reed_cycles=3"], "kernel.swap.reed_cycles", near),
        ("radix", &[STORAGE, "kernel.storage.size=3"], "kernel.storage.size", of_storage),
        ("radix", &[SWAP, "kernel.swap.width=3"], "kernel.swap.width", of_swap),
        (
            "radix",
            &[STORAGE, "kernel.storage.read_cycles=long"],
            "kernel.storage.read_cycles",
            &["long", "a whole number"],
        ),
        ("radix", &[SWAP, "kernel.swap.queue_depth=-1"], "kernel.swap.queue_depth", &["-1", "0 to 4294967295"]),
        ("radix", &[SWAP, "kernel.swap.size_bytes=much"], "kernel.swap.size_bytes", &["much"]),
        ("radix", &[SWAP, "kernel.swap.size_bytes=4000"], "kernel.swap.size_bytes", &["4000", "no page"]),
        (
            "radix",
            &["kernel.storage.read_cycles=3"],
            "kernel.storage",
            &["the keys `write_cycles` and `queue_depth` are missing"],
        ),
        ("radix", &["kernel.swap.read_cycles=3"], "kernel.swap", &["`write_cycles`, `queue_depth` and `size_bytes`"]),
        (
            "radix",
            &["kernel.storage=fast"],
            "kernel.storage",
            &["`fast` is neither a preset nor a TOML file", "the presets are z-ssd-sz985", "pagelab list drives"],
        ),
        (
            "radix",
            &["kernel.storage=7"],
            "kernel.storage",
            &[
                "`7` is not possible",
                r#"write {"read_cycles":…,"write_cycles":…,"queue_depth":…}"#,
                "fixed-latency",
                "drive",
            ],
        ),
        ("radix", &[STORAGE, "kernel.storage.queue_depth=0"], "kernel.storage.queue_depth", &["0", "1 to 65536"]),
        (
            "radix",
            &[STORAGE, "kernel.storage.model=tape"],
            "kernel.storage.model",
            &["`tape` is not known", "fixed-latency"],
        ),
        (
            "radix",
            &["kernel.swap.drive=z-ssd-sz985", "kernel.swap.size_bytes=1TiB"],
            "kernel.swap.size_bytes",
            &["1TiB", "more than the device's"],
        ),
        (
            "radix",
            &["kernel.storage=z-ssd-sz985", "kernel.storage.capacity_bytes=4095"],
            "kernel.storage.capacity_bytes",
            &["4095", "4096 and more"],
        ),
        (
            "radix",
            &["kernel.storage=z-ssd-sz985", "kernel.storage.errors_per_million=1000000"],
            "kernel.storage.errors_per_million",
            &["1000000", "0 to 999999"],
        ),
        ("radix", &[SWAP, "kernel.swap.model=3"], "kernel.swap.model", &["`3` is not possible", "fixed-latency"]),
    ]);
    let keys = &["no key `width`", "cycles_per_instruction, l1_hit_hidden, mispredict_penalty, model"];
    assert_refused(&[
        ("radix", &["machine.core.width=4"], "machine.core.width", keys),
        (
            "radix",
            &["machine.core.l1_hit_hidden=3"],
            "machine.core.l1_hit_hidden",
            &["`3` is not possible", "true and false"],
        ),
        ("radix", &["machine.core.model=in-odrer"], "machine.core.model", &["did you mean in-order?"]),
    ]);
    outcome(MACHINE, "radix", &["machine.core.model=in-order", "machine.core.l1_hit_hidden=false"]).unwrap();
    for named in ["kernel.swap.model=fixed-latency", "kernel.swap.read_cycles=7"] {
        outcome(MACHINE, "radix", &[SWAP, named]).unwrap();
    }
    outcome(MACHINE, "radix", &[STORAGE, "kernel.storage.model=fixed-latency"]).unwrap();
}

/// Devices proposed by errors are valid.
#[test]
fn devices_that_errors_propose_are_possible() {
    for set in ["kernel.page_cache=cold", "kernel.cgroup_limit_bytes=128MiB"] {
        let (_, what) = config_error("radix", &[set]);
        let proposed = what.split('`').nth(1).and_then(|command| command.strip_prefix("--set '")).unwrap();
        outcome(MACHINE, "radix", &[set, proposed.strip_suffix('\'').unwrap()]).unwrap();
    }
}

#[test]
fn unknown_presets_name_the_known_ones() {
    let (key, what) = config_error("cubist", &[]);
    assert_eq!(key, "system");
    // A list of all names would be too long.
    assert!(what.contains("cubist") && what.contains(" presets, such as radix, ") && what.len() < 200, "{what}");
    let (_, what) = config_error("radiks", &[]);
    assert!(what.contains("did you mean radix? `pagelab list systems`") && !what.contains("nested-radix"), "{what}");
    let error = outcome("pentium", "radix", &[]).unwrap_err().to_string();
    assert!(error.starts_with("machine: ") && error.contains("pentium") && error.contains(MACHINE), "{error}");
    let error = outcome("no/such.toml", "radix", &[]).unwrap_err().to_string();
    assert!(error.starts_with("machine: ") && error.contains("no/such.toml") && error.contains("read"), "{error}");
}

#[test]
fn impossible_machines() {
    assert_refused(&[
        ("radix", &["machine.cores=0"], "machine.cores", &["0", "1 to 64"]),
        ("radix", &["machine.cores=65"], "machine.cores", &["65", "1 to 64"]),
        ("radix", &["machine.threads_per_core=0"], "machine.threads_per_core", &["0", "1 to 8"]),
        ("radix", &["machine.core.cycles_per_instruction=0"], "machine.core.cycles_per_instruction", &["1/256"]),
        ("radix", &["machine.tlb.l1d.0.entries=10"], "machine.tlb.l1d.0", &["10", "4 ways", "multiple"]),
        ("radix", &["machine.tlb.l2.0.ways=0"], "machine.tlb.l2.0", &["0 ways", "at least 1"]),
        ("radix", &["machine.tlb.l1d=[]"], "machine.tlb", &["l1d"]),
        ("radix", &["machine.tlb.l1d.0.pages=[]"], "machine.tlb.l1d.0.pages", &["4K", "2M", "1G"]),
        ("radix", &[r#"machine.tlb.l1d.1.pages=["4K"]"#], "machine.tlb.l1d.1.pages", &["4K", "earlier array"]),
        (
            "radix",
            &[r#"machine.tlb.nested={"entries":10,"ways":4,"latency_cycles":1}"#],
            "machine.tlb.nested",
            &["10", "multiple"],
        ),
        (
            "nested-radix",
            &[r#"machine.tlb.guest={"entries":12,"ways":5,"latency_cycles":1}"#],
            "machine.tlb.guest",
            &["12", "multiple"],
        ),
        (
            "radix",
            &["machine.mmu_cache.paging_structure.arrays.0.level=1"],
            "machine.mmu_cache.paging_structure.arrays.0",
            &["level 1", "2 to 5"],
        ),
        (
            "radix-unified-translation-cache",
            &["machine.mmu_cache.unified.level2_insertion=24"],
            "machine.mmu_cache.unified.level2_insertion",
            &["24", "below", "ways"],
        ),
        (
            "radix-compact",
            &["system.layers.0.page_table.line_entries=11"],
            "system.layers.native.page_table.line_entries",
            &["11", "8, 9 and 10"],
        ),
        (
            "radix-compact",
            &["system.layers.0.mmu_cache=coalesced"],
            "system.layers.native.mmu_cache",
            &["not words of 8 bytes", "paging-structure"],
        ),
        (
            "radix-translation-path-cache",
            &["machine.mmu_cache.translation_path.entries=0"],
            "machine.mmu_cache.translation_path.entries",
            &["0 is not possible", "1 to"],
        ),
        (
            "radix-coalesced-mmu-cache",
            &["machine.mmu_cache.coalesced.group_entries=12"],
            "machine.mmu_cache.coalesced.group_entries",
            &["12", "powers of two from 8 to 64"],
        ),
        (
            "radix",
            &["system.layers.native.contiguous_tables=128"],
            "system.layers.native.contiguous_tables",
            &["128", "powers of two from 2 to 64"],
        ),
        (
            "hashed-open",
            &["system.layers.native.contiguous_tables=8"],
            "system.layers.native.contiguous_tables",
            &["no leaf tables", "radix"],
        ),
        (
            "nested-radix-shared-page-walk-cache",
            &["machine.mmu_cache.page_walk_cache.ways=7"],
            "machine.mmu_cache.page_walk_cache",
            &["24", "7 ways", "multiple"],
        ),
        (
            "radix",
            &[r#"system.layers.0.page_table={"kind":"linear"}"#],
            "system.layers.native.page_table.kind",
            &["guest", "hosts none"],
        ),
        (
            "nested-radix-linear-host",
            &["system.layers.host.page_size=2M"],
            "system.layers.host.page_size",
            &["2M", "linear", "4K"],
        ),
        (
            "radix",
            &["system.layers.0.host_mode=shadow"],
            "system.layers.native.host_mode",
            &["machine's own", "nested"],
        ),
        ("radix", &["system.layers.0.backing=present"], "system.layers.native.backing", &["no host", "on-demand"]),
        (
            "radix",
            &["system.layers.0.direct_segment_bytes=8GiB"],
            "system.layers.native.direct_segment_bytes",
            &["8GiB", "memory of 256MiB", "up to 251MiB"],
        ),
        (
            "nested-radix",
            &["system.layers.guest.memory_bytes=64MiB", "system.layers.guest.direct_segment_bytes=64MiB"],
            "system.layers.guest.direct_segment_bytes",
            &["64MiB do not fit", "memory of 64MiB"],
        ),
        (
            "radix-thp",
            &["system.layers.0.brk_alignment_bytes=3MiB"],
            "system.layers.native.brk_alignment_bytes",
            &["3MiB", "powers of two from 4 KiB", "1 GiB"],
        ),
        (
            "nested-radix",
            &["system.layers.host.brk_alignment_bytes=2MiB"],
            "system.layers.host.brk_alignment_bytes",
            &["hosts others", "`guest`"],
        ),
        (
            "radix",
            &["system.layers.0.direct_segment_bytes=5000"],
            "system.layers.native.direct_segment_bytes",
            &["5000B", "multiples of 4096"],
        ),
        (
            "nested-radix-shadow",
            &["system.layers.host.direct_segment_bytes=1GiB"],
            "system.layers.host.direct_segment_bytes",
            &["shadow", "`guest`", "nested"],
        ),
        (
            "nested-radix-shadow",
            &["system.layers.guest.direct_segment_bytes=1GiB"],
            "system.layers.guest.direct_segment_bytes",
            &["shadow", "`guest`", "nested"],
        ),
        (
            "radix",
            &[r#"system.layers.0.speculative_table={"table_bytes":"1MiB","flush_cycles":20}"#],
            "system.layers.native.speculative_table",
            &["machine's own", "remove it here"],
        ),
        (
            "nested-radix-shadow",
            &[r#"system.layers.host.speculative_table={"table_bytes":"1MiB","flush_cycles":20}"#],
            "system.layers.host.speculative_table",
            &["`guest`", "nested"],
        ),
        (
            "nested-radix",
            &["system.layers.guest.host_mode=inverted-shadow"],
            "system.layers.guest.host_mode",
            &["system.layers.host.inverted_shadow_bytes"],
        ),
        (
            "nested-radix",
            &["system.layers.host.inverted_shadow_bytes=64KiB"],
            "system.layers.host.inverted_shadow_bytes",
            &["no guest", "inverted-shadow"],
        ),
        (
            "nested-radix-inverted-shadow",
            &["system.layers.host.inverted_shadow_bytes=100MiB"],
            "system.layers.host.inverted_shadow_bytes",
            &["100MiB", "powers of two"],
        ),
        (
            "nested-radix-speculative",
            &["system.layers.host.speculative_table.table_bytes=100MiB"],
            "system.layers.host.speculative_table.table_bytes",
            &["100MiB", "powers of two"],
        ),
        ("radix", &["machine.cache.l1.size_bytes=1000"], "machine.cache.l1.size_bytes", &["1000B", "512B", "1KiB"]),
        ("radix", &["machine.cache.l2.ways=0"], "machine.cache.l2.ways", &["0", "1 to 64"]),
        (
            "radix",
            &[r#"machine.cache.l2.policy={"keep-tables":{"share":5}}"#],
            "machine.cache.l2.policy.keep-tables.share",
            &["share_percent"],
        ),
        ("radix", &["machine.cache.l2.policy=keep"], "machine.cache.l2.policy", &["srrip", r#"{"keep-tables":{}}"#]),
        ("radix", &["machine.cache.dram_latency_cycles=30"], "machine.cache.dram_latency_cycles", &["30", "l3"]),
        ("radix", &["machine.memory_bytes=5000"], "machine.memory_bytes", &["5000", "4096", "1 MiB"]),
    ]);
}

/// An explanation of a valid key would hide the real error.
#[test]
fn every_accepted_configuration_matches_the_schema() {
    let schema = serde_json::to_value(schemars::schema_for!(Config)).unwrap();
    for kind in [PresetKind::Machine, PresetKind::System, PresetKind::Kernel, PresetKind::Drive, PresetKind::Window] {
        for preset in presets(kind) {
            let name = Some(preset.name);
            let storage = [format!("kernel.storage={}", preset.name)];
            let core = [format!("machine.core={}", preset.name)];
            let mut assembly = Assembly::default();
            match kind {
                PresetKind::Window => assembly.set = &core,
                PresetKind::Drive => assembly.set = &storage,
                PresetKind::Machine => assembly.machine = name,
                PresetKind::System => assembly.system = name,
                PresetKind::Kernel => assembly.kernel = name,
            }
            let assembled = assemble(&assembly);
            // Some systems do not fit the default machine.
            let mut fitting = [PresetKind::Machine, PresetKind::Window].into_iter();
            assert!(assembled.is_ok() || !fitting.any(|fits| fits == kind), "{}: {:?}", preset.name, assembled.err());
            let Ok(config) = assembled else { continue };
            let tree = serde_json::to_value(config).unwrap();
            assert!(explain(&schema, &tree).is_none(), "{}: {}", preset.name, explain(&schema, &tree).unwrap());
        }
    }
}
