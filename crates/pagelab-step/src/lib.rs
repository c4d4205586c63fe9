//! Runs a program natively, one instruction at a time, and tells the recorder which memory it touches.
//!
//! The kernel stops each thread of the program after every instruction (`PTRACE_SINGLESTEP`). From the registers before
//! it, and the instruction's bytes, its accesses are found out. System calls are instructions, too: their effects on
//! memory and mappings come from their arguments and results. All this goes to the recorder as a stream, which is the
//! same as that of the Valgrind tool.
//!
//! | file | what it does |
//! |---|---|
//! | `sys` | system calls that trace; the only one with `unsafe` code |
//! | `registers`, `extended` | values of registers: general ones; vectors, masks and tiles |
//! | `access` | what an access is |
//! | `instruction` | what is known about an instruction before it is executed |
//! | `dependencies` | which registers and loads its results come from |
//! | `operands` | its accesses, from the values of registers |
//! | `stream` | records to the recorder |
//! | `code` | instructions that were described to the recorder |
//! | `memory` | memory and mappings of a traced process |
//! | `losses` | what the recording lacks |
//! | `edges` | threads that let others go on |
//! | `calls` | effects of system calls |
//! | `frames` | frames of signal handlers |
//! | `process` | a traced process |
//! | `tracer` | the loop that steps all threads |
//! | `inherited` | signals that a program inherits as ignored |
//! | `self_check` | whether single steps work on this machine |
#![deny(unsafe_code)]

mod access;
mod calls;
mod code;
mod dependencies;
mod edges;
mod extended;
mod frames;
mod inherited;
mod instruction;
mod losses;
mod memory;
mod operands;
mod process;
mod registers;
mod self_check;
mod stream;
mod sys;
mod tracer;

use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;

use libc::pid_t;

pub use inherited::{ignored_signals, inherited_ignored_signals, note_ignored_signals};
use losses::Losses;
use tracer::{OPTIONS, Tracer};

/// Version of the stream to the recorder.
pub const STREAM_VERSION: u32 = stream::VERSION;

/// Why a program cannot be stepped.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// With the reason, and what would allow it.
    #[error("single steps are forbidden here: {0}")]
    Forbidden(&'static str),
    #[error("single steps do not work on this machine: {0}")]
    Unreliable(String),
    #[error("{}: {source}", program.display())]
    Start { program: PathBuf, source: io::Error },
    #[error("single steps failed: {0}")]
    Io(io::Error),
}

/// Which children of the first process are followed when they execute a program: of each `every`, that of number
/// `from`, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follow {
    pub every: u32,
    pub from: u32,
}

impl Follow {
    /// Whether the child of this number, from 1 on, is followed. The first process has none, and is.
    fn takes(self, number: u32) -> bool {
        number == 0 || (number - 1) % self.every.max(1) == self.from
    }
}

/// A program to step.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its file.
    pub program: PathBuf,
    /// Its arguments, the first of which is its name.
    pub command: Vec<OsString>,
    /// The socket at which the recorder listens.
    pub socket: PathBuf,
    pub follow: Option<Follow>,
}

/// What the thread that steps shares with the recorder.
#[derive(Debug, Default)]
struct Shared {
    /// Nothing more is recorded: the program is to run natively to its end.
    stops: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Wait status of the first process, when it has ended.
    status: Option<i32>,
    pids: BTreeSet<u32>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A program that is being stepped, by a thread of its own.
#[derive(Debug)]
pub struct Stepped {
    pid: u32,
    shared: Arc<Shared>,
    thread: JoinHandle<io::Result<Losses>>,
}

impl Stepped {
    /// Starts a program.
    ///
    /// # Errors
    /// [`StepError`] if processes cannot be stepped here, or the program does not start.
    pub fn start(request: Request) -> Result<Self, StepError> {
        let shared = Arc::new(Shared::default());
        let (tell, started) = mpsc::channel();
        let of_thread = Arc::clone(&shared);
        let work = move || {
            let begun = self_check::check().and_then(|()| begin(&request));
            match begun {
                Ok(pid) => {
                    of_thread.lock().pids.insert(pid as u32);
                    // The receiver waits for this.
                    let _ = tell.send(Ok(pid as u32));
                    Tracer::new(pid, request.socket, request.follow, of_thread).run()
                }
                Err(error) => {
                    let _ = tell.send(Err(error));
                    Ok(Losses::default())
                }
            }
        };
        let thread = std::thread::Builder::new().name("stepper".to_owned()).spawn(work).map_err(StepError::Io)?;
        let pid = started.recv().map_err(|e| StepError::Io(io::Error::other(e)))??;
        Ok(Self { pid, shared, thread })
    }

    /// The first process.
    pub fn id(&self) -> u32 {
        self.pid
    }

    /// The wait status of the first process, if it has ended.
    pub fn status(&self) -> Option<i32> {
        // If the thread has ended without it, it has failed, and the kernel has killed the program.
        let has_failed = self.thread.is_finished();
        self.shared.lock().status.or(has_failed.then_some(libc::SIGKILL))
    }

    /// All processes that are traced.
    pub fn ids(&self) -> Vec<u32> {
        self.shared.lock().pids.iter().copied().collect()
    }

    /// Records nothing more; processes run natively as soon as they stop once more.
    pub fn run_natively(&self) {
        self.shared.stops.store(true, Ordering::Relaxed);
    }

    /// Waits until all processes have ended; returns what the recording lacks, a sentence each.
    ///
    /// # Errors
    /// [`StepError::Io`] if tracing failed.
    pub fn finish(self) -> Result<Vec<String>, StepError> {
        let losses = self.thread.join().map_err(|_| StepError::Io(io::Error::other("the stepping thread panicked")))?;
        Ok(losses.map_err(StepError::Io)?.sentences())
    }
}

/// Starts the program, which is traced from its first instruction on.
fn begin(request: &Request) -> Result<pid_t, StepError> {
    let fails = |source: io::Error| StepError::Start { program: request.program.clone(), source };
    let text = |bytes: &[u8]| CString::new(bytes).map_err(|e| fails(e.into()));
    let program = text(request.program.as_os_str().as_bytes())?;
    let arguments = request.command.iter().map(|word| text(word.as_bytes())).collect::<Result<Vec<_>, _>>()?;
    let environment = std::env::vars_os()
        .map(|(name, value)| text(&[name.into_vec(), value.into_vec()].join(&b'=')))
        .collect::<Result<Vec<_>, _>>()?;
    let (others_go, mut go) = io::pipe().map_err(StepError::Io)?;
    let (mut failure, others_failure) = io::pipe().map_err(StepError::Io)?;
    let (others_go, others_failure) = (OwnedFd::from(others_go), OwnedFd::from(others_failure));
    let arguments: Vec<_> = arguments.iter().map(CString::as_c_str).collect();
    let environment: Vec<_> = environment.iter().map(CString::as_c_str).collect();
    let pid = sys::fork_to_execute(&program, &arguments, &environment, &others_go, &others_failure).map_err(fails)?;
    drop((others_go, others_failure));
    let seized = sys::seize(pid, OPTIONS).map_err(self_check::forbidden);
    if let Err(error) = seized {
        sys::kill(pid, libc::SIGKILL);
        let _ = sys::wait();
        return Err(error);
    }
    go.write_all(&[1]).map_err(StepError::Io)?;
    let mut number = [0; 4];
    match failure.read_exact(&mut number) {
        // The pipe is closed by a successful execve.
        Err(_) => Ok(pid),
        Ok(()) => {
            while !matches!(sys::wait(), Ok(None | Some((_, sys::Stop::Ended(_)))) | Err(_)) {}
            Err(fails(io::Error::from_raw_os_error(i32::from_le_bytes(number))))
        }
    }
}
