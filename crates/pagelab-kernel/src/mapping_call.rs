//! The time that a mapping call takes, and the lock of the address space that it holds meanwhile.
//!
//! Models: the call takes the lock (`mmap_lock`, `mmap_sem`) as its writer; MADV_DONTNEED and other advice on pages
//! takes it as a reader. It waits until no fault or other call is in the way. It then goes through the entries that it
//! has removed or changed, up to 64 pages per step: the lock of each page-table page, each entry by a locked exchange,
//! the metadata of each page. Pages that are freed also take the lock of the LRU lists, once per `kernel.freed_batch`
//! pages and anew for each list of gathered pages, and that of the zone whenever the CPU's list of free pages was full.
//! A fault that needs the mappings waits until the writer has ended. With locks of VMAs, only faults in the changed
//! range and its neighbours do: a fault cannot lock a VMA that is write-locked, so it falls back to the lock of the
//! address space.
//!
//! With `kernel.held_locks`, the call takes the lock of a page-table page in a step of its own, keeps it for all
//! entries there, and releases it before it goes to the next one. Where it moves entries, it also holds the lock of the
//! table that they move to. Unmapped pages are gathered and freed under the other two locks, one after the other, when
//! all entries are done, or when as many are gathered as `struct mmu_gather` has room for.
//! Source: Linux mm/mmap.c (`__vm_munmap`, `do_vmi_align_munmap`), mm/madvise.c (`madvise_need_mmap_write`,
//! `madvise_free_pte_range`), mm/memory.c (`zap_pte_range`, `lock_vma_under_rcu`), mm/mprotect.c (`change_pte_range`),
//! mm/mremap.c (`move_ptes`), mm/mmu_gather.c (`tlb_next_batch`), mm/swap.c (`release_pages`), kernel/locking/rwsem.c.
//! Parameters: `kernel.mapping_calls`, `kernel.held_locks`.
//! Stats: `mapping.call_cycles`, `layer.NAME.lock.mmap_read.*`, `layer.NAME.lock.mmap_write.*`.
//! Deviations: the call takes effect when it begins; its shootdown and these costs follow, at the addresses where the
//! entries were. A call locks the first VMA of its range only. Calls of one address space follow one another in their
//! recorded order, so a writer never waits in a queue with readers behind it. fork, exec and exit hold no lock. The
//! lock of a table that the call has emptied and freed is only referred to, since nobody else needs it. All of
//! `unmap_page` counts as under the lock of the page-table page. Entries move one by one (Linux: whole tables since
//! 5.0, if aligned), and a table's locks are held for all of them (before 4.19, for 64 at a time). zap gives its lock
//! up for nobody (since 5.4, if its CPU is to run another task). Lists of gathered pages are those until 6.8 for all
//! kernels; since 6.9, one entry of each stays free.

use crate::config::{FaultLock, MappingCallConfig, SpinLocks};
use crate::held_batches::Batches;
use crate::layer::changed_entries::ChangedEntry;
use crate::layer::{CpuLine, Layer};
use crate::locks::TaskId;
use crate::memory::page_metadata;
use crate::os::Os;
use crate::reclaim::GroupId;
use crate::table_lock::{TableLocked, TableLocking};
use crate::vma::VaRange;
use pagelab_base::addr::{Pfn, PhysAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::{CpuId, SpaceId};
use pagelab_base::lock_kind::LockKind;
use pagelab_base::step::{BlockKey, Next, RefKind, Step};
use pagelab_trace::EventKind;

/// Most pages of a step, so that others can run in between.
const STEP_PAGES: usize = 64;
/// Pages in a list of unmapped pages, in the first one and in each of the next ones (`MMU_GATHER_BUNDLE`,
/// `MAX_GATHER_BATCH` of include/asm-generic/tlb.h, 4.9 to 6.8, with pages of 4 KiB). Each list is freed on its own.
const FIRST_GATHERED: usize = 8;
const GATHERED: usize = 510;
/// Most unmapped pages that are gathered before they are freed (`MAX_GATHER_BATCH_COUNT` lists after the first one).
const GATHERED_PAGES: usize = FIRST_GATHERED + 19 * GATHERED;

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
    /// Take the lock of a page-table page of the next entries.
    Table(TableLocking),
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
    /// Number of the changed entries whose pages have been freed, if that is a step of its own.
    freed: usize,
    /// Number of pages that have been unmapped since.
    unmapped: usize,
    /// Page-table pages whose locks it holds.
    tables: Vec<Pfn>,
    /// Number of locks that it has taken for the next entries, or that are of tables which are gone.
    passed: usize,
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
        Some(Self {
            space,
            cpu,
            range,
            lock,
            changed,
            done: 0,
            freed: 0,
            unmapped: 0,
            tables: Vec::new(),
            passed: 0,
            batches: Batches::default(),
            state: CallState::Lock,
        })
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
            CallState::Table(locking) => {
                if let Some(&(table, _)) = self.next_tables(layer).get(self.passed) {
                    locking.plan(layer, &os.locks, table, step);
                }
            }
            CallState::Work => self.plan_entries(os, config, step),
            CallState::Batches => {
                if let Some(costs) = &os.costs.held_locks {
                    self.batches.plan(layer, &os.locks, costs, step);
                }
            }
            CallState::Unlock => step.take_lock(Self::kind(self.is_reader_at_work()), line),
        }
    }

    /// The entries of the next step: of one page-table page.
    fn next_entries(&self, holds: bool) -> &[ChangedEntry] {
        let rest = &self.changed[self.done..];
        let Some(first) = rest.first() else { return rest };
        let most = if holds { STEP_PAGES.min(GATHERED_PAGES - self.unmapped) } else { STEP_PAGES };
        let rest = &rest[..most.min(rest.len())];
        let count = rest.iter().take_while(|entry| are_together(first, entry, holds)).count();
        &rest[..count]
    }

    /// Whether the call releases the locks of page-table pages after so many next entries.
    fn releases_tables(&self, entries: &[ChangedEntry]) -> bool {
        let Some(first) = entries.first() else { return true };
        let next = self.changed.get(self.done + entries.len());
        let is_full = first.is_unmapped && self.unmapped + entries.len() == GATHERED_PAGES;
        is_full || next.is_none_or(|next| !are_together(first, next, true))
    }

    /// The page-table pages of the next entries, in the order in which their locks are taken, and whether they are
    /// still there. The order is the same for all calls, since several spaces may share a table.
    fn next_tables(&self, layer: &Layer) -> Vec<(Pfn, bool)> {
        let Some(first) = self.changed.get(self.done) else { return Vec::new() };
        let space = &layer.spaces[self.space.index];
        let (table, (va, size)) = (space.lock_frame(first.entry), first.page);
        let is_there = !space.table.has_table_per_large_page()
            || space.lock_frame(space.table.entry(&layer.memory.contents, va, size)) == table;
        let mut tables = vec![(table, is_there)];
        let target = first.moved_to.map(|entry| space.lock_frame(entry));
        tables.extend(target.filter(|&target| target != table).map(|target| (target, true)));
        tables.sort_unstable();
        tables
    }

    fn plan_entries(&self, os: &Os, config: &MappingCallConfig, step: &mut Step) {
        let layer = &os.layers[self.space.layer];
        let space = &layer.spaces[self.space.index];
        let holds = os.costs.held_locks.is_some();
        let entries = self.next_entries(holds);
        let Some(first) = entries.first() else { return };
        if !holds {
            step.take_lock(LockKind::PageTable, page_metadata(space.lock_frame(first.entry)));
        }
        for (number, changed) in (self.done..).zip(entries) {
            step.kernel_independent(RefKind::Locked, changed.entry);
            if !changed.is_unmapped {
                step.preset += config.change_page.cost();
                step.kernel(RefKind::Write, changed.moved_to.filter(|_| holds).unwrap_or(changed.entry));
                continue;
            }
            step.preset += config.unmap_page.cost();
            step.kernel_independent(RefKind::Write, page_metadata(changed.frame));
            if changed.is_freed {
                if !holds && begins_lru_batch(number, os.costs.freed_batch) {
                    step.take_lock(LockKind::Lru, layer.data.lru_line(space.group));
                }
                step.kernel_independent(RefKind::Write, layer.data.cpu_line(self.cpu, CpuLine::FreeLists));
            }
            if let Some(batch) = changed.under_zone_lock.as_ref().filter(|_| !holds) {
                step.take_lock(LockKind::Zone, layer.data.zone_line());
                batch.descriptors.iter().for_each(|&page| step.kernel(RefKind::Write, page_metadata(page)));
            }
        }
        let releases = holds && self.releases_tables(entries);
        if first.is_unmapped && (releases || !holds) {
            layer.plan_count(self.cpu, space, os.costs.rss_batch, step);
            step.take_lock(LockKind::Memcg, layer.data.cgroup_line(space.group));
        }
        if releases {
            for (table, _) in self.next_tables(layer) {
                step.kernel_independent(RefKind::Write, page_metadata(table));
                step.note_lock(LockKind::PageTable);
            }
        }
    }

    /// See `Activity::commit` of the simulation.
    pub fn commit(&mut self, os: &mut Os, task: TaskId) -> Next {
        let holds = os.costs.held_locks.is_some();
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
                self.state = self.after_work(holds);
            }
            CallState::Table(locking) => return self.commit_table(os, task, locking),
            CallState::Work => {
                self.commit_entries(os, task, holds);
                self.state = self.after_work(holds);
            }
            CallState::Batches => {
                if let Err(key) = self.batches.commit(&mut os.locks, os.costs.spin_locks, self.space.layer, task) {
                    return Next::Block(key);
                }
                self.state = self.after_work(holds);
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

    /// Takes the lock of a page-table page of the next entries, or waits for it.
    fn commit_table(&mut self, os: &mut Os, task: TaskId, locking: TableLocking) -> Next {
        let tables = self.next_tables(&os.layers[self.space.layer]);
        let (table, is_there) = tables[self.passed];
        if is_there {
            let key = BlockKey::PageTable { layer: self.space.layer, frame: table };
            match locking.commit(&mut os.locks, os.costs.spin_locks == SpinLocks::Queued, key, task) {
                TableLocked::Holds => self.tables.push(table),
                TableLocked::Continues(next) => {
                    self.state = CallState::Table(next);
                    return Next::Continue;
                }
                TableLocked::Waits(next, key) => {
                    self.state = CallState::Table(next);
                    return Next::Block(key);
                }
            }
        }
        self.passed += 1;
        self.state = if self.passed < tables.len() { CallState::Table(TableLocking::Take) } else { CallState::Work };
        Next::Continue
    }

    /// The costs of the next entries have been charged: releases the locks of their tables if no entry there follows,
    /// and frees gathered pages.
    fn commit_entries(&mut self, os: &mut Os, task: TaskId, holds: bool) {
        let entries = self.next_entries(holds);
        let (count, releases) = (entries.len(), holds && self.releases_tables(entries));
        let unmapped = entries.iter().filter(|entry| entry.is_unmapped).count();
        (self.done, self.unmapped) = (self.done + count, self.unmapped + unmapped);
        if !releases {
            return;
        }
        self.passed = 0;
        for frame in self.tables.drain(..) {
            os.locks.release(BlockKey::PageTable { layer: self.space.layer, frame }, task);
        }
        if self.unmapped == GATHERED_PAGES || self.done == self.changed.len() {
            self.gather(os.layers[self.space.layer].spaces[self.space.index].group, os.costs.freed_batch);
        }
    }

    /// What follows when the costs of some entries, or a batch's, have been charged.
    fn after_work(&self, holds: bool) -> CallState {
        match () {
            () if !self.batches.is_empty() => CallState::Batches,
            () if self.done == self.changed.len() => CallState::Unlock,
            () if holds && self.passed == 0 => CallState::Table(TableLocking::Take),
            () => CallState::Work,
        }
    }

    /// Frees the pages that have been unmapped since the last time: takes each batch from the LRU lists, and then what
    /// the CPU's list has no room for to the zone.
    fn gather(&mut self, group: GroupId, batch: u32) {
        let (mut pages, mut overflowed) = (Vec::new(), Vec::new());
        let last = self.done - self.freed;
        for (number, changed) in (1..).zip(&mut self.changed[self.freed..self.done]) {
            pages.extend(changed.is_freed.then_some(changed.frame));
            overflowed.extend(changed.under_zone_lock.take());
            if number == last || begins_lru_batch(number, batch) {
                self.batches.push_lru(group, std::mem::take(&mut pages));
                overflowed.drain(..).for_each(|batch| self.batches.push_zone(batch));
            }
        }
        (self.freed, self.unmapped) = (self.done, 0);
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

/// Whether a page is the first one of a batch that is taken from the LRU lists under one acquisition of their lock.
/// `number` counts the pages that were unmapped since pages were last freed.
fn begins_lru_batch(number: usize, batch: u32) -> bool {
    let number = number % GATHERED_PAGES;
    let in_list = if number < FIRST_GATHERED { number } else { (number - FIRST_GATHERED) % GATHERED };
    in_list.is_multiple_of(batch as usize)
}

/// Whether two entries are changed under the same locks of page-table pages. Without locks that are held for a time,
/// only where the entries are counts.
fn are_together(one: &ChangedEntry, other: &ChangedEntry, holds: bool) -> bool {
    let target = |entry: &ChangedEntry| entry.moved_to.map(PhysAddr::pfn);
    let same_change = || one.is_unmapped == other.is_unmapped && target(one) == target(other);
    one.entry.pfn() == other.entry.pfn() && (!holds || same_change())
}

/// Whether advice of `madvise(2)` is about pages, so that the call only reads the mappings
/// (`madvise_need_mmap_write`).
fn is_about_pages(advice: u32) -> bool {
    // WILLNEED, DONTNEED, FREE, REMOVE, COLD, PAGEOUT, POPULATE_READ, POPULATE_WRITE, DONTNEED_LOCKED, COLLAPSE.
    matches!(advice, 3 | 4 | 8 | 9 | 20..=25)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_pages_take_the_lock_of_the_lists_once_per_batch_and_at_the_end_of_each_list() {
        let locks = |pages: usize, batch: u32| (0..pages).filter(|&number| begins_lru_batch(number, batch)).count();
        // 8 pages, and 8 pages after eight lists of 510: 16 batches of 31 and one of 14 each.
        assert_eq!(locks(4096, 31), 1 + 8 * 17 + 1);
        // 15 batches of 32 and one of 30.
        assert_eq!(locks(4096, 32), 1 + 8 * 16 + 1);
        assert_eq!(locks(8, 31), 1);
        assert_eq!(locks(9, 31), 2);
        assert_eq!(locks(GATHERED_PAGES, 255), 1 + 19 * 2);
        assert_eq!(locks(2 * GATHERED_PAGES, 255), 2 * (1 + 19 * 2));
    }
}
