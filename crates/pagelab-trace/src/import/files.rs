//! Which files an import is of: the one that is named, or those of threads in a folder.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
};

use super::{
    Compression, Input,
    input::{BUFFER_BYTES, SMALL_BUFFER_BYTES},
};
use crate::TraceError;

/// Threads whose files have large buffers.
const MAX_LARGE_BUFFERS: usize = 16;

/// Opens the file at `path`, or the files of threads in the folder at `path` by their names.
pub(super) fn open(path: &Path, compression: Compression) -> Result<Vec<Input>, TraceError> {
    let paths = if path.is_dir() { of_threads(path)? } else { vec![path.to_path_buf()] };
    let buffer_bytes = if paths.len() > MAX_LARGE_BUFFERS { SMALL_BUFFER_BYTES } else { BUFFER_BYTES };
    let read_bytes = Arc::<AtomicU64>::default();
    let open = |path: &PathBuf| Input::open_one_of(path, compression, Arc::clone(&read_bytes), buffer_bytes);
    let files = paths.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    match files.iter().find(|file| file.head().bytes.is_empty()) {
        Some(empty) => Err(empty.corrupt("an empty trace: it has no data")),
        None => Ok(files),
    }
}

/// The files of DynamoRIO's threads: those in the folder, or in its folder `trace`, whose names have a part `trace`.
fn of_threads(folder: &Path) -> Result<Vec<PathBuf>, TraceError> {
    for candidate in [folder.to_path_buf(), folder.join("trace")] {
        let mut paths = Vec::new();
        let entries = match fs::read_dir(&candidate) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(TraceError::io(candidate, e)),
        };
        for entry in entries {
            let path = entry.map_err(|e| TraceError::io(&candidate, e))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.split('.').skip(1).any(|part| part == "trace") && path.is_file() {
                paths.push(path);
            }
        }
        if !paths.is_empty() {
            paths.sort_unstable();
            return Ok(paths);
        }
    }
    let raw = if folder.join("raw").is_dir() {
        "; it has raw data, which `drrun -t drcachesim -indir` turns into traces first"
    } else {
        ""
    };
    let what = format!("a folder without traces of threads, such as NAME.trace.zip of DynamoRIO{raw}; name a file");
    Err(TraceError::corrupt(folder, what))
}

/// The file of an import that has but one.
pub(super) fn only(files: &mut [Input]) -> Result<&mut Input, TraceError> {
    match files {
        [file] => Ok(file),
        [file, ..] => Err(file.corrupt("one of several files; only drmemtrace has a file per thread")),
        [] => Err(TraceError::usage("no file to import")),
    }
}
