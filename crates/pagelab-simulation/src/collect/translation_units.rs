//! Statistics of translation units, summed over all cores.

use crate::observe::statistics::Statistics;
use pagelab_base::measure::Measure;
use pagelab_translate::hardware::CoreUnits;
use pagelab_translate::translation_unit::{GuestTlb, NestedTlb, TranslationUnit, UnitCounts};

impl Statistics {
    pub(super) fn translation_units(&mut self, units: &[CoreUnits]) {
        self.unit_of_walks::<NestedTlb>(units, |core| core.nested.as_ref().map(|unit| unit.counts));
        self.unit_of_walks::<GuestTlb>(units, |core| core.guest.as_ref().map(|unit| unit.counts));
        // All cores have the same units.
        for index in 0..units.first().map_or(0, |core| core.stages.len()) {
            let all = units.iter().map(|core| core.stages[index].statistics());
            let sum = all.reduce(|mut sum, more| {
                add(&mut sum.measures, more.measures);
                sum
            });
            let mut sum = sum.expect("there is a core");
            if sum.are_timed {
                sum.measures = sum.measures.into_iter().map(Measure::timed).collect();
            }
            self.add_all(sum.prefix, sum.measures);
        }
    }

    /// Statistics of a unit that walks use. They are reported (as 0) even if the machine has no such unit.
    fn unit_of_walks<U: TranslationUnit>(&mut self, units: &[CoreUnits], counts: fn(&CoreUnits) -> Option<UnitCounts>) {
        let mut sum = UnitCounts::default().look_up_measures(U::PLACE).to_vec();
        units.iter().filter_map(counts).for_each(|more| add(&mut sum, more.look_up_measures(U::PLACE).into()));
        self.add_all(U::STATISTICS, sum);
    }
}

/// Adds the measures of another core.
fn add(sum: &mut [Measure], more: Vec<Measure>) {
    for (sum, more) in sum.iter_mut().zip(more) {
        assert_eq!(sum.name, more.name, "units of one design measure the same");
        sum.value += more.value;
    }
}
