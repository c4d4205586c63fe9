//! Replay prefetch: memory fetches a program's line as soon as it has read the page-table entry for it (TEMPO).
//!
//! Models: the walker tells the memory controller that it reads the last entry of a walk, and which line of the page
//! the access is for. When the entry has been read from memory, the controller fetches that line into the last-level
//! cache. So the access that is made again after the walk finds it there, or waits for less than the whole latency.
//! Source: Bhattacharjee, "Translation-Triggered Prefetching", ASPLOS 2017; "Breaking the Address Translation Wall by
//! Accelerating Memory Replays", IEEE Micro 38(3), 2018. Only an abstract and notes were at hand. The authors count
//! that of walks with a read of memory 98 % are followed by one for the data.
//! Parameters: none. It is for the L3, which must be there.
//! Stats: those of every level (`prefetch.l3.*`).
//! Deviations: the memory has no row buffers, so nothing is saved by a row that is open already.
//! Choices: the fetch begins one L3 latency before the walker has the entry, since entry and request need not travel
//! between controller and core. Walks for programs' data trigger it. Those for fetches of instructions, for kernels and
//! for TLB prefetchers do not, nor does a walk of a guest that ends with a hit in the nested TLB: the controller has
//! not read the entry that says the frame.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Border, CacheConfigError, CacheLevel, Demand, Prefetcher, Proposals};

/// Parameters of the replay prefetcher: there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplayConfig {}

/// The replay prefetcher.
#[derive(Clone, Debug)]
pub struct Replay;

impl Prefetcher for Replay {
    type Parameters = ReplayConfig;

    const LEVELS: &'static [CacheLevel] = &[CacheLevel::L3];
    const FOLLOWS_WALKS: bool = true;

    fn new(_: &ReplayConfig) -> Self {
        Self
    }

    fn validate(_: &ReplayConfig) -> Result<(), CacheConfigError> {
        Ok(())
    }

    fn samples() -> Vec<ReplayConfig> {
        vec![ReplayConfig {}]
    }

    fn border(&self) -> Border {
        Border::Mapping
    }

    fn demand(&mut self, _: &Demand, _: &mut Proposals) {}
}
