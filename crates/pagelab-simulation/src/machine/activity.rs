//! Activities: the work of a core besides its program, as resumable state machines.
//!
//! A step of an activity is planned ([`Activity::plan`] lists its references and cycles and changes nothing), then
//! charged by the core, and only then committed ([`Activity::commit`]: its change of state becomes visible). Other
//! cores may run in between, and a reference may itself fault in a host layer, whose handler is another activity on the
//! same core's stack. So a commit checks again what it relies on. After a commit the activity continues, blocks on a
//! key, or ends.
//!
//! An activity is one variant of [`Activity`]; its state machine is a file of its own.

use crate::machine::kernels::Kernels;
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::ids::LayerId;
use pagelab_base::step::{Next, Step};
use pagelab_hardware::core_model::clock::Class;
use pagelab_kernel::effects::Effects;
use pagelab_kernel::fault::Fault;
use pagelab_kernel::fault::stage::Stage;
use pagelab_kernel::fault_engine::mfoe::ahead::AheadCall;
use pagelab_kernel::fault_engine::mfoe::call::EngineCall;
use pagelab_kernel::fault_engine::smu::fill::FillWork;
use pagelab_kernel::fault_engine::work::EngineWork;
use pagelab_kernel::layer::code::CODE_PATHS;
use pagelab_kernel::locks::TaskId;
use pagelab_kernel::mapping_call::MappingCall;
use pagelab_kernel::page_out::PageOut;
use pagelab_kernel::populate::Populate;
use pagelab_kernel::sync::Sync;
use pagelab_kernel::threads::exit_scan::ExitScan;

/// An activity of any kind.
#[derive(Clone, Debug)]
pub enum Activity {
    /// A kernel's page-fault handler.
    Fault(Fault),
    /// A kernel that maps pages ahead of accesses, for a call or by its own policy.
    Populate(Populate),
    /// An msync that waits for storage.
    Sync(Sync),
    /// A MADV_PAGEOUT that waits for the swap device.
    PageOut(PageOut),
    /// The time that a mapping call takes.
    Mapping(MappingCall),
    /// A step of a kernel thread, for its layer.
    Kernel {
        /// Number of the thread, as [`KernelThreads`](pagelab_kernel::threads::schedule::KernelThreads) counts.
        thread: usize,
        /// The layer that its step works for: its own, or the host of that.
        layer: LayerId,
    },
    /// A scan that frees what ended processes left in page tables.
    ExitScan(ExitScan),
    /// A fault engine that maps a page.
    Engine(EngineWork),
    /// A call that enables or disables a fault engine.
    EngineCall(EngineCall),
    /// A call that maps a page ahead of the access that would fault.
    Ahead(AheadCall),
    /// A mapping call that has written entries for a fault engine.
    Fill(FillWork),
}

impl Activity {
    /// The path whose code its step executes, given the step's fault stage; none for hardware.
    pub fn code_path(&self, stage: Option<Stage>) -> Option<usize> {
        let other = match self {
            Self::Fault(_) | Self::Populate(_) => return stage.map(|stage| stage as usize),
            Self::Engine(_) => return None,
            Self::Sync(_) => 0,
            Self::PageOut(_) | Self::Mapping(_) => 1,
            Self::Kernel { .. } => 2,
            Self::ExitScan(_) => 3,
            Self::EngineCall(_) => 4,
            Self::Ahead(_) => 5,
            Self::Fill(_) => 6,
        };
        let path = Stage::ALL.len() + other;
        debug_assert!(path < CODE_PATHS);
        Some(path)
    }

    /// The layer whose physical addresses its references use.
    pub fn layer(&self) -> LayerId {
        match self {
            Self::Fault(fault) => fault.space().layer,
            Self::Populate(populate) => populate.fault().space().layer,
            Self::Sync(sync) => sync.space().layer,
            Self::PageOut(out) => out.space().layer,
            Self::Mapping(call) => call.space().layer,
            Self::Kernel { layer, .. } => *layer,
            Self::ExitScan(scan) => scan.layer(),
            Self::Engine(work) => work.layer(),
            Self::EngineCall(call) => call.space().layer,
            Self::Ahead(call) => call.space().layer,
            Self::Fill(fill) => fill.space().layer,
        }
    }

    /// Whether it repeats a request that a device answered with an error (Linux `nvme_retry_req`).
    pub fn retries_request(&self) -> bool {
        match self {
            Self::Fault(_)
            | Self::Populate(_)
            | Self::Sync(_)
            | Self::PageOut(_)
            | Self::Mapping(_)
            | Self::Kernel { .. }
            | Self::ExitScan(_)
            | Self::EngineCall(_)
            | Self::Ahead(_)
            | Self::Fill(_) => true,
            Self::Engine(_) => false,
        }
    }

    /// The class of cycles that work outside of faults counts as.
    pub fn class(&self) -> Class {
        match self {
            // The program waits for its walker.
            Self::Engine(_) => Class::Translation,
            Self::Fault(_)
            | Self::Populate(_)
            | Self::Sync(_)
            | Self::PageOut(_)
            | Self::Mapping(_)
            | Self::Kernel { .. }
            | Self::ExitScan(_)
            | Self::EngineCall(_)
            | Self::Ahead(_)
            | Self::Fill(_) => Class::Kernel,
        }
    }

    /// Counts the cycles of work that is not a fault's.
    pub fn charge(&self, Kernels { os, threads, .. }: &mut Kernels, cycles: Cycles) {
        match self {
            Self::ExitScan(scan) => os.layers[scan.layer()].spaces.tables.charge_scan(cycles),
            Self::Kernel { thread, .. } => threads.charge(*thread, os, cycles),
            Self::Engine(work) => work.charge(os, cycles),
            Self::EngineCall(call) => call.charge(os, cycles),
            Self::Ahead(call) => call.charge(os, cycles),
            Self::Fill(fill) => fill.charge(os, cycles),
            Self::Sync(_) => Sync::charge(os, cycles),
            Self::PageOut(_) => PageOut::charge(os, cycles),
            Self::Mapping(_) => MappingCall::charge(os, cycles),
            Self::Fault(_) | Self::Populate(_) => unreachable!("cycles of faults are counted by stage"),
        }
    }

    /// Fills `step` (cleared) with the references and cycles of the next step. Changes nothing else. Returns the fault
    /// stage that the cycles count for; `None` for other kernel work.
    pub fn plan(&self, Kernels { os, threads, .. }: &Kernels, step: &mut Step) -> Option<Stage> {
        match self {
            Self::Fault(fault) => return Some(fault.plan(os, step)),
            Self::Populate(populate) => return Some(populate.fault().plan(os, step)),
            Self::Sync(sync) => sync.plan(os, step),
            Self::PageOut(out) => out.plan(os, step),
            Self::Mapping(call) => call.plan(os, step),
            Self::Kernel { thread, .. } => threads.get(*thread).plan(os, step),
            Self::ExitScan(scan) => scan.plan(os, step),
            Self::Engine(work) => work.plan(os, step),
            Self::EngineCall(call) => call.plan(os, step),
            Self::Ahead(call) => call.plan(os, step),
            Self::Fill(fill) => fill.plan(os, step),
        }
        None
    }

    /// Carries out the planned step for a task; adds its consequences outside the kernels to `effects`. `io_failed` if
    /// a device has answered a request of the step with an error.
    pub fn commit(
        &mut self,
        Kernels { os, threads, .. }: &mut Kernels,
        effects: &mut Effects,
        task: TaskId,
        io_failed: bool,
    ) -> Result<Next, EngineError> {
        match self {
            Self::Fault(fault) => fault.commit(os, effects, task),
            Self::Populate(populate) => populate.commit(os, effects, task),
            Self::Sync(sync) => Ok(sync.commit(os, effects, task)),
            Self::PageOut(out) => Ok(out.commit()),
            Self::Mapping(call) => Ok(call.commit(os, task)),
            Self::Kernel { thread, .. } => Ok(threads.commit(*thread, os, effects, task)),
            Self::ExitScan(scan) => Ok(scan.commit(os)),
            Self::Engine(work) => Ok(work.commit(os, effects, task, io_failed)),
            Self::EngineCall(call) => Ok(call.commit(os, effects, task)),
            Self::Ahead(call) => Ok(call.commit(os, effects, task)),
            Self::Fill(fill) => Ok(fill.commit(os)),
        }
    }
}
