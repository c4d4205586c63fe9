//! Compares the engine with independent models of the same hardware, access by access.

mod caches;
mod translation;

use crate::common::{ScriptWriter, config, run};
use caches::{Caches, HitLevel};
use pagelab_engine::base::addr::{LineAddr, VirtAddr};
use pagelab_engine::base::cycles::Cycles;
use pagelab_engine::base::ids::{CoreId, SpaceIx};
use pagelab_engine::base::rng::Rng;
use pagelab_engine::cache::{
    CacheConfig, Hierarchy, Inclusion, PrivateCacheConfig, ReplacementPolicy, Requester, SharedCacheConfig, SliceHash,
    TableBias, WalkerEntry,
};
use pagelab_trace::quantity::Bytes;
use pagelab_trace::{Access, AccessKind, EventKind, MapFlags, Protection, case_seed, cases};
use std::collections::BTreeMap;
use translation::{Geometry, Kind, Machine};

/// Sets and ways of a level.
type Level = (u64, u32);

/// L1, L2, L3.
const GEOMETRIES: &[(Level, Option<Level>, Option<Level>)] = &[
    ((2, 2), Some((2, 4)), Some((4, 4))),
    ((4, 2), Some((3, 3)), Some((5, 6))),
    ((1, 1), Some((1, 2)), Some((1, 7))),
    ((4, 4), Some((2, 2)), Some((3, 5))),
    ((2, 3), None, Some((4, 3))),
    ((2, 2), Some((4, 3)), None),
    ((3, 5), None, None),
    ((4, 8), Some((8, 8)), Some((12, 20))),
    ((2, 8), Some((4, 4)), Some((6, 16))),
    ((2, 12), Some((2, 16)), Some((3, 64))),
];

fn caches_of(geometry: (Level, Option<Level>, Option<Level>), policy: ReplacementPolicy) -> CacheConfig {
    let bytes = |(sets, ways): Level| Bytes(sets * u64::from(ways) * 64);
    let private = |level: Level, latency_cycles| PrivateCacheConfig {
        size_bytes: bytes(level),
        ways: level.1,
        latency_cycles,
        policy,
    };
    let near = match policy {
        ReplacementPolicy::KeepTables(_) | ReplacementPolicy::KeepBlocks => ReplacementPolicy::Lru,
        others => others,
    };
    let last = if policy == ReplacementPolicy::KeepBlocks { near } else { policy };
    CacheConfig {
        l1: PrivateCacheConfig { policy: near, ..private(geometry.0, 4) },
        l1i: None,
        l2: geometry.1.map(|level| private(level, 12)),
        l3: geometry.2.map(|level| SharedCacheConfig {
            size_bytes: bytes(level),
            ways: level.1,
            latency_cycles: 30,
            policy: last,
            inclusion: Inclusion::Inclusive,
            slices: 1,
            slice_hash: SliceHash::Xor,
        }),
        dram_latency_cycles: 100,
        cache_to_cache_latency_cycles: 60,
        far_cores: Vec::new(),
        queue_transfers: pagelab_engine::base::switch::Switch(true),
        upgrade_latency_cycles: 43,
        locked_extra_cycles: 18,
        walker_entry: WalkerEntry::L1,
        bulk_parallelism: 10,
    }
}

fn same(served: pagelab_engine::cache::HitLevel) -> HitLevel {
    match served {
        pagelab_engine::cache::HitLevel::L1 => HitLevel::L1,
        pagelab_engine::cache::HitLevel::L2 => HitLevel::L2,
        pagelab_engine::cache::HitLevel::L3 => HitLevel::L3,
        pagelab_engine::cache::HitLevel::Remote => HitLevel::Remote,
        pagelab_engine::cache::HitLevel::Dram => HitLevel::Dram,
    }
}

fn compare_caches(config: &CacheConfig, cores: usize, steps: u64, seed: u64) {
    let mut engine = Hierarchy::new(config, cores, seed).unwrap();
    let mut naive = Caches::new(config, cores, seed);
    let mut rng = Rng::new(case_seed(seed), "requests");
    let lines = |bytes: Bytes| bytes.0 / 64;
    let capacity = config.l3.as_ref().map_or(0, |l3| lines(l3.size_bytes))
        + config.l2.as_ref().map_or(0, |l2| lines(l2.size_bytes))
        + lines(config.l1.size_bytes);
    // With few lines cores contend, with many lines are evicted.
    let ranges = [lines(config.l1.size_bytes) + 2, capacity / 2 + 2, capacity * 3 / 2 + 2];
    for step in 0..steps {
        let core = rng.below(cores as u64) as usize;
        let line = rng.below(ranges[(step / 64 % 3) as usize]);
        let at = || format!("step {step}: core {core}, line {line}, {cores} cores, {config:?}");
        match rng.below(100) {
            choice @ 0..92 => {
                let requester = Requester::ALL[[0, 0, 1, 2][rng.below(4) as usize]];
                let (write, locked) = (choice % 3 == 0, choice >= 85);
                let outcome = if locked {
                    engine.access_locked(CoreId(core), LineAddr(line), requester)
                } else {
                    engine.access(CoreId(core), LineAddr(line), write, requester)
                };
                let expected = naive.access(core, line, write, locked, requester == Requester::Walk);
                assert_eq!((same(outcome.served), u64::from(outcome.cycles)), expected, "{}", at());
            }
            92..98 => {
                let count = 1 + rng.below(6);
                let cycles = engine.zero_lines(CoreId(core), LineAddr(line), count, Requester::Kernel);
                assert_eq!(cycles, Cycles(naive.zero(core, line, count)), "{}", at());
            }
            _ => {
                engine.dma_write(LineAddr(line), 1);
                naive.device_write(line);
            }
        }
    }
    let stats = engine.stats();
    for (core, counted) in stats.cores.iter().enumerate() {
        let counts = caches::CoreCounts {
            upgrades: counted.upgrades,
            l1_writebacks: counted.l1_writebacks,
            l2_writebacks: counted.l2_writebacks,
            invalidations: counted.invalidations,
            downgrades: counted.downgrades,
            downgrade_writebacks: counted.downgrade_writebacks,
            back_invalidations: counted.back_invalidations,
        };
        assert_eq!(&counts, naive.counts(core), "core {core} of {cores}, {config:?}");
    }
    let shared = (stats.shared.l3_writebacks, stats.shared.dram_writes, stats.shared.dma_invalidations);
    assert_eq!(shared, (naive.l3_writebacks, naive.dram_writes, naive.dma_invalidations), "{cores} cores, {config:?}");
    assert_eq!(stats.tables_kept.unwrap_or(0), naive.tables_kept(), "{cores} cores, {config:?}");
}

#[test]
fn caches_do_what_their_text_says_access_for_access() {
    use ReplacementPolicy::{KeepBlocks, KeepTables, Lru, Random, Srrip, TreePlru};
    let always = KeepTables(TableBias { walks_per_1000: 0, ..TableBias::default() });
    let sometimes = KeepTables(TableBias { share_percent: 60, walks_per_1000: 250, window: 16 });
    let mut seed = 0;
    for &geometry in GEOMETRIES {
        for policy in [Lru, TreePlru, Srrip, Random, KeepBlocks, always, sometimes] {
            for inclusion in [Inclusion::Inclusive, Inclusion::NonInclusive] {
                for walker_entry in [WalkerEntry::L1, WalkerEntry::L2] {
                    let mut config = caches_of(geometry, policy);
                    match &mut config.l3 {
                        Some(l3) => l3.inclusion = inclusion,
                        None if inclusion == Inclusion::NonInclusive => continue,
                        None => {}
                    }
                    if walker_entry == WalkerEntry::L2 && config.l2.is_none() {
                        continue;
                    }
                    config.walker_entry = walker_entry;
                    for cores in [1, 2, 4] {
                        seed += 1;
                        compare_caches(&config, cores, cases(4000), seed);
                    }
                }
            }
        }
    }
}

#[test]
fn levels_of_different_policies_go_together() {
    use ReplacementPolicy::{Lru, Random, Srrip, TreePlru};
    for (n, policies) in [[TreePlru, Lru, Srrip], [Lru, Random, TreePlru], [Srrip, TreePlru, Random]].iter().enumerate()
    {
        let mut config = caches_of(GEOMETRIES[1], Lru);
        config.l1.policy = policies[0];
        config.l2.as_mut().unwrap().policy = policies[1];
        config.l3.as_mut().unwrap().policy = policies[2];
        for cores in [1, 2, 3] {
            compare_caches(&config, cores, cases(8000), 1000 + n as u64);
        }
    }
}

/// An operation of a script's only process; addresses are page numbers.
#[derive(Clone, Copy, Debug)]
enum Op {
    Access { kind: AccessKind, addr: u64, bytes: u16 },
    Map { page: u64, pages: u64, prot: Protection },
    Unmap { page: u64, pages: u64 },
    Protect { page: u64, pages: u64, prot: Protection },
    Discard { page: u64, pages: u64 },
}

/// Pages in three places whose prefixes differ at levels 2, 3 and 4.
fn some_page(rng: &mut Rng) -> u64 {
    let places = [0x7_f000_0000, 0x7_f000_01f0, 0x7_f000_8000, 0x7_f100_0000, 0x6_0000_0000];
    // Half of the time one of a few pages.
    let spread = if rng.below(2) == 0 { 2 } else { 24 };
    places[rng.below(5) as usize] + rng.below(spread)
}

fn random_script(rng: &mut Rng, length: usize) -> Vec<Op> {
    let nothing = Protection::default();
    let read = Protection { read: true, ..nothing };
    let mut ops: Vec<Op> = [0x7_f000_0000, 0x7_f000_01f0, 0x7_f000_8000, 0x7_f100_0000, 0x6_0000_0000]
        .map(|page| Op::Map { page, pages: 24, prot: Protection::READ_WRITE })
        .to_vec();
    let (mut last, mut recent) = (ops[0], Vec::new());
    while ops.len() < length {
        let page = some_page(rng);
        let pages = 1 + rng.below(6);
        let prots = [
            Protection::READ_WRITE,
            Protection::READ_WRITE,
            Protection::READ_WRITE,
            Protection::READ_WRITE,
            read,
            nothing,
        ];
        let prot = prots[rng.below(6) as usize];
        let op = match rng.below(100) {
            // Read-only pages that become writable are clean.
            0..5 => Op::Map { page, pages, prot: read },
            5..6 => Op::Unmap { page, pages },
            6..14 => Op::Protect { page, pages, prot },
            14..16 => Op::Discard { page, pages },
            // Repeated addresses exercise the short cuts.
            16..30 if matches!(last, Op::Access { .. }) => last,
            // A recently used address.
            30..65 if !recent.is_empty() => {
                let addr = recent[recent.len() - 1 - rng.below(recent.len().min(6) as u64) as usize];
                let kind = if rng.below(2) == 0 { AccessKind::Load } else { AccessKind::Store };
                Op::Access { kind, addr, bytes: 8 }
            }
            _ => {
                use AccessKind::{Fetch, Load, Modify, Store};
                let kind = [Load, Load, Store, Modify, Fetch][rng.below(5) as usize];
                let bytes = [1, 8, 16, 64, 300][rng.below(5) as usize];
                let near = rng.below(2) == 0;
                let offset = rng.below(if near { 100 } else { 4096 });
                Op::Access { kind, addr: page << 12 | offset, bytes }
            }
        };
        if let Op::Access { addr, .. } = op {
            recent.push(addr);
        }
        last = op;
        ops.push(op);
    }
    ops
}

fn write_script(ops: &[Op]) -> Box<dyn pagelab_trace::Source> {
    let mut script = ScriptWriter::new();
    for op in ops {
        let kind = match *op {
            Op::Access { kind, addr, bytes } => {
                script.access_of(0, Access::new(kind, addr, bytes));
                continue;
            }
            Op::Map { page, pages, prot } => EventKind::Mmap {
                addr: page << 12,
                len: pages << 12,
                prot,
                flags: MapFlags::anonymous_private(),
                file: None,
                file_offset: 0,
            },
            Op::Unmap { page, pages } => EventKind::Munmap { addr: page << 12, len: pages << 12 },
            Op::Protect { page, pages, prot } => EventKind::Mprotect { addr: page << 12, len: pages << 12, prot },
            Op::Discard { page, pages } => EventKind::Madvise { addr: page << 12, len: pages << 12, advice: 4 },
        };
        script.event(0, kind);
    }
    script.finish()
}

/// Small units, so that a short script fills them.
const SMALL_MACHINE: &[&str] = &[
    "engine.kernel_refs=off",
    // The model maps a page once, so reads of untouched memory get their own frames.
    "kernel.zero_page=off",
    "machine.memory_bytes=64MiB",
    r#"machine.tlb.l1d=[{"pages":["4K"],"entries":8,"ways":2}]"#,
    r#"machine.tlb.l1i=[{"pages":["4K"],"entries":6,"ways":3}]"#,
    r#"machine.tlb.l2=[{"pages":["4K"],"entries":24,"ways":3}]"#,
    r#"machine.mmu_cache.paging_structure.arrays=[{"level":4,"entries":1,"ways":1},{"level":3,"entries":2,"ways":2},{"level":2,"entries":3,"ways":3}]"#,
    r#"machine.cache.l1={"size_bytes":512,"ways":2,"latency_cycles":4}"#,
    r#"machine.cache.l2={"size_bytes":1536,"ways":3,"latency_cycles":12}"#,
    r#"machine.cache.l3={"size_bytes":5120,"ways":4,"latency_cycles":30}"#,
];

fn small_machine(cache: &CacheConfig) -> Machine {
    let geometry = Geometry {
        l1d: (8, 2),
        l1i: (6, 3),
        l2: (24, 3),
        l2_latency: 7,
        paging_structure: vec![(2, 3, 3), (3, 2, 2), (4, 1, 1)],
        paging_structure_latency: 2,
        l1_latency: 4,
    };
    Machine::new(geometry, Caches::new(cache, 1, 1))
}

/// Replays every prefix of a script with the engine and compares all counters.
fn compare_replays(ops: &[Op], policy: &str) -> translation::Counts {
    let set = ["l1", "l2", "l3"].map(|level| format!("machine.cache.{level}.policy={policy}"));
    let all: Vec<&str> = SMALL_MACHINE.iter().copied().chain(set.iter().map(String::as_str)).collect();
    let config = config("radix", &all);
    let mut naive = small_machine(&config.machine.cache);
    for step in 0..ops.len() {
        let (simulation, stats) = run(&config, write_script(&ops[..=step]), &[0]);
        let layer = &simulation.kernels.os.layers[0];
        match ops[step] {
            Op::Access { kind, addr, bytes } => {
                let kind = match kind {
                    AccessKind::Load => Kind::Load,
                    AccessKind::Store | AccessKind::Modify => Kind::Store,
                    AccessKind::Fetch => Kind::Fetch,
                };
                let frame = |page: u64| {
                    let found = layer.mapped(SpaceIx(1), VirtAddr(page << 12), VirtAddr((page + 1) << 12));
                    assert_eq!(found.len(), 1, "step {step}: page {page:#x} is mapped once");
                    found[0].mapping.pfn.0
                };
                naive.access(kind, addr, bytes.into(), &frame);
            }
            Op::Map { page, pages, prot } => naive.map(page..page + pages, (prot.read, prot.write)),
            Op::Unmap { page, pages } => naive.unmap(page..page + pages),
            Op::Protect { page, pages, prot } => naive.protect(page..page + pages, (prot.read, prot.write)),
            Op::Discard { page, pages } => naive.discard(page..page + pages),
        }
        let expected: BTreeMap<&str, u64> = naive.counts.clone();
        let found: BTreeMap<&str, u64> = expected.keys().map(|&name| (name, stats.values[name])).collect();
        assert_eq!(found, expected, "step {step}, {policy}: {:?} (left: engine)", ops[step]);
        let mapped = layer.mapped(SpaceIx(1), VirtAddr(0), VirtAddr(1 << 47));
        assert!(mapped.iter().map(|page| page.va.0 >> 12).eq(naive.pages()), "step {step}: {:?}", ops[step]);
    }
    naive.counts
}

#[test]
fn replays_do_what_a_core_would_access_for_access() {
    let mut rng = Rng::new(case_seed(5), "scripts");
    let mut total = translation::Counts::new();
    for policy in ["lru", "tree-plru", "srrip"] {
        for _ in 0..cases(4_u32) {
            for (name, count) in compare_replays(&random_script(&mut rng, 400), policy) {
                *total.entry(name).or_default() += count;
            }
        }
    }
    assert!(total.len() == 26 && total.values().all(|&count| count > 0), "the scripts leave something out: {total:?}");
}

const BASE: u64 = 0x7f00_0000_0000;

#[test]
fn a_walk_between_two_accesses_of_a_line_takes_its_place() {
    // An L1 of one line: all references of walks use it.
    let set = [r#"machine.cache.l1={"size_bytes":64,"ways":1,"latency_cycles":4}"#];
    let misses = |fetches: u64| {
        let mut script = ScriptWriter::new();
        script.event(0, crate::common::mmap(BASE, 0x40_0000, Protection::from_bits(7)));
        // Far more pages than TLB entries, so that the fetches below walk, but do not fault.
        for n in 1..1000 {
            script.load(0, BASE + n * 4096);
        }
        for n in 0..200 {
            script.load(0, BASE);
            if n < fetches {
                script.access(0, AccessKind::Fetch, BASE + (n + 1) * 4096);
            }
        }
        run(&config("radix", &set), script.finish(), &[0]).1.values["l1d.misses.data"]
    };
    assert_eq!(misses(0), 1000);
    assert_eq!(misses(100), 1000 + 100);
}

#[test]
fn a_line_that_another_core_writes_is_lost_at_once() {
    let mut script = ScriptWriter::new();
    let other = script.thread(0);
    script.mmap(0, BASE, 0x1000);
    for _ in 0..200 {
        // Slower than any transfer of the line, so that the cores alternate.
        script.access_of(0, Access { gap: 10_000, ..Access::new(AccessKind::Load, BASE, 8) });
        script.access_of(other, Access { gap: 10_000, ..Access::new(AccessKind::Store, BASE, 8) });
    }
    let (_, stats) = run(&config("radix", &["engine.sync_quantum_cycles=0"]), script.finish(), &[0, 2]);
    let (remote, upgrades) = (stats.values["coherence.remote"], stats.values["coherence.upgrades"]);
    assert!(remote >= 195, "each load finds the line in the other core, but for the first few: {remote}");
    assert!(upgrades >= 195, "each store finds it shared: {upgrades}");
}
