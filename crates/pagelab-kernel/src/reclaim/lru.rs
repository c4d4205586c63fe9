//! The LRU lists, which order pages for reclaim.
//!
//! Models: an active and an inactive list for anonymous pages, and the same for pages of files. New pages go to the
//! head of one of them. Scans take pages from the tail of an inactive list; when that is short, pages move to it from
//! the tail of the active list. Pages that a scan has taken are on no list until it puts them back, but still count.
//! Source: Linux mm/vmscan.c (`inactive_is_low`, `get_scan_count`), mm/swap.c (`folio_add_lru`, `lru_lazyfree_fn`).
//! Parameters: `kernel.new_pages`, `kernel.swappiness`.
//! Deviations: `swappiness` and the lengths of the lists decide which kind is scanned; recent costs of reclaim
//! (`anon_cost`, `file_cost`) do not count. A large page is one entry.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use pagelab_base::addr::{FRAME_SHIFT, Pfn};

/// Number of pages that a scan examines (Linux `SWAP_CLUSTER_MAX`).
pub const SCAN_PAGES: usize = 32;

/// Orders of the pages that are single entries: 4 KiB, 2 MiB, 1 GiB.
const ORDERS: [u32; 3] = [0, 9, 18];

/// Kind of a page's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LruPageKind {
    /// Memory without a file, which can only go to the swap area.
    Anonymous,
    /// Contents of a file, which can be written back to storage.
    File,
}

/// Age of an entry: the time when it was put at the head of its list, and its position among those of the same time.
pub type Age = (u64, u32);

/// A page on a list: one frame or, if it is large, 2^order frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LruEntry {
    pub kind: LruPageKind,
    pub order: u32,
    active: bool,
    age: Age,
    /// Whether the last scan found it accessed.
    pub referenced: bool,
    /// Whether its contents may be dropped, unless it has been written since (MADV_FREE).
    pub lazy_free: bool,
}

impl LruEntry {
    /// Whether the page is on an active list.
    pub fn is_active(&self) -> bool {
        self.active
    }
}

/// See the module's text.
#[derive(Clone, Default)]
pub struct Lru {
    /// Inactive and active list, by kind.
    lists: [[BTreeMap<Age, Pfn>; 2]; 2],
    entries: FxHashMap<Pfn, LruEntry>,
    frames: [u64; 2],
    time: u64,
    /// Scanning that each kind is owed.
    credit: [i64; 2],
}

impl Lru {
    fn list(&mut self, kind: LruPageKind, active: bool) -> &mut BTreeMap<Age, Pfn> {
        &mut self.lists[kind as usize][usize::from(active)]
    }

    /// Number of frames of a kind.
    pub fn frames(&self, kind: LruPageKind) -> u64 {
        self.frames[kind as usize]
    }

    pub fn get(&self, pfn: Pfn) -> Option<LruEntry> {
        self.entries.get(&pfn).copied()
    }

    fn insert(&mut self, pfn: Pfn, entry: LruEntry) {
        self.list(entry.kind, entry.active).insert(entry.age, pfn);
        self.frames[entry.kind as usize] += 1 << entry.order;
        let old = self.entries.insert(pfn, entry);
        assert!(old.is_none(), "{pfn:?} is on two lists");
    }

    fn remove(&mut self, pfn: Pfn) -> Option<LruEntry> {
        let entry = self.entries.remove(&pfn)?;
        self.list(entry.kind, entry.active).remove(&entry.age);
        self.frames[entry.kind as usize] -= 1 << entry.order;
        Some(entry)
    }

    /// Adds a page at the head of a list. Has no effect if it is already on one.
    pub fn add(&mut self, pfn: Pfn, order: u32, kind: LruPageKind, active: bool) {
        if !self.entries.contains_key(&pfn) {
            self.time += 1;
            let age = (self.time, 0);
            self.insert(pfn, LruEntry { kind, order, active, age, referenced: false, lazy_free: false });
        }
    }

    /// Removes 2^order frames from `pfn` on, which were freed. If they are part of a large page, its other frames stay,
    /// as entries of their own.
    pub fn forget(&mut self, pfn: Pfn, order: u32) {
        if self.entries.get(&pfn).is_some_and(|entry| entry.order == order) {
            self.remove(pfn);
            return;
        }
        let holds =
            |head: &Pfn| self.entries.get(head).is_some_and(|e| e.order > order && pfn.0 < head.0 + (1 << e.order));
        let Some(head) = ORDERS.into_iter().map(|o| Pfn(pfn.0 >> o << o)).find(holds) else {
            (0..1 << order).for_each(|n| _ = self.remove(pfn + n));
            return;
        };
        let entry = self.remove(head).expect("it was found just now");
        for n in (0..1 << entry.order).filter(|n| !(pfn.0..pfn.0 + (1 << order)).contains(&(head.0 + u64::from(*n)))) {
            self.insert(head + u64::from(n), LruEntry { order: 0, age: (entry.age.0, n), ..entry });
        }
    }

    /// Moves a page to the head of another list.
    pub fn put(&mut self, pfn: Pfn, active: bool, referenced: bool) {
        let entry = self.remove(pfn).expect("the page is on a list");
        self.time += 1;
        self.insert(pfn, LruEntry { active, age: (self.time, 0), referenced, ..entry });
    }

    /// Allows to drop the contents of an anonymous page, or forbids it again.
    pub fn set_lazy_free(&mut self, pfn: Pfn, lazy_free: bool) {
        let entry = self.remove(pfn).expect("the page is on a list");
        self.time += 1;
        let kind = if lazy_free { LruPageKind::File } else { LruPageKind::Anonymous };
        let (active, age) = (!lazy_free, (self.time, 0));
        self.insert(pfn, LruEntry { kind, active, age, referenced: false, lazy_free, ..entry });
    }

    /// The oldest pages of a list.
    pub fn oldest(&self, kind: LruPageKind, active: bool) -> Vec<Pfn> {
        self.lists[kind as usize][usize::from(active)].values().copied().take(SCAN_PAGES).collect()
    }

    /// The oldest pages of an inactive list, with their ages.
    pub fn oldest_inactive(&self, kind: LruPageKind) -> Vec<(Pfn, Age)> {
        self.lists[kind as usize][0].iter().map(|(&age, &pfn)| (pfn, age)).take(SCAN_PAGES).collect()
    }

    /// Takes pages from their inactive list. They keep their entries, but no list has them until they are put back.
    pub fn isolate(&mut self, kind: LruPageKind, pages: &[(Pfn, Age)]) {
        pages.iter().for_each(|(_, age)| _ = self.list(kind, false).remove(age));
    }

    /// The entry of a page that had this age; `None` if it has been put on a list or freed since.
    pub fn unmoved(&self, (pfn, age): (Pfn, Age)) -> Option<LruEntry> {
        self.get(pfn).filter(|entry| entry.age == age)
    }

    /// Whether the inactive list should be refilled. Its target share falls with the size of memory.
    pub fn inactive_is_low(&self, kind: LruPageKind) -> bool {
        let [inactive, active] = self.lists[kind as usize].each_ref().map(|list| list.len() as u64);
        let gib = (inactive + active) >> (30 - FRAME_SHIFT);
        let ratio = if gib > 0 { (10 * gib).isqrt() } else { 1 };
        inactive * ratio < active
    }

    /// Chooses the kind for the next scan, with weights of `swappiness` for anonymous pages and 200 - `swappiness` for
    /// files. Only kinds in `possible` count. Returns the credits after the scan, too.
    pub fn choose(&self, swappiness: u32, possible: [bool; 2]) -> (LruPageKind, [i64; 2]) {
        let weight = [i64::from(swappiness), i64::from(200 - swappiness)];
        let due = |kind: LruPageKind| {
            let frames = if possible[kind as usize] { self.frames[kind as usize] as i64 } else { 0 };
            weight[kind as usize] * frames
        };
        let (anonymous, file) = (due(LruPageKind::Anonymous), due(LruPageKind::File));
        let credit = [self.credit[0] + anonymous, self.credit[1] + file];
        let chosen = match () {
            () if anonymous == 0 && (file > 0 || !possible[0]) => LruPageKind::File,
            () if file == 0 || credit[0] >= credit[1] => LruPageKind::Anonymous,
            () => LruPageKind::File,
        };
        let mut left = credit;
        left[chosen as usize] -= anonymous + file;
        (chosen, left)
    }

    /// Records that the kind which [`Self::choose`] returned has been scanned.
    pub fn scanned(&mut self, credit: [i64; 2]) {
        self.credit = credit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_come_first_and_those_put_back_last() {
        let mut lru = Lru::default();
        (0..100).for_each(|n| lru.add(Pfn(n), 0, LruPageKind::Anonymous, false));
        assert_eq!(lru.oldest(LruPageKind::Anonymous, false), (0..32).map(Pfn).collect::<Vec<_>>());
        (0..32).for_each(|n| lru.put(Pfn(n), n % 2 == 0, true));
        assert_eq!(lru.oldest(LruPageKind::Anonymous, true), (0..32).step_by(2).map(Pfn).collect::<Vec<_>>());
        assert!(!lru.inactive_is_low(LruPageKind::Anonymous));
        (32..100).for_each(|n| lru.forget(Pfn(n), 0));
        assert_eq!(lru.oldest(LruPageKind::Anonymous, false), (1..32).step_by(2).map(Pfn).collect::<Vec<_>>());
        assert!(!lru.inactive_is_low(LruPageKind::Anonymous), "it is as long as the active one");
        lru.forget(Pfn(31), 0);
        assert!(lru.inactive_is_low(LruPageKind::Anonymous) && lru.frames(LruPageKind::File) == 0);
    }

    #[test]
    fn isolated_pages_are_on_no_list_until_they_are_put_back() {
        let kind = LruPageKind::Anonymous;
        let mut lru = Lru::default();
        lru.add(Pfn(512), 9, kind, false);
        (0..40).for_each(|n| lru.add(Pfn(n), 0, kind, false));
        let mut isolate = || {
            let pages = lru.oldest_inactive(kind);
            lru.isolate(kind, &pages);
            pages
        };
        let [first, second, third] = [isolate(), isolate(), isolate()];
        let numbers = |pages: &[(Pfn, Age)]| pages.iter().map(|(pfn, _)| pfn.0).collect::<Vec<_>>();
        assert_eq!(numbers(&first), std::iter::once(512).chain(0..31).collect::<Vec<_>>());
        assert_eq!(numbers(&second), (31..40).collect::<Vec<_>>(), "another scan gets the next ones");
        assert_eq!((third.len(), lru.frames(kind)), (0, 512 + 40));
        // Put back, freed, freed and on a list again, freed in part.
        lru.put(Pfn(0), false, false);
        lru.forget(Pfn(1), 0);
        lru.forget(Pfn(2), 0);
        lru.add(Pfn(2), 0, kind, false);
        lru.forget(Pfn(600), 0);
        let still: Vec<_> = first.iter().copied().filter(|&page| lru.unmoved(page).is_some()).collect();
        assert_eq!(numbers(&still), std::iter::once(512).chain(3..31).collect::<Vec<_>>());
        assert_eq!(lru.unmoved(first[0]).unwrap().order, 0, "the first frame of the large page is as old as that was");
        assert_eq!(numbers(&lru.oldest_inactive(kind)[..2]), [512, 513]);
        assert_eq!(lru.frames(kind), 511 + 39);
    }

    #[test]
    fn freeing_part_of_a_large_page_keeps_the_rest() {
        let mut lru = Lru::default();
        lru.add(Pfn(512), 9, LruPageKind::Anonymous, false);
        lru.add(Pfn(7), 0, LruPageKind::Anonymous, false);
        lru.forget(Pfn(600), 0);
        assert_eq!(lru.frames, [512, 0]);
        lru.add(Pfn(2048), 9, LruPageKind::Anonymous, false);
        lru.forget(Pfn(2048), 0);
        assert_eq!((lru.frames, lru.get(Pfn(2048))), ([512 + 511, 0], None));
        (2049..2560).for_each(|n| lru.forget(Pfn(n), 0));
        assert_eq!(lru.get(Pfn(600)), None);
        assert_eq!(lru.get(Pfn(601)).unwrap().order, 0);
        assert_eq!(lru.oldest(LruPageKind::Anonymous, false)[..2], [Pfn(512), Pfn(513)], "as old as the whole was");
        lru.forget(Pfn(512), 9);
        assert_eq!((lru.frames, lru.entries.len()), ([1, 0], 1));
        // One of two large pages is freed with its block.
        lru.add(Pfn(1024), 9, LruPageKind::Anonymous, false);
        lru.forget(Pfn(1024), 9);
        assert_eq!(lru.entries.len(), 1);
    }

    #[test]
    fn kinds_are_scanned_by_length_and_swappiness() {
        let mut lru = Lru::default();
        (0..300).for_each(|n| lru.add(Pfn(n), 0, LruPageKind::Anonymous, false));
        (300..400).for_each(|n| lru.add(Pfn(n), 0, LruPageKind::File, false));
        let mut count = |swappiness, possible| {
            let mut scans = [0; 2];
            for _ in 0..100 {
                let (kind, credit) = lru.choose(swappiness, possible);
                lru.scanned(credit);
                scans[kind as usize] += 1;
            }
            scans
        };
        assert_eq!(count(100, [true, true]), [75, 25]);
        assert_eq!(count(0, [true, true]), [0, 100]);
        assert_eq!(count(60, [true, false]), [100, 0]);
        assert_eq!(count(60, [false, true]), [0, 100]);
    }
}
