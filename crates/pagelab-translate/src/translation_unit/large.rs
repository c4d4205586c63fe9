//! Large TLB.
//!
//! Models: one more level of TLB, with entries of all page sizes in one array and a latency that does not depend on its
//! size. It is a yardstick for other stages: what a TLB of that many entries would save. Without a limit of entries,
//! each page of a space takes one walk, and a second one if its first store comes after a load.
//! Source: Kanellopoulos et al., "Victima", MICRO 2023, which compares with a last TLB of 128 Ki entries and an
//! optimistic latency, and with one of 64 Ki entries and 39 cycles. Of the paper only notes were at hand.
//! Parameters: `machine.tlb.stages.large`: `entries` (131072, or "unlimited"), `ways` (16), `latency_cycles` (0: the
//! latency of the last TLB alone).
//! Stats: `tlb.stages.large.*`.
//! Deviations: in the paper it takes the place of the last TLB; here it is looked up after it. Walks and hits of later
//! stages fill it, evictions of the TLBs do not. Replacement is LRU.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ENTRY_BITS, Entry, FillSource, Lines, LookUpPlace, TranslationUnit, UnitLookUp, VA_MASK};
use pagelab_base::addr::{MachineAddr, PageSize, VirtAddr};
use pagelab_base::assoc::{AssocArray, AssocPolicy, array};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::rng::Rng;
use pagelab_base::translation::Translation;
use pagelab_tables::mmu_cache::Asid;

/// Bits of the number of a page, the lowest of a key; above them are the size and the tag of the space.
const NUMBER_BITS: u32 = 46;
/// Up to this many keys are dropped one by one; for more, all entries are looked at.
const FEW_KEYS: u64 = 64;

/// Number of entries of a large TLB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum TlbEntries {
    /// Entries of the array, a multiple of `ways`.
    Limited(u32),
    /// No entry is ever replaced.
    Unlimited(Unlimited),
}

/// The word `unlimited`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unlimited {
    /// No limit.
    Unlimited,
}

/// Parameters of a large TLB.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LargeTlbConfig {
    /// Entries of the array of a core, a multiple of `ways`; or `unlimited`. Default 131072.
    pub entries: TlbEntries,
    /// Ways per set; equal to `entries` for a fully associative array. Without meaning if entries are unlimited.
    /// Default 16.
    pub ways: u32,
    /// Cycles of a look-up, hit or miss, beyond those of the last TLB. Default 0.
    pub latency_cycles: u32,
}

impl Default for LargeTlbConfig {
    fn default() -> Self {
        Self { entries: TlbEntries::Limited(128 << 10), ways: 16, latency_cycles: 0 }
    }
}

/// What it holds, by [`key`].
#[derive(Clone, Debug)]
enum Held {
    Limited(AssocArray),
    /// `most` is the largest number of entries so far.
    Unlimited {
        words: BTreeMap<u64, u64>,
        most: u64,
    },
}

/// The unit, see the module's text.
#[derive(Clone, Debug)]
pub struct LargeTlb {
    held: Held,
    latency: Cycles,
    /// Whether an entry of each size was ever inserted; look-ups skip the others.
    seen: [bool; 3],
}

fn key(asid: Asid, size: PageSize, number: u64) -> u64 {
    u64::from(asid.0) << (NUMBER_BITS + 2) | (size as u64) << NUMBER_BITS | number
}

fn number(va: VirtAddr, size: PageSize) -> u64 {
    (va.0 & VA_MASK) >> size.shift()
}

/// The keys of all pages of a space.
fn keys_of(asid: Asid) -> RangeInclusive<u64> {
    let first = key(asid, PageSize::Size4K, 0);
    first..=first | ((1 << (NUMBER_BITS + 2)) - 1)
}

impl LargeTlb {
    /// Drops the entries with keys in a range.
    fn drop_keys(&mut self, keys: &RangeInclusive<u64>) {
        match &mut self.held {
            Held::Limited(array) if keys.end() - keys.start() < FEW_KEYS => keys.clone().for_each(|key| {
                array.remove(key & ((1 << NUMBER_BITS) - 1), key);
            }),
            Held::Limited(array) => {
                array.invalidate(|key, _| keys.contains(&key));
            }
            Held::Unlimited { words, .. } => {
                while let Some((&key, _)) = words.range(keys.clone()).next() {
                    words.remove(&key);
                }
            }
        }
    }
}

impl TranslationUnit for LargeTlb {
    type Parameters = LargeTlbConfig;
    type Target = MachineAddr;

    const PLACE: LookUpPlace = LookUpPlace::AfterTlbs;
    const STATISTICS: &'static str = "tlb.stages.large";

    fn new(parameters: &LargeTlbConfig, key: &str, rng: &Rng) -> Result<Self, EngineError> {
        let held = match parameters.entries {
            TlbEntries::Limited(entries) => Held::Limited(array(key, entries, parameters.ways, AssocPolicy::Lru, rng)?),
            TlbEntries::Unlimited(Unlimited::Unlimited) => Held::Unlimited { words: BTreeMap::new(), most: 0 },
        };
        Ok(Self { held, latency: parameters.latency_cycles.into(), seen: [false; 3] })
    }

    fn samples() -> Vec<LargeTlbConfig> {
        let limited = |entries, ways| LargeTlbConfig { entries: TlbEntries::Limited(entries), ways, latency_cycles: 3 };
        let unlimited = TlbEntries::Unlimited(Unlimited::Unlimited);
        vec![limited(1, 1), limited(12, 2), LargeTlbConfig { entries: unlimited, ..LargeTlbConfig::default() }]
    }

    fn look_up(&mut self, look_up: &UnitLookUp, _: &mut impl Lines, cycles: &mut Cycles) -> Option<Translation> {
        *cycles += self.latency;
        let seen = self.seen;
        let mut sizes = PageSize::ALL.into_iter().filter(|&size| seen[size as usize]);
        let held = sizes.find_map(|size| {
            let number = number(look_up.va, size);
            let key = key(look_up.asid, size, number);
            match &mut self.held {
                Held::Limited(array) => array.lookup(number, key),
                Held::Unlimited { words, .. } => words.get(&key).copied(),
            }
        });
        held.map(Translation::from_word).filter(|held| look_up.is_allowed_by(held))
    }

    fn holds(&self, asid: Asid, va: VirtAddr) -> bool {
        PageSize::ALL.into_iter().any(|size| {
            let number = number(va, size);
            match &self.held {
                Held::Limited(array) => array.holds(number, key(asid, size, number)),
                Held::Unlimited { words, .. } => words.contains_key(&key(asid, size, number)),
            }
        })
    }

    fn fill(&mut self, entry: &Entry, source: FillSource, _: &mut impl Lines) {
        match source {
            FillSource::Walk => {
                let size = entry.translation.size();
                let (number, word) = (number(entry.va, size), entry.translation.to_word());
                let key = key(entry.asid, size, number);
                self.seen[size as usize] = true;
                match &mut self.held {
                    Held::Limited(array) => {
                        array.insert(number, key, word);
                    }
                    Held::Unlimited { words, most } => {
                        words.insert(key, word);
                        *most = words.len().max(*most as usize) as u64;
                    }
                }
            }
            FillSource::Eviction | FillSource::Prefetch { .. } | FillSource::Free { .. } => {}
        }
    }

    fn invalidate(&mut self, asid: Asid, start: VirtAddr, end: VirtAddr, _: &mut impl Lines) {
        let (last, seen) = (VirtAddr(end.0.wrapping_sub(1)), self.seen);
        for size in PageSize::ALL.into_iter().filter(|&size| seen[size as usize]) {
            self.drop_keys(&(key(asid, size, number(start, size))..=key(asid, size, number(last, size))));
        }
    }

    fn flush(&mut self, asid: Asid) {
        self.drop_keys(&keys_of(asid));
    }

    fn storage_bits(&self) -> u64 {
        let entries = match &self.held {
            Held::Limited(array) => u64::from(array.sets()) * u64::from(array.ways()),
            Held::Unlimited { most, .. } => *most,
        };
        entries * ENTRY_BITS
    }
}

#[cfg(test)]
mod tests {
    use super::super::NoLines;
    use super::*;
    use pagelab_base::page_fault::{Intent, Origin};

    fn tlb(entries: TlbEntries, ways: u32) -> LargeTlb {
        let config = LargeTlbConfig { entries, ways, latency_cycles: 5 };
        LargeTlb::new(&config, "machine.tlb.stages.large", &Rng::new(1, "large")).unwrap()
    }

    fn entry(va: u64, size: PageSize, dirty: bool) -> Entry {
        let translation = Translation::new(MachineAddr(0x40_0000_0000), size, true, dirty);
        Entry { asid: Asid(1), va: VirtAddr(va), translation }
    }

    fn hits(unit: &mut LargeTlb, asid: u16, va: u64, intent: Intent) -> bool {
        let (asid, va, origin, now) = (Asid(asid), VirtAddr(va), Origin::Program, Cycles::ZERO);
        let mut cycles = Cycles::ZERO;
        let held = unit.look_up(&UnitLookUp { asid, va, pc: 0, intent, origin, now }, &mut NoLines, &mut cycles);
        assert_eq!(cycles, Cycles(5), "hit or miss");
        held.is_some()
    }

    const UNLIMITED: TlbEntries = TlbEntries::Unlimited(Unlimited::Unlimited);

    #[test]
    fn the_least_recently_used_entry_of_a_set_is_replaced_and_none_if_they_are_unlimited() {
        let mut limited = tlb(TlbEntries::Limited(4), 2);
        let mut unlimited = tlb(UNLIMITED, 2);
        for unit in [&mut limited, &mut unlimited] {
            // Even pages share a set.
            [2, 4]
                .iter()
                .for_each(|page| unit.fill(&entry(page << 12, PageSize::Size4K, true), FillSource::Walk, &mut NoLines));
            assert!(hits(unit, 1, 2 << 12, Intent::Load));
            unit.fill(&entry(6 << 12, PageSize::Size4K, true), FillSource::Walk, &mut NoLines);
            unit.fill(&entry(8 << 12, PageSize::Size4K, true), FillSource::Eviction, &mut NoLines);
            assert!(!hits(unit, 1, 8 << 12, Intent::Load), "only walks fill it");
        }
        assert_eq!([2, 4, 6].map(|page| hits(&mut limited, 1, page << 12, Intent::Load)), [true, false, true]);
        assert_eq!([2, 4, 6].map(|page| hits(&mut unlimited, 1, page << 12, Intent::Load)), [true; 3]);
        assert_eq!((limited.storage_bits(), unlimited.storage_bits()), (4 * 102, 3 * 102));
        unlimited.flush(Asid(1));
        assert_eq!(unlimited.storage_bits(), 3 * 102, "the most that it held");
    }

    #[test]
    fn changes_of_a_part_of_a_page_drop_the_page_of_this_space_alone() {
        for entries in [TlbEntries::Limited(8), UNLIMITED] {
            let range = |asid: u16, start: u64, end: u64| {
                let mut unit = tlb(entries, 8);
                unit.fill(&entry(0x5000, PageSize::Size4K, true), FillSource::Walk, &mut NoLines);
                unit.fill(&entry(0x60_0000, PageSize::Size2M, true), FillSource::Walk, &mut NoLines);
                unit.invalidate(Asid(asid), VirtAddr(start), VirtAddr(end), &mut NoLines);
                [0x5fff, 0x7f_ffff].map(|va| hits(&mut unit, 1, va, Intent::Load))
            };
            assert_eq!(range(1, 0x4000, 0x5000), [true, true]);
            assert_eq!(range(1, 0x5001, 0x5002), [false, true]);
            assert_eq!(range(1, 0x6000, 0x60_0001), [true, false]);
            assert_eq!(range(1, 0x7f_f000, 0x80_0000), [true, false]);
            assert_eq!(range(1, 0, u64::MAX), [false, false]);
            assert_eq!(range(2, 0, u64::MAX), [true, true]);
        }
    }

    #[test]
    fn a_clean_page_serves_no_store_and_a_newer_entry_replaces_it() {
        for entries in [TlbEntries::Limited(8), UNLIMITED] {
            let mut unit = tlb(entries, 8);
            unit.fill(&entry(0x60_0000, PageSize::Size2M, false), FillSource::Walk, &mut NoLines);
            let mut hits = |intent| [hits(&mut unit, 1, 0x60_0008, intent), hits(&mut unit, 2, 0x60_0008, intent)];
            assert_eq!((hits(Intent::Load), hits(Intent::Store)), ([true, false], [false, false]));
            unit.fill(&entry(0x60_0000, PageSize::Size2M, true), FillSource::Walk, &mut NoLines);
            assert!(self::hits(&mut unit, 1, 0x60_0008, Intent::Store));
        }
    }
}
