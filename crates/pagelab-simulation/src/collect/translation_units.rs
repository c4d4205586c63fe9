//! Statistics of translation units, summed over all cores.

use super::collector::Collector;
use pagelab_base::measure::Measure;
use pagelab_translate::hardware::{CoreUnits, Hardware};
use pagelab_translate::translation_unit::{GuestTlb, NestedTlb, StageStatistics, TranslationUnit, UnitCounts};

impl Collector {
    pub(super) fn translation_units(&mut self, hw: &Hardware) {
        let units = &hw.units;
        self.unit_of_walks::<NestedTlb>(units, |core| core.nested.as_ref().map(|unit| unit.counts));
        self.unit_of_walks::<GuestTlb>(units, |core| core.guest.as_ref().map(|unit| unit.counts));
        // All cores have the same units.
        for index in 0..units.first().map_or(0, |core| core.stages.len()) {
            let all = units.iter().map(|core| core.stages[index].statistics());
            let sum = all.reduce(|sum, more| {
                let measures = summed(sum.measures, more.measures);
                StageStatistics { measures, ..sum }
            });
            self.stage(sum.expect("there is a core"));
        }
        hw.shared_stages.iter().for_each(|stage| self.stage(stage.statistics()));
    }

    fn stage(&mut self, mut stage: StageStatistics) {
        if stage.are_timed {
            stage.measures = stage.measures.into_iter().map(Measure::timed).collect();
        }
        self.add_all(stage.prefix, stage.measures);
    }

    /// Statistics of a unit that walks use. They are reported (as 0) even if the machine has no such unit.
    fn unit_of_walks<U: TranslationUnit>(&mut self, units: &[CoreUnits], counts: fn(&CoreUnits) -> Option<UnitCounts>) {
        let none = UnitCounts::default().look_up_measures(U::PLACE).to_vec();
        let all = units.iter().filter_map(counts).map(|more| more.look_up_measures(U::PLACE).into());
        self.add_all(U::STATISTICS, all.fold(none, summed));
    }
}

/// With the measures of another core.
pub(super) fn summed(mut sum: Vec<Measure>, more: Vec<Measure>) -> Vec<Measure> {
    for (sum, more) in sum.iter_mut().zip(more) {
        assert_eq!(sum.name, more.name, "units of one design measure the same");
        sum.value += more.value;
    }
    sum
}
