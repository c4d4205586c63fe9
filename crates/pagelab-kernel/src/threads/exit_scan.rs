//! Removal of the entries of ended processes from page tables that are cleared lazily.
//!
//! Models: a scan over a layer's whole table, piece by piece. When enough processes have ended, the first CPU with
//! nothing else on its stack starts it, for all of them. The page-table design defines what a piece is, and what is
//! read and written ([`Shared::plan_scan`](pagelab_tables::page_table::Shared::plan_scan)).
//! Source: Yaniv and Tsafrir, "Hash, Don't Cache (the Page Table)", SIGMETRICS 2016, 5.4: "a linear scan of the hash
//! table", "carried out lazily".
//! Deviations: the paper does not say who scans and when. Comparing tags costs only the references.

use crate::os::Os;
use pagelab_base::ids::LayerId;
use pagelab_base::step::{Next, RefKind, Step};
use pagelab_tables::page_table::TableScan;

/// See the module's text.
#[derive(Clone, Debug)]
pub struct ExitScan {
    layer: LayerId,
    scan: TableScan,
}

impl ExitScan {
    /// Continues a scan of a layer's page tables that has been started.
    pub fn new(layer: LayerId, scan: TableScan) -> Self {
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
    /// Starts a due scan, of the first layer that has one.
    pub fn take_exit_scan(&mut self) -> Option<ExitScan> {
        for (index, layer) in self.layers.iter_mut().enumerate() {
            if let Some(scan) = layer.spaces.tables.begin_scan() {
                return Some(ExitScan::new(index.into(), scan));
            }
        }
        None
    }
}
