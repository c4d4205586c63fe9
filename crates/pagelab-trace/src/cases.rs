//! The number of random test cases of all crates: a suite's own number times a factor from the environment.

use std::ops::Mul;

/// Environment variable with the factor; 1 if not set.
const FACTOR: &str = "PAGELAB_CASES_FACTOR";

/// A suite's own number of cases times `PAGELAB_CASES_FACTOR`. Panics if the variable is not a positive whole number.
pub fn cases<N: Mul<Output = N> + From<u32>>(own: N) -> N {
    let factor = std::env::var_os(FACTOR).map_or(1, |text| {
        parse(&text.to_string_lossy())
            .unwrap_or_else(|| panic!("{FACTOR} must be a whole number of at least 1, not {text:?}"))
    });
    own * N::from(factor)
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
    fn the_environment_multiplies_every_number() {
        const INSIDE: &str = "PAGELAB_CASES_INSIDE";
        if std::env::var_os(INSIDE).is_some() {
            println!("{} {}", cases(400_u32), cases(60_000_u64));
            return;
        }
        let run = |factor: Option<&str>| {
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "cases::tests::the_environment_multiplies_every_number", "--nocapture"]);
            command.env(INSIDE, "1").env_remove(FACTOR);
            factor.into_iter().for_each(|factor| _ = command.env(FACTOR, factor));
            let output = command.output().unwrap();
            (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
        };
        for (factor, printed) in [(None, "400 60000"), (Some("1"), "400 60000"), (Some("7"), "2800 420000")] {
            let (ended, text) = run(factor);
            assert!(ended && text.contains(printed), "{factor:?}: {text}");
        }
        let (ended, text) = run(Some("many"));
        assert!(
            !ended && text.contains("PAGELAB_CASES_FACTOR must be a whole number of at least 1, not \"many\""),
            "{text}"
        );
    }
}
