//! Checks translations against a flat record of what the kernels mapped (`--check`).
//!
//! The kernels keep the record ([`Layer::recorded`]) from their decisions alone; it knows no page table, TLB or MMU
//! cache. So it reveals a translation that is stale, misread or taken from another space. A page that is swapped out
//! has no record.

use pagelab_base::addr::{FRAME_BYTES, PhysAddr, VirtAddr};
use pagelab_base::error::EngineError;
use pagelab_base::ids::SpaceId;
use pagelab_base::translation::Translation;
use pagelab_kernel::layer::Layer;

use crate::hardware::Hardware;

impl Hardware {
    /// Compares a translation with the record, if checking is on. The first difference is kept in
    /// [`Hardware::check_failure`] and soon ends the run: it is a bug of the simulator, not a mistake of the user.
    #[inline]
    pub fn check(&mut self, layers: &[Layer], space: SpaceId, va: VirtAddr, translation: Translation) {
        if self.check && self.check_failure.is_none() {
            self.check_failure = difference(layers, space, va, translation);
        }
    }

    /// Reports the first difference, if there was one.
    pub fn end_check(&mut self) -> Result<(), EngineError> {
        self.check_failure.take().map_or(Ok(()), |what| Err(EngineError::Check { what }))
    }
}

/// What is wrong with a translation; `None` if it matches the record.
fn difference(layers: &[Layer], space: SpaceId, va: VirtAddr, translation: Translation) -> Option<String> {
    if let Some(word) = layers[space.layer].word(space.index, va) {
        return Some(format!("{va:?} of {space:?} has a translation, but its entry says {word:?}"));
    }
    let found = translation.address(va).page_number();
    let what = match recorded_on_machine(layers, space, va) {
        None => format!("translates to frame {found:#x}, but no mapping is recorded"),
        Some((frame, _)) if frame != found => format!("translates to frame {found:#x}, but {frame:#x} is recorded"),
        Some((_, false)) if translation.writable() => "is writable, but was mapped read-only".to_owned(),
        Some(_) => return None,
    };
    Some(format!("{va:?} of {space:?} {what}"))
}

/// Machine frame of an address, and whether every layer allows stores, from the records of all layers.
pub fn recorded_on_machine(layers: &[Layer], space: SpaceId, va: VirtAddr) -> Option<(u64, bool)> {
    let layer = &layers[space.layer];
    let (frame, writable) = layer.recorded(space.index, va)?;
    let Some(host) = layer.host else { return Some((frame.0, writable)) };
    let below = PhysAddr(frame.addr().0 | va.offset_in(FRAME_BYTES));
    let (frame, below_writable) = recorded_on_machine(layers, host, VirtAddr(below.0))?;
    Some((frame, writable && below_writable))
}
