//! PaRT, the page reservation table of an address space: which groups of pages have a reserved block.
//!
//! Models: a radix tree of four levels in kernel memory, keyed by the number of the group. A node has 512 entries of 16
//! bytes (a pointer and a lock) in two frames; or of 8 bytes, without a lock, in one. A leaf's word has the mask of
//! handed-out pages in its upper 8 bits, and below it the address of the block's page metadata. Groups of more than 8
//! pages have their masks in the metadata of their first frame, which each fault of the group writes anyway.
//! Source: PTEMagnet's artefact (Linux 4.19: `get_node_index`), whose shifts are 42, 33, 24 and 15.
//! Deviations: at the top the artefact uses 6 bits; here 9, more than any address has. The artefact has no groups of
//! more than 8 pages.

use std::collections::BTreeMap;

use pagelab_base::addr::{FRAME_BYTES, Pfn, PhysAddr};
use pagelab_base::memory::PhysMem;

const LEVELS: u32 = 4;
const INDEX_BITS: u32 = 9;
/// Number of entries of a node.
const ENTRIES: u64 = 1 << INDEX_BITS;
/// Number of bits of group numbers.
pub const KEY_BITS: u32 = LEVELS * INDEX_BITS;

/// Position of a leaf's mask of pages.
const MASK_SHIFT: u32 = 56;
const METADATA_BYTES: u64 = 64;
/// Most pages of a group whose mask fits its leaf.
pub const MOST_IN_LEAF: u32 = u64::BITS - MASK_SHIFT;

/// A block reserved for a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// First frame of the block.
    pub block: Pfn,
    /// Mask of handed-out pages; the group's first page is the lowest bit.
    pub given: u64,
}

impl Reservation {
    /// The leaf's word, with the low bits of the mask that fit it.
    fn word(self) -> u64 {
        (self.given << MASK_SHIFT) | (self.block.0 * METADATA_BYTES)
    }

    fn from_word(word: u64) -> Option<Self> {
        let block = Pfn((word & ((1 << MASK_SHIFT) - 1)) / METADATA_BYTES);
        (word != 0).then_some(Self { block, given: word >> MASK_SHIFT })
    }
}

/// The entries on the way to a group's leaf, from the root, as far as there are nodes.
#[derive(Clone, Copy, Debug)]
pub struct NodePath {
    entries: [PhysAddr; LEVELS as usize],
    len: usize,
}

impl NodePath {
    /// A way without nodes.
    pub const NONE: Self = Self { entries: [PhysAddr(0); LEVELS as usize], len: 0 };

    pub fn entries(&self) -> &[PhysAddr] {
        &self.entries[..self.len]
    }

    /// The leaf, if all nodes exist.
    pub fn leaf(&self) -> Option<PhysAddr> {
        (self.len == LEVELS as usize).then(|| self.entries[LEVELS as usize - 1])
    }
}

/// Size of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntrySize {
    WithLock,
    WithoutLock,
}

impl EntrySize {
    fn bytes(self) -> u64 {
        match self {
            Self::WithLock => 16,
            Self::WithoutLock => 8,
        }
    }

    pub fn node_bytes(self) -> u64 {
        ENTRIES * self.bytes()
    }

    /// Order of a node's block.
    pub fn node_order(self) -> u32 {
        (self.node_bytes() / FRAME_BYTES).ilog2()
    }
}

/// The table of a space, see the module's text.
#[derive(Clone, Debug)]
pub struct SpaceTable {
    entry: EntrySize,
    root: Option<Pfn>,
    nodes: u64,
    /// Masks by group, if a leaf has no room for them.
    masks: Option<BTreeMap<u64, u64>>,
}

impl SpaceTable {
    pub fn new(entry: EntrySize, group_pages: u32) -> Self {
        Self { entry, root: None, nodes: 0, masks: (group_pages > MOST_IN_LEAF).then(BTreeMap::new) }
    }

    pub fn way(&self, mem: &PhysMem, key: u64) -> NodePath {
        let mut way = NodePath::NONE;
        let mut node = self.root;
        for level in (0..LEVELS).rev() {
            let Some(pfn) = node else { break };
            let index = key >> (level * INDEX_BITS) & ((1 << INDEX_BITS) - 1);
            let entry = pfn.addr() + index * self.entry.bytes();
            way.entries[way.len] = entry;
            way.len += 1;
            if level > 0 {
                let word = mem.read(entry);
                node = (word != 0).then(|| PhysAddr(word).pfn());
            }
        }
        way
    }

    /// Links a node (a zeroed block) as the topmost missing one on the way to a group's leaf. False if none is missing;
    /// the caller then keeps the block.
    pub fn link(&mut self, mem: &mut PhysMem, key: u64, node: Pfn) -> bool {
        let way = self.way(mem, key);
        if way.leaf().is_some() {
            return false;
        }
        (0..1 << self.entry.node_order()).for_each(|n| mem.create(node + n));
        match way.entries().last() {
            None => self.root = Some(node),
            Some(&entry) => mem.write(entry, node.addr().0),
        }
        self.nodes += 1;
        true
    }

    pub fn get(&self, mem: &PhysMem, key: u64) -> Option<Reservation> {
        self.root?;
        let reservation = Reservation::from_word(mem.read(self.way(mem, key).leaf()?))?;
        let given = self.masks.as_ref().map_or(reservation.given, |masks| masks[&key]);
        Some(Reservation { given, ..reservation })
    }

    /// Writes a group's leaf, whose nodes must exist.
    pub fn set(&mut self, mem: &mut PhysMem, key: u64, reservation: Option<Reservation>) {
        let leaf = self.way(mem, key).leaf().expect("its nodes are there");
        mem.write(leaf, reservation.map_or(0, Reservation::word));
        match (&mut self.masks, reservation) {
            (Some(masks), Some(reserved)) => drop(masks.insert(key, reserved.given)),
            (Some(masks), None) => drop(masks.remove(&key)),
            (None, _) => {}
        }
    }

    /// Number of frames of its nodes.
    pub fn frames(&self) -> u64 {
        self.nodes << self.entry.node_order()
    }

    /// Removes all nodes, whose leaves must be empty, and passes their blocks to `release`.
    pub fn clear(&mut self, mem: &mut PhysMem, release: &mut dyn FnMut(Pfn)) {
        if let Some(root) = self.root.take() {
            clear_node(mem, root, self.entry, LEVELS - 1, release);
        }
        self.nodes = 0;
    }
}

fn clear_node(mem: &mut PhysMem, node: Pfn, size: EntrySize, level: u32, release: &mut dyn FnMut(Pfn)) {
    if level > 0 {
        for entry in (0..ENTRIES).map(|index| node.addr() + index * size.bytes()) {
            let word = mem.read(entry);
            if word != 0 {
                clear_node(mem, PhysAddr(word).pfn(), size, level - 1, release);
            }
        }
    }
    (0..1 << size.node_order()).for_each(|n| mem.destroy(node + n));
    release(node);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_share_the_nodes_above_them_and_leave_nothing() {
        check(EntrySize::WithLock, 8);
        check(EntrySize::WithoutLock, 8);
        check(EntrySize::WithLock, 64);
    }

    fn check(entry: EntrySize, pages: u32) {
        let frames = 1 << entry.node_order();
        assert_eq!(frames, entry.bytes() / 8);
        let (mut part, mut mem, mut next) = (SpaceTable::new(entry, pages), PhysMem::default(), 100);
        let given = |n: usize| 1 << (n as u32 * (pages - 1) / 4);
        let keys = [0, 511, 512, 1 << 35, (1 << KEY_BITS) - 1];
        for (n, &key) in keys.iter().enumerate() {
            assert_eq!(part.get(&mem, key), None);
            while part.link(&mut mem, key, Pfn(next)) {
                next += frames;
            }
            part.set(&mut mem, key, Some(Reservation { block: Pfn(64 * (n as u64 + 1)), given: given(n) }));
        }
        // Root; then 3 for 0 and 511, one more leaf node for 512, and 3 for each of the others.
        assert_eq!(part.frames(), frames * (1 + 3 + 1 + 3 + 3));
        for (n, &key) in keys.iter().enumerate() {
            assert_eq!(part.get(&mem, key), Some(Reservation { block: Pfn(64 * (n as u64 + 1)), given: given(n) }));
            let way = part.way(&mem, key);
            assert_eq!(way.entries().len(), 4);
            assert_eq!(way.leaf().unwrap().0 % entry.node_bytes() % entry.bytes(), 0);
        }
        assert_eq!(part.get(&mem, 1), None);
        keys.iter().for_each(|&key| part.set(&mut mem, key, None));
        let mut released = Vec::new();
        part.clear(&mut mem, &mut |pfn| released.push(pfn.0));
        released.sort_unstable();
        assert_eq!(released, (100..next).step_by(frames as usize).collect::<Vec<_>>());
        assert_eq!((mem.frames_in_use(), part.frames()), (0, 0));
    }
}
