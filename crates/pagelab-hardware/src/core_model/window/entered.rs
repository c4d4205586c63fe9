//! Accesses that have entered the window: how many, and what is kept of them for those behind.

use pagelab_trace::{Access, AccessKind};

use super::config::WindowConfig;
use crate::core_model::Stall;
use crate::core_model::ring::Ring;
use pagelab_base::cycles::Cycles;

/// Completion times that are kept for accesses that depend on them: as many as [`pagelab_trace::Maker::REACH`], and
/// one.
const REACH: usize = 256;

/// When an access is complete.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    pub complete: Cycles,
    /// How much earlier that were if its own translation took no time.
    pub translation: Cycles,
}

/// An access in the window that instructions behind it may have to wait for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InWindow {
    /// Its entry, counted from the start of the run.
    pub entry: u64,
    /// The first load that does not leave the window before it, be it itself or behind, by its number.
    load: u64,
    pub times: Times,
}

/// What a misprediction asks of one of the last accesses, in one word.
#[derive(Clone, Copy, Debug, Default)]
struct Chained(u64);

impl Chained {
    const DISTANCE: u32 = REACH.ilog2();

    #[inline(always)]
    fn new(translation: Cycles, distance: u64) -> Self {
        Self(translation.0 << Self::DISTANCE | distance)
    }

    /// As in [`Times`].
    fn translation(self) -> Cycles {
        Cycles(self.0 >> Self::DISTANCE)
    }

    /// How many accesses back that is that it waited for; 0 for none.
    fn distance(self) -> u64 {
        self.0 % REACH as u64
    }
}

/// What a thread has of what is divided among those of its core: entries of the window and of the queues.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub window: u64,
    loads: u64,
    stores: u64,
}

impl Room {
    /// Where so many threads have something to run.
    pub fn new(config: &WindowConfig, threads: u32) -> Self {
        let part = |whole: u32| u64::from((whole / threads).max(1));
        let stores = if config.store_queue > 0 { part(config.store_queue) } else { 0 };
        Self { window: part(config.window), loads: part(config.load_queue), stores }
    }
}

/// How far the program has come since the start.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowProgress {
    /// Entries of the window taken.
    pub entries: u64,
    /// The number of the last access, beyond the reach of the first; loads and stores among them.
    met: u64,
    loads: u64,
    stores: u64,
    /// The number of the last load; 0 for none.
    last_load: u64,
    /// When all that has entered is complete.
    left: Cycles,
    /// The entry that the oldest access in the window has to have left for, and the load that it has to have left for;
    /// beyond all if there is none.
    pub leaves_for: u64,
    loads_for: u64,
    /// The store that the oldest one has to be written for, of those that are not known to be; at first it is to be
    /// asked.
    stores_for: u64,
}

impl WindowProgress {
    pub const NONE: Self = Self {
        entries: 0,
        met: REACH as u64,
        loads: 0,
        stores: 0,
        last_load: 0,
        left: Cycles::ZERO,
        leaves_for: u64::MAX,
        loads_for: u64::MAX,
        stores_for: 0,
    };

    /// With an access that comes next.
    #[inline(always)]
    pub fn with(self, access: &Access) -> Self {
        Self {
            met: self.met + 1,
            entries: self.entries + u64::from(access.gap).max(1),
            loads: self.loads + u64::from(is_load(access)),
            stores: self.stores + u64::from(access.kind.writes()),
            ..self
        }
    }

    /// Whether the last access, which is one of these, may have to wait before it is in the window, or another has to
    /// leave for it.
    #[inline(always)]
    pub fn is_hindered(&self, is_load: bool, is_store: bool) -> bool {
        let full_of_loads = is_load & self.is_full_of_loads();
        let full_of_stores = is_store & self.is_full_of_stores();
        (self.entries + 1 >= self.leaves_for) | full_of_loads | full_of_stores
    }

    /// Whether the last access, a load, can perhaps only enter without another.
    #[inline(always)]
    pub fn is_full_of_loads(&self) -> bool {
        self.loads >= self.loads_for
    }

    /// The same of a store.
    #[inline(always)]
    pub fn is_full_of_stores(&self) -> bool {
        self.stores >= self.stores_for
    }

    /// How many accesses back that is that the last one waits for, or that the load before it is where each waits for
    /// that; 0 for none.
    #[inline(always)]
    pub fn distance(&self, access: &Access, is_serial: bool) -> u64 {
        match access.maker.producer() {
            Some(distance) => distance,
            None if is_serial && self.met - self.last_load < REACH as u64 => self.met - self.last_load,
            None => 0,
        }
    }
}

/// Whether an access waits in the load queue.
#[inline(always)]
pub(super) fn is_load(access: &Access) -> bool {
    matches!(access.kind, AccessKind::Load | AccessKind::Modify)
}

/// Where something is kept of an access, by its number.
#[inline(always)]
fn slot(number: u64) -> usize {
    (number % REACH as u64) as usize
}

/// What is kept of them.
#[derive(Clone, Debug)]
pub(super) struct RecentAccesses {
    pub room: Room,
    in_window: Ring<InWindow>,
    /// When stores are written, by their number, in a power of two of places.
    stores: Box<[Cycles]>,
    /// Stores that are known to be written.
    written: u64,
    /// By the number of the access: when it is complete, and the rest.
    complete: [Cycles; REACH],
    chained: [Chained; REACH],
}

impl RecentAccesses {
    /// Nothing yet.
    pub fn new(config: &WindowConfig) -> Self {
        Self {
            room: Room::new(config, 1),
            in_window: Ring::new(config.window as usize + 1),
            stores: vec![Cycles::ZERO; (config.store_queue as usize + 1).next_power_of_two()].into(),
            written: 0,
            complete: [Cycles::ZERO; REACH],
            chained: [Chained::default(); REACH],
        }
    }

    /// The thread has other room from now on.
    pub fn divide(&mut self, progress: &mut WindowProgress, room: Room) {
        self.room = room;
        self.forget(progress, Cycles::ZERO);
        self.forget_stores(progress, Cycles::ZERO);
    }

    /// Whether stores are waited for as loads are.
    #[inline(always)]
    pub fn waits_for_stores(&self) -> bool {
        self.room.stores == 0
    }

    /// Forgets what is complete by a time.
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

    /// Takes the oldest access out that is not complete by a time, if all up to `entry` can only enter without it.
    pub fn let_go(&mut self, progress: &mut WindowProgress, now: Cycles, entry: u64) -> Option<InWindow> {
        self.forget(progress, now);
        if entry < progress.leaves_for { None } else { self.in_window.pop_front() }
    }

    /// Takes the oldest access out.
    pub fn take(&mut self, progress: &mut WindowProgress) -> Option<InWindow> {
        (progress.leaves_for, progress.loads_for) = (u64::MAX, u64::MAX);
        self.in_window.pop_front()
    }

    /// When the load leaves that the last one can only enter without, where it comes at a time.
    pub fn load_before(&mut self, progress: &mut WindowProgress, now: Cycles) -> Times {
        self.forget(progress, now);
        let leave = |of: &InWindow| of.load + self.room.loads <= progress.loads;
        self.in_window.iter().take_while(leave).last().map_or(Times::default(), |of| of.times)
    }

    /// When the store is written that the last one can only enter after, where it comes at a time.
    pub fn store_before(&mut self, progress: &mut WindowProgress, now: Cycles) -> Times {
        self.forget_stores(progress, now);
        let complete = if progress.stores < progress.stores_for {
            Cycles::ZERO
        } else {
            self.stores[self.place(progress.stores - self.room.stores)]
        };
        // It was translated when it left the window.
        Times { complete, translation: Cycles::ZERO }
    }

    /// Forgets stores that are written by a time, up to the last one, which may not be noted yet.
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

    /// When an access is complete that is so many back from the last; at once if that is none. Without a branch of the
    /// host's, as it cannot foresee who waits.
    #[inline(always)]
    pub fn complete(&self, progress: &WindowProgress, distance: u64) -> Cycles {
        let complete = self.complete[slot(progress.met - distance)];
        Cycles(complete.0 & u64::from(distance > 0).wrapping_neg())
    }

    /// A wait from `from` on for an access so many back, which need not be the oldest: also for those that it waits for
    /// itself.
    pub fn wait_for_chain(&self, progress: &WindowProgress, from: Cycles, distance: u64) -> Stall {
        let (mut stall, mut distance) = (Stall::default(), distance);
        while self.complete(progress, distance) > from {
            let chained = self.chained[slot(progress.met - distance)];
            let further = distance + chained.distance();
            let is_known = further > distance && further < REACH as u64;
            let before = if is_known { further } else { 0 };
            let times = Times { complete: self.complete(progress, distance), translation: chained.translation() };
            stall += wait(from.max(self.complete(progress, before)), times);
            distance = before;
        }
        stall
    }

    /// Notes when an access that has entered at a time is complete, and how many accesses back that is that it waited
    /// for.
    #[inline(always)]
    pub fn note(&mut self, progress: &mut WindowProgress, is_load: bool, times: Times, came: Cycles, distance: u64) {
        let slot = slot(progress.met);
        self.complete[slot] = times.complete;
        self.chained[slot] = Chained::new(times.translation, distance);
        if is_load {
            progress.last_load = progress.met;
        }
        // What is complete before an older one does not hinder: whoever waits, waits for that one.
        if times.complete > progress.left {
            progress.left = times.complete;
            if times.complete > came {
                let load = progress.loads + u64::from(!is_load);
                progress.leaves_for = progress.leaves_for.min(progress.entries + self.room.window);
                progress.loads_for = progress.loads_for.min(load + self.room.loads);
                self.in_window.push_back(InWindow { entry: progress.entries, load, times });
            }
        }
    }

    /// Notes when the line of a store is written, which is there at a time.
    #[inline(always)]
    pub fn note_store(&mut self, progress: &WindowProgress, there: Cycles) {
        // In order, one a cycle at most.
        let last = self.stores[self.place(progress.stores - 1)] + Cycles(1);
        let place = self.place(progress.stores);
        self.stores[place] = there.max(progress.left).max(last);
    }
}

/// How much of a wait from `from` on, for what is there at `times`, is for what: for the translation as much as it
/// would be shorter without.
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

    /// An access as it was noted, and when all up to it have left the window.
    struct LoggedAccess {
        entry: u64,
        left: Cycles,
    }

    #[test]
    fn who_has_to_leave_is_who_was_there_when_there_is_no_room() {
        for (window, load_queue, store_queue) in [(8, 3, 2), (40, 5, 9), (300, 2, 1), (16, 64, 64)] {
            let config = WindowConfig { window, load_queue, store_queue, ..crate::core_model::Window::samples()[0] };
            let (mut of, mut progress) = (RecentAccesses::new(&config), WindowProgress::NONE);
            let (mut all, mut loads, mut stores): (Vec<LoggedAccess>, Vec<Cycles>, Vec<Cycles>) = Default::default();
            let (mut draw, mut now) = (Rng::new(5, "entered"), Cycles::ZERO);
            for _ in 0..3000 {
                let kind = [AccessKind::Load, AccessKind::Store, AccessKind::Modify][draw.below(3) as usize];
                let access = Access { gap: draw.below(5) as u32, ..Access::new(kind, 0, 8) };
                progress = progress.with(&access);
                let (is_load, is_store) = (is_load(&access), kind.writes());
                // By definition: all that entered so many entries, loads or stores before.
                let before = |all: &[Cycles], room: u32| all.len().checked_sub(room as usize).map(|at| all[at]);
                let outside = all.iter().rfind(|noted| noted.entry + u64::from(window) <= progress.entries);
                let wanted = [
                    outside.map(|noted| noted.left),
                    before(&loads, load_queue).filter(|_| is_load),
                    before(&stores, store_queue).filter(|_| is_store),
                ];
                let (mut found, entry) = ([Cycles::ZERO; 3], progress.entries);
                while let Some(oldest) = of.let_go(&mut progress, now, entry) {
                    found[0] = found[0].max(oldest.times.complete);
                }
                now = now.max(found[0]);
                if is_load && progress.is_full_of_loads() {
                    found[1] = of.load_before(&mut progress, now).complete;
                }
                if is_store && progress.is_full_of_stores() {
                    found[2] = of.store_before(&mut progress, now).complete;
                }
                let came = now;
                for (found, wanted) in found.into_iter().zip(wanted) {
                    let wanted = wanted.unwrap_or(Cycles::ZERO);
                    assert_eq!(found.max(now), wanted.max(now), "{window} {load_queue} {store_queue}");
                    now = now.max(wanted);
                }
                assert!(now == came || is_load || is_store);
                let latency = Cycles([1, 4, 4, 30, 90][draw.below(5) as usize]);
                // Stores leave once they are translated.
                let leaves_after = if is_load { latency } else { Cycles(draw.below(8)) };
                let times = Times { complete: now + leaves_after, translation: Cycles::ZERO };
                of.note(&mut progress, is_load, times, now, 0);
                let left = all.last().map_or(Cycles::ZERO, |noted| noted.left).max(times.complete);
                all.push(LoggedAccess { entry: progress.entries, left });
                if is_load {
                    loads.push(left);
                }
                if is_store {
                    of.note_store(&progress, now + latency);
                    let last = stores.last().copied().unwrap_or(Cycles::ZERO) + Cycles(1);
                    stores.push((now + latency).max(left).max(last));
                }
                now += Cycles(draw.below(3));
            }
            assert!(now > Cycles(3000), "there was something to wait for");
        }
    }
}
