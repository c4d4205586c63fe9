//! The kernels of all layers: their state, their threads, and what shootdowns need.

use crate::machine::pcids::{Generations, ShootdownCounters};
use pagelab_base::addr::{FRAME_BYTES, MachineAddr, PhysAddr, VirtAddr};
use pagelab_base::code_cost::CodeCost;
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::ids::{CoreId, CpuId, LayerId, SpaceId};
use pagelab_base::page_fault::PageFault;
use pagelab_base::step::BlockKey;
use pagelab_hardware::cache::Hierarchy;
use pagelab_hardware::core_model::kernel_branches::KernelBranches;
use pagelab_kernel::effects::{DmaWrite, Effects};
use pagelab_kernel::files::FilePart;
use pagelab_kernel::invalidation::Invalidation;
use pagelab_kernel::layer::{self, Layer};
use pagelab_kernel::needs::Need;
use pagelab_kernel::os::Os;
use pagelab_kernel::threads::KernelThread;
use pagelab_kernel::threads::schedule::KernelThreads;
use pagelab_kernel::vma::VaRange;
use pagelab_run::config::Config;
use pagelab_trace::{EventKind, MapFlags};
use pagelab_translate::hardware::Hardware;

/// The kernels of all layers, see the module's text.
#[derive(Clone)]
pub struct Kernels {
    /// The layers with their kernels.
    pub os: Os,
    /// The kernel threads of all layers.
    pub threads: KernelThreads,
    /// By kernel thread, the CPU that it runs on.
    pub(crate) thread_cpus: Vec<CpuId>,
    /// Enough processes have ended for a scan of some layer's page tables.
    pub(crate) exit_scan_due: bool,
    /// Layers whose kernels report free blocks to their hosts.
    pub(crate) reporters: Vec<LayerId>,
    /// Number of shootdowns of each address space.
    pub(crate) generations: Generations,
    /// Counters of shootdowns and switches between address spaces.
    pub shootdowns: ShootdownCounters,
    /// The branches of their code, if they have any.
    pub(crate) branches: Option<KernelBranches>,
}

/// Costs of a shootdown.
pub(crate) struct ShootdownCosts {
    /// Cycles of each CPU that drops translations.
    pub local: Cycles,
    /// Kernel code of each CPU that is interrupted.
    pub interrupt: CodeCost,
    /// Cycles that the initiating CPU waits for the others.
    pub wait: Cycles,
}

impl Kernels {
    /// Boots the kernels of all layers. Their threads have no CPUs yet.
    pub(crate) fn boot(config: &Config, program_cpus: u32) -> Result<Self, EngineError> {
        let mut effects = Effects::default();
        let os = Os::boot(&config.boot(program_cpus), &mut effects)?;
        let mut threads = KernelThreads::default();
        for layer in LayerId::all(os.layers.len()) {
            let hosts = !os.tops().contains(&layer);
            threads.add_all(layer, &os.layers[layer], hosts, &config.kernel.threads)?;
        }
        LayerId::all(os.layers.len()).for_each(|layer| threads.add_engine_threads(layer, &os.layers[layer]));
        effects.wakeups.into_iter().for_each(|(layer, need)| threads.wake(layer, need));
        let (generations, shootdowns) = (Generations::default(), ShootdownCounters::default());
        let branches = config.kernel_branches();
        let reports = |thread: &&KernelThread| matches!(thread, KernelThread::PageReporting(_));
        let reporters = threads.iter().filter(reports).map(KernelThread::layer).collect();
        let (thread_cpus, exit_scan_due) = (Vec::new(), false);
        Ok(Self { os, threads, thread_cpus, exit_scan_due, reporters, generations, shootdowns, branches })
    }

    /// Whether the hypervisor backed the page of a fault before the run ([`is_backed`](layer::is_backed)).
    pub fn is_backed(&self, fault: &PageFault) -> bool {
        layer::is_backed(&self.os.layers, fault)
    }

    /// Wakes the kernel threads that a step or a call needs.
    #[inline]
    pub(crate) fn wake_needed_threads(&mut self, effects: &mut Effects) {
        effects.wakeups.drain(..).for_each(|(layer, need)| self.threads.wake(layer, need));
        for &layer in &self.reporters {
            if self.os.layers[layer].memory.frames.reports.is_due() {
                self.threads.wake(layer, Need::Reporting);
            }
        }
    }

    /// The key that an event of a space must wait for before it can be carried out; `None` if it need not wait.
    pub(crate) fn event_block_key(&mut self, space: SpaceId, kind: &EventKind) -> Option<BlockKey> {
        if let Some(part) = FilePart::from_event(kind) {
            return self.os.file_block_key(space.layer, &part);
        }
        let range = changed_range(kind)?;
        let free = self.os.locks.may_change(space, range, self.os.costs.fault_lock);
        if free { self.os.engine_block_key(space) } else { Some(BlockKey::Mappings { space }) }
    }

    /// Costs of the shootdown for an invalidation. A recorded kernel's work for it is in the trace.
    pub(crate) fn shootdown_costs(&self, what: &Invalidation) -> ShootdownCosts {
        if what.recorded {
            return ShootdownCosts { local: Cycles::ZERO, interrupt: CodeCost::NONE, wait: Cycles::ZERO };
        }
        let costs = &self.os.costs;
        let local = if what.full {
            Cycles::from(costs.flush_space_cycles)
        } else {
            Cycles::from(costs.invalidate_page_cycles) * what.pages
        };
        let interrupt = costs.fault.entry.cost() + costs.fault.exit.cost();
        ShootdownCosts { local, interrupt, wait: costs.shootdown_ipi_cycles.into() }
    }

    /// The layers whose physical memory lies in a space, directly or through other layers.
    pub fn guests_in(&self, space: SpaceId) -> Vec<LayerId> {
        let layers = &self.os.layers;
        let hosted = |host: SpaceId| {
            let is_guest = move |(_, layer): &(usize, &Layer)| layer.host == Some(host);
            layers.iter().enumerate().filter(is_guest).map(|(index, _)| LayerId::from(index))
        };
        let mut guests: Vec<LayerId> = hosted(space).collect();
        let mut at = 0;
        while let Some(&guest) = guests.get(at) {
            let spaces = layers[guest].spaces.numbers();
            guests.extend(spaces.flat_map(|index| hosted(SpaceId { layer: guest, index })).collect::<Vec<_>>());
            at += 1;
        }
        guests
    }

    /// Prefetches the leaf entry of an address into the caches of the computer that runs the simulation.
    #[inline]
    pub(crate) fn hint_entry(&self, space: SpaceId, va: VirtAddr) {
        let layer = &self.os.layers[space.layer];
        layer.spaces[space.index].table.hint(&layer.memory.contents, va);
    }

    /// Drops, on every core, all translations that depend on a hypervisor's mapping of its guests' memory. Translations
    /// of guests lead to machine memory, so those that passed through the changed pages cannot be identified. This also
    /// holds for the entries of their shadow tables.
    pub(crate) fn drop_guests(&mut self, hw: &mut Hardware, host: SpaceId, guests: &[LayerId]) {
        for &guest in guests {
            let layer = &mut self.os.layers[guest];
            if layer.paging.shadowed {
                for space in layer.spaces.numbers() {
                    let end = VirtAddr(1 << layer.spaces[space].table.va_bits());
                    layer.mechanisms.shadows.drop_range(space, VaRange { start: VirtAddr(0), end });
                }
            }
        }
        if !hw.shared_stages.is_empty() {
            let spaces = guests.iter().flat_map(|&guest| &self.os.layers[guest].spaces);
            spaces.for_each(|space| hw.flush_shared(space.asid));
            hw.flush_shared(self.os.asid(host));
        }
        for core in CoreId::all(hw.units.len()) {
            hw.flush_space(core, host.layer, self.os.asid(host));
            for &guest in guests {
                for space in &self.os.layers[guest].spaces {
                    hw.flush_space(core, guest, space.asid);
                }
            }
        }
    }

    /// Drops lines that devices have written from the caches; false if there are none.
    #[inline]
    pub(crate) fn carry_out_dma(&self, caches: &mut Hierarchy, effects: &mut Effects) -> bool {
        let any = !effects.dma.is_empty();
        while let Some(DmaWrite { layer, addr, lines }) = effects.dma.pop() {
            if let Some(frame) = self.os.machine_frame(layer, addr.pfn()) {
                let at = frame.addr().0 | addr.offset_in(FRAME_BYTES);
                caches.dma_write(MachineAddr(at).line(), lines);
            }
        }
        any
    }

    /// Prefetches the cache tags for the lines of a leaf entry and of the data that it leads to; for a guest, the
    /// host's leaf entries for both.
    #[inline]
    pub(crate) fn hint_tags(&self, caches: &Hierarchy, core: CoreId, space: SpaceId, va: VirtAddr) {
        let layer = &self.os.layers[space.layer];
        let Some((entry, frame)) = layer.spaces[space.index].table.peek(&layer.memory.contents, va) else { return };
        for addr in [entry, PhysAddr(frame.addr().0 | va.offset_in(FRAME_BYTES))] {
            match layer.host {
                None => caches.hint(core, MachineAddr(addr.0).line()),
                Some(host) => self.hint_entry(host, VirtAddr(addr.0)),
            }
        }
    }
}

/// The addresses whose mappings an event changes: `None`, a range, or `Some(None)` for its whole space.
pub(crate) fn changed_range(kind: &EventKind) -> Option<Option<VaRange>> {
    let range = |addr: u64, len: u64| Some(VaRange::from_bytes(addr, len).ok());
    match *kind {
        EventKind::ProcessStart { .. }
        | EventKind::ThreadStart { .. }
        | EventKind::ThreadExit
        | EventKind::Wake { .. }
        | EventKind::Woken { .. }
        | EventKind::Vfork { .. }
        | EventKind::Allocated { .. }
        | EventKind::Freed { .. }
        | EventKind::Msync { .. }
        | EventKind::EngineCall { .. }
        | EventKind::Fault { .. }
        | EventKind::Truncate { .. }
        | EventKind::FileData { .. }
        | EventKind::FileHole { .. }
        | EventKind::Relocate { .. }
        | EventKind::Skip
        | EventKind::Resume { .. }
        | EventKind::Measure => None,
        // The length is rounded up to whole huge pages.
        EventKind::Mmap { flags, .. } if flags.contains(MapFlags::HUGETLB) => Some(None),
        EventKind::Mmap { addr, len, .. }
        | EventKind::Munmap { addr, len }
        | EventKind::Mprotect { addr, len, .. }
        | EventKind::Madvise { addr, len, .. } => range(addr, len),
        _ => Some(None),
    }
}
