//! Batches of pages that are moved under a lock that all CPUs share: the lock of free pages, or that of the LRU lists;
//! and page-table entries that a scan reads or clears, each under the lock of its page-table page.
//!
//! Models: with `kernel.held_locks`, each batch takes two steps. The first takes the lock, or waits for it. The second
//! does the work for all pages of the batch, and releases the lock by a write to its line. No other key is taken
//! meanwhile. An entry is a batch of its own, as in Linux.
//! Source: Linux mm/vmscan.c (`shrink_inactive_list`, `move_folios_to_lru`), mm/swap.c (`release_pages`),
//! mm/page_alloc.c (`free_pcppages_bulk`), mm/page_vma_mapped.c (`page_vma_mapped_walk`), mm/rmap.c
//! (`folio_referenced_one`, `try_to_unmap_one`; in 4.9 `page_check_address`).
//! Parameters: `kernel.held_locks`, `kernel.spin_locks`.
//! Stats: `layer.NAME.lock.zone.*`, `layer.NAME.lock.lru.*`, `layer.NAME.lock.page_table.*`.
//! Deviations: what the batch changes has changed before, in one commit; only the time and the references come later.
//! The lock of an entry is that of the table that it was in when the batch was made.

use std::collections::VecDeque;

use crate::config::{HeldLocksConfig, SpinLocks};
use crate::frames::frame_alloc::ZoneBatch;
use crate::layer::Layer;
use crate::locks::{Locks, TaskId};
use crate::memory::page_metadata;
use crate::reclaim::GroupId;
use crate::table_lock::{TableLocked, TableLocking};
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

/// What a batch moves or changes, and the lock that it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Batch {
    /// So many pages move; the metadata of `pages` is written.
    Pages { lock: SharedLock, pages: Vec<Pfn>, moved: u64 },
    /// An entry is read or cleared under the lock of its page-table page. Before, a page's metadata is written, if this
    /// is the first entry that maps it.
    Entry { page: Option<Pfn>, table: Pfn, entry: PhysAddr },
    /// The metadata of a page is written that is mapped nowhere.
    Unmapped { page: Pfn },
}

/// An entry that maps a page, and the page-table page whose lock it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockedEntry {
    /// The page-table page.
    pub table: Pfn,
    /// The entry.
    pub entry: PhysAddr,
}

/// Batches whose turn is yet to come, in their order. See the module's text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batches {
    rest: VecDeque<Batch>,
    /// Whether the lock of the first one is held.
    holds: bool,
    /// How the lock of the first one is taken, if it is that of a page-table page.
    locking: TableLocking,
}

impl Batches {
    /// A batch of pages that move from or to LRU lists, perhaps none. Their lock is held already.
    pub fn under_lru_lock(group: GroupId, pages: Vec<Pfn>) -> Self {
        let mut batches = Self { holds: true, ..Self::default() };
        let (lock, moved) = (SharedLock::Lru(group), pages.len() as u64);
        batches.rest.push_back(Batch::Pages { lock, pages, moved });
        batches
    }

    /// Adds a batch of pages that move from or to LRU lists, unless there are none.
    pub fn push_lru(&mut self, group: GroupId, pages: Vec<Pfn>) {
        if !pages.is_empty() {
            let moved = pages.len() as u64;
            self.rest.push_back(Batch::Pages { lock: SharedLock::Lru(group), pages, moved });
        }
    }

    /// Adds a batch of free pages that move from or to the zone's lists.
    pub fn push_zone(&mut self, batch: ZoneBatch) {
        let ZoneBatch { descriptors: pages, moved } = batch;
        self.rest.push_back(Batch::Pages { lock: SharedLock::Zone, pages, moved });
    }

    /// Adds a page that is examined: its metadata is written, and then each entry that maps it is read and changed.
    pub fn push_examination(&mut self, page: Pfn, entries: &[LockedEntry]) {
        if entries.is_empty() {
            self.rest.push_back(Batch::Unmapped { page });
        }
        for (number, &LockedEntry { table, entry }) in entries.iter().enumerate() {
            self.rest.push_back(Batch::Entry { page: (number == 0).then_some(page), table, entry });
        }
    }

    /// Adds an entry that is cleared.
    pub fn push_unmapping(&mut self, LockedEntry { table, entry }: LockedEntry) {
        self.rest.push_back(Batch::Entry { page: None, table, entry });
    }

    /// Whether no batch is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Plans the next step of the first batch.
    pub fn plan(&self, layer: &Layer, locks: &Locks, costs: &HeldLocksConfig, step: &mut Step) {
        let Some(batch) = self.rest.front() else { return };
        match batch {
            Batch::Pages { lock, pages, moved } if self.holds => lock.plan_work(layer, costs, pages, *moved, step),
            Batch::Pages { lock, .. } => lock.plan_take(layer, step),
            &Batch::Entry { table, entry, .. } if self.holds => {
                step.kernel(RefKind::Locked, entry);
                step.kernel_independent(RefKind::Write, page_metadata(table));
                step.note_lock(LockKind::PageTable);
            }
            &Batch::Entry { page, table, .. } => {
                if let Some(page) = page.filter(|_| self.locking == TableLocking::Take) {
                    step.kernel(RefKind::Write, page_metadata(page));
                }
                self.locking.plan(layer, locks, table, step);
            }
            &Batch::Unmapped { page } => step.kernel(RefKind::Write, page_metadata(page)),
        }
    }

    /// Commits the planned step. Fails with the key to wait for.
    pub fn commit(
        &mut self,
        locks: &mut Locks,
        spin_locks: SpinLocks,
        layer: LayerId,
        task: TaskId,
    ) -> Result<(), BlockKey> {
        let key = match self.rest.front() {
            Some(Batch::Pages { lock, .. }) => lock.key(layer),
            Some(&Batch::Entry { table, .. }) => BlockKey::PageTable { layer, frame: table },
            Some(Batch::Unmapped { .. }) => {
                self.rest.pop_front();
                return Ok(());
            }
            None => return Ok(()),
        };
        if self.holds {
            locks.release(key, task);
            self.rest.pop_front();
            self.holds = false;
        } else if matches!(key, BlockKey::PageTable { .. }) {
            self.take_table(locks, spin_locks, key, task)?;
        } else if locks.acquire(key, task) {
            self.holds = true;
        } else {
            return Err(key);
        }
        Ok(())
    }

    /// Takes the lock of a page-table page, or fails with the key to wait for.
    fn take_table(
        &mut self,
        locks: &mut Locks,
        spin_locks: SpinLocks,
        key: BlockKey,
        task: TaskId,
    ) -> Result<(), BlockKey> {
        match self.locking.commit(locks, spin_locks == SpinLocks::Queued, key, task) {
            TableLocked::Holds => (self.holds, self.locking) = (true, TableLocking::Take),
            TableLocked::Continues(next) => self.locking = next,
            TableLocked::Waits(next, key) => {
                self.locking = next;
                return Err(key);
            }
        }
        Ok(())
    }
}
