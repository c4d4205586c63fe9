//! The kernel's part of a fault engine: what it stores for the engine, and how it asks it.

use crate::entry_word::EntryWord;
use crate::fault_engine::config::{EngineParameters, FaultEngineConfig, RingCosts};
use crate::frames::page_use::FilePage;
use crate::memory::Memory;
use crate::vma::{VaRange, Vma};
use pagelab_base::addr::{PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::LayerConfigError;
use pagelab_base::ids::{CpuId, SpaceId, SpaceIx};
use pagelab_base::io::DriveBlock;
use pagelab_base::measure::Measure;
use pagelab_base::memory::PhysMem;
use pagelab_base::step::Step;
use pagelab_tables::page_table::PageTable;
use std::sync::Arc;

/// A page that an engine has mapped and that the kernel has not accounted for yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnaccountedPage {
    /// First address of the page.
    pub va: VirtAddr,
    /// Size of the page, as in the engine's table that its frame came from.
    pub size: PageSize,
    /// First frame of the page.
    pub frame: Pfn,
    /// Address of the record in the engine's tables.
    pub place: PhysAddr,
    /// The page of a file that it maps, if any.
    pub file: Option<FilePage>,
}

/// Result of preparing a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SupplyOutcome {
    /// A frame is ready, and there is room for more.
    One,
    /// There is no room for more frames.
    Enough,
    /// Memory is short.
    NoMemory,
}

/// Entries that a mapping call has written in one table of level 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilledPart {
    /// Their pages, with those between them.
    pub range: VaRange,
    /// Number of entries.
    pub entries: u64,
    /// Number of tables that were missing.
    pub tables: usize,
}

/// Entries that a mapping call has written, table by table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilledEntries {
    /// The space of the mapping.
    pub space: SpaceId,
    /// Cycles of the call per entry.
    pub each: Cycles,
    /// The tables.
    pub parts: Vec<FilledPart>,
}

/// A table of an engine: that of a CPU for pages of one size.
pub type ReadyTableId = (CpuId, PageSize);

/// The part of the machine that an engine serves.
#[derive(Clone, Copy, Debug)]
pub struct EngineScope {
    /// Number of hardware threads.
    pub cpus: u32,
    /// Number of physical cores.
    pub cores: u32,
    /// Number of drives of the device that files are read from.
    pub drives: u32,
}

/// The kernel's part of an engine, a state of the layer.
///
/// What an implementor must uphold: the data that the hardware reads and writes is in frames of the layer, as words of
/// [`PhysMem`]. Frames that it keeps for future pages are charged to no cgroup, and it counts them in
/// [`Self::held_frames`]. After [`Self::space_ended`] it holds nothing of the space; the frames taken for the space's
/// pages belong to the page table.
pub trait KernelSide: Sized {
    /// Its parameters in the configuration.
    type Parameters: EngineParameters;

    /// The state for a layer that boots; `None` if there is not enough memory.
    fn boot(parameters: &Self::Parameters, served: EngineScope, memory: &mut Memory) -> Option<Self>;

    /// Whether the engine may map pages of a mapping.
    fn serves(&self, space: SpaceIx, vma: &Vma) -> bool;

    /// The word for the entry of a page of such a mapping until the page is mapped; `stored` is the page's place on
    /// storage if it belongs to a file and is not in memory. `None` leaves the page to the kernel.
    fn word(&self, space: SpaceIx, vma: &Vma, stored: Option<DriveBlock>) -> Option<EntryWord>;

    /// Cycles per entry if the call that makes a mapping writes its entries; `None` if threads of the engine do.
    fn fills_at_once(&self) -> Option<Cycles> {
        None
    }

    /// Whether processes begin without it, and enable it by a call.
    fn is_off_at_start(&self) -> bool {
        false
    }

    /// A process forks: its child has the engine as it does.
    fn inherit(&mut self, _parent: SpaceIx, _child: SpaceIx) {}

    /// Asks for pages of a space to be armed or disarmed. For engines that do not fill at once.
    fn queue_job(&mut self, job: ArmingJob);

    /// From now on, a file has several mappings, the last one made by a fork or a call. Errors: a call has made it, and
    /// the configuration says that the engine serves the file.
    fn share(&mut self, _file: &Arc<str>, _by_fork: bool) -> Result<(), LayerConfigError> {
        Ok(())
    }

    /// Whether the engine serves a file again once it has one mapping.
    fn resumes(&self, _file: &Arc<str>) -> bool {
        false
    }

    /// From now on, such a file has one mapping.
    fn resume(&mut self, _file: &Arc<str>) {}

    /// Whether a call that writes the entries of a mapping makes references for it.
    fn fills_by_references(&self) -> bool {
        false
    }

    /// Sizes of the pages that it maps.
    fn page_sizes(&self) -> &'static [PageSize];

    /// Frames that it has taken for pages of a space and that the kernel has not accounted for; some of these pages may
    /// not be mapped yet.
    fn used_for(&self, space: SpaceIx, contents: &PhysMem) -> Vec<UnaccountedPage>;

    /// Removes a page that a mapping call has accounted for from these.
    fn clear_used(&mut self, space: SpaceIx, page: UnaccountedPage, table: &mut PageTable, contents: &mut PhysMem);

    /// Whether a table holds such frames of a space.
    fn is_used_at(&self, table: ReadyTableId, space: SpaceIx, contents: &PhysMem) -> bool;

    /// Whether it maps pages of files.
    fn maps_files(&self) -> bool {
        false
    }

    /// Whether it has mapped this page and the kernel has not accounted for it.
    fn has_mapped(&self, _space: SpaceIx, _va: VirtAddr) -> bool {
        false
    }

    /// Whether a page fault should prepare a frame before it ends, since there was none for it.
    fn lacks_frames(&self) -> bool {
        false
    }

    /// Plans the references of preparing a frame.
    fn plan_supply(&self, _in_fault: bool, _step: &mut Step) {}

    /// Prepares a frame, if there is room for it and enough free memory.
    fn supply(&mut self, _memory: &mut Memory, _in_fault: bool) -> SupplyOutcome {
        SupplyOutcome::Enough
    }

    /// Whether faults that the kernel handles get the engine's ready frames.
    fn serves_faults(&self) -> bool;

    /// Whether programs make a system call ahead of accesses that would fault.
    fn calls_ahead(&self) -> bool {
        false
    }

    /// Costs of such a fault in an ordinary kernel, which takes a frame instead of allocating one; `None` if it takes
    /// frames for armed entries only.
    fn in_fault(&self) -> Option<RingCosts> {
        None
    }

    /// Plans the references with which a fault takes a frame from a table.
    fn plan_take(&self, table: ReadyTableId, contents: &PhysMem, step: &mut Step);

    /// Takes a ready frame (the first of its block) for a page of a space, if there is one.
    fn take(&mut self, table: ReadyTableId, space: SpaceIx, va: VirtAddr, contents: &mut PhysMem) -> Option<Pfn>;

    /// A space has ended, and its number may be reused.
    fn space_ended(&mut self, space: SpaceIx);

    /// A possible reason, if the engine has done nothing in a whole run.
    fn idle(&self) -> Option<String> {
        None
    }

    /// Frames that it keeps for future pages.
    fn held_frames(&self) -> u64;

    /// Frames of its own tables.
    fn table_frames(&self) -> u64;

    /// Records the end of a page fault for which the engine was asked: its latency, and whether the engine mapped the
    /// page or left it to the kernel.
    fn note(&mut self, mapped: bool, latency: Cycles);

    /// Its statistics, with names after `layer.NAME.fault_engine.`.
    fn measures(&self) -> Vec<Measure>;
}

/// A request to arm or disarm the entries of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArmingJob {
    /// Number of the space in its layer.
    pub space: SpaceIx,
    /// The part of the space with these pages.
    pub range: VaRange,
    /// Whether to arm the entries; otherwise to disarm them.
    pub arm: bool,
}

macro_rules! make_state {
    ($($module:ident::$Engine:ident = $name:literal, $text:literal;)+) => {
        /// The kernel's part of any engine. Each method calls that of [`KernelSide`].
        #[derive(Clone, Debug)]
        pub enum EngineState {
            $(#[doc = $text] $Engine(super::$module::state::$Engine),)+
        }

        impl EngineState {
            /// The state of the engine that `config` names; see [`KernelSide::boot`].
            pub fn boot(config: &FaultEngineConfig, served: EngineScope, memory: &mut Memory) -> Option<Self> {
                match config {
                    $(FaultEngineConfig::$Engine(parameters) => {
                        super::$module::state::$Engine::boot(parameters, served, memory).map(Self::$Engine)
                    })+
                }
            }

            /// See [`KernelSide::serves`].
            pub fn serves(&self, space: SpaceIx, vma: &Vma) -> bool {
                match self { $(Self::$Engine(engine) => engine.serves(space, vma),)+ }
            }

            /// See [`KernelSide::word`].
            pub fn word(&self, space: SpaceIx, vma: &Vma, stored: Option<DriveBlock>) -> Option<EntryWord> {
                match self { $(Self::$Engine(engine) => engine.word(space, vma, stored),)+ }
            }

            /// See [`KernelSide::fills_at_once`].
            pub fn fills_at_once(&self) -> Option<Cycles> {
                match self { $(Self::$Engine(engine) => engine.fills_at_once(),)+ }
            }

            /// See [`KernelSide::is_off_at_start`].
            pub fn is_off_at_start(&self) -> bool {
                match self { $(Self::$Engine(engine) => engine.is_off_at_start(),)+ }
            }

            /// See [`KernelSide::inherit`].
            pub fn inherit(&mut self, parent: SpaceIx, child: SpaceIx) {
                match self { $(Self::$Engine(engine) => engine.inherit(parent, child),)+ }
            }

            /// See [`KernelSide::share`].
            pub fn share(&mut self, file: &Arc<str>, by_fork: bool) -> Result<(), LayerConfigError> {
                match self { $(Self::$Engine(engine) => engine.share(file, by_fork),)+ }
            }

            /// See [`KernelSide::resumes`].
            pub fn resumes(&self, file: &Arc<str>) -> bool {
                match self { $(Self::$Engine(engine) => engine.resumes(file),)+ }
            }

            /// See [`KernelSide::resume`].
            pub fn resume(&mut self, file: &Arc<str>) {
                match self { $(Self::$Engine(engine) => engine.resume(file),)+ }
            }

            /// See [`KernelSide::fills_by_references`].
            pub fn fills_by_references(&self) -> bool {
                match self { $(Self::$Engine(engine) => engine.fills_by_references(),)+ }
            }

            /// See [`KernelSide::maps_files`].
            pub fn maps_files(&self) -> bool {
                match self { $(Self::$Engine(engine) => engine.maps_files(),)+ }
            }

            /// See [`KernelSide::has_mapped`].
            pub fn has_mapped(&self, space: SpaceIx, va: VirtAddr) -> bool {
                match self { $(Self::$Engine(engine) => engine.has_mapped(space, va),)+ }
            }

            /// See [`KernelSide::lacks_frames`].
            pub fn lacks_frames(&self) -> bool {
                match self { $(Self::$Engine(engine) => engine.lacks_frames(),)+ }
            }

            /// See [`KernelSide::plan_supply`].
            pub fn plan_supply(&self, in_fault: bool, step: &mut Step) {
                match self { $(Self::$Engine(engine) => engine.plan_supply(in_fault, step),)+ }
            }

            /// See [`KernelSide::supply`].
            pub fn supply(&mut self, memory: &mut Memory, in_fault: bool) -> SupplyOutcome {
                match self { $(Self::$Engine(engine) => engine.supply(memory, in_fault),)+ }
            }

            /// See [`KernelSide::queue_job`].
            pub fn queue_job(&mut self, job: ArmingJob) {
                match self { $(Self::$Engine(engine) => engine.queue_job(job),)+ }
            }

            /// See [`KernelSide::page_sizes`].
            pub fn page_sizes(&self) -> &'static [PageSize] {
                match self { $(Self::$Engine(engine) => engine.page_sizes(),)+ }
            }

            /// See [`KernelSide::used_for`].
            pub fn used_for(&self, space: SpaceIx, contents: &PhysMem) -> Vec<UnaccountedPage> {
                match self { $(Self::$Engine(engine) => engine.used_for(space, contents),)+ }
            }

            /// See [`KernelSide::clear_used`].
            pub fn clear_used(&mut self, space: SpaceIx, page: UnaccountedPage, table: &mut PageTable, contents: &mut PhysMem) {
                match self { $(Self::$Engine(engine) => engine.clear_used(space, page, table, contents),)+ }
            }

            /// See [`KernelSide::is_used_at`].
            pub fn is_used_at(&self, table: ReadyTableId, space: SpaceIx, contents: &PhysMem) -> bool {
                match self { $(Self::$Engine(engine) => engine.is_used_at(table, space, contents),)+ }
            }

            /// See [`KernelSide::serves_faults`].
            pub fn serves_faults(&self) -> bool {
                match self { $(Self::$Engine(engine) => engine.serves_faults(),)+ }
            }

            /// See [`KernelSide::calls_ahead`].
            pub fn calls_ahead(&self) -> bool {
                match self { $(Self::$Engine(engine) => engine.calls_ahead(),)+ }
            }

            /// See [`KernelSide::in_fault`].
            pub fn in_fault(&self) -> Option<RingCosts> {
                match self { $(Self::$Engine(engine) => engine.in_fault(),)+ }
            }

            /// See [`KernelSide::plan_take`].
            pub fn plan_take(&self, table: ReadyTableId, contents: &PhysMem, step: &mut Step) {
                match self { $(Self::$Engine(engine) => engine.plan_take(table, contents, step),)+ }
            }

            /// See [`KernelSide::take`].
            pub fn take(&mut self, table: ReadyTableId, space: SpaceIx, va: VirtAddr, contents: &mut PhysMem) -> Option<Pfn> {
                match self { $(Self::$Engine(engine) => engine.take(table, space, va, contents),)+ }
            }

            /// See [`KernelSide::space_ended`].
            pub fn space_ended(&mut self, space: SpaceIx) {
                match self { $(Self::$Engine(engine) => engine.space_ended(space),)+ }
            }

            /// See [`KernelSide::idle`].
            pub fn idle(&self) -> Option<String> {
                match self { $(Self::$Engine(engine) => engine.idle(),)+ }
            }

            /// See [`KernelSide::held_frames`].
            pub fn held_frames(&self) -> u64 {
                match self { $(Self::$Engine(engine) => engine.held_frames(),)+ }
            }

            /// See [`KernelSide::table_frames`].
            pub fn table_frames(&self) -> u64 {
                match self { $(Self::$Engine(engine) => engine.table_frames(),)+ }
            }

            /// See [`KernelSide::note`].
            pub fn note(&mut self, mapped: bool, latency: Cycles) {
                match self { $(Self::$Engine(engine) => engine.note(mapped, latency),)+ }
            }

            /// See [`KernelSide::measures`].
            pub fn measures(&self) -> Vec<Measure> {
                match self { $(Self::$Engine(engine) => engine.measures(),)+ }
            }
        }
    };
}
engines!(make_state);
