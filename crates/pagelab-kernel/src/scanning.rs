//! A scan for pages to reclaim, and the locks that it holds for a time.
//!
//! Models: with `kernel.held_locks`, a scan takes the oldest pages from the LRU lists under the lists' lock, examines
//! them without it, and takes the lock again to put pages back that stay. If it has moved pages from the active list,
//! it took the lock twice for them, too. Freed pages that do not fit into the CPU's list of free pages go to the zone,
//! a batch at a time, under the zone's lock. Without that key, all of a scan is one step, which refers to the line of
//! the lists' lock.
//! Source: Linux mm/vmscan.c (`shrink_inactive_list`, `shrink_active_list`, `shrink_folio_list`), mm/page_alloc.c
//! (`free_unref_folios`, `free_pcppages_bulk`).
//! Parameters: `kernel.held_locks`.
//! Stats: `layer.NAME.lock.zone.*`, `layer.NAME.lock.lru.*`.
//! Deviations: pages are on their lists while they are examined, so another scan may examine them at the same time.
//! What a scan does to the active list and the zone happens when it examines, and the locks for that follow.
//! Pages that it examines as soon as it has moved them from the active list are not taken from the inactive list under
//! the lock.

use crate::effects::Effects;
use crate::held_batches::SharedLock;
use crate::locks::TaskId;
use crate::os::Os;
use crate::reclaim::{GroupId, Pressure, ReclaimScan, plan_scan};
use pagelab_base::ids::LayerId;
use pagelab_base::step::{BlockKey, Step};

/// What a scan does next.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ScanPart {
    /// Take the lock of the lists, unless nobody holds it for a time.
    Lists,
    /// Take the oldest pages from the lists of a group, with the lock held.
    Isolate(GroupId),
    /// Examine the pages.
    Examine,
    /// Put pages back, and free others.
    PutBack(Box<ReclaimScan>),
}

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scanning {
    pressure: Pressure,
    part: ScanPart,
}

/// What comes after a step of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanProgress {
    /// Another step.
    Continues,
    /// The same step again, when this key is free.
    Waits(BlockKey),
    /// Nothing: this is the result.
    Ends(Box<ReclaimScan>),
}

impl Scanning {
    /// A scan that begins.
    pub fn new(pressure: Pressure) -> Self {
        Self { pressure, part: ScanPart::Lists }
    }

    /// Why it scans.
    pub fn pressure(&self) -> Pressure {
        self.pressure
    }

    /// Whether it has not changed anything yet and holds no lock, so that it may be given up.
    pub fn may_end(&self) -> bool {
        matches!(self.part, ScanPart::Lists | ScanPart::Examine)
    }

    /// Plans the next step.
    pub fn plan(&self, os: &Os, id: LayerId, step: &mut Step) {
        let layer = &os.layers[id];
        let Some(costs) = &os.costs.held_locks else { return plan_scan(layer, self.pressure, true, step) };
        let reclaim = layer.memory.reclaim.as_ref().expect("only such a layer is scanned");
        match &self.part {
            ScanPart::Lists => SharedLock::Lru(reclaim.group_to_scan(self.pressure)).plan_take(layer, step),
            &ScanPart::Isolate(group) => {
                let pages = reclaim.oldest(group);
                SharedLock::Lru(group).plan_work(layer, costs, &pages, pages.len() as u64, step);
            }
            ScanPart::Examine => plan_scan(layer, self.pressure, false, step),
            ScanPart::PutBack(scan) => scan.batches.plan(layer, costs, step),
        }
    }

    /// Commits the planned step.
    pub fn commit(&mut self, os: &mut Os, effects: &mut Effects, id: LayerId, task: TaskId) -> ScanProgress {
        let holds_locks = os.costs.held_locks.is_some();
        match &mut self.part {
            ScanPart::Lists if holds_locks => {
                let reclaim = os.layers[id].memory.reclaim.as_ref().expect("only such a layer is scanned");
                let group = reclaim.group_to_scan(self.pressure);
                let key = SharedLock::Lru(group).key(id);
                if !os.locks.acquire(key, task) {
                    return ScanProgress::Waits(key);
                }
                self.part = ScanPart::Isolate(group);
            }
            &mut ScanPart::Isolate(group) => {
                os.locks.release(SharedLock::Lru(group).key(id), task);
                self.part = ScanPart::Examine;
            }
            ScanPart::Lists | ScanPart::Examine => {
                let scan = Box::new(os.scan_pages(effects, id, self.pressure, task));
                if !holds_locks || scan.batches.is_empty() {
                    return ScanProgress::Ends(scan);
                }
                self.part = ScanPart::PutBack(scan);
            }
            ScanPart::PutBack(scan) => {
                if let Err(key) = scan.batches.commit(&mut os.locks, id, task) {
                    return ScanProgress::Waits(key);
                }
                if scan.batches.is_empty() {
                    return ScanProgress::Ends(std::mem::take(scan));
                }
            }
        }
        ScanProgress::Continues
    }
}
