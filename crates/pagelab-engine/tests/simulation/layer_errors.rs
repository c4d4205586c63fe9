//! Invalid configurations of kernels and systems, and their errors.

use super::config_errors::{MACHINE, assert_refused, config_error, outcome};
use pagelab_engine::base::error::EngineError;

#[test]
fn impossible_kernels() {
    let swap = r#"kernel.swap={"size_bytes":"1GiB","read_cycles":1,"write_cycles":1,"queue_depth":0}"#;
    for (set, words) in [
        ("kernel.cgroup_limit_bytes=0", "kernel.cgroup_limit_bytes: 0 bytes are too few"),
        ("kernel.cgroup_limit_bytes=128MiB", "a limit needs a swap device"),
        (r#"kernel.swap={"size_bytes":"1GiB"}"#, "read_cycles"),
        (swap, "kernel.swap.queue_depth: 0 is out of range"),
        (
            r#"kernel.threads.khugepaged={"scan_sleep_cycles":0,"pages_to_scan":1,"max_ptes_none":0}"#,
            "kernel.threads.khugepaged.scan_sleep_cycles: 0 is not possible",
        ),
        (
            r#"kernel.threads.khugepaged={"scan_sleep_cycles":1,"pages_to_scan":0,"max_ptes_none":0}"#,
            "kernel.threads.khugepaged.pages_to_scan: 0 is out of range",
        ),
        (
            r#"kernel.threads.khugepaged={"scan_sleep_cycles":1,"pages_to_scan":1,"max_ptes_none":512}"#,
            "kernel.threads.khugepaged.max_ptes_none: 512 is out of range",
        ),
        ("kernel.fault_around_bytes=12KiB", "kernel.fault_around_bytes: 12288 is not possible"),
        ("kernel.pages_per_fault=0", "kernel.pages_per_fault: 0 is out of range"),
        ("system.layers.0.pages_per_fault=513", "system.layers.native.pages_per_fault: 513 is out of range"),
        (
            r#"kernel.translation_cache={"form":"full-prefix","level_cycles":101}"#,
            "kernel.translation_cache.level_cycles: a hit may skip 2 levels and the root (1 cycles), which would save 203 \
             of the 200 cycles that kernel.fault.walk.cycles gives the whole walk; allowed is up to 99 here, or a larger kernel.fault.walk.cycles",
        ),
        (
            r#"kernel.translation_cache={"form":"mmu-assisted","level_instructions":1000}"#,
            "kernel.translation_cache.level_instructions: a hit may skip 3 levels and the root (4 instructions), which would save 3004",
        ),
        (
            r#"system.layers.0.frame_allocator={"kind":"linux","nodes":[{"memory_bytes":"1GiB"}]}"#,
            "system.layers.native.frame_allocator",
        ),
        (
            r#"system.layers.0.age={"free_fraction":2.0,"huge_free_fraction":0.5,"unmovable_fraction":0.1,"seed":1}"#,
            "free_fraction",
        ),
    ] {
        let error = outcome(MACHINE, "radix", &[set]).expect_err(set).to_string();
        assert!(error.contains(words), "{set}: {error}");
    }
}

#[test]
fn impossible_systems() {
    assert_refused(&[
        ("radix", &["system.layers.0.page_table.levels=3"], "system.layers.native.page_table.levels", &["3", "4 or 5"]),
        ("radix", &["system.layers=[]"], "system.layers", &["0 layers", "1 to 8"]),
        ("nested-radix", &["system.layers.guest.memory_bytes=1GiB"], "system.layers.guest.memory_bytes", &["host"]),
        ("radix", &["system.layers.0.memory_bytes=1GiB"], "system.layers.native.memory_bytes", &["256MiB"]),
        ("nested-radix", &["system.layers.guest.host=cellar"], "system.layers.guest.host", &["cellar", "guest, host"]),
        ("nested-radix", &["system.layers.guest.name=host"], "system.layers", &["two layers", "host"]),
        ("nested-radix", &["system.layers.host.host=guest"], "system.layers", &["exactly one layer", "host"]),
        ("nested-3", &["system.layers.outer.host=inner"], "system.layers", &["circle"]),
        ("nested-radix-cold", &["system.layers.guest.host=null"], "system.layers", &["exactly one layer"]),
        (
            "radix",
            &["system.layers.0.large_pages=madvise"],
            "system.layers.native.large_pages",
            &["has no effect", "page_size = 2M", "radix-thp-madvise"],
        ),
    ]);
}

#[test]
fn impossible_hashed_tables() {
    const TABLE: &str = "system.layers.native.page_table";
    const ORDER: &str = r#"{"order":["4K","2M"]}"#;
    let set = |part: &str, value: &str| format!("{TABLE}.{part}={value}");
    for (system, set, key, words) in [
        ("hashed-compact", set("load_factor", "0"), "page_table.load_factor", &["0", "more than 0", "up to 1"][..]),
        ("hashed-open", set("load_factor", "1.5"), "page_table.load_factor", &["1.5", "up to 1"]),
        ("hashed-open", set("load_factor", "-0.5"), "page_table.load_factor", &["-0.5", "up to 1"]),
        ("hashed-compact", set("cluster", "12"), "page_table.cluster", &["12", "hashed-compact", "8, 16", "4096"]),
        ("hashed-clustered", set("cluster", "16"), "page_table.cluster", &["16", "2, 4, 8"]),
        ("hashed-open", set("cluster", "4"), "page_table.cluster", &["hashed-open allows 1"]),
        ("hashed-compact", set("exits_per_scan", "0"), "page_table.exits_per_scan", &["1 and more"]),
        ("hashed-compact", set("search_lines", "0"), "page_table.search_lines", &["0 is out of range", "1 to 65536"]),
        ("hashed-open", set("search_lines", "65537"), "page_table.search_lines", &["65537", "1 to 65536"]),
        ("hashed-power", set("search_lines", "64"), "page_table.search_lines", &["hashed-power", "two groups"]),
        ("hashed-compact", set("table_bytes", "0B"), "page_table.table_bytes", &["one slot", "64B"]),
        ("hashed-compact", set("table_bytes", "7GiB"), "page_table", &["7GiB", "half", "8GiB"]),
        ("hashed-compact", set("load_factor", "0.0001"), "page_table", &["half", "higher load_factor"]),
        (
            "hashed-compact",
            "system.layers.native.page_size=2M".to_owned(),
            "page_size",
            &["2M", "hashed-compact", "page_table.sizes.order", "allowed is 4K"],
        ),
        (
            "hashed-open-2m",
            "system.layers.native.page_size=1G".to_owned(),
            "page_size",
            &["1G", "hashed-open", "sizes.order", "allowed is 4K, 2M"],
        ),
        ("hashed-power", "system.layers.native.page_size=2M".to_owned(), "page_size", &["2M", "hashed-power", "4 KiB"]),
        ("hashed-open", set("full_groups", "evict"), "page_table.full_groups", &["hashed-open", "no groups"]),
        ("hashed-open", set("collisions", "kernel"), "page_table.collisions", &["hashed-open", "no chains"]),
        ("hashed-power", set("sizes", ORDER), "page_table.sizes.order", &["hashed-power", "other sizes than 4K"]),
        ("hashed-power", set("pinned", "{}"), "page_table.pinned", &["hashed-power", "real addresses", "remove"]),
        (
            "hashed-open",
            set("pinned.entry_bytes", "12KiB"),
            "page_table.pinned.entry_bytes",
            &["12KiB", "4KiB to 4GiB"],
        ),
        ("hashed-open", set("segments", "{}"), "page_table.segments", &["hashed-open", "no segments"]),
        (
            "hashed-power-segments",
            set("segments.bytes", "1GiB"),
            "page_table.segments.bytes",
            &["1GiB", "256MiB and 1TiB"],
        ),
        (
            "hashed-power-2m",
            set("segments.shared", "true"),
            "page_table.sizes.order",
            &["4 KiB", "4K alone", "segments.shared=false"],
        ),
        (
            "hashed-power-segments",
            set("segments.table_bytes", "12KiB"),
            "page_table.segments.table_bytes",
            &["12KiB", "4KiB to 4MiB"],
        ),
        (
            "hashed-power-segments",
            set("sizes", r#"{"order":["4K","2M","1G"]}"#),
            "page_table.sizes.order",
            &["256MiB", "cannot hold a page of 1GiB"],
        ),
        (
            "hashed-power-2m",
            format!(
                r#"{TABLE}={{"kind":"hashed-power","segments":{{"bytes":"1TiB"}},"sizes":{{"order":["4K","2M","1G"]}}}}"#
            ),
            "page_table.sizes.order",
            &["one base page size", "4K and 2M"],
        ),
        ("hashed-power-2m", set("sizes.probes", "serial"), "page_table.sizes.probes", &["one search", "remove"]),
        ("hashed-power-2m", set("sizes.shares", "[0.5,0.5]"), "page_table.sizes.shares", &["one table", "remove"]),
        (
            "hashed-power-segments",
            "system.layers.native.mmu_cache=unified".to_owned(),
            "mmu_cache",
            &["no upper levels", "segment-lookaside-buffer"],
        ),
        (
            "radix",
            "system.layers.native.mmu_cache=segment-lookaside-buffer".to_owned(),
            "mmu_cache",
            &["no table of segments"],
        ),
        ("hashed-open", set("sizes", r#"{"order":["4K","1G"]}"#), "page_table.sizes.order", &["4K, 1G", "2M and 1G"]),
        ("hashed-open", set("sizes", r#"{"order":["2M"]}"#), "page_table.sizes.order", &["exactly 2M", "4K alone"]),
        ("hashed-open", set("sizes", r#"{"order":[]}"#), "page_table.sizes.order", &["no size"]),
        ("hashed-open", set("sizes", r#"{"order":["4K","4K"]}"#), "page_table.sizes.order", &["4K, 4K"]),
        (
            "hashed-open",
            set("sizes", r#"{"order":["4K","2M"],"shares":[1]}"#),
            "page_table.sizes.shares",
            &["2 numbers above 0", "sum is 1"],
        ),
        (
            "hashed-open",
            set("sizes", r#"{"order":["4K","2M"],"shares":[0.5,0.25]}"#),
            "page_table.sizes.shares",
            &["0.5, 0.25", "sum is 1"],
        ),
        (
            "hashed-open",
            set("sizes", r#"{"order":["4K","2M"],"tables":"shared","shares":[0.5,0.5]}"#),
            "page_table.sizes.shares",
            &["no memory to divide", "remove the key"],
        ),
        (
            "hashed-chained",
            "system.layers.native.mmu_cache=paging-structure".to_owned(),
            "mmu_cache",
            &["hashed-chained", "no upper levels", "none"],
        ),
    ] {
        let all = ["machine.memory_bytes=8GiB", &set];
        let (found, what) = config_error(system, &all);
        assert_eq!(found, format!("system.layers.native.{key}"), "{set}");
        words.iter().for_each(|word| assert!(what.contains(word), "{set}: {what} lacks {word}"));
    }
    // A guest's super-slot takes 32 KiB.
    let (key, what) = config_error("nested-hashed-compact", &["system.layers.guest.page_table.table_bytes=16KiB"]);
    assert!(key.ends_with("guest.page_table.table_bytes") && what.contains("32KiB"), "{key}: {what}");
    let chained = r#"system.layers.host.page_table={"kind":"hashed-chained","collisions":"kernel"}"#;
    let (key, what) = config_error("nested-radix", &[chained, "system.layers.host.mmu_cache=none"]);
    assert_eq!(key, "system.layers.host.page_table.collisions");
    assert!(what.contains("for a host") && what.contains("walker"), "{what}");
}

#[test]
fn impossible_elastic_cuckoo_tables() {
    let table = |part: &str, value: &str| format!("system.layers.native.page_table.{part}={value}");
    for (set, key, words) in [
        (table("way_entries", "100"), "page_table.way_entries", &["100", "powers of two", "64"][..]),
        (table("way_entries", "32"), "page_table.way_entries", &["32", "64 to 65536"]),
        (table("max_load", "0.95"), "page_table.max_load", &["0.95", "0.7"]),
        (table("max_load", "0"), "page_table.max_load", &["more than 0"]),
        (table("min_load", "0.3"), "page_table.min_load", &["0.3", "0.200", "max_load"]),
        (table("rehashes_per_insert", "0"), "page_table.rehashes_per_insert", &["1 to 1024"]),
        (table("max_displacements", "0"), "page_table.max_displacements", &["1 to 1024"]),
        ("system.layers.native.page_size=2M".to_owned(), "page_size", &["2M", "4K", "sizes.order"]),
        (table("sizes", r#"{"order":["1G","4K"]}"#), "page_table.sizes.order", &["elastic-cuckoo", "1G, 4K"]),
        (
            table("sizes", r#"{"order":["2M","4K"],"shares":[0.5,0.5]}"#),
            "page_table.sizes.shares",
            &["elastic-cuckoo", "no memory to divide"],
        ),
        ("system.layers.native.mmu_cache=unified".to_owned(), "mmu_cache", &["no upper levels"]),
    ] {
        let (found, what) = config_error("elastic-cuckoo", &[&set]);
        assert_eq!(found, format!("system.layers.native.{key}"), "{set}");
        words.iter().for_each(|word| assert!(what.contains(word), "{set}: {what} lacks {word}"));
    }
}

#[test]
fn impossible_flattened_tables() {
    for (set, key, words) in [
        ("page_size=2M", "page_size", &["2M", "4K"][..]),
        ("mmu_cache=coalesced", "mmu_cache", &["level 2", "paging-structure"]),
    ] {
        let (found, what) = config_error("flattened", &[&format!("system.layers.native.{set}")]);
        assert_eq!(found, format!("system.layers.native.{key}"), "{set}");
        words.iter().for_each(|word| assert!(what.contains(word), "{set}: {what} lacks {word}"));
    }
    let (_, what) = config_error("flattened", &["system.layers.native.page_table.merge=l5l4"]);
    assert!(what.contains("l5l4") && what.contains("l4l3+l2l1"), "{what}");
}

#[test]
fn a_full_hashed_table_names_the_layer_and_what_to_set() {
    for (system, set, layer) in [
        ("hashed-compact", "system.layers.native.page_table.table_bytes=8KiB", "`native`"),
        ("hashed-open", "system.layers.native.page_table.table_bytes=32KiB", "`native`"),
        ("nested-hashed-compact", "system.layers.host.page_table.table_bytes=8KiB", "`host`"),
        ("hashed-power", "system.layers.native.page_table.table_bytes=16KiB", "`native`"),
    ] {
        let Err(EngineError::OutOfMemory { what }) = outcome(MACHINE, system, &["machine.memory_bytes=1GiB", set])
        else {
            panic!("{system} {set}: the table is large enough");
        };
        for word in [layer, "slots are in use", "page_table.table_bytes=SIZE"] {
            assert!(what.contains(word), "{system} {set}: {what}");
        }
        // A longer search reads no third group, and no hash is better than the default.
        assert_eq!(what.contains("search_lines=N"), system != "hashed-power", "{system} {set}: {what}");
        assert!(!what.contains("hash=mix64"), "{system} {set}: {what}");
    }
}

#[test]
fn running_out_of_memory_names_the_layer() {
    for (system, set, layer) in [
        ("radix", "machine.memory_bytes=4MiB", "`native`"),
        ("radix-2m", "machine.memory_bytes=8MiB", "`native`"),
        ("radix", "machine.memory_bytes=1MiB", "`native`"),
        ("nested-radix", "machine.memory_bytes=16MiB", "`guest`"),
        ("nested-radix", "system.layers.guest.memory_bytes=254MiB", "`host`"),
        ("nested-3", "system.layers.outer.memory_bytes=8MiB", "`inner`"),
    ] {
        match outcome(MACHINE, system, &[set]) {
            Err(EngineError::OutOfMemory { what }) => {
                assert!(what.contains(layer), "{system} {set}: {what}");
                assert!(what.contains("--set machine.memory_bytes=SIZE"), "{system} {set}: {what}");
            }
            other => panic!("{system} {set}: expected to run out of memory, found {other:?}"),
        }
    }
}

#[test]
fn impossible_fault_engines_are_refused() {
    let engine = |parameters: &str| format!(r#"system.layers.native.fault_engine={{"kind":"mfoe"{parameters}}}"#);
    let layer = |part: &str| format!("system.layers.native.{part}");
    for (system, set, key, words) in [
        ("radix", vec![engine(r#","entries":0"#)], "fault_engine.entries", &["0 is out of range", "1 to 65535"][..]),
        ("radix", vec![engine(r#","entries":65536"#)], "fault_engine.entries", &["1 to 65535"]),
        ("radix", vec![engine(r#","period_cycles":0"#)], "fault_engine.period_cycles", &["0 is out of range", "1 to"]),
        ("radix", vec![engine(r#","threads":0"#)], "fault_engine.threads", &["1 to 64"]),
        ("radix", vec![engine(r#","entries":8,"wake_below":9"#)], "fault_engine.wake_below", &["9", "0 to 8"]),
        ("radix", vec![engine(r#","entries":8,"least_entries":9"#)], "fault_engine.least_entries", &["9", "0 to 8"]),
        (
            "radix",
            vec!["system.layers.native.fault_engine_for=[]".to_owned()],
            "fault_engine_for",
            &["the layer has no fault_engine"],
        ),
        ("radix", vec![engine(r#","limit_percent":101"#)], "fault_engine.limit_percent", &["1 to 100"]),
        (
            "hashed-compact",
            vec![engine("")],
            "fault_engine",
            &["a slot of a hashed table is there for pages that are mapped only"],
        ),
        (
            "radix-2m",
            vec![engine("")],
            "fault_engine.huge_entries",
            &["1 and more with page_size = 2M", "page_size = 4K"],
        ),
        (
            "radix",
            vec![engine(r#","huge_entries":4"#)],
            "fault_engine.huge_entries",
            &["page_size = 2M", "allowed here is 0"],
        ),
        (
            "radix-1g",
            vec![engine(r#","huge_entries":4"#)],
            "fault_engine.huge_entries",
            &["a layer with page_size = 2M"],
        ),
        ("radix-thp", vec![engine(r#","huge_entries":65536"#)], "fault_engine.huge_entries", &["0 to 65535"]),
        ("radix-ptemagnet", vec![engine("")], "fault_engine", &["placement order0"]),
        ("mfoe", vec![layer("fault_engine=off")], "fault_engine", &["keys belong here", "; null for none"]),
        ("radix", vec![engine(""), layer(r#"folios=["32KiB"]"#)], "fault_engine", &["folios = []"]),
        ("direct-segment", vec![engine("")], "fault_engine", &["no direct_segment_bytes"]),
    ] {
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        let (found, what) = config_error(system, &set);
        assert_eq!(found, layer(key), "{set:?}");
        words.iter().for_each(|word| assert!(what.contains(word), "{set:?}: {what} lacks {word}"));
    }
    let (found, what) = config_error("nested-radix-shadow", &[r#"system.layers.guest.fault_engine={"kind":"mfoe"}"#]);
    assert_eq!(found, "system.layers.guest.fault_engine");
    assert!(what.contains("host_mode = nested"), "{what}");
}

#[test]
fn impossible_placements_are_refused() {
    let placement = |parameters: &str| format!("system.layers.native.placement={{{parameters}}}");
    let folios = r#"system.layers.native.folios=["32KiB"]"#.to_owned();
    for (set, key, words) in [
        (
            vec![placement(r#""kind":"ptemagnet","group_pages":3"#)],
            "placement.group_pages",
            &["3", "2, 4, 8, 16, 32 and 64"][..],
        ),
        (
            vec![placement(r#""kind":"ptemagnet","release_above_percent":101"#)],
            "placement.release_above_percent",
            &["101", "0 to 100"],
        ),
        (
            vec![placement(r#""kind":"eager","largest_block":"4KiB""#)],
            "placement.largest_block",
            &["4096", "8 KiB to 2 MiB"],
        ),
        (vec![placement(r#""kind":"eager","largest_block":"4MiB""#)], "placement.largest_block", &["8 KiB to 2 MiB"]),
        (vec![placement(r#""kind":"eager","stop_above_percent":101"#)], "placement.stop_above_percent", &["0 to 100"]),
        (
            vec![placement(r#""kind":"ca-paging","max_offsets":0"#)],
            "placement.max_offsets",
            &["0 is out of range", "1 to 1024"],
        ),
        (
            vec![placement(r#""kind":"ca-paging""#), "system.layers.native.page_size=1G".to_owned()],
            "page_size",
            &["1G", "4K and 2M"],
        ),
        (vec![placement(r#""kind":"eager""#), folios], "folios", &["order0"]),
    ] {
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        let (found, what) = config_error("radix", &set);
        assert_eq!(found, format!("system.layers.native.{key}"), "{set:?}");
        words.iter().for_each(|word| assert!(what.contains(word), "{set:?}: {what} lacks {word}"));
    }
    let (found, what) = config_error("nested-radix", &[r#"system.layers.host.placement={"kind":"eager"}"#]);
    assert_eq!(found, "system.layers.host.placement");
    assert!(what.contains("`guest`"), "{what}");
}

#[test]
fn impossible_lines_of_stages() {
    let again = "kernel.fault.lookup.lines.again";
    let space = "kernel.fault.walk.lines.space";
    assert_refused(&[
        ("radix", &["kernel.fault.lookup.lines.again=1"], again, &["is 1", "touch 0 lines of the CPU"]),
        ("radix", &["kernel.fault.walk.lines.space=5000"], space, &["5000", "0 to 1024"]),
        ("radix", &["kernel.fault.lookup.lines.space=1000", "kernel.fault.walk.lines.space=25"], space, &["0 to 24"]),
    ]);
    let fits = ["kernel.fault.entry.lines.cpu=1", "kernel.fault.lookup.lines.again=1"];
    outcome(MACHINE, "radix", &fits).unwrap();
}

#[test]
fn impossible_costs_of_kinds_of_faults() {
    let kinds = "kernel.fault_kinds";
    let before_walk = r#"kernel.fault_kinds.copy.walk={"instructions":1}"#;
    let again = r#"kernel.fault_kinds.copy.rmap={"instructions":1,"lines":{"again":7}}"#;
    let pages = "kernel.fault.lookup.page_instructions";
    assert_refused(&[
        ("radix", &["kernel.fault_kinds.swap={}"], &format!("{kinds}.swap"), &["there is no key `swap`"]),
        ("radix", &[before_walk], &format!("{kinds}.copy.walk"), &["there is no key `walk`"]),
        ("radix", &[again], &format!("{kinds}.copy.rmap.lines.again"), &["is 7", "touch 0 lines of the CPU"]),
        ("radix", &["kernel.fault.lookup.page_instructions=3"], pages, &["3 is", "after the walk", "0"]),
    ]);
}

#[test]
fn impossible_cycles_of_code() {
    let walk = "kernel.fault.walk.cycles=core";
    let cache = |more: &str| format!(r#"kernel.translation_cache={{"form":"full-prefix"{more}}}"#);
    let (core, stated) = (cache(r#","root_cycles":"core""#), cache(r#","level_cycles":0"#));
    assert_refused(&[
        (
            "radix",
            &["kernel.fault.walk.cycles=cpu"],
            "kernel.fault.walk.cycles",
            &["`cpu`", "`core`", "0 to 4294967295"],
        ),
        ("radix", &["kernel.fault.walk.cycles=-3"], "kernel.fault.walk.cycles", &["-3", "`core`"]),
        ("radix", &["kernel.fault.walk.hardware_cycles=core"], "kernel.fault.walk.hardware_cycles", &["whole number"]),
        (
            "radix",
            &[&core],
            "kernel.translation_cache.root_cycles",
            &["core is not possible", "states 200", "a number"],
        ),
        (
            "radix",
            &[walk, &stated],
            "kernel.translation_cache.level_cycles",
            &["0 is not possible", "no cycles", "core"],
        ),
    ]);
    outcome(MACHINE, "radix", &[walk, &cache("")]).unwrap();
    outcome(MACHINE, "radix", &[walk, &cache(r#","cycles":3,"root_cycles":"core""#)]).unwrap();
}
