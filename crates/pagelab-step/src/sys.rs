//! System calls that trace another process. All of the crate's `unsafe` code is here.
//!
//! `libc` is used directly: the safe wrappers that exist cannot name real-time signals, which C libraries use to cancel
//! threads.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use libc::{c_int, c_long, c_uint, c_void, pid_t};

use crate::inherited::{SIGNALS_OF_THE_C_LIBRARY, inherited_ignored_signals};

/// Register set of `PTRACE_GETREGSET` with all extended state (`NT_X86_XSTATE`).
const NT_X86_XSTATE: c_uint = 0x202;
/// Byte offsets of R11 and RAX in `struct user`.
const R11_OFFSET: usize = 6 * 8;
const RAX_OFFSET: usize = 10 * 8;

/// What a traced thread reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It has ended, with this wait status.
    Ended(c_int),
    /// It is about to receive a signal. Single steps are reported in this way, as SIGTRAP.
    Signal(c_int),
    /// One of the `PTRACE_EVENT_*`, with the signal beside it.
    Event(c_int, c_int),
}

/// What is known about a signal that a thread is about to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalInfo {
    pub code: c_int,
}

fn check(result: c_long) -> io::Result<c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn trace(request: c_uint, tid: pid_t, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: requests that are passed here take numbers only, and write nothing into this process.
    check(unsafe { libc::ptrace(request, tid, address, data) }).map(drop)
}

/// Begins to trace a process, which goes on running.
pub fn seize(pid: pid_t, options: c_int) -> io::Result<()> {
    trace(libc::PTRACE_SEIZE, pid, 0, options as usize)
}

/// Stops a traced thread.
pub fn interrupt(tid: pid_t) -> io::Result<()> {
    trace(libc::PTRACE_INTERRUPT, tid, 0, 0)
}

/// Lets a stopped thread execute one instruction; it receives `signal` first, unless that is 0.
pub fn step(tid: pid_t, signal: c_int) -> io::Result<()> {
    trace(libc::PTRACE_SINGLESTEP, tid, 0, signal as usize)
}

/// Lets a stopped thread run.
pub fn go_on(tid: pid_t, signal: c_int) -> io::Result<()> {
    trace(libc::PTRACE_CONT, tid, 0, signal as usize)
}

/// Leaves a thread in the stop of its process (SIGSTOP and others), and waits for its end.
pub fn listen(tid: pid_t) -> io::Result<()> {
    trace(libc::PTRACE_LISTEN, tid, 0, 0)
}

/// Ends tracing of a stopped thread, which goes on running.
pub fn detach(tid: pid_t, signal: c_int) -> io::Result<()> {
    trace(libc::PTRACE_DETACH, tid, 0, signal as usize)
}

/// Sets the register R11 of a stopped thread, and no other.
pub fn set_r11(tid: pid_t, value: u64) -> io::Result<()> {
    trace(libc::PTRACE_POKEUSER, tid, R11_OFFSET, value as usize)
}

/// Lets the system call that a stopped thread is about to make fail with ENOSYS: no call has this number.
pub fn refuse_call(tid: pid_t) -> io::Result<()> {
    trace(libc::PTRACE_POKEUSER, tid, RAX_OFFSET, usize::MAX)
}

pub fn registers(tid: pid_t) -> io::Result<libc::user_regs_struct> {
    let mut registers = MaybeUninit::<libc::user_regs_struct>::uninit();
    // SAFETY: the kernel writes a whole `user_regs_struct`, or fails.
    unsafe {
        check(libc::ptrace(libc::PTRACE_GETREGS, tid, 0, registers.as_mut_ptr()))?;
        Ok(registers.assume_init())
    }
}

pub fn set_registers(tid: pid_t, registers: &libc::user_regs_struct) -> io::Result<()> {
    // SAFETY: the kernel reads one `user_regs_struct`.
    check(unsafe { libc::ptrace(libc::PTRACE_SETREGS, tid, 0, ptr::from_ref(registers)) }).map(drop)
}

/// Reads the extended state (vectors, masks, tiles) of a stopped thread, as `XSAVE` would store it; returns its length.
pub fn extended_state(tid: pid_t, into: &mut [u8]) -> io::Result<usize> {
    let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: the kernel writes at most `iov_len` bytes to `into`, and the number of bytes to `part`.
    check(unsafe { libc::ptrace(libc::PTRACE_GETREGSET, tid, NT_X86_XSTATE as usize, &raw mut part) })?;
    Ok(part.iov_len)
}

pub fn signal_info(tid: pid_t) -> io::Result<SignalInfo> {
    let mut information = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the kernel writes a whole `siginfo_t`, or fails.
    let information = unsafe {
        check(libc::ptrace(libc::PTRACE_GETSIGINFO, tid, 0, information.as_mut_ptr()))?;
        information.assume_init()
    };
    Ok(SignalInfo { code: information.si_code })
}

/// What belongs to an event: the id of a new process or thread, or the former id of a thread that executes a program.
pub fn event_message(tid: pid_t) -> io::Result<pid_t> {
    let mut message: u64 = 0;
    // SAFETY: the kernel writes one word.
    check(unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, tid, 0, &raw mut message) })?;
    Ok(message as pid_t)
}

/// Waits for the next report of any process that this thread traces or has started; none if there are no such
/// processes. Children of other threads are left to them.
pub fn wait() -> io::Result<Option<(pid_t, Stop)>> {
    loop {
        let mut status: c_int = 0;
        // SAFETY: the kernel writes one number.
        let tid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
        if tid > 0 {
            return Ok(Some((tid, parse(status))));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ECHILD) => return Ok(None),
            _ => return Err(error),
        }
    }
}

fn parse(status: c_int) -> Stop {
    if !libc::WIFSTOPPED(status) {
        return Stop::Ended(status);
    }
    match status >> 16 {
        0 => Stop::Signal(libc::WSTOPSIG(status)),
        event => Stop::Event(event, libc::WSTOPSIG(status)),
    }
}

pub fn kill(pid: pid_t, signal: c_int) {
    // SAFETY: takes numbers only.
    unsafe { libc::kill(pid, signal) };
}

/// Words of a C array: pointers to the texts, and a null pointer.
fn pointers(texts: &[&CStr]) -> Vec<*const libc::c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}

/// Forks a process that waits until `go` can be read, and then executes a program. If that fails, it writes the number
/// of the error to `failure` and ends. Both are ends of pipes that executed programs do not inherit.
pub fn fork_to_execute(
    program: &CStr,
    arguments: &[&CStr],
    environment: &[&CStr],
    go: &OwnedFd,
    failure: &OwnedFd,
) -> io::Result<pid_t> {
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    let (go, failure) = (go.as_raw_fd(), failure.as_raw_fd());
    let ignored = inherited_ignored_signals();
    // SAFETY: between fork and execve the child calls functions only that may be called then: it allocates nothing and
    // takes no lock.
    unsafe {
        let pid = libc::fork();
        if pid != 0 {
            return check(c_long::from(pid)).map(|pid| pid as pid_t);
        }
        // Python ignores these signals, and executed programs inherit that.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
        // The C library's function refuses its own signals.
        for number in SIGNALS_OF_THE_C_LIBRARY.into_iter().filter(|number| ignored >> (number - 1) & 1 == 1) {
            let action: [usize; 4] = [libc::SIG_IGN, 0, 0, 0];
            libc::syscall(libc::SYS_rt_sigaction, number, action.as_ptr(), 0, size_of::<u64>());
        }
        let mut byte = 0_u8;
        while libc::read(go, (&raw mut byte).cast::<c_void>(), 1) < 0 {}
        libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr());
        let error: c_int = *libc::__errno_location();
        libc::write(failure, (&raw const error).cast::<c_void>(), size_of::<c_int>());
        libc::_exit(127)
    }
}

/// Forks a process that does nothing until it is killed.
pub fn fork_to_wait() -> io::Result<pid_t> {
    // SAFETY: the child makes system calls only.
    unsafe {
        let pid = libc::fork();
        if pid != 0 {
            return check(c_long::from(pid)).map(|pid| pid as pid_t);
        }
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        loop {
            libc::pause();
        }
    }
}

// Instructions whose single steps are known: see `self_check`.
std::arch::global_asm!(
    ".pushsection .text.pagelab_step_known,\"ax\",@progbits",
    ".globl pagelab_step_known",
    "pagelab_step_known:",
    "nop",
    "lea rdi, [rsp - 512]",
    "lea rsi, [rsp - 1024]",
    "mov ecx, 3",
    "cld",
    "rep movsb",
    "pushfq",
    "pop rax",
    "mov eax, 39",
    "syscall",
    "cpuid",
    "jmp 2f",
    "ud2",
    "2: nop",
    "hlt",
    ".popsection",
);

unsafe extern "C" {
    fn pagelab_step_known();
}

/// Where the known instructions begin.
pub fn known_instructions() -> u64 {
    pagelab_step_known as *const () as u64
}

/// The known instructions, as many bytes as no more than they have.
pub fn known_bytes() -> &'static [u8] {
    // SAFETY: they are longer, and part of this program.
    unsafe { std::slice::from_raw_parts(pagelab_step_known as *const u8, 48) }
}
