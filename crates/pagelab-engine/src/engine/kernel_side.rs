//! What the kernel of a layer keeps for its engine, and what it asks of it.

use crate::base::addr::{Pfn, VirtAddr};
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
    pub frame: Pfn,
}

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

    /// Takes what has been mapped for a space and is not accounted for, but for pages (4 KiB numbers) that are about to be mapped.
    fn take_used(&mut self, space: u32, is_busy: &dyn Fn(u64) -> bool, contents: &mut PhysMem) -> Vec<Taken>;

    /// Whether what it has for a CPU holds some of that.
    fn is_used_at(&self, cpu: CpuId, space: u32, contents: &PhysMem) -> bool;

    /// Whether faults that the kernel handles get frames that are ready here.
    fn serves_faults(&self) -> bool;

    /// References that a fault makes to get one on a CPU.
    fn plan_take(&self, cpu: CpuId, contents: &PhysMem, step: &mut Step);

    /// The frame, if one is ready, for the page of a space.
    fn take(&mut self, cpu: CpuId, space: u32, va: VirtAddr, contents: &mut PhysMem) -> Option<Pfn>;

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

            pub fn take_used(&mut self, space: u32, is_busy: &dyn Fn(u64) -> bool, contents: &mut PhysMem) -> Vec<Taken> {
                match self { $(Self::$Engine(of) => of.take_used(space, is_busy, contents),)+ }
            }

            pub fn is_used_at(&self, cpu: CpuId, space: u32, contents: &PhysMem) -> bool {
                match self { $(Self::$Engine(of) => of.is_used_at(cpu, space, contents),)+ }
            }

            pub fn serves_faults(&self) -> bool {
                match self { $(Self::$Engine(of) => of.serves_faults(),)+ }
            }

            pub fn plan_take(&self, cpu: CpuId, contents: &PhysMem, step: &mut Step) {
                match self { $(Self::$Engine(of) => of.plan_take(cpu, contents, step),)+ }
            }

            pub fn take(&mut self, cpu: CpuId, space: u32, va: VirtAddr, contents: &mut PhysMem) -> Option<Pfn> {
                match self { $(Self::$Engine(of) => of.take(cpu, space, va, contents),)+ }
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
