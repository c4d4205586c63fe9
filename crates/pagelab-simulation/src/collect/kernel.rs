//! Statistics of the kernels: faults, mapping calls, reclaim, kernel threads, and the memory of each layer.

use super::collector::Collector;
use crate::machine::kernels::Kernels;
use pagelab_base::cycles::Cycles;
use pagelab_hardware::cache::HitLevel;
use pagelab_kernel::ballooned::{BalloonPages, DeflationCounters};
use pagelab_kernel::dissolve::DissolvedCounters;
use pagelab_kernel::fault::stage::{FaultCounters, Stage};
use pagelab_kernel::layer::Layer;
use pagelab_kernel::reclaim::ReclaimCounters;

impl Collector {
    pub(super) fn faults(&mut self, kernels: &Kernels) {
        let os = &kernels.os;
        let part = |nested: bool| {
            let in_part = |(layer, counters): (usize, &FaultCounters)| {
                (os.tops().contains(&layer.into()) != nested).then_some(*counters)
            };
            os.faults.iter().enumerate().filter_map(in_part).collect::<Vec<_>>()
        };
        let (top, nested) = (part(false), part(true));
        let sum = |counters: &[FaultCounters], get: fn(&FaultCounters) -> u64| counters.iter().map(get).sum::<u64>();
        self.count(
            "fault.minor.count",
            sum(&top, |f| f.minor),
            "Page faults of the programs that mapped a page without reading storage; as in ru_minflt, populated pages are included",
        );
        self.count("fault.major.count", sum(&top, |f| f.major), "Page faults of the programs that read storage");
        self.timed_count(
            "fault.raced.count",
            sum(&top, |f| f.raced),
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
        let cycles =
            |counters: &[FaultCounters]| counters.iter().map(|f| f.cycles.iter().sum::<Cycles>()).sum::<Cycles>();
        self.cycles("fault.cycles", cycles(&top) + cycles(&nested), "Cycles of all page-fault handlers");
        self.cycles(
            "fault.nested.cycles",
            cycles(&nested),
            "Cycles of the handlers of host layers; included in fault.cycles",
        );
        self.walks_of_faults(kernels, &top);
        self.count(
            "fault.instructions",
            os.faults.iter().flat_map(|f| f.instructions).sum(),
            "Kernel instructions of all page-fault handlers",
        );
        for &stage in &Stage::ALL[..os.stages()] {
            let spent = os.faults.iter().map(|f| f.cycles[stage as usize]).sum();
            self.cycles(
                format!("fault.stage.{}.cycles", stage.name()),
                spent,
                format!("Cycles of the fault stage `{}`; the stages sum to fault.cycles", stage.name()),
            );
        }
        self.work_of_stages(kernels);
        self.cycles(
            "fault.preset.cycles",
            os.faults.iter().flat_map(|f| f.preset_cycles).sum(),
            "Cycles in fault.cycles that come from the kernel preset (see its origins), not from references",
        );
        self.cycles(
            "fault.timed.cycles",
            os.faults.iter().flat_map(|f| f.timed_cycles).sum(),
            "Cycles in fault.cycles that the core model takes for instructions of the kernel preset, where the preset states no cycles",
        );
        self.fault_latencies(kernels);
        if os.costs.block_io.is_some() {
            let text = "Cycles of switching from tasks that wait for a device to idle, while the device is busy: of page faults (fault.stage.switch.cycles) and of calls that write pages (in cycles.kernel)";
            self.cycles("fault.switch.cycles", os.faults.iter().map(|f| f.switch_cycles).sum(), text);
        }
        self.mapping_calls(kernels);
        self.kernel_threads(kernels);
        self.reclaim(kernels);
        self.add_all("shootdown", kernels.shootdowns.measures());
    }

    /// Latencies of page faults by how the kernel served them, as far as these systems can.
    fn fault_latencies(&mut self, kernels: &Kernels) {
        let any = |is: fn(&Layer) -> bool| kernels.os.layers.iter().any(is);
        let latencies = kernels.os.fault_latencies.measures(
            any(|layer| layer.memory.reclaim.is_some()),
            any(|layer| layer.serves_faults() || layer.takes_in_faults()),
            any(|layer| layer.host.is_some()),
        );
        self.add_all("fault", latencies);
    }

    /// Instructions and line references of the fault stages.
    fn work_of_stages(&mut self, kernels: &Kernels) {
        let os = &kernels.os;
        for &stage in &Stage::ALL[..os.stages()] {
            let (name, at) = (stage.name(), stage as usize);
            self.count(
                format!("fault.stage.{name}.instructions"),
                os.faults.iter().map(|f| f.instructions[at]).sum(),
                format!("Kernel instructions of the fault stage `{name}`; the stages sum to fault.instructions"),
            );
            for (served, place, text) in FOUND {
                self.timed_count(
                    format!("fault.stage.{name}.lines.{place}"),
                    os.faults.iter().map(|f| f.lines[at][*served as usize]).sum(),
                    format!("Lines that kernel code referred to in the fault stage `{name}` and {text}"),
                );
            }
        }
    }

    /// Cycles and counts of the walks that handlers of the programs' faults make.
    fn walks_of_faults(&mut self, kernels: &Kernels, top: &[FaultCounters]) {
        self.cycles(
            "fault.handling.cycles",
            top.iter().flat_map(|f| &f.cycles[Stage::OF_HANDLING]).copied().sum(),
            "Cycles of the programs' faults from the walk to the installed page, their stages `walk` to `install` (Linux: __handle_mm_fault)",
        );
        self.cycles(
            "fault.before_pte.cycles",
            top.iter().map(|f| f.before_pte_cycles).sum(),
            "Cycles of the programs' faults before the PTE is looked at: the stage `walk` without that reference and the last table (Linux: __handle_mm_fault before handle_pte_fault)",
        );
        if kernels.os.layers.iter().any(|layer| layer.mechanisms.translation_caches.is_some()) {
            let text = "Cycles in fault.before_pte.cycles that filled translation caches";
            self.cycles("fault.fill.cycles", top.iter().map(|f| f.fill_cycles).sum(), text);
        }
        self.count("fault.walk.count", top.iter().map(|f| f.walks).sum(), "Walks of the programs' faults");
    }

    /// Cycles of page faults by stage; `text` says which faults.
    pub(super) fn stages(&mut self, prefix: &str, cycles: &[Cycles], text: &str) {
        for (stage, &spent) in Stage::ALL.iter().zip(cycles) {
            let name = stage.name();
            self.cycles(
                format!("{prefix}.fault.stage.{name}.cycles"),
                spent,
                format!("Cycles of the stage `{name}` of {text}"),
            );
        }
    }

    fn mapping_calls(&mut self, kernels: &Kernels) {
        let mapping = &kernels.os.mapping;
        self.count("mapping.calls", mapping.calls, "Calls about mappings and mapped files");
        if kernels.os.costs.mapping_calls.is_some() {
            let what = "Cycles of mapping calls themselves, without shootdowns and waiting; included in cycles.kernel";
            self.cycles("mapping.call_cycles", mapping.call_cycles, what);
        }
        self.count(
            "mapping.impossible",
            mapping.impossible,
            "Calls in mapping.calls that no kernel would have carried out; they were skipped",
        );
        self.count(
            "recorded.pages",
            mapping.pages_recorded,
            "Pages that were mapped because the trace says that a recorded kernel mapped them; not counted in mapping.calls, and free of cycles",
        );
        self.count(
            "recorded.faults",
            mapping.faults_recorded,
            "Page faults whose handlers are recorded: each is a walk in walk.aborted, and no fault of the simulated kernel",
        );
        self.count(
            "recorded.faults.amiss",
            mapping.faults_recorded_amiss,
            "Recorded faults for which the simulation had a translation all the same",
        );
        self.count(
            "mapping.pages_unmapped",
            mapping.pages_unmapped,
            "Pages whose translation a call or an exit removed",
        );
        self.count("msync.pages", mapping.pages_synced, "Pages of files that msync wrote");
        self.cycles("msync.cycles", mapping.sync_cycles, "Cycles of msync without waiting; included in cycles.kernel");
        self.count("pageout.pages", mapping.pages_out, "Pages that MADV_PAGEOUT unmapped");
        let what = "Cycles of MADV_PAGEOUT for writes to the swap device without waiting; included in cycles.kernel";
        self.cycles("pageout.cycles", mapping.page_out_cycles, what);
        self.count(
            "files.cut.pages",
            mapping.pages_cut,
            "Pages that left the page cache because their file was truncated or got a hole",
        );
        self.count("files.relocated.pages", mapping.pages_relocated, "Pages of files whose blocks were moved");
        self.count(
            "files.relocations_refused",
            mapping.relocations_refused,
            "Times that storage had no room to move blocks to",
        );
        self.count("fork.pages", mapping.pages_shared, "Pages that forked children shared with their parents");
    }

    fn kernel_threads(&mut self, kernels: &Kernels) {
        for (name, count, text) in kernels.threads.counters() {
            self.count(name, count, text);
        }
        let balloons = || kernels.os.layers.iter().map(|layer| &layer.mechanisms.balloon);
        let text = "Pages in the balloons of guests at the end";
        self.count("balloon.pages", balloons().map(BalloonPages::pages).sum(), text);
        let mut deflations = DeflationCounters::default();
        balloons().for_each(|balloon| deflations.add(&balloon.counters));
        self.add_all("balloon", deflations.measures());
        let mut dissolved = DissolvedCounters::default();
        kernels.os.layers.iter().for_each(|layer| dissolved.add(&layer.counters.dissolved));
        self.add_all("late_segments", dissolved.measures());
        self.count("kthread.runs", kernels.threads.runs, "Times that a kernel thread woke up and ran");
        self.cycles(
            "kthread.cycles",
            kernels.threads.cycles,
            "Cycles of kernel threads; included in cycles.kernel if they have no CPU of their own",
        );
    }

    fn reclaim(&mut self, kernels: &Kernels) {
        let os = &kernels.os;
        let reclaim = |get: fn(&ReclaimCounters) -> u64| {
            os.layers
                .iter()
                .filter_map(|layer| layer.memory.reclaim.as_ref())
                .map(|reclaim| get(&reclaim.counters))
                .sum::<u64>()
        };
        self.count("reclaim.scanned", reclaim(|c| c.scanned), "Pages that reclaim looked at");
        self.count("reclaim.activated", reclaim(|c| c.activated), "Scanned pages that had been accessed and stayed");
        self.count(
            "reclaim.deactivated",
            reclaim(|c| c.deactivated),
            "Pages moved from the active list to the inactive",
        );
        self.count("reclaim.files.dropped", reclaim(|c| c.files_dropped), "Pages of files that left memory");
        self.count(
            "reclaim.files.written",
            reclaim(|c| c.files_written),
            "Pages in reclaim.files.dropped that were written to storage",
        );
        self.count(
            "reclaim.freed_lazily",
            reclaim(|c| c.freed_lazily),
            "Pages dropped because MADV_FREE had given up their contents",
        );
        for group in os
            .layers
            .iter()
            .filter_map(|layer| layer.memory.reclaim.as_ref())
            .flat_map(|reclaim| &reclaim.groups()[1..])
        {
            let (name, bytes) = (&group.name, group.peak_frames * pagelab_base::addr::FRAME_BYTES);
            let text = "Largest memory charge of the source's cgroup";
            self.state(format!("cgroup.{name}.peak_bytes"), bytes, "bytes", text);
            self.count(
                format!("cgroup.{name}.limit_scans"),
                group.limit_scans,
                "Reclaim scans of the cgroup at its limit",
            );
        }
        self.count("swap.out.pages", reclaim(|c| c.swapped_out), "Pages written to the swap device");
        self.count("swap.in.pages", reclaim(|c| c.swapped_in), "Pages read back from the swap device");
        self.count(
            "swap.double.pages",
            reclaim(|c| c.double_paged),
            "Pages that hosts had swapped out, and read back so that their guests could write them to a device of their own",
        );
    }

    /// What decided where pages and page tables lie.
    fn placement(&mut self, name: &str, layer: &Layer) {
        self.add_all(&format!("layer.{name}"), layer.mechanisms.placement.measures());
        if let Some(blocks) = &layer.mechanisms.table_blocks {
            self.add_all(&format!("layer.{name}.table_blocks"), blocks.counters.measures());
        }
        if let Some(shared) = &layer.mechanisms.shared_segments {
            self.add_all(&format!("layer.{name}.page_table.segments.shared"), shared.counters.measures());
        }
        if layer.paging.brk_alignment.is_some() {
            self.add_all(&format!("layer.{name}"), layer.counters.brk.measures());
        }
    }

    pub(super) fn layers(&mut self, kernels: &Kernels) {
        let os = &kernels.os;
        for (index, (layer, faults)) in os.layers.iter().zip(&os.faults).enumerate() {
            let name = &layer.name;
            let free = layer.memory.free_frames() * pagelab_base::addr::FRAME_BYTES;
            let text = "Physical memory of the layer";
            self.state(format!("layer.{name}.memory_bytes"), layer.memory_bytes(), "bytes", text);
            let text = "Free physical memory of the layer at the end";
            self.state(format!("layer.{name}.free_bytes"), free, "bytes", text);
            let frames = layer.frame_counters();
            for (what, count, text) in [
                ("requests", frames.requests, "Blocks requested from the frame allocator"),
                ("per_cpu_hits", frames.per_cpu_hits, "Frame requests that a CPU's own list of free pages served"),
                ("zone_locks", frames.zone_locks, "Times that the frame allocator took a zone's lock"),
                ("splits", frames.splits, "Free blocks that the frame allocator split in two"),
                ("merges", frames.merges, "Pairs of free blocks that the frame allocator merged"),
                ("steals", frames.steals, "Blocks that the frame allocator took from pageblocks of another mobility"),
            ] {
                self.count(format!("layer.{name}.frames.{what}"), count, text);
            }
            self.ageing(layer);
            self.count(
                format!("layer.{name}.fault.count"),
                faults.minor + faults.major,
                "Pages mapped by the layer's page-fault handler",
            );
            self.stages(
                &format!("layer.{name}"),
                &faults.cycles[..os.stages()],
                &format!("faults that the kernel of layer `{name}` handled"),
            );
            self.count(
                format!("layer.{name}.fault.tables"),
                faults.tables,
                "Page-table pages built by the layer's page-fault handler",
            );
            for size in pagelab_base::addr::PageSize::ALL {
                self.count(
                    format!("layer.{name}.pages.{}", size.name()),
                    faults.pages[size as usize],
                    format!("Pages of {} that the layer's page-fault handler mapped", size.name()),
                );
            }
            for &order in &layer.paging.folio_orders {
                let kib = 4_u64 << order;
                self.count(
                    format!("layer.{name}.folios.{kib}K"),
                    faults.folios[order as usize],
                    format!("Folios of {kib} KiB that the layer's page-fault handler mapped by 4 KiB pages"),
                );
            }
            self.contiguity(name, layer, faults, os.tops().contains(&index.into()));
            for &order in &layer.paging.file_folio_orders {
                let kib = 4_u64 << order;
                self.count(
                    format!("layer.{name}.file_folios.{kib}K"),
                    layer.memory.page_use.folios(order),
                    format!("Folios of {kib} KiB in which pages of files entered the page cache"),
                );
            }
            self.placement(name, layer);
            if let Some(engine) = &layer.mechanisms.engine {
                self.add_all(&format!("layer.{name}.fault_engine"), engine.measures());
            }
            if let Some(reclaim) = &layer.memory.reclaim {
                let swap = reclaim.swap.as_ref().map(|swap| ("swap", &swap.device));
                let storage = reclaim.storage.as_ref().map(|storage| ("storage", &storage.device));
                for (part, device) in swap.into_iter().chain(storage) {
                    self.add_all(&format!("layer.{name}.{part}"), device.measures());
                }
                if os.hosts(index.into()) {
                    self.host_reclaim(name, &reclaim.counters, faults);
                }
            }
            let text = "Frames of page tables at the end";
            let frames = layer.table_frames() + layer.memory.contents.block_frames() as u64;
            self.state(format!("layer.{name}.page_table_frames"), frames, "count", text);
            self.page_tables(layer);
        }
    }
}

impl Collector {
    /// What a host took back of its guests' memory.
    fn host_reclaim(&mut self, name: &str, counters: &ReclaimCounters, faults: &FaultCounters) {
        for (what, count, text) in [
            (
                "scanned",
                counters.scanned,
                "Pages of guests that the host's reclaim looked at; included in reclaim.scanned",
            ),
            ("activated", counters.activated, "Scanned pages of guests that had been accessed and stayed"),
            ("deactivated", counters.deactivated, "Pages of guests moved from the active list to the inactive"),
            ("swapped_out", counters.swapped_out, "Pages of guests written to the host's swap area"),
            ("swapped_in", counters.swapped_in, "Pages of guests read back from the host's swap area"),
        ] {
            self.count(format!("layer.{name}.reclaim.{what}"), count, text);
        }
        let text = "Faults of the host that read a page of a guest from its swap area";
        self.count(format!("layer.{name}.fault.major.count"), faults.major, text);
    }

    /// The state of a layer's memory after ageing, if it was aged.
    fn ageing(&mut self, layer: &Layer) {
        if let Some(aged) = &layer.counters.aged {
            let bytes = |frames: u64| frames * pagelab_base::addr::FRAME_BYTES;
            for (what, frames, text) in [
                ("free_bytes", aged.free_frames, "Memory that ageing left free"),
                (
                    "huge_free_bytes",
                    aged.huge_free_frames,
                    "Memory that ageing left free in blocks of 2 MiB and larger",
                ),
            ] {
                self.state(format!("layer.{}.aged.{what}", layer.name), bytes(frames), "bytes", text);
            }
        }
    }

    /// Statistics that the page tables of a layer count themselves.
    fn page_tables(&mut self, layer: &Layer) {
        self.add_all(
            &format!("layer.{}.page_table", layer.name),
            layer.spaces.tables.statistics(&layer.memory.contents),
        );
    }
}

const FOUND: &[(HitLevel, &str, &str)] = &[
    (HitLevel::L1, "l1", "found in the L1"),
    (HitLevel::L2, "l2", "found in the L2"),
    (HitLevel::L3, "l3", "found in the L3"),
    (HitLevel::Remote, "remote", "found in another core's caches"),
    (HitLevel::Dram, "dram", "found in no cache"),
];

type FaultKind = (&'static str, fn(&FaultCounters) -> u64, &'static str);

const FAULT_KINDS: &[FaultKind] = &[
    ("fault.zero_page.count", |f| f.zero_page, "Minor faults of reads that mapped the zero page"),
    ("fault.copy.count", |f| f.copied, "Minor faults of writes that copied a shared page"),
    ("fault.reuse.count", |f| f.reused, "Minor faults of writes to a write-protected page that is not shared"),
    ("fault.cached.count", |f| f.cached, "Minor faults that mapped a page of the page cache"),
    ("fault.split.count", |f| f.split, "Large pages split because a part had to be copied"),
    (
        "fault.collision.count",
        |f| f.collisions,
        "Faults of walkers that leave collisions of a hashed table to the kernel",
    ),
    ("fault.around.pages", |f| f.around, "Pages of the page cache mapped by fault-around"),
    (
        "populate.pages",
        |f| f.populated,
        "Pages mapped without an exception: by MAP_POPULATE and MADV_POPULATE_*, or by kernels with eager paging",
    ),
];
