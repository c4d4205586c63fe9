//! Recording a program.

use std::{
    ffi::OsString,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use pagelab_trace::{
    TraceError,
    record::{Follow, Method, RecordSummary, Recording, StretchRequest, Stretches, prepare_tool},
};
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::errors::IntoPython;
use crate::supervise::supervise;

/// Compiles the Valgrind tool from the sources in `source_dir` into `cache_dir`, unless that was done before, and
/// returns the folder to give to [`record_json`].
#[pyfunction]
fn prepare_recorder(py: Python<'_>, source_dir: PathBuf, cache_dir: PathBuf) -> PyResult<PathBuf> {
    supervise(py, |_| prepare_tool(&source_dir, &cache_dir), |_| Ok(()))
}

/// Fails if stretches, given as JSON, are none that can be recorded.
#[pyfunction]
fn check_stretches(json: &str) -> PyResult<()> {
    parse_stretches(Some(json)).map(drop).map_err(IntoPython::into_python)
}

/// Runs `command` and records it into a new trace at `output`: under Valgrind, with the tool in `tool_dir`, or without
/// it by single steps. The answer says what was recorded.
///
/// The recorder passes signals on to the program and goes on until that has ended, so a caller that wants the trace
/// of an interrupted program installs a handler for SIGINT that raises nothing. `progress(accesses)` is called about
/// ten times a second.
#[pyfunction]
#[pyo3(signature = (command, output, tool_dir, max_accesses=None, max_threads=None, progress=None, stretches=None, follow=None, dependencies=true, max_bytes=None, max_seconds=None, replace=false, anonymous=false, call_stacks=false, patience_seconds=None))]
#[expect(clippy::too_many_arguments, reason = "Python names them")]
fn record_json(
    py: Python<'_>,
    command: Vec<OsString>,
    output: PathBuf,
    tool_dir: Option<PathBuf>,
    max_accesses: Option<u64>,
    max_threads: Option<u32>,
    progress: Option<Bound<'_, PyAny>>,
    stretches: Option<&str>,
    follow: Option<&str>,
    dependencies: bool,
    max_bytes: Option<u64>,
    max_seconds: Option<f64>,
    replace: bool,
    anonymous: bool,
    call_stacks: bool,
    patience_seconds: Option<f64>,
) -> PyResult<String> {
    let duration = |name: &str, seconds: Option<f64>| {
        let duration = seconds.map(Duration::try_from_secs_f64).transpose();
        duration.map_err(|e| TraceError::usage(format!("{name}: {e}")).into_python())
    };
    let max_time = duration("max_seconds", max_seconds)?;
    let patience = duration("patience_seconds", patience_seconds)?;
    let follow = parse_follow(follow).map_err(IntoPython::into_python)?;
    let stretches = parse_stretches(stretches).map_err(IntoPython::into_python)?;
    let recorded = AtomicU64::new(0);
    let work = |_: &_| {
        let method = tool_dir.map_or(Method::SingleSteps, |tool_dir| Method::Valgrind { tool_dir });
        let mut recording = Recording::by(method, command);
        recording.max_accesses = max_accesses;
        recording.max_bytes = max_bytes;
        recording.max_time = max_time;
        recording.patience = patience.unwrap_or(recording.patience);
        recording.replace = replace;
        recording.anonymous = anonymous;
        recording.call_stacks = call_stacks;
        recording.stretches = stretches;
        recording.follow = follow;
        recording.dependencies = dependencies;
        recording.max_threads = max_threads.unwrap_or(recording.max_threads);
        recording.progress = Some(Box::new(|progress| recorded.store(progress.accesses, Ordering::Relaxed)));
        let (program, trace) = recording.run(&output)?;
        let mut answer = summary_json(&program);
        answer["size_bytes"] = trace.size_bytes.into();
        answer["content_hash"] = trace.content_hash.into();
        Ok::<_, TraceError>(answer.to_string())
    };
    supervise(py, work, |_| match &progress {
        Some(progress) => progress.call1((recorded.load(Ordering::Relaxed),)).map(drop),
        None => Ok(()),
    })
}

/// The stretches to record, given as JSON (`pagelab_trace::record::StretchRequest`).
pub fn parse_stretches(json: Option<&str>) -> Result<Option<Stretches>, TraceError> {
    let Some(json) = json else { return Ok(None) };
    let request: StretchRequest = serde_json::from_str(json).map_err(|error| TraceError::usage(error.to_string()))?;
    request.parse()
}

/// Which children to follow, as `K/N`.
pub fn parse_follow(text: Option<&str>) -> Result<Option<Follow>, TraceError> {
    text.map(str::parse).transpose()
}

/// What a recording came to.
pub fn summary_json(program: &RecordSummary) -> Value {
    json!({
        "accesses": program.accesses,
        "processes": program.processes,
        "threads": program.threads,
        "exit_code": program.exit_code,
        "signal": program.signal,
        "truncated_at": program.truncated_at,
        "truncated_by": program.truncated_by.map(|bound| bound.option()),
        "gave_up": program.gave_up,
        "notes": program.notes,
        "losses": program.losses,
        "stretches": program.stretches,
        "elapsed_seconds": program.elapsed.as_secs_f64(),
    })
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(prepare_recorder, module)?)?;
    module.add_function(wrap_pyfunction!(check_stretches, module)?)?;
    module.add_function(wrap_pyfunction!(record_json, module)?)
}
