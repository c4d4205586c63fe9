//! Host time an access through the data caches, for the patterns that bound a replay: time on the processor where
//! Linux tells it, so that a busy machine matters less, else elapsed time.
//!
//! `cargo run --release -p pagelab-engine --example cache_rates [NAME-PART]`

use pagelab_engine::base::cycles::Cycles;
use std::{hint::black_box, time::Instant};

use pagelab_engine::base::addr::LineAddr;
use pagelab_engine::base::ids::CoreId;
use pagelab_engine::base::rng::Rng;
use pagelab_engine::cache::{
    CacheConfig, Hierarchy, Inclusion, PrivateCacheConfig, ReplacementPolicy, Requester, SharedCacheConfig, SliceHash,
    WalkerEntry,
};
use pagelab_trace::quantity::Bytes;

/// Accesses that a hint runs ahead of the access it is for.
const LOOK_AHEAD: usize = 16;

fn config(policy: ReplacementPolicy, inclusion: Inclusion) -> CacheConfig {
    let private =
        |kib: u64, latency_cycles| PrivateCacheConfig { size_bytes: Bytes(kib << 10), ways: 8, latency_cycles, policy };
    CacheConfig {
        l1: private(64, 4),
        l1i: None,
        l2: Some(private(512, 12)),
        l3: Some(SharedCacheConfig {
            size_bytes: Bytes(15 << 20),
            ways: 20,
            latency_cycles: 30,
            policy,
            inclusion,
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

/// The default machine: Kaby Lake's client caches.
fn client() -> CacheConfig {
    let mut config = config(ReplacementPolicy::Lru, Inclusion::Inclusive);
    config.l1.size_bytes = Bytes(32 << 10);
    if let (Some(l2), Some(l3)) = (&mut config.l2, &mut config.l3) {
        (l2.size_bytes, l2.ways) = (Bytes(256 << 10), 4);
        (l3.size_bytes, l3.ways) = (Bytes(6 << 20), 12);
    }
    config
}

/// Time that this process has spent on a processor.
fn processor_nanos() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

struct Bench {
    filter: String,
}

impl Bench {
    /// Best of nine runs of `work`, which does `operations` and returns something that depends on all of them.
    fn rate(&self, name: &str, operations: u64, mut work: impl FnMut() -> u64) {
        if !name.contains(&self.filter) {
            return;
        }
        let run = |_| {
            let (start, elapsed) = (processor_nanos(), Instant::now());
            black_box(work());
            let elapsed = elapsed.elapsed().as_nanos() as f64;
            let nanos = start.zip(processor_nanos()).map_or(elapsed, |(start, end)| (end - start) as f64);
            nanos / operations as f64
        };
        let best = (0..9).map(run).fold(f64::INFINITY, f64::min);
        println!("{name:<44} {best:7.2} ns");
    }

    fn stream(&self, name: &str, caches: &mut Hierarchy, write: bool) {
        let lines = (256_u64 << 20) / 64;
        self.rate(name, lines, || {
            (0..lines)
                .map(|line| u64::from(caches.access(CoreId::FIRST, LineAddr(line), write, Requester::Data).cycles))
                .sum()
        });
    }

    /// Reads of `lines` in their order, hinted if `hinted`.
    fn given(&self, name: &str, caches: &mut Hierarchy, lines: &[LineAddr], hinted: bool) {
        self.rate(name, lines.len() as u64, || {
            let mut cycles = 0;
            for (i, &line) in lines.iter().enumerate() {
                if hinted {
                    caches.hint(CoreId::FIRST, lines[(i + LOOK_AHEAD).min(lines.len() - 1)]);
                }
                cycles += u64::from(caches.access(CoreId::FIRST, line, false, Requester::Data).cycles);
            }
            cycles
        });
    }
}

fn main() {
    let bench = Bench { filter: std::env::args().nth(1).unwrap_or_default() };
    let caches = |cores, inclusion| {
        Hierarchy::new(&config(ReplacementPolicy::Lru, inclusion), cores, 1).expect("the configuration is valid")
    };
    let random = |bytes: u64| -> Vec<LineAddr> {
        let mut rng = Rng::new(1, "cache_rates");
        (0..2 << 20).map(|_| LineAddr(rng.below(bytes / 64))).collect()
    };

    let one = &mut caches(1, Inclusion::Inclusive);
    bench.rate("L1 hit, same line", 1 << 24, || {
        (0..1_u64 << 24)
            .map(|_| u64::from(one.access(CoreId::FIRST, LineAddr(black_box(5)), false, Requester::Data).cycles))
            .sum()
    });
    bench.rate("L1 hit, 8-byte stride over 16 KiB", 1 << 24, || {
        let word = |i: u64| LineAddr((i & 2047) >> 3);
        (0..1_u64 << 24).map(|i| u64::from(one.access(CoreId::FIRST, word(i), false, Requester::Data).cycles)).sum()
    });
    bench.given("L1 hit, random over 32 KiB", one, &random(32 << 10), false);
    bench.given("L2 hit, random over 480 KiB", one, &random(480 << 10), false);
    bench.given("L3 hit, random over 12 MiB", one, &random(12 << 20), false);
    bench.stream("read stream over 256 MiB, inclusive", one, false);
    bench.stream("write stream over 256 MiB, inclusive", one, true);
    let eight_gib = random(8 << 30);
    bench.given("random over 8 GiB, inclusive", one, &eight_gib, false);
    bench.given("random over 8 GiB, inclusive, hinted", one, &eight_gib, true);
    bench.rate("zero a page of 64 new lines, inclusive", 1 << 14, || {
        (0..1 << 14)
            .map(|page| one.zero_lines(CoreId::FIRST, LineAddr(page << 6), 64, Requester::Kernel))
            .sum::<Cycles>()
            .0
    });

    let small = &mut Hierarchy::new(&client(), 1, 1).expect("the configuration is valid");
    bench.given("L3 hit, random over 5 MiB, client", small, &random(5 << 20), false);
    bench.stream("read stream over 256 MiB, client", small, false);
    bench.stream("write stream over 256 MiB, client", small, true);
    bench.given("random over 8 GiB, client, hinted", small, &eight_gib, true);
    bench.rate("zero a page of 64 new lines, client", 1 << 14, || {
        (0..1 << 14)
            .map(|page| small.zero_lines(CoreId::FIRST, LineAddr(page << 6), 64, Requester::Kernel))
            .sum::<Cycles>()
            .0
    });

    let loose = &mut caches(1, Inclusion::NonInclusive);
    bench.stream("read stream over 256 MiB, non-inclusive", loose, false);
    bench.stream("write stream over 256 MiB, non-inclusive", loose, true);
    bench.given("random over 8 GiB, non-inclusive, hinted", loose, &eight_gib, true);
    bench.rate("zero a page of 64 new lines, non-inclusive", 1 << 14, || {
        (0..1 << 14)
            .map(|page| loose.zero_lines(CoreId::FIRST, LineAddr(page << 6), 64, Requester::Kernel))
            .sum::<Cycles>()
            .0
    });

    let four = &mut caches(4, Inclusion::Inclusive);
    bench.stream("read stream over 256 MiB, 4 cores, inclusive", four, false);
    bench.given("random over 8 GiB, 4 cores, hinted", four, &eight_gib, true);
    bench.rate("ping-pong of writes, 4 cores", 1 << 22, || {
        (0..1 << 22).map(|i| u64::from(four.access(CoreId(i & 3), LineAddr(7), true, Requester::Data).cycles)).sum()
    });
    for policy in [ReplacementPolicy::TreePlru, ReplacementPolicy::Random, ReplacementPolicy::Srrip] {
        let caches =
            &mut Hierarchy::new(&config(policy, Inclusion::Inclusive), 1, 1).expect("the configuration is valid");
        bench.stream(&format!("read stream over 256 MiB, {policy:?}"), caches, false);
    }
}
