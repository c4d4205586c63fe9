//! Recency prefetch of translations: the pages that left the TLB before and after the one that missed.
//!
//! Models: the pages that the last TLB has evicted form a stack, the last one on top. Each has two pointers in memory,
//! to the page above it and to the one below. A miss takes its page out of the stack, and proposes the page that was
//! above it and then the one below: pages that were last used together may be used together again. The pointers are
//! lines of memory, which go through the data caches: pushing a page writes those of the page and of the old top, and
//! taking one out writes those of its neighbours; see [`prefetcher`](super::prefetcher).
//! Source: Saulsbury, Dahlgren, Stenström, "Recency-Based TLB Preloading", ISCA 2000 (notes on it).
//! Parameters: `machine.prefetch.tlb.recency`: `entries` (16), `pages` (1048576), `free` (off).
//! Stats: `prefetch.tlb.recency.*`; references to pointers are in `prefetch.tlb.recency.memory.*`.
//! Deviations: the authors put the pointers in page-table entries. Here they have memory of their own, 16 bytes per
//! page in the order of the pages, so that page tables keep their size and every page table can have this prefetcher.
//! The page's own pointers come with its entry, so no look-up waits for them. There are pointers for every page, but
//! beyond `pages`, several pages share the lines, and so the traffic.
//! Choices: every core has a stack of its own. A page that is unmapped, or whose space ends, leaves the stack, and the
//! kernel that does so changes the pointers at no cost. A page that a fetch or a kernel has brought back is in the TLB
//! and in the stack, and moves to the top when it is evicted again.

use arrayvec::ArrayVec;
use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::entry::{Entry, VA_MASK};
use super::free_ptes::FreeConfig;
use super::prefetcher::{BufferConfig, DataMiss, MOST_WRITTEN, Prefetching, Proposals, TlbPrefetcher};
use pagelab_base::addr::{FRAME_SHIFT, LINE_BYTES, LineAddr, PageSize, VirtAddr};
use pagelab_base::error::{EngineError, between};
use pagelab_base::measure::Measure;
use pagelab_base::switched::Switched;
use pagelab_tables::mmu_cache::Asid;

/// Bytes of the pointers of a page: two of 8 bytes.
const POINTERS_BYTES: u64 = 16;
/// Pages whose pointers share a line.
const PAGES_PER_LINE: u64 = LINE_BYTES / POINTERS_BYTES;

/// Parameters of recency prefetch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RecencyConfig {
    /// Translations in the buffer of a core, 0 to 65536; with 0 there are no prefetches.
    pub entries: u32,
    /// Pages whose pointers have memory of their own, 16 bytes each, 4 to 2^32 - 1; further pages share it.
    pub pages: u32,
    /// Whether translations beside those of walks are taken, too (SBFP).
    #[serde(skip_serializing_if = "Switched::is_off")]
    pub free: Switched<FreeConfig>,
}

impl Default for RecencyConfig {
    fn default() -> Self {
        Self { entries: 16, pages: 1 << 20, free: Switched::Off }
    }
}

/// A page of a space, by its first byte.
type Page = (Asid, u64);

/// The pointers of a page in the stack.
#[derive(Clone, Copy, Debug, Default)]
struct Pointers {
    above: Option<Page>,
    below: Option<Page>,
    /// From the page's first byte to its last one.
    offset_mask: u64,
}

/// The unit.
pub type Recency = Prefetching<RecencyStack>;

/// The prefetcher. Unlike hardware it finds pointers by a hash of the page, and as many as there are pages.
#[derive(Clone, Debug)]
pub struct RecencyStack {
    pages: FxHashMap<Page, Pointers>,
    top: Option<Page>,
    first: LineAddr,
    lines: u64,
    written: ArrayVec<LineAddr, MOST_WRITTEN>,
}

impl RecencyStack {
    /// Notes that the pointers of a page change, and returns them.
    fn change(&mut self, page: Page) -> &mut Pointers {
        // An odd multiple of the tag puts spaces apart.
        let number = (page.1 >> FRAME_SHIFT) / PAGES_PER_LINE;
        let line = number.wrapping_add(u64::from(page.0.0).wrapping_mul(0x9e37_79b9)) % self.lines;
        let line = LineAddr(self.first.0 + line);
        if !self.written.contains(&line) {
            self.written.push(line);
        }
        self.pages.entry(page).or_default()
    }

    /// Takes a page out of the stack, if it is there, and joins its neighbours.
    fn take(&mut self, page: Page) -> Option<Pointers> {
        let taken = self.pages.remove(&page)?;
        if let Some(above) = taken.above {
            self.change(above).below = taken.below;
        } else {
            self.top = taken.below;
        }
        if let Some(below) = taken.below {
            self.change(below).above = taken.above;
        }
        Some(taken)
    }

    fn push(&mut self, page: Page, offset_mask: u64) {
        let below = self.top;
        if let Some(below) = below {
            self.change(below).above = Some(page);
        }
        *self.change(page) = Pointers { above: None, below, offset_mask };
        self.top = Some(page);
    }

    /// Takes out the pages that are condemned, at no cost.
    fn drop_pages(&mut self, is_condemned: impl Fn(Page, &Pointers) -> bool) {
        let condemned = self.pages.iter().filter(|&(&page, pointers)| is_condemned(page, pointers));
        let condemned: Vec<Page> = condemned.map(|(&page, _)| page).collect();
        condemned.into_iter().for_each(|page| self.drop_page(page));
    }

    fn drop_page(&mut self, page: Page) {
        self.take(page);
        self.written.clear();
    }
}

impl TlbPrefetcher for RecencyStack {
    type Parameters = RecencyConfig;

    const STATISTICS: &'static str = "prefetch.tlb.recency";
    const IS_IN_MEMORY: bool = true;

    fn new(parameters: &RecencyConfig, key: &str) -> Result<(Self, BufferConfig), EngineError> {
        let &RecencyConfig { entries, pages, free } = parameters;
        between(&format!("{key}.pages"), pages, PAGES_PER_LINE as u32, u32::MAX)?;
        let lines = u64::from(pages).div_ceil(PAGES_PER_LINE);
        let (first, written) = (LineAddr(0), ArrayVec::new());
        Ok((Self { pages: FxHashMap::default(), top: None, first, lines, written }, BufferConfig { entries, free }))
    }

    fn samples() -> Vec<RecencyConfig> {
        [(1, 4), (8, 1 << 12)].map(|(entries, pages)| RecencyConfig { entries, pages, free: Switched::Off }).into()
    }

    /// The page on top of the stack, and the tag of its space.
    fn storage_bits(&self) -> u64 {
        45 + 12
    }

    fn memory_bytes(&self) -> u64 {
        self.lines * LINE_BYTES
    }

    fn put_at(&mut self, first: LineAddr) {
        self.first = first;
    }

    fn on_miss(&mut self, miss: &DataMiss, proposals: &mut Proposals) {
        let missed = miss.page & VA_MASK;
        let Some(taken) = self.take((miss.asid, missed)) else { return };
        for (asid, page) in [taken.above, taken.below].into_iter().flatten() {
            if asid == miss.asid {
                proposals.propose(page.wrapping_sub(missed) as i64);
            }
        }
    }

    fn on_eviction(&mut self, entry: &Entry) {
        let page = (entry.asid, entry.first());
        self.take(page);
        self.push(page, entry.translation.size().offset_mask());
    }

    fn take_written(&mut self) -> ArrayVec<LineAddr, MOST_WRITTEN> {
        self.written.take()
    }

    fn invalidate(&mut self, asid: Asid, start: VirtAddr, end: VirtAddr) {
        let (start, last) = (start.0 & VA_MASK, end.0.wrapping_sub(1) & VA_MASK);
        let (first, pages) = (start >> FRAME_SHIFT, (last >> FRAME_SHIFT).saturating_sub(start >> FRAME_SHIFT) + 1);
        if pages > self.pages.len() as u64 {
            return self.drop_pages(|(space, page), pointers| {
                space == asid && page <= last && page + pointers.offset_mask >= start
            });
        }
        (first..first + pages).for_each(|page| self.drop_page((asid, page << FRAME_SHIFT)));
        for size in [PageSize::Size2M, PageSize::Size1G] {
            let page = (asid, start & !size.offset_mask());
            if self.pages.get(&page).is_some_and(|pointers| page.1 + pointers.offset_mask >= start) {
                self.drop_page(page);
            }
        }
    }

    fn flush(&mut self, asid: Asid) {
        self.drop_pages(|(space, _), _| space == asid);
    }

    fn measures(&self) -> Vec<Measure> {
        vec![Measure::state("stacked", self.pages.len() as u64, "count", "Pages in the stacks of all cores")]
    }
}

#[cfg(test)]
mod tests {
    use super::super::lines::LineLog;
    use super::super::{FillSource, TranslationUnit, UnitLookUp};
    use super::*;
    use pagelab_base::addr::MachineAddr;
    use pagelab_base::cycles::Cycles;
    use pagelab_base::page_fault::{Intent, Origin};
    use pagelab_base::rng::Rng;
    use pagelab_base::translation::Translation;

    /// The lines of pages are 1000 + page / 4 in space 0.
    fn unit(entries: u32) -> Recency {
        let config = RecencyConfig { entries, ..RecencyConfig::default() };
        let mut unit = Recency::new(&config, "recency", &Rng::new(1, "recency")).unwrap();
        unit.put_at(LineAddr(1000));
        unit
    }

    fn evict(unit: &mut Recency, asid: u16, page: u64, size: PageSize, lines: &mut LineLog) {
        let translation = Translation::new(MachineAddr(0), size, true, true);
        let entry = Entry { asid: Asid(asid), va: VirtAddr(page << 12 | 8), translation };
        unit.fill(&entry, FillSource::Eviction, lines);
    }

    /// The pages that are proposed after a miss.
    fn miss(unit: &mut Recency, asid: u16, page: u64, size: PageSize, lines: &mut LineLog) -> Vec<u64> {
        let (va, origin, now) = (VirtAddr(page << 12 | 16), Origin::Program, Cycles::ZERO);
        let look_up = UnitLookUp { asid: Asid(asid), va, pc: 0, intent: Intent::Load, origin, now };
        let found = Translation::new(MachineAddr(0), size, true, true);
        unit.next_walks(&look_up, found, lines).iter().map(|va| va.0 >> 12).collect()
    }

    #[test]
    fn neighbours_in_the_stack_are_proposed_and_joined() {
        let (mut unit, mut log) = (unit(4), LineLog::default());
        for page in [100, 200, 300, 400, 500] {
            evict(&mut unit, 0, page, PageSize::Size4K, &mut log);
        }
        let line = |page: u64| 1000 + page / 4;
        assert_eq!(log.written, [100, 100, 200, 200, 300, 300, 400, 400, 500].map(line));
        let mut missed = |page| {
            log.written.clear();
            (miss(&mut unit, 0, page, PageSize::Size4K, &mut log), log.written.clone())
        };
        assert_eq!(missed(300), (vec![400, 200], vec![line(400), line(200)]), "the page above it is first");
        assert_eq!(missed(300), (vec![], vec![]), "it has left the stack");
        assert_eq!(missed(400), (vec![500, 200], vec![line(500), line(200)]), "it took the place of 300");
        assert_eq!(missed(500), (vec![200], vec![line(200)]), "it was on top");
        assert_eq!(missed(600), (vec![], vec![]), "it was never evicted");
        assert_eq!(missed(100), (vec![200], vec![line(200)]), "it was at the bottom");
        assert_eq!(missed(200), (vec![], vec![]), "it was alone");
        assert!(log.read.is_empty());
    }

    #[test]
    fn an_evicted_page_comes_to_the_top_again() {
        let (mut unit, mut log) = (unit(4), LineLog::default());
        for page in [100, 200, 300, 100] {
            evict(&mut unit, 0, page, PageSize::Size4K, &mut log);
        }
        assert_eq!(miss(&mut unit, 0, 300, PageSize::Size4K, &mut log), [100, 200]);
    }

    #[test]
    fn pages_of_other_spaces_are_neighbours_that_are_not_proposed() {
        let (mut unit, mut log) = (unit(4), LineLog::default());
        for (asid, page) in [(1, 100), (2, 200), (1, 300), (1, 400)] {
            evict(&mut unit, asid, page, PageSize::Size4K, &mut log);
        }
        assert_eq!(miss(&mut unit, 2, 300, PageSize::Size4K, &mut log), [0; 0]);
        assert_eq!(miss(&mut unit, 1, 300, PageSize::Size4K, &mut log), [400]);
        assert_eq!(miss(&mut unit, 1, 100, PageSize::Size4K, &mut log), [0; 0]);
    }

    #[test]
    fn unmapped_pages_leave_the_stack() {
        let huge = 1 << 9;
        let stacked = |drop: &dyn Fn(&mut Recency)| {
            let (mut unit, mut log) = (unit(4), LineLog::default());
            for (asid, page, size) in [
                (1, 10, PageSize::Size4K),
                (1, huge, PageSize::Size2M),
                (2, 10, PageSize::Size4K),
                (1, 3 * huge, PageSize::Size2M),
                (1, 11, PageSize::Size4K),
            ] {
                evict(&mut unit, asid, page, size, &mut log);
            }
            let before = log.written.len();
            drop(&mut unit);
            assert_eq!(log.written.len(), before);
            let mut left: Vec<_> = unit.prefetcher().pages.keys().map(|&(asid, page)| (asid.0, page >> 12)).collect();
            left.sort_unstable();
            // The pointers lead through all of them, from the top to the bottom.
            let (mut below, mut count, mut above) = (unit.prefetcher().top, 0, None);
            while let Some(page) = below {
                let pointers = unit.prefetcher().pages[&page];
                assert_eq!(pointers.above, above);
                (above, below, count) = (Some(page), pointers.below, count + 1);
            }
            assert_eq!(count, left.len());
            left
        };
        let range = |asid, start: u64, end: u64| {
            stacked(&move |unit: &mut Recency| {
                unit.invalidate(Asid(asid), VirtAddr(start << 12), VirtAddr(end << 12), &mut LineLog::default());
            })
        };
        let all = [(1, 10), (1, 11), (1, huge), (1, 3 * huge), (2, 10)];
        let without = |gone: &[usize]| {
            let kept = all.iter().enumerate().filter(|(n, _)| !gone.contains(n));
            kept.map(|(_, page)| *page).collect::<Vec<_>>()
        };
        assert_eq!(range(1, 10, 11), without(&[0]));
        assert_eq!(range(2, 10, 11), without(&[4]));
        assert_eq!(range(1, 10, 12), without(&[0, 1]));
        assert_eq!(range(1, 12, huge), without(&[]));
        // A part of a large page, by single pages and by all pages of the stack.
        assert_eq!(range(1, huge + 7, huge + 8), without(&[2]));
        assert_eq!(range(1, huge + 7, 4 * huge), without(&[2, 3]));
        assert_eq!(range(1, 2 * huge, 3 * huge + 1), without(&[3]));
        assert_eq!(range(1, 4 * huge, 5 * huge), without(&[]));
        assert_eq!(range(1, 0, 1 << 40), without(&[0, 1, 2, 3]));
        assert_eq!(stacked(&|unit| unit.flush(Asid(1))), without(&[0, 1, 2, 3]));
    }

    #[test]
    fn without_a_buffer_nothing_is_stacked() {
        let (mut unit, mut log) = (unit(0), LineLog::default());
        evict(&mut unit, 0, 100, PageSize::Size4K, &mut log);
        evict(&mut unit, 0, 200, PageSize::Size4K, &mut log);
        assert_eq!(miss(&mut unit, 0, 100, PageSize::Size4K, &mut log), [0; 0]);
        assert!(log.written.is_empty());
        assert_eq!(unit.prefetcher().pages.len(), 0);
    }
}
