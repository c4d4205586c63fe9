//! Page faults in time: fault traces, and the models that run on them.

use std::{num::NonZeroU32, path::PathBuf};

use pagelab_faults::{
    Fault, FaultAccess, FaultTraceInfo, FaultTraceReader,
    import::{self, Facts},
    mfoe::{self, study::StudyRequest},
    summary::Counts,
};
use pagelab_trace::TraceError;
use pyo3::prelude::*;
use serde::Serialize;

use crate::{errors::IntoPython, supervise::supervise};

/// Runs the event model of the minor-fault offload engine; `request` is JSON (`pagelab_faults::mfoe::study`).
#[pyfunction]
fn model_mfoe_json(py: Python<'_>, request: &str) -> PyResult<String> {
    let request: StudyRequest = read(request)?;
    supervise(py, |stop| mfoe::study(&request, &|| !stop.requested()).map(|study| json(&study)), |_| Ok(()))
}

/// Makes a fault trace of a text of perf or ftrace. `facts` is JSON (`pagelab_faults::import::Facts`), and so is the
/// answer.
#[pyfunction]
fn import_faults_json(py: Python<'_>, input: PathBuf, output: PathBuf, facts: &str) -> PyResult<String> {
    let facts: Facts = read(facts)?;
    supervise(py, |_| import::import(&input, &output, &facts).map(|info| json(&info)), |_| Ok(()))
}

/// What a fault trace says of itself and what it holds, counted; as JSON.
#[pyfunction]
fn fault_trace_info_json(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    #[derive(Serialize)]
    struct About {
        #[serde(flatten)]
        info: FaultTraceInfo,
        counts: Counts,
    }
    let about = |_: &_| {
        let reader = FaultTraceReader::open(path)?;
        let info = reader.info().clone();
        Ok::<_, TraceError>(json(&About { info, counts: Counts::from_reader(reader)? }))
    };
    supervise(py, about, |_| Ok(()))
}

/// The first faults of a fault trace, so many at most, as JSON.
#[pyfunction]
fn fault_trace_head_json(py: Python<'_>, path: PathBuf, rows: usize) -> PyResult<String> {
    #[derive(Serialize)]
    struct Row {
        time_ns: u64,
        core: u16,
        address: u64,
        access: Option<&'static str>,
        present: bool,
        by_kernel: bool,
        process: u32,
        thread: u32,
        latency_ns: Option<u32>,
    }
    let row = |&Fault { time_ns, core, address, kind, process, thread, latency_ns }: &Fault| Row {
        time_ns,
        core,
        address,
        access: kind.access.map(|access| match access {
            FaultAccess::Read => "read",
            FaultAccess::Write => "write",
            FaultAccess::Instruction => "fetch",
        }),
        present: kind.present,
        by_kernel: kind.by_kernel,
        process,
        thread,
        latency_ns: latency_ns.map(NonZeroU32::get),
    };
    let head = |_: &_| {
        let mut reader = FaultTraceReader::open(path)?;
        let (mut first, mut faults) = (Vec::new(), Vec::new());
        while first.len() < rows && reader.next(&mut faults)? {
            first.extend(faults.iter().take(rows - first.len()).map(row));
        }
        Ok::<_, TraceError>(json(&first))
    };
    supervise(py, head, |_| Ok(()))
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
    module.add_function(wrap_pyfunction!(fault_trace_head_json, module)?)?;
    module.add_function(wrap_pyfunction!(measure_fault_json, module)?)
}
