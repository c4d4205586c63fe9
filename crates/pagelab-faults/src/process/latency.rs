//! Latency of synthetic faults: constant or lognormally distributed.

use std::{f64::consts::TAU, fmt, num::NonZeroU32};

use pagelab_trace::{TraceError, rng::Rng, spec::Values};

use super::{
    parameters::{LATENCY, LATENCY_P95},
    whole_ns,
};

/// 95th percentile of the standard normal distribution.
const Z95: f64 = 1.644_853_626_951_472_2;

/// A distribution of latencies.
pub(super) struct Latency {
    mean_ns: f64,
    p95_ns: Option<f64>,
    /// Mean and standard deviation of the logarithm.
    log: (f64, f64),
}

impl Latency {
    /// The distribution of a spec. With μ and σ of the logarithm, the mean is exp(μ + σ²/2) and the 95th percentile
    /// exp(μ + z·σ), so σ is the smaller root of σ²/2 − z·σ + ln(p95 / mean) = 0.
    pub fn new(values: &Values) -> Result<Self, TraceError> {
        let mean_ns = values.number(LATENCY.name) as f64;
        let p95_ns = values.optional(LATENCY_P95.name).map(|ns| ns as f64);
        let ratio = libm::log(p95_ns.unwrap_or(mean_ns) / mean_ns);
        let limit = libm::exp(Z95 * Z95 / 2.0);
        if !(0.0..=Z95 * Z95 / 2.0).contains(&ratio) {
            let must = format!("at least the mean, {mean_ns}, and at most {limit:.3} times the mean");
            return Err(values.refuse(LATENCY_P95.name, &must));
        }
        let sigma = Z95 - libm::sqrt(Z95 * Z95 - 2.0 * ratio);
        Ok(Self { mean_ns, p95_ns, log: (libm::log(mean_ns) - sigma * sigma / 2.0, sigma) })
    }

    pub fn mean_ns(&self) -> f64 {
        self.mean_ns
    }

    /// The next latency.
    pub fn draw(&self, rng: &mut Rng) -> NonZeroU32 {
        if self.p95_ns.is_none() {
            return whole_ns(self.mean_ns);
        }
        // Box and Muller 1958: two uniform numbers, of which the first is not 0, give a normally distributed one.
        let (radius, angle) = (uniform(rng), TAU * uniform(rng));
        let normal = libm::sqrt(-2.0 * libm::log(radius)) * libm::cos(angle);
        whole_ns(libm::exp(self.log.0 + self.log.1 * normal))
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.p95_ns {
            None => write!(f, "all {} ns, as the spec says", self.mean_ns),
            Some(p95) => write!(f, "lognormal, mean {} ns, 95th percentile {p95} ns, as the spec says", self.mean_ns),
        }
    }
}

/// Uniformly distributed in (0, 1].
fn uniform(rng: &mut Rng) -> f64 {
    ((rng.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

/// Exponentially distributed with `mean`.
pub(super) fn exponential(mean: f64, rng: &mut Rng) -> f64 {
    -mean * libm::log(uniform(rng))
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    #[test]
    fn mean_and_percentile_are_as_asked() {
        let spec = "poisson:rate=100K,seconds=4,latency_ns=1270,latency_p95_ns=3200";
        let mut latencies: Vec<_> = parse(spec, 5).unwrap().map(|f| f.latency_ns.unwrap().get()).collect();
        latencies.sort_unstable();
        let mean = latencies.iter().map(|&ns| f64::from(ns)).sum::<f64>() / latencies.len() as f64;
        let p95 = f64::from(latencies[latencies.len() * 95 / 100]);
        assert!((mean / 1270.0 - 1.0).abs() < 0.01, "{mean}");
        assert!((p95 / 3200.0 - 1.0).abs() < 0.02, "{p95}");
    }

    #[test]
    fn without_a_percentile_all_are_the_same() {
        assert!(parse("poisson:latency_ns=700", 5).unwrap().all(|f| f.latency_ns.unwrap().get() == 700));
        assert!(
            parse("poisson:latency_ns=700,latency_p95_ns=700", 5).unwrap().all(|f| f.latency_ns.unwrap().get() == 700)
        );
    }
}
