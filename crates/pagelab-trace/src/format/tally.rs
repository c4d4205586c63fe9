//! Counts events, processes and threads.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{EventCounts, EventRow};
use crate::{Event, EventKind, ProcessIx, ThreadIx};

/// Counts the events of a trace, in order.
#[derive(Default)]
pub(super) struct EventTally {
    by_kind: BTreeMap<&'static str, u64>,
    processes: BTreeSet<ProcessIx>,
    threads: BTreeSet<ThreadIx>,
    /// Running threads and the process of each.
    alive: HashMap<ThreadIx, ProcessIx>,
    at_once: usize,
}

impl EventTally {
    pub(super) fn event(&mut self, event: &Event) {
        *self.by_kind.entry(EventRow::kind_of(&event.kind)).or_default() += 1;
        self.processes.insert(event.process);
        match event.kind {
            EventKind::Fork { child } | EventKind::Vfork { child } => _ = self.processes.insert(child),
            EventKind::ThreadStart { .. } => {
                self.threads.insert(event.thread);
                self.alive.insert(event.thread, event.process);
                self.at_once = self.at_once.max(self.alive.len());
            }
            EventKind::ThreadExit => _ = self.alive.remove(&event.thread),
            EventKind::Exit { .. } => self.alive.retain(|_, process| *process != event.process),
            _ => {}
        }
    }

    /// Counts a thread that made accesses.
    pub(super) fn thread(&mut self, thread: ThreadIx) {
        self.threads.insert(thread);
    }

    pub(super) fn counts(&self) -> EventCounts {
        EventCounts {
            by_kind: self.by_kind.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect(),
            processes: self.processes.len() as u32,
            threads: self.threads.len() as u32,
            threads_at_once: self.at_once.max(1) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_end_alone_or_with_their_process() {
        let mut tally = EventTally::default();
        let mut event = |process, thread, kind| {
            tally.event(&Event { position: 0, process: ProcessIx(process), thread: ThreadIx(thread), kind });
        };
        let start = EventKind::ThreadStart { os_tid: 1 };
        event(0, 0, EventKind::ProcessStart { parent: None });
        event(0, 0, start.clone());
        event(0, 1, start.clone());
        event(0, 1, EventKind::ThreadExit);
        event(0, 0, EventKind::Fork { child: ProcessIx(1) });
        event(1, 2, start.clone());
        event(1, 3, start.clone()); // 0, 2 and 3
        event(1, 2, EventKind::Exit { code: 0 });
        event(0, 4, start); // 0 and 4
        let counts = tally.counts();
        assert_eq!((counts.processes, counts.threads, counts.threads_at_once), (2, 5, 3));
        assert_eq!((counts.by_kind["thread_start"], counts.total()), (5, 9));
    }
}
