//! A host that discards what it has mapped for its guest's memory, when the guest says that nobody uses it: pages in a
//! balloon, or reported free blocks.
//!
//! Models: MADV_DONTNEED by the virtual machine monitor. The guest's later use of the memory faults in the host.
//! Source: QEMU hw/virtio/virtio-balloon.c (`balloon_inflate_page`, `virtio_balloon_handle_report`), softmmu/physmem.c
//! (`ram_block_discard_range`). The host keeps the memory of its direct segment: Gandhi et al., MICRO 2014.

use crate::config::Backing;
use crate::effects::Effects;
use crate::layer::Layer;
use crate::os::Os;
use crate::vma::VaRange;
use pagelab_base::addr::FRAME_SHIFT;
use pagelab_base::ids::{CpuId, LayerId, SpaceId, SpaceIx};
use pagelab_base::step::BlockKey;
use pagelab_tables::page_table::Removed;
use pagelab_trace::EventKind;

/// Most pages that a host invalidates one by one; beyond that it flushes all translations of the guest.
const SINGLE_PAGES: u64 = 32;

/// The key that a host waits for before it can discard a part of a guest's memory, if any.
pub fn block_key(os: &Os, host: SpaceId, range: VaRange) -> Option<BlockKey> {
    if !os.locks.may_change(host, Some(range), os.costs.fault_lock) {
        return Some(BlockKey::Mappings { space: host });
    }
    os.engine_block_key(host)
}

/// Discards a part of the memory of a guest's layer, which the guest does not use. Returns the number of pages of 4 KiB
/// that the host had mapped and freed; `None` if it keeps the part, as that lies in a direct segment or there was no
/// frame to split a large page.
pub fn discard(
    os: &mut Os,
    effects: &mut Effects,
    cpu: CpuId,
    (guest, host): (LayerId, SpaceId),
    range: VaRange,
) -> Option<u64> {
    let space = &os.layers[host.layer].spaces[host.index];
    if space.segment.is_some_and(|segment| segment.range.overlaps(range)) {
        return None;
    }
    let mapped = mapped_frames(&os.layers[host.layer], host.index, range);
    let advice = EventKind::Madvise { addr: range.start.0, len: range.end.0 - range.start.0, advice: 4 };
    let gone = os.change_mappings(effects, cpu, host, &advice).ok()?.gone;
    if !gone.ranges.is_empty() {
        let all = effects.invalidate(host, range);
        all.pages += gone.pages - 1;
        all.full |= all.pages > SINGLE_PAGES;
    }
    if os.layers[guest].paging.backing == Backing::Present {
        let pages = range.start.page_number()..range.end.page_number();
        os.layers[host.layer].spaces[host.index].discarded.add(pages);
    }
    Some(mapped)
}

/// Number of frames that are mapped in a range.
fn mapped_frames(layer: &Layer, index: SpaceIx, range: VaRange) -> u64 {
    let overlap = |page: &Removed| {
        let end = page.va + page.mapping.size.bytes();
        end.min(range.end).0.saturating_sub(page.va.max(range.start).0) >> FRAME_SHIFT
    };
    layer.mapped(index, range.start, range.end).iter().map(overlap).sum()
}
