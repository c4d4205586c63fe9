//! Compile-time knowledge about a hierarchy, and the code chosen by it.

use std::marker::PhantomData;

use super::prefetch::ObservedAccess;
use super::streams::LineRuns;
use super::ways::{AnyWays, Ways};
use super::{Hierarchy, RequestOutcome, Requester};
use pagelab_base::addr::LineAddr;
use pagelab_base::host::{VectorWork, Vectors};
use pagelab_base::ids::CoreId;

/// Compile-time knowledge about a hierarchy.
pub(super) trait Shape: Sized {
    /// Whether there are other cores.
    const COHERENT: bool;
    /// Whether there may be [`Traffic`](super::traffic::Traffic).
    const HAS_TRAFFIC: bool = false;
    type L1: Ways;
    type L2: Ways;
    type L3: Ways;

    /// Implements [`Hierarchy::miss_l1`].
    #[inline(always)]
    fn serve_miss(
        caches: &mut Hierarchy,
        core: CoreId,
        line: LineAddr,
        write: bool,
        requester: Requester,
    ) -> RequestOutcome {
        caches.serve_miss::<Self>(core, line, write, requester)
    }

    /// The loop of [`Hierarchy::zero_lines`]; see [`Code::write_lines`].
    #[inline(always)]
    fn write_lines(caches: &mut Hierarchy, core: CoreId, first: LineAddr, lines: u64, found: &mut LineRuns) {
        caches.write_lines::<Self>(core, first, lines, found);
    }

    /// Implements [`Hierarchy::prefetch_for`].
    #[inline(always)]
    fn prefetch_for(_: &mut Hierarchy, _: &ObservedAccess) {}
}

pub(super) struct OneCore<L1, L2, L3>(PhantomData<(L1, L2, L3)>);

pub(super) struct ManyCores<L1, L2>(PhantomData<(L1, L2)>);

impl<L1: Ways, L2: Ways, L3: Ways> Shape for OneCore<L1, L2, L3> {
    const COHERENT: bool = false;
    type L1 = L1;
    type L2 = L2;
    type L3 = L3;
}

impl<L1: Ways, L2: Ways> Shape for ManyCores<L1, L2> {
    const COHERENT: bool = true;
    type L1 = L1;
    type L2 = L2;
    type L3 = AnyWays;
}

/// One core or several, any caches, with or without traffic.
pub(super) struct AnyCores<const COHERENT: bool>;

/// Any number of cores, any caches.
pub(super) type Anything = AnyCores<true>;

impl<const COHERENT: bool> Shape for AnyCores<COHERENT> {
    const COHERENT: bool = COHERENT;
    const HAS_TRAFFIC: bool = true;
    type L1 = AnyWays;
    type L2 = AnyWays;
    type L3 = AnyWays;
}

/// `S` with traffic.
pub(super) struct Timed<S>(PhantomData<S>);

impl<S: Shape> Shape for Timed<S> {
    const COHERENT: bool = S::COHERENT;
    const HAS_TRAFFIC: bool = true;
    type L1 = S::L1;
    type L2 = S::L2;
    type L3 = S::L3;

    #[inline(always)]
    fn serve_miss(
        caches: &mut Hierarchy,
        core: CoreId,
        line: LineAddr,
        write: bool,
        requester: Requester,
    ) -> RequestOutcome {
        caches.serve_timed::<Self>(core, line, write, requester)
    }

    #[inline(always)]
    fn write_lines(caches: &mut Hierarchy, core: CoreId, first: LineAddr, lines: u64, found: &mut LineRuns) {
        caches.write_lines_timed::<Self>(core, first, lines, found);
    }

    #[inline(always)]
    fn prefetch_for(caches: &mut Hierarchy, access: &ObservedAccess) {
        caches.prefetch_at_levels::<Self>(access);
    }
}

/// The code of a shape, chosen once when a hierarchy is built.
#[derive(Clone, Copy, Debug)]
pub(super) struct Code {
    /// Implements [`Hierarchy::miss_l1`].
    pub miss_l1: fn(&mut Hierarchy, CoreId, LineAddr, bool, Requester) -> RequestOutcome,
    /// The loop of [`Hierarchy::zero_lines`]. Arguments: core, first line, number of lines, and where they were.
    pub write_lines: fn(&mut Hierarchy, CoreId, LineAddr, u64, &mut LineRuns),
    /// Implements [`Hierarchy::prefetch_for`].
    pub prefetch_for: fn(&mut Hierarchy, &ObservedAccess),
}

impl Code {
    /// The code of a shape, which uses the vectors `V`.
    pub fn for_shape<S: Shape, V: Vectors>() -> Self {
        Self { miss_l1: serve_miss::<S, V>, write_lines: write_lines::<S, V>, prefetch_for: prefetch_for::<S, V> }
    }
}

/// [`Shape::serve_miss`], compiled for `V`.
fn serve_miss<S: Shape, V: Vectors>(
    caches: &mut Hierarchy,
    core: CoreId,
    line: LineAddr,
    write: bool,
    requester: Requester,
) -> RequestOutcome {
    struct Miss<'a, S>(&'a mut Hierarchy, CoreId, LineAddr, bool, Requester, PhantomData<S>);
    impl<S: Shape> VectorWork for Miss<'_, S> {
        type Output = RequestOutcome;

        #[inline(always)]
        fn run<V: Vectors>(self) -> RequestOutcome {
            S::serve_miss(self.0, self.1, self.2, self.3, self.4)
        }
    }
    V::run(Miss::<S>(caches, core, line, write, requester, PhantomData))
}

/// [`Shape::write_lines`], compiled for `V`.
fn write_lines<S: Shape, V: Vectors>(
    caches: &mut Hierarchy,
    core: CoreId,
    first: LineAddr,
    lines: u64,
    found: &mut LineRuns,
) {
    struct Lines<'a, S>(&'a mut Hierarchy, CoreId, LineAddr, u64, &'a mut LineRuns, PhantomData<S>);
    impl<S: Shape> VectorWork for Lines<'_, S> {
        type Output = ();

        #[inline(always)]
        fn run<V: Vectors>(self) {
            S::write_lines(self.0, self.1, self.2, self.3, self.4);
        }
    }
    V::run(Lines::<S>(caches, core, first, lines, found, PhantomData));
}

/// [`Shape::prefetch_for`], compiled for `V`.
fn prefetch_for<S: Shape, V: Vectors>(caches: &mut Hierarchy, access: &ObservedAccess) {
    struct Ahead<'a, S>(&'a mut Hierarchy, &'a ObservedAccess, PhantomData<S>);
    impl<S: Shape> VectorWork for Ahead<'_, S> {
        type Output = ();

        #[inline(always)]
        fn run<V: Vectors>(self) {
            S::prefetch_for(self.0, self.1);
        }
    }
    V::run(Ahead::<S>(caches, access, PhantomData));
}
