//! Statistics of what was fetched before it was asked for, and of memory's nodes.

use crate::machine::simulation::Simulation;
use crate::observe::statistics::{Kind, Statistics};
use pagelab_hardware::cache::prefetch::{CacheLevel, PrefetchCounts};

impl Statistics {
    pub(super) fn prefetches(&mut self, simulation: &Simulation) {
        for (level, of) in CacheLevel::ALL.into_iter().zip(simulation.hw.caches.prefetched().into_iter().flatten()) {
            self.prefetches_of_level(level.name(), &of);
        }
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
