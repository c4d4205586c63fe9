//! Functions of a [`Stage`], which call those of its design.

use std::ops::Range;

use arrayvec::ArrayVec;

use super::{CoreLines, Counted, Entry, FillSource, MOST_PROPOSALS, PrefetchWalk, Stage, TranslationUnit, UnitLookUp};
use pagelab_base::addr::{LineAddr, VirtAddr};
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
    pub fn look_up(
        &mut self,
        look_up: &UnitLookUp,
        lines: &mut CoreLines<'_>,
        cycles: &mut Cycles,
    ) -> Option<Translation> {
        let held = each_stage!(self, unit => unit.look_up(look_up, lines, cycles));
        self.count_lines(lines);
        held
    }

    /// See [`TranslationUnit::holds`].
    pub fn holds(&self, asid: Asid, va: VirtAddr) -> bool {
        each_stage!(self, unit => unit.holds(asid, va))
    }

    /// See [`TranslationUnit::fill`].
    pub fn fill(&mut self, entry: &Entry, source: FillSource, lines: &mut CoreLines<'_>) {
        each_stage!(self, unit => unit.fill(entry, source, lines));
        self.count_lines(lines);
    }

    /// Counts the references that its design has just made; returns the cycles of those that write.
    fn count_lines(&mut self, lines: &mut CoreLines<'_>) -> Cycles {
        let counts = lines.take_counts();
        each_stage!(self, unit => unit.count_lines(&counts));
        counts.write_cycles
    }

    /// See [`TranslationUnit::memory_bytes`].
    pub fn memory_bytes(&self) -> u64 {
        each_stage!(self, unit => unit.memory_bytes())
    }

    /// See [`TranslationUnit::put_at`].
    pub fn put_at(&mut self, first: LineAddr) {
        each_stage!(self, unit => unit.put_at(first));
    }

    /// The lines of its memory; none before it has been [put](Self::put_at) there.
    pub fn memory(&self) -> Option<Range<LineAddr>> {
        each_stage!(self, unit => unit.memory())
    }

    /// See [`TranslationUnit::takes_free`].
    pub fn takes_free(&self) -> bool {
        each_stage!(self, unit => unit.takes_free())
    }

    /// See [`TranslationUnit::next_walks`].
    pub fn next_walks(
        &mut self,
        look_up: &UnitLookUp,
        found: Translation,
        lines: &mut CoreLines<'_>,
    ) -> ArrayVec<VirtAddr, MOST_PROPOSALS> {
        let pages = each_stage!(self, unit => unit.next_walks(look_up, found, lines));
        self.count_lines(lines);
        pages
    }

    /// See [`TranslationUnit::IS_FOR_CODE`].
    pub fn is_for_code(&self) -> bool {
        fn of_unit<U: TranslationUnit>(_: &Counted<U>) -> bool {
            U::IS_FOR_CODE
        }
        each_stage!(self, unit => of_unit(unit))
    }

    /// See [`TranslationUnit::WALKS_FOR_HELD`].
    pub fn walks_for_held(&self) -> bool {
        fn of_unit<U: TranslationUnit>(_: &Counted<U>) -> bool {
            U::WALKS_FOR_HELD
        }
        each_stage!(self, unit => of_unit(unit))
    }

    /// Counts a walk that the unit asked for.
    pub fn count_walk(&mut self, walk: &PrefetchWalk) {
        each_stage!(self, unit => unit.count_walk(walk));
    }

    /// See [`TranslationUnit::invalidate`]. Returns the cycles of its references.
    pub fn invalidate(&mut self, asid: Asid, start: VirtAddr, end: VirtAddr, lines: &mut CoreLines<'_>) -> Cycles {
        each_stage!(self, unit => unit.invalidate(asid, start, end, lines));
        self.count_lines(lines)
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
