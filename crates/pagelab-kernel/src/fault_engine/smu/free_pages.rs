//! The queue of free pages: a ring in the layer's memory, which the kernel fills and the unit empties.
//!
//! Source: Lee, Jin et al., as in [`super`]: an entry has a frame number, and the address to which the drive writes
//! (DMAP on the slides).

use crate::memory::Memory;
use pagelab_base::addr::{Pfn, PhysAddr};
use pagelab_base::memory::PhysMem;

const ENTRY_BYTES: u64 = 16;

/// The queue, see the module's text.
#[derive(Clone, Debug)]
pub struct FreePages {
    first: Pfn,
    frames: u64,
    entries: u32,
    /// Index of the next page to take, and the number of pages.
    tail: u32,
    count: u32,
    /// Number of these that the unit has fetched, and how many it fetches at a time.
    fetched: u32,
    prefetch: u32,
}

impl FreePages {
    /// An empty queue; `None` if there is no memory for it.
    pub fn boot(entries: u32, prefetch: u32, memory: &mut Memory) -> Option<Self> {
        let (first, frames) = memory.take_ring(u64::from(entries) * ENTRY_BYTES)?;
        Some(Self { first, frames, entries, tail: 0, count: 0, fetched: 0, prefetch })
    }

    /// Frames of 4 KiB that the ring itself takes.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Number of free pages in the queue.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether the ring is full.
    pub fn is_full(&self) -> bool {
        self.count == self.entries
    }

    fn place(&self, number: u32) -> PhysAddr {
        self.first.addr() + u64::from(number % self.entries) * ENTRY_BYTES
    }

    /// Address of the entry that the unit must read before it can take a page; `None` if it has already fetched one, or
    /// if the queue is empty.
    pub fn to_fetch(&self) -> Option<PhysAddr> {
        (self.fetched == 0 && self.count > 0).then(|| self.place(self.tail))
    }

    /// Fetches the next entries, as the unit does.
    pub fn fetch(&mut self) {
        if self.fetched == 0 {
            self.fetched = self.count.min(self.prefetch);
        }
    }

    /// Takes a page, as the unit does.
    pub fn take(&mut self, mem: &PhysMem) -> Option<Pfn> {
        self.fetch();
        self.fetched = self.fetched.checked_sub(1)?;
        let at = self.place(self.tail);
        let (frame, address) = (Pfn(mem.read(at)), mem.read(at + 8));
        debug_assert_eq!(address, frame.addr().0, "the drive writes to the frame itself");
        (self.tail, self.count) = ((self.tail + 1) % self.entries, self.count - 1);
        Some(frame)
    }

    /// Address of the next entry to fill.
    pub fn head(&self) -> PhysAddr {
        self.place(self.tail + self.count)
    }

    /// Adds a page, as the kernel does; the ring must not be full.
    pub fn put(&mut self, frame: Pfn, mem: &mut PhysMem) {
        assert!(!self.is_full(), "the queue of free pages is full");
        let at = self.head();
        mem.write(at, frame.0);
        mem.write(at + 8, frame.addr().0);
        self.count += 1;
    }
}
