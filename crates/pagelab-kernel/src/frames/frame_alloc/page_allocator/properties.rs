//! Random operations, checked against a record of the frames in use and against a restatement of the rules.

use std::collections::BTreeMap;

use pagelab_trace::quantity::Bytes;
use pagelab_trace::{case_seed, cases};

use super::super::{FramePurpose, MigrateType};
use super::*;
use pagelab_base::ids::CpuId;
use pagelab_base::rng::Rng;

const PURPOSES: [FramePurpose; 5] = [
    FramePurpose::UserData,
    FramePurpose::PageTable,
    FramePurpose::KernelObject,
    FramePurpose::PageCache,
    FramePurpose::ReclaimableObject,
];

/// Operations between two states in which all memory is free.
const EPISODE: u64 = 80_000;

struct Machine {
    allocator: PageAllocator,
    cpus: u32,
    /// Free blocks at boot, by zone and order.
    at_boot: Vec<Vec<u64>>,
    rng: Rng,
    effects: AllocEffects,
    /// Whether a frame is in use, by frame number from the first one.
    used: Vec<bool>,
    used_frames: u64,
    held: Vec<(Pfn, u32)>,
    seen: BTreeMap<&'static str, u64>,
}

fn blocks(allocator: &PageAllocator) -> Vec<Vec<u64>> {
    let blocks_by_order = |z: &Zone| (0..=allocator.max_order()).map(|order| z.area.free_blocks(order)).collect();
    allocator.zones.iter().map(blocks_by_order).collect()
}

impl Machine {
    fn new(
        seed: u64,
        first: u64,
        frames: u64,
        cpus: u32,
        config: &PageAllocatorConfig,
        reserved: &[Range<u64>],
    ) -> Self {
        let mut allocator = PageAllocator::new(Pfn(first), frames, cpus, config).unwrap();
        for range in reserved {
            allocator.reserve_range(Pfn(range.start)..Pfn(range.end)).unwrap();
        }
        Self {
            at_boot: blocks(&allocator),
            allocator,
            cpus,
            rng: Rng::new(case_seed(seed), "page allocator operations"),
            effects: AllocEffects::default(),
            used: vec![false; frames as usize],
            used_frames: 0,
            held: Vec::new(),
            seen: BTreeMap::new(),
        }
    }

    fn count(&mut self, what: &'static str, n: u32) {
        *self.seen.entry(what).or_default() += u64::from(n);
    }

    fn mark(&mut self, pfn: Pfn, order: u32, used: bool) {
        let from = (pfn.0 - self.allocator.frames().start.0) as usize;
        for frame in &mut self.used[from..from + (1 << order)] {
            assert_ne!(std::mem::replace(frame, used), used, "{pfn:?} of order {order}");
        }
        let frames = 1 << order;
        self.used_frames = if used { self.used_frames + frames } else { self.used_frames - frames };
    }

    fn alloc(&mut self) {
        let order = (self.rng.next_u64().trailing_zeros() / 2).min(self.allocator.max_order() + 1);
        let purpose = PURPOSES[self.rng.below(5) as usize];
        let urgency = match self.rng.below(64) {
            0 => Urgency::Reclaim,
            1..=4 => Urgency::Atomic,
            _ => Urgency::Ordinary,
        };
        let cpu = CpuId(self.rng.below(u64::from(self.cpus)) as u32);
        let request = FrameRequest { cpu, urgency, ..FrameRequest::new(order, purpose) };
        if order > self.allocator.max_order() {
            assert_eq!(self.allocator.alloc(request, &mut self.effects), None);
            return;
        }
        let expected = expect(&self.allocator, &request);
        self.effects.clear();
        let got = self.allocator.alloc(request, &mut self.effects);
        assert_eq!(got.map(|pfn| self.allocator.zone_at(pfn)), expected.zone, "{request:?}");
        assert_eq!(self.effects.shortage, expected.shortage, "{request:?}");
        let per_cpu_hits = u32::from(expected.per_cpu && got.is_some());
        assert_eq!(self.effects.per_cpu_hits, per_cpu_hits, "{request:?}");
        assert_eq!(self.effects.zone_locks.len(), expected.locks, "{request:?}");
        let Some(pfn) = got else { return self.count("refused", 1) };
        assert!(pfn.is_aligned(1 << order) && !self.allocator.is_free(pfn));
        assert!(self.effects.descriptors.contains(&pfn));
        self.mark(pfn, order, true);
        self.held.push((pfn, order));
        self.count("per-CPU hits", self.effects.per_cpu_hits);
        self.count("steals", self.effects.steals);
        self.count("conversions", self.effects.conversions);
        self.count("shortage", u32::from(self.effects.shortage != Shortage::None));
        self.count("remote", u32::from(expected.zone != Some(self.allocator.zonelist(cpu)[0])));
    }

    /// Requests a block at a given place. It is granted exactly if the whole block is on the zone's lists and the min
    /// watermark holds.
    fn alloc_at(&mut self) {
        let order = (self.rng.next_u64().trailing_zeros() / 2).min(self.allocator.max_order());
        let Range { start, end } = self.allocator.frames();
        let pfn = Pfn((start.0 + self.rng.below(end.0 - start.0)) >> order << order);
        let free = (0..1 << order).all(|n| self.allocator.is_free(pfn + n));
        let allowed = free && {
            let status = self.allocator.zone_status(self.allocator.zone_at(pfn));
            let left = status.free_frames as i64 - (1 << order) - status.lowmem_reserve as i64;
            left >= status.watermarks.min as i64 && pfn.0 + (1 << order) <= status.frames.end.0
        };
        self.effects.clear();
        let taken = self.allocator.alloc_at(pfn, FrameRequest::new(order, FramePurpose::UserData), &mut self.effects);
        assert_eq!(taken, allowed, "{pfn:?} of order {order}");
        assert_eq!(self.effects.zone_locks.len(), usize::from(taken));
        if taken {
            assert_eq!(self.allocator.used_order(pfn), Some(order));
            self.mark(pfn, order, true);
            self.held.push((pfn, order));
            self.count("at a place", 1);
        }
    }

    /// A run consists of free memory; no run is found only if there is no block.
    fn find_run(&mut self) {
        let order = self.allocator.max_order() / 2;
        let frames = 1 + self.rng.below(400);
        let cpu = CpuId(self.rng.below(u64::from(self.cpus)) as u32);
        let Some(run) = self.allocator.find_run(order, frames, cpu, &mut Vec::new()) else {
            let free = (order..=self.allocator.max_order()).map(|size| self.allocator.free_blocks(size));
            assert_eq!(free.sum::<u64>(), 0);
            return self.count("no run", 1);
        };
        assert!((run.start.0..run.end.0).all(|pfn| self.allocator.is_free(Pfn(pfn))), "{run:?}");
        assert_eq!(self.allocator.zone_at(run.start), self.allocator.zone_at(run.end - 1));
        self.count(if run.end - run.start >= frames { "fitting run" } else { "short run" }, 1);
        if self.rng.below(2) == 0 {
            self.allocator.set_rover(run.end);
        }
    }

    fn free(&mut self) {
        let Some(last) = self.held.len().checked_sub(1) else { return };
        let (pfn, mut order) = self.held.swap_remove(self.rng.below(last as u64 + 1) as usize);
        if order > 0 && self.rng.below(16) == 0 {
            let into = self.rng.below(u64::from(order)) as u32;
            self.allocator.split_used(pfn, order, into);
            self.held.extend((1..1 << (order - into)).map(|n| (pfn + (n << into), into)));
            order = into;
        }
        let cpu = CpuId(self.rng.below(u64::from(self.cpus)) as u32);
        self.effects.clear();
        let listed = self.allocator.per_cpu_frames();
        self.allocator.free(pfn, order, cpu, &mut self.effects);
        assert_eq!(self.effects.per_cpu_hits as usize + self.effects.zone_locks.len(), 1);
        let drained = if order == 0 { listed + 1 - self.allocator.per_cpu_frames() } else { 1 };
        assert_eq!(u64::from(self.effects.moved), drained);
        assert_eq!(self.effects.shortage, Shortage::None);
        assert!(self.effects.descriptors.contains(&pfn));
        self.mark(pfn, order, false);
    }

    fn check(&self) {
        self.allocator.check_invariants();
        let first = self.allocator.frames().start.0;
        let per_cpu = self
            .allocator
            .zones
            .iter()
            .flat_map(|z| z.pcps.iter().flat_map(|pcp| pcp.lists.iter().flatten()).map(|&index| z.area.pfn(index)));
        let mut unfree = self.used.clone();
        for pfn in per_cpu {
            assert!(!std::mem::replace(&mut unfree[(pfn.0 - first) as usize], true), "{pfn:?} on a list and elsewhere");
        }
        let free = (0..).zip(&unfree).filter(|&(offset, _)| self.allocator.is_free(Pfn(first + offset)));
        let mut count = 0;
        free.for_each(|(offset, &unfree)| {
            count += 1;
            assert!(!unfree, "frame {offset} is free and in use");
        });
        assert_eq!(count, self.allocator.free_frames());
        let managed: u64 = self.allocator.zones.iter().map(Zone::managed_frames).sum();
        assert_eq!(count + self.allocator.per_cpu_frames() + self.used_frames, managed);
    }

    fn age(&mut self) {
        let unit = |rng: &mut Rng| rng.below(1001) as f64 / 1000.0;
        let config = AgeingConfig {
            free_fraction: unit(&mut self.rng),
            huge_free_fraction: unit(&mut self.rng),
            unmovable_fraction: unit(&mut self.rng),
            seed: self.rng.next_u64(),
        };
        let Ok(aged) = self.allocator.age(&config) else { return self.count("not aged", 1) };
        for block in &aged.blocks {
            self.mark(block.pfn(), block.order(), true);
            self.held.push((block.pfn(), block.order()));
        }
        assert_eq!(aged.free_frames, self.allocator.free_frames());
        self.count("aged", 1);
    }

    /// Starts and ends with empty memory.
    fn episode(&mut self, operations: u64) {
        if self.rng.below(3) == 0 {
            self.age();
            self.check();
        }
        for step in 0..operations {
            // Phases that mostly fill and phases that mostly drain, so that memory runs out and coalesces repeatedly.
            let filling = (step / 20_000).is_multiple_of(2);
            match self.rng.below(10_000) {
                0 => self.allocator.drain_per_cpu(&mut self.effects),
                1 => self.check(),
                2..=100 => self.alloc_at(),
                101..=110 => self.find_run(),
                n if (n < 7000) == filling => self.alloc(),
                _ => self.free(),
            }
        }
        while !self.held.is_empty() {
            self.free();
        }
        self.allocator.drain_per_cpu(&mut self.effects);
        self.check();
        assert_eq!((self.used_frames, self.allocator.per_cpu_frames()), (0, 0));
        assert_eq!(blocks(&self.allocator), self.at_boot, "memory is coalesced as at boot");
    }
}

struct Expected {
    zone: Option<ZoneIx>,
    shortage: Shortage,
    /// Whether the CPU's list has a frame of the type from that zone.
    per_cpu: bool,
    /// How often the zone's lock is taken.
    locks: usize,
}

/// Which zone serves a request, by the documented rules, from public state.
fn expect(allocator: &PageAllocator, request: &FrameRequest) -> Expected {
    let status = |ix: ZoneIx| allocator.zone_status(ix);
    let left = |ix: ZoneIx| status(ix).free_frames as i64 - (1 << request.order) - status(ix).lowmem_reserve as i64;
    let has = |ix: ZoneIx| {
        let orders = request.order..=allocator.max_order();
        orders.into_iter().any(|order| allocator.zones[ix].area.free_blocks(order) > 0)
    };
    let contents: MigrateType = request.purpose.migrate_type();
    let listed = |ix: ZoneIx| {
        let pcp = &allocator.zones[ix].pcps[request.cpu];
        request.order == 0 && !pcp.lists[contents as usize].is_empty()
    };
    let list = allocator.zonelist(request.cpu);
    let passing = |mark: &dyn Fn(Watermarks) -> i64| {
        list.iter().copied().filter(move |&ix| left(ix) >= mark(status(ix).watermarks)).collect::<Vec<_>>()
    };
    let above_low = passing(&|w| w.low as i64);
    let above_min = passing(&|w| w.min as i64);
    let serves = |ix: &ZoneIx| has(*ix) || listed(*ix);
    if let Some(&zone) = above_low.iter().find(|ix| has(**ix)) {
        return Expected {
            zone: Some(zone),
            shortage: Shortage::None,
            per_cpu: listed(zone),
            locks: usize::from(!listed(zone)),
        };
    }
    let shortage = match (above_low.is_empty(), above_min.is_empty()) {
        (false, _) => Shortage::None,
        (true, false) => Shortage::BelowLow,
        (true, true) => Shortage::BelowMin,
    };
    let zone = match request.urgency {
        Urgency::Ordinary => above_min.into_iter().find(serves),
        Urgency::Atomic => {
            passing(&|w| (w.min as i64 + 1) / 2 - (w.min as i64 + 1) / 8).into_iter().find(|ix| has(*ix))
        }
        Urgency::Reclaim => list.iter().copied().find(serves),
    };
    let per_cpu = zone.is_some_and(listed);
    // Reclaim tries every zone.
    let in_vain = match request.urgency {
        Urgency::Reclaim => list.iter().take_while(|&&ix| Some(ix) != zone).count(),
        Urgency::Ordinary | Urgency::Atomic => 0,
    };
    Expected { zone, shortage, per_cpu, locks: in_vain + usize::from(zone.is_some() && !per_cpu) }
}

fn reserves(min_kib: u64) -> WatermarkConfig {
    WatermarkConfig { min_free_bytes: Some(Bytes(min_kib << 10)), ..WatermarkConfig::default() }
}

fn node(frames: u64, distances: &[u32]) -> NodeConfig {
    NodeConfig { memory_bytes: Bytes(frames * FRAME_BYTES), distances: distances.to_vec() }
}

fn run(operations: u64) {
    let pcp = |batch, high| PcpConfig { batch: Some(batch), high: Some(high), ..PcpConfig::default() };
    let rules = |rules| PcpConfig { rules: Some(rules), ..PcpConfig::default() };
    let two_nodes = PageAllocatorConfig {
        nodes: vec![node(5120, &[]), node(3072, &[])],
        dma32_end_bytes: Bytes(2048 * FRAME_BYTES),
        watermarks: reserves(512),
        pcp: rules(PerCpuLists::Linux6_12),
        ..PageAllocatorConfig::default()
    };
    let odd = PageAllocatorConfig {
        max_order: 3,
        dma32_end_bytes: Bytes(1021 * FRAME_BYTES),
        watermarks: WatermarkConfig { lowmem_reserve_ratio: 16, ..reserves(64) },
        pcp: pcp(2, 3),
        ..PageAllocatorConfig::default()
    };
    let three_nodes = PageAllocatorConfig {
        nodes: vec![node(3000, &[10, 31, 21]), node(2611, &[31, 10, 21]), node(2600, &[21, 21, 10])],
        cpu_nodes: vec![1, 0, 2, 2, 1],
        dma32_end_bytes: Bytes(4100 * FRAME_BYTES),
        watermarks: WatermarkConfig { scale_factor: 0, ..reserves(200) },
        pcp: rules(PerCpuLists::Linux6_1),
        ..PageAllocatorConfig::default()
    };
    let mut machines = [
        Machine::new(1, 0, 8192, 4, &two_nodes, &[0..130, 5000..5200]),
        Machine::new(2, 7, 2500, 3, &odd, &[7..9, 1500..1501]),
        Machine::new(3, 5, 8211, 5, &three_nodes, &[100..1000, 3000..3001]),
    ];
    for machine in &mut machines {
        for _ in 0..operations / EPISODE / 3 {
            machine.episode(EPISODE);
        }
        println!("{:?}", machine.seen);
    }
    for what in ["per-CPU hits", "steals", "conversions", "shortage", "refused", "remote", "at a place"] {
        assert!(machines.iter().all(|m| m.seen[what] > 200), "{what} must have been tried");
    }
    for what in ["fitting run", "short run", "no run"] {
        assert!(machines.iter().any(|m| m.seen.contains_key(what)), "{what} must have been met");
    }
    assert!(machines[0].seen["aged"] > 0 && machines[2].seen["aged"] > 0);
}

#[test]
fn random_operations_follow_the_rules() {
    run(cases(2_000_000));
}

#[test]
#[ignore = "ten seconds in the release profile, more in others"]
fn thirty_million_random_operations_follow_the_rules() {
    run(30_000_000);
}
