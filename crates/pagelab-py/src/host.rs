//! What page faults cost on this machine.

use std::{collections::BTreeMap, path::PathBuf};

use pagelab_host::{Displacing, FAULTS, Touching};
use pagelab_trace::{TraceError, workload};
use pyo3::prelude::*;

use crate::{
    errors::IntoPython,
    supervise::{Stop, supervise},
};

/// Runs the micro-benchmarks on this machine; the answer is JSON (`pagelab_host::Report`).
#[pyfunction]
fn measure_host_json(py: Python<'_>) -> PyResult<String> {
    let measure = |stop: &Stop| {
        let report = pagelab_host::measure(&|| !stop.requested());
        report.map_err(|error| TraceError::usage(format!("this machine cannot be measured: {error}")))
    };
    let report = supervise(py, measure, |_| Ok(()))?;
    Ok(serde_json::to_string(&report).expect("plain data serialises"))
}

/// The rate of the core's clock of rates that chains of instructions tell, a JSON object of cycles per nanosecond by
/// name. The answer is JSON: `clock` (`pagelab_host::Clock`) and `stated_rates`, a list of `pagelab_host::StatedRate`.
#[pyfunction]
fn core_clock_json(rates: &str) -> PyResult<String> {
    let rates: BTreeMap<String, f64> =
        serde_json::from_str(rates).map_err(|error| TraceError::usage(error.to_string()).into_python())?;
    let clock = pagelab_host::agree_on_clock(&rates.into_iter().collect::<Vec<_>>())
        .map_err(|error| TraceError::usage(error.to_string()).into_python())?;
    let answer = serde_json::json!({ "clock": clock, "stated_rates": pagelab_host::stated_rates() });
    Ok(answer.to_string())
}

/// Writes those of them that fault as traces into a folder; the answer is a JSON list of `pagelab_host::Traces`.
#[pyfunction]
fn host_traces_json(py: Python<'_>, folder: PathBuf) -> PyResult<String> {
    supervise(
        py,
        |_| {
            let traces = FAULTS.iter().map(|fault| pagelab_host::write_traces(fault, &folder));
            let mut traces = traces.collect::<Result<Vec<_>, _>>()?;
            traces.extend(pagelab_host::write_call_traces(&folder)?);
            Ok::<_, TraceError>(serde_json::to_string(&traces).expect("plain data serialises"))
        },
        |_| Ok(()),
    )
}

/// Touches pages of a file that the page cache does not hold. `touching` is JSON (`pagelab_host::Touching`), and so is
/// the answer (`pagelab_host::Touches`).
#[pyfunction]
fn touch_file_json(py: Python<'_>, path: PathBuf, touching: &str) -> PyResult<String> {
    let touching: Touching =
        serde_json::from_str(touching).map_err(|error| TraceError::usage(error.to_string()).into_python())?;
    let touch = |stop: &Stop| {
        let touches = pagelab_host::touch(&path, &touching, &|| !stop.requested());
        touches.map_err(|error| TraceError::usage(format!("a file on a drive cannot be touched here: {error}")))
    };
    let touches = supervise(py, touch, |_| Ok(()))?;
    Ok(serde_json::to_string(&touches).expect("plain data serialises"))
}

/// What touching such pages pushes out of the caches. `displacing` is JSON (`pagelab_host::Displacing`), and so is the
/// answer (`pagelab_host::Displaced`).
#[pyfunction]
fn displace_json(py: Python<'_>, path: PathBuf, displacing: &str) -> PyResult<String> {
    let displacing: Displacing =
        serde_json::from_str(displacing).map_err(|error| TraceError::usage(error.to_string()).into_python())?;
    let displace = |stop: &Stop| {
        let displaced = pagelab_host::displace(&path, &displacing, &|| !stop.requested());
        displaced.map_err(|error| {
            TraceError::usage(format!("what faults push out of the caches cannot be measured here: {error}"))
        })
    };
    let displaced = supervise(py, displace, |_| Ok(()))?;
    Ok(serde_json::to_string(&displaced).expect("plain data serialises"))
}

/// Makes accesses of a workload by a naive simulator and on this machine, times those from `first_timed` on, and ends
/// before `end`; the answer is JSON (`pagelab_host::Yardsticks`).
#[pyfunction]
fn yardsticks_json(py: Python<'_>, workload: &str, first_timed: u64, end: u64, most_bytes: u64) -> PyResult<String> {
    let work = |stop: &Stop| {
        let mut source = workload::parse(workload, 1)?;
        pagelab_host::yardsticks(&mut *source, first_timed..end, most_bytes, &|| !stop.requested())
    };
    let measured = supervise(py, work, |_| Ok(()))?;
    Ok(serde_json::to_string(&measured).expect("plain data serialises"))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(measure_host_json, module)?)?;
    module.add_function(wrap_pyfunction!(core_clock_json, module)?)?;
    module.add_function(wrap_pyfunction!(host_traces_json, module)?)?;
    module.add_function(wrap_pyfunction!(touch_file_json, module)?)?;
    module.add_function(wrap_pyfunction!(displace_json, module)?)?;
    module.add_function(wrap_pyfunction!(yardsticks_json, module)?)
}
