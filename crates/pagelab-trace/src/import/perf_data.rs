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
//! hypervisors, and what [`Samples`] leaves out. Samples that perf lost are noted. Files of pipes, compressed records
//! (`perf record -z`) and big-endian files are refused. Source: `tools/perf/Documentation/perf.data-file-format.txt`
//! and `include/uapi/linux/perf_event.h` of Linux 6.12.

use super::{
    Head, ImportOptions,
    files::only,
    input::Input,
    perf::{Operation, Sample, Samples},
    perf_sample::{Attribute, RawSample},
    sink::{Problem, Sink},
};
use crate::{AccessKind, TraceError};

const MAGIC: &[u8] = b"PERFILE2";
const BIG_ENDIAN_MAGIC: &[u8] = b"2ELIFREP";
/// Bytes of the header; that of a pipe is shorter.
const HEADER_BYTES: usize = 104;
/// Bytes before the records: attributes and numbers of events.
const MAX_PREFIX_BYTES: u64 = 64 << 20;
/// Bytes of an attribute's section: offset and size.
const SECTION_BYTES: u64 = 16;
const RECORD_HEADER_BYTES: usize = 8;

/// Types of records (`enum perf_event_type`, and those that perf itself adds).
mod record {
    pub const LOST: u32 = 2;
    pub const SAMPLE: u32 = 9;
    pub const LOST_SAMPLES: u32 = 13;
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
    data_bytes: u64,
}

/// Feeds the data to `sink`.
pub(super) fn read(inputs: &mut [Input], sink: &mut Sink, options: &ImportOptions) -> Result<(), TraceError> {
    let input = only(inputs)?;
    let layout = begin(input)?;
    let mut reader = Reader {
        layout: &layout,
        samples: Samples::new(options),
        held: Vec::new(),
        last_round: 0,
        latest: 0,
        lost: 0,
        hardware_trace: false,
    };
    let end = input.offset().saturating_add(layout.data_bytes);
    let mut full = false;
    while input.offset() < end && !full {
        let offset = input.offset();
        let ahead = input.ahead(RECORD_HEADER_BYTES)?;
        let Some(header) = ahead.first_chunk::<RECORD_HEADER_BYTES>() else {
            return Err(input.corrupt(format!("offset {offset}: cut off within the records")));
        };
        let [t0, t1, t2, t3, m0, m1, s0, s1] = *header;
        let (kind, misc) = (u32::from_le_bytes([t0, t1, t2, t3]), u16::from_le_bytes([m0, m1]));
        let size = usize::from(u16::from_le_bytes([s0, s1]));
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
    let Some(head) = head.first_chunk::<HEADER_BYTES>().copied().filter(|head| head.starts_with(MAGIC)) else {
        return Err(input.corrupt("offset 0: expected the header of perf.data"));
    };
    let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes"));
    if number(8) != HEADER_BYTES as u64 {
        return Err(input.corrupt(as_text("perf's output of a pipe; record with `-o perf.data`")));
    }
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
    if !attributes.iter().any(Attribute::has_address) {
        return Err(input.corrupt(
            "samples without the addresses of their data; record them by `perf mem record` or `perf record -d`",
        ));
    }
    if attributes.len() > 1 && !Attribute::can_be_distinguished(&attributes) {
        return Err(input.corrupt("samples of several events that cannot be told apart; record one event alone"));
    }
    Ok(Layout { attributes, data_bytes: data.1 })
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

struct Reader<'a> {
    layout: &'a Layout,
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

impl Reader<'_> {
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
            record::COMPRESSED | record::COMPRESSED2 => {
                return Err(as_text("compressed records; record without -z").into());
            }
            _ => {}
        }
        Ok(Next::Record { extra: 0 })
    }

    fn hold(&mut self, misc: u16, body: &[u8], sink: &mut Sink) -> Result<(), Problem> {
        let attribute = Attribute::find_for_sample(&self.layout.attributes, body)
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
