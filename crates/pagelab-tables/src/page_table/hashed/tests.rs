//! Compares every design with a map, and with the theory of its collisions.

use std::collections::{BTreeMap, BTreeSet};

use pagelab_trace::{case_seed, cases};

use super::parameters::{Collisions, FullGroups, HashFunction};
use super::*;
use crate::page_table::{Boot, Shared, SizeProbes, SizeTables, SizesConfig, TableScan, WalkList};
use pagelab_base::addr::FRAME_SHIFT;
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
        collisions: Collisions::Walker,
        full_groups: FullGroups::Error,
        sizes: SizesConfig::default(),
        segments: None,
        pinned: None,
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
    let geometry = shared.tables[0];
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
    [Counter::Used, Counter::Deleted, Counter::Stale].map(|counter| shared.tables[0].counter(mem, counter))
}

/// Random operations on four address spaces at the same addresses. Some spaces end, and scans follow later, one frame
/// at a time, between other operations.
fn torture<K: Kind>(cluster: Option<u32>, operations: u64) {
    let kind = K::KIND;
    let (mut shared, mut mem) = table::<K>(&HashedConfig { exits_per_scan: 2, ..config(cluster, 1 << 20) });
    let mut rng = Rng::new(case_seed(7), "hashed tables");
    let mut spaces: Vec<(Hashed<K>, BTreeMap<u64, Mapping>)> =
        (0..4).map(|_| (shared.add_space().unwrap(), BTreeMap::new())).collect();
    let (mut ended, mut scan): (Vec<u16>, Option<TableScan>) = (Vec::new(), None);
    let mut seen: BTreeSet<u16> = spaces.iter().map(|(space, _)| space.asid).collect();
    let mut came_back = false;
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
        let entry = space.entry(&mem, va(vpn), PageSize::Size4K);
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
            // An empty space keeps its tag.
            came_back |= space.asid != tag && !seen.insert(space.asid);
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
    assert!(came_back, "tags come back");
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
    while shared.tables[0].counter(&mem, Counter::Used) < (shared.tables[0].slots() as f64 * load) as u64 {
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
    let most = shared.tables[0].slots() + if K::KIND == HashedKind::Chained { 512 } else { 0 };
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
    (shared.tables[0].counter(&mem, Counter::Used), count_distinct(6), count_distinct(12))
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

const SIZE_2M: PageSize = PageSize::Size2M;

fn sized(order: &[PageSize], tables: SizeTables, probes: SizeProbes) -> HashedConfig {
    let sizes = SizesConfig { order: order.to_vec(), tables, probes: Some(probes), shares: Vec::new() };
    HashedConfig { sizes, ..config(None, 1 << 20) }
}

/// Numbers of references and of steps of a walk.
fn refs_and_steps(list: &WalkList) -> (usize, usize) {
    let refs = list.refs();
    (refs.len(), refs.chunk_by(|one, next| one.step == next.step).count())
}

#[test]
fn without_collisions_a_walk_reads_a_line_per_size_up_to_the_one_that_hits() {
    fn check<K: Kind>() {
        let [small, large, giant] = PageSize::ALL;
        for order in [vec![small, large], vec![large, small], vec![giant, small, large], vec![small, large, giant]] {
            for (tables, probes) in [
                (SizeTables::Separate, SizeProbes::Parallel),
                (SizeTables::Separate, SizeProbes::Serial),
                (SizeTables::Shared, SizeProbes::Parallel),
                (SizeTables::Shared, SizeProbes::Serial),
            ] {
                let (mut shared, mut mem) = table::<K>(&sized(&order, tables, probes));
                assert_eq!(shared.tables.len(), if tables == SizeTables::Shared { 1 } else { order.len() });
                let mut space = shared.add_space::<K>().unwrap();
                for &size in &order {
                    let at = VirtAddr((3 + size as u64) << 30);
                    space.map(&mut mem, at, Mapping { pfn: Pfn(1 << 18), size, flags: FLAGS }).unwrap();
                }
                for (position, &size) in order.iter().enumerate() {
                    let at = ((3 + size as u64) << 30) + size.bytes() - 1;
                    let list = walk(&space, &mem, at >> FRAME_SHIFT);
                    let expected = match probes {
                        SizeProbes::Parallel => (order.len(), 1),
                        SizeProbes::Serial => (position + 1, position + 1),
                    };
                    assert_eq!(refs_and_steps(&list), expected, "{:?} {order:?} {size:?}", K::KIND);
                    assert!(matches!(list.leaf, Leaf::Present(mapping) if mapping.size == size));
                    assert_eq!(u32::from(list.refs().last().unwrap().shift), size.shift());
                }
                let missing = walk(&space, &mem, 1 << 30);
                let steps = if probes == SizeProbes::Serial { order.len() } else { 1 };
                assert_eq!(refs_and_steps(&missing), (order.len(), steps), "{:?} {order:?}", K::KIND);
                // A page of 4 KiB is in the GiB, so nothing larger than 2 MiB fits there.
                let beside = walk(&space, &mem, (3 << 18) + 512);
                assert_eq!((missing.leaf, beside.leaf), (Leaf::nothing(order.len() as u8), Leaf::nothing(2)));
                assert_eq!(walk(&space, &mem, (3 << 18) + 1).leaf, Leaf::nothing(1));
            }
        }
    }
    check::<Chained>();
    check::<Open>();
    check::<Clustered>();
    check::<Compact>();
}

/// Ten processes at one address, alternately with a page of 2 MiB and of 4 KiB, all in the same places of the tables.
#[test]
fn collisions_of_each_size_add_to_serial_walks_and_end_parallel_ones_at_the_hit() {
    for tables in [SizeTables::Separate, SizeTables::Shared] {
        for probes in [SizeProbes::Serial, SizeProbes::Parallel] {
            let sizes = sized(&[SIZE_2M, PageSize::Size4K], tables, probes);
            let (mut shared, mut mem) = table::<Compact>(&HashedConfig { hash: HashFunction::Modulo, ..sizes });
            for process in 0..10 {
                let mut space = shared.add_space::<Compact>().unwrap();
                let size = if process % 2 == 0 { SIZE_2M } else { PageSize::Size4K };
                space.map(&mut mem, va(0x1000), Mapping { pfn: Pfn(512), size, flags: FLAGS }).unwrap();
                let before = process / 2;
                // What a search finds of the other size: all slots so far, and an empty one.
                let others = before + usize::from(size == PageSize::Size4K) + 1;
                let expected = match (probes, size) {
                    (SizeProbes::Parallel, _) => (before + 1 + others.min(before + 1), before + 1),
                    (SizeProbes::Serial, SIZE_2M) => (before + 1, before + 1),
                    (SizeProbes::Serial, _) => (others + before + 1, others + before + 1),
                };
                assert_eq!(refs_and_steps(&walk(&space, &mem, 0x1000)), expected, "{tables:?} {probes:?} {process}");
            }
            let nobody = shared.add_space::<Compact>().unwrap();
            let steps = if probes == SizeProbes::Serial { 12 } else { 6 };
            assert_eq!(refs_and_steps(&walk(&nobody, &mem, 0x1000)), (12, steps));
        }
    }
}

#[test]
fn memory_is_divided_between_the_tables_of_the_sizes() {
    let slots = |config: &HashedConfig| {
        let (shared, _) = table::<Open>(config);
        shared.tables.iter().map(Geometry::slots).collect::<Vec<_>>()
    };
    let sizes = sized(&[PageSize::Size4K, SIZE_2M], SizeTables::Separate, SizeProbes::Serial);
    // 1 MiB has 65,536 slots of 16 bytes: 512 of 513 parts, and at least a frame.
    assert_eq!(slots(&sizes), [65408, 256]);
    let divided = SizesConfig { shares: vec![0.75, 0.25], ..sizes.sizes.clone() };
    assert_eq!(slots(&HashedConfig { sizes: divided, ..sizes.clone() }), [49152, 16384]);
    let shared = SizesConfig { tables: SizeTables::Shared, ..sizes.sizes.clone() };
    assert_eq!(slots(&HashedConfig { sizes: shared, ..sizes.clone() }), [65536]);
    // The lines of 4,096 pages of 4 KiB lie together, 32 KiB each. Others are found one by one.
    let large_clusters = HashedConfig { cluster: Some(4096), ..sizes.clone() };
    let (compact, _) = table::<Compact>(&large_clusters);
    assert_eq!(compact.tables.iter().map(Geometry::homes).collect::<Vec<_>>(), [31, 64]);
    // 16 GiB by the load factor of 1/4: 4 slots per page of each size.
    let by_load = HashedConfig { table_bytes: None, ..sizes };
    let all = f64::from(4 << 22);
    let expected = [512.0, 1.0].map(|part| (all * part / 513.0).ceil() as u64);
    assert_eq!(slots(&by_load), expected);
}

#[test]
fn hardware_that_sees_heads_only_finds_what_the_kernel_uncovers() {
    let config = HashedConfig { hash: HashFunction::Modulo, collisions: Collisions::Kernel, ..config(None, 1 << 16) };
    let (mut shared, mut mem) = table::<Chained>(&config);
    let mapping = |pfn| Mapping { pfn: Pfn(pfn), size: PageSize::Size4K, flags: FLAGS };
    let mut spaces: Vec<Hashed<Chained>> = (0..4).map(|_| shared.add_space().unwrap()).collect();
    for (n, space) in spaces.iter_mut().enumerate() {
        space.map(&mut mem, va(8), mapping(n as u64)).unwrap();
    }
    let by_hardware = |space: &Hashed<Chained>, mem: &PhysMem| {
        let mut list = WalkList::new();
        space.walk_by_hardware(mem, va(8), &mut list);
        assert_eq!(list.refs().len(), 1, "one slot, whatever the chain");
        list.leaf
    };
    // The number of each space in the chain, after an exchange with the head.
    for (head, chain) in [(0, [1, 2, 3, 4]), (2, [3, 2, 1, 4]), (3, [3, 2, 4, 1])] {
        if let Some(lines) = spaces[head].hidden_lines(&mem, va(8)) {
            assert_eq!(walk(&spaces[head], &mem, 8).refs().last().unwrap().addr, lines[1].align_down(64));
            spaces[head].uncover(&mut mem, va(8)).unwrap();
        }
        for (n, space) in spaces.iter().enumerate() {
            assert_eq!(space.hidden_lines(&mem, va(8)).is_none(), n == head);
            let leaf = if n == head { Leaf::Present(mapping(n as u64)) } else { Leaf::nothing(1) };
            assert_eq!(by_hardware(space, &mem), leaf, "{head} {n}");
            let list = walk(space, &mem, 8);
            assert_eq!(list.leaf, Leaf::Present(mapping(n as u64)));
            assert!(list.refs().len() <= chain[n], "two slots of the chain table may be in one line");
        }
    }
    assert_eq!(by_hardware(&shared.add_space().unwrap(), &mem), Leaf::nothing(1));
}
