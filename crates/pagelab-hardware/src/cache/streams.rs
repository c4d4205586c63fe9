//! Streams: operations on many whole lines, at the rates of the levels that their lines come from and go to.
//!
//! Models: zeroing and copying of pages, by instructions such as `rep stosb` and `rep movsb`. A line begins once the
//! one before it has passed the level that serves it, at that level's bytes per cycle. At most
//! `machine.cache.bulk_parallelism` lines are in flight. A line is in flight for its latency, and until memory has
//! taken the modified lines that it evicts. So where memory has a bandwidth, a long stream is as slow as its channel,
//! and the operation waits for it rather than the program after it. A cached store takes ownership of its line without
//! reading it. A non-temporal store writes the line to memory, and no cache keeps a copy.
//! Source: Little's law for lines in flight; Intel, "Optimization Reference Manual" (248966), on enhanced `rep movsb`
//! and `rep stosb`, for stores of whole lines without a read. Linux's commit cb431accb36e ("x86: Introduce
//! clear_pages()") reports that AMD Milan clears 4 KiB and 2 MiB at a time at 13.7 and 15.1 GB/s, but 1 GiB at 38.1
//! GB/s (read in an account of the commit, not in its log). That the last leaves no lines in the caches is our reading.
//! Parameters: `machine.bulk`, `machine.cache.bulk_parallelism`, `machine.memory`.
//! Stats: none of its own; `memory.*` and `cache.bulk_lines` count the lines.
//! Deviations: a copy reads its source before it writes the copy. The rates of a level are those of one core; cores
//! share memory's channels, but no bandwidth of an L3. A stream occupies no fill buffers of the program.

use pagelab_trace::quantity::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::config::CacheConfigError;
use super::memory::MemoryConfig;
use pagelab_base::addr::{LINE_BYTES, LINE_SHIFT};
use pagelab_base::cycles::Cycles;

/// Times of a stream are kept in units of 1/256 cycle.
const TIME_SHIFT: u32 = 8;
/// More lines in flight than this make no difference.
const MOST_IN_FLIGHT: u32 = 1 << 12;

/// What an operation on many whole lines costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BulkCost {
    /// The sum of the lines' latencies, divided by `machine.cache.bulk_parallelism`. Memory's bandwidth is not waited
    /// for.
    Latency,
    /// What the bandwidth of the levels and of memory allows.
    Bandwidth,
}

/// Operations on many whole lines: zeroing and copying of pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BulkConfig {
    /// What they cost. Default: `bandwidth` if memory has a bandwidth (`machine.memory`), otherwise `latency`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<BulkCost>,
    /// With `bandwidth`: bytes that a core writes per cycle to lines of a level.
    pub store_bytes_per_cycle: StoreRates,
    /// With `bandwidth`: bytes that a core reads per cycle from a level.
    pub load_bytes_per_cycle: LoadRates,
    /// With `bandwidth`: smallest operation whose stores are non-temporal. Default: all stores are cached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub non_temporal_bytes: Option<Bytes>,
}

/// Bytes that a core writes per cycle to lines that a level holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StoreRates {
    /// Default 32, a store of 32 bytes per cycle.
    pub l1: f64,
    /// Default 9.7: 6.6 cycles per line, measured on Westmere by 7-cpu.
    pub l2: f64,
    /// Default 9.7 (estimated: as for the L2).
    pub l3: f64,
    /// For lines that no cache holds. Default 9.7 (estimated: as for the L2).
    pub memory: f64,
    /// For non-temporal stores. Default: as for lines that no cache holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub non_temporal: Option<f64>,
}

impl Default for StoreRates {
    fn default() -> Self {
        Self { l1: 32.0, l2: 9.7, l3: 9.7, memory: 9.7, non_temporal: None }
    }
}

/// Bytes that a core reads per cycle from lines that a level holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LoadRates {
    /// Default 32, a load of 32 bytes per cycle.
    pub l1: f64,
    /// Default 16.8: 3.8 cycles per line, measured on Westmere by 7-cpu.
    pub l2: f64,
    /// Default 12.3: 5.2 cycles per line, measured on Westmere by 7-cpu.
    pub l3: f64,
    /// Default 12.3 (estimated: as for the L3).
    pub memory: f64,
}

impl Default for LoadRates {
    fn default() -> Self {
        Self { l1: 32.0, l2: 16.8, l3: 12.3, memory: 12.3 }
    }
}

impl BulkConfig {
    /// Whether nothing is configured.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// What operations on many lines cost in a machine with this memory.
    pub fn cost(&self, memory: &MemoryConfig) -> BulkCost {
        let has_bandwidth =
            memory.bytes_per_cycle.is_some() || memory.nodes.iter().any(|node| node.bytes_per_cycle.is_some());
        self.cost.unwrap_or(if has_bandwidth { BulkCost::Bandwidth } else { BulkCost::Latency })
    }

    /// Refuses impossible rates. Keys are relative to `machine.bulk`.
    ///
    /// # Errors
    /// The first key with an impossible value, and what would be possible.
    pub fn validate(&self) -> Result<(), CacheConfigError> {
        let (store, load) = (&self.store_bytes_per_cycle, &self.load_bytes_per_cycle);
        let stores = [("l1", store.l1), ("l2", store.l2), ("l3", store.l3), ("memory", store.memory)];
        let loads = [("l1", load.l1), ("l2", load.l2), ("l3", load.l3), ("memory", load.memory)];
        let non_temporal = store.non_temporal.map(|rate| ("non_temporal", rate));
        for (kind, rates, more) in [("store", stores, non_temporal), ("load", loads, None)] {
            for (level, rate) in rates.into_iter().chain(more) {
                if !(1.0 / 64.0..=4096.0).contains(&rate) {
                    let what = format!("{rate} is out of range; allowed are 1/64 to 4096 bytes");
                    return Err(CacheConfigError::new(format!("{kind}_bytes_per_cycle.{level}"), what));
                }
            }
        }
        if let Some(least) = self.non_temporal_bytes.filter(|least| least.0 < LINE_BYTES) {
            let what = format!("{least} is less than a line; allowed are 64 bytes and more");
            return Err(CacheConfigError::new("non_temporal_bytes", what));
        }
        Ok(())
    }
}

/// What a stream does with a line, and the index of the place where it was (`HitLevel`).
#[derive(Clone, Copy, Debug)]
pub(super) enum StreamLine {
    Load(usize),
    Store(usize),
    NonTemporal,
}

/// Where a bulk write found its lines, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct LineRuns(Vec<LineRun>);

/// Consecutive lines of a bulk write that were in one place.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineRun {
    /// Index of that place (`HitLevel`).
    pub found: usize,
    /// Whether other cores lost their copies.
    pub upgraded: bool,
    pub lines: u64,
}

impl LineRuns {
    /// Adds the next lines.
    #[inline(always)]
    pub fn push(&mut self, found: usize, upgraded: bool, lines: u64) {
        match self.0.last_mut() {
            Some(last) if (last.found, last.upgraded) == (found, upgraded) => last.lines += lines,
            _ => self.0.push(LineRun { found, upgraded, lines }),
        }
    }

    /// Takes all runs out, in order.
    #[inline(always)]
    pub fn drain(&mut self) -> impl Iterator<Item = LineRun> {
        self.0.drain(..)
    }
}

/// Times per line of streams, and the lines in flight of the current one.
#[derive(Clone, Debug)]
pub(super) struct Streams {
    /// Of lines in L1, L2, L3, another core and memory, as [`HitLevel`](super::HitLevel) has them; in units of
    /// 1 / 2^[`TIME_SHIFT`] cycle.
    store: [u64; 5],
    load: [u64; 5],
    /// Of lines that non-temporal stores write.
    non_temporal: u64,
    /// Lines of the smallest operation whose stores are non-temporal.
    pub(super) least_non_temporal: u64,
    in_flight: InFlight,
}

/// The lines of a stream, in the same units of time from its start on.
#[derive(Clone, Debug)]
struct InFlight {
    /// When the last lines are complete, as a ring.
    done: Vec<u64>,
    next: usize,
    /// When the next line can begin, apart from those in flight.
    free: u64,
    last: u64,
}

impl Streams {
    pub(super) fn new(config: &BulkConfig, parallelism: u32) -> Self {
        let time = |rate: f64| (LINE_BYTES as f64 * f64::from(1 << TIME_SHIFT) / rate).round().max(1.0) as u64;
        let (store, load) = (&config.store_bytes_per_cycle, &config.load_bytes_per_cycle);
        // A line of another core comes by the way of the L3.
        let times = |l1, l2, l3, memory| [l1, l2, l3, l3, memory].map(time);
        let done = vec![0; parallelism.min(MOST_IN_FLIGHT) as usize];
        Self {
            store: times(store.l1, store.l2, store.l3, store.memory),
            load: times(load.l1, load.l2, load.l3, load.memory),
            non_temporal: time(store.non_temporal.unwrap_or(store.memory)),
            least_non_temporal: config.non_temporal_bytes.map_or(u64::MAX, |least| least.0 >> LINE_SHIFT),
            in_flight: InFlight { done, next: 0, free: 0, last: 0 },
        }
    }

    /// Begins a stream.
    pub(super) fn begin(&mut self) {
        let InFlight { done, next, free, last } = &mut self.in_flight;
        done.fill(0);
        (*next, *free, *last) = (0, 0, 0);
    }

    /// When the next line begins, in whole cycles from the stream's start on.
    pub(super) fn start(&mut self) -> Cycles {
        let InFlight { done, next, free, .. } = &mut self.in_flight;
        *free = (*free).max(done[*next]);
        Cycles(*free >> TIME_SHIFT)
    }

    /// How long a line passes.
    fn time(&self, line: StreamLine) -> u64 {
        match line {
            StreamLine::Load(found) => self.load[found],
            StreamLine::Store(found) => self.store[found],
            StreamLine::NonTemporal => self.non_temporal,
        }
    }

    /// Adds the line that has [started](Self::start), takes `latency`, and whose victims memory has taken at `written`,
    /// from the stream's start on.
    pub(super) fn add(&mut self, line: StreamLine, latency: Cycles, written: Cycles) {
        let time = self.time(line);
        let InFlight { done, next, free, last } = &mut self.in_flight;
        let end = (*free + time.max(latency.0 << TIME_SHIFT)).max(written.0 << TIME_SHIFT);
        done[*next] = end;
        *next = (*next + 1) % done.len();
        *free += time;
        *last = (*last).max(end);
    }

    /// Adds `lines` lines for which memory writes nothing. Each of them starts when it can and takes `latency`.
    pub(super) fn add_run(&mut self, line: StreamLine, latency: Cycles, lines: u64) {
        if self.in_flight.last > 0 || lines == 0 {
            for _ in 0..lines {
                self.start();
                self.add(line, latency, Cycles::ZERO);
            }
            return;
        }
        // A line waits for the one before it to pass, and for the end of the one that is a whole ring before it. So
        // line n starts after the larger of n passes, or n / ring ends and n % ring passes.
        let time = self.time(line);
        let length = time.max(latency.0 << TIME_SHIFT);
        let InFlight { done, next, free, last } = &mut self.in_flight;
        let ring = done.len() as u64;
        let start = |n: u64| (n * time).max(n / ring * length + n % ring * time);
        for n in lines.saturating_sub(ring)..lines {
            done[(n % ring) as usize] = start(n) + length;
        }
        *next = (lines % ring) as usize;
        (*free, *last) = (start(lines - 1) + time, start(lines - 1) + length);
    }

    /// Cycles of the stream.
    pub(super) fn end(&self) -> Cycles {
        Cycles(self.in_flight.last.div_ceil(1 << TIME_SHIFT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_base::rng::Rng;

    fn streams(parallelism: u32) -> Streams {
        let load_bytes_per_cycle = LoadRates { l1: 64.0, l2: 10.0, l3: 8.0, memory: 4.0 };
        Streams::new(&BulkConfig { load_bytes_per_cycle, ..BulkConfig::default() }, parallelism)
    }

    fn cycles(streams: &mut Streams, line: StreamLine, latency: u64, lines: u64) -> u64 {
        streams.begin();
        for _ in 0..lines {
            streams.start();
            streams.add(line, Cycles(latency), Cycles::ZERO);
        }
        streams.end().0
    }

    #[test]
    fn a_stream_takes_its_bytes_by_the_rate_or_the_latency_of_the_lines_in_flight() {
        let mut many = streams(100);
        // 6.4 and 16 cycles per line, then the rest of the last line's latency.
        let memory = StreamLine::Load(4);
        assert!(cycles(&mut many, StreamLine::Load(1), 1, 1000).abs_diff(6400) <= 1, "whole cycles");
        assert_eq!(cycles(&mut many, memory, 100, 1000), 999 * 16 + 100);
        let mut two = streams(2);
        assert_eq!(cycles(&mut two, memory, 100, 1000), 500 * 100 + 16);
        assert_eq!(cycles(&mut two, memory, 100, 0), 0);
    }

    #[test]
    fn runs_of_lines_take_as_long_as_their_lines_one_by_one() {
        let mut rng = Rng::new(7, "runs");
        for _ in 0..2000 {
            let mut by_line = streams(1 + rng.below(12) as u32);
            by_line.begin();
            let mut by_run = by_line.clone();
            for _ in 0..1 + rng.below(4) {
                let (line, latency) = (StreamLine::Load(rng.below(5) as usize), Cycles(rng.below(200)));
                let lines = rng.below(40);
                for _ in 0..lines {
                    by_line.start();
                    by_line.add(line, latency, Cycles::ZERO);
                }
                by_run.add_run(line, latency, lines);
                assert_eq!(by_run.end(), by_line.end(), "{lines} lines of {latency:?}");
                assert_eq!(by_run.start(), by_line.start(), "{lines} lines of {latency:?}");
            }
        }
    }

    #[test]
    fn non_temporal_stores_have_the_rate_of_memory_unless_they_have_their_own() {
        for (non_temporal, cycles_per_line) in [(None, 32), (Some(8.0), 8)] {
            let rates = StoreRates { memory: 2.0, non_temporal, ..StoreRates::default() };
            let mut streams = Streams::new(&BulkConfig { store_bytes_per_cycle: rates, ..BulkConfig::default() }, 100);
            assert_eq!(cycles(&mut streams, StreamLine::NonTemporal, 1, 1000), 1000 * cycles_per_line);
            assert_eq!(cycles(&mut streams, StreamLine::Store(4), 1, 1000), 1000 * 32);
        }
    }

    #[test]
    fn a_line_is_in_flight_until_memory_has_taken_its_victims() {
        let mut streams = streams(4);
        streams.begin();
        let starts: Vec<u64> = (1..=8)
            .map(|line| {
                let start = streams.start();
                streams.add(StreamLine::Store(0), Cycles(4), Cycles(line * 50));
                start.0
            })
            .collect();
        assert_eq!(starts, [0, 2, 4, 6, 50, 100, 150, 200]);
        assert_eq!(streams.end(), Cycles(400));
    }

    #[test]
    fn impossible_rates_are_refused() {
        let message = |change: fn(&mut BulkConfig)| {
            let mut config = BulkConfig::default();
            change(&mut config);
            config.validate().unwrap_err().to_string()
        };
        let text = "store_bytes_per_cycle.l3: 0 is out of range; allowed are 1/64 to 4096 bytes";
        assert_eq!(message(|c| c.store_bytes_per_cycle.l3 = 0.0), text);
        let text = "load_bytes_per_cycle.memory: NaN is out of range; allowed are 1/64 to 4096 bytes";
        assert_eq!(message(|c| c.load_bytes_per_cycle.memory = f64::NAN), text);
        let text = "store_bytes_per_cycle.non_temporal: 100000 is out of range; allowed are 1/64 to 4096 bytes";
        assert_eq!(message(|c| c.store_bytes_per_cycle.non_temporal = Some(1e5)), text);
        let text = "non_temporal_bytes: 63B is less than a line; allowed are 64 bytes and more";
        assert_eq!(message(|c| c.non_temporal_bytes = Some(Bytes(63))), text);
    }
}
