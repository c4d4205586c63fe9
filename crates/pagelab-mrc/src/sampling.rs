//! Sampling of pages: all, or a sample (SHARDS).
//!
//! Source: Waldspurger, Park, Garthwaite, Ahmad, "Efficient MRC construction with SHARDS", FAST 2015. A page is in the
//! sample if the hash of its number is below a threshold, so either all or none of its uses are seen. A sample of rate
//! R has R times as many pages between two uses. Each use counts as 1/R uses.

use std::collections::BinaryHeap;

use pagelab_trace::rng::{Rng, mix};
use serde::{Deserialize, Serialize};

use crate::stack::Stack;

/// Which pages to analyse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sampling {
    /// Every page.
    #[default]
    All,
    /// This share of the pages, above 0 and at most 1.
    Rate(f64),
    /// At most this many pages per curve: the rate decreases as more pages appear.
    Pages(u64),
}

/// The sample of one curve.
pub(crate) struct Sampler {
    /// Pages with a hash up to this number are in the sample.
    limit: u64,
    seed: u64,
    /// For a bounded sample: its pages by descending hash. Pages that were dropped may still be in it.
    bounded: Option<Bounded>,
}

struct Bounded {
    most: usize,
    pages: BinaryHeap<(u64, usize, u64)>,
}

impl Sampler {
    /// The sample of the curve `name`.
    pub fn new(sampling: Sampling, seed: u64, name: &str) -> Self {
        let limit = match sampling {
            Sampling::Rate(rate) => (rate * 2_f64.powi(64)) as u64,
            Sampling::All | Sampling::Pages(_) => u64::MAX,
        };
        let bounded = match sampling {
            Sampling::Pages(most) => Some(Bounded { most: most as usize, pages: BinaryHeap::new() }),
            Sampling::All | Sampling::Rate(_) => None,
        };
        Self { limit, seed: Rng::new(seed, name).next_u64(), bounded }
    }

    /// Salt for the hashes of a space's pages.
    pub fn salt(&self, space: usize) -> u64 {
        mix(self.seed.wrapping_add(space as u64))
    }

    #[inline(always)]
    pub fn hash(salt: u64, page: u64) -> u64 {
        mix(page ^ salt)
    }

    #[inline(always)]
    pub fn takes(&self, hash: u64) -> bool {
        hash <= self.limit
    }

    /// Share of all pages in the sample.
    pub fn rate(&self) -> f64 {
        if self.limit == u64::MAX { 1.0 } else { self.limit as f64 / 2_f64.powi(64) }
    }

    /// Whether the sample may shrink; then new pages must be reported to it.
    pub fn is_bounded(&self) -> bool {
        self.bounded.is_some()
    }

    /// Adds pages of a space, which are already in the stack; shrinks the sample if there are too many.
    pub fn bound(&mut self, stack: &mut Stack, space: usize, pages: impl Iterator<Item = u64>) {
        let salt = self.salt(space);
        let Some(bounded) = &mut self.bounded else { return };
        bounded.pages.extend(pages.map(|page| (Self::hash(salt, page), space, page)));
        while stack.pages() > bounded.most {
            let Some(&(hash, _, _)) = bounded.pages.peek() else { break };
            self.limit = self.limit.min(hash.saturating_sub(1));
            bounded.drop_beyond(self.limit, stack);
        }
        // Pages that were dropped and came back are in it twice.
        if bounded.pages.len() > 2 * bounded.most {
            let mut pages = std::mem::take(&mut bounded.pages).into_vec();
            pages.sort_unstable();
            pages.dedup();
            pages.retain(|&(_, space, page)| stack.holds(space, page));
            bounded.pages = pages.into();
        }
        stack.limit_holes(bounded.most);
    }
}

impl Bounded {
    fn drop_beyond(&mut self, limit: u64, stack: &mut Stack) {
        while let Some(&(hash, space, page)) = self.pages.peek()
            && hash > limit
        {
            self.pages.pop();
            stack.remove(space, page);
        }
    }
}
