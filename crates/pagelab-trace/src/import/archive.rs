//! Archives of several files: tar, compressed or not, and zip.
//!
//! An archive holds one trace: one file, or the folder of a traced program with a file per thread. The files of threads
//! are read in turns, so the archive is unpacked to the folder for temporary files (`TMPDIR`) first. That takes as much
//! space there as its files have. Only plain files are unpacked; a name that leads out of the folder is an error.

use std::{
    fs::{self, File},
    io::{self, Read},
    ops::ControlFlow,
    path::{Component, Path, PathBuf},
};

use tempfile::TempDir;
use zip::ZipArchive;

use super::{Head, Input};
use crate::TraceError;

/// Where a tar archive's first header says that it is one.
const TAR_MAGIC: (usize, &[u8]) = (257, b"ustar");
/// Files of one archive, as many as an import may have threads.
const MAX_FILES: usize = 1 << 16;
/// Bytes between two looks at whether the import is to go on.
const CHUNK_BYTES: usize = 1 << 20;

/// Whether data is a tar archive.
pub(super) fn is_tar(head: &Head<'_>) -> bool {
    let (at, magic) = TAR_MAGIC;
    head.bytes.get(at..at + magic.len()) == Some(magic)
}

/// Whether the file is a zip archive whose members are files of their own, rather than pieces of one thread's trace.
pub(super) fn is_zip_of_files(path: &Path) -> bool {
    let members = File::open(path).ok().and_then(|file| ZipArchive::new(file).ok());
    members.is_some_and(|members| {
        let mut names = members.file_names().flatten();
        names.any(|name| !name.ends_with('/') && is_thread_trace(Path::new(&*name)))
    })
}

/// Whether a name is that of a thread's trace in DynamoRIO's folder.
pub(super) fn is_thread_trace(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split('.').skip(1).any(|part| part == "trace" || part == "memtrace")
}

/// Asked now and then whether to go on.
pub(super) type GoOn<'a> = &'a mut dyn FnMut() -> ControlFlow<()>;

/// Unpacks a tar archive, which `input` decompresses.
pub(super) fn unpack_tar(input: &mut Input, go_on: GoOn<'_>) -> Result<Unpacked, TraceError> {
    let mut unpacked = Unpacked::new(input.path())?;
    let path = input.path().to_path_buf();
    let mut archive = tar::Archive::new(input.as_reader());
    let damaged = |e: io::Error| TraceError::corrupt(&path, format!("a tar archive that cannot be read: {e}"));
    for entry in archive.entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        if entry.header().entry_type().is_file() {
            let name = entry.path().map_err(damaged)?.into_owned();
            unpacked.add(&name, &mut entry, go_on)?;
        }
    }
    Ok(unpacked)
}

/// Unpacks a zip archive.
pub(super) fn unpack_zip(path: &Path, go_on: GoOn<'_>) -> Result<Unpacked, TraceError> {
    let mut unpacked = Unpacked::new(path)?;
    let damaged =
        |e: zip::result::ZipError| TraceError::corrupt(path, format!("a zip archive that cannot be read: {e}"));
    let file = File::open(path).map_err(|e| TraceError::io(path, e))?;
    let mut archive = ZipArchive::new(file).map_err(damaged)?;
    for index in 0..archive.len() {
        let mut member = archive.by_index(index).map_err(damaged)?;
        if member.is_file() {
            let name = PathBuf::from(&*member.name().map_err(damaged)?);
            unpacked.add(&name, &mut member, go_on)?;
        }
    }
    Ok(unpacked)
}

/// What an archive held, in a folder that goes when this does.
pub(super) struct Unpacked {
    archive: PathBuf,
    folder: TempDir,
    /// The files, as the archive names them.
    names: Vec<PathBuf>,
}

impl Unpacked {
    fn new(archive: &Path) -> Result<Self, TraceError> {
        let folder = tempfile::tempdir().map_err(|e| TraceError::io(std::env::temp_dir(), e))?;
        Ok(Self { archive: archive.to_path_buf(), folder, names: Vec::new() })
    }

    fn add(&mut self, name: &Path, content: &mut dyn Read, go_on: GoOn<'_>) -> Result<(), TraceError> {
        let wrong = |what: String| TraceError::corrupt(&self.archive, what);
        if name.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(wrong(format!("a file of the archive is named {:?}, outside of its folder", name.display())));
        }
        if self.names.len() == MAX_FILES {
            return Err(wrong(format!("an archive of more than {MAX_FILES} files")));
        }
        let path = self.folder.path().join(name);
        let written = |e| TraceError::io(&path, e);
        fs::create_dir_all(path.parent().unwrap_or(&path)).map_err(written)?;
        let mut file = File::create(&path).map_err(written)?;
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let len = match content.read(&mut chunk) {
                Ok(0) => break,
                Ok(len) => len,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(wrong(format!("in file {:?} of the archive: {e}", name.display()))),
            };
            io::Write::write_all(&mut file, &chunk[..len]).map_err(written)?;
            if go_on().is_break() {
                return Err(TraceError::usage("import interrupted; nothing was written"));
            }
        }
        self.names.push(name.to_path_buf());
        Ok(())
    }

    /// The trace's files: those of threads, or the only file; each with what messages call it.
    pub(super) fn files(&self) -> Result<Vec<(PathBuf, PathBuf)>, TraceError> {
        let mut threads: Vec<&PathBuf> = self.names.iter().filter(|name| is_thread_trace(name)).collect();
        threads.sort_unstable();
        let wrong = |what: String| Err(TraceError::corrupt(&self.archive, what));
        if threads.windows(2).any(|pair| pair[0].parent() != pair[1].parent()) {
            return wrong("an archive of several folders with traces of threads; unpack it and name one".to_owned());
        }
        let names = if threads.is_empty() { self.names.iter().collect() } else { threads };
        match names[..] {
            [] => wrong("an archive without a file".to_owned()),
            [first, second, ..] if !is_thread_trace(first) => wrong(format!(
                "an archive of {} files, such as {:?} and {:?}, none of which is a thread's trace of DynamoRIO; unpack it \
                 and name one",
                names.len(),
                first.display(),
                second.display()
            )),
            _ => Ok(names.iter().map(|name| (self.folder.path().join(name), self.archive.join(name))).collect()),
        }
    }
}
