//! A device with the same latency for all requests.
//!
//! Models: a device that serves a fixed number of requests in parallel, each in constant time, in order of arrival.
//! Source: a queue with several servers and constant service times (D/D/c); no particular device.
//! Parameters: `read_cycles`, `write_cycles`, `queue_depth`.
//! Stats: `requests`, `queued_cycles`.
//! Deviations: a request of several consecutive pages takes as long as one of a single page.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Clock, Device};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::{EngineError, between};
use pagelab_base::io::{Answer, DeviceRequest};
use pagelab_base::measure::Measure;

/// Parameters of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FixedLatencyConfig {
    /// Cycles from a request to its completion, for one page or several consecutive pages.
    pub read_cycles: u64,
    pub write_cycles: u64,
    /// Requests that the device serves in parallel.
    pub queue_depth: u32,
}

/// A device with fixed latencies.
#[derive(Clone)]
pub struct FixedLatency {
    config: FixedLatencyConfig,
    /// When each slot for a request is free again.
    free_at: Vec<Cycles>,
    requests: u64,
    queued_cycles: Cycles,
}

impl Device for FixedLatency {
    type Parameters = FixedLatencyConfig;

    fn new(config: &FixedLatencyConfig, _: Clock) -> Self {
        Self {
            config: *config,
            free_at: vec![Cycles::ZERO; config.queue_depth as usize],
            requests: 0,
            queued_cycles: Cycles::ZERO,
        }
    }

    fn validate(config: &FixedLatencyConfig, key: &str) -> Result<(), EngineError> {
        between(&format!("{key}.queue_depth"), config.queue_depth, 1, 1 << 16)
    }

    fn samples() -> Vec<FixedLatencyConfig> {
        vec![
            FixedLatencyConfig { read_cycles: 250_000, write_cycles: 60_000, queue_depth: 32 },
            FixedLatencyConfig { read_cycles: 20_000, write_cycles: 9_000, queue_depth: 1 },
            FixedLatencyConfig { read_cycles: 0, write_cycles: 70_000, queue_depth: 2 },
        ]
    }

    fn submit(&mut self, request: DeviceRequest, now: Cycles) -> Answer {
        let cycles = if request.write { self.config.write_cycles } else { self.config.read_cycles };
        let place = self.free_at.iter_mut().min().expect("it serves one request at least");
        let begins = now.max(*place);
        *place = begins + Cycles(cycles);
        self.requests += 1;
        self.queued_cycles += begins - now;
        Answer { at: *place, failed: false }
    }

    fn measures(&self) -> Vec<Measure> {
        vec![
            Measure::count("requests", self.requests, "Requests to the device"),
            Measure::cycles(
                "queued_cycles",
                self.queued_cycles,
                "Cycles that they waited until the device served them",
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_base::io::Lba;

    const READ: DeviceRequest = DeviceRequest { first: Lba(5), blocks: 1, write: false };
    const WRITE: DeviceRequest = DeviceRequest { write: true, ..READ };

    #[test]
    fn it_overlaps_as_many_requests_as_its_queue_is_deep() {
        let config = FixedLatencyConfig { read_cycles: 100, write_cycles: 40, queue_depth: 2 };
        let mut device = FixedLatency::new(&config, Clock { mhz: 1 });
        assert_eq!(device.submit(READ, Cycles(1000)).at, Cycles(1100));
        // One in parallel with the read, the next after that, the third after the second or the read.
        let answers = [(); 3].map(|()| device.submit(WRITE, Cycles(1000)).at.0);
        assert_eq!(answers, [1040, 1080, 1120]);
        let measured: Vec<u64> = device.measures().iter().map(|measure| measure.value).collect();
        assert_eq!(measured, [4, 40 + 80]);
    }

    #[test]
    fn a_request_with_an_earlier_time_is_served_in_order() {
        let config = FixedLatencyConfig { read_cycles: 100, write_cycles: 40, queue_depth: 1 };
        let mut device = FixedLatency::new(&config, Clock { mhz: 1 });
        assert_eq!(device.submit(READ, Cycles(1000)).at, Cycles(1100));
        assert_eq!(device.submit(DeviceRequest { blocks: 7, ..READ }, Cycles(900)).at, Cycles(1200));
    }
}
