//! What is to happen at a time that is known: answers of devices, alarms of kernel threads, arrivals of processes.
//!
//! CPUs are not entered, since their clocks move while others run: whose turn it is looks at them and at the first
//! entry ([`crate::agenda::turns`]). An entry takes place when no CPU that can go on is before it.

use pagelab_base::cycles::Cycles;
use pagelab_base::step::BlockKey;
use std::collections::BTreeSet;

/// What is to happen. Ties run in declaration order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AgendaEntry {
    /// A device has done what was asked of it.
    Answer { request: u64, stalls: bool },
    /// A kernel thread wakes up by itself.
    Alarm { thread: usize },
    /// A process of a stream arrives.
    Arrival { stream: usize },
}

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Agenda {
    entries: BTreeSet<(Cycles, AgendaEntry)>,
    /// Requests to devices so far.
    requests: u64,
}

impl Agenda {
    pub fn enter(&mut self, at: Cycles, entry: AgendaEntry) {
        self.entries.insert((at, entry));
    }

    /// Enters the answer to a request; returns what it is waited for by.
    pub fn enter_answer(&mut self, at: Cycles, stalls: bool) -> BlockKey {
        let request = self.requests;
        self.requests += 1;
        self.enter(at, AgendaEntry::Answer { request, stalls });
        BlockKey::Answer { request, stalls }
    }

    pub fn strike(&mut self, at: Cycles, entry: AgendaEntry) {
        self.entries.remove(&(at, entry));
    }

    /// No process arrives any more.
    pub fn strike_arrivals(&mut self) {
        self.entries.retain(|(_, entry)| !matches!(entry, AgendaEntry::Arrival { .. }));
    }

    /// Takes the first entry off.
    pub fn pop(&mut self) -> Option<(Cycles, AgendaEntry)> {
        self.entries.pop_first()
    }

    /// When the first entry takes place.
    pub fn next(&self) -> Option<Cycles> {
        self.entries.first().map(|&(at, _)| at)
    }

    /// Whether some entry helps programs on: nobody waits for the alarm of a kernel thread.
    pub fn helps(&self) -> bool {
        self.entries.iter().any(|(_, entry)| !matches!(entry, AgendaEntry::Alarm { .. }))
    }
}
