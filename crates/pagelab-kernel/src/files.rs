//! Events of files that change their mappings: a file is truncated or gets a hole, or its blocks move.
//!
//! Models: truncation removes the pages after the new end from all processes that map them, copies included, and from
//! the page cache; contents that were not written are lost. A hole does the same to the pages inside it, but private
//! copies stay. Data that are written to a file in memory become pages of it. A file system that moves blocks rewrites
//! the entries that name them. All but data wait for faults on the mappings, for misses that an engine handles, and for
//! pages that are being written.
//! Source: Linux mm/truncate.c (`truncate_pagecache`, `truncate_pagecache_range`), mm/memory.c
//! (`unmap_mapping_range`), mm/shmem.c (`shmem_fallocate`), fs/ext4/move_extent.c; for engines Lee, Jin et al., "A Case
//! for Hardware-Based Demand Paging" (entries that name blocks).
//! Deviations: the call only takes the cycles of invalidating translations and writing entries. The reads and writes
//! that move the blocks are another program's work, and are not simulated.

use std::ops::Range;
use std::sync::Arc;

use crate::context::KernelContext;
use crate::entry_word::EntryWord;
use crate::invalidation::Invalidation;
use crate::layer::Layer;
use crate::mapping::{remove_pages, remove_pages_of_file};
use crate::os::Os;
use crate::vma::{VaRange, Vma};
use pagelab_base::addr::FRAME_BYTES;
use pagelab_base::error::EngineError;
use pagelab_base::ids::{CpuId, LayerId, SpaceId, SpaceIx};
use pagelab_base::io::Lba;
use pagelab_base::step::BlockKey;
use pagelab_trace::EventKind;

/// The pages of a file that an event changes.
pub struct FilePart<'a> {
    name: &'a Arc<str>,
    pages: Range<u64>,
    /// Whether private copies of the pages stay.
    keeps_copies: bool,
}

impl<'a> FilePart<'a> {
    /// The pages that an event changes; `None` for an event that changes no file.
    pub fn from_event(event: &'a EventKind) -> Option<Self> {
        match event {
            EventKind::Truncate { file: name, old_len, new_len } if old_len != new_len => {
                let pages = old_len.min(new_len).div_ceil(FRAME_BYTES)..u64::MAX / FRAME_BYTES;
                Some(Self { name, pages, keeps_copies: false })
            }
            EventKind::FileHole { file: name, offset, len } => {
                let pages = offset.div_ceil(FRAME_BYTES)..offset.saturating_add(*len) / FRAME_BYTES;
                (!pages.is_empty()).then_some(Self { name, pages, keeps_copies: true })
            }
            EventKind::Relocate { file: name, offset, len } if *len > 0 => {
                Some(Self { name, pages: pages_of(*offset, *len), keeps_copies: true })
            }
            _ => None,
        }
    }

    /// The part of a mapping that has these pages.
    fn inside(&self, vma: &Vma) -> Option<VaRange> {
        vma.range_of_pages(&self.pages).filter(|_| vma.file.as_ref() == Some(self.name))
    }

    /// Where these pages are mapped in a layer's address spaces.
    fn places(&self, layer: &Layer) -> Vec<(SpaceIx, VaRange)> {
        let of_space = |index| layer.spaces[index].vmas.iter().filter_map(move |vma| Some((index, self.inside(vma)?)));
        layer.spaces.numbers().flat_map(of_space).collect()
    }
}

/// The pages that some bytes of a file are in.
fn pages_of(offset: u64, len: u64) -> Range<u64> {
    offset / FRAME_BYTES..offset.saturating_add(len).div_ceil(FRAME_BYTES)
}

impl Os {
    /// The key that an event of a file must wait for, if any.
    pub fn file_block_key(&self, id: LayerId, part: &FilePart<'_>) -> Option<BlockKey> {
        let layer = &self.layers[id];
        for (index, range) in part.places(layer) {
            let space = SpaceId { layer: id, index };
            if !self.locks.may_change(space, Some(range), self.costs.fault_lock) {
                return Some(BlockKey::Mappings { space });
            }
            if let Some(key) = self.engine_block_key(space) {
                return Some(key);
            }
        }
        let lba = layer.memory.page_use.written_back(layer.memory.page_use.known_file(part.name)?, &part.pages)?;
        Some(BlockKey::Writeback { layer: id, lba })
    }

    /// Carries out an event of a file in a layer. Returns the invalidated translations by address space.
    pub fn change_file(
        &mut self,
        cpu: CpuId,
        layer: LayerId,
        event: &EventKind,
    ) -> Result<Vec<(SpaceId, Invalidation)>, EngineError> {
        if let EventKind::FileData { file, offset, len } = event {
            let page_use = &mut self.layers[layer].memory.page_use;
            let file = page_use.file(file);
            page_use.memory_files_mut().add_data(file, pages_of(*offset, *len));
            return Ok(Vec::new());
        }
        let Some(part) = FilePart::from_event(event) else { return Ok(Vec::new()) };
        self.mapping.calls += 1;
        if let EventKind::Relocate { .. } = event {
            self.relocate(cpu, layer, &part)?;
            return Ok(Vec::new());
        }
        let mut gone = Vec::new();
        for (index, range) in part.places(&self.layers[layer]) {
            let space = SpaceId { layer, index };
            self.account_for_taken(space);
            let context = self.layers[layer].context(cpu, index);
            let remove = if part.keeps_copies { remove_pages_of_file } else { remove_pages };
            let pages = remove(context, &mut self.layers[layer], index, range)?;
            self.mapping.pages_unmapped += pages;
            let mut of_space = Invalidation::default();
            of_space.add(range, pages);
            gone.push((space, of_space));
        }
        self.mapping.pages_cut += self.layers[layer].cut_file(KernelContext::on(cpu), &part);
        Ok(gone)
    }

    /// Punches a hole into a file in memory where `range` of a mapping shows it (`MADV_REMOVE`). Returns the
    /// translations that are gone, by address space; none if the mapping is of another file.
    pub fn punch_memory_file(
        &mut self,
        cpu: CpuId,
        space: SpaceId,
        range: VaRange,
    ) -> Result<Vec<(SpaceId, Invalidation)>, EngineError> {
        let layer = &mut self.layers[space.layer];
        let Some(vma) = layer.spaces[space.index].vmas.find(range.start).cloned() else { return Ok(Vec::new()) };
        let Some(file) = layer.memory_file(&vma) else { return Ok(Vec::new()) };
        let pages = vma.file_page(range.start)..vma.file_page(range.start) + range.pages();
        let mut gone = Vec::new();
        for (index, place) in layer.places_of_memory_file(&vma, &pages) {
            let context = layer.context(cpu, index);
            let count = remove_pages_of_file(context, layer, index, place)?;
            let mut of_space = Invalidation::default();
            of_space.add(place, count);
            gone.push((SpaceId { layer: space.layer, index }, of_space));
        }
        for frame in layer.memory.page_use.cut(file, pages) {
            layer.free_block(KernelContext::on(cpu), frame, 0);
        }
        Ok(gone)
    }

    fn relocate(&mut self, cpu: CpuId, id: LayerId, part: &FilePart<'_>) -> Result<(), EngineError> {
        let layer = &mut self.layers[id];
        let places = part.places(layer);
        if layer.storage().is_none() {
            return Ok(());
        }
        let Some(pages) = layer.move_blocks(part) else {
            self.mapping.relocations_refused += 1;
            return Ok(());
        };
        self.mapping.pages_relocated += pages;
        let each = layer.mechanisms.engine.as_ref().and_then(|engine| engine.fills_at_once());
        for (index, range) in places {
            let context = layer.context(cpu, index);
            for word in layer.words(index, range) {
                if let EntryWord::Stored(_) = word.word {
                    layer.take_word(index, word.va);
                    layer.put_armed(context, index, word.va, word.size)?;
                    self.mapping.fill_cycles += each.expect("such words are an engine's");
                }
            }
        }
        Ok(())
    }
}

impl Layer {
    /// Removes pages of a file that no process maps any more from the page cache, and discards their blocks. Returns
    /// the number of pages that were in memory.
    fn cut_file(&mut self, context: KernelContext, part: &FilePart<'_>) -> u64 {
        let pages = || part.pages.clone();
        let known = self.memory.page_use.known_file(part.name);
        // If no process has mapped the file, nothing of it is in memory.
        let frames = known.map_or(Vec::new(), |file| self.memory.page_use.cut(file, pages()));
        let file = self.memory.page_use.file(part.name);
        let in_memory = self.memory.page_use.memory_files().contains(file);
        // Without storage, pages of other files stay in memory and are charged to no cgroup.
        let charged = in_memory || self.storage().is_some();
        let free = if charged { Self::free_block } else { Self::free_uncharged };
        frames.iter().for_each(|&frame| free(self, context, frame, 0));
        if in_memory {
            return frames.len() as u64;
        }
        if let Some(storage) = self.memory.reclaim.as_mut().and_then(|reclaim| reclaim.storage.as_mut()) {
            storage.cut(file, pages());
        }
        if let Some(contents) = &mut self.memory.checked {
            contents.cut(file, pages());
        }
        frames.len() as u64
    }

    /// Moves pages of a file to other blocks. Returns the number of pages; `None` if storage has no free blocks.
    fn move_blocks(&mut self, part: &FilePart<'_>) -> Option<u64> {
        let file = self.memory.page_use.file(part.name);
        let storage = self.memory.reclaim.as_mut()?.storage.as_mut()?;
        let moved = storage.relocate(file, part.pages.clone())?;
        if let Some(contents) = &mut self.memory.checked {
            // All are read before any is written, since one page may move to another's old block.
            let pages = moved.iter().flat_map(|run| (0..run.pages).map(|n| (run.page + n, Lba(run.first.0 + n))));
            contents.relocate(pages.map(|(page, from)| ((file, page), from, storage.lba(file, page))));
        }
        Some(moved.iter().map(|run| run.pages).sum())
    }
}
