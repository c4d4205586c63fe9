//! The machines that the fast path is compiled for, and the choice of the code for a simulation.

use std::iter::successors;
use std::marker::PhantomData;

use super::core::FastCore;
use super::eligibility::{hardware_is_eligible, has_stages, is_eligible};
use super::listed::Listed;
use super::machine::{AnyMachine, Bypassed, MachineShape, OneCore, Staged, Timed};
use super::native::Native;
use super::nested::Nested;
use super::nested_listed::NestedListed;
use super::three_layers::ThreeLayers;
use super::walker::Walker;
use crate::machine::simulation::{FastPath, Simulation};
use pagelab_base::cycles::Cycles;
#[cfg(target_arch = "x86_64")]
use pagelab_base::host::avx2;
use pagelab_base::host::{Portable, VectorWork, Vectors};
use pagelab_base::ids::{CoreId, CpuId};
use pagelab_hardware::core_model::{CompiledCore, CoreConfig, InOrder, Window};
use pagelab_kernel::layer::Layer;
use pagelab_run::config::Config;
use pagelab_trace::{Access, Branches};
use pagelab_translate::hardware::Hardware;

/// The kind of walker.
#[derive(Clone, Copy)]
enum Walks {
    Native,
    Listed,
    Nested,
    NestedListed,
}

/// Chooses the code for a simulation, if the fast path can simulate it: walks must be of one layer, of guests on their
/// host, or of guests of guests.
pub(crate) fn choose(config: &Config, hw: &mut Hardware, layers: &[Layer]) -> Option<FastPath> {
    if !is_eligible(config) || !hardware_is_eligible(hw, layers.len()) {
        return None;
    }
    let depth = |layer: &Layer| successors(Some(layer), |layer| Some(&layers[layer.host?.layer])).count();
    match layers.iter().map(depth).max()? {
        ..=2 => {}
        3 => return choose_for_three_layers(config, hw),
        4.. => return None,
    }
    let remember = config.system.layers.iter().all(|layer| layer.page_table.remembers_ways());
    let walks = match (layers.iter().any(|layer| layer.host.is_some()), remember) {
        (false, true) => Walks::Native,
        (false, false) => Walks::Listed,
        (true, true) => Walks::Nested,
        (true, false) => Walks::NestedListed,
    };
    Some(match config.machine.core {
        CoreConfig::InOrder(_) => code_of::<InOrder>(hw, walks),
        CoreConfig::Window(_) => code_of::<Window>(hw, walks),
    })
}

/// The code for guests of guests. All tables must remember ways, and there must be nothing that has a loop of its own.
fn choose_for_three_layers(config: &Config, hw: &Hardware) -> Option<FastPath> {
    let remember = config.system.layers.iter().all(|layer| layer.page_table.remembers_ways());
    let is_plain = !hw.caches.is_timed() && hw.kernel_refs && !has_stages(hw);
    (remember && is_plain).then(|| match config.machine.core {
        CoreConfig::InOrder(_) => code_for_three_layers::<InOrder>(),
        CoreConfig::Window(_) => code_for_three_layers::<Window>(),
    })
}

fn code_for_three_layers<C: CompiledCore>() -> FastPath {
    FastPath {
        alone: replay::<ByThreeLayers, C, Portable, false>,
        with_other_cpus: replay::<ByThreeLayers, C, Portable, true>,
    }
}

fn code_of<C: CompiledCore>(hw: &mut Hardware, walks: Walks) -> FastPath {
    if hw.caches.is_timed() {
        return timed_code::<C>(hw, walks);
    }
    if has_stages(hw) {
        return staged_code::<C>(hw, walks);
    }
    if !hw.kernel_refs {
        return bypassed_code::<C>(hw, walks);
    }
    #[cfg(target_arch = "x86_64")]
    if avx2::is_available() {
        return vector_code::<avx2::Avx2, C>(hw, walks);
    }
    code::<AnyMachine, AnyMachine, Portable, C>(walks)
}

/// The code for machines whose requests have times.
fn timed_code<C: CompiledCore>(hw: &mut Hardware, walks: Walks) -> FastPath {
    type Any = Timed<AnyMachine>;
    #[cfg(target_arch = "x86_64")]
    if avx2::is_available() {
        type Known<const T: usize> = Timed<OneCore<avx2::Avx2, T, 0, 0, 0, 0, 0, 0>>;
        return None
            .or_else(|| fitting::<Known<12>, Any, avx2::Avx2, C>(hw, walks))
            .unwrap_or_else(|| code::<Any, Any, avx2::Avx2, C>(walks));
    }
    code::<Any, Any, Portable, C>(walks)
}

/// The code for machines with units after the TLBs.
fn staged_code<C: CompiledCore>(hw: &mut Hardware, walks: Walks) -> FastPath {
    type Any = Staged<AnyMachine>;
    #[cfg(target_arch = "x86_64")]
    if avx2::is_available() {
        type Known = Staged<OneCore<avx2::Avx2, 12, 0, 0, 0, 0, 0, 0>>;
        return fitting::<Known, Any, avx2::Avx2, C>(hw, walks)
            .unwrap_or_else(|| code::<Any, Any, avx2::Avx2, C>(walks));
    }
    code::<Any, Any, Portable, C>(walks)
}

/// The code for runs whose walks bypass the caches.
fn bypassed_code<C: CompiledCore>(hw: &mut Hardware, walks: Walks) -> FastPath {
    type Any = Bypassed<AnyMachine>;
    #[cfg(target_arch = "x86_64")]
    if avx2::is_available() {
        type Known = Bypassed<OneCore<avx2::Avx2, 12, 8, 64, 4, 1024, 12, 8192>>;
        return fitting::<Known, Any, avx2::Avx2, C>(hw, walks)
            .unwrap_or_else(|| code::<Any, Any, avx2::Avx2, C>(walks));
    }
    code::<Any, Any, Portable, C>(walks)
}

/// The code for those preset machines that have a shape of their own; for others, the code for [`AnyMachine`].
fn vector_code<V: Vectors, C: CompiledCore>(hw: &mut Hardware, walks: Walks) -> FastPath {
    None.or_else(|| fitting::<OneCore<V, 12, 8, 64, 4, 1024, 12, 8192>, AnyMachine, V, C>(hw, walks))
        .or_else(|| fitting::<OneCore<V, 12, 8, 64, 4, 1024, 16, 12288>, AnyMachine, V, C>(hw, walks))
        .or_else(|| fitting::<OneCore<V, 8, 8, 64, 8, 512, 20, 16384>, AnyMachine, V, C>(hw, walks))
        .or_else(|| fitting::<OneCore<V, 4, 8, 128, 8, 1024, 20, 12288>, AnyMachine, V, C>(hw, walks))
        .unwrap_or_else(|| code::<AnyMachine, AnyMachine, V, C>(walks))
}

fn fitting<M: MachineShape, A: MachineShape, V: Vectors, C: CompiledCore>(
    hw: &mut Hardware,
    walks: Walks,
) -> Option<FastPath> {
    // All cores have the same shape.
    let unit = &mut hw.units[0];
    let fits = M::first(&mut unit.l1d).is_some()
        && M::second(&mut unit.l2).is_some()
        && M::caches(&mut hw.caches, CoreId::FIRST).is_some();
    fits.then(|| code::<M, A, V, C>(walks))
}

/// With several programs there are usually several cores: that variant is compiled for machines of any shape, `A`.
fn code<M: MachineShape, A: MachineShape, V: Vectors, C: CompiledCore>(walks: Walks) -> FastPath {
    match walks {
        Walks::Native => FastPath {
            alone: replay::<ByNative<M>, C, V, false>,
            with_other_cpus: replay::<ByNative<A>, C, Portable, true>,
        },
        Walks::Listed => FastPath {
            alone: replay::<ByListed<M>, C, V, false>,
            with_other_cpus: replay::<ByListed<A>, C, Portable, true>,
        },
        Walks::Nested => FastPath {
            alone: replay::<ByNested<M>, C, V, false>,
            with_other_cpus: replay::<ByNested<A>, C, Portable, true>,
        },
        Walks::NestedListed => FastPath {
            alone: replay::<ByNestedListed<M>, C, V, false>,
            with_other_cpus: replay::<ByNestedListed<A>, C, Portable, true>,
        },
    }
}

/// A machine and a walker.
trait Pair {
    type Shape: MachineShape;
    type Walker<'a>: Walker<'a, Self::Shape>;
}

struct ByNative<M>(PhantomData<M>);
struct ByListed<M>(PhantomData<M>);
struct ByNested<M>(PhantomData<M>);
struct ByNestedListed<M>(PhantomData<M>);

struct ByThreeLayers;

impl Pair for ByThreeLayers {
    type Shape = AnyMachine;
    type Walker<'a> = ThreeLayers<'a>;
}

impl<M: MachineShape> Pair for ByNative<M> {
    type Shape = M;
    type Walker<'a> = Native<'a, M::Upper<'a>>;
}

impl<M: MachineShape> Pair for ByListed<M> {
    type Shape = M;
    type Walker<'a> = Listed<'a>;
}

impl<M: MachineShape> Pair for ByNested<M> {
    type Shape = M;
    type Walker<'a> = Nested<'a, M::Upper<'a>>;
}

impl<M: MachineShape> Pair for ByNestedListed<M> {
    type Shape = M;
    type Walker<'a> = NestedListed<'a>;
}

/// See [`FastPath`]; compiled for the vector instructions `V`.
fn replay<P: Pair, C: CompiledCore, V: Vectors, const MANY: bool>(
    simulation: &mut Simulation,
    cpu: CpuId,
    accesses: &[Access],
    branches: &[Branches],
    limit: Cycles,
) -> usize {
    struct Loop<'a, P, C, const MANY: bool> {
        simulation: &'a mut Simulation,
        cpu: CpuId,
        accesses: &'a [Access],
        branches: &'a [Branches],
        limit: Cycles,
        kinds: PhantomData<(P, C)>,
    }
    impl<'a, P: Pair, C: CompiledCore, const MANY: bool> VectorWork for Loop<'a, P, C, MANY> {
        type Output = usize;

        #[inline(always)]
        fn run<V: Vectors>(self) -> usize {
            // No closure around the loop: it would be a separate function, which is not compiled for the vector
            // instructions.
            let Some(core) = FastCore::<P::Shape, P::Walker<'a>, C>::new(self.simulation, self.cpu) else { return 0 };
            core.replay::<V, MANY>(self.accesses, self.branches, self.limit)
        }
    }
    V::run(Loop::<P, C, MANY> { simulation, cpu, accesses, branches, limit, kinds: PhantomData })
}
