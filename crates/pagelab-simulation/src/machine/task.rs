//! A task: a thread of a program or of a kernel as its CPU sees it, and how far it has come.
//!
//! A CPU has the task that it runs in its hands ([`crate::machine::cpu::Cpu::task`]), as a processor has it in its
//! registers. What it has left in the middle lies with its lane or its kernel thread until it goes on.

use crate::machine::activity::Activity;
use crate::machine::kernels::Kernels;
use crate::observe::page_faults::SeenFault;
use crate::observe::profile::Miss;
use crate::programs::input::Item;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::LayerId;
use pagelab_base::step::{BlockKey, Step};
use pagelab_kernel::fault::Outcome;
use pagelab_kernel::fault::stage::Stage;
use pagelab_trace::ThreadIx;
use std::collections::VecDeque;

/// An activity under way on a task's stack.
#[derive(Clone)]
pub struct StackEntry {
    /// What is under way.
    pub activity: Activity,
    /// When it began.
    pub began: Cycles,
    /// Layer that it is an activity of.
    pub layer: LayerId,
    /// The step that is planned, or to be planned next.
    pub step: Step,
    /// Whether `step` is planned.
    pub planned: bool,
    /// The fault's stage that the planned step is counted for; none of a kernel thread.
    pub stage: Option<Stage>,
    /// Whether the step's own cycles are charged.
    pub begun: bool,
    /// References of `step` charged so far.
    pub charged: usize,
    /// Whether it was done before the run: its steps cost nothing.
    pub is_free: bool,
    /// Bytes done of the reference under way, if it is a bulk one.
    pub bytes_done: u64,
    /// Dependency step of the last reference and the most that one of it cost.
    pub overlap: (u8, Cycles),
}

impl StackEntry {
    fn new(activity: Activity, began: Cycles) -> Self {
        let layer = activity.layer();
        Self {
            activity,
            began,
            layer,
            step: Step::default(),
            planned: false,
            stage: None,
            begun: false,
            charged: 0,
            is_free: false,
            bytes_done: 0,
            overlap: (0, Cycles::ZERO),
        }
    }

    /// Plans the next step.
    #[inline]
    pub fn plan(&mut self, kernels: &Kernels) {
        self.stage = self.activity.plan(kernels, &mut self.step);
        if self.is_free {
            self.step.make_free();
        }
        self.planned = true;
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

/// The activities of a task, each but the first on behalf of the one below. What has ended stays where it is, for its
/// memory.
#[derive(Clone, Default)]
pub struct Activities {
    entries: Vec<StackEntry>,
    /// How many are under way.
    depth: usize,
}

impl Activities {
    /// Whether nothing is under way.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.depth == 0
    }

    /// The activity that the program waits for, below all others.
    #[inline]
    pub fn first(&self) -> Option<&StackEntry> {
        self.entries[..self.depth].first()
    }

    /// The activity that is at work.
    #[inline]
    pub fn last(&self) -> Option<&StackEntry> {
        self.entries[..self.depth].last()
    }

    /// The same, to change it.
    #[inline]
    pub fn last_mut(&mut self) -> Option<&mut StackEntry> {
        self.entries[..self.depth].last_mut()
    }

    /// Begins an activity.
    #[inline]
    pub fn push(&mut self, activity: Activity, began: Cycles) {
        if let Some(entry) = self.entries.get_mut(self.depth) {
            (entry.layer, entry.activity, entry.began) = (activity.layer(), activity, began);
            entry.is_free = false;
            entry.reset();
        } else {
            self.entries.push(StackEntry::new(activity, began));
        }
        self.depth += 1;
    }

    /// Ends the uppermost, which there is, and returns it.
    #[inline]
    pub fn pop(&mut self) -> &StackEntry {
        self.depth -= 1;
        &self.entries[self.depth]
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
    /// What it has under way.
    pub stack: Activities,
    /// How the last program-level fault ended, until the access looks at it.
    pub outcome: Option<Outcome>,
    /// The program-level fault under way, if somebody wants to know of it.
    pub fault: Option<SeenFault>,
    /// The miss of the program that is being seen to, if somebody wants to know where paging costs.
    pub miss: Option<Box<Miss>>,
    /// How far an access has come that a fault handler interrupted.
    pub split: Split,
    /// What its uppermost activity, or its next event, waits for.
    pub waits_for: Option<BlockKey>,
    /// The thread that it goes on as, if it was left with activities on its stack: an input and a number.
    pub thread: Option<(usize, ThreadIx)>,
}

impl Task {
    /// A task at rest, told from others of its CPU by a number.
    pub fn new(number: u32) -> Self {
        Self { number, ..Self::default() }
    }

    /// Whether it was left within an access or an activity and waits for nothing.
    pub fn can_go_on(&self) -> bool {
        self.waits_for.is_none() && !self.stack.is_empty()
    }

    /// Whether it is between two accesses, with nothing begun.
    pub fn is_idle(&self) -> bool {
        self.stack.is_empty() && self.outcome.is_none() && self.split.lines == 0 && self.waits_for.is_none()
    }
}

/// The queue of one input on one CPU.
#[derive(Clone)]
pub struct CpuQueue {
    /// Index of the input.
    pub input: usize,
    /// In recorded order.
    pub queue: VecDeque<Item>,
    /// Place of the item that it has come to: 0 unless it stands behind those of overtaken threads.
    pub at: usize,
    /// The thread that it ran last.
    pub last: Option<ThreadIx>,
    /// Whether the queue can go on.
    pub state: LaneState,
    /// What runs it, unless the CPU has it in its hands.
    pub task: Task,
    /// Threads that wait within an access, or did, while others of the queue have gone on.
    pub overtaken: Vec<SuspendedThread>,
}

impl CpuQueue {
    /// An empty queue of an input.
    pub fn new(input: usize, task: Task) -> Self {
        let (queue, overtaken) = (VecDeque::new(), Vec::new());
        Self { input, queue, at: 0, last: None, state: LaneState::Ready, task, overtaken }
    }

    /// What it could go on with, if `waiting` cannot go on either: a thread goes on for as long as nobody else's item
    /// follows, then comes the first in recorded order. Nobody overtakes at an event: what follows may depend on it.
    /// `is_all` if nothing can be read on that the thread would go on with.
    pub fn next(&self, waiting: Option<ThreadIx>, is_all: bool) -> NextItem {
        let is_overtaken = |thread| self.overtaken.iter().any(|of| of.thread == thread);
        if self.last != waiting && self.last.is_some_and(|last| !is_overtaken(last)) {
            match self.queue.get(self.at) {
                Some(Item::Run { thread, .. }) if self.last == Some(*thread) => return NextItem::At(self.at),
                None if !is_all => return NextItem::Unknown,
                Some(_) | None => {}
            }
        }
        for (at, item) in self.queue.iter().enumerate() {
            let Item::Run { thread, .. } = item else {
                return if at == 0 { NextItem::At(0) } else { NextItem::Event };
            };
            if waiting == Some(*thread) {
                continue;
            }
            match self.overtaken.iter().find(|of| of.thread == *thread) {
                None => return NextItem::At(at),
                Some(of) if of.task.waits_for.is_none() => return NextItem::Suspended(*thread),
                Some(_) => {}
            }
        }
        NextItem::Unknown
    }

    /// Makes the task of an overtaken thread the lane's own. What that was is overtaken in turn, unless it is at rest.
    pub(super) fn recall(&mut self, thread: ThreadIx) {
        let of_thread = |item: &Item| matches!(item, Item::Run { thread: of, .. } if *of == thread);
        let at = self.overtaken.iter().position(|of| of.thread == thread).expect("it has been overtaken");
        let task = std::mem::replace(&mut self.task, self.overtaken.remove(at).task);
        if !task.is_idle() {
            let Some(Item::Run { thread, .. }) = self.queue.get(self.at) else {
                unreachable!("it is within an access")
            };
            self.overtaken.push(SuspendedThread { thread: *thread, task });
        }
        self.at = self.queue.iter().position(of_thread).expect("its access is not done");
    }
}

/// A thread of a lane that others have overtaken: its run is in the queue, and not the one that the lane has come to.
#[derive(Clone)]
pub struct SuspendedThread {
    /// The thread, within its input.
    pub thread: ThreadIx,
    /// What it has under way or waits for.
    pub task: Task,
}

/// What a lane could go on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextItem {
    /// The item at this place of its queue.
    At(usize),
    /// A thread that has been overtaken and waits for nothing any more.
    Suspended(ThreadIx),
    /// Nothing, before an event that comes after what waits.
    Event,
    /// Nothing in its queue; the input may have more.
    Unknown,
}

/// Whether a lane can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneState {
    /// It has something to do, or may get some when its input is read on.
    Ready,
    /// At a barrier that other CPUs have not reached.
    AtBarrier,
    /// At a woken whose wake another CPU has yet to come to.
    AtEdge,
    /// The window is full of other CPUs' work.
    Starved,
    /// The input has ended, and the queue is empty.
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
pub enum TaskSlot {
    /// To a lane, by its place among the CPU's.
    Queue(usize),
    /// To a kernel thread, likewise.
    Kernel(usize),
    /// To a thread of a lane that has been overtaken. No CPU has this seat: who goes over to it has the lane's.
    Suspended {
        /// Place of the lane among the CPU's.
        lane: usize,
        /// The thread, within the lane's input.
        thread: ThreadIx,
    },
}
