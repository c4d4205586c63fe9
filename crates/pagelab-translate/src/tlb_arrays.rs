//! The arrays of a TLB level: types for code that knows their shapes, and one for code that does not.

use super::tlb::Tlb;
use super::tlb_organisation::{key, vpn};
use pagelab_base::addr::{PageSize, VirtAddr};
use pagelab_base::assoc::{AssocArray, Evicted};
use pagelab_base::lru_sets::{LruLookup, Sets};
use pagelab_base::page_fault::Origin;
use pagelab_base::translation::Translation;
use pagelab_tables::mmu_cache::Asid;

/// Result of a look-up in a TLB level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlbLookup {
    /// An entry that allows the access; its replacement state was updated.
    Fit(Translation),
    /// An entry that does not allow the store, or not yet. Nothing has changed.
    Unfit,
    /// No entry for the page.
    Nothing,
}

/// The arrays of a level, selected by page size.
pub trait Arrays {
    /// [`Sets::look_up`] in the array for `size`, which the level must hold.
    fn look_up(&mut self, size: PageSize, set_hash: u64, key: u64, fits: impl Fn(u64) -> bool) -> LruLookup;

    /// [`Sets::insert_absent`] in the array for `size`, which the level must hold.
    fn insert_absent(&mut self, size: PageSize, set_hash: u64, key: u64, value: u64) -> Option<Evicted>;
}

/// One array per page size; the one for 1 GiB pages is optional.
pub struct SplitArrays<S, L, H>(pub S, pub L, pub Option<H>);

/// One array for 4 KiB and 2 MiB pages, and an optional one for 1 GiB pages.
pub struct SharedArray<S, H>(pub S, pub Option<H>);

/// Arrays of any number and shape.
pub struct AnyArrays<'a> {
    /// The arrays of the level.
    pub arrays: &'a mut [AssocArray],
    /// Index in `arrays`, by page size; `None` if no array holds the size.
    pub array_of: [Option<u8>; 3],
}

const HELD: &str = "the level holds the size";

impl<S: Sets, L: Sets, H: Sets> Arrays for SplitArrays<S, L, H> {
    #[inline(always)]
    fn look_up(&mut self, size: PageSize, set_hash: u64, key: u64, fits: impl Fn(u64) -> bool) -> LruLookup {
        match size {
            PageSize::Size4K => self.0.look_up(set_hash, key, fits),
            PageSize::Size2M => self.1.look_up(set_hash, key, fits),
            PageSize::Size1G => self.2.as_mut().expect(HELD).look_up(set_hash, key, fits),
        }
    }

    #[inline(always)]
    fn insert_absent(&mut self, size: PageSize, set_hash: u64, key: u64, value: u64) -> Option<Evicted> {
        match size {
            PageSize::Size4K => self.0.insert_absent(set_hash, key, value),
            PageSize::Size2M => self.1.insert_absent(set_hash, key, value),
            PageSize::Size1G => self.2.as_mut().expect(HELD).insert_absent(set_hash, key, value),
        }
    }
}

impl<S: Sets, H: Sets> Arrays for SharedArray<S, H> {
    #[inline(always)]
    fn look_up(&mut self, size: PageSize, set_hash: u64, key: u64, fits: impl Fn(u64) -> bool) -> LruLookup {
        match size {
            PageSize::Size4K | PageSize::Size2M => self.0.look_up(set_hash, key, fits),
            PageSize::Size1G => self.1.as_mut().expect(HELD).look_up(set_hash, key, fits),
        }
    }

    #[inline(always)]
    fn insert_absent(&mut self, size: PageSize, set_hash: u64, key: u64, value: u64) -> Option<Evicted> {
        match size {
            PageSize::Size4K | PageSize::Size2M => self.0.insert_absent(set_hash, key, value),
            PageSize::Size1G => self.1.as_mut().expect(HELD).insert_absent(set_hash, key, value),
        }
    }
}

impl Arrays for AnyArrays<'_> {
    #[inline(always)]
    fn look_up(&mut self, size: PageSize, set_hash: u64, key: u64, fits: impl Fn(u64) -> bool) -> LruLookup {
        let at = usize::from(self.array_of[size as usize].expect(HELD));
        (&mut self.arrays[at]).look_up(set_hash, key, fits)
    }

    #[inline(always)]
    fn insert_absent(&mut self, size: PageSize, set_hash: u64, key: u64, value: u64) -> Option<Evicted> {
        let at = usize::from(self.array_of[size as usize].expect(HELD));
        self.arrays[at].insert_absent(set_hash, key, value)
    }
}

/// A level as programs look it up. It behaves like [`Tlb`].
pub struct Level<'a, A> {
    pub(super) arrays: A,
    /// Like the fields of [`Tlb`].
    pub(super) filled_as: [Option<PageSize>; 3],
    pub(super) seen: &'a mut u8,
}

impl<A: Arrays> Level<'_, A> {
    /// Looks up `va` for a load, or for a store.
    #[inline(always)]
    pub fn look_up(&mut self, asid: Asid, va: VirtAddr, store: bool) -> TlbLookup {
        // Unrolled: most programs have 4 KiB pages alone, and one check should rule out all other sizes.
        let mut found = TlbLookup::Nothing;
        if *self.seen & 1 != 0 {
            found = self.look_up_size(PageSize::Size4K, asid, va, store);
        }
        if *self.seen > 1 {
            for size in [PageSize::Size2M, PageSize::Size1G] {
                if found == TlbLookup::Nothing && *self.seen & 1 << size as u8 != 0 {
                    found = self.look_up_size(size, asid, va, store);
                }
            }
        }
        found
    }

    #[inline(always)]
    fn look_up_size(&mut self, size: PageSize, asid: Asid, va: VirtAddr, store: bool) -> TlbLookup {
        let vpn = vpn(va, size);
        let fits = |word| !store || <Translation>::from_word(word).stores();
        match self.arrays.look_up(size, vpn, key(asid, vpn, size), fits) {
            LruLookup::Fit(word) => TlbLookup::Fit(Translation::from_word(word)),
            LruLookup::Unfit => TlbLookup::Unfit,
            LruLookup::Nothing => TlbLookup::Nothing,
        }
    }

    /// Inserts a translation of `va`, for which the level has no entry. Returns what it evicts.
    #[inline(always)]
    pub fn insert(&mut self, asid: Asid, va: VirtAddr, translation: Translation) -> Option<Evicted> {
        if translation.size() == PageSize::Size4K {
            self.filled_as[0]?;
            return self.insert_as(PageSize::Size4K, asid, va, translation);
        }
        let size = self.filled_as[translation.size_index()]?;
        self.insert_as(size, asid, va, translation.fractured(va, size))
    }

    /// See [`Tlb::can_hold`].
    #[inline(always)]
    pub fn can_hold(&self, translation: Translation) -> bool {
        self.filled_as[translation.size_index()].is_some()
    }

    #[inline(always)]
    fn insert_as(&mut self, size: PageSize, asid: Asid, va: VirtAddr, translation: Translation) -> Option<Evicted> {
        *self.seen |= 1 << size as u8;
        let vpn = vpn(va, size);
        self.arrays.insert_absent(size, vpn, key(asid, vpn, size), translation.to_word())
    }
}

impl Tlb {
    /// The level as programs look it up, with arrays of the given shape; `None` if its arrays have another shape.
    #[inline(always)]
    pub fn level<'a, A>(
        &'a mut self,
        shape: impl FnOnce(&'a mut [AssocArray], [Option<u8>; 3]) -> Option<A>,
    ) -> Option<Level<'a, A>> {
        let arrays = shape(&mut self.arrays, self.array_of)?;
        Some(Level { arrays, filled_as: self.filled_as, seen: &mut self.seen[Origin::Program as usize] })
    }
}
