//! An in-order core that waits for memory.
//!
//! Models: a core that retires instructions at a fixed rate and makes one access at a time. It waits for each access;
//! the pipeline may hide the latency of a first-level cache hit.
//! Source: the textbook sum of execution and memory-stall cycles (Hennessy and Patterson); with a rate of 1 and no
//! hidden latency, gem5's TimingSimpleCPU.
//! With a branch predictor, a mispredicted branch takes `mispredict_penalty`: its condition is known, since the core
//! has waited for it.
//! Parameters: `cycles_per_instruction`, `l1_hit_hidden`, `branch_predictor`, `mispredict_penalty`.
//! Stats: `branches`, `branches.mispredicted`, if the core predicts branches.
//! Deviations: there is no store buffer, so the core waits for stores as for loads.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::branch_unit::{BranchPredictor, BranchUnit, default_penalty, validate_penalty};
use super::kernel_branches::BranchRun;
use super::{BranchCounts, Core, CoreTime, Data, IncomingAccess, Stall, Timing};
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
    /// How conditional branches are predicted, if the source records them.
    #[serde(default)]
    pub branch_predictor: BranchPredictor,
    /// Cycles that a mispredicted branch takes.
    #[serde(default = "default_penalty")]
    pub mispredict_penalty: u32,
}

/// A fixed rate of instructions.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetireRate {
    /// Cycles per instruction, in units of 1 / 2^[`RATE_SHIFT`].
    rate: u64,
}

impl RetireRate {
    pub fn new(cycles_per_instruction: f64) -> Self {
        Self { rate: (cycles_per_instruction * f64::from(1 << RATE_SHIFT)).round() as u64 }
    }

    /// Refuses a rate out of range; `key` is the part of the configuration that contains it.
    pub fn validate(cycles_per_instruction: f64, key: &str) -> Result<(), EngineError> {
        if (1.0 / f64::from(1 << RATE_SHIFT)..=1000.0).contains(&cycles_per_instruction) {
            return Ok(());
        }
        let what = format!("{cycles_per_instruction} is out of range; allowed are 1/256 to 1000");
        Err(EngineError::config(format!("{key}.cycles_per_instruction"), what))
    }

    /// Cycles of `instructions` that nothing stalls.
    #[inline]
    pub fn base_cycles(self, instructions: u64) -> Cycles {
        Cycles((instructions * self.rate) >> RATE_SHIFT)
    }
}

/// An in-order core.
#[derive(Clone, Debug)]
pub struct InOrder {
    retire_rate: RetireRate,
    /// Cycles of an L1 hit that the program waits for.
    visible: Cycles,
    /// Cycles of any access that the pipeline hides.
    hidden: Cycles,
    /// None if branches are always predicted correctly.
    branches: Option<Box<BranchUnit>>,
}

impl InOrder {
    /// A placeholder while another model is taken out of a [`CoreModel`](super::CoreModel).
    pub(super) const IN_PLACE: Self =
        Self { retire_rate: RetireRate { rate: 0 }, visible: Cycles::ZERO, hidden: Cycles::ZERO, branches: None };
}

impl Core for InOrder {
    type Parameters = InOrderConfig;

    fn new(config: &InOrderConfig, l1_latency: Cycles) -> Self {
        let hidden = if config.l1_hit_hidden { l1_latency } else { Cycles::ZERO };
        Self {
            retire_rate: RetireRate::new(config.cycles_per_instruction),
            visible: l1_latency - hidden,
            hidden,
            branches: BranchUnit::new(config.branch_predictor, config.mispredict_penalty),
        }
    }

    fn validate(config: &InOrderConfig, key: &str) -> Result<(), EngineError> {
        RetireRate::validate(config.cycles_per_instruction, key)?;
        validate_penalty(config.mispredict_penalty, key)
    }

    fn samples() -> Vec<InOrderConfig> {
        let hidden = InOrderConfig {
            cycles_per_instruction: 0.5,
            l1_hit_hidden: true,
            branch_predictor: BranchPredictor::Perfect,
            mispredict_penalty: default_penalty(),
        };
        vec![
            hidden,
            InOrderConfig { cycles_per_instruction: 1.0, l1_hit_hidden: false, ..hidden },
            InOrderConfig { branch_predictor: BranchPredictor::Tage, ..hidden },
        ]
    }
}

impl Timing for InOrder {
    #[inline]
    fn base_cycles(&self, instructions: u64) -> Cycles {
        self.retire_rate.base_cycles(instructions)
    }

    #[inline]
    fn repeat_stall(&self) -> Cycles {
        self.visible
    }

    #[inline]
    fn data_stall(&mut self, mut data: Data, at: CoreTime) -> Stall {
        Stall { data: data.arrival(at.now) - at.now - self.hidden, ..Stall::default() }
    }

    #[inline]
    fn models_dependencies(&self) -> bool {
        self.branches.is_some()
    }

    fn begin_access(&mut self, incoming: IncomingAccess, _at: CoreTime) -> Stall {
        let Some(unit) = self.branches.as_mut().filter(|_| !incoming.again) else { return Stall::default() };
        let missed = unit.predict(&incoming);
        Stall { branch: unit.penalty(missed), ..Stall::default() }
    }

    fn kernel_branches(&mut self, run: &BranchRun) -> Cycles {
        self.branches.as_mut().map_or(Cycles::ZERO, |unit| unit.execute_kernel(run))
    }

    fn branches(&self) -> Option<BranchCounts> {
        self.branches.as_ref().map(|unit| unit.counts())
    }
}

#[cfg(test)]
mod tests {
    use super::super::L1TlbMiss;
    use super::*;

    const START: CoreTime = CoreTime { instructions: 0, now: Cycles::ZERO };

    fn core(config: &str) -> InOrder {
        InOrder::new(&serde_json::from_str(config).unwrap(), Cycles(4))
    }

    #[test]
    fn instructions_retire_at_the_rate_and_rounding_is_lost_once() {
        let core = core(r#"{"cycles_per_instruction":0.7,"l1_hit_hidden":true}"#);
        // 179 of 256.
        assert_eq!([1, 2, 1000].map(|instructions| core.base_cycles(instructions)), [0, 1, 699].map(Cycles));
    }

    #[test]
    fn a_hidden_hit_shortens_every_access_by_as_much() {
        for (l1_hit_hidden, stalls) in [(true, [0, 0, 196]), (false, [4, 4, 200])] {
            let mut core = core(&format!(r#"{{"cycles_per_instruction":1.0,"l1_hit_hidden":{l1_hit_hidden}}}"#));
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
