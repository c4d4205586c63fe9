//! The TLB of guests' large pages.
//!
//! Models: a TLB of guests' large pages, from guest-virtual to guest-physical addresses. A nested walk looks it up
//! first. On a hit the walk skips the guest's tables and only walks the host's table for the page's address. The usual
//! TLBs hold such a page in parts of the size of the host's pages, so one page misses often.
//! Source: an inference. On a virtual machine (AMD EPYC, Zen 3) whose host has pages of 4 KiB, a miss of the
//! second-level TLB costs 45 to 58 cycles in a large page of the guest and 126 to 165 in a small one; `pagelab
//! calibrate --hardware` measures that (`docs/run-time.md`). Bhargava et al. (ASPLOS 2008) keep guests' leaves out of
//! their page-walk cache.
//! Parameters: `machine.tlb.guest`: entries, ways, latency and policy.
//! Stats: `guest_tlb.look_ups`, `guest_tlb.misses`.
//! Deviations: a page of 1 GiB takes one entry per 2 MiB. Pages of 4 KiB are looked up too, and always miss.

use super::nested::NestedTlbConfig;
use super::{ENTRY_BITS, Entry, FillSource, Lines, LookUpPlace, TranslationUnit, UnitLookUp};
use pagelab_base::addr::{PageSize, PhysAddr, VirtAddr};
use pagelab_base::assoc::AssocArray;
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::rng::Rng;
use pagelab_base::translation::Translation;
use pagelab_tables::mmu_cache::Asid;

/// The unit, see the module's text.
#[derive(Clone, Debug)]
pub struct GuestTlb {
    array: AssocArray,
    latency: Cycles,
}

#[inline(always)]
fn key(asid: Asid, number: u64) -> u64 {
    number << 16 | u64::from(asid.0)
}

#[inline(always)]
fn number(va: VirtAddr) -> u64 {
    va.0 >> PageSize::Size2M.shift()
}

impl TranslationUnit for GuestTlb {
    type Parameters = NestedTlbConfig;
    type Target = PhysAddr;

    const PLACE: LookUpPlace = LookUpPlace::GuestPages;
    const STATISTICS: &'static str = "guest_tlb";

    fn new(parameters: &NestedTlbConfig, key: &str, rng: &Rng) -> Result<Self, EngineError> {
        let (array, latency) = parameters.array(key, rng)?;
        Ok(Self { array, latency })
    }

    fn samples() -> Vec<NestedTlbConfig> {
        NestedTlbConfig::samples()
    }

    #[inline(always)]
    fn look_up(
        &mut self,
        look_up: &UnitLookUp,
        _: &mut impl Lines,
        cycles: &mut Cycles,
    ) -> Option<Translation<PhysAddr>> {
        *cycles += self.latency;
        let number = number(look_up.va);
        let held = self.array.lookup(number, key(look_up.asid, number)).map(Translation::from_word);
        held.filter(|held| look_up.is_allowed_by(held))
    }

    fn holds(&self, asid: Asid, va: VirtAddr) -> bool {
        self.array.holds(number(va), key(asid, number(va)))
    }

    #[inline(always)]
    fn fill(&mut self, entry: &Entry<PhysAddr>, source: FillSource, _: &mut impl Lines) {
        let &Entry { asid, va, translation: page } = entry;
        match source {
            FillSource::Walk if page.size() != PageSize::Size4K => {
                let piece = page.fractured(va, PageSize::Size2M);
                self.array.insert(number(va), key(asid, number(va)), piece.to_word());
            }
            FillSource::Walk | FillSource::Eviction | FillSource::Prefetch { .. } | FillSource::Free { .. } => {}
        }
    }

    fn invalidate(&mut self, asid: Asid, start: VirtAddr, end: VirtAddr, _: &mut impl Lines) {
        let pages = number(start)..=number(VirtAddr(end.0.saturating_sub(1)));
        self.array.invalidate(|key, _| key & 0xffff == u64::from(asid.0) && pages.contains(&(key >> 16)));
    }

    fn flush(&mut self, asid: Asid) {
        self.array.invalidate(|key, _| key & 0xffff == u64::from(asid.0));
    }

    fn storage_bits(&self) -> u64 {
        u64::from(self.array.sets()) * u64::from(self.array.ways()) * ENTRY_BITS
    }
}

#[cfg(test)]
mod tests {
    use super::super::NoLines;
    use super::*;
    use pagelab_base::assoc::AssocPolicy;
    use pagelab_base::page_fault::{Intent, Origin};

    #[test]
    fn large_pages_are_held_until_they_change_and_small_ones_never() {
        let config = NestedTlbConfig { entries: 4, ways: 4, latency_cycles: 3, policy: AssocPolicy::Lru };
        let mut tlb = GuestTlb::new(&config, "machine.tlb.guest", &Rng::new(1, "guest tlb")).unwrap();
        let (asid, other, va) = (Asid(1), Asid(2), VirtAddr(0x60_3000));
        let mut cycles = Cycles::ZERO;
        let mut look_up = |tlb: &mut GuestTlb, asid, va, intent| {
            tlb.look_up(
                &UnitLookUp { asid, va, pc: 0, intent, origin: Origin::Program, now: Cycles::ZERO },
                &mut NoLines,
                &mut cycles,
            )
        };
        let fill = |tlb: &mut GuestTlb, va, size, dirty| {
            let translation = Translation::new(PhysAddr(0x4000_0000), size, true, dirty);
            tlb.fill(&Entry { asid, va, translation }, FillSource::Walk, &mut NoLines);
        };
        fill(&mut tlb, va, PageSize::Size4K, true);
        assert_eq!(look_up(&mut tlb, asid, va, Intent::Load), None);
        fill(&mut tlb, va, PageSize::Size2M, false);
        let held = look_up(&mut tlb, asid, VirtAddr(0x7f_ffff), Intent::Load).unwrap();
        assert_eq!(held.address(VirtAddr(0x7f_ffff)), PhysAddr(0x401f_ffff));
        assert_eq!(look_up(&mut tlb, other, va, Intent::Load), None);
        assert_eq!(look_up(&mut tlb, asid, VirtAddr(0x80_0000), Intent::Load), None, "the next page");
        assert_eq!(look_up(&mut tlb, asid, va, Intent::Store), None, "a walk has to set the dirty bit");
        fill(&mut tlb, va, PageSize::Size2M, true);
        assert!(look_up(&mut tlb, asid, va, Intent::Store).is_some());
        tlb.invalidate(asid, VirtAddr(0x40_0000), VirtAddr(0x60_0000), &mut NoLines);
        tlb.flush(other);
        assert!(tlb.holds(asid, va));
        tlb.invalidate(asid, VirtAddr(0x7f_f000), VirtAddr(0x80_0000), &mut NoLines);
        assert!(!tlb.holds(asid, va), "a part of the page has changed");
        fill(&mut tlb, VirtAddr(0x4060_3000), PageSize::Size1G, true);
        let held = look_up(&mut tlb, asid, VirtAddr(0x4060_0000), Intent::Load).unwrap();
        assert_eq!((held.page(), held.size()), (PhysAddr(0x4060_0000), PageSize::Size2M), "a part of a larger page");
        fill(&mut tlb, va, PageSize::Size2M, true);
        tlb.flush(asid);
        assert!(!tlb.holds(asid, va));
        assert_eq!(cycles, Cycles(21), "seven look-ups");
    }
}
