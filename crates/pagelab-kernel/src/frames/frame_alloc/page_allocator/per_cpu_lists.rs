//! The lists of free frames of a zone that each CPU has: how many frames they take from the zone at a time, and how
//! many they give back.
//!
//! # Models
//! A CPU that finds its list empty takes a batch from the zone under its lock. A CPU whose lists reach a limit gives
//! some frames back under that lock. By the rules of the kernel, both are fixed, or the batch grows while a CPU only
//! allocates or only frees, and is halved by each step in the other direction. With the rules of Linux 6.12, the limit
//! rises with either, and falls while the zone is short.
//!
//! # Source
//! `mm/page_alloc.c`. Linux 4.9 and 4.19: `zone_batchsize`, `pageset_set_batch`, `free_hot_cold_page` and
//! `free_unref_page_commit`. Linux 6.1: `zone_highsize`, `nr_pcp_free` (`free_factor`, since 5.14). Linux 6.12:
//! `nr_pcp_alloc` (`alloc_factor`, since 6.7), `nr_pcp_free`, `nr_pcp_high`, `zone_set_pageset_high_and_batch`,
//! `ZONE_BELOW_HIGH`.
//!
//! # Parameters
//! `kernel.per_cpu_lists`, `system.layers.NAME.frame_allocator.pcp`.
//!
//! # Deviations from the source
//! - About once a second, Linux 6.12 lowers the limit of every CPU by an eighth, down to the low one, and frees what is
//!   beyond it (`decay_pcp_high`). Here, limits fall only while the zone is short, so memory on the lists of an idle
//!   CPU stays there.
//! - A zone is short if a request that it serves leaves less than its high watermark free. Linux sets `ZONE_BELOW_HIGH`
//!   also for a zone that it then skips, or that has no block of the requested order.
//! - Limits do not fall because reclaim is at work (`ZONE_RECLAIM_ACTIVE`).
//! - In zones under 32 MiB, Linux 4.9 and 4.19 give each freed frame back at once. Here, lists hold six.
//! - The rules for frames of larger orders (`PCPF_FREE_HIGH_BATCH`) are missing, since the lists hold single frames.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::free_area::Index;
use super::super::{FrameAllocError, MigrateType};
use pagelab_base::addr::FRAME_BYTES;

/// How far Linux doubles a batch of 4 KiB frames by default (`CONFIG_PCP_BATCH_SCALE_MAX`, since 6.7).
const BATCH_SCALE_MAX: u32 = 5;
/// Range of `CONFIG_PCP_BATCH_SCALE_MAX` (mm/Kconfig).
const MOST_BATCH_SCALE: u32 = 6;
/// Most frames of a batch or a limit that is set.
const MOST_FRAMES: u32 = 1 << 16;
/// The part of a zone that the lists of all its CPUs may hold (Linux 6.12 `MIN_PERCPU_PAGELIST_HIGH_FRACTION`).
const LEAST_HIGH_FRACTION: u64 = 8;

/// The rules by which the lists of free frames of a CPU exchange frames with their zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PerCpuLists {
    /// Batches of at most 31 frames, and lists of six batches.
    #[serde(rename = "linux-4.9")]
    Linux4_9,
    /// Batches of at most 63 frames, and lists of six batches (Linux 4.19 to 5.13).
    #[default]
    #[serde(rename = "linux-4.19")]
    Linux4_19,
    /// As in 4.19, but the limit of a list is the zone's low watermark divided by the CPUs, and a CPU that only frees
    /// gives back ever larger batches (Linux 5.14 to 6.6).
    #[serde(rename = "linux-6.1")]
    Linux6_1,
    /// As in 6.1. Besides, a CPU that only allocates takes ever larger batches, and the limit of its lists rises to an
    /// eighth of the zone, divided by the CPUs (since Linux 6.7).
    #[serde(rename = "linux-6.12")]
    Linux6_12,
}

impl PerCpuLists {
    /// Largest batch that a zone has by default.
    fn batch_bytes(self) -> u64 {
        match self {
            Self::Linux4_9 => 512 << 10,
            // Commit d8a759b57035.
            Self::Linux4_19 | Self::Linux6_1 | Self::Linux6_12 => 1 << 20,
        }
    }
}

/// The per-CPU page lists of each zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PcpConfig {
    /// By the rules of which kernel the lists exchange frames with the zone. By default `kernel.per_cpu_lists`.
    pub rules: Option<PerCpuLists>,
    /// Number of frames that are moved between a list and the zone at once, before a batch grows. Default as in
    /// `zone_batchsize`: 63 for a zone of 1 GiB or more (Linux 4.9: 31), less for a smaller one.
    pub batch: Option<u32>,
    /// Number of frames at which a CPU's lists return some. Default by the rules: six batches (Linux 4.9, 4.19); the
    /// zone's low watermark divided by the node's CPUs, at least four batches (6.1); from there to an eighth of the
    /// zone divided by the CPUs, as the CPU needs it (6.12). A number that is set is fixed.
    pub high: Option<u32>,
    /// With the rules of Linux 6.12: how often the batch of allocations may double. As many times a batch, at most, are
    /// given back at once of frames that were freed in a row (`CONFIG_PCP_BATCH_SCALE_MAX`, 0 to 6). Default 5.
    pub batch_scale_max: Option<u32>,
}

impl PcpConfig {
    /// Refuses numbers that are impossible for every zone.
    pub(super) fn check(&self) -> Result<(), FrameAllocError> {
        for (key, value, range) in [
            ("batch", self.batch, 1..=MOST_FRAMES),
            ("high", self.high, 1..=MOST_FRAMES),
            ("batch_scale_max", self.batch_scale_max, 0..=MOST_BATCH_SCALE),
        ] {
            if let Some(value) = value.filter(|value| !range.contains(value)) {
                let what = format!("{value} is out of range; allowed are {} to {}", range.start(), range.end());
                return Err(error(key, what));
            }
        }
        Ok(())
    }
}

fn error(key: &str, what: impl Into<String>) -> FrameAllocError {
    FrameAllocError::Config { key: format!("pcp.{key}"), what: what.into() }
}

/// The limits of all lists of a zone, in frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PcpLimits {
    rules: PerCpuLists,
    /// Frames that move between a list and the zone at a time, at first.
    pub(super) batch: u32,
    /// The range in which the number of frames lies at which a CPU gives some back.
    pub(super) high_min: u32,
    pub(super) high_max: u32,
    batch_scale_max: u32,
}

impl PcpLimits {
    /// The limits of a zone of `managed` frames with that low watermark, for the CPUs of its node.
    pub(super) fn new(config: &PcpConfig, managed: u64, low: u64, cpus: u64) -> Result<Self, FrameAllocError> {
        let rules = config.rules.unwrap_or_default();
        let batch = config.batch.unwrap_or_else(|| {
            let batch = ((managed >> 10).min(rules.batch_bytes() / FRAME_BYTES) / 4).max(1);
            let batch = batch + batch / 2;
            ((1 << batch.ilog2()) - 1).max(1)
        });
        let share = |frames: u64| ((frames / cpus) as u32).max(4 * batch);
        let (min, max) = match rules {
            PerCpuLists::Linux4_9 | PerCpuLists::Linux4_19 => (6 * batch, 6 * batch),
            PerCpuLists::Linux6_1 => (share(low), share(low)),
            PerCpuLists::Linux6_12 => (share(low), share(managed / LEAST_HIGH_FRACTION)),
        };
        // As with `percpu_pagelist_high_fraction`, a limit that is set does not move.
        let (high_min, high_max) = config.high.map_or((min, max.max(min)), |high| (high, high));
        if high_min < batch {
            let what = format!("{high_min} is less than the batch of {batch}; at least a batch is needed");
            return Err(error("high", what));
        }
        if config.batch_scale_max.is_some() && rules != PerCpuLists::Linux6_12 {
            let what = "the batch of these rules does not grow; set pcp.rules=linux-6.12, or remove it";
            return Err(error("batch_scale_max", what));
        }
        let batch_scale_max = config.batch_scale_max.unwrap_or(BATCH_SCALE_MAX);
        Ok(Self { rules, batch, high_min, high_max, batch_scale_max })
    }

    /// The most frames that move under one acquisition of the zone's lock.
    pub(super) fn most_at_once(&self) -> u32 {
        match self.rules {
            PerCpuLists::Linux4_9 | PerCpuLists::Linux4_19 | PerCpuLists::Linux6_1 => u32::MAX,
            PerCpuLists::Linux6_12 => self.batch << self.batch_scale_max,
        }
    }
}

/// The order-0 frames of one zone that one CPU keeps, by type, hottest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Pcp {
    pub(super) lists: [VecDeque<Index>; MigrateType::COUNT],
    pub(super) count: u32,
    /// The list from which the last drain took a frame.
    pub(super) drained: usize,
    /// The number of frames at which some are given back; below `high_min` before the first exchange.
    high: u32,
    /// How often the batch of allocations has doubled.
    alloc_factor: u32,
    /// Linux 6.12: frames freed in a row. Linux 6.1: how often the batch of frees has doubled (`free_factor`).
    freed: u32,
}

impl Pcp {
    /// Frames to take from the zone (Linux 6.12 `nr_pcp_alloc`). `is_short`: the zone is below its high watermark.
    pub(super) fn frames_to_take(&mut self, limits: &PcpLimits, is_short: bool) -> u32 {
        let base = limits.batch;
        match limits.rules {
            PerCpuLists::Linux4_9 | PerCpuLists::Linux4_19 | PerCpuLists::Linux6_1 => return base,
            PerCpuLists::Linux6_12 => {}
        }
        let batch = base << self.alloc_factor;
        self.high = self.high.clamp(limits.high_min, limits.high_max);
        if limits.high_min != limits.high_max && !is_short {
            self.high = (self.high + batch).min(limits.high_max);
        }
        let most = self.high.saturating_sub(self.count + base).max(base);
        if batch <= most && self.alloc_factor < limits.batch_scale_max {
            self.alloc_factor += 1;
        }
        batch.min(most)
    }

    /// Notes that the CPU allocates a frame.
    #[inline]
    pub(super) fn allocates(&mut self) {
        self.freed >>= 1;
    }

    /// Notes that the CPU has freed a frame, which is on its list. Returns the frames that it gives back; 0 for none.
    #[inline]
    pub(super) fn frames_to_give(&mut self, limits: &PcpLimits, is_short: bool) -> u32 {
        match limits.rules {
            PerCpuLists::Linux4_9 | PerCpuLists::Linux4_19 if self.count >= limits.high_min => limits.batch,
            PerCpuLists::Linux6_1 if self.count >= limits.high_min => self.doubled(limits),
            PerCpuLists::Linux4_9 | PerCpuLists::Linux4_19 | PerCpuLists::Linux6_1 => 0,
            PerCpuLists::Linux6_12 => self.freed_in_a_row(limits, is_short),
        }
    }

    /// Linux 6.1 `nr_pcp_free`.
    fn doubled(&mut self, limits: &PcpLimits) -> u32 {
        let most = (limits.high_min - limits.batch).max(limits.batch);
        let frames = limits.batch << self.freed;
        if frames < most {
            self.freed += 1;
        }
        frames.min(most)
    }

    /// Linux 6.12 `free_unref_page_commit`, `nr_pcp_high` and `nr_pcp_free`.
    fn freed_in_a_row(&mut self, limits: &PcpLimits, is_short: bool) -> u32 {
        self.alloc_factor >>= 1;
        if self.freed < limits.batch << limits.batch_scale_max {
            self.freed += 1;
        }
        self.high = self.high.clamp(limits.high_min, limits.high_max);
        let mut high = self.high;
        if limits.high_min != limits.high_max {
            if is_short {
                self.high = high.saturating_sub(self.freed.max(limits.batch)).max(limits.high_min);
                high = self.count.max(limits.high_min);
            } else if self.count >= high {
                // The limit becomes large enough for what is freed in a row.
                self.high = high.max((self.freed + limits.batch).clamp(limits.high_min, limits.high_max));
            }
        }
        if self.count < high {
            return 0;
        }
        // A limit under two batches, which Linux has not, still gives a batch back.
        self.freed.max(limits.batch).min((high - limits.batch).max(limits.batch))
    }
}

#[cfg(test)]
#[path = "per_cpu_lists_tests.rs"]
mod tests;
