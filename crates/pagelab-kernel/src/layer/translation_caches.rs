//! The translation caches of a layer's spaces.

use crate::config::{CacheOwner, InvalidationCause};
use crate::context::KernelContext;
use crate::frames::frame_alloc::FramePurpose;
use crate::layer::Layer;
use crate::translation_cache::{CacheLayout, LOWEST, Object, TranslationCaches};
use crate::vma::VaRange;
use pagelab_base::addr::{FRAME_SHIFT, PhysAddr, VirtAddr};
use pagelab_base::ids::{CpuId, SpaceIx};
use pagelab_base::page_fault::Reached;
use pagelab_tables::page_table::{Leaf, WalkList};

impl Layer {
    /// What an aborted hardware walk reports to the handler, if anything.
    #[cold]
    pub fn reached(&self, space: SpaceIx, list: &WalkList) -> Option<Reached> {
        let caches = self.mechanisms.translation_caches.as_ref()?;
        let last = list.refs().last().filter(|_| caches.layout.is_none())?;
        Some(Reached { level: last.level, entry: last.addr, freed: self.spaces[space].caches.freed })
    }

    /// Whether the hardware's report is still valid.
    pub fn still_holds(&self, space: SpaceIx, reached: &Reached) -> bool {
        self.spaces[space].caches.freed == reached.freed
    }

    /// Key of the owner of the cache for an address.
    fn cache_key(&self, space: SpaceIx, cpu: CpuId, va: VirtAddr) -> Option<u64> {
        match self.mechanisms.translation_caches.as_ref()?.owner()? {
            CacheOwner::Vma => Some(self.spaces[space].vmas.find(va)?.start.0),
            CacheOwner::Mm => Some(0),
            CacheOwner::Cpu => Some(cpu.number().into()),
        }
    }

    /// The layout of caches, and the address of the cache for an address, if it exists.
    pub fn translation_cache(&self, space: SpaceIx, cpu: CpuId, va: VirtAddr) -> Option<(&CacheLayout, PhysAddr)> {
        let caches = self.mechanisms.translation_caches.as_ref()?;
        let layout = caches.layout.as_ref()?;
        let objects = if caches.is_shared() { &caches.of_cpus } else { &self.spaces[space].caches.objects };
        Some((layout, objects.get(&self.cache_key(space, cpu, va)?)?.at))
    }

    /// Creates the cache for an address if there is none; true if it is new.
    pub fn make_translation_cache(&mut self, space: SpaceIx, cpu: CpuId, va: VirtAddr) -> bool {
        let context = KernelContext::on(cpu);
        let Some(key) = self.cache_key(space, cpu, va) else { return false };
        if self.translation_cache(space, cpu, va).is_some() {
            return false;
        }
        let end = self.spaces[space].vmas.find(va).map_or(va, |vma| vma.end);
        let caches = self.mechanisms.translation_caches.as_mut().expect("it has owners of caches");
        let acting = context.cpu;
        let take = |order| self.memory.frames.alloc(order, FramePurpose::KernelObject, acting);
        let Some(at) = caches.slab.alloc(&mut self.memory.contents, take) else {
            caches.counters.no_memory += 1;
            return false;
        };
        let shared = caches.is_shared().then_some(&mut caches.of_cpus);
        shared.unwrap_or(&mut self.spaces[space].caches.objects).insert(key, Object { at, end });
        true
    }

    /// Gives a space its first generation, in kernels with generations. False if that is all that is to be done: the
    /// walk's entries belong to no generation.
    pub fn begin_generation(&mut self, space: SpaceIx) -> bool {
        let caches = self.mechanisms.translation_caches.as_mut().expect("a walk has something to keep");
        let generation = &mut self.spaces[space].caches.generation;
        if caches.config.slots().is_none() || *generation > 0 {
            return true;
        }
        *generation = caches.next_generation();
        false
    }

    /// Fills the entries of levels `from` to `to` that a walk for an address reads.
    pub fn fill_translation_cache(&mut self, space: SpaceIx, cpu: CpuId, va: VirtAddr, (from, to): (u8, u8)) {
        let mut list = WalkList::new();
        self.spaces[space].table.walk(&self.memory.contents, va, &mut list);
        let Some((&layout, object)) = self.translation_cache(space, cpu, va) else { return };
        let generation = self.spaces[space].caches.generation;
        let counters = &mut self.mechanisms.translation_caches.as_mut().expect("it has objects").counters;
        for entry in list.refs().iter().filter(|entry| (from..=to).contains(&entry.level)) {
            let key = (entry.level, entry.addr);
            counters.fills += u64::from(layout.fill(&mut self.memory.contents, object, key, va, generation));
        }
    }

    /// Moves the cache of a stack that has grown.
    pub fn grow_translation_cache(&mut self, context: KernelContext, space: SpaceIx, old: VirtAddr) {
        if self.owner_is_vma() {
            let address_space = &mut self.spaces[space];
            let Some(start) = address_space.vmas.find(old).map(|vma| vma.start.0) else { return };
            if let Some(object) = address_space.caches.objects.remove(&old.0) {
                match address_space.caches.objects.entry(start) {
                    std::collections::btree_map::Entry::Vacant(place) => _ = place.insert(object),
                    std::collections::btree_map::Entry::Occupied(_) => self.free_object(context, object),
                }
            }
        }
    }

    fn owner_is_vma(&self) -> bool {
        self.mechanisms.translation_caches.as_ref().and_then(TranslationCaches::owner) == Some(CacheOwner::Vma)
    }

    fn free_object(&mut self, context: KernelContext, object: Object) {
        let caches = self.mechanisms.translation_caches.as_mut().expect("it has objects");
        let (order, acting) = (caches.slab.order(), context.cpu);
        caches.slab.free(&mut self.memory.contents, object.at, |block| self.memory.frames.free(block, order, acting));
    }

    /// Frees the caches of mappings that began in a range and were removed from it.
    pub fn drop_translation_caches(
        &mut self,
        context: KernelContext,
        space: SpaceIx,
        range: VaRange,
        cause: InvalidationCause,
    ) {
        if self.owner_is_vma() {
            self.drop_objects(context, space, cause, |start| range.contains(VirtAddr(start)));
        }
    }

    /// Frees all caches of an address space, and ends its generation.
    pub fn drop_all_translation_caches(&mut self, context: KernelContext, space: SpaceIx) {
        let Some(caches) = self.mechanisms.translation_caches.as_ref() else { return };
        if caches.performs(InvalidationCause::Exit) {
            self.spaces[space].caches.generation = 0;
        }
        self.drop_objects(context, space, InvalidationCause::Exit, |_| true);
        if self.spaces.iter().all(|space| space.caches.generation == 0) {
            let of_cpus = self.mechanisms.translation_caches.as_mut().map(|caches| std::mem::take(&mut caches.of_cpus));
            of_cpus.into_iter().flatten().for_each(|(_, object)| self.free_object(context, object));
        }
    }

    fn drop_objects(
        &mut self,
        context: KernelContext,
        space: SpaceIx,
        cause: InvalidationCause,
        covers: impl Fn(u64) -> bool,
    ) {
        let Some(caches) = self.mechanisms.translation_caches.as_mut().filter(|caches| caches.performs(cause)) else {
            return;
        };
        let objects = &mut self.spaces[space].caches.objects;
        let keys: Vec<u64> = objects.keys().copied().filter(|&key| covers(key)).collect();
        let gone: Vec<Object> = keys.iter().filter_map(|key| objects.remove(key)).collect();
        gone.iter().for_each(|_| caches.invalidated(cause));
        gone.into_iter().for_each(|object| self.free_object(context, object));
    }

    /// Empties the caches that may point to page-table pages of a range that have been freed.
    pub fn forget_freed_tables(&mut self, space: SpaceIx, range: VaRange, cause: InvalidationCause) {
        let Some(caches) = self.mechanisms.translation_caches.as_mut().filter(|caches| caches.performs(cause)) else {
            return;
        };
        if caches.config.slots().is_some() {
            return self.renew_generation(space, range, cause);
        }
        self.spaces[space].caches.freed += 1;
        let Some(owner) = caches.owner() else { return caches.invalidated(cause) };
        let objects = &self.spaces[space].caches.objects;
        let stale: Vec<Object> = match owner {
            CacheOwner::Mm | CacheOwner::Cpu => objects.values().copied().collect(),
            CacheOwner::Vma => {
                let around = self.missing_around(space, range);
                let parts = self.spaces[space].vmas.iter().filter(|vma| vma.range().overlaps(around));
                parts.filter_map(|vma| objects.get(&vma.start.0).copied()).collect()
            }
        };
        let caches = self.mechanisms.translation_caches.as_mut().expect("it has objects");
        for object in stale {
            caches.slab.wipe(&mut self.memory.contents, object.at);
            caches.invalidated(cause);
        }
    }

    /// Invalidates the entries of a space's caches by a new generation, if PMD tables were freed and not only tables of
    /// PTEs (Linux `free_pmd_range`, and `move_normal_pud`).
    fn renew_generation(&mut self, space: SpaceIx, range: VaRange, cause: InvalidationCause) {
        let around = self.missing_around(space, range);
        let of_pmd_table = 1 << (FRAME_SHIFT + 9 * u32::from(LOWEST));
        let caches = self.mechanisms.translation_caches.as_mut().expect("it has slots");
        let generation = &mut self.spaces[space].caches.generation;
        if *generation > 0 && around.end - around.start >= of_pmd_table {
            *generation = caches.next_generation();
            caches.invalidated(cause);
        }
    }

    /// Handles a table of level 1 that khugepaged has freed: no array points to such tables, but a report of the
    /// hardware may.
    pub fn forget_leaf_table(&mut self, space: SpaceIx) {
        let cause = InvalidationCause::Collapse;
        if let Some(caches) = &mut self.mechanisms.translation_caches
            && caches.layout.is_none()
            && caches.performs(cause)
        {
            self.spaces[space].caches.freed += 1;
            caches.invalidated(cause);
        }
    }

    /// A range, extended to everything that the entries map at which walks for its edges end: no table was freed
    /// beyond.
    fn missing_around(&self, space: SpaceIx, range: VaRange) -> VaRange {
        let span = |va: VirtAddr| {
            let mut list = WalkList::new();
            self.spaces[space].table.walk(&self.memory.contents, va, &mut list);
            let level = if let Leaf::NotPresent { level, .. } = list.leaf { level } else { 1 };
            1_u64 << (FRAME_SHIFT + 9 * u32::from(level - 1))
        };
        let last = range.end - 1;
        let start = range.start.0 & !(span(range.start) - 1);
        VaRange { start: VirtAddr(start), end: VirtAddr((last.0 | (span(last) - 1)) + 1) }
    }

    /// Updates caches after changes of mappings: empties those of mappings that were split, and frees those of mappings
    /// that were merged into the one before.
    pub fn follow_mappings(&mut self, context: KernelContext, space: SpaceIx) {
        if !self.owner_is_vma() {
            return;
        }
        let address_space = &mut self.spaces[space];
        let (mut cut, mut joined) = (Vec::new(), Vec::new());
        for (&key, object) in &mut address_space.caches.objects {
            let Some(vma) = address_space.vmas.find(VirtAddr(key)) else { continue };
            if vma.start.0 < key {
                joined.push(key);
            } else if vma.end < std::mem::replace(&mut object.end, vma.end) {
                cut.push(object.at);
            }
        }
        let caches = self.mechanisms.translation_caches.as_mut().expect("mappings have caches");
        // With generations, entries stay valid for any mapping.
        let needed = caches.performs(InvalidationCause::Split) && caches.config.slots().is_none();
        for object in cut {
            if needed {
                caches.slab.wipe(&mut self.memory.contents, object);
                caches.invalidated(InvalidationCause::Split);
            }
        }
        self.drop_objects(context, space, InvalidationCause::Merge, |key| joined.contains(&key));
    }

    /// Number of frames of translation caches.
    pub fn translation_cache_frames(&self) -> u64 {
        self.mechanisms.translation_caches.as_ref().map_or(0, |caches| caches.slab.frames())
    }
}
