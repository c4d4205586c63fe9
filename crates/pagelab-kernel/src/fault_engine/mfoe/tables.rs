//! Pre-allocation tables: per CPU a ring of frames that are ready, in the layer's memory.
//!
//! Slot 0 is the header: head (where the kernel puts the next frame), tail (where the walker takes one), the number of
//! entries and a lock, 4 bytes each. The others are entries of two words: valid, used, owner and frame in one, the
//! page's address in the other. The kernel moves the head only and the walker the tail only, so neither needs the lock
//! against the other: what tells whose an entry is are its bits. The lock is against other threads of the kernel.
//! Source: 4.2 and Fig 4; which bits is left open there.

use crate::memory::Memory;
use pagelab_base::addr::{Pfn, PhysAddr, VirtAddr};
use pagelab_base::ids::CpuId;
use pagelab_base::memory::PhysMem;

const SLOT_BYTES: u64 = 16;
const VALID: u64 = 1 << 0;
const USED: u64 = 1 << 1;
const OWNER_SHIFT: u32 = 8;
const FRAME_SHIFT: u32 = 30;

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableEntry {
    /// Nothing: it is to be filled.
    Empty,
    /// A zeroed frame is ready.
    Ready(Pfn),
    /// The frame has been mapped at an address of its owner's.
    Used {
        /// Number of the space that the page is in.
        owner: u32,
        /// Where the page begins.
        va: VirtAddr,
        /// Its first frame.
        frame: Pfn,
    },
}

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Tables {
    /// First frames, by CPU.
    bases: Vec<Pfn>,
    entries: u32,
    /// Frames of all.
    frames: u64,
}

impl Tables {
    /// Empty tables; none if there is no memory for them.
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

    /// The CPUs that have a table: all of the machine.
    pub fn cpus(&self) -> impl Iterator<Item = CpuId> + use<> {
        CpuId::all(self.bases.len())
    }

    /// Frames of all tables.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Where the header of a CPU's table is: slot 0.
    pub fn header(&self, cpu: CpuId) -> PhysAddr {
        self.bases[cpu.index()].addr()
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

    /// Address of the entry that comes so many after the head, fewer than there are.
    pub fn behind_head(&self, cpu: CpuId, many: u32, mem: &PhysMem) -> PhysAddr {
        let number = self.places(cpu, mem).0 + many;
        self.slot(cpu, if number > self.entries { number - self.entries } else { number })
    }

    /// Address of the entry that a frame is taken from next.
    pub fn tail(&self, cpu: CpuId, mem: &PhysMem) -> PhysAddr {
        self.slot(cpu, self.places(cpu, mem).1)
    }

    /// What an entry says.
    pub fn entry(&self, at: PhysAddr, mem: &PhysMem) -> TableEntry {
        let word = mem.read(at);
        let frame = Pfn(word >> FRAME_SHIFT);
        match (word & VALID != 0, word & USED != 0) {
            (true, _) => TableEntry::Ready(frame),
            (false, false) => TableEntry::Empty,
            (false, true) => {
                let owner = (word >> OWNER_SHIFT) as u32 & ((1 << (FRAME_SHIFT - OWNER_SHIFT)) - 1);
                TableEntry::Used { owner, va: VirtAddr(mem.read(at + 8)), frame }
            }
        }
    }

    /// Takes the frame at the tail for a page of an owner; none if it is not ready.
    pub fn take(&self, cpu: CpuId, owner: u32, va: VirtAddr, mem: &mut PhysMem) -> Option<Pfn> {
        let (head, tail) = self.places(cpu, mem);
        let at = self.slot(cpu, tail);
        let TableEntry::Ready(frame) = self.entry(at, mem) else { return None };
        mem.write(at, frame.0 << FRAME_SHIFT | u64::from(owner) << OWNER_SHIFT | USED);
        mem.write(at + 8, va.0);
        self.set_places(cpu, mem, (head, self.after(tail)));
        Some(frame)
    }

    /// Takes the frame at the tail back from the walker, which is off; none if none is ready.
    pub fn withdraw(&self, cpu: CpuId, mem: &mut PhysMem) -> Option<Pfn> {
        let (head, tail) = self.places(cpu, mem);
        let at = self.slot(cpu, tail);
        let TableEntry::Ready(frame) = self.entry(at, mem) else { return None };
        self.clear(at, mem);
        self.set_places(cpu, mem, (head, self.after(tail)));
        Some(frame)
    }

    /// What an entry said is dealt with.
    pub fn clear(&self, at: PhysAddr, mem: &mut PhysMem) {
        mem.write(at, 0);
        mem.write(at + 8, 0);
    }

    /// Puts a frame in the entry at the head, which is empty, and goes on to the next.
    pub fn put(&self, cpu: CpuId, frame: Pfn, mem: &mut PhysMem) {
        let (head, tail) = self.places(cpu, mem);
        let at = self.slot(cpu, head);
        assert_eq!(self.entry(at, mem), TableEntry::Empty, "the entry at the head of {cpu:?} is in use");
        mem.write(at, frame.0 << FRAME_SHIFT | VALID);
        self.set_places(cpu, mem, (self.after(head), tail));
    }

    /// The entries of a CPU that are used, with their addresses, from the head on.
    pub fn used<'a>(&'a self, cpu: CpuId, mem: &'a PhysMem) -> impl Iterator<Item = (PhysAddr, TableEntry)> + 'a {
        let first = self.places(cpu, mem).0;
        let numbers = (first..=self.entries).chain(1..first);
        let entries = numbers.map(move |number| self.slot(cpu, number)).map(|at| (at, self.entry(at, mem)));
        entries.filter(|(_, entry)| matches!(entry, TableEntry::Used { .. }))
    }
}
