//! MESI between the private caches of several cores.
//!
//! An inclusive L3 keeps one presence bit per core with each of its lines: the cores that *may* hold it. A core's bit
//! is set when it fetches the line and cleared when another core takes the line away, but not when the core evicts it.
//! The bits only save look-ups in cores that cannot hold the line, so results do not depend on them. Without an
//! inclusive L3 all cores are searched.

use super::array::LineState;
use super::prefetch::CacheLevel;
use super::shape::Shape;
use super::ways::AnyWays;
use super::{Hierarchy, Private};
use pagelab_base::addr::LineAddr;
use pagelab_base::ids::CoreId;

/// How other cores held a line before a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Snooped {
    pub copies: RemoteCopies,
    /// Additional cycles for the distance of the cores that gave or lost the line.
    pub distance: u32,
}

/// How other cores hold a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RemoteCopies {
    None,
    Shared,
    /// One holds it in state E or M.
    Owned,
}

impl Private {
    /// The stronger state of the line's two copies.
    #[inline(always)]
    pub(super) fn state<S: Shape>(&self, line: LineAddr) -> Option<LineState> {
        let l2 = self.l2.as_ref().and_then(|l2| l2.state_of::<S::L2>(line));
        self.l1.state_of::<S::L1>(line).max(l2)
    }

    /// Removes both copies, and that of the instruction cache; returns the result of [`Self::state`] before.
    #[inline(always)]
    pub(super) fn remove<S: Shape>(&mut self, line: LineAddr) -> Option<LineState> {
        self.remove_code(line);
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
    /// Step 4 and, with `write`, the upgrade: looks for the line in the other cores and changes or removes their copies
    /// as the read or write requires. Marks the core itself as present.
    pub(super) fn snoop<S: Shape>(&mut self, core: CoreId, line: LineAddr, write: bool) -> Snooped {
        let mut found = Snooped { copies: RemoteCopies::None, distance: 0 };
        let mut holders = self.may_hold(core, line, write);
        while holders != 0 {
            let number = CoreId::from(holders.trailing_zeros() as usize);
            let other = &mut self.private[number];
            holders &= holders - 1;
            let held = if write { other.remove::<S>(line) } else { other.state::<S>(line).max(other.code_state(line)) };
            let Some(state) = held else { continue };
            let owned = state >= LineState::EXCLUSIVE;
            found.copies = found.copies.max(if owned { RemoteCopies::Owned } else { RemoteCopies::Shared });
            if (write || owned) && !self.distance.is_empty() {
                let cores = self.private.len();
                found.distance = found.distance.max(self.distance[core.index() * cores + number.index()]);
            }
            let other = &mut self.private[number];
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

    /// Bit mask of the other cores to search.
    fn may_hold(&mut self, core: CoreId, line: LineAddr, write: bool) -> u64 {
        let own = 1_u64 << core.index();
        if !self.inclusive {
            return (u64::MAX >> (64 - self.private.len())) & !own;
        }
        let l3 = self.l3.as_mut().expect("an inclusive L3 is there");
        let at = l3.place::<AnyWays>(line);
        // A line that the L3 does not hold is in no core; the later fill will mark this core.
        let Some(way) = l3.find::<AnyWays>(at) else { return 0 };
        let presence = l3.presence(at, way);
        let others = *presence & !own;
        *presence = if write { own } else { *presence | own };
        others
    }

    /// A write to a line that is shared in the core's own caches. Returns its additional cycles.
    pub(super) fn upgrade<S: Shape>(&mut self, core: CoreId, line: LineAddr) -> u32 {
        self.private[core].stats.upgrades += 1;
        let others = self.snoop::<S>(core, line, true);
        debug_assert!(others.copies != RemoteCopies::Owned, "{line:?} is shared here and owned elsewhere");
        self.upgrade_latency + others.distance
    }

    /// Serves a write to a line in the L1, where the line can only be shared. Returns the additional cycles; `None` if
    /// the L1 does not hold it.
    pub(super) fn upgrade_in_l1<S: Shape>(&mut self, core: CoreId, line: LineAddr) -> Option<u32> {
        let l1 = &mut self.private[core].l1;
        let at = l1.place::<S::L1>(line);
        let way = l1.find::<S::L1>(at)?;
        l1.promote_modified::<S::L1>(at, way);
        Some(self.upgrade::<S>(core, line))
    }

    /// Checks every line of every cache.
    ///
    /// # Panics
    /// If two cores hold a line that one of them holds exclusive or modified, instruction caches included, or if an
    /// inclusive L3 lacks a line or the presence of a core that holds it.
    pub fn assert_coherent(&mut self) {
        let mut cached = std::collections::BTreeMap::<LineAddr, (u64, LineState)>::new();
        for (core, private) in self.private.iter().enumerate() {
            let arrays = [Some(&private.l1), private.l1i.as_ref(), private.l2.as_ref()];
            for (line, state) in arrays.into_iter().flatten().flat_map(|a| a.lines()) {
                let (cores, most) = cached.entry(line).or_insert((0, state));
                *cores |= 1 << core;
                *most = state.max(*most);
            }
        }
        for (line, (cores, state)) in cached {
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
