//! `bursts`: faults in close succession, then a pause.

use pagelab_trace::{
    rng::Rng,
    spec::{Kind, Parameter, Preset, SEED},
};

use super::{
    Pattern, Process,
    latency::exponential,
    parameters::{CORES, LATENCY, LATENCY_P95, RATE, SECONDS},
};

const BURST: Parameter = Parameter {
    name: "burst",
    kind: Kind::Count { min: 1, max: 1_000_000_000 },
    default: Preset::Value("100"),
    meaning: "faults of a burst",
};
const GAP: Parameter = Parameter {
    name: "gap_ns",
    kind: Kind::Count { min: 0, max: 1_000_000_000_000 },
    default: Preset::Value("500"),
    meaning: "nanoseconds from the end of a fault to the begin of the next of its burst",
};

pub(super) static PROCESS: Process = Process {
    name: "bursts",
    summary: "faults in bursts: some right after each other, then a pause of exponentially distributed length",
    origin: "a program that fills a new buffer; the offload engine's paper finds signs of bursts (section 5.3)",
    parameters: &[RATE, BURST, GAP, CORES, SECONDS, LATENCY, LATENCY_P95, SEED],
    pattern: |values, per_core| {
        let (burst, gap_ns) = (values.number(BURST.name), values.number(GAP.name) as f64);
        let interval = per_core.interval_ns(values.number(RATE.name) as f64) * burst as f64;
        let busy = burst as f64 * per_core.latency_ns + (burst - 1) as f64 * gap_ns;
        if busy >= interval {
            return Err(values.conflict(&format!(
                "bursts of {busy:.0} ns, one in {interval:.0} ns, leave a core no time between its bursts; lower rate, \
                 latency_ns or gap_ns, or raise cores"
            )));
        }
        Ok(Box::new(Bursts { burst, gap_ns, pause_ns: interval - busy, left: 0 }))
    },
};

struct Bursts {
    burst: u64,
    gap_ns: f64,
    pause_ns: f64,
    /// Remaining faults of the burst.
    left: u64,
}

impl Pattern for Bursts {
    fn next_ns(&mut self, now_ns: f64, rng: &mut Rng) -> f64 {
        if self.left > 0 {
            self.left -= 1;
            return now_ns + self.gap_ns;
        }
        self.left = self.burst - 1;
        now_ns + exponential(self.pause_ns, rng)
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    #[test]
    fn bursts_have_their_faults_and_gaps() {
        let spec = "bursts:rate=50K,burst=20,gap_ns=300,cores=1,seconds=1,latency_ns=1000";
        let times: Vec<_> = parse(spec, 3).unwrap().map(|f| f.time_ns).collect();
        let bursts = times.chunk_by(|a, b| b - a == 1300).map(<[u64]>::len);
        let bursts: Vec<_> = bursts.collect();
        assert!(bursts.len() > 2000 && bursts[..bursts.len() - 1].iter().all(|&len| len % 20 == 0), "{bursts:?}");
        assert!(bursts.iter().filter(|&&len| len == 20).count() > bursts.len() * 9 / 10);
    }
}
