//! A random order of the numbers below n, computed without a table.

use crate::rng::Rng;

/// A pseudo-random bijection on `0..len`.
///
/// Each round is invertible on k-bit numbers: it multiplies by an odd number, adds a constant, and xors the upper half
/// into the lower. A result outside `0..len` (less than half of the k-bit numbers) goes through the rounds again until
/// it is inside, which keeps the function a bijection ("cycle walking": Black and Rogaway, "Ciphers with arbitrary
/// finite domains", CT-RSA 2002).
#[derive(Clone, Debug)]
pub(super) struct Permutation {
    len: u64,
    mask: u64,
    shift: u32,
    rounds: [(u64, u64); 4],
}

impl Permutation {
    /// `len` must be 1 to 2^63.
    pub fn new(len: u64, mut rng: Rng) -> Self {
        let bits = len.next_power_of_two().trailing_zeros().max(1);
        let rounds = std::array::from_fn(|_| (rng.next_u64() | 1, rng.next_u64()));
        Self { len, mask: (1 << bits) - 1, shift: bits.div_ceil(2), rounds }
    }

    /// The image of `x`, which is below `len`.
    #[inline(always)]
    pub fn apply(&self, mut x: u64) -> u64 {
        debug_assert!(x < self.len);
        loop {
            for (factor, constant) in self.rounds {
                x = x.wrapping_mul(factor).wrapping_add(constant) & self.mask;
                x ^= x >> self.shift;
            }
            if x < self.len {
                return x;
            }
        }
    }

    /// The number whose image is `y`.
    #[inline(always)]
    pub fn invert(&self, mut y: u64) -> u64 {
        debug_assert!(y < self.len);
        loop {
            for (factor, constant) in self.rounds.iter().rev() {
                // The shift is at least half of the bits, so xoring again inverts it.
                y ^= y >> self.shift;
                y = y.wrapping_sub(*constant).wrapping_mul(inverse(*factor)) & self.mask;
            }
            if y < self.len {
                return y;
            }
        }
    }
}

/// The inverse of an odd number modulo 2^64 (Newton's iteration, which doubles the number of correct bits).
#[inline(always)]
fn inverse(odd: u64) -> u64 {
    let mut inverse = odd;
    for _ in 0..5 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse)));
    }
    inverse
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_hit_once() {
        for len in [1, 2, 3, 4, 5, 7, 8, 100, 1000, 1024, 1025, 65_536, 100_003] {
            let permutation = Permutation::new(len, Rng::for_thread(len, "test", 0));
            let mut hit = vec![false; len as usize];
            for x in 0..len {
                assert!(!std::mem::replace(&mut hit[permutation.apply(x) as usize], true), "{len}: {x}");
                assert_eq!(permutation.invert(permutation.apply(x)), x, "{len}");
            }
        }
    }

    /// Images of neighbours are far apart and independent: the share of close images, and the low bits of each
    /// distance, are those of chance.
    #[test]
    fn neighbours_part() {
        let len = 1u64 << 20;
        let permutation = Permutation::new(len, Rng::for_thread(5, "test", 0));
        let images: Vec<u64> = (0..len).map(|x| permutation.apply(x)).collect();
        let near = images.windows(2).filter(|w| w[0].abs_diff(w[1]) < len / 64).count() as f64;
        let expected = len as f64 / 32.0;
        assert!((near / expected - 1.0).abs() < 0.05, "{near} of {expected}");
        let mut residues = [0u32; 64];
        images.windows(2).for_each(|w| residues[(w[1].wrapping_sub(w[0]) % 64) as usize] += 1);
        let each = len as f64 / 64.0;
        assert!(residues.iter().all(|&n| (f64::from(n) / each - 1.0).abs() < 0.1), "{residues:?}");
    }
}
