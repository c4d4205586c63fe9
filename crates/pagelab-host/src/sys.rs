//! System calls and memory that faults when it is touched.
//!
//! Why `unsafe`: the benchmarks are about mmap(2), madvise(2), mprotect(2), fork(2) and accesses to such memory, none of which
//! safe Rust offers. All of it is here, behind safe functions: accesses are checked against the mapping's length and
//! volatile, nobody gets a reference to the memory, and a forked child calls async-signal-safe functions alone.
#![allow(unsafe_code)]

use std::{
    fs::File,
    io::{self, Error, PipeReader, PipeWriter, Read, Write},
    os::fd::{AsRawFd, FromRawFd},
    ptr,
};

use crate::fault::file_page;

pub const PAGE_BYTES: usize = 4096;

/// A mapping of our own, unmapped when dropped.
pub struct Memory {
    start: *mut u8,
    bytes: usize,
}

impl Memory {
    /// Private and anonymous, never in large pages.
    pub fn anonymous(pages: usize) -> io::Result<Self> {
        let bytes = pages * PAGE_BYTES;
        let memory = Self { start: map(ptr::null_mut(), bytes, None)?, bytes };
        // SAFETY: the range is ours; the advice changes no content.
        let advised = unsafe { libc::madvise(memory.start.cast(), bytes, libc::MADV_NOHUGEPAGE) };
        // A kernel without large pages does not know the advice (EINVAL).
        if advised == 0 || Error::last_os_error().raw_os_error() == Some(libc::EINVAL) {
            Ok(memory)
        } else {
            Err(Error::last_os_error())
        }
    }

    /// A file in memory, all of it in the page cache, mapped in one or page by page.
    pub fn file(pages: usize, by_page: bool) -> io::Result<Self> {
        // SAFETY: the name is a string with its end; the descriptor is new and ours.
        let mut file = unsafe {
            let descriptor = libc::memfd_create(c"pagelab".as_ptr(), libc::MFD_CLOEXEC);
            if descriptor < 0 {
                return Err(Error::last_os_error());
            }
            File::from_raw_fd(descriptor)
        };
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

    /// Gives all pages back; what is touched next faults again (MADV_DONTNEED).
    pub fn discard(&self) -> io::Result<()> {
        // SAFETY: the range is ours and nobody holds a reference into it.
        result(unsafe { libc::madvise(self.start.cast(), self.bytes, libc::MADV_DONTNEED) })
    }

    /// Forbids or allows writing to a page (mprotect(2)).
    pub fn protect(&self, page: usize, writable: bool) -> io::Result<()> {
        let prot = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: the page is ours and nobody holds a reference into it.
        result(unsafe { libc::mprotect(self.at(page).cast(), PAGE_BYTES, prot) })
    }

    fn at(&self, page: usize) -> *mut u8 {
        assert!(page < self.bytes / PAGE_BYTES, "page {page} is not in the mapping");
        self.start.wrapping_add(page * PAGE_BYTES)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and nothing uses it any more. It cannot fail but for want of VMAs, which it gives back.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

/// Private, to read and to write: somewhere, or over a part of an own mapping.
fn map(over: *mut u8, bytes: usize, file: Option<(&File, usize)>) -> io::Result<*mut u8> {
    let fixed = if over.is_null() { 0 } else { libc::MAP_FIXED };
    let anonymous = if file.is_none() { libc::MAP_ANONYMOUS } else { 0 };
    let (descriptor, page) = file.map_or((-1, 0), |(file, page)| (file.as_raw_fd(), page));
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | fixed | anonymous;
    // SAFETY: the place is the kernel's choice or a part of a mapping of ours, which holds nothing anybody refers to.
    let start = unsafe { libc::mmap(over.cast(), bytes, prot, flags, descriptor, (page * PAGE_BYTES) as libc::off_t) };
    if start == libc::MAP_FAILED { Err(Error::last_os_error()) } else { Ok(start.cast()) }
}

/// A forked child that answers every byte with a byte until it is dropped.
pub struct Child {
    process: libc::pid_t,
    /// None once it has been told to end.
    requests: Option<PipeWriter>,
    answers: PipeReader,
}

impl Child {
    pub fn fork() -> io::Result<Self> {
        let (child_requests, requests) = io::pipe()?;
        let (answers, child_answers) = io::pipe()?;
        let (from, to) = (child_requests.as_raw_fd(), child_answers.as_raw_fd());
        let (ours, other) = (requests.as_raw_fd(), answers.as_raw_fd());
        // SAFETY: other threads may hold locks at this moment, so the child calls nothing but close, read, write and _exit,
        // which are async-signal-safe, and never returns.
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
        if process < 0 {
            return Err(Error::last_os_error());
        }
        Ok(Self { process, requests: Some(requests), answers })
    }

    /// A byte there and a byte back.
    pub fn ask(&mut self) -> io::Result<()> {
        self.requests.as_mut().expect("it is there until dropped").write_all(&[0])?;
        self.answers.read_exact(&mut [0])
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It reads the end of its requests and exits.
        self.requests = None;
        // SAFETY: the child is ours and nobody else waits for it; its status is of no interest.
        unsafe { libc::waitpid(self.process, ptr::null_mut(), 0) };
    }
}

/// CPUs that the calling thread may run on.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    // SAFETY: a set of CPUs is plain bits, for which zero is a value; the call fills as many as it is told.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        result(libc::sched_getaffinity(0, size_of_val(&set), &raw mut set))?;
        set
    };
    // SAFETY: the numbers are below the size of the set.
    Ok((0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect())
}

/// Keeps the calling thread, and the children that it forks, on one CPU.
pub fn stay_on(cpu: usize) -> io::Result<()> {
    // SAFETY: as in `allowed_cpus`; `cpu` is one of those.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        result(libc::sched_setaffinity(0, size_of_val(&set), &raw const set))
    }
}

/// A system call that does next to nothing.
pub fn system_call() {
    // SAFETY: getppid(2) takes nothing and always succeeds. The number, since a C library may remember the answer.
    unsafe { libc::syscall(libc::SYS_getppid) };
}

/// The time-stamp counter.
pub fn time_stamp() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { std::arch::x86_64::_rdtsc() }
}

fn result(status: libc::c_int) -> io::Result<()> {
    if status == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}
