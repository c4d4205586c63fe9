//! The machines that the fast path is compiled for, and which code a simulation takes.

use std::marker::PhantomData;

use super::core::Core;
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
use crate::kernel::layer::Layer;
use crate::machine::simulation::{FastPath, Simulation};
use crate::translate::hardware::Hardware;
use pagelab_trace::Access;

/// The code for a simulation, if its accesses may take the fast path: walks are of one layer, or of guests on their host, and
/// translations come from page tables alone.
pub(crate) fn choose(config: &Config, hw: &mut Hardware, layers: &[Layer]) -> Option<FastPath> {
    let is_plain = |of: &LayerConfig| of.direct_segment_bytes.is_none() && of.speculative_table.is_none();
    let are_plain = config.system.layers.iter().all(is_plain) && layers.iter().all(|layer| !layer.shadowed);
    if !config.engine.fast_path.0 || !config.engine.kernel_refs.0 || !are_plain || hw.units.is_empty() {
        return None;
    }
    if LayerId::all(layers.len()).any(|layer| hw.mmu_caches.of(0, layer).is_asked_by_entry()) {
        return None;
    }
    let hosts = layers.iter().any(|layer| layer.host.is_some());
    #[cfg(target_arch = "x86_64")]
    if avx2::is_available() {
        return Some(compiled_for::<avx2::Avx2>(hw, layers.len(), hosts));
    }
    Some(compiled_for::<Portable>(hw, layers.len(), hosts))
}

/// The code for the presets of machines that have a shape of their own, and that of [`Any`] for others.
fn compiled_for<V: Vectors>(hw: &mut Hardware, layers: usize, hosts: bool) -> FastPath {
    None.or_else(|| fitting::<OneCore<V, 12, 8, 64, 4, 1024, 12, 8192>, V>(hw, layers, hosts))
        .or_else(|| fitting::<OneCore<V, 12, 8, 64, 4, 1024, 16, 12288>, V>(hw, layers, hosts))
        .or_else(|| fitting::<OneCore<V, 8, 8, 64, 8, 512, 20, 16384>, V>(hw, layers, hosts))
        .or_else(|| fitting::<OneCore<V, 4, 8, 128, 8, 1024, 20, 12288>, V>(hw, layers, hosts))
        .unwrap_or_else(|| code::<Any, V>(hosts))
}

fn fitting<M: Machine, V: Vectors>(hw: &mut Hardware, layers: usize, hosts: bool) -> Option<FastPath> {
    // Cores are alike.
    let unit = &mut hw.units[0];
    let fits = M::first(&mut unit.l1d).is_some()
        && M::second(&mut unit.l2).is_some()
        && LayerId::all(layers).all(|layer| M::upper(hw.mmu_caches.of(0, layer)).is_some())
        && M::caches(&mut hw.caches, 0).is_some();
    fits.then(|| code::<M, V>(hosts))
}

fn code<M: Machine, V: Vectors>(hosts: bool) -> FastPath {
    if hosts {
        FastPath { alone: replay_nested::<M, V, false>, among_others: replay_nested::<M, V, true> }
    } else {
        FastPath { alone: replay_native::<M, V, false>, among_others: replay_native::<M, V, true> }
    }
}

/// A run of accesses to be made.
struct Run<'a, M, const MANY: bool> {
    simulation: &'a mut Simulation,
    cpu: CpuId,
    accesses: &'a [Access],
    limit: Cycles,
    machine: PhantomData<M>,
}

/// The same under a host.
struct NestedRun<'a, M, const MANY: bool>(Run<'a, M, MANY>);

impl<'a, M: Machine, const MANY: bool> Run<'a, M, MANY> {
    fn new(simulation: &'a mut Simulation, cpu: CpuId, accesses: &'a [Access], limit: Cycles) -> Self {
        Self { simulation, cpu, accesses, limit, machine: PhantomData }
    }

    #[inline(always)]
    fn replay<W: Walker<'a, M>>(self) -> usize {
        // No closure around the loop: it would be a function of its own, which is not compiled for the vectors.
        let Some(mut core) = Core::<M, W>::of(self.simulation, self.cpu) else { return 0 };
        core.replay::<MANY>(self.accesses, self.limit)
    }
}

impl<'a, M: Machine, const MANY: bool> Work for Run<'a, M, MANY> {
    type Output = usize;

    #[inline(always)]
    fn run<V: Vectors>(self) -> usize {
        self.replay::<Native<'a, M::Upper<'a>>>()
    }
}

impl<'a, M: Machine, const MANY: bool> Work for NestedRun<'a, M, MANY> {
    type Output = usize;

    #[inline(always)]
    fn run<V: Vectors>(self) -> usize {
        self.0.replay::<Nested<'a, M::Upper<'a>>>()
    }
}

/// See [`FastPath`]; compiled for `V`.
fn replay_native<M: Machine, V: Vectors, const MANY: bool>(
    simulation: &mut Simulation,
    cpu: CpuId,
    accesses: &[Access],
    limit: Cycles,
) -> usize {
    V::run(Run::<M, MANY>::new(simulation, cpu, accesses, limit))
}

/// The same under a host.
fn replay_nested<M: Machine, V: Vectors, const MANY: bool>(
    simulation: &mut Simulation,
    cpu: CpuId,
    accesses: &[Access],
    limit: Cycles,
) -> usize {
    V::run(NestedRun(Run::<M, MANY>::new(simulation, cpu, accesses, limit)))
}
