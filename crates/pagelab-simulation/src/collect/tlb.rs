//! Statistics of the TLBs.

use super::collector::Collector;
use super::translation_units::summed;
use crate::machine::scheduler::Scheduler;
use pagelab_translate::counters::{LevelCounters, TLB_DATA, TLB_FETCH, TLB_KERNEL, TlbCounters};
use pagelab_translate::hardware::{CoreUnits, Hardware};
use pagelab_translate::size_prediction::SizePredictor;
use pagelab_translate::speculation::Speculator;
use pagelab_translate::tlb::Tlb;
use pagelab_translate::tlb_organisation::OrganisedLevel;

/// A level of TLBs: its name, its counters, and what a look-up that misses it has missed.
type Level = (&'static str, fn(&TlbCounters) -> &LevelCounters, &'static str);

const LEVELS: [Level; 2] = [("l1", |tlb| &tlb.l1, "the first-level TLB"), ("l2", |tlb| &tlb.l2, "both levels")];

/// The TLBs of a core by name.
type NamedTlb = (&'static str, fn(&CoreUnits) -> &Tlb);

const TLBS: [NamedTlb; 3] = [("l1d", |unit| &unit.l1d), ("l1i", |unit| &unit.l1i), ("l2", |unit| &unit.l2)];

impl Collector {
    /// What entries of several pages do, summed over the cores.
    pub(super) fn tlb_organisations(&mut self, hw: &Hardware) {
        for (name, tlb) in TLBS {
            let levels = hw.units.iter().filter_map(|unit| tlb(unit).organised());
            if let Some(sum) = levels.map(OrganisedLevel::measures).reduce(summed) {
                self.add_all(&format!("tlb.{name}"), sum);
            }
        }
    }

    /// What became of guesses of frames, summed over the cores.
    pub(super) fn guesses(&mut self, hw: &Hardware) {
        let units = hw.units.iter().filter_map(|unit| unit.speculation.as_deref());
        if let Some(sum) = units.map(Speculator::measures).reduce(summed) {
            self.add_all("tlb.speculation", sum);
        }
    }

    /// What became of predictions of page sizes, summed over the cores.
    pub(super) fn size_predictions(&mut self, hw: &Hardware) {
        let units = hw.units.iter().filter_map(|unit| unit.size_prediction.as_deref());
        if let Some(sum) = units.map(SizePredictor::measures).reduce(summed) {
            self.add_all("tlb.size_prediction", sum);
        }
    }

    pub(super) fn tlbs(&mut self, scheduler: &Scheduler, hw: &Hardware) {
        let look_ups = scheduler.cpus.iter().map(|cpu| cpu.counters.filtered + cpu.counters.pieces).sum();
        self.count("dtlb.l1.look_ups", look_ups, "Data look-ups of the programs: one per cache line touched");
        let all = |get: &dyn Fn(&TlbCounters) -> u64| hw.units.iter().map(|unit| get(&unit.tlb)).sum::<u64>();
        for (prefix, kind, who) in [
            ("dtlb", TLB_DATA, "Data look-ups"),
            ("itlb", TLB_FETCH, "Instruction look-ups"),
            ("tlb.kernel", TLB_KERNEL, "Look-ups of the kernels' direct maps"),
        ] {
            for (level, counters, missed) in LEVELS {
                let name = |what: &str| format!("{prefix}.{level}.{what}");
                let fetch = if (kind, level) == (TLB_FETCH, "l1") {
                    "; looked up where the page of the program counter of recorded accesses changes"
                } else {
                    ""
                };
                let text = format!("{who} that missed {missed}{fetch}");
                self.count(name("misses"), all(&|tlb| counters(tlb).misses[kind]), text);
                if kind != TLB_FETCH {
                    let text = format!(
                        "{who} for stores that found their page read-only or clean in the TLB of level {}; they are handled like misses",
                        &level[1..]
                    );
                    self.count(name("unwritable"), all(&|tlb| counters(tlb).unwritable[kind]), text);
                }
                if kind != TLB_KERNEL {
                    let text = format!(
                        "{who} of retries after a page fault that did not hit the TLB of level {}; not included in the others",
                        &level[1..]
                    );
                    self.count(name("retries"), all(&|tlb| counters(tlb).retries[kind]), text);
                }
            }
        }
    }
}
