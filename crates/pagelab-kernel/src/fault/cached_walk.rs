//! Walks of faults in kernels with translation caches ([`crate::translation_cache`]): where they begin, and what they
//! leave for later walks.
//!
//! Every hit is compared with the walk from the root, which the engine knows. Wrong hits of the published rule are
//! counted; any other wrong hit is an error of the simulator.

use super::{Fault, FaultState};
use crate::config::{TranslationCacheConfig, TranslationCacheCosts, TranslationCacheSlots};
use crate::layer::{CpuLine, Layer};
use crate::os::Os;
use crate::translation_cache::{CacheLayout, LOWEST, Lines, WalkStart};
use pagelab_base::addr::PhysAddr;
use pagelab_base::code_cost::CodeCost;
use pagelab_base::error::EngineError;
use pagelab_base::lock_kind::LockKind;
use pagelab_base::step::{RefKind, Step};
use pagelab_tables::page_table::WalkList;

/// Index of the space's object that holds its generation (`mm->pagelab_walk_gen`).
const GENERATION: u64 = u64::MAX;

/// What is read before the walk, and where the walk begins.
struct Begin {
    /// Lines of tags, the space's generation, or the count of freed page-table pages; independent of each other.
    checks: Lines,
    pointer: Option<PhysAddr>,
    /// The CPU's line of hit counters, in kernels with slots.
    counted: Option<PhysAddr>,
    /// Whether the pointer's address is independent of which tag hits.
    direct: bool,
    start: WalkStart,
}

impl Begin {
    /// Whether the walk reads the entry of this level.
    fn is_read(&self, level: u8) -> bool {
        if let WalkStart::Entry(first) = self.start { level <= first } else { true }
    }

    /// Number of entries that it skips.
    fn skipped(&self, list: &WalkList) -> u64 {
        list.refs().iter().filter(|r| !self.is_read(r.level)).count() as u64
    }

    /// Whether it must find the root.
    fn needs_root(&self) -> bool {
        !matches!(self.start, WalkStart::Entry(_))
    }

    /// Cost of the walk in a kernel with slots. Its cycles are those of the stage in proportion to its instructions.
    fn cost_with_slots(&self, slots: &TranslationCacheSlots, levels: u8, preset: CodeCost) -> CodeCost {
        let costs = slots.costs();
        let beyond = i64::from(costs.level) * i64::from(levels.saturating_sub(4));
        let added = match self.start {
            WalkStart::Entry(LOWEST) => i64::from(costs.pmd_hit) - beyond,
            WalkStart::Entry(_) => i64::from(costs.pud_hit) - beyond,
            WalkStart::Root | WalkStart::False(_) => costs.miss.into(),
        };
        preset.in_proportion(preset.instructions.saturating_add_signed(added))
    }

    /// Cost of the walk beyond its references, given the preset's cost of one from the root.
    fn cost(&self, costs: &TranslationCacheCosts, list: &WalkList, preset: CodeCost) -> CodeCost {
        let saved = self.skipped(list) * costs.level + u64::from(!self.needs_root()) * costs.root;
        (preset + costs.look_up).saturating_sub(saved)
    }

    fn reads(&self) -> u64 {
        self.checks.len() as u64 + u64::from(self.pointer.is_some())
    }
}

impl Fault {
    /// `None` in kernels without translation caches.
    fn begin_walk(&self, layer: &Layer, list: &WalkList) -> Option<Begin> {
        layer.mechanisms.translation_caches.as_ref()?;
        let space = self.request.space.index;
        let mut begin =
            Begin { checks: Lines::new(), pointer: None, counted: None, direct: false, start: WalkStart::Root };
        let found = if let Some((layout, object)) = layer.translation_cache(space, self.request.cpu, self.request.va) {
            let address_space = &layer.spaces[space];
            let found =
                layout.look_up(&layer.memory.contents, object, self.request.va, address_space.caches.generation);
            begin.checks = found.tags;
            begin.pointer = found.hit.and_then(|hit| hit.pointer);
            begin.direct = layout.is_direct_mapped();
            if let CacheLayout::Slots(_) = layout {
                begin.checks.push(address_space.object_line(GENERATION));
                begin.counted = found.hit.map(|_| layer.data.cpu_line(self.request.cpu, CpuLine::WalkCounters));
            }
            found.hit.map(|hit| (hit.level, hit.entry))
        } else {
            if self.request.reached.is_some() {
                begin.checks.push(layer.spaces[space].counter_line());
            }
            let holds = self.request.reached.filter(|reached| layer.still_holds(space, reached));
            holds.map(|reached| (reached.level, reached.entry))
        };
        if let Some((level, entry)) = found {
            let right = list.refs().iter().any(|r| (r.level, r.addr) == (level, entry));
            begin.start = if right { WalkStart::Entry(level) } else { WalkStart::False(level) };
        }
        Some(begin)
    }

    pub(super) fn plan_walk(&self, os: &Os, layer: &Layer, step: &mut Step) {
        let mut list = WalkList::new();
        self.walk(os, &mut list);
        let begin = self.begin_walk(layer, &list);
        if let (Some(begin), Some(caches)) = (&begin, &layer.mechanisms.translation_caches) {
            let levels = layer.spaces[self.request.space.index].table.levels();
            step.preset = match caches.config.slots() {
                Some(slots) => begin.cost_with_slots(slots, levels, step.preset),
                None => begin.cost(&caches.config.costs(&os.costs.fault.walk), &list, step.preset),
            };
            begin.checks.iter().for_each(|&line| step.kernel_overlapped(RefKind::Read, line));
            // If its address is known, a core uses the pointer of a predicted hit before the tags are compared.
            let read = if begin.direct { Step::kernel_overlapped } else { Step::kernel };
            begin.pointer.iter().for_each(|&pointer| read(step, RefKind::Read, pointer));
            begin.counted.iter().for_each(|&line| step.kernel_overlapped(RefKind::Write, line));
        }
        if begin.as_ref().is_none_or(Begin::needs_root) {
            // `mm->pgd`, in the line of the lock (Linux 4.9 and 4.19: `mmap_sem`), or in one that faults only read
            // (6.12: `mm_mt`).
            step.kernel_independent(RefKind::Read, layer.spaces[self.request.space.index].lock_line());
            step.note_lock(LockKind::MmapRead);
        }
        step.before_pte = step.refs.len();
        let mut before = None;
        for r in list.refs().iter().filter(|r| begin.as_ref().is_none_or(|begin| begin.is_read(r.level))) {
            if before.replace(r.step) == Some(r.step) {
                step.kernel_overlapped(RefKind::Read, r.addr);
            } else {
                step.kernel(RefKind::Read, r.addr);
            }
            if r.level > 1 {
                step.before_pte = step.refs.len();
            }
        }
    }

    /// Plans the next page of a fault that maps several: its PTE is next to the one before.
    pub(super) fn plan_next_entry(&self, os: &Os, step: &mut Step) {
        step.kernel(RefKind::Read, self.entry(os));
    }

    /// Counts how a walk began, and records what it should leave in the cache.
    pub(super) fn note_walk(&mut self, os: &mut Os, list: &WalkList) -> Result<(), EngineError> {
        let (space, va) = (self.request.space, self.request.va);
        let layer = &mut os.layers[space.layer];
        let Some(begin) = self.begin_walk(layer, list) else { return Ok(()) };
        let caches = layer.mechanisms.translation_caches.as_mut().expect("the walk began with them");
        let counters = &mut caches.counters;
        counters.look_ups += 1;
        counters.refs_made += begin.reads();
        counters.refs_spared += begin.skipped(list) + u64::from(!begin.needs_root());
        let mut filled_from = layer.spaces[space.index].table.levels() + 1;
        if let WalkStart::Entry(level) | WalkStart::False(level) = begin.start {
            counters.hits[usize::from(level)] += 1;
            filled_from = level;
        }
        if let WalkStart::False(level) = begin.start {
            counters.false_hits[usize::from(level)] += 1;
            if !matches!(caches.config, TranslationCacheConfig::AsPublished(_)) {
                let what = format!(
                    "the translation cache leads {va:?} of {space:?} to an entry of level {level} that is not on its way"
                );
                return Err(EngineError::Check { what });
            }
        }
        let highest = caches.layout.as_ref().map_or(0, |layout| layout.highest(filled_from - 1));
        self.progress.unfilled =
            (highest >= LOWEST && filled_from > LOWEST).then(|| (LOWEST, highest.min(filled_from - 1)));
        Ok(())
    }

    /// The step that fills the caches, if the walk left something to fill and there is memory for it.
    pub(super) fn begin_fill(&mut self, os: &mut Os) -> Option<FaultState> {
        let levels = self.progress.unfilled.take()?;
        let (space, cpu, va) = (self.request.space.index, self.request.cpu, self.request.va);
        let layer = self.layer(os);
        if !layer.begin_generation(space) {
            return None;
        }
        let new = layer.make_translation_cache(space, cpu, va);
        layer.translation_cache(space, cpu, va).is_some().then_some(FaultState::Fill { levels, new })
    }

    pub(super) fn plan_fill(&self, os: &Os, layer: &Layer, (from, to): (u8, u8), new: bool, step: &mut Step) {
        let Some((layout, object)) =
            layer.translation_cache(self.request.space.index, self.request.cpu, self.request.va)
        else {
            return;
        };
        let Some(caches) = &layer.mechanisms.translation_caches else { return };
        if new {
            layout.new_lines(object, |line| step.kernel_overlapped(RefKind::Write, line));
        }
        let (filled, walk) = (u64::from(to - from + 1), &os.costs.fault.walk);
        if let Some(slots) = caches.config.slots() {
            let costs = slots.costs();
            let instructions = u64::from(costs.fill) + filled * u64::from(costs.fill_slot);
            step.preset += walk.cost().in_proportion(instructions);
            step.kernel_overlapped(RefKind::Write, layer.data.cpu_line(self.request.cpu, CpuLine::WalkCounters));
        } else {
            step.preset += filled * caches.config.costs(walk).fill;
        }
        step.fills = true;
        // Writes do not wait. A slot that several threads may fill has a counter that is changed atomically.
        let kind = if caches.config.fills_atomically() { RefKind::Locked } else { RefKind::Write };
        layout.fill_lines(object, (from, to), self.request.va, |line| step.kernel_overlapped(kind, line));
        step.before_pte = step.refs.len();
    }
}
