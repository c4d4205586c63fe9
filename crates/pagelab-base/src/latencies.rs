//! How long something took, as a distribution.

use hdrhistogram::Histogram;

use super::cycles::Cycles;
use super::measure::Measure;

/// Digits of latencies that are told apart.
const DIGITS: u8 = 3;

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
    sum: Cycles,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { histogram: Histogram::new(DIGITS).expect("so many digits can be told apart"), sum: Cycles::ZERO }
    }
}

impl Latencies {
    /// Adds one latency to all statistics.
    pub fn note(&mut self, latency: Cycles) {
        self.histogram.record(latency.0).expect("it grows as it has to");
        self.sum += latency;
    }

    /// How many latencies were noted.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Sum of all latencies.
    pub fn sum(&self) -> Cycles {
        self.sum
    }

    /// Their sum, and what shares of them did not exceed, behind `name`; `text` says of what.
    pub fn measures(&self, name: &str, text: &str) -> Vec<Measure> {
        let sum = Measure::cycles(format!("{name}.cycles"), self.sum, format!("Cycles of {text}"));
        let percentiles =
            [("p50", 0.5, "median"), ("p99", 0.99, "99th percentile"), ("p999", 0.999, "99.9th percentile")];
        let percentile = |(suffix, share, what)| {
            let text = format!("Over the whole run, {what} of the cycles of {text}");
            Measure::state(format!("{name}.{suffix}"), self.histogram.value_at_quantile(share), "cycles", text)
        };
        std::iter::once(sum).chain(percentiles.map(percentile)).collect()
    }
}
