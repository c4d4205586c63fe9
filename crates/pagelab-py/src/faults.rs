//! Page faults in time: fault traces, and the models that run on them.

use std::path::PathBuf;

use pagelab_faults::{
    FaultTraceReader,
    import::{self, Facts},
    mfoe::{self, study::Request},
};
use pagelab_trace::TraceError;
use pyo3::prelude::*;
use serde::Serialize;

use crate::{errors::IntoPython, supervise::supervise};

/// Runs the event model of the minor-fault offload engine; `request` is JSON (`pagelab_faults::mfoe::study`).
#[pyfunction]
fn model_mfoe_json(py: Python<'_>, request: &str) -> PyResult<String> {
    let request: Request = read(request)?;
    supervise(py, |stop| mfoe::study(&request, &|| !stop.requested()).map(|study| json(&study)), |_| Ok(()))
}

/// Makes a fault trace of a text of perf or ftrace. `facts` is JSON (`pagelab_faults::import::Facts`), and so is the answer.
#[pyfunction]
fn import_faults_json(py: Python<'_>, input: PathBuf, output: PathBuf, facts: &str) -> PyResult<String> {
    let facts: Facts = read(facts)?;
    supervise(py, |_| import::import(&input, &output, &facts).map(|info| json(&info)), |_| Ok(()))
}

/// What a fault trace says of itself, as JSON.
#[pyfunction]
fn fault_trace_info_json(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    supervise(py, |_| FaultTraceReader::open(path).map(|reader| json(reader.info())), |_| Ok(()))
}

/// Runs one of the benchmarks of faults on this machine; the answer is JSON (`pagelab_host::FaultCost`).
#[pyfunction]
fn measure_fault_json(py: Python<'_>, name: &str) -> PyResult<String> {
    let measure = |_: &_| {
        let measured = pagelab_host::measure_fault(name);
        measured.map_err(|error| TraceError::usage(format!("what a fault takes cannot be measured here: {error}")))
    };
    supervise(py, measure, |_| Ok(())).map(|cost| json(&cost))
}

fn read<T: serde::de::DeserializeOwned>(request: &str) -> PyResult<T> {
    serde_json::from_str(request).map_err(|error| TraceError::usage(error.to_string()).into_python())
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data serialises")
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(model_mfoe_json, module)?)?;
    module.add_function(wrap_pyfunction!(import_faults_json, module)?)?;
    module.add_function(wrap_pyfunction!(fault_trace_info_json, module)?)?;
    module.add_function(wrap_pyfunction!(measure_fault_json, module)?)
}
