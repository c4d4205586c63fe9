//! The address space of each access, and the effect of events on the spaces.

use pagelab_trace::{Event, EventKind, ProcessIx, ThreadIx};

/// Address spaces by process, and processes by thread.
#[derive(Default)]
pub(crate) struct Spaces {
    process_of: Vec<ProcessIx>,
    space_of: Vec<Option<usize>>,
    /// By space.
    spaces: Vec<Space>,
}

#[derive(Clone, Copy, Default)]
struct Space {
    processes: u32,
    heap_end: u64,
}

/// What an event removes from TLBs and caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DroppedPages {
    /// The bytes from `first` to `last`.
    Range {
        space: usize,
        first: u64,
        last: u64,
    },
    All {
        space: usize,
    },
}

/// `MADV_DONTNEED` and `MADV_REMOVE` of Linux: the pages are dropped at once.
const DROPPING_ADVICE: [u32; 2] = [4, 9];

impl Spaces {
    pub fn for_thread(&mut self, thread: ThreadIx) -> usize {
        let process = self.process_of.get(thread.0 as usize).copied().unwrap_or(ProcessIx(0));
        self.of_process(process)
    }

    /// Handles an event; calls `left` with the pages that it removes from TLBs and caches.
    ///
    /// These are pages that the program gives up: unmapped, moved, overmapped or dropped ones, the end of its heap, and
    /// a whole space when its last process ends or execs. Permission changes and copies on write remove nothing: which
    /// flushes they need is up to the kernel, which `pagelab run` simulates.
    pub fn event<E>(&mut self, event: &Event, mut left: impl FnMut(DroppedPages) -> Result<(), E>) -> Result<(), E> {
        let thread = event.thread.0 as usize;
        if self.process_of.len() <= thread {
            self.process_of.resize(thread + 1, ProcessIx(0));
        }
        self.process_of[thread] = event.process;
        let space = self.of_process(event.process);
        let mut range = |first: u64, len: u64| match len {
            0 => Ok(()),
            _ => left(DroppedPages::Range { space, first, last: first.saturating_add(len - 1).min(u64::MAX - 1) }),
        };
        match &event.kind {
            EventKind::Mmap { addr, len, .. } | EventKind::Munmap { addr, len } => range(*addr, *len)?,
            &EventKind::Mremap { old_addr, old_len, new_addr, new_len } if old_addr == new_addr => {
                range(old_addr.saturating_add(new_len), old_len.saturating_sub(new_len))?;
            }
            &EventKind::Mremap { old_addr, old_len, new_addr, new_len } => {
                range(old_addr, old_len)?;
                range(new_addr, new_len)?;
            }
            EventKind::Madvise { addr, len, advice } if DROPPING_ADVICE.contains(advice) => range(*addr, *len)?,
            &EventKind::Brk { end, .. } => {
                let old = std::mem::replace(&mut self.spaces[space].heap_end, end);
                range(end.next_multiple_of(4096), old.saturating_sub(end.next_multiple_of(4096)))?;
            }
            EventKind::Fork { child } => {
                let of_child = self.of_process(*child);
                self.spaces[of_child].heap_end = self.spaces[space].heap_end;
            }
            EventKind::Vfork { child } => {
                self.place(*child, space);
            }
            EventKind::Exec { .. } | EventKind::Exit { .. } => {
                self.space_of[event.process.0 as usize] = None;
                self.spaces[space].processes -= 1;
                if self.spaces[space].processes == 0 {
                    left(DroppedPages::All { space })?;
                }
            }
            EventKind::ProcessStart { .. }
            | EventKind::Mprotect { .. }
            | EventKind::Madvise { .. }
            | EventKind::Allocated { .. }
            | EventKind::Freed { .. }
            | EventKind::Msync { .. }
            | EventKind::Truncate { .. }
            | EventKind::FileData { .. }
            | EventKind::FileHole { .. }
            | EventKind::Relocate { .. }
            | EventKind::EngineCall { .. }
            | EventKind::Fault { .. }
            | EventKind::ThreadStart { .. }
            | EventKind::ThreadExit
            | EventKind::Wake { .. }
            | EventKind::Woken { .. }
            | EventKind::Skip
            | EventKind::Resume { .. }
            | EventKind::Measure => {}
        }
        Ok(())
    }

    /// The space of a process, which is new if it has none.
    fn of_process(&mut self, process: ProcessIx) -> usize {
        match self.space_of.get(process.0 as usize) {
            Some(Some(space)) => *space,
            _ => {
                self.spaces.push(Space::default());
                self.place(process, self.spaces.len() - 1);
                self.spaces.len() - 1
            }
        }
    }

    fn place(&mut self, process: ProcessIx, space: usize) {
        let process = process.0 as usize;
        if self.space_of.len() <= process {
            self.space_of.resize(process + 1, None);
        }
        self.space_of[process] = Some(space);
        self.spaces[space].processes += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ProcessIx = ProcessIx(1);

    fn left(spaces: &mut Spaces, process: u32, kind: EventKind) -> Vec<DroppedPages> {
        let mut all = Vec::new();
        let event = Event { position: 0, process: ProcessIx(process), thread: ThreadIx(process), kind };
        let done: Result<(), ()> = spaces.event(&event, |left| {
            all.push(left);
            Ok(())
        });
        done.unwrap();
        all
    }

    fn range(space: usize, first: u64, last: u64) -> DroppedPages {
        DroppedPages::Range { space, first, last }
    }

    #[test]
    fn discarded_pages_leave_the_stack() {
        let mut spaces = Spaces::default();
        let mut handle = |kind| left(&mut spaces, 0, kind);
        assert_eq!(handle(EventKind::Munmap { addr: 0x1000, len: 0x2000 }), [range(0, 0x1000, 0x2fff)]);
        assert_eq!(handle(EventKind::Madvise { addr: 0x1000, len: 0x1000, advice: 4 }), [range(0, 0x1000, 0x1fff)]);
        assert_eq!(handle(EventKind::Madvise { addr: 0x1000, len: 0x1000, advice: 1 }), []);
        let moved = EventKind::Mremap { old_addr: 0x1000, old_len: 0x1000, new_addr: 0x9000, new_len: 0x2000 };
        assert_eq!(handle(moved), [range(0, 0x1000, 0x1fff), range(0, 0x9000, 0xafff)]);
        let cut = EventKind::Mremap { old_addr: 0x1000, old_len: 0x3000, new_addr: 0x1000, new_len: 0x1000 };
        assert_eq!(handle(cut), [range(0, 0x2000, 0x3fff)]);
        let grown = EventKind::Mremap { old_addr: 0x1000, old_len: 0x1000, new_addr: 0x1000, new_len: 0x3000 };
        assert_eq!(handle(grown), []);
        assert_eq!(handle(EventKind::Brk { start: 0x5000, end: 0x8000 }), []);
        assert_eq!(handle(EventKind::Brk { start: 0x5000, end: 0x6001 }), [range(0, 0x7000, 0x7fff)]);
        assert_eq!(handle(EventKind::Brk { start: 0x5000, end: 0x9000 }), []);
        assert_eq!(handle(EventKind::Munmap { addr: 0x1000, len: u64::MAX }), [range(0, 0x1000, u64::MAX - 1)]);
    }

    #[test]
    fn spaces_end_with_their_last_process() {
        let mut spaces = Spaces::default();
        left(&mut spaces, 0, EventKind::ProcessStart { parent: None });
        assert_eq!(left(&mut spaces, 0, EventKind::Vfork { child: ONE }), []);
        assert_eq!(left(&mut spaces, 1, EventKind::Munmap { addr: 0, len: 1 }), [range(0, 0, 0)]);
        // The child leaves the space that it shared.
        assert_eq!(left(&mut spaces, 1, EventKind::Exec { path: "a".into() }), []);
        assert_eq!(left(&mut spaces, 1, EventKind::Munmap { addr: 0, len: 1 }), [range(1, 0, 0)]);
        assert_eq!(left(&mut spaces, 1, EventKind::Exit { code: 0 }), [DroppedPages::All { space: 1 }]);
        assert_eq!(spaces.for_thread(ThreadIx(0)), 0);
        assert_eq!(left(&mut spaces, 0, EventKind::Exit { code: 0 }), [DroppedPages::All { space: 0 }]);
    }

    #[test]
    fn forked_children_have_spaces_and_heaps_of_their_own() {
        let mut spaces = Spaces::default();
        left(&mut spaces, 0, EventKind::Brk { start: 0, end: 0x4000 });
        left(&mut spaces, 0, EventKind::Fork { child: ONE });
        assert_eq!(left(&mut spaces, 1, EventKind::Brk { start: 0, end: 0x1000 }), [range(1, 0x1000, 0x3fff)]);
        assert_eq!(left(&mut spaces, 0, EventKind::Brk { start: 0, end: 0x3000 }), [range(0, 0x3000, 0x3fff)]);
    }
}
