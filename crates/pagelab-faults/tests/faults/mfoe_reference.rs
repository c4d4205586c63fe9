//! Compares the event model with a naive one: rings of slots with valid bits, and all events of threads and cores in
//! one order.

use std::collections::VecDeque;

use pagelab_faults::{
    Timeline,
    mfoe::{Config, InitialFill, LatePass, Visit, run_with},
};
use pagelab_trace::cases;
use proptest::{collection::vec, prelude::*};

/// A ring as in section 4.2 of the paper: the kernel fills at the head, the hardware takes from the tail.
struct Ring {
    valid: Vec<bool>,
    head: usize,
    tail: usize,
}

impl Ring {
    fn take(&mut self) -> bool {
        let hit = std::mem::take(&mut self.valid[self.tail]);
        self.tail = (self.tail + usize::from(hit)) % self.valid.len();
        hit
    }

    fn fill(&mut self) {
        assert!(!std::mem::replace(&mut self.valid[self.head], true));
        self.head = (self.head + 1) % self.valid.len();
    }

    fn used(&self) -> usize {
        self.valid.iter().filter(|valid| !**valid).count()
    }
}

#[derive(Clone, Copy)]
enum Next {
    Begin,
    Page { core: usize },
}

struct Kthread {
    cores: Vec<usize>,
    at: u64,
    next: Next,
    initial: bool,
    passes: usize,
    begin: u64,
    pages: u64,
    lap: usize,
    to_visit: VecDeque<usize>,
    resume: usize,
}

impl Kthread {
    fn order(&self, config: &Config, rings: &[Ring]) -> VecDeque<usize> {
        let mut order: VecDeque<_> = self.cores.iter().copied().collect();
        match config.visit {
            Visit::FirstCore => {}
            Visit::WhereStopped => {
                while order[0] != self.resume {
                    order.rotate_left(1);
                }
            }
            Visit::NextCore => order.rotate_left(self.passes % self.cores.len()),
            Visit::Emptiest => {
                let mut sorted: Vec<_> = order.into();
                sorted.sort_by_key(|&core| (usize::MAX - rings[core].used(), core));
                order = sorted.into();
            }
        }
        order
    }

    fn act(&mut self, config: &Config, rings: &mut [Ring]) {
        match self.next {
            Next::Begin => {
                self.to_visit = self.order(config, rings);
                self.resume = self.to_visit[0];
                self.passes += usize::from(!self.initial);
                (self.begin, self.pages, self.lap) = (self.at, 0, 0);
            }
            Next::Page { core } => {
                rings[core].fill();
                (self.pages, self.lap) = (self.pages + 1, self.lap + 1);
            }
        }
        self.plan(config, rings);
    }

    fn plan(&mut self, config: &Config, rings: &[Ring]) {
        let (now, period) = (self.at, config.period_ps);
        let period_end = (self.begin / period + 1) * period;
        let cut = config.late_pass == LatePass::Cut && !self.initial && now >= period_end;
        while let Some(&core) = self.to_visit.front() {
            if cut {
                self.resume = core;
                break;
            }
            let ring = &rings[core];
            if !ring.valid[ring.head] && self.lap < ring.valid.len() {
                let rate = if self.initial { config.fill_pages_per_second } else { config.refill_pages_per_second };
                self.at = self.begin
                    + u64::try_from((u128::from(self.pages) + 1) * 10_u128.pow(12) / u128::from(rate)).unwrap();
                self.next = Next::Page { core };
                return;
            }
            self.to_visit.pop_front();
            self.lap = 0;
        }
        self.initial = false;
        self.next = Next::Begin;
        self.at = match config.late_pass {
            LatePass::AtOnce | LatePass::Cut => now.max(period_end),
            LatePass::NextPeriod => period_end.max(now.div_ceil(period) * period),
            LatePass::Sleep => now + period,
        };
    }
}

fn naive(config: &Config, timeline: &Timeline) -> Vec<(usize, u64, bool)> {
    let cores = timeline.cores.len();
    let done = config.initial_fill == InitialFill::Done;
    let slots = config.ring_entries as usize;
    let mut rings: Vec<_> = (0..cores).map(|_| Ring { valid: vec![done; slots], head: 0, tail: 0 }).collect();
    let count = (config.background_threads as usize).min(cores);
    let mut threads: Vec<_> = (0..count)
        .map(|number| Kthread {
            cores: (0..cores).filter(|core| core % count == number).collect(),
            at: if done { config.period_ps } else { 0 },
            next: Next::Begin,
            initial: !done,
            passes: 0,
            begin: 0,
            pages: 0,
            lap: 0,
            to_visit: VecDeque::new(),
            resume: number,
        })
        .collect();
    // The new trace, fault by fault: when one is served, all later faults of the core are moved.
    let mut times: Vec<VecDeque<(i128, i128)>> = timeline
        .cores
        .iter()
        .map(|core| core.iter().map(|f| (i128::from(f.time_ns) * 1000, i128::from(f.latency_ns) * 1000)).collect())
        .collect();
    let mut seen = Vec::new();
    loop {
        let fault = (0..cores).filter_map(|core| Some((times[core].front()?.0, core))).min();
        let Some((now, core)) = fault else { return seen };
        let thread = threads.iter_mut().min_by_key(|thread| thread.at).expect("one at least");
        if i128::from(thread.at) <= now {
            thread.act(config, &mut rings);
            continue;
        }
        let hit = rings[core].take();
        let (_, latency) = times[core].pop_front().expect("just seen");
        let moved = if hit { i128::from(config.hit_ps) - latency } else { i128::from(config.miss_penalty_ps) };
        times[core].iter_mut().for_each(|(time, _)| *time += moved);
        seen.push((core, u64::try_from(now).unwrap(), hit));
    }
}

fn configs() -> impl Strategy<Value = Config> {
    let visits =
        prop_oneof![Just(Visit::FirstCore), Just(Visit::WhereStopped), Just(Visit::NextCore), Just(Visit::Emptiest)];
    let late =
        prop_oneof![Just(LatePass::AtOnce), Just(LatePass::NextPeriod), Just(LatePass::Sleep), Just(LatePass::Cut)];
    let fill = prop_oneof![Just(InitialFill::Running), Just(InitialFill::Done)];
    let numbers = (1_u32..20, 1_u64..40_000, 0_u64..200, 0_u64..100, 1_u64..4000, 1_u64..4000, 1_u32..4);
    (numbers, visits, late, fill).prop_map(|(numbers, visit, late_pass, initial_fill)| {
        let (ring_entries, period_ns, hit_ns, penalty_ns, refill, first, background_threads) = numbers;
        Config {
            ring_entries,
            period_ps: period_ns * 1000 + 7,
            hit_ps: hit_ns * 1000 + 13,
            miss_penalty_ps: penalty_ns * 1000 + 1,
            refill_pages_per_second: refill * 9973,
            fill_pages_per_second: first * 9973,
            background_threads,
            visit,
            late_pass,
            initial_fill,
        }
    })
}

/// Faults at times close to those of the threads' events.
fn faults() -> impl Strategy<Value = Vec<(u64, u16, u32)>> {
    let step = prop_oneof![8 => 0_u64..3000, 1 => 0_u64..200_000];
    vec((step, 0_u16..6, 1_u32..2000), 1..300).prop_map(|steps| {
        let mut now = 0;
        let fault = |(step, core, latency)| {
            now += step;
            (now, core, latency)
        };
        steps.into_iter().map(fault).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(2000), ..ProptestConfig::default() })]

    #[test]
    fn the_model_is_the_naive_one(config in configs(), faults in faults()) {
        let timeline = crate::support::timeline(1_000_000_000, faults);
        let mut seen = Vec::new();
        let outcome = run_with(&config, &timeline, &mut |core, now, hit| seen.push((core, now, hit)));
        let naive = naive(&config, &timeline);
        prop_assert_eq!(&seen, &naive);
        let hits = naive.iter().filter(|(_, _, hit)| *hit).count() as u64;
        prop_assert_eq!((outcome.faults, outcome.hits), (naive.len() as u64, hits));
        let misses = outcome.misses;
        prop_assert_eq!(misses.initial + misses.refilling + misses.waiting, outcome.faults - outcome.hits);
        prop_assert!(outcome.hits <= outcome.refilled_pages + outcome.filled_pages + u64::from(config.ring_entries) * 6 * 2);
    }

    /// Delaying all times by a whole number of periods changes nothing once the rings are full.
    #[test]
    fn later_by_whole_periods_is_the_same(config in configs(), faults in faults(), periods in 1_u64..50) {
        let config = Config { initial_fill: InitialFill::Done, visit: Visit::FirstCore, period_ps: config.period_ps / 1000 * 1000 + 1000, ..config };
        let delay_ns = config.period_ps / 1000 * periods;
        let seen = |delay_ns: u64| {
            let later = faults.iter().map(|&(time, core, latency)| (time + delay_ns, core, latency));
            let mut seen = Vec::new();
            run_with(&config, &crate::support::timeline(10_000_000_000, later), &mut |core, now, hit| {
                seen.push((core, now - delay_ns * 1000, hit));
            });
            seen
        };
        prop_assert_eq!(seen(0), seen(delay_ns));
    }
}
