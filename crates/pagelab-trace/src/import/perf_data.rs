//! perf's own file, `perf.data`, as `perf record -d` and `perf mem record` write it.
//!
//! A header names two stretches of the file: the attributes of the events, each with the numbers that its samples may
//! have, and the records. A sample's fields are those that its event's attribute asks for, in an order that Linux
//! fixes. These matter: process and thread, time, the addresses of the data and of the instruction, and the data
//! source, which says what the sample did. perf writes the buffers of the processors one after another, and a mark when
//! all were written: a round. Samples up to the last time of the round before are in order then, so two rounds are held
//! and sorted.
//!
//! Left out and counted are samples without an address (of events for which none was asked), of guests and of
//! hypervisors, and what [`Samples`] leaves out. Samples that perf lost are noted. In what `perf record -o -` writes,
//! records name the events. Big-endian files are refused. Source:
//! `tools/perf/Documentation/perf.data-file-format.txt` and `include/uapi/linux/perf_event.h` of Linux 6.12.

use super::{
    Head, ImportOptions,
    files::only,
    input::Input,
    perf::{Operation, Sample, Samples},
    perf_compressed::{Decompressor, RECORD_HEADER_BYTES, parse_header},
    perf_sample::{Attribute, RawSample},
    sink::{Problem, Sink},
};
use crate::{AccessKind, TraceError};

const MAGIC: &[u8] = b"PERFILE2";
const BIG_ENDIAN_MAGIC: &[u8] = b"2ELIFREP";
/// Bytes of the header, in a file and in a pipe.
const HEADER_BYTES: usize = 104;
const PIPE_HEADER_BYTES: usize = 16;
/// Bytes before the records: attributes and numbers of events.
const MAX_PREFIX_BYTES: u64 = 64 << 20;
/// Bytes of an attribute's section: offset and size.
const SECTION_BYTES: u64 = 16;

/// Types of records (`enum perf_event_type`, and those that perf itself adds).
mod record {
    pub const LOST: u32 = 2;
    pub const SAMPLE: u32 = 9;
    pub const LOST_SAMPLES: u32 = 13;
    pub const ATTRIBUTE: u32 = 64;
    pub const TRACING_DATA: u32 = 66;
    pub const FINISHED_ROUND: u32 = 68;
    pub const AUXTRACE: u32 = 71;
    pub const COMPRESSED: u32 = 81;
    pub const COMPRESSED2: u32 = 83;
}

/// Who ran when a sample was taken (`PERF_RECORD_MISC_CPUMODE_MASK`).
const CPU_MODE: u16 = 7;
const HYPERVISOR_OR_GUEST: std::ops::RangeInclusive<u16> = 3..=5;

pub(super) fn looks_like(head: Head<'_>) -> bool {
    head.bytes.starts_with(MAGIC) || head.bytes.starts_with(BIG_ENDIAN_MAGIC)
}

/// Where the records are, and what they are of.
struct Layout {
    attributes: Vec<Attribute>,
    /// None in a pipe, where the records end with the file, and name the events.
    data_bytes: Option<u64>,
}

/// Feeds the data to `sink`.
pub(super) fn read(inputs: &mut [Input], sink: &mut Sink, options: &ImportOptions) -> Result<(), TraceError> {
    let input = only(inputs)?;
    let layout = begin(input)?;
    let is_pipe = layout.data_bytes.is_none();
    let mut reader = Reader {
        attributes: layout.attributes,
        is_checked: false,
        decompressor: None,
        samples: Samples::new(options),
        held: Vec::new(),
        last_round: 0,
        latest: 0,
        lost: 0,
        hardware_trace: false,
    };
    let end = input.offset().saturating_add(layout.data_bytes.unwrap_or(u64::MAX));
    let mut full = false;
    while input.offset() < end && !full {
        let offset = input.offset();
        let ahead = input.ahead(RECORD_HEADER_BYTES)?;
        if is_pipe && ahead.is_empty() {
            break;
        }
        let Some(header) = ahead.first_chunk::<RECORD_HEADER_BYTES>() else {
            return Err(input.corrupt(format!("offset {offset}: cut off within the records")));
        };
        let (kind, misc, size) = parse_header(*header);
        let ahead = input.ahead(size)?;
        let Some(body) = ahead.get(RECORD_HEADER_BYTES..size) else {
            return Err(input.corrupt(format!("offset {offset}: a record of {size} bytes that is cut off")));
        };
        let (extra, problem) = match reader.record(kind, misc, body, sink) {
            Ok(Next::Record { extra }) => (extra, None),
            Ok(Next::Full) => {
                full = true;
                (0, None)
            }
            Err(problem) => (0, Some(problem)),
        };
        if let Some(problem) = problem {
            return Err(problem.at(input, |what| format!("offset {offset}: {what}")));
        }
        input.consume(size);
        skip(input, extra)?;
    }
    if !full {
        reader.ensure_whole().map_err(|what| input.corrupt(what))?;
        reader.deliver(u64::MAX, sink).map_err(|problem| problem.at(input, str::to_owned))?;
    }
    reader.finish(sink).map_err(|what| input.corrupt(what))
}

/// Why a file is refused, and the command that makes a file of it that can be imported.
fn as_text(what: &str) -> String {
    format!(
        "{what}; or import what `perf script -F comm,pid,tid,time,event,addr,data_src,ip > samples.txt` writes (without \
         data_src if perf says that it was not recorded)"
    )
}

/// Reads what is before the records.
fn begin(input: &mut Input) -> Result<Layout, TraceError> {
    let head = input.ahead(HEADER_BYTES)?;
    if head.starts_with(BIG_ENDIAN_MAGIC) {
        return Err(input.corrupt(as_text("perf's file of a big-endian machine")));
    }
    let pipe_header = [MAGIC, &(PIPE_HEADER_BYTES as u64).to_le_bytes()].concat();
    if head.starts_with(&pipe_header) {
        input.consume(PIPE_HEADER_BYTES);
        return Ok(Layout { attributes: Vec::new(), data_bytes: None });
    }
    let Some(head) = head.first_chunk::<HEADER_BYTES>().copied().filter(|head| head.starts_with(MAGIC)) else {
        return Err(input.corrupt("offset 0: expected the header of perf.data"));
    };
    let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes"));
    let (attr_bytes, attrs, data) = (number(16), (number(24), number(32)), (number(40), number(48)));
    if data.1 == 0 {
        return Err(input.corrupt("perf.data without records: perf was stopped before it had finished the file"));
    }
    if data.0 > MAX_PREFIX_BYTES || data.0 < HEADER_BYTES as u64 {
        return Err(input.corrupt(format!("records at offset {}, where none can be", data.0)));
    }
    let prefix_bytes = data.0 as usize;
    let prefix = input.ahead(prefix_bytes)?;
    let attributes = prefix.get(..prefix_bytes).and_then(|prefix| attributes(prefix, attr_bytes, attrs));
    let Some(attributes) = attributes.filter(|all| !all.is_empty()) else {
        return Err(input.corrupt("events whose attributes are not before the records"));
    };
    input.consume(prefix_bytes);
    ensure_usable(&attributes).map_err(|what| input.corrupt(what))?;
    Ok(Layout { attributes, data_bytes: Some(data.1) })
}

/// Refuses events whose samples say too little.
fn ensure_usable(attributes: &[Attribute]) -> Result<(), String> {
    if attributes.is_empty() {
        return Err("records without the attributes of their events".to_owned());
    }
    if !attributes.iter().any(Attribute::has_address) {
        return Err(
            "samples without the addresses of their data; record them by `perf mem record` or `perf record -d`"
                .to_owned(),
        );
    }
    if attributes.len() > 1 && !Attribute::can_be_distinguished(attributes) {
        return Err("samples of several events that cannot be told apart; record one event alone".to_owned());
    }
    Ok(())
}

/// The attribute of an event in a pipe: `struct perf_event_attr`, which has its size at 4, and the event's numbers.
fn attribute_of_record(body: &[u8]) -> Option<Attribute> {
    let bytes = u32::from_le_bytes(body.get(4..8)?.try_into().expect("4 bytes"));
    let (attr, ids) = body.split_at_checked(usize::try_from(bytes).ok()?)?;
    let ids = ids.chunks_exact(8).map(|id| u64::from_le_bytes(id.try_into().expect("8 bytes")));
    Attribute::new(attr, ids.collect())
}

/// The attributes of the events; none if they are not where the header says.
fn attributes(prefix: &[u8], attr_bytes: u64, (offset, size): (u64, u64)) -> Option<Vec<Attribute>> {
    let section = |offset: u64, size: u64| {
        let begin = usize::try_from(offset).ok()?;
        prefix.get(begin..begin.checked_add(usize::try_from(size).ok()?)?)
    };
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
    let own_bytes = usize::try_from(attr_bytes.checked_sub(SECTION_BYTES)?).ok()?;
    if own_bytes == 0 {
        return None;
    }
    let all = section(offset, size)?.chunks_exact(own_bytes + SECTION_BYTES as usize).map(|entry| {
        let (attr, ids) = entry.split_at(own_bytes);
        let (ids_at, ids_bytes) = ids.split_at(8);
        let ids = section(number(ids_at), number(ids_bytes))?.chunks_exact(8).map(number).collect();
        Attribute::new(attr, ids)
    });
    all.collect()
}

/// What comes after a record.
enum Next {
    /// The next record, behind so many bytes.
    Record { extra: u64 },
    /// No more is wanted.
    Full,
}

/// A sample that waits for those of other processors that were before it.
struct Held {
    time: u64,
    sample: Sample,
}

struct Reader {
    attributes: Vec<Attribute>,
    /// The attributes were found usable; those of a pipe come before the first sample.
    is_checked: bool,
    decompressor: Option<Decompressor>,
    samples: Samples,
    held: Vec<Held>,
    /// The latest time of the round before, and of this one.
    last_round: u64,
    latest: u64,
    /// Samples that perf lost.
    lost: u64,
    /// There are traces of hardware, which are no samples.
    hardware_trace: bool,
}

impl Reader {
    fn record(&mut self, kind: u32, misc: u16, body: &[u8], sink: &mut Sink) -> Result<Next, Problem> {
        let number =
            |at: usize| body.get(at..at + 8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("8 bytes")));
        match kind {
            record::SAMPLE => self.hold(misc, body, sink)?,
            record::FINISHED_ROUND => {
                let until = std::mem::replace(&mut self.last_round, self.latest);
                if !self.deliver(until, sink)? {
                    return Ok(Next::Full);
                }
            }
            // The number of the event, and of what was lost.
            record::LOST => self.lost = self.lost.saturating_add(number(8).unwrap_or(0)),
            record::LOST_SAMPLES => self.lost = self.lost.saturating_add(number(0).unwrap_or(0)),
            record::AUXTRACE => {
                self.hardware_trace = true;
                let extra = number(0).ok_or_else(|| "a hardware trace without a size".to_owned())?;
                return Ok(Next::Record { extra });
            }
            record::ATTRIBUTE => {
                let attribute =
                    attribute_of_record(body).ok_or_else(|| "an event's attribute that is cut off".to_owned())?;
                self.attributes.push(attribute);
                self.is_checked = false;
            }
            // What the kernel says of its tracepoints, in whole words behind the record.
            record::TRACING_DATA => {
                let bytes = body.first_chunk().ok_or_else(|| "tracing data without a size".to_owned())?;
                return Ok(Next::Record { extra: u64::from(u32::from_le_bytes(*bytes)).next_multiple_of(8) });
            }
            record::COMPRESSED => return self.compressed(body, sink),
            record::COMPRESSED2 => {
                let bytes = number(0).and_then(|bytes| usize::try_from(bytes).ok());
                let piece = bytes.and_then(|bytes| body[8..].get(..bytes));
                return self.compressed(piece.ok_or_else(|| "compressed records that are cut off".to_owned())?, sink);
            }
            _ => {}
        }
        Ok(Next::Record { extra: 0 })
    }

    /// Records from a piece of the compressed stream.
    fn compressed(&mut self, piece: &[u8], sink: &mut Sink) -> Result<Next, Problem> {
        let mut decompressor = match self.decompressor.take() {
            Some(decompressor) => decompressor,
            None => Decompressor::new()?,
        };
        let goes_on = decompressor.feed(piece, &mut |kind, misc, body| match kind {
            record::COMPRESSED | record::COMPRESSED2 => Err("compressed records in others".to_owned().into()),
            _ => match self.record(kind, misc, body, sink)? {
                Next::Record { extra: 0 } => Ok(true),
                Next::Record { .. } => Err("compressed records with a trace of hardware".to_owned().into()),
                Next::Full => Ok(false),
            },
        })?;
        self.decompressor = Some(decompressor);
        Ok(if goes_on { Next::Record { extra: 0 } } else { Next::Full })
    }

    /// Refuses a file that ends within a compressed record, or that names no events.
    fn ensure_whole(&self) -> Result<(), String> {
        if self.decompressor.as_ref().is_some_and(|decompressor| !decompressor.is_complete()) {
            return Err("cut off within the compressed records".to_owned());
        }
        ensure_usable(&self.attributes)
    }

    fn hold(&mut self, misc: u16, body: &[u8], sink: &mut Sink) -> Result<(), Problem> {
        if !self.is_checked {
            ensure_usable(&self.attributes)?;
            self.is_checked = true;
        }
        let attribute = Attribute::find_for_sample(&self.attributes, body)
            .ok_or_else(|| "a sample of an event that the file does not name".to_owned())?;
        let raw =
            RawSample::new(attribute, body).ok_or_else(|| "a sample that is shorter than its fields".to_owned())?;
        if !attribute.has_address() || HYPERVISOR_OR_GUEST.contains(&(misc & CPU_MODE)) {
            sink.skip_record();
            return Ok(());
        }
        let operation = operation(raw.data_source);
        let (process, thread, address, pc) = (raw.process, raw.thread, raw.address, raw.ip);
        self.latest = self.latest.max(raw.time);
        let sample = Sample { process, thread, operation, address, pc, may_be_weight: false };
        self.held.push(Held { time: raw.time, sample });
        Ok(())
    }

    /// Takes the samples up to a time in their order; false if no more are wanted.
    fn deliver(&mut self, until: u64, sink: &mut Sink) -> Result<bool, Problem> {
        // Stable: samples of one time stay in the order of the file.
        self.held.sort_by_key(|held| held.time);
        let count = self.held.partition_point(|held| held.time <= until);
        for held in self.held.drain(..count) {
            if !sink.next_record()? {
                return Ok(false);
            }
            self.samples.sample(held.sample, sink)?;
        }
        Ok(true)
    }

    fn finish(self, sink: &mut Sink) -> Result<(), String> {
        if self.hardware_trace && sink.accesses() == 0 {
            return Err(as_text(
                "a hardware trace, of which perf decodes what ARM SPE has recorded if --itrace=M is added below (Intel \
                 PT records no addresses of data)",
            ));
        }
        match self.lost {
            0 => {}
            1 => sink.note_loss("perf lost 1 sample".to_owned()),
            several => sink.note_loss(format!("perf lost {several} samples")),
        }
        self.samples.finish(sink)
    }
}

/// What a data source says that a sample did: `mem_op`, the lowest five bits.
fn operation(data_source: Option<u64>) -> Operation {
    const LOAD: u64 = 2;
    const STORE: u64 = 4;
    const PREFETCH: u64 = 8;
    const EXECUTE: u64 = 16;
    let has = |bit| data_source.is_some_and(|source| source & bit != 0);
    match (has(LOAD), has(STORE)) {
        (true, true) => Operation::Access(AccessKind::Modify),
        (true, false) => Operation::Access(AccessKind::Load),
        (false, true) => Operation::Access(AccessKind::Store),
        (false, false) if has(EXECUTE) => Operation::Access(AccessKind::Fetch),
        (false, false) if has(PREFETCH) => Operation::Prefetch,
        (false, false) => Operation::Unknown,
    }
}

/// Passes by so many bytes.
fn skip(input: &mut Input, mut bytes: u64) -> Result<(), TraceError> {
    while bytes > 0 {
        let ahead = input.ahead(1)?.len();
        if ahead == 0 {
            return Ok(());
        }
        let len = usize::try_from(bytes).unwrap_or(usize::MAX).min(ahead);
        input.consume(len);
        bytes -= len as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_bits_of_a_data_source_are_the_operation() {
        assert_eq!(operation(Some(0x6810_0142)), Operation::Access(AccessKind::Load));
        assert_eq!(operation(Some(0x6810_0144)), Operation::Access(AccessKind::Store));
        assert_eq!(operation(Some(0x6)), Operation::Access(AccessKind::Modify));
        assert_eq!(operation(Some(0x10)), Operation::Access(AccessKind::Fetch));
        assert_eq!(operation(Some(0x8)), Operation::Prefetch);
        assert_eq!((operation(Some(0x1)), operation(None)), (Operation::Unknown, Operation::Unknown));
    }
}
