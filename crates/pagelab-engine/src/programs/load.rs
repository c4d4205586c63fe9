//! What runs beside the main sources: co-runners that begin anew until the run ends, and short-lived processes that arrive.
//!
//! A run lasts until the last main source and the last process that has arrived have ended; processes arrive until the main
//! sources have ended or their number is reached. An arrival runs on one CPU for life, the one of its stream's with the
//! fewest sources at that time. A source is opened when it starts and closed when it has been read; when it has ended, its
//! queues are gone and its place is taken by the next, so that what has ended costs nothing.
//!
//! Stats: `main.*`, `source.*`, `co_runner.*`, `arrivals.*`.

use std::collections::BTreeSet;

use pagelab_trace::Source;
use pagelab_trace::quantity::Bytes;

use crate::agenda::simulation::Simulation;
use crate::base::addr::Cycles;
use crate::base::error::EngineError;
use crate::base::rng::Rng;
use crate::config::Config;
use crate::cpu::clock::Class;
use crate::cpu::state::CpuState;
use crate::kernel::layer::SpaceId;
use crate::programs::account::Account;
use crate::programs::arrivals::{Pace, Times};
use crate::programs::input::{Home, Input, LaneState};

/// Opens a source once more, from its beginning.
pub type Open = Box<dyn FnMut() -> Result<Box<dyn Source>, EngineError> + Send>;

/// A source that begins anew whenever it ends.
pub struct CoRunner {
    pub open: Open,
    pub cpus: Vec<usize>,
    /// Of a memory cgroup of its own.
    pub memory_limit: Option<Bytes>,
}

/// Short-lived processes, each a source of its own.
pub struct ArrivalStream {
    pub open: Open,
    pub cpus: Vec<usize>,
    /// Of a memory cgroup that all its processes share.
    pub memory_limit: Option<Bytes>,
    pub pace: Pace,
}

/// What runs beside the main sources.
#[derive(Default)]
pub struct Beside {
    pub co_runners: Vec<CoRunner>,
    pub arrivals: Vec<ArrivalStream>,
}

impl Beside {
    /// CPUs in use, with repetitions.
    pub fn cpus(&self) -> impl Iterator<Item = usize> + '_ {
        let co_runners = self.co_runners.iter().flat_map(|of| &of.cpus);
        co_runners.chain(self.arrivals.iter().flat_map(|of| &of.cpus)).copied()
    }

    pub fn is_empty(&self) -> bool {
        self.co_runners.is_empty() && self.arrivals.is_empty()
    }
}

/// What a source is to the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Main,
    /// By number.
    CoRunner(usize),
    Arrival {
        at: Cycles,
    },
}

/// A stream under way, with CPUs as they are simulated.
struct Stream {
    open: Open,
    cpus: Vec<usize>,
    home: Home,
    times: Times,
    next: Option<Cycles>,
}

/// The sources of a run, by role.
#[derive(Default)]
pub struct Load {
    /// Main sources: the first inputs.
    pub mains: usize,
    mains_left: usize,
    /// When the last main source ended.
    pub main_end: Cycles,
    co_runners: Vec<Open>,
    /// Times that co-runners came to their end, and what was counted for them until then.
    pub co_runs: u64,
    pub co_runner_account: Account,
    streams: Vec<Stream>,
    /// Whether anything runs beside the main sources.
    pub beside: bool,
    /// Arrivals that have not ended.
    live: usize,
    /// From arrival to exit, of those that have.
    pub sojourns: Vec<Cycles>,
    pub arrival_account: Account,
    /// Inputs that have just ended.
    ended: Vec<usize>,
    /// Places of inputs that may be used again.
    vacant: Vec<usize>,
}

impl Load {
    /// `mains` inputs exist; `homes` are those of the streams, and `dense` numbers CPUs as they are simulated.
    pub(crate) fn new(
        config: &Config,
        mains: usize,
        beside: Beside,
        homes: Vec<Home>,
        dense: impl Fn(&[usize]) -> Vec<usize>,
    ) -> Self {
        let stream = |(number, (of, home)): (usize, (ArrivalStream, Home))| {
            let rng = Rng::new(config.engine.seed, &format!("arrivals {number}"));
            let mut times = Times::new(&of.pace, config.machine.frequency_mhz, rng);
            let next = times.next();
            Stream { open: of.open, cpus: dense(&of.cpus), home, times, next }
        };
        Self {
            mains,
            mains_left: mains,
            beside: !beside.is_empty(),
            co_runners: beside.co_runners.into_iter().map(|of| of.open).collect(),
            streams: beside.arrivals.into_iter().zip(homes).enumerate().map(stream).collect(),
            ..Self::default()
        }
    }

    /// The time and the stream of the next arrival.
    pub(crate) fn next_arrival(&self) -> Option<(Cycles, usize)> {
        if self.mains > 0 && self.mains_left == 0 {
            return None;
        }
        let times = self.streams.iter().enumerate().filter_map(|(stream, of)| Some((of.next?, stream)));
        times.min()
    }

    /// Whether processes arrive.
    pub fn has_arrivals(&self) -> bool {
        !self.streams.is_empty()
    }

    /// Whether sources begin anew, so that the run's end finds them at work.
    pub fn has_co_runners(&self) -> bool {
        !self.co_runners.is_empty()
    }

    /// Whether all that the run waits for has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.mains_left == 0 && self.live == 0 && self.next_arrival().is_none()
    }
}

impl Simulation {
    /// A process of a stream arrives.
    pub(crate) fn arrive(&mut self, at: Cycles, stream: usize) -> Result<(), EngineError> {
        let of = &mut self.load.streams[stream];
        of.next = of.times.next();
        let busy = |&cpu: &usize| self.cpus[cpu].lanes.iter().filter(|lane| lane.state != LaneState::Finished).count();
        let cpu = of.cpus.iter().copied().min_by_key(busy).expect("a stream has CPUs");
        let role = Role::Arrival { at };
        let input = Input::new((of.open)()?, role, of.home, vec![cpu], self.max_accesses, self.window);
        let index = match self.load.vacant.pop() {
            Some(index) => {
                self.inputs[index] = input;
                index
            }
            None => {
                self.inputs.push(input);
                self.inputs.len() - 1
            }
        };
        self.load.live += 1;
        self.cpus[cpu].add_lane(index);
        if self.cpus[cpu].lanes.len() == 2 {
            // Who had the CPU alone had no time slice.
            self.cpus[cpu].slice_end = self.cpus[cpu].clock.now() + self.slice;
        }
        self.rouse(cpu, index, at);
        Ok(())
    }

    /// Lets a CPU that has nothing to run go on at `time` at the earliest, with an input.
    fn rouse(&mut self, cpu: usize, input: usize, time: Cycles) {
        let of = &mut self.cpus[cpu];
        if matches!(of.state, CpuState::Waiting | CpuState::Finished) {
            of.state = CpuState::Ready;
            of.clock.wait_until(Class::Idle, time);
            self.discard_idle(cpu);
            self.cpus[cpu].owner = Some(input);
            self.woke = true;
            self.leave_idle(cpu);
        }
    }

    /// Notes that a lane has come to its end.
    pub(crate) fn lane_ended(&mut self, input: usize) {
        let mut lanes = self.inputs[input].cpus.iter().flat_map(|&cpu| &self.cpus[cpu].lanes);
        if lanes.all(|lane| lane.input != input || lane.state == LaneState::Finished) {
            self.load.ended.push(input);
        }
    }

    /// Does what follows the end of inputs; true if there was one.
    pub(crate) fn end_inputs(&mut self, cpu: usize) -> Result<bool, EngineError> {
        let any = !self.load.ended.is_empty();
        while let Some(input) = self.load.ended.pop() {
            self.end_input(cpu, input)?;
        }
        if any && self.load.is_over() {
            self.woke = true;
        }
        Ok(any)
    }

    /// The last lane of an input has ended, on `cpu`.
    fn end_input(&mut self, cpu: usize, input: usize) -> Result<(), EngineError> {
        self.settle_account(cpu);
        for other in 0..self.cpus.len() {
            if self.cpus[other].owner == Some(input) {
                self.settle_account(other);
            }
        }
        let role = self.inputs[input].role;
        if role != Role::Main {
            // A trace may end before its processes do. Nobody else has their spaces.
            for space in self.inputs[input].spaces().collect::<BTreeSet<_>>() {
                self.exit(cpu, space)?;
            }
            self.inputs[input].forget_processes();
            for of in self.cpus.iter_mut().filter(|of| of.thread.is_some_and(|(running, _)| running == input)) {
                of.thread = None;
            }
            self.settle_account_for(cpu, input);
        }
        let now = self.cpus[cpu].clock.now();
        let account = self.inputs[input].account;
        match role {
            Role::Main => {
                self.load.mains_left -= 1;
                self.load.main_end = self.load.main_end.max(now);
                self.drop_lanes(input);
            }
            Role::Arrival { at } => {
                self.load.live -= 1;
                self.load.sojourns.push(now - at);
                self.load.arrival_account.add(&account);
                self.load.vacant.push(input);
                self.drop_lanes(input);
            }
            Role::CoRunner(number) => {
                self.load.co_runs += 1;
                self.load.co_runner_account.add(&account);
                self.begin_anew(input, number, now)?;
            }
        }
        Ok(())
    }

    fn begin_anew(&mut self, input: usize, number: usize, now: Cycles) -> Result<(), EngineError> {
        let old = &self.inputs[input];
        if old.dealt == 0 {
            let what = format!("`{}` makes no access, so it cannot run again and again", old.info.name);
            return Err(EngineError::config("with", what));
        }
        let (home, cpus) = (old.home, old.cpus.clone());
        let source = (self.load.co_runners[number])()?;
        let role = Role::CoRunner(number);
        self.inputs[input] = Input::new(source, role, home, cpus.clone(), self.max_accesses, self.window);
        for cpu in cpus {
            self.cpus[cpu].lane_of(input).state = LaneState::Ready;
            self.rouse(cpu, input, now);
        }
        Ok(())
    }

    /// Takes the queues of an input away.
    fn drop_lanes(&mut self, input: usize) {
        for of in &mut self.cpus {
            if let Some(at) = of.lanes.iter().position(|lane| lane.input == input) {
                of.lanes.remove(at);
                of.lane -= usize::from(at < of.lane);
                if of.lane == of.lanes.len() {
                    of.lane = 0;
                }
            }
            of.owner.take_if(|owner| *owner == input);
        }
    }

    /// A process ends: its mappings and its space go.
    pub(crate) fn exit(&mut self, cpu: usize, space: SpaceId) -> Result<(), EngineError> {
        self.os.layers.iter_mut().for_each(|layer| layer.acting_cpu = cpu as u32);
        let gone = self.os.drop_mappings(space)?;
        self.invalidate(cpu, space, &gone, true);
        self.forget_space(space);
        self.os.retire(space);
        Ok(())
    }
}
