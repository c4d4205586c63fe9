//! Consequences of the kernels' work outside their layers.

use crate::invalidation::Invalidation;
use crate::needs::Need;
use crate::vma::VaRange;
use pagelab_base::addr::{FRAME_BYTES, LINE_BYTES, Pfn, PhysAddr};
use pagelab_base::ids::{LayerId, SpaceId};

/// Lines that a device has written to a layer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaWrite {
    /// The layer.
    pub layer: LayerId,
    /// Address of the first line, in the layer's memory.
    pub addr: PhysAddr,
    /// Number of lines.
    pub lines: u64,
}

/// Consequences of a step of a kernel's work, or of a call, outside the layers. The simulation carries them out when
/// the step is committed.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    /// Translations to invalidate in the TLBs, by space.
    pub invalidated: Vec<(SpaceId, Invalidation)>,
    /// Lines that devices have written, to drop from the caches.
    pub dma: Vec<DmaWrite>,
    /// Needs for which kernel threads of a layer are woken.
    pub wakeups: Vec<(LayerId, Need)>,
    /// The registers of all CPUs' walkers are written, for which the other CPUs are interrupted.
    pub engine_registers: bool,
}

impl Effects {
    /// Adds a range whose translations must be invalidated. Returns everything to invalidate in its space.
    pub fn invalidate(&mut self, space: SpaceId, range: VaRange) -> &mut Invalidation {
        let known = self.invalidated.iter().position(|(other, _)| *other == space);
        let at = known.unwrap_or_else(|| {
            self.invalidated.push((space, Invalidation::default()));
            self.invalidated.len() - 1
        });
        let invalidation = &mut self.invalidated[at].1;
        invalidation.ranges.push(range);
        invalidation.pages += 1;
        invalidation
    }

    /// Adds a page that a device has written to a frame.
    pub fn note_page_read(&mut self, layer: LayerId, frame: Pfn) {
        self.dma.push(DmaWrite { layer, addr: frame.addr(), lines: FRAME_BYTES / LINE_BYTES });
    }

    /// Wakes the threads of a layer that serve a need.
    pub fn wake(&mut self, layer: LayerId, need: Need) {
        self.wakeups.push((layer, need));
    }
}
