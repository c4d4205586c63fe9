//! Python bindings: the extension module `pagelab._engine`.
//!
//! Nothing is decided here. Requests and answers are JSON, so that their one definition stays in the Rust types;
//! `python/pagelab/_engine.pyi` says what Python sees.

mod errors;
mod faults;
mod host;
mod miss_ratio_curves;
mod record;
mod run;
mod simulated_faults;
mod supervise;
mod trace;

use pyo3::prelude::*;

#[pymodule]
fn _engine(module: &Bound<'_, PyModule>) -> PyResult<()> {
    pagelab_trace::record::note_ignored_signals();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    errors::register(module)?;
    faults::register(module)?;
    host::register(module)?;
    miss_ratio_curves::register(module)?;
    record::register(module)?;
    run::register(module)?;
    trace::register(module)
}
