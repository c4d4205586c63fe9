//! The top of the LRU stack: the most recently used pages, without a table.

use crate::stack::NO_PAGE;

/// Number of pages on it; their numbers fill a cache line.
pub(crate) const PAGES: usize = 8;

/// The most recently used pages, the latest first.
pub(crate) struct Top([u64; PAGES]);

impl Default for Top {
    fn default() -> Self {
        Self([NO_PAGE; PAGES])
    }
}

impl Top {
    /// Uses a page. Returns its depth if it was on top; otherwise the page that it replaces, or [`NO_PAGE`].
    #[inline(always)]
    pub fn touch(&mut self, page: u64) -> Result<usize, u64> {
        let old = self.0;
        let mut found = 1_u32 << PAGES;
        for (at, &other) in old.iter().enumerate() {
            found |= u32::from(other == page) << at;
        }
        let depth = found.trailing_zeros() as usize;
        for at in 1..PAGES {
            self.0[at] = if at <= depth { old[at - 1] } else { old[at] };
        }
        self.0[0] = page;
        if depth < PAGES { Ok(depth) } else { Err(old[PAGES - 1]) }
    }

    /// Removes and returns all pages, the lowest first.
    pub fn take(&mut self) -> impl Iterator<Item = u64> {
        std::mem::take(self).0.into_iter().rev().filter(|&page| page != NO_PAGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_trace::rng::Rng;

    #[test]
    fn the_top_is_that_of_a_list() {
        let (mut top, mut list, mut rng) = (Top::default(), Vec::new(), Rng::new(1, "top"));
        for step in 0..10_000 {
            let page = rng.below(12);
            let expected = match list.iter().position(|&other| other == page) {
                Some(at) => {
                    list.remove(at);
                    Ok(at)
                }
                None if list.len() == PAGES => Err(list.pop().unwrap()),
                None => Err(NO_PAGE),
            };
            list.insert(0, page);
            assert_eq!(top.touch(page), expected);
            if step % 100 == 99 {
                assert!(top.take().eq(list.drain(..).rev()));
            }
        }
    }
}
