//! Replacement policies other than LRU: their state per set, and their behaviour at a hit, at a fill and when a full
//! set needs a victim. (LRU needs no state of its own: the order of the words in a set is the recency order, as it is
//! with [`Policy::KeepTables`].)

use super::block_bias::KeptBlocks;
use super::config::ReplacementPolicy;
use super::table_bias::KeptTables;
use pagelab_base::rng::Rng;

#[derive(Clone, Debug)]
pub(super) enum Policy {
    Lru,
    TreePlru(TreePlru),
    Random(Rng),
    Srrip(Srrip),
    KeepTables(KeptTables),
    KeepBlocks(KeptBlocks),
}

impl Policy {
    pub fn new(policy: ReplacementPolicy, sets: usize, ways: usize, rng: Rng) -> Self {
        match policy {
            ReplacementPolicy::Lru => Self::Lru,
            ReplacementPolicy::TreePlru => Self::TreePlru(TreePlru::new(sets, ways)),
            ReplacementPolicy::Random => Self::Random(rng),
            ReplacementPolicy::Srrip => Self::Srrip(Srrip::new(sets, ways)),
            ReplacementPolicy::KeepBlocks => Self::KeepBlocks(KeptBlocks::new(sets, ways)),
            ReplacementPolicy::KeepTables(bias) => Self::KeepTables(KeptTables::new(bias, sets, rng)),
        }
    }

    /// Whether the words of a set are in recency order.
    pub fn is_recency(&self) -> bool {
        match self {
            Self::Lru | Self::KeepTables(_) => true,
            Self::TreePlru(_) | Self::Random(_) | Self::Srrip(_) | Self::KeepBlocks(_) => false,
        }
    }
}

/// A binary tree of direction bits over the ways of a set.
///
/// A node over n > 1 ways has the first ⌈n/2⌉ of them on its left and the others on its right; its bit tells on which
/// side the next victim is (0 left, 1 right). An access makes every bit on its way's path point to the other side. All
/// bits are 0 at first. For a power of two this is the textbook tree. For any other number, halving, rather than
/// pruning a larger tree, distributes the evictions evenly over the ways.
#[derive(Clone, Debug)]
pub(super) struct TreePlru {
    /// Bits of each set, numbered as in a heap: root 1, children of k are 2k and 2k + 1.
    bits: Vec<u64>,
    ways: usize,
    /// Effect of an access to a way on the bits: those of `path` are cleared, then those of `away` are set.
    path: Vec<u64>,
    away: Vec<u64>,
}

impl TreePlru {
    fn new(sets: usize, ways: usize) -> Self {
        let mut tree = Self { bits: vec![0; sets], ways, path: vec![0; ways], away: vec![0; ways] };
        for way in 0..ways {
            let (mut node, mut first, mut count) = (1, 0, ways);
            while count > 1 {
                let left = count.div_ceil(2);
                tree.path[way] |= 1 << node;
                if way < first + left {
                    tree.away[way] |= 1 << node;
                    (node, count) = (2 * node, left);
                } else {
                    (node, first, count) = (2 * node + 1, first + left, count - left);
                }
            }
        }
        tree
    }

    #[inline]
    pub fn touch(&mut self, set: usize, way: usize) {
        let bits = &mut self.bits[set];
        *bits = *bits & !self.path[way] | self.away[way];
    }

    pub fn victim(&self, set: usize) -> usize {
        let bits = self.bits[set];
        let (mut node, mut first, mut count) = (1, 0, self.ways);
        while count > 1 {
            let left = count.div_ceil(2);
            if bits >> node & 1 == 0 {
                (node, count) = (2 * node, left);
            } else {
                (node, first, count) = (2 * node + 1, first + left, count - left);
            }
        }
        first
    }
}

/// Two bits per way that predict how soon its line is used again: 0 soon … 3 in the distant future.
///
/// A hit sets 0, a fill sets 2. The victim is the lowest way with 3; if there is none, all are incremented until there
/// is.
#[derive(Clone, Debug)]
pub(super) struct Srrip {
    /// Low bit of every way of a set; below, the high bit.
    low: Vec<u64>,
    high: Vec<u64>,
    all_ways: u64,
}

impl Srrip {
    fn new(sets: usize, ways: usize) -> Self {
        Self { low: vec![0; sets], high: vec![0; sets], all_ways: u64::MAX >> (64 - ways) }
    }

    #[inline]
    pub fn hit(&mut self, set: usize, way: usize) {
        self.low[set] &= !(1 << way);
        self.high[set] &= !(1 << way);
    }

    #[inline]
    pub fn fill(&mut self, set: usize, way: usize) {
        self.low[set] &= !(1 << way);
        self.high[set] |= 1 << way;
    }

    pub fn victim(&mut self, set: usize) -> usize {
        loop {
            let (low, high) = (self.low[set], self.high[set]);
            let distant = low & high & self.all_ways;
            if distant != 0 {
                return distant.trailing_zeros() as usize;
            }
            // Adds one to all two-bit numbers in parallel; none is 3.
            self.high[set] = high ^ low;
            self.low[set] = !low & self.all_ways;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_way_tree_by_hand() {
        let mut tree = TreePlru::new(1, 4);
        assert_eq!(tree.victim(0), 0);
        // Fill 0, 1, 2, 3: root points left after 2 and 3, the left pair at 0, the right pair at 2.
        (0..4).for_each(|way| tree.touch(0, way));
        assert_eq!(tree.victim(0), 0);
        tree.touch(0, 0);
        assert_eq!(tree.victim(0), 2);
        tree.touch(0, 2);
        assert_eq!(tree.victim(0), 1);
        // Here it differs from LRU: 3 is the least recently used of 3 1 0 2, but the root points left.
        tree.touch(0, 1);
        assert_eq!(tree.victim(0), 3);
        tree.touch(0, 0);
        tree.touch(0, 3);
        assert_eq!(tree.victim(0), 1);
    }

    #[test]
    fn five_ways_split_three_and_two() {
        let mut tree = TreePlru::new(1, 5);
        // Evicting and touching the victim goes round left (0 2 1 …) and right (3 4 …) alternately.
        let victims: Vec<usize> = (0..12)
            .map(|_| {
                let way = tree.victim(0);
                tree.touch(0, way);
                way
            })
            .collect();
        assert_eq!(victims, [0, 3, 2, 4, 1, 3, 2, 4, 0, 3, 2, 4]);
    }

    #[test]
    fn a_touched_way_is_never_the_next_victim() {
        for ways in 2..=64 {
            let mut tree = TreePlru::new(2, ways);
            let mut rng = Rng::new(3, "plru");
            let mut evicted = vec![0; ways];
            for _ in 0..64 * ways {
                let way = rng.below(ways as u64) as usize;
                tree.touch(1, way);
                assert_ne!(tree.victim(1), way);
                let victim = tree.victim(1);
                tree.touch(1, victim);
                evicted[victim] += 1;
            }
            assert!(evicted.iter().all(|&n| n > 8), "{ways}: {evicted:?}");
            assert_eq!(tree.victim(0), 0, "the other set is untouched");
        }
        assert_eq!(TreePlru::new(1, 1).victim(0), 0);
    }

    #[test]
    fn srrip_by_hand() {
        let mut srrip = Srrip::new(1, 4);
        (0..4).for_each(|way| srrip.fill(0, way));
        let values = |s: &Srrip| (0..4).map(|w| (s.high[0] >> w & 1) << 1 | s.low[0] >> w & 1).collect::<Vec<_>>();
        assert_eq!(values(&srrip), [2, 2, 2, 2]);
        srrip.hit(0, 0);
        srrip.hit(0, 2);
        assert_eq!(values(&srrip), [0, 2, 0, 2]);
        assert_eq!(srrip.victim(0), 1);
        assert_eq!(values(&srrip), [1, 3, 1, 3]);
        srrip.fill(0, 1);
        assert_eq!(srrip.victim(0), 3);
        srrip.fill(0, 3);
        assert_eq!(values(&srrip), [1, 2, 1, 2]);
        srrip.hit(0, 1);
        srrip.hit(0, 3);
        assert_eq!(values(&srrip), [1, 0, 1, 0]);
        // Two rounds of ageing until the lower of the two ones reaches 3.
        assert_eq!(srrip.victim(0), 0);
        assert_eq!(values(&srrip), [3, 2, 3, 2]);
    }
}
