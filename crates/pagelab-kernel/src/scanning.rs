//! A scan for pages to reclaim, and the locks that it holds for a time.
//!
//! Models: with `kernel.held_locks`, a scan takes the oldest pages from the LRU lists under the lists' lock, examines
//! them without it, and takes the lock again to put pages back that stay. Meanwhile they are on no list, so another
//! scan takes the next ones. If it moves pages from the active list before, it takes the lock twice for them, too, and
//! examines them in between. To examine a page, it takes the lock of the page-table page of each entry that maps it,
//! one after the other; to unmap it, once more. Freed pages that do not fit into the CPU's list of free pages go to the
//! zone, a batch at a time, under the zone's lock. Without that key, all of a scan is one step, which refers to the
//! line of the lists' lock.
//! Source: Linux mm/vmscan.c (`shrink_inactive_list`, `shrink_active_list`, `shrink_folio_list`), mm/rmap.c
//! (`folio_referenced_one`, `try_to_unmap_one`), mm/page_alloc.c (`free_unref_folios`, `free_pcppages_bulk`).
//! Parameters: `kernel.held_locks`.
//! Stats: `layer.NAME.lock.zone.*`, `layer.NAME.lock.lru.*`, `layer.NAME.lock.page_table.*`.
//! Deviations: what a scan does to the lists before it examines pages happens when it takes their lock first, and so do
//! the accessed bits of the active list's pages; the time under the locks follows. It decides about all pages at once,
//! when it has paid for reading their entries, and pays for unmapping them afterwards, so that their translations are
//! invalidated together (`try_to_unmap_flush`). Any number of pages may be isolated at a time (Linux:
//! `too_many_isolated`). The first step without that key refers to the pages that the list has before others move to
//! it.

use crate::effects::Effects;
use crate::held_batches::{Batches, SharedLock};
use crate::layer::Layer;
use crate::locks::TaskId;
use crate::os::Os;
use crate::reclaim::{PagesToScan, Pressure, ReclaimScan, plan_scan};
use pagelab_base::ids::LayerId;
use pagelab_base::step::{BlockKey, Step};

/// What a scan does next.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ScanPart {
    /// Take the lock of the lists, and then pages from them; all of the scan if nobody holds locks for a time.
    Begin,
    /// Hold the lock for the pages that were taken.
    Isolate(PagesToScan, Batches),
    /// Read the entries that map them, and then decide about them.
    Examine(PagesToScan, Batches),
    /// Unmap pages and free them, and put others back.
    PutBack(Box<ReclaimScan>, Batches),
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
        Self { pressure, part: ScanPart::Begin }
    }

    /// Why it scans.
    pub fn pressure(&self) -> Pressure {
        self.pressure
    }

    /// Whether it has not changed anything yet and holds no lock, so that it may be given up.
    pub fn may_end(&self) -> bool {
        self.part == ScanPart::Begin
    }

    /// Plans the next step.
    pub fn plan(&self, os: &Os, id: LayerId, step: &mut Step) {
        let layer = &os.layers[id];
        match &self.part {
            ScanPart::Begin if os.costs.held_locks.is_none() => plan_scan(layer, self.pressure, step),
            ScanPart::Begin => self.first_lock(layer).plan_take(layer, step),
            ScanPart::Isolate(_, batches) | ScanPart::Examine(_, batches) | ScanPart::PutBack(_, batches) => {
                if let Some(costs) = &os.costs.held_locks {
                    batches.plan(layer, &os.locks, costs, step);
                }
            }
        }
    }

    fn first_lock(&self, layer: &Layer) -> SharedLock {
        let reclaim = layer.memory.reclaim.as_ref().expect("only such a layer is scanned");
        SharedLock::Lru(reclaim.group_to_scan(self.pressure))
    }

    /// Commits the planned step.
    pub fn commit(&mut self, os: &mut Os, effects: &mut Effects, id: LayerId, task: TaskId) -> ScanProgress {
        match &mut self.part {
            ScanPart::Begin if os.costs.held_locks.is_none() => {
                return ScanProgress::Ends(Box::new(os.scan_pages(effects, id, self.pressure, task)));
            }
            ScanPart::Begin => {
                let key = self.first_lock(&os.layers[id]).key(id);
                if !os.locks.acquire(key, task) {
                    return ScanProgress::Waits(key);
                }
                let layer = &mut os.layers[id];
                let pages = layer.isolate_pages(self.pressure);
                let batches = pages.isolation(layer);
                self.part = ScanPart::Isolate(pages, batches);
            }
            ScanPart::Isolate(_, batches) | ScanPart::Examine(_, batches) => {
                if let Err(key) = batches.commit(&mut os.locks, os.costs.spin_locks, id, task) {
                    return ScanProgress::Waits(key);
                }
                if batches.is_empty() {
                    return self.next_part(os, effects, id, task);
                }
            }
            ScanPart::PutBack(scan, batches) => {
                if let Err(key) = batches.commit(&mut os.locks, os.costs.spin_locks, id, task) {
                    return ScanProgress::Waits(key);
                }
                if batches.is_empty() {
                    return ScanProgress::Ends(std::mem::take(scan));
                }
            }
        }
        ScanProgress::Continues
    }

    /// Goes on when the pages are isolated, or when their entries have been read: then it decides about them. The time
    /// under locks for that follows, if there is any.
    fn next_part(&mut self, os: &mut Os, effects: &mut Effects, id: LayerId, task: TaskId) -> ScanProgress {
        let pages = match std::mem::replace(&mut self.part, ScanPart::Begin) {
            ScanPart::Isolate(pages, _) => {
                let batches = pages.examination(&os.layers[id]);
                if !batches.is_empty() {
                    self.part = ScanPart::Examine(pages, batches);
                    return ScanProgress::Continues;
                }
                pages
            }
            ScanPart::Examine(pages, _) => pages,
            part => unreachable!("{part:?} has no pages to examine"),
        };
        let mut scan = Box::new(os.examine_pages(effects, id, &pages, task));
        let batches = scan.batches.take().unwrap_or_default();
        if batches.is_empty() {
            return ScanProgress::Ends(scan);
        }
        self.part = ScanPart::PutBack(scan, batches);
        ScanProgress::Continues
    }
}
