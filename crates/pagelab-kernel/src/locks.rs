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
    /// Tasks in the queues of spin locks, in the order in which they came.
    queue: Vec<Spinner>,
    next_ticket: u64,
    readers: Vec<MappingReader>,
    writers: Vec<MappingWriter>,
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

/// A task in the queue of a spin lock.
#[derive(Clone, Debug)]
struct Spinner {
    key: BlockKey,
    task: TaskId,
    place: QueuePlace,
}

/// How a task waits in the queue of a spin lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePlace {
    /// Tasks that have entered any queue before it.
    ticket: u64,
    /// The CPU of the task.
    pub cpu: CpuId,
    /// Whether it has a node in the queue; otherwise it waits by the lock's pending bit.
    pub has_node: bool,
    /// The CPU whose node is before its own.
    pub before: Option<CpuId>,
}

/// A fault that relies on the mappings of a space.
#[derive(Clone, Debug)]
struct MappingReader {
    space: SpaceId,
    vma: VaRange,
    holder: TaskId,
}

/// A call that changes the mappings of a space.
#[derive(Clone, Debug)]
struct MappingWriter {
    space: SpaceId,
    /// What it changes; `None` for all mappings.
    range: Option<VaRange>,
    holder: TaskId,
}

/// A range with the pages next to it, whose VMAs might be merged with a VMA in the range.
fn with_neighbours(range: VaRange) -> VaRange {
    VaRange { start: VirtAddr(range.start.0.saturating_sub(1)), end: VirtAddr(range.end.0.saturating_add(1)) }
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
        let writers = self.writers.iter().filter(move |&&MappingWriter { space, .. }| {
            key == BlockKey::Mappings { space } || key == BlockKey::MappingsRead { space }
        });
        let held = self.held.iter().chain(&self.reserved).filter(move |(held, _)| *held == key);
        let mappings = readers.map(|reader| reader.holder).chain(writers.map(|writer| writer.holder));
        held.map(|&(_, holder)| holder).chain(mappings)
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

    /// Lets a task wait in the queue of a spin lock, which another task holds or will take first. The first to wait
    /// sets the pending bit; those behind it have nodes.
    pub fn enter_queue(&mut self, key: BlockKey, task: TaskId) -> QueuePlace {
        let last = self.queue.iter().rev().find(|spinner| spinner.key == key);
        let before = last.filter(|spinner| spinner.place.has_node).map(|spinner| spinner.task.cpu);
        let place = QueuePlace { ticket: self.next_ticket, cpu: task.cpu, has_node: last.is_some(), before };
        self.next_ticket += 1;
        self.queue.push(Spinner { key, task, place });
        place
    }

    /// Takes a task out of its queue.
    pub fn leave_queue(&mut self, place: QueuePlace) {
        let at = self.queue.iter().position(|spinner| spinner.place == place);
        self.queue.remove(at.expect("only a task in a queue leaves it"));
    }

    /// The first task in the queue of a spin lock.
    pub fn first_in_queue(&self, key: BlockKey) -> Option<QueuePlace> {
        self.queue.iter().find(|spinner| spinner.key == key).map(|spinner| spinner.place)
    }

    /// When a task has entered the queue of a spin lock; `None` if it is not in it.
    pub fn ticket(&self, key: BlockKey, task: TaskId) -> Option<u64> {
        self.queue.iter().find(|spinner| spinner.key == key && spinner.task == task).map(|s| s.place.ticket)
    }

    /// The CPU whose node is the first behind a place in its queue.
    pub fn node_behind(&self, key: BlockKey, place: QueuePlace) -> Option<CpuId> {
        let behind = |spinner: &&Spinner| spinner.key == key && spinner.place.ticket > place.ticket;
        self.queue.iter().find(|s| behind(s) && s.place.has_node).map(|spinner| spinner.task.cpu)
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

    /// From here on, a task that relies on mappings of a space relies on those in `range`; on none if it is empty, but
    /// then the space stays.
    pub fn set_read_range(&mut self, space: SpaceId, by: TaskId, range: VaRange) {
        let reader = self.readers.iter_mut().find(|r| r.space == space && r.holder == by);
        reader.expect("only a reader changes its range").vma = range;
        self.released.push(BlockKey::Mappings { space });
    }

    /// The task no longer relies on it.
    pub fn end_read(&mut self, space: SpaceId, by: TaskId) {
        let at = self.readers.iter().position(|r| r.space == space && r.holder == by);
        self.readers.swap_remove(at.expect("only a reader ends"));
        self.released.push(BlockKey::Mappings { space });
    }

    /// From here on, a task changes the mappings of a space: those in `range`, or all.
    pub fn write_mappings(&mut self, space: SpaceId, range: Option<VaRange>, holder: TaskId) {
        self.writers.push(MappingWriter { space, range, holder });
    }

    /// The task has changed them.
    pub fn end_write(&mut self, space: SpaceId, by: TaskId) {
        let at = self.writers.iter().position(|w| w.space == space && w.holder == by);
        self.writers.swap_remove(at.expect("only a writer ends"));
        self.released.extend([BlockKey::Mappings { space }, BlockKey::MappingsRead { space }]);
    }

    /// Whether a task may rely on mappings of a space now: those in `vma`, or all. Under locks of VMAs, a call is in
    /// the way if its range contains the VMA or borders on it.
    pub fn may_read(&self, space: SpaceId, vma: Option<VaRange>, lock: FaultLock) -> bool {
        let is_apart = |range: VaRange| vma.is_some_and(|vma| !with_neighbours(range).overlaps(vma));
        let goes_on = |writer: &MappingWriter| lock == FaultLock::Vma && writer.range.is_some_and(is_apart);
        self.writers.iter().all(|writer| writer.space != space || goes_on(writer))
    }

    /// Whether mappings may change now: those in `range`, or all of the space. Under the lock of the address space, any
    /// fault in it prevents the change. Under locks of VMAs, a fault prevents it if its VMA lies in the range or
    /// borders on it, and so might be merged with a new mapping there (`vma_merge` locks both). Any other call that
    /// holds the lock prevents it.
    pub fn may_change(&self, space: SpaceId, range: Option<VaRange>, lock: FaultLock) -> bool {
        let bordering = range.map(with_neighbours);
        let prevents = |reader: &MappingReader| {
            let same_vma = lock == FaultLock::Mm || bordering.is_none_or(|range| range.overlaps(reader.vma));
            reader.space == space && same_vma
        };
        !self.readers.iter().any(prevents) && self.writers.iter().all(|writer| writer.space != space)
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
        let writers = self.writers.iter().map(|writer| writer.holder);
        self.held.iter().map(|&(_, holder)| holder).chain(readers).chain(writers)
    }

    /// Whether any task holds a key, waits in a queue, or relies on mappings.
    pub fn any_held(&self) -> bool {
        !self.held.is_empty() || !self.queue.is_empty() || !self.readers.is_empty() || !self.writers.is_empty()
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
    fn a_queue_has_a_pending_bit_and_then_nodes() {
        let space = SpaceId { layer: LayerId(0), index: SpaceIx(1) };
        let [key, other] = [5, 6].map(|page| BlockKey::Page { space, page });
        let mut locks = Locks::default();
        let tasks: Vec<TaskId> = (0..4).map(|cpu| TaskId { cpu: CpuId(cpu), number: 0 }).collect();
        locks.enter_queue(other, tasks[3]);
        let places: Vec<QueuePlace> = tasks[..3].iter().map(|&task| locks.enter_queue(key, task)).collect();
        assert_eq!(places.iter().map(|place| place.has_node).collect::<Vec<_>>(), [false, true, true]);
        assert_eq!(places.iter().map(|place| place.before).collect::<Vec<_>>(), [None, None, Some(CpuId(1))]);
        assert!(locks.ticket(key, tasks[1]) < locks.ticket(key, tasks[2]) && locks.ticket(key, tasks[3]).is_none());
        assert_eq!((locks.first_in_queue(key), locks.node_behind(key, places[0])), (Some(places[0]), Some(CpuId(1))));
        locks.leave_queue(places[0]);
        assert_eq!((locks.first_in_queue(key), locks.node_behind(key, places[1])), (Some(places[1]), Some(CpuId(2))));
        // Who comes to a queue without a pending bit is behind a node.
        assert_eq!(locks.enter_queue(key, tasks[0]).before, Some(CpuId(2)));
        places[1..].iter().for_each(|&place| locks.leave_queue(place));
        assert!(locks.any_held());
    }

    #[test]
    fn a_writer_keeps_readers_of_its_mappings_out_and_all_writers() {
        let space = SpaceId { layer: LayerId(0), index: SpaceIx(1) };
        let range = |from: u64, to: u64| VaRange { start: VirtAddr(from << 12), end: VirtAddr(to << 12) };
        let mut locks = Locks::default();
        let task = TaskId { cpu: CpuId(0), number: 0 };
        locks.write_mappings(space, Some(range(4, 8)), task);
        for (vma, lock, may) in [
            (Some(range(0, 3)), FaultLock::Vma, true),
            (Some(range(0, 4)), FaultLock::Vma, false),
            (Some(range(5, 6)), FaultLock::Vma, false),
            (None, FaultLock::Vma, false),
            (Some(range(0, 3)), FaultLock::Mm, false),
        ] {
            assert_eq!(locks.may_read(space, vma, lock), may, "{vma:?} {lock:?}");
        }
        assert!(locks.may_read(SpaceId { index: SpaceIx(2), ..space }, None, FaultLock::Mm));
        assert!(!locks.may_change(space, Some(range(20, 21)), FaultLock::Vma));
        let waited_for = [BlockKey::Mappings { space }, BlockKey::MappingsRead { space }];
        assert!(waited_for.iter().all(|&key| locks.holders(key).eq([task])) && locks.any_held());
        locks.end_write(space, task);
        assert_eq!([locks.take_released(), locks.take_released()].map(Option::unwrap), [waited_for[1], waited_for[0]]);
        assert!(locks.may_read(space, None, FaultLock::Mm) && !locks.any_held());
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
