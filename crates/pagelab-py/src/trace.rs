//! Traces: what they hold, and importing those of other tools.

use std::{
    ops::ControlFlow,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use pagelab_trace::{
    Batch, FirstTouches, TraceError, export, format,
    import::{self, ImportFormat, ImportOptions},
    quantity, sample,
};
use pyo3::{exceptions::PyValueError, prelude::*};
use serde::Serialize;

use crate::{
    errors::IntoPython,
    supervise::{Stop, supervise},
};

/// What a trace holds, as JSON; with `footprint` also the pages it touches, for which all of it is read.
#[pyfunction]
fn trace_info_json(py: Python<'_>, path: &str, footprint: bool) -> PyResult<String> {
    let work = |_: &_| {
        let mut info = format::info(path)?;
        if footprint {
            info.footprint = Some(format::footprint(path)?);
        }
        Ok::<_, TraceError>(json(&info))
    };
    supervise(py, work, |_| Ok(()))
}

/// The first rows of a trace, as JSON.
#[pyfunction]
fn trace_head_json(py: Python<'_>, path: &str, rows: usize) -> PyResult<String> {
    py.detach(|| format::head(path, rows)).map(|rows| json(&rows)).map_err(IntoPython::into_python)
}

/// Imports a trace of another tool; the answer says what became of it. `progress(bytes, bytes_in_all)` is called about
/// ten times a second.
#[pyfunction]
#[pyo3(signature = (
    input, output, format, max_accesses=None, max_records=None, fields=None, record_bytes=None, remove_tags=false,
    leave_out_kernel=false, progress=None
))]
#[expect(clippy::too_many_arguments, reason = "Python names them")]
fn import_json(
    py: Python<'_>,
    input: PathBuf,
    output: PathBuf,
    format: &str,
    max_accesses: Option<u64>,
    max_records: Option<u64>,
    fields: Option<String>,
    record_bytes: Option<u32>,
    remove_tags: bool,
    leave_out_kernel: bool,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<String> {
    run_with_progress(py, progress.as_ref(), |update| {
        let limits = ImportOptions { max_accesses, max_records, ..ImportOptions::default() };
        let options = ImportOptions { fields, record_bytes, remove_tags, leave_out_kernel, ..limits };
        let format = ImportFormat::from_name(format)?;
        import::import(input, output, format, &options, &mut |p| update(p.read_bytes, p.total_bytes))
    })
}

/// Exports a trace for another tool; the answer lists the files. `progress(accesses, accesses_in_all)` is called about
/// ten times a second.
#[pyfunction]
#[pyo3(signature = (trace, output, format, thread=None, progress=None))]
fn export_json(
    py: Python<'_>,
    trace: PathBuf,
    output: PathBuf,
    format: &str,
    thread: Option<u32>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<String> {
    run_with_progress(py, progress.as_ref(), |update| {
        let format = export::ExportFormat::from_name(format)?;
        export::export(trace, output, format, thread, &mut |done, all| update(done, Some(all)))
    })
}

/// Writes a sample of a trace, or of a workload with a seed, as a trace; the answer says what became of it.
/// `progress(accesses, accesses_in_all)` is called about ten times a second.
#[pyfunction]
#[pyo3(signature = (source, output, sample, seed, max_accesses=None, reach=None, progress=None))]
#[expect(clippy::too_many_arguments, reason = "Python names them")]
fn save_sample_json(
    py: Python<'_>,
    source: &str,
    output: PathBuf,
    sample: Option<&str>,
    seed: u64,
    max_accesses: Option<u64>,
    reach: Option<u64>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<String> {
    run_with_progress(py, progress.as_ref(), |update| {
        let sampling = sample.map(str::parse).transpose()?;
        sample::save(source, &output, sampling, seed, max_accesses, reach, update)
    })
}

/// Writes a trace anew, without what tells of its owner.
#[pyfunction]
fn anonymize_trace(py: Python<'_>, trace: PathBuf, output: PathBuf) -> PyResult<()> {
    supervise(py, |_| format::anonymize(&trace, &output), |_| Ok(()))
}

/// Copies a trace with other advice on huge pages: for each such advice in it, a list of `(address, bytes, advice)`.
#[pyfunction]
fn replace_advice(
    py: Python<'_>,
    trace: PathBuf,
    output: PathBuf,
    replacements: Vec<Vec<(u64, u64, u32)>>,
) -> PyResult<()> {
    let advice = |(addr, len, advice)| format::Advice { addr, len, advice };
    let replacements: Vec<Vec<_>> =
        replacements.into_iter().map(|rows| rows.into_iter().map(advice).collect()).collect();
    supervise(py, |_| format::replace_advice(&trace, &output, &replacements), |_| Ok(()))
}

/// Does work that takes long, and gives its result as JSON. The work says how far it has come, and of how much if that
/// is known; `progress` is called with that about ten times a second, and Ctrl-C breaks the work.
fn run_with_progress<R: Serialize>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&mut dyn FnMut(u64, Option<u64>) -> ControlFlow<()>) -> Result<R, TraceError> + Send,
) -> PyResult<String> {
    let latest: Mutex<Option<(u64, Option<u64>)>> = Mutex::default();
    let update = |stop: &Stop| {
        let done = work(&mut |done, all| {
            *latest.lock().unwrap_or_else(PoisonError::into_inner) = Some((done, all));
            if stop.requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok::<_, TraceError>(json(&done))
    };
    supervise(py, update, |_| {
        let report = latest.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (progress, report) {
            (Some(progress), Some(report)) => progress.call1(report).map(drop),
            _ => Ok(()),
        }
    })
}

/// Names and descriptions.
type Formats = Vec<(&'static str, &'static str)>;

/// Names of the formats that can be imported and of those that can be exported, each with what it is.
#[pyfunction]
fn foreign_formats() -> (Formats, Formats) {
    let read = ImportFormat::KNOWN.iter().map(|(_, name, about)| (*name, *about));
    let written = export::ExportFormat::KNOWN.iter().map(|(_, name, about)| (*name, *about));
    (read.collect(), written.collect())
}

/// Writes a trace of one thread: `facts` is JSON, and `rows` are its accesses (`pagelab_trace::import::rows`).
#[pyfunction]
fn write_trace(py: Python<'_>, output: PathBuf, facts: &str, rows: &[u8]) -> PyResult<PathBuf> {
    let facts = serde_json::from_str(facts).map_err(|error| PyValueError::new_err(error.to_string()))?;
    py.detach(|| import::rows::write(&output, facts, rows)).map_err(IntoPython::into_python)
}

/// When the first `max_accesses` of a trace, or of a workload with a seed, touch pages for the first time: how many
/// accesses there are, how many pages, and how many accesses until the last new page.
#[pyfunction]
fn first_touches(py: Python<'_>, source: &str, seed: u64, max_accesses: u64) -> PyResult<(u64, u64, u64)> {
    let found = py.detach(|| FirstTouches::from_source(&mut *pagelab_trace::open(source, seed)?.source, max_accesses));
    found.map(|touches| (touches.accesses, touches.pages, touches.until)).map_err(IntoPython::into_python)
}

/// Reads `max_accesses` of a trace or generates as many of a workload, and does nothing with them: the rate that a
/// simulator without costs would have. Returns how many there were.
#[pyfunction]
fn drain(py: Python<'_>, source: &str, max_accesses: u64) -> PyResult<u64> {
    let work = |stop: &Stop| {
        let mut source = pagelab_trace::open(source, 1)?.source;
        let mut batch = Batch::default();
        let mut accesses = 0;
        while accesses < max_accesses && !stop.requested() && source.next_batch(&mut batch)? {
            accesses += batch.accesses.len() as u64;
        }
        Ok::<_, TraceError>(accesses)
    };
    supervise(py, work, |_| Ok(()))
}

/// Bytes in a size such as `256MiB`.
#[pyfunction]
fn parse_bytes(text: &str) -> PyResult<u64> {
    quantity::parse_bytes(text).map_err(IntoPython::into_python)
}

/// A count as people write it: `25M`.
#[pyfunction]
fn parse_count(text: &str) -> PyResult<u64> {
    quantity::parse_count(text).map_err(IntoPython::into_python)
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data serialises")
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(parse_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(trace_info_json, module)?)?;
    module.add_function(wrap_pyfunction!(trace_head_json, module)?)?;
    module.add_function(wrap_pyfunction!(import_json, module)?)?;
    module.add_function(wrap_pyfunction!(export_json, module)?)?;
    module.add_function(wrap_pyfunction!(save_sample_json, module)?)?;
    module.add_function(wrap_pyfunction!(anonymize_trace, module)?)?;
    module.add_function(wrap_pyfunction!(replace_advice, module)?)?;
    module.add_function(wrap_pyfunction!(foreign_formats, module)?)?;
    module.add_function(wrap_pyfunction!(write_trace, module)?)?;
    module.add_function(wrap_pyfunction!(first_touches, module)?)?;
    module.add_function(wrap_pyfunction!(drain, module)?)?;
    module.add_function(wrap_pyfunction!(parse_count, module)?)
}
