//! The machines that the fast path is compiled for, and which code a simulation takes.

use std::marker::PhantomData;

use super::core::Core;
use super::listed::Listed;
use super::machine::{Any, Machine, OneCore};
use super::native::Native;
use super::nested::Nested;
use super::walker::Walker;
use crate::base::cycles::Cycles;
#[cfg(target_arch = "x86_64")]
use crate::base::host::avx2;
use crate::base::host::{Portable, Vectors, Work};
use crate::base::ids::{CpuId, LayerId};
use crate::config::{Config, LayerConfig};
use crate::core_model::CoreModel;
use crate::kernel::layer::Layer;
use crate::machine::simulation::{FastPath, Simulation};
use crate::translate::hardware::Hardware;
use pagelab_trace::Access;

/// Who walks.
#[derive(Clone, Copy)]
enum Walks {
    Native,
    Listed,
    Nested,
}

/// The code for a simulation, if its accesses may take the fast path: walks are of one layer, or of guests on their host, and
/// translations come from page tables alone; the core waits for each access, so that it need not be told of hits; and no
/// prefetcher must see each access.
pub(crate) fn choose(config: &Config, hw: &mut Hardware, layers: &[Layer]) -> Option<FastPath> {
    let of = &config.system.layers;
    let is_plain = |of: &LayerConfig| of.direct_segment_bytes.is_none() && of.speculative_table.is_none();
    let are_plain = of.iter().all(is_plain) && layers.iter().all(|layer| !layer.shadowed);
    let is_timed = hw.caches.is_timed();
    if !config.engine.fast_path.0 || !config.engine.kernel_refs.0 || !are_plain || hw.units.is_empty() || is_timed {
        return None;
    }
    CoreModel::new(&config.machine.core, Cycles::ZERO).in_order()?;
    if LayerId::all(layers.len()).any(|layer| hw.mmu_caches.of(0, layer).is_asked_by_entry()) {
        return None;
    }
    let remember = of.iter().all(|layer| layer.page_table.remembers_ways());
    let walks = match (layers.iter().any(|layer| layer.host.is_some()), remember) {
        (false, true) => Walks::Native,
        (false, false) => Walks::Listed,
        (true, true) => Walks::Nested,
        (true, false) => return None,
    };
    #[cfg(target_arch = "x86_64")]
    if avx2::is_available() {
        return Some(vector_code::<avx2::Avx2>(hw, walks));
    }
    Some(code::<Any, Portable>(walks))
}

/// The code for the presets of machines that have a shape of their own, and that of [`Any`] for others.
fn vector_code<V: Vectors>(hw: &mut Hardware, walks: Walks) -> FastPath {
    None.or_else(|| fitting::<OneCore<V, 12, 8, 64, 4, 1024, 12, 8192>, V>(hw, walks))
        .or_else(|| fitting::<OneCore<V, 12, 8, 64, 4, 1024, 16, 12288>, V>(hw, walks))
        .or_else(|| fitting::<OneCore<V, 8, 8, 64, 8, 512, 20, 16384>, V>(hw, walks))
        .or_else(|| fitting::<OneCore<V, 4, 8, 128, 8, 1024, 20, 12288>, V>(hw, walks))
        .unwrap_or_else(|| code::<Any, V>(walks))
}

fn fitting<M: Machine, V: Vectors>(hw: &mut Hardware, walks: Walks) -> Option<FastPath> {
    // Cores are alike.
    let unit = &mut hw.units[0];
    let fits = M::first(&mut unit.l1d).is_some()
        && M::second(&mut unit.l2).is_some()
        && M::caches(&mut hw.caches, 0).is_some();
    fits.then(|| code::<M, V>(walks))
}

/// Where others run beside a program, there mostly are several cores: that code is compiled for any machine alone.
fn code<M: Machine, V: Vectors>(walks: Walks) -> FastPath {
    match walks {
        Walks::Native => {
            FastPath { alone: replay::<ByNative<M>, V, false>, among_others: replay::<ByNative<Any>, Portable, true> }
        }
        Walks::Listed => {
            FastPath { alone: replay::<ByListed<M>, V, false>, among_others: replay::<ByListed<Any>, Portable, true> }
        }
        Walks::Nested => {
            FastPath { alone: replay::<ByNested<M>, V, false>, among_others: replay::<ByNested<Any>, Portable, true> }
        }
    }
}

/// A machine and who walks.
trait Pair {
    type Machine: Machine;
    type Walker<'a>: Walker<'a, Self::Machine>;
}

struct ByNative<M>(PhantomData<M>);
struct ByListed<M>(PhantomData<M>);
struct ByNested<M>(PhantomData<M>);

impl<M: Machine> Pair for ByNative<M> {
    type Machine = M;
    type Walker<'a> = Native<'a, M::Upper<'a>>;
}

impl<M: Machine> Pair for ByListed<M> {
    type Machine = M;
    type Walker<'a> = Listed<'a>;
}

impl<M: Machine> Pair for ByNested<M> {
    type Machine = M;
    type Walker<'a> = Nested<'a, M::Upper<'a>>;
}

/// See [`FastPath`]; compiled for `V`.
fn replay<P: Pair, V: Vectors, const MANY: bool>(
    simulation: &mut Simulation,
    cpu: CpuId,
    accesses: &[Access],
    limit: Cycles,
) -> usize {
    struct Loop<'a, P, const MANY: bool>(&'a mut Simulation, CpuId, &'a [Access], Cycles, PhantomData<P>);
    impl<'a, P: Pair, const MANY: bool> Work for Loop<'a, P, MANY> {
        type Output = usize;

        #[inline(always)]
        fn run<V: Vectors>(self) -> usize {
            // No closure around the loop: it would be a function of its own, which is not compiled for the vectors.
            let Some(mut core) = Core::<P::Machine, P::Walker<'a>>::of(self.0, self.1) else { return 0 };
            core.replay::<MANY>(self.2, self.3)
        }
    }
    V::run(Loop::<P, MANY>(simulation, cpu, accesses, limit, PhantomData))
}
