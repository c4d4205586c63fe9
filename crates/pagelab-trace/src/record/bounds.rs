//! Limits that end a recording before its program: number of accesses, bytes or seconds, or a nearly full disk.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::TraceError;

/// Interval between checks of the free space.
const SPACE_INTERVAL: Duration = Duration::from_millis(200);
/// Free bytes below which a recording ends: several times the data that is buffered for the disk.
const LEAST_FREE_BYTES: u64 = 64 << 20;
/// For a small file system, this fraction of its size instead.
const LEAST_FREE_PART: u64 = 16;

/// A limit that ended a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// `--max-accesses`.
    Accesses,
    /// `--max-bytes`.
    Bytes,
    /// `--max-seconds`.
    Seconds,
}

impl Bound {
    /// The option that sets it.
    pub fn option(self) -> &'static str {
        match self {
            Self::Accesses => "--max-accesses",
            Self::Bytes => "--max-bytes",
            Self::Seconds => "--max-seconds",
        }
    }
}

/// Checks bytes, seconds and free space during a recording.
#[derive(Debug)]
pub(super) struct Watch {
    pub max_bytes: Option<u64>,
    pub max_time: Option<Duration>,
    pub started: Instant,
    space: Option<Space>,
}

impl Watch {
    /// `folder` is the trace's folder, if one is written; `least_free` replaces the default minimum of free space.
    pub(super) fn new(
        max_bytes: Option<u64>,
        max_time: Option<Duration>,
        folder: Option<&Path>,
        least_free: Option<u64>,
    ) -> Self {
        let started = Instant::now();
        let space = folder.map(|folder| Space { folder: folder.to_path_buf(), least_free, looked: None });
        Self { max_bytes, max_time, started, space }
    }

    /// The limit that is reached once `bytes` are written.
    pub(super) fn reached(&self, bytes: u64) -> Option<Bound> {
        if self.max_bytes.is_some_and(|most| bytes >= most) {
            return Some(Bound::Bytes);
        }
        self.max_time.filter(|most| self.started.elapsed() >= *most).map(|_| Bound::Seconds)
    }

    /// # Errors
    /// [`TraceError::Usage`] if hardly any space is left on the trace's disk.
    pub(super) fn check_space(&mut self) -> Result<(), TraceError> {
        self.space.as_mut().map_or(Ok(()), Space::check)
    }
}

#[derive(Debug)]
struct Space {
    folder: PathBuf,
    least_free: Option<u64>,
    looked: Option<Instant>,
}

impl Space {
    fn check(&mut self) -> Result<(), TraceError> {
        if self.looked.is_some_and(|looked| looked.elapsed() < SPACE_INTERVAL) {
            return Ok(());
        }
        self.looked = Some(Instant::now());
        // If the file system does not report its space, there is no limit; if it fills up, the writer fails.
        let Ok(facts) = rustix::fs::statvfs(&self.folder) else { return Ok(()) };
        let bytes = |blocks: u64| blocks.saturating_mul(facts.f_frsize);
        let least = self.least_free.unwrap_or_else(|| LEAST_FREE_BYTES.min(bytes(facts.f_blocks) / LEAST_FREE_PART));
        let free = bytes(facts.f_bavail);
        // Some file systems report no blocks at all.
        if facts.f_blocks == 0 || free >= least {
            return Ok(());
        }
        Err(TraceError::usage(format!(
            "{}: only {} MiB are free on its disk{}, so the recording was ended before it is full; {REMEDY}",
            self.folder.display(),
            free >> 20,
            mounted_at(&self.folder),
        )))
    }
}

const REMEDY: &str = "free some, or set --max-bytes";

/// Returns the error; if the disk is full, an error that names the disk and what helps. `folder` is the trace's.
pub(super) fn explain_full_disk(error: TraceError, folder: &Path) -> TraceError {
    match &error {
        TraceError::Io { source, .. } => match source.kind() {
            kind @ (io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                let disk = mounted_at(folder);
                let kept = if folder.join("trace.json").exists() {
                    "; the trace holds what was recorded until then"
                } else {
                    ""
                };
                let what = format!("its disk{disk} is full: {source}{kept}; {REMEDY}");
                TraceError::io(folder, io::Error::new(kind, what))
            }
            _ => error,
        },
        TraceError::Corrupt { .. } | TraceError::Usage { .. } => error,
    }
}

/// ` (MOUNT POINT)` of the file system of `folder`, or of its nearest existing ancestor; empty if unknown.
fn mounted_at(folder: &Path) -> String {
    let device = |folder: &Path| folder.metadata().ok().map(|facts| facts.dev());
    let Ok(folder) = std::path::absolute(folder) else { return String::new() };
    let mut above = folder.ancestors().skip_while(|folder| !folder.exists());
    let Some(Ok(mut top)) = above.next().map(Path::canonicalize) else { return String::new() };
    let own = device(&top);
    while let Some(parent) = top.parent().filter(|parent| device(parent) == own) {
        top = parent.to_path_buf();
    }
    format!(" ({})", top.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_that_is_reached_is_named() {
        let watch = |bytes, time| Watch::new(bytes, time, None, None);
        assert_eq!(watch(Some(10), None).reached(9), None);
        assert_eq!(watch(Some(10), None).reached(10), Some(Bound::Bytes));
        assert_eq!(watch(None, Some(Duration::ZERO)).reached(0), Some(Bound::Seconds));
        assert_eq!(watch(None, Some(Duration::from_secs(1000))).reached(u64::MAX), None);
    }

    #[test]
    fn a_disk_that_is_nearly_full_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let check = |least| Watch::new(None, None, Some(folder.path()), Some(least)).check_space();
        assert!(check(0).is_ok());
        let error = check(u64::MAX).unwrap_err().to_string();
        assert!(error.contains("are free on its disk (/") && error.contains("--max-bytes"), "{error}");
    }

    #[test]
    fn the_full_disk_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let part = folder.path().join("accesses-000003.parquet");
        std::fs::write(folder.path().join("trace.json"), "").unwrap();
        let explained = |error| explain_full_disk(error, folder.path()).to_string();
        let full = explained(TraceError::io(&part, io::ErrorKind::StorageFull.into()));
        assert!(full.starts_with(&format!("{}: its disk (/", folder.path().display())), "{full}");
        assert!(full.contains("holds what was recorded") && full.contains("--max-bytes"), "{full}");
        assert!(!full.contains('\n'), "{full}");
        // No other error is changed.
        let other = || TraceError::io(&part, io::ErrorKind::PermissionDenied.into());
        assert_eq!(explained(other()), other().to_string());
    }

    #[test]
    fn a_mount_point_is_the_highest_folder_of_its_file_system() {
        assert_eq!(mounted_at(Path::new("/proc/self/no/such/folder")), " (/proc)");
        assert_eq!(mounted_at(Path::new("/")), " (/)");
    }
}
