//! Page colouring: a page gets a frame of its own colour, so that adjacent pages use different parts of a physically
//! indexed cache.
//!
//! Models: the colour of a page or a frame is its number modulo `colours`. The kernel keeps lists of free frames, one
//! per colour, besides the allocator's and under the allocator's lock. A fault takes the first frame of its page's
//! colour. If there is none, a block with as many adjacent frames as there are colours is split among the lists; if
//! there is no such block, the page is placed in the ordinary way. Frames on the lists are returned to the allocator
//! when memory is needed and when a process ends.
//! Source: Kessler, Hill, "Page placement algorithms for large real-indexed caches" (ACM Transactions on Computer
//! Systems 10(4), 1992), its page colouring.
//! Parameters: `system.layers.NAME.placement` of kind `coloring`: `colours`, `release_above_percent`, `cycles`,
//! `instructions`.
//! Stats: `layer.NAME.coloring.*`.
//! Deviations from the source: large pages and folios have no colour. The source does not say where a kernel keeps its
//! lists and when it returns frames.

use pagelab_base::ids::SpaceIx;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PlacementProgress, Policy, PolicyContext, WantedPage};
use crate::frames::frame_alloc::FramePurpose;
use crate::locks::TaskLocks;
use crate::memory::{Memory, MemoryView, page_metadata};
use crate::reclaim::{Pressure, SCAN_PAGES};
use pagelab_base::addr::{FRAME_BYTES, Pfn};
use pagelab_base::code_cost::{CodeCost, CodeCycles};
use pagelab_base::error::LayerConfigError;
use pagelab_base::lock_kind::LockKind;
use pagelab_base::measure::Measure;
use pagelab_base::step::{RefKind, Step};

/// Parameters of page colouring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ColoringConfig {
    /// Number of colours, a power of two from 2 to 512: the pages in one way of the cache. 64 (256 KiB per way) is an
    /// estimate.
    pub colours: u32,
    /// Percentage of the layer's memory in use above which frames are returned and none are kept. 90 is an estimate.
    pub release_above_percent: u32,
    /// Cycles of a search in the lists, beyond its references. This and the instructions are estimates.
    pub cycles: CodeCycles,
    /// Instructions of a search in the lists.
    pub instructions: u32,
}

impl Default for ColoringConfig {
    fn default() -> Self {
        Self { colours: 64, release_above_percent: 90, cycles: CodeCycles::Stated(20), instructions: 60 }
    }
}

/// A step on the way to a frame of a colour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Search {
    /// Take the first frame of the colour's list.
    Take,
    /// Allocate a block for the lists.
    Block,
    /// Split the block among the lists.
    Cut {
        /// The first frame of the block.
        block: Pfn,
        /// Frames whose metadata the allocator read for the block, under the zone's lock.
        descriptors: Vec<Pfn>,
    },
    /// Return these frames to the allocator.
    GiveBack {
        /// Frames of the lists, each freed on its own.
        frames: Vec<Pfn>,
    },
}

/// The state of a layer.
#[derive(Clone, Debug)]
pub struct Coloring {
    config: ColoringConfig,
    /// By colour.
    free: Vec<Vec<Pfn>>,
    taken: u64,
    blocks: u64,
    no_block: u64,
    given_back: u64,
}

impl Coloring {
    fn colour_of(&self, page: &WantedPage) -> usize {
        (page.page.page_number() % u64::from(self.config.colours)) as usize
    }

    fn first_of_colour(&self, page: &WantedPage) -> Option<Pfn> {
        self.free[self.colour_of(page)].last().copied()
    }

    /// Allocates a block for the lists, or goes the ordinary way.
    fn take_block(&mut self, memory: &mut Memory) -> PlacementProgress<Search> {
        if self.is_crowded(&memory.view()) {
            return PlacementProgress::Ordinary;
        }
        let Some(block) = memory.take(self.config.colours.ilog2(), FramePurpose::UserData) else {
            self.no_block += 1;
            return PlacementProgress::Ordinary;
        };
        self.blocks += 1;
        // The frames are on the lists from here on, so that they cannot be lost; the next step pays for it.
        for n in 0..u64::from(self.config.colours) {
            let pfn = block + n;
            self.free[(pfn.0 % u64::from(self.config.colours)) as usize].push(pfn);
        }
        PlacementProgress::Go(Search::Cut { block, descriptors: memory.frames.effects.descriptors.clone() })
    }
}

impl Policy for Coloring {
    type Config = ColoringConfig;
    type Step = Search;

    const ABOUT: &'static str = "frames of the colour that the page's address has in a physically indexed cache";

    fn new(config: &ColoringConfig) -> Self {
        let free = vec![Vec::new(); config.colours as usize];
        Self { config: config.clone(), free, taken: 0, blocks: 0, no_block: 0, given_back: 0 }
    }

    fn check(config: &ColoringConfig, _: &PolicyContext) -> Result<(), LayerConfigError> {
        if !config.colours.is_power_of_two() || !(2..=512).contains(&config.colours) {
            let what = format!("{} is not possible; allowed are powers of two from 2 to 512", config.colours);
            return Err(LayerConfigError::new("placement.colours", what));
        }
        LayerConfigError::unless_between("placement.release_above_percent", config.release_above_percent, 0, 100)
    }

    fn samples() -> Vec<ColoringConfig> {
        let defaults = ColoringConfig::default();
        vec![defaults.clone(), ColoringConfig { colours: 4, release_above_percent: 50, ..defaults }]
    }

    fn begin(&self, page: &WantedPage, _: &MemoryView) -> Option<Search> {
        (page.order == 0).then_some(Search::Take)
    }

    fn plan(&self, page: Option<&WantedPage>, action: &Search, _: &MemoryView, step: &mut Step) {
        if let Search::GiveBack { frames } = action {
            // `put_page` for each.
            return frames.iter().for_each(|&pfn| step.kernel(RefKind::Locked, page_metadata(pfn)));
        }
        let page = page.expect("a fault that gives nothing back wants a page");
        match action {
            Search::Take => {
                step.preset += CodeCost::new(self.config.instructions, self.config.cycles);
                step.kernel(RefKind::Locked, page.zone);
                step.note_lock(LockKind::Zone);
                self.first_of_colour(page).iter().for_each(|&pfn| step.kernel(RefKind::Write, page_metadata(pfn)));
            }
            Search::Block => {
                step.preset += page.allocation;
                step.kernel(RefKind::Write, page.free_lists);
            }
            Search::Cut { block, descriptors } => {
                step.kernel(RefKind::Locked, page.zone);
                step.note_lock(LockKind::Zone);
                descriptors.iter().for_each(|&pfn| step.kernel(RefKind::Write, page_metadata(pfn)));
                let frames = (0..u64::from(self.config.colours)).map(|n| *block + n);
                frames.for_each(|pfn| step.kernel(RefKind::Write, page_metadata(pfn)));
            }
            Search::GiveBack { .. } => unreachable!("it was planned above"),
        }
    }

    fn commit(
        &mut self,
        page: Option<&WantedPage>,
        action: Search,
        memory: &mut Memory,
        _: &mut TaskLocks,
    ) -> PlacementProgress<Search> {
        match (action, page) {
            (Search::GiveBack { frames }, _) => {
                for pfn in frames {
                    let list = &mut self.free[(pfn.0 % u64::from(self.config.colours)) as usize];
                    // It may have been taken since.
                    if let Some(at) = list.iter().position(|&kept| kept == pfn) {
                        list.remove(at);
                        memory.free_frame_of_block(pfn);
                        self.given_back += 1;
                    }
                }
                PlacementProgress::Again
            }
            (Search::Take, Some(page)) => {
                if let Some(Pressure::Limit(_)) = memory.view().pressure(0) {
                    return PlacementProgress::Ordinary;
                }
                let colour = self.colour_of(page);
                let Some(frame) = self.free[colour].pop() else { return PlacementProgress::Go(Search::Block) };
                self.taken += 1;
                memory.charge(frame, 0);
                PlacementProgress::Taken { frame, refilled: None }
            }
            (Search::Block, _) => self.take_block(memory),
            (Search::Cut { .. }, _) => PlacementProgress::Go(Search::Take),
            (Search::Take, None) => unreachable!("a fault that gives nothing back wants a page"),
        }
    }

    fn wants_room_first(&self) -> bool {
        true
    }

    fn is_crowded(&self, memory: &MemoryView) -> bool {
        memory.is_fuller_than(self.config.release_above_percent, 0)
    }

    fn give_back(&self) -> Option<Search> {
        let frames: Vec<Pfn> = self.free.iter().flatten().copied().take(SCAN_PAGES).collect();
        (!frames.is_empty()).then_some(Search::GiveBack { frames })
    }

    fn space_ended(&mut self, _: SpaceIx, memory: &mut Memory) {
        for pfn in self.free.iter_mut().flat_map(std::mem::take) {
            memory.free_frame_of_block(pfn);
            self.given_back += 1;
        }
    }

    fn held_frames(&self) -> u64 {
        self.free.iter().map(|list| list.len() as u64).sum()
    }

    fn measures(&self) -> Vec<Measure> {
        let count = |what: &str, value, text: &str| Measure::count(format!("coloring.{what}"), value, text);
        vec![
            count("taken", self.taken, "Pages that got a frame of their colour"),
            count("blocks", self.blocks, "Blocks cut up into lists of free frames by colour"),
            count("no_block", self.no_block, "Times that the allocator had no block to cut up"),
            count("given_back", self.given_back, "Frames that went back from the lists to the allocator"),
            Measure::state(
                "coloring.kept_bytes",
                self.held_frames() * FRAME_BYTES,
                "bytes",
                "Memory on the lists at the end",
            ),
        ]
    }
}
