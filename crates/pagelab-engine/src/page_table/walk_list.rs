//! The references of one walk.

use super::Leaf;
use crate::addr::PhysAddr;

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

/// References that a list holds without allocating; five levels, or a probe sequence of a well-filled hash table.
const INLINE: usize = 8;

/// The references of one walk in order, and where it ended. Longer walks than usual spill to the heap.
#[derive(Clone, Debug)]
pub struct WalkList {
    inline: [WalkRef; INLINE],
    len: usize,
    spill: Vec<WalkRef>,
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
        Self { inline: [WalkRef::default(); INLINE], len: 0, spill: Vec::new(), leaf: Leaf::NotPresent { level: 0 } }
    }

    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
        self.spill.clear();
        self.leaf = Leaf::NotPresent { level: 0 };
    }

    #[inline]
    pub fn push(&mut self, reference: WalkRef) {
        if self.len < INLINE {
            self.inline[self.len] = reference;
            self.len += 1;
        } else {
            if self.spill.is_empty() {
                self.spill.extend_from_slice(&self.inline);
            }
            self.spill.push(reference);
        }
    }

    #[inline]
    pub fn refs(&self) -> &[WalkRef] {
        if self.spill.is_empty() { &self.inline[..self.len] } else { &self.spill }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_walks_spill_in_order() {
        let mut list = WalkList::new();
        for n in 0..20 {
            list.push(WalkRef { addr: PhysAddr(n), level: 1, step: n as u8 });
            assert_eq!(list.refs().len() as u64, n + 1);
        }
        assert!(list.refs().iter().enumerate().all(|(n, r)| r.addr.0 == n as u64));
        list.clear();
        list.push(WalkRef::default());
        assert_eq!(list.refs().len(), 1);
    }
}
