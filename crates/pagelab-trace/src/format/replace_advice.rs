//! Copies of a trace with different advice on huge pages, so that one recording represents a program under several
//! layouts of page sizes.

use std::{fs, path::Path};

use super::{
    event_part,
    folder::Folder,
    meta,
    part::{self, Table},
    writer::create_folder,
};
use crate::{Event, EventKind, TraceError};

/// `MADV_HUGEPAGE` of madvise(2).
const HUGE_PAGES: u32 = 14;
const KIND: &str = "madvise";

/// Advice on a range of addresses, as madvise(2) takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    /// First byte of the range.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// The number passed to `madvise(2)`.
    pub advice: u32,
}

/// Copies the trace at `old` to the new folder `new`. Each advice to use huge pages, in the order of the trace, is
/// replaced by the list at its index in `replacements`, which may be empty. Accesses are not copied: both traces share
/// their files if the file system has hard links.
///
/// # Errors
/// [`TraceError::Usage`] if `new` exists or there are more or fewer replacements than advice to replace;
/// [`TraceError::Corrupt`] if `old` is damaged; [`TraceError::Io`]. Nothing is then left at `new`.
pub fn replace_advice(old: &Path, new: &Path, replacements: &[Vec<Advice>]) -> Result<(), TraceError> {
    let folder = Folder::open(old)?;
    let events = replaced(&folder, replacements)?;
    create_folder(new)?;
    copy(&folder, new, &events).inspect_err(|_| _ = fs::remove_dir_all(new))
}

/// The events of a trace with other advice.
fn replaced(folder: &Folder, replacements: &[Vec<Advice>]) -> Result<Vec<Event>, TraceError> {
    let (mut events, mut found) = (Vec::new(), 0);
    for part in &folder.events {
        for event in event_part::decode(part)? {
            if !matches!(event.kind, EventKind::Madvise { advice: HUGE_PAGES, .. }) {
                events.push(event);
                continue;
            }
            let ranges = replacements.get(found).map_or(&[][..], Vec::as_slice);
            events.extend(ranges.iter().map(|&Advice { addr, len, advice }| Event {
                kind: EventKind::Madvise { addr, len, advice },
                ..event.clone()
            }));
            found += 1;
        }
    }
    if found == replacements.len() {
        return Ok(events);
    }
    Err(TraceError::usage(format!(
        "{}: the trace gives advice on huge pages {found} times, but there are {} replacements",
        folder.path.display(),
        replacements.len()
    )))
}

fn copy(folder: &Folder, new: &Path, events: &[Event]) -> Result<(), TraceError> {
    let mut facts = folder.meta.clone();
    facts.complete = false;
    facts.write(new)?;
    for (index, some) in events.chunks(event_part::MAX_ROWS).enumerate() {
        let first_row = (index * event_part::MAX_ROWS) as u64;
        let (content, _) = event_part::encode(some, first_row).map_err(|e| TraceError::cannot_encode(new, e))?;
        part::write_whole(&new.join(Table::Events.file_name(index)), &content)?;
    }
    share_others(&folder.path, new)?;
    if let Some(counts) = &mut facts.events {
        let advice = events.iter().filter(|event| matches!(event.kind, EventKind::Madvise { .. })).count();
        counts.by_kind.remove(KIND);
        if advice > 0 {
            counts.by_kind.insert(KIND.to_owned(), advice as u64);
        }
    }
    if folder.meta.complete {
        facts.content_hash = Some(Folder::open(new)?.content_hash);
        facts.complete = true;
    }
    facts.write(new)
}

/// Shares all files of a trace except those of events and `trace.json`.
fn share_others(old: &Path, new: &Path) -> Result<(), TraceError> {
    for entry in fs::read_dir(old).map_err(|e| TraceError::io(old, e))? {
        let name = entry.map_err(|e| TraceError::io(old, e))?.file_name();
        let text = name.to_string_lossy();
        if text != meta::FILE_NAME && Table::Events.index_of(&text).is_none() {
            share(&old.join(&name), &new.join(&name))?;
        }
    }
    Ok(())
}

/// Creates a hard link to a file, or a copy if that is not possible.
fn share(file: &Path, name: &Path) -> Result<(), TraceError> {
    fs::hard_link(file, name).or_else(|_| fs::copy(file, name).map(drop)).map_err(|e| TraceError::io(name, e))
}
