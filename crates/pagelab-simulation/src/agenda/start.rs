//! A simulation before its first access: the CPUs, and what runs on each.

use crate::cpu::fast_path;
use crate::machine::agenda::{Agenda, AgendaEntry};
use crate::machine::cpu::Cpu;
use crate::machine::kernels::Kernels;
use crate::machine::scheduler::Scheduler;
use crate::machine::simulation::{PlacedSource, ReplayOptions, Simulation};
use pagelab_base::addr::LINE_SHIFT;
use pagelab_base::error::EngineError;
use pagelab_base::ids::{MachineCore, NodeId};
use pagelab_hardware::cache::ReplacementPolicy;
use pagelab_hardware::core_model::CoreModel;
use pagelab_kernel::home::ProcessTarget;
use pagelab_kernel::layer::Layer;
use pagelab_kernel::os::Os;
use pagelab_kernel::threads::schedule::KernelThreads;
use pagelab_run::config::Config;
use pagelab_run::observe::Observers;
use pagelab_run::programs::Programs;
use pagelab_run::programs::cpus::Cpus;
use pagelab_run::programs::engine_calls::WithEngineCalls;
use pagelab_run::programs::input::Input;
use pagelab_run::programs::load::{BackgroundLoad, Load};
use pagelab_run::programs::reorder::Reordered;
use pagelab_run::programs::role::Role;
use pagelab_run::programs::vforks::with_vfork_waits;
use pagelab_trace::Source;
use pagelab_trace::sample::Sampled;
use pagelab_translate::config::MachineConfig;
use pagelab_translate::hardware::Hardware;

/// Passes the location of the CPUs to the kernels.
fn pass_cpu_locations(cpus: &Cpus, os: &mut Os, machine: &MachineConfig) {
    os.cores = cpus.machine_cores();
    if machine.memory.sizes_for_kernel().is_empty() {
        return;
    }
    let node = |&core: &MachineCore| machine.memory.node_of_core(core, machine.cores as usize);
    let nodes: Vec<NodeId> = os.cores.iter().map(node).collect();
    os.layers.iter_mut().filter(|layer| layer.host.is_none()).for_each(|layer| layer.set_cpu_nodes(&nodes));
}

impl Simulation {
    /// A machine that has booted and has run nothing yet. `sources` name CPUs below `machine.cores * threads_per_core`;
    /// only the cores in use are simulated.
    pub fn new(config: &Config, sources: Vec<PlacedSource>, max_accesses: Option<u64>) -> Result<Self, EngineError> {
        Self::with_load(config, sources, BackgroundLoad::default(), max_accesses)
    }

    /// Like [`Self::new`], with background load.
    pub fn with_load(
        config: &Config,
        sources: Vec<PlacedSource>,
        background: BackgroundLoad,
        max_accesses: Option<u64>,
    ) -> Result<Self, EngineError> {
        let machine = &config.machine;
        let mut used: Vec<usize> =
            sources.iter().flat_map(|s| s.cpus.iter().copied()).chain(background.cpus()).collect();
        used.sort_unstable();
        used.dedup();
        let mut kernels = Kernels::boot(config, used.len() as u32)?;
        let threads = machine.threads_per_core as usize;
        let places = Cpus::new(used, kernels.threads.len(), threads, machine.cores as usize * threads);
        let (core_of, cores) = places.cores();
        pass_cpu_locations(&places, &mut kernels.os, machine);
        let model = CoreModel::new(&machine.core, machine.cache.l1.latency_cycles.into());
        let cpu = |(core, &is_kernel_only)| {
            let mut cpu = Cpu::new(core, is_kernel_only, model.clone(), config.kernel.pcids);
            cpu.run_queue = config.kernel.scheduler.run_queue(config.kernel.quantum_cycles);
            if machine.cache.l1i.is_some() {
                cpu.filter.code_shift = LINE_SHIFT;
            }
            cpu
        };
        let mut cpus: Vec<Cpu> = core_of.into_iter().zip(&places.is_kernel_only).map(cpu).collect();
        let (tops, mains, window) = (kernels.os.tops().to_vec(), sources.len(), config.engine.input_window_accesses);
        let (mut many, mut inputs) = (!background.is_empty() || !kernels.threads.is_empty(), Vec::new());
        let mut homes = (0..).map(|index: usize| tops[index % tops.len()]);
        let mut home = |name: String, limit| {
            let layer = homes.next().expect("there is no end of them");
            let layer_config = &config.system.layers[layer.index()];
            let is_for = |names: &Option<Vec<String>>| names.as_ref().is_none_or(|names| names.contains(&name));
            let (uses_placement, uses_fault_engine) =
                (is_for(&layer_config.placement_for), is_for(&layer_config.fault_engine_for));
            kernels.os.home(layer, &name, limit).map(|home| ProcessTarget { uses_placement, uses_fault_engine, ..home })
        };
        let models_dependencies = cpus.iter().any(|cpu| cpu.clock.models_dependencies());
        let limit = replayed(config, max_accesses);
        let mut begin = |inputs: &mut Vec<Input>, source: Box<dyn Source>, role, on: &[usize], home| {
            let on = places.places(on);
            let input = Input::new(source, models_dependencies, role, home, on, limit, window);
            let shared = input.threads_share();
            input.cpus.iter().for_each(|&cpu| cpus[cpu].add_lane(inputs.len(), shared));
            inputs.push(input);
        };
        for (number, placed) in sources.into_iter().enumerate() {
            let home = ProcessTarget { reported: true, ..home(format!("source.{number}"), placed.memory_limit)? };
            let source = with_engine_calls(config, placed.source);
            let source = reordered(config, with_vfork_waits(sampled(config, source, max_accesses)?));
            begin(&mut inputs, source, Role::Main, &placed.cpus, home);
        }
        for (number, co_runner) in background.co_runners.iter().enumerate() {
            let home = home(format!("co_runner.{number}"), co_runner.memory_limit)?;
            begin(&mut inputs, with_vfork_waits((co_runner.open)()?), Role::CoRunner(number), &co_runner.cpus, home);
        }
        let streams = background.arrivals.iter().enumerate();
        let streams = streams.map(|(number, stream)| home(format!("arrivals.{number}"), stream.memory_limit));
        let streams = streams.collect::<Result<Vec<_>, _>>()?;
        let load = Load::new(config, mains, background, streams, |cpus| places.places(cpus));
        // With devices, other threads of a program continue while one waits.
        let devices = kernels.os.layers.iter().any(|layer| layer.memory.reclaim.is_some());
        let takes_turns = !config.kernel.scheduler.is_recorded();
        many |= (devices || takes_turns) && inputs.iter().any(Input::threads_share);
        places.of_threads.iter().enumerate().for_each(|(thread, &cpu)| cpus[cpu].add_thread(thread));
        kernels.thread_cpus = places.of_threads;
        let (quantum, slice) = (config.engine.sync_quantum_cycles.into(), config.kernel.quantum_cycles.into());
        let agenda = first_entries(&kernels.threads, &load);
        let mut scheduler = Scheduler::new(cpus, cores.len(), agenda, quantum, slice);
        scheduler.many |= many;
        let mut hw = Hardware::new(&config.hardware(), &cores)?;
        let calls_ahead = kernels.os.layers.iter().any(Layer::calls_ahead);
        let replay = ReplayOptions {
            // Calls ahead of accesses precede all look-ups, which only the general code can do.
            fast_path: if calls_ahead { None } else { fast_path::choose(config, &mut hw, &kernels.os.layers) },
            fast_path_accesses: 0,
            filter_hits_only: machine.cache.l1.policy == ReplacementPolicy::Srrip,
            calls_ahead,
            needs_pc: machine.needs_pc(),
            watches_data: hw.caches.is_timed() || !machine.tlb.speculation.is_off(),
            lookahead: config.engine.lookahead.0,
        };
        let programs = Programs::new(inputs, load, max_accesses, window);
        Ok(Self { hw, kernels, scheduler, programs, observers: Observers::default(), replay })
    }
}

/// A main source with the calls of a fault engine that the configuration adds.
fn with_engine_calls(config: &Config, source: Box<dyn Source>) -> Box<dyn Source> {
    let calls = &config.engine.fault_engine_calls;
    if calls.is_empty() { source } else { Box::new(WithEngineCalls::new(source, &calls.0)) }
}

/// A main source, restricted to the windows that the configuration selects.
fn sampled(
    config: &Config,
    source: Box<dyn Source>,
    max_accesses: Option<u64>,
) -> Result<Box<dyn Source>, EngineError> {
    let engine = &config.engine;
    Ok(match engine.sample.sampling_for(source.info(), max_accesses)? {
        Some(sampling) => Box::new(Sampled::new(source, &sampling, engine.seed, max_accesses)),
        None => source,
    })
}

/// The limit of accesses for inputs. With sampling, the limit applies to what is read from the source, and an input may
/// replay more.
fn replayed(config: &Config, max_accesses: Option<u64>) -> Option<u64> {
    max_accesses.filter(|_| config.engine.sample.is_off())
}

/// A main source with its threads in the order that the configuration selects.
fn reordered(config: &Config, source: Box<dyn Source>) -> Box<dyn Source> {
    let engine = &config.engine;
    if engine.interleaving == 0 || source.info().threads <= 1 {
        return source;
    }
    Box::new(Reordered::new(source, engine.interleaving, engine.seed, engine.input_window_accesses))
}

/// The agenda at the start.
fn first_entries(kthreads: &KernelThreads, load: &Load) -> Agenda {
    let mut agenda = Agenda::default();
    kthreads.alarms().for_each(|(at, thread)| agenda.enter(at, AgendaEntry::Alarm { thread }));
    load.arrivals().for_each(|(at, stream)| agenda.enter(at, AgendaEntry::Arrival { stream }));
    agenda
}
