//! Nodes of the tree: where things lie in them, and what they hold.
//!
//! A node is a page of 4 KiB, laid out as LMDB's are. Behind a header of 16 bytes stands an array of slots, 2 bytes per
//! entry, in order of keys. A slot says where its entry's cell is. Cells fill the page from its end. Each begins with a
//! header of 8 bytes, which holds the page of the child in a branch, and the key of 24. In a leaf the value follows.
//!
//! ```text
//! | header | slot 0 | slot 1 | …   free   … | cell 1 | cell 0 |
//! ```
//!
//! A node that nothing was inserted into is computed from its place in the tree, not stored.

use super::super::ycsb::{KEY_BYTES, Key};

pub(super) const PAGE_BYTES: u64 = 4096;
const HEADER_BYTES: u64 = 16;
pub(super) const SLOT_BYTES: u64 = 2;
/// Header and key of a cell: all that there is of a branch's cell.
pub(super) const CELL_BYTES: u64 = 8 + KEY_BYTES;
/// Where the header has the limits of the free space, which say how many entries there are.
pub(super) const LIMITS: u64 = 12;

/// Where slot `index` is in its page.
pub(super) fn slot(index: usize) -> u64 {
    HEADER_BYTES + index as u64 * SLOT_BYTES
}

/// Where cell `number`, counted from the end, is in its page, if cells have `bytes`.
pub(super) fn cell(number: u16, bytes: u64) -> u64 {
    PAGE_BYTES - (u64::from(number) + 1) * bytes
}

/// Cells of `bytes` that a node has room for.
pub(super) fn capacity(bytes: u64) -> u64 {
    (PAGE_BYTES - HEADER_BYTES) / (SLOT_BYTES + bytes)
}

/// A key with its cell. In a branch the key is the least of the child's, and that of the first entry is never read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeEntry {
    pub key: Key,
    /// The child's page; 0 in a leaf.
    pub child: u64,
    /// Cells are numbered in the order in which they were written.
    pub cell: u16,
}

/// What a node holds.
#[derive(Clone, Copy)]
pub(super) enum Node<'a> {
    /// As it was loaded: entry i has the key of place `first` + i · `step`, and the child `child` + i.
    Loaded { first: u64, step: u64, child: u64, len: usize },
    /// As inserts have left it.
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

/// Pages that the tree begins with: two of meta-data, of which it uses the first, then the leaves in order, the
/// branches above them, and so on to the root.
pub(super) struct Loaded {
    levels: Vec<Level>,
    records: u64,
}

struct Level {
    /// Page of the first node, and how many there are.
    page: u64,
    nodes: u64,
    /// Records below a full node, and entries of one.
    records: u64,
    entries: u64,
}

/// Pages before the first leaf.
pub(super) const META_PAGES: u64 = 2;

impl Loaded {
    /// A tree of `records` with so many in a leaf and so many children of a branch, 2 at least.
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

    /// Pages of all nodes and of the meta-data: the first that is free.
    pub fn pages(&self) -> u64 {
        let top = &self.levels[self.top()];
        top.page + top.nodes
    }

    pub fn nodes(&self, level: usize) -> u64 {
        self.levels[level].nodes
    }

    /// The node in `page`, if it is one of `level`.
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
