//! Passing walks, faults and call stacks of CPUs to a profile.

use std::ops::Range;

use pagelab_trace::Batch;

use crate::machine::simulation::Simulation;
use pagelab_base::addr::VirtAddr;
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::ids::{CpuId, LayerId};
use pagelab_base::page_fault::Intent;
use pagelab_hardware::core_model::clock::Class;
use pagelab_kernel::fault::stage::{FaultCounters, Stage};
use pagelab_run::observe::profile::{
    Area, Instruction, Miss, ProcessId, ProfiledAccess, SampledRef, SampledStage, SampledStep, StageCounts, StepMade,
    WalkMade,
};
use pagelab_translate::counters::{MadeRef, PLACE_NAMES};

/// The counts of the fault stages, layer by layer.
fn stage_counts(layers: &[FaultCounters]) -> Vec<StageCounts> {
    let counts =
        |counters: &FaultCounters, stage| StageCounts { cycles: counters.cycles[stage], lines: counters.lines[stage] };
    layers.iter().flat_map(|counters| (0..Stage::ALL.len()).map(|stage| counts(counters, stage))).collect()
}

impl Simulation {
    /// Describes the access of a CPU to `va`, by the instruction at `pc`.
    fn place(&self, cpu: CpuId, va: VirtAddr, pc: u64, intent: Intent) -> ProfiledAccess {
        let cpu = &self.scheduler.cpus[cpu];
        let (input, thread) = cpu.thread.expect("a thread made the access");
        let space = cpu.running();
        let vmas = &self.kernels.os.layers[space.layer].spaces[space.index].vmas;
        let code = vmas.find(VirtAddr(pc)).filter(|vma| vma.file.is_some());
        let instruction = match code {
            Some(vma) => Instruction { file: vma.file.clone(), offset: vma.file_offset + (pc - vma.start.0) },
            None => Instruction { file: None, offset: pc },
        };
        let process = ProcessId { source: input as u32, process: self.programs.inputs[input].process_of(thread).0 };
        let (area, context, at) = (Area::from_vma(vmas.find(va)), cpu.context, cpu.clock.now());
        ProfiledAccess { process, va, area, instruction, pc, context, intent, at }
    }

    /// [`Self::replay`] of a part of a batch.
    #[inline]
    pub(crate) fn replay_part<const MANY: bool>(
        &mut self,
        (cpu, input): (CpuId, usize),
        batch: &Batch,
        part: Range<usize>,
        limit: Cycles,
    ) -> Result<usize, EngineError> {
        if let Some(key) = self.replay.needs_pc {
            self.programs.ensure_pc(input, key, &batch.accesses[part.clone()])?;
        }
        // Sources deliver contexts only if there is a profile.
        if !batch.contexts.is_empty() {
            return self.replay_with_stacks::<MANY>((cpu, input), batch, part, limit);
        }
        let branches = batch.branches.get(part.clone()).unwrap_or_default();
        self.replay::<MANY>(cpu, &batch.accesses[part], branches, limit)
    }

    /// The same for a batch with call stacks, piece by piece: a piece has one context, and allocations before it are
    /// recorded.
    fn replay_with_stacks<const MANY: bool>(
        &mut self,
        (cpu, input): (CpuId, usize),
        batch: &Batch,
        part: Range<usize>,
        limit: Cycles,
    ) -> Result<usize, EngineError> {
        let mut at = part.start;
        let mut next = batch.allocations.partition_point(|(index, _)| *index < at);
        while at < part.end {
            while let Some((index, event)) = batch.allocations.get(next)
                && *index <= at
            {
                if let Some(profile) = &mut self.observers.profile {
                    profile.note(input as u32, event);
                }
                next += 1;
            }
            let context = batch.contexts[at];
            let until = batch.allocations.get(next).map_or(part.end, |(index, _)| part.end.min(*index));
            let end = at + batch.contexts[at..until].iter().take_while(|other| **other == context).count();
            self.scheduler.cpus[cpu].context = context;
            let branches = batch.branches.get(at..end).unwrap_or_default();
            let done = self.replay::<MANY>(cpu, &batch.accesses[at..end], branches, limit)?;
            at += done;
            if at < end || MANY && self.scheduler.turn_is_over(cpu, limit) {
                break;
            }
        }
        Ok(at - part.start)
    }

    /// Records the translation of an access; `walked` if the last walk was for it and was completed.
    #[cold]
    pub(super) fn profile_translation(
        &mut self,
        cpu: CpuId,
        va: VirtAddr,
        pc: u64,
        intent: Intent,
        waited: Cycles,
        walked: bool,
    ) {
        let place = self.place(cpu, va, pc, intent);
        let (walks, layers) = (&self.hw.walks, &self.kernels.os.layers);
        let reference = |made: &MadeRef| SampledRef {
            layer: layers[made.layer()].name.clone(),
            level: made.level(),
            place: PLACE_NAMES[made.place()],
            cycles: made.cycles.into(),
        };
        let refs = || walks.log.iter().map(reference).collect();
        let walk = walked.then_some(WalkMade { cycles: walks.last_cycles, refs });
        if let Some(profile) = self.observers.measuring_profile() {
            profile.translated(&place, waited, walk);
        }
    }

    /// Records that a program's access has faulted, in its own layer or in a host.
    #[cold]
    pub(super) fn profile_miss(&mut self, cpu: CpuId, va: VirtAddr, pc: u64, intent: Intent) {
        let cpu = &mut self.scheduler.cpus[cpu];
        let stages = stage_counts(&self.kernels.os.faults);
        let (at, spent) = (cpu.clock.now(), cpu.clock.spent(Class::Fault));
        cpu.task.miss =
            Some(Box::new(Miss { va, pc, context: cpu.context, intent, at, spent, stages, steps: Vec::new() }));
    }

    /// Records the end of the handling of that fault.
    #[inline]
    pub(super) fn profile_miss_end(&mut self, cpu: CpuId, major: bool) {
        if let Some(miss) = self.scheduler.cpus[cpu].task.miss.take() {
            self.count_miss(cpu, &miss, major);
        }
    }

    #[cold]
    fn count_miss(&mut self, cpu: CpuId, miss: &Miss, major: bool) {
        let place = ProfiledAccess { context: miss.context, ..self.place(cpu, miss.va, miss.pc, miss.intent) };
        let (spent, took) = (self.scheduler.cpus[cpu].clock.spent(Class::Fault) - miss.spent, place.at - miss.at);
        let (now, layers) = (stage_counts(&self.kernels.os.faults), &self.kernels.os.layers);
        // If other CPUs handled faults meanwhile, their costs are in the counts, too.
        let apart =
            now.iter().zip(&miss.stages).map(|(now, before)| now.cycles - before.cycles).sum::<Cycles>() == spent;
        let step = |made: &StepMade| SampledStep {
            layer: layers[made.layer].name.clone(),
            stage: made.stage.name(),
            cycles: made.cycles.0,
            lines: made.lines,
        };
        let stages = || {
            let stages = stages_since(miss, &now, &|layer| &layers[layer].name);
            (stages, miss.steps.iter().map(step).collect())
        };
        match self.observers.profile.as_mut() {
            Some(profile) if self.observers.windows.is_between() => profile.faulted_where_skipped(&place, took),
            Some(profile) => profile.faulted(&place, took, major, apart.then_some(stages)),
            None => {}
        }
    }
}

/// Counts since a miss, stage by stage.
fn stages_since<'n>(miss: &Miss, now: &[StageCounts], name: &dyn Fn(LayerId) -> &'n str) -> Vec<SampledStage> {
    let mut stages = Vec::new();
    for (at, (now, before)) in now.iter().zip(&miss.stages).enumerate() {
        let cycles = (now.cycles - before.cycles).0;
        let lines = std::array::from_fn(|place| now.lines[place] - before.lines[place]);
        if cycles > 0 {
            let (layer, stage) =
                (name(LayerId::from(at / Stage::ALL.len())).to_owned(), Stage::ALL[at % Stage::ALL.len()].name());
            stages.push(SampledStage { layer, stage, cycles, lines });
        }
    }
    stages
}
