//! Parses page faults printed by other tools: `perf script` and ftrace, plain or compressed.
//!
//! | events | information in a fault's line |
//! |---|---|
//! | `exceptions:page_fault_user`, `…_kernel` | address and error code |
//! | `page-faults`, `minor-faults` of perf | address; the kind of access is unknown |
//!
//! Lines of other events are skipped and counted. A line that does not match the format is an error. Times are relative
//! to the first fault.

mod ftrace;
mod perf_script;
mod words;

use std::path::Path;

use pagelab_trace::{
    TraceError,
    import::{Compression, Input},
};
use serde::Serialize;

use crate::{Fault, FaultKind, FaultTraceInfo, fault::MAX_CORES};

/// The tool that printed a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TextFormat {
    /// `perf script`.
    PerfScript,
    /// The kernel's ftrace: its trace file, or the output of `trace-cmd report`.
    Ftrace,
}

impl TextFormat {
    fn name(self) -> &'static str {
        match self {
            Self::PerfScript => "perf script",
            Self::Ftrace => "ftrace",
        }
    }
}

/// The content of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// Nothing, or another event.
    Skip,
    OtherEvent,
    /// This many events are missing.
    Lost(u64),
    /// ftrace's information about its buffer: the number of missing events, and the machine's cores if given.
    Buffer {
        lost: u64,
        cores: Option<u32>,
    },
    Fault(RawFault),
}

/// A fault with its time as printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RawFault {
    /// Nanoseconds on the tool's clock.
    clock_ns: u64,
    core: u32,
    process: u32,
    thread: u32,
    address: u64,
    kind: FaultKind,
}

const EXPECTED: &str =
    "expected is text of perf script or ftrace with exceptions:page_fault_user, or of perf script with page-faults";

/// A longer line is in none of these formats.
const MAX_LINE_BYTES: u64 = 1 << 16;

/// Reads the faults of the text at `path` one by one. `cores` is the machine's number of cores, if known.
///
/// The duration is the time from the first fault to the last; latencies are unknown.
///
/// # Errors
/// [`TraceError::Corrupt`] with the line number, what is wrong and what would be right; [`TraceError::Io`]; errors of
/// `sink`.
pub fn read(
    path: &Path,
    cores: Option<u32>,
    sink: &mut dyn FnMut(Fault) -> Result<(), TraceError>,
) -> Result<FaultTraceInfo, TraceError> {
    let mut input = Input::open(path, Compression::Auto)?;
    if input.head().bytes.contains(&0) {
        return Err(input.corrupt(format!("this is not text; {EXPECTED}, or a fault trace of pagelab record --faults")));
    }
    let format = recognise(input.head().bytes);
    let mut state = State { cores, ..State::default() };
    let (mut bytes, mut number) = (Vec::new(), 0_u64);
    loop {
        bytes.clear();
        let len = input.line(&mut bytes, MAX_LINE_BYTES)?;
        if len == 0 {
            break;
        }
        number += 1;
        let text = String::from_utf8_lossy(&bytes);
        let parsed = if len as u64 == MAX_LINE_BYTES {
            Err(format!("longer than {MAX_LINE_BYTES} bytes"))
        } else {
            match format {
                TextFormat::PerfScript => perf_script::parse(text.trim_end()),
                TextFormat::Ftrace => ftrace::parse(text.trim_end()),
            }
        };
        match parsed.and_then(|line| state.take(line)) {
            Ok(Some(fault)) => sink(fault)?,
            Ok(None) => {}
            Err(what) => {
                let shown: String = text.trim_end().chars().take(100).collect();
                let name = format.name();
                return Err(input.corrupt(format!("line {number} of this {name} text: {what}; found {shown:?}")));
            }
        }
    }
    if state.faults == 0 {
        return Err(input.corrupt(format!("no page fault in it; {EXPECTED}")));
    }
    Ok(state.info(path, format))
}

/// ftrace's text begins with a comment that names the tracer, or has flags between core and time.
fn recognise(head: &[u8]) -> TextFormat {
    let text = String::from_utf8_lossy(head);
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("");
    if line.starts_with("# tracer:") || (!line.starts_with('#') && ftrace::looks_like(line)) {
        TextFormat::Ftrace
    } else {
        TextFormat::PerfScript
    }
}

/// Information from the lines so far.
#[derive(Default)]
struct State {
    /// The machine's number of cores, if known.
    cores: Option<u32>,
    /// By core: time of its last fault on the tool's clock.
    last_ns: Vec<Option<u64>>,
    first_ns: Option<u64>,
    end_ns: u64,
    faults: u64,
    other_events: u64,
    lost: u64,
}

impl State {
    /// The fault of a line, if it has one; on error, what is wrong.
    fn take(&mut self, line: Line) -> Result<Option<Fault>, String> {
        match line {
            Line::Skip => {}
            Line::OtherEvent => self.other_events += 1,
            Line::Lost(events) => self.lost = self.lost.saturating_add(events),
            Line::Buffer { lost, cores } => {
                self.lost = self.lost.saturating_add(lost);
                self.cores = self.cores.or(cores);
            }
            Line::Fault(raw) => return self.fault(raw).map(Some),
        }
        Ok(None)
    }

    fn fault(&mut self, raw: RawFault) -> Result<Fault, String> {
        let cores = self.cores.unwrap_or(MAX_CORES).min(MAX_CORES);
        if raw.core >= cores {
            return Err(format!("core {} of a machine with cores 0 to {}", raw.core, cores - 1));
        }
        let core = raw.core as usize;
        if self.last_ns.len() <= core {
            self.last_ns.resize(core + 1, None);
        }
        let seconds = |ns: u64| format!("{}.{:09} s", ns / 1_000_000_000, ns % 1_000_000_000);
        if let Some(before) = self.last_ns[core].filter(|&before| raw.clock_ns < before) {
            let (now, before) = (seconds(raw.clock_ns), seconds(before));
            return Err(format!(
                "time runs backwards on core {core}, from {before} to {now}; expected the lines of one recording in the \
                 order of time"
            ));
        }
        let first = *self.first_ns.get_or_insert(raw.clock_ns);
        let time_ns = raw.clock_ns.checked_sub(first).ok_or_else(|| {
            let (now, first) = (seconds(raw.clock_ns), seconds(first));
            format!("{now} is before the first fault, at {first}; expected the lines in the order of time")
        })?;
        self.last_ns[core] = Some(raw.clock_ns);
        self.end_ns = self.end_ns.max(time_ns);
        self.faults += 1;
        let core = u16::try_from(raw.core).expect("below MAX_CORES");
        let (address, kind, process, thread) = (raw.address, raw.kind, raw.process, raw.thread);
        Ok(Fault { time_ns, core, address, kind, process, thread, latency_ns: None })
    }

    fn info(&self, path: &Path, format: TextFormat) -> FaultTraceInfo {
        let cores = self.cores.unwrap_or(self.last_ns.len() as u32);
        let mut info = FaultTraceInfo::new(vec![path.display().to_string()], cores.min(MAX_CORES));
        info.duration_ns = self.end_ns;
        info.duration_origin = "from the first fault to the last".to_owned();
        info.lost = self.lost;
        info.faults = self.faults;
        info.notes.push(format!("read from {} text", format.name()));
        if self.other_events > 0 {
            info.notes.push(format!("{} lines of other events were left out", self.other_events));
        }
        info
    }
}
