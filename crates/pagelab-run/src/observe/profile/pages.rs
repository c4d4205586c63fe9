//! Paging costs by page of the programs' memory.

use rustc_hash::FxHashMap;

use super::{Area, Cost, ProcessId};
use pagelab_base::addr::{FRAME_SHIFT, VirtAddr};

/// Most entries. If there would be more, neighbouring entries are merged in pairs.
pub(super) const MOST_PAGES: usize = 1 << 20;

/// Pages of one area that are at most this many bytes apart belong to one region.
const GAP_BYTES: u64 = 4 << 20;

/// A page, or several pages that share an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Page {
    area: u32,
    cost: Cost,
}

/// Costs by page, see the module's text.
#[derive(Clone, Debug)]
pub(super) struct Pages {
    areas: Vec<Area>,
    /// By process and number of the entry's piece of memory.
    pages: FxHashMap<(ProcessId, u64), Page>,
    /// Binary logarithm of the bytes per entry.
    shift: u32,
    most: usize,
}

impl Default for Pages {
    fn default() -> Self {
        Self { areas: Vec::new(), pages: FxHashMap::default(), shift: FRAME_SHIFT, most: MOST_PAGES }
    }
}

/// A contiguous part of a process's memory, within one area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub process: ProcessId,
    pub start: u64,
    /// Exclusive.
    pub end: u64,
    pub area: Area,
    /// Bytes of the entries with a cost.
    pub touched_bytes: u64,
    pub cost: Cost,
}

impl Pages {
    pub fn count(&mut self, process: ProcessId, va: VirtAddr, area: &Area, cost: &Cost) {
        let key = (process, va.0 >> self.shift);
        if let Some(page) = self.pages.get_mut(&key) {
            page.cost.add(cost);
            return;
        }
        let known = self.areas.iter().position(|known| known == area);
        let area = known.unwrap_or_else(|| {
            self.areas.push(area.clone());
            self.areas.len() - 1
        }) as u32;
        self.pages.insert(key, Page { area, cost: *cost });
        while self.pages.len() > self.most {
            self.coarsen();
        }
    }

    /// Merges entries in pairs of neighbours; a pair gets the area of its first entry.
    fn coarsen(&mut self) {
        let sorted = std::mem::take(self).sorted_into(self);
        self.shift += 1;
        for ((process, number), page) in sorted {
            let entry = self.pages.entry((process, number >> 1));
            entry.and_modify(|merged| merged.cost.add(&page.cost)).or_insert(page);
        }
    }

    /// Moves everything except the pages to another; returns the pages in order.
    fn sorted_into(self, other: &mut Self) -> Vec<((ProcessId, u64), Page)> {
        let Self { areas, pages, shift, most } = self;
        *other = Self { areas, pages: FxHashMap::default(), shift, most };
        let mut sorted: Vec<_> = pages.into_iter().collect();
        sorted.sort_unstable_by_key(|&(key, _)| key);
        sorted
    }

    /// Bytes per entry.
    pub fn granularity_bytes(&self) -> u64 {
        1 << self.shift
    }

    /// One region per entry, in order of process and address.
    pub fn in_order(self) -> Vec<Region> {
        let mut rest = Self::default();
        let sorted = self.sorted_into(&mut rest);
        let bytes = rest.granularity_bytes();
        let region = |((process, number), page): ((ProcessId, u64), Page)| {
            let (start, area) = (number * bytes, rest.areas[page.area as usize].clone());
            Region { process, start, end: start + bytes, area, touched_bytes: bytes, cost: page.cost }
        };
        sorted.into_iter().map(region).collect()
    }
}

/// Joins neighbouring regions of one area.
pub(super) fn regions(pages: &[Region]) -> Vec<Region> {
    let mut regions: Vec<Region> = Vec::new();
    for page in pages {
        match regions.last_mut() {
            Some(last)
                if last.process == page.process && last.area == page.area && page.start <= last.end + GAP_BYTES =>
            {
                last.end = page.end;
                last.touched_bytes += page.touched_bytes;
                last.cost.add(&page.cost);
            }
            _ => regions.push(page.clone()),
        }
    }
    regions
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: ProcessId = ProcessId { source: 0, process: 1 };

    fn area(kind: &'static str) -> Area {
        Area { kind, file: None }
    }

    fn cost(walks: u64) -> Cost {
        Cost { walks, translation_cycles: 10 * walks, ..Cost::default() }
    }

    #[test]
    fn pages_beyond_the_capacity_are_counted_with_a_neighbour() {
        let mut pages = Pages { most: 8, ..Pages::default() };
        // Backwards, so that the order of arrival does not help.
        for page in (0..32_u64).rev() {
            pages.count(PROCESS, VirtAddr::from_page_number(page), &area("heap"), &cost(page));
        }
        assert_eq!(pages.granularity_bytes(), 16 << 10);
        let entries = pages.in_order();
        assert_eq!(entries.len(), 8);
        for (n, entry) in entries.iter().enumerate() {
            assert_eq!((entry.start, entry.end), (n as u64 * 0x4000, (n as u64 + 1) * 0x4000));
            assert_eq!(entry.cost, cost((0..4).map(|offset| n as u64 * 4 + offset).sum()));
        }
    }

    #[test]
    fn regions_end_at_gaps_areas_and_processes() {
        let mut pages = Pages::default();
        let mib = 1 << 20;
        for (va, kind) in [(0, "heap"), (4 * mib, "heap"), (20 * mib, "heap"), (20 * mib + 4096, "stack")] {
            pages.count(PROCESS, VirtAddr(va), &area(kind), &cost(1));
        }
        pages.count(ProcessId { source: 0, process: 2 }, VirtAddr(20 * mib + 8192), &area("stack"), &cost(1));
        let found = regions(&pages.in_order());
        let bounds: Vec<_> = found.iter().map(|region| (region.start, region.end, region.touched_bytes)).collect();
        let page = 4096;
        assert_eq!(
            bounds,
            [
                (0, 4 * mib + page, 2 * page),
                (20 * mib, 20 * mib + page, page),
                (20 * mib + page, 20 * mib + 2 * page, page),
                (20 * mib + 2 * page, 20 * mib + 3 * page, page),
            ]
        );
    }
}
