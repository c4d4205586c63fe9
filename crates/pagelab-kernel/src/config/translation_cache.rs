//! Configuration of the translation cache, in which walks of page faults begin.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::StageCost;
use pagelab_base::code_cost::{CodeCost, CodeCycles};
use pagelab_base::error::EngineError;
use pagelab_tables::page_table::PageTableConfig;

const MOST_ENTRIES: u32 = 512;
const MOST_WAYS: u32 = 16;
/// Instructions that read the mapping's `vm_mm`.
const ROOT_INSTRUCTIONS: u32 = 4;
/// Default cycles if neither the cache's parameters nor the walk leave them to the core: to read the mapping's `vm_mm`,
/// for offset and checks of a level, for a look-up in arrays, for a look-up with the help of hardware, and to fill a
/// level.
const ROOT_CYCLES: u32 = 1;
const LEVEL_CYCLES: u32 = 1;
const LOOK_UP_CYCLES: u32 = 0;
const ASSIST_CYCLES: u32 = 4;
const FILL_CYCLES: u32 = 0;

/// Cache of a kernel for entries of earlier walks, used by walks of page faults ([`crate::translation_cache`]). For
/// radix page tables only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "form", rename_all = "kebab-case", deny_unknown_fields)]
pub enum TranslationCacheConfig {
    /// The tag is the whole address above the entry: never wrong.
    FullPrefix(TranslationCacheArrays),
    /// The tag is the offset within a level, and a hit requires hits in the levels above: the published rule, which is
    /// wrong beyond 1 GiB.
    AsPublished(TranslationCacheArrays),
    /// The same with one index for all levels, from the pud offset, which the paper rejects.
    PudIndex(TranslationCacheArrays),
    /// Slots whose tag is the whole address above the entry, plus the address space's generation: never wrong. As in
    /// Linux 6.12 with pagelab's patches.
    Generations(TranslationCacheSlots),
    /// No arrays: the hardware walker passes the last entry that it read to the fault handler.
    MmuAssisted(MmuAssist),
}

/// Costs of a translation cache, and what a hit saves of a walk, without references.
#[derive(Clone, Copy, Debug)]
pub struct TranslationCacheCosts {
    /// Cost of each look-up, hit or miss.
    pub look_up: CodeCost,
    /// Saved per skipped level.
    pub level: CodeCost,
    /// Saved by skipping the root.
    pub root: CodeCost,
    /// Cost of filling, per level.
    pub fill: CodeCost,
}

/// Arrays of a translation cache, one for each level above the leaf. Cycles are numbers or `core`: as many as the
/// machine's core model takes for the instructions. The default is `core` if `kernel.fault.walk` has `core`, otherwise
/// an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TranslationCacheArrays {
    /// Entries of a level: a power of two from 4 to 512. The paper gives no number; 16 is an estimate.
    pub entries: u32,
    /// Entries of the level of the pud, if not as many as of the others. Not for the form `pud-index`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pud_entries: Option<u32>,
    /// Associativity: a power of two up to 16; 1 for direct-mapped, as published.
    pub ways: u32,
    /// What owns a cache.
    pub per: CacheOwner,
    /// Cycles of a look-up beyond its references: computing, masking and comparing offsets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles: Option<CodeCycles>,
    /// Instructions of a look-up.
    pub instructions: u32,
    /// Cycles of the stage `walk` that a hit saves per level that it skips, beyond the reference: an offset and the
    /// checks of an entry (`pud_alloc`, `pud_trans_huge`). All levels and the root together save no more than the stage
    /// costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level_cycles: Option<CodeCycles>,
    /// Instructions of the stage `walk` that a hit saves per level that it skips.
    pub level_instructions: u32,
    /// Cycles that a hit saves by not reading the mapping's `vm_mm` to find the root, beyond the reference to
    /// `mm->pgd`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_cycles: Option<CodeCycles>,
    /// Instructions of the stage `walk` that a hit saves by not looking for the root.
    pub root_instructions: u32,
    /// Cycles of filling one level, beyond its references.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fill_cycles: Option<CodeCycles>,
    /// Instructions of filling one level.
    pub fill_instructions: u32,
    /// For tests only: omits these invalidations, to show that they are necessary.
    pub omit_invalidation: Option<InvalidationCause>,
}

impl Default for TranslationCacheArrays {
    fn default() -> Self {
        Self {
            entries: 16,
            pud_entries: None,
            ways: 1,
            per: CacheOwner::Vma,
            cycles: None,
            instructions: 24,
            level_cycles: None,
            level_instructions: 12,
            root_cycles: None,
            root_instructions: ROOT_INSTRUCTIONS,
            fill_cycles: None,
            fill_instructions: 6,
            omit_invalidation: None,
        }
    }
}

/// Slots as in pagelab's patched Linux (`pagelab_linux/kernel/src/walk_cache.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TranslationCacheSlots {
    /// What the slots hold, and what owns them.
    pub kind: SlotKind,
    /// Slots of a level, 32 bytes each: a power of two from 4 to 512. Default 16, as in the patches
    /// (`PAGELAB_WALK_CACHE_BITS`).
    pub slots: u32,
    /// Instructions; by default those traced for this kind. Their cycles are in proportion to those of the stage
    /// `walk`.
    pub costs: Option<SlotCosts>,
    /// For tests only: omits these invalidations, to show that they are necessary.
    pub omit_invalidation: Option<InvalidationCause>,
}

impl Default for TranslationCacheSlots {
    fn default() -> Self {
        Self { kind: SlotKind::Vma, slots: 16, costs: None, omit_invalidation: None }
    }
}

impl TranslationCacheSlots {
    /// The configured instructions, or those traced for its kind.
    pub fn costs(&self) -> SlotCosts {
        self.costs.unwrap_or_else(|| self.kind.traced())
    }
}

/// Kinds of slots, named as in the kernel patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SlotKind {
    /// Per mapping, for PMD and PUD entries.
    Vma,
    /// Per CPU, for PMD and PUD entries of everything that runs there.
    Cpu,
    /// Per CPU, for PMD tables: a slot covers 1 GiB.
    CpuTable,
}

impl SlotKind {
    /// The kind that fits an owner of arrays, for the conformance tests.
    fn for_owner(per: CacheOwner) -> Self {
        match per {
            CacheOwner::Vma => Self::Vma,
            CacheOwner::Mm => Self::CpuTable,
            CacheOwner::Cpu => Self::Cpu,
        }
    }

    /// Instructions that `pagelab linux trace` counts in Linux 6.12.117-1~deb12u1 with pagelab's patches, relative to a
    /// walk of 228 instructions with the cache off, or 240 with five levels: PMD hits in `touch,sequential,64`, PUD
    /// hits in `touch,random,64`, misses in `touch,regions,32`. 98 % of these faults execute exactly this number.
    fn traced(self) -> SlotCosts {
        let (pmd_hit, pud_hit, miss, fill, fill_slot) = match self {
            Self::Vma => (-41, 21, 30, 56, 9),
            Self::Cpu => (-51, 7, 23, 44, 1),
            Self::CpuTable => (-47, 0, 16, 38, 0),
        };
        SlotCosts { pmd_hit, pud_hit, miss, level: 12, fill, fill_slot }
    }
}

/// Instructions of a walk with slots, relative to the four-level walk from the root in the stage `walk`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SlotCosts {
    /// Additional instructions of a look-up that finds a PMD entry; negative if it saves instructions.
    pub pmd_hit: i32,
    /// The same for a PUD entry.
    pub pud_hit: i32,
    /// Additional instructions of a look-up that finds nothing.
    pub miss: i32,
    /// Instructions that a hit saves for each level beyond the fourth.
    pub level: u32,
    /// Instructions of filling after a walk.
    pub fill: u32,
    /// Further instructions per slot that is written.
    pub fill_slot: u32,
}

/// The kernel's use of entries that the hardware walker passes to it. Cycles are as for arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MmuAssist {
    /// Cycles of reading the entry's address and checking that it is still valid, beyond its reference. This and the
    /// instructions are estimates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles: Option<CodeCycles>,
    /// Instructions of reading the entry's address and checking it.
    pub instructions: u32,
    /// Cycles of the stage `walk` that a hit saves per level that it skips, beyond the reference: an offset and the
    /// checks of an entry (`pud_alloc`, `pud_trans_huge`). All levels and the root together save no more than the stage
    /// costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level_cycles: Option<CodeCycles>,
    /// Instructions of the stage `walk` that a hit saves per level that it skips.
    pub level_instructions: u32,
    /// Cycles that a hit saves by not reading the mapping's `vm_mm` to find the root, beyond the reference to
    /// `mm->pgd`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_cycles: Option<CodeCycles>,
    /// Instructions of the stage `walk` that a hit saves by not looking for the root.
    pub root_instructions: u32,
    /// For tests only: omits these invalidations, to show that they are necessary.
    pub omit_invalidation: Option<InvalidationCause>,
}

impl Default for MmuAssist {
    fn default() -> Self {
        Self {
            cycles: None,
            instructions: 8,
            level_cycles: None,
            level_instructions: 12,
            root_cycles: None,
            root_instructions: ROOT_INSTRUCTIONS,
            omit_invalidation: None,
        }
    }
}

/// What owns a translation cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CacheOwner {
    /// One per mapping (`vm_area_struct`), as published.
    Vma,
    /// One per address space (`mm_struct`).
    Mm,
    /// One per address space and CPU (`alloc_percpu`).
    Cpu,
}

/// Why entries of a translation cache are invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum InvalidationCause {
    /// A mapping was removed, possibly with page-table pages.
    Unmap,
    /// Pages were moved, and page-table pages of the old place were freed.
    Move,
    /// A mapping was split: the cached entries of one part now belong to another mapping.
    Split,
    /// A mapping was merged with the one before it.
    Merge,
    /// khugepaged freed the page-table page of the small pages.
    Collapse,
    /// The address space ended, or all of its mappings were removed (exec).
    Exit,
}

impl InvalidationCause {
    /// All causes.
    pub const ALL: [Self; 6] = [Self::Unmap, Self::Move, Self::Split, Self::Merge, Self::Collapse, Self::Exit];

    /// Name in the configuration and in statistics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unmap => "unmap",
            Self::Move => "move",
            Self::Split => "split",
            Self::Merge => "merge",
            Self::Collapse => "collapse",
            Self::Exit => "exit",
        }
    }
}

impl TranslationCacheConfig {
    /// The form that is registered after this one. A form that no other one precedes does not compile.
    fn following(&self) -> Option<Self> {
        match self {
            Self::FullPrefix(arrays) => Some(Self::AsPublished(*arrays)),
            Self::AsPublished(arrays) => Some(Self::PudIndex(*arrays)),
            Self::PudIndex(arrays) => {
                let kind = SlotKind::for_owner(arrays.per);
                Some(Self::Generations(TranslationCacheSlots { kind, slots: arrays.entries, ..Default::default() }))
            }
            Self::Generations(_) => Some(Self::MmuAssisted(MmuAssist::default())),
            Self::MmuAssisted(_) => None,
        }
    }

    /// Every form with the parameters that the conformance tests run it with.
    pub fn samples() -> Vec<Self> {
        let small = TranslationCacheArrays { entries: 4, per: CacheOwner::Mm, ..TranslationCacheArrays::default() };
        let per_cpu = TranslationCacheArrays { per: CacheOwner::Cpu, ..small };
        let first = [TranslationCacheArrays::default(), small, per_cpu].map(Self::FullPrefix);
        first.into_iter().flat_map(|form| std::iter::successors(Some(form), Self::following)).collect()
    }

    /// The parameters of a form with arrays; `None` for other forms.
    pub fn arrays(&self) -> Option<&TranslationCacheArrays> {
        match self {
            Self::FullPrefix(arrays) | Self::AsPublished(arrays) | Self::PudIndex(arrays) => Some(arrays),
            Self::Generations(_) | Self::MmuAssisted(_) => None,
        }
    }

    /// The parameters of the form with slots; `None` for other forms.
    pub fn slots(&self) -> Option<&TranslationCacheSlots> {
        match self {
            Self::Generations(slots) => Some(slots),
            Self::FullPrefix(_) | Self::AsPublished(_) | Self::PudIndex(_) | Self::MmuAssisted(_) => None,
        }
    }

    /// Whether filling uses an atomic exchange, since the threads of a process fill the same slots.
    pub fn fills_atomically(&self) -> bool {
        self.slots().is_some_and(|slots| slots.kind == SlotKind::Vma)
    }

    /// Costs and savings in a kernel with this cost of the stage `walk`.
    pub fn costs(&self, walk: &StageCost) -> TranslationCacheCosts {
        let is_timed = walk.cycles == CodeCycles::Core;
        let cost = |instructions, given: Option<CodeCycles>, otherwise| {
            let unless_given = if is_timed { CodeCycles::Core } else { CodeCycles::Stated(otherwise) };
            CodeCost::new(instructions, given.unwrap_or(unless_given))
        };
        match self {
            // [`SlotCosts`] has all costs of this form.
            Self::Generations(_) => TranslationCacheCosts {
                look_up: CodeCost::NONE,
                level: CodeCost::NONE,
                root: CodeCost::NONE,
                fill: CodeCost::NONE,
            },
            Self::MmuAssisted(parameters) => TranslationCacheCosts {
                look_up: cost(parameters.instructions, parameters.cycles, ASSIST_CYCLES),
                level: cost(parameters.level_instructions, parameters.level_cycles, LEVEL_CYCLES),
                root: cost(parameters.root_instructions, parameters.root_cycles, ROOT_CYCLES),
                fill: CodeCost::NONE,
            },
            Self::FullPrefix(parameters) | Self::AsPublished(parameters) | Self::PudIndex(parameters) => {
                TranslationCacheCosts {
                    look_up: cost(parameters.instructions, parameters.cycles, LOOK_UP_CYCLES),
                    level: cost(parameters.level_instructions, parameters.level_cycles, LEVEL_CYCLES),
                    root: cost(parameters.root_instructions, parameters.root_cycles, ROOT_CYCLES),
                    fill: cost(parameters.fill_instructions, parameters.fill_cycles, FILL_CYCLES),
                }
            }
        }
    }

    /// The configured cycles that a hit saves, with their keys.
    fn cycles_saved(&self) -> [(&'static str, Option<CodeCycles>); 2] {
        let (level, root) = match self {
            Self::Generations(_) => (None, None),
            Self::MmuAssisted(parameters) => (parameters.level_cycles, parameters.root_cycles),
            Self::FullPrefix(parameters) | Self::AsPublished(parameters) | Self::PudIndex(parameters) => {
                (parameters.level_cycles, parameters.root_cycles)
            }
        };
        [(".level_cycles", level), (".root_cycles", root)]
    }

    /// The most levels that a hit may skip, in tables with this many levels.
    fn most_skipped(&self, levels: u8) -> u32 {
        match self {
            // Hardware also passes PTEs.
            Self::MmuAssisted(_) => u32::from(levels) - 1,
            Self::FullPrefix(_) | Self::AsPublished(_) | Self::PudIndex(_) | Self::Generations(_) => {
                u32::from(levels) - 2
            }
        }
    }

    /// The cause whose invalidations are omitted, in tests only.
    pub fn omitted(&self) -> Option<InvalidationCause> {
        match self {
            Self::MmuAssisted(assist) => assist.omit_invalidation,
            Self::Generations(slots) => slots.omit_invalidation,
            Self::FullPrefix(arrays) | Self::AsPublished(arrays) | Self::PudIndex(arrays) => arrays.omit_invalidation,
        }
    }
}

/// Refuses impossible parameters; `layers` has the names and page tables of layers with a cache.
pub fn validate_translation_cache<'a>(
    cache: &TranslationCacheConfig,
    walk: StageCost,
    layers: impl Iterator<Item = (&'a str, &'a PageTableConfig)>,
) -> Result<(), EngineError> {
    let (trees, others): (Vec<_>, Vec<_>) = layers.partition(|(_, table)| table.levels().is_some());
    let levels = trees.iter().filter_map(|(_, table)| table.levels()).max();
    validate_arrays(cache)?;
    if let Some(levels) = levels {
        validate_savings(cache, levels, walk)?;
    }
    if let Some(slots) = cache.slots() {
        validate_slots(slots, levels.unwrap_or(4), walk)?;
    }
    validate_tables(others.first().map(|&(layer, _)| layer))
}

fn refuse(part: &str, what: String) -> Result<(), EngineError> {
    Err(EngineError::config(format!("kernel.translation_cache{part}"), what))
}

/// Checks the savings: skipped work is a part of the stage `walk`. So its cycles are stated if and only if those of the
/// stage are, and it cannot save more than the stage costs.
fn validate_savings(cache: &TranslationCacheConfig, levels: u8, walk: StageCost) -> Result<(), EngineError> {
    for (key, given) in cache.cycles_saved() {
        match (given, walk.cycles) {
            (Some(CodeCycles::Stated(cycles)), CodeCycles::Core) => {
                let what = format!(
                    "{cycles} is not possible, since kernel.fault.walk states no cycles to subtract it from; allowed is core here"
                );
                return refuse(key, what);
            }
            (Some(CodeCycles::Core), CodeCycles::Stated(cycles)) => {
                let what = format!(
                    "core is not possible, since kernel.fault.walk.cycles states {cycles} cycles, whatever the core; allowed is a number here"
                );
                return refuse(key, what);
            }
            _ => {}
        }
    }
    let most = u64::from(cache.most_skipped(levels));
    let (costs, walk) = (cache.costs(&walk), walk.cost());
    for (unit, level, root, stage) in [
        ("cycles", costs.level.cycles.0, costs.root.cycles.0, walk.cycles.0),
        ("instructions", costs.level.instructions, costs.root.instructions, walk.instructions),
    ] {
        let saved = level * most + root;
        if saved > stage {
            let what = format!(
                "a hit may skip {most} levels and the root ({root} {unit}), which would save {saved} of the {stage} {unit} that \
                 kernel.fault.walk.{unit} gives the whole walk; allowed is up to {} here, or a larger kernel.fault.walk.{unit}",
                stage.saturating_sub(root) / most
            );
            return refuse(&format!(".level_{unit}"), what);
        }
    }
    Ok(())
}

/// The same for look-ups in slots.
fn validate_slots(slots: &TranslationCacheSlots, levels: u8, walk: StageCost) -> Result<(), EngineError> {
    if !slots.slots.is_power_of_two() || !(4..=MOST_ENTRIES).contains(&slots.slots) {
        let what = format!("{} is not possible; allowed are powers of two from 4 to {MOST_ENTRIES}", slots.slots);
        return refuse(".slots", what);
    }
    let costs = slots.costs();
    let beyond = i64::from(costs.level) * i64::from(levels.saturating_sub(4));
    let whole = i64::from(walk.instructions);
    for (key, added, beyond) in
        [("pmd_hit", costs.pmd_hit, beyond), ("pud_hit", costs.pud_hit, beyond), ("miss", costs.miss, 0)]
    {
        let added = i64::from(added);
        if added - beyond < -whole {
            let what = format!(
                "would save {} of the {whole} instructions that kernel.fault.walk.instructions gives the whole walk; allowed is no \
                 less than {} with {levels} levels, or a larger kernel.fault.walk.instructions",
                beyond - added,
                beyond - whole
            );
            return refuse(&format!(".costs.{key}"), what);
        }
    }
    Ok(())
}

fn validate_arrays(cache: &TranslationCacheConfig) -> Result<(), EngineError> {
    if let Some(arrays) = cache.arrays() {
        let ways = arrays.ways;
        for (key, entries) in [(".entries", Some(arrays.entries)), (".pud_entries", arrays.pud_entries)] {
            let Some(entries) = entries else { continue };
            if !entries.is_power_of_two() || !(4..=MOST_ENTRIES).contains(&entries) {
                let what = format!("{entries} is not possible; allowed are powers of two from 4 to {MOST_ENTRIES}");
                return refuse(key, what);
            }
            let most = MOST_WAYS.min(entries);
            if !ways.is_power_of_two() || ways > most {
                return refuse(".ways", format!("{ways} is not possible; allowed are powers of two from 1 to {most}"));
            }
        }
        let one_index = matches!(cache, TranslationCacheConfig::PudIndex(_));
        if one_index && arrays.pud_entries.is_some() {
            let what = "the index of the pud is that of all levels, so they have as many entries; set entries in the form pud-index";
            return refuse(".pud_entries", what.to_owned());
        }
        if one_index && ways > 1 {
            let what = "an index stands for one path through all levels, which several ways would mix; allowed is 1 in the form \
                        pud-index";
            return refuse(".ways", what.to_owned());
        }
    }
    Ok(())
}

/// Refuses a page table that is not a radix tree; `other_layer` is the name of a layer with one.
fn validate_tables(other_layer: Option<&str>) -> Result<(), EngineError> {
    match other_layer {
        None => Ok(()),
        Some(layer) => {
            let with_levels = PageTableConfig::samples().into_iter().filter(|table| table.levels().is_some());
            let mut allowed: Vec<_> = with_levels.map(|table| table.name()).collect();
            allowed.dedup();
            let what = format!(
                "it holds entries of the upper levels of a radix page table, and layer `{layer}` has another kind; allowed there is \
                 {}, or system.layers.{layer}.translation_cache = off",
                allowed.join(", ")
            );
            refuse("", what)
        }
    }
}
