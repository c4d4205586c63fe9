//! Statistics of all elastic cuckoo tables of a layer.

use super::way::{FRAME_LINES_SHIFT, WAYS};
use super::{ElasticCuckoo, ElasticCuckooConfig};
use crate::page_table::{Boot, SetAside, Shared};
use pagelab_base::addr::FRAME_BYTES;
use pagelab_base::error::EngineError;
use pagelab_base::measure::Measure;
use pagelab_base::memory::PhysMem;

/// Statistics of insertions.
#[derive(Clone, Copy, Debug, Default)]
pub struct CuckooCounters {
    /// Inserted lines.
    pub inserted: u64,
    /// Displaced lines.
    pub displaced: u64,
    /// Lines that a resize moved.
    pub rehashed: u64,
    pub upsizes: u64,
    pub downsizes: u64,
    /// Maximum number of lines in use in one table.
    pub most_used: u64,
    /// Number of frames of the largest way.
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

    /// Number of lines of the largest table.
    pub fn most_lines(&self) -> u64 {
        (WAYS as u64 * self.way_frames) << FRAME_LINES_SHIFT
    }
}

impl Shared<ElasticCuckoo> for CuckooCounters {
    fn boot(_: &ElasticCuckooConfig, boot: &Boot, _: &mut PhysMem) -> Result<(Self, SetAside), EngineError> {
        Ok((Self::default(), SetAside::nothing(boot)))
    }

    /// Sizes of the tables and work of their insertions.
    fn statistics(&self, _: &PhysMem) -> Vec<Measure> {
        let Self { inserted, displaced, rehashed, upsizes, downsizes, most_used, way_frames } = *self;
        vec![
            Measure::number("slots", self.most_lines(), "Lines of the largest elastic cuckoo table of the run"),
            Measure::number("slots.used", most_used, "Maximum number of lines in use in one table"),
            Measure::state("way_bytes", way_frames * FRAME_BYTES, "bytes", "Largest contiguous block used for a way"),
            Measure::count("inserted", inserted, "Lines inserted into an elastic cuckoo table"),
            Measure::count("displaced", displaced, "Lines displaced by these insertions and by moved lines"),
            Measure::count("rehash.count", upsizes + downsizes, "Resizes begun"),
            Measure::count("rehash.smaller", downsizes, "Resizes to a smaller table"),
            Measure::count("rehash.lines", rehashed, "Lines moved by resizes"),
        ]
    }
}
