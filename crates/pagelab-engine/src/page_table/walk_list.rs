//! The references of one walk.

use arrayvec::ArrayVec;

use super::Leaf;
use crate::base::addr::PhysAddr;

/// One reference of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WalkRef {
    /// Address of the entry in the layer's physical memory.
    pub addr: PhysAddr,
    /// Level of the entry: leaf 1; for designs without levels 1.
    pub level: u8,
    /// Dependency step: references of one step are made at the same time and cost their maximum.
    pub step: u8,
}

/// References that a list holds: far more than any design makes, since an unused place costs nothing.
pub const MAX_WALK_REFS: usize = 64;

/// The references of one walk in order, and where it ended.
#[derive(Clone, Debug)]
pub struct WalkList {
    refs: ArrayVec<WalkRef, MAX_WALK_REFS>,
    pub leaf: Leaf,
}

impl Default for WalkList {
    fn default() -> Self {
        Self::new()
    }
}

impl WalkList {
    #[inline]
    pub fn new() -> Self {
        Self { refs: ArrayVec::new(), leaf: Leaf::nothing(0) }
    }

    #[inline]
    pub fn clear(&mut self) {
        self.refs.clear();
    }

    /// A list of these references.
    #[inline(always)]
    pub fn set<const N: usize>(&mut self, refs: [WalkRef; N]) {
        self.clear();
        self.refs.try_extend_from_slice(&refs).expect("they are few");
    }

    /// # Panics
    /// If there are [`MAX_WALK_REFS`] already.
    #[inline]
    pub fn push(&mut self, reference: WalkRef) {
        self.refs.push(reference);
    }

    #[inline]
    pub fn refs(&self) -> &[WalkRef] {
        &self.refs
    }
}
