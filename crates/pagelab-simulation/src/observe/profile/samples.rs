//! Walks and faults one by one: how long they took, and a few of them step by step.

use hdrhistogram::Histogram;
use serde::Serialize;

use super::code::Instruction;
use super::{Area, Place};
use pagelab_base::cycles::Cycles;
use pagelab_base::page_fault::Intent;
use pagelab_base::rng::Rng;

/// Samples that are kept, each of those seen being as likely as any other.
const KEPT: usize = 8;

/// Digits of latencies that are told apart.
const DIGITS: u8 = 2;

/// Samples of a kind.
#[derive(Clone, Debug)]
pub(super) struct Samples<T> {
    rng: Rng,
    pub latencies: Histogram<u64>,
    /// Those that could have been chosen.
    seen: u64,
    pub kept: Vec<T>,
    /// The one that took longest, the first of equals.
    pub slowest: Option<(Cycles, T)>,
}

impl<T: Clone> Samples<T> {
    pub fn new(rng: Rng) -> Self {
        let latencies = Histogram::new(DIGITS).expect("so many digits can be told apart");
        Self { rng, latencies, seen: 0, kept: Vec::new(), slowest: None }
    }

    /// Counts one, which may be chosen.
    pub fn note(&mut self, took: Cycles, sample: impl FnOnce() -> T) {
        self.count(took);
        self.choose(took, sample);
    }

    pub fn count(&mut self, took: Cycles) {
        self.latencies.record(took.0).expect("it grows as it has to");
    }

    /// Keeps it or not (Vitter's algorithm R).
    pub fn choose(&mut self, took: Cycles, sample: impl FnOnce() -> T) {
        self.seen += 1;
        let slowest = self.slowest.as_ref().is_none_or(|(most, _)| took > *most);
        let place = if self.kept.len() < KEPT { self.kept.len() } else { self.rng.below(self.seen) as usize };
        if !slowest && place >= KEPT {
            return;
        }
        let sample = sample();
        if slowest {
            self.slowest = Some((took, sample.clone()));
        }
        if place == self.kept.len() && place < KEPT {
            self.kept.push(sample);
        } else if place < KEPT {
            self.kept[place] = sample;
        }
    }
}

/// Whose access a sample is of.
#[derive(Clone, Debug, Serialize)]
pub struct Access {
    pub source: u32,
    pub process: u32,
    /// Cycles of its CPU when it was over.
    pub at: u64,
    pub address: u64,
    pub area: Area,
    /// File of the instruction.
    pub file: Option<std::sync::Arc<str>>,
    /// Where it is in its file, or its address.
    pub offset: u64,
    /// `load`, `store` or `fetch`.
    pub intent: &'static str,
}

impl Access {
    fn from_place(place: &Place) -> Self {
        let Place { process, va, area, instruction, intent, at, .. } = place;
        let Instruction { file, offset } = instruction.clone();
        let intent = match intent {
            Intent::Load => "load",
            Intent::Store => "store",
            Intent::Fetch => "fetch",
        };
        let (source, process) = (process.source, process.process);
        Self { source, process, at: at.0, address: va.0, area: area.clone(), file, offset, intent }
    }
}

/// A reference of a walk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SampledRef {
    /// Name of the layer whose page table was read.
    pub layer: String,
    /// Level of the entry, 1 for that of a 4 KiB page.
    pub level: u8,
    /// `l1`, `l2`, `l3`, `dram`, `remote` or `uncached`.
    pub place: &'static str,
    /// Cycles of the reference; references of one dependency step overlap.
    pub cycles: u64,
}

/// A walk that came to its end. Entries that an MMU cache spared are not among its references.
#[derive(Clone, Debug, Serialize)]
pub struct WalkSample {
    /// The access that asked for the translation.
    #[serde(flatten)]
    pub access: Access,
    /// Cycles of the walk, from the misses in the TLBs on.
    pub cycles: u64,
    /// What the walk read, in order.
    pub refs: Vec<SampledRef>,
}

impl WalkSample {
    pub(super) fn new(place: &Place, cycles: Cycles, refs: Vec<SampledRef>) -> Self {
        Self { access: Access::from_place(place), cycles: cycles.0, refs }
    }
}

/// What a layer's kernel did for a fault in one stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SampledStage {
    /// Name of the layer.
    pub layer: String,
    /// Name of the stage, as in `kernel.fault`.
    pub stage: &'static str,
    /// Cycles of the stage.
    pub cycles: u64,
    /// Lines that it referred to, by place: L1, L2, L3, other cores' caches, memory.
    pub lines: [u64; 5],
}

/// A reference of a fault's handler, or what a step of it did beside its references: instructions, above all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SampledStep {
    /// Name of the layer whose kernel did it.
    pub layer: String,
    /// Of the fault, that it is a part of.
    pub stage: &'static str,
    /// By how much it made the fault longer: references that do not wait for each other overlap.
    pub cycles: u64,
    /// Lines that it referred to, by place as in [`SampledStage::lines`]: one, several of a bulk one, or none.
    pub lines: [u64; 5],
}

/// What has been counted of a stage at some time.
#[derive(Clone, Copy, Debug)]
pub struct StageCounts {
    /// Cycles of the stage so far.
    pub cycles: Cycles,
    /// Lines that it has referred to so far, by place: L1, L2, L3, other cores' caches, memory.
    pub lines: [u64; 5],
}

/// A page fault.
#[derive(Clone, Debug, Serialize)]
pub struct FaultSample {
    /// The access that was made again after it.
    #[serde(flatten)]
    pub access: Access,
    /// Cycles from the walk that found nothing until the access was made again.
    pub cycles: u64,
    /// Whether a device was read for it.
    pub major: bool,
    /// What kernels did for it in each stage that took cycles or lines, layer by layer.
    pub stages: Vec<SampledStage>,
    /// In the order in which they were made; those of a stage have its cycles and its lines in all.
    pub steps: Vec<SampledStep>,
}

impl FaultSample {
    pub(super) fn new(
        place: &Place,
        took: Cycles,
        major: bool,
        (stages, steps): (Vec<SampledStage>, Vec<SampledStep>),
    ) -> Self {
        Self { access: Access::from_place(place), cycles: took.0, major, stages, steps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_one_is_as_likely_to_be_kept() {
        let mut kept = [0_u32; 40];
        for seed in 0..4000 {
            let mut samples = Samples::new(Rng::new(seed, "test"));
            (0..40_usize).for_each(|n| samples.note(Cycles(100 - n as u64 % 7), || n));
            assert_eq!(samples.kept.len(), KEPT);
            assert_eq!(samples.slowest, Some((Cycles(100), 0)));
            assert_eq!(samples.latencies.len(), 40);
            samples.kept.iter().for_each(|&n| kept[n] += 1);
        }
        // Each is expected 800 times with a deviation of 25: five of them either way.
        assert!(kept.iter().all(|count| (675..=925).contains(count)), "{kept:?}");
    }
}
