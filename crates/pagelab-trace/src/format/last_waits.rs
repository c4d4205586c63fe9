//! Repeated dependencies become 0: an access usually depends on the same as in the last execution of the same code.

use super::dictionary::MAX_VALUES;

/// The last word of each site in a page.
pub(super) struct LastWaits(Box<[u32; MAX_VALUES]>);

impl LastWaits {
    pub(super) fn new() -> Self {
        Self(vec![0; MAX_VALUES].into_boxed_slice().try_into().expect("as many as there are"))
    }

    /// Replaces each word of a page by its exclusive or with the last word of the same site.
    pub(super) fn omit_repeated(&mut self, sites: &[u16], words: &mut [u32]) {
        self.begin(MAX_VALUES);
        for (&site, word) in sites.iter().zip(words) {
            let last = std::mem::replace(&mut self.0[usize::from(site)], *word);
            *word ^= last;
        }
    }

    /// Restores the next word of a page from the stored one; call [`Self::begin`] before the first.
    #[inline(always)]
    pub(super) fn restore(&mut self, site: u16, stored: u32) -> u32 {
        let last = &mut self.0[usize::from(site)];
        *last ^= stored;
        *last
    }

    /// Begins a page, in a part with this many sites.
    pub(super) fn begin(&mut self, sites: usize) {
        self.0[..sites].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omitted_words_are_restored() {
        let (sites, words) = ([7, 7, 9, 7, 9, u16::MAX, 7], [5, 5, 1, 6, 1, 3, 5]);
        let (mut last, mut stored) = (LastWaits::new(), words);
        for _ in 0..2 {
            stored = words;
            last.omit_repeated(&sites, &mut stored);
            assert_eq!(stored, [5, 0, 1, 3, 0, 3, 3]);
        }
        last.begin(MAX_VALUES);
        assert_eq!(std::array::from_fn(|n| last.restore(sites[n], stored[n])), words);
    }
}
