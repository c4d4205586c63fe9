//! Background load: co-runners, which restart until the run ends, and short-lived processes, which arrive.
//!
//! A run lasts until the last main source and the last arrived process have ended. Processes arrive until the main
//! sources have ended or their maximum number is reached. An arrival runs on one CPU all its life: of its stream's
//! CPUs, the one with the fewest sources when it arrives. A source is opened when it starts and closed when it has been
//! read. When it has ended, its queues are removed and its index is reused, so ended sources cost nothing.
//!
//! Stats: `main.*`, `source.*`, `co_runner.*`, `arrivals.*`.

use pagelab_base::ids::CpuId;
use std::sync::Arc;

use pagelab_trace::Source;
use pagelab_trace::quantity::Bytes;

use crate::config::Config;
use crate::programs::account::Account;
use crate::programs::arrivals::{ArrivalRate, Times};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::rng::Rng;
use pagelab_kernel::home::ProcessTarget;

/// Opens a source again, from its start.
pub type Open = Arc<dyn Fn() -> Result<Box<dyn Source>, EngineError> + Send + Sync>;

/// A source that restarts whenever it ends.
pub struct CoRunner {
    /// Opens it for its next round.
    pub open: Open,
    /// CPUs (hardware threads, numbered core by core) that its threads are distributed over.
    pub cpus: Vec<usize>,
    /// Limit of a memory cgroup of its own.
    pub memory_limit: Option<Bytes>,
}

/// A stream of short-lived processes, each a source of its own.
pub struct ArrivalStream {
    /// Opens the source of the next process.
    pub open: Open,
    /// CPUs (hardware threads, numbered core by core); each process runs on one of them.
    pub cpus: Vec<usize>,
    /// Limit of a memory cgroup that all its processes share.
    pub memory_limit: Option<Bytes>,
    /// Rate and number of arrivals.
    pub pace: ArrivalRate,
}

/// Background load of the main sources.
#[derive(Default)]
pub struct BackgroundLoad {
    /// Sources that restart until the run ends.
    pub co_runners: Vec<CoRunner>,
    /// Streams of short-lived processes.
    pub arrivals: Vec<ArrivalStream>,
}

impl BackgroundLoad {
    /// CPUs in use, possibly repeated.
    pub fn cpus(&self) -> impl Iterator<Item = usize> + '_ {
        let co_runners = self.co_runners.iter().flat_map(|co_runner| &co_runner.cpus);
        co_runners.chain(self.arrivals.iter().flat_map(|stream| &stream.cpus)).copied()
    }

    /// Whether there is no background load.
    pub fn is_empty(&self) -> bool {
        self.co_runners.is_empty() && self.arrivals.is_empty()
    }
}

/// A stream during a run, with its CPUs as simulated.
#[derive(Clone)]
pub struct StreamState {
    /// Opens its source.
    pub open: Open,
    /// The CPUs that its processes may run on.
    pub cpus: Vec<CpuId>,
    /// Where its processes run.
    pub home: ProcessTarget,
    /// When processes arrive that are still to come, after `next`.
    pub times: Times,
    /// When the next one arrives; none if no other does.
    pub next: Option<Cycles>,
}

/// The sources of a run, by role.
#[derive(Clone, Default)]
pub struct Load {
    /// Main sources: the first inputs.
    pub mains: usize,
    /// Main sources that have not ended.
    pub mains_left: usize,
    /// When the last main source ended.
    pub main_end: Cycles,
    /// By co-runner: opens its source.
    pub co_runners: Vec<Open>,
    /// Number of completed rounds of co-runners.
    pub co_runs: u64,
    /// By co-runner: the account of its completed rounds.
    pub co_runner_accounts: Vec<Account>,
    /// The streams of arrivals.
    pub streams: Vec<StreamState>,
    /// Whether there is background load.
    pub has_background: bool,
    /// Number of arrivals that have not ended.
    pub live: usize,
    /// Cycles from arrival to exit, for arrivals that have ended.
    pub sojourns: Vec<Cycles>,
    /// Sum of the accounts of arrivals that have ended.
    pub arrival_account: Account,
    /// Inputs that have just ended.
    pub ended: Vec<usize>,
    /// Indices of inputs that can be reused.
    pub vacant: Vec<usize>,
}

impl Load {
    /// `mains` inputs exist; `homes` are the targets of the streams' processes, and `dense` converts CPU numbers to
    /// those simulated.
    pub fn new(
        config: &Config,
        mains: usize,
        background: BackgroundLoad,
        homes: Vec<ProcessTarget>,
        dense: impl Fn(&[usize]) -> Vec<CpuId>,
    ) -> Self {
        let stream = |(number, (arrivals, home)): (usize, (ArrivalStream, ProcessTarget))| {
            let rng = Rng::new(config.engine.seed, &format!("arrivals {number}"));
            let mut times = Times::new(&arrivals.pace, config.machine.frequency_mhz, rng);
            let next = times.next();
            StreamState { open: arrivals.open, cpus: dense(&arrivals.cpus), home, times, next }
        };
        Self {
            mains,
            mains_left: mains,
            has_background: !background.is_empty(),
            co_runner_accounts: vec![Account::default(); background.co_runners.len()],
            co_runners: background.co_runners.into_iter().map(|co_runner| co_runner.open).collect(),
            streams: background.arrivals.into_iter().zip(homes).enumerate().map(stream).collect(),
            ..Self::default()
        }
    }

    /// Whether more processes will arrive: none do once the main sources have ended.
    fn is_open(&self) -> bool {
        (self.mains == 0 || self.mains_left > 0) && self.arrivals().next().is_some()
    }

    /// The next arrival of each stream: its time and the stream's number.
    pub fn arrivals(&self) -> impl Iterator<Item = (Cycles, usize)> + '_ {
        self.streams.iter().enumerate().filter_map(|(stream, state)| Some((state.next?, stream)))
    }

    /// Advances a stream to its next arrival. Returns the time of that, and the CPUs of the stream.
    pub fn next_arrival(&mut self, stream: usize) -> (Option<Cycles>, &[CpuId]) {
        let state = &mut self.streams[stream];
        state.next = state.times.next();
        (state.next, &state.cpus)
    }

    /// Counts the end of a main source; true if it was the last one.
    pub fn end_main(&mut self, now: Cycles) -> bool {
        self.mains_left -= 1;
        self.main_end = self.main_end.max(now);
        self.mains_left == 0
    }

    /// Counts the end of an arrival that lived for `sojourn` cycles. Its index can be reused.
    pub fn end_arrival(&mut self, input: usize, sojourn: Cycles, account: &Account) {
        self.live -= 1;
        self.sojourns.push(sojourn);
        self.arrival_account.add(account);
        self.vacant.push(input);
    }

    /// Counts a completed round of a co-runner.
    pub fn end_round(&mut self, number: usize, account: &Account) {
        self.co_runs += 1;
        self.co_runner_accounts[number].add(account);
    }

    /// Whether there are streams of arrivals.
    pub fn has_arrivals(&self) -> bool {
        !self.streams.is_empty()
    }

    /// Whether there are co-runners, which are still running at the end of the run.
    pub fn has_co_runners(&self) -> bool {
        !self.co_runners.is_empty()
    }

    /// Whether everything that the run waits for has ended.
    pub fn is_over(&self) -> bool {
        self.mains_left == 0 && self.live == 0 && !self.is_open()
    }
}
