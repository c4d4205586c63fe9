//! MESI between the private caches of several cores.
//!
//! An inclusive L3 keeps a presence bit a core with each of its lines: cores that *may* hold it. A bit is set when a
//! core fetches the line and cleared when another one takes it away, not when the core drops it. It only saves
//! look-ups in cores that cannot hold the line, so results do not depend on it. Without an inclusive L3 all cores are
//! asked.

use super::array::LineState;
use super::prefetch::CacheLevel;
use super::shape::Shape;
use super::ways::AnyWays;
use super::{Hierarchy, Private};
use pagelab_base::addr::LineAddr;

/// How other cores held a line when they were asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RemoteCopies {
    None,
    Shared,
    /// One had it exclusive or modified.
    Owned,
}

impl Private {
    /// The most that either copy of the line allows.
    #[inline(always)]
    pub(super) fn state<S: Shape>(&self, line: LineAddr) -> Option<LineState> {
        let l2 = self.l2.as_ref().and_then(|l2| l2.state_of::<S::L2>(line));
        self.l1.state_of::<S::L1>(line).max(l2)
    }

    /// Removes both copies; the state that [`Self::state`] would have said.
    #[inline(always)]
    pub(super) fn remove<S: Shape>(&mut self, line: LineAddr) -> Option<LineState> {
        let l2 = self.l2.as_mut().and_then(|l2| l2.remove_line::<S::L2>(line));
        self.l1.remove_line::<S::L1>(line).max(l2)
    }

    fn make_shared(&mut self, line: LineAddr) {
        for array in [Some(&mut self.l1), self.l2.as_mut()].into_iter().flatten() {
            let at = array.place::<AnyWays>(line);
            if let Some(way) = array.find::<AnyWays>(at) {
                array.set_state(at, way, LineState::SHARED);
            }
        }
    }
}

impl Hierarchy {
    /// Steps 4 and, with `write`, the upgrade: asks the other cores for the line and takes from them what a read or
    /// write needs. Marks the core itself as present.
    pub(super) fn snoop<S: Shape>(&mut self, core: usize, line: LineAddr, write: bool) -> RemoteCopies {
        let mut found = RemoteCopies::None;
        let mut asked = self.may_hold(core, line, write);
        while asked != 0 {
            let number = asked.trailing_zeros() as usize;
            let other = &mut self.private[number];
            asked &= asked - 1;
            let Some(state) = (if write { other.remove::<S>(line) } else { other.state::<S>(line) }) else {
                continue;
            };
            let owned = state >= LineState::EXCLUSIVE;
            found = found.max(if owned { RemoteCopies::Owned } else { RemoteCopies::Shared });
            if write {
                other.stats.invalidations += 1;
                self.note_loss::<S>(&[CacheLevel::L1, CacheLevel::L2], number, line);
            } else if owned {
                other.make_shared(line);
                other.stats.downgrades += 1;
                if state == LineState::MODIFIED {
                    other.stats.downgrade_writebacks += 1;
                    self.write_to_l3::<S>(line);
                }
            }
        }
        found
    }

    /// The other cores to ask, as a bit mask.
    fn may_hold(&mut self, core: usize, line: LineAddr, write: bool) -> u64 {
        let own = 1_u64 << core;
        if !self.inclusive {
            return (u64::MAX >> (64 - self.private.len())) & !own;
        }
        let l3 = self.l3.as_mut().expect("an inclusive L3 is there");
        let at = l3.place::<AnyWays>(line);
        // What the L3 does not hold, nobody holds; the fill to come will mark the core.
        let Some(way) = l3.find::<AnyWays>(at) else { return 0 };
        let presence = l3.presence(at, way);
        let others = *presence & !own;
        *presence = if write { own } else { *presence | own };
        others
    }

    /// A write that found the line shared in the core's own caches.
    pub(super) fn upgrade<S: Shape>(&mut self, core: usize, line: LineAddr) {
        self.private[core].stats.upgrades += 1;
        let others = self.snoop::<S>(core, line, true);
        debug_assert!(others != RemoteCopies::Owned, "{line:?} is shared here and owned elsewhere");
    }

    /// Serves a write that finds the line in the L1, where it can only be shared.
    pub(super) fn upgrade_in_l1<S: Shape>(&mut self, core: usize, line: LineAddr) -> bool {
        let l1 = &mut self.private[core].l1;
        let at = l1.place::<S::L1>(line);
        let Some(way) = l1.find::<S::L1>(at) else { return false };
        l1.promote_modified::<S::L1>(at, way);
        self.upgrade::<S>(core, line);
        true
    }

    /// Looks at every line of every cache.
    ///
    /// # Panics
    /// If two cores hold a line that one of them holds exclusive or modified, or if an inclusive L3 lacks a line or
    /// the presence of a core that holds it.
    pub fn assert_coherent(&mut self) {
        let mut held = std::collections::BTreeMap::<LineAddr, (u64, LineState)>::new();
        for (core, private) in self.private.iter().enumerate() {
            for (line, state) in [Some(&private.l1), private.l2.as_ref()].into_iter().flatten().flat_map(|a| a.lines())
            {
                let (cores, most) = held.entry(line).or_insert((0, state));
                *cores |= 1 << core;
                *most = state.max(*most);
            }
        }
        for (line, (cores, state)) in held {
            assert!(
                state == LineState::SHARED || cores.is_power_of_two(),
                "{line:?} is {state:?} in one of cores {cores:#b}"
            );
            if let Some(l3) = self.l3.as_mut().filter(|_| self.inclusive) {
                let at = l3.place::<AnyWays>(line);
                let way = l3.find::<AnyWays>(at).unwrap_or_else(|| panic!("the inclusive L3 lacks {line:?}"));
                if self.private.len() > 1 {
                    let presence = *l3.presence(at, way);
                    assert_eq!(cores & !presence, 0, "{line:?} is in cores {cores:#b}, present in {presence:#b}");
                }
            }
        }
    }
}
