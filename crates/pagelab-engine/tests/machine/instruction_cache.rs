//! Instruction caches: lines that programs and kernels fetch, what misses cost on both cores, and who loses lines.

use crate::common::{ScriptWriter, assert_conserved, checked, config, run, run_all, run_workload};
use pagelab_engine::base::addr::LineAddr;
use pagelab_engine::base::cycles::Cycles;
use pagelab_engine::base::ids::CoreId;
use pagelab_engine::cache::{CodeOwner, Hierarchy, Requester};
use pagelab_engine::config::{Assembly, assemble};
use pagelab_engine::core_model::clock::{Class, CpuClock};
use pagelab_engine::core_model::{CoreConfig, CoreModel};
use pagelab_engine::machine::simulation::{PlacedSource, Simulation};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{Access, AccessKind, Branches, EventKind, Maker, MapFlags, Protection};

const CODE: u64 = 0x40_0000;
const DATA: u64 = 0x7f00_0000_0000;
/// A set of eight lines.
const TINY: &str = r#"machine.cache.l1i={"size_bytes":"512B","ways":8,"latency_cycles":4}"#;
const LARGE: &str = r#"machine.cache.l1i={"size_bytes":"32KiB","ways":8,"latency_cycles":4}"#;
const NO_KERNEL: &str = "kernel.code.path_lines=0";
const PASSES: u64 = 10;

fn with_code() -> ScriptWriter {
    let mut script = ScriptWriter::new();
    let (prot, flags) = (Protection { read: true, write: false, execute: true }, MapFlags(MapFlags::ANONYMOUS));
    script.event(0, EventKind::Mmap { addr: CODE, len: 4096, prot, flags, file: None, file_offset: 0 });
    script.mmap(0, DATA, 1 << 20);
    script
}

/// A load by an instruction in a line of the code.
fn load(script: &mut ScriptWriter, line: u64, vaddr: u64) {
    script.access_of(0, Access { pc: CODE + line * 64 + 8, ..Access::new(AccessKind::Load, vaddr, 8) });
}

/// A loop over lines of code, whose loads are in one line.
fn code_loop(lines: u64) -> ScriptWriter {
    let mut script = with_code();
    for _ in 0..PASSES {
        // Two instructions in each line: the second one is no fetch.
        (0..2 * lines).for_each(|n| load(&mut script, n / 2, DATA));
    }
    script
}

/// Lines fetched, and misses.
fn fetched(stats: &Statistics, owner: &str) -> (u64, u64) {
    let count = |what: &str| stats.values[&format!("instruction_cache.{owner}.{what}")];
    (count("accesses"), count("misses"))
}

/// Under LRU, a loop over as many lines as there are misses once per line; one more, and every fetch misses.
#[test]
fn a_loop_that_fits_misses_once_per_line_and_a_larger_one_always() {
    let cores = [&[][..], &["machine.core.model=window"]];
    for core in cores {
        for (lines, misses) in [(1, 1), (2, 2), (8, 8), (9, 9 * PASSES)] {
            let set = [&[TINY, NO_KERNEL][..], core].concat();
            let (_, stats) = checked("radix", &set, code_loop(lines));
            // A loop of one line enters it once. After the fault of the first load, its line is fetched again.
            let accesses = 1 + if lines == 1 { 1 } else { lines * PASSES };
            assert_eq!(fetched(&stats, "program"), (accesses, misses), "{lines} lines");
            assert_eq!(fetched(&stats, "kernel"), (0, 0));
            let from = |place: &str| stats.values[&format!("instruction_cache.program.misses.{place}")];
            assert_eq!((from("dram") + from("l3") + from("remote"), from("l2")), (lines, misses - lines));
            // Beyond a hit of 4 cycles: the latencies of the L2 and of what holds the line first.
            let cache = config("radix", &set).machine.cache;
            let [l2, l3] = [cache.l2.unwrap().latency_cycles, cache.l3.unwrap().latency_cycles].map(u64::from);
            let cold = from("dram") * (u64::from(cache.dram_latency_cycles) - 4) + from("l3") * (l3 - 4);
            assert_eq!(stats.values["cycles.fetch"], cold + from("l2") * (l2 - 4));
            assert_conserved(&stats);
        }
    }
}

#[test]
fn without_an_instruction_cache_nothing_is_counted() {
    let (_, stats) = checked("radix", &["kernel.code.path_lines=9"], code_loop(3));
    assert!(!stats.values.keys().any(|name| name.contains("instruction_cache") || name == "cycles.fetch"));
    // Nor does one that holds everything change what data accesses find.
    let (_, with) = checked("radix", &[LARGE, NO_KERNEL], code_loop(3));
    for name in ["l1d.misses.data", "accesses", "fault.minor.count", "walk.count"] {
        assert_eq!(stats.values[name], with.values[name], "{name}");
    }
}

/// With a line per path, each step of a fault that has instructions fetches one. All faults take the same steps.
#[test]
fn a_fault_fetches_the_lines_of_its_stages() {
    let faults = |pages: u64| {
        let mut script = with_code();
        (0..pages).for_each(|page| load(&mut script, page % 2, DATA + page * 4096));
        let (_, stats) = checked("radix", &[LARGE, "kernel.code.path_lines=1", "kernel.zero_page=off"], script);
        assert_conserved(&stats);
        fetched(&stats, "kernel")
    };
    let [few, more] = [10, 20].map(faults);
    let per_fault = (more.0 - few.0) / 10;
    assert!((5..=13).contains(&per_fault), "{per_fault}");
    assert_eq!(faults(30).0 - more.0, 10 * per_fault);
    // The cache holds them all: later faults find what the first ones fetched.
    assert_eq!((few.1, faults(30).1), (more.1, more.1));
    // Each stage has a line of its own.
    assert!((5..=13).contains(&few.1), "{few:?}");
}

/// The line is fetched when it is entered and after each fault, whether the handler takes several turns or one.
#[test]
fn a_fault_fetches_the_programs_line_once_and_a_refused_one_is_raised_once() {
    const PAGES: u64 = 40;
    let script = || {
        let mut script = with_code();
        for page in 0..PAGES {
            load(&mut script, page % 2, DATA + page * 4096);
        }
        load(&mut script, 2, DATA - 4096);
        (0..PAGES).for_each(|page| load(&mut script, page % 2, DATA + page * 4096));
        script.finish()
    };
    let config = config("radix", &[LARGE, "kernel.code.path_lines=1", "engine.sync_quantum_cycles=0"]);
    let (_, alone) = run_all(&config, vec![(script(), &[0])]);
    let (_, both) = run_all(&config, vec![(script(), &[0]), (script(), &[2])]);
    assert_eq!(fetched(&alone, "program").0, 2 * (PAGES + 1) + PAGES);
    assert_eq!(fetched(&both, "program").0, 2 * fetched(&alone, "program").0);
    let tlbs: Vec<_> = alone.values.keys().filter(|name| name.contains("tlb.") && name.ends_with("misses")).collect();
    assert!(!tlbs.is_empty());
    let names = ["fault.minor.count", "accesses.refused", "accesses", "walk.count"];
    for name in tlbs.into_iter().map(String::as_str).chain(names) {
        assert_eq!(both.values[name], 2 * alone.values[name], "{name}");
    }
    assert_eq!(alone.values["accesses.refused"], 1);
}

/// A fault takes the whole cache, so the program fetches its lines again.
#[test]
fn faults_evict_the_lines_of_programs() {
    let run = |path_lines: u64| {
        let mut script = with_code();
        for pass in 0..PASSES {
            (0..8).for_each(|line| load(&mut script, line, DATA));
            load(&mut script, 7, DATA + (pass + 1) * 4096);
        }
        let lines = format!("kernel.code.path_lines={path_lines}");
        let (_, stats) = checked("radix", &[TINY, &lines], script);
        fetched(&stats, "program")
    };
    let (alone, beside) = (run(0), run(64));
    assert_eq!(alone.1, 8);
    assert_eq!(alone.0, beside.0);
    // In each pass, all eight lines; the first pass also fetches its first one twice, around the fault of its load.
    assert!((8 * PASSES..=8 * PASSES + 2).contains(&beside.1), "{beside:?}");
}

/// While the front end waits for a line, loads in the window go on: their latency is hidden behind that of the code.
#[test]
fn a_window_core_overlaps_loads_with_fetches() {
    const LOADS: u64 = 100;
    const DATA_LATENCY: u64 = 200;
    // Each load is in a new line of code, at an address from the load before, so no two loads overlap.
    let time = |config: &str, fetch: u64| {
        let config = serde_json::from_str::<CoreConfig>(config).unwrap();
        let mut clock = CpuClock::new(CoreModel::new(&config, Cycles(4)));
        clock.has_dependencies = true;
        let load = Access { gap: 1, maker: Maker::after(1), ..Access::new(AccessKind::Load, DATA, 8) };
        for line in 0..LOADS {
            clock.begin_access(&load, Branches::NONE, false);
            clock.wait_for_instructions(Cycles(fetch));
            clock.wait_for_data(Cycles(DATA_LATENCY), line);
            clock.retire(1);
        }
        clock.drain();
        assert_eq!(clock.spent(Class::Fetch), Cycles(LOADS * fetch));
        clock.now().0
    };
    let in_order = r#"{"model":"in-order","cycles_per_instruction":1.0,"l1_hit_hidden":false}"#;
    let window = r#"{"model":"window","cycles_per_instruction":1.0}"#;
    for fetch in [50, 300] {
        assert_eq!(time(in_order, fetch), LOADS * (1 + fetch + DATA_LATENCY));
        // Either the fetches or the chain of loads takes the whole time; the other one is seen once.
        let most = LOADS * (1 + fetch.max(DATA_LATENCY)) + fetch.min(DATA_LATENCY);
        assert!((LOADS * fetch.max(DATA_LATENCY)..=most).contains(&time(window, fetch)), "{fetch}");
    }
}

/// Copies by another thread shoot down translations, so that code is looked up again within a fault of data.
#[test]
fn the_outcome_of_a_datas_fault_is_not_taken_for_that_of_its_code() {
    const PAGES: u64 = 100;
    let mut script = with_code();
    let other = script.thread(0);
    for page in 0..PAGES {
        load(&mut script, page % 2, DATA - 4096 * (page + 1));
        for kind in [AccessKind::Load, AccessKind::Store] {
            script.access_of(other, Access { pc: CODE + 128, ..Access::new(kind, DATA + page * 4096, 8) });
        }
    }
    for set in [NO_KERNEL, LARGE] {
        let config = config("radix", &[set, "engine.sync_quantum_cycles=0"]);
        let (_, stats) = run(&config, script.clone().finish(), &[0, 2]);
        assert_eq!(stats.values["accesses.refused"], PAGES);
        assert_eq!(stats.values["fault.outside.count"], PAGES);
        assert!(stats.values["shootdown.count"] > PAGES / 2);
    }
}

/// A page of code that nothing maps is refused once, by whichever of its lines.
#[test]
fn code_without_a_mapping_is_refused_once_per_page() {
    let faults = |set: &[&str]| {
        let mut script = ScriptWriter::new();
        script.mmap(0, DATA, 1 << 20);
        for page in [0, 1, 0] {
            (0..8).for_each(|line| load(&mut script, page * 64 + line, DATA));
        }
        let (_, stats) = checked("radix", set, script);
        (stats.values["fault.outside.count"], stats.values["accesses.refused"])
    };
    assert_eq!(faults(&[]), (3, 0));
    assert_eq!(faults(&[LARGE, NO_KERNEL]), (3, 0));
}

#[test]
fn a_source_without_addresses_of_instructions_is_refused() {
    let mut script = with_code();
    script.load(0, DATA);
    let sources = vec![PlacedSource { source: script.finish(), cpus: vec![0], memory_limit: None }];
    let mut simulation = Simulation::new(&config("radix", &[TINY]), sources, None).unwrap();
    let error = simulation.run(&mut |_| true).unwrap_err().to_string();
    assert!(error.contains("machine.cache.l1i: the program's source does not know"), "{error}");
}

#[test]
fn impossible_instruction_caches_are_refused() {
    for (set, wrong) in [
        (r#"machine.cache.l1i={"size_bytes":"500B","ways":8,"latency_cycles":4}"#, "machine.cache.l1i.size_bytes: "),
        (
            r#"machine.cache.l1i={"size_bytes":"512B","ways":8,"latency_cycles":12}"#,
            "machine.cache.l2.latency_cycles: 12 must be more than l1i.latency_cycles, which is 12",
        ),
        ("kernel.code.bytes_per_instruction=16", "kernel.code.bytes_per_instruction: "),
    ] {
        let set = [set.to_owned()];
        let assembly = Assembly { machine: None, system: Some("radix"), kernel: None, set: &set };
        let error = assemble(&assembly).unwrap_err().to_string();
        assert!(error.contains(wrong), "{error}");
    }
}

/// Code leaves the cache when another core or a device writes it, or the inclusive L3 evicts it.
#[test]
fn lines_leave_with_those_of_the_other_caches() {
    for cores in [1, 2] {
        let (first, last) = (CoreId::from(0), CoreId::from(cores - 1));
        let cache = config("radix", &[TINY]).machine.cache;
        let mut caches = Hierarchy::new(&cache, cores, 1).unwrap();
        let line = LineAddr(77);
        let misses = |caches: &mut Hierarchy| caches.fetch_lines(first, line, 1, CodeOwner::Program).0 > 0;
        assert_eq!([misses(&mut caches), misses(&mut caches)], [true, false]);
        caches.access(last, line, false, Requester::Data);
        assert!(!misses(&mut caches), "a read leaves it");
        caches.access(last, line, true, Requester::Data);
        assert_eq!([misses(&mut caches), misses(&mut caches)], [cores > 1, false]);
        caches.dma_write(line, 1);
        assert_eq!([misses(&mut caches), misses(&mut caches)], [true, false]);
        // As many lines as evict it from its set of the L3.
        let l3 = cache.l3.unwrap();
        for n in 1..=u64::from(l3.ways) {
            let line = LineAddr(77 + n * l3.size_bytes.0 / 64 / u64::from(l3.ways));
            caches.access(last, line, false, Requester::Data);
        }
        assert!(misses(&mut caches), "{cores} cores");
        caches.assert_coherent();
    }
}

/// Another core that reads code does not own it, so its write takes the line from the instruction cache that alone
/// holds it.
#[test]
fn a_core_that_reads_code_and_writes_it_later_takes_it_away() {
    let cache = config("radix", &[LARGE]).machine.cache;
    let l2 = cache.l2.as_ref().unwrap();
    let sets = l2.size_bytes.0 / 64 / u64::from(l2.ways);
    let mut caches = Hierarchy::new(&cache, 2, 1).unwrap();
    let ([first, other], line) = ([0, 1].map(CoreId::from), LineAddr(77));
    let hits = |caches: &mut Hierarchy| caches.fetch_lines(first, line, 1, CodeOwner::Program).0 == 0;
    assert!(!hits(&mut caches));
    // Data evict the line from the L2 of the core. Its L1 never had it.
    for way in 1..=u64::from(l2.ways) {
        caches.access(first, LineAddr(77 + way * sets), false, Requester::Data);
    }
    assert!(hits(&mut caches), "the instruction cache has it alone");
    caches.access(other, line, false, Requester::Data);
    caches.assert_coherent();
    assert!(hits(&mut caches), "a read leaves it");
    let upgrades = caches.stats().cores[1].upgrades;
    caches.access(other, line, true, Requester::Data);
    assert_eq!(caches.stats().cores[1].upgrades, upgrades + 1);
    caches.assert_coherent();
    assert!(!hits(&mut caches), "a write takes it away");
}

/// Systems with kernels of all sorts, guests, and both cores: with `--check`, no translation and no frame is wrong.
#[test]
fn every_kind_of_system_runs_with_instruction_caches() {
    let reads = "mapped-read:size=1MiB,lines=1,operations=300";
    for (system, workload, set) in [
        ("radix-thp", "random:size=4MiB,accesses=2K", "machine.core.model=window"),
        ("nested-radix-cold", "random:size=1MiB,accesses=1K", "kernel.code.path_lines=7"),
        ("hashed-power-segments", "stride:size=8MiB,stride=4KiB,passes=2", "kernel.code.bytes_per_instruction=15"),
        ("osdp", reads, "machine.prefetch.l2.stream=on"),
        ("hwdp", reads, "machine.core.model=window"),
    ] {
        let stats = run_workload(&config(system, &[TINY, set, "engine.check=on"]), workload);
        assert_conserved(&stats);
        for owner in ["program", "kernel"] {
            let (accesses, misses) = fetched(&stats, owner);
            assert!(misses > 0 && misses <= accesses, "{system}: {owner} {misses} of {accesses}");
        }
    }
}
