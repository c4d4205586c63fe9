//! `--check`: every translation against a flat record of what the kernels mapped.
//!
//! The record ([`crate::layer::Layer::recorded`]) is kept by the kernels' decisions alone, apart from page tables, TLBs and
//! MMU caches, so a translation that is stale, misread or mixed up between spaces differs from it.

use crate::addr::{FRAME_BYTES, FRAME_SHIFT, PhysAddr, VirtAddr};
use crate::hardware::Hardware;
use crate::layer::{Layer, SpaceId};
use crate::translation::Translation;

impl Hardware {
    /// Compares a translation with the record, if checking is on.
    ///
    /// # Panics
    /// If they differ: the simulator is wrong, not its user.
    #[inline]
    pub fn check(&self, layers: &[Layer], space: SpaceId, va: VirtAddr, translation: Translation) {
        if self.check {
            let expected = recorded_on_machine(layers, space, va);
            let found = translation.address(va).0 >> FRAME_SHIFT;
            let Some((frame, writable)) = expected else {
                panic!("check failed: {va:?} of {space:?} translates to frame {found:#x}, but no mapping is recorded");
            };
            assert_eq!(found, frame, "check failed: frame of {va:?} of {space:?}, against the recorded one");
            assert!(
                writable || !translation.writable(),
                "check failed: {va:?} of {space:?} is writable, but was mapped read-only"
            );
        }
    }
}

/// Machine frame of an address, and whether every layer allows stores, by the records of all layers.
pub fn recorded_on_machine(layers: &[Layer], space: SpaceId, va: VirtAddr) -> Option<(u64, bool)> {
    let layer = &layers[usize::from(space.layer)];
    let (frame, writable) = layer.recorded(space.index, va)?;
    let Some(host) = layer.host else { return Some((frame.0, writable)) };
    let below = PhysAddr(frame.addr().0 | va.0 & (FRAME_BYTES - 1));
    let (frame, below_writable) = recorded_on_machine(layers, host, VirtAddr(below.0))?;
    Some((frame, writable && below_writable))
}
