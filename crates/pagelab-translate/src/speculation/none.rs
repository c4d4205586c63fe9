//! No speculation.
//!
//! Models: cores that wait for every walk.
//! Parameters: none.
//! Stats: none.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FoundPage, Guess, GuessTiming, MissedAccess, Speculation};
use pagelab_base::addr::VirtAddr;
use pagelab_base::error::EngineError;
use pagelab_base::rng::Rng;
use pagelab_tables::mmu_cache::Asid;

/// Parameters of no speculation: there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoSpeculationConfig {}

/// No speculation.
#[derive(Clone, Debug)]
pub struct NoSpeculation;

impl Speculation for NoSpeculation {
    type Parameters = NoSpeculationConfig;

    fn samples() -> Vec<NoSpeculationConfig> {
        vec![NoSpeculationConfig {}]
    }

    fn new(_: &NoSpeculationConfig, _: &str, _: &Rng) -> Result<Self, EngineError> {
        Ok(Self)
    }

    fn timing(&self) -> GuessTiming {
        GuessTiming::default()
    }

    fn guess(&self, _: &MissedAccess) -> Guess {
        Guess::default()
    }

    fn learn(&mut self, _: &MissedAccess, _: &FoundPage) {}

    fn invalidate(&mut self, _: Asid, _: VirtAddr, _: VirtAddr) {}

    fn flush(&mut self, _: Asid) {}

    fn storage_bits(&self) -> u64 {
        0
    }
}
