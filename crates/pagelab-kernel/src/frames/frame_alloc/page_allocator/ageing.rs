//! Ageing: the memory of a machine that has run for a long time, partly used and with fragmented free memory.
//!
//! # Models
//! All zones get the same mixture. Whole pageblocks, drawn at random in pairs, stay free. The other free frames lie in
//! half-used pageblocks, which are split at random like a buddy tree: the free frames of a part are divided between its
//! halves in any proportion, all equally likely. Everything else is in use, in blocks as large as their place.
//! Unmovable contents have pageblocks of their own as far as they fill them, as Linux's grouping by mobility aims for.
//!
//! # Source
//! The parameters correspond to what Linux's `/proc/buddyinfo` and `/proc/pagetypeinfo` show of such a machine. Panwar
//! et al., "Making huge pages actually useful", ASPLOS 2018, show why unmovable contents matter. The distribution of
//! free frames inside a pageblock is a choice of this model.
//!
//! # Parameters
//! [`AgeingConfig`]. Frames are counted exactly, so a zone misses the free memory by at most half a frame, and its huge
//! part and the unmovable part by less than a pageblock each; [`Aged`] reports the result.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::free_area::{FrameState, Index};
use super::super::{AllocEffects, FrameAllocError, FrameAllocator, MigrateType};
use super::PageAllocator;
use super::config::error;
use super::zone::{PAGEBLOCK_ORDER, Zone};
use pagelab_base::addr::Pfn;
use pagelab_base::rng::Rng;

/// The state of memory that [`PageAllocator::age`] produces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgeingConfig {
    /// Fraction of the memory that is not reserved to be free afterwards, 0 to 1.
    pub free_fraction: f64,
    /// Fraction of the free memory in free blocks of 2 MiB and larger, 0 to 1.
    pub huge_free_fraction: f64,
    /// Fraction of the memory used by ageing that cannot be moved, 0 to 1.
    pub unmovable_fraction: f64,
    /// Seed of the random choice of blocks. Each zone has its own random stream.
    pub seed: u64,
}

/// A block used by ageing, in eight bytes, since there may be millions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgedBlock(u64);

impl AgedBlock {
    fn new(pfn: Pfn, order: u32, movable: bool) -> Self {
        Self(pfn.0 << 6 | u64::from(order) << 1 | u64::from(movable))
    }

    /// The first frame of the block.
    pub fn pfn(self) -> Pfn {
        Pfn(self.0 >> 6)
    }

    /// log2 of the number of frames in the block.
    pub fn order(self) -> u32 {
        (self.0 >> 1) as u32 & 0x1f
    }

    /// Whether its contents can be moved.
    pub fn is_movable(self) -> bool {
        self.0 & 1 == 1
    }
}

/// Result of ageing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Aged {
    /// Frames that are not reserved.
    pub managed_frames: u64,
    /// Frames that are free afterwards.
    pub free_frames: u64,
    /// Free frames in blocks of order 9 and above.
    pub huge_free_frames: u64,
    /// Frames in [`Self::blocks`].
    pub taken_frames: u64,
    /// Frames in [`Self::blocks`] that cannot be moved.
    pub unmovable_frames: u64,
    /// The blocks used by ageing, for [`FrameAllocator::free`].
    pub blocks: Vec<AgedBlock>,
}

impl Aged {
    /// Fraction of the frames that are not reserved that is free, 0 to 1.
    pub fn free_fraction(&self) -> f64 {
        ratio(self.free_frames, self.managed_frames)
    }

    /// Fraction of the free frames in blocks of order 9 and above, 0 to 1.
    pub fn huge_free_fraction(&self) -> f64 {
        ratio(self.huge_free_frames, self.free_frames)
    }

    /// Fraction of the used frames that cannot be moved, 0 to 1.
    pub fn unmovable_fraction(&self) -> f64 {
        ratio(self.unmovable_frames, self.taken_frames)
    }
}

/// The largest value to request, rounded down to four decimals.
fn at_most(part: u64, whole: u64) -> f64 {
    (ratio(part, whole) * 1e4).floor() / 1e4
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

const PAGEBLOCK_FRAMES: u64 = 1 << PAGEBLOCK_ORDER;
/// Pageblocks are drawn in pairs, the largest blocks of Linux: memory that has not been split for a long time consists
/// of those.
const PAIR_ORDER: u32 = 10;

/// Target state of one zone.
struct AgeingPlan {
    free: u64,
    /// Number of pageblocks that are to be completely free.
    huge_blocks: u64,
}

impl PageAllocator {
    /// Uses memory until the rest is free as `config` requests. Blocks in use stay where they are; the per-CPU lists
    /// are drained.
    pub fn age(&mut self, config: &AgeingConfig) -> Result<Aged, FrameAllocError> {
        let fractions = [
            ("free_fraction", config.free_fraction),
            ("huge_free_fraction", config.huge_free_fraction),
            ("unmovable_fraction", config.unmovable_fraction),
        ];
        for (key, value) in fractions {
            if !(0.0..=1.0).contains(&value) {
                return Err(error(key, format!("{value} is out of range; allowed are 0 to 1")));
            }
        }
        if self.max_order() < PAGEBLOCK_ORDER {
            let what = format!("{} has no pageblocks of 2 MiB; ageing needs 9 or more", self.max_order());
            return Err(error("max_order", what));
        }
        self.drain_per_cpu(&mut AllocEffects::default());
        let plans = self.zones.iter().map(|zone| plan(zone, config)).collect::<Result<Vec<_>, _>>()?;
        let mut aged = Aged::default();
        for (zone, plan) in self.zones.iter_mut().zip(plans) {
            let mut rng = Rng::new(config.seed, &format!("ageing of zone {}", zone.ix));
            Ageing { zone, rng: &mut rng, effects: AllocEffects::default(), taken: Vec::new() }.carry_out(
                &plan,
                config.unmovable_fraction,
                &mut aged,
            );
        }
        Ok(aged)
    }
}

/// Free frames in completely free pageblocks.
fn whole_frames(zone: &Zone) -> u64 {
    (PAGEBLOCK_ORDER..=zone.area.max_order()).map(|order| zone.area.free_blocks(order) << order).sum()
}

fn plan(zone: &Zone, config: &AgeingConfig) -> Result<AgeingPlan, FrameAllocError> {
    let (managed, now) = (zone.managed_frames(), zone.area.free_frames());
    let place = format!("{:?} of node {}", zone.kind, zone.node);
    let free = (config.free_fraction * managed as f64).round() as u64;
    if free > now {
        let what = format!(
            "{} asks for {free} free frames in {place}, which has {now} of {managed}; at most {} is possible",
            config.free_fraction,
            at_most(now, managed)
        );
        return Err(error("free_fraction", what));
    }
    let whole = whole_frames(zone);
    let blocks = whole / PAGEBLOCK_FRAMES;
    // Free frames outside completely free pageblocks can contribute less than one pageblock.
    let huge_blocks = (config.huge_free_fraction * free as f64 / PAGEBLOCK_FRAMES as f64).round() as u64;
    let huge_blocks = huge_blocks.min(free / PAGEBLOCK_FRAMES);
    if huge_blocks > blocks {
        let what = format!(
            "{} of {free} free frames asks for {huge_blocks} whole free pageblocks in {place}, which has {blocks}; at \
             most {} is possible",
            config.huge_free_fraction,
            at_most(whole, free)
        );
        return Err(error("huge_free_fraction", what));
    }
    // A pageblock that must not be completely free has at least one used frame.
    let in_pieces = now - whole + (blocks - huge_blocks) * (PAGEBLOCK_FRAMES - 1);
    let pieces = free - huge_blocks * PAGEBLOCK_FRAMES;
    if pieces > in_pieces {
        let what = format!(
            "{} leaves {pieces} free frames in {place} outside whole pageblocks, where {in_pieces} can be; ask for \
             more, or for less free memory",
            config.huge_free_fraction
        );
        return Err(error("huge_free_fraction", what));
    }
    Ok(AgeingPlan { free, huge_blocks })
}

struct Ageing<'a> {
    zone: &'a mut Zone,
    rng: &'a mut Rng,
    effects: AllocEffects,
    /// The used blocks of the current pageblock.
    taken: Vec<(Index, u32)>,
}

impl Ageing<'_> {
    /// Takes all free memory and returns what is to be free.
    fn carry_out(mut self, plan: &AgeingPlan, unmovable_fraction: f64, aged: &mut Aged) {
        let taken = self.zone.area.free_frames() - plan.free;
        let whole = self.take_whole();
        let rest: Vec<_> = (0..PAGEBLOCK_ORDER)
            .rev()
            .flat_map(|small| self.take_all(small).into_iter().map(move |i| (i, small)))
            .collect();
        let mut pieces = plan.free - plan.huge_blocks * PAGEBLOCK_FRAMES;
        let mut unmovable = (unmovable_fraction * taken as f64).round() as u64;
        let asked = unmovable;

        for (index, small) in rest {
            let free = pieces.min(1 << small);
            pieces -= free;
            self.carve(index, small, free);
            unmovable -= self.record_used_blocks(MigrateType::Movable, unmovable, aged);
        }
        let (huge, filled) = whole.split_at(plan.huge_blocks as usize);
        for &index in huge {
            self.zone.set_pageblock(index, MigrateType::Movable);
            self.give(index, PAGEBLOCK_ORDER);
        }
        let holes = self.deal(pieces, filled.len() as u64);
        // Unmovable contents fill any pageblocks, so those with free frames are spread among the others.
        let mut filled: Vec<_> = filled.iter().zip(holes).collect();
        shuffle(&mut filled, self.rng);
        for (&index, free) in filled {
            let list = if unmovable >= PAGEBLOCK_FRAMES - free { MigrateType::Unmovable } else { MigrateType::Movable };
            self.zone.set_pageblock(index, list);
            self.carve(index, PAGEBLOCK_ORDER, free);
            unmovable -= self.record_used_blocks(list, unmovable, aged);
        }
        aged.managed_frames += self.zone.managed_frames();
        aged.free_frames += self.zone.area.free_frames();
        aged.huge_free_frames += whole_frames(self.zone);
        aged.taken_frames += taken;
        aged.unmovable_frames += asked - unmovable;
    }

    /// Takes all whole pageblocks, in random order; two that form a block of [`PAIR_ORDER`] stay adjacent.
    fn take_whole(&mut self) -> Vec<Index> {
        let mut units = Vec::new();
        for order in (PAGEBLOCK_ORDER..=self.zone.area.max_order()).rev() {
            let unit = order.min(PAIR_ORDER);
            for index in self.take_all(order) {
                units.extend((index..index + (1 << order)).step_by(1 << unit).map(|start| (start, unit)));
            }
        }
        shuffle(&mut units, self.rng);
        let pageblocks =
            units.into_iter().flat_map(|(start, unit)| (start..start + (1 << unit)).step_by(1 << PAGEBLOCK_ORDER));
        let pageblocks: Vec<_> = pageblocks.collect();
        for &index in &pageblocks {
            self.zone.area.set_state(index, FrameState::used(PAGEBLOCK_ORDER, MigrateType::Movable));
        }
        pageblocks
    }

    /// Takes blocks of this order until none is left.
    fn take_all(&mut self, order: u32) -> Vec<Index> {
        let mut blocks = Vec::new();
        for list in MigrateType::ALL {
            while let Some(index) = self.zone.area.take(order, list, MigrateType::Movable, &mut self.effects) {
                blocks.push(index);
                self.effects.clear();
            }
        }
        self.zone.used_frames += (blocks.len() as u64) << order;
        blocks
    }

    /// How many frames are to be free in each of `blocks` pageblocks. About twice as many pageblocks as necessary get
    /// free frames, each any number below all of its frames; the others get none.
    fn deal(&mut self, pieces: u64, blocks: u64) -> Vec<u64> {
        let mut holes = vec![0; blocks as usize];
        let most = PAGEBLOCK_FRAMES - 1;
        let with_holes = (2 * pieces).div_ceil(PAGEBLOCK_FRAMES).clamp(pieces.div_ceil(most), blocks);
        let with_holes = &mut holes[..with_holes as usize];
        let count = with_holes.len() as u64;
        for (n, free) in (0..).zip(with_holes.iter_mut()) {
            *free = pieces * (n + 1) / count - pieces * n / count;
        }
        for pair in with_holes.chunks_exact_mut(2) {
            let both = pair[0] + pair[1];
            pair[0] = self.share(both, most);
            pair[1] = both - pair[0];
        }
        holes
    }

    /// A random part of `both` for one of two places with room for `most` each.
    fn share(&mut self, both: u64, most: u64) -> u64 {
        let (least, most) = (both.saturating_sub(most), both.min(most));
        least + self.rng.below(most - least + 1)
    }

    /// Frees `free` frames of a used block.
    fn carve(&mut self, index: Index, order: u32, free: u64) {
        if free == 0 {
            self.taken.push((index, order));
        } else if free == 1 << order {
            self.give(index, order);
        } else {
            let half = order - 1;
            let lower = self.share(free, 1 << half);
            self.carve(index, half, lower);
            self.carve(index + (1 << half), half, free - lower);
        }
    }

    fn give(&mut self, index: Index, order: u32) {
        let list = self.zone.pageblock(index);
        self.zone.used_frames -= 1 << order;
        self.zone.area.give(index, order, list, &mut self.effects);
        self.effects.clear();
    }

    /// Records the blocks that [`Self::carve`] left in use, as unmovable as far as they fit into `quota`. Returns the
    /// number of unmovable frames.
    fn record_used_blocks(&mut self, list: MigrateType, quota: u64, aged: &mut Aged) -> u64 {
        let mut unmovable = 0;
        for (index, order) in self.taken.drain(..) {
            let fits = unmovable + (1 << order) <= quota;
            let pinned = fits && (list == MigrateType::Unmovable || order < PAGEBLOCK_ORDER);
            let contents = if pinned { MigrateType::Unmovable } else { MigrateType::Movable };
            unmovable += if pinned { 1 << order } else { 0 };
            self.zone.area.set_state(index, FrameState::used(order, contents));
            aged.blocks.push(AgedBlock::new(self.zone.area.pfn(index), order, !pinned));
        }
        unmovable
    }
}

fn shuffle<T>(items: &mut [T], rng: &mut Rng) {
    for n in (1..items.len()).rev() {
        items.swap(n, rng.below(n as u64 + 1) as usize);
    }
}

#[cfg(test)]
#[path = "ageing_tests.rs"]
mod tests;
