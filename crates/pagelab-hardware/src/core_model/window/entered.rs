//! Accesses that have entered the window: their number, and the data that later accesses need.

use pagelab_trace::{Access, AccessKind};

use super::config::WindowConfig;
use crate::core_model::Stall;
use crate::core_model::ring::Ring;
use pagelab_base::cycles::Cycles;

/// Number of completion times that are kept for dependent accesses: [`pagelab_trace::Maker::REACH`] plus 1.
const REACH: usize = 256;

/// Completion of an access.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    pub complete: Cycles,
    /// How much earlier it would be complete if its own translation took no time.
    pub translation: Cycles,
}

/// An access in the window that later instructions may have to wait for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InWindow {
    /// Its entry, counted from the start of the run.
    pub entry: u64,
    /// Number of the first load that leaves the window no earlier than this access: itself or a later one.
    load: u64,
    pub times: Times,
}

/// Data about a recent access that a misprediction needs, in one word.
#[derive(Clone, Copy, Debug, Default)]
struct Chained(u64);

impl Chained {
    const DISTANCE: u32 = REACH.ilog2();

    #[inline(always)]
    fn new(translation: Cycles, distance: u64) -> Self {
        Self(translation.0 << Self::DISTANCE | distance)
    }

    /// See [`Times`].
    fn translation(self) -> Cycles {
        Cycles(self.0 >> Self::DISTANCE)
    }

    /// Distance, in accesses, to the access that it waited for; 0 for none.
    fn distance(self) -> u64 {
        self.0 % REACH as u64
    }
}

/// A thread's share of the resources that its core divides: entries of the window and of the queues.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadShare {
    pub window: u64,
    loads: u64,
    stores: u64,
}

impl ThreadShare {
    /// The share if `threads` threads have something to run.
    pub fn new(config: &WindowConfig, threads: u32) -> Self {
        let part = |whole: u32| u64::from((whole / threads).max(1));
        let stores = if config.store_queue > 0 { part(config.store_queue) } else { 0 };
        Self { window: part(config.window), loads: part(config.load_queue), stores }
    }
}

/// Counters of the program's accesses since the start, and limits derived from them.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowProgress {
    /// Window entries used.
    pub entries: u64,
    /// Number of the last access, starting at [`REACH`]; below, the numbers of loads and stores among them.
    accesses: u64,
    loads: u64,
    stores: u64,
    /// Number of the last load; 0 for none.
    last_load: u64,
    /// When everything that has entered is complete.
    left: Cycles,
    /// From this window entry on, the oldest access in the window must have left; below, the same as a number of loads.
    /// `u64::MAX` if the window is empty.
    pub leaves_for: u64,
    loads_for: u64,
    /// From this number of stores on, the oldest store that is not known to be written must be written. Initially a
    /// value that forces the check.
    stores_for: u64,
}

impl WindowProgress {
    pub const NONE: Self = Self {
        entries: 0,
        accesses: REACH as u64,
        loads: 0,
        stores: 0,
        last_load: 0,
        left: Cycles::ZERO,
        leaves_for: u64::MAX,
        loads_for: u64::MAX,
        stores_for: 0,
    };

    /// The counters after a further access.
    #[inline(always)]
    pub fn with(self, access: &Access) -> Self {
        Self {
            accesses: self.accesses + 1,
            entries: self.entries + u64::from(access.gap).max(1),
            loads: self.loads + u64::from(is_load(access)),
            stores: self.stores + u64::from(access.kind.writes()),
            ..self
        }
    }

    /// Whether the last access, which is of this kind, may have to wait before it enters the window, or another access
    /// must leave first.
    #[inline(always)]
    pub fn may_stall(&self, is_load: bool, is_store: bool) -> bool {
        let full_of_loads = is_load & self.is_full_of_loads();
        let full_of_stores = is_store & self.is_full_of_stores();
        (self.entries + 1 >= self.leaves_for) | full_of_loads | full_of_stores
    }

    /// Whether the last access, a load, may need another load to leave first.
    #[inline(always)]
    pub fn is_full_of_loads(&self) -> bool {
        self.loads >= self.loads_for
    }

    /// [`Self::is_full_of_loads`] for a store.
    #[inline(always)]
    pub fn is_full_of_stores(&self) -> bool {
        self.stores >= self.stores_for
    }

    /// Distance to the access that the last access waits for; with `is_serial` and no recorded dependency, distance to
    /// the previous load. 0 for none.
    #[inline(always)]
    pub fn distance(&self, access: &Access, is_serial: bool) -> u64 {
        match access.maker.producer() {
            Some(distance) => distance,
            None if is_serial && self.accesses - self.last_load < REACH as u64 => self.accesses - self.last_load,
            None => 0,
        }
    }
}

/// Whether an access occupies the load queue.
#[inline(always)]
pub(super) fn is_load(access: &Access) -> bool {
    matches!(access.kind, AccessKind::Load | AccessKind::Modify)
}

/// Index of an access's data, by its number.
#[inline(always)]
fn slot(number: u64) -> usize {
    (number % REACH as u64) as usize
}

/// Data about recent accesses.
#[derive(Clone, Debug)]
pub(super) struct RecentAccesses {
    pub room: ThreadShare,
    in_window: Ring<InWindow>,
    /// When each store is written, by its number modulo a power of two.
    stores: Box<[Cycles]>,
    /// Number of stores that are known to be written.
    written: u64,
    /// When each access is complete, by its number; below, the rest of its data.
    complete: [Cycles; REACH],
    chained: [Chained; REACH],
}

impl RecentAccesses {
    /// No accesses yet.
    pub fn new(config: &WindowConfig) -> Self {
        Self {
            room: ThreadShare::new(config, 1),
            in_window: Ring::new(config.window as usize + 1),
            stores: vec![Cycles::ZERO; (config.store_queue as usize + 1).next_power_of_two()].into(),
            written: 0,
            complete: [Cycles::ZERO; REACH],
            chained: [Chained::default(); REACH],
        }
    }

    /// Changes the thread's share.
    pub fn divide(&mut self, progress: &mut WindowProgress, room: ThreadShare) {
        self.room = room;
        self.forget(progress, Cycles::ZERO);
        self.forget_stores(progress, Cycles::ZERO);
    }

    /// Whether the core waits for stores as for loads.
    #[inline(always)]
    pub fn waits_for_stores(&self) -> bool {
        self.room.stores == 0
    }

    /// Drops accesses that are complete at `now`.
    #[inline]
    fn forget(&mut self, progress: &mut WindowProgress, now: Cycles) {
        while let Some(oldest) = self.in_window.front() {
            if oldest.times.complete > now {
                progress.leaves_for = oldest.entry + self.room.window;
                progress.loads_for = oldest.load + self.room.loads;
                return;
            }
            self.in_window.pop_front();
        }
        (progress.leaves_for, progress.loads_for) = (u64::MAX, u64::MAX);
    }

    /// Removes and returns the oldest access that is incomplete at `now`, if instructions up to `entry` need its window
    /// entry.
    pub fn retire_oldest(&mut self, progress: &mut WindowProgress, now: Cycles, entry: u64) -> Option<InWindow> {
        self.forget(progress, now);
        if entry < progress.leaves_for { None } else { self.in_window.pop_front() }
    }

    /// Removes and returns the oldest access.
    pub fn take(&mut self, progress: &mut WindowProgress) -> Option<InWindow> {
        (progress.leaves_for, progress.loads_for) = (u64::MAX, u64::MAX);
        self.in_window.pop_front()
    }

    /// Completion of the load that must leave before the last load, which comes at `now`, can enter.
    pub fn load_before(&mut self, progress: &mut WindowProgress, now: Cycles) -> Times {
        self.forget(progress, now);
        let leave = |access: &InWindow| access.load + self.room.loads <= progress.loads;
        self.in_window.iter().take_while(leave).last().map_or(Times::default(), |access| access.times)
    }

    /// When the store is written that must be written before the last store, which comes at `now`, can enter.
    pub fn store_before(&mut self, progress: &mut WindowProgress, now: Cycles) -> Times {
        self.forget_stores(progress, now);
        let complete = if progress.stores < progress.stores_for {
            Cycles::ZERO
        } else {
            self.stores[self.place(progress.stores - self.room.stores)]
        };
        // Its translation was complete when it left the window.
        Times { complete, translation: Cycles::ZERO }
    }

    /// Drops stores that are written at `now`, except the last, which may not be recorded yet.
    fn forget_stores(&mut self, progress: &mut WindowProgress, now: Cycles) {
        while self.written + 1 < progress.stores && self.stores[self.place(self.written + 1)] <= now {
            self.written += 1;
        }
        progress.stores_for = if self.room.stores > 0 { self.written + 1 + self.room.stores } else { u64::MAX };
    }

    #[inline(always)]
    fn place(&self, store: u64) -> usize {
        store as usize & (self.stores.len() - 1)
    }

    /// Completion of the access at this distance from the last; 0 without one. There is no branch on the host, which
    /// could not predict it.
    #[inline(always)]
    pub fn complete(&self, progress: &WindowProgress, distance: u64) -> Cycles {
        let complete = self.complete[slot(progress.accesses - distance)];
        Cycles(complete.0 & u64::from(distance > 0).wrapping_neg())
    }

    /// Stall from `from` on for the access at this distance, which need not be the oldest, including the accesses that
    /// it waits for itself.
    pub fn wait_for_chain(&self, progress: &WindowProgress, from: Cycles, distance: u64) -> Stall {
        let (mut stall, mut distance) = (Stall::default(), distance);
        while self.complete(progress, distance) > from {
            let chained = self.chained[slot(progress.accesses - distance)];
            let further = distance + chained.distance();
            let is_known = further > distance && further < REACH as u64;
            let before = if is_known { further } else { 0 };
            let times = Times { complete: self.complete(progress, distance), translation: chained.translation() };
            stall += wait(from.max(self.complete(progress, before)), times);
            distance = before;
        }
        stall
    }

    /// Records the times of the last access, which entered at `came` and waited for the access at `distance`: when its
    /// data are there for others, and when it may leave the window.
    #[inline(always)]
    pub fn note(
        &mut self,
        progress: &mut WindowProgress,
        is_load: bool,
        (times, leaves): (Times, Times),
        came: Cycles,
        distance: u64,
    ) {
        let slot = slot(progress.accesses);
        self.complete[slot] = times.complete;
        self.chained[slot] = Chained::new(times.translation, distance);
        if is_load {
            progress.last_load = progress.accesses;
        }
        // An access that is complete before an older one cannot cause a stall: instructions wait for the older one.
        if leaves.complete > progress.left {
            progress.left = leaves.complete;
            if leaves.complete > came {
                let load = progress.loads + u64::from(!is_load);
                progress.leaves_for = progress.leaves_for.min(progress.entries + self.room.window);
                progress.loads_for = progress.loads_for.min(load + self.room.loads);
                self.in_window.push_back(InWindow { entry: progress.entries, load, times: leaves });
            }
        }
    }

    /// Records when the line of a store is written; the line arrives at `arrival`.
    #[inline(always)]
    pub fn note_store(&mut self, progress: &WindowProgress, arrival: Cycles) {
        // Stores are written in order, at most one per cycle.
        let last = self.stores[self.place(progress.stores - 1)] + Cycles(1);
        let place = self.place(progress.stores);
        self.stores[place] = arrival.max(progress.left).max(last);
    }
}

/// Divides a wait from `from` until `times.complete` into translation (as much as it would be shorter without the
/// translation) and data.
pub(super) fn wait(from: Cycles, times: Times) -> Stall {
    let whole = times.complete.saturating_sub(from);
    let translation = times.translation.min(whole);
    Stall { translation, data: whole - translation, ..Stall::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core_model::Core;
    use pagelab_trace::rng::Rng;

    /// A recorded access, and the time when all accesses up to it have left the window.
    struct LoggedAccess {
        entry: u64,
        left: Cycles,
    }

    #[test]
    fn a_full_window_waits_for_its_oldest_entry() {
        for (window, load_queue, store_queue) in [(8, 3, 2), (40, 5, 9), (300, 2, 1), (16, 64, 64)] {
            let config = WindowConfig { window, load_queue, store_queue, ..crate::core_model::Window::samples()[0] };
            let (mut recent, mut progress) = (RecentAccesses::new(&config), WindowProgress::NONE);
            let (mut all, mut loads, mut stores): (Vec<LoggedAccess>, Vec<Cycles>, Vec<Cycles>) = Default::default();
            let (mut draw, mut now) = (Rng::new(5, "entered"), Cycles::ZERO);
            for _ in 0..3000 {
                let kind = [AccessKind::Load, AccessKind::Store, AccessKind::Modify][draw.below(3) as usize];
                let access = Access { gap: draw.below(5) as u32, ..Access::new(kind, 0, 8) };
                progress = progress.with(&access);
                let (is_load, is_store) = (is_load(&access), kind.writes());
                // By definition: the last of those that entered this many entries, loads or stores earlier.
                let before = |all: &[Cycles], room: u32| all.len().checked_sub(room as usize).map(|at| all[at]);
                let outside = all.iter().rfind(|noted| noted.entry + u64::from(window) <= progress.entries);
                let wanted = [
                    outside.map(|noted| noted.left),
                    before(&loads, load_queue).filter(|_| is_load),
                    before(&stores, store_queue).filter(|_| is_store),
                ];
                let (mut found, entry) = ([Cycles::ZERO; 3], progress.entries);
                while let Some(oldest) = recent.retire_oldest(&mut progress, now, entry) {
                    found[0] = found[0].max(oldest.times.complete);
                }
                now = now.max(found[0]);
                if is_load && progress.is_full_of_loads() {
                    found[1] = recent.load_before(&mut progress, now).complete;
                }
                if is_store && progress.is_full_of_stores() {
                    found[2] = recent.store_before(&mut progress, now).complete;
                }
                let came = now;
                for (found, wanted) in found.into_iter().zip(wanted) {
                    let wanted = wanted.unwrap_or(Cycles::ZERO);
                    assert_eq!(found.max(now), wanted.max(now), "{window} {load_queue} {store_queue}");
                    now = now.max(wanted);
                }
                assert!(now == came || is_load || is_store);
                let latency = Cycles([1, 4, 4, 30, 90][draw.below(5) as usize]);
                // Stores leave after their translation.
                let leaves_after = if is_load { latency } else { Cycles(draw.below(8)) };
                let times = Times { complete: now + leaves_after, translation: Cycles::ZERO };
                recent.note(&mut progress, is_load, (times, times), now, 0);
                let left = all.last().map_or(Cycles::ZERO, |noted| noted.left).max(times.complete);
                all.push(LoggedAccess { entry: progress.entries, left });
                if is_load {
                    loads.push(left);
                }
                if is_store {
                    recent.note_store(&progress, now + latency);
                    let last = stores.last().copied().unwrap_or(Cycles::ZERO) + Cycles(1);
                    stores.push((now + latency).max(left).max(last));
                }
                now += Cycles(draw.below(3));
            }
            assert!(now > Cycles(3000), "there was something to wait for");
        }
    }
}
