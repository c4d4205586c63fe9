use pagelab_trace::quantity::Bytes;

use super::super::super::{FramePurpose, FrameRequest};
use super::super::{PageAllocatorConfig, WatermarkConfig};
use super::*;
use pagelab_base::addr::FRAME_BYTES;
use pagelab_base::ids::CpuId;

const FRAMES: u64 = 1 << 18;

fn fresh() -> PageAllocator {
    let config = PageAllocatorConfig {
        dma32_end_bytes: Bytes(100_003 * FRAME_BYTES),
        watermarks: WatermarkConfig { min_free_bytes: Some(Bytes(1 << 20)), ..WatermarkConfig::default() },
        ..PageAllocatorConfig::default()
    };
    let mut allocator = PageAllocator::new(Pfn(0), FRAMES, 2, &config).unwrap();
    allocator.reserve_range(Pfn(0)..Pfn(4000)).unwrap();
    allocator
}

fn config(free_fraction: f64, huge_free_fraction: f64, unmovable_fraction: f64) -> AgeingConfig {
    AgeingConfig { free_fraction, huge_free_fraction, unmovable_fraction, seed: 7 }
}

/// Counts free and huge free frames by examining every frame.
fn look(allocator: &PageAllocator) -> (u64, u64) {
    let free: Vec<bool> = (0..FRAMES).map(|pfn| allocator.is_free(Pfn(pfn))).collect();
    // The boundary of the zones lies inside a pageblock, which therefore belongs to no block.
    let huge = (0..).zip(free.chunks(512)).filter(|(n, pageblock)| *n != 100_003 / 512 && pageblock.iter().all(|&f| f));
    let huge = huge.count() as u64 * 512;
    (free.iter().filter(|&&f| f).count() as u64, huge)
}

#[test]
fn ageing_reaches_the_requested_state() {
    for (free, huge, unmovable) in
        [(0.3, 0.2, 0.1), (0.05, 0.0, 0.5), (0.9, 0.5, 1.0), (0.5, 0.99, 0.0), (0.0, 0.0, 0.3), (0.02, 1.0, 0.01)]
    {
        let mut allocator = fresh();
        let managed = FRAMES - 4000;
        let aged = allocator.age(&config(free, huge, unmovable)).unwrap();
        allocator.check_invariants();
        assert_eq!(look(&allocator), (aged.free_frames, aged.huge_free_frames));
        let mut taken = 0;
        let mut pinned = 0;
        for block in &aged.blocks {
            taken += 1_u64 << block.order();
            pinned += u64::from(!block.is_movable()) << block.order();
            let zone = &allocator.zones[usize::from(allocator.zone_at(block.pfn()).0)];
            let index = zone.area.used_index(block.pfn(), block.order());
            let is_movable = zone.area.state(index).used_for() == Some(MigrateType::Movable);
            assert_eq!(is_movable, block.is_movable());
        }
        assert_eq!((taken, pinned), (aged.taken_frames, aged.unmovable_frames));
        assert_eq!((aged.managed_frames, aged.free_frames + aged.taken_frames), (managed, managed));
        // Two zones, half a frame and less than a pageblock each.
        let off = |reached: u64, asked: f64, total: u64| (reached as f64 - asked * total as f64).abs();
        assert!(off(aged.free_frames, free, managed) <= 1.0, "{free}: {}", aged.free_fraction());
        assert!(off(aged.huge_free_frames, huge, aged.free_frames) < 1024.0, "{huge}: {}", aged.huge_free_fraction());
        let unmovable_off = off(aged.unmovable_frames, unmovable, aged.taken_frames);
        assert!(unmovable_off < 1024.0, "{unmovable}: {}", aged.unmovable_fraction());
    }
}

#[test]
fn free_memory_lies_in_pieces_of_many_sizes_and_unmovable_contents_together() {
    let mut allocator = fresh();
    let aged = allocator.age(&config(0.4, 0.1, 0.25)).unwrap();
    let blocks: Vec<_> = (0..=8).map(|order| allocator.free_blocks(order)).collect();
    assert!(blocks.is_sorted_by(|smaller, larger| smaller > larger) && blocks[8] > 0, "{blocks:?}");
    let mut of_block = std::collections::BTreeMap::<u64, [u64; 2]>::new();
    for block in &aged.blocks {
        of_block.entry(block.pfn().0 >> 9).or_default()[usize::from(block.is_movable())] += 1 << block.order();
    }
    let mixed = of_block.values().filter(|[pinned, movable]| *pinned > 0 && *movable > 0).count();
    assert!(mixed <= 8, "{mixed} pageblocks of {} are mixed", of_block.len());
    // An unmovable request gets a place of its own type.
    let mut effects = AllocEffects::default();
    allocator.alloc(FrameRequest::new(0, FramePurpose::PageTable), &mut effects).unwrap();
    assert_eq!(effects.steals, 0);
}

#[test]
fn the_seed_decides_and_freeing_restores_all_memory() {
    let age = |seed| {
        let mut allocator = fresh();
        let aged = allocator.age(&AgeingConfig { seed, ..config(0.3, 0.2, 0.1) }).unwrap();
        (allocator, aged)
    };
    let ((mut allocator, aged), (mut again, same), (_, other)) = (age(1), age(1), age(2));
    assert_eq!(aged, same);
    assert_ne!(aged.blocks, other.blocks);
    assert_eq!((aged.free_frames, aged.huge_free_frames), (other.free_frames, other.huge_free_frames));
    let mut effects = AllocEffects::default();
    for _ in 0..1000 {
        let request = FrameRequest::new(0, FramePurpose::UserData);
        assert_eq!(allocator.alloc(request, &mut effects), again.alloc(request, &mut effects), "the lists' order too");
    }
    for block in &other.blocks {
        assert!(block.pfn().0 >= 4000 && block.pfn().0 < FRAMES);
    }
    let (mut allocator, aged) = age(1);
    for block in aged.blocks {
        allocator.free(block.pfn(), block.order(), CpuId(1), &mut effects);
    }
    allocator.drain_per_cpu(&mut effects);
    allocator.check_invariants();
    let blocks = |allocator: &PageAllocator| (0..=10).map(|order| allocator.free_blocks(order)).collect::<Vec<_>>();
    assert_eq!(blocks(&allocator), blocks(&fresh()));
}

#[test]
fn memory_in_use_stays_and_does_not_become_free() {
    let mut allocator = fresh();
    let mut effects = AllocEffects::default();
    let request = FrameRequest::new(9, FramePurpose::KernelObject);
    let kept: Vec<_> = (0..100).map(|_| allocator.alloc(request, &mut effects).unwrap()).collect();
    let refusal = allocator.age(&config(0.9, 0.5, 0.0)).unwrap_err().to_string();
    assert!(refusal.contains("free_fraction: 0.9") && refusal.contains("at most 0.6"), "{refusal}");
    let aged = allocator.age(&config(0.5, 0.5, 0.0)).unwrap();
    assert_eq!(aged.managed_frames, aged.free_frames + aged.taken_frames + 100 * 512);
    for pfn in kept {
        assert!(aged.blocks.iter().all(|block| block.pfn().0 >> 9 != pfn.0 >> 9));
        allocator.free(pfn, 9, CpuId(0), &mut effects);
    }
    allocator.check_invariants();
}

#[test]
fn impossible_states_are_refused_and_change_nothing() {
    let says = |config: AgeingConfig, parts: &[&str]| {
        let mut allocator = fresh();
        let text = allocator.age(&config).unwrap_err().to_string();
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        assert_eq!(allocator.free_frames(), FRAMES - 4000);
    };
    says(config(1.5, 0.0, 0.0), &["free_fraction: 1.5", "0 to 1"]);
    says(config(0.5, -0.1, 0.0), &["huge_free_fraction: -0.1", "0 to 1"]);
    says(config(0.5, 0.1, f64::NAN), &["unmovable_fraction: NaN", "0 to 1"]);
    let mut cut = fresh();
    let mut effects = AllocEffects::default();
    // One frame in use in each of 300 of the 503 whole pageblocks, all in NORMAL or spilt into DMA32.
    for _ in 0..300 {
        let pfn = cut.alloc(FrameRequest::new(9, FramePurpose::UserData), &mut effects).unwrap();
        cut.split_used(pfn, 9, 0);
        (1..512).for_each(|n| cut.free(pfn + n, 0, CpuId(0), &mut effects));
    }
    let text = cut.age(&config(0.9, 0.5, 0.0)).unwrap_err().to_string();
    assert!(text.contains("huge_free_fraction: 0.5") && text.contains("Normal of node 0, which has 16;"), "{text}");
    says(config(1.0, 0.0, 0.0), &["huge_free_fraction: 0", "outside whole pageblocks"]);
    let small = PageAllocatorConfig { max_order: 8, ..PageAllocatorConfig::default() };
    let mut small = PageAllocator::new(Pfn(0), 1 << 14, 1, &small).unwrap();
    let text = small.age(&config(0.5, 0.0, 0.0)).unwrap_err().to_string();
    assert!(text.contains("max_order: 8") && text.contains("9 or more"), "{text}");
}
