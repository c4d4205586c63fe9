//! A core's branch unit: the predictor with its parameters, and the branches of a program on their way to it.
//!
//! Both core models have the same unit. They differ in what a misprediction waits for: the in-order core has the
//! condition already, so it loses the penalty alone.

use pagelab_trace::{Access, Branches};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kernel_branches::BranchRun;
use super::tage::Tage;
use super::{BranchCounts, IncomingAccess, ROW};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;

/// How conditional branches are predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BranchPredictor {
    /// Always correctly.
    #[default]
    Perfect,
    /// TAGE with five components (Seznec and Michaud, JILP 2006).
    Tage,
}

/// The default of `mispredict_penalty`, in cycles: an estimate (Fog, "The microarchitecture of Intel, AMD and VIA
/// CPUs": 15 to 20 for the processors of the presets).
pub(super) fn default_penalty() -> u32 {
    16
}

const PENALTY_MAX: u32 = 1000;

/// Refuses a penalty out of range; `key` is the part of the configuration that contains it.
pub(super) fn validate_penalty(penalty: u32, key: &str) -> Result<(), EngineError> {
    if penalty <= PENALTY_MAX {
        return Ok(());
    }
    let what = format!("{penalty} is out of range; allowed are 0 to {PENALTY_MAX}");
    Err(EngineError::config(format!("{key}.mispredict_penalty"), what))
}

/// A branch unit that may mispredict.
#[derive(Clone, Debug)]
pub(super) struct BranchUnit {
    predictor: Tage,
    /// Address of the previous access's instruction.
    last_pc: u64,
    /// Cycles of a misprediction.
    penalty: u32,
}

impl BranchUnit {
    /// The unit of a core; none if it predicts every branch.
    pub fn new(predictor: BranchPredictor, penalty: u32) -> Option<Box<Self>> {
        match predictor {
            BranchPredictor::Perfect => None,
            BranchPredictor::Tage => Some(Box::new(Self { predictor: Tage::default(), last_pc: 0, penalty })),
        }
    }

    /// Number of mispredictions among the branches before an access.
    pub fn predict(&mut self, incoming: &IncomingAccess) -> u64 {
        if incoming.branches.count() == 0 {
            self.last_pc = incoming.access.pc;
            return 0;
        }
        self.predict_one(incoming)
    }

    #[inline(never)]
    fn predict_one(&mut self, incoming: &IncomingAccess) -> u64 {
        let mut missed = [0; ROW];
        self.predict_all(std::slice::from_ref(incoming.access), &[incoming.branches], &mut missed);
        missed[0].into()
    }

    /// [`Self::predict`] for each access of a row.
    #[inline(always)]
    pub fn predict_all(&mut self, accesses: &[Access], branches: &[Branches], missed: &mut [u8; ROW]) {
        let before = |number: u8| number.checked_sub(1).map_or(self.last_pc, |before| accesses[usize::from(before)].pc);
        // The accesses with branches before them, found without a branch on the host, which would be unpredictable.
        let (mut found, mut count) = ([0; ROW], 0);
        for (number, branches) in (0_u8..).zip(branches.iter().take(accesses.len())) {
            found[count % ROW] = number;
            count += usize::from(branches.outcome_byte() > 0);
        }
        let all = found[..count].iter().map(|&number| (before(number), branches[usize::from(number)], number));
        self.predictor.predict_branches(all, missed);
        self.last_pc = accesses.last().map_or(self.last_pc, |last| last.pc);
    }

    /// Cycles that this many mispredictions take.
    #[inline]
    pub fn penalty(&self, missed: u64) -> Cycles {
        Cycles(missed * u64::from(self.penalty))
    }

    /// Executes branches of kernel code; returns the cycles of mispredictions. Nothing of the program is under way
    /// while the kernel executes, so a misprediction takes its penalty alone.
    pub fn execute_kernel(&mut self, run: &BranchRun) -> Cycles {
        let missed = self.predictor.predict_kernel(run);
        self.penalty(missed)
    }

    /// Branches seen and mispredicted.
    pub fn counts(&self) -> BranchCounts {
        self.predictor.counts()
    }
}
