//! What a fault trace is, where it comes from, and what its latencies rest on.

use pagelab_trace::format::HostFacts;
use serde::{Deserialize, Serialize};

/// Version of the format that this crate writes and the only one it reads.
pub const FORMAT_VERSION: u32 = 1;
const FORMAT_NAME: &str = "pagelab-faults";

/// What a fault trace says of itself, beside its faults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultTraceInfo {
    /// Always `pagelab-faults`.
    format: String,
    version: u32,
    /// The recorded program with its arguments; of an imported trace the imported file.
    pub command: Vec<String>,
    /// Where it was recorded; none if that is unknown.
    pub host: Option<HostFacts>,
    /// Cores of the machine: those of faults are below.
    pub cores: u32,
    /// How long the program ran.
    pub duration_ns: u64,
    /// How that is known, one line.
    pub duration_origin: String,
    /// CPU time of the program, where it was measured.
    pub cpu_time_ns: Option<u64>,
    /// What the latencies of its faults rest on.
    pub latency: LatencyOrigin,
    /// How much longer each fault took because it was recorded; 0 if that is unknown or nothing.
    pub recording_cost_ns: u32,
    /// Faults that the recorder lost.
    pub lost: u64,
    /// What a reader of results should know, one sentence each.
    pub notes: Vec<String>,
    /// These are counted when the trace is written.
    pub faults: u64,
    /// Threads that faulted.
    pub threads: u64,
    /// Processes that faulted.
    pub processes: u64,
}

/// What the latencies of a trace rest on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "origin", rename_all = "kebab-case")]
pub enum LatencyOrigin {
    /// The recorder does not tell.
    Unknown,
    /// Measured for each fault, or drawn for it.
    PerFault {
        /// In words.
        how: String,
    },
    /// One number for all faults, sampled as `how` says.
    Constant {
        /// Nanoseconds of each fault.
        ns: u32,
        /// In words.
        how: String,
    },
}

impl FaultTraceInfo {
    /// Of a trace of `command` on a machine with `cores`.
    pub fn new(command: Vec<String>, cores: u32) -> Self {
        Self {
            format: FORMAT_NAME.to_owned(),
            version: FORMAT_VERSION,
            command,
            host: None,
            cores,
            duration_ns: 0,
            duration_origin: String::new(),
            cpu_time_ns: None,
            latency: LatencyOrigin::Unknown,
            recording_cost_ns: 0,
            lost: 0,
            notes: Vec::new(),
            faults: 0,
            threads: 0,
            processes: 0,
        }
    }

    /// What is wrong with the format's name or version, if anything is.
    pub(crate) fn refusal(&self) -> Option<String> {
        if self.format != FORMAT_NAME {
            return Some(format!("its format is {:?}, expected {FORMAT_NAME:?}", self.format));
        }
        (self.version != FORMAT_VERSION).then(|| format!("format version {}, expected {FORMAT_VERSION}", self.version))
    }
}
