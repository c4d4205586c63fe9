//! Collects the statistics of a simulation, during the run or after its end.

pub(crate) mod check;
mod collector;
mod instruction_cache;
mod kernel;
mod locks;
mod memory;
mod prefetch;
mod sources;
mod tlb;
mod translation_cache;
mod translation_units;

use self::collector::Collector;
use crate::machine::cpu::{AccessCounters, ByKernel};
use crate::machine::kernels::Kernels;
use crate::machine::scheduler::Scheduler;
use crate::machine::simulation::Simulation;
use pagelab_base::cycles::Cycles;
use pagelab_base::measure::{Measure, StatKind};
use pagelab_hardware::cache::{CoreCacheStats, Hierarchy, HitLevel, Requester};
use pagelab_hardware::core_model::clock::Class;
use pagelab_kernel::os::Os;
use pagelab_run::observe::statistics::Statistics;
use pagelab_tables::mmu_cache::SegmentCounts;
use pagelab_translate::counters::{
    AbortedWalks, FrameTagCounters, PLACE_NAMES, SegmentCounters, SpeculationCounters, WALK_LEVELS, WALK_PLACES,
    WalkCounters, WalkCounts,
};
use pagelab_translate::hardware::Hardware;

/// Meaning of the statistics `walk.aborted`.
const ABORTED: &str = "page walks that ended in a page fault";

impl Simulation {
    /// All statistics of a simulation that has ended.
    pub fn statistics(&self) -> Statistics {
        Collector(Statistics::default()).with(self)
    }

    /// The counts of a simulation so far, without states and without descriptions.
    pub(crate) fn counts(&self) -> Statistics {
        Collector(Statistics { brief: true, ..Statistics::default() }).with(self)
    }
}

impl Collector {
    fn with(self, simulation: &Simulation) -> Statistics {
        let mut stats = self;
        let Simulation { hw, kernels, scheduler, .. } = simulation;
        stats.program(scheduler, &hw.walks);
        stats.kernel_branches(scheduler, kernels);
        stats.clocks(scheduler);
        stats.tlbs(scheduler, hw);
        stats.tlb_organisations(hw);
        stats.translation_units(hw);
        stats.guesses(hw);
        stats.size_predictions(hw);
        stats.walks(hw, &kernels.os);
        stats.caches(scheduler, &hw.caches);
        stats.instruction_caches(&hw.caches);
        stats.prefetches(&hw.caches);
        stats.nodes_of_memory(&hw.caches);
        stats.faults(kernels);
        stats.locks(kernels, scheduler, &hw.caches);
        stats.translation_caches(kernels);
        stats.layers(kernels);
        stats.sources(simulation);
        stats.0
    }

    fn kernel_branches(&mut self, scheduler: &Scheduler, kernels: &Kernels) {
        if let (Some(branches), true) = (scheduler.branches(), kernels.branches.is_some()) {
            self.count("branches.kernel", branches.kernel, "Conditional branches of the kernels");
            let text = "Conditional branches of the kernels that the cores' predictors mispredicted";
            self.count("branches.kernel.mispredicted", branches.kernel_mispredicted, text);
        }
    }

    fn program(&mut self, scheduler: &Scheduler, walks: &WalkCounters) {
        let total = |get: fn(&AccessCounters) -> u64| scheduler.cpus.iter().map(|cpu| get(&cpu.counters)).sum();
        self.count(
            "accesses",
            total(|c| c.accesses),
            "Memory accesses of the programs, instruction fetches that were recorded included",
        );
        self.count("accesses.writes", total(|c| c.writes), "Stores and modifies");
        self.count("accesses.fetches", total(|c| c.fetches), "Recorded first fetches of code pages");
        self.count(
            "accesses.refused",
            total(|c| c.refused),
            "Accesses that no mapping covers or that the mapping forbids; they were skipped",
        );
        let instructions = scheduler.cpus.iter().map(|cpu| cpu.clock.instructions()).sum();
        self.count("instructions", instructions, "Instructions of the programs");
        if let Some(branches) = scheduler.branches() {
            self.count("branches", branches.met, "Conditional branches in the sources");
            let text = "Conditional branches that the core's predictor mispredicted";
            self.count("branches.mispredicted", branches.mispredicted, text);
        }
        self.count("context_switches", total(|c| c.context_switches), "Times that a CPU switched to another thread");
        self.count("preemptions", total(|c| c.preemptions), "Times that a thread lost its CPU though it could go on");
        self.count(
            "cut_slices",
            total(|c| c.cut_slices),
            "Times that a thread lost its CPU before the end of its slice, as `engine.input_window_accesses` was full",
        );
        self.by_kernel(scheduler, walks);
    }

    /// Accesses that the trace attributes to a kernel; they are included in those of the programs.
    fn by_kernel(&mut self, scheduler: &Scheduler, walks: &WalkCounters) {
        let total = |get: &dyn Fn(&ByKernel) -> u64| -> u64 {
            scheduler.cpus.iter().map(|cpu| get(&cpu.counters.by_kernel)).sum()
        };
        let text = "Accesses that the trace attributes to a kernel: to user memory in system calls, or all accesses of a \
                    recorded kernel";
        self.count("accesses.by_kernel", total(&|c| c.accesses), text);
        let text = "Instructions of these accesses; included in instructions";
        self.count("accesses.by_kernel.instructions", total(&|c| c.instructions), text);
        let text = "Cycles of these accesses; included in cycles.base, cycles.data_stall and cycles.translation";
        let all = Cycles(total(&|c| c.cycles.iter().map(|cycles| cycles.0).sum()));
        self.cycles("accesses.by_kernel.cycles", all, text);
        for (index, class) in ["base", "data_stall", "translation"].into_iter().enumerate() {
            let text = format!("Cycles of these accesses in cycles.{class}");
            self.cycles(format!("accesses.by_kernel.cycles.{class}"), Cycles(total(&|c| c.cycles[index].0)), text);
        }
        let text = "Line references of these accesses";
        self.count("accesses.by_kernel.refs", total(&|c| c.refs.iter().sum()), text);
        for (place, name) in PLACE_NAMES.iter().enumerate() {
            let text = format!("{text} {}", PLACE_TEXT[place]);
            self.count(format!("accesses.by_kernel.refs.{name}"), total(&|c| c.refs[place]), text);
        }
        for (index, (level, text)) in [("l1", "the first-level TLB"), ("l2", "both levels")].into_iter().enumerate() {
            let text = format!("Data look-ups of these accesses that missed {text}; included in dtlb.{level}.misses");
            self.count(format!("accesses.by_kernel.dtlb.{level}.misses"), total(&|c| c.tlb_misses[index]), text);
        }
        let walks = &walks.by_kernel;
        let text = "completed page walks of these accesses; included in those of the programs";
        self.count("accesses.by_kernel.walk.count", walks.count, format!("Number of {text}"));
        self.cycles("accesses.by_kernel.walk.cycles", walks.cycles, format!("Cycles of {text}"));
        self.walk_refs("accesses.by_kernel.walk", walks, StatKind::Robust, text);
    }

    /// Cycles of the CPUs that run programs. CPUs for kernel threads alone are excluded.
    fn clocks(&mut self, scheduler: &Scheduler) {
        let spent = |class| scheduler.program_cpus().map(|cpu| cpu.clock.spent(class)).sum();
        let total = scheduler.program_cpus().map(|cpu| cpu.clock.now()).sum();
        self.cycles("cycles", total, "Cycles of all CPUs in use; the classes below sum to it");
        self.cycles("elapsed_cycles", scheduler.elapsed(), "Cycles from the start to the end of the last CPU");
        let cpus = scheduler.program_cpus().count() as u64;
        self.state("cpus", cpus, "count", "CPUs (hardware threads) in use by programs");
        for (class, name, text) in classes(scheduler) {
            self.cycles(format!("cycles.{name}"), spent(*class), format!("Cycles of {text}"));
        }
    }

    fn walks(&mut self, hw: &Hardware, os: &Os) {
        let (walks, all) = (&hw.walks, hw.walks.total());
        for (prefix, counts, text) in [
            ("walk", &all.program, "completed page walks of the programs"),
            ("walk.kernel", &all.kernel, "completed page walks of the kernels' direct maps"),
            ("walk.aborted", &all.aborted.total(), ABORTED),
        ] {
            self.count(format!("{prefix}.count"), counts.count, format!("Number of {text}"));
            self.cycles(format!("{prefix}.cycles"), counts.cycles, format!("Cycles of {text}"));
            self.walk_refs(prefix, counts, StatKind::Robust, text);
        }
        self.aborted_walks("walk.aborted", &all.aborted, StatKind::Robust, ABORTED);
        self.count(
            "walk.dirty.count",
            walks.dirty_walks,
            "Page walks of the programs only to set a dirty bit; included in walk.count",
        );
        self.count(
            "walk.accessed_dirty_updates",
            walks.ad_updates,
            "Locked updates of accessed and dirty bits by walkers; not included in walk.refs",
        );
        if os.layers.iter().any(|layer| layer.paging.shadowed) {
            self.shadows(hw, os);
        }
        if hw.segments {
            self.segments(&hw.segment);
        }
        if hw.virtual_tables {
            let text = "References of walks to page tables in virtual memory that the TLBs were asked for";
            self.count("pinned_table.translations", hw.pinned.translations, text);
            let text = "Those that no TLB held, after which the direct map was walked; its references are in walk.refs";
            self.count("pinned_table.misses", hw.pinned.misses, text);
        }
        if hw.speculative.is_some() {
            self.speculation(&hw.speculation);
        }
        if let Some(checks) = &hw.tag_checks {
            self.frame_tags(&checks.counters);
        }
        for (layer, refs) in os.layers.iter().zip(&all.program.refs) {
            self.layer_walks("walk", &layer.name, refs, StatKind::Robust, "the programs' walks");
        }
        for (index, layer) in os.layers.iter().enumerate() {
            if let Some(counts) = hw.mmu_caches.segment_counts(index.into()) {
                self.segment_lookaside(&format!("layer.{}.mmu_cache.segments", layer.name), &counts);
            }
        }
    }

    /// Aborted walks by what they were made for.
    fn aborted_walks(&mut self, prefix: &str, walks: &AbortedWalks, kind: StatKind, text: &str) {
        for (name, counts, what) in [
            ("program", &walks.program, "accesses of programs; their cycles are in cycles.translation"),
            ("kernel", &walks.kernel, "references of kernel code; their cycles are in the classes of that code"),
        ] {
            let (prefix, text) = (format!("{prefix}.{name}"), format!("{text}, for {what}"));
            let count = Measure::count(format!("{prefix}.count"), counts.count, format!("Number of {text}"));
            self.add(count.with_kind(kind));
            self.cycles(format!("{prefix}.cycles"), counts.cycles, format!("Cycles of {text}"));
        }
    }

    /// Counts of a layer's segment look-aside buffers.
    fn segment_lookaside(&mut self, name: &str, counts: &SegmentCounts) {
        let SegmentCounts { hits, misses, handler_cycles, switches, invalidated } = *counts;
        self.count(format!("{name}.hits"), hits, "Walks whose segment was in the segment look-aside buffer");
        self.count(format!("{name}.misses"), misses, "Walks whose segment was not, aborted ones included");
        let text = "Cycles of the kernel's handlers of these misses without their references, part of the walks'";
        self.cycles(format!("{name}.handler_cycles"), handler_cycles, text);
        let text = "Switches to another process that dropped the entries, when a walk followed";
        self.count(format!("{name}.switches"), switches, text);
        let text = "Entries that the kernel dropped, as processes began or ceased to share their segments (`slbie`), or \
                    with all translations of a process";
        self.count(format!("{name}.invalidated"), invalidated, text);
    }

    /// References of walks over all layers, by place; `text` says which walks.
    fn walk_refs(&mut self, prefix: &str, counts: &WalkCounts, kind: StatKind, text: &str) {
        let refs = counts.refs.iter().flatten().flatten().sum();
        let whole = format!("Memory references of {text}, over all layers");
        self.add(Measure::count(format!("{prefix}.refs"), refs, whole).with_kind(kind));
        for (place, name) in PLACE_NAMES.iter().enumerate() {
            let served = counts.refs.iter().flatten().map(|places| places[place]).sum();
            let part = format!("References of {text} {}", PLACE_TEXT[place]);
            self.add(Measure::count(format!("{prefix}.refs.{name}"), served, part).with_kind(kind));
        }
    }

    fn shadows(&mut self, hw: &Hardware, os: &Os) {
        let shadow = &hw.shadow;
        let writes: u64 = os.faults.iter().map(|faults| faults.table_exits).sum();
        let causes = [
            (
                "misses",
                shadow.misses,
                "Walks of a shadow page table that found no translation, or none that allows the store",
            ),
            ("table_writes", writes, "Steps of guests' page-fault handlers that wrote to their page tables"),
            (
                "invalidations",
                shadow.invalidations,
                "Translations, or whole spaces, that guests with shadow page tables invalidated",
            ),
            ("switches", shadow.switches, "Switches of guests with shadow page tables between address spaces"),
        ];
        let exits = causes.iter().map(|(_, count, _)| count).sum();
        self.count("shadow.exits", exits, "Exits of guests with shadow page tables to the hypervisor");
        for (cause, count, text) in causes {
            self.count(format!("shadow.exits.{cause}"), count, text);
        }
        if os.layers.iter().any(|layer| layer.paging.inverted) {
            let text = "Slots of the inverted shadow table that held another page when the hypervisor filled them";
            self.count("shadow.replaced", shadow.replaced, text);
        }
        self.cycles(
            "shadow.exit_cycles",
            shadow.cycles + writes * hw.vm_exit_cycles,
            "Cycles of these exits: misses count in cycles.translation with their references, table writes in cycles.fault, \
             the others in cycles.kernel",
        );
    }

    fn segments(&mut self, segment: &SegmentCounters) {
        let text = "Look-ups that direct segments answered instead of the TLBs; included in dtlb.l1.look_ups but not in its misses. Accesses to \
                    the page of the last access are not counted again";
        self.timed_count("segment.translations", segment.translations, text);
        let text = "Addresses that direct segments translated during walks, instead of a layer's page table";
        self.count("segment.walk_translations", segment.walk_translations, text);
    }

    fn frame_tags(&mut self, tags: &FrameTagCounters) {
        for (name, value, text) in [
            ("walks", tags.walks, "Walks of programs' own arrays that found a translation; included in walk.count"),
            ("look_ups", tags.look_ups, "Look-ups of tag caches by these walks"),
            ("refs", tags.refs, "Lines of tags that these look-ups read from memory; not included in walk.refs"),
            ("writes", tags.writes, "Tags that kernels wrote since the frame had another owner"),
            ("grants", tags.grants, "Exits of guests in which the hypervisor told them where frames are"),
            ("granted_frames", tags.granted_frames, "Frames whose place guests were told in these exits"),
        ] {
            self.count(format!("frame_tags.{name}"), value, text);
        }
        let text = "Cycles of these exits with the tags that the hypervisor wrote; included in cycles.translation";
        self.cycles("frame_tags.grant_cycles", tags.grant_cycles, text);
    }

    fn speculation(&mut self, counters: &SpeculationCounters) {
        for (name, value, text) in [
            (
                "right",
                counters.right,
                "Walks of the programs whose page the speculative table held and the walk confirmed",
            ),
            (
                "wrong",
                counters.wrong,
                "Walks of the programs after which the pipeline was flushed: the table held another frame, or a page that faults",
            ),
            (
                "missed",
                counters.missed,
                "Walks of the programs whose page was not in the speculative table, or not for stores",
            ),
            ("updates", counters.updates, "Slots of the speculative table that these walks wrote"),
            (
                "refs.critical",
                counters.critical_refs,
                "References that the programs waited for: one look-up if the speculation was right, otherwise the references of the walk",
            ),
            (
                "refs.all",
                counters.all_refs,
                "References of completed walks of the programs, look-ups and updates of the speculative table included",
            ),
        ] {
            self.count(format!("speculation.{name}"), value, text);
        }
        self.cycles(
            "speculation.hidden_cycles",
            counters.hidden_cycles,
            "Cycles of the programs' walks that they did not wait for, beyond walk.cycles",
        );
    }

    /// References of walks to one layer's page tables, by level and place; `text` says which walks.
    fn layer_walks(
        &mut self,
        prefix: &str,
        layer: &str,
        refs: &[[u64; WALK_PLACES]; WALK_LEVELS],
        kind: StatKind,
        text: &str,
    ) {
        for (level, places) in refs.iter().enumerate().skip(1) {
            let total: u64 = places.iter().sum();
            if total == 0 {
                continue;
            }
            let name = format!("{prefix}.layer.{layer}.level{level}.refs");
            let text = format!("References of {text} to level-{level} entries of layer `{layer}`");
            self.add(Measure::count(&name, total, &text).with_kind(kind));
            for (place, &served) in places.iter().enumerate() {
                let text = format!("{text} {}", PLACE_TEXT[place]);
                let name = format!("{name}.{}", PLACE_NAMES[place]);
                self.add(Measure::count(name, served, text).with_kind(kind));
            }
        }
    }

    fn caches(&mut self, scheduler: &Scheduler, caches: &Hierarchy) {
        let stats = caches.stats();
        let total: CoreCacheStats = stats.total();
        let filtered: u64 = scheduler.cpus.iter().map(|cpu| cpu.counters.filtered).sum();
        let requesters = [(Requester::Data, "data"), (Requester::Walk, "walk"), (Requester::Kernel, "kernel")];
        let beyond = |requester, places: &[HitLevel]| places.iter().map(|&p| total.served(requester, p)).sum::<u64>();
        use HitLevel::{Dram, L2, L3, Remote};
        for (index, (level, places, text)) in [
            ("l1d", &[L2, L3, Remote, Dram][..], "the first-level data cache"),
            ("l2", &[L3, Remote, Dram][..], "the second-level cache"),
            ("l3", &[Dram][..], "the last-level cache"),
        ]
        .into_iter()
        .enumerate()
        {
            let repeated: u64 = scheduler.cpus.iter().map(|cpu| cpu.counters.split_misses[index]).sum();
            let misses =
                |requester| beyond(requester, places) - if requester == Requester::Data { repeated } else { 0 };
            let all = requesters.iter().map(|&(requester, _)| misses(requester)).sum();
            self.count(
                format!("{level}.misses"),
                all,
                format!(
                    "References that missed {text}, without bulk writes; an access across a line boundary counts once"
                ),
            );
            for (requester, name) in requesters {
                self.count(
                    format!("{level}.misses.{name}"),
                    misses(requester),
                    format!(
                        "References of {name} requests that missed {text}; an access across a line boundary counts once"
                    ),
                );
            }
        }
        for (requester, name) in requesters {
            let more = if requester == Requester::Data { filtered } else { 0 };
            self.count(
                format!("cache.refs.{name}"),
                total.requests(requester) + more,
                format!("Line references of {name} requests"),
            );
        }
        self.count("cache.bulk_lines", total.bulk_written.iter().sum(), "Lines written in bulk (zeroed)");
        self.count("l1d.writebacks", total.l1_writebacks, "Modified lines that the first-level data caches wrote back");
        self.count("l2.writebacks", total.l2_writebacks, "Modified lines that the second-level caches wrote back");
        self.count(
            "l3.writebacks",
            stats.shared.l3_writebacks,
            "Modified lines that the last-level cache wrote to memory",
        );
        self.count(
            "cache.dma_invalidations",
            stats.shared.dma_invalidations,
            "Lines that left all caches because a device wrote them",
        );
        if let Some(kept) = stats.tables_kept {
            let text = "Lines of data that caches replaced since the least recently used line was of a page table";
            self.count("cache.tables_kept", kept, text);
        }
        if let Some(kept) = stats.blocks_kept {
            let text = "Lines that left the second-level cache since a block of translations was to leave it";
            self.count("cache.blocks_kept", kept, text);
        }
        self.count("dram.writes", stats.shared.dram_writes, "Lines written to memory");
        self.coherence(&total);
    }

    /// Counts lines that moved between cores.
    fn coherence(&mut self, total: &CoreCacheStats) {
        self.count(
            "coherence.remote",
            total.served.iter().map(|by| by[HitLevel::Remote as usize]).sum(),
            "Line references that another core's cache served",
        );
        self.count("coherence.upgrades", total.upgrades, "Writes to lines that other cores held too");
        self.count(
            "coherence.queued",
            total.queued.iter().sum(),
            "Requests that waited until a transfer of their line between other cores had ended",
        );
        self.count("coherence.queue_cycles", total.queue_cycles.iter().sum(), "Cycles of these waits");
        self.count(
            "coherence.invalidations",
            total.invalidations,
            "Lines that cores lost because another one wrote them",
        );
        self.count(
            "coherence.back_invalidations",
            total.back_invalidations,
            "Lines that cores lost because an inclusive last-level cache evicted them",
        );
    }
}

/// The classes of cycles of a simulation: without branches if no core predicts any, without siblings if the threads of
/// a core do not compete, and without fetches if there are no instruction caches.
fn classes(scheduler: &Scheduler) -> impl Iterator<Item = &'static (Class, &'static str, &'static str)> {
    let (predicts, shares_core) = (scheduler.predicts(), scheduler.shares_core());
    let fetches_lines = scheduler.fetches_lines();
    CLASSES.iter().filter(move |(class, ..)| match class {
        Class::Branch => predicts,
        Class::Sibling => shares_core,
        Class::Fetch => fetches_lines,
        _ => true,
    })
}

/// Classes of cycles, by name.
const CLASSES: &[(Class, &str, &str)] = &[
    (Class::Base, "base", "retiring the programs' instructions"),
    (Class::DataStall, "data_stall", "programs waiting for their data"),
    (Class::Translation, "translation", "programs waiting for second-level TLBs and page walks"),
    (Class::Fetch, "fetch", "programs waiting for instructions that the first-level instruction cache lacked"),
    (Class::Branch, "branch", "programs waiting for instructions after mispredicted branches"),
    (Class::Sibling, "sibling", "programs waiting for instructions of their cores' other hardware threads"),
    (Class::Fault, "fault", "page-fault handlers, including their own data and translation"),
    (Class::Kernel, "kernel", "other kernel work: TLB shootdowns, context switches"),
    (Class::LockWait, "lock_wait", "waiting for another CPU's handler of the same page"),
    (Class::Blocked, "blocked", "waiting for other threads where the recorded order demands it"),
    (Class::Io, "io", "waiting for devices: swap, storage"),
    (Class::Stolen, "stolen", "interrupts by other CPUs"),
    (Class::Idle, "idle", "nothing to run"),
];

const PLACE_TEXT: [&str; WALK_PLACES] = [
    "that the first-level data cache served",
    "that the second-level cache served",
    "that the last-level cache served",
    "that memory served",
    "that another core's cache served",
    "that bypassed the caches (engine.kernel_refs = off)",
];
