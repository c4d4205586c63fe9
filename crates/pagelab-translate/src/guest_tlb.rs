//! The TLB of guests' large pages.
//!
//! Models: what a guest's page table says of a large page, from guest-virtual to guest-physical addresses. A nested
//! walk asks it first; on a hit the guest's tables are not read, and the host's table is walked for the page's address
//! alone. The usual TLBs hold such pages in pieces as small as the host's pages, so that one page misses often.
//! Source: an inference. On a virtual machine (AMD EPYC, Zen 3) whose host has pages of 4 KiB, a miss of the
//! second-level TLB costs 45 to 58 cycles in a large page of the guest and 126 to 165 in a small one;
//! `pagelab calibrate --hardware` measures that (`docs/run-time.md`). Bhargava et al. (ASPLOS 2008) keep guests' leaves
//! out of their page-walk cache.
//! Parameters: `machine.tlb.guest`: entries, ways, latency and policy.
//! Stats: `guest_tlb.look_ups`, `guest_tlb.misses`.
//! Deviations: pages of 1 GiB take an entry for each 2 MiB of them. Pages of 4 KiB are asked for in vain.

use crate::config::NestedTlbConfig;
use pagelab_base::addr::{PageSize, PhysAddr, VirtAddr};
use pagelab_base::assoc::{AssocArray, array};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::rng::Rng;
use pagelab_base::translation::Translation;
use pagelab_tables::mmu_cache::Asid;

/// See the module's text.
#[derive(Clone)]
pub struct GuestTlb {
    array: AssocArray,
    latency: Cycles,
}

fn key(asid: Asid, number: u64) -> u64 {
    number << 16 | u64::from(asid.0)
}

fn number(va: VirtAddr) -> u64 {
    va.0 >> PageSize::Size2M.shift()
}

impl GuestTlb {
    /// An empty one. Errors: its geometry is impossible.
    pub fn new(config: &NestedTlbConfig, rng: &Rng) -> Result<Self, EngineError> {
        let &NestedTlbConfig { entries, ways, latency_cycles, policy } = config;
        let array = array("machine.tlb.guest", entries, ways, policy, rng)?;
        Ok(Self { array, latency: latency_cycles.into() })
    }

    /// What the guest's table says of the page, if it is held and allows the access without a walk; adds the cycles of
    /// the look-up.
    #[inline]
    pub fn look_up(
        &mut self,
        asid: Asid,
        va: VirtAddr,
        store: bool,
        cycles: &mut Cycles,
    ) -> Option<Translation<PhysAddr>> {
        *cycles += self.latency;
        let held = self.array.lookup(number(va), key(asid, number(va))).map(Translation::from_word);
        held.filter(|held: &Translation<PhysAddr>| !store || held.stores())
    }

    /// Takes up a page that a walk has found, if it is a large one.
    #[inline]
    pub fn insert(&mut self, asid: Asid, va: VirtAddr, page: Translation<PhysAddr>) {
        if page.size() != PageSize::Size4K {
            let piece = page.fractured(va, PageSize::Size2M);
            self.array.insert(number(va), key(asid, number(va)), piece.to_word());
        }
    }

    /// Drops what it holds of a space.
    pub fn flush(&mut self, asid: Asid) {
        self.array.invalidate(|key, _| key & 0xffff == u64::from(asid.0));
    }

    /// Drops what it holds of pages from `start` to `end` of a space.
    pub fn invalidate(&mut self, asid: Asid, start: VirtAddr, end: VirtAddr) {
        let pages = number(start)..=number(VirtAddr(end.0.saturating_sub(1)));
        self.array.invalidate(|key, _| key & 0xffff == u64::from(asid.0) && pages.contains(&(key >> 16)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_base::assoc::AssocPolicy;

    #[test]
    fn large_pages_are_held_until_they_change_and_small_ones_never() {
        let config = NestedTlbConfig { entries: 4, ways: 4, latency_cycles: 3, policy: AssocPolicy::Lru };
        let mut tlb = GuestTlb::new(&config, &Rng::new(1, "guest tlb")).unwrap();
        let page = |size, dirty| Translation::new(PhysAddr(0x4000_0000), size, true, dirty);
        let (asid, other, va) = (Asid(1), Asid(2), VirtAddr(0x60_3000));
        let mut cycles = Cycles::ZERO;
        tlb.insert(asid, va, page(PageSize::Size4K, true));
        assert_eq!(tlb.look_up(asid, va, false, &mut cycles), None);
        tlb.insert(asid, va, page(PageSize::Size2M, false));
        let held = tlb.look_up(asid, VirtAddr(0x7f_ffff), false, &mut cycles).unwrap();
        assert_eq!(held.address(VirtAddr(0x7f_ffff)), PhysAddr(0x401f_ffff));
        assert_eq!(tlb.look_up(other, va, false, &mut cycles), None);
        assert_eq!(tlb.look_up(asid, VirtAddr(0x80_0000), false, &mut cycles), None, "the next page");
        assert_eq!(tlb.look_up(asid, va, true, &mut cycles), None, "a walk has to set the dirty bit");
        tlb.insert(asid, va, page(PageSize::Size2M, true));
        assert!(tlb.look_up(asid, va, true, &mut cycles).is_some());
        assert_eq!(cycles, Cycles(18), "of six look-ups");
        let still = |tlb: &mut GuestTlb| tlb.look_up(asid, va, false, &mut Cycles::ZERO.max(Cycles::ZERO)).is_some();
        tlb.invalidate(asid, VirtAddr(0x40_0000), VirtAddr(0x60_0000));
        tlb.flush(other);
        assert!(still(&mut tlb));
        tlb.invalidate(asid, VirtAddr(0x7f_f000), VirtAddr(0x80_0000));
        assert!(!still(&mut tlb), "a part of the page has changed");
        let pages = Translation::new(PhysAddr(0x4000_0000), PageSize::Size1G, true, true);
        tlb.insert(asid, VirtAddr(0x4060_3000), pages);
        let held = tlb.look_up(asid, VirtAddr(0x4060_0000), false, &mut cycles).unwrap();
        assert_eq!((held.page(), held.size()), (PhysAddr(0x4060_0000), PageSize::Size2M), "a part of a larger page");
        tlb.insert(asid, va, page(PageSize::Size2M, true));
        tlb.flush(asid);
        assert!(!still(&mut tlb));
    }
}
