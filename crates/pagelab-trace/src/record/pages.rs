//! The pages of an address space that a skipped stretch has already touched.

use std::collections::BTreeMap;

pub(crate) const PAGE_SHIFT: u32 = 12;
/// Recently touched pages that are found without a look-up: they cover 32 MiB.
const RECENT: usize = 1 << 13;
/// No page: page numbers have 52 bits.
const NONE: u64 = u64::MAX;

/// Pages that were read and pages that were written. A write also counts as a read, since it needs more of a page.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// By page number divided by 64: bitmaps of the pages that were read and of those that were written.
    regions: BTreeMap<u64, [u64; 2]>,
    /// The most recently touched page for each value of the lower bits: its number times two, plus one if it was
    /// written.
    recent: Box<[u64]>,
    /// The current stretch; a new stretch begins without pages.
    stretch: u64,
}

impl Pages {
    /// Begins accesses in `stretch`, numbered from 1.
    pub(crate) fn begin(&mut self, stretch: u64) {
        if self.stretch != stretch {
            self.stretch = stretch;
            self.regions.clear();
            self.forget_recent();
        }
    }

    fn forget_recent(&mut self) {
        self.recent = vec![NONE; RECENT].into_boxed_slice();
    }

    /// Records an access; true if it is the first read or the first write of one of its pages.
    #[inline(always)]
    pub(crate) fn touch(&mut self, vaddr: u64, size_bytes: u16, writes: bool) -> bool {
        let first = vaddr >> PAGE_SHIFT;
        let last = vaddr.saturating_add(u64::from(size_bytes).saturating_sub(1)) >> PAGE_SHIFT;
        let new = self.touch_page(first, writes);
        if last == first { new } else { self.touch_page(last, writes) | new }
    }

    #[inline(always)]
    fn touch_page(&mut self, page: u64, writes: bool) -> bool {
        let known = self.recent[page as usize % RECENT];
        if known | u64::from(!writes) == page << 1 | 1 { false } else { self.look_up(page, writes) }
    }

    #[cold]
    #[inline(never)]
    fn look_up(&mut self, page: u64, writes: bool) -> bool {
        let [read, written] = self.regions.entry(page >> 6).or_default();
        let bit = 1 << (page & 63);
        let known = if writes { *written & bit != 0 } else { (*read | *written) & bit != 0 };
        *if writes { written } else { read } |= bit;
        self.recent[page as usize % RECENT] = page << 1 | u64::from(self.regions[&(page >> 6)][1] & bit != 0);
        !known
    }

    /// Makes the next access to each page of a range a first touch.
    pub(crate) fn forget(&mut self, addr: u64, len: u64) {
        if self.regions.is_empty() || len == 0 {
            return;
        }
        let (first, last) = (addr >> PAGE_SHIFT, addr.saturating_add(len - 1) >> PAGE_SHIFT);
        let mut found = false;
        for (&region, bits) in self.regions.range_mut(first >> 6..=last >> 6) {
            let from = if region == first >> 6 { u64::MAX << (first & 63) } else { u64::MAX };
            let to = if region == last >> 6 { u64::MAX >> (63 - (last & 63)) } else { u64::MAX };
            found |= (bits[0] | bits[1]) & from & to != 0;
            bits.iter_mut().for_each(|bits| *bits &= !(from & to));
        }
        if !found {
            return;
        }
        if last - first < RECENT as u64 {
            (first..=last).for_each(|page| self.recent[page as usize % RECENT] = NONE);
        } else {
            self.forget_recent();
        }
    }

    /// Makes the next write to each page a first touch: after a fork it makes a copy.
    pub(crate) fn forget_writes(&mut self) {
        if self.regions.is_empty() {
            return;
        }
        for [read, written] in self.regions.values_mut() {
            *read |= std::mem::take(written);
        }
        self.forget_recent();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 1 << PAGE_SHIFT;

    fn pages() -> Pages {
        let mut pages = Pages::default();
        pages.begin(1);
        pages
    }

    #[test]
    fn reads_and_writes_are_first_once_each() {
        let mut pages = pages();
        let touches = [(5, false), (5, false), (5, true), (5, true), (5, false), (6, true), (6, false), (6, true)];
        let first = touches.map(|(page, writes)| pages.touch(page * PAGE + 8, 8, writes));
        assert_eq!(first, [true, false, true, false, false, true, false, false]);
    }

    #[test]
    fn an_access_touches_all_its_pages() {
        let mut pages = pages();
        assert!(pages.touch(PAGE - 4, 8, false));
        assert!(!pages.touch(0, 8, false));
        assert!(!pages.touch(PAGE, 8, false));
        assert!(pages.touch(2 * PAGE - 8, 8, true), "the write of page 1");
        assert!(pages.touch(2 * PAGE - 4, 8, true), "page 2");
    }

    #[test]
    fn pages_with_the_same_place_do_not_hide_each_other() {
        let mut pages = pages();
        let far = RECENT as u64 * PAGE;
        let touches = [(0, true), (far, false), (0, true), (0, false), (far, false), (far, true)];
        let first = touches.map(|(vaddr, writes)| pages.touch(vaddr, 1, writes));
        assert_eq!(first, [true, true, false, false, false, true]);
    }

    #[test]
    fn ranges_are_forgotten_to_the_page() {
        for beyond in [0, 2 * RECENT as u64] {
            let mut pages = pages();
            let touched = [0, 1, 63, 64, 65, 200, 201];
            touched.iter().for_each(|page| assert!(pages.touch(page * PAGE, 1, true)));
            pages.forget(PAGE, 200 * PAGE);
            let again = touched.map(|page| pages.touch(page * PAGE, 1, false));
            assert_eq!(again, [false, true, true, true, true, true, false]);
            pages.forget(201 * PAGE + 7, (beyond + 1) * PAGE);
            assert!(pages.touch(201 * PAGE, 1, true));
            assert!(!pages.touch(200 * PAGE, 1, false));
        }
    }

    #[test]
    fn after_a_fork_writes_are_first_again() {
        let mut pages = pages();
        assert!(pages.touch(0, 1, true));
        pages.forget_writes();
        assert_eq!([false, true, true].map(|writes| pages.touch(0, 1, writes)), [false, true, false]);
    }

    #[test]
    fn a_stretch_begins_without_pages() {
        let mut pages = pages();
        assert!(pages.touch(0, 1, true));
        pages.begin(1);
        assert!(!pages.touch(0, 1, true));
        pages.begin(2);
        assert!(pages.touch(0, 1, true));
    }
}
