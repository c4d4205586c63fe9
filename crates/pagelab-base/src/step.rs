//! Steps of activities: what a step costs, what it may wait for, and what follows it.

use super::addr::{PageSize, Pfn, PhysAddr};
use super::code_cost::CodeCost;
use super::cycles::Cycles;
use super::ids::SpaceId;
use super::io::{Lba, Requests};
use super::lock_kind::LockKind;
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
    /// Reads this many bytes (whole lines) without additional time: the step's own cycles cover it.
    Touch {
        /// Bytes from the reference's address on.
        bytes: u64,
    },
    /// Fetches this many bytes (whole lines) of instructions.
    Fetch {
        /// Bytes from the reference's address on.
        bytes: u64,
    },
    /// Writes this many bytes (whole frames) without reading them first.
    Zero {
        /// Bytes from the reference's address on.
        bytes: u64,
    },
}

/// How a reference's address is translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefSpace {
    /// Kernel code's reference through its layer's direct map: it uses the TLB.
    Kernel,
    /// A hardware engine's reference: a physical address of the layer, which only its hosts translate.
    Physical,
}

/// One reference of a step, at a physical address of the activity's layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ref {
    /// Address in the layer's physical memory.
    pub addr: PhysAddr,
    /// Whether the kernel's direct map translates it first.
    pub space: RefSpace,
    /// What the reference does.
    pub kind: RefKind,
    /// Dependency step: consecutive references with the same number overlap and cost their maximum.
    pub step: u8,
    /// Its address comes from no reference before it, so cores that overlap kernel code make it at once. Otherwise, and
    /// unless it has the number of the reference before it, its address comes from that.
    pub independent: bool,
    /// The lock whose line it refers to, if any; statistics show waits for the line by that.
    pub lock: Option<LockKind>,
}

/// A planned step and its cost. It is reused from step to step, so planning allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// References in execution order.
    pub refs: Vec<Ref>,
    /// Cost from the preset, in addition to the references.
    pub preset: CodeCost,
    /// Cycles in addition to both.
    pub cycles: Cycles,
    /// Requests to the layer's devices; the references follow after their completion.
    pub io: Requests,
    /// Kernel work of the CPU while the devices work, such as the context switch; it ends with their completion at the
    /// latest. Its instructions are also in `preset`.
    pub switch: CodeCost,
    /// The CPU runs no other task until the devices have completed.
    pub stalls: bool,
    /// In a fault's page walk: number of references before the reference to the PTE. Statistics count their cycles
    /// separately from the step's own.
    pub before_pte: usize,
    /// The step fills a translation cache.
    pub fills: bool,
}

impl Step {
    /// Resets the step to no cost and keeps the memory of its lists.
    pub fn clear(&mut self) {
        self.refs.clear();
        (self.preset, self.cycles) = (CodeCost::NONE, Cycles::ZERO);
        self.io.clear();
        (self.switch, self.stalls) = (CodeCost::NONE, false);
        (self.before_pte, self.fills) = (0, false);
    }

    /// Removes references and cycles; requests to devices stay.
    pub fn make_free(&mut self) {
        let io = std::mem::take(&mut self.io);
        self.clear();
        self.io = io;
    }

    /// Adds a kernel reference whose address comes from the one before.
    pub fn kernel(&mut self, kind: RefKind, addr: PhysAddr) {
        let step = self.refs.last().map_or(0, |r| r.step.wrapping_add(1));
        self.refs.push(Ref { addr, space: RefSpace::Kernel, kind, step, independent: false, lock: None });
    }

    /// Adds a kernel reference whose address is known without those before it.
    pub fn kernel_independent(&mut self, kind: RefKind, addr: PhysAddr) {
        let step = self.refs.last().map_or(0, |r| r.step.wrapping_add(1));
        self.refs.push(Ref { addr, space: RefSpace::Kernel, kind, step, independent: true, lock: None });
    }

    /// Adds a reference of a device or an engine, whose address only hosts translate, and which is known without those
    /// before it.
    pub fn physical(&mut self, kind: RefKind, addr: PhysAddr) {
        let step = self.refs.last().map_or(0, |r| r.step.wrapping_add(1));
        self.refs.push(Ref { addr, space: RefSpace::Physical, kind, step, independent: true, lock: None });
    }

    /// Says that the last reference is to the line of a lock.
    pub fn note_lock(&mut self, lock: LockKind) {
        if let Some(last) = self.refs.last_mut() {
            last.lock = Some(lock);
        }
    }

    /// Adds a locked operation on a lock's line, whose address is known without the references before it.
    pub fn take_lock(&mut self, lock: LockKind, line: PhysAddr) {
        self.kernel_independent(RefKind::Locked, line);
        self.note_lock(lock);
    }

    /// Adds a kernel reference that overlaps the previous one.
    pub fn kernel_overlapped(&mut self, kind: RefKind, addr: PhysAddr) {
        let step = self.refs.last().map_or(0, |r| r.step);
        self.refs.push(Ref { addr, space: RefSpace::Kernel, kind, step, independent: false, lock: None });
    }
}

/// What an activity can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockKey {
    /// The handler of another fault on this page (4 KiB page number).
    Page {
        /// The space that contains the page.
        space: SpaceId,
        /// Number of the page: its virtual address divided by 4 KiB.
        page: u64,
    },
    /// Faults that depend on the mappings of a space.
    Mappings {
        /// The space.
        space: SpaceId,
    },
    /// A call that changes the mappings of a space.
    MappingsRead {
        /// The space.
        space: SpaceId,
    },
    /// Data of a placement policy about a part of a space.
    Placement {
        /// The space that contains the part.
        space: SpaceId,
        /// Number of the part, as the policy numbers them.
        place: u64,
    },
    /// The lock of a page-table page.
    PageTable {
        /// The layer whose page table it is.
        layer: LayerId,
        /// Frame of the page-table page.
        frame: Pfn,
    },
    /// The lock of a layer's free pages.
    Zone {
        /// The layer.
        layer: LayerId,
    },
    /// The lock of the LRU lists of a memory cgroup.
    Lru {
        /// The layer whose lists they are.
        layer: LayerId,
        /// Number of the cgroup.
        group: u32,
    },
    /// Data that a layer's kernel keeps for its fault engine, per CPU and page size.
    Engine {
        /// The layer that has the engine.
        layer: LayerId,
        /// The CPU (or the number of the engine's unit) and the page size.
        table: (CpuId, PageSize),
    },
    /// A block that is being written to the layer's storage.
    Writeback {
        /// The layer whose storage it is.
        layer: LayerId,
        /// The block's number on the layer's storage device.
        lba: Lba,
    },
    /// A device's completion of a request.
    Answer {
        /// Number of the request.
        request: u64,
        /// Whether the CPU runs no other task until then.
        stalls: bool,
    },
}

impl BlockKey {
    /// The layer and the kind of the lock; `None` for a device.
    pub fn lock(self) -> Option<(LayerId, LockKind)> {
        match self {
            Self::Page { space, .. } => Some((space.layer, LockKind::Page)),
            Self::Mappings { space } => Some((space.layer, LockKind::MmapWrite)),
            Self::MappingsRead { space } => Some((space.layer, LockKind::MmapRead)),
            Self::Placement { space, .. } => Some((space.layer, LockKind::Placement)),
            Self::PageTable { layer, .. } => Some((layer, LockKind::PageTable)),
            Self::Zone { layer } => Some((layer, LockKind::Zone)),
            Self::Lru { layer, .. } => Some((layer, LockKind::Lru)),
            Self::Engine { layer, .. } => Some((layer, LockKind::Engine)),
            Self::Writeback { layer, .. } => Some((layer, LockKind::Writeback)),
            Self::Answer { .. } => None,
        }
    }

    /// Whether Linux has a spin lock there.
    pub fn is_spin_lock(self) -> bool {
        match self {
            Self::PageTable { .. } | Self::Placement { .. } | Self::Zone { .. } | Self::Lru { .. } => true,
            Self::Page { .. }
            | Self::Mappings { .. }
            | Self::MappingsRead { .. }
            | Self::Engine { .. }
            | Self::Writeback { .. }
            | Self::Answer { .. } => false,
        }
    }

    /// Whether the activity waits for a device rather than another task.
    pub fn waits_for_device(self) -> bool {
        matches!(self, Self::Answer { .. })
    }

    /// Whether the CPU runs no other task until then.
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
