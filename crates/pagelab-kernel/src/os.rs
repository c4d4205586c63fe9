//! The kernels of all layers: address spaces, frames, page faults.

use crate::config::{BootConfig, KernelConfig, LayerConfig, PageCache, ReclaimFlush, check_limit};
use crate::context::KernelContext;
use crate::effects::Effects;
use crate::entry_word::EntryWord;
use crate::fault::latencies::FaultLatencies;
use crate::fault::stage::{FaultCounters, Stage};
use crate::fault_engine::kernel_side::{EngineScope, EngineState, FilledEntries};
use crate::frames::frame_alloc::NodeConfig;
use crate::frames::page_use::FilePage;
use crate::frames::supply::FrameAllocatorConfig;
use crate::held_batches::Batches;
use crate::home::ProcessTarget;
use crate::invalidation::MappingCounters;
use crate::layer::engine::ArmingMode;
use crate::layer::{AsidAllocator, Layer};
use crate::locks::Locks;
use crate::locks::TaskId;
use crate::needs::Need;
use crate::reclaim::{Cgroup, GroupId, PagesToScan, Pressure, Reclaim, ReclaimScan};
use crate::translation_cache::TranslationCaches;
use crate::vma::VaRange;
use pagelab_base::addr::{FRAME_SHIFT, PageSize, Pfn, VirtAddr};
use pagelab_base::error::EngineError;
use pagelab_base::ids::{CpuId, LayerId, MachineCore, SpaceId};
use pagelab_base::io::Lba;
use pagelab_base::step::BlockKey;
use pagelab_hardware::device::Clock;
use pagelab_tables::mmu_cache::Asid;
use pagelab_tables::page_table::{Leaf, WalkList};
use pagelab_trace::quantity::Bytes;
use pagelab_trace::{EventKind, MapFlags, Protection};

/// All layers, and the state that their kernels share with the simulation.
#[derive(Clone)]
pub struct Os {
    /// By [`LayerId`], in the order of `system.layers`.
    pub layers: Vec<Layer>,
    /// The locks that tasks hold now, of all layers.
    pub locks: Locks,
    /// Configuration of the kernels: costs of their paths, and behaviour.
    pub costs: KernelConfig,
    /// Counters of page faults, by layer.
    pub faults: Vec<FaultCounters>,
    /// Latencies of page faults by how they were served.
    pub fault_latencies: FaultLatencies,
    /// Counters of the mapping calls of all programs.
    pub mapping: MappingCounters,
    /// Mapping calls that have written entries for a fault engine and are not charged for it yet.
    pub fills: Vec<FilledEntries>,
    /// Bytes of shared anonymous memory mapped so far; the next mapping is a new object.
    pub shared_bytes: u64,
    asids: AsidAllocator,
    /// Layers that host no other, on which processes run.
    tops: Vec<LayerId>,
    /// By simulated CPU, the number of its core on the machine.
    pub cores: Vec<MachineCore>,
}

impl Os {
    /// Boots the layers, each inside its host.
    pub fn boot(config: &BootConfig<'_>, effects: &mut Effects) -> Result<Self, EngineError> {
        let mut os = Self {
            layers: Vec::new(),
            locks: Locks::default(),
            costs: config.kernel.clone(),
            faults: vec![FaultCounters::default(); config.system.layers.len()],
            fault_latencies: FaultLatencies::default(),
            mapping: MappingCounters::default(),
            fills: Vec::new(),
            shared_bytes: 0,
            asids: AsidAllocator::default(),
            cores: Vec::new(),
            tops: Vec::new(),
        };
        let configs = &config.system.layers;
        // Hosts first. The configuration's order is the order of the results, so layers keep their indices.
        let mut booted: Vec<Option<Layer>> = configs.iter().map(|_| None).collect();
        for index in boot_order(configs)? {
            let layer = os.boot_layer(config, effects, index, &mut booted)?;
            booted[index] = Some(layer);
        }
        os.set_reclaim_up(config, &mut booted)?;
        for (layer, layer_config) in booted.iter_mut().flatten().zip(configs) {
            layer.data.program_cpus = config.program_cpus;
            layer.boot_stage_lines(&config.kernel.most_lines())?;
            layer.boot_vma_locks(config.kernel.fault_lock)?;
            if config.machine.instruction_caches {
                layer.boot_code(config.kernel.code)?;
            }
            let cache = config.kernel.translation_cache.filter(|_| layer_config.translation_cache.0);
            layer.mechanisms.translation_caches =
                cache.and_then(|cache| TranslationCaches::new(cache, &layer_config.page_table));
        }
        os.layers = booted.into_iter().map(|l| l.expect("every layer is in the boot order")).collect();
        os.tops = config.system.tops();
        Ok(os)
    }

    /// Sets up reclaim for the layers that have a device. A host has a swap area for the memory of its guests, no
    /// files, and no limit: that of `kernel.cgroup_limit_bytes` is for programs.
    fn set_reclaim_up(&mut self, config: &BootConfig<'_>, booted: &mut [Option<Layer>]) -> Result<(), EngineError> {
        let hosts: Vec<Option<LayerId>> = booted.iter().flatten().map(|l| l.host.map(|host| host.layer)).collect();
        let clock = Clock { mhz: config.machine.frequency_mhz };
        for (index, layer) in booted.iter_mut().flatten().enumerate() {
            let mut kernel = config.kernel.clone();
            kernel.swap = kernel.swap.filter(|_| config.system.layers[index].swap.0);
            if hosts.contains(&Some(LayerId::from(index))) {
                (kernel.storage, kernel.cgroup_limit_bytes) = (None, None);
            } else {
                layer.memory.page_use.cold = kernel.page_cache == PageCache::Cold;
            }
            layer.memory.reclaim = Reclaim::new(layer.memory_bytes() >> FRAME_SHIFT, &kernel, clock);
            if let Some(costs) = kernel.block_io.filter(|_| layer.memory.reclaim.is_some()) {
                layer.boot_requests(costs.lines)?;
            }
        }
        Ok(())
    }

    fn boot_layer(
        &mut self,
        config: &BootConfig<'_>,
        effects: &mut Effects,
        index: usize,
        booted: &mut [Option<Layer>],
    ) -> Result<Layer, EngineError> {
        let configs = &config.system.layers;
        let layer_config = &with_defaults(&configs[index], config)?;
        let check = config.check;
        let drives = config.kernel.storage.as_ref().map_or(0, |device| device.striping().drives);
        let scope = EngineScope { cpus: config.machine.cpus, cores: config.machine.cores, drives };
        let Some(host_name) = &layer_config.host else {
            let memory = layer_config.memory_bytes.unwrap_or(config.machine.memory_bytes).0;
            if memory > config.machine.memory_bytes.0 {
                let what = format!("{memory} bytes are more than the machine's {}", config.machine.memory_bytes);
                return Err(EngineError::config(memory_key(layer_config), what));
            }
            return Layer::boot(
                layer_config,
                None,
                memory,
                &guest_sizes(configs, layer_config, memory),
                scope,
                check,
                &mut self.asids,
            );
        };
        let host_index = configs.iter().position(|c| &c.name == host_name).expect("the boot order checked it");
        let host = booted[host_index].as_mut().expect("hosts boot first");
        let memory = guest_size(configs, layer_config, host.memory_bytes());
        let swap = config.kernel.swap.as_ref().filter(|_| configs[host_index].swap.0).map(|swap| swap.size_bytes);
        check_guest_size(layer_config, memory, host, swap)?;
        let space = host.add_guest_space(KernelContext::BOOT, memory, &mut self.asids)?;
        let whole = EventKind::Mmap {
            addr: 0,
            len: memory,
            prot: Protection { read: true, write: true, execute: true },
            // The guest writes the hypervisor's memory, whatever access comes first.
            flags: MapFlags(MapFlags::anonymous_private().0 | MapFlags::WRITTEN_BEFORE),
            file: None,
            file_offset: 0,
        };
        host.spaces[space].vmas.apply(&whole).expect("the mapping is aligned and not empty");
        host.begin_guest_segment(space, memory);
        let host_id = SpaceId { layer: host_index.into(), index: space };
        let wanted =
            host.request_arming(KernelContext::BOOT, space, VaRange { start: VirtAddr(0), end: VirtAddr(memory) });
        if wanted == ArmingMode::Thread {
            effects.wake(host_id.layer, Need::Arming);
        }
        Layer::boot(
            layer_config,
            Some(host_id),
            memory,
            &guest_sizes(configs, layer_config, memory),
            scope,
            check,
            &mut self.asids,
        )
    }

    /// Scans a layer's pages once for pages to reclaim: chooses some, and examines them.
    pub fn scan_pages(
        &mut self,
        effects: &mut Effects,
        layer: LayerId,
        pressure: Pressure,
        task: TaskId,
    ) -> ReclaimScan {
        let pages = self.layers[layer].choose_pages(pressure);
        self.examine_pages(effects, layer, &pages, task)
    }

    /// Examines chosen pages, and reclaims some. File pages that must be written cannot be read again before the
    /// write completes ([`Self::written_back`]).
    pub fn examine_pages(
        &mut self,
        effects: &mut Effects,
        layer: LayerId,
        pages: &PagesToScan,
        task: TaskId,
    ) -> ReclaimScan {
        let cpu = task.cpu;
        let context = KernelContext::on(cpu);
        let locks = &self.locks;
        let is_busy = |index, page| locks.holds_page(SpaceId { layer, index }, page);
        let batches = self.costs.held_locks.map(|_| Batches::default());
        let mut scan = self.layers[layer].examine_pages(context, pages, batches, &is_busy);
        scan.absent = self.absent_in_host(layer, &scan.outgoing);
        for &(page, frame) in &scan.files {
            self.begin_write(layer, page, frame, task);
        }
        let whole = self.costs.reclaim_flush == ReclaimFlush::Space;
        for &(index, start, bytes) in &scan.gone {
            let space = SpaceId { layer, index };
            effects.invalidate(space, VaRange { start, end: start + bytes }).full |= whole;
        }
        scan
    }

    /// The frames of a layer, of those that a device is about to write, that a host has swapped out. The host must read
    /// them back first.
    pub(crate) fn absent_in_host(&mut self, layer: LayerId, outgoing: &[Pfn]) -> Vec<Pfn> {
        if self.layers[layer].host.is_none() {
            return Vec::new();
        }
        let absent: Vec<Pfn> = outgoing.iter().copied().filter(|&frame| self.is_swapped_out(layer, frame)).collect();
        if let Some(reclaim) = &mut self.layers[layer].memory.reclaim {
            reclaim.counters.double_paged += absent.len() as u64;
        }
        absent
    }

    /// Whether a host has swapped out a layer's frame.
    fn is_swapped_out(&self, mut layer: LayerId, mut frame: Pfn) -> bool {
        while let Some(host) = self.layers[layer].host {
            let va = VirtAddr(frame.addr().0);
            let word = self.layers[host.layer].word(host.index, va);
            if word.is_some_and(|entry| matches!(entry.word, EntryWord::Swap(_))) {
                return true;
            }
            let Some(next) = self.frame_in_host(host, va) else { return false };
            (layer, frame) = (host.layer, next);
        }
        false
    }

    /// The frame of a host that a guest's address lies in; `None` if there is none.
    fn frame_in_host(&self, host: SpaceId, va: VirtAddr) -> Option<Pfn> {
        let layer = &self.layers[host.layer];
        let space = &layer.spaces[host.index];
        if let Some(frame) = space.segment.as_ref().and_then(|segment| segment.frame(va)) {
            return Some(frame);
        }
        let mut list = WalkList::new();
        space.table.walk(&layer.memory.contents, va, &mut list);
        let Leaf::Present(mapping) = list.leaf else { return None };
        Some(Pfn(mapping.pfn.0 + (va.offset_in(mapping.size.bytes()) >> FRAME_SHIFT)))
    }

    /// The machine frame of a layer's frame; `None` if its hosts have not allocated one yet.
    pub fn machine_frame(&self, mut layer: LayerId, mut frame: Pfn) -> Option<Pfn> {
        while let Some(host) = self.layers[layer].host {
            frame = self.frame_in_host(host, VirtAddr(frame.addr().0))?;
            layer = host.layer;
        }
        Some(frame)
    }

    /// Begins to write a page of a file from its frame. Returns its block.
    pub fn begin_write(&mut self, id: LayerId, page: FilePage, frame: Pfn, task: TaskId) -> Lba {
        let layer = &mut self.layers[id];
        let storage = layer.memory.reclaim.as_mut().and_then(|reclaim| reclaim.storage.as_mut());
        let storage = storage.expect("what is dirty came from there");
        let lba = storage.lba(page.0, page.1);
        storage.note_written(page.0, page.1);
        layer.memory.page_use.begin_write(page, lba);
        if let Some(contents) = &mut layer.memory.checked {
            contents.begin_write(lba, frame);
        }
        let free = self.locks.acquire(BlockKey::Writeback { layer: id, lba }, task);
        assert!(free, "{lba:?} is written twice at a time");
        lba
    }

    /// Ends the writing of pages of files. The task is the one that began it.
    pub fn written(&mut self, id: LayerId, pages: &[(FilePage, Lba)], task: TaskId) {
        for &(page, lba) in pages {
            self.locks.release(BlockKey::Writeback { layer: id, lba }, task);
            let layer = &mut self.layers[id];
            layer.memory.page_use.end_write(page);
            if let Some(contents) = &mut layer.memory.checked {
                contents.end_write(lba);
            }
        }
    }

    /// Ends the writing of pages that a scan found. The task is that of the scan.
    pub fn written_back(&mut self, layer: LayerId, scan: &ReclaimScan, task: TaskId) {
        let cpu = task.cpu;
        let pages = scan.files.iter().zip(&scan.io.storage);
        let pages: Vec<(FilePage, Lba)> = pages.map(|(&(page, _), request)| (page, request.first)).collect();
        self.written(layer, &pages, task);
        self.layers[layer].arm_again(cpu, &scan.written);
    }

    /// Accounts for all pages that a layer's engine has mapped, because memory is short; returns the number of pages.
    pub fn account_for_all(&mut self, id: LayerId) -> u64 {
        let layer = &mut self.layers[id];
        if !layer.mechanisms.engine.as_ref().is_some_and(EngineState::maps_files) {
            return 0;
        }
        layer.spaces.numbers().map(|index| layer.account_for_taken(index)).sum()
    }

    /// A target on a layer for the processes of a source, with its own memory cgroup if it has a limit. It is not
    /// reported, and placement policy and fault engine of the layer apply. Errors: the limit is too low, or there is no
    /// device to reclaim to.
    pub fn home(&mut self, layer: LayerId, name: &str, limit: Option<Bytes>) -> Result<ProcessTarget, EngineError> {
        let home = ProcessTarget {
            layer,
            group: GroupId::REST,
            uses_placement: true,
            uses_fault_engine: true,
            reported: false,
        };
        let Some(limit) = limit else { return Ok(home) };
        check_limit(&format!("memory_limit of {name}"), limit, &self.costs)?;
        let layer = &mut self.layers[layer];
        let Some(reclaim) = &mut layer.memory.reclaim else {
            let what = format!("a limit needs a device to make room with: set system.layers.{}.swap=on", layer.name);
            return Err(EngineError::config(format!("memory_limit of {name}"), what));
        };
        Ok(ProcessTarget { group: reclaim.add_group(Cgroup::new(name, limit.0 >> FRAME_SHIFT)), ..home })
    }

    /// Number of stages in [`Stage::ALL`] that its faults may have.
    pub fn stages(&self) -> usize {
        if self.costs.block_io.is_some() { Stage::ALL.len() } else { Stage::OF_ALL.len() }
    }

    /// The layers that processes run on.
    pub fn tops(&self) -> &[LayerId] {
        &self.tops
    }

    /// Creates an empty address space.
    pub fn add_space(&mut self, cpu: CpuId, home: ProcessTarget) -> Result<SpaceId, EngineError> {
        let layer = &mut self.layers[home.layer];
        let index = layer.add_space(KernelContext { cpu, group: home.group }, &mut self.asids)?;
        let space = &mut layer.spaces[index];
        (space.group, space.reported) = (home.group, home.reported);
        (space.uses_placement, space.uses_fault_engine) = (home.uses_placement, home.uses_fault_engine);
        Ok(SpaceId { layer: home.layer, index })
    }

    /// The tag of a space in TLBs and MMU caches.
    pub fn asid(&self, space: SpaceId) -> Asid {
        self.layers[space.layer].spaces[space.index].asid
    }

    /// Whether a layer hosts another.
    pub fn hosts(&self, layer: LayerId) -> bool {
        self.layers.iter().any(|l| l.host.is_some_and(|h| h.layer == layer))
    }
}

/// Memory of a guest whose host has `host_bytes`.
fn guest_size(configs: &[LayerConfig], guest: &LayerConfig, host_bytes: u64) -> u64 {
    let guests = configs.iter().filter(|c| c.host == guest.host).count() as u64;
    let align = PageSize::Size2M.bytes();
    // A sixteenth remains for the host's page metadata (1/64), its tables and its own use.
    let share = (host_bytes / 16 * 15 / guests) & !(align - 1);
    guest.memory_bytes.map_or(share, |bytes| bytes.0)
}

/// Refuses a guest with more memory than its host can hold, in its frames and its swap area.
fn check_guest_size(guest: &LayerConfig, memory: u64, host: &Layer, swap: Option<Bytes>) -> Result<(), EngineError> {
    if memory <= host.memory_bytes() + swap.unwrap_or_default().0 {
        return Ok(());
    }
    let swap = swap.map_or_else(
        || "; a host with a swap area (kernel.swap) may give its guests more than it has".to_owned(),
        |bytes| format!(" and the {bytes} of its swap area"),
    );
    let what = format!("{memory} bytes are more than the {} of its host `{}`{swap}", host.memory_bytes(), host.name);
    Err(EngineError::config(memory_key(guest), what))
}

/// Memory of each guest of a host that has `bytes`.
fn guest_sizes(configs: &[LayerConfig], host: &LayerConfig, bytes: u64) -> Vec<u64> {
    let guests = configs.iter().filter(|c| c.host.as_ref() == Some(&host.name));
    guests.map(|guest| guest_size(configs, guest, bytes)).collect()
}

fn memory_key(layer: &LayerConfig) -> String {
    format!("system.layers.{}.memory_bytes", layer.name)
}

/// Indices of the layers, hosts before guests. Errors: no bottom layer or several, a host that does not exist, a cycle.
fn boot_order(configs: &[LayerConfig]) -> Result<Vec<usize>, EngineError> {
    let names: Vec<&str> = configs.iter().map(|c| c.name.as_str()).collect();
    for (n, name) in names.iter().enumerate() {
        if names[..n].contains(name) {
            return Err(EngineError::config("system.layers", format!("two layers are named `{name}`")));
        }
    }
    if configs.iter().filter(|c| c.host.is_none()).count() != 1 {
        let what = "exactly one layer, the machine's own, has no `host`; every other names the layer that hosts it";
        return Err(EngineError::config("system.layers", what));
    }
    let mut order = Vec::new();
    while order.len() < configs.len() {
        let before = order.len();
        for (index, config) in configs.iter().enumerate() {
            let ready = match &config.host {
                None => true,
                Some(host) => {
                    let at = names.iter().position(|name| name == host).ok_or_else(|| {
                        let key = format!("system.layers.{}.host", config.name);
                        EngineError::config(
                            key,
                            format!("no layer is named `{host}`; the layers are {}", names.join(", ")),
                        )
                    })?;
                    order.contains(&at)
                }
            };
            if ready && !order.contains(&index) {
                order.push(index);
            }
        }
        if order.len() == before {
            return Err(EngineError::config("system.layers", "layers host each other in a circle"));
        }
    }
    Ok(order)
}

/// The configuration of a layer, with what its frame allocator takes from the kernel and, at the bottom, with the nodes
/// of the machine's memory.
fn with_defaults(layer: &LayerConfig, config: &BootConfig<'_>) -> Result<LayerConfig, EngineError> {
    let (mut layer, sizes) = (layer.clone(), config.machine.node_bytes.clone());
    if let FrameAllocatorConfig::Linux(linux) = &mut layer.frame_allocator {
        linux.pcp.rules.get_or_insert(config.kernel.per_cpu_lists);
    }
    if sizes.is_empty() || layer.host.is_some() {
        return Ok(layer);
    }
    let key = format!("system.layers.{}.frame_allocator", layer.name);
    match &mut layer.frame_allocator {
        FrameAllocatorConfig::Linux(linux) if linux.nodes.is_empty() => {
            let node = |memory_bytes| NodeConfig { memory_bytes, distances: Vec::new() };
            linux.nodes = sizes.into_iter().map(node).collect();
            Ok(layer)
        }
        FrameAllocatorConfig::Linux(_) => {
            let what = "machine.memory.nodes already defines the nodes; remove nodes here, or set machine.memory.placement = interleaved";
            Err(EngineError::config(format!("{key}.nodes"), what))
        }
        FrameAllocatorConfig::Buddy => {
            let what = "only the allocator of kind `linux` knows nodes; choose it, or set machine.memory.placement = interleaved";
            Err(EngineError::config(key, what))
        }
    }
}
