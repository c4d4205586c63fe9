//! `random`: uniformly random elements, optionally one among sequential accesses.

use super::{
    Workload,
    array::{self, ACCESSES, GRANULARITY, INITIALISE, Mix, Part, REGIONS, SIZE_1G, WRITE, width},
    between::BETWEEN,
    program::Stream,
    spec::{ALIGN, GAP, Kind, Parameter, Preset, SEED, THREADS, Values},
};
use crate::Access;
use crate::rng::{Rng, scale};

const EVERY: Parameter = Parameter {
    name: "every",
    kind: Kind::Count { min: 1, max: 256 },
    default: Preset::Value("1"),
    meaning: "one access in so many is random, the others continue a sequential pass over the same array, \
              element by element (8: one random access, then seven sequential ones)",
};

pub(super) static WORKLOAD: Workload = Workload {
    name: "random",
    summary: "accesses elements of an array at random, each equally likely; every=8 mixes them with a sequential pass",
    origin: "the random test of the software page walk cache paper (section 5.1) is random:size=1GiB",
    parameters: &[
        SIZE_1G,
        ACCESSES,
        EVERY,
        GRANULARITY,
        WRITE,
        BETWEEN,
        THREADS,
        REGIONS,
        INITIALISE,
        GAP,
        ALIGN,
        SEED,
    ],
    build: |values| {
        let granularity = values.number(GRANULARITY.name);
        array::build(values, granularity, |part| Random::new(values, part, granularity))
    },
};

struct Random {
    base: u64,
    granularity: u64,
    elements: u64,
    every: usize,
    /// Next element of the sequential pass.
    next: u64,
    mix: Mix,
    rng: Rng,
}

impl Random {
    fn new(values: &Values, part: &Part, granularity: u64) -> Self {
        let elements = part.bytes / granularity;
        Self {
            base: part.base,
            granularity,
            elements,
            every: values.number(EVERY.name) as usize,
            next: part.share(elements).0 % elements,
            mix: Mix::new(values, width(granularity)),
            rng: Rng::for_thread(values.seed(), "random", part.thread),
        }
    }
}

impl Stream for Random {
    fn unit(&self) -> usize {
        self.every
    }

    fn fill(&mut self, out: &mut [Access]) -> usize {
        // Local copies, so that the compiler need not assume that writing an access changes them.
        let (base, granularity, elements, mix) = (self.base, self.granularity, self.elements, self.mix);
        let (mut rng, mut next) = (self.rng.clone(), self.next);
        let filled = out.len() / self.every * self.every;
        if self.every == 1 {
            for slot in out.iter_mut() {
                let random = rng.next_u64();
                *slot = mix.access(random, base + scale(random, elements) * granularity);
            }
        } else {
            for group in out[..filled].chunks_exact_mut(self.every) {
                let (first, others) = group.split_first_mut().expect("a group has elements");
                let random = rng.next_u64();
                *first = mix.access(random, base + scale(random, elements) * granularity);
                for slot in others {
                    *slot = mix.access(rng.next_u64(), base + next * granularity);
                    next = if next + 1 == elements { 0 } else { next + 1 };
                }
            }
        }
        (self.rng, self.next) = (rng, next);
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::super::program::tests::{arrays, pages, replay};

    #[test]
    fn every_element_is_equally_likely() {
        let (accesses, events) = replay("random:size=1000,granularity=10,accesses=100K,write=0.5", 9);
        let base = arrays(&events)[0].0;
        let mut counts = [[0u32; 100]; 2];
        for (_, access) in &accesses {
            let offset = access.vaddr - base;
            assert_eq!((offset % 10, access.size_bytes), (0, 8));
            counts[usize::from(access.kind.writes())][offset as usize / 10] += 1;
        }
        // 200 cells of 500 expected counts: chi-square has mean 199 and standard deviation 20.
        let chi: f64 = counts.iter().flatten().map(|&n| (f64::from(n) - 500.0).powi(2) / 500.0).sum();
        assert!((120.0..300.0).contains(&chi), "{chi}");
    }

    #[test]
    fn one_in_eight_is_random_among_a_sequential_pass() {
        let (accesses, events) = replay("random:size=8K,every=8,accesses=16001", 1);
        let base = arrays(&events)[0].0;
        let sequential = accesses.iter().enumerate().filter(|(i, _)| i % 8 != 0);
        for (count, (_, (_, access))) in sequential.enumerate() {
            assert_eq!(access.vaddr, base + count as u64 % 1024 * 8);
        }
        let random: std::collections::HashSet<_> = accesses.iter().step_by(8).map(|(_, a)| a.vaddr).collect();
        assert!(random.len() > 800 && accesses.len() == 16001);
    }

    #[test]
    fn large_arrays_cost_no_memory() {
        let (accesses, events) = replay("random:size=32GiB,accesses=20K,threads=2", 1);
        let arrays = arrays(&events);
        assert!(arrays.len() == 2 && arrays.iter().all(|(_, len)| *len == 32 << 30));
        assert!(pages(&accesses) > 19_900);
        let beyond = accesses.iter().filter(|(t, a)| a.vaddr - arrays[*t as usize].0 >= 16 << 30).count();
        assert!((9_500..10_500).contains(&beyond), "{beyond}");
        let of_thread = |thread: u32| accesses.iter().filter(move |(t, _)| *t == thread);
        let offset = |t: u32, v: u64| v - arrays[t as usize].0;
        assert!(
            of_thread(0).zip(of_thread(1)).any(|(a, b)| offset(0, a.1.vaddr) != offset(1, b.1.vaddr)),
            "threads must differ"
        );
    }
}
