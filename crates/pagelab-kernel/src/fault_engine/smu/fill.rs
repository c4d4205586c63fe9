//! The work of a mapping call that writes block addresses into the entries of a fast mapping.
//!
//! Models: for each table of level 1 that the mapping reaches, the call descends the page table, builds and zeroes the
//! tables that are missing, and writes the entries, line by line.
//! Source: Lee, Jin et al., the talk's slide "Fast file mmap()", which has no details.
//! Parameters: `fault_engine.fill`, `fault_engine.fill_cycles`.
//! Stats: `layer.NAME.fault_engine.fill.*`.
//! Deviations: the entries change when the call begins, and these costs follow, without references to entries that are
//! gone by then. The search for the file's blocks (extents) makes no references.

use crate::fault_engine::kernel_side::{FilledEntries, FilledPart};
use crate::fault_engine::smu::engine_access::smu_mut;
use crate::layer::{AddressSpace, Layer};
use crate::memory::page_metadata;
use crate::os::Os;
use pagelab_base::addr::{FRAME_BYTES, LINE_BYTES, PageSize, PhysAddr};
use pagelab_base::code_cost::CodeCost;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::{SpaceId, SpaceIx};
use pagelab_base::step::{Next, RefKind, Step};
use pagelab_tables::page_table::{Leaf, WalkList};
use std::collections::VecDeque;

/// The rest of such a call, see the module's text.
#[derive(Clone, Debug)]
pub struct FillWork {
    space: SpaceId,
    each: Cycles,
    parts: VecDeque<FilledPart>,
}

impl FillWork {
    /// The costs of what a call has written.
    pub fn new(FilledEntries { space, each, parts }: FilledEntries) -> Self {
        Self { space, each, parts: parts.into() }
    }

    /// The space of the mapping.
    pub fn space(&self) -> SpaceId {
        self.space
    }

    /// See `Activity::plan` of the simulation.
    pub fn plan(&self, os: &Os, step: &mut Step) {
        let Some(part) = self.parts.front() else { return };
        let layer = &os.layers[self.space.layer];
        step.preset += CodeCost::from_cycles(self.each.0 * part.entries);
        if has_entries(layer, self.space.index, part) {
            plan_part(layer, self.space.index, part, step);
        }
    }

    /// See `Activity::commit` of the simulation.
    pub fn commit(&mut self, os: &mut Os) -> Next {
        if let Some(part) = self.parts.pop_front() {
            let counters = &mut smu_mut(&mut os.layers[self.space.layer]).counters;
            counters.filled += part.entries;
            counters.fill_tables += part.tables as u64;
        }
        if self.parts.is_empty() { Next::Done } else { Next::Continue }
    }

    /// Counts cycles of the call.
    pub fn charge(&self, os: &mut Os, cycles: Cycles) {
        smu_mut(&mut os.layers[self.space.layer]).counters.fill_cycles += cycles;
    }
}

/// Whether the entries of a part are still there: meanwhile, the mapping may have been removed or the process may have
/// ended.
fn has_entries(layer: &Layer, index: SpaceIx, part: &FilledPart) -> bool {
    let AddressSpace { vmas, table, .. } = &layer.spaces[index];
    let is_of_small_page = |va| {
        let mut list = WalkList::new();
        table.walk(&layer.memory.contents, va, &mut list);
        match list.leaf {
            Leaf::Present(mapping) => mapping.size == PageSize::Size4K,
            Leaf::NotPresent { level, .. } => level == 1,
        }
    };
    let ends = [part.range.start, part.range.end - PageSize::Size4K.bytes()];
    ends.into_iter().all(|va| vmas.find(va).is_some() && is_of_small_page(va))
}

/// Plans the references of a part.
fn plan_part(layer: &Layer, index: SpaceIx, part: &FilledPart, step: &mut Step) {
    let (table, contents) = (&layer.spaces[index].table, &layer.memory.contents);
    let mut list = WalkList::new();
    table.walk(contents, part.range.start, &mut list);
    let above = list.refs().len().saturating_sub(1);
    for (level, reference) in list.refs().iter().enumerate().take(above) {
        // The lowest tables were missing: their entries are written, and they are zeroed.
        if level + part.tables < above {
            step.kernel(RefKind::Read, reference.addr);
            continue;
        }
        let frame = list.refs()[level + 1].addr.pfn();
        step.kernel(RefKind::Zero { bytes: FRAME_BYTES }, frame.addr());
        step.kernel(RefKind::Write, page_metadata(frame));
        step.kernel(RefKind::Locked, reference.addr);
    }
    let last = part.range.end - PageSize::Size4K.bytes();
    let line = |addr: PhysAddr| addr.0 & !(LINE_BYTES - 1);
    let entry = |va| line(table.entry(contents, va, PageSize::Size4K));
    let (first, last) = (entry(part.range.start), entry(last));
    (first..=last).step_by(LINE_BYTES as usize).for_each(|at| step.kernel(RefKind::Write, PhysAddr(at)));
}
