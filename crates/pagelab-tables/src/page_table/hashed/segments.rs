//! Segments (POWER): effective addresses are those of a process, virtual addresses those of the hashed table.
//!
//! A table per address space gives each effective segment a virtual segment and a base page size. It has groups of
//! eight entries of 16 bytes, like the hashed table, and a segment is in one of two groups: by the low bits of its
//! number, or by their complement. An entry's first word is the number of the effective segment and a valid bit; the
//! second one is the tag and number of the virtual segment and the base page size.
//! Source: Power ISA, book III (segment table, virtual page class); Linux arch/powerpc/mm/book3s64/slb.c,
//! hash_hugepage.c (`__hash_page_thp`), hash_utils.c (`demote_segment_4k`).

use std::collections::BTreeMap;

use super::geometry::{Key, VA_BITS, line_of};
use super::parameters::SegmentsConfig;
use super::slot::EMPTY;
use crate::page_table::{NoRoom, NoTable, TableBlock, TableFrames, WalkRef};
use pagelab_base::addr::{FRAME_BYTES, LINE_BYTES, PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::memory::PhysMem;

/// Level of the references to segment tables.
const SEGMENT_LEVEL: u8 = 2;
/// Bytes of an entry, and of a group of eight.
const ENTRY_BYTES: u64 = 16;
const GROUP_BYTES: u64 = 8 * ENTRY_BYTES;
/// Bits of an entry's words.
const VALID: u64 = 1;
const EFFECTIVE_SHIFT: u32 = 12;
const ASID_SHIFT: u32 = 40;
const NUMBER_SHIFT: u32 = 8;

/// Tag of virtual segments that several spaces use; no space has it.
pub const SHARED_TAG: u16 = u16::MAX;

/// The segment table of an address space.
#[derive(Clone)]
pub struct SegmentTable {
    base: PhysAddr,
    order: u32,
    /// log2 of the bytes of a segment.
    pub shift: u32,
    /// The virtual segments that effective ones share with other spaces, whether they have an entry or not.
    shared: BTreeMap<u64, u32>,
    /// Lines that the last changes wrote beside the entry of the page.
    pub lines: Vec<PhysAddr>,
    /// Number of segments whose base page size became smaller since the last report.
    pub demoted: u64,
}

/// An effective segment's entry.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Tag of the virtual segment.
    pub asid: u16,
    /// Number of the virtual segment under this tag.
    pub number: u64,
    /// Base page size.
    pub base: PageSize,
}

impl SegmentTable {
    /// An empty table.
    pub fn new(config: &SegmentsConfig, mem: &mut PhysMem, frames: TableFrames) -> Result<Self, NoTable> {
        let order = config.table_order();
        let first = frames(order).ok_or(NoTable::Block { order })?;
        TableBlock { first, order }.create(mem);
        Ok(Self {
            base: first.addr(),
            order,
            shift: config.shift(),
            shared: BTreeMap::new(),
            lines: Vec::new(),
            demoted: 0,
        })
    }

    fn slots(&self) -> impl Iterator<Item = PhysAddr> + use<> {
        let (base, groups) = (self.base, self.groups());
        (0..groups * GROUP_BYTES).step_by(ENTRY_BYTES as usize).map(move |at| base + at)
    }

    fn groups(&self) -> u64 {
        (FRAME_BYTES << self.order) / GROUP_BYTES
    }

    /// Removes all entries.
    pub fn clear(&mut self, mem: &mut PhysMem) {
        for at in self.slots() {
            mem.write(at, EMPTY);
            mem.write(at + 8, 0);
        }
        self.shared.clear();
    }

    /// Frees the table's memory.
    pub fn destroy(mut self, mem: &mut PhysMem, release: &mut dyn FnMut(Pfn)) {
        self.clear(mem);
        TableBlock { first: self.base.pfn(), order: self.order }.destroy(mem);
        release(self.base.pfn());
    }

    pub fn effective(&self, va: VirtAddr) -> u64 {
        (va.0 & ((1 << VA_BITS) - 1)) >> self.shift
    }

    /// Makes an effective segment a shared virtual one, or the space's own again.
    pub fn share(&mut self, va: VirtAddr, id: Option<u32>) {
        let effective = self.effective(va);
        match id {
            Some(id) => self.shared.insert(effective, id),
            None => self.shared.remove(&effective),
        };
    }

    /// The virtual segment that the entry of a segment without pages points to, in the space with this tag.
    pub fn pointed_to(&self, asid: u16, va: VirtAddr, base: PageSize) -> Segment {
        let number = self.effective(va);
        match self.shared.get(&number) {
            Some(&id) => Segment { asid: SHARED_TAG, number: id.into(), base },
            None => Segment { asid, number, base },
        }
    }

    /// Looks for the entry of an effective segment; calls `visit` with each line that is read. Returns the address of
    /// the entry, or that of a free one.
    #[inline(always)]
    pub fn search(
        &self,
        mem: &PhysMem,
        va: VirtAddr,
        mut visit: impl FnMut(PhysAddr),
    ) -> Result<PhysAddr, Option<PhysAddr>> {
        let effective = self.effective(va);
        let last = self.groups() - 1;
        let (mut line, mut room) = (u64::MAX, None);
        for group in [effective & last, !effective & last] {
            for slot in 0..8 {
                let at = self.base + group * GROUP_BYTES + slot * ENTRY_BYTES;
                if line_of(at) != line {
                    line = line_of(at);
                    visit(at);
                }
                match mem.read(at) {
                    EMPTY => room = room.or(Some(at)),
                    word if word == effective << EFFECTIVE_SHIFT | VALID => return Ok(at),
                    _ => {}
                }
            }
        }
        Err(room)
    }

    /// The entry of an effective segment; calls `visit` with each line that is read.
    #[inline(always)]
    pub fn find(&self, mem: &PhysMem, va: VirtAddr, visit: impl FnMut(PhysAddr)) -> Option<Segment> {
        let word = mem.read(self.search(mem, va, visit).ok()? + 8);
        Some(Segment {
            asid: (word >> ASID_SHIFT) as u16,
            number: word >> NUMBER_SHIFT & u64::from(u32::MAX),
            base: PageSize::ALL[(word & 0b11) as usize],
        })
    }

    /// Writes the entry of an effective segment, a new one if there is none.
    pub fn write(&mut self, mem: &mut PhysMem, va: VirtAddr, segment: Segment) -> Result<(), NoRoom> {
        let at = self.search(mem, va, |_| {}).or_else(|room| room.ok_or(NoRoom))?;
        mem.write(at, self.effective(va) << EFFECTIVE_SHIFT | VALID);
        let virtual_segment = u64::from(segment.asid) << ASID_SHIFT | segment.number << NUMBER_SHIFT;
        mem.write(at + 8, virtual_segment | segment.base as u64);
        self.lines.push(at.align_down(LINE_BYTES));
        Ok(())
    }

    /// What the hashed table knows of the page at `va`, in pages of the segment's base size.
    #[inline(always)]
    pub fn key(&self, segment: Segment, va: VirtAddr) -> Key {
        let size = segment.base;
        let index = (va.0 & ((1 << self.shift) - 1)) >> size.shift();
        Key { asid: segment.asid, vpn: segment.number << (self.shift - size.shift()) | index, size }
    }

    /// The reference to a line of the table.
    pub fn reference(&self, addr: PhysAddr, step: u8) -> WalkRef {
        WalkRef { addr, level: SEGMENT_LEVEL, shift: self.shift as u8, factor: 1, step }
    }
}
