//! `poisson`: random faults at a constant rate.

use pagelab_trace::{rng::Rng, spec::SEED};

use super::{
    Pattern, Process,
    latency::exponential,
    parameters::{CORES, LATENCY, LATENCY_P95, RATE, SECONDS},
};

pub(super) static PROCESS: Process = Process {
    name: "poisson",
    summary: "faults by chance: from the end of a core's fault to its next, the time is exponentially distributed",
    origin: "the plainest assumption for a program of which only the rate is known",
    parameters: &[RATE, CORES, SECONDS, LATENCY, LATENCY_P95, SEED],
    pattern: |values, per_core| {
        Ok(Box::new(Poisson { idle_ns: per_core.idle_ns(values.number(RATE.name) as f64, values)? }))
    },
};

struct Poisson {
    idle_ns: f64,
}

impl Pattern for Poisson {
    fn next_ns(&mut self, now_ns: f64, rng: &mut Rng) -> f64 {
        now_ns + exponential(self.idle_ns, rng)
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    /// In an exponential distribution the standard deviation equals the mean, and a share of 1 - 1/e is below the mean.
    #[test]
    fn times_between_faults_are_exponential() {
        let times: Vec<_> = parse("poisson:rate=10K,cores=1,seconds=20", 3).unwrap().map(|f| f.time_ns).collect();
        let idle: Vec<_> = times.windows(2).map(|pair| (pair[1] - pair[0] - 1270) as f64).collect();
        let mean = idle.iter().sum::<f64>() / idle.len() as f64;
        let deviation = (idle.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / idle.len() as f64).sqrt();
        let below = idle.iter().filter(|&&x| x < mean).count() as f64 / idle.len() as f64;
        assert!((mean / 98_730.0 - 1.0).abs() < 0.02, "{mean}");
        assert!((deviation / mean - 1.0).abs() < 0.02, "{deviation} {mean}");
        assert!((below - 0.632).abs() < 0.01, "{below}");
    }
}
