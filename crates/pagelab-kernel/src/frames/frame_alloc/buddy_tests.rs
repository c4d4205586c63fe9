use pagelab_trace::{case_seed, cases};

use super::super::{FrameAllocator, FramePurpose, FrameRequest, MAX_MAX_ORDER};
use super::*;
use pagelab_base::ids::CpuId;
use pagelab_base::rng::Rng;

/// The algorithm with plain lists and linear searches. The last element of a list is its newest.
struct NaiveBuddy {
    lists: Vec<Vec<u64>>,
    max_order: u32,
}

impl NaiveBuddy {
    /// Queues memory in ascending order from each free range's start, as Linux does at boot.
    fn new(ranges: &[Range<u64>], max_order: u32) -> Self {
        let mut lists = vec![Vec::new(); max_order as usize + 1];
        for range in ranges {
            let mut start = range.start;
            while start < range.end {
                let mut order = start.trailing_zeros().min(max_order);
                while start + (1 << order) > range.end {
                    order -= 1;
                }
                lists[order as usize].push(start);
                start += 1 << order;
            }
        }
        lists.iter_mut().for_each(|list| list.reverse());
        Self { lists, max_order }
    }

    fn alloc(&mut self, order: u32) -> Option<(u64, u32)> {
        let mut size = (order..=self.max_order).find(|&o| !self.lists[o as usize].is_empty())?;
        let pfn = self.lists[size as usize].pop().unwrap();
        let splits = size - order;
        while size > order {
            size -= 1;
            self.lists[size as usize].push(pfn + (1 << size));
        }
        Some((pfn, splits))
    }

    fn alloc_at(&mut self, pfn: u64, order: u32) -> Option<u32> {
        let holds = |&size: &u32| self.lists[size as usize].contains(&(pfn >> size << size));
        let found = (order..=self.max_order).find(holds)?;
        let (mut head, mut size) = (pfn >> found << found, found);
        self.lists[size as usize].retain(|&other| other != head);
        while size > order {
            size -= 1;
            let halves = [head, head + (1 << size)];
            let inner = usize::from(pfn >= halves[1]);
            self.lists[size as usize].push(halves[1 - inner]);
            head = halves[inner];
        }
        Some(found - order)
    }

    /// Runs of free blocks of at least this order, from `rover` on and wrapping around to it.
    fn runs(&self, order: u32, end: u64, rover: u64) -> Vec<Range<u64>> {
        let holds = |size: u32, pfn: u64| self.lists[size as usize].contains(&(pfn >> size << size));
        let free = |pfn: u64| (order..=self.max_order).any(|size| holds(size, pfn));
        let mut runs: Vec<Range<u64>> = Vec::new();
        for pfn in (0..end >> order).map(|n| n << order).filter(|&pfn| free(pfn)) {
            match runs.last_mut().filter(|last| last.end == pfn && pfn != rover) {
                Some(last) => last.end += 1 << order,
                None => runs.push(pfn..pfn + (1 << order)),
            }
        }
        let before = runs.iter().filter(|run| run.start < rover).count();
        runs.rotate_left(before);
        runs
    }

    fn free(&mut self, mut pfn: u64, mut order: u32) -> u32 {
        let mut merges = 0;
        while order < self.max_order {
            let buddy = pfn ^ (1 << order);
            let Some(at) = self.lists[order as usize].iter().position(|&p| p == buddy) else { break };
            self.lists[order as usize].remove(at);
            pfn = pfn.min(buddy);
            order += 1;
            merges += 1;
        }
        self.lists[order as usize].push(pfn);
        merges
    }

    fn free_pages(&self) -> u64 {
        self.lists.iter().enumerate().map(|(order, list)| (list.len() as u64) << order).sum()
    }
}

fn request(order: u32) -> FrameRequest {
    FrameRequest::new(order, FramePurpose::UserData)
}

fn blocks(buddy: &Buddy) -> Vec<u64> {
    (0..=MAX_MAX_ORDER).map(|order| buddy.free_blocks(order)).collect()
}

fn compare_with_naive(first: u64, count: u64, max_order: u32, reserved: &[Range<u64>], operations: u64) {
    let mut buddy = Buddy::new(Pfn(first), count, &BuddyConfig { max_order }).unwrap();
    let mut free_ranges = Vec::new();
    let mut start = first;
    for range in reserved {
        buddy.reserve_range(Pfn(range.start)..Pfn(range.end)).unwrap();
        free_ranges.push(start..range.start);
        start = range.end;
    }
    free_ranges.push(start..first + count);
    let mut naive = NaiveBuddy::new(&free_ranges, max_order);
    let at_start = blocks(&buddy);
    let total = buddy.free_frames();
    assert_eq!(total, count - reserved.iter().map(|r| r.end - r.start).sum::<u64>());
    buddy.check_invariants();

    let mut rng = Rng::new(case_seed(first ^ count << 20), "buddy operations");
    let mut effects = AllocEffects::default();
    let mut held: Vec<(u64, u32)> = Vec::new();
    let mut used = vec![false; count as usize];
    for step in 0..operations {
        effects.clear();
        // Phases that mostly fill and phases that mostly drain, so that memory runs out and coalesces repeatedly.
        let filling = (step / 20_000) % 2 == 0;
        if rng.below(100) < if filling { 70 } else { 30 } {
            // Small orders dominate as in a kernel; one above max_order occurs.
            let order = (rng.next_u64().trailing_zeros() / 2).min(max_order + 1);
            if order > max_order {
                assert_eq!(buddy.alloc(request(order), &mut effects), None);
                continue;
            }
            let expected = naive.alloc(order);
            let got = buddy.alloc(request(order), &mut effects);
            assert_eq!(got, expected.map(|(pfn, _)| Pfn(pfn)), "step {step}, order {order}");
            let Some((pfn, splits)) = expected else { continue };
            assert_eq!((effects.splits, effects.merges), (splits, 0));
            assert_eq!(effects.descriptors[0], Pfn(pfn));
            assert_eq!(pfn % (1 << order), 0);
            for frame in &mut used[(pfn - first) as usize..][..1 << order] {
                assert!(!std::mem::replace(frame, true), "step {step}: frame given out twice");
            }
            held.push((pfn, order));
        } else if rng.below(8) == 0 {
            let order = (rng.next_u64().trailing_zeros() / 2).min(max_order);
            let pfn = (first + rng.below(count)) >> order << order;
            let expected = naive.alloc_at(pfn, order);
            assert_eq!(buddy.alloc_at(Pfn(pfn), request(order), &mut effects), expected.is_some(), "step {step}");
            let Some(splits) = expected else {
                assert_eq!(effects, AllocEffects::default(), "nothing has changed");
                continue;
            };
            assert_eq!((effects.splits, effects.merges), (splits, 0));
            used[(pfn - first) as usize..][..1 << order].fill(true);
            held.push((pfn, order));
        } else if !held.is_empty() {
            let (pfn, order) = held.swap_remove(rng.below(held.len() as u64) as usize);
            used[(pfn - first) as usize..][..1 << order].fill(false);
            if order > 0 && rng.below(16) == 0 {
                buddy.split_used(Pfn(pfn), order, order - 1);
                held.push((pfn + (1 << (order - 1)), order - 1));
                used[(pfn - first) as usize + (1 << (order - 1))..][..1 << (order - 1)].fill(true);
                buddy.free(Pfn(pfn), order - 1, CpuId(0), &mut effects);
                assert_eq!((effects.splits, effects.merges), (0, naive.free(pfn, order - 1)));
            } else {
                buddy.free(Pfn(pfn), order, CpuId(0), &mut effects);
                assert_eq!((effects.splits, effects.merges), (0, naive.free(pfn, order)));
            }
            assert!(effects.descriptors.len() > effects.merges as usize);
        }
        assert_eq!(buddy.free_frames(), naive.free_pages());
        if step % 9973 == 0 {
            buddy.check_invariants();
            for order in 0..=max_order {
                assert_eq!(buddy.free_blocks(order), naive.lists[order as usize].len() as u64);
            }
            for order in [max_order, max_order / 2] {
                // As a hint for the next search: the end of a block.
                let rover = ((first + rng.below(count)) >> order << order).max(first);
                buddy.set_rover(Pfn(rover));
                let runs = naive.runs(order, first + count, rover);
                let len = |run: &Range<u64>| run.end - run.start;
                let most = runs.iter().map(len).max().unwrap_or(0);
                for frames in [1, 1 << order, 3 << order, count] {
                    let expected = runs.iter().find(|run| len(run) >= frames.min(most));
                    let found =
                        buddy.find_run(order, frames, CpuId(0), &mut Vec::new()).map(|run| run.start.0..run.end.0);
                    assert_eq!(found.as_ref().map(|run| run.start), expected.map(|run| run.start), "{frames} frames");
                    assert!(found.is_none_or(|run| len(&run) >= frames.min(most) && run.end <= expected.unwrap().end));
                }
            }
            for (offset, used) in used.iter().enumerate() {
                let pfn = first + offset as u64;
                let reserved = reserved.iter().any(|r| r.contains(&pfn));
                assert_eq!(buddy.is_free(Pfn(pfn)), !used && !reserved, "{pfn:#x}");
            }
        }
    }
    for (pfn, order) in held {
        buddy.free(Pfn(pfn), order, CpuId(0), &mut effects);
    }
    buddy.check_invariants();
    assert_eq!((buddy.free_frames(), blocks(&buddy)), (total, at_start), "memory is coalesced as at the start");
}

#[test]
fn equals_the_naive_model() {
    compare_with_naive(0, 4096, 10, &[], cases(400_000));
    compare_with_naive(
        0x1_0007,
        3001,
        10,
        &[0x1_0010..0x1_0020, 0x1_0020..0x1_0021, 0x1_0500..0x1_0833],
        cases(400_000),
    );
    compare_with_naive(13, 700, 5, &[13..14, 712..713], cases(200_000));
    compare_with_naive(5, 100, 0, &[], cases(100_000));
    compare_with_naive((1 << 18) - 100, 2500, 18, &[], cases(200_000));
}

#[test]
fn first_allocations_ascend_and_large_pages_are_whole() {
    let mut buddy = Buddy::new(Pfn(0), 2 << 18, &BuddyConfig { max_order: 18 }).unwrap();
    let mut effects = AllocEffects::default();
    let mut alloc = |order| buddy.alloc(request(order), &mut effects);
    assert_eq!(
        (alloc(0), alloc(0), alloc(9), alloc(18)),
        (Some(Pfn(0)), Some(Pfn(1)), Some(Pfn(512)), Some(Pfn(1 << 18)))
    );
    assert_eq!((alloc(18), alloc(19)), (None, None));
    assert_eq!(effects.splits, 18);
    assert_eq!(buddy.free_frames(), (1 << 18) - 2 - 512);
}

#[test]
fn effects_name_the_descriptors_that_linux_touches() {
    let mut buddy = Buddy::new(Pfn(8), 8, &BuddyConfig { max_order: 3 }).unwrap();
    let mut effects = AllocEffects::default();
    assert_eq!(buddy.alloc(request(1), &mut effects), Some(Pfn(8)));
    assert_eq!(effects, AllocEffects { splits: 2, descriptors: vec![Pfn(8), Pfn(12), Pfn(10)], ..Default::default() });
    assert_eq!(buddy.alloc(request(0), &mut effects), Some(Pfn(10)));
    effects.clear();
    // Frees 10, which merges with 11; freeing 8 then merges with 10 and 12.
    buddy.free(Pfn(10), 0, CpuId(0), &mut effects);
    buddy.free(Pfn(8), 1, CpuId(0), &mut effects);
    assert_eq!((effects.splits, effects.merges), (0, 3));
    assert_eq!(effects.descriptors, [11, 10, 10, 12, 8].map(Pfn));
}

#[test]
fn reservations_are_checked() {
    let mut buddy = Buddy::new(Pfn(100), 100, &BuddyConfig::default()).unwrap();
    let mut reserve = |start, end| buddy.reserve_range(Pfn(start)..Pfn(end));
    assert_eq!(reserve(120, 130), Ok(()));
    assert_eq!(reserve(150, 150), Ok(()));
    assert_eq!(reserve(110, 120), Ok(()));
    assert!(matches!(reserve(129, 131), Err(FrameAllocError::ReservedTwice { taken: Pfn(129), .. })));
    assert!(matches!(reserve(105, 115), Err(FrameAllocError::ReservedTwice { taken: Pfn(110), .. })));
    assert!(matches!(reserve(99, 101), Err(FrameAllocError::ReserveOutside { .. })));
    assert!(matches!(reserve(199, 201), Err(FrameAllocError::ReserveOutside { .. })));
    assert_eq!((buddy.free_frames(), buddy.reserved_frames()), (80, 20));
    buddy.check_invariants();
    assert!(!buddy.is_free(Pfn(125)) && buddy.is_free(Pfn(130)) && !buddy.is_free(Pfn(200)));
    buddy.alloc(request(0), &mut AllocEffects::default()).unwrap();
    assert!(matches!(buddy.reserve_range(Pfn(150)..Pfn(151)), Err(FrameAllocError::ReserveAfterBoot { .. })));
}

#[test]
fn impossible_memories_are_refused() {
    let build = |first, count, max_order| Buddy::new(Pfn(first), count, &BuddyConfig { max_order }).map(|_| ());
    assert_eq!(build(0, 0, 10), Err(FrameAllocError::NoFrames));
    assert_eq!(build(0, 1, 19), Err(FrameAllocError::MaxOrder { max_order: 19 }));
    assert!(matches!(build(0, 1 << 32, 10), Err(FrameAllocError::TooLarge { .. })));
    assert!(matches!(build(u64::MAX, 2, 10), Err(FrameAllocError::TooLarge { .. })));
    assert!(serde_json::from_str::<BuddyConfig>(r#"{"max_ordr": 3}"#).is_err());
    assert_eq!(serde_json::from_str::<BuddyConfig>("{}").unwrap().max_order, 10);
}

#[test]
fn wrong_frees_panic() {
    let attempt = |pfn: u64, order: u32| {
        std::panic::catch_unwind(move || {
            let mut buddy = Buddy::new(Pfn(64), 64, &BuddyConfig::default()).unwrap();
            let mut effects = AllocEffects::default();
            assert_eq!(buddy.alloc(request(2), &mut effects), Some(Pfn(64)));
            assert_eq!(buddy.alloc(request(0), &mut effects), Some(Pfn(68)));
            buddy.free(Pfn(68), 0, CpuId(0), &mut effects);
            buddy.free(Pfn(pfn), order, CpuId(0), &mut effects);
        })
        .map_err(|panic| panic.downcast_ref::<String>().unwrap().clone())
    };
    assert_eq!(attempt(64, 2), Ok(()));
    assert!(attempt(68, 0).unwrap_err().contains("a free block of order 2"), "double free");
    assert!(attempt(64, 0).unwrap_err().contains("a block in use of order 2"), "wrong order");
    assert!(attempt(65, 0).unwrap_err().contains("not the head of a block"), "inside a block");
    assert!(attempt(72, 3).unwrap_err().contains("a free block of order 3"), "never handed out");
    assert!(attempt(63, 0).unwrap_err().contains("outside the memory"));
    assert!(attempt(128, 0).unwrap_err().contains("outside the memory"));
}
