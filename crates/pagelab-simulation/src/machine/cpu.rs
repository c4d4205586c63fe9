//! A CPU (hardware thread): its clock, what it runs, and what it waits for.

use crate::machine::activity::Activity;
use crate::machine::pcids::{Pcids, Presence};
use crate::machine::task::{CpuQueue, KernelTask, LaneState, NextItem, SuspendedThread, Task, TaskSlot};
use pagelab_base::addr::{FRAME_SHIFT, LINE_SHIFT, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::{CoreId, SpaceId};
use pagelab_base::step::BlockKey;
use pagelab_base::translation::Translation;
use pagelab_hardware::cache::HitLevel;
use pagelab_hardware::core_model::CoreModel;
use pagelab_hardware::core_model::clock::{Class, CpuClock};
use pagelab_kernel::scheduler::RunQueue;
use pagelab_kernel::threads::schedule::KernelThreads;
use pagelab_run::programs::input::Item;
use pagelab_tables::mmu_cache::Asid;
use pagelab_trace::{Access, AccessKind, ThreadIx};
use pagelab_translate::counters::WALK_PLACES;

/// Whether a CPU can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuState {
    /// It can run now.
    Ready,
    /// Its task waits for a lock whose holder runs on another CPU; the CPU spins.
    Spins(BlockKey),
    /// Its tasks wait for keys, and there is nothing else to run.
    Blocked(BlockKey),
    /// All its lanes wait for other CPUs.
    Waiting,
    /// All its lanes have ended, and no kernel thread runs here.
    Finished,
}

/// What the last data access of a CPU proved, so that the next access to the same line or page can skip the look-ups.
/// The TLB entry and the cache line of every hit that the filter answers are already the most recently used ones, so
/// such hits change no state.
#[derive(Clone, Copy, Debug)]
pub struct Filter {
    /// Virtual line of the last data access.
    pub line: u64,
    /// One bit per `AccessKind`: whether an access of that kind to the line is a hit that changes no state.
    pub kinds: u8,
    /// Virtual page of the last instruction that was translated.
    ///
    /// With instruction caches, the virtual line of the last instruction that was fetched.
    pub code_page: u64,
    /// log2 of the bytes of what `code_page` counts.
    pub code_shift: u32,
    /// With instruction caches: the virtual page of the last instruction, if no mapping allows to execute it.
    refused_code: u64,
    /// Number of the page of the last data access, and its translation.
    page: u64,
    translation: Translation,
}

impl Filter {
    /// A filter that answers no access.
    pub const EMPTY: Self = Self {
        line: u64::MAX,
        kinds: 0,
        code_page: u64::MAX,
        code_shift: FRAME_SHIFT,
        refused_code: u64::MAX,
        page: u64::MAX,
        translation: Translation::from_word(0),
    };

    /// Makes it answer no access.
    pub fn clear(&mut self) {
        *self = Self { code_shift: self.code_shift, ..Self::EMPTY };
    }

    /// Whether instructions are fetched line by line, through an instruction cache.
    #[inline]
    pub fn fetches_lines(&self) -> bool {
        self.code_shift == LINE_SHIFT
    }

    /// Whether the last instruction was on the page, or the line, of this one.
    #[inline]
    pub fn has_code(&self, pc: u64) -> bool {
        pc >> self.code_shift == self.code_page
    }

    /// Stores that an instruction was translated, and fetched.
    #[inline]
    pub fn learn_code(&mut self, pc: u64) {
        self.code_page = pc >> self.code_shift;
        self.refused_code = u64::MAX;
    }

    /// Stores that no mapping allows to execute an instruction.
    pub fn learn_refused_code(&mut self, pc: u64) {
        self.code_page = pc >> self.code_shift;
        self.refused_code = if self.fetches_lines() { pc >> FRAME_SHIFT } else { u64::MAX };
    }

    /// Whether the last instruction was refused, and this one is on its page.
    #[inline]
    pub fn refuses_code(&self, pc: u64) -> bool {
        pc >> FRAME_SHIFT == self.refused_code
    }

    /// Makes the next instruction be fetched again, from an instruction cache if there is one: after an exception.
    pub fn forget_code(&mut self) {
        if self.fetches_lines() {
            self.code_page = u64::MAX;
        }
    }

    /// Makes the next data access look up TLB and cache.
    #[inline]
    pub fn forget_data(&mut self) {
        self.line = u64::MAX;
        self.page = u64::MAX;
    }

    /// The translation of `va` for a load or a store, if the last access proved it.
    #[inline(always)]
    pub fn translation(&self, va: VirtAddr, write: bool) -> Option<Translation> {
        let held = self.page == va.page_number() && (!write || self.translation.stores());
        held.then_some(self.translation)
    }

    /// Stores what an access to `va` proved; `kinds` is as in the field.
    #[inline(always)]
    pub fn learn(&mut self, va: VirtAddr, translation: Translation, kinds: u8) {
        self.line = va.0 >> LINE_SHIFT;
        self.kinds = kinds;
        self.page = va.page_number();
        self.translation = translation;
    }

    /// The physical line of the last data access.
    #[inline(always)]
    pub fn physical_line(&self) -> u64 {
        self.translation.address(VirtAddr(self.line << LINE_SHIFT)).line().0
    }

    /// Whether the filter answers this access: it hits the last line and changes no state.
    #[inline(always)]
    pub fn answers(&self, access: &Access) -> bool {
        let last = (access.vaddr + u64::from(access.size_bytes) - 1) >> LINE_SHIFT;
        let line = access.vaddr >> LINE_SHIFT ^ self.line;
        let differs = line | (last ^ self.line) | (access.pc >> self.code_shift ^ self.code_page);
        differs == 0 && self.kinds >> (access.kind as u8) & 1 != 0
    }
}

/// Counts of the program's accesses on a CPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct AccessCounters {
    /// Accesses that were replayed, of all kinds, including refused ones.
    pub accesses: u64,
    /// Stores and modifies.
    pub writes: u64,
    /// Instruction fetches.
    pub fetches: u64,
    /// Accesses that a kernel made.
    pub by_kernel: ByKernel,
    /// Accesses that a [`Filter`] answered; they hit in the first-level TLB and cache.
    pub filtered: u64,
    /// Line-sized pieces that were looked up in the TLBs and caches.
    pub pieces: u64,
    /// Accesses that no mapping covers or that the mapping forbids.
    pub refused: u64,
    /// Repeated misses in L1, L2 and L3 of accesses across a line boundary that had already missed there with an
    /// earlier line. They are subtracted, so that an access counts one miss per level, as hardware events and other
    /// simulators count.
    pub split_misses: [u64; 3],
    /// Switches to another thread.
    pub context_switches: u64,
    /// Threads that could have gone on when another took their place.
    pub preemptions: u64,
    /// Threads that gave way before the end of their slice, since the input's window was full.
    pub cut_slices: u64,
}

/// Counts of the accesses that the trace attributes to a kernel; included in the other counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByKernel {
    /// Accesses of all kinds.
    pub accesses: u64,
    /// Instructions that retired with these accesses.
    pub instructions: u64,
    /// Cycles of [`Class::Base`], [`Class::DataStall`] and [`Class::Translation`].
    pub cycles: [Cycles; 3],
    /// Line-sized pieces, by the place that served them, as in
    /// [`place_index`](pagelab_translate::counters::place_index).
    pub refs: [u64; WALK_PLACES],
    /// Look-ups that missed the first-level TLB, and those that missed both levels.
    pub tlb_misses: [u64; 2],
}

impl AccessCounters {
    /// Counts a line of an access across a line boundary; `missed` says in which levels the access has already missed.
    pub fn count_split_miss(&mut self, missed: &mut [bool; 3], served: HitLevel) {
        let levels = match served {
            HitLevel::L1 => 0,
            HitLevel::L2 => 1,
            HitLevel::L3 | HitLevel::Remote => 2,
            HitLevel::Dram => 3,
        };
        for (count, missed) in self.split_misses.iter_mut().zip(missed).take(levels) {
            *count += u64::from(*missed);
            *missed = true;
        }
    }
}

/// A CPU, see the module's text.
#[derive(Clone)]
pub struct Cpu {
    /// Index of its core among the cores in use.
    pub core: CoreId,
    /// Its time, and what the cycles were spent on.
    pub clock: CpuClock,
    /// Whether it can run.
    pub state: CpuState,
    /// The task that it runs.
    pub task: Task,
    /// The slot that the task belongs to.
    pub slot: TaskSlot,
    /// The queues of the inputs that use it, one per input.
    pub lanes: Vec<CpuQueue>,
    /// Index of the lane that it runs, or ran before a kernel thread.
    pub lane: usize,
    /// Kernel threads that run here.
    pub threads: Vec<KernelTask>,
    /// Whether no source uses it: it runs kernel threads only.
    pub is_kernel_only: bool,
    /// A task that waited for a device can continue and may preempt the running one.
    pub preempt: bool,
    /// Number of the last wait that began, among those of all CPUs.
    pub waits_since: u64,
    /// Number of its next task.
    next_task: u32,
    /// End of the current lane's time slice, or time at which the scheduler looks again; used only if threads share the
    /// CPU.
    pub slice_end: Cycles,
    /// The queue of its threads; `None` if they run in recorded order.
    pub run_queue: Option<RunQueue>,
    /// Cycles in which it did not sleep, up to those that have been charged to threads of the queue.
    awake: Cycles,
    /// The running thread: its input and number.
    pub thread: Option<(usize, ThreadIx)>,
    /// The space of the running thread; `None` if no program's space is loaded.
    pub space: Option<SpaceId>,
    /// Tag of the space, if there is one.
    pub asid: Asid,
    /// Whether it uses that space, for shootdowns.
    pub presence: Presence,
    /// Spaces whose translations it may hold.
    pub pcids: Pcids,
    /// What the last data access proved.
    pub filter: Filter,
    /// The call-stack context of its current access, if a profile records call stacks.
    pub context: u32,
    /// Its counts of accesses.
    pub counters: AccessCounters,
    /// The input that its cycles are charged to.
    pub owner: Option<usize>,
    /// Cycles by class that have been charged to accounts.
    pub charged: [Cycles; Class::ALL.len()],
}

impl Cpu {
    /// A CPU of a core, with nothing to run and this number of PCIDs; `is_kernel_only` if it runs kernel threads only.
    pub fn new(core: CoreId, is_kernel_only: bool, model: CoreModel, pcids: u32) -> Self {
        Self {
            core,
            clock: CpuClock::new(model),
            state: CpuState::Ready,
            task: Task::default(),
            slot: TaskSlot::Queue(0),
            lanes: Vec::new(),
            lane: 0,
            threads: Vec::new(),
            is_kernel_only,
            preempt: false,
            waits_since: 0,
            next_task: 0,
            slice_end: Cycles::ZERO,
            run_queue: None,
            awake: Cycles::ZERO,
            thread: None,
            space: None,
            asid: Asid(0),
            presence: Presence::Running,
            pcids: Pcids::new(pcids),
            filter: Filter::EMPTY,
            context: 0,
            counters: AccessCounters::default(),
            owner: None,
            charged: [Cycles::ZERO; Class::ALL.len()],
        }
    }

    /// The space that the running program uses.
    #[inline]
    pub fn running(&self) -> SpaceId {
        self.space.expect("a run's thread has a space")
    }

    /// Whether this is an access of the program itself to data of one line, by an instruction on the same page as the
    /// last one. False after a fault: the handler's outcome must be checked first.
    #[inline(always)]
    pub fn is_plain(&self, access: &Access) -> bool {
        let last = (access.vaddr + u64::from(access.size_bytes) - 1) >> LINE_SHIFT;
        let differs =
            (last ^ access.vaddr >> LINE_SHIFT) | (access.pc >> self.filter.code_shift ^ self.filter.code_page);
        differs == 0 && access.kind != AccessKind::Fetch && !access.maker.is_kernel() && self.task.outcome.is_none()
    }

    /// Whether the instruction of an access is on another page, or line, of the program's code than the last one.
    #[inline(always)]
    pub fn enters_code(&mut self, access: &Access) -> bool {
        if access.maker.is_kernel() || self.filter.has_code(access.pc) {
            return false;
        }
        let refused = self.filter.refuses_code(access.pc);
        if refused {
            // Its page was refused at another line of it.
            self.filter.learn_refused_code(access.pc);
        }
        !refused
    }

    fn number_task(&mut self) -> Task {
        self.next_task += 1;
        Task::new(self.next_task - 1)
    }

    /// Gives the CPU a queue for an input, several of whose threads may share the CPU.
    pub fn add_lane(&mut self, input: usize, shared: bool) {
        let task = self.number_task();
        self.lanes.push(CpuQueue::new(input, shared, task));
        if self.slot == TaskSlot::Queue(self.lanes.len() - 1) {
            self.activate_slot();
        }
    }

    /// Removes the queue of an input that has ended, if there is one.
    pub fn remove_lane(&mut self, input: usize) {
        let Some(at) = self.lanes.iter().position(|lane| lane.input == input) else { return };
        let own = self.slot == TaskSlot::Queue(at);
        self.lanes.remove(at);
        self.lane -= usize::from(at < self.lane);
        if self.lane == self.lanes.len() {
            self.lane = 0;
        }
        if matches!(self.slot, TaskSlot::Queue(_)) {
            self.slot = TaskSlot::Queue(self.lane);
            if own {
                self.activate_slot();
            }
        }
    }

    /// Gives the CPU a kernel thread.
    pub fn add_thread(&mut self, thread: usize) {
        let task = self.number_task();
        self.threads.push(KernelTask { thread, task });
    }

    /// Where the task of a slot is stored while the CPU runs another; `None` if there is no such lane.
    fn place(&mut self, slot: TaskSlot) -> Option<&mut Task> {
        match slot {
            TaskSlot::Queue(lane) => self.lanes.get_mut(lane).map(|lane| &mut lane.task),
            TaskSlot::Kernel(thread) => Some(&mut self.threads[thread].task),
            TaskSlot::Suspended { lane, thread } => self.lanes[lane]
                .overtaken
                .iter_mut()
                .find(|suspended| suspended.thread == thread)
                .map(|suspended| &mut suspended.task),
        }
    }

    /// Makes the task of the CPU's slot the current one.
    fn activate_slot(&mut self) {
        self.task = self.place(self.slot).map(std::mem::take).unwrap_or_default();
    }

    /// The thread of the current task. It need not be the running thread: after a lane is removed, the next one may
    /// have a task that waits.
    pub fn thread_of_task(&self) -> Option<(usize, ThreadIx)> {
        self.task.thread.or(self.thread)
    }

    /// Suspends the current task and makes that of another slot the current one.
    pub fn switch_task(&mut self, slot: TaskSlot) {
        let mut task = std::mem::take(&mut self.task);
        task.thread =
            task.thread.or(self.thread).filter(|_| matches!(self.slot, TaskSlot::Queue(_)) && !task.stack.is_empty());
        if let Some(place) = self.place(self.slot) {
            *place = task;
        }
        self.slot = match slot {
            TaskSlot::Queue(_) | TaskSlot::Kernel(_) => slot,
            TaskSlot::Suspended { lane, thread } => {
                self.lanes[lane].recall(thread);
                TaskSlot::Queue(lane)
            }
        };
        if let TaskSlot::Queue(lane) = self.slot {
            self.lane = lane;
        }
        self.activate_slot();
    }

    /// Suspends the running thread of its lane, so that others of the queue can overtake it; an idle task takes its
    /// place.
    pub fn overtake(&mut self) {
        let idle = self.number_task();
        let mut task = std::mem::replace(&mut self.task, idle);
        task.thread = task.thread.or(self.thread);
        let (_, thread) = task.thread.expect("a thread is within an access");
        self.lanes[self.lane].overtaken.push(SuspendedThread { thread, task });
    }

    /// The slot that runs if a lane continues, or why none can. Advances the lane to that item. `is_all` as for
    /// [`CpuQueue::next`].
    pub fn next_in(&mut self, lane: usize, is_all: bool) -> Result<TaskSlot, NextItem> {
        let task = self.task_at(TaskSlot::Queue(lane));
        let (waits, idle) = (task.waits_for.is_some(), task.is_idle());
        let queue = &mut self.lanes[lane];
        if waits {
            return Err(NextItem::Event);
        }
        if queue.at == 0 && queue.overtaken.is_empty() || !idle {
            return Ok(TaskSlot::Queue(lane));
        }
        match queue.next(None, is_all) {
            NextItem::At(at) => {
                queue.at = at;
                Ok(TaskSlot::Queue(lane))
            }
            NextItem::Suspended(thread) => Ok(TaskSlot::Suspended { lane, thread }),
            none => Err(none),
        }
    }

    /// The task of a slot, wherever it is stored.
    pub fn task_at(&self, slot: TaskSlot) -> &Task {
        match slot {
            _ if slot == self.slot => &self.task,
            TaskSlot::Queue(lane) => &self.lanes[lane].task,
            TaskSlot::Kernel(thread) => &self.threads[thread].task,
            TaskSlot::Suspended { lane, thread } => {
                let suspended = self.lanes[lane].overtaken.iter().find(|suspended| suspended.thread == thread);
                &suspended.expect("it has been overtaken").task
            }
        }
    }

    /// Whether the current task is its only one.
    #[inline]
    pub fn has_one_task(&self) -> bool {
        self.lanes.len() + self.threads.len() <= 1 && self.lanes.iter().all(|lane| lane.overtaken.is_empty())
    }

    /// The tasks other than the current one.
    pub fn left(&mut self) -> impl Iterator<Item = &mut Task> {
        let lanes = self.lanes.iter_mut().flat_map(|lane| {
            std::iter::once(&mut lane.task).chain(lane.overtaken.iter_mut().map(|suspended| &mut suspended.task))
        });
        lanes.chain(self.threads.iter_mut().map(|thread| &mut thread.task))
    }

    /// All slots: kernel threads, then the lanes starting after its own, then suspended threads.
    pub fn slots(&self) -> impl Iterator<Item = TaskSlot> + '_ {
        let kernel = (0..self.threads.len()).map(TaskSlot::Kernel);
        let lanes = (1..=self.lanes.len()).map(|n| TaskSlot::Queue((self.lane + n) % self.lanes.len()));
        let overtaken = self.lanes.iter().enumerate().flat_map(|(lane, queue)| {
            queue.overtaken.iter().map(move |suspended| TaskSlot::Suspended { lane, thread: suspended.thread })
        });
        kernel.chain(lanes).chain(overtaken)
    }

    /// Whether a task belongs to one of its kernel threads.
    pub fn runs_thread(&self, number: u32) -> bool {
        let in_hand = matches!(self.slot, TaskSlot::Kernel(_)) && self.task.number == number;
        in_hand || self.threads.iter().any(|thread| thread.task.number == number)
    }

    /// Whether any of its tasks is in the middle of an activity.
    pub fn has_activity(&self) -> bool {
        !self.task.stack.is_empty() || self.slots().any(|slot| !self.task_at(slot).stack.is_empty())
    }

    /// A key that one of its tasks waits for; that of a device if there is one.
    pub fn awaited(&self) -> Option<BlockKey> {
        self.slots().filter_map(|slot| self.task_at(slot).waits_for).max_by_key(|key| key.waits_for_device())
    }

    /// Its queue for an input that runs here.
    pub fn lane_of(&mut self, input: usize) -> &mut CpuQueue {
        self.lanes.iter_mut().find(|lane| lane.input == input).expect("the input runs here")
    }

    /// Removes the item at which the current lane is, or its current part.
    pub fn pop_item(&mut self) {
        self.lanes[self.lane].pop_part();
    }

    /// Whether several threads share it, as its run queue lets them.
    #[inline]
    pub fn takes_turns(&self) -> bool {
        self.run_queue.is_some() && (self.lanes.len() > 1 || self.lanes.iter().any(|lane| lane.shared))
    }

    /// The last time at which its thread may begin an access: at the end of the slice, the scheduler takes the CPU from
    /// it, or looks whether it does.
    #[inline]
    pub fn turn_end(&self) -> Cycles {
        if self.lanes.len() > 1 || self.takes_turns() {
            Cycles(self.slice_end.0.saturating_sub(1))
        } else {
            Cycles::MAX
        }
    }

    /// Charges the cycles since the last call to the thread that its run queue has chosen.
    pub fn charge_thread(&mut self) {
        let Some(queue) = &mut self.run_queue else { return };
        let asleep = self.clock.spent(Class::Idle) + self.clock.spent(Class::Io) + self.clock.spent(Class::Blocked);
        let awake = self.clock.now() - asleep;
        if matches!(self.slot, TaskSlot::Queue(_)) {
            queue.charge((awake - self.awake).0);
        }
        self.awake = awake;
    }

    /// Marks this many accesses of the current lane's run as done.
    pub fn advance(&mut self, accesses: usize) {
        let lane = &mut self.lanes[self.lane];
        let Some(Item::Run { at, .. }) = lane.queue.get_mut(lane.at) else { unreachable!("it is in a run") };
        *at += accesses;
    }

    /// Makes the current task wait.
    pub(crate) fn wait_for(&mut self, key: BlockKey) {
        self.task.waits_for = Some(key);
        self.state = CpuState::Blocked(key);
    }

    /// The first suspended task that continues before the run queue is asked: that of a kernel thread. In recorded
    /// order: any.
    pub(crate) fn first_unqueued(&self) -> Option<TaskSlot> {
        self.first_resumable().filter(|slot| matches!(slot, TaskSlot::Kernel(_)) || !self.takes_turns())
    }

    /// The first suspended task that can continue, kernel threads first.
    pub(crate) fn first_resumable(&self) -> Option<TaskSlot> {
        self.slots().find(|&slot| slot != self.slot && self.task_at(slot).can_resume())
    }

    /// The first kernel thread that is awake and has not begun.
    pub(crate) fn awake_thread(&self, threads: &KernelThreads) -> Option<TaskSlot> {
        let begins = |place: usize| {
            self.task_at(TaskSlot::Kernel(place)).stack.is_empty() && threads.is_awake(self.threads[place].thread)
        };
        (0..self.threads.len()).find(|&place| begins(place)).map(TaskSlot::Kernel)
    }

    /// Sets the state of a CPU none of whose queues has work. Returns whether it is idle, with nothing to wait for.
    pub(crate) fn rest(&mut self) -> bool {
        if let Some(key) = self.awaited() {
            self.state = CpuState::Blocked(key);
            return false;
        }
        let finished = self.lanes.iter().all(|lane| lane.state == LaneState::Finished);
        // Kernel threads wait for work.
        self.state = if finished && self.threads.is_empty() { CpuState::Finished } else { CpuState::Waiting };
        true
    }

    /// The source that it works for; `None` if it is idle or runs a kernel thread.
    #[inline]
    pub(crate) fn works_for(&self) -> Option<usize> {
        self.owner.filter(|_| matches!(self.slot, TaskSlot::Queue(_)))
    }

    /// Loads an address space with its tag, or none.
    pub fn set_space(&mut self, space: Option<(SpaceId, Asid)>) {
        self.space = space.map(|(space, _)| space);
        self.asid = space.map_or(Asid(0), |(_, asid)| asid);
        self.filter.clear();
    }

    /// Puts an activity on the stack.
    #[inline]
    pub fn begin(&mut self, activity: Activity) {
        self.task.stack.push(activity, self.clock.now());
    }

    /// Puts an activity on the stack of an input's idle task, on behalf of a thread.
    pub fn begin_for(&mut self, input: usize, thread: ThreadIx, activity: Activity) {
        let lane = self.lanes.iter().position(|lane| lane.input == input).expect("the input runs here");
        if self.slot == TaskSlot::Queue(lane) {
            return self.begin(activity);
        }
        let task = &mut self.lanes[lane].task;
        task.thread = Some((input, thread));
        task.stack.push(activity, self.clock.now());
    }
}
