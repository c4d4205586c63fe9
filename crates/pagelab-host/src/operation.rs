//! Micro-benchmarks beside those of page faults: system calls, context switches, flushes, forks, mapping calls.

use std::{
    hint, io,
    io::{Read, Write},
    sync::atomic::{AtomicU8, Ordering},
};

use crate::{
    native::{repeated, timed},
    sys::{self, Child, MappedMemory},
};

/// Operations per sample, which is their mean.
const BATCH: usize = 200;
/// Pages that a fork has to share.
const FORK_PAGES: usize = 8192;
/// Pages that a mapping call unmaps or changes at once.
pub const CALL_PAGES: usize = 1024;

/// Benchmarks that traces exist of, too.
pub const UNMAP_PAGE: &str = "unmap-page";
pub const CHANGE_PAGE: &str = "change-page";

/// A benchmark that does not fault.
pub struct Operation {
    pub name: &'static str,
    /// Samples in nanoseconds per operation. The argument is the list of CPUs that it may use; the first is the
    /// caller's.
    pub run: fn(&[usize]) -> io::Result<Vec<f64>>,
}

pub const OPERATIONS: &[Operation] = &[
    // Entry and return without a fault (getppid).
    Operation {
        name: "system-call",
        run: |_| {
            repeated(|| {
                timed(|| {
                    (0..BATCH).for_each(|_| sys::system_call());
                    Ok(())
                })
                .map(|time| time / BATCH as f64)
            })
        },
    },
    // Half of a byte's round trip to another process, both on one CPU, minus writing and reading a byte alone.
    Operation { name: "context-switch", run: |_| context_switch() },
    // mprotect of a mapped page minus mprotect of an unmapped one: the PTE and its flush.
    Operation { name: "invalidate-page", run: |_| invalidate_page() },
    // mprotect of a mapped page while another thread of the process runs on another CPU, minus the same without it.
    Operation { name: "shootdown", run: shootdown },
    // fork of a process with many more pages minus fork without them, per page.
    Operation { name: "fork-page", run: |_| fork_page() },
    // mmap of a page, madvise that changes its VMA, and munmap, without any touch: their mean.
    Operation { name: "mapping-call", run: |_| mapping_call() },
    // munmap of written pages minus munmap of untouched ones, per page.
    Operation { name: UNMAP_PAGE, run: |_| unmap_page() },
    // mprotect of written pages minus the same call again, which changes nothing, per page.
    Operation { name: CHANGE_PAGE, run: |_| change_page() },
];

fn context_switch() -> io::Result<Vec<f64>> {
    let mut child = Child::fork()?;
    let (mut from, mut to) = io::pipe()?;
    repeated(|| {
        let round_trips = timed(|| (0..BATCH).try_for_each(|_| child.ask()))?;
        let alone = timed(|| {
            (0..BATCH).try_for_each(|_| {
                to.write_all(&[0])?;
                from.read_exact(&mut [0])
            })
        })?;
        Ok((round_trips / 2.0 - alone) / BATCH as f64)
    })
}

/// Nanoseconds per page to write-protect pages of a range, with one call per page. Only every second page, since
/// neighbours with equal permissions would be merged.
fn protect_pages(memory: &MappedMemory) -> io::Result<f64> {
    let pages = || (0..2 * BATCH).step_by(2);
    let time = timed(|| pages().try_for_each(|page| memory.protect(page, false)))?;
    pages().try_for_each(|page| memory.protect(page, true))?;
    Ok(time / BATCH as f64)
}

fn invalidate_page() -> io::Result<Vec<f64>> {
    let memory = MappedMemory::anonymous(2 * BATCH)?;
    repeated(|| {
        memory.discard()?;
        let absent = protect_pages(&memory)?;
        (0..2 * BATCH).for_each(|page| memory.write(page));
        Ok(protect_pages(&memory)? - absent)
    })
}

fn shootdown(cpus: &[usize]) -> io::Result<Vec<f64>> {
    const STARTING: u8 = 0;
    const RUNNING: u8 = 1;
    const STOP: u8 = 2;
    let other = *cpus.get(1).ok_or_else(|| io::Error::other("it takes two CPUs"))?;
    let memory = MappedMemory::anonymous(2 * BATCH)?;
    repeated(|| {
        (0..2 * BATCH).for_each(|page| memory.write(page));
        let alone = protect_pages(&memory)?;
        (0..2 * BATCH).for_each(|page| memory.write(page));
        let state = AtomicU8::new(STARTING);
        let interrupting = std::thread::scope(|scope| {
            let spinning = scope.spawn(|| {
                let placed = sys::stay_on(other);
                state.store(RUNNING, Ordering::Release);
                while placed.is_ok() && state.load(Ordering::Acquire) != STOP {
                    hint::spin_loop();
                }
                placed
            });
            while state.load(Ordering::Acquire) == STARTING {
                std::thread::yield_now();
            }
            let time = protect_pages(&memory);
            state.store(STOP, Ordering::Release);
            spinning.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            time
        })?;
        Ok(interrupting - alone)
    })
}

/// Excludes the end of the child, which must be awaited before the next fork inherits the pipe that keeps it alive.
fn time_fork() -> io::Result<f64> {
    let mut child = None;
    timed(|| Child::fork().map(|forked| child = Some(forked)))
}

fn fork_page() -> io::Result<Vec<f64>> {
    let memory = MappedMemory::anonymous(FORK_PAGES)?;
    repeated(|| {
        memory.discard()?;
        let few = time_fork()?;
        (0..FORK_PAGES).for_each(|page| memory.write(page));
        Ok((time_fork()? - few) / FORK_PAGES as f64)
    })
}

fn mapping_call() -> io::Result<Vec<f64>> {
    /// mmap and madvise of a new mapping, and munmap of its end.
    const CALLS: usize = 3;
    repeated(|| {
        Ok(timed(|| (0..BATCH).try_for_each(|_| MappedMemory::anonymous(1).map(drop)))? / (CALLS * BATCH) as f64)
    })
}

fn unmap_page() -> io::Result<Vec<f64>> {
    let time_unmap = |memory: MappedMemory| {
        timed(|| {
            drop(memory);
            Ok(())
        })
    };
    repeated(|| {
        let touched = MappedMemory::anonymous(CALL_PAGES)?;
        (0..CALL_PAGES).for_each(|page| touched.write(page));
        let touched = time_unmap(touched)?;
        Ok((touched - time_unmap(MappedMemory::anonymous(CALL_PAGES)?)?) / CALL_PAGES as f64)
    })
}

fn change_page() -> io::Result<Vec<f64>> {
    let memory = MappedMemory::anonymous(CALL_PAGES)?;
    repeated(|| {
        (0..CALL_PAGES).for_each(|page| memory.write(page));
        let first = timed(|| memory.protect_all(false))?;
        let again = timed(|| memory.protect_all(false))?;
        memory.protect_all(true)?;
        Ok((first - again) / CALL_PAGES as f64)
    })
}
