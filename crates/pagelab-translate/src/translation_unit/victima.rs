//! Translations in the second-level cache (Victima).
//!
//! Models: a block of a core's second-level cache that has the translations of eight neighbouring pages, those of one
//! line of leaf entries, with the tag of their space and the number of the first page. Blocks of pages of 4 KiB and of
//! 2 MiB compete with lines of data for the ways of their set, by the cache's own policy. After a miss of all TLBs the
//! cache is looked up for a block of either size while the walk begins: a hit takes the cache's latency and ends the
//! walk, and a miss costs nothing. After a walk, the line of its leaf entry is turned into a block if the page is
//! costly to walk for: it leaves its set, and the block enters the one of its own tag. A page that the last TLB evicts
//! gets its block by a walk in the background, if it is costly and has none. Two counters in the leaf entry say which
//! pages are costly: walks for the page, and those of them that went to memory. A page is costly from the first walk
//! that went to memory until it has had more walks than a limit. While the program seldom misses the second-level
//! cache, only costly pages get blocks; otherwise all do, as their lines find little use for the ways.
//! Source: Kanellopoulos et al., "Victima: Drastically Increasing Address Translation Reach by Leveraging Underutilized
//! Cache Resources", MICRO 2023, of which only notes were at hand.
//! Parameters: `machine.tlb.stages.victima`: `insert` (`both`), `most_walks` (12) and `most_costly` (7) with their
//! counters of 4 and 3 bits, `counters` (`stored`), `cache_misses_per_1000` (12), `tlb_misses_per_1000` (12) and
//! `window` (100,000).
//! Stats: `tlb.stages.victima.*`. `misses` and `look_ups` are those of the blocks; `walks` and `refs` those of walks in
//! the background.
//! Choices, where the notes say nothing or contradict each other: the counter of walks has 4 bits and that of memory 3,
//! since 12 would be out of reach the other way round. A counter that has reached its end stays there. Each change of
//! the counters stores to the entry's line (`counters = "stored"`), or is free. Misses of the cache are counted per
//! 1,000 accesses of the program to data, since caches do not know instructions; 12 are the paper's 5 per 1,000
//! instructions at 0.4 accesses per instruction, an estimate. They are judged once per `window`. Only the page that was
//! walked for enters a block by a walk of a guest or of an instruction; the others do with their own walks.
//! The paper's replacement is a policy of the cache of its own, `machine.cache.l2.policy = "keep-blocks"`; here is
//! decided, in the same way, when the TLB misses often.
//! Deviations: in a guest a block holds pages of the guest and their machine frames; blocks for the nested TLB are
//! not modelled. Pages of 1 GiB have none. The references that a walk makes before a hit ends it are not made. A
//! shootdown drops the blocks of its pages, and their counters, as does a flush. A prefetcher beside it takes the pages
//! of a block that has left the cache for held until another block has its number.

mod blocks;
mod costs;

use arrayvec::ArrayVec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::blocks::{BlockRange, BlockTag, KnownBlocks};
use self::costs::{COSTLY_END, WALKS_END, WalkCosts};
use super::{Blocks, Entry, FillSource, LeafRead, Lines, LookUpPlace, MOST_PROPOSALS, TranslationUnit, UnitLookUp};
use pagelab_base::addr::{MachineAddr, PageSize, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::{EngineError, between};
use pagelab_base::measure::Measure;
use pagelab_base::rng::Rng;
use pagelab_base::translation::Translation;
use pagelab_hardware::cache::{BlockPlace, DataMisses};
use pagelab_tables::mmu_cache::Asid;

/// The sizes of pages that blocks hold.
const SIZES: [PageSize; 2] = [PageSize::Size4K, PageSize::Size2M];

/// What makes a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VictimaInsert {
    /// Walks that accesses wait for.
    Walk,
    /// Evictions from the last TLB.
    Eviction,
    /// Both.
    #[default]
    Both,
}

/// What a change of the counters in an entry costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VictimaCounters {
    /// A store to the line of the entry.
    #[default]
    Stored,
    /// Nothing.
    Free,
}

/// Parameters of translations in the second-level cache of each core.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VictimaConfig {
    /// What makes a block: walks that accesses wait for, evictions from the last TLB, or both. Default `both`.
    pub insert: VictimaInsert,
    /// Walks for a page up to which it is costly, 1 to 15. Default 12.
    pub most_walks: u8,
    /// Walks for a page that went to memory up to which it is costly, 1 to 7; it is not with none. Default 7.
    pub most_costly: u8,
    /// What a change of the counters in an entry costs. Default `stored`.
    pub counters: VictimaCounters,
    /// Accesses to data that miss the second-level cache, per 1,000 of the program, from which on all pages get blocks,
    /// 0 to 1000; with 0 they always do. Default 12.
    pub cache_misses_per_1000: u32,
    /// Misses of the last TLB per 1,000 accesses to data from which on a cache with the policy `keep-blocks` keeps
    /// blocks, 0 to 1000; with 0 it always does. Default 12.
    pub tlb_misses_per_1000: u32,
    /// Accesses to data after which both are decided anew, at least 1. Default 100,000.
    pub window: u32,
}

impl Default for VictimaConfig {
    fn default() -> Self {
        Self {
            insert: VictimaInsert::default(),
            most_walks: 12,
            most_costly: COSTLY_END,
            counters: VictimaCounters::default(),
            cache_misses_per_1000: 12,
            tlb_misses_per_1000: 12,
            window: 100_000,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct VictimaCounts {
    inserted: u64,
    inserted_evicted: u64,
    cheap: u64,
    shot: u64,
    counter_stores: u64,
}

/// The unit, see the module's text.
#[derive(Clone, Debug)]
pub struct Victima {
    config: VictimaConfig,
    blocks: KnownBlocks,
    /// Blocks of flushed spaces that are to leave the cache.
    flushed: Vec<BlockPlace>,
    costs: WalkCosts,
    /// Evicted pages that are to get a block.
    evicted: ArrayVec<(Asid, VirtAddr), MOST_PROPOSALS>,
    /// At the beginning of the current window.
    before: DataMisses,
    /// Misses of the last TLB in this window.
    tlb_misses: u64,
    /// Whether all pages get blocks.
    takes_all: bool,
    counts: VictimaCounts,
}

impl Victima {
    /// The blocks in the cache, after those of flushed spaces have left it.
    fn cache<'a>(&mut self, lines: &'a mut impl Lines) -> Option<&'a mut dyn Blocks> {
        let cache = lines.blocks()?;
        if self.blocks.fit(cache.cache()) {
            cache.set_misses_often(self.config.tlb_misses_per_1000 == 0);
        }
        self.flushed.drain(..).for_each(|at| cache.remove(at));
        Some(cache)
    }

    /// Decides once per window whether all pages get blocks, and whether the cache is to keep them.
    fn judge(&mut self, cache: &mut dyn Blocks) {
        let now = cache.data_misses();
        let accesses = now.accesses - self.before.accesses;
        if accesses >= self.config.window.into() {
            let is_reached = |misses: u64, per_1000: u32| misses * 1000 >= accesses * u64::from(per_1000);
            self.takes_all = is_reached(now.misses - self.before.misses, self.config.cache_misses_per_1000);
            cache.set_misses_often(is_reached(self.tlb_misses, self.config.tlb_misses_per_1000));
            (self.before, self.tlb_misses) = (now, 0);
        }
    }

    /// Whether a page is to get a block, when it has none.
    fn is_taken(&mut self, tag: BlockTag, entry: &Entry) -> bool {
        let is_taken = self.takes_all || self.costs.are_high(tag, entry);
        self.counts.cheap += u64::from(!is_taken);
        is_taken
    }

    /// Counts a walk in the leaf entry of its page.
    fn count_walk(&mut self, tag: BlockTag, entry: &Entry, leaf: LeafRead, lines: &mut impl Lines) {
        let is_changed = self.costs.count(tag, entry, leaf.from_memory);
        if is_changed && self.config.counters == VictimaCounters::Stored {
            self.counts.counter_stores += 1;
            lines.write(leaf.line);
        }
    }

    /// Makes a block of the pages around an entry, whose line leaves the cache.
    fn insert(&mut self, tag: BlockTag, lines: &mut impl Lines) -> Option<BlockPlace> {
        let leaf = lines.leaf();
        let cache = self.cache(lines)?;
        if let Some(leaf) = leaf {
            cache.give_up(leaf.line);
        }
        let at = self.blocks.place_for(tag, cache);
        cache.insert(at);
        Some(at)
    }

    /// Puts a page into its block.
    fn put(&mut self, at: BlockPlace, entry: &Entry) {
        *self.blocks.page_of(at, entry) = Some(entry.translation);
    }

    /// Takes what a walk has found.
    fn fill_walked(&mut self, tag: BlockTag, entry: &Entry, lines: &mut impl Lines) {
        if let Some(leaf) = lines.leaf() {
            self.count_walk(tag, entry, leaf, lines);
        }
        let Some(cache) = self.cache(lines) else { return };
        self.judge(cache);
        let known = self.blocks.find(tag);
        let is_there = known.is_some_and(|at| cache.holds(at));
        let inserts = self.config.insert != VictimaInsert::Eviction;
        let at = match is_there {
            true => known,
            false if inserts && self.is_taken(tag, entry) => {
                self.counts.inserted += 1;
                self.insert(tag, lines)
            }
            // If the block comes back, it has what the entries say now.
            false => known,
        };
        if let Some(at) = at {
            self.put(at, entry);
        }
    }

    /// Takes a page that the last TLB has evicted.
    fn fill_evicted(&mut self, tag: BlockTag, entry: &Entry, lines: &mut impl Lines) {
        let Some(cache) = self.cache(lines) else { return };
        if let Some(at) = self.blocks.find(tag) {
            if cache.holds(at) {
                return self.put(at, entry);
            }
            // Nothing holds it until it has a block again.
            *self.blocks.page_of(at, entry) = None;
        }
        let inserts = self.config.insert != VictimaInsert::Walk;
        if inserts && !self.evicted.is_full() && self.is_taken(tag, entry) {
            self.evicted.push((entry.asid, entry.va));
        }
    }

    /// Drops blocks whose pages have changed.
    fn shoot(&mut self, places: &[BlockPlace], lines: &mut impl Lines) {
        let Some(cache) = self.cache(lines) else { return };
        for &at in places {
            self.counts.shot += u64::from(cache.holds(at));
            cache.remove(at);
            self.blocks.forget(at);
        }
    }
}

impl TranslationUnit for Victima {
    type Parameters = VictimaConfig;
    type Target = MachineAddr;

    const PLACE: LookUpPlace = LookUpPlace::AfterTlbs;
    const STATISTICS: &'static str = "tlb.stages.victima";
    const PREFETCHES: bool = true;
    /// The first-level TLB may still hold what the second has evicted.
    const WALKS_FOR_HELD: bool = true;
    const COUNTS_LOOK_UPS: bool = true;
    const NEEDS_SECOND_LEVEL_CACHE: bool = true;

    fn new(parameters: &VictimaConfig, key: &str, _: &Rng) -> Result<Self, EngineError> {
        let within = |name: &str, value: u32, least, most| between(&format!("{key}.{name}"), value, least, most);
        within("most_walks", parameters.most_walks.into(), 1, WALKS_END.into())?;
        within("most_costly", parameters.most_costly.into(), 1, COSTLY_END.into())?;
        within("cache_misses_per_1000", parameters.cache_misses_per_1000, 0, 1000)?;
        within("tlb_misses_per_1000", parameters.tlb_misses_per_1000, 0, 1000)?;
        within("window", parameters.window, 1, u32::MAX)?;
        Ok(Self {
            config: *parameters,
            blocks: KnownBlocks::default(),
            flushed: Vec::new(),
            costs: WalkCosts::new(parameters.most_walks, parameters.most_costly),
            evicted: ArrayVec::new(),
            before: DataMisses::default(),
            tlb_misses: 0,
            takes_all: parameters.cache_misses_per_1000 == 0,
            counts: VictimaCounts::default(),
        })
    }

    fn samples() -> Vec<VictimaConfig> {
        let default = VictimaConfig { window: 64, ..VictimaConfig::default() };
        vec![
            VictimaConfig { cache_misses_per_1000: 0, tlb_misses_per_1000: 0, ..default },
            VictimaConfig { insert: VictimaInsert::Walk, counters: VictimaCounters::Free, ..default },
            VictimaConfig { insert: VictimaInsert::Eviction, most_walks: 15, ..default },
        ]
    }

    fn look_up(&mut self, look_up: &UnitLookUp, lines: &mut impl Lines, cycles: &mut Cycles) -> Option<Translation> {
        self.tlb_misses += 1;
        let cache = self.cache(lines)?;
        for size in SIZES {
            let Some(at) = self.blocks.find(BlockTag::new(look_up.asid, size, look_up.va)) else { continue };
            let Some(held) = self.blocks.translation(at, size, look_up.va) else { continue };
            if look_up.is_allowed_by(&held) && cache.look_up(at) {
                *cycles += cache.cache().latency;
                return Some(held);
            }
        }
        None
    }

    fn holds(&self, asid: Asid, va: VirtAddr) -> bool {
        SIZES.into_iter().any(|size| {
            let at = self.blocks.find(BlockTag::new(asid, size, va));
            at.is_some_and(|at| self.blocks.translation(at, size, va).is_some())
        })
    }

    fn fill(&mut self, entry: &Entry, source: FillSource, lines: &mut impl Lines) {
        let size = entry.translation.size();
        if !SIZES.contains(&size) {
            return;
        }
        let tag = BlockTag::new(entry.asid, size, entry.va);
        match source {
            FillSource::Walk => self.fill_walked(tag, entry, lines),
            FillSource::Eviction => self.fill_evicted(tag, entry, lines),
            FillSource::Prefetch { .. } => {
                let Some(cache) = self.cache(lines) else { return };
                let is_there = self.blocks.find(tag).filter(|&at| cache.holds(at));
                let at = is_there.or_else(|| {
                    self.counts.inserted_evicted += 1;
                    self.insert(tag, lines)
                });
                if let Some(at) = at {
                    self.put(at, entry);
                }
            }
            FillSource::Free { .. } => {
                if let Some(at) = self.blocks.find(tag) {
                    self.put(at, entry);
                }
            }
        }
    }

    fn takes_free(&self) -> bool {
        true
    }

    fn next_walks(
        &mut self,
        look_up: &UnitLookUp,
        _found: Translation,
        _: &mut impl Lines,
    ) -> ArrayVec<VirtAddr, MOST_PROPOSALS> {
        // The walker does not know the tables of other spaces.
        self.evicted.drain(..).filter_map(|(asid, va)| (asid == look_up.asid).then_some(va)).collect()
    }

    fn invalidate(&mut self, asid: Asid, start: VirtAddr, end: VirtAddr, lines: &mut impl Lines) {
        self.evicted.clear();
        for size in SIZES {
            let range = BlockRange::new(asid, size, start, end);
            self.costs.forget(&range);
            let places = match range.tags() {
                Some(tags) => tags.filter_map(|tag| self.blocks.find(tag)).collect(),
                None => self.blocks.with(|tag| range.contains(tag)),
            };
            self.shoot(&places, lines);
        }
    }

    fn flush(&mut self, asid: Asid) {
        self.evicted.clear();
        self.costs.forget_space(asid);
        for at in self.blocks.with(|tag| tag.asid == asid) {
            self.blocks.forget(at);
            self.flushed.push(at);
        }
    }

    /// A bit per line of the cache that says what it is, and one for its space: tags are wide enough.
    fn storage_bits(&self) -> u64 {
        2 * self.blocks.cache_lines()
    }

    fn measures(&self) -> Vec<Measure> {
        let VictimaCounts { inserted, inserted_evicted, cheap, shot, counter_stores } = self.counts;
        vec![
            Measure::count("inserted", inserted, "Blocks that entered the cache after walks that accesses waited for"),
            Measure::count("inserted_evicted", inserted_evicted, "Blocks that entered after walks for evicted pages"),
            Measure::count("cheap", cheap, "Pages that got no block since walks for them were not costly"),
            Measure::count("shot", shot, "Blocks in the cache that a shootdown dropped"),
            Measure::count("counter_stores", counter_stores, "Stores that changed the counters in an entry"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::lines::LineLog;
    use super::*;
    use pagelab_base::addr::LineAddr;
    use pagelab_base::page_fault::{Intent, Origin};

    const SPACE: Asid = Asid(1);

    struct Setup {
        unit: Victima,
        lines: LineLog,
    }

    fn entry(page: u64, size: PageSize) -> Entry {
        let va = VirtAddr(page << size.shift());
        let target = MachineAddr((page + 1000) << size.shift());
        Entry { asid: SPACE, va, translation: Translation::new(target, size, true, true) }
    }

    impl Setup {
        fn new(config: &VictimaConfig) -> Self {
            let unit = Victima::new(config, "victima", &Rng::new(1, "victima")).unwrap();
            Self { unit, lines: LineLog::default() }
        }

        /// A walk for a page of 4 KiB.
        fn walk(&mut self, page: u64, from_memory: bool) {
            self.lines.leaf = Some(LeafRead { line: LineAddr(500 + page / 8), from_memory });
            self.unit.fill(&entry(page, PageSize::Size4K), FillSource::Walk, &mut self.lines);
        }

        fn fill(&mut self, page: u64, source: FillSource) {
            self.unit.fill(&entry(page, PageSize::Size4K), source, &mut self.lines);
        }

        fn look_up(&mut self, page: u64) -> (bool, u64) {
            let va = VirtAddr(page << 12 | 8);
            let origin = Origin::Program;
            let look_up = UnitLookUp { asid: SPACE, va, pc: 0, intent: Intent::Store, origin, now: Cycles::ZERO };
            let mut cycles = Cycles::ZERO;
            let held = self.unit.look_up(&look_up, &mut self.lines, &mut cycles);
            assert!(held.is_none_or(|held| held.address(va).0 == (page + 1000) << 12 | 8), "{held:?}");
            (held.is_some(), cycles.0)
        }

        fn background(&mut self) -> Vec<u64> {
            let look_up = UnitLookUp {
                asid: SPACE,
                va: VirtAddr(0),
                pc: 0,
                intent: Intent::Load,
                origin: Origin::Program,
                now: Cycles::ZERO,
            };
            let found = entry(0, PageSize::Size4K).translation;
            let walks = self.unit.next_walks(&look_up, found, &mut self.lines);
            walks.iter().map(|va| va.0 >> 12).collect()
        }

        fn measure(&self, name: &str) -> u64 {
            let all = self.unit.measures();
            all.iter().find(|measure| measure.name == name).unwrap_or_else(|| panic!("no {name}")).value
        }
    }

    #[test]
    fn a_page_gets_a_block_once_a_walk_for_it_went_to_memory() {
        let mut setup = Setup::new(&VictimaConfig::default());
        setup.walk(3, false);
        assert_eq!((setup.look_up(3), setup.lines.blocks.len()), ((false, 0), 0));
        setup.walk(3, true);
        assert_eq!(setup.look_up(3), (true, 12));
        assert_eq!(setup.lines.given_up, [500], "the line is turned into the block");
        assert_eq!(setup.look_up(4), (false, 0), "nothing has told of the neighbour");
        let arrives = Cycles::ZERO;
        setup.fill(4, FillSource::Free { distance: 1, arrives });
        setup.fill(8, FillSource::Free { distance: 5, arrives });
        assert_eq!((setup.look_up(4), setup.look_up(8)), ((true, 12), (false, 0)), "page 8 is of another block");
        assert_eq!(setup.lines.written, [500, 500], "the counters in the entry");
        assert_eq!((setup.measure("inserted"), setup.measure("cheap")), (1, 1));
    }

    #[test]
    fn a_page_with_many_walks_is_not_costly() {
        let config = VictimaConfig { most_walks: 3, counters: VictimaCounters::Free, ..VictimaConfig::default() };
        let mut setup = Setup::new(&config);
        (0..3).for_each(|_| setup.walk(3, false));
        setup.walk(3, true);
        assert_eq!((setup.look_up(3).0, setup.measure("cheap")), (false, 4));
        assert!(setup.lines.written.is_empty());
        // The counter stays at its end.
        (0..300).for_each(|_| setup.walk(3, false));
        assert!(!setup.look_up(3).0);
    }

    #[test]
    fn all_pages_get_blocks_while_the_cache_misses_often() {
        let config = VictimaConfig { window: 100, cache_misses_per_1000: 50, ..VictimaConfig::default() };
        let mut setup = Setup::new(&config);
        for (accesses, misses, is_taken) in [(99, 99, false), (100, 4, false), (200, 9, true), (300, 13, false)] {
            setup.lines.data = DataMisses { accesses, misses };
            setup.walk(accesses, false);
            assert_eq!(setup.look_up(accesses).0, is_taken, "{misses} of {accesses}");
        }
    }

    #[test]
    fn the_cache_is_told_when_the_tlb_misses_often() {
        let config = VictimaConfig { window: 100, tlb_misses_per_1000: 50, ..VictimaConfig::default() };
        let mut setup = Setup::new(&config);
        for (accesses, misses, often) in [(100, 4, false), (200, 5, true), (300, 5, true), (400, 4, false)] {
            (0..misses).for_each(|_| _ = setup.look_up(900));
            setup.lines.data = DataMisses { accesses, misses: 0 };
            setup.walk(accesses, false);
            assert_eq!(setup.lines.misses_often, often, "{misses} in a window");
        }
        let mut always = Setup::new(&VictimaConfig { tlb_misses_per_1000: 0, ..config });
        always.look_up(900);
        assert!(always.lines.misses_often);
    }

    #[test]
    fn an_evicted_page_gets_a_block_by_a_walk_in_the_background() {
        let mut setup = Setup::new(&VictimaConfig { insert: VictimaInsert::Eviction, ..VictimaConfig::default() });
        setup.walk(3, true);
        assert!(!setup.look_up(3).0, "walks make no blocks");
        setup.fill(3, FillSource::Eviction);
        setup.fill(4, FillSource::Eviction);
        assert_eq!(setup.background(), [3], "the other is not costly");
        assert!(setup.background().is_empty() && !setup.unit.holds(SPACE, VirtAddr(3 << 12)));
        setup.fill(3, FillSource::Prefetch { arrives: Cycles::ZERO });
        assert!(setup.look_up(3).0 && setup.unit.holds(SPACE, VirtAddr(3 << 12)));
        setup.fill(4, FillSource::Eviction);
        assert!(setup.background().is_empty() && setup.look_up(4).0, "the block has its page");
        assert_eq!((setup.measure("inserted"), setup.measure("inserted_evicted")), (0, 1));
        // The page of another space is not walked for.
        setup.walk(800, true);
        setup.unit.evicted.push((Asid(2), VirtAddr(7 << 12)));
        setup.fill(800, FillSource::Eviction);
        assert_eq!(setup.background(), [800]);
    }

    #[test]
    fn a_set_has_as_many_blocks_as_ways_and_the_cache_says_which() {
        let mut setup = Setup::new(&VictimaConfig::default());
        // Groups 0, 2, 4 are of set 0.
        (0..3).for_each(|group| setup.walk(16 * group, true));
        let held = |setup: &mut Setup| [0, 16, 32].map(|page| setup.look_up(page).0);
        assert_eq!(held(&mut setup), [false, true, true]);
        setup.walk(0, true);
        assert_eq!(held(&mut setup), [true, false, true]);
        setup.lines.blocks.clear();
        assert_eq!(held(&mut setup), [false; 3], "data has taken the ways");
        // Pages of 2 MiB have blocks of their own.
        setup.unit.fill(&entry(5, PageSize::Size2M), FillSource::Walk, &mut setup.lines);
        let held = [5 << 21, (6 << 21) - 1, 6 << 21, 5 << 12].map(|va| setup.unit.holds(SPACE, VirtAddr(va)));
        assert_eq!(held, [true, true, false, false]);
    }

    #[test]
    fn no_block_outlives_a_change_of_one_of_its_pages() {
        for (start, end) in [(5, 6), (0, 8), (7, 9), (0, 1 << 30)] {
            let mut setup = Setup::new(&VictimaConfig::default());
            for page in [0, 3, 8] {
                setup.walk(page, true);
            }
            setup.walk(9, false);
            setup.unit.invalidate(SPACE, VirtAddr(start << 12), VirtAddr(end << 12), &mut setup.lines);
            let other_is_left = end <= 8;
            assert_eq!([0, 3, 8].map(|page| setup.look_up(page).0), [false, false, other_is_left], "{start}..{end}");
            assert_eq!(setup.lines.blocks.len(), usize::from(other_is_left));
            setup.walk(3, false);
            assert!(!setup.look_up(3).0, "the counters are gone with the entry");
            assert_eq!(setup.measure("shot"), 2 - u64::from(other_is_left));
        }
        let mut setup = Setup::new(&VictimaConfig::default());
        setup.walk(0, true);
        setup.unit.invalidate(Asid(2), VirtAddr(0), VirtAddr(1 << 30), &mut setup.lines);
        assert!(setup.look_up(0).0, "another space");
        setup.unit.flush(Asid(2));
        assert!(setup.look_up(0).0, "another space");
        setup.unit.flush(SPACE);
        assert!(!setup.look_up(0).0 && setup.lines.blocks.is_empty());
    }

    #[test]
    fn impossible_parameters_are_refused() {
        let default = VictimaConfig::default();
        for (key, wrong) in [
            ("most_walks", VictimaConfig { most_walks: 0, ..default }),
            ("most_walks", VictimaConfig { most_walks: 16, ..default }),
            ("most_costly", VictimaConfig { most_costly: 8, ..default }),
            ("cache_misses_per_1000", VictimaConfig { cache_misses_per_1000: 1001, ..default }),
            ("tlb_misses_per_1000", VictimaConfig { tlb_misses_per_1000: 1001, ..default }),
            ("window", VictimaConfig { window: 0, ..default }),
        ] {
            let error = Victima::new(&wrong, "victima", &Rng::new(1, "t")).unwrap_err().to_string();
            assert!(error.contains(&format!("victima.{key}")), "{error}");
        }
    }
}
