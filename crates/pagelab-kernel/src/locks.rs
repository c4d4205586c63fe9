//! Locks that activities hold.
//!
//! A task holds them, not a CPU: it keeps them while it waits for a device and its CPU runs others.

use crate::config::FaultLock;
use crate::vma::VaRange;
use pagelab_base::addr::VirtAddr;
use pagelab_base::ids::{CpuId, SpaceId};
use pagelab_base::step::BlockKey;

/// A task, by its CPU and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The CPU that the task runs on.
    pub cpu: CpuId,
    /// Number of the task among those of its CPU.
    pub task: u32,
}

/// The locks held now and by which task. Few are held at a time, at most a handful per task and a block for each
/// page that is being written, so lists are searched.
#[derive(Clone, Debug, Default)]
pub struct Locks {
    /// Number of the task that acts on its CPU.
    pub acting_task: u32,
    held: Vec<(BlockKey, Holder)>,
    readers: Vec<Reader>,
    /// Keys released, until those that wait for them are woken.
    released: Vec<BlockKey>,
}

/// A fault that relies on the mappings of a space.
#[derive(Clone, Debug)]
struct Reader {
    space: SpaceId,
    vma: VaRange,
    holder: Holder,
}

impl Locks {
    fn acting(&self, cpu: CpuId) -> Holder {
        Holder { cpu, task: self.acting_task }
    }

    /// Takes the key for the task that acts on a CPU; false if another holds it.
    pub fn acquire(&mut self, key: BlockKey, cpu: CpuId) -> bool {
        let by = self.acting(cpu);
        if let Some(&(_, holder)) = self.held.iter().find(|(held, _)| *held == key) {
            assert_ne!(holder, by, "{key:?} is held by this task already");
            return false;
        }
        self.held.push((key, by));
        true
    }

    /// The tasks that hold a key, or are in the way of changes to a space's mappings.
    pub fn holders(&self, key: BlockKey) -> impl Iterator<Item = Holder> + '_ {
        let readers = self.readers.iter().filter(move |reader| key == BlockKey::Mappings { space: reader.space });
        let held = self.held.iter().filter(move |(held, _)| *held == key);
        held.map(|&(_, holder)| holder).chain(readers.map(|reader| reader.holder))
    }

    /// Gives back a key that the task which acts on a CPU holds; those that wait for it are woken.
    pub fn release(&mut self, key: BlockKey, cpu: CpuId) {
        let by = self.acting(cpu);
        let at = self.held.iter().position(|&held| held == (key, by));
        self.held.swap_remove(at.expect("only a holder releases"));
        self.released.push(key);
    }

    /// What those wait for that wait for a key which nobody holds has happened.
    pub fn signal(&mut self, key: BlockKey) {
        self.released.push(key);
    }

    /// A fault on a CPU relies on a VMA of a space from here on.
    pub fn read_mappings(&mut self, space: SpaceId, vma: VaRange, cpu: CpuId) {
        let holder = self.acting(cpu);
        self.readers.push(Reader { space, vma, holder });
    }

    /// The fault does so no more.
    pub fn end_read(&mut self, space: SpaceId, cpu: CpuId) {
        let by = self.acting(cpu);
        let at = self.readers.iter().position(|r| r.space == space && r.holder == by);
        self.readers.swap_remove(at.expect("only a reader ends"));
        self.released.push(BlockKey::Mappings { space });
    }

    /// Whether mappings may change now: those in `range`, or all of the space. Under the lock of the address space any
    /// fault in it is in the way, under those of VMAs one in a VMA that changes: that lies in the range, or borders on
    /// it and might be joined with what comes to be there (`vma_merge` locks both).
    pub fn may_change(&self, space: SpaceId, range: Option<VaRange>, lock: FaultLock) -> bool {
        let bordering = range.map(|range| VaRange {
            start: VirtAddr(range.start.0.saturating_sub(1)),
            end: VirtAddr(range.end.0.saturating_add(1)),
        });
        let in_the_way = |reader: &Reader| {
            let same_vma = lock == FaultLock::Mm || bordering.is_none_or(|range| range.overlaps(reader.vma));
            reader.space == space && same_vma
        };
        !self.readers.iter().any(in_the_way)
    }

    /// Whether a handler works on the page that begins at this 4 KiB page of a space.
    pub fn holds_page(&self, space: SpaceId, page: u64) -> bool {
        self.held.iter().any(|&(key, _)| key == BlockKey::Page { space, page })
    }

    /// Whether somebody has a key.
    pub fn is_held(&self, key: BlockKey) -> bool {
        self.held.iter().any(|&(held, _)| held == key)
    }

    /// The tasks that hold anything.
    pub fn all_holders(&self) -> impl Iterator<Item = Holder> + '_ {
        let readers = self.readers.iter().map(|reader| reader.holder);
        self.held.iter().map(|&(_, holder)| holder).chain(readers)
    }

    /// Whether any task holds a key or relies on mappings.
    pub fn any_held(&self) -> bool {
        !self.held.is_empty() || !self.readers.is_empty()
    }

    /// Nobody waits for what has been released.
    #[inline]
    pub fn forget_released(&mut self) {
        self.released.clear();
    }

    /// A key that has been released and not been taken.
    #[inline]
    pub fn take_released(&mut self) -> Option<BlockKey> {
        self.released.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_base::ids::LayerId;

    #[test]
    fn tasks_of_one_cpu_are_told_apart() {
        let space = SpaceId { layer: LayerId(0), index: 1 };
        let (key, vma) = (BlockKey::Page { space, page: 5 }, VaRange { start: VirtAddr(0), end: VirtAddr(0x1000) });
        let mut locks = Locks::default();
        assert!(locks.acquire(key, CpuId(0)));
        locks.read_mappings(space, vma, CpuId(0));
        locks.acting_task = 1;
        assert!(!locks.acquire(key, CpuId(0)), "another task of the CPU has it");
        locks.read_mappings(space, vma, CpuId(0));
        locks.end_read(space, CpuId(0));
        assert_eq!(locks.holders(key).collect::<Vec<_>>(), [Holder { cpu: CpuId(0), task: 0 }]);
        assert_eq!(
            locks.holders(BlockKey::Mappings { space }).collect::<Vec<_>>(),
            [Holder { cpu: CpuId(0), task: 0 }]
        );
        locks.acting_task = 0;
        locks.release(key, CpuId(0));
        locks.acting_task = 1;
        assert!(locks.acquire(key, CpuId(0)));
    }
}
