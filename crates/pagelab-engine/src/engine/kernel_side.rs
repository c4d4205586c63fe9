//! What the kernel of a layer keeps for its engine, and what it asks of it.

use crate::base::addr::{PageSize, Pfn, PhysAddr, VirtAddr};
use crate::base::cycles::Cycles;
use crate::base::ids::CpuId;
use crate::base::measure::Measure;
use crate::base::memory::PhysMem;
use crate::base::step::Step;
use crate::engine::config::{EngineConfig, EngineParameters};
use crate::kernel::entry_word::Armed;
use crate::kernel::memory::Memory;
use crate::kernel::vma::{VaRange, Vma};

/// A page that an engine has mapped and that the kernel has not accounted for yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    pub va: VirtAddr,
    pub size: PageSize,
    /// Its first frame.
    pub frame: Pfn,
    /// Where the engine's tables say so.
    pub place: PhysAddr,
}

/// What an engine has for pages of a size of a CPU.
pub type Table = (CpuId, PageSize);

/// The kernel's part of an engine: a state of the layer.
///
/// What an implementor must uphold: what the hardware reads and writes stands in frames of the layer, as words of
/// [`PhysMem`]; frames that it keeps for pages to come are nobody's charge, and it counts them in [`Self::held_frames`]; after
/// [`Self::space_ended`] nothing of the space is left in it, the frames taken for its pages being the page table's.
pub trait KernelSide: Sized {
    type Parameters: EngineParameters;

    /// That of a layer that boots; none if there is no memory for it.
    fn boot(parameters: &Self::Parameters, cpus: u32, memory: &mut Memory) -> Option<Self>;

    /// What stands in the entries of a mapping's pages until they are mapped; none: the engine has nothing to do with them.
    fn arms(&self, space: u32, vma: &Vma) -> Option<Armed>;

    /// Pages of a space may be armed from now on, or are to be so no more.
    fn want(&mut self, job: Job);

    /// The sizes of pages that it maps.
    fn page_sizes(&self) -> &'static [PageSize];

    /// What it has taken for pages of a space, some of which may be about to be mapped, and what nobody has accounted for.
    fn used_for(&self, space: u32, contents: &PhysMem) -> Vec<Taken>;

    /// A mapping call accounts for a page of these.
    fn clear_used(&mut self, page: Taken, contents: &mut PhysMem);

    /// Whether a table holds some of a space's.
    fn is_used_at(&self, table: Table, space: u32, contents: &PhysMem) -> bool;

    /// Whether faults that the kernel handles get frames that are ready here.
    fn serves_faults(&self) -> bool;

    /// References that a fault makes to get one from a table.
    fn plan_take(&self, table: Table, contents: &PhysMem, step: &mut Step);

    /// The frame, or the first of them, if one is ready, for the page of a space.
    fn take(&mut self, table: Table, space: u32, va: VirtAddr, contents: &mut PhysMem) -> Option<Pfn>;

    /// Nothing of a space is mapped any more; its number may be used again.
    fn space_ended(&mut self, space: u32);

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
    pub space: u32,
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
            pub fn boot(config: &EngineConfig, cpus: u32, memory: &mut Memory) -> Option<Self> {
                match config {
                    $(EngineConfig::$Engine(parameters) => {
                        super::$module::state::$Engine::boot(parameters, cpus, memory).map(Self::$Engine)
                    })+
                }
            }

            pub fn arms(&self, space: u32, vma: &Vma) -> Option<Armed> {
                match self { $(Self::$Engine(of) => of.arms(space, vma),)+ }
            }

            pub fn want(&mut self, job: Job) {
                match self { $(Self::$Engine(of) => of.want(job),)+ }
            }

            pub fn page_sizes(&self) -> &'static [PageSize] {
                match self { $(Self::$Engine(of) => of.page_sizes(),)+ }
            }

            pub fn used_for(&self, space: u32, contents: &PhysMem) -> Vec<Taken> {
                match self { $(Self::$Engine(of) => of.used_for(space, contents),)+ }
            }

            pub fn clear_used(&mut self, page: Taken, contents: &mut PhysMem) {
                match self { $(Self::$Engine(of) => of.clear_used(page, contents),)+ }
            }

            pub fn is_used_at(&self, table: Table, space: u32, contents: &PhysMem) -> bool {
                match self { $(Self::$Engine(of) => of.is_used_at(table, space, contents),)+ }
            }

            pub fn serves_faults(&self) -> bool {
                match self { $(Self::$Engine(of) => of.serves_faults(),)+ }
            }

            pub fn plan_take(&self, table: Table, contents: &PhysMem, step: &mut Step) {
                match self { $(Self::$Engine(of) => of.plan_take(table, contents, step),)+ }
            }

            pub fn take(&mut self, table: Table, space: u32, va: VirtAddr, contents: &mut PhysMem) -> Option<Pfn> {
                match self { $(Self::$Engine(of) => of.take(table, space, va, contents),)+ }
            }

            pub fn space_ended(&mut self, space: u32) {
                match self { $(Self::$Engine(of) => of.space_ended(space),)+ }
            }

            pub fn held_frames(&self) -> u64 {
                match self { $(Self::$Engine(of) => of.held_frames(),)+ }
            }

            pub fn table_frames(&self) -> u64 {
                match self { $(Self::$Engine(of) => of.table_frames(),)+ }
            }

            pub fn note(&mut self, mapped: bool, latency: Cycles) {
                match self { $(Self::$Engine(of) => of.note(mapped, latency),)+ }
            }

            pub fn measures(&self) -> Vec<Measure> {
                match self { $(Self::$Engine(of) => of.measures(),)+ }
            }
        }
    };
}
engines!(make_state);
