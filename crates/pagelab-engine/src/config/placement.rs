//! How a kernel chooses the frames of anonymous pages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use pagelab_trace::quantity::Bytes;

use super::LayerConfig;
use crate::base::addr::{FRAME_BYTES, PageSize};
use crate::base::error::EngineError;

/// Which frames the kernel of a layer gives to anonymous pages of 4 KiB. Folios and large pages are set by `folios` and
/// `page_size`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum PlacementConfig {
    /// Whichever frame the allocator has next, as Linux does.
    #[default]
    Order0,
    /// Blocks reserved for groups of adjacent pages ([`crate::kernel::placement::reservations`]).
    Ptemagnet(PtemagnetConfig),
    /// Blocks for the whole of a mapping, taken and mapped when it is made ([`crate::kernel::placement::eager`]).
    Eager(EagerConfig),
    /// The frame that continues the mapping's others, if it is free ([`crate::kernel::placement::ca_paging`]).
    CaPaging(CaPagingConfig),
}

/// Parameters of contiguity-aware paging.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CaPagingConfig {
    /// Offsets that a mapping remembers, 1 to 1024; 64 is the paper's.
    pub max_offsets: u32,
    /// What a look-up of an offset or a search for free memory costs beyond its references. Both are estimates.
    pub cycles: u32,
    pub instructions: u32,
}

impl Default for CaPagingConfig {
    fn default() -> Self {
        Self { max_offsets: 64, cycles: 20, instructions: 60 }
    }
}

/// Parameters of eager paging.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EagerConfig {
    /// The largest block: a power of two from 8 KiB to 2 MiB, what one page-table page maps.
    pub largest_block: Bytes,
    /// Share of the layer's memory in use above which memory is left to demand. 90 is an estimate.
    pub stop_above_percent: u32,
}

impl Default for EagerConfig {
    fn default() -> Self {
        Self { largest_block: Bytes(PageSize::Size2M.bytes()), stop_above_percent: 90 }
    }
}

impl EagerConfig {
    /// The largest block as a power of two of frames.
    pub fn order(&self) -> u32 {
        (self.largest_block.0 / FRAME_BYTES).ilog2()
    }
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
            Self::Ptemagnet(config) => Some(config.clone()),
            _ => None,
        }
    }

    pub fn eager(&self) -> Option<EagerConfig> {
        match self {
            Self::Eager(config) => Some(config.clone()),
            _ => None,
        }
    }

    pub fn ca_paging(&self) -> Option<CaPagingConfig> {
        match self {
            Self::CaPaging(config) => Some(config.clone()),
            _ => None,
        }
    }
}

pub(super) fn validate(layer: &LayerConfig, layers: &[LayerConfig]) -> Result<(), EngineError> {
    let refuse =
        |part: &str, what: String| Err(EngineError::config(format!("system.layers.{}.{part}", layer.name), what));
    let percent = |name: &str, value: u32| match value {
        0..=100 => Ok(()),
        _ => refuse(&format!("placement.{name}"), format!("{value} is out of range; allowed are 0 to 100")),
    };
    match &layer.placement {
        PlacementConfig::Order0 => return Ok(()),
        PlacementConfig::Ptemagnet(config) => {
            if ![2, 4, 8].contains(&config.group_pages) {
                let what = format!("{} is not possible; allowed are 2, 4 and 8", config.group_pages);
                return refuse("placement.group_pages", what);
            }
            percent("release_above_percent", config.release_above_percent)?;
        }
        PlacementConfig::Eager(config) => {
            let Bytes(block) = config.largest_block;
            if !block.is_power_of_two() || !(2 * FRAME_BYTES..=PageSize::Size2M.bytes()).contains(&block) {
                let what = format!("{block} bytes are not possible; allowed are powers of two from 8 KiB to 2 MiB");
                return refuse("placement.largest_block", what);
            }
            percent("stop_above_percent", config.stop_above_percent)?;
            if let Some(guest) = layers.iter().find(|guest| guest.host.as_ref() == Some(&layer.name)) {
                let what = format!(
                    "the memory of `{}` is mapped when its host boots, before any call; allowed is eager paging in layers that host nobody",
                    guest.name
                );
                return refuse("placement", what);
            }
        }
        PlacementConfig::CaPaging(config) => {
            if !(1..=1024).contains(&config.max_offsets) {
                let what = format!("{} is out of range; allowed are 1 to 1024", config.max_offsets);
                return refuse("placement.max_offsets", what);
            }
            if layer.page_size == PageSize::Size1G {
                let what = "pages of 1G are larger than the blocks that are looked for; allowed are 4K and 2M";
                return refuse("page_size", what.to_owned());
            }
        }
    }
    if !layer.folios.is_empty() {
        let what = "folios are blocks of the kernel's own choice, and another placement cannot be had beside them; allowed here is [] \
                    or the placement order0";
        return refuse("folios", what.to_owned());
    }
    Ok(())
}
