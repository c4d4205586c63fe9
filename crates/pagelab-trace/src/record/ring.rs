//! The connection to one process's tool: a socket for numbers of filled and freed slots, and the shared memory with the
//! slots.

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
        Self { socket, memory: None, life_line: None, message: [0; 8], message_len: 0 }
    }

    /// Reads the next frame into `frame` and frees its slot. The error describes what the tool did wrong.
    pub(super) fn next_frame(&mut self, frame: &mut Frame) -> Result<Filled, String> {
        if self.memory.is_none() {
            match self.greeting()? {
                Some((memory, life_line)) => {
                    self.memory = Some(memory);
                    self.life_line = Some(life_line);
                }
                None => return Ok(Filled::Nothing),
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

    /// Receives the first message: magic number, version, number and size of slots, with the descriptors of the memory
    /// and of the life line.
    fn greeting(&self) -> Result<Option<(Memory, OwnedFd)>, String> {
        let mut shape = [0; 16];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut shape)];
        let received = match recvmsg(&self.socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => received.bytes,
            Err(e) if e == rustix::io::Errno::AGAIN || e == rustix::io::Errno::INTR => return Ok(None),
            Err(e) => return Err(format!("greeting of the tool: {e}")),
        };
        let passed = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next().zip(fds.next()),
            _ => None,
        });
        let [magic, version, slots, slot_bytes] =
            [0, 4, 8, 12].map(|i| u32::from_le_bytes(shape[i..i + 4].try_into().expect("4 bytes")));
        match passed {
            Some((memory, life_line)) if received == shape.len() && magic == MAGIC && version == VERSION => {
                Ok(Some((Memory { file: File::from(memory), slots, slot_bytes }, life_line)))
            }
            _ => Err(format!("a program that is not the recorder's tool (version {VERSION}) connected")),
        }
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
