//! An in-order core that waits for memory.
//!
//! Models: a core that retires instructions at a fixed rate and makes one access at a time. It waits for each access;
//! the pipeline may hide the latency of a first-level cache hit.
//! Source: the textbook sum of execution and memory-stall cycles (Hennessy and Patterson); with a rate of 1 and no
//! hidden latency, gem5's TimingSimpleCPU.
//! Parameters: `cycles_per_instruction`, `l1_hit_hidden`.
//! Deviations: there is no store buffer, so the core waits for stores as for loads.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Core, CoreTime, Data, Stall, Timing};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;

/// Cycles per instruction are kept in units of 1/256.
const RATE_SHIFT: u32 = 8;

/// Parameters of the in-order core.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InOrderConfig {
    /// Cycles per instruction if neither memory nor translation stalls it; rounded to 1/256.
    pub cycles_per_instruction: f64,
    /// Whether the pipeline hides the L1 latency: an access then stalls only for its latency beyond that of an L1 hit.
    pub l1_hit_hidden: bool,
}

/// An in-order core.
#[derive(Clone, Debug)]
pub struct InOrder {
    /// Cycles per instruction, in units of 1 / 2^[`RATE_SHIFT`].
    rate: u64,
    /// Cycles of an L1 hit that the program waits for.
    visible: Cycles,
    /// Cycles of any access that the pipeline hides.
    hidden: Cycles,
}

impl InOrder {
    /// A placeholder while another model is taken out of a [`CoreModel`](super::CoreModel).
    pub(super) const IN_PLACE: Self = Self { rate: 0, visible: Cycles::ZERO, hidden: Cycles::ZERO };
}

impl Core for InOrder {
    type Parameters = InOrderConfig;

    fn new(config: &InOrderConfig, l1_latency: Cycles) -> Self {
        let rate = (config.cycles_per_instruction * f64::from(1 << RATE_SHIFT)).round() as u64;
        let hidden = if config.l1_hit_hidden { l1_latency } else { Cycles::ZERO };
        Self { rate, visible: l1_latency - hidden, hidden }
    }

    fn validate(config: &InOrderConfig, key: &str) -> Result<(), EngineError> {
        let cycles = config.cycles_per_instruction;
        if (1.0 / f64::from(1 << RATE_SHIFT)..=1000.0).contains(&cycles) {
            return Ok(());
        }
        let what = format!("{cycles} is out of range; allowed are 1/256 to 1000");
        Err(EngineError::config(format!("{key}.cycles_per_instruction"), what))
    }

    fn samples() -> Vec<InOrderConfig> {
        vec![
            InOrderConfig { cycles_per_instruction: 0.5, l1_hit_hidden: true },
            InOrderConfig { cycles_per_instruction: 1.0, l1_hit_hidden: false },
        ]
    }
}

impl Timing for InOrder {
    #[inline]
    fn base_cycles(&self, instructions: u64) -> Cycles {
        Cycles((instructions * self.rate) >> RATE_SHIFT)
    }

    #[inline]
    fn repeat_stall(&self) -> Cycles {
        self.visible
    }

    #[inline]
    fn data_stall(&mut self, mut data: Data, at: CoreTime) -> Stall {
        Stall { data: data.arrival(at.now) - at.now - self.hidden, ..Stall::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::L1TlbMiss;
    use super::*;

    const START: CoreTime = CoreTime { instructions: 0, now: Cycles::ZERO };

    #[test]
    fn instructions_retire_at_the_rate_and_rounding_is_lost_once() {
        let config = InOrderConfig { cycles_per_instruction: 0.7, l1_hit_hidden: true };
        let core = InOrder::new(&config, Cycles(4));
        // 179 of 256.
        assert_eq!([1, 2, 1000].map(|instructions| core.base_cycles(instructions)), [0, 1, 699].map(Cycles));
    }

    #[test]
    fn a_hidden_hit_shortens_every_access_by_as_much() {
        for (l1_hit_hidden, stalls) in [(true, [0, 0, 196]), (false, [4, 4, 200])] {
            let mut core = InOrder::new(&InOrderConfig { cycles_per_instruction: 1.0, l1_hit_hidden }, Cycles(4));
            let mut data =
                |latency| core.data_stall(Data { latency: Cycles(latency), line: 0, traffic: None }, START).data;
            let found = [data(4), data(200)];
            assert_eq!([core.repeat_stall(), found[0], found[1]], stalls.map(Cycles));
            let translating = L1TlbMiss { look_up: Cycles(2), walk: Cycles(7), page: None, fetches: false };
            let stall = Stall { translation: Cycles(9), ..Stall::default() };
            assert_eq!(core.translation_stall(translating, START), stall, "a translation is waited for");
        }
    }
}
