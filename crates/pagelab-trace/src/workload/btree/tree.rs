//! The tree: searches, inserts and splits with their accesses.

use std::collections::HashMap;

use super::super::{
    layout::Site,
    spec::Values,
    store::{copy, touch},
    ycsb::Key,
};
use super::node::{
    CELL_BYTES, LIMITS, Loaded, META_PAGES, Node, NodeEntry, PAGE_BYTES, SLOT_BYTES, capacity, cell, slot,
};
use crate::{Access, AccessKind};

/// Sites in the program's code.
struct Sites {
    /// The meta-data: the root's page number, and the next new page.
    meta: Site,
    header: Site,
    slot: Site,
    /// Header and key of a cell.
    cell: Site,
    child: Site,
    value: Site,
    write_meta: Site,
    write_header: Site,
    shift: Site,
    write_slot: Site,
    write_cell: Site,
    write_value: Site,
    copy_from: Site,
    copy_to: Site,
}

impl Sites {
    fn new(values: &Values) -> Self {
        let site = |number, bytes: u64| Site::new(number, bytes as u16, values.gap());
        Self {
            meta: site(0, 8),
            header: site(1, 4),
            slot: site(2, SLOT_BYTES),
            cell: site(3, CELL_BYTES),
            child: site(4, 8),
            value: site(5, 64),
            write_meta: site(6, 8),
            write_header: site(7, 4),
            shift: site(8, 64),
            write_slot: site(9, SLOT_BYTES),
            write_cell: site(10, CELL_BYTES),
            write_value: site(11, 64),
            copy_from: site(12, 64),
            copy_to: site(13, 64),
        }
    }
}

/// A step of the path from the root to a leaf: a node, and the entry that the path takes there.
#[derive(Clone, Copy, Debug)]
struct Step {
    page: u64,
    index: usize,
}

/// Position of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub page: u64,
    /// Address of its cell.
    pub vaddr: u64,
}

pub(super) struct Tree {
    /// Address of the file.
    base: u64,
    /// Bytes of a leaf's cell, and of its value.
    leaf_cell: u64,
    value: u64,
    loaded: Loaded,
    /// The nodes made or changed by inserts, by page number.
    changed: HashMap<u64, Vec<NodeEntry>>,
    root: u64,
    /// The root's level.
    top: usize,
    /// The next new page number, and the number of all pages.
    next_page: u64,
    file_pages: u64,
    /// The path of the last search: one step per level, the root's first.
    way: Vec<Step>,
    sites: Sites,
}

impl Tree {
    /// A loaded tree in a file whose address is set later.
    ///
    /// Loading fills nodes to the share `fill`. `inserts` is the maximum number of further records.
    pub fn new(values: &Values, records: u64, inserts: u64, value: u64, fill: f64) -> Self {
        // Cells begin at even addresses, as in LMDB.
        let leaf_cell = (CELL_BYTES + value).next_multiple_of(2);
        let filled = |bytes, least: u64| ((capacity(bytes) as f64 * fill) as u64).max(least);
        let (leaf_entries, branch_entries) = (filled(leaf_cell, 1), filled(CELL_BYTES, 2));
        let loaded = Loaded::new(records, leaf_entries, branch_entries);
        let file_pages = if inserts == 0 { loaded.pages() } else { most_pages(&loaded, branch_entries, inserts) };
        Self {
            base: 0,
            leaf_cell,
            value,
            root: loaded.pages() - 1,
            top: loaded.top(),
            next_page: loaded.pages(),
            file_pages,
            loaded,
            changed: HashMap::new(),
            way: Vec::new(),
            sites: Sites::new(values),
        }
    }

    /// Bytes of the file, with room for all inserts.
    pub fn file_bytes(&self) -> u64 {
        self.file_pages * PAGE_BYTES
    }

    #[cfg(test)]
    pub fn base(&self) -> u64 {
        self.base
    }

    /// The root's page and level.
    #[cfg(test)]
    pub fn root(&self) -> (u64, usize) {
        (self.root, self.top)
    }

    /// Number of stored nodes.
    #[cfg(test)]
    pub fn changed_nodes(&self) -> usize {
        self.changed.len()
    }

    pub fn set_base(&mut self, base: u64) {
        self.base = base;
    }

    /// Appends the stores that write a page in the order of loading; false if there are no more pages.
    pub fn load_page(&self, page: u64, out: &mut Vec<Access>) -> bool {
        if page >= self.loaded.pages() {
            return false;
        }
        touch(self.sites.copy_to, AccessKind::Store, self.page_addr(page), PAGE_BYTES, out);
        true
    }

    pub fn node(&self, page: u64, level: usize) -> Node<'_> {
        match self.changed.get(&page) {
            Some(entries) => Node::Changed(entries),
            None => self.loaded.node(page, level).expect("a node that was not loaded has been changed"),
        }
    }

    fn page_addr(&self, page: u64) -> u64 {
        self.base + page * PAGE_BYTES
    }

    fn slot_addr(&self, page: u64, index: usize) -> u64 {
        self.page_addr(page) + slot(index)
    }

    pub fn cell_bytes(&self, level: usize) -> u64 {
        if level == 0 { self.leaf_cell } else { CELL_BYTES }
    }

    fn cell_addr(&self, page: u64, level: usize, number: u16) -> u64 {
        self.page_addr(page) + cell(number, self.cell_bytes(level))
    }

    /// Descends from the root to where `key` is or would be, and keeps the path. Returns the record's position if it
    /// exists.
    ///
    /// In each node a binary search reads the slots and keys that it compares (in a branch without the first entry),
    /// and then the child of the last entry that is not greater.
    pub fn search(&mut self, key: Key, out: &mut Vec<Access>) -> Option<Place> {
        out.push(self.sites.meta.load(self.base));
        self.way.clear();
        let (mut page, mut level) = (self.root, self.top);
        loop {
            let (index, exact) = self.search_node(page, level, key, out);
            if level == 0 {
                self.way.push(Step { page, index });
                let number = exact.then(|| self.node(page, 0).entry(index).cell)?;
                return Some(Place { page, vaddr: self.cell_addr(page, 0, number) });
            }
            let index = if exact { index } else { index - 1 };
            self.way.push(Step { page, index });
            page = self.follow(page, level, index, out);
            level -= 1;
        }
    }

    /// Index of `key` in a node, or of the first entry after it; and whether it exists.
    fn search_node(&self, page: u64, level: usize, key: Key, out: &mut Vec<Access>) -> (usize, bool) {
        let node = self.node(page, level);
        out.push(self.sites.header.load(self.page_addr(page) + LIMITS));
        let (mut low, mut high) = (usize::from(level > 0), node.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            let entry = node.entry(middle);
            out.push(self.sites.slot.load(self.slot_addr(page, middle)));
            out.push(self.sites.cell.load(self.cell_addr(page, level, entry.cell)));
            match entry.key.cmp(&key) {
                std::cmp::Ordering::Equal => return (middle, true),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        (low, false)
    }

    /// Reads the child's page number in entry `index` of a branch.
    fn follow(&self, page: u64, level: usize, index: usize, out: &mut Vec<Access>) -> u64 {
        let entry = self.node(page, level).entry(index);
        out.push(self.sites.slot.load(self.slot_addr(page, index)));
        out.push(self.sites.child.load(self.cell_addr(page, level, entry.cell)));
        entry.child
    }

    /// Reads the value of the record at `place`.
    pub fn read(&self, place: Place, out: &mut Vec<Access>) {
        touch(self.sites.value, AccessKind::Load, place.vaddr + CELL_BYTES, self.value, out);
    }

    /// Writes `bytes` bytes at `offset` of the value at `place`.
    pub fn write(&self, place: Place, offset: u64, bytes: u64, out: &mut Vec<Access>) {
        touch(self.sites.write_value, AccessKind::Store, place.vaddr + CELL_BYTES + offset, bytes, out);
    }

    /// Reads up to `records` records in order, from the first that is not less than `from`.
    pub fn scan(&mut self, from: Key, records: u64, out: &mut Vec<Access>) {
        self.search(from, out);
        let mut left = records;
        while left > 0 {
            let Step { page, index } = *self.way.last().expect("a search leaves a way");
            let node = self.node(page, 0);
            if index == node.len() {
                if !self.next_leaf(out) {
                    return;
                }
                continue;
            }
            let place = Place { page, vaddr: self.cell_addr(page, 0, node.entry(index).cell) };
            out.push(self.sites.slot.load(self.slot_addr(page, index)));
            out.push(self.sites.cell.load(place.vaddr));
            self.read(place, out);
            self.way.last_mut().expect("as before").index += 1;
            left -= 1;
        }
    }

    /// Moves the path to the first record of the next leaf; false after the last. Leaves have no links: the path goes
    /// up until there is a next child.
    fn next_leaf(&mut self, out: &mut Vec<Access>) -> bool {
        let top = self.top;
        let next = (0..top).rev().find(|&at| {
            let Step { page, index } = self.way[at];
            index + 1 < self.node(page, top - at).len()
        });
        let Some(next) = next else { return false };
        self.way.truncate(next + 1);
        self.way[next].index += 1;
        for at in next..top {
            let Step { page, index } = self.way[at];
            let child = self.follow(page, top - at, index, out);
            out.push(self.sites.header.load(self.page_addr(child) + LIMITS));
            self.way.push(Step { page: child, index: 0 });
        }
        true
    }

    /// Inserts a record that does not exist.
    pub fn insert(&mut self, key: Key, out: &mut Vec<Access>) {
        let found = self.search(key, out);
        assert!(found.is_none(), "{key:?} is there");
        let mut entry = NodeEntry { key, child: 0, cell: 0 };
        for level in 0..=self.top {
            let Step { page, index } = self.way[self.top - level];
            // In a branch the path took the entry before the new one.
            let index = if level == 0 { index } else { index + 1 };
            match self.insert_into(page, level, index, entry, out) {
                None => return,
                Some(split) => entry = split,
            }
        }
        self.new_root(entry, out);
    }

    /// Makes a root above the present one and the node of `right`.
    fn new_root(&mut self, right: NodeEntry, out: &mut Vec<Access>) {
        let page = self.new_page(out);
        let left = NodeEntry { child: self.root, ..self.node(self.root, self.top).entry(0) };
        (self.root, self.top) = (page, self.top + 1);
        self.changed.insert(page, Vec::new());
        for (index, entry) in [left, right].into_iter().enumerate() {
            self.put(page, self.top, index, entry, out);
        }
        out.push(self.sites.write_header.store(self.page_addr(page) + LIMITS));
        out.push(self.sites.write_meta.store(self.base));
    }

    fn new_page(&mut self, out: &mut Vec<Access>) -> u64 {
        assert!(self.next_page < self.file_pages, "the file is larger than all inserts need");
        out.push(self.sites.write_meta.access(AccessKind::Modify, self.base + 8));
        self.next_page += 1;
        self.next_page - 1
    }

    /// Inserts an entry at `index` of a node. If the node has no room, it is split, and the entry of the new node is
    /// returned.
    fn insert_into(
        &mut self,
        page: u64,
        level: usize,
        index: usize,
        entry: NodeEntry,
        out: &mut Vec<Access>,
    ) -> Option<NodeEntry> {
        if !self.changed.contains_key(&page) {
            let entries = self.node(page, level).to_vec();
            self.changed.insert(page, entries);
        }
        let len = self.changed[&page].len();
        if len as u64 == capacity(self.cell_bytes(level)) {
            return Some(self.split(page, level, index, entry, out));
        }
        let (first, last) = (self.slot_addr(page, index), self.slot_addr(page, len));
        touch(self.sites.shift, AccessKind::Modify, first, last - first, out);
        self.put(page, level, index, entry, out);
        out.push(self.sites.write_header.store(self.page_addr(page) + LIMITS));
        None
    }

    /// Assigns a cell to a new entry and writes both cell and slot.
    fn put(&mut self, page: u64, level: usize, index: usize, entry: NodeEntry, out: &mut Vec<Access>) {
        let entries = self.changed.get_mut(&page).expect("what is written has changed");
        let cell = entries.len() as u16;
        entries.insert(index, NodeEntry { cell, ..entry });
        let vaddr = self.cell_addr(page, level, cell);
        out.push(self.sites.write_slot.store(self.slot_addr(page, index)));
        out.push(self.sites.write_cell.store(vaddr));
        if level == 0 {
            self.write(Place { page, vaddr }, 0, self.value, out);
        }
    }

    /// Moves the upper half of a full node's entries to a new node and inserts an entry into the node where it belongs.
    /// Both are rewritten without gaps. Returns the entry of the new node.
    fn split(&mut self, page: u64, level: usize, index: usize, entry: NodeEntry, out: &mut Vec<Access>) -> NodeEntry {
        let right = self.new_page(out);
        let bytes = self.cell_bytes(level);
        let entries = self.changed.remove(&page).expect("what is split has changed");
        // Half of all entries, including the new one, stay.
        let stay = entries.len().div_ceil(2);
        let middle = if index < stay { stay - 1 } else { stay };
        for (to, part) in [(page, &entries[..middle]), (right, &entries[middle..])] {
            let mut moved = Vec::with_capacity(capacity(bytes) as usize);
            for (number, entry) in part.iter().enumerate() {
                let (from, to_cell) =
                    (self.cell_addr(page, level, entry.cell), self.cell_addr(to, level, number as u16));
                out.push(self.sites.write_slot.store(self.slot_addr(to, number)));
                copy(self.sites.copy_from, from, self.sites.copy_to, to_cell, bytes, out);
                moved.push(NodeEntry { cell: number as u16, ..*entry });
            }
            self.changed.insert(to, moved);
        }
        let (target, index) = if index < stay { (page, index) } else { (right, index - middle) };
        self.put(target, level, index, entry, out);
        for page in [page, right] {
            out.push(self.sites.write_header.store(self.page_addr(page) + LIMITS));
        }
        NodeEntry { child: right, ..self.changed[&right][0] }
    }
}

/// Maximum number of pages of a file after this many inserts.
///
/// An insert makes at most one leaf. A split leaves half of the entries in each node. So no branch has fewer children
/// than that half or than a loaded branch, whichever is less, except for the last loaded branch of each level and the
/// root.
fn most_pages(loaded: &Loaded, branch_entries: u64, inserts: u64) -> u64 {
    let least = branch_entries.min(capacity(CELL_BYTES) / 2);
    let mut nodes = loaded.nodes(0) + inserts;
    let mut pages = META_PAGES + nodes;
    while nodes > 2 {
        nodes = nodes / least + 1;
        pages += nodes + 1;
    }
    pages + 2
}
