//! Yardsticks for replay rates on the same machine: a simulator that only counts hits, and the accesses themselves.
//!
//! Models: two TLBs and three caches, each an array of sets in recency order. It is the simplest program that counts
//! the same hits: there are no page walks, no faults and no cycles. Entries are searched and moved one by one.
//! Parameters: none. The geometry is the data side of the machine `kabylake-7700hq`, with pages of 4 KiB
//! (`tests/yardstick.rs` compares the counts with the engine's).
//! Deviations: caches are indexed by virtual addresses, and L3 evictions do not affect L1 and L2. An access touches one
//! line, and fetches count as loads. On the host, no access waits for the value of the previous one, even if the
//! workload chases pointers.

use std::{ops::Range, time::Duration};

use pagelab_trace::{Access, AccessKind, Batch, Event, EventKind, Segment, Source, TraceError};
use serde::Serialize;

use crate::sys::thread_cpu_time;

const PAGE_SHIFT: u32 = 12;
const LINE_SHIFT: u32 = 6;

/// Times are this thread's CPU time per timed access.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Yardsticks {
    /// Number of accesses made, timed or not.
    pub accesses: u64,
    /// Misses of all accesses.
    pub misses: Misses,
    /// Time for generating an access; the other times exclude it.
    pub generator_nanoseconds: f64,
    /// Time of the naive simulator per timed access.
    pub naive_nanoseconds: f64,
    /// Time for loading or storing memory of this machine, including page faults. None if the workload needs too much
    /// memory.
    pub host_nanoseconds: Option<f64>,
}

/// Misses that the naive simulator counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Misses {
    /// Misses of the TLBs, from the first level on.
    pub tlb: [u64; 2],
    /// Misses of the caches, from the first level on.
    pub cache: [u64; 3],
}

/// Makes the first accesses of a workload batch by batch: with the naive simulator, then on this machine.
///
/// Timing covers the range `accesses`; it can begin late to skip the first touches of most pages. Workloads that write
/// to more than `most_bytes` of mappings are not executed on this machine. `going` is asked between batches.
///
/// # Errors
/// Those of the source; also if there is no access to time.
pub fn yardsticks(
    source: &mut dyn Source,
    accesses: Range<u64>,
    most_bytes: u64,
    going: &dyn Fn() -> bool,
) -> Result<Yardsticks, TraceError> {
    let (mut naive, mut host) = (Naive::new(), Host::new(most_bytes));
    let [mut generator_time, mut naive_time, mut host_time] = [Duration::ZERO; 3];
    let (mut made, mut timed) = (0, 0);
    let mut batch = Batch::default();
    while made < accesses.end && going() {
        let started = thread_cpu_time();
        let more = source.next_batch(&mut batch)?;
        generator_time += thread_cpu_time() - started;
        if !more {
            break;
        }
        batch.segments.iter().for_each(|segment| host.hear(segment));
        let wanted = accesses.end.saturating_sub(made).min(batch.accesses.len() as u64);
        let early = accesses.start.saturating_sub(made).min(wanted);
        let (untimed, rest) = batch.accesses[..wanted as usize].split_at(early as usize);
        naive.make(untimed);
        host.make(untimed);

        let started = thread_cpu_time();
        naive.make(rest);
        let between = thread_cpu_time();
        host.make(rest);
        naive_time += between - started;
        host_time += thread_cpu_time() - between;
        made += wanted;
        timed += rest.len() as u64;
    }
    if timed == 0 {
        let start = accesses.start;
        return Err(TraceError::usage(format!(
            "there are {made} accesses, and those from {start} on would be timed: begin earlier"
        )));
    }
    let each = |time: Duration, count: u64| time.as_secs_f64() * 1e9 / count as f64;
    Ok(Yardsticks {
        accesses: made,
        misses: naive.misses,
        generator_nanoseconds: each(generator_time, made),
        naive_nanoseconds: each(naive_time, timed),
        host_nanoseconds: host.fits().then(|| each(host_time, timed)),
    })
}

/// Sets of `WAYS` numbers in recency order.
struct Lists<const SETS: usize, const WAYS: usize> {
    sets: Vec<[u64; WAYS]>,
}

impl<const SETS: usize, const WAYS: usize> Lists<SETS, WAYS> {
    fn new() -> Self {
        Self { sets: vec![[u64::MAX; WAYS]; SETS] }
    }

    /// Whether a number is in its set; it moves to the front.
    fn hits(&mut self, number: u64) -> bool {
        let mut before = number;
        for held in &mut self.sets[number as usize % SETS] {
            std::mem::swap(held, &mut before);
            if before == number {
                return true;
            }
        }
        false
    }
}

/// The naive simulator.
struct Naive {
    tlb1: Lists<16, 4>,
    tlb2: Lists<128, 12>,
    cache1: Lists<64, 8>,
    cache2: Lists<1024, 4>,
    cache3: Lists<8192, 12>,
    misses: Misses,
}

impl Naive {
    fn new() -> Self {
        Self {
            tlb1: Lists::new(),
            tlb2: Lists::new(),
            cache1: Lists::new(),
            cache2: Lists::new(),
            cache3: Lists::new(),
            misses: Misses::default(),
        }
    }

    fn make(&mut self, accesses: &[Access]) {
        let Misses { tlb, cache } = &mut self.misses;
        for access in accesses {
            let page = access.vaddr >> PAGE_SHIFT;
            if !self.tlb1.hits(page) {
                tlb[0] += 1;
                if !self.tlb2.hits(page) {
                    tlb[1] += 1;
                }
            }
            let line = access.vaddr >> LINE_SHIFT;
            if !self.cache1.hits(line) {
                cache[0] += 1;
                if !self.cache2.hits(line) {
                    cache[1] += 1;
                    if !self.cache3.hits(line) {
                        cache[2] += 1;
                    }
                }
            }
        }
    }
}

/// Memory of this process that replaces the workload's, indexed by address modulo its size. The size is a power of two,
/// so neighbours stay neighbours, and only pages that the workload accesses are accessed.
struct Host {
    most_bytes: u64,
    /// Total size of all writable mappings so far.
    mapped_bytes: u64,
    words: Vec<u64>,
    sum: u64,
}

impl Host {
    fn new(most_bytes: u64) -> Self {
        Self { most_bytes, mapped_bytes: 0, words: Vec::new(), sum: 0 }
    }

    fn fits(&self) -> bool {
        self.mapped_bytes <= self.most_bytes
    }

    fn hear(&mut self, segment: &Segment) {
        let Segment::Event(Event { kind: EventKind::Mmap { len, prot, .. }, .. }) = segment else { return };
        if prot.write {
            self.mapped_bytes += len;
            // The kernel allocates memory when it is accessed.
            self.words = Vec::new();
        }
    }

    fn make(&mut self, accesses: &[Access]) {
        if !self.fits() || accesses.is_empty() {
            return;
        }
        if self.words.is_empty() {
            let count = self.mapped_bytes / size_of::<u64>() as u64;
            self.words = vec![0; count.next_power_of_two() as usize];
        }
        let last = self.words.len() - 1;
        for access in accesses {
            let word = &mut self.words[(access.vaddr as usize / size_of::<u64>()) & last];
            match access.kind {
                AccessKind::Load | AccessKind::Fetch => self.sum = self.sum.wrapping_add(*word),
                AccessKind::Store => *word = self.sum,
                AccessKind::Modify => *word = word.wrapping_add(1),
            }
        }
        std::hint::black_box((self.sum, &self.words));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_trace::workload;

    const GIB: u64 = 1 << 30;

    fn measured(workload: &str, accesses: Range<u64>, most_bytes: u64) -> Result<Yardsticks, TraceError> {
        yardsticks(&mut *workload::parse(workload, 1).unwrap(), accesses, most_bytes, &|| true)
    }

    #[test]
    fn lists_give_up_what_was_used_longest_ago() {
        let mut lists = Lists::<2, 2>::new();
        let hits: Vec<bool> = [0, 2, 0, 4, 0, 2, 1, 0].into_iter().map(|number| lists.hits(number)).collect();
        // 4 evicts 2, 2 evicts 4, and 1 is in the other set.
        assert_eq!(hits, [false, false, true, false, true, false, false, true]);
    }

    #[test]
    fn all_accesses_are_counted_and_the_last_of_them_timed() {
        let lines = (1 << 20) / 64;
        let found = measured("stride:size=1MiB,stride=64,passes=2", 100..lines, GIB).unwrap();
        assert_eq!(found.accesses, lines);
        assert_eq!(found.misses, Misses { tlb: [256; 2], cache: [lines; 3] });
        assert!(found.generator_nanoseconds > 0.0 && found.naive_nanoseconds > 0.0);
        assert!(found.host_nanoseconds.is_some_and(|time| time > 0.0));
        // In the second pass, the second TLB and the L3 contain everything; the L2 contains a quarter.
        let twice = measured("stride:size=1MiB,stride=64,passes=2", 100..u64::MAX, GIB).unwrap();
        assert_eq!(twice.accesses, 2 * lines);
        assert_eq!(twice.misses, Misses { tlb: [512, 256], cache: [2 * lines, 2 * lines, lines] });
    }

    #[test]
    fn what_needs_too_much_memory_is_not_made_here() {
        let time = |most_bytes| measured("random:size=64MiB", 0..1000, most_bytes).unwrap().host_nanoseconds;
        assert!(time(64 << 20).is_some());
        assert!(time((64 << 20) - 1).is_none());
    }

    /// A loop that omitted accesses would make the machine look fast.
    #[test]
    fn every_access_is_made_in_a_place_of_its_own() {
        let mut source = workload::parse("stride:size=1MiB,stride=64,write=1", 1).unwrap();
        let (mut host, mut batch) = (Host::new(GIB), Batch::default());
        host.sum = 7;
        while source.next_batch(&mut batch).unwrap() {
            batch.segments.iter().for_each(|segment| host.hear(segment));
            host.make(&batch.accesses);
        }
        assert_eq!(host.words.len(), (1 << 20) / 8);
        assert_eq!(host.words.iter().filter(|&&word| word == 7).count(), (1 << 20) / 64);
    }

    #[test]
    fn a_source_that_ends_too_early_is_refused() {
        let error = measured("random:size=1MiB,accesses=1K", 5000..6000, GIB).unwrap_err();
        assert!(error.to_string().contains("1000 accesses, and those from 5000 on"), "{error}");
    }
}
