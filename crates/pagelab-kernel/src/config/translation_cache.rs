//! The translation cache that the walks of page faults begin at.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::StageCost;
use pagelab_base::code_cost::{CodeCost, CodeCycles};
use pagelab_base::error::EngineError;
use pagelab_tables::page_table::PageTableConfig;

const MOST_ENTRIES: u32 = 512;
const MOST_WAYS: u32 = 16;
/// Of reading the mapping's `vm_mm`.
const ROOT_INSTRUCTIONS: u32 = 4;
/// Cycles where neither the cache's parameters nor the walk leave them to the core: of reading the mapping's `vm_mm`,
/// of a level's offset and checks, of a look-up of arrays, of one by hardware's help, and of filling a level.
const ROOT_CYCLES: u32 = 1;
const LEVEL_CYCLES: u32 = 1;
const LOOK_UP_CYCLES: u32 = 0;
const ASSIST_CYCLES: u32 = 4;
const FILL_CYCLES: u32 = 0;

/// What a kernel keeps of earlier walks for those that page faults trigger ([`crate::translation_cache`]). Radix page
/// tables only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "form", rename_all = "kebab-case", deny_unknown_fields)]
pub enum TranslationCacheConfig {
    /// Tags of the whole address above the entry: never wrong.
    FullPrefix(TranslationCacheArrays),
    /// Tags of a level's own offset, which hit if those of the levels above hit: the published rule, wrong beyond 1
    /// GiB.
    AsPublished(TranslationCacheArrays),
    /// The same with one index for all levels, from the pud offset: what the paper rejects.
    PudIndex(TranslationCacheArrays),
    /// Slots whose tags are the whole address above the entry and the address space's generation: never wrong. As in
    /// Linux 6.12 with pagelab's patches.
    Generations(TranslationCacheSlots),
    /// No arrays: the hardware walker tells the fault handler the last entry that it read.
    MmuAssisted(MmuAssist),
}

/// What a translation cache costs and saves of a walk, beyond references.
#[derive(Clone, Copy, Debug)]
pub struct TranslationCacheCosts {
    /// Of each look-up, hit or not.
    pub look_up: CodeCost,
    /// Saved per level that is skipped.
    pub level: CodeCost,
    /// Saved where the root is not looked for.
    pub root: CodeCost,
    /// Per level.
    pub fill: CodeCost,
}

/// The arrays, of each level above the last. Cycles are numbers or `core`: those that the machine's core takes for the
/// instructions. They are `core` unless given if those of `kernel.fault.walk` are, else estimates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TranslationCacheArrays {
    /// Entries of a level: a power of two from 4 to 512. The paper has no number; 16 is an estimate.
    pub entries: u32,
    /// Entries that an index leads to: a power of two up to 16; 1 for direct-mapped, as published.
    pub ways: u32,
    /// Whose it is.
    pub per: CacheOwner,
    /// What a look-up costs beyond its references: offsets taken, masked and compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles: Option<CodeCycles>,
    /// Instructions of a look-up.
    pub instructions: u32,
    /// What a level that a hit skips saves of the stage `walk` beyond its reference: an offset and the checks of an
    /// entry (`pud_alloc`, `pud_trans_huge`). All levels and the root together save no more than the stage costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level_cycles: Option<CodeCycles>,
    /// Instructions of the stage `walk` that a hit saves per level that it skips.
    pub level_instructions: u32,
    /// What a hit saves beyond the reference to `mm->pgd`, since it does not look for the root: the mapping's `vm_mm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_cycles: Option<CodeCycles>,
    /// Instructions of the stage `walk` that a hit saves since it does not look for the root.
    pub root_instructions: u32,
    /// What it costs to fill a level, beyond its references.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fill_cycles: Option<CodeCycles>,
    /// Instructions of filling one level.
    pub fill_instructions: u32,
    /// For tests only: leaves these invalidations out, to show that it needs them.
    pub omit_invalidation: Option<InvalidationCause>,
}

impl Default for TranslationCacheArrays {
    fn default() -> Self {
        Self {
            entries: 16,
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

/// The slots of pagelab's Linux (`pagelab_linux/kernel/src/walk_cache.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TranslationCacheSlots {
    /// What they hold, and whose they are.
    pub kind: SlotKind,
    /// Slots of a level, of 32 bytes each: a power of two from 4 to 512; 16 as there (`PAGELAB_WALK_CACHE_BITS`).
    pub slots: u32,
    /// Instructions; those traced of this kind unless given. They take the cycles that the stage `walk` has for as
    /// many.
    pub costs: Option<SlotCosts>,
    /// For tests only: leaves these invalidations out, to show that it needs them.
    pub omit_invalidation: Option<InvalidationCause>,
}

impl Default for TranslationCacheSlots {
    fn default() -> Self {
        Self { kind: SlotKind::Vma, slots: 16, costs: None, omit_invalidation: None }
    }
}

impl TranslationCacheSlots {
    /// The instructions given, or those traced of its kind.
    pub fn costs(&self) -> SlotCosts {
        self.costs.unwrap_or_else(|| self.kind.traced())
    }
}

/// The kinds of such slots, by the names that the kernel has for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SlotKind {
    /// Of each mapping, for PMD and PUD entries.
    Vma,
    /// Of each CPU, for those of whatever runs there.
    Cpu,
    /// Of each CPU, for PMD tables: a slot serves 1 GiB.
    CpuTable,
}

impl SlotKind {
    /// A kind for the conformance tests, which know the owners of arrays.
    fn for_owner(per: CacheOwner) -> Self {
        match per {
            CacheOwner::Vma => Self::Vma,
            CacheOwner::Mm => Self::CpuTable,
            CacheOwner::Cpu => Self::Cpu,
        }
    }

    /// What `pagelab linux trace` counts in Linux 6.12.117-1~deb12u1 with pagelab's patches, beside a walk of 228
    /// instructions with the cache off, or 240 with five levels: PMD hits in `touch,sequential,64`, PUD hits in
    /// `touch,random,64`, misses in `touch,regions,32`. Each is what 98 % of such faults execute, to the instruction.
    fn traced(self) -> SlotCosts {
        let (pmd_hit, pud_hit, miss, fill, fill_slot) = match self {
            Self::Vma => (-41, 21, 30, 56, 9),
            Self::Cpu => (-51, 7, 23, 44, 1),
            Self::CpuTable => (-47, 0, 16, 38, 0),
        };
        SlotCosts { pmd_hit, pud_hit, miss, level: 12, fill, fill_slot }
    }
}

/// Instructions of a walk with slots, beside those of the walk of four levels from the root that the stage `walk` has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SlotCosts {
    /// What a look-up adds that finds a PMD entry, less what it spares: negative if it saves.
    pub pmd_hit: i32,
    /// The same if it finds a PUD entry.
    pub pud_hit: i32,
    /// What a look-up adds that finds nothing.
    pub miss: i32,
    /// What a hit also spares for each level beyond the fourth.
    pub level: u32,
    /// Of filling after a walk.
    pub fill: u32,
    /// Instructions per slot that is written, on top of `fill`.
    pub fill_slot: u32,
}

/// What the kernel does with what the hardware tells it. Cycles are as those of the arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MmuAssist {
    /// What it costs beyond its reference to read the entry's address and see whether it still holds. Both are
    /// estimates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles: Option<CodeCycles>,
    /// Instructions of reading the entry's address and checking it.
    pub instructions: u32,
    /// What a level that a hit skips saves of the stage `walk` beyond its reference: an offset and the checks of an
    /// entry (`pud_alloc`, `pud_trans_huge`). All levels and the root together save no more than the stage costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level_cycles: Option<CodeCycles>,
    /// Instructions of the stage `walk` that a hit saves per level that it skips.
    pub level_instructions: u32,
    /// What a hit saves beyond the reference to `mm->pgd`, since it does not look for the root: the mapping's `vm_mm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_cycles: Option<CodeCycles>,
    /// Instructions of the stage `walk` that a hit saves since it does not look for the root.
    pub root_instructions: u32,
    /// For tests only: leaves these invalidations out, to show that it needs them.
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

/// Whose a translation cache is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CacheOwner {
    /// Each mapping has its own (`vm_area_struct`), as published.
    Vma,
    /// Each address space (`mm_struct`).
    Mm,
    /// Each address space has one for each CPU (`alloc_percpu`).
    Cpu,
}

/// Why entries of a translation cache must go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum InvalidationCause {
    /// A mapping is gone, or page-table pages with it.
    Unmap,
    /// Pages have moved, and page-table pages of the old place are gone.
    Move,
    /// A mapping was cut: what a cache has of the part cut off belongs to another mapping now.
    Split,
    /// A mapping was joined to the one before it.
    Merge,
    /// khugepaged freed the page-table page of the small pages.
    Collapse,
    /// The address space, or all of its mappings (exec), are gone.
    Exit,
}

impl InvalidationCause {
    /// All causes.
    pub const ALL: [Self; 6] = [Self::Unmap, Self::Move, Self::Split, Self::Merge, Self::Collapse, Self::Exit];

    /// As in the configuration and in statistics.
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
    /// The form that is registered behind this one; a form that is none's does not compile.
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

    /// The parameters of a form with arrays; none for the others.
    pub fn arrays(&self) -> Option<&TranslationCacheArrays> {
        match self {
            Self::FullPrefix(arrays) | Self::AsPublished(arrays) | Self::PudIndex(arrays) => Some(arrays),
            Self::Generations(_) | Self::MmuAssisted(_) => None,
        }
    }

    /// The parameters of the form with slots; none for the others.
    pub fn slots(&self) -> Option<&TranslationCacheSlots> {
        match self {
            Self::Generations(slots) => Some(slots),
            Self::FullPrefix(_) | Self::AsPublished(_) | Self::PudIndex(_) | Self::MmuAssisted(_) => None,
        }
    }

    /// Whether filling exchanges a count, since the threads of a process fill the same slots.
    pub fn fills_atomically(&self) -> bool {
        self.slots().is_some_and(|slots| slots.kind == SlotKind::Vma)
    }

    /// What it costs and saves in a kernel whose walks cost so much.
    pub fn costs(&self, walk: &StageCost) -> TranslationCacheCosts {
        let is_timed = walk.cycles == CodeCycles::Core;
        let cost = |instructions, given: Option<CodeCycles>, otherwise| {
            let unless_given = if is_timed { CodeCycles::Core } else { CodeCycles::Stated(otherwise) };
            CodeCost::new(instructions, given.unwrap_or(unless_given))
        };
        match self {
            // [`SlotCosts`] has all of theirs.
            Self::Generations(_) => TranslationCacheCosts {
                look_up: CodeCost::NONE,
                level: CodeCost::NONE,
                root: CodeCost::NONE,
                fill: CodeCost::NONE,
            },
            Self::MmuAssisted(of) => TranslationCacheCosts {
                look_up: cost(of.instructions, of.cycles, ASSIST_CYCLES),
                level: cost(of.level_instructions, of.level_cycles, LEVEL_CYCLES),
                root: cost(of.root_instructions, of.root_cycles, ROOT_CYCLES),
                fill: CodeCost::NONE,
            },
            Self::FullPrefix(of) | Self::AsPublished(of) | Self::PudIndex(of) => TranslationCacheCosts {
                look_up: cost(of.instructions, of.cycles, LOOK_UP_CYCLES),
                level: cost(of.level_instructions, of.level_cycles, LEVEL_CYCLES),
                root: cost(of.root_instructions, of.root_cycles, ROOT_CYCLES),
                fill: cost(of.fill_instructions, of.fill_cycles, FILL_CYCLES),
            },
        }
    }

    /// Cycles that it says a hit saves, with their keys.
    fn cycles_saved(&self) -> [(&'static str, Option<CodeCycles>); 2] {
        let (level, root) = match self {
            Self::Generations(_) => (None, None),
            Self::MmuAssisted(of) => (of.level_cycles, of.root_cycles),
            Self::FullPrefix(of) | Self::AsPublished(of) | Self::PudIndex(of) => (of.level_cycles, of.root_cycles),
        };
        [(".level_cycles", level), (".root_cycles", root)]
    }

    /// The most levels that a hit may skip, in tables with this many levels.
    fn most_skipped(&self, levels: u8) -> u32 {
        match self {
            // Hardware tells of PTEs as well.
            Self::MmuAssisted(_) => u32::from(levels) - 1,
            Self::FullPrefix(_) | Self::AsPublished(_) | Self::PudIndex(_) | Self::Generations(_) => {
                u32::from(levels) - 2
            }
        }
    }

    /// The cause after which it invalidates nothing, in tests only; none otherwise.
    pub fn omitted(&self) -> Option<InvalidationCause> {
        match self {
            Self::MmuAssisted(assist) => assist.omit_invalidation,
            Self::Generations(slots) => slots.omit_invalidation,
            Self::FullPrefix(arrays) | Self::AsPublished(arrays) | Self::PudIndex(arrays) => arrays.omit_invalidation,
        }
    }
}

/// Refuses what is impossible in layers that have the cache, given by name and page table.
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

/// What is skipped is a part of the walk: its cycles are given as those of the walk are, and it cannot save more than
/// that costs.
fn validate_savings(cache: &TranslationCacheConfig, levels: u8, walk: StageCost) -> Result<(), EngineError> {
    for (key, given) in cache.cycles_saved() {
        match (given, walk.cycles) {
            (Some(CodeCycles::Stated(cycles)), CodeCycles::Core) => {
                let what = format!(
                    "{cycles} is not possible, since kernel.fault.walk states no cycles that they could be taken off; allowed is core here"
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
    for (of, level, root, stage) in [
        ("cycles", costs.level.cycles.0, costs.root.cycles.0, walk.cycles.0),
        ("instructions", costs.level.instructions, costs.root.instructions, walk.instructions),
    ] {
        let saved = level * most + root;
        if saved > stage {
            let what = format!(
                "a hit may skip {most} levels and the root ({root} {of}), which would save {saved} of the {stage} {of} that \
                 kernel.fault.walk.{of} gives the whole walk; allowed is up to {} here, or a larger kernel.fault.walk.{of}",
                stage.saturating_sub(root) / most
            );
            return refuse(&format!(".level_{of}"), what);
        }
    }
    Ok(())
}

/// Nor may a look-up in slots.
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
        let (entries, ways) = (arrays.entries, arrays.ways);
        if !entries.is_power_of_two() || !(4..=MOST_ENTRIES).contains(&entries) {
            return refuse(
                ".entries",
                format!("{entries} is not possible; allowed are powers of two from 4 to {MOST_ENTRIES}"),
            );
        }
        if !ways.is_power_of_two() || ways > MOST_WAYS.min(entries) {
            let most = MOST_WAYS.min(entries);
            return refuse(".ways", format!("{ways} is not possible; allowed are powers of two from 1 to {most}"));
        }
        if matches!(cache, TranslationCacheConfig::PudIndex(_)) && ways > 1 {
            let what = "an index stands for one path through all levels, which several ways would mix; allowed is 1 in the form \
                        pud-index";
            return refuse(".ways", what.to_owned());
        }
    }
    Ok(())
}

/// `other_layer` is one whose page table is not a radix tree.
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
