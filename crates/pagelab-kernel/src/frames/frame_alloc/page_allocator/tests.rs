use pagelab_base::ids::{CpuId, NodeId};
use pagelab_trace::quantity::Bytes;

use super::super::{FramePurpose, MigrateType};
use super::*;

const MIB: u64 = (1 << 20) / FRAME_BYTES;
const GIB: u64 = 1024 * MIB;

/// One node of NORMAL memory from frame 0, for one CPU, with small reserves.
fn normal(frames: u64) -> PageAllocator {
    let config = PageAllocatorConfig {
        dma32_end_bytes: Bytes(0),
        watermarks: WatermarkConfig { min_free_bytes: Some(Bytes(0)), scale_factor: 0, lowmem_reserve_ratio: 256 },
        pcp: PcpConfig { batch: Some(4), high: Some(8), ..PcpConfig::default() },
        ..PageAllocatorConfig::default()
    };
    PageAllocator::new(Pfn(0), frames, 1, &config).unwrap()
}

fn take(allocator: &mut PageAllocator, order: u32, purpose: FramePurpose) -> (Pfn, AllocEffects) {
    let mut effects = AllocEffects::default();
    let pfn = allocator.alloc(FrameRequest::new(order, purpose), &mut effects).expect("there is memory");
    (pfn, effects)
}

fn give(allocator: &mut PageAllocator, pfn: Pfn, order: u32) -> AllocEffects {
    let mut effects = AllocEffects::default();
    allocator.free(pfn, order, CpuId(0), &mut effects);
    effects
}

fn on_cpu(cpu: CpuId) -> FrameRequest {
    FrameRequest { cpu, ..FrameRequest::new(0, FramePurpose::UserData) }
}

fn rules(rules: PerCpuLists) -> PcpConfig {
    PcpConfig { rules: Some(rules), ..PcpConfig::default() }
}

/// A zone's batch, and the range of the limit of its per-CPU lists.
fn limits(allocator: &PageAllocator, zone: ZoneIx) -> (u32, u32, u32) {
    let limits = &allocator.zones[zone].limits;
    (limits.batch, limits.high_min, limits.high_max)
}

fn gib(gib: u64, distances: &[u32]) -> NodeConfig {
    NodeConfig { memory_bytes: Bytes(gib << 30), distances: distances.to_vec() }
}

#[test]
fn reserves_and_batches_are_those_of_linux() {
    let mut config = PageAllocatorConfig { pcp: rules(PerCpuLists::Linux6_1), ..PageAllocatorConfig::default() };
    let allocator = PageAllocator::new(Pfn(0), 64 * GIB, 4, &config).unwrap();
    let [dma32, normal] = [ZoneKind::Dma32, ZoneKind::Normal].map(|kind| allocator.zone_of(NodeId(0), kind).unwrap());
    // min_free_kbytes is sqrt(64 Mi * 16) = 32768: 8192 frames, a sixteenth of them DMA32's.
    assert_eq!(allocator.watermarks(dma32), Watermarks { min: 512, low: 512 + 1048, high: 512 + 2 * 1048 });
    assert_eq!(allocator.watermarks(normal), Watermarks { min: 7680, low: 7680 + 15728, high: 7680 + 2 * 15728 });
    assert_eq!(allocator.zone_status(dma32).lowmem_reserve, 60 * GIB / 256);
    assert_eq!(allocator.zone_status(normal).lowmem_reserve, 0);
    assert_eq!((limits(&allocator, dma32), limits(&allocator, normal)), ((63, 390, 390), (63, 5852, 5852)));

    config.watermarks.scale_factor = 0;
    let allocator = PageAllocator::new(Pfn(0), 64 * GIB, 4, &config).unwrap();
    assert_eq!(allocator.watermarks(normal), Watermarks { min: 7680, low: 7680 * 5 / 4, high: 7680 * 3 / 2 });
    let allocator = PageAllocator::new(Pfn(0), 64 * MIB, 1, &config).unwrap();
    // 16 batches per zone are too few for 63: 16384 >> 10 = 16, a quarter is 4, rounded to 3.
    assert_eq!(limits(&allocator, ZoneIx(0)), (3, 320, 320));
    assert_eq!(allocator.watermarks(ZoneIx(0)).min, 256);
}

#[test]
fn zones_are_tried_from_near_to_far() {
    let mut config = PageAllocatorConfig {
        nodes: vec![gib(6, &[10, 31, 21]), gib(1, &[]), gib(1, &[])],
        cpu_nodes: vec![0, 2, 1],
        ..PageAllocatorConfig::default()
    };
    let allocator = PageAllocator::new(Pfn(0), 8 * GIB, 3, &config).unwrap();
    let zones: Vec<_> =
        allocator.zones().map(|z| (allocator.zone_status(z).node, allocator.zone_status(z).kind)).collect();
    let expected = [(0, ZoneKind::Dma32), (0, ZoneKind::Normal), (1, ZoneKind::Normal), (2, ZoneKind::Normal)];
    assert_eq!(zones, expected.map(|(node, kind)| (NodeId(node), kind)));
    assert_eq!(allocator.zonelist(CpuId(0)), [1, 0, 3, 2].map(ZoneIx));
    assert_eq!(allocator.zonelist(CpuId(1)), [3, 1, 0, 2].map(ZoneIx), "equal distances: by number");
    assert_eq!(allocator.zonelist(CpuId(2)), [2, 3, 1, 0].map(ZoneIx), "equal distances: the nodes that follow first");
    assert_eq!(allocator.zone_at(Pfn(4 * GIB - 1)), ZoneIx(0));
    assert_eq!(allocator.zone_at(Pfn(4 * GIB)), ZoneIx(1));

    config.cpu_nodes.clear();
    let spread = PageAllocator::new(Pfn(0), 8 * GIB, 6, &config).unwrap();
    assert_eq!(spread.cpu_nodes, [0, 0, 1, 1, 2, 2].map(NodeId));
    let fewer = PageAllocator::new(Pfn(0), 8 * GIB, 2, &config).unwrap();
    assert_eq!(fewer.cpu_nodes, [0, 1].map(NodeId));
}

#[test]
fn a_cpu_gets_its_hottest_frame_and_exchanges_batches() {
    let mut allocator = normal(16 * MIB);
    let (first, effects) = take(&mut allocator, 0, FramePurpose::UserData);
    assert_eq!((first, &effects.zone_locks[..], effects.per_cpu_hits), (Pfn(0), &[ZoneIx(0)][..], 0));
    assert_eq!((allocator.per_cpu_frames(), allocator.free_frames(), effects.moved), (3, 16 * MIB - 4, 4));
    for n in 1..4 {
        let (pfn, effects) = take(&mut allocator, 0, FramePurpose::UserData);
        // The frame that becomes the head of the list is written, too.
        let touched: Vec<_> = (n..4).take(2).map(Pfn).collect();
        assert_eq!(
            (pfn, effects),
            (Pfn(n), AllocEffects { per_cpu_hits: 1, descriptors: touched, ..Default::default() })
        );
    }
    let (fifth, effects) = take(&mut allocator, 0, FramePurpose::UserData);
    assert_eq!((fifth, effects.zone_locks.len()), (Pfn(4), 1));
    give(&mut allocator, Pfn(2), 0);
    assert_eq!(give(&mut allocator, Pfn(1), 0).per_cpu_hits, 1);
    assert_eq!(take(&mut allocator, 0, FramePurpose::PageCache).0, Pfn(1), "the last one freed is the hottest");
    assert!(!allocator.is_free(Pfn(2)), "it is its CPU's");

    // 3 of the second batch and frame 2 are listed; 1, 0 and 3 make seven, and 4 is the eighth, which drains a batch.
    for pfn in [1, 0, 3] {
        assert_eq!(give(&mut allocator, Pfn(pfn), 0).zone_locks, []);
    }
    let effects = give(&mut allocator, Pfn(4), 0);
    assert_eq!((effects.zone_locks.len(), effects.per_cpu_hits, allocator.per_cpu_frames()), (1, 0, 4));
    assert_eq!(effects.moved, 4);
    let (block, effects) = take(&mut allocator, 3, FramePurpose::UserData);
    assert_eq!((effects.moved, give(&mut allocator, block, 3).moved), (1, 1), "a block counts once");
    let listed: Vec<_> = allocator.zones[0].pcps[0].lists[MigrateType::Movable as usize].iter().copied().collect();
    assert_eq!(listed, [4, 3, 0, 1], "the coldest went");
    allocator.drain_per_cpu(&mut AllocEffects::default());
    assert_eq!((allocator.free_frames(), allocator.free_blocks(10)), (16 * MIB, 4));
    allocator.check_invariants();
}

#[test]
fn purposes_are_grouped_by_mobility() {
    let mut allocator = normal(16 * MIB);
    let (table, effects) = take(&mut allocator, 0, FramePurpose::PageTable);
    // The largest block of the only type that has any, with both of its pageblocks.
    assert_eq!((table, effects.steals, effects.conversions), (Pfn(0), 1, 2));
    let (data, effects) = take(&mut allocator, 0, FramePurpose::UserData);
    assert_eq!((data, effects.steals), (Pfn(1024), 0));
    let (object, effects) = take(&mut allocator, 3, FramePurpose::KernelObject);
    assert_eq!((object, effects.steals), (Pfn(8), 0));
    let (inode, effects) = take(&mut allocator, 1, FramePurpose::ReclaimableObject);
    // Reclaimable contents steal from unmovable lists first, but the largest block decides, and that is movable.
    assert_eq!((inode, effects.steals, effects.conversions), (Pfn(2048), 1, 2));
    let pageblock = |pfn| allocator.zones[0].pageblock(pfn);
    assert_eq!(pageblock(0), MigrateType::Unmovable);
    assert_eq!([pageblock(1024), pageblock(2048)], [MigrateType::Movable, MigrateType::Reclaimable]);
}

#[test]
fn a_pageblock_converts_if_half_of_it_is_free_or_suits() {
    use MigrateType::{Movable, Unmovable};
    // In the only two pageblocks these remain in use: user data on all of the first; on the second, `data` frames of
    // user data, then `objects` frames of kernel objects; the rest is free. An unmovable request must steal from the
    // second.
    let after = |data: u64, objects: u64| {
        let mut allocator = normal(4 * MIB);
        let (all, _) = take(&mut allocator, 10, FramePurpose::UserData);
        allocator.split_used(all, 10, 9);
        allocator.split_used(Pfn(512), 9, 0);
        for pfn in 512 + data..512 + data + objects {
            allocator.zones[0].area.set_state(pfn as u32, super::super::free_area::FrameState::used(0, Unmovable));
        }
        for pfn in 512 + data + objects..1024 {
            give(&mut allocator, Pfn(pfn), 0);
        }
        allocator.drain_per_cpu(&mut AllocEffects::default());
        let (_, effects) = take(&mut allocator, 1, FramePurpose::PageTable);
        allocator.check_invariants();
        let movable: u64 = (0..=10).map(|order| allocator.zones[0].area.free_blocks_of(order, Movable) << order).sum();
        assert_eq!((effects.steals, movable), (1, 0), "all the pageblock's free blocks change lists");
        (allocator.zones[0].pageblock(512), effects.conversions)
    };
    assert_eq!(after(256, 0), (Unmovable, 1));
    assert_eq!(after(257, 0), (Movable, 0));
    assert_eq!(after(256, 200), (Unmovable, 1), "the kernel's objects suit");
    assert_eq!(after(257, 200), (Movable, 0));
}

#[test]
fn movable_contents_take_the_smallest_block_if_they_must_intrude() {
    let mut allocator = normal(4 * MIB);
    let (all, _) = take(&mut allocator, 10, FramePurpose::PageTable);
    allocator.split_used(all, 10, 1);
    for pfn in [Pfn(0), Pfn(2), Pfn(520)] {
        give(&mut allocator, pfn, 1);
    }
    // A block of order 2 and one of order 1 are free, both unmovable.
    let (pfn, effects) = take(&mut allocator, 1, FramePurpose::UserData);
    assert_eq!((pfn, effects.steals, effects.conversions), (Pfn(520), 1, 0));
    give(&mut allocator, pfn, 1);
    assert_eq!(
        allocator.zones[0].area.free_blocks_of(1, MigrateType::Unmovable),
        1,
        "it returns to its pageblock's list"
    );
    // An unmovable request takes the largest block of reclaimable memory.
    let mut allocator = normal(4 * MIB);
    let (all, _) = take(&mut allocator, 10, FramePurpose::ReclaimableObject);
    allocator.split_used(all, 10, 1);
    for pfn in [Pfn(0), Pfn(2), Pfn(520)] {
        give(&mut allocator, pfn, 1);
    }
    assert_eq!(take(&mut allocator, 1, FramePurpose::PageTable).0, Pfn(0));
}

#[test]
fn a_shortage_is_reported_and_ordinary_requests_keep_the_reserve() {
    let config = PageAllocatorConfig {
        dma32_end_bytes: Bytes(0),
        watermarks: WatermarkConfig {
            min_free_bytes: Some(Bytes(80 * FRAME_BYTES)),
            scale_factor: 0,
            lowmem_reserve_ratio: 0,
        },
        pcp: PcpConfig { batch: Some(1), high: Some(1), ..PcpConfig::default() },
        ..PageAllocatorConfig::default()
    };
    let mut allocator = PageAllocator::new(Pfn(0), 4 * MIB, 1, &config).unwrap();
    assert_eq!(allocator.watermarks(ZoneIx(0)), Watermarks { min: 80, low: 100, high: 120 });
    let mut effects = AllocEffects::default();
    let mut fill = |urgency| {
        let mut found = Vec::new();
        loop {
            effects.clear();
            let request = FrameRequest { urgency, ..on_cpu(CpuId(0)) };
            let got = allocator.alloc(request, &mut effects);
            found.push(effects.shortage);
            if got.is_none() {
                return (allocator.free_frames(), found);
            }
        }
    };
    let (left, found) = fill(Urgency::Ordinary);
    assert_eq!(left, 80);
    let times = |shortage| found.iter().filter(|&&p| p == shortage).count();
    assert_eq!([Shortage::None, Shortage::BelowLow, Shortage::BelowMin].map(times), [924, 20, 1]);
    assert!(found.is_sorted());
    assert_eq!(fill(Urgency::Atomic).0, 30, "three eighths of min");
    assert_eq!(fill(Urgency::Reclaim).0, 0);
    // Fragmentation is not a shortage: 300 frames are free, no two of them adjacent.
    let mut effects = AllocEffects::default();
    for pfn in (0..600).step_by(2) {
        allocator.free(Pfn(pfn), 0, CpuId(0), &mut effects);
    }
    effects.clear();
    assert_eq!(allocator.alloc(FrameRequest::new(1, FramePurpose::UserData), &mut effects), None);
    assert_eq!((effects.shortage, &effects.zone_locks[..]), (Shortage::None, &[][..]));
}

#[test]
fn other_nodes_serve_before_reserves_are_touched_and_dma32_is_kept() {
    let config = PageAllocatorConfig {
        nodes: vec![gib(5, &[]), gib(1, &[])],
        watermarks: WatermarkConfig { lowmem_reserve_ratio: 2, ..WatermarkConfig::default() },
        pcp: PcpConfig { batch: Some(1), high: Some(1), ..PcpConfig::default() },
        ..PageAllocatorConfig::default()
    };
    let mut allocator = PageAllocator::new(Pfn(0), 6 * GIB, 2, &config).unwrap();
    let mut effects = AllocEffects::default();
    let mut zones = Vec::new();
    while let Some(pfn) = allocator.alloc(on_cpu(CpuId(0)), &mut effects) {
        effects.descriptors.clear();
        let zone = allocator.zone_at(pfn);
        if zones.last() != Some(&zone) {
            zones.push(zone);
            let shortage = if zones.len() > 3 { Shortage::BelowLow } else { Shortage::None };
            assert_eq!(effects.shortage, shortage, "{zones:?}");
        }
    }
    assert_eq!(zones, [1, 0, 2, 1, 0, 2].map(ZoneIx));
    let dma32 = allocator.zone_status(ZoneIx(0));
    let kept = dma32.lowmem_reserve + dma32.watermarks.min;
    assert_eq!((dma32.lowmem_reserve, dma32.free_frames), (GIB / 2, kept));
}

#[test]
fn impossible_configurations_are_refused() {
    let refusal = |change: &dyn Fn(&mut PageAllocatorConfig)| {
        let mut config = PageAllocatorConfig { nodes: vec![gib(1, &[]), gib(1, &[])], ..Default::default() };
        change(&mut config);
        PageAllocator::new(Pfn(0), 2 * GIB, 4, &config).map(|_| ()).unwrap_err().to_string()
    };
    let says = |change: &dyn Fn(&mut PageAllocatorConfig), parts: &[&str]| {
        let text = refusal(change);
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    };
    says(&|c| c.max_order = 19, &["max_order 19", "at most 18"]);
    says(&|c| c.nodes[1].memory_bytes.0 = 0, &["nodes.1.memory_bytes", "0B", "positive multiple"]);
    says(&|c| c.nodes[0].memory_bytes.0 -= 1, &["nodes.0.memory_bytes", "multiple of the 4 KiB frame"]);
    says(&|c| c.nodes[0].memory_bytes.0 = 2 << 30, &["nodes: ", "3GiB", "add up to the memory's 2GiB"]);
    says(&|c| c.nodes[0].memory_bytes.0 = u64::MAX - 4095, &["nodes: ", "add up"]);
    says(&|c| c.nodes = vec![gib(1, &[]); 1025], &["nodes: 1025", "at most 1024"]);
    says(&|c| c.nodes[1].distances = vec![20], &["nodes.1.distances", "each of the 2 nodes"]);
    says(&|c| c.nodes[1].distances = vec![20, 11], &["nodes.1.distances: 11 to node 1", "10 to the node itself"]);
    says(&|c| c.nodes[1].distances = vec![10, 10], &["nodes.1.distances: 10 to node 0", "11 to 254"]);
    says(&|c| c.cpu_nodes = vec![0, 1], &["cpu_nodes: 2 entries for 4 CPUs"]);
    says(&|c| c.cpu_nodes = vec![0, 1, 2, 0], &["cpu_nodes.2", "no node 2", "0 to 1"]);
    says(&|c| c.dma32_end_bytes.0 = 100, &["dma32_end_bytes: 100B"]);
    says(&|c| c.pcp.batch_scale_max = Some(7), &["pcp.batch_scale_max: 7", "0 to 6"]);
    says(&|c| c.pcp.batch_scale_max = Some(2), &["pcp.batch_scale_max", "pcp.rules=linux-6.12"]);
    says(&|c| c.pcp.batch = Some(0), &["pcp.batch: 0", "1 to 65536"]);
    says(
        &|c| c.pcp = PcpConfig { batch: Some(9), high: Some(8), ..PcpConfig::default() },
        &["pcp.high: 8", "batch of 9"],
    );
    says(&|c| c.watermarks.scale_factor = 3001, &["watermarks.scale_factor: 3001", "0 to 3000"]);
    says(
        &|c| c.watermarks.min_free_bytes = Some(Bytes(2 << 30)),
        &["watermarks.min_free_bytes", "524288 that are not"],
    );
    let build = |count, cpus| PageAllocator::new(Pfn(0), count, cpus, &Default::default()).map(|_| ()).unwrap_err();
    assert_eq!(build(0, 1), FrameAllocError::NoFrames);
    assert!(build(GIB, 0).to_string().contains("0 CPUs"));
    assert!(build(40, 1).to_string().contains("give more memory"), "less memory than the reserves want");
    assert!(
        serde_json::from_str::<PageAllocatorConfig>(r#"{"pcp": {"bach": 3}}"#)
            .unwrap_err()
            .to_string()
            .contains("bach")
    );
    let config: PageAllocatorConfig = serde_json::from_str(r#"{"nodes": [{"memory_bytes": "1GiB"}]}"#).unwrap();
    assert_eq!(config, PageAllocatorConfig { nodes: vec![gib(1, &[])], ..Default::default() });
}

#[test]
fn reservations_span_zones_and_lower_the_watermarks() {
    let config = PageAllocatorConfig { nodes: vec![gib(1, &[]), gib(1, &[])], ..Default::default() };
    let mut allocator = PageAllocator::new(Pfn(0), 2 * GIB, 2, &config).unwrap();
    let before = allocator.watermarks(ZoneIx(1));
    allocator.reserve_range(Pfn(GIB - 7)..Pfn(GIB + GIB / 2)).unwrap();
    assert_eq!([0, 1].map(|z| allocator.zone_status(ZoneIx(z)).reserved_frames), [7, GIB / 2]);
    assert!(allocator.watermarks(ZoneIx(1)).min < before.min);
    let outside = allocator.reserve_range(Pfn(2 * GIB)..Pfn(2 * GIB + 1));
    assert!(matches!(outside, Err(FrameAllocError::ReserveOutside { .. })));
    assert!(matches!(allocator.reserve_range(Pfn(GIB)..Pfn(GIB + 1)), Err(FrameAllocError::ReservedTwice { .. })));
    let all =
        allocator.reserve_range(Pfn(0)..Pfn(GIB - 7)).and(allocator.reserve_range(Pfn(GIB + GIB / 2)..Pfn(2 * GIB)));
    assert!(all.unwrap_err().to_string().contains("watermarks.min_free_bytes"));
    allocator.check_invariants();
}

#[test]
fn wrong_frees_panic() {
    let attempt = |pfn: u64, order: u32| {
        std::panic::catch_unwind(move || {
            let mut allocator = normal(4 * MIB);
            assert_eq!(take(&mut allocator, 0, FramePurpose::UserData).0, Pfn(0));
            give(&mut allocator, Pfn(pfn), order);
        })
        .map_err(|panic| panic.downcast_ref::<String>().unwrap().clone())
    };
    assert_eq!(attempt(0, 0), Ok(()));
    assert!(attempt(1, 0).unwrap_err().contains("on a per-CPU list"));
    assert!(attempt(4, 0).unwrap_err().contains("a free block of order 2"));
    assert!(attempt(0, 1).unwrap_err().contains("a block in use of order 0"));
    assert!(attempt(4 * MIB, 0).unwrap_err().contains("outside the memory"));
}
