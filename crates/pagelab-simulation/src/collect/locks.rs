//! Statistics of waiting, by kind of lock.

use super::collector::Collector;
use crate::machine::kernels::Kernels;
use crate::machine::scheduler::Scheduler;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::LayerId;
use pagelab_base::lock_kind::LockKind;
use pagelab_hardware::cache::{Hierarchy, Requester};
use pagelab_kernel::config::{FaultLock, KernelConfig};
use pagelab_kernel::fault::stage::Fallback;
use pagelab_kernel::layer::Layer;

impl Collector {
    /// Waits for lines of locks, if transfers of lines queue, and waits for locks that others hold, if there are
    /// others.
    pub(super) fn locks(&mut self, kernels: &Kernels, scheduler: &Scheduler, caches: &Hierarchy) {
        let os = &kernels.os;
        if caches.orders_transfers() {
            let by = caches.stats().total().queue_cycles;
            let locks: Cycles = os.faults.iter().flat_map(|faults| faults.lock_queues).map(|queue| queue.cycles).sum();
            let other = by[Requester::Kernel as usize].saturating_sub(locks.0);
            for (name, cycles, text) in [
                ("program", by[Requester::Data as usize], "programs"),
                ("walk", by[Requester::Walk as usize], "page walks and other hardware"),
                ("lock", locks.0, "kernel code, for lines of locks; the layers' `lock.*.queue_cycles` sum to it"),
                ("kernel", other, "kernel code, for other lines"),
            ] {
                self.cycles(
                    format!("coherence.queue_cycles.{name}"),
                    Cycles(cycles),
                    format!("Cycles in coherence.queue_cycles of {text}"),
                );
            }
        }
        for (number, layer) in os.layers.iter().enumerate() {
            if os.costs.vma_fallbacks.is_some() {
                let prefix = format!("layer.{}.lock.vma", layer.name);
                self.add_all(&prefix, Fallback::measures(&os.faults[number].fallbacks));
                let text = "Mappings that got the structure for their anonymous pages (`anon_vma`) in a fault";
                self.count(format!("{prefix}.anon_vmas"), os.faults[number].anon_vmas, text);
            }
            for kind in LockKind::ALL {
                let prefix = format!("layer.{}.lock.{}", layer.name, kind.name());
                if caches.orders_transfers() && has_line(kind, layer, &os.costs) {
                    self.add_all(&prefix, os.faults[number].lock_queues[kind as usize].measures());
                }
                if scheduler.many && is_held(kind, layer, &os.costs) {
                    let waits = scheduler.lock_waits.get(&(LayerId::from(number), kind));
                    self.add_all(&prefix, waits.copied().unwrap_or_default().measures());
                }
            }
        }
    }
}

/// Whether kernel code of a layer refers to lines of these locks.
fn has_line(kind: LockKind, layer: &Layer, costs: &KernelConfig) -> bool {
    match kind {
        LockKind::MmapRead | LockKind::PageTable | LockKind::Zone | LockKind::Lru | LockKind::Memcg | LockKind::Rss => {
            true
        }
        LockKind::Vma => costs.fault_lock == FaultLock::Vma,
        LockKind::Placement => layer.mechanisms.placement.locks(),
        LockKind::Engine => layer.mechanisms.engine.is_some(),
        LockKind::MmapWrite => costs.mapping_calls.is_some(),
        LockKind::Page | LockKind::Writeback => false,
    }
}

/// Whether tasks hold these locks for a time, so that others wait.
fn is_held(kind: LockKind, layer: &Layer, costs: &KernelConfig) -> bool {
    match kind {
        LockKind::MmapWrite | LockKind::PageTable | LockKind::Page => true,
        LockKind::Placement => layer.mechanisms.placement.locks(),
        LockKind::Engine => layer.mechanisms.engine.is_some(),
        LockKind::Writeback => layer.memory.reclaim.is_some(),
        LockKind::MmapRead => costs.mapping_calls.is_some(),
        LockKind::Zone | LockKind::Lru => costs.held_locks.is_some(),
        LockKind::Vma | LockKind::Memcg | LockKind::Rss => false,
    }
}
