//! Stream prefetch: runs ahead of requests for consecutive lines.
//!
//! Models: a set of stream trackers with LRU replacement. A request that belongs to no stream starts one. `train`
//! consecutive requests for adjacent lines, including the first, determine its direction. From then on, each request
//! between the stream's last request and the last fetched line advances the stream, and fetches up to `degree` lines,
//! at most `depth` lines ahead of the request. A stream ends at the border: the next page trains a tracker of its own,
//! also if its frame adjoins.
//! Source: Jouppi, "Improving Direct-Mapped Cache Performance by the Addition of a Small Fully-Associative Cache and
//! Prefetch Buffers", ISCA 1990: streams. Palacharla and Kessler, "Evaluating Stream Buffers as a Secondary Cache
//! Replacement", ISCA 1994: two misses of adjacent lines before one begins. The default numbers are those of Intel's
//! streamer: 32 streams, forward or backward, two lines per request, 20 lines ahead (Intel 64 and IA-32 Architectures
//! Optimization Reference Manual, "Data Prefetching", Sandy Bridge).
//! Parameters: `streams` (32), `train` (2), `degree` (2), `depth` (20), `border` (`4KiB`: Intel's streamer "does not
//! prefetch across 4K boundary", "independent of paging modes"; the same manual, "Optimizing Cache Usage"; it
//! "maintains one forward or backward stream per 4K page").
//! Stats: those of every level (`prefetch.LEVEL.*`).
//! Deviations: lines are fetched into the cache, not into separate buffers. Requests that hit also train, as in Intel's
//! streamer.

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Border, CacheConfigError, Demand, MAX_DEGREE, Prefetcher, Proposals, between};

/// Parameters of the stream prefetcher.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StreamConfig {
    /// Number of streams that it tracks, 1 to 256.
    pub streams: u32,
    /// Consecutive requests for adjacent lines before it fetches, 2 to 255.
    pub train: u32,
    /// Lines that it fetches per request, 1 to 32.
    pub degree: u32,
    /// Maximum distance of fetched lines from the request, in lines, 1 to 256.
    pub depth: u32,
    /// The boundary that prefetches do not cross.
    pub border: Border,
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self { streams: 32, train: 2, degree: 2, depth: 20, border: Border::Smallest }
    }
}

/// A stream of requests.
#[derive(Clone, Copy, Debug, Default)]
struct Tracker {
    /// Consecutive requests; 0 for an unused tracker.
    seen: u32,
    /// Line of the last request.
    last: u64,
    /// 1 upwards, -1 downwards, 0 after a single request.
    direction: i64,
    /// How many lines beyond the last request have been fetched, once the stream is trained.
    ahead: i64,
}

impl Tracker {
    /// Distance of a line from the last request in the stream's direction. Without a direction it is the absolute
    /// distance.
    fn way_to(&self, line: u64) -> i64 {
        let way = line.wrapping_sub(self.last) as i64;
        if self.direction == 0 { way.wrapping_abs() } else { way.wrapping_mul(self.direction) }
    }
}

/// The stream prefetcher. Trackers are in recency order.
#[derive(Clone, Debug)]
pub struct Stream {
    config: StreamConfig,
    trackers: Vec<Tracker>,
}

impl Stream {
    /// The tracker of a request's stream, moved to the front. A stream lies within these lines.
    fn find(&mut self, line: u64, within: &Range<u64>) -> Option<&mut Tracker> {
        let train = self.config.train;
        let is_of = |tracker: &Tracker| {
            let reach = if tracker.seen >= train { tracker.ahead.max(1) } else { 1 };
            tracker.seen > 0 && within.contains(&tracker.last) && (0..=reach).contains(&tracker.way_to(line))
        };
        let at = self.trackers.iter().position(is_of)?;
        self.trackers[..=at].rotate_right(1);
        Some(&mut self.trackers[0])
    }
}

impl Prefetcher for Stream {
    type Parameters = StreamConfig;

    fn new(parameters: &StreamConfig) -> Self {
        Self { config: *parameters, trackers: vec![Tracker::default(); parameters.streams as usize] }
    }

    fn validate(parameters: &StreamConfig) -> Result<(), CacheConfigError> {
        between("streams", parameters.streams, 1, 256)?;
        between("train", parameters.train, 2, u8::MAX.into())?;
        between("degree", parameters.degree, 1, MAX_DEGREE)?;
        between("depth", parameters.depth, 1, 256)
    }

    fn samples() -> Vec<StreamConfig> {
        vec![
            StreamConfig::default(),
            StreamConfig { streams: 2, train: 3, degree: 8, depth: 4, border: Border::Mapping },
        ]
    }

    fn border(&self) -> Border {
        self.config.border
    }

    fn demand(&mut self, demand: &Demand, proposals: &mut Proposals) {
        let (line, StreamConfig { train, degree, depth, .. }) = (demand.line(), self.config);
        let Some(tracker) = self.find(line, &demand.within(self.config.border)) else {
            self.trackers.rotate_right(1);
            self.trackers[0] = Tracker { seen: 1, last: line, ..Tracker::default() };
            return;
        };
        let moved = tracker.way_to(line);
        if moved == 0 {
            return;
        }
        if tracker.direction == 0 {
            tracker.direction = (line.wrapping_sub(tracker.last) as i64).signum();
        }
        tracker.seen = (tracker.seen + 1).min(train);
        tracker.last = line;
        tracker.ahead = (tracker.ahead - moved).max(0);
        if tracker.seen < train {
            return;
        }
        let end = (tracker.ahead + i64::from(degree)).min(depth.into());
        while tracker.ahead < end {
            if !proposals.push(line.checked_add_signed(tracker.direction * (tracker.ahead + 1))) {
                break;
            }
            tracker.ahead += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_support::proposed;
    use super::*;
    use pagelab_base::addr::PageSize::{Size2M, Size4K};

    const MISS: [bool; 2] = [true, false];

    fn prefetcher(config: StreamConfig) -> Stream {
        Stream::validate(&config).unwrap();
        Stream::new(&config)
    }

    #[test]
    fn it_trains_and_then_runs_ahead_to_its_depth() {
        let mut stream = prefetcher(StreamConfig { train: 3, degree: 2, depth: 5, ..StreamConfig::default() });
        let mut at = |line: u64| proposed(&mut stream, Size2M, 0, line * 64, MISS).0;
        assert_eq!([at(100), at(101)], [[0; 0], [0; 0]]);
        assert_eq!(at(102), [103, 104]);
        assert_eq!(at(102), [0; 0], "the same line moves nothing");
        assert_eq!(at(103), [105, 106]);
        assert_eq!(at(104), [107, 108]);
        assert_eq!(at(105), [109, 110]);
        assert_eq!(at(106), [111], "five lines ahead and no more");
        // A request may skip lines within the prefetched range.
        assert_eq!(at(109), [112, 113]);
    }

    #[test]
    fn it_follows_descending_streams_and_separates_streams() {
        let mut stream = prefetcher(StreamConfig { streams: 2, degree: 1, depth: 1, ..StreamConfig::default() });
        let mut at = |line: u64| proposed(&mut stream, Size2M, 0, line * 64, MISS).0;
        assert_eq!([at(100), at(500)], [[0; 0], [0; 0]]);
        assert_eq!([at(99), at(501)], [[98], [502]]);
        assert_eq!([at(98), at(502)], [[97], [503]]);
        assert_eq!(at(900), [0; 0], "instead of the one that went down");
        assert_eq!([at(97), at(503)], [[0; 0], [0; 0]], "each instead of another");
        assert_eq!(at(504), [505]);
    }

    #[test]
    fn it_trains_anew_behind_the_border() {
        let mut stream = prefetcher(StreamConfig { degree: 4, depth: 4, ..StreamConfig::default() });
        let mut at = |line: u64| proposed(&mut stream, Size2M, 0, line * 64, MISS).0;
        assert_eq!(at(61), [0; 0]);
        assert_eq!([at(62), at(63)], [vec![63], vec![]]);
        assert_eq!(at(64), [0; 0], "the frame adjoins");
        assert_eq!(at(65), [66, 67, 68, 69]);
        let mut stream = prefetcher(StreamConfig { degree: 1, border: Border::Mapping, ..StreamConfig::default() });
        let mut at = |line: u64| proposed(&mut stream, Size2M, 0, line * 64, MISS).0;
        assert_eq!([at(62), at(63), at(64)], [vec![], vec![64], vec![65]], "within a page of 2 MiB");
    }

    #[test]
    fn it_stops_at_the_border() {
        let mut stream = prefetcher(StreamConfig { degree: 4, depth: 4, ..StreamConfig::default() });
        let mut at = |line: u64| proposed(&mut stream, Size4K, 0, line * 64, MISS);
        at(59);
        assert_eq!(at(60), (vec![61, 62, 63], 1));
        assert_eq!(at(61), (vec![], 1));
        for (border, expected) in
            [(Border::Mapping, (vec![61, 62, 63, 64], 0)), (Border::Smallest, (vec![61, 62, 63], 1))]
        {
            let mut stream = prefetcher(StreamConfig { degree: 4, depth: 4, border, ..StreamConfig::default() });
            proposed(&mut stream, Size2M, 0, 59 * 64, MISS);
            assert_eq!(proposed(&mut stream, Size2M, 0, 60 * 64, MISS), expected, "{border:?}");
        }
        let mut down = prefetcher(StreamConfig { degree: 4, depth: 4, ..StreamConfig::default() });
        proposed(&mut down, Size4K, 0, 192, MISS);
        assert_eq!(proposed(&mut down, Size4K, 0, 128, MISS), (vec![1, 0], 1));
    }
}
