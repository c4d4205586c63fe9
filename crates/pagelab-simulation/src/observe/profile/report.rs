//! A profile as results hold it: the most expensive pages, regions and instructions, and the rest in one sum.

use std::sync::Arc;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::code::Code;
use super::pages::{Pages, Region, regions};
use super::samples::{FaultSample, Samples, WalkSample};
use super::stacks::{Stacks, StacksReport};
use super::{Area, Cost};

/// Rows at most of each table.
const MOST_ROWS: usize = 200;

/// Equal parts that a region's memory is shown in.
const PARTS: usize = 64;

/// An instruction, and what it cost.
#[derive(Clone, Debug, Serialize)]
pub struct CodeRow {
    /// The file that the instruction was mapped from; none if there is none, or the trace does not know it.
    pub file: Option<Arc<str>>,
    /// Bytes from the file's start, or the address if there is no file; 0 if the trace does not know it.
    pub offset: u64,
    /// What paging cost its accesses.
    #[serde(flatten)]
    pub cost: Cost,
}

/// A page or a region, and what it cost. Addresses in bytes, the end excluded.
#[derive(Clone, Debug, Serialize)]
pub struct MemoryRow {
    /// Index among the sources.
    pub source: u32,
    /// Index among the source's processes.
    pub process: u32,
    /// The first byte.
    pub start: u64,
    /// The byte behind the last.
    pub end: u64,
    /// What the memory belongs to.
    #[serde(flatten)]
    pub area: Area,
    /// Bytes of it that were translated or faulted in, in whole pages.
    pub touched_bytes: u64,
    /// What paging cost accesses to it.
    #[serde(flatten)]
    pub cost: Cost,
    /// Of regions: walks in equal parts of the region.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub walks_by_part: Vec<u64>,
}

/// The most expensive, and how many others there are with their sum.
#[derive(Clone, Debug, Serialize)]
pub struct Rows<T> {
    /// The most expensive first.
    pub rows: Vec<T>,
    /// How many are not among the rows.
    pub others: usize,
    /// What those cost together.
    pub others_cost: Cost,
}

/// How long those of a kind took, and some of them.
#[derive(Clone, Debug, Serialize)]
pub struct SamplesReport<T> {
    /// Cycles, to two digits, and how many took so many.
    pub latencies: Vec<(u64, u64)>,
    /// Some of them, each as likely to be here as any other.
    pub samples: Vec<T>,
    /// The one that took the most cycles; none if there was none.
    pub slowest: Option<T>,
}

/// See the module's text.
#[derive(Clone, Debug, Serialize)]
pub struct ProfileReport {
    /// Bytes that are told apart.
    pub granularity_bytes: u64,
    /// By instruction.
    pub code: Rows<CodeRow>,
    /// By page, or by larger parts of memory if there are many (`granularity_bytes`).
    pub pages: Rows<MemoryRow>,
    /// By neighbouring pages of one area.
    pub regions: Rows<MemoryRow>,
    /// By call stack, and by the call that allocated the memory; none if no source tells call stacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stacks: Option<StacksReport>,
    /// Walks that ended with a translation.
    pub walks: SamplesReport<WalkSample>,
    /// Page faults that accesses met, whether a kernel or a fault engine saw to them.
    pub faults: SamplesReport<FaultSample>,
}

impl ProfileReport {
    pub(super) fn new(
        code: Code,
        pages: Pages,
        stacks: Stacks,
        walks: Samples<WalkSample>,
        faults: Samples<FaultSample>,
    ) -> Self {
        let granularity_bytes = pages.granularity_bytes();
        let code = code.in_order();
        let code = Rows::new(code, |(_, cost)| *cost, |(at, cost)| CodeRow { file: at.file, offset: at.offset, cost });
        let pages = pages.in_order();
        let regions = in_order_of_cost(regions(&pages));
        let with_parts = |region: Region| {
            let walks_by_part = walks_by_part(&region, &pages);
            MemoryRow { walks_by_part, ..MemoryRow::from(region) }
        };
        let regions = Rows::new(regions, |of| of.cost, with_parts);
        let pages = Rows::new(in_order_of_cost(pages), |of| of.cost, MemoryRow::from);
        let stacks = stacks.report();
        Self { granularity_bytes, code, pages, regions, stacks, walks: walks.into(), faults: faults.into() }
    }
}

impl<T> Rows<T> {
    fn new<U>(all: Vec<U>, cost: impl Fn(&U) -> Cost, row: impl FnMut(U) -> T) -> Self {
        let mut others_cost = Cost::default();
        all.iter().skip(MOST_ROWS).for_each(|of| others_cost.add(&cost(of)));
        let others = all.len().saturating_sub(MOST_ROWS);
        Self { rows: all.into_iter().take(MOST_ROWS).map(row).collect(), others, others_cost }
    }
}

impl<T: Clone> From<Samples<T>> for SamplesReport<T> {
    fn from(samples: Samples<T>) -> Self {
        let counts = |latencies: &Histogram<u64>| {
            latencies.iter_recorded().map(|of| (of.value_iterated_to(), of.count_at_value())).collect()
        };
        let slowest = samples.slowest.map(|(_, sample)| sample);
        Self { latencies: counts(&samples.latencies), samples: samples.kept, slowest }
    }
}

impl From<Region> for MemoryRow {
    fn from(region: Region) -> Self {
        let Region { process, start, end, area, touched_bytes, cost } = region;
        let (source, process) = (process.source, process.process);
        Self { source, process, start, end, area, touched_bytes, cost, walks_by_part: Vec::new() }
    }
}

/// The most expensive first, others by process and address.
fn in_order_of_cost(mut regions: Vec<Region>) -> Vec<Region> {
    // They are in the order of addresses, and stay so.
    regions.sort_by_key(|of| std::cmp::Reverse(of.cost.cycles()));
    regions
}

/// Walks in equal parts of a region; `pages` are in order.
fn walks_by_part(region: &Region, pages: &[Region]) -> Vec<u64> {
    let mut parts = vec![0; PARTS];
    let first = pages.partition_point(|page| (page.process, page.start) < (region.process, region.start));
    let inside = |page: &&Region| page.process == region.process && page.start < region.end;
    for page in pages[first..].iter().take_while(inside) {
        let at = u128::from(page.start - region.start) * PARTS as u128 / u128::from(region.end - region.start);
        parts[at as usize] += page.cost.walks;
    }
    parts
}
