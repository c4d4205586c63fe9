//! Host memory used by the allocator of a large machine. Only one test: it reads the peak of its process.

use pagelab_engine::base::addr::Pfn;
use pagelab_engine::kernel::frames::frame_alloc::{
    AgeingConfig, AllocEffects, FrameAllocator, FramePurpose, FrameRequest, PageAllocator, PageAllocatorConfig,
};

/// Peak resident memory of this process, bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells a process of its memory");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its peak too");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("in kB") * 1024
}

#[test]
fn memory_of_64_gib_takes_a_few_bytes_a_frame() {
    let frames = 64 << 18;
    let before = peak();
    let mut allocator = PageAllocator::new(Pfn(0), frames, 8, &PageAllocatorConfig::default()).unwrap();
    // The page descriptors: 64 bytes a frame.
    allocator.reserve_range(Pfn(0)..Pfn(frames / 64)).unwrap();
    assert!(peak() - before < 10_000_000, "untouched memory takes {} bytes", peak() - before);

    let config = AgeingConfig { free_fraction: 0.3, huge_free_fraction: 0.2, unmovable_fraction: 0.1, seed: 1 };
    let aged = allocator.age(&config).unwrap();
    let taken = peak() - before;
    println!("{} MB, of them {} MB for {} aged blocks", taken >> 20, aged.blocks.len() >> 17, aged.blocks.len());
    // Five bytes per frame where free memory is fragmented, one elsewhere.
    assert!(taken < 4 * frames, "{taken} bytes");

    // Frames of faults: single ones, from one CPU's lists.
    let mut effects = AllocEffects::default();
    let start = allocator.free_frames();
    for _ in 0..1_000_000 {
        effects.clear();
        allocator.alloc(FrameRequest::new(0, FramePurpose::UserData), &mut effects).expect("a fifth is free");
    }
    assert_eq!(start - allocator.free_frames(), 1_000_000 + allocator.per_cpu_frames());
    assert!(peak() - before < 5 * frames, "{} bytes", peak() - before);
}
