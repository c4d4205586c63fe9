//! Core models: what instructions cost a program, and what of an access's latency it waits for.
//!
//! A model is one file here that implements [`Core`], and one line below. `registry.rs` generates the enums
//! [`CoreModel`] and [`CoreConfig`] from these lines. A line gives the model its name in the configuration (the key
//! `model` of `machine.core`), its row in `pagelab list cores`, and its place in error texts and in the conformance
//! tests.

#[macro_use]
mod registry;
mod branch_unit;
pub mod clock;
mod common;
mod compiled;
mod in_flight;
pub mod kernel_branches;
mod pool;
mod ring;
mod tage;

use std::fmt::Debug;

use pagelab_trace::{Access, Branches};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cache::Traffic;
pub use branch_unit::BranchPredictor;
pub use common::{Common, Siblings};
pub use compiled::CompiledCore;
pub use in_order::InOrder;
use kernel_branches::BranchRun;
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::model_choice;
use pagelab_base::translation::Translation;
pub use window::Window;
pub use window::kernel::{AddressOf, KernelRef, KernelWindow};

cores! {
    mod in_order {
        InOrder(in_order::InOrder) = "in-order",
            "retires instructions at a fixed rate and stalls for each access";
    }
    mod window {
        Window(window::Window) = "window",
            "overlaps walks and misses as far as dependencies, a reorder window and its buffers allow";
    }
}

/// The time of a call of a model, on the program's CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreTime {
    /// Instructions that have retired, up to the previous access.
    pub instructions: u64,
    /// Cycles on the CPU's clock.
    pub now: Cycles,
}

/// The program's next access.
#[derive(Clone, Copy, Debug)]
pub struct IncomingAccess<'a> {
    /// Address, kind and instruction of the access.
    pub access: &'a Access,
    /// Whether it is repeated after a fault: the model has seen it before.
    pub again: bool,
    /// Whether the source records which loads its addresses depend on.
    pub has_dependencies: bool,
    /// The conditional branches since the previous access.
    pub branches: Branches,
}

/// Conditional branches that a predictor has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BranchCounts {
    /// All branches that the source records.
    pub met: u64,
    /// Those of them that were mispredicted.
    pub mispredicted: u64,
    /// Branches of kernel code.
    pub kernel: u64,
    /// Those of them that were mispredicted.
    pub kernel_mispredicted: u64,
}

impl std::ops::Add for BranchCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            met: self.met + other.met,
            mispredicted: self.mispredicted + other.mispredicted,
            kernel: self.kernel + other.kernel,
            kernel_mispredicted: self.kernel_mispredicted + other.kernel_mispredicted,
        }
    }
}

/// Where the data of an access are found.
#[derive(Clone, Copy, Debug)]
pub struct DataLocation {
    /// Latency from the level that holds the line.
    pub latency: Cycles,
    /// The number of the line in physical memory.
    pub line: u64,
}

/// Largest number of accesses in a [`Row`].
pub const ROW: usize = 64;

/// Consecutive accesses of a program, each to one line, that all hit the first-level TLB.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// At most [`ROW`].
    pub accesses: &'a [Access],
    /// The branches before each access, possibly of more accesses than these; empty if the source records none.
    pub branches: &'a [Branches],
    /// Where the data of each access are.
    pub found: &'a [DataLocation],
    /// As in [`IncomingAccess`].
    pub has_dependencies: bool,
}

/// The data of an access that lie in one line.
#[derive(Debug)]
pub struct Data<'a> {
    /// Latency from the level that holds the line.
    pub latency: Cycles,
    /// The number of the line in physical memory.
    pub line: u64,
    /// Prefetchers and memory channels, which may delay the data; none on machines without them.
    pub traffic: Option<&'a mut Traffic>,
}

impl Data<'_> {
    /// When the data arrive for an access that issues at `from`. To be called once.
    #[inline]
    pub fn arrival(&mut self, from: Cycles) -> Cycles {
        match &mut self.traffic {
            None => from + self.latency,
            Some(traffic) => traffic.arrival(from, self.latency),
        }
    }
}

/// A translation that misses the first-level TLB.
#[derive(Clone, Copy, Debug)]
pub struct L1TlbMiss {
    /// Latency of the second-level TLB.
    pub look_up: Cycles,
    /// Latency of the page walk after it; zero if there is none.
    pub walk: Cycles,
    /// The translation found; none if the walk ends in a fault.
    pub page: Option<Translation>,
    /// Whether an instruction is fetched; else data are accessed.
    pub fetches: bool,
}

/// How long a program stalls, by what it waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stall {
    /// Cycles for the translation of the address.
    pub translation: Cycles,
    /// Cycles for the data.
    pub data: Cycles,
    /// Cycles for instructions that the first-level instruction cache lacks.
    pub fetch: Cycles,
    /// Cycles behind a mispredicted branch.
    pub branch: Cycles,
    /// Cycles for instructions of the core's other hardware threads.
    pub sibling: Cycles,
}

impl Stall {
    /// The sum, in cycles.
    #[inline]
    pub fn sum(self) -> Cycles {
        self.translation + self.data + self.fetch + self.branch + self.sibling
    }
}

impl std::ops::AddAssign for Stall {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        self.translation += other.translation;
        self.data += other.data;
        self.fetch += other.fetch;
        self.branch += other.branch;
        self.sibling += other.sibling;
    }
}

/// The timing of one CPU.
///
/// The engine makes a program's accesses in order: it translates each, then accesses the data. It passes both latencies
/// to the model, which returns how long the program stalls. A CPU's time is the sum of
/// [`base_cycles`](Self::base_cycles), these stalls, and what no core can hide: handlers, the kernel, devices and other
/// CPUs.
///
/// Requirements on an implementation:
///
/// - [`base_cycles`](Self::base_cycles) depends on the number of instructions alone, is 0 for none and never decreases.
///   The clock calls it for every reading.
/// - At any time, the stalls so far sum to no more than the latencies so far. The rest of one access's latency may
///   stall a later access; it shrinks by itself while the CPU's time passes otherwise, as [`CoreTime`] shows.
/// - An access to the line of the previous access hits the first-level TLB and cache. The engine counts it without
///   asking the model, so it stalls for a constant ([`repeat_stall`](Self::repeat_stall)).
/// - A model that overlaps accesses or predicts branches ([`models_dependencies`](Self::models_dependencies)) is called
///   for each access, including repeated ones, before it is translated. The program waits for all outstanding accesses
///   when the model [drains](Self::drain): before the kernel does anything, and at the end.
/// - Hardware threads of a core may share state ([`common`](Self::common)). The running thread owns it and gets the
///   state of the others; while these are idle, it returns the same as on a core of its own. Their
///   instructions may stall it beyond the latencies, but never for longer than they take in all.
/// - The time of a CPU never goes back. Results follow from parameters and calls alone, and a copy returns the same.
/// - The model is called for every access, so nothing allocates.
///
/// `tests/conformance` runs every registered model.
pub trait Timing {
    /// Cycles of `instructions` that nothing stalls.
    fn base_cycles(&self, instructions: u64) -> Cycles;

    /// Cycles that the program stalls for an access to the line of the previous access.
    fn repeat_stall(&self) -> Cycles;

    /// Whether the model must be called for each access: for its dependencies, or for the branches before it.
    #[inline]
    fn models_dependencies(&self) -> bool {
        false
    }

    /// Begins the next access; the calls until the next `begin_access` are for this one. Returns how long the program
    /// stalls before it.
    #[inline]
    fn begin_access(&mut self, _incoming: IncomingAccess, _at: CoreTime) -> Stall {
        Stall::default()
    }

    /// How long the program stalls for the data of an access. The model calls [`Data::arrival`] once.
    fn data_stall(&mut self, data: Data, at: CoreTime) -> Stall;

    /// [`Self::begin_access`] and [`Self::data_stall`] of each access of a row, in order, with nothing between them.
    /// Returns the sum of their stalls.
    fn make_all(&mut self, row: &Row, mut at: CoreTime) -> Stall {
        let mut all = Stall::default();
        for (number, (access, found)) in row.accesses.iter().zip(row.found).enumerate() {
            let branches = row.branches.get(number).copied().unwrap_or_default();
            let mut stall = self.begin_access(
                IncomingAccess { access, again: false, has_dependencies: row.has_dependencies, branches },
                at,
            );
            let data = Data { latency: found.latency, line: found.line, traffic: None };
            stall += self.data_stall(data, CoreTime { now: at.now + stall.sum(), ..at });
            let instructions = at.instructions + u64::from(access.gap);
            at.now += stall.sum() + self.base_cycles(instructions) - self.base_cycles(at.instructions);
            at.instructions = instructions;
            all += stall;
        }
        all
    }

    /// How long the program stalls for a translation, whether it is found or ends in a fault.
    #[inline]
    fn translation_stall(&mut self, miss: L1TlbMiss, _at: CoreTime) -> Stall {
        Stall { translation: miss.look_up + miss.walk, ..Stall::default() }
    }

    /// [`Self::translation_stall`] of an access that goes on with a guess of its page, `guessed` after the miss, while
    /// the walk goes on beside it. Also returns when the walk ends; the data of the access are passed to
    /// [`Self::verified_data_stall`] with this time.
    fn guessed_translation_stall(&mut self, miss: L1TlbMiss, guessed: Cycles, at: CoreTime) -> (Stall, Cycles) {
        let stall = Stall { translation: guessed, ..Stall::default() };
        (stall, at.now + guessed.max(miss.look_up + miss.walk))
    }

    /// [`Self::data_stall`] of an access that is not complete before `verified`. By default the program waits for both.
    fn verified_data_stall(&mut self, data: Data, verified: Cycles, at: CoreTime) -> Stall {
        let mut stall = self.data_stall(data, at);
        stall.translation += verified.saturating_sub(at.now + stall.sum());
        stall
    }

    /// How long the program stalls because everything behind the access, which has just been translated, was executed
    /// with a wrong guess: a core that had begun it drops it, and takes `penalty` to begin again.
    fn drop_younger(&mut self, _penalty: Cycles, _at: CoreTime) -> Stall {
        Stall::default()
    }

    /// How long the program stalls for a line of instructions that arrives after `latency`, beyond a hit of the
    /// instruction cache.
    #[inline]
    fn fetch_stall(&mut self, latency: Cycles, _at: CoreTime) -> Stall {
        Stall { fetch: latency, ..Stall::default() }
    }

    /// State that the hardware threads of a core share; none if the model has no such state.
    fn common(&self) -> Option<Box<Common>> {
        None
    }

    /// The hardware thread runs until it [pauses](Self::pause), and owns the shared state meanwhile.
    #[expect(clippy::boxed_local, reason = "the box goes from thread to thread")]
    fn resume(&mut self, _common: Box<Common>, _siblings: Siblings) {}

    /// The hardware thread stops running and returns the shared state.
    fn pause(&mut self) -> Option<Box<Common>> {
        None
    }

    /// Executes branches of kernel code. Returns the cycles that those of them take that the core mispredicts.
    fn kernel_branches(&mut self, _run: &BranchRun) -> Cycles {
        Cycles::ZERO
    }

    /// The window in which references of kernel code overlap; none if it waits for each.
    #[inline]
    fn kernel_window(&mut self) -> Option<&mut KernelWindow> {
        None
    }

    /// Branches seen and mispredicted; none for a model that predicts every branch right.
    fn branches(&self) -> Option<BranchCounts> {
        None
    }

    /// Assumed dependency of accesses recorded without one, as the end of a sentence; none if the model needs no
    /// dependencies.
    fn dependency_assumption(&self) -> Option<&'static str> {
        None
    }

    /// How long the program stalls until everything outstanding is complete.
    fn drain(&mut self, _at: CoreTime) -> Stall {
        Stall::default()
    }
}

/// A core model that a configuration can name.
pub trait Core: Timing + Sized + Clone + Debug {
    /// The keys of the configuration beside `model`. The type refuses unknown fields.
    type Parameters: Clone + Debug + PartialEq + Serialize + DeserializeOwned + JsonSchema;

    /// At the start of a run, where a hit of the first-level cache takes `l1_latency`.
    fn new(parameters: &Self::Parameters, l1_latency: Cycles) -> Self;

    /// Refuses impossible parameters; `key` is the part of the configuration that contains them.
    fn validate(parameters: &Self::Parameters, key: &str) -> Result<(), EngineError>;

    /// Parameters for the conformance tests.
    fn samples() -> Vec<Self::Parameters>;
}
