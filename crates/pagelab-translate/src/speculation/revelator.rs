//! Revelator: the kernel places pages by a hash that the hardware knows, which fetches lines from the frames it says.
//!
//! Models: the kernel gives a page the first free one of a few frames that hashes of its number and its process say
//! (`placement` of kind `hash-tiers`), each a *tier*. After a miss the hardware computes the same frames, and fetches
//! the access's line from each into the second-level cache, beside the walk. Nothing goes on before the walk ends: then
//! the access finds its line in that cache, or waits for the rest of the fetch. A filter counts how many of `window`
//! walks found the frame of each tier, and stops fetching those of a tier whose share was below
//! `least_share_percent`, until its share is above it again.
//! Source: Kanellopoulos et al., "Revelator: Rapid Data Fetching via OS-Driven Hash-based Speculative Address
//! Translation", arXiv 2508.02007, 2025, in notes: three tiers, 2 cycles, fetches into the private second-level cache,
//! a filter of tiers. The share of the filter is an estimate: at 40 % of memory in use the paper finds two tiers best,
//! whose shares are 60 and 24 %, and the third's would be 10 %. Its window is an estimate.
//! Parameters: `machine.tlb.speculation` of model `revelator`: `tiers` (3), `latency_cycles` (2), `window` (1024),
//! `least_share_percent` (10).
//! Stats: `tlb.speculation.*`, and `prefetch.l2.*` for the fetched lines.
//! Deviations: page tables are placed in the ordinary way, so lines of their entries are not fetched. The filter does
//! not follow the memory's free bandwidth. Lines of wrong frames stay until they are replaced, where the paper's are
//! invalidated when the walk ends. Guests are refused: the paper's hypervisors hash guest-virtual addresses, which no
//! kernel here sees. A fetch needs one of the buffers of the second-level cache's prefetchers, and is left out if none
//! is free.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FoundPage, Guess, GuessTiming, MissedAccess, Speculation};
use pagelab_base::addr::VirtAddr;
use pagelab_base::cycles::Cycles;
use pagelab_base::error::{EngineError, between};
use pagelab_base::hash_tiers::MOST_TIERS;
use pagelab_base::rng::Rng;
use pagelab_tables::mmu_cache::Asid;

/// Parameters of Revelator.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RevelatorConfig {
    /// Tiers whose frames the hardware computes, 1 to 8.
    pub tiers: u32,
    /// Cycles from the miss to the fetches.
    pub latency_cycles: u32,
    /// Walks after which the filter decides anew, 1 to 65536.
    pub window: u32,
    /// Least share of a window's walks for which a tier is fetched, 0 to 100.
    pub least_share_percent: u32,
}

impl Default for RevelatorConfig {
    fn default() -> Self {
        Self { tiers: 3, latency_cycles: 2, window: 1024, least_share_percent: 10 }
    }
}

/// A tier as the filter sees it.
#[derive(Clone, Copy, Debug)]
struct Tier {
    /// Walks of this window that found its frame, and no earlier tier's.
    right: u32,
    is_fetched: bool,
}

/// The unit of a core.
#[derive(Clone, Debug)]
pub struct Revelator {
    config: RevelatorConfig,
    tiers: Vec<Tier>,
    /// Walks of this window.
    walks: u32,
}

impl Speculation for Revelator {
    type Parameters = RevelatorConfig;

    const KEEPS_PAGES: bool = false;
    const KEEPS_SPACES: bool = false;
    const GOES_ON: bool = false;
    const BY_HASH: bool = true;

    fn samples() -> Vec<RevelatorConfig> {
        let usual = RevelatorConfig::default();
        vec![
            usual,
            RevelatorConfig { tiers: 1, latency_cycles: 0, least_share_percent: 0, ..usual },
            RevelatorConfig { tiers: MOST_TIERS, window: 16, ..usual },
        ]
    }

    fn new(parameters: &RevelatorConfig, key: &str, _: &Rng) -> Result<Self, EngineError> {
        between(&format!("{key}.tiers"), parameters.tiers, 1, MOST_TIERS)?;
        between(&format!("{key}.window"), parameters.window, 1, 1 << 16)?;
        between(&format!("{key}.least_share_percent"), parameters.least_share_percent, 0, 100)?;
        let tiers = vec![Tier { right: 0, is_fetched: true }; parameters.tiers as usize];
        Ok(Self { config: *parameters, tiers, walks: 0 })
    }

    fn timing(&self) -> GuessTiming {
        GuessTiming { latency: self.config.latency_cycles.into(), flush: Cycles::ZERO }
    }

    fn guess(&self, missed: &MissedAccess) -> Guess {
        let mut guess = Guess::default();
        for (tier, _) in (0..).zip(&self.tiers).filter(|(_, tier)| tier.is_fetched) {
            guess.push(missed.domain.frame(missed.page(), tier));
        }
        guess
    }

    fn learn(&mut self, missed: &MissedAccess, found: &FoundPage) {
        let frame = found.frame(missed);
        let right = (0..self.config.tiers).find(|&tier| missed.domain.frame(missed.page(), tier) == frame);
        if let Some(tier) = right {
            self.tiers[tier as usize].right += 1;
        }
        self.walks += 1;
        if self.walks == self.config.window {
            let least = self.config.window * self.config.least_share_percent;
            for tier in &mut self.tiers {
                *tier = Tier { right: 0, is_fetched: tier.right * 100 >= least };
            }
            self.walks = 0;
        }
    }

    fn invalidate(&mut self, _: Asid, _: VirtAddr, _: VirtAddr) {}

    fn flush(&mut self, _: Asid) {}

    /// A counter per tier and one of walks, and whether each tier is fetched.
    fn storage_bits(&self) -> u64 {
        let counter = u64::from(u32::BITS - self.config.window.leading_zeros());
        self.tiers.len() as u64 * (counter + 1) + counter
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_base::addr::{FRAME_SHIFT, MachineAddr, PageSize};
    use pagelab_base::hash_tiers::HashDomain;
    use pagelab_base::page_fault::Intent;
    use pagelab_base::translation::Translation;

    const DOMAIN: HashDomain = HashDomain { process: 3, first: 100, frames: 1 << 20 };

    fn missed(page: u64) -> MissedAccess {
        let va = VirtAddr(page << FRAME_SHIFT | 8);
        MissedAccess { asid: Asid(1), va, pc: 0, intent: Intent::Load, domain: DOMAIN }
    }

    fn walk(unit: &mut Revelator, page: u64, frame: u64) {
        let translation = Translation::new(MachineAddr(frame << FRAME_SHIFT), PageSize::Size4K, true, true);
        unit.learn(&missed(page), &FoundPage { translation, is_in_run: false });
    }

    #[test]
    fn it_guesses_the_frames_of_all_tiers_in_order() {
        let unit = Revelator::new(&RevelatorConfig::default(), "key", &Rng::new(1, "unit")).unwrap();
        for page in [5, 1 << 35] {
            let expected = [0, 1, 2].map(|tier| DOMAIN.frame(page, tier));
            assert_eq!(unit.guess(&missed(page)).frames(), expected);
        }
    }

    #[test]
    fn a_tier_is_fetched_while_its_share_lasts() {
        let config = RevelatorConfig { window: 10, least_share_percent: 30, ..RevelatorConfig::default() };
        let mut unit = Revelator::new(&config, "key", &Rng::new(1, "unit")).unwrap();
        let mut window = |of_tiers: &[u32]| {
            for (page, &tier) in (0..).zip(of_tiers) {
                walk(&mut unit, page, DOMAIN.frame(page, tier));
            }
            [0, 1, 2].map(|tier| unit.guess(&missed(77)).frames().contains(&DOMAIN.frame(77, tier)))
        };
        // Tier 7 is one that this hardware does not know.
        assert_eq!(window(&[0, 0, 0, 0, 0, 1, 1, 1, 2]), [true; 3], "the window has not ended");
        assert_eq!(window(&[2]), [true, true, false], "two of ten");
        assert_eq!(window(&[7, 7, 7, 7, 7, 7, 7, 7, 7, 7]), [false; 3]);
        assert_eq!(window(&[2, 2, 2, 7, 7, 7, 7, 7, 7, 0]), [false, false, true], "three are enough");
    }
}
