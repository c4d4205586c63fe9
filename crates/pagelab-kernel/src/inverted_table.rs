//! Inverted shadow page table of the machine's own layer, which its guests look up: speculatively
//! (`pagelab_translate::scheme::speculation`) or kept consistent by exits (`scheme::inverted_shadow` there).

use crate::config::LayerConfig;
use crate::vma::VaRange;
use pagelab_base::addr::{FRAME_BYTES, FRAME_SHIFT, MachineAddr, Pfn, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_tables::mmu_cache::Asid;

const SLOT_BYTES: u64 = 16;

/// Slots per cache line, which hold neighbouring pages.
const SLOTS_PER_LINE: u64 = 4;

/// Bits of a page's number in a tag.
const PAGE_BITS: u32 = 45;

/// Marks a used slot, so that no tag is 0.
const VALID: u64 = 1 << 63;

/// The table and its place in memory.
#[derive(Clone)]
pub struct InvertedTable {
    first: Pfn,
    /// Tag and translation of each slot.
    pub slots: Vec<[u64; 2]>,
    /// Cycles of a pipeline flush after a wrong speculation; 0 if no slot is ever wrong.
    pub flush_cycles: Cycles,
}

impl InvertedTable {
    /// The table that a layer's configuration asks for, after its first `taken` of `frames` frames.
    pub fn set_aside(config: &LayerConfig, taken: u64, frames: u64) -> Result<Option<Self>, EngineError> {
        let (bytes, flush_cycles, key) = match (config.speculative_table, config.inverted_shadow_bytes) {
            (Some(table), _) => (table.table_bytes, table.flush_cycles, "speculative_table.table_bytes"),
            (None, Some(bytes)) => (bytes, 0, "inverted_shadow_bytes"),
            (None, None) => return Ok(None),
        };
        let most = frames.saturating_sub(taken) << FRAME_SHIFT >> 1;
        if bytes.0 > most || !bytes.0.is_power_of_two() || bytes.0 >> FRAME_SHIFT == 0 {
            let what = format!(
                "{bytes} is not possible; allowed are powers of two from 4096 to half of the layer's free memory, {most} bytes"
            );
            return Err(EngineError::config(format!("system.layers.{}.{key}", config.name), what));
        }
        let slots = vec![[0; 2]; (bytes.0 / SLOT_BYTES) as usize];
        Ok(Some(Self { first: Pfn(taken), slots, flush_cycles: flush_cycles.into() }))
    }

    /// The first frame after it.
    pub fn end(&self) -> Pfn {
        Pfn(self.first.0 + ((self.slots.len() as u64 * SLOT_BYTES) >> FRAME_SHIFT))
    }

    /// Number of a page's slot, and its tag.
    pub fn place(&self, asid: Asid, va: VirtAddr) -> (usize, u64) {
        let page = va.page_number();
        let tag = VALID | u64::from(asid.0) << PAGE_BITS | page;
        let group = (tag / SLOTS_PER_LINE).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let lines = self.slots.len() as u64 / SLOTS_PER_LINE;
        // The upper bits of a product depend on all bits of the factor.
        let line = ((u128::from(group) * u128::from(lines)) >> 64) as u64;
        ((line * SLOTS_PER_LINE + page % SLOTS_PER_LINE) as usize, tag)
    }

    /// Clears the slots of a space's pages in a range.
    pub fn clear(&mut self, asid: Asid, range: VaRange) {
        let (first, end) = (range.start.page_number(), range.end.0.div_ceil(FRAME_BYTES));
        if end.saturating_sub(first) <= self.slots.len() as u64 {
            for page in first..end {
                let (slot, tag) = self.place(asid, VirtAddr::from_page_number(page));
                if self.slots[slot][0] == tag {
                    self.slots[slot] = [0; 2];
                }
            }
            return;
        }
        let tags = VALID | u64::from(asid.0) << PAGE_BITS | first..VALID | u64::from(asid.0) << PAGE_BITS | end;
        self.slots.iter_mut().filter(|slot| tags.contains(&slot[0])).for_each(|slot| *slot = [0; 2]);
    }

    /// Machine address of a slot.
    pub fn address(&self, slot: usize) -> MachineAddr {
        MachineAddr(self.first.addr().0 + slot as u64 * SLOT_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_share_a_line_and_spaces_do_not() {
        let table = InvertedTable { first: Pfn(7), slots: vec![[0; 2]; 1 << 12], flush_cycles: Cycles::ZERO };
        assert_eq!(table.end(), Pfn(7 + 16));
        let line = |asid, page: u64| table.address(table.place(Asid(asid), VirtAddr::from_page_number(page)).0).line();
        assert_eq!(line(1, 400), line(1, 403));
        let lines: std::collections::BTreeSet<_> = (0..100).map(|group| line(1, 4 * group)).collect();
        assert!(lines.len() > 85, "{} lines of 100 groups in 1024", lines.len());
        assert_ne!(line(1, 400), line(2, 400));
        let tags = [(1, 400), (2, 400), (1, 401)].map(|(asid, page)| table.place(Asid(asid), VirtAddr(page << 12)).1);
        assert!(tags[0] != tags[1] && tags[0] != tags[2] && tags[1] != tags[2]);
    }

    #[test]
    fn a_range_is_cleared_in_one_space_only() {
        for pages in [10, 1 << 30] {
            let mut table = InvertedTable { first: Pfn(7), slots: vec![[0; 2]; 1 << 12], flush_cycles: Cycles::ZERO };
            for (asid, page) in [(1, 400), (1, 405), (1, 399), (2, 401)] {
                let (slot, tag) = table.place(Asid(asid), VirtAddr::from_page_number(page));
                table.slots[slot] = [tag, 1];
            }
            let start = VirtAddr::from_page_number(400);
            table.clear(Asid(1), VaRange { start, end: start + (pages << FRAME_SHIFT) });
            let held = [(1, 400), (1, 405), (1, 399), (2, 401)].map(|(asid, page)| {
                let (slot, tag) = table.place(Asid(asid), VirtAddr::from_page_number(page));
                table.slots[slot][0] == tag
            });
            assert_eq!(held, [false, false, true, true], "{pages} pages");
        }
    }
}
