//! The shapes of a machine that the fast path is compiled for.

use std::marker::PhantomData;

use super::stage_units::{NoStages, StageUnits};
use pagelab_base::assoc::AssocArray;
use pagelab_base::host::Vectors;
use pagelab_base::ids::CoreId;
use pagelab_base::lru_sets::LruSets;
use pagelab_hardware::cache::{AnyCaches, BypassedCaches, CoreCaches, Hierarchy, KnownCaches, TimedCaches};
use pagelab_tables::mmu_cache::{MmuCache, Pass, Upper};
use pagelab_translate::stages::Stages;
use pagelab_translate::tlb::Tlb;
use pagelab_translate::tlb_arrays::{AnyArrays, Arrays, Level, SharedArray, SplitArrays};

/// The shapes of a machine that the fast path is compiled for. A function returns `None` if the machine has another
/// shape.
pub(super) trait MachineShape {
    type First<'a>: Arrays;
    type Second<'a>: Arrays;
    type Upper<'a>: Pass;
    type Caches<'a>: CoreCaches;
    type Stages<'a>: StageUnits<'a>;

    /// Its first-level data TLB.
    fn first(tlb: &mut Tlb) -> Option<Level<'_, Self::First<'_>>>;
    /// Its second-level TLB.
    fn second(tlb: &mut Tlb) -> Option<Level<'_, Self::Second<'_>>>;
    /// The MMU cache.
    fn upper(cache: &mut MmuCache) -> Self::Upper<'_>;
    /// The data caches of a core.
    fn caches(all: &mut Hierarchy, core: CoreId) -> Option<Self::Caches<'_>>;
}

/// The part of a shape that translates addresses, for machines with the TLBs and the MMU cache of another.
macro_rules! translates_as {
    ($M:ident) => {
        type First<'a> = $M::First<'a>;
        type Second<'a> = $M::Second<'a>;
        type Upper<'a> = $M::Upper<'a>;

        #[inline(always)]
        fn first(tlb: &mut Tlb) -> Option<Level<'_, $M::First<'_>>> {
            $M::first(tlb)
        }

        #[inline(always)]
        fn second(tlb: &mut Tlb) -> Option<Level<'_, $M::Second<'_>>> {
            $M::second(tlb)
        }

        #[inline(always)]
        fn upper(cache: &mut MmuCache) -> $M::Upper<'_> {
            $M::upper(cache)
        }
    };
}

/// A machine with the TLBs of `M`, caches of any shape, and units after the TLBs.
pub(super) struct Staged<M>(PhantomData<M>);

impl<M: MachineShape> MachineShape for Staged<M> {
    translates_as!(M);
    type Caches<'a> = AnyCaches<'a>;
    type Stages<'a> = Stages<'a>;

    #[inline(always)]
    fn caches(all: &mut Hierarchy, core: CoreId) -> Option<AnyCaches<'_>> {
        AnyMachine::caches(all, core)
    }
}

/// A machine of any shape.
pub(super) struct AnyMachine;

impl MachineShape for AnyMachine {
    type First<'a> = AnyArrays<'a>;
    type Second<'a> = AnyArrays<'a>;
    type Upper<'a> = &'a mut MmuCache;
    type Caches<'a> = AnyCaches<'a>;
    type Stages<'a> = NoStages;

    #[inline(always)]
    fn first(tlb: &mut Tlb) -> Option<Level<'_, AnyArrays<'_>>> {
        tlb.level(|arrays, array_of| Some(AnyArrays { arrays, array_of }))
    }

    #[inline(always)]
    fn second(tlb: &mut Tlb) -> Option<Level<'_, AnyArrays<'_>>> {
        Self::first(tlb)
    }

    #[inline(always)]
    fn upper(cache: &mut MmuCache) -> &mut MmuCache {
        cache
    }

    #[inline(always)]
    fn caches(all: &mut Hierarchy, core: CoreId) -> Option<AnyCaches<'_>> {
        Some(AnyCaches { all, core })
    }
}

/// A machine with the TLBs of `M` whose requests have times.
pub(super) struct Timed<M>(PhantomData<M>);

impl<M: MachineShape> MachineShape for Timed<M> {
    translates_as!(M);
    type Caches<'a> = TimedCaches<'a>;
    type Stages<'a> = NoStages;

    #[inline(always)]
    fn caches(all: &mut Hierarchy, core: CoreId) -> Option<TimedCaches<'_>> {
        TimedCaches::from_hierarchy(all, core)
    }
}

/// A machine whose walks bypass the caches (`engine.kernel_refs`).
pub(super) struct Bypassed<M>(PhantomData<M>);

impl<M: MachineShape> MachineShape for Bypassed<M> {
    translates_as!(M);
    type Caches<'a> = BypassedCaches<M::Caches<'a>>;
    type Stages<'a> = NoStages;

    #[inline(always)]
    fn caches(all: &mut Hierarchy, core: CoreId) -> Option<BypassedCaches<M::Caches<'_>>> {
        let latency = all.l1_latency().into();
        Some(BypassedCaches { caches: M::caches(all, core)?, latency })
    }
}

/// One core of Intel's processors since Sandy Bridge: a first-level TLB with 64 entries of 4 ways for 4 KiB pages and
/// 32 of 4 ways for 2 MiB pages, a second-level TLB of 128 sets of `T` ways, and data caches with the given ways and
/// sets.
pub(super) struct OneCore<
    V,
    const T: usize,
    const W1: usize,
    const S1: usize,
    const W2: usize,
    const S2: usize,
    const W3: usize,
    const S3: usize,
>(PhantomData<V>);

impl<
    V: Vectors,
    const T: usize,
    const W1: usize,
    const S1: usize,
    const W2: usize,
    const S2: usize,
    const W3: usize,
    const S3: usize,
> MachineShape for OneCore<V, T, W1, S1, W2, S2, W3, S3>
{
    type First<'a> = SplitArrays<LruSets<'a, V, 4, 16>, LruSets<'a, V, 4, 8>, &'a mut AssocArray>;
    type Second<'a> = SharedArray<LruSets<'a, V, T, 128>, &'a mut AssocArray>;
    type Upper<'a> = Upper<'a, V>;
    type Caches<'a> = KnownCaches<'a, V, W1, S1, W2, S2, W3, S3>;
    type Stages<'a> = NoStages;

    #[inline(always)]
    fn first(tlb: &mut Tlb) -> Option<Level<'_, Self::First<'_>>> {
        tlb.level(|arrays, array_of| match (arrays, array_of) {
            ([small, large, huge], [Some(0), Some(1), Some(2)]) => {
                Some(SplitArrays(LruSets::from_array(small)?, LruSets::from_array(large)?, Some(huge)))
            }
            _ => None,
        })
    }

    #[inline(always)]
    fn second(tlb: &mut Tlb) -> Option<Level<'_, Self::Second<'_>>> {
        tlb.level(|arrays, array_of| match (arrays, array_of) {
            ([both, huge], [Some(0), Some(0), Some(1)]) => Some(SharedArray(LruSets::from_array(both)?, Some(huge))),
            ([both], [Some(0), Some(0) | None, None]) => Some(SharedArray(LruSets::from_array(both)?, None)),
            _ => None,
        })
    }

    #[inline(always)]
    fn upper(cache: &mut MmuCache) -> Upper<'_, V> {
        Upper::new(cache)
    }

    #[inline(always)]
    fn caches(all: &mut Hierarchy, _: CoreId) -> Option<Self::Caches<'_>> {
        KnownCaches::from_hierarchy(all)
    }
}
