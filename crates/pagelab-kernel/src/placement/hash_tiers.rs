//! Placement by hash tiers: a page gets the first free one of a few frames that its address and its process say.
//!
//! Models: tier i of a page is the frame that a hash of the page's number, its process and i chooses among all frames
//! of the layer ([`HashDomain::frame`]). A fault looks at the tiers in turn, under the allocator's lock, and takes the
//! first that is free; if none is, the page is placed in the ordinary way. With a share p of free frames, tier i gets
//! p(1-p)^(i-1) of the pages, and all N tiers 1-(1-p)^N.
//! Source: Kanellopoulos et al., "Revelator: Rapid Data Fetching via OS-Driven Hash-based Speculative Address
//! Translation", arXiv 2508.02007, 2025, in notes: three tiers by default.
//! Parameters: `system.layers.NAME.placement` of kind `hash-tiers`: `tiers`, `cycles`, `instructions`.
//! Stats: `layer.NAME.hash_tiers.*`.
//! Deviations from the source: the hash is SplitMix64's finaliser, where the paper's prototype has CityHash. A process
//! is known by the number of its address space. Page tables, large pages and pages of files are placed in the ordinary
//! way, and so are copies: a copy after a fork has the address but not the process of its original.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PlacementProgress, Policy, PolicyContext, WantedPage};
use crate::frames::frame_alloc::ZoneBatch;
use crate::locks::TaskLocks;
use crate::memory::{Memory, MemoryView, page_metadata};
use crate::reclaim::Pressure;
use pagelab_base::addr::Pfn;
use pagelab_base::code_cost::{CodeCost, CodeCycles};
use pagelab_base::error::LayerConfigError;
use pagelab_base::hash_tiers::{HashDomain, MOST_TIERS};
use pagelab_base::lock_kind::LockKind;
use pagelab_base::measure::Measure;
use pagelab_base::step::{RefKind, Step};

/// Parameters of placement by hash tiers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HashTiersConfig {
    /// Frames that a page may get, 1 to 8; 3 as in the paper.
    pub tiers: u32,
    /// Cycles of the hash of a tier and its check, beyond its references. This and the instructions are estimates.
    pub cycles: CodeCycles,
    /// Instructions of the hash of a tier and its check.
    pub instructions: u32,
}

impl Default for HashTiersConfig {
    fn default() -> Self {
        Self { tiers: 3, cycles: CodeCycles::Stated(10), instructions: 30 }
    }
}

/// Looks at a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tier(u32);

/// The state of a layer.
#[derive(Clone, Debug)]
pub struct HashTiers {
    config: HashTiersConfig,
    /// Pages by the tier that they got.
    placed: [u64; MOST_TIERS as usize],
    missed: u64,
}

/// The frame of a page at a tier.
fn target(page: &WantedPage, tier: u32, memory: &MemoryView) -> Pfn {
    let domain = HashDomain::new(page.space.index, memory.frames.allocator.frames());
    Pfn(domain.frame(page.page.page_number(), tier))
}

impl Policy for HashTiers {
    type Config = HashTiersConfig;
    type Step = Tier;

    const BY_HASH: bool = true;
    const ABOUT: &'static str = "the first free one of a few frames that a hash of page and process says (Revelator)";

    fn new(config: &HashTiersConfig) -> Self {
        Self { config: config.clone(), placed: [0; MOST_TIERS as usize], missed: 0 }
    }

    fn check(config: &HashTiersConfig, _: &PolicyContext) -> Result<(), LayerConfigError> {
        LayerConfigError::unless_between("placement.tiers", config.tiers, 1, MOST_TIERS)
    }

    fn samples() -> Vec<HashTiersConfig> {
        let defaults = HashTiersConfig::default();
        vec![
            defaults.clone(),
            HashTiersConfig { tiers: 1, ..defaults.clone() },
            HashTiersConfig { tiers: 8, ..defaults },
        ]
    }

    fn begin(&self, page: &WantedPage, _: &MemoryView) -> Option<Tier> {
        (page.order == 0).then_some(Tier(0))
    }

    fn plan(&self, page: Option<&WantedPage>, &Tier(tier): &Tier, memory: &MemoryView, step: &mut Step) {
        let page = page.expect("it keeps no memory that another fault would give back");
        step.preset += CodeCost::new(self.config.instructions, self.config.cycles);
        if tier == 0 {
            step.preset += page.allocation;
            step.kernel(RefKind::Locked, page.zone);
            step.note_lock(LockKind::Zone);
        }
        step.kernel(RefKind::Read, page_metadata(target(page, tier, memory)));
    }

    fn commit(
        &mut self,
        page: Option<&WantedPage>,
        Tier(tier): Tier,
        memory: &mut Memory,
        _: &mut TaskLocks,
    ) -> PlacementProgress<Tier> {
        let page = page.expect("it keeps no memory that another fault would give back");
        if let Some(Pressure::Limit(_)) = memory.view().pressure(page.order) {
            return PlacementProgress::Ordinary;
        }
        let frame = target(page, tier, &memory.view());
        if memory.take_page_at(frame, 0) {
            self.placed[tier as usize] += 1;
            let batch = ZoneBatch { descriptors: memory.frames.effects.descriptors.clone(), moved: 1 };
            return PlacementProgress::Taken { frame, refilled: Some(batch) };
        }
        if tier + 1 < self.config.tiers {
            return PlacementProgress::Go(Tier(tier + 1));
        }
        self.missed += 1;
        PlacementProgress::Ordinary
    }

    fn wants_room_first(&self) -> bool {
        true
    }

    fn measures(&self) -> Vec<Measure> {
        let count = |what: String, value, text: String| Measure::count(format!("hash_tiers.{what}"), value, text);
        let tiers = (0..self.config.tiers as usize).map(|tier| {
            let text = format!("Pages that got the frame of tier {}", tier + 1);
            count(format!("tier_{}", tier + 1), self.placed[tier], text)
        });
        let missed = count("missed".into(), self.missed, "Pages whose frames of all tiers were taken".into());
        tiers.chain([missed]).collect()
    }
}
