//! Early ends of recordings: the limit is reached, an interrupt, a killed recorder.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use pagelab_trace::EventKind;

use super::{Recorded, compiled, recorder, wait_at_most};

#[test]
fn recording_stops_after_the_wanted_accesses() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.trace");
    let program = compiled("endless");
    let mut child = recorder(&trace, &[program.to_str().unwrap()]).env("RECORD_MAX", "300000").spawn().unwrap();
    wait_at_most(&mut child, Duration::from_secs(30));
    let recorded = Recorded::read(&trace);
    assert_eq!(recorded.accesses.len(), 300_000);
    assert!(recorded.complete);
    assert!(recorded.notes.iter().any(|note| note.contains("300000")), "{:?}", recorded.notes);
}

#[test]
fn an_interrupt_is_the_programs() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.trace");
    let program = compiled("endless");
    let mut child = recorder(&trace, &[program.to_str().unwrap()]).spawn().unwrap();
    wait_for_parts(&trace);
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
    wait_at_most(&mut child, Duration::from_secs(30));
    assert_eq!(child.wait().unwrap().code(), Some(5), "the program's own answer to SIGINT");
    let recorded = Recorded::read(&trace);
    assert!(recorded.complete);
    assert!(recorded.events.iter().any(|event| event.kind == EventKind::Exit { code: 5 }));
}

/// Waits until part of the trace is on disk.
fn wait_for_parts(trace: &Path) {
    let begun = Instant::now();
    let has_part = || {
        std::fs::read_dir(trace).is_ok_and(|files| {
            files.flatten().any(|file| {
                let name = file.file_name().to_string_lossy().into_owned();
                name.starts_with("accesses-") && name.ends_with(".parquet")
            })
        })
    };
    while !has_part() {
        assert!(begun.elapsed() < Duration::from_secs(30), "nothing is written");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A folder for the recorder's temporary files, and the trace to write.
struct Places {
    folder: tempfile::TempDir,
    trace: PathBuf,
    temporary: PathBuf,
}

impl Places {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (trace, temporary) = (folder.path().join("t.trace"), folder.path().join("tmp"));
        std::fs::create_dir(&temporary).unwrap();
        Self { folder, trace, temporary }
    }

    fn start(&self, command: &[&str]) -> Child {
        recorder(&self.trace, command).env("TMPDIR", &self.temporary).spawn().unwrap()
    }

    fn temporary_files(&self) -> usize {
        std::fs::read_dir(&self.temporary).unwrap().count()
    }
}

#[track_caller]
fn within_seconds(limit: u64, what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(limit), "not within {limit} s: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Number of processes with `argument` among their arguments, without the recorder `except`.
fn running_with(argument: &Path, except: u32) -> usize {
    let argument = argument.to_str().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|process| process.file_name().to_string_lossy() != except.to_string())
        .filter(|process| {
            let command = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&command).split('\0').any(|part| part == argument)
        })
        .count()
}

#[test]
fn a_killed_recorder_leaves_a_trace_that_opens_and_nothing_else() {
    let places = Places::new();
    let program = compiled("endless");
    let marker = places.folder.path().join("marker");
    let mut child = places.start(&[program.to_str().unwrap(), marker.to_str().unwrap()]);
    wait_for_parts(&places.trace);
    assert_eq!((running_with(&marker, child.id()), places.temporary_files()), (1, 1));
    child.kill().unwrap();
    child.wait().unwrap();
    within_seconds(10, "the program has ended", || running_with(&marker, 0) == 0);
    within_seconds(10, "the temporary folder is gone", || places.temporary_files() == 0);
    let recorded = Recorded::read(&places.trace);
    assert!(!recorded.complete);
    assert!(recorded.accesses.len() > 100_000);
}

/// The program does not write to its stream: all its processes wait in system calls.
#[test]
fn a_killed_recorder_leaves_no_sleeping_family() {
    let places = Places::new();
    let marker = places.folder.path().join("marker");
    let ready = places.folder.path().join("ready");
    let script = format!("trap '' TERM HUP; (sleep 1000; :) & touch {}; wait", ready.display());
    let mut child = places.start(&["sh", "-c", &script, marker.to_str().unwrap()]);
    within_seconds(30, "shell, subshell and sleep run", || ready.exists() && running_with(&marker, child.id()) == 2);
    std::thread::sleep(Duration::from_millis(500));
    child.kill().unwrap();
    child.wait().unwrap();
    within_seconds(10, "the family has ended", || running_with(&marker, 0) == 0);
    within_seconds(10, "the temporary folder is gone", || places.temporary_files() == 0);
}

/// The program's SIGTERM handler runs, and processes that ignore the signal are killed.
#[test]
fn a_terminated_program_may_clean_up_and_leaves_no_process() {
    let places = Places::new();
    let marker = places.folder.path().join("marker");
    let cleaned = places.folder.path().join("cleaned");
    let endless = compiled("endless");
    let script = format!(
        "trap '' TERM; {0} {1} & trap 'touch {2}; exit 0' TERM; while :; do :; done",
        endless.display(),
        marker.display(),
        cleaned.display(),
    );
    let mut child = recorder(&places.trace, &["sh", "-c", &script]).env("RECORD_MAX", "3000000").spawn().unwrap();
    wait_at_most(&mut child, Duration::from_secs(60));
    assert!(cleaned.exists(), "the shell's handler ran");
    within_seconds(10, "the child has ended", || running_with(&marker, 0) == 0);
}

/// The program need not do anything, and the error keeps what was recorded.
#[test]
fn a_disk_that_is_nearly_full_ends_the_recording_with_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.trace");
    let program = compiled("endless");
    let output =
        recorder(&trace, &[program.to_str().unwrap()]).env("RECORD_LEAST_FREE", u64::MAX.to_string()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("are free on its disk"), "{said}");
    assert!(!trace.exists(), "nothing was recorded");
}
