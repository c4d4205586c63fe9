//! A pass over the free blocks of a memory that reports them to a host, and which blocks have been reported (Linux 6.1
//! mm/page_reporting.c, `PageReported`).

use super::MigrateType;
use pagelab_base::addr::Pfn;

/// Progress of a pass, and its current request.
#[derive(Clone, Debug)]
pub struct ReportPass {
    /// Most blocks of a request.
    pub capacity: usize,
    /// First frames and orders of the isolated blocks.
    pub batch: Vec<(Pfn, u32)>,
    /// Whether there were more blocks than a pass may report of a list.
    pub goes_on: bool,
    /// Zones that were left out, as too little memory was free.
    pub short: u64,
    /// Number of the current zone, and whether the pass has begun there.
    pub(super) zone: usize,
    pub(super) in_zone: bool,
    /// The current list: order and type.
    pub(super) order: u32,
    pub(super) list: usize,
    /// Requests that may still be made for this list, less one; `None` before it is begun.
    pub(super) budget: Option<i64>,
}

impl ReportPass {
    /// A pass from the beginning, with requests of at most `capacity` blocks.
    pub fn new(capacity: usize) -> Self {
        let (goes_on, in_zone) = (false, false);
        Self { capacity, batch: Vec::new(), goes_on, short: 0, zone: 0, in_zone, order: 0, list: 0, budget: None }
    }

    /// Goes on to the next list of the zone.
    pub(super) fn next_list(&mut self) {
        self.list += 1;
        if self.list == MigrateType::COUNT {
            (self.list, self.order) = (0, self.order + 1);
        }
        self.budget = None;
    }

    /// Goes on to the next zone.
    pub(super) fn next_zone(&mut self) {
        (self.zone, self.in_zone) = (self.zone + 1, false);
        (self.order, self.list, self.budget) = (0, 0, None);
    }

    /// Whether a zone has enough memory for a full request: more free frames than `low` and the request's.
    pub(super) fn may_begin(&mut self, free: u64, low: u64, order: u32) -> bool {
        let enough = free > low + ((self.capacity as u64) << order);
        self.short += u64::from(!enough);
        self.in_zone = enough;
        enough
    }
}

/// Which free blocks have been reported, by their first frames, counted from the first of the memory.
#[derive(Clone, Debug)]
pub(super) struct Reported {
    /// The smallest order that is reported; above all orders if none is.
    pub(super) order: u32,
    /// By the frame's number >> `order`.
    blocks: Vec<bool>,
}

impl Reported {
    /// Nothing is reported.
    pub(super) const NEVER: Self = Self { order: u32::MAX, blocks: Vec::new() };

    /// Of a memory with this number of frames, none has been reported yet.
    pub(super) fn new(order: u32, frames: usize) -> Self {
        Self { order, blocks: vec![false; (frames >> order) + 1] }
    }

    /// Whether the block that begins there, of at least this order, has been reported.
    pub(super) fn contains(&self, first: u32) -> bool {
        self.blocks[(first >> self.order) as usize]
    }

    /// Notes whether the block has been reported.
    pub(super) fn set(&mut self, first: u32, reported: bool) {
        self.blocks[(first >> self.order) as usize] = reported;
    }

    /// The blocks that have been reported.
    pub(super) fn all(&self) -> impl Iterator<Item = u32> + '_ {
        let reported = self.blocks.iter().enumerate().filter(|(_, reported)| **reported);
        reported.map(|(at, _)| (at as u32) << self.order)
    }
}
