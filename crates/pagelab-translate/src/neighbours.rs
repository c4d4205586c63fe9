//! The neighbours of a page: whose entries are in the line that a walk for the page reads last.
//!
//! A line of a radix table has the entries of eight pages of 4 KiB. Other tables may have fewer of them in one line.
//! The page table lists the walks of all eight pages, and their last references are compared, so this holds for every
//! page table. No reference is made, and no state changes.

use arrayvec::ArrayVec;

use crate::hardware::Hardware;
use crate::translation_unit::{FreeDistance, GROUP};
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
