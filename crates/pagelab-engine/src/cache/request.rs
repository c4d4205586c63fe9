//! A request beyond the L1 hit: look-up from the core outwards, fills from memory inwards, victims on their way out.
//!
//! Steps are numbered as in the module's text. A [`Shape`] settles at compile time what never changes in a run: whether
//! there are other cores, of which the code for one core has no trace, and the ways of common geometries.

use super::{
    Hierarchy, Private, Served,
    array::{Array, Evicted, State},
    coherence::Others,
    ways::{AnyWays, Ways},
};
use crate::addr::LineAddr;

/// What is known of a hierarchy when its code is compiled.
pub(super) trait Shape {
    /// There are other cores.
    const COHERENT: bool;
    type L1: Ways;
    type L2: Ways;
    type L3: Ways;
}

pub(super) struct OneCore<L1, L2, L3>(std::marker::PhantomData<(L1, L2, L3)>);
pub(super) struct ManyCores;

impl<L1: Ways, L2: Ways, L3: Ways> Shape for OneCore<L1, L2, L3> {
    const COHERENT: bool = false;
    type L1 = L1;
    type L2 = L2;
    type L3 = L3;
}

impl Shape for ManyCores {
    const COHERENT: bool = true;
    type L1 = AnyWays;
    type L2 = AnyWays;
    type L3 = AnyWays;
}

/// The shapes that have code of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShapeName {
    /// Sandy Bridge to Broadwell servers: 8, 8 and 20 ways.
    Ways8x8x20,
    /// Sandy Bridge to Haswell clients: 8, 8 and 16 ways.
    Ways8x8x16,
    /// Skylake clients: 8, 4 and 12 ways.
    Ways8x4x12,
    /// The same with 16 ways.
    Ways8x4x16,
    OneCore,
    ManyCores,
}

impl ShapeName {
    pub fn of(private: &[Private], l3: Option<&Array>) -> Self {
        let [Private { l1, l2, .. }] = private else { return Self::ManyCores };
        let plain = |ways: [usize; 3]| {
            let is = |array: Option<&Array>, ways| array.is_some_and(|array| array.is_plain(ways));
            l1.is_plain(ways[0]) && is(l2.as_ref(), ways[1]) && is(l3, ways[2])
        };
        match () {
            () if plain([8, 8, 20]) => Self::Ways8x8x20,
            () if plain([8, 8, 16]) => Self::Ways8x8x16,
            () if plain([8, 4, 12]) => Self::Ways8x4x12,
            () if plain([8, 4, 16]) => Self::Ways8x4x16,
            () => Self::OneCore,
        }
    }
}

/// Evaluates `$body` with the type `$shape` that `$name` stands for.
macro_rules! with_shape {
    ($name:expr, $shape:ident => $body:expr) => {{
        use $crate::cache::{
            request::{ManyCores, OneCore, ShapeName},
            ways::{AnyWays, Plain},
        };
        macro_rules! in_shape {
            ($known:ty) => {{
                type $shape = $known;
                $body
            }};
        }
        match $name {
            ShapeName::Ways8x8x20 => in_shape!(OneCore<Plain<8>, Plain<8>, Plain<20>>),
            ShapeName::Ways8x8x16 => in_shape!(OneCore<Plain<8>, Plain<8>, Plain<16>>),
            ShapeName::Ways8x4x12 => in_shape!(OneCore<Plain<8>, Plain<4>, Plain<12>>),
            ShapeName::Ways8x4x16 => in_shape!(OneCore<Plain<8>, Plain<4>, Plain<16>>),
            ShapeName::OneCore => in_shape!(OneCore<AnyWays, AnyWays, AnyWays>),
            ShapeName::ManyCores => in_shape!(ManyCores),
        }
    }};
}
pub(super) use with_shape;

impl Hierarchy {
    /// Where the line was found, and the cycles that come on top of that level's latency. The L1 has already been
    /// asked (step 2) and has refused unless `at_l2`.
    #[inline(always)]
    pub(super) fn request<S: Shape>(&mut self, core: usize, line: LineAddr, write: bool, at_l2: bool) -> (Served, u32) {
        if at_l2 {
            self.pass_l1_copy_to_l2::<S>(core, line, write);
        } else if S::COHERENT && write && self.upgrade_in_l1(core, line) {
            return (Served::L1, self.upgrade_latency);
        }

        // Step 3.
        if let Some(l2) = &mut self.private[core].l2 {
            let at = l2.place::<S::L2>(line);
            if let Some(way) = l2.find::<S::L2>(at) {
                let way = l2.promote::<S::L2>(at, way);
                let state = l2.state(at, way);
                if at_l2 && write {
                    l2.set_state(at, way, State::MODIFIED);
                }
                let mut extra = 0;
                if S::COHERENT && write && state == State::SHARED {
                    self.upgrade(core, line);
                    extra = self.upgrade_latency;
                }
                if !at_l2 {
                    // Modified data in the L2 is newer than memory's, but the L1's copy is not newer than the L2's.
                    let clean = if S::COHERENT { state.min(State::EXCLUSIVE) } else { State::EXCLUSIVE };
                    self.fill_l1::<S>(core, line, if write { State::MODIFIED } else { clean });
                }
                return (Served::L2, extra);
            }
        }

        let (served, state) = self.fetch::<S>(core, line, write);

        // Step 7.
        if let Some(l2) = &mut self.private[core].l2 {
            let at = l2.place::<S::L2>(line);
            let evicted = l2.fill::<S::L2>(at, if at_l2 && write { State::MODIFIED } else { state }, 0);
            self.write_back_from_l2::<S>(core, evicted);
        }
        if !at_l2 {
            self.fill_l1::<S>(core, line, if write { State::MODIFIED } else { state });
        }
        (served, 0)
    }

    /// Steps 4 to 6: finds the line outside of the core's own caches, fills the L3 if need be; returns the state that the
    /// core gets it in, its write apart.
    #[inline(always)]
    fn fetch<S: Shape>(&mut self, core: usize, line: LineAddr, write: bool) -> (Served, State) {
        let mut state = State::EXCLUSIVE;
        if S::COHERENT {
            let others = self.snoop(core, line, write);
            if others != Others::None && !write {
                state = State::SHARED;
            }
            if others == Others::Owned {
                return (Served::Remote, state);
            }
        }
        let Some(l3) = &mut self.l3 else { return (Served::Dram, state) };
        let at = l3.place::<S::L3>(line);
        if let Some(way) = l3.find::<S::L3>(at) {
            l3.promote::<S::L3>(at, way);
            return (Served::L3, state);
        }
        let evicted = l3.fill::<S::L3>(at, State::EXCLUSIVE, 1 << core);
        self.drop_from_l3::<S>(evicted);
        (Served::Dram, state)
    }

    #[inline(always)]
    fn fill_l1<S: Shape>(&mut self, core: usize, line: LineAddr, state: State) {
        let l1 = &mut self.private[core].l1;
        let at = l1.place::<S::L1>(line);
        if let Some(evicted) = l1.fill::<S::L1>(at, state, 0)
            && evicted.state == State::MODIFIED
        {
            self.write_back_from_l1::<S>(core, evicted.line);
        }
    }

    /// Step 1.
    fn pass_l1_copy_to_l2<S: Shape>(&mut self, core: usize, line: LineAddr, write: bool) {
        let private = &mut self.private[core];
        let at = private.l1.place::<S::L1>(line);
        let Some(way) = private.l1.find::<S::L1>(at) else { return };
        let state = private.l1.state(at, way);
        if state == State::MODIFIED {
            private.l1.set_state(at, way, State::EXCLUSIVE);
        }
        if write {
            private.l1.remove(at, way);
        }
        if state == State::MODIFIED {
            self.write_back_from_l1::<S>(core, line);
        } else if let Some(l2) = &mut private.l2 {
            let at = l2.place::<S::L2>(line);
            if l2.find::<S::L2>(at).is_none() {
                let evicted = l2.fill::<S::L2>(at, state, 0);
                self.write_back_from_l2::<S>(core, evicted);
            }
        }
    }

    /// The L1 gives up `line`, which it held modified.
    #[inline(always)]
    pub(super) fn write_back_from_l1<S: Shape>(&mut self, core: usize, line: LineAddr) {
        let private = &mut self.private[core];
        private.stats.l1_writebacks += 1;
        let Some(l2) = &mut private.l2 else { return self.write_to_l3::<S>(line) };
        let at = l2.place::<S::L2>(line);
        if let Some(way) = l2.find::<S::L2>(at) {
            let way = l2.promote::<S::L2>(at, way);
            l2.set_state(at, way, State::MODIFIED);
        } else {
            let evicted = l2.fill::<S::L2>(at, State::MODIFIED, 0);
            self.write_back_from_l2::<S>(core, evicted);
        }
    }

    /// The L2's victim, if there was one.
    #[inline(always)]
    fn write_back_from_l2<S: Shape>(&mut self, core: usize, evicted: Option<Evicted>) {
        if let Some(evicted) = evicted
            && evicted.state == State::MODIFIED
        {
            self.private[core].stats.l2_writebacks += 1;
            self.write_to_l3::<S>(evicted.line);
        }
    }

    /// Modified data leaves the private caches.
    #[inline(always)]
    pub(super) fn write_to_l3<S: Shape>(&mut self, line: LineAddr) {
        let Some(l3) = &mut self.l3 else {
            self.shared_stats.dram_writes += 1;
            return;
        };
        let at = l3.place::<S::L3>(line);
        if let Some(way) = l3.find::<S::L3>(at) {
            let way = l3.promote::<S::L3>(at, way);
            l3.set_state(at, way, State::MODIFIED);
        } else {
            assert!(!self.inclusive, "a line that left a private cache is missing from the inclusive L3");
            let evicted = l3.fill::<S::L3>(at, State::MODIFIED, 0);
            self.drop_from_l3::<S>(evicted);
        }
    }

    /// The L3's victim, if there was one. With `COHERENT` it says itself which cores may hold it.
    #[inline(always)]
    fn drop_from_l3<S: Shape>(&mut self, evicted: Option<Evicted>) {
        let Some(evicted) = evicted else { return };
        let mut modified = evicted.state == State::MODIFIED;
        if self.inclusive {
            if S::COHERENT {
                let mut holders = evicted.presence;
                while holders != 0 {
                    modified |= self.back_invalidate::<S>(holders.trailing_zeros() as usize, evicted.line);
                    holders &= holders - 1;
                }
            } else {
                modified |= self.back_invalidate::<S>(0, evicted.line);
            }
        }
        if modified {
            self.shared_stats.l3_writebacks += 1;
            self.shared_stats.dram_writes += 1;
        }
    }

    /// Removes the line from a core's caches; true if it was modified there.
    #[inline(always)]
    fn back_invalidate<S: Shape>(&mut self, core: usize, line: LineAddr) -> bool {
        let private = &mut self.private[core];
        let had = private.remove::<S>(line);
        private.stats.back_invalidations += u64::from(had.is_some());
        had == Some(State::MODIFIED)
    }
}
