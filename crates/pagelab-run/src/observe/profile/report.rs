//! A profile as in results: the most expensive pages, regions and instructions, and the sum of all others.

use std::sync::Arc;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::code::Code;
use super::pages::{Pages, Region, regions};
use super::samples::{FaultSample, Samples, WalkSample};
use super::stacks::{Stacks, StacksReport};
use super::{Area, Cost};

/// Most rows of a table.
const MOST_ROWS: usize = 200;

/// Number of equal parts in which a region's walks are shown.
const PARTS: usize = 64;

/// An instruction and its cost.
#[derive(Clone, Debug, Serialize)]
pub struct CodeRow {
    /// The file that the instruction was mapped from; `None` if there is none, or if the trace does not know it.
    pub file: Option<Arc<str>>,
    /// Bytes from the start of the file, or the address if there is no file; 0 if the trace does not know it.
    pub offset: u64,
    /// Paging costs of its accesses.
    #[serde(flatten)]
    pub cost: Cost,
}

/// A page or a region, and its cost. Addresses are in bytes; the end is exclusive.
#[derive(Clone, Debug, Serialize)]
pub struct MemoryRow {
    /// Index among the sources.
    pub source: u32,
    /// Index among the source's processes.
    pub process: u32,
    /// First byte.
    pub start: u64,
    /// Byte after the last.
    pub end: u64,
    /// The kind of memory.
    #[serde(flatten)]
    pub area: Area,
    /// Bytes that were translated or faulted in, in whole pages.
    pub touched_bytes: u64,
    /// Paging costs of accesses to it.
    #[serde(flatten)]
    pub cost: Cost,
    /// For regions: walks in equal parts of the region.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub walks_by_part: Vec<u64>,
}

/// The most expensive rows; number and sum of the others.
#[derive(Clone, Debug, Serialize)]
pub struct Rows<T> {
    /// Most expensive first.
    pub rows: Vec<T>,
    /// Number of the others.
    pub others: usize,
    /// Sum of their costs.
    pub others_cost: Cost,
}

/// Latencies of walks or faults, and samples of them.
#[derive(Clone, Debug, Serialize)]
pub struct SamplesReport<T> {
    /// Cycles, to two digits, with the number of walks or faults that took that long.
    pub latencies: Vec<(u64, u64)>,
    /// A uniform random sample.
    pub samples: Vec<T>,
    /// The one with the most cycles; `None` if there was none.
    pub slowest: Option<T>,
}

/// A profile's report, see the module's text.
#[derive(Clone, Debug, Serialize)]
pub struct ProfileReport {
    /// Resolution of addresses in bytes.
    pub granularity_bytes: u64,
    /// Costs by instruction.
    pub code: Rows<CodeRow>,
    /// Costs by page, or by larger units if there are many pages (`granularity_bytes`).
    pub pages: Rows<MemoryRow>,
    /// Costs by region: neighbouring pages of one area.
    pub regions: Rows<MemoryRow>,
    /// Costs by call stack, and by the call that allocated the memory; `None` if no source has call stacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stacks: Option<StacksReport>,
    /// Completed walks.
    pub walks: SamplesReport<WalkSample>,
    /// Page faults of accesses, whether a kernel or a fault engine handled them.
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
        let regions = Rows::new(regions, |region| region.cost, with_parts);
        let pages = Rows::new(in_order_of_cost(pages), |page| page.cost, MemoryRow::from);
        let stacks = stacks.report();
        Self { granularity_bytes, code, pages, regions, stacks, walks: walks.into(), faults: faults.into() }
    }
}

impl<T> Rows<T> {
    fn new<U>(all: Vec<U>, cost: impl Fn(&U) -> Cost, row: impl FnMut(U) -> T) -> Self {
        let mut others_cost = Cost::default();
        all.iter().skip(MOST_ROWS).for_each(|other| others_cost.add(&cost(other)));
        let others = all.len().saturating_sub(MOST_ROWS);
        Self { rows: all.into_iter().take(MOST_ROWS).map(row).collect(), others, others_cost }
    }
}

impl<T: Clone> From<Samples<T>> for SamplesReport<T> {
    fn from(samples: Samples<T>) -> Self {
        let counts = |latencies: &Histogram<u64>| {
            latencies.iter_recorded().map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value())).collect()
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

/// Most expensive first; ties by process and address.
fn in_order_of_cost(mut regions: Vec<Region>) -> Vec<Region> {
    // They are sorted by address, and the sort is stable.
    regions.sort_by_key(|region| std::cmp::Reverse(region.cost.cycles()));
    regions
}

/// Walks in equal parts of a region; `pages` are sorted.
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
