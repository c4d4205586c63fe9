//! Geometry, latencies and policies of the caches, and checks of the configuration.

use pagelab_trace::quantity::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::index::{MAX_SETS, SetIndex};
use super::slices::MAX_HASH_BITS;
use super::table_bias::TableBias;
use super::ways::{MAX_WAYS, TAG_LIMIT};
use pagelab_base::addr::{LINE_BYTES, LINE_SHIFT};
use pagelab_base::switch::Switch;

/// The data caches of a machine: a private L1 and L2 per core, an L3 shared by all cores, and memory.
///
/// Latencies are load-to-use totals: the cost of an access that is served at this level, including the failed look-ups
/// before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CacheConfig {
    /// Data cache of each core.
    pub l1: PrivateCacheConfig,
    /// Instruction cache of each core; default: none, and no run looks for instructions in caches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l1i: Option<PrivateCacheConfig>,
    /// Second-level cache of each core; default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l2: Option<PrivateCacheConfig>,
    /// Cache shared by all cores; default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l3: Option<SharedCacheConfig>,
    /// Cycles of an access served by memory.
    pub dram_latency_cycles: u32,
    /// Cycles of an access served by another core's private cache. Default 60, the latency of a line modified in
    /// another core of a Sandy Bridge (Intel 64 and IA-32 Optimization Reference Manual, load latencies).
    #[serde(default = "default_cache_to_cache")]
    pub cache_to_cache_latency_cycles: u32,
    /// Longer latencies between distant cores: clusters, dies, sockets. The largest that applies to two cores counts,
    /// for transfers and, by its difference to `cache_to_cache_latency_cycles`, for upgrades. Default: all cores are
    /// equally far apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub far_cores: Vec<FarCores>,
    /// Whether transfers of a line between cores wait for each other; `off` lets all begin at once.
    #[serde(default = "on", skip_serializing_if = "is_on")]
    pub queue_transfers: Switch,
    /// Additional cycles of a write to a shared line, to invalidate the other cores' copies. Default 43, a clean hit in
    /// another core in the same table (estimated: the same message is sent).
    #[serde(default = "default_upgrade")]
    pub upgrade_latency_cycles: u32,
    /// Additional cycles of a locked read-modify-write compared to a write. Default 18 (estimated).
    #[serde(default = "default_locked")]
    pub locked_extra_cycles: u32,
    /// The first cache that page walks access.
    #[serde(default)]
    pub walker_entry: WalkerEntry,
    /// Lines in flight during a bulk write: the sum of their latencies is divided by this number. Default 10, the
    /// line-fill buffers of an Intel core since Nehalem (Intel 64 and IA-32 Optimization Reference Manual).
    #[serde(default = "default_bulk_parallelism")]
    pub bulk_parallelism: u32,
}

/// A longer latency of transfers between distant cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FarCores {
    /// Consecutive cores that are near each other: a cluster, a die or a socket.
    pub cores: u32,
    /// Cycles of an access that another core's private cache serves, from one such group to another.
    pub latency_cycles: u32,
}

/// A cache of one core.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrivateCacheConfig {
    /// Bytes of data: sets × ways × 64. Any number of sets is possible.
    pub size_bytes: Bytes,
    /// Lines per set, 1 to 64.
    pub ways: u32,
    /// Cycles of an access served by this cache.
    pub latency_cycles: u32,
    /// Which line of a full set is replaced.
    #[serde(default)]
    pub policy: ReplacementPolicy,
}

/// The cache shared by all cores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SharedCacheConfig {
    /// Bytes of data: sets × ways × 64. Any number of sets is possible (12288 sets are common).
    pub size_bytes: Bytes,
    /// Lines per set, 1 to 64.
    pub ways: u32,
    /// Cycles of an access served by this cache.
    pub latency_cycles: u32,
    /// Which line of a full set is replaced.
    #[serde(default)]
    pub policy: ReplacementPolicy,
    /// Whether it must hold every line that a private cache holds.
    #[serde(default)]
    pub inclusion: Inclusion,
    /// Number of its slices, a divisor of the number of sets. 1 means that slices are not modelled.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub slices: u32,
    /// How a line's slice is chosen, if there are several slices.
    #[serde(default, skip_serializing_if = "SliceHash::is_default")]
    pub slice_hash: SliceHash,
}

impl SharedCacheConfig {
    /// Number of bits of the slice's number that are a hash of the machine address.
    fn hash_bits(&self) -> u32 {
        match self.slice_hash {
            SliceHash::Xor => self.slices.trailing_zeros(),
            SliceHash::None => 0,
        }
    }
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_one(slices: &u32) -> bool {
    *slices == 1
}

/// How the slice of a line is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SliceHash {
    /// With 2^n × m slices, m odd: n bits are parities of address bits (Maurice et al., "Reverse Engineering Intel
    /// Last-Level Cache Complex Addressing Using Performance Counters", RAID 2015), and m is a remainder.
    #[default]
    Xor,
    /// By low bits of the line's number, like the set within the slice: equivalent to one slice.
    None,
}

impl SliceHash {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Which line of a full set is replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReplacementPolicy {
    /// The least recently used one.
    #[default]
    Lru,
    /// The line that a binary tree of direction bits points at. A node over n > 1 ways has the first ⌈n/2⌉ of them on
    /// its left and the others on its right; its bit tells on which side the victim is (0, the initial value: left). An
    /// access turns the bits on its way's path to the other side. For a power of two this is the textbook tree.
    TreePlru,
    /// Any line, with equal probability.
    Random,
    /// Static re-reference interval prediction with 2 bits and hit priority (Jaleel, Theobald, Steely, Emer,
    /// "High performance cache replacement using re-reference interval prediction", ISCA 2010).
    Srrip,
    /// The least recently used one, but while page walks are many, the least recently used one of data. For the L2 and
    /// the L3.
    KeepTables(TableBias),
    /// SRRIP by frequency that keeps blocks of translations (`machine.tlb.stages.victima`) while the TLB misses often.
    /// For the L2.
    KeepBlocks,
}

/// What an eviction from the shared cache does to the private caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Inclusion {
    /// It removes all private copies too (back-invalidation), so the private caches hold a subset.
    #[default]
    Inclusive,
    /// It leaves private copies in place.
    NonInclusive,
}

/// The first cache that page walks access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WalkerEntry {
    /// The L1 data cache.
    #[default]
    L1,
    /// The private L2, which is then required.
    L2,
}

fn on() -> Switch {
    Switch(true)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_on(switch: &Switch) -> bool {
    switch.0
}

fn default_cache_to_cache() -> u32 {
    60
}

fn default_upgrade() -> u32 {
    43
}

fn default_locked() -> u32 {
    18
}

fn default_bulk_parallelism() -> u32 {
    10
}

/// A configuration that cannot be built; `key` is relative to the cache configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {what}")]
pub struct CacheConfigError {
    /// The key, relative to the cache configuration.
    pub key: String,
    /// What is wrong, and what is allowed.
    pub what: String,
}

impl CacheConfigError {
    pub(super) fn new(key: impl Into<String>, what: impl Into<String>) -> Self {
        Self { key: key.into(), what: what.into() }
    }
}

/// Largest number of cores: presence in an inclusive L3 is a bit mask of this width.
pub const MAX_CORES: usize = 64;

/// The parameters of a level, private or shared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    pub name: &'static str,
    pub size: Bytes,
    pub ways: u32,
    pub latency: u32,
    pub policy: ReplacementPolicy,
    /// Number of its slices.
    pub slices: u32,
    /// See [`SharedCacheConfig::hash_bits`].
    pub hash_bits: u32,
}

impl Level {
    fn private(name: &'static str, config: &PrivateCacheConfig) -> Self {
        let PrivateCacheConfig { size_bytes: size, ways, latency_cycles: latency, policy } = *config;
        Self { name, size, ways, latency, policy, slices: 1, hash_bits: 0 }
    }

    /// Number of sets of a valid level.
    pub fn sets(&self) -> u64 {
        self.size.0 / (u64::from(self.ways) * LINE_BYTES)
    }

    fn validate(&self) -> Result<(), CacheConfigError> {
        let error = |field: &str, what: String| Err(CacheConfigError::new(format!("{}.{field}", self.name), what));
        if self.ways == 0 || self.ways as usize > MAX_WAYS {
            return error("ways", format!("{} is not possible; allowed are 1 to {MAX_WAYS}", self.ways));
        }
        if let ReplacementPolicy::KeepTables(bias) = self.policy {
            if self.name.starts_with("l1") {
                return error("policy", "'keep-tables' is for the l2 and the l3".into());
            }
            if let Some((parameter, what)) = bias.error() {
                return error(&format!("policy.keep-tables.{parameter}"), what);
            }
        }
        if self.policy == ReplacementPolicy::KeepBlocks && self.name != "l2" {
            return error("policy", "'keep-blocks' is for the l2".into());
        }
        if self.latency == 0 {
            return error("latency_cycles", "must be at least 1".into());
        }
        let row = u64::from(self.ways) * LINE_BYTES;
        if self.size.0 == 0 || !self.size.0.is_multiple_of(row) {
            let below = self.size.0 / row * row;
            let above = Bytes(below.saturating_add(row));
            let nearest = match below {
                0 => format!("the nearest valid size is {above}"),
                _ => format!("the nearest valid sizes are {} and {above}", Bytes(below)),
            };
            let what =
                format!("{} is not a whole number of sets of {} ways of 64 bytes; {nearest}", self.size, self.ways);
            return error("size_bytes", what);
        }
        if self.sets() > MAX_SETS {
            let largest = Bytes(MAX_SETS * row);
            return error(
                "size_bytes",
                format!("{} is too large; at most {largest} with {} ways", self.size, self.ways),
            );
        }
        if self.slices == 0 || !self.sets().is_multiple_of(self.slices.into()) {
            let what = format!("{} is not possible; allowed are divisors of its {} sets", self.slices, self.sets());
            return error("slices", what);
        }
        if self.hash_bits > MAX_HASH_BITS {
            let what = format!(
                "no hash of {} slices is known; allowed are 1, 2, 4 or 8 times an odd number, or slice_hash = \"none\"",
                self.slices
            );
            return error("slices", what);
        }
        Ok(())
    }
}

impl CacheConfig {
    /// The configured levels, from the core outwards.
    pub(super) fn levels(&self) -> impl Iterator<Item = Level> {
        let l3 = self.l3.as_ref().map(|c| Level {
            name: "l3",
            size: c.size_bytes,
            ways: c.ways,
            latency: c.latency_cycles,
            policy: c.policy,
            slices: c.slices,
            hash_bits: if c.slices == 0 { 0 } else { c.hash_bits() },
        });
        let l2 = self.l2.as_ref().map(|c| Level::private("l2", c));
        [Some(Level::private("l1", &self.l1)), l2, l3].into_iter().flatten()
    }

    /// The instruction cache, if there is one.
    pub(super) fn instruction_cache(&self) -> Option<Level> {
        self.l1i.as_ref().map(|c| Level::private("l1i", c))
    }

    /// Latency of the last cache before memory.
    pub fn last_latency_cycles(&self) -> u32 {
        self.levels().last().expect("there is always an L1").latency
    }

    /// Checks everything that does not depend on the rest of the machine.
    ///
    /// # Errors
    /// The first key with an impossible value, and what would be possible.
    pub fn validate(&self) -> Result<(), CacheConfigError> {
        let mut nearer: Option<Level> = None;
        for level in self.levels() {
            level.validate()?;
            if let Some(nearer) = nearer.filter(|n| n.latency >= level.latency) {
                return Err(slower(&format!("{}.latency_cycles", level.name), level.latency, &nearer));
            }
            nearer = Some(level);
        }
        if let Some(l1i) = self.instruction_cache() {
            l1i.validate()?;
            let (key, latency) =
                self.levels().nth(1).map_or(("dram_latency_cycles".into(), self.dram_latency_cycles), |next| {
                    (format!("{}.latency_cycles", next.name), next.latency)
                });
            if l1i.latency >= latency {
                return Err(slower(&key, latency, &l1i));
            }
        }
        let last = nearer.expect("there is always an L1");
        if self.dram_latency_cycles <= last.latency {
            return Err(slower("dram_latency_cycles", self.dram_latency_cycles, &last));
        }
        let private = self.levels().take_while(|l| l.name != "l3").last().expect("there is always an L1");
        if self.cache_to_cache_latency_cycles <= private.latency {
            return Err(slower("cache_to_cache_latency_cycles", self.cache_to_cache_latency_cycles, &private));
        }
        let mut nearer = ("cache_to_cache_latency_cycles".to_owned(), self.cache_to_cache_latency_cycles, 0);
        for (n, far) in self.far_cores.iter().enumerate() {
            let key = |name: &str| format!("far_cores.{n}.{name}");
            if far.cores <= nearer.2 {
                let what = format!("{} is not possible; a wider group has more than {} cores", far.cores, nearer.2);
                return Err(CacheConfigError::new(key("cores"), what));
            }
            if far.latency_cycles <= nearer.1 {
                let what = format!("{} must be more than {}, which is {}", far.latency_cycles, nearer.0, nearer.1);
                return Err(CacheConfigError::new(key("latency_cycles"), what));
            }
            nearer = (key("latency_cycles"), far.latency_cycles, far.cores);
        }
        if self.walker_entry == WalkerEntry::L2 && self.l2.is_none() {
            return Err(CacheConfigError::new("walker_entry", "'l2' needs an l2; configure one or write 'l1'"));
        }
        if self.bulk_parallelism == 0 {
            return Err(CacheConfigError::new("bulk_parallelism", "must be at least 1"));
        }
        Ok(())
    }

    /// Number of address bits of the largest machine memory whose lines the tags can distinguish; for a valid
    /// configuration.
    pub fn max_physical_address_bits(&self) -> u32 {
        let lines = self
            .levels()
            .chain(self.instruction_cache())
            .map(|l| SetIndex::new(l.sets(), l.hash_bits))
            .map(|i| i.exact_below().min(TAG_LIMIT.saturating_mul(i.rows())));
        lines.min().expect("there is always an L1").ilog2() + LINE_SHIFT
    }

    /// Checks that machine addresses below `size` fit the tags.
    ///
    /// # Errors
    /// If they do not; the error names the largest memory that would.
    pub fn check_memory(&self, size: Bytes) -> Result<(), CacheConfigError> {
        let largest = Bytes(1 << self.max_physical_address_bits());
        if size > largest {
            let what =
                format!("memory of {size} is more than these caches can address ({largest}): more sets allow more");
            return Err(CacheConfigError::new("l1.size_bytes", what));
        }
        Ok(())
    }
}

fn slower(key: &str, latency: u32, nearer: &Level) -> CacheConfigError {
    let what = format!("{latency} must be more than {}.latency_cycles, which is {}", nearer.name, nearer.latency);
    CacheConfigError::new(key, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::test_support::sandy_bridge;

    fn message(config: &CacheConfig) -> String {
        config.validate().unwrap_err().to_string()
    }

    #[test]
    fn sizes_that_are_no_whole_sets_name_their_neighbours() {
        let mut config = sandy_bridge();
        config.validate().unwrap();
        let l3 = config.l3.as_mut().unwrap();
        l3.ways = 18;
        assert_eq!(
            message(&config),
            "l3.size_bytes: 15MiB is not a whole number of sets of 18 ways of 64 bytes; the nearest valid sizes are \
             15728256B and 15360.75KiB"
        );
        let l3 = config.l3.as_mut().unwrap();
        (l3.ways, l3.size_bytes) = (16, Bytes(12 << 20));
        config.validate().unwrap();
        config.l1.size_bytes = Bytes(100);
        assert!(message(&config).ends_with("the nearest valid size is 512B"), "{}", message(&config));
        config.l1.size_bytes = Bytes(0);
        assert!(message(&config).starts_with("l1.size_bytes: "));
        config.l1.size_bytes = Bytes(1 << 40);
        assert!(message(&config).contains("at most 8GiB with 8 ways"), "{}", message(&config));
    }

    #[test]
    fn impossible_numbers_are_refused_with_the_allowed_ones() {
        type Break = fn(&mut CacheConfig);
        let cases: [(Break, &str); 10] = [
            (|c| c.l1.ways = 0, "l1.ways: 0 is not possible; allowed are 1 to 64"),
            (|c| c.l1.ways = 65, "l1.ways: 65 is not possible; allowed are 1 to 64"),
            (|c| c.l1.latency_cycles = 0, "l1.latency_cycles: must be at least 1"),
            (|c| c.l1.latency_cycles = 12, "l2.latency_cycles: 12 must be more than l1.latency_cycles, which is 12"),
            (
                |c| c.dram_latency_cycles = 30,
                "dram_latency_cycles: 30 must be more than l3.latency_cycles, which is 30",
            ),
            (
                |c| c.l3.as_mut().unwrap().latency_cycles = 5,
                "l3.latency_cycles: 5 must be more than l2.latency_cycles, which is 12",
            ),
            (
                |c| c.cache_to_cache_latency_cycles = 12,
                "cache_to_cache_latency_cycles: 12 must be more than l2.latency_cycles, which is 12",
            ),
            (|c| c.bulk_parallelism = 0, "bulk_parallelism: must be at least 1"),
            (
                |c| (c.l2, c.walker_entry) = (None, WalkerEntry::L2),
                "walker_entry: 'l2' needs an l2; configure one or write 'l1'",
            ),
            (
                |c| (c.l2, c.l3, c.dram_latency_cycles) = (None, None, 4),
                "dram_latency_cycles: 4 must be more than l1.latency_cycles, which is 4",
            ),
        ];
        for (break_it, expected) in cases {
            let mut config = sandy_bridge();
            break_it(&mut config);
            assert_eq!(message(&config), expected);
        }
    }

    #[test]
    fn memory_must_fit_the_tags() {
        let mut config = sandy_bridge();
        // 64 sets of L1 × (2^30 − 1) tags: just short of 36 bits of line number.
        assert_eq!(config.max_physical_address_bits(), 41);
        config.check_memory(Bytes(2 << 40)).unwrap();
        let error = config.check_memory(Bytes(3 << 40)).unwrap_err().to_string();
        assert!(error.contains("memory of 3TiB is more than these caches can address (2TiB)"), "{error}");
        config.l1.size_bytes = Bytes(512);
        assert_eq!(config.max_physical_address_bits(), 35);
    }

    #[test]
    fn files_name_policies_in_kebab_case_and_unknown_keys_are_refused() {
        let text = r#"
            dram_latency_cycles = 100
            l1 = { size_bytes = "32KiB", ways = 8, latency_cycles = 4, policy = "tree-plru" }
            l3 = { size_bytes = "12MiB", ways = 16, latency_cycles = 30, policy = "srrip", inclusion = "non-inclusive" }
        "#;
        let config: CacheConfig = toml::from_str(text).unwrap();
        assert_eq!(config.l1.policy, ReplacementPolicy::TreePlru);
        assert_eq!(config.l2, None);
        assert_eq!(config.l3.as_ref().unwrap().inclusion, Inclusion::NonInclusive);
        assert_eq!((config.bulk_parallelism, config.walker_entry), (10, WalkerEntry::L1));
        let again: CacheConfig = toml::from_str(&toml::to_string(&config).unwrap()).unwrap();
        assert_eq!(again, config);
        let unknown = text.replace("ways = 8", "ways = 8, assoc = 8");
        assert!(toml::from_str::<CacheConfig>(&unknown).unwrap_err().to_string().contains("unknown field `assoc`"));
    }
}
