//! Deleting what ended processes left in a hashed page table.
//!
//! Models: a scan over the whole table, frame by frame, that reads every line and writes those with slots of ended processes. It
//! is begun by the first CPU that has nothing else on its stack once `exits_per_scan` processes have ended, and is for all
//! of them; their tags are free when it has come to the end.
//! Source: Yaniv and Tsafrir, "Hash, Don't Cache (the Page Table)", SIGMETRICS 2016, 5.4: "a linear scan of the hash table",
//! "carried out lazily".
//! Parameters: `page_table.exits_per_scan`.
//! Stats: `layer.NAME.page_table.scan.*`.
//! Deviations: the paper does not say who scans and when. Comparing tags costs the references only. Of a chained table the
//! chains are mended with their heads, but the chain table is read with the rest.

use crate::base::addr::{FRAME_BYTES, LINE_BYTES, PhysAddr};
use crate::base::step::{Next, RefKind, Step};
use crate::kernel::os::Os;
use crate::page_table::hashed::SharedTable;

/// See the module's text.
#[derive(Clone, Debug)]
pub struct ExitScan {
    layer: u16,
    tags: Vec<u16>,
    /// Number of the frame that is next.
    frame: u64,
}

impl ExitScan {
    pub fn new(layer: u16, tags: Vec<u16>) -> Self {
        Self { layer, tags, frame: 0 }
    }

    pub fn layer(&self) -> u16 {
        self.layer
    }

    /// See [`crate::machine::activity::Activity::plan`].
    pub fn plan(&self, os: &Os, step: &mut Step) {
        let layer = &os.layers[usize::from(self.layer)];
        let table = layer.hashed.as_ref().expect("only a hashed table is scanned");
        let addr = PhysAddr(table.geometry.base().0 + self.frame * FRAME_BYTES);
        step.kernel(RefKind::Load { bytes: FRAME_BYTES }, addr);
        let mut line = u64::MAX;
        for slot in table.stale_in(&layer.mem, self.frame, &self.tags) {
            if slot.0 / LINE_BYTES != line {
                line = slot.0 / LINE_BYTES;
                step.kernel(RefKind::Write, slot);
            }
        }
    }

    /// See [`crate::machine::activity::Activity::commit`].
    pub fn commit(&mut self, os: &mut Os) -> Next {
        let layer = &mut os.layers[usize::from(self.layer)];
        let table = layer.hashed.as_mut().expect("only a hashed table is scanned");
        table.delete_stale(&mut layer.mem, self.frame, &self.tags);
        table.scans.lines += FRAME_BYTES / LINE_BYTES;
        self.frame += 1;
        if self.frame < table.geometry.slot_frames() {
            return Next::Continue;
        }
        table.end_scan(&mut self.tags);
        Next::Done
    }
}

impl Os {
    /// A scan that is due, of the first layer with one.
    pub fn take_exit_scan(&mut self) -> Option<ExitScan> {
        for (index, layer) in self.layers.iter_mut().enumerate() {
            if let Some(tags) = layer.hashed.as_mut().and_then(SharedTable::begin_scan) {
                return Some(ExitScan::new(index as u16, tags));
            }
        }
        self.scan_due = false;
        None
    }
}
