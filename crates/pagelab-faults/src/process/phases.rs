//! `phases`: two alternating rates.

use pagelab_trace::{
    rng::Rng,
    spec::{Kind, Parameter, Preset, SEED},
};

use super::{
    Pattern, Process,
    latency::exponential,
    parameters::{CORES, LATENCY, LATENCY_P95, RATE, SECONDS},
};

const LOW_RATE: Parameter = Parameter {
    name: "low_rate",
    kind: Kind::Count { min: 0, max: 1_000_000_000_000 },
    default: Preset::Derived("a quarter of rate"),
    meaning: "faults per second of all cores together in every second phase; rate is that of the others",
};
const LENGTH: Parameter = Parameter {
    name: "phase_ms",
    kind: Kind::Positive { max: 1e9 },
    default: Preset::Value("20"),
    meaning: "milliseconds of a phase at rate",
};
const LOW_LENGTH: Parameter = Parameter {
    name: "low_phase_ms",
    kind: Kind::Positive { max: 1e9 },
    default: Preset::Derived("phase_ms"),
    meaning: "milliseconds of a phase at low_rate",
};

pub(super) static PROCESS: Process = Process {
    name: "phases",
    summary: "two rates in turn, at the same times on all cores; within a phase as poisson",
    origin: "a program that alternately allocates and computes",
    parameters: &[RATE, LOW_RATE, LENGTH, LOW_LENGTH, CORES, SECONDS, LATENCY, LATENCY_P95, SEED],
    pattern: |values, per_core| {
        let rate = values.number(RATE.name) as f64;
        let low_rate = values.optional(LOW_RATE.name).map_or(rate / 4.0, |rate| rate as f64);
        if low_rate > rate {
            return Err(values.refuse(LOW_RATE.name, &format!("at most rate, {rate}")));
        }
        let length_ns = values.real(LENGTH.name) * 1e6;
        let low_length_ns = values.optional_real(LOW_LENGTH.name).map_or(length_ns, |ms| ms * 1e6);
        if length_ns.min(low_length_ns) < SHORTEST_NS {
            return Err(values.conflict("phase_ms and low_phase_ms must be at least 0.001"));
        }
        let idle_ns = per_core.idle_ns(rate, values)?;
        // Without any fault the time to the next is infinite.
        let low_idle_ns = if low_rate > 0.0 { per_core.idle_ns(low_rate, values)? } else { f64::INFINITY };
        Ok(Box::new(Phases { idle_ns: [idle_ns, low_idle_ns], length_ns: [length_ns, low_length_ns] }))
    },
};

/// The shortest phase, which rounding of times cannot remove.
const SHORTEST_NS: f64 = 1e3;

/// Each pair is for the phase at `rate`, and the phase at `low_rate`.
struct Phases {
    idle_ns: [f64; 2],
    length_ns: [f64; 2],
}

impl Phases {
    /// The phase at `now_ns`, and its end.
    fn phase(&self, now_ns: f64) -> (usize, f64) {
        let [high, low] = self.length_ns;
        let begin = (now_ns / (high + low)).floor() * (high + low);
        if now_ns < begin + high { (0, begin + high) } else { (1, begin + high + low) }
    }
}

impl Pattern for Phases {
    /// The exponential distribution is memoryless: if the next fault is not within the phase, it is drawn again in the
    /// next.
    fn next_ns(&mut self, now_ns: f64, rng: &mut Rng) -> f64 {
        let mut now = now_ns;
        loop {
            let (phase, end) = self.phase(now);
            let next = now + exponential(self.idle_ns[phase], rng);
            if next < end {
                return next;
            }
            now = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    #[test]
    fn each_phase_has_its_rate() {
        let spec = "phases:rate=100K,low_rate=10K,phase_ms=10,low_phase_ms=30,cores=2,seconds=4";
        let high = parse(spec, 1).unwrap().filter(|f| f.time_ns % 40_000_000 < 10_000_000).count() as f64;
        let low = parse(spec, 1).unwrap().filter(|f| f.time_ns % 40_000_000 >= 10_000_000).count() as f64;
        assert!((high / 100e3 - 1.0).abs() < 0.02, "{high}");
        assert!((low / 30e3 - 1.0).abs() < 0.02, "{low}");
    }

    #[test]
    fn a_phase_may_have_no_fault() {
        let spec = "phases:rate=100K,low_rate=0,phase_ms=10,low_phase_ms=30,seconds=1";
        assert!(parse(spec, 1).unwrap().all(|f| f.time_ns % 40_000_000 < 10_000_000));
        assert!(parse("phases:rate=1K,low_rate=2K", 0).err().unwrap().to_string().contains("at most rate, 1000"));
        assert!(parse("phases:phase_ms=0.0001", 0).err().unwrap().to_string().contains("must be at least 0.001"));
    }
}
