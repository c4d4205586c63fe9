//! The one mapping from Rust errors to Python exceptions.

use pagelab_engine::base::error::EngineError;
use pagelab_trace::TraceError as RustTraceError;
use pyo3::{
    create_exception,
    exceptions::{PyException, PyKeyboardInterrupt},
    prelude::*,
};

create_exception!(pagelab, PagelabError, PyException, "Base of what pagelab raises; its text is meant for the user.");
create_exception!(pagelab, UsageError, PagelabError, "A request that makes no sense: an unknown name, key or option.");
create_exception!(pagelab, ConfigError, UsageError, "A configuration key or value that cannot be.");
create_exception!(pagelab, TraceError, PagelabError, "A trace that cannot be read or written, or is damaged.");
create_exception!(pagelab, OutOfMemoryError, PagelabError, "The simulated machine ran out of physical memory.");
create_exception!(pagelab, CheckError, PagelabError, "A translation contradicted the mappings (`check=True`).");
create_exception!(pagelab, InternalError, PagelabError, "A broken invariant of pagelab itself.");

/// A Rust error that becomes a Python exception.
pub trait IntoPython {
    fn into_python(self) -> PyErr;
}

impl IntoPython for EngineError {
    fn into_python(self) -> PyErr {
        match self {
            Self::Trace(error) => error.into_python(),
            Self::Config { .. } => ConfigError::new_err(self.to_string()),
            Self::OutOfMemory { .. } => OutOfMemoryError::new_err(self.to_string()),
            Self::Check { .. } => CheckError::new_err(self.to_string()),
            Self::Interrupted => PyKeyboardInterrupt::new_err(()),
        }
    }
}

impl IntoPython for RustTraceError {
    fn into_python(self) -> PyErr {
        match self {
            Self::Usage { .. } => UsageError::new_err(self.to_string()),
            Self::Io { .. } | Self::Corrupt { .. } => TraceError::new_err(self.to_string()),
        }
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("PagelabError", py.get_type::<PagelabError>())?;
    module.add("UsageError", py.get_type::<UsageError>())?;
    module.add("ConfigError", py.get_type::<ConfigError>())?;
    module.add("TraceError", py.get_type::<TraceError>())?;
    module.add("OutOfMemoryError", py.get_type::<OutOfMemoryError>())?;
    module.add("CheckError", py.get_type::<CheckError>())?;
    module.add("InternalError", py.get_type::<InternalError>())
}
