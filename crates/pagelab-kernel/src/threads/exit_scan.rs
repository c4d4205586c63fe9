//! Deleting what ended processes left in page tables that are cleared lazily.
//!
//! Models: a scan over all of a layer's table, piece by piece. It is begun by the first CPU that has nothing else on
//! its stack once enough processes have ended, and is for all of them. What a piece is, what is read and what is
//! written, is the design's ([`Shared::plan_scan`](pagelab_tables::page_table::Shared::plan_scan)).
//! Source: Yaniv and Tsafrir, "Hash, Don't Cache (the Page Table)", SIGMETRICS 2016, 5.4: "a linear scan of the hash
//! table", "carried out lazily".
//! Deviations: the paper does not say who scans and when. Comparing tags costs the references only.

use crate::os::Os;
use pagelab_base::ids::LayerId;
use pagelab_base::step::{Next, RefKind, Step};
use pagelab_tables::page_table::Scan;

/// See the module's text.
#[derive(Clone, Debug)]
pub struct ExitScan {
    layer: LayerId,
    scan: Scan,
}

impl ExitScan {
    /// A scan that has been begun, of a layer's page tables.
    pub fn new(layer: LayerId, scan: Scan) -> Self {
        Self { layer, scan }
    }

    /// The layer whose tables are scanned.
    pub fn layer(&self) -> LayerId {
        self.layer
    }

    /// See `Activity::plan` of the simulation.
    pub fn plan(&self, os: &Os, step: &mut Step) {
        let layer = &os.layers[self.layer];
        let planned = layer.spaces.tables.plan_scan(&layer.memory.contents, &self.scan);
        let (from, bytes) = planned.read;
        step.kernel(RefKind::Load { bytes }, from);
        planned.written.into_iter().for_each(|line| step.kernel(RefKind::Write, line));
    }

    /// See `Activity::commit` of the simulation.
    pub fn commit(&mut self, os: &mut Os) -> Next {
        let layer = &mut os.layers[self.layer];
        if layer.spaces.tables.commit_scan(&mut layer.memory.contents, &mut self.scan) {
            Next::Continue
        } else {
            Next::Done
        }
    }
}

impl Os {
    /// A scan that is due, of the first layer with one.
    pub fn take_exit_scan(&mut self) -> Option<ExitScan> {
        for (index, layer) in self.layers.iter_mut().enumerate() {
            if let Some(scan) = layer.spaces.tables.begin_scan() {
                return Some(ExitScan::new(index.into(), scan));
            }
        }
        None
    }
}
