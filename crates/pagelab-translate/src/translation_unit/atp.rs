//! The agile prefetcher of translations, called ATP: after each miss it chooses one of three prefetchers, or none.
//!
//! Models: three prefetchers, [`h2p`](super::h2p), [`masp`](super::masp) and [`stp`](super::stp), which all train. Each
//! has a *fake queue* of the pages that it would have fetched, with the free ones that would have entered the buffer;
//! there are no walks for them. After a miss:
//!
//! 1. The page is looked up in the fake queues, and three saturating counters follow the hits. Without a hit,
//!    *enable* falls, and no other changes. With a hit it rises. Then *H2P* rises if the queue of H2P alone had the
//!    page, and falls if only others had it. *STP* rises if the queue of STP had it and that of MASP had not, and falls
//!    if it is the other way round.
//! 2. The highest bit of each counter decides. If that of *enable* is clear, nothing is proposed; free translations of
//!    demand walks still enter the buffer. Otherwise the proposals are those of H2P if its bit is set, else those of
//!    STP if its bit is set, else those of MASP.
//! 3. The fake queues take what their prefetchers would have fetched.
//!
//! Source: Vavouliotis et al., "Exploiting Page Table Locality for Agile TLB Prefetching", ISCA 2021 (notes on it): a
//! buffer of 64 entries, fake queues of 16 in FIFO order, counters of 8, 6 and 2 bits, MASP with 64 rows in sets of 4.
//! Parameters: `machine.prefetch.tlb.atp`: `entries` (64), `fake_entries` (16), `rows` (64), `ways` (4), `initial`
//! (half of each counter's range: 128, 32, 2; the source is silent), `free` (on).
//! Stats: `prefetch.tlb.atp.*`.
//! Choices: a page that hits leaves its fake queue, as an entry leaves the buffer, and one that is in the queue does
//! not enter again. Pages enter whether or not they are mapped, or held by a TLB, so that the queues depend on misses
//! and on accepted free distances alone, not on the choice. Free pages enter after all proposals of the prefetcher,
//! without the page that missed. A page of another size than the miss's is another page. An invalidation drops pages
//! from the fake queues, too. A program whose source has no addresses of instructions is refused, as MASP could propose
//! nothing.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::VA_MASK;
use super::free_ptes::FreeConfig;
use super::h2p::{H2pConfig, LastDistances};
use super::masp::{LastStrides, MaspConfig};
use super::prefetcher::{BufferConfig, DataMiss, Prefetching, Proposals, TlbPrefetcher};
use super::stp::Strides;
use pagelab_base::addr::VirtAddr;
use pagelab_base::error::{EngineError, between};
use pagelab_base::measure::Measure;
use pagelab_base::switched::Switched;
use pagelab_tables::mmu_cache::Asid;

/// Bits of the counters.
const COUNTER_BITS: InitialCounters = InitialCounters { enable: 8, h2p: 6, stp: 2 };

/// Values of the counters at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InitialCounters {
    /// Whether to prefetch: from 128 on, 0 to 255.
    pub enable: u8,
    /// Whether to choose H2P: from 32 on, 0 to 63.
    pub h2p: u8,
    /// Whether to choose STP rather than MASP: from 2 on, 0 to 3.
    pub stp: u8,
}

impl Default for InitialCounters {
    fn default() -> Self {
        let Self { enable, h2p, stp } = COUNTER_BITS;
        let [enable, h2p, stp] = [enable, h2p, stp].map(|bits| 1 << (bits - 1));
        Self { enable, h2p, stp }
    }
}

/// Parameters of the agile prefetcher.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AtpConfig {
    /// Translations in the buffer of a core, 0 to 65536; with 0 there are no prefetches.
    pub entries: u32,
    /// Pages in each fake queue, 0 to 65536.
    pub fake_entries: u32,
    /// Instructions that MASP tracks, 0 to 65536.
    pub rows: u32,
    /// Rows per set of MASP.
    pub ways: u32,
    /// Values of the three counters at the start.
    pub initial: InitialCounters,
    /// Whether translations beside those of walks are taken, too (SBFP).
    pub free: Switched<FreeConfig>,
}

impl Default for AtpConfig {
    fn default() -> Self {
        let (initial, free) = (InitialCounters::default(), Switched::On(FreeConfig::default()));
        Self { entries: 64, fake_entries: 16, rows: 64, ways: 4, initial, free }
    }
}

/// A saturating counter.
#[derive(Clone, Copy, Debug)]
struct Counter {
    value: u8,
    bits: u8,
}

impl Counter {
    fn new(key: &str, value: u8, bits: u8) -> Result<Self, EngineError> {
        between(key, value.into(), 0, (1 << bits) - 1)?;
        Ok(Self { value, bits })
    }

    fn rise(&mut self) {
        self.value += u8::from(u32::from(self.value) + 1 < 1 << self.bits);
    }

    fn fall(&mut self) {
        self.value = self.value.saturating_sub(1);
    }

    /// Its highest bit.
    fn is_high(self) -> bool {
        self.value >> (self.bits - 1) & 1 != 0
    }
}

/// A prefetcher that ATP chooses from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Child {
    H2p,
    Masp,
    Stp,
}

/// In the order of [`Child`].
const CHILDREN: usize = 3;

/// The three counters.
#[derive(Clone, Copy, Debug)]
struct Chooser {
    enable: Counter,
    h2p: Counter,
    stp: Counter,
}

impl Chooser {
    /// Follows the hits in the fake queues, in the order of [`Child`].
    fn learn(&mut self, [h2p, masp, stp]: [bool; CHILDREN]) {
        if !(h2p || masp || stp) {
            return self.enable.fall();
        }
        self.enable.rise();
        match (h2p, masp || stp) {
            (true, false) => self.h2p.rise(),
            (false, _) => self.h2p.fall(),
            (true, true) => {}
        }
        match (masp, stp) {
            (false, true) => self.stp.rise(),
            (true, false) => self.stp.fall(),
            (true, true) | (false, false) => {}
        }
    }

    /// The prefetcher whose proposals are made; none if prefetches are not worth it.
    fn choose(&self) -> Option<Child> {
        match (self.enable.is_high(), self.h2p.is_high(), self.stp.is_high()) {
            (false, _, _) => None,
            (true, true, _) => Some(Child::H2p),
            (true, false, true) => Some(Child::Stp),
            (true, false, false) => Some(Child::Masp),
        }
    }
}

/// A page that a prefetcher would have fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FakePage {
    asid: Asid,
    /// The first byte of the page.
    page: u64,
    /// Bytes of the page.
    size: u64,
}

/// The pages that a prefetcher would have fetched, oldest first.
#[derive(Clone, Debug)]
struct FakeQueue {
    size: usize,
    pages: VecDeque<FakePage>,
    hits: u64,
}

impl FakeQueue {
    fn new(size: usize) -> Self {
        Self { size, pages: VecDeque::with_capacity(size + 1), hits: 0 }
    }

    /// Takes the page of a miss out; whether it was there.
    fn take(&mut self, miss: &DataMiss) -> bool {
        let &DataMiss { asid, page, size, pc: _ } = miss;
        let at = self.pages.iter().position(|held| *held == FakePage { asid, page, size });
        let hit = at.and_then(|at| self.pages.remove(at)).is_some();
        self.hits += u64::from(hit);
        hit
    }

    fn enter(&mut self, miss: &DataMiss, page: u64) {
        let page = FakePage { asid: miss.asid, page, size: miss.size };
        if self.size == 0 || self.pages.contains(&page) {
            return;
        }
        self.pages.push_back(page);
        if self.pages.len() > self.size {
            self.pages.pop_front();
        }
    }
}

/// The unit.
pub type Atp = Prefetching<Agile>;

/// The prefetcher, see the module's text.
#[derive(Clone, Debug)]
pub struct Agile {
    h2p: LastDistances,
    masp: LastStrides,
    stp: Strides,
    /// In the order of [`Child`].
    queues: [FakeQueue; CHILDREN],
    chooser: Chooser,
    /// Misses at which none was chosen.
    idle: u64,
    /// Misses at which each was chosen, in the order of [`Child`].
    chosen: [u64; CHILDREN],
}

impl TlbPrefetcher for Agile {
    type Parameters = AtpConfig;

    const STATISTICS: &'static str = "prefetch.tlb.atp";
    const NEEDS_PC: bool = true;

    fn new(parameters: &AtpConfig, key: &str) -> Result<(Self, BufferConfig), EngineError> {
        let &AtpConfig { entries, fake_entries, rows, ways, initial, free } = parameters;
        between(&format!("{key}.fake_entries"), fake_entries, 0, 1 << 16)?;
        let counter = |name: &str, value, bits| Counter::new(&format!("{key}.initial.{name}"), value, bits);
        let chooser = Chooser {
            enable: counter("enable", initial.enable, COUNTER_BITS.enable)?,
            h2p: counter("h2p", initial.h2p, COUNTER_BITS.h2p)?,
            stp: counter("stp", initial.stp, COUNTER_BITS.stp)?,
        };
        let prefetcher = Self {
            h2p: LastDistances::new(&H2pConfig::default(), key)?.0,
            masp: LastStrides::new(&MaspConfig { rows, ways, ..MaspConfig::default() }, key)?.0,
            stp: Strides,
            queues: std::array::from_fn(|_| FakeQueue::new(fake_entries as usize)),
            chooser,
            idle: 0,
            chosen: [0; CHILDREN],
        };
        Ok((prefetcher, BufferConfig { entries, free }))
    }

    fn samples() -> Vec<AtpConfig> {
        let free = Switched::On(FreeConfig { threshold: 1, sampler: 4, initial: 1 });
        vec![AtpConfig { entries: 8, fake_entries: 4, rows: 4, ways: 2, free, ..AtpConfig::default() }]
    }

    /// Those of the three, the counters, and the fake queues: a page has its number, the tag of its space and its size.
    fn storage_bits(&self) -> u64 {
        let InitialCounters { enable, h2p, stp } = COUNTER_BITS;
        let queues: u64 = self.queues.iter().map(|queue| queue.size as u64 * (45 + 12 + 2)).sum();
        let children = self.h2p.storage_bits() + self.masp.storage_bits() + self.stp.storage_bits();
        children + queues + u64::from(enable + h2p + stp)
    }

    fn on_miss(&mut self, miss: &DataMiss, proposals: &mut Proposals) {
        let hits = self.queues.each_mut().map(|queue| queue.take(miss));
        self.chooser.learn(hits);
        let mut children: [Proposals; CHILDREN] = std::array::from_fn(|_| proposals.of_part());
        let [h2p, masp, stp] = &mut children;
        self.h2p.on_miss(miss, h2p);
        self.masp.on_miss(miss, masp);
        self.stp.on_miss(miss, stp);
        match self.chooser.choose() {
            None => self.idle += 1,
            Some(child) => {
                self.chosen[child as usize] += 1;
                proposals.adopt(&children[child as usize]);
            }
        }
        for (queue, child) in self.queues.iter_mut().zip(&children) {
            child.pages().chain(child.free_pages()).for_each(|page| queue.enter(miss, page));
        }
    }

    fn invalidate(&mut self, asid: Asid, start: VirtAddr, end: VirtAddr) {
        let (start, end) = (start.0 & VA_MASK, end.0.wrapping_sub(1) & VA_MASK);
        let overlaps = |held: &FakePage| held.asid == asid && held.page <= end && held.page + held.size > start;
        self.queues.iter_mut().for_each(|queue| queue.pages.retain(|held| !overlaps(held)));
    }

    fn flush(&mut self, asid: Asid) {
        self.h2p.flush(asid);
        self.masp.flush(asid);
        self.stp.flush(asid);
        self.queues.iter_mut().for_each(|queue| queue.pages.retain(|held| held.asid != asid));
    }

    fn measures(&self) -> Vec<Measure> {
        let [h2p, masp, stp] = self.chosen;
        let [in_h2p, in_masp, in_stp] = self.queues.each_ref().map(|queue| queue.hits);
        vec![
            Measure::count("chosen.none", self.idle, "Misses after which no prefetcher was chosen"),
            Measure::count("chosen.h2p", h2p, "Misses after which the proposals were those of H2P"),
            Measure::count("chosen.masp", masp, "Misses after which the proposals were those of MASP"),
            Measure::count("chosen.stp", stp, "Misses after which the proposals were those of STP"),
            Measure::count("fake_hits.h2p", in_h2p, "Misses of pages that H2P would have fetched before"),
            Measure::count("fake_hits.masp", in_masp, "Misses of pages that MASP would have fetched before"),
            Measure::count("fake_hits.stp", in_stp, "Misses of pages that STP would have fetched before"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::free_ptes::FreePtes;
    use super::super::prefetcher::proposed_by;
    use super::*;

    const ALWAYS: InitialCounters = InitialCounters { enable: 255, h2p: 63, stp: 3 };

    fn with(initial: InitialCounters) -> AtpConfig {
        AtpConfig { initial, free: Switched::Off, ..AtpConfig::default() }
    }

    #[test]
    fn counters_follow_the_hits() {
        let values = |start: InitialCounters, hits: [bool; 3], times| {
            let (mut agile, _) = Agile::new(&with(start), "atp").unwrap();
            (0..times).for_each(|_| agile.chooser.learn(hits));
            let Chooser { enable, h2p, stp } = agile.chooser;
            [enable.value, h2p.value, stp.value]
        };
        let half = InitialCounters::default();
        assert_eq!([half.enable, half.h2p, half.stp], [128, 32, 2]);
        // In the order H2P, MASP, STP.
        for (hits, expected) in [
            ([false, false, false], [127, 32, 2]),
            ([true, false, false], [129, 33, 2]),
            ([true, true, false], [129, 32, 1]),
            ([true, false, true], [129, 32, 3]),
            ([true, true, true], [129, 32, 2]),
            ([false, true, false], [129, 31, 1]),
            ([false, false, true], [129, 31, 3]),
            ([false, true, true], [129, 31, 2]),
        ] {
            assert_eq!(values(half, hits, 1), expected, "{hits:?}");
        }
        assert_eq!(values(half, [true, false, false], 300), [255, 63, 2], "they saturate");
        assert_eq!(values(half, [false, true, false], 300), [255, 0, 0]);
        assert_eq!(values(half, [false, false, false], 300), [0, 32, 2]);
    }

    #[test]
    fn the_highest_bits_choose() {
        let choice = |enable, h2p, stp| {
            let (agile, _) = Agile::new(&with(InitialCounters { enable, h2p, stp }), "atp").unwrap();
            agile.chooser.choose()
        };
        assert_eq!(choice(127, 63, 3), None);
        assert_eq!([choice(128, 32, 0), choice(128, 32, 3)], [Some(Child::H2p); 2]);
        assert_eq!([choice(255, 31, 2), choice(255, 31, 1)], [Some(Child::Stp), Some(Child::Masp)]);
        let too_high = with(InitialCounters { stp: 4, ..ALWAYS });
        assert!(Agile::new(&too_high, "atp").unwrap_err().to_string().contains("atp.initial.stp"));
    }

    /// Misses of one instruction: pages with equal strides, then pages around each other.
    fn misses() -> Vec<(u64, u16, u64)> {
        let strided = (0..20).map(|n| (8, 1, 1000 + 50 * n));
        strided.chain((0..20).map(|n| (8, 1, 5000 + 2 * n - n % 2))).collect()
    }

    #[test]
    fn the_proposals_are_those_of_the_chosen_prefetcher() {
        let pages = |initial| proposed_by::<Agile>(&with(initial), &[(8, 1, 100), (8, 1, 105), (8, 1, 108)]);
        assert_eq!(pages(ALWAYS), [vec![], vec![], vec![111, 113]]);
        let masp = InitialCounters { h2p: 0, stp: 0, ..ALWAYS };
        assert_eq!(pages(masp), [vec![], vec![110], vec![113, 111]]);
        let stp = InitialCounters { h2p: 0, ..ALWAYS };
        assert_eq!(pages(stp)[1], [103, 104, 106, 107]);
        let none = InitialCounters { enable: 120, ..ALWAYS };
        assert_eq!(pages(none), vec![Vec::<u64>::new(); 3]);
    }

    #[test]
    fn fake_queues_do_not_depend_on_the_choice() {
        let start = |initial| Agile::new(&with(initial), "atp").unwrap().0;
        let mut all = [
            ALWAYS,
            InitialCounters { h2p: 0, ..ALWAYS },
            InitialCounters { h2p: 0, stp: 0, ..ALWAYS },
            InitialCounters { enable: 0, ..ALWAYS },
        ]
        .map(start);
        let mut differed = false;
        for (pc, asid, page) in misses() {
            let miss = DataMiss { asid: Asid(asid), page: page << 12, size: 4096, pc };
            let free = FreeConfig { initial: if page % 3 == 0 { 200 } else { 0 }, ..FreeConfig::default() };
            let accepted = FreePtes::new(&free, "free").unwrap().accepted();
            let made = all.each_mut().map(|agile| {
                let mut proposals = Proposals::new(miss, accepted);
                agile.on_miss(&miss, &mut proposals);
                (proposals.pages().collect::<Vec<_>>(), agile.queues.each_ref().map(|queue| queue.pages.clone()))
            });
            for (pages, queues) in &made[1..] {
                assert_eq!(queues, &made[0].1);
                differed |= pages != &made[0].0;
            }
        }
        assert!(differed, "the choices were the same");
    }

    #[test]
    fn a_fake_queue_has_what_would_have_been_fetched() {
        let (mut agile, _) = Agile::new(&with(ALWAYS), "atp").unwrap();
        let free = FreeConfig { threshold: 100, sampler: 0, initial: 0 };
        let mut free = FreePtes::new(&free, "free").unwrap();
        (0..101).for_each(|_| free.credit(1));
        let mut miss = |page: u64, size: u64| {
            let miss = DataMiss { asid: Asid(1), page: page << 12, size, pc: 8 };
            agile.on_miss(&miss, &mut Proposals::new(miss, free.accepted()));
            agile.queues.each_ref().map(|queue| queue.pages.iter().map(|held| held.page >> 12).collect::<Vec<_>>())
        };
        // 99 brings 100, which is there; 100 the page itself; 102 brings 103, and 103 is the last of its line.
        assert_eq!(miss(101, 4096), [vec![], vec![], vec![99, 100, 102, 103]]);
        // Its page leaves; those that are there do not enter again.
        assert_eq!(miss(102, 4096), [vec![], vec![103], vec![99, 100, 103, 101, 104, 105]]);
        // Large pages have no free neighbours.
        let [.., stp] = miss(512 * 9, 512 << 12);
        assert_eq!(stp[6..], [512 * 7, 512 * 8, 512 * 10, 512 * 11]);
        let hits = agile.queues.each_ref().map(|queue| queue.hits);
        assert_eq!(hits, [0, 0, 1]);
        agile.invalidate(Asid(1), VirtAddr(0x63_000), VirtAddr(0x64_001));
        agile.invalidate(Asid(2), VirtAddr(0), VirtAddr(1 << 40));
        let held = |agile: &Agile| agile.queues[2].pages.iter().map(|held| held.page >> 12).collect::<Vec<_>>();
        assert_eq!(held(&agile)[..4], [103, 101, 104, 105]);
        agile.flush(Asid(1));
        assert_eq!(held(&agile), Vec::<u64>::new());
    }
}
