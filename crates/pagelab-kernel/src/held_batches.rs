//! Batches of pages that are moved under a lock that all CPUs share: the lock of free pages, or that of the LRU lists.
//!
//! Models: with `kernel.held_locks`, each batch takes two steps. The first takes the lock, or waits for it. The second
//! does the work for all pages of the batch, and releases the lock by a write to its line. No other key is taken
//! meanwhile.
//! Source: Linux mm/vmscan.c (`shrink_inactive_list`, `move_folios_to_lru`), mm/swap.c (`release_pages`),
//! mm/page_alloc.c (`free_pcppages_bulk`).
//! Parameters: `kernel.held_locks`.
//! Stats: `layer.NAME.lock.zone.*`, `layer.NAME.lock.lru.*`.
//! Deviations: what the batch changes has changed before, in one commit; only the time and the references come later.

use std::collections::VecDeque;

use crate::config::HeldLocksConfig;
use crate::frames::frame_alloc::ZoneBatch;
use crate::layer::Layer;
use crate::locks::{Locks, TaskId};
use crate::memory::page_metadata;
use crate::reclaim::GroupId;
use pagelab_base::addr::{Pfn, PhysAddr};
use pagelab_base::ids::LayerId;
use pagelab_base::lock_kind::LockKind;
use pagelab_base::step::{BlockKey, RefKind, Step};

/// A lock that all CPUs share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedLock {
    /// That of a layer's free pages.
    Zone,
    /// That of the LRU lists of a cgroup.
    Lru(GroupId),
}

impl SharedLock {
    /// The key of the lock.
    pub fn key(self, layer: LayerId) -> BlockKey {
        match self {
            Self::Zone => BlockKey::Zone { layer },
            Self::Lru(group) => BlockKey::Lru { layer, group: u32::from(group.number()) },
        }
    }

    fn kind(self) -> LockKind {
        match self {
            Self::Zone => LockKind::Zone,
            Self::Lru(_) => LockKind::Lru,
        }
    }

    fn line(self, layer: &Layer) -> PhysAddr {
        match self {
            Self::Zone => layer.data.zone_line(),
            Self::Lru(group) => layer.data.lru_line(group),
        }
    }

    /// Plans taking the lock.
    pub fn plan_take(self, layer: &Layer, step: &mut Step) {
        step.take_lock(self.kind(), self.line(layer));
    }

    /// Plans the work for so many pages that are moved with the lock held, and its release. It writes the metadata of
    /// `pages`.
    pub fn plan_work(self, layer: &Layer, costs: &HeldLocksConfig, pages: &[Pfn], moved: u64, step: &mut Step) {
        for metadata in pages.iter().map(|&page| page_metadata(page)) {
            match self {
                Self::Zone => step.kernel(RefKind::Write, metadata),
                Self::Lru(_) => step.kernel_independent(RefKind::Write, metadata),
            }
        }
        let cost = match self {
            Self::Zone => costs.zone_page,
            Self::Lru(_) => costs.lru_page,
        };
        step.preset += moved * cost.cost();
        step.kernel_independent(RefKind::Write, self.line(layer));
        step.note_lock(self.kind());
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Batch {
    lock: SharedLock,
    /// Pages whose metadata is written.
    pages: Vec<Pfn>,
    /// Number of pages that are moved.
    moved: u64,
}

/// Batches whose turn is yet to come, in their order. See the module's text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batches {
    rest: VecDeque<Batch>,
    /// Whether the lock of the first one is held.
    holds: bool,
}

impl Batches {
    /// Batches of pages that move from or to LRU lists. Their lock is held for the first one already, which may be
    /// without pages.
    pub fn under_lru_lock(group: GroupId, batches: Vec<Vec<Pfn>>) -> Self {
        let lock = SharedLock::Lru(group);
        let batch = |pages: Vec<Pfn>| Batch { lock, moved: pages.len() as u64, pages };
        Self { rest: batches.into_iter().map(batch).collect(), holds: true }
    }

    /// Adds a batch of pages that move from or to LRU lists, unless there are none.
    pub fn push_lru(&mut self, group: GroupId, pages: Vec<Pfn>) {
        if !pages.is_empty() {
            let moved = pages.len() as u64;
            self.rest.push_back(Batch { lock: SharedLock::Lru(group), pages, moved });
        }
    }

    /// Adds a batch of free pages that move from or to the zone's lists.
    pub fn push_zone(&mut self, batch: ZoneBatch) {
        self.rest.push_back(Batch { lock: SharedLock::Zone, pages: batch.descriptors, moved: batch.moved });
    }

    /// Whether no batch is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Plans the next step of the first batch.
    pub fn plan(&self, layer: &Layer, costs: &HeldLocksConfig, step: &mut Step) {
        match self.rest.front() {
            Some(Batch { lock, pages, moved }) if self.holds => lock.plan_work(layer, costs, pages, *moved, step),
            Some(Batch { lock, .. }) => lock.plan_take(layer, step),
            None => {}
        }
    }

    /// Commits the planned step. Fails with the key to wait for.
    pub fn commit(&mut self, locks: &mut Locks, layer: LayerId, task: TaskId) -> Result<(), BlockKey> {
        let Some(Batch { lock, .. }) = self.rest.front() else { return Ok(()) };
        let key = lock.key(layer);
        if self.holds {
            locks.release(key, task);
            self.rest.pop_front();
        } else if !locks.acquire(key, task) {
            return Err(key);
        }
        self.holds = !self.holds;
        Ok(())
    }
}
