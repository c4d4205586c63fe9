//! Which files an import is of: the one that is named, or those of threads in a folder or an archive.

use std::{
    fs, io,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
};

use super::{
    Compression, ImportProgress, Input,
    archive::{self, Unpacked, is_thread_trace},
    input::{BUFFER_BYTES, SMALL_BUFFER_BYTES},
};
use crate::TraceError;

/// Threads whose files have large buffers.
const MAX_LARGE_BUFFERS: usize = 16;

/// Asked how far an import is, and whether it goes on.
pub(super) type OnProgress<'a> = &'a mut dyn FnMut(ImportProgress) -> ControlFlow<()>;

/// A file, and what messages call it.
type Named = (PathBuf, PathBuf);

/// Opens the file at `path`, or the files of threads in the folder or the archive at `path` by their names.
pub(super) fn open(path: &Path, compression: Compression, progress: OnProgress<'_>) -> Result<Vec<Input>, TraceError> {
    if path.is_dir() {
        let paths = of_threads(path)?;
        return open_all(paths.into_iter().map(|path| (path.clone(), path)).collect(), compression);
    }
    let mut go_on = || progress(ImportProgress { read_bytes: 0, total_bytes: None, accesses: 0 });
    let is_zip = matches!(compression, Compression::Auto | Compression::Zip);
    if is_zip && archive::is_zip_of_files(path) {
        return open_unpacked(&archive::unpack_zip(path, &mut go_on)?);
    }
    let mut files = open_all(vec![(path.to_path_buf(), path.to_path_buf())], compression)?;
    if archive::is_tar(&files[0].head()) {
        return open_unpacked(&archive::unpack_tar(&mut files[0], &mut go_on)?);
    }
    Ok(files)
}

/// Opens what an archive held. Its folder may go then: open files stay.
fn open_unpacked(unpacked: &Unpacked) -> Result<Vec<Input>, TraceError> {
    open_all(unpacked.files()?, Compression::Auto)
}

fn open_all(files: Vec<Named>, compression: Compression) -> Result<Vec<Input>, TraceError> {
    let buffer_bytes = if files.len() > MAX_LARGE_BUFFERS { SMALL_BUFFER_BYTES } else { BUFFER_BYTES };
    let read_bytes = Arc::<AtomicU64>::default();
    let open =
        |(path, name): &Named| Input::open_one_of(path, name, compression, Arc::clone(&read_bytes), buffer_bytes);
    let files = files.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    match files.iter().find(|file| file.head().bytes.is_empty()) {
        Some(empty) => Err(empty.corrupt("an empty trace: it has no data")),
        None => Ok(files),
    }
}

/// The files of DynamoRIO's threads: those in the folder, or in its folder `trace`, whose names have a part
/// `trace` or `memtrace`.
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
            if is_thread_trace(&path) && path.is_file() {
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
