//! Victim TLB.
//!
//! Models: a small, fully associative array behind the last TLB, filled with the entries that the TLB evicts. A miss of
//! all TLBs that hits here needs no walk: the entry moves back to the TLB, and the entry that it evicts there moves
//! here, so the two swap. An entry is in at most one of both. It helps if more pages than ways compete for a set.
//! Source: Jouppi, "Improving Direct-Mapped Cache Performance by the Addition of a Small Fully-Associative Cache and
//! Prefetch Buffers", ISCA 1990, which describes it for data caches of 1 to 5 entries beside the cache.
//! Parameters: `machine.tlb.stages.victim`: `entries` (8), `latency_cycles` (1: one more cycle for a swap, as in the
//! paper).
//! Stats: `tlb.stages.victim.*`.
//! Deviations: it holds entries of all page sizes, also those of kernels. A new entry replaces the oldest, which is the
//! least recently used one, since a hit removes its entry. A page that no second-level TLB can hold comes from the
//! first level.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ENTRY_BITS, Entry, FillSource, Lines, LookUpPlace, TranslationUnit, UnitLookUp};
use pagelab_base::addr::{MachineAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::{EngineError, between};
use pagelab_base::measure::Measure;
use pagelab_base::rng::Rng;
use pagelab_base::translation::Translation;
use pagelab_tables::mmu_cache::Asid;

/// Parameters of a victim TLB.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VictimTlbConfig {
    /// Evicted translations in the array of a core, 1 to 65536. Default 8.
    pub entries: u32,
    /// Cycles of a look-up, hit or miss. Default 1.
    pub latency_cycles: u32,
}

impl Default for VictimTlbConfig {
    fn default() -> Self {
        Self { entries: 8, latency_cycles: 1 }
    }
}

/// The unit, see the module's text.
#[derive(Clone, Debug)]
pub struct VictimTlb {
    size: usize,
    latency: Cycles,
    /// Oldest first.
    entries: VecDeque<Entry>,
    entered: u64,
}

impl TranslationUnit for VictimTlb {
    type Parameters = VictimTlbConfig;
    type Target = MachineAddr;

    const PLACE: LookUpPlace = LookUpPlace::AfterTlbs;
    const STATISTICS: &'static str = "tlb.stages.victim";

    fn new(parameters: &VictimTlbConfig, key: &str, _: &Rng) -> Result<Self, EngineError> {
        between(&format!("{key}.entries"), parameters.entries, 1, 1 << 16)?;
        let size = parameters.entries as usize;
        let latency = parameters.latency_cycles.into();
        Ok(Self { size, latency, entries: VecDeque::with_capacity(size + 1), entered: 0 })
    }

    fn samples() -> Vec<VictimTlbConfig> {
        [1, 8].map(|entries| VictimTlbConfig { entries, ..VictimTlbConfig::default() }).into()
    }

    fn look_up(&mut self, look_up: &UnitLookUp, _: &mut impl Lines, cycles: &mut Cycles) -> Option<Translation> {
        *cycles += self.latency;
        let at = self.entries.iter().position(|entry| entry.covers(look_up.asid, look_up.va))?;
        // If it does not allow the access, the walk that follows inserts a newer one in the TLB.
        let Entry { translation, .. } = self.entries.remove(at)?;
        look_up.is_allowed_by(&translation).then_some(translation)
    }

    fn holds(&self, asid: Asid, va: VirtAddr) -> bool {
        self.entries.iter().any(|entry| entry.covers(asid, va))
    }

    fn fill(&mut self, entry: &Entry, source: FillSource, _: &mut impl Lines) {
        match source {
            FillSource::Eviction => {
                self.entries.retain(|held| !held.covers(entry.asid, entry.va));
                self.entries.push_back(*entry);
                if self.entries.len() > self.size {
                    self.entries.pop_front();
                }
                self.entered += 1;
            }
            // These go into the TLBs.
            FillSource::Walk | FillSource::Prefetch { .. } | FillSource::Free { .. } => {}
        }
    }

    fn invalidate(&mut self, asid: Asid, start: VirtAddr, end: VirtAddr, _: &mut impl Lines) {
        self.entries.retain(|entry| !entry.overlaps(asid, start, end));
    }

    fn flush(&mut self, asid: Asid) {
        self.entries.retain(|entry| entry.asid != asid);
    }

    fn storage_bits(&self) -> u64 {
        self.size as u64 * ENTRY_BITS
    }

    fn measures(&self) -> Vec<Measure> {
        vec![Measure::count("entered", self.entered, "Entries that the last TLB evicted")]
    }
}

#[cfg(test)]
mod tests {
    use super::super::NoLines;
    use super::*;
    use pagelab_base::addr::PageSize;
    use pagelab_base::page_fault::{Intent, Origin};

    fn hits(unit: &mut VictimTlb, page: u64, intent: Intent) -> bool {
        let va = VirtAddr(page << 12 | 8);
        let look_up = UnitLookUp { asid: Asid(1), va, pc: 0, intent, origin: Origin::Program, now: Cycles::ZERO };
        unit.look_up(&look_up, &mut NoLines, &mut Cycles(0)).is_some()
    }

    #[test]
    fn evicted_entries_stay_until_they_hit_or_are_displaced() {
        let config = VictimTlbConfig { entries: 2, latency_cycles: 1 };
        let mut unit = VictimTlb::new(&config, "victim", &Rng::new(1, "victim")).unwrap();
        let entry = |page: u64, dirty| {
            let translation = Translation::new(MachineAddr(page << 13), PageSize::Size4K, true, dirty);
            Entry { asid: Asid(1), va: VirtAddr(page << 12), translation }
        };
        unit.fill(&entry(1, true), FillSource::Walk, &mut NoLines);
        assert!(!hits(&mut unit, 1, Intent::Load), "the TLB has it");
        (1..=3).for_each(|page| unit.fill(&entry(page, page > 2), FillSource::Eviction, &mut NoLines));
        assert!(!hits(&mut unit, 1, Intent::Load), "it was the oldest and was replaced");
        assert!(hits(&mut unit, 3, Intent::Store));
        assert!(!hits(&mut unit, 3, Intent::Store), "it has moved back to the TLB");
        assert!(!hits(&mut unit, 2, Intent::Store), "a walk has to set the dirty bit");
        assert!(!unit.holds(Asid(1), VirtAddr(2 << 12)), "the TLB will have a newer one");
        assert_eq!(unit.measures()[0].value, 3);
    }
}
