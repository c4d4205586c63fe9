//! The hardware of the machine: the TLBs and translation units of each core, MMU caches and data caches.

use crate::config::HardwareConfig;
use crate::counters::{
    PinnedCounters, SegmentCounters, ShadowCounters, SpeculationCounters, TlbCounters, WalkCounters,
};
use crate::size_prediction::SizePredictor;
use crate::speculation::{Guessed, Speculator};
use crate::tag_checks::TagChecks;
use crate::tlb::Tlb;
use crate::translation_unit::{Counted, GuestTlb, NestedTlb, Stage};
use pagelab_base::addr::{FRAME_BYTES, LINE_BYTES, LineAddr, MachineAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::ids::{CoreId, LayerId, MachineCore, SpaceId};
use pagelab_base::page_fault::Intent;
use pagelab_base::rng::Rng;
use pagelab_base::translation::Translation;
use pagelab_hardware::cache::{Hierarchy, HitLevel, RequestOutcome, Requester};
use pagelab_hardware::core_model::L1TlbMiss;
use pagelab_kernel::config::LayerConfig;
use pagelab_tables::mmu_cache::{MmuCacheKind, MmuCaches};

/// Largest random addition to a memory latency, in ns, for `engine.interleaving`; from the paper that
/// [`Hierarchy::perturb`] names.
const PERTURBATION_NS: u32 = 4;

/// TLBs and translation units of one core, shared by its hardware threads.
#[derive(Clone)]
pub struct CoreUnits {
    /// First-level TLB of loads and stores.
    pub l1d: Tlb,
    /// First-level TLB of instruction fetches.
    pub l1i: Tlb,
    /// Second-level TLB for both; it has no arrays if the machine has none.
    pub l2: Tlb,
    /// Prediction of page sizes for the second-level TLB, if there is one.
    pub size_prediction: Option<Box<SizePredictor>>,
    /// Nested TLB, from guest-physical to machine frames.
    pub nested: Option<Counted<NestedTlb>>,
    /// TLB of guests' large pages, from guest-virtual to guest-physical addresses.
    pub guest: Option<Counted<GuestTlb>>,
    /// Units that are looked up after the TLBs, in this order.
    pub stages: Vec<Stage>,
    /// What guesses frames before walks, if anything does.
    pub speculation: Option<Box<Speculator>>,
    /// Counters of the TLBs.
    pub tlb: TlbCounters,
}

impl CoreUnits {
    fn new(config: &HardwareConfig<'_>, core: CoreId) -> Result<Self, EngineError> {
        let rng = |part: &str| Rng::new(config.seed, &format!("core {core} {part}"));
        let (machine, tlb) = (config.machine, &config.machine.tlb);
        let nested =
            tlb.nested.as_ref().map(|parameters| Counted::new(parameters, "machine.tlb.nested", &rng("nested tlb")));
        let guest =
            tlb.guest.as_ref().map(|parameters| Counted::new(parameters, "machine.tlb.guest", &rng("guest tlb")));
        let mut stages = tlb.stages.stages(false, rng)?;
        stages.extend(machine.prefetch.tlb.stages(false, rng)?);
        Ok(Self {
            l1d: Tlb::new("machine.tlb.l1d", &tlb.l1d, &rng("l1d tlb"))?,
            l1i: Tlb::new("machine.tlb.l1i", &tlb.l1i, &rng("l1i tlb"))?,
            l2: Tlb::new("machine.tlb.l2", &tlb.l2, &rng("l2 tlb"))?,
            size_prediction: tlb.size_prediction.on().map(|config| Box::new(SizePredictor::new(config))),
            nested: nested.transpose()?,
            guest: guest.transpose()?,
            stages,
            speculation: Speculator::new(&tlb.speculation, &rng("speculation"))?,
            tlb: TlbCounters::default(),
        })
    }

    /// The first-level TLB for an access of this kind.
    #[inline(always)]
    pub fn first(&mut self, intent: Intent) -> &mut Tlb {
        if intent == Intent::Fetch { &mut self.l1i } else { &mut self.l1d }
    }
}

/// The simulated hardware, see the module's text.
#[derive(Clone)]
pub struct Hardware {
    /// TLBs and translation units, by index of the core among the cores in use.
    pub units: Vec<CoreUnits>,
    /// Stages that all cores share, looked up after those of the core.
    pub shared_stages: Vec<Stage>,
    /// The MMU caches of all cores and layers.
    pub mmu_caches: MmuCaches,
    /// The data caches of all cores.
    pub caches: Hierarchy,
    /// Counters of all walks.
    pub walks: WalkCounters,
    /// Whether the current walk is a prefetch.
    pub is_ahead: bool,
    /// The space whose leaf entry the current walk notes.
    pub leaf_of: Option<SpaceId>,
    /// The line of the leaf entry that it has read.
    pub leaf: Option<LineAddr>,
    /// Whether walks and the kernel go through the caches (`engine.kernel_refs`).
    pub kernel_refs: bool,
    /// Cycles of a hit in the L1 data cache.
    pub l1_latency: Cycles,
    /// Cycles that a first-level TLB miss waits for the second level, hit or miss; 0 without a second level.
    pub l2_tlb_latency: Cycles,
    /// Cycles of the second attempt of the last look-up of the second level, with a prediction of page sizes.
    pub second_attempt: Cycles,
    /// Cycles of one exit of a guest with shadow page tables, without the references of the hypervisor's work
    /// (`kernel.vm_exit_cycles`).
    pub vm_exit_cycles: Cycles,
    /// Counters of these exits.
    pub shadow: ShadowCounters,
    /// The guess with which the last access has begun, until the core is told.
    pub guessed: Option<Guessed>,
    /// Frames of the machine's memory.
    pub frames: u64,
    /// Whether an entry of some TLB array can cover several pages of 4 KiB.
    pub organised: bool,
    /// Whether any layer has direct segments.
    pub segments: bool,
    /// Counters of direct segments.
    pub segment: SegmentCounters,
    /// Whether the page tables of any layer are in virtual memory.
    pub virtual_tables: bool,
    /// Counters of these references.
    pub pinned: PinnedCounters,
    /// The layer with a speculative table for its guests, if there is one.
    pub speculative: Option<LayerId>,
    /// Counters of speculation.
    pub speculation: SpeculationCounters,
    /// Checks of walks in regions, if machine frames have tags.
    pub tag_checks: Option<TagChecks>,
    /// Whether every translation is compared with the kernels' records (`engine.check`).
    pub check: bool,
    /// The first translation that differed from the records.
    pub check_failure: Option<String>,
}

/// Name of each layer and the kind of MMU cache that its walks use.
fn mmu_caches<'a>(config: &HardwareConfig<'a>) -> Vec<(&'a str, MmuCacheKind)> {
    let layers = &config.system.layers;
    let asks = |layer: &LayerConfig| {
        let is_host = layers.iter().any(|other| other.host.as_ref() == Some(&layer.name));
        config.machine.mmu_cache.of_hosts || !is_host
    };
    layers
        .iter()
        .map(|layer| (layer.name.as_str(), if asks(layer) { layer.mmu_cache } else { MmuCacheKind::None }))
        .collect()
}

impl Hardware {
    /// Describes a translation that took `cycles` for the core model; `page` is its result, `None` for a fault.
    #[inline]
    pub fn translating(&self, cycles: Cycles, page: Option<Translation>, fetches: bool) -> L1TlbMiss {
        let look_up = cycles.min(self.l2_tlb_latency + self.second_attempt);
        L1TlbMiss { look_up, walk: cycles - look_up, page, fetches }
    }

    /// Builds the hardware for those cores of the machine that have these numbers.
    pub fn new(config: &HardwareConfig<'_>, core_numbers: &[MachineCore]) -> Result<Self, EngineError> {
        let (machine, cores) = (config.machine, core_numbers.len());
        let seed = config.seed;
        let mut caches = Hierarchy::new(&machine.cache, cores, seed)
            .map_err(|e| EngineError::config(format!("machine.cache.{}", e.key), e.what))?;
        let fetches = machine.tlb.speculation.fetches();
        if !machine.prefetch.is_off() || !machine.memory.is_plain() || fetches {
            let of_core = core_numbers.iter().map(|&core| machine.memory.node_of_core(core, machine.cores as usize));
            caches.set_traffic(machine.prefetch.levels(), fetches, &machine.memory, of_core.collect());
        }
        caches.set_bulk(&machine.bulk, &machine.memory);
        let numbers: Vec<usize> = core_numbers.iter().map(|core| core.index()).collect();
        caches.set_distances(&numbers, &machine.cache.far_cores);
        if machine.cache.queue_transfers.0 {
            caches.order_transfers(config.quantum.into());
        }
        if config.interleaving > 0 {
            let rng = Rng::new(seed, &format!("perturbation {}", config.interleaving));
            caches.perturb(rng, PERTURBATION_NS * machine.frequency_mhz / 1000);
        }
        let rng = |part: &str| Rng::new(seed, &format!("all cores {part}"));
        let mut shared_stages = machine.tlb.stages.stages(true, rng)?;
        let mut units =
            CoreId::all(cores).map(|core| CoreUnits::new(config, core)).collect::<Result<Vec<_>, EngineError>>()?;
        // Their memory follows that of the kernels.
        let mut line = MachineAddr(machine.memory_bytes.0).line();
        for stage in shared_stages.iter_mut().chain(units.iter_mut().flat_map(|unit| &mut unit.stages)) {
            stage.put_at(line);
            line += stage.memory_bytes() / LINE_BYTES;
        }
        Ok(Self {
            shared_stages,
            units,
            mmu_caches: MmuCaches::new(&machine.mmu_cache, &mmu_caches(config), (machine.cores, cores), seed)?,
            caches,
            walks: WalkCounters::new(config.system.layers.len()),
            is_ahead: false,
            leaf_of: None,
            leaf: None,
            kernel_refs: config.kernel_refs,
            l1_latency: machine.cache.l1.latency_cycles.into(),
            l2_tlb_latency: machine.tlb.l2_latency_cycles.into(),
            second_attempt: Cycles::ZERO,
            vm_exit_cycles: config.vm_exit_cycles.into(),
            shadow: ShadowCounters::default(),
            guessed: None,
            frames: machine.memory_bytes.0 / FRAME_BYTES,
            organised: machine.tlb.organised().is_some(),
            segments: config.late_segments
                || config.system.layers.iter().any(|layer| layer.direct_segment_bytes.is_some()),
            segment: SegmentCounters::default(),
            virtual_tables: config.system.layers.iter().any(|layer| layer.page_table.is_in_virtual_memory()),
            pinned: PinnedCounters::default(),
            speculative: config.system.layers.iter().position(|l| l.speculative_table.is_some()).map(LayerId::from),
            speculation: SpeculationCounters::default(),
            tag_checks: TagChecks::new(config.system, cores, seed)?,
            check: config.check,
            check_failure: None,
        })
    }

    /// Makes one reference of a walk or of the kernel. Without `engine.kernel_refs` it bypasses the caches and costs an
    /// L1 hit.
    #[inline]
    pub fn system_ref(
        &mut self,
        core: CoreId,
        addr: MachineAddr,
        write: bool,
        locked: bool,
        by: Requester,
    ) -> SystemRef {
        if !self.kernel_refs {
            return SystemRef { served: None, cycles: self.l1_latency };
        }
        let RequestOutcome { served, cycles } = if locked {
            self.caches.access_locked(core, addr.line(), by)
        } else {
            self.caches.access(core, addr.line(), write, by)
        };
        self.caches.pass(cycles.into());
        SystemRef { served: Some(served), cycles: cycles.into() }
    }

    /// Reads `bytes` (whole lines) of machine memory, line by line.
    pub fn load(&mut self, core: CoreId, addr: MachineAddr, bytes: u64) -> Cycles {
        if self.kernel_refs {
            self.caches.load_lines(core, addr.line(), bytes / LINE_BYTES, Requester::Kernel)
        } else {
            self.l1_latency
        }
    }

    /// Zeroes `bytes` (whole lines) of machine memory, a part of an operation on `all` bytes.
    pub fn zero(&mut self, core: CoreId, addr: MachineAddr, bytes: u64, all: u64) -> Cycles {
        if self.kernel_refs {
            self.caches.store_lines(core, addr.line(), bytes / LINE_BYTES, all / LINE_BYTES)
        } else {
            self.l1_latency
        }
    }
}

/// Outcome of one reference of a walk or of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct SystemRef {
    /// The level that held the line; `None` if the reference bypassed the caches.
    pub served: Option<HitLevel>,
    /// Cycles of the reference, without the translation of its address.
    pub cycles: Cycles,
}
