//! Eager paging: memory is allocated and mapped when a program asks for it, in blocks that are as large as possible.
//!
//! Models: all pages of a private writable anonymous mapping (made by mmap or mremap, or grown by brk) are mapped
//! before the call returns, as by MAP_POPULATE. They are mapped by 4 KiB PTEs, each place by the largest naturally
//! aligned block of frames that lies inside the mapping and that is available. A layer with large pages maps large
//! pages where they fit. Memory that is discarded later is faulted in page by page. Only these later touches count as
//! faults.
//! Source: Karakostas, Gandhi, Ayar, Cristal, Hill, McKinley, Nemirovsky, Swift, Unsal, "Redundant memory mappings for
//! fast access to large memories" (ISCA 2015), its eager paging.
//! Parameters: `system.layers.NAME.placement` of kind `eager`: `largest_block`, `stop_above_percent`.
//! Stats: `populate.pages`, `layer.NAME.fault.zeroed_bytes`, `layer.NAME.folios.*` (blocks by size).
//! Deviations from the source: a block begins at a virtual address that is a multiple of its size, so that the PTEs of
//! a cache line lead to adjacent frames; the paper's ranges may begin anywhere. The range table and the range TLB are
//! not modelled. Mappings that reserve nothing (MAP_NORESERVE, including thread stacks), stacks, and memory that
//! mprotect makes writable later stay on demand. So does everything while more memory than `stop_above_percent` is in
//! use, or while reclaim would be necessary. Each block pays for the stages of a fault without exception and return.

use std::convert::Infallible;

use pagelab_trace::quantity::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PlacementProgress, Policy, PolicyContext, WantedPage};
use crate::locks::TaskLocks;
use crate::memory::{Memory, MemoryView};
use crate::vma::{Vma, VmaKind};
use pagelab_base::addr::{FRAME_BYTES, PageSize};
use pagelab_base::error::LayerConfigError;

/// Parameters of eager paging.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EagerConfig {
    /// The largest block: a power of two from 8 KiB to 2 MiB (the range of one page-table page).
    pub largest_block: Bytes,
    /// Percentage of the layer's memory in use above which paging is on demand. 90 is an estimate.
    pub stop_above_percent: u32,
}

impl Default for EagerConfig {
    fn default() -> Self {
        Self { largest_block: Bytes(PageSize::Size2M.bytes()), stop_above_percent: 90 }
    }
}

impl EagerConfig {
    /// The order of the largest block.
    fn order(&self) -> u32 {
        (self.largest_block.0 / FRAME_BYTES).ilog2()
    }
}

/// The policy, see the module's text.
#[derive(Clone, Debug)]
pub struct Eager {
    config: EagerConfig,
}

impl Policy for Eager {
    type Config = EagerConfig;
    type Step = Infallible;

    const ABOUT: &'static str = "blocks for the whole of a mapping, taken and mapped when it is made";
    const CHOOSES: bool = false;

    fn new(config: &EagerConfig) -> Self {
        Self { config: config.clone() }
    }

    fn check(config: &EagerConfig, around: &PolicyContext) -> Result<(), LayerConfigError> {
        let Bytes(block) = config.largest_block;
        if !block.is_power_of_two() || !(2 * FRAME_BYTES..=PageSize::Size2M.bytes()).contains(&block) {
            let what = format!("{block} bytes are not possible; allowed are powers of two from 8 KiB to 2 MiB");
            return Err(LayerConfigError::new("placement.largest_block", what));
        }
        LayerConfigError::unless_between("placement.stop_above_percent", config.stop_above_percent, 0, 100)?;
        if let Some(guest) = around.guest {
            let what = format!(
                "the memory of `{guest}` is mapped when its host boots, before any call; eager paging is allowed in layers that host no other"
            );
            return Err(LayerConfigError::new("placement", what));
        }
        Ok(())
    }

    fn samples() -> Vec<EagerConfig> {
        vec![EagerConfig::default(), EagerConfig { largest_block: Bytes(32 << 10), ..EagerConfig::default() }]
    }

    fn commit(
        &mut self,
        _: Option<&WantedPage>,
        action: Infallible,
        _: &mut Memory,
        _: &mut TaskLocks,
    ) -> PlacementProgress<Infallible> {
        match action {}
    }

    fn block_order(config: &EagerConfig) -> Option<u32> {
        Some(config.order())
    }

    fn maps_ahead(&self, vma: &Vma) -> bool {
        let anonymous = matches!(vma.kind, VmaKind::Anonymous | VmaKind::Heap) && !vma.is_shared();
        anonymous && vma.prot.write && !vma.grows_down() && !vma.reserves_nothing()
    }

    fn may_map_ahead(&self, page_order: u32, memory: &MemoryView) -> bool {
        let order = self.config.order().max(page_order);
        let room = !memory.is_fuller_than(self.config.stop_above_percent, 1 << order);
        room && !memory.is_low() && memory.pressure(order).is_none()
    }
}
