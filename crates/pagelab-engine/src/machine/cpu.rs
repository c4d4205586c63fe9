//! A CPU (hardware thread): its clock, what it runs, and what it waits for.

use std::collections::VecDeque;

use crate::base::addr::{Cycles, FRAME_SHIFT, LINE_SHIFT, VirtAddr};
use crate::base::ids::SpaceId;
use crate::base::step::{BlockKey, Step};
use crate::base::translation::Translation;
use crate::cache::Served;
use crate::kernel::fault::Outcome;
use crate::machine::activity::Activity;
use crate::machine::clock::{Class, CpuClock};
use crate::machine::pcids::{Pcids, Presence};
use crate::mmu_cache::Asid;
use crate::programs::input::{Lane, LaneState};
use pagelab_trace::{Access, AccessKind, ThreadIx};

/// Whether a CPU can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuState {
    Ready,
    /// Its uppermost activity waits for a key.
    Blocked(BlockKey),
    /// All its lanes wait for other CPUs.
    Waiting,
    Finished,
}

/// An activity under way on a CPU's stack.
pub struct Frame {
    pub activity: Activity,
    /// Layer that it is an activity of.
    pub layer: u16,
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

/// What the last data access of a CPU proved: the next one to the same place need not ask again. All hits that the filter
/// answers would have found their TLB entry and their cache line most recently used, so they change nothing.
#[derive(Clone, Copy, Debug)]
pub struct Filter {
    /// Virtual line of the last data access.
    pub line: u64,
    /// Bit per `AccessKind`: whether an access of that kind to the line is a hit that changes no state.
    pub kinds: u8,
    /// Virtual page of the last instruction that was translated.
    pub code_page: u64,
    /// Number of the page of the last data access, and its translation.
    page: u64,
    translation: Translation,
}

impl Filter {
    pub const EMPTY: Self =
        Self { line: u64::MAX, kinds: 0, code_page: u64::MAX, page: u64::MAX, translation: Translation::from_word(0) };

    /// Makes the next data access ask TLB and cache.
    #[inline]
    pub fn forget_data(&mut self) {
        self.line = u64::MAX;
        self.page = u64::MAX;
    }

    /// The translation of `va` for a load or a store, if the last access proved it.
    #[inline(always)]
    pub fn translation(&self, va: VirtAddr, write: bool) -> Option<Translation> {
        let held = self.page == va.0 >> FRAME_SHIFT && (!write || self.translation.stores());
        held.then_some(self.translation)
    }

    /// Takes up what an access to `va` proved; `kinds` as the field.
    #[inline(always)]
    pub fn learn(&mut self, va: VirtAddr, translation: Translation, kinds: u8) {
        self.line = va.0 >> LINE_SHIFT;
        self.kinds = kinds;
        self.page = va.0 >> FRAME_SHIFT;
        self.translation = translation;
    }

    /// True if it answers this access: a hit of the last line that changes nothing.
    #[inline(always)]
    pub fn answers(&self, access: &Access) -> bool {
        let last = (access.vaddr + u64::from(access.size_bytes) - 1) >> LINE_SHIFT;
        let line = access.vaddr >> LINE_SHIFT ^ self.line;
        let differs = line | (last ^ self.line) | (access.pc >> FRAME_SHIFT ^ self.code_page);
        differs == 0 && self.kinds >> (access.kind as u8) & 1 != 0
    }
}

/// What a CPU counted of the program's accesses.
#[derive(Clone, Copy, Debug, Default)]
pub struct AccessCounters {
    pub accesses: u64,
    /// Stores and modifies.
    pub writes: u64,
    pub fetches: u64,
    pub by_kernel: u64,
    /// Accesses that a [`Filter`] answered: hits in the first-level TLB and cache.
    pub filtered: u64,
    /// Line-sized pieces that were looked up in the TLBs and caches.
    pub pieces: u64,
    /// Accesses that no mapping covers or that one forbids.
    pub refused: u64,
    /// Line misses in L1, L2 and L3 of accesses across a line boundary that had missed there with an earlier line: an access
    /// counts one miss a level, as hardware events and other simulators count.
    pub split_misses: [u64; 3],
    pub context_switches: u64,
}

impl AccessCounters {
    /// Counts a line of an access across a line boundary; `missed` says in which levels the access has missed so far.
    pub fn count_split_miss(&mut self, missed: &mut [bool; 3], served: Served) {
        let levels = match served {
            Served::L1 => 0,
            Served::L2 => 1,
            Served::L3 | Served::Remote => 2,
            Served::Dram => 3,
        };
        for (count, missed) in self.split_misses.iter_mut().zip(missed).take(levels) {
            *count += u64::from(*missed);
            *missed = true;
        }
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
pub struct Cpu {
    /// Index of its core among those in use.
    pub core: usize,
    pub clock: CpuClock,
    pub state: CpuState,
    pub stack: Vec<Frame>,
    /// Frames for re-use.
    pub spare: Vec<Frame>,
    pub lanes: Vec<Lane>,
    pub lane: usize,
    /// When the current lane's time slice ends; only if there are several.
    pub slice_end: Cycles,
    /// Running thread: its input and number.
    pub thread: Option<(usize, ThreadIx)>,
    pub space: Option<SpaceId>,
    /// Tag of the space, if there is one.
    pub asid: Asid,
    pub presence: Presence,
    /// Spaces that it may hold translations of.
    pub pcids: Pcids,
    pub filter: Filter,
    /// How the last program-level fault ended, until the access looks at it.
    pub outcome: Option<Outcome>,
    /// How far an access has come that a fault handler interrupted.
    pub split: Split,
    pub counters: AccessCounters,
    /// Input that its cycles are spent for.
    pub owner: Option<usize>,
    /// Cycles by class that are on somebody's account.
    pub settled: [Cycles; Class::ALL.len()],
}

impl Cpu {
    pub fn new(core: usize, cycles_per_instruction: f64, pcids: u32) -> Self {
        Self {
            core,
            clock: CpuClock::new(cycles_per_instruction),
            state: CpuState::Ready,
            stack: Vec::new(),
            spare: Vec::new(),
            lanes: Vec::new(),
            lane: 0,
            slice_end: 0,
            thread: None,
            space: None,
            asid: Asid(0),
            presence: Presence::Running,
            pcids: Pcids::new(pcids),
            filter: Filter::EMPTY,
            outcome: None,
            split: Split::default(),
            counters: AccessCounters::default(),
            owner: None,
            settled: [0; Class::ALL.len()],
        }
    }

    /// The space that a program runs in.
    #[inline]
    pub fn running(&self) -> SpaceId {
        self.space.expect("a run's thread has a space")
    }

    /// True for an access of the program itself to data of one line, by an instruction of the page that the last one was of.
    /// An access that a fault handler interrupted is not: how it ended is to be looked at first.
    #[inline(always)]
    pub fn is_plain(&self, access: &Access) -> bool {
        let last = (access.vaddr + u64::from(access.size_bytes) - 1) >> LINE_SHIFT;
        let differs = (last ^ access.vaddr >> LINE_SHIFT) | (access.pc >> FRAME_SHIFT ^ self.filter.code_page);
        differs == 0 && access.kind != AccessKind::Fetch && !access.by_kernel && self.outcome.is_none()
    }

    /// Gives the CPU a queue for an input.
    pub fn add_lane(&mut self, input: usize) {
        self.lanes.push(Lane { input, queue: VecDeque::new(), state: LaneState::Ready });
    }

    /// Its queue for an input that runs here.
    pub fn lane_of(&mut self, input: usize) -> &mut Lane {
        self.lanes.iter_mut().find(|lane| lane.input == input).expect("the input runs here")
    }

    /// Removes the item that the current lane has come to.
    pub fn pop_item(&mut self) {
        self.lanes[self.lane].queue.pop_front();
    }

    /// Makes an address space, with its tag, the running one, or none.
    pub fn set_space(&mut self, space: Option<(SpaceId, Asid)>) {
        self.space = space.map(|(space, _)| space);
        self.asid = space.map_or(Asid(0), |(_, asid)| asid);
        self.filter = Filter::EMPTY;
    }

    /// Goes on at `time` at the earliest, if it was waiting for other CPUs; returns whether it was.
    pub fn resume(&mut self, class: Class, time: Cycles) -> bool {
        let waited = self.state == CpuState::Waiting;
        if waited {
            self.state = CpuState::Ready;
            self.clock.wait_until(class, time);
        }
        waited
    }

    /// Puts an activity on the stack.
    pub fn begin(&mut self, activity: Activity) {
        let layer = activity.layer();
        let frame = match self.spare.pop() {
            Some(mut frame) => {
                (frame.activity, frame.layer) = (activity, layer);
                frame
            }
            None => Frame {
                activity,
                layer,
                step: Step::default(),
                planned: false,
                stage: None,
                begun: false,
                charged: 0,
                bytes_done: 0,
                overlap: (0, 0),
            },
        };
        self.stack.push(frame);
        self.stack.last_mut().expect("just pushed").reset();
    }
}

impl Frame {
    /// Whether references of the planned step are still to be made.
    #[inline]
    pub fn has_refs_left(&self) -> bool {
        self.charged < self.step.refs.len()
    }

    /// Makes the frame plan its next step.
    pub fn reset(&mut self) {
        self.step.clear();
        (self.planned, self.begun) = (false, false);
        (self.charged, self.bytes_done) = (0, 0);
        self.overlap = (0, 0);
    }
}
