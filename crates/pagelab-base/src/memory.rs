//! The contents of a layer's physical memory, where the simulation needs them.
//!
//! Page tables, and every other structure that a mechanism keeps in memory, are words of simulated frames. So their
//! references have real addresses. Frames of program data have no contents here and cost nothing.

use crate::addr::{FRAME_BYTES, Pfn, PhysAddr};
use crate::host::{prefer_large_pages, prefer_small_pages, prefetch};

/// 64-bit words of a frame.
pub const WORDS_PER_FRAME: usize = FRAME_BYTES as usize / 8;

/// Frames with contents, by frame number.
#[derive(Clone, Default)]
pub struct PhysMem {
    /// Frame number → slot + 1; 0 for a frame without contents. Grows to the highest frame used.
    slots: Vec<u32>,
    frames: Vec<[u64; WORDS_PER_FRAME]>,
    /// Non-zero words of each slot.
    live: Vec<u16>,
    free: Vec<u32>,
    destroyed: u64,
    /// The words of a block of frames that a large table reserved at boot. The host backs only the parts that are
    /// written.
    block: Vec<u64>,
    block_base: u64,
    /// Words of the block that are not zero.
    block_words: usize,
    /// Words of the block that can still be written to before the host is asked for large pages; 0 afterwards.
    block_small_words: usize,
    /// Whether a frame of the block may have been written to, while the host backs it with small pages.
    block_written: Vec<bool>,
}

/// The host backs a block with small pages until this part of its frames could have been written to: in a sparse table
/// of a small program each written word takes a page of the host, large or small.
const SMALL_PART: usize = 8;

impl PhysMem {
    /// Gives a frame contents, all zero. The frame must have none.
    pub fn create(&mut self, pfn: Pfn) {
        let index = pfn.0 as usize;
        if index >= self.slots.len() {
            self.slots.resize(index + 1, 0);
        }
        assert_eq!(self.slots[index], 0, "{pfn:?} has contents already");
        let slot = self.free.pop().unwrap_or_else(|| {
            let slot = self.live.len() as u32;
            self.live.push(0);
            if self.frames.len() == self.frames.capacity() {
                self.make_room();
            }
            self.frames.push([0; WORDS_PER_FRAME]);
            slot
        });
        self.slots[index] = slot + 1;
    }

    /// Doubles the capacity. The frames move to a new allocation instead of growing in place: the host backs only
    /// memory that has not been written to with large pages.
    #[cold]
    fn make_room(&mut self) {
        let mut larger = Vec::with_capacity((2 * self.frames.len()).max(64));
        prefer_large_pages(larger.spare_capacity_mut());
        larger.append(&mut self.frames);
        self.frames = larger;
    }

    /// Removes a frame's contents.
    pub fn destroy(&mut self, pfn: Pfn) {
        let slot = std::mem::take(&mut self.slots[pfn.0 as usize]).checked_sub(1).expect("the frame has contents");
        self.live[slot as usize] = 0;
        self.frames[slot as usize].fill(0);
        self.free.push(slot);
        self.destroyed += 1;
    }

    /// Number of calls of [`Self::destroy`].
    pub fn destroyed(&self) -> u64 {
        self.destroyed
    }

    #[inline]
    fn slot(&self, pfn: Pfn) -> usize {
        let slot = self.slots[pfn.0 as usize];
        debug_assert_ne!(slot, 0, "{pfn:?} has no contents");
        slot as usize - 1
    }

    /// The word at `addr` (8-byte aligned) of a frame with contents.
    #[inline]
    pub fn read(&self, addr: PhysAddr) -> u64 {
        let slot = self.slot(addr.pfn());
        self.frames[slot][word_of(addr)]
    }

    /// The words of the line at `addr` (64-byte aligned) of a frame with contents.
    #[inline]
    pub fn line(&self, addr: PhysAddr) -> &[u64; 8] {
        let words = self.frames[self.slot(addr.pfn())][word_of(addr)..].first_chunk();
        words.expect("a line lies within a frame")
    }

    /// Writes the word at `addr` (8-byte aligned) of a frame with contents.
    #[inline]
    pub fn write(&mut self, addr: PhysAddr, value: u64) {
        let slot = self.slot(addr.pfn());
        let word = &mut self.frames[slot][word_of(addr)];
        self.live[slot] = self.live[slot] + u16::from(value != 0) - u16::from(*word != 0);
        *word = value;
    }

    /// True if every word of the frame is zero.
    pub fn is_zero(&self, pfn: Pfn) -> bool {
        self.live[self.slot(pfn)] == 0
    }

    /// The words of a frame.
    pub fn frame(&self, pfn: Pfn) -> &[u64; WORDS_PER_FRAME] {
        let slot = self.slot(pfn);
        &self.frames[slot]
    }

    /// Gives the frames from `first` on contents, all zero, as one block.
    pub fn create_block(&mut self, first: Pfn, frames: u64) {
        assert!(self.block.is_empty(), "there is a block already");
        self.block = vec![0; frames as usize * WORDS_PER_FRAME];
        prefer_small_pages(&mut self.block);
        self.block_base = first.addr().0;
        self.block_small_words = frames as usize / SMALL_PART + 1;
        self.block_written = vec![false; frames as usize];
    }

    /// Moves the block to memory that the host backs with large pages. Frames that nobody wrote to are not looked at,
    /// since the host would back each of them.
    #[cold]
    fn enlarge_pages(&mut self) {
        let mut larger = vec![0; self.block.len()];
        prefer_large_pages(&mut larger);
        let frames = larger.chunks_mut(WORDS_PER_FRAME).zip(self.block.chunks(WORDS_PER_FRAME));
        for ((to, from), _) in frames.zip(std::mem::take(&mut self.block_written)).filter(|&(_, written)| written) {
            to.copy_from_slice(from);
        }
        self.block = larger;
    }

    #[inline(always)]
    fn block_index(&self, addr: PhysAddr) -> usize {
        (addr.0 - self.block_base) as usize / 8
    }

    /// The word at `addr` (8-byte aligned) of the block.
    #[inline(always)]
    pub fn read_block(&self, addr: PhysAddr) -> u64 {
        self.block[self.block_index(addr)]
    }

    /// Writes the word at `addr` (8-byte aligned) of the block.
    #[inline]
    pub fn write_block(&mut self, addr: PhysAddr, value: u64) {
        let index = self.block_index(addr);
        let old = std::mem::replace(&mut self.block[index], value);
        self.block_words = self.block_words + usize::from(value != 0) - usize::from(old != 0);
        if old == 0 && value != 0 && self.block_small_words > 0 {
            self.block_written[index / WORDS_PER_FRAME] = true;
            self.block_small_words -= 1;
            if self.block_small_words == 0 {
                self.enlarge_pages();
            }
        }
    }

    /// Prefetches the word at `addr` of the block on the host. Changes nothing.
    #[inline]
    pub fn hint_block(&self, addr: PhysAddr) {
        prefetch(&self.block, self.block_index(addr));
    }

    /// Words of the block that are not zero.
    pub fn block_words_in_use(&self) -> usize {
        self.block_words
    }

    /// Frames of the block.
    pub fn block_frames(&self) -> usize {
        self.block.len() / WORDS_PER_FRAME
    }

    /// One more than the highest frame number that ever had contents.
    pub fn frames_end(&self) -> u64 {
        self.slots.len() as u64
    }

    /// Frames that have contents, without those of the block.
    pub fn frames_in_use(&self) -> usize {
        self.live.len() - self.free.len()
    }

    /// Slot of a frame's contents; valid as long as the frame has contents.
    #[inline]
    pub fn slot_of(&self, pfn: Pfn) -> u32 {
        self.slot(pfn) as u32
    }

    /// The word at `addr` of the frame whose contents are in `slot`.
    #[inline]
    pub fn read_in(&self, slot: u32, addr: PhysAddr) -> u64 {
        self.frames[slot as usize][word_of(addr)]
    }

    /// Prefetches the word at `addr` of a frame with contents on the host. Changes nothing.
    #[inline]
    pub fn hint(&self, addr: PhysAddr) {
        self.hint_in(self.slot_of(addr.pfn()), addr);
    }

    /// Prefetches the word at `addr` of the frame whose contents are in `slot`.
    #[inline]
    pub fn hint_in(&self, slot: u32, addr: PhysAddr) {
        prefetch(&self.frames[slot as usize], word_of(addr));
    }
}

#[inline]
fn word_of(addr: PhysAddr) -> usize {
    (addr.0 as usize & (FRAME_BYTES as usize - 1)) / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_and_go_zeroed() {
        let mut mem = PhysMem::default();
        for pfn in (0..200).map(|n| Pfn(n * 1000)) {
            mem.create(pfn);
            mem.write(pfn.addr() + 8 * 511, pfn.0 + 1);
        }
        assert_eq!(mem.read(PhysAddr(5000 * FRAME_BYTES + 8 * 511)), 5001);
        assert!(!mem.is_zero(Pfn(5000)) && mem.frames_in_use() == 200);
        mem.write(PhysAddr(5000 * FRAME_BYTES + 8 * 511), 0);
        assert!(mem.is_zero(Pfn(5000)));
        mem.destroy(Pfn(7000));
        mem.create(Pfn(1));
        assert!(mem.is_zero(Pfn(1)) && mem.frames_in_use() == 200);
        assert_eq!(mem.read_in(mem.slot_of(Pfn(5000)), PhysAddr(5000 * FRAME_BYTES)), 0);
    }

    #[test]
    fn a_block_is_apart_from_other_frames() {
        let mut mem = PhysMem::default();
        mem.create_block(Pfn(8), 2);
        let last = PhysAddr(10 * FRAME_BYTES - 8);
        mem.write_block(last, 7);
        mem.write_block(last, 8);
        assert_eq!((mem.read_block(last), mem.read_block(Pfn(8).addr())), (8, 0));
        assert_eq!((mem.block_frames(), mem.frames_in_use(), mem.block_words_in_use()), (2, 0, 1));
        mem.write_block(last, 0);
        assert_eq!(mem.block_words_in_use(), 0);
    }

    #[test]
    fn a_block_keeps_its_words_when_its_pages_grow() {
        let mut mem = PhysMem::default();
        let frames = 80;
        mem.create_block(Pfn(8), frames);
        let word = |n: u64| Pfn(8 + n * 7 % frames).addr() + 8 * (n % 512);
        for n in 0..40 {
            let small = mem.block.as_ptr();
            mem.write_block(word(n), n + 1);
            mem.write_block(word(n), n + 2);
            assert_eq!(mem.block.as_ptr() != small, n == frames / SMALL_PART as u64);
            assert!((0..=n).all(|n| mem.read_block(word(n)) == n + 2));
        }
    }
}
