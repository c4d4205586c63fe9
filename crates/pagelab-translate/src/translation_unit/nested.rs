//! Nested TLB.
//!
//! Models: a TLB of the translations from guest-physical to machine pages. The walk of a guest looks up the address of
//! each entry that it reads, and the address of the page itself. On a miss the host's page table is walked.
//! Source: Bhargava, Serebrin, Spadini, Manne, "Accelerating Two-Dimensional Page Walks for Virtualized Systems",
//! ASPLOS 2008.
//! Parameters: `machine.tlb.nested`: entries, ways, latency and policy.
//! Stats: `nested_tlb.look_ups`, `nested_tlb.misses`.
//! Deviations: an entry covers a frame of 4 KiB, whatever the size of the host's page, and records that size.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ENTRY_BITS, Entry, FillSource, Lines, LookUpPlace, TranslationUnit, UnitLookUp};
use pagelab_base::addr::{FRAME_SHIFT, MachineAddr, VirtAddr};
use pagelab_base::assoc::{AssocArray, AssocPolicy, array};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::rng::Rng;
use pagelab_base::translation::Translation;
use pagelab_tables::mmu_cache::Asid;

/// Parameters of a TLB that nested walks look up. Each core has one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NestedTlbConfig {
    /// Entries of the array, a multiple of `ways`.
    pub entries: u32,
    /// Ways per set; equal to `entries` for a fully associative array.
    pub ways: u32,
    /// Cycles of a look-up, hit or miss.
    pub latency_cycles: u32,
    /// Replacement policy of a full set.
    #[serde(default)]
    pub policy: AssocPolicy,
}

impl NestedTlbConfig {
    /// The array and its latency; `key` is the configuration key of the parameters.
    pub(super) fn array(&self, key: &str, rng: &Rng) -> Result<(AssocArray, Cycles), EngineError> {
        Ok((array(key, self.entries, self.ways, self.policy, rng)?, self.latency_cycles.into()))
    }

    /// Parameters for the tests of such TLBs.
    pub(super) fn samples() -> Vec<Self> {
        [(8, 2, AssocPolicy::Lru), (4, 4, AssocPolicy::TreePlru)]
            .map(|(entries, ways, policy)| Self { entries, ways, latency_cycles: 2, policy })
            .into()
    }
}

/// The unit, see the module's text.
#[derive(Clone, Debug)]
pub struct NestedTlb {
    array: AssocArray,
    latency: Cycles,
}

#[inline(always)]
fn frame(va: VirtAddr) -> u64 {
    va.page_number()
}

#[inline(always)]
fn key(asid: Asid, frame: u64) -> u64 {
    frame << 16 | u64::from(asid.0)
}

impl NestedTlb {
    /// The translation of an address; changes neither the order of entries nor counts.
    pub fn peek(&self, asid: Asid, va: VirtAddr) -> Option<Translation> {
        self.array.peek(frame(va), key(asid, frame(va))).map(Translation::from_word)
    }
}

impl TranslationUnit for NestedTlb {
    type Parameters = NestedTlbConfig;
    type Target = MachineAddr;

    const PLACE: LookUpPlace = LookUpPlace::HostPages;
    const STATISTICS: &'static str = "nested_tlb";

    fn new(parameters: &NestedTlbConfig, key: &str, rng: &Rng) -> Result<Self, EngineError> {
        let (array, latency) = parameters.array(key, rng)?;
        Ok(Self { array, latency })
    }

    fn samples() -> Vec<NestedTlbConfig> {
        NestedTlbConfig::samples()
    }

    #[inline(always)]
    fn look_up(&mut self, look_up: &UnitLookUp, _: &mut impl Lines, cycles: &mut Cycles) -> Option<Translation> {
        *cycles += self.latency;
        let frame = frame(look_up.va);
        let held = self.array.lookup(frame, key(look_up.asid, frame)).map(Translation::from_word);
        held.filter(|held| look_up.is_allowed_by(held))
    }

    fn holds(&self, asid: Asid, va: VirtAddr) -> bool {
        self.array.holds(frame(va), key(asid, frame(va)))
    }

    #[inline(always)]
    fn fill(&mut self, entry: &Entry, source: FillSource, _: &mut impl Lines) {
        match source {
            FillSource::Walk => {
                let frame = frame(entry.va);
                self.array.insert(frame, key(entry.asid, frame), entry.translation.to_word());
            }
            FillSource::Eviction | FillSource::Prefetch { .. } | FillSource::Free { .. } => {}
        }
    }

    fn invalidate(&mut self, asid: Asid, start: VirtAddr, end: VirtAddr, _: &mut impl Lines) {
        self.array.invalidate(|key, word| {
            let va = VirtAddr(key >> 16 << FRAME_SHIFT);
            let entry: Entry = Entry { asid: Asid(key as u16), va, translation: Translation::from_word(word) };
            entry.overlaps(asid, start, end)
        });
    }

    fn flush(&mut self, asid: Asid) {
        self.array.invalidate(|key, _| key & 0xffff == u64::from(asid.0));
    }

    fn storage_bits(&self) -> u64 {
        u64::from(self.array.sets()) * u64::from(self.array.ways()) * ENTRY_BITS
    }
}
