//! A request beyond the L1 hit: look-up from the core outwards, fills from memory inwards, victims on their way out.
//!
//! Steps are numbered as in the module's text. `COHERENT` is false for a machine of one core, whose code then has no
//! trace of other cores.

use super::{
    Hierarchy, Served,
    array::{Evicted, State},
    coherence::Others,
};
use crate::addr::LineAddr;

impl Hierarchy {
    /// Where the line was found, and the cycles that come on top of that level's latency. The L1 has already been
    /// asked (step 2) and has refused unless `at_l2`.
    #[inline(always)]
    pub(super) fn request<const COHERENT: bool>(
        &mut self,
        core: usize,
        line: LineAddr,
        write: bool,
        at_l2: bool,
    ) -> (Served, u32) {
        if at_l2 {
            self.pass_l1_copy_to_l2(core, line, write);
        } else if COHERENT && write && self.upgrade_in_l1(core, line) {
            return (Served::L1, self.upgrade_latency);
        }

        // Step 3.
        if let Some(l2) = &mut self.private[core].l2 {
            let at = l2.place(line);
            if let Some(way) = l2.find(at) {
                let way = l2.promote(at, way);
                let state = l2.state(at, way);
                if at_l2 && write {
                    l2.set_state(at, way, State::MODIFIED);
                }
                let mut extra = 0;
                if COHERENT && write && state == State::SHARED {
                    self.upgrade(core, line);
                    extra = self.upgrade_latency;
                }
                if !at_l2 {
                    // Modified data in the L2 is newer than memory's, but the L1's copy is not newer than the L2's.
                    let clean = if COHERENT { state.min(State::EXCLUSIVE) } else { State::EXCLUSIVE };
                    self.fill_l1(core, line, if write { State::MODIFIED } else { clean });
                }
                return (Served::L2, extra);
            }
        }

        let (served, state) = self.fetch::<COHERENT>(core, line, write);

        // Step 7.
        if let Some(l2) = &mut self.private[core].l2 {
            let at = l2.place(line);
            let evicted = l2.fill(at, if at_l2 && write { State::MODIFIED } else { state }, 0);
            self.write_back_from_l2(core, evicted);
        }
        if !at_l2 {
            self.fill_l1(core, line, if write { State::MODIFIED } else { state });
        }
        (served, 0)
    }

    /// Steps 4 to 6: finds the line outside of the core's own caches, fills the L3 if need be; returns the state that the
    /// core gets it in, its write apart.
    #[inline(always)]
    fn fetch<const COHERENT: bool>(&mut self, core: usize, line: LineAddr, write: bool) -> (Served, State) {
        let mut state = State::EXCLUSIVE;
        if COHERENT {
            let others = self.snoop(core, line, write);
            if others != Others::None && !write {
                state = State::SHARED;
            }
            if others == Others::Owned {
                return (Served::Remote, state);
            }
        }
        let Some(l3) = &mut self.l3 else { return (Served::Dram, state) };
        let at = l3.place(line);
        if let Some(way) = l3.find(at) {
            l3.promote(at, way);
            return (Served::L3, state);
        }
        let evicted = l3.fill(at, State::EXCLUSIVE, 1 << core);
        self.drop_from_l3::<COHERENT>(evicted);
        (Served::Dram, state)
    }

    #[inline(always)]
    fn fill_l1(&mut self, core: usize, line: LineAddr, state: State) {
        let l1 = &mut self.private[core].l1;
        let at = l1.place(line);
        if let Some(evicted) = l1.fill(at, state, 0)
            && evicted.state == State::MODIFIED
        {
            self.write_back_from_l1(core, evicted.line);
        }
    }

    /// Step 1.
    fn pass_l1_copy_to_l2(&mut self, core: usize, line: LineAddr, write: bool) {
        let private = &mut self.private[core];
        let at = private.l1.place(line);
        let Some(way) = private.l1.find(at) else { return };
        let state = private.l1.state(at, way);
        if state == State::MODIFIED {
            private.l1.set_state(at, way, State::EXCLUSIVE);
        }
        if write {
            private.l1.remove(at, way);
        }
        if state == State::MODIFIED {
            self.write_back_from_l1(core, line);
        } else if let Some(l2) = &mut private.l2 {
            let at = l2.place(line);
            if l2.find(at).is_none() {
                let evicted = l2.fill(at, state, 0);
                self.write_back_from_l2(core, evicted);
            }
        }
    }

    /// The L1 gives up `line`, which it held modified.
    #[inline(always)]
    pub(super) fn write_back_from_l1(&mut self, core: usize, line: LineAddr) {
        let private = &mut self.private[core];
        private.stats.l1_writebacks += 1;
        let Some(l2) = &mut private.l2 else { return self.write_to_l3(line) };
        let at = l2.place(line);
        if let Some(way) = l2.find(at) {
            let way = l2.promote(at, way);
            l2.set_state(at, way, State::MODIFIED);
        } else {
            let evicted = l2.fill(at, State::MODIFIED, 0);
            self.write_back_from_l2(core, evicted);
        }
    }

    /// The L2's victim, if there was one.
    #[inline(always)]
    fn write_back_from_l2(&mut self, core: usize, evicted: Option<Evicted>) {
        if let Some(evicted) = evicted
            && evicted.state == State::MODIFIED
        {
            self.private[core].stats.l2_writebacks += 1;
            self.write_to_l3(evicted.line);
        }
    }

    /// Modified data leaves the private caches.
    #[inline(always)]
    pub(super) fn write_to_l3(&mut self, line: LineAddr) {
        let Some(l3) = &mut self.l3 else {
            self.shared_stats.dram_writes += 1;
            return;
        };
        let at = l3.place(line);
        if let Some(way) = l3.find(at) {
            let way = l3.promote(at, way);
            l3.set_state(at, way, State::MODIFIED);
        } else {
            assert!(!self.inclusive, "a line that left a private cache is missing from the inclusive L3");
            let evicted = l3.fill(at, State::MODIFIED, 0);
            self.drop_from_l3::<false>(evicted);
        }
    }

    /// The L3's victim, if there was one. With `COHERENT` it says itself which cores may hold it.
    #[inline(always)]
    fn drop_from_l3<const COHERENT: bool>(&mut self, evicted: Option<Evicted>) {
        let Some(evicted) = evicted else { return };
        let mut modified = evicted.state == State::MODIFIED;
        if self.inclusive {
            if COHERENT {
                let mut holders = evicted.presence;
                while holders != 0 {
                    modified |= self.back_invalidate(holders.trailing_zeros() as usize, evicted.line);
                    holders &= holders - 1;
                }
            } else {
                modified |= self.back_invalidate(0, evicted.line);
            }
        }
        if modified {
            self.shared_stats.l3_writebacks += 1;
            self.shared_stats.dram_writes += 1;
        }
    }

    /// Removes the line from a core's caches; true if it was modified there.
    #[inline(always)]
    fn back_invalidate(&mut self, core: usize, line: LineAddr) -> bool {
        let private = &mut self.private[core];
        let had = private.remove(line);
        private.stats.back_invalidations += u64::from(had.is_some());
        had == Some(State::MODIFIED)
    }
}
