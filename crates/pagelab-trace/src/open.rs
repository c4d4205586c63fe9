//! Sources by what users call them: the folder of a trace, or the spec of a workload.

use std::path::Path;

use crate::{Source, TraceError, TraceReader, workload};

/// A source, and what is known of where it comes from.
pub struct Opened {
    /// What it yields.
    pub source: Box<dyn Source>,
    /// False for a trace whose recording was cut off.
    pub complete: bool,
}

/// Whether a text names a trace rather than a workload.
///
/// # Errors
/// [`TraceError::Usage`] for what can be neither.
pub fn names_trace(spec: &str) -> Result<bool, TraceError> {
    if spec.ends_with(".trace") || spec.ends_with(".trace/") || Path::new(spec).is_dir() {
        return Ok(true);
    }
    if spec.contains('/') || Path::new(spec).exists() {
        return Err(TraceError::usage(format!(
            "`{spec}` is neither a trace (a folder NAME.trace) nor a workload spec; `pagelab trace import` turns other formats into traces"
        )));
    }
    Ok(false)
}

/// Opens a trace, or a workload with a seed.
///
/// # Errors
/// [`TraceError::Usage`] for what is neither or for a spec that cannot be; those of the trace.
pub fn open(spec: &str, seed: u64) -> Result<Opened, TraceError> {
    if names_trace(spec)? {
        let reader = TraceReader::open(spec)?;
        let complete = reader.meta().complete;
        return Ok(Opened { source: Box::new(reader), complete });
    }
    Ok(Opened { source: workload::parse(spec, seed)?, complete: true })
}
