//! A queue pair between the unit and a drive, in the layer's memory.
//!
//! Models: a ring of submission entries of 64 bytes, and one of completion entries of 16 bytes. Completions have a
//! phase bit that changes in every round, so that a new entry is recognised without a register. Each completion says
//! how far the drive has read the submissions. Doorbells tell the drive how far there are submissions, and how far
//! completions have been read.
//! Source: NVM Express base specification 1.4, 4.2 (submission queue entry), 4.6 (completion queue entry); NVM command
//! set, read.

use crate::memory::Memory;
use pagelab_base::addr::{LINE_BYTES, Pfn, PhysAddr};
use pagelab_base::io::{Lba, NVME_COMPLETION_BYTES, NVME_UNITS};
use pagelab_base::memory::PhysMem;

const READ: u64 = 0x02;
const NAMESPACE: u64 = 1;
/// Generic command status: internal error.
const FAILED: u64 = 0x06;

/// A completion, as read by the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Number of the command.
    pub id: u16,
    /// Whether the drive reports an error, so that the page was not read.
    pub failed: bool,
}

/// The queue pair, see the module's text.
#[derive(Clone, Debug)]
pub struct QueuePair {
    submissions: Pfn,
    completions: Pfn,
    entries: u32,
    frames: u64,
    /// Where the unit writes the next submission, and how far it knows that the drive has read.
    tail: u32,
    read_to: u32,
    /// The drive's state: where it reads the next submission and writes the next completion, and its phase.
    device: NvmeDevice,
    /// Where the unit reads the next completion, and its phase.
    head: u32,
    phase: bool,
}

#[derive(Clone, Debug)]
struct NvmeDevice {
    read_to: u32,
    tail: u32,
    phase: bool,
    /// Commands that it has read and not answered.
    commands: Vec<(u16, DriveRead)>,
}

/// What the drive has read: a block, into a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveRead {
    /// The block, in the drive's numbering.
    pub lba: Lba,
    /// The frame that its contents were written to.
    pub frame: Pfn,
}

impl QueuePair {
    /// An empty queue pair; `None` if there is no memory for it.
    pub fn boot(entries: u32, memory: &mut Memory) -> Option<Self> {
        let (submissions, first) = memory.take_ring(u64::from(entries) * LINE_BYTES)?;
        let (completions, second) = memory.take_ring(u64::from(entries) * NVME_COMPLETION_BYTES)?;
        let device = NvmeDevice { read_to: 0, tail: 0, phase: true, commands: Vec::new() };
        let frames = first + second;
        Some(Self { submissions, completions, entries, frames, tail: 0, read_to: 0, device, head: 0, phase: true })
    }

    /// Number of 4 KiB frames of both queues.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    fn after(&self, place: u32) -> u32 {
        (place + 1) % self.entries
    }

    fn completion(&self, place: u32) -> PhysAddr {
        self.completions.addr() + u64::from(place) * NVME_COMPLETION_BYTES
    }

    /// Address of the next submission entry to write.
    pub fn submission(&self) -> PhysAddr {
        self.submissions.addr() + u64::from(self.tail) * LINE_BYTES
    }

    /// Writes the command to read a block into a frame.
    ///
    /// # Panics
    /// If the queue is full; there must be fewer misses at a time than entries.
    pub fn submit(&mut self, id: u16, lba: Lba, frame: Pfn, mem: &mut PhysMem) {
        let (at, next) = (self.submission(), self.after(self.tail));
        assert_ne!(next, self.read_to, "the submission queue is full");
        let word = |number: u64| at + number * 8;
        mem.write(word(0), READ | u64::from(id) << 16 | NAMESPACE << 32);
        mem.write(word(3), frame.addr().0);
        mem.write(word(5), lba.0 * NVME_UNITS);
        mem.write(word(6), NVME_UNITS - 1);
        self.tail = next;
    }

    /// Reads the next command, as the drive does.
    fn fetch(&mut self, mem: &PhysMem) {
        let base = self.submissions.addr().0 + u64::from(self.device.read_to) * LINE_BYTES;
        let word = |number: u64| mem.read(PhysAddr(base + number * 8));
        self.device.read_to = self.after(self.device.read_to);
        let written = DriveRead { lba: Lba(word(5) / NVME_UNITS), frame: PhysAddr(word(3)).pfn() };
        self.device.commands.push(((word(0) >> 16) as u16, written));
    }

    /// Reads all commands up to the doorbell and answers one of them, as the drive does, in any order. Returns what
    /// that command has read.
    pub fn answer(&mut self, Completion { id, failed }: Completion, mem: &mut PhysMem) -> DriveRead {
        while self.device.read_to != self.tail {
            self.fetch(mem);
        }
        let at = self.completion(self.device.tail);
        let status = if failed { FAILED << 17 } else { 0 };
        let phase = u64::from(self.device.phase) << 16;
        mem.write(at, 0);
        let last = u64::from(self.device.read_to) | (u64::from(id) | phase | status) << 32;
        mem.write(at + 8, last);
        self.device.tail = self.after(self.device.tail);
        self.device.phase ^= self.device.tail == 0;
        let at =
            self.device.commands.iter().position(|&(command, _)| command == id).expect("it answers what it has read");
        self.device.commands.swap_remove(at).1
    }

    /// Reads the next completion, if the drive has written one.
    pub fn reap(&mut self, mem: &PhysMem) -> Option<Completion> {
        let word = mem.read(self.completion(self.head) + 8);
        let high = word >> 32;
        if (high >> 16 & 1 != 0) != self.phase {
            return None;
        }
        self.read_to = word as u16 as u32 % self.entries;
        self.head = self.after(self.head);
        self.phase ^= self.head == 0;
        Some(Completion { id: high as u16, failed: high >> 17 != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(entries: u32) -> (QueuePair, PhysMem) {
        let mut mem = PhysMem::default();
        [50, 60].into_iter().for_each(|frame| mem.create(Pfn(frame)));
        let device = NvmeDevice { read_to: 0, tail: 0, phase: true, commands: Vec::new() };
        let (submissions, completions) = (Pfn(50), Pfn(60));
        let frames = 2;
        (
            QueuePair { submissions, completions, entries, frames, tail: 0, read_to: 0, device, head: 0, phase: true },
            mem,
        )
    }

    #[test]
    fn commands_are_those_of_nvme() {
        let (mut pair, mut mem) = pair(4);
        assert_eq!(pair.reap(&mem), None, "an empty ring has no completion");
        pair.submit(0x1234, Lba(5), Pfn(9), &mut mem);
        let word = |n: u64| mem.read(PhysAddr((50 << 12) + n * 8));
        // Opcode, number, namespace; PRP1; SLBA in units of 512 bytes; number of blocks minus one.
        assert_eq!([0, 3, 4, 5, 6].map(word), [0x0000_0001_1234_0002, 9 << 12, 0, 40, 7]);
        assert_eq!(
            pair.answer(Completion { id: 0x1234, failed: true }, &mut mem),
            DriveRead { lba: Lba(5), frame: Pfn(9) }
        );
        // Submissions read up to 1, of queue 0; number, phase 1, status "internal error".
        assert_eq!(mem.read(PhysAddr((60 << 12) + 8)), 1 | (0x1234 | 1 << 16 | 6 << 17) << 32);
        assert_eq!(pair.reap(&mem), Some(Completion { id: 0x1234, failed: true }));
        assert_eq!(pair.reap(&mem), None, "it is read once");
    }

    #[test]
    fn rings_go_round_with_answers_in_any_order() {
        let (mut pair, mut mem) = pair(3);
        let (mut next, mut expected) = (0_u16, Vec::new());
        for round in 0..1000_u64 {
            // One or two in progress, in a ring that holds two.
            for _ in 0..1 + round % 2 {
                pair.submit(next, Lba(round), Pfn(7), &mut mem);
                expected.push(next);
                next = next.wrapping_add(1);
            }
            if round % 4 == 1 {
                expected.reverse();
            }
            for &id in &expected {
                let failed = id % 5 == 0;
                assert_eq!(pair.answer(Completion { id, failed }, &mut mem).lba, Lba(round));
            }
            let reaped: Vec<_> = std::iter::from_fn(|| pair.reap(&mem)).collect();
            assert_eq!(reaped, expected.iter().map(|&id| Completion { id, failed: id % 5 == 0 }).collect::<Vec<_>>());
            expected.clear();
        }
    }

    #[test]
    #[should_panic(expected = "the submission queue is full")]
    fn an_entry_stays_free() {
        let (mut pair, mut mem) = pair(3);
        (0..3).for_each(|id| pair.submit(id, Lba(0), Pfn(7), &mut mem));
    }
}
