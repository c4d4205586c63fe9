//! A scan: examines the oldest pages of a kind, and reclaims them or keeps them.

use super::lru::{Age, Lru, LruEntry, LruPageKind};
use super::swap::Swap;
use super::{GroupId, PageOf, Pressure, Reclaim, SCAN_PAGES};
use crate::context::KernelContext;
use crate::entry_word::{EntryWord, SwapSlot};
use crate::frames::frame_alloc::ZoneBatch;
use crate::frames::page_use::FilePage;
use crate::held_batches::{Batches, LockedEntry};
use crate::layer::Layer;
use crate::layer::words::WordOf;
use crate::memory::page_metadata;
use crate::vma::{OrderAdvice, VaRange};
use pagelab_base::addr::{FRAME_BYTES, PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::ids::SpaceIx;
use pagelab_base::io::{DeviceRequest, Lba, Requests};
use pagelab_base::lock_kind::LockKind;
use pagelab_base::step::{RefKind, Step};
use pagelab_tables::page_table::{Leaf, PteFlags, Removed, WalkList};

/// Result of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReclaimScan {
    /// Pages whose translations were removed, with their sizes in bytes.
    pub gone: Vec<(SpaceIx, VirtAddr, u64)>,
    /// Number of frames freed.
    pub freed: u64,
    /// Writes to the swap area and to files, one request per page.
    pub io: Requests,
    /// Frames whose pages are to be written.
    pub outgoing: Vec<Pfn>,
    /// Those of them that a host has swapped out, and must read back before the device can.
    pub absent: Vec<Pfn>,
    /// Pages of files to be written, with their frames.
    pub files: Vec<(FilePage, Pfn)>,
    /// Where address spaces mapped the pages of files to be written, by number of the space.
    pub written: Vec<(SpaceIx, VirtAddr)>,
    /// Block of the first page that the scan skipped because it is under write-back.
    pub under_writeback: Option<Lba>,
    /// Pages that it has moved under locks that all CPUs share, after it has isolated those to examine; `None` unless
    /// such locks are held for a time.
    pub batches: Option<Batches>,
    /// Freed pages that are moved under the zone's lock, if that is held for a time.
    zone: Vec<ZoneBatch>,
}

/// Pages of an inactive list that a scan is to examine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PagesToScan {
    group: GroupId,
    kind: LruPageKind,
    /// Pages that it has moved from the active list before, or left there.
    aged: Vec<Pfn>,
    pages: Vec<(Pfn, Age)>,
}

impl PagesToScan {
    /// The batches in which the pages are taken from their lists. The lock of the lists is held for the first one.
    pub fn isolation(&self, layer: &Layer) -> Batches {
        let pages = self.pages.iter().map(|&(pfn, _)| pfn).collect();
        if self.aged.is_empty() {
            return Batches::under_lru_lock(self.group, pages);
        }
        // Pages of the active list are taken from it, examined, and put to a list.
        let mut batches = Batches::under_lru_lock(self.group, self.aged.clone());
        push_examinations(layer, self.aged.iter().copied(), &mut batches);
        batches.push_lru(self.group, self.aged.clone());
        batches.push_lru(self.group, pages);
        batches
    }

    /// The batches in which the entries are read that map the pages, without those that have left meanwhile.
    pub fn examination(&self, layer: &Layer) -> Batches {
        let mut batches = Batches::default();
        let lru = layer.memory.reclaim.as_ref().map(|reclaim| &reclaim.group(self.group).lru);
        let rest = self.pages.iter().filter(|&&page| lru.is_some_and(|lru| lru.unmoved(page).is_some()));
        push_examinations(layer, rest.map(|&(pfn, _)| pfn), &mut batches);
        batches
    }
}

/// Decision about a page.
enum PageVerdict {
    /// Another round, on the active or the inactive list.
    Stay {
        active: bool,
    },
    Leave,
}

/// Summary of the PTEs of a page.
#[derive(Default)]
struct PteSummary {
    accessed: u32,
    dirty: bool,
    executable: bool,
    busy: bool,
    /// The block to which it is being written.
    written: Option<Lba>,
}

fn va(page: u64) -> VirtAddr {
    VirtAddr::from_page_number(page)
}

/// Lists the references of a scan under this pressure: the lock of the lists, and those that examine pages.
pub fn plan_scan(layer: &Layer, pressure: Pressure, step: &mut Step) {
    let Some(reclaim) = &layer.memory.reclaim else { return };
    let id = reclaim.group_to_scan(pressure);
    step.kernel(RefKind::Locked, layer.data.lru_line(id));
    step.note_lock(LockKind::Lru);
    plan_pages(layer, reclaim, reclaim.oldest(id).into_iter(), step);
}

/// Lists the references that examine pages: to the metadata of each and the entries that map it.
fn plan_pages(layer: &Layer, reclaim: &Reclaim, pages: impl Iterator<Item = Pfn>, step: &mut Step) {
    let mut list = WalkList::new();
    for pfn in pages {
        step.kernel(RefKind::Write, page_metadata(pfn));
        for_entries(layer, reclaim, pfn, &mut list, |_, entry| step.kernel(RefKind::Locked, entry));
    }
}

/// The batches in which pages are examined.
fn push_examinations(layer: &Layer, pages: impl Iterator<Item = Pfn>, batches: &mut Batches) {
    let Some(reclaim) = &layer.memory.reclaim else { return };
    let (mut list, mut entries) = (WalkList::new(), Vec::new());
    for pfn in pages {
        entries.clear();
        for_entries(layer, reclaim, pfn, &mut list, |space, entry| {
            entries.push(LockedEntry { table: layer.spaces[space].lock_frame(entry), entry });
        });
        batches.push_examination(pfn, &entries);
    }
}

/// Passes each entry that maps a page on, a slot of several spaces once.
fn for_entries(
    layer: &Layer,
    reclaim: &Reclaim,
    pfn: Pfn,
    list: &mut WalkList,
    mut pass: impl FnMut(SpaceIx, PhysAddr),
) {
    let mut read = Vec::new();
    for (space, page) in reclaim.rmap.pages(pfn) {
        if read.contains(&(space, va(page))) {
            continue;
        }
        read.extend(layer.elsewhere(space, va(page)));
        layer.spaces[space].table.walk(&layer.memory.contents, va(page), list);
        pass(space, list.refs().last().expect("a walk reads an entry at least").addr);
    }
}

impl ReclaimScan {
    /// Plans its requests to devices; before them, as a step of its own, the reads by which the virtual machine monitor
    /// reaches pages that a host has swapped out.
    pub fn plan_io(&self, step: &mut Step) {
        if self.absent.is_empty() {
            return step.io.clone_from(&self.io);
        }
        plan_read_back(&self.absent, step);
    }
}

/// Plans the reads by which a virtual machine monitor reaches pages that a host has swapped out.
pub fn plan_read_back(absent: &[Pfn], step: &mut Step) {
    absent.iter().for_each(|frame| step.physical(RefKind::Read, frame.addr()));
}

impl Reclaim {
    /// Chooses the kind of page for the next scan of a group.
    fn next_kind(&self, id: GroupId) -> (LruPageKind, [i64; 2]) {
        let group = self.group(id);
        group.lru.choose(self.swappiness, self.possible(group))
    }

    /// The group that the next scan under this pressure examines.
    pub fn group_to_scan(&self, pressure: Pressure) -> GroupId {
        self.next_group(pressure).group
    }

    /// The pages that the next scan of a group examines.
    fn oldest(&self, id: GroupId) -> Vec<Pfn> {
        self.group(id).lru.oldest(self.next_kind(id).0, false)
    }

    /// Decides about a page as `folio_check_references` does; `room` is the number of free slots in the swap area.
    fn judge(&self, entry: &LruEntry, seen: &PteSummary, room: &mut u64) -> PageVerdict {
        let file = entry.kind == LruPageKind::File && !entry.lazy_free;
        if seen.busy || seen.written.is_some() {
            return PageVerdict::Stay { active: false };
        }
        if seen.accessed > 0 {
            // Before anonymous pages started on the inactive list (Linux 5.9), one access made them active.
            let active = entry.referenced || seen.accessed > 1 || file && seen.executable || !file && self.new_active;
            return PageVerdict::Stay { active };
        }
        if file || entry.lazy_free {
            return PageVerdict::Leave;
        }
        match room.checked_sub(1 << entry.order) {
            Some(left) => {
                *room = left;
                PageVerdict::Leave
            }
            None => PageVerdict::Stay { active: true },
        }
    }

    /// Puts an examined page back to a list. False if it leaves instead.
    fn put_back(&mut self, lru: &mut Lru, (pfn, entry): (Pfn, LruEntry), seen: &PteSummary, room: &mut u64) -> bool {
        if entry.lazy_free && seen.dirty {
            lru.set_lazy_free(pfn, false);
            return true;
        }
        let PageVerdict::Stay { active } = self.judge(&entry, seen, room) else { return false };
        self.counters.activated += u64::from(active);
        lru.put(pfn, active, seen.accessed > 0);
        true
    }
}

impl Layer {
    /// Chooses the oldest inactive pages of one kind of one group, to be examined. Before, pages of the active list
    /// move to an inactive one that is short.
    pub fn choose_pages(&mut self, pressure: Pressure) -> PagesToScan {
        let mut reclaim = self.memory.reclaim.take().expect("only such a layer is scanned");
        let turn = reclaim.next_group(pressure);
        let group = turn.group;
        reclaim.take_turn(turn);
        let (kind, credit) = reclaim.next_kind(group);
        // The group's lists are taken out while page tables are examined.
        let mut lru = std::mem::take(&mut reclaim.group_mut(group).lru);
        lru.scanned(credit);
        let aged = if lru.inactive_is_low(kind) { lru.oldest(kind, true) } else { Vec::new() };
        for &pfn in &aged {
            let entry = lru.get(pfn).expect("it is on a list");
            let seen = self.look_at(&reclaim, pfn, &entry, &|_, _| false);
            // Code in use stays active (`shrink_active_list`).
            let stays = kind == LruPageKind::File && seen.executable && seen.accessed > 0;
            lru.put(pfn, stays, false);
            reclaim.counters.deactivated += u64::from(!stays);
        }
        let pages = lru.oldest_inactive(kind);
        reclaim.group_mut(group).lru = lru;
        self.memory.reclaim = Some(reclaim);
        PagesToScan { group, kind, aged, pages }
    }

    /// As [`Self::choose_pages`]; and takes the pages from their list, so that no other scan examines them.
    pub fn isolate_pages(&mut self, pressure: Pressure) -> PagesToScan {
        let chosen = self.choose_pages(pressure);
        let reclaim = self.memory.reclaim.as_mut().expect("only such a layer is scanned");
        reclaim.group_mut(chosen.group).lru.isolate(chosen.kind, &chosen.pages);
        chosen
    }

    /// Examines pages once, and puts those back that stay. Pages stay if `is_busy` says that a fault handler is working
    /// on them. What is moved under locks goes to `batches`, if there are any.
    pub fn examine_pages(
        &mut self,
        context: KernelContext,
        pages: &PagesToScan,
        batches: Option<Batches>,
        is_busy: &dyn Fn(SpaceIx, u64) -> bool,
    ) -> ReclaimScan {
        let mut scan = ReclaimScan { batches, ..ReclaimScan::default() };
        let mut reclaim = self.memory.reclaim.take().expect("only such a layer is scanned");
        let id = pages.group;
        let mut lru = std::mem::take(&mut reclaim.group_mut(id).lru);
        let mut room = reclaim.swap.as_ref().map_or(0, Swap::room);
        let (mut leaving, mut staying) = (Vec::with_capacity(SCAN_PAGES), Vec::new());
        for &(pfn, age) in &pages.pages {
            let Some(entry) = lru.unmoved((pfn, age)) else { continue };
            let seen = self.look_at(&reclaim, pfn, &entry, is_busy);
            reclaim.counters.scanned += 1;
            scan.under_writeback = scan.under_writeback.or(seen.written);
            if !reclaim.put_back(&mut lru, (pfn, entry), &seen, &mut room) {
                leaving.push((pfn, entry));
            } else if scan.batches.is_some() {
                staying.push(pfn);
            }
        }
        reclaim.group_mut(id).lru = lru;
        self.memory.reclaim = Some(reclaim);
        for (pfn, entry) in leaving {
            self.evict(context, pfn, &entry, &mut scan);
        }
        if let Some(batches) = &mut scan.batches {
            scan.zone.drain(..).for_each(|batch| batches.push_zone(batch));
            batches.push_lru(id, staying);
        }
        scan
    }

    /// Summarizes the PTEs of a page and clears their accessed bits.
    fn look_at(
        &mut self,
        reclaim: &Reclaim,
        pfn: Pfn,
        entry: &LruEntry,
        is_busy: &dyn Fn(SpaceIx, u64) -> bool,
    ) -> PteSummary {
        let mut seen = PteSummary::default();
        let mut list = WalkList::new();
        for frame in (0..1 << entry.order).map(|n| pfn + n) {
            // Places whose slot has been read at another place.
            let mut read = Vec::new();
            for (space, page) in reclaim.rmap.pages(frame) {
                seen.busy |= is_busy(space, page);
                if read.contains(&(space, va(page))) {
                    continue;
                }
                self.spaces[space].table.walk(&self.memory.contents, va(page), &mut list);
                let Leaf::Present(mapping) = list.leaf else { unreachable!("the reverse map lists what is mapped") };
                // The first frame of a large page decides. A large page whose other parts are separate entries is in
                // use.
                if mapping.size.order() > entry.order {
                    seen.busy = true;
                } else if mapping.pfn != frame {
                    continue;
                }
                seen.dirty |= mapping.flags.dirty;
                let order = self.spaces[space].vmas.find(va(page)).map(|vma| vma.advice.order);
                if !reclaim.advised_recency && order.is_some_and(|order| order != OrderAdvice::Normal) {
                    continue;
                }
                seen.executable |= mapping.flags.executable;
                let others = self.elsewhere(space, va(page));
                if mapping.flags.accessed {
                    // Older kernels ignore accesses to mappings that are read sequentially.
                    seen.accessed += u32::from(order != Some(OrderAdvice::Sequential));
                    let flags = PteFlags { accessed: false, ..mapping.flags };
                    self.spaces[space].table.set_flags(&mut self.memory.contents, va(page), flags);
                    // The shadow entry is dropped with the bit; otherwise no later use of the page would be noticed.
                    for (space, start) in std::iter::once((space, va(page))).chain(others.iter().copied()) {
                        let end = start + FRAME_BYTES;
                        self.mechanisms.shadows.drop_range(space, VaRange { start, end });
                    }
                }
                read.extend(others);
            }
        }
        seen.dirty |= self.memory.page_use.is_dirty(pfn);
        seen.written = self.memory.page_use.write_of(pfn);
        seen
    }

    /// Unmaps a page from all address spaces.
    pub(super) fn evict(&mut self, context: KernelContext, pfn: Pfn, entry: &LruEntry, scan: &mut ReclaimScan) {
        let reclaim = self.memory.reclaim.as_mut().expect("its lists named the page");
        let frames: Vec<(Pfn, Vec<PageOf>)> =
            (0..1 << entry.order).map(|n| pfn + n).map(|f| (f, reclaim.rmap.pages(f).collect())).collect();
        let swap = reclaim.swap.as_mut().filter(|_| !entry.lazy_free && entry.kind == LruPageKind::Anonymous);
        let mut slots = Vec::new();
        if let Some(swap) = swap {
            slots.extend(frames.iter().map(|(frame, places)| swap.put(*frame, places.len())));
            scan.outgoing.extend(frames.iter().map(|(frame, _)| *frame));
            scan.io.swap.extend(slots.iter().map(|slot: &SwapSlot| DeviceRequest::write(slot.lba(), 1)));
            reclaim.counters.swapped_out += frames.len() as u64;
        }
        reclaim.counters.freed_lazily += u64::from(entry.lazy_free);
        for &(space, page) in frames.iter().flat_map(|(_, places)| places) {
            // Unmapping the first frame of a large page unmaps the others, too.
            if let Some(&page) = self.mapped(space, va(page), va(page) + FRAME_BYTES).first() {
                if let Some(batches) = &mut scan.batches {
                    let table = &self.spaces[space].table;
                    let entry = table.entry(&self.memory.contents, page.va, page.mapping.size);
                    batches.push_unmapping(LockedEntry { table: self.spaces[space].lock_frame(entry), entry });
                }
                self.unmap(context, space, &page);
                scan.gone.push((space, page.va, page.mapping.size.bytes()));
            }
        }
        if entry.kind == LruPageKind::File && !entry.lazy_free {
            let ((file, page), written) = self.memory.page_use.uncache(pfn);
            let reclaim = self.memory.reclaim.as_mut().expect("its lists named the page");
            let counters = &mut reclaim.counters;
            (counters.files_dropped, counters.files_written) =
                (counters.files_dropped + 1, counters.files_written + u64::from(written));
            let places = frames.iter().flat_map(|(_, places)| places).map(|&(space, page)| (space, va(page)));
            if written {
                let storage = reclaim.storage.as_ref().expect("pages of files leave where there is some");
                scan.io.storage.push(DeviceRequest::write(storage.lba(file, page), 1));
                scan.outgoing.push(pfn);
                scan.files.push(((file, page), pfn));
                scan.written.extend(places);
            } else {
                let places: Vec<(SpaceIx, VirtAddr)> = places.collect();
                self.arm_again(context.cpu, &places);
            }
        }
        scan.freed += frames.len() as u64;
        frames.iter().for_each(|(frame, _)| self.memory.page_use.forget_users(*frame));
        let before = self.memory.frames.counters;
        self.free_block(context, pfn, entry.order);
        if scan.batches.is_some() {
            scan.zone.extend(self.under_zone_lock(&before));
        }
        for ((_, places), slot) in frames.iter().zip(slots) {
            for &(space, page) in places {
                let put = self.put_word(
                    context,
                    space,
                    WordOf { va: va(page), size: PageSize::Size4K, word: EntryWord::Swap(slot) },
                );
                put.expect("small pages have their tables, and a large one leaves more room than a table takes");
            }
        }
    }

    /// When a dirty page of a file loses a mapping, keeps the dirty bit of its PTE.
    pub fn note_dirty(&mut self, page: &Removed) {
        if page.mapping.flags.dirty && self.memory.reclaim.as_ref().is_some_and(|reclaim| reclaim.storage.is_some()) {
            self.memory.page_use.set_dirty(page.mapping.pfn);
        }
    }
}
