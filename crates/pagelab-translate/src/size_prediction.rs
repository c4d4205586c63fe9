//! Prediction of page sizes, for a second-level TLB whose pages of several sizes share an array.
//!
//! Models: the set of a page depends on its size, which is not known in advance. A table of two-bit counters says
//! whether a page is of 4 KiB or larger, and the array is looked up for that size. If it misses, it is looked up for
//! the other sizes, and only then the walk begins. The size that an access finds trains the counter: up to 3 for a
//! large page, down to 0 for a small one; from 2 on a page is predicted to be large.
//! Source: Papadopoulou et al., "Prediction-Based Superpage-Friendly TLB Designs", HPCA 2015, of which only notes were
//! at hand: a predictor of 32 bytes, 128 counters of two bits, indexed by the value of the base register. 4 and 10
//! cycles for a right and a wrong prediction are those of a reimplementation (CMU-SAFARI, Virtuoso).
//! Parameters: `machine.tlb.size_prediction`: `counters` (128), `index` (address), `second_cycles` (6).
//! Stats: `tlb.size_prediction.*`.
//! Deviations: a trace has no values of registers, so a counter is chosen by the address that is translated, or by that
//! of the instruction. The first level has no such array: it is looked up for all sizes at once. So are tables in
//! virtual memory. An array in which an entry can cover several pages is refused.
//! Choices: counters begin at 0. The hardware knows whether a large page has ever entered the TLB, for programs and for
//! kernels; until then there is no second look-up. Neither is there one for pages of a size that has another array.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tlb_organisation::TlbOrganisationConfig;
use pagelab_base::addr::{PageSize, VirtAddr};
use pagelab_base::counters;
use pagelab_base::cycles::Cycles;
use pagelab_base::error::{EngineError, between};
use pagelab_base::measure::Measure;

/// The largest value of a counter.
const MOST: u8 = 3;
/// A counter from which on a page is predicted to be large.
const LARGE: u8 = 2;

/// What chooses the counter of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SizeIndex {
    /// The address that is translated: each part of 2 MiB has a counter.
    #[default]
    Address,
    /// The address of the instruction. References without one, as those of kernels, are chosen by address.
    Pc,
}

/// Parameters of the prediction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SizePredictionConfig {
    /// Counters of a core, 1 to 65536.
    pub counters: u32,
    /// What chooses a page's counter.
    pub index: SizeIndex,
    /// Cycles of a second look-up of the array.
    pub second_cycles: u32,
}

impl Default for SizePredictionConfig {
    fn default() -> Self {
        Self { counters: 128, index: SizeIndex::Address, second_cycles: 6 }
    }
}

impl SizePredictionConfig {
    /// The key of its parameters.
    pub const KEY: &str = "machine.tlb.size_prediction";

    /// Refuses impossible parameters, and a second level for which there is nothing to predict. `arrays` are the page
    /// sizes and the organisation of each of its arrays.
    pub fn validate(&self, arrays: &[(&[PageSize], &TlbOrganisationConfig)]) -> Result<(), EngineError> {
        between(&format!("{}.counters", Self::KEY), self.counters, 1, 1 << 16)?;
        if let Some(at) = arrays.iter().position(|(_, organisation)| !organisation.is_of_pages()) {
            let what = format!(
                "machine.tlb.l2.{at}.organisation={} lets an entry cover several pages, and sizes are predicted for \
                 entries of one; allowed is pages, or size_prediction=off",
                arrays[at].1.name()
            );
            return Err(EngineError::config(Self::KEY, what));
        }
        if arrays.iter().any(|(pages, _)| pages.len() > 1 && pages.contains(&PageSize::Size4K)) {
            return Ok(());
        }
        let what = "no array of machine.tlb.l2 holds pages of 4K together with larger ones, so there is no size to \
                    predict; let one array hold both, or set this to off";
        Err(EngineError::config(Self::KEY, what))
    }
}

/// What is predicted of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeClass {
    /// 4 KiB.
    Small,
    /// More.
    Large,
}

impl SizeClass {
    /// The class of a size.
    pub fn of_size(size: PageSize) -> Self {
        if size == PageSize::Size4K { Self::Small } else { Self::Large }
    }
}

/// What a look-up of the array has found, whatever was predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizedLookUp {
    /// One attempt is enough: the array cannot hold both classes yet, or the page is in another array.
    Single,
    /// An entry of this class.
    Found(SizeClass),
    /// Nothing.
    Missed,
}

counters! {
    /// What became of predictions.
    pub struct SizeCounts {
        right: u64 as count("right", "Look-ups of the second-level TLB that found their page at the first attempt");
        wrong: u64 as count("wrong", "Look-ups that found their page at the second attempt: its size was not as predicted");
        missed: u64 as count("missed", "Look-ups that did not find their page at either attempt");
        single: u64 as count(
            "single",
            "Look-ups of one attempt, hit or miss: no large page had entered yet, or the page is in another array"
        );
    }
}

/// The predictor of a core.
#[derive(Clone, Debug)]
pub struct SizePredictor {
    counters: Vec<u8>,
    index: SizeIndex,
    second: Cycles,
    counts: SizeCounts,
}

impl SizePredictor {
    /// For validated parameters.
    pub fn new(config: &SizePredictionConfig) -> Self {
        let &SizePredictionConfig { counters, index, second_cycles } = config;
        let (counters, second) = (vec![0; counters as usize], second_cycles.into());
        Self { counters, index, second, counts: SizeCounts::default() }
    }

    fn counter(&mut self, va: VirtAddr, pc: u64) -> &mut u8 {
        let number = match self.index {
            SizeIndex::Pc if pc != 0 => pc,
            SizeIndex::Pc | SizeIndex::Address => va.0 >> PageSize::Size2M.shift(),
        };
        let count = self.counters.len() as u64;
        &mut self.counters[(number % count) as usize]
    }

    /// The cycles of a second attempt, if the look-up for `va` by the instruction at `pc` makes one.
    pub fn judge(&mut self, va: VirtAddr, pc: u64, outcome: SizedLookUp) -> Cycles {
        let predicted = if *self.counter(va, pc) >= LARGE { SizeClass::Large } else { SizeClass::Small };
        let (count, cycles) = match outcome {
            SizedLookUp::Single => (&mut self.counts.single, Cycles::ZERO),
            SizedLookUp::Found(class) if class == predicted => (&mut self.counts.right, Cycles::ZERO),
            SizedLookUp::Found(_) => (&mut self.counts.wrong, self.second),
            SizedLookUp::Missed => (&mut self.counts.missed, self.second),
        };
        *count += 1;
        cycles
    }

    /// Learns the class of the page that an access has found.
    pub fn learn(&mut self, va: VirtAddr, pc: u64, class: SizeClass) {
        let counter = self.counter(va, pc);
        *counter = match class {
            SizeClass::Small => counter.saturating_sub(1),
            SizeClass::Large => (*counter + 1).min(MOST),
        };
    }

    /// Its statistics.
    pub fn measures(&self) -> Vec<Measure> {
        let SizeCounts { wrong, missed, .. } = self.counts;
        let bits = 2 * self.counters.len() as u64;
        let text = "Bits of storage of the counters of all cores in use";
        let more = [
            Measure::cycles("cycles", (wrong + missed) * self.second, "Cycles of second attempts"),
            Measure::state("storage_bits", bits, "bits", text),
        ];
        self.counts.measures().into_iter().chain(more).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn predictor(counters: u32, index: SizeIndex) -> SizePredictor {
        SizePredictor::new(&SizePredictionConfig { counters, index, second_cycles: 6 })
    }

    /// Cycles of each second attempt for pages of these classes that a look-up finds, at one address.
    fn cycles(classes: &str) -> Vec<u64> {
        let mut unit = predictor(1, SizeIndex::Address);
        let class = |letter| if letter == 'L' { SizeClass::Large } else { SizeClass::Small };
        let judge = |letter| {
            let cycles = unit.judge(VirtAddr(0x1000), 0, SizedLookUp::Found(class(letter)));
            unit.learn(VirtAddr(0x1000), 0, class(letter));
            cycles.0
        };
        classes.chars().map(judge).collect()
    }

    #[test]
    fn two_pages_of_the_other_size_turn_a_counter() {
        assert_eq!(cycles("sLLLsLss"), [0, 6, 6, 0, 6, 0, 6, 6]);
        assert_eq!(cycles("LLLLLLsss"), [6, 6, 0, 0, 0, 0, 6, 6, 0], "it stops at 3");
    }

    #[test]
    fn a_counter_is_chosen_by_address_or_instruction() {
        let mib = |n: u64| VirtAddr(n << 20);
        let mut by_address = predictor(4, SizeIndex::Address);
        (0..2).for_each(|_| by_address.learn(mib(2), 0x40, SizeClass::Large));
        let mut is_large = |at, pc| by_address.judge(at, pc, SizedLookUp::Found(SizeClass::Large)) == Cycles::ZERO;
        assert_eq!([2, 3, 4, 10].map(|n| is_large(mib(n), 0x40)), [true, true, false, true], "four parts of 2 MiB");
        let mut by_pc = predictor(4, SizeIndex::Pc);
        (0..2).for_each(|_| by_pc.learn(mib(2), 0x41, SizeClass::Large));
        let mut is_large = |at, pc| by_pc.judge(at, pc, SizedLookUp::Found(SizeClass::Large)) == Cycles::ZERO;
        assert_eq!([0x41, 0x42, 0x45].map(|pc| is_large(mib(6), pc)), [true, false, true]);
        assert!(is_large(mib(2), 0) && !is_large(mib(4), 0), "without an instruction, by address");
    }

    #[test]
    fn each_look_up_ends_in_one_count() {
        let mut unit = predictor(1, SizeIndex::Address);
        let outcomes = [SizedLookUp::Single, SizedLookUp::Missed, SizedLookUp::Found(SizeClass::Large)];
        let cycles: u64 = outcomes.into_iter().map(|outcome| unit.judge(VirtAddr(0), 0, outcome).0).sum();
        assert_eq!((cycles, unit.counts), (12, SizeCounts { right: 0, wrong: 1, missed: 1, single: 1 }));
        let stated = unit.measures().into_iter().find(|measure| measure.name == "cycles");
        assert_eq!(stated.map(|measure| measure.value), Some(12));
    }
}
