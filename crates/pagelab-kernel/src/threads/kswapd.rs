//! kswapd: reclaims memory before faults must.
//!
//! Models: when a fault finds less free memory than the low watermark, scans of the LRU lists follow until the high
//! watermark is reached or no page is left that could be reclaimed. Before it gives up, it takes memory of late
//! segments, if it may ([`crate::reclaim::Dissolution`]); it may also begin with that.
//! Source: Linux mm/vmscan.c (`balance_pgdat`, `kswapd_shrink_node`), mm/page_alloc.c (`wake_all_kswapds`).
//! Parameters: none (`kernel.threads.kswapd`).
//! Deviations: one thread per layer, not per node. It waits for its writes.

use super::{Need, Thread};
use crate::dissolve::Dissolve;
use crate::effects::Effects;
use crate::fault::io::{plan_completion, plan_submit};
use crate::layer::Layer;
use crate::locks::TaskId;
use crate::os::Os;
use crate::reclaim::{Dissolution, Dissolved, Pressure, ReclaimScan};
use crate::scanning::{ScanProgress, Scanning};
use pagelab_base::ids::LayerId;
use pagelab_base::step::{Next, Step};
use parameters::Parameters;

/// Its configuration. This module is below the kernels and imports nothing from them.
pub mod parameters {
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use crate::threads::config::ThreadParameters;

    /// No parameters.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    pub struct Parameters {}

    impl ThreadParameters for Parameters {
        fn samples() -> Vec<Self> {
            vec![Self {}]
        }
    }
}

/// Number of consecutive scans that may free nothing before the thread gives up.
const MAX_FRUITLESS: u32 = 1 << 12;

#[derive(Clone, Debug, PartialEq, Eq)]
enum KswapdState {
    Scan(Scanning),
    /// Take memory of a late segment.
    Dissolve(Dissolution),
    /// Let the host read pages back that are to be written.
    ReadBack(ReclaimScan),
    /// Send the requests to the devices.
    Submit(ReclaimScan),
    WriteBack(ReclaimScan),
    /// Handle this many answers of the devices.
    Completion(u32),
}

impl KswapdState {
    fn scan() -> Self {
        Self::Scan(Scanning::new(Pressure::Memory))
    }
}

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Kswapd {
    layer: LayerId,
    state: KswapdState,
    fruitless: u32,
    /// Which need of late segments' memory it has; `None` if it has taken a part, and scans follow.
    need: Option<Dissolve>,
    /// Whether there was no memory to dissolve a segment.
    keeps: bool,
}

impl Kswapd {
    /// The thread of a layer, asleep.
    pub fn new(layer: LayerId) -> Self {
        Self { layer, state: KswapdState::scan(), fruitless: 0, need: Some(Dissolve::LowWatermark), keeps: false }
    }
}

impl Thread for Kswapd {
    type Parameters = Parameters;

    const IN_HOSTS: bool = true;
    const WITH_PROGRAMS: bool = true;

    fn new_in_layer(id: LayerId, layer: &Layer, Parameters {}: &Parameters) -> Option<Self> {
        layer.memory.reclaim.is_some().then(|| Self::new(id))
    }

    fn layer(&self) -> LayerId {
        self.layer
    }

    fn wakes_for(&self, need: Need) -> bool {
        need == Need::Memory
    }

    fn begin(&mut self) {
        *self = Self::new(self.layer);
    }

    fn plan(&self, os: &Os, step: &mut Step) {
        match &self.state {
            KswapdState::Scan(scan) => scan.plan(os, self.layer, step),
            KswapdState::Dissolve(work) => work.plan(&os.layers[self.layer], step),
            KswapdState::Submit(scan) => {
                if let Some(costs) = &os.costs.block_io {
                    plan_submit(costs, scan.io.len(), step);
                }
            }
            KswapdState::ReadBack(scan) | KswapdState::WriteBack(scan) => scan.plan_io(step),
            &KswapdState::Completion(requests) => {
                if let Some(costs) = &os.costs.block_io {
                    plan_completion(costs, requests, step);
                }
            }
        }
    }

    fn commit(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId) -> Next {
        let costly = os.costs.block_io.is_some();
        self.state = match std::mem::replace(&mut self.state, KswapdState::scan()) {
            KswapdState::ReadBack(mut scan) => {
                scan.absent.clear();
                Self::begin_writes(scan, costly)
            }
            KswapdState::Submit(scan) => KswapdState::WriteBack(scan),
            KswapdState::WriteBack(scan) => {
                os.written_back(self.layer, &scan, task);
                if costly { KswapdState::Completion(scan.io.len()) } else { KswapdState::scan() }
            }
            KswapdState::Completion(_) => KswapdState::scan(),
            KswapdState::Dissolve(work) => self.dissolve(os, effects, work, task),
            KswapdState::Scan(scan) => return self.scan(os, effects, scan, task),
        };
        Next::Continue
    }
}

impl Kswapd {
    /// The state in which the requests of a scan are made, with or without costs of their own.
    fn begin_writes(scan: ReclaimScan, costly: bool) -> KswapdState {
        if costly { KswapdState::Submit(scan) } else { KswapdState::WriteBack(scan) }
    }

    /// Goes on with a part of a late segment. Scans follow.
    fn dissolve(&mut self, os: &mut Os, effects: &mut Effects, mut work: Dissolution, task: TaskId) -> KswapdState {
        match work.commit(&mut os.layers[self.layer], effects, self.layer, task.cpu) {
            Dissolved::Continues => return KswapdState::Dissolve(work),
            Dissolved::Ends => self.fruitless = 0,
            Dissolved::Keeps => self.keeps = true,
        }
        KswapdState::scan()
    }

    /// Goes on with a scan, or ends before it if there is enough memory or nothing to reclaim.
    fn scan(&mut self, os: &mut Os, effects: &mut Effects, mut scan: Scanning, task: TaskId) -> Next {
        if scan.may_end()
            && let Some(next) = self.before_scan(os)
        {
            return next;
        }
        let progress = scan.commit(os, effects, self.layer, task);
        let scan = match progress {
            ScanProgress::Ends(scan) => *scan,
            ScanProgress::Continues | ScanProgress::Waits(_) => {
                self.state = KswapdState::Scan(scan);
                return if let ScanProgress::Waits(key) = progress { Next::Block(key) } else { Next::Continue };
            }
        };
        self.fruitless = if scan.freed == 0 { self.fruitless + 1 } else { 0 };
        if !scan.io.is_empty() {
            self.state = if scan.absent.is_empty() {
                Self::begin_writes(scan, os.costs.block_io.is_some())
            } else {
                KswapdState::ReadBack(scan)
            };
        }
        Next::Continue
    }

    /// What to do instead of a scan; `None` if it scans.
    fn before_scan(&mut self, os: &mut Os) -> Option<Next> {
        let layer = &mut os.layers[self.layer];
        let free = layer.memory.free_frames();
        let Some(reclaim) = layer.memory.reclaim.as_ref().filter(|reclaim| free < reclaim.marks.high) else {
            return Some(Next::Done);
        };
        let exhausted = !reclaim.has_pages(Pressure::Memory) || self.fruitless == MAX_FRUITLESS;
        let need = if exhausted { Some(Dissolve::LastResort) } else { self.need };
        if let Some(work) = need.filter(|_| !self.keeps).and_then(|need| Dissolution::next(layer, need)) {
            if !work.frees() {
                self.need = None;
            }
            self.state = KswapdState::Dissolve(work);
            return Some(Next::Continue);
        }
        exhausted.then_some(Next::Done)
    }
}
