//! What prefetchers do after an access: they observe it, and fetch lines ahead.

use super::{Filling, LastRequest};
use crate::cache::memory::RequestKind;
use crate::cache::prefetch::{CacheLevel, Demand, ObservedAccess};
use crate::cache::shape::{AnyCores, Anything, Shape};
use crate::cache::{Hierarchy, HitLevel};
use pagelab_base::addr::LineAddr;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::CoreId;

impl Hierarchy {
    /// Shows the prefetchers the program's last access, after the core model has timed it.
    #[inline]
    pub fn prefetch_for(&mut self, access: &ObservedAccess) {
        (self.code.prefetch_for)(self, access);
    }

    /// Implements [`Self::prefetch_for`]. No closures here: they would not be compiled for the shape's vectors.
    #[inline(always)]
    pub(in crate::cache) fn prefetch_at_levels<S: Shape>(&mut self, access: &ObservedAccess) {
        let Some(traffic) = &mut self.traffic else { return };
        if !traffic.prefetches {
            return;
        }
        let LastRequest { core, served, first_use, at, .. } = traffic.last_request;
        traffic.filling = Filling::Prefetch;
        for level in CacheLevel::ALL {
            let (reaches, missed) = match level {
                CacheLevel::L1 => (true, served != HitLevel::L1),
                CacheLevel::L2 => (served != HitLevel::L1, served != HitLevel::L2),
                CacheLevel::L3 => (matches!(served, HitLevel::L3 | HitLevel::Dram), served == HitLevel::Dram),
            };
            let Some(traffic) = &mut self.traffic else { return };
            if !reaches || !traffic.unit(level, core).is_on() {
                continue;
            }
            let mut proposals = std::mem::take(&mut traffic.proposals);
            let demand = Demand::new(access, missed, first_use == Some(level));
            traffic.unit(level, core).demand(&demand, &mut proposals);
            for &line in proposals.lines() {
                self.fetch_ahead::<S>(level, core, line, at);
            }
            if let Some(traffic) = &mut self.traffic {
                traffic.proposals = proposals;
            }
        }
    }

    /// Whether a prefetcher follows walks.
    #[inline(always)]
    pub fn follows_walks(&self) -> bool {
        self.traffic.as_ref().is_some_and(|traffic| traffic.follows_walks)
    }

    /// Fetches the line that a walk was made for into the L3, if a prefetcher there follows walks. Memory has served
    /// the walk's last reference, and the core has the entry now ([`Self::time`]).
    #[cold]
    pub fn prefetch_after_walk(&mut self, core: CoreId, line: LineAddr) {
        let spared = Cycles::from(self.latency[HitLevel::L3 as usize]);
        let Some(traffic) = self.traffic.as_mut().filter(|traffic| traffic.follows_walks) else { return };
        let at = traffic.now.saturating_sub(spared);
        self.fetch_for_walk(CacheLevel::L3, core, line, at);
    }

    /// Fetches a line into the second-level cache of a core, at [`Self::time`], since its walk may find that the core's
    /// access needs it. Returns where it was; `None` if it was that near already, or no buffer is free.
    pub fn prefetch_beside_walk(&mut self, core: CoreId, line: LineAddr) -> Option<HitLevel> {
        self.fetch_for_walk(CacheLevel::L2, core, line, self.time())
    }

    /// Fetches a line that a walk was made for; see [`Self::fetch_ahead`].
    fn fetch_for_walk(&mut self, level: CacheLevel, core: CoreId, line: LineAddr, at: Cycles) -> Option<HitLevel> {
        self.traffic.as_mut()?.filling = Filling::Prefetch;
        // One core has no presence bits.
        if self.private.len() > 1 {
            self.fetch_ahead::<Anything>(level, core, line, at)
        } else {
            self.fetch_ahead::<AnyCores<false>>(level, core, line, at)
        }
    }

    /// Whether a core has a line at a level or nearer.
    #[inline(always)]
    fn has_line<S: Shape>(&self, level: CacheLevel, core: CoreId, line: LineAddr) -> bool {
        match level {
            CacheLevel::L1 => return self.private[core].l1.state_of::<S::L1>(line).is_some(),
            CacheLevel::L2 => return self.private[core].state::<S>(line).is_some(),
            CacheLevel::L3 => {}
        }
        if let Some(l3) = &self.l3
            && l3.state_of::<S::L3>(line).is_some()
        {
            return true;
        }
        for private in &self.private {
            if private.state::<S>(line).is_some() {
                return true;
            }
        }
        false
    }

    /// Fetches a line into a level, unless the core has it there or nearer. Returns where it was.
    #[inline(always)]
    fn fetch_ahead<S: Shape>(
        &mut self,
        level: CacheLevel,
        core: CoreId,
        line: LineAddr,
        at: Cycles,
    ) -> Option<HitLevel> {
        if self.has_line::<S>(level, core, line) {
            return None;
        }
        if !self.traffic.as_mut()?.unit(level, core).has_room(at) {
            return None;
        }
        let served = match level {
            CacheLevel::L1 => self.request::<S>(core, line, false, false, false).served,
            CacheLevel::L2 => self.request::<S>(core, line, false, true, false).served,
            CacheLevel::L3 => self.fetch::<S>(core, line, false, false).0.served,
        };
        let latency = Cycles::from(self.latency[served as usize]);
        let traffic = self.traffic.as_mut()?;
        let is_from_memory = served == HitLevel::Dram;
        let taken = if is_from_memory {
            traffic.memory_latency(core, line, RequestKind::Prefetch, at, latency)
        } else {
            latency
        };
        traffic.write(at);
        let hit = at + taken;
        let arrival = traffic.fill_time(core, line, at, hit);
        // A nearer level's prefetch counts as a use of a farther level's.
        let farther = match served {
            HitLevel::L2 => Some(CacheLevel::L2),
            HitLevel::L3 => Some(CacheLevel::L3),
            HitLevel::L1 | HitLevel::Remote | HitLevel::Dram => None,
        };
        if let Some(farther) = farther {
            let unit = traffic.unit(farther, core);
            if unit.take_unused(line) {
                unit.count_use(arrival - hit, None);
            }
        }
        traffic.unit(level, core).begin(line, at, arrival, is_from_memory);
        Some(served)
    }
}
