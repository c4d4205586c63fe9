//! Passes that report free blocks, compared with the lists of Linux as plain queues.

use std::collections::{BTreeSet, VecDeque};

use pagelab_trace::{case_seed, cases};

use super::*;
use pagelab_base::rng::Rng;

/// Free blocks by order, youngest first, and whether they have been reported.
struct Naive {
    lists: Vec<VecDeque<(u64, bool)>>,
    free: u64,
}

impl Naive {
    fn new(frames: u64, max_order: u32) -> Self {
        let mut lists = vec![VecDeque::new(); max_order as usize + 1];
        lists[max_order as usize] = (0..frames >> max_order).map(|n| (n << max_order, false)).collect();
        Self { lists, free: frames }
    }

    fn alloc(&mut self, order: u32) -> Option<u64> {
        let mut size = (order as usize..self.lists.len()).find(|&size| !self.lists[size].is_empty())?;
        let (pfn, _) = self.lists[size].pop_front()?;
        while size > order as usize {
            size -= 1;
            self.lists[size].push_front((pfn + (1 << size), false));
        }
        self.free -= 1 << order;
        Some(pfn)
    }

    fn merge(&mut self, mut pfn: u64, mut order: u32) -> (u64, u32) {
        self.free += 1 << order;
        while (order as usize) < self.lists.len() - 1 {
            let list = &mut self.lists[order as usize];
            let Some(at) = list.iter().position(|&(other, _)| other == pfn ^ (1 << order)) else { break };
            list.remove(at);
            pfn &= !(1 << order);
            order += 1;
        }
        (pfn, order)
    }

    fn put_back(&mut self, blocks: &mut Vec<(u64, u32)>) {
        for (pfn, order) in blocks.drain(..) {
            let (first, whole) = self.merge(pfn, order);
            self.lists[whole as usize].push_back((first, whole == order));
        }
    }

    /// A pass; returns its requests, and whether it goes on later.
    fn pass(&mut self, least: u32, capacity: usize) -> (Vec<Vec<(u64, u32)>>, bool) {
        let (mut requests, mut batch, mut goes_on) = (Vec::new(), Vec::new(), false);
        if self.free <= (capacity as u64) << least {
            return (requests, false);
        }
        for order in least..self.lists.len() as u32 {
            let mut budget = self.lists[order as usize].len().div_ceil(capacity * 16) as i64;
            let mut at = 0;
            while let Some(&(pfn, reported)) = self.lists[order as usize].get(at) {
                if reported {
                    at += 1;
                    continue;
                }
                let full = batch.len() == capacity;
                if budget < 0 || !full && self.free <= 1 << order {
                    goes_on |= budget < 0;
                    self.lists[order as usize].rotate_left(at);
                    break;
                }
                if full {
                    self.lists[order as usize].rotate_left(at);
                    requests.push(batch.clone());
                    self.put_back(&mut batch);
                    (budget, at) = (budget - 1, 0);
                } else {
                    self.lists[order as usize].remove(at);
                    self.free -= 1 << order;
                    batch.push((pfn, order));
                }
            }
        }
        if !batch.is_empty() {
            requests.push(batch.clone());
            self.put_back(&mut batch);
        }
        (requests, goes_on)
    }
}

/// The requests of a pass, all carried out, and whether it goes on later.
fn pass(allocator: &mut dyn FrameAllocator, capacity: usize) -> (Vec<Vec<(u64, u32)>>, bool) {
    let (mut pass, mut requests) = (ReportPass::new(capacity), Vec::new());
    let mut effects = AllocEffects::default();
    while allocator.isolate_unreported(&mut pass, &mut effects) {
        requests.push(pass.batch.iter().map(|&(pfn, order)| (pfn.0, order)).collect());
        allocator.check_invariants();
        allocator.put_back_reported(&pass.batch, &mut effects);
        pass.batch.clear();
    }
    assert!(!effects.is_to_be_reported, "what is put back is no reason for a pass");
    (requests, pass.goes_on)
}

#[test]
fn passes_are_those_of_linux_lists() {
    let mut reported = 0;
    for seed in 0..cases(6) {
        let (frames, max_order) = (1 << 12, 6);
        let mut rng = Rng::new(case_seed(seed), "reports");
        let (least, capacity) = (rng.below(6) as u32, 1 + rng.below(5) as usize);
        let mut buddy = Buddy::new(Pfn(0), frames, &BuddyConfig { max_order }).unwrap();
        let mut naive = Naive::new(frames, max_order);
        let (mut held, mut effects) = (Vec::new(), AllocEffects::default());
        let tracks_from = rng.below(500);
        for step in 0..4000 {
            if step == tracks_from {
                buddy.track_reports(least);
            }
            effects.clear();
            match rng.below(100) {
                0..50 => {
                    let order = rng.below(5) as u32;
                    let taken = buddy.alloc(FrameRequest::new(order, FramePurpose::UserData), &mut effects);
                    assert_eq!(taken.map(|pfn| pfn.0), naive.alloc(order), "seed {seed}, step {step}");
                    held.extend(taken.map(|pfn| (pfn, order)));
                }
                50..97 if !held.is_empty() => {
                    let (pfn, order) = held.swap_remove(rng.below(held.len() as u64) as usize);
                    buddy.free(pfn, order, CpuId::FIRST, &mut effects);
                    let (first, whole) = naive.merge(pfn.0, order);
                    naive.lists[whole as usize].push_front((first, false));
                    let due = step >= tracks_from && whole >= least;
                    assert_eq!(effects.is_to_be_reported, due, "seed {seed}, step {step}");
                }
                _ if step >= tracks_from => {
                    let requests = pass(&mut buddy, capacity);
                    reported += requests.0.iter().map(Vec::len).sum::<usize>();
                    assert_eq!(requests, naive.pass(least, capacity), "seed {seed}, step {step}");
                }
                _ => {}
            }
            if step % 50 == 0 {
                buddy.check_invariants();
            }
        }
    }
    assert!(reported > 1000, "{reported} blocks");
}

#[test]
fn each_free_block_of_a_zone_is_reported_once_until_it_is_used() {
    let frames = 4 << 10;
    let mut pages = PageAllocator::new(Pfn(0), frames, 1, &PageAllocatorConfig::default()).unwrap();
    pages.track_reports(9);
    let all = |requests: &[Vec<(u64, u32)>]| requests.iter().flatten().copied().collect::<BTreeSet<_>>();
    let (requests, _) = pass(&mut pages, 2);
    assert_eq!(all(&requests), (0..4).map(|n| (n << 10, 10)).collect());
    assert_eq!(requests.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
    assert_eq!(pass(&mut pages, 2), (Vec::new(), false), "all are reported");
    // A frame is taken from a block: its upper half of order 9 is a new block.
    let mut effects = AllocEffects::default();
    let frame = pages.alloc(FrameRequest::new(0, FramePurpose::PageTable), &mut effects).unwrap();
    let (requests, _) = pass(&mut pages, 2);
    assert_eq!(all(&requests), BTreeSet::from([((frame.0 >> 10 << 10) + 512, 9)]));
    // It is given back, and the whole block is reported again.
    pages.free(frame, 0, CpuId::FIRST, &mut effects);
    pages.drain_per_cpu(&mut effects);
    assert!(effects.is_to_be_reported);
    assert_eq!(all(&pass(&mut pages, 2).0), BTreeSet::from([(frame.0 >> 10 << 10, 10)]));
    // A request needs more free memory than the low watermark and itself.
    let mut short = ReportPass::new(8);
    assert!(!pages.isolate_unreported(&mut short, &mut effects));
    assert_eq!(short.short, 1);
}
