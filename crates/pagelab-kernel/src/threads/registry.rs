//! The enum of the registered kernel threads, which dispatches to each of them.

use super::config::{ThreadConfig, ThreadsConfig};
use super::{EngineThread, Thread};
use crate::effects::Effects;
use crate::layer::Layer;
use crate::locks::TaskId;
use crate::needs::Need;
use crate::os::Os;
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::ids::LayerId;
use pagelab_base::step::{Next, Step};

macro_rules! make_threads {
    (
        of_kernels { $($module:ident::$Thread:ident = $text:literal;)+ }
        of_engines { $($engine:ident::$file:ident::$OfEngine:ident;)+ }
    ) => {
        /// Any kernel thread.
        #[derive(Clone, Debug)]
        pub enum KernelThread {
            $(#[doc = $text] $Thread(super::$module::$Thread),)+
            $(
                #[doc = concat!("Serves the fault engine `", stringify!($engine), "`.")]
                $OfEngine(crate::fault_engine::$engine::$file::$OfEngine),
            )+
        }

        $(impl From<super::$module::$Thread> for KernelThread {
            fn from(thread: super::$module::$Thread) -> Self {
                Self::$Thread(thread)
            }
        })+

        impl KernelThread {
            /// The threads that the configuration starts in a layer, which `hosts` guests or runs programs.
            pub fn new_in_layer(id: LayerId, layer: &Layer, hosts: bool, config: &ThreadsConfig) -> Vec<Self> {
                let mut all = Vec::new();
                $(if let ThreadConfig::On(parameters) = &config.$module
                    && <super::$module::$Thread as Thread>::runs_in(hosts)
                {
                    let thread = super::$module::$Thread::new_in_layer(id, layer, parameters);
                    all.extend(thread.map(Self::$Thread));
                })+
                all
            }

            /// Refuses threads that cannot run in a layer, which `hosts` guests or runs programs.
            ///
            /// # Errors
            /// See [`Thread::check`].
            pub fn check(layer: &Layer, hosts: bool, config: &ThreadsConfig) -> Result<(), EngineError> {
                $(if let ThreadConfig::On(parameters) = &config.$module
                    && <super::$module::$Thread as Thread>::runs_in(hosts)
                {
                    super::$module::$Thread::check(layer, parameters, concat!("kernel.threads.", stringify!($module)))?;
                })+
                Ok(())
            }

            /// The threads of a layer that work for its fault engine.
            pub fn new_for_engine(id: LayerId, layer: &Layer) -> Vec<Self> {
                let mut all = Vec::new();
                $(all.extend(
                    crate::fault_engine::$engine::$file::$OfEngine::new_in_layer(id, layer).into_iter().map(Self::$OfEngine),
                );)+
                all
            }

            /// Counters of threads: names, sums over the threads of a kind, and meanings, also for kinds without a
            /// thread.
            pub fn counters<'a>(
                threads: impl Iterator<Item = &'a Self> + Clone,
            ) -> Vec<(&'static str, u64, &'static str)> {
                let mut all = Vec::new();
                $(for (name, get, text) in super::$module::$Thread::counters() {
                    let count = |thread: &Self| if let Self::$Thread(thread) = thread { get(thread) } else { 0 };
                    all.push((*name, threads.clone().map(count).sum(), *text));
                })+
                all
            }

            /// The layer of its kernel.
            pub fn layer(&self) -> LayerId {
                match self {
                    $(Self::$Thread(thread) => thread.layer(),)+
                    $(Self::$OfEngine(thread) => thread.layer(),)+
                }
            }

            /// See [`Thread::sleep_cycles`]; `None` for threads of engines, which have a delay.
            pub fn sleep_cycles(&self) -> Option<Cycles> {
                match self {
                    $(Self::$Thread(thread) => thread.sleep_cycles(),)+
                    $(Self::$OfEngine(_) => None,)+
                }
            }

            /// See [`Thread::step_layer`].
            pub fn step_layer(&self) -> LayerId {
                match self {
                    $(Self::$Thread(thread) => thread.step_layer(),)+
                    $(Self::$OfEngine(thread) => thread.layer(),)+
                }
            }

            /// See [`EngineThread::delay`].
            pub fn delay(&self, layer: &Layer) -> Option<super::Delay> {
                match self {
                    $(Self::$Thread(_) => None,)+
                    $(Self::$OfEngine(thread) => thread.delay(layer),)+
                }
            }

            /// Whether this need wakes it.
            pub fn wakes_for(&self, need: Need) -> bool {
                match self {
                    $(Self::$Thread(thread) => thread.wakes_for(need),)+
                    $(Self::$OfEngine(thread) => thread.wakes_for(need),)+
                }
            }

            /// Starts its work after a wake-up.
            pub fn begin(&mut self) {
                match self {
                    $(Self::$Thread(thread) => thread.begin(),)+
                    $(Self::$OfEngine(thread) => thread.begin(),)+
                }
            }

            /// See `Activity::plan` of the simulation.
            pub fn plan(&self, os: &Os, step: &mut Step) {
                match self {
                    $(Self::$Thread(thread) => thread.plan(os, step),)+
                    $(Self::$OfEngine(thread) => thread.plan(os, step),)+
                }
            }

            /// See `Activity::commit` of the simulation.
            pub fn commit(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId) -> Next {
                match self {
                    $(Self::$Thread(thread) => thread.commit(os, effects, task),)+
                    $(Self::$OfEngine(thread) => thread.commit(os, effects, task),)+
                }
            }

            /// See [`Thread::held_frames`]; 0 for threads of engines, whose frames the engine counts.
            pub fn held_frames(&self) -> u64 {
                match self {
                    $(Self::$Thread(thread) => thread.held_frames(),)+
                    $(Self::$OfEngine(_) => 0,)+
                }
            }

            /// Counts cycles of its work for its fault engine, if any.
            pub fn charge(&self, os: &mut Os, cycles: Cycles) {
                match self {
                    $(Self::$Thread(_) => {})+
                    $(Self::$OfEngine(thread) => thread.charge(os, cycles),)+
                }
            }
        }
    };
}
kernel_threads!(make_threads);
