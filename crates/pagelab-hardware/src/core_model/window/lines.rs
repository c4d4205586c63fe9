//! Lines on their way to the first-level cache, and the fill buffers that they take.

use super::entered::Times;
use crate::core_model::Data;
use crate::core_model::common::SmtThread;
use crate::core_model::pool::Pool;
use crate::core_model::under_way::UnderWay;
use pagelab_base::cycles::Cycles;

/// See the module's text.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    /// Of a hit.
    pub l1_latency: Cycles,
    under_way: UnderWay,
    fills: Pool,
}

impl Lines {
    /// None, of a core with so many buffers.
    pub fn new(fill_buffers: u32, l1_latency: Cycles) -> Self {
        Self { l1_latency, under_way: UnderWay::default(), fills: Pool::new(fill_buffers) }
    }

    /// When all that the thread has asked for are there.
    #[inline(always)]
    pub fn last(&self) -> Cycles {
        self.under_way.last()
    }

    /// When an access has its line that could ask for it at `begin`, and does at `ready`, when it is translated; and
    /// how much earlier it had it without that. The thread has come to `now`.
    #[inline(always)]
    pub fn get(
        &mut self,
        beside: &mut SmtThread,
        (begin, ready): (Cycles, Cycles),
        mut data: Data,
        now: Cycles,
    ) -> Times {
        if data.latency > self.l1_latency {
            return self.miss(beside, (begin, ready), data, now);
        }
        let hit = data.arrival(ready);
        if self.last() <= hit && !beside.shares_core() {
            return Times { complete: hit, translation: ready - begin };
        }
        self.hit(beside, data.line, hit, ready - begin)
    }

    /// [`Self::get`] of a line that the cache has, perhaps still under way.
    #[inline(never)]
    fn hit(&self, beside: &SmtThread, line: u64, hit: Cycles, translation: Cycles) -> Times {
        match self.own(line, hit) {
            Cycles::ZERO => hit_at(beside.line_there(line, hit), hit, translation),
            own => hit_at(hit.max(own), hit, translation),
        }
    }

    /// The same where no other thread competes.
    #[inline(always)]
    pub fn hit_alone(&self, line: u64, hit: Cycles, translation: Cycles) -> Times {
        hit_at(hit.max(self.own(line, hit)), hit, translation)
    }

    /// When a line is there that the thread has asked for and that may still be under way at a time; 0 if it is not.
    #[inline(always)]
    fn own(&self, line: u64, hit: Cycles) -> Cycles {
        if self.last() > hit { self.under_way.arrival(line) } else { Cycles::ZERO }
    }

    /// [`Self::get`] of a line that the cache does not have.
    #[inline(never)]
    fn miss(&mut self, beside: &mut SmtThread, (begin, ready): (Cycles, Cycles), mut data: Data, now: Cycles) -> Times {
        let (line, latency) = (data.line, data.latency);
        let free = self.fills.first(ready);
        let from = beside.take_fill(free.begin, latency, now);
        let there = data.arrival(from);
        beside.note_line(line, from, there);
        let earlier = if begin < ready { self.fills.earlier(free, begin, latency) } else { Cycles::ZERO };
        self.fills.occupy(self.fills.from(free, from), there);
        self.under_way.note(line, there);
        Times { complete: there, translation: earlier.min(ready - begin) }
    }
}

/// An access that hits, and has its line when it is complete. Who did not translate hits so much earlier, but has a
/// line that is under way no earlier.
#[inline(always)]
fn hit_at(complete: Cycles, hit: Cycles, translation: Cycles) -> Times {
    let under_way = if complete > hit { complete } else { Cycles::ZERO };
    Times { complete, translation: complete - under_way.max(hit - translation) }
}
