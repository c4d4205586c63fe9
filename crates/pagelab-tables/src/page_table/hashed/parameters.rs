//! The parameters of hashed page tables, and what makes them impossible.

use pagelab_trace::quantity::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::page_table::Context;
use pagelab_base::error::EngineError;

/// The hashed designs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashedKind {
    Chained,
    Open,
    Clustered,
    Compact,
    Power,
}

impl HashedKind {
    /// The load factor of "Hash, Don't Cache (the Page Table)", 4.2 and 4.3: all designs take 64 bytes a page of
    /// memory. So does POWER's with a group for two pages, the fewest that the PowerPC manuals recommend.
    fn load_factor(self) -> f64 {
        match self {
            Self::Chained => 1.0 / 2.0,
            Self::Open | Self::Clustered | Self::Power => 1.0 / 4.0,
            Self::Compact => 1.0 / 8.0,
        }
    }

    /// Pages of a cluster: the paper's, and those that are possible.
    fn clusters(self) -> (u32, &'static [u32]) {
        match self {
            Self::Chained | Self::Open | Self::Power => (1, &[1]),
            Self::Clustered => (4, &[2, 4, 8]),
            Self::Compact => (8, &[8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096]),
        }
    }
}

/// What turns a page's number into a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HashFunction {
    /// The mixer of SplitMix64 over the cluster's number and the address space's tag: as good as random.
    #[default]
    Mix64,
    /// The cluster's number modulo the number of places: neighbours lie beside each other, and processes that use the
    /// same addresses collide. Of the power design: segments' numbers that are not scrambled.
    Modulo,
}

/// Parameters of a hashed page table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HashedConfig {
    /// Share of the slots that are in use when all of the layer's memory is mapped in whole clusters; none for the
    /// paper's: 1/2 chained, 1/4 open, clustered and power, 1/8 compact.
    #[serde(default)]
    pub load_factor: Option<f64>,
    /// Pages whose entries lie together; none for the paper's: clustered 4 (2 and 8 are possible), compact 8 (powers of
    /// two up to 4096).
    #[serde(default)]
    pub cluster: Option<u32>,
    #[serde(default)]
    pub hash: HashFunction,
    /// Seed of the hash function.
    #[serde(default)]
    pub seed: u64,
    /// Size of the table, whatever the memory and the load factor; of a chained one without the chain table.
    #[serde(default)]
    pub table_bytes: Option<Bytes>,
    /// Lines that a search reads at most, or slots of a chain: 1 to 65536. A page that has no place among them cannot
    /// be mapped. The power design has two groups and nothing to search beyond them.
    #[serde(default = "search_lines")]
    pub search_lines: u32,
    /// Processes that have ended when a scan deletes what they left.
    #[serde(default = "exits_per_scan")]
    pub exits_per_scan: u32,
}

/// The longest search that one may ask for; a walk keeps a reference to each of its lines.
pub const MAX_SEARCH_LINES: u32 = 1 << 16;

/// Far more than a search reads at the load factors of the paper if the hash spreads pages, so a table that needs more
/// is full or has another fault, which a run had better end with.
fn search_lines() -> u32 {
    63
}

/// Few enough that the slots left behind are few beside those in use, and so many that short programs do not pay for
/// reading a table sized to all memory.
fn exits_per_scan() -> u32 {
    64
}

impl HashedConfig {
    pub fn load_factor_of(&self, kind: HashedKind) -> f64 {
        self.load_factor.unwrap_or_else(|| kind.load_factor())
    }

    pub fn cluster_of(&self, kind: HashedKind) -> u32 {
        self.cluster.unwrap_or(kind.clusters().0)
    }

    /// Checks the parameters.
    pub(super) fn validate(&self, kind: HashedKind, context: &Context) -> Result<(), EngineError> {
        let load = self.load_factor_of(kind);
        if !(load > 0.0 && load <= 1.0) {
            let what = format!("{load} is not possible; allowed is more than 0 (no page) up to 1 (every slot in use)");
            return context.refuse("page_table.load_factor", what);
        }
        let (cluster, (_, allowed)) = (self.cluster_of(kind), kind.clusters());
        if !allowed.contains(&cluster) {
            let allowed = allowed.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            let what = format!("{cluster} pages are not possible; {} allows {allowed}", context.design);
            return context.refuse("page_table.cluster", what);
        }
        if kind == HashedKind::Power && self.search_lines != search_lines() {
            let what = format!("{} looks at two groups of eight slots and no further; remove it", context.design);
            return context.refuse("page_table.search_lines", what);
        }
        if !(1..=MAX_SEARCH_LINES).contains(&self.search_lines) {
            let what = format!("{} is out of range; allowed are 1 to {MAX_SEARCH_LINES}", self.search_lines);
            return context.refuse("page_table.search_lines", what);
        }
        if self.exits_per_scan == 0 {
            return context.refuse("page_table.exits_per_scan", "0 is not possible; allowed is 1 and more");
        }
        Ok(())
    }

    /// Small tables, with every cluster that differs in kind.
    pub(super) fn samples(kind: HashedKind) -> Vec<Self> {
        let small = Self {
            load_factor: None,
            cluster: None,
            hash: HashFunction::Mix64,
            seed: 0,
            table_bytes: Some(Bytes(4 << 20)),
            search_lines: search_lines(),
            exits_per_scan: 1,
        };
        let (usual, all) = kind.clusters();
        let mut samples = vec![small.clone()];
        for cluster in [all.first(), all.last()].into_iter().flatten().filter(|&&cluster| cluster != usual) {
            samples.push(Self { cluster: Some(*cluster), seed: 3, exits_per_scan: 3, ..small.clone() });
        }
        samples
    }
}
