//! gem5's packet traces, as `CommMonitor`'s `MemTraceProbe` writes them.
//!
//! Four bytes `gem5`, then protobuf messages, each behind its length (a varint). The first is a `PacketHeader` (object,
//! version, ticks per second, names of requestors), the others are `Packet`s (tick, command, address, size, flags,
//! requestor, instruction pointer). Fields that are unknown are passed by. gem5's instruction traces begin as these do
//! and are refused. Source: `src/proto/packet.proto`, `src/proto/protoio.cc`, `src/mem/packet.hh` and
//! `src/mem/request.hh` of gem5 22.0. The numbers of reads (1) and writes (4) are the same in every version.
//!
//! Requests that read or write become accesses, those with the flag of an instruction fetch become fetches. Responses,
//! prefetches, write-backs, and the page walks of gem5's own walker are left out and counted. A packet counts for one
//! instruction, as nothing tells them. A requestor's name without its last part (`system.cpu0` of `system.cpu0.data`)
//! is its thread.

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
const PT_WALK: u64 = 0x2000_0000;
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
    let mut stream = Stream { threads: None, requestor: None };
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
                        return Ok(());
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
            Ok(Next::Nothing) if done == 0 => return Ok(()),
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

/// The threads of the requestors that a header names, by their ids.
fn header(content: &[u8]) -> Result<HashMap<u64, u64>, Problem> {
    let mut by_name: HashMap<Vec<u8>, u64> = HashMap::new();
    let mut threads = HashMap::new();
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
                let unit = name.iter().rposition(|&b| b == b'.').map_or(name, |dot| &name[..dot]);
                let next = by_name.len() as u64 + 1;
                threads.insert(key, *by_name.entry(unit.to_vec()).or_insert(next));
            }
            (4, _) => return Err("an instruction trace of gem5; only packet traces can be imported".to_owned().into()),
            _ => {}
        }
    }
    if has_frequency { Ok(threads) } else { Err("a first message that is no PacketHeader".to_owned().into()) }
}

/// What is known between messages.
struct Stream {
    /// Threads by requestor; none before the header.
    threads: Option<HashMap<u64, u64>>,
    /// The requestor whose thread is entered.
    requestor: Option<u64>,
}

impl Stream {
    #[inline]
    fn message(&mut self, content: &[u8], sink: &mut Sink) -> Result<(), Problem> {
        if self.threads.is_none() {
            self.threads = Some(header(content)?);
            return Ok(());
        }
        let packet = Packet::parse(content)?;
        let Some(kind) = kind(packet.command).filter(|_| packet.flags & PT_WALK == 0) else {
            sink.leave_out();
            return Ok(());
        };
        let address =
            packet.address.ok_or_else(|| format!("a packet with command {} and without an address", packet.command))?;
        let size_bytes = packet.size_bytes;
        if size_bytes > MAX_PACKET_BYTES {
            return Err(format!("a packet of {size_bytes} bytes; at most {MAX_PACKET_BYTES} are allowed").into());
        }
        if self.requestor != Some(packet.requestor) {
            let thread = self.threads.as_ref().and_then(|threads| threads.get(&packet.requestor));
            sink.enter(0, thread.copied().unwrap_or(0))?;
            self.requestor = Some(packet.requestor);
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
    fn messages_are_cut_by_their_lengths() {
        assert!(matches!(message(&[]), Next::Nothing));
        assert!(matches!(message(&[2, 8, 1, 9]), Next::Message { bytes: 3, content: [8, 1] }));
        assert!(matches!(message(&[3, 8, 1]), Next::Cut { bytes: 4 }));
        assert!(matches!(message(&[0x80]), Next::Cut { .. }));
        assert!(matches!(message(&[0xff; 12]), Next::Wrong(_)));
        assert!(matches!(message(&[0xff, 0xff, 0xff, 0xff, 0x7f]), Next::Wrong(_)));
    }
}
