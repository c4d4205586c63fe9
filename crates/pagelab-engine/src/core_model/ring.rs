//! A queue in a ring: what is in a core, in its order.

/// A queue whose places are a power of two. It takes more where it is full, which sizes that are right avoid.
#[derive(Clone, Debug)]
pub struct Ring<T> {
    places: Vec<T>,
    /// Entries put in and taken out since the start.
    put: usize,
    taken: usize,
}

impl<T: Copy + Default> Ring<T> {
    /// An empty queue with room for so many entries.
    pub fn new(room: usize) -> Self {
        Self { places: vec![T::default(); room.next_power_of_two()], put: 0, taken: 0 }
    }

    /// Entries that it holds.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.put - self.taken
    }

    /// The oldest entry.
    #[inline(always)]
    pub fn front(&self) -> Option<T> {
        (self.put > self.taken).then(|| self.places[self.taken & (self.places.len() - 1)])
    }

    /// The youngest entry.
    #[inline(always)]
    pub fn back(&self) -> Option<T> {
        (self.put > self.taken).then(|| self.places[(self.put - 1) & (self.places.len() - 1)])
    }

    /// Takes the oldest entry out.
    #[inline(always)]
    pub fn pop_front(&mut self) -> Option<T> {
        let front = self.front();
        self.taken += usize::from(front.is_some());
        front
    }

    /// Takes the youngest entry out, if there is one.
    #[inline(always)]
    pub fn pop_back(&mut self) {
        self.put -= usize::from(self.put > self.taken);
    }

    /// Puts an entry in behind all others.
    #[inline(always)]
    pub fn push_back(&mut self, entry: T) {
        self.push_back_if(true, entry);
    }

    /// The same or nothing, without a branch of the host's on which.
    #[inline(always)]
    pub fn push_back_if(&mut self, wanted: bool, entry: T) {
        if self.len() == self.places.len() {
            self.grow();
        }
        let mask = self.places.len() - 1;
        self.places[self.put & mask] = entry;
        self.put += usize::from(wanted);
    }

    #[cold]
    fn grow(&mut self) {
        let held: Vec<T> = (self.taken..self.put).map(|n| self.places[n & (self.places.len() - 1)]).collect();
        (self.taken, self.put) = (0, held.len());
        self.places.clear();
        self.places.extend(&held);
        self.places.resize(held.len() * 2, T::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_out_in_their_order_however_many_there_are() {
        let mut ring = Ring::new(3);
        let mut expected = std::collections::VecDeque::new();
        for n in 0..100_u32 {
            ring.push_back(n);
            expected.push_back(n);
            // Beyond the room that it was made with from the fifth entry on.
            if n % 3 == 0 {
                assert_eq!(ring.pop_front(), expected.pop_front());
            }
            ring.push_back_if(n % 5 == 0, 1000 + n);
            expected.extend((n % 5 == 0).then_some(1000 + n));
            if n % 7 == 0 {
                ring.pop_back();
                expected.pop_back();
            }
            let ends = (expected.front().copied(), expected.back().copied());
            assert_eq!((ring.len(), (ring.front(), ring.back())), (expected.len(), ends));
        }
        while ring.front().is_some() {
            assert_eq!(ring.pop_front(), expected.pop_front());
        }
        ring.pop_back();
        assert_eq!((ring.pop_front(), ring.len(), expected.len()), (None, 0, 0));
    }
}
