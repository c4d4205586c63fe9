//! Compares the table with a map while it grows and shrinks, and with the theory of cuckoo hashing.

use std::collections::BTreeMap;

use pagelab_trace::{case_seed, cases};

use super::*;
use pagelab_base::addr::{FRAME_BYTES, FRAME_SHIFT};
use pagelab_base::rng::Rng;

const FLAGS: PteFlags = PteFlags { writable: true, user: true, executable: false, accessed: true, dirty: false };

/// A table with its memory, and an allocator that never reuses a freed block.
struct Lab {
    table: ElasticCuckoo,
    mem: PhysMem,
    next: u64,
}

impl Lab {
    fn new(config: &ElasticCuckooConfig) -> Self {
        let (mut mem, mut next) = (PhysMem::default(), 8);
        let table = ElasticCuckoo::create(
            config,
            &mut CuckooCounters::default(),
            &mut mem,
            &mut |order| Some(take(&mut next, order)),
            None,
        )
        .unwrap();
        Self { table, mem, next }
    }

    fn walk(&self, vpn: u64) -> WalkList {
        let mut list = WalkList::new();
        self.table.walk(&self.mem, VirtAddr(vpn << FRAME_SHIFT | 0x123), &mut list);
        list
    }

    fn grow(&mut self) {
        while self.table.missing_tables(&self.mem, VirtAddr(0), PageSize::Size4K) > 0 {
            let order = self.table.tables[0].wanted_order().expect("blocks are missing");
            let block = TableBlock { first: take(&mut self.next, order), order };
            block.create(&mut self.mem);
            self.table.link_table(&mut self.mem, VirtAddr(0), PageSize::Size4K, block).expect("the block is wanted");
        }
    }

    fn map(&mut self, vpn: u64, pfn: u64) -> PhysAddr {
        self.grow();
        let mapped = self.table.map(&mut self.mem, va(vpn), mapping(pfn)).unwrap_or_else(|NoRoom| {
            panic!("no room at {} of {}", self.table.tables[0].used(), self.table.tables[0].lines())
        });
        self.table.tables[0].work.lines.clear();
        mapped
    }
}

fn take(next: &mut u64, order: u32) -> Pfn {
    let first = next.next_multiple_of(1 << order);
    *next = first + (1 << order);
    Pfn(first)
}

fn va(vpn: u64) -> VirtAddr {
    VirtAddr::from_page_number(vpn)
}

fn mapping(pfn: u64) -> Mapping {
    Mapping { pfn: Pfn(pfn), size: PageSize::Size4K, flags: FLAGS }
}

#[test]
fn a_table_agrees_with_a_map_after_millions_of_operations() {
    for (seed, config) in [
        (1, ElasticCuckooConfig { way_entries: 64, ..ElasticCuckooConfig::default() }),
        (2, ElasticCuckooConfig { max_load: 0.7, min_load: 0.17, rehashes_per_insert: 1, ..Default::default() }),
        (3, ElasticCuckooConfig { way_entries: 64, max_displacements: 12, ..Default::default() }),
    ] {
        let mut lab = Lab::new(&config);
        let mut rng = Rng::new(case_seed(seed), "cuckoo");
        let mut oracle: BTreeMap<u64, Mapping> = BTreeMap::new();
        for operation in 0..cases(1_000_000_u64) {
            // Alternate growth and shrinking, so that tables of many sizes are created and freed.
            let growing = operation / 100_000 % 2 == 0;
            let vpn = rng.below(6_000) * [1, 1, 8][rng.below(3) as usize] + [0, 0x7_f000_0000][rng.below(2) as usize];
            let flags = PteFlags { writable: rng.below(2) == 0, executable: rng.below(2) == 0, ..FLAGS };
            let new = Mapping { flags, ..mapping(rng.next_u64() >> 24) };
            let known = oracle.get(&vpn).copied();
            let list = lab.walk(vpn);
            assert_eq!(list.leaf, known.map_or(Leaf::nothing(1), Leaf::Present), "{operation}");
            assert!(list.refs().len() == WAYS && list.refs().iter().all(|r| r.step == 0));
            let last = list.refs()[WAYS - 1].addr;
            match (known, rng.below(8)) {
                (Some(_), choice) if choice < if growing { 1 } else { 6 } => {
                    assert_eq!(lab.table.unmap(&mut lab.mem, va(vpn)), last);
                    oracle.remove(&vpn);
                }
                (Some(_), 6) => {
                    assert_eq!(lab.table.replace(&mut lab.mem, va(vpn), new), last);
                    oracle.insert(vpn, new);
                }
                (Some(old), _) => {
                    lab.table.set_flags(&mut lab.mem, va(vpn), flags);
                    oracle.insert(vpn, Mapping { flags, ..old });
                }
                (None, choice) if growing || choice == 0 => {
                    lab.map(vpn, new.pfn.0);
                    lab.table.replace(&mut lab.mem, va(vpn), new);
                    oracle.insert(vpn, new);
                }
                (None, _) => {}
            }
            assert_eq!(lab.table.peek(&lab.mem, va(vpn)).map(|(_, pfn)| pfn), oracle.get(&vpn).map(|m| m.pfn));
            if operation % 50_000 == 49_999 {
                let mut listed = Vec::new();
                lab.table.mapped(&lab.mem, VirtAddr(0), VirtAddr(1 << 48), usize::MAX, &mut listed);
                let known = oracle.iter().map(|(vpn, mapping)| (*vpn, *mapping));
                assert!(listed.iter().map(|page| (page.va.page_number(), page.mapping)).eq(known), "{operation}");
                let mut lines: Vec<u64> = oracle.keys().map(|vpn| vpn >> 3).collect();
                lines.dedup();
                assert_eq!(lab.table.tables[0].used(), lines.len() as u64, "{operation}");
                assert!(lab.table.tables[0].used() as f64 <= 0.75 * lab.table.tables[0].lines() as f64);
            }
        }
        let CuckooCounters { upsizes, downsizes, displaced, rehashed, .. } = lab.table.tables[0].counters;
        assert!(upsizes >= 9 && downsizes >= 5 && displaced > 10_000 && rehashed > 10_000, "{upsizes} {downsizes}");
        oracle.keys().for_each(|&vpn| _ = lab.table.unmap(&mut lab.mem, va(vpn)));
        lab.table.destroy(&mut CuckooCounters::default(), &mut lab.mem, &mut |_| {});
        assert_eq!(lab.mem.frames_in_use(), 0, "all blocks are given back");
    }
}

#[test]
fn a_table_doubles_at_its_threshold_and_has_moved_when_the_load_is_back_there() {
    let config = ElasticCuckooConfig { min_load: 0.0, rehashes_per_insert: 1, ..ElasticCuckooConfig::default() };
    let mut lab = Lab::new(&config);
    let lines = 3 * 128;
    let threshold = (0.6 * f64::from(lines)) as u64;
    (0..threshold).for_each(|line| _ = lab.map(line * 8, 1));
    assert_eq!(
        (lab.table.missing_tables(&lab.mem, va(0), PageSize::Size4K), lab.table.tables[0].wanted_order()),
        (3, Some(2)),
        "the next line calls for it"
    );
    assert_eq!((lab.table.tables[0].lines(), lab.table.tables[0].counters.rehashed), (3 * 128, 0));
    for line in threshold..2 * threshold {
        lab.map(line * 8, 1);
        assert_eq!(lab.table.tables[0].lines(), 6 * 128);
    }
    // Each insertion has moved a line; some lines inserted since then went to the old table and moved too.
    assert!(lab.table.tables[0].counters.rehashed >= threshold * 3 / 4, "{:?}", lab.table.tables[0].counters);
    assert_eq!(lab.table.tables[0].counters.upsizes, 1);
    lab.map(2 * threshold * 8, 1);
    (0..=2 * threshold).for_each(|line| assert_eq!(lab.walk(line * 8).leaf, Leaf::Present(mapping(1)), "{line}"));
}

/// With one alternative place out of three, at a load of a an insertion is expected to try 1/(1 - a) lines, the last of
/// which is empty; a random walk that returns to full places does slightly worse.
#[test]
fn insertions_displace_few_lines_at_the_papers_threshold() {
    let mut lab = Lab::new(&ElasticCuckooConfig { way_entries: 65536, ..ElasticCuckooConfig::default() });
    let lines = lab.table.tables[0].lines();
    let mut rng = Rng::new(9, "lines");
    let mut insert_to = |lab: &mut Lab, load: f64| {
        let before = lab.table.tables[0].counters;
        while (lab.table.tables[0].used() as f64) < load * lines as f64 {
            let vpn = rng.below(1 << 33) << 3;
            if lab.walk(vpn).leaf == (Leaf::nothing(1)) {
                lab.map(vpn, 1);
            }
        }
        let after = lab.table.tables[0].counters;
        (after.displaced - before.displaced) as f64 / (after.inserted - before.inserted) as f64
    };
    for (load, at_least, at_most) in [(0.1, 0.04, 0.07), (0.3, 0.2, 0.3), (0.59, 0.7, 1.1)] {
        let displaced = insert_to(&mut lab, load);
        assert!((at_least..at_most).contains(&displaced), "{displaced} at {load}");
    }
    assert_eq!(lab.table.tables[0].counters.upsizes, 0);
}

#[test]
fn an_insertion_without_room_leaves_all_as_it_was() {
    let config = ElasticCuckooConfig { way_entries: 64, max_displacements: 16, ..ElasticCuckooConfig::default() };
    let mut lab = Lab::new(&config);
    let mut mapped = Vec::new();
    // Past the threshold, without a free block for another table.
    for vpn in (0..).map(|n| n * 8) {
        match lab.table.map(&mut lab.mem, va(vpn), mapping(vpn + 1)) {
            Ok(_) => mapped.push(vpn),
            Err(NoRoom) => break,
        }
    }
    assert!((150..=192).contains(&mapped.len()), "{} of 192 lines", mapped.len());
    mapped.iter().for_each(|&vpn| assert_eq!(lab.walk(vpn).leaf, Leaf::Present(mapping(vpn + 1))));
    assert_eq!(lab.table.tables[0].used(), mapped.len() as u64);
    assert_eq!(lab.mem.frames_in_use() as u64 * FRAME_BYTES, 3 * 64 * 64);
}

#[test]
fn the_entry_of_a_new_page_is_where_a_walk_says_that_it_will_be() {
    let mut lab = Lab::new(&ElasticCuckooConfig::default());
    for vpn in (0..100).map(|n| n * 9) {
        let predicted = lab.walk(vpn).refs()[WAYS - 1].addr;
        assert_eq!(lab.map(vpn, 7), predicted, "{vpn}");
    }
}

#[test]
fn a_walk_reads_three_lines_per_size_at_once_or_one_size_after_another() {
    let [small, large, giant] = PageSize::ALL;
    for order in [vec![small, large], vec![large, small], vec![giant, small, large]] {
        for tables in [SizeTables::Separate, SizeTables::Shared] {
            for probes in [SizeProbes::Parallel, SizeProbes::Serial] {
                let sizes = SizesConfig { order: order.clone(), tables, probes: Some(probes), shares: Vec::new() };
                let mut lab = Lab::new(&ElasticCuckooConfig { sizes, ..Default::default() });
                assert_eq!(lab.table.tables.len(), if tables == SizeTables::Shared { 1 } else { order.len() });
                for &size in &order {
                    let at = VirtAddr((3 + size as u64) << 30);
                    let mapping = Mapping { pfn: Pfn(1 << 18), size, flags: FLAGS };
                    lab.table.map(&mut lab.mem, at, mapping).unwrap();
                }
                let counts = |list: &WalkList| {
                    (list.refs().len(), list.refs().chunk_by(|one, next| one.step == next.step).count())
                };
                for (position, &size) in order.iter().enumerate() {
                    let list = lab.walk((((3 + size as u64) << 30) + size.bytes() - 1) >> FRAME_SHIFT);
                    let expected = match probes {
                        SizeProbes::Parallel => (WAYS * order.len(), 1),
                        SizeProbes::Serial => (WAYS * (position + 1), position + 1),
                    };
                    assert_eq!(counts(&list), expected, "{order:?} {size:?}");
                    assert!(matches!(list.leaf, Leaf::Present(mapping) if mapping.size == size));
                }
                let missing = lab.walk(1 << 30);
                let steps = if probes == SizeProbes::Serial { order.len() } else { 1 };
                assert_eq!(counts(&missing), (WAYS * order.len(), steps));
                assert_eq!(lab.walk((3 << 18) + 512).leaf, Leaf::nothing(2));
            }
        }
    }
}
