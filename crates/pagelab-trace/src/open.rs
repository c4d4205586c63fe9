//! Sources by what users call them: the folder of a trace, or the spec of a workload.

use std::path::Path;

use crate::{Source, TraceError, TraceMeta, TraceReader, workload};

/// A source, and what is known of where it comes from.
pub struct Opened {
    /// What it yields.
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
    /// The program's exit status as a shell has it: 128 plus the signal's number if a signal ended it. None if it is
    /// not known.
    pub exit_status: Option<i32>,
}

impl Ending {
    /// Of what no program made, or of one that has not ended yet.
    pub const UNKNOWN: Self = Self { complete: true, stopped: false, exit_status: None };

    fn from_meta(meta: &TraceMeta) -> Self {
        let exit_status = meta.exit.map(|exit| exit.status);
        Self { complete: meta.complete, stopped: meta.was_stopped(), exit_status }
    }
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
        let ending = Ending::from_meta(reader.meta());
        return Ok(Opened { source: Box::new(reader), ending });
    }
    Ok(Opened { source: workload::parse(spec, seed)?, ending: Ending::UNKNOWN })
}
