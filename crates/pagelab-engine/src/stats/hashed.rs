//! Statistics of hashed page tables.

use super::{Kind, Statistics};
use crate::layer::Layer;
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
}
