//! Any written content is read back unchanged.

use std::{sync::Arc, time::Duration};

use crate::support::{Draw, Item, drain, program_like, read, write};
use pagelab_trace::{
    Access, AccessKind, Batch, Event, EventKind, Maker, MapFlags, ProcessIx, Protection, Source, ThreadIx, TraceMeta,
    TraceReader, TraceWriter, cases,
    format::{self, WriterOptions},
};
use proptest::{collection::vec, option, prelude::*};

fn create(path: &std::path::Path, rows_per_part: usize) -> TraceWriter {
    TraceWriter::with_options(path, TraceMeta::new(vec!["prog".into()]), WriterOptions { rows_per_part }).unwrap()
}

fn any_access() -> impl Strategy<Value = Access> {
    // Mostly few program counters and sizes, sometimes any, so that dictionaries repeat, grow and overflow.
    let pc = prop_oneof![8 => 0u64..40, 1 => any::<u64>()];
    let gap = prop_oneof![8 => 0u32..4, 1 => any::<u32>()];
    let vaddr = prop_oneof![4 => 0x7fff_0000u64..0x7fff_1000, 1 => any::<u64>()];
    (0u8..4, vaddr, pc, gap, 1u16..=4096, any::<bool>()).prop_map(|(kind, vaddr, pc, gap, size_bytes, by_kernel)| {
        Access {
            vaddr,
            pc,
            gap,
            size_bytes,
            kind: AccessKind::from_code(kind).unwrap(),
            maker: Maker::kernel_if(by_kernel),
        }
    })
}

fn any_event_kind() -> impl Strategy<Value = EventKind> {
    let n = any::<u64>;
    let prot = || (0u32..8).prop_map(Protection::from_bits);
    let text = || "[a-zäöü/ ]{0,12}".prop_map(|s: String| Arc::<str>::from(s));
    prop_oneof![
        option::of(any::<u32>()).prop_map(|p| EventKind::ProcessStart { parent: p.map(ProcessIx) }),
        (n(), n(), prot(), any::<u32>(), option::of(text()), n()).prop_map(
            |(addr, len, prot, flags, file, file_offset)| {
                EventKind::Mmap { addr, len, prot, flags: MapFlags(flags), file, file_offset }
            }
        ),
        (n(), n()).prop_map(|(addr, len)| EventKind::Munmap { addr, len }),
        (n(), n(), n(), n()).prop_map(|(old_addr, old_len, new_addr, new_len)| EventKind::Mremap {
            old_addr,
            old_len,
            new_addr,
            new_len
        }),
        (n(), n(), prot()).prop_map(|(addr, len, prot)| EventKind::Mprotect { addr, len, prot }),
        (n(), n(), any::<u32>()).prop_map(|(addr, len, advice)| EventKind::Madvise { addr, len, advice }),
        (n(), n(), any::<u32>()).prop_map(|(addr, len, flags)| EventKind::Msync { addr, len, flags }),
        (n(), n()).prop_map(|(old_len, new_len)| EventKind::Truncate { file: "data".into(), old_len, new_len }),
        (n(), n()).prop_map(|(offset, len)| EventKind::FileData { file: "data".into(), offset, len }),
        (n(), n()).prop_map(|(offset, len)| EventKind::FileHole { file: "data".into(), offset, len }),
        (n(), n()).prop_map(|(offset, len)| EventKind::Relocate { file: "data".into(), offset, len }),
        any::<bool>().prop_map(|enable| EventKind::EngineCall { enable }),
        (n(), any::<bool>()).prop_map(|(addr, write)| EventKind::Fault { addr, write }),
        (n(), n()).prop_map(|(start, end)| EventKind::Brk { start, end }),
        any::<u32>().prop_map(|child| EventKind::Fork { child: ProcessIx(child) }),
        any::<u32>().prop_map(|child| EventKind::Vfork { child: ProcessIx(child) }),
        text().prop_map(|path| EventKind::Exec { path }),
        any::<i32>().prop_map(|code| EventKind::Exit { code }),
        any::<u32>().prop_map(|os_tid| EventKind::ThreadStart { os_tid }),
        Just(EventKind::ThreadExit),
        any::<u64>().prop_map(|edge| EventKind::Wake { edge }),
        any::<u64>().prop_map(|edge| EventKind::Woken { edge }),
        Just(EventKind::Skip),
        (0..=i64::MAX as u64, any::<u64>())
            .prop_map(|(instructions, accesses)| EventKind::Resume { instructions, accesses }),
        Just(EventKind::Measure),
    ]
}

/// A stream of items with at least one access; events get the position they stand at.
fn any_items() -> impl Strategy<Value = Vec<Item>> {
    let accesses = || {
        (0u32..4, vec(any_access(), 1..40))
            .prop_map(|(thread, run)| run.into_iter().map(|a| Item::Access(ThreadIx(thread), a)).collect::<Vec<_>>())
    };
    let event = || {
        (any_event_kind(), any::<u32>(), any::<u32>()).prop_map(|(kind, process, thread)| {
            vec![Item::Event(Event { position: 0, process: ProcessIx(process), thread: ThreadIx(thread), kind })]
        })
    };
    (vec(prop_oneof![accesses(), event()], 0..30), accesses(), vec(event(), 0..3)).prop_map(|(before, some, after)| {
        let mut position = 0;
        let mut items: Vec<Item> =
            before.into_iter().flatten().chain(some).chain(after.into_iter().flatten()).collect();
        for item in &mut items {
            match item {
                Item::Access(..) => position += 1,
                Item::Event(event) => event.position = position,
            }
        }
        items
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(200)))]

    #[test]
    fn any_stream_comes_back(items in any_items(), rows_per_part in 1usize..100) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("any.trace");
        let mut writer = create(&path, rows_per_part);
        write(&mut writer, &items).unwrap();
        let summary = writer.finish().unwrap();
        prop_assert_eq!(&read(&path).unwrap(), &items);

        let reader = TraceReader::open(&path).unwrap();
        prop_assert!(reader.meta().complete);
        let accesses: Vec<_> = items.iter().filter_map(|i| match i { Item::Access(_, a) => Some(a), Item::Event(_) => None }).collect();
        prop_assert_eq!(summary.accesses.total(), accesses.len() as u64);
        prop_assert_eq!(summary.events.total(), (items.len() - accesses.len()) as u64);
        prop_assert_eq!(summary.accesses.instructions, accesses.iter().map(|a| u64::from(a.gap)).sum::<u64>());
        let count = |kind| accesses.iter().filter(|a| a.kind == kind).count() as u64;
        prop_assert_eq!(summary.accesses.loads, count(AccessKind::Load));
        prop_assert_eq!(summary.accesses.stores, count(AccessKind::Store));
        prop_assert_eq!(summary.accesses.modifies, count(AccessKind::Modify));
        prop_assert_eq!(summary.accesses.fetches, count(AccessKind::Fetch));
        prop_assert_eq!(summary.accesses.by_kernel, accesses.iter().filter(|a| a.maker.is_kernel()).count() as u64);
        prop_assert_eq!(reader.info().accesses, Some(accesses.len() as u64));
        prop_assert_eq!(reader.info().content_hash.as_ref(), Some(&summary.content_hash));
        let info = format::info(&path).unwrap();
        prop_assert_eq!((info.access_counts, &info.event_counts), (summary.accesses, &summary.events));
        prop_assert_eq!(info.size_bytes, summary.size_bytes);
        prop_assert_eq!(info.access_parts, accesses.len().div_ceil(rows_per_part));
    }
}

/// Several parts of several pages; a dictionary with two-byte indices, and some that overflow.
#[test]
fn long_streams_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("long.trace");
    let mut accesses = program_like(700_000, 3);
    let mut draw = Draw(9);
    for access in &mut accesses[150_000..250_000] {
        access.pc = draw.below(40_000) * 3;
    }
    for access in &mut accesses[300_000..480_000] {
        (access.pc, access.gap) = (draw.next(), draw.next() as u32);
    }
    let items: Vec<Item> =
        accesses.iter().enumerate().map(|(i, a)| Item::Access(ThreadIx(i as u32 / 10_007 % 5), *a)).collect();
    let mut writer = create(&path, 300_000);
    write(&mut writer, &items).unwrap();
    let summary = writer.finish().unwrap();
    assert_eq!(summary.events.threads, 5);
    assert!(read(&path).unwrap() == items);
    assert!(!std::fs::read_dir(&path).unwrap().any(|e| e.unwrap().file_name().to_string_lossy().ends_with(".tmp")));
}

/// Tens of thousands of threads do not fit into a dictionary either.
#[test]
fn very_many_threads_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("threads.trace");
    let items: Vec<Item> =
        (0..70_000).map(|i| Item::Access(ThreadIx(i), Access::new(AccessKind::Load, 64, 8))).collect();
    let mut writer = create(&path, 1 << 20);
    write(&mut writer, &items).unwrap();
    assert_eq!(writer.finish().unwrap().events.threads, 70_000);
    assert!(read(&path).unwrap() == items);
}

#[test]
fn the_same_stream_has_the_same_hash_and_another_one_has_not() {
    let dir = tempfile::tempdir().unwrap();
    let hash = |name: &str, count: usize| {
        let mut writer = create(&dir.path().join(name), 1000);
        writer.append(ThreadIx(0), &program_like(count, 1)).unwrap();
        writer.finish().unwrap().content_hash
    };
    assert_eq!(hash("a", 5000), hash("b", 5000));
    assert_ne!(hash("c", 5000), hash("d", 4999));
}

/// Pages pass through threads. Files must not depend on which thread waits: for a writer that pauses, or for the disk.
#[test]
fn files_are_the_same_however_fast_they_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let accesses = program_like(700_000, 1);
    let files = |name: &str, rows: usize, pause: Duration| {
        let path = dir.path().join(name);
        let mut writer = create(&path, 150_000);
        for (number, some) in accesses.chunks(rows).enumerate() {
            writer.append(ThreadIx(number as u32 * rows as u32 / 100_000), some).unwrap();
            std::thread::sleep(pause);
        }
        writer.finish().unwrap();
        let names = (0..5).map(|part| format!("accesses-{part:06}.parquet"));
        names.map(|name| std::fs::read(path.join(name)).unwrap()).collect::<Vec<_>>()
    };
    let fast = files("fast", 100_000, Duration::ZERO);
    assert!(fast == files("slow", 20_000, Duration::from_millis(2)));
    assert!(fast == files("pieces", 1000, Duration::ZERO));
}

/// Parts are written by a thread two queues away.
#[test]
fn a_folder_that_is_gone_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gone.trace");
    let mut writer = create(&path, 70_000);
    std::fs::remove_dir_all(&path).unwrap();
    let accesses = program_like(70_000, 1);
    let error = (0..20).find_map(|_| writer.append(ThreadIx(0), &accesses).err()).expect("no folder to write to");
    let error = error.to_string();
    assert!(error.contains("accesses-000000.parquet") && error.contains("No such file"), "{error}");
    assert!(writer.finish().unwrap_err().to_string().contains("cannot be continued"));
}

#[test]
fn events_written_at_the_end_come_where_they_belong() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("late.trace");
    let mut writer = create(&path, 1000);
    writer.append(ThreadIx(0), &program_like(2500, 1)).unwrap();
    let event = |position| Event {
        position,
        process: ProcessIx(0),
        thread: ThreadIx(0),
        kind: EventKind::ThreadStart { os_tid: 7 },
    };
    writer.finish_with_events(&[event(0), event(0), event(1200), event(2500)]).unwrap();
    let items = read(&path).unwrap();
    assert_eq!(items[..2], [Item::Event(event(0)), Item::Event(event(0))]);
    assert_eq!(items[1202], Item::Event(event(1200)));
    assert_eq!(items[2503..], [Item::Event(event(2500))]);

    for (name, events) in [("beyond", vec![event(3)]), ("unordered", vec![event(1), event(0)])] {
        let mut writer = create(&dir.path().join(name), 1000);
        writer.append(ThreadIx(0), &program_like(2, 1)).unwrap();
        assert!(writer.finish_with_events(&events).is_err(), "{name}");
    }
}

/// A part of events is written before the part of accesses that they belong to. Events that arrive once that is full
/// are not in it.
#[test]
fn a_part_is_written_when_it_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("full.trace");
    let mut writer = create(&path, 10);
    let event = |position| Event {
        position,
        process: ProcessIx(0),
        thread: ThreadIx(0),
        kind: EventKind::Munmap { addr: 4096, len: 8192 },
    };
    let accesses = program_like(20, 1);
    for (at, part) in accesses.chunks(10).enumerate() {
        writer.event(event(10 * at as u64)).unwrap();
        writer.append(ThreadIx(0), part).unwrap();
    }
    writer.finish().unwrap();
    let info = format::info(&path).unwrap();
    assert_eq!((info.access_parts, info.event_parts), (2, 2));
}

#[test]
fn head_mixes_accesses_and_events() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("head.trace");
    let mut writer = create(&path, 10);
    let accesses = program_like(25, 1);
    let event = |position, kind| Event { position, process: ProcessIx(0), thread: ThreadIx(0), kind };
    writer.event(event(0, EventKind::ProcessStart { parent: None })).unwrap();
    writer.append(ThreadIx(3), &accesses[..12]).unwrap();
    writer.event(event(12, EventKind::Munmap { addr: 4096, len: 8192 })).unwrap();
    writer.append(ThreadIx(4), &accesses[12..]).unwrap();
    writer.finish().unwrap();
    let rows = |n| serde_json::to_value(format::head(&path, n).unwrap()).unwrap();
    assert_eq!(rows(0), serde_json::json!([]));
    assert_eq!(rows(15).as_array().unwrap().len(), 15);
    assert_eq!(rows(1000).as_array().unwrap().len(), 27);
    let all = rows(15);
    assert_eq!(all[0]["kind"], "process_start");
    assert_eq!(all[13]["kind"], "munmap");
    assert_eq!((&all[13]["position"], &all[13]["len"]), (&12.into(), &8192.into()));
    assert_eq!((&all[14]["row"], &all[14]["position"]), (&"access".into(), &12.into()));
    assert_eq!((&all[14]["thread"], &all[14]["vaddr"]), (&4.into(), &accesses[12].vaddr.into()));
}

#[test]
fn the_footprint_counts_pages_of_each_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pages.trace");
    let mut writer = create(&path, 10);
    let event =
        |process, thread, kind| Event { position: 0, process: ProcessIx(process), thread: ThreadIx(thread), kind };
    writer.event(event(0, 0, EventKind::ThreadStart { os_tid: 1 })).unwrap();
    writer.event(event(1, 1, EventKind::ThreadStart { os_tid: 2 })).unwrap();
    let load = |vaddr| Access::new(AccessKind::Load, vaddr, 8);
    writer.append(ThreadIx(0), &[load(0x1000), load(0x1ffc), load(0x1008)]).unwrap(); // pages 1 and 2
    writer.append(ThreadIx(1), &[load(0x1000), load(u64::MAX)]).unwrap(); // page 1 of another process, and the last one
    writer.finish().unwrap();
    assert_eq!(format::footprint(&path).unwrap().pages, 4);
}

#[test]
fn a_reader_may_be_dropped_halfway() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("half.trace");
    let mut writer = create(&path, 1 << 20);
    writer.append(ThreadIx(0), &program_like(600_000, 1)).unwrap();
    writer.finish().unwrap();
    let mut reader = TraceReader::open(&path).unwrap();
    let mut batch = pagelab_trace::Batch::default();
    assert!(reader.next_batch(&mut batch).unwrap());
    assert_eq!(batch.accesses.len(), format::PAGE_ROWS);
    drop(reader);
    assert_eq!(drain(&mut TraceReader::open(&path).unwrap()).unwrap().len(), 600_000);
}

/// Long traces have few files, and a short one that is cut off loses little.
#[test]
fn later_parts_are_larger() {
    const ACCESSES: u64 = 13 << 20;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.trace");
    let mut writer = TraceWriter::create(&path, TraceMeta::new(vec!["prog".into()])).unwrap();
    let accesses: Vec<Access> = (0..1 << 16).map(|n| Access::new(AccessKind::Load, n * 64, 8)).collect();
    (0..ACCESSES >> 16).for_each(|_| writer.append(ThreadIx(0), &accesses).unwrap());
    writer.finish().unwrap();
    let info = format::info(&path).unwrap();
    // Four of 1 Mi, four of 2 Mi, and the rest.
    assert_eq!((info.accesses, info.access_parts), (ACCESSES, 9));
    let mut reader = TraceReader::open(&path).unwrap();
    let (mut batch, mut read) = (Batch::default(), 0);
    while reader.next_batch(&mut batch).unwrap() {
        assert!(batch.accesses.iter().enumerate().all(|(n, access)| access.vaddr == ((read + n as u64) & 0xffff) * 64));
        read += batch.accesses.len() as u64;
    }
    assert_eq!(read, ACCESSES);
}
