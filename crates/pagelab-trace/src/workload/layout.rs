//! The addresses of a workload's mappings, and the events that create them.

use std::sync::Arc;

use super::spec::{ALIGN, Values};
use crate::{Access, AccessKind, Event, EventKind, Maker, MapFlags, ProcessIx, Protection, ThreadIx, TraceError};

const PAGE_BYTES: u64 = 4096;
/// The workload's only code page, at the address where Linux maps position-independent programs without randomisation.
const CODE_ADDR: u64 = 0x5555_5555_5000;
/// Offset of site 0 in the code page; sites are `SITE_BYTES` apart.
const FIRST_SITE: u64 = 0x100;
const SITE_BYTES: u64 = 16;
/// Mappings are placed downwards from here, as below Linux's stack gap and libraries.
const MMAP_TOP: u64 = 0x7fff_f7ff_f000;
/// No mapping is placed below.
const MMAP_BOTTOM: u64 = 0x1000_0000_0000;
/// Thread id of the first thread; the others follow.
const FIRST_TID: u32 = 1000;

/// A place in the workload's code that accesses memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    pub pc: u64,
    pub gap: u32,
    pub size_bytes: u16,
}

impl Site {
    /// Site `number` of the program: accesses of `size_bytes`, each counting as `gap` instructions.
    pub fn new(number: u64, size_bytes: u16, gap: u32) -> Self {
        Self { pc: CODE_ADDR + FIRST_SITE + number * SITE_BYTES, gap, size_bytes }
    }

    #[inline(always)]
    pub fn access(self, kind: AccessKind, vaddr: u64) -> Access {
        Access { vaddr, pc: self.pc, gap: self.gap, size_bytes: self.size_bytes, kind, maker: Maker::PROGRAM }
    }

    #[inline(always)]
    pub fn load(self, vaddr: u64) -> Access {
        self.access(AccessKind::Load, vaddr)
    }

    #[inline(always)]
    pub fn store(self, vaddr: u64) -> Access {
        self.access(AccessKind::Store, vaddr)
    }
}

/// The address space before the first access.
pub(super) struct Layout {
    events: Vec<Event>,
    cursor: u64,
    align: u64,
    workload: &'static str,
}

impl Layout {
    /// A process with its threads and its code page, without arrays.
    pub fn new(values: &Values) -> Self {
        let workload = values.name();
        let mut layout = Self { events: Vec::new(), cursor: MMAP_TOP, align: values.number(ALIGN.name), workload };
        layout.push(0, EventKind::ProcessStart { parent: None });
        layout.push(0, EventKind::ThreadStart { os_tid: FIRST_TID });
        layout.push(
            0,
            EventKind::Mmap {
                addr: CODE_ADDR,
                len: PAGE_BYTES,
                prot: Protection { read: true, write: false, execute: true },
                flags: MapFlags(MapFlags::PRIVATE | MapFlags::FIXED),
                file: Some(Arc::from(workload)),
                file_offset: 0,
            },
        );
        for thread in 1..values.threads() as u32 {
            layout.push(thread, EventKind::ThreadStart { os_tid: FIRST_TID + thread });
        }
        layout
    }

    /// Maps an anonymous private array of `bytes` (rounded up to whole pages) and returns its address.
    ///
    /// # Errors
    /// If there is no room left in the address space.
    pub fn map(&mut self, thread: u32, bytes: u64) -> Result<u64, TraceError> {
        let (addr, len) = self.place(bytes)?;
        let prot = Protection::READ_WRITE;
        let flags = MapFlags(MapFlags::anonymous_private().0 | MapFlags::WRITTEN_BEFORE);
        self.push(thread, EventKind::Mmap { addr, len, prot, flags, file: None, file_offset: 0 });
        Ok(addr)
    }

    /// Maps the first `bytes` (rounded up to whole pages) of a file for reading and writing, shared, and returns the
    /// address.
    ///
    /// # Errors
    /// If there is no room left in the address space.
    pub fn map_file(&mut self, thread: u32, bytes: u64, file: &str) -> Result<u64, TraceError> {
        self.map_file_as(thread, bytes, file, 0)
    }

    /// [`Self::map_file`] with further flags of the call.
    ///
    /// # Errors
    /// If there is no room left in the address space.
    pub fn map_file_as(&mut self, thread: u32, bytes: u64, file: &str, flags: u32) -> Result<u64, TraceError> {
        let (addr, len) = self.place(bytes)?;
        self.push(thread, shared_file(addr, len, file, flags));
        Ok(addr)
    }

    /// Gives the kernel advice of madvise(2) about the `bytes` (rounded up to whole pages) at `addr`.
    pub fn advise(&mut self, thread: u32, addr: u64, bytes: u64, advice: u32) {
        self.push(thread, EventKind::Madvise { addr, len: bytes.next_multiple_of(PAGE_BYTES), advice });
    }

    /// Address of the next `bytes`, and their length in whole pages.
    fn place(&mut self, bytes: u64) -> Result<(u64, u64), TraceError> {
        let len = bytes.next_multiple_of(PAGE_BYTES);
        let addr = self.cursor.checked_sub(len).map(|addr| addr & !(self.align - 1)).filter(|&a| a >= MMAP_BOTTOM);
        let addr = addr.ok_or_else(|| self.no_room())?;
        self.cursor = addr;
        Ok((addr, len))
    }

    fn no_room(&self) -> TraceError {
        let room = (MMAP_TOP - MMAP_BOTTOM) >> 40;
        TraceError::usage(format!(
            "{}: the arrays of all threads do not fit the {room} TiB of address space for them",
            self.workload
        ))
    }

    /// Reserves the rest of the address space for mappings of at most `bytes` that are created and removed during the
    /// run. Nothing else can be mapped afterwards.
    ///
    /// # Errors
    /// If there is no room for `least` of them.
    pub fn reserve_slots(&mut self, bytes: u64, least: u64) -> Result<Slots, TraceError> {
        let stride = bytes.next_multiple_of(PAGE_BYTES).next_multiple_of(self.align);
        let top = self.cursor & !(self.align - 1);
        let most = top.saturating_sub(MMAP_BOTTOM) / stride;
        if least > most {
            return Err(self.no_room());
        }
        self.cursor = MMAP_BOTTOM;
        Ok(Slots { top, stride, most, taken: 0, free: Vec::new() })
    }

    /// Maps a file like [`Layout::map_file`] into a slot; returns the slot's number and its address.
    ///
    /// # Errors
    /// If there is no slot left.
    pub fn map_into(
        &mut self,
        slots: &mut Slots,
        thread: u32,
        bytes: u64,
        file: impl FnOnce(u64) -> String,
    ) -> Result<(u64, u64), TraceError> {
        let (slot, addr) = slots.take().ok_or_else(|| self.no_room())?;
        self.push(thread, shared_file(addr, bytes.next_multiple_of(PAGE_BYTES), &file(slot), 0));
        Ok((slot, addr))
    }

    /// Leaves a page unmapped, so that the next mapping is not adjacent to the previous one.
    pub fn leave_hole(&mut self) {
        self.cursor = self.cursor.saturating_sub(PAGE_BYTES);
    }

    pub fn into_events(self) -> Vec<Event> {
        self.events
    }

    fn push(&mut self, thread: u32, kind: EventKind) {
        self.events.push(Event { position: 0, process: ProcessIx(0), thread: ThreadIx(thread), kind });
    }
}

/// Slots for mappings that are created and removed. Freed slots are reused, the last freed one first.
pub(super) struct Slots {
    top: u64,
    stride: u64,
    most: u64,
    taken: u64,
    free: Vec<u64>,
}

impl Slots {
    /// A slot's number and address; none if all are in use.
    pub fn take(&mut self) -> Option<(u64, u64)> {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.taken += 1;
            self.taken - 1
        });
        (slot < self.most).then(|| (slot, self.top - (slot + 1) * self.stride))
    }

    pub fn give_back(&mut self, slot: u64) {
        self.free.push(slot);
    }
}

/// The event that maps a file from its beginning for reading and writing, shared.
pub(super) fn shared_file(addr: u64, len: u64, file: &str, flags: u32) -> EventKind {
    EventKind::Mmap {
        addr,
        len,
        prot: Protection::READ_WRITE,
        flags: MapFlags(MapFlags::SHARED | flags),
        file: Some(Arc::from(file)),
        file_offset: 0,
    }
}
