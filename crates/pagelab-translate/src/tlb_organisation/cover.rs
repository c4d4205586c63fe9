//! What an entry of a TLB array covers: up to eight pages of 4 KiB whose frames keep their distance from the pages.

use arrayvec::ArrayVec;

use crate::translation_unit::{GROUP, VA_MASK};
use pagelab_base::addr::{FRAME_SHIFT, MachineAddr, PageSize, VirtAddr};
use pagelab_base::assoc::{AssocArray, Change, Evicted};
use pagelab_base::translation::Translation;
use pagelab_tables::mmu_cache::Asid;

/// Most pages that an entry covers: those whose entries are in one line of the page table.
pub const MOST_PAGES: u32 = GROUP as u32;
/// Most entries that cover a page within `MOST_PAGES` of the pages of a new one.
const MOST_NEAR: usize = 3 * MOST_PAGES as usize;

/// Number of a page of this size.
#[inline(always)]
pub(crate) fn vpn(va: VirtAddr, size: PageSize) -> u64 {
    (va.0 & VA_MASK) >> size.shift()
}

/// Key of a page's entry. An entry that covers several pages has the key of its first page.
#[inline(always)]
pub(crate) fn key(asid: Asid, vpn: u64, size: PageSize) -> u64 {
    vpn << 18 | (size as u64) << 16 | u64::from(asid.0)
}

/// Address-space tag of an entry.
pub(crate) fn key_asid(key: u64) -> Asid {
    Asid(key as u16)
}

/// First virtual address and page size of an entry's key.
pub(crate) fn key_page(key: u64) -> (u64, PageSize) {
    let size = PageSize::ALL[(key >> 16 & 3) as usize];
    ((key >> 18) << size.shift(), size)
}

/// A page of 4 KiB of an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Tag of the address space.
    pub asid: Asid,
    /// Number of the page.
    pub vpn: u64,
}

impl Page {
    /// The page of an address.
    #[inline(always)]
    pub fn at(asid: Asid, va: VirtAddr) -> Self {
        Self { asid, vpn: vpn(va, PageSize::Size4K) }
    }
}

/// What is known of the pages around one when its translation enters a TLB: which of them continue its run, because
/// their frames keep the distance and their attributes but the dirty bit are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// A bit for each distance from -7 to 7.
    pages: u16,
    dirty: u16,
}

impl Run {
    /// Nothing is known.
    pub const ALONE: Self = Self { pages: 0, dirty: 0 };

    fn bit(distance: i64) -> u16 {
        if distance.unsigned_abs() < GROUP { 1 << (distance + GROUP as i64 - 1) } else { 0 }
    }

    /// Adds the page at a distance; those of 8 pages and more are left out.
    pub fn add(&mut self, distance: i64, dirty: bool) {
        self.pages |= Self::bit(distance);
        self.dirty |= if dirty { Self::bit(distance) } else { 0 };
    }

    /// The pages of the run that continue it, and those of them that are dirty: bits of eight pages, of which the
    /// run's own one is that of index `at`, at most 7.
    fn around(self, at: u32) -> (u8, u8) {
        let bits = |word: u16| (word >> (GROUP as u32 - 1 - at)) as u8;
        (bits(self.pages), bits(self.dirty))
    }

    /// The aligned group of eight pages around one in a large page.
    pub fn in_large_page(page: Page, dirty: bool) -> Self {
        let mut run = Self::ALONE;
        let at = (page.vpn % GROUP) as i64;
        (0..GROUP as i64).filter(|&other| other != at).for_each(|other| run.add(other - at, dirty));
        run
    }
}

/// What an entry covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cover {
    asid: Asid,
    /// Its first page.
    pub first: u64,
    /// The frame of its first page.
    pub frame: u64,
    /// A bit for each page from the first on; the lowest is set.
    pub pages: u8,
    /// Whether each page is dirty.
    dirty: u8,
    writable: bool,
}

const WRITABLE: u64 = 1;
const PAGES_SHIFT: u32 = 4;
const DIRTY_SHIFT: u32 = 56;
const FRAME_BITS: u32 = DIRTY_SHIFT - FRAME_SHIFT;

/// The bits of `pages`, moved to `by` pages further on.
fn moved(pages: u8, by: i64) -> u8 {
    let by_bits = by.unsigned_abs().min(u64::from(u8::BITS)) as u32;
    (if by < 0 { pages.checked_shr(by_bits) } else { pages.checked_shl(by_bits) }).unwrap_or(0)
}

impl Cover {
    /// One page.
    pub fn single(page: Page, translation: Translation) -> Self {
        let frame = translation.page().0 >> FRAME_SHIFT;
        debug_assert!(frame >> FRAME_BITS == 0, "frame numbers leave room for the dirty bits");
        let (dirty, writable) = (u8::from(translation.stores()), translation.writable());
        Self { asid: page.asid, first: page.vpn, frame, pages: 1, dirty, writable }
    }

    /// An entry of an array; `None` if it is one of a large page.
    pub fn from_entry(key: u64, value: u64) -> Option<Self> {
        let (first, size) = key_page(key);
        (size == PageSize::Size4K).then_some(Self {
            asid: key_asid(key),
            first: first >> FRAME_SHIFT,
            frame: (value & ((1 << DIRTY_SHIFT) - 1)) >> FRAME_SHIFT,
            pages: (value >> PAGES_SHIFT) as u8,
            dirty: (value >> DIRTY_SHIFT) as u8,
            writable: value & WRITABLE != 0,
        })
    }

    /// Its key in an array.
    pub fn key(&self) -> u64 {
        key(self.asid, self.first, PageSize::Size4K)
    }

    /// Its value in an array.
    pub fn value(&self) -> u64 {
        let (pages, dirty) = (u64::from(self.pages) << PAGES_SHIFT, u64::from(self.dirty) << DIRTY_SHIFT);
        self.frame << FRAME_SHIFT | pages | dirty | u64::from(self.writable)
    }

    /// How many pages it covers.
    pub fn count(&self) -> u32 {
        self.pages.count_ones()
    }

    /// Its last page.
    pub fn last(&self) -> u64 {
        self.first + u64::from(self.pages.ilog2())
    }

    /// Whether it covers a page.
    pub fn covers(&self, page: Page) -> bool {
        let at = page.vpn.wrapping_sub(self.first);
        self.asid == page.asid && at < GROUP && self.pages >> at & 1 != 0
    }

    /// The pages that it covers.
    pub fn each(self) -> impl Iterator<Item = Page> {
        (self.first..=self.last()).map(move |vpn| Page { asid: self.asid, vpn }).filter(move |&page| self.covers(page))
    }

    /// The translation of a page that it covers.
    pub fn translation(&self, page: Page) -> Translation {
        let at = page.vpn - self.first;
        let dirty = self.dirty >> at & 1 != 0;
        let frame = MachineAddr((self.frame + at) << FRAME_SHIFT);
        Translation::new(frame, PageSize::Size4K, self.writable, dirty)
    }

    /// What it knows of the pages around one of its pages.
    pub fn run(&self, page: Page) -> Run {
        let mut run = Run::ALONE;
        for other in self.each().filter(|&other| other != page) {
            run.add(other.vpn.wrapping_sub(page.vpn) as i64, self.translation(other).stores());
        }
        run
    }

    /// The pages of `page`'s run that are next to each other, among the aligned `group` pages around it. With `mixed`,
    /// their dirty bits may differ from that of `page`.
    pub fn of_run(page: Page, translation: Translation, run: Run, group: u64, mixed: bool) -> Self {
        let own = Self::single(page, translation);
        let at = (page.vpn & (group - 1)) as u32;
        // Bits of the group's pages, from its first one on.
        let (pages, dirty) = run.around(at);
        let others_dirty = if own.writable { dirty } else { 0 };
        let dirty = others_dirty | own.dirty << at;
        let alike = match (mixed, own.dirty) {
            (true, _) => u8::MAX,
            (false, 0) => !dirty,
            (false, _) => dirty,
        };
        let pages = (pages & alike | 1 << at) & u8::MAX >> (GROUP - group);
        // A run ends at frame 0.
        let before = u64::from((pages << (7 - at)).leading_ones() - 1).min(own.frame);
        let after = (pages >> at).trailing_ones();
        let first = at - before as u32;
        let kept = u8::MAX >> (8 - (before as u32 + after));
        Self { first: page.vpn - before, frame: own.frame - before, pages: kept, dirty: dirty >> first & kept, ..own }
    }

    /// The rest without the pages of `other`; `None` if nothing is left.
    pub fn without(&self, other: &Self) -> Option<Self> {
        if self.asid != other.asid {
            return Some(*self);
        }
        self.keeping(!moved(other.pages, other.first.wrapping_sub(self.first) as i64))
    }

    /// The rest without the pages `first..=last` of a space; `None` if nothing is left.
    pub fn without_range(&self, asid: Asid, first: u64, last: u64) -> Option<Self> {
        if self.asid != asid || last < self.first || first > self.last() {
            return Some(*self);
        }
        let from = first.saturating_sub(self.first) as u32;
        let to = (last - self.first).min(GROUP - 1) as u32;
        self.keeping(!(u8::MAX << from & u8::MAX >> (7 - to)))
    }

    fn keeping(&self, kept: u8) -> Option<Self> {
        let pages = self.pages & kept;
        if pages == 0 {
            return None;
        }
        let at = pages.trailing_zeros();
        let (first, frame) = (self.first + u64::from(at), self.frame + u64::from(at));
        Some(Self { first, frame, pages: pages >> at, dirty: (self.dirty & kept) >> at, ..*self })
    }

    /// Whether its pages are next to each other.
    pub fn is_range(&self) -> bool {
        self.pages & self.pages.wrapping_add(1) == 0
    }

    /// The longest part whose pages are next to each other; the first of equal ones.
    pub fn longest_part(&self) -> Self {
        let mut longest = 0_u8;
        let mut left = self.pages;
        while left != 0 {
            // The lowest run of ones: adding its lowest bit carries through it.
            let run = left & !left.wrapping_add(left & left.wrapping_neg());
            if run.count_ones() > longest.count_ones() {
                longest = run;
            }
            left &= !run;
        }
        self.keeping(longest).expect("it covers a page")
    }

    /// Up to `most` of its pages next to each other, with `page`.
    pub fn near(&self, page: Page, most: u32) -> Self {
        let most = u64::from(most);
        let first = page.vpn.min((self.last() + 1).saturating_sub(most)).max(self.first);
        let kept = (0..GROUP).filter(|at| (first..first + most).contains(&(self.first + at)));
        self.keeping(kept.fold(0, |kept, at| kept | 1 << at)).expect("it covers the page")
    }

    /// One entry for this one's pages and those of `other`, which has none of them: `None` if their frames or
    /// attributes differ, or the pages are too far apart. With `mixed`, dirty bits may differ.
    pub fn joined(&self, other: &Self, mixed: bool) -> Option<Self> {
        let (low, high) = if self.first < other.first { (self, other) } else { (other, self) };
        let apart = high.first - low.first;
        let fits = self.asid == other.asid && self.writable == other.writable && high.last() - low.first < GROUP;
        let is_run = high.frame.wrapping_sub(low.frame) == apart;
        let dirty_alike = (self.dirty == 0) == (other.dirty == 0);
        (fits && is_run && (mixed || dirty_alike)).then(|| Self {
            pages: low.pages | high.pages << apart,
            dirty: low.dirty | high.dirty << apart,
            ..*low
        })
    }
}

/// What fills and invalidations did to the entries of an array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrganisationCounts {
    /// Translations that were inserted.
    pub fills: u64,
    /// Pages that their entries then covered.
    pub pages: u64,
    /// Entries that lost pages, and remained.
    pub shrunk: u64,
}

/// The entry of a set that covers a page.
pub fn covering(array: &AssocArray, set: u64, page: Page) -> Option<Cover> {
    array.entries(set).filter_map(|(key, value)| Cover::from_entry(key, value)).find(|cover| cover.covers(page))
}

/// Inserts an entry in a set. Its pages leave all other entries there; `rest` decides what remains of those. The new
/// entry takes the place of one that `join` joins with it, or else of one of which nothing remains, or else that of the
/// policy's victim, which is returned.
pub fn place(
    array: &mut AssocArray,
    set: u64,
    mut new: Cover,
    rest: impl Fn(&Cover) -> Option<Cover>,
    join: impl Fn(&Cover, &Cover) -> Option<Cover>,
    counts: &mut OrganisationCounts,
) -> Option<Evicted> {
    let is_near = |other: &Cover| {
        let (first, last) = (new.first.saturating_sub(GROUP), new.last() + GROUP);
        other.asid == new.asid && first <= other.last() && other.first <= last
    };
    let entries = array.entries(set).filter_map(|(key, value)| Cover::from_entry(key, value));
    let near: ArrayVec<Cover, MOST_NEAR> = entries.filter(is_near).collect();
    // The keys of the entries whose place it can take: the first is joined, or else emptied.
    let (mut joined, mut emptied) = (ArrayVec::<u64, MOST_NEAR>::new(), ArrayVec::<u64, MOST_NEAR>::new());
    let mut changed = ArrayVec::<(u64, Cover), MOST_NEAR>::new();
    for old in near {
        let left = old.without(&new);
        if let Some(both) = left.and_then(|left| join(&left, &new)) {
            new = both;
            joined.push(old.key());
        } else if left != Some(old) {
            match left.as_ref().and_then(&rest) {
                Some(left) => changed.push((old.key(), left)),
                None => emptied.push(old.key()),
            }
        }
    }
    counts.shrunk += changed.len() as u64;
    counts.fills += 1;
    counts.pages += u64::from(new.count());
    let taken = joined.iter().chain(&emptied).next().copied();
    if taken.is_some() || !changed.is_empty() {
        array.update(Some(set), |key, _| {
            if Some(key) == taken {
                Change::Become(new.key(), new.value())
            } else if joined.contains(&key) || emptied.contains(&key) {
                Change::Drop
            } else {
                let left = changed.iter().find(|(old, _)| *old == key).map(|(_, left)| left);
                left.map_or(Change::Keep, |left| Change::Become(left.key(), left.value()))
            }
        });
    }
    match taken {
        Some(_) => {
            array.lookup(set, new.key());
            None
        }
        None => array.insert_absent(set, new.key(), new.value()),
    }
}

/// Drops the pages `first..=last` of a space from the entries of one set, or of all; `rest` decides what remains of an
/// entry that loses some of its pages.
pub fn drop_pages(
    array: &mut AssocArray,
    set: Option<u64>,
    (asid, first, last): (Asid, u64, u64),
    rest: impl Fn(&Cover) -> Option<Cover>,
    counts: &mut OrganisationCounts,
) {
    array.update(set, |key, value| {
        let Some(old) = Cover::from_entry(key, value).filter(|cover| cover.asid == asid) else { return Change::Keep };
        match old.without_range(asid, first, last) {
            Some(left) if left == old => Change::Keep,
            left => match left.as_ref().and_then(&rest) {
                Some(left) => {
                    counts.shrunk += 1;
                    Change::Become(left.key(), left.value())
                }
                None => Change::Drop,
            },
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_trace::rng::Rng;

    /// The pages that are next to each other and continue the run, found one after the other.
    fn found_by_steps(page: Page, translation: Translation, run: &[(i64, bool)], group: u64, mixed: bool) -> Vec<u64> {
        let (first, frame) = (page.vpn & !(group - 1), translation.page().0 >> FRAME_SHIFT);
        let continues = |vpn: &u64| {
            let distance = vpn.wrapping_sub(page.vpn) as i64;
            let is_alike = |dirty: bool| mixed || (dirty && translation.writable()) == translation.stores();
            let is_known = run.iter().any(|&(at, dirty)| at == distance && is_alike(dirty));
            is_known && frame.checked_add_signed(distance).is_some()
        };
        let mut pages: Vec<u64> = (first..page.vpn).rev().take_while(continues).collect();
        pages.reverse();
        pages.push(page.vpn);
        pages.extend((page.vpn + 1..first + group).take_while(continues));
        pages
    }

    #[test]
    fn covers_of_runs_have_the_pages_next_to_each_other() {
        let mut rng = Rng::new(1, "runs");
        for _ in 0..20_000 {
            let page = Page { asid: Asid(1), vpn: 64 + rng.below(8) };
            let run: Vec<(i64, bool)> = (-7..=7)
                .filter(|&at| at != 0 && rng.below(4) > 0)
                .map(|at| (at, !page.vpn.wrapping_add(at as u64).is_multiple_of(3)))
                .collect();
            let mut known = Run::ALONE;
            run.iter().for_each(|&(at, dirty)| known.add(at, dirty));
            let (writable, stores) = [(false, false), (true, false), (true, true)][rng.below(3) as usize];
            let frame = [rng.below(5), 1000][rng.below(2) as usize];
            let translation = Translation::new(MachineAddr(frame << FRAME_SHIFT), PageSize::Size4K, writable, stores);
            let (group, mixed) = (1 << rng.below(4), rng.below(2) == 0);
            let cover = Cover::of_run(page, translation, known, group, mixed);
            let pages: Vec<u64> = cover.each().map(|page| page.vpn).collect();
            assert_eq!(pages, found_by_steps(page, translation, &run, group, mixed));
            assert_eq!(cover.frame + (page.vpn - cover.first), frame);
            for covered in cover.each() {
                let distance = covered.vpn.wrapping_sub(page.vpn) as i64;
                let dirty = run.iter().find(|&&(at, _)| at == distance).map_or(stores, |&(_, dirty)| dirty && writable);
                assert_eq!(cover.translation(covered).stores(), dirty);
            }
        }
    }

    #[test]
    fn a_range_takes_its_pages_out_of_a_cover() {
        let cover =
            Cover { asid: Asid(1), first: 64, frame: 1000, pages: 0b1011_0111, dirty: 0b0010_0101, writable: true };
        let without = |asid: u16, first: u64, last: u64| cover.without_range(Asid(asid), first, last);
        let pages = |cover: Option<Cover>| cover.map_or(vec![], |cover| cover.each().map(|page| page.vpn).collect());
        let all = pages(Some(cover));
        for (first, last) in (60..75).flat_map(|first| (first..76).map(move |last| (first, last))) {
            let left: Vec<u64> = all.iter().copied().filter(|vpn| !(first..=last).contains(vpn)).collect();
            assert_eq!(pages(without(1, first, last)), left, "{first} to {last}");
            assert_eq!(without(2, first, last), Some(cover), "another space");
        }
        let left = without(1, 64, 65).expect("some are left");
        assert_eq!((left.first, left.frame, left.pages, left.dirty), (66, 1002, 0b10_1101, 0b1001));
    }
}
