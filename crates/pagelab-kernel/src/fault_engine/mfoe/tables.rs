//! Pre-allocation tables: a ring of ready frames per CPU, in the layer's memory.
//!
//! Slot 0 is the header: head (where the kernel puts the next frame), tail (where the walker takes one), the number of
//! entries and a lock, 4 bytes each. The other slots are entries of two words: valid, used, owner and frame in one, the
//! page's address in the other. Only the kernel moves the head, and only the walker the tail, so they need no lock
//! against each other: the bits of an entry show whose it is. The lock excludes other kernel threads.
//! Source: 4.2 and Fig 4, which leave the choice of bits open.

use crate::memory::Memory;
use pagelab_base::addr::{Pfn, PhysAddr, VirtAddr};
use pagelab_base::ids::{CpuId, SpaceIx};
use pagelab_base::memory::PhysMem;

const SLOT_BYTES: u64 = 16;
const VALID: u64 = 1 << 0;
const USED: u64 = 1 << 1;
const OWNER_SHIFT: u32 = 8;
const FRAME_SHIFT: u32 = 30;

/// Content of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableEntry {
    /// Empty: needs a frame.
    Empty,
    /// A zeroed frame is ready.
    Ready(Pfn),
    /// The frame has been mapped at an address of its owner.
    Used {
        /// Number of the page's space.
        owner: SpaceIx,
        /// First address of the page.
        va: VirtAddr,
        /// First frame of the page.
        frame: Pfn,
    },
}

/// The tables of all CPUs, see the module's text.
#[derive(Clone, Debug)]
pub struct Tables {
    /// First frame of each table, by CPU.
    bases: Vec<Pfn>,
    entries: u32,
    /// Number of frames of all tables.
    frames: u64,
}

impl Tables {
    /// Empty tables; `None` if there is no memory for them.
    pub fn boot(entries: u32, cpus: u32, memory: &mut Memory) -> Option<Self> {
        let bytes = (u64::from(entries) + 1) * SLOT_BYTES;
        let rings: Option<Vec<(Pfn, u64)>> = (0..cpus).map(|_| memory.take_ring(bytes)).collect();
        let rings = rings?;
        let frames = rings.iter().map(|&(_, frames)| frames).sum();
        let tables = Self { bases: rings.into_iter().map(|(base, _)| base).collect(), entries, frames };
        for &base in &tables.bases {
            memory.contents.write(base.addr(), 1 << 32 | 1);
            memory.contents.write(base.addr() + 8, u64::from(entries));
        }
        Some(tables)
    }

    /// The CPUs with a table: all CPUs of the machine.
    pub fn cpus(&self) -> impl Iterator<Item = CpuId> + use<> {
        CpuId::all(self.bases.len())
    }

    /// Number of frames of all tables.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Address of the header (slot 0) of a CPU's table.
    pub fn header(&self, cpu: CpuId) -> PhysAddr {
        self.bases[cpu].addr()
    }

    fn slot(&self, cpu: CpuId, number: u32) -> PhysAddr {
        self.header(cpu) + u64::from(number) * SLOT_BYTES
    }

    fn places(&self, cpu: CpuId, mem: &PhysMem) -> (u32, u32) {
        let word = mem.read(self.header(cpu));
        (word as u32, (word >> 32) as u32)
    }

    fn set_places(&self, cpu: CpuId, mem: &mut PhysMem, (head, tail): (u32, u32)) {
        mem.write(self.header(cpu), u64::from(tail) << 32 | u64::from(head));
    }

    fn after(&self, number: u32) -> u32 {
        if number == self.entries { 1 } else { number + 1 }
    }

    /// Address of the entry that is `many` places after the head.
    pub fn after_head(&self, cpu: CpuId, many: u32, mem: &PhysMem) -> PhysAddr {
        let number = self.places(cpu, mem).0 + many;
        self.slot(cpu, if number > self.entries { number - self.entries } else { number })
    }

    /// Address of the entry from which the next frame is taken.
    pub fn tail(&self, cpu: CpuId, mem: &PhysMem) -> PhysAddr {
        self.slot(cpu, self.places(cpu, mem).1)
    }

    /// Content of an entry.
    pub fn entry(&self, at: PhysAddr, mem: &PhysMem) -> TableEntry {
        let word = mem.read(at);
        let frame = Pfn(word >> FRAME_SHIFT);
        match (word & VALID != 0, word & USED != 0) {
            (true, _) => TableEntry::Ready(frame),
            (false, false) => TableEntry::Empty,
            (false, true) => {
                let owner = (word >> OWNER_SHIFT) as u32 & ((1 << (FRAME_SHIFT - OWNER_SHIFT)) - 1);
                TableEntry::Used { owner: SpaceIx(owner), va: VirtAddr(mem.read(at + 8)), frame }
            }
        }
    }

    /// Takes the frame at the tail for a page of an owner; `None` if it is not ready.
    pub fn take(&self, cpu: CpuId, owner: SpaceIx, va: VirtAddr, mem: &mut PhysMem) -> Option<Pfn> {
        let (head, tail) = self.places(cpu, mem);
        let at = self.slot(cpu, tail);
        let TableEntry::Ready(frame) = self.entry(at, mem) else { return None };
        mem.write(at, frame.0 << FRAME_SHIFT | u64::from(owner.number()) << OWNER_SHIFT | USED);
        mem.write(at + 8, va.0);
        self.set_places(cpu, mem, (head, self.after(tail)));
        Some(frame)
    }

    /// Removes the frame at the tail while the walker does not use the table; `None` if none is ready.
    pub fn withdraw(&self, cpu: CpuId, mem: &mut PhysMem) -> Option<Pfn> {
        let (head, tail) = self.places(cpu, mem);
        let at = self.slot(cpu, tail);
        let TableEntry::Ready(frame) = self.entry(at, mem) else { return None };
        self.clear(at, mem);
        self.set_places(cpu, mem, (head, self.after(tail)));
        Some(frame)
    }

    /// Empties an entry.
    pub fn clear(&self, at: PhysAddr, mem: &mut PhysMem) {
        mem.write(at, 0);
        mem.write(at + 8, 0);
    }

    /// Puts a frame in the entry at the head, which must be empty, and advances the head.
    pub fn put(&self, cpu: CpuId, frame: Pfn, mem: &mut PhysMem) {
        let (head, tail) = self.places(cpu, mem);
        let at = self.slot(cpu, head);
        assert_eq!(self.entry(at, mem), TableEntry::Empty, "the entry at the head of {cpu:?} is in use");
        mem.write(at, frame.0 << FRAME_SHIFT | VALID);
        self.set_places(cpu, mem, (self.after(head), tail));
    }

    /// The used entries of a CPU's table with their addresses, starting at the head.
    pub fn used<'a>(&'a self, cpu: CpuId, mem: &'a PhysMem) -> impl Iterator<Item = (PhysAddr, TableEntry)> + 'a {
        let first = self.places(cpu, mem).0;
        let numbers = (first..=self.entries).chain(1..first);
        let entries = numbers.map(move |number| self.slot(cpu, number)).map(|at| (at, self.entry(at, mem)));
        entries.filter(|(_, entry)| matches!(entry, TableEntry::Used { .. }))
    }
}
