//! A run requested from outside: sources, systems and overrides in, results out.
//!
//! Each system is a separate simulation with its own copy of the sources, so several can run in parallel on host
//! threads without affecting each other. A result contains the effective configuration and the statistics.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pagelab_trace::{Source, SourceInfo};

use crate::run::request::{OnProgress, Request, Results, RunProgress, SystemResult};
use crate::run::sample;
use crate::run::sources::{Announced, Placement};
use crate::run::system_run::{System, run_system};
use crate::run::system_text::labels;
use pagelab_base::error::EngineError;

/// Maximum number of parts of a run.
const MAX_WINDOWS: u32 = 1 << 12;
/// Maximum number of thread orders per system.
const MAX_ORDERS: u32 = 1000;

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
            let going = |p: &RunProgress| !stop.load(Ordering::Relaxed) && progress(p);
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
