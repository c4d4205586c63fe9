//! The memtable: a skip list in anonymous memory that receives all writes.

use super::super::{layout::Site, spec::Values, store::touch, ycsb::Key};
use super::table::{HEAD_BYTES, Record};
use crate::rng::Rng;
use crate::{Access, AccessKind};

/// Maximum number of links of a node; one in `BRANCHING` nodes has a further link.
const MOST_LINKS: usize = 12;
const BRANCHING: u64 = 4;
const LINK_BYTES: u64 = 8;
/// The node before the first one; it has all links.
const HEAD: u32 = 0;

/// A node. Its links of higher levels lie before the link of level 0, its entry after it.
struct Node {
    record: Record,
    /// Offset of its link of level 0.
    offset: u64,
    /// Index of its links among all links; that of level 0 comes first.
    links: usize,
}

/// The last node before the key on each level, as found by a search.
type Before = [u32; MOST_LINKS];

pub(super) struct Memtable {
    base: u64,
    bytes: u64,
    /// Bytes per entry.
    entry: u64,
    /// Offset of the first free byte.
    free: u64,
    nodes: Vec<Node>,
    /// The target node of each link; the head means none, since no link leads to it.
    links: Vec<u32>,
    /// Number of levels in use.
    height: usize,
    rng: Rng,
    link: Site,
    head: Site,
    value: Site,
    write_link: Site,
    write_entry: Site,
}

impl Memtable {
    /// A memtable of `bytes` at `base` for entries of `entry` bytes.
    pub fn new(values: &Values, base: u64, bytes: u64, entry: u64) -> Self {
        let site = |number, bytes: u64| Site::new(number, bytes as u16, values.gap());
        let mut memtable = Self {
            base,
            bytes,
            entry,
            free: 0,
            nodes: Vec::new(),
            links: Vec::new(),
            height: 1,
            rng: Rng::for_thread(values.seed(), "memtable", 0),
            link: site(0, LINK_BYTES),
            head: site(1, HEAD_BYTES),
            value: site(2, 64),
            write_link: site(3, LINK_BYTES),
            write_entry: site(4, 64),
        };
        memtable.clear();
        memtable
    }

    /// Maximum number of bytes of a node.
    pub fn node_bytes(entry: u64) -> u64 {
        (MOST_LINKS as u64 * LINK_BYTES + entry).next_multiple_of(LINK_BYTES)
    }

    /// Maximum number of nodes in `bytes`: if all have one link.
    pub fn most_records(bytes: u64, entry: u64) -> u64 {
        bytes / (LINK_BYTES + entry).next_multiple_of(LINK_BYTES)
    }

    /// Empties it; its memory is reused from the beginning.
    pub fn clear(&mut self) {
        self.nodes.clear();
        self.links.clear();
        self.links.resize(MOST_LINKS, HEAD);
        let record = Record { key: Key::loaded(0), version: 0 };
        self.nodes.push(Node { record, offset: (MOST_LINKS as u64 - 1) * LINK_BYTES, links: 0 });
        (self.free, self.height) = (MOST_LINKS as u64 * LINK_BYTES, 1);
    }

    /// Whether there might be no room for another record.
    pub fn is_full(&self) -> bool {
        self.free + Self::node_bytes(self.entry) > self.bytes
    }

    fn node(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }

    fn link_addr(&self, node: u32, level: usize) -> u64 {
        self.base + self.node(node).offset - level as u64 * LINK_BYTES
    }

    /// Address of a node's entry, which has the layout of a table's entry.
    pub fn entry_addr(&self, node: u32) -> u64 {
        self.base + self.node(node).offset + LINK_BYTES
    }

    fn follow(&self, node: u32, level: usize, out: &mut Vec<Access>) -> u32 {
        out.push(self.link.load(self.link_addr(node, level)));
        self.links[self.node(node).links + level]
    }

    /// The first node that is not before `key`, and the last one before it on each level. Newer versions come first. A
    /// key that was compared on the level above is not compared again.
    fn search(&self, key: Key, before: &mut Before, out: &mut Vec<Access>) -> u32 {
        let (mut at, mut bigger) = (HEAD, HEAD);
        for level in (0..self.height).rev() {
            loop {
                let next = self.follow(at, level, out);
                if next == HEAD || next == bigger {
                    break;
                }
                out.push(self.head.load(self.entry_addr(next)));
                if self.node(next).record.key >= key {
                    bigger = next;
                    break;
                }
                at = next;
            }
            before[level] = at;
        }
        self.links[self.node(at).links]
    }

    /// The newest version of a record, if there is one; reads its value.
    pub fn get(&self, key: Key, out: &mut Vec<Access>) -> Option<Record> {
        let node = self.seek(key, out)?;
        let record = self.record(node);
        if record.key != key {
            return None;
        }
        self.read_value(node, out);
        Some(record)
    }

    /// The first node that is not before `key`.
    pub fn seek(&self, key: Key, out: &mut Vec<Access>) -> Option<u32> {
        let node = self.search(key, &mut [HEAD; MOST_LINKS], out);
        (node != HEAD).then_some(node)
    }

    /// The node after `node`; without a node, the first.
    pub fn after(&self, node: Option<u32>, out: &mut Vec<Access>) -> Option<u32> {
        let next = self.follow(node.unwrap_or(HEAD), 0, out);
        (next != HEAD).then_some(next)
    }

    pub fn record(&self, node: u32) -> Record {
        self.node(node).record
    }

    pub fn read_key(&self, node: u32, out: &mut Vec<Access>) {
        out.push(self.head.load(self.entry_addr(node)));
    }

    pub fn read_value(&self, node: u32, out: &mut Vec<Access>) {
        touch(self.value, AccessKind::Load, self.entry_addr(node) + HEAD_BYTES, self.entry - HEAD_BYTES, out);
    }

    /// Writes a new version, which must be newer than all others: first the entry, then the links, from level 0 on.
    pub fn insert(&mut self, record: Record, out: &mut Vec<Access>) {
        let mut links = 1;
        while links < MOST_LINKS && self.rng.below(BRANCHING) == 0 {
            links += 1;
        }
        let node = self.nodes.len() as u32;
        let offset = self.free + (links as u64 - 1) * LINK_BYTES;
        self.free = (offset + LINK_BYTES + self.entry).next_multiple_of(LINK_BYTES);
        assert!(self.free <= self.bytes, "a full memtable is flushed");
        touch(self.write_entry, AccessKind::Store, self.base + offset + LINK_BYTES, self.entry, out);
        let mut before = [HEAD; MOST_LINKS];
        self.search(record.key, &mut before, out);
        self.nodes.push(Node { record, offset, links: self.links.len() });
        for (level, &before) in before.iter().enumerate().take(links) {
            let at = self.node(before).links + level;
            let next = std::mem::replace(&mut self.links[at], node);
            self.links.push(next);
            out.push(self.write_link.store(self.link_addr(node, level)));
            out.push(self.write_link.access(AccessKind::Modify, self.link_addr(before, level)));
        }
        self.height = self.height.max(links);
    }
}
