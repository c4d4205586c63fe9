//! `semirandom`: a random access, then a few page-sized steps.

use super::{
    Workload,
    array::{self, ACCESSES, INITIALISE, Mix, Part, REGIONS, SIZE_1G, WRITE},
    between::BETWEEN,
    program::Stream,
    spec::{ALIGN, GAP, Kind, Parameter, Preset, SEED, THREADS, Values},
};
use crate::Access;
use crate::rng::{Rng, scale};

const WORD: u64 = 8;
const STEPS: Parameter = Parameter {
    name: "steps",
    kind: Kind::Count { min: 0, max: 255 },
    default: Preset::Value("4"),
    meaning: "sequential accesses after each random one",
};
const STEP: Parameter = Parameter {
    name: "step",
    kind: Kind::Bytes { min: 1, max: 1 << 40 },
    default: Preset::Value("4KiB"),
    meaning: "bytes from one of them to the next; they wrap around at the array's end",
};

pub(super) static WORKLOAD: Workload = Workload {
    name: "semirandom",
    summary: "accesses an 8-byte word of an array at random, then makes four page-sized steps from there, and again",
    origin: "the semi-random test of the software page walk cache paper (section 5.1)",
    parameters: &[SIZE_1G, ACCESSES, STEPS, STEP, WRITE, BETWEEN, THREADS, REGIONS, INITIALISE, GAP, ALIGN, SEED],
    build: |values| {
        if values.number(STEP.name) > words(values.number(SIZE_1G.name)) * WORD {
            return Err(values.conflict("step must not exceed size"));
        }
        array::build(values, WORD, |part| SemiRandom::new(values, part))
    },
};

fn words(bytes: u64) -> u64 {
    bytes / WORD
}

struct SemiRandom {
    base: u64,
    words: u64,
    steps: usize,
    step: u64,
    mix: Mix,
    rng: Rng,
}

impl SemiRandom {
    fn new(values: &Values, part: &Part) -> Self {
        Self {
            base: part.base,
            words: words(part.bytes),
            steps: values.number(STEPS.name) as usize,
            step: values.number(STEP.name),
            mix: Mix::new(values, WORD as u16),
            rng: Rng::for_thread(values.seed(), "semirandom", part.thread),
        }
    }
}

impl Stream for SemiRandom {
    fn unit(&self) -> usize {
        self.steps + 1
    }

    fn fill(&mut self, out: &mut [Access]) -> usize {
        let (base, step, mix) = (self.base, self.step, self.mix);
        let bytes = self.words * WORD;
        let mut rng = self.rng.clone();
        let filled = out.len() / self.unit() * self.unit();
        for group in out[..filled].chunks_exact_mut(self.steps + 1) {
            let mut offset = scale(rng.peek(0), self.words) * WORD;
            for slot in group {
                *slot = mix.access(rng.next_u64(), base + offset);
                offset += step;
                offset -= if offset >= bytes { bytes } else { 0 };
            }
        }
        self.rng = rng;
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::super::program::tests::{arrays, replay};

    #[test]
    fn four_page_sized_steps_follow_each_random_access() {
        let (accesses, events) = replay("semirandom:size=1M,accesses=50K", 2);
        let base = arrays(&events)[0].0;
        let mut first = std::collections::HashSet::new();
        for group in accesses.chunks(5) {
            let start = group[0].1.vaddr - base;
            first.insert(start >> 12);
            for (step, (_, access)) in group.iter().enumerate() {
                assert_eq!(access.vaddr, base + (start + 4096 * step as u64) % (1 << 20));
                assert_eq!(access.vaddr % 8, 0);
            }
        }
        assert_eq!((first.len(), accesses.len()), (256, 50_000));
    }

    #[test]
    fn steps_wrap_around_to_the_start() {
        let (accesses, events) = replay("semirandom:size=8K,accesses=50K", 2);
        let base = arrays(&events)[0].0;
        for group in accesses.chunks(5) {
            assert!((1..5).all(|i| (group[i].1.vaddr - base) == (group[i - 1].1.vaddr - base + 4096) % 8192));
        }
    }

    #[test]
    fn a_step_beyond_the_array_is_refused() {
        assert!(crate::workload::parse("semirandom:size=4100,step=4097", 0).is_err());
        let (accesses, _) = replay("semirandom:size=4103,step=4096,steps=9,accesses=1000", 0);
        assert_eq!(accesses.len(), 1000);
    }
}
