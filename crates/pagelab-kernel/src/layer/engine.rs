//! A layer's fault engine as its kernel uses it: armed entries, and pages that the engine has mapped.

use crate::context::KernelContext;
use crate::entry_word::EntryWord;
use crate::fault::largest_page;
use crate::fault_engine::kernel_side::{ArmingJob, EngineState, FilledPart, UnaccountedPage};
use crate::frames::page_use::FilePage;
use crate::layer::words::WordOf;
use crate::layer::{AddressSpace, Layer};
use crate::memory::Memory;
use crate::reclaim::Rmap;
use crate::vma::{VaRange, Vma};
use pagelab_base::addr::{FRAME_BYTES, PageSize, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::ids::{CpuId, SpaceId, SpaceIx};
use pagelab_base::io::DriveBlock;
use pagelab_base::step::BlockKey;
use pagelab_tables::page_table::{Leaf, Mapping, WalkList};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How the entries of a mapping are armed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArmingMode {
    /// Not at all.
    Nothing,
    /// By a thread of the engine, when it is woken.
    Thread,
    /// They have been armed, at this cost.
    Filled(Cycles),
    /// They have been armed, at this cost per entry and for the references of each part.
    FilledParts(Cycles, Vec<FilledPart>),
}

impl Layer {
    /// Whether faults on armed entries get ready frames.
    pub fn serves_faults(&self) -> bool {
        self.mechanisms.engine.as_ref().is_some_and(|engine| engine.serves_faults())
    }

    /// Whether programs make a system call of the engine ahead of accesses that would fault.
    pub fn calls_ahead(&self) -> bool {
        self.mechanisms.engine.as_ref().is_some_and(EngineState::calls_ahead)
    }

    /// Whether the process of a space does not have the engine: it has disabled it, or not enabled it yet.
    pub fn has_engine_off(&self, index: SpaceIx) -> bool {
        self.spaces[index].vmas.engine_is_off()
    }

    /// Whether faults take ready frames instead of allocating, armed or not.
    pub fn takes_in_faults(&self) -> bool {
        self.mechanisms.engine.as_ref().is_some_and(|engine| engine.in_fault().is_some())
    }

    /// A child has the engine if its parent had enabled it.
    pub fn inherit_engine(&mut self, parent: SpaceIx, child: SpaceIx) {
        if let Some(engine) = &mut self.mechanisms.engine {
            engine.inherit(parent, child);
        }
    }

    /// The word for the entry of a page until it is mapped, if the engine may map it.
    pub fn armed(&self, context: KernelContext, index: SpaceIx, va: VirtAddr) -> Option<EntryWord> {
        let engine = self.mechanisms.engine.as_ref()?;
        let space = &self.spaces[index];
        let vma = space.vmas.find(va).filter(|_| space.uses_fault_engine)?;
        engine.word(index, vma, self.stored_at(context, vma, self.file_of(vma), va))
    }

    /// The number of a mapping's file.
    fn file_of(&self, vma: &Vma) -> Option<u32> {
        self.memory.page_use.known_file(vma.file.as_ref()?)
    }

    /// Place on storage of a page of a file's mapping, if the page is not in memory and no page fault is reading it: an
    /// engine would read it into a second frame.
    fn stored_at(&self, context: KernelContext, vma: &Vma, file: Option<u32>, va: VirtAddr) -> Option<DriveBlock> {
        let (file, storage) = (file?, self.storage()?);
        let page = vma.file_page(va);
        let must_be_read = self.must_be_read(context, file, page) && !self.memory.page_use.is_read(file, page);
        must_be_read.then(|| storage.striping.place(storage.lba(file, page)))
    }

    /// Whether the layer's engine may map pages of the mapping at an address.
    pub fn is_served(&self, index: SpaceIx, va: VirtAddr) -> bool {
        let space = &self.spaces[index];
        let (engine, vma) = (self.mechanisms.engine.as_ref(), space.vmas.find(va).filter(|_| space.uses_fault_engine));
        engine.zip(vma).is_some_and(|(engine, vma)| engine.serves(index, vma))
    }

    /// Requests that the entries of a new mapping are armed.
    pub fn request_arming(&mut self, context: KernelContext, index: SpaceIx, range: VaRange) -> ArmingMode {
        if !self.is_served(index, range.start) || self.takes_in_faults() || self.has_engine_off(index) {
            return ArmingMode::Nothing;
        }
        let engine = self.mechanisms.engine.as_mut().expect("it serves the mapping");
        if let Some(each) = engine.fills_at_once() {
            let by_references = engine.fills_by_references();
            let parts = self.fill_entries(context, index, range);
            let entries: u64 = parts.iter().map(|part| part.entries).sum();
            return if by_references {
                ArmingMode::FilledParts(each, parts)
            } else {
                ArmingMode::Filled(entries * each)
            };
        }
        engine.queue_job(ArmingJob { space: index, range, arm: true });
        ArmingMode::Thread
    }

    /// Writes a word into the entry of each page of a range that should have one and has neither a word nor a
    /// translation, as long as there is enough memory for tables; returns what it has written, table by table.
    fn fill_entries(&mut self, context: KernelContext, index: SpaceIx, range: VaRange) -> Vec<FilledPart> {
        const TABLE: PageSize = PageSize::Size2M;
        let (mut filled, mut start) = (Vec::new(), range.start.0);
        while start < range.end.0 && !(start.is_multiple_of(TABLE.bytes()) && self.memory.is_low()) {
            let vma_end = self.spaces[index].vmas.find(VirtAddr(start)).map_or(u64::MAX, |vma| vma.end.0);
            let end = (start & !TABLE.offset_mask()).saturating_add(TABLE.bytes()).min(range.end.0).min(vma_end);
            let words = self.words_to_get(context, index, VaRange { start: VirtAddr(start), end: VirtAddr(end) });
            let space = &self.spaces[index];
            let tables = space.table.missing_tables(&self.memory.contents, VirtAddr(start), PageSize::Size4K);
            if self.put_words(context, index, &words).is_err() {
                break;
            }
            if let [first, .., last] | [first @ last] = &words[..] {
                let range = VaRange { start: first.va, end: last.range().end };
                filled.push(FilledPart { range, entries: words.len() as u64, tables });
            }
            start = end;
        }
        filled
    }

    /// The words for pages of one mapping that have neither a word nor a translation; their entries are in one table.
    fn words_to_get(&self, context: KernelContext, index: SpaceIx, range: VaRange) -> Vec<WordOf> {
        let (space, size) = (&self.spaces[index], PageSize::Size4K);
        let (Some(engine), Some(vma)) =
            (&self.mechanisms.engine, space.vmas.find(range.start).filter(|_| space.uses_fault_engine))
        else {
            return Vec::new();
        };
        let file = self.file_of(vma);
        let whole = self.is_untouched(index, range.start, PageSize::Size2M);
        let pages = (range.start.0..range.end.0).step_by(FRAME_BYTES as usize).map(VirtAddr);
        let word = |va| {
            let word = engine.word(index, vma, self.stored_at(context, vma, file, va))?;
            (whole || self.is_untouched(index, va, size)).then_some(WordOf { va, size, word })
        };
        pages.filter_map(word).collect()
    }

    /// The spaces with other mappings of a mapping's file: in other spaces any mapping, in its own only those of the
    /// same pages.
    fn sharers(&self, index: SpaceIx, vma: &Vma) -> Vec<SpaceIx> {
        let (name, pages) = (vma.file.as_ref(), vma.file_pages());
        let overlaps = |other: &Vma| other.file_pages().start < pages.end && pages.start < other.file_pages().end;
        let shares = |(space, other_space): (usize, &AddressSpace)| {
            let own = space == index.index();
            let mut others = other_space.vmas.iter().filter(|other| other.file.as_ref() == name);
            others.any(|other| !own || other.start != vma.start && overlaps(other)).then_some(SpaceIx::from(space))
        };
        self.spaces.iter().enumerate().filter_map(shares).collect()
    }

    /// Handles a new mapping of a file: if there are other mappings, the engine no longer serves the file. Returns the
    /// number of its mapped pages that were accounted for, and the cycles of removing words.
    pub fn note_sharing(
        &mut self,
        index: SpaceIx,
        range: VaRange,
        by_fork: bool,
    ) -> Result<(u64, Cycles), EngineError> {
        let each =
            self.mechanisms.engine.as_ref().filter(|engine| engine.maps_files()).and_then(EngineState::fills_at_once);
        let Some(each) = each else { return Ok((0, Cycles::ZERO)) };
        let vma = self.spaces[index].vmas.find(range.start).filter(|vma| vma.file.is_some());
        let Some(vma) = vma.cloned() else { return Ok((0, Cycles::ZERO)) };
        let mut sharers = self.sharers(index, &vma);
        if sharers.is_empty() {
            return Ok((0, Cycles::ZERO));
        }
        sharers.push(index);
        sharers.dedup();
        let name = vma.file.as_ref().expect("it is of a file");
        let engine = self.mechanisms.engine.as_mut().expect("it was there just now");
        engine.share(name, by_fork).map_err(|misfit| misfit.into_engine_error(&self.name))?;
        let (mut accounted, mut taken_back) = (0, 0);
        for index in sharers {
            accounted += self.account_for_taken(index);
            let vmas = &self.spaces[index].vmas;
            let of_file: Vec<VaRange> =
                vmas.iter().filter(|other| other.file.as_ref() == Some(name)).map(Vma::range).collect();
            let words: Vec<WordOf> = of_file.into_iter().flat_map(|range| self.words(index, range)).collect();
            for entry in words {
                if let EntryWord::Stored(_) = entry.word {
                    self.take_word(index, entry.va);
                    taken_back += 1;
                }
            }
        }
        Ok((accounted, taken_back * each))
    }

    /// The mappings of a space are gone. Returns those of other spaces whose file the engine serves again, since they
    /// are the only ones left.
    pub fn resume_service(&mut self, files: &BTreeSet<Arc<str>>) -> Vec<(SpaceIx, VaRange)> {
        let mut resumed = Vec::new();
        for file in files {
            if !self.mechanisms.engine.as_ref().is_some_and(|engine| engine.resumes(file)) {
                continue;
            }
            let spaces = self.spaces.iter().enumerate();
            let of_file = spaces.flat_map(|(index, space)| {
                let own = space.vmas.iter().filter(move |vma| vma.file.as_ref() == Some(file));
                own.map(move |vma| (SpaceIx::from(index), vma))
            });
            let left: Vec<(SpaceIx, &Vma)> = of_file.collect();
            let shares = |&(index, vma): &(SpaceIx, &Vma)| !self.sharers(index, vma).is_empty();
            if left.is_empty() || left.iter().any(shares) {
                continue;
            }
            let ranges: Vec<(SpaceIx, VaRange)> = left.into_iter().map(|(index, vma)| (index, vma.range())).collect();
            self.mechanisms.engine.as_mut().expect("it was there just now").resume(file);
            resumed.extend(ranges);
        }
        resumed
    }

    /// Updates the words of a range whose permissions have changed.
    pub fn protect_words(&mut self, context: KernelContext, index: SpaceIx, range: VaRange) -> Result<(), EngineError> {
        for WordOf { va, size, word } in self.words(index, range) {
            match word {
                EntryWord::Swap(_) => {}
                EntryWord::Armed(_) | EntryWord::Stored(_) => {
                    self.take_word(index, va);
                    self.put_armed(context, index, va, size)?;
                }
            }
        }
        Ok(())
    }

    /// Restores the word of a page that was armed before, if the engine may map the page. If the page may not be mapped
    /// whole, its parts are requested again. For a process that is no longer served, parts that a thread has passed are
    /// not armed again.
    pub fn put_armed(
        &mut self,
        context: KernelContext,
        index: SpaceIx,
        va: VirtAddr,
        size: PageSize,
    ) -> Result<(), EngineError> {
        let Some(word) = self.armed(context, index, va) else { return Ok(()) };
        let entry = WordOf { va, size, word };
        let may_be_whole = va.is_aligned(size.bytes()) && self.largest_page(index, va) >= size;
        if size == PageSize::Size4K || may_be_whole && self.is_untouched(index, va, size) {
            return self.put_word(context, index, entry);
        }
        self.spaces.cut.push((index, entry.range()));
        Ok(())
    }

    /// The largest page that the mapping at `va` allows there; 4 KiB without a mapping.
    pub fn largest_page(&self, index: SpaceIx, va: VirtAddr) -> PageSize {
        let vma = self.spaces[index].vmas.find(va);
        vma.map_or(PageSize::Size4K, |vma| largest_page(vma, va, self.paging.large_pages, self.paging.page_size))
    }

    /// The key that tasks hold to map a page: all pages of a place that may become one large page share the key of its
    /// first page.
    pub fn page_key(&self, space: SpaceId, va: VirtAddr) -> BlockKey {
        let order = self.largest_page(space.index, va).order();
        BlockKey::Page { space, page: va.page_number() >> order << order }
    }

    /// Accounts for all pages of a space that its engine has mapped. Returns the number of pages.
    pub fn account_for_taken(&mut self, index: SpaceIx) -> u64 {
        let Some(engine) = &self.mechanisms.engine else { return 0 };
        let mut taken = engine.used_for(index, &self.memory.contents);
        // The others are not mapped yet.
        taken.retain(|page| self.is_mapped_to(index, page));
        for &page in &taken {
            let engine = self.mechanisms.engine.as_mut().expect("it was there just now");
            engine.clear_used(index, page, &mut self.spaces[index].table, &mut self.memory.contents);
            self.account(index, page);
        }
        taken.len() as u64
    }

    /// Whether a page is mapped to the frame that its engine has taken for it.
    fn is_mapped_to(&self, index: SpaceIx, page: &UnaccountedPage) -> bool {
        let mut list = WalkList::new();
        self.spaces[index].table.walk(&self.memory.contents, page.va, &mut list);
        matches!(list.leaf, Leaf::Present(mapping) if (mapping.pfn, mapping.size) == (page.frame, page.size))
    }

    /// Calls a function with the engine, which must exist, and the memory.
    pub fn with_engine<T>(
        &mut self,
        context: KernelContext,
        act: impl FnOnce(&mut EngineState, &mut Memory) -> T,
    ) -> T {
        let mut engine = self.mechanisms.engine.take().expect("the layer has one");
        let outcome = act(&mut engine, &mut self.memory_for(context));
        self.mechanisms.engine = Some(engine);
        outcome
    }

    /// Restores the words of pages of files that were reclaimed and that the engine may map, as far as tables exist or
    /// there is memory for them.
    pub fn arm_again(&mut self, cpu: CpuId, pages: &[(SpaceIx, VirtAddr)]) {
        for &(index, va) in pages {
            let context = self.context(cpu, index);
            if self.is_served(index, va)
                && self.is_untouched(index, va, PageSize::Size4K)
                && self.put_armed(context, index, va, PageSize::Size4K).is_err()
            {
                return;
            }
        }
    }

    /// Accounts for a page that the engine has mapped: adds it to the reverse map and the LRU lists, for a file also to
    /// the page cache, and charges it.
    pub fn account(&mut self, index: SpaceIx, UnaccountedPage { va, size, frame, file, .. }: UnaccountedPage) {
        let mut list = WalkList::new();
        self.spaces[index].table.walk(&self.memory.contents, va, &mut list);
        let Leaf::Present(mapping) = list.leaf else { unreachable!("{va:?} of space {index} is not mapped") };
        assert_eq!((mapping.pfn, mapping.size), (frame, size), "{va:?} of space {index} is mapped to another frame");
        let group = self.spaces[index].group;
        if let Some(reclaim) = &mut self.memory.reclaim {
            reclaim.charge(frame, size.order(), group);
        }
        if let Some((file, page)) = file {
            self.cache_page(file, page, frame);
            self.note_mapped(index, va, &mapping, Rmap::add);
            return;
        }
        self.note_listed(index, va, &mapping);
    }

    /// The page of a file that is mapped at an address.
    pub fn file_page(&self, index: SpaceIx, va: VirtAddr) -> Option<FilePage> {
        let vma = self.spaces[index].vmas.find(va).filter(|vma| !vma.is_of_memory_file())?;
        Some((self.memory.page_use.known_file(vma.file.as_ref()?)?, vma.file_page(va)))
    }

    /// Maps a page to a ready frame. [`Self::account`] does the accounting later.
    pub fn map_ready(
        &mut self,
        context: KernelContext,
        index: SpaceIx,
        va: VirtAddr,
        mapping: Mapping,
    ) -> Result<(), EngineError> {
        self.take_word(index, va);
        self.map_unlisted(context, index, va, mapping)
    }
}
