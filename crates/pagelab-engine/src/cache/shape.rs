//! What is known of a hierarchy when its code is compiled, and the code chosen by that.

use super::host::{Portable, Vectors};
use super::ways::{AnyWays, Ways};
use super::{Hierarchy, Outcome, Requester};
use crate::base::addr::LineAddr;

/// What is known of a hierarchy when its code is compiled.
pub(super) trait Shape: Sized {
    /// There are other cores.
    const COHERENT: bool;
    type L1: Ways;
    type L2: Ways;
    type L3: Ways;

    /// What [`Hierarchy::miss_l1`] does.
    #[inline(always)]
    fn serve_miss(caches: &mut Hierarchy, core: usize, line: LineAddr, write: bool, requester: Requester) -> Outcome {
        caches.serve_miss::<Self>(core, line, write, requester)
    }

    /// The loop of [`Hierarchy::zero_lines`], as [`Code::write_lines`].
    #[inline(always)]
    fn write_lines(caches: &mut Hierarchy, core: usize, first: LineAddr, lines: u64, found: &mut [u64; 5]) {
        caches.write_lines::<Self>(core, first, lines, found);
    }
}

pub(super) struct OneCore<L1, L2, L3>(std::marker::PhantomData<(L1, L2, L3)>);

pub(super) struct ManyCores<L1, L2>(std::marker::PhantomData<(L1, L2)>);

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

/// Any number of cores with any caches.
pub(super) type Anything = ManyCores<AnyWays, AnyWays>;

/// The code of a shape, chosen once when a hierarchy is built.
#[derive(Clone, Copy, Debug)]
pub(super) struct Code {
    /// What [`Hierarchy::miss_l1`] does.
    pub miss_l1: fn(&mut Hierarchy, usize, LineAddr, bool, Requester) -> Outcome,
    /// The loop of [`Hierarchy::zero_lines`]: core, first line, number of lines, and how many were found where.
    pub write_lines: fn(&mut Hierarchy, usize, LineAddr, u64, &mut [u64; 5]),
}

/// Functions on sets for which whole requests can be compiled.
pub(super) trait Compiled: Vectors {
    /// The code of a shape whose sets are worked on with these functions.
    fn code<S: Shape>() -> Code;
}

impl Compiled for Portable {
    fn code<S: Shape>() -> Code {
        Code { miss_l1: S::serve_miss, write_lines: S::write_lines }
    }
}
