//! One recording from start to end: starts the program under Valgrind, collects, forwards signals, ends it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::IsTerminal;
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::Signal;
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};

use super::bounds::{Bound, Watch, explain_full_disk};
use super::collect::{CollectError, Collector, Remarks};
use super::follow::Follow;
use super::live::LiveWriter;
use super::log;
use super::output::{Output, Sink};
use super::program;
use super::replace::Replacement;
use super::running::{GRACE, Method, Running};
use super::scratch::Scratch;
use super::stretches::{Schedule, Stretches};
use crate::format::{HostFacts, ProgramExit, StretchTotals, TraceSummary};
use crate::{TraceError, TraceMeta, TraceWriter};

/// Longest wait for the program before progress is reported and signals are checked.
const WAIT_MILLISECONDS: u32 = 100;
/// Longest wait while no process is connected: the program is starting, executes another, or has ended.
const SHORT_WAIT_MILLISECONDS: u32 = 5;
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Four times Valgrind's default, which is too low for web servers and databases.
pub const MAX_THREADS_DEFAULT: u32 = 2000;
/// How long nothing may come from processes that outlive the program, or for which others wait, before the recorder
/// gives up.
pub const PATIENCE_DEFAULT: Duration = Duration::from_secs(60);

/// Progress of a recording.
#[derive(Clone, Copy, Debug)]
pub struct RecordProgress {
    /// Number of accesses written so far.
    pub accesses: u64,
    /// Wall-clock time since the recording began.
    pub elapsed: Duration,
}

/// A program to record.
pub struct Recording<'a> {
    /// Program and arguments. A program without a slash is searched in `PATH`.
    pub command: Vec<OsString>,
    /// Stop after this many accesses: the program is then ended (SIGTERM, SIGKILL two seconds later), and the trace is
    /// complete up to there, with a note about it.
    pub max_accesses: Option<u64>,
    /// Stop when the trace has about this many bytes, in the same way.
    pub max_bytes: Option<u64>,
    /// Stop this long after the program's start, in the same way.
    pub max_time: Option<Duration>,
    /// Free bytes on the trace's disk below which the recording fails; default 64 MiB, less on small disks.
    pub least_free_bytes: Option<u64>,
    /// Replace an existing trace, which stays until the new one is complete.
    pub replace: bool,
    /// Omit what identifies the owner: names of files, arguments, the kernel's release.
    pub anonymous: bool,
    /// Maximum number of threads of a process at once; default [`MAX_THREADS_DEFAULT`]. Valgrind ends a process that
    /// starts more. Each costs 7 KiB in every process; with about 6,000 to 9,000 Valgrind's own tables are full.
    pub max_threads: u32,
    /// The stretches to record; none for everything. `max_accesses` counts their accesses and the first touches in
    /// skipped stretches.
    pub stretches: Option<Stretches>,
    /// What executes the program.
    pub method: Method,
    /// Whether to record what accesses depend on, and branches; for a live recording, its readers decide.
    pub dependencies: bool,
    /// Whether to record call stacks, and which calls allocate which memory. Not for live recordings.
    pub call_stacks: bool,
    /// Which children of the program are followed when they execute another program; none for all.
    pub follow: Option<Follow>,
    /// How long processes that outlive the program may send nothing; [`PATIENCE_DEFAULT`] unless set. The recorder then
    /// ends them, and itself.
    pub patience: Duration,
    /// Ends the recording once it is set, as if a limit had been reached.
    pub stop: Option<&'a AtomicBool>,
    /// Called about ten times a second.
    pub progress: Option<Box<dyn FnMut(RecordProgress) + 'a>>,
}

/// Summary of a recording.
#[derive(Clone, Debug)]
pub struct RecordSummary {
    /// Number of recorded accesses.
    pub accesses: u64,
    /// Number of recorded processes.
    pub processes: u32,
    /// Number of recorded threads, in all processes.
    pub threads: u32,
    /// The program's exit status as in a shell: its exit code, or 128 plus the number of the signal.
    pub exit_code: i32,
    /// The signal that ended the program, if one did.
    pub signal: Option<i32>,
    /// Number of accesses after which the recording was stopped; `None` if the program ran to its end.
    pub truncated_at: Option<u64>,
    /// The limit that stopped it, if one did.
    pub truncated_by: Option<Bound>,
    /// Whether the recorder ended the program because its processes waited for each other's records.
    pub gave_up: bool,
    /// What a reader should know of the recording, one sentence each.
    pub notes: Vec<String>,
    /// What is missing although it was to be recorded, and where the program did not behave as outside the recorder.
    pub losses: Vec<String>,
    /// Present if only stretches were to be recorded.
    pub stretches: Option<StretchTotals>,
    /// Wall-clock time from the program's start until its last access was collected.
    pub elapsed: Duration,
}

impl<'a> Recording<'a> {
    /// Records a whole program under Valgrind, with dependencies and all its children. `tool_dir` is the folder of the
    /// built Valgrind tool.
    pub fn new(command: Vec<OsString>, tool_dir: PathBuf) -> Self {
        Self::by(Method::Valgrind { tool_dir }, command)
    }

    /// Records a whole program, with dependencies and all its children.
    pub fn by(method: Method, command: Vec<OsString>) -> Self {
        Self {
            command,
            max_accesses: None,
            max_bytes: None,
            max_time: None,
            least_free_bytes: None,
            replace: false,
            anonymous: false,
            max_threads: MAX_THREADS_DEFAULT,
            stretches: None,
            method,
            dependencies: true,
            call_stacks: false,
            follow: None,
            patience: PATIENCE_DEFAULT,
            stop: None,
            progress: None,
        }
    }

    /// Records into a new trace at `output`. The program has this process's standard input, output and error.
    ///
    /// # Errors
    /// [`TraceError::Usage`] if the program cannot be recorded, Valgrind is missing, or `output` exists; then nothing
    /// is left at `output`. [`TraceError::Io`], or [`TraceError::Usage`] for a nearly full disk: the program is ended,
    /// and the trace is incomplete but can be opened. If it was to replace another one, that one stays, and the error
    /// names the new one.
    pub fn run(self, output: &Path) -> Result<(RecordSummary, TraceSummary), TraceError> {
        let (tool, version) = self.method.tool()?;
        self.check()?;
        let command: Vec<String> = self.command.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        let mut meta = TraceMeta::new(command);
        meta.host = Some(HostFacts::this_machine());
        meta.dependencies = self.dependencies;
        meta.call_stacks = self.call_stacks;
        meta.tools.insert(tool, version);
        let replacement = if self.replace { Replacement::for_existing(output)? } else { None };
        if replacement.is_none() && output.join("trace.json").exists() {
            let what = "exists; name another output, or replace it with --force";
            return Err(TraceError::usage(format!("{}: {what}", output.display())));
        }
        let Some(replacement) = replacement else {
            return self.run_at(output, meta).map_err(|error| explain_full_disk(error, output));
        };
        let recorded = self.run_at(&replacement.folder, meta);
        let (summary, mut trace) = match recorded.map_err(|error| explain_full_disk(error, &replacement.folder)) {
            Ok(recorded) => recorded,
            Err(error) if replacement.folder.exists() => {
                let rest = replacement.folder.display();
                return Err(TraceError::usage(format!("{error}; what was recorded until then is {rest}")));
            }
            Err(error) => return Err(error),
        };
        replacement.finish()?;
        output.clone_into(&mut trace.path);
        Ok((summary, trace))
    }

    fn run_at(self, output: &Path, meta: TraceMeta) -> Result<(RecordSummary, TraceSummary), TraceError> {
        let fresh = !output.exists();
        let anonymous = self.anonymous;
        let mut writer = TraceWriter::create(output, meta)?;
        match self.run_into(&mut writer, Some(output)) {
            Ok(summary) => {
                if summary.truncated_at.is_none() {
                    writer.meta_mut().exit = Some(ProgramExit { status: summary.exit_code, signal: summary.signal });
                }
                writer.meta_mut().stretches = summary.stretches;
                writer.meta_mut().losses.clone_from(&summary.losses);
                let notes = &mut writer.meta_mut().notes;
                notes.extend(summary.notes.iter().cloned());
                if let Some(n) = summary.truncated_at {
                    let by = summary.truncated_by.map_or_else(String::new, |bound| format!(" by {}", bound.option()));
                    notes.push(format!("recording was stopped after {n} accesses{by}"));
                }
                if anonymous {
                    writer.meta_mut().anonymize();
                }
                Ok((summary, writer.finish()?))
            }
            Err(error) => {
                let empty = writer.position() == 0;
                drop(writer);
                if fresh && empty {
                    fs::remove_dir_all(output).map_err(|e| TraceError::io(output, e))?;
                }
                Err(error)
            }
        }
    }

    /// Records for readers that read meanwhile. The program has this process's standard input, output and error.
    ///
    /// # Errors
    /// Those of [`run`](Self::run); the readers then end early.
    pub fn run_live(self, mut writer: LiveWriter) -> Result<RecordSummary, TraceError> {
        self.run_into(&mut writer, None)
    }

    fn run_into(mut self, writer: &mut dyn Sink, folder: Option<&Path>) -> Result<RecordSummary, TraceError> {
        self.check()?;
        let scratch = Scratch::new()?;
        let socket = scratch.path().join("s");
        let listener = UnixListener::bind(&socket)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|e| TraceError::io(&socket, e))?;
        let signals = Signals::watch(self.stretches.as_ref().is_some_and(|stretches| stretches.on_signal))?;
        let mut watch = Watch::new(self.max_bytes, self.max_time, folder, self.least_free_bytes);
        watch.check_space()?;
        let (started, max_threads) = (watch.started, self.max_threads);
        let started_at = SystemTime::now();
        let mut program = Running::start(&self, scratch.path(), &socket)?;
        let root_pid = program.id();
        let schedule = self.stretches.as_ref().map(Schedule::new);
        let output = Output::new(writer, self.max_accesses, schedule).anonymous(self.anonymous);
        let output = output.with_calls(folder.filter(|_| self.call_stacks), started_at);
        let mut collector = Collector::new(listener, output);
        let collected = self.collect(&mut collector, &mut program, &signals, &mut watch);
        let mut life_lines = collector.take_life_lines();
        let pids = program.ids(collector.connected_pids());
        let (end, error) = match collected {
            Ok(end) => (Some(end), None),
            Err(error) => (None, Some(error)),
        };
        let root_has_ended = program.has_ended();
        let (accesses, processes, threads) = (collector.written(), collector.processes(), collector.threads());
        let (finished, status) = if matches!(end, Some(End::OfAll)) {
            let status = program.wait()?;
            life_lines.wait(GRACE);
            if processes == 0 {
                program.remarks(scratch.path(), max_threads)?;
                let log = log::tail(scratch.path(), root_pid);
                return Err(TraceError::usage(format!("Valgrind did not start the program ({status}):\n{log}")));
            }
            (collector.finish_all(Some(exit_code(status))), status)
        } else {
            let finished = collector.finish_all(None);
            // All connections are closed now, so no process waits for the recorder any more.
            let status = program.stop(&pids);
            life_lines.wait(GRACE);
            drop(life_lines);
            (finished, status)
        };
        if let Some(error) = error {
            return Err(explain(error, scratch.path(), root_pid));
        }
        let (mut output, Remarks { mut notes, mut losses }) =
            finished.map_err(|e| explain(e, scratch.path(), root_pid))?;
        notes.extend(output.finish_calls()?);
        let (more_losses, more_notes) = program.remarks(scratch.path(), max_threads)?;
        losses.extend(more_losses);
        notes.extend(more_notes);
        let stretches = stretches_of(&output, &mut notes);
        let (truncated_by, is_cut, gave_up) = match end {
            Some(End::Bound(bound)) => (Some(bound), true, false),
            Some(End::Stopped) => (None, true, false),
            Some(End::GaveUp(why)) => {
                losses.push(why);
                // If the first process has ended, it is whole, and its status counts.
                (None, !root_has_ended, !root_has_ended)
            }
            Some(End::OfAll) | None => (None, false, false),
        };
        Ok(RecordSummary {
            accesses: if is_cut { accesses } else { output.written() },
            processes,
            threads,
            exit_code: exit_code(status),
            signal: status.signal(),
            truncated_at: is_cut.then_some(accesses),
            truncated_by,
            gave_up,
            notes,
            losses,
            stretches,
            elapsed: started.elapsed(),
        })
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    fn check(&self) -> Result<(), TraceError> {
        let file = program::find(self.command.first().map_or(OsStr::new(""), |name| name))?;
        program::check(&file, matches!(self.method, Method::Valgrind { .. }))
    }

    /// Collects until the program and all its children have ended, or a limit is reached.
    fn collect(
        &mut self,
        collector: &mut Collector<'_>,
        program: &mut Running,
        signals: &Signals,
        watch: &mut Watch,
    ) -> Result<End, CollectError> {
        let mut last_report = watch.started;
        let mut last_sign = Instant::now();
        loop {
            let wait = if collector.is_connected() { WAIT_MILLISECONDS } else { SHORT_WAIT_MILLISECONDS };
            let busy = collector.step(wait)?;
            if busy {
                last_sign = Instant::now();
            }
            if signals.pass_on(program) {
                return Ok(End::GaveUp("a signal ended the recorder before the program's last process".to_owned()));
            }
            signals.ask(collector);
            if last_report.elapsed() >= PROGRESS_INTERVAL
                && let Some(progress) = &mut self.progress
            {
                last_report = Instant::now();
                progress(RecordProgress { accesses: collector.written(), elapsed: watch.started.elapsed() });
            }
            if collector.is_full() {
                return Ok(End::Bound(Bound::Accesses));
            }
            if let Some(bound) = watch.reached(collector.bytes()) {
                return Ok(End::Bound(bound));
            }
            watch.check_space().map_err(CollectError::Output)?;
            if self.is_stopped() {
                return Ok(End::Stopped);
            }
            if busy {
                continue;
            }
            if !collector.is_connected() && program.has_ended() {
                // Connections made before the end can be accepted now.
                if !collector.step(0)? && !collector.is_connected() {
                    return Ok(End::OfAll);
                }
            }
            if last_sign.elapsed() >= self.patience && (collector.is_waiting() || program.has_ended()) {
                return Ok(End::GaveUp(gave_up(collector, program, self.patience)));
            }
        }
    }
}

/// How collecting came to its end.
enum End {
    /// All processes have ended.
    OfAll,
    Bound(Bound),
    /// As the caller wished.
    Stopped,
    /// The reason.
    GaveUp(String),
}

fn gave_up(collector: &Collector<'_>, program: &mut Running, patience: Duration) -> String {
    let has_ended = program.has_ended();
    let pids: Vec<String> = program.ids(collector.connected_pids()).iter().map(u32::to_string).collect();
    let (seconds, pids) = (patience.as_secs_f64(), pids.join(", "));
    if has_ended {
        format!("the program has ended, but not its processes {pids}; they did nothing for {seconds} s and were ended")
    } else {
        format!("processes {pids} wait for others that sent nothing for {seconds} s; the program was ended")
    }
}

/// Totals of the stretches; adds what is missing to the notes.
fn stretches_of(output: &Output<'_>, notes: &mut Vec<String>) -> Option<StretchTotals> {
    let (totals, missing) = output.stretch_totals()?;
    notes.extend(missing);
    Some(totals)
}

fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}

fn explain(error: CollectError, scratch: &Path, root_pid: u32) -> TraceError {
    match error {
        CollectError::Output(error) => error,
        CollectError::Stream(what) => {
            TraceError::usage(format!("recording failed: {what}\n{}", log::tail(scratch, root_pid)))
        }
    }
}

/// Signals that would end the recorder; during a recording they are forwarded to the program.
struct Signals {
    watched: Vec<(Signal, Arc<AtomicBool>, SigId)>,
    /// Signals that begin and end recorded stretches, if requested.
    stretches: Vec<(bool, Arc<AtomicBool>, SigId)>,
    /// Whether a terminal sends Ctrl-C to the program as well.
    terminal: bool,
}

impl Signals {
    fn watch(of_stretches: bool) -> Result<Self, TraceError> {
        let watch = |number| {
            let flag = Arc::new(AtomicBool::new(false));
            let id = signal_hook::flag::register(number, Arc::clone(&flag))
                .map_err(|e| TraceError::usage(format!("cannot watch for signal {number}: {e}")))?;
            Ok::<_, TraceError>((flag, id))
        };
        let (mut watched, mut stretches) = (Vec::new(), Vec::new());
        let all = [(SIGINT, Signal::INT), (SIGTERM, Signal::TERM), (SIGHUP, Signal::HUP)];
        // As after `nohup`: the program inherits that a signal is ignored only if no handler takes its place.
        for (number, signal) in all.into_iter().filter(|(number, _)| !is_ignored(*number)) {
            let (flag, id) = watch(number)?;
            watched.push((signal, flag, id));
        }
        for (number, record) in [(SIGUSR1, true), (SIGUSR2, false)].into_iter().filter(|_| of_stretches) {
            let (flag, id) = watch(number)?;
            stretches.push((record, flag, id));
        }
        Ok(Self { watched, stretches, terminal: std::io::stdin().is_terminal() })
    }

    fn ask(&self, collector: &mut Collector<'_>) {
        for (record, flag, _) in &self.stretches {
            if flag.swap(false, Ordering::Relaxed) {
                collector.ask(*record);
            }
        }
    }

    /// Returns true if a signal came after the program's end: it is the recorder's then.
    fn pass_on(&self, program: &mut Running) -> bool {
        for (signal, flag, _) in &self.watched {
            if !flag.swap(false, Ordering::Relaxed) {
                continue;
            }
            if program.has_ended() {
                return true;
            }
            let by_terminal = self.terminal && *signal != Signal::TERM;
            if !by_terminal {
                Running::signal(program.id(), *signal);
            }
        }
        false
    }
}

/// Whether this process ignores the signal.
fn is_ignored(number: i32) -> bool {
    pagelab_step::ignored_signals() >> (number - 1) & 1 == 1
}

impl Drop for Signals {
    fn drop(&mut self) {
        let ids = self.watched.iter().map(|(_, _, id)| id).chain(self.stretches.iter().map(|(_, _, id)| id));
        ids.for_each(|id| _ = signal_hook::low_level::unregister(*id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_a_shells() {
        assert_eq!(exit_code(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(exit_code(ExitStatus::from_raw(9)), 137);
    }
}
