//! The random test cases of all crates: a suite's own number of them times a factor from the environment, drawn from a
//! suite's own seed or from one of the environment.

use crate::rng::mix;
use std::ops::Mul;

/// Environment variable with the factor; 1 if not set.
const FACTOR: &str = "PAGELAB_CASES_FACTOR";
/// Environment variable with a seed, which replaces all suites' own; they have their own if it is not set. Suites of
/// the crate `proptest` have that crate's `PROPTEST_RNG_SEED`.
const SEED: &str = "PAGELAB_CASES_SEED";

/// A suite's own number of cases times `PAGELAB_CASES_FACTOR`. Panics if the variable is not a positive whole number.
pub fn cases<N: Mul<Output = N> + From<u32>>(own: N) -> N {
    let factor = std::env::var_os(FACTOR).map_or(1, |text| {
        parse(&text.to_string_lossy())
            .unwrap_or_else(|| panic!("{FACTOR} must be a whole number of at least 1, not {text:?}"))
    });
    own * N::from(factor)
}

/// The seed of a suite's random cases: its own, or another one for each `PAGELAB_CASES_SEED`. Panics if the variable is
/// not a number.
pub fn case_seed(own: u64) -> u64 {
    std::env::var_os(SEED).map_or(own, |text| {
        let seed: Result<u64, _> = text.to_string_lossy().parse();
        mix(own ^ mix(seed.unwrap_or_else(|_| panic!("{SEED} must be a number below 2^64, not {text:?}"))))
    })
}

fn parse(text: &str) -> Option<u32> {
    text.parse().ok().filter(|&factor| factor > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_positive_whole_numbers() {
        assert_eq!(parse("10"), Some(10));
        for text in ["", "0", "-1", "1.5", "ten"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    /// Runs in its own process, because other tests read the environment.
    #[test]
    fn the_environment_decides_on_cases() {
        const INSIDE: &str = "PAGELAB_CASES_INSIDE";
        if std::env::var_os(INSIDE).is_some() {
            println!("{} {}; seeds {:x} {:x}", cases(400_u32), cases(60_000_u64), case_seed(1), case_seed(2));
            return;
        }
        let run_with = |factor: Option<&str>, seed: Option<&str>| {
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "cases::tests::the_environment_decides_on_cases", "--nocapture"]);
            command.env(INSIDE, "1").env_remove(FACTOR).env_remove(SEED);
            factor.into_iter().for_each(|factor| _ = command.env(FACTOR, factor));
            seed.into_iter().for_each(|seed| _ = command.env(SEED, seed));
            let output = command.output().unwrap();
            (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
        };
        let run = |factor| run_with(factor, None);
        for (factor, printed) in [(None, "400 60000"), (Some("1"), "400 60000"), (Some("7"), "2800 420000")] {
            let (ended, text) = run(factor);
            assert!(ended && text.contains(printed), "{factor:?}: {text}");
        }
        let (ended, text) = run(Some("many"));
        assert!(
            !ended && text.contains("PAGELAB_CASES_FACTOR must be a whole number of at least 1, not \"many\""),
            "{text}"
        );
        // Own seeds, and others for each seed of the environment.
        let seeds = |seed| {
            let (ended, text) = run_with(None, seed);
            assert!(ended, "{text}");
            let (_, seeds) = text.split_once("seeds ").expect("it prints them");
            let both: Vec<_> = seeds.split_whitespace().take(2).map(str::to_owned).collect();
            assert_ne!(both[0], both[1]);
            both
        };
        assert_eq!(seeds(None), ["1", "2"]);
        assert_eq!(seeds(Some("7")), seeds(Some("7")));
        assert!(seeds(Some("7")).iter().all(|seed| !seeds(Some("8")).contains(seed)));
        let (ended, text) = run_with(None, Some("-1"));
        assert!(!ended && text.contains("PAGELAB_CASES_SEED must be a number below 2^64, not \"-1\""), "{text}");
    }
}
