//! Statistics of hashed page tables.

use crate::base::addr::FRAME_BYTES;
use crate::kernel::layer::Layer;
use crate::observe::statistics::{Kind, Statistics};
use crate::page_table::elastic_cuckoo::CuckooCounters;
use crate::page_table::hashed::Counter;

impl Statistics {
    /// What a layer's hashed table holds at the end, and what scans for ended processes cost.
    pub(super) fn hashed_table(&mut self, layer: &Layer) {
        let Some(table) = &layer.hashed else { return };
        let prefix = format!("layer.{}.page_table", layer.name);
        let counter = |counter| table.geometry.counter(&layer.mem, counter);
        for (what, count, text) in [
            ("slots", table.geometry.slots(), "Slots of the hashed page table"),
            ("slots.used", counter(Counter::Used), "Slots among them in use at the end, or on chains"),
            ("slots.stale", counter(Counter::Stale), "Slots in use at the end by processes that have ended"),
            ("slots.deleted", counter(Counter::Deleted), "Slots at the end that hold nothing, but that searches pass"),
        ] {
            self.state(format!("{prefix}.{what}"), count, "count", text);
        }
        for (what, count, text) in [
            ("scan.count", table.scans.scans, "Scans over the table for the slots of ended processes"),
            ("scan.lines", table.scans.lines, "Lines that they read"),
            ("scan.deleted", table.scans.deleted, "Slots that they deleted"),
        ] {
            self.count(format!("{prefix}.{what}"), count, text);
        }
        self.put(
            format!("{prefix}.scan.cycles"),
            table.scans.cycles,
            "cycles",
            Kind::Timing,
            "Cycles of the scans, among cycles.kernel",
        );
    }

    /// How large a layer's elastic cuckoo tables became, and what their insertions did.
    pub(super) fn cuckoo_tables(&mut self, layer: &Layer) {
        if !layer.has_cuckoo_tables() {
            return;
        }
        let prefix = format!("layer.{}.page_table", layer.name);
        let counters = layer.table_work.cuckoo;
        let CuckooCounters { inserted, displaced, rehashed, upsizes, downsizes, most_used, way_frames } = counters;
        for (what, value, unit, text) in [
            ("slots", counters.most_lines(), "count", "Lines of the largest elastic cuckoo table that there was"),
            ("slots.used", most_used, "count", "The most lines that a table had in use"),
            ("way_bytes", way_frames * FRAME_BYTES, "bytes", "The largest contiguous block that a way took"),
        ] {
            self.state(format!("{prefix}.{what}"), value, unit, text);
        }
        for (what, count, text) in [
            ("inserted", inserted, "Lines that got a place in an elastic cuckoo table"),
            ("displaced", displaced, "Lines that made room for them or for those that moved"),
            ("rehash.count", upsizes + downsizes, "Times that a table began to move to one of another size"),
            ("rehash.smaller", downsizes, "Times among them that it was to a smaller one"),
            ("rehash.lines", rehashed, "Lines that moved"),
        ] {
            self.count(format!("{prefix}.{what}"), count, text);
        }
    }
}
