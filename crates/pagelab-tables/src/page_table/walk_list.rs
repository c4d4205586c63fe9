//! The references of one walk.

use arrayvec::ArrayVec;

use super::Leaf;
use pagelab_base::addr::{FRAME_SHIFT, PhysAddr, VirtAddr};
use pagelab_base::cycles::Cycles;

/// Bits of the longest virtual addresses.
pub(crate) const MAX_VA_BITS: u32 = 57;

/// One reference of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WalkRef {
    /// Address of the entry in the layer's physical memory.
    pub addr: PhysAddr,
    /// Level of the entry: 1 for a leaf of a 4 KiB page, and for designs without levels.
    pub level: u8,
    /// log2 of the bytes that the entry maps, or of a factor of them: 12 for a 4 KiB page.
    pub shift: u8,
    /// The other factor of these bytes, which is odd: 1 in tables whose numbers of entries are powers of two.
    pub factor: u16,
    /// Dependency step: consecutive references of one step overlap and cost their maximum. The number wraps around in
    /// long walks.
    pub step: u8,
}

impl WalkRef {
    /// The reference to the entry of a page of 4 KiB.
    #[inline(always)]
    pub fn to_leaf(addr: PhysAddr, step: u8) -> Self {
        Self { addr, level: 1, shift: FRAME_SHIFT as u8, factor: 1, step }
    }

    /// Bytes that the entry maps, a region that begins at a multiple of them.
    pub fn span_bytes(&self) -> u64 {
        u64::from(self.factor) << self.shift
    }

    /// Number of the region that the entry for `va` maps. MMU caches tag upper-level entries by it.
    #[inline(always)]
    pub fn prefix(&self, va: VirtAddr) -> u64 {
        let shifted = (va.0 & ((1 << MAX_VA_BITS) - 1)) >> self.shift;
        if self.factor == 1 { shifted } else { shifted / u64::from(self.factor) }
    }
}

/// References that a list stores inline: enough for every walk except a long search in a hashed table.
const FEW: usize = 64;

/// The references of one walk in order, and where it ended.
#[derive(Clone, Debug)]
pub struct WalkList {
    few: ArrayVec<WalkRef, FEW>,
    /// All references, if there are more than `few` can store.
    many: Vec<WalkRef>,
    /// Result of the walk.
    pub leaf: Leaf,
    /// Cycles before the first reference, for the calculation of its address.
    pub lead_cycles: Cycles,
}

impl Default for WalkList {
    fn default() -> Self {
        Self::new()
    }
}

impl WalkList {
    /// The empty list of a walk that found nothing.
    #[inline]
    pub fn new() -> Self {
        Self { few: ArrayVec::new(), many: Vec::new(), leaf: Leaf::nothing(0), lead_cycles: Cycles::ZERO }
    }

    /// Removes the references and their delay; the leaf stays until the next walk sets it.
    #[inline]
    pub fn clear(&mut self) {
        self.few.clear();
        self.many.clear();
        self.lead_cycles = Cycles::ZERO;
    }

    /// Replaces the references by these.
    #[inline(always)]
    pub fn set<const N: usize>(&mut self, refs: [WalkRef; N]) {
        self.clear();
        self.few.try_extend_from_slice(&refs).expect("the array is shorter than the list's inline capacity");
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

    /// Corrects how much the entry of the last reference maps: this power of two bytes.
    #[inline]
    pub fn set_last_shift(&mut self, shift: u8) {
        let last = if self.many.is_empty() { self.few.last_mut() } else { self.many.last_mut() };
        last.expect("the walk made a reference").shift = shift;
    }

    /// All references in the order of the walk.
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
