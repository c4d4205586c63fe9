//! How a kernel chooses the frames of anonymous pages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LayerConfig;
use crate::error::EngineError;

/// Which frames the kernel of a layer gives to anonymous pages of 4 KiB. Folios and large pages are set by `folios` and
/// `page_size`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum PlacementConfig {
    /// Whichever frame the allocator has next, as Linux does.
    #[default]
    Order0,
    /// Blocks reserved for groups of adjacent pages ([`crate::os::reservations`]).
    Ptemagnet(PtemagnetConfig),
}

/// Parameters of PTEMagnet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PtemagnetConfig {
    /// Pages of a group: 2, 4 or 8. 8 (32 KiB) is the paper's, the PTEs of a cache line.
    pub group_pages: u32,
    /// Share of the layer's memory in use above which reservations are given back and none are made. The paper leaves it to the
    /// user; 90 is an estimate.
    pub release_above_percent: u32,
    /// What a look-up costs beyond its references. Both are estimates, for an index computed and four levels descended.
    pub cycles: u32,
    pub instructions: u32,
}

impl Default for PtemagnetConfig {
    fn default() -> Self {
        Self { group_pages: 8, release_above_percent: 90, cycles: 20, instructions: 60 }
    }
}

impl PtemagnetConfig {
    /// Pages of a group as a power of two.
    pub fn order(&self) -> u32 {
        self.group_pages.ilog2()
    }
}

impl PlacementConfig {
    pub fn ptemagnet(&self) -> Option<PtemagnetConfig> {
        match self {
            Self::Order0 => None,
            Self::Ptemagnet(config) => Some(config.clone()),
        }
    }
}

pub(super) fn validate(layer: &LayerConfig) -> Result<(), EngineError> {
    let key = |part: &str| format!("system.layers.{}.placement.{part}", layer.name);
    if let PlacementConfig::Ptemagnet(config) = &layer.placement {
        if ![2, 4, 8].contains(&config.group_pages) {
            let what = format!("{} is not possible; allowed are 2, 4 and 8", config.group_pages);
            return Err(EngineError::config(key("group_pages"), what));
        }
        if config.release_above_percent > 100 {
            let what = format!("{} is out of range; allowed are 0 to 100", config.release_above_percent);
            return Err(EngineError::config(key("release_above_percent"), what));
        }
        if !layer.folios.is_empty() {
            let what = "folios and reservations cannot be had at once: a folio is given whole what a reservation gives page by page; \
                        allowed here is [] or another placement";
            return Err(EngineError::config(format!("system.layers.{}.folios", layer.name), what));
        }
    }
    Ok(())
}
