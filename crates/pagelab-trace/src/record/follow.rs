//! Follows only some of a program's children, for builds of thousands of processes.

use std::str::FromStr;

use crate::TraceError;

/// Why the tool runs a program natively that an unfollowed child executes.
pub(super) const NOT_FOLLOWED: &str = "is not followed";

/// Maximum number of children per followed one.
const OF_MAX: u32 = 1_000_000;

/// A systematic sample of the children of a recording's program, in the order of their creation: of each `of` children,
/// child `number` is followed. Programs that the others execute run natively, with all their children, and are not
/// recorded. All children of followed children are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follow {
    /// Number of the followed child, from 1 on.
    number: u32,
    every: u32,
}

impl Follow {
    /// The same for a program that is stepped.
    pub(super) fn of_steps(&self) -> pagelab_step::Follow {
        pagelab_step::Follow { every: self.every, from: self.number - 1 }
    }

    /// The tool's options; this process starts the tool.
    pub(super) fn options(&self) -> [String; 3] {
        let Self { number, every } = self;
        let recorder = std::process::id();
        [format!("--follow={every}"), format!("--follow-from={}", number - 1), format!("--recorder={recorder}")]
    }
}

impl FromStr for Follow {
    type Err = TraceError;

    /// Parses `K/N`: of each N children, follow child K.
    fn from_str(text: &str) -> Result<Self, TraceError> {
        let numbers = text.split_once('/').and_then(|(number, every)| {
            let (number, every) = (number.trim().parse().ok()?, every.trim().parse().ok()?);
            ((1..=OF_MAX).contains(&every) && (1..=every).contains(&number)).then_some(Self { number, every })
        });
        numbers.ok_or_else(|| {
            TraceError::usage(format!(
                "follow {text}: must be K/N, of each N children the one of number K, with N from 1 to {OF_MAX} and K from 1 \
                 to N; such as 1/20"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_several_is_read_and_all_else_refused() {
        assert_eq!("3/20".parse::<Follow>().unwrap(), Follow { number: 3, every: 20 });
        assert_eq!(&"3/20".parse::<Follow>().unwrap().options()[..2], ["--follow=20", "--follow-from=2"]);
        for wrong in ["", "5", "0/5", "6/5", "1/0", "1/1000001", "-1/5", "a/b", "1/2/3"] {
            let error = wrong.parse::<Follow>().unwrap_err().to_string();
            assert!(error.contains(&format!("follow {wrong}: must be K/N")), "{error}");
        }
    }
}
