//! Parameters of all processes.

use pagelab_trace::{
    TraceError,
    spec::{Kind, Parameter, Preset, Values},
};

use super::PerCore;

pub(super) const RATE: Parameter = Parameter {
    name: "rate",
    kind: Kind::Count { min: 1, max: 1_000_000_000_000 },
    default: Preset::Value("100K"),
    meaning: "faults per second of all cores together",
};
pub(super) const CORES: Parameter = Parameter {
    name: "cores",
    kind: Kind::Count { min: 1, max: 65_535 },
    default: Preset::Value("4"),
    meaning: "cores that fault at the same rate",
};
pub(super) const SECONDS: Parameter = Parameter {
    name: "seconds",
    kind: Kind::Positive { max: 1e6 },
    default: Preset::Value("1"),
    meaning: "how long the program runs",
};
pub(super) const LATENCY: Parameter = Parameter {
    name: "latency_ns",
    kind: Kind::Count { min: 1, max: 1_000_000_000 },
    default: Preset::Value("1270"),
    meaning: "mean latency of a fault in nanoseconds; the default is that of Linux 4.9 on a Xeon E-2136 (paper of the \
              offload engine, section 5.2.1)",
};
pub(super) const LATENCY_P95: Parameter = Parameter {
    name: "latency_p95_ns",
    kind: Kind::Count { min: 1, max: 4_000_000_000 },
    default: Preset::Derived("latency_ns, so that all faults take the same time"),
    meaning: "95th percentile of the latency, whose distribution is then lognormal (3200 in section 5.2.1)",
};

impl PerCore {
    /// Mean nanoseconds between the starts of a core's faults, at `rate` faults per second on all cores.
    pub fn interval_ns(&self, rate: f64) -> f64 {
        self.cores as f64 * 1e9 / rate
    }

    /// Mean nanoseconds from the end of a core's fault to the start of its next, at `rate` faults per second on all
    /// cores.
    pub fn idle_ns(&self, rate: f64, values: &Values) -> Result<f64, TraceError> {
        let idle = self.interval_ns(rate) - self.latency_ns;
        if idle > 0.0 {
            return Ok(idle);
        }
        let (latency, interval) = (self.latency_ns, self.interval_ns(rate));
        Err(values.conflict(&format!(
            "faults of {latency:.0} ns, one in {interval:.0} ns, leave a core no time between its faults; lower rate or \
             latency_ns, or raise cores"
        )))
    }
}
