//! Requirements for every registered design. Designs, their parameters and systems are taken from the registry, so new
//! ones are tested automatically.

#[path = "../common/mod.rs"]
mod common;
mod engines;
mod host_memory;
mod model;
mod speculations;
mod statistics;
mod tlb_organisations;
mod translation_units;
mod walks;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use common::programs::{TOO_LARGE, check_once, fits, print_checked, program};
use common::{page_tables_of_programs, set_page_table, with_each_page_table};
use pagelab_engine::base::addr::{MachineAddr, PageSize};
use pagelab_engine::base::cycles::Cycles;
use pagelab_engine::base::io::{DeviceRequest, Lba};
use pagelab_engine::base::rng::Rng;
use pagelab_engine::base::translation::Translation;
use pagelab_engine::cache::prefetch::{CacheLevel, LevelPrefetchConfig};
use pagelab_engine::config::{
    Assembly, Config, LayerConfig, PageCache, PresetKind, SwapConfig, TranslationCacheConfig, assemble, presets,
};
use pagelab_engine::core_model::{
    self, CoreConfig, CoreModel, CoreTime, Data, IncomingAccess, L1TlbMiss, Stall, Timing,
};
use pagelab_engine::device::{self, BlockDevice, Clock, DeviceConfig};
use pagelab_engine::fault_engine::config::{self as fault_engines, FaultEngineConfig};
use pagelab_engine::kernel::placement::PlacementConfig;
use pagelab_engine::kernel::threads::config::{self as threads, ThreadsConfig};
use pagelab_engine::mmu_cache::{self, MmuCacheKind};
use pagelab_engine::page_table::{self, PageTableConfig};
use pagelab_trace::{Access, AccessKind, Branches, Maker, case_seed, cases};
use proptest::strategy::Strategy;
use proptest::test_runner::{Config as Runner, TestCaseError, TestRunner};

/// CPUs 2n and 2n + 1 share a core.
const PLACEMENTS: &[&[usize]] = &[&[0], &[0, 1], &[0, 2]];

fn system(name: &str) -> Config {
    with(name, &[])
}

fn with(name: &str, overrides: &[&str]) -> Config {
    let set = ["engine.check=on", "machine.memory_bytes=1GiB", "engine.sync_quantum_cycles=0"];
    let set: Vec<String> = set.iter().chain(overrides).map(|&set| set.to_owned()).collect();
    let assembly = Assembly { machine: Some("sandybridge-e5-2420"), system: Some(name), kernel: None, set: &set };
    assemble(&assembly).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The same, with files read from a device.
fn with_storage(mut config: Config, device: &DeviceConfig) -> Config {
    config.kernel.storage = Some(device.clone());
    config.kernel.page_cache = PageCache::Cold;
    config
}

/// A system for each compatible page table, MMU cache and page size: native, or as host if the table is only for hosts.
fn combinations() -> Vec<Config> {
    let mut all = Vec::new();
    for table in PageTableConfig::samples() {
        let base = system(if table.is_for_hosts_only() { "nested-radix-cold" } else { "radix" });
        let at =
            base.system.layers.iter().position(|layer| layer.host.is_none()).expect("a layer is the machine's own");
        for &kind in MmuCacheKind::ALL.iter().filter(|kind| kind.keeps(table.upper_entries()).is_ok()) {
            for geometry in kind.samples(&base.machine.mmu_cache) {
                for &page_size in table.page_sizes() {
                    let mut config = base.clone();
                    config.machine.mmu_cache = geometry.clone();
                    let layer = &mut config.system.layers[at];
                    (layer.page_table, layer.mmu_cache, layer.page_size) = (table.clone(), kind, page_size);
                    if page_size == PageSize::Size1G {
                        config.machine.memory_bytes.0 = 3 << 30;
                    }
                    all.push(config);
                }
            }
        }
    }
    all
}

/// A system for each page table of guests, with the same table in the host if that is possible.
fn nested() -> impl Iterator<Item = Config> {
    page_tables_of_programs().map(|table| {
        let with_table_in = |layers: fn(&LayerConfig) -> bool| {
            let mut config = system("nested-radix-cold");
            for layer in config.system.layers.iter_mut().filter(|layer| layers(layer)) {
                set_page_table(layer, &table);
            }
            config
        };
        let both = with_table_in(|_| true);
        match both.validate() {
            Err(error) if error.to_string().contains("is not possible for a host") => {
                with_table_in(|layer| layer.host.is_some())
            }
            Ok(()) | Err(_) => both,
        }
    })
}

/// Runs random programs on a system and compares each translation with the kernels' records. Returns the total counts.
fn check(config: &Config, programs: u32) -> BTreeMap<String, u64> {
    config.validate().unwrap_or_else(|e| panic!("a combination that should be possible is refused: {e}"));
    let mut runner = TestRunner::new(Runner {
        cases: cases(programs),
        failure_persistence: None,
        max_shrink_iters: 200,
        ..Runner::default()
    });
    let cpus = (0..PLACEMENTS.len()).prop_map(|n| PLACEMENTS[n]);
    let sums = RefCell::new(BTreeMap::new());
    let result = runner.run(&(program(), cpus), |(program, cpus)| {
        let program = program.under(config);
        if !fits(&program, config, cpus) {
            return Err(TestCaseError::reject(TOO_LARGE));
        }
        for (name, value) in check_once(&program, config, cpus).values {
            *sums.borrow_mut().entry(name).or_insert(0) += value;
        }
        Ok(())
    });
    print_checked();
    let layers = &config.system.layers;
    result.unwrap_or_else(|e| panic!("{layers:?}: {e}"));
    sums.into_inner()
}

#[test]
fn every_design_has_samples_and_a_description() {
    let tables = PageTableConfig::samples();
    let sampled: BTreeSet<_> = tables.iter().map(PageTableConfig::name).collect();
    assert_eq!(sampled, page_table::DESIGNS.iter().map(|(name, _)| *name).collect());
    for table in &tables {
        let written = serde_json::to_value(table).unwrap();
        assert_eq!(written["kind"], table.name());
        assert_eq!(serde_json::from_value::<PageTableConfig>(written).unwrap(), *table);
        assert!(table.page_sizes().contains(&PageSize::Size4K), "all memory is in frames of 4 KiB");
    }
    let known: Vec<_> = MmuCacheKind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(known, mmu_cache::DESIGNS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    let described = page_table::DESIGNS.iter().chain(mmu_cache::DESIGNS);
    described.for_each(|(name, text)| assert!(!text.is_empty() && !text.contains('\n'), "{name}"));
}

#[test]
fn every_page_table_agrees_with_a_map() {
    for table in PageTableConfig::samples() {
        (1..=2).for_each(|seed| model::torture(&table, cases(100_000), case_seed(seed)));
    }
}

#[test]
fn every_page_table_with_every_mmu_cache_and_page_size_translates_right() {
    let all = combinations();
    let used: BTreeSet<_> =
        all.iter().flat_map(|config| &config.system.layers).map(|layer| layer.page_table.name()).collect();
    assert_eq!(used.len(), page_table::DESIGNS.len(), "{used:?}");
    let used: BTreeSet<_> =
        all.iter().flat_map(|config| &config.system.layers).map(|layer| layer.mmu_cache.name()).collect();
    assert_eq!(used.len(), mmu_cache::DESIGNS.len(), "{used:?}");
    all.iter().for_each(|config| _ = check(config, 4));
}

#[test]
fn every_page_table_translates_right_in_guests_and_hosts() {
    nested().for_each(|config| _ = check(&config, 8));
}

/// Makes reclaim possible and necessary.
const SHORT_OF_MEMORY: [&str; 2] = [
    r#"kernel.swap={"size_bytes":"64MiB","read_cycles":250000,"write_cycles":60000,"queue_depth":4}"#,
    "kernel.cgroup_limit_bytes=2MiB",
];

#[test]
fn every_placement_policy_translates_right() {
    let mut tested = BTreeSet::new();
    for placement in PlacementConfig::samples() {
        for (name, layers, short) in [
            ("radix", 0..1, false),
            ("radix", 0..1, true),
            ("radix-2m", 0..1, false),
            ("nested-radix-cold", 0..2, false),
        ] {
            let mut config = if short { with(name, &SHORT_OF_MEMORY) } else { system(name) };
            config.system.layers[layers].iter_mut().for_each(|layer| layer.placement = placement.clone());
            // Some placements are rejected in some systems, with an error.
            if config.validate().is_ok() {
                tested.insert(serde_json::to_value(&placement).unwrap()["kind"].as_str().unwrap().to_owned());
                check(&config, 6);
            }
        }
    }
    assert_eq!(tested, PlacementConfig::designs().into_iter().map(|(name, _)| name).collect());
}

/// Checks how the configuration describes parameters, with and without the key `model`, and the schema of their
/// properties.
fn check_choice<T>(parameters: &T, name: &str, default: &str, schema: &schemars::Schema)
where
    T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let mut written = serde_json::to_value(parameters).unwrap();
    assert_eq!(written["model"], name);
    assert_eq!(serde_json::from_value::<T>(written.clone()).unwrap(), *parameters);
    let variants = schema.get("oneOf").unwrap().as_array().unwrap();
    let variant = variants.iter().find(|variant| variant["properties"]["model"]["const"] == name).unwrap();
    let keys = |object: &serde_json::Value| object.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(keys(&variant["properties"]), keys(&written), "{name}: the schema has its keys");
    assert_eq!(variant["additionalProperties"], false, "{name}: and refuses others");
    let required: Vec<_> = variant["required"].as_array().unwrap().iter().map(|key| key.as_str().unwrap()).collect();
    assert_eq!(required.contains(&"model"), name != default, "{name}: {required:?}");
    if name == default {
        written.as_object_mut().unwrap().remove("model");
        assert_eq!(serde_json::from_value::<T>(written).unwrap(), *parameters, "the default needs no name");
    }
}

#[test]
fn every_device_has_samples_and_can_be_configured() {
    let sampled: BTreeSet<_> = DeviceConfig::samples().iter().map(DeviceConfig::name).collect();
    assert_eq!(sampled, device::DESIGNS.iter().map(|(name, _)| *name).collect());
    let default = device::DESIGNS[0].0;
    for device in DeviceConfig::samples() {
        device.validate("device").unwrap();
        check_choice(&device, device.name(), default, &schemars::schema_for!(DeviceConfig));
        let name = device.name();
        let swap = SwapConfig { size_bytes: pagelab_trace::quantity::Bytes(1 << 30), device };
        check_choice(&swap, name, default, &schemars::schema_for!(SwapConfig));
    }
}

#[test]
fn every_device_answers_in_reproducible_time() {
    let mut rng = Rng::new(case_seed(7), "devices");
    for config in DeviceConfig::samples() {
        let clock = Clock { mhz: 3000 };
        let (mut device, mut again) = (BlockDevice::new(&config, clock), BlockDevice::new(&config, clock));
        let (mut now, mut copied) = (1_000_000, None);
        for n in 0..cases(2000_u64) {
            // A later request may come from a CPU whose clock is behind.
            now += rng.below(100_000);
            let at = Cycles(now - rng.below(1000));
            let (first, blocks, write) = (Lba(rng.below(1 << 30)), 1 + rng.below(32) as u32, rng.below(2) == 0);
            let request = DeviceRequest { first, blocks, write };
            let done = device.submit(request, at);
            assert!(done.at >= at, "{config:?}: {request:?} at {at:?} is done at {done:?}");
            assert_eq!(again.submit(request, at), done, "{config:?}: answers follow from the calls");
            if n == 1000 {
                copied = Some(device.clone());
            } else if let Some(copy) = &mut copied {
                assert_eq!(copy.submit(request, at), done, "{config:?}: a copy answers as the original");
            }
        }
        assert_eq!(device.measures(), again.measures());
        assert_eq!(copied.expect("half way").measures(), device.measures());
    }
}

#[test]
fn every_device_serves_programs_that_are_short_of_memory() {
    for device in DeviceConfig::samples() {
        for name in ["radix", "nested-radix-cold"] {
            let mut config = with(name, &SHORT_OF_MEMORY);
            config.kernel.swap.as_mut().expect("pages can leave").device = device.clone();
            config.kernel.storage = Some(device.clone());
            config.kernel.page_cache = PageCache::Cold;
            check(&config, 8);
        }
    }
}

#[test]
fn every_kernel_thread_has_samples_and_can_be_configured() {
    let samples = ThreadsConfig::samples();
    let sampled: BTreeSet<_> = samples.iter().flat_map(ThreadsConfig::running).collect();
    assert_eq!(sampled, threads::THREADS.iter().map(|(name, _)| *name).collect());
    threads::THREADS.iter().for_each(|(name, text)| assert!(!text.is_empty() && !text.contains('\n'), "{name}"));
    for threads in samples {
        threads.validate("threads").unwrap();
        let name = threads.running()[0];
        let mut written = serde_json::to_value(&threads).unwrap();
        assert_eq!(serde_json::from_value::<ThreadsConfig>(written.clone()).unwrap(), threads);
        for off in [serde_json::json!("off"), serde_json::json!(false), serde_json::Value::Null] {
            written[name] = off;
            let read: ThreadsConfig = serde_json::from_value(written.clone()).unwrap();
            assert_eq!(read, ThreadsConfig::default(), "{name} is off");
        }
    }
}

/// Systems in which a thread works: natively, unless it needs a host, and in a guest.
pub(crate) fn systems_with(threads: &ThreadsConfig) -> &'static [&'static str] {
    if threads.page_reporting.is_on() { &["nested-radix-cold"] } else { &["radix-2m", "nested-radix-cold"] }
}

/// Programs need more than the machine's memory, so that pages are evicted and read back.
#[test]
fn every_kernel_thread_works_under_memory_pressure() {
    let set = [SHORT_OF_MEMORY[0], "machine.memory_bytes=24MiB"];
    for threads in ThreadsConfig::samples() {
        let mut runs = 0;
        for name in systems_with(&threads) {
            let mut config = with(name, &set);
            config.kernel.threads = threads.clone();
            check(&config, 4);
            config.machine.memory_bytes.0 = 12 << 20;
            for workload in ["stride:size=14MiB,stride=4KiB,passes=2", "random:size=14MiB,accesses=6K"] {
                let source = pagelab_trace::workload::parse(workload, 1).unwrap();
                let (simulation, stats) = common::run(&config, source, &[0]);
                common::assert_conserved(&stats);
                common::assert_frames_conserved(&simulation, &common::programs::live_spaces(&simulation));
                assert!(stats.values["swap.in.pages"] > 0, "{name}: memory is short");
                runs += stats.values["kthread.runs"];
            }
        }
        assert!(runs > 0, "{threads:?}: it never woke up");
    }
}

/// Swapped-out pages are stored in entries of tables with room for words, and separately for others.
#[test]
fn every_page_table_keeps_what_programs_have_swapped_out() {
    let khugepaged =
        r#"kernel.threads.khugepaged={"scan_sleep_cycles":20000,"pages_to_scan":4096,"max_ptes_none":511}"#;
    for table in page_tables_of_programs() {
        for &page_size in table.page_sizes().iter().filter(|&&size| size < PageSize::Size1G) {
            // A few large pages.
            let limit =
                if page_size == PageSize::Size4K { SHORT_OF_MEMORY[1] } else { "kernel.cgroup_limit_bytes=8MiB" };
            let mut config = with("radix", &[SHORT_OF_MEMORY[0], limit, khugepaged]);
            let layer = &mut config.system.layers[0];
            layer.page_size = page_size;
            set_page_table(layer, &table);
            check(&config, 4);
        }
    }
}

#[test]
fn every_fault_engine_translates_right_under_every_page_table() {
    let kind = |engine: &FaultEngineConfig| serde_json::to_value(engine).unwrap()["kind"].as_str().unwrap().to_owned();
    let sampled: std::collections::BTreeSet<String> = FaultEngineConfig::samples().iter().map(kind).collect();
    let designs = fault_engines::DESIGNS.iter().map(|&(design, _)| design.to_owned()).collect();
    assert_eq!(sampled, designs, "the kinds that have samples, and those that there are");
    for engine in FaultEngineConfig::samples() {
        let name = kind(&engine);
        assert!(fault_engines::DESIGNS.iter().any(|(design, text)| *design == name && !text.is_empty()), "{name}");
        let storage =
            DeviceConfig::samples().into_iter().max_by_key(|device| device.striping().drives).expect("there are some");
        let tables = with_each_page_table(system("radix")).map(|config| with_storage(config, &storage));
        let mut tested = 0;
        for mut config in
            tables.chain([system("nested-radix-cold"), with_storage(with("radix", &SHORT_OF_MEMORY), &storage)])
        {
            config.system.layers.iter_mut().for_each(|layer| layer.fault_engine = Some(engine.clone()));
            let mut fits = false;
            for page_size in [PageSize::Size4K, PageSize::Size2M] {
                config.system.layers.iter_mut().for_each(|layer| layer.page_size = page_size);
                if config.validate().is_ok() {
                    check(&config, 6);
                    (fits, tested) = (true, tested + 1);
                }
            }
            // Tables whose small or large entries have no room for words, or none for marks; or guests.
            let table = &config.system.layers[0].page_table;
            let words = table.keeps_words().unwrap_or(&[]);
            let could = words.contains(&PageSize::Size2M) && table.keeps_marks() && config.system.layers.len() == 1;
            assert!(fits || !could, "{engine:?} fits no {}", table.name());
        }
        assert!(tested > 3, "{name}");
    }
}

#[test]
fn every_core_model_has_samples_and_can_be_configured() {
    let sampled: BTreeSet<_> = CoreConfig::samples().iter().map(CoreConfig::name).collect();
    assert_eq!(sampled, core_model::DESIGNS.iter().map(|(name, _)| *name).collect());
    for core in CoreConfig::samples() {
        core.validate("core").unwrap();
        check_choice(&core, core.name(), core_model::DESIGNS[0].0, &schemars::schema_for!(CoreConfig));
    }
}

/// What becomes of a guess of a page.
#[derive(Clone, Copy)]
enum Guess {
    None,
    /// The access goes on so long after the miss.
    Right(Cycles),
    /// The core begins again, which takes so long.
    Wrong(Cycles),
}

/// Stalls of an access: for the access itself, its translation and its data.
fn stalls(
    core: &mut CoreModel,
    access: &Access,
    miss: L1TlbMiss,
    guess: Guess,
    data: Data,
    mut at: CoreTime,
) -> [Stall; 3] {
    let mut all = [Stall::default(); 3];
    all[0] = core
        .begin_access(IncomingAccess { access, again: false, has_dependencies: true, branches: Branches::NONE }, at);
    at.now += all[0].sum();
    if let Guess::Right(guessed) = guess {
        let (stall, verified) = core.guessed_translation_stall(miss, guessed, at);
        at.now += stall.sum();
        (all[1], all[2]) = (stall, core.verified_data_stall(data, verified, at));
        return all;
    }
    all[1] = core.translation_stall(miss, at);
    at.now += all[1].sum();
    if let Guess::Wrong(penalty) = guess {
        let stall = core.drop_younger(penalty, at);
        at.now += stall.sum();
        all[1] += stall;
    }
    all[2] = core.data_stall(data, at);
    all
}

#[test]
fn every_core_model_completes_a_guessed_access_with_the_later_of_data_and_walk() {
    let load = Access { gap: 1, ..Access::new(AccessKind::Load, 0, 8) };
    for (guessed, walk, latency) in
        [(12, 100, 4), (12, 100, 88), (12, 100, 89), (12, 100, 300), (0, 1, 4), (107, 100, 4)]
    {
        for config in CoreConfig::samples() {
            let mut core = CoreModel::new(&config, Cycles(4));
            let miss = L1TlbMiss { look_up: Cycles(7), walk: Cycles(walk), page: None, fetches: false };
            let at = CoreTime { instructions: 1000, now: Cycles(1000) };
            // Hidden latencies of hits are hidden from data alone.
            let overlaps = config.name() == "window";
            let hidden = if overlaps { Cycles::ZERO } else { Cycles(4) - core.repeat_stall() };
            let data = Data { latency: Cycles(latency), line: 9, traffic: None };
            let said = stalls(&mut core, &load, miss, Guess::Right(Cycles(guessed)), data, at);
            let stalled: Cycles = said.iter().map(|stall| stall.sum()).sum();
            let drained = core.drain(CoreTime { now: at.now + stalled, ..at }).sum();
            let enters = core.base_cycles(1001) - core.base_cycles(1000);
            let whole = Cycles((7 + walk).max(guessed + latency - hidden.0));
            let entered = if overlaps { enters } else { Cycles::ZERO };
            assert!(
                stalled + drained == whole || stalled + drained == whole + entered,
                "{config:?}: {stalled:?} and {drained:?} of {whole:?}"
            );
        }
    }
}

#[test]
fn every_core_model_stalls_at_most_for_the_given_latency() {
    const L1_LATENCY: Cycles = Cycles(4);
    for config in CoreConfig::samples() {
        let mut rng = Rng::new(case_seed(7), "core models");
        let mut core = CoreModel::new(&config, L1_LATENCY);
        let (mut again, mut copied) = (core.clone(), None);
        let (repeat_stall, mut at) = (core.repeat_stall(), CoreTime { instructions: 0, now: Cycles::ZERO });
        let (mut told, mut stalled) = (Cycles::ZERO, Cycles::ZERO);
        assert_eq!(core.base_cycles(0), Cycles::ZERO);
        assert!(repeat_stall <= L1_LATENCY);
        for n in 0..cases(2000_u64) {
            if rng.below(50) == 0 {
                let drained = core.drain(at);
                assert_eq!(again.drain(at), drained);
                copied.iter_mut().for_each(|copy: &mut CoreModel| assert_eq!(copy.drain(at), drained));
                assert_eq!(core.drain(CoreTime { now: at.now + drained.sum(), ..at }), Stall::default(), "it is empty");
                stalled += drained.sum();
                at.now += drained.sum() + Cycles(5000);
            }
            let kind = [AccessKind::Load, AccessKind::Store, AccessKind::Modify][rng.below(3) as usize];
            let gap = rng.below(30) as u32;
            let access = Access { gap, maker: Maker::after(rng.below(20)), ..Access::new(kind, 0, 8) };
            let page =
                Translation::new(MachineAddr(rng.below(8) << 21), PageSize::ALL[rng.below(2) as usize], true, true);
            let miss = L1TlbMiss {
                look_up: Cycles(7),
                walk: Cycles(rng.below(300)),
                page: (rng.below(3) > 0).then_some(page),
                fetches: rng.below(20) == 0,
            };
            let (latency, line) = (L1_LATENCY + Cycles(rng.below(300)), rng.below(100));
            let data = || Data { latency, line, traffic: None };
            let (penalty, guess) = match rng.below(if miss.fetches { 1 } else { 4 }) {
                0 | 1 => (Cycles::ZERO, Guess::None),
                2 => (Cycles::ZERO, Guess::Right(Cycles(rng.below((miss.look_up + miss.walk).0)))),
                _ => (Cycles(20), Guess::Wrong(Cycles(20))),
            };
            let said = stalls(&mut core, &access, miss, guess, data(), at);
            let same = stalls(&mut again, &access, miss, guess, data(), at);
            assert_eq!(said, same, "{config:?}: it follows from the calls");
            if n == 1000 {
                copied = Some(core.clone());
            } else if let Some(copy) = &mut copied {
                assert_eq!(stalls(copy, &access, miss, guess, data(), at), said, "{config:?}: a copy says the same");
            }
            let stall: Cycles = said.iter().map(|stall| stall.sum()).sum();
            (told, stalled) = (told + miss.look_up + miss.walk + penalty + latency, stalled + stall);
            assert!(stalled <= told, "{config:?}: {stalled:?} stalled for {told:?}");
            let instructions = at.instructions + u64::from(gap);
            let base = core.base_cycles(instructions) - core.base_cycles(at.instructions);
            at = CoreTime { instructions, now: at.now + stall + base };
            assert_eq!(core.repeat_stall(), repeat_stall, "{config:?}: a constant");
        }
        assert!(copied.is_some() && stalled > Cycles::ZERO);
    }
}

#[test]
fn every_core_model_runs_programs() {
    for core in CoreConfig::samples() {
        for name in ["radix", "nested-radix-2m-cold"] {
            let mut config = system(name);
            config.machine.core = core.clone();
            check(&config, 8);
        }
    }
}

#[test]
fn every_prefetcher_runs_programs() {
    for level in CacheLevel::ALL {
        for sample in LevelPrefetchConfig::samples(level) {
            let mut config = system("nested-radix-2m-cold");
            let prefetch = &mut config.machine.prefetch;
            *[&mut prefetch.l1, &mut prefetch.l2, &mut prefetch.l3][level as usize] = sample;
            check(&config, 2);
        }
    }
    for name in ["radix", "nested-radix-2m-cold", "radix-thp"] {
        for core in CoreConfig::samples() {
            let mut config = with(name, &["machine.prefetch.tlb.next_page=on", "machine.prefetch.l2.stream=on"]);
            config.machine.core = core;
            check(&config, 4);
        }
    }
}

#[test]
fn every_form_of_translation_cache_translates_right() {
    for cache in TranslationCacheConfig::samples() {
        // A page of 2 MiB need not fit into a cgroup of the same size.
        for (name, overrides) in [
            ("radix", &SHORT_OF_MEMORY[..]),
            ("radix-2m", &[]),
            ("radix-5level", &SHORT_OF_MEMORY),
            ("nested-radix-cold", &[]),
        ] {
            let mut config = with(name, overrides);
            config.kernel.translation_cache = Some(cache);
            check(&config, 4);
        }
    }
}

#[test]
fn every_preset_translates_right() {
    presets(PresetKind::System).for_each(|preset| _ = check(&small(preset.name), 8));
}

/// A preset with little memory, which includes segments and tables allocated at boot.
fn small(name: &str) -> Config {
    let mut config = system(name);
    let memory = &mut config.machine.memory_bytes;
    if config.system.layers.iter().any(|layer| layer.page_size == PageSize::Size1G) {
        memory.0 = 3 << 30;
    }
    let whole = memory.0;
    for layer in &mut config.system.layers {
        let segment = if layer.host.is_some() { whole / 8 } else { whole / 4 };
        layer.direct_segment_bytes.iter_mut().for_each(|bytes| bytes.0 = bytes.0.min(segment));
        layer.memory_bytes.iter_mut().for_each(|bytes| bytes.0 = bytes.0.min(whole / 4));
    }
    config
}
