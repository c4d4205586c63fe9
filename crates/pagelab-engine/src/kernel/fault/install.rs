//! The end of a fault's work on a page: its translation is written.

use super::work::{Work, file_page, pages};
use super::{Fault, PageSize};
use crate::base::addr::{FRAME_BYTES, FRAME_SHIFT, Pfn, VirtAddr};
use crate::base::error::EngineError;
use crate::kernel::layer::Layer;
use crate::kernel::os::Os;
use crate::kernel::reclaim::Swapped;
use crate::kernel::vma::VaRange;
use crate::page_table::{Leaf, Mapping};

impl Fault {
    /// Writes the PTE, and those of the pages around or of the rest of a folio. False if what was to be mapped has left
    /// memory meanwhile: the fault has to look again. Errors: the page table is full.
    pub(super) fn install(&mut self, os: &mut Os) -> Result<bool, EngineError> {
        let (space, page) = (self.space.index, self.page);
        let leaf = self.leaf(os);
        let layer = self.layer(os);
        let mapped = match (self.work, leaf) {
            (Work::Cached { file, page: number }, _) => self.map_cached(layer, file, number)?,
            (Work::Reuse, Leaf::Present(old)) => {
                layer.remap(space, page, Mapping { flags: self.flags, ..old });
                1
            }
            (Work::SwapIn | Work::SwapCached, _) => self.map_swapped(layer)?,
            (_, Leaf::Present(old)) => {
                layer.remap(space, page, self.mapping());
                layer.put_page(&old);
                os.invalid.push((self.space, vec![VaRange { start: page, end: self.end() }]));
                1
            }
            (Work::Shared { page: number, present }, _) => {
                match layer.pages.object(number) {
                    _ if present => {}
                    // Another process was faster.
                    Some(theirs) => {
                        layer.free_block(self.frame, 0);
                        layer.pages.share(theirs);
                        self.frame = theirs;
                    }
                    None => layer.pages.set_object(number, self.frame),
                }
                layer.map(space, page, self.mapping())?;
                1
            }
            (_, Leaf::NotPresent { .. }) => {
                // Of a folio every page has a PTE; a large page has one.
                let ptes = 1_u64 << (self.order - self.size.order());
                for n in 0..ptes {
                    let pfn = Pfn(self.frame.0 + n);
                    layer.map(space, VirtAddr(page.0 + n * FRAME_BYTES), Mapping { pfn, ..self.mapping() })?;
                }
                if let Some(shared) = layer.swap().and_then(|swap| swap.remove(space, page)) {
                    // A copy of what others have read back.
                    layer.put_frame(shared);
                }
                ptes
            }
        };
        if mapped == 0 {
            return Ok(false);
        }
        let layer = self.layer(os);
        if self.work.allocates() {
            for n in 0..1 << (self.order - self.size.order()) {
                layer.list_page(&Mapping { pfn: Pfn(self.frame.0 + n), ..self.mapping() });
            }
        }
        self.count_mapped(os, mapped);
        Ok(true)
    }

    fn mapping(&self) -> Mapping {
        Mapping { pfn: self.frame, size: self.size, flags: self.flags }
    }

    /// Maps a page of the page cache and those around it that are there; returns how many, 0 if it itself is not.
    fn map_cached(&mut self, layer: &mut Layer, file: u32, number: u64) -> Result<u64, EngineError> {
        let Some(frame) = layer.pages.cached(file, number) else { return Ok(0) };
        self.frame = frame;
        let space = self.space.index;
        let mut mapped = 0;
        for at in pages(self.around) {
            let number = number.wrapping_add(at.0 >> FRAME_SHIFT).wrapping_sub(self.page.0 >> FRAME_SHIFT);
            if let Some(pfn) = layer.pages.cached(file, number)
                && layer.is_unmapped(space, at)
                && layer.swap().is_none_or(|swap| swap.find(space, at).is_none())
            {
                layer.map(space, at, Mapping { pfn, ..self.mapping() })?;
                mapped += 1;
            }
        }
        // Another fault's window may have had the page itself by now.
        Ok(mapped.max(1))
    }

    /// Maps a page that was read back from the swap device, by this fault or by another user; 0 if it has left again.
    fn map_swapped(&mut self, layer: &mut Layer) -> Result<u64, EngineError> {
        let (space, page) = (self.space.index, self.page);
        let own = (self.work == Work::SwapIn).then_some(self.frame);
        let swap = layer.swap().expect("the page was swapped out");
        match (swap.find(space, page).expect("mappings do not change during a fault"), own) {
            (Swapped::OnDevice, Some(frame)) => {
                let others = swap.read(space, page, frame, self.intent != super::Intent::Store);
                (0..others).for_each(|_| layer.pages.share(frame));
                self.flags.writable &= others == 0;
                layer.reclaim.as_mut().expect("it has a swap area").counters.swapped_in += 1;
            }
            (Swapped::OnDevice, None) => return Ok(0),
            (Swapped::InMemory(frame), own) => {
                swap.remove(space, page);
                if let Some(own) = own {
                    layer.free_block(own, 0);
                }
                self.frame = frame;
                self.flags.writable &= layer.pages.are_exclusive(frame, 0);
            }
        }
        self.flags.dirty &= self.flags.writable;
        layer.map(space, page, self.mapping())?;
        Ok(1)
    }

    fn count_mapped(&mut self, os: &mut Os, mapped: u64) {
        let (work, exception, size, order) = (self.work, self.exception, self.size, self.order);
        let counters = self.counters(os);
        match work {
            Work::ZeroPage => counters.zero_page += 1,
            Work::Copy { .. } => counters.copied += 1,
            Work::Reuse => counters.reused += 1,
            Work::Cached { .. } => {
                (counters.cached, counters.around) = (counters.cached + 1, counters.around + mapped - 1);
            }
            Work::Fresh if size == PageSize::Size4K && order > 0 => counters.folios[order as usize] += 1,
            _ => {}
        }
        counters.populated += if exception { 0 } else { mapped };
        counters.pages[size as usize] += mapped;
    }

    /// Takes frames for the pages of a file that are read together: those that are not in memory; returns them with their
    /// numbers.
    pub(super) fn take_window(&mut self, os: &mut Os, file: u32, page: u64) -> Vec<(u64, Pfn)> {
        let bytes = os.costs.read_ahead_bytes.0;
        let va = self.va;
        let layer = &mut os.layers[usize::from(self.space.layer)];
        let vma = layer.spaces[self.space.index as usize].vmas.find(va).expect("mappings do not change during a fault");
        debug_assert_eq!(file_page(vma, va), page);
        let window = self.read_window(vma, page, bytes);
        let mut taken: Vec<(u64, Pfn)> = Vec::new();
        // The page itself first, should there be no room for all.
        for number in std::iter::once(page).chain(window.clone().filter(|&number| number != page)) {
            let is_new = |_: &Layer, n| !taken.iter().any(|&(other, _)| other == n);
            if layer.pages.cached(file, number).is_none()
                && is_new(layer, number)
                && let Some(folio) = layer.take_cache_folio(file, number, &window, &is_new)
            {
                taken.extend(folio.pages());
            }
        }
        taken
    }

    /// Pages of a file have been read.
    pub(super) fn finish_read(&mut self, os: &mut Os, file: u32, read: &[(u64, Pfn)]) {
        let layer = self.layer(os);
        for &(number, frame) in read {
            if layer.pages.cached(file, number).is_some() {
                // Another handler was faster.
                layer.free_block(frame, 0);
            } else {
                layer.cache_page(file, number, frame);
            }
        }
    }
}
