//! The statistics of a run: named plain counters with unit and description.
//!
//! Names are dotted and stable. Ratios are derived by whoever reads them. Each statistic says whether it is *robust* (what
//! was referenced, missed, faulted: it follows from the order of accesses) or depends on *timing* (cycles, contention).

mod hashed;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::account::Account;
use crate::cache::{CoreCacheStats, Requester, Served};
use crate::clock::Class;
use crate::cpu::AccessCounters;
use crate::hardware::{TLB_DATA, TLB_FETCH, TLB_KERNEL};
use crate::input::Input;
use crate::load::Role;
use crate::os::fault::{FaultCounters, Stage};
use crate::os::khugepaged::Collapse;
use crate::os::reclaim::ReclaimCounters;
use crate::simulation::Simulation;
use crate::walker::{WALK_LEVELS, WALK_PLACES};

/// Whether a statistic depends on timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Robust,
    Timing,
}

/// What a statistic means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Meaning {
    pub unit: &'static str,
    pub description: String,
    pub kind: Kind,
}

/// Statistics by name.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    pub values: BTreeMap<String, u64>,
    pub meanings: BTreeMap<String, Meaning>,
    /// Those that say how things are, where the others count what has happened.
    states: BTreeSet<String>,
}

impl Statistics {
    fn put(&mut self, name: impl Into<String>, value: u64, unit: &'static str, kind: Kind, text: impl Into<String>) {
        let name = name.into();
        let old = self.values.insert(name.clone(), value);
        assert!(old.is_none(), "the statistic `{name}` is defined twice");
        self.meanings.insert(name, Meaning { unit, description: text.into(), kind });
    }

    /// What has been counted since `before` was collected; states are those of now.
    pub fn since(mut self, before: &Self) -> Self {
        for (name, value) in &mut self.values {
            if !self.states.contains(name) {
                *value -= before.values.get(name).copied().unwrap_or(0);
            }
        }
        self
    }

    fn state(&mut self, name: impl Into<String>, value: u64, unit: &'static str, text: impl Into<String>) {
        let name = name.into();
        self.states.insert(name.clone());
        self.put(name, value, unit, Kind::Robust, text);
    }

    fn count(&mut self, name: impl Into<String>, value: u64, text: impl Into<String>) {
        self.put(name, value, "count", Kind::Robust, text);
    }

    fn cycles(&mut self, name: impl Into<String>, value: u64, text: impl Into<String>) {
        self.put(name, value, "cycles", Kind::Timing, text);
    }

    /// All statistics of a simulation that has ended.
    pub fn collect(simulation: &Simulation) -> Self {
        let mut stats = Self::default();
        stats.program(simulation);
        stats.clocks(simulation);
        stats.tlbs(simulation);
        stats.walks(simulation);
        stats.caches(simulation);
        stats.faults(simulation);
        stats.layers(simulation);
        stats.sources(simulation);
        stats
    }

    fn program(&mut self, simulation: &Simulation) {
        let of = |get: fn(&AccessCounters) -> u64| simulation.cpus.iter().map(|cpu| get(&cpu.counters)).sum();
        self.count(
            "accesses",
            of(|c| c.accesses),
            "Memory accesses of the programs, instruction fetches that were recorded included",
        );
        self.count("accesses.writes", of(|c| c.writes), "Stores and modifies");
        self.count("accesses.fetches", of(|c| c.fetches), "Recorded first fetches of code pages");
        self.count(
            "accesses.by_kernel",
            of(|c| c.by_kernel),
            "Accesses that the kernel made to user memory for the program",
        );
        self.count(
            "accesses.refused",
            of(|c| c.refused),
            "Accesses that no mapping covers or that one forbids; they were skipped",
        );
        let instructions = simulation.cpus.iter().map(|cpu| cpu.clock.instructions()).sum();
        self.count("instructions", instructions, "Instructions of the programs");
        self.count("context_switches", of(|c| c.context_switches), "Times that a CPU went over to another thread");
    }

    /// The clocks of the CPUs that programs run on: one that kernel threads have to themselves is not among them.
    fn clocks(&mut self, simulation: &Simulation) {
        let spent = |class| simulation.program_cpus().map(|cpu| cpu.clock.spent(class)).sum();
        let total = simulation.program_cpus().map(|cpu| cpu.clock.now()).sum();
        self.cycles("cycles", total, "Cycles of all CPUs in use; the classes below sum to it");
        self.cycles("elapsed_cycles", simulation.elapsed(), "Cycles from the start to the end of the last CPU");
        let cpus = simulation.program_cpus().count() as u64;
        self.state("cpus", cpus, "count", "CPUs (hardware threads) in use by programs");
        for (class, name, text) in CLASSES {
            self.cycles(format!("cycles.{name}"), spent(*class), format!("Cycles of {text}"));
        }
    }

    fn tlbs(&mut self, simulation: &Simulation) {
        let look_ups = simulation.cpus.iter().map(|cpu| cpu.counters.filtered + cpu.counters.pieces).sum();
        self.count("dtlb.l1.look_ups", look_ups, "Data look-ups of the programs: one a cache line touched");
        let sum =
            |get: fn(&crate::hardware::TlbCounters) -> u64| simulation.hw.units.iter().map(|unit| get(&unit.tlb)).sum();
        self.count(
            "dtlb.l1.misses",
            sum(|t| t.l1_misses[TLB_DATA]),
            "Data look-ups that missed the first-level TLB; a repeated access after a fault looks up again",
        );
        self.count("dtlb.l2.misses", sum(|t| t.l2_misses[TLB_DATA]), "Data look-ups that missed both levels");
        self.count("itlb.l1.misses", sum(|t| t.l1_misses[TLB_FETCH]), "Instruction look-ups that missed the first-level TLB; looked up where the page of the program counter of recorded accesses changes");
        self.count("itlb.l2.misses", sum(|t| t.l2_misses[TLB_FETCH]), "Instruction look-ups that missed both levels");
        self.count(
            "tlb.kernel.l1.misses",
            sum(|t| t.l1_misses[TLB_KERNEL]),
            "Look-ups of the kernels' direct maps that missed the first-level TLB",
        );
        self.count(
            "tlb.kernel.l2.misses",
            sum(|t| t.l2_misses[TLB_KERNEL]),
            "Look-ups of the kernels' direct maps that missed both levels",
        );
        self.count(
            "nested_tlb.look_ups",
            sum(|t| t.nested_look_ups),
            "Guest-physical addresses looked up during walks",
        );
        self.count(
            "nested_tlb.misses",
            sum(|t| t.nested_misses),
            "Guest-physical addresses that needed a walk of the host's page table",
        );
    }

    fn walks(&mut self, simulation: &Simulation) {
        let walks = &simulation.hw.walks;
        for (prefix, counts, text) in [
            ("walk", &walks.program, "completed page walks of the programs"),
            ("walk.kernel", &walks.kernel, "completed page walks of the kernels' direct maps"),
            ("walk.aborted", &walks.aborted, "page walks that ended in a page fault"),
        ] {
            self.count(format!("{prefix}.count"), counts.count, format!("Number of {text}"));
            self.cycles(format!("{prefix}.cycles"), counts.cycles, format!("Cycles of {text}"));
            let refs = counts.refs.iter().flatten().flatten().sum();
            self.count(format!("{prefix}.refs"), refs, format!("Memory references of {text}, over all layers"));
            for (place, name) in PLACES.iter().enumerate() {
                let served = counts.refs.iter().flatten().map(|places| places[place]).sum();
                self.count(
                    format!("{prefix}.refs.{name}"),
                    served,
                    format!("References of {text} {}", PLACE_TEXT[place]),
                );
            }
        }
        self.count(
            "walk.dirty.count",
            walks.dirty_walks,
            "Page walks of the programs, among walk.count, made only to set a dirty bit",
        );
        self.count(
            "walk.accessed_dirty_updates",
            walks.ad_updates,
            "Locked updates of accessed and dirty bits by walkers; not among walk.refs",
        );
        if simulation.os.layers.iter().any(|layer| layer.shadowed) {
            self.shadows(simulation);
        }
        for (layer, refs) in simulation.os.layers.iter().zip(&walks.program.refs) {
            self.layer_walks(&layer.name, refs);
        }
    }

    fn shadows(&mut self, simulation: &Simulation) {
        let shadow = &simulation.hw.shadow;
        let writes: u64 = simulation.os.faults.iter().map(|faults| faults.table_exits).sum();
        let causes = [
            (
                "misses",
                shadow.misses,
                "Walks of a shadow page table that missed a translation, or one that allows stores",
            ),
            ("table_writes", writes, "Steps of guests' page-fault handlers that wrote to their page tables"),
            ("invalidations", shadow.invalidations, "Translations, or whole spaces, that shadowed guests invalidated"),
            ("switches", shadow.switches, "Switches of shadowed guests between address spaces"),
        ];
        let exits = causes.iter().map(|(_, count, _)| count).sum();
        self.count("shadow.exits", exits, "Exits of guests to the hypervisor that keeps shadows of their page tables");
        for (cause, count, text) in causes {
            self.count(format!("shadow.exits.{cause}"), count, text);
        }
        self.cycles(
            "shadow.exit_cycles",
            shadow.cycles + writes * simulation.hw.vm_exit_cycles,
            "Cycles of these exits: of misses in cycles.translation with their references, of table writes in cycles.fault, of \
             the others in cycles.kernel",
        );
    }

    /// References of the programs' walks to one layer's page tables, by level and place.
    fn layer_walks(&mut self, layer: &str, refs: &[[u64; WALK_PLACES]; WALK_LEVELS]) {
        for (level, places) in refs.iter().enumerate().skip(1) {
            let total: u64 = places.iter().sum();
            if total == 0 {
                continue;
            }
            let name = format!("walk.layer.{layer}.level{level}.refs");
            let text = format!("References of the programs' walks to level-{level} entries of layer `{layer}`");
            self.count(&name, total, &text);
            for (place, &served) in places.iter().enumerate() {
                self.count(format!("{name}.{}", PLACES[place]), served, format!("{text} {}", PLACE_TEXT[place]));
            }
        }
    }

    fn caches(&mut self, simulation: &Simulation) {
        let stats = simulation.hw.caches.stats();
        let total: CoreCacheStats = stats.total();
        let filtered: u64 = simulation.cpus.iter().map(|cpu| cpu.counters.filtered).sum();
        let requesters = [(Requester::Data, "data"), (Requester::Walk, "walk"), (Requester::Kernel, "kernel")];
        let beyond = |requester, places: &[Served]| places.iter().map(|&p| total.served(requester, p)).sum::<u64>();
        use Served::{Dram, L2, L3, Remote};
        for (index, (level, places, text)) in [
            ("l1d", &[L2, L3, Remote, Dram][..], "the first-level data cache"),
            ("l2", &[L3, Remote, Dram][..], "the second-level cache"),
            ("l3", &[Dram][..], "the last-level cache"),
        ]
        .into_iter()
        .enumerate()
        {
            let repeated: u64 = simulation.cpus.iter().map(|cpu| cpu.counters.split_misses[index]).sum();
            let misses =
                |requester| beyond(requester, places) - if requester == Requester::Data { repeated } else { 0 };
            let all = requesters.iter().map(|&(requester, _)| misses(requester)).sum();
            self.count(
                format!("{level}.misses"),
                all,
                format!(
                    "References that missed {text}, bulk writes apart; an access across a line boundary counts once"
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
        self.count("l1d.writebacks", total.l1_writebacks, "Modified lines that the first-level data caches passed on");
        self.count("l2.writebacks", total.l2_writebacks, "Modified lines that the second-level caches passed on");
        self.count(
            "l3.writebacks",
            stats.shared.l3_writebacks,
            "Modified lines that the last-level cache wrote to memory",
        );
        self.count("dram.writes", stats.shared.dram_writes, "Lines written to memory");
        self.count(
            "coherence.remote",
            total.served.iter().map(|by| by[Served::Remote as usize]).sum(),
            "Line references that another core's cache served",
        );
        self.count("coherence.upgrades", total.upgrades, "Writes to lines that other cores held too");
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

    fn faults(&mut self, simulation: &Simulation) {
        let os = &simulation.os;
        let part = |nested: bool| {
            let of = |(layer, counters): (usize, &FaultCounters)| {
                (os.tops().contains(&(layer as u16)) != nested).then_some(*counters)
            };
            os.faults.iter().enumerate().filter_map(of).collect::<Vec<_>>()
        };
        let (top, nested) = (part(false), part(true));
        let sum = |of: &[FaultCounters], get: fn(&FaultCounters) -> u64| of.iter().map(get).sum::<u64>();
        self.count(
            "fault.minor.count",
            sum(&top, |f| f.minor),
            "Page faults of the programs that mapped a page without reading storage, and as in ru_minflt the pages that were populated",
        );
        self.count("fault.major.count", sum(&top, |f| f.major), "Page faults of the programs that read storage");
        self.put(
            "fault.raced.count",
            sum(&top, |f| f.raced),
            "count",
            Kind::Timing,
            "Page faults that found the page mapped by another CPU's handler",
        );
        self.count("fault.outside.count", sum(&top, |f| f.outside), "Page faults at addresses that no mapping covers");
        self.count(
            "fault.forbidden.count",
            sum(&top, |f| f.forbidden),
            "Page faults at addresses whose mapping forbids the access",
        );
        for (name, get, text) in FAULT_KINDS {
            self.count(*name, sum(&top, *get), *text);
        }
        self.count(
            "fault.nested.count",
            sum(&nested, |f| f.minor + f.major),
            "Faults of guests' physical memory that a host layer handled by mapping a page",
        );
        let cycles = |of: &[FaultCounters]| of.iter().map(|f| f.cycles.iter().sum::<u64>()).sum::<u64>();
        self.cycles("fault.cycles", cycles(&top) + cycles(&nested), "Cycles of all page-fault handlers");
        self.cycles(
            "fault.nested.cycles",
            cycles(&nested),
            "Cycles of the handlers of host layers, among fault.cycles",
        );
        self.count(
            "fault.instructions",
            os.faults.iter().flat_map(|f| f.instructions).sum(),
            "Kernel instructions of all page-fault handlers",
        );
        for stage in Stage::ALL {
            let spent = os.faults.iter().map(|f| f.cycles[stage as usize]).sum();
            self.cycles(
                format!("fault.stage.{}.cycles", stage.name()),
                spent,
                format!("Cycles of the fault stage `{}`; the stages sum to fault.cycles", stage.name()),
            );
        }
        self.cycles(
            "fault.preset.cycles",
            os.faults.iter().flat_map(|f| f.preset_cycles).sum(),
            "Cycles among fault.cycles that come from the kernel preset (see its origins), not from references",
        );
        let mapping = &os.mapping;
        self.count("mapping.calls", mapping.calls, "mmap, munmap, mremap, mprotect, madvise and brk calls");
        self.count(
            "mapping.impossible",
            mapping.impossible,
            "Mapping calls among them that no kernel would have carried out; they were skipped",
        );
        self.count(
            "mapping.pages_unmapped",
            mapping.pages_unmapped,
            "Pages whose translation a call or an exit removed",
        );
        let reclaim = |get: fn(&ReclaimCounters) -> u64| {
            os.layers
                .iter()
                .filter_map(|layer| layer.reclaim.as_ref())
                .map(|reclaim| get(&reclaim.counters))
                .sum::<u64>()
        };
        let collapse = |get: fn(&Collapse) -> u64| os.layers.iter().map(|layer| get(&layer.collapse)).sum::<u64>();
        self.count("khugepaged.scanned", collapse(|c| c.scanned), "Places of 2 MiB that khugepaged looked at");
        self.count(
            "khugepaged.collapsed",
            collapse(|c| c.collapsed),
            "Large pages that it put in the place of small ones",
        );
        self.count(
            "khugepaged.no_frame",
            collapse(|c| c.no_frame),
            "Places that were ripe when no large page was free",
        );
        self.count("kthread.runs", os.kthreads.runs, "Times that a kernel thread woke up and ran");
        self.cycles(
            "kthread.cycles",
            os.kthreads.cycles,
            "Cycles of kernel threads; among cycles.kernel where they have no CPU of their own",
        );
        self.count("reclaim.scanned", reclaim(|c| c.scanned), "Pages that reclaim looked at");
        self.count("reclaim.activated", reclaim(|c| c.activated), "Pages among them that had been accessed and stayed");
        self.count(
            "reclaim.deactivated",
            reclaim(|c| c.deactivated),
            "Pages moved from the active list to the inactive",
        );
        self.count("reclaim.files.dropped", reclaim(|c| c.files_dropped), "Pages of files that left memory");
        self.count(
            "reclaim.files.written",
            reclaim(|c| c.files_written),
            "Those among them that were written to storage",
        );
        self.count(
            "reclaim.freed_lazily",
            reclaim(|c| c.freed_lazily),
            "Pages dropped whose contents MADV_FREE had given up",
        );
        self.count("swap.out.pages", reclaim(|c| c.swapped_out), "Pages written to the swap device");
        self.count("swap.in.pages", reclaim(|c| c.swapped_in), "Pages read back from it");
        self.count("fork.pages", mapping.pages_shared, "Pages that forked children shared with their parents");
        let shootdowns = &simulation.shootdowns;
        self.count("shootdown.count", shootdowns.count, "TLB shootdowns, local ones included");
        for (name, count, text) in [
            ("interrupts", shootdowns.interrupts, "CPUs interrupted by TLB shootdowns"),
            (
                "spared",
                shootdowns.spared,
                "Idle CPUs that TLB shootdowns did not interrupt, though the space was loaded",
            ),
            (
                "flush.pcid",
                shootdowns.pcid_flushes,
                "Flushes where a CPU came to an address space that it held no PCID of",
            ),
            (
                "flush.generation",
                shootdowns.generation_flushes,
                "Flushes where a CPU came to an address space that shootdowns had changed since it ran there",
            ),
        ] {
            self.put(format!("shootdown.{name}"), count, "count", Kind::Timing, text);
        }
    }

    /// Who caused what, where there is more than one source.
    fn sources(&mut self, simulation: &Simulation) {
        let load = &simulation.load;
        let accounts = |of: &[Input]| {
            let mut sum = Account::default();
            of.iter().for_each(|input| sum.add(&input.account));
            sum
        };
        let mains = &simulation.inputs[..load.mains];
        if !mains.is_empty() && (load.beside || mains.len() > 1) {
            self.cycles(
                "main.elapsed_cycles",
                load.main_end,
                "Cycles from the start to the end of the last main source",
            );
            self.account("main", "the main sources", &accounts(mains));
            for (number, input) in mains.iter().enumerate().filter(|_| mains.len() > 1) {
                let text = format!("the main source {number}, {}", input.info.name);
                self.account(&format!("source.{number}"), &text, &input.account);
            }
        }
        if load.has_co_runners() {
            let mut account = load.co_runner_account;
            let under_way = simulation.inputs.iter().filter(|input| matches!(input.role, Role::CoRunner(_)));
            under_way.for_each(|input| account.add(&input.account));
            let text = "Times that a co-runner came to its end and began anew";
            self.put("co_runner.completed", load.co_runs, "count", Kind::Timing, text);
            self.account("co_runner", "the co-runners", &account);
        }
        if load.has_arrivals() {
            let mut sojourns = load.sojourns.clone();
            sojourns.sort_unstable();
            let text = "Processes that arrived and ran to their end";
            self.put("arrivals.count", sojourns.len() as u64, "count", Kind::Timing, text);
            let sum = sojourns.iter().sum();
            self.cycles("arrivals.sojourn.cycles", sum, "Cycles from arrival to exit, over all arrivals");
            for (name, share, text) in [
                ("p50", 50, "The time from arrival to exit that half of the arrivals kept to"),
                ("p99", 99, "The time from arrival to exit that 99 of 100 arrivals kept to"),
                ("max", 100, "The longest time from arrival to exit"),
            ] {
                let cycles = nearest_rank(&sojourns, share);
                let name = format!("arrivals.sojourn.{name}_cycles");
                self.states.insert(name.clone());
                self.cycles(name, cycles, text);
            }
            self.account("arrivals", "the arrivals", &load.arrival_account);
        }
    }

    /// What was counted for some sources; `text` names them.
    fn account(&mut self, prefix: &str, text: &str, account: &Account) {
        let sum = account.cycles.iter().sum();
        self.cycles(format!("{prefix}.cycles"), sum, format!("Cycles of CPUs while they ran {text}"));
        for &(class, name, spent_on) in CLASSES {
            let cycles = account.cycles[class as usize];
            self.cycles(format!("{prefix}.cycles.{name}"), cycles, format!("Cycles of {text}: {spent_on}"));
        }
        let shared = &account.shared;
        self.cycles(format!("{prefix}.walk.cycles"), shared.walk_cycles, format!("Cycles of page walks of {text}"));
        for (name, count, what) in [
            ("walk.count", shared.walks, "Completed page walks"),
            ("fault.minor.count", shared.minor_faults, "Page faults without a read of storage"),
            ("fault.major.count", shared.major_faults, "Page faults that read storage"),
        ] {
            self.put(format!("{prefix}.{name}"), count, "count", Kind::Timing, format!("{what} of {text}"));
        }
    }

    fn layers(&mut self, simulation: &Simulation) {
        for (layer, faults) in simulation.os.layers.iter().zip(&simulation.os.faults) {
            let name = &layer.name;
            let free = layer.free_frame_count() * crate::addr::FRAME_BYTES;
            let text = "Physical memory of the layer";
            self.state(format!("layer.{name}.memory_bytes"), layer.memory_bytes(), "bytes", text);
            let text = "Free physical memory of the layer at the end";
            self.state(format!("layer.{name}.free_bytes"), free, "bytes", text);
            let frames = layer.frame_counters();
            for (what, count, text) in [
                ("per_cpu_hits", frames.per_cpu_hits, "Frame requests that a CPU's own list of free pages served"),
                ("zone_locks", frames.zone_locks, "Times that the frame allocator took a zone's lock"),
                ("splits", frames.splits, "Free blocks that the frame allocator cut in two"),
                ("merges", frames.merges, "Pairs of free blocks that it joined"),
                ("steals", frames.steals, "Blocks that it took from pageblocks of another mobility"),
            ] {
                self.count(format!("layer.{name}.frames.{what}"), count, text);
            }
            if let Some(aged) = &layer.aged {
                let bytes = |frames: u64| frames * crate::addr::FRAME_BYTES;
                for (what, frames, text) in [
                    ("free_bytes", aged.free_frames, "Memory that ageing left free"),
                    ("huge_free_bytes", aged.huge_free_frames, "Of it, what lies in blocks of 2 MiB and larger"),
                ] {
                    self.state(format!("layer.{name}.aged.{what}"), bytes(frames), "bytes", text);
                }
            }
            self.count(
                format!("layer.{name}.fault.count"),
                faults.minor + faults.major,
                "Pages mapped by the layer's page-fault handler",
            );
            self.count(
                format!("layer.{name}.fault.tables"),
                faults.tables,
                "Page-table pages built by the layer's page-fault handler",
            );
            for size in crate::addr::PageSize::ALL {
                self.count(
                    format!("layer.{name}.pages.{}", size.name()),
                    faults.pages[size as usize],
                    format!("Pages of {} that the layer's page-fault handler mapped", size.name()),
                );
            }
            for &order in &layer.folio_orders {
                let kib = 4_u64 << order;
                self.count(
                    format!("layer.{name}.folios.{kib}K"),
                    faults.folios[order as usize],
                    format!("Folios of {kib} KiB that the layer's page-fault handler mapped by 4 KiB pages"),
                );
            }
            let text = "Frames of page tables at the end";
            let frames = layer.table_frames() + layer.mem.block_frames() as u64;
            self.state(format!("layer.{name}.page_table_frames"), frames, "count", text);
            self.hashed_table(layer);
        }
    }
}

/// The least of the sorted values that `percent` of 100 of them do not exceed; 0 of none.
fn nearest_rank(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    rank.checked_sub(1).map_or(0, |at| sorted[at])
}

/// Classes of cycles, by name.
const CLASSES: &[(Class, &str, &str)] = &[
    (Class::Base, "base", "retiring the programs' instructions"),
    (Class::DataStall, "data_stall", "programs waiting for their data"),
    (Class::Translation, "translation", "programs waiting for second-level TLBs and page walks"),
    (Class::Fault, "fault", "page-fault handlers, with their own data and translation"),
    (Class::Kernel, "kernel", "other kernel work: TLB shootdowns, context switches"),
    (Class::LockWait, "lock_wait", "waiting for another CPU's handler of the same page"),
    (Class::Blocked, "blocked", "waiting for other threads where the recorded order demands it"),
    (Class::Io, "io", "waiting for devices: swap, storage"),
    (Class::Stolen, "stolen", "interrupts by other CPUs"),
    (Class::Idle, "idle", "nothing to run"),
];

type FaultKind = (&'static str, fn(&FaultCounters) -> u64, &'static str);

const FAULT_KINDS: &[FaultKind] = &[
    ("fault.zero_page.count", |f| f.zero_page, "Minor faults of reads that mapped the zero page"),
    ("fault.copy.count", |f| f.copied, "Minor faults of writes that copied a page which others use too"),
    ("fault.reuse.count", |f| f.reused, "Minor faults of writes to a write-protected page that nobody else used"),
    ("fault.cached.count", |f| f.cached, "Minor faults that mapped a page of the page cache"),
    ("fault.split.count", |f| f.split, "Large pages split because a part of them was to be copied"),
    ("fault.around.pages", |f| f.around, "Pages of the page cache mapped around those"),
    ("populate.pages", |f| f.populated, "Pages mapped by MAP_POPULATE and MADV_POPULATE_*, without an exception"),
];

const PLACES: [&str; WALK_PLACES] = ["l1", "l2", "l3", "dram", "remote", "uncached"];
const PLACE_TEXT: [&str; WALK_PLACES] = [
    "that the first-level data cache served",
    "that the second-level cache served",
    "that the last-level cache served",
    "that memory served",
    "that another core's cache served",
    "that left the caches alone (engine.kernel_refs = off)",
];

#[cfg(test)]
mod tests {
    use super::nearest_rank;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!([50, 99, 100].map(|percent| nearest_rank(&hundred, percent)), [50, 99, 100]);
        assert_eq!([50, 99, 100].map(|percent| nearest_rank(&[7, 8, 9], percent)), [8, 9, 9]);
        assert_eq!(nearest_rank(&[1, 2], 50), 1);
        assert_eq!(nearest_rank(&[], 99), 0);
    }
}
