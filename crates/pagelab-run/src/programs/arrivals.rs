//! Arrival times of short-lived processes: an open loop, whose rate does not depend on how fast processes finish.
//!
//! Models: a stream of arrivals with a mean rate in simulated time (`machine.frequency_mhz`), evenly spaced or as a
//! Poisson process.
//! Source: exponential distances are drawn by von Neumann's method, "Various techniques used in connection with random
//! digits" (1951). It only compares uniform numbers and needs no logarithm, whose last digit could differ between
//! computers.
//! Parameters: `per_second` (mean rate), `count` (maximum of arrivals), `spacing` (`poisson`, the default, or
//! `uniform`).

use pagelab_trace::quantity::parse_count;

use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::rng::Rng;

/// Distances are in units of 2^-32 cycles, so that rounding errors do not add up.
const FRACTION_BITS: u32 = 32;

/// How the times between arrivals vary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spacing {
    /// Constant times between arrivals.
    Uniform,
    /// Independent, exponentially distributed times.
    #[default]
    Poisson,
}

/// The rate of a stream of arrivals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ArrivalRate {
    /// Mean rate, in arrivals per second of simulated time.
    pub per_second: f64,
    /// Maximum of arrivals; `None` for no limit until the main sources have ended.
    pub count: Option<u64>,
    /// How the times between arrivals vary.
    pub spacing: Spacing,
}

const KEYS: [&str; 3] = ["per_second", "count", "spacing"];

impl ArrivalRate {
    /// Splits `SPEC,per_second=RATE[,count=N][,spacing=uniform|poisson]` into the source, possibly with its CPUs, and
    /// the rate.
    pub fn parse(text: &str) -> Result<(&str, Self), EngineError> {
        let wrong = |what: String| EngineError::config("arrivals", format!("`{text}`: {what}"));
        let begins = |part: &str| KEYS.iter().any(|key| part.trim_start().starts_with(&format!("{key}=")));
        let commas = text.match_indices(',').map(|(at, _)| at);
        let end = commas.into_iter().find(|&at| begins(&text[at + 1..])).unwrap_or(text.len());
        let (mut per_second, mut count, mut spacing) = (None, None, None);
        for part in text[end..].split(',').skip(1) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let (key, value) = (key.trim(), value.trim());
            let twice = match key {
                "per_second" => {
                    let number = value.parse().ok().or_else(|| parse_count(value).ok().map(|n| n as f64));
                    let rate = number.filter(|rate| (1e-6..=1e9).contains(rate));
                    let rate: f64 = rate.ok_or_else(|| {
                        wrong(format!("per_second={value}: must be a number of arrivals from 0.000001 to 1e9"))
                    })?;
                    per_second.replace(rate).is_some()
                }
                "count" => {
                    let number = parse_count(value).ok().filter(|&n| n > 0);
                    let number = number.ok_or_else(|| wrong(format!("count={value}: must be a number from 1 on")))?;
                    count.replace(number).is_some()
                }
                "spacing" => {
                    let chosen = match value {
                        "uniform" => Spacing::Uniform,
                        "poisson" => Spacing::Poisson,
                        _ => return Err(wrong(format!("spacing={value}: must be uniform or poisson"))),
                    };
                    spacing.replace(chosen).is_some()
                }
                _ => return Err(wrong(format!("`{key}` is not known here; known are {}", KEYS.join(", ")))),
            };
            if twice {
                return Err(wrong(format!("{key} is given twice")));
            }
        }
        let what = "per_second is missing: write SPEC,per_second=20";
        let per_second = per_second.ok_or_else(|| wrong(what.to_owned()))?;
        Ok((&text[..end], Self { per_second, count, spacing: spacing.unwrap_or_default() }))
    }
}

/// The arrival times of a stream.
#[derive(Clone)]
pub struct Times {
    /// Mean distance and time of the last arrival, in 2^-[`FRACTION_BITS`] cycles.
    mean: u128,
    last: u128,
    left: Option<u64>,
    spacing: Spacing,
    rng: Rng,
}

impl Times {
    /// The arrival times on a machine with this clock rate; `rng` belongs to the stream and is used under
    /// [`Spacing::Poisson`] only.
    pub fn new(pace: &ArrivalRate, frequency_mhz: u32, rng: Rng) -> Self {
        let mean_cycles = f64::from(frequency_mhz) * 1e6 / pace.per_second;
        let mean = (mean_cycles * (1_u64 << FRACTION_BITS) as f64).round() as u128;
        Self { mean, last: 0, left: pace.count, spacing: pace.spacing, rng }
    }
}

impl Iterator for Times {
    type Item = Cycles;

    fn next(&mut self) -> Option<Cycles> {
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1)?;
        }
        self.last += match self.spacing {
            Spacing::Uniform => self.mean,
            Spacing::Poisson => {
                let (whole, fraction) = exponential(&mut self.rng);
                self.mean * u128::from(whole) + ((self.mean * u128::from(fraction >> 32)) >> 32)
            }
        };
        Some(Cycles((self.last >> FRACTION_BITS) as u64))
    }
}

/// Draws from the exponential distribution with mean 1: the whole part, and the fraction in 2^-64.
///
/// Uniform numbers are drawn as long as each is below the last. If this run has odd length, its first number is the
/// fraction; each earlier run, of even length, adds one to the whole part. Given its first number x, a run has odd
/// length with probability e^-x.
fn exponential(rng: &mut Rng) -> (u64, u64) {
    let mut whole = 0;
    loop {
        let first = rng.next_u64();
        let (mut last, mut length) = (first, 1);
        loop {
            let next = rng.next_u64();
            if next >= last {
                break;
            }
            (last, length) = (next, length + 1);
        }
        if length % 2 == 1 {
            return (whole, first);
        }
        whole += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arrival_rate_is_split_from_its_source() {
        let (spec, pace) =
            ArrivalRate::parse("gups:size=1MiB,updates=5@1-3,5,per_second=2.5,count=1K,spacing=uniform").unwrap();
        assert_eq!(spec, "gups:size=1MiB,updates=5@1-3,5");
        assert_eq!(pace, ArrivalRate { per_second: 2.5, count: Some(1000), spacing: Spacing::Uniform });
        let (spec, pace) = ArrivalRate::parse("a.trace, per_second=20").unwrap();
        assert_eq!((spec, pace.count, pace.spacing), ("a.trace", None, Spacing::Poisson));
        for (text, what) in [
            ("seq", "per_second is missing"),
            ("seq,count=3", "per_second is missing"),
            ("seq,per_second=0", "per_second=0: must be a number of arrivals from"),
            ("seq,per_second=nan", "per_second=nan: must be"),
            ("seq,per_second=1,count=0", "count=0: must be a number from 1 on"),
            ("seq,per_second=1,spacing=random", "spacing=random: must be uniform or poisson"),
            ("seq,per_second=1,rate=2", "`rate` is not known here; known are per_second, count, spacing"),
            ("seq,per_second=1,per_second=2", "per_second is given twice"),
        ] {
            let error = ArrivalRate::parse(text).unwrap_err().to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
    }

    fn times(pace: ArrivalRate, seed: u64) -> Vec<u64> {
        Times::new(&pace, 3000, Rng::new(seed, "arrivals 0")).map(|at| at.0).collect()
    }

    #[test]
    fn even_arrivals_do_not_drift() {
        // 3 GHz at 7 per second: 428571428.57… cycles.
        let pace = ArrivalRate { per_second: 7.0, count: Some(700), spacing: Spacing::Uniform };
        let times = times(pace, 1);
        assert_eq!((times.len(), times[0], times[1]), (700, 428_571_428, 857_142_857));
        assert!(times[699].abs_diff(300_000_000_000) <= 1, "{}", times[699]);
    }

    #[test]
    fn poisson_distances_are_exponential_and_follow_the_seed() {
        let pace = ArrivalRate { per_second: 3000.0, count: Some(100_000), spacing: Spacing::Poisson };
        let arrivals = times(pace, 1);
        let mut last = 0;
        let mut distances: Vec<u64> = arrivals.iter().map(|&at| at - std::mem::replace(&mut last, at)).collect();
        distances.sort_unstable();
        // The mean is a million cycles; the quantile q of the distribution is -ln(1 - q) of it.
        assert!(last.abs_diff(100_000_000_000) < 1_000_000_000, "mean {}", last / 100_000);
        for (quantile, expected) in [(0.1, 105_361), (0.5, 693_147), (0.9, 2_302_585), (0.99, 4_605_170)] {
            let found = distances[(quantile * 100_000.0) as usize];
            assert!(found.abs_diff(expected) < expected / 25, "{quantile}: {found}");
        }
        assert_eq!(arrivals, times(pace, 1));
        assert_ne!(arrivals, times(pace, 2));
    }
}
