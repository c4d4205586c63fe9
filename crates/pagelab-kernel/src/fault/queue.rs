//! The lock of a page-table page, and its queue.
//!
//! Models: a handler tries to take the lock by one locked operation on its word. With `kernel.spin_locks = "queued"`,
//! the first one that must wait sets the word's pending bit and spins on the word. Those behind it have a node in their
//! CPU's own line: they write it, exchange the word's tail, and write the node before their own, if there is one. A
//! handler with a node before its own spins on its own node; otherwise it spins on the word. Who gets the lock reads
//! the word and writes it, and writes the node behind its own, whose handler goes on to the word.
//! Source: Linux kernel/locking/qspinlock.c (`queued_spin_lock_slowpath`), include/asm-generic/qspinlock.h.
//! Parameters: `kernel.spin_locks`.
//! Stats: `layer.NAME.lock.page_table.*`.
//! Deviations: spinning costs no references until the lock is handed over; a handler's node is read then, too. Waiting
//! for the pending bit to be cleared is left out. Handlers whose lock's holder does not run leave their CPU, but keep
//! their place. Fault engines, and PTEMagnet's reservations, have no nodes.

use super::work::FaultWork;
use super::{Fault, FaultState};
use crate::config::SpinLocks;
use crate::layer::{CpuLine, Layer};
use crate::locks::{QueuePlace, TaskId};
use crate::memory::page_metadata;
use crate::os::Os;
use pagelab_base::addr::PhysAddr;
use pagelab_base::lock_kind::LockKind;
use pagelab_base::step::{BlockKey, Next, RefKind, Step};

impl Fault {
    /// Takes the lock of the page-table page, if it is free and no one waits for it.
    pub(super) fn commit_lock(&mut self, os: &mut Os, task: TaskId) -> Result<FaultState, Next> {
        let key = self.table_key(os, self.entry(os));
        let queued = os.costs.spin_locks == SpinLocks::Queued;
        if queued && os.locks.first_in_queue(key).is_some() || !os.locks.acquire(key, task) {
            if queued {
                let place = os.locks.enter_queue(key, task);
                return Ok(FaultState::Queue { key, place });
            }
            self.progress.state = FaultState::Lock;
            return Err(Next::Block(key));
        }
        Ok(self.under_table_lock(os))
    }

    /// The step that comes when the lock is held.
    fn under_table_lock(&self, os: &mut Os) -> FaultState {
        let entry = self.entry(os);
        let takes = self.progress.work == FaultWork::Ready && !self.layer(os).takes_in_faults();
        if takes { FaultState::TakeReady { entry } } else { FaultState::Install { entry } }
    }

    /// The handler is in the queue: waits, unless the lock has become free and it is the first.
    pub(super) fn commit_queue(
        &mut self,
        os: &mut Os,
        task: TaskId,
        key: BlockKey,
        place: QueuePlace,
    ) -> Result<FaultState, Next> {
        if os.locks.first_in_queue(key) == Some(place) {
            return self.commit_hand_over(os, task, key, place);
        }
        self.progress.state = FaultState::HandOver { key, place };
        Err(Next::Block(key))
    }

    /// Takes the lock, or waits on. If the entry has moved to another page-table page, the handler leaves the queue.
    pub(super) fn commit_hand_over(
        &mut self,
        os: &mut Os,
        task: TaskId,
        key: BlockKey,
        place: QueuePlace,
    ) -> Result<FaultState, Next> {
        if key != self.table_key(os, self.entry(os)) {
            os.locks.leave_queue(place);
            os.locks.signal(key);
            return Ok(FaultState::Lock);
        }
        if !os.locks.acquire(key, task) {
            self.progress.state = FaultState::HandOver { key, place };
            return Err(Next::Block(key));
        }
        os.locks.leave_queue(place);
        Ok(self.under_table_lock(os))
    }

    /// Plans a reference to the line of the lock or of a node.
    fn plan_spin(step: &mut Step, kind: RefKind, line: PhysAddr) {
        step.kernel_independent(kind, line);
        step.note_lock(LockKind::PageTable);
    }

    /// Plans entering the queue.
    pub(super) fn plan_queue(&self, layer: &Layer, key: BlockKey, place: QueuePlace, step: &mut Step) {
        let Some(word) = lock_word(key) else { return };
        if place.has_node {
            Self::plan_spin(step, RefKind::Write, layer.data.cpu_line(self.request.cpu, CpuLine::SpinNode));
            Self::plan_spin(step, RefKind::Read, word);
        }
        // The tail with a node, the pending bit without.
        Self::plan_spin(step, RefKind::Locked, word);
        if let Some(before) = place.before {
            Self::plan_spin(step, RefKind::Write, layer.data.cpu_line(before, CpuLine::SpinNode));
        }
    }

    /// Plans taking the lock from the one before.
    pub(super) fn plan_hand_over(&self, os: &Os, layer: &Layer, key: BlockKey, place: QueuePlace, step: &mut Step) {
        let Some(word) = lock_word(key) else { return };
        if place.before.is_some() {
            Self::plan_spin(step, RefKind::Read, layer.data.cpu_line(self.request.cpu, CpuLine::SpinNode));
        }
        Self::plan_spin(step, RefKind::Read, word);
        Self::plan_spin(step, RefKind::Write, word);
        if let Some(behind) = os.locks.node_behind(key, place).filter(|_| place.has_node) {
            Self::plan_spin(step, RefKind::Write, layer.data.cpu_line(behind, CpuLine::SpinNode));
        }
    }
}

/// The word of a page-table page's lock.
fn lock_word(key: BlockKey) -> Option<PhysAddr> {
    match key {
        BlockKey::PageTable { frame, .. } => Some(page_metadata(frame)),
        BlockKey::Page { .. }
        | BlockKey::Mappings { .. }
        | BlockKey::MappingsRead { .. }
        | BlockKey::Placement { .. }
        | BlockKey::Zone { .. }
        | BlockKey::Lru { .. }
        | BlockKey::Engine { .. }
        | BlockKey::Writeback { .. }
        | BlockKey::Answer { .. } => None,
    }
}
