//! The threads of a process: which one runs, their starts and ends.

use super::super::flow::Flow;
use super::super::output::Output;
use super::{DecodeError, Process, Turn};
use crate::{EventKind, ThreadIx, TraceError};

#[derive(Clone, Copy, Debug)]
pub(super) struct Thread {
    pub(super) ix: ThreadIx,
    /// Instructions retired since the thread's last access.
    pub(super) pending: u64,
    pub(super) flow: Flow,
    pub(super) ended: bool,
}

impl Thread {
    pub(super) fn new(ix: ThreadIx) -> Self {
        Self { ix, pending: 0, flow: Flow::default(), ended: false }
    }
}

/// Numbers the threads of a recording.
#[derive(Debug, Default)]
pub(in crate::record) struct ThreadNumbers(u32);

impl ThreadNumbers {
    pub(in crate::record) fn next(&mut self) -> ThreadIx {
        let ix = ThreadIx(self.0);
        self.0 += 1;
        ix
    }

    pub(in crate::record) fn count(&self) -> u32 {
        self.0
    }
}

impl Process {
    pub(super) fn end_threads(&mut self, except: Option<ThreadIx>, output: &mut Output<'_>) -> Result<(), TraceError> {
        self.store_current();
        let mut alive: Vec<ThreadIx> = self.threads.values().filter(|t| !t.ended).map(|t| t.ix).collect();
        alive.sort();
        for ix in alive.into_iter().filter(|ix| Some(*ix) != except) {
            output.event(self.ix, ix, EventKind::ThreadExit)?;
        }
        self.threads.values_mut().for_each(|thread| thread.ended = true);
        Ok(())
    }

    pub(super) fn store_current(&mut self) {
        if let Some(thread) = self.threads.get_mut(&self.current_tid) {
            *thread = self.current;
        }
    }

    pub(super) fn switch_to(&mut self, tid: u32, numbers: &mut ThreadNumbers) {
        if tid == self.current_tid {
            return;
        }
        self.store_current();
        let new = || Thread::new(numbers.next());
        self.current = *self.threads.entry(tid).or_insert_with(new);
        self.current_tid = tid;
        self.stacks.switch_to(tid);
    }

    pub(super) fn start_thread(
        &mut self,
        tid: u32,
        os_tid: u32,
        numbers: &mut ThreadNumbers,
        output: &mut Output<'_>,
    ) -> Result<Option<Turn>, DecodeError> {
        let is_main = self.threads.is_empty();
        let ix = if is_main { self.current.ix } else { numbers.next() };
        self.store_current();
        self.current = Thread::new(ix);
        self.current_tid = tid;
        self.stacks.switch_to(tid);
        self.write_context(output);
        self.threads.insert(tid, self.current);
        if !(is_main && std::mem::replace(&mut self.main_started, true)) {
            output.event(self.ix, ix, EventKind::ThreadStart { os_tid })?;
        }
        for access in std::mem::take(&mut self.early_accesses) {
            self.remote_access(access, output)?;
        }
        Ok(None)
    }

    pub(super) fn end_thread(&mut self, tid: u32, output: &mut Output<'_>) -> Result<Option<Turn>, DecodeError> {
        self.store_current();
        if let Some(thread) = self.threads.get_mut(&tid).filter(|thread| !thread.ended) {
            thread.ended = true;
            self.stacks.end_thread(tid);
            let ix = thread.ix;
            if tid == self.current_tid {
                self.current.ended = true;
            }
            output.event(self.ix, ix, EventKind::ThreadExit)?;
        }
        Ok(None)
    }
}
