//! Migration: copies the memory of running guests to another machine.
//!
//! Models: the thread of a hypervisor, which migrates each of its guests once, by pre-copy. A direct segment hides the
//! guest's stores, so it is dissolved first: its memory is mapped by the page table, page by page, and the segment's
//! registers are cleared. All pages are then write-protected, and sent. The first store to a page is an exit and a
//! fault of the hypervisor, which allows stores again and so notes that the page is dirty. Rounds follow that protect
//! and send the pages that the last one found dirty. A round that finds at most `stop_pages`, or the last of `rounds`,
//! is sent while the guest stands still. At the destination the memory is contiguous: the segment is made again, and
//! the page table's entries are removed.
//! Source: Clark et al., "Live Migration of Virtual Machines", NSDI 2005, for pre-copy; Linux arch/x86/kvm/mmu
//! (`kvm_mmu_slot_apply_flags`, `kvm_arch_mmu_enable_log_dirty_pt_masked`) for write protection; Yaniv, Tsafrir,
//! SIGMETRICS 2016, 6.3, names migration among the restrictions of direct segments.
//! Parameters: `kernel.threads.migration` (`start_cycles`, `page_cycles`, `rounds`, `stop_pages`).
//! Stats: `migration.*`; exits for write-protected pages are in `fault.nested.*`.
//! Deviations: the guest goes on during the last round, and the same machine stands for the destination, with warm
//! caches. `migration.stopped` is what the guest would wait for. Large pages are protected and sent whole. A segment
//! stays if there is no memory for the tables of its pages; the guest is then not migrated.

use crate::config::InvalidationCause;
use crate::direct_segment::DirectSegment;
use crate::effects::Effects;
use crate::layer::Layer;
use crate::locks::TaskId;
use crate::os::Os;
use crate::threads::{Counter, Thread};
use crate::vma::VaRange;
use pagelab_base::addr::{FRAME_BYTES, FRAME_SHIFT, LINE_BYTES, PageSize, PhysAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::{CpuId, DIRECT_MAP, LayerId, SpaceId, SpaceIx};
use pagelab_base::step::{BlockKey, Next, RefKind, Step};
use pagelab_tables::page_table::{Mapping, PteFlags, Removed};
use parameters::Parameters;

/// Its configuration. This module is below the kernels and imports nothing from them.
pub mod parameters {
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use crate::threads::config::ThreadParameters;
    use pagelab_base::error::{EngineError, between};

    /// Parameters of migration.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    pub struct Parameters {
        /// Time of its start, in cycles.
        pub start_cycles: u64,
        /// Cycles to send a page of 4 KiB, beyond reading it.
        pub page_cycles: u64,
        /// Most rounds, at least 1; the last one stops the guest.
        pub rounds: u32,
        /// Number of dirty pages of 4 KiB with which the guest is stopped.
        pub stop_pages: u64,
    }

    impl ThreadParameters for Parameters {
        fn validate(&self, key: &str) -> Result<(), EngineError> {
            between(&format!("{key}.rounds"), self.rounds, 1, 1000)?;
            if self.start_cycles == 0 {
                let what = "0 is not possible; allowed is 1 and more";
                return Err(EngineError::config(format!("{key}.start_cycles"), what));
            }
            Ok(())
        }

        fn samples() -> Vec<Self> {
            vec![
                Self { start_cycles: 20_000, page_cycles: 0, rounds: 3, stop_pages: 4 },
                Self { start_cycles: 200_000, page_cycles: 500, rounds: 1, stop_pages: 0 },
            ]
        }
    }
}

/// Pages of 4 KiB that a step maps, protects or removes.
const PAGES_PER_STEP: u64 = 512;
/// Pages that a step sends.
const SENT_PER_STEP: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
enum MigrationState {
    /// Choose the next guest.
    Choose,
    /// Map the pages of the segment from an address on.
    Dissolve(VirtAddr),
    /// Protect the pages from an address on that are to be sent.
    Protect(VirtAddr),
    /// Send the pages of this round from an index on.
    Send(usize),
    /// Remove the pages of the segment, which exists again, from an address on.
    Remove(VirtAddr),
}

/// Counters.
#[derive(Clone, Copy, Debug, Default)]
struct MigrationCounts {
    guests: u64,
    refused: u64,
    mapped: u64,
    rounds: u64,
    copied: u64,
    stopped: u64,
    removed: u64,
}

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Migration {
    layer: LayerId,
    config: Parameters,
    counts: MigrationCounts,
    state: MigrationState,
    /// The guest's address space.
    space: SpaceIx,
    /// Number of the last guest's space.
    last: SpaceIx,
    /// Whether all guests have been migrated.
    over: bool,
    /// The guest's segment, while it is dissolved.
    segment: Option<DirectSegment>,
    /// The number of the round, from 1.
    round: u32,
    /// Whether the guest is stopped.
    stops: bool,
    /// The pages of this round.
    pages: Vec<Mapping>,
    /// Lines of entries that the last commit wrote.
    lines: Vec<PhysAddr>,
}

impl Migration {
    fn id(&self) -> SpaceId {
        SpaceId { layer: self.layer, index: self.space }
    }

    /// The end of the guest's memory.
    fn end(&self, layer: &Layer) -> VirtAddr {
        layer.spaces[self.space].vmas.iter().map(|vma| vma.end).max().unwrap_or(VirtAddr(0))
    }

    /// The pages that a step from an address on looks at, and where the next one goes on.
    fn place(&self, layer: &Layer, from: VirtAddr) -> (Vec<Removed>, VirtAddr) {
        let next = VirtAddr((from.0 + PAGES_PER_STEP * FRAME_BYTES).min(self.end(layer).0));
        let pages = layer.mapped(self.space, from, next);
        let next = pages.last().map_or(next, |page| next.max(page.va + page.mapping.size.bytes()));
        (pages, next)
    }

    /// Whether a page is sent in this round: all in the first, those that were written since in the others.
    fn is_due(&self, page: &Removed) -> bool {
        self.round == 1 || page.mapping.flags.writable
    }

    fn note_line(&mut self, entry: PhysAddr) {
        let line = entry.align_down(LINE_BYTES);
        if self.lines.last() != Some(&line) {
            self.lines.push(line);
        }
    }

    /// Begins with the next guest.
    fn choose(&mut self, os: &Os) -> Next {
        if self.space == self.last {
            self.over = true;
            return Next::Done;
        }
        self.space = self.space.next();
        (self.round, self.stops) = (1, false);
        self.pages.clear();
        self.segment = os.layers[self.layer].spaces[self.space].segment;
        self.state = match self.segment {
            Some(segment) => MigrationState::Dissolve(segment.range.start),
            None => MigrationState::Protect(VirtAddr(0)),
        };
        Next::Continue
    }

    /// Maps a part of the segment, and clears the registers behind the last one.
    fn dissolve(&mut self, os: &mut Os, effects: &mut Effects, cpu: CpuId, from: VirtAddr) -> Next {
        let segment = self.segment.expect("there is one to dissolve");
        let layer = &mut os.layers[self.layer];
        let context = layer.context(cpu, self.space);
        let next = VirtAddr((from.0 + PAGES_PER_STEP * FRAME_BYTES).min(segment.range.end.0));
        let flags = PteFlags { writable: false, user: true, executable: true, accessed: true, dirty: false };
        let mut va = from;
        while va < next {
            if !layer.has_room(context, self.space, va, PageSize::Size4K) {
                self.counts.refused += 1;
                self.state = MigrationState::Remove(segment.range.start);
                return Next::Continue;
            }
            let pfn = segment.frame(va).expect("it lies in the segment");
            let mapping = Mapping { pfn, size: PageSize::Size4K, flags };
            layer.map(context, self.space, va, mapping).expect("the table has room");
            self.note_line(layer.spaces[self.space].table.entry(&layer.memory.contents, va, PageSize::Size4K));
            self.counts.mapped += 1;
            va += FRAME_BYTES;
        }
        if next < segment.range.end {
            self.state = MigrationState::Dissolve(next);
        } else {
            layer.suspend_segment(self.space);
            effects.invalidate(self.id(), segment.range).full = true;
            self.state = MigrationState::Protect(VirtAddr(0));
        }
        Next::Continue
    }

    /// Protects the pages of a place that this round sends. Behind the last place, decides about the round.
    fn protect(&mut self, os: &mut Os, effects: &mut Effects, from: VirtAddr) -> Next {
        let layer = &os.layers[self.layer];
        let (pages, next) = self.place(layer, from);
        let due: Vec<Removed> = pages.into_iter().filter(|page| self.is_due(page)).collect();
        let key = |page: &Removed| BlockKey::Page { space: self.id(), page: page.va.page_number() };
        if let Some(held) = due.iter().map(key).find(|&key| os.locks.is_held(key)) {
            return Next::Block(held);
        }
        let layer = &mut os.layers[self.layer];
        for page in due.iter().filter(|page| page.mapping.flags.writable) {
            let flags = PteFlags { writable: false, dirty: false, ..page.mapping.flags };
            layer.protect(self.space, page, flags);
            self.note_line(layer.spaces[self.space].table.entry(&layer.memory.contents, page.va, page.mapping.size));
        }
        if let (Some(first), Some(last)) = (due.first(), due.last()) {
            let range = VaRange { start: first.va, end: last.va + last.mapping.size.bytes() };
            effects.invalidate(self.id(), range).full = true;
        }
        self.pages.extend(due.iter().map(|page| page.mapping));
        if next < self.end(&os.layers[self.layer]) {
            self.state = MigrationState::Protect(next);
            return Next::Continue;
        }
        let frames: u64 = self.pages.iter().map(|mapping| 1 << mapping.size.order()).sum();
        self.stops = self.round == self.config.rounds || frames <= self.config.stop_pages;
        self.counts.rounds += 1;
        if self.stops {
            self.counts.stopped += frames;
        }
        self.state = MigrationState::Send(0);
        Next::Continue
    }

    /// Goes on with the next pages of a round, with the next round, or with the segment.
    fn send(&mut self, os: &mut Os, effects: &mut Effects, from: usize) -> Next {
        let sent = self.pages.iter().skip(from).take(SENT_PER_STEP);
        self.counts.copied += sent.map(|mapping| 1 << mapping.size.order()).sum::<u64>();
        if from + SENT_PER_STEP < self.pages.len() {
            self.state = MigrationState::Send(from + SENT_PER_STEP);
            return Next::Continue;
        }
        self.pages.clear();
        self.state = match self.segment {
            _ if !self.stops => {
                self.round += 1;
                MigrationState::Protect(VirtAddr(0))
            }
            Some(segment) => {
                self.counts.guests += 1;
                os.layers[self.layer].resume_segment(self.space, segment);
                effects.invalidate(self.id(), segment.range).full = true;
                MigrationState::Remove(segment.range.start)
            }
            None => {
                self.counts.guests += 1;
                MigrationState::Choose
            }
        };
        Next::Continue
    }

    /// Removes the pages of a part of the segment from the page table.
    fn remove(&mut self, os: &mut Os, cpu: CpuId, from: VirtAddr) -> Next {
        let segment = self.segment.expect("there is one again");
        let next = VirtAddr((from.0 + PAGES_PER_STEP * FRAME_BYTES).min(segment.range.end.0));
        let pages = os.layers[self.layer].mapped(self.space, from, next);
        let key = |page: &Removed| BlockKey::Page { space: self.id(), page: page.va.page_number() };
        if let Some(held) = pages.iter().map(key).find(|&key| os.locks.is_held(key)) {
            return Next::Block(held);
        }
        let layer = &mut os.layers[self.layer];
        let context = layer.context(cpu, self.space);
        for page in &pages {
            self.note_line(layer.spaces[self.space].table.entry(&layer.memory.contents, page.va, page.mapping.size));
            layer.unmap(context, self.space, page);
            self.counts.removed += 1;
        }
        let room = layer.spaces[self.space].vmas.room_of(VaRange { start: segment.range.start, end: next });
        layer.prune(context, self.space, (VaRange { start: from, end: next }, room), InvalidationCause::Unmap);
        self.state = if next < segment.range.end { MigrationState::Remove(next) } else { MigrationState::Choose };
        Next::Continue
    }
}

impl Thread for Migration {
    type Parameters = Parameters;

    const IN_HOSTS: bool = true;

    fn new_in_layer(id: LayerId, layer: &Layer, parameters: &Parameters) -> Option<Self> {
        // Programs' spaces are created later: those that exist now are the kernel's own and those of guests.
        let last = SpaceIx::from(layer.spaces.len() - 1);
        (last > DIRECT_MAP).then(|| Self {
            layer: id,
            config: *parameters,
            counts: MigrationCounts::default(),
            state: MigrationState::Choose,
            space: DIRECT_MAP,
            last,
            over: false,
            segment: None,
            round: 1,
            stops: false,
            pages: Vec::new(),
            lines: Vec::new(),
        })
    }

    fn layer(&self) -> LayerId {
        self.layer
    }

    fn sleep_cycles(&self) -> Option<Cycles> {
        (!self.over && self.space == DIRECT_MAP).then(|| self.config.start_cycles.into())
    }

    fn begin(&mut self) {}

    fn plan(&self, os: &Os, step: &mut Step) {
        self.lines.iter().for_each(|&line| step.kernel(RefKind::Write, line));
        let layer = &os.layers[self.layer];
        match self.state {
            MigrationState::Protect(from) => {
                let (pages, _) = self.place(layer, from);
                let table = &layer.spaces[self.space].table;
                let entry = |page: &Removed| table.entry(&layer.memory.contents, page.va, page.mapping.size);
                let mut lines: Vec<_> = pages.iter().map(|page| entry(page).align_down(LINE_BYTES)).collect();
                lines.dedup();
                lines.into_iter().for_each(|line| step.kernel(RefKind::Read, line));
            }
            MigrationState::Send(from) => {
                for mapping in self.pages.iter().skip(from).take(SENT_PER_STEP) {
                    let bytes = mapping.size.bytes();
                    step.kernel(RefKind::Load { bytes }, mapping.pfn.addr());
                    step.cycles += Cycles::from((bytes >> FRAME_SHIFT) * self.config.page_cycles);
                }
            }
            MigrationState::Choose | MigrationState::Dissolve(_) | MigrationState::Remove(_) => {}
        }
    }

    fn commit(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId) -> Next {
        self.lines.clear();
        match self.state {
            MigrationState::Choose => self.choose(os),
            MigrationState::Dissolve(from) => self.dissolve(os, effects, task.cpu, from),
            MigrationState::Protect(from) => self.protect(os, effects, from),
            MigrationState::Send(from) => self.send(os, effects, from),
            MigrationState::Remove(from) => self.remove(os, task.cpu, from),
        }
    }

    fn counters() -> &'static [Counter<Self>] {
        &[
            ("migration.guests", |thread| thread.counts.guests, "Guests that were migrated"),
            (
                "migration.refused",
                |thread| thread.counts.refused,
                "Guests that were not, as there was no memory for tables of their segment's pages",
            ),
            ("migration.mapped", |thread| thread.counts.mapped, "Pages of segments that were mapped to track stores"),
            ("migration.rounds", |thread| thread.counts.rounds, "Rounds of sending pages"),
            ("migration.copied", |thread| thread.counts.copied, "Pages of 4 KiB sent in all rounds"),
            ("migration.stopped", |thread| thread.counts.stopped, "Pages of 4 KiB sent while the guest stands still"),
            ("migration.removed", |thread| thread.counts.removed, "Entries removed when segments were made again"),
        ]
    }
}
