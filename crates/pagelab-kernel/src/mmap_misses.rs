//! Misses in a process's mappings of files. `fault/read_ahead.rs` uses them.

use rustc_hash::FxHashMap;

/// Number of misses above which there is no read-ahead around a page (`MMAP_LOTSAMISS`), and the most that are counted.
const LOTS_OF_MISSES: u32 = 100;
const MOST_MISSES: u32 = 10 * LOTS_OF_MISSES;

/// Misses minus hits of an address space's mappings, by file (`mmap_miss`).
#[derive(Clone, Debug, Default)]
pub struct MmapMisses(FxHashMap<u32, u32>);

impl MmapMisses {
    /// Misses of a file minus its hits.
    pub fn count(&self, file: u32) -> u32 {
        if self.0.is_empty() { 0 } else { self.0.get(&file).copied().unwrap_or(0) }
    }

    /// Counts a miss of a page of the file. Returns whether read-ahead around it is worthwhile.
    pub fn miss(&mut self, file: u32) -> bool {
        let misses = self.0.entry(file).or_insert(0);
        *misses = MOST_MISSES.min(*misses + 1);
        *misses <= LOTS_OF_MISSES
    }

    /// Counts pages of the file that were found in memory.
    pub fn hit(&mut self, file: u32, pages: u32) {
        if let Some(misses) = self.0.get_mut(&file) {
            *misses = misses.saturating_sub(pages);
        }
    }

    /// Forgets all counts, when the process executes another program or ends.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_count_up_to_a_maximum_and_hits_count_down() {
        let mut misses = MmapMisses::default();
        misses.hit(1, 5);
        assert_eq!(misses.count(1), 0);
        assert!((0..100).all(|_| misses.miss(1)), "a hundred are not too many");
        assert!(!misses.miss(1) && misses.miss(2), "each file has its own");
        misses.hit(1, 1);
        assert!(!misses.miss(1));
        misses.hit(1, 2);
        assert!(misses.miss(1));
        (0..2000).for_each(|_| _ = misses.miss(1));
        assert_eq!(misses.count(1), 1000);
        misses.hit(1, 901);
        assert!(misses.miss(1) && !misses.miss(1));
        misses.clear();
        assert_eq!((misses.count(1), misses.count(2)), (0, 0));
    }
}
