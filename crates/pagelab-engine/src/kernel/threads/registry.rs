//! The enum of the registered kernel threads, and what each of them is asked.

use super::Thread;
use super::config::{ThreadConfig, ThreadsConfig};
use crate::base::cycles::Cycles;
use crate::base::ids::{CpuId, LayerId};
use crate::base::step::{Next, Step};
use crate::kernel::layer::Layer;
use crate::kernel::needs::Need;
use crate::kernel::os::Os;

macro_rules! make_threads {
    ($($module:ident::$Thread:ident = $text:literal;)+) => {
        /// Any kernel thread.
        #[derive(Clone, Debug)]
        pub enum KernelThread {
            $(#[doc = $text] $Thread(super::$module::$Thread),)+
        }

        $(impl From<super::$module::$Thread> for KernelThread {
            fn from(thread: super::$module::$Thread) -> Self {
                Self::$Thread(thread)
            }
        })+

        impl KernelThread {
            /// The threads of a layer that the configuration has.
            pub fn of_layer(layer: LayerId, of: &Layer, config: &ThreadsConfig) -> Vec<Self> {
                let mut all = Vec::new();
                $(if let ThreadConfig::On(parameters) = &config.$module {
                    let thread = super::$module::$Thread::of_layer(layer, of, parameters);
                    all.extend(thread.map(Self::$Thread));
                })+
                all
            }

            /// What threads have counted: names, sums over those of a kind, and meanings, also of kinds that are not among them.
            pub fn counters<'a>(
                threads: impl Iterator<Item = &'a Self> + Clone,
            ) -> Vec<(&'static str, u64, &'static str)> {
                let mut all = Vec::new();
                $(for (name, get, text) in super::$module::$Thread::counters() {
                    let count = |thread: &Self| if let Self::$Thread(of) = thread { get(of) } else { 0 };
                    all.push((*name, threads.clone().map(count).sum(), *text));
                })+
                all
            }

            pub fn layer(&self) -> LayerId {
                match self { $(Self::$Thread(of) => of.layer(),)+ }
            }

            pub fn sleep_cycles(&self) -> Option<Cycles> {
                match self { $(Self::$Thread(of) => of.sleep_cycles(),)+ }
            }

            pub fn wakes_for(&self, need: Need) -> bool {
                match self { $(Self::$Thread(of) => of.wakes_for(need),)+ }
            }

            pub fn begin(&mut self) {
                match self { $(Self::$Thread(of) => of.begin(),)+ }
            }

            pub fn plan(&self, os: &Os, step: &mut Step) {
                match self { $(Self::$Thread(of) => of.plan(os, step),)+ }
            }

            pub fn commit(&mut self, os: &mut Os, cpu: CpuId) -> Next {
                match self { $(Self::$Thread(of) => of.commit(os, cpu),)+ }
            }

            pub fn held_frames(&self) -> u64 {
                match self { $(Self::$Thread(of) => of.held_frames(),)+ }
            }
        }
    };
}
kernel_threads!(make_threads);
