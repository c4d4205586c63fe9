//! A second implementation of one core and one address space with demand paging: a two-level TLB, paging-structure
//! caches and data caches as lists in order of use. Frame numbers come from outside, since the allocator chooses them.

use std::collections::{BTreeMap, BTreeSet};

use super::caches::{Caches, HitLevel};

/// Sets of keys in order of use, the least recent first.
struct Recency<V> {
    sets: Vec<Vec<(u64, V)>>,
    ways: usize,
}

impl<V: Copy> Recency<V> {
    fn new(entries: usize, ways: usize) -> Self {
        Self { sets: (0..entries / ways).map(|_| Vec::new()).collect(), ways }
    }

    fn set(&mut self, key: u64) -> &mut Vec<(u64, V)> {
        let sets = self.sets.len() as u64;
        &mut self.sets[(key % sets) as usize]
    }

    fn look_up(&mut self, key: u64) -> Option<V> {
        let set = self.set(key);
        let at = set.iter().position(|e| e.0 == key)?;
        let entry = set.remove(at);
        set.push(entry);
        Some(entry.1)
    }

    fn insert(&mut self, key: u64, value: V) {
        let ways = self.ways;
        let set = self.set(key);
        set.retain(|e| e.0 != key);
        if set.len() == ways {
            set.remove(0);
        }
        set.push((key, value));
    }

    fn retain(&mut self, keep: impl Fn(u64) -> bool) {
        self.sets.iter_mut().for_each(|set| set.retain(|e| keep(e.0)));
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Load,
    Store,
    Fetch,
}

/// A page as the kernel mapped it.
#[derive(Clone, Copy)]
struct Page {
    writable: bool,
    dirty: bool,
}

/// Entries and ways of each unit.
pub struct Geometry {
    pub l1d: (usize, usize),
    pub l1i: (usize, usize),
    pub l2: (usize, usize),
    pub l2_latency: u64,
    /// Level, entries, ways.
    pub paging_structure: Vec<(u32, usize, usize)>,
    pub paging_structure_latency: u64,
    pub l1_latency: u64,
}

/// Counts under the engine's names.
pub type Counts = BTreeMap<&'static str, u64>;

/// See the module's text.
pub struct Machine {
    geometry: Geometry,
    l1d: Recency<Page>,
    l1i: Recency<Page>,
    l2: Recency<Page>,
    paging_structure: Vec<(u32, Recency<()>)>,
    caches: Caches,
    /// Virtual page → read and write permission.
    allowed: BTreeMap<u64, (bool, bool)>,
    mapped: BTreeMap<u64, Page>,
    /// Tables that exist, by the level of the entry above them and its prefix. MADV_DONTNEED leaves empty ones.
    tables: BTreeSet<(u32, u64)>,
    pub counts: Counts,
}

/// Levels of the tables.
const LEVELS: u32 = 4;

fn prefix(page: u64, level: u32) -> u64 {
    page >> (9 * (level - 1))
}

impl Machine {
    pub fn new(geometry: Geometry, caches: Caches) -> Self {
        Self {
            l1d: Recency::new(geometry.l1d.0, geometry.l1d.1),
            l1i: Recency::new(geometry.l1i.0, geometry.l1i.1),
            l2: Recency::new(geometry.l2.0, geometry.l2.1),
            paging_structure: geometry.paging_structure.iter().map(|&(l, e, w)| (l, Recency::new(e, w))).collect(),
            geometry,
            caches,
            allowed: BTreeMap::new(),
            mapped: BTreeMap::new(),
            tables: BTreeSet::new(),
            counts: Counts::new(),
        }
    }

    fn count(&mut self, name: &'static str, by: u64) {
        *self.counts.entry(name).or_default() += by;
    }

    /// Pages mapped now.
    pub fn pages(&self) -> impl Iterator<Item = u64> + '_ {
        self.mapped.keys().copied()
    }

    /// mmap, which replaces existing mappings; 4 KiB pages by number.
    pub fn map(&mut self, pages: std::ops::Range<u64>, permission: (bool, bool)) {
        self.unmap(pages.clone());
        pages.for_each(|page| {
            self.allowed.insert(page, permission);
        });
    }

    /// munmap, which frees the tables in whose addresses it leaves no mapping.
    pub fn unmap(&mut self, pages: std::ops::Range<u64>) {
        self.discard(pages.clone());
        let touched = |level| prefix(pages.start, level)..=prefix(pages.end - 1, level);
        self.allowed.retain(|page, _| !pages.contains(page));
        let before = self.tables.len();
        self.tables.retain(|&(level, number)| {
            !touched(level).contains(&number) || self.allowed.keys().any(|&page| prefix(page, level) == number)
        });
        if self.tables.len() < before {
            self.paging_structure.iter_mut().for_each(|(_, array)| array.retain(|_| false));
        }
    }

    /// MADV_DONTNEED.
    pub fn discard(&mut self, pages: std::ops::Range<u64>) {
        let gone: Vec<u64> = self.mapped.range(pages).map(|(&page, _)| page).collect();
        gone.iter().for_each(|page| {
            self.mapped.remove(page);
        });
        self.shoot_down(&gone);
    }

    pub fn protect(&mut self, pages: std::ops::Range<u64>, permission: (bool, bool)) {
        let mut changed = Vec::new();
        for page in pages {
            let Some(old) = self.allowed.get_mut(&page) else { continue };
            if std::mem::replace(old, permission) != permission
                && let Some(mapped) = self.mapped.get_mut(&page)
            {
                mapped.writable = permission.1;
                changed.push(page);
            }
        }
        self.shoot_down(&changed);
    }

    /// The scripts never change enough pages in one call for the kernel to flush everything.
    fn shoot_down(&mut self, pages: &[u64]) {
        if pages.is_empty() {
            return;
        }
        assert!(pages.len() <= 33, "the model does not know full flushes");
        for tlb in [&mut self.l1d, &mut self.l1i, &mut self.l2] {
            tlb.retain(|page| !pages.contains(&page));
        }
        self.paging_structure.iter_mut().for_each(|(_, array)| array.retain(|_| false));
    }

    /// Counts a look-up that misses; it is a retry if the access is repeated after a fault.
    fn count_miss(&mut self, level: usize, kind: Kind, held: bool, again: bool) {
        let names = match (kind, again, held) {
            (Kind::Fetch, false, _) => ["itlb.l1.misses", "itlb.l2.misses"],
            (Kind::Fetch, true, _) => ["itlb.l1.retries", "itlb.l2.retries"],
            (_, true, _) => ["dtlb.l1.retries", "dtlb.l2.retries"],
            (_, false, true) => ["dtlb.l1.unwritable", "dtlb.l2.unwritable"],
            (_, false, false) => ["dtlb.l1.misses", "dtlb.l2.misses"],
        };
        self.count(names[level - 1], 1);
    }

    fn translate(&mut self, page: u64, kind: Kind) -> bool {
        let mut again = false;
        loop {
            let first = if kind == Kind::Fetch { &mut self.l1i } else { &mut self.l1d };
            let serves = |held: Option<Page>| held.is_some_and(|p| kind != Kind::Store || p.writable && p.dirty);
            let held = first.look_up(page);
            if serves(held) {
                return true;
            }
            self.count_miss(1, kind, held.is_some(), again);
            self.count("cycles.translation", self.geometry.l2_latency);
            let held = self.l2.look_up(page);
            let translation = if serves(held) {
                held
            } else {
                self.count_miss(2, kind, held.is_some(), again);
                let walked = self.walk(page, kind);
                if let Some(found) = walked {
                    self.l2.insert(page, found);
                    self.count("walk.dirty.count", u64::from(held.is_some()));
                }
                walked
            };
            if let Some(translation) = translation {
                let first = if kind == Kind::Fetch { &mut self.l1i } else { &mut self.l1d };
                first.insert(page, translation);
                return true;
            }
            match self.allowed.get(&page) {
                None => {
                    self.count("fault.outside.count", 1);
                    return false;
                }
                Some(&(_, write)) if kind == Kind::Store && !write => {
                    self.count("fault.forbidden.count", 1);
                    return false;
                }
                Some(&(read, write)) if !read && !write => {
                    self.count("fault.forbidden.count", 1);
                    return false;
                }
                Some(&(_, write)) => {
                    self.mapped.insert(page, Page { writable: write, dirty: write });
                    self.tables.extend((2..=LEVELS).map(|level| (level, prefix(page, level))));
                    self.count("fault.minor.count", 1);
                    again = true;
                }
            }
        }
    }

    fn walk(&mut self, page: u64, kind: Kind) -> Option<Page> {
        let stands = |level: u32| self.tables.contains(&(level, prefix(page, level)));
        let lowest = (1..LEVELS).rev().find(|&level| !stands(level + 1)).map_or(1, |level| level + 1);
        let mut read: Vec<u32> = (lowest..=LEVELS).collect();
        // The last entry is a leaf or not present: neither is cached.
        let kept: Vec<u32> = read.iter().copied().filter(|&level| level > lowest).collect();
        let mut spared = LEVELS + 1;
        for (level, array) in &mut self.paging_structure {
            if array.look_up(prefix(page, *level)).is_some() && kept.contains(level) {
                spared = *level;
                break;
            }
        }
        read.retain(|&level| level < spared);
        for (level, array) in &mut self.paging_structure {
            // A skipped entry was not read, so it is not cached again.
            if kept.contains(level) && read.contains(level) {
                array.insert(prefix(page, *level), ());
            }
        }
        let references = read.len() as u64;
        self.count(
            "cycles.translation",
            self.geometry.paging_structure_latency + references * self.geometry.l1_latency,
        );
        let store = kind == Kind::Store;
        let Some(found) = self.mapped.get_mut(&page).filter(|found| found.writable || !store) else {
            self.count("walk.aborted.count", 1);
            self.count("walk.aborted.refs", references);
            return None;
        };
        let update = store && !found.dirty;
        found.dirty |= store;
        let found = *found;
        self.count("walk.count", 1);
        self.count("walk.refs", references);
        if update {
            self.count("walk.accessed_dirty_updates", 1);
            self.count("cycles.translation", self.geometry.l1_latency);
        }
        Some(found)
    }

    /// One access. `frame` returns the frame of a mapped page.
    pub fn access(&mut self, kind: Kind, addr: u64, bytes: u64, frame: &dyn Fn(u64) -> u64) {
        self.count("accesses", 1);
        if kind == Kind::Fetch {
            if !self.translate(addr >> 12, kind) {
                self.count("accesses.refused", 1);
            }
            return;
        }
        let mut refused = false;
        // The number of levels missed by the line found furthest out: an access counts once per level.
        let mut beyond = 0;
        for line in addr >> 6..=(addr + bytes - 1) >> 6 {
            if !self.translate(line >> 6, kind) {
                refused = true;
                continue;
            }
            let machine = frame(line >> 6) << 6 | line & 63;
            let (served, cycles) = self.caches.access(0, machine, kind == Kind::Store, false, false);
            self.count("cycles.data_stall", cycles - self.geometry.l1_latency);
            beyond = beyond.max(match served {
                HitLevel::L1 => 0,
                HitLevel::L2 => 1,
                HitLevel::L3 => 2,
                HitLevel::Dram | HitLevel::Remote => 3,
            });
        }
        for (missed, name) in ["l1d.misses.data", "l2.misses.data", "l3.misses.data"].into_iter().enumerate() {
            self.count(name, u64::from(beyond > missed));
        }
        self.count("accesses.refused", u64::from(refused));
    }
}
