//! System calls, and memory that faults on access.
//!
//! Why `unsafe`: the benchmarks use mmap(2), madvise(2), mprotect(2), fork(2) and accesses to such memory, which safe
//! Rust does not offer. All of it is here, behind safe functions. Accesses are volatile and checked against the
//! mapping's length. There is never a reference to memory that is protected, discarded or backed by a file. A forked
//! child calls async-signal-safe functions only.
//!
//! rustix makes the system calls. fork and _exit are the C library's: rustix has them only for programs without libc.
#![allow(unsafe_code)]

use std::{
    fs::File,
    io::{self, Error, PipeReader, PipeWriter, Read, Write},
    os::fd::AsRawFd,
    ptr,
    time::Duration,
};

use rustix::{
    fs::{Advice as FileAdvice, MemfdFlags, fadvise, memfd_create},
    io::Errno,
    mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mmap_anonymous, mprotect, munmap},
    process::{Pid, WaitOptions, getppid, waitpid},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
    time::{ClockId, clock_gettime},
};

use crate::fault::file_page;

pub const PAGE_BYTES: usize = 4096;
const LARGE_PAGE_BYTES: usize = 2 << 20;

/// CPU time of this thread.
pub fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

/// A mapping of our own, unmapped when dropped.
pub struct MappedMemory {
    start: *mut u8,
    bytes: usize,
}

impl MappedMemory {
    /// Private anonymous memory, never in large pages.
    pub fn anonymous(pages: usize) -> io::Result<Self> {
        let bytes = pages * PAGE_BYTES;
        let memory = Self { start: map(ptr::null_mut(), bytes, None)?, bytes };
        // SAFETY: the range is ours; the advice changes no content.
        match unsafe { madvise(memory.start.cast(), bytes, Advice::LinuxNoHugepage) } {
            // A kernel without large pages does not know the advice.
            Ok(()) | Err(Errno::INVAL) => Ok(memory),
            Err(error) => Err(error.into()),
        }
    }

    /// A file in memory, entirely in the page cache, mapped as a whole or page by page.
    pub fn file(pages: usize, by_page: bool) -> io::Result<Self> {
        let mut file = File::from(memfd_create("pagelab", MemfdFlags::CLOEXEC)?);
        file.write_all(&vec![1; pages * PAGE_BYTES])?;
        let bytes = pages * PAGE_BYTES;
        let memory = Self { start: map(ptr::null_mut(), bytes, Some((&file, 0)))?, bytes };
        if by_page {
            for page in 0..pages {
                let at = memory.start.wrapping_add(page * PAGE_BYTES);
                map(at, PAGE_BYTES, Some((&file, file_page(pages, page))))?;
            }
        }
        Ok(memory)
    }

    pub fn read(&self, page: usize) {
        // SAFETY: `at` lies inside the mapping, which can be read until it is dropped.
        unsafe { ptr::read_volatile(self.at(page)) };
    }

    pub fn write(&self, page: usize) {
        // SAFETY: as for `read`; only memory that can be written is written (`native.rs`), or the process would end.
        unsafe { ptr::write_volatile(self.at(page), 1) };
    }

    /// Discards all pages; the next access to each faults again (MADV_DONTNEED).
    pub fn discard(&self) -> io::Result<()> {
        // SAFETY: the range is ours and nobody holds a reference into it.
        unsafe { madvise(self.start.cast(), self.bytes, Advice::LinuxDontNeed) }.map_err(Error::from)
    }

    /// Forbids or allows writes to a page (mprotect(2)).
    pub fn protect(&self, page: usize, writable: bool) -> io::Result<()> {
        self.protect_from(page, PAGE_BYTES, writable)
    }

    /// Forbids or allows writes to all of it with one call.
    pub fn protect_all(&self, writable: bool) -> io::Result<()> {
        self.protect_from(0, self.bytes, writable)
    }

    fn protect_from(&self, page: usize, bytes: usize, writable: bool) -> io::Result<()> {
        let prot = if writable { MprotectFlags::READ | MprotectFlags::WRITE } else { MprotectFlags::READ };
        // SAFETY: the range is ours and nobody holds a reference into it.
        unsafe { mprotect(self.at(page).cast(), bytes, prot) }.map_err(Error::from)
    }

    fn at(&self, page: usize) -> *mut u8 {
        assert!(page < self.bytes / PAGE_BYTES, "page {page} is not in the mapping");
        self.start.wrapping_add(page * PAGE_BYTES)
    }
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and nothing uses it any more. It cannot fail but for want of VMAs, which it gives
        // back.
        let _ = unsafe { munmap(self.start.cast(), self.bytes) };
    }
}

/// Maps private, writable memory: at any address, or over a part of an existing mapping.
fn map(over: *mut u8, bytes: usize, file: Option<(&File, usize)>) -> io::Result<*mut u8> {
    let flags = if over.is_null() { MapFlags::PRIVATE } else { MapFlags::PRIVATE | MapFlags::FIXED };
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the place is the kernel's choice or a part of a mapping of ours, which holds nothing anybody refers to.
    let start = unsafe {
        match file {
            None => mmap_anonymous(over.cast(), bytes, prot, flags),
            Some((file, page)) => mmap(over.cast(), bytes, prot, flags, file, (page * PAGE_BYTES) as u64),
        }
    };
    Ok(start?.cast())
}

/// Zeroed words on large pages, if the kernel has any; unmapped when dropped.
pub struct Words {
    start: *mut u8,
    bytes: usize,
    /// Bytes before the first word, which aligns large pages.
    skipped: usize,
    count: usize,
}

impl Words {
    pub fn new(count: usize) -> io::Result<Self> {
        let used = (count * size_of::<u64>()).next_multiple_of(LARGE_PAGE_BYTES);
        let bytes = used + LARGE_PAGE_BYTES;
        let start = map(ptr::null_mut(), bytes, None)?;
        let skipped = start.addr().next_multiple_of(LARGE_PAGE_BYTES) - start.addr();
        let words = Self { start, bytes, skipped, count };
        // SAFETY: the range is ours; the advice changes no content. A kernel without large pages has small ones.
        let _ = unsafe { madvise(start.wrapping_add(skipped).cast(), used, Advice::LinuxHugepage) };
        Ok(words)
    }

    pub fn words(&self) -> &[u64] {
        // SAFETY: so many words lie inside the mapping, aligned and zero at first. It stays as it is until it is
        // dropped, and nobody else knows it.
        unsafe { std::slice::from_raw_parts(self.start.wrapping_add(self.skipped).cast(), self.count) }
    }

    pub fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as for `words`; the mapping can be written.
        unsafe { std::slice::from_raw_parts_mut(self.start.wrapping_add(self.skipped).cast(), self.count) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and nothing uses it any more.
        let _ = unsafe { munmap(self.start.cast(), self.bytes) };
    }
}

/// A whole file, mapped for random reads; unmapped when dropped.
pub struct ReadOnlyFile {
    start: *mut u8,
    bytes: usize,
}

impl ReadOnlyFile {
    /// Disables read-ahead (MADV_RANDOM).
    pub fn at_random(file: &File) -> io::Result<Self> {
        let bytes = usize::try_from(file.metadata()?.len()).map_err(Error::other)?;
        if bytes == 0 || bytes % PAGE_BYTES != 0 {
            return Err(Error::other(format!(
                "the file has {bytes} bytes; expected whole pages of {PAGE_BYTES} bytes"
            )));
        }
        // SAFETY: the kernel chooses the place.
        let start = unsafe { mmap(ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::PRIVATE, file, 0) }?;
        let mapping = Self { start: start.cast(), bytes };
        // SAFETY: the range is ours; the advice changes no content.
        unsafe { madvise(start, bytes, Advice::Random) }?;
        Ok(mapping)
    }

    pub fn pages(&self) -> usize {
        self.bytes / PAGE_BYTES
    }

    /// Number of the file's pages in the page cache (mincore(2)).
    pub fn resident(&self) -> io::Result<usize> {
        let mut residency = vec![0_u8; self.pages()];
        // SAFETY: the range is ours, and `residency` has a byte for each of its pages.
        match unsafe { libc::mincore(self.start.cast(), self.bytes, residency.as_mut_ptr()) } {
            0 => Ok(residency.iter().filter(|&byte| byte & 1 == 1).count()),
            _ => Err(Error::last_os_error()),
        }
    }

    /// The first eight bytes of a page.
    pub fn read(&self, page: usize) -> u64 {
        assert!(page < self.pages(), "page {page} is not in the mapping");
        // SAFETY: the place lies inside the mapping, which can be read until it is dropped, and is aligned to a page.
        // The file is the caller's own and not cut meanwhile, or the process would end.
        unsafe { ptr::read_volatile(self.start.wrapping_add(page * PAGE_BYTES).cast()) }
    }
}

impl Drop for ReadOnlyFile {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and nothing uses it any more.
        let _ = unsafe { munmap(self.start.cast(), self.bytes) };
    }
}

/// Asks the page cache to drop a file's clean, unmapped pages.
pub fn drop_from_page_cache(file: &File) -> io::Result<()> {
    Ok(fadvise(file, 0, None, FileAdvice::DontNeed)?)
}

/// A buffer for reads with O_DIRECT.
#[repr(align(4096))]
pub struct AlignedPage(pub [u8; PAGE_BYTES]);

impl AlignedPage {
    pub fn new() -> Box<Self> {
        Box::new(Self([0; PAGE_BYTES]))
    }
}

/// The clock that perf supports as CLOCK_MONOTONIC_RAW.
pub fn raw_nanoseconds() -> u64 {
    let time = clock_gettime(ClockId::MonotonicRaw);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Gives the calling thread the lowest real-time priority (SCHED_FIFO); returns whether that is allowed.
pub fn real_time() -> bool {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: 0 is the calling thread, and the parameters outlive the call.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) == 0 }
}

/// Removes the calling thread's real-time priority (SCHED_OTHER); returns whether that is allowed.
pub fn ordinary() -> bool {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: as for `real_time`.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const parameters) == 0 }
}

/// Gives the calling thread, which must not have real-time priority, the highest ordinary priority (nice -20), if
/// allowed.
pub fn first_of_the_ordinary() {
    // SAFETY: 0 is the calling thread; nothing is passed by reference.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
}

/// Major faults of the calling thread so far.
pub fn major_faults() -> u64 {
    // SAFETY: all zeroes are a valid `rusage`, which the kernel fills in; nothing else is passed.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    };
    usage.ru_majflt.cast_unsigned()
}

/// A forked child that answers every byte with a byte until it is dropped.
pub struct Child {
    process: Pid,
    /// None once the child has been told to exit.
    requests: Option<PipeWriter>,
    answers: PipeReader,
}

impl Child {
    pub fn fork() -> io::Result<Self> {
        let (child_requests, requests) = io::pipe()?;
        let (answers, child_answers) = io::pipe()?;
        let (from, to) = (child_requests.as_raw_fd(), child_answers.as_raw_fd());
        let (ours, other) = (requests.as_raw_fd(), answers.as_raw_fd());
        // SAFETY: other threads may hold locks at this moment, so the child calls nothing but close, read, write and
        // _exit, which are async-signal-safe, and never returns.
        let process = unsafe {
            let process = libc::fork();
            if process == 0 {
                libc::close(ours);
                libc::close(other);
                let mut byte = 0_u8;
                let byte = ptr::from_mut(&mut byte).cast::<libc::c_void>();
                while libc::read(from, byte, 1) == 1 && libc::write(to, byte, 1) == 1 {}
                libc::_exit(0);
            }
            process
        };
        let process = Pid::from_raw(process).filter(|_| process > 0).ok_or_else(Error::last_os_error)?;
        Ok(Self { process, requests: Some(requests), answers })
    }

    /// Sends a byte and waits for the answer.
    pub fn ask(&mut self) -> io::Result<()> {
        self.requests.as_mut().expect("it is there until dropped").write_all(&[0])?;
        self.answers.read_exact(&mut [0])
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // The child reads the end of its requests and exits.
        self.requests = None;
        // Reaps the child; its status does not matter.
        let _ = waitpid(Some(self.process), WaitOptions::empty());
    }
}

/// CPUs on which the calling thread may run.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Pins the calling thread, and the children that it forks, to one CPU.
pub fn stay_on(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// A system call that does almost nothing.
pub fn system_call() {
    let _ = getppid();
}

/// The time-stamp counter.
pub fn time_stamp() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { std::arch::x86_64::_rdtsc() }
}
