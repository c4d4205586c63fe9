//! Cost of kernel code, apart from its memory references.

use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cycles::Cycles;

/// Cycles of a piece of kernel code apart from its memory references: a number, or `core`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "CodeCyclesText", into = "CodeCyclesText")]
#[schemars(with = "CodeCyclesText")]
pub enum CodeCycles {
    /// This many cycles, including the execution of the instructions.
    Stated(u32),
    /// The cycles that the core model takes for the instructions.
    #[default]
    Core,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum CodeCyclesText {
    Number(i64),
    Text(String),
}

impl TryFrom<CodeCyclesText> for CodeCycles {
    type Error = String;

    fn try_from(text: CodeCyclesText) -> Result<Self, String> {
        let written = match text {
            CodeCyclesText::Number(cycles) => match u32::try_from(cycles) {
                Ok(cycles) => return Ok(Self::Stated(cycles)),
                Err(_) => cycles.to_string(),
            },
            CodeCyclesText::Text(text) if text == "core" => return Ok(Self::Core),
            CodeCyclesText::Text(text) => format!("`{text}`"),
        };
        let most = u32::MAX;
        Err(format!(
            "{written} is not possible; allowed is a whole number from 0 to {most}, or `core`: what the machine's core \
             takes for the instructions"
        ))
    }
}

impl From<CodeCycles> for CodeCyclesText {
    fn from(cycles: CodeCycles) -> Self {
        match cycles {
            CodeCycles::Stated(cycles) => Self::Number(cycles.into()),
            CodeCycles::Core => Self::Text("core".to_owned()),
        }
    }
}

/// Cost of kernel code, apart from its memory references.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodeCost {
    /// Instructions to count in statistics, whatever determines their cycles.
    pub instructions: u64,
    /// Instructions whose cycles the core model determines.
    pub timed_by_core: u64,
    /// Cycles that are given as a number.
    pub cycles: Cycles,
}

impl CodeCost {
    /// No cost.
    pub const NONE: Self = Self { instructions: 0, timed_by_core: 0, cycles: Cycles::ZERO };

    /// Cost of N instructions: the stated total cycles, or the core's cycles per instruction.
    pub fn new(instructions: u32, cycles: CodeCycles) -> Self {
        let instructions = u64::from(instructions);
        match cycles {
            CodeCycles::Stated(cycles) => Self { instructions, timed_by_core: 0, cycles: cycles.into() },
            CodeCycles::Core => Self { instructions, timed_by_core: instructions, cycles: Cycles::ZERO },
        }
    }

    /// A cost of these cycles without instructions.
    pub fn from_cycles(cycles: impl Into<Cycles>) -> Self {
        Self { cycles: cycles.into(), ..Self::NONE }
    }

    /// The same cycles without counted instructions.
    pub fn uncounted(self) -> Self {
        Self { instructions: 0, ..self }
    }

    /// Cost of N instructions at this rate.
    pub fn in_proportion(self, instructions: u64) -> Self {
        let part =
            |amount: u64| (amount * instructions + self.instructions / 2).checked_div(self.instructions).unwrap_or(0);
        Self { instructions, timed_by_core: part(self.timed_by_core), cycles: Cycles(part(self.cycles.0)) }
    }

    /// Difference of each part, at least 0.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self {
            instructions: self.instructions.saturating_sub(other.instructions),
            timed_by_core: self.timed_by_core.saturating_sub(other.timed_by_core),
            cycles: self.cycles.saturating_sub(other.cycles),
        }
    }
}

impl Add for CodeCost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            instructions: self.instructions + other.instructions,
            timed_by_core: self.timed_by_core + other.timed_by_core,
            cycles: self.cycles + other.cycles,
        }
    }
}

impl AddAssign for CodeCost {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Mul<CodeCost> for u64 {
    type Output = CodeCost;

    fn mul(self, each: CodeCost) -> CodeCost {
        CodeCost {
            instructions: self * each.instructions,
            timed_by_core: self * each.timed_by_core,
            cycles: self * each.cycles,
        }
    }
}

impl Sum for CodeCost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::NONE, Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_are_a_number_or_the_cores() {
        let read = |text: &str| serde_json::from_str::<CodeCycles>(text).map_err(|error| error.to_string());
        for (text, cycles) in [("17", CodeCycles::Stated(17)), (r#""core""#, CodeCycles::Core)] {
            assert_eq!(read(text), Ok(cycles));
            assert_eq!(serde_json::to_string(&cycles).unwrap(), text);
        }
        for (text, expected) in [(r#""cor""#, "`cor` is not possible"), ("-1", "-1 is not possible")] {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected) && error.contains("`core`"), "{error}");
        }
    }

    #[test]
    fn instructions_are_timed_by_the_core_unless_cycles_are_stated() {
        let (stated, timed) = (CodeCost::new(30, CodeCycles::Stated(7)), CodeCost::new(20, CodeCycles::Core));
        let cost =
            |instructions, timed_by_core, cycles| CodeCost { instructions, timed_by_core, cycles: Cycles(cycles) };
        assert_eq!(stated + 3 * timed, cost(90, 60, 7));
        assert_eq!((stated + timed).saturating_sub(cost(10, 30, 2)), cost(40, 0, 5));
        assert_eq!([stated, timed].map(|work| work.in_proportion(45)), [cost(45, 0, 11), cost(45, 45, 0)]);
        assert_eq!(CodeCost::NONE.in_proportion(45), cost(45, 0, 0));
        assert_eq!([stated, timed].into_iter().sum::<CodeCost>().uncounted(), cost(0, 20, 7));
    }
}
