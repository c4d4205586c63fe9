//! Call stacks: tracked by the executed calls and returns, and written as a tree of contexts.
//!
//! A call stores its return address at the stack pointer, and the return loads it from there, so both identify the
//! *slot* of the frame. Nothing else is needed: no frame pointers, no debug information. Code that leaves frames
//! without returning (`longjmp`, exceptions) is noticed at the next call or return, whose slot lies above them. Code
//! that switches to another stack (coroutines, signal handlers with a stack of their own) has a slot far away. The new
//! stack counts as called from where the old one was left, and the old one is found again later.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rustc_hash::FxHashMap;

use super::functions::Mapped;
use super::perf_maps::{Generating, generated_code};
use super::protocol::Transfer;
use crate::calls::{CallStacks, Context};
use crate::format::{CallRow, CallsWriter, FileNames};
use crate::{ThreadIx, TraceError};

/// Maximum number of frames of a stack: deeper calls count as the last frame's.
const MOST_FRAMES: usize = 500;
/// Maximum number of contexts of a trace: later ones count as their callers'. Each takes about 70 bytes: 40 as a row,
/// and the rest in the map.
const MOST_CONTEXTS: usize = 1 << 21;
/// A slot this far below the last one belongs to another stack: most stacks cannot grow larger.
const BELOW_BYTES: u64 = 8 << 20;
/// A slot this far above the first one belongs to another stack. A thread's first function has its own frame there.
const ABOVE_BYTES: u64 = 64 << 10;
/// Maximum number of stacks of a thread; the oldest is dropped.
const MOST_STACKS: usize = 1000;

/// A call that has not returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame {
    slot: u64,
    context: u32,
}

/// The frames of a stack, the outermost first.
#[derive(Clone, Debug, Default)]
struct Stack {
    /// The context of code outside of all frames.
    base: u32,
    frames: Vec<Frame>,
    /// The slot of the last call or return; none for a stack that has had neither.
    last: Option<u64>,
}

impl Stack {
    fn context(&self) -> u32 {
        self.frames.last().map_or(self.base, |frame| frame.context)
    }

    /// Distance of a slot from the last frame, if it can belong to this stack.
    fn distance(&self, slot: u64) -> Option<u64> {
        let last = self.last?;
        let first = self.frames.first().map_or(last, |frame| frame.slot);
        (slot <= first.saturating_add(ABOVE_BYTES) && slot >= last.saturating_sub(BELOW_BYTES))
            .then_some(slot.abs_diff(last))
    }
}

/// The stacks of a thread.
#[derive(Clone, Debug, Default)]
pub(super) struct ThreadStacks {
    current: Stack,
    /// The other stacks, the least recently used first.
    others: Vec<Stack>,
    /// The context of the call that returned last.
    returned: u32,
}

impl ThreadStacks {
    /// Stacks of a thread that begins in a context.
    fn new(base: u32) -> Self {
        Self { current: Stack { base, frames: Vec::new(), last: None }, others: Vec::new(), returned: base }
    }

    /// Makes the stack of a slot the current one.
    fn go_to(&mut self, slot: u64) {
        if self.current.last.is_none() || self.current.distance(slot).is_some() {
            self.current.last = Some(slot);
            return;
        }
        let near = self.others.iter().enumerate().filter_map(|(at, stack)| Some((stack.distance(slot)?, at))).min();
        let next = match near {
            Some((_, at)) => self.others.remove(at),
            None => Stack { base: self.current.context(), frames: Vec::new(), last: None },
        };
        self.others.push(std::mem::replace(&mut self.current, next));
        self.current.last = Some(slot);
        if self.others.len() > MOST_STACKS {
            self.others.remove(0);
        }
    }

    /// Removes the frames below a slot, which have been left.
    fn drop_frames_below(&mut self, slot: u64) {
        while self.current.frames.pop_if(|frame| frame.slot < slot).is_some() {}
    }
}

/// A process's stacks, by Valgrind's thread number.
#[derive(Debug, Default)]
pub(super) struct ProcessStacks {
    process: u32,
    /// The context of code without a caller: one per image.
    root: u32,
    threads: HashMap<u32, ThreadStacks>,
    tid: u32,
    /// The stacks of thread `tid`.
    current: ThreadStacks,
    /// Mapped code of files.
    code: Vec<MappedCode>,
}

#[derive(Clone, Debug)]
struct MappedCode {
    file: Arc<str>,
    addr: u64,
    len: u64,
    file_offset: u64,
}

impl ProcessStacks {
    /// The stacks of a forked child: a copy of those of the thread that forked.
    pub(super) fn fork(&self, process: u32) -> Self {
        let (root, tid, current, code) = (self.root, self.tid, self.current.clone(), self.code.clone());
        Self { process, root, threads: HashMap::new(), tid, current, code }
    }

    /// Switches to the thread of the following records.
    pub(super) fn switch_to(&mut self, tid: u32) {
        if tid == self.tid {
            return;
        }
        let next = self.threads.remove(&tid).unwrap_or_else(|| ThreadStacks::new(self.root));
        self.threads.insert(self.tid, std::mem::replace(&mut self.current, next));
        self.tid = tid;
    }

    pub(super) fn end_thread(&mut self, tid: u32) {
        if tid == self.tid {
            self.current = ThreadStacks::new(self.root);
        } else {
            self.threads.remove(&tid);
        }
    }

    /// Records that code of a file was mapped.
    pub(super) fn map(&mut self, mapped: Mapped<'_>) {
        let Mapped { file, addr, len, file_offset } = mapped;
        self.code.push(MappedCode { file: Arc::clone(file), addr, len, file_offset });
    }

    /// Records that a range was unmapped.
    pub(super) fn unmap(&mut self, addr: u64, len: u64) {
        self.code.retain(|code| code.addr.wrapping_sub(addr) >= len);
    }

    /// The current thread's context.
    pub(super) fn context(&self) -> u32 {
        self.current.current.context()
    }

    /// The context of the call from which the current thread has just returned.
    pub(super) fn returned(&self) -> u32 {
        self.current.returned
    }
}

/// The contexts of a recording, and the writer for each thread's current context.
#[derive(Debug)]
pub(super) struct Calls {
    contexts: Vec<Context>,
    /// Context by calling context and return address.
    known: FxHashMap<(u32, u64), u32>,
    writer: CallsWriter,
    /// When the recording began.
    started: SystemTime,
    /// Processes that may have written names of generated code.
    generating: Vec<Generating>,
    cut_frames: bool,
}

impl Calls {
    /// For a trace in this folder, of a program that was started after `started`.
    pub(super) fn new(folder: &Path, started: SystemTime) -> Self {
        let root = Context { parent: None, process: 0, file: None, offset: 0 };
        let (known, writer) = (FxHashMap::default(), CallsWriter::new(folder));
        Self { contexts: vec![root], known, writer, started, generating: Vec::new(), cut_frames: false }
    }

    /// Resets the stacks for a new image of process number `process`, whose process id is `pid`.
    pub(super) fn image(&mut self, process: u32, pid: u32, stacks: &mut ProcessStacks) {
        self.generating.push(Generating::new(process, pid, self.started));
        // Return addresses of one image have no meaning in another.
        let root = self.contexts.len() as u32;
        let root = if process == 0 && root == 1 {
            0
        } else {
            self.contexts.push(Context { parent: Some(0), process, file: None, offset: 0 });
            root
        };
        *stacks = ProcessStacks { process, root, current: ThreadStacks::new(root), ..ProcessStacks::default() };
    }

    /// Records a call or return of the current thread by an access to `slot`; the thread's next access is number
    /// `position` of the trace. `behind` is the address after the call instruction.
    #[inline]
    pub(super) fn transfer(
        &mut self,
        stacks: &mut ProcessStacks,
        transfer: Transfer,
        (slot, behind): (u64, u64),
        thread: ThreadIx,
        position: u64,
    ) {
        stacks.current.go_to(slot);
        stacks.current.drop_frames_below(slot);
        // A call at the same slot: the frame there was left by a jump.
        let frame = stacks.current.current.frames.pop_if(|frame| frame.slot == slot);
        match transfer {
            Transfer::Call if stacks.current.current.frames.len() < MOST_FRAMES => {
                let context = self.context(stacks, behind);
                stacks.current.current.frames.push(Frame { slot, context });
            }
            Transfer::Call => self.cut_frames = true,
            Transfer::Return => {
                if let Some(frame) = frame {
                    stacks.current.returned = frame.context;
                }
            }
        }
        self.writer.push(CallRow { position, thread: thread.0, context: stacks.context() });
    }

    /// Writes a row for a thread that begins or resumes, with its context.
    pub(super) fn write_resumption(&mut self, stacks: &ProcessStacks, thread: ThreadIx, position: u64) {
        self.writer.push(CallRow { position, thread: thread.0, context: stacks.context() });
    }

    /// The context of a call made by the current thread.
    #[inline]
    fn context(&mut self, stacks: &ProcessStacks, behind: u64) -> u32 {
        let parent = stacks.context();
        match self.known.get(&(parent, behind)) {
            Some(&known) => known,
            None => self.new_context(stacks, parent, behind),
        }
    }

    #[cold]
    fn new_context(&mut self, stacks: &ProcessStacks, parent: u32, behind: u64) -> u32 {
        if self.contexts.len() >= MOST_CONTEXTS {
            return parent;
        }
        let call = behind.wrapping_sub(1);
        // If mappings overlap, the last one is valid.
        let holder = stacks.code.iter().rev().find(|code| call.wrapping_sub(code.addr) < code.len);
        let (file, offset) = match holder {
            Some(code) => (Some(Arc::clone(&code.file)), call - code.addr + code.file_offset),
            None => (None, call),
        };
        let number = self.contexts.len() as u32;
        self.contexts.push(Context { parent: Some(parent), process: stacks.process, file, offset });
        self.known.insert((parent, behind), number);
        number
    }

    /// Estimated size of the tables so far.
    pub(super) fn bytes(&self) -> u64 {
        self.writer.estimated_bytes(self.contexts.len())
    }

    /// Writes full parts.
    #[inline]
    pub(super) fn write_full_parts(&mut self) -> Result<(), TraceError> {
        self.writer.write_full_parts()
    }

    /// Writes the rest; with `names`, files get numbers instead of names. Returns notes on what is missing, one
    /// sentence each.
    pub(super) fn finish(self, names: Option<&mut FileNames>) -> Result<Vec<String>, TraceError> {
        let (generated, mut notes) = generated_code(&self.generating);
        if self.cut_frames {
            notes.push(format!(
                "call stacks of more than {MOST_FRAMES} frames were cut: deeper calls count as the last one's"
            ));
        }
        if self.contexts.len() >= MOST_CONTEXTS {
            notes.push(format!("only the first {MOST_CONTEXTS} different call stacks are distinguished; later ones count as their callers'"));
        }
        let mut stacks = CallStacks { contexts: self.contexts, generated };
        if let Some(names) = names {
            names.replace_in(&mut stacks);
        }
        self.writer.finish(&stacks)?;
        Ok(notes)
    }
}

#[cfg(test)]
#[path = "calls_tests.rs"]
mod tests;
