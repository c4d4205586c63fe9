//! Copies of traces without information about their owner: names of files, arguments, the kernel's release.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::{
    TraceMeta, call_parts, columns, event_part,
    folder::Folder,
    meta::reports_stop,
    part::{self, ContentHash, Table},
    writer::create_folder,
};
use crate::calls::CallStacks;
use crate::{Event, EventKind, TraceError};

const SECONDS_PER_DAY: u64 = 24 * 60 * 60;

/// Replaces each file's name by a number with the kind of file: library, program, shared memory, or file.
#[derive(Debug, Default)]
pub(crate) struct FileNames {
    known: HashMap<Arc<str>, Arc<str>>,
    /// Number of names per kind.
    counts: HashMap<&'static str, u32>,
}

impl FileNames {
    /// The event with numbered names.
    pub(crate) fn replace(&mut self, mut kind: EventKind) -> EventKind {
        match &mut kind {
            EventKind::Mmap { file: Some(file), .. }
            | EventKind::Truncate { file, .. }
            | EventKind::FileData { file, .. }
            | EventKind::FileHole { file, .. }
            | EventKind::Relocate { file, .. } => *file = self.name(file, kind_of(file)),
            EventKind::Exec { path } => *path = self.name(path, "program"),
            EventKind::ProcessStart { .. }
            | EventKind::Mmap { file: None, .. }
            | EventKind::Munmap { .. }
            | EventKind::Mremap { .. }
            | EventKind::Mprotect { .. }
            | EventKind::Madvise { .. }
            | EventKind::Allocated { .. }
            | EventKind::Freed { .. }
            | EventKind::Msync { .. }
            | EventKind::EngineCall { .. }
            | EventKind::Fault { .. }
            | EventKind::Brk { .. }
            | EventKind::Fork { .. }
            | EventKind::Vfork { .. }
            | EventKind::Exit { .. }
            | EventKind::ThreadStart { .. }
            | EventKind::ThreadExit
            | EventKind::Wake { .. }
            | EventKind::Woken { .. }
            | EventKind::Skip
            | EventKind::Resume { .. }
            | EventKind::Measure => {}
        }
        kind
    }

    /// Call stacks with numbers instead of names for files and generated code.
    pub(crate) fn replace_in(&mut self, stacks: &mut CallStacks) {
        for context in &mut stacks.contexts {
            context.file = context.file.as_ref().map(|file| self.name(file, kind_of(file)));
        }
        for (number, code) in stacks.generated.iter_mut().enumerate() {
            code.name = format!("generated-{}", number + 1).into();
        }
    }

    fn name(&mut self, path: &Arc<str>, kind: &'static str) -> Arc<str> {
        // The kernel's own names are not files: replay recognises heap and stacks by them.
        if path.starts_with('[') {
            return if path.starts_with("[anon") { "[anon]".into() } else { Arc::clone(path) };
        }
        if let Some(known) = self.known.get(path) {
            return Arc::clone(known);
        }
        let number = self.counts.entry(kind).or_default();
        *number += 1;
        let ending = if kind == "library" { ".so" } else { "" };
        let name: Arc<str> = format!("/{kind}-{number}{ending}").into();
        self.known.insert(Arc::clone(path), Arc::clone(&name));
        name
    }
}

fn kind_of(path: &str) -> &'static str {
    let name = path.rsplit('/').next().unwrap_or(path);
    if ["/dev/shm/", "/memfd:", "/SYSV", "/dev/zero"].iter().any(|start| path.starts_with(start)) {
        "shared-memory"
    } else if name.ends_with(".so") || name.contains(".so.") {
        "library"
    } else {
        "file"
    }
}

impl TraceMeta {
    /// Removes the program's name and arguments, the kernel's release, the time of day, and notes, which contain names
    /// of programs and functions. The processor's model stays, since advice depends on it.
    pub(crate) fn anonymize(&mut self) {
        self.command = vec!["program".to_owned()];
        self.started_unix_seconds -= self.started_unix_seconds % SECONDS_PER_DAY;
        if let Some(host) = &mut self.host {
            "unknown".clone_into(&mut host.kernel);
        }
        if !self.losses.is_empty() {
            self.losses = vec![format!("{} losses, whose texts were left out", self.losses.len())];
        }
        let all = self.notes.len();
        self.notes.retain(|note| reports_stop(note));
        let dropped = all - self.notes.len();
        let also = if dropped > 0 { format!(", and {dropped} notes were left out") } else { String::new() };
        self.notes.push(format!("made anonymous: files have numbers instead of names{also}"));
    }
}

/// Writes the trace at `old` to the new folder `new`, without information about its owner. Accesses do not change.
///
/// # Errors
/// [`TraceError::Usage`] if `new` exists; [`TraceError::Corrupt`] if `old` is damaged; [`TraceError::Io`]. Nothing is
/// then left at `new`.
pub fn anonymize(old: &Path, new: &Path) -> Result<(), TraceError> {
    let folder = Folder::open(old)?;
    let existed = new.exists();
    create_folder(new)?;
    copy(folder, new).inspect_err(|_| {
        let _ = fs::remove_dir_all(new);
        if existed {
            let _ = fs::create_dir(new);
        }
    })
}

fn copy(folder: Folder, new: &Path) -> Result<(), TraceError> {
    let stacks = call_parts::read_stacks(&folder)?;
    let calls = call_parts::parts_of_calls(&folder)?;
    let mut meta = folder.meta;
    let complete = meta.complete;
    meta.anonymize();
    meta.complete = false;
    meta.write(new)?;
    let (mut names, mut event_hash, mut first_row) = (FileNames::default(), ContentHash::default(), 0);
    for (index, part) in folder.events.iter().enumerate() {
        let events = event_part::decode(part)?.into_iter();
        let events: Vec<Event> = events.map(|event| Event { kind: names.replace(event.kind), ..event }).collect();
        let (content, facts) = event_part::encode(&events, first_row).map_err(|e| TraceError::cannot_encode(new, e))?;
        part::write_whole(&new.join(Table::Events.file_name(index)), &content)?;
        event_hash.add(&facts);
        first_row += facts.rows;
    }
    let mut access_hash = ContentHash::default();
    for (index, part) in folder.accesses.iter().enumerate() {
        let (content, _) = part.read(columns::schema(meta.dependencies))?;
        part::write_whole(&new.join(Table::Accesses.file_name(index)), &content)?;
        access_hash.add(&part.facts);
    }
    if let Some(mut stacks) = stacks {
        names.replace_in(&mut stacks);
        call_parts::write_stacks(new, &stacks)?;
        calls.iter().enumerate().try_for_each(|(index, part)| call_parts::copy_calls(part, index, new))?;
    }
    meta.complete = complete;
    if complete {
        meta.content_hash = Some(ContentHash::combine(&access_hash, &event_hash));
    }
    meta.write(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_the_kind_and_one_file_its_number() {
        let mut names = FileNames::default();
        let mut anonymized = |path: &str| {
            let kind = EventKind::Truncate { file: path.into(), old_len: 2, new_len: 1 };
            let EventKind::Truncate { file, .. } = names.replace(kind) else { unreachable!() };
            file.to_string()
        };
        assert_eq!(anonymized("/home/somebody/lib/libx.so.1.2"), "/library-1.so");
        assert_eq!(anonymized("/home/somebody/data"), "/file-1");
        assert_eq!(anonymized("/usr/lib/liby.so"), "/library-2.so");
        assert_eq!(anonymized("/home/somebody/data"), "/file-1");
        assert_eq!(anonymized("/memfd:secret (deleted)"), "/shared-memory-1");
        assert_eq!(anonymized("[heap]"), "[heap]");
        assert_eq!(anonymized("[anon:secret]"), "[anon]");
    }

    #[test]
    fn a_trace_says_nothing_of_its_owner() {
        let mut meta = TraceMeta::new(vec!["/home/somebody/x".to_owned(), "--password".to_owned()]);
        meta.notes = vec!["process 1 executed /home/somebody/y".to_owned(), "recording was stopped after 5".to_owned()];
        meta.anonymize();
        let text = serde_json::to_string(&meta).unwrap();
        assert!(!text.contains("somebody") && !text.contains("password") && text.contains("stopped after 5"), "{text}");
        assert_eq!(meta.started_unix_seconds % SECONDS_PER_DAY, 0);
    }
}
