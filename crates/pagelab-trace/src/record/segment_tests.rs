//! Compares executions of random segments with a simple model of an execution.

use super::super::output::Output;
use super::super::process::{Process, ThreadNumbers};
use super::super::protocol::{AccessRecord, CONTROL_BIT, OriginRecord};
use super::super::stretches::{Schedule, StretchRequest};
use super::*;
use crate::format::WriterOptions;
use crate::rng::Rng;
use crate::{Batch, ProcessIx, Source, TraceMeta, TraceReader, TraceWriter};

/// A segment with up to 9 accesses, none for every fifth number; one in eight has conditions.
fn any_segment(number: u32, draw: &mut Rng) -> SegmentRecord {
    let pc = 0x40_0000 + u64::from(number) * 64;
    let conditional = draw.below(8) == 0;
    let accesses = if number.is_multiple_of(5) { 0 } else { draw.below(10) };
    let accesses = (0..accesses).map(|i| AccessRecord {
        pc: pc + i,
        gap: draw.below(3) as u32,
        size_bytes: 1 << draw.below(4),
        kind: draw.below(3) as u8,
        conditional: conditional && draw.below(2) == 0,
        origin: OriginRecord::default(),
    });
    let accesses = accesses.collect();
    let pieces = vec![Piece { start: pc, len: 60 }];
    SegmentRecord {
        number,
        tail: draw.below(3) as u32,
        pieces,
        accesses,
        registers: Vec::new(),
        branch: None,
        transfer: None,
    }
}

fn unmapped(page: u64) -> Vec<u8> {
    [&(CONTROL_BIT | 9).to_le_bytes()[..], &16u32.to_le_bytes(), &page.to_le_bytes(), &4096u64.to_le_bytes()].concat()
}

fn described(record: &SegmentRecord) -> Vec<u8> {
    let mut payload = [record.number.to_le_bytes(), record.tail.to_le_bytes()].concat();
    payload.extend([1u16.to_le_bytes(), (record.accesses.len() as u16).to_le_bytes()].concat());
    payload.extend(record.pieces[0].start.to_le_bytes());
    payload.extend(record.pieces[0].len.to_le_bytes());
    for access in &record.accesses {
        payload.extend(access.pc.to_le_bytes());
        payload.extend(access.gap.to_le_bytes());
        payload.extend(access.size_bytes.to_le_bytes());
        payload.extend([access.kind, u8::from(access.conditional)]);
        payload.extend([0; 11]);
    }
    payload.extend([0, 0, 0]);
    [&(CONTROL_BIT | 2).to_le_bytes()[..], &(payload.len() as u32).to_le_bytes(), &payload].concat()
}

/// Executions as the protocol defines them.
#[derive(Default)]
struct Expected {
    accesses: Vec<Access>,
    fetched: BTreeSet<u64>,
    pending: u32,
}

impl Expected {
    fn execute(&mut self, record: &SegmentRecord, addresses: &[u64]) {
        let start = record.pieces[0].start;
        if self.fetched.insert(start / 4096) {
            let fetch = Access { pc: start, gap: 0, ..Access::new(AccessKind::Fetch, start, 16) };
            self.accesses.push(fetch);
        }
        for (access, &vaddr) in record.accesses.iter().zip(addresses) {
            self.pending += access.gap;
            if vaddr != 0 || !access.conditional {
                let kind = AccessKind::from_code(access.kind).unwrap();
                let gap = std::mem::take(&mut self.pending);
                self.accesses.push(Access { pc: access.pc, gap, ..Access::new(kind, vaddr, access.size_bytes) });
            }
        }
        self.pending += record.tail;
    }
}

/// Pages and parts end in the middle of segments, code pages are fetched again, and dictionaries overflow, because
/// there are more segments and gaps than they can hold.
#[test]
fn executions_are_what_the_protocol_says() {
    for (segments, executions, rows_per_part, limit) in
        [(30, 3000, 50, None), (100, 60_000, 100_000, Some(123_456)), (30_000, 90_000, 1 << 20, None)]
    {
        let mut draw = Rng::new(segments, "segments");
        let records: Vec<SegmentRecord> = (0..segments as u32).map(|number| any_segment(number, &mut draw)).collect();
        let folder = tempfile::tempdir().unwrap();
        let options = WriterOptions { rows_per_part };
        let meta = TraceMeta::new(Vec::new());
        let mut writer = TraceWriter::with_options(folder.path(), meta, options).unwrap();
        let mut output = Output::new(&mut writer, limit, None);
        let (mut numbers, mut expected) = (ThreadNumbers::default(), Expected::default());
        let mut process = Process::new(ProcessIx(0), numbers.next());
        let mut bytes: Vec<u8> = records.iter().flat_map(described).collect();
        for execution in 0..executions {
            // Mostly loops.
            let number = if draw.below(4) > 0 { execution % segments } else { draw.below(segments) };
            let record = &records[number as usize];
            let addresses: Vec<u64> = record.accesses.iter().map(|_| draw.below(3) << draw.below(46)).collect();
            bytes.extend(record.number.to_le_bytes());
            bytes.extend(addresses.iter().flat_map(|address| address.to_le_bytes()[..ADDRESS_BYTES].to_vec()));
            expected.execute(record, &addresses);
            if draw.below(200) == 0 {
                let page = record.pieces[0].start & !4095;
                expected.fetched.remove(&(page / 4096));
                bytes.extend(unmapped(page));
            }
            if draw.below(100) == 0 || execution + 1 == executions {
                let mut frame = Frame::default();
                frame.resize(bytes.len()).copy_from_slice(&bytes);
                bytes.clear();
                let turn = process.decode(&frame, &mut 0, &mut numbers, &mut output);
                assert!(turn.is_ok_and(|turn| turn.is_none()));
            }
        }
        expected.accesses.truncate(limit.unwrap_or(u64::MAX) as usize);
        let summary = writer.finish().unwrap();
        assert_eq!(summary.accesses, AccessCounts::from_accesses(&expected.accesses));
        let (mut accesses, mut batch) = (Vec::new(), Batch::default());
        let mut reader = TraceReader::open(folder.path()).unwrap();
        while reader.next_batch(&mut batch).unwrap() {
            accesses.append(&mut batch.accesses);
        }
        assert!(accesses == expected.accesses);
    }
}

/// Of each 5,000 instructions, 1,000 are measured, and the 300 before them recorded.
const WINDOWS: &str = "every=5K,length=1K,warm=300";

/// The same in skipped stretches: an access is kept if it is the first read or the first write of one of its pages.
#[derive(Default)]
struct ExpectedInStretches {
    all: Expected,
    instructions: u64,
    skipped: bool,
    read: BTreeSet<u64>,
    written: BTreeSet<u64>,
    left_out: u64,
}

impl ExpectedInStretches {
    fn execute(&mut self, record: &SegmentRecord, addresses: &[u64]) {
        let within = self.instructions % 5000;
        let skipped = (1000..4700).contains(&within);
        if skipped && !std::mem::replace(&mut self.skipped, skipped) {
            (self.read, self.written) = Default::default();
        }
        self.skipped = skipped;
        self.instructions += record.accesses.iter().map(|access| u64::from(access.gap)).sum::<u64>();
        self.instructions += u64::from(record.tail);
        if !skipped {
            self.all.execute(record, addresses);
            return;
        }
        let (pending, before) = (self.all.pending, self.all.accesses.len());
        self.all.execute(record, addresses);
        self.all.pending = pending;
        for mut access in self.all.accesses.split_off(before) {
            let pages = access.vaddr / 4096..=(access.vaddr + u64::from(access.size_bytes) - 1) / 4096;
            let fetched = access.kind == AccessKind::Fetch;
            let mut first = fetched;
            for page in pages.filter(|_| !fetched) {
                first |= if access.kind.writes() {
                    self.written.insert(page)
                } else {
                    !self.written.contains(&page) && self.read.insert(page)
                };
            }
            access.gap = 0;
            if first { self.all.accesses.push(access) } else { self.left_out += 1 }
        }
    }

    fn unmap(&mut self, page: u64) {
        self.all.fetched.remove(&page);
        self.read.remove(&page);
        self.written.remove(&page);
    }
}

#[test]
fn stretches_hold_what_the_protocol_says_or_first_touches() {
    let mut draw = Rng::new(1, "stretches");
    let records: Vec<SegmentRecord> = (0..60).map(|number| any_segment(number, &mut draw)).collect();
    let folder = tempfile::tempdir().unwrap();
    let mut writer = TraceWriter::create(folder.path(), TraceMeta::new(Vec::new())).unwrap();
    let request = StretchRequest { windows: Some(WINDOWS.to_owned()), ..StretchRequest::default() };
    let schedule = Schedule::new(&request.parse().unwrap().unwrap());
    let mut output = Output::new(&mut writer, None, Some(schedule));
    let (mut numbers, mut expected) = (ThreadNumbers::default(), ExpectedInStretches::default());
    let mut process = Process::new(ProcessIx(0), numbers.next());
    let mut bytes: Vec<u8> = records.iter().flat_map(described).collect();
    for execution in 0..20_000 {
        let record = &records[if draw.below(4) > 0 { execution % 60 } else { draw.below(60) as usize }];
        let addresses: Vec<u64> = record.accesses.iter().map(|_| draw.below(3) << draw.below(46)).collect();
        bytes.extend(record.number.to_le_bytes());
        bytes.extend(addresses.iter().flat_map(|address| address.to_le_bytes()[..ADDRESS_BYTES].to_vec()));
        expected.execute(record, &addresses);
        if draw.below(50) == 0 {
            let page = if draw.below(2) == 0 { record.pieces[0].start / 4096 } else { draw.below(3) << draw.below(20) };
            expected.unmap(page);
            bytes.extend(unmapped(page * 4096));
        }
        if draw.below(100) == 0 || execution + 1 == 20_000 {
            let mut frame = Frame::default();
            frame.resize(bytes.len()).copy_from_slice(&bytes);
            bytes.clear();
            let turn = process.decode(&frame, &mut 0, &mut numbers, &mut output);
            assert!(turn.is_ok_and(|turn| turn.is_none()));
        }
    }
    let (totals, _) = output.stretch_totals().unwrap();
    writer.finish().unwrap();
    let (mut accesses, mut batch) = (Vec::new(), Batch::default());
    let mut reader = TraceReader::open(folder.path()).unwrap();
    while reader.next_batch(&mut batch).unwrap() {
        accesses.append(&mut batch.accesses);
    }
    let differs = accesses.iter().zip(&expected.all.accesses).position(|(found, wanted)| found != wanted);
    if let Some(at) = differs {
        panic!("{at}: {:x?} instead of {:x?}", &accesses[at - 2..at + 3], &expected.all.accesses[at - 2..at + 3]);
    }
    assert_eq!(accesses.len(), expected.all.accesses.len());
    let in_all = totals.measured_instructions + totals.warming_instructions + totals.skipped_instructions;
    assert_eq!((in_all, totals.skipped_accesses), (expected.instructions, expected.left_out));
    assert_eq!(totals.windows, expected.instructions.div_ceil(5000));
}
