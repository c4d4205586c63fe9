//! Functions of a [`Stage`], which call those of its design.

use arrayvec::ArrayVec;

use super::{Counted, Entry, FillSource, MOST_PROPOSALS, PrefetchWalk, Stage, TranslationUnit, UnitLookUp};
use pagelab_base::addr::VirtAddr;
use pagelab_base::cycles::Cycles;
use pagelab_base::measure::Measure;
use pagelab_base::translation::Translation;
use pagelab_tables::mmu_cache::Asid;

/// Statistics of a stage.
#[derive(Clone, Debug)]
pub struct StageStatistics {
    /// Prefix of their names.
    pub prefix: &'static str,
    /// Whether they depend on timing: what is prefetched, and when it arrives.
    pub are_timed: bool,
    /// The statistics.
    pub measures: Vec<Measure>,
}

/// See [`TranslationUnit`] for what each of these does.
impl Stage {
    /// See [`TranslationUnit::look_up`].
    pub fn look_up(&mut self, look_up: &UnitLookUp, cycles: &mut Cycles) -> Option<Translation> {
        each_stage!(self, unit => unit.look_up(look_up, cycles))
    }

    /// See [`TranslationUnit::holds`].
    pub fn holds(&self, asid: Asid, va: VirtAddr) -> bool {
        each_stage!(self, unit => unit.holds(asid, va))
    }

    /// See [`TranslationUnit::fill`].
    pub fn fill(&mut self, entry: &Entry, source: FillSource) {
        each_stage!(self, unit => unit.fill(entry, source));
    }

    /// See [`TranslationUnit::next_walks`].
    pub fn next_walks(&mut self, look_up: &UnitLookUp, found: Translation) -> ArrayVec<VirtAddr, MOST_PROPOSALS> {
        each_stage!(self, unit => unit.next_walks(look_up, found))
    }

    /// Counts a walk that the unit asked for.
    pub fn count_walk(&mut self, walk: &PrefetchWalk) {
        each_stage!(self, unit => unit.count_walk(walk));
    }

    /// See [`TranslationUnit::invalidate`].
    pub fn invalidate(&mut self, asid: Asid, start: VirtAddr, end: VirtAddr) {
        each_stage!(self, unit => unit.invalidate(asid, start, end));
    }

    /// See [`TranslationUnit::flush`].
    pub fn flush(&mut self, asid: Asid) {
        each_stage!(self, unit => unit.flush(asid));
    }

    /// All statistics of the stage.
    pub fn statistics(&self) -> StageStatistics {
        fn from_unit<U: TranslationUnit>(unit: &Counted<U>) -> StageStatistics {
            StageStatistics { prefix: U::STATISTICS, are_timed: U::PREFETCHES, measures: unit.stage_measures() }
        }
        each_stage!(self, unit => from_unit(unit))
    }
}
