//! Paging costs by place in a program's memory and code: by page and by instruction, with the distributions of walks
//! and faults, and samples of both step by step.
//!
//! Models: nothing. A profile only observes and changes no result. A run with a profile makes every access in the
//! general code, which is slower than the fast path (`tests/simulation/profile.rs` compares the results). It counts the
//! translations of the programs' accesses beyond the first-level TLB, and their faults, from the walk that found
//! nothing until the access is retried, whether a kernel or a fault engine handled them. If a host handles faults for a
//! guest's handler, their cycles are in the guest's fault. Faults that a host handles for the program's access itself
//! count as the access's faults. Memory: at most `pages::MOST_PAGES` entries for pages (beyond that, neighbours share
//! one), and one per instruction with a cost.

mod code;
mod pages;
mod report;
mod samples;
mod stacks;

use std::sync::Arc;

use pagelab_trace::Event;
use pagelab_trace::calls::CallStacks;
use serde::Serialize;

use pagelab_base::addr::VirtAddr;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::LayerId;
use pagelab_base::page_fault::Intent;
use pagelab_base::rng::Rng;
use pagelab_kernel::fault::stage::Stage;
use pagelab_kernel::vma::{Vma, VmaKind};

pub use code::Instruction;
pub use report::{CodeRow, MemoryRow, ProfileReport, Rows, SamplesReport};
pub use samples::{FaultSample, SampledRef, SampledStage, SampledStep, StageCounts, WalkSample};
pub use stacks::{ContextRow, SiteRow, StackRow, StacksReport};

use code::Code;
use pages::Pages;
use samples::Samples;
use stacks::Stacks;

/// Costs of paging somewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// Walks that ended with a translation.
    pub walks: u64,
    /// Cycles of waiting for translation beyond the first-level TLB: second-level TLBs and all walks.
    pub translation_cycles: u64,
    /// Page faults of accesses, whether a kernel or a fault engine handled them.
    pub faults: u64,
    /// Cycles of these faults until the access is retried, including waiting.
    pub fault_cycles: u64,
    /// Page faults in skipped stretches of the program, whose first touches are known.
    #[serde(skip_serializing_if = "is_zero")]
    pub skipped_faults: u64,
    /// Cycles of these.
    #[serde(skip_serializing_if = "is_zero")]
    pub skipped_fault_cycles: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Cost {
    /// Adds other costs.
    pub fn add(&mut self, other: &Self) {
        self.walks += other.walks;
        self.translation_cycles += other.translation_cycles;
        self.faults += other.faults;
        self.fault_cycles += other.fault_cycles;
        self.skipped_faults += other.skipped_faults;
        self.skipped_fault_cycles += other.skipped_fault_cycles;
    }

    /// Cycles of translation and of faults.
    pub fn cycles(&self) -> u64 {
        self.translation_cycles + self.fault_cycles + self.skipped_fault_cycles
    }
}

/// A process of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId {
    /// Index among the sources.
    pub source: u32,
    /// Index among the source's processes.
    pub process: u32,
}

/// The kind of memory that an address belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Area {
    /// `anonymous`, `file`, `heap`, `stack`, `special`, or `unmapped` if there is no mapping.
    pub kind: &'static str,
    /// The mapped file, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<Arc<str>>,
}

impl Area {
    /// The area of a mapping.
    pub fn from_vma(vma: Option<&Vma>) -> Self {
        let kind = match vma.map(|vma| vma.kind) {
            Some(VmaKind::Anonymous) => "anonymous",
            Some(VmaKind::File) => "file",
            Some(VmaKind::Heap) => "heap",
            Some(VmaKind::Stack) => "stack",
            Some(VmaKind::Special) => "special",
            None => "unmapped",
        };
        Self { kind, file: vma.and_then(|vma| vma.file.clone()) }
    }
}

/// An access: its process, address and instruction.
#[derive(Clone, Debug)]
pub struct ProfiledAccess {
    /// The process that made the access.
    pub process: ProcessId,
    /// The address of the access.
    pub va: VirtAddr,
    /// What the address belonged to at the time.
    pub area: Area,
    /// The instruction that made the access.
    pub instruction: Instruction,
    /// Address of the instruction, as in the trace.
    pub pc: u64,
    /// Its context, if the source has call stacks.
    pub context: u32,
    /// Load, store or fetch.
    pub intent: Intent,
    /// Time of the access, by the clock of its CPU.
    pub at: Cycles,
}

/// A completed walk.
pub struct WalkMade<F> {
    /// Cycles of the walk, from the TLB miss to the end.
    pub cycles: Cycles,
    /// Returns its references; called if the walk becomes a sample.
    pub refs: F,
}

/// A program's access that faulted, with counts at that time.
#[derive(Clone, Debug)]
pub struct Miss {
    /// The address that was accessed.
    pub va: VirtAddr,
    /// Address of the instruction, as in the trace.
    pub pc: u64,
    /// Its context, if the source has call stacks.
    pub context: u32,
    /// Load, store or fetch.
    pub intent: Intent,
    /// Time of the first attempt, by the clock of its CPU.
    pub at: Cycles,
    /// Cycles that its CPU had spent on faults.
    pub spent: Cycles,
    /// Counts of all layers' stages, layer by layer.
    pub stages: Vec<StageCounts>,
    /// Steps of its handlers since then, in order.
    pub steps: Vec<StepMade>,
}

/// A reference of a handler, or the part of a step without its references.
#[derive(Clone, Copy, Debug)]
pub struct StepMade {
    /// The layer of the kernel.
    pub layer: LayerId,
    /// The stage of the fault that it belongs to.
    pub stage: Stage,
    /// Cycles by which it prolonged the fault: references of one step overlap.
    pub cycles: Cycles,
    /// Lines that it referred to, by place, as in [`StageCounts::lines`].
    pub lines: [u64; 5],
}

impl Miss {
    /// Records work of a layer's handler; `stage` is `None` for other activities of the miss's task.
    pub fn note(&mut self, layer: LayerId, stage: Option<Stage>, cycles: Cycles, lines: [u64; 5]) {
        let made = stage.map(|stage| StepMade { layer, stage, cycles, lines });
        self.steps.extend(made.filter(|made| made.cycles > Cycles::ZERO || made.lines != [0; 5]));
    }
}

/// A profile, see the module's text.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Accesses of the main sources after which counting begins.
    pub begins: u64,
    seed: u64,
    code: Code,
    pages: Pages,
    stacks: Stacks,
    walks: Samples<WalkSample>,
    faults: Samples<FaultSample>,
}

impl Profile {
    /// An empty profile. `seed` selects the samples, and counting begins after `begins` accesses of the main sources.
    /// `call_stacks` has the call stacks of the sources that have any.
    pub fn new(seed: u64, begins: u64, call_stacks: Vec<Option<Arc<CallStacks>>>) -> Self {
        Self {
            stacks: Stacks::new(call_stacks),
            begins,
            seed,
            code: Code::default(),
            pages: Pages::default(),
            walks: Samples::new(Rng::new(seed, "sampled walks")),
            faults: Samples::new(Rng::new(seed, "sampled faults")),
        }
    }

    /// Discards what was recorded before counting begins.
    pub fn begin(&mut self) {
        let mut stacks = std::mem::replace(&mut self.stacks, Stacks::new(Vec::new()));
        stacks.begin();
        *self = Self { stacks, ..Self::new(self.seed, self.begins, Vec::new()) };
    }

    /// Records that an access waited for its translation, with the walk if one was completed.
    pub fn translated(
        &mut self,
        place: &ProfiledAccess,
        waited: Cycles,
        walk: Option<WalkMade<impl FnOnce() -> Vec<SampledRef>>>,
    ) {
        let cost = Cost { walks: walk.is_some().into(), translation_cycles: waited.0, ..Cost::default() };
        self.count(place, &cost);
        if let Some(WalkMade { cycles, refs }) = walk {
            self.walks.note(cycles, || WalkSample::new(place, cycles, refs()));
        }
    }

    /// Records a fault that has been handled. `stages` returns its costs stage by stage and step by step, and is called
    /// if the fault becomes a sample; `None` if they cannot be separated from work that others did meanwhile.
    pub fn faulted(
        &mut self,
        place: &ProfiledAccess,
        took: Cycles,
        major: bool,
        stages: Option<impl FnOnce() -> (Vec<SampledStage>, Vec<SampledStep>)>,
    ) {
        self.count(place, &Cost { faults: 1, fault_cycles: took.0, ..Cost::default() });
        self.faults.count(took);
        if let Some(stages) = stages {
            self.faults.choose(took, || FaultSample::new(place, took, major, stages()));
        }
    }

    /// Records a fault of a skipped stretch.
    pub fn faulted_where_skipped(&mut self, place: &ProfiledAccess, took: Cycles) {
        self.count(place, &Cost { skipped_faults: 1, skipped_fault_cycles: took.0, ..Cost::default() });
    }

    fn count(&mut self, place: &ProfiledAccess, cost: &Cost) {
        self.code.count(&place.instruction, cost);
        self.pages.count(place.process, place.va, &place.area, cost);
        self.stacks.count(place, cost);
    }

    /// Records an event that affects the memory of a source's process, if the source has call stacks.
    pub fn note(&mut self, source: u32, event: &Event) {
        if self.stacks.has_call_stacks(source) {
            self.stacks.note(source, event);
        }
    }

    /// The profile as a report.
    pub fn report(self) -> ProfileReport {
        ProfileReport::new(self.code, self.pages, self.stacks, self.walks, self.faults)
    }
}
