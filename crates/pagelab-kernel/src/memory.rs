//! A layer's memory: allocating, charging and freeing frames, and the lines of kernel objects that this touches.

use std::ops::{Deref, DerefMut};

use crate::context::KernelContext;
use crate::frames::frame_alloc::{FramePurpose, Near};
use crate::frames::page_use::PageUse;
use crate::frames::supply::Frames;
use crate::layer::contents::Contents;
use crate::reclaim::{GroupId, Pressure, Reclaim};
use pagelab_base::addr::{FRAME_BYTES, LINE_BYTES, Pfn, PhysAddr};
use pagelab_base::memory::PhysMem;

/// Bytes of a page's `struct page` in Linux x86-64: one cache line.
pub const PAGE_METADATA_BYTES: u64 = 64;

/// Address of the page metadata (`struct page`) of a frame.
pub fn page_metadata(pfn: Pfn) -> PhysAddr {
    PhysAddr(pfn.0 * PAGE_METADATA_BYTES)
}

/// Address of a smaller object of an address space: a line of the frame of its objects, except the first two, chosen by
/// `key`.
pub fn object_line(objects: Pfn, key: u64) -> PhysAddr {
    let lines = FRAME_BYTES / LINE_BYTES - 2;
    let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    objects.addr() + LINE_BYTES * (2 + mixed % lines)
}

/// The physical memory of a layer.
#[derive(Clone)]
pub struct LayerMemory {
    /// Contents of its frames, as far as they are simulated: page tables and kernel objects.
    pub contents: PhysMem,
    /// The frame allocator.
    pub frames: Frames,
    /// Reclaim, if the layer can free memory.
    pub reclaim: Option<Reclaim>,
    /// Users of the frames of programs and of files.
    pub page_use: PageUse,
    /// Number of frames.
    pub frame_count: u64,
    /// Frames that the allocator does not manage: page metadata, tables and segments reserved at boot.
    pub set_aside: u64,
    /// With `--check`, the contents of files in frames and on storage.
    pub checked: Option<Contents>,
}

impl LayerMemory {
    /// Number of free frames, including those on the CPUs' lists.
    pub fn free_frames(&self) -> u64 {
        self.frames.allocator.free_frames() + self.frames.allocator.per_cpu_frames()
    }

    /// Whether more than a percentage of all frames would be in use if `more` frames were allocated.
    pub fn is_fuller_than(&self, percent: u32, more: u64) -> bool {
        (self.frame_count - self.free_frames() + more) * 100 > self.frame_count * u64::from(percent)
    }

    /// Why a block of this order cannot be allocated for a group at once; `None` if it can.
    pub fn pressure(&self, order: u32, group: GroupId) -> Option<Pressure> {
        self.reclaim.as_ref()?.pressure(self.free_frames(), 1 << order, group)
    }

    /// Whether free memory is below the watermark at which kswapd is woken.
    pub fn is_low(&self) -> bool {
        self.reclaim.as_ref().is_some_and(|reclaim| self.free_frames() < reclaim.marks.low)
    }

    /// Whether a scan might find pages.
    pub fn can_reclaim(&self, pressure: Pressure) -> bool {
        self.reclaim.as_ref().is_some_and(|reclaim| reclaim.has_pages(pressure))
    }

    /// The same memory, for reading in a context.
    pub fn view(&self, context: KernelContext) -> MemoryView<'_> {
        MemoryView { memory: self, context }
    }
}

/// The memory of a layer, for reading in a context.
#[derive(Clone, Copy)]
pub struct MemoryView<'a> {
    memory: &'a LayerMemory,
    /// On whose behalf.
    pub context: KernelContext,
}

impl MemoryView<'_> {
    /// Why a block of this order cannot be allocated for the context's group at once; `None` if it can.
    pub fn pressure(&self, order: u32) -> Option<Pressure> {
        self.memory.pressure(order, self.context.group)
    }
}

impl Deref for MemoryView<'_> {
    type Target = LayerMemory;

    fn deref(&self) -> &LayerMemory {
        self.memory
    }
}

/// The memory of a layer, for changes in a context.
pub struct Memory<'a> {
    /// The memory.
    pub layer: &'a mut LayerMemory,
    /// On whose behalf.
    pub context: KernelContext,
}

impl Deref for Memory<'_> {
    type Target = LayerMemory;

    fn deref(&self) -> &LayerMemory {
        self.layer
    }
}

impl DerefMut for Memory<'_> {
    fn deref_mut(&mut self) -> &mut LayerMemory {
        self.layer
    }
}

impl Memory<'_> {
    /// The same memory, for reading.
    pub fn view(&self) -> MemoryView<'_> {
        self.layer.view(self.context)
    }

    /// Allocates a block that is charged to no cgroup.
    pub fn take(&mut self, order: u32, purpose: FramePurpose) -> Option<Pfn> {
        self.layer.frames.alloc(order, purpose, self.context.cpu)
    }

    /// Allocates such a block from certain nodes.
    pub fn take_near(&mut self, order: u32, purpose: FramePurpose, near: Near) -> Option<Pfn> {
        self.layer.frames.alloc_near(order, purpose, self.context.cpu, near)
    }

    /// Allocates whole frames for this many contiguous bytes of kernel objects, all 0. Returns the first frame and the
    /// number of frames; `None` if there is no memory.
    pub fn take_ring(&mut self, bytes: u64) -> Option<(Pfn, u64)> {
        let order = bytes.div_ceil(FRAME_BYTES).next_power_of_two().ilog2();
        let first = self.take(order, FramePurpose::KernelObject)?;
        (0..1 << order).for_each(|n| self.layer.contents.create(first + n));
        Some((first, 1 << order))
    }

    /// Allocates a block for a page of a program.
    pub fn take_page(&mut self, order: u32) -> Option<Pfn> {
        let pfn = self.take(order, FramePurpose::UserData)?;
        self.charge(pfn, order);
        Some(pfn)
    }

    /// Allocates exactly the block at `pfn` for a page of a program; false if it is not free.
    pub fn take_page_at(&mut self, pfn: Pfn, order: u32) -> bool {
        let taken = self.layer.frames.alloc_at(pfn, order, FramePurpose::UserData, self.context.cpu);
        if taken {
            self.charge(pfn, order);
        }
        taken
    }

    /// Charges frames to the context's cgroup.
    pub fn charge(&mut self, pfn: Pfn, order: u32) {
        if let Some(reclaim) = &mut self.layer.reclaim {
            reclaim.charge(pfn, order, self.context.group);
        }
    }

    /// Frees a block that is charged to no cgroup.
    pub fn free(&mut self, pfn: Pfn, order: u32) {
        self.layer.frames.free(pfn, order, self.context.cpu);
    }

    /// Frees one frame, which may be a block or a part of a block in use.
    pub fn free_frame_of_block(&mut self, pfn: Pfn) {
        self.split_off(pfn);
        self.free(pfn, 0);
    }

    /// Makes a block of one frame, which may be a part of a larger block in use.
    pub fn split_off(&mut self, pfn: Pfn) {
        let allocator = &mut self.layer.frames.allocator;
        let heads = (0..=allocator.max_order()).map(|order| (Pfn(pfn.0 >> order << order), order));
        let mut blocks = heads.filter(|&(head, order)| allocator.used_order(head) == Some(order));
        let (head, order) = blocks.next().expect("the frame is in use");
        if order > 0 {
            allocator.split_used(head, order, 0);
        }
    }
}
