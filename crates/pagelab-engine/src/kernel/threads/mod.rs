//! Kernel threads and other work of a kernel that no program waits for.
//!
//! A kernel thread is a file with a type that is a [`Thread`], and one line of the list below: its name there is its variant of
//! [`KernelThread`]. Nothing else names it.

pub mod exit_scan;
pub mod khugepaged;
pub mod kswapd;
pub mod schedule;

use crate::base::cycles::Cycles;
use crate::base::ids::{CpuId, LayerId};
use crate::base::step::{Next, Step};
use crate::config::KernelConfig;
use crate::kernel::layer::Layer;
use crate::kernel::needs::Need;
use crate::kernel::os::Os;
use schedule::KernelThreads;

/// A statistic of a kind of kernel thread: its name, what one thread has counted, and what it means.
pub type Counter<T> = (&'static str, fn(&T) -> u64, &'static str);

/// A thread of a layer's kernel: a state machine that runs when it is awake and then sleeps again.
///
/// What an implementor must uphold: [`Self::plan`] changes nothing; a step takes effect in [`Self::commit`], which looks again at
/// what it relies on, since others have run since the plan; a step that makes requests to devices does nothing else; a lock
/// is held from one step to another only if it is taken under the key of [`crate::kernel::locks`]; all that it allocates is given
/// back or told by [`Self::held_frames`].
pub trait Thread: Sized {
    /// That of a layer, asleep; none if its kernel has none.
    fn of_layer(layer: LayerId, of: &Layer, kernel: &KernelConfig) -> Option<Self>;

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

    /// See [`crate::machine::activity::Activity::plan`].
    fn plan(&self, os: &Os, step: &mut Step);

    /// See [`crate::machine::activity::Activity::commit`].
    fn commit(&mut self, os: &mut Os, cpu: CpuId) -> Next;

    /// Frames that it has taken and not mapped.
    fn held_frames(&self) -> u64 {
        0
    }

    fn counters() -> &'static [Counter<Self>] {
        &[]
    }
}

macro_rules! kernel_threads {
    ($($variant:ident: $kind:ty,)+) => {
        /// Any kernel thread.
        #[derive(Clone, Debug)]
        pub enum KernelThread {
            $($variant($kind),)+
        }

        $(impl From<$kind> for KernelThread {
            fn from(thread: $kind) -> Self {
                Self::$variant(thread)
            }
        })+

        impl KernelThread {
            pub fn layer(&self) -> LayerId {
                match self { $(Self::$variant(of) => of.layer(),)+ }
            }

            pub fn sleep_cycles(&self) -> Option<Cycles> {
                match self { $(Self::$variant(of) => of.sleep_cycles(),)+ }
            }

            pub fn wakes_for(&self, need: Need) -> bool {
                match self { $(Self::$variant(of) => of.wakes_for(need),)+ }
            }

            pub fn begin(&mut self) {
                match self { $(Self::$variant(of) => of.begin(),)+ }
            }

            pub fn plan(&self, os: &Os, step: &mut Step) {
                match self { $(Self::$variant(of) => of.plan(os, step),)+ }
            }

            pub fn commit(&mut self, os: &mut Os, cpu: CpuId) -> Next {
                match self { $(Self::$variant(of) => of.commit(os, cpu),)+ }
            }

            pub fn held_frames(&self) -> u64 {
                match self { $(Self::$variant(of) => of.held_frames(),)+ }
            }
        }

        impl KernelThreads {
            /// Adds the threads of a layer.
            pub fn add_all(&mut self, layer: LayerId, of: &Layer, kernel: &KernelConfig) {
                $(<$kind>::of_layer(layer, of, kernel).into_iter().for_each(|thread| { self.add(thread.into()); });)+
            }

            /// What all threads have counted: names, sums over the threads of a kind, and meanings.
            pub fn counters(&self) -> Vec<(&'static str, u64, &'static str)> {
                let mut all = Vec::new();
                $(for (name, get, text) in <$kind>::counters() {
                    let count = |thread: &KernelThread| if let KernelThread::$variant(of) = thread { get(of) } else { 0 };
                    all.push((*name, self.iter().map(count).sum(), *text));
                })+
                all
            }
        }
    };
}

kernel_threads! {
    Kswapd: kswapd::Kswapd,
    Khugepaged: khugepaged::Khugepaged,
}
