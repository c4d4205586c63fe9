//! An out-of-order core with a reorder window: misses overlap as far as dependencies, the window and its buffers allow.
//!
//! Models: instructions enter a reorder window in program order, at a fixed rate, and leave it in order once they are
//! complete. An access issues when it is in the window and the load that its address depends on has its data. Its
//! translation occupies a page walker if it needs a walk; its line occupies a fill buffer of the first-level cache if
//! it is not there. An access to a line in flight waits for that line, and an access to a page whose translation is in
//! flight waits for that. Walkers and buffers are occupied only from the time when they are needed, so an access that
//! waits for its data leaves them to others until then (`pool.rs`). So walks and misses overlap. A store leaves the
//! window once it is translated, and enters a store queue that drains in order as the lines arrive. Kernel work starts
//! when the window is empty.
//! Source: the first-order model of Karkhanis and Smith, "A First-Order Superscalar Processor Model" (ISCA 2004),
//! applied to each access instead of each miss event: as long as the window is not full, instructions continue at their
//! rate; once it is full, they wait for the oldest. MSHRs after Kroft, "Lockup-Free Instruction Fetch/Prefetch Cache
//! Organization" (ISCA 1981). Hardware threads of a core that have something to run divide the window and the queues
//! equally; they compete for fill buffers, walkers, and the issue width ([`super::common`]). A stall for the oldest
//! instruction counts as translation to the extent that it would be shorter if its translation took no time, and
//! otherwise as data. After a mispredicted branch no instruction enters until the load that its condition depends on is
//! complete and `mispredict_penalty` has passed.
//! Parameters: `cycles_per_instruction` (without stalls), `window`, `load_queue`, `store_queue` (entries; 0: the core
//! waits for stores as for loads), `fill_buffers`, `page_walkers`, `unknown_dependencies`, `branch_predictor`,
//! `mispredict_penalty`, `kernel_overlap` (`kernel.rs`). The defaults are an Intel Skylake's: 224 entries of the
//! reorder buffer, 72 loads, 56 stores (WikiChip, "Skylake (client)"; Intel, Optimization Reference Manual 248966,
//! chapter 2). 12 fill buffers and two parallel page walks are estimates: Intel publishes 10 fill buffers for older
//! cores, and later cores make two walks in parallel. 16 cycles per misprediction are also an estimate (Fog, "The
//! microarchitecture of Intel, AMD and VIA CPUs": 15 to 20).
//! Deviations: all instructions except loads are complete when they enter, indirect branches are predicted correctly,
//! and nothing executes on a wrong path. Accesses find the lines in the caches that they would find in program order.
//! So do walks, which do not wait for lines that other walks have in flight. A load that reads the data of a waiting
//! store waits for the line. An instruction's second access has a window entry of its own; the lines of an access that
//! crosses a line boundary are accessed one after the other. Instructions are fetched in order: the core waits for
//! their translation. A page fault empties the window, even if a fault engine handles it. Each hardware thread has its
//! own predictor; kernel work uses none of the issue width. All cores divide resources like Intel's.

mod config;
mod entered;
pub mod kernel;
mod lines;
mod row;
mod timing;

use config::{UnknownDependencies, WindowConfig};
use entered::{RecentAccesses, Times, WindowProgress, is_load, wait};
use kernel::KernelWindow;
use lines::Lines;
use pagelab_trace::{Access, Branches};

use super::branch_unit::BranchUnit;
use super::common::SmtThread;
use super::in_flight::InFlight;
use super::in_order::RetireRate;
use super::pool::Pool;
use super::{CoreTime, Data, IncomingAccess, Stall};
use pagelab_base::addr::{LINE_SHIFT, PageSize};
use pagelab_base::cycles::Cycles;
use pagelab_base::translation::Translation;

/// The access in progress.
#[derive(Clone, Copy, Debug, Default)]
struct CurrentAccess {
    /// Its instructions, including its own.
    gap: u64,
    /// Time in which these instructions enter the window.
    enters: Cycles,
    loads: bool,
    stores: bool,
    /// Distance, in accesses, to the access that it waits for; 0 for none.
    distance: u64,
    /// When it can continue with its next part: translation, then data.
    ready: Cycles,
    /// Whether a translation has been made and its data not yet accessed; `begin` is the translation's start.
    is_translated: bool,
    begin: Cycles,
    /// Share of translation for its lines so far; see [`Times`].
    translation: Cycles,
}

/// Translations in flight to the first-level TLB.
#[derive(Clone, Debug, Default)]
struct PendingPages {
    /// By [`page_number`].
    in_flight: InFlight,
    /// For each page size: whether there were pages of this size.
    sizes: [bool; PageSize::ALL.len()],
}

/// A number for the page of this size that contains a line; unique among pages of all sizes.
fn page_number(line: u64, size: usize) -> u64 {
    line >> (PageSize::ALL[size].shift() - LINE_SHIFT) << 2 | size as u64
}

impl PendingPages {
    /// When the page of a line is translated for an access ready at `ready`, if the first-level TLB contains the page.
    #[inline(always)]
    fn arrival(&self, ready: Cycles, line: u64) -> Cycles {
        if self.in_flight.last() <= ready { ready } else { self.arrival_in_flight(ready, line) }
    }

    #[inline]
    fn arrival_in_flight(&self, ready: Cycles, line: u64) -> Cycles {
        let of_size = |size: usize| self.in_flight.arrival(page_number(line, size));
        (0..self.sizes.len()).fold(ready, |ready, size| if self.sizes[size] { ready.max(of_size(size)) } else { ready })
    }

    /// When all are translated.
    #[inline]
    fn last(&self) -> Cycles {
        self.in_flight.last()
    }

    /// Records that the translation of a page arrives at `arrival`.
    #[inline]
    fn note(&mut self, page: Translation, arrival: Cycles) {
        let size = page.size_index();
        self.sizes[size] = true;
        self.in_flight.note(page_number(page.page().line().0, size), arrival);
    }
}

/// The window core. Its times are on the CPU's clock, which shows when instructions enter the window.
#[derive(Clone, Debug)]
pub struct Window(Box<WindowState>);

#[derive(Clone, Debug)]
struct WindowState {
    retire_rate: RetireRate,
    config: WindowConfig,
    smt_thread: SmtThread,
    progress: WindowProgress,
    entered: RecentAccesses,
    walkers: Pool,
    lines: Lines,
    pages: PendingPages,
    /// None if branches are always predicted correctly.
    branches: Option<Box<BranchUnit>>,
    /// Present if references of kernel code overlap.
    kernel: Option<Box<KernelWindow>>,
    current: CurrentAccess,
}

impl WindowState {
    /// Time in which the next `instructions` enter the window.
    #[inline]
    fn enters(&self, at: CoreTime, instructions: u64) -> Cycles {
        self.retire_rate.base_cycles(at.instructions + instructions) - self.retire_rate.base_cycles(at.instructions)
    }

    /// When the next `instructions` have entered the window.
    #[inline]
    fn after(&self, at: CoreTime, instructions: u64) -> Cycles {
        at.now + self.enters(at, instructions)
    }

    /// Retires accesses until the window has room for all instructions up to `entry`, of which the last `gap` enter
    /// after `at`. Returns the stall.
    #[inline(always)]
    fn make_room(&mut self, entry: u64, gap: u64, at: CoreTime) -> Stall {
        if entry < self.progress.leaves_for { Stall::default() } else { self.retire_oldest(entry, gap, at) }
    }

    /// [`Self::make_room`] if the oldest access must leave. All complete accesses leave with it, so this is called
    /// rarely.
    #[inline(never)]
    fn retire_oldest(&mut self, entry: u64, gap: u64, at: CoreTime) -> Stall {
        let (before, window) = (self.progress.entries - gap.max(1), self.entered.room.window);
        let mut stall = Stall::default();
        while let Some(oldest) = self.entered.retire_oldest(&mut self.progress, at.now, entry) {
            let ahead = (oldest.entry + window - 1).saturating_sub(before).min(gap);
            stall += wait(self.after(at, ahead) + stall.sum(), oldest.times);
        }
        stall
    }

    /// Stall of the following instructions for the branches before them, `missed` of which are mispredicted.
    fn mispredict(&self, branches: Branches, missed: u64, at: CoreTime) -> Stall {
        if missed == 0 {
            return Stall::default();
        }
        let condition = branches.producer().unwrap_or(0);
        let mut stall = self.entered.wait_for_chain(&self.progress, at.now, condition);
        stall.branch += self.branches.as_ref().map_or(Cycles::ZERO, |unit| unit.penalty(missed));
        stall
    }

    /// Makes `access` the current access.
    fn set_access(&mut self, access: &Access, at: CoreTime) {
        let gap = u64::from(access.gap);
        let (loads, stores) = (is_load(access), access.kind.writes());
        self.current = CurrentAccess { gap, enters: self.enters(at, gap), loads, stores, ..CurrentAccess::default() };
    }

    /// Starts a new access after `missed` mispredicted branches. Returns the stall until it is in the window.
    fn enter_window(&mut self, incoming: &IncomingAccess, missed: u64, at: CoreTime) -> Stall {
        self.progress = self.progress.with(incoming.access);
        self.set_access(incoming.access, at);
        let stall = self.stall_before_entry(incoming.branches, missed, at);
        self.issue(incoming, at.now + stall.sum());
        stall
    }

    /// Stall until the current access is in the window.
    fn stall_before_entry(&mut self, branches: Branches, missed: u64, at: CoreTime) -> Stall {
        let behind = self.mispredict(branches, missed, at);
        let at = CoreTime { now: at.now + behind.sum(), ..at };
        let CurrentAccess { gap, enters, loads, stores, .. } = self.current;
        let mut stall = self.make_room(self.progress.entries, gap, at);
        let begins = self.after(at, gap.saturating_sub(1));
        if loads && self.progress.is_full_of_loads() {
            stall += wait(begins + stall.sum(), self.entered.load_before(&mut self.progress, at.now));
        }
        if stores && self.progress.is_full_of_stores() {
            stall += wait(begins + stall.sum(), self.entered.store_before(&mut self.progress, at.now));
        }
        if self.smt_thread.shares_core() {
            stall.sibling = self.smt_thread.enter(at.now + stall.sum(), enters, at.now);
        }
        stall += behind;
        stall
    }

    /// Whether each access waits for the previous load, because the source records no dependencies.
    #[inline(always)]
    fn is_serial(&self, has_dependencies: bool) -> bool {
        !has_dependencies && self.config.unknown_dependencies == UnknownDependencies::Serial
    }

    /// The current access enters from `now` on and issues when the load that it depends on is complete.
    fn issue(&mut self, incoming: &IncomingAccess, now: Cycles) {
        self.current.distance = self.progress.distance(incoming.access, self.is_serial(incoming.has_dependencies));
        let complete = self.entered.complete(&self.progress, self.current.distance);
        self.current.ready = (now + self.current.enters).max(complete);
    }

    /// See [`Timing::data_stall`].
    fn data_stall(&mut self, data: Data, at: CoreTime) -> Stall {
        self.access(data, at);
        self.make_room(self.progress.entries + 1, self.current.gap, at)
    }

    /// Accesses the data of the current access, or those of its next line.
    fn access(&mut self, data: Data, at: CoreTime) {
        self.access_until(data, Cycles::ZERO, at);
    }

    /// [`Self::access`]; the access does not leave the window before `verified`. What depends on it does not wait.
    #[inline(always)]
    fn access_until(&mut self, data: Data, verified: Cycles, at: CoreTime) {
        let CurrentAccess { loads, stores, distance, .. } = self.current;
        let entered = at.now + self.current.enters;
        let mut ready = self.current.ready.max(entered);
        let begin = if self.current.is_translated { self.current.begin } else { ready };
        if !self.current.is_translated {
            ready = self.pages.arrival(ready, data.line);
        }
        let Times { complete: arrival, translation } =
            self.lines.get(&mut self.smt_thread, (begin, ready), data, at.now);
        let is_waited_for = loads || self.entered.waits_for_stores();
        let (complete, translation) = if is_waited_for { (arrival, translation) } else { (ready, ready - begin) };
        self.current.translation += translation;
        let times = Times { complete, translation: self.current.translation };
        let unverified = verified.saturating_sub(complete);
        let leaves = Times { complete: complete + unverified, translation: times.translation + unverified };
        self.entered.note(&mut self.progress, loads, (times, leaves), entered, distance);
        if stores {
            self.entered.note_store(&self.progress, arrival);
        }
        (self.current.ready, self.current.is_translated) = (arrival, false);
    }
}
