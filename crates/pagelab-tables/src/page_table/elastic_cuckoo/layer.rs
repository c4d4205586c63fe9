//! What the elastic cuckoo tables of a layer did, all together.

use super::way::FRAME_LINES_SHIFT;
use super::{ElasticCuckoo, ElasticCuckooConfig, WAYS};
use crate::page_table::{Boot, Measure, SetAside, Shared, Statistic};
use pagelab_base::addr::FRAME_BYTES;
use pagelab_base::error::EngineError;
use pagelab_base::memory::PhysMem;

/// What insertions did.
#[derive(Clone, Copy, Debug, Default)]
pub struct CuckooCounters {
    /// Lines that got a place.
    pub inserted: u64,
    /// Lines that had to make room.
    pub displaced: u64,
    /// Lines that moved to a table of another size.
    pub rehashed: u64,
    pub upsizes: u64,
    pub downsizes: u64,
    /// The most lines in use in a table.
    pub most_used: u64,
    /// Frames of the largest way.
    pub way_frames: u64,
}

impl CuckooCounters {
    pub fn add(&mut self, more: Self) {
        let Self { inserted, displaced, rehashed, upsizes, downsizes, most_used, way_frames } = more;
        self.inserted += inserted;
        self.displaced += displaced;
        self.rehashed += rehashed;
        self.upsizes += upsizes;
        self.downsizes += downsizes;
        self.most_used = self.most_used.max(most_used);
        self.way_frames = self.way_frames.max(way_frames);
    }

    /// Lines of the largest table.
    pub fn most_lines(&self) -> u64 {
        (WAYS as u64 * self.way_frames) << FRAME_LINES_SHIFT
    }
}

impl Shared<ElasticCuckoo> for CuckooCounters {
    fn boot(_: &ElasticCuckooConfig, boot: &Boot, _: &mut PhysMem) -> Result<(Self, SetAside), EngineError> {
        Ok((Self::default(), SetAside::nothing(boot)))
    }

    /// How large the tables became, and what their insertions did.
    fn statistics(&self, _: &PhysMem) -> Vec<Statistic> {
        let Self { inserted, displaced, rehashed, upsizes, downsizes, most_used, way_frames } = *self;
        let state = |name, value, unit, text| Statistic { name, value, unit, measure: Measure::State, text };
        let count = |name, value, text| Statistic { name, value, unit: "count", measure: Measure::Count, text };
        vec![
            state("slots", self.most_lines(), "count", "Lines of the largest elastic cuckoo table that there was"),
            state("slots.used", most_used, "count", "The most lines that a table had in use"),
            state("way_bytes", way_frames * FRAME_BYTES, "bytes", "The largest contiguous block that a way took"),
            count("inserted", inserted, "Lines that got a place in an elastic cuckoo table"),
            count("displaced", displaced, "Lines that made room for them or for those that moved"),
            count("rehash.count", upsizes + downsizes, "Times that a table began to move to one of another size"),
            count("rehash.smaller", downsizes, "Times among them that it was to a smaller one"),
            count("rehash.lines", rehashed, "Lines that moved"),
        ]
    }
}
