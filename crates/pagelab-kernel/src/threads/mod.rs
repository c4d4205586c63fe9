//! Kernel threads and other work of a kernel for which no program waits.
//!
//! A kernel thread is one file here, with a type that implements [`Thread`] and a module `parameters`, and one line
//! below. `registry.rs` derives the enum [`KernelThread`] from these lines, and `config.rs` the configuration. A line
//! gives the thread its key below `kernel.threads`, its row in `pagelab list kernel-threads`, and its place in error
//! messages and in the conformance tests.
//!
//! The threads of a fault engine are files of the engine, each with a type that implements [`EngineThread`], and one
//! line each. They run wherever the engine is used, with parameters of the engine.

/// Lists the kernel threads for a macro `$make`: the file, its type, and a description. Then the threads of fault
/// engines: the engine's folder, the file and the type.
macro_rules! kernel_threads {
    ($make:ident) => {
        $make! {
            of_kernels {
                kswapd::Kswapd = "makes room before faults must, where memory is reclaimed (no parameters)";
                khugepaged::Khugepaged = "replaces small pages by large ones, in layers with pages above 4 KiB";
                late_segments::LateSegments =
                    "makes memory contiguous and a direct segment of a running program's largest mapping";
                page_reporting::PageReporting =
                    "tells hosts which memory of guests is free (free page reporting), in guests";
                balloon::Balloon = "gives memory of guests back to their hosts (memory balloon), in guests";
                migration::Migration = "copies the memory of running guests to another machine, in layers that host guests";
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
pub mod discard;
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
use pagelab_base::error::EngineError;
use pagelab_base::ids::LayerId;
use pagelab_base::step::{Next, Step};

pub use registry::KernelThread;

/// Declares the modules of the threads.
macro_rules! declare {
    (of_kernels { $($module:ident::$Thread:ident = $text:literal;)+ } of_engines { $($engine:tt)+ }) => {
        $(pub mod $module;)+
    };
}
kernel_threads!(declare);

/// A statistic of a kind of kernel thread: its name, its value for one thread, and its meaning.
pub type Counter<T> = (&'static str, fn(&T) -> u64, &'static str);

/// A thread of a layer's kernel: a state machine that runs when it is woken and then sleeps again.
///
/// Contract: [`Self::plan`] changes nothing. A step takes effect in [`Self::commit`], which checks its assumptions
/// again, since others may have run since the plan. A step that sends requests to devices does nothing else. A lock is
/// kept from one step to the next only if it is taken under a key of [`crate::locks`]. All allocated memory is freed or
/// reported by [`Self::held_frames`].
///
/// `tests/conformance` runs every registered thread, with its samples, under memory pressure.
pub trait Thread: Sized {
    /// Its parameters, from its module `parameters`.
    type Parameters: ThreadParameters;

    /// Whether it runs in the kernels of layers that host guests.
    const IN_HOSTS: bool = false;

    /// Whether it runs in the kernels of layers that run programs.
    const WITH_PROGRAMS: bool = !Self::IN_HOSTS;

    /// Whether it runs in the kernel of a layer that `hosts` guests or runs programs.
    fn runs_in(hosts: bool) -> bool {
        if hosts { Self::IN_HOSTS } else { Self::WITH_PROGRAMS }
    }

    /// Refuses parameters with which it cannot run in a layer's kernel; `key` is that of the thread. Default: accepts
    /// all that [`ThreadParameters::validate`] accepts.
    ///
    /// # Errors
    /// The key with an impossible value, and what would be possible.
    fn check(_layer: &Layer, _parameters: &Self::Parameters, _key: &str) -> Result<(), EngineError> {
        Ok(())
    }

    /// Creates the thread of a layer, asleep; `None` if it has nothing to do in the layer.
    fn new_in_layer(id: LayerId, layer: &Layer, parameters: &Self::Parameters) -> Option<Self>;

    /// The layer of its kernel.
    fn layer(&self) -> LayerId;

    /// Number of cycles, from boot or from the end of its work, after which it wakes up by itself, as threads of Linux
    /// sleep between their passes; `None` if it must be woken.
    fn sleep_cycles(&self) -> Option<Cycles> {
        None
    }

    /// Whether this need wakes it.
    fn wakes_for(&self, _need: Need) -> bool {
        false
    }

    /// Starts its work after a wake-up.
    fn begin(&mut self);

    /// The layer whose physical memory the references of the next step are to: its own, or that of its host while the
    /// host works for it.
    fn step_layer(&self) -> LayerId {
        self.layer()
    }

    /// See `Activity::plan` of the simulation.
    fn plan(&self, os: &Os, step: &mut Step);

    /// See `Activity::commit` of the simulation.
    fn commit(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId) -> Next;

    /// Number of frames that it has allocated and not mapped.
    fn held_frames(&self) -> u64 {
        0
    }

    /// The statistics of its kind, summed over the layers. Default: none.
    fn counters() -> &'static [Counter<Self>] {
        &[]
    }
}

/// When a thread starts again by itself.
#[derive(Clone, Copy, Debug)]
pub enum Delay {
    /// This long after the end of its work, as delayed work that requeues itself.
    FromEnd(Cycles),
    /// This long after its work began, or at once if that took longer.
    FromBegin(Cycles),
}

/// A thread of a layer's kernel that works for its fault engine.
///
/// Contract: that of [`Thread`], but the engine's
/// [`held_frames`](crate::fault_engine::kernel_side::KernelSide::held_frames) reports the frames that it has allocated.
pub trait EngineThread: Sized {
    /// Creates the threads of a layer, asleep; empty if the layer has another engine.
    fn new_in_layer(id: LayerId, layer: &Layer) -> Vec<Self>;

    /// The layer of its kernel.
    fn layer(&self) -> LayerId;

    /// When it starts again; at boot it starts at once. `None` if it must be woken.
    fn delay(&self, _of: &Layer) -> Option<Delay> {
        None
    }

    /// Whether this need wakes it.
    fn wakes_for(&self, need: Need) -> bool;

    /// Starts its work after a wake-up.
    fn begin(&mut self);

    /// See `Activity::plan` of the simulation.
    fn plan(&self, os: &Os, step: &mut Step);

    /// See `Activity::commit` of the simulation.
    fn commit(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId) -> Next;

    /// Counts cycles of its work for the engine.
    fn charge(&self, os: &mut Os, cycles: Cycles);
}
