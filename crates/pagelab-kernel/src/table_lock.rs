//! The lock of a page-table page, and its queue.
//!
//! Models: a task tries to take the lock by one locked operation on its word. With `kernel.spin_locks = "queued"`, the
//! first one that must wait sets the word's pending bit and spins on the word. Those behind it have a node in their
//! CPU's own line: they write it, exchange the word's tail, and write the node before their own, if there is one. A
//! task with a node before its own spins on its own node; otherwise it spins on the word. Who gets the lock reads the
//! word and writes it, and writes the node behind its own, whose task goes on to the word.
//! Source: Linux kernel/locking/qspinlock.c (`queued_spin_lock_slowpath`), include/asm-generic/qspinlock.h.
//! Parameters: `kernel.spin_locks`.
//! Stats: `layer.NAME.lock.page_table.*`.
//! Deviations: spinning costs no references until the lock is handed over; a task's node is read then, too. Waiting
//! for the pending bit to be cleared is left out. Tasks whose lock's holder does not run leave their CPU, but keep
//! their place. Fault engines, and PTEMagnet's reservations, have no nodes.

use crate::layer::{CpuLine, Layer};
use crate::locks::{Locks, QueuePlace, TaskId};
use crate::memory::page_metadata;
use pagelab_base::addr::{Pfn, PhysAddr};
use pagelab_base::lock_kind::LockKind;
use pagelab_base::step::{BlockKey, RefKind, Step};

/// How a task goes about taking the lock of a page-table page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableLocking {
    /// Take it, if it is free.
    #[default]
    Take,
    /// Enter its queue.
    Queue {
        /// The lock.
        key: BlockKey,
        /// The task's place in the queue.
        place: QueuePlace,
    },
    /// Take it as the first of its queue.
    HandOver {
        /// The lock.
        key: BlockKey,
        /// The task's place in the queue.
        place: QueuePlace,
    },
}

/// What comes after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableLocked {
    /// The task holds the lock.
    Holds,
    /// It goes on with this step.
    Continues(TableLocking),
    /// It waits for the lock, and goes on with this step.
    Waits(TableLocking, BlockKey),
}

impl TableLocking {
    /// Plans the step, for the lock in the metadata of a page-table page.
    pub fn plan(self, layer: &Layer, locks: &Locks, table: Pfn, step: &mut Step) {
        match self {
            Self::Take => step.take_lock(LockKind::PageTable, page_metadata(table)),
            Self::Queue { key, place } => plan_queue(layer, key, place, step),
            Self::HandOver { key, place } => plan_hand_over(layer, locks, key, place, step),
        }
    }

    /// Commits the step. `key` is the lock that the task needs now: if that is no longer the one in whose queue it is,
    /// it leaves the queue. With `queued`, who finds the lock taken enters its queue.
    pub fn commit(self, locks: &mut Locks, queued: bool, key: BlockKey, task: TaskId) -> TableLocked {
        match self {
            Self::Take if queued && locks.first_in_queue(key).is_some() || !locks.acquire(key, task) => {
                if !queued {
                    return TableLocked::Waits(self, key);
                }
                let place = locks.enter_queue(key, task);
                TableLocked::Continues(Self::Queue { key, place })
            }
            Self::Take => TableLocked::Holds,
            // Waits, unless the lock has become free and the task is the first.
            Self::Queue { key: queue, place } if locks.first_in_queue(queue) != Some(place) => {
                TableLocked::Waits(Self::HandOver { key: queue, place }, queue)
            }
            Self::Queue { key: queue, place } | Self::HandOver { key: queue, place } => {
                if queue != key {
                    locks.leave_queue(place);
                    locks.signal(queue);
                    return TableLocked::Continues(Self::Take);
                }
                if !locks.acquire(key, task) {
                    return TableLocked::Waits(Self::HandOver { key, place }, key);
                }
                locks.leave_queue(place);
                TableLocked::Holds
            }
        }
    }

    /// The task no longer needs the lock: it leaves the queue, if it is in one.
    pub fn give_up(self, locks: &mut Locks) {
        if let Self::Queue { key, place } | Self::HandOver { key, place } = self {
            locks.leave_queue(place);
            locks.signal(key);
        }
    }
}

/// Plans a reference to the line of the lock or of a node.
fn plan_spin(step: &mut Step, kind: RefKind, line: PhysAddr) {
    step.kernel_independent(kind, line);
    step.note_lock(LockKind::PageTable);
}

/// Plans entering the queue.
fn plan_queue(layer: &Layer, key: BlockKey, place: QueuePlace, step: &mut Step) {
    let Some(word) = lock_word(key) else { return };
    if place.has_node {
        plan_spin(step, RefKind::Write, layer.data.cpu_line(place.cpu, CpuLine::SpinNode));
        plan_spin(step, RefKind::Read, word);
    }
    // The tail with a node, the pending bit without.
    plan_spin(step, RefKind::Locked, word);
    if let Some(before) = place.before {
        plan_spin(step, RefKind::Write, layer.data.cpu_line(before, CpuLine::SpinNode));
    }
}

/// Plans taking the lock from the one before.
fn plan_hand_over(layer: &Layer, locks: &Locks, key: BlockKey, place: QueuePlace, step: &mut Step) {
    let Some(word) = lock_word(key) else { return };
    if place.before.is_some() {
        plan_spin(step, RefKind::Read, layer.data.cpu_line(place.cpu, CpuLine::SpinNode));
    }
    plan_spin(step, RefKind::Read, word);
    plan_spin(step, RefKind::Write, word);
    if let Some(behind) = locks.node_behind(key, place).filter(|_| place.has_node) {
        plan_spin(step, RefKind::Write, layer.data.cpu_line(behind, CpuLine::SpinNode));
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
