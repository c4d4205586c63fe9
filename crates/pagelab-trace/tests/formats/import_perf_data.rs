//! perf's own file: samples in the order of their times, with what their fields say.

use std::{fs, io::Write, ops::ControlFlow};

use crate::support::{Item, read};
use pagelab_trace::{
    AccessKind, TraceError, TraceReader,
    import::{ImportFormat, ImportOptions, ImportSummary, import},
};

const LOAD: u64 = AccessKind::Load as u64;
const STORE: u64 = AccessKind::Store as u64;
const FETCH: u64 = AccessKind::Fetch as u64;
const FIELDS: u64 = IP | TID | TIME | ADDR | DATA_SRC | IDENTIFIER;
const IP: u64 = 1;
const TID: u64 = 1 << 1;
const TIME: u64 = 1 << 2;
const ADDR: u64 = 1 << 3;
const DATA_SRC: u64 = 1 << 15;
const IDENTIFIER: u64 = 1 << 16;
const HEADER_BYTES: u64 = 104;
const ATTR_BYTES: u64 = 128;
const SAMPLE: u32 = 9;
const ROUND: u32 = 68;
const BY_USER: u16 = 2;

fn numbers(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let size = u16::try_from(8 + body.len()).unwrap();
    [&kind.to_le_bytes()[..], &misc.to_le_bytes(), &size.to_le_bytes(), body].concat()
}

/// A sample of an event: its number, instruction, thread, time, address and data source.
fn sample(id: u64, pc: u64, thread: u64, time: u64, address: u64, source: u64) -> Vec<u8> {
    record(SAMPLE, BY_USER, &numbers(&[id, pc, thread << 32 | 41, time, address, source]))
}

/// A file of events, each with the fields of its samples; the first has the number 1.
fn file(events: &[u64], records: &[u8]) -> Vec<u8> {
    let ids: Vec<u64> = (1..=events.len() as u64).collect();
    let attrs_at = HEADER_BYTES + 8 * ids.len() as u64;
    let entry_bytes = ATTR_BYTES + 16;
    let data_at = attrs_at + entry_bytes * events.len() as u64;
    let header =
        [HEADER_BYTES, entry_bytes, attrs_at, data_at - attrs_at, data_at, records.len() as u64, 0, 0, 0, 0, 0, 0];
    let mut bytes = [b"PERFILE2".to_vec(), numbers(&header), numbers(&ids)].concat();
    for (index, fields) in events.iter().enumerate() {
        let mut attr =
            [numbers(&[4 | ATTR_BYTES << 32, 0x1cd, 1, *fields]), vec![0; ATTR_BYTES as usize - 32]].concat();
        attr.extend(numbers(&[HEADER_BYTES + 8 * index as u64, 8]));
        bytes.extend(attr);
    }
    bytes.extend(records);
    bytes
}

/// What became of it, kind and address of each access, and the notes and losses.
type Imported = (ImportSummary, Vec<(u64, u64)>, (Vec<String>, Vec<String>));

fn import_bytes(bytes: &[u8]) -> Result<Imported, TraceError> {
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("perf.data"), dir.path().join("out.trace"));
    fs::write(&input, bytes).unwrap();
    let summary =
        import(&input, &output, ImportFormat::Auto, &ImportOptions::default(), &mut |_| ControlFlow::Continue(()))?;
    let accesses = read(&output).unwrap().into_iter().filter_map(|item| match item {
        Item::Access(_, access) => Some((access.kind as u64, access.vaddr)),
        Item::Event(_) => None,
    });
    let meta = TraceReader::open(&output).unwrap().meta().clone();
    Ok((summary, accesses.collect(), (meta.notes, meta.losses)))
}

#[track_caller]
fn refused(bytes: &[u8], expected: &[&str]) {
    let error = import_bytes(bytes).unwrap_err().to_string();
    for part in expected {
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }
}

#[test]
fn samples_come_in_the_order_of_their_times() {
    let records = [
        sample(1, 0x40_1000, 41, 30, 0x1_3000, 2),
        sample(1, 0x40_1000, 42, 10, 0x1_1000, 4),
        record(ROUND, 0, &[]),
        // Of another processor's buffer, which was written later.
        sample(1, 0x40_1000, 41, 20, 0x1_2000, 0x6810_0144),
        sample(1, 0x40_1000, 41, 40, 0x1_4000, 1),
        record(ROUND, 0, &[]),
    ];
    let (summary, accesses, (notes, _)) = import_bytes(&file(&[FIELDS], &records.concat())).unwrap();
    assert_eq!(
        (summary.format, summary.sampled, summary.threads, summary.records),
        (ImportFormat::PerfData, true, 2, 4)
    );
    let data: Vec<_> = accesses.into_iter().filter(|(kind, _)| *kind != FETCH).collect();
    assert_eq!(data, [(STORE, 0x1_1000), (STORE, 0x1_2000), (LOAD, 0x1_3000), (LOAD, 0x1_4000)]);
    assert!(notes.iter().any(|note| note.contains("1 sample does not tell whether it loads or stores")), "{notes:?}");
}

#[test]
fn samples_of_other_things_than_program_data_are_omitted() {
    let kernel_data = sample(1, 0xffff_ffff_8100_0000, 41, 1, 0xffff_8880_0000_1000, 2);
    let mut guest = sample(1, 0x40_1000, 41, 2, 0x1_1000, 2);
    guest[4] = 5;
    let without_address = record(SAMPLE, BY_USER, &numbers(&[2, 0x40_1000, 41 << 32 | 41, 3]));
    let prefetch = sample(1, 0x40_1000, 41, 4, 0x1_2000, 8);
    let lost = record(2, 0, &numbers(&[1, 17]));
    let taken = sample(1, 0x40_1000, 41, 5, 0x1_3000, 2);
    let records = [kernel_data, guest, without_address, prefetch, lost, taken].concat();
    let (summary, accesses, (_, losses)) =
        import_bytes(&file(&[FIELDS, IDENTIFIER | IP | TID | TIME], &records)).unwrap();
    assert_eq!((summary.left_out, accesses.last()), (4, Some(&(LOAD, 0x1_3000))));
    assert_eq!(losses, ["perf lost 17 samples"]);
}

/// What refusals name as the way around.
const TEXT: &str = "perf script -F comm,pid,tid,time,event,addr,data_src,ip > samples.txt";

#[test]
fn files_without_addresses_or_in_other_forms_are_refused() {
    let records = record(SAMPLE, BY_USER, &numbers(&[0x40_1000, 41 << 32 | 41, 3]));
    refused(&file(&[IP | TID | TIME], &records), &["without the addresses", "perf record -d"]);
    let plain = file(&[FIELDS], &sample(1, 1, 41, 1, 0x1000, 2));
    refused(&file(&[FIELDS], &[]), &["before it had finished"]);
    refused(&[&b"2ELIFREP"[..], &plain[8..]].concat(), &["big-endian", TEXT]);
    refused(&file(&[FIELDS], &record(SAMPLE, BY_USER, &numbers(&[1, 2]))), &["offset 256", "shorter than its fields"]);
    refused(&file(&[FIELDS, FIELDS], &sample(7, 1, 41, 1, 0x1000, 2)), &["does not name"]);
    refused(&plain[..plain.len() - 3], &["cut off"]);
    let trace = [record(71, 0, &numbers(&[16, 0, 0, 0])), vec![0; 16]].concat();
    refused(&file(&[FIELDS], &trace), &["hardware trace", "--itrace=M", TEXT]);
}

const COMPRESSED: u32 = 81;
const COMPRESSED2: u32 = 83;

/// Samples whose times alternate between two buffers, and the addresses that come of them.
fn many_samples() -> (Vec<u8>, Vec<(u64, u64)>) {
    let times: Vec<u64> = (0..3000).map(|index| index ^ 1).collect();
    let records = times.iter().map(|time| sample(1, 0x40_1000, 41, *time, 0x1_0000 + time * 4096, 2));
    (records.collect::<Vec<_>>().concat(), (0..3000).map(|time| (LOAD, 0x1_0000 + time * 4096)).collect())
}

fn of_data(accesses: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    accesses.into_iter().filter(|(kind, _)| *kind != FETCH).collect()
}

/// One zstd stream, as `perf record -z` writes it: flushed at each record, whatever the pieces hold.
fn compressed(plain: &[u8], piece_bytes: usize, wrap: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    let mut records = Vec::new();
    for piece in plain.chunks(piece_bytes) {
        encoder.write_all(piece).unwrap();
        encoder.flush().unwrap();
        records.extend(wrap(&std::mem::take(encoder.get_mut())));
    }
    records
}

#[test]
fn compressed_records_are_read_wherever_they_are_cut() {
    let (plain, expected) = many_samples();
    for piece_bytes in [1001, 60_000, plain.len()] {
        let records = compressed(&plain, piece_bytes, |piece| record(COMPRESSED, 0, piece));
        let (summary, accesses, _) = import_bytes(&file(&[FIELDS], &records)).unwrap();
        assert_eq!((summary.records, of_data(accesses)), (3000, expected.clone()), "{piece_bytes}");
    }
    // The newer form has a size, and is padded.
    let padded = |piece: &[u8]| {
        let mut body = [&numbers(&[piece.len() as u64]), piece].concat();
        body.resize(body.len().next_multiple_of(8), 0);
        record(COMPRESSED2, 0, &body)
    };
    let (_, accesses, _) = import_bytes(&file(&[FIELDS], &compressed(&plain, 999, padded))).unwrap();
    assert_eq!(of_data(accesses), expected);
}

#[test]
fn damaged_compressed_records_are_refused() {
    let (plain, _) = many_samples();
    let cut = compressed(&plain[..plain.len() - 5], 1001, |piece| record(COMPRESSED, 0, piece));
    refused(&file(&[FIELDS], &cut), &["cut off within the compressed records"]);
    refused(&file(&[FIELDS], &record(COMPRESSED, 0, &[0x55; 16])), &["offset 256", "zstd cannot decompress"]);
    refused(&file(&[FIELDS], &record(COMPRESSED2, 0, &numbers(&[99, 0]))), &["compressed records that are cut off"]);
    let empty = compressed(&record(SAMPLE, 0, &[])[..6], 6, |piece| record(COMPRESSED, 0, piece));
    refused(&file(&[FIELDS], &empty), &["cut off within"]);
    let short = compressed(&[9, 0, 0, 0, 0, 0, 3, 0], 8, |piece| record(COMPRESSED, 0, piece));
    refused(&file(&[FIELDS], &short), &["a compressed record of 3 bytes"]);
    let nested = compressed(&record(COMPRESSED, 0, &[0; 8]), 16, |piece| record(COMPRESSED, 0, piece));
    refused(&file(&[FIELDS], &nested), &["compressed records in others"]);
}

/// What `perf record -o -` writes.
fn pipe(fields: u64, records: &[u8]) -> Vec<u8> {
    let attr = [numbers(&[4 | ATTR_BYTES << 32, 0x1cd, 1, fields]), vec![0; ATTR_BYTES as usize - 32]].concat();
    let attribute = record(64, 0, &[attr, numbers(&[1])].concat());
    // 13 bytes about tracepoints follow their record, as 16.
    let tracing = [record(66, 0, &13_u32.to_le_bytes()), vec![0xff; 16]].concat();
    [b"PERFILE2".to_vec(), numbers(&[16]), attribute, tracing, records.to_vec()].concat()
}

#[test]
fn what_perf_writes_to_a_pipe_is_read() {
    let (plain, expected) = many_samples();
    let packed = compressed(&plain, 777, |piece| record(COMPRESSED, 0, piece));
    for records in [plain, packed] {
        let (summary, accesses, _) = import_bytes(&pipe(FIELDS, &records)).unwrap();
        assert_eq!((summary.format, summary.records), (ImportFormat::PerfData, 3000));
        assert_eq!(of_data(accesses), expected);
    }
    let short = sample(1, 0x40_1000, 41, 1, 0x1000, 2);
    refused(&pipe(IP | TID | TIME, &short), &["without the addresses", "perf record -d"]);
    refused(&[b"PERFILE2".to_vec(), numbers(&[16]), short].concat(), &["without the attributes of their events"]);
    refused(&[b"PERFILE2".to_vec(), numbers(&[16])].concat(), &["without the attributes of their events"]);
    let whole = pipe(FIELDS, &sample(1, 0x40_1000, 41, 1, 0x1000, 2));
    refused(&whole[..whole.len() - 3], &["cut off"]);
}
