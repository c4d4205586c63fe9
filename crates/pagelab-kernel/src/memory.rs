//! A layer's memory: what takes frames, charges them and gives them back, and the lines of kernel objects that it
//! touches.

use crate::frames::frame_alloc::{FramePurpose, Near};
use crate::frames::supply::Frames;
use crate::reclaim::{GroupId, Pressure, Reclaim};
use pagelab_base::addr::{FRAME_BYTES, LINE_BYTES, Pfn, PhysAddr};
use pagelab_base::memory::PhysMem;

/// Bytes of a page's `struct page` in Linux x86-64: one cache line.
pub const PAGE_METADATA_BYTES: u64 = 64;

/// Address of the page metadata (`struct page`) of a frame.
pub fn page_metadata(pfn: Pfn) -> PhysAddr {
    PhysAddr(pfn.0 * PAGE_METADATA_BYTES)
}

/// Address of one of the smaller objects of an address space: one of the lines of its objects' frame but for the first
/// two, chosen by `key`.
pub fn object_line(objects: Pfn, key: u64) -> PhysAddr {
    let lines = FRAME_BYTES / LINE_BYTES - 2;
    let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    objects.addr() + LINE_BYTES * (2 + mixed % lines)
}

/// The memory of a layer, to look at.
#[derive(Clone, Copy)]
pub struct MemoryView<'a> {
    /// What is in the frames.
    pub contents: &'a PhysMem,
    /// The frame allocator.
    pub frames: &'a Frames,
    /// What makes room, if anything does.
    pub reclaim: Option<&'a Reclaim>,
    /// The CPU whose lists of free pages are used.
    pub cpu: u32,
    /// The group that pages are charged to.
    pub group: GroupId,
    /// Frames of physical memory.
    pub frame_count: u64,
}

impl MemoryView<'_> {
    /// Frames that are free, in the CPUs' lists too.
    pub fn free_frames(&self) -> u64 {
        self.frames.allocator.free_frames() + self.frames.allocator.per_cpu_frames()
    }

    /// Whether more than a share of all frames would be in use if `more` were taken.
    pub fn is_fuller_than(&self, percent: u32, more: u64) -> bool {
        (self.frame_count - self.free_frames() + more) * 100 > self.frame_count * u64::from(percent)
    }

    /// What stands in the way of taking a block of this order.
    pub fn pressure(&self, order: u32) -> Option<Pressure> {
        self.reclaim?.pressure(self.free_frames(), 1 << order, self.group)
    }

    /// Whether it is time for kswapd.
    pub fn is_low(&self) -> bool {
        self.reclaim.is_some_and(|reclaim| self.free_frames() < reclaim.marks.low)
    }

    /// Whether a scan might find something.
    pub fn can_reclaim(&self, pressure: Pressure) -> bool {
        self.reclaim.is_some_and(|reclaim| reclaim.has_pages(pressure))
    }
}

/// The memory of a layer, to be changed on behalf of a CPU and a memory cgroup.
pub struct Memory<'a> {
    /// What is in the frames.
    pub contents: &'a mut PhysMem,
    /// The frame allocator.
    pub frames: &'a mut Frames,
    /// What makes room, if anything does.
    pub reclaim: Option<&'a mut Reclaim>,
    /// The CPU whose lists of free pages are used.
    pub cpu: u32,
    /// The group that pages are charged to.
    pub group: GroupId,
    /// Frames of physical memory.
    pub frame_count: u64,
}

impl Memory<'_> {
    /// The same memory, to look at.
    pub fn view(&self) -> MemoryView<'_> {
        MemoryView {
            contents: self.contents,
            frames: self.frames,
            reclaim: self.reclaim.as_deref(),
            cpu: self.cpu,
            group: self.group,
            frame_count: self.frame_count,
        }
    }

    /// A block that nobody is charged for.
    pub fn take(&mut self, order: u32, purpose: FramePurpose) -> Option<Pfn> {
        self.frames.alloc(order, purpose, self.cpu)
    }

    /// The same from certain nodes.
    pub fn take_near(&mut self, order: u32, purpose: FramePurpose, near: Near) -> Option<Pfn> {
        self.frames.alloc_near(order, purpose, self.cpu, near)
    }

    /// Whole frames for so many bytes of a kernel's objects that lie side by side, all 0: the first of them, and how
    /// many. None if there is no memory.
    pub fn take_ring(&mut self, bytes: u64) -> Option<(Pfn, u64)> {
        let order = bytes.div_ceil(FRAME_BYTES).next_power_of_two().ilog2();
        let first = self.take(order, FramePurpose::KernelObject)?;
        (0..1 << order).for_each(|n| self.contents.create(first + n));
        Some((first, 1 << order))
    }

    /// A block for a page of a program.
    pub fn take_page(&mut self, order: u32) -> Option<Pfn> {
        let pfn = self.take(order, FramePurpose::UserData)?;
        self.charge(pfn, order);
        Some(pfn)
    }

    /// Exactly the block at `pfn`; false if it is not free.
    pub fn take_page_at(&mut self, pfn: Pfn, order: u32) -> bool {
        let taken = self.frames.alloc_at(pfn, order, FramePurpose::UserData, self.cpu);
        if taken {
            self.charge(pfn, order);
        }
        taken
    }

    /// Frames are a program's from now on.
    pub fn charge(&mut self, pfn: Pfn, order: u32) {
        if let Some(reclaim) = &mut self.reclaim {
            reclaim.charge(pfn, order, self.group);
        }
    }

    /// A block that was taken, and that nobody is charged for, is free again.
    pub fn free(&mut self, pfn: Pfn, order: u32) {
        self.frames.free(pfn, order, self.cpu);
    }

    /// Frees one frame, whether it is a block or a part of one that is in use.
    pub fn free_frame_of_block(&mut self, pfn: Pfn) {
        let allocator = &mut self.frames.allocator;
        let heads = (0..=allocator.max_order()).map(|order| (Pfn(pfn.0 >> order << order), order));
        let mut blocks = heads.filter(|&(head, order)| allocator.used_order(head) == Some(order));
        let (head, order) = blocks.next().expect("the frame is in use");
        if order > 0 {
            allocator.split_used(head, order, 0);
        }
        self.free(pfn, 0);
    }
}
