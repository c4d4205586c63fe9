//! A core with a window: misses overlap as far as dependencies, the window and its buffers allow.
//!
//! Models: instructions enter a reorder window in program order, at a fixed rate, and leave it in that order once they
//! are complete. Each access issues when it is in the window and the load that its address comes from has its data. Its
//! translation takes one of the page walkers if it is a walk, its line one of the fill buffers of the first-level cache
//! if it is elsewhere; an access to a line under way waits for that line, and one to a page whose translation is under
//! way for that. Walkers and buffers are taken from when they are needed on, so that what waits for its data leaves
//! them to others before (`pool.rs`). So walks and misses overlap. A store leaves the window once it is translated,
//! into a store queue that drains in order as the lines come. What the kernel does waits until the window is empty.
//! Source: the first-order model of Karkhanis and Smith, "A First-Order Superscalar Processor Model" (ISCA 2004), made
//! exact for each access instead of each miss event: as long as the window is not full, instructions go on at their
//! rate; once it is, they wait for the oldest. MSHRs after Kroft, "Lockup-Free Instruction Fetch/Prefetch Cache
//! Organization" (ISCA 1981). Hardware threads of a core that have something to run divide the window and the queues
//! equally; they compete for fill buffers, walkers, and the width at which instructions enter ([`super::common`]). A
//! stall for the oldest instruction is for its translation as far as it would be shorter had that taken no time, and
//! else for its data. Behind a mispredicted branch nothing enters before the load that its condition comes from is
//! there and `mispredict_penalty` is over.
//! Parameters: `cycles_per_instruction` (where nothing stalls), `window`, `load_queue`, `store_queue` (entries; 0:
//! stores are waited for as loads are), `fill_buffers`, `page_walkers`, `unknown_dependencies`, `branch_predictor`,
//! `mispredict_penalty`. The defaults are an Intel Skylake's: 224 entries of the reorder buffer, 72 loads, 56 stores
//! (WikiChip, "Skylake (client)"; Intel, Optimization Reference Manual 248966, chapter 2). 12 fill buffers and two page
//! walks at a time are estimates: Intel publishes 10 fill buffers for older cores, and later ones walk two pages at
//! once. So are 16 cycles for a misprediction (Fog, "The microarchitecture of Intel, AMD and VIA CPUs": 15 to 20).
//! Deviations: all instructions but loads are complete as they enter, indirect branches are predicted, and nothing is
//! executed on a wrong path. The lines that accesses find in the caches are those that they would find in program
//! order; so are those that walks find, which do not wait for lines that other walks have under way. A load that reads
//! what a waiting store writes waits for the line. An instruction's second access is an entry of the window of its own;
//! the lines of an access that crosses one come one after the other. Instructions are fetched in order: their
//! translation is waited for. A page fault empties the window, also where a fault engine handles it. Each hardware
//! thread has a predictor of its own; what the kernel does takes none of the width. All cores divide as Intel's do.

mod config;
mod entered;
mod lines;
mod row;
mod timing;

use config::{UnknownDependencies, WindowConfig};
use entered::{RecentAccesses, Times, WindowProgress, is_load, wait};
use lines::Lines;
use pagelab_trace::{Access, Branches};

use super::common::SmtThread;
use super::in_order::InOrder;
use super::pool::Pool;
use super::tage::Tage;
use super::under_way::UnderWay;
use super::{CoreTime, Data, IncomingAccess, ROW, Stall, Timing};
use pagelab_base::addr::{LINE_SHIFT, PageSize};
use pagelab_base::cycles::Cycles;
use pagelab_base::translation::Translation;

/// The access that is being made.
#[derive(Clone, Copy, Debug, Default)]
struct Current {
    /// Its instructions, own included.
    gap: u64,
    /// How long these enter.
    enters: Cycles,
    loads: bool,
    stores: bool,
    /// How many accesses back that is that it waits for; 0 for none.
    distance: u64,
    /// When it could go on with what comes next: translation, then data.
    ready: Cycles,
    /// Whether a translation has been made that no data have followed yet, and when that began.
    is_translated: bool,
    begin: Cycles,
    /// Of its lines so far, as in [`Times`].
    translation: Cycles,
}

/// Translations under way to the first-level TLB.
#[derive(Clone, Debug, Default)]
struct PendingPages {
    /// By [`page_number`].
    under_way: UnderWay,
    /// Whether there were pages of a size among them.
    sizes: [bool; PageSize::ALL.len()],
}

/// A page of the machine, among those of all sizes.
fn page_number(line: u64, size: usize) -> u64 {
    line >> (PageSize::ALL[size].shift() - LINE_SHIFT) << 2 | size as u64
}

impl PendingPages {
    /// When the page of a line is translated for who is ready at a time, where the first-level TLB has it.
    #[inline(always)]
    fn arrival(&self, ready: Cycles, line: u64) -> Cycles {
        if self.under_way.last() <= ready { ready } else { self.still_under_way(ready, line) }
    }

    #[inline]
    fn still_under_way(&self, ready: Cycles, line: u64) -> Cycles {
        let of_size = |size: usize| self.under_way.arrival(page_number(line, size));
        (0..self.sizes.len()).fold(ready, |ready, size| if self.sizes[size] { ready.max(of_size(size)) } else { ready })
    }

    /// When all are translated.
    #[inline]
    fn last(&self) -> Cycles {
        self.under_way.last()
    }

    /// Notes that a page is translated from a time on.
    #[inline]
    fn note(&mut self, page: Translation, there: Cycles) {
        let size = page.size_index();
        self.sizes[size] = true;
        self.under_way.note(page_number(page.page().line().0, size), there);
    }
}

/// See the module's text. Its times are those of the CPU's clock, which shows when instructions enter the window.
#[derive(Clone, Debug)]
pub struct Window(Box<WindowState>);

#[derive(Clone, Debug)]
struct WindowState {
    pace: InOrder,
    config: WindowConfig,
    beside: SmtThread,
    progress: WindowProgress,
    entered: RecentAccesses,
    walkers: Pool,
    lines: Lines,
    pages: PendingPages,
    /// None if branches are always predicted.
    predictor: Option<Box<Tage>>,
    /// The instruction of the access before.
    last_pc: u64,
    current: Current,
}

impl WindowState {
    /// How long so many instructions after the moment enter.
    #[inline]
    fn enters(&self, at: CoreTime, instructions: u64) -> Cycles {
        self.pace.base_cycles(at.instructions + instructions) - self.pace.base_cycles(at.instructions)
    }

    /// When so many instructions after the moment have entered the window.
    #[inline]
    fn after(&self, at: CoreTime, instructions: u64) -> Cycles {
        at.now + self.enters(at, instructions)
    }

    /// Lets entries go so that the window has room for all up to `entry`: how long that stalls, where the last `gap`
    /// instructions enter after the moment.
    #[inline(always)]
    fn make_room(&mut self, entry: u64, gap: u64, at: CoreTime) -> Stall {
        if entry < self.progress.leaves_for { Stall::default() } else { self.let_go(entry, gap, at) }
    }

    /// [`Self::make_room`] where the oldest has to go. What is complete goes with it, so that this is seldom asked.
    #[inline(never)]
    fn let_go(&mut self, entry: u64, gap: u64, at: CoreTime) -> Stall {
        let (before, window) = (self.progress.entries - gap.max(1), self.entered.room.window);
        let mut stall = Stall::default();
        while let Some(oldest) = self.entered.let_go(&mut self.progress, at.now, entry) {
            let ahead = (oldest.entry + window - 1).saturating_sub(before).min(gap);
            stall += wait(self.after(at, ahead) + stall.sum(), oldest.times);
        }
        stall
    }

    /// How many of the branches before the access are mispredicted.
    fn predict(&mut self, met: &IncomingAccess) -> u64 {
        if met.branches.count() == 0 {
            self.last_pc = met.access.pc;
            return 0;
        }
        self.predict_one(met)
    }

    #[inline(never)]
    fn predict_one(&mut self, met: &IncomingAccess) -> u64 {
        let mut missed = [0; ROW];
        self.predict_all(std::slice::from_ref(met.access), &[met.branches], &mut missed);
        missed[0].into()
    }

    /// The same of each access of a row.
    #[inline(always)]
    fn predict_all(&mut self, accesses: &[Access], branches: &[Branches], missed: &mut [u8; ROW]) {
        let before = |number: u8| number.checked_sub(1).map_or(self.last_pc, |before| accesses[usize::from(before)].pc);
        // Those that branches stand before, found without a branch of the host's, which it could not foresee.
        let (mut found, mut count) = ([0; ROW], 0);
        for (number, branches) in (0_u8..).zip(branches.iter().take(accesses.len())) {
            found[count % ROW] = number;
            count += usize::from(branches.outcome_byte() > 0);
        }
        if let Some(predictor) = &mut self.predictor {
            let all = found[..count].iter().map(|&number| (before(number), branches[usize::from(number)], number));
            predictor.meet_all(all, missed);
        }
        self.last_pc = accesses.last().map_or(self.last_pc, |last| last.pc);
    }

    /// How long instructions from the moment on wait for branches before them, so many of which are mispredicted.
    fn mispredict(&self, branches: Branches, missed: u64, at: CoreTime) -> Stall {
        if missed == 0 {
            return Stall::default();
        }
        let condition = branches.producer().unwrap_or(0);
        let mut stall = self.entered.wait_for_chain(&self.progress, at.now, condition);
        stall.branch += Cycles(missed * u64::from(self.config.mispredict_penalty));
        stall
    }

    /// The program comes to an access.
    fn come_to(&mut self, access: &Access, at: CoreTime) {
        let gap = u64::from(access.gap);
        let (loads, stores) = (is_load(access), access.kind.writes());
        self.current = Current { gap, enters: self.enters(at, gap), loads, stores, ..Current::default() };
    }

    /// The program comes to an access for the first time, behind so many mispredicted branches: how long it has to wait
    /// before it is in the window.
    fn come_in(&mut self, met: &IncomingAccess, missed: u64, at: CoreTime) -> Stall {
        self.progress = self.progress.with(met.access);
        self.come_to(met.access, at);
        let stall = self.hindered(met.branches, missed, at);
        self.issue(met, at.now + stall.sum());
        stall
    }

    /// How long the current access has to wait before it is in the window.
    fn hindered(&mut self, branches: Branches, missed: u64, at: CoreTime) -> Stall {
        let behind = self.mispredict(branches, missed, at);
        let at = CoreTime { now: at.now + behind.sum(), ..at };
        let Current { gap, enters, loads, stores, .. } = self.current;
        let mut stall = self.make_room(self.progress.entries, gap, at);
        let begins = self.after(at, gap.saturating_sub(1));
        if loads && self.progress.is_full_of_loads() {
            stall += wait(begins + stall.sum(), self.entered.load_before(&mut self.progress, at.now));
        }
        if stores && self.progress.is_full_of_stores() {
            stall += wait(begins + stall.sum(), self.entered.store_before(&mut self.progress, at.now));
        }
        if self.beside.shares_core() {
            stall.sibling = self.beside.enter(at.now + stall.sum(), enters, at.now);
        }
        stall += behind;
        stall
    }

    /// Whether each access waits for the load before, as nobody tells.
    #[inline(always)]
    fn is_serial(&self, tells: bool) -> bool {
        !tells && self.config.unknown_dependencies == UnknownDependencies::Serial
    }

    /// The current access enters from `now` on, and issues when its producer is complete.
    fn issue(&mut self, met: &IncomingAccess, now: Cycles) {
        self.current.distance = self.progress.distance(met.access, self.is_serial(met.tells));
        let complete = self.entered.complete(&self.progress, self.current.distance);
        self.current.ready = (now + self.current.enters).max(complete);
    }

    /// See [`Timing::data_stall`].
    fn data_stall(&mut self, data: Data, at: CoreTime) -> Stall {
        self.access(data, at);
        self.make_room(self.progress.entries + 1, self.current.gap, at)
    }

    /// It asks for its data, or for those of its next line.
    fn access(&mut self, data: Data, at: CoreTime) {
        let Current { loads, stores, distance, .. } = self.current;
        let entered = at.now + self.current.enters;
        let mut ready = self.current.ready.max(entered);
        let begin = if self.current.is_translated { self.current.begin } else { ready };
        if !self.current.is_translated {
            ready = self.pages.arrival(ready, data.line);
        }
        let Times { complete: there, translation } = self.lines.get(&mut self.beside, (begin, ready), data, at.now);
        let is_waited_for = loads || self.entered.waits_for_stores();
        let (complete, translation) = if is_waited_for { (there, translation) } else { (ready, ready - begin) };
        self.current.translation += translation;
        let times = Times { complete, translation: self.current.translation };
        self.entered.note(&mut self.progress, loads, times, entered, distance);
        if stores {
            self.entered.note_store(&self.progress, there);
        }
        (self.current.ready, self.current.is_translated) = (there, false);
    }
}
