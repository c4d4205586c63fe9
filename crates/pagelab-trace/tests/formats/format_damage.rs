//! Damaged, incomplete and foreign traces yield one clear error or their intact part, and never a panic.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::support::{Draw, Item, program_like, read};
use bytes::Bytes;
use pagelab_trace::{
    Access, AccessKind, Event, EventKind, ProcessIx, ThreadIx, TraceError, TraceMeta, TraceReader, TraceWriter,
    case_seed, cases,
    format::{self, WriterOptions},
};
use parquet::file::metadata::ParquetMetaDataReader;

const ROWS_PER_PART: usize = 1000;

fn create(path: &Path) -> TraceWriter {
    let options = WriterOptions { rows_per_part: ROWS_PER_PART };
    TraceWriter::with_options(path, TraceMeta::new(vec!["prog".into()]), options).unwrap()
}

fn event(position: u64) -> Event {
    let kind = EventKind::Munmap { addr: position << 12, len: 4096 };
    Event { position, process: ProcessIx(0), thread: ThreadIx(0), kind }
}

/// 3,500 accesses in four parts, an event after every 500.
fn append(writer: &mut TraceWriter) -> Vec<Item> {
    let mut items = Vec::new();
    for (number, accesses) in program_like(3500, 1).chunks(500).enumerate() {
        let event = event(number as u64 * 500);
        writer.event(event.clone()).unwrap();
        writer.append(ThreadIx(0), accesses).unwrap();
        items.push(Item::Event(event));
        items.extend(accesses.iter().map(|a| Item::Access(ThreadIx(0), *a)));
    }
    items
}

struct Trace {
    _dir: tempfile::TempDir,
    path: PathBuf,
    items: Vec<Item>,
}

fn complete() -> Trace {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.trace");
    let mut writer = create(&path);
    let items = append(&mut writer);
    writer.finish().unwrap();
    Trace { _dir: dir, path, items }
}

impl Trace {
    #[track_caller]
    fn refused(&self, expected: &[&str]) {
        let error = read(&self.path).unwrap_err().to_string();
        for part in expected {
            assert!(error.contains(part), "{error:?} does not say {part:?}");
        }
        assert!(!error.contains('\n'), "{error:?} has more than one line");
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn edit_json(&self, edit: impl FnOnce(&mut serde_json::Value)) {
        let path = self.file("trace.json");
        let mut json = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        edit(&mut json);
        fs::write(path, json.to_string()).unwrap();
    }
}

#[test]
fn missing_parts_are_named() {
    let trace = complete();
    fs::remove_file(trace.file("accesses-000001.parquet")).unwrap();
    trace.refused(&["accesses-000001.parquet is missing, but accesses-000002.parquet is there"]);

    let trace = complete();
    fs::remove_file(trace.file("accesses-000003.parquet")).unwrap();
    trace.refused(&["accesses-000003.parquet is missing", "3000 of 3500 accesses"]);

    let trace = complete();
    fs::remove_file(trace.file("events-000003.parquet")).unwrap();
    trace.refused(&["events-000003.parquet is missing", "of 7 events"]);

    let trace = complete();
    fs::remove_file(trace.file("trace.json")).unwrap();
    trace.refused(&["not a trace", "trace.json"]);
}

#[test]
fn parts_of_another_trace_or_place_are_refused() {
    let trace = complete();
    fs::copy(trace.file("accesses-000001.parquet"), trace.file("accesses-000002.parquet")).unwrap();
    trace.refused(&["accesses-000002.parquet", "begins at row 1000, expected 2000"]);

    let trace = complete();
    let other = tempfile::tempdir().unwrap();
    let mut writer = create(&other.path().join("o.trace"));
    writer.append(ThreadIx(0), &program_like(3500, 5)).unwrap();
    writer.finish().unwrap();
    let name = "accesses-000001.parquet";
    fs::copy(other.path().join("o.trace").join(name), trace.file(name)).unwrap();
    trace.refused(&["its parts have changed since it was finished"]);

    let trace = complete();
    fs::copy(trace.file("events-000000.parquet"), trace.file("accesses-000000.parquet")).unwrap();
    trace.refused(&["accesses-000000.parquet", "columns"]);
}

#[test]
fn other_versions_and_other_files_are_refused() {
    let trace = complete();
    trace.edit_json(|json| json["version"] = 2.into());
    trace.refused(&["trace.json", "version 2", "reads version 1", "update pagelab"]);
    trace.edit_json(|json| json["version"] = 0.into());
    trace.refused(&["version 0", "record or import it anew"]);
    trace.edit_json(|json| json["format"] = "other".into());
    trace.refused(&["trace.json", "\"other\"", "pagelab-trace"]);
    fs::write(trace.file("trace.json"), "{").unwrap();
    trace.refused(&["trace.json", "not the trace.json of a pagelab trace"]);

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    assert!(read(&file).unwrap_err().to_string().contains("a trace is a folder"));
    assert!(matches!(read(&dir.path().join("nothing")).unwrap_err(), TraceError::Io { .. }));
    assert!(read(dir.path()).unwrap_err().to_string().contains("not a trace"));
}

#[test]
fn empty_traces_are_refused_but_can_be_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("e.trace");
    create(&path).finish().unwrap();
    assert!(read(&path).unwrap_err().to_string().contains("an empty trace"));
    let info = format::info(&path).unwrap();
    assert_eq!((info.complete, info.accesses, info.bytes_per_access), (true, 0, None));
    assert_eq!(format::head(&path, 5).unwrap(), []);
}

#[test]
fn a_flipped_bit_is_noticed_wherever_it_is() {
    let trace = complete();
    let mut draw = Draw(case_seed(5));
    for name in ["accesses-000002.parquet", "events-000001.parquet", "trace.json"] {
        let whole = fs::read(trace.file(name)).unwrap();
        for _ in 0..cases(150_u32) {
            let mut bytes = whole.clone();
            let at = draw.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << draw.below(8);
            fs::write(trace.file(name), &bytes).unwrap();
            // A flip in a description may have no effect on the content; but the content must never be read wrongly.
            if let Ok(items) = read(&trace.path) {
                assert!(items == trace.items, "byte {at} of {name} changed the content unnoticed");
            }
            let _ = (format::info(&trace.path), format::head(&trace.path, 10_000), format::footprint(&trace.path));
        }
        fs::write(trace.file(name), &whole).unwrap();
    }
    // The data of a part contain only content.
    let name = "accesses-000000.parquet";
    let mut bytes = fs::read(trace.file(name)).unwrap();
    bytes[200] ^= 4;
    fs::write(trace.file(name), bytes).unwrap();
    trace.refused(&[name, "damaged", "hash"]);
}

/// The hash of a part does not cover the footer, whose description of the columns the decoder goes by.
#[test]
fn a_flipped_bit_of_a_footer_is_no_panic() {
    let trace = complete();
    let name = "events-000001.parquet";
    let whole = fs::read(trace.file(name)).unwrap();
    let footer = u32::from_le_bytes(*whole[..whole.len() - 4].last_chunk().unwrap()) as usize;
    let (mut refused, mut bits) = (0, 0);
    for bit in (8 * (whole.len() - 8 - footer)..8 * whole.len()).step_by(5) {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(trace.file(name), &bytes).unwrap();
        match read(&trace.path) {
            Ok(items) => assert!(items == trace.items, "bit {bit} of {name} changed the content unnoticed"),
            Err(error) => refused += usize::from(error.to_string().contains(name)),
        }
        bits += 1;
    }
    assert!(refused > bits / 4, "{refused} of {bits}");
}

#[test]
fn a_cut_part_is_refused() {
    let trace = complete();
    for name in ["accesses-000003.parquet", "events-000000.parquet"] {
        let whole = fs::read(trace.file(name)).unwrap();
        for len in [0, 3, 8, 100, whole.len() / 2, whole.len() - 1] {
            fs::write(trace.file(name), &whole[..len]).unwrap();
            trace.refused(&[name, "not a whole Parquet file"]);
        }
        fs::write(trace.file(name), &whole).unwrap();
    }
}

/// A part of `ROWS` accesses in an unfinished trace, to be edited and given a valid hash, as another writer might have
/// written it.
struct Forgery {
    trace: Trace,
    bytes: Vec<u8>,
}

impl Forgery {
    const ROWS: u64 = 500;
    const NAME: &str = "accesses-000000.parquet";

    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.trace");
        let accesses = program_like(Self::ROWS as usize, 3);
        let mut writer = create(&path);
        writer.append(ThreadIx(0), &accesses).unwrap();
        drop(writer);
        let trace = Trace { _dir: dir, items: Vec::new(), path };
        let bytes = fs::read(trace.file(Self::NAME)).unwrap();
        Self { trace, bytes }
    }

    fn column(&self, name: &str) -> std::ops::Range<usize> {
        let metadata = ParquetMetaDataReader::new().parse_and_finish(&Bytes::from(self.bytes.clone())).unwrap();
        let columns = metadata.row_group(0).columns();
        let column = columns.iter().find(|column| column.column_path().string() == name).unwrap();
        let (start, length) = column.byte_range();
        start as usize..(start + length) as usize
    }

    fn footer_start(&self) -> usize {
        let tail = self.bytes.len() - 8;
        tail - u32::from_le_bytes(self.bytes[tail..tail + 4].try_into().unwrap()) as usize
    }

    /// Replaces `old` by `new` throughout the footer; returns how often.
    fn replace_in_footer(&mut self, old: &[u8], new: &[u8]) -> usize {
        assert_eq!(old.len(), new.len());
        let start = self.footer_start();
        let places: Vec<usize> = (start..self.bytes.len()).filter(|at| self.bytes[*at..].starts_with(old)).collect();
        places.iter().for_each(|at| self.bytes[*at..][..old.len()].copy_from_slice(new));
        places.len()
    }

    #[track_caller]
    fn refused(mut self, expected: &[&str]) {
        let start = self.footer_start();
        let hash = |data: &[u8]| format!("{:032x}", xxhash_rust::xxh3::xxh3_128(data));
        let was = hash(&fs::read(self.trace.file(Self::NAME)).unwrap()[..start]);
        let is = hash(&self.bytes[..start]);
        assert_eq!(self.replace_in_footer(was.as_bytes(), is.as_bytes()), 1);
        fs::write(self.trace.file(Self::NAME), &self.bytes).unwrap();
        self.trace.refused(expected);
    }
}

#[test]
fn a_page_longer_than_its_part_is_refused() {
    let mut forged = Forgery::new();
    let loads = TraceReader::open(&forged.trace.path).unwrap().access_counts().loads;
    let count = |loads: u64| format!("\"loads\":{loads}");
    assert_eq!(forged.replace_in_footer(count(loads).as_bytes(), count(loads - 1).as_bytes()), 1);
    assert_eq!(forged.replace_in_footer(b"\"rows\":500", b"\"rows\":499"), 1);
    // 500 in Thrift's compact protocol, an i64 field after its predecessor: in the file, its row group and 6 columns.
    assert_eq!(forged.replace_in_footer(&[0x16, 0xe8, 0x07], &[0x16, 0xe6, 0x07]), 8);
    forged.refused(&[Forgery::NAME, "a page of 500 rows with 499 to come"]);
}

/// Kinds, sizes and gaps share the indices of program counters; wrong indices would otherwise be read unnoticed.
#[test]
fn indices_that_are_not_those_of_the_program_counters_are_refused() {
    for column in ["kind", "size", "gap"] {
        let mut forged = Forgery::new();
        let last = forged.column(column).end - 1;
        forged.bytes[last] ^= 1;
        forged.refused(&[Forgery::NAME, &format!("column {column}"), "indices are not those of pc"]);
    }
}

#[test]
fn a_dropped_writer_leaves_an_incomplete_trace_with_everything() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d.trace");
    let mut writer = create(&path);
    let items = append(&mut writer);
    drop(writer);
    assert!(read(&path).unwrap() == items);
    let reader = TraceReader::open(&path).unwrap();
    assert!(!reader.meta().complete);
    let info = format::info(&path).unwrap();
    assert_eq!((info.complete, info.accesses, info.events), (false, 3500, 7));
}

#[test]
fn events_beyond_the_last_access_of_an_incomplete_trace_are_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d.trace");
    let mut writer = create(&path);
    let items = append(&mut writer);
    drop(writer);
    for name in ["accesses-000002.parquet", "accesses-000003.parquet"] {
        fs::remove_file(path.join(name)).unwrap();
    }
    // 2,000 accesses and the events at 0, 500, 1000, 1500 and 2000.
    assert!(read(&path).unwrap() == items[..2005]);
    assert_eq!(format::info(&path).unwrap().events, 5);
}

#[test]
fn existing_output_is_not_overwritten() {
    let trace = complete();
    let error = TraceWriter::create(&trace.path, TraceMeta::new(vec![])).err().unwrap().to_string();
    assert!(error.contains("exists and is not empty"), "{error}");
    assert!(read(&trace.path).unwrap() == trace.items);

    let file = trace.path.join("trace.json");
    let error = TraceWriter::create(file, TraceMeta::new(vec![])).err().unwrap().to_string();
    assert!(error.contains("exists and is a file"), "{error}");
}

#[test]
fn what_a_trace_cannot_hold_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (number, size) in [0, 4097].into_iter().enumerate() {
        let mut writer = create(&dir.path().join(number.to_string()));
        writer.append(ThreadIx(0), &[Access::new(AccessKind::Load, 0, size)]).unwrap();
        let error = writer.finish().unwrap_err().to_string();
        assert!(error.contains(&format!("{size} bytes: 1 to 4096")), "{error}");
    }
    let mut writer = create(&dir.path().join("event"));
    assert!(writer.event(event(7)).unwrap_err().to_string().contains("position 7 after 0 accesses"));
    for rows_per_part in [0, format::MAX_PART_ROWS + 1] {
        let meta = TraceMeta::new(vec![]);
        let error =
            TraceWriter::with_options(dir.path().join("r"), meta, WriterOptions { rows_per_part }).err().unwrap();
        assert!(error.to_string().contains("1 to 8388608"), "{error}");
    }
}

/// Writes until an error, and returns it.
fn write_until_error(path: &Path) -> TraceError {
    let mut writer = create(path);
    let mut draw = Draw(3);
    let mut accesses = program_like(5000, 1);
    for _ in 0..20_000 {
        accesses.iter_mut().for_each(|a| (a.vaddr, a.pc) = (draw.next(), draw.next()));
        if let Err(error) = writer.append(ThreadIx(0), &accesses) {
            let again = writer.append(ThreadIx(0), &accesses).and_then(|()| writer.append(ThreadIx(0), &accesses));
            assert!(again.unwrap_err().to_string().contains("cannot be continued"));
            return error;
        }
    }
    panic!("no error in 100 M accesses");
}

/// A full disk: a tiny tmpfs in a child's mount namespace. Does nothing if the user may not create one.
#[test]
fn a_full_disk_is_an_error_that_leaves_whole_parts() {
    if let Some(path) = std::env::var_os("PAGELAB_TEST_FULL_DISK") {
        let path = Path::new(&path).join("t.trace");
        let error = write_until_error(&path).to_string();
        assert!(error.contains("accesses-0000") && error.contains("No space left on device"), "{error}");
        let names = fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        assert!(names.into_iter().all(|name| !name.ends_with(".tmp")));
        assert!(!TraceReader::open(&path).unwrap().meta().complete);
        let rows = read(&path).unwrap().len();
        assert!(rows > 0 && rows.is_multiple_of(ROWS_PER_PART), "{rows} rows");
        println!("the full disk was met");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=300k none \"$0\" && PAGELAB_TEST_FULL_DISK=\"$0\" exec \"$1\" \
                  format_damage::a_full_disk_is_an_error_that_leaves_whole_parts --exact --nocapture";
    let unshare = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(arguments).args(["--mount", "sh", "-c", script]);
        command.arg(dir.path()).arg(std::env::current_exe().unwrap()).output()
    };
    let may_mount = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(arguments).args(["--mount", "mount", "-t", "tmpfs", "none"]).arg(dir.path());
        command.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    let Some(arguments) = [&[][..], &["--user", "--map-root-user"]].into_iter().find(|a| may_mount(a)) else {
        eprintln!("skipped: no mount namespaces here");
        return;
    };
    let output = unshare(arguments).unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("the full disk was met"), "{text}");
}

/// A recorder that is killed: a child that appends forever.
#[test]
fn a_killed_writer_leaves_its_whole_parts() {
    const PARTS: usize = 5;
    if let Some(path) = std::env::var_os("PAGELAB_TEST_KILL") {
        let mut writer = create(Path::new(&path));
        loop {
            append_for_ever(&mut writer);
        }
    }
    for round in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("k.trace");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["format_damage::a_killed_writer_leaves_its_whole_parts", "--exact"])
            .env("PAGELAB_TEST_KILL", &path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begin = Instant::now();
        let last = path.join(format!("accesses-{:06}.parquet", PARTS - 1 + round));
        while !last.exists() {
            assert!(begin.elapsed() < Duration::from_secs(60), "the child writes nothing");
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();

        let reader = TraceReader::open(&path).unwrap();
        assert!(!reader.meta().complete);
        let items = read(&path).unwrap();
        let accesses = items.iter().filter(|item| matches!(item, Item::Access(..))).count();
        assert!(accesses >= (PARTS + round) * ROWS_PER_PART && accesses.is_multiple_of(ROWS_PER_PART), "{accesses}");
        // All events up to the last access are present: one before each 500 accesses.
        let positions = items.iter().filter_map(|item| match item {
            Item::Event(event) => Some(event.position),
            Item::Access(..) => None,
        });
        let known: Vec<u64> = positions.filter(|position| *position < accesses as u64).collect();
        assert_eq!(known, (0..accesses as u64).step_by(500).collect::<Vec<_>>());
    }
}

fn append_for_ever(writer: &mut TraceWriter) {
    let accesses = program_like(500, 1);
    writer.event(event(writer.position())).unwrap();
    writer.append(ThreadIx(0), &accesses).unwrap();
}
