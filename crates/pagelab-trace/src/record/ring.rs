//! The connection to one process's tool: a socket for numbers of filled and freed slots, and the shared memory with the
//! slots. The first process connects to the recorder's socket. It brings the *door*, a socket
//! that all later processes inherit and send their connections through: they may have lost the right, or the way, to
//! the recorder's socket.

use std::fs::File;
use std::io::{ErrorKind, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::frame::Frame;
use super::protocol::{MAGIC, VERSION};

/// Result of reading from a ring.
pub(super) enum Filled {
    /// A frame was read into the buffer.
    Frame,
    /// Nothing now; wait for the socket.
    Nothing,
    /// The process has closed its end.
    Closed,
}

struct Memory {
    file: File,
    slots: u32,
    slot_bytes: u32,
}

/// A ring; the greeting with its shape and memory may not have arrived yet.
pub(super) struct Ring {
    socket: UnixStream,
    memory: Option<Memory>,
    life_line: Option<OwnedFd>,
    door: Option<Door>,
    /// A message that has arrived partially.
    message: [u8; 8],
    message_len: usize,
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Ring {
    /// `socket` must be non-blocking.
    pub(super) fn new(socket: UnixStream) -> Self {
        Self { socket, memory: None, life_line: None, door: None, message: [0; 8], message_len: 0 }
    }

    /// The process's id as this process sees it; none if it cannot be seen from here, or has never been told.
    pub(super) fn pid(&self) -> Option<u32> {
        let credentials = rustix::net::sockopt::socket_peercred(&self.socket).ok()?;
        u32::try_from(credentials.pid.as_raw_nonzero().get()).ok()
    }

    /// Reads the next frame into `frame` and frees its slot. The error describes what the tool did wrong.
    pub(super) fn next_frame(&mut self, frame: &mut Frame) -> Result<Filled, String> {
        if self.memory.is_none() {
            match receive(&self.socket)? {
                Received::Greeting { memory, fds: [life_line, door] } => {
                    self.memory = Some(memory);
                    self.life_line = Some(life_line);
                    self.door = Some(Door(door));
                }
                Received::Nothing => return Ok(Filled::Nothing),
                Received::Closed => return Ok(Filled::Closed),
            }
        }
        while self.message_len < self.message.len() {
            match self.socket.read(&mut self.message[self.message_len..]) {
                Ok(0) => return Ok(Filled::Closed),
                Ok(n) => self.message_len += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(Filled::Nothing),
                Err(e) if e.kind() == ErrorKind::ConnectionReset => return Ok(Filled::Closed),
                Err(e) => return Err(format!("reading from the tool: {e}")),
            }
        }
        self.message_len = 0;
        let [slot, len] = [0, 4].map(|i| u32::from_le_bytes(self.message[i..i + 4].try_into().expect("4 bytes")));
        let Some(memory) = self.memory.as_ref().filter(|m| slot < m.slots && len <= m.slot_bytes) else {
            return Err(format!("the tool announced {len} bytes in slot {slot}"));
        };
        memory
            .file
            .read_exact_at(frame.resize(len as usize), u64::from(slot) * u64::from(memory.slot_bytes))
            .map_err(|e| format!("reading the tool's memory: {e}"))?;
        // A process that has ended does not need its slots.
        match self.socket.write(&[slot as u8]) {
            Ok(_) => Ok(Filled::Frame),
            Err(e) if matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => Ok(Filled::Frame),
            Err(e) => Err(format!("answering the tool: {e}")),
        }
    }

    /// The recorder's end of the process's life line.
    pub(super) fn take_life_line(&mut self) -> Option<OwnedFd> {
        self.life_line.take()
    }

    /// What later processes send their connections through; brought by the first one.
    pub(super) fn take_door(&mut self) -> Option<Door> {
        self.door.take()
    }
}

/// Where processes after the first come from.
pub(super) struct Door(OwnedFd);

/// Who stands at the door.
pub(super) enum Visitor {
    Process(Ring),
    /// Nobody now.
    Nobody,
    /// Nobody any more: no process has the other end.
    Closed,
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Door {
    pub(super) fn accept(&self) -> Result<Visitor, String> {
        Ok(match receive(&self.0)? {
            Received::Greeting { memory, fds: [life_line, socket] } => {
                let socket = UnixStream::from(socket);
                socket.set_nonblocking(true).map_err(|e| format!("setting up a connection: {e}"))?;
                let ring = Ring::new(socket);
                Visitor::Process(Ring { memory: Some(memory), life_line: Some(life_line), ..ring })
            }
            Received::Nothing => Visitor::Nobody,
            Received::Closed => Visitor::Closed,
        })
    }
}

enum Received {
    Greeting { memory: Memory, fds: [OwnedFd; 2] },
    Nothing,
    Closed,
}

/// A greeting: magic number, version, number and bytes of slots, with three descriptors. The first two are the slots'
/// memory and the life line's end. The third is the door's end of a first process, and the connection of another.
fn receive(socket: &impl AsFd) -> Result<Received, String> {
    let mut shape = [0; 16];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut shape)];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = match recvmsg(socket, &mut parts, &mut control, flags) {
        Ok(received) => received.bytes,
        Err(e) if e == rustix::io::Errno::AGAIN || e == rustix::io::Errno::INTR => return Ok(Received::Nothing),
        Err(e) if e == rustix::io::Errno::CONNRESET => return Ok(Received::Closed),
        Err(e) => return Err(format!("greeting of the tool: {e}")),
    };
    if received == 0 {
        return Ok(Received::Closed);
    }
    let passed = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next().zip(fds.next()).zip(fds.next()),
        _ => None,
    });
    let [magic, version, slots, slot_bytes] =
        [0, 4, 8, 12].map(|i| u32::from_le_bytes(shape[i..i + 4].try_into().expect("4 bytes")));
    match passed {
        Some(((memory, life_line), other)) if received == shape.len() && magic == MAGIC && version == VERSION => {
            let memory = Memory { file: File::from(memory), slots, slot_bytes };
            Ok(Received::Greeting { memory, fds: [life_line, other] })
        }
        _ => Err(format!("a program that is not the recorder's tool (version {VERSION}) connected")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_are_refused() {
        let (mut tool, socket) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut ring = Ring::new(socket);
        let mut frame = Frame::default();
        assert!(matches!(ring.next_frame(&mut frame), Ok(Filled::Nothing)));
        tool.write_all(&[1; 16]).unwrap();
        assert!(ring.next_frame(&mut frame).is_err_and(|e| e.contains("not the recorder's tool")));
    }
}
