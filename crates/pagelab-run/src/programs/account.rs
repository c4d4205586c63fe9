//! Accounts: on whose behalf CPUs spent cycles, if sources share CPUs.
//!
//! Counters belong to CPUs or to the whole machine. Their increase while a source runs is charged to that source: a
//! CPU's clock whenever the CPU switches to another source or becomes idle, the machine's counters also at every turn.
//! Walks are counted by account directly ([`WalkCounters`]).

use pagelab_base::cycles::Cycles;
use pagelab_hardware::core_model::clock::Class;
use pagelab_kernel::fault::stage::Stage;
use pagelab_kernel::os::Os;
use pagelab_translate::counters::{WalkCounters, WalksByKind};

/// The counts of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Cycles by class.
    pub cycles: [Cycles; Class::ALL.len()],
    /// Walks on its behalf.
    pub walks: WalksByKind,
    /// Page faults of its programs.
    pub faults: FaultCounts,
}

/// Counts of page faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Pages that fault handlers mapped for programs without reading a device, as in `fault.minor.count`.
    pub minor: u64,
    /// Pages that fault handlers mapped after reading a device, as in `fault.major.count`.
    pub major: u64,
    /// Cycles of the stages, by layer.
    pub stages: Vec<[Cycles; Stage::ALL.len()]>,
}

/// Index of a source's account among those of walks.
#[inline]
pub fn walk_account(input: usize) -> usize {
    WalkCounters::NO_SOURCE + 1 + input
}

impl Account {
    /// Adds the counts of another source, or of another time.
    pub fn add(&mut self, other: &Self) {
        for (cycles, more) in self.cycles.iter_mut().zip(other.cycles) {
            *cycles += more;
        }
        self.walks.add(&other.walks);
        self.faults.add(&other.faults);
    }
}

impl FaultCounts {
    fn add(&mut self, other: &Self) {
        self.minor += other.minor;
        self.major += other.major;
        self.fit(other.stages.len());
        for (sum, &more) in self.stages.as_flattened_mut().iter_mut().zip(other.stages.as_flattened()) {
            *sum += more;
        }
    }

    /// Adds what the kernels have counted since `looked`, and updates `looked` to the current counts. Called at every
    /// turn; most turns have no fault.
    pub fn add_since(&mut self, os: &Os, looked: &mut Self) {
        let (mut minor, mut major) = (0, 0);
        for &top in os.tops() {
            let faults = &os.faults[top];
            minor += faults.minor;
            major += faults.major;
        }
        self.minor += minor - looked.minor;
        self.major += major - looked.major;
        (looked.minor, looked.major) = (minor, major);
        looked.fit(os.faults.len());
        for (layer, (faults, looked)) in os.faults.iter().zip(&mut looked.stages).enumerate() {
            if faults.cycles != *looked {
                self.fit(os.faults.len());
                for ((sum, &now), before) in self.stages[layer].iter_mut().zip(&faults.cycles).zip(looked) {
                    *sum += now - *before;
                    *before = now;
                }
            }
        }
    }

    /// Makes room for the stages of this many layers.
    fn fit(&mut self, layers: usize) {
        if self.stages.len() < layers {
            self.stages.resize(layers, Default::default());
        }
    }
}
