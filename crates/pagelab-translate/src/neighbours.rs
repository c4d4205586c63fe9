//! The neighbours of a page: whose entries are in the line that a walk for the page reads last.
//!
//! A line of a radix table has the entries of eight pages of 4 KiB. Other tables may have fewer of them in one line.
//! Which these are, the page table says ([`PageGroup`]). No reference is made, and no state changes.

use arrayvec::ArrayVec;

use crate::hardware::Hardware;
use crate::tlb_organisation::Run;
use crate::translation_unit::{FreeDistance, GROUP};
use crate::walker::TranslationRequest;
use pagelab_base::addr::{FRAME_SHIFT, PageSize, PhysAddr, VirtAddr};
use pagelab_base::ids::{CoreId, SpaceId};
use pagelab_base::translation::Translation;
use pagelab_kernel::layer::Layer;
use pagelab_tables::page_table::{Leaf, Mapping, PageGroup, WalkList};

/// A neighbour of a page, see the module's text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neighbour {
    /// First address of its page.
    pub va: VirtAddr,
    /// Pages from the page that was walked for.
    pub distance: FreeDistance,
    /// Its translation to the machine.
    pub translation: Translation,
}

impl Hardware {
    /// The neighbours of a page of 4 KiB that a walk found; none of another page. Only those that were accessed before:
    /// a TLB holds no others. In a guest, only those whose frames the core's nested TLB holds.
    pub(crate) fn neighbours(
        &self,
        layers: &[Layer],
        core: CoreId,
        space: SpaceId,
        va: VirtAddr,
    ) -> ArrayVec<Neighbour, { GROUP as usize - 1 }> {
        let layer = &layers[space.layer];
        let group = layer.spaces[space.index].table.group(&layer.memory.contents, va);
        let page = va.0 >> FRAME_SHIFT;
        let first = page & !(GROUP - 1);
        let others = (first..).zip(group.iter().flat_map(|group| group.pages)).filter(|&(other, _)| other != page);
        let accessed = others.filter_map(|(other, mapping)| Some((other, mapping.filter(|page| page.flags.accessed)?)));
        let neighbour = |(other, mapping): (u64, Mapping)| {
            let va = VirtAddr(other << FRAME_SHIFT);
            let translation = self.to_machine(layers, core, space, va, Translation::from_mapping(&mapping))?;
            Some(Neighbour { va, distance: other.wrapping_sub(page) as FreeDistance, translation })
        };
        accessed.filter_map(neighbour).collect()
    }

    /// The neighbours of a page of 4 KiB that a walk has just found which continue its run: their frames keep the
    /// distance, and their attributes but the dirty bit are equal. Only those that were accessed before.
    ///
    /// In a guest, the run must continue in every layer, so it is the smaller one of all: the host's entries of the
    /// pages are in one line, too, or it maps them by a large page. A nested TLB that spared the host's walk is taken
    /// to know as much.
    #[inline(never)]
    pub(crate) fn run(&self, layers: &[Layer], space: SpaceId, va: VirtAddr, found: Translation) -> Run {
        let mut run = Run::ALONE;
        if found.size() != PageSize::Size4K {
            return run;
        }
        let own = (va.0 >> FRAME_SHIFT) % GROUP;
        let mut pages = RunPages { own: own as i64, dirty: [Some(true); GROUP as usize] };
        pages.dirty[own as usize] = None;
        let frame = pages.keep_run(layers, space, va);
        // A nested TLB may still have an older translation, whose shootdown is under way.
        if frame == Some(found.page().0 >> FRAME_SHIFT) {
            pages.each().for_each(|(distance, dirty)| run.add(distance, dirty));
        }
        run
    }

    /// Whether the page of an access is in a run of at least so many pages of 4 KiB in every layer: virtually and
    /// physically next to each other in that layer. A layer's kernel marks such pages in its page table, and a walk
    /// reads the marks. The composed translation must be that of the tables: a nested TLB may be behind.
    pub(crate) fn is_in_run(
        &self,
        layers: &[Layer],
        wanted: &TranslationRequest,
        found: Translation,
        pages: u64,
    ) -> bool {
        is_in_run_from(layers, wanted.space, wanted.va, pages) == Some(found.address(wanted.va).0 >> FRAME_SHIFT)
    }

    /// Translates what an entry of a space says down to the machine, without references.
    fn to_machine(
        &self,
        layers: &[Layer],
        core: CoreId,
        space: SpaceId,
        va: VirtAddr,
        found: Translation<PhysAddr>,
    ) -> Option<Translation> {
        let Some(host) = layers[space.layer].host else { return Some(found.on_bare_machine()) };
        let asid = layers[host.layer].spaces[host.index].asid;
        let nested = &self.units[core].nested.as_ref()?.unit;
        let below = nested.peek(asid, VirtAddr(found.address(va).0))?;
        Some(found.through(va, below))
    }
}

/// Pages of a group that may continue the run of one of them.
struct RunPages {
    /// Index of that one.
    own: i64,
    /// Of a page that continues the run, whether it is dirty in all layers so far.
    dirty: [Option<bool>; GROUP as usize],
}

impl RunPages {
    /// Distance from the run's own page, and whether it is dirty, of those that continue the run.
    fn each(&self) -> impl Iterator<Item = (i64, bool)> {
        (-self.own..).zip(self.dirty).filter_map(|(distance, dirty)| Some((distance, dirty?)))
    }

    /// Keeps those pages around an address of a space that continue its run, in its layer and those below. Returns the
    /// machine frame of the address.
    fn keep_run(&mut self, layers: &[Layer], space: SpaceId, va: VirtAddr) -> Option<u64> {
        let layer = &layers[space.layer];
        let group = layer.spaces[space.index].table.group(&layer.memory.contents, va)?;
        for (distance, dirty) in (-self.own..).zip(&mut self.dirty) {
            *dirty = dirty.and_then(|dirty| Some(dirty & is_next_dirty(&group, va, distance)?));
        }
        let target = Translation::<PhysAddr>::from_mapping(&group.own).address(va);
        match layer.host {
            None => Some(target.0 >> FRAME_SHIFT),
            Some(host) => self.keep_run(layers, host, VirtAddr(target.0)),
        }
    }
}

/// Whether the page that is so many pages from `va` is dirty, if it continues the run of the page at `va`, of which
/// this is the group.
fn is_next_dirty(group: &PageGroup, va: VirtAddr, distance: i64) -> Option<bool> {
    let own = &group.own;
    if own.size != PageSize::Size4K {
        let other = va.0.wrapping_add((distance << FRAME_SHIFT) as u64);
        return ((other ^ va.0) & !own.size.offset_mask() == 0).then_some(own.flags.dirty);
    }
    let page = group.at(va, distance)?;
    let keeps_distance = page.pfn.0.wrapping_sub(own.pfn.0) as i64 == distance;
    let is_alike = page.flags.accessed && page.flags.writable == own.flags.writable;
    (keeps_distance && is_alike).then_some(page.flags.dirty)
}

/// The machine frame of an address of a space, if it is in a run of that many pages in its layer and those below.
fn is_in_run_from(layers: &[Layer], space: SpaceId, va: VirtAddr, pages: u64) -> Option<u64> {
    let layer = &layers[space.layer];
    let (table, mem) = (&layer.spaces[space.index].table, &layer.memory.contents);
    let group = table.group(mem, va)?;
    let own = Translation::<PhysAddr>::from_mapping(&group.own).address(va).0 >> FRAME_SHIFT;
    let mut list = WalkList::new();
    // A page outside of the group needs a walk.
    let mut frame_at = |distance: i64| -> Option<u64> {
        if let Some(page) = group.at(va, distance) {
            return Some(page.pfn.0);
        }
        let va = VirtAddr(va.0.wrapping_add((distance << FRAME_SHIFT) as u64));
        table.walk_by_hardware(mem, va, &mut list);
        let Leaf::Present(mapping) = list.leaf else { return None };
        Some(Translation::<PhysAddr>::from_mapping(&mapping).address(va).0 >> FRAME_SHIFT)
    };
    // Pages of the run in one direction, at most as many as are missing.
    let mut beside = |step: i64, most: u64| {
        let follows = |&n: &i64| frame_at(n * step) == Some(own.wrapping_add((n * step) as u64));
        (1..=most as i64).take_while(follows).count() as u64
    };
    let mut run = 1 + beside(-1, pages - 1);
    run += beside(1, pages - run);
    if run < pages {
        return None;
    }
    match layer.host {
        None => Some(own),
        Some(host) => is_in_run_from(layers, host, VirtAddr(own << FRAME_SHIFT), pages),
    }
}
