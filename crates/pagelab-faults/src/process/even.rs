//! `even`: one fault per interval.

use pagelab_trace::{rng::Rng, spec::SEED};

use super::{
    Pattern, Process,
    parameters::{CORES, LATENCY, LATENCY_P95, RATE, SECONDS},
};

pub(super) static PROCESS: Process = Process {
    name: "even",
    summary: "a fault of each core in every interval, the cores one after the other",
    origin: "the throughput benchmark of the offload engine's paper (section 5.2.3): faults at an identical rate",
    parameters: &[RATE, CORES, SECONDS, LATENCY, LATENCY_P95, SEED],
    pattern: |values, per_core| {
        let rate = values.number(RATE.name) as f64;
        per_core.idle_ns(rate, values)?;
        let interval_ns = per_core.interval_ns(rate);
        let first_ns = interval_ns * per_core.core as f64 / per_core.cores as f64;
        Ok(Box::new(Even { interval_ns, first_ns, made: 0 }))
    },
};

struct Even {
    interval_ns: f64,
    first_ns: f64,
    made: u64,
}

impl Pattern for Even {
    /// A fault that lasts beyond its interval delays only the next one.
    fn next_ns(&mut self, now_ns: f64, _: &mut Rng) -> f64 {
        let due = self.first_ns + self.interval_ns * self.made as f64;
        self.made += 1;
        due.max(now_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    #[test]
    fn intervals_are_equal_and_cores_take_turns() {
        let faults: Vec<_> = parse("even:rate=40K,cores=4,seconds=0.01", 0).unwrap().collect();
        assert_eq!(faults.len(), 400);
        for (index, fault) in faults.iter().enumerate() {
            assert_eq!((fault.time_ns, usize::from(fault.core)), (index as u64 * 25_000, index % 4));
        }
    }
}
