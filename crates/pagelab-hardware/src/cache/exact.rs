//! A request that misses the L1, for one core and caches whose ways and sets are known at compile time. It takes the
//! same steps as [`super::request`], which describes them and implements them for every hierarchy.
//!
//! Why a second implementation: with known numbers of sets and ways there is no look-up of the geometry, no division
//! and no bounds check. A request for a line that no cache holds then executes 2 to 3 times fewer instructions. Writing
//! a whole page of such lines at once ([`page`]) halves that again: zeroing is the largest part of a simulated page
//! fault (example `cache_rates`).

mod page;

use std::marker::PhantomData;

use self::page::LINES;
use super::array::LineState;
use super::shape::Shape;
use super::streams::LineRuns;
use super::ways::{EMPTY, FixedShape, STATE_MASK, remove_way};
use super::{CoreCacheStats, Hierarchy, HitLevel, RequestOutcome, Requester, SharedCacheStats};
use pagelab_base::addr::LineAddr;
use pagelab_base::host::{Vectors, prefetch};
use pagelab_base::ids::CoreId;

/// The shape: one core; ways and sets of L1, L2 and L3.
pub(super) struct Exact<
    V,
    const W1: usize,
    const S1: usize,
    const W2: usize,
    const S2: usize,
    const W3: usize,
    const S3: usize,
>(PhantomData<V>);

impl<V: Vectors, const W1: usize, const S1: usize, const W2: usize, const S2: usize, const W3: usize, const S3: usize>
    Shape for Exact<V, W1, S1, W2, S2, W3, S3>
{
    const COHERENT: bool = false;
    type L1 = FixedShape<W1, S1, V>;
    type L2 = FixedShape<W2, S2, V>;
    type L3 = FixedShape<W3, S3, V>;

    #[inline(always)]
    fn serve_miss(
        caches: &mut Hierarchy,
        core: CoreId,
        line: LineAddr,
        write: bool,
        requester: Requester,
    ) -> RequestOutcome {
        if requester == Requester::Walk && caches.walker_at_l2 {
            return caches.serve_miss::<Self>(core, line, write, requester);
        }
        let served = Tables::<V, W1, S1, W2, S2, W3, S3>::from_hierarchy(caches).request(line.0, write);
        caches.private[0].stats.served[requester as usize][served as usize] += 1;
        RequestOutcome { served, cycles: caches.latency[served as usize] }
    }

    #[inline(always)]
    fn write_lines(caches: &mut Hierarchy, _core: CoreId, first: LineAddr, lines: u64, found: &mut LineRuns) {
        let mut tables = Tables::<V, W1, S1, W2, S2, W3, S3>::from_hierarchy(caches);
        let (mut line, end) = (first.0, first.0 + lines);
        while line < end {
            let page = LINES as u64;
            if line.is_multiple_of(page) && end - line >= page && tables.write_new_page(line) {
                found.push(HitLevel::Dram as usize, false, page);
                line += page;
                continue;
            }
            let served = if tables.write_l1(line) { HitLevel::L1 } else { tables.request(line, true) };
            found.push(served as usize, false, 1);
            line += 1;
        }
    }
}

/// The sets of all levels, and the statistics.
pub(super) struct Tables<
    'a,
    V,
    const W1: usize,
    const S1: usize,
    const W2: usize,
    const S2: usize,
    const W3: usize,
    const S3: usize,
> {
    l1: &'a mut [[u32; W1]; S1],
    l2: &'a mut [[u32; W2]; S2],
    l3: &'a mut [[u32; W3]; S3],
    inclusive: bool,
    stats: &'a mut CoreCacheStats,
    shared_stats: &'a mut SharedCacheStats,
    vectors: PhantomData<V>,
}

/// Set of a line, and the tag to compare.
#[inline(always)]
fn place<const SETS: usize>(line: u64) -> (usize, u32) {
    ((line % SETS as u64) as usize, ((line / SETS as u64) as u32) << 2)
}

/// Number of the line with this word in this set.
#[inline(always)]
fn line_of<const SETS: usize>(set: usize, word: u32) -> u64 {
    u64::from(word >> 2) * SETS as u64 + set as u64
}

/// Whether `word` is in the modified state; an empty way is not.
#[inline(always)]
fn is_modified(word: u32) -> bool {
    word & STATE_MASK == LineState::MODIFIED.bits()
}

#[inline(always)]
fn find<V: Vectors, const N: usize>(set: &[u32; N], wanted: u32) -> Option<usize> {
    V::position(set, wanted, !STATE_MASK)
}

impl<
    'a,
    V: Vectors,
    const W1: usize,
    const S1: usize,
    const W2: usize,
    const S2: usize,
    const W3: usize,
    const S3: usize,
> Tables<'a, V, W1, S1, W2, S2, W3, S3>
{
    /// Whether the caches have this shape.
    pub fn fit(caches: &Hierarchy) -> bool {
        matches!((&caches.private[..], &caches.l3), ([core], Some(l3)) if core.are::<Exact<V, W1, S1, W2, S2, W3, S3>>(l3))
    }

    #[inline(always)]
    pub fn from_hierarchy(caches: &'a mut Hierarchy) -> Self {
        let private = &mut caches.private[0];
        Self {
            l1: private.l1.table(),
            l2: private.l2.as_mut().expect("the shape has an L2").table(),
            l3: caches.l3.as_mut().expect("the shape has an L3").table(),
            inclusive: caches.inclusive,
            stats: &mut private.stats,
            shared_stats: &mut caches.shared_stats,
            vectors: PhantomData,
        }
    }

    /// A request that enters at the L1.
    #[inline(always)]
    pub fn access(&mut self, line: u64, write: bool, by: Requester) -> HitLevel {
        let (set, wanted) = place::<S1>(line);
        let served = if let Some(way) = find::<V, W1>(&self.l1[set], wanted) {
            let modified = if write { LineState::MODIFIED.bits() } else { 0 };
            let word = self.l1[set][way % W1] | modified;
            V::move_to_front(&mut self.l1[set], way, word);
            HitLevel::L1
        } else {
            self.request(line, write)
        };
        self.stats.served[by as usize][served as usize] += 1;
        served
    }

    /// Prefetches the set of the L3 on the host, since its tags do not fit the host's inner caches.
    #[inline(always)]
    pub fn hint(&self, line: u64) {
        let set = &self.l3[place::<S3>(line).0];
        prefetch(set, 0);
        prefetch(set, W3 - 1);
    }

    /// Step 2 for a write; returns false, with nothing changed, if the L1 does not hold the line.
    #[inline(always)]
    fn write_l1(&mut self, line: u64) -> bool {
        let (set, wanted) = place::<S1>(line);
        let way = find::<V, W1>(&self.l1[set], wanted);
        if let Some(way) = way {
            V::move_to_front(&mut self.l1[set], way, wanted | LineState::MODIFIED.bits());
        }
        way.is_some()
    }

    /// Steps 3 to 7 for a line that the L1 does not hold.
    #[inline(always)]
    fn request(&mut self, line: u64, write: bool) -> HitLevel {
        let (set, wanted) = place::<S2>(line);
        let served = if let Some(way) = find::<V, W2>(&self.l2[set], wanted) {
            let word = self.l2[set][way];
            V::move_to_front(&mut self.l2[set], way, word);
            HitLevel::L2
        } else {
            let served = self.fetch(line);
            let out = V::push_front(&mut self.l2[set], wanted | LineState::EXCLUSIVE.bits());
            if is_modified(out) {
                self.write_back_from_l2(line_of::<S2>(set, out));
            }
            served
        };
        let (set, wanted) = place::<S1>(line);
        let state = if write { LineState::MODIFIED } else { LineState::EXCLUSIVE };
        let out = V::push_front(&mut self.l1[set], wanted | state.bits());
        if is_modified(out) {
            self.write_back_from_l1(line_of::<S1>(set, out));
        }
        served
    }

    /// Steps 5 and 6.
    #[inline(always)]
    fn fetch(&mut self, line: u64) -> HitLevel {
        let (set, wanted) = place::<S3>(line);
        if let Some(way) = find::<V, W3>(&self.l3[set], wanted) {
            let word = self.l3[set][way];
            V::move_to_front(&mut self.l3[set], way, word);
            return HitLevel::L3;
        }
        let out = V::push_front(&mut self.l3[set], wanted | LineState::EXCLUSIVE.bits());
        self.drop_from_l3(set, out);
        HitLevel::Dram
    }

    #[inline(always)]
    fn write_back_from_l1(&mut self, line: u64) {
        self.stats.l1_writebacks += 1;
        let (set, wanted) = place::<S2>(line);
        let word = wanted | LineState::MODIFIED.bits();
        if let Some(way) = find::<V, W2>(&self.l2[set], wanted) {
            V::move_to_front(&mut self.l2[set], way, word);
        } else {
            let out = V::push_front(&mut self.l2[set], word);
            if is_modified(out) {
                self.write_back_from_l2(line_of::<S2>(set, out));
            }
        }
    }

    #[inline(always)]
    fn write_back_from_l2(&mut self, line: u64) {
        self.stats.l2_writebacks += 1;
        let (set, wanted) = place::<S3>(line);
        let word = wanted | LineState::MODIFIED.bits();
        if let Some(way) = find::<V, W3>(&self.l3[set], wanted) {
            V::move_to_front(&mut self.l3[set], way, word);
        } else {
            assert!(!self.inclusive, "a line that left a private cache is missing from the inclusive L3");
            let out = V::push_front(&mut self.l3[set], word);
            self.drop_from_l3(set, out);
        }
    }

    /// Handles the word that left a set of the L3, which may be an empty way.
    #[inline(always)]
    fn drop_from_l3(&mut self, set: usize, word: u32) {
        let mut modified = is_modified(word);
        if self.inclusive && word != EMPTY {
            modified |= self.back_invalidate(line_of::<S3>(set, word));
        }
        self.shared_stats.l3_writebacks += u64::from(modified);
        self.shared_stats.dram_writes += u64::from(modified);
    }

    /// Removes a line from the private caches; true if it was modified there. Usually they no longer hold it.
    #[inline(always)]
    fn back_invalidate(&mut self, line: u64) -> bool {
        let (set1, wanted1) = place::<S1>(line);
        let (set2, wanted2) = place::<S2>(line);
        let in_l1 = find::<V, W1>(&self.l1[set1], wanted1);
        let in_l2 = find::<V, W2>(&self.l2[set2], wanted2);
        self.stats.back_invalidations += u64::from(in_l1.is_some() || in_l2.is_some());
        let newest = in_l1.is_some_and(|way| is_modified(remove_way(&mut self.l1[set1], way, EMPTY)));
        in_l2.is_some_and(|way| is_modified(remove_way(&mut self.l2[set2], way, EMPTY))) || newest
    }
}

#[cfg(test)]
mod tests {
    use pagelab_trace::quantity::Bytes;

    use super::*;
    use crate::cache::shape::{Code, OneCore};
    use crate::cache::slices::hash;
    use crate::cache::test_support::sandy_bridge;
    use crate::cache::ways::AnyWays;
    use crate::cache::{CacheConfig, CacheStats, Inclusion, WalkerEntry};
    use pagelab_base::host::Portable;
    use pagelab_base::rng::Rng;

    /// Sets and ways of levels: every shape with specialised code, and similar shapes without; and slices of the L3.
    const GEOMETRIES: [([[u64; 2]; 3], u32); 9] = [
        ([[64, 8], [1024, 4], [8192, 12]], 1),
        ([[64, 8], [1024, 4], [8192, 12]], 4),
        ([[64, 8], [1024, 4], [12288, 16]], 1),
        ([[64, 8], [1024, 4], [12288, 16]], 6),
        ([[128, 8], [1024, 8], [12288, 20]], 1),
        ([[64, 8], [512, 8], [16384, 20]], 1),
        ([[64, 8], [512, 8], [16384, 20]], 8),
        ([[64, 8], [1024, 4], [4096, 12]], 1),
        ([[64, 8], [512, 8], [4096, 16]], 2),
    ];

    fn config(
        ([l1, l2, l3], slices): ([[u64; 2]; 3], u32),
        inclusion: Inclusion,
        walker_entry: WalkerEntry,
    ) -> CacheConfig {
        let mut config = CacheConfig { walker_entry, ..sandy_bridge() };
        (config.l1.size_bytes, config.l1.ways) = (Bytes(l1[0] * l1[1] * 64), l1[1] as u32);
        let private = config.l2.as_mut().unwrap();
        (private.size_bytes, private.ways) = (Bytes(l2[0] * l2[1] * 64), l2[1] as u32);
        let shared = config.l3.as_mut().unwrap();
        shared.slices = slices;
        (shared.size_bytes, shared.ways, shared.inclusion) = (Bytes(l3[0] * l3[1] * 64), l3[1] as u32, inclusion);
        config
    }

    /// One request drawn from `rng`: uniform over twice the capacity, or on a few sets (lines `together` and those
    /// after them). Some of these lines are requested often; the L3 does not see their hits in private caches, so it
    /// evicts lines that private caches contain.
    fn request(caches: &mut Hierarchy, sets: u64, ways: u64, together: &[u64], rng: &mut Rng) -> u64 {
        let line = LineAddr(match rng.below(4) {
            0 => rng.below(2 * sets * ways),
            1 => together[rng.below(4) as usize] + rng.below(2),
            _ => together[rng.below(3 * ways) as usize] + rng.below(2),
        });
        let cycles = match rng.below(20) {
            0..8 => caches.access(CoreId::FIRST, line, false, Requester::Data).cycles,
            8..14 => caches.access(CoreId::FIRST, line, true, Requester::Data).cycles,
            14..16 => caches.access(CoreId::FIRST, line, false, Requester::Walk).cycles,
            16 if rng.below(2) == 0 => caches.access(CoreId::FIRST, line, true, Requester::Walk).cycles,
            16 => caches.access_locked(CoreId::FIRST, line, Requester::Kernel).cycles,
            17 => return caches.zero_lines(CoreId::FIRST, line, rng.below(130), Requester::Kernel).0,
            18 => {
                // The page is new in most cases.
                let page = LineAddr(rng.below(sets * ways / 8) * 64);
                return caches.zero_lines(CoreId::FIRST, page, 64, Requester::Kernel).0;
            }
            _ => {
                caches.dma_write(line, rng.below(3));
                0
            }
        };
        u64::from(cycles)
    }

    #[test]
    fn every_code_does_the_same() {
        let inclusions = [Inclusion::Inclusive, Inclusion::NonInclusive];
        let entries = [WalkerEntry::L1, WalkerEntry::L2];
        let variants = inclusions.iter().flat_map(|&inclusion| entries.map(|entry| (inclusion, entry)));
        for (geometry, (inclusion, walker_entry)) in
            GEOMETRIES.iter().flat_map(|&geometry| variants.clone().map(move |variant| (geometry, variant)))
        {
            let chosen = Hierarchy::new(&config(geometry, inclusion, walker_entry), 1, 3).unwrap();
            let (mut portable, mut general) = (chosen.clone(), chosen.clone());
            portable.code = Code::with::<Portable>(&chosen.private, chosen.l3.as_ref());
            general.code = Code::for_shape::<OneCore<AnyWays, AnyWays, AnyWays>, Portable>();
            let ([_, _, [sets, ways]], slices) = geometry;
            let in_one_slice = |&n: &u64| hash(n * sets, slices.trailing_zeros()) == 0;
            let together: Vec<u64> = (0..).filter(in_one_slice).take(3 * ways as usize).map(|n| n * sets).collect();
            let run = |mut caches: Hierarchy| -> (Vec<u64>, CacheStats, Vec<_>) {
                let mut rng = Rng::new(6, "exact");
                let mut cycles =
                    vec![caches.zero_lines(CoreId::FIRST, LineAddr(sets / 2), sets * ways, Requester::Kernel).0];
                cycles.extend((0..20_000).map(|_| request(&mut caches, sets, ways, &together, &mut rng)));
                caches.assert_coherent();
                let private = &caches.private[0];
                let arrays = [Some(&private.l1), private.l2.as_ref(), caches.l3.as_ref()];
                (cycles, caches.stats(), arrays.into_iter().flatten().flat_map(|array| array.lines()).collect())
            };
            let expected = run(general);
            let stats = &expected.1.cores[0];
            assert!(stats.l1_writebacks > 100 && stats.l2_writebacks > 100 && expected.1.shared.dram_writes > 100);
            assert_eq!(stats.back_invalidations > 100, inclusion == Inclusion::Inclusive, "{stats:?}");
            assert!(run(portable) == expected, "portable code: {geometry:?}, {inclusion:?}, {walker_entry:?}");
            assert!(run(chosen) == expected, "chosen code: {geometry:?}, {inclusion:?}, {walker_entry:?}");
        }
    }
}
