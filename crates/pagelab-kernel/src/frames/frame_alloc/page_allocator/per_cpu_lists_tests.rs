use super::super::super::{AllocEffects, FrameAllocator, FramePurpose, FrameRequest};
use super::super::{PageAllocator, PageAllocatorConfig, WatermarkConfig};
use super::{PcpConfig, PerCpuLists};
use pagelab_base::addr::{FRAME_BYTES, Pfn};
use pagelab_base::ids::CpuId;
use pagelab_trace::quantity::Bytes;

const GIB: u64 = (1 << 30) / FRAME_BYTES;

/// A CPU with a zone of its own, and how many frames each acquisition of the zone's lock moved.
struct Cpu {
    allocator: PageAllocator,
    held: Vec<Pfn>,
    moved: Vec<u32>,
}

impl Cpu {
    fn new(frames: u64, watermarks: WatermarkConfig, pcp: PcpConfig) -> Self {
        let dma32_end_bytes = Bytes(0);
        let config = PageAllocatorConfig { dma32_end_bytes, watermarks, pcp, ..PageAllocatorConfig::default() };
        let allocator = PageAllocator::new(Pfn(0), frames, 1, &config).unwrap();
        Self { allocator, held: Vec::new(), moved: Vec::new() }
    }

    fn with(rules: PerCpuLists, high: Option<u32>) -> Self {
        let pcp = PcpConfig { rules: Some(rules), high, ..PcpConfig::default() };
        Self::new(16 * GIB, WatermarkConfig::default(), pcp)
    }

    fn note(&mut self, effects: &AllocEffects) {
        if !effects.zone_locks.is_empty() {
            self.moved.push(effects.moved);
        }
    }

    fn takes(&mut self, frames: u64) -> Vec<u32> {
        for _ in 0..frames {
            let mut effects = AllocEffects::default();
            let request = FrameRequest::new(0, FramePurpose::UserData);
            let Some(pfn) = self.allocator.alloc(request, &mut effects) else { break };
            self.held.push(pfn);
            self.note(&effects);
        }
        std::mem::take(&mut self.moved)
    }

    fn gives(&mut self, frames: usize) -> Vec<u32> {
        for pfn in self.held.split_off(self.held.len() - frames) {
            let mut effects = AllocEffects::default();
            self.allocator.free(pfn, 0, CpuId(0), &mut effects);
            self.note(&effects);
        }
        self.allocator.check_invariants();
        std::mem::take(&mut self.moved)
    }

    fn limits(&self) -> (u32, u32, u32) {
        let limits = &self.allocator.zones[0].limits;
        (limits.batch, limits.high_min, limits.high_max)
    }
}

#[test]
fn each_kernel_has_the_limits_of_its_source() {
    let low = WatermarkConfig::default();
    let limits = |rules, frames| {
        Cpu::new(frames, low.clone(), PcpConfig { rules: Some(rules), ..PcpConfig::default() }).limits()
    };
    assert_eq!(limits(PerCpuLists::Linux4_9, 16 * GIB), (31, 186, 186));
    assert_eq!(limits(PerCpuLists::Linux4_19, 16 * GIB), (63, 378, 378));
    // min_free_kbytes is sqrt(16 Mi * 16) = 16384: 4096 frames; low is a thousandth of 4194304 more.
    assert_eq!(limits(PerCpuLists::Linux6_1, 16 * GIB), (63, 8290, 8290));
    assert_eq!(limits(PerCpuLists::Linux6_12, 16 * GIB), (63, 8290, 524_288));
    // 65536 frames: a quarter of 64 is 16, rounded to 15; low is 512 and a quarter of that.
    assert_eq!(limits(PerCpuLists::Linux4_9, GIB / 4), (15, 90, 90));
    assert_eq!(limits(PerCpuLists::Linux6_12, GIB / 4), (15, 640, 8192));
    // Half a GiB: 31 with either limit of the batch.
    assert_eq!((limits(PerCpuLists::Linux4_9, GIB / 2).0, limits(PerCpuLists::Linux4_19, GIB / 2).0), (31, 31));
}

#[test]
fn only_linux_6_12_takes_ever_larger_batches() {
    for (rules, batch) in [(PerCpuLists::Linux4_9, 31), (PerCpuLists::Linux4_19, 63), (PerCpuLists::Linux6_1, 63)] {
        let moved = Cpu::with(rules, None).takes(10_000);
        assert_eq!(moved, vec![batch; 10_000_usize.div_ceil(batch as usize)], "{rules:?}");
    }
    let doubled = [63, 126, 252, 504, 1008, 2016, 2016, 2016, 2016];
    assert_eq!(Cpu::with(PerCpuLists::Linux6_12, None).takes(10_000), doubled);
    // With a fixed limit of 252 frames, a batch stays on the list, and 189 come at a time.
    assert_eq!(Cpu::with(PerCpuLists::Linux6_12, Some(252)).takes(1000), [63, 126, 189, 189, 189, 189, 189]);
    let scale = |batch_scale_max| {
        let rules = Some(PerCpuLists::Linux6_12);
        let pcp = PcpConfig { rules, batch_scale_max: Some(batch_scale_max), ..PcpConfig::default() };
        Cpu::new(16 * GIB, WatermarkConfig::default(), pcp).takes(1000)
    };
    assert_eq!(scale(0), [63; 16]);
    assert_eq!(scale(2), [63, 126, 252, 252, 252, 252]);
}

#[test]
fn frees_in_a_row_return_more_at_a_time() {
    let gives = |rules, high, frames| {
        let mut cpu = Cpu::with(rules, high);
        cpu.takes(10_000);
        cpu.allocator.drain_per_cpu(&mut AllocEffects::default());
        cpu.gives(frames)
    };
    // The limit is reached by 186 frames, and by 31 more each time.
    assert_eq!(gives(PerCpuLists::Linux4_9, None, 186 + 62), [31; 3]);
    assert_eq!(gives(PerCpuLists::Linux4_19, None, 378 + 126), [63; 3]);
    assert_eq!(gives(PerCpuLists::Linux6_1, Some(252), 252 + 63 + 126 + 189), [63, 126, 189, 189]);
    assert_eq!(gives(PerCpuLists::Linux6_12, Some(252), 252 + 189 + 189), [189; 3]);
    // The limit grew to the 10,080 frames that were taken and 8,290 more: all fit.
    assert_eq!(gives(PerCpuLists::Linux6_12, None, 10_000), Vec::<u32>::new());
}

#[test]
fn a_step_in_the_other_direction_halves_what_grew() {
    let mut cpu = Cpu::with(PerCpuLists::Linux6_12, Some(1_000));
    // 1,000 less the batch is the most.
    assert_eq!(cpu.takes(63 + 126 + 252 + 504), [63, 126, 252, 504]);
    cpu.gives(1);
    // One free: the batch of 1,008 becomes one of 252, since 2 is half of 4, and one frame is listed.
    assert_eq!(cpu.takes(2), [252]);

    let mut cpu = Cpu::with(PerCpuLists::Linux6_1, Some(252));
    cpu.takes(63 * 12);
    // Two exchanges: the next would be of 189. An allocation halves 2 to 1.
    assert_eq!(cpu.gives(252 + 63), [63, 126]);
    cpu.takes(1);
    assert_eq!(cpu.gives(127), [126]);
}

#[test]
fn limits_fall_when_the_zone_is_short() {
    // 64 frames of 16,384 are the min watermark: low is 80 and high 96.
    let watermarks =
        WatermarkConfig { min_free_bytes: Some(Bytes(64 * FRAME_BYTES)), scale_factor: 0, lowmem_reserve_ratio: 0 };
    let pcp = PcpConfig { rules: Some(PerCpuLists::Linux6_12), batch: Some(31), ..PcpConfig::default() };
    let mut cpu = Cpu::new(16_384, watermarks, pcp);
    assert_eq!(cpu.limits(), (31, 124, 2048));
    cpu.takes(3000);
    assert_eq!(cpu.gives(1000), Vec::<u32>::new(), "the list has room for them");
    let mut effects = AllocEffects::default();
    // Blocks do not come from the list.
    for order in (1..=9).rev() {
        while cpu.allocator.alloc(FrameRequest::new(order, FramePurpose::UserData), &mut effects).is_some() {}
    }
    assert!(cpu.allocator.zones[0].is_short);
    // The next frame that is freed gives back as many as were freed in a row, 31 << 5 at most.
    assert_eq!(cpu.gives(1), [992]);
    assert!(!cpu.allocator.zones[0].is_short);
}
