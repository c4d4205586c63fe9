//! Checks that every statistic is counted: each is above 0 in some of the runs that use every design.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, OnceLock};

use pagelab_engine::base::addr::PageSize;
use pagelab_engine::cache::prefetch::{CacheLevel, LevelPrefetchConfig};
use pagelab_engine::config::{Config, PresetKind, TranslationCacheConfig, presets};
use pagelab_engine::core_model::CoreConfig;
use pagelab_engine::device::DeviceConfig;
use pagelab_engine::fault_engine::config::FaultEngineConfig;
use pagelab_engine::kernel::placement::PlacementConfig;
use pagelab_engine::kernel::threads::config::ThreadsConfig;
use pagelab_engine::observe::statistics::Statistics;
use pagelab_engine::programs::arrivals::{ArrivalRate, Spacing};
use pagelab_engine::programs::load::{ArrivalStream, BackgroundLoad, CoRunner};
use pagelab_trace::Source;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use crate::common::programs::{Cuts, Program, fits, program};
use crate::common::{self, on_two_threads, opener};
use crate::{
    SHORT_OF_MEMORY, combinations, nested, small, speculations, system, tlb_organisations, translation_units, with,
    with_storage,
};

/// Statistics that may be 0 in all of these runs, a line each: the test that looks at it, or why there is none.
const UNCOUNTED: &str = "conformance/uncounted-statistics.txt";

/// Random programs that run in every system. The others run where a statistic is still 0 after these.
const IN_ALL_SYSTEMS: usize = 2;

const WORKLOADS: [&str; 3] =
    ["random:size=8MiB,accesses=6K", "stride:size=14MiB,stride=4KiB,passes=2", "mapped-read:size=4MiB,accesses=4K"];

/// Random programs, the same in each run of the test.
fn programs(count: usize) -> Vec<Program> {
    let mut runner = TestRunner::deterministic();
    (0..count).map(|_| program().new_tree(&mut runner).expect("a program").current()).collect()
}

/// Sums of all runs by the names of statistics, without names of layers and numbers.
#[derive(Default)]
struct Sums(BTreeMap<String, u64>);

impl Sums {
    fn add(&mut self, config: &Config, stats: &Statistics) {
        for (name, value) in &stats.values {
            *self.0.entry(kind_of(name, config, stats)).or_default() += value;
        }
    }

    fn merge(&mut self, other: &Self) {
        for (name, value) in &other.0 {
            *self.0.entry(name.clone()).or_default() += value;
        }
    }

    fn run(&mut self, config: &Config, source: Box<dyn Source>, cpus: &[usize]) {
        let (_, stats) = common::run(config, source, cpus);
        self.add(config, &stats);
    }

    fn program(&mut self, config: &Config, number: usize, program: &Program) {
        let cpus = [&[0_usize][..], &[0, 1], &[0, 2]][number % 3];
        let program = program.clone().under(config);
        if config.validate().is_ok() && fits(&program, config, cpus) {
            self.run(config, program.source(Cuts::AsWritten), cpus);
        }
    }

    fn programs(&mut self, config: &Config, programs: &[Program]) {
        programs.iter().enumerate().for_each(|(number, program)| self.program(config, number, program));
    }

    fn workloads(&mut self, config: &Config) {
        for spec in WORKLOADS {
            let source = pagelab_trace::workload::parse(spec, 1).unwrap_or_else(|e| panic!("{e}"));
            self.run(config, source, &[0]);
        }
    }
}

/// The name of a statistic with `*` for names of layers, numbers, levels and places, and with the design that counts
/// it: `layer.*.fault_engine(mfoe).hits`. A statistic of an account is the same as that of the whole run.
fn kind_of(name: &str, config: &Config, stats: &Statistics) -> String {
    let is_name = |part: &str| {
        part.bytes().all(|byte| byte.is_ascii_digit())
            || config.system.layers.iter().any(|layer| layer.name == part)
            || ["l1", "l2", "l3", "dram", "remote", "uncached"].contains(&part)
            || part.strip_prefix("level").is_some_and(|level| level.parse::<u8>().is_ok())
    };
    let mut parts: Vec<&str> = name.split('.').collect();
    let account = match parts[..] {
        ["co_runner" | "source", number, ..] if number.parse::<u8>().is_ok() => 2,
        ["main" | "co_runner" | "arrivals" | "no_source" | "kthread", ..] => 1,
        _ => 0,
    };
    if stats.values.contains_key(&parts[account..].join(".")) {
        parts.drain(..account);
    }
    let design = match parts[..] {
        ["layer", layer, part, ..] => design_of(part, layer, config),
        _ => None,
    };
    let mut kinds: Vec<_> = parts.iter().map(|part| if is_name(part) { "*" } else { part }.to_owned()).collect();
    if let Some(design) = design {
        kinds[2] += &format!("({design})");
    }
    kinds.join(".")
}

/// The design of a part of a layer, where several designs have statistics of the same name.
fn design_of(part: &str, layer: &str, config: &Config) -> Option<String> {
    let layer = config.system.layers.iter().find(|configured| configured.name == layer)?;
    match part {
        "page_table" => Some(layer.page_table.name().to_owned()),
        "fault_engine" => {
            let engine = serde_json::to_value(layer.fault_engine.as_ref()?).expect("parameters serialise");
            Some(engine["kind"].as_str().expect("the tag").to_owned())
        }
        _ => None,
    }
}

/// A system with each design of each kind.
fn systems() -> Vec<Config> {
    let short = || with("radix", &SHORT_OF_MEMORY);
    let mut all: Vec<Config> = presets(PresetKind::System).map(|preset| small(preset.name)).collect();
    all.extend(combinations());
    all.extend(nested());
    for placement in PlacementConfig::samples() {
        for mut config in [system("radix"), short(), system("radix-2m"), system("nested-radix-cold")] {
            config.system.layers[0].placement = placement.clone();
            all.push(config);
        }
    }
    for device in DeviceConfig::samples() {
        let mut config = with_storage(short(), &device);
        config.kernel.swap.as_mut().expect("pages can leave").device = device.clone();
        all.push(config);
    }
    let storage = DeviceConfig::samples().into_iter().max_by_key(|device| device.striping().drives).expect("a device");
    for engine in FaultEngineConfig::samples() {
        for page_size in [PageSize::Size4K, PageSize::Size2M] {
            for config in [system("radix"), short(), system("nested-radix-cold")] {
                let mut config = with_storage(config, &storage);
                config.system.layers.iter_mut().for_each(|layer| {
                    layer.fault_engine = Some(engine.clone());
                    layer.page_size = page_size;
                });
                all.push(config);
            }
        }
    }
    for core in CoreConfig::samples() {
        for mut config in [system("radix"), system("nested-radix-2m-cold")] {
            config.machine.core = core.clone();
            all.push(config);
        }
    }
    for level in CacheLevel::ALL {
        for sample in LevelPrefetchConfig::samples(level) {
            let mut config = system("nested-radix-2m-cold");
            let prefetch = &mut config.machine.prefetch;
            *[&mut prefetch.l1, &mut prefetch.l2, &mut prefetch.l3][level as usize] = sample;
            all.push(config);
        }
    }
    for cache in TranslationCacheConfig::samples() {
        for mut config in [short(), system("radix-5level"), system("nested-radix-cold")] {
            config.kernel.translation_cache = Some(cache);
            all.push(config);
        }
    }
    all.extend(translation_units::all_systems());
    all.extend(tlb_organisations::all_systems());
    all.extend(speculations::all_systems());
    all
}

/// Systems in which memory is short, with each kernel thread.
fn short_systems() -> Vec<Config> {
    let set = [SHORT_OF_MEMORY[0], "machine.memory_bytes=12MiB"];
    let mut all = Vec::new();
    for threads in ThreadsConfig::samples() {
        for name in crate::systems_with(&threads) {
            let mut config = with(name, &set);
            config.kernel.threads = threads.clone();
            all.push(config);
        }
    }
    all
}

/// Programs beside each other, and streams of short ones.
fn run_with_load(sums: &mut Sums) {
    let main = || pagelab_trace::workload::parse("random:size=8MiB,accesses=20K", 1).unwrap_or_else(|e| panic!("{e}"));
    let config = system("radix");
    let pace = ArrivalRate { per_second: 20_000.0, count: None, spacing: Spacing::Uniform };
    let load = || BackgroundLoad {
        co_runners: vec![CoRunner { open: opener("seq:size=64KiB,passes=1"), cpus: vec![2], memory_limit: None }],
        arrivals: vec![ArrivalStream {
            open: opener("seq:size=16KiB,passes=1"),
            cpus: vec![0],
            pace,
            memory_limit: None,
        }],
    };
    let (_, stats) = common::run_beside(&config, vec![(main(), &[0]), (main(), &[4])], load());
    sums.add(&config, &stats);
}

fn is_test(text: &str) -> bool {
    text.ends_with(".rs") || text.ends_with(".py")
}

/// Sums of the runs of all systems. Statistics in `known` need not be counted.
fn run_all(known: &BTreeMap<&str, &str>) -> Sums {
    let programs = programs(24);
    let (first, others) = programs.split_at(IN_ALL_SYSTEMS);
    let systems: Vec<_> = systems().into_iter().map(|config| (config, OnceLock::<Vec<String>>::new())).collect();
    let sums = Mutex::new(Sums::default());
    let add = |own: &Sums| sums.lock().expect("no run panics").merge(own);
    on_two_threads(&short_systems(), |config| {
        let mut own = Sums::default();
        own.workloads(config);
        own.programs(config, &programs);
        add(&own);
    });
    on_two_threads(&systems, |(config, names)| {
        let mut own = Sums::default();
        own.programs(config, first);
        add(&own);
        names.set(own.0.into_keys().collect()).expect("one run for each system");
    });
    let mut own = Sums::default();
    ["radix", "radix-thp", "nested-radix-cold"].iter().for_each(|name| own.workloads(&system(name)));
    run_with_load(&mut own);
    add(&own);
    // A statistic is 0 at the end if it is 0 in all runs that have it, whatever the order of the runs.
    let is_missing = |name: &String| sums.lock().expect("no run panics").0[name] == 0 && !known.contains_key(&**name);
    for (number, program) in others.iter().enumerate() {
        on_two_threads(&systems, |(config, names)| {
            if names.get().expect("it ran").iter().any(is_missing) {
                let mut own = Sums::default();
                own.program(config, number, program);
                add(&own);
            }
        });
    }
    sums.into_inner().expect("no run panics")
}

#[test]
fn every_statistic_is_counted_in_some_run() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let listed = std::fs::read_to_string(tests.join(UNCOUNTED)).expect("the list is there");
    let known: BTreeMap<&str, &str> = listed.lines().map(|line| line.split_once(": ").expect("NAME: TEST")).collect();
    let sums = run_all(&known);
    assert!(sums.0.len() > 200, "{}", sums.0.len());
    let zero: BTreeSet<&str> = sums.0.iter().filter(|&(_, &sum)| sum == 0).map(|(name, _)| name.as_str()).collect();
    let uncounted: Vec<_> = zero.iter().filter(|name| !known.contains_key(**name)).collect();
    let stale: Vec<_> = known
        .iter()
        .filter(|(name, test)| !(zero.contains(*name) || is_test(test) && sums.0.contains_key(**name)))
        .collect();
    assert!(
        uncounted.is_empty() && stale.is_empty(),
        "no run counts these statistics: {uncounted:#?}; these are counted, or there are none of that name: {stale:#?}"
    );
    let repository = tests.join("../../..");
    for (name, test) in known.into_iter().filter(|(_, test)| is_test(test)) {
        let text = std::fs::read_to_string(repository.join(test)).unwrap_or_else(|e| panic!("{test}: {e}"));
        assert!(text.contains(name.rsplit('.').next().expect("a last part")), "{test} does not look at {name}");
    }
}
