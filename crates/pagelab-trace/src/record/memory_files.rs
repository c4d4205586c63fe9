//! Names of files that exist in memory only.
//!
//! Two such files often have the same path: `memfd_create` accepts any name twice, and a path below `/dev/shm` can be
//! deleted and created again. A trace tells files apart by their paths, so the second file of a path gets a number.

use std::collections::HashMap;
use std::sync::Arc;

/// Device and inode of a file in memory; both are 0 for other files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct FileId {
    pub device: u64,
    pub inode: u64,
}

impl FileId {
    /// Whether the file is in memory.
    pub(super) fn is_in_memory(self) -> bool {
        self != Self::default()
    }
}

/// The names that a recording has given.
#[derive(Debug, Default)]
pub(super) struct MemoryFiles {
    names: HashMap<FileId, Arc<str>>,
    /// Files by path.
    counts: HashMap<Arc<str>, u32>,
}

impl MemoryFiles {
    /// The file's name in the trace. A file keeps its first name, also when its path changes.
    pub(super) fn name(&mut self, id: FileId, path: Arc<str>) -> Arc<str> {
        if !id.is_in_memory() {
            return path;
        }
        let Self { names, counts } = self;
        let name = names.entry(id).or_insert_with(|| {
            let count = counts.entry(Arc::clone(&path)).or_insert(0);
            *count += 1;
            if *count == 1 { path } else { format!("{path} #{count}").into() }
        });
        Arc::clone(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_path_get_numbers_and_keep_their_names() {
        let mut files = MemoryFiles::default();
        let mut name = |inode, path: &str| files.name(FileId { device: u64::from(inode > 0), inode }, path.into());
        assert_eq!(&*name(0, "data"), "data");
        assert_eq!(&*name(7, "/memfd:buffer (deleted)"), "/memfd:buffer (deleted)");
        assert_eq!(&*name(8, "/memfd:buffer (deleted)"), "/memfd:buffer (deleted) #2");
        assert_eq!(&*name(9, "/dev/shm/a"), "/dev/shm/a");
        assert_eq!(&*name(9, "/dev/shm/a (deleted)"), "/dev/shm/a", "it is the same file");
        assert_eq!(&*name(10, "/dev/shm/a"), "/dev/shm/a #2");
        assert_eq!(&*name(7, "/memfd:buffer (deleted)"), "/memfd:buffer (deleted)");
    }
}
