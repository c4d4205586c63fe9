//! `gups`: random updates of a table, as in the HPC Challenge.

use super::{
    Workload,
    array::{INITIALISE, initialise_step, portion, share},
    layout::{Layout, Site},
    program::{Initialise, Plan, Stream, Worker, plan},
    spec::{ALIGN, COUNT, GAP, Kind, MAX_ARRAY_BYTES, Parameter, Preset, SEED, THREADS, Values},
};
use crate::{Access, TraceError};

const WORD: u64 = 8;
/// HPCC makes 4 times as many updates as the table has words, which takes most of an hour for 1 GiB.
const DEFAULT_UPDATES: u64 = 5_000_000;
/// Independent random sequences per thread, advanced in turn, as in HPCC (its vector length).
const STREAMS: usize = 128;
/// x^64 + x^2 + x + 1 without its leading term: HPCC's polynomial.
const POLY: u64 = 7;

/// Models: HPCC RandomAccess, `Table[r & (size − 1)] ^= r` for a sequence r of a linear feedback shift register. An
/// update is a load and a store of the same word, as in the source code. HPCC on one processor uses 128 sequences with
/// evenly spaced starts; here each thread has 128 of its own for one shared table.
pub(super) static WORKLOAD: Workload = Workload {
    name: "gups",
    summary: "updates random 64-bit words of a table: a load, then a store to the same word",
    origin: "HPC Challenge RandomAccess: its shift register (POLY 7), 128 sequences, and 4 updates a word",
    parameters: &[
        Parameter {
            name: "size",
            kind: Kind::PowerOfTwo { min: 16, max: MAX_ARRAY_BYTES },
            default: Preset::Value("1GiB"),
            meaning: "bytes of the table, which all threads share",
        },
        Parameter {
            name: "updates",
            kind: COUNT,
            default: Preset::Derived("4 for each word of the table as in HPCC, but 5M at most"),
            meaning: "updates of all threads together; each is two accesses",
        },
        Parameter {
            name: "accesses",
            kind: COUNT,
            default: Preset::Derived("two for each update"),
            meaning: "accesses of all threads together, instead of updates",
        },
        THREADS,
        Parameter {
            meaning: "whether Table[i] = i is stored first, which HPCC does before its clock starts (pages: for one word \
                      per page of 4 KiB); beyond the accesses counted here",
            ..INITIALISE
        },
        GAP,
        ALIGN,
        Parameter { meaning: "has no effect: the sequence is HPCC's", ..SEED },
    ],
    build,
};

fn build(values: &Values) -> Result<Plan, TraceError> {
    let words = values.number("size") / WORD;
    let accesses = match (values.optional("updates"), values.optional("accesses")) {
        (Some(_), Some(_)) => return Err(values.conflict("give updates or accesses, not both")),
        (updates, None) => 2 * updates.unwrap_or((4 * words).min(DEFAULT_UPDATES)),
        (None, Some(accesses)) => accesses,
    };
    let threads = values.threads();
    let updates = accesses.div_ceil(2);
    let mut layout = Layout::new(values);
    let base = layout.map(0, words * WORD)?;
    let site = |number| Site::new(number, WORD as u16, values.gap());
    let workers = (0..threads).map(|thread| {
        let initialise = initialise_step(values, WORD).map(|step| {
            let (begin, end) = share((words * WORD).div_ceil(step), thread, threads);
            Initialise::new(site(2), base + begin * step, step, end - begin)
        });
        // An odd number of accesses omits the store of the first thread's last update.
        let accesses = 2 * portion(updates, thread, threads) - u64::from(thread == 0) * (accesses % 2);
        let first = (0..thread).map(|before| portion(updates, before, threads)).sum::<u64>();
        let start = |index: usize| starts(first + updates / threads / STREAMS as u64 * index as u64);
        Worker {
            initialise: Vec::from_iter(initialise),
            stream: Gups { base, mask: words - 1, random: std::array::from_fn(start), load: site(0), store: site(1) },
            accesses,
        }
    });
    let workers = workers.collect();
    Ok(plan(layout, workers))
}

struct Gups {
    base: u64,
    mask: u64,
    random: [u64; STREAMS],
    load: Site,
    store: Site,
}

impl Stream for Gups {
    fn unit(&self) -> usize {
        2 * STREAMS
    }

    fn fill(&mut self, out: &mut [Access]) -> usize {
        let (base, mask, load, store) = (self.base, self.mask, self.load, self.store);
        let (rounds, _) = out.as_chunks_mut::<{ 2 * STREAMS }>();
        for round in rounds.iter_mut() {
            let (updates, _) = round.as_chunks_mut::<2>();
            for (random, update) in self.random.iter_mut().zip(updates) {
                *random = next(*random);
                let vaddr = base + (*random & mask) * WORD;
                *update = [load.load(vaddr), store.store(vaddr)];
            }
        }
        rounds.len() * 2 * STREAMS
    }
}

/// The next element of the sequence: `random` times x, modulo the polynomial.
#[inline(always)]
fn next(random: u64) -> u64 {
    (random << 1) ^ (if random >> 63 == 1 { POLY } else { 0 })
}

/// The `n`-th element of the sequence, where element 0 is 1 (HPCC's function of this name): x^n modulo the polynomial,
/// by squaring.
fn starts(n: u64) -> u64 {
    (0..64).rev().fold(1, |power, bit| {
        let square = multiply(power, power);
        if n >> bit & 1 == 1 { next(square) } else { square }
    })
}

/// Product of two polynomials over GF(2), modulo the polynomial.
fn multiply(a: u64, b: u64) -> u64 {
    (0..64).rev().fold(0, |sum, bit| next(sum) ^ (if b >> bit & 1 == 1 { a } else { 0 }))
}

#[cfg(test)]
mod tests {
    use super::super::program::tests::{arrays, replay};
    use super::*;
    use crate::AccessKind;

    #[test]
    fn starts_equals_stepping() {
        let mut random = 1;
        for n in 0..20_000 {
            assert_eq!(starts(n), random, "{n}");
            random = next(random);
        }
        assert_eq!(starts(63), 1 << 63);
        assert_eq!(starts(64), POLY);
        let far = 0x0123_4567_89ab_cdef;
        assert_eq!(starts(far + 1), next(starts(far)));
        assert_eq!(starts(far + 12_345), multiply(starts(far), starts(12_345)));
    }

    /// The period is HPCC's; it is the smallest one, because no prime factor of it can be omitted.
    #[test]
    fn the_period_is_hpcc_s() {
        const PERIOD: u64 = 1_317_624_576_693_539_401;
        assert_eq!(starts(PERIOD), 1);
        let (mut rest, mut factor) = (PERIOD, 2);
        while factor * factor <= rest {
            if rest % factor == 0 {
                assert_ne!(starts(PERIOD / factor), 1, "{factor}");
                rest /= factor;
            } else {
                factor += 1;
            }
        }
        assert!(rest == 1 || starts(PERIOD / rest) != 1, "{rest}");
    }

    #[test]
    fn updates_are_hpcc_s_in_its_order() {
        let (accesses, events) = replay("gups:size=64K", 0);
        let (base, len) = arrays(&events)[0];
        assert_eq!((accesses.len(), len), (2 * 4 * 8192, 65_536));
        // HPCC's loop, with its starting points computed step by step from 1.
        let mut randoms: Vec<u64> = (0..128).map(|j| (0..4 * 8192 / 128 * j).fold(1, |r, _| next(r))).collect();
        let mut pairs = accesses.chunks(2);
        for _ in 0..4 * 8192 / 128 {
            for random in &mut randoms {
                *random = next(*random);
                let [(_, load), (_, store)] = pairs.next().unwrap() else { panic!("an update has two accesses") };
                assert_eq!((load.vaddr, store.vaddr), (base + (*random & 8191) * 8, load.vaddr));
                assert_eq!((load.kind, store.kind, load.size_bytes), (AccessKind::Load, AccessKind::Store, 8));
                assert_ne!(load.pc, store.pc);
            }
        }
        assert_eq!(accesses[0].1.vaddr, base + 2 * 8);
    }

    #[test]
    fn limits_and_initialisation_add_up() {
        let (accesses, _) = replay("gups:size=64K,updates=1001,threads=3", 0);
        let made_by = |thread: u32| accesses.iter().filter(|(t, _)| *t == thread).count();
        assert_eq!([made_by(0), made_by(1), made_by(2)], [668, 668, 666]);
        assert_eq!(replay("gups:size=64K,accesses=777", 0).0.len(), 777);
        assert_eq!(replay("gups:size=64K,accesses=1,threads=2", 0).0.len(), 1);
        let (accesses, events) = replay("gups:size=64K,accesses=2,init=yes,threads=2", 0);
        assert_eq!(accesses.len(), 8192 + 2);
        let mut stored: Vec<_> = accesses.iter().map(|(_, a)| a.vaddr - arrays(&events)[0].0).collect();
        stored.sort_unstable();
        stored.dedup();
        assert_eq!(stored.len(), 8192);
        assert!(crate::workload::parse("gups:updates=1,accesses=2", 0).is_err());
    }

    #[test]
    fn a_store_a_page_touches_every_page_once() {
        for spec in ["gups:size=64KiB,updates=1", "random:size=64KiB,accesses=2", "gups:size=64KiB,updates=1,threads=2"]
        {
            let (accesses, _) = replay(&format!("{spec},init=pages"), 1);
            let mut pages: Vec<u64> = accesses.iter().map(|(_, a)| a.vaddr >> 12).collect();
            pages.sort_unstable();
            pages.dedup();
            assert_eq!((accesses.len(), pages.len()), (16 + 2, 16), "{spec}");
        }
    }
}
