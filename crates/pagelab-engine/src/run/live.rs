//! Simulates a program while recording it, without writing a trace. Results cover the part of the program that ran.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use pagelab_trace::record::{RecordSummary, Recording, live};
use pagelab_trace::{Source, SourceInfo};

use crate::run::job::{prepare, run_systems};
use crate::run::request::{OnProgress, Request, Results};
use crate::run::system_run::System;
use pagelab_base::error::EngineError;

/// Records a program and replays it at the same time under every system of a request, as its first main source. The
/// program's threads are spread over `cpus` CPUs. The program waits for the slowest system.
///
/// # Errors
/// Errors of the simulation, which end the program, and errors of the recording, as in [`Recording::run`].
pub fn run_live(
    request: &Request,
    mut recording: Recording<'_>,
    cpus: u32,
    progress: OnProgress,
) -> Result<(Results, RecordSummary), EngineError> {
    let name = recording.command.first().map(|name| Path::new(name).file_name().unwrap_or(name));
    let mut info = SourceInfo {
        name: name.map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
        accesses: None,
        threads: cpus,
        mappings_inferred: false,
        sampled: false,
        sampling: None,
        dependencies: false,
        branches: false,
        content_hash: None,
    };
    // Checked before the program starts.
    let systems = prepare(request, Some(&info))?;
    // Recording dependencies costs time.
    let models_dependencies = systems.iter().any(System::models_dependencies);
    (info.dependencies, info.branches) = (models_dependencies, models_dependencies);
    let (writer, readers) = live(&info, request.systems.len());
    let readers = readers.into_iter().map(|reader| Box::new(reader) as Box<dyn Source>).collect();
    let stop = AtomicBool::new(false);
    let (simulated, recorded, simulation_ended_it) = std::thread::scope(|scope| {
        let simulation = scope.spawn(|| {
            let results = run_systems(request, &systems, readers, &stop, progress);
            stop.store(true, Ordering::Relaxed);
            results
        });
        // Without this, a program that makes no accesses would not be ended, nor would systems that wait for its
        // accesses.
        recording.stop = Some(&stop);
        let recorded = recording.run_live(writer);
        let was_over = stop.load(Ordering::Relaxed);
        let simulated = simulation.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (simulated, recorded, was_over)
    });
    match (simulated, recorded) {
        (Ok(mut results), Ok(summary)) => {
            let sources = results.results.iter_mut().flat_map(|system| &mut system.sources);
            for source in sources.filter(|source| source.live) {
                source.stopped = summary.truncated_at.is_some();
                source.exit_status = (!source.stopped).then_some(summary.exit_code);
            }
            Ok((results, summary))
        }
        // Without readers the recording also ends or fails.
        (Err(error), _) if simulation_ended_it => Err(error),
        (_, Err(error)) => Err(error.into()),
        (Err(error), Ok(_)) => Err(error),
    }
}
