//! The references of one walk.

use arrayvec::ArrayVec;

use super::Leaf;
use pagelab_base::addr::{FRAME_SHIFT, PhysAddr};

/// One reference of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WalkRef {
    /// Address of the entry in the layer's physical memory.
    pub addr: PhysAddr,
    /// Level of the entry: leaf 1; for designs without levels 1.
    pub level: u8,
    /// log2 of the bytes that the entry translates: 12 for a page of 4 KiB. MMU caches know entries of upper levels by
    /// the bits of the address above these.
    pub shift: u8,
    /// Dependency step: references of one step follow each other, are made at the same time and cost their maximum.
    /// Long walks begin to count anew.
    pub step: u8,
}

impl WalkRef {
    /// The reference to the entry of a page of 4 KiB.
    #[inline(always)]
    pub fn to_leaf(addr: PhysAddr, step: u8) -> Self {
        Self { addr, level: 1, shift: FRAME_SHIFT as u8, step }
    }
}

/// References that a list holds without memory of its own: more than any walk makes but a search through a hashed
/// table, since an unused place costs nothing.
const FEW: usize = 64;

/// The references of one walk in order, and where it ended.
#[derive(Clone, Debug)]
pub struct WalkList {
    few: ArrayVec<WalkRef, FEW>,
    /// All references, if there are more than `few` has places for.
    many: Vec<WalkRef>,
    /// What the walk found at its last reference.
    pub leaf: Leaf,
}

impl Default for WalkList {
    fn default() -> Self {
        Self::new()
    }
}

impl WalkList {
    /// A list without references, of a walk that found nothing.
    #[inline]
    pub fn new() -> Self {
        Self { few: ArrayVec::new(), many: Vec::new(), leaf: Leaf::nothing(0) }
    }

    /// Takes the references out; the leaf stays until the next walk sets it.
    #[inline]
    pub fn clear(&mut self) {
        self.few.clear();
        self.many.clear();
    }

    /// A list of these references.
    #[inline(always)]
    pub fn set<const N: usize>(&mut self, refs: [WalkRef; N]) {
        self.clear();
        self.few.try_extend_from_slice(&refs).expect("they are few");
    }

    /// Adds the walk's next reference.
    #[inline]
    pub fn push(&mut self, reference: WalkRef) {
        if let Err(full) = self.few.try_push(reference) {
            self.push_beyond(full.element());
        }
    }

    #[cold]
    fn push_beyond(&mut self, reference: WalkRef) {
        if self.many.is_empty() {
            self.many.extend_from_slice(&self.few);
        }
        self.many.push(reference);
    }

    /// All references, from the root on.
    #[inline]
    pub fn refs(&self) -> &[WalkRef] {
        if self.many.is_empty() { &self.few } else { &self.many }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_holds_what_is_pushed_however_many_they_are() {
        let mut list = WalkList::new();
        for count in [0, 1, FEW - 1, FEW, FEW + 1, 10 * FEW, 3] {
            list.clear();
            let refs: Vec<_> = (0..count as u64).map(|n| WalkRef::to_leaf(PhysAddr(n), n as u8)).collect();
            refs.iter().for_each(|&reference| list.push(reference));
            assert_eq!(list.refs(), refs);
        }
        list.set([WalkRef::default()]);
        assert_eq!(list.refs(), [WalkRef::default()]);
    }
}
