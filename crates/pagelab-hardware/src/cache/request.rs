//! A request that misses the L1: look-ups from the core outwards, fills from memory inwards, and victims on their way
//! out.
//!
//! Steps are numbered as in the text of [`super`]. A [`Shape`] fixes at compile time what never changes in a run:
//! whether there are other cores, and the ways of common geometries. Code for one core contains nothing of coherence.

use super::array::{Array, Evicted, LineState, SetAndTag};
use super::coherence::{RemoteCopies, Snooped};
use super::exact::Exact;
use super::prefetch::CacheLevel;
use super::shape::{AnyCores, Anything, Code, ManyCores, OneCore, Shape, Timed};
use super::ways::{AnyWays, Masked, Plain};
use super::{Hierarchy, HitLevel, Private, RequestOutcome, Requester};
use pagelab_base::addr::LineAddr;
#[cfg(target_arch = "x86_64")]
use pagelab_base::host::avx2;
use pagelab_base::host::{Portable, Vectors};
use pagelab_base::ids::CoreId;

impl Code {
    /// Chooses the code for these caches on this processor.
    pub fn choose(private: &[Private], l3: Option<&Array>) -> Self {
        #[cfg(target_arch = "x86_64")]
        if avx2::is_available() {
            return Self::with::<avx2::Avx2>(private, l3);
        }
        Self::with::<Portable>(private, l3)
    }

    /// Chooses the code for these caches. Intel cores until Broadwell have L1 and L2 with 8 and 8 ways and L3s with 16
    /// (clients) or 20 ways (servers); clients from Skylake on have 8 and 4 with 12 or 16. All other geometries use the
    /// general code.
    pub fn with<V: Vectors>(private: &[Private], l3: Option<&Array>) -> Self {
        // All cores have the same geometry.
        let core = &private[0];
        let eight_eight = core.l1.is::<Masked<8>>() && core.l2.as_ref().is_some_and(Array::is::<Masked<8>>);
        let eight_four = core.l1.is::<Masked<8>>() && core.l2.as_ref().is_some_and(Array::is::<Masked<4>>);
        if private.len() > 1 {
            return match () {
                () if eight_eight => Code::for_shape::<ManyCores<Masked<8>, Masked<8>>, Portable>(),
                () if eight_four => Code::for_shape::<ManyCores<Masked<8>, Masked<4>>, Portable>(),
                () => Code::for_shape::<ManyCores<AnyWays, AnyWays>, Portable>(),
            };
        }
        // The code for known sets takes no lines out of instruction caches.
        let Some(l3) = l3.filter(|_| core.l1i.is_none()) else {
            return Code::for_shape::<OneCore<AnyWays, AnyWays, AnyWays>, Portable>();
        };
        if eight_eight {
            Self::fitting::<V, Exact<V, 8, 64, 8, 512, 20, 16384>>(core, l3)
                .or_else(|| Self::fitting::<V, Exact<V, 8, 128, 8, 1024, 20, 12288>>(core, l3))
                .or_else(|| Self::fitting::<V, OneCore<Masked<8, V>, Masked<8, V>, Plain<20, V>>>(core, l3))
                .or_else(|| Self::fitting::<V, OneCore<Masked<8, V>, Masked<8, V>, Plain<16, V>>>(core, l3))
        } else if eight_four {
            Self::fitting::<V, Exact<V, 8, 64, 4, 1024, 12, 8192>>(core, l3)
                .or_else(|| Self::fitting::<V, Exact<V, 8, 64, 4, 1024, 16, 12288>>(core, l3))
                .or_else(|| Self::fitting::<V, OneCore<Masked<8, V>, Masked<4, V>, Plain<16, V>>>(core, l3))
                .or_else(|| Self::fitting::<V, OneCore<Masked<8, V>, Masked<4, V>, Plain<12, V>>>(core, l3))
        } else {
            None
        }
        .unwrap_or_else(Code::for_shape::<OneCore<AnyWays, AnyWays, AnyWays>, Portable>)
    }

    /// Chooses the code for these caches if requests have times.
    pub fn choose_timed(private: &[Private], l3: Option<&Array>) -> Self {
        #[cfg(target_arch = "x86_64")]
        if avx2::is_available() {
            return Self::timed::<avx2::Avx2>(private, l3);
        }
        Self::timed::<Portable>(private, l3)
    }

    /// The geometries of [`Self::with`], without known sets.
    fn timed<V: Vectors>(private: &[Private], l3: Option<&Array>) -> Self {
        if private.len() > 1 {
            return Code::for_shape::<Timed<Anything>, Portable>();
        }
        let any = Code::for_shape::<Timed<AnyCores<false>>, Portable>;
        let (core, Some(l3)) = (&private[0], l3) else { return any() };
        Self::fitting::<V, Timed<OneCore<Masked<8, V>, Masked<4, V>, Plain<12, V>>>>(core, l3)
            .or_else(|| Self::fitting::<V, Timed<OneCore<Masked<8, V>, Masked<4, V>, Plain<16, V>>>>(core, l3))
            .or_else(|| Self::fitting::<V, Timed<OneCore<Masked<8, V>, Masked<8, V>, Plain<16, V>>>>(core, l3))
            .or_else(|| Self::fitting::<V, Timed<OneCore<Masked<8, V>, Masked<8, V>, Plain<20, V>>>>(core, l3))
            .unwrap_or_else(any)
    }

    /// The code of `S` if the caches have its ways and sets.
    fn fitting<V: Vectors, S: Shape>(core: &Private, l3: &Array) -> Option<Self> {
        core.are::<S>(l3).then(Self::for_shape::<S, V>)
    }
}

/// Where a request found its line.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineSource {
    pub served: HitLevel,
    /// Cycles in addition to that level's latency.
    pub extra: u32,
    /// Whether the line, or the right to write it, came from other cores.
    pub moved: bool,
}

impl Private {
    /// Whether these caches and the L3 have the ways and sets of `S`.
    pub(super) fn are<S: Shape>(&self, l3: &Array) -> bool {
        self.l1.is::<S::L1>() && self.l2.as_ref().is_some_and(Array::is::<S::L2>) && l3.is::<S::L3>()
    }

    /// Removes a line that is present; true if it was modified.
    #[cold]
    #[inline(never)]
    fn back_invalidate(&mut self, line: LineAddr) -> bool {
        self.stats.back_invalidations += 1;
        self.remove::<Anything>(line) == Some(LineState::MODIFIED)
    }
}

impl Hierarchy {
    /// Implements [`Hierarchy::miss_l1`].
    #[inline(always)]
    pub(super) fn serve_miss<S: Shape>(
        &mut self,
        core: CoreId,
        line: LineAddr,
        write: bool,
        requester: Requester,
    ) -> RequestOutcome {
        let at_l2 = requester == Requester::Walk && self.walker_at_l2;
        if S::COHERENT
            && write
            && self.may_be_contended(line)
            && let Some(merged) = self.merge(core, line, requester)
        {
            return merged;
        }
        let LineSource { served, extra, moved } =
            self.request::<S>(core, line, write, at_l2, requester == Requester::Walk);
        self.core::<S>(core).stats.served[requester as usize][served as usize] += 1;
        let mut cycles = self.latency[served as usize] + extra;
        if S::COHERENT {
            if served == HitLevel::Dram {
                cycles += self.perturbation.draw();
            }
            if moved || !matches!(served, HitLevel::L1 | HitLevel::L2) && self.may_be_contended(line) {
                cycles = cycles.saturating_add(self.wait_in_queue(core, line, requester, cycles, moved));
            }
        }
        RequestOutcome { served, cycles }
    }

    #[inline(always)]
    fn core<S: Shape>(&mut self, core: CoreId) -> &mut Private {
        &mut self.private[if S::COHERENT { core } else { CoreId::FIRST }]
    }

    /// Finds a line and moves it to the core. Unless `at_l2`, the L1 look-up (step 2) has already failed.
    #[inline(always)]
    pub(super) fn request<S: Shape>(
        &mut self,
        core: CoreId,
        line: LineAddr,
        write: bool,
        at_l2: bool,
        for_walk: bool,
    ) -> LineSource {
        if at_l2 {
            self.pass_l1_copy_to_l2::<S>(core, line, write);
        } else if S::COHERENT
            && write
            && let Some(extra) = self.upgrade_in_l1::<S>(core, line)
        {
            return LineSource { served: HitLevel::L1, extra, moved: true };
        }

        // Step 3.
        let private = self.core::<S>(core);
        let at_l1 = private.l1.place::<S::L1>(line);
        let mut in_l2 = None;
        if let Some(l2) = &mut private.l2 {
            let at = l2.place::<S::L2>(line);
            in_l2 = Some(at);
            l2.note_look_up::<S::L2>(for_walk);
            if let Some(way) = l2.find::<S::L2>(at) {
                let way = l2.promote::<S::L2>(at, way);
                if for_walk {
                    l2.note_table::<S::L2>(at);
                }
                let state = l2.state(at, way);
                if at_l2 && write {
                    l2.set_state(at, way, LineState::MODIFIED);
                }
                let moved = S::COHERENT && write && state == LineState::SHARED;
                let extra = if moved { self.upgrade::<S>(core, line) } else { 0 };
                if !at_l2 {
                    // Modified data in the L2 is newer than memory's, but the L1's copy is not newer than the L2's.
                    let clean = if S::COHERENT { state.min(LineState::EXCLUSIVE) } else { LineState::EXCLUSIVE };
                    self.fill_l1::<S>(core, line, at_l1, if write { LineState::MODIFIED } else { clean });
                }
                return LineSource { served: HitLevel::L2, extra, moved };
            }
        }

        let (found, state) = self.fetch::<S>(core, line, write, for_walk);

        // Step 7.
        if let (Some(l2), Some(at)) = (&mut self.core::<S>(core).l2, in_l2) {
            let evicted = l2.fill::<S::L2>(at, if at_l2 && write { LineState::MODIFIED } else { state }, 0);
            if for_walk {
                l2.note_table::<S::L2>(at);
            }
            self.note_fill::<S>(CacheLevel::L2, core, line, evicted.as_ref());
            self.write_back_from_l2::<S>(core, evicted);
        }
        if !at_l2 {
            self.fill_l1::<S>(core, line, at_l1, if write { LineState::MODIFIED } else { state });
        }
        found
    }

    /// Steps 4 to 6: finds the line outside of the core's own caches and fills the L3 if necessary. Returns the state
    /// in which the core gets the line, before its own write.
    #[inline(always)]
    pub(super) fn fetch<S: Shape>(
        &mut self,
        core: CoreId,
        line: LineAddr,
        write: bool,
        for_walk: bool,
    ) -> (LineSource, LineState) {
        let mut state = LineState::EXCLUSIVE;
        let mut moved = false;
        if S::COHERENT {
            let Snooped { copies, distance } = self.snoop::<S>(core, line, write);
            if copies != RemoteCopies::None && !write {
                state = LineState::SHARED;
            }
            if copies == RemoteCopies::Owned {
                return (LineSource { served: HitLevel::Remote, extra: distance, moved: true }, state);
            }
            moved = write && copies != RemoteCopies::None;
        }
        let found = |served| LineSource { served, extra: 0, moved };
        let Some(l3) = &mut self.l3 else { return (found(HitLevel::Dram), state) };
        let at = l3.place::<S::L3>(line);
        l3.note_look_up::<S::L3>(for_walk);
        if let Some(way) = l3.find::<S::L3>(at) {
            l3.promote::<S::L3>(at, way);
            if for_walk {
                l3.note_table::<S::L3>(at);
            }
            return (found(HitLevel::L3), state);
        }
        let evicted = l3.fill::<S::L3>(at, LineState::EXCLUSIVE, 1 << core.index());
        if for_walk {
            l3.note_table::<S::L3>(at);
        }
        self.note_fill::<S>(CacheLevel::L3, core, line, evicted.as_ref());
        self.drop_from_l3::<S>(evicted);
        (found(HitLevel::Dram), state)
    }

    #[inline(always)]
    fn fill_l1<S: Shape>(&mut self, core: CoreId, line: LineAddr, at: SetAndTag, state: LineState) {
        let evicted = self.core::<S>(core).l1.fill::<S::L1>(at, state, 0);
        self.note_fill::<S>(CacheLevel::L1, core, line, evicted.as_ref());
        if let Some(evicted) = evicted
            && evicted.state == LineState::MODIFIED
        {
            self.write_back_from_l1::<S>(core, evicted.line);
        }
    }

    /// Step 1.
    #[inline(always)]
    fn pass_l1_copy_to_l2<S: Shape>(&mut self, core: CoreId, line: LineAddr, write: bool) {
        let l1 = &self.core::<S>(core).l1;
        if l1.find::<S::L1>(l1.place::<S::L1>(line)).is_some() {
            self.pass_l1_copy_there_to_l2(core, line, write);
        }
    }

    /// Step 1 for a line that the L1 holds.
    #[cold]
    #[inline(never)]
    fn pass_l1_copy_there_to_l2(&mut self, core: CoreId, line: LineAddr, write: bool) {
        let private = &mut self.private[core];
        let at = private.l1.place::<AnyWays>(line);
        let way = private.l1.find::<AnyWays>(at).expect("the line is there");
        let state = private.l1.state(at, way);
        if state == LineState::MODIFIED {
            private.l1.set_state(at, way, LineState::EXCLUSIVE);
        }
        if write {
            private.l1.remove(at, way);
            self.note_loss::<Anything>(&[CacheLevel::L1], core, line);
        }
        if state == LineState::MODIFIED {
            self.write_back_from_l1::<Anything>(core, line);
        } else if let Some(l2) = &mut self.private[core].l2 {
            let at = l2.place::<AnyWays>(line);
            if l2.find::<AnyWays>(at).is_none() {
                let evicted = l2.fill::<AnyWays>(at, state, 0);
                self.note_fill::<Anything>(CacheLevel::L2, core, line, evicted.as_ref());
                self.write_back_from_l2::<Anything>(core, evicted);
            }
        }
    }

    /// Handles the eviction of `line` from the L1, where it was modified.
    #[inline(always)]
    pub(super) fn write_back_from_l1<S: Shape>(&mut self, core: CoreId, line: LineAddr) {
        let private = self.core::<S>(core);
        private.stats.l1_writebacks += 1;
        let Some(l2) = &mut private.l2 else { return self.write_to_l3::<S>(line) };
        let at = l2.place::<S::L2>(line);
        if let Some(way) = l2.find::<S::L2>(at) {
            l2.promote_modified::<S::L2>(at, way);
        } else {
            let evicted = l2.fill::<S::L2>(at, LineState::MODIFIED, 0);
            self.note_fill::<S>(CacheLevel::L2, core, line, evicted.as_ref());
            self.write_back_from_l2::<S>(core, evicted);
        }
    }

    /// Handles the L2's victim, if there is one.
    #[inline(always)]
    pub(super) fn write_back_from_l2<S: Shape>(&mut self, core: CoreId, evicted: Option<Evicted>) {
        if let Some(evicted) = evicted
            && evicted.state == LineState::MODIFIED
        {
            self.core::<S>(core).stats.l2_writebacks += 1;
            self.write_to_l3::<S>(evicted.line);
        }
    }

    /// Writes modified data that leaves the private caches.
    #[inline(always)]
    pub(super) fn write_to_l3<S: Shape>(&mut self, line: LineAddr) {
        let Some(l3) = &mut self.l3 else {
            self.shared_stats.dram_writes += 1;
            self.note_write::<S>(line);
            return;
        };
        let at = l3.place::<S::L3>(line);
        if let Some(way) = l3.find::<S::L3>(at) {
            l3.promote_modified::<S::L3>(at, way);
        } else {
            assert!(!self.inclusive, "a line that left a private cache is missing from the inclusive L3");
            let evicted = l3.fill::<S::L3>(at, LineState::MODIFIED, 0);
            self.note_fill::<S>(CacheLevel::L3, CoreId::FIRST, line, evicted.as_ref());
            self.drop_from_l3::<S>(evicted);
        }
    }

    /// Handles the L3's victim, if there is one. With `COHERENT` its presence bits tell which cores may hold it.
    #[inline(always)]
    fn drop_from_l3<S: Shape>(&mut self, evicted: Option<Evicted>) {
        let Some(evicted) = evicted else { return };
        let mut modified = evicted.state == LineState::MODIFIED;
        if self.inclusive {
            if S::COHERENT {
                let mut holders = evicted.presence;
                while holders != 0 {
                    modified |=
                        self.back_invalidate::<S>(CoreId::from(holders.trailing_zeros() as usize), evicted.line);
                    holders &= holders - 1;
                }
            } else {
                modified |= self.back_invalidate::<S>(CoreId::FIRST, evicted.line);
            }
        }
        if modified {
            self.shared_stats.l3_writebacks += 1;
            self.shared_stats.dram_writes += 1;
            self.note_write::<S>(evicted.line);
        }
    }

    /// Removes the line from a core's caches; true if it was modified there.
    #[inline(always)]
    fn back_invalidate<S: Shape>(&mut self, core: CoreId, line: LineAddr) -> bool {
        // Usually the line has left them long ago.
        let private = self.core::<S>(core);
        private.remove_code(line);
        let in_l1 = private.l1.find::<S::L1>(private.l1.place::<S::L1>(line)).is_some();
        let in_l2 = private.l2.as_ref().is_some_and(|l2| l2.find::<S::L2>(l2.place::<S::L2>(line)).is_some());
        if !(in_l1 || in_l2) {
            return false;
        }
        let modified = private.back_invalidate(line);
        self.note_loss::<S>(&[CacheLevel::L1, CacheLevel::L2], core, line);
        modified
    }
}
