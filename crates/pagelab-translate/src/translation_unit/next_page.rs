//! Next-page prefetch of translations, called SP (sequential prefetcher).
//!
//! Models: after a miss, the page after the one that missed; see [`prefetcher`](super::prefetcher).
//! Source: Kandiraju and Sivasubramaniam, "Going the Distance for TLB Prefetching", ISCA 2002: sequential prefetch into
//! a buffer of 16 entries.
//! Parameters: `machine.prefetch.tlb.next_page`: `entries` (16), `free` (off).
//! Stats: `prefetch.tlb.*`.
//! Deviations: the next page has the size of the one that missed.

use super::prefetcher::{BufferConfig, DataMiss, Prefetching, Proposals, TlbPrefetcher};
use pagelab_base::error::EngineError;

/// The unit.
pub type NextPage = Prefetching<Sequential>;

/// The prefetcher, which has no state.
#[derive(Clone, Debug)]
pub struct Sequential;

impl TlbPrefetcher for Sequential {
    type Parameters = BufferConfig;

    const STATISTICS: &'static str = "prefetch.tlb";

    fn new(parameters: &BufferConfig, _: &str) -> Result<(Self, BufferConfig), EngineError> {
        Ok((Self, *parameters))
    }

    fn samples() -> Vec<BufferConfig> {
        BufferConfig::samples()
    }

    fn on_miss(&mut self, miss: &DataMiss, proposals: &mut Proposals) {
        proposals.propose(miss.size as i64);
    }
}

#[cfg(test)]
mod tests {
    use super::super::prefetcher::proposed;
    use super::*;

    #[test]
    fn the_next_page_is_proposed_up_to_the_end_of_the_half() {
        let last = (1 << 35) - 1;
        let pages = proposed::<Sequential>(&BufferConfig::default(), &[(1, 100), (2, 101), (1, last)]);
        assert_eq!(pages, [vec![101], vec![102], vec![]]);
    }
}
