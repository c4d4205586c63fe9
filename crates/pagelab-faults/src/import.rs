//! Imports a text of perf or ftrace as a fault trace.

use std::path::Path;

use pagelab_trace::{TraceError, format::HostFacts};
use serde::Deserialize;

use crate::{FaultTraceInfo, FaultTraceWriter, LatencyOrigin, text};

/// Facts about a text that it does not contain itself. Missing facts are taken from the text.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Facts {
    /// The recorded program with its arguments.
    pub command: Option<Vec<String>>,
    /// Whether the text was recorded on this machine.
    pub recorded_here: bool,
    /// Cores of the machine.
    pub cores: Option<u32>,
    /// How long the program ran, in nanoseconds; none: as the text says.
    pub duration_ns: Option<u64>,
    /// How the duration is known, one line.
    pub duration_origin: Option<String>,
    /// CPU time of the program in nanoseconds, if it was measured.
    pub cpu_time_ns: Option<u64>,
    /// Origin of the latencies; none: as the text says.
    pub latency: Option<LatencyOrigin>,
    /// Additional nanoseconds per fault due to the recording; 0 if unknown or none.
    pub recording_cost_ns: u32,
    /// What a reader of results should know, one sentence each.
    pub notes: Vec<String>,
}

/// Creates a fault trace at `output` from the text at `input`.
///
/// # Errors
/// Those of [`text::read`] and [`FaultTraceWriter`]. Nothing is left at `output` then.
pub fn import(input: &Path, output: &Path, facts: &Facts) -> Result<FaultTraceInfo, TraceError> {
    let mut writer = FaultTraceWriter::create(output)?;
    let mut info = text::read(input, facts.cores, &mut |fault| writer.append(&fault))?;
    if let Some(command) = &facts.command {
        info.command.clone_from(command);
    }
    if facts.recorded_here {
        info.host = Some(HostFacts::this_machine());
    }
    if let (Some(duration), Some(origin)) = (facts.duration_ns, &facts.duration_origin) {
        (info.duration_ns, info.duration_origin) = (duration, origin.clone());
    }
    if let Some(latency) = &facts.latency {
        info.latency = latency.clone();
    }
    info.cpu_time_ns = facts.cpu_time_ns;
    info.recording_cost_ns = facts.recording_cost_ns;
    info.notes.extend(facts.notes.iter().cloned());
    writer.finish(info)
}
