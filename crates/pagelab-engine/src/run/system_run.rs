//! One system of a request, from its configuration to its result.

use std::time::{Duration, Instant};

use pagelab_trace::Source;

use crate::config::{Assembly, assemble};
use crate::run::request::{OnProgress, Request, RunProgress, SystemResult};
use crate::run::sample::{self, SampleReport};
use crate::run::sources::{Placement, SourceResult};
use crate::run::system_text::SystemText;
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_hardware::core_model::{CoreModel, Timing};
use pagelab_kernel::scheduler::SchedulerConfig;
use pagelab_run::config::Config;
use pagelab_run::observe::page_faults::PageFaults;
use pagelab_run::observe::statistics::Statistics;
use pagelab_run::observe::windows::Windows;
use pagelab_simulation::machine::simulation::Simulation;

/// How often progress is reported.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// A system of a request: its configuration, and the settings for it alone.
pub(crate) struct System<'r> {
    pub(crate) config: Config,
    pub(crate) settings: Vec<&'r str>,
    /// Number of its thread order; 0 for the recorded one.
    pub(crate) order: u32,
}

impl<'r> System<'r> {
    /// Whether its cores model dependencies between accesses.
    pub(crate) fn models_dependencies(&self) -> bool {
        CoreModel::new(&self.config.machine.core, Cycles::ZERO).models_dependencies()
    }

    pub(crate) fn new(request: &Request, text: &'r str) -> Result<Self, EngineError> {
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
    pub(crate) fn with_order(&self, order: u32) -> Self {
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

/// Replays the sources under one system.
pub(crate) fn run_system(
    request: &Request,
    System { config, settings, .. }: &System,
    live: Option<Box<dyn Source>>,
    label: &str,
    progress: OnProgress,
) -> Result<SystemResult, EngineError> {
    let Placement { mains, background, results: mut sources } = Placement::new(request, config, live)?;
    let config = &sample::resolve(config, &mains, request.max_accesses)?;
    let mut simulation = Simulation::with_load(config, mains, background, request.max_accesses)?;
    let tops = simulation.kernels.os.tops();
    for (index, source) in sources.iter_mut().enumerate() {
        source.layer = simulation.kernels.os.layers[tops[index % tops.len()]].name.clone();
    }
    let total = total_accesses(&simulation);
    observe(&mut simulation, request, config.engine.seed, total)?;
    let report =
        |accesses_done| progress(&RunProgress { system: label.to_owned(), accesses_done, accesses_total: total });
    let mut reported = Instant::now();
    simulation.run(&mut |done| {
        if reported.elapsed() < PROGRESS_INTERVAL {
            return true;
        }
        reported = Instant::now();
        report(done)
    })?;
    let end = simulation.statistics();
    ensure_measured(&simulation, request.warm_up.unwrap_or(0))?;
    let in_parts = request.windows.is_some() || simulation.observers.windows.has_stretches();
    let windows = if in_parts { simulation.observers.windows.parts(&end) } else { Vec::new() };
    let windows: Vec<_> = windows.into_iter().map(|part| part.values).collect();
    let main = simulation.programs.inputs.first();
    let sample = main.and_then(|main| SampleReport::new(&main.info, config.engine.seed, windows.len()));
    let statistics = simulation.observers.windows.counted(&end);
    report(simulation.programs.dispatched());
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

/// Accesses of all main sources, if each of them knows its number.
fn total_accesses(simulation: &Simulation) -> Option<u64> {
    let mains = &simulation.programs.inputs[..simulation.programs.load.mains];
    mains.iter().map(|input| input.total()).sum::<Option<u64>>().filter(|_| !mains.is_empty())
}

/// Switches on what the request wants to know beside the statistics.
fn observe(simulation: &mut Simulation, request: &Request, seed: u64, total: Option<u64>) -> Result<(), EngineError> {
    let warm_up = request.warm_up.unwrap_or(0);
    simulation.observers.windows = Windows::new(warm_up, request.windows, total);
    if request.contiguity_map {
        let tops = simulation.kernels.os.tops().to_vec();
        tops.into_iter().for_each(|top| simulation.kernels.os.layers[top].counters.contiguity_map = Some(Vec::new()));
    }
    simulation.observers.page_faults = request.page_faults.then(PageFaults::default);
    if request.profile {
        simulation.start_profile(seed, warm_up)?;
    }
    Ok(())
}

/// Refuses a run of which nothing was measured.
fn ensure_measured(simulation: &Simulation, warm_up: u64) -> Result<(), EngineError> {
    let windows = &simulation.observers.windows;
    if windows.has_begun() {
        return Ok(());
    }
    if windows.has_stretches() {
        let what = "all replayed accesses are in skipped stretches, so nothing can be measured";
        return Err(EngineError::config("sources", what));
    }
    let what = format!(
        "the main sources ended after {} accesses, before a warm-up of {warm_up} ended: use a shorter one",
        simulation.programs.dispatched()
    );
    Err(EngineError::config("warm_up", what))
}

/// Share of all cycles that switches between threads may take before there is a warning, percent.
const MOST_SWITCHING_PERCENT: u64 = 10;

/// A warning if switches between threads take a large part of the run.
fn switches_dominate(simulation: &Simulation, statistics: &Statistics) -> Option<String> {
    let (switches, cycles) = (statistics.values["context_switches"], statistics.values["cycles"]);
    let each = simulation.kernels.os.costs.context_switch_cycles;
    let percent = (u128::from(switches) * u128::from(each) * 100 / u128::from(cycles.max(1))) as u64;
    (percent >= MOST_SWITCHING_PERCENT).then(|| {
        let order = match simulation.kernels.os.costs.scheduler {
            SchedulerConfig::Recorded => "threads that share a CPU run in the recorded order (`kernel.scheduler`)",
            SchedulerConfig::Cfs(_) | SchedulerConfig::Eevdf(_) => {
                "threads that share a CPU wait for each other often, or their slices are short \
                 (`kernel.quantum_cycles`, `engine.input_window_accesses`)"
            }
        };
        format!("{switches} switches between threads take {percent} % of all cycles: {order}")
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
    warnings.extend(switches_dominate(simulation, statistics));
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
