//! Requests in flight, by number: lines on their way to the first-level cache, translations on their way to its TLB.
//!
//! Caches and TLBs contain an element from the request on; this table stores when it arrives. A new element replaces
//! the oldest of its set, which has already arrived in all but rare cases.

use pagelab_base::cycles::Cycles;

const SETS: usize = 128;

/// Arrival times of requests in flight. In each set the most recent comes first.
#[derive(Clone, Debug)]
pub(super) struct InFlight {
    sets: [[(u64, Cycles); 2]; SETS],
    /// Arrival of the last one.
    last: Cycles,
}

impl Default for InFlight {
    fn default() -> Self {
        Self { sets: [[(u64::MAX, Cycles::ZERO); 2]; SETS], last: Cycles::ZERO }
    }
}

fn set_of(number: u64) -> usize {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SETS.ilog2())) as usize
}

impl InFlight {
    /// Arrival of the last of all recorded requests.
    #[inline]
    pub fn last(&self) -> Cycles {
        self.last
    }

    /// Records an arrival.
    #[inline]
    pub fn note(&mut self, number: u64, arrival: Cycles) {
        let set = &mut self.sets[set_of(number)];
        *set = [(number, arrival), set[0]];
        self.last = self.last.max(arrival);
    }

    /// Arrival of a request; 0 if none is known to be in flight.
    #[inline]
    pub fn arrival(&self, number: u64) -> Cycles {
        let set = &self.sets[set_of(number)];
        set.iter().find(|line| line.0 == number).map_or(Cycles::ZERO, |line| line.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_in_flight_are_known_until_they_arrive() {
        let mut lines = InFlight::default();
        // At most as many as a core's buffers, with different strides of programs.
        for step in [1, 64, 4096, 12345] {
            let first = step << 30;
            (0..64).for_each(|n| lines.note(first + n * step, Cycles(step + n)));
            let known = (0..64).filter(|n| lines.arrival(first + n * step) == Cycles(step + n)).count();
            assert!(known > 55, "{step}: {known}");
            assert_eq!(lines.last(), Cycles(step + 63));
        }
        assert_eq!(lines.arrival(7), Cycles::ZERO);
        lines.note(7, Cycles(90_000));
        lines.note(7, Cycles(90_001));
        assert_eq!((lines.arrival(7), lines.last()), (Cycles(90_001), Cycles(90_001)));
    }
}
