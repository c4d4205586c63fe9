//! What page faults cost on this machine.

use std::path::PathBuf;

use pagelab_host::{FAULTS, Report};
use pagelab_trace::TraceError;
use pyo3::prelude::*;

use crate::supervise::supervise;

/// Runs the micro-benchmarks on this machine; the answer is JSON (`pagelab_host::Report`).
#[pyfunction]
fn measure_host_json(py: Python<'_>) -> PyResult<String> {
    let report =
        supervise(py, |stop| Ok::<Report, TraceError>(pagelab_host::measure(&|| !stop.requested())), |_| Ok(()))?;
    Ok(serde_json::to_string(&report).expect("plain data serialises"))
}

/// Writes those of them that fault as traces into a folder; the answer is a JSON list of `pagelab_host::Traces`.
#[pyfunction]
fn host_traces_json(py: Python<'_>, folder: PathBuf) -> PyResult<String> {
    supervise(
        py,
        |_| {
            let traces = FAULTS.iter().map(|fault| pagelab_host::write_traces(fault, &folder));
            let traces = traces.collect::<Result<Vec<_>, _>>()?;
            Ok::<_, TraceError>(serde_json::to_string(&traces).expect("plain data serialises"))
        },
        |_| Ok(()),
    )
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(measure_host_json, module)?)?;
    module.add_function(wrap_pyfunction!(host_traces_json, module)?)
}
