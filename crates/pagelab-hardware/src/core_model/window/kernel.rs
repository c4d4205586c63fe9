//! Kernel code in the window: its references overlap as a program's do.
//!
//! Models: instructions of a handler enter the window while its references are outstanding, until one of them is
//! complete that is as many instructions older as the window has entries. A load issues when the reference that its
//! address comes from is complete ([`Ref::independent`](pagelab_base::step::Ref::independent) says that none is). A
//! store leaves the window once its address is known, and then waits in the store queue until its line has arrived and
//! all stores before it are written. References that miss the first-level cache occupy a fill buffer. Locked operations
//! wait for all references before them, and later ones for them. The window and the queues are empty when a handler
//! begins and when it ends, blocks, or faults itself: the return (IRET) serialises.
//! Source: the sources of [`super`]; Intel, "Software Developer's Manual" 3A, 9.3 (serialising instructions) and 9.2.3
//! (locked operations).
//! Parameters: `machine.core.kernel_overlap`; the others of the window core.
//! Stats: none of its own; a stage has the cycles that the handler waits in it, also for references of stages before.
//! Deviations: a write is a store; only references whose addresses come from the word that it writes wait for its line.
//! Operations on whole pages, fetches of instructions and references of hardware engines are waited for. Translations
//! of the direct map are a part of the references' latencies, and occupy no page walker. Loads do not wait for the data
//! of stores.

use super::config::WindowConfig;
use crate::core_model::pool::Pool;
use pagelab_base::cycles::Cycles;
use std::collections::VecDeque;

/// What a reference of kernel code is to the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelRef {
    /// Reads a word.
    Load,
    /// Writes a word.
    Store,
    /// A locked read-modify-write.
    Locked,
    /// Everything that the window waits for before it continues.
    Waited,
}

/// What the address of a reference comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressOf {
    /// From the reference before it.
    Previous,
    /// From that from which the address of the reference before it comes.
    Same,
    /// From none.
    Known,
}

/// An entry of the window.
#[derive(Clone, Copy, Debug)]
struct Entry {
    number: u64,
    /// When it can leave.
    complete: Cycles,
    loads: bool,
}

/// The window of a CPU while kernel code runs.
#[derive(Clone, Debug)]
pub struct KernelWindow {
    window: u64,
    load_queue: usize,
    store_queue: usize,
    l1_latency: Cycles,
    /// Instructions that have entered.
    entered: u64,
    entries: VecDeque<Entry>,
    /// Number of `entries` that load.
    loads: usize,
    /// When the stores of the queue are written, in order.
    stores: VecDeque<Cycles>,
    lines: Pool,
    /// When the address of the last reference was known.
    before: Cycles,
    /// When the data of the last reference are there, and of those with the same address dependency.
    last: Cycles,
}

impl KernelWindow {
    pub(super) fn new(config: &WindowConfig, l1_latency: Cycles) -> Self {
        let (load_queue, store_queue) = (config.load_queue as usize, config.store_queue as usize);
        Self {
            window: config.window.into(),
            load_queue,
            store_queue,
            l1_latency,
            entered: 0,
            entries: VecDeque::with_capacity(config.window as usize + 1),
            loads: 0,
            stores: VecDeque::with_capacity(store_queue + 1),
            lines: Pool::new(config.fill_buffers),
            before: Cycles::ZERO,
            last: Cycles::ZERO,
        }
    }

    /// Instructions enter from `now` on, for `cycles`. Returns how long they wait besides.
    pub fn enter(&mut self, instructions: u64, cycles: Cycles, now: Cycles) -> Cycles {
        let before = self.entered;
        self.entered += instructions;
        let mut stall = Cycles::ZERO;
        while let Some(oldest) = self.entries.front().filter(|oldest| oldest.number + self.window <= self.entered) {
            let ahead = (oldest.number + self.window).saturating_sub(before);
            let enters = now + Cycles(cycles.0 * ahead / instructions.max(1)) + stall;
            stall += oldest.complete.saturating_sub(enters);
            self.retire();
        }
        stall
    }

    /// Makes a reference at `now` that takes `latency`. Returns how long the code waits.
    pub fn refer(&mut self, kind: KernelRef, address: AddressOf, latency: Cycles, now: Cycles) -> Cycles {
        match kind {
            KernelRef::Waited | KernelRef::Locked => {
                let wait = if kind == KernelRef::Locked { self.drain(now) } else { Cycles::ZERO };
                (self.before, self.last) = (now, now + wait + latency);
                return wait + latency;
            }
            KernelRef::Load | KernelRef::Store => {}
        }
        let stall = self.enter(1, Cycles::ZERO, now);
        let stall = stall + self.make_room(kind, now + stall);
        match address {
            AddressOf::Previous => (self.before, self.last) = (self.last, Cycles::ZERO),
            AddressOf::Same => {}
            AddressOf::Known => (self.before, self.last) = (Cycles::ZERO, Cycles::ZERO),
        }
        let issue = self.before.max(now + stall);
        let mut arrives = issue + latency;
        if latency > self.l1_latency {
            let free = self.lines.first(issue);
            arrives = free.begin + latency;
            self.lines.occupy(free, arrives);
        }
        let loads = kind == KernelRef::Load;
        let posted = !loads && self.store_queue > 0;
        if posted {
            let written = self.stores.back().map_or(arrives, |&last| last.max(arrives));
            self.stores.push_back(written);
        }
        let complete = if posted { issue } else { arrives };
        self.last = self.last.max(arrives);
        self.loads += usize::from(loads);
        self.entries.push_back(Entry { number: self.entered, complete, loads });
        stall
    }

    /// Waits until a queue has room for a reference.
    fn make_room(&mut self, kind: KernelRef, now: Cycles) -> Cycles {
        let mut stall = Cycles::ZERO;
        while self.entries.front().is_some_and(|oldest| oldest.complete <= now) {
            self.retire();
        }
        while self.stores.front().is_some_and(|&written| written <= now) {
            self.stores.pop_front();
        }
        if kind == KernelRef::Load {
            while self.loads >= self.load_queue {
                let oldest = self.entries.front().map_or(now, |oldest| oldest.complete);
                stall += oldest.saturating_sub(now + stall);
                self.retire();
            }
        } else if self.store_queue > 0 && self.stores.len() >= self.store_queue {
            let oldest = self.stores.pop_front().unwrap_or(now);
            stall += oldest.saturating_sub(now + stall);
        }
        stall
    }

    /// The oldest reference leaves the window.
    fn retire(&mut self) {
        if let Some(oldest) = self.entries.pop_front() {
            self.loads -= usize::from(oldest.loads);
        }
    }

    /// How long the code waits at `now` until all references are complete and all stores are written.
    pub fn drain(&mut self, now: Cycles) -> Cycles {
        let complete = self.entries.iter().map(|entry| entry.complete).chain(self.stores.back().copied()).max();
        self.entries.clear();
        self.stores.clear();
        (self.loads, self.before, self.last) = (0, Cycles::ZERO, Cycles::ZERO);
        complete.map_or(Cycles::ZERO, |complete| complete.saturating_sub(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(change: impl Fn(&mut WindowConfig)) -> KernelWindow {
        let mut config = WindowConfig::samples()[0];
        change(&mut config);
        KernelWindow::new(&config, Cycles(4))
    }

    /// Cycles of references that begin at 0.
    fn all(window: &mut KernelWindow, refs: &[(KernelRef, AddressOf, u64)]) -> u64 {
        let mut now = Cycles::ZERO;
        for &(kind, address, latency) in refs {
            now += window.refer(kind, address, Cycles(latency), now);
        }
        (now + window.drain(now)).0
    }

    #[test]
    fn independent_loads_overlap_and_chains_do_not() {
        use AddressOf::{Known, Previous, Same};
        use KernelRef::Load;
        let mut one = window(|_| {});
        assert_eq!(all(&mut one, &[(Load, Known, 100); 8]), 100);
        assert_eq!(all(&mut one, &[(Load, Previous, 100); 8]), 800);
        assert_eq!(
            all(&mut one, &[(Load, Known, 100), (Load, Previous, 50), (Load, Same, 70), (Load, Previous, 9)]),
            179
        );
        assert_eq!(all(&mut window(|config| config.fill_buffers = 2), &[(Load, Known, 100); 8]), 400);
        assert_eq!(all(&mut window(|config| config.load_queue = 4), &[(Load, Known, 100); 8]), 200);
        assert_eq!(all(&mut window(|config| config.window = 1), &[(Load, Known, 100); 8]), 800);
    }

    #[test]
    fn stores_are_waited_for_by_locked_operations_and_at_the_end() {
        use AddressOf::{Known, Previous};
        use KernelRef::{Load, Locked, Store, Waited};
        let mut one = window(|_| {});
        // The load's address is in the line that the store writes, too.
        assert_eq!(one.refer(Store, Known, Cycles(100), Cycles::ZERO), Cycles::ZERO);
        assert_eq!(one.refer(Load, Previous, Cycles(30), Cycles(10)), Cycles::ZERO);
        assert_eq!(one.refer(Locked, Known, Cycles(20), Cycles(10)), Cycles(120 + 20));
        assert_eq!(one.drain(Cycles(150)), Cycles::ZERO);
        assert_eq!(all(&mut one, &[(Store, Known, 100), (Waited, Known, 60)]), 100);
        assert_eq!(all(&mut window(|config| config.store_queue = 1), &[(Store, Known, 100); 3]), 200 + 100);
        assert_eq!(
            all(&mut window(|config| (config.store_queue, config.window) = (0, 1)), &[(Store, Known, 100); 3]),
            300
        );
    }

    #[test]
    fn instructions_enter_until_the_window_is_full() {
        let mut one = window(|config| config.window = 100);
        one.refer(KernelRef::Load, AddressOf::Known, Cycles(300), Cycles::ZERO);
        assert_eq!(one.enter(50, Cycles(50), Cycles::ZERO), Cycles::ZERO);
        // The hundredth instruction behind the load enters at 100, unless it waits.
        assert_eq!(one.enter(150, Cycles(150), Cycles(50)), Cycles(200));
        assert_eq!(one.drain(Cycles(400)), Cycles::ZERO);
    }
}
