//! The kernels of all layers: address spaces, frames, page faults.

pub mod fault;
pub mod frame_alloc;
pub mod frames;
mod locks;
pub mod mapping;
pub mod page_use;
pub mod populate;
pub mod reclaim;
mod user_pages;
pub mod vma;

pub use locks::Locks;

use crate::addr::{FRAME_SHIFT, PageSize};
use crate::config::{Config, KernelConfig, LayerConfig, LruList};
use crate::error::EngineError;
use crate::layer::{AsidAllocator, Layer, SpaceId};
use crate::os::fault::FaultCounters;
use crate::os::mapping::MappingCounters;
use crate::os::reclaim::Reclaim;
use crate::os::vma::VaRange;
use pagelab_trace::{EventKind, MapFlags, Protection};

/// All layers and what their kernels share with the simulation.
pub struct Os {
    pub layers: Vec<Layer>,
    pub locks: Locks,
    pub costs: KernelConfig,
    pub faults: Vec<FaultCounters>,
    pub mapping: MappingCounters,
    /// Shared anonymous memory mapped so far: what comes next is a new object.
    pub shared_bytes: u64,
    /// Translations that an activity has made invalid since the last look.
    pub invalid: Vec<(SpaceId, Vec<VaRange>)>,
    asids: AsidAllocator,
    /// Layers that host nobody: where processes run.
    tops: Vec<u16>,
}

impl Os {
    /// Boots the layers, each inside the one that hosts it.
    pub fn boot(config: &Config) -> Result<Self, EngineError> {
        let mut os = Self {
            layers: Vec::new(),
            locks: Locks::default(),
            costs: config.kernel.clone(),
            faults: vec![FaultCounters::default(); config.system.layers.len()],
            mapping: MappingCounters::default(),
            shared_bytes: 0,
            invalid: Vec::new(),
            asids: AsidAllocator::default(),
            tops: Vec::new(),
        };
        let configs = &config.system.layers;
        // Hosts first; the order of the config is the order of the results, so layers keep their places.
        let mut booted: Vec<Option<Layer>> = configs.iter().map(|_| None).collect();
        for index in boot_order(configs)? {
            let layer = os.boot_layer(config, index, &mut booted)?;
            booted[index] = Some(layer);
        }
        os.set_reclaim_up(config, &mut booted);
        os.layers = booted.into_iter().map(|l| l.expect("every layer is in the boot order")).collect();
        os.tops = (0..configs.len() as u16)
            .filter(|&l| configs.iter().all(|c| c.host.as_deref() != Some(&configs[usize::from(l)].name)))
            .collect();
        Ok(os)
    }

    /// Where there is a swap device, the layers that programs run on reclaim memory; what a hypervisor gave a guest stays
    /// the guest's.
    fn set_reclaim_up(&mut self, config: &Config, booted: &mut [Option<Layer>]) {
        let Some(swap) = &config.kernel.swap else { return };
        let limit = config.kernel.cgroup_limit_bytes.map_or(u64::MAX, |bytes| bytes.0 >> FRAME_SHIFT);
        let hosts: Vec<Option<u16>> = booted.iter().flatten().map(|l| l.host.map(|host| host.layer)).collect();
        for (index, layer) in booted.iter_mut().flatten().enumerate() {
            if !hosts.contains(&Some(index as u16)) {
                let frames = layer.memory_bytes() >> FRAME_SHIFT;
                let active = config.kernel.new_pages == LruList::Active;
                layer.reclaim = Some(Reclaim::new(frames, limit, active, swap));
            }
        }
    }

    fn boot_layer(
        &mut self,
        config: &Config,
        index: usize,
        booted: &mut [Option<Layer>],
    ) -> Result<Layer, EngineError> {
        let configs = &config.system.layers;
        let of = &configs[index];
        let check = config.engine.check.0;
        let cpus = config.machine.cores * config.machine.threads_per_core;
        let Some(host_name) = &of.host else {
            let memory = of.memory_bytes.unwrap_or(config.machine.memory_bytes).0;
            if memory > config.machine.memory_bytes.0 {
                let what = format!("{memory} bytes are more than the machine's {}", config.machine.memory_bytes);
                return Err(EngineError::config(memory_key(of), what));
            }
            return Layer::boot(of, None, memory, cpus, check, &mut self.asids);
        };
        let host_index = configs.iter().position(|c| &c.name == host_name).expect("the boot order checked it");
        let host = booted[host_index].as_mut().expect("hosts boot first");
        let guests = configs.iter().filter(|c| c.host.as_ref() == Some(host_name)).count() as u64;
        let align = PageSize::Size2M.bytes();
        // A sixteenth stays with the host for its page metadata (1/64), its tables and its own use.
        let share = (host.memory_bytes() / 16 * 15 / guests) & !(align - 1);
        let memory = of.memory_bytes.map_or(share, |bytes| bytes.0);
        if memory > host.memory_bytes() {
            let what = format!("{memory} bytes are more than the {} of its host `{host_name}`", host.memory_bytes());
            return Err(EngineError::config(memory_key(of), what));
        }
        let space = host.add_space(&mut self.asids)?;
        let whole = EventKind::Mmap {
            addr: 0,
            len: memory,
            prot: Protection { read: true, write: true, execute: true },
            // The hypervisor's memory is written by its guest, whatever touches it first.
            flags: MapFlags(MapFlags::anonymous_private().0 | MapFlags::WRITTEN_BEFORE),
            file: None,
            file_offset: 0,
        };
        host.spaces[space as usize].vmas.apply(&whole).expect("the mapping is aligned and not empty");
        let host_id = SpaceId { layer: host_index as u16, index: space };
        Layer::boot(of, Some(host_id), memory, cpus, check, &mut self.asids)
    }

    /// The layers that processes run on.
    pub fn tops(&self) -> &[u16] {
        &self.tops
    }

    /// A new, empty address space of a layer.
    pub fn add_space(&mut self, layer: u16) -> Result<SpaceId, EngineError> {
        let index = self.layers[usize::from(layer)].add_space(&mut self.asids)?;
        Ok(SpaceId { layer, index })
    }

    /// True if a layer hosts another.
    pub fn hosts(&self, layer: u16) -> bool {
        self.layers.iter().any(|l| l.host.is_some_and(|h| h.layer == layer))
    }
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
                        EngineError::config(key, format!("no layer is named `{host}`; there are {}", names.join(", ")))
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
