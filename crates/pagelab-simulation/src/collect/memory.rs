//! Statistics of how a kernel places pages: contiguity, contiguity-aware paging and reservations.

use crate::observe::statistics::{Kind, Statistics};
use pagelab_base::cycles::Cycles;
use pagelab_base::measure::{Measure, StatKind};
use pagelab_kernel::fault::stage::FaultCounters;
use pagelab_kernel::layer::Layer;

impl Statistics {
    pub(super) fn contiguity(&mut self, layer: &str, of: &Layer, faults: &FaultCounters, runs_programs: bool) {
        let text = "Bytes of program memory that the layer's page-fault handler zeroed";
        self.put(format!("layer.{layer}.fault.zeroed_bytes"), faults.zeroed_bytes, "bytes", Kind::Robust, text);
        for order in [3, 9] {
            let name = format!("layer.{layer}.frames.unusable_permille.order{order}");
            let text =
                format!("Thousandths of the free memory that are not in blocks of {} KiB or more", 4_u64 << order);
            self.state(name, of.unusable_free_permille(order), "permille", text);
        }
        if !runs_programs || self.brief {
            return;
        }
        let contiguity = of.measured_contiguity();
        for (what, count, text) in [
            (
                "groups",
                contiguity.groups,
                "Groups of eight pages in which main sources had anonymous memory at their end",
            ),
            ("pte_lines", contiguity.lines, "Cache lines of the host's PTEs for the frames of these groups, added up"),
            ("full_groups", contiguity.full, "Groups among them whose eight pages are all mapped"),
            ("contiguous_groups", contiguity.contiguous, "Full groups whose frames are one aligned block"),
        ] {
            self.state(format!("layer.{layer}.contiguity.{what}"), count, "count", text);
        }
    }

    /// What a design measures of itself, behind the name of whatever has it.
    pub(super) fn measures(&mut self, of: &str, measures: Vec<Measure>) {
        self.measures_of_kind(of, Kind::Robust, measures);
    }

    /// The same, with counts of a kind.
    pub(super) fn measures_of_kind(&mut self, of: &str, kind: Kind, measures: Vec<Measure>) {
        for Measure { name, value, nature, text } in measures {
            let name = format!("{of}.{name}");
            match nature {
                StatKind::Count => self.put(name, value, "count", kind, text),
                StatKind::State(unit) => self.state(name, value, unit, text),
                StatKind::Cycles => self.cycles(name, Cycles(value), text),
            }
        }
    }
}
