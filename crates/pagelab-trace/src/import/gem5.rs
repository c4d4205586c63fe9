//! gem5's packet traces, as `CommMonitor`'s `MemTraceProbe` writes them.
//!
//! Four bytes `gem5`, then protobuf messages, each behind its length (a varint). The first is a `PacketHeader` (object,
//! version, ticks per second, names of requestors), the others are `Packet`s (tick, command, address, size, flags,
//! requestor, instruction pointer). Fields that are unknown are passed by. gem5's instruction traces begin as these do
//! and are refused. Source: `src/proto/packet.proto`, `src/proto/protoio.cc`, `src/mem/packet.hh` and
//! `src/mem/request.hh` of gem5 22.0. The numbers of reads (1) and writes (4) are the same in every version.
//!
//! Requests that read or write become accesses, those with the flag of an instruction fetch become fetches. Left out
//! and counted are responses, prefetches, write-backs, and the requests that no program makes:
//!
//! - those with the flag of a page walk, which gem5's ARM walker sets;
//! - those with the flag of a physical address, which the walkers of x86, RISC-V and POWER set: no program has one;
//! - those of requestors that are named as walkers or prefetchers. Below a cache its prefetches are plain reads.
//!
//! A packet counts for one instruction, as nothing tells them. A CPU's requestors are called `data` and `inst`, and are
//! one thread: `system.cpu0` of `system.cpu0.data`. Others, such as devices and traffic generators, become threads of
//! their own, and a note names them.

use std::collections::HashMap;

use super::{
    Head, ImportOptions,
    files::only,
    input::Input,
    protobuf::{Fields, Value, varint},
    sink::{Problem, Sink},
};
use crate::{AccessKind, TraceError, format::MAX_ACCESS_BYTES};

const MAGIC: &[u8] = b"gem5";
/// Bytes of a message. A header names all requestors; packets are much smaller.
const MAX_MESSAGE_BYTES: u64 = 16 << 20;
/// Bytes of a packet, of which most are of a cache line. A packet of a device may have more.
const MAX_PACKET_BYTES: u64 = 64 << 10;
/// Bits of `flags`.
const INST_FETCH: u64 = 0x100;
const PHYSICAL: u64 = 0x200;
const PT_WALK: u64 = 0x2000_0000;
/// Requestors that no program knows of, by a part of the last word of their names.
const NO_PROGRAM: [&[u8]; 2] = [b"walker", b"prefetcher"];
/// The last words of the names of a CPU's requestors.
const CPU_PORTS: [&[u8]; 2] = [b"data", b"inst"];
/// Names of requestors that a note lists.
const MAX_NAMES: usize = 3;
/// A varint of 64 bits has at most as many bytes.
const MAX_VARINT_BYTES: usize = 10;

/// What a packet's command does to memory for the program; none if nothing.
fn kind(command: u64) -> Option<AccessKind> {
    match command {
        // ReadReq, ReadCleanReq, ReadSharedReq, LoadLockedReq, LockedRMWReadReq
        1 | 24 | 25 | 26 | 30 => Some(AccessKind::Load),
        // WriteReq, WriteLineReq, UpgradeReq, SCUpgradeReq, ReadExReq, StoreCondReq, LockedRMWWriteReq
        4 | 16 | 17 | 18 | 22 | 27 | 32 => Some(AccessKind::Store),
        // SwapReq
        34 => Some(AccessKind::Modify),
        _ => None,
    }
}

pub(super) fn looks_like(head: Head<'_>) -> bool {
    head.bytes.starts_with(MAGIC)
}

/// What readers of results should know.
pub(super) fn notes(_: &ImportOptions) -> Vec<String> {
    vec![
        "gem5's packets carry physical addresses, which are taken for virtual ones".to_owned(),
        "gem5's packets do not tell instructions: each access counts for one".to_owned(),
    ]
}

/// Feeds the data to `sink`.
pub(super) fn read(inputs: &mut [Input], sink: &mut Sink, _: &ImportOptions) -> Result<(), TraceError> {
    let input = only(inputs)?;
    if !input.ahead(MAGIC.len())?.starts_with(MAGIC) {
        return Err(input.corrupt("offset 0: expected the four bytes `gem5`"));
    }
    input.consume(MAGIC.len());
    let mut stream = Stream::default();
    let mut least = MAX_VARINT_BYTES;
    loop {
        let begin = input.offset();
        let ahead = input.ahead(least)?;
        let ended = ahead.len() < least;
        let mut done = 0;
        let stopped = loop {
            match message(&ahead[done..]) {
                Next::Message { bytes, content } => {
                    if !sink.next_record()? {
                        return stream.finish(sink).map_err(|what| input.corrupt(what));
                    }
                    if let Err(problem) = stream.message(content, sink) {
                        break Err(problem);
                    }
                    done += bytes;
                }
                other => break Ok(other),
            }
        };
        least = MAX_VARINT_BYTES;
        let problem = match stopped {
            Ok(Next::Nothing) if done == 0 => return stream.finish(sink).map_err(|what| input.corrupt(what)),
            Ok(Next::Nothing | Next::Cut { .. }) if done > 0 => {
                input.consume(done);
                continue;
            }
            Ok(Next::Cut { bytes }) if !ended => {
                least = bytes;
                continue;
            }
            Ok(Next::Wrong(what)) => what.into(),
            Ok(_) => "cut off within a message".to_owned().into(),
            Err(problem) => problem,
        };
        let place = format!("offset {}", begin + done as u64);
        return Err(Problem::at(problem, input, |what| format!("{place}: {what}")));
    }
}

/// What comes next.
enum Next<'a> {
    Nothing,
    /// A message of this many bytes, its length included, that is not all there.
    Cut {
        bytes: usize,
    },
    Message {
        bytes: usize,
        content: &'a [u8],
    },
    Wrong(String),
}

#[inline]
fn message(ahead: &[u8]) -> Next<'_> {
    if ahead.is_empty() {
        return Next::Nothing;
    }
    let Some((length, head)) = varint(ahead) else {
        return match ahead.len() {
            0..MAX_VARINT_BYTES => Next::Cut { bytes: MAX_VARINT_BYTES },
            _ => Next::Wrong("the length of a message is no varint".to_owned()),
        };
    };
    if length > MAX_MESSAGE_BYTES {
        return Next::Wrong(format!("a message of {length} bytes; at most {MAX_MESSAGE_BYTES} are allowed"));
    }
    let bytes = head + length as usize;
    match ahead.get(head..bytes) {
        Some(content) => Next::Message { bytes, content },
        None => Next::Cut { bytes },
    }
}

/// Who makes requests.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Requestor {
    thread: u64,
    /// Its name, unless it is a CPU's.
    other: Option<String>,
    /// A walker or a prefetcher.
    is_no_program: bool,
}

/// The name of a requestor's thread: that of its CPU, or its own.
fn thread_name(name: &[u8]) -> &[u8] {
    let cpu = name.iter().rposition(|&letter| letter == b'.').map(|dot| name.split_at(dot));
    cpu.filter(|(_, port)| CPU_PORTS.contains(&&port[1..])).map_or(name, |(cpu, _)| cpu)
}

impl Requestor {
    fn new(name: &[u8], thread: u64) -> Self {
        let last = name.rsplit(|&letter| letter == b'.').next().unwrap_or(name).to_ascii_lowercase();
        let is_no_program = NO_PROGRAM.iter().any(|part| memchr::memmem::find(&last, part).is_some());
        let other = (!CPU_PORTS.contains(&&last[..])).then(|| String::from_utf8_lossy(name).into_owned());
        Self { thread, other, is_no_program }
    }
}

/// The requestors that a header names, by their ids.
fn header(content: &[u8]) -> Result<HashMap<u64, Requestor>, Problem> {
    let mut by_name: HashMap<Vec<u8>, u64> = HashMap::new();
    let mut requestors = HashMap::new();
    let mut has_frequency = false;
    for field in Fields::new(content) {
        match field? {
            (3, Value::Varint(_)) => has_frequency = true,
            (4, Value::Bytes(entry)) => {
                let (mut key, mut name) = (0, &[][..]);
                for field in Fields::new(entry) {
                    match field? {
                        (1, Value::Varint(number)) => key = number,
                        (2, Value::Bytes(text)) => name = text,
                        _ => {}
                    }
                }
                let next = by_name.len() as u64 + 1;
                let thread = *by_name.entry(thread_name(name).to_vec()).or_insert(next);
                requestors.insert(key, Requestor::new(name, thread));
            }
            (4, _) => return Err("an instruction trace of gem5; only packet traces can be imported".to_owned().into()),
            _ => {}
        }
    }
    if has_frequency { Ok(requestors) } else { Err("a first message that is no PacketHeader".to_owned().into()) }
}

/// What is known between messages.
#[derive(Default)]
struct Stream {
    /// By their ids; none before the header.
    requestors: Option<HashMap<u64, Requestor>>,
    /// The one of the last packet, and whether it is a walker or a prefetcher.
    current: Option<(u64, bool)>,
    /// The one whose thread is entered.
    entered: Option<u64>,
    /// Requests of no program that were left out.
    no_program: u64,
    /// Requests that were accesses.
    taken: u64,
    /// Names of requestors that are no CPU's and became threads, in the order in which they came.
    others: Vec<String>,
}

impl Stream {
    #[inline]
    fn message(&mut self, content: &[u8], sink: &mut Sink) -> Result<(), Problem> {
        if self.requestors.is_none() {
            self.requestors = Some(header(content)?);
            return Ok(());
        }
        let packet = Packet::parse(content)?;
        let Some(kind) = kind(packet.command) else {
            sink.skip_record();
            return Ok(());
        };
        if packet.flags & (PT_WALK | PHYSICAL) != 0 || self.is_no_program(packet.requestor) {
            self.no_program += 1;
            sink.skip_record();
            return Ok(());
        }
        let address =
            packet.address.ok_or_else(|| format!("a packet with command {} and without an address", packet.command))?;
        let size_bytes = packet.size_bytes;
        if size_bytes > MAX_PACKET_BYTES {
            return Err(format!("a packet of {size_bytes} bytes; at most {MAX_PACKET_BYTES} are allowed").into());
        }
        self.taken += 1;
        if self.entered != Some(packet.requestor) {
            self.enter(packet.requestor, sink)?;
        }
        if size_bytes == 0 {
            sink.skip_empty();
            return Ok(());
        }
        if packet.flags & INST_FETCH != 0 {
            sink.site(address);
            return sink.fetch(address, size_bytes.min(u64::from(MAX_ACCESS_BYTES)) as u16);
        }
        sink.site(packet.pc);
        sink.count(1);
        sink.access(kind, address, size_bytes)
    }

    fn requestor(&self, id: u64) -> Option<&Requestor> {
        self.requestors.as_ref()?.get(&id)
    }

    #[inline]
    fn is_no_program(&mut self, id: u64) -> bool {
        match self.current {
            Some((current, is_no_program)) if current == id => is_no_program,
            _ => {
                let is_no_program = self.requestor(id).is_some_and(|requestor| requestor.is_no_program);
                self.current = Some((id, is_no_program));
                is_no_program
            }
        }
    }

    fn enter(&mut self, id: u64, sink: &mut Sink) -> Result<(), Problem> {
        self.entered = Some(id);
        let Some(requestor) = self.requestor(id) else { return sink.enter(0, 0) };
        sink.enter(0, requestor.thread)?;
        if let Some(name) = &requestor.other
            && self.others.len() <= MAX_NAMES
            && !self.others.contains(name)
        {
            let name = name.clone();
            self.others.push(name);
        }
        Ok(())
    }

    /// Says what became of requests that no program or no CPU made.
    fn finish(&self, sink: &mut Sink) -> Result<(), String> {
        let no_program = "by page walkers, by prefetchers or to physical addresses, as no program makes them";
        if self.no_program > 0 && self.taken == 0 {
            let what = match self.no_program {
                1 => format!("its request is {no_program}"),
                several => format!("its {several} requests are {no_program}"),
            };
            return Err(format!("nothing to replay: {what}; record the packets of a CPU's port"));
        }
        match self.no_program {
            0 => {}
            1 => sink.note(format!("1 request was left out: it is {no_program}")),
            several => sink.note(format!("{several} requests were left out: they are {no_program}")),
        }
        if !self.others.is_empty() {
            let more = if self.others.len() > MAX_NAMES { " and others" } else { "" };
            let names = self.others[..self.others.len().min(MAX_NAMES)].join(", ");
            sink.note(format!("requestors that are no CPU's became threads of their own: {names}{more}"));
        }
        Ok(())
    }
}

#[derive(Default)]
struct Packet {
    command: u64,
    address: Option<u64>,
    size_bytes: u64,
    flags: u64,
    requestor: u64,
    pc: u64,
}

impl Packet {
    #[inline]
    fn parse(content: &[u8]) -> Result<Self, Problem> {
        let mut packet = Self::default();
        for field in Fields::new(content) {
            match field? {
                (2, Value::Varint(value)) => packet.command = value,
                (3, Value::Varint(value)) => packet.address = Some(value),
                (4, Value::Varint(value)) => packet.size_bytes = value,
                (5, Value::Varint(value)) => packet.flags = value,
                (6, Value::Varint(value)) => packet.requestor = value,
                (7, Value::Varint(value)) => packet.pc = value,
                _ => {}
            }
        }
        Ok(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_read_write_or_do_neither() {
        assert_eq!(
            (kind(1), kind(4), kind(34)),
            (Some(AccessKind::Load), Some(AccessKind::Store), Some(AccessKind::Modify))
        );
        for other in [0, 2, 5, 7, 10, 11, 13, 23, 29, 1000] {
            assert_eq!(kind(other), None, "{other}");
        }
    }

    #[test]
    fn requestors_are_told_by_the_last_word_of_their_names() {
        for name in ["system.cpu.mmu.dtb.walker", "system.cpu0.itb_walker", "l2.Prefetcher", "system.l2.prefetcher0"] {
            assert!(Requestor::new(name.as_bytes(), 1).is_no_program, "{name}");
        }
        for name in ["system.cpu.data", "board.cores1.core.inst", "walkers.cpu.data"] {
            let cpu = Requestor::new(name.as_bytes(), 1);
            assert_eq!(cpu, Requestor { thread: 1, other: None, is_no_program: false }, "{name}");
        }
        assert_eq!(Requestor::new(b"system.ide", 2).other, Some("system.ide".to_owned()));
    }

    #[test]
    fn messages_are_cut_by_their_lengths() {
        assert!(matches!(message(&[]), Next::Nothing));
        assert!(matches!(message(&[2, 8, 1, 9]), Next::Message { bytes: 3, content: [8, 1] }));
        assert!(matches!(message(&[3, 8, 1]), Next::Cut { bytes: 4 }));
        assert!(matches!(message(&[0x80]), Next::Cut { .. }));
        assert!(matches!(message(&[0xff; 12]), Next::Wrong(_)));
        assert!(matches!(message(&[0xff, 0xff, 0xff, 0xff, 0x7f]), Next::Wrong(_)));
        // The largest message, and one byte more.
        assert!(matches!(message(&[0x80, 0x80, 0x80, 8]), Next::Cut { bytes } if bytes == 4 + (16 << 20)));
        assert!(matches!(message(&[0x81, 0x80, 0x80, 8]), Next::Wrong(_)));
    }
}
