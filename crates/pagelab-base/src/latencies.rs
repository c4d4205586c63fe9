//! Distribution of latencies.

use hdrhistogram::Histogram;

use super::cycles::Cycles;
use super::measure::Measure;

/// Significant decimal digits of the histogram.
const DIGITS: u8 = 3;

/// Percentiles that are reported: the end of the statistic's name, the share, and its name in text.
const PERCENTILES: [(&str, f64, &str); 6] = [
    ("p50", 0.5, "median"),
    ("p90", 0.9, "90th percentile"),
    ("p95", 0.95, "95th percentile"),
    ("p99", 0.99, "99th percentile"),
    ("p999", 0.999, "99.9th percentile"),
    ("max", 1.0, "maximum"),
];

/// A histogram of latencies, their sum and the sum of their squares.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
    sum: Cycles,
    squares: u128,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            histogram: Histogram::new(DIGITS).expect("the histogram supports this many digits"),
            sum: Cycles::ZERO,
            squares: 0,
        }
    }
}

impl Latencies {
    /// Records one latency.
    pub fn note(&mut self, latency: Cycles) {
        self.histogram.record(latency.0).expect("the histogram grows automatically");
        self.sum += latency;
        self.squares += u128::from(latency.0).pow(2);
    }

    /// Number of recorded latencies.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Sum of all latencies.
    pub fn sum(&self) -> Cycles {
        self.sum
    }

    /// Standard deviation, in hundredths of a cycle.
    fn deviation(&self) -> u64 {
        let number = u128::from(self.count().max(1));
        let variance = (self.squares * number - u128::from(self.sum.0).pow(2)) * 10_000 / (number * number);
        variance.isqrt() as u64
    }

    /// The standard deviation as a statistic, like those of [`Latencies::measures`].
    pub fn deviation_measure(&self, name: &str, text: &str) -> Measure {
        let text = format!("Over the whole run, standard deviation of the cycles of {text}");
        Measure::state(format!("{name}.deviation"), self.deviation(), "hundredths of a cycle", text)
    }

    /// The sum and percentiles as statistics named `name.…`; `text` says what has the latency.
    pub fn measures(&self, name: &str, text: &str) -> Vec<Measure> {
        let sum = Measure::cycles(format!("{name}.cycles"), self.sum, format!("Cycles of {text}"));
        let percentile = |(suffix, share, what)| {
            let text = format!("Over the whole run, {what} of the cycles of {text}");
            Measure::state(format!("{name}.{suffix}"), self.histogram.value_at_quantile(share), "cycles", text)
        };
        std::iter::once(sum).chain(PERCENTILES.map(percentile)).collect()
    }
}
