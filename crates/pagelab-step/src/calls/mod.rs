//! System calls: the memory that they touch, what they do to mappings and files, and which threads they let go on.

mod files;
mod mappings;
mod splice;
mod table;
mod touch;

use libc::pid_t;

pub use mappings::Heap;
use touch::{KernelAccess, Touch, Touched};

use crate::edges::Edges;
use crate::losses::Losses;
use crate::memory::Memory;
use crate::stream::{Record, Stream};
use files::OpenFile;

/// A system call of a thread.
#[derive(Clone, Debug)]
pub struct Call {
    pub number: i64,
    pub arguments: [u64; 6],
    /// What it has returned.
    pub result: i64,
    /// The file that it gives another length.
    truncated: Option<OpenFile>,
    /// Bytes of the System V segment that it detaches.
    detached_bytes: u64,
    /// Addresses and bytes of locked memory that it makes writable, or lengthens.
    locked: Vec<(u64, u64)>,
}

/// Results of calls that a signal has interrupted, and that go on unless a handler runs.
const RESTARTS: [i64; 4] = [-512, -513, -514, -516];
/// Bits of `ioctl` requests: direction and size.
const WRITES_TO_KERNEL: u64 = 1;
const READS_FROM_KERNEL: u64 = 2;
const UFFDIO_COPY: u64 = 0xc028_aa03;
const UFFDIO_ZEROPAGE: u64 = 0xc020_aa04;
const WAIT_STATUS_UNKNOWN: u32 = u32::MAX;
const WNOWAIT: u64 = 0x0100_0000;

impl Call {
    pub fn new(number: u64, arguments: [u64; 6]) -> Self {
        Self { number: number as i64, arguments, result: 0, truncated: None, detached_bytes: 0, locked: Vec::new() }
    }

    /// Whether the call will be made again if no handler of a signal runs.
    pub fn is_interrupted(&self) -> bool {
        RESTARTS.contains(&self.result)
    }

    /// The word that the kernel clears when the thread made by this call ends.
    pub fn cleared_by_child(&self, memory: &Memory) -> u64 {
        let clears = libc::CLONE_CHILD_CLEARTID as u64;
        match self.number {
            libc::SYS_clone if self.arguments[0] & clears != 0 => self.arguments[3],
            libc::SYS_clone3 if self.clone_flags(memory) & clears != 0 => {
                memory.u64(self.arguments[0] + 16).unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Where the kernel stores the id of the thread made by this call, in its own memory; 0 for nowhere.
    pub fn set_in_child(&self, memory: &Memory) -> u64 {
        let sets = libc::CLONE_CHILD_SETTID as u64;
        match self.number {
            libc::SYS_clone if self.arguments[0] & sets != 0 => self.arguments[3],
            libc::SYS_clone3 if self.clone_flags(memory) & sets != 0 => memory.u64(self.arguments[0] + 16).unwrap_or(0),
            _ => 0,
        }
    }

    /// Flags of a call that makes a process or a thread.
    pub fn clone_flags(&self, memory: &Memory) -> u64 {
        match self.number {
            libc::SYS_clone => self.arguments[0],
            libc::SYS_clone3 => memory.u64(self.arguments[0]).unwrap_or(0),
            libc::SYS_vfork => (libc::CLONE_VM | libc::CLONE_VFORK) as u64,
            _ => 0,
        }
    }
}

/// What a call acts on.
pub struct Effects<'a> {
    pub tid: pid_t,
    pub pid: pid_t,
    pub memory: &'a Memory,
    pub stream: &'a mut Stream,
    pub edges: &'a mut Edges,
    pub heap: &'a mut Heap,
    /// Whether mappings that are made from now on are locked.
    pub locks_new_mappings: &'a mut bool,
    pub losses: &'a mut Losses,
}

impl Effects<'_> {
    /// Before the call.
    pub fn before(&mut self, call: &mut Call) {
        files::before(call, self.tid, self.memory);
        self.before_mapping(call);
        match call.number {
            libc::SYS_futex => self.edges.before(self.tid, &call.arguments, self.stream),
            libc::SYS_execve | libc::SYS_execveat => self.before_execve(call),
            // They may block for long; what came before must not be late.
            libc::SYS_wait4 | libc::SYS_waitid => self.stream.flush(),
            _ => {}
        }
    }

    /// After the call has returned.
    pub fn after(&mut self, call: &Call) {
        self.touched(call);
        if call.number == libc::SYS_futex {
            self.edges.after(self.tid, &call.arguments, call.result, self.stream);
        }
        if call.result < 0 && call.result > -4096 {
            self.after_failed_mapping(call);
            self.failed(call);
            return;
        }
        files::after(call, self.tid, self.memory, self.stream);
        self.after_mapping(call);
        match call.number {
            libc::SYS_wait4 => self.waited(call),
            libc::SYS_waitid => self.waited_by_id(call),
            libc::SYS_vmsplice => self.spliced(call),
            libc::SYS_process_vm_readv => self.remote(call, false),
            libc::SYS_process_vm_writev => self.remote(call, true),
            libc::SYS_io_uring_setup => {
                self.losses.add(self.pid, "io_uring: what it reads and writes in memory is not in the trace");
            }
            libc::SYS_io_setup => {
                self.losses.add(self.pid, "io_submit: what it reads and writes in memory is not in the trace");
            }
            _ => {}
        }
    }

    fn failed(&mut self, call: &Call) {
        let refused = call.result == i64::from(-libc::EPERM) || call.result == i64::from(-libc::EBUSY);
        if call.number == libc::SYS_ptrace && refused {
            self.losses
                .add(self.pid, "it could not debug another process, or be debugged: the recorder traces it already");
        }
    }

    fn access(&mut self, access: KernelAccess) {
        let KernelAccess { writes, address, bytes } = access;
        self.stream.send(&Record::KernelAccess { writes, address, bytes });
    }

    /// Sends the accesses of the kernel.
    fn touched(&mut self, call: &Call) {
        let accesses = Vec::new();
        let mut touched = Touched { memory: self.memory, arguments: &call.arguments, result: call.result, accesses };
        let (result, failed) = (call.result, call.result < 0);
        match table::find(call.number as u64) {
            Some((_, _, Some(touches))) => touches.iter().for_each(|touch| touched.add(*touch)),
            Some((_, name, None)) if result != i64::from(-libc::ENOSYS) => {
                self.losses.add(self.pid, format!("{name}: the memory that it read and wrote is not in the trace"));
            }
            None if result != i64::from(-libc::ENOSYS) => {
                let number = call.number;
                self.losses.add(self.pid, format!("system call {number}: what it did to memory is not in the trace"));
            }
            _ => {}
        }
        let [first, second, third, fourth, ..] = call.arguments;
        match call.number {
            libc::SYS_ioctl => ioctl(&mut touched),
            libc::SYS_fcntl if matches!(second as i32, 5 | 36) && !failed => touched.writes(third, 32),
            libc::SYS_fcntl if matches!(second as i32, 6 | 7 | 37 | 38) => touched.reads(third, 32),
            libc::SYS_prctl => match first as i32 {
                libc::PR_SET_NAME => touched.reads(second, 16),
                libc::PR_GET_NAME if !failed => touched.writes(second, 16),
                libc::PR_GET_PDEATHSIG | libc::PR_GET_CHILD_SUBREAPER if !failed => touched.writes(second, 4),
                _ => {}
            },
            // ARCH_GET_FS and ARCH_GET_GS
            libc::SYS_arch_prctl if matches!(first, 0x1003 | 0x1004) && !failed => touched.writes(second, 8),
            libc::SYS_futex => futex(&mut touched),
            libc::SYS_clone if !failed && first & libc::CLONE_PARENT_SETTID as u64 != 0 => touched.writes(third, 4),
            libc::SYS_clone3 => touched.reads(first, second),
            libc::SYS_seccomp => touched.reads(third, 16),
            libc::SYS_shmctl if second as i32 == libc::IPC_STAT && !failed => touched.writes(third, 112),
            libc::SYS_modify_ldt if failed => {}
            libc::SYS_modify_ldt if first == 0 => touched.writes(second, third),
            libc::SYS_modify_ldt => touched.reads(second, third),
            libc::SYS_mbind | libc::SYS_migrate_pages => touched.reads(fourth, 8),
            _ => {}
        }
        for access in touched.accesses {
            self.access(access);
        }
    }

    /// The kernel reads path, arguments and environment. If it succeeds, there is no later moment to see them.
    fn before_execve(&mut self, call: &Call) {
        let texts = if call.number == libc::SYS_execve { 0 } else { 1 };
        let accesses = Vec::new();
        let mut touched = Touched { memory: self.memory, arguments: &call.arguments, result: 0, accesses };
        touched.add(Touch::Text(texts));
        for list in [call.arguments[texts + 1], call.arguments[texts + 2]] {
            let mut at = list;
            while let Some(text) = self.memory.u64(at).filter(|_| list != 0) {
                touched.reads(at, 8);
                touched.text(text);
                at += 8;
                if text == 0 {
                    break;
                }
            }
        }
        for access in touched.accesses {
            self.access(access);
        }
    }

    /// The parts of memory that a list of the process names.
    fn parts(&self, address: u64, count: u64) -> Vec<(u64, u64)> {
        let touched = Touched { memory: self.memory, arguments: &[0; 6], result: 0, accesses: Vec::new() };
        touched.parts(address, count)
    }

    fn waited(&mut self, call: &Call) {
        let status = if call.arguments[1] == 0 { None } else { self.memory.u32(call.arguments[1]) };
        let status = status.unwrap_or(WAIT_STATUS_UNKNOWN);
        // A status with the low byte 0x7f, or 0xffff, says stopped or continued.
        let has_ended = status == WAIT_STATUS_UNKNOWN || status & 0xff != 0x7f && status != 0xffff;
        if call.result > 0 && has_ended {
            self.stream.send(&Record::Waited { pid: call.result as u32, status });
            self.stream.flush();
        }
    }

    /// Words of `siginfo_t` for SIGCHLD: 2 `si_code` (1 to 3: exited, killed, dumped), 4 `si_pid`, 6 `si_status`.
    fn waited_by_id(&mut self, call: &Call) {
        let Some(bytes) = self.memory.bytes::<28>(call.arguments[2]) else { return };
        let word = |at: usize| u32::from_le_bytes(bytes[at * 4..at * 4 + 4].try_into().expect("4 bytes"));
        if call.arguments[3] & WNOWAIT != 0 || word(4) == 0 || !(1..=3).contains(&word(2)) {
            return;
        }
        let status = if word(2) == 1 { (word(6) & 0xff) << 8 } else { word(6) & 0x7f };
        self.stream.send(&Record::Waited { pid: word(4), status });
        self.stream.flush();
    }

    /// Memory of a process that a call has read or written for this one.
    fn remote(&mut self, call: &Call, writes: bool) {
        let [pid, _, _, list, count, _] = call.arguments;
        let own = crate::memory::namespace_ids(self.pid).last().copied();
        let mut left = call.result.max(0) as u64;
        for (address, length) in self.parts(list, count) {
            let bytes = length.min(left);
            left -= bytes;
            if bytes == 0 {
                continue;
            }
            if own == Some(pid as u32) {
                self.access(KernelAccess { writes, address, bytes });
            } else {
                self.stream.send(&Record::RemoteAccess { pid: pid as u32, writes, address, bytes });
            }
        }
    }
}

/// Requests tell direction and size of their argument, but for old ones.
fn ioctl(touched: &mut Touched<'_>) {
    let [_, request, argument, ..] = *touched.arguments;
    let (direction, bytes) = (request >> 30 & 3, request >> 16 & 0x3fff);
    let succeeded = touched.result >= 0;
    match request {
        UFFDIO_COPY | UFFDIO_ZEROPAGE if succeeded => {
            let copies = request == UFFDIO_COPY;
            let word = |at: u64| touched.memory.u64(argument + at).unwrap_or(0);
            let (target, source, length) = (word(0), word(8), if copies { word(16) } else { word(8) });
            touched.reads(argument, bytes);
            if copies {
                touched.reads(source, length);
            }
            touched.writes(target, length);
            touched.writes(argument, bytes);
        }
        // TCGETS; TCSETS, TCSETSW, TCSETSF; TIOCGWINSZ; TIOCSWINSZ; TIOCGPGRP, FIONREAD, TIOCOUTQ; TIOCSPGRP, FIONBIO
        0x5401 if succeeded => touched.writes(argument, 36),
        0x5402..=0x5404 => touched.reads(argument, 36),
        0x5413 if succeeded => touched.writes(argument, 8),
        0x5414 => touched.reads(argument, 8),
        0x540f | 0x541b | 0x5411 if succeeded => touched.writes(argument, 4),
        0x5410 | 0x5421 => touched.reads(argument, 4),
        _ => {
            if direction & WRITES_TO_KERNEL != 0 {
                touched.reads(argument, bytes);
            }
            if direction & READS_FROM_KERNEL != 0 && succeeded {
                touched.writes(argument, bytes);
            }
        }
    }
}

fn futex(touched: &mut Touched<'_>) {
    let [address, operation, _, timeout, other, _] = *touched.arguments;
    touched.reads(address, 4);
    match operation as i32 & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) {
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => touched.reads(timeout, 16),
        libc::FUTEX_LOCK_PI | libc::FUTEX_UNLOCK_PI | libc::FUTEX_TRYLOCK_PI => touched.writes(address, 4),
        libc::FUTEX_WAKE_OP => {
            touched.reads(other, 4);
            touched.writes(other, 4);
        }
        _ => {}
    }
}
