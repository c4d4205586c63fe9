//! A thread of the kernel that refills rings, page by page in time.

use super::parameters::{Config, InitialFill, LatePass, SECOND_PS, Visit};

/// The pages in the rings of all cores.
pub(super) struct Rings {
    pub pages: Vec<u32>,
    pub entries: u32,
}

/// What a thread has done.
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

/// What a thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// Sleeps until then.
    Sleep { until: u64 },
    /// Looks for the next page to refill.
    Look { now: u64 },
    /// Refills a page of a core, which is ready then.
    Refill { core: usize, ready: u64 },
}

/// A thread and the cores that it serves.
pub(super) struct Thread {
    cores: Vec<usize>,
    doing: Doing,
    /// The pass that is going on, or was last.
    pass: Pass,
    /// Place in `cores` at which the last pass stopped.
    stopped: usize,
    pub work: Work,
}

/// A pass, or the initial fill.
struct Pass {
    initial: bool,
    begin: u64,
    /// Picoseconds of a page are [`SECOND_PS`] by this.
    pages_per_second: u64,
    /// Pages done so far, of all cores.
    done: u64,
    /// Places in `cores` in the order of the visit.
    order: Vec<usize>,
    /// Place in `order`.
    at: usize,
    /// Pages done on the core that is visited. One lap of the ring is the most.
    lap: u32,
}

impl Thread {
    /// The thread that serves `cores`, of which there is one at least.
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

    /// True while it refills: what is missing now is not for want of a period's end.
    pub fn is_busy(&self) -> bool {
        !matches!(self.doing, Doing::Sleep { .. })
    }

    /// True until the rings have been filled for the first time.
    pub fn is_initial(&self) -> bool {
        self.pass.initial && self.is_busy()
    }

    /// Goes on until `now`, inclusive. No fault of its cores may come before that.
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
            // Nothing is to do until a fault comes: all passes until then find the rings full, but for the last one.
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

/// How long `pages` take, rounded down.
fn elapsed_ps(pages: u64, pages_per_second: u64) -> u64 {
    (u128::from(pages) * u128::from(SECOND_PS) / u128::from(pages_per_second)) as u64
}
