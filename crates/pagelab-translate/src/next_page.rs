//! Next-page prefetch of translations.
//!
//! Models: after a miss of both levels of the data TLB, a walk for the page behind, into a buffer beside the TLBs. What
//! misses the TLBs and is there needs no walk: it goes into the TLBs, and sets the next walk off. One that is still
//! under way is waited for. The walk's references go through MMU caches and data caches. It never faults: a page
//! without a translation, or one that has never been accessed, is dropped. The oldest entry makes room. What leaves the
//! TLBs leaves the buffer.
//! Source: Kandiraju and Sivasubramaniam, "Going the Distance for TLB Prefetching", ISCA 2002: sequential prefetch into
//! a buffer of 16 entries.
//! Parameters: `machine.prefetch.tlb.next_page`: `entries` (16).
//! Stats: `prefetch.tlb.*`. None of its walks is in `walk.*`, none of its references in `cache.refs.walk`.
//! Deviations: it has a page walker of its own. The page behind has the size of the one that missed. Layers with shadow
//! tables, direct segments or a speculative table refuse it.

use std::collections::VecDeque;

use crate::config::NextPageConfig;
use pagelab_base::addr::VirtAddr;
use pagelab_base::cycles::Cycles;
use pagelab_base::translation::Translation;
use pagelab_tables::mmu_cache::Asid;

/// What became of translations that nobody had asked for. `entered` is the sum of `useful`, `late`, `useless` and
/// `unused`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NextPageCounts {
    /// Walks.
    pub walks: u64,
    /// Cycles of them; nobody waits for them.
    pub cycles: Cycles,
    /// Their references, by where the lines were.
    pub refs: [u64; 5],
    /// Walks that found nothing to enter.
    pub unmapped: u64,
    /// Translations that they entered.
    pub entered: u64,
    /// Translations that were there when they were asked for.
    pub useful: u64,
    /// Translations that were still under way then.
    pub late: u64,
    /// Cycles that whoever asked waited for those.
    pub late_cycles: Cycles,
    /// Translations that left before anyone asked for them, or that did not allow the store that did.
    pub useless: u64,
    /// Translations that are there.
    pub unused: u64,
}

/// A translation that nobody has asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct PrefetchedTranslation {
    pub asid: Asid,
    /// First address of its page.
    pub first: VirtAddr,
    pub translation: Translation,
    pub arrives: Cycles,
}

impl PrefetchedTranslation {
    fn is_of(&self, asid: Asid, va: VirtAddr) -> bool {
        self.asid == asid && va.0 & !self.translation.size().offset_mask() == self.first.0
    }
}

/// The buffer of a core; see the module's text.
#[derive(Clone, Debug)]
pub struct NextPage {
    size: usize,
    /// The oldest first.
    entries: VecDeque<PrefetchedTranslation>,
    counts: NextPageCounts,
}

impl NextPage {
    /// With an empty buffer.
    pub fn new(config: &NextPageConfig) -> Self {
        let size = config.entries as usize;
        Self { size, entries: VecDeque::with_capacity(size + 1), counts: NextPageCounts::default() }
    }

    /// What has been counted so far.
    pub fn counts(&self) -> NextPageCounts {
        NextPageCounts { unused: self.entries.len() as u64, ..self.counts }
    }

    /// Whether there is a translation of an address.
    pub fn holds(&self, asid: Asid, va: VirtAddr) -> bool {
        self.entries.iter().any(|entry| entry.is_of(asid, va))
    }

    /// Counts a walk.
    pub(super) fn note_walk(&mut self, cycles: Cycles, refs: [u64; 5], is_mapped: bool) {
        self.counts.walks += 1;
        self.counts.cycles += cycles;
        self.counts.refs.iter_mut().zip(refs).for_each(|(sum, more)| *sum += more);
        self.counts.unmapped += u64::from(!is_mapped);
    }

    /// The translation of an address, taken out, and how long it is still to come.
    pub(super) fn take(&mut self, asid: Asid, va: VirtAddr, store: bool, now: Cycles) -> Option<(Translation, Cycles)> {
        let at = self.entries.iter().position(|entry| entry.is_of(asid, va))?;
        let PrefetchedTranslation { translation, arrives, .. } = self.entries.remove(at)?;
        if store && !translation.stores() {
            self.counts.useless += 1;
            return None;
        }
        let rest = arrives.saturating_sub(now);
        if rest > Cycles::ZERO {
            self.counts.late += 1;
            self.counts.late_cycles += rest;
        } else {
            self.counts.useful += 1;
        }
        Some((translation, rest))
    }

    /// Takes up a translation instead of the oldest.
    pub(super) fn enter(&mut self, entry: PrefetchedTranslation) {
        self.counts.entered += 1;
        self.entries.push_back(entry);
        if self.entries.len() > self.size {
            self.entries.pop_front();
            self.counts.useless += 1;
        }
    }

    /// Drops those translations of `start..end` of an address space.
    pub fn invalidate(&mut self, asid: Asid, start: VirtAddr, end: VirtAddr) {
        self.drop(|entry| {
            let last = entry.first.0 | entry.translation.size().offset_mask();
            entry.asid == asid && entry.first < end && last >= start.0
        });
    }

    /// Drops all translations of an address space.
    pub fn flush(&mut self, asid: Asid) {
        self.drop(|entry| entry.asid == asid);
    }

    fn drop(&mut self, condemned: impl Fn(&PrefetchedTranslation) -> bool) {
        let before = self.entries.len();
        self.entries.retain(|entry| !condemned(entry));
        self.counts.useless += (before - self.entries.len()) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_base::addr::{MachineAddr, PageSize};

    const ASID: Asid = Asid(3);

    fn buffer(pages: &[u64]) -> NextPage {
        let mut of = NextPage::new(&NextPageConfig { entries: 2 });
        for &page in pages {
            let translation = Translation::new(MachineAddr(page << 12), PageSize::Size4K, true, page.is_multiple_of(2));
            of.enter(PrefetchedTranslation {
                asid: ASID,
                first: VirtAddr(page << 12),
                translation,
                arrives: Cycles(100),
            });
        }
        of
    }

    fn take(of: &mut NextPage, asid: Asid, page: u64, store: bool, now: u64) -> Option<Cycles> {
        of.take(asid, VirtAddr(page << 12 | 8), store, Cycles(now)).map(|(_, rest)| rest)
    }

    #[test]
    fn entries_are_used_once_and_each_ends_in_one_count() {
        let mut of = buffer(&[1, 2, 3]);
        assert_eq!(take(&mut of, ASID, 1, false, 0), None, "the oldest made room");
        assert_eq!(take(&mut of, Asid(4), 2, false, 0), None, "another space");
        assert_eq!(take(&mut of, ASID, 2, true, 40), Some(Cycles(60)));
        assert_eq!(take(&mut of, ASID, 2, true, 40), None);
        assert_eq!(take(&mut of, ASID, 3, true, 100), None, "its page is clean");
        let mut of_hit = buffer(&[2]);
        assert_eq!(take(&mut of_hit, ASID, 2, false, 100), Some(Cycles::ZERO));
        let expected =
            NextPageCounts { entered: 3, late: 1, late_cycles: Cycles(60), useless: 2, ..NextPageCounts::default() };
        assert_eq!(of.counts(), expected);
        assert_eq!(of_hit.counts(), NextPageCounts { entered: 1, useful: 1, ..NextPageCounts::default() });
    }

    #[test]
    fn what_leaves_the_tlbs_leaves_the_buffer() {
        let range = |start: u64, end: u64| {
            let mut of = buffer(&[4, 5]);
            of.invalidate(ASID, VirtAddr(start), VirtAddr(end));
            of.invalidate(Asid(9), VirtAddr(0), VirtAddr(u64::MAX));
            [4, 5].map(|page| take(&mut of, ASID, page, false, 0).is_some())
        };
        assert_eq!(range(0x4fff, 0x5000), [false, true]);
        assert_eq!(range(0x3000, 0x4000), [true, true]);
        assert_eq!(range(0x5000, 0x5001), [true, false]);
        let mut of = buffer(&[4, 5]);
        of.flush(ASID);
        assert_eq!((of.counts().useless, of.counts().unused), (2, 0));
    }
}
