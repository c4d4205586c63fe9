//! A queue in a ring buffer: what is in a core, in order.

/// A queue whose capacity is a power of two. It grows if it is full, which a sufficient initial size avoids.
#[derive(Clone, Debug)]
pub struct Ring<T> {
    places: Vec<T>,
    /// Entries inserted and removed since the start.
    put: usize,
    taken: usize,
}

impl<T: Copy + Default> Ring<T> {
    /// An empty queue with room for this many entries.
    pub fn new(room: usize) -> Self {
        Self { places: vec![T::default(); room.next_power_of_two()], put: 0, taken: 0 }
    }

    /// The oldest entry.
    #[inline(always)]
    pub fn front(&self) -> Option<T> {
        (self.put > self.taken).then(|| self.places[self.taken & (self.places.len() - 1)])
    }

    /// All entries, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        (self.taken..self.put).map(|n| self.places[n & (self.places.len() - 1)])
    }

    /// Removes the oldest entry.
    #[inline(always)]
    pub fn pop_front(&mut self) -> Option<T> {
        let front = self.front();
        self.taken += usize::from(front.is_some());
        front
    }

    /// Appends an entry.
    #[inline(always)]
    pub fn push_back(&mut self, entry: T) {
        if self.put - self.taken == self.places.len() {
            self.grow();
        }
        let mask = self.places.len() - 1;
        self.places[self.put & mask] = entry;
        self.put += 1;
    }

    #[cold]
    fn grow(&mut self) {
        let queued: Vec<T> = self.iter().collect();
        (self.taken, self.put) = (0, queued.len());
        self.places.clear();
        self.places.extend(&queued);
        self.places.resize(queued.len() * 2, T::default());
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
            // Exceeds the initial capacity from the fifth entry on.
            if n % 3 == 0 {
                assert_eq!(ring.pop_front(), expected.pop_front());
            }
            assert_eq!(ring.front(), expected.front().copied());
            assert!(ring.iter().eq(expected.iter().copied()));
        }
        while ring.front().is_some() {
            assert_eq!(ring.pop_front(), expected.pop_front());
        }
        assert_eq!((ring.pop_front(), expected.len()), (None, 0));
    }
}
