//! `trace.json`: description, origin and counts of a trace.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

use super::columns;
use crate::{Access, AccessKind, TraceError, sampling::Sampling};

/// Version of the format that this crate writes, and the only one that it reads. It changes when an old reader would
/// misread a new trace. Keys and columns whose absence has a meaning are added without a change.
pub const FORMAT_VERSION: u32 = 1;

const FORMAT_NAME: &str = "pagelab-trace";
pub(super) const FILE_NAME: &str = "trace.json";

/// Content of `trace.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceMeta {
    /// Always `pagelab-trace`.
    format: String,
    /// [`FORMAT_VERSION`] of the writer.
    version: u32,
    /// False from the start of a recording until its regular end.
    pub complete: bool,
    /// The recorded program with its arguments; for an imported trace, the imported file.
    pub command: Vec<String>,
    /// Size of the smallest page of the recorded machine.
    pub page_size_bytes: u64,
    /// How the recorded program ended; none if the recorder ended it, if it was not recorded here, or if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<ProgramExit>,
    /// When the recording or the import began.
    pub started_unix_seconds: u64,
    /// The machine that recorded it; none if unknown, as for imported traces.
    pub host: Option<HostFacts>,
    /// Versions of the tools that made it, by name.
    #[serde(default)]
    pub tools: BTreeMap<String, String>,
    /// True if the mappings were inferred from the accesses because the origin had no events.
    #[serde(default)]
    pub mappings_inferred: bool,
    /// True if the accesses are samples of those that the program made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sampled: bool,
    /// True if it records what accesses depend on, and the branches before them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dependencies: bool,
    /// True if it has the call stacks of its accesses and allocations.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub call_stacks: bool,
    /// Totals of the recorded and the skipped stretches; none if everything was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stretches: Option<StretchTotals>,
    /// The windows of a sample; none if it is not a sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Sampling>,
    /// Decisions during recording or import that a reader of results should know, one sentence each.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What the recording should contain and does not, and where the program did not behave as outside the recorder,
    /// one sentence each. `complete` is true all the same if the recording ended regularly.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<String>,
    /// For complete traces only; the parts of an incomplete one have their own.
    #[serde(default)]
    pub accesses: Option<AccessCounts>,
    /// For complete traces only.
    #[serde(default)]
    pub events: Option<EventCounts>,
    /// `xxh3-128:` and the hash of the hashes of all parts; for complete traces only.
    #[serde(default)]
    pub content_hash: Option<String>,
}

/// How the first process of a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramExit {
    /// Its exit status as in a shell: 128 plus the signal's number if a signal ended it.
    pub status: i32,
    /// The signal that ended it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}

/// Totals of a recording's stretches, over all processes and threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StretchTotals {
    /// Number of measured stretches.
    pub windows: u64,
    /// Instructions in these.
    pub measured_instructions: u64,
    /// Instructions recorded before them, for warming up.
    pub warming_instructions: u64,
    /// Instructions of skipped stretches.
    pub skipped_instructions: u64,
    /// Accesses of skipped stretches that were omitted.
    pub skipped_accesses: u64,
}

/// The machine a trace was recorded on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    /// `model name` of `/proc/cpuinfo`.
    pub cpu_model: String,
    /// `/proc/sys/kernel/ostype` and `osrelease`.
    pub kernel: String,
    /// Target architecture, such as `x86_64`.
    pub architecture: String,
    /// Whether it is a virtual machine, by the flag `hypervisor` of `/proc/cpuinfo`; none if not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtualised: Option<bool>,
}

/// Counts of a trace's or a part's accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessCounts {
    /// Accesses that read.
    pub loads: u64,
    /// Accesses that write.
    pub stores: u64,
    /// Accesses that both read and write.
    pub modifies: u64,
    /// Instruction fetches, at least one per code page.
    pub fetches: u64,
    /// Those among them made by the kernel.
    pub by_kernel: u64,
    /// Sum of all gaps.
    pub instructions: u64,
}

/// Counts of a trace's events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventCounts {
    /// Number of events by [`EventRow::kind`](super::EventRow::kind).
    pub by_kind: BTreeMap<String, u64>,
    /// Processes that events name.
    pub processes: u32,
    /// Threads that events or accesses name.
    pub threads: u32,
    /// Maximum number of threads alive at the same time; at least 1.
    pub threads_at_once: u32,
}

impl AccessCounts {
    /// All accesses.
    pub fn total(&self) -> u64 {
        self.loads + self.stores + self.modifies + self.fetches
    }

    pub(crate) fn from_accesses(accesses: &[Access]) -> Self {
        let mut by_index = [0; columns::KINDS.len()];
        let mut instructions = 0;
        // One byte per kind in one word, which stays in a register and cannot overflow within 255 accesses.
        for some in accesses.chunks(255) {
            let bytes = some.iter().fold(0u64, |bytes, access| bytes + (1 << (8 * columns::kind_index(access))));
            for (count, byte) in by_index.iter_mut().zip(bytes.to_le_bytes()) {
                *count += u64::from(byte);
            }
            instructions += some.iter().map(|access| u64::from(access.gap)).sum::<u64>();
        }
        let total = |kind: AccessKind| by_index[kind as usize] + by_index[kind as usize + 4];
        Self {
            loads: total(AccessKind::Load),
            stores: total(AccessKind::Store),
            modifies: total(AccessKind::Modify),
            fetches: total(AccessKind::Fetch),
            by_kernel: by_index[4..].iter().sum(),
            instructions,
        }
    }

    /// Adds the counts of existing accesses, so no sum can exceed 64 bits.
    #[inline(always)]
    pub(crate) fn add(&mut self, other: &Self) {
        self.loads += other.loads;
        self.stores += other.stores;
        self.modifies += other.modifies;
        self.fetches += other.fetches;
        self.by_kernel += other.by_kernel;
        self.instructions += other.instructions;
    }

    /// The total; none if it exceeds 64 bits, which only happens with a damaged file.
    pub(super) fn checked_total(&self) -> Option<u64> {
        self.loads.checked_add(self.stores)?.checked_add(self.modifies)?.checked_add(self.fetches)
    }

    pub(super) fn checked_add(&self, other: &Self) -> Option<Self> {
        let sum = Self {
            loads: self.loads.checked_add(other.loads)?,
            stores: self.stores.checked_add(other.stores)?,
            modifies: self.modifies.checked_add(other.modifies)?,
            fetches: self.fetches.checked_add(other.fetches)?,
            by_kernel: self.by_kernel.checked_add(other.by_kernel)?,
            instructions: self.instructions.checked_add(other.instructions)?,
        };
        sum.checked_total().map(|_| sum)
    }
}

impl EventCounts {
    /// All events.
    pub fn total(&self) -> u64 {
        self.by_kind.values().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

impl HostFacts {
    /// Facts about this machine; `unknown` where Linux does not report them.
    pub fn this_machine() -> Self {
        let read = |path: &str| fs::read_to_string(path).map(|s| s.trim().to_owned()).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let fact = |name: &str| {
            let mut lines = cpuinfo.lines();
            lines.find_map(|line| line.strip_prefix(name)?.split_once(':').map(|(_, value)| value.trim()))
        };
        let cpu_model = fact("model name").unwrap_or("unknown").to_owned();
        let virtualised = fact("flags").map(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
        let kernel = format!("{} {}", read("/proc/sys/kernel/ostype"), read("/proc/sys/kernel/osrelease"));
        let kernel = if kernel.trim().is_empty() { "unknown".to_owned() } else { kernel };
        Self { cpu_model, kernel, architecture: std::env::consts::ARCH.to_owned(), virtualised }
    }
}

/// Whether a note says that recording or sampling was stopped before the program's end. Such notes contain only
/// numbers.
pub(crate) fn reports_stop(note: &str) -> bool {
    ["recording was stopped after", "sampling was stopped after"].iter().any(|begin| note.starts_with(begin))
}

impl TraceMeta {
    /// Meta data for a trace of `command` that begins now, made by this version of pagelab; host unknown, 4 KiB pages.
    pub fn new(command: Vec<String>) -> Self {
        Self {
            format: FORMAT_NAME.to_owned(),
            version: FORMAT_VERSION,
            complete: false,
            command,
            page_size_bytes: 4096,
            exit: None,
            started_unix_seconds: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
            host: None,
            tools: BTreeMap::from([("pagelab".to_owned(), env!("CARGO_PKG_VERSION").to_owned())]),
            mappings_inferred: false,
            sampled: false,
            dependencies: false,
            call_stacks: false,
            stretches: None,
            sample: None,
            notes: Vec::new(),
            losses: Vec::new(),
            accesses: None,
            events: None,
            content_hash: None,
        }
    }

    /// Whether recording or sampling was stopped before the program's end.
    pub fn was_stopped(&self) -> bool {
        self.notes.iter().any(|note| reports_stop(note))
    }

    /// Format version it was written with.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Reads `trace.json` of the trace at `folder`.
    pub(super) fn read(folder: &Path) -> Result<Self, TraceError> {
        #[derive(Deserialize)]
        struct Head {
            format: String,
            version: u32,
        }
        let path = folder.join(FILE_NAME);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(TraceError::corrupt(folder, "not a trace: it contains no trace.json"));
            }
            Err(e) => return Err(TraceError::io(path, e)),
        };
        let head: Head = serde_json::from_slice(&text)
            .map_err(|e| TraceError::corrupt(&path, format!("not the trace.json of a pagelab trace: {e}")))?;
        if head.format != FORMAT_NAME {
            let what = format!("format is {:?}, expected {FORMAT_NAME:?}", head.format);
            return Err(TraceError::corrupt(path, what));
        }
        if head.version != FORMAT_VERSION {
            let remedy = if head.version > FORMAT_VERSION { "update pagelab" } else { "record or import it anew" };
            let what = format!(
                "trace format version {}, but this pagelab reads version {FORMAT_VERSION}: {remedy}",
                head.version
            );
            return Err(TraceError::corrupt(path, what));
        }
        let meta: Self = serde_json::from_slice(&text).map_err(|e| TraceError::corrupt(&path, e.to_string()))?;
        if meta.complete && (meta.accesses.is_none() || meta.events.is_none() || meta.content_hash.is_none()) {
            return Err(TraceError::corrupt(path, "complete, but without accesses, events or content_hash"));
        }
        Ok(meta)
    }

    /// Writes `trace.json` of the trace at `folder`, replacing the old file atomically.
    pub(super) fn write(&self, folder: &Path) -> Result<(), TraceError> {
        let mut text = serde_json::to_vec_pretty(self).expect("plain data with text keys");
        text.push(b'\n');
        super::part::write_whole(&folder.join(FILE_NAME), &text)
    }
}
