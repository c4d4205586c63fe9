//! One recording for several layouts of page sizes: copies that differ only in advice.

use std::path::Path;

use crate::support::{Item, read};
use pagelab_trace::{
    Access, AccessKind, Event, EventKind, ProcessIx, ThreadIx, TraceError, TraceMeta, TraceReader, TraceWriter,
    format::{self, Advice},
};

const HUGE: u32 = 14;
const SMALL: u32 = 15;

fn advice(addr: u64, advice: u32) -> Advice {
    Advice { addr, len: 1 << 21, advice }
}

/// Two pieces of advice on huge pages and another one, between accesses.
fn write(path: &Path) {
    let mut writer = TraceWriter::create(path, TraceMeta::new(vec!["prog".into()])).unwrap();
    let event = |position, kind| Event { position, process: ProcessIx(0), thread: ThreadIx(0), kind };
    let advise = |addr, advice| EventKind::Madvise { addr, len: 1 << 21, advice };
    writer.event(event(0, EventKind::ProcessStart { parent: None })).unwrap();
    for (number, (addr, kind)) in [(0, HUGE), (1 << 21, 4), (1 << 22, HUGE)].into_iter().enumerate() {
        writer.event(event(number as u64, advise(addr, kind))).unwrap();
        writer.append(ThreadIx(0), &[Access::new(AccessKind::Store, addr, 8)]).unwrap();
    }
    writer.event(event(3, EventKind::Exit { code: 0 })).unwrap();
    writer.finish().unwrap();
}

fn advised(path: &Path) -> Vec<(u64, u64, u32)> {
    let items = read(path).unwrap();
    let events = items.iter().filter_map(|item| match item {
        Item::Event(Event { position, kind: EventKind::Madvise { addr, advice, .. }, .. }) => {
            Some((*position, *addr, *advice))
        }
        Item::Event(_) | Item::Access(..) => None,
    });
    events.collect()
}

#[test]
fn advice_on_huge_pages_is_replaced_and_all_else_stays() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (folder.path().join("old.trace"), folder.path().join("new.trace"));
    write(&old);
    let replacements = [vec![advice(0, SMALL), advice(2 << 21, HUGE)], vec![]];
    format::replace_advice(&old, &new, &replacements).unwrap();
    assert_eq!(advised(&old), [(0, 0, HUGE), (1, 1 << 21, 4), (2, 1 << 22, HUGE)], "the recording is as it was");
    assert_eq!(advised(&new), [(0, 0, SMALL), (0, 2 << 21, HUGE), (1, 1 << 21, 4)]);
    let others = |path: &Path| {
        let all = read(path).unwrap().into_iter();
        all.filter(|item| !matches!(item, Item::Event(Event { kind: EventKind::Madvise { .. }, .. })))
            .collect::<Vec<_>>()
    };
    assert_eq!(others(&old), others(&new));

    // The copy is complete, and describes its own events.
    let reader = TraceReader::open(&new).unwrap();
    assert!(reader.meta().complete);
    assert_eq!(reader.meta().events.as_ref().unwrap().by_kind["madvise"], 3);
    drop(reader);
    // The copy does not need the recording.
    std::fs::remove_dir_all(&old).unwrap();
    assert_eq!(others(&new).len(), 5);
}

#[test]
fn without_any_advice_there_is_none_in_the_counts() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["old.trace", "new.trace"].map(|name| folder.path().join(name));
    let mut writer = TraceWriter::create(&names[0], TraceMeta::new(vec!["prog".into()])).unwrap();
    let kind = EventKind::Madvise { addr: 0, len: 4096, advice: HUGE };
    writer.event(Event { position: 0, process: ProcessIx(0), thread: ThreadIx(0), kind }).unwrap();
    writer.append(ThreadIx(0), &[Access::new(AccessKind::Store, 0, 8)]).unwrap();
    writer.finish().unwrap();
    format::replace_advice(&names[0], &names[1], &[vec![]]).unwrap();
    assert!(TraceReader::open(&names[1]).unwrap().meta().events.as_ref().unwrap().by_kind.is_empty());
}

#[test]
fn replacements_must_be_as_many_as_what_they_replace() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (folder.path().join("old.trace"), folder.path().join("new.trace"));
    write(&old);
    for replacements in [vec![], vec![vec![]], vec![vec![], vec![], vec![]]] {
        let error = format::replace_advice(&old, &new, &replacements).unwrap_err();
        assert!(matches!(error, TraceError::Usage { .. }), "{error}");
        assert!(error.to_string().contains("gives advice on huge pages 2 times"), "{error}");
        assert!(!new.exists());
    }
    std::fs::create_dir(&new).unwrap();
    std::fs::write(new.join("file"), "mine").unwrap();
    let error = format::replace_advice(&old, &new, &[vec![], vec![]]).unwrap_err();
    assert!(error.to_string().contains("exists and is not empty"), "{error}");
    assert!(new.join("file").exists());
}
