//! Closed forms, sequences computed by hand, and properties of random requests over many geometries.

use pagelab_base::cycles::Cycles;
use pagelab_base::ids::CoreId;
use pagelab_trace::quantity::Bytes;
use pagelab_trace::{case_seed, cases};

use super::test_support::sandy_bridge;
use super::*;

const DATA: Requester = Requester::Data;

fn build(config: &CacheConfig, cores: usize) -> Hierarchy {
    Hierarchy::new(config, cores, 11).unwrap()
}

/// L1 of 1 set × 2 ways, L2 of 1 × 4, L3 of 1 × 8: small enough to follow by hand.
fn tiny(inclusion: Inclusion) -> CacheConfig {
    let mut config = sandy_bridge();
    (config.l1.size_bytes, config.l1.ways) = (Bytes(2 * 64), 2);
    let l2 = config.l2.as_mut().unwrap();
    (l2.size_bytes, l2.ways) = (Bytes(4 * 64), 4);
    let l3 = config.l3.as_mut().unwrap();
    (l3.size_bytes, l3.ways, l3.inclusion) = (Bytes(8 * 64), 8, inclusion);
    config
}

fn read(caches: &mut Hierarchy, core: usize, line: u64) -> (HitLevel, u32) {
    let outcome = caches.access(CoreId(core), LineAddr(line), false, DATA);
    (outcome.served, outcome.cycles)
}

fn write(caches: &mut Hierarchy, core: usize, line: u64) -> (HitLevel, u32) {
    let outcome = caches.access(CoreId(core), LineAddr(line), true, DATA);
    (outcome.served, outcome.cycles)
}

#[test]
fn a_loop_is_served_by_the_first_level_that_it_fits() {
    let config = sandy_bridge();
    let lines_of = |bytes: u64| bytes / 64;
    let sizes =
        [(32 << 10, HitLevel::L1), (256 << 10, HitLevel::L2), (15 << 20, HitLevel::L3), (30 << 20, HitLevel::Dram)];
    for (bytes, level) in sizes {
        let mut caches = build(&config, 1);
        for line in 0..lines_of(bytes) {
            assert_eq!(read(&mut caches, 0, line), (HitLevel::Dram, 100));
        }
        for line in 0..lines_of(bytes) {
            assert_eq!(read(&mut caches, 0, line).0, level, "line {line} of {bytes} bytes");
        }
    }
    // One line more than a set has ways: LRU evicts every line just before its next use.
    let mut caches = build(&config, 1);
    let conflicting: Vec<u64> = (0..9).map(|i| i * 64).collect();
    for round in 0..4 {
        for &line in &conflicting {
            let expected = if round == 0 { HitLevel::Dram } else { HitLevel::L2 };
            assert_eq!(read(&mut caches, 0, line).0, expected);
        }
    }
}

#[test]
fn lru_hits_exactly_below_the_stack_distance() {
    for ways in [1_usize, 2, 3, 4, 6, 8, 12, 16, 20, 30, 64] {
        let mut config = sandy_bridge();
        (config.l2, config.l3) = (None, None);
        (config.l1.size_bytes, config.l1.ways) = (Bytes(ways as u64 * 64 * 3), ways as u32);
        let mut caches = build(&config, 1);
        let mut stacks = vec![Vec::<u64>::new(); 3];
        let mut rng = Rng::new(1, "stack");
        for _ in 0..20_000 {
            let line = rng.below(ways as u64 * 5 + 3);
            let stack = &mut stacks[(line % 3) as usize];
            let distance = stack.iter().rev().position(|&other| other == line);
            let expected = if distance.is_some_and(|d| d < ways) { HitLevel::L1 } else { HitLevel::Dram };
            assert_eq!(
                caches.access(CoreId(0), LineAddr(line), rng.below(2) == 0, DATA).served,
                expected,
                "{ways} ways"
            );
            stack.retain(|&other| other != line);
            stack.push(line);
        }
    }
}

#[test]
fn policies_evict_the_lines_computed_by_hand() {
    let served = |policy, lines: &[u64]| {
        let mut config = sandy_bridge();
        (config.l2, config.l3) = (None, None);
        (config.l1.size_bytes, config.l1.ways, config.l1.policy) = (Bytes(4 * 64), 4, policy);
        let mut caches = build(&config, 1);
        lines.iter().map(|&line| read(&mut caches, 0, line).0 == HitLevel::L1).collect::<Vec<_>>()
    };
    // Fill 0 to 3, hit 0, then 4 replaces: LRU 1; the tree points right, then left within the pair 2, 3: 2.
    let (hit, miss) = (true, false);
    let start = [miss, miss, miss, miss, hit, miss];
    let after = |tail: &[bool]| [&start[..], tail].concat();
    assert_eq!(served(ReplacementPolicy::Lru, &[0, 1, 2, 3, 0, 4, 2, 1]), after(&[hit, miss]));
    assert_eq!(served(ReplacementPolicy::TreePlru, &[0, 1, 2, 3, 0, 4, 1, 2]), after(&[hit, miss]));
    // SRRIP: all predict 2, the hit makes line 0 predict 0; ageing by one makes 1 (lowest way) the victim, 0 predict 1,
    // 2 and 3 predict 3. So 5 replaces 2, 6 replaces 3, and 0 is still there.
    assert_eq!(
        served(ReplacementPolicy::Srrip, &[0, 1, 2, 3, 0, 4, 5, 6, 0, 4, 1]),
        after(&[miss, miss, hit, hit, miss])
    );
    // Random replacement draws from the level's own stream, once per victim.
    let mut draws = Rng::new(11, "cache.l1.0");
    let mut ways = [0, 1, 2, 3];
    for line in 4..40 {
        ways[draws.below(4) as usize] = line;
    }
    let mut sequence: Vec<u64> = (0..40).collect();
    sequence.extend(ways);
    assert_eq!(served(ReplacementPolicy::Random, &sequence)[40..], [hit; 4]);
}

#[test]
fn an_inclusive_l3_takes_private_copies_along() {
    let mut caches = build(&tiny(Inclusion::Inclusive), 1);
    write(&mut caches, 0, 0);
    for line in 1..8 {
        read(&mut caches, 0, line);
        // Keeps line 0 in the L1 while the L3, which does not see these hits, ages it.
        assert_eq!(read(&mut caches, 0, 0).0, HitLevel::L1);
    }
    assert_eq!(read(&mut caches, 0, 8), (HitLevel::Dram, 100));
    let stats = caches.stats();
    assert_eq!((stats.cores[0].back_invalidations, stats.shared.l3_writebacks, stats.shared.dram_writes), (1, 1, 1));
    assert_eq!(stats.cores[0].l1_writebacks, 0);
    assert_eq!(read(&mut caches, 0, 0), (HitLevel::Dram, 100));

    let mut caches = build(&tiny(Inclusion::NonInclusive), 1);
    write(&mut caches, 0, 0);
    for line in 1..9 {
        read(&mut caches, 0, line);
        assert_eq!(read(&mut caches, 0, 0).0, HitLevel::L1);
    }
    assert_eq!(caches.stats().cores[0].back_invalidations, 0);
}

#[test]
fn a_hit_in_the_l3_makes_the_line_recent_there() {
    let mut caches = build(&CacheConfig { l2: None, ..tiny(Inclusion::NonInclusive) }, 1);
    for line in 0..8 {
        assert_eq!(read(&mut caches, 0, line).0, HitLevel::Dram);
    }
    assert_eq!(read(&mut caches, 0, 0).0, HitLevel::L3);
    // 8 and 9 replace 1 and 2, not 0, and evict 0 from the L1.
    assert_eq!(read(&mut caches, 0, 8).0, HitLevel::Dram);
    assert_eq!(read(&mut caches, 0, 9).0, HitLevel::Dram);
    assert_eq!(read(&mut caches, 0, 0).0, HitLevel::L3);
    assert_eq!(read(&mut caches, 0, 1).0, HitLevel::Dram);
}

#[test]
fn modified_lines_go_down_one_level_at_a_time() {
    let mut caches = build(&tiny(Inclusion::NonInclusive), 1);
    write(&mut caches, 0, 0);
    // Two other lines evict 0 from the L1, three more from the L2 (its write-back made it the most recent there), and
    // more from the L3.
    let at = |caches: &Hierarchy| {
        let stats = caches.stats();
        (stats.cores[0].l1_writebacks, stats.cores[0].l2_writebacks, stats.shared.dram_writes)
    };
    read(&mut caches, 0, 1);
    assert_eq!(at(&caches), (0, 0, 0));
    read(&mut caches, 0, 2);
    assert_eq!(at(&caches), (1, 0, 0));
    for line in 3..6 {
        read(&mut caches, 0, line);
    }
    assert_eq!(at(&caches), (1, 0, 0));
    read(&mut caches, 0, 6);
    assert_eq!(at(&caches), (1, 1, 0));
    for line in 7..14 {
        read(&mut caches, 0, line);
    }
    assert_eq!(at(&caches), (1, 1, 0));
    read(&mut caches, 0, 14);
    assert_eq!(at(&caches), (1, 1, 1));
    assert_eq!(caches.stats().shared.l3_writebacks, 1);
}

#[test]
fn two_cores_exchange_a_line() {
    for inclusion in [Inclusion::Inclusive, Inclusion::NonInclusive] {
        let mut config = sandy_bridge();
        config.l3.as_mut().unwrap().inclusion = inclusion;
        let mut caches = build(&config, 2);
        assert_eq!(write(&mut caches, 0, 7), (HitLevel::Dram, 100));
        assert_eq!(write(&mut caches, 1, 7), (HitLevel::Remote, 60));
        assert_eq!(write(&mut caches, 0, 7), (HitLevel::Remote, 60));
        assert_eq!(write(&mut caches, 0, 7), (HitLevel::L1, 4));
        // A read makes both copies shared and writes the data back to the L3.
        assert_eq!(read(&mut caches, 1, 7), (HitLevel::Remote, 60));
        assert_eq!(read(&mut caches, 0, 7), (HitLevel::L1, 4));
        assert_eq!(read(&mut caches, 1, 7), (HitLevel::L1, 4));
        // Then each first write is an upgrade.
        assert_eq!(write(&mut caches, 1, 7), (HitLevel::L1, 4 + 43));
        assert_eq!(write(&mut caches, 1, 7), (HitLevel::L1, 4));
        assert_eq!(caches.access_locked(CoreId(0), LineAddr(7), DATA).cycles, 60 + 18);
        assert_eq!(caches.access_locked(CoreId(0), LineAddr(7), DATA).cycles, 4 + 18);
        let stats = caches.stats();
        assert_eq!((stats.cores[0].invalidations, stats.cores[1].invalidations), (2, 2));
        assert_eq!((stats.cores[0].downgrades, stats.cores[0].downgrade_writebacks), (1, 1));
        assert_eq!((stats.cores[0].upgrades, stats.cores[1].upgrades), (0, 1));
        assert_eq!(stats.shared.dram_writes, 0);

        // A clean line in a single core's cache is served by that core; a shared one by the L3.
        assert_eq!(read(&mut caches, 0, 9), (HitLevel::Dram, 100));
        assert_eq!(read(&mut caches, 1, 9), (HitLevel::Remote, 60));
        let mut caches = build(&config, 3);
        read(&mut caches, 0, 9);
        read(&mut caches, 1, 9);
        assert_eq!(read(&mut caches, 2, 9), (HitLevel::L3, 30));
        assert_eq!(write(&mut caches, 0, 9), (HitLevel::L1, 4 + 43));
        assert_eq!(caches.stats().total().invalidations, 2);
        // A write that misses and finds clean shared copies costs only its fetch.
        read(&mut caches, 1, 9);
        assert_eq!(write(&mut caches, 2, 9), (HitLevel::L3, 30));
        caches.assert_coherent();
    }
}

#[test]
fn upgrades_in_the_l2_add_to_its_latency() {
    let mut caches = build(&sandy_bridge(), 2);
    read(&mut caches, 0, 0);
    read(&mut caches, 1, 0);
    // Eight lines of the same L1 set, of different L2 sets.
    for i in 1..9 {
        read(&mut caches, 1, i * 64);
    }
    assert_eq!(write(&mut caches, 1, 0), (HitLevel::L2, 12 + 43));
    assert_eq!(caches.stats().cores[0].invalidations, 1);
}

#[test]
fn walks_that_enter_at_the_l2_see_what_the_l1_wrote() {
    let mut config = sandy_bridge();
    config.walker_entry = WalkerEntry::L2;
    let mut caches = build(&config, 1);
    let walk =
        |caches: &mut Hierarchy, line, write| caches.access(CoreId(0), LineAddr(line), write, Requester::Walk).served;
    assert_eq!(walk(&mut caches, 1, false), HitLevel::Dram);
    assert_eq!(walk(&mut caches, 1, false), HitLevel::L2);
    // The walk put nothing into the L1.
    assert_eq!(read(&mut caches, 0, 1).0, HitLevel::L2);
    assert_eq!(write(&mut caches, 0, 1).0, HitLevel::L1);
    assert_eq!(walk(&mut caches, 1, false), HitLevel::L2);
    assert_eq!(caches.stats().cores[0].l1_writebacks, 1);
    assert_eq!(read(&mut caches, 0, 1).0, HitLevel::L1);
    // A walk's write (an accessed bit) invalidates the L1's copy.
    assert_eq!(walk(&mut caches, 1, true), HitLevel::L2);
    assert_eq!(caches.stats().cores[0].l1_writebacks, 1);
    assert_eq!(read(&mut caches, 0, 1).0, HitLevel::L2);
    assert_eq!(caches.stats().cores[0].requests(Requester::Walk), 4);

    // A line that the L1 contains and the L2 has evicted.
    let mut config = tiny(Inclusion::Inclusive);
    config.walker_entry = WalkerEntry::L2;
    let mut caches = build(&config, 1);
    for line in [0, 1, 0, 2, 0, 3, 0, 4, 0] {
        read(&mut caches, 0, line);
    }
    assert_eq!(walk(&mut caches, 0, false), HitLevel::L2);
}

#[test]
fn bulk_writes_cost_ownership_and_change_what_writes_change() {
    let mut caches = build(&sandy_bridge(), 1);
    // 64 lines in no cache: 64 × 30 / 10; then in the L1: 64 × 4 / 10, rounded up.
    assert_eq!(caches.zero_lines(CoreId(0), LineAddr(640), 64, Requester::Kernel), Cycles(192));
    assert_eq!(caches.zero_lines(CoreId(0), LineAddr(640), 64, Requester::Kernel), Cycles(26));
    assert_eq!(caches.stats().cores[0].bulk_written, [64, 0, 0, 0, 64]);
    assert_eq!(caches.stats().total().requests(Requester::Kernel), 0);
    assert_eq!(read(&mut caches, 0, 640 + 63), (HitLevel::L1, 4));

    let mut caches = build(&sandy_bridge(), 2);
    read(&mut caches, 0, 0);
    read(&mut caches, 1, 0);
    write(&mut caches, 1, 1);
    // Line 0 is upgraded (4 + 43), 1 is remote (60), 2 is in no cache (30).
    assert_eq!(
        caches.zero_lines(CoreId(0), LineAddr(0), 3, Requester::Kernel),
        Cycles((47_u64 + 60 + 30).div_ceil(10))
    );

    for inclusion in [Inclusion::Inclusive, Inclusion::NonInclusive] {
        let (mut bulk, mut single) = (build(&tiny(inclusion), 1), build(&tiny(inclusion), 1));
        let mut rng = Rng::new(2, "bulk");
        for _ in 0..2000 {
            let (first, lines) = (rng.below(20), rng.below(5));
            bulk.zero_lines(CoreId(0), LineAddr(first), lines, DATA);
            (first..first + lines).for_each(|line| _ = write(&mut single, 0, line));
            let line = rng.below(24);
            assert_eq!(read(&mut bulk, 0, line), read(&mut single, 0, line));
        }
        assert_eq!(bulk.stats().shared, single.stats().shared);
    }
}

#[test]
fn device_writes_leave_no_copy_and_write_nothing_back() {
    for inclusion in [Inclusion::Inclusive, Inclusion::NonInclusive] {
        let mut config = sandy_bridge();
        config.l3.as_mut().unwrap().inclusion = inclusion;
        let mut caches = build(&config, 2);
        write(&mut caches, 0, 100);
        read(&mut caches, 1, 101);
        caches.dma_write(LineAddr(96), 64);
        caches.invalidate_line(LineAddr(100));
        assert_eq!(caches.stats().shared, SharedCacheStats { dma_invalidations: 2, ..Default::default() });
        assert_eq!(read(&mut caches, 0, 100), (HitLevel::Dram, 100));
        assert_eq!(read(&mut caches, 0, 101), (HitLevel::Dram, 100));
        caches.assert_coherent();
    }
}

#[test]
fn device_writes_reach_lines_that_a_non_inclusive_l3_has_lost() {
    let mut caches = build(&tiny(Inclusion::NonInclusive), 1);
    for line in 0..20 {
        read(&mut caches, 0, line);
        read(&mut caches, 0, 0);
    }
    assert_eq!(read(&mut caches, 0, 0).0, HitLevel::L1);
    caches.dma_write(LineAddr(0), 1);
    assert_eq!(read(&mut caches, 0, 0).0, HitLevel::Dram);
}

/// Geometries that together use every policy, odd numbers of ways and sets, missing levels, both inclusions and the
/// specialised code of common geometries.
fn geometries() -> Vec<CacheConfig> {
    const SETS: [[u64; 3]; 8] =
        [[4, 8, 12], [2, 2, 3], [1, 4, 16], [2, 4, 7], [3, 5, 7], [4, 8, 12], [1, 1, 1], [3, 2, 5]];
    let mut configs = Vec::new();
    let policies =
        [ReplacementPolicy::Lru, ReplacementPolicy::TreePlru, ReplacementPolicy::Random, ReplacementPolicy::Srrip];
    let shapes = [[8, 8, 20], [8, 8, 16], [8, 4, 16], [8, 4, 12], [12, 16, 12], [2, 3, 5], [1, 1, 1], [7, 64, 33]];
    for (i, (policy, [l1, l2, l3])) in policies.iter().flat_map(|&p| shapes.map(|s| (p, s))).enumerate() {
        let mut config = sandy_bridge();
        let sets = SETS[i % SETS.len()];
        config.l1.ways = l1;
        config.l1.size_bytes = Bytes(u64::from(l1) * sets[0] * 64);
        config.l1.policy = policy;
        let private = config.l2.as_mut().unwrap();
        (private.ways, private.policy) = (l2, policy);
        private.size_bytes = Bytes(u64::from(l2) * sets[1] * 64);
        let shared = config.l3.as_mut().unwrap();
        (shared.ways, shared.policy) = (l3, policy);
        shared.size_bytes = Bytes(u64::from(l3) * sets[2] * 64);
        for inclusion in [Inclusion::Inclusive, Inclusion::NonInclusive] {
            config.l3.as_mut().unwrap().inclusion = inclusion;
            configs.push(config.clone());
            configs.push(CacheConfig { walker_entry: WalkerEntry::L2, ..config.clone() });
            configs.push(CacheConfig { l2: None, ..config.clone() });
        }
        configs.push(CacheConfig { l3: None, ..config.clone() });
        configs.push(CacheConfig { l2: None, l3: None, ..config });
    }
    configs
}

/// Total lines of all levels of one core.
fn capacity(config: &CacheConfig) -> u64 {
    config.levels().map(|level| level.size.0 / 64).sum()
}

/// A request of a random kind on a line drawn from `rng`; returns its cost.
fn random_request(caches: &mut Hierarchy, core: usize, lines: u64, rng: &mut Rng) -> u64 {
    let line = LineAddr(rng.below(lines));
    match rng.below(100) {
        0..40 => u64::from(caches.access(CoreId(core), line, false, Requester::Data).cycles),
        40..65 => u64::from(caches.access(CoreId(core), line, true, Requester::Data).cycles),
        65..80 => u64::from(caches.access(CoreId(core), line, false, Requester::Walk).cycles),
        80..85 => u64::from(caches.access(CoreId(core), line, true, Requester::Walk).cycles),
        85..95 => u64::from(caches.access_locked(CoreId(core), line, Requester::Kernel).cycles),
        95..98 => caches.zero_lines(CoreId(core), line, rng.below(8), Requester::Kernel).0,
        _ => {
            caches.dma_write(line, rng.below(4));
            0
        }
    }
}

#[test]
fn random_requests_keep_the_caches_coherent() {
    for (i, config) in geometries().iter().enumerate() {
        for cores in [1, 2, 5] {
            let mut caches = build(config, cores);
            let mut rng = Rng::new(case_seed(i as u64), "coherent");
            let lines = 2 + capacity(config) * (1 + rng.below(3)) / 2;
            for step in 0..cases(400_u32) {
                let core = rng.below(cores as u64) as usize;
                random_request(&mut caches, core, lines, &mut rng);
                if step % 8 == 0 {
                    caches.assert_coherent();
                }
            }
        }
    }
}

#[test]
fn a_core_alone_sees_no_difference_to_a_core_with_idle_neighbours() {
    for (i, config) in geometries().iter().enumerate() {
        let (mut alone, mut first_of_three) = (build(config, 1), build(config, 3));
        let mut rng = Rng::new(case_seed(i as u64), "alone");
        let lines = 2 + capacity(config) * (1 + rng.below(3)) / 2;
        for step in 0..cases(3000_u32) {
            let mut same = rng.clone();
            let cycles = random_request(&mut alone, 0, lines, &mut rng);
            assert_eq!(random_request(&mut first_of_three, 0, lines, &mut same), cycles, "step {step}: {config:?}");
        }
        let (alone, first_of_three) = (alone.stats(), first_of_three.stats());
        assert_eq!(alone.cores[0], first_of_three.cores[0], "{config:?}");
        assert_eq!(alone.shared, first_of_three.shared, "{config:?}");
    }
}

#[test]
fn hints_change_nothing() {
    for config in geometries() {
        let (mut hinted, mut plain) = (build(&config, 1), build(&config, 1));
        let mut rng = Rng::new(case_seed(4), "hints");
        for _ in 0..cases(300_u32) {
            let mut same = rng.clone();
            hinted.hint(CoreId(0), LineAddr(rng.next_u64() & 0xff_ffff));
            same.next_u64();
            let cycles = random_request(&mut hinted, 0, 300, &mut rng);
            assert_eq!(random_request(&mut plain, 0, 300, &mut same), cycles);
        }
    }
}

#[test]
fn random_replacement_follows_the_seed() {
    let mut config = tiny(Inclusion::NonInclusive);
    config.l1.policy = ReplacementPolicy::Random;
    let run = |seed| {
        let mut caches = Hierarchy::new(&config, 1, seed).unwrap();
        (0..500_u64).map(|i| read(&mut caches, 0, i * i % 7).0).collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn impossible_hierarchies_are_refused() {
    let error = |config: &CacheConfig, cores| Hierarchy::new(config, cores, 0).map(|_| ()).unwrap_err().to_string();
    assert_eq!(error(&sandy_bridge(), 0), "cores: 0 is not possible; allowed are 1 to 64");
    assert_eq!(error(&sandy_bridge(), 65), "cores: 65 is not possible; allowed are 1 to 64");
    let mut config = sandy_bridge();
    config.l1.ways = 0;
    assert!(error(&config, 1).starts_with("l1.ways: "));
    Hierarchy::new(&sandy_bridge(), 64, 0).unwrap();
}

#[test]
fn a_line_that_nobody_asked_for_counts_for_nobody_and_replaces_others() {
    let mut caches = build(&tiny(Inclusion::Inclusive), 1);
    read(&mut caches, 0, 1);
    read(&mut caches, 0, 2);
    let before = caches.stats().cores[0];
    assert_eq!(caches.access_for_nothing(CoreId(0), LineAddr(3)), HitLevel::Dram);
    assert_eq!(caches.access_for_nothing(CoreId(0), LineAddr(3)), HitLevel::L1);
    assert_eq!(caches.stats().cores[0], before);
    assert_eq!([3, 1].map(|line| read(&mut caches, 0, line).0), [HitLevel::L1, HitLevel::L2]);
    caches.assert_coherent();
}
