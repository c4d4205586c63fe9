//! Locks that activities hold.
//!
//! Tasks hold locks, not CPUs: a task keeps them while it waits for a device and its CPU runs others.

use crate::config::FaultLock;
use crate::vma::VaRange;
use pagelab_base::addr::VirtAddr;
use pagelab_base::ids::{CpuId, SpaceId};
use pagelab_base::step::BlockKey;

/// A task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskId {
    /// The CPU that the task runs on.
    pub cpu: CpuId,
    /// Number of the task among those of its CPU.
    pub number: u32,
}

/// The locks that are held, and by which task. Few are held at a time (a handful per task, and one per page that is
/// being written), so lists are searched.
#[derive(Clone, Debug, Default)]
pub struct Locks {
    held: Vec<(BlockKey, TaskId)>,
    /// Free keys that the first task of their queue is about to take.
    reserved: Vec<(BlockKey, TaskId)>,
    readers: Vec<MappingReader>,
    /// Released keys whose waiting tasks have not been woken yet.
    released: Vec<BlockKey>,
}

/// The locks as one task uses them.
pub struct TaskLocks<'a> {
    /// The locks of all tasks.
    pub locks: &'a mut Locks,
    /// The task.
    pub task: TaskId,
}

impl TaskLocks<'_> {
    /// See [`Locks::acquire`].
    pub fn acquire(&mut self, key: BlockKey) -> bool {
        self.locks.acquire(key, self.task)
    }

    /// See [`Locks::release`].
    pub fn release(&mut self, key: BlockKey) {
        self.locks.release(key, self.task);
    }
}

/// A fault that relies on the mappings of a space.
#[derive(Clone, Debug)]
struct MappingReader {
    space: SpaceId,
    vma: VaRange,
    holder: TaskId,
}

impl Locks {
    /// Takes a key for a task; false if another task holds it.
    pub fn acquire(&mut self, key: BlockKey, by: TaskId) -> bool {
        if let Some(&(_, holder)) = self.held.iter().find(|(held, _)| *held == key) {
            assert_ne!(holder, by, "{key:?} is held by this task already");
            return false;
        }
        if let Some(at) = self.reserved.iter().position(|&(reserved, _)| reserved == key) {
            if self.reserved[at].1 != by {
                return false;
            }
            self.reserved.swap_remove(at);
        }
        self.held.push((key, by));
        true
    }

    /// The tasks that hold a key, or that prevent changes of a space's mappings.
    pub fn holders(&self, key: BlockKey) -> impl Iterator<Item = TaskId> + '_ {
        let readers = self.readers.iter().filter(move |reader| key == BlockKey::Mappings { space: reader.space });
        let held = self.held.iter().chain(&self.reserved).filter(move |(held, _)| *held == key);
        held.map(|&(_, holder)| holder).chain(readers.map(|reader| reader.holder))
    }

    /// Releases a key that a task holds, and wakes the tasks that wait for it.
    pub fn release(&mut self, key: BlockKey, by: TaskId) {
        let at = self.held.iter().position(|&held| held == (key, by));
        self.held.swap_remove(at.expect("only a holder releases"));
        self.released.push(key);
    }

    /// Reserves a key that has been released for a task that waits for it. False if another task holds it again.
    pub fn reserve(&mut self, key: BlockKey, task: TaskId) -> bool {
        let is_free = !self.is_held(key) && self.reserved.iter().all(|&(reserved, _)| reserved != key);
        if is_free {
            self.reserved.push((key, task));
        }
        is_free
    }

    /// Gives up what is reserved for a task that has not taken it.
    pub fn end_reservation(&mut self, task: TaskId) {
        if let Some(at) = self.reserved.iter().position(|&(_, reserved_for)| reserved_for == task) {
            let (key, _) = self.reserved.swap_remove(at);
            self.released.push(key);
        }
    }

    /// Whether any key is reserved.
    pub fn any_reserved(&self) -> bool {
        !self.reserved.is_empty()
    }

    /// Wakes the tasks that wait for an event, by a key that no task holds.
    pub fn signal(&mut self, key: BlockKey) {
        self.released.push(key);
    }

    /// From here on, a task relies on a VMA of a space for its fault.
    pub fn read_mappings(&mut self, space: SpaceId, vma: VaRange, holder: TaskId) {
        self.readers.push(MappingReader { space, vma, holder });
    }

    /// The task no longer relies on it.
    pub fn end_read(&mut self, space: SpaceId, by: TaskId) {
        let at = self.readers.iter().position(|r| r.space == space && r.holder == by);
        self.readers.swap_remove(at.expect("only a reader ends"));
        self.released.push(BlockKey::Mappings { space });
    }

    /// Whether mappings may change now: those in `range`, or all of the space. Under the lock of the address space, any
    /// fault in it prevents the change. Under locks of VMAs, a fault prevents it if its VMA lies in the range or
    /// borders on it, and so might be merged with a new mapping there (`vma_merge` locks both).
    pub fn may_change(&self, space: SpaceId, range: Option<VaRange>, lock: FaultLock) -> bool {
        let bordering = range.map(|range| VaRange {
            start: VirtAddr(range.start.0.saturating_sub(1)),
            end: VirtAddr(range.end.0.saturating_add(1)),
        });
        let under_writeback = |reader: &MappingReader| {
            let same_vma = lock == FaultLock::Mm || bordering.is_none_or(|range| range.overlaps(reader.vma));
            reader.space == space && same_vma
        };
        !self.readers.iter().any(under_writeback)
    }

    /// Whether a handler works on the page that starts at this 4 KiB page of a space.
    pub fn holds_page(&self, space: SpaceId, page: u64) -> bool {
        self.held.iter().any(|&(key, _)| key == BlockKey::Page { space, page })
    }

    /// Whether any task holds a key.
    pub fn is_held(&self, key: BlockKey) -> bool {
        self.held.iter().any(|&(held, _)| held == key)
    }

    /// The tasks that hold a key or rely on mappings.
    pub fn all_holders(&self) -> impl Iterator<Item = TaskId> + '_ {
        let readers = self.readers.iter().map(|reader| reader.holder);
        self.held.iter().map(|&(_, holder)| holder).chain(readers)
    }

    /// Whether any task holds a key or relies on mappings.
    pub fn any_held(&self) -> bool {
        !self.held.is_empty() || !self.readers.is_empty()
    }

    /// Discards the released keys, since no task waits for any.
    #[inline]
    pub fn forget_released(&mut self) {
        self.released.clear();
    }

    /// Takes the next released key.
    #[inline]
    pub fn take_released(&mut self) -> Option<BlockKey> {
        self.released.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_base::ids::{LayerId, SpaceIx};

    #[test]
    fn a_reserved_key_is_taken_by_its_task_alone() {
        let space = SpaceId { layer: LayerId(0), index: SpaceIx(1) };
        let key = BlockKey::Page { space, page: 5 };
        let mut locks = Locks::default();
        let [first, second] = [0, 1].map(|cpu| TaskId { cpu: CpuId(cpu), number: 0 });
        assert!(locks.reserve(key, first));
        assert!(!locks.reserve(key, second) && !locks.acquire(key, second));
        assert_eq!(locks.holders(key).collect::<Vec<_>>(), [first]);
        assert!(locks.acquire(key, first) && !locks.any_reserved() && !locks.reserve(key, second));
        locks.release(key, first);
        assert_eq!(locks.take_released(), Some(key));
        assert!(locks.reserve(key, second));
        locks.end_reservation(first);
        assert_eq!(locks.take_released(), None);
        locks.end_reservation(second);
        assert_eq!((locks.take_released(), locks.any_reserved()), (Some(key), false));
    }

    #[test]
    fn tasks_of_one_cpu_are_distinguished() {
        let space = SpaceId { layer: LayerId(0), index: SpaceIx(1) };
        let (key, vma) = (BlockKey::Page { space, page: 5 }, VaRange { start: VirtAddr(0), end: VirtAddr(0x1000) });
        let mut locks = Locks::default();
        let [first, second] = [0, 1].map(|number| TaskId { cpu: CpuId(0), number });
        assert!(locks.acquire(key, first));
        locks.read_mappings(space, vma, first);
        assert!(!locks.acquire(key, second), "another task of the CPU holds it");
        locks.read_mappings(space, vma, second);
        locks.end_read(space, second);
        assert_eq!(locks.holders(key).collect::<Vec<_>>(), [first]);
        assert_eq!(locks.holders(BlockKey::Mappings { space }).collect::<Vec<_>>(), [first]);
        locks.release(key, first);
        assert!(locks.acquire(key, second));
    }
}
