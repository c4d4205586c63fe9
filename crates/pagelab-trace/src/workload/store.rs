//! A program with several threads that serves requests from a store of records.

use super::{
    layout::{Layout, Site},
    program::{BATCH_ACCESSES, MIN_RUN, Plan, Program},
    spec::{Parameter, Preset, Values, YES_NO},
    ycsb::{ACCESSES_OF_OPERATIONS, Request, Requests},
};
use crate::{Access, AccessKind, Batch, Segment, ThreadIx, TraceError};

/// Bytes of a cache line, at whose end an access of a copy ends.
const LINE: u64 = 64;

/// A data structure that serves requests and is really searched.
pub(super) trait Store: Send {
    /// Appends the accesses for `request`.
    fn serve(&mut self, request: Request, out: &mut Vec<Access>);

    /// Appends the accesses of the next part of loading the store before the first request; false if it is loaded.
    fn load(&mut self, _: &mut Vec<Access>) -> bool {
        false
    }

    /// Does a part of the maintenance that is due before the next request; false if there is none.
    ///
    /// The accesses belong to `thread`. The run must be closed before an event.
    fn maintain(&mut self, batch: &mut Batch, thread: ThreadIx) -> bool;
}

/// Whether the program loads its store itself.
pub(super) const LOAD: Parameter = Parameter {
    name: "load",
    kind: YES_NO,
    default: Preset::Value("no"),
    meaning: "whether the program first writes all records into its store, beyond the accesses and operations counted here; no: \
              they are there when it starts",
};

/// Threads that take turns; each serves the requests during its turn.
struct StoreProgram<S> {
    requests: Requests,
    store: S,
    threads: u32,
    /// Whether the store is still to be loaded.
    loads: bool,
    turn: u32,
    /// Number of accesses in the turn so far.
    made: usize,
    /// Number of accesses left to make.
    left: u64,
}

/// A plan that sends the requests to `store`.
pub(super) fn plan<S: Store + 'static>(values: &Values, layout: Layout, requests: Requests, store: S) -> Plan {
    let accesses = values.optional(ACCESSES_OF_OPERATIONS.name);
    let loads = values.has(LOAD.name) && values.is_yes(LOAD.name);
    let threads = values.threads() as u32;
    let left = accesses.unwrap_or(u64::MAX);
    let program = StoreProgram { requests, store, threads, loads, turn: 0, made: 0, left };
    let accesses = accesses.filter(|_| !loads);
    Plan { layout, program: Box::new(program), accesses, threads, dependencies: false }
}

impl<S: Store> StoreProgram<S> {
    /// The thread's turn ends once it has made enough accesses.
    fn end_turn(&mut self, accesses: usize) {
        self.made += accesses;
        if self.made >= MIN_RUN {
            (self.turn, self.made) = ((self.turn + 1) % self.threads, 0);
        }
    }

    /// Fills a batch with accesses of loading; leaves it empty once the store is loaded.
    fn load(&mut self, batch: &mut Batch) {
        while batch.accesses.len() < BATCH_ACCESSES {
            let (thread, begin) = (ThreadIx(self.turn), batch.accesses.len());
            if !self.store.load(&mut batch.accesses) {
                self.loads = false;
                break;
            }
            self.end_turn(batch.accesses.len() - begin);
            batch.close_run(thread);
        }
    }
}

impl<S: Store> Program for StoreProgram<S> {
    fn next(&mut self, batch: &mut Batch) -> Result<(), TraceError> {
        batch.accesses.clear();
        if self.loads {
            self.load(batch);
            if !batch.accesses.is_empty() {
                return Ok(());
            }
        }
        while batch.accesses.len() < BATCH_ACCESSES && self.left > batch.accesses.len() as u64 {
            let thread = ThreadIx(self.turn);
            let begin = batch.accesses.len();
            if !self.store.maintain(batch, thread) {
                let Some(request) = self.requests.next() else { break };
                self.store.serve(request, &mut batch.accesses);
                self.end_turn(batch.accesses.len() - begin);
            }
            batch.close_run(thread);
        }
        cut(batch, self.left);
        self.left -= batch.accesses.len() as u64;
        Ok(())
    }
}

/// Drops everything after the first `accesses` accesses.
fn cut(batch: &mut Batch, accesses: u64) {
    let Some(len) = usize::try_from(accesses).ok().filter(|&len| len < batch.accesses.len()) else { return };
    let mut begin = 0;
    batch.segments.retain_mut(|segment| {
        let kept = begin < len;
        if let Segment::Run { end, .. } = segment {
            begin = *end;
            *end = len.min(*end);
        }
        kept
    });
    batch.accesses.truncate(len);
}

/// Appends accesses of `kind` to the `bytes` from `vaddr` on, one per line.
pub(super) fn touch(site: Site, kind: AccessKind, vaddr: u64, bytes: u64, out: &mut Vec<Access>) {
    let (mut at, end) = (vaddr, vaddr + bytes);
    while at < end {
        let next = end.min((at & !(LINE - 1)) + LINE);
        out.push(Access { size_bytes: (next - at) as u16, ..site.access(kind, at) });
        at = next;
    }
}

/// Appends the accesses of a copy of `bytes`: a load and a store for each line that is read.
pub(super) fn copy(load: Site, from: u64, store: Site, to: u64, bytes: u64, out: &mut Vec<Access>) {
    let mut at = 0;
    while at < bytes {
        let next = bytes.min(((from + at) & !(LINE - 1)) + LINE - from);
        let size_bytes = (next - at) as u16;
        out.push(Access { size_bytes, ..load.load(from + at) });
        out.push(Access { size_bytes, ..store.store(to + at) });
        at = next;
    }
}

#[cfg(test)]
mod tests {
    use super::super::program::tests::replay;
    use super::*;

    const STORES: [&str; 3] = ["btree", "lsm", "hash-table"];

    #[test]
    fn lines_are_touched_once_and_all_bytes_are() {
        let site = Site::new(0, 8, 1);
        let mut out = Vec::new();
        for (vaddr, bytes, lines) in [(0, 64, 1), (60, 8, 2), (63, 130, 4), (128, 1, 1), (100, 1000, 17)] {
            out.clear();
            touch(site, AccessKind::Store, vaddr, bytes, &mut out);
            assert_eq!((out.len(), out[0].vaddr), (lines, vaddr));
            assert!(out.windows(2).all(|w| w[0].vaddr + u64::from(w[0].size_bytes) == w[1].vaddr));
            assert_eq!(out.iter().map(|a| u64::from(a.size_bytes)).sum::<u64>(), bytes);
            let mut copied = Vec::new();
            copy(site, vaddr, site, vaddr + 4099, bytes, &mut copied);
            assert_eq!(copied.len(), 2 * lines);
            for (load, pair) in out.iter().zip(copied.chunks(2)) {
                assert_eq!((pair[0].vaddr, pair[0].size_bytes), (load.vaddr, load.size_bytes));
                assert_eq!((pair[1].vaddr, pair[1].size_bytes), (load.vaddr + 4099, load.size_bytes));
                assert_eq!((pair[0].kind, pair[1].kind), (AccessKind::Load, AccessKind::Store));
            }
        }
    }

    #[test]
    fn accesses_and_operations_limit_the_work() {
        for store in STORES {
            let (all, _) = replay(&format!("{store}:records=5000,operations=1000"), 3);
            let (some, _) = replay(&format!("{store}:records=5000,accesses=12345"), 3);
            assert_eq!(some.len(), 12_345);
            assert_eq!(all[..12_345], some, "{store}");
            let error = crate::workload::parse(&format!("{store}:operations=1,accesses=2"), 0).err().unwrap();
            assert_eq!(error.to_string(), format!("{store}: give operations or accesses, not both"));
        }
    }

    #[test]
    fn loading_comes_before_the_requests_and_leaves_them_as_they_are() {
        for store in ["btree:memory=anonymous", "hash-table:value=100B"] {
            let without = replay(&format!("{store},records=5000,accesses=12345"), 3).0;
            let with = replay(&format!("{store},records=5000,accesses=12345,load=yes"), 3).0;
            let loaded = with.len() - without.len();
            assert_eq!(with[loaded..], without, "{store}");
            let stores = with[..loaded].iter().filter(|(_, a)| a.kind == AccessKind::Store).count();
            assert!(stores > 5000, "{store}: {stores} of {loaded}");
            let threads = replay(&format!("{store},records=5000,accesses=12345,load=yes,threads=3"), 3).0;
            assert!(threads.iter().map(|(_, a)| a).eq(with.iter().map(|(_, a)| a)), "{store}: the same accesses");
            assert!((0..3).all(|thread| threads[..loaded].iter().any(|(t, _)| *t == thread)), "{store}");
        }
    }

    #[test]
    fn threads_take_turns_with_whole_requests() {
        for store in STORES {
            let one = replay(&format!("{store}:records=5000,mix=f,operations=2000"), 3).0;
            let four = replay(&format!("{store}:records=5000,mix=f,operations=2000,threads=4"), 3).0;
            assert!(one.iter().map(|(_, a)| a).eq(four.iter().map(|(_, a)| a)), "{store}: the same requests");
            for thread in 0..4 {
                let made = four.iter().filter(|(t, _)| *t == thread).count() * 4;
                assert!((made as f64 / four.len() as f64 - 1.0).abs() < 0.2, "{store}: {made} of {}", four.len());
            }
        }
    }
}
