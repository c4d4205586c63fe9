//! A CPU (hardware thread): its clock, what it runs, and what it waits for.

use std::collections::VecDeque;

use crate::activity::{Activity, BlockKey, Step};
use crate::addr::{Cycles, VirtAddr};
use crate::cache::Served;
use crate::clock::{Class, CpuClock};
use crate::input::{Lane, LaneState};
use crate::layer::SpaceId;
use crate::os::fault::Outcome;
use crate::tlb::Translation;
use pagelab_trace::ThreadIx;

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
    pub step: Step,
    /// Whether `step` is planned.
    pub planned: bool,
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
    /// Page of the last data access and its translation.
    pub page: VirtAddr,
    pub translation: Option<Translation>,
}

impl Filter {
    pub const EMPTY: Self =
        Self { line: u64::MAX, kinds: 0, code_page: u64::MAX, page: VirtAddr(u64::MAX), translation: None };

    /// Makes the next data access ask TLB and cache.
    #[inline]
    pub fn forget_data(&mut self) {
        self.line = u64::MAX;
        self.translation = None;
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
        for level in 0..levels {
            self.split_misses[level] += u64::from(missed[level]);
            missed[level] = true;
        }
    }
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
    pub filter: Filter,
    /// How the last program-level fault ended, until the access looks at it.
    pub outcome: Option<Outcome>,
    /// Pieces of the access under way that are done.
    pub pieces_done: u64,
    pub counters: AccessCounters,
}

impl Cpu {
    pub fn new(core: usize, cycles_per_instruction: f64) -> Self {
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
            filter: Filter::EMPTY,
            outcome: None,
            pieces_done: 0,
            counters: AccessCounters::default(),
        }
    }

    /// Gives the CPU a queue for an input.
    pub fn add_lane(&mut self, input: usize) {
        self.lanes.push(Lane { input, queue: VecDeque::new(), state: LaneState::Ready });
    }

    /// Removes the item that the current lane has come to.
    pub fn pop_item(&mut self) {
        self.lanes[self.lane].queue.pop_front();
    }

    /// Switches to another address space.
    pub fn set_space(&mut self, space: Option<SpaceId>) {
        self.space = space;
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
        let frame = match self.spare.pop() {
            Some(mut frame) => {
                frame.activity = activity;
                frame
            }
            None => Frame {
                activity,
                step: Step::default(),
                planned: false,
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
    /// Makes the frame plan its next step.
    pub fn reset(&mut self) {
        self.step.clear();
        (self.planned, self.begun) = (false, false);
        (self.charged, self.bytes_done) = (0, 0);
        self.overlap = (0, 0);
    }
}
