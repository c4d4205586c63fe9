//! Speculative inverted shadow page table of a layer (`pagelab_translate::scheme::speculation` says what it models).

use crate::config::LayerConfig;
use pagelab_base::addr::{FRAME_SHIFT, MachineAddr, Pfn, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_tables::mmu_cache::Asid;

const SLOT_BYTES: u64 = 16;

/// Slots per cache line, which hold neighbouring pages.
const SLOTS_PER_LINE: u64 = 4;

/// Marks a used slot, so that no tag is 0.
const VALID: u64 = 1 << 63;

/// The table and its place in memory.
#[derive(Clone)]
pub struct SpeculativeTable {
    first: Pfn,
    /// Tag and translation of each slot.
    pub slots: Vec<[u64; 2]>,
    /// Cycles of a pipeline flush after a wrong speculation.
    pub flush_cycles: Cycles,
}

impl SpeculativeTable {
    /// The table that a layer's configuration asks for, after its first `taken` of `frames` frames.
    pub fn set_aside(config: &LayerConfig, taken: u64, frames: u64) -> Result<Option<Self>, EngineError> {
        let Some(parameters) = config.speculative_table else { return Ok(None) };
        let bytes = parameters.table_bytes.0;
        let most = frames.saturating_sub(taken) << FRAME_SHIFT >> 1;
        if bytes > most || !bytes.is_power_of_two() || bytes >> FRAME_SHIFT == 0 {
            let what = format!(
                "{} is not possible; allowed are powers of two from 4096 to half of the layer's free memory, {most} bytes",
                parameters.table_bytes
            );
            let key = format!("system.layers.{}.speculative_table.table_bytes", config.name);
            return Err(EngineError::config(key, what));
        }
        let slots = vec![[0; 2]; (bytes / SLOT_BYTES) as usize];
        Ok(Some(Self { first: Pfn(taken), slots, flush_cycles: parameters.flush_cycles.into() }))
    }

    /// The first frame after it.
    pub fn end(&self) -> Pfn {
        Pfn(self.first.0 + ((self.slots.len() as u64 * SLOT_BYTES) >> FRAME_SHIFT))
    }

    /// Number of a page's slot, and its tag.
    pub fn place(&self, asid: Asid, va: VirtAddr) -> (usize, u64) {
        let page = va.page_number();
        let tag = VALID | u64::from(asid.0) << 45 | page;
        let group = (tag / SLOTS_PER_LINE).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let lines = self.slots.len() as u64 / SLOTS_PER_LINE;
        // The upper bits of a product depend on all bits of the factor.
        let line = ((u128::from(group) * u128::from(lines)) >> 64) as u64;
        ((line * SLOTS_PER_LINE + page % SLOTS_PER_LINE) as usize, tag)
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
        let table = SpeculativeTable { first: Pfn(7), slots: vec![[0; 2]; 1 << 12], flush_cycles: Cycles::ZERO };
        assert_eq!(table.end(), Pfn(7 + 16));
        let line = |asid, page: u64| table.address(table.place(Asid(asid), VirtAddr::from_page_number(page)).0).line();
        assert_eq!(line(1, 400), line(1, 403));
        let lines: std::collections::BTreeSet<_> = (0..100).map(|group| line(1, 4 * group)).collect();
        assert!(lines.len() > 85, "{} lines of 100 groups in 1024", lines.len());
        assert_ne!(line(1, 400), line(2, 400));
        let tags = [(1, 400), (2, 400), (1, 401)].map(|(asid, page)| table.place(Asid(asid), VirtAddr(page << 12)).1);
        assert!(tags[0] != tags[1] && tags[0] != tags[2] && tags[1] != tags[2]);
    }
}
