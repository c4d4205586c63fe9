//! Where in a program's memory and code paging costs: by page and by instruction, how walks and faults are distributed,
//! and samples of both step by step.
//!
//! Models: nothing. A profile looks on and changes no result; a run with one makes every access in the general code,
//! which is slower than the fast path (`tests/simulation/profile.rs` compares the results). Counted are the
//! translations of the programs' accesses beyond the first-level TLB, and the faults that these met, from the walk that
//! found nothing until the access is made again: whoever saw to them, a kernel or a fault engine. Faults that a host
//! handles for a guest's handler are in the cycles of the guest's; those that it handles for the program's access
//! itself count as its faults. Memory: at most `pages::MOST_PAGES` entries for pages (beyond, neighbours share one),
//! one per instruction that has cost anything.

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

/// What paging cost somewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// Walks that ended with a translation.
    pub walks: u64,
    /// Cycles of waiting for translation beyond the first-level TLB: second-level TLBs and all walks.
    pub translation_cycles: u64,
    /// Page faults that accesses met, whether a kernel or a fault engine saw to them.
    pub faults: u64,
    /// Until the access is made again, waiting included.
    pub fault_cycles: u64,
    /// The same faults in skipped stretches of the program, whose first touches are known.
    #[serde(skip_serializing_if = "is_zero")]
    pub skipped_faults: u64,
    /// What these took.
    #[serde(skip_serializing_if = "is_zero")]
    pub skipped_fault_cycles: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Cost {
    /// Adds what paging cost elsewhere.
    pub fn add(&mut self, other: &Self) {
        self.walks += other.walks;
        self.translation_cycles += other.translation_cycles;
        self.faults += other.faults;
        self.fault_cycles += other.fault_cycles;
        self.skipped_faults += other.skipped_faults;
        self.skipped_fault_cycles += other.skipped_fault_cycles;
    }

    /// Cycles of translation and of faults together.
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

/// What an address belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Area {
    /// `anonymous`, `file`, `heap`, `stack`, `special`, or `unmapped` if nothing is mapped there.
    pub kind: &'static str,
    /// The file that is mapped; none without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<Arc<str>>,
}

impl Area {
    /// That of a mapping.
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

/// Whose access it was, and to what.
#[derive(Clone, Debug)]
pub struct Place {
    /// The process that made the access.
    pub process: ProcessId,
    /// The address of the access.
    pub va: VirtAddr,
    /// What the address belonged to at that time.
    pub area: Area,
    /// The instruction that made the access.
    pub instruction: Instruction,
    /// Its address, as the trace gives it.
    pub pc: u64,
    /// The context that it was executed in, if the source tells call stacks.
    pub context: u32,
    /// What the access is.
    pub intent: Intent,
    /// When, by the clock of its CPU.
    pub at: Cycles,
}

/// A walk that came to its end.
pub struct WalkMade<F> {
    /// Cycles of the walk, from the misses in the TLBs on.
    pub cycles: Cycles,
    /// Asked for its references if it is to be a sample.
    pub refs: F,
}

/// A program's access that met a fault, and what had been counted then.
#[derive(Clone, Debug)]
pub struct Miss {
    /// The address that was accessed.
    pub va: VirtAddr,
    /// Address of the instruction, as the trace gives it.
    pub pc: u64,
    /// The context that it was executed in, if the source tells call stacks.
    pub context: u32,
    /// What the access is.
    pub intent: Intent,
    /// When it was first made, by the clock of its CPU.
    pub at: Cycles,
    /// What its CPU had spent on faults.
    pub spent: Cycles,
    /// Of each layer's stages, layer by layer.
    pub stages: Vec<StageCounts>,
    /// What its handlers have done since, in order.
    pub steps: Vec<StepMade>,
}

/// A reference of a handler, or what a step of it did beside its references.
#[derive(Clone, Copy, Debug)]
pub struct StepMade {
    /// Whose kernel did it.
    pub layer: LayerId,
    /// Of the fault, that it is a part of.
    pub stage: Stage,
    /// By how much it made the fault longer: references of one step overlap.
    pub cycles: Cycles,
    /// Lines that it referred to, by place, as in [`StageCounts::lines`].
    pub lines: [u64; 5],
}

impl Miss {
    /// Notes what a handler of a layer has done; `stage` is none if it was another activity of the miss's task.
    pub fn note(&mut self, layer: LayerId, stage: Option<Stage>, cycles: Cycles, lines: [u64; 5]) {
        let made = stage.map(|stage| StepMade { layer, stage, cycles, lines });
        self.steps.extend(made.filter(|made| made.cycles > Cycles::ZERO || made.lines != [0; 5]));
    }
}

/// See the module's text.
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
    /// Nothing has been counted. `seed` chooses the samples, and counting begins after `begins` accesses of the main
    /// sources. `told` are the call stacks of the sources that tell them.
    pub fn new(seed: u64, begins: u64, told: Vec<Option<Arc<CallStacks>>>) -> Self {
        Self {
            stacks: Stacks::new(told),
            begins,
            seed,
            code: Code::default(),
            pages: Pages::default(),
            walks: Samples::new(Rng::new(seed, "sampled walks")),
            faults: Samples::new(Rng::new(seed, "sampled faults")),
        }
    }

    /// Forgets what was before counting begins.
    pub fn begin(&mut self) {
        let mut stacks = std::mem::replace(&mut self.stacks, Stacks::new(Vec::new()));
        stacks.begin();
        *self = Self { stacks, ..Self::new(self.seed, self.begins, Vec::new()) };
    }

    /// An access waited for its translation; with a walk if there was one that came to its end.
    pub fn translated(
        &mut self,
        place: &Place,
        waited: Cycles,
        walk: Option<WalkMade<impl FnOnce() -> Vec<SampledRef>>>,
    ) {
        let cost = Cost { walks: walk.is_some().into(), translation_cycles: waited.0, ..Cost::default() };
        self.count(place, &cost);
        if let Some(WalkMade { cycles, refs }) = walk {
            self.walks.note(cycles, || WalkSample::new(place, cycles, refs()));
        }
    }

    /// A fault has been handled; `stages` says what it did, stage by stage and step by step, if that can be told from
    /// what others did meanwhile. It is asked if the fault is to be a sample.
    pub fn faulted(
        &mut self,
        place: &Place,
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

    /// A fault of a skipped stretch has been handled.
    pub fn faulted_where_skipped(&mut self, place: &Place, took: Cycles) {
        self.count(place, &Cost { skipped_faults: 1, skipped_fault_cycles: took.0, ..Cost::default() });
    }

    fn count(&mut self, place: &Place, cost: &Cost) {
        self.code.count(&place.instruction, cost);
        self.pages.count(place.process, place.va, &place.area, cost);
        self.stacks.count(place, cost);
    }

    /// Something has happened to the memory of a process of a source, which matters if that tells call stacks.
    pub fn note(&mut self, source: u32, event: &Event) {
        if self.stacks.are_told(source) {
            self.stacks.note(source, event);
        }
    }

    /// What it comes to.
    pub fn report(self) -> ProfileReport {
        ProfileReport::new(self.code, self.pages, self.stacks, self.walks, self.faults)
    }
}
