//! The part of each core that checks the tags of machine frames (`scheme/do_it_yourself.rs` says what it models).

use crate::counters::FrameTagCounters;
use pagelab_base::addr::FRAME_SHIFT;
use pagelab_base::assoc::{AssocArray, AssocPolicy, array};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::ids::{CoreId, LayerId};
use pagelab_base::rng::Rng;
use pagelab_kernel::config::{SystemConfig, TagCheck};

/// What cores need to check tags.
#[derive(Clone)]
pub struct TagChecks {
    /// The layer that keeps the tags.
    pub(crate) machine: LayerId,
    /// Tag cache of each core, by number of the line.
    pub(crate) caches: Vec<AssocArray>,
    /// Cycles of a look-up of the cache.
    pub(crate) latency: Cycles,
    /// Whether accesses wait for the check.
    pub(crate) waited: bool,
    /// Frames that the hypervisor gives a guest at once.
    pub(crate) grant_frames: u64,
    /// What happened.
    pub counters: FrameTagCounters,
}

impl TagChecks {
    /// For the layer that has tags, if one does.
    pub(crate) fn new(system: &SystemConfig, cores: usize, seed: u64) -> Result<Option<Self>, EngineError> {
        let Some(at) = system.layers.iter().position(|layer| layer.frame_tags.is_some()) else { return Ok(None) };
        let Some(tags) = system.layers[at].frame_tags else { return Ok(None) };
        let key = format!("system.layers.{}.frame_tags.cache_entries", system.layers[at].name);
        let cache = |core: CoreId| {
            let rng = Rng::new(seed, &format!("core {core} frame tags"));
            array(&key, tags.cache_entries, tags.cache_ways, AssocPolicy::Lru, &rng)
        };
        Ok(Some(Self {
            machine: at.into(),
            caches: CoreId::all(cores).map(cache).collect::<Result<_, EngineError>>()?,
            latency: tags.latency_cycles.into(),
            waited: tags.check == TagCheck::Waited,
            grant_frames: tags.grant_bytes.0 >> FRAME_SHIFT,
            counters: FrameTagCounters::default(),
        }))
    }
}
