//! Statistics of what was fetched before it was asked for, and of memory's nodes.

use crate::machine::simulation::Simulation;
use crate::observe::statistics::{Kind, Statistics};
use pagelab_hardware::cache::HitLevel;
use pagelab_hardware::cache::prefetch::{CacheLevel, PrefetchCounts};
use pagelab_translate::next_page::NextPageCounts;

impl Statistics {
    pub(super) fn prefetches(&mut self, simulation: &Simulation) {
        for (level, of) in CacheLevel::ALL.into_iter().zip(simulation.hw.caches.prefetched().into_iter().flatten()) {
            self.prefetches_of_level(level.name(), &of);
        }
        if let Some(of) = simulation.hw.next_pages() {
            self.next_pages(&of);
        }
    }

    fn next_pages(&mut self, of: &NextPageCounts) {
        let places: [(&str, HitLevel, &str); 5] = [
            ("l1", HitLevel::L1, "the first-level data cache"),
            ("l2", HitLevel::L2, "the second-level cache"),
            ("l3", HitLevel::L3, "the last-level cache"),
            ("dram", HitLevel::Dram, "memory"),
            ("remote", HitLevel::Remote, "another core's cache"),
        ];
        for (what, value, text) in [
            ("walks", of.walks, "Walks for the page behind one that missed the TLBs; not among walk.count"),
            ("unmapped", of.unmapped, "Those of them that found no translation, or a page that was never accessed"),
            ("entered", of.entered, "Translations that they entered in the buffer"),
            ("useful", of.useful, "Prefetched translations that were there when they were asked for"),
            ("late", of.late, "Prefetched translations that were still under way when they were asked for"),
            (
                "useless",
                of.useless,
                "Prefetched translations that left before anyone asked for them, or did not allow the store that did",
            ),
            ("refs", of.refs.iter().sum(), "Memory references of these walks; not among cache.refs.walk"),
        ] {
            self.put(format!("prefetch.tlb.{what}"), value, "count", Kind::Timing, text);
        }
        for (name, place, text) in places {
            let text = format!("References of these walks that {text} served");
            self.put(format!("prefetch.tlb.refs.{name}"), of.refs[place as usize], "count", Kind::Timing, text);
        }
        self.cycles("prefetch.tlb.cycles", of.cycles, "Cycles of these walks, which nobody waits for");
        self.cycles(
            "prefetch.tlb.late_cycles",
            of.late_cycles,
            "Cycles that programs waited for late translations; among cycles.translation",
        );
        self.state("prefetch.tlb.unused", of.unused, "count", "Prefetched translations that nobody has asked for");
    }

    pub(super) fn nodes_of_memory(&mut self, simulation: &Simulation) {
        for (number, of) in simulation.hw.caches.memory_counts().iter().flatten().enumerate() {
            let name = |what: &str| format!("memory.node.{number}.{what}");
            for (what, value, text) in [
                ("reads", of.reads, "Lines of this node of memory that programs, walks and kernels read"),
                ("remote", of.remote, "Those among them that cores of other nodes read"),
                ("prefetches", of.prefetches, "Lines of this node that prefetchers read"),
                ("writes", of.writes, "Lines that were written back to this node"),
                ("queued", of.queued, "Reads of this node that waited until its channel was free"),
            ] {
                self.put(name(what), value, "count", Kind::Timing, text);
            }
            let text =
                "Cycles that reads of this node waited until its channel was free; within the latencies that they had";
            self.cycles(name("queue_cycles"), of.queue_cycles, text);
        }
    }

    fn prefetches_of_level(&mut self, level: &str, of: &PrefetchCounts) {
        let name = |what: &str| format!("prefetch.{level}.{what}");
        for (what, value, text) in [
            ("issued", of.issued, "Lines prefetched into this level"),
            ("from_memory", of.from_memory, "Those among them that memory served"),
            ("useful", of.useful, "Prefetched lines that were there when they were first asked for"),
            ("late", of.late, "Prefetched lines that were still under way when they were first asked for"),
            ("useless", of.useless, "Prefetched lines that left the level before anyone asked for them"),
            ("dropped.border", of.dropped_at_border, "Times that its border cut a prefetcher off"),
            ("dropped.busy", of.dropped_busy, "Prefetches for which no buffer was free"),
            ("used_by_walks", of.used_by_walks, "Useful and late lines that a page walk was the first to ask for"),
            (
                "walk_misses",
                of.walk_misses,
                "References of page walks that missed this level since a prefetch had taken the line's place; of the last victims alone",
            ),
        ] {
            self.put(name(what), value, "count", Kind::Timing, text);
        }
        self.cycles(
            name("late_cycles"),
            of.late_cycles,
            "Cycles that late lines came after the hit that they would have been",
        );
        self.state(name("unused"), of.unused, "count", "Prefetched lines in this level that nobody has asked for");
    }
}
