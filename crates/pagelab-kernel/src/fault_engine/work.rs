//! The work of an engine for a page, as an activity of the core whose walker started it.

use crate::effects::Effects;
use crate::fault_engine::kernel_side::EngineState;
use crate::locks::TaskId;
use crate::os::Os;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::{CpuId, LayerId};
use pagelab_base::page_fault::PageFault;
use pagelab_base::step::{Next, Step};
use pagelab_tables::page_table::Mapping;

/// Result of an engine's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineVerdict {
    /// The page is mapped, and the walker can insert it in the TLB.
    Mapped(Mapping),
    /// A page fault is raised: the kernel's handler runs.
    Kernel,
}

/// The work of an engine for a page.
///
/// What an implementor must uphold: its references are [`pagelab_base::step::RefSpace::Physical`]. It changes a page
/// table, or the kernel's data, only while it holds the page's key ([`pagelab_base::step::BlockKey::Page`]), and checks
/// again what it relies on when it has got the key. While it holds it, mapping calls that affect what the key covers
/// wait for it ([`crate::locks::Locks::read_mappings`]).
pub trait PageWork: Sized {
    /// Starts the work for a fault; `None` if the engine does not handle the page.
    fn begin(fault: &PageFault, cpu: CpuId, os: &Os) -> Option<Self>;

    /// The page fault that started it.
    fn fault(&self) -> &PageFault;

    /// See `Activity::plan` of the simulation.
    fn plan(&self, os: &Os, step: &mut Step);

    /// See `Activity::commit` of the simulation. `io_failed` if a device has answered a request of the step with an
    /// error.
    fn commit(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId, io_failed: bool) -> Next;

    /// Counts cycles of the current step.
    fn charge(&self, os: &mut Os, cycles: Cycles);

    /// The result, when it is done.
    fn verdict(&self) -> EngineVerdict;
}

macro_rules! make_work {
    ($($module:ident::$Engine:ident = $name:literal, $text:literal;)+) => {
        #[derive(Clone, Debug)]
        enum AnyPageWork {
            $($Engine(super::$module::Offload),)+
        }

        /// The work of any engine, with its start time. Other methods call those of [`PageWork`].
        #[derive(Clone, Debug)]
        pub struct EngineWork {
            began: Cycles,
            work: AnyPageWork,
        }

        impl EngineWork {
            /// Starts the engine of the page's layer for a page that a walk has not found; `None` if there is no
            /// engine, or it does not handle the page.
            pub fn begin(fault: &PageFault, cpu: CpuId, os: &Os, now: Cycles) -> Option<Self> {
                let work = match os.layers[fault.space.layer].mechanisms.engine.as_ref()? {
                    $(EngineState::$Engine(_) => AnyPageWork::$Engine(super::$module::Offload::begin(fault, cpu, os)?),)+
                };
                Some(Self { began: now, work })
            }

            /// See [`PageWork::fault`].
            pub fn fault(&self) -> &PageFault {
                match &self.work { $(AnyPageWork::$Engine(work) => work.fault(),)+ }
            }

            /// See [`PageWork::plan`].
            pub fn plan(&self, os: &Os, step: &mut Step) {
                match &self.work { $(AnyPageWork::$Engine(work) => work.plan(os, step),)+ }
            }

            /// See [`PageWork::commit`].
            pub fn commit(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId, io_failed: bool) -> Next {
                match &mut self.work { $(AnyPageWork::$Engine(work) => work.commit(os, effects, task, io_failed),)+ }
            }

            /// See [`PageWork::charge`].
            pub fn charge(&self, os: &mut Os, cycles: Cycles) {
                match &self.work { $(AnyPageWork::$Engine(work) => work.charge(os, cycles),)+ }
            }

            fn verdict(&self) -> EngineVerdict {
                match &self.work { $(AnyPageWork::$Engine(work) => work.verdict(),)+ }
            }
        }
    };
}
engines!(make_work);

impl EngineWork {
    /// The layer whose page is missing.
    pub fn layer(&self) -> LayerId {
        self.fault().space.layer
    }

    /// Ends the work: returns its result, and reports its latency to the engine.
    pub fn end(&self, os: &mut Os, now: Cycles) -> EngineVerdict {
        let verdict = self.verdict();
        let engine = os.layers[self.layer()].mechanisms.engine.as_mut().expect("its work has ended just now");
        engine.note(matches!(verdict, EngineVerdict::Mapped(_)), now.saturating_sub(self.began));
        verdict
    }
}
