//! The neighbours of a page: whose entries are in the line that a walk for the page reads last.
//!
//! A line of a radix table has the entries of eight pages of 4 KiB. Other tables may have fewer of them in one line.
//! The page table lists the walks of all eight pages, and their last references are compared, so this holds for every
//! page table. No reference is made, and no state changes.

use arrayvec::ArrayVec;

use crate::hardware::Hardware;
use crate::tlb_organisation::Run;
use crate::translation_unit::{FreeDistance, GROUP};
use crate::walker::TranslationRequest;
use pagelab_base::addr::{FRAME_SHIFT, LINE_SHIFT, PageSize, PhysAddr, VirtAddr};
use pagelab_base::ids::{CoreId, SpaceId};
use pagelab_base::translation::Translation;
use pagelab_kernel::layer::Layer;
use pagelab_tables::page_table::{Leaf, Mapping, WalkList};

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
        let (table, mem) = (&layer.spaces[space.index].table, &layer.memory.contents);
        let mut list = WalkList::new();
        let mut leaf = |va: VirtAddr| -> Option<(u64, Mapping)> {
            table.walk_by_hardware(mem, va, &mut list);
            match (list.leaf, list.refs().last()) {
                (Leaf::Present(mapping), Some(last)) if mapping.size == PageSize::Size4K => {
                    Some((last.addr.0 >> LINE_SHIFT, mapping))
                }
                _ => None,
            }
        };
        let mut all = ArrayVec::new();
        let Some((line, _)) = leaf(va) else { return all };
        let page = va.0 >> FRAME_SHIFT;
        let first = page & !(GROUP - 1);
        for other in (first..first + GROUP).filter(|other| *other != page) {
            let va = VirtAddr(other << FRAME_SHIFT);
            let Some((_, mapping)) = leaf(va).filter(|(at, mapping)| *at == line && mapping.flags.accessed) else {
                continue;
            };
            let translation = self.to_machine(layers, core, space, va, Translation::from_mapping(&mapping));
            let distance = other.wrapping_sub(page) as FreeDistance;
            all.extend(translation.map(|translation| Neighbour { va, distance, translation }));
        }
        all
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
        let at = (va.0 >> FRAME_SHIFT) % GROUP;
        let others = (0..GROUP).filter(|&other| other != at);
        let mut pages: ArrayVec<PageOfRun, { GROUP as usize - 1 }> =
            others.map(|other| PageOfRun { distance: other.wrapping_sub(at) as i64, dirty: true }).collect();
        let frame = keep_run(layers, space, va, &mut pages);
        // A nested TLB may still have an older translation, whose shootdown is under way.
        if frame == Some(found.page().0 >> FRAME_SHIFT) {
            pages.iter().for_each(|page| run.add(page.distance, page.dirty));
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

/// A page that may continue a run.
#[derive(Clone, Copy, Debug)]
struct PageOfRun {
    /// Pages from the page that was walked for.
    distance: i64,
    /// Whether it is dirty in all layers so far.
    dirty: bool,
}

/// Keeps those `pages` around an address of a space that continue its run, in its layer and those below. Returns the
/// machine frame of the address.
fn keep_run(
    layers: &[Layer],
    space: SpaceId,
    va: VirtAddr,
    pages: &mut ArrayVec<PageOfRun, { GROUP as usize - 1 }>,
) -> Option<u64> {
    let layer = &layers[space.layer];
    let (table, mem) = (&layer.spaces[space.index].table, &layer.memory.contents);
    let mut list = WalkList::new();
    let mut leaf = |va: VirtAddr| -> Option<(u64, Mapping)> {
        table.walk_by_hardware(mem, va, &mut list);
        match (list.leaf, list.refs().last()) {
            (Leaf::Present(mapping), Some(last)) => Some((last.addr.0 >> LINE_SHIFT, mapping)),
            _ => None,
        }
    };
    let (line, own) = leaf(va)?;
    pages.retain(|page| {
        let other = VirtAddr(va.0.wrapping_add((page.distance << FRAME_SHIFT) as u64));
        if own.size != PageSize::Size4K {
            page.dirty &= own.flags.dirty;
            return (other.0 ^ va.0) & !own.size.offset_mask() == 0;
        }
        let Some((at, mapping)) = leaf(other) else { return false };
        page.dirty &= mapping.flags.dirty;
        let keeps_distance = mapping.pfn.0.wrapping_sub(own.pfn.0) as i64 == page.distance;
        let is_alike = mapping.flags.accessed && mapping.flags.writable == own.flags.writable;
        mapping.size == PageSize::Size4K && at == line && keeps_distance && is_alike
    });
    let target = Translation::<PhysAddr>::from_mapping(&own).address(va);
    match layer.host {
        None => Some(target.0 >> FRAME_SHIFT),
        Some(host) => keep_run(layers, host, VirtAddr(target.0), pages),
    }
}

/// The machine frame of an address of a space, if it is in a run of that many pages in its layer and those below.
fn is_in_run_from(layers: &[Layer], space: SpaceId, va: VirtAddr, pages: u64) -> Option<u64> {
    let layer = &layers[space.layer];
    let (table, mem) = (&layer.spaces[space.index].table, &layer.memory.contents);
    let mut list = WalkList::new();
    let mut frame_of = |va: VirtAddr| -> Option<u64> {
        table.walk_by_hardware(mem, va, &mut list);
        let Leaf::Present(mapping) = list.leaf else { return None };
        Some(Translation::<PhysAddr>::from_mapping(&mapping).address(va).0 >> FRAME_SHIFT)
    };
    let own = frame_of(va)?;
    // Pages of the run in one direction, at most as many as are missing.
    let mut beside = |step: i64, most: u64| {
        let follows = |n: &u64| {
            let distance = (*n as i64 * step) as u64;
            frame_of(VirtAddr(va.0.wrapping_add(distance << FRAME_SHIFT))) == Some(own.wrapping_add(distance))
        };
        (1..=most).take_while(follows).count() as u64
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
