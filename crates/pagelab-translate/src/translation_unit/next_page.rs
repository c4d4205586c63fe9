//! Next-page prefetch of translations.
//!
//! Models: after a miss of both levels of the data TLB, a walk for the next page, into a buffer beside the TLBs. An
//! access that misses the TLBs and hits the buffer needs no walk: the entry moves to the TLBs and triggers the next
//! prefetch walk. If the prefetch walk is still in progress, the access waits for its end. The walk's references go
//! through MMU caches and data caches. It never faults: a page without a translation, or one that has never been
//! accessed, is dropped. A new entry replaces the oldest. An invalidation of the TLBs applies to the buffer as well.
//! Source: Kandiraju and Sivasubramaniam, "Going the Distance for TLB Prefetching", ISCA 2002: sequential prefetch into
//! a buffer of 16 entries.
//! Parameters: `machine.prefetch.tlb.next_page`: `entries` (16).
//! Stats: `prefetch.tlb.*`. Its walks are not included in `walk.*`, nor its references in `cache.refs.walk`.
//! Deviations: it has a page walker of its own. The next page has the size of the one that missed. Layers with shadow
//! page tables, direct segments or a speculative table refuse it.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Entry, FillSource, LookUpPlace, TranslationUnit, UnitLookUp};
use pagelab_base::addr::{MachineAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::{EngineError, between};
use pagelab_base::measure::Measure;
use pagelab_base::page_fault::{Intent, Origin};
use pagelab_base::rng::Rng;
use pagelab_base::translation::Translation;
use pagelab_tables::mmu_cache::Asid;

/// Parameters of next-page prefetch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NextPageConfig {
    /// Translations in the buffer of a core, 1 to 65536.
    pub entries: u32,
}

impl Default for NextPageConfig {
    fn default() -> Self {
        Self { entries: 16 }
    }
}

/// Counts of prefetched translations. `entered` is the sum of `useful`, `late`, `useless` and those that are still in
/// the buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PrefetchCounts {
    entered: u64,
    useful: u64,
    late: u64,
    late_cycles: Cycles,
    useless: u64,
}

/// A prefetched translation.
#[derive(Clone, Copy, Debug)]
struct Prefetched {
    entry: Entry,
    arrives: Cycles,
}

/// The buffer of a core; see the module's text.
#[derive(Clone, Debug)]
pub struct NextPage {
    size: usize,
    /// Oldest first.
    buffer: VecDeque<Prefetched>,
    counts: PrefetchCounts,
}

impl NextPage {
    fn drop(&mut self, condemned: impl Fn(&Entry) -> bool) {
        let before = self.buffer.len();
        self.buffer.retain(|prefetched| !condemned(&prefetched.entry));
        self.counts.useless += (before - self.buffer.len()) as u64;
    }
}

impl TranslationUnit for NextPage {
    type Parameters = NextPageConfig;
    type Target = MachineAddr;

    const PLACE: LookUpPlace = LookUpPlace::AfterTlbs;
    const STATISTICS: &'static str = "prefetch.tlb";
    const PREFETCHES: bool = true;

    fn new(parameters: &NextPageConfig, key: &str, _: &Rng) -> Result<Self, EngineError> {
        between(&format!("{key}.entries"), parameters.entries, 1, 1 << 16)?;
        let size = parameters.entries as usize;
        Ok(Self { size, buffer: VecDeque::with_capacity(size + 1), counts: PrefetchCounts::default() })
    }

    fn samples() -> Vec<NextPageConfig> {
        [1, 16].map(|entries| NextPageConfig { entries }).into()
    }

    /// Removes the entry. Waits for a walk that is still in progress.
    fn look_up(&mut self, look_up: &UnitLookUp, cycles: &mut Cycles) -> Option<Translation> {
        if look_up.origin != Origin::Program {
            return None;
        }
        let at = self.buffer.iter().position(|fetched| fetched.entry.covers(look_up.asid, look_up.va))?;
        let Prefetched { entry: Entry { translation, .. }, arrives } = self.buffer.remove(at)?;
        if !look_up.is_allowed_by(&translation) {
            self.counts.useless += 1;
            return None;
        }
        let rest = arrives.saturating_sub(look_up.now);
        if rest > Cycles::ZERO {
            self.counts.late += 1;
            self.counts.late_cycles += rest;
        } else {
            self.counts.useful += 1;
        }
        *cycles += rest;
        Some(translation)
    }

    fn holds(&self, asid: Asid, va: VirtAddr) -> bool {
        self.buffer.iter().any(|fetched| fetched.entry.covers(asid, va))
    }

    fn fill(&mut self, entry: &Entry, source: FillSource) {
        match source {
            FillSource::Prefetch { arrives } => {
                self.counts.entered += 1;
                self.buffer.push_back(Prefetched { entry: *entry, arrives });
                if self.buffer.len() > self.size {
                    self.buffer.pop_front();
                    self.counts.useless += 1;
                }
            }
            FillSource::Walk | FillSource::Eviction => {}
        }
    }

    fn next_walk(&mut self, look_up: &UnitLookUp, found: Translation) -> Option<VirtAddr> {
        let is_data_of_program = look_up.origin == Origin::Program && look_up.intent != Intent::Fetch;
        let last = look_up.va.0 | found.size().offset_mask();
        last.checked_add(1).map(VirtAddr).filter(|_| is_data_of_program)
    }

    fn invalidate(&mut self, asid: Asid, start: VirtAddr, end: VirtAddr) {
        self.drop(|entry| entry.overlaps(asid, start, end));
    }

    fn flush(&mut self, asid: Asid) {
        self.drop(|entry| entry.asid == asid);
    }

    fn measures(&self) -> Vec<Measure> {
        let PrefetchCounts { entered, useful, late, late_cycles, useless } = self.counts;
        let unused = self.buffer.len() as u64;
        vec![
            Measure::count("entered", entered, "Translations that prefetch walks inserted into the buffer"),
            Measure::count(
                "useful",
                useful,
                "Prefetched translations that were in the buffer when an access needed them",
            ),
            Measure::count(
                "late",
                late,
                "Prefetched translations whose walk was still in progress when an access needed them",
            ),
            Measure::count(
                "useless",
                useless,
                "Prefetched translations that were dropped before any access needed them, or did not allow the store that did",
            ),
            Measure::cycles(
                "late_cycles",
                late_cycles,
                "Cycles that programs waited for late translations; included in cycles.translation",
            ),
            Measure::state(
                "unused",
                unused,
                "count",
                "Prefetched translations in the buffer that no access has needed yet",
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_base::addr::PageSize;

    const ASID: Asid = Asid(3);

    fn buffer(pages: &[u64]) -> NextPage {
        let config = NextPageConfig { entries: 2 };
        let mut unit = NextPage::new(&config, "next_page", &Rng::new(1, "next page")).unwrap();
        for &page in pages {
            let translation = Translation::new(MachineAddr(page << 12), PageSize::Size4K, true, page.is_multiple_of(2));
            let entry = Entry { asid: ASID, va: VirtAddr(page << 12), translation };
            unit.fill(&entry, FillSource::Prefetch { arrives: Cycles(100) });
        }
        unit
    }

    fn take(unit: &mut NextPage, asid: Asid, page: u64, store: bool, now: u64) -> Option<Cycles> {
        let intent = if store { Intent::Store } else { Intent::Load };
        let va = VirtAddr(page << 12 | 8);
        let look_up = UnitLookUp { asid, va, intent, origin: Origin::Program, now: Cycles(now) };
        let mut waited = Cycles::ZERO;
        unit.look_up(&look_up, &mut waited).map(|_| waited)
    }

    #[test]
    fn entries_are_used_once_and_each_ends_in_one_count() {
        let mut unit = buffer(&[1, 2, 3]);
        assert_eq!(take(&mut unit, ASID, 1, false, 0), None, "it was the oldest and was replaced");
        assert_eq!(take(&mut unit, Asid(4), 2, false, 0), None, "another space");
        assert_eq!(take(&mut unit, ASID, 2, true, 40), Some(Cycles(60)));
        assert_eq!(take(&mut unit, ASID, 2, true, 40), None);
        assert_eq!(take(&mut unit, ASID, 3, true, 100), None, "its page is clean");
        let mut hit = buffer(&[2]);
        assert_eq!(take(&mut hit, ASID, 2, false, 100), Some(Cycles::ZERO));
        assert_eq!(
            unit.counts,
            PrefetchCounts { entered: 3, late: 1, late_cycles: Cycles(60), useless: 2, ..PrefetchCounts::default() }
        );
        assert_eq!(hit.counts, PrefetchCounts { entered: 1, useful: 1, ..PrefetchCounts::default() });
    }

    #[test]
    fn translations_evicted_from_the_tlbs_leave_the_buffer() {
        let range = |start: u64, end: u64| {
            let mut unit = buffer(&[4, 5]);
            unit.invalidate(ASID, VirtAddr(start), VirtAddr(end));
            unit.invalidate(Asid(9), VirtAddr(0), VirtAddr(u64::MAX));
            [4, 5].map(|page| take(&mut unit, ASID, page, false, 0).is_some())
        };
        assert_eq!(range(0x4fff, 0x5000), [false, true]);
        assert_eq!(range(0x3000, 0x4000), [true, true]);
        assert_eq!(range(0x5000, 0x5001), [true, false]);
        let mut unit = buffer(&[4, 5]);
        unit.flush(ASID);
        assert_eq!((unit.counts.useless, unit.buffer.len()), (2, 0));
    }
}
