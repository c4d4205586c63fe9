//! Blocks of translations in the ways of a second-level cache.
//!
//! A block takes a way as a line does, by the same policy, and is never modified: its victims are dropped. Nothing but
//! the owner of the blocks asks for it, so other levels and cores do not know it. In the array it is a line with one of
//! the highest tags, which the machine's memory never has: it ends at a power of two of lines, at least 128 tags below
//! the limit.

use super::array::{Array, LineState, SetAndTag};
use super::prefetch::CacheLevel;
use super::shape::Anything;
use super::ways::{AnyWays, BLOCK_TAGS, TAG_LIMIT};
use super::{CoreCacheStats, Hierarchy, HitLevel, Requester};
use pagelab_base::addr::LineAddr;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::CoreId;

/// Shape and latency of a second-level cache that can hold blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCache {
    /// Number of sets.
    pub sets: u64,
    /// Ways of a set.
    pub ways: usize,
    /// Cycles of a hit.
    pub latency: Cycles,
}

/// A block of a core's second-level cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockPlace {
    /// The set.
    pub set: usize,
    /// Which of the blocks of that set, below [`BlockPlace::MOST`].
    pub number: usize,
}

impl BlockPlace {
    /// Blocks of a set that are told apart: one more than there can be in a set at a time.
    pub const MOST: usize = BLOCK_TAGS as usize;
}

/// Accesses of a program and how many of them a core's first two levels of caches did not serve, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataMisses {
    /// Accesses.
    pub accesses: u64,
    /// Those that neither of the two levels served.
    pub misses: u64,
}

/// Where a block can be.
fn place(l2: &Array, block: BlockPlace) -> SetAndTag {
    debug_assert!(block.number < BlockPlace::MOST, "{block:?}");
    l2.place_of(block.set, (TAG_LIMIT - 1) as u32 - block.number as u32)
}

impl Hierarchy {
    /// The second-level cache of each core, if there is one.
    pub fn block_cache(&self) -> Option<BlockCache> {
        let latency = self.latency[HitLevel::L2 as usize].into();
        let l2 = self.private[CoreId::FIRST].l2.as_ref()?;
        Some(BlockCache { sets: l2.sets(), ways: l2.ways(), latency })
    }

    /// Whether a core's second-level cache holds a block; changes nothing.
    pub fn holds_block(&self, core: CoreId, block: BlockPlace) -> bool {
        let l2 = self.private[core].l2.as_ref();
        l2.is_some_and(|l2| l2.find::<AnyWays>(place(l2, block)).is_some())
    }

    /// Looks up a block; true if it is there, and the policy takes note.
    pub fn look_up_block(&mut self, core: CoreId, block: BlockPlace) -> bool {
        let Some(l2) = &mut self.private[core].l2 else { return false };
        let at = place(l2, block);
        let way = l2.find::<AnyWays>(at);
        way.is_some_and(|way| {
            l2.promote::<AnyWays>(at, way);
            true
        })
    }

    /// Inserts a block that is absent; the policy's victim leaves the cache, as for a line of data.
    pub fn insert_block(&mut self, core: CoreId, block: BlockPlace) {
        let Some(l2) = &mut self.private[core].l2 else { return };
        let at = place(l2, block);
        let evicted = l2.fill::<AnyWays>(at, LineState::EXCLUSIVE, 0);
        let line = l2.line_at(at);
        self.note_fill::<Anything>(CacheLevel::L2, core, line, evicted.as_ref());
        self.write_back_from_l2::<Anything>(core, evicted);
    }

    /// Removes a block, if it is there.
    pub fn drop_block(&mut self, core: CoreId, block: BlockPlace) {
        let Some(l2) = &mut self.private[core].l2 else { return };
        let at = place(l2, block);
        if let Some(way) = l2.find::<AnyWays>(at) {
            l2.remove(at, way);
        }
    }

    /// Says to the second-level cache of a core whether its TLB misses often, for policies that keep blocks then.
    pub fn set_misses_often(&mut self, core: CoreId, often: bool) {
        if let Some(l2) = &mut self.private[core].l2 {
            l2.set_misses_often(often);
        }
    }

    /// Takes a line out of a core's second-level cache, whose way a block is to get. If it was modified, the L3 gets
    /// it, or memory.
    pub fn give_up_line(&mut self, core: CoreId, line: LineAddr) {
        let Some(l2) = &mut self.private[core].l2 else { return };
        let Some(state) = l2.remove_line::<AnyWays>(line) else { return };
        self.note_loss::<Anything>(&[CacheLevel::L2], core, line);
        if state == LineState::MODIFIED {
            self.private[core].stats.l2_writebacks += 1;
            self.write_to_l3::<Anything>(line);
        }
    }

    /// The data accesses of a core since the start.
    pub fn data_misses(&self, core: CoreId) -> DataMisses {
        let CoreCacheStats { served, .. } = &self.private[core].stats;
        let served = &served[Requester::Data as usize];
        let accesses: u64 = served.iter().sum();
        DataMisses { accesses, misses: accesses - served[HitLevel::L1 as usize] - served[HitLevel::L2 as usize] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::config::ReplacementPolicy;
    use crate::cache::test_support::sandy_bridge;
    use pagelab_base::rng::Rng;

    const CORE: CoreId = CoreId::FIRST;

    fn lines_in_l2(caches: &Hierarchy) -> usize {
        caches.private[CORE].l2.as_ref().unwrap().lines().count()
    }

    #[test]
    fn blocks_take_ways_of_lines_and_give_them_back() {
        let mut caches = Hierarchy::new(&sandy_bridge(), 1, 1).unwrap();
        let BlockCache { sets, ways, latency } = caches.block_cache().unwrap();
        assert_eq!((sets, ways, latency), (512, 8, Cycles(12)));
        let block = |number| BlockPlace { set: 3, number };
        for number in 0..ways {
            assert!(!caches.look_up_block(CORE, block(number)));
            caches.insert_block(CORE, block(number));
        }
        assert!(caches.look_up_block(CORE, block(0)));
        // The set is full of blocks; block 1 is the least recently used.
        assert_eq!(caches.access(CORE, LineAddr(3 + 512), false, Requester::Data).served, HitLevel::Dram);
        let held: Vec<bool> = (0..=ways).map(|number| caches.holds_block(CORE, block(number))).collect();
        assert_eq!(held, [true, false, true, true, true, true, true, true, false]);
        assert_eq!(lines_in_l2(&caches), 8);
        caches.drop_block(CORE, block(2));
        caches.drop_block(CORE, block(2));
        assert!(!caches.holds_block(CORE, block(2)) && lines_in_l2(&caches) == 7);
        assert!(!caches.holds_block(CORE, BlockPlace { set: 4, number: 0 }));
    }

    #[test]
    fn modified_lines_that_make_room_are_written_back() {
        for inclusive in [false, true] {
            let mut config = sandy_bridge();
            if !inclusive {
                config.l3.as_mut().unwrap().inclusion = crate::cache::Inclusion::NonInclusive;
            }
            let mut caches = Hierarchy::new(&config, 1, 1).unwrap();
            // Walks of this machine enter at the L1; what it evicts modified comes to the L2.
            for n in 0..9 {
                caches.access(CORE, LineAddr(5 + n * 512), true, Requester::Walk);
            }
            let in_l2 = |caches: &Hierarchy| caches.private[CORE].l2.as_ref().unwrap().state_of::<AnyWays>(LineAddr(5));
            assert_eq!(in_l2(&caches), Some(LineState::MODIFIED));
            caches.give_up_line(CORE, LineAddr(5));
            assert_eq!(in_l2(&caches), None);
            assert_eq!(caches.stats().cores[0].l2_writebacks, 1);
            let in_l3 = caches.l3.as_ref().unwrap().state_of::<AnyWays>(LineAddr(5));
            assert_eq!(in_l3, Some(LineState::MODIFIED));
            caches.give_up_line(CORE, LineAddr(5));
            assert_eq!(caches.stats().cores[0].l2_writebacks, 1, "it is gone");
        }
    }

    #[test]
    fn blocks_and_lines_together_fill_a_set_under_every_policy() {
        use ReplacementPolicy::{KeepBlocks, Lru, Random, Srrip};
        for policy in [Lru, Srrip, Random, KeepBlocks] {
            let mut config = sandy_bridge();
            config.l2.as_mut().unwrap().policy = policy;
            let mut caches = Hierarchy::new(&config, 1, 1).unwrap();
            let mut rng = Rng::new(9, "blocks");
            for _ in 0..20_000 {
                let (set, number) = (rng.below(2) as usize, rng.below(9) as usize);
                let block = BlockPlace { set, number };
                match rng.below(4) {
                    0 if !caches.look_up_block(CORE, block) => caches.insert_block(CORE, block),
                    0 => caches.drop_block(CORE, block),
                    _ => {
                        let line = LineAddr(set as u64 + 512 * rng.below(24));
                        caches.access(CORE, line, rng.below(2) == 0, Requester::Data);
                    }
                }
                let l2 = caches.private[CORE].l2.as_ref().unwrap();
                let first_block = (TAG_LIMIT - BLOCK_TAGS) * 512;
                let blocks: Vec<_> = l2.lines().filter(|(line, _)| line.0 >= first_block).collect();
                assert!(blocks.iter().all(|(_, state)| *state == LineState::EXCLUSIVE));
                let held = (0..2).flat_map(|set| (0..9).map(move |number| BlockPlace { set, number }));
                assert_eq!(held.filter(|&block| caches.holds_block(CORE, block)).count(), blocks.len());
            }
        }
    }
}
