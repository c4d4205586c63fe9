//! The loop that steps all threads of the recorded processes.

use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use libc::{c_int, pid_t};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::access::Access;
use crate::calls::Call;
use crate::extended::{Extended, Layout};
use crate::frames;
use crate::instruction::{Instruction, InstructionDecoder, LONGEST, Operands, Special};
use crate::losses::Losses;
use crate::memory::{Memory, namespace_ids, program_path};
use crate::operands;
use crate::process::Process;
use crate::registers::{R11, RAX, RSP, Registers, TRAP};
use crate::stream::{Door, Record};
use crate::sys::{self, Stop};
use crate::{Follow, Shared};

/// What is traced beside single steps. If the recorder ends, the kernel kills all traced processes.
pub const OPTIONS: c_int = libc::PTRACE_O_EXITKILL
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC;
/// Codes of the SIGTRAP after a single step: TRAP_TRACE, after a system call TRAP_BRKPT, at a handler's start SIGTRAP.
const STEP_CODES: [c_int; 3] = [2, 1, HANDLER_CODE];
const HANDLER_CODE: c_int = libc::SIGTRAP;
/// The segment of 64-bit code.
const CODE_64: u64 = 0x33;
/// Reason for which the recorder counts a program as not followed.
const NOT_FOLLOWED: &str = "is not followed";
const IS_32_BIT: &str = "is a 32-bit program";
const CLONE_THREAD: u64 = libc::CLONE_THREAD as u64;
const CLONE_VM: u64 = libc::CLONE_VM as u64;

/// What a thread does when it goes on.
enum Next {
    /// Nothing that is known: it has just been made, or its instruction cannot be read.
    Unknown,
    /// An instruction. If it is not certain, the thread may stop once more before it.
    Instruction {
        instruction: Rc<Instruction>,
        is_certain: bool,
    },
    Call(Call),
}

struct Task {
    pid: pid_t,
    /// Registers before what comes next, and the accesses of that.
    before: Registers,
    accesses: Vec<Access>,
    next: Next,
    /// The kernel clears this word when the thread ends.
    clears: u64,
}

impl Task {
    fn new(pid: pid_t, clears: u64) -> Self {
        let (before, accesses) = (Registers::default(), Vec::new());
        Self { pid, before, accesses, next: Next::Unknown, clears }
    }
}

pub struct Tracer {
    root: pid_t,
    socket: PathBuf,
    follow: Option<Follow>,
    door: Door,
    tasks: FxHashMap<pid_t, Task>,
    processes: FxHashMap<pid_t, Process>,
    /// New threads that have stopped before their makers have told of them.
    early: FxHashSet<pid_t>,
    decoder: InstructionDecoder,
    extended: Vec<u8>,
    last_key: u64,
    /// Children that the first process has made.
    children: u32,
    /// Everything runs without steps, since nothing more is recorded.
    runs_natively: bool,
    losses: Losses,
    shared: Arc<Shared>,
}

impl Tracer {
    pub fn new(root: pid_t, socket: PathBuf, follow: Option<Follow>, shared: Arc<Shared>) -> Self {
        let mut tasks = FxHashMap::default();
        tasks.insert(root, Task::new(root, 0));
        Self {
            root,
            socket,
            follow,
            door: Door::new(),
            tasks,
            processes: FxHashMap::default(),
            early: FxHashSet::default(),
            decoder: InstructionDecoder::default(),
            extended: vec![0; Layout::of_this_machine().bytes],
            last_key: 0,
            children: 0,
            runs_natively: false,
            losses: Losses::default(),
            shared,
        }
    }

    /// Traces until all processes have ended.
    pub fn run(mut self) -> io::Result<Losses> {
        while let Some((tid, stop)) = sys::wait()? {
            self.runs_natively |= self.shared.stops.load(Ordering::Relaxed);
            // A thread that has been killed meanwhile is reported once more.
            match self.stopped(tid, stop) {
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                handled => handled?,
            }
        }
        Ok(self.losses)
    }

    fn stopped(&mut self, tid: pid_t, stop: Stop) -> io::Result<()> {
        match stop {
            Stop::Ended(status) => {
                self.ended(tid, status);
                Ok(())
            }
            Stop::Event(libc::PTRACE_EVENT_STOP, signal) => self.stopped_as_a_group(tid, signal),
            Stop::Event(libc::PTRACE_EVENT_EXEC, _) => self.executed(tid),
            Stop::Event(_, _) => {
                let child = sys::event_message(tid)?;
                self.made(tid, child)?;
                self.go_on(tid, 0)
            }
            Stop::Signal(libc::SIGTRAP) => {
                let code = sys::signal_info(tid)?.code;
                if !STEP_CODES.contains(&code) {
                    return self.go_on(tid, libc::SIGTRAP);
                }
                if !self.runs_natively {
                    self.stepped(tid, code == HANDLER_CODE)?;
                }
                self.go_on(tid, 0)
            }
            Stop::Signal(signal) => self.go_on(tid, signal),
        }
    }

    /// Lets a thread go on: by a step, or natively.
    fn go_on(&self, tid: pid_t, signal: c_int) -> io::Result<()> {
        if self.runs_natively { sys::go_on(tid, signal) } else { sys::step(tid, signal) }
    }

    fn stopped_as_a_group(&mut self, tid: pid_t, signal: c_int) -> io::Result<()> {
        if matches!(signal, libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU) {
            return sys::listen(tid);
        }
        let Some(task) = self.tasks.get(&tid) else {
            self.early.insert(tid);
            return Ok(());
        };
        if matches!(task.next, Next::Unknown) && self.processes.contains_key(&task.pid) {
            self.prepare(tid, false)?;
        }
        self.go_on(tid, 0)
    }

    // ---- steps ----

    /// A thread has executed an instruction or a system call, or is about to begin a handler.
    fn stepped(&mut self, tid: pid_t, begins_handler: bool) -> io::Result<()> {
        let after = Registers::from(&sys::registers(tid)?);
        if begins_handler {
            self.begins_handler(tid, &after);
        } else if !self.finish(tid, &after)? {
            return Ok(());
        }
        self.prepare_from(tid, after, true);
        Ok(())
    }

    /// The kernel has written a frame for a handler; what the thread was about to do, it will do later or never.
    fn begins_handler(&mut self, tid: pid_t, after: &Registers) {
        let Some(task) = self.tasks.get_mut(&tid) else { return };
        let Some(process) = self.processes.get_mut(&task.pid) else { return };
        if let Next::Call(mut call) = std::mem::replace(&mut task.next, Next::Unknown) {
            call.result = -i64::from(libc::EINTR);
            process.effects(tid, &mut self.losses).after(&call);
        }
        process.stream.switch_to(tid as u32);
        let address = after.general[RSP];
        let bytes = frames::end(&process.memory, address) - address;
        process.stream.send(&Record::KernelAccess { writes: true, address, bytes });
    }

    /// Sends what the thread has done. False if it has not done it yet.
    fn finish(&mut self, tid: pid_t, after: &Registers) -> io::Result<bool> {
        let Some(task) = self.tasks.get_mut(&tid) else { return Ok(true) };
        let Some(process) = self.processes.get_mut(&task.pid) else { return Ok(true) };
        match std::mem::replace(&mut task.next, Next::Unknown) {
            Next::Unknown => {}
            Next::Instruction { instruction, is_certain } => {
                if is_certain || after.rip != task.before.rip {
                    self.executed_instruction(tid, &instruction, after);
                }
            }
            Next::Call(mut call) => {
                call.result = after.general[RAX] as i64;
                if call.number == libc::SYS_rt_sigreturn {
                    return Ok(true);
                }
                if call.is_interrupted() {
                    task.next = Next::Call(call);
                    return Ok(false);
                }
                if call.number == libc::SYS_set_tid_address {
                    task.clears = call.arguments[0];
                }
                process.effects(tid, &mut self.losses).after(&call);
                // The system call instruction has stored the flags there, with the one that makes steps.
                if after.general[R11] & TRAP != 0 && task.before.flags & TRAP == 0 {
                    sys::set_r11(tid, after.general[R11] & !TRAP)?;
                }
            }
        }
        Ok(true)
    }

    fn executed_instruction(&mut self, tid: pid_t, instruction: &Rc<Instruction>, after: &Registers) {
        let Some(task) = self.tasks.get_mut(&tid) else { return };
        let Some(process) = self.processes.get_mut(&task.pid) else { return };
        let (code, stream) = (&mut process.code, &mut process.stream);
        stream.switch_to(tid as u32);
        if instruction.operands == Operands::Repeated {
            let count = operands::iterations(instruction, &task.before, after);
            if count == 0 {
                code.execute(instruction, &[], stream);
            }
            for _ in 0..count {
                code.execute(instruction, &task.accesses, stream);
                let down = task.before.goes_down();
                task.accesses.iter_mut().for_each(|access| {
                    let bytes = u64::from(access.bytes);
                    access.address = access.address.wrapping_add(if down { bytes.wrapping_neg() } else { bytes });
                });
            }
        } else {
            code.execute(instruction, &task.accesses, stream);
        }
        match instruction.special {
            Special::PushFlags { bytes } if task.before.flags & TRAP == 0 => {
                hide_trap_flag(&process.memory, after.general[RSP], bytes);
            }
            Special::HoldsTrapBack if after.rip != instruction.next_address() => {
                // The next instruction was executed in the same step, with the same general registers.
                let mut bytes = [0; LONGEST];
                let read = process.memory.read(instruction.next_address(), &mut bytes);
                if let Some(next) = code.at(instruction.next_address(), &bytes[..read], &mut self.decoder) {
                    task.accesses.clear();
                    operands::accesses(&next, &task.before, None, &mut task.accesses);
                    code.execute(&next, &task.accesses, stream);
                }
            }
            Special::OldSystemCall => {
                let what = "int 0x80: what this system call did to memory is not in the trace";
                self.losses.add(task.pid, what);
            }
            Special::None | Special::SystemCall | Special::PushFlags { .. } | Special::HoldsTrapBack => {}
        }
    }

    fn prepare(&mut self, tid: pid_t, is_certain: bool) -> io::Result<()> {
        let registers = Registers::from(&sys::registers(tid)?);
        self.prepare_from(tid, registers, is_certain);
        Ok(())
    }

    /// Finds out what a thread with these registers is about to do.
    fn prepare_from(&mut self, tid: pid_t, registers: Registers, is_certain: bool) {
        let Some(task) = self.tasks.get_mut(&tid) else { return };
        let Some(process) = self.processes.get_mut(&task.pid) else { return };
        if !process.stream.is_open() {
            self.runs_natively = true;
            return;
        }
        task.before = registers;
        task.next = Next::Unknown;
        task.accesses.clear();
        let mut bytes = [0; LONGEST];
        let read = process.memory.read(registers.rip, &mut bytes);
        let Some(instruction) = process.code.at(registers.rip, &bytes[..read], &mut self.decoder) else { return };
        if instruction.special == Special::SystemCall {
            process.stream.switch_to(tid as u32);
            process.code.execute(&instruction, &[], &mut process.stream);
            let call = begin_call(process, tid, &registers, &mut self.losses);
            // Each step ends a restartable sequence early. So the program gets what a kernel without them answers.
            if call.number == libc::SYS_rseq {
                // The thread may have been killed meanwhile.
                let _ = sys::refuse_call(tid);
            }
            task.next = Next::Call(call);
            return;
        }
        let layout = Layout::of_this_machine();
        let mut extended = None;
        if instruction.needs_extended_state()
            && let Ok(read) = sys::extended_state(tid, &mut self.extended)
        {
            extended = Some(Extended { layout, bytes: &self.extended[..read] });
        }
        operands::accesses(&instruction, &registers, extended, &mut task.accesses);
        task.next = Next::Instruction { instruction, is_certain };
    }

    // ---- processes and threads ----

    /// A thread has made a process or another thread.
    fn made(&mut self, tid: pid_t, child: pid_t) -> io::Result<()> {
        let Some(task) = self.tasks.get(&tid) else { return Ok(()) };
        let (pid, mut flags, mut clears, mut writes) = (task.pid, 0, 0, 0);
        if let (Next::Call(call), Some(process)) = (&task.next, self.processes.get(&pid)) {
            flags = call.clone_flags(&process.memory);
            clears = call.cleared_by_child(&process.memory);
            writes = call.set_in_child(&process.memory);
        }
        let is_thread = flags & CLONE_THREAD != 0;
        let own_pid = if is_thread { pid } else { child };
        self.tasks.insert(child, Task::new(own_pid, clears));
        if !is_thread {
            self.shared.lock().pids.insert(child as u32);
        }
        if !self.runs_natively {
            if is_thread {
                self.thread_made(tid, child, pid, clears);
            } else {
                self.forked(tid, child, pid, flags & CLONE_VM != 0)?;
            }
            if let Some(process) = self.processes.get_mut(&own_pid)
                && writes != 0
            {
                process.stream.send(&Record::KernelAccess { writes: true, address: writes, bytes: 4 });
            }
        }
        if self.early.remove(&child) { self.stopped_as_a_group(child, libc::SIGTRAP) } else { Ok(()) }
    }

    fn thread_made(&mut self, tid: pid_t, child: pid_t, pid: pid_t, clears: u64) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        process.stream.switch_to(tid as u32);
        let number = process.edges.thread_made(clears, &mut process.stream);
        process.stream.send(&Record::ThreadStart { tid: child as u32 });
        process.stream.send(&Record::Woken { number });
    }

    fn forked(&mut self, tid: pid_t, child: pid_t, pid: pid_t, shares: bool) -> io::Result<()> {
        let Some(parent) = self.processes.get_mut(&pid) else { return Ok(()) };
        if pid == self.root {
            self.children += 1;
        }
        let child_number = parent.child_number.unwrap_or(self.children);
        self.last_key += 1;
        let key = self.last_key;
        // The child's id as its parent sees it.
        let depth = namespace_ids(pid).len().max(1);
        let seen = namespace_ids(child).get(depth - 1).copied().unwrap_or(child as u32);
        parent.stream.switch_to(tid as u32);
        parent.stream.send(&Record::Fork { pid: seen, key, shares });
        parent.stream.flush();
        let stream = self.door.open(&self.socket)?;
        let mut process = parent.fork(child, key, stream, child_number)?;
        process.stream.send(&Record::ThreadStart { tid: child as u32 });
        process.stream.flush();
        self.processes.insert(child, process);
        Ok(())
    }

    /// A process has begun another program.
    fn executed(&mut self, pid: pid_t) -> io::Result<()> {
        let former = sys::event_message(pid).unwrap_or(pid);
        self.tasks.retain(|tid, task| task.pid != pid || *tid == pid);
        self.tasks.insert(pid, Task::new(pid, 0));
        if self.runs_natively {
            return self.go_on(pid, 0);
        }
        let registers = sys::registers(pid)?;
        let path = program_path(pid);
        let child_number = self.processes.get(&pid).and_then(|process| process.child_number);
        let reason = self.runs_natively_because(registers.cs, child_number);
        let old = self.processes.remove(&pid);
        let key = match old {
            Some(mut process) => {
                process.stream.switch_to(former as u32);
                process.stream.send(&Record::ExecBegin { path: &path });
                reason.iter().for_each(|reason| process.stream.send(&Record::ExecNative { reason }));
                process.key
            }
            None => {
                self.last_key += 1;
                self.last_key
            }
        };
        if reason.is_some() {
            self.tasks.remove(&pid);
            self.shared.lock().pids.remove(&(pid as u32));
            return sys::detach(pid, 0);
        }
        self.check_rights(pid, &path);
        let stream = self.door.open(&self.socket)?;
        let mut process = Process::of_image(pid, key, stream, child_number)?;
        process.stream.send(&Record::ThreadStart { tid: pid as u32 });
        process.send_first_mappings(registers.rsp);
        self.processes.insert(pid, process);
        self.prepare_from(pid, Registers::from(&registers), false);
        self.go_on(pid, 0)
    }

    fn runs_natively_because(&self, code_segment: u64, child_number: Option<u32>) -> Option<&'static str> {
        let is_followed = match (self.follow, child_number) {
            (Some(follow), Some(number)) => follow.takes(number),
            _ => true,
        };
        if !is_followed {
            return Some(NOT_FOLLOWED);
        }
        (code_segment != CODE_64).then_some(IS_32_BIT)
    }

    /// The kernel ignores the additional rights of a program that an ordinary user traces.
    fn check_rights(&mut self, pid: pid_t, path: &str) {
        use std::os::unix::fs::PermissionsExt;
        let file = format!("/proc/{pid}/exe");
        let changes = std::fs::metadata(file).is_ok_and(|facts| facts.permissions().mode() & 0o6000 != 0);
        if changes && !rustix::process::geteuid().is_root() {
            self.losses.add(pid, format!("{path} is setuid or setgid: while it is traced, it has no rights of others"));
        }
    }

    fn ended(&mut self, tid: pid_t, status: c_int) {
        self.early.remove(&tid);
        let Some(task) = self.tasks.remove(&tid) else { return };
        if tid != task.pid {
            if let Some(process) = self.processes.get_mut(&task.pid).filter(|_| !self.runs_natively) {
                process.stream.switch_to(tid as u32);
                if task.clears != 0 {
                    let (writes, address, bytes) = (true, task.clears, 4);
                    process.stream.send(&Record::KernelAccess { writes, address, bytes });
                }
                process.edges.thread_ends(tid, task.clears, &mut process.stream);
                process.stream.send(&Record::ThreadExit { tid: tid as u32 });
            }
            return;
        }
        if let Some(mut process) = self.processes.remove(&tid).filter(|_| !self.runs_natively) {
            let signal = libc::WTERMSIG(status);
            let code = if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 + signal };
            process.stream.switch_to(tid as u32);
            process.stream.send(&Record::Exit { code: code as u32 });
        }
        let mut state = self.shared.lock();
        state.pids.remove(&(tid as u32));
        if tid == self.root {
            state.status = Some(status);
        }
    }
}

/// The call that the thread is about to make, with what must be known before it.
fn begin_call(process: &mut Process, tid: pid_t, registers: &Registers, losses: &mut Losses) -> Call {
    let mut call = Call::new(registers.general[RAX], registers.arguments());
    let mut effects = process.effects(tid, losses);
    effects.before(&mut call);
    if call.number == libc::SYS_rt_sigreturn {
        // The frame begins below: the handler has returned by an instruction that took the return address.
        let address = registers.general[RSP] - 8;
        let bytes = frames::end(&process.memory, address) - address;
        process.stream.send(&Record::KernelAccess { writes: false, address, bytes });
    }
    call
}

/// The flags that an instruction has stored have one that the program has not set.
fn hide_trap_flag(memory: &Memory, address: u64, bytes: u8) {
    let mut flags = [0; 8];
    let flags = &mut flags[..usize::from(bytes)];
    if memory.read(address, flags) == flags.len() && flags[1] & (TRAP >> 8) as u8 != 0 {
        flags[1] &= !((TRAP >> 8) as u8);
        // If it fails, the program sees a flag more.
        let _ = memory.write(address, flags);
    }
}
