//! Streams of accesses, the threads that make them, and the source composed of both.

use super::layout::{Layout, Site};
use crate::{Access, Batch, Event, EventKind, ProcessIx, Segment, Source, SourceInfo, ThreadIx, TraceError};

/// Target number of accesses of a batch: 24 KiB, so that the generator's output is still in or near the host's
/// first-level cache when the engine reads it.
pub(super) const BATCH_ACCESSES: usize = 1024;
/// Minimum number of accesses in a thread's turn.
pub(super) const MIN_RUN: usize = 256;

/// The result of a workload's `build`.
pub(super) struct Plan {
    pub layout: Layout,
    pub program: Box<dyn Program>,
    /// Number of accesses of the whole program, if known.
    pub accesses: Option<u64>,
    pub threads: u32,
    /// Whether accesses contain the load that their address depends on.
    pub dependencies: bool,
}

/// The accesses of all threads of a program.
pub(super) trait Program: Send {
    /// Replaces the accesses of `batch`, whose list of segments is empty, and appends their runs as segments, with
    /// events between them; the caller sets their positions. No segment means the end.
    fn next(&mut self, batch: &mut Batch) -> Result<(), TraceError>;
}

/// The endless accesses of one thread. An access whose address was loaded contains the distance to that load
/// ([`Access::after`]).
pub(super) trait Stream: Send {
    /// Minimum number of slots that [`Stream::fill`] needs.
    fn unit(&self) -> usize {
        1
    }

    /// Overwrites `out`, which has at least [`Stream::unit`] slots, from its beginning; returns the number of accesses
    /// written, at least one.
    fn fill(&mut self, out: &mut [Access]) -> usize;
}

/// Stores to every word of a part of an array, from its beginning: the initialisation of an array by a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Initialise {
    next: u64,
    left: u64,
    step: u64,
    site: Site,
}

impl Initialise {
    /// `count` stores at `site`, `step` bytes apart, from `start` on.
    pub fn new(site: Site, start: u64, step: u64, count: u64) -> Self {
        Self { next: start, left: count, step, site }
    }

    pub fn left(&self) -> u64 {
        self.left
    }

    /// Overwrites `out` from its beginning with the stores that are left; returns how many it wrote.
    pub fn fill(&mut self, out: &mut [Access]) -> usize {
        let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(out.len());
        let (start, step, site) = (self.next, self.step, self.site);
        for (slot, index) in out[..count].iter_mut().zip(0..) {
            *slot = site.store(start + index * step);
        }
        self.next += count as u64 * step;
        self.left -= count as u64;
        count
    }
}

/// The work of one thread: it initialises its parts of the arrays, then takes accesses from its stream.
pub(super) struct Worker<S> {
    pub initialise: Vec<Initialise>,
    pub stream: S,
    /// Number of accesses left to take from the stream.
    pub accesses: u64,
}

impl<S> Worker<S> {
    /// Number of accesses that the worker still makes.
    fn left(&self) -> u64 {
        self.accesses + self.initialise.iter().map(Initialise::left).sum::<u64>()
    }
}

/// Threads that take turns of one run each.
struct Threads<S> {
    workers: Vec<Worker<S>>,
    run: usize,
}

impl<S: Stream> Program for Threads<S> {
    fn next(&mut self, batch: &mut Batch) -> Result<(), TraceError> {
        // Only slots that the batch never had are initialised before they are overwritten.
        let slots = self.run * self.workers.len();
        if batch.accesses.len() < slots {
            batch.accesses.resize(slots, Access::new(crate::AccessKind::Load, 0, 1));
        }
        let mut end = 0;
        for (worker, thread) in self.workers.iter_mut().zip(0..) {
            let out = &mut batch.accesses[end..end + self.run];
            let mut filled = 0;
            while let Some(initialise) = worker.initialise.last_mut()
                && filled < out.len()
            {
                filled += initialise.fill(&mut out[filled..]);
                if initialise.left() == 0 {
                    worker.initialise.pop();
                }
            }
            if worker.accesses > 0 && out.len() - filled >= worker.stream.unit() {
                // Accesses of the stream beyond the thread's last one are dropped.
                let made = (worker.stream.fill(&mut out[filled..]) as u64).min(worker.accesses);
                worker.accesses -= made;
                filled += made as usize;
            }
            if filled > 0 {
                end += filled;
                batch.segments.push(Segment::Run { thread: ThreadIx(thread), end });
            }
        }
        batch.accesses.truncate(end);
        Ok(())
    }
}

/// A plan with one worker per thread. `initialise` of each worker is executed in the given order.
pub(super) fn plan<S: Stream + 'static>(layout: Layout, mut workers: Vec<Worker<S>>) -> Plan {
    let accesses = workers.iter().map(Worker::left).sum();
    let unit = workers.iter().map(|w| w.stream.unit()).max().unwrap_or(1);
    let run = (BATCH_ACCESSES / workers.len().max(1)).max(MIN_RUN).max(unit);
    workers.iter_mut().for_each(|worker| worker.initialise.reverse());
    let threads = workers.len() as u32;
    Plan { layout, program: Box::new(Threads { workers, run }), accesses: Some(accesses), threads, dependencies: true }
}

/// A workload as a source: the mappings, the program, the exit.
pub(super) struct Synthetic {
    info: SourceInfo,
    program: Box<dyn Program>,
    prologue: Vec<Event>,
    position: u64,
    over: bool,
}

impl Synthetic {
    pub fn new(spec: &str, plan: Plan) -> Self {
        let info = SourceInfo {
            name: spec.to_owned(),
            accesses: plan.accesses,
            threads: plan.threads,
            mappings_inferred: false,
            sampled: false,
            sampling: None,
            dependencies: plan.dependencies,
            branches: false,
            content_hash: None,
        };
        Self { info, program: plan.program, prologue: plan.layout.into_events(), position: 0, over: false }
    }
}

/// Sets the positions of a program's events in the stream; `position` accesses came before the batch.
fn place_events(batch: &mut Batch, position: u64) {
    let mut before = position;
    for segment in &mut batch.segments {
        match segment {
            Segment::Run { end, .. } => before = position + *end as u64,
            Segment::Event(event) => event.position = before,
        }
    }
}

impl Source for Synthetic {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        batch.segments.clear();
        if !self.prologue.is_empty() {
            batch.accesses.clear();
            batch.segments.extend(self.prologue.drain(..).map(Segment::Event));
            return Ok(true);
        }
        if self.over {
            batch.accesses.clear();
            return Ok(false);
        }
        self.program.next(batch)?;
        place_events(batch, self.position);
        self.position += batch.accesses.len() as u64;
        if batch.segments.is_empty() {
            batch.accesses.clear();
            let event =
                |thread, kind| Event { position: self.position, process: ProcessIx(0), thread: ThreadIx(thread), kind };
            for thread in (0..self.info.threads).rev() {
                batch.push_event(event(thread, EventKind::ThreadExit));
            }
            batch.push_event(event(0, EventKind::Exit { code: 0 }));
            self.over = true;
        }
        Ok(true)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{MapFlags, Protection, workload};

    /// All accesses of a source with their threads, and its events; checks what holds of every workload.
    pub fn replay(spec: &str, seed: u64) -> (Vec<(u32, Access)>, Vec<Event>) {
        let mut source = workload::parse(spec, seed).unwrap();
        let (mut accesses, mut events) = (Vec::new(), Vec::new());
        let mut batch = Batch::default();
        while source.next_batch(&mut batch).unwrap() {
            assert!(!batch.segments.is_empty(), "{spec}: a batch without segments");
            let mut begin = 0;
            for segment in &batch.segments {
                match segment {
                    Segment::Run { thread, end } => {
                        assert!(*end > begin, "{spec}: an empty run");
                        accesses.extend(batch.accesses[begin..*end].iter().map(|&a| (thread.0, a)));
                        begin = *end;
                    }
                    Segment::Event(event) => {
                        assert_eq!(event.position, accesses.len() as u64, "{spec}: {event:?}");
                        events.push(event.clone());
                    }
                }
            }
            assert_eq!(begin, batch.accesses.len(), "{spec}: accesses outside any run");
        }
        assert!(batch.is_empty() && !source.next_batch(&mut batch).unwrap());
        if let Some(count) = source.info().accesses {
            assert_eq!(count, accesses.len() as u64, "{spec}");
        }
        check_mappings(spec, &accesses, &events);
        (accesses, events)
    }

    /// Every access and program counter lies in a mapping that is there at the time and allows it, and mappings do not
    /// overlap.
    fn check_mappings(spec: &str, accesses: &[(u32, Access)], events: &[Event]) {
        let mut mappings = BTreeMap::new();
        let mut events = events.iter().peekable();
        for (position, (_, access)) in accesses.iter().enumerate() {
            while let Some(event) = events.next_if(|event| event.position <= position as u64) {
                apply(spec, &mut mappings, &event.kind);
            }
            let find = |from: u64, to: u64| {
                let (_, (end, prot)) = mappings.range(..=from).next_back()?;
                (to <= *end).then_some(*prot)
            };
            let prot: Option<Protection> = find(access.vaddr, access.vaddr + u64::from(access.size_bytes));
            assert!(prot.is_some_and(|p| p.read && p.write), "{spec}: {access:x?}");
            assert!(find(access.pc, access.pc + 1).is_some_and(|p| p.execute), "{spec}: {access:x?}");
        }
        events.for_each(|event| apply(spec, &mut mappings, &event.kind));
    }

    /// Keeps the mappings, by their beginnings, up to date.
    fn apply(spec: &str, mappings: &mut BTreeMap<u64, (u64, Protection)>, event: &EventKind) {
        match *event {
            EventKind::Mmap { addr, len, prot, .. } => {
                let before = mappings.range(..addr + len).next_back();
                assert!(before.is_none_or(|(_, (end, _))| *end <= addr), "{spec}: {event:x?} over {before:x?}");
                mappings.insert(addr, (addr + len, prot));
            }
            EventKind::Munmap { addr, len } => {
                let gone = mappings.remove(&addr);
                assert!(gone.is_some_and(|(end, _)| end == addr + len), "{spec}: {event:x?} of {gone:x?}");
            }
            _ => {}
        }
    }

    /// The files that were mapped beside the program itself, in that order: name, address, length.
    pub fn files(events: &[Event]) -> Vec<(String, u64, u64)> {
        let mapped = events.iter().filter_map(|e| match &e.kind {
            EventKind::Mmap { addr, len, file: Some(name), flags, .. } if flags.contains(MapFlags::SHARED) => {
                Some((name.to_string(), *addr, *len))
            }
            _ => None,
        });
        mapped.collect()
    }

    /// The addresses of the arrays, in the order in which they were mapped, with their lengths.
    pub fn arrays(events: &[Event]) -> Vec<(u64, u64)> {
        let mapped = events.iter().filter_map(|e| match &e.kind {
            EventKind::Mmap { addr, len, file: None, .. } => Some((*addr, *len)),
            _ => None,
        });
        mapped.collect()
    }

    /// Number of distinct 4 KiB pages.
    pub fn pages(accesses: &[(u32, Access)]) -> usize {
        accesses.iter().map(|(_, a)| a.vaddr >> 12).collect::<std::collections::HashSet<_>>().len()
    }

    const SMALL: [&str; 22] = [
        "seq:size=64K,write=0.5",
        "stride:size=64K,passes=2",
        "random:size=1M,accesses=3000,write=0.3",
        "random:size=1M,accesses=3000,every=8",
        "semirandom:size=1M,accesses=3001",
        "seq:size=64K,step=4K,write=0.5,between=1000",
        "chase:size=100000",
        "zipf:size=1M,accesses=3000",
        "mapped-read:size=1M,operations=100,write=0.3",
        "mapped-read:size=1M,operations=100,pattern=sequential,threads=2,block=1000,lines=3",
        "mapped-read:size=1M,operations=100,pattern=zipf",
        "btree:records=2000,operations=100",
        "btree:records=1000,operations=200,mix=e,fill=0.5",
        "btree:records=1000,operations=200,mix=d,threads=3",
        "lsm:records=2000,operations=300",
        "lsm:records=1000,operations=200,mix=e,level0=1",
        "lsm:records=3000,operations=3000,threads=3,value=100,memtable=64KiB,table=64KiB",
        "gups:size=64K,updates=3000",
        "matmul:n=11",
        "bfs:vertices=1000",
        "pagerank:vertices=1000",
        "cc:vertices=1000",
    ];

    #[test]
    fn seeds_repeat_and_matter_where_there_is_chance() {
        for spec in SMALL {
            let first = replay(spec, 1).0;
            assert_eq!(first, replay(spec, 1).0, "{spec}");
            let with_seed = format!("{spec},seed=1");
            assert_eq!(first, replay(&with_seed, 2).0, "{spec}");
            let chance = !["stride", "gups", "matmul", "mapped-read:size=1M,operations=100,pattern=sequential"]
                .iter()
                .any(|name| spec.starts_with(name));
            assert_eq!(first != replay(spec, 2).0, chance, "{spec}");
        }
    }

    #[test]
    fn a_process_begins_and_ends_in_order() {
        let (accesses, events) = replay("seq:size=8K,threads=3,passes=5", 0);
        let kinds: Vec<_> = events.iter().map(|e| (e.thread.0, std::mem::discriminant(&e.kind))).collect();
        let kind_of = |kind: &EventKind| std::mem::discriminant(kind);
        let start = kind_of(&EventKind::ThreadStart { os_tid: 0 });
        let map = kind_of(&events[2].kind);
        assert!(matches!(&events[2].kind, EventKind::Mmap { len: 4096, file: Some(name), .. } if &**name == "seq"));
        let stop = kind_of(&EventKind::ThreadExit);
        let expected = [
            (0, kind_of(&EventKind::ProcessStart { parent: None })),
            (0, start),
            (0, map),
            (1, start),
            (2, start),
            (0, map),
            (1, map),
            (2, map),
            (2, stop),
            (1, stop),
            (0, stop),
            (0, kind_of(&EventKind::Exit { code: 0 })),
        ];
        assert_eq!(kinds, expected);
        assert!(events[..8].iter().all(|e| e.position == 0));
        assert!(events[8..].iter().all(|e| e.position == accesses.len() as u64));
        assert_eq!(accesses.len(), 3 * 5 * 1024);
    }

    #[test]
    fn threads_take_turns_and_share_the_work_evenly() {
        let (accesses, _) = replay("random:size=1M,accesses=10001,threads=4", 0);
        let mut counts = [0u64; 4];
        let mut switches = 0;
        for (index, (thread, _)) in accesses.iter().enumerate() {
            counts[*thread as usize] += 1;
            switches += usize::from(index > 0 && accesses[index - 1].0 != *thread);
        }
        assert_eq!(counts, [2501, 2500, 2500, 2500]);
        assert!(switches > 30, "{switches}");
    }

    #[test]
    fn the_gap_and_the_alignment_are_the_spec_s() {
        for spec in SMALL {
            let (accesses, events) = replay(&format!("{spec},gap=7,align=1GiB"), 0);
            assert!(accesses.iter().all(|(_, a)| a.gap == 7 && !a.maker.is_kernel()), "{spec}");
            assert!(arrays(&events).iter().all(|(addr, _)| addr % (1 << 30) == 0), "{spec}");
        }
        let (_, events) = replay("gups:size=64K,updates=1,align=4K", 0);
        assert_eq!(arrays(&events), [(0x7fff_f7ff_f000 - 0x10000, 0x10000)]);
    }

    /// A reused batch may hold anything.
    #[test]
    fn a_batch_with_old_contents_is_replaced() {
        let mut source = workload::parse("matmul:n=3,init=no", 0).unwrap();
        let mut batch = Batch::default();
        batch.accesses.resize(5000, Access::new(crate::AccessKind::Fetch, 1, 1));
        batch.segments.push(Segment::Run { thread: ThreadIx(9), end: 5000 });
        assert!(source.next_batch(&mut batch).unwrap() && batch.accesses.is_empty());
        batch.accesses.resize(5000, Access::new(crate::AccessKind::Fetch, 1, 1));
        assert!(source.next_batch(&mut batch).unwrap());
        assert_eq!(batch.accesses.len(), 2 * 27 + 9);
        assert_eq!(batch.segments, [Segment::Run { thread: ThreadIx(0), end: 63 }]);
        assert!(batch.accesses.iter().all(|a| a.vaddr > 1));
    }
}
