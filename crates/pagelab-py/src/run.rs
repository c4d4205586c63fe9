//! Runs, lists and the schema.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use pagelab_engine::run::{self, Progress};
use pagelab_faults::catalogue;
use pyo3::prelude::*;

use crate::{errors::IntoPython, supervise::supervise};

/// Replays sources under systems; request and answer are JSON (`pagelab_engine::run`).
///
/// `progress(system, accesses_done, accesses_total)` is called in the caller's thread about ten times a second.
#[pyfunction]
#[pyo3(signature = (request, progress=None))]
fn run_json(py: Python<'_>, request: &str, progress: Option<Bound<'_, PyAny>>) -> PyResult<String> {
    let latest: Mutex<BTreeMap<String, (u64, Option<u64>)>> = Mutex::default();
    supervise(
        py,
        |stop| {
            run::run_json(request, &|p: &Progress| {
                let mut latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
                latest.insert(p.system.clone(), (p.accesses_done, p.accesses_total));
                !stop.requested()
            })
        },
        |_| {
            let Some(progress) = &progress else { return Ok(()) };
            let reports = std::mem::take(&mut *latest.lock().unwrap_or_else(PoisonError::into_inner));
            reports.into_iter().try_for_each(|(system, (done, total))| progress.call1((system, done, total)).map(drop))
        },
    )
}

/// What there is of a kind (`systems`, `page-tables`, …), as JSON.
#[pyfunction]
fn list_json(kind: &str) -> PyResult<String> {
    if let Some(json) = catalogue::list_json(kind) {
        return Ok(json);
    }
    run::list_json(kind, catalogue::KINDS).map_err(IntoPython::into_python)
}

/// The JSON schema of the configuration.
#[pyfunction]
fn schema_json() -> String {
    run::schema_json()
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(run_json, module)?)?;
    module.add_function(wrap_pyfunction!(list_json, module)?)?;
    module.add_function(wrap_pyfunction!(schema_json, module)?)
}
