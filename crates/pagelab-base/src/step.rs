//! Steps of activities: what one costs, what it may wait for, and what comes after it.

use super::addr::{PageSize, Pfn, PhysAddr};
use super::code_cost::CodeCost;
use super::cycles::Cycles;
use super::ids::SpaceId;
use super::io::{Lba, Requests};
use crate::ids::{CpuId, LayerId};

/// What a reference does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefKind {
    /// Reads a word.
    Read,
    /// Writes a word.
    Write,
    /// Locked read-modify-write.
    Locked,
    /// Reads this many bytes (whole frames).
    Load {
        /// Bytes from the reference's address on.
        bytes: u64,
    },
    /// Reads this many bytes (whole lines) in time that the step has anyway.
    Touch {
        /// Bytes from the reference's address on.
        bytes: u64,
    },
    /// Writes this many bytes (whole frames) without reading them first.
    Zero {
        /// Bytes from the reference's address on.
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
    /// Where the reference is made, in physical memory of the layer.
    pub addr: PhysAddr,
    /// Whether it is translated by the kernel's direct map first.
    pub space: RefSpace,
    /// What the reference does.
    pub kind: RefKind,
    /// Dependency step: references of one step that follow each other overlap and cost their maximum.
    pub step: u8,
}

/// A planned step: what it costs. Reused from step to step, so planning allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// References in the order in which they are made.
    pub refs: Vec<Ref>,
    /// What a preset gives beyond the references.
    pub preset: CodeCost,
    /// Cycles beyond both.
    pub cycles: Cycles,
    /// What it asks of the layer's devices; its references are made when they have answered.
    pub io: Requests,
    /// What the CPU does while the devices are at work, as long as nobody waits for them; its instructions are among
    /// those above.
    pub switch: CodeCost,
    /// The CPU runs nobody else until the devices have answered.
    pub stalls: bool,
    /// Of a fault's walk: how many of the references come before the one of its PTE. Their cycles and the step's own
    /// are counted apart.
    pub before_pte: usize,
    /// It fills a translation cache.
    pub fills: bool,
}

impl Step {
    /// Makes it a step without cost, and keeps the memory of its lists.
    pub fn clear(&mut self) {
        self.refs.clear();
        (self.preset, self.cycles) = (CodeCost::NONE, Cycles::ZERO);
        self.io.clear();
        (self.switch, self.stalls) = (CodeCost::NONE, false);
        (self.before_pte, self.fills) = (0, false);
    }

    /// Takes its references and cycles away; what it asks of devices stays.
    pub fn make_free(&mut self) {
        let io = std::mem::take(&mut self.io);
        self.clear();
        self.io = io;
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
    Page {
        /// The space that the page is in.
        space: SpaceId,
        /// Number of the page: its virtual address divided by 4 KiB.
        page: u64,
    },
    /// Faults that rely on the mappings of a space.
    Mappings {
        /// The space whose mappings these are.
        space: SpaceId,
    },
    /// What a placement policy keeps for a part of a space.
    Placement {
        /// The space that has the part.
        space: SpaceId,
        /// Number of the part, as the policy counts them.
        place: u64,
    },
    /// The lock of a page-table page.
    PageTable {
        /// The layer whose page table it is.
        layer: LayerId,
        /// Frame of the page-table page.
        frame: Pfn,
    },
    /// What the kernel of a layer keeps for its fault engine for pages of a size of a CPU.
    Engine {
        /// The layer that has the engine.
        layer: LayerId,
        /// The CPU, or the engine's unit by its number, and the size of the pages.
        table: (CpuId, PageSize),
    },
    /// A block that is written to the layer's storage.
    Writeback {
        /// The layer whose storage it is.
        layer: LayerId,
        /// The block, as the layer's storage device numbers them.
        lba: Lba,
    },
    /// A device's answer to a request, by the request's number. Where the core stalls until it comes, nobody else runs
    /// there.
    Answer {
        /// Number of the request.
        request: u64,
        /// Whether the core runs nobody else meanwhile.
        stalls: bool,
    },
}

impl BlockKey {
    /// Whether it is a device that is waited for, and not another task.
    pub fn is_of_device(self) -> bool {
        matches!(self, Self::Answer { .. })
    }

    /// Whether the CPU runs nobody else meanwhile.
    pub fn stalls(self) -> bool {
        matches!(self, Self::Answer { stalls: true, .. })
    }
}

/// What comes after a committed step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Plan the next step.
    Continue,
    /// Wait until the key is released, then plan the same step again.
    Block(BlockKey),
    /// The activity has ended.
    Done,
}
