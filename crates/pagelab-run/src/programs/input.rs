//! Inputs: distributing a source's accesses and events to CPUs.
//!
//! An [`Input`] reads its source batch by batch and distributes the runs of each thread to a queue (lane) for each CPU
//! that it uses. Nothing is copied; the queues share the batches. So threads on different CPUs may run ahead of each
//! other within a window. An event is a barrier in the queues of all CPUs that run its process, and is carried out when
//! the last of them has reached it. The start of a stretch that is skipped, warms up or is measured is a barrier for
//! all CPUs.
//!
//! An edge is a wake in one thread and a woken in another. The CPU of the woken thread waits until the CPU of the other
//! has reached the wake. There is no deadlock: of all items that are dispatched and not done, the first in recorded
//! order is at the head of its queue or in progress. Anything that it may wait for comes before it, and so is done. The
//! window contains it, since items that are not dispatched yet come after all that are.

use pagelab_base::ids::{CpuId, SpaceId};
use pagelab_kernel::home::ProcessTarget;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use pagelab_trace::calls::CallStacks;
use pagelab_trace::{Batch, Event, EventKind, ProcessIx, Segment, Source, SourceInfo, ThreadIx};

use crate::programs::account::Account;
use crate::programs::feed::Feed;
use crate::programs::role::Role;
use pagelab_base::error::EngineError;

/// An item in the queue of a CPU.
#[derive(Clone)]
pub enum Item {
    /// Accesses `at..end` of the batch, by one thread.
    Run {
        /// The batch that holds them.
        batch: Arc<Batch>,
        /// Index in the batch of the next access.
        at: usize,
        /// Index after the last access.
        end: usize,
        /// The thread that makes them.
        thread: ThreadIx,
        /// What the thread does after that, before the next event.
        more: VecDeque<Part>,
    },
    /// An event of a process that runs on this CPU only, given by its segment of the batch.
    Event {
        /// The batch that holds the event.
        batch: Arc<Batch>,
        /// Its index among the batch's segments.
        segment: usize,
    },
    /// An event of a process on several CPUs.
    Barrier {
        /// Number of the barrier, a key of [`Input::barriers`].
        barrier: u64,
    },
    /// Lets threads continue that wait at an [`Item::Woken`] of this number.
    Wake {
        /// Number of the wake within the input.
        wake: u64,
    },
    /// Waits until the CPU of this wake has reached it; `None` if there was no pending wake of the edge when it was
    /// dispatched.
    Woken {
        /// Number of the wake.
        wake: Option<u64>,
    },
}

/// Accesses `at..end` of a batch.
#[derive(Clone)]
pub struct Part {
    /// The batch that holds them.
    pub batch: Arc<Batch>,
    /// Index in the batch of the next access.
    pub at: usize,
    /// Index after the last access.
    pub end: usize,
}

impl Item {
    /// A copy without what follows in a thread's run.
    pub fn first_part(&self) -> Self {
        match self {
            Self::Run { batch, at, end, thread, more: _ } => {
                Self::Run { batch: batch.clone(), at: *at, end: *end, thread: *thread, more: VecDeque::new() }
            }
            Self::Event { .. } | Self::Barrier { .. } | Self::Wake { .. } | Self::Woken { .. } => self.clone(),
        }
    }
}

/// An event that several CPUs must reach.
#[derive(Clone)]
pub struct Barrier {
    /// The batch that holds the event.
    pub batch: Arc<Batch>,
    /// Its index among the batch's segments.
    pub segment: usize,
    /// CPU of the event's thread, which carries it out.
    pub owner: CpuId,
    /// CPUs that take part.
    pub members: Vec<CpuId>,
    /// Number of members that have reached it.
    pub arrived: usize,
}

impl Barrier {
    /// The event that is carried out when all members have arrived.
    pub fn event(&self) -> &Event {
        event_of(&self.batch, self.segment)
    }
}

/// The event at a segment of a batch.
pub fn event_of(batch: &Batch, segment: usize) -> &Event {
    match &batch.segments[segment] {
        Segment::Event(event) => event,
        Segment::Run { .. } => unreachable!("the segment was an event when it was queued"),
    }
}

#[derive(Clone, Copy)]
struct InputThread {
    process: ProcessIx,
    cpu: CpuId,
}

/// A process of an input.
#[derive(Clone, Default)]
struct Process {
    space: Option<SpaceId>,
    /// CPUs of its live threads, one entry per thread.
    cpus: Vec<CpuId>,
    /// CPU that forks it, until its first event.
    forked_on: Option<CpuId>,
}

/// A batch that has been dispatched, and the number of its runs and events that are not done.
#[derive(Clone)]
struct DispatchedBatch {
    batch: Arc<Batch>,
    items: usize,
}

/// Wakes that are dispatched and that no CPU has reached.
#[derive(Clone, Default)]
struct Wakes {
    /// Number of wakes so far. Edge numbers of sources may repeat, so wakes have their own.
    next: u64,
    /// The last wake of each edge.
    of_edges: BTreeMap<u64, u64>,
    /// For each pending wake: its edge, and the CPUs that wait for it.
    open: BTreeMap<u64, (u64, Vec<CpuId>)>,
}

/// A source being replayed.
#[derive(Clone)]
pub struct Input {
    /// The source's description of itself.
    pub info: SourceInfo,
    /// Its role in the run.
    pub role: Role,
    /// Its account.
    pub account: Account,
    /// Where its processes are created.
    pub home: ProcessTarget,
    /// CPUs that it may use.
    pub cpus: Vec<CpuId>,
    /// Barriers that some CPU has not reached yet.
    pub barriers: BTreeMap<u64, Barrier>,
    next_barrier: u64,
    wakes: Wakes,
    /// Accesses dispatched so far.
    pub dispatched: u64,
    /// `None` once it has been read.
    source: Option<Feed>,
    max_accesses: u64,
    window: u64,
    /// Batches with work that is not done, and batches whose memory can be reused.
    batches: Vec<DispatchedBatch>,
    threads: Vec<Option<InputThread>>,
    threads_seen: usize,
    processes: Vec<Process>,
    /// Vforked children that have neither executed a program nor ended, each with the process whose memory it has.
    borrowers: Vec<(ProcessIx, ProcessIx)>,
}

/// Result of [`Input::dispatch_batch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// A batch was dispatched.
    Sent,
    /// The window is full.
    WindowFull,
    /// The source has ended.
    Exhausted,
}

impl Input {
    /// A source that has not been read yet, to be read up to `max_accesses`. CPUs may run ahead of each other by
    /// `window` accesses. `models_dependencies` says whether any core model uses dependencies and branches.
    pub fn new(
        mut source: Box<dyn Source>,
        models_dependencies: bool,
        role: Role,
        home: ProcessTarget,
        cpus: Vec<CpuId>,
        max_accesses: Option<u64>,
        window: u64,
    ) -> Self {
        if !models_dependencies {
            source.omit_dependencies();
        }
        Self {
            info: source.info().clone(),
            role,
            account: Account::default(),
            home,
            cpus,
            barriers: BTreeMap::new(),
            next_barrier: 0,
            wakes: Wakes::default(),
            dispatched: 0,
            source: Some(Feed::new(source)),
            max_accesses: max_accesses.unwrap_or(u64::MAX),
            window,
            batches: Vec::new(),
            threads: Vec::new(),
            threads_seen: 0,
            processes: Vec::new(),
            borrowers: Vec::new(),
        }
    }

    /// Makes the source deliver call stacks; must be called before it is read.
    pub fn enable_call_stacks(&mut self) -> Result<Option<Arc<CallStacks>>, EngineError> {
        self.source.as_mut().map_or(Ok(None), Feed::enable_call_stacks)
    }

    /// Accesses that it will have dispatched at the end, if known.
    pub fn total(&self) -> Option<u64> {
        self.info.accesses.map(|n| n.min(self.max_accesses))
    }

    /// The process of a thread; the first process for threads that have not been seen.
    pub fn process_of(&self, thread: ThreadIx) -> ProcessIx {
        self.threads.get(thread.0 as usize).copied().flatten().map_or(ProcessIx(0), |t| t.process)
    }

    /// The address space of a process; `None` before its start and after its end.
    pub fn space_of(&self, process: ProcessIx) -> Option<SpaceId> {
        self.processes.get(process.0 as usize)?.space
    }

    /// Sets or removes the address space of a process.
    pub fn set_space(&mut self, process: ProcessIx, space: Option<SpaceId>) {
        self.process_mut(process).space = space;
    }

    /// Spaces of processes that have not ended.
    pub fn spaces(&self) -> impl Iterator<Item = SpaceId> + '_ {
        self.processes.iter().filter_map(|p| p.space)
    }

    /// Whether several processes share a space, such as a vforked child and its parent.
    pub fn is_shared(&self, space: SpaceId) -> bool {
        self.spaces().filter(|&other| other == space).count() > 1
    }

    /// Forgets its processes, which have ended.
    pub fn forget_processes(&mut self) {
        self.processes.clear();
    }

    fn process_mut(&mut self, process: ProcessIx) -> &mut Process {
        let index = process.0 as usize;
        if index >= self.processes.len() {
            self.processes.resize_with(index + 1, Process::default);
        }
        &mut self.processes[index]
    }

    /// Whether some of its threads share a CPU.
    pub fn threads_share(&self) -> bool {
        self.info.threads as usize > self.cpus.len()
    }

    /// The CPU of a thread; a thread whose start is not in the trace is placed like others.
    fn place(&mut self, thread: ThreadIx, process: ProcessIx) -> CpuId {
        let index = thread.0 as usize;
        if index >= self.threads.len() {
            self.threads.resize(index + 1, None);
        }
        if let Some(known) = self.threads[index] {
            return known.cpu;
        }
        let cpu = self.cpus[self.threads_seen % self.cpus.len()];
        self.threads_seen += 1;
        self.threads[index] = Some(InputThread { process, cpu });
        self.process_mut(process).cpus.push(cpu);
        cpu
    }

    /// Reads one batch and dispatches it: `push` is called with each item and its CPU.
    pub fn dispatch_batch(&mut self, push: &mut dyn FnMut(CpuId, Item)) -> Result<Dispatch, EngineError> {
        if self.dispatched >= self.max_accesses {
            self.source = None;
        }
        let Some(source) = &mut self.source else { return Ok(Dispatch::Exhausted) };
        let held: u64 =
            self.batches.iter().filter(|entry| entry.items > 0).map(|entry| entry.batch.accesses.len() as u64).sum();
        if held >= self.window {
            return Ok(Dispatch::WindowFull);
        }
        let free = self.batches.iter().position(|entry| entry.items == 0);
        let free = free.map(|at| self.batches.swap_remove(at).batch).unwrap_or_default();
        let Some(batch) = source.next_batch(free)? else {
            self.source = None;
            self.batches.clear();
            return Ok(Dispatch::Exhausted);
        };
        let (mut at, mut items) = (0_usize, 0);
        for (index, segment) in batch.segments.iter().enumerate() {
            match segment {
                Segment::Run { thread, end } => {
                    let left = self.max_accesses - self.dispatched;
                    let end = (*end).min(at.saturating_add(usize::try_from(left).unwrap_or(usize::MAX)));
                    self.dispatched += (end - at) as u64;
                    let cpu = self.place(*thread, self.process_of(*thread));
                    if end > at {
                        items += 1;
                        let (batch, more) = (batch.clone(), VecDeque::new());
                        push(cpu, Item::Run { batch, at, end, thread: *thread, more });
                    }
                    at = end;
                    if self.dispatched == self.max_accesses {
                        break;
                    }
                }
                Segment::Event(Event { process, thread, kind: EventKind::Wake { edge }, .. }) => {
                    let wake = self.wakes.next;
                    self.wakes.next += 1;
                    self.wakes.of_edges.insert(*edge, wake);
                    self.wakes.open.insert(wake, (*edge, Vec::new()));
                    push(self.place(*thread, *process), Item::Wake { wake });
                }
                Segment::Event(Event { process, thread, kind: EventKind::Woken { edge }, .. }) => {
                    let wake = self.wakes.of_edges.get(edge).copied();
                    push(self.place(*thread, *process), Item::Woken { wake });
                }
                Segment::Event(event) => {
                    items += 1;
                    self.dispatch_event(&batch, index, event, push);
                }
            }
        }
        self.batches.push(DispatchedBatch { batch, items });
        Ok(Dispatch::Sent)
    }

    /// Marks a run or an event of a batch as done.
    pub fn done_with(&mut self, batch: &Arc<Batch>) {
        // After the source's end, batches are not counted.
        if let Some(entry) = self.batches.iter_mut().find(|entry| Arc::ptr_eq(&entry.batch, batch)) {
            entry.items -= 1;
        }
    }

    /// A CPU has reached a wake; returns the CPUs that wait for it.
    pub fn pass_wake(&mut self, wake: u64) -> Vec<CpuId> {
        let (edge, waiting) = self.wakes.open.remove(&wake).expect("each wake is passed once");
        if self.wakes.of_edges.get(&edge) == Some(&wake) {
            self.wakes.of_edges.remove(&edge);
        }
        waiting
    }

    /// Whether a CPU that has reached a woken must wait for its wake; if so, records that it waits.
    pub fn waits_for(&mut self, wake: u64, cpu: CpuId) -> bool {
        self.wakes.open.get_mut(&wake).map(|(_, waiting)| waiting.push(cpu)).is_some()
    }

    /// The process whose memory a process has: itself, unless it was vforked.
    fn lender(&self, process: ProcessIx) -> ProcessIx {
        self.borrowers.iter().find(|(child, _)| *child == process).map_or(process, |(_, lender)| *lender)
    }

    /// CPUs that take part in an event of a process: those of all processes in its memory.
    fn cpus_of(&mut self, process: ProcessIx, owner: CpuId) -> Vec<CpuId> {
        let lender = self.lender(process);
        let others = self.borrowers.iter().filter(|(_, from)| *from == lender).map(|(child, _)| *child).chain([lender]);
        let others = others.filter(|&other| other != process);
        let of_others: Vec<CpuId> =
            others.filter_map(|other| self.processes.get(other.0 as usize)).flat_map(|p| p.cpus.clone()).collect();
        let process = self.process_mut(process);
        let mut cpus = process.cpus.clone();
        cpus.extend(of_others);
        cpus.push(owner);
        // A child begins when its parent's CPU has reached the fork, which is earlier in that CPU's queue.
        cpus.extend(process.forked_on.take());
        cpus.sort_unstable();
        cpus.dedup();
        cpus
    }

    /// CPUs that have had threads.
    fn cpus_with_threads(&self) -> Vec<CpuId> {
        let mut cpus: Vec<CpuId> = self.cpus.iter().take(self.threads_seen).copied().collect();
        cpus.sort_unstable();
        cpus.dedup();
        cpus
    }

    fn dispatch_event(&mut self, batch: &Arc<Batch>, segment: usize, event: &Event, push: &mut dyn FnMut(CpuId, Item)) {
        let owner = self.place(event.thread, event.process);
        let members =
            if event.kind.begins_stretch() { self.cpus_with_threads() } else { self.cpus_of(event.process, owner) };
        if members.len() == 1 {
            push(owner, Item::Event { batch: batch.clone(), segment });
        } else {
            let barrier = self.next_barrier;
            self.next_barrier += 1;
            for &cpu in &members {
                push(cpu, Item::Barrier { barrier });
            }
            self.barriers.insert(barrier, Barrier { batch: batch.clone(), segment, owner, members, arrived: 0 });
        }
        match event.kind {
            EventKind::Fork { child } | EventKind::Vfork { child } => self.process_mut(child).forked_on = Some(owner),
            EventKind::ThreadExit => {
                let cpus = &mut self.process_mut(event.process).cpus;
                if let Some(at) = cpus.iter().position(|&cpu| cpu == owner) {
                    cpus.swap_remove(at);
                }
            }
            EventKind::Exit { .. } => self.process_mut(event.process).cpus.clear(),
            // The other threads of the process end with its old image.
            EventKind::Exec { .. } => self.process_mut(event.process).cpus = vec![owner],
            _ => {}
        }
        match event.kind {
            EventKind::Vfork { child } => self.borrowers.push((child, self.lender(event.process))),
            EventKind::Exec { .. } | EventKind::Exit { .. } => {
                self.borrowers.retain(|&(child, lender)| child != event.process && lender != event.process);
            }
            _ => {}
        }
    }
}
