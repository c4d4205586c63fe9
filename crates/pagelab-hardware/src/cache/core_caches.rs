//! The caches as one core sees them, for code that makes many accesses in sequence.

use super::exact::Tables;
use super::prefetch::ObservedAccess;
use super::{Hierarchy, HitLevel, RequestOutcome, Requester, Traffic};
use pagelab_base::addr::LineAddr;
use pagelab_base::cycles::Cycles;
use pagelab_base::host::Vectors;
use pagelab_base::ids::CoreId;

/// The caches of a core, of known or unknown shape.
pub trait CoreCaches {
    /// Whether requests have times ([`Hierarchy::is_timed`]).
    const ARE_TIMED: bool = false;

    /// See [`Hierarchy::access`].
    fn access(&mut self, line: LineAddr, write: bool, by: Requester) -> RequestOutcome;

    /// See [`Hierarchy::hint`].
    fn hint(&self, line: LineAddr);

    /// See [`Hierarchy::set_request_time`]; `now` is called only if requests need a time.
    fn set_request_time(&mut self, now: impl FnOnce() -> Cycles);

    /// See [`Hierarchy::must_defer`].
    fn must_defer(&mut self, line: LineAddr, others: Cycles) -> bool;

    /// See [`Hierarchy::may_be_contended`].
    fn may_be_contended(&self, line: LineAddr) -> bool;

    /// See [`Hierarchy::set_time`].
    #[inline(always)]
    fn set_time(&mut self, _: Cycles) {}

    /// A walk begins at `now`.
    #[inline(always)]
    fn begin_walk(&mut self, _now: Cycles) {}

    /// Sets the time of the walk's next reference, which is `spent` after its begin.
    #[inline(always)]
    fn set_time_in_walk(&mut self, _spent: Cycles) {}

    /// The latency of all references of walks, if they bypass the caches.
    #[inline(always)]
    fn bypass(&self) -> Option<Cycles> {
        None
    }

    /// See [`Hierarchy::traffic`].
    #[inline(always)]
    fn traffic(&mut self) -> Option<&mut Traffic> {
        None
    }

    /// The caches of all cores, and which core this is; none if they cannot be used by others meanwhile.
    #[inline(always)]
    fn hierarchy(&mut self) -> Option<(&mut Hierarchy, CoreId)> {
        None
    }

    /// See [`Hierarchy::prefetch_for`].
    #[inline(always)]
    fn prefetch_for(&mut self, _: &ObservedAccess) {}
}

/// Caches of any shape.
pub struct AnyCaches<'a> {
    /// The caches of all cores.
    pub all: &'a mut Hierarchy,
    /// Index of the core among those in use.
    pub core: CoreId,
}

impl CoreCaches for AnyCaches<'_> {
    #[inline(always)]
    fn access(&mut self, line: LineAddr, write: bool, by: Requester) -> RequestOutcome {
        self.all.access(self.core, line, write, by)
    }

    #[inline(always)]
    fn hint(&self, line: LineAddr) {
        self.all.hint(self.core, line);
    }

    #[inline(always)]
    fn set_request_time(&mut self, now: impl FnOnce() -> Cycles) {
        if self.all.orders_transfers() {
            self.all.set_request_time(now());
        }
    }

    #[inline(always)]
    fn must_defer(&mut self, line: LineAddr, others: Cycles) -> bool {
        self.all.must_defer(line, others)
    }

    #[inline(always)]
    fn may_be_contended(&self, line: LineAddr) -> bool {
        self.all.may_be_contended(line)
    }

    #[inline(always)]
    fn hierarchy(&mut self) -> Option<(&mut Hierarchy, CoreId)> {
        Some((self.all, self.core))
    }
}

/// What wrappers of other caches leave to these.
macro_rules! orders_as_its_caches {
    () => {
        #[inline(always)]
        fn hint(&self, line: LineAddr) {
            self.caches.hint(line);
        }

        #[inline(always)]
        fn set_request_time(&mut self, now: impl FnOnce() -> Cycles) {
            self.caches.set_request_time(now);
        }

        #[inline(always)]
        fn must_defer(&mut self, line: LineAddr, others: Cycles) -> bool {
            self.caches.must_defer(line, others)
        }

        #[inline(always)]
        fn may_be_contended(&self, line: LineAddr) -> bool {
            self.caches.may_be_contended(line)
        }
    };
}

/// Caches without times that the references of walks bypass.
pub struct BypassedCaches<C> {
    /// For data.
    pub caches: C,
    /// Latency of a walk's reference.
    pub latency: Cycles,
}

impl<C: CoreCaches> CoreCaches for BypassedCaches<C> {
    #[inline(always)]
    fn access(&mut self, line: LineAddr, write: bool, by: Requester) -> RequestOutcome {
        self.caches.access(line, write, by)
    }

    orders_as_its_caches!();

    #[inline(always)]
    fn bypass(&self) -> Option<Cycles> {
        Some(self.latency)
    }
}

/// Caches of any shape whose requests have times.
pub struct TimedCaches<'a> {
    caches: AnyCaches<'a>,
    /// When the current walk began.
    walk_begun: Cycles,
}

impl<'a> TimedCaches<'a> {
    /// The caches of a core, if requests have times.
    #[inline(always)]
    pub fn from_hierarchy(all: &'a mut Hierarchy, core: CoreId) -> Option<Self> {
        all.is_timed().then_some(Self { caches: AnyCaches { all, core }, walk_begun: Cycles::ZERO })
    }
}

impl CoreCaches for TimedCaches<'_> {
    const ARE_TIMED: bool = true;

    #[inline(always)]
    fn access(&mut self, line: LineAddr, write: bool, by: Requester) -> RequestOutcome {
        // No look-up in the L1 before: it is watched.
        let AnyCaches { all, core } = &mut self.caches;
        all.miss_l1(*core, line, write, by)
    }

    orders_as_its_caches!();

    #[inline(always)]
    fn set_time(&mut self, now: Cycles) {
        self.caches.all.set_time(now);
    }

    #[inline(always)]
    fn begin_walk(&mut self, now: Cycles) {
        self.walk_begun = now;
    }

    #[inline(always)]
    fn set_time_in_walk(&mut self, spent: Cycles) {
        self.caches.all.set_time(self.walk_begun + spent);
    }

    #[inline(always)]
    fn traffic(&mut self) -> Option<&mut Traffic> {
        self.caches.all.traffic()
    }

    #[inline(always)]
    fn prefetch_for(&mut self, access: &ObservedAccess) {
        self.caches.all.prefetch_for(access);
    }
}

/// The caches of a machine that uses one core, with ways and sets known at compile time.
pub struct KnownCaches<
    'a,
    V,
    const W1: usize,
    const S1: usize,
    const W2: usize,
    const S2: usize,
    const W3: usize,
    const S3: usize,
> {
    tables: Tables<'a, V, W1, S1, W2, S2, W3, S3>,
    latency: [u32; HitLevel::ALL.len()],
}

impl<
    'a,
    V: Vectors,
    const W1: usize,
    const S1: usize,
    const W2: usize,
    const S2: usize,
    const W3: usize,
    const S3: usize,
> KnownCaches<'a, V, W1, S1, W2, S2, W3, S3>
{
    /// The caches in `all`, if they have this shape and walks enter at the L1.
    #[inline(always)]
    pub fn from_hierarchy(all: &'a mut Hierarchy) -> Option<Self> {
        let latency = all.latency;
        (!all.walker_at_l2 && Tables::<V, W1, S1, W2, S2, W3, S3>::fit(all))
            .then(|| Self { tables: Tables::from_hierarchy(all), latency })
    }
}

impl<V: Vectors, const W1: usize, const S1: usize, const W2: usize, const S2: usize, const W3: usize, const S3: usize>
    CoreCaches for KnownCaches<'_, V, W1, S1, W2, S2, W3, S3>
{
    #[inline(always)]
    fn access(&mut self, line: LineAddr, write: bool, by: Requester) -> RequestOutcome {
        let served = self.tables.access(line.0, write, by);
        RequestOutcome { served, cycles: self.latency[served as usize] }
    }

    #[inline(always)]
    fn hint(&self, line: LineAddr) {
        self.tables.hint(line.0);
    }

    // There is no other core.
    #[inline(always)]
    fn set_request_time(&mut self, _: impl FnOnce() -> Cycles) {}

    #[inline(always)]
    fn must_defer(&mut self, _: LineAddr, _: Cycles) -> bool {
        false
    }

    #[inline(always)]
    fn may_be_contended(&self, _: LineAddr) -> bool {
        false
    }
}
