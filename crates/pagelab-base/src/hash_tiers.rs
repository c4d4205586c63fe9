//! The frames that a hash says for a page, as kernels place pages and hardware guesses frames.

use crate::addr::Pfn;
use crate::ids::SpaceIx;
use std::ops::Range;

/// Most tiers of a page.
pub const MOST_TIERS: u32 = 8;

/// What is hashed besides a page's number: its process; and the frames among which the hash chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashDomain {
    /// Number of the process's address space.
    pub process: u64,
    /// The first frame.
    pub first: u64,
    /// Number of frames.
    pub frames: u64,
}

impl HashDomain {
    /// That of a space in a layer with these frames.
    pub fn new(space: SpaceIx, frames: Range<Pfn>) -> Self {
        Self { process: space.index() as u64, first: frames.start.0, frames: frames.end.0 - frames.start.0 }
    }

    /// Number of the frame that tier `tier`, from 0, of a page is.
    pub fn frame(&self, page: u64, tier: u32) -> u64 {
        let seed = self.process.wrapping_mul(u64::from(MOST_TIERS)).wrapping_add(u64::from(tier)).wrapping_add(1);
        let mut word = page ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The finaliser of SplitMix64.
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        self.first + ((u128::from(word) * u128::from(self.frames)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_are_spread_over_all_frames_and_independent() {
        let pages = 100_000;
        let frame = |page, (process, tier)| HashDomain { process, first: 7000, frames: 1000 }.frame(page, tier) - 7000;
        for seed in [(1, 0), (1, 1), (2, 0)] {
            let mut hits = vec![0_u64; 1000];
            (0..pages).for_each(|page| hits[frame(page, seed) as usize] += 1);
            // 100 per frame; seven standard deviations.
            assert!(hits.iter().all(|&count| (30..170).contains(&count)), "{seed:?}");
        }
        for (a, b) in [((1, 0), (1, 1)), ((1, 0), (2, 0)), ((1, 7), (2, 0))] {
            let same = (0..pages).filter(|&page| frame(page, a) == frame(page, b)).count();
            assert!((30..170).contains(&same), "{a:?} {b:?}");
        }
    }
}
