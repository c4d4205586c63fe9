//! `btree`: a B+tree in a memory-mapped file, under YCSB's requests.

mod node;
#[cfg(test)]
mod tests;
mod tree;

use super::{
    Workload,
    layout::Layout,
    popularity::THETA,
    program::Plan,
    spec::{ALIGN, GAP, Kind, Parameter, Preset, SEED, THREADS, Values},
    store::{LOAD, Store, plan},
    ycsb::{
        ACCESSES_OF_OPERATIONS, DISTRIBUTION, FIELDS, INSERT_ORDER, Key, MIX, OPERATIONS, RECORDS, Request, Requests,
        SCAN,
    },
};
use crate::{Access, Batch, ThreadIx, TraceError};

use tree::Tree;

/// Models: an embedded store such as LMDB: a B+tree of 4 KiB pages in one file that is mapped as a whole. The tree is
/// really searched. A get reads the root's page number; then in each node the header, the slots and keys that its
/// binary search compares, and the child's page number; and at last the value, line by line. An update writes one field
/// in place. An insert moves slots, writes a cell, and splits full nodes up to the root. A scan finds its first record
/// and continues from leaf to leaf through their parents.
///
/// With `memory=anonymous` the same pages are in private memory instead, as those of an in-memory database; with
/// `load=yes` the program writes them itself, line by line, before the first request.
///
/// The file exists before the program starts. Loading writes the leaves in key order, then their parents in order, and
/// the root as the last page. The content of a loaded node is computed from its page number, so records cost no memory;
/// nodes changed by inserts are stored, 32 bytes per entry.
///
/// Source: LMDB (mdb.c: MDB_page, MDB_node, mdb_node_search, mdb_page_split, mdb_cursor_sibling) for nodes and their
/// search; Cooper et al., "Benchmarking Cloud Serving Systems with YCSB", SoCC 2010, for requests.
///
/// Parameters: `mix`, `distribution`, `theta`, `scan`, `fields`, `insertorder` and `operations` are YCSB's. `value` and
/// `fill` determine the number of records per leaf.
///
/// Deviations: pages change in place, as in Berkeley DB; LMDB copies changed pages and all pages above them. There are
/// no locks, no transactions and no msync calls. Values have at most 2000 bytes; LMDB puts longer ones on separate
/// pages. New pages are appended to the file, which is mapped with room for them. Zipf's law covers the loaded records;
/// YCSB also includes the expected inserts.
pub(super) static WORKLOAD: Workload = Workload {
    name: "btree",
    summary: "a B+tree in a memory-mapped file or in anonymous memory: really searched, read, changed and split, under YCSB's requests",
    origin: "nodes as in LMDB; requests of YCSB's core workloads A to F (Cooper et al., SoCC 2010)",
    parameters: &[
        RECORDS,
        Parameter {
            name: "value",
            kind: Kind::Bytes { min: 1, max: 2000 },
            default: Preset::Value("1000B"),
            meaning: "bytes of each record's value",
        },
        FIELDS,
        MIX,
        DISTRIBUTION,
        THETA,
        SCAN,
        INSERT_ORDER,
        Parameter {
            name: "fill",
            kind: Kind::Positive { max: 1.0 },
            default: Preset::Value("1"),
            meaning: "share of a node's room that loading uses; one record per leaf and two children per branch at least",
        },
        Parameter {
            name: "memory",
            kind: Kind::Choice(&["file", "anonymous"]),
            default: Preset::Value("file"),
            meaning: "where the pages are: in a file that is mapped as a whole, or in anonymous memory",
        },
        LOAD,
        OPERATIONS,
        ACCESSES_OF_OPERATIONS,
        THREADS,
        GAP,
        ALIGN,
        SEED,
    ],
    build,
};

fn build(values: &Values) -> Result<Plan, TraceError> {
    let (layout, requests, store) = store(values)?;
    Ok(plan(values, layout, requests, store))
}

fn store(values: &Values) -> Result<(Layout, Requests, BTree), TraceError> {
    let (value, fields) = (values.number("value"), values.number(FIELDS.name));
    if fields > value {
        return Err(values.refuse(FIELDS.name, &format!("at most {value}, one for each byte of the value")));
    }
    let requests = Requests::new(values)?;
    let mut tree = Tree::new(values, requests.loaded(), requests.room(), value, values.real("fill"));
    let mut layout = Layout::new(values);
    let base = match values.word("memory") {
        "anonymous" => layout.map(0, tree.file_bytes())?,
        _ => layout.map_file(0, tree.file_bytes(), "/data/btree")?,
    };
    tree.set_base(base);
    Ok((layout, requests, BTree { tree, field_bytes: value / fields, loaded_pages: 0 }))
}

struct BTree {
    tree: Tree,
    field_bytes: u64,
    /// Pages that loading has written.
    loaded_pages: u64,
}

impl BTree {
    fn read(&mut self, key: Key, out: &mut Vec<Access>) {
        let place = self.tree.search(key, out).expect("records that are asked for are there");
        self.tree.read(place, out);
    }

    fn update(&mut self, key: Key, field: u64, out: &mut Vec<Access>) {
        let place = self.tree.search(key, out).expect("records that are asked for are there");
        self.tree.write(place, field * self.field_bytes, self.field_bytes, out);
    }
}

impl Store for BTree {
    fn serve(&mut self, request: Request, out: &mut Vec<Access>) {
        match request {
            Request::Read(key) => self.read(key, out),
            Request::Update { key, field } => self.update(key, field, out),
            Request::Insert(key) => self.tree.insert(key, out),
            Request::Scan { from, records } => self.tree.scan(from, records, out),
            Request::ReadModifyWrite { key, field } => {
                self.read(key, out);
                self.update(key, field, out);
            }
        }
    }

    fn load(&mut self, out: &mut Vec<Access>) -> bool {
        self.loaded_pages += 1;
        self.tree.load_page(self.loaded_pages - 1, out)
    }

    fn maintain(&mut self, _: &mut Batch, _: ThreadIx) -> bool {
        false
    }
}
