//! Core models: what instructions cost a program, and what of an access's latency it waits for.
//!
//! A model is one file here that implements [`Core`], and one line below. `registry.rs` makes the enums [`CoreModel`]
//! and [`CoreConfig`] of these lines. A line gives the model its name in the configuration (the key `model` of
//! `machine.core`), its row in `pagelab list cores`, its place in error texts and in the conformance tests.

#[macro_use]
mod registry;
pub mod clock;
mod common;
mod pool;
mod ring;
mod tage;
mod under_way;

use std::fmt::Debug;

use pagelab_trace::{Access, Branches};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cache::Traffic;
pub use common::{Common, Siblings};
pub use in_order::InOrder;
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::model_choice;
use pagelab_base::translation::Translation;
pub use window::Window;

cores! {
    mod in_order {
        InOrder(in_order::InOrder) = "in-order",
            "retires instructions at a fixed rate and waits for each access before it goes on";
    }
    mod window {
        Window(window::Window) = "window",
            "overlaps walks and misses as far as dependencies, a reorder window and its buffers allow";
    }
}

/// When a program waits, on its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreTime {
    /// Instructions that have retired, to the access before.
    pub instructions: u64,
    /// What the CPU's clock shows.
    pub now: Cycles,
}

/// What an access is, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub struct IncomingAccess<'a> {
    /// What is read or written, and by which instruction of its thread.
    pub access: &'a Access,
    /// It has been met before, and is made again after a fault.
    pub again: bool,
    /// Whether its source tells which loads addresses come from.
    pub tells: bool,
    /// Of the program, since the access before.
    pub branches: Branches,
}

/// Conditional branches of programs that a predictor has met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BranchCounts {
    /// All that the program executed and its source tells.
    pub met: u64,
    /// Of these, those whose outcome was not the predicted one.
    pub mispredicted: u64,
}

/// Where the data of an access are.
#[derive(Clone, Copy, Debug)]
pub struct DataLocation {
    /// From there.
    pub latency: Cycles,
    /// The number of the line in physical memory.
    pub line: u64,
}

/// Accesses of a [`Row`] at most.
pub const ROW: usize = 64;

/// Accesses of a program one after the other, each to one line, whose translations the first-level TLB has.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// At most [`ROW`].
    pub accesses: &'a [Access],
    /// Before each of them, and perhaps of more; nothing if they are not known.
    pub branches: &'a [Branches],
    /// As many as accesses.
    pub found: &'a [DataLocation],
    /// As in [`IncomingAccess`].
    pub tells: bool,
}

/// Data of an access, in one line.
#[derive(Debug)]
pub struct Data<'a> {
    /// From where they are.
    pub latency: Cycles,
    /// The number of the line in physical memory.
    pub line: u64,
    /// What may have them come later, of a machine that has such.
    pub traffic: Option<&'a mut Traffic>,
}

impl Data<'_> {
    /// When they are there, of an access that issues at `from`; asked once.
    #[inline]
    pub fn arrival(&mut self, from: Cycles) -> Cycles {
        match &mut self.traffic {
            None => from + self.latency,
            Some(traffic) => traffic.arrival(from, self.latency),
        }
    }
}

/// A translation beyond the first-level TLB.
#[derive(Clone, Copy, Debug)]
pub struct L1TlbMiss {
    /// Of the second-level TLB.
    pub look_up: Cycles,
    /// Of the page walk after it; none if it is zero.
    pub walk: Cycles,
    /// What it ends in; none if that is a fault.
    pub page: Option<Translation>,
    /// Whether it is of an instruction, or of data.
    pub fetches: bool,
}

/// How long a program stalls, by what it waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stall {
    /// Cycles for the translation of the address.
    pub translation: Cycles,
    /// Cycles for the data.
    pub data: Cycles,
    /// Behind a mispredicted branch, once that is known.
    pub branch: Cycles,
    /// For instructions of the core's other hardware threads.
    pub sibling: Cycles,
}

impl Stall {
    /// All together, in cycles.
    #[inline]
    pub fn sum(self) -> Cycles {
        self.translation + self.data + self.branch + self.sibling
    }
}

impl std::ops::AddAssign for Stall {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        self.translation += other.translation;
        self.data += other.data;
        self.branch += other.branch;
        self.sibling += other.sibling;
    }
}

/// What a model of a core, of one CPU, is asked.
///
/// The engine makes a program's accesses in their order. Each is translated, and then made; the model is told the
/// latency of both, and says how long the program stalls. A CPU's time is the sum of
/// [`base_cycles`](Self::base_cycles), of what it said, and of what is no core's to hide: handlers, the kernel, devices
/// and other CPUs.
///
/// What an implementor must uphold:
///
/// - [`base_cycles`](Self::base_cycles) follows from the number alone, is 0 for none and never falls. The clock asks it
///   anew for every reading.
/// - Up to any moment, the stalls sum to no more than the latencies. What is left of one access's latency may stall a
///   later access; it passes by itself while the CPU's time goes on otherwise, as the moment shows.
/// - An access to the line of the access before it hits the first-level TLB and cache. It is counted and not looked at,
///   so it stalls for a constant ([`repeat_stall`](Self::repeat_stall)), whatever was asked before.
/// - A model that overlaps accesses ([`models_dependencies`](Self::models_dependencies)) is told of each of them,
///   repeated ones included, before anything of it is made. What is left in the end is waited for where it
///   [drains](Self::drain): before the kernel does anything, and at the end.
/// - Hardware threads of a core may have something in common ([`common`](Self::common)). Whoever goes on is given it,
///   and told of the others; while none of these has anything to run, it says what it would say on a core of its own.
///   For their instructions it stalls beyond the latencies, but never for longer than they take in all.
/// - Moments of a CPU never go back. What is said follows from parameters and calls alone, and a copy says the same.
/// - This is asked for every access: nothing allocates.
///
/// `tests/conformance` runs every registered model.
pub trait Timing {
    /// Cycles that so many instructions take where nothing stalls them.
    fn base_cycles(&self, instructions: u64) -> Cycles;

    /// Cycles that the program stalls for an access to the line of the access before it.
    fn repeat_stall(&self) -> Cycles;

    /// Whether it is told of each access.
    #[inline]
    fn models_dependencies(&self) -> bool {
        false
    }

    /// The program comes to an access; of what follows until the next, all is for this one. How long it stalls before.
    #[inline]
    fn meet(&mut self, _met: IncomingAccess, _at: CoreTime) -> Stall {
        Stall::default()
    }

    /// How long the program stalls at an access to data. The model asks the data once when they are there
    /// ([`Data::arrival`]).
    fn data_stall(&mut self, data: Data, at: CoreTime) -> Stall;

    /// [`Self::meet`] and [`Self::data_stall`] of each access of a row, one after the other, where nothing comes
    /// between. How long all of them stall.
    fn make_all(&mut self, row: &Row, mut at: CoreTime) -> Stall {
        let mut all = Stall::default();
        for (number, (access, found)) in row.accesses.iter().zip(row.found).enumerate() {
            let branches = row.branches.get(number).copied().unwrap_or_default();
            let mut stall = self.meet(IncomingAccess { access, again: false, tells: row.tells, branches }, at);
            let data = Data { latency: found.latency, line: found.line, traffic: None };
            stall += self.data_stall(data, CoreTime { now: at.now + stall.sum(), ..at });
            let instructions = at.instructions + u64::from(access.gap);
            at.now += stall.sum() + self.base_cycles(instructions) - self.base_cycles(at.instructions);
            at.instructions = instructions;
            all += stall;
        }
        all
    }

    /// How long it stalls for a translation, be it found or end in a fault.
    #[inline]
    fn translation_stall(&mut self, of: L1TlbMiss, _at: CoreTime) -> Stall {
        Stall { translation: of.look_up + of.walk, ..Stall::default() }
    }

    /// What several hardware threads of such a core have in common; none if that is nothing a model knows of.
    fn common(&self) -> Option<Box<Common>> {
        None
    }

    /// One of several hardware threads goes on, until it [pauses](Self::pause), with what they have in common.
    #[expect(clippy::boxed_local, reason = "the box goes from thread to thread")]
    fn go_on(&mut self, _common: Box<Common>, _siblings: Siblings) {}

    /// It no longer does, and gives what they have in common back.
    fn pause(&mut self) -> Option<Box<Common>> {
        None
    }

    /// What it has predicted; none if it takes all branches for predicted.
    fn branches(&self) -> Option<BranchCounts> {
        None
    }

    /// What it takes accesses as whose source does not tell what they wait for, as the end of a sentence; none if it
    /// does not ask.
    fn dependency_assumption(&self) -> Option<&'static str> {
        None
    }

    /// How long it stalls until all that is under way is complete.
    fn drain(&mut self, _at: CoreTime) -> Stall {
        Stall::default()
    }
}

/// A core model that a configuration can name.
pub trait Core: Timing + Sized + Clone + Debug {
    /// What the configuration may say beside `model`. It refuses unknown fields.
    type Parameters: Clone + Debug + PartialEq + Serialize + DeserializeOwned + JsonSchema;

    /// At the start of a run, where a hit of the first-level cache takes `l1_latency`.
    fn new(parameters: &Self::Parameters, l1_latency: Cycles) -> Self;

    /// Refuses impossible parameters; `key` is the part of the configuration that they are in.
    fn validate(parameters: &Self::Parameters, key: &str) -> Result<(), EngineError>;

    /// Parameters that the conformance tests run it with.
    fn samples() -> Vec<Self::Parameters>;
}

/// A model that code is compiled for.
pub trait CompiledCore: Timing + Sized {
    /// Takes it out of a core, if that is of the model. It must be [given back](Self::give_back) before the core is
    /// asked for anything.
    fn take(from: &mut CoreModel) -> Option<Self>;

    /// Puts it back.
    fn give_back(self, to: &mut CoreModel);
}

impl CompiledCore for InOrder {
    #[inline]
    fn take(from: &mut CoreModel) -> Option<Self> {
        if let CoreModel::InOrder(core) = from { Some(core.clone()) } else { None }
    }

    /// It has no state, and the core has kept it.
    #[inline]
    fn give_back(self, _: &mut CoreModel) {}
}

impl CompiledCore for Window {
    #[inline]
    fn take(from: &mut CoreModel) -> Option<Self> {
        match std::mem::replace(from, CoreModel::InOrder(InOrder::IN_PLACE)) {
            CoreModel::Window(core) => Some(core),
            CoreModel::InOrder(core) => {
                *from = CoreModel::InOrder(core);
                None
            }
        }
    }

    #[inline]
    fn give_back(self, to: &mut CoreModel) {
        *to = CoreModel::Window(self);
    }
}
