//! Kernel threads and other work of a kernel that no program waits for.
//!
//! A kernel thread is one file here with a type that is a [`Thread`] and a module `parameters`, and one line below.
//! `registry.rs` makes the enum [`KernelThread`] of these lines, `config.rs` what the configuration says of them. A
//! line gives the thread its key below `kernel.threads`, its row in `pagelab list kernel-threads`, its place in error
//! texts and in the conformance tests.
//!
//! The threads of a fault engine are files of the engine with a type that is an [`EngineThread`], and a line each. They
//! are there where the engine is, with parameters of the engine.

/// The kernel threads, for a macro that makes something of them: the file, the type in it, and what the thread does.
/// Then those of fault engines: the engine's folder, the file and the type.
macro_rules! kernel_threads {
    ($make:ident) => {
        $make! {
            of_kernels {
                kswapd::Kswapd = "makes room before faults must, where memory is reclaimed (no parameters)";
                khugepaged::Khugepaged = "replaces small pages by large ones, in layers with pages above 4 KiB";
            }
            of_engines {
                mfoe::arming::Arming;
                mfoe::refill::Refill;
                smu::kpted::Kpted;
                smu::kpoold::Kpoold;
            }
        }
    };
}

pub mod config;
pub mod exit_scan;
mod registry;
pub mod schedule;

use crate::effects::Effects;
use crate::layer::Layer;
use crate::locks::TaskId;
use crate::needs::Need;
use crate::os::Os;
use config::ThreadParameters;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::LayerId;
use pagelab_base::step::{Next, Step};

pub use registry::KernelThread;

/// Declares the threads' files.
macro_rules! declare {
    (of_kernels { $($module:ident::$Thread:ident = $text:literal;)+ } of_engines { $($engine:tt)+ }) => {
        $(pub mod $module;)+
    };
}
kernel_threads!(declare);

/// A statistic of a kind of kernel thread: its name, what one thread has counted, and what it means.
pub type Counter<T> = (&'static str, fn(&T) -> u64, &'static str);

/// A thread of a layer's kernel: a state machine that runs when it is awake and then sleeps again.
///
/// What an implementor must uphold: [`Self::plan`] changes nothing; a step takes effect in [`Self::commit`], which
/// looks again at what it relies on, since others have run since the plan; a step that makes requests to devices does
/// nothing else; a lock is held from one step to another only if it is taken under the key of [`crate::locks`]; all
/// that it allocates is given back or told by [`Self::held_frames`].
///
/// `tests/conformance` runs every registered thread, with its samples, where memory is short.
pub trait Thread: Sized {
    /// Those of its module `parameters`.
    type Parameters: ThreadParameters;

    /// That of a layer, asleep; none if the layer has nothing for it to do.
    fn of_layer(layer: LayerId, of: &Layer, parameters: &Self::Parameters) -> Option<Self>;

    /// The layer whose kernel it is of.
    fn layer(&self) -> LayerId;

    /// After how many cycles it wakes up by itself; none: it waits to be woken.
    fn sleep_cycles(&self) -> Option<Cycles> {
        None
    }

    /// Whether it is woken for this.
    fn wakes_for(&self, _need: Need) -> bool {
        false
    }

    /// It has woken up.
    fn begin(&mut self);

    /// See `Activity::plan` of the simulation.
    fn plan(&self, os: &Os, step: &mut Step);

    /// See `Activity::commit` of the simulation.
    fn commit(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId) -> Next;

    /// Frames that it has taken and not mapped.
    fn held_frames(&self) -> u64 {
        0
    }

    /// The statistics of its kind, summed over the layers; none unless given.
    fn counters() -> &'static [Counter<Self>] {
        &[]
    }
}

/// A thread of a layer's kernel that serves its fault engine.
///
/// What an implementor must uphold: what a [`Thread`] must; frames that it has in hand are told by the engine's
/// [`held_frames`](crate::fault_engine::kernel_side::KernelSide::held_frames).
pub trait EngineThread: Sized {
    /// Those of a layer, asleep; none if it has another engine.
    fn of_layer(layer: LayerId, of: &Layer) -> Vec<Self>;

    /// The layer whose kernel it is of.
    fn layer(&self) -> LayerId;

    /// How long after the end of its work it begins anew, as delayed work does that queues itself; at boot it begins at
    /// once. None: it waits to be woken.
    fn delay(&self, _of: &Layer) -> Option<Cycles> {
        None
    }

    /// Whether it is woken for this.
    fn wakes_for(&self, need: Need) -> bool;

    /// It has woken up.
    fn begin(&mut self);

    /// See `Activity::plan` of the simulation.
    fn plan(&self, os: &Os, step: &mut Step);

    /// See `Activity::commit` of the simulation.
    fn commit(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId) -> Next;

    /// Counts cycles of its work for the engine.
    fn charge(&self, os: &mut Os, cycles: Cycles);
}
