//! A drive: a controller and units that work in parallel.
//!
//! Models: a request waits until fewer than `queue_depth` others are outstanding. It then passes the controller, which
//! handles one request at a time, block by block. Blocks are striped over the units (flash dies, or a disk's arm), each
//! of which serves one request at a time, in order of arrival. A read completes when the last of its units has served
//! it. A write completes `write_ns` after the controller, since the drive's buffer has a copy; its units are busy with
//! it for `program_ns`, and reads that arrive there meanwhile wait. If the buffer is full, a write waits for the unit
//! that is done first. Some reads take longer than others: they are retried, or collide with the drive's own
//! housekeeping. Some requests complete with an error. Several drives form one device: its blocks are distributed over
//! them in chunks (RAID 0), and a request completes when the last drive has completed its part.
//! Source: the common model of solid-state drives (Agrawal et al., "Design Tradeoffs for SSD Performance", USENIX ATC
//! 2008): queues per element behind a shared controller, with a static allocation of blocks to elements.
//! Parameters: `queue_depth`, `controller_ns`, `block_ns`, `units`, `stripe_blocks`, `read_ns`, `write_ns`,
//! `program_ns`, `buffer_blocks`, `slow_per_million`, `slow_ns`, `errors_per_million`, `capacity_bytes`, `drives`,
//! `chunk_blocks`, `seed`.
//! Stats: for all drives together `requests`, `queued_cycles`, `reads`, `reads.blocks`, `reads.cycles`, `reads.p50`,
//! `reads.p99`, `reads.p999`, `writes`, `writes.blocks`, `writes.cycles`, `slow_reads`, `errors`; for each drive, if
//! there are several, `drive.N.requests`.
//! Deviations: a unit takes as long for all blocks of a stripe as for one. No erasing, no mapping tables, no sleep.
//! With several drives, each chunk of a request is a request of its own, even if chunks are consecutive on a drive; one
//! error fails the whole request.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use pagelab_trace::quantity::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Clock, Device};
use pagelab_base::addr::FRAME_BYTES;
use pagelab_base::cycles::Cycles;
use pagelab_base::error::{EngineError, between};
use pagelab_base::io::{Answer, DeviceRequest, Lba, Striping};
use pagelab_base::latencies::Latencies;
use pagelab_base::measure::Measure;
use pagelab_base::rng::Rng;

/// Largest number of requests of an NVMe queue pair.
const MOST_REQUESTS: u32 = 65_535;
const MOST_UNITS: u32 = 1 << 16;
/// Number of drives that page-table entries can name (3 bits for a socket, and 3 for a device there).
const MOST_DRIVES: u32 = 64;

/// Parameters of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DriveConfig {
    /// Maximum number of outstanding requests; others wait outside the drive.
    pub queue_depth: u32,
    /// Controller time per request: the inverse of the drive's maximum requests per second.
    pub controller_ns: u32,
    /// Controller time per further block of a request: the inverse of the maximum bandwidth.
    pub block_ns: u32,
    /// Units that work in parallel.
    pub units: u32,
    /// Consecutive blocks on one unit before the next unit's begin.
    #[serde(default = "one")]
    pub stripe_blocks: u32,
    /// Time of a unit to read from a stripe.
    pub read_ns: u32,
    /// Time from the controller to the completion of a write, when the buffer has a copy.
    pub write_ns: u32,
    /// Time of a unit to write to a stripe.
    pub program_ns: u32,
    /// Written blocks that the buffer holds until their units have written them.
    pub buffer_blocks: u32,
    /// Reads per million that take longer; `slow_ns` is the additional time.
    #[serde(default)]
    pub slow_per_million: u32,
    #[serde(default)]
    pub slow_ns: u32,
    /// Requests per million that complete with an error after their usual time.
    #[serde(default)]
    pub errors_per_million: u32,
    /// Capacity of each drive. Default: as much as the kernel needs.
    #[serde(default)]
    pub capacity_bytes: Option<Bytes>,
    /// Drives that form the device.
    #[serde(default = "one")]
    pub drives: u32,
    /// Consecutive blocks on one drive before the next drive's begin.
    #[serde(default = "one_chunk")]
    pub chunk_blocks: u32,
    /// Seed for the choice of slow reads and failing requests.
    #[serde(default = "one_seed")]
    pub seed: u64,
}

fn one() -> u32 {
    1
}

fn one_seed() -> u64 {
    1
}

/// 512 KiB (mdadm(8), `--chunk`).
fn one_chunk() -> u32 {
    128
}

impl DriveConfig {
    fn striping(&self) -> Striping {
        Striping { drives: self.drives, chunk_blocks: self.chunk_blocks.into() }
    }
}

/// Statistics. Cycles are from request to completion.
#[derive(Clone)]
struct DriveCounts {
    read_blocks: u64,
    read_latencies: Latencies,
    slow_reads: u64,
    writes: u64,
    write_blocks: u64,
    write_cycles: Cycles,
    errors: u64,
    /// Waiting time for the queue, the controller, the buffer and, for reads, the longest wait for a unit.
    queued_cycles: Cycles,
}

/// One of the drives.
#[derive(Clone)]
struct Member {
    /// When the controller is free again; below, when each unit is.
    controller: Cycles,
    units: Vec<Cycles>,
    /// Completions that are still to come; below, when the units will be done with the blocks in the buffer.
    unanswered: BinaryHeap<Reverse<Cycles>>,
    buffered: BinaryHeap<Reverse<Cycles>>,
    requests: u64,
}

impl Member {
    fn new(units: u32) -> Self {
        Self {
            controller: Cycles::ZERO,
            units: vec![Cycles::ZERO; units as usize],
            unanswered: BinaryHeap::new(),
            buffered: BinaryHeap::new(),
            requests: 0,
        }
    }
}

/// A device of one or several drives.
#[derive(Clone)]
pub struct Drive {
    config: DriveConfig,
    clock: Clock,
    rng: Rng,
    members: Vec<Member>,
    counts: Box<DriveCounts>,
}

/// When one of `most` slots is free: `now` after removing those free by then, otherwise when the first becomes free.
/// Removes that one.
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

    /// Whether an event with this probability per million happens.
    fn draws(&mut self, per_million: u32) -> bool {
        self.rng.below(1_000_000) < u64::from(per_million)
    }

    /// Passes a request through queue and controller of a drive; returns the time afterwards.
    fn pass(&mut self, member: usize, request: DeviceRequest, now: Cycles) -> Cycles {
        let further = u64::from(request.blocks.saturating_sub(1)) * u64::from(self.config.block_ns);
        let takes = self.clock.cycles(u64::from(self.config.controller_ns) + further);
        let state = &mut self.members[member];
        let begins = place(&mut state.unanswered, self.config.queue_depth, now).max(state.controller);
        self.counts.queued_cycles += begins - now;
        state.controller = begins + takes;
        state.controller
    }

    /// The units of a request's stripes in order, with the number of blocks of each stripe.
    fn stripes(&self, request: DeviceRequest) -> impl Iterator<Item = (usize, u32)> + use<> {
        let (stripe, units) = (u64::from(self.config.stripe_blocks), u64::from(self.config.units));
        let Lba(first) = request.first;
        let end = first + u64::from(request.blocks);
        (first / stripe..end.div_ceil(stripe)).map(move |number| {
            let blocks = ((number + 1) * stripe).min(end) - (number * stripe).max(first);
            ((number % units) as usize, blocks as u32)
        })
    }

    fn read(&mut self, member: usize, request: DeviceRequest, now: Cycles) -> Cycles {
        let passed = self.pass(member, request, now);
        let slow = self.draws(self.config.slow_per_million);
        let more = if slow { self.cycles(self.config.slow_ns) } else { Cycles::ZERO };
        let takes = self.cycles(self.config.read_ns) + more;
        let (mut done, mut waited) = (passed, Cycles::ZERO);
        for (unit, _) in self.stripes(request) {
            let free = &mut self.members[member].units[unit];
            let begins = passed.max(*free);
            waited = waited.max(begins - passed);
            *free = begins + takes;
            done = done.max(*free);
        }
        let counts = &mut self.counts;
        counts.queued_cycles += waited;
        counts.slow_reads += u64::from(slow);
        counts.read_blocks += u64::from(request.blocks);
        counts.read_latencies.note(done - now);
        done
    }

    fn write(&mut self, member: usize, request: DeviceRequest, now: Cycles) -> Cycles {
        let passed = self.pass(member, request, now);
        let program = self.cycles(self.config.program_ns);
        let mut room = passed;
        for (unit, blocks) in self.stripes(request) {
            let state = &mut self.members[member];
            for _ in 0..blocks {
                room = room.max(place(&mut state.buffered, self.config.buffer_blocks, passed));
            }
            let done = room.max(state.units[unit]) + program;
            state.units[unit] = done;
            (0..blocks).for_each(|_| state.buffered.push(Reverse(done)));
        }
        let done = room + self.cycles(self.config.write_ns);
        let counts = &mut self.counts;
        counts.queued_cycles += room - passed;
        (counts.writes, counts.write_cycles) = (counts.writes + 1, counts.write_cycles + (done - now));
        counts.write_blocks += u64::from(request.blocks);
        done
    }

    /// Completes a drive's part of a request.
    fn serve(&mut self, member: usize, request: DeviceRequest, now: Cycles) -> Cycles {
        let at = if request.write { self.write(member, request, now) } else { self.read(member, request, now) };
        let state = &mut self.members[member];
        state.unanswered.push(Reverse(at));
        state.requests += 1;
        at
    }
}

impl Device for Drive {
    type Parameters = DriveConfig;

    fn new(config: &DriveConfig, clock: Clock) -> Self {
        Self {
            config: *config,
            clock,
            rng: Rng::new(config.seed, "drive"),
            members: vec![Member::new(config.units); config.drives as usize],
            counts: Box::new(DriveCounts {
                read_blocks: 0,
                read_latencies: Latencies::default(),
                slow_reads: 0,
                writes: 0,
                write_blocks: 0,
                write_cycles: Cycles::ZERO,
                errors: 0,
                queued_cycles: Cycles::ZERO,
            }),
        }
    }

    fn validate(config: &DriveConfig, key: &str) -> Result<(), EngineError> {
        between(&format!("{key}.queue_depth"), config.queue_depth, 1, MOST_REQUESTS)?;
        between(&format!("{key}.units"), config.units, 1, MOST_UNITS)?;
        between(&format!("{key}.stripe_blocks"), config.stripe_blocks, 1, u32::MAX)?;
        between(&format!("{key}.buffer_blocks"), config.buffer_blocks, 1, u32::MAX)?;
        between(&format!("{key}.slow_per_million"), config.slow_per_million, 0, 1_000_000)?;
        // A retry must be able to succeed.
        between(&format!("{key}.errors_per_million"), config.errors_per_million, 0, 999_999)?;
        between(&format!("{key}.drives"), config.drives, 1, MOST_DRIVES)?;
        between(&format!("{key}.chunk_blocks"), config.chunk_blocks, 1, u32::MAX)?;
        let (least, unit) = match config.drives {
            1 => (FRAME_BYTES, "block"),
            _ => (u64::from(config.chunk_blocks) * FRAME_BYTES, "chunk"),
        };
        match config.capacity_bytes {
            Some(bytes) if bytes.0 < least => {
                let what = format!("{} bytes hold no {unit}; allowed is {least} and more", bytes.0);
                Err(EngineError::config(format!("{key}.capacity_bytes"), what))
            }
            _ => Ok(()),
        }
    }

    /// With several drives, only whole chunks count.
    fn capacity(config: &DriveConfig) -> Option<Bytes> {
        let chunk = u64::from(config.chunk_blocks) * FRAME_BYTES;
        config.capacity_bytes.map(|Bytes(each)| match config.drives {
            1 => Bytes(each),
            drives => Bytes((each / chunk * chunk).saturating_mul(drives.into())),
        })
    }

    fn striping(config: &DriveConfig) -> Striping {
        config.striping()
    }

    fn samples() -> Vec<DriveConfig> {
        let flash = DriveConfig {
            queue_depth: 64,
            controller_ns: 1000,
            block_ns: 500,
            units: 16,
            stripe_blocks: 1,
            read_ns: 60_000,
            write_ns: 10_000,
            program_ns: 200_000,
            buffer_blocks: 32,
            slow_per_million: 100_000,
            slow_ns: 400_000,
            errors_per_million: 50_000,
            capacity_bytes: None,
            drives: 1,
            chunk_blocks: 128,
            seed: 1,
        };
        let arm = DriveConfig { queue_depth: 2, units: 1, stripe_blocks: 64, buffer_blocks: 1, ..flash };
        let several = DriveConfig { drives: 3, chunk_blocks: 4, ..flash };
        vec![flash, DriveConfig { slow_per_million: 0, errors_per_million: 0, ..arm }, several]
    }

    fn submit(&mut self, request: DeviceRequest, now: Cycles) -> Answer {
        let parts = self.config.striping().parts(request);
        let at = parts.map(|(drive, part)| self.serve(drive as usize, part, now)).max();
        // A retry repeats the whole request: if each part could fail, large requests would never succeed.
        let failed = self.draws(self.config.errors_per_million);
        self.counts.errors += u64::from(failed);
        Answer { at: at.unwrap_or(now), failed }
    }

    fn measures(&self) -> Vec<Measure> {
        let counts = &self.counts;
        let reads = counts.read_latencies.count();
        let mut all = vec![
            Measure::count("requests", reads + counts.writes, "Requests to the device's drives"),
            Measure::cycles(
                "queued_cycles",
                counts.queued_cycles,
                "Cycles that requests waited for the queue, the controller, the buffer and (reads) their unit",
            ),
            Measure::count("reads", reads, "Requests that read"),
            Measure::count("reads.blocks", counts.read_blocks, "Blocks that were read"),
        ];
        all.extend(counts.read_latencies.measures("reads", "reads, from the request to the answer"));
        all.extend([
            Measure::count("writes", counts.writes, "Requests that wrote"),
            Measure::count("writes.blocks", counts.write_blocks, "Blocks that were written"),
            Measure::cycles("writes.cycles", counts.write_cycles, "Cycles from a write's request to its answer"),
            Measure::count(
                "slow_reads",
                counts.slow_reads,
                "Reads that took longer than others for the drive's own reasons",
            ),
            Measure::count("errors", counts.errors, "Requests to the device that were answered with an error"),
        ]);
        if let [_, _, ..] = self.members[..] {
            let requests = |(n, member): (usize, &Member)| {
                Measure::count(format!("drive.{n}.requests"), member.requests, format!("Requests to drive {n}"))
            };
            all.extend(self.members.iter().enumerate().map(requests));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: Clock = Clock { mhz: 1000 };

    fn config() -> DriveConfig {
        let flash = Drive::samples()[0];
        DriveConfig { queue_depth: MOST_REQUESTS, slow_per_million: 0, errors_per_million: 0, ..flash }
    }

    fn read(drive: &mut Drive, first: u64, blocks: u32, now: u64) -> u64 {
        drive.submit(DeviceRequest::read(Lba(first), blocks), Cycles(now)).at.0
    }

    fn write(drive: &mut Drive, first: u64, blocks: u32, now: u64) -> u64 {
        drive.submit(DeviceRequest::write(Lba(first), blocks), Cycles(now)).at.0
    }

    fn measured(drive: &Drive, name: &str) -> u64 {
        drive.measures().into_iter().find(|measure| measure.name == name).expect("it is counted").value
    }

    /// Random reads with this many outstanding; returns latency and requests per nanosecond.
    fn closed_loop(config: &DriveConfig, depth: u64, requests: u64) -> (f64, f64) {
        let (mut drive, mut rng) = (Drive::new(config, CLOCK), Rng::new(7, "blocks"));
        let mut answers: BinaryHeap<Reverse<u64>> = (0..depth).map(|_| Reverse(0)).collect();
        let mut now = 0;
        for _ in 0..requests {
            let Reverse(at) = answers.pop().expect("somebody waits");
            now = at;
            answers.push(Reverse(read(&mut drive, rng.below(1 << 20), 1, now)));
        }
        (drive.counts.read_latencies.sum().0 as f64 / requests as f64, (requests - depth) as f64 / now as f64)
    }

    #[test]
    fn one_request_takes_controller_and_unit() {
        let mut drive = Drive::new(&config(), CLOCK);
        assert_eq!(read(&mut drive, 3, 1, 5000), 5000 + 1000 + 60_000);
        let later = 10_000_000;
        assert_eq!(write(&mut drive, 3, 1, later), later + 1000 + 10_000, "the buffer answers");
        let half = Clock { mhz: 500 };
        let at = Drive::new(&config(), half).submit(DeviceRequest::read(Lba(0), 1), Cycles::ZERO).at;
        assert_eq!(at, Cycles(30_500), "times are not cycles");
    }

    #[test]
    fn blocks_that_follow_each_other_are_on_units_that_do() {
        let mut drive = Drive::new(&config(), CLOCK);
        // Sixteen units serve sixteen blocks in parallel, after the controller has transferred them one by one.
        assert_eq!(read(&mut drive, 5, 16, 0), 1000 + 15 * 500 + 60_000);
        // The seventeenth block is on the first block's unit.
        assert_eq!(read(&mut drive, 0, 17, 1_000_000), 1_000_000 + 1000 + 16 * 500 + 2 * 60_000);
        assert_eq!(["reads", "reads.blocks"].map(|name| measured(&drive, name)), [2, 33]);
        // Stripes of four: eight blocks from the third on cover three units.
        let striped = DriveConfig { stripe_blocks: 4, units: 2, ..config() };
        let drive = Drive::new(&striped, CLOCK);
        let stripes: Vec<_> = drive.stripes(DeviceRequest::read(Lba(3), 8)).collect();
        assert_eq!(stripes, [(0, 1), (1, 4), (0, 3)]);
    }

    #[test]
    fn reads_wait_for_what_their_unit_writes_and_writes_for_the_buffer() {
        let one = DriveConfig { units: 1, buffer_blocks: 2, ..config() };
        let mut drive = Drive::new(&one, CLOCK);
        assert_eq!(write(&mut drive, 0, 1, 0), 11_000);
        assert_eq!(read(&mut drive, 9, 1, 20_000), 1000 + 200_000 + 60_000, "behind the write");
        let mut drive = Drive::new(&one, CLOCK);
        let answers = [0, 1, 2, 3].map(|block| write(&mut drive, block, 1, 0));
        // Two fit; the others enter when the first and the second are written.
        assert_eq!(answers, [11_000, 12_000, 201_000 + 10_000, 401_000 + 10_000]);
    }

    /// Sweep of an NVMe drive's queue depth: requests per second rise up to the units' maximum, and latency times rate
    /// is the number of outstanding requests (Little's law).
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
        // A controller that passes one request per 10 µs is the bottleneck.
        let slow = DriveConfig { controller_ns: 10_000, ..config };
        let (_, rate) = closed_loop(&slow, 256, requests);
        assert!((rate * 10_000.0 - 1.0).abs() < 0.01, "{rate}");
        // Requests beyond a queue depth of four wait; the throughput is that of four.
        let shallow = DriveConfig { queue_depth: 4, ..config };
        let ((_, of_four), (_, of_many)) = (closed_loop(&config, 4, requests), closed_loop(&shallow, 64, requests));
        assert!((of_many / of_four - 1.0).abs() < 0.03, "{of_many}, {of_four}");
    }

    #[test]
    fn some_reads_are_slow_and_some_requests_fail() {
        let config =
            DriveConfig { slow_per_million: 10_000, slow_ns: 1_000_000, errors_per_million: 20_000, ..config() };
        let mut drive = Drive::new(&config, CLOCK);
        let failed = |n: u64| drive.submit(DeviceRequest::read(Lba(n), 1), Cycles(n * 2_000_000)).failed;
        let failed = (0..20_000).map(failed).filter(|&failed| failed).count() as u64;
        let slow = measured(&drive, "slow_reads");
        assert!((150..250).contains(&slow), "{slow} of 20,000");
        assert!((340..460).contains(&failed) && measured(&drive, "errors") == failed, "{failed} of 20,000");
        let [median, slowest] = ["reads.p50", "reads.p999"].map(|name| measured(&drive, name));
        assert!((60_900..61_100).contains(&median), "{median}");
        assert!((1_060_000..1_063_000).contains(&slowest), "{slowest}");
    }

    #[test]
    fn several_drives_serve_side_by_side() {
        let two = DriveConfig { units: 1, drives: 2, chunk_blocks: 4, ..config() };
        let mut drive = Drive::new(&two, CLOCK);
        let alone = 1000 + 60_000;
        assert_eq!([0, 4, 8, 12].map(|block| read(&mut drive, block, 1, 0)), [alone, alone, 121_000, 121_000]);
        assert_eq!(write(&mut drive, 3, 1, 1_000_000), 1_011_000);
        assert_eq!(read(&mut drive, 4, 1, 1_010_000), 1_010_000 + alone, "the write is on the other drive");
        // Six blocks from the third on: two on one drive, four on the other.
        let later = 10_000_000;
        assert_eq!(read(&mut drive, 2, 6, later), later + 1000 + 3 * 500 + 4 * 60_000);
        assert_eq!(["drive.0.requests", "drive.1.requests"].map(|name| measured(&drive, name)), [4, 4]);
        assert_eq!(["requests", "reads.blocks"].map(|name| measured(&drive, name)), [8, 11]);
    }

    #[test]
    fn several_drives_hold_whole_chunks() {
        let capacity = |drives, blocks: u64| {
            let capacity_bytes = Some(Bytes(blocks * FRAME_BYTES));
            let config = DriveConfig { drives, chunk_blocks: 4, capacity_bytes, ..config() };
            Drive::validate(&config, "storage").map(|()| Drive::capacity(&config).expect("it is given").0 / FRAME_BYTES)
        };
        assert_eq!([(1, 3), (1, 11), (2, 11)].map(|(drives, each)| capacity(drives, each).unwrap()), [3, 11, 16]);
        let refused = capacity(2, 3).unwrap_err().to_string();
        assert!(refused.contains("storage.capacity_bytes") && refused.contains("16384"), "{refused}");
    }
}
