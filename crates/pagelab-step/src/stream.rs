//! The stream of a process to the recorder: what `capture/valgrind/README.md` describes under "Stream", as the Valgrind
//! tool sends it.

use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg, socketpair,
};

use crate::access::Kind;
use crate::dependencies::Origin;

/// First word of a stream, `pglb`.
pub const MAGIC: u32 = 0x626c_6770;
/// Version of the stream.
pub const VERSION: u32 = 11;
const CONTROL_BIT: u32 = 0x8000_0000;
const SLOTS: u32 = 16;
const SLOT_BYTES: usize = 256 << 10;
/// A frame with so many bytes is sent before the next record, which is shorter than the rest of the slot.
const FRAME_BYTES: usize = SLOT_BYTES - (32 << 10);
/// Longer texts are cut.
const TEXT_BYTES: usize = 4096;

/// How an image was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    Image = 0,
    Fork = 1,
}

/// A file that exists in memory only, by its device and inode; both are 0 for other files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileId {
    pub device: u64,
    pub inode: u64,
}

impl FileId {
    pub fn is_in_memory(self) -> bool {
        self != Self::default()
    }
}

/// A part of a file.
#[derive(Clone, Debug)]
pub struct FilePart<'a> {
    pub offset: u64,
    pub bytes: u64,
    pub id: FileId,
    pub path: &'a str,
}

/// A record other than executed instructions.
#[derive(Clone, Debug)]
pub enum Record<'a> {
    Hello { start: Start, key: u64, pid: u32, path: &'a str },
    Switch { tid: u32 },
    ThreadStart { tid: u32 },
    ThreadExit { tid: u32 },
    KernelAccess { writes: bool, address: u64, bytes: u64 },
    Mmap { address: u64, bytes: u64, protection: u32, flags: u32, offset: u64, id: FileId, path: &'a str },
    Munmap { address: u64, bytes: u64 },
    Mremap { old_address: u64, old_bytes: u64, address: u64, bytes: u64 },
    Mprotect { address: u64, bytes: u64, protection: u32 },
    Madvise { address: u64, bytes: u64, advice: u32 },
    Msync { address: u64, bytes: u64, flags: u32 },
    Brk { start: u64, end: u64 },
    Fork { pid: u32, key: u64, shares: bool },
    ExecBegin { path: &'a str },
    ExecNative { reason: &'a str },
    Exit { code: u32 },
    Waited { pid: u32, status: u32 },
    Truncate { old_bytes: u64, bytes: u64, id: FileId, path: &'a str },
    Wake { number: u32 },
    Woken { number: u32 },
    FileData(FilePart<'a>),
    FileHole(FilePart<'a>),
    RemoteAccess { pid: u32, writes: bool, address: u64, bytes: u64 },
}

/// The description of an instruction: a segment of the stream.
#[derive(Clone, Debug)]
pub struct Description<'a> {
    pub number: u32,
    pub address: u64,
    pub bytes: u32,
    /// Size, kind and origin of each access.
    pub accesses: &'a [(u16, Kind, Origin)],
    pub registers: &'a [(u8, Origin)],
    /// What a conditional branch depends on.
    pub branch: Option<Origin>,
    /// 1 for a call, 2 for a return.
    pub transfer: u8,
}

/// Makes streams; kept while processes are traced.
pub struct Door {
    end: Option<Rc<OwnedFd>>,
}

/// The stream of a process. When the recorder takes no more, records are dropped.
pub struct Stream {
    socket: Option<UnixStream>,
    memory: File,
    /// The recorder waits for its other end to be closed when the process has ended.
    _life_line: OwnedFd,
    frame: Vec<u8>,
    slot: u32,
    free: u32,
    /// The thread of the records that follow.
    thread: u32,
}

impl Door {
    pub fn new() -> Self {
        Self { end: None }
    }

    /// A stream to the recorder at `path`. The first one opens the door, and later ones pass through it.
    pub fn open(&mut self, path: &Path) -> io::Result<Stream> {
        let memory = File::from(memfd_create("pagelab", MemfdFlags::CLOEXEC)?);
        memory.set_len(u64::from(SLOTS) * SLOT_BYTES as u64)?;
        let (life_line, others_life_line) = pair(SocketType::STREAM)?;
        let socket = match &self.end {
            None => {
                let socket = UnixStream::connect(path)?;
                let (end, others_end) = pair(SocketType::SEQPACKET)?;
                greet(&socket, [memory.as_fd(), others_life_line.as_fd(), others_end.as_fd()])?;
                self.end = Some(Rc::new(end));
                socket
            }
            Some(door) => {
                let (socket, others_socket) = pair(SocketType::STREAM)?;
                greet(door, [memory.as_fd(), others_life_line.as_fd(), others_socket.as_fd()])?;
                UnixStream::from(socket)
            }
        };
        let free = (1 << SLOTS) - 2;
        let frame = Vec::with_capacity(SLOT_BYTES);
        Ok(Stream { socket: Some(socket), memory, _life_line: life_line, frame, slot: 0, free, thread: 0 })
    }
}

fn pair(kind: SocketType) -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?)
}

fn greet(through: impl AsFd, descriptors: [std::os::fd::BorrowedFd<'_>; 3]) -> io::Result<()> {
    let shape: Vec<u8> =
        [MAGIC, VERSION, SLOTS, SLOT_BYTES as u32].iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let sent = sendmsg(through, &[IoSlice::new(&shape)], &mut control, SendFlags::NOSIGNAL)?;
    if sent == shape.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

impl Stream {
    /// Whether the recorder takes records.
    pub fn is_open(&self) -> bool {
        self.socket.is_some()
    }

    /// Sends what is buffered.
    pub fn flush(&mut self) {
        if self.frame.is_empty() {
            return;
        }
        if self.socket.is_some() && self.hand_over().is_err() {
            self.socket = None;
        }
        self.frame.clear();
    }

    fn hand_over(&mut self) -> io::Result<()> {
        self.memory.write_all_at(&self.frame, u64::from(self.slot) * SLOT_BYTES as u64)?;
        let Some(socket) = &mut self.socket else { return Ok(()) };
        let message = [self.slot.to_le_bytes(), (self.frame.len() as u32).to_le_bytes()].concat();
        socket.write_all(&message)?;
        socket.set_nonblocking(true)?;
        let mut numbers = [0; SLOTS as usize];
        loop {
            match socket.read(&mut numbers) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => numbers[..n].iter().for_each(|slot| self.free |= 1 << (u32::from(*slot) % SLOTS)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && self.free != 0 => break,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => socket.set_nonblocking(false)?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            if self.free != 0 {
                break;
            }
        }
        socket.set_nonblocking(false)?;
        self.slot = self.free.trailing_zeros();
        self.free &= !(1 << self.slot);
        Ok(())
    }

    /// Records that follow are of this thread.
    pub fn switch_to(&mut self, tid: u32) {
        if self.thread != tid {
            self.send(&Record::Switch { tid });
        }
    }

    pub fn send(&mut self, record: &Record<'_>) {
        self.make_room();
        if let Record::Switch { tid } | Record::ThreadStart { tid, .. } = record {
            self.thread = *tid;
        }
        let begin = self.frame.len();
        self.frame.extend([0; 8]);
        let number = self.put(record);
        self.end(begin, number);
    }

    fn make_room(&mut self) {
        if self.frame.len() >= FRAME_BYTES {
            self.flush();
        }
    }

    fn end(&mut self, begin: usize, number: u32) {
        let bytes = (self.frame.len() - begin - 8) as u32;
        self.frame[begin..begin + 4].copy_from_slice(&(CONTROL_BIT | number).to_le_bytes());
        self.frame[begin + 4..begin + 8].copy_from_slice(&bytes.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.frame.extend(value.to_le_bytes());
    }

    fn u64s<const N: usize>(&mut self, values: [u64; N]) {
        values.iter().for_each(|value| self.frame.extend(value.to_le_bytes()));
    }

    fn text(&mut self, text: &str) {
        let bytes = &text.as_bytes()[..text.len().min(TEXT_BYTES)];
        self.u32(bytes.len() as u32);
        self.frame.extend(bytes);
    }

    fn part(&mut self, part: &FilePart<'_>) {
        self.u64s([part.offset, part.bytes, part.id.device, part.id.inode]);
        self.text(part.path);
    }

    /// Appends the payload of a record; returns its number.
    fn put(&mut self, record: &Record<'_>) -> u32 {
        match *record {
            Record::Hello { start, key, pid, path } => {
                self.u32(VERSION);
                self.u32(start as u32);
                self.u64s([key]);
                self.u32(pid);
                self.text(path);
                1
            }
            Record::Switch { tid } => self.words(4, [tid]),
            Record::ThreadStart { tid } => self.words(5, [tid, tid]),
            Record::ThreadExit { tid } => self.words(6, [tid]),
            Record::KernelAccess { writes, address, bytes } => {
                self.u32(writes.into());
                self.u64s([address, bytes]);
                7
            }
            Record::Mmap { .. }
            | Record::Munmap { .. }
            | Record::Mremap { .. }
            | Record::Mprotect { .. }
            | Record::Madvise { .. }
            | Record::Msync { .. }
            | Record::Brk { .. } => self.put_mapping(record),
            Record::Fork { pid, key, shares } => {
                self.u32(pid);
                self.u64s([key]);
                self.words(14, [shares.into()])
            }
            Record::ExecBegin { path } => {
                self.text(path);
                15
            }
            Record::ExecNative { reason } => {
                self.text(reason);
                20
            }
            Record::Exit { code } => self.words(17, [code]),
            Record::Waited { pid, status } => self.words(18, [pid, status]),
            Record::Truncate { old_bytes, bytes, id, path } => {
                self.part(&FilePart { offset: old_bytes, bytes, id, path });
                22
            }
            Record::Wake { number } => self.words(23, [number]),
            Record::Woken { number } => self.words(24, [number]),
            Record::FileData(ref part) => {
                self.part(part);
                27
            }
            Record::FileHole(ref part) => {
                self.part(part);
                28
            }
            Record::RemoteAccess { pid, writes, address, bytes } => {
                self.words(29, [pid, writes.into()]);
                self.u64s([address, bytes]);
                29
            }
        }
    }

    fn words<const N: usize>(&mut self, number: u32, values: [u32; N]) -> u32 {
        values.iter().for_each(|value| self.u32(*value));
        number
    }

    fn put_mapping(&mut self, record: &Record<'_>) -> u32 {
        match *record {
            Record::Mmap { address, bytes, protection, flags, offset, id, path } => {
                self.u64s([address, bytes]);
                self.words(8, [protection, flags]);
                self.u64s([offset, id.device, id.inode]);
                self.text(path);
                8
            }
            Record::Munmap { address, bytes } => {
                self.u64s([address, bytes]);
                9
            }
            Record::Mremap { old_address, old_bytes, address, bytes } => {
                self.u64s([old_address, old_bytes, address, bytes]);
                10
            }
            Record::Mprotect { address, bytes, protection } => {
                self.u64s([address, bytes]);
                self.words(11, [protection])
            }
            Record::Madvise { address, bytes, advice } => {
                self.u64s([address, bytes]);
                self.words(12, [advice])
            }
            Record::Msync { address, bytes, flags } => {
                self.u64s([address, bytes]);
                self.words(21, [flags])
            }
            Record::Brk { start, end } => {
                self.u64s([start, end]);
                13
            }
            _ => unreachable!("only records of mappings come here"),
        }
    }

    /// Describes an instruction.
    pub fn describe(&mut self, description: &Description<'_>) {
        self.make_room();
        let begin = self.frame.len();
        self.frame.extend([0; 8]);
        let count = description.accesses.len();
        self.u32(description.number);
        self.u32(u32::from(count == 0));
        self.frame.extend(1_u16.to_le_bytes());
        self.frame.extend((count as u16).to_le_bytes());
        self.u64s([description.address]);
        self.u32(description.bytes);
        for (i, (bytes, kind, origin)) in description.accesses.iter().enumerate() {
            self.u64s([description.address]);
            self.u32(u32::from(i == 0));
            self.frame.extend(bytes.to_le_bytes());
            self.frame.extend([*kind as u8, 0]);
            self.origin(origin);
        }
        self.frame.push(description.registers.len() as u8);
        for (register, origin) in description.registers {
            self.frame.push(*register);
            self.origin(origin);
        }
        self.frame.push(description.branch.is_some().into());
        if let Some(origin) = &description.branch {
            self.u64s([description.address + u64::from(description.bytes)]);
            self.origin(origin);
        }
        self.frame.push(description.transfer);
        self.end(begin, 2);
    }

    fn origin(&mut self, origin: &Origin) {
        self.frame.extend(origin.back.to_le_bytes());
        self.frame.push(origin.at_once.into());
        self.u64s([origin.registers]);
    }

    /// An instruction was executed, with accesses at these addresses.
    pub fn execute(&mut self, number: u32, addresses: impl Iterator<Item = u64>) {
        self.make_room();
        self.u32(number);
        addresses.for_each(|address| self.frame.extend(&address.to_le_bytes()[..6]));
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.flush();
    }
}
