//! The time that a mapping call takes, and the lock of the address space that it holds meanwhile.
//!
//! Models: the call takes the lock (`mmap_lock`, `mmap_sem`) as its writer; MADV_DONTNEED and other advice on pages
//! takes it as a reader. It waits until no fault or other call is in the way. It then goes through the entries that it
//! has removed or changed, up to 64 pages per step: the lock of each page-table page, each entry by a locked exchange,
//! the metadata of each page. Pages that are freed also take the lock of the LRU lists, once per 32 pages, and that of
//! the zone whenever the CPU's list of free pages was full; with `kernel.held_locks`, the call holds these two for a
//! time, one after the other. A fault that needs the mappings waits until the writer has
//! ended. With locks of VMAs, only faults in the changed range and its neighbours do: a fault cannot lock a VMA that is
//! write-locked, so it falls back to the lock of the address space.
//! Source: Linux mm/mmap.c (`__vm_munmap`, `do_vmi_align_munmap`), mm/madvise.c (`madvise_need_mmap_write`),
//! mm/memory.c (`zap_pte_range`, `lock_vma_under_rcu`), mm/swap.c (`release_pages`), kernel/locking/rwsem.c.
//! Parameters: `kernel.mapping_calls`, `kernel.held_locks`.
//! Stats: `mapping.call_cycles`, `layer.NAME.lock.mmap_read.*`, `layer.NAME.lock.mmap_write.*`.
//! Deviations: the call takes effect when it begins; its shootdown and these costs follow, at the addresses where the
//! entries were. A call locks the first VMA of its range only. Calls of one address space follow one another in their
//! recorded order, so a writer never waits in a queue with readers behind it. fork, exec and exit hold no lock.

use crate::config::{FaultLock, MappingCallConfig};
use crate::frames::frame_alloc::ZoneBatch;
use crate::held_batches::Batches;
use crate::layer::CpuLine;
use crate::layer::changed_entries::ChangedEntry;
use crate::locks::TaskId;
use crate::memory::page_metadata;
use crate::os::Os;
use crate::reclaim::GroupId;
use crate::vma::VaRange;
use pagelab_base::addr::{Pfn, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::{CpuId, SpaceId};
use pagelab_base::lock_kind::LockKind;
use pagelab_base::step::{BlockKey, Next, RefKind, Step};
use pagelab_trace::EventKind;

/// Most pages of a step, so that others can run in between.
const STEP_PAGES: usize = 64;
/// Pages that are taken from the LRU lists under their lock at a time (`SWAP_CLUSTER_MAX` in `release_pages`).
const LRU_BATCH: usize = 32;

/// How a call holds the lock of the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallLock {
    Read,
    Write,
    /// As a writer until the VMAs are changed, and then as a reader.
    Downgraded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallState {
    /// Take the lock.
    Lock,
    /// Change the VMAs.
    Vmas,
    /// Go through the entries.
    Work,
    /// Free pages under locks that all CPUs share.
    Batches,
    Unlock,
}

/// A call that has taken effect, see the module's text.
#[derive(Clone, Debug)]
pub struct MappingCall {
    space: SpaceId,
    cpu: CpuId,
    /// The range that it changes; `None` for the whole space.
    range: Option<VaRange>,
    lock: CallLock,
    changed: Vec<ChangedEntry>,
    /// Number of the changed entries whose costs have been charged.
    done: usize,
    /// Freed pages that are to be taken from the LRU lists.
    gathered: Vec<Pfn>,
    /// Pages that the CPU's list of free pages has no room for, by acquisition of the zone's lock.
    overflowed: Vec<ZoneBatch>,
    batches: Batches,
    state: CallState,
}

impl MappingCall {
    /// The costs of a call that changes a range, or the whole space; `None` if such calls cost nothing.
    pub fn new(cpu: CpuId, space: SpaceId, kind: &EventKind, range: Option<VaRange>, os: &mut Os) -> Option<Self> {
        let config = os.costs.mapping_calls?;
        let changed = os.layers[space.layer].spaces.changed.take()?;
        let lock = match kind {
            EventKind::Madvise { advice, .. } if is_about_pages(*advice) => CallLock::Read,
            EventKind::Munmap { .. } | EventKind::Brk { .. } if config.downgrade.0 => CallLock::Downgraded,
            _ => CallLock::Write,
        };
        let (gathered, overflowed, batches) = (Vec::new(), Vec::new(), Batches::default());
        Some(Self { space, cpu, range, lock, changed, done: 0, gathered, overflowed, batches, state: CallState::Lock })
    }

    /// The address space.
    pub fn space(&self) -> SpaceId {
        self.space
    }

    /// Whether it holds the lock as a reader while it goes through the entries.
    fn is_reader_at_work(&self) -> bool {
        self.lock != CallLock::Write
    }

    fn kind(reads: bool) -> LockKind {
        if reads { LockKind::MmapRead } else { LockKind::MmapWrite }
    }

    /// See `Activity::plan` of the simulation.
    pub fn plan(&self, os: &Os, step: &mut Step) {
        let Some(config) = &os.costs.mapping_calls else { return };
        let layer = &os.layers[self.space.layer];
        let line = layer.spaces[self.space.index].lock_line();
        match self.state {
            CallState::Lock => step.take_lock(Self::kind(self.lock == CallLock::Read), line),
            CallState::Vmas => {
                step.preset += config.call.cost();
                if os.costs.fault_lock == FaultLock::Vma && self.lock != CallLock::Read {
                    let start = self.range.map_or(VirtAddr(0), |range| range.start);
                    step.take_lock(LockKind::Vma, layer.fault_lock_line(FaultLock::Vma, self.space.index, start));
                }
            }
            CallState::Work => self.plan_entries(os, config, step),
            CallState::Batches => {
                if let Some(costs) = &os.costs.held_locks {
                    self.batches.plan(layer, costs, step);
                }
            }
            CallState::Unlock => step.take_lock(Self::kind(self.is_reader_at_work()), line),
        }
    }

    /// The entries of the next step: of one page-table page.
    fn next_entries(&self) -> &[ChangedEntry] {
        let rest = &self.changed[self.done..];
        let table = rest.first().map(|first| first.entry.pfn());
        let most = rest.len().min(STEP_PAGES);
        let count = rest[..most].iter().take_while(|entry| Some(entry.entry.pfn()) == table).count();
        &rest[..count]
    }

    fn plan_entries(&self, os: &Os, config: &MappingCallConfig, step: &mut Step) {
        let layer = &os.layers[self.space.layer];
        let space = &layer.spaces[self.space.index];
        let entries = self.next_entries();
        let Some(first) = entries.first() else { return };
        let refers_only = os.costs.held_locks.is_none();
        step.take_lock(LockKind::PageTable, page_metadata(space.lock_frame(first.entry)));
        for (number, changed) in (self.done..).zip(entries) {
            step.kernel_independent(RefKind::Locked, changed.entry);
            if !changed.is_unmapped {
                step.preset += config.change_page.cost();
                step.kernel(RefKind::Write, changed.entry);
                continue;
            }
            step.preset += config.unmap_page.cost();
            step.kernel_independent(RefKind::Write, page_metadata(changed.frame));
            if changed.is_freed {
                if number % LRU_BATCH == 0 && refers_only {
                    step.take_lock(LockKind::Lru, layer.data.lru_line(space.group));
                }
                step.kernel_independent(RefKind::Write, layer.data.cpu_line(self.cpu, CpuLine::FreeLists));
            }
            if let Some(batch) = changed.under_zone_lock.as_ref().filter(|_| refers_only) {
                step.take_lock(LockKind::Zone, layer.data.zone_line());
                batch.descriptors.iter().for_each(|&page| step.kernel(RefKind::Write, page_metadata(page)));
            }
        }
        if first.is_unmapped {
            layer.plan_count(self.cpu, space, os.costs.rss_batch, step);
            step.take_lock(LockKind::Memcg, layer.data.cgroup_line(space.group));
        }
    }

    /// See `Activity::commit` of the simulation.
    pub fn commit(&mut self, os: &mut Os, task: TaskId) -> Next {
        match self.state {
            CallState::Lock => {
                if let Some(key) = self.take_lock(os, task) {
                    return Next::Block(key);
                }
                self.state = CallState::Vmas;
            }
            CallState::Vmas => {
                if self.lock == CallLock::Downgraded {
                    os.locks.end_write(self.space, task);
                    os.locks.read_mappings(self.space, VaRange::ALL, task);
                }
                self.state = if self.changed.is_empty() { CallState::Unlock } else { CallState::Work };
            }
            CallState::Work => {
                let entries = self.next_entries().len();
                if os.costs.held_locks.is_some() {
                    self.gather(entries, os.layers[self.space.layer].spaces[self.space.index].group);
                }
                self.done += entries;
                self.state = self.after_work();
            }
            CallState::Batches => {
                if let Err(key) = self.batches.commit(&mut os.locks, self.space.layer, task) {
                    return Next::Block(key);
                }
                self.state = self.after_work();
            }
            CallState::Unlock => {
                if self.is_reader_at_work() {
                    os.locks.end_read(self.space, task);
                } else {
                    os.locks.end_write(self.space, task);
                }
                return Next::Done;
            }
        }
        Next::Continue
    }

    /// What follows when the costs of some entries, or a batch's, have been charged.
    fn after_work(&self) -> CallState {
        match () {
            () if !self.batches.is_empty() => CallState::Batches,
            () if self.done == self.changed.len() => CallState::Unlock,
            () => CallState::Work,
        }
    }

    /// Gathers the pages that the next entries have freed. Full batches, and what is left behind the last entry, go to
    /// the zone after they have been taken from the LRU lists.
    fn gather(&mut self, entries: usize, group: GroupId) {
        let end = self.done + entries;
        for number in self.done..end {
            let changed = &mut self.changed[number];
            self.gathered.extend(changed.is_freed.then_some(changed.frame));
            self.overflowed.extend(changed.under_zone_lock.take());
            if self.gathered.len() == LRU_BATCH {
                self.free_gathered(group);
            }
        }
        if end == self.changed.len() {
            self.free_gathered(group);
        }
    }

    fn free_gathered(&mut self, group: GroupId) {
        self.batches.push_lru(group, std::mem::take(&mut self.gathered));
        self.overflowed.drain(..).for_each(|batch| self.batches.push_zone(batch));
    }

    /// Takes the lock, or returns the key that it must wait for.
    fn take_lock(&self, os: &mut Os, task: TaskId) -> Option<BlockKey> {
        let (space, lock) = (self.space, os.costs.fault_lock);
        if self.lock == CallLock::Read {
            if !os.locks.may_read(space, None, lock) {
                return Some(BlockKey::MappingsRead { space });
            }
            os.locks.read_mappings(space, VaRange::ALL, task);
        } else {
            if !os.locks.may_change(space, self.range, lock) {
                return Some(BlockKey::Mappings { space });
            }
            os.locks.write_mappings(space, self.range, task);
        }
        None
    }

    /// Counts cycles of such a call.
    pub fn charge(os: &mut Os, cycles: Cycles) {
        os.mapping.call_cycles += cycles;
    }
}

/// Whether advice of `madvise(2)` is about pages, so that the call only reads the mappings
/// (`madvise_need_mmap_write`).
fn is_about_pages(advice: u32) -> bool {
    // WILLNEED, DONTNEED, FREE, REMOVE, COLD, PAGEOUT, POPULATE_READ, POPULATE_WRITE, DONTNEED_LOCKED, COLLAPSE.
    matches!(advice, 3 | 4 | 8 | 9 | 20..=25)
}
