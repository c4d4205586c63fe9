//! Statistics of how a kernel places pages: contiguity, contiguity-aware paging and reservations.

use crate::kernel::fault::stage::FaultCounters;
use crate::kernel::layer::Layer;
use crate::kernel::placement::ca_paging::CaPagingCounters;
use crate::kernel::placement::reservations::{End, Reservations};
use crate::observe::statistics::{Kind, Statistics};

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
        if !runs_programs {
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

    pub(super) fn ca_paging(&mut self, layer: &str, of: &CaPagingCounters) {
        for (what, count, text) in [
            ("placed", of.placed, "Places chosen for mappings that had none"),
            ("placed_again", of.placed_again, "Places chosen for the rest of a mapping whose frame was taken"),
            ("no_run", of.no_run, "Times that there was no free block of the largest order to choose"),
            ("forgotten", of.forgotten, "Offsets of mappings that newer ones took the place of"),
            ("hits", of.hits, "Pages that got the frame that continues their mapping's"),
            ("misses", of.misses, "Frames asked for that were not free"),
        ] {
            self.count(format!("layer.{layer}.ca_paging.{what}"), count, text);
        }
    }

    pub(super) fn reservations(&mut self, layer: &str, of: &Reservations) {
        let counters = &of.counters;
        for (what, count, text) in [
            ("made", counters.made, "Blocks reserved for groups of pages"),
            ("given", counters.given, "Pages given out of them"),
            ("no_block", counters.no_block, "Groups for which the allocator had no block"),
        ] {
            self.count(format!("layer.{layer}.reservations.{what}"), count, text);
        }
        for (end, what, text) in End::ALL {
            let text = format!("Reservations that ended because {text}");
            self.count(format!("layer.{layer}.reservations.ended.{what}"), counters.ended[end as usize], text);
        }
        let bytes = |frames: u64| frames * crate::base::addr::FRAME_BYTES;
        let name = format!("layer.{layer}.reservations.unused_bytes");
        self.state(name, bytes(of.unused_frames()), "bytes", "Memory reserved and not given out at the end");
        let name = format!("layer.{layer}.reservations.peak_unused_bytes");
        self.state(name, bytes(counters.peak_unused), "bytes", "Most memory reserved and not given out");
    }
}
