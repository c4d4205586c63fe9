//! Miss-ratio curves.

use std::sync::{Mutex, PoisonError};

use pagelab_mrc::{Analysis, Options, analyse};
use pagelab_trace::{TraceError, open};
use pyo3::{exceptions::PyValueError, prelude::*};
use serde::Serialize;

use crate::supervise::supervise;

/// Curves, and what they are of.
#[derive(Serialize)]
struct Answer {
    version: &'static str,
    source: Named,
    options: Options,
    #[serde(flatten)]
    analysis: Analysis,
}

#[derive(Serialize)]
struct Named {
    name: String,
    content_hash: Option<String>,
    complete: bool,
    mappings_inferred: bool,
    threads: u32,
}

/// The curves of a trace or workload, as JSON; the options are `pagelab_mrc::Options` as JSON.
/// `progress(name, done, total)` is called about ten times a second.
#[pyfunction]
#[pyo3(signature = (source, options, progress=None))]
fn miss_ratio_curves_json(
    py: Python<'_>,
    source: &str,
    options: &str,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<String> {
    let options: Options = serde_json::from_str(options).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let latest: Mutex<Option<(String, u64, Option<u64>)>> = Mutex::default();
    supervise(
        py,
        |stop| {
            let mut opened = open(source, options.seed)?;
            let info = opened.source.info().clone();
            let total = info.accesses.map(|all| all.min(options.max_accesses.unwrap_or(u64::MAX)));
            let analysis = analyse(&mut *opened.source, &options, &mut |done| {
                *latest.lock().unwrap_or_else(PoisonError::into_inner) = Some((info.name.clone(), done, total));
                !stop.requested()
            })?;
            let source = Named {
                name: info.name,
                content_hash: info.content_hash,
                complete: opened.ending.complete,
                mappings_inferred: info.mappings_inferred,
                threads: info.threads,
            };
            let answer = Answer { version: env!("CARGO_PKG_VERSION"), source, options: options.clone(), analysis };
            Ok::<_, TraceError>(serde_json::to_string(&answer).expect("curves serialise"))
        },
        |_| {
            let report = latest.lock().unwrap_or_else(PoisonError::into_inner).take();
            match (&progress, report) {
                (Some(progress), Some(report)) => progress.call1(report).map(drop),
                _ => Ok(()),
            }
        },
    )
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(miss_ratio_curves_json, module)?)
}
