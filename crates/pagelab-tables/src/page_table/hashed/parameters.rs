//! The parameters of hashed page tables and their checks.

use pagelab_trace::quantity::{Bytes, format_bytes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::page_table::{Context, PinnedTable, SizeProbes, SizeTables, SizesConfig};
use pagelab_base::addr::{FRAME_BYTES, PageSize, PhysAddr};
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
    /// The load factor of "Hash, Don't Cache (the Page Table)", 4.2 and 4.3: every design needs 64 bytes per page of
    /// memory. So does POWER's with one group per two pages, the minimum that the PowerPC manuals recommend.
    fn load_factor(self) -> f64 {
        match self {
            Self::Chained => 1.0 / 2.0,
            Self::Open | Self::Clustered | Self::Power => 1.0 / 4.0,
            Self::Compact => 1.0 / 8.0,
        }
    }

    /// Pages per cluster: the paper's number, and the possible numbers.
    fn clusters(self) -> (u32, &'static [u32]) {
        match self {
            Self::Chained | Self::Open | Self::Power => (1, &[1]),
            Self::Clustered => (4, &[2, 4, 8]),
            Self::Compact => (8, &[8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096]),
        }
    }
}

/// Maps a page's number to a position in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HashFunction {
    /// The SplitMix64 mixer of the cluster's number and the address space's tag: practically random.
    #[default]
    Mix64,
    /// The cluster's number modulo the number of positions: neighbouring clusters are adjacent, and processes with the
    /// same addresses collide. In the power design: segment numbers without scrambling.
    Modulo,
}

/// Who resolves collisions of the chained design.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Collisions {
    /// The walker follows the chain, as Barr et al. simulate it.
    #[default]
    Walker,
    /// The walker looks at the head of the chain only. If that has another tag, it raises a fault, whose handler
    /// searches the chain and exchanges the entry with the one in the head (Itanium).
    Kernel,
}

/// What happens to a page of the power design whose groups are both full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FullGroups {
    /// The run ends with an error.
    #[default]
    Error,
    /// The kernel moves an entry of the primary group to a record of its own, which no walker reads. A walk for that
    /// page raises a fault, whose handler moves it back.
    Evict,
}

/// Segments of the power design: a segment of an address space is one of the virtual addresses that all spaces share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SegmentsConfig {
    /// Size of all segments: 256 MiB or 1 TiB.
    pub bytes: Bytes,
    /// Size of the segment table of each address space, in groups of eight entries of 16 bytes: a power of two from
    /// 4 KiB, as in the processors with such tables (RS64), to 4 MiB.
    pub table_bytes: Bytes,
    /// Whether processes whose segments show the same part of a file, or of shared memory, with the same permissions
    /// use the same slots.
    pub shared: bool,
}

impl Default for SegmentsConfig {
    fn default() -> Self {
        Self { bytes: Bytes(1 << SMALL_SEGMENT), table_bytes: Bytes(FRAME_BYTES), shared: false }
    }
}

/// log2 of the sizes of segments (Power ISA, book III: 256 MiB and 1 TiB).
pub const SMALL_SEGMENT: u32 = 28;
pub const LARGE_SEGMENT: u32 = 40;
/// The largest segment table: the largest block that a kernel allocates.
const MAX_SEGMENT_TABLE: u64 = 4 << 20;

impl SegmentsConfig {
    /// log2 of the bytes of a segment.
    pub fn shift(&self) -> u32 {
        self.bytes.0.max(1).ilog2()
    }

    /// log2 of the frames of a segment table.
    pub fn table_order(&self) -> u32 {
        (self.table_bytes.0 / FRAME_BYTES).max(1).ilog2()
    }

    fn validate(&self, sizes: &SizesConfig, context: &Context) -> Result<(), EngineError> {
        let (bytes, table) = (self.bytes.0, self.table_bytes.0);
        if ![1 << SMALL_SEGMENT, 1 << LARGE_SEGMENT].contains(&bytes) {
            let what = format!("segments of {} are not possible; allowed are 256MiB and 1TiB", format_bytes(bytes));
            return context.refuse("page_table.segments.bytes", what);
        }
        if !table.is_power_of_two() || !(FRAME_BYTES..=MAX_SEGMENT_TABLE).contains(&table) {
            let what = format!("{} is not possible; allowed are powers of two from 4KiB to 4MiB", format_bytes(table));
            return context.refuse("page_table.segments.table_bytes", what);
        }
        let largest = sizes.order.iter().max().map_or(0, |size| size.bytes());
        if largest >= bytes {
            let what = format!(
                "a segment of {} cannot hold a page of {}; allowed are 4K alone, or 4K and 2M",
                format_bytes(bytes),
                format_bytes(largest),
            );
            return context.refuse("page_table.sizes.order", what);
        }
        if sizes.order.len() > 2 {
            let what = "a segment has one base page size, of which a larger page takes a slot each: a page of 1G would take \
                        262144; allowed are 4K alone, or 4K and 2M";
            return context.refuse("page_table.sizes.order", what);
        }
        if self.shared && sizes.order != [PageSize::Size4K] {
            let what = "shared segments have pages of 4 KiB; allowed is 4K alone, or page_table.segments.shared=false";
            return context.refuse("page_table.sizes.order", what);
        }
        if sizes.probes.is_some() {
            let what = "a walker learns the page size from the segment and makes one search; remove the key";
            return context.refuse("page_table.sizes.probes", what);
        }
        if !sizes.shares.is_empty() {
            let what = format!("{} has one table for all page sizes; remove the key", context.design);
            return context.refuse("page_table.sizes.shares", what);
        }
        Ok(())
    }
}

/// A table in the kernel's virtual addresses, whose memory stays where it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PinnedConfig {
    /// Number of fixed TLB entries that translate the first part of the table without a look-up. Each page size's table
    /// has as many, if it has one of its own.
    pub entries: u32,
    /// Bytes that each of these entries translates: a power of two from 4 KiB to 4 GiB (Itanium's page sizes).
    pub entry_bytes: Bytes,
    /// Cycles of a handler when the TLBs do not hold the rest (Itanium raises a fault). Default: 0, a walker reads the
    /// direct map's table itself.
    pub miss_cycles: u32,
}

impl Default for PinnedConfig {
    fn default() -> Self {
        Self { entries: 0, entry_bytes: Bytes(256 << 20), miss_cycles: 0 }
    }
}

impl PinnedConfig {
    /// How references to tables from a first address up to a last one are translated.
    pub fn pin(&self, tables: impl Iterator<Item = (PhysAddr, PhysAddr)>) -> PinnedTable {
        let fixed_bytes = self.entry_bytes.0.saturating_mul(self.entries.into());
        let mut fixed = [(PhysAddr(0), PhysAddr(0)); PageSize::ALL.len()];
        for (fixed, (start, end)) in fixed.iter_mut().zip(tables) {
            *fixed = (start, end.min(PhysAddr(start.0.saturating_add(fixed_bytes))));
        }
        PinnedTable { fixed, miss_cycles: self.miss_cycles.into() }
    }

    fn validate(&self, kind: HashedKind, context: &Context) -> Result<(), EngineError> {
        if kind == HashedKind::Power {
            let what = format!("the table of {} has real addresses; remove the key", context.design);
            return context.refuse("page_table.pinned", what);
        }
        let bytes = self.entry_bytes.0;
        if !bytes.is_power_of_two() || !(FRAME_BYTES..=4 << 30).contains(&bytes) {
            let what = format!("{} is not possible; allowed are powers of two from 4KiB to 4GiB", format_bytes(bytes));
            return context.refuse("page_table.pinned.entry_bytes", what);
        }
        Ok(())
    }
}

/// Parameters of a hashed page table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HashedConfig {
    /// Share of the slots in use when all of the layer's memory is mapped in whole clusters. Default: the paper's
    /// value: 1/2 chained, 1/4 open, clustered and power, 1/8 compact.
    #[serde(default)]
    pub load_factor: Option<f64>,
    /// Pages whose entries lie together. Default: the paper's value: clustered 4 (2 and 8 are possible), compact 8
    /// (powers of two up to 4096).
    #[serde(default)]
    pub cluster: Option<u32>,
    #[serde(default)]
    pub hash: HashFunction,
    /// Seed of the hash function.
    #[serde(default)]
    pub seed: u64,
    /// Size of the table instead of the size that memory and load factor give. In the chained design the chain table
    /// comes in addition.
    #[serde(default)]
    pub table_bytes: Option<Bytes>,
    /// Maximum number of lines that a search reads (in a chain: slots), 1 to 65536. A page without a slot among them
    /// cannot be mapped. The power design searches exactly two groups.
    #[serde(default = "search_lines")]
    pub search_lines: u32,
    /// Number of ended processes after which a scan deletes their slots.
    #[serde(default = "exits_per_scan")]
    pub exits_per_scan: u32,
    /// Who resolves collisions of the chained design.
    #[serde(default)]
    pub collisions: Collisions,
    /// What happens to a page of the power design whose groups are both full.
    #[serde(default)]
    pub full_groups: FullGroups,
    /// The page sizes that the table can hold, and how a walker finds them. Default: 4 KiB alone.
    #[serde(default)]
    pub sizes: SizesConfig,
    /// Segment tables of the power design. Default: none; each segment of each process has a number of its own, which
    /// the walker knows.
    #[serde(default)]
    pub segments: Option<SegmentsConfig>,
    /// Puts the table in virtual memory, so that a walk's references to it need a translation. Default: none; the table
    /// has physical addresses.
    #[serde(default)]
    pub pinned: Option<PinnedConfig>,
}

/// The largest possible `search_lines`; a walk stores a reference for each line.
pub const MAX_SEARCH_LINES: u32 = 1 << 16;

/// Far more than a search reads at the paper's load factors with a hash that spreads pages. A table that needs more is
/// full or misconfigured, so the run should end.
fn search_lines() -> u32 {
    63
}

/// Low enough that there are few stale slots compared to those in use. High enough that short programs rarely pay for a
/// scan of a table sized for all memory.
fn exits_per_scan() -> u32 {
    64
}

impl HashedConfig {
    pub fn load_factor_of(&self, kind: HashedKind) -> f64 {
        self.load_factor.unwrap_or_else(|| kind.load_factor())
    }

    /// The page sizes, all in one table if segments tell a walker the size.
    pub fn sizes_in_tables(&self) -> SizesConfig {
        let tables = if self.segments.is_some() { SizeTables::Shared } else { self.sizes.tables };
        SizesConfig { tables, ..self.sizes.clone() }
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
            let what = format!("{} searches exactly two groups of eight slots; remove the key", context.design);
            return context.refuse("page_table.search_lines", what);
        }
        if !(1..=MAX_SEARCH_LINES).contains(&self.search_lines) {
            let what = format!("{} is out of range; allowed are 1 to {MAX_SEARCH_LINES}", self.search_lines);
            return context.refuse("page_table.search_lines", what);
        }
        if self.exits_per_scan == 0 {
            return context.refuse("page_table.exits_per_scan", "0 is not possible; allowed is 1 and more");
        }
        match &self.segments {
            Some(segments) if kind == HashedKind::Power => segments.validate(&self.sizes, context)?,
            Some(_) => {
                let what = format!("{} has no segments; remove the key", context.design);
                return context.refuse("page_table.segments", what);
            }
            None if kind == HashedKind::Power && self.sizes.order != [PageSize::Size4K] => {
                let what = format!(
                    "{} cannot hold other sizes than 4K without segments that tell the page size; add page_table.segments, or remove \
                     the key",
                    context.design
                );
                return context.refuse("page_table.sizes.order", what);
            }
            None => {}
        }
        if let Some(pinned) = &self.pinned {
            pinned.validate(kind, context)?;
        }
        if kind != HashedKind::Chained && self.collisions != Collisions::Walker {
            let what = format!("{} has no chains; remove the key", context.design);
            return context.refuse("page_table.collisions", what);
        }
        if context.hosts && self.collisions == Collisions::Kernel {
            let what = "\"kernel\" is not possible for a host: a walk of a virtual machine needs several of its entries, and two \
                        of one chain would take the head from each other for ever; allowed is \"walker\"";
            return context.refuse("page_table.collisions", what);
        }
        if kind != HashedKind::Power && self.full_groups != FullGroups::Error {
            let what = format!("{} has no groups of slots; remove the key", context.design);
            return context.refuse("page_table.full_groups", what);
        }
        self.sizes.validate(false, context)
    }

    /// Small tables for tests, with every kind of cluster.
    pub(super) fn samples(kind: HashedKind) -> Vec<Self> {
        let small = Self {
            load_factor: None,
            cluster: None,
            hash: HashFunction::Mix64,
            seed: 0,
            table_bytes: Some(Bytes(4 << 20)),
            search_lines: search_lines(),
            exits_per_scan: 1,
            collisions: Collisions::Walker,
            full_groups: FullGroups::Error,
            sizes: SizesConfig::default(),
            segments: None,
            pinned: None,
        };
        let (usual, all) = kind.clusters();
        let mut samples = vec![small.clone()];
        for cluster in [all.first(), all.last()].into_iter().flatten().filter(|&&cluster| cluster != usual) {
            samples.push(Self { cluster: Some(*cluster), seed: 3, exits_per_scan: 3, ..small.clone() });
        }
        if kind == HashedKind::Power {
            let few_groups = Some(Bytes(32 << 10));
            samples.push(Self { full_groups: FullGroups::Evict, table_bytes: few_groups, ..small.clone() });
            let segments = Some(SegmentsConfig::default());
            let sizes = SizesConfig { order: vec![PageSize::Size4K, PageSize::Size2M], ..SizesConfig::default() };
            samples.push(Self { segments: segments.clone(), ..small.clone() });
            samples.push(Self { segments: segments.clone(), sizes: sizes.clone(), ..small.clone() });
            let shared = SegmentsConfig { shared: true, ..SegmentsConfig::default() };
            samples.push(Self { segments: Some(shared), ..small.clone() });
            let large = SegmentsConfig {
                bytes: Bytes(1 << LARGE_SEGMENT),
                table_bytes: Bytes(16 << 10),
                ..SegmentsConfig::default()
            };
            let table_bytes = Some(Bytes(64 << 10));
            let evict = FullGroups::Evict;
            samples.push(Self { segments: Some(large), sizes, full_groups: evict, table_bytes, ..small.clone() });
        }
        if kind == HashedKind::Chained {
            let few_heads = Some(Bytes(256 << 10));
            samples.push(Self { collisions: Collisions::Kernel, table_bytes: few_heads, ..small.clone() });
        }
        if kind == HashedKind::Open {
            let pinned = PinnedConfig { entries: 1, entry_bytes: Bytes(1 << 20), miss_cycles: 30 };
            samples.push(Self { pinned: Some(pinned), ..small.clone() });
        }
        if kind != HashedKind::Power {
            use PageSize::{Size1G, Size2M, Size4K};
            let sized = |order: &[PageSize], tables, probes, shares: &[f64]| Self {
                sizes: SizesConfig { order: order.to_vec(), tables, probes: Some(probes), shares: shares.to_vec() },
                ..small.clone()
            };
            samples.push(sized(&[Size4K, Size2M], SizeTables::Separate, SizeProbes::Parallel, &[]));
            samples.push(sized(&[Size2M, Size1G, Size4K], SizeTables::Separate, SizeProbes::Serial, &[0.2, 0.1, 0.7]));
            samples.push(sized(&[Size2M, Size4K], SizeTables::Shared, SizeProbes::Serial, &[]));
            samples.push(sized(&[Size4K, Size1G, Size2M], SizeTables::Shared, SizeProbes::Parallel, &[]));
        }
        samples
    }
}
