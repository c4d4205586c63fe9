//! A drive: a controller before units that serve side by side.
//!
//! Models: a request waits until fewer than `queue_depth` others are unanswered, then passes the controller, which takes one at a
//! time, then goes to one of the units (dies of flash, or the arm of a disk), each of which serves one at a time, in the order in
//! which they come. A read is answered when its unit has served it. A write is answered `write_ns` after it has passed, out of the
//! drive's buffer; its unit is busy with it for `program_ns`, and reads that come there meanwhile wait. A full buffer makes
//! writes wait for the unit that is done first. Some reads take longer than others: they are tried again, or meet the
//! drive's own housekeeping.
//! Source: the common model of solid-state drives (Agrawal et al., "Design Tradeoffs for SSD Performance", USENIX ATC 2008): queues per
//! element behind a shared controller.
//! Parameters: `queue_depth`, `controller_ns`, `units`, `read_ns`, `write_ns`, `program_ns`, `buffer_blocks`, `slow_per_million`,
//! `slow_ns`, `seed`.
//! Stats: `requests`, `queued_cycles`, `reads`, `reads.cycles`, `reads.p50`, `reads.p99`, `reads.p999`, `writes`, `writes.cycles`,
//! `slow_reads`.
//! Deviations: which unit has a block is drawn, as blocks are strewn over them. A request is of a block of 4 KiB; several that follow
//! each other are several requests or one, as the kernel makes them. No erasing, no mapping tables, no sleep.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Clock, Device};
use crate::base::cycles::Cycles;
use crate::base::error::{EngineError, between};
use crate::base::measure::Measure;
use crate::base::rng::Rng;
use crate::base::step::DeviceRequests;

/// Requests that a queue pair of NVMe can hold.
const MOST_REQUESTS: u32 = 65_535;
const MOST_UNITS: u32 = 1 << 16;
/// Digits of latencies that their distribution tells apart.
const DIGITS: u8 = 3;

/// What the configuration may say of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DriveConfig {
    /// Requests that may be unanswered at a time; others wait outside.
    pub queue_depth: u32,
    /// Time of the controller per request: the inverse of the most that it takes per second.
    pub controller_ns: u32,
    /// Units that serve at a time.
    pub units: u32,
    /// Time of a unit per block that is read.
    pub read_ns: u32,
    /// Time from the controller to the answer of a write, of which the buffer has a copy then.
    pub write_ns: u32,
    /// Time of a unit per block that is written.
    pub program_ns: u32,
    /// Blocks of writes that the buffer holds until their units have written them.
    pub buffer_blocks: u32,
    /// Reads in a million that take longer, and how much.
    #[serde(default)]
    pub slow_per_million: u32,
    #[serde(default)]
    pub slow_ns: u32,
    /// Which units blocks are on, and which reads are slow.
    #[serde(default = "first_seed")]
    pub seed: u64,
}

fn first_seed() -> u64 {
    1
}

/// What was counted. Cycles are those from requests to their answers.
#[derive(Clone)]
struct Counts {
    reads: u64,
    read_cycles: Cycles,
    read_latencies: Histogram<u64>,
    slow_reads: u64,
    writes: u64,
    write_cycles: Cycles,
    /// Time before the queue, the controller, the buffer and, of reads, their unit.
    queued_cycles: Cycles,
}

/// See the module's text.
#[derive(Clone)]
pub struct Drive {
    config: DriveConfig,
    clock: Clock,
    rng: Rng,
    /// When the controller is free again, and by unit, when that is.
    controller: Cycles,
    units: Vec<Cycles>,
    /// Answers that are to come, and blocks in the buffer, by the time that their units are done.
    unanswered: BinaryHeap<Reverse<Cycles>>,
    buffered: BinaryHeap<Reverse<Cycles>>,
    counts: Box<Counts>,
}

/// When one of `most` places is free: those that are free by `now` are forgotten, and else the first that will be.
fn place(taken: &mut BinaryHeap<Reverse<Cycles>>, most: u32, now: Cycles) -> Cycles {
    while taken.peek().is_some_and(|&Reverse(free)| free <= now) {
        taken.pop();
    }
    if taken.len() < most as usize {
        return now;
    }
    taken.pop().map_or(now, |Reverse(free)| free)
}

impl Drive {
    fn cycles(&self, ns: u32) -> Cycles {
        self.clock.cycles(ns.into())
    }

    /// Passes a request through queue and controller, and draws its unit; returns when it has passed.
    fn pass(&mut self, now: Cycles) -> (Cycles, usize) {
        let begins = place(&mut self.unanswered, self.config.queue_depth, now).max(self.controller);
        self.counts.queued_cycles += begins - now;
        self.controller = begins + self.cycles(self.config.controller_ns);
        (self.controller, self.rng.below(u64::from(self.config.units)) as usize)
    }

    fn read(&mut self, now: Cycles) -> Cycles {
        let (passed, unit) = self.pass(now);
        let slow = self.rng.below(1_000_000) < u64::from(self.config.slow_per_million);
        self.counts.slow_reads += u64::from(slow);
        let begins = passed.max(self.units[unit]);
        self.counts.queued_cycles += begins - passed;
        let more = if slow { self.config.slow_ns } else { 0 };
        self.units[unit] = begins + self.cycles(self.config.read_ns) + self.cycles(more);
        let done = self.units[unit];
        let counts = &mut self.counts;
        (counts.reads, counts.read_cycles) = (counts.reads + 1, counts.read_cycles + (done - now));
        counts.read_latencies.record((done - now).0).expect("it grows as it has to");
        done
    }

    fn write(&mut self, now: Cycles) -> Cycles {
        let (passed, unit) = self.pass(now);
        let room = place(&mut self.buffered, self.config.buffer_blocks, passed);
        self.counts.queued_cycles += room - passed;
        self.units[unit] = room.max(self.units[unit]) + self.cycles(self.config.program_ns);
        self.buffered.push(Reverse(self.units[unit]));
        let done = room + self.cycles(self.config.write_ns);
        let counts = &mut self.counts;
        (counts.writes, counts.write_cycles) = (counts.writes + 1, counts.write_cycles + (done - now));
        done
    }
}

impl Device for Drive {
    type Parameters = DriveConfig;

    fn new(config: &DriveConfig, clock: Clock) -> Self {
        Self {
            config: *config,
            clock,
            rng: Rng::new(config.seed, "drive"),
            controller: Cycles::ZERO,
            units: vec![Cycles::ZERO; config.units as usize],
            unanswered: BinaryHeap::new(),
            buffered: BinaryHeap::new(),
            counts: Box::new(Counts {
                reads: 0,
                read_cycles: Cycles::ZERO,
                read_latencies: Histogram::new(DIGITS).expect("so many digits can be told apart"),
                slow_reads: 0,
                writes: 0,
                write_cycles: Cycles::ZERO,
                queued_cycles: Cycles::ZERO,
            }),
        }
    }

    fn validate(config: &DriveConfig, key: &str) -> Result<(), EngineError> {
        between(&format!("{key}.queue_depth"), config.queue_depth, 1, MOST_REQUESTS)?;
        between(&format!("{key}.units"), config.units, 1, MOST_UNITS)?;
        between(&format!("{key}.buffer_blocks"), config.buffer_blocks, 1, u32::MAX)?;
        between(&format!("{key}.slow_per_million"), config.slow_per_million, 0, 1_000_000)
    }

    fn samples() -> Vec<DriveConfig> {
        let flash = DriveConfig {
            queue_depth: 64,
            controller_ns: 1000,
            units: 16,
            read_ns: 60_000,
            write_ns: 10_000,
            program_ns: 200_000,
            buffer_blocks: 32,
            slow_per_million: 100_000,
            slow_ns: 400_000,
            seed: 1,
        };
        let arm = DriveConfig { queue_depth: 2, units: 1, buffer_blocks: 1, slow_per_million: 0, ..flash };
        vec![flash, arm]
    }

    fn submit(&mut self, requests: DeviceRequests, now: Cycles) -> Cycles {
        let mut last = now;
        for number in 0..u64::from(requests.reads) + u64::from(requests.writes) {
            let done = if number < u64::from(requests.reads) { self.read(now) } else { self.write(now) };
            self.unanswered.push(Reverse(done));
            last = last.max(done);
        }
        last
    }

    fn measures(&self) -> Vec<Measure> {
        let of = &self.counts;
        let percentile = |share: f64| of.read_latencies.value_at_quantile(share);
        let state = |name: &str, share: f64, text: &str| {
            Measure::state(
                name,
                percentile(share),
                "cycles",
                format!("Over the whole run, {text} of the cycles of a read"),
            )
        };
        vec![
            Measure::count("requests", of.reads + of.writes, "Requests to the device"),
            Measure::cycles(
                "queued_cycles",
                of.queued_cycles,
                "Cycles that they waited for the queue, the controller, the buffer and, of reads, their unit",
            ),
            Measure::count("reads", of.reads, "Blocks that were read"),
            Measure::cycles("reads.cycles", of.read_cycles, "Cycles from a read's request to its answer"),
            state("reads.p50", 0.5, "median"),
            state("reads.p99", 0.99, "99th percentile"),
            state("reads.p999", 0.999, "99.9th percentile"),
            Measure::count("writes", of.writes, "Blocks that were written"),
            Measure::cycles("writes.cycles", of.write_cycles, "Cycles from a write's request to its answer"),
            Measure::count(
                "slow_reads",
                of.slow_reads,
                "Reads that took longer than others for the drive's own reasons",
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: Clock = Clock { mhz: 1000 };
    const READ: DeviceRequests = DeviceRequests { reads: 1, writes: 0 };
    const WRITE: DeviceRequests = DeviceRequests { reads: 0, writes: 1 };

    fn config() -> DriveConfig {
        let [flash, _] = Drive::samples()[..] else { panic!("there are two") };
        DriveConfig { queue_depth: MOST_REQUESTS, slow_per_million: 0, ..flash }
    }

    /// So many requests unanswered at a time, until so many are made; latency and requests per nanosecond.
    fn closed_loop(config: &DriveConfig, depth: u64, requests: u64) -> (f64, f64) {
        let mut drive = Drive::new(config, CLOCK);
        let mut answers: BinaryHeap<Reverse<Cycles>> = (0..depth).map(|_| Reverse(Cycles::ZERO)).collect();
        let mut now = Cycles::ZERO;
        for _ in 0..requests {
            let Reverse(at) = answers.pop().expect("somebody waits");
            now = at;
            answers.push(Reverse(drive.submit(READ, now)));
        }
        (drive.counts.read_cycles.0 as f64 / requests as f64, (requests - depth) as f64 / now.0 as f64)
    }

    #[test]
    fn one_request_takes_controller_and_unit() {
        let mut drive = Drive::new(&config(), CLOCK);
        assert_eq!(drive.submit(READ, Cycles(5000)), Cycles(5000 + 1000 + 60_000));
        let later = Cycles(10_000_000);
        assert_eq!(drive.submit(WRITE, later), later + Cycles(1000 + 10_000), "the buffer answers");
        assert_eq!(drive.submit(DeviceRequests::default(), later), later);
        let half = Clock { mhz: 500 };
        assert_eq!(Drive::new(&config(), half).submit(READ, Cycles::ZERO), Cycles(30_500), "times are not cycles");
    }

    #[test]
    fn reads_wait_for_what_their_unit_writes_and_writes_for_the_buffer() {
        let one = DriveConfig { units: 1, buffer_blocks: 2, ..config() };
        let mut drive = Drive::new(&one, CLOCK);
        assert_eq!(drive.submit(WRITE, Cycles::ZERO), Cycles(11_000));
        assert_eq!(drive.submit(READ, Cycles(20_000)), Cycles(1000 + 200_000 + 60_000), "behind the write");
        let mut drive = Drive::new(&one, CLOCK);
        let answers: Vec<u64> = (0..4).map(|_| drive.submit(WRITE, Cycles::ZERO).0).collect();
        // Two fit; the others come when the first and the second are written.
        assert_eq!(answers, [11_000, 12_000, 201_000 + 10_000, 401_000 + 10_000]);
    }

    /// The sweep of an NVMe drive's queue depth: requests per second rise up to what the units serve, and latency times rate is
    /// what is unanswered (Little's law).
    #[test]
    fn a_deeper_queue_saturates_the_units() {
        let (config, requests) = (config(), 40_000);
        let most = f64::from(config.units) / f64::from(config.read_ns);
        let mut before = 0.0;
        for depth in [1, 4, 16, 64, 256, 1024] {
            let (latency, rate) = closed_loop(&config, depth, requests);
            assert!(rate > before && rate <= most * 1.0001, "depth {depth}: {rate} of {most}");
            assert!((latency * rate / depth as f64 - 1.0).abs() < 0.02, "depth {depth}: {latency} ns at {rate}");
            before = rate;
        }
        assert!(before > 0.95 * most, "{before} of {most}");
        // A controller that passes one in 10 µs is what limits.
        let slow = DriveConfig { controller_ns: 10_000, ..config };
        let (_, rate) = closed_loop(&slow, 256, requests);
        assert!((rate * 10_000.0 - 1.0).abs() < 0.01, "{rate}");
        // Outside a queue of four they wait as if there were four.
        let shallow = DriveConfig { queue_depth: 4, ..config };
        let ((_, of_four), (_, of_many)) = (closed_loop(&config, 4, requests), closed_loop(&shallow, 64, requests));
        assert!((of_many / of_four - 1.0).abs() < 0.03, "{of_many}, {of_four}");
    }

    #[test]
    fn some_reads_are_slow() {
        let config = DriveConfig { slow_per_million: 10_000, slow_ns: 1_000_000, ..config() };
        let mut drive = Drive::new(&config, CLOCK);
        (0..20_000).for_each(|n| _ = drive.submit(READ, Cycles(n * 2_000_000)));
        let measured =
            |name: &str| drive.measures().into_iter().find(|of| of.name == name).expect("it is counted").value;
        assert!((150..250).contains(&measured("slow_reads")), "{} of 20,000", measured("slow_reads"));
        assert!((60_900..61_100).contains(&measured("reads.p50")), "{}", measured("reads.p50"));
        assert!((1_060_000..1_063_000).contains(&measured("reads.p999")), "{}", measured("reads.p999"));
    }
}
