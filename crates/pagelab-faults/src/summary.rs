//! Counts of the faults in a trace.

use pagelab_trace::TraceError;
use serde::Serialize;

use crate::{Fault, FaultAccess, FaultTraceReader};

/// Counts of faults by kind; every fault has one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Writes to pages that are not mapped.
    pub writes: u64,
    /// Reads of pages that are not mapped.
    pub reads: u64,
    /// Fetches from pages that are not mapped.
    pub fetches: u64,
    /// Accesses to mapped pages that forbid them, such as copies on write.
    pub forbidden: u64,
    /// Faults whose access is unknown.
    pub unknown: u64,
    /// Faults of any kind raised by kernel code.
    pub by_kernel: u64,
    /// All faults, core by core.
    pub by_core: Vec<u64>,
}

impl Counts {
    /// Counts the faults of a trace.
    ///
    /// # Errors
    /// Those of [`FaultTraceReader::next`].
    pub fn from_reader(mut reader: FaultTraceReader) -> Result<Self, TraceError> {
        let mut counts = Self::default();
        let mut faults = Vec::new();
        while reader.next(&mut faults)? {
            faults.iter().for_each(|fault| counts.add(fault));
        }
        Ok(counts)
    }

    fn add(&mut self, fault: &Fault) {
        let count = match (fault.kind.access, fault.kind.present) {
            (None, _) => &mut self.unknown,
            (Some(_), true) => &mut self.forbidden,
            (Some(FaultAccess::Write), false) => &mut self.writes,
            (Some(FaultAccess::Read), false) => &mut self.reads,
            (Some(FaultAccess::Instruction), false) => &mut self.fetches,
        };
        *count += 1;
        self.by_kernel += u64::from(fault.kind.by_kernel);
        let core = usize::from(fault.core);
        if self.by_core.len() <= core {
            self.by_core.resize(core + 1, 0);
        }
        self.by_core[core] += 1;
    }
}
