//! What runs beside the main sources: co-runners that begin anew until the run ends, and short-lived processes that
//! arrive.
//!
//! A run lasts until the last main source and the last process that has arrived have ended; processes arrive until the
//! main sources have ended or their number is reached. An arrival runs on one CPU for life, the one of its stream's
//! with the fewest sources at that time. A source is opened when it starts and closed when it has been read; when it
//! has ended, its queues are gone and its place is taken by the next, so that what has ended costs nothing.
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

/// Opens a source once more, from its beginning.
pub type Open = Arc<dyn Fn() -> Result<Box<dyn Source>, EngineError> + Send + Sync>;

/// A source that begins anew whenever it ends.
pub struct CoRunner {
    /// Opens it for its next round.
    pub open: Open,
    /// CPUs (hardware threads, numbered core by core) that its threads are spread over.
    pub cpus: Vec<usize>,
    /// Of a memory cgroup of its own.
    pub memory_limit: Option<Bytes>,
}

/// Short-lived processes, each a source of its own.
pub struct ArrivalStream {
    /// Opens it for the next process.
    pub open: Open,
    /// CPUs (hardware threads, numbered core by core); each process runs on one of them.
    pub cpus: Vec<usize>,
    /// Of a memory cgroup that all its processes share.
    pub memory_limit: Option<Bytes>,
    /// How often processes arrive, and how many.
    pub pace: ArrivalRate,
}

/// What runs beside the main sources.
#[derive(Default)]
pub struct BackgroundLoad {
    /// Sources that begin anew until the run ends.
    pub co_runners: Vec<CoRunner>,
    /// Streams of short-lived processes.
    pub arrivals: Vec<ArrivalStream>,
}

impl BackgroundLoad {
    /// CPUs in use, with repetitions.
    pub fn cpus(&self) -> impl Iterator<Item = usize> + '_ {
        let co_runners = self.co_runners.iter().flat_map(|of| &of.cpus);
        co_runners.chain(self.arrivals.iter().flat_map(|of| &of.cpus)).copied()
    }

    /// Whether the main sources run alone.
    pub fn is_empty(&self) -> bool {
        self.co_runners.is_empty() && self.arrivals.is_empty()
    }
}

/// A stream under way, with CPUs as they are simulated.
#[derive(Clone)]
pub(crate) struct Stream {
    pub(crate) open: Open,
    pub(crate) cpus: Vec<CpuId>,
    pub(crate) home: ProcessTarget,
    pub(crate) times: Times,
    pub(crate) next: Option<Cycles>,
}

/// The sources of a run, by role.
#[derive(Clone, Default)]
pub struct Load {
    /// Main sources: the first inputs.
    pub mains: usize,
    pub(crate) mains_left: usize,
    /// When the last main source ended.
    pub main_end: Cycles,
    pub(crate) co_runners: Vec<Open>,
    /// Times that co-runners came to their end.
    pub co_runs: u64,
    /// By co-runner, what was counted in the rounds that have ended.
    pub co_runner_accounts: Vec<Account>,
    pub(crate) streams: Vec<Stream>,
    /// Whether anything runs beside the main sources.
    pub beside: bool,
    /// Arrivals that have not ended.
    pub(crate) live: usize,
    /// From arrival to exit, of those that have.
    pub sojourns: Vec<Cycles>,
    /// What was counted for all arrivals that have ended.
    pub arrival_account: Account,
    /// Inputs that have just ended.
    pub(crate) ended: Vec<usize>,
    /// Places of inputs that may be used again.
    pub(crate) vacant: Vec<usize>,
}

impl Load {
    /// `mains` inputs exist; `homes` are those of the streams, and `dense` numbers CPUs as they are simulated.
    pub(crate) fn new(
        config: &Config,
        mains: usize,
        beside: BackgroundLoad,
        homes: Vec<ProcessTarget>,
        dense: impl Fn(&[usize]) -> Vec<CpuId>,
    ) -> Self {
        let stream = |(number, (of, home)): (usize, (ArrivalStream, ProcessTarget))| {
            let rng = Rng::new(config.engine.seed, &format!("arrivals {number}"));
            let mut times = Times::new(&of.pace, config.machine.frequency_mhz, rng);
            let next = times.next();
            Stream { open: of.open, cpus: dense(&of.cpus), home, times, next }
        };
        Self {
            mains,
            mains_left: mains,
            beside: !beside.is_empty(),
            co_runner_accounts: vec![Account::default(); beside.co_runners.len()],
            co_runners: beside.co_runners.into_iter().map(|of| of.open).collect(),
            streams: beside.arrivals.into_iter().zip(homes).enumerate().map(stream).collect(),
            ..Self::default()
        }
    }

    /// Whether a process is still to arrive: none does once the main sources have ended.
    fn is_open(&self) -> bool {
        (self.mains == 0 || self.mains_left > 0) && self.arrivals().next().is_some()
    }

    /// The time of the next arrival of each stream, with its number.
    pub(crate) fn arrivals(&self) -> impl Iterator<Item = (Cycles, usize)> + '_ {
        self.streams.iter().enumerate().filter_map(|(stream, of)| Some((of.next?, stream)))
    }

    /// A process of a stream arrives: when the next one does, and the CPUs of the stream.
    pub(crate) fn next_arrival(&mut self, stream: usize) -> (Option<Cycles>, &[CpuId]) {
        let of = &mut self.streams[stream];
        of.next = of.times.next();
        (of.next, &of.cpus)
    }

    /// A main source has ended; true if it was the last one.
    pub(crate) fn end_main(&mut self, now: Cycles) -> bool {
        self.mains_left -= 1;
        self.main_end = self.main_end.max(now);
        self.mains_left == 0
    }

    /// A process that arrived so long ago has ended. Its place is free.
    pub(crate) fn end_arrival(&mut self, input: usize, sojourn: Cycles, account: &Account) {
        self.live -= 1;
        self.sojourns.push(sojourn);
        self.arrival_account.add(account);
        self.vacant.push(input);
    }

    /// A co-runner has come to its end once more.
    pub(crate) fn end_round(&mut self, number: usize, account: &Account) {
        self.co_runs += 1;
        self.co_runner_accounts[number].add(account);
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
        self.mains_left == 0 && self.live == 0 && !self.is_open()
    }
}
