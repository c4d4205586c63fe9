//! The caches as one core sees them, for code that makes many accesses in sequence.

use super::exact::Tables;
use super::{Hierarchy, HitLevel, RequestOutcome, Requester};
use pagelab_base::addr::LineAddr;
use pagelab_base::cycles::Cycles;
use pagelab_base::host::Vectors;
use pagelab_base::ids::CoreId;

/// The caches of a core, of known or unknown shape.
pub trait CoreCaches {
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
