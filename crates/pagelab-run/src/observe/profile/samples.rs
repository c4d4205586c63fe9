//! Single walks and faults: the distribution of their latencies, and a few samples step by step.

use hdrhistogram::Histogram;
use serde::Serialize;

use super::code::Instruction;
use super::{Area, ProfiledAccess};
use pagelab_base::cycles::Cycles;
use pagelab_base::page_fault::Intent;
use pagelab_base::rng::Rng;

/// Number of samples kept; each walk or fault has the same probability to be kept.
const KEPT: usize = 8;

/// Significant digits of latencies.
const DIGITS: u8 = 2;

/// Samples of walks or of faults.
#[derive(Clone, Debug)]
pub(super) struct Samples<T> {
    rng: Rng,
    pub latencies: Histogram<u64>,
    /// Number of those that could have been kept.
    seen: u64,
    pub kept: Vec<T>,
    /// The slowest one; the first of equals.
    pub slowest: Option<(Cycles, T)>,
}

impl<T: Clone> Samples<T> {
    pub fn new(rng: Rng) -> Self {
        let latencies = Histogram::new(DIGITS).expect("this number of digits is possible");
        Self { rng, latencies, seen: 0, kept: Vec::new(), slowest: None }
    }

    /// Counts one, and may keep it as a sample.
    pub fn note(&mut self, took: Cycles, sample: impl FnOnce() -> T) {
        self.count(took);
        self.choose(took, sample);
    }

    pub fn count(&mut self, took: Cycles) {
        self.latencies.record(took.0).expect("it grows as it has to");
    }

    /// Decides whether to keep it (Vitter's algorithm R).
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

/// The access that a sample belongs to.
#[derive(Clone, Debug, Serialize)]
pub struct Access {
    pub source: u32,
    pub process: u32,
    /// Time of its end, by the clock of its CPU.
    pub at: u64,
    pub address: u64,
    pub area: Area,
    /// File of the instruction.
    pub file: Option<std::sync::Arc<str>>,
    /// Bytes from the start of the file, or its address.
    pub offset: u64,
    /// `load`, `store` or `fetch`.
    pub intent: &'static str,
}

impl Access {
    fn from_place(place: &ProfiledAccess) -> Self {
        let ProfiledAccess { process, va, area, instruction, intent, at, .. } = place;
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

/// A completed walk. References that an MMU cache spared are not listed.
#[derive(Clone, Debug, Serialize)]
pub struct WalkSample {
    /// The access that needed the translation.
    #[serde(flatten)]
    pub access: Access,
    /// Cycles of the walk, from the TLB miss to the end.
    pub cycles: u64,
    /// The references of the walk, in order.
    pub refs: Vec<SampledRef>,
}

impl WalkSample {
    pub(super) fn new(place: &ProfiledAccess, cycles: Cycles, refs: Vec<SampledRef>) -> Self {
        Self { access: Access::from_place(place), cycles: cycles.0, refs }
    }
}

/// Work of a layer's kernel for a fault in one stage.
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

/// A reference of a fault's handler, or the part of a step without its references, mostly instructions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SampledStep {
    /// Name of the layer of the kernel.
    pub layer: String,
    /// The stage of the fault that it belongs to.
    pub stage: &'static str,
    /// Cycles by which it prolonged the fault: independent references overlap.
    pub cycles: u64,
    /// Lines that it referred to, by place as in [`SampledStage::lines`]: one, several for a bulk reference, or none.
    pub lines: [u64; 5],
}

/// Counts of a stage at some time.
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
    /// The access that was retried after it.
    #[serde(flatten)]
    pub access: Access,
    /// Cycles from the walk that found nothing until the access was retried.
    pub cycles: u64,
    /// Whether a device was read.
    pub major: bool,
    /// Work of kernels in each stage that took cycles or lines, layer by layer.
    pub stages: Vec<SampledStage>,
    /// Steps in order; those of a stage sum to its cycles and lines.
    pub steps: Vec<SampledStep>,
}

impl FaultSample {
    pub(super) fn new(
        place: &ProfiledAccess,
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
    fn every_sample_is_equally_likely_to_be_kept() {
        let mut kept = [0_u32; 40];
        for seed in 0..4000 {
            let mut samples = Samples::new(Rng::new(seed, "test"));
            (0..40_usize).for_each(|n| samples.note(Cycles(100 - n as u64 % 7), || n));
            assert_eq!(samples.kept.len(), KEPT);
            assert_eq!(samples.slowest, Some((Cycles(100), 0)));
            assert_eq!(samples.latencies.len(), 40);
            samples.kept.iter().for_each(|&n| kept[n] += 1);
        }
        // Each is expected 800 times with a deviation of 25: allow five deviations.
        assert!(kept.iter().all(|count| (675..=925).contains(count)), "{kept:?}");
    }
}
