//! Lines in flight to the first-level cache, and the fill buffers that they occupy.

use super::entered::Times;
use crate::core_model::Data;
use crate::core_model::common::SmtThread;
use crate::core_model::in_flight::InFlight;
use crate::core_model::pool::Pool;
use pagelab_base::cycles::Cycles;

/// Lines in flight and fill buffers of a thread.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    /// Latency of a hit.
    pub l1_latency: Cycles,
    in_flight: InFlight,
    fills: Pool,
}

impl Lines {
    /// No lines in flight, for a core with this many buffers.
    pub fn new(fill_buffers: u32, l1_latency: Cycles) -> Self {
        Self { l1_latency, in_flight: InFlight::default(), fills: Pool::new(fill_buffers) }
    }

    /// Arrival of the last line that the thread has requested.
    #[inline(always)]
    pub fn last(&self) -> Cycles {
        self.in_flight.last()
    }

    /// When an access has its line. It could request the line at `begin` and does so at `ready`, after its translation.
    /// Also returns how much earlier it would have the line without that. The thread's time is `now`.
    #[inline(always)]
    pub fn get(
        &mut self,
        smt_thread: &mut SmtThread,
        (begin, ready): (Cycles, Cycles),
        mut data: Data,
        now: Cycles,
    ) -> Times {
        if data.latency > self.l1_latency {
            return self.miss(smt_thread, (begin, ready), data, now);
        }
        let hit = data.arrival(ready);
        if self.last() <= hit && !smt_thread.shares_core() {
            return Times { complete: hit, translation: ready - begin };
        }
        self.hit(smt_thread, data.line, hit, ready - begin)
    }

    /// [`Self::get`] of a line that the cache contains, possibly still in flight.
    #[inline(never)]
    fn hit(&self, smt_thread: &SmtThread, line: u64, hit: Cycles, translation: Cycles) -> Times {
        match self.own_arrival(line, hit) {
            Cycles::ZERO => hit_at(smt_thread.line_there(line, hit), hit, translation),
            own => hit_at(hit.max(own), hit, translation),
        }
    }

    /// [`Self::hit`] if no other thread competes.
    #[inline(always)]
    pub fn hit_alone(&self, line: u64, hit: Cycles, translation: Cycles) -> Times {
        hit_at(hit.max(self.own_arrival(line, hit)), hit, translation)
    }

    /// Arrival of a line that the thread requested and that may be in flight at `hit`; 0 if it is not.
    #[inline(always)]
    fn own_arrival(&self, line: u64, hit: Cycles) -> Cycles {
        if self.last() > hit { self.in_flight.arrival(line) } else { Cycles::ZERO }
    }

    /// [`Self::get`] of a line that the cache does not contain.
    #[inline(never)]
    fn miss(
        &mut self,
        smt_thread: &mut SmtThread,
        (begin, ready): (Cycles, Cycles),
        mut data: Data,
        now: Cycles,
    ) -> Times {
        let (line, latency) = (data.line, data.latency);
        let free = self.fills.first(ready);
        let from = smt_thread.take_fill(free.begin, latency, now);
        let arrival = data.arrival(from);
        smt_thread.note_line(line, from, arrival);
        let earlier = if begin < ready { self.fills.earlier(free, begin, latency) } else { Cycles::ZERO };
        self.fills.occupy(self.fills.from(free, from), arrival);
        self.in_flight.note(line, arrival);
        Times { complete: arrival, translation: earlier.min(ready - begin) }
    }
}

/// Times of an access that hits at `hit` and has its line at `complete`. Without translation it would hit that much
/// earlier, but a line in flight would not arrive earlier.
#[inline(always)]
fn hit_at(complete: Cycles, hit: Cycles, translation: Cycles) -> Times {
    let in_flight = if complete > hit { complete } else { Cycles::ZERO };
    Times { complete, translation: complete - in_flight.max(hit - translation) }
}
