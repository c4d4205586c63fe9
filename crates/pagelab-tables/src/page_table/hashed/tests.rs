//! Compares every design with a map, and with the theory of its collisions.

use std::collections::BTreeMap;

use pagelab_trace::cases;

use super::parameters::HashFunction;
use super::*;
use crate::page_table::{Boot, Shared, TableScan, WalkList};
use pagelab_base::rng::Rng;

const FLAGS: PteFlags = PteFlags { writable: true, user: true, executable: false, accessed: true, dirty: false };

const SEARCH_LINES: u32 = 63;

fn config(cluster: Option<u32>, table_bytes: u64) -> HashedConfig {
    let table_bytes = Some(pagelab_trace::quantity::Bytes(table_bytes));
    HashedConfig {
        load_factor: None,
        cluster,
        hash: HashFunction::Mix64,
        seed: 0,
        table_bytes,
        search_lines: SEARCH_LINES,
        exits_per_scan: 1,
    }
}

fn table<K: Kind>(config: &HashedConfig) -> (SharedTable, PhysMem) {
    let mut mem = PhysMem::default();
    let boot = Boot { layer: "test", frames: 1 << 22, taken: 3, guests: &[] };
    let (shared, _) = <SharedTable as Shared<Hashed<K>>>::boot(config, &boot, &mut mem).unwrap();
    (shared, mem)
}

/// Calls a generic function for each design, with every kind of cluster.
macro_rules! for_designs {
    ($test:ident($($argument:expr),*)) => {
        $test::<Chained>(None, $($argument),*);
        $test::<Open>(None, $($argument),*);
        $test::<Power>(None, $($argument),*);
        for cluster in [2, 4, 8] {
            $test::<Clustered>(Some(cluster), $($argument),*);
        }
        for cluster in [8, 64, 4096] {
            $test::<Compact>(Some(cluster), $($argument),*);
        }
    };
}

fn walk<K: Kind>(space: &Hashed<K>, mem: &PhysMem, vpn: u64) -> WalkList {
    let mut list = WalkList::new();
    space.walk(mem, VirtAddr(vpn << FRAME_SHIFT | 0x123), &mut list);
    list
}

fn va(vpn: u64) -> VirtAddr {
    VirtAddr::from_page_number(vpn)
}

/// Counts of slots, found by reading the whole table: used, deleted, and used by `ended` tags.
fn recount(shared: &SharedTable, mem: &PhysMem, ended: &[u16]) -> [u64; 3] {
    let geometry = shared.geometry;
    let (mut used, mut deleted, mut stale) = (0, 0, 0);
    for frame in 0..geometry.slot_frames() {
        stale += shared.stale_in(mem, frame, ended).len() as u64;
        for head in geometry.slots_in(frame) {
            let chained = geometry.kind == HashedKind::Chained;
            let slots: Vec<_> = if chained { chained::chain(mem, head).collect() } else { vec![head] };
            used += slots.iter().filter(|&&slot| slot::is_used(mem.read_block(slot))).count() as u64;
            deleted += slots.iter().filter(|&&slot| mem.read_block(slot) == slot::DELETED).count() as u64;
        }
    }
    [used, deleted, stale]
}

fn counters(shared: &SharedTable, mem: &PhysMem) -> [u64; 3] {
    [Counter::Used, Counter::Deleted, Counter::Stale].map(|counter| shared.geometry.counter(mem, counter))
}

/// Random operations on four address spaces at the same addresses. Some spaces end, and scans follow later, one frame
/// at a time, between other operations.
fn torture<K: Kind>(cluster: Option<u32>, operations: u64) {
    let kind = K::KIND;
    let (mut shared, mut mem) = table::<K>(&HashedConfig { exits_per_scan: 2, ..config(cluster, 1 << 20) });
    let mut rng = Rng::new(7, "hashed tables");
    let mut spaces: Vec<(Hashed<K>, BTreeMap<u64, Mapping>)> =
        (0..4).map(|_| (shared.add_space().unwrap(), BTreeMap::new())).collect();
    let (mut ended, mut scan): (Vec<u16>, Option<TableScan>) = (Vec::new(), None);
    for operation in 0..operations {
        let (space, oracle) = &mut spaces[rng.below(4) as usize];
        // Adjacent pages, pages far apart, and pages at the end of the 48-bit address space.
        let vpn = rng.below(300) + [0, 0x7f00_0000, (1 << 36) - 300][rng.below(3) as usize];
        let flags = PteFlags { writable: rng.below(2) == 0, executable: rng.below(2) == 0, ..FLAGS };
        let mapping = Mapping { pfn: Pfn(rng.next_u64() >> 24), size: PageSize::Size4K, flags };
        let known = oracle.get(&vpn).copied();
        let found = walk(space, &mem, vpn);
        assert_eq!(found.leaf, known.map_or(Leaf::nothing(1), Leaf::Present), "{kind:?} {operation}");
        assert!((1..=SEARCH_LINES as usize + 1).contains(&found.refs().len()));
        let entry = space.entry(&mem, va(vpn));
        match (rng.below(5), known) {
            (0 | 1, Some(_)) => {
                assert_eq!(space.unmap(&mut mem, va(vpn)), entry);
                oracle.remove(&vpn);
            }
            (2, Some(_)) => {
                assert_eq!(space.replace(&mut mem, va(vpn), mapping), entry);
                oracle.insert(vpn, mapping);
            }
            (_, Some(old)) => {
                space.set_flags(&mut mem, va(vpn), flags);
                oracle.insert(vpn, Mapping { flags, ..old });
            }
            (_, None) => {
                let written = space.map(&mut mem, va(vpn), mapping).expect("the table is large enough");
                assert!(kind == HashedKind::Chained || written == entry, "the entry is where it was predicted");
                oracle.insert(vpn, mapping);
            }
        }
        if rng.below(2000) == 0 {
            let mut listed = Vec::new();
            space.mapped(&mem, va(100), va(0x7f00_0100), 250, &mut listed);
            let known = oracle.range(100..0x7f00_0100).take(250);
            assert!(listed.iter().map(|page| (page.va.page_number(), page.mapping)).eq(known.map(|(a, b)| (*a, *b))));
        }
        if rng.below(4000) == 0 {
            let tag = space.asid;
            assert!(shared.abandon(&mut mem, space));
            if !oracle.is_empty() {
                ended.push(tag);
            }
            oracle.clear();
            assert_eq!(counters(&shared, &mem), recount(&shared, &mem, &ended), "{kind:?} {operation}");
        }
        if scan.is_none() {
            scan = Shared::<Hashed<K>>::begin_scan(&mut shared);
        }
        if let Some(running) = &mut scan
            && rng.below(20) == 0
        {
            let tags = running.tags.clone();
            assert!(
                tags.iter().all(|tag| !spaces.iter().any(|(space, _)| space.asid == *tag)),
                "a tag is used too soon"
            );
            if !Shared::<Hashed<K>>::commit_scan(&mut shared, &mut mem, running) {
                ended.retain(|tag| !tags.contains(tag));
                scan = None;
                assert_eq!(counters(&shared, &mem), recount(&shared, &mem, &ended), "{kind:?} {operation}");
            }
        }
    }
    assert!(shared.scans.scans > operations / 20_000 && shared.scans.deleted > 0, "{:?}", shared.scans);
    assert!(spaces.iter().any(|(space, _)| space.asid < 8), "tags come back");
}

#[test]
fn tables_agree_with_a_map_after_millions_of_operations() {
    for_designs!(torture(cases(500_000)));
}

/// Mean references per walk over all mapped pages of a table with random pages, one per slot, at a load.
fn mean_refs<K: Kind>(load: f64, seed: u64) -> f64 {
    let (mut shared, mut mem) = table::<K>(&HashedConfig { seed, ..config(None, 1 << 20) });
    let mut space = shared.add_space::<K>().unwrap();
    let mut rng = Rng::new(seed, "pages");
    let mut pages = Vec::new();
    while shared.geometry.counter(&mem, Counter::Used) < (shared.geometry.slots() as f64 * load) as u64 {
        let vpn = rng.below(1 << 32) << 3;
        if walk(&space, &mem, vpn).leaf == (Leaf::nothing(1)) {
            space.map(&mut mem, va(vpn), Mapping { pfn: Pfn(1), size: PageSize::Size4K, flags: FLAGS }).unwrap();
            pages.push(vpn);
        }
    }
    let refs: usize = pages.iter().map(|&vpn| walk(&space, &mem, vpn).refs().len()).sum();
    refs as f64 / pages.len() as f64
}

/// Expected number of items beyond the first `places`, for a Poisson distribution.
fn beyond(places: u32, mean: f64) -> f64 {
    let mut chance = (-mean).exp();
    (1..60_u32).fold(0.0, |sum, n| {
        chance *= mean / f64::from(n);
        sum + chance * f64::from(n.saturating_sub(places))
    })
}

/// Knuth, The Art of Computer Programming, vol. 3, 6.4: probes of a successful search are (1 + 1/(1 - a)) / 2 with
/// linear probing and 1 + a/2 with chains.
#[test]
fn references_follow_the_theory_of_collisions() {
    for load in [1.0_f64 / 8.0, 1.0 / 4.0, 1.0 / 2.0] {
        let probes = 0.5 * (1.0 + 1.0 / (1.0 - load));
        for seed in 1..=4 {
            // At a mean load of one half, some pairs of groups are full.
            let sparse = load.min(0.25);
            for (kind, mean, expected) in [
                (HashedKind::Chained, mean_refs::<Chained>(load, seed), 1.0 + load / 2.0),
                // A search begins anywhere in a line of four slots, so every fourth step leaves the line.
                (HashedKind::Open, mean_refs::<Open>(load, seed), 1.0 + (probes - 1.0) / 4.0),
                (HashedKind::Clustered, mean_refs::<Clustered>(load, seed), probes),
                (HashedKind::Compact, mean_refs::<Compact>(load, seed), probes),
                // Slots beyond the first four of a group are in a second line.
                (HashedKind::Power, mean_refs::<Power>(sparse, seed), 1.0 + beyond(4, 8.0 * sparse) / (8.0 * sparse)),
            ] {
                assert!((mean / expected - 1.0).abs() < 0.03, "{kind:?} at {load}: {mean} instead of {expected}");
            }
        }
    }
}

#[test]
fn a_full_table_says_so_and_stays_as_it_was() {
    for_designs!(fill());
}

fn fill<K: Kind>(cluster: Option<u32>) {
    let (mut shared, mut mem) = table::<K>(&config(cluster, 1 << 15));
    let mut space = shared.add_space::<K>().unwrap();
    let mut pages = 0;
    let mapping = |vpn| Mapping { pfn: Pfn(vpn), size: PageSize::Size4K, flags: FLAGS };
    let page = |n: u64| n * 4096 + n % 4096;
    while space.map(&mut mem, va(page(pages)), mapping(pages)).is_ok() {
        pages += 1;
    }
    let most = shared.geometry.slots() + if K::KIND == HashedKind::Chained { 512 } else { 0 };
    assert!(pages > 0 && pages <= most, "{:?}: {pages} pages", K::KIND);
    assert!(walk(&space, &mem, page(pages)).refs().len() <= SEARCH_LINES as usize);
    let error = shared.no_place(&mem, "native", va(page(pages)));
    assert!(error.contains("has no slot for") && error.contains("slots are in use"), "{:?}: {error}", K::KIND);
    (0..pages).for_each(|n| assert_eq!(walk(&space, &mem, page(n)).leaf, Leaf::Present(mapping(n)), "{:?}", K::KIND));
}

#[test]
fn neighbours_share_a_slot_and_super_slots_keep_lines_together() {
    assert_eq!(lines::<Compact>(Some(8), 64).0, 8);
    assert_eq!(lines::<Clustered>(Some(4), 64).0, 16);
    assert_eq!(lines::<Clustered>(Some(8), 64).0, 8);
    assert_eq!(lines::<Open>(None, 64).0, 64);
    // 4,096 pages in 512 lines: those of a super-slot are in eight pages, others anywhere.
    assert_eq!(lines::<Compact>(Some(4096), 4096), (512, 512, 8));
    assert_eq!(lines::<Compact>(Some(512), 4096).2, 8);
    assert!(lines::<Compact>(Some(8), 4096).2 > 300);
}

/// Numbers of slots of neighbouring pages, and of their lines and frames.
fn lines<K: Kind>(cluster: Option<u32>, pages: u64) -> (u64, usize, usize) {
    let (mut shared, mut mem) = table::<K>(&config(cluster, 1 << 22));
    let mut space = shared.add_space::<K>().unwrap();
    for vpn in 0x4000..0x4000 + pages {
        space.map(&mut mem, va(vpn), Mapping { pfn: Pfn(vpn), size: PageSize::Size4K, flags: FLAGS }).unwrap();
    }
    let count_distinct = |shift: u32| {
        let mut places: Vec<u64> =
            (0x4000..0x4000 + pages).map(|vpn| walk(&space, &mem, vpn).refs()[0].addr.0 >> shift).collect();
        places.sort_unstable();
        places.dedup();
        places.len()
    };
    (shared.geometry.counter(&mem, Counter::Used), count_distinct(6), count_distinct(12))
}

/// A tag and its 8 entries of 8 bytes do not fit into a line.
#[test]
fn a_slot_of_two_lines_may_take_two_references() {
    let (mut shared, mut mem) = table::<Clustered>(&config(Some(8), 1 << 16));
    let mut space = shared.add_space::<Clustered>().unwrap();
    let refs = [0, 6, 7].map(|vpn| {
        space.map(&mut mem, va(vpn), Mapping { pfn: Pfn(9), size: PageSize::Size4K, flags: FLAGS }).unwrap();
        walk(&space, &mem, vpn).refs().len()
    });
    assert_eq!(refs, [1, 1, 2]);
}

#[test]
fn modulo_hashing_lets_processes_collide() {
    let config = HashedConfig { hash: HashFunction::Modulo, ..config(None, 1 << 16) };
    let (mut shared, mut mem) = table::<Compact>(&config);
    for process in 0..10 {
        let mut space = shared.add_space::<Compact>().unwrap();
        space.map(&mut mem, va(0x1000), Mapping { pfn: Pfn(process), size: PageSize::Size4K, flags: FLAGS }).unwrap();
        assert_eq!(walk(&space, &mem, 0x1000).refs().len() as u64, process + 1);
    }
}

#[test]
fn searches_continue_past_deleted_slots() {
    let config = HashedConfig { hash: HashFunction::Modulo, ..config(None, 1 << 16) };
    let (mut shared, mut mem) = table::<Compact>(&config);
    let mut spaces: Vec<Hashed<Compact>> = (0..3).map(|_| shared.add_space().unwrap()).collect();
    let mapping = Mapping { pfn: Pfn(5), size: PageSize::Size4K, flags: FLAGS };
    spaces.iter_mut().for_each(|space| _ = space.map(&mut mem, va(8), mapping).unwrap());
    spaces[0].unmap(&mut mem, va(8));
    spaces[1].unmap(&mut mem, va(8));
    assert_eq!(walk(&spaces[2], &mem, 8).leaf, Leaf::Present(mapping));
    assert_eq!(walk(&spaces[2], &mem, 8).refs().len(), 3);
    assert_eq!(walk(&spaces[0], &mem, 8).refs().len(), 4, "up to the first empty one");
    // The first deleted slot is reused.
    spaces[1].map(&mut mem, va(8), mapping).unwrap();
    assert_eq!(walk(&spaces[1], &mem, 8).refs().len(), 1);
    assert_eq!(counters(&shared, &mem), [2, 1, 0]);
}
