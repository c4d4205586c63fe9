//! The running program: under Valgrind, or stepped instruction by instruction.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use pagelab_step::{Request, Stepped};
use rustix::process::{Pid, Signal, kill_process};

use super::log;
use super::program;
use super::protocol;
use super::session::Recording;
use super::tool::{self, Valgrind};
use crate::TraceError;

/// How long a program may take to end after SIGTERM before it is killed.
pub(super) const GRACE: Duration = Duration::from_secs(2);
/// How often the program's end is looked for meanwhile.
const PAUSE: Duration = Duration::from_millis(10);
// Both senders of streams have the same version.
const _: () = assert!(protocol::VERSION == pagelab_step::STREAM_VERSION);

/// What executes the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    /// Valgrind, with pagelab's tool.
    Valgrind {
        /// The result of [`prepare_tool`](super::prepare_tool).
        tool_dir: PathBuf,
    },
    /// The processor, which stops after each instruction. Much slower, but every instruction and system call works.
    SingleSteps,
}

impl Method {
    /// Name and version of what executes the program.
    pub(super) fn tool(&self) -> Result<(String, String), TraceError> {
        Ok(match self {
            Self::Valgrind { .. } => {
                let version = Valgrind::locate()?.version;
                ("valgrind".to_owned(), version.trim_start_matches("valgrind-").to_owned())
            }
            Self::SingleSteps => ("single-step".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        })
    }
}

pub(super) enum Running {
    Valgrind { child: Child, launcher: PathBuf },
    Stepped(Stepped),
}

impl Running {
    /// Starts the program, which sends its streams to `socket`.
    pub(super) fn start(recording: &Recording<'_>, scratch: &Path, socket: &Path) -> Result<Self, TraceError> {
        let tool_dir = match &recording.method {
            Method::Valgrind { tool_dir } => tool_dir,
            Method::SingleSteps => return Self::step(recording, socket),
        };
        let launcher = Valgrind::locate()?.launcher;
        let option = |name: &str, value: &OsStr| {
            let mut option = OsString::from(name);
            option.push(value);
            option
        };
        let child = Command::new(&launcher)
            .arg(format!("--tool={}", tool::NAME))
            // The user's own options for other tools must not reach this one.
            .arg("--command-line-only=yes")
            .arg("--trace-children=yes")
            .arg("--vgdb=no")
            .arg(option("--log-file=", scratch.join(log::NAME).as_os_str()))
            .arg(option("--socket=", socket.as_os_str()))
            .arg(format!("--max-threads={}", recording.max_threads))
            .arg(format!("--ignored-signals={:x}", pagelab_step::inherited_ignored_signals()))
            .arg(format!("--stacks={}", if recording.call_stacks { "yes" } else { "no" }))
            .args(recording.follow.iter().flat_map(|follow| follow.options()))
            .args(&recording.command)
            .env("VALGRIND_LIB", tool_dir)
            .spawn()
            .map_err(|e| TraceError::io(&launcher, e))?;
        Ok(Self::Valgrind { child, launcher })
    }

    fn step(recording: &Recording<'_>, socket: &Path) -> Result<Self, TraceError> {
        let request = Request {
            program: program::find(recording.command.first().map_or(OsStr::new(""), |name| name))?,
            command: recording.command.clone(),
            socket: socket.to_path_buf(),
            follow: recording.follow.as_ref().map(|follow| follow.of_steps()),
        };
        Ok(Self::Stepped(Stepped::start(request).map_err(|e| TraceError::usage(e.to_string()))?))
    }

    /// The first process.
    pub(super) fn id(&self) -> u32 {
        match self {
            Self::Valgrind { child, .. } => child.id(),
            Self::Stepped(stepped) => stepped.id(),
        }
    }

    /// All processes, if they are known; otherwise those of the connections.
    pub(super) fn ids(&self, connected: Vec<u32>) -> Vec<u32> {
        match self {
            Self::Valgrind { .. } => connected,
            Self::Stepped(stepped) => stepped.ids(),
        }
    }

    fn status(&mut self) -> Option<ExitStatus> {
        match self {
            Self::Valgrind { child, .. } => child.try_wait().ok().flatten(),
            Self::Stepped(stepped) => stepped.status().map(ExitStatus::from_raw),
        }
    }

    pub(super) fn has_ended(&mut self) -> bool {
        match self {
            Self::Valgrind { child, .. } => matches!(child.try_wait(), Ok(Some(_)) | Err(_)),
            Self::Stepped(stepped) => stepped.status().is_some(),
        }
    }

    /// Waits for the first process's end.
    pub(super) fn wait(&mut self) -> Result<ExitStatus, TraceError> {
        if let Self::Valgrind { child, launcher } = self {
            return child.wait().map_err(|e| TraceError::io(&*launcher, e));
        }
        loop {
            if let Some(status) = self.status() {
                return Ok(status);
            }
            std::thread::sleep(PAUSE);
        }
    }

    pub(super) fn signal(pid: u32, signal: Signal) {
        // A process that has ended meanwhile needs no signal.
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Sends a signal to the first process and to `others`.
    fn signal_all(&mut self, others: &[u32], signal: Signal) {
        let root = self.id();
        // The program's process id is not reused until it is waited for.
        if self.status().is_none() {
            Self::signal(root, signal);
        }
        others.iter().filter(|pid| **pid != root).for_each(|pid| Self::signal(*pid, signal));
    }

    /// Ends the program and `others`: SIGTERM, and after a while SIGKILL.
    pub(super) fn stop(&mut self, others: &[u32]) -> ExitStatus {
        if let Self::Stepped(stepped) = self {
            stepped.run_natively();
        }
        let begun = Instant::now();
        self.signal_all(others, Signal::TERM);
        while begun.elapsed() <= GRACE {
            if let Some(status) = self.status() {
                if let Self::Stepped(stepped) = self {
                    stepped.ids().iter().for_each(|pid| Self::signal(*pid, Signal::KILL));
                }
                return status;
            }
            std::thread::sleep(PAUSE);
        }
        let others = self.ids(others.to_vec());
        self.signal_all(&others, Signal::KILL);
        self.wait().unwrap_or_default()
    }

    /// What the program's recording lacks, and notes, when all processes have ended. `log` has Valgrind's messages.
    pub(super) fn remarks(self, scratch: &Path, max_threads: u32) -> Result<(Vec<String>, Vec<String>), TraceError> {
        match self {
            Self::Valgrind { .. } => Ok((log::losses(scratch, max_threads), log::notes(scratch))),
            Self::Stepped(stepped) => {
                let losses = stepped.finish().map_err(|e| TraceError::usage(e.to_string()))?;
                Ok((losses, Vec::new()))
            }
        }
    }
}
