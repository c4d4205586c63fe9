//! The fast path is equivalent to the general code: every statistic of every system and machine is equal.

use std::collections::BTreeMap;

use pagelab_engine::base::rng::Rng;
use pagelab_engine::config::{PresetKind, presets};
use pagelab_engine::run::{Request, run};
use pagelab_engine::translate::tlb_organisation::TlbOrganisationConfig;
use pagelab_engine::translate::translation_unit::{TlbPrefetchConfig, TlbStagesConfig};
use pagelab_trace::{case_seed, cases};
use serde_json::to_string;

/// Random accesses, random ones with stores to loaded data, sequential pages, and two threads on one core or two.
const WORKLOADS: &[&str] = &[
    "random:size=8MiB,accesses=15K",
    "gups:size=8MiB,updates=8K",
    "seq:size=4MiB,accesses=30K",
    "gups:size=8MiB,updates=8K,threads=2@0-1",
    "gups:size=8MiB,updates=8K,threads=2@0,2",
];

type Values = BTreeMap<String, u64>;

fn values(source: &str, system: &str, machine: &str, set: &[String]) -> Result<Values, String> {
    values_beside(source, &[], system, machine, set)
}

/// The statistics of a run with co-runners.
fn values_beside(source: &str, with: &[&str], system: &str, machine: &str, set: &[String]) -> Result<Values, String> {
    let request = Request {
        sources: vec![source.to_owned()],
        with: with.iter().map(|&with| with.to_owned()).collect(),
        systems: vec![system.to_owned()],
        machine: Some(machine.to_owned()),
        set: set.to_vec(),
        threads: Some(1),
        ..Request::default()
    };
    let mut results = run(&request, &|_| true).map_err(|e| e.to_string())?;
    Ok(results.results.remove(0).stats.into_iter().map(|(name, value)| (name.to_string(), value)).collect())
}

/// Runs with both codes, and compares each translation with the kernel's records. False if the machine is invalid.
fn assert_same(source: &str, system: &str, machine: &str, set: &[String]) -> bool {
    let with = |keys: &[&str]| {
        let keys: Vec<_> = keys.iter().map(|&key| key.to_owned()).collect();
        values(source, system, machine, &[set, &keys].concat())
    };
    let general = with(&["engine.fast_path=off"]);
    for fast in [with(&[]), with(&["engine.check=on"])] {
        let (Ok(fast), Ok(general)) = (&fast, &general) else {
            assert_eq!(fast, general, "{source} {system} {machine} {set:?}");
            return false;
        };
        let differ: Vec<_> = general.iter().filter(|(name, value)| fast.get(*name) != Some(value)).collect();
        assert!(differ.is_empty(), "{source} {system} {machine} {set:?}: {differ:?}");
        assert_eq!(fast.len(), general.len());
    }
    assert!(general.unwrap()["walk.count"] > 0);
    true
}

#[test]
fn every_system_has_the_same_results() {
    for system in presets(PresetKind::System) {
        assert!(assert_same(WORKLOADS[0], system.name, "kabylake-7700hq", &[]), "{}", system.name);
    }
}

/// Machines for whose shape the loop is compiled. All others share the code for any machine.
const SHAPED: &[&str] = &["kabylake-7700hq", "xeon-e-2136", "broadwell-e5-2640v3", "sandybridge-e5-2420"];

/// Machines that share their code run one workload per system each, and all workloads together.
#[test]
fn every_machine_has_the_same_results() {
    let bare = ["radix", "radix-5level", "radix-no-mmu-cache", "radix-thp"];
    let systems = bare.iter().chain(&["nested-radix", "nested-radix-2m", "nested-hashed-compact"]);
    let workloads = &WORKLOADS[1..];
    for (turn, machine) in presets(PresetKind::Machine).enumerate() {
        for (offset, system) in systems.clone().enumerate() {
            let one = (turn + offset) % workloads.len();
            let own = if SHAPED.contains(&machine.name) { workloads } else { &workloads[one..=one] };
            for source in own {
                assert!(assert_same(source, system, machine.name, &[]), "{system} {}", machine.name);
            }
        }
    }
}

#[test]
fn pages_that_reclaim_has_taken_and_aged_are_walked_to_alike() {
    let swap = r#"kernel.swap={"size_bytes":"512MiB","read_cycles":250000,"write_cycles":60000,"queue_depth":4}"#;
    let set = [swap, "kernel.cgroup_limit_bytes=6MiB"].map(str::to_owned);
    for system in ["radix", "radix-5level", "nested-radix", "hashed-open", "nested-hashed-compact"] {
        let source = "random:size=8MiB,accesses=20K,write=0.3";
        assert!(assert_same(source, system, "kabylake-7700hq", &set), "{system}");
        let marked = values(source, system, "kabylake-7700hq", &set).unwrap()["walk.accessed_dirty_updates"];
        assert!(marked > 100, "{system}: accessed and dirty bits are set by {marked} walks");
    }
}

/// Cores that process each access, with threads on one core or several.
#[test]
fn cores_that_overlap_have_the_same_results() {
    let skylake = r#"machine.core={"model":"window","cycles_per_instruction":0.25}"#;
    let small =
        r#"machine.core={"model":"window","cycles_per_instruction":0.25,"window":20,"load_queue":4,"fill_buffers":2}"#;
    for core in [skylake, small] {
        for system in ["radix", "radix-5level", "hashed-open", "nested-radix", "nested-elastic-cuckoo"] {
            for source in
                WORKLOADS.iter().chain(&["chase:size=8MiB,accesses=15K", "seq:size=1MiB,accesses=30K,step=24"])
            {
                assert!(assert_same(source, system, "kabylake-7700hq", &[core.to_owned()]), "{system}");
            }
        }
    }
}

const WINDOW: &str = r#"machine.core={"model":"window","cycles_per_instruction":0.25}"#;

/// Runs each system on a machine with these keys: cores of both kinds, and one workload or all that are given.
fn assert_same_on(sets: &[&[&str]], systems: &[&str], workloads: &[&str]) {
    for (turn, set) in sets.iter().enumerate() {
        for (offset, system) in systems.iter().enumerate() {
            let source = workloads[(turn + offset) % workloads.len()];
            for core in [&[][..], &[WINDOW]] {
                let set: Vec<_> = [*set, core].concat().into_iter().map(str::to_owned).collect();
                assert!(assert_same(source, system, "kabylake-7700hq", &set), "{system} {set:?}");
            }
        }
    }
}

const SYSTEMS: [&str; 6] =
    ["radix", "radix-2m", "hashed-open", "nested-radix", "nested-elastic-cuckoo", "nested-hashed-compact"];

/// Prefetchers, bandwidth and nodes, for caches of known ways and of others.
#[test]
fn machines_with_times_have_the_same_results() {
    let nodes = r#"machine.memory.nodes=[{"size_bytes":"16MiB","remote_latency_cycles":400},
        {"size_bytes":"4080MiB","latency_cycles":250,"remote_latency_cycles":500,"bytes_per_cycle":2}]"#;
    let sets: &[&[&str]] = &[
        &["machine.prefetch.l1.ip_stride=on", "machine.prefetch.l2.stream=on", "machine.prefetch.l3.next_line=on"],
        &["machine.memory.bytes_per_cycle=0.5"],
        &["machine.memory_bytes=4GiB", nodes],
        &["machine.prefetch.l1.next_line=on", "machine.memory.bytes_per_cycle=1", "machine.cache.l2.ways=16"],
        &["machine.prefetch.l2.stream=on", "machine.tlb.l2.0.ways=6", "machine.cache.walker_entry=l2"],
    ];
    assert_same_on(sets, &SYSTEMS, &[WORKLOADS, &["chase:size=8MiB,accesses=15K"]].concat());
}

#[test]
fn machines_with_units_after_the_tlbs_have_the_same_results() {
    let samples = TlbStagesConfig::samples();
    let mut sets: Vec<_> =
        samples.iter().map(|sample| format!("machine.tlb.stages={}", to_string(sample).unwrap())).collect();
    let all = r#"{"large":{"entries":64,"ways":4,"latency_cycles":2},"victim":{"entries":8},"pom":"on"}"#;
    sets.push(format!("machine.tlb.stages={all}"));
    let sets: Vec<_> = sets.iter().map(|set| [set.as_str()]).collect();
    let sets: Vec<_> = sets.iter().map(|set| &set[..]).collect();
    assert_same_on(&sets, &SYSTEMS, WORKLOADS);
}

#[test]
fn walks_that_bypass_the_caches_have_the_same_results() {
    assert_same_on(
        &[&["engine.kernel_refs=off"], &["engine.kernel_refs=off", "machine.tlb.l2.0.ways=6"]],
        &SYSTEMS,
        WORKLOADS,
    );
}

/// Pages that lie so far apart that walks of the guest read other upper tables, too, with TLBs that hold few of them.
#[test]
fn walks_of_a_guest_through_other_upper_tables_have_the_same_results() {
    let set = [
        r#"machine.tlb.l1d=[{"pages":["4K","2M","1G"],"entries":4,"ways":4}]"#,
        r#"machine.tlb.l2=[{"pages":["4K","2M"],"entries":4,"ways":4}]"#,
    ];
    let set = set.map(str::to_owned);
    for system in ["nested-radix", "nested-radix-2m", "nested-radix-thp", "nested-radix-no-mmu-cache"] {
        for source in ["stride:size=16GiB,stride=256MiB,accesses=2K", "stride:size=8GiB,stride=520MiB,accesses=2K"] {
            assert!(assert_same(source, system, "kabylake-7700hq", &set), "{system}");
        }
    }
}

/// A guest of a guest, which no preset has.
const THREE_LAYERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/systems/nested-3.toml");

/// What the layers of a guest of a guest may have beside their tables.
const BESIDE_THREE_LAYERS: [&[&str]; 4] = [
    &[],
    &[r#"machine.tlb.nested={"entries":16,"ways":4,"latency_cycles":3}"#, "system.layers.inner.page_size=2M"],
    &[
        r#"machine.tlb.guest={"entries":16,"ways":4,"latency_cycles":1}"#,
        "system.layers.inner.mmu_cache=paging-structure",
        "system.layers.outer.mmu_cache=page-walk-cache",
        "system.layers.machine.page_size=2M",
    ],
    &["system.layers.outer.mmu_cache=paging-structure", "machine.tlb.l2.0.ways=6", "machine.cache.walker_entry=l2"],
];

/// A guest whose host is three layers itself.
const FOUR_LAYERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/systems/nested-4.toml");

#[test]
fn guests_of_guests_have_the_same_results() {
    for source in WORKLOADS {
        assert_same_on(&BESIDE_THREE_LAYERS, &[THREE_LAYERS], &[source]);
    }
}

/// Entries of several pages, with units after the TLBs and without: the fast path leaves these to the general code,
/// which alone is checked.
#[test]
fn organised_tlbs_have_the_same_results() {
    let stages = r#"machine.tlb.stages={"large":{"entries":64,"ways":4,"latency_cycles":2},"victim":{"entries":8}}"#;
    for organised in organised_tlbs() {
        let sets: [&[&str]; 2] = [&[&organised], &[&organised, stages]];
        assert_same_on(&sets, &["radix-mthp32k", "nested-radix"], &WORKLOADS[1..]);
        let (source, more) = ("random:size=16MiB,accesses=40K", [&[][..], &[stages]]);
        for more in more {
            assert_eq!(taken(source, "radix", &[&[organised.as_str()], more].concat()), 0.0, "{organised} {more:?}");
        }
    }
}

/// A second level of each organisation but `pages`.
fn organised_tlbs() -> Vec<String> {
    let samples = TlbOrganisationConfig::samples().into_iter().filter(|sample| !sample.is_of_pages());
    let level = |sample: TlbOrganisationConfig| {
        // Runs are sought in all entries.
        let ways = if sample.name() == "ranges" { 64 } else { 4 };
        let organisation = to_string(&sample).expect("parameters serialise");
        format!(r#"machine.tlb.l2=[{{"pages":["4K","2M"],"entries":64,"ways":{ways},"organisation":{organisation}}}]"#)
    };
    samples.map(level).collect()
}

/// A co-runner that restarts makes others runnable before a turn.
#[test]
fn co_runners_have_the_same_results() {
    let quantum = "kernel.quantum_cycles=3000".to_owned();
    let beside = [
        ("gups:size=1MiB,updates=3K@0", "gups:size=1MiB,updates=200K@0"),
        ("gups:size=8MiB,updates=20K@0", "seq:size=64KiB,passes=1@0"),
        ("gups:size=1MiB,updates=3K@0", "gups:size=1MiB,updates=2K,threads=3@0-2"),
    ];
    for (source, with) in beside {
        let run = |fast: &str| {
            let set = [quantum.clone(), format!("engine.fast_path={fast}")];
            values_beside(source, &[with], "radix", "kabylake-7700hq", &set).unwrap()
        };
        assert_eq!(run("on"), run("off"), "{source} with {with}");
    }
}

/// Entries of different sizes for one page: a kernel's reference hits the same one with and without the check.
#[test]
fn checking_changes_no_result() {
    let set = [
        r#"machine.tlb.l1d=[{"pages":["4K","1G"],"entries":8,"ways":4}]"#,
        r#"machine.tlb.l2=[{"pages":["2M"],"entries":16,"ways":4}]"#,
    ];
    assert!(assert_same("gups:size=8MiB,updates=8K", "nested-radix", "kabylake-7700hq", &set.map(str::to_owned)));
}

/// On cores that overlap, a turn may end among accesses that the fast path makes together.
#[test]
fn checking_ends_no_turn_earlier() {
    let window = r#"machine.core={"model":"window","cycles_per_instruction":0.25}"#.to_owned();
    for source in &WORKLOADS[3..] {
        assert!(assert_same(source, "radix-2m", "kabylake-7700hq", std::slice::from_ref(&window)), "{source}");
    }
}

/// Slices by hash, on machines with shapes for which the fast path is specialised.
#[test]
fn slices_count_the_same_on_the_fast_path() {
    for (machine, slices) in [("kabylake-7700hq", 4), ("xeon-e-2136", 6), ("broadwell-e5-2640v3", 8)] {
        for system in ["radix", "nested-radix", "hashed-open", "nested-hashed-compact"] {
            let set = [format!("machine.cache.l3.slices={slices}"), "machine.memory_bytes=4GiB".to_owned()];
            assert!(assert_same("gups:size=32MiB,updates=20K", system, machine, &set));
        }
    }
}

/// A number of entries and of ways, and a policy.
fn array(rng: &mut Rng, ways: &[u64], policies: &[&str]) -> String {
    let ways = ways[rng.below(ways.len() as u64) as usize];
    let entries = ways * (1 + rng.below(40));
    let policy = policies[rng.below(policies.len() as u64) as usize];
    format!(r#""entries":{entries},"ways":{ways},"policy":"{policy}""#)
}

fn random_machine(rng: &mut Rng) -> Vec<String> {
    let policies: &[&str] = if rng.below(3) == 0 { &["lru", "tree-plru", "random"] } else { &["lru"] };
    let mut set = vec![
        format!(r#"machine.tlb.l1d=[{{"pages":["4K","2M","1G"],{}}}]"#, array(rng, &[1, 2, 4, 6, 8], policies)),
        format!(r#"machine.tlb.l2=[{{"pages":["4K","2M"],{}}}]"#, array(rng, &[1, 4, 6, 8, 12, 16], policies)),
    ];
    let levels: Vec<_> = (2..=5).filter(|_| rng.below(4) > 0).collect();
    let arrays: Vec<_> =
        levels.iter().map(|level| format!(r#"{{"level":{level},{}}}"#, array(rng, &[1, 2, 4], policies))).collect();
    set.push(format!(r#"machine.mmu_cache.paging_structure={{"latency_cycles":2,"arrays":[{}]}}"#, arrays.join(",")));
    if rng.below(2) == 0 {
        set.push(format!(r#"machine.tlb.nested={{"latency_cycles":3,{}}}"#, array(rng, &[1, 4], policies)));
    }
    if rng.below(2) == 0 {
        set.push(format!(r#"machine.tlb.guest={{"latency_cycles":3,{}}}"#, array(rng, &[1, 4], policies)));
    }
    if rng.below(3) == 0 {
        set.push("machine.mmu_cache.of_hosts=false".to_owned());
    }
    if rng.below(3) == 0 {
        set.push("machine.cache.walker_entry=l2".to_owned());
    }
    let more = match rng.below(8) {
        0 | 1 => &["engine.kernel_refs=off"][..],
        2 => &["machine.prefetch.l1.ip_stride=on", "machine.prefetch.l2.stream=on"],
        3 => &["machine.prefetch.l3.next_line=on", "machine.memory.bytes_per_cycle=1"],
        4 => &[r#"machine.tlb.stages={"large":{"entries":64,"ways":4,"latency_cycles":2},"victim":{"entries":4}}"#],
        _ => &[],
    };
    set.extend(more.iter().map(|&more| more.to_owned()));
    set
}

#[test]
fn random_machines_have_the_same_results() {
    let mut rng = Rng::new(case_seed(17), "machines");
    for case in 0..cases(24_u32) {
        let machines: Vec<_> = presets(PresetKind::Machine).collect();
        let machine = machines[rng.below(machines.len() as u64) as usize].name;
        let bare = ["radix", "radix-5level", "radix-ptemagnet"];
        let nested = ["nested-radix", "nested-radix-2m", "nested-hashed-compact-thp", "nested-radix-linear-host"];
        let systems = [&bare[..], &nested].concat();
        let system = systems[rng.below(systems.len() as u64) as usize];
        let source = WORKLOADS[rng.below(WORKLOADS.len() as u64) as usize];
        let set = random_machine(&mut rng);
        assert!(assert_same(source, system, machine, &set), "case {case}: {set:?}");
    }
}

/// Share of a run's accesses handled by the fast path.
fn taken(source: &str, system: &str, set: &[&str]) -> f64 {
    let request = Request {
        sources: vec![source.to_owned()],
        systems: vec![system.to_owned()],
        machine: Some("kabylake-7700hq".to_owned()),
        set: set.iter().map(|&set| set.to_owned()).collect(),
        threads: Some(1),
        ..Request::default()
    };
    let result = run(&request, &|_| true).unwrap().results.remove(0);
    result.fast_path_accesses as f64 / result.stats["accesses"] as f64
}

#[test]
fn ordinary_accesses_take_the_fast_path() {
    for system in [
        "radix",
        "radix-eager",
        "radix-5level",
        "radix-ptemagnet",
        "radix-2m",
        "radix-thp",
        "radix-page-walk-cache",
        "radix-coalesced-mmu-cache",
        "radix-unified-translation-cache",
        "radix-split-page-table-cache",
        "radix-translation-path-cache",
        "flattened",
        "radix-compact",
        "hashed-open",
        "hashed-compact",
        "elastic-cuckoo",
        "nested-radix",
        "nested-radix-thp",
        "nested-radix-unified-translation-cache",
        "nested-radix-linear-host",
        "nested-radix-compact",
        "nested-hashed-compact",
        "nested-elastic-cuckoo",
    ] {
        // Each of 4096 pages has one first touch.
        let share = taken("random:size=16MiB,accesses=100K", system, &[]);
        assert!((0.95..1.0).contains(&share), "{system}: {share}");
    }
    for source in ["gups:size=4MiB,updates=40K,threads=2@0-1", "gups:size=4MiB,updates=40K,threads=2@0,4"] {
        assert!(taken(source, "radix", &[]) > 0.9, "{source}");
    }
    assert!(taken("random:size=16MiB,accesses=100K", "radix", &["machine.tlb.l1d.0.ways=2"]) > 0.95, "any machine");
    for set in [
        WINDOW,
        "engine.kernel_refs=off",
        "machine.memory.bytes_per_cycle=1",
        "machine.prefetch.l1.ip_stride=on",
        "machine.prefetch.l3.stream=on",
        "machine.tlb.stages.large=on",
        "machine.tlb.stages.victim=on",
        "machine.tlb.stages.pom=on",
    ] {
        for system in ["radix", "hashed-compact", "nested-radix", "nested-hashed-compact"] {
            let share = taken("random:size=16MiB,accesses=100K", system, &[set]);
            assert!(share > 0.95, "{system} {set}: {share}");
        }
    }
    for set in BESIDE_THREE_LAYERS {
        let share = taken("random:size=16MiB,accesses=100K", THREE_LAYERS, set);
        assert!(share > 0.9, "{set:?}: {share}");
    }
}

#[test]
fn other_systems_do_not() {
    let off: &[&str] = &["engine.fast_path=off"];
    let others = [("nested-radix-shadow", &[][..]), ("nested-radix-speculative", &[]), (FOUR_LAYERS, &[])];
    for (system, set) in others.into_iter().chain([("radix", off)]) {
        assert_eq!(taken("random:size=16MiB,accesses=40K", system, set), 0.0, "{system} {set:?}");
    }
    let key = |part: &str, value: Result<String, _>| format!("{part}={}", value.unwrap());
    let prefetchers =
        TlbPrefetchConfig::samples().into_iter().map(|sample| key("machine.prefetch.tlb", to_string(&sample)));
    for set in prefetchers {
        assert_eq!(taken("random:size=16MiB,accesses=40K", "radix", &[&set]), 0.0, "{set}: it makes no walks ahead");
    }
    let (times, stage, bypass) =
        ("machine.memory.bytes_per_cycle=1", "machine.tlb.stages.victim=on", "engine.kernel_refs=off");
    for set in [[times, stage], [times, bypass], [stage, bypass]] {
        assert_eq!(taken("random:size=16MiB,accesses=40K", "radix", &set), 0.0, "{set:?}: two of three");
    }
}
