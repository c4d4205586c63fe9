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

use pagelab_trace::{AccessKind, Branches};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{Beside, Common, Siblings};
use super::in_order::{InOrder, InOrderConfig};
use super::pool::Pool;
use super::ring::Ring;
use super::tage::Tage;
use super::under_way::UnderWay;
use super::{BranchCounts, Core, Data, Met, Moment, Stall, Timing, Translating};
use crate::base::addr::{LINE_SHIFT, PageSize};
use crate::base::cycles::Cycles;
use crate::base::error::EngineError;
use crate::base::translation::Translation;

/// Whether accesses wait for loads where the source does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnknownDependencies {
    /// They do not: all that the window holds overlaps. The most that can be saved.
    #[default]
    Independent,
    /// Each waits for the load before it, so no two misses of loads overlap.
    Serial,
}

/// How conditional branches are predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BranchPredictor {
    /// Always right.
    #[default]
    Perfect,
    /// TAGE with five components (Seznec and Michaud, JILP 2006).
    Tage,
}

/// What the configuration may say of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WindowConfig {
    /// Cycles per instruction when neither memory nor translation stalls it; resolved to 1/256.
    pub cycles_per_instruction: f64,
    /// Instructions in the reorder window.
    #[serde(default = "defaults::window")]
    pub window: u32,
    /// Loads in the window.
    #[serde(default = "defaults::load_queue")]
    pub load_queue: u32,
    /// Stores in the window and after it, until they are written; 0 waits for each as for a load.
    #[serde(default = "defaults::store_queue")]
    pub store_queue: u32,
    /// Lines that the first-level cache may have under way.
    #[serde(default = "defaults::fill_buffers")]
    pub fill_buffers: u32,
    /// Page walks at a time.
    #[serde(default = "defaults::page_walkers")]
    pub page_walkers: u32,
    /// How conditional branches are predicted, where the source tells them.
    #[serde(default)]
    pub branch_predictor: BranchPredictor,
    /// Cycles from where a mispredicted branch is known until instructions behind it enter the window.
    #[serde(default = "defaults::mispredict_penalty")]
    pub mispredict_penalty: u32,
    /// Of sources that do not tell which load an address comes from: foreign traces, older recordings.
    #[serde(default)]
    pub unknown_dependencies: UnknownDependencies,
}

/// Skylake's, in part estimated; see the module's text.
mod defaults {
    pub fn window() -> u32 {
        224
    }

    pub fn load_queue() -> u32 {
        72
    }

    pub fn store_queue() -> u32 {
        56
    }

    pub fn fill_buffers() -> u32 {
        12
    }

    pub fn page_walkers() -> u32 {
        2
    }

    pub fn mispredict_penalty() -> u32 {
        16
    }
}

const PENALTY_MAX: u32 = 1000;
/// The largest window and queue.
const WINDOW_MAX: u32 = 4096;
const BUFFERS_MAX: u32 = 64;
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

/// One of the last accesses.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    times: Times,
    /// The number of the access that it waited for; 0 for none.
    producer: u64,
}

/// The access that is being made.
#[derive(Clone, Copy, Debug, Default)]
struct Current {
    /// Its instructions, own included.
    gap: u64,
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
    /// Whether a line of it has been made.
    is_begun: bool,
}

/// What a thread has of what is divided among those of its core: entries of the window and of the queues.
#[derive(Clone, Copy, Debug)]
struct Room {
    window: u64,
    loads: usize,
    stores: usize,
}

impl Room {
    /// Where so many threads have something to run.
    fn new(config: &WindowConfig, threads: u32) -> Self {
        let part = |whole: u32| (whole / threads).max(1);
        let stores = if config.store_queue > 0 { part(config.store_queue) } else { 0 };
        Self { window: part(config.window).into(), loads: part(config.load_queue) as usize, stores: stores as usize }
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
    /// Of the last loads, as many as the load queue holds: when they leave the window. Of stores: when they are written.
    loads: Ring<Times>,
    stores: Ring<Times>,
    /// By the number of the access.
    done: [Done; REACH],
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

/// Takes an entry of a full queue of `size` that what is made at `from` needs. What is complete by `now` goes with it, so that this
/// is seldom asked, but for the youngest, which the next may have to come after.
#[inline(never)]
fn take_entry(queue: &mut Ring<Times>, size: usize, now: Cycles, from: Cycles) -> Stall {
    let mut stall = Stall::default();
    while let Some(oldest) = queue.front() {
        if queue.len() < size && (oldest.complete > now || queue.len() == 1) {
            break;
        }
        stall += wait(from + stall.sum(), oldest);
        queue.pop_front();
    }
    stall
}

impl State {
    /// When so many instructions after the moment have entered the window.
    #[inline]
    fn after(&self, at: Moment, instructions: u64) -> Cycles {
        at.now + (self.pace.base_cycles(at.instructions + instructions) - self.pace.base_cycles(at.instructions))
    }

    /// Lets entries go so that the window has room for all up to `entry`: how long that stalls, where the current access's instructions
    /// enter after the moment.
    #[inline(always)]
    fn make_room(&mut self, entry: u64, at: Moment) -> Stall {
        if entry < self.leaves_for { Stall::default() } else { self.let_go(entry, at) }
    }

    /// [`Self::make_room`] where the oldest has to go. What is complete goes with it, so that this is seldom asked.
    #[inline(never)]
    fn let_go(&mut self, entry: u64, at: Moment) -> Stall {
        let (size, gap) = (self.room.window, self.current.gap);
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

    /// What is known of an access by its number; what is too old is complete.
    #[inline]
    fn of_number(&self, number: u64) -> Done {
        let is_known = number > 0 && self.met - number < REACH as u64;
        if is_known { self.done[(number % REACH as u64) as usize] } else { Done::default() }
    }

    /// A wait from `from` on for an access that need not be the oldest: also for those that it waits for itself.
    fn wait_for_chain(&self, from: Cycles, number: u64) -> Stall {
        let mut stall = Stall::default();
        let mut of = self.of_number(number);
        while of.times.complete > from {
            let before = self.of_number(of.producer);
            stall += wait(from.max(before.times.complete), of.times);
            of = before;
        }
        stall
    }

    /// How long instructions from the moment on wait for branches before them.
    #[inline(never)]
    fn mispredict(&mut self, branches: Branches, at: Moment) -> Stall {
        let Some(predictor) = &mut self.predictor else { return Stall::default() };
        let (mut name, mut missed) = (self.last_pc << 8 | 1, 0);
        for taken in branches.outcomes() {
            missed += u64::from(predictor.meet(name, taken));
            name = name & !0xff | (name << 1 | u64::from(taken)) & 0xff;
        }
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
    #[inline]
    fn line(&mut self, begin: Cycles, ready: Cycles, mut data: Data, now: Cycles) -> Times {
        let (line, latency) = (data.line, data.latency);
        if latency <= self.l1_latency {
            // A hit, perhaps of a line that is still under way.
            let hit = data.there(ready);
            let own = if self.lines.last() > hit { self.lines.there(line) } else { Cycles::ZERO };
            let complete = if own > Cycles::ZERO { hit.max(own) } else { self.beside.line_there(line, hit) };
            let under_way = if complete > hit { complete } else { Cycles::ZERO };
            return Times { complete, translation: complete - under_way.max(hit - (ready - begin)) };
        }
        let free = self.fills.first(ready);
        let from = self.beside.take_fill(free.begin, latency, now);
        let there = data.there(from);
        self.beside.note_line(line, from, there);
        let earlier = if begin < ready { self.fills.earlier(free, begin, latency) } else { Cycles::ZERO };
        self.fills.occupy(self.fills.from(free, from), there);
        self.lines.note(line, there);
        Times { complete: there, translation: earlier.min(ready - begin) }
    }

    /// Notes in the queues when the current access leaves the window, and when its line is there.
    #[inline]
    fn note(&mut self, times: Times, there: Cycles) {
        let Current { loads, stores, producer, is_begun, .. } = self.current;
        if times.complete > self.left.complete {
            self.left = times;
        }
        self.done[(self.met % REACH as u64) as usize] = Done { times, producer };
        if loads {
            self.last_load = self.met;
            if is_begun {
                self.loads.pop_back();
            }
            self.loads.push_back(self.left);
        }
        if stores && self.room.stores > 0 {
            if is_begun {
                self.stores.pop_back();
            }
            // Written in order, one a cycle at most.
            let last = self.stores.back().map_or(Cycles::ZERO, |store| store.complete + Cycles(1));
            let complete = there.max(self.left.complete).max(last);
            // It is translated when it leaves the window.
            self.stores.push_back(Times { complete, translation: Cycles::ZERO });
        }
    }
}

impl Core for Window {
    type Parameters = WindowConfig;

    fn new(config: &WindowConfig, l1_latency: Cycles) -> Self {
        let in_order = InOrderConfig { cycles_per_instruction: config.cycles_per_instruction, l1_hit_hidden: false };
        Self(Box::new(State {
            pace: InOrder::new(&in_order, l1_latency),
            config: *config,
            room: Room::new(config, 1),
            beside: Beside::default(),
            l1_latency,
            entered: 0,
            met: 0,
            in_window: Ring::new(config.window as usize + 1),
            leaves_for: u64::MAX,
            loads: Ring::new(config.load_queue as usize + 1),
            stores: Ring::new(config.store_queue as usize + 1),
            done: [Done::default(); REACH],
            walkers: Pool::new(config.page_walkers),
            fills: Pool::new(config.fill_buffers),
            lines: UnderWay::default(),
            pages: UnderWay::default(),
            sizes: Default::default(),
            predictor: (config.branch_predictor == BranchPredictor::Tage).then(Box::default),
            last_pc: 0,
            left: Times::default(),
            last_load: 0,
            current: Current::default(),
        }))
    }

    fn validate(config: &WindowConfig, key: &str) -> Result<(), EngineError> {
        let cycles_per_instruction = config.cycles_per_instruction;
        InOrder::validate(&InOrderConfig { cycles_per_instruction, l1_hit_hidden: false }, key)?;
        for (name, value, least, most) in [
            ("window", config.window, 1, WINDOW_MAX),
            ("load_queue", config.load_queue, 1, WINDOW_MAX),
            ("store_queue", config.store_queue, 0, WINDOW_MAX),
            ("fill_buffers", config.fill_buffers, 1, BUFFERS_MAX),
            ("page_walkers", config.page_walkers, 1, BUFFERS_MAX),
            ("mispredict_penalty", config.mispredict_penalty, 0, PENALTY_MAX),
        ] {
            if !(least..=most).contains(&value) {
                let what = format!("{value} is out of range; allowed are {least} to {most}");
                return Err(EngineError::config(format!("{key}.{name}"), what));
            }
        }
        Ok(())
    }

    fn samples() -> Vec<WindowConfig> {
        let skylake = WindowConfig {
            cycles_per_instruction: 0.25,
            window: defaults::window(),
            load_queue: defaults::load_queue(),
            store_queue: defaults::store_queue(),
            fill_buffers: defaults::fill_buffers(),
            page_walkers: defaults::page_walkers(),
            branch_predictor: BranchPredictor::Perfect,
            mispredict_penalty: defaults::mispredict_penalty(),
            unknown_dependencies: UnknownDependencies::Independent,
        };
        let least =
            WindowConfig { window: 1, load_queue: 1, store_queue: 0, fill_buffers: 1, page_walkers: 1, ..skylake };
        vec![
            skylake,
            least,
            WindowConfig {
                store_queue: 1,
                unknown_dependencies: UnknownDependencies::Serial,
                branch_predictor: BranchPredictor::Tage,
                ..skylake
            },
        ]
    }
}

impl Timing for Window {
    #[inline]
    fn base_cycles(&self, instructions: u64) -> Cycles {
        self.0.pace.base_cycles(instructions)
    }

    /// Repeated accesses are met like others.
    #[inline]
    fn repeat_stall(&self) -> Cycles {
        Cycles::ZERO
    }

    #[inline]
    fn follows(&self) -> bool {
        true
    }

    #[inline(always)]
    fn meet(&mut self, met: Met, at: Moment) -> Stall {
        let of = &mut *self.0;
        let Met { access, again, tells, branches } = met;
        let gap = u64::from(access.gap);
        let loads = matches!(access.kind, AccessKind::Load | AccessKind::Modify);
        of.current = Current { gap, loads, stores: access.kind.writes(), ..Current::default() };
        if again {
            of.current.ready = of.after(at, gap);
            return Stall::default();
        }
        of.met += 1;
        of.entered += gap.max(1);
        let behind = if branches == Branches::NONE { Stall::default() } else { of.mispredict(branches, at) };
        of.last_pc = access.pc;
        let at = Moment { now: at.now + behind.sum(), ..at };
        let mut stall = of.make_room(of.entered, at);
        let room = stall.sum();
        if loads && of.loads.len() >= of.room.loads {
            let from = of.after(at, gap.saturating_sub(1)) + stall.sum();
            stall += take_entry(&mut of.loads, of.room.loads, at.now, from);
        }
        if access.kind.writes() && of.room.stores > 0 && of.stores.len() >= of.room.stores {
            let from = of.after(at, gap.saturating_sub(1)) + room + stall.sum();
            stall += take_entry(&mut of.stores, of.room.stores, at.now, from);
        }
        if of.beside.competes() {
            stall.sibling = of.beside.enter(at.now + stall.sum(), of.after(at, gap) - at.now, at.now);
        }
        of.current.producer = match access.maker.producer() {
            Some(distance) => of.met.saturating_sub(distance),
            None if !tells && of.config.unknown_dependencies == UnknownDependencies::Serial => of.last_load,
            None => 0,
        };
        of.current.ready = (of.after(at, gap) + stall.sum()).max(of.of_number(of.current.producer).times.complete);
        stall += behind;
        stall
    }

    #[inline(always)]
    fn data_stall(&mut self, data: Data, at: Moment) -> Stall {
        let of = &mut *self.0;
        let entered = of.after(at, of.current.gap);
        let mut ready = of.current.ready.max(entered);
        let begin = if of.current.is_translated { of.current.begin } else { ready };
        if !of.current.is_translated {
            ready = of.translated(ready, data.line);
        }
        let Times { complete: there, translation } = of.line(begin, ready, data, at.now);
        let is_waited_for = of.current.loads || of.room.stores == 0;
        let (complete, translation) = if is_waited_for { (there, translation) } else { (ready, ready - begin) };
        of.current.translation += translation;
        let times = Times { complete, translation: of.current.translation };
        of.note(times, there);
        (of.current.ready, of.current.is_translated, of.current.is_begun) = (there, false, true);
        if times.complete > entered {
            of.leaves_for = of.leaves_for.min(of.entered + of.room.window);
            of.in_window.push_back(InWindow { entry: of.entered, times });
        }
        of.make_room(of.entered + 1, at)
    }

    fn translation_stall(&mut self, of_translation: Translating, at: Moment) -> Stall {
        let of = &mut *self.0;
        let Translating { look_up, walk, page, fetches } = of_translation;
        let begin = if fetches { at.now } else { of.current.ready.max(of.after(at, of.current.gap)) };
        let mut end = begin + look_up;
        if walk > Cycles::ZERO {
            let free = of.walkers.first(end);
            let from = of.beside.take_walk(free.begin, walk, at.now);
            end = from + walk;
            of.walkers.occupy(of.walkers.from(free, from), end);
        }
        if fetches {
            // What has not been fetched cannot enter the window.
            of.current.ready = of.current.ready.max(end);
            return Stall { translation: end - at.now, ..Stall::default() };
        }
        if let Some(page) = page {
            of.under_way(page, end);
        }
        if !of.current.is_translated {
            of.current.begin = begin;
        }
        (of.current.ready, of.current.is_translated) = (end, true);
        Stall::default()
    }

    fn common(&self) -> Option<Box<Common>> {
        let WindowConfig { fill_buffers, page_walkers, .. } = self.0.config;
        Some(Box::new(Common::new(fill_buffers, page_walkers)))
    }

    fn go_on(&mut self, common: Box<Common>, siblings: Siblings) {
        let of = &mut *self.0;
        if of.beside.go_on(common, siblings) {
            of.room = Room::new(&of.config, siblings.active + 1);
            of.leaves_for = of.in_window.front().map_or(u64::MAX, |oldest| oldest.entry + of.room.window);
        }
    }

    fn pause(&mut self) -> Option<Box<Common>> {
        self.0.beside.pause()
    }

    fn branches(&self) -> Option<BranchCounts> {
        self.0.predictor.as_ref().map(|predictor| predictor.counts())
    }

    fn drain(&mut self, at: Moment) -> Stall {
        let of = &mut *self.0;
        let current = of.current;
        // A translation that nothing has followed has met a fault: all before its instruction has entered.
        let from = if current.is_translated { of.after(at, current.gap) } else { at.now };
        let mut stall = Stall::default();
        of.leaves_for = u64::MAX;
        while let Some(oldest) = of.in_window.pop_front() {
            stall += wait(from + stall.sum(), oldest.times);
        }
        if current.is_translated {
            let times = Times { complete: current.ready, translation: current.ready - current.begin };
            stall += wait(from + stall.sum(), times);
            of.current.is_translated = false;
        }
        stall
    }
}
