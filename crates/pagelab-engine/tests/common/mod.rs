//! Sources written by hand, and simulations of them.
#![allow(dead_code, reason = "each binary uses its part")]

pub mod explore;
pub mod programs;
pub mod steps;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use pagelab_engine::base::addr::{FRAME_BYTES, Pfn, VirtAddr};
use pagelab_engine::base::cycles::Cycles;
use pagelab_engine::base::error::EngineError;
use pagelab_engine::base::ids::{CpuId, LayerId, SpaceId, SpaceIx};
use pagelab_engine::config::{Assembly, Config, LayerConfig, assemble};
use pagelab_engine::core_model::clock::Class;
use pagelab_engine::fault_engine::kernel_side::EngineState;
use pagelab_engine::kernel::entry_word::EntryWord;
use pagelab_engine::kernel::layer::Layer;
use pagelab_engine::kernel::layer::words::WordOf;
use pagelab_engine::kernel::locks::TaskId;
use pagelab_engine::kernel::reclaim::Swap;
use pagelab_engine::kernel::table_blocks::TableBlocks;
use pagelab_engine::kernel::threads::KernelThread;
use pagelab_engine::kernel::vma::VaRange;
use pagelab_engine::machine::cpu::Cpu;
use pagelab_engine::machine::simulation::{PlacedSource, Simulation};
use pagelab_engine::mmu_cache::MmuCacheKind;
use pagelab_engine::observe::statistics::Statistics;
use pagelab_engine::page_table::PageTableConfig;
use pagelab_engine::programs::load::{BackgroundLoad, Open};
use pagelab_trace::{
    Access, AccessKind, Batch, Branches, Event, EventKind, MapFlags, ProcessIx, Protection, Segment, Source,
    SourceInfo, ThreadIx, TraceError,
};

/// A source with given batches.
pub struct Script {
    info: SourceInfo,
    batches: std::vec::IntoIter<Batch>,
}

impl Source for Script {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        *batch = self.batches.next().unwrap_or_default();
        Ok(!batch.is_empty())
    }
}

/// Writes a [`Script`]. Thread 0 of process 0 exists from the start.
#[derive(Clone)]
pub struct ScriptWriter {
    batches: Vec<Batch>,
    position: u64,
    threads: u32,
    process_of: Vec<ProcessIx>,
}

impl ScriptWriter {
    pub fn new() -> Self {
        let mut writer = Self { batches: vec![Batch::default()], position: 0, threads: 0, process_of: Vec::new() };
        writer.add_thread(0);
        writer.event(0, EventKind::ProcessStart { parent: None });
        writer.event(0, EventKind::ThreadStart { os_tid: 1 });
        writer
    }

    fn add_thread(&mut self, process: u32) -> u32 {
        self.process_of.push(ProcessIx(process));
        self.threads += 1;
        self.threads - 1
    }

    /// Starts a thread in a process.
    pub fn thread(&mut self, process: u32) -> u32 {
        let thread = self.add_thread(process);
        self.event(thread, EventKind::ThreadStart { os_tid: thread + 1 });
        thread
    }

    pub fn event(&mut self, thread: u32, kind: EventKind) {
        let process = self.process_of[thread as usize];
        let event = Event { position: self.position, process, thread: ThreadIx(thread), kind };
        self.batches.last_mut().unwrap().push_event(event);
    }

    pub fn mmap(&mut self, thread: u32, addr: u64, len: u64) {
        self.event(thread, mmap(addr, len, Protection::READ_WRITE));
    }

    pub fn access(&mut self, thread: u32, kind: AccessKind, vaddr: u64) {
        self.access_of(thread, Access::new(kind, vaddr, 8));
    }

    pub fn access_of(&mut self, thread: u32, access: Access) {
        let batch = self.batches.last_mut().unwrap();
        batch.accesses.push(access);
        if !batch.branches.is_empty() {
            batch.branches.resize(batch.accesses.len(), Branches::NONE);
        }
        batch.close_run(ThreadIx(thread));
        self.position += 1;
    }

    /// An access with branches before it.
    pub fn access_after(&mut self, thread: u32, branches: Branches, access: Access) {
        let batch = self.batches.last_mut().unwrap();
        batch.branches.resize(batch.accesses.len(), Branches::NONE);
        batch.branches.push(branches);
        self.access_of(thread, access);
    }

    pub fn load(&mut self, thread: u32, vaddr: u64) {
        self.access(thread, AccessKind::Load, vaddr);
    }

    pub fn store(&mut self, thread: u32, vaddr: u64) {
        self.access(thread, AccessKind::Store, vaddr);
    }

    /// Ends the batch, so that later accesses are read later.
    pub fn cut(&mut self) {
        self.batches.push(Batch::default());
    }

    /// The same script in many batches: one per event, and several per run.
    pub fn in_pieces(mut self) -> Self {
        const PIECES: usize = 50;
        for batch in std::mem::take(&mut self.batches) {
            let mut left = &batch.accesses[..];
            for segment in &batch.segments {
                match *segment {
                    Segment::Event(ref event) => {
                        self.cut();
                        self.batches.last_mut().unwrap().push_event(event.clone());
                    }
                    Segment::Run { thread, end } => {
                        let behind = batch.accesses.len() - end;
                        let run;
                        (run, left) = left.split_at(left.len() - behind);
                        for piece in run.chunks(run.len().div_ceil(PIECES)) {
                            let segments = vec![Segment::Run { thread, end: piece.len() }];
                            self.batches.push(Batch { accesses: piece.to_vec(), segments, ..Batch::default() });
                        }
                    }
                }
            }
        }
        self
    }

    pub fn finish(mut self) -> Box<dyn Source> {
        self.batches.retain(|batch| !batch.is_empty());
        let info = SourceInfo {
            name: "script".to_owned(),
            accesses: Some(self.position),
            threads: self.threads,
            mappings_inferred: false,
            sampled: false,
            sampling: None,
            dependencies: true,
            branches: self.batches.iter().any(|batch| !batch.branches.is_empty()),
            content_hash: None,
        };
        Box::new(Script { info, batches: self.batches.into_iter() })
    }
}

/// The first task of a CPU.
pub fn first_task(cpu: CpuId) -> TaskId {
    TaskId { cpu, number: 0 }
}

pub fn mmap(addr: u64, len: u64, prot: Protection) -> EventKind {
    EventKind::Mmap { addr, len, prot, flags: MapFlags::anonymous_private(), file: None, file_offset: 0 }
}

/// A configuration of a preset or a file in `tests/systems`, with `engine.check`.
pub fn config(system: &str, set: &[&str]) -> Config {
    assembled(system, set).unwrap_or_else(|e| panic!("{e}"))
}

/// A system of the presets or of these tests with checks.
pub fn assembled(system: &str, set: &[&str]) -> Result<Config, EngineError> {
    let file = format!("{}/tests/systems/{system}.toml", env!("CARGO_MANIFEST_DIR"));
    let system = if std::path::Path::new(&file).exists() { &file } else { system };
    let mut all = vec!["engine.check=on".to_owned(), "machine.memory_bytes=8GiB".to_owned()];
    all.extend(set.iter().map(|s| (*s).to_owned()));
    let assembly = Assembly { machine: Some("sandybridge-e5-2420"), system: Some(system), kernel: None, set: &all };
    assemble(&assembly)
}

/// Runs a source on the given CPUs to its end.
/// Gives a layer a page table, without its MMU cache if that cannot keep the table's entries.
pub fn set_page_table(layer: &mut LayerConfig, table: &PageTableConfig) {
    if layer.mmu_cache.keeps(table.upper_entries()).is_err() {
        layer.mmu_cache = MmuCacheKind::None;
    }
    layer.page_table = table.clone();
}

/// The page tables that a program's layer can have.
pub fn page_tables_of_programs() -> impl Iterator<Item = PageTableConfig> {
    PageTableConfig::samples().into_iter().filter(|table| !table.is_for_hosts_only())
}

/// A system of one layer, with each page table that a program's layer can have.
pub fn with_each_page_table(config: Config) -> impl Iterator<Item = Config> {
    page_tables_of_programs().map(move |table| {
        let mut config = config.clone();
        set_page_table(&mut config.system.layers[0], &table);
        config
    })
}

pub fn run(config: &Config, source: Box<dyn Source>, cpus: &[usize]) -> (Simulation, Statistics) {
    run_all(config, vec![(source, cpus)])
}

pub fn run_all(config: &Config, sources: Vec<(Box<dyn Source>, &[usize])>) -> (Simulation, Statistics) {
    let placed = sources
        .into_iter()
        .map(|(source, cpus)| PlacedSource { source, cpus: cpus.to_vec(), memory_limit: None })
        .collect();
    let mut simulation = Simulation::new(config, placed, None).unwrap_or_else(|e| panic!("{e}"));
    simulation.run(&mut |_| true).unwrap_or_else(|e| panic!("{}: {e}", config.system.name));
    let stats = simulation.statistics();
    (simulation, stats)
}

/// Frames of a layer's kernel threads that are charged to a cgroup: all but those of balloons and of reports.
pub fn charged_frames(simulation: &Simulation, layer: LayerId) -> u64 {
    let uncharged = |thread: &KernelThread| matches!(thread, KernelThread::Balloon(_) | KernelThread::PageReporting(_));
    let charged = |thread: &&KernelThread| thread.layer() == layer && !uncharged(thread);
    let held: u64 = simulation.kernels.threads.iter().filter(charged).map(KernelThread::held_frames).sum();
    held + simulation.kernels.os.layers[layer].late_segment_frames()
}

/// Runs a script on CPU 0 and checks the conservation laws.
pub fn checked(system: &str, set: &[&str], script: ScriptWriter) -> (Simulation, Statistics) {
    let (simulation, stats) = run(&config(system, set), script.finish(), &[0]);
    assert_conserved(&stats);
    let hosts = simulation.kernels.os.layers.iter().filter_map(|layer| layer.host);
    assert_frames_conserved(&simulation, &simulation.programs.inputs[0].spaces().chain(hosts).collect::<Vec<_>>());
    (simulation, stats)
}

/// Frames of 4 KiB pages of the first process, from an address on.
pub fn frames_from(simulation: &Simulation, addr: u64, pages: u64) -> Vec<Option<u64>> {
    let space = simulation.programs.inputs[0].spaces().next().unwrap();
    let layer = &simulation.kernels.os.layers[space.layer];
    let mapped = layer.mapped(space.index, VirtAddr(addr), VirtAddr(addr + pages * FRAME_BYTES));
    let frame = |va| mapped.iter().find(|at| at.va.0 == va).map(|at| at.mapping.pfn.0);
    (0..pages).map(|n| frame(addr + n * FRAME_BYTES)).collect()
}

/// Returns a function that opens a workload repeatedly.
pub fn opener(spec: &str) -> Open {
    let spec = spec.to_owned();
    std::sync::Arc::new(move || Ok(pagelab_trace::workload::parse(&spec, 1)?))
}

/// Runs sources with a background load to the end.
pub fn run_beside(
    config: &Config,
    sources: Vec<(Box<dyn Source>, &[usize])>,
    beside: BackgroundLoad,
) -> (Simulation, Statistics) {
    try_beside(config, sources, beside).unwrap_or_else(|e| panic!("{e}"))
}

/// As [`run_beside`]. Errors: those of the run.
pub fn try_beside(
    config: &Config,
    sources: Vec<(Box<dyn Source>, &[usize])>,
    beside: BackgroundLoad,
) -> Result<(Simulation, Statistics), EngineError> {
    let placed = sources
        .into_iter()
        .map(|(source, cpus)| PlacedSource { source, cpus: cpus.to_vec(), memory_limit: None })
        .collect();
    let mut simulation = Simulation::with_load(config, placed, beside, None)?;
    simulation.run(&mut |_| true)?;
    let stats = simulation.statistics();
    Ok((simulation, stats))
}

/// The costs of main and other sources, of CPUs without a source and of kernel threads sum to the totals.
pub fn assert_all_is_on_an_account(stats: &Statistics) {
    let sum = |name: &str| {
        let value = |role: &&str| stats.values.get(&format!("{role}.{name}")).copied().unwrap_or(0);
        ["main", "co_runner", "arrivals", "no_source", "kthread"].iter().map(value).sum::<u64>()
    };
    let is_class = |name: &&String| name.strip_prefix("cycles.").is_some_and(|class| !class.contains('.'));
    let classes: Vec<String> = stats.values.keys().filter(is_class).cloned().collect();
    assert!(classes.len() >= 10, "{classes:?}");
    let others = ["fault.minor.count", "fault.major.count"].map(String::from);
    let (walks, stages) = (shared_between_accounts(stats, "walk."), shared_between_accounts(stats, "layer."));
    assert!(walks.len() > 24 && stages.len() >= 10, "{walks:?} {stages:?}");
    for name in classes.iter().chain(&others).chain(&walks).chain(&stages) {
        assert_eq!(sum(name), stats.values[name], "{name}");
    }
    for (whole, part) in [("main", "source"), ("co_runner", "co_runner")] {
        let sum = |name: &str| {
            let value = |number| stats.values.get(&format!("{part}.{number}.{name}")).copied();
            (0..8).filter_map(value).reduce(|sum, more| sum + more)
        };
        for name in classes.iter().chain(&others).chain(&walks).chain(&stages) {
            let parts = sum(name);
            assert!(parts.is_none_or(|parts| parts == stats.values[&format!("{whole}.{name}")]), "{part}.N.{name}");
        }
    }
}

/// Names of counters of walks and fault stages that every account has: all references, also by place.
fn shared_between_accounts(stats: &Statistics, family: &str) -> Vec<String> {
    let everywhere = ["walk.dirty.count", "walk.accessed_dirty_updates"];
    let shared = |name: &&String| {
        name.starts_with(family)
            && (family == "walk." || name.contains(".fault.stage."))
            && !everywhere.contains(&name.as_str())
    };
    stats.values.keys().filter(shared).cloned().collect()
}

/// Runs a workload spec on CPU 0.
pub fn run_workload(config: &Config, spec: &str) -> Statistics {
    let source = pagelab_trace::workload::parse(spec, 1).unwrap_or_else(|e| panic!("{e}"));
    run(config, source, &[0]).1
}

/// Classes sum to the cycles, stages to the fault cycles, places to the references.
pub fn assert_conserved(stats: &Statistics) {
    let sum = |prefix: &str, suffix: &str| {
        let direct = |name: &&String| {
            name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(suffix)).is_some_and(|mid| !mid.contains('.'))
        };
        stats.values.keys().filter(direct).map(|name| stats.values[name]).sum::<u64>()
    };
    assert_eq!(sum("cycles.", ""), stats.values["cycles"]);
    assert_eq!(sum("fault.stage.", ".cycles"), stats.values["fault.cycles"]);
    for what in ["count", "cycles"] {
        let parts = ["program", "kernel"].map(|origin| stats.values[&format!("walk.aborted.{origin}.{what}")]);
        assert_eq!(parts.iter().sum::<u64>(), stats.values[&format!("walk.aborted.{what}")], "{what}");
    }
    for walk in ["walk", "walk.kernel", "walk.aborted"] {
        assert_eq!(sum(&format!("{walk}.refs."), ""), stats.values[&format!("{walk}.refs")], "{walk}");
    }
    assert_waits_conserved(stats);
}

/// Waits by kind of lock sum to all waits, as far as they are counted.
fn assert_waits_conserved(stats: &Statistics) {
    let locks = |what: &str| {
        let is_lock = |name: &&String| name.starts_with("layer.") && name.contains(".lock.") && name.ends_with(what);
        stats.values.keys().filter(is_lock).map(|name| stats.values[name]).collect::<Vec<_>>()
    };
    let (waited, queued) = (locks(".wait_cycles"), locks(".queue_cycles"));
    if !waited.is_empty() {
        assert_eq!(waited.iter().sum::<u64>(), stats.values["cycles.lock_wait"]);
    }
    if !queued.is_empty() {
        let part = |name: &str| stats.values[&format!("coherence.queue_cycles.{name}")];
        assert_eq!(queued.iter().sum::<u64>(), part("lock"));
        let parts: u64 = ["program", "walk", "lock", "kernel"].map(part).iter().sum();
        assert_eq!(parts, stats.values["coherence.queue_cycles"]);
    }
}

/// Each CPU's classes sum to its clock, and all clocks end at the same time.
pub fn assert_clocks_conserved(simulation: &Simulation) {
    let end = simulation.scheduler.elapsed();
    for (number, cpu) in simulation.scheduler.cpus.iter().enumerate() {
        let sum = Class::ALL.iter().map(|&class| cpu.clock.spent(class)).sum::<Cycles>();
        assert_eq!(sum, cpu.clock.now(), "classes of CPU {number}");
        assert!(cpu.is_kernel_only || sum == end, "CPU {number} has {sum:?} of {end:?}");
    }
}

/// Every frame is free, mapped as often as its record says, a page table, the kernel's or metadata; and page tables
/// allow what the VMAs allow. `live` are the existing spaces, except the kernels' own.
pub fn assert_frames_conserved(simulation: &Simulation, live: &[SpaceId]) {
    let no_engine = simulation.kernels.os.layers.iter().all(|layer| layer.mechanisms.engine.is_none());
    if no_engine && !simulation.scheduler.cpus.iter().any(Cpu::has_activity) {
        return assert_all_frames_conserved(simulation, live);
    }
    let mut simulation = simulation.clone();
    // A kernel thread may be in the middle of its work, for example of a fault of its host on its own references, which
    // waits for a device.
    simulation.settle().unwrap_or_else(|e| panic!("{e}"));
    // A page mapped by an engine is in no list until the engine's thread accounts for it.
    for space in live {
        simulation.kernels.os.layers[space.layer].account_for_taken(space.index);
    }
    assert_all_frames_conserved(&simulation, live);
}

/// Whether an engine's thread has yet to disarm entries of a space.
fn is_to_be_disarmed(layer: &Layer, space: SpaceIx) -> bool {
    match &layer.mechanisms.engine {
        Some(EngineState::Mfoe(mfoe)) => mfoe.jobs.iter().any(|job| job.space == space && !job.arm),
        Some(EngineState::Smu(_)) | None => false,
    }
}

fn assert_all_frames_conserved(simulation: &Simulation, live: &[SpaceId]) {
    for (index, layer) in simulation.kernels.os.layers.iter().enumerate() {
        let allocator = layer.frame_allocator();
        allocator.check_invariants();
        let spaces: Vec<SpaceId> = live.iter().copied().filter(|space| space.layer.index() == index).collect();
        let swap = layer.memory.reclaim.as_ref().and_then(|reclaim| reclaim.swap.as_ref());
        let mut mapped = BTreeMap::new();
        for space in &spaces {
            let vmas = &layer.spaces[space.index].vmas;
            vmas.check_invariants();
            let own =
                |page: &&pagelab_engine::page_table::Removed| page.mapping.pfn != layer.memory.page_use.zero_page();
            let pages = layer.mapped(space.index, VirtAddr(0), VirtAddr(1 << 48));
            let resident: u64 = pages.iter().filter(own).map(|page| 1 << page.mapping.size.order()).sum();
            assert_eq!(layer.spaces[space.index].resident, resident, "frames that {space:?} maps");
            for page in pages {
                let size = page.mapping.size;
                let whole = VaRange { start: page.va, end: page.va + size.bytes() };
                let swapped = layer.has_words(space.index, whole);
                assert!(!swapped, "{:?} of {space:?} is mapped and swapped out at once", page.va);
                for n in 0..1 << size.order() {
                    mapped.entry(page.mapping.pfn.0 + n).or_insert_with(Vec::new).push((*space, page));
                }
                let last = page.va + size.bytes() - 1;
                for va in [page.va, last] {
                    let vma = vmas.find(va).unwrap_or_else(|| panic!("{va:?} of {space:?} is mapped outside all VMAs"));
                    assert!(vma.prot.write || !page.mapping.flags.writable, "{va:?} of {space:?} is writable");
                    let private = !vma.is_shared() && page.mapping.flags.writable;
                    let exclusive = layer.memory.page_use.are_exclusive(page.mapping.pfn, size.order());
                    assert!(!private || exclusive, "{va:?} of {space:?} can be written, but is not its own");
                }
            }
        }
        let mut entries = BTreeMap::new();
        let whole = VaRange { start: VirtAddr(0), end: VirtAddr(1 << 48) };
        let words = |space: &SpaceId| {
            layer.words(space.index, whole).into_iter().map(|entry| (space.index, entry)).collect::<Vec<_>>()
        };
        for (space, WordOf { va, word, .. }) in spaces.iter().flat_map(words) {
            match word {
                EntryWord::Swap(slot) => {
                    assert!(swap.is_some(), "{va:?} is swapped out to nowhere");
                    *entries.entry(slot).or_insert(0) += 1;
                }
                EntryWord::Armed(_) | EntryWord::Stored(_) => {
                    let right = layer.armed(layer.context(CpuId(0), space), space, va) == Some(word)
                        || is_to_be_disarmed(layer, space);
                    assert!(right, "{va:?} of space {space} is armed with {word:?}");
                }
            }
        }
        assert_eq!(swap.into_iter().flat_map(Swap::in_use).collect::<BTreeMap<_, _>>(), entries, "entries of slots");
        // Frames that some of their users have not yet faulted in again.
        let awaited: BTreeMap<u64, u32> = swap.into_iter().flat_map(|s| s.in_memory()).map(|(f, n)| (f.0, n)).collect();
        awaited.keys().for_each(|&pfn| _ = mapped.entry(pfn).or_default());
        mapped.retain(|&pfn, pages| {
            let users = pages.len() as u32 + awaited.get(&pfn).copied().unwrap_or(0);
            let pfn = Pfn(pfn);
            assert!(!allocator.is_free(pfn), "a mapped frame is free");
            let anonymous = layer.memory.page_use.is_anonymous(pfn);
            assert!(
                !anonymous || users == layer.memory.page_use.users(pfn),
                "{pfn:?} is mapped by {pages:?} of {users}"
            );
            if let Some(reclaim) = layer.memory.reclaim.as_ref().filter(|_| pfn != layer.memory.page_use.zero_page()) {
                let mut places: Vec<(SpaceIx, u64)> = pages
                    .iter()
                    .map(|(space, page)| (space.index, page.va.0 / FRAME_BYTES + pfn.0 - page.mapping.pfn.0))
                    .collect();
                places.sort_unstable();
                let mut known: Vec<(SpaceIx, u64)> = reclaim.rmap.pages(pfn).collect();
                known.sort_unstable();
                assert_eq!(known, places, "the reverse map of {pfn:?}");
            }
            anonymous
        });
        // A segment that is dissolved for its migration lies in memory that was reserved at boot.
        mapped.retain(|&pfn, _| pfn >= layer.memory.set_aside);
        let all = mapped.len() as u64 + layer.memory.page_use.cached_frames();
        let held = simulation.kernels.threads.held_frames(index.into()) + layer.mechanisms.balloon.pages();
        let held = held + layer.late_segment_frames();
        if let Some(reclaim) = &layer.memory.reclaim {
            let in_memory = layer.memory.page_use.memory_files().frames();
            let cached = reclaim.storage.as_ref().map_or(in_memory, |_| layer.memory.page_use.cached_frames());
            let charged = charged_frames(simulation, index.into());
            assert_eq!(reclaim.used_frames(), mapped.len() as u64 + cached + charged, "frames that programs use");
        }
        let total = layer.memory_bytes() / FRAME_BYTES;
        let set_aside = layer.boot_reserved_frames();
        let tables = layer.table_frames();
        // The allocator's, the zero page, one per CPU and one per space, including the direct map.
        let kernel = 2 + layer.data.cpus.len() as u64 + 1 + spaces.len() as u64;
        let kernel = kernel + layer.request_frames() + layer.code_frames() + layer.vma_lock_frames();
        let engine = layer.mechanisms.engine.as_ref().map_or(0, |engine| engine.held_frames() + engine.table_frames());
        let reserved = engine
            + layer.mechanisms.table_blocks.as_ref().map_or(0, TableBlocks::held_frames)
            + layer.mechanisms.placement.held_frames()
            + layer.mechanisms.placement.table_frames()
            + held
            + layer.translation_cache_frames();
        let sum = layer.memory.free_frames() + all + tables + kernel + set_aside + reserved;
        assert_eq!(
            sum, total,
            "frames of `{}`: {all} mapped or cached, {tables} of tables, {kernel} kernel's",
            layer.name
        );
    }
}

/// Calls a function for each item on two threads, in order. For tests so long that they are the last to end.
pub fn on_two_threads<Item: Sync>(items: &[Item], run: impl Fn(&Item) + Sync) {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            run(item);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
}
