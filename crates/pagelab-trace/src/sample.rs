//! Windows of a source: systematic sampling, so that a replay takes a fraction of the time.
//!
//! Of each period of instructions, one window is passed on, and before it accesses that warm up. Of the rest of the
//! period, events and first touches are passed on, by the rules by which a recording skips ([`record`](crate::record)),
//! and at its end last touches, which leave caches and TLBs nearly as all accesses would. Events mark the boundaries.
//! So faults and mappings are those of the whole program, and the windows are what is measured.
//! Source: Wunderlich, Wenisch, Falsafi, Hoe, "SMARTS: Accelerating Microarchitecture Simulation via Rigorous
//! Statistical Sampling", ISCA 2003: systematic sampling with a random start.
//! Deviations: SMARTS warms caches and TLBs with all accesses between windows; here last touches do. Branch predictors
//! and prefetchers are warmed up only by the accesses directly before a window. One window in [`LONGER_EACH`] is warmed
//! up [`LONGER_TIMES`] as long, so that results can show how much that matters.

mod last_touches;
mod save;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use self::last_touches::LastTouches;
pub use self::save::{SavedSample, save};
use crate::calls::CallStacks;
use crate::format::StretchTotals;
use crate::record::pages::Pages;
use crate::record::stretches::{Grammar, Longer, Mode, Offset, Periods, Schedule};
use crate::rng::Rng;
pub use crate::sampling::Sampling;
use crate::source::allocations_within;
use crate::{
    Access, AccessKind, Batch, Branches, Event, EventKind, Maker, ProcessIx, Segment, Source, SourceInfo, ThreadIx,
    TraceError,
};

/// One in this many windows has a longer warm-up.
pub const LONGER_EACH: u64 = 8;
/// Factor by which that warm-up is longer.
pub const LONGER_TIMES: u64 = 4;
/// Target and minimum number of windows of a source that [`Sampling::scaled`] makes, if each access is one instruction;
/// below the minimum it refuses.
const WINDOWS_WANTED: u64 = 100;
const WINDOWS_NEEDED: u64 = 30;
/// For [`Sampling::scaled`]: the measured part, and the warm-up, as fractions 1/N of a period.
const LENGTH_SHARE: u64 = 50;
const WARM_SHARE: u64 = 100;
/// The shortest period of [`Sampling::scaled`], in instructions.
const SHORTEST: u64 = 50_000;
/// Number of accesses from which on a batch is passed on.
const BATCH: usize = 1 << 14;

const GRAMMAR: Grammar = Grammar {
    name: "sample",
    keys: &["every", "length", "warm", "offset"],
    example: "every=10M,length=100K,warm=500K",
};

impl FromStr for Sampling {
    type Err = TraceError;

    /// Reads `every=N,length=N[,warm=N][,offset=N]`.
    fn from_str(text: &str) -> Result<Self, TraceError> {
        let Periods { every, length, warm, offset, .. } = Periods::parse_as(&GRAMMAR, text)?;
        let given = text.split(',').any(|part| part.trim_start().starts_with("offset"));
        let offset = match offset {
            Offset::Fixed(offset) => given.then_some(offset),
            Offset::Random { .. } => None,
        };
        Ok(Self { every, length, warm, offset })
    }
}

impl fmt::Display for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { every, length, warm, offset } = self;
        write!(f, "every={every},length={length}")?;
        if *warm > 0 {
            write!(f, ",warm={warm}")?;
        }
        offset.map_or(Ok(()), |offset| write!(f, ",offset={offset}"))
    }
}

impl Sampling {
    /// Windows for a source with this many accesses.
    ///
    /// # Errors
    /// [`TraceError::Usage`] if it has too few accesses for meaningful windows, or an unknown number.
    pub fn scaled(accesses: Option<u64>) -> Result<Self, TraceError> {
        let Some(accesses) = accesses else {
            let what =
                "sample: the number of accesses of this source is unknown; limit it, or specify the windows, such as";
            return Err(TraceError::usage(format!("{what} {}", GRAMMAR.example)));
        };
        // An access stands for one or more instructions, so there are at least this many windows.
        let every = (accesses / WINDOWS_WANTED).max(SHORTEST);
        if accesses / every < WINDOWS_NEEDED {
            return Err(TraceError::usage(format!(
                "sample: {accesses} accesses are too few for {WINDOWS_NEEDED} windows in periods of {SHORTEST} instructions; \
                 replay all of them, or write windows such as every=10K,length=1K"
            )));
        }
        Ok(Self { every, length: every / LENGTH_SHARE, warm: every / WARM_SHARE, offset: None })
    }

    /// Start of the windows in their periods, drawn with the seed unless given.
    pub fn start(&self, seed: u64) -> u64 {
        self.offset.unwrap_or_else(|| Rng::new(seed, "windows of a sample").below(self.every - self.length + 1))
    }

    /// The same windows with the start fixed.
    pub fn placed(&self, seed: u64) -> Self {
        Self { offset: Some(self.start(seed)), ..*self }
    }

    /// Whether some windows have a longer warm-up.
    pub fn has_longer(&self) -> bool {
        self.warm > 0
    }

    /// Whether the window of a period, numbered from 0, has a longer warm-up.
    pub fn is_longer(&self, period: u64) -> bool {
        self.longer().is_some_and(|longer| longer.is(period))
    }

    fn longer(&self) -> Option<Longer> {
        self.has_longer().then_some(Longer { each: LONGER_EACH, warm: self.warm.saturating_mul(LONGER_TIMES) })
    }

    /// Approximate number of accesses that are passed on.
    fn share_of(&self, accesses: u64) -> u64 {
        let more = if self.has_longer() { (LONGER_TIMES - 1) * self.warm / LONGER_EACH } else { 0 };
        let passed = (self.length + self.warm).saturating_add(more).min(self.every);
        (u128::from(accesses) * u128::from(passed) / u128::from(self.every)) as u64
    }
}

/// Pages that a process has touched in the skipped stretch.
#[derive(Default)]
struct Touched {
    /// Separate, since a recorded fetch comes once for each mapped code page and is always passed on.
    fetched: Pages,
    data: Pages,
    heap_end: u64,
}

impl Touched {
    fn touch(&mut self, access: &Access) -> bool {
        let pages = if access.kind == AccessKind::Fetch { &mut self.fetched } else { &mut self.data };
        pages.touch(access.vaddr, access.size_bytes, access.kind.writes())
    }

    fn begin(&mut self, stretch: u64) {
        self.fetched.begin(stretch);
        self.data.begin(stretch);
    }

    fn forget(&mut self, addr: u64, len: u64) {
        self.fetched.forget(addr, len);
        self.data.forget(addr, len);
    }
}

#[derive(Clone, Copy, Default)]
struct Thread {
    process: ProcessIx,
    /// The recorded stretch of its last access, and the number of its accesses in it, up to the reach of dependencies.
    stretch: u64,
    accesses: u64,
}

/// A sampled source.
pub struct Sampled {
    source: Box<dyn Source>,
    info: SourceInfo,
    schedule: Schedule,
    processes: BTreeMap<ProcessIx, Touched>,
    threads: BTreeMap<ThreadIx, Thread>,
    last_touches: LastTouches,
    read: Batch,
    /// Maximum number of the source's accesses to read, and how many of them are left.
    limit: u64,
    left: u64,
    /// Number of accesses passed on.
    position: u64,
    /// Number of stretches passed on, including the current one.
    passed: u64,
    ended: bool,
}

impl Sampled {
    /// A sample of the first `limit` accesses of a source.
    pub fn new(source: Box<dyn Source>, sampling: &Sampling, seed: u64, limit: Option<u64>) -> Self {
        let placed = sampling.placed(seed);
        let Sampling { every, length, warm, .. } = placed;
        let offset = Offset::Fixed(placed.start(seed));
        let periods = Periods { every, length, warm, offset, longer: sampling.longer() };
        let limit = limit.unwrap_or(u64::MAX);
        let accesses = source.info().accesses.map(|accesses| sampling.share_of(accesses.min(limit)));
        let info = SourceInfo { accesses, sampling: Some(placed), ..source.info().clone() };
        Self {
            source,
            info,
            schedule: Schedule::from_periods(periods),
            processes: BTreeMap::new(),
            threads: BTreeMap::new(),
            last_touches: LastTouches::default(),
            read: Batch::default(),
            limit,
            left: limit,
            position: 0,
            passed: 0,
            ended: false,
        }
    }

    /// Limits last touches to caches of at most this many bytes. Before that many bytes, fewer lines of a skipped
    /// stretch are touched again: one per page, and for the oldest pages one per 2 MiB.
    #[must_use]
    pub fn reaching(mut self, bytes: u64) -> Self {
        self.last_touches.reach(bytes);
        self
    }

    /// Number of the source's accesses read so far.
    pub fn accesses_read(&self) -> u64 {
        self.limit - self.left
    }

    /// Totals of the stretches so far.
    pub fn totals(&self) -> StretchTotals {
        self.schedule.totals()
    }

    /// Emits the events of the next stretch, if one begins.
    fn announce_stretch(&mut self, (process, thread): (ProcessIx, ThreadIx), batch: &mut Batch) {
        if !self.schedule.is_due() {
            return;
        }
        for kind in self.schedule.enter_due_phase() {
            if let EventKind::Resume { .. } = kind {
                self.position += self.last_touches.make(batch, &self.read);
            }
            self.passed += u64::from(kind == EventKind::Skip);
            batch.push_event(Event { position: self.position, process, thread, kind });
        }
    }

    /// Passes on a run of a thread's accesses.
    fn run(&mut self, thread: ThreadIx, mut begin: usize, end: usize, batch: &mut Batch) {
        let process = self.threads.entry(thread).or_default().process;
        while begin < end {
            self.announce_stretch((process, thread), batch);
            let before = batch.accesses.len();
            let from = begin;
            begin = match self.schedule.mode() {
                Mode::Skipped { left, stretch } => self.skim(thread, begin..end, (left, stretch), batch),
                Mode::Recorded { left } => self.copy(thread, begin..end, left, batch),
                Mode::All => self.copy(thread, begin..end, u64::MAX, batch),
            };
            self.position += (batch.accesses.len() - before) as u64;
            self.allocations(from..begin, before, batch);
            batch.close_run(thread);
        }
        self.announce_stretch((process, thread), batch);
    }

    /// Passes on the allocations within a range of accesses that were read; the accesses passed on from the range begin
    /// at `first`.
    fn allocations(&self, range: std::ops::Range<usize>, first: usize, batch: &mut Batch) {
        let Some(last) = batch.accesses.len().checked_sub(1) else { return };
        let begin = range.start;
        let those = allocations_within(&self.read.allocations, range).iter();
        batch.allocations.extend(those.map(|(at, event)| ((first + (at - begin)).min(last), event.clone())));
    }

    /// Passes on first touches for `left` instructions; returns the position reached.
    fn skim(
        &mut self,
        thread: ThreadIx,
        part: std::ops::Range<usize>,
        (left, stretch): (u64, u64),
        batch: &mut Batch,
    ) -> usize {
        let process = self.threads.entry(thread).or_default().process;
        let touched = self.processes.entry(process).or_default();
        touched.begin(stretch);
        let mut last_touches = self.last_touches.begin(stretch, thread, process);
        let (mut instructions, mut left_out, mut at) = (0, 0, part.start);
        for access in &self.read.accesses[part] {
            if instructions >= left {
                break;
            }
            at += 1;
            instructions += u64::from(access.gap);
            last_touches.touch(access);
            if touched.touch(access) {
                let maker = Maker::kernel_if(access.maker.is_kernel());
                batch.accesses.push(Access { gap: 0, maker, ..*access });
                if !self.read.branches.is_empty() {
                    batch.branches.push(Branches::NONE);
                }
                batch.contexts.extend(self.read.contexts.get(at - 1));
            } else {
                left_out += 1;
            }
        }
        self.schedule.executed(instructions, left_out);
        at
    }

    /// Passes on everything for `left` instructions; returns the position reached.
    fn copy(&mut self, thread: ThreadIx, part: std::ops::Range<usize>, left: u64, batch: &mut Batch) -> usize {
        let mut instructions = 0;
        let all = &self.read.accesses[part.clone()];
        let count = all
            .iter()
            .take_while(|access| {
                let continues = instructions < left;
                instructions += if continues { u64::from(access.gap) } else { 0 };
                continues
            })
            .count();
        let first = batch.accesses.len();
        let end = part.start + count;
        batch.accesses.extend_from_slice(&all[..count]);
        batch.branches.extend_from_slice(self.read.branches.get(part.start..end).unwrap_or_default());
        batch.contexts.extend_from_slice(self.read.contexts.get(part.start..end).unwrap_or_default());
        self.break_dependencies(thread, first, batch);
        self.schedule.executed(instructions, 0);
        end
    }

    /// Removes dependencies of a thread's accesses from `first` on whose producer was omitted.
    fn break_dependencies(&mut self, thread: ThreadIx, first: usize, batch: &mut Batch) {
        let state = self.threads.entry(thread).or_default();
        if state.stretch != self.passed {
            (state.stretch, state.accesses) = (self.passed, 0);
        }
        let Batch { accesses, branches, .. } = batch;
        for (number, access) in accesses[first..].iter_mut().enumerate() {
            let before = state.accesses + number as u64;
            if before >= Maker::REACH {
                break;
            }
            if access.maker.producer().is_some_and(|distance| distance > before) {
                access.maker = Maker::PROGRAM;
            }
            if let Some(of_access) = branches.get_mut(first + number)
                && of_access.producer().is_some_and(|distance| distance > before)
            {
                of_access.wait_for(0);
            }
        }
        state.accesses = (state.accesses + (accesses.len() - first) as u64).min(Maker::REACH);
    }

    fn touched(&mut self, process: ProcessIx) -> &mut Touched {
        self.processes.entry(process).or_default()
    }

    /// Records that pages of a process have been unmapped or changed.
    fn forget(&mut self, process: ProcessIx, addr: u64, len: u64) {
        self.touched(process).forget(addr, len);
        self.last_touches.forget(process, addr, len);
    }

    /// Updates which pages can be touched for the first time again after an event.
    fn note(&mut self, event: &Event) -> Result<(), TraceError> {
        self.threads.entry(event.thread).or_default().process = event.process;
        let process = event.process;
        match event.kind {
            EventKind::Mmap { addr, len, .. }
            | EventKind::Munmap { addr, len }
            | EventKind::Mprotect { addr, len, .. }
            | EventKind::Madvise { addr, len, .. }
            | EventKind::Msync { addr, len, .. } => self.forget(process, addr, len),
            EventKind::Mremap { old_addr, old_len, new_addr, new_len } => {
                self.forget(process, old_addr, old_len);
                self.forget(process, new_addr, new_len);
            }
            EventKind::Brk { end, .. } => {
                let before = std::mem::replace(&mut self.touched(process).heap_end, end);
                self.forget(process, end, before.saturating_sub(end));
            }
            // The handler's accesses follow, and then the access that faulted.
            EventKind::Fault { addr, .. } => self.forget(process, addr, 1),
            EventKind::Fork { child } => {
                let touched = self.touched(process);
                touched.data.forget_writes();
                let heap_end = touched.heap_end;
                self.last_touches.forget_writes(process);
                self.processes.insert(child, Touched { heap_end, ..Touched::default() });
            }
            EventKind::Exec { .. } | EventKind::Exit { .. } => {
                self.last_touches.forget_process(process);
                self.processes.remove(&process);
            }
            // Affects every process that maps the file.
            EventKind::Truncate { .. } | EventKind::FileHole { .. } | EventKind::Relocate { .. } => {
                self.schedule.forget_pages();
            }
            EventKind::ThreadExit => {
                self.last_touches.forget_thread(event.thread);
                self.threads.remove(&event.thread);
            }
            EventKind::ProcessStart { .. }
            | EventKind::Vfork { .. }
            | EventKind::FileData { .. }
            | EventKind::EngineCall { .. }
            | EventKind::ThreadStart { .. }
            | EventKind::Wake { .. }
            | EventKind::Woken { .. }
            | EventKind::Allocated { .. }
            | EventKind::Freed { .. } => {}
            EventKind::Skip | EventKind::Resume { .. } | EventKind::Measure => {
                return Err(TraceError::usage(format!(
                    "{}: stretches of it were skipped when it was recorded, and its windows are what is measured: replay it without \
                     sample",
                    self.info.name
                )));
            }
        }
        Ok(())
    }

    /// Passes on what was read.
    fn pass(&mut self, batch: &mut Batch) -> Result<(), TraceError> {
        let (segments, mut begin) = (std::mem::take(&mut self.read.segments), 0_usize);
        for segment in &segments {
            match segment {
                Segment::Run { thread, end } => {
                    let most = begin.saturating_add(usize::try_from(self.left).unwrap_or(usize::MAX));
                    self.run(*thread, begin, (*end).min(most), batch);
                    self.left -= ((*end).min(most) - begin) as u64;
                    begin = *end;
                }
                Segment::Event(event) => {
                    self.note(event)?;
                    batch.push_event(Event { position: self.position, ..event.clone() });
                    // The first event, a process's start, is followed by the event of the first stretch.
                    if !self.schedule.is_announced() {
                        self.announce_stretch((event.process, event.thread), batch);
                    }
                }
            }
            if self.left == 0 {
                self.ended = true;
                break;
            }
        }
        self.read.segments = segments;
        Ok(())
    }
}

impl Source for Sampled {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn omit_dependencies(&mut self) {
        self.source.omit_dependencies();
    }

    fn enable_call_stacks(&mut self) -> Result<Option<Arc<CallStacks>>, TraceError> {
        self.source.enable_call_stacks()
    }

    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        batch.clear();
        while !self.ended && batch.accesses.len() < BATCH {
            self.ended = !self.source.next_batch(&mut self.read)?;
            self.pass(batch)?;
        }
        Ok(!batch.is_empty())
    }
}

#[cfg(test)]
#[path = "sample_tests.rs"]
mod tests;
