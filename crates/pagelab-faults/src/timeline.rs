//! The faults of each core, in the form that a model uses.
//!
//! A [`Recording`] contains the data of a trace, a text or a process. A [`Timeline`] is derived from it: the selected
//! faults, each with a latency, without the time that recording took.

use std::{num::NonZeroU32, path::Path};

use pagelab_trace::TraceError;
use serde::Serialize;

use crate::{Fault, FaultAccess, FaultKind, FaultTraceInfo, FaultTraceReader, LatencyOrigin, process, text};

/// Longer traces are refused: a hundred days.
pub const MAX_DURATION_NS: u64 = 100 * 86_400 * 1_000_000_000;

/// All faults of a trace, a text or a process.
pub struct Recording {
    /// Information about it.
    pub info: FaultTraceInfo,
    cores: Vec<Vec<Raw>>,
}

#[derive(Clone, Copy)]
struct Raw {
    time_ns: u64,
    /// 0 if unknown.
    latency_ns: u32,
    kind: FaultKind,
}

impl Recording {
    /// Opens `source`: a fault trace, a text of perf or ftrace, or else the spec of a fault process with the default
    /// seed `seed`.
    ///
    /// # Errors
    /// Those of [`FaultTraceReader`], [`text::read`] and [`process::parse`].
    pub fn open(source: &str, seed: u64) -> Result<Self, TraceError> {
        let path = Path::new(source);
        if path.exists() {
            return if FaultTraceReader::recognises(path) { Self::of_trace(path) } else { Self::of_text(path) };
        }
        let name = source.split(':').next().unwrap_or(source);
        if name.contains(['/', '.']) {
            let what = format!("{source}: there is no such file, and no fault process has such a name");
            return Err(TraceError::usage(what));
        }
        let faults = process::parse(source, seed)?;
        let mut recording = Self { info: faults.info(), cores: Vec::new() };
        faults.for_each(|fault| recording.push(&fault));
        recording.checked()
    }

    fn of_trace(path: &Path) -> Result<Self, TraceError> {
        let mut reader = FaultTraceReader::open(path)?;
        let mut recording = Self { info: reader.info().clone(), cores: Vec::new() };
        let mut faults = Vec::new();
        while reader.next(&mut faults)? {
            faults.iter().for_each(|fault| recording.push(fault));
        }
        recording.checked()
    }

    fn of_text(path: &Path) -> Result<Self, TraceError> {
        let mut cores = Self { info: FaultTraceInfo::new(Vec::new(), 0), cores: Vec::new() };
        let info = text::read(path, None, &mut |fault| {
            cores.push(&fault);
            Ok(())
        })?;
        Self { info, ..cores }.checked()
    }

    /// A recording of given faults, sorted by time on each core.
    #[must_use]
    pub fn from_faults(info: FaultTraceInfo, faults: impl IntoIterator<Item = Fault>) -> Self {
        let mut recording = Self { info, cores: Vec::new() };
        faults.into_iter().for_each(|fault| recording.push(&fault));
        recording
    }

    fn push(&mut self, fault: &Fault) {
        let core = usize::from(fault.core);
        if self.cores.len() <= core {
            self.cores.resize_with(core + 1, Vec::new);
        }
        let latency_ns = fault.latency_ns.map_or(0, NonZeroU32::get);
        self.cores[core].push(Raw { time_ns: fault.time_ns, latency_ns, kind: fault.kind });
    }

    fn checked(mut self) -> Result<Self, TraceError> {
        self.info.faults = self.cores.iter().map(|core| core.len() as u64).sum();
        let name = || self.info.command.join(" ");
        if self.info.faults == 0 {
            return Err(TraceError::usage(format!("{}: it has no faults", name())));
        }
        if self.info.duration_ns > MAX_DURATION_NS {
            return Err(TraceError::usage(format!("{}: it lasts longer than a hundred days", name())));
        }
        Ok(self)
    }
}

/// The faults that a model considers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Which {
    /// Writes to pages that are not mapped, and faults of unknown kind.
    FirstWrites,
    /// All faults on pages that are not mapped, and faults of unknown kind.
    NotPresent,
    /// All faults.
    All,
}

impl Which {
    fn takes(self, kind: FaultKind) -> bool {
        match self {
            Self::FirstWrites => !kind.present && matches!(kind.access, None | Some(FaultAccess::Write)),
            Self::NotPresent => !kind.present,
            Self::All => true,
        }
    }
}

/// How a timeline is derived from a recording; none means the recording's own value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Selection {
    /// The faults to consider.
    pub which: Which,
    /// Latency of every fault.
    pub latency_ns: Option<u32>,
    /// Nanoseconds of recording time in every fault.
    pub recording_cost_ns: Option<u32>,
    /// How long the program ran, in nanoseconds.
    pub duration_ns: Option<u64>,
    /// How many cores the program keeps busy on average.
    pub parallelism: Option<f64>,
}

/// A fault on a core of a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreFault {
    /// Nanoseconds since the program started.
    pub time_ns: u64,
    /// The latency, at most the time to the core's next fault.
    pub latency_ns: u32,
}

/// The faults of each core, sorted by time.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// The faults of each core.
    pub cores: Vec<Vec<CoreFault>>,
    /// Duration of the program, without the cost of recording.
    pub duration_ns: f64,
    /// How many cores the program keeps busy on average; its faults' time is divided by this number.
    pub parallelism: f64,
    /// Origin of the latencies.
    pub latency: LatencyOrigin,
    /// Nanoseconds subtracted from each fault.
    pub recording_cost_ns: u32,
    /// Faults that are not considered.
    pub left_out: u64,
    /// Faults whose latency reached beyond the next fault of their core and was cut there.
    pub cut: u64,
}

impl Timeline {
    /// # Errors
    /// [`TraceError::Usage`] if the latencies are unknown, if no fault is selected, or if the selected faults take more
    /// time than there is.
    pub fn new(recording: &Recording, selection: &Selection) -> Result<Self, TraceError> {
        let info = &recording.info;
        let latency = match (selection.latency_ns, &info.latency) {
            (Some(ns), _) => LatencyOrigin::Constant { ns, how: "as set by fault_latency_ns".to_owned() },
            (None, LatencyOrigin::Unknown) => {
                return Err(TraceError::usage(
                    "the latencies of these faults are unknown; set fault_latency_ns to what a fault takes, for example as \
                     `pagelab calibrate` measures it (first-write)",
                ));
            }
            (None, known) => known.clone(),
        };
        let constant = if let LatencyOrigin::Constant { ns, .. } = latency { Some(ns) } else { None };
        let cost_ns = selection.recording_cost_ns.unwrap_or(info.recording_cost_ns);
        let mut made = Self {
            cores: Vec::with_capacity(recording.cores.len()),
            duration_ns: 0.0,
            parallelism: 1.0,
            latency,
            recording_cost_ns: cost_ns,
            left_out: 0,
            cut: 0,
        };
        for core in &recording.cores {
            made.add_core(core, selection.which, constant, cost_ns)?;
        }
        let last_ns = recording.cores.iter().filter_map(|core| core.last()).map(|fault| fault.time_ns).max();
        made.set_time(info, selection, last_ns)?;
        Ok(made)
    }

    fn add_core(&mut self, raw: &[Raw], which: Which, constant: Option<u32>, cost_ns: u32) -> Result<(), TraceError> {
        let mut faults: Vec<CoreFault> = Vec::new();
        // Each recorded fault delayed all later ones, but none can come before the previous one.
        let (mut delay, mut last) = (0_u64, 0_u64);
        for fault in raw {
            let time_ns = fault.time_ns.saturating_sub(delay).max(last);
            delay = fault.time_ns - time_ns + u64::from(cost_ns);
            last = time_ns;
            if !which.takes(fault.kind) {
                self.left_out += 1;
                continue;
            }
            if let Some(before) = faults.last_mut() {
                let room = time_ns - before.time_ns;
                if u64::from(before.latency_ns) > room {
                    before.latency_ns = room as u32;
                    self.cut += 1;
                }
            }
            let latency_ns = constant.unwrap_or(fault.latency_ns);
            if latency_ns == 0 {
                return Err(TraceError::usage(format!(
                    "the fault at {} ns has no latency, though the trace says that each has one; set fault_latency_ns",
                    fault.time_ns
                )));
            }
            faults.push(CoreFault { time_ns, latency_ns });
        }
        self.cores.push(faults);
        Ok(())
    }

    /// Sets duration and parallelism, both without the cost of recording.
    fn set_time(
        &mut self,
        info: &FaultTraceInfo,
        selection: &Selection,
        last_ns: Option<u64>,
    ) -> Result<(), TraceError> {
        let faults: usize = self.cores.iter().map(Vec::len).sum();
        if faults == 0 {
            return Err(TraceError::usage("no fault is of the selected kind; set faults=all to consider all faults"));
        }
        let duration = selection.duration_ns.unwrap_or(info.duration_ns) as f64;
        if let (true, Some(last_ns)) = (selection.duration_ns.is_some(), last_ns)
            && (last_ns as f64) > duration
        {
            let (last, given) = (last_ns as f64 / 1e9, duration / 1e9);
            return Err(TraceError::usage(format!(
                "seconds={given}: the last fault comes at {last} s; give that or more"
            )));
        }
        let recording = f64::from(self.recording_cost_ns) * (faults as f64 + self.left_out as f64);
        let active = self.cores.iter().filter(|core| !core.is_empty()).count() as f64;
        let of_cpu_time = info.cpu_time_ns.map(|cpu_ns| (cpu_ns as f64 / duration).max(1.0));
        self.parallelism = selection.parallelism.or(of_cpu_time).unwrap_or(active);
        self.duration_ns = duration - recording / self.parallelism;
        let spent: f64 = self.cores.iter().flatten().map(|fault| f64::from(fault.latency_ns)).sum();
        if spent >= self.duration_ns * self.parallelism {
            return Err(TraceError::usage(format!(
                "the faults take {:.3} s, but the program only runs {:.3} s on {:.2} cores; set fault_latency_ns, seconds or \
                 parallelism",
                spent / 1e9,
                self.duration_ns / 1e9,
                self.parallelism
            )));
        }
        Ok(())
    }

    /// Faults on all cores.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.cores.iter().map(|core| core.len() as u64).sum()
    }
}
