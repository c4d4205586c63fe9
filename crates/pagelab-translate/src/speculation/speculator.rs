//! What every speculation has: its costs and its counters.

use super::{AnySpeculation, FoundPage, GuessTiming, Guessed, MissedAccess, SpeculationConfig};
use pagelab_base::counters;
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::measure::Measure;
use pagelab_base::rng::Rng;

counters! {
    /// What became of guesses.
    pub struct GuessCounts {
        right: u64 as count("right", "Walks for programs' data that found the guessed frame");
        wrong: u64 as count("wrong", "Walks for programs' data that found another frame than the guessed one");
        none: u64 as count("none", "Walks for programs' data without a guess");
        faulted: u64 as count(
            "faulted",
            "Guesses whose walk ended in a page fault; the walk of the access that is made again is counted as well"
        );
        late: u64 as timed_count("late", "Guesses that came no earlier than the end of the walk, and were of no use");
        hidden: u64 as timed_count("hidden_walks", "Walks beside which an access went on with the right frame");
        hidden_cycles: Cycles as cycles(
            "hidden_cycles",
            "Cycles of these walks after the guess; the access waits for what its data leave of them"
        );
        lines: u64 as timed_count("wrong_lines", "Lines that were accessed in a wrong frame, or in that of a page fault");
        lines_of_memory: u64 as timed_count("wrong_lines.dram", "Those of them that memory served");
    }
}

/// What a walk says of a guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The frame was right.
    Right,
    /// The walk found another one.
    Wrong,
    /// There was no guess.
    NoGuess,
    /// The walk ended in a page fault.
    Faulted,
}

/// The speculation of a core.
#[derive(Clone, Debug)]
pub struct Speculator {
    /// The design.
    pub design: AnySpeculation,
    /// What its guesses cost.
    pub timing: GuessTiming,
    /// What became of them.
    pub counts: GuessCounts,
}

impl Speculator {
    /// The speculation of a core; `None` if it is off. Errors: impossible parameters.
    pub fn new(config: &SpeculationConfig, rng: &Rng) -> Result<Option<Box<Self>>, EngineError> {
        if config.is_off() {
            return Ok(None);
        }
        let design = AnySpeculation::new(config, SpeculationConfig::KEY, rng)?;
        let (timing, counts) = (design.timing(), GuessCounts::default());
        Ok(Some(Box::new(Self { design, timing, counts })))
    }

    /// Counts a walk of `walk` cycles, and says how the access goes on beside it if the guess was in time. `before` are
    /// the cycles from the miss of the first-level TLB to that of the last.
    pub fn judge(&mut self, outcome: Outcome, before: Cycles, walk: Cycles) -> Option<Guessed> {
        let GuessTiming { latency, flush } = self.timing;
        let counts = &mut self.counts;
        *match outcome {
            Outcome::Right => &mut counts.right,
            Outcome::Wrong => &mut counts.wrong,
            Outcome::NoGuess => &mut counts.none,
            Outcome::Faulted => &mut counts.faulted,
        } += 1;
        if outcome == Outcome::NoGuess {
            return None;
        }
        if latency >= walk {
            counts.late += 1;
            return None;
        }
        if !self.design.goes_on() {
            return None;
        }
        match outcome {
            Outcome::Right => {
                counts.hidden += 1;
                counts.hidden_cycles += walk - latency;
                Some(Guessed::Right(before + latency))
            }
            Outcome::Wrong => Some(Guessed::Wrong(flush)),
            Outcome::NoGuess | Outcome::Faulted => None,
        }
    }

    /// Whether a guess comes before the end of a walk of `walk` cycles.
    pub fn is_in_time(&self, walk: Cycles) -> bool {
        self.timing.latency < walk
    }

    /// Tells the design what a walk found.
    pub fn learn(&mut self, missed: &MissedAccess, found: &FoundPage) {
        self.design.learn(missed, found);
    }

    /// Its statistics.
    pub fn measures(&self) -> Vec<Measure> {
        let text = "Bits of storage of the speculation of all cores in use (an estimate)";
        let storage = Measure::state("storage_bits", self.design.storage_bits(), "bits", text);
        self.counts.measures().into_iter().chain([storage]).chain(self.design.measures()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guess_in_time_hides_the_rest_of_the_walk() {
        let config = serde_json::from_str(r#"{"model":"spec-tlb","latency_cycles":12,"flush_cycles":20}"#).unwrap();
        let mut unit = Speculator::new(&config, &Rng::new(1, "unit")).unwrap().expect("it is on");
        let mut judge = |outcome, walk| unit.judge(outcome, Cycles(7), Cycles(walk));
        assert_eq!(judge(Outcome::Right, 100), Some(Guessed::Right(Cycles(19))));
        assert_eq!(judge(Outcome::Right, 13), Some(Guessed::Right(Cycles(19))));
        assert_eq!([judge(Outcome::Right, 12), judge(Outcome::Right, 0)], [None; 2], "too late");
        assert_eq!(judge(Outcome::Wrong, 100), Some(Guessed::Wrong(Cycles(20))));
        assert_eq!(judge(Outcome::Wrong, 12), None, "nothing was begun");
        assert_eq!([judge(Outcome::NoGuess, 100), judge(Outcome::Faulted, 100)], [None; 2]);
        let counts = unit.counts;
        assert_eq!((counts.right, counts.wrong, counts.none, counts.faulted), (4, 2, 1, 1));
        assert_eq!((counts.late, counts.hidden, counts.hidden_cycles), (3, 2, Cycles(89)));
    }
}
