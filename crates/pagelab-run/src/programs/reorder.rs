//! Other legal orders of a source with several threads.
//!
//! Models: another schedule of the program, as far as the recording shows the order that the program leaves open.
//! Between two events other than edges, and within the window, the runs of all threads are cut into slices and
//! reassembled. Thread order is preserved, and a woken comes after its wake. The next thread is drawn at random among
//! the others, weighted by its remaining accesses. A slice has between 1 access and twice the mean of the recorded
//! runs, so there are about as many slices as recorded runs.
//! Source: A. R. Alameldeen, D. A. Wood, "Variability in Architectural Simulations of Multi-threaded Workloads", HPCA
//! 2003, for the idea of replaying several times.
//! Parameters: `engine.interleaving` (0: as recorded), `engine.seed`, `engine.input_window_accesses`.
//! Deviations: the threads' accesses do not change with their order, although they could in the program. Order that no
//! system call shows (atomic operations, uncontended locks) is not recorded, and so not preserved.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use pagelab_trace::calls::CallStacks;
use pagelab_trace::source::allocations_within;
use pagelab_trace::{Access, Batch, Branches, Event, EventKind, Segment, Source, SourceInfo, ThreadIx, TraceError};

use pagelab_base::rng::Rng;

/// Most accesses of a batch.
const BATCH: usize = 1 << 16;

/// The next action of a thread.
enum Piece {
    /// Accesses of the stretch.
    Run { begin: usize, end: usize },
    /// A wake, with its number within the stretch.
    Wake { event: Event, wake: usize },
    /// A woken, with the number of its wake if that is in the stretch.
    Woken { event: Event, wake: Option<usize> },
}

/// The remaining pieces of a thread in the stretch, and their accesses.
#[derive(Default)]
struct Remaining {
    pieces: VecDeque<Piece>,
    accesses: usize,
}

/// A reordered source, see the module's text.
pub struct Reordered {
    source: Box<dyn Source>,
    rng: Rng,
    window: usize,
    /// The batch that was read, and how much of it is used: segments, and accesses before the next segment.
    read: Batch,
    taken: (usize, usize),
    /// Accesses of the stretch that is being reassembled.
    accesses: Vec<Access>,
    /// Branches before each of them, if known.
    branches: Vec<Branches>,
    /// Contexts of each of them, if known.
    contexts: Vec<u32>,
    /// Allocation events, each with the index of the access that follows it.
    allocations: Vec<(usize, Event)>,
    threads: BTreeMap<ThreadIx, Remaining>,
    /// The thread of the last slice. Another thread gets the next one if possible, since every recorded switch is to
    /// another thread.
    last: Option<ThreadIx>,
    /// Wakes of the stretch that have been delivered.
    woke: BTreeSet<usize>,
    /// Accesses of the longest slice.
    longest: u64,
    /// Accesses delivered.
    position: u64,
}

impl Reordered {
    /// `order` is the number of an order other than the recorded one.
    pub fn new(source: Box<dyn Source>, order: u32, seed: u64, window: u64) -> Self {
        Self {
            source,
            rng: Rng::new(seed, &format!("interleaving {order}")),
            window: usize::try_from(window).unwrap_or(usize::MAX),
            read: Batch::default(),
            taken: (0, 0),
            accesses: Vec::new(),
            branches: Vec::new(),
            contexts: Vec::new(),
            allocations: Vec::new(),
            threads: BTreeMap::new(),
            last: None,
            woke: BTreeSet::new(),
            longest: 1,
            position: 0,
        }
    }

    /// The next segment that was read, if there is one.
    fn peek(&mut self) -> Result<Option<&Segment>, TraceError> {
        if self.taken.0 == self.read.segments.len() {
            self.taken = (0, 0);
            if !self.source.next_batch(&mut self.read)? {
                return Ok(None);
            }
            self.read.validate(&self.source.info().name)?;
        }
        Ok(self.read.segments.get(self.taken.0))
    }

    /// Reads a stretch: everything up to the next event other than an edge, or as much as fits in the window.
    fn read_stretch(&mut self) -> Result<(), TraceError> {
        self.accesses.clear();
        self.branches.clear();
        self.contexts.clear();
        self.allocations.clear();
        self.threads.clear();
        self.woke.clear();
        let (mut wakes, mut wakes_n, mut runs, mut last) = (BTreeMap::new(), 0, 0_u64, None);
        while self.accesses.len() < self.window {
            let (thread, piece) = match self.peek()? {
                None => break,
                Some(&Segment::Run { thread, end }) => {
                    let begin = self.accesses.len();
                    self.accesses.extend_from_slice(&self.read.accesses[self.taken.1..end]);
                    append_branches(&mut self.branches, begin, &self.read.branches, self.taken.1..end);
                    self.contexts.extend_from_slice(self.read.contexts.get(self.taken.1..end).unwrap_or_default());
                    let those = allocations_within(&self.read.allocations, self.taken.1..end).iter();
                    self.allocations.extend(those.map(|(at, event)| (begin + (at - self.taken.1), event.clone())));
                    self.taken.1 = end;
                    runs += u64::from(last.replace(thread) != Some(thread));
                    (thread, Piece::Run { begin, end: self.accesses.len() })
                }
                Some(Segment::Event(event)) => match event.kind {
                    EventKind::Wake { edge } => {
                        wakes.insert(edge, wakes_n);
                        wakes_n += 1;
                        (event.thread, Piece::Wake { event: event.clone(), wake: wakes_n - 1 })
                    }
                    EventKind::Woken { edge } => {
                        (event.thread, Piece::Woken { event: event.clone(), wake: wakes.get(&edge).copied() })
                    }
                    _ => break,
                },
            };
            self.taken.0 += 1;
            let left = self.threads.entry(thread).or_default();
            if let Piece::Run { begin, end } = piece {
                left.accesses += end - begin;
            }
            left.pieces.push_back(piece);
        }
        complete_branches(&mut self.branches, self.accesses.len());
        self.longest = (2 * self.accesses.len() as u64).div_ceil(runs.max(1)).max(1);
        Ok(())
    }

    /// Draws the next thread among those that need not wait. As long as pieces remain there is one: the first remaining
    /// piece in recorded order has no remaining wake before it.
    fn draw(&mut self) -> Option<ThreadIx> {
        let woke = &self.woke;
        let goes_on = |left: &&Remaining| match left.pieces.front() {
            Some(Piece::Woken { wake: Some(wake), .. }) => woke.contains(wake),
            Some(_) => true,
            None => false,
        };
        let weight = |left: &Remaining| left.accesses as u64 + 1;
        let able = || self.threads.iter().filter(|(_, left)| goes_on(left));
        let others = || able().filter(|(thread, _)| self.last != Some(**thread));
        let total: u64 = others().map(|(_, left)| weight(left)).sum();
        self.last = if total == 0 {
            able().next().map(|(thread, _)| *thread)
        } else {
            let mut at = self.rng.below(total);
            others().find_map(|(thread, left)| {
                let here = at < weight(left);
                at = at.saturating_sub(weight(left));
                here.then_some(*thread)
            })
        };
        self.last
    }

    /// Delivers a slice of a thread.
    fn give(&mut self, thread: ThreadIx, batch: &mut Batch) {
        let mut slice = 1 + self.rng.below(self.longest) as usize;
        let left = self.threads.get_mut(&thread).expect("it was drawn");
        while let Some(piece) = left.pieces.front_mut() {
            match piece {
                Piece::Run { begin, end } => {
                    let count = slice.min(*end - *begin);
                    let range = *begin..*begin + count;
                    batch.accesses.extend_from_slice(&self.accesses[range.clone()]);
                    let first = batch.accesses.len() - count;
                    append_branches(&mut batch.branches, first, &self.branches, range.clone());
                    batch.contexts.extend_from_slice(self.contexts.get(range.clone()).unwrap_or_default());
                    let those = allocations_within(&self.allocations, range).iter();
                    batch.allocations.extend(those.map(|(at, event)| (first + (at - *begin), event.clone())));
                    batch.close_run(thread);
                    self.position += count as u64;
                    slice -= count;
                    left.accesses -= count;
                    *begin += count;
                    if begin < end {
                        return;
                    }
                }
                Piece::Wake { event, wake } => {
                    self.woke.insert(*wake);
                    batch.push_event(Event { position: self.position, ..event.clone() });
                }
                Piece::Woken { wake: Some(wake), .. } if !self.woke.contains(wake) => return,
                Piece::Woken { event, .. } => batch.push_event(Event { position: self.position, ..event.clone() }),
            }
            left.pieces.pop_front();
        }
    }
}

/// Appends a range of `branches` to those of the accesses before `first`. Batches with branches may follow others
/// without.
fn append_branches(all: &mut Vec<Branches>, first: usize, branches: &[Branches], range: Range<usize>) {
    if let Some(more) = branches.get(range) {
        all.resize(first, Branches::NONE);
        all.extend_from_slice(more);
    }
}

/// If any access has branches, all of them get some or none.
fn complete_branches(branches: &mut Vec<Branches>, accesses: usize) {
    if !branches.is_empty() {
        branches.resize(accesses, Branches::NONE);
    }
}

impl Source for Reordered {
    fn info(&self) -> &SourceInfo {
        self.source.info()
    }

    fn omit_dependencies(&mut self) {
        self.source.omit_dependencies();
    }

    fn enable_call_stacks(&mut self) -> Result<Option<Arc<CallStacks>>, TraceError> {
        self.source.enable_call_stacks()
    }

    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        batch.clear();
        while batch.accesses.len() < BATCH {
            if let Some(thread) = self.draw() {
                self.give(thread, batch);
                continue;
            }
            match self.peek()? {
                None => break,
                Some(Segment::Event(event))
                    if !matches!(event.kind, EventKind::Wake { .. } | EventKind::Woken { .. }) =>
                {
                    let event = event.clone();
                    self.taken.0 += 1;
                    batch.push_event(event);
                }
                Some(_) => self.read_stretch()?,
            }
        }
        complete_branches(&mut batch.branches, batch.accesses.len());
        Ok(!batch.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_trace::{AccessKind, ProcessIx};
    use proptest::prelude::*;

    struct BatchSource(SourceInfo, std::vec::IntoIter<Batch>);

    impl Source for BatchSource {
        fn info(&self) -> &SourceInfo {
            &self.0
        }

        fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
            *batch = self.1.next().unwrap_or_default();
            Ok(!batch.is_empty())
        }
    }

    fn given(batches: Vec<Batch>) -> Box<dyn Source> {
        let info = SourceInfo {
            name: "given".to_owned(),
            accesses: None,
            threads: 4,
            mappings_inferred: false,
            sampled: false,
            sampling: None,
            dependencies: false,
            branches: false,
            content_hash: None,
        };
        Box::new(BatchSource(info, batches.into_iter()))
    }

    /// Batches with branches between batches without: each access keeps its own, in every order.
    #[test]
    fn branches_stay_with_their_accesses() {
        let batch = |number: u64| {
            let mut batch = Batch::default();
            for thread in 0..2 {
                for at in 0..5 {
                    batch.accesses.push(Access::new(AccessKind::Load, number << 8 | thread << 4 | at, 1));
                }
                batch.close_run(ThreadIx(thread as u32));
            }
            if number % 2 == 1 {
                let with = |access: &Access| {
                    let mut branches = Branches::NONE;
                    branches.push(access.vaddr & 1 != 0);
                    branches
                };
                batch.branches = batch.accesses.iter().map(with).collect();
            }
            batch
        };
        for order in 1..20 {
            let mut source = Reordered::new(given((0..6).map(batch).collect()), order, 1, 25);
            let (mut all, mut some) = (Batch::default(), 0);
            while source.next_batch(&mut all).unwrap() {
                all.validate("test").unwrap();
                for (access, branches) in all.accesses.iter().zip(&all.branches) {
                    let has = access.vaddr >> 8 & 1 != 0;
                    assert_eq!(branches.count() != 0, has, "{access:?}");
                    assert!(!has || branches.outcomes().eq([access.vaddr & 1 != 0]), "{access:?}");
                    some += u32::from(has);
                }
            }
            assert_eq!(some, 30);
        }
    }

    /// An access, by its number, or an event.
    #[derive(Clone, Debug, PartialEq)]
    enum Step {
        Access(u64),
        Event(EventKind),
    }

    fn steps(mut source: Box<dyn Source>) -> Vec<(ThreadIx, Step)> {
        let (mut batch, mut all) = (Batch::default(), Vec::new());
        while source.next_batch(&mut batch).unwrap() {
            let mut at = 0;
            for segment in &batch.segments {
                match segment {
                    Segment::Run { thread, end } => {
                        all.extend(batch.accesses[at..*end].iter().map(|a| (*thread, Step::Access(a.vaddr))));
                        at = *end;
                    }
                    Segment::Event(event) => all.push((event.thread, Step::Event(event.kind.clone()))),
                }
            }
        }
        all
    }

    fn is_barrier(step: &Step) -> bool {
        !matches!(step, Step::Access(_) | Step::Event(EventKind::Wake { .. } | EventKind::Woken { .. }))
    }

    /// A source of threads that make runs, wakes, wokens and barriers.
    fn batches(acts: &[(u32, u64, u8)]) -> Vec<Batch> {
        let (mut all, mut number) = (vec![Batch::default()], 0);
        for &(thread, amount, what) in acts {
            let batch = all.last_mut().unwrap();
            let kind = match what {
                0..=4 => {
                    (0..amount).for_each(|n| batch.accesses.push(Access::new(AccessKind::Load, number + n, 1)));
                    number += amount;
                    batch.close_run(ThreadIx(thread));
                    continue;
                }
                5 | 6 => EventKind::Wake { edge: amount % 3 },
                7 | 8 => EventKind::Woken { edge: amount % 3 },
                9 => EventKind::Munmap { addr: amount, len: 1 },
                _ => {
                    all.push(Batch::default());
                    continue;
                }
            };
            batch.push_event(Event { position: number, process: ProcessIx(0), thread: ThreadIx(thread), kind });
        }
        all.retain(|batch| !batch.is_empty());
        all
    }

    proptest! {
        /// Nothing is lost, threads keep their order, barriers keep their place, and wokens come after their wakes.
        #[test]
        fn other_orders_are_legal(
            acts in prop::collection::vec((0_u32..4, 1_u64..30, 0_u8..12), 1..80),
            order in 1_u32..5,
            window in prop_oneof![Just(1_u64), Just(20), Just(1 << 20)],
        ) {
            let recorded = steps(given(batches(&acts)));
            let other = steps(Box::new(Reordered::new(given(batches(&acts)), order, 1, window)));
            let steps_of_thread = |steps: &[(ThreadIx, Step)], thread| -> Vec<Step> {
                steps.iter().filter(|(owner, step)| *owner == ThreadIx(thread) || is_barrier(step)).map(|s| s.1.clone()).collect()
            };
            for thread in 0..4 {
                prop_assert_eq!(steps_of_thread(&recorded, thread), steps_of_thread(&other, thread));
            }
            // The last wake of its edge before a woken precedes it in both orders; its place in its thread
            // identifies it.
            let places = |steps: &[(ThreadIx, Step)]| -> BTreeMap<(ThreadIx, usize), usize> {
                let mut counts = BTreeMap::<ThreadIx, usize>::new();
                let place = |(at, (thread, _)): (usize, &(ThreadIx, Step))| {
                    let nth = counts.entry(*thread).or_default();
                    *nth += 1;
                    ((*thread, *nth), at)
                };
                steps.iter().enumerate().map(place).collect()
            };
            let (before, after) = (places(&recorded), places(&other));
            let key_of: BTreeMap<usize, (ThreadIx, usize)> = before.iter().map(|(key, at)| (*at, *key)).collect();
            let mut wakes = BTreeMap::new();
            for (at, (_, step)) in recorded.iter().enumerate() {
                match step {
                    Step::Event(EventKind::Wake { edge }) => _ = wakes.insert(*edge, at),
                    Step::Event(EventKind::Woken { edge }) => {
                        if let Some(wake) = wakes.get(edge) {
                            prop_assert!(after[&key_of[wake]] < after[&key_of[&at]]);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn orders_differ_and_are_reproducible() {
        let acts: Vec<(u32, u64, u8)> = (0..40).map(|n| (n % 3, 20, 0)).collect();
        let order = |order| steps(Box::new(Reordered::new(given(batches(&acts)), order, 7, 1 << 20)));
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        assert_ne!(order(1), steps(given(batches(&acts))));
        let switches = |steps: &[(ThreadIx, Step)]| steps.windows(2).filter(|pair| pair[0].0 != pair[1].0).count();
        let mean = (1..20).map(|n| switches(&order(n))).sum::<usize>() / 19;
        assert!((20..=40).contains(&mean), "recorded runs: 39, slices: {mean}");
    }
}
