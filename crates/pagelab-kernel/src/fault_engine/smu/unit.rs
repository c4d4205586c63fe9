//! The unit of a socket, for the drives that are attached there.
//!
//! Source: as in [`super`]. One unit per socket, with a queue pair per drive, follows from the fields of an entry
//! (socket, device, block).

use std::collections::{BTreeMap, VecDeque};

use crate::fault_engine::kernel_side::SupplyOutcome;
use crate::fault_engine::smu::free_pages::FreePages;
use crate::fault_engine::smu::parameters::Parameters;
use crate::fault_engine::smu::queue_pair::QueuePair;
use crate::frames::frame_alloc::FramePurpose;
use crate::memory::Memory;
use pagelab_base::addr::{PageSize, Pfn};
use pagelab_base::ids::{CpuId, LayerId};
use pagelab_base::memory::PhysMem;
use pagelab_base::step::BlockKey;

/// The unit, see the module's text.
#[derive(Clone, Debug)]
pub struct Unit {
    /// The queue of free pages from which misses take their frames.
    pub free: FreePages,
    /// Queue pairs, by the number of the drive on the socket.
    pub pairs: Vec<QueuePair>,
    /// Completions that have been read but not yet handled by their misses: whether they failed.
    answered: BTreeMap<u16, bool>,
    /// Free entries of the PMSHR; their numbers are also those of the commands.
    idle: Vec<u16>,
    /// Misses that wait for an entry of the PMSHR, by ticket: first come, first served.
    waiting: VecDeque<u64>,
    /// Ticket of the next miss that waits.
    next_ticket: u64,
    /// Frames that misses have taken and not mapped yet.
    pub in_hand: u32,
    /// Free pages that faults still have to prepare.
    pub lacking: u32,
    /// Pages that it has read and mapped.
    pub mapped: u64,
}

impl Unit {
    /// The unit of a socket with this number of drives; `None` if there is no memory for it.
    pub fn boot(parameters: &Parameters, drives: u32, memory: &mut Memory) -> Option<Self> {
        Some(Self {
            free: FreePages::boot(parameters.free_pages, parameters.prefetch, memory)?,
            pairs: (0..drives).map(|_| QueuePair::boot(parameters.nvme_entries, memory)).collect::<Option<_>>()?,
            answered: BTreeMap::new(),
            idle: (0..parameters.pmshr as u16).rev().collect(),
            waiting: VecDeque::new(),
            next_ticket: 0,
            in_hand: 0,
            lacking: 0,
            mapped: 0,
        })
    }

    /// The key to wait for if there is no free entry of the PMSHR.
    pub fn idle_key(layer: LayerId, unit: u32) -> BlockKey {
        BlockKey::Engine { layer, table: (CpuId(unit), PageSize::Size4K) }
    }

    /// Takes an entry of the PMSHR. If none is free or others have waited longer, the miss gets a ticket, with which it
    /// asks again.
    pub fn begin_miss(&mut self, ticket: &mut Option<u64>) -> Option<u16> {
        let is_first = self.waiting.front().is_none_or(|&first| *ticket == Some(first));
        if is_first && let Some(id) = self.idle.pop() {
            self.leave(ticket);
            return Some(id);
        }
        if ticket.is_none() {
            *ticket = Some(self.next_ticket);
            self.waiting.push_back(self.next_ticket);
            self.next_ticket += 1;
        }
        None
    }

    /// Takes a miss that has a ticket out of the queue.
    pub fn leave(&mut self, ticket: &mut Option<u64>) {
        if let Some(ticket) = ticket.take() {
            self.waiting.retain(|&waiting| waiting != ticket);
        }
    }

    /// Whether a miss that waits could take an entry of the PMSHR.
    pub fn serves_next(&self) -> bool {
        !self.idle.is_empty() && !self.waiting.is_empty()
    }

    /// Frees an entry of the PMSHR.
    pub fn end_miss(&mut self, id: u16) {
        self.idle.push(id);
    }

    /// Reads the completions that a drive has written. Returns whether the request of a miss, which must be among them,
    /// has failed.
    pub fn complete(&mut self, drive: usize, id: u16, contents: &PhysMem) -> bool {
        while let Some(completion) = self.pairs[drive].reap(contents) {
            self.answered.insert(completion.id, completion.failed);
        }
        self.answered.remove(&id).expect("the drive has answered")
    }

    /// Adds a free page to the queue, if there is room and memory is not short.
    pub fn supply(&mut self, memory: &mut Memory) -> SupplyOutcome {
        if self.free.is_full() {
            return SupplyOutcome::Enough;
        }
        let left = memory.view().free_frames().saturating_sub(1);
        let short = memory.reclaim.as_ref().is_some_and(|reclaim| left < reclaim.marks.low);
        let frame = if short { None } else { memory.take(0, FramePurpose::PageCache) };
        let Some(frame) = frame else { return SupplyOutcome::NoMemory };
        self.free.put(frame, &mut memory.contents);
        SupplyOutcome::One
    }

    /// Returns a frame that a miss has taken to the queue. If the queue has become full meanwhile, returns it to the
    /// caller.
    #[must_use]
    pub fn put_back(&mut self, frame: Pfn, contents: &mut PhysMem) -> Option<Pfn> {
        self.in_hand -= 1;
        if self.free.is_full() {
            return Some(frame);
        }
        self.free.put(frame, contents);
        None
    }

    /// Free pages in the queue, and frames that misses have taken and not mapped yet.
    pub fn held_frames(&self) -> u64 {
        u64::from(self.free.count() + self.in_hand)
    }

    /// Number of 4 KiB frames of the unit's rings.
    pub fn table_frames(&self) -> u64 {
        self.free.frames() + self.pairs.iter().map(QueuePair::frames).sum::<u64>()
    }
}
