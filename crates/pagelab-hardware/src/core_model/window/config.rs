//! What the configuration may say of the core with a window ([`super`], where each number's origin is).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::core_model::Core;
use crate::core_model::in_order::{InOrder, InOrderConfig};
use pagelab_base::error::EngineError;

/// Whether accesses wait for loads where the source does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnknownDependencies {
    /// They do not: all that the window holds overlaps. The most that can be saved.
    #[default]
    Independent,
    /// Each waits for the load before it, so no two misses of loads overlap.
    Serial,
}

/// How conditional branches are predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BranchPredictor {
    /// Always right.
    #[default]
    Perfect,
    /// TAGE with five components (Seznec and Michaud, JILP 2006).
    Tage,
}

/// What the configuration may say of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WindowConfig {
    /// Cycles per instruction when neither memory nor translation stalls it; resolved to 1/256.
    pub cycles_per_instruction: f64,
    /// Instructions in the reorder window.
    #[serde(default = "defaults::window")]
    pub window: u32,
    /// Loads in the window.
    #[serde(default = "defaults::load_queue")]
    pub load_queue: u32,
    /// Stores in the window and after it, until they are written; 0 waits for each as for a load.
    #[serde(default = "defaults::store_queue")]
    pub store_queue: u32,
    /// Lines that the first-level cache may have under way.
    #[serde(default = "defaults::fill_buffers")]
    pub fill_buffers: u32,
    /// Page walks at a time.
    #[serde(default = "defaults::page_walkers")]
    pub page_walkers: u32,
    /// How conditional branches are predicted, where the source tells them.
    #[serde(default)]
    pub branch_predictor: BranchPredictor,
    /// Cycles from where a mispredicted branch is known until instructions behind it enter the window.
    #[serde(default = "defaults::mispredict_penalty")]
    pub mispredict_penalty: u32,
    /// Of sources that do not tell which load an address comes from: foreign traces, older recordings.
    #[serde(default)]
    pub unknown_dependencies: UnknownDependencies,
}

/// Skylake's, in part estimated; see the module's text.
mod defaults {
    pub fn window() -> u32 {
        224
    }

    pub fn load_queue() -> u32 {
        72
    }

    pub fn store_queue() -> u32 {
        56
    }

    pub fn fill_buffers() -> u32 {
        12
    }

    pub fn page_walkers() -> u32 {
        2
    }

    pub fn mispredict_penalty() -> u32 {
        16
    }
}

const PENALTY_MAX: u32 = 1000;
/// The largest window and queue.
const WINDOW_MAX: u32 = 4096;
const BUFFERS_MAX: u32 = 64;

impl WindowConfig {
    /// Refuses what is out of range; `key` is the part of the configuration that it is in.
    pub fn check(&self, key: &str) -> Result<(), EngineError> {
        let cycles_per_instruction = self.cycles_per_instruction;
        InOrder::validate(&InOrderConfig { cycles_per_instruction, l1_hit_hidden: false }, key)?;
        for (name, value, least, most) in [
            ("window", self.window, 1, WINDOW_MAX),
            ("load_queue", self.load_queue, 1, WINDOW_MAX),
            ("store_queue", self.store_queue, 0, WINDOW_MAX),
            ("fill_buffers", self.fill_buffers, 1, BUFFERS_MAX),
            ("page_walkers", self.page_walkers, 1, BUFFERS_MAX),
            ("mispredict_penalty", self.mispredict_penalty, 0, PENALTY_MAX),
        ] {
            if !(least..=most).contains(&value) {
                let what = format!("{value} is out of range; allowed are {least} to {most}");
                return Err(EngineError::config(format!("{key}.{name}"), what));
            }
        }
        Ok(())
    }

    /// For conformance tests.
    pub fn samples() -> Vec<Self> {
        let skylake = Self {
            cycles_per_instruction: 0.25,
            window: defaults::window(),
            load_queue: defaults::load_queue(),
            store_queue: defaults::store_queue(),
            fill_buffers: defaults::fill_buffers(),
            page_walkers: defaults::page_walkers(),
            branch_predictor: BranchPredictor::Perfect,
            mispredict_penalty: defaults::mispredict_penalty(),
            unknown_dependencies: UnknownDependencies::Independent,
        };
        let least = Self { window: 1, load_queue: 1, store_queue: 0, fill_buffers: 1, page_walkers: 1, ..skylake };
        vec![
            skylake,
            least,
            Self {
                store_queue: 1,
                unknown_dependencies: UnknownDependencies::Serial,
                branch_predictor: BranchPredictor::Tage,
                ..skylake
            },
        ]
    }
}
