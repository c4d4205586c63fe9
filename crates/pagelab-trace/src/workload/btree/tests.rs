//! Compares the tree with a map of each key's place, and its accesses with the geometry of the loaded tree.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::super::{
    layout::Site,
    program::tests::{arrays, files, replay},
    ycsb::tests::requests,
};
use super::node::{CELL_BYTES, PAGE_BYTES, capacity, cell};
use super::*;
use crate::AccessKind;

const SEED_OF_REQUESTS: u64 = 7;
const META: u64 = 0;

fn values(settings: &str) -> Values {
    Values::parse(WORKLOAD.name, WORKLOAD.parameters, settings, SEED_OF_REQUESTS).unwrap()
}

/// The tree after all its requests, and the inserted keys.
fn finish(settings: &str) -> (Tree, BTreeSet<Key>) {
    let (_, mut requests, mut store) = store(&values(settings)).unwrap();
    let mut keys: BTreeSet<Key> = (0..requests.loaded()).map(Key::loaded).collect();
    let mut out = Vec::new();
    while let Some(request) = requests.next() {
        out.clear();
        store.serve(request, &mut out);
        if let Request::Insert(key) = request {
            assert!(keys.insert(key));
        }
    }
    (store.tree, keys)
}

/// Page and cell of each key, by traversing the whole tree; also checks the properties of every B+tree.
fn contents(tree: &Tree) -> BTreeMap<Key, (u64, u16)> {
    let (root, top) = tree.root();
    let mut found = BTreeMap::new();
    let mut pages = HashSet::new();
    let mut nodes = vec![(root, top, None::<Key>, None::<Key>)];
    while let Some((page, level, from, to)) = nodes.pop() {
        assert!(pages.insert(page), "page {page} is in the tree once");
        let node = tree.node(page, level);
        let entries = node.to_vec();
        let room = capacity(tree.cell_bytes(level));
        assert!(!entries.is_empty() && entries.len() as u64 <= room);
        let cells: HashSet<u16> = entries.iter().map(|entry| entry.cell).collect();
        assert!(cells.len() == entries.len() && cells.iter().all(|&cell| usize::from(cell) < entries.len()));
        assert!(entries.windows(2).all(|pair| pair[0].key < pair[1].key));
        // The first key of a branch is not read and may be too large.
        let read = &entries[usize::from(level > 0)..];
        assert!(read.iter().all(|e| from.is_none_or(|from| from <= e.key) && to.is_none_or(|to| e.key < to)));
        for (index, entry) in entries.iter().enumerate() {
            if level == 0 {
                assert_eq!(entry.child, 0);
                assert!(found.insert(entry.key, (page, entry.cell)).is_none());
            } else {
                let from = if index == 0 { from } else { Some(entry.key) };
                nodes.push((entry.child, level - 1, from, entries.get(index + 1).map(|next| next.key).or(to)));
            }
        }
    }
    found
}

#[test]
fn inserted_records_are_found_where_a_map_says() {
    for settings in [
        "records=1,mix=d,operations=5K,value=1000",
        "records=1,mix=d,operations=5K,value=10,insertorder=ordered",
        "records=3000,mix=d,operations=40K,value=1000",
        "records=3000,mix=e,operations=4K,value=2000,scan=3",
        "records=3000,mix=d,operations=40K,value=10,fill=0.5",
        "records=3000,mix=d,operations=40K,value=100,fill=0.01",
        "records=300000,mix=d,operations=20K,value=10,fill=0.9",
    ] {
        let (mut tree, keys) = finish(settings);
        let contents = contents(&tree);
        assert!(contents.keys().eq(keys.iter()), "{settings}: all keys, none else");
        let mut out = Vec::new();
        for (key, (page, number)) in contents {
            out.clear();
            let place = tree.search(key, &mut out).unwrap();
            assert_eq!(place.page, page, "{settings}");
            assert_eq!(place.vaddr, page * PAGE_BYTES + cell(number, tree.cell_bytes(0)) + tree.base());
        }
        let beyond = Key { place: keys.last().unwrap().place, sequence: u64::MAX };
        assert_eq!(tree.search(beyond, &mut out), None, "{settings}");
    }
}

/// Splits accesses by request: each begins with a load of the meta-data.
fn by_request(accesses: &[(u32, Access)]) -> Vec<&[(u32, Access)]> {
    let meta = Site::new(META, 8, 3).pc;
    let begins: Vec<usize> = (0..accesses.len()).filter(|&at| accesses[at].1.pc == meta).collect();
    let ends = begins.iter().skip(1).copied().chain([accesses.len()]);
    begins.iter().zip(ends).map(|(&begin, end)| &accesses[begin..end]).collect()
}

/// Pages of a file in the order of their first accesses.
fn pages(accesses: &[(u32, Access)], base: u64) -> Vec<u64> {
    let mut pages = Vec::new();
    for (_, access) in accesses {
        let page = (access.vaddr - base) / PAGE_BYTES;
        if !pages.contains(&page) {
            pages.push(page);
        }
    }
    pages
}

#[test]
fn a_get_reads_one_node_of_each_level_and_its_value_in_the_leaf() {
    let settings = "records=100000,mix=c,operations=3000";
    let (accesses, events) = replay(&format!("btree:{settings}"), SEED_OF_REQUESTS);
    let (_, base, _) = files(&events)[0];
    // 3 records per leaf, 120 children: 33,334 leaves, 278 branches, 3, 1.
    let levels: [(u64, u64); 4] = [(2, 3), (33_336, 3 * 120), (33_614, 3 * 120 * 120), (33_617, u64::MAX)];
    let (requests, _) = requests(&WORKLOAD, settings);
    let gets = by_request(&accesses);
    assert_eq!(gets.len(), 3000);
    for (request, get) in requests.iter().zip(gets) {
        let Request::Read(key) = *request else { panic!("{request:?}") };
        let way: Vec<u64> = levels.iter().rev().map(|(page, records)| page + key.place / records).collect();
        assert_eq!(pages(get, base)[1..], way, "the root first, then node by node");
        assert_eq!(pages(get, base)[0], 0);
        // The value: 1000 bytes after the cell's header and key.
        let at = base + way[3] * PAGE_BYTES + PAGE_BYTES - (key.place % 3 + 1) * 1032 + CELL_BYTES;
        let first = get.iter().position(|(_, a)| a.vaddr == at).unwrap();
        let value = &get[first..];
        assert_eq!(value.iter().map(|(_, a)| u64::from(a.size_bytes)).sum::<u64>(), 1000);
        assert!(value.windows(2).all(|w| w[0].1.vaddr + u64::from(w[0].1.size_bytes) == w[1].1.vaddr));
        // A binary search of n entries compares at most log2(n), rounded up; for 120 and 3 leaf keys: 7 and 2.
        let compares = get.iter().filter(|(_, a)| a.size_bytes == CELL_BYTES as u16 && a.vaddr < at).count();
        assert!(compares <= 2 + 7 + 7 + 2, "{compares}");
        assert!(get.iter().all(|(_, a)| a.kind == AccessKind::Load));
    }
}

#[test]
fn an_update_writes_only_its_field() {
    let settings = "records=5000,mix=a,operations=2000,value=200,fields=4";
    let (accesses, _) = replay(&format!("btree:{settings}"), SEED_OF_REQUESTS);
    let (requests, _) = requests(&WORKLOAD, settings);
    for (request, made) in requests.iter().zip(by_request(&accesses)) {
        let stored: Vec<&Access> = made.iter().map(|(_, a)| a).filter(|a| a.kind == AccessKind::Store).collect();
        let Request::Update { key, field } = *request else {
            assert!(stored.is_empty());
            continue;
        };
        // Cells of 232 bytes: 17 per leaf.
        let offset = PAGE_BYTES - (key.place % 17 + 1) * 232 + CELL_BYTES + field * 50;
        assert_eq!(stored[0].vaddr % PAGE_BYTES, offset);
        assert_eq!(stored.iter().map(|a| u64::from(a.size_bytes)).sum::<u64>(), 50);
    }
}

#[test]
fn a_scan_reads_the_records_that_a_map_has_next() {
    let settings = "records=2000,mix=e,operations=3000,scan=40";
    let (_, mut requests, mut store) = store(&values(settings)).unwrap();
    let mut keys: BTreeSet<Key> = (0..2000).map(Key::loaded).collect();
    let (mut inserts, mut ends) = (0, 0);
    while let Some(request) = requests.next() {
        let mut out = Vec::new();
        store.serve(request, &mut out);
        match request {
            Request::Insert(key) => {
                keys.insert(key);
                inserts += 1;
            }
            Request::Scan { from, records } => {
                let expected: Vec<Key> = keys.range(from..).take(records as usize).copied().collect();
                ends += u32::from((expected.len() as u64) < records);
                let contents = expected.iter().map(|key| store.tree.search(*key, &mut Vec::new()).unwrap().vaddr);
                let value = Site::new(5, 64, 3).pc;
                let mut read: Vec<u64> = out.iter().filter(|a| a.pc == value).map(|a| a.vaddr).collect();
                // Lines of one value are consecutive; any other access begins a value.
                let mut before = 0;
                read.retain(|&vaddr| {
                    let follows = vaddr % 64 == 0 && vaddr.wrapping_sub(before) <= 64;
                    before = vaddr;
                    !follows
                });
                assert_eq!(read, contents.map(|vaddr| vaddr + CELL_BYTES).collect::<Vec<_>>());
            }
            Request::Read(_) | Request::Update { .. } | Request::ReadModifyWrite { .. } => panic!("{request:?}"),
        }
    }
    assert!(inserts > 80 && ends > 0, "{inserts} inserts, {ends} scans to the end");
}

#[test]
fn a_full_leaf_is_split_into_a_new_page_at_the_end() {
    let (accesses, events) = replay("btree:records=99,mix=d,operations=300", SEED_OF_REQUESTS);
    let (_, base, len) = files(&events)[0];
    let (requests, _) = requests(&WORKLOAD, "records=99,mix=d,operations=300");
    // 33 leaves of 3 records after 2 pages of meta-data, and the root.
    let insert = requests.iter().position(|r| matches!(r, Request::Insert(_))).unwrap();
    let Request::Insert(key) = requests[insert] else { panic!() };
    let leaf = 2 + key.place / 3;
    let written = |accesses: &[(u32, Access)]| {
        let stores: Vec<_> = accesses.iter().filter(|(_, a)| a.kind.writes()).copied().collect();
        BTreeSet::from_iter(pages(&stores, base))
    };
    assert_eq!(written(by_request(&accesses)[insert]), BTreeSet::from([0, leaf, 35, 36]));
    assert!(len >= (36 + 15) * PAGE_BYTES);
}

#[test]
fn records_cost_no_memory() {
    for mix in ["a", "c", "f"] {
        let (_, mut requests, mut store) = store(&values(&format!("records=64Mi,operations=500,mix={mix}"))).unwrap();
        let mut out = Vec::new();
        while let Some(request) = requests.next() {
            store.serve(request, &mut out);
        }
        let tree = store.tree;
        assert_eq!((tree.changed_nodes(), tree.root().1), (0, 4), "{mix}");
        assert!(tree.file_bytes() > 64 << 30);
    }
    let (accesses, events) = replay("btree:records=64Mi,operations=2000,mix=d", 1);
    assert!(accesses.len() > 100_000 && arrays(&events).is_empty());
    assert_eq!(files(&events)[0].0, "/data/btree");
}

#[test]
fn impossible_parameters_are_refused() {
    let error = |spec: &str| crate::workload::parse(spec, 0).err().expect("it must be refused").to_string();
    assert_eq!(error("btree:value=5"), "btree: fields: must be at most 5, one for each byte of the value");
    assert!(error("btree:value=2001").contains("value=2001: must be 1B to"));
    assert!(error("btree:mix=g").contains("mix=g: must be a or b or c or d or e or f"));
    assert!(error("btree:fill=0").contains("fill=0: must be more than 0, to 1"));
    assert!(error("btree:records=1T").contains("do not fit"));
}
