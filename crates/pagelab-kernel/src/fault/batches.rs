//! Batches of pages that a fault moves under a lock that all CPUs share: from the zone to its CPU's list of free pages,
//! and from its CPU's batch to the LRU lists.
//!
//! Models: with `kernel.held_locks`, the handler takes the lock in a step of its own, does the work for all pages of
//! the batch, and releases the lock by a write to its line. Who needs the lock meanwhile spins. Without it, taking the
//! lock and the work are one step, and no one waits.
//! Source: Linux mm/page_alloc.c (`rmqueue_bulk`), mm/swap.c (`folio_batch_move_lru`).
//! Parameters: `kernel.held_locks`, `kernel.lru_batch`.
//! Stats: `layer.NAME.lock.zone.*`, `layer.NAME.lock.lru.*`.
//! Deviations: scans and mapping calls hold these locks, too ([`crate::scanning`], [`crate::mapping_call`]); what else
//! needs them only refers to their lines. The frames of a refill are chosen before the lock is taken. Waiting handlers
//! have no nodes in the locks' queues. The counter of a memory cgroup is changed atomically and has no lock.

use super::parts::BatchLock;
use super::{Fault, FaultState};
use crate::frames::frame_alloc::ZoneBatch;
use crate::held_batches::SharedLock;
use crate::layer::{CpuLine, Layer};
use crate::locks::TaskId;
use crate::memory::page_metadata;
use crate::os::Os;
use crate::reclaim::GroupId;
use pagelab_base::step::{BlockKey, Next, RefKind, Step};

impl Fault {
    /// The step that refills the CPU's list of free pages.
    pub(super) fn refill(&self, os: &Os, batch: ZoneBatch) -> FaultState {
        let lock = if os.costs.held_locks.is_some() { BatchLock::Take } else { BatchLock::Unheld };
        FaultState::Refill { batch, lock }
    }

    /// How the page gets to the CPU's batch for the LRU lists.
    pub(super) fn lru_lock(&self, os: &Os) -> BatchLock {
        let is_full = os.layers[self.request.space.layer].has_full_batch(self.request.cpu, os.costs.lru_batch);
        if os.costs.held_locks.is_some() && is_full { BatchLock::Take } else { BatchLock::Unheld }
    }

    fn lru_key(&self, os: &Os) -> BlockKey {
        let id = self.request.space.layer;
        SharedLock::Lru(os.layers[id].spaces[self.request.space.index].group).key(id)
    }

    /// Takes a lock, or releases it after the work; true if the work is done.
    fn commit_batch(os: &mut Os, task: TaskId, key: BlockKey, lock: BatchLock) -> Result<bool, Next> {
        match lock {
            BatchLock::Unheld => {}
            BatchLock::Take if os.locks.acquire(key, task) => return Ok(false),
            BatchLock::Take => return Err(Next::Block(key)),
            BatchLock::Held => os.locks.release(key, task),
        }
        Ok(true)
    }

    pub(super) fn commit_refill(&mut self, os: &mut Os, task: TaskId, lock: BatchLock) -> Result<FaultState, Next> {
        if Self::commit_batch(os, task, SharedLock::Zone.key(self.request.space.layer), lock)? {
            return Ok(FaultState::Zeroing);
        }
        match std::mem::replace(&mut self.progress.state, FaultState::Entry) {
            FaultState::Refill { batch, .. } => Ok(FaultState::Refill { batch, lock: BatchLock::Held }),
            state => unreachable!("{state:?} does not refill"),
        }
    }

    pub(super) fn commit_lru(&mut self, os: &mut Os, task: TaskId, lock: BatchLock) -> Result<FaultState, Next> {
        if !Self::commit_batch(os, task, self.lru_key(os), lock)? {
            return Ok(FaultState::Lru { lock: BatchLock::Held });
        }
        let (batch, frame) = (os.costs.lru_batch, self.target.frame);
        self.layer(os).gather(task.cpu, frame, batch);
        Ok(FaultState::LOCK)
    }

    pub(super) fn plan_refill(&self, os: &Os, layer: &Layer, batch: &ZoneBatch, lock: BatchLock, step: &mut Step) {
        match (lock, &os.costs.held_locks) {
            (BatchLock::Take, _) => SharedLock::Zone.plan_take(layer, step),
            (BatchLock::Held, Some(costs)) => {
                SharedLock::Zone.plan_work(layer, costs, &batch.descriptors, batch.moved, step)
            }
            (BatchLock::Held | BatchLock::Unheld, _) => {
                SharedLock::Zone.plan_take(layer, step);
                batch.descriptors.iter().for_each(|&page| step.kernel(RefKind::Write, page_metadata(page)));
            }
        }
    }

    pub(super) fn plan_lru(&self, os: &Os, layer: &Layer, group: GroupId, lock: BatchLock, step: &mut Step) {
        let cpu = self.request.cpu;
        match (lock, &os.costs.held_locks) {
            (BatchLock::Take, _) => SharedLock::Lru(group).plan_take(layer, step),
            (BatchLock::Held, Some(costs)) => {
                step.kernel_independent(RefKind::Write, layer.data.cpu_line(cpu, CpuLine::Lru));
                let pages = layer.batch(cpu);
                SharedLock::Lru(group).plan_work(layer, costs, pages, pages.len() as u64, step);
            }
            (BatchLock::Held | BatchLock::Unheld, _) => layer.plan_gather(cpu, group, os.costs.lru_batch, step),
        }
    }
}
