//! Runs, lists and the schema.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use pagelab_engine::{
    base::error::EngineError,
    config::{Assembly, PresetKind, assemble, presets},
    run::{self, Request, RunProgress, lines},
};
use pagelab_faults::catalogue;
use pagelab_trace::record::Recording;
use pyo3::prelude::*;

use crate::{
    errors::IntoPython,
    record, simulated_faults,
    supervise::{Stop, supervise},
};

/// Replays sources under systems; request and answer are JSON (`pagelab_engine::run`). The page faults go to a fault
/// trace at `faults`, if that is given.
///
/// `progress(system, accesses_done, accesses_total)` is called in the caller's thread about ten times a second.
#[pyfunction]
#[pyo3(signature = (request, progress=None, faults=None))]
fn run_json(
    py: Python<'_>,
    request: &str,
    progress: Option<Bound<'_, PyAny>>,
    faults: Option<PathBuf>,
) -> PyResult<String> {
    let mut request = Request::parse(request).map_err(IntoPython::into_python)?;
    request.page_faults = faults.is_some();
    let latest = Latest::default();
    supervise(
        py,
        |stop| {
            let results = run::run(&request, &|p: &RunProgress| latest.note(p, stop))?;
            if let Some(path) = faults {
                simulated_faults::write(&path, &request, &results.results[0]).map_err(EngineError::Trace)?;
            }
            Ok::<_, EngineError>(serde_json::to_string(&results).expect("results serialise"))
        },
        |_| latest.report(progress.as_ref()),
    )
}

/// Records `command` and replays it meanwhile under all systems of a request; the answer is a pair of results and of
/// what was recorded, as JSON. `cpus` is over how many CPUs the program's threads are spread, `tool_dir` what
/// `prepare_recorder` returned.
///
/// Signals are passed on to the program; a caller that wants the results so far installs a handler for SIGINT that
/// raises nothing.
#[pyfunction]
#[pyo3(signature = (request, command, tool_dir, cpus, max_threads=None, progress=None, stretches=None, follow=None))]
#[expect(clippy::too_many_arguments, reason = "Python names them")]
fn run_live_json(
    py: Python<'_>,
    request: &str,
    command: Vec<OsString>,
    tool_dir: PathBuf,
    cpus: u32,
    max_threads: Option<u32>,
    progress: Option<Bound<'_, PyAny>>,
    stretches: Option<&str>,
    follow: Option<&str>,
) -> PyResult<(String, String)> {
    let follow = record::parse_follow(follow).map_err(IntoPython::into_python)?;
    let stretches = record::parse_stretches(stretches).map_err(IntoPython::into_python)?;
    let request = Request::parse(request).map_err(IntoPython::into_python)?;
    let latest = Latest::default();
    supervise(
        py,
        |stop| {
            let mut recording = Recording::new(command, tool_dir);
            recording.max_accesses = request.max_accesses;
            recording.stretches = stretches;
            recording.follow = follow;
            recording.max_threads = max_threads.unwrap_or(recording.max_threads);
            let (results, summary) = run::run_live(&request, recording, cpus, &|p: &RunProgress| latest.note(p, stop))?;
            let recorded = record::summary_json(&summary);
            Ok::<_, EngineError>((serde_json::to_string(&results).expect("results serialise"), recorded.to_string()))
        },
        |_| latest.report(progress.as_ref()),
    )
}

/// The last progress of each system, until it is reported.
#[derive(Default)]
struct Latest(Mutex<BTreeMap<String, (u64, Option<u64>)>>);

impl Latest {
    /// Notes progress; false if the work is to stop.
    fn note(&self, progress: &RunProgress, stop: &Stop) -> bool {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        latest.insert(progress.system.clone(), (progress.accesses_done, progress.accesses_total));
        !stop.requested()
    }

    fn report(&self, progress: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(progress) = progress else { return Ok(()) };
        let reports = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        reports.into_iter().try_for_each(|(system, (done, total))| progress.call1((system, done, total)).map(drop))
    }
}

/// Replays references, eight bytes each, through the data caches of a machine; what was found by label, as JSON
/// (`pagelab_engine::run::lines`).
#[pyfunction]
fn replay_lines_json(py: Python<'_>, machine: Option<&str>, references: &[u8]) -> PyResult<String> {
    let each = references.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("they are eight")));
    let found = py.detach(|| lines::replay(machine, each)).map_err(IntoPython::into_python)?;
    Ok(serde_json::to_string(&found).expect("counts serialise"))
}

/// What there is of a kind (`systems`, `page-tables`, …), as JSON.
#[pyfunction]
fn list_json(kind: &str) -> PyResult<String> {
    if let Some(json) = catalogue::list_json(kind) {
        return Ok(json);
    }
    run::list_json(kind, catalogue::KINDS).map_err(IntoPython::into_python)
}

/// A machine, a preset or a file, as the configuration has it; none stands for the default.
#[pyfunction]
fn machine_json(machine: Option<&str>) -> PyResult<String> {
    let config = assemble(&Assembly { machine, ..Assembly::default() }).map_err(IntoPython::into_python)?;
    Ok(serde_json::to_string(&config.machine).expect("a machine serialises"))
}

/// Names and TOML texts of the presets of a kind, such as `machine`; none of what has no presets.
#[pyfunction]
fn preset_texts(kind: &str) -> Vec<(&'static str, String)> {
    let kinds = [PresetKind::Machine, PresetKind::System, PresetKind::Kernel, PresetKind::Drive, PresetKind::Window];
    let of_kind = kinds.into_iter().filter(|known| known.name() == kind);
    of_kind.flat_map(presets).map(|preset| (preset.name, preset.text())).collect()
}

/// The JSON schema of a request (`run_json`): the options of a run.
#[pyfunction]
fn request_schema_json() -> String {
    run::request_schema_json()
}

/// The JSON schema of the configuration.
#[pyfunction]
fn schema_json() -> String {
    run::schema_json()
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(run_json, module)?)?;
    module.add_function(wrap_pyfunction!(run_live_json, module)?)?;
    module.add_function(wrap_pyfunction!(list_json, module)?)?;
    module.add_function(wrap_pyfunction!(machine_json, module)?)?;
    module.add_function(wrap_pyfunction!(replay_lines_json, module)?)?;
    module.add_function(wrap_pyfunction!(preset_texts, module)?)?;
    module.add_function(wrap_pyfunction!(request_schema_json, module)?)?;
    module.add_function(wrap_pyfunction!(schema_json, module)?)
}
