//! A task: a thread of a program or of a kernel as its CPU sees it, and how far it has come.
//!
//! A CPU has the task that it runs in its hands ([`crate::machine::cpu::Cpu::task`]), as a processor has it in its registers. What
//! it has left in the middle lies with its lane or its kernel thread until it goes on.

use crate::base::cycles::Cycles;
use crate::base::ids::LayerId;
use crate::base::step::{BlockKey, Step};
use crate::kernel::fault::Outcome;
use crate::machine::activity::Activity;
use crate::programs::input::Item;
use pagelab_trace::ThreadIx;
use std::collections::VecDeque;

/// An activity under way on a task's stack.
#[derive(Clone)]
pub struct StackEntry {
    pub activity: Activity,
    /// Layer that it is an activity of.
    pub layer: LayerId,
    pub step: Step,
    /// Whether `step` is planned.
    pub planned: bool,
    /// Index of the fault's stage that the planned step is counted for; none of a kernel thread.
    pub stage: Option<usize>,
    /// Whether the step's own cycles are charged.
    pub begun: bool,
    /// References of `step` charged so far.
    pub charged: usize,
    /// Bytes done of the reference under way, if it is a bulk one.
    pub bytes_done: u64,
    /// Dependency step of the last reference and the most that one of it cost.
    pub overlap: (u8, Cycles),
}

impl StackEntry {
    pub(super) fn new(activity: Activity) -> Self {
        let layer = activity.layer();
        Self {
            activity,
            layer,
            step: Step::default(),
            planned: false,
            stage: None,
            begun: false,
            charged: 0,
            bytes_done: 0,
            overlap: (0, Cycles::ZERO),
        }
    }

    /// Whether references of the planned step are still to be made.
    #[inline]
    pub fn has_refs_left(&self) -> bool {
        self.charged < self.step.refs.len()
    }

    /// Makes the activity plan its next step.
    pub fn reset(&mut self) {
        self.step.clear();
        (self.planned, self.begun) = (false, false);
        (self.charged, self.bytes_done) = (0, 0);
        self.overlap = (0, Cycles::ZERO);
    }
}

/// How far an access that crosses lines has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Split {
    /// Lines that are done.
    pub lines: u64,
    /// Whether it has missed in L1, L2 and L3 so far.
    pub missed: [bool; 3],
}

/// See the module's text.
#[derive(Clone, Default)]
pub struct Task {
    /// What tells it from the other tasks of its CPU.
    pub number: u32,
    pub stack: Vec<StackEntry>,
    /// How the last program-level fault ended, until the access looks at it.
    pub outcome: Option<Outcome>,
    /// How far an access has come that a fault handler interrupted.
    pub split: Split,
    /// What its uppermost activity, or its next event, waits for.
    pub waits_for: Option<BlockKey>,
    /// The thread that it goes on as, if it was left with activities on its stack: an input and a number.
    pub thread: Option<(usize, ThreadIx)>,
}

impl Task {
    pub fn new(number: u32) -> Self {
        Self { number, ..Self::default() }
    }

    /// Whether it was left within an access or an activity and waits for nothing.
    pub fn can_go_on(&self) -> bool {
        self.waits_for.is_none() && !self.stack.is_empty()
    }
}

/// The queue of one input on one CPU.
#[derive(Clone)]
pub struct Lane {
    pub input: usize,
    pub queue: VecDeque<Item>,
    pub state: LaneState,
    /// What runs it, unless the CPU has it in its hands.
    pub task: Task,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneState {
    Ready,
    /// At a barrier that other CPUs have not reached.
    AtBarrier,
    /// The window is full of other CPUs' work.
    Starved,
    Finished,
}

/// A kernel thread of a CPU.
#[derive(Clone)]
pub struct KernelTask {
    /// Its number among those of all kernels.
    pub thread: usize,
    /// What runs it, unless the CPU has it in its hands.
    pub task: Task,
}

/// Where the task that a CPU runs belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    /// To a lane, by its place among the CPU's.
    Lane(usize),
    /// To a kernel thread, likewise.
    Kernel(usize),
}
