//! A recorder for tests: it keeps what streams send.

use std::collections::HashMap;
use std::fs::File;
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use pagelab_step::{Follow, Request, StepError, Stepped};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// A control record: its number and payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    pub number: u32,
    pub payload: Vec<u8>,
}

impl Control {
    pub fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.payload[at..at + 4].try_into().unwrap())
    }

    pub fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.payload[at..at + 8].try_into().unwrap())
    }

    pub fn holds(&self, text: &str) -> bool {
        String::from_utf8_lossy(&self.payload).contains(text)
    }
}

/// An access: instruction, address, bytes, kind.
pub type Access = (u64, u64, u16, u8);

/// What a stream has sent.
#[derive(Debug, Default)]
pub struct Sent {
    pub controls: Vec<Control>,
    pub accesses: Vec<Access>,
    pub instructions: u64,
}

type Segments = HashMap<u32, Vec<(u64, u16, u8)>>;

impl Sent {
    pub fn all(&self, number: u32) -> Vec<&Control> {
        self.controls.iter().filter(|control| control.number == number).collect()
    }

    fn take(&mut self, frame: &[u8], segments: &mut Segments) {
        let mut at = 0;
        let word = |at: usize| u32::from_le_bytes(frame[at..at + 4].try_into().unwrap());
        while at < frame.len() {
            let tag = word(at);
            at += 4;
            if tag & 0x8000_0000 == 0 {
                self.instructions += 1;
                for (pc, bytes, kind) in &segments[&tag] {
                    let mut address = [0; 8];
                    address[..6].copy_from_slice(&frame[at..at + 6]);
                    self.accesses.push((*pc, u64::from_le_bytes(address), *bytes, *kind));
                    at += 6;
                }
                continue;
            }
            let end = at + 4 + word(at) as usize;
            let control = Control { number: tag & 0x7fff_ffff, payload: frame[at + 4..end].to_vec() };
            if control.number == 2 {
                segments.insert(control.u32(0), accesses_of(&control));
            } else {
                self.controls.push(control);
            }
            at = end;
        }
    }
}

fn accesses_of(segment: &Control) -> Vec<(u64, u16, u8)> {
    let count = usize::from(u16::from_le_bytes([segment.payload[10], segment.payload[11]]));
    let first = 12 + 12;
    (0..count)
        .map(|i| {
            let at = first + i * 27;
            let bytes = u16::from_le_bytes([segment.payload[at + 12], segment.payload[at + 13]]);
            (segment.u64(at), bytes, segment.payload[at + 14])
        })
        .collect()
}

/// A recorded program.
pub struct Recorded {
    /// Of each image of a process, in order of their starts.
    pub streams: Vec<Sent>,
    /// Wait status of the first process.
    pub status: i32,
    pub losses: Vec<String>,
}

fn greeting(socket: &impl AsFd) -> Option<Vec<OwnedFd>> {
    let mut shape = [0; 16];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut shape)], &mut control, RecvFlags::CMSG_CLOEXEC).ok()?;
    if received.bytes == 0 {
        return None;
    }
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors.collect()),
        _ => None,
    })
}

fn read_stream(mut socket: UnixStream, memory: File, parent: Option<Segments>) -> (Sent, Segments) {
    let (mut sent, mut segments) = (Sent::default(), parent.unwrap_or_default());
    let mut message = [0; 8];
    while socket.read_exact(&mut message).is_ok() {
        let [slot, bytes] = [0, 4].map(|at| u32::from_le_bytes(message[at..at + 4].try_into().unwrap()));
        let mut frame = vec![0; bytes as usize];
        memory.read_exact_at(&mut frame, u64::from(slot) * (256 << 10)).unwrap();
        sent.take(&frame, &mut segments);
        let _ = socket.write_all(&[slot as u8]);
    }
    (sent, segments)
}

/// Receives all streams, one after the other begins: children have the instructions that their parents had described.
fn receive(listener: UnixListener) -> Vec<Sent> {
    let known: Arc<Mutex<Segments>> = Arc::default();
    let (first, _) = listener.accept().unwrap();
    let mut descriptors = greeting(&first).unwrap();
    let door = descriptors.pop().unwrap();
    let mut threads: Vec<JoinHandle<Sent>> = Vec::new();
    let mut start = |socket: UnixStream, memory: OwnedFd| {
        let known = Arc::clone(&known);
        threads.push(std::thread::spawn(move || {
            let parent = known.lock().unwrap().clone();
            let (sent, segments) = read_stream(socket, File::from(memory), Some(parent));
            *known.lock().unwrap() = segments;
            sent
        }));
    };
    start(first, descriptors.remove(0));
    while let Some(mut descriptors) = greeting(&door) {
        let socket = UnixStream::from(descriptors.pop().unwrap());
        start(socket, descriptors.remove(0));
    }
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

pub fn record_following(command: &[&str], follow: Option<Follow>) -> Result<Recorded, StepError> {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    let receiver = std::thread::spawn(move || receive(listener));
    let command: Vec<_> = command.iter().map(Into::into).collect();
    let program = std::path::PathBuf::from(&command[0]);
    let stepped = Stepped::start(Request { program, command, socket, follow })?;
    let status = loop {
        if let Some(status) = stepped.status() {
            break status;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    let losses = stepped.finish()?;
    Ok(Recorded { streams: receiver.join().unwrap(), status, losses })
}

pub fn record(command: &[&str]) -> Recorded {
    record_following(command, None).unwrap()
}
