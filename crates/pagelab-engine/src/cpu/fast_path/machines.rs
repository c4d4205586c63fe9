//! The machines that the fast path is compiled for.

use super::core::Core;
use crate::base::assoc::AssocArray;
use crate::base::cycles::Cycles;
#[cfg(target_arch = "x86_64")]
use crate::base::host::avx2;
use crate::base::host::{Portable, Vectors, Work};
use crate::base::ids::CpuId;
use crate::base::lru_sets::LruSets;
use crate::cache::{AnyCaches, CoreCaches, Hierarchy, KnownCaches};
use crate::config::Config;
use crate::machine::simulation::{FastPath, Simulation};
use crate::mmu_cache::{CommonArrays, MmuCache, Pass};
use crate::translate::hardware::Hardware;
use crate::translate::tlb::Tlb;
use crate::translate::tlb_arrays::{AnyArrays, Apart, Arrays, Level, Together};
use pagelab_trace::Access;

/// What is known of a machine when the loop is compiled. Each part is none if the machine has another.
pub(super) trait Machine {
    type First<'a>: Arrays;
    type Second<'a>: Arrays;
    type Upper<'a>: Pass;
    type Caches<'a>: CoreCaches;

    /// Its first-level data TLB.
    fn first(tlb: &mut Tlb) -> Option<Level<'_, Self::First<'_>>>;
    /// Its second-level TLB.
    fn second(tlb: &mut Tlb) -> Option<Level<'_, Self::Second<'_>>>;
    /// The MMU cache.
    fn upper(cache: &mut MmuCache) -> Option<Self::Upper<'_>>;
    /// The data caches of a core.
    fn caches(all: &mut Hierarchy, core: usize) -> Option<Self::Caches<'_>>;
}

/// Any machine.
struct Any;

impl Machine for Any {
    type First<'a> = AnyArrays<'a>;
    type Second<'a> = AnyArrays<'a>;
    type Upper<'a> = &'a mut MmuCache;
    type Caches<'a> = AnyCaches<'a>;

    #[inline(always)]
    fn first(tlb: &mut Tlb) -> Option<Level<'_, AnyArrays<'_>>> {
        tlb.level(|arrays, array_of| Some(AnyArrays { arrays, array_of }))
    }

    #[inline(always)]
    fn second(tlb: &mut Tlb) -> Option<Level<'_, AnyArrays<'_>>> {
        Self::first(tlb)
    }

    #[inline(always)]
    fn upper(cache: &mut MmuCache) -> Option<&mut MmuCache> {
        Some(cache)
    }

    #[inline(always)]
    fn caches(all: &mut Hierarchy, core: usize) -> Option<AnyCaches<'_>> {
        Some(AnyCaches { all, core })
    }
}

/// One core of Intel's since Sandy Bridge: 64 first-level TLB entries of 4 ways for pages of 4 KiB and 32 of 4 for those of 2 MiB, a
/// second level of 128 sets of `T` ways, the common MMU cache, and data caches of some ways and sets.
struct OneCore<
    V,
    const T: usize,
    const W1: usize,
    const S1: usize,
    const W2: usize,
    const S2: usize,
    const W3: usize,
    const S3: usize,
>(std::marker::PhantomData<V>);

impl<
    V: Vectors,
    const T: usize,
    const W1: usize,
    const S1: usize,
    const W2: usize,
    const S2: usize,
    const W3: usize,
    const S3: usize,
> Machine for OneCore<V, T, W1, S1, W2, S2, W3, S3>
{
    type First<'a> = Apart<LruSets<'a, V, 4, 16>, LruSets<'a, V, 4, 8>, &'a mut AssocArray>;
    type Second<'a> = Together<LruSets<'a, V, T, 128>, &'a mut AssocArray>;
    type Upper<'a> = CommonArrays<'a, V>;
    type Caches<'a> = KnownCaches<'a, V, W1, S1, W2, S2, W3, S3>;

    #[inline(always)]
    fn first(tlb: &mut Tlb) -> Option<Level<'_, Self::First<'_>>> {
        tlb.level(|arrays, array_of| match (arrays, array_of) {
            ([small, large, huge], [Some(0), Some(1), Some(2)]) => {
                Some(Apart(LruSets::of(small)?, LruSets::of(large)?, Some(huge)))
            }
            _ => None,
        })
    }

    #[inline(always)]
    fn second(tlb: &mut Tlb) -> Option<Level<'_, Self::Second<'_>>> {
        tlb.level(|arrays, array_of| match (arrays, array_of) {
            ([both, huge], [Some(0), Some(0), Some(1)]) => Some(Together(LruSets::of(both)?, Some(huge))),
            ([both], [Some(0), Some(0) | None, None]) => Some(Together(LruSets::of(both)?, None)),
            _ => None,
        })
    }

    #[inline(always)]
    fn upper(cache: &mut MmuCache) -> Option<CommonArrays<'_, V>> {
        cache.common_arrays()
    }

    #[inline(always)]
    fn caches(all: &mut Hierarchy, _: usize) -> Option<Self::Caches<'_>> {
        KnownCaches::of(all)
    }
}

/// The code for a simulation, if its accesses may take the fast path: those of one layer, whose translations come from its page
/// table alone.
pub(crate) fn choose(config: &Config, hw: &mut Hardware) -> Option<FastPath> {
    let is_plain = matches!(
        &config.system.layers[..],
        [only] if only.direct_segment_bytes.is_none() && only.speculative_table.is_none()
    );
    if !config.engine.fast_path.0 || !config.engine.kernel_refs.0 || !is_plain || hw.units.is_empty() {
        return None;
    }
    #[cfg(target_arch = "x86_64")]
    if avx2::is_available() {
        return Some(compiled_for::<avx2::Avx2>(hw));
    }
    Some(compiled_for::<Portable>(hw))
}

/// The code for the presets of machines that have a shape of their own, and that of [`Any`] for others.
fn compiled_for<V: Vectors>(hw: &mut Hardware) -> FastPath {
    None.or_else(|| fitting::<OneCore<V, 12, 8, 64, 4, 1024, 12, 8192>, V>(hw))
        .or_else(|| fitting::<OneCore<V, 12, 8, 64, 4, 1024, 16, 12288>, V>(hw))
        .or_else(|| fitting::<OneCore<V, 8, 8, 64, 8, 512, 20, 16384>, V>(hw))
        .or_else(|| fitting::<OneCore<V, 4, 8, 128, 8, 1024, 20, 12288>, V>(hw))
        .unwrap_or_else(code::<Any, V>)
}

fn fitting<M: Machine, V: Vectors>(hw: &mut Hardware) -> Option<FastPath> {
    // Cores are alike.
    let unit = &mut hw.units[0];
    let fits = M::first(&mut unit.l1d).is_some()
        && M::second(&mut unit.l2).is_some()
        && M::upper(hw.mmu_caches.of(0, 0.into())).is_some()
        && M::caches(&mut hw.caches, 0).is_some();
    fits.then(code::<M, V>)
}

fn code<M: Machine, V: Vectors>() -> FastPath {
    FastPath { alone: replay::<M, V, false>, among_others: replay::<M, V, true> }
}

/// See [`FastPath`]; compiled for `V`.
fn replay<M: Machine, V: Vectors, const MANY: bool>(
    simulation: &mut Simulation,
    cpu: CpuId,
    accesses: &[Access],
    limit: Cycles,
) -> usize {
    struct Loop<'a, M, const MANY: bool>(&'a mut Simulation, CpuId, &'a [Access], Cycles, std::marker::PhantomData<M>);
    impl<M: Machine, const MANY: bool> Work for Loop<'_, M, MANY> {
        type Output = usize;

        #[inline(always)]
        fn run<V: Vectors>(self) -> usize {
            // No closure around the loop: it would be a function of its own, not compiled for `V`.
            let Some(mut core) = Core::<M>::of(self.0, self.1) else { return 0 };
            core.replay::<MANY>(self.2, self.3)
        }
    }
    V::run(Loop::<M, MANY>(simulation, cpu, accesses, limit, std::marker::PhantomData))
}
