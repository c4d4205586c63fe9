//! Activities: what a core does besides its program, as resumable state machines.
//!
//! A step of an activity is planned ([`Activity::plan`]: its references and cycles, changing nothing), charged by the
//! core, and only then committed ([`Activity::commit`]: its change of state becomes visible). Between the two, other cores
//! may run, and a reference may itself fault in a host layer, whose handler is another activity on the same core's stack;
//! so a commit looks again at what it relies on. After a commit the activity goes on, blocks on a key, or ends.
//!
//! An activity is one variant of [`Activity`]; its state machine is a file of its own.

use crate::base::addr::{Cycles, Pfn, PhysAddr};
use crate::base::error::EngineError;
use crate::kernel::fault::{Fault, Stage};
use crate::kernel::layer::SpaceId;
use crate::kernel::os::Os;
use crate::kernel::populate::Populate;
use crate::kernel::reclaim::Requests;
use crate::kernel::threads::exit_scan::ExitScan;
use crate::kernel::threads::khugepaged::Khugepaged;
use crate::kernel::threads::kswapd::Kswapd;

/// What a reference does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefKind {
    Read,
    Write,
    /// Locked read-modify-write.
    Locked,
    /// Reads this many bytes (whole frames).
    Load {
        bytes: u64,
    },
    /// Writes this many bytes (whole frames) without reading them first.
    Zero {
        bytes: u64,
    },
}

/// How a reference's address is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefSpace {
    /// By kernel code through the direct map of its layer: goes through the TLB.
    Kernel,
    /// By a hardware engine: a physical address of the layer, translated by its hosts only.
    Physical,
}

/// One reference of a step, at a physical address of the activity's layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ref {
    pub addr: PhysAddr,
    pub space: RefSpace,
    pub kind: RefKind,
    /// Dependency step: references of one step that follow each other overlap and cost their maximum.
    pub step: u8,
}

/// A planned step: what it costs. Reused from step to step, so planning allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Step {
    pub refs: Vec<Ref>,
    /// Cycles beyond the references.
    pub cycles: Cycles,
    /// Those of them that a preset gives.
    pub preset_cycles: Cycles,
    pub instructions: u64,
    /// What it asks of the layer's devices, and waits for.
    pub io: Requests,
}

impl Step {
    pub fn clear(&mut self) {
        self.refs.clear();
        (self.cycles, self.preset_cycles, self.instructions) = (0, 0, 0);
        self.io = Requests::default();
    }

    /// Adds a kernel reference that depends on those before it.
    pub fn kernel(&mut self, kind: RefKind, addr: PhysAddr) {
        let step = self.refs.last().map_or(0, |r| r.step.wrapping_add(1));
        self.refs.push(Ref { addr, space: RefSpace::Kernel, kind, step });
    }

    /// Adds a kernel reference that is made together with the one before it.
    pub fn kernel_beside(&mut self, kind: RefKind, addr: PhysAddr) {
        let step = self.refs.last().map_or(0, |r| r.step);
        self.refs.push(Ref { addr, space: RefSpace::Kernel, kind, step });
    }
}

/// What an activity may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockKey {
    /// The handler of another fault on this page (4 KiB number).
    Page { space: SpaceId, page: u64 },
    /// Faults that rely on the mappings of a space.
    Mappings { space: SpaceId },
    /// The lock of a group's leaf in the table of reservations.
    Reservation { space: SpaceId, group: u64 },
    /// The lock of a page-table page.
    PageTable { layer: u16, frame: Pfn },
}

/// What comes after a committed step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Continue,
    /// Wait until the key is released, then plan the same step again.
    Block(BlockKey),
    Done,
}

/// Any activity.
#[derive(Clone, Debug)]
pub enum Activity {
    Fault(Fault),
    Populate(Populate),
    Kswapd(Kswapd),
    Khugepaged(Khugepaged),
    ExitScan(ExitScan),
}

impl Activity {
    /// Layer whose physical addresses its references are.
    pub fn layer(&self) -> u16 {
        match self {
            Self::Fault(fault) => fault.space().layer,
            Self::Populate(populate) => populate.fault().space().layer,
            Self::Kswapd(thread) => thread.layer(),
            Self::Khugepaged(thread) => thread.layer(),
            Self::ExitScan(scan) => scan.layer(),
        }
    }

    /// Stage of a fault that the cycles of the step under way are counted for; none for other kernel work.
    pub fn stage(&self) -> Option<Stage> {
        match self {
            Self::Fault(fault) => Some(fault.stage()),
            Self::Populate(populate) => Some(populate.fault().stage()),
            Self::Kswapd(_) | Self::Khugepaged(_) | Self::ExitScan(_) => None,
        }
    }

    /// Fills `step` (cleared) with the references and cycles of the next step. Changes nothing.
    pub fn plan(&self, os: &Os, step: &mut Step) {
        match self {
            Self::Fault(fault) => fault.plan(os, step),
            Self::Populate(populate) => populate.fault().plan(os, step),
            Self::Kswapd(thread) => thread.plan(os, step),
            Self::Khugepaged(thread) => thread.plan(os, step),
            Self::ExitScan(scan) => scan.plan(os, step),
        }
    }

    /// Carries the planned step out, on behalf of `cpu`.
    pub fn commit(&mut self, os: &mut Os, cpu: usize) -> Result<Next, EngineError> {
        match self {
            Self::Fault(fault) => fault.commit(os, cpu),
            Self::Populate(populate) => populate.commit(os, cpu),
            Self::Kswapd(thread) => Ok(thread.commit(os, cpu)),
            Self::Khugepaged(thread) => Ok(thread.commit(os, cpu)),
            Self::ExitScan(scan) => Ok(scan.commit(os)),
        }
    }
}
