//! msync(2): writing what a program has stored to a file's mapping to storage, while the program waits.
//!
//! Models: batches of pages in the range that are dirty, by an entry or in the page cache. Their entries become clean
//! and read-only, so that the next store faults, and the pages are written. They stay in memory, and cannot leave it
//! meanwhile.
//! Source: Linux mm/msync.c, mm/page-writeback.c (`write_cache_pages`, `folio_clear_dirty_for_io`), mm/rmap.c
//! (`folio_mkclean`).
//! Parameters: `kernel.storage`, `kernel.block_io`.
//! Deviations: MS_ASYNC does nothing, as in Linux. Pages that are dirty only in entries of other processes wait until
//! those sync, are unmapped, or memory runs short. Journals and metadata of file systems are not written. Changes by
//! write(2) are not known.

use crate::effects::Effects;
use crate::fault::io::{plan_completion, plan_submit, plan_wait};
use crate::frames::page_use::FilePage;
use crate::layer::Layer;
use crate::locks::TaskId;
use crate::memory::page_metadata;
use crate::os::Os;
use crate::reclaim::{Storage, plan_read_back};
use crate::vma::{VaRange, Vma, VmaKind};
use pagelab_base::addr::{FRAME_BYTES, PageSize, Pfn, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::{SpaceId, SpaceIx};
use pagelab_base::io::{DeviceRequest, Lba};
use pagelab_base::step::{BlockKey, Next, RefKind, Step};
use pagelab_tables::page_table::{PteFlags, Removed};

/// Flags of msync(2); only the last one waits.
const MS_ASYNC: u32 = 1;
const MS_INVALIDATE: u32 = 2;
const MS_SYNC: u32 = 4;
/// Pages written at a time (`BIO_MAX_VECS`).
const PAGES_AT_A_TIME: usize = 256;

/// Pages on their way to storage.
#[derive(Clone, Debug)]
struct WriteBatch {
    pages: Vec<(FilePage, Lba)>,
    io: Vec<DeviceRequest>,
    /// Frames of the pages that a host has swapped out.
    absent: Vec<Pfn>,
}

#[derive(Clone, Debug)]
enum WritebackState {
    /// Find the next dirty pages, and clean their entries.
    Look,
    /// Let the host read pages back that are to be written.
    ReadBack(WriteBatch),
    /// Pay for the requests to the device.
    Submit(WriteBatch),
    Device(WriteBatch),
    /// Handle this number of completed requests.
    Completion(u32),
}

/// The activity, see the module's text.
#[derive(Clone, Debug)]
pub struct Sync {
    space: SpaceId,
    /// The rest of the range.
    left: VaRange,
    state: WritebackState,
}

/// Address, length or flags that no kernel accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImpossibleSync;

/// A page to be written.
struct Dirty {
    frame: Pfn,
    page: FilePage,
}

impl Sync {
    /// The work of a call; `None` if it does not wait. Errors: no kernel would carry it out.
    pub fn new(space: SpaceId, addr: u64, len: u64, flags: u32) -> Result<Option<Self>, ImpossibleSync> {
        let both = MS_ASYNC | MS_SYNC;
        if flags & !(both | MS_INVALIDATE) != 0 || flags & both == both {
            return Err(ImpossibleSync);
        }
        let left = VaRange::from_bytes(addr, len).map_err(|_| ImpossibleSync)?;
        let waits = !left.is_empty() && flags & MS_SYNC != 0;
        Ok(waits.then_some(Self { space, left, state: WritebackState::Look }))
    }

    /// The space whose pages are written.
    pub fn space(&self) -> SpaceId {
        self.space
    }

    /// The next dirty pages, and where to continue after them.
    fn next(&self, layer: &Layer) -> (Vec<Dirty>, VirtAddr) {
        let space = &layer.spaces[self.space.index];
        let of_file = |vma: &&Vma| vma.kind == VmaKind::File && vma.notes_first_store();
        let vma = space.vmas.iter().filter(of_file).find(|vma| vma.end > self.left.start && vma.start < self.left.end);
        let Some((vma, name)) = vma.and_then(|vma| Some((vma, vma.file.as_ref()?))) else {
            return (Vec::new(), self.left.end);
        };
        let (start, end) = (self.left.start.max(vma.start), self.left.end.min(vma.end));
        let Some(file) = layer.memory.page_use.known_file(name) else { return (Vec::new(), end) };
        let mut found = Vec::new();
        let (mut mapped, mut at) = (Vec::new(), start);
        while at < end && found.len() < PAGES_AT_A_TIME {
            at = layer.next_mapped(self.space.index, at, end, &mut mapped);
            let dirty =
                |removed: &&Removed| removed.mapping.flags.dirty || layer.memory.page_use.is_dirty(removed.mapping.pfn);
            let pages = mapped.iter().filter(dirty).map(|removed| (vma.file_page(removed.va), removed.mapping.pfn));
            let pages = pages.filter(|&(page, frame)| layer.memory.page_use.cached(file, page) == Some(frame));
            found.extend(pages.map(|(page, frame)| Dirty { frame, page: (file, page) }));
        }
        let first = vma.file_page(start);
        let remembered = layer.memory.page_use.dirty_pages(file, first..first + (at.0 - start.0) / FRAME_BYTES);
        found.extend(remembered.into_iter().map(|(page, frame)| Dirty { frame, page: (file, page) }));
        found.sort_unstable_by_key(|dirty| dirty.page);
        found.dedup_by_key(|dirty| dirty.page);
        if let Some(next) = found.get(PAGES_AT_A_TIME) {
            at = start + (next.page.1 - first) * FRAME_BYTES;
            found.truncate(PAGES_AT_A_TIME);
        }
        (found, at)
    }

    /// See `Activity::plan` of the simulation.
    pub fn plan(&self, os: &Os, step: &mut Step) {
        let layer = &os.layers[self.space.layer];
        let costs = os.costs.block_io.as_ref();
        match &self.state {
            WritebackState::Look => {
                for Dirty { frame, .. } in self.next(layer).0 {
                    step.kernel(RefKind::Write, page_metadata(frame));
                    for (space, page) in layer.places_of(frame) {
                        let va = VirtAddr(page * FRAME_BYTES);
                        let entry = layer.spaces[space].table.entry(&layer.memory.contents, va, PageSize::Size4K);
                        step.kernel(RefKind::Locked, entry);
                    }
                }
            }
            WritebackState::ReadBack(batch) => plan_read_back(&batch.absent, step),
            WritebackState::Submit(batch) => {
                if let Some(costs) = costs {
                    plan_submit(costs, batch.io.len() as u32, step);
                }
            }
            WritebackState::Device(batch) => {
                step.io.storage.clone_from(&batch.io);
                if let Some(costs) = costs {
                    plan_wait(costs, step);
                }
            }
            &WritebackState::Completion(requests) => {
                if let Some(costs) = costs {
                    plan_completion(costs, requests, step);
                }
            }
        }
    }

    /// See `Activity::commit` of the simulation.
    pub fn commit(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId) -> Next {
        let costly = os.costs.block_io.is_some();
        self.state = match std::mem::replace(&mut self.state, WritebackState::Look) {
            WritebackState::Look => return self.look(os, effects, task),
            WritebackState::ReadBack(batch) => WritebackState::Submit(batch),
            WritebackState::Submit(batch) => WritebackState::Device(batch),
            WritebackState::Device(batch) => {
                os.written(self.space.layer, &batch.pages, task);
                if costly { WritebackState::Completion(batch.io.len() as u32) } else { WritebackState::Look }
            }
            WritebackState::Completion(_) => WritebackState::Look,
        };
        Next::Continue
    }

    /// Begins to write the next dirty pages; waits if one of them is already being written.
    fn look(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId) -> Next {
        let id = self.space.layer;
        let (found, on) = self.next(&os.layers[id]);
        if let Some(lba) = found.iter().find_map(|dirty| os.layers[id].memory.page_use.write_of(dirty.frame)) {
            return Next::Block(BlockKey::Writeback { layer: id, lba });
        }
        self.left.start = on;
        let frames: Vec<Pfn> = found.iter().map(|dirty| dirty.frame).collect();
        let absent = os.absent_in_host(id, &frames);
        let mut batch = WriteBatch { pages: Vec::with_capacity(found.len()), io: Vec::new(), absent };
        for Dirty { frame, page } in found {
            for (index, range) in os.layers[id].clean(frame) {
                effects.invalidate(SpaceId { layer: id, index }, range);
            }
            batch.pages.push((page, os.begin_write(id, page, frame, task)));
        }
        os.mapping.pages_synced += batch.pages.len() as u64;
        batch.io = Storage::writes(batch.pages.iter().map(|&(_, lba)| lba));
        if batch.pages.is_empty() {
            return if self.left.is_empty() { Next::Done } else { Next::Continue };
        }
        self.state =
            if batch.absent.is_empty() { WritebackState::Submit(batch) } else { WritebackState::ReadBack(batch) };
        Next::Continue
    }

    /// Counts cycles of msync, without those of devices.
    pub fn charge(os: &mut Os, cycles: Cycles) {
        os.mapping.sync_cycles += cycles;
    }
}

impl Layer {
    /// The entries that map a frame: spaces and page numbers.
    fn places_of(&self, frame: Pfn) -> Vec<(SpaceIx, u64)> {
        self.memory.reclaim.as_ref().map_or(Vec::new(), |reclaim| reclaim.rmap.pages(frame).collect())
    }

    /// Cleans the entries of a page of a file that is about to be written, so that the next store faults. Returns the
    /// changed places.
    fn clean(&mut self, frame: Pfn) -> Vec<(SpaceIx, VaRange)> {
        self.memory.page_use.set_clean(frame);
        let found = self.places_of(frame).into_iter().filter_map(|(space, page)| {
            let page = self.mapped(space, VirtAddr(page * FRAME_BYTES), VirtAddr((page + 1) * FRAME_BYTES)).pop()?;
            (page.mapping.flags.dirty || page.mapping.flags.writable).then_some((space, page))
        });
        // All are looked at before any is changed: several may have one entry.
        let found: Vec<_> = found.collect();
        for (space, page) in &found {
            self.protect(*space, page, PteFlags { writable: false, dirty: false, ..page.mapping.flags });
        }
        found.into_iter().map(|(space, page)| (space, VaRange { start: page.va, end: page.va + FRAME_BYTES })).collect()
    }
}
