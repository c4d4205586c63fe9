//! The hardware of the machine: what a core has of its own, and the caches.

use crate::config::HardwareConfig;
use crate::counters::{SegmentCounters, ShadowCounters, SpeculationCounters, TlbCounters, WalkCounters};
use crate::tlb::Tlb;
use crate::translation_unit::{Counted, GuestTlb, NestedTlb, Stage};
use pagelab_base::addr::{LINE_BYTES, MachineAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::ids::LayerId;
use pagelab_base::page_fault::Intent;
use pagelab_base::rng::Rng;
use pagelab_base::translation::Translation;
use pagelab_hardware::cache::{Hierarchy, HitLevel, Outcome, Requester};
use pagelab_hardware::core_model::L1TlbMiss;
use pagelab_kernel::config::LayerConfig;
use pagelab_tables::mmu_cache::{MmuCacheKind, MmuCaches};

/// Of `engine.interleaving`, as in the paper that [`Hierarchy::perturb`] names.
const PERTURBATION_NS: u32 = 4;

/// TLBs of one core; its hardware threads share them.
#[derive(Clone)]
pub struct CoreUnits {
    /// First-level TLB of loads and stores.
    pub l1d: Tlb,
    /// First-level TLB of instruction fetches.
    pub l1i: Tlb,
    /// Second-level TLB, for both; without arrays if the machine has none.
    pub l2: Tlb,
    /// Guest-physical to machine frames, for walks.
    pub nested: Option<Counted<NestedTlb>>,
    /// Large pages of guests, guest-virtual to guest-physical.
    pub guest: Option<Counted<GuestTlb>>,
    /// Units that are asked after the TLBs, in this order.
    pub stages: Vec<Stage>,
    /// What they have counted.
    pub tlb: TlbCounters,
}

impl CoreUnits {
    /// The first-level TLB that an access asks.
    #[inline(always)]
    pub fn first(&mut self, intent: Intent) -> &mut Tlb {
        if intent == Intent::Fetch { &mut self.l1i } else { &mut self.l1d }
    }
}

/// See the module's text.
#[derive(Clone)]
pub struct Hardware {
    /// By index of the core among those in use.
    pub units: Vec<CoreUnits>,
    /// The MMU caches of all cores and layers.
    pub mmu_caches: MmuCaches,
    /// The data caches of all cores.
    pub caches: Hierarchy,
    /// Counters of all walks.
    pub walks: WalkCounters,
    /// Whether the walk under way is for what nobody has asked for.
    pub is_ahead: bool,
    /// Whether walks and the kernel go through the caches (`engine.kernel_refs`).
    pub kernel_refs: bool,
    /// Cycles of a hit in the L1 data cache.
    pub l1_latency: Cycles,
    /// Cycles that a miss in the first-level TLB waits for the second, hit or not; 0 without one.
    pub l2_tlb_latency: Cycles,
    /// Cycles of an exit of a shadowed guest, beside the references of the host's work (`kernel.vm_exit_cycles`).
    pub vm_exit_cycles: Cycles,
    /// Exits of shadowed guests.
    pub shadow: ShadowCounters,
    /// Whether any layer has memory for direct segments.
    pub segments: bool,
    /// What direct segments translated.
    pub segment: SegmentCounters,
    /// The layer with a table that its guests speculate with.
    pub speculative: Option<LayerId>,
    /// What speculation did.
    pub speculation: SpeculationCounters,
    /// Compare every translation with the kernels' own records.
    pub check: bool,
    /// The first translation that contradicted them.
    pub check_failure: Option<String>,
}

/// Each layer's name and the MMU cache that its walks ask.
fn mmu_caches<'a>(config: &HardwareConfig<'a>) -> Vec<(&'a str, MmuCacheKind)> {
    let layers = &config.system.layers;
    let asks = |of: &LayerConfig| {
        let is_host = layers.iter().any(|other| other.host.as_ref() == Some(&of.name));
        config.machine.mmu_cache.of_hosts || !is_host
    };
    layers.iter().map(|of| (of.name.as_str(), if asks(of) { of.mmu_cache } else { MmuCacheKind::None })).collect()
}

impl Hardware {
    /// What a translation that took `cycles` is for the core; `page` is what it ended in, if that is no fault.
    #[inline]
    pub fn translating(&self, cycles: Cycles, page: Option<Translation>, fetches: bool) -> L1TlbMiss {
        let look_up = cycles.min(self.l2_tlb_latency);
        L1TlbMiss { look_up, walk: cycles - look_up, page, fetches }
    }

    /// Hardware of those cores of the machine that have these numbers.
    pub fn new(config: &HardwareConfig<'_>, core_numbers: &[usize]) -> Result<Self, EngineError> {
        let (machine, cores) = (config.machine, core_numbers.len());
        let seed = config.seed;
        let unit = |core: usize| {
            let rng = |part: &str| Rng::new(seed, &format!("core {core} {part}"));
            let tlb = &machine.tlb;
            let nested = tlb.nested.as_ref().map(|of| Counted::new(of, "machine.tlb.nested", &rng("nested tlb")));
            let guest = tlb.guest.as_ref().map(|of| Counted::new(of, "machine.tlb.guest", &rng("guest tlb")));
            let mut stages = tlb.stages.stages(rng)?;
            stages.extend(machine.prefetch.tlb.stages(rng)?);
            Ok(CoreUnits {
                l1d: Tlb::new("machine.tlb.l1d", &tlb.l1d, &rng("l1d tlb"))?,
                l1i: Tlb::new("machine.tlb.l1i", &tlb.l1i, &rng("l1i tlb"))?,
                l2: Tlb::new("machine.tlb.l2", &tlb.l2, &rng("l2 tlb"))?,
                nested: nested.transpose()?,
                guest: guest.transpose()?,
                stages,
                tlb: TlbCounters::default(),
            })
        };
        let mut caches = Hierarchy::new(&machine.cache, cores, seed)
            .map_err(|e| EngineError::config(format!("machine.cache.{}", e.key), e.what))?;
        if !machine.prefetch.is_off() || !machine.memory.is_plain() {
            let of_core = core_numbers.iter().map(|&core| machine.memory.node_of_core(core, machine.cores as usize));
            caches.set_traffic(machine.prefetch.levels(), &machine.memory, of_core.collect());
        }
        if config.interleaving > 0 {
            let rng = Rng::new(seed, &format!("perturbation {}", config.interleaving));
            caches.perturb(rng, PERTURBATION_NS * machine.frequency_mhz / 1000);
        }
        Ok(Self {
            units: (0..cores).map(unit).collect::<Result<_, EngineError>>()?,
            mmu_caches: MmuCaches::new(&machine.mmu_cache, &mmu_caches(config), (machine.cores, cores), seed)?,
            caches,
            walks: WalkCounters::new(config.system.layers.len()),
            is_ahead: false,
            kernel_refs: config.kernel_refs,
            l1_latency: machine.cache.l1.latency_cycles.into(),
            l2_tlb_latency: machine.tlb.l2_latency_cycles.into(),
            vm_exit_cycles: config.vm_exit_cycles.into(),
            shadow: ShadowCounters::default(),
            segments: config.system.layers.iter().any(|layer| layer.direct_segment_bytes.is_some()),
            segment: SegmentCounters::default(),
            speculative: config.system.layers.iter().position(|l| l.speculative_table.is_some()).map(LayerId::from),
            speculation: SpeculationCounters::default(),
            check: config.check,
            check_failure: None,
        })
    }

    /// One reference of a walk or of the kernel. Without `engine.kernel_refs` it leaves the caches alone and costs an
    /// L1 hit.
    #[inline]
    pub fn system_ref(
        &mut self,
        core: usize,
        addr: MachineAddr,
        write: bool,
        locked: bool,
        by: Requester,
    ) -> SystemRef {
        if !self.kernel_refs {
            return SystemRef { served: None, cycles: self.l1_latency };
        }
        let Outcome { served, cycles } = if locked {
            self.caches.access_locked(core, addr.line(), by)
        } else {
            self.caches.access(core, addr.line(), write, by)
        };
        self.caches.pass(cycles.into());
        SystemRef { served: Some(served), cycles: cycles.into() }
    }

    /// Reads `bytes` (whole lines) of machine memory, one after the other.
    pub fn load(&mut self, core: usize, addr: MachineAddr, bytes: u64) -> Cycles {
        if self.kernel_refs {
            self.caches.load_lines(core, addr.line(), bytes / LINE_BYTES, Requester::Kernel)
        } else {
            self.l1_latency
        }
    }

    /// Zeroes `bytes` (whole lines) of machine memory.
    pub fn zero(&mut self, core: usize, addr: MachineAddr, bytes: u64) -> Cycles {
        if self.kernel_refs {
            self.caches.zero_lines(core, addr.line(), bytes / LINE_BYTES, Requester::Kernel)
        } else {
            self.l1_latency
        }
    }
}

/// How a reference of a walk or of the kernel went.
#[derive(Clone, Copy, Debug)]
pub struct SystemRef {
    /// Where the line was; none if the caches were left alone.
    pub served: Option<HitLevel>,
    /// Cycles of the reference itself: its address had been translated.
    pub cycles: Cycles,
}
