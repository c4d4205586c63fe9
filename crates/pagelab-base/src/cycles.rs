//! Times and durations on a core's clock.

use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub, SubAssign};

/// A time or a duration on a core's clock, in cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Cycles(pub u64);

impl Cycles {
    /// Zero cycles; also the time at which a run begins.
    pub const ZERO: Self = Self(0);
    /// Later than any event.
    pub const MAX: Self = Self(u64::MAX);

    /// The sum, at most [`Cycles::MAX`].
    #[inline(always)]
    pub fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, at least 0.
    #[inline(always)]
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Duration of each of `parts` parts that run side by side, rounded up.
    #[inline(always)]
    pub fn div_ceil(self, parts: u64) -> Self {
        Self(self.0.div_ceil(parts))
    }
}

impl From<u32> for Cycles {
    #[inline(always)]
    fn from(cycles: u32) -> Self {
        Self(cycles.into())
    }
}

impl From<u64> for Cycles {
    #[inline(always)]
    fn from(cycles: u64) -> Self {
        Self(cycles)
    }
}

impl Add for Cycles {
    type Output = Self;

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Cycles {
    #[inline(always)]
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Cycles {
    type Output = Self;

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl SubAssign for Cycles {
    #[inline(always)]
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}

/// A multiple of a duration.
impl Mul<u64> for Cycles {
    type Output = Self;

    #[inline(always)]
    fn mul(self, times: u64) -> Self {
        Self(self.0 * times)
    }
}

impl Mul<Cycles> for u64 {
    type Output = Cycles;

    #[inline(always)]
    fn mul(self, each: Cycles) -> Cycles {
        each * self
    }
}

impl Sum for Cycles {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::ZERO, Add::add)
    }
}

impl<'a> Sum<&'a Cycles> for Cycles {
    fn sum<I: Iterator<Item = &'a Self>>(all: I) -> Self {
        all.copied().sum()
    }
}
