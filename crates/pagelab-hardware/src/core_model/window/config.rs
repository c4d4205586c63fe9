//! Parameters of the window core. For the origin of each number see [`super`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::core_model::branch_unit::{BranchPredictor, default_penalty, validate_penalty};
use crate::core_model::in_order::RetireRate;
use pagelab_base::error::EngineError;
use pagelab_base::switch::Switch;

/// Whether accesses wait for loads if the source does not record dependencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnknownDependencies {
    /// They do not: everything in the window overlaps. An upper bound of the overlap.
    #[default]
    Independent,
    /// Each waits for the previous load, so no two load misses overlap.
    Serial,
}

/// Parameters of the window core.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WindowConfig {
    /// Cycles per instruction if neither memory nor translation stalls it; rounded to 1/256.
    pub cycles_per_instruction: f64,
    /// Instructions in the reorder window.
    #[serde(default = "defaults::window")]
    pub window: u32,
    /// Loads that the window can hold.
    #[serde(default = "defaults::load_queue")]
    pub load_queue: u32,
    /// Stores in the window and after it, until they are written. With 0 the core waits for stores as for loads.
    #[serde(default = "defaults::store_queue")]
    pub store_queue: u32,
    /// Lines that the first-level cache can have in flight.
    #[serde(default = "defaults::fill_buffers")]
    pub fill_buffers: u32,
    /// Page walks in parallel.
    #[serde(default = "defaults::page_walkers")]
    pub page_walkers: u32,
    /// How conditional branches are predicted, if the source records them.
    #[serde(default)]
    pub branch_predictor: BranchPredictor,
    /// Cycles from the resolution of a mispredicted branch until the following instructions enter the window.
    #[serde(default = "default_penalty")]
    pub mispredict_penalty: u32,
    /// For sources that do not record which load an address depends on: imported traces, older recordings.
    #[serde(default)]
    pub unknown_dependencies: UnknownDependencies,
    /// Whether references of kernel code overlap, too. With `off`, kernel code waits for each.
    #[serde(default = "defaults::off")]
    pub kernel_overlap: Switch,
}

/// Values of a Skylake, partly estimated; see the text of [`super`].
mod defaults {
    use super::Switch;

    pub fn off() -> Switch {
        Switch(false)
    }

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
}

/// The largest window and queue.
const WINDOW_MAX: u32 = 4096;
const BUFFERS_MAX: u32 = 64;

impl WindowConfig {
    /// Refuses values out of range; `key` is the part of the configuration that contains them.
    pub fn check(&self, key: &str) -> Result<(), EngineError> {
        RetireRate::validate(self.cycles_per_instruction, key)?;
        for (name, value, least, most) in [
            ("window", self.window, 1, WINDOW_MAX),
            ("load_queue", self.load_queue, 1, WINDOW_MAX),
            ("store_queue", self.store_queue, 0, WINDOW_MAX),
            ("fill_buffers", self.fill_buffers, 1, BUFFERS_MAX),
            ("page_walkers", self.page_walkers, 1, BUFFERS_MAX),
        ] {
            if !(least..=most).contains(&value) {
                let what = format!("{value} is out of range; allowed are {least} to {most}");
                return Err(EngineError::config(format!("{key}.{name}"), what));
            }
        }
        validate_penalty(self.mispredict_penalty, key)
    }

    /// Parameters for conformance tests.
    pub fn samples() -> Vec<Self> {
        let skylake = Self {
            cycles_per_instruction: 0.25,
            window: defaults::window(),
            load_queue: defaults::load_queue(),
            store_queue: defaults::store_queue(),
            fill_buffers: defaults::fill_buffers(),
            page_walkers: defaults::page_walkers(),
            branch_predictor: BranchPredictor::Perfect,
            mispredict_penalty: default_penalty(),
            unknown_dependencies: UnknownDependencies::Independent,
            kernel_overlap: Switch(false),
        };
        let least = Self { window: 1, load_queue: 1, store_queue: 0, fill_buffers: 1, page_walkers: 1, ..skylake };
        vec![
            skylake,
            least,
            Self {
                store_queue: 1,
                unknown_dependencies: UnknownDependencies::Serial,
                branch_predictor: BranchPredictor::Tage,
                kernel_overlap: Switch(true),
                ..skylake
            },
        ]
    }
}
