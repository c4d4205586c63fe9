//! Tests the collector with scripted streams, which always produce situations that are rare with real processes.

use std::fs::File;
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::super::output::Output;
use super::super::protocol::{CONTROL_BIT, MAGIC, VERSION};
use super::*;
use crate::{Batch, Segment, Source, TraceMeta, TraceReader, TraceWriter};

const SLOTS: u32 = 8;
const SLOT_BYTES: u32 = 4096;

/// Recorded items; accesses are identified by address.
#[derive(Debug, PartialEq)]
enum Item {
    Access(u64),
    Event(EventKind),
}

/// The tool's end of a stream. Dropping it closes the stream.
struct Script {
    socket: UnixStream,
    memory: File,
    frames: u32,
    _life_line: UnixStream,
    _door: UnixStream,
}

impl Script {
    fn connect(path: &PathBuf) -> Self {
        let socket = UnixStream::connect(path).unwrap();
        let memory = tempfile::tempfile().unwrap();
        let (life_line, other_end) = UnixStream::pair().unwrap();
        let (door, collectors_end) = UnixStream::pair().unwrap();
        let shape: Vec<u8> = [MAGIC, VERSION, SLOTS, SLOT_BYTES].iter().flat_map(|word| word.to_le_bytes()).collect();
        let passed = [memory.as_fd(), other_end.as_fd(), collectors_end.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&passed)));
        assert_eq!(sendmsg(&socket, &[IoSlice::new(&shape)], &mut control, SendFlags::empty()), Ok(shape.len()));
        Self { socket, memory, frames: 0, _life_line: life_line, _door: door }
    }

    /// Sends a frame; its slot is not reused.
    fn send(&mut self, frame: &[u8]) {
        assert!(self.frames < SLOTS && frame.len() <= SLOT_BYTES as usize);
        self.memory.write_all_at(frame, u64::from(self.frames) * u64::from(SLOT_BYTES)).unwrap();
        let message = [self.frames, frame.len() as u32].map(u32::to_le_bytes).concat();
        self.socket.write_all(&message).unwrap();
        self.frames += 1;
    }
}

fn control(kind: u32, payload: &[u8]) -> Vec<u8> {
    [&(CONTROL_BIT | kind).to_le_bytes(), &(payload.len() as u32).to_le_bytes(), payload].concat()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_le_bytes(), text.as_bytes()].concat()
}

fn hello(pid: u32, program: &str) -> Vec<u8> {
    let (image, key) = (0, u64::from(pid));
    control(1, &[words(&[VERSION, image]), key.to_le_bytes().to_vec(), words(&[pid]), text(program)].concat())
}

fn thread_start() -> Vec<u8> {
    control(5, &words(&[1, 10]))
}

/// Segment 0: one store of 8 bytes by the only instruction at 0x4000.
fn segment() -> Vec<u8> {
    let (number, tail, pieces, accesses) = (0u32, 0u32, 1u16, 1u16);
    let mut payload = [number.to_le_bytes(), tail.to_le_bytes()].concat();
    payload.extend([pieces.to_le_bytes(), accesses.to_le_bytes()].concat());
    payload.extend([&0x4000u64.to_le_bytes()[..], &4u32.to_le_bytes()].concat());
    let (size, store, conditional) = (8u16, 1u8, 0u8);
    payload.extend([&0x4000u64.to_le_bytes()[..], &1u32.to_le_bytes(), &size.to_le_bytes()].concat());
    payload.extend([store, conditional]);
    let (origin, registers, branch, transfer) = ([0u8; 11], 0u8, 0u8, 0u8);
    payload.extend(origin);
    payload.extend([registers, branch, transfer]);
    control(2, &payload)
}

fn fetch_of_the_segment() -> Item {
    Item::Access(0x4000)
}

fn store_to(vaddr: u64) -> Vec<u8> {
    [&0u32.to_le_bytes()[..], &vaddr.to_le_bytes()[..6]].concat()
}

fn exec_begins(program: &str) -> Vec<u8> {
    control(15, &text(program))
}

fn exits(code: u32) -> Vec<u8> {
    control(17, &words(&[code]))
}

/// Collects what `script` sends; each call of the closure is handed the socket's path.
fn collect(script: impl FnOnce(&PathBuf) -> Vec<Script>) -> (Vec<Item>, Remarks) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    listener.set_nonblocking(true).unwrap();
    let trace = folder.path().join("collected.trace");
    let mut writer = TraceWriter::create(&trace, TraceMeta::new(Vec::new())).unwrap();
    let mut collector = Collector::new(listener, Output::new(&mut writer, None, None));
    drop(script(&path));
    let collected = (|| {
        while collector.step(0)? || collector.is_connected() {}
        collector.finish_all(Some(0)).map(|(_, remarks)| remarks)
    })();
    let remarks = collected.unwrap_or_else(|error| match error {
        CollectError::Stream(what) => panic!("{what}"),
        CollectError::Output(error) => panic!("{error}"),
    });
    writer.finish().unwrap();
    (read(&trace), remarks)
}

fn read(trace: &Path) -> Vec<Item> {
    let mut reader = TraceReader::open(trace).unwrap();
    let (mut items, mut batch) = (Vec::new(), Batch::default());
    while reader.next_batch(&mut batch).unwrap() {
        let mut begin = 0;
        for segment in &batch.segments {
            match segment {
                Segment::Run { end, .. } => {
                    items.extend(batch.accesses[begin..*end].iter().map(|access| Item::Access(access.vaddr)));
                    begin = *end;
                }
                Segment::Event(event) => items.push(Item::Event(event.kind.clone())),
            }
        }
    }
    items
}

/// A process executes another program: its two streams are both full when the collector first reads them. All frames of
/// the old image come first.
#[test]
fn a_new_image_waits_for_the_old_ones_stream() {
    let (items, remarks) = collect(|path| {
        let mut old = Script::connect(path);
        old.send(&hello(100, "/bin/old"));
        old.send(&[thread_start(), segment(), store_to(0x1000)].concat());
        old.send(&[store_to(0x2000), exec_begins("/bin/new")].concat());
        old.send(&store_to(0x3000));
        let mut new = Script::connect(path);
        new.send(&hello(100, "/bin/new"));
        new.send(&[thread_start(), segment(), store_to(0x5000), exits(0)].concat());
        vec![old, new]
    });
    let expected = [
        Item::Event(EventKind::ProcessStart { parent: None }),
        Item::Event(EventKind::ThreadStart { os_tid: 10 }),
        fetch_of_the_segment(),
        Item::Access(0x1000),
        Item::Access(0x2000),
        Item::Access(0x3000),
        Item::Event(EventKind::Exec { path: "/bin/new".into() }),
        fetch_of_the_segment(),
        Item::Access(0x5000),
        Item::Event(EventKind::ThreadExit),
        Item::Event(EventKind::Exit { code: 0 }),
    ];
    assert_eq!(items, expected);
    assert!(remarks.notes.is_empty() && remarks.losses.is_empty(), "{remarks:?}");
}

#[test]
fn a_program_that_runs_natively_is_named_with_the_reason() {
    for (reason, expected) in [
        (Some("is a 32-bit program"), "which is a 32-bit program: it ran natively, and nothing of it is recorded"),
        (None, "which did not start under Valgrind"),
    ] {
        let (items, remarks) = collect(|path| {
            let mut only = Script::connect(path);
            only.send(&hello(100, "/bin/sh"));
            only.send(&[thread_start(), segment(), store_to(0x1000), exec_begins("/bin/odd")].concat());
            reason.into_iter().for_each(|reason| only.send(&control(20, &text(reason))));
            vec![only]
        });
        assert_eq!(remarks.losses, [format!("process 100 executed /bin/odd, {expected}")]);
        assert_eq!(items.last(), Some(&Item::Event(EventKind::Exit { code: 0 })));
    }
}
