//! Locks that activities hold.

use crate::base::addr::VirtAddr;
use crate::base::ids::SpaceId;
use crate::base::step::BlockKey;
use crate::config::FaultLock;
use crate::kernel::vma::VaRange;

/// The locks held now and by which CPU. Few are held at a time, at most a handful a CPU, so lists are searched.
#[derive(Debug, Default)]
pub struct Locks {
    held: Vec<(BlockKey, usize)>,
    readers: Vec<Reader>,
    /// Keys released since the last [`Self::take_released`], for waking waiters.
    released: Vec<BlockKey>,
}

/// A fault that relies on the mappings of a space.
#[derive(Debug)]
struct Reader {
    space: SpaceId,
    vma: VaRange,
    cpu: usize,
}

impl Locks {
    /// Takes the key for a CPU; false if another CPU holds it.
    pub fn acquire(&mut self, key: BlockKey, cpu: usize) -> bool {
        if let Some(&(_, holder)) = self.held.iter().find(|(held, _)| *held == key) {
            assert_ne!(holder, cpu, "{key:?} is held by this CPU already");
            return false;
        }
        self.held.push((key, cpu));
        true
    }

    pub fn release(&mut self, key: BlockKey, cpu: usize) {
        let at = self.held.iter().position(|&held| held == (key, cpu));
        self.held.swap_remove(at.expect("only a holder releases"));
        self.released.push(key);
    }

    /// A fault on a CPU relies on a VMA of a space from here on.
    pub fn read_mappings(&mut self, space: SpaceId, vma: VaRange, cpu: usize) {
        self.readers.push(Reader { space, vma, cpu });
    }

    /// The fault does so no more.
    pub fn end_read(&mut self, space: SpaceId, cpu: usize) {
        let at = self.readers.iter().position(|r| r.space == space && r.cpu == cpu);
        self.readers.swap_remove(at.expect("only a reader ends"));
        self.released.push(BlockKey::Mappings { space });
    }

    /// Whether mappings may change now: those in `range`, or all of the space. Under the lock of the address space any
    /// fault in it is in the way, under those of VMAs one in a VMA that changes: that lies in the range, or borders on it
    /// and might be joined with what comes to be there (`vma_merge` locks both).
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

    pub fn any_held(&self) -> bool {
        !self.held.is_empty() || !self.readers.is_empty()
    }

    #[inline]
    pub fn any_released(&self) -> bool {
        !self.released.is_empty()
    }

    /// Calls `wake` for each key released since the last call.
    pub fn take_released(&mut self, wake: impl FnMut(BlockKey)) {
        self.released.drain(..).for_each(wake);
    }
}
