//! Nodes of the tree: their layout and content.
//!
//! A node is a page of 4 KiB with LMDB's layout. A header of 16 bytes is followed by an array of slots, 2 bytes per
//! entry, in key order. A slot contains the position of its entry's cell. Cells fill the page from its end. Each has a
//! header of 8 bytes, which contains the child's page number in a branch, and the key of 24 bytes. In a leaf the value
//! follows.
//!
//! ```text
//! | header | slot 0 | slot 1 | …   free   … | cell 1 | cell 0 |
//! ```
//!
//! A node without inserts is computed from its position in the tree instead of stored.

use super::super::ycsb::{KEY_BYTES, Key};

pub(super) const PAGE_BYTES: u64 = 4096;
const HEADER_BYTES: u64 = 16;
pub(super) const SLOT_BYTES: u64 = 2;
/// Header and key of a cell, which is the whole cell in a branch.
pub(super) const CELL_BYTES: u64 = 8 + KEY_BYTES;
/// Offset of the free space's limits in the header, from which the number of entries follows.
pub(super) const LIMITS: u64 = 12;

/// Offset of slot `index` in its page.
pub(super) fn slot(index: usize) -> u64 {
    HEADER_BYTES + index as u64 * SLOT_BYTES
}

/// Offset of cell `number`, counted from the page's end, if cells have `bytes`.
pub(super) fn cell(number: u16, bytes: u64) -> u64 {
    PAGE_BYTES - (u64::from(number) + 1) * bytes
}

/// Number of cells of `bytes` that fit into a node.
pub(super) fn capacity(bytes: u64) -> u64 {
    (PAGE_BYTES - HEADER_BYTES) / (SLOT_BYTES + bytes)
}

/// A key with its cell. In a branch the key is the smallest key of the child; the first entry's key is never read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeEntry {
    pub key: Key,
    /// The child's page; 0 in a leaf.
    pub child: u64,
    /// Number of the cell; cells are numbered in the order in which they were written.
    pub cell: u16,
}

/// The content of a node.
#[derive(Clone, Copy)]
pub(super) enum Node<'a> {
    /// As loaded: entry i has the key at position `first` + i · `step`, and the child `child` + i.
    Loaded { first: u64, step: u64, child: u64, len: usize },
    /// As changed by inserts.
    Changed(&'a [NodeEntry]),
}

impl Node<'_> {
    pub fn len(&self) -> usize {
        match self {
            Self::Loaded { len, .. } => *len,
            Self::Changed(entries) => entries.len(),
        }
    }

    pub fn entry(&self, index: usize) -> NodeEntry {
        match *self {
            Self::Loaded { first, step, child, .. } => NodeEntry {
                key: Key::loaded(first + index as u64 * step),
                child: if child == 0 { 0 } else { child + index as u64 },
                cell: index as u16,
            },
            Self::Changed(entries) => entries[index],
        }
    }

    pub fn to_vec(self) -> Vec<NodeEntry> {
        (0..self.len()).map(|index| self.entry(index)).collect()
    }
}

/// The initial pages of the tree: two of meta-data, of which it uses the first, then the leaves in order, the branches
/// above them, and so on to the root.
pub(super) struct Loaded {
    levels: Vec<Level>,
    records: u64,
}

struct Level {
    /// Page number of the first node, and number of nodes.
    page: u64,
    nodes: u64,
    /// Number of records below a full node, and of its entries.
    records: u64,
    entries: u64,
}

/// Number of pages before the first leaf.
pub(super) const META_PAGES: u64 = 2;

impl Loaded {
    /// A tree of `records` records with this many per leaf, and this many children per branch (at least 2).
    pub fn new(records: u64, leaf_entries: u64, branch_entries: u64) -> Self {
        let mut levels = vec![Level {
            page: META_PAGES,
            nodes: records.div_ceil(leaf_entries),
            records: leaf_entries,
            entries: leaf_entries,
        }];
        while let Some(below) = levels.last().filter(|level| level.nodes > 1) {
            levels.push(Level {
                page: below.page + below.nodes,
                nodes: below.nodes.div_ceil(branch_entries),
                records: below.records.saturating_mul(branch_entries),
                entries: branch_entries,
            });
        }
        Self { levels, records }
    }

    /// The root's level; that of leaves is 0.
    pub fn top(&self) -> usize {
        self.levels.len() - 1
    }

    /// Number of pages of all nodes and the meta-data, which is the first free page number.
    pub fn pages(&self) -> u64 {
        let top = &self.levels[self.top()];
        top.page + top.nodes
    }

    pub fn nodes(&self, level: usize) -> u64 {
        self.levels[level].nodes
    }

    /// The node in `page`, if it belongs to `level`.
    pub fn node(&self, page: u64, level: usize) -> Option<Node<'static>> {
        let at = self.levels.get(level)?;
        let index = page.checked_sub(at.page).filter(|index| *index < at.nodes)?;
        let first = index * at.records;
        let Some(below) = level.checked_sub(1).map(|below| &self.levels[below]) else {
            let len = at.entries.min(self.records - first) as usize;
            return Some(Node::Loaded { first, step: 1, child: 0, len });
        };
        let child = index * at.entries;
        let len = at.entries.min(below.nodes - child) as usize;
        Some(Node::Loaded { first, step: below.records, child: below.page + child, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_nodes_fit_their_page() {
        for bytes in [CELL_BYTES, CELL_BYTES + 2, 1032, 2032] {
            let entries = capacity(bytes);
            assert!(slot(entries as usize) <= cell(entries as u16 - 1, bytes), "{bytes}");
            assert!(slot(entries as usize + 1) + (entries + 1) * bytes > PAGE_BYTES, "{bytes}: one more does not fit");
        }
        assert_eq!((capacity(CELL_BYTES), capacity(1032)), (120, 3));
    }

    #[test]
    fn loaded_nodes_hold_all_records_once_in_order() {
        for (records, leaf, branch) in [(1, 3, 120), (3, 3, 120), (4, 3, 2), (1000, 3, 4), (12_345, 7, 120)] {
            let loaded = Loaded::new(records, leaf, branch);
            let mut pages = vec![loaded.pages() - 1];
            assert_eq!(loaded.nodes(loaded.top()), 1);
            for level in (1..=loaded.top()).rev() {
                let mut below = Vec::new();
                for &page in &pages {
                    for entry in loaded.node(page, level).unwrap().to_vec() {
                        assert_eq!(entry.key, loaded.node(entry.child, level - 1).unwrap().entry(0).key);
                        below.push(entry.child);
                    }
                }
                assert!(below.windows(2).all(|pair| pair[0] + 1 == pair[1]));
                pages = below;
            }
            let keys: Vec<Key> =
                pages.iter().flat_map(|&page| loaded.node(page, 0).unwrap().to_vec()).map(|entry| entry.key).collect();
            assert_eq!(keys, (0..records).map(Key::loaded).collect::<Vec<_>>());
            assert_eq!(loaded.pages(), 2 + (0..=loaded.top()).map(|level| loaded.nodes(level)).sum::<u64>());
        }
    }
}
