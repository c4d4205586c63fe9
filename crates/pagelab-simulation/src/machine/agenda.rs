//! The agenda: what happens at a known time. Answers of devices, alarms of kernel threads, arrivals of processes.
//!
//! CPUs have no entries, since their clocks move while others run. The scheduling of turns compares their clocks with
//! the first entry ([`crate::agenda::turns`]). An entry is carried out when the clock of no runnable CPU is before it.

use pagelab_base::cycles::Cycles;
use pagelab_base::step::BlockKey;
use std::collections::BTreeSet;

/// An entry of the agenda. Ties run in declaration order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AgendaEntry {
    /// A device has completed a request.
    Answer { request: u64, stalls: bool },
    /// A kernel thread wakes up at its own time.
    Alarm { thread: usize },
    /// A process of a stream arrives.
    Arrival { stream: usize },
}

/// The agenda, see the module's text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Agenda {
    entries: BTreeSet<(Cycles, AgendaEntry)>,
    /// Number of requests to devices so far.
    requests: u64,
}

impl Agenda {
    pub fn enter(&mut self, at: Cycles, entry: AgendaEntry) {
        self.entries.insert((at, entry));
    }

    /// Enters the answer to a request; returns the key to wait for it.
    pub fn enter_answer(&mut self, at: Cycles, stalls: bool) -> BlockKey {
        let request = self.requests;
        self.requests += 1;
        self.enter(at, AgendaEntry::Answer { request, stalls });
        BlockKey::Answer { request, stalls }
    }

    pub fn remove(&mut self, at: Cycles, entry: AgendaEntry) {
        self.entries.remove(&(at, entry));
    }

    /// Removes all arrivals.
    pub fn remove_arrivals(&mut self) {
        self.entries.retain(|(_, entry)| !matches!(entry, AgendaEntry::Arrival { .. }));
    }

    /// Removes all alarms.
    pub fn remove_alarms(&mut self) {
        self.entries.retain(|(_, entry)| !matches!(entry, AgendaEntry::Alarm { .. }));
    }

    /// Removes the first entry.
    pub fn pop(&mut self) -> Option<(Cycles, AgendaEntry)> {
        self.entries.pop_first()
    }

    /// Time of the first entry.
    pub fn next(&self) -> Option<Cycles> {
        self.entries.first().map(|&(at, _)| at)
    }

    /// Whether any entry can let a program continue: no program waits for the alarm of a kernel thread.
    pub fn helps(&self) -> bool {
        self.entries.iter().any(|(_, entry)| !matches!(entry, AgendaEntry::Alarm { .. }))
    }
}
