//! Checks whether a program can be recorded, before Valgrind is started.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use object::read::elf::FileHeader;
use object::{FileKind, elf};

use crate::TraceError;

const EXECUTE_BITS: u32 = 0o111;
const SET_ID_BITS: u32 = 0o6000;
/// As of `execvp` without `PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// Maximum depth of interpreters of interpreters; Linux allows four.
const INTERPRETER_DEPTH: u32 = 4;

/// The file that `name` refers to: itself if it contains a slash, otherwise the first match in `PATH`.
pub(super) fn find(name: &OsStr) -> Result<PathBuf, TraceError> {
    let shown = name.to_string_lossy();
    if name.is_empty() {
        return Err(TraceError::usage("no program to record; write it after `--`"));
    }
    if shown.contains('/') {
        let path = PathBuf::from(name);
        return if path.exists() { Ok(path) } else { Err(TraceError::usage(format!("{shown}: no such program"))) };
    }
    in_path(name).ok_or_else(|| TraceError::usage(format!("{shown}: no such program in PATH")))
}

/// The first match in `PATH`, or where the C library looks without one.
pub(super) fn in_path(name: &OsStr) -> Option<PathBuf> {
    match std::env::var_os("PATH") {
        Some(_) => which::which(name).ok(),
        None => which::which_in(name, Some(DEFAULT_PATH), "/").ok(),
    }
}

/// gcc, which looks for its own programs in `PATH`.
pub(super) fn compiler() -> Command {
    let mut gcc = Command::new("gcc");
    if std::env::var_os("PATH").is_none() {
        gcc.env("PATH", DEFAULT_PATH);
    }
    gcc
}

/// Refuses programs that cannot be recorded, with the reason. Valgrind cannot run those with additional rights.
pub(super) fn check(path: &Path, by_valgrind: bool) -> Result<(), TraceError> {
    check_file(path, by_valgrind, INTERPRETER_DEPTH)
}

fn check_file(path: &Path, by_valgrind: bool, depth: u32) -> Result<(), TraceError> {
    let refuse = |why: &str| Err(TraceError::usage(format!("{}: {why}", path.display())));
    let meta = path.metadata().map_err(|e| TraceError::io(path, e))?;
    if meta.is_dir() {
        return refuse("is a directory, not a program");
    }
    if meta.permissions().mode() & EXECUTE_BITS == 0 {
        return refuse("is not executable");
    }
    if by_valgrind && meta.mode() & SET_ID_BITS != 0 {
        return refuse("is setuid or setgid, which Valgrind cannot run; record a copy without these bits");
    }
    if by_valgrind && has_capabilities(path) {
        return refuse("has capabilities of its own, which Valgrind cannot run; record a copy without them");
    }
    let mut head = Vec::new();
    File::open(path).and_then(|file| file.take(256).read_to_end(&mut head)).map_err(|e| TraceError::io(path, e))?;
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = String::from_utf8_lossy(line.split(|b| *b == b'\n').next().unwrap_or_default()).into_owned();
        let Some(interpreter) = line.split_ascii_whitespace().next() else {
            return refuse("its first line names no interpreter");
        };
        if depth == 0 {
            return refuse("has too many interpreters of interpreters");
        }
        if !Path::new(interpreter).exists() {
            return refuse(&format!("its interpreter {interpreter} does not exist"));
        }
        return check_file(Path::new(interpreter), by_valgrind, depth - 1);
    }
    match FileKind::parse(head.as_slice()) {
        Ok(FileKind::Elf64) if is_x86_64(&head) => Ok(()),
        Ok(FileKind::Elf64) => refuse("is not an x86-64 program"),
        Ok(FileKind::Elf32) => refuse("is a 32-bit program; only x86-64 programs can be recorded"),
        _ => refuse("is neither an ELF program nor a script with `#!`"),
    }
}

fn has_capabilities(path: &Path) -> bool {
    rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 64][..]).is_ok()
}

fn is_x86_64(head: &[u8]) -> bool {
    let header = elf::FileHeader64::<object::Endianness>::parse(head);
    header.is_ok_and(|header| header.endian().is_ok_and(|endian| header.e_machine(endian) == elf::EM_X86_64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn refusal(content: &[u8], mode: u32) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        check(&path, true).map_or_else(|e| e.to_string(), |()| String::new())
    }

    #[test]
    fn programs_that_cannot_run_are_refused_with_the_reason() {
        let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
        elf.resize(64, 0);
        elf[18] = 62;
        assert_eq!(refusal(&elf, 0o755), "");
        assert!(refusal(&elf, 0o644).contains("not executable"));
        assert!(refusal(&elf, 0o4755).contains("setuid"));
        elf[18] = 183;
        assert!(refusal(&elf, 0o755).contains("not an x86-64"));
        elf[4] = 1;
        assert!(refusal(&elf, 0o755).contains("32-bit"));
        assert!(refusal(b"hello", 0o755).contains("neither an ELF"));
        assert!(refusal(b"#!/nowhere/at-all -x\n", 0o755).contains("/nowhere/at-all does not exist"));
        assert_eq!(refusal(b"#!/bin/sh\n", 0o755), "");
    }

    #[test]
    fn names_are_searched() {
        assert!(find(OsStr::new("sh")).unwrap().is_absolute());
        assert!(find(OsStr::new("no-such-program-here")).unwrap_err().to_string().contains("in PATH"));
        assert!(find(OsStr::new("./no-such-program-here")).unwrap_err().to_string().contains("no such program"));
    }
}
