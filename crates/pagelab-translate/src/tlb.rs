//! Translation lookaside buffers.
//!
//! An entry translates a virtual page of an address space directly to a machine frame. In a virtual machine it combines
//! the translations of all layers, and its page has the smallest of their page sizes. A [`Tlb`] is one level: one or
//! more arrays, each for some page sizes. Hardware looks them up in parallel, this code one after the other.

use arrayvec::ArrayVec;

use crate::config::TlbArrayConfig;
use crate::size_prediction::{SizeClass, SizedLookUp};
use crate::tlb_organisation::{ArrayShape, MOST_PAGES, OrganisedLevel, Page, Run, key, key_asid, key_page, vpn};
use crate::translation_unit::{Entry, VA_MASK};
use pagelab_base::addr::{PageSize, VirtAddr};
use pagelab_base::assoc::{AssocArray, Evicted, array};
use pagelab_base::error::EngineError;
use pagelab_base::page_fault::Origin;
use pagelab_base::rng::Rng;
use pagelab_base::translation::Translation;
use pagelab_tables::mmu_cache::Asid;

/// Ranges of up to this many pages are invalidated page by page; larger ones by scanning all entries.
const FEW_PAGES: u64 = 16;

/// The bit of [`Tlb::seen`] that stands for pages of 4 KiB in an organised level.
const ORGANISED: u8 = 1 << PageSize::ALL.len();

/// An entry that an array evicted whose entries are of one page each.
pub fn entry(Evicted { key, value }: Evicted) -> Entry {
    let (first, _) = key_page(key);
    Entry { asid: key_asid(key), va: VirtAddr(first), translation: Translation::from_word(value) }
}

/// One level of TLB.
#[derive(Clone)]
pub struct Tlb {
    pub(super) arrays: Vec<AssocArray>,
    /// Index of the array that holds each page size; none for pages of 4 KiB in an organised level.
    pub(super) array_of: [Option<u8>; 3],
    /// For each page size: the largest size that this level can hold, up to the page's own. None where that is a page
    /// of 4 KiB in an organised level.
    pub(super) filled_as: [Option<PageSize>; 3],
    /// One bit per size: whether an entry of that size was ever inserted, for programs and for kernels, whose direct
    /// maps use other sizes. Look-ups skip sizes that were never inserted.
    pub(super) seen: [u8; 2],
    /// What has the pages of 4 KiB of an organised level: one in which an entry of some array can cover several.
    organised: Option<Box<OrganisedLevel>>,
}

impl Tlb {
    /// An empty level; `path` is its configuration key, for errors.
    pub fn new(path: &str, configs: &[TlbArrayConfig], rng: &Rng) -> Result<Self, EngineError> {
        let mut arrays = Vec::new();
        let mut array_of = [None; 3];
        for (index, config) in configs.iter().enumerate() {
            let path = format!("{path}.{index}");
            if config.pages.is_empty() {
                return Err(EngineError::config(
                    format!("{path}.pages"),
                    "must name at least one page size: 4K, 2M or 1G",
                ));
            }
            for &size in &config.pages {
                if array_of[size as usize].replace(index as u8).is_some() {
                    let what = format!("an earlier array of this level already holds {} pages", size.name());
                    return Err(EngineError::config(format!("{path}.pages"), what));
                }
            }
            arrays.push(array(&path, config.entries, config.ways, config.policy, rng)?);
        }
        let held = |size: &PageSize| array_of[*size as usize].is_some();
        let mut filled_as = PageSize::ALL.map(|own| PageSize::ALL.into_iter().rev().find(|s| *s <= own && held(s)));
        let shape = |config: &TlbArrayConfig| (config.entries, config.ways);
        let shapes: Vec<_> = configs
            .iter()
            .map(|config| (ArrayShape::new(&config.pages, shape(config)), &config.organisation))
            .collect();
        let organised = OrganisedLevel::new(path, &shapes)?.map(Box::new);
        if organised.is_some() {
            array_of[PageSize::Size4K as usize] = None;
            filled_as = filled_as.map(|size| size.filter(|&size| size != PageSize::Size4K));
        }
        Ok(Self { arrays, array_of, filled_as, seen: [0; 2], organised })
    }

    /// The translation of `va`, if there is one; a hit updates the replacement state.
    #[inline(always)]
    pub fn look_up(&mut self, asid: Asid, va: VirtAddr, origin: Origin) -> Option<Translation> {
        let mut sizes = self.seen[origin as usize];
        while sizes != 0 {
            let Some(&size) = PageSize::ALL.get(sizes.trailing_zeros() as usize) else {
                return self.look_up_organised(asid, va);
            };
            sizes &= sizes - 1;
            let array = &mut self.arrays[usize::from(self.array_of[size as usize]?)];
            let vpn = vpn(va, size);
            if let Some(word) = array.lookup(vpn, key(asid, vpn, size)) {
                return Some(Translation::from_word(word));
            }
        }
        None
    }

    #[cold]
    fn look_up_organised(&mut self, asid: Asid, va: VirtAddr) -> Option<Translation> {
        self.organised.as_ref()?.look_up(&mut self.arrays, Page::at(asid, va))
    }

    /// Whether an entry of some array can cover several pages.
    pub fn is_organised(&self) -> bool {
        self.organised.is_some()
    }

    /// The organised level, if it is one.
    pub fn organised(&self) -> Option<&OrganisedLevel> {
        self.organised.as_deref()
    }

    /// What the entry of a page of 4 KiB says of the pages around it; does not update the replacement state.
    pub fn run(&self, asid: Asid, va: VirtAddr) -> Run {
        let page = Page::at(asid, va);
        let cover = self.organised.as_ref().and_then(|level| level.find(&self.arrays, page));
        cover.map_or(Run::ALONE, |cover| cover.run(page))
    }

    /// What a look-up that has found `held` is for a prediction of page sizes.
    pub fn sized(&self, origin: Origin, held: Option<Translation>) -> SizedLookUp {
        let is_seen = |size| self.seen[origin as usize] & 1 << size as u8 != 0;
        let is_large = |size| self.class(size) == Some(SizeClass::Large);
        if !PageSize::ALL.into_iter().any(|size| is_large(size) && is_seen(size)) {
            return SizedLookUp::Single;
        }
        match held {
            Some(held) => self.class(held.size()).map_or(SizedLookUp::Single, SizedLookUp::Found),
            None => SizedLookUp::Missed,
        }
    }

    /// Whether an entry for this translation is small or large; `None` if it is not in the array for pages of 4 KiB.
    pub fn class_of(&self, translation: Translation) -> Option<SizeClass> {
        self.class(self.filled_as[translation.size_index()]?)
    }

    fn class(&self, size: PageSize) -> Option<SizeClass> {
        let shared = self.array_of[PageSize::Size4K as usize]?;
        (self.array_of[size as usize] == Some(shared)).then(|| SizeClass::of_size(size))
    }

    /// Whether the level holds a translation of `va` for programs; does not update the replacement state.
    pub fn holds(&self, asid: Asid, va: VirtAddr) -> bool {
        let organised = self.organised.as_ref();
        if organised.is_some_and(|level| level.find(&self.arrays, Page::at(asid, va)).is_some()) {
            return true;
        }
        PageSize::ALL.into_iter().any(|size| {
            let vpn = vpn(va, size);
            let array = self.array_of[size as usize].map(|array| &self.arrays[usize::from(array)]);
            array.is_some_and(|array| array.holds(vpn, key(asid, vpn, size)))
        })
    }

    /// Inserts a translation of `va`, in the largest size that this level holds, up to its own. Does nothing if the
    /// level has no array for that size or a smaller one. `run` is what is known of the pages around it, for an
    /// organised level. `missed` says that a look-up of `va` has just missed. Returns the evicted entry, see
    /// [`Self::take_evicted`].
    #[inline(always)]
    pub fn insert(
        &mut self,
        asid: Asid,
        va: VirtAddr,
        translation: Translation,
        run: Run,
        origin: Origin,
        missed: bool,
    ) -> Option<Entry> {
        let Some(size) = self.filled_as[translation.size_index()] else {
            return self.insert_organised(asid, va, translation, run, origin);
        };
        let translation = if size == translation.size() { translation } else { translation.fractured(va, size) };
        self.seen[origin as usize] |= 1 << size as u8;
        let array = &mut self.arrays[usize::from(self.array_of[size as usize].expect("it holds the size"))];
        let vpn = vpn(va, size);
        let key = key(asid, vpn, size);
        let evicted = if missed {
            array.insert_absent(vpn, key, translation.to_word())
        } else {
            array.insert(vpn, key, translation.to_word())
        };
        let evicted = evicted?;
        if self.organised.is_some() {
            return self.evicted_of_organised(evicted);
        }
        Some(entry(evicted))
    }

    #[cold]
    fn insert_organised(
        &mut self,
        asid: Asid,
        va: VirtAddr,
        translation: Translation,
        run: Run,
        origin: Origin,
    ) -> Option<Entry> {
        let level = self.organised.as_mut()?;
        self.seen[origin as usize] |= ORGANISED;
        let page = Page::at(asid, va);
        if translation.size() == PageSize::Size4K {
            return level.fill(&mut self.arrays, page, translation, run);
        }
        let run = Run::in_large_page(page, translation.stores());
        level.fill(&mut self.arrays, page, translation.fractured(va, PageSize::Size4K), run)
    }

    #[cold]
    fn evicted_of_organised(&mut self, evicted: Evicted) -> Option<Entry> {
        self.organised.as_mut()?.pages_of(Some(evicted))
    }

    /// The other pages of the evicted entry that the last insertion has returned: an entry of an organised level may
    /// have several.
    pub fn take_evicted(&mut self) -> ArrayVec<Entry, { MOST_PAGES as usize - 1 }> {
        self.organised.as_mut().map(|level| level.take_evicted()).unwrap_or_default()
    }

    /// Whether the level can hold a page of this translation, or a part of it.
    pub fn can_hold(&self, translation: Translation) -> bool {
        self.organised.is_some() || self.filled_as[translation.size_index()].is_some()
    }

    /// Drops the translations of `start..end` of an address space.
    pub fn invalidate(&mut self, asid: Asid, start: VirtAddr, end: VirtAddr) {
        let (start, end) = (start.0 & VA_MASK, end.0.wrapping_sub(1) & VA_MASK);
        let few = end.checked_sub(start).is_some_and(|bytes| bytes >> PageSize::Size4K.shift() < FEW_PAGES);
        // Before the others, which do not know that an entry may cover more than its first page.
        if let Some(level) = &mut self.organised {
            let [first, last] = [start, end].map(|va| vpn(VirtAddr(va), PageSize::Size4K));
            level.drop_pages(&mut self.arrays, asid, first, last);
        }
        for (index, array) in self.arrays.iter_mut().enumerate() {
            if few {
                let held = |size: &PageSize| self.array_of[*size as usize] == Some(index as u8);
                for size in PageSize::ALL.into_iter().filter(held) {
                    for vpn in vpn(VirtAddr(start), size)..=vpn(VirtAddr(end), size) {
                        array.remove(vpn, key(asid, vpn, size));
                    }
                }
            } else {
                array.invalidate(|key, _| {
                    let (first, size) = key_page(key);
                    key_asid(key) == asid && first <= end && first + (size.bytes() - 1) >= start
                });
            }
        }
    }

    /// Drops all translations of an address space.
    pub fn flush(&mut self, asid: Asid) {
        for array in &mut self.arrays {
            array.invalidate(|key, _| key_asid(key) == asid);
        }
    }

    /// Drops all translations.
    pub fn clear(&mut self) {
        self.arrays.iter_mut().for_each(AssocArray::clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tlb_organisation::TlbOrganisationConfig;
    use pagelab_base::addr::MachineAddr;
    use pagelab_base::assoc::AssocPolicy;

    fn tlb(arrays: &[(&[PageSize], u32, u32)]) -> Result<Tlb, EngineError> {
        let configs: Vec<_> = arrays
            .iter()
            .map(|&(pages, entries, ways)| TlbArrayConfig {
                pages: pages.to_vec(),
                entries,
                ways,
                policy: AssocPolicy::Lru,
                organisation: TlbOrganisationConfig::default(),
            })
            .collect();
        Tlb::new("machine.tlb.l1d", &configs, &Rng::new(1, "tlb"))
    }

    fn translation(page: u64, size: PageSize) -> Translation {
        Translation::new(MachineAddr(page), size, true, false)
    }

    #[test]
    fn page_sizes_share_an_array_or_have_their_own() {
        use PageSize::{Size1G, Size2M, Size4K};
        let mut shared = tlb(&[(&[Size4K, Size2M], 12, 4)]).unwrap();
        let small = translation(0x7000, Size4K);
        let large = translation(0x4000_0000, Size2M);
        shared.insert(Asid(1), VirtAddr(0x1234), small, Run::ALONE, Origin::Program, true);
        shared.insert(Asid(1), VirtAddr(0x40_0000), large, Run::ALONE, Origin::Program, true);
        assert_eq!(shared.look_up(Asid(1), VirtAddr(0x1fff), Origin::Program), Some(small));
        assert_eq!(shared.look_up(Asid(1), VirtAddr(0x5f_ffff), Origin::Program), Some(large));
        assert_eq!(shared.look_up(Asid(2), VirtAddr(0x1fff), Origin::Program), None);
        assert_eq!(large.address(VirtAddr(0x5f_ffff)), MachineAddr(0x401f_ffff));
        // A 1 GiB page is inserted as the 2 MiB part that was touched.
        shared.insert(
            Asid(1),
            VirtAddr(0x8050_0000),
            translation(0x1_0000_0000, Size1G),
            Run::ALONE,
            Origin::Program,
            true,
        );
        let piece = shared.look_up(Asid(1), VirtAddr(0x8040_0000), Origin::Program).unwrap();
        assert_eq!((piece.page(), piece.size()), (MachineAddr(0x1_0040_0000), Size2M));
        shared.invalidate(Asid(1), VirtAddr(0x41_0000), VirtAddr(0x41_1000));
        assert_eq!(
            shared.look_up(Asid(1), VirtAddr(0x40_0000), Origin::Program),
            None,
            "a page that overlaps the range is dropped"
        );
        assert!(shared.look_up(Asid(1), VirtAddr(0x1000), Origin::Program).is_some());
        shared.flush(Asid(1));
        assert_eq!(shared.look_up(Asid(1), VirtAddr(0x1000), Origin::Program), None);
    }

    #[test]
    fn invalidating_one_space_keeps_other_spaces_entries() {
        let mut tlb = tlb(&[(&[PageSize::Size4K, PageSize::Size2M], 12, 4)]).unwrap();
        let mut held = |asids: [u16; 3], va: u64, drop: fn(&mut Tlb)| {
            for asid in asids {
                tlb.insert(
                    Asid(asid),
                    VirtAddr(va),
                    translation(0x7000, PageSize::Size4K),
                    Run::ALONE,
                    Origin::Program,
                    false,
                );
            }
            drop(&mut tlb);
            asids.map(|asid| tlb.look_up(Asid(asid), VirtAddr(va), Origin::Program).is_some())
        };
        assert_eq!(held([1, 2, 3], 0x5000, |_| ()), [true; 3]);
        assert_eq!(held([1, 2, 3], 0x5000, |tlb| tlb.flush(Asid(2))), [true, false, true]);
        let range = |tlb: &mut Tlb| tlb.invalidate(Asid(2), VirtAddr(0x5000), VirtAddr(0x6000));
        assert_eq!(held([1, 2, 3], 0x5000, range), [true, false, true]);
        assert_eq!(held([1, 2, 3], 0x4000, range), [true; 3], "the page before the range");
        assert_eq!(held([1, 2, 3], 0x6000, range), [true; 3], "the page after it");
    }

    #[test]
    fn invalidating_a_short_range_equals_checking_every_entry() {
        let mut rng = Rng::new(5, "ranges");
        for policy in [AssocPolicy::Lru, AssocPolicy::TreePlru, AssocPolicy::Random] {
            let pages = vec![PageSize::Size4K, PageSize::Size2M];
            let organisation = TlbOrganisationConfig::default();
            let config = TlbArrayConfig { pages, entries: 32, ways: 4, policy, organisation };
            let mut tlb = Tlb::new("machine.tlb.l1d", &[config], &Rng::new(1, "tlb")).unwrap();
            for _ in 0..2000 {
                let (asid, va) = (Asid(rng.below(2) as u16), VirtAddr(rng.below(1 << 10) << 12));
                let size = if rng.below(4) == 0 { PageSize::Size2M } else { PageSize::Size4K };
                tlb.insert(asid, va, translation(0x4000_0000, size), Run::ALONE, Origin::Program, false);
                if rng.below(8) > 0 {
                    continue;
                }
                let (start, bytes) = (rng.below(1 << 10) << 12, (1 + rng.below(FEW_PAGES - 1)) << 12);
                let mut by_entry = tlb.clone();
                by_entry.arrays[0].invalidate(|key, _| {
                    let (first, size) = key_page(key);
                    key_asid(key) == asid && first < start + bytes && first + size.bytes() > start
                });
                tlb.invalidate(asid, VirtAddr(start), VirtAddr(start + bytes));
                for page in 0..2 << 10 {
                    for asid in [Asid(0), Asid(1)] {
                        let va = VirtAddr(page << 12);
                        assert_eq!(tlb.holds(asid, va), by_entry.holds(asid, va), "{policy:?} {page:#x}");
                    }
                }
            }
        }
    }

    #[test]
    fn impossible_geometries_are_refused() {
        let error = tlb(&[(&[PageSize::Size4K], 10, 4)]).err().unwrap().to_string();
        assert!(error.contains("machine.tlb.l1d.0") && error.contains("multiple"), "{error}");
        let twice = tlb(&[(&[PageSize::Size4K], 8, 4), (&[PageSize::Size4K], 8, 4)]).err().unwrap().to_string();
        assert!(twice.contains("earlier array"), "{twice}");
    }
}
