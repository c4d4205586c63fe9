//! Children that Valgrind cannot run, and more threads than it supports.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use pagelab_trace::EventKind;

use super::{Recorded, compiled, program_output, record, recorder};

/// A 32-bit program that ends with code 7: an ELF header, one program header, and `exit(7)`.
fn write_32_bit_program(path: &Path) {
    const BASE: u32 = 0x0804_8000;
    const HEADERS: u32 = 52 + 32;
    // mov eax, 1; mov ebx, 7; int 0x80
    let code = [0xb8, 1, 0, 0, 0, 0xbb, 7, 0, 0, 0, 0xcd, 0x80];
    let length = HEADERS + code.len() as u32;
    let mut image = b"\x7fELF\x01\x01\x01".to_vec();
    image.resize(16, 0);
    let (executable, i386) = (2u16, 3u16);
    image.extend([executable, i386].iter().flat_map(|half| half.to_le_bytes()));
    image.extend([1, BASE + HEADERS, 52, 0, 0].iter().flat_map(|word: &u32| word.to_le_bytes()));
    image.extend([52u16, 32, 1, 0, 0, 0].iter().flat_map(|half| half.to_le_bytes()));
    let (load, readable_and_executable) = (1, 5);
    let segment = [load, 0, BASE, BASE, length, length, readable_and_executable, 4096];
    image.extend(segment.iter().flat_map(|word: &u32| word.to_le_bytes()));
    image.extend(code);
    fs::write(path, image).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

/// The shell's output and the exit codes of the recording's processes.
fn recorded_shell(script: &str) -> (String, Recorded) {
    let (output, recorded) = record(&["sh", "-c", script]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    (program_output(&output), recorded)
}

fn exit_codes(recorded: &Recorded) -> Vec<i32> {
    let code = |event: &pagelab_trace::Event| match event.kind {
        EventKind::Exit { code } => Some(code),
        _ => None,
    };
    recorded.events.iter().filter_map(code).collect()
}

#[test]
fn a_child_whose_parent_waits_for_its_execve_is_recorded() {
    let (output, recorded) = record(&[compiled("spawn").to_str().unwrap(), "/bin/true"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let executed = |event: &&pagelab_trace::Event| matches!(event.kind, EventKind::Exec { .. });
    assert_eq!(recorded.events.iter().filter(executed).count(), 2, "{:?}", recorded.notes);
    assert_eq!(exit_codes(&recorded), [0, 0, 0]);
    assert!(recorded.complete && recorded.notes.is_empty());
}

#[track_caller]
fn noted(recorded: &Recorded, program: &Path, why: &str) {
    let expected =
        format!("executed {}, which {why}: it ran natively, and nothing of it is recorded", program.display());
    assert_eq!(recorded.notes.len(), 1, "{:?}", recorded.notes);
    assert!(recorded.notes[0].contains(&expected), "{:?}", recorded.notes);
}

#[test]
fn a_32_bit_child_runs_natively_and_unrecorded() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("old");
    write_32_bit_program(&program);
    let (said, recorded) = recorded_shell(&format!("{}; echo $?", program.display()));
    assert_eq!(said.trim(), "7");
    assert_eq!(exit_codes(&recorded), [7, 0]);
    noted(&recorded, &program, "is a 32-bit program");
    assert!(recorded.complete);
}

#[test]
fn a_script_of_a_32_bit_interpreter_runs_natively() {
    let folder = tempfile::tempdir().unwrap();
    let (program, script) = (folder.path().join("old"), folder.path().join("script"));
    write_32_bit_program(&program);
    fs::write(&script, format!("#! {}\n", program.display())).unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    let (said, recorded) = recorded_shell(&format!("{}; echo $?", script.display()));
    assert_eq!(said.trim(), "7");
    noted(&recorded, &script, "is a 32-bit program");
}

fn copy_of(program: &str, folder: &Path, mode: u32) -> PathBuf {
    let copy = folder.join("copy");
    fs::copy(program, &copy).unwrap();
    fs::set_permissions(&copy, Permissions::from_mode(mode)).unwrap();
    copy
}

#[test]
fn a_setuid_child_runs_natively_and_unrecorded() {
    let folder = tempfile::tempdir().unwrap();
    for mode in [0o4755, 0o2755] {
        let program = copy_of("/bin/echo", folder.path(), mode);
        let (said, recorded) = recorded_shell(&format!("{} hello; echo $?", program.display()));
        assert_eq!(said, "hello\n0\n");
        noted(&recorded, &program, "is setuid or setgid");
        fs::remove_file(&program).unwrap();
    }
    // Without the bit, the same program is recorded.
    let program = copy_of("/bin/echo", folder.path(), 0o755);
    let (_, recorded) = recorded_shell(&format!("{} hello; echo $?", program.display()));
    assert!(recorded.notes.is_empty(), "{:?}", recorded.notes);
    assert!(recorded.events.iter().any(|e| matches!(&e.kind, EventKind::Exec { path } if path.ends_with("copy"))));
}

#[test]
fn a_failed_exec_fails_as_it_does_natively() {
    let folder = tempfile::tempdir().unwrap();
    let program = copy_of("/bin/echo", folder.path(), 0o644);
    let (said, recorded) = recorded_shell(&format!("{}; echo $?; /nowhere/at-all; echo $?", program.display()));
    assert_eq!(said, "126\n127\n");
    assert!(recorded.notes.is_empty(), "{:?}", recorded.notes);
}

#[test]
fn more_threads_than_valgrinds_default_are_recorded() {
    let (output, recorded) = record(&[compiled("threads").to_str().unwrap(), "600"]);
    assert_eq!(program_output(&output).trim(), "600");
    let starts = recorded.events.iter().filter(|e| matches!(e.kind, EventKind::ThreadStart { .. })).count();
    assert_eq!(starts, 601);
}

#[test]
fn too_many_threads_are_named_as_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.trace");
    let program = compiled("threads");
    let output = recorder(&trace, &[program.to_str().unwrap(), "30"]).env("RECORD_THREADS", "20").output().unwrap();
    assert_ne!(output.status.code(), Some(0));
    let notes = Recorded::read(&trace).notes;
    let named = |note: &String| note.contains("more than 20 threads at once; --max-threads allows more");
    assert!(notes.iter().any(named), "{notes:?}");
}

/// Records with `follow`; returns the exit codes of recorded processes that executed a program, and the notes.
fn followed(follow: &str, script: &str) -> (Vec<i32>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.trace");
    let output = recorder(&trace, &["sh", "-c", script]).env("RECORD_FOLLOW", follow).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let recorded = Recorded::read(&trace);
    assert!(recorded.complete);
    let executed: Vec<_> = recorded.events.iter().filter(|e| matches!(e.kind, EventKind::Exec { .. })).collect();
    let code = |event: &pagelab_trace::Event| match event.kind {
        EventKind::Exit { code } => executed.iter().any(|exec| exec.process == event.process).then_some(code),
        _ => None,
    };
    (recorded.events.iter().filter_map(code).collect(), recorded.notes)
}

#[test]
fn one_child_in_several_is_followed_and_the_others_run_natively() {
    // A child of a followed child is followed, too: those with code 20 have one with code 0.
    let script = "for n in 1 2 3 4 5 6 7; do sh -c \"exit $n\"; done; sh -c '/bin/true; exit 20'; sh -c '/bin/true; exit 20'; exit 0";
    let note = |followed: u32| {
        vec![format!(
            "of 9 children of the first program that executed another, {followed} were followed; the others ran natively, and \
             nothing of them is recorded"
        )]
    };
    assert_eq!(followed("1/1", script), (vec![1, 2, 3, 4, 5, 6, 7, 0, 20, 0, 20], vec![]));
    assert_eq!(followed("1/3", script), (vec![1, 4, 7], note(3)));
    assert_eq!(followed("2/3", script), (vec![2, 5, 0, 20], note(3)));
    assert_eq!(followed("8/100", script), (vec![0, 20], note(1)));
    assert_eq!(followed("100/100", script), (vec![], note(0)));
}
