//! A run requested from outside: sources, systems and overrides in, results out.
//!
//! Each system is a separate simulation with its own copy of the sources, so several can run in parallel on host
//! threads without affecting each other. A result contains the effective configuration and the statistics.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pagelab_trace::{Source, SourceInfo, suggestion::nearest, workload};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{Assembly, PresetKind, assemble, presets};
use crate::run::sample::{self, SampleReport};
pub use crate::run::sources::SourceResult;
use crate::run::sources::{Announced, Placement};
use crate::run::system_text::{SystemText, labels};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::measure::Meaning;
use pagelab_hardware::core_model::{CoreModel, Timing};
use pagelab_kernel::frames::contiguity::Run;
use pagelab_kernel::placement::PlacementConfig;
use pagelab_simulation::config::Config;
use pagelab_simulation::machine::simulation::Simulation;
use pagelab_simulation::observe::page_faults::{PageFaults, SeenFault};
use pagelab_simulation::observe::profile::ProfileReport;
use pagelab_simulation::observe::statistics::Statistics;
use pagelab_simulation::observe::windows::Windows;
use pagelab_translate::translation_unit::TlbPrefetchConfig;

/// Options of a run. Tests compare every other list of options with these names (`python/pagelab/run_options.py`).
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Traces (folders) and workload specs, each optionally followed by `@CPUS` (`@0`, `@1-3,5`) and
    /// `,memory_limit=SIZE`.
    pub sources: Vec<String>,
    /// Co-runners: sources of the same form that run at the same time and restart whenever they end.
    #[serde(default)]
    pub with: Vec<String>,
    /// Short-lived processes that arrive during the run:
    /// `SPEC[@CPUS],per_second=RATE[,count=N][,spacing=uniform|poisson] [,memory_limit=SIZE]`.
    #[serde(default)]
    pub arrivals: Vec<String>,
    /// System presets or TOML files, each optionally followed by `@KERNEL`, which replaces `kernel`, and by overrides
    /// for that system alone, `{key=value,…}`. All are run.
    pub systems: Vec<String>,
    /// Machine preset or TOML file; none for the default preset.
    #[serde(default)]
    pub machine: Option<String>,
    /// Kernel preset or TOML file for systems without `@KERNEL`; none for the default preset.
    #[serde(default)]
    pub kernel: Option<String>,
    /// `key=value` overrides of all systems.
    #[serde(default)]
    pub set: Vec<String>,
    /// Overrides `engine.seed`.
    #[serde(default)]
    pub seed: Option<u64>,
    /// Maximum number of accesses replayed per source.
    #[serde(default)]
    pub max_accesses: Option<u64>,
    /// Total accesses of the main sources before counting begins.
    #[serde(default)]
    pub warm_up: Option<u64>,
    /// Also report statistics for this many equal parts of the run; for at least half as many if a source's number of
    /// accesses is unknown.
    #[serde(default)]
    pub windows: Option<u32>,
    /// Whether results contain the physical location of the main sources' pages at their end.
    #[serde(default)]
    pub contiguity_map: bool,
    /// Whether results contain each page fault of programs, from the beginning of the run; for one system only.
    #[serde(default)]
    pub page_faults: bool,
    /// Whether results attribute paging costs to the programs' memory and code.
    #[serde(default)]
    pub profile: bool,
    /// Number of legal orders of the main sources' threads to replay, including the recorded one.
    #[serde(default)]
    pub interleavings: Option<u32>,
    /// Overrides `engine.sample`.
    #[serde(default)]
    pub sample: Option<String>,
    /// Overrides `engine.check`.
    #[serde(default)]
    pub check: bool,
    /// Maximum number of systems simulated in parallel. Results do not depend on it.
    #[serde(default)]
    pub threads: Option<usize>,
}

/// Progress of one system's simulation.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Label of the system.
    pub system: String,
    /// Accesses replayed so far.
    pub accesses_done: u64,
    /// None if a source's number of accesses is unknown.
    pub accesses_total: Option<u64>,
}

/// One system's result.
#[derive(Clone, Debug, Serialize)]
pub struct SystemResult {
    /// Its name, with `@KERNEL` if given.
    pub system: String,
    /// Its name, plus what distinguishes it from the other systems of the run.
    pub label: String,
    /// The overrides for this system alone.
    pub settings: Vec<String>,
    /// Name of the machine.
    pub machine: String,
    /// Main sources, then co-runners, then arrivals.
    pub sources: Vec<SourceResult>,
    /// The seed of all random choices.
    pub seed: u64,
    /// Maximum number of accesses replayed per source; none for all.
    pub max_accesses: Option<u64>,
    /// Accesses of the main sources before counting began; none without a warm-up.
    pub warm_up: Option<u64>,
    /// The effective configuration.
    pub config: Config,
    /// Accesses handled by the simulator's fast path (`engine.fast_path`). It is not a property of the simulated
    /// system.
    #[serde(skip)]
    pub fast_path_accesses: u64,
    /// Statistics by name; [`Results::statistics`] explains the names.
    pub stats: BTreeMap<String, u64>,
    /// The statistics of each part, in order.
    pub windows: Vec<BTreeMap<String, u64>>,
    /// The statistics of each order of threads, the recorded one first, if several were requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<BTreeMap<String, u64>>,
    /// By layer: runs of adjacent pages in adjacent frames, as first page, first frame and length.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub contiguity_map: BTreeMap<String, Vec<Run>>,
    /// The profile, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileReport>,
    /// How the source was sampled, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample: Option<SampleReport>,
    /// Warnings about anything that affects the run's results, such as rejected accesses.
    pub warnings: Vec<String>,
    /// Page faults, if requested.
    #[serde(skip)]
    pub page_faults: Vec<SeenFault>,
    #[serde(skip)]
    meanings: BTreeMap<String, Meaning>,
}

/// Results of a request, in the order of its systems.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// Version of pagelab that produced them.
    pub version: &'static str,
    /// One per system, in the order of the request.
    pub results: Vec<SystemResult>,
    /// Meaning of every statistic in the results.
    pub statistics: BTreeMap<String, Meaning>,
}

/// Maximum number of parts of a run.
const MAX_WINDOWS: u32 = 1 << 12;
/// Maximum number of thread orders per system.
const MAX_ORDERS: u32 = 1000;

/// How often progress is reported.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Called from several threads in parallel; returning false interrupts the run.
pub type OnProgress<'a> = &'a (dyn Fn(&Progress) -> bool + Sync);

impl Request {
    /// Reads it from JSON.
    pub fn parse(json: &str) -> Result<Self, EngineError> {
        serde_json::from_str(json).map_err(|e| EngineError::config("request", e.to_string()))
    }
}

/// Runs every system of a request on all its sources. An error in one system ends the whole run.
pub fn run(request: &Request, progress: OnProgress) -> Result<Results, EngineError> {
    let systems = prepare(request, None)?;
    let orders = 0..request.interleavings.unwrap_or(1);
    let all = systems.iter().flat_map(|system| orders.clone().map(|order| system.with_order(order)));
    run_systems(request, &all.collect::<Vec<_>>(), Vec::new(), &AtomicBool::new(false), progress)
}

/// Runs systems that [`prepare`] has checked. `live` is empty, or contains one additional source per system, which
/// becomes its first main source; then all systems run in parallel. `stop` interrupts the run, and is set when a system
/// fails.
pub(crate) fn run_systems(
    request: &Request,
    systems: &[System],
    live: Vec<Box<dyn Source>>,
    stop: &AtomicBool,
    progress: OnProgress,
) -> Result<Results, EngineError> {
    let names: Vec<(&str, &[&str])> = systems
        .iter()
        .filter(|system| system.order == 0)
        .map(|system| (system.config.system.name.as_str(), &system.settings[..]))
        .collect();
    let labels = labels(&names);
    // The orders of a system are adjacent, the recorded one first.
    let of_orders: Vec<String> = systems
        .iter()
        .scan(0, |number, system| {
            *number += usize::from(system.order == 0);
            let label = &labels[*number - 1];
            Some(if system.order == 0 { label.clone() } else { format!("{label}, order {}", system.order) })
        })
        .collect();
    let at_once = if live.is_empty() { 1 } else { systems.len() };
    let live: Vec<_> = live.into_iter().map(|source| Mutex::new(Some(source))).collect();
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Option<Result<SystemResult, EngineError>>>> =
        Mutex::new(systems.iter().map(|_| None).collect());
    let worker = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(system) = systems.get(index) else { return };
            let going = |p: &Progress| !stop.load(Ordering::Relaxed) && progress(p);
            let live = live.get(index).and_then(|source| source.lock().expect("no worker panicked").take());
            let result = run_system(request, system, live, &of_orders[index], &going);
            if result.is_err() {
                stop.store(true, Ordering::Relaxed);
            }
            done.lock().expect("no worker panicked")[index] = Some(result);
        }
    };
    let host_threads = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = request.threads.unwrap_or(host_threads).clamp(at_once, systems.len());
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(worker)).collect();
        worker();
        for other in others {
            if let Err(panic) = other.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    let done = done.into_inner().expect("no worker panicked");
    let mut results: Vec<SystemResult> = Vec::new();
    let mut interrupted = None;
    for (system, result) in systems.iter().zip(done).filter_map(|(system, result)| Some((system, result?))) {
        match result {
            Ok(result) if system.order == 0 => results.push(result),
            Ok(other) => {
                let recorded = results.last_mut().expect("the recorded order is the first");
                if recorded.orders.is_empty() {
                    recorded.orders.push(recorded.stats.clone());
                }
                recorded.orders.push(other.stats);
            }
            // If another system's error interrupted this one, that error is returned.
            Err(EngineError::Interrupted) => interrupted = Some(EngineError::Interrupted),
            Err(error) => return Err(error),
        }
    }
    if let Some(error) = interrupted {
        return Err(error);
    }
    let statistics = results.iter().flat_map(|r| r.meanings.clone()).collect();
    Ok(Results { version: env!("CARGO_PKG_VERSION"), results, statistics })
}

/// Checks all configurations and sources of a request before the first simulation starts; `live` describes an
/// additional source.
pub(crate) fn prepare<'r>(request: &'r Request, live: Option<&SourceInfo>) -> Result<Vec<System<'r>>, EngineError> {
    if request.sources.is_empty() && request.arrivals.is_empty() && live.is_none() {
        return Err(EngineError::config(
            "sources",
            "name at least one trace or workload; `pagelab list workloads` shows them",
        ));
    }
    if request.systems.is_empty() {
        return Err(EngineError::config("systems", "name at least one system; `pagelab list systems` shows them"));
    }
    if request.max_accesses == Some(0) {
        return Err(EngineError::config("max_accesses", "0 leaves nothing to replay; allowed is 1 and more"));
    }
    if request.page_faults && request.systems.len() > 1 {
        return Err(EngineError::config("faults", "a fault trace covers one system: name only one"));
    }
    if request.page_faults && request.warm_up.is_some() {
        return Err(EngineError::config("faults", "a fault trace covers a whole run: omit the warm-up"));
    }
    if let Some(windows) = request.windows.filter(|windows| !(1..=MAX_WINDOWS).contains(windows)) {
        let what = format!("{windows} parts are not possible; allowed are 1 to {MAX_WINDOWS}");
        return Err(EngineError::config("windows", what));
    }
    if let Some(orders) = request.interleavings.filter(|orders| !(1..=MAX_ORDERS).contains(orders)) {
        let what = format!("{orders} orders are not possible; allowed are 1 to {MAX_ORDERS}");
        return Err(EngineError::config("interleavings", what));
    }
    let several_orders = request.interleavings.is_some_and(|orders| orders > 1);
    if several_orders && request.page_faults {
        return Err(EngineError::config("faults", "a fault trace covers one order: omit the interleavings"));
    }
    let systems = request.systems.iter().map(|text| System::new(request, text)).collect::<Result<Vec<_>, _>>()?;
    for system in &systems {
        let announced = live.map(|info| Box::new(Announced(info.clone())) as Box<dyn Source>);
        let placed = Placement::new(request, &system.config, announced)?.results;
        sample::check(request, &system.config, &placed)?;
        if several_orders && placed.iter().all(|source| source.role != "main" || source.threads <= 1) {
            let what = "no main source has several threads at once, so there is only one order: omit the interleavings";
            return Err(EngineError::config("interleavings", what));
        }
    }
    Ok(systems)
}

/// A system of a request: its configuration, and the settings for it alone.
pub(crate) struct System<'r> {
    config: Config,
    settings: Vec<&'r str>,
    /// Number of its thread order; 0 for the recorded one.
    order: u32,
}

impl<'r> System<'r> {
    /// Whether its cores model dependencies between accesses.
    pub(crate) fn models_dependencies(&self) -> bool {
        CoreModel::new(&self.config.machine.core, Cycles::ZERO).models_dependencies()
    }

    fn new(request: &Request, text: &'r str) -> Result<Self, EngineError> {
        let SystemText { system, kernel: own_kernel, set: settings } = SystemText::parse(text)?;
        let mut set = request.set.clone();
        set.extend(request.seed.map(|seed| format!("engine.seed={seed}")));
        set.extend(request.sample.as_ref().map(|sample| format!("engine.sample={sample}")));
        set.extend(request.check.then(|| "engine.check=on".to_owned()));
        set.extend(settings.iter().map(|&setting| setting.to_owned()));
        let kernel = own_kernel.or(request.kernel.as_deref());
        let machine = request.machine.as_deref();
        let assembled = assemble(&Assembly { machine, system: Some(system), kernel, set: &set });
        let mut config = assembled.map_err(|error| name_system(error, request, text))?;
        if own_kernel.is_some() {
            config.system.name = format!("{}@{}", config.system.name, config.kernel.name);
        }
        Ok(Self { config, settings, order: 0 })
    }

    /// A copy with another order of the sources' threads; 0 keeps the configured one.
    fn with_order(&self, order: u32) -> Self {
        let mut other = Self { config: self.config.clone(), settings: self.settings.clone(), order };
        if order > 0 {
            other.config.engine.interleaving = order;
        }
        other
    }
}

/// Adds to an error in a global override the name of the system for which it is wrong.
fn name_system(error: EngineError, request: &Request, text: &str) -> EngineError {
    match error {
        EngineError::Config { key, what } if request.systems.len() > 1 && !request.set.is_empty() => {
            let own = "for one system alone, write -s 'SYSTEM{KEY=VALUE}'";
            EngineError::config(key, format!("{what} (system `{text}`; {own})"))
        }
        other => other,
    }
}

fn run_system(
    request: &Request,
    System { config, settings, .. }: &System,
    live: Option<Box<dyn Source>>,
    label: &str,
    progress: OnProgress,
) -> Result<SystemResult, EngineError> {
    let Placement { mains, background, results: mut sources } = Placement::new(request, config, live)?;
    let config = &sample::resolve(config, &mains, request.max_accesses)?;
    let mut simulation = Simulation::with_load(config, mains, background, request.max_accesses)?;
    let mains = &simulation.programs.inputs[..simulation.programs.load.mains];
    let total = mains.iter().map(|input| input.total()).sum::<Option<u64>>().filter(|_| !mains.is_empty());
    let warm_up = request.warm_up.unwrap_or(0);
    let tops = simulation.kernels.os.tops();
    for (index, source) in sources.iter_mut().enumerate() {
        source.layer = simulation.kernels.os.layers[tops[index % tops.len()]].name.clone();
    }
    simulation.observers.windows = Windows::new(warm_up, request.windows, total);
    if request.contiguity_map {
        let tops = simulation.kernels.os.tops().to_vec();
        tops.into_iter().for_each(|top| simulation.kernels.os.layers[top].counters.contiguity_map = Some(Vec::new()));
    }
    simulation.observers.page_faults = request.page_faults.then(PageFaults::default);
    if request.profile {
        simulation.start_profile(config.engine.seed, warm_up)?;
    }
    let report = |accesses_done| progress(&Progress { system: label.to_owned(), accesses_done, accesses_total: total });
    let mut reported = Instant::now();
    simulation.run(&mut |done| {
        if reported.elapsed() < PROGRESS_INTERVAL {
            return true;
        }
        reported = Instant::now();
        report(done)
    })?;
    let end = Statistics::collect(&simulation);
    if !simulation.observers.windows.has_begun() && simulation.observers.windows.has_stretches() {
        let what = "all replayed accesses are in skipped stretches, so nothing can be measured";
        return Err(EngineError::config("sources", what));
    }
    if !simulation.observers.windows.has_begun() {
        let what = format!(
            "the main sources ended after {} accesses, before a warm-up of {warm_up} ended: use a shorter one",
            simulation.programs.dealt()
        );
        return Err(EngineError::config("warm_up", what));
    }
    let in_parts = request.windows.is_some() || simulation.observers.windows.has_stretches();
    let windows = if in_parts { simulation.observers.windows.parts(&end) } else { Vec::new() };
    let windows: Vec<_> = windows.into_iter().map(|part| part.values).collect();
    let main = simulation.programs.inputs.first();
    let sample = main.and_then(|main| SampleReport::new(&main.info, config.engine.seed, windows.len()));
    let statistics = simulation.observers.windows.counted(&end);
    report(simulation.programs.dealt());
    Ok(SystemResult {
        fast_path_accesses: simulation.replay.fast_path_accesses,
        system: config.system.name.clone(),
        label: label.to_owned(),
        settings: settings.iter().map(|&setting| setting.to_owned()).collect(),
        machine: config.machine.name.clone(),
        warnings: warnings(&simulation, &sources, &statistics, sample.as_ref(), windows.len()),
        sample,
        sources,
        profile: simulation.observers.profile.take().map(|profile| profile.report()),
        page_faults: simulation.observers.page_faults.take().map_or_else(Vec::new, PageFaults::in_order),
        seed: config.engine.seed,
        max_accesses: request.max_accesses,
        warm_up: request.warm_up,
        config: config.clone(),
        stats: statistics.values,
        windows,
        orders: Vec::new(),
        contiguity_map: simulation
            .kernels
            .os
            .layers
            .iter()
            .filter_map(|layer| Some((layer.name.clone(), layer.measured_map()?)))
            .collect(),
        meanings: statistics.meanings,
    })
}

/// Warnings about the run. Those about cold windows of a sample are in the sample's own.
fn warnings(
    simulation: &Simulation,
    sources: &[SourceResult],
    statistics: &Statistics,
    sample: Option<&SampleReport>,
    windows: usize,
) -> Vec<String> {
    let mut warnings = sample.map_or_else(Vec::new, |sample| sample.warnings(windows));
    for source in sources {
        if !source.complete {
            warnings.push(format!("{}: the recording is incomplete; the accesses in it were replayed", source.name));
        }
        if source.sampled {
            warnings.push(format!(
                "{}: the accesses are samples, so the counts of this run are not those of the program",
                source.name
            ));
        }
        if let (false, Some(assumed)) = (source.dependencies, simulation.scheduler.dependency_assumption()) {
            warnings.push(format!(
                "{}: its accesses contain no dependencies; the core treats them as {assumed} \
                 (`machine.core.unknown_dependencies`)",
                source.name
            ));
        }
        if !source.branches && simulation.scheduler.predicts() {
            warnings
                .push(format!("{}: it contains no branches; the core treats all as predicted correctly", source.name));
        }
        if source.mappings_inferred {
            warnings.push(format!(
                "{}: the trace had no events, so its mappings were inferred from its accesses",
                source.name
            ));
        }
    }
    let cold = simulation.observers.windows.cold_stretches();
    if cold > 0 && sample.is_none() {
        warnings.push(format!(
            "{cold} recorded windows directly follow a skipped stretch: they begin with TLBs and caches filled only by its \
             first touches, so they miss more; warm= in --windows warms them up"
        ));
    }
    let refused = statistics.values["accesses.refused"];
    if refused > 0 {
        let examples: Vec<String> = simulation
            .observers
            .refused
            .iter()
            .map(|r| format!("{} {:#x} at pc {:#x}", if r.write { "store" } else { "load" }, r.vaddr, r.pc))
            .collect();
        warnings.push(format!(
            "{refused} accesses were skipped, because no mapping covers them or its permissions forbid them: {}{}",
            examples.join(", "),
            if refused > examples.len() as u64 { ", …" } else { "" }
        ));
    }
    for layer in &simulation.kernels.os.layers {
        let idle = layer.mechanisms.engine.as_ref().and_then(|engine| engine.idle());
        warnings.extend(idle.map(|what| format!("layer {}: {what}", layer.name)));
    }
    warnings
}

/// One row of a list of presets or designs.
#[derive(Serialize)]
struct Row {
    name: String,
    description: String,
    /// The other preset, if this is its cold form.
    #[serde(skip_serializing_if = "Option::is_none")]
    cold_form_of: Option<&'static str>,
}

impl Row {
    fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self { name: name.into(), description: description.into(), cold_form_of: None }
    }
}

/// What [`list_json`] lists.
const KINDS: &[(&str, &str)] = &[
    ("workloads", "synthetic programs, with their parameters"),
    ("systems", "presets of page tables, MMU caches and page sizes, native and in virtual machines (-s)"),
    ("machines", "presets of cores, TLBs, caches and memory (-m)"),
    ("kernels", "presets of the work and cost of a kernel's page faults (-k, or SYSTEM@KERNEL)"),
    ("windows", "presets of cores that overlap accesses (machine.core=NAME)"),
    ("drives", "presets of devices for swap and files (kernel.storage=NAME, or a key `drive` of kernel.swap)"),
    ("page-tables", "designs of page tables (system.layers.NAME.page_table)"),
    ("mmu-caches", "designs of MMU caches (system.layers.NAME.mmu_cache)"),
    ("fault-engines", "hardware that handles page faults without the kernel (system.layers.NAME.fault_engine)"),
    ("placements", "ways of choosing frames (system.layers.NAME.placement)"),
    ("cores", "core models: cost of instructions and stalls for latencies (machine.core.model)"),
    ("prefetchers", "prefetchers of the data caches (machine.prefetch.l1.NAME, likewise l2 and l3) and of the TLBs"),
    ("translation-units", "hardware that caches translations in addition to the TLBs (machine.tlb)"),
    ("devices", "designs of devices for swap and files (kernel.swap.model, kernel.storage.model)"),
    ("kernel-threads", "kernel threads that run in the background (kernel.threads.NAME)"),
];

/// Describes all entries of one of the `KINDS`, as JSON. The kind `kinds` lists the kinds themselves, plus `others`,
/// which the caller can list.
pub fn list_json(kind: &str, others: &[(&str, &str)]) -> Result<String, EngineError> {
    let presets_of = |kind: PresetKind| {
        presets(kind)
            .map(|preset| {
                let table = preset.table();
                let description = table["description"].as_str().expect("presets are described").to_owned();
                Row { name: preset.name.to_owned(), description, cold_form_of: preset.warm }
            })
            .collect::<Vec<_>>()
    };
    let rows =
        |rows: &[(&str, &str)]| rows.iter().map(|&(name, description)| Row::new(name, description)).collect::<Vec<_>>();
    let list = match kind {
        "kinds" => rows(&[KINDS, others].concat()),
        "workloads" => return Ok(serde_json::to_string(&workload::list()).expect("documentation serialises")),
        "machines" => presets_of(PresetKind::Machine),
        "systems" => presets_of(PresetKind::System),
        "kernels" => presets_of(PresetKind::Kernel),
        "drives" => presets_of(PresetKind::Drive),
        "windows" => presets_of(PresetKind::Window),
        "page-tables" => rows(pagelab_tables::page_table::DESIGNS),
        "mmu-caches" => rows(pagelab_tables::mmu_cache::DESIGNS),
        "cores" => rows(pagelab_hardware::core_model::DESIGNS),
        "prefetchers" => rows(&[pagelab_hardware::cache::prefetch::DESIGNS, TlbPrefetchConfig::DESIGNS].concat()),
        "translation-units" => rows(pagelab_translate::translation_unit::DESIGNS),
        "devices" => rows(pagelab_hardware::device::DESIGNS),
        "kernel-threads" => rows(pagelab_kernel::threads::config::THREADS),
        "fault-engines" => rows(pagelab_kernel::fault_engine::config::DESIGNS),
        "placements" => {
            let designs = PlacementConfig::designs().into_iter();
            designs.map(|(name, about)| Row::new(name, about)).collect()
        }
        _ => {
            let known: Vec<&str> = KINDS.iter().chain(others).map(|(name, _)| *name).collect();
            let meant =
                nearest(kind, known.iter().copied()).map_or(String::new(), |near| format!("did you mean {near}? "));
            let what = format!("`{kind}` cannot be listed; {meant}there are {}", known.join(", "));
            return Err(EngineError::config("list", what));
        }
    };
    Ok(serde_json::to_string(&list).expect("rows serialise"))
}

/// JSON schema of a [`Request`].
pub fn request_schema_json() -> String {
    serde_json::to_string(&schemars::schema_for!(Request)).expect("a schema serialises")
}

/// JSON schema of the configuration.
pub fn schema_json() -> String {
    serde_json::to_string(&schemars::schema_for!(Config)).expect("a schema serialises")
}
