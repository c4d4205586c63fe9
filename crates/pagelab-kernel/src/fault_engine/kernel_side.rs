//! What the kernel of a layer keeps for its engine, and what it asks of it.

use crate::entry_word::EntryWord;
use crate::fault_engine::config::{EngineParameters, FaultEngineConfig, RingCosts};
use crate::frames::page_use::FilePage;
use crate::memory::Memory;
use crate::vma::{VaRange, Vma};
use pagelab_base::addr::{PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::LayerConfigError;
use pagelab_base::ids::CpuId;
use pagelab_base::io::DriveBlock;
use pagelab_base::measure::Measure;
use pagelab_base::memory::PhysMem;
use pagelab_base::step::Step;
use pagelab_tables::page_table::PageTable;
use std::sync::Arc;

/// A page that an engine has mapped and that the kernel has not accounted for yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnaccountedPage {
    /// Where the page begins.
    pub va: VirtAddr,
    /// Size of the page, as that of the engine's table it was taken from.
    pub size: PageSize,
    /// Its first frame.
    pub frame: Pfn,
    /// Where the engine's tables say so.
    pub place: PhysAddr,
    /// The page of a file that it is, if it is one.
    pub file: Option<FilePage>,
}

/// What became of making a frame ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SupplyOutcome {
    /// One is, and there is room for more.
    One,
    /// There is no room for more.
    Enough,
    /// Memory is short.
    NoMemory,
}

/// What an engine has for pages of a size of a CPU.
pub type Table = (CpuId, PageSize);

/// What of the machine an engine serves.
#[derive(Clone, Copy, Debug)]
pub struct EngineScope {
    /// Hardware threads.
    pub cpus: u32,
    /// Physical cores.
    pub cores: u32,
    /// Drives of the device that files are read from.
    pub drives: u32,
}

/// The kernel's part of an engine: a state of the layer.
///
/// What an implementor must uphold: what the hardware reads and writes stands in frames of the layer, as words of
/// [`PhysMem`]; frames that it keeps for pages to come are nobody's charge, and it counts them in
/// [`Self::held_frames`]; after [`Self::space_ended`] nothing of the space is left in it, the frames taken for its
/// pages being the page table's.
pub trait KernelSide: Sized {
    /// What the configuration says of it.
    type Parameters: EngineParameters;

    /// That of a layer that boots; none if there is no memory for it.
    fn boot(parameters: &Self::Parameters, served: EngineScope, memory: &mut Memory) -> Option<Self>;

    /// Whether the engine may map pages of a mapping.
    fn serves(&self, space: u32, vma: &Vma) -> bool;

    /// What stands in the entry of a page of such a mapping until it is mapped; `stored` says where on storage the page
    /// is, if it is of a file and not in memory. None: the page is the kernel's.
    fn word(&self, space: u32, vma: &Vma, stored: Option<DriveBlock>) -> Option<EntryWord>;

    /// Cycles per entry if the call that makes a mapping writes its entries; none: threads of the engine do.
    fn fills_at_once(&self) -> Option<Cycles> {
        None
    }

    /// Pages of a space may be armed from now on, or are to be so no more. Asked of engines that do not fill at once.
    fn want(&mut self, job: Job);

    /// A file is mapped more than once from now on. Errors: the configuration says that the engine serves it.
    fn share(&mut self, _file: &Arc<str>) -> Result<(), LayerConfigError> {
        Ok(())
    }

    /// The sizes of pages that it maps.
    fn page_sizes(&self) -> &'static [PageSize];

    /// What it has taken for pages of a space, some of which may be about to be mapped, and what nobody has accounted
    /// for.
    fn used_for(&self, space: u32, contents: &PhysMem) -> Vec<UnaccountedPage>;

    /// A mapping call accounts for a page of these.
    fn clear_used(&mut self, space: u32, page: UnaccountedPage, table: &mut PageTable, contents: &mut PhysMem);

    /// Whether a table holds some of a space's.
    fn is_used_at(&self, table: Table, space: u32, contents: &PhysMem) -> bool;

    /// Whether the pages that it maps are pages of files.
    fn maps_files(&self) -> bool {
        false
    }

    /// Whether it has mapped a page that nobody has accounted for.
    fn has_mapped(&self, _space: u32, _va: VirtAddr) -> bool {
        false
    }

    /// Whether a page fault is to make a frame ready before it ends, since there was none for it.
    fn lacks_frames(&self) -> bool {
        false
    }

    /// References of making one ready.
    fn plan_supply(&self, _in_fault: bool, _step: &mut Step) {}

    /// Makes one ready if there is memory to spare and room for it.
    fn supply(&mut self, _memory: &mut Memory, _in_fault: bool) -> SupplyOutcome {
        SupplyOutcome::Enough
    }

    /// Whether faults that the kernel handles get frames that are ready here.
    fn serves_faults(&self) -> bool;

    /// What such a fault costs in an ordinary kernel, which takes one instead of an allocation; none: it takes one for
    /// an entry that is armed.
    fn in_fault(&self) -> Option<RingCosts> {
        None
    }

    /// References that a fault makes to get one from a table.
    fn plan_take(&self, table: Table, contents: &PhysMem, step: &mut Step);

    /// The frame, or the first of them, if one is ready, for the page of a space.
    fn take(&mut self, table: Table, space: u32, va: VirtAddr, contents: &mut PhysMem) -> Option<Pfn>;

    /// Nothing of a space is mapped any more; its number may be used again.
    fn space_ended(&mut self, space: u32);

    /// If it has done nothing in a whole run, what might be the reason.
    fn idle(&self) -> Option<String> {
        None
    }

    /// Frames that it keeps for pages to come.
    fn held_frames(&self) -> u64;

    /// Frames of its own tables.
    fn table_frames(&self) -> u64;

    /// A page fault that the engine was asked about has ended, after so long: mapped, or left to the kernel.
    fn note(&mut self, mapped: bool, latency: Cycles);

    /// What it counts, behind `layer.NAME.fault_engine.`.
    fn measures(&self) -> Vec<Measure>;
}

/// What is to be done about the entries of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Number of the space in its layer.
    pub space: u32,
    /// The part of the space whose pages are meant.
    pub range: VaRange,
    /// To arm them; else to take that back.
    pub arm: bool,
}

macro_rules! make_state {
    ($($module:ident::$Engine:ident = $name:literal, $text:literal;)+) => {
        /// The kernel's part of any engine. Each method does what [`KernelSide`] says of it.
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
            pub fn serves(&self, space: u32, vma: &Vma) -> bool {
                match self { $(Self::$Engine(of) => of.serves(space, vma),)+ }
            }

            /// See [`KernelSide::word`].
            pub fn word(&self, space: u32, vma: &Vma, stored: Option<DriveBlock>) -> Option<EntryWord> {
                match self { $(Self::$Engine(of) => of.word(space, vma, stored),)+ }
            }

            /// See [`KernelSide::fills_at_once`].
            pub fn fills_at_once(&self) -> Option<Cycles> {
                match self { $(Self::$Engine(of) => of.fills_at_once(),)+ }
            }

            /// See [`KernelSide::share`].
            pub fn share(&mut self, file: &Arc<str>) -> Result<(), LayerConfigError> {
                match self { $(Self::$Engine(of) => of.share(file),)+ }
            }

            /// See [`KernelSide::maps_files`].
            pub fn maps_files(&self) -> bool {
                match self { $(Self::$Engine(of) => of.maps_files(),)+ }
            }

            /// See [`KernelSide::has_mapped`].
            pub fn has_mapped(&self, space: u32, va: VirtAddr) -> bool {
                match self { $(Self::$Engine(of) => of.has_mapped(space, va),)+ }
            }

            /// See [`KernelSide::lacks_frames`].
            pub fn lacks_frames(&self) -> bool {
                match self { $(Self::$Engine(of) => of.lacks_frames(),)+ }
            }

            /// See [`KernelSide::plan_supply`].
            pub fn plan_supply(&self, in_fault: bool, step: &mut Step) {
                match self { $(Self::$Engine(of) => of.plan_supply(in_fault, step),)+ }
            }

            /// See [`KernelSide::supply`].
            pub fn supply(&mut self, memory: &mut Memory, in_fault: bool) -> SupplyOutcome {
                match self { $(Self::$Engine(of) => of.supply(memory, in_fault),)+ }
            }

            /// See [`KernelSide::want`].
            pub fn want(&mut self, job: Job) {
                match self { $(Self::$Engine(of) => of.want(job),)+ }
            }

            /// See [`KernelSide::page_sizes`].
            pub fn page_sizes(&self) -> &'static [PageSize] {
                match self { $(Self::$Engine(of) => of.page_sizes(),)+ }
            }

            /// See [`KernelSide::used_for`].
            pub fn used_for(&self, space: u32, contents: &PhysMem) -> Vec<UnaccountedPage> {
                match self { $(Self::$Engine(of) => of.used_for(space, contents),)+ }
            }

            /// See [`KernelSide::clear_used`].
            pub fn clear_used(&mut self, space: u32, page: UnaccountedPage, table: &mut PageTable, contents: &mut PhysMem) {
                match self { $(Self::$Engine(of) => of.clear_used(space, page, table, contents),)+ }
            }

            /// See [`KernelSide::is_used_at`].
            pub fn is_used_at(&self, table: Table, space: u32, contents: &PhysMem) -> bool {
                match self { $(Self::$Engine(of) => of.is_used_at(table, space, contents),)+ }
            }

            /// See [`KernelSide::serves_faults`].
            pub fn serves_faults(&self) -> bool {
                match self { $(Self::$Engine(of) => of.serves_faults(),)+ }
            }

            /// See [`KernelSide::in_fault`].
            pub fn in_fault(&self) -> Option<RingCosts> {
                match self { $(Self::$Engine(of) => of.in_fault(),)+ }
            }

            /// See [`KernelSide::plan_take`].
            pub fn plan_take(&self, table: Table, contents: &PhysMem, step: &mut Step) {
                match self { $(Self::$Engine(of) => of.plan_take(table, contents, step),)+ }
            }

            /// See [`KernelSide::take`].
            pub fn take(&mut self, table: Table, space: u32, va: VirtAddr, contents: &mut PhysMem) -> Option<Pfn> {
                match self { $(Self::$Engine(of) => of.take(table, space, va, contents),)+ }
            }

            /// See [`KernelSide::space_ended`].
            pub fn space_ended(&mut self, space: u32) {
                match self { $(Self::$Engine(of) => of.space_ended(space),)+ }
            }

            /// See [`KernelSide::idle`].
            pub fn idle(&self) -> Option<String> {
                match self { $(Self::$Engine(of) => of.idle(),)+ }
            }

            /// See [`KernelSide::held_frames`].
            pub fn held_frames(&self) -> u64 {
                match self { $(Self::$Engine(of) => of.held_frames(),)+ }
            }

            /// See [`KernelSide::table_frames`].
            pub fn table_frames(&self) -> u64 {
                match self { $(Self::$Engine(of) => of.table_frames(),)+ }
            }

            /// See [`KernelSide::note`].
            pub fn note(&mut self, mapped: bool, latency: Cycles) {
                match self { $(Self::$Engine(of) => of.note(mapped, latency),)+ }
            }

            /// See [`KernelSide::measures`].
            pub fn measures(&self) -> Vec<Measure> {
                match self { $(Self::$Engine(of) => of.measures(),)+ }
            }
        }
    };
}
engines!(make_state);
