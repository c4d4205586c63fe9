//! Compares the store with a map of the newest versions, and its accesses with the geometry of its tables.

use std::collections::{BTreeMap, HashMap};

use super::super::program::tests::{arrays, files, replay};
use super::table::HEAD_BYTES;
use super::*;
use crate::{Event, EventKind, rng::Rng};

const SMALL: &str = "records=3000,value=100,memtable=64KiB,table=32KiB,ratio=4";

fn values(settings: &str) -> Values {
    Values::parse(WORKLOAD.name, WORKLOAD.parameters, settings, 7).unwrap()
}

/// The version and entry address of each record's newest version, found by reading everything.
fn newest(lsm: &Lsm) -> BTreeMap<Key, (u64, u64)> {
    let mut newest = BTreeMap::new();
    let mut see = |record: Record, addr| {
        let entry = newest.entry(record.key).or_insert((record.version, addr));
        *entry = (*entry).max((record.version, addr));
    };
    for (_, tables) in lsm.levels.iter() {
        for table in tables {
            for index in 0..table.content.len() {
                see(table.content.record(index), table.addr + lsm.files.format.entry_at(index));
            }
        }
    }
    let mut node = lsm.memtable.after(None, &mut Vec::new());
    while let Some(at) = node {
        see(lsm.memtable.record(at), lsm.memtable.entry_addr(at));
        node = lsm.memtable.after(node, &mut Vec::new());
    }
    newest
}

/// Serves all requests like the program; `each` gets the store before each request, and the accesses of the request.
fn run(settings: &str, mut each: impl FnMut(&mut Lsm, Request, &mut Vec<Access>)) -> Lsm {
    let (_, mut requests, mut lsm) = store(&values(settings)).unwrap();
    let mut batch = Batch::default();
    while let Some(request) = requests.next() {
        while lsm.maintain(&mut batch, ThreadIx(0)) {
            batch.clear();
        }
        let mut out = Vec::new();
        each(&mut lsm, request, &mut out);
    }
    lsm
}

/// Checks what holds for the levels between compactions.
fn check_levels(lsm: &Lsm, targets: &[u64]) {
    assert!(lsm.levels.tables(0).len() < 4);
    let mut slots = std::collections::HashSet::new();
    for (level, tables) in lsm.levels.iter() {
        for table in tables {
            assert!(slots.insert(table.slot), "a slot has one table");
            let records: Vec<Key> = (0..table.content.len()).map(|index| table.content.record(index).key).collect();
            assert!(records.windows(2).all(|pair| pair[0] < pair[1]), "in order, one version each");
        }
        if level > 0 {
            assert!(tables.windows(2).all(|pair| pair[0].content.last_key() < pair[1].content.first_key()));
        }
        let records: u64 = tables.iter().map(|table| table.content.len()).sum();
        let is_last = level == targets.len();
        assert!(level == 0 || is_last || records <= targets[level - 1], "level {level}: {records} of {targets:?}");
    }
}

#[test]
fn gets_find_the_newest_version() {
    for settings in [
        format!("{SMALL},mix=a,operations=30K"),
        format!("{SMALL},mix=d,operations=60K"),
        format!("{SMALL},mix=f,operations=20K,distribution=uniform,level0=3,bloom=0"),
        format!("{SMALL},mix=d,operations=60K,insertorder=ordered,distribution=uniform,bloom=2"),
        "records=1,mix=d,operations=60K,value=100,memtable=64KiB,table=32KiB,level0=0".to_owned(),
        "records=500,mix=a,operations=3K,value=5000,memtable=256KiB,table=64KiB,ratio=2".to_owned(),
    ] {
        let mut oracle: BTreeMap<Key, u64> = BTreeMap::new();
        let (mut reads, mut flushes) = (0, 0);
        let lsm = run(&settings, |lsm, request, out| {
            if oracle.is_empty() {
                oracle = newest(lsm).into_iter().map(|(key, (version, _))| (key, version)).collect();
            }
            match request {
                Request::Read(key) => {
                    assert_eq!(lsm.get(key, out).map(|record| record.version), oracle.get(&key).copied(), "{settings}");
                    if reads % 200 == 0 {
                        // A get ends with the value at the newest version.
                        let (last, format) = (out.last().unwrap(), lsm.files.format);
                        let end = last.vaddr + u64::from(last.size_bytes);
                        assert_eq!(end, newest(lsm)[&key].1 + format.entry, "{settings}");
                    }
                    reads += 1;
                }
                Request::Update { key, .. } | Request::ReadModifyWrite { key, .. } | Request::Insert(key) => {
                    let log_at = lsm.log_at;
                    lsm.serve(request, out);
                    flushes += u32::from(log_at == 0);
                    oracle.insert(key, lsm.version);
                }
                Request::Scan { .. } => panic!("{request:?}"),
            }
        });
        assert!(reads > 1000 && flushes > 5, "{settings}: {reads} reads, {flushes} flushes");
        let mut out = Vec::new();
        for (key, version) in &oracle {
            assert_eq!(lsm.get(*key, &mut out), Some(Record { key: *key, version: *version }), "{settings}");
        }
        assert_eq!(newest(&lsm).len(), oracle.len());
        let absent = Key { place: 7, sequence: u64::MAX };
        assert_eq!(lsm.get(absent, &mut out), None);
    }
}

#[test]
fn levels_stay_sorted_and_within_their_sizes() {
    let settings = format!("{SMALL},mix=a,operations=30K");
    let targets = shape(3000, 4 * 65_536 / 136, 4);
    assert_eq!(targets, [750, 3000]);
    let (mut checked, mut listed) = (0, 0);
    let lsm = run(&settings, |lsm, request, out| {
        lsm.serve(request, out);
        checked += 1;
        if checked % 500 == 0 {
            check_levels(lsm, &targets);
        }
    });
    for (_, tables) in lsm.levels.iter() {
        listed += tables.iter().filter(|table| matches!(table.content, Content::Listed(_))).count();
    }
    assert!(listed > 5, "compactions reach the last level: {listed}");
    assert_eq!(shape(1000, 1000, 10), [1000]);
    assert_eq!(shape(1_000_000, 64_000, 10), [10_000, 100_000, 1_000_000]);
}

#[test]
fn scans_read_the_newest_versions_in_order() {
    let mut scans = 0;
    run(&format!("{SMALL},mix=e,operations=12K,scan=20"), |lsm, request, out| {
        let Request::Scan { from, records } = request else { return lsm.serve(request, out) };
        scans += 1;
        if scans % 100 != 0 {
            return;
        }
        lsm.serve(request, out);
        let newest = newest(lsm);
        let expected: Vec<u64> =
            newest.range(from..).take(records as usize).map(|(_, (_, entry))| entry + HEAD_BYTES).collect();
        // Values have 100 bytes; the first access of a value is one that does not continue another.
        let sites = [Site::new(2, 1, 1).pc, Site::new(22, 1, 1).pc];
        let mut read: Vec<&Access> = out.iter().filter(|access| sites.contains(&access.pc)).collect();
        let mut end = 0;
        read.retain(|access| {
            let follows = access.vaddr == end && access.vaddr % 64 == 0;
            end = access.vaddr + u64::from(access.size_bytes);
            !follows
        });
        assert_eq!(read.iter().map(|access| access.vaddr).collect::<Vec<_>>(), expected);
    });
    assert!(scans > 10_000);
}

/// Each filter that is read costs one line; the index is read only if the filter matches.
#[test]
fn filters_spare_the_tables_that_have_no_such_key() {
    for (bloom, rate) in [(10, 0.0082), (4, 0.1463), (0, 1.0)] {
        let settings = format!(
            "records=40K,value=10,memtable=16KiB,table=64KiB,bloom={bloom},level0=3,mix=c,distribution=uniform,operations=20K"
        );
        let filter = Site::new(16, 1, 1).pc;
        let restart_count = Site::new(19, 1, 1).pc;
        let (mut absent, mut passed, mut lines) = (0.0, 0.0, HashMap::new());
        let lsm = run(&settings, |lsm, request, out| {
            let Request::Read(key) = request else { panic!("{request:?}") };
            let version = lsm.get(key, out).unwrap().version;
            // All tables searched without the key are false searches; one table has the key.
            let asked = lsm.levels.iter().flat_map(|(_, tables)| tables).filter(|table| {
                let Content::Spaced { version: table_version, .. } = table.content else {
                    panic!("nothing is written")
                };
                table.content.first_key() <= key && key <= table.content.last_key() && table_version >= version
            });
            let asked = asked.count();
            let filters: Vec<u64> =
                out.iter().filter(|access| access.pc == filter).map(|access| access.vaddr).collect();
            assert_eq!(filters.len(), if bloom == 0 { 0 } else { asked });
            filters.iter().for_each(|line| *lines.entry(*line).or_insert(0) += 1);
            absent += asked as f64 - 1.0;
            // Each block search begins by reading the number of restart points, which ends the block.
            let counts: Vec<&Access> = out.iter().filter(|access| access.pc == restart_count).collect();
            let (entries, bytes) = lsm.files.format.restarts_at(0);
            for count in &counts {
                let tables = lsm.levels.iter().flat_map(|(_, tables)| tables);
                let begin = tables.map(|table| table.addr).filter(|addr| *addr <= count.vaddr).max().unwrap();
                assert_eq!((count.vaddr + u64::from(count.size_bytes) - begin) % (entries + bytes), 0);
            }
            passed += counts.len() as f64 - 1.0;
        });
        assert!((passed / absent / rate - 1.0_f64).abs() < 0.2, "{bloom} bits: {passed} of {absent}");
        assert!(lines.keys().all(|line| line % 64 == 0));
        assert_eq!(lsm.levels.iter().count(), 1 + 3, "level 0 and those of 400, 4000 and 40,000 records");
    }
}

/// Mappings of table files created while the program ran, each with the accesses until its end.
fn written(events: &[Event], accesses: &[(u32, Access)]) -> Vec<(u64, u64, Vec<Access>)> {
    let mut open = HashMap::new();
    let mut written = Vec::new();
    for event in events.iter().filter(|event| event.position > 0) {
        match &event.kind {
            EventKind::Mmap { addr, len, file: Some(_), .. } => {
                open.insert(*addr, (event.position as usize, *len));
            }
            EventKind::Munmap { addr, len } => {
                let Some((begin, _)) = open.remove(addr) else { continue };
                let inside = accesses[begin..event.position as usize].iter().map(|(_, access)| *access);
                written.push((*addr, *len, inside.filter(|a| (*addr..addr + len).contains(&a.vaddr)).collect()));
            }
            _ => {}
        }
    }
    written
}

#[test]
fn tables_are_read_and_written_from_their_beginning_to_their_end() {
    let (accesses, events) = replay(&format!("lsm:{SMALL},operations=20K,threads=2"), 7);
    let (mut builds, mut merged) = (0, 0);
    for (addr, len, accesses) in written(&events, &accesses) {
        let stores: Vec<&Access> = accesses.iter().filter(|access| access.kind.writes()).collect();
        if stores.is_empty() {
            // A finished table that was read until it was merged: its last entries are read in order.
            merged += 1;
            continue;
        }
        builds += 1;
        assert_eq!(stores.len(), accesses.len(), "a table that is written is not read");
        assert_eq!(stores[0].vaddr, addr);
        let (mut end, mut gaps) = (addr, 0);
        for store in stores {
            assert!(store.vaddr >= end);
            gaps += u32::from(store.vaddr >= end + 64);
            end = store.vaddr + u64::from(store.size_bytes);
        }
        assert!(end <= addr + len && gaps <= 1, "no gaps but where the last block has no entries");
    }
    assert!(builds > 30 && merged > 20, "{builds} tables written, {merged} merged");
    let names: Vec<String> = files(&events).into_iter().map(|file| file.0).collect();
    assert!(names[0] == "/data/lsm/log" && names[1..].iter().all(|name| name.ends_with(".sst")), "{names:?}");
    assert_eq!(arrays(&events).len(), 2, "the memtable and the tables' keys");
}

#[test]
fn a_memtable_is_a_sorted_map_whose_nodes_do_not_overlap() {
    let values = values("records=1");
    let mut memtable = Memtable::new(&values, 0x10_0000, 1 << 20, 136);
    let (mut map, mut rng) = (BTreeMap::new(), Rng::for_thread(1, "test", 0));
    let mut stored = Vec::new();
    for version in 1..3000 {
        let key = Key { place: rng.below(1000), sequence: rng.below(2) };
        let mut out = Vec::new();
        memtable.insert(Record { key, version }, &mut out);
        map.insert(key, version);
        let own = out.iter().filter(|access| access.kind == AccessKind::Store);
        stored.extend(own.map(|access| (access.vaddr, access.vaddr + u64::from(access.size_bytes))));
    }
    stored.sort_unstable();
    assert!(stored.windows(2).all(|pair| pair[0].1 <= pair[1].0), "a node is written once");
    let mut compares = 0;
    for place in 0..1000 {
        for sequence in 0..2 {
            let key = Key { place, sequence };
            let mut out = Vec::new();
            assert_eq!(memtable.get(key, &mut out).map(|record| record.version), map.get(&key).copied());
            compares += out.iter().filter(|access| u64::from(access.size_bytes) == HEAD_BYTES).count();
        }
    }
    // About (4 / 2 + 1) · log4(n) of 3000: 17.
    assert!((8..26).contains(&(compares / 2000)), "{}", compares / 2000);
}

#[test]
fn records_cost_no_memory() {
    let (_, _, lsm) = store(&values("records=64Mi")).unwrap();
    let tables: usize = lsm.levels.iter().map(|(_, tables)| tables.len()).sum();
    assert!((4000..6000).contains(&tables) && lsm.levels.tables(0).len() == 2, "{tables}");
    let bytes: u64 = lsm.levels.iter().flat_map(|(_, tables)| tables).map(|t| t.content.len() * 1036).sum();
    assert!(bytes > 64 << 30);
    assert!(replay("lsm:records=64Mi,operations=2000", 1).0.len() > 100_000);
}

#[test]
fn impossible_parameters_are_refused() {
    let error = |spec: &str| crate::workload::parse(spec, 0).err().expect("it must be refused").to_string();
    assert_eq!(error("lsm:memtable=16KiB"), "lsm: memtable=16KiB: must be at least 17.75KiB, for 16 records");
    assert!(error("lsm:level0=4").contains("level0=4: must be 0 to 3"));
    assert!(error("lsm:records=1T").contains("do not fit"));
    assert!(error("lsm:fields=3").contains("unknown parameter 'fields'"));
}
