//! Statistics of page placement: contiguity, contiguity-aware paging and reservations.

use super::collector::Collector;
use pagelab_base::measure::Measure;
use pagelab_kernel::fault::stage::FaultCounters;
use pagelab_kernel::layer::Layer;

impl Collector {
    pub(super) fn contiguity(&mut self, layer: &str, state: &Layer, faults: &FaultCounters, runs_programs: bool) {
        let text = "Bytes of program memory that the layer's page-fault handler zeroed";
        self.add(Measure::bytes(format!("layer.{layer}.fault.zeroed_bytes"), faults.zeroed_bytes, text));
        for order in [3, 9] {
            let name = format!("layer.{layer}.frames.unusable_permille.order{order}");
            let text =
                format!("Thousandths of the free memory that are not in blocks of {} KiB or more", 4_u64 << order);
            self.state(name, state.unusable_free_permille(order), "permille", text);
        }
        if !runs_programs || self.brief {
            return;
        }
        let contiguity = state.measured_contiguity();
        for (what, count, text) in [
            (
                "groups",
                contiguity.groups,
                "Groups of eight pages in which main sources had anonymous memory at their end",
            ),
            (
                "pte_lines",
                contiguity.lines,
                "Cache lines of the host's PTEs for the frames of each of these groups, summed",
            ),
            ("full_groups", contiguity.full, "Groups whose eight pages are all mapped"),
            ("contiguous_groups", contiguity.contiguous, "Full groups whose frames are one aligned block"),
        ] {
            self.state(format!("layer.{layer}.contiguity.{what}"), count, "count", text);
        }
    }
}
