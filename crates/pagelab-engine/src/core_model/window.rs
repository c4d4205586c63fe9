//! A core with a window: misses overlap as far as dependencies, the window and its buffers allow.
//!
//! Models: instructions enter a reorder window in program order, at a fixed rate, and leave it in that order once they are complete. Each
//! access issues when it is in the window and the load that its address comes from has its data. Its translation takes one of the page
//! walkers if it is a walk, its line one of the fill buffers of the first-level cache if it is elsewhere; an access to a line under way
//! waits for that line, and one to a page whose translation is under way for that. Walkers and buffers are taken from when they are
//! needed on, so that what waits for its data leaves them to others before (`pool.rs`). So walks and misses overlap. A store leaves the
//! window once it is translated, into a store queue that drains in order as the lines come. What the kernel does waits until the window
//! is empty.
//! Source: the first-order model of Karkhanis and Smith, "A First-Order Superscalar Processor Model" (ISCA 2004), made exact for each
//! access instead of each miss event: as long as the window is not full, instructions go on at their rate; once it is, they wait for the
//! oldest. MSHRs after Kroft, "Lockup-Free Instruction Fetch/Prefetch Cache Organization" (ISCA 1981).
//! Hardware threads of a core that have something to run divide the window and the queues equally; they compete for fill buffers,
//! walkers, and the width at which instructions enter ([`super::common`]).
//! A stall for the oldest instruction is for its translation as far as it would be shorter had that taken no time, and else for its data.
//! Behind a mispredicted branch nothing enters before the load that its condition comes from is there and `mispredict_penalty` is over.
//! Parameters: `cycles_per_instruction` (where nothing stalls), `window`, `load_queue`, `store_queue` (entries; 0: stores are waited for as loads are),
//! `fill_buffers`, `page_walkers`, `unknown_dependencies`, `branch_predictor`, `mispredict_penalty`. The defaults are an Intel Skylake's: 224 entries of the reorder buffer, 72 loads,
//! 56 stores (WikiChip, "Skylake (client)"; Intel, Optimization Reference Manual 248966, chapter 2). 12 fill buffers and two page
//! walks at a time are estimates: Intel publishes 10 fill buffers for older cores, and later ones walk two pages at once. So are 16 cycles
//! for a misprediction (Fog, "The microarchitecture of Intel, AMD and VIA CPUs": 15 to 20).
//! Deviations: all instructions but loads are complete as they enter, indirect branches are predicted, and nothing is executed on a wrong
//! path. The lines that accesses find in the caches are those that they would find in program order; so are those that walks find, which
//! do not wait for lines that other walks have under way. A load that reads what a waiting store writes waits for the line. An
//! instruction's second access is an entry of the window of its own; the lines of an access that crosses one come one after the other.
//! Instructions are fetched in order: their translation is waited for. A page fault empties the window, also where a fault engine handles
//! it. Each hardware thread has a predictor of its own; what the kernel does takes none of the width. All cores divide as Intel's do.

mod config;
mod timing;

use config::{UnknownDependencies, WindowConfig};
use pagelab_trace::{Access, AccessKind, Branches};

use super::common::Beside;
use super::in_order::InOrder;
use super::pool::Pool;
use super::ring::Ring;
use super::tage::Tage;
use super::under_way::UnderWay;
use super::{Data, Met, Moment, Stall, Timing};
use crate::base::addr::{LINE_SHIFT, PageSize};
use crate::base::cycles::Cycles;
use crate::base::translation::Translation;

/// Completion times that are kept for accesses that depend on them: as many as [`pagelab_trace::Maker::REACH`], and one.
const REACH: usize = 256;

/// An access in the window that instructions behind it may have to wait for.
#[derive(Clone, Copy, Debug, Default)]
struct InWindow {
    /// Its entry, counted from the start of the run.
    entry: u64,
    times: Times,
}

/// When an access is complete.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    complete: Cycles,
    /// How much earlier that were if its own translation took no time.
    translation: Cycles,
}

/// What a misprediction asks of one of the last accesses.
#[derive(Clone, Copy, Debug, Default)]
struct Chained {
    translation: Cycles,
    /// The number of the access that it waited for; 0 for none.
    producer: u64,
}

/// When entries of a queue are free again, by the number of what took one.
#[derive(Clone, Debug)]
struct Queue(Box<[Times]>);

impl Queue {
    /// For so many entries.
    fn new(entries: u32) -> Self {
        Self(vec![Times::default(); (entries as usize + 1).next_power_of_two()].into())
    }

    /// Of a number that is no more entries back than there are; before the first all are free.
    #[inline(always)]
    fn of(&self, number: u64) -> Times {
        self.0[number as usize & (self.0.len() - 1)]
    }

    #[inline(always)]
    fn set(&mut self, number: u64, times: Times) {
        let last = self.0.len() - 1;
        self.0[number as usize & last] = times;
    }
}

/// The access that is being made.
#[derive(Clone, Copy, Debug, Default)]
struct Current {
    /// Its instructions, own included.
    gap: u64,
    /// How long these enter.
    enters: Cycles,
    loads: bool,
    stores: bool,
    /// The number of the access that it waits for; 0 for none.
    producer: u64,
    /// When it could go on with what comes next: translation, then data.
    ready: Cycles,
    /// Whether a translation has been made that no data have followed yet, and when that began.
    is_translated: bool,
    begin: Cycles,
    /// Of its lines so far, as in [`Times`].
    translation: Cycles,
}

/// What a thread has of what is divided among those of its core: entries of the window and of the queues.
#[derive(Clone, Copy, Debug)]
struct Room {
    window: u64,
    loads: u64,
    stores: u64,
}

impl Room {
    /// Where so many threads have something to run.
    fn new(config: &WindowConfig, threads: u32) -> Self {
        let part = |whole: u32| u64::from((whole / threads).max(1));
        let stores = if config.store_queue > 0 { part(config.store_queue) } else { 0 };
        Self { window: part(config.window), loads: part(config.load_queue), stores }
    }
}

/// See the module's text. Its times are those of the CPU's clock, which shows when instructions enter the window.
#[derive(Clone, Debug)]
pub struct Window(Box<State>);

#[derive(Clone, Debug)]
struct State {
    pace: InOrder,
    config: WindowConfig,
    room: Room,
    beside: Beside,
    l1_latency: Cycles,
    /// Entries of the window taken since the start, and accesses met.
    entered: u64,
    met: u64,
    in_window: Ring<InWindow>,
    /// The entry that the oldest of these has to have left for; none if it is beyond all.
    leaves_for: u64,
    /// Loads and stores so far. When loads leave the window, and when stores are written.
    loaded: u64,
    stored: u64,
    loads: Queue,
    stores: Queue,
    /// From when on there is an entry for the next of each.
    load_free: Cycles,
    store_free: Cycles,
    /// By the number of the access: when it is complete, and the rest.
    complete: [Cycles; REACH],
    chained: [Chained; REACH],
    walkers: Pool,
    fills: Pool,
    /// Lines and translations under way, by [`page_number`].
    lines: UnderWay,
    pages: UnderWay,
    /// Whether there were pages of a size among them.
    sizes: [bool; PageSize::ALL.len()],
    /// None if branches are always predicted.
    predictor: Option<Box<Tage>>,
    /// The instruction of the access before.
    last_pc: u64,
    /// Of what is complete last of all that has entered so far.
    left: Times,
    /// The number of the last load.
    last_load: u64,
    current: Current,
}

/// How much of a wait from `from` on, for what is there at `times`, is for what: for the translation as much as it would be shorter
/// without.
fn wait(from: Cycles, times: Times) -> Stall {
    let whole = times.complete.saturating_sub(from);
    let translation = times.translation.min(whole);
    Stall { translation, data: whole - translation, ..Stall::default() }
}

/// A page of the machine, among those of all sizes.
fn page_number(line: u64, size: usize) -> u64 {
    line >> (PageSize::ALL[size].shift() - LINE_SHIFT) << 2 | size as u64
}

impl State {
    /// How long so many instructions after the moment enter.
    #[inline]
    fn enters(&self, at: Moment, instructions: u64) -> Cycles {
        self.pace.base_cycles(at.instructions + instructions) - self.pace.base_cycles(at.instructions)
    }

    /// When so many instructions after the moment have entered the window.
    #[inline]
    fn after(&self, at: Moment, instructions: u64) -> Cycles {
        at.now + self.enters(at, instructions)
    }

    /// Lets entries go so that the window has room for all up to `entry`: how long that stalls, where the last `gap` instructions enter
    /// after the moment.
    #[inline(always)]
    fn make_room(&mut self, entry: u64, gap: u64, at: Moment) -> Stall {
        if entry < self.leaves_for { Stall::default() } else { self.let_go(entry, gap, at) }
    }

    /// Whether the window has room for one more without that.
    #[inline(always)]
    fn has_room(&self) -> bool {
        self.entered + 1 < self.leaves_for
    }

    /// [`Self::make_room`] where the oldest has to go. What is complete goes with it, so that this is seldom asked.
    #[inline(never)]
    fn let_go(&mut self, entry: u64, gap: u64, at: Moment) -> Stall {
        let size = self.room.window;
        let before = self.entered - gap.max(1);
        let mut stall = Stall::default();
        self.leaves_for = u64::MAX;
        while let Some(oldest) = self.in_window.front() {
            if oldest.times.complete > at.now {
                if oldest.entry + size > entry {
                    self.leaves_for = oldest.entry + size;
                    break;
                }
                let ahead = (oldest.entry + size - 1).saturating_sub(before).min(gap);
                stall += wait(self.after(at, ahead) + stall.sum(), oldest.times);
            }
            self.in_window.pop_front();
        }
        stall
    }

    /// When an access is complete, by its number; what is too old is. Without a branch of the host's, as it cannot foresee who waits.
    #[inline(always)]
    fn complete(&self, number: u64) -> Cycles {
        let is_known = number > 0 && self.met - number < REACH as u64;
        let complete = self.complete[(number % REACH as u64) as usize];
        Cycles(complete.0 & u64::from(is_known).wrapping_neg())
    }

    /// The same with the access that it waited for.
    fn of_number(&self, number: u64) -> (Times, u64) {
        let Chained { translation, producer } = self.chained[(number % REACH as u64) as usize];
        (Times { complete: self.complete(number), translation }, producer)
    }

    /// A wait from `from` on for an access that need not be the oldest: also for those that it waits for itself.
    fn wait_for_chain(&self, from: Cycles, number: u64) -> Stall {
        let mut stall = Stall::default();
        let (mut times, mut producer) = self.of_number(number);
        while times.complete > from {
            let before = self.of_number(producer);
            stall += wait(from.max(before.0.complete), times);
            (times, producer) = before;
        }
        stall
    }

    /// How many of the branches before the access are mispredicted.
    #[inline(never)]
    fn predict(&mut self, branches: Branches) -> u64 {
        let Some(predictor) = &mut self.predictor else { return 0 };
        let (mut name, mut missed) = (self.last_pc << 8 | 1, 0);
        for taken in branches.outcomes() {
            missed += u64::from(predictor.meet(name, taken));
            name = name & !0xff | (name << 1 | u64::from(taken)) & 0xff;
        }
        missed
    }

    /// How long instructions from the moment on wait for branches before them, so many of which are mispredicted.
    fn mispredict(&self, branches: Branches, missed: u64, at: Moment) -> Stall {
        if missed == 0 {
            return Stall::default();
        }
        let condition = branches.producer().map(|distance| self.met.saturating_sub(distance));
        let mut stall = condition.map_or_else(Stall::default, |number| self.wait_for_chain(at.now, number));
        stall.branch += Cycles(missed * u64::from(self.config.mispredict_penalty));
        stall
    }

    /// When a page is translated whose translation a first-level TLB has, which may still be under way.
    #[inline]
    fn translated(&self, ready: Cycles, line: u64) -> Cycles {
        if self.pages.last() <= ready {
            return ready;
        }
        let sizes = (0..self.sizes.len()).filter(|&size| self.sizes[size]);
        sizes.map(|size| self.pages.there(page_number(line, size))).fold(ready, Cycles::max)
    }

    /// Notes that a page is translated from a time on.
    #[inline]
    fn under_way(&mut self, page: Translation, there: Cycles) {
        let size = page.size_index();
        self.sizes[size] = true;
        self.pages.note(page_number(page.page().line().0, size), there);
    }

    /// When an access has its line that asks for it at `ready`, and how much earlier it were if it did so at `begin`.
    /// The thread has come to `now`.
    #[inline(always)]
    fn line(&mut self, begin: Cycles, ready: Cycles, mut data: Data, now: Cycles) -> Times {
        if data.latency > self.l1_latency {
            return self.missing_line(begin, ready, data, now);
        }
        let hit = data.there(ready);
        if self.lines.last() <= hit && !self.beside.competes() {
            return Times { complete: hit, translation: ready - begin };
        }
        self.hit_line(data.line, hit, ready - begin)
    }

    /// The same of a line that the cache has, perhaps still under way; who did not translate had it so much earlier.
    #[inline(never)]
    fn hit_line(&self, line: u64, hit: Cycles, translation: Cycles) -> Times {
        let own = if self.lines.last() > hit { self.lines.there(line) } else { Cycles::ZERO };
        let complete = if own > Cycles::ZERO { hit.max(own) } else { self.beside.line_there(line, hit) };
        let under_way = if complete > hit { complete } else { Cycles::ZERO };
        Times { complete, translation: complete - under_way.max(hit - translation) }
    }

    /// The same of a line that is elsewhere.
    #[inline(never)]
    fn missing_line(&mut self, begin: Cycles, ready: Cycles, mut data: Data, now: Cycles) -> Times {
        let (line, latency) = (data.line, data.latency);
        let free = self.fills.first(ready);
        let from = self.beside.take_fill(free.begin, latency, now);
        let there = data.there(from);
        self.beside.note_line(line, from, there);
        let earlier = if begin < ready { self.fills.earlier(free, begin, latency) } else { Cycles::ZERO };
        self.fills.occupy(self.fills.from(free, from), there);
        self.lines.note(line, there);
        Times { complete: there, translation: earlier.min(ready - begin) }
    }

    /// The program comes to an access for the first time: how many of the branches before it are mispredicted.
    #[inline(always)]
    fn enter(&mut self, met: &Met) -> u64 {
        self.met += 1;
        self.entered += u64::from(met.access.gap).max(1);
        self.loaded += u64::from(is_load(met.access));
        self.stored += u64::from(met.access.kind.writes());
        let missed = if met.branches == Branches::NONE { 0 } else { self.predict(met.branches) };
        self.last_pc = met.access.pc;
        missed
    }

    /// Whether the access may have to wait before it is in the window.
    #[inline(always)]
    fn is_hindered(&self, access: &Access, now: Cycles) -> bool {
        let full_of_loads = is_load(access) & (self.load_free > now);
        let full_of_stores = access.kind.writes() & (self.store_free > now);
        self.entered >= self.leaves_for || full_of_loads | full_of_stores || self.beside.competes()
    }

    /// The load or store whose entry one of a number takes.
    #[inline(always)]
    fn load_before(&self, number: u64) -> Times {
        self.loads.of(number.wrapping_sub(self.room.loads))
    }

    #[inline(always)]
    fn store_before(&self, number: u64) -> Times {
        let before = self.stores.of(number.wrapping_sub(self.room.stores));
        if self.room.stores > 0 { before } else { Times::default() }
    }

    /// The program comes to an access.
    fn come_to(&mut self, access: &Access, at: Moment) {
        let gap = u64::from(access.gap);
        let (loads, stores) = (is_load(access), access.kind.writes());
        self.current = Current { gap, enters: self.enters(at, gap), loads, stores, ..Current::default() };
    }

    /// The program comes to an access, behind so many mispredicted branches: how long it has to wait before it is in the window.
    fn come_in(&mut self, met: &Met, missed: u64, at: Moment) -> Stall {
        self.come_to(met.access, at);
        let is_hindered = missed > 0 || self.is_hindered(met.access, at.now);
        let stall = if is_hindered { self.hindered(met.branches, missed, at) } else { Stall::default() };
        self.issue(met, at.now + stall.sum());
        stall
    }

    /// How long the current access has to wait before it is in the window.
    fn hindered(&mut self, branches: Branches, missed: u64, at: Moment) -> Stall {
        let behind = self.mispredict(branches, missed, at);
        let at = Moment { now: at.now + behind.sum(), ..at };
        let Current { gap, enters, loads, stores, .. } = self.current;
        let mut stall = self.make_room(self.entered, gap, at);
        let begins = self.after(at, gap.saturating_sub(1));
        if loads {
            stall += wait(begins + stall.sum(), self.load_before(self.loaded));
        }
        if stores {
            stall += wait(begins + stall.sum(), self.store_before(self.stored));
        }
        if self.beside.competes() {
            stall.sibling = self.beside.enter(at.now + stall.sum(), enters, at.now);
        }
        stall += behind;
        stall
    }

    /// The number of the access that one waits for; 0 for none.
    #[inline(always)]
    fn producer(&self, met: &Met) -> u64 {
        match met.access.maker.producer() {
            Some(distance) => self.met.saturating_sub(distance),
            None if !met.tells && self.config.unknown_dependencies == UnknownDependencies::Serial => self.last_load,
            None => 0,
        }
    }

    /// The current access enters from `now` on, and issues when its producer is complete.
    fn issue(&mut self, met: &Met, now: Cycles) {
        self.current.producer = self.producer(met);
        self.current.ready = (now + self.current.enters).max(self.complete(self.current.producer));
    }

    /// It asks for its data, or for those of its next line.
    fn access(&mut self, data: Data, at: Moment) {
        let Current { loads, stores, producer, .. } = self.current;
        let entered = at.now + self.current.enters;
        let mut ready = self.current.ready.max(entered);
        let begin = if self.current.is_translated { self.current.begin } else { ready };
        if !self.current.is_translated {
            ready = self.translated(ready, data.line);
        }
        let Times { complete: there, translation } = self.line(begin, ready, data, at.now);
        let is_waited_for = loads || self.room.stores == 0;
        let (complete, translation) = if is_waited_for { (there, translation) } else { (ready, ready - begin) };
        self.current.translation += translation;
        let times = Times { complete, translation: self.current.translation };
        self.note(times, entered, producer);
        self.note_in_queues(loads, stores, there);
        (self.current.ready, self.current.is_translated) = (there, false);
    }

    /// Notes when an access that has entered is complete.
    #[inline(always)]
    fn note(&mut self, times: Times, entered: Cycles, producer: u64) {
        let slot = (self.met % REACH as u64) as usize;
        self.complete[slot] = times.complete;
        self.chained[slot] = Chained { translation: times.translation, producer };
        // What is complete before an older one does not hinder: whoever waits, waits for that one.
        if times.complete > self.left.complete {
            self.left = times;
            if times.complete > entered {
                self.leaves_for = self.leaves_for.min(self.entered + self.room.window);
                self.in_window.push_back(InWindow { entry: self.entered, times });
            }
        }
    }

    /// Notes in the queues when it leaves the window, and when its line, which is there at a time, is written.
    #[inline(always)]
    fn note_in_queues(&mut self, loads: bool, stores: bool, there: Cycles) {
        if loads {
            self.loads.set(self.loaded, self.left);
            self.load_free = self.load_before(self.loaded + 1).complete;
            self.last_load = self.met;
        }
        if stores {
            // Written in order, one a cycle at most.
            let last = self.stores.of(self.stored - 1).complete + Cycles(1);
            let complete = there.max(self.left.complete).max(last);
            // It is translated when it leaves the window.
            self.stores.set(self.stored, Times { complete, translation: Cycles::ZERO });
            self.store_free = self.store_before(self.stored + 1).complete;
        }
    }

    /// Makes an access that has met nothing before, and whose translation is there. The same as [`Self::access`] for that case, and
    /// nothing is kept of it in [`Self::current`].
    #[inline(always)]
    fn access_at_once(&mut self, met: &Met, data: Data, at: Moment) {
        let entered = self.after(at, met.access.gap.into());
        let (loads, stores) = (is_load(met.access), met.access.kind.writes());
        let producer = self.producer(met);
        let begin = entered.max(self.complete(producer));
        let ready = self.translated(begin, data.line);
        let times = self.line(begin, ready, data, at.now);
        let there = times.complete;
        let is_waited_for = loads || self.room.stores == 0;
        let times = if is_waited_for { times } else { Times { complete: ready, translation: ready - begin } };
        self.note(times, entered, producer);
        self.note_in_queues(loads, stores, there);
    }
}

/// Whether an access waits in the load queue.
#[inline(always)]
fn is_load(access: &Access) -> bool {
    matches!(access.kind, AccessKind::Load | AccessKind::Modify)
}
