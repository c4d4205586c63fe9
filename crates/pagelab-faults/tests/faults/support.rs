//! Helpers of this crate's tests.

use std::num::NonZeroU32;

use pagelab_faults::{
    Fault, FaultKind, FaultTraceInfo, LatencyOrigin, Timeline,
    timeline::{Recording, Selection, Which},
};

/// A first write on a core, with this latency.
pub fn fault(time_ns: u64, core: u16, latency_ns: u32) -> Fault {
    Fault {
        time_ns,
        core,
        address: time_ns << 12,
        kind: FaultKind::FIRST_WRITE,
        process: 1,
        thread: u32::from(core),
        latency_ns: NonZeroU32::new(latency_ns),
    }
}

pub const ALL: Selection = Selection {
    which: Which::FirstWrites,
    latency_ns: None,
    recording_cost_ns: None,
    duration_ns: None,
    parallelism: None,
};

pub fn info(duration_ns: u64, cores: u32) -> FaultTraceInfo {
    let mut info = FaultTraceInfo::new(vec!["prog".to_owned()], cores);
    info.duration_ns = duration_ns;
    info.duration_origin = "a test".to_owned();
    info.latency = LatencyOrigin::PerFault { how: "a test".to_owned() };
    info
}

/// Faults of `(time, core, latency)`, sorted by time.
pub fn timeline(duration_ns: u64, faults: impl IntoIterator<Item = (u64, u16, u32)>) -> Timeline {
    let faults = faults.into_iter().map(|(time, core, latency)| fault(time, core, latency));
    Timeline::new(&Recording::from_faults(info(duration_ns, 64), faults), &ALL).unwrap()
}
