//! Replaces a trace: the old one stays until the new one is complete.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::TraceError;

/// A new trace that will replace an old one.
pub(super) struct Replacement {
    /// Where the new trace is written, next to the old one.
    pub folder: PathBuf,
    place: PathBuf,
}

impl Replacement {
    /// None if there is nothing to replace at `place`.
    ///
    /// # Errors
    /// [`TraceError::Usage`] if there is something other than a trace; [`TraceError::Io`].
    pub(super) fn for_existing(place: &Path) -> Result<Option<Self>, TraceError> {
        if !place.exists() || is_empty(place) {
            return Ok(None);
        }
        if !place.join("trace.json").is_file() {
            return Err(TraceError::usage(format!("{}: is not a trace, so it is not replaced", place.display())));
        }
        // The path may be a symbolic link; its target is replaced.
        let place = place.canonicalize().map_err(|e| TraceError::io(place, e))?;
        let name = place.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let folder = tempfile::Builder::new()
            .prefix(&format!("{name}.new-"))
            .suffix(".trace")
            .tempdir_in(place.parent().unwrap_or(Path::new("/")))
            .map_err(|e| TraceError::io(&place, e))?
            .keep();
        // Temporary folders are private; the trace gets the permissions of the old one.
        if let Ok(old) = fs::metadata(&place) {
            fs::set_permissions(&folder, old.permissions()).map_err(|e| TraceError::io(&folder, e))?;
        }
        Ok(Some(Self { folder, place }))
    }

    /// Puts the new trace in the old one's place and removes the old one.
    pub(super) fn finish(self) -> Result<(), TraceError> {
        let failed = |e: std::io::Error| TraceError::io(&self.place, e);
        if renameat_with(CWD, &self.folder, CWD, &self.place, RenameFlags::EXCHANGE).is_ok() {
            return fs::remove_dir_all(&self.folder).map_err(failed);
        }
        // For file systems that cannot exchange two folders: for a moment there is no trace at that path.
        let old = self.folder.with_extension("old");
        fs::rename(&self.place, &old).map_err(failed)?;
        fs::rename(&self.folder, &self.place).map_err(failed)?;
        fs::remove_dir_all(&old).map_err(failed)
    }
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_replaced_when_the_new_one_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("t.trace");
        fs::create_dir(&place).unwrap();
        assert!(Replacement::for_existing(&place).unwrap().is_none(), "an empty folder needs no replacement");
        fs::write(place.join("trace.json"), "old").unwrap();
        let new = Replacement::for_existing(&place).unwrap().unwrap();
        fs::write(new.folder.join("trace.json"), "new").unwrap();
        assert_eq!(fs::read_to_string(place.join("trace.json")).unwrap(), "old");
        new.finish().unwrap();
        assert_eq!(fs::read_to_string(place.join("trace.json")).unwrap(), "new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn other_folders_and_files_are_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("letter"), "text").unwrap();
        for place in [folder.path().to_path_buf(), folder.path().join("letter")] {
            let error = Replacement::for_existing(&place).err().unwrap().to_string();
            assert!(error.contains("is not a trace"), "{error}");
        }
    }
}
