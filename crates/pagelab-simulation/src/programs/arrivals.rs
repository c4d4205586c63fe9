//! When short-lived processes arrive: an open loop, whose pace does not depend on how fast they are served.
//!
//! Models: a stream of arrivals at a mean rate, evenly spaced or as a Poisson process, over simulated time
//! (`machine.frequency_mhz`).
//! Source: the draw of exponential distances is von Neumann's, "Various techniques used in connection with random
//! digits" (1951), by comparisons of uniform numbers alone: no logarithm, whose last digit could differ between hosts.
//! Parameters: `per_second` (mean rate), `count` (arrivals at most), `spacing` (`poisson`, the default, or `uniform`).

use pagelab_trace::quantity::parse_count;

use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::rng::Rng;

/// Distances are kept in 2^-32 cycles, so that rounding does not add up.
const FRACTION_BITS: u32 = 32;

/// How arrivals follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spacing {
    /// Always after the same time.
    Uniform,
    /// After independent, exponentially distributed times.
    #[default]
    Poisson,
}

/// The pace of a stream of arrivals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ArrivalRate {
    /// Mean rate, in arrivals per second of simulated time.
    pub per_second: f64,
    /// Arrivals at most; none: until the main sources have ended.
    pub count: Option<u64>,
    /// How the times between arrivals vary.
    pub spacing: Spacing,
}

const KEYS: [&str; 3] = ["per_second", "count", "spacing"];

impl ArrivalRate {
    /// Splits `SPEC,per_second=RATE[,count=N][,spacing=uniform|poisson]`: the source, perhaps with its CPUs, and the
    /// pace.
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
                    let of = match value {
                        "uniform" => Spacing::Uniform,
                        "poisson" => Spacing::Poisson,
                        _ => return Err(wrong(format!("spacing={value}: must be uniform or poisson"))),
                    };
                    spacing.replace(of).is_some()
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

/// The times of a stream's arrivals, one after the other.
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
    /// The times on a machine of this clock rate; `rng` is the stream's own, and is drawn from under
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

/// A draw of the exponential distribution with mean 1: whole part and fraction in 2^-64.
///
/// Uniform numbers are drawn for as long as each is below the last. A run of odd length, which has the probability 1 -
/// 1/e given its first number's share, yields its first number as the fraction; each run of even length before it adds
/// one.
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
    fn a_pace_is_split_from_its_source() {
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
        // 3 GHz at 7 a second: 428571428.57… cycles.
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
