//! A kernel thread that refills rings page by page.

use super::parameters::{Config, InitialFill, LatePass, SECOND_PS, Visit};

/// The number of pages in each core's ring.
pub(super) struct Rings {
    pub pages: Vec<u32>,
    pub entries: u32,
}

/// Statistics of a thread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    pub passes: u64,
    /// Passes that lasted longer than a period, or would have.
    pub late_passes: u64,
    pub refilled: u64,
    pub filled: u64,
    pub busy_ps: u64,
}

impl Work {
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            passes: self.passes + other.passes,
            late_passes: self.late_passes + other.late_passes,
            refilled: self.refilled + other.refilled,
            filled: self.filled + other.filled,
            busy_ps: self.busy_ps + other.busy_ps,
        }
    }
}

/// Activity of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// Sleeps until then.
    Sleep { until: u64 },
    /// Looks for the next page to refill.
    Look { now: u64 },
    /// Refills a page of a core; the page is ready then.
    Refill { core: usize, ready: u64 },
}

/// A thread and the cores that it handles.
pub(super) struct Thread {
    cores: Vec<usize>,
    doing: Doing,
    /// The current pass, or the last one.
    pass: Pass,
    /// Index in `cores` at which the last pass stopped.
    stopped: usize,
    pub work: Work,
}

/// A pass, or the initial fill.
struct Pass {
    initial: bool,
    begin: u64,
    /// A page takes [`SECOND_PS`] / `pages_per_second` picoseconds.
    pages_per_second: u64,
    /// Pages refilled so far, on all cores.
    done: u64,
    /// Indices in `cores` in the order of the visit.
    order: Vec<usize>,
    /// Index in `order`.
    at: usize,
    /// Pages refilled on the current core; at most one ring's worth.
    lap: u32,
}

impl Thread {
    /// The thread for `cores`, of which there is at least one.
    pub fn new(cores: Vec<usize>, config: &Config) -> Self {
        let initial = config.initial_fill == InitialFill::Running;
        let order = (0..cores.len()).collect();
        let pages_per_second = config.fill_pages_per_second;
        Self {
            cores,
            doing: if initial { Doing::Look { now: 0 } } else { Doing::Sleep { until: config.period_ps } },
            pass: Pass { initial, begin: 0, pages_per_second, done: 0, order, at: 0, lap: 0 },
            stopped: 0,
            work: Work::default(),
        }
    }

    /// True while it refills: a miss now is not due to waiting for the next period.
    pub fn is_busy(&self) -> bool {
        !matches!(self.doing, Doing::Sleep { .. })
    }

    /// True until the rings have been filled for the first time.
    pub fn is_initial(&self) -> bool {
        self.pass.initial && self.is_busy()
    }

    /// Advances to `now`, inclusive. All earlier faults of its cores must have been handled.
    pub fn advance(&mut self, now: u64, rings: &mut Rings, config: &Config) {
        loop {
            match self.doing {
                Doing::Sleep { until } if until <= now => self.begin(until, now, rings, config),
                Doing::Look { now: at } if at <= now => self.look(at, rings, config),
                Doing::Refill { core, ready } if ready <= now => {
                    rings.pages[core] += 1;
                    self.pass.done += 1;
                    self.pass.lap += 1;
                    self.doing = Doing::Look { now: ready };
                }
                _ => return,
            }
        }
    }

    fn begin(&mut self, due: u64, now: u64, rings: &Rings, config: &Config) {
        let mut begin = due;
        if self.cores.iter().all(|&core| rings.pages[core] == rings.entries) {
            // All rings are full, so the passes until the next fault have nothing to do: skip all but the last.
            let period = config.period_ps;
            let last = match config.late_pass {
                LatePass::Sleep => now - (now - begin) % period,
                LatePass::AtOnce | LatePass::NextPeriod | LatePass::Cut => (now - now % period).max(begin),
            };
            self.work.passes += (last - begin).div_ceil(period);
            begin = last;
        }
        let len = self.cores.len();
        let from = match config.visit {
            Visit::FirstCore | Visit::Emptiest => 0,
            Visit::WhereStopped => self.stopped,
            Visit::NextCore => (self.work.passes % len as u64) as usize,
        };
        let mut order = std::mem::take(&mut self.pass.order);
        order.clear();
        order.extend((0..len).map(|place| (from + place) % len));
        if config.visit == Visit::Emptiest {
            order.sort_by_key(|&place| rings.pages[self.cores[place]]);
        }
        let pages_per_second = config.refill_pages_per_second;
        self.pass = Pass { initial: false, begin, pages_per_second, done: 0, order, at: 0, lap: 0 };
        self.work.passes += 1;
        self.doing = Doing::Look { now: begin };
    }

    /// Finds the next page to refill, or ends the pass.
    fn look(&mut self, now: u64, rings: &Rings, config: &Config) {
        let since = match config.late_pass {
            LatePass::Sleep => self.pass.begin,
            LatePass::AtOnce | LatePass::NextPeriod | LatePass::Cut => {
                self.pass.begin - self.pass.begin % config.period_ps
            }
        };
        let due = since + config.period_ps;
        let cut = config.late_pass == LatePass::Cut && !self.pass.initial && now >= due;
        let pass = &mut self.pass;
        while !cut && pass.at < pass.order.len() {
            let core = self.cores[pass.order[pass.at]];
            if pass.lap < rings.entries && rings.pages[core] < rings.entries {
                let ready = pass.begin + elapsed_ps(pass.done + 1, pass.pages_per_second);
                self.doing = Doing::Refill { core, ready };
                return;
            }
            (pass.at, pass.lap) = (pass.at + 1, 0);
        }
        self.stopped = pass.order.get(pass.at).copied().unwrap_or(pass.order[0]);
        let pages = if pass.initial { &mut self.work.filled } else { &mut self.work.refilled };
        *pages += pass.done;
        self.work.busy_ps += now - pass.begin;
        self.work.late_passes += u64::from(!pass.initial && (cut || now > due));
        let until = match config.late_pass {
            LatePass::AtOnce | LatePass::Cut => due.max(now),
            LatePass::NextPeriod => due.max(now.next_multiple_of(config.period_ps)),
            LatePass::Sleep => now + config.period_ps,
        };
        self.doing = Doing::Sleep { until };
    }
}

/// Duration of `pages`, rounded down.
fn elapsed_ps(pages: u64, pages_per_second: u64) -> u64 {
    (u128::from(pages) * u128::from(SECOND_PS) / u128::from(pages_per_second)) as u64
}
