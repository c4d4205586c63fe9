//! Description of a fault trace: its source, and the origin of its latencies.

use pagelab_trace::format::HostFacts;
use serde::{Deserialize, Serialize};

/// Version of the format that this crate writes and the only one it reads.
pub const FORMAT_VERSION: u32 = 1;
const FORMAT_NAME: &str = "pagelab-faults";

/// A fault trace's information about itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultTraceInfo {
    /// Always `pagelab-faults`.
    format: String,
    version: u32,
    /// The recorded program with its arguments; for an imported trace, the imported file.
    pub command: Vec<String>,
    /// The machine that recorded it; none if unknown.
    pub host: Option<HostFacts>,
    /// Cores of the machine; every fault's core is below this number.
    pub cores: u32,
    /// How long the program ran.
    pub duration_ns: u64,
    /// How the duration is known, one line.
    pub duration_origin: String,
    /// CPU time of the program, if it was measured.
    pub cpu_time_ns: Option<u64>,
    /// Origin of its faults' latencies.
    pub latency: LatencyOrigin,
    /// Additional duration of each fault due to the recording; 0 if unknown or none.
    pub recording_cost_ns: u32,
    /// Faults that the recorder lost.
    pub lost: u64,
    /// What a reader of results should know, one sentence each.
    pub notes: Vec<String>,
    /// Number of faults; counted, like the following, when the trace is written.
    pub faults: u64,
    /// Threads that faulted.
    pub threads: u64,
    /// Processes that faulted.
    pub processes: u64,
}

/// Origin of a trace's latencies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "origin", rename_all = "kebab-case")]
pub enum LatencyOrigin {
    /// The recorder does not report latencies.
    Unknown,
    /// Measured, or drawn at random, for each fault.
    PerFault {
        /// How, in words.
        how: String,
    },
    /// One number for all faults.
    Constant {
        /// Nanoseconds per fault.
        ns: u32,
        /// How it was determined, in words.
        how: String,
    },
}

impl FaultTraceInfo {
    /// Information about a trace of `command` on a machine with `cores`.
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

    /// What is wrong with the format's name or version, if anything.
    pub(crate) fn refusal(&self) -> Option<String> {
        if self.format != FORMAT_NAME {
            return Some(format!("its format is {:?}, expected {FORMAT_NAME:?}", self.format));
        }
        (self.version != FORMAT_VERSION).then(|| format!("format version {}, expected {FORMAT_VERSION}", self.version))
    }
}
