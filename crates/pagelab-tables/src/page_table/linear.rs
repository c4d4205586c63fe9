//! Linear page table.
//!
//! Models: a flat array of 8-byte entries in contiguous physical memory, indexed by page number: a walk is one
//! reference. It translates a guest's physical memory, which begins at 0 and has a known size, so the host reserves the
//! array at boot. With 4-level radix tables in the guest, 24 references become 9. The host's kernel itself runs on a
//! radix table.
//! Source: Ahn, Jin, Huh, ISCA 2012 (flat nested page table), as described by Yaniv, Tsafrir, SIGMETRICS 2016, 6.2;
//! entries have the format of x86-64 leaf entries.
//! Parameters: none; the array has an entry for each frame of the guest.
//! Deviations: pages of 4 KiB only. The whole array is reserved, but only the parts in use have contents here.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::entry::{PRESENT, decode, encode, leaf_of, word_of, write_word};
use super::{
    Boot, Design, Mapping, NoRoom, NoTable, PageSizes, PteFlags, Removed, SetAside, Shared, TableFrames, UpperEntries,
    WalkList, WalkRef, Word,
};
use pagelab_base::addr::{FRAME_SHIFT, PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::error::EngineError;
use pagelab_base::memory::{PhysMem, WORDS_PER_FRAME};

/// Level of all entries.
const LEVEL: u8 = 1;

/// A linear page table has no parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinearConfig {}

/// The memory that a layer has reserved for the arrays of its guests.
#[derive(Clone)]
pub struct Arrays {
    /// The first frame that is not yet assigned to an array.
    next: Pfn,
}

impl Shared<Linear> for Arrays {
    fn boot(_: &LinearConfig, boot: &Boot, _: &mut PhysMem) -> Result<(Self, SetAside), EngineError> {
        let frames = boot.guests.iter().map(|&bytes| Linear::frames_for(bytes)).sum();
        let set_aside = SetAside { end: boot.taken + frames, of_spaces: frames, what: None };
        Ok((Self { next: Pfn(boot.taken) }, set_aside))
    }
}

/// The linear page table of one guest.
#[derive(Clone)]
pub struct Linear {
    first: Pfn,
    /// For each frame of the array: whether it has contents.
    used: Vec<bool>,
}

impl Linear {
    /// Number of frames of the array for `bytes` of guest memory.
    fn frames_for(bytes: u64) -> u64 {
        (bytes >> FRAME_SHIFT).div_ceil(WORDS_PER_FRAME as u64)
    }

    /// An empty table for `bytes` from address 0 on, stored in the frames from `first` on.
    fn new(first: Pfn, bytes: u64) -> Self {
        Self { first, used: vec![false; Self::frames_for(bytes) as usize] }
    }

    #[inline]
    fn entry_addr(&self, va: VirtAddr) -> PhysAddr {
        PhysAddr(self.first.addr().0 + va.page_number() * 8)
    }

    #[inline]
    fn entry(&self, mem: &PhysMem, addr: PhysAddr) -> u64 {
        if self.used[self.part(addr)] { mem.read(addr) } else { 0 }
    }

    /// Address and mapping of the entry of a mapped page.
    fn present(&self, mem: &PhysMem, va: VirtAddr) -> (PhysAddr, Mapping) {
        let addr = self.entry_addr(va);
        let entry = self.entry(mem, addr);
        assert!(entry & PRESENT != 0, "{va:?} is not mapped");
        (addr, decode(LEVEL, entry))
    }

    /// Index of the array's frame that contains the entry.
    fn part(&self, entry: PhysAddr) -> usize {
        (entry.pfn().0 - self.first.0) as usize
    }

    /// Creates the contents of that frame if it has none.
    fn touch(&mut self, mem: &mut PhysMem, entry: PhysAddr) {
        let part = self.part(entry);
        if !std::mem::replace(&mut self.used[part], true) {
            mem.create(entry.pfn());
        }
    }

    /// Calls `each` with page and content of every nonzero entry in the range, until `each` returns false.
    fn visit(&self, mem: &PhysMem, start: VirtAddr, end: VirtAddr, mut each: impl FnMut(VirtAddr, u64) -> bool) {
        let pages = WORDS_PER_FRAME as u64;
        let end = end.0.div_ceil(1 << FRAME_SHIFT).min(self.used.len() as u64 * pages);
        let mut page = start.page_number();
        while page < end {
            if !self.used[(page / pages) as usize] {
                page = (page / pages + 1) * pages;
                continue;
            }
            let va = VirtAddr::from_page_number(page);
            let entry = mem.read(self.entry_addr(va));
            if entry != 0 && !each(va, entry) {
                return;
            }
            page += 1;
        }
    }
}

impl Design for Linear {
    type Parameters = LinearConfig;
    type Shared = Arrays;

    const PAGE_SIZES: PageSizes = PageSizes::only_4k("its index is the number of a 4 KiB page");
    const HOSTS_ONLY: Option<&'static str> = Some("a linear table has an entry for each frame of a guest");
    const WORDS: Result<&'static [PageSize], &'static str> = Ok(&[PageSize::Size4K]);

    fn samples() -> Vec<LinearConfig> {
        vec![LinearConfig {}]
    }

    fn upper_entries(_: &LinearConfig) -> UpperEntries {
        UpperEntries::Nothing
    }

    fn create(
        _: &LinearConfig,
        arrays: &mut Arrays,
        _: &mut PhysMem,
        _: TableFrames,
        guest: Option<u64>,
    ) -> Result<Self, NoTable> {
        let bytes = guest.expect("only guests have such a table");
        let first = arrays.next;
        arrays.next.0 += Self::frames_for(bytes);
        Ok(Self::new(first, bytes))
    }

    #[inline]
    fn walk(&self, mem: &PhysMem, va: VirtAddr, list: &mut WalkList) {
        let addr = self.entry_addr(va);
        list.set([WalkRef::to_leaf(addr, 0)]);
        list.leaf = leaf_of(LEVEL, self.entry(mem, addr));
    }

    fn peek(&self, mem: &PhysMem, va: VirtAddr) -> Option<(PhysAddr, Pfn)> {
        let addr = self.entry_addr(va);
        let entry = self.entry(mem, addr);
        (entry & PRESENT != 0).then(|| (addr, decode(LEVEL, entry).pfn))
    }

    fn map(&mut self, mem: &mut PhysMem, va: VirtAddr, mapping: Mapping) -> Result<PhysAddr, NoRoom> {
        assert_eq!(mapping.size, PageSize::Size4K, "{va:?} is to be mapped by a large page");
        let addr = self.entry_addr(va);
        self.touch(mem, addr);
        assert_eq!(mem.read(addr) & PRESENT, 0, "the entry of {va:?} is in use");
        mem.write(addr, encode(LEVEL, &mapping));
        Ok(addr)
    }

    fn set_flags(&mut self, mem: &mut PhysMem, va: VirtAddr, flags: PteFlags) -> PhysAddr {
        let (addr, mapping) = self.present(mem, va);
        mem.write(addr, encode(LEVEL, &Mapping { flags, ..mapping }));
        addr
    }

    fn replace(&mut self, mem: &mut PhysMem, va: VirtAddr, mapping: Mapping) -> PhysAddr {
        let (addr, _) = self.present(mem, va);
        mem.write(addr, encode(LEVEL, &mapping));
        addr
    }

    fn unmap(&mut self, mem: &mut PhysMem, va: VirtAddr) -> PhysAddr {
        let (addr, _) = self.present(mem, va);
        mem.write(addr, 0);
        addr
    }

    fn mapped(&self, mem: &PhysMem, start: VirtAddr, end: VirtAddr, most: usize, out: &mut Vec<Removed>) {
        self.visit(mem, start, end, |va, entry| {
            if out.len() < most && entry & PRESENT != 0 {
                out.push(Removed { va, mapping: decode(LEVEL, entry) });
            }
            out.len() < most
        });
    }

    fn set_word(&mut self, mem: &mut PhysMem, va: VirtAddr, _: PageSize, word: u64) -> PhysAddr {
        let addr = self.entry_addr(va);
        self.touch(mem, addr);
        write_word(mem, addr, word);
        addr
    }

    fn words(&self, mem: &PhysMem, start: VirtAddr, end: VirtAddr, most: usize, out: &mut Vec<Word>) {
        self.visit(mem, start, end, |va, entry| {
            if out.len() < most && entry & PRESENT == 0 {
                out.push(Word::for_4k(va, word_of(entry)));
            }
            out.len() < most
        });
    }

    /// The array stays reserved.
    fn destroy(self, _: &mut Arrays, mem: &mut PhysMem, _: &mut dyn FnMut(Pfn)) {
        for (n, _) in self.used.iter().enumerate().filter(|(_, used)| **used) {
            let frame = self.first + n as u64;
            assert!(mem.is_zero(frame), "a page table that is destroyed maps nothing");
            mem.destroy(frame);
        }
    }

    fn untouched_frames(&self) -> u64 {
        self.used.iter().filter(|used| !**used).count() as u64
    }

    fn va_bits(&self) -> u32 {
        FRAME_SHIFT + (self.used.len() * WORDS_PER_FRAME).next_power_of_two().ilog2()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Leaf;
    use super::*;

    #[test]
    fn a_walk_reads_the_entry_at_the_pages_number() {
        let mut mem = PhysMem::default();
        let mut table = Linear::new(Pfn(7), 8 << 20);
        assert_eq!((table.used.len(), table.va_bits()), (4, 23));
        let flags = PteFlags { writable: true, user: true, executable: true, accessed: false, dirty: false };
        let pages = [0, 1, 511, 512, 2047];
        for page in pages {
            let mapping = Mapping { pfn: Pfn(5000 + page), size: PageSize::Size4K, flags };
            let addr = table.map(&mut mem, VirtAddr(page << 12), mapping).unwrap();
            assert_eq!(addr, PhysAddr((7 << 12) + 8 * page));
            let mut list = WalkList::new();
            table.walk(&mem, VirtAddr((page << 12) + 0xfff), &mut list);
            assert_eq!(list.refs(), [WalkRef::to_leaf(addr, 0)]);
            assert_eq!(list.leaf, Leaf::Present(mapping));
        }
        assert_eq!(mem.frames_in_use(), 3, "the third has no page");
        let mut found = Vec::new();
        table.mapped(&mem, VirtAddr(0x1fff), VirtAddr(1 << 40), 3, &mut found);
        assert_eq!(found.iter().map(|r| r.va.0 >> 12).collect::<Vec<_>>(), [1, 511, 512]);
        let mut list = WalkList::new();
        table.walk(&mem, VirtAddr(1025 << 12), &mut list);
        assert_eq!((list.refs().len(), list.leaf), (1, Leaf::nothing(1)));
        pages.iter().for_each(|page| _ = table.unmap(&mut mem, VirtAddr(page << 12)));
        table.destroy(&mut Arrays { next: Pfn(11) }, &mut mem, &mut |_| {});
        assert_eq!(mem.frames_in_use(), 0);
    }
}
