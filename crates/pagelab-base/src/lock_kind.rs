//! Kinds of locks of a kernel, by which statistics show waiting.
//!
//! There are two ways to wait for a lock. A reference to the lock's line *queues* while the line is transferred between
//! other cores, whether the lock is held or not; that is part of the step that makes the reference. And an activity
//! whose lock another task holds *waits* until it is released (`cycles.lock_wait`).

use crate::counters;
use crate::cycles::Cycles;
use crate::ids::LayerId;
use std::collections::BTreeMap;

/// A kind of lock, or of counter that all CPUs change atomically.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockKind {
    /// The lock of an address space, as readers take it (`mmap_lock`, `mmap_sem`).
    MmapRead,
    /// The same lock, or those of VMAs, as changes of mappings take it.
    MmapWrite,
    /// The lock of a VMA, as page faults take it for reading.
    Vma,
    /// The lock of a page-table page, or that under which a table is linked.
    PageTable,
    /// The lock of a zone's free lists.
    Zone,
    /// The lock of the LRU lists.
    Lru,
    /// The counter of a memory cgroup.
    Memcg,
    /// The counters of an address space's mapped pages.
    Rss,
    /// The key of a page that a handler maps.
    Page,
    /// The lock of a placement policy's data.
    Placement,
    /// The lock of a table of a fault engine.
    Engine,
    /// The write-back bit of a page.
    Writeback,
}

impl LockKind {
    /// All kinds, in the order of their counters.
    pub const ALL: [Self; 12] = [
        Self::MmapRead,
        Self::MmapWrite,
        Self::Vma,
        Self::PageTable,
        Self::Zone,
        Self::Lru,
        Self::Memcg,
        Self::Rss,
        Self::Page,
        Self::Placement,
        Self::Engine,
        Self::Writeback,
    ];

    /// Name in statistics.
    pub fn name(self) -> &'static str {
        match self {
            Self::MmapRead => "mmap_read",
            Self::MmapWrite => "mmap_write",
            Self::Vma => "vma",
            Self::PageTable => "page_table",
            Self::Zone => "zone",
            Self::Lru => "lru",
            Self::Memcg => "memcg",
            Self::Rss => "rss",
            Self::Page => "page",
            Self::Placement => "placement",
            Self::Engine => "engine",
            Self::Writeback => "writeback",
        }
    }
}

counters! {
    /// References to the lines of locks that waited for transfers.
    pub struct LockQueue {
        queued: u64 as timed_count("queued", "References to lines of these locks that waited until transfers of the line between other cores had ended");
        cycles: Cycles as cycles("queue_cycles", "Cycles of these waits; included in the cycles of the kernel code that waited");
    }
}

counters! {
    /// Waits for locks that other tasks held.
    pub struct LockWaits {
        contended: u64 as timed_count("contended", "Times that a task found such a lock held by another task and waited");
        cycles: Cycles as cycles("wait_cycles", "Cycles of these waits in which the CPU ran nothing else; all of them sum to cycles.lock_wait");
    }
}

/// Waits for locks that other tasks hold, by the layer and the kind of the lock.
pub type WaitsByLock = BTreeMap<(LayerId, LockKind), LockWaits>;

/// References to lines of locks, by kind.
pub type LockQueues = [LockQueue; LockKind::ALL.len()];
