//! PTEMagnet: a kernel reserves blocks of adjacent frames for adjacent pages, so that the pages stay together even if
//! many programs allocate memory at once.
//!
//! Models: the first fault in a group of 8 pages allocates a block of 8 frames, and hands out, zeroes and maps one of
//! them. Later faults in the group get their frames from the block (`SpaceTable` finds it). A reservation ends, and
//! returns frames that were not handed out, when all of its pages are handed out, when a page of the group is unmapped,
//! copied or reclaimed, with the address space, and when memory is needed. Frames are charged to a cgroup when they are
//! handed out.
//! Source: Margaritov, Ustiugov, Shahab, Grot, "PTEMagnet: fine-grained physical memory reservation for faster page
//! walks in public clouds" (ASPLOS 2021), and its artefact for Linux 4.19 (`do_anonymous_page`, `wp_page_copy`,
//! `try_to_unmap_one`).
//! Parameters: `system.layers.NAME.placement` of kind `ptemagnet`: `group_pages`, `release_above_percent`, `cycles`,
//! `instructions`, `as_traced`.
//! Stats: `layer.NAME.reservations.*`.
//! Deviations from the artefact, which omits these cases or is wrong there: a group that does not lie completely inside
//! its mapping has no reservation; a reservation whose pages are all handed out is dropped; if no block is available,
//! the fault goes the ordinary way; a page that was read before it was written (zero page) counts as untouched. The
//! paper does not mention: a forked child has no reservations, neither its own nor its parent's, and a page that the
//! parent copies ends the group's reservation. The kernel threads that watch memory are not modelled: a fault that
//! finds too little memory returns reservations, as many at a time as a reclaim scan examines pages. pagelab's Linux
//! (`pagelab_linux/kernel/src/reservation.c`) has another tree: entries of 8 bytes, nodes of one frame, as many levels
//! as the page table has, a leaf's pages in its low bits, and atomic exchanges of leaves instead of a lock. `as_traced`
//! has the instructions executed there, and entries of 8 bytes. It always has four levels, and waits for another fault
//! in the same group.
//!
//! A fault takes the lock of its group's leaf, builds missing nodes and the reservation, takes its page and releases
//! the lock. A reservation is ended at once, without the lock; the fault checks again.

mod part;

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PlacementProgress, Policy, PolicyContext, WantedPage};
use crate::frames::frame_alloc::FramePurpose;
use crate::locks::TaskLocks;
use crate::memory::{LayerMemory, Memory, MemoryView, page_metadata};
use crate::reclaim::{Pressure, SCAN_PAGES};
use crate::vma::VaRange;
use pagelab_base::addr::{FRAME_BYTES, FRAME_SHIFT, LINE_BYTES, Pfn, VirtAddr};
use pagelab_base::code_cost::{CodeCost, CodeCycles};
use pagelab_base::error::LayerConfigError;
use pagelab_base::ids::{CpuId, SpaceId, SpaceIx};
use pagelab_base::lock_kind::LockKind;
use pagelab_base::measure::Measure;
use pagelab_base::memory::PhysMem;
use pagelab_base::step::{BlockKey, RefKind, Step};
use part::{EntrySize, KEY_BITS, NodePath, Reservation, SpaceTable};

/// Parameters of PTEMagnet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PtemagnetConfig {
    /// Pages of a group: 2, 4, 8, 16, 32 or 64. 8 (32 KiB) as in the paper: the PTEs of a cache line.
    pub group_pages: u32,
    /// Percentage of the layer's memory in use above which reservations are returned and none are made. The paper
    /// leaves it to the user; 90 is an estimate.
    pub release_above_percent: u32,
    /// Cycles of a look-up beyond its references. This and the instructions are estimates, for computing an index and
    /// descending four levels.
    pub cycles: CodeCycles,
    /// Instructions of a look-up.
    pub instructions: u32,
    /// Costs traced in a real kernel, which replace these two and the cost of allocating a group.
    pub as_traced: Option<TracedReservations>,
}

impl Default for PtemagnetConfig {
    fn default() -> Self {
        Self {
            group_pages: 8,
            release_above_percent: 90,
            cycles: CodeCycles::Stated(20),
            instructions: 60,
            as_traced: None,
        }
    }
}

/// Instructions of a real kernel's stage `allocation` with reservations. Their cycles are in proportion to those of the
/// stage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TracedReservations {
    /// In every fault that a group may serve.
    pub look_up: TracedPath,
    /// Additionally, when a group is made.
    pub group: TracedPath,
}

/// Instructions of a path, and lines besides those of the tree, of pages' metadata and of the lists of free pages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TracedPath {
    /// Instructions of the path.
    pub instructions: u32,
    /// Lines of the CPU that are written: its stack, its own variables.
    pub cpu: u32,
    /// Lines of the address space that are read: the mm, the VMA, and what these point to.
    pub space: u32,
    /// Lines of the kernel that are read and that all CPUs share.
    pub kernel: u32,
}

impl TracedPath {
    const NOTHING: Self = Self { instructions: 0, cpu: 0, space: 0, kernel: 0 };
}

/// Index of the first of these lines among a space's objects.
const SPACE_LINES: u64 = 1 << 62;
/// Most lines of a CPU, and of the kernel, for look-ups and groups together.
const MOST_LINES: u32 = (FRAME_BYTES / LINE_BYTES) as u32;
/// Most lines of a space, which lie among its other objects.
const MOST_SPACE_LINES: u32 = 16;

/// A step on the way to a page of a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// Search the table and lock the leaf.
    Look,
    /// Zero a missing node and link it.
    Node {
        /// The frame for the node.
        node: Pfn,
    },
    /// Allocate a block for the group.
    Block,
    /// Take the page. For a new block, set up its metadata.
    Take {
        /// Whether the block has just been taken from the allocator.
        new: bool,
        /// Frames whose metadata the allocator read for the block under the zone's lock; empty for a block that was
        /// reserved before.
        descriptors: Vec<Pfn>,
    },
    /// Return the reservations of these groups.
    GiveBack {
        /// Numbers of the space, and of the group within it.
        groups: Vec<(SpaceIx, u64)>,
    },
}

/// Why a reservation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// All its pages were handed out.
    Full,
    /// A page of the group was unmapped: by a call, by reclaim, or with the address space.
    Unmapped,
    Copied,
    /// Memory is needed.
    Pressure,
}

impl End {
    const ALL: [(Self, &'static str, &'static str); 4] = [
        (Self::Full, "full", "all their pages were handed out"),
        (Self::Unmapped, "unmapped", "a page of the group was unmapped"),
        (Self::Copied, "copied", "a page of the group was copied"),
        (Self::Pressure, "pressure", "memory was needed"),
    ];
}

/// Counters of reservations.
#[derive(Clone, Copy, Debug, Default)]
struct ReservationCounters {
    made: u64,
    /// Pages handed out of reservations.
    given: u64,
    /// Groups for which there was no block.
    no_block: u64,
    /// By [`End`].
    ended: [u64; 4],
    /// Largest number of frames reserved and not handed out.
    peak_unused: u64,
}

/// The reservations of a layer.
#[derive(Clone, Debug)]
pub struct Ptemagnet {
    config: PtemagnetConfig,
    /// By number of the space: its reservation table.
    parts: Vec<SpaceTable>,
    /// Space and number of each group with a reservation, to find some to return.
    live: BTreeSet<(SpaceIx, u64)>,
    /// Frames reserved and not handed out.
    unused: u64,
    counters: ReservationCounters,
    /// A frame for the kernel's own lines, and one for those of each CPU.
    own: Vec<Option<Pfn>>,
}

impl Ptemagnet {
    /// Order of a group.
    fn order(&self) -> u32 {
        self.config.group_pages.ilog2()
    }

    /// Entry size of the tree: as in the artefact, or without a lock.
    fn entry_size(&self) -> EntrySize {
        if self.config.as_traced.is_some() { EntrySize::WithoutLock } else { EntrySize::WithLock }
    }

    /// Number of the group that an address lies in.
    fn group(&self, va: VirtAddr) -> u64 {
        va.0 >> (FRAME_SHIFT + self.order())
    }

    /// The group of a page, if it can have a reservation: the page is new and single, and the group lies inside the
    /// mapping.
    fn group_of(&self, page: &WantedPage) -> Option<u64> {
        if !page.fresh || page.order > 0 {
            return None;
        }
        let (group, shift) = (self.group(page.va), FRAME_SHIFT + self.order());
        let (start, end) = (VirtAddr(group << shift), VirtAddr((group + 1) << shift));
        (group >> KEY_BITS == 0 && page.mapping.start <= start && end <= page.mapping.end).then_some(group)
    }

    /// Groups with a reservation, in the order in which they are returned.
    fn to_end(&self) -> Vec<(SpaceIx, u64)> {
        self.live.iter().copied().take(SCAN_PAGES).collect()
    }

    fn way(&self, contents: &PhysMem, space: SpaceIx, group: u64) -> NodePath {
        self.parts.get(space.index()).map_or(NodePath::NONE, |part| part.way(contents, group))
    }

    fn reservation(&self, contents: &PhysMem, space: SpaceIx, group: u64) -> Option<Reservation> {
        self.parts.get(space.index())?.get(contents, group)
    }

    fn part(&mut self, space: SpaceIx) -> &mut SpaceTable {
        let index = space.index();
        if index >= self.parts.len() {
            let entry = self.entry_size();
            let pages = self.config.group_pages;
            self.parts.resize_with(index + 1, || SpaceTable::new(entry, pages));
        }
        &mut self.parts[index]
    }

    /// Reserves a block for a group; the nodes to its leaf must exist.
    fn reserve(&mut self, space: SpaceIx, group: u64, memory: &mut Memory) -> bool {
        let order = self.order();
        let Some(block) = memory.take(order, FramePurpose::UserData) else {
            self.counters.no_block += 1;
            return false;
        };
        self.part(space).set(&mut memory.contents, group, Some(Reservation { block, given: 0 }));
        self.live.insert((space, group));
        self.unused += 1 << order;
        self.counters.made += 1;
        true
    }

    /// Hands out a page of its group's reservation; `None` if the group has no reservation or the page was handed out.
    fn hand_out(&mut self, space: SpaceIx, va: VirtAddr, memory: &mut Memory) -> Option<Pfn> {
        let (group, order) = (self.group(va), self.order());
        let reservation = self.reservation(&memory.contents, space, group)?;
        let n = va.page_number() & ((1 << order) - 1);
        if reservation.given >> n & 1 != 0 {
            return None;
        }
        let given = reservation.given | 1 << n;
        self.part(space).set(&mut memory.contents, group, Some(Reservation { given, ..reservation }));
        self.unused -= 1;
        self.counters.given += 1;
        self.counters.peak_unused = self.counters.peak_unused.max(self.unused);
        let pfn = reservation.block + n;
        memory.charge(pfn, 0);
        if given.count_ones() == 1 << order {
            self.end(space, group, End::Full, memory);
        }
        Some(pfn)
    }

    /// Ends a group's reservation, if it has one, and frees frames that were not handed out.
    fn end(&mut self, space: SpaceIx, group: u64, why: End, memory: &mut Memory) {
        let Some(reservation) = self.reservation(&memory.contents, space, group) else { return };
        self.part(space).set(&mut memory.contents, group, None);
        self.live.remove(&(space, group));
        self.counters.ended[why as usize] += 1;
        let order = self.order();
        self.unused -= (1 << order) - u64::from(reservation.given.count_ones());
        for n in (0..1 << order).filter(|n| reservation.given >> n & 1 == 0) {
            memory.free_frame_of_block(reservation.block + n);
        }
    }

    /// The next missing part, with the leaf's lock held.
    fn next_missing_part(&mut self, space: SpaceIx, group: u64, memory: &mut Memory) -> Option<Reserve> {
        if self.reservation(&memory.contents, space, group).is_some() {
            return Some(Reserve::Take { new: false, descriptors: Vec::new() });
        }
        if self.is_crowded(&memory.view()) {
            return None;
        }
        if self.way(&memory.contents, space, group).leaf().is_some() {
            return Some(Reserve::Block);
        }
        memory.take(self.entry_size().node_order(), FramePurpose::KernelObject).map(|node| Reserve::Node { node })
    }

    /// Reserves a block for the group, or goes the ordinary way.
    fn take_block(&mut self, space: SpaceIx, group: u64, memory: &mut Memory) -> Option<Reserve> {
        let reserved = self.reserve(space, group, memory);
        let effects = &memory.frames.effects;
        let descriptors = if effects.zone_locks.is_empty() { Vec::new() } else { effects.descriptors.clone() };
        reserved.then_some(Reserve::Take { new: true, descriptors })
    }

    fn plan_take(&self, page: &WantedPage, new: bool, memory: &MemoryView, step: &mut Step) {
        let (space, Some(group)) = (page.space.index, self.group_of(page)) else { return };
        let Some(reservation) = self.reservation(&memory.contents, space, group) else { return };
        let pages = if new { 1 << self.order() } else { 1 };
        // The reservation holds a reference to each page of a new block (`set_page_count`).
        (0..pages).for_each(|n| step.kernel(RefKind::Write, page_metadata(reservation.block + n)));
        if let Some(leaf) = self.way(&memory.contents, space, group).leaf() {
            // With the lock, or by an atomic exchange.
            step.kernel(if self.config.as_traced.is_some() { RefKind::Locked } else { RefKind::Write }, leaf);
            step.note_lock(LockKind::Placement);
        }
    }

    /// Plans a path of a real kernel; its lines follow those of `before`.
    fn plan_traced(&self, page: &WantedPage, path: TracedPath, before: TracedPath, step: &mut Step) {
        step.preset += page.allocation.in_proportion(path.instructions.into());
        let lines = |kind: RefKind, place: usize, from: u32, number: u32, step: &mut Step| {
            let Some(Some(frame)) = self.own.get(place) else { return };
            for line in from..from + number {
                step.kernel_overlapped(kind, frame.addr() + u64::from(line) * LINE_BYTES);
            }
        };
        lines(RefKind::Write, 1 + page.cpu.index(), before.cpu, path.cpu, step);
        lines(RefKind::Read, 0, before.kernel, path.kernel, step);
        for line in before.space..before.space + path.space {
            step.kernel_overlapped(RefKind::Read, page.object_line(SPACE_LINES + u64::from(line)));
        }
    }

    /// Allocates memory for the lines of a real kernel, once; without memory there are none.
    fn take_own(&mut self, cpu: CpuId, memory: &mut Memory) {
        if self.config.as_traced.is_none() {
            return;
        }
        if self.own.len() < 2 + cpu.index() {
            self.own.resize(2 + cpu.index(), None);
        }
        for place in [0, 1 + cpu.index()] {
            if self.own[place].is_none() {
                self.own[place] = memory.take_ring(FRAME_BYTES).map(|(frame, _)| frame);
            }
        }
    }

    fn plan_give_back(&self, groups: &[(SpaceIx, u64)], memory: &MemoryView, step: &mut Step) {
        for &(space, group) in groups {
            let way = self.way(&memory.contents, space, group);
            way.entries().iter().for_each(|&entry| step.kernel(RefKind::Read, entry));
            if let (Some(leaf), Some(reservation)) = (way.leaf(), self.reservation(&memory.contents, space, group)) {
                step.kernel(RefKind::Locked, leaf);
                step.note_lock(LockKind::Placement);
                // `put_page` for frames that were not handed out.
                for n in (0..1 << self.order()).filter(|n| reservation.given >> n & 1 == 0) {
                    step.kernel(RefKind::Locked, page_metadata(reservation.block + n));
                }
            }
        }
    }
}

impl Policy for Ptemagnet {
    type Config = PtemagnetConfig;
    type Step = Reserve;

    const LOCKS: bool = true;

    const ABOUT: &'static str = "blocks of frames reserved for groups of adjacent pages (PTEMagnet)";

    fn new(config: &PtemagnetConfig) -> Self {
        Self {
            config: config.clone(),
            parts: Vec::new(),
            live: BTreeSet::new(),
            unused: 0,
            counters: ReservationCounters::default(),
            own: Vec::new(),
        }
    }

    fn check(config: &PtemagnetConfig, _: &PolicyContext) -> Result<(), LayerConfigError> {
        if !matches!(config.group_pages, 2 | 4 | 8 | 16 | 32 | 64) {
            let what = format!("{} is not possible; allowed are 2, 4, 8, 16, 32 and 64", config.group_pages);
            return Err(LayerConfigError::new("placement.group_pages", what));
        }
        if let Some(TracedReservations { look_up, group }) = config.as_traced {
            for (kind, lines, most) in [
                ("cpu", look_up.cpu.saturating_add(group.cpu), MOST_LINES),
                ("kernel", look_up.kernel.saturating_add(group.kernel), MOST_LINES),
                ("space", look_up.space.saturating_add(group.space), MOST_SPACE_LINES),
            ] {
                let key = format!("placement.as_traced.look_up.{kind}, together with that of group,");
                LayerConfigError::unless_between(&key, lines, 0, most)?;
            }
        }
        LayerConfigError::unless_between("placement.release_above_percent", config.release_above_percent, 0, 100)
    }

    fn samples() -> Vec<PtemagnetConfig> {
        let defaults = PtemagnetConfig::default();
        let look_up = TracedPath { instructions: 257, cpu: 12, space: 1, kernel: 6 };
        let group = TracedPath { instructions: 890, cpu: 18, space: 9, kernel: 4 };
        let traced = Some(TracedReservations { look_up, group });
        vec![
            defaults.clone(),
            PtemagnetConfig { group_pages: 4, release_above_percent: 1, ..defaults.clone() },
            PtemagnetConfig { group_pages: 64, ..defaults.clone() },
            PtemagnetConfig { as_traced: traced, ..defaults },
        ]
    }

    fn begin(&self, page: &WantedPage, _: &MemoryView) -> Option<Reserve> {
        self.group_of(page).map(|_| Reserve::Look)
    }

    fn plan(&self, page: Option<&WantedPage>, action: &Reserve, memory: &MemoryView, step: &mut Step) {
        if let Reserve::GiveBack { groups } = action {
            return self.plan_give_back(groups, memory, step);
        }
        let page = page.expect("a fault that gives nothing back wants a page");
        let group = self.group_of(page).expect("the page has a group");
        let way = self.way(&memory.contents, page.space.index, group);
        match action {
            Reserve::Look => {
                if let Some(traced) = self.config.as_traced {
                    self.plan_traced(page, traced.look_up, TracedPath::NOTHING, step);
                } else {
                    step.preset += CodeCost::new(self.config.instructions, self.config.cycles);
                }
                way.entries().iter().for_each(|&entry| step.kernel(RefKind::Read, entry));
                if let (Some(leaf), None) = (way.leaf(), self.config.as_traced) {
                    step.kernel(RefKind::Locked, leaf);
                    step.note_lock(LockKind::Placement);
                }
            }
            Reserve::Node { node } => {
                step.kernel(RefKind::Zero { bytes: self.entry_size().node_bytes() }, node.addr());
                step.kernel(RefKind::Write, page_metadata(*node));
                step.kernel(RefKind::Locked, way.entries().last().copied().unwrap_or(page.counters));
            }
            Reserve::Block => {
                if let Some(traced) = self.config.as_traced {
                    self.plan_traced(page, traced.group, traced.look_up, step);
                } else {
                    step.preset += page.allocation;
                }
                step.kernel(RefKind::Write, page.free_lists);
            }
            Reserve::Take { new, descriptors } => {
                if !descriptors.is_empty() {
                    step.kernel(RefKind::Locked, page.zone);
                    step.note_lock(LockKind::Zone);
                    descriptors.iter().for_each(|&pfn| step.kernel(RefKind::Write, page_metadata(pfn)));
                }
                self.plan_take(page, *new, memory, step);
            }
            Reserve::GiveBack { .. } => unreachable!("it was planned above"),
        }
    }

    fn commit(
        &mut self,
        page: Option<&WantedPage>,
        action: Reserve,
        memory: &mut Memory,
        locks: &mut TaskLocks,
    ) -> PlacementProgress<Reserve> {
        if let Reserve::GiveBack { groups } = action {
            groups.into_iter().for_each(|(space, group)| self.end(space, group, End::Pressure, memory));
            return PlacementProgress::Again;
        }
        let page = page.expect("a fault that gives nothing back wants a page");
        let (space, group) = (page.space.index, self.group_of(page).expect("the page has a group"));
        let key = key(page.space, group);
        let next = match action {
            Reserve::Look => {
                self.take_own(page.cpu, memory);
                if let Some(pressure @ Pressure::Limit(_)) = memory.view().pressure(0) {
                    // The ordinary way handles the case that none of the group's pages can be reclaimed.
                    let can = memory.view().can_reclaim(pressure);
                    return if can { PlacementProgress::Reclaim(pressure) } else { PlacementProgress::Ordinary };
                }
                if !locks.acquire(key) {
                    return PlacementProgress::Wait(key, Reserve::Look);
                }
                self.next_missing_part(space, group, memory)
            }
            Reserve::Node { node } => {
                if !self.part(space).link(&mut memory.contents, group, node) {
                    memory.free(node, self.entry_size().node_order());
                }
                self.next_missing_part(space, group, memory)
            }
            Reserve::Block => self.take_block(space, group, memory),
            Reserve::Take { .. } => {
                let frame = self.hand_out(space, page.va, memory);
                locks.release(key);
                return frame
                    .map_or(PlacementProgress::Ordinary, |frame| PlacementProgress::Taken { frame, refilled: None });
            }
            Reserve::GiveBack { .. } => unreachable!("it was carried out above"),
        };
        next.map_or_else(
            || {
                locks.release(key);
                PlacementProgress::Ordinary
            },
            PlacementProgress::Go,
        )
    }

    fn is_crowded(&self, memory: &MemoryView) -> bool {
        memory.is_fuller_than(self.config.release_above_percent, 0)
    }

    fn give_back(&self) -> Option<Reserve> {
        let groups = self.to_end();
        (!groups.is_empty()).then_some(Reserve::GiveBack { groups })
    }

    fn unmapped(&mut self, space: SpaceIx, va: VirtAddr, memory: &mut Memory) {
        if !self.live.is_empty() {
            self.end(space, self.group(va), End::Unmapped, memory);
        }
    }

    fn unmapping(&mut self, space: SpaceIx, range: VaRange, memory: &mut Memory) {
        if self.live.is_empty() || range.is_empty() {
            return;
        }
        let (first, last) = (self.group(range.start), self.group(range.end - 1));
        let groups: Vec<u64> = self.live.range((space, first)..=(space, last)).map(|&(_, group)| group).collect();
        groups.into_iter().for_each(|group| self.end(space, group, End::Unmapped, memory));
    }

    fn space_ended(&mut self, space: SpaceIx, memory: &mut Memory) {
        self.unmapping(space, VaRange { start: VirtAddr(0), end: VirtAddr(u64::MAX) }, memory);
        let cpu = memory.context.cpu;
        let LayerMemory { contents, frames, .. } = &mut *memory.layer;
        let order = self.entry_size().node_order();
        self.part(space).clear(contents, &mut |pfn| frames.free(pfn, order, cpu));
        if self.parts.iter().all(|part| part.frames() == 0) {
            for frame in self.own.drain(..).flatten() {
                contents.destroy(frame);
                frames.free(frame, 0, cpu);
            }
        }
    }

    fn plan_copied(&self, space: SpaceIx, va: VirtAddr, memory: &MemoryView, step: &mut Step) {
        let group = self.group(va);
        let way = self.way(&memory.contents, space, group);
        way.entries().iter().for_each(|&entry| step.kernel(RefKind::Read, entry));
        if let (Some(leaf), Some(_)) = (way.leaf(), self.reservation(&memory.contents, space, group)) {
            step.kernel(RefKind::Locked, leaf);
            step.note_lock(LockKind::Placement);
        }
    }

    fn copied(&mut self, space: SpaceIx, va: VirtAddr, memory: &mut Memory) {
        self.end(space, self.group(va), End::Copied, memory);
    }

    fn table_frames(&self) -> u64 {
        self.parts.iter().map(SpaceTable::frames).sum::<u64>() + self.own.iter().flatten().count() as u64
    }

    fn held_frames(&self) -> u64 {
        self.unused
    }

    fn measures(&self) -> Vec<Measure> {
        let counters = &self.counters;
        let count = |what: &str, value, text: &str| Measure::count(format!("reservations.{what}"), value, text);
        let bytes = |what: &str, frames: u64, text: &str| {
            Measure::state(format!("reservations.{what}"), frames * FRAME_BYTES, "bytes", text)
        };
        let mut measures = vec![
            count("made", counters.made, "Blocks reserved for groups of pages"),
            count("given", counters.given, "Pages handed out of reservations"),
            count("no_block", counters.no_block, "Groups for which the allocator had no block"),
        ];
        for (end, what, text) in End::ALL {
            let text = format!("Reservations that ended because {text}");
            measures.push(count(&format!("ended.{what}"), counters.ended[end as usize], &text));
        }
        measures.push(bytes("unused_bytes", self.unused, "Memory reserved and not handed out at the end"));
        measures.push(bytes("peak_unused_bytes", counters.peak_unused, "Largest memory reserved and not handed out"));
        measures
    }
}

/// The lock of a group's leaf.
fn key(space: SpaceId, group: u64) -> BlockKey {
    BlockKey::Placement { space, place: group }
}
