//! Writes the benchmarks that fault, and those of pages of mapping calls, as traces, so that a simulation does the same
//! as the host.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use pagelab_trace::{
    Access, AccessKind, Event, EventKind, MapFlags, ProcessIx, Protection, ThreadIx, TraceError, TraceMeta, TraceWriter,
};
use serde::Serialize;

use crate::{
    fault::{Before, FaultBenchmark, MemoryKind, file_page},
    operation::{CALL_PAGES, CHANGE_PAGE, UNMAP_PAGE},
    sys::PAGE_BYTES,
};

/// Start of the memory, aligned to a page table's range as mmap(2) would align only large mappings.
const START: u64 = 0x7f00_0000_0000;
/// MADV_DONTNEED (include/uapi/asm-generic/mman-common.h).
const DONTNEED: u32 = 4;
const BYTES: u16 = 1;

/// The traces of a benchmark: they begin alike and differ in the number of repetitions of the measured accesses.
#[derive(Clone, Debug, Serialize)]
pub struct Traces {
    /// The benchmark's name.
    pub name: &'static str,
    /// Additional faults of `once` compared to `before`, or pages that its call changes.
    pub count: usize,
    /// Trace of the preparation alone.
    pub before: PathBuf,
    /// Trace of the preparation and the measured accesses or call.
    pub once: PathBuf,
    /// Trace of the preparation, and twice of the measured accesses or call.
    pub twice: PathBuf,
}

/// Writes the traces of a benchmark into an existing folder.
///
/// # Errors
/// [`TraceError`] if they cannot be written.
pub fn write_traces(benchmark: &FaultBenchmark, folder: &Path) -> Result<Traces, TraceError> {
    let write = |passes: usize| {
        let path = folder.join(format!("{}-{passes}.trace", benchmark.name));
        Program::write(benchmark, passes, &path).map(|()| path)
    };
    let (before, once, twice) = (write(0)?, write(1)?, write(2)?);
    Ok(Traces { name: benchmark.name, count: benchmark.faults(), before, once, twice })
}

/// Writes the traces of the calls that unmap or change written pages into an existing folder.
///
/// # Errors
/// [`TraceError`] if they cannot be written.
pub fn write_call_traces(folder: &Path) -> Result<Vec<Traces>, TraceError> {
    let (addr, len) = (START, bytes(CALL_PAGES));
    let calls = [
        (UNMAP_PAGE, EventKind::Munmap { addr, len }),
        (CHANGE_PAGE, EventKind::Mprotect { addr, len, prot: Protection { write: false, ..Protection::READ_WRITE } }),
    ];
    let traces = calls.into_iter().map(|(name, call)| {
        let write = |times: usize| {
            let path = folder.join(format!("{name}-{times}.trace"));
            write_calls(name, &call, times, &path).map(|()| path)
        };
        Ok(Traces { name, count: CALL_PAGES, before: write(0)?, once: write(1)?, twice: write(2)? })
    });
    traces.collect()
}

fn write_calls(name: &str, call: &EventKind, times: usize, path: &Path) -> Result<(), TraceError> {
    let mut writer = TraceWriter::create(path, TraceMeta::new(vec![name.to_owned()]))?;
    let flags = MapFlags::anonymous_private();
    let map = EventKind::Mmap {
        addr: START,
        len: bytes(CALL_PAGES),
        prot: Protection::READ_WRITE,
        flags,
        file: None,
        file_offset: 0,
    };
    event(&mut writer, EventKind::ProcessStart { parent: None })?;
    event(&mut writer, EventKind::ThreadStart { os_tid: 1 })?;
    event(&mut writer, map)?;
    let stores = (0..CALL_PAGES).map(|page| Access::new(AccessKind::Store, START + bytes(page), BYTES));
    writer.append(ThreadIx(0), &stores.collect::<Vec<_>>())?;
    (0..times).try_for_each(|_| event(&mut writer, call.clone()))?;
    writer.finish().map(drop)
}

/// An event of the first thread.
fn event(writer: &mut TraceWriter, kind: EventKind) -> Result<(), TraceError> {
    let position = writer.position();
    writer.event(Event { position, process: ProcessIx(0), thread: ThreadIx(0), kind })
}

struct Program<'a> {
    benchmark: &'a FaultBenchmark,
    writer: TraceWriter,
    children: u32,
}

impl<'a> Program<'a> {
    fn write(benchmark: &'a FaultBenchmark, passes: usize, path: &Path) -> Result<(), TraceError> {
        let writer = TraceWriter::create(path, TraceMeta::new(vec![benchmark.name.to_owned()]))?;
        let mut program = Self { benchmark, writer, children: 0 };
        program.event(EventKind::ProcessStart { parent: None })?;
        program.event(EventKind::ThreadStart { os_tid: 1 })?;
        program.map()?;
        // First a complete round, which builds the page tables like the host's warm-up rounds.
        program.prepare()?;
        program.pass(benchmark.writes)?;
        program.event(EventKind::Madvise { addr: START, len: bytes(benchmark.pages), advice: DONTNEED })?;
        program.prepare()?;
        (0..passes).try_for_each(|_| program.pass(benchmark.writes))?;
        program.writer.finish().map(drop)
    }

    fn map(&mut self) -> Result<(), TraceError> {
        let pages = self.benchmark.pages;
        let file = || Some(Arc::from("/memfd:pagelab"));
        let private = MapFlags(MapFlags::PRIVATE);
        match self.benchmark.kind {
            MemoryKind::Anonymous => self.mmap(0, pages, MapFlags::anonymous_private(), None, 0),
            MemoryKind::File => self.mmap(0, pages, private, file(), 0),
            MemoryKind::FileByPage => {
                (0..pages).try_for_each(|page| self.mmap(page, 1, private, file(), file_page(pages, page)))
            }
        }
    }

    fn mmap(
        &mut self,
        page: usize,
        pages: usize,
        flags: MapFlags,
        file: Option<Arc<str>>,
        file_page: usize,
    ) -> Result<(), TraceError> {
        let (addr, len, file_offset) = (START + bytes(page), bytes(pages), bytes(file_page));
        self.event(EventKind::Mmap { addr, len, prot: Protection::READ_WRITE, flags, file, file_offset })
    }

    fn prepare(&mut self) -> Result<(), TraceError> {
        match self.benchmark.before {
            Before::Nothing => Ok(()),
            Before::Read => self.pass(false),
            Before::WriteAndFork => {
                self.pass(true)?;
                // The child has no thread and never ends: nothing orders its end after its parent's writes.
                self.children += 1;
                self.event(EventKind::Fork { child: ProcessIx(self.children) })
            }
        }
    }

    fn pass(&mut self, writes: bool) -> Result<(), TraceError> {
        let kind = if writes { AccessKind::Store } else { AccessKind::Load };
        let accesses: Vec<_> =
            self.benchmark.touched().map(|page| Access::new(kind, START + bytes(page), BYTES)).collect();
        self.writer.append(ThreadIx(0), &accesses)
    }

    fn event(&mut self, kind: EventKind) -> Result<(), TraceError> {
        event(&mut self.writer, kind)
    }
}

fn bytes(pages: usize) -> u64 {
    (pages * PAGE_BYTES) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FAULTS;
    use pagelab_trace::TraceReader;

    #[test]
    fn traces_differ_by_their_passes() {
        let folder = tempfile::tempdir().unwrap();
        for benchmark in FAULTS {
            let traces = write_traces(benchmark, folder.path()).unwrap();
            let accesses = |path: &PathBuf| TraceReader::open(path).unwrap().meta().accesses.unwrap();
            let [before, once, twice] = [&traces.before, &traces.once, &traces.twice].map(accesses);
            assert_eq!(once.total() - before.total(), traces.count as u64, "{}", traces.name);
            assert_eq!(twice.total() - once.total(), traces.count as u64, "{}", traces.name);
            assert_eq!(twice.stores > once.stores, benchmark.writes, "{}", traces.name);
        }
    }

    #[test]
    fn traces_of_calls_differ_by_their_calls() {
        let folder = tempfile::tempdir().unwrap();
        let traces = write_call_traces(folder.path()).unwrap();
        assert_eq!(traces.iter().map(|traces| traces.name).collect::<Vec<_>>(), [UNMAP_PAGE, CHANGE_PAGE]);
        for (traces, kind) in traces.iter().zip(["munmap", "mprotect"]) {
            let calls = |path: &PathBuf| {
                let events = TraceReader::open(path).unwrap().meta().events.clone().unwrap();
                events.by_kind.get(kind).copied().unwrap_or(0)
            };
            assert_eq!([&traces.before, &traces.once, &traces.twice].map(calls), [0, 1, 2], "{kind}");
        }
    }
}
