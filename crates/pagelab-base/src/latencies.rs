//! Distribution of latencies.

use hdrhistogram::Histogram;

use super::cycles::Cycles;
use super::measure::Measure;

/// Significant decimal digits of the histogram.
const DIGITS: u8 = 3;

/// A histogram of latencies and their sum.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
    sum: Cycles,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { histogram: Histogram::new(DIGITS).expect("the histogram supports this many digits"), sum: Cycles::ZERO }
    }
}

impl Latencies {
    /// Records one latency.
    pub fn note(&mut self, latency: Cycles) {
        self.histogram.record(latency.0).expect("the histogram grows automatically");
        self.sum += latency;
    }

    /// Number of recorded latencies.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Sum of all latencies.
    pub fn sum(&self) -> Cycles {
        self.sum
    }

    /// The sum and percentiles as statistics named `name.…`; `text` says what has the latency.
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
