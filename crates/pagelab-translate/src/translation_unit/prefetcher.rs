//! TLB prefetchers: what all of them have, besides what they propose.
//!
//! Models: after a miss of all data TLBs, a prefetcher proposes pages. Each is walked for, unless a data TLB or a stage
//! holds it, and its translation enters a buffer beside the TLBs. An access that misses the TLBs and hits the buffer
//! needs no walk: the entry moves to the TLBs, and the miss trains the prefetcher and triggers the next proposals like
//! any other. If the prefetch walk is still in progress, the access waits for its end. The walk's references go through
//! MMU caches and data caches. It never faults: a page without a translation, or one that has never been accessed, is
//! dropped. A new entry replaces the oldest. An invalidation of the TLBs applies to the buffer as well. With `free`,
//! the buffer also takes what else is in the lines that walks read ([`free_ptes`](super::free_ptes)).
//! Source: Kandiraju and Sivasubramaniam, "Going the Distance for TLB Prefetching", ISCA 2002. Vavouliotis et al.,
//! "Exploiting Page Table Locality for Agile TLB Prefetching", ISCA 2021, of which only notes were at hand.
//! Stats: those of the prefetcher. Its walks are not included in `walk.*`, nor their references in `cache.refs.walk`.
//! Deviations: each prefetcher has a page walker of its own, which makes the walks for a miss one after the other.
//! Walks for earlier misses do not delay them. Layers with shadow page tables, direct segments or a speculative table
//! refuse it.
//! Choices: only misses of a program's data train. The threads of a core share one prefetcher. A proposal in the other
//! half of the address space, which is the kernel's, is dropped.

use std::collections::VecDeque;
use std::fmt::Debug;

use arrayvec::ArrayVec;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::free_ptes::{AcceptedDistances, FreeConfig, FreeDistance, FreePtes};
use super::{ENTRY_BITS, Entry, FillSource, Lines, LookUpPlace, TranslationUnit, UnitLookUp};
use pagelab_base::addr::{FRAME_BYTES, FRAME_SHIFT, LineAddr, MachineAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::{EngineError, between};
use pagelab_base::measure::Measure;
use pagelab_base::page_fault::{Intent, Origin};
use pagelab_base::rng::Rng;
use pagelab_base::switched::Switched;
use pagelab_base::translation::Translation;
use pagelab_tables::mmu_cache::Asid;

/// Most pages that a prefetcher proposes after a miss.
pub const MOST_PROPOSALS: usize = 8;
/// Most lines of its memory that a prefetcher changes after a miss or an eviction.
pub const MOST_WRITTEN: usize = 4;
/// log2 of the bytes of a half of the address space with four levels of tables. With five, programs have several parts
/// of this size, and no proposal leads from one to another.
const HALF_SHIFT: u32 = 47;

/// Parameters of a prefetcher that has nothing but its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BufferConfig {
    /// Translations in the buffer of a core, 0 to 65536; with 0 there are no prefetches.
    pub entries: u32,
    /// Whether translations beside those of walks are taken, too (SBFP).
    #[serde(skip_serializing_if = "Switched::is_off")]
    pub free: Switched<FreeConfig>,
}

impl Default for BufferConfig {
    fn default() -> Self {
        Self { entries: 16, free: Switched::Off }
    }
}

impl BufferConfig {
    /// Parameters for the tests of a prefetcher.
    pub(super) fn samples() -> Vec<Self> {
        [1, 16].map(|entries| Self { entries, free: Switched::Off }).into()
    }
}

/// A miss of all data TLBs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataMiss {
    /// Tag of the address space.
    pub asid: Asid,
    /// The first byte of the page.
    pub page: u64,
    /// Bytes of the page.
    pub size: u64,
    /// Virtual address of the instruction; 0 if unknown, as for an access that a kernel makes for the program.
    pub pc: u64,
}

/// The pages that a prefetcher proposes after a miss, in the order of their walks.
#[derive(Debug)]
pub struct Proposals {
    miss: DataMiss,
    /// The neighbours of walked pages that would enter the buffer, too.
    accepted: AcceptedDistances,
    pages: ArrayVec<VirtAddr, MOST_PROPOSALS>,
}

impl Proposals {
    /// None so far.
    pub(super) fn new(miss: DataMiss, accepted: AcceptedDistances) -> Self {
        Self { miss, accepted, pages: ArrayVec::new() }
    }

    /// None so far, after the same miss: for a prefetcher that consists of several.
    pub(super) fn of_part(&self) -> Self {
        Self::new(self.miss, self.accepted)
    }

    /// Takes the proposals of a part.
    pub(super) fn adopt(&mut self, part: &Self) {
        self.pages.clone_from(&part.pages);
    }

    /// First bytes of the proposed pages.
    pub(super) fn pages(&self) -> impl Iterator<Item = u64> {
        self.pages.iter().map(|page| page.0)
    }

    /// First bytes of the pages whose translations walks for the proposed pages would bring for free, if they are
    /// mapped; without the page that missed.
    pub(super) fn free_pages(&self) -> impl Iterator<Item = u64> {
        let is_small = self.miss.size == FRAME_BYTES;
        let beside = |page: &VirtAddr| self.accepted.pages_beside(page.page_number());
        self.pages
            .iter()
            .filter(move |_| is_small)
            .flat_map(beside)
            .map(|page| page << FRAME_SHIFT)
            .filter(|page| *page != self.miss.page)
    }

    /// Proposes the page this many bytes after the one that missed, or before it. Pages of another half of the address
    /// space, the page itself and repetitions are dropped.
    pub fn propose(&mut self, distance: i64) {
        let missed = self.miss.page;
        let Some(page) = missed.checked_add_signed(distance) else { return };
        let is_new = distance != 0 && !self.pages.contains(&VirtAddr(page));
        if is_new && page >> HALF_SHIFT == missed >> HALF_SHIFT {
            self.pages.push(VirtAddr(page));
        }
    }
}

/// A design of a TLB prefetcher: which pages it proposes after a miss.
///
/// What an implementor must uphold: [`on_miss`](Self::on_miss) proposes first and learns afterwards, so that a miss
/// does not predict itself. It proposes at most eight pages, and allocates no memory.
pub trait TlbPrefetcher: Sized + Clone + Debug {
    /// Parameters in the configuration. Unknown fields are an error.
    type Parameters: Clone + Debug + PartialEq + Serialize + DeserializeOwned + JsonSchema;

    /// Prefix of its statistics.
    const STATISTICS: &'static str;
    /// Whether it predicts by the instruction's address. A program whose source has none is then refused.
    const NEEDS_PC: bool = false;
    /// Whether it learns from misses of fetches, and proposes pages of code. Others learn from those of data.
    const IS_FOR_CODE: bool = false;
    /// Whether it keeps what it learns in memory.
    const IS_IN_MEMORY: bool = false;

    /// A prefetcher that has seen nothing, and the parameters of its buffer; `key` is the configuration key of its
    /// parameters. Errors: impossible parameters.
    fn new(parameters: &Self::Parameters, key: &str) -> Result<(Self, BufferConfig), EngineError>;

    /// Parameters for the tests: small enough that entries are replaced.
    fn samples() -> Vec<Self::Parameters>;

    /// Bits of storage of its own state, without the buffer. Default: it has none.
    fn storage_bits(&self) -> u64 {
        0
    }

    /// Proposes pages after a miss, and learns from it.
    fn on_miss(&mut self, miss: &DataMiss, proposals: &mut Proposals);

    /// Gives it a generator for random choices. Default: it makes none.
    fn seed(&mut self, _: &Rng) {}

    /// Learns from an entry that left the last TLB. Default: nothing.
    fn on_eviction(&mut self, _: &Entry) {}

    /// The lines of its memory that the last miss or eviction has changed. Default: there are none.
    fn take_written(&mut self) -> ArrayVec<LineAddr, MOST_WRITTEN> {
        ArrayVec::new()
    }

    /// Bytes of memory that it takes, beyond the memory of kernels; whole lines.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// Says where this memory begins, before it is used.
    fn put_at(&mut self, _first: LineAddr) {}

    /// Forgets the pages that overlap `start..end` of an address space. Only for what the misses of these pages would
    /// be compared with; default: it has no such pages.
    fn invalidate(&mut self, _asid: Asid, _start: VirtAddr, _end: VirtAddr) {}

    /// Forgets what it learnt in an address space, whose tag another space may get. Default: it keeps nothing by space.
    fn flush(&mut self, _: Asid) {}

    /// Further statistics. Default: none.
    fn measures(&self) -> Vec<Measure> {
        Vec::new()
    }
}

/// Counts of prefetched translations. `entered` is the sum of `useful`, `late`, `useless` and those that are still in
/// the buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PrefetchCounts {
    entered: u64,
    useful: u64,
    late: u64,
    late_cycles: Cycles,
    useless: u64,
}

impl PrefetchCounts {
    /// Statistics; `unused` translations are in the buffer.
    fn measures(&self, unused: u64) -> Vec<Measure> {
        let &Self { entered, useful, late, late_cycles, useless } = self;
        vec![
            Measure::count("entered", entered, "Translations that prefetch walks inserted into the buffer"),
            Measure::count(
                "useful",
                useful,
                "Prefetched translations that were in the buffer when an access needed them",
            ),
            Measure::count(
                "late",
                late,
                "Prefetched translations whose walk was still in progress when an access needed them",
            ),
            Measure::count(
                "useless",
                useless,
                "Prefetched translations that were dropped before any access needed them, or did not allow the store that did",
            ),
            Measure::cycles(
                "late_cycles",
                late_cycles,
                "Cycles that programs waited for late translations; included in cycles.translation",
            ),
            Measure::state(
                "unused",
                unused,
                "count",
                "Prefetched translations in the buffer that no access has needed yet",
            ),
        ]
    }

    /// The same for free translations.
    fn free_measures(&self, unused: u64) -> Vec<Measure> {
        let &Self { entered, useful, late, late_cycles, useless } = self;
        vec![
            Measure::count("free.entered", entered, "Free translations that entered the buffer, beside those of walks"),
            Measure::count("free.useful", useful, "Free translations that were there when an access needed them"),
            Measure::count("free.late", late, "Free translations whose walk was still in progress then"),
            Measure::count(
                "free.useless",
                useless,
                "Free translations that were dropped before any access needed them, or did not allow the store that did",
            ),
            Measure::cycles("free.late_cycles", late_cycles, "Cycles that programs waited for late free translations"),
            Measure::state(
                "free.unused",
                unused,
                "count",
                "Free translations in the buffer that no access has needed yet",
            ),
        ]
    }
}

/// A prefetched translation.
#[derive(Clone, Copy, Debug)]
struct Prefetched {
    entry: Entry,
    arrives: Cycles,
    /// Pages from the one that was walked for; 0 for that one.
    distance: FreeDistance,
}

/// A prefetcher of a core with its buffer; see the module's text.
#[derive(Clone, Debug)]
pub struct Prefetching<P> {
    prefetcher: P,
    size: usize,
    /// Oldest first.
    buffer: VecDeque<Prefetched>,
    counts: PrefetchCounts,
    free: Option<FreePtes>,
    free_counts: PrefetchCounts,
}

impl<P> Prefetching<P> {
    #[cfg(test)]
    pub(super) fn prefetcher(&self) -> &P {
        &self.prefetcher
    }

    /// The counts of those at this distance from a page that was walked for.
    fn counts_at(&mut self, distance: FreeDistance) -> &mut PrefetchCounts {
        if distance == 0 { &mut self.counts } else { &mut self.free_counts }
    }

    fn drop(&mut self, condemned: impl Fn(&Entry) -> bool) {
        let Self { buffer, counts, free_counts, .. } = self;
        buffer.retain(|prefetched| {
            let is_condemned = condemned(&prefetched.entry);
            let counts = if prefetched.distance == 0 { &mut *counts } else { &mut *free_counts };
            counts.useless += u64::from(is_condemned);
            !is_condemned
        });
    }

    fn enter(&mut self, prefetched: Prefetched) {
        self.counts_at(prefetched.distance).entered += 1;
        self.buffer.push_back(prefetched);
        if self.buffer.len() > self.size
            && let Some(oldest) = self.buffer.pop_front()
        {
            self.counts_at(oldest.distance).useless += 1;
        }
    }
}

impl<P: TlbPrefetcher> TranslationUnit for Prefetching<P> {
    type Parameters = P::Parameters;
    type Target = MachineAddr;

    const PLACE: LookUpPlace = LookUpPlace::AfterTlbs;
    const STATISTICS: &'static str = P::STATISTICS;
    const PREFETCHES: bool = true;
    const NEEDS_PC: bool = P::NEEDS_PC;
    const IS_IN_MEMORY: bool = P::IS_IN_MEMORY;
    const IS_FOR_CODE: bool = P::IS_FOR_CODE;

    fn new(parameters: &P::Parameters, key: &str, rng: &Rng) -> Result<Self, EngineError> {
        let (mut prefetcher, BufferConfig { entries, free }) = P::new(parameters, key)?;
        prefetcher.seed(rng);
        between(&format!("{key}.entries"), entries, 0, 1 << 16)?;
        let size = entries as usize;
        let buffer = VecDeque::with_capacity(size + 1);
        let free = free.on().map(|config| FreePtes::new(config, &format!("{key}.free"))).transpose()?;
        let (counts, free_counts) = (PrefetchCounts::default(), PrefetchCounts::default());
        Ok(Self { prefetcher, size, buffer, counts, free, free_counts })
    }

    fn samples() -> Vec<P::Parameters> {
        P::samples()
    }

    /// Removes the entry. Waits for a walk that is still in progress.
    fn look_up(&mut self, look_up: &UnitLookUp, _: &mut impl Lines, cycles: &mut Cycles) -> Option<Translation> {
        if look_up.origin != Origin::Program {
            return None;
        }
        let Some(at) = self.buffer.iter().position(|fetched| fetched.entry.covers(look_up.asid, look_up.va)) else {
            if let Some(free) = self.free.as_mut().filter(|_| (look_up.intent == Intent::Fetch) == P::IS_FOR_CODE) {
                free.look_up(look_up.asid, look_up.va);
            }
            return None;
        };
        let Prefetched { entry: Entry { translation, .. }, arrives, distance } = self.buffer.remove(at)?;
        let counts = self.counts_at(distance);
        if !look_up.is_allowed_by(&translation) {
            counts.useless += 1;
            return None;
        }
        let rest = arrives.saturating_sub(look_up.now);
        if rest > Cycles::ZERO {
            counts.late += 1;
            counts.late_cycles += rest;
        } else {
            counts.useful += 1;
        }
        *cycles += rest;
        if let Some(free) = self.free.as_mut().filter(|_| distance != 0) {
            free.credit(distance);
        }
        Some(translation)
    }

    fn holds(&self, asid: Asid, va: VirtAddr) -> bool {
        self.buffer.iter().any(|fetched| fetched.entry.covers(asid, va))
    }

    fn fill(&mut self, entry: &Entry, source: FillSource, lines: &mut impl Lines) {
        match source {
            FillSource::Prefetch { arrives } => self.enter(Prefetched { entry: *entry, arrives, distance: 0 }),
            FillSource::Free { distance, arrives } => {
                let Some(free) = &mut self.free else { return };
                if free.accepted().contains(distance) {
                    self.enter(Prefetched { entry: *entry, arrives, distance });
                } else {
                    free.sample(entry.asid, entry.va, distance);
                }
            }
            FillSource::Eviction if self.size > 0 => {
                self.prefetcher.on_eviction(entry);
                self.prefetcher.take_written().into_iter().for_each(|line| lines.write(line));
            }
            FillSource::Walk | FillSource::Eviction => {}
        }
    }

    fn takes_free(&self) -> bool {
        self.free.is_some() && self.size > 0
    }

    fn next_walks(
        &mut self,
        look_up: &UnitLookUp,
        found: Translation,
        lines: &mut impl Lines,
    ) -> ArrayVec<VirtAddr, MOST_PROPOSALS> {
        let (asid, mask) = (look_up.asid, found.size().offset_mask());
        let miss = DataMiss { asid, page: look_up.va.0 & !mask, size: mask + 1, pc: look_up.pc };
        let accepted = self.free.as_ref().map_or(AcceptedDistances::default(), FreePtes::accepted);
        let mut proposals = Proposals::new(miss, accepted);
        let is_learnt = look_up.origin == Origin::Program && (look_up.intent == Intent::Fetch) == P::IS_FOR_CODE;
        if self.size > 0 && is_learnt {
            self.prefetcher.on_miss(&miss, &mut proposals);
            self.prefetcher.take_written().into_iter().for_each(|line| lines.write(line));
        }
        proposals.pages
    }

    fn memory_bytes(&self) -> u64 {
        self.prefetcher.memory_bytes()
    }

    fn put_at(&mut self, first: LineAddr) {
        self.prefetcher.put_at(first);
    }

    fn invalidate(&mut self, asid: Asid, start: VirtAddr, end: VirtAddr, _: &mut impl Lines) {
        self.drop(|entry| entry.overlaps(asid, start, end));
        if let Some(free) = &mut self.free {
            free.invalidate(asid, start, end);
        }
        self.prefetcher.invalidate(asid, start, end);
    }

    fn flush(&mut self, asid: Asid) {
        self.drop(|entry| entry.asid == asid);
        if let Some(free) = &mut self.free {
            free.flush(asid);
        }
        self.prefetcher.flush(asid);
    }

    fn storage_bits(&self) -> u64 {
        let (entries, free) = (self.size as u64, self.free.as_ref());
        entries * ENTRY_BITS + free.map_or(0, |free| free.storage_bits(entries)) + self.prefetcher.storage_bits()
    }

    fn measures(&self) -> Vec<Measure> {
        let are_free = self.buffer.iter().filter(|prefetched| prefetched.distance != 0).count() as u64;
        let mut all = self.counts.measures(self.buffer.len() as u64 - are_free);
        if let Some(free) = &self.free {
            all.extend(self.free_counts.free_measures(are_free));
            all.extend(free.measures());
        }
        all.extend(self.prefetcher.measures());
        all
    }
}

/// What a prefetcher proposes after misses of these pages of 4 KiB, in pages. A miss has a space and a page.
#[cfg(test)]
pub(super) fn proposed<P: TlbPrefetcher>(parameters: &P::Parameters, misses: &[(u16, u64)]) -> Vec<Vec<u64>> {
    let misses: Vec<_> = misses.iter().map(|&(asid, page)| (0, asid, page)).collect();
    proposed_by::<P>(parameters, &misses)
}

/// The same for misses with an instruction's address, a space and a page.
#[cfg(test)]
pub(super) fn proposed_by<P: TlbPrefetcher>(parameters: &P::Parameters, misses: &[(u64, u16, u64)]) -> Vec<Vec<u64>> {
    let mut unit = Prefetching::<P>::new(parameters, "prefetcher", &Rng::new(1, "prefetcher")).unwrap();
    let pages = misses.iter().map(|&(pc, asid, page)| {
        let (asid, va, origin, now) = (Asid(asid), VirtAddr(page << 12 | 8), Origin::Program, Cycles::ZERO);
        let (intent, other) = match P::IS_FOR_CODE {
            false => (Intent::Load, Intent::Fetch),
            true => (Intent::Fetch, Intent::Load),
        };
        let look_up = UnitLookUp { asid, va, pc, intent, origin, now };
        let found = Translation::new(MachineAddr(0), pagelab_base::addr::PageSize::Size4K, true, true);
        assert!(
            unit.next_walks(&UnitLookUp { intent: other, ..look_up }, found, &mut super::NoLines).is_empty(),
            "it trains nothing"
        );
        unit.next_walks(&look_up, found, &mut super::NoLines).iter().map(|va| va.0 >> 12).collect()
    });
    pages.collect()
}

#[cfg(test)]
mod tests {
    use super::super::NoLines;
    use super::*;
    use crate::translation_unit::NextPage;
    use pagelab_base::addr::PageSize;

    const ASID: Asid = Asid(3);

    fn buffer(pages: &[u64]) -> NextPage {
        let config = BufferConfig { entries: 2, free: Switched::Off };
        let mut unit = NextPage::new(&config, "next_page", &Rng::new(1, "next page")).unwrap();
        for &page in pages {
            let translation = Translation::new(MachineAddr(page << 12), PageSize::Size4K, true, page.is_multiple_of(2));
            let entry = Entry { asid: ASID, va: VirtAddr(page << 12), translation };
            unit.fill(&entry, FillSource::Prefetch { arrives: Cycles(100) }, &mut NoLines);
        }
        unit
    }

    fn take(unit: &mut NextPage, asid: Asid, page: u64, store: bool, now: u64) -> Option<Cycles> {
        let intent = if store { Intent::Store } else { Intent::Load };
        let va = VirtAddr(page << 12 | 8);
        let look_up = UnitLookUp { asid, va, pc: 0, intent, origin: Origin::Program, now: Cycles(now) };
        let mut waited = Cycles::ZERO;
        unit.look_up(&look_up, &mut NoLines, &mut waited).map(|_| waited)
    }

    #[test]
    fn entries_are_used_once_and_each_ends_in_one_count() {
        let mut unit = buffer(&[1, 2, 3]);
        assert_eq!(take(&mut unit, ASID, 1, false, 0), None, "it was the oldest and was replaced");
        assert_eq!(take(&mut unit, Asid(4), 2, false, 0), None, "another space");
        assert_eq!(take(&mut unit, ASID, 2, true, 40), Some(Cycles(60)));
        assert_eq!(take(&mut unit, ASID, 2, true, 40), None);
        assert_eq!(take(&mut unit, ASID, 3, true, 100), None, "its page is clean");
        let mut hit = buffer(&[2]);
        assert_eq!(take(&mut hit, ASID, 2, false, 100), Some(Cycles::ZERO));
        assert_eq!(
            unit.counts,
            PrefetchCounts { entered: 3, late: 1, late_cycles: Cycles(60), useless: 2, ..PrefetchCounts::default() }
        );
        assert_eq!(hit.counts, PrefetchCounts { entered: 1, useful: 1, ..PrefetchCounts::default() });
    }

    #[test]
    fn translations_evicted_from_the_tlbs_leave_the_buffer() {
        let range = |start: u64, end: u64| {
            let mut unit = buffer(&[4, 5]);
            unit.invalidate(ASID, VirtAddr(start), VirtAddr(end), &mut NoLines);
            unit.invalidate(Asid(9), VirtAddr(0), VirtAddr(u64::MAX), &mut NoLines);
            [4, 5].map(|page| take(&mut unit, ASID, page, false, 0).is_some())
        };
        assert_eq!(range(0x4fff, 0x5000), [false, true]);
        assert_eq!(range(0x3000, 0x4000), [true, true]);
        assert_eq!(range(0x5000, 0x5001), [true, false]);
        let mut unit = buffer(&[4, 5]);
        unit.flush(ASID);
        assert_eq!((unit.counts.useless, unit.buffer.len()), (2, 0));
    }
}
