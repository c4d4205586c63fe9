//! Opens a source by its name: the folder of a trace, or the spec of a workload.

use std::path::Path;

use crate::{Source, TraceError, TraceMeta, TraceReader, workload};

/// An opened source, with information about its origin.
pub struct Opened {
    /// The source.
    pub source: Box<dyn Source>,
    /// How the program and its recording ended.
    pub ending: Ending,
}

/// How a program and its recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// False for a trace whose recording was cut off.
    pub complete: bool,
    /// Whether recording or sampling was stopped before the program's end.
    pub stopped: bool,
    /// The program's exit status as in a shell: 128 plus the signal's number if a signal ended it. None if unknown.
    pub exit_status: Option<i32>,
}

impl Ending {
    /// For a source without a program, or whose program has not ended yet.
    pub const UNKNOWN: Self = Self { complete: true, stopped: false, exit_status: None };

    fn from_meta(meta: &TraceMeta) -> Self {
        let exit_status = meta.exit.map(|exit| exit.status);
        Self { complete: meta.complete, stopped: meta.was_stopped(), exit_status }
    }
}

/// Whether a text names a trace rather than a workload.
///
/// # Errors
/// [`TraceError::Usage`] if it is neither.
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
/// [`TraceError::Usage`] if it is neither, or an impossible spec; errors of the trace.
pub fn open(spec: &str, seed: u64) -> Result<Opened, TraceError> {
    if names_trace(spec)? {
        let reader = TraceReader::open(spec)?;
        let ending = Ending::from_meta(reader.meta());
        return Ok(Opened { source: Box::new(reader), ending });
    }
    Ok(Opened { source: workload::parse(spec, seed)?, ending: Ending::UNKNOWN })
}
