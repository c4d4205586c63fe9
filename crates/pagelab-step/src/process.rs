//! A traced process: its stream to the recorder, its memory, its code.

use std::io;

use libc::pid_t;

use crate::calls::{Effects, Heap};
use crate::code::Code;
use crate::edges::Edges;
use crate::losses::Losses;
use crate::memory::{self, Memory, mappings};
use crate::stream::{FileId, Record, Start, Stream};

const MAP_PRIVATE: u32 = libc::MAP_PRIVATE as u32;
const MAP_SHARED: u32 = libc::MAP_SHARED as u32;
const MAP_ANONYMOUS: u32 = libc::MAP_ANONYMOUS as u32;
const MAP_GROWSDOWN: u32 = libc::MAP_GROWSDOWN as u32;
/// Where system calls of old programs are; no mapping that a program can change.
const VSYSCALL: &str = "[vsyscall]";
const STACK: &str = "[stack]";
const HEAP: &str = "[heap]";

pub struct Process {
    pub pid: pid_t,
    /// What tells it from all others of the recording.
    pub key: u64,
    pub stream: Stream,
    pub memory: Memory,
    pub code: Code,
    pub edges: Edges,
    heap: Heap,
    locks_new_mappings: bool,
    /// Its number among the children of the first process, and of processes that those have forked.
    pub child_number: Option<u32>,
}

impl Process {
    /// A process whose image begins.
    pub fn of_image(pid: pid_t, key: u64, mut stream: Stream, child_number: Option<u32>) -> io::Result<Self> {
        greet(&mut stream, Start::Image, key, pid);
        Ok(Self {
            pid,
            key,
            stream,
            memory: Memory::open(pid)?,
            code: Code::default(),
            edges: Edges::default(),
            heap: Heap::default(),
            locks_new_mappings: false,
            child_number,
        })
    }

    /// The child `pid` of this process. Its own stream begins after its parent has told of it.
    pub fn fork(&self, pid: pid_t, key: u64, mut stream: Stream, child_number: u32) -> io::Result<Self> {
        greet(&mut stream, Start::Fork, key, pid);
        Ok(Self {
            pid,
            key,
            stream,
            memory: Memory::open(pid)?,
            code: self.code.clone(),
            edges: Edges::default(),
            heap: self.heap,
            locks_new_mappings: false,
            child_number: Some(child_number),
        })
    }

    /// Tells the mappings with which an image begins. `stack_pointer` is that of its first thread.
    pub fn send_first_mappings(&mut self, stack_pointer: u64) {
        let start = memory::heap_start(self.pid).unwrap_or(0);
        self.heap = Heap { start, end: start };
        for mapping in mappings(self.pid) {
            let (address, bytes, protection) = (mapping.start, mapping.end - mapping.start, mapping.protection);
            let (mut flags, mut offset, id) =
                (if mapping.is_shared { MAP_SHARED } else { MAP_PRIVATE }, 0, FileId::default());
            match mapping.name.as_str() {
                VSYSCALL => continue,
                HEAP => {
                    self.heap = Heap { start: mapping.start.max(start), end: mapping.end };
                    continue;
                }
                STACK => flags |= MAP_ANONYMOUS | MAP_GROWSDOWN,
                _ if mapping.inode == 0 => flags |= MAP_ANONYMOUS,
                _ => offset = mapping.offset,
            }
            let path = &mapping.name;
            self.stream.send(&Record::Mmap { address, bytes, protection, flags, offset, id, path });
            if path == STACK {
                // The kernel has written arguments, environment and auxiliary vector there.
                let bytes = mapping.end.saturating_sub(stack_pointer);
                self.stream.send(&Record::KernelAccess { writes: true, address: stack_pointer, bytes });
            }
        }
        let Heap { start, end } = self.heap;
        self.stream.send(&Record::Brk { start, end });
    }

    /// What system calls of a thread act on.
    pub fn effects<'a>(&'a mut self, tid: pid_t, losses: &'a mut Losses) -> Effects<'a> {
        self.stream.switch_to(tid as u32);
        Effects {
            tid,
            pid: self.pid,
            memory: &self.memory,
            stream: &mut self.stream,
            edges: &mut self.edges,
            heap: &mut self.heap,
            locks_new_mappings: &mut self.locks_new_mappings,
            losses,
        }
    }
}

fn greet(stream: &mut Stream, start: Start, key: u64, pid: pid_t) {
    let own = memory::namespace_ids(pid).last().copied().unwrap_or(pid as u32);
    stream.send(&Record::Hello { start, key, pid: own, path: &memory::program_path(pid) });
    stream.flush();
}
