//! SpecTLB: pages of a region that the kernel reserves frames for are in place, so the frame of one says those of all.
//!
//! Models: a set-associative buffer of regions of `region_pages` pages, tagged with their number and their space, with
//! the first frame of each. A walk that finds a page of 4 KiB in place, that is, with a frame whose low bits are those
//! of the page's number, enters its region. After a miss, a page of a region in the buffer is guessed to be in place
//! there. A walk that finds a larger page drops the region, which is no longer of small pages.
//! Source: Barr, Cox, Rixner, "SpecTLB: A Mechanism for Speculative Address Translation", ISCA 2011: a buffer of
//! reservations of a kernel such as FreeBSD, regions of 2 MiB, filled by the pattern of addresses. 64 entries of 4 ways
//! and 12 cycles beside the walk are those of a reimplementation (CMU-SAFARI, Virtuoso, 2026); 20 cycles for a flush
//! are an estimate.
//! Parameters: `machine.tlb.speculation` of model `spec-tlb`: `entries` (64), `ways` (4), `policy` (lru),
//! `region_pages` (512), `drops_wrong` (on), `latency_cycles` (12), `flush_cycles` (20).
//! Stats: `tlb.speculation.*`.
//! Deviations and choices: the paper also describes entries that the page table announces; here the pattern alone
//! decides, so a page that is in place by chance (1 of `region_pages`) enters its region as well. Notes on the paper do
//! not say what a wrong guess does to an entry: it is dropped, or stays with `drops_wrong` off, unless the page is in
//! place elsewhere. An invalidation drops the regions that it touches, even if it is of one page. pagelab's kernels
//! reserve up to 64 pages (`placement` of kind `ptemagnet`), not 512: regions should be as large as the blocks that the
//! kernel aligns. In a guest the region is that of all layers together, so each layer must keep pages in place.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FoundPage, Guess, GuessTiming, MissedAccess, Speculation};
use pagelab_base::addr::{FRAME_SHIFT, PageSize, VirtAddr};
use pagelab_base::assoc::{AssocArray, AssocPolicy, array};
use pagelab_base::error::{EngineError, between};
use pagelab_base::rng::Rng;
use pagelab_base::switch::Switch;
use pagelab_tables::mmu_cache::Asid;

/// Bits of a space's tag.
const ASID_BITS: u32 = 16;

/// Parameters of SpecTLB.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SpecTlbConfig {
    /// Regions that the buffer of a core holds, a multiple of `ways`, 1 to 65536.
    pub entries: u32,
    /// Ways per set; equal to `entries` for a fully associative buffer.
    pub ways: u32,
    /// Replacement policy of a full set.
    pub policy: AssocPolicy,
    /// Pages of 4 KiB of a region: a power of two, 2 to 512.
    pub region_pages: u32,
    /// Whether a region whose guess was wrong is dropped.
    pub drops_wrong: Switch,
    /// Cycles of a look-up, which begins with the walk.
    pub latency_cycles: u32,
    /// Cycles that a core with a window takes to begin again after a wrong guess.
    pub flush_cycles: u32,
}

impl Default for SpecTlbConfig {
    fn default() -> Self {
        Self {
            entries: 64,
            ways: 4,
            policy: AssocPolicy::Lru,
            region_pages: 512,
            drops_wrong: Switch(true),
            latency_cycles: 12,
            flush_cycles: 20,
        }
    }
}

/// The buffer of a core.
#[derive(Clone, Debug)]
pub struct SpecTlb {
    /// By [`Self::key`]; the value is the number of the region's first frame.
    regions: AssocArray,
    region_pages: u64,
    drops_wrong: bool,
    timing: GuessTiming,
}

impl SpecTlb {
    /// Number of the region of a page.
    fn region(&self, page: u64) -> u64 {
        page >> self.region_pages.trailing_zeros()
    }

    fn key(&self, asid: Asid, page: u64) -> u64 {
        self.region(page) << ASID_BITS | u64::from(asid.0)
    }

    /// A page's place in its region; also that of a frame.
    fn place(&self, number: u64) -> u64 {
        number & (self.region_pages - 1)
    }

    /// The number of the frame that it guesses, if it does.
    fn frame_of(&self, missed: &MissedAccess) -> Option<u64> {
        let page = missed.page();
        let first = self.regions.peek(self.region(page), self.key(missed.asid, page))?;
        Some(first | self.place(page))
    }
}

impl Speculation for SpecTlb {
    type Parameters = SpecTlbConfig;

    fn samples() -> Vec<SpecTlbConfig> {
        let usual = SpecTlbConfig::default();
        vec![
            usual,
            SpecTlbConfig { entries: 1, ways: 1, region_pages: 8, ..usual },
            SpecTlbConfig { entries: 1 << 12, region_pages: 2, latency_cycles: 0, ..usual },
            SpecTlbConfig { entries: 6, ways: 3, policy: AssocPolicy::Random, drops_wrong: Switch(false), ..usual },
        ]
    }

    fn new(parameters: &SpecTlbConfig, key: &str, rng: &Rng) -> Result<Self, EngineError> {
        let &SpecTlbConfig { entries, ways, policy, region_pages, drops_wrong, latency_cycles, flush_cycles } =
            parameters;
        between(&format!("{key}.entries"), entries, 1, 1 << 16)?;
        if !region_pages.is_power_of_two() || !(2..=512).contains(&region_pages) {
            let what = format!("{region_pages} is not possible; allowed are powers of two from 2 to 512");
            return Err(EngineError::config(format!("{key}.region_pages"), what));
        }
        Ok(Self {
            regions: array(&format!("{key}.ways"), entries, ways, policy, rng)?,
            region_pages: region_pages.into(),
            drops_wrong: drops_wrong.0,
            timing: GuessTiming { latency: latency_cycles.into(), flush: flush_cycles.into() },
        })
    }

    fn timing(&self) -> GuessTiming {
        self.timing
    }

    fn guess(&self, missed: &MissedAccess) -> Guess {
        self.frame_of(missed).into()
    }

    fn learn(&mut self, missed: &MissedAccess, found: &FoundPage) {
        let (page, frame) = (missed.page(), found.frame(missed));
        let (set, key) = (self.region(page), self.key(missed.asid, page));
        if found.translation.size() != PageSize::Size4K {
            self.regions.remove(set, key);
        } else if self.place(frame) == self.place(page) {
            self.regions.insert(set, key, frame - self.place(frame));
        } else if self.drops_wrong {
            self.regions.remove(set, key);
        }
    }

    fn invalidate(&mut self, asid: Asid, start: VirtAddr, end: VirtAddr) {
        let last = end.0.saturating_sub(1).max(start.0) >> FRAME_SHIFT;
        let (first, last) = (self.region(start.0 >> FRAME_SHIFT), self.region(last));
        self.regions.invalidate(|key, _| {
            key & ((1 << ASID_BITS) - 1) == u64::from(asid.0) && (first..=last).contains(&(key >> ASID_BITS))
        });
    }

    fn flush(&mut self, asid: Asid) {
        self.regions.invalidate(|key, _| key & ((1 << ASID_BITS) - 1) == u64::from(asid.0));
    }

    /// Of an entry: the region's number, the tag of its space, its first frame's number, and whether it is valid.
    fn storage_bits(&self) -> u64 {
        let (order, entries) =
            (u64::from(self.region_pages.trailing_zeros()), self.regions.sets() * self.regions.ways());
        u64::from(entries) * ((45 - order) + 12 + (40 - order) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_base::addr::MachineAddr;
    use pagelab_base::hash_tiers::HashDomain;
    use pagelab_base::page_fault::Intent;
    use pagelab_base::translation::Translation;

    fn unit(config: &str) -> SpecTlb {
        SpecTlb::new(&serde_json::from_str(config).unwrap(), "key", &Rng::new(1, "unit")).unwrap()
    }

    fn missed(asid: u16, page: u64) -> MissedAccess {
        MissedAccess {
            asid: Asid(asid),
            va: VirtAddr(page << FRAME_SHIFT | 8),
            pc: 0,
            intent: Intent::Load,
            domain: HashDomain::default(),
        }
    }

    fn found(frame: u64, size: PageSize) -> FoundPage {
        let page = MachineAddr(frame << FRAME_SHIFT & !size.offset_mask());
        FoundPage { translation: Translation::new(page, size, true, true), is_in_run: false }
    }

    fn learn(unit: &mut SpecTlb, page: u64, frame: u64) {
        unit.learn(&missed(1, page), &found(frame, PageSize::Size4K));
    }

    #[test]
    fn a_page_in_place_says_where_its_region_is() {
        let mut unit = unit("{}");
        learn(&mut unit, 0x12345, 0x98745);
        let guesses = [0x12345, 0x12200, 0x123ff].map(|page| unit.frame_of(&missed(1, page)));
        assert_eq!(guesses, [Some(0x98745), Some(0x98600), Some(0x987ff)]);
        assert_eq!(
            [missed(1, 0x12400), missed(1, 0x121ff), missed(2, 0x12345)].map(|miss| unit.frame_of(&miss)),
            [None; 3]
        );
        // A page out of place enters nothing.
        learn(&mut unit, 0x20001, 0x98800);
        assert_eq!(unit.frame_of(&missed(1, 0x20001)), None);
    }

    #[test]
    fn what_contradicts_a_region_drops_it() {
        for (drops, left) in [("on", None), ("off", Some(0x802))] {
            let mut unit = unit(&format!(r#"{{"region_pages":8,"drops_wrong":"{drops}"}}"#));
            learn(&mut unit, 0x100, 0x800);
            assert_eq!(unit.frame_of(&missed(1, 0x102)), Some(0x802));
            learn(&mut unit, 0x101, 0x905);
            assert_eq!(unit.frame_of(&missed(1, 0x102)), left, "drops_wrong={drops}");
            learn(&mut unit, 0x101, 0x909);
            assert_eq!(unit.frame_of(&missed(1, 0x102)), Some(0x90a), "it is in place there");
            unit.learn(&missed(1, 0x101), &found(0x909, PageSize::Size2M));
            assert_eq!(unit.frame_of(&missed(1, 0x102)), None, "it was promoted");
        }
    }

    #[test]
    fn invalidations_drop_the_regions_that_they_touch() {
        let at = |page: u64| VirtAddr(page << FRAME_SHIFT);
        for (start, end, left) in
            [(0x107, 0x108, [false, true]), (0x108, 0x109, [true, false]), (0x107, 0x109, [false; 2])]
        {
            let mut unit = unit(r#"{"region_pages":8}"#);
            [0x100, 0x108].into_iter().for_each(|page| learn(&mut unit, page, page + 0x800));
            unit.invalidate(Asid(2), at(start), at(end));
            unit.invalidate(Asid(1), at(start), at(end));
            assert_eq!([0x100, 0x108].map(|page| unit.frame_of(&missed(1, page)).is_some()), left);
            unit.flush(Asid(2));
            assert_eq!([0x100, 0x108].map(|page| unit.frame_of(&missed(1, page)).is_some()), left);
            unit.flush(Asid(1));
            assert_eq!([0x100, 0x108].map(|page| unit.frame_of(&missed(1, page))), [None; 2]);
        }
    }

    #[test]
    fn a_full_set_replaces_its_least_recent_region() {
        let mut unit = unit(r#"{"entries":2,"ways":2,"region_pages":2}"#);
        [0, 2, 1, 4].into_iter().for_each(|page| learn(&mut unit, page, page + 64));
        assert_eq!([0, 2, 4].map(|page| unit.frame_of(&missed(1, page)).is_some()), [true, false, true]);
        assert_eq!(unit.storage_bits(), 2 * (44 + 12 + 39 + 1));
    }
}
