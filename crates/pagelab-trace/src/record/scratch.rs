//! The folder for a recording's socket and logs, which is removed even if the recorder is killed.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::TraceError;

/// Maximum length of the parent folder's name: a socket's address has at most 107 bytes.
const PARENT_BYTES_MAX: usize = 80;

pub(super) struct Scratch {
    folder: tempfile::TempDir,
    /// Removes the folder when its standard input ends, which happens when this process drops it or dies.
    remover: Child,
}

impl Scratch {
    pub(super) fn new() -> Result<Self, TraceError> {
        let parent = std::env::temp_dir();
        let parent = if parent.as_os_str().len() > PARENT_BYTES_MAX { PathBuf::from("/tmp") } else { parent };
        let folder =
            tempfile::Builder::new().prefix("pagelab-").tempdir_in(&parent).map_err(|e| TraceError::io(&parent, e))?;
        let remover = Command::new("/bin/sh")
            .args(["-c", "read -r nothing; rm -rf -- \"$1\"", "sh"])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Signals from the terminal, and to this process's group, must not reach it.
            .process_group(0)
            .spawn()
            .map_err(|e| TraceError::io("/bin/sh", e))?;
        Ok(Self { folder, remover })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.remover.stdin.take());
        let _ = self.remover.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_goes_with_its_owner() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_path_buf();
        std::fs::write(path.join("log.1"), "text").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}
