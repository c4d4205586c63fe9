//! A task: a thread of a program or of a kernel as its CPU sees it, and its progress.
//!
//! A CPU holds its current task ([`crate::machine::cpu::Cpu::task`]), as a processor holds it in its registers. A
//! suspended task is stored with its lane or kernel thread until it continues.

use crate::machine::activity::Activity;
use crate::machine::kernels::Kernels;
use pagelab_base::addr::{LineAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::LayerId;
use pagelab_base::page_fault::Intent;
use pagelab_base::step::{BlockKey, Step};
use pagelab_kernel::fault::FaultOutcome;
use pagelab_kernel::fault::stage::Stage;
use pagelab_run::observe::page_faults::SeenFault;
use pagelab_run::observe::profile::Miss;
use pagelab_run::programs::input::{Item, Part};
use pagelab_trace::ThreadIx;
use std::collections::VecDeque;

/// An activity in progress on a task's stack.
#[derive(Clone)]
pub struct StackEntry {
    /// The activity.
    pub activity: Activity,
    /// When it began.
    pub began: Cycles,
    /// The layer that the planned step works for.
    pub layer: LayerId,
    /// The step that is planned, or will be planned next.
    pub step: Step,
    /// Whether `step` is planned.
    pub planned: bool,
    /// The fault stage that the planned step counts for; `None` outside of faults.
    pub stage: Option<Stage>,
    /// Whether the step's own cycles have been charged.
    pub begun: bool,
    /// References of `step` charged so far.
    pub charged: usize,
    /// Whether it happened before the run: its steps cost nothing.
    pub is_free: bool,
    /// Bytes already charged of the current reference, if it is a bulk one.
    pub bytes_done: u64,
    /// Dependency step of the last reference, and the largest cost of a reference in that step.
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
        if let Activity::Kernel { thread, layer } = &mut self.activity {
            *layer = kernels.threads.get(*thread).step_layer();
            self.layer = *layer;
        }
        self.stage = self.activity.plan(kernels, &mut self.step);
        if self.is_free {
            self.step.make_free();
        }
        let code = &kernels.os.layers[self.layer].data.code;
        if code.is_some()
            && let Some(path) = self.activity.code_path(self.stage)
        {
            kernels.os.layers[self.layer].plan_code(path, &mut self.step);
        }
        self.planned = true;
    }

    /// Whether the planned step has references that are not charged yet.
    #[inline]
    pub fn has_refs_left(&self) -> bool {
        self.charged < self.step.refs.len()
    }

    /// Discards the planned step, so that the activity plans its next one.
    pub fn reset(&mut self) {
        self.step.clear();
        (self.planned, self.begun) = (false, false);
        (self.charged, self.bytes_done) = (0, 0);
        self.overlap = (0, Cycles::ZERO);
    }
}

/// The activities of a task; each except the first works on behalf of the one below. Ended activities stay allocated
/// for reuse.
#[derive(Clone, Default)]
pub struct Activities {
    entries: Vec<StackEntry>,
    /// Number of activities in progress.
    depth: usize,
}

impl Activities {
    /// Whether no activity is in progress.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.depth == 0
    }

    /// The bottom activity, which the program waits for.
    #[inline]
    pub fn first(&self) -> Option<&StackEntry> {
        self.entries[..self.depth].first()
    }

    /// The top activity, which is running.
    #[inline]
    pub fn last(&self) -> Option<&StackEntry> {
        self.entries[..self.depth].last()
    }

    /// The top activity, mutable.
    #[inline]
    pub fn last_mut(&mut self) -> Option<&mut StackEntry> {
        self.entries[..self.depth].last_mut()
    }

    /// Begins an activity on top of the others.
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

    /// Ends the top activity and returns it. There must be one.
    #[inline]
    pub fn pop(&mut self) -> &StackEntry {
        self.depth -= 1;
        &self.entries[self.depth]
    }
}

/// Progress of an access that crosses lines.
#[derive(Clone, Copy, Debug, Default)]
pub struct SplitAccess {
    /// Lines that are done.
    pub lines: u64,
    /// Whether it has already missed in L1, L2 and L3.
    pub missed: [bool; 3],
}

/// A task, see the module's text.
#[derive(Clone, Default)]
pub struct Task {
    /// Distinguishes it from other tasks of its CPU.
    pub number: u32,
    /// Its activities in progress.
    pub stack: Activities,
    /// Outcome of the last program-level fault, until the access checks it.
    pub outcome: Option<FaultOutcome>,
    /// Address and purpose of the translation that raised that fault.
    pub faulted: Option<(VirtAddr, Intent)>,
    /// When the walk ends beside which the access goes on, until its data are accessed.
    pub verified: Option<Cycles>,
    /// With an instruction cache: the line of the last instruction that was fetched.
    pub code_line: Option<LineAddr>,
    /// Whether the program fetches that line again before it retries its access, since the kernel handled its fault.
    pub refetches: bool,
    /// The program-level fault in progress, if faults are observed one by one.
    pub fault: Option<SeenFault>,
    /// The program's miss in progress, if a profile is recorded.
    pub miss: Option<Box<Miss>>,
    /// Whether its next access has begun, and waits for CPUs whose clocks are behind.
    pub deferred: bool,
    /// Progress of an access that a fault handler interrupted.
    pub split: SplitAccess,
    /// The calls ahead of the access in progress.
    pub ahead: CallsAhead,
    /// The key that its top activity, or its next event, waits for.
    pub waits_for: Option<BlockKey>,
    /// The thread as which it continues, if it was suspended with activities on its stack: an input and a number.
    pub thread: Option<(usize, ThreadIx)>,
}

/// Calls of a fault engine that a program has made ahead of an access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallsAhead {
    /// First address of the access.
    pub vaddr: u64,
    /// Number of its pages for which a call was made or not needed.
    pub pages: u64,
}

impl Task {
    /// An idle task with this number among those of its CPU.
    pub fn new(number: u32) -> Self {
        Self { number, ..Self::default() }
    }

    /// Whether it was suspended within an access or an activity and waits for nothing.
    pub fn can_resume(&self) -> bool {
        self.waits_for.is_none() && !self.stack.is_empty()
    }

    /// Whether its next access has begun and continues: after a fault, or after waiting for its place in the order.
    #[inline]
    pub fn is_within_access(&self) -> bool {
        self.outcome.is_some() || self.deferred || self.split.lines > 0
    }

    /// Whether it is between two accesses, with nothing in progress.
    pub fn is_idle(&self) -> bool {
        self.stack.is_empty() && !self.is_within_access() && self.waits_for.is_none()
    }
}

/// The queue of one input on one CPU.
#[derive(Clone)]
pub struct CpuQueue {
    /// Index of the input.
    pub input: usize,
    /// In recorded order.
    pub queue: VecDeque<Item>,
    /// Whether several threads of the input share this CPU.
    pub shared: bool,
    /// Index of its current item; above 0 only behind items of suspended threads, or of those that wait for their turn.
    pub at: usize,
    /// The thread that it ran last.
    pub last: Option<ThreadIx>,
    /// Whether it can continue.
    pub state: LaneState,
    /// Its task, unless it is the CPU's current one.
    pub task: Task,
    /// Threads that are suspended within an access while others of the queue continue.
    pub overtaken: Vec<SuspendedThread>,
}

impl CpuQueue {
    /// An empty queue of an input.
    pub fn new(input: usize, shared: bool, task: Task) -> Self {
        let (queue, overtaken) = (VecDeque::new(), Vec::new());
        Self { input, queue, shared, at: 0, last: None, state: LaneState::Ready, task, overtaken }
    }

    /// Adds an item in recorded order. With `by_thread`, all that a thread does between two events is one run.
    pub fn enqueue(&mut self, item: Item, by_thread: bool) {
        if let (true, Item::Run { batch, at, end, thread, .. }) = (by_thread, &item) {
            for earlier in self.queue.iter_mut().rev() {
                match earlier {
                    Item::Run { thread: other, more, .. } if other == thread => {
                        more.push_back(Part { batch: batch.clone(), at: *at, end: *end });
                        return;
                    }
                    Item::Run { .. } => {}
                    Item::Event { .. } | Item::Barrier { .. } | Item::Wake { .. } | Item::Woken { .. } => break,
                }
            }
        }
        self.queue.push_back(item);
    }

    /// Removes the current part of the current item, and the item with its last part.
    pub fn pop_part(&mut self) {
        if let Some(Item::Run { batch, at, end, more, .. }) = self.queue.get_mut(self.at)
            && let Some(part) = more.pop_front()
        {
            (*batch, *at, *end) = (part.batch, part.at, part.end);
        } else {
            self.queue.remove(self.at);
        }
    }

    /// Whether several threads share it and what is read next may belong to a thread that can run: no event is queued.
    pub fn is_open(&self) -> bool {
        self.shared && self.queue.iter().all(|item| matches!(item, Item::Run { .. }))
    }

    /// Index of the run of a thread before the next event; or the reason why there is none: `Event` if an event comes
    /// first, `Unknown` if the input may have more.
    pub fn run_of(&self, thread: ThreadIx) -> NextItem {
        for (at, item) in self.queue.iter().enumerate() {
            match item {
                Item::Run { thread: other, .. } if *other == thread => return NextItem::At(at),
                Item::Run { .. } => {}
                Item::Event { .. } | Item::Barrier { .. } | Item::Wake { .. } | Item::Woken { .. } => {
                    return NextItem::Event;
                }
            }
        }
        NextItem::Unknown
    }

    /// Whether a thread is suspended within an access while others continue.
    pub fn is_overtaken(&self, thread: ThreadIx) -> bool {
        self.overtaken.iter().any(|suspended| suspended.thread == thread)
    }

    /// What the queue could continue with if the thread `waiting` cannot. A thread continues as long as the next item
    /// is its own; after that, the first item in recorded order is next. No thread overtakes an event, since what
    /// follows may depend on it. `is_all` says that the input cannot be read further to find more of the thread.
    pub fn next(&self, waiting: Option<ThreadIx>, is_all: bool) -> NextItem {
        if self.last != waiting && self.last.is_some_and(|last| !self.is_overtaken(last)) {
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
            match self.overtaken.iter().find(|suspended| suspended.thread == *thread) {
                None => return NextItem::At(at),
                Some(suspended) if suspended.task.waits_for.is_none() => return NextItem::Suspended(*thread),
                Some(_) => {}
            }
        }
        NextItem::Unknown
    }

    /// Makes the task of a suspended thread the lane's own. The lane's former task is suspended in turn, unless it is
    /// idle.
    pub(super) fn recall(&mut self, thread: ThreadIx) {
        let of_thread = |item: &Item| matches!(item, Item::Run { thread: other, .. } if *other == thread);
        let at = self.overtaken.iter().position(|suspended| suspended.thread == thread).expect("it has been overtaken");
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

/// A suspended thread of a lane: its run is in the queue, but is not the lane's current item.
#[derive(Clone)]
pub struct SuspendedThread {
    /// The thread, within its input.
    pub thread: ThreadIx,
    /// Its activities, or what it waits for.
    pub task: Task,
}

/// What a lane could continue with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextItem {
    /// The item at this index of its queue.
    At(usize),
    /// A suspended thread that no longer waits.
    Suspended(ThreadIx),
    /// Nothing: the next item is an event, which the waiting thread must reach first.
    Event,
    /// Nothing in its queue; the input may have more.
    Unknown,
}

/// Whether a lane can continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneState {
    /// It has work, or may get some when its input is read further.
    Ready,
    /// It is at a barrier that other CPUs have not reached.
    AtBarrier,
    /// It is at a woken whose wake another CPU has not reached.
    AtEdge,
    /// Its input's window is full of work for other CPUs.
    Starved,
    /// Its input has ended, and the queue is empty.
    Finished,
}

/// A kernel thread of a CPU.
#[derive(Clone)]
pub struct KernelTask {
    /// Its number among the threads of all kernels.
    pub thread: usize,
    /// Its task, unless it is the CPU's current one.
    pub task: Task,
}

/// The slot of a CPU that a task belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskSlot {
    /// A lane, by its index on the CPU.
    Queue(usize),
    /// A kernel thread, by its index on the CPU.
    Kernel(usize),
    /// A suspended thread of a lane. Never a CPU's current slot: switching to it makes it the lane's task.
    Suspended {
        /// Index of the lane on the CPU.
        lane: usize,
        /// The thread, within the lane's input.
        thread: ThreadIx,
    },
}
