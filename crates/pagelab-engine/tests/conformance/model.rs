//! Compares page tables alone with maps of their contents.

use std::collections::BTreeMap;

use pagelab_engine::base::addr::{FRAME_BYTES, FRAME_SHIFT, PageSize, Pfn, VirtAddr};
use pagelab_engine::base::memory::PhysMem;
use pagelab_engine::base::rng::Rng;
use pagelab_engine::page_table::{
    Boot, LayerTables, Leaf, Mapping, PageTable, PageTableConfig, PteFlags, Removed, TableBlock, TableWork, WORD_BITS,
    WalkList, Word,
};

use crate::walks::Walks;

/// Guest memory of tables for hosts; other tables translate more.
const GUEST_BYTES: u64 = 1 << 30;

/// Number of the first frame that the allocator gives out, behind all memory that is set aside at boot.
pub const FIRST_FRAME: u64 = 1 << 16;

/// A table, its memory, and its expected contents.
struct Lab {
    config: PageTableConfig,
    mem: PhysMem,
    tables: LayerTables,
    table: PageTable,
    frames: Frames,
    rng: Rng,
    /// By number of the first 4 KiB page.
    pages: BTreeMap<u64, Mapping>,
    words: BTreeMap<u64, (PageSize, u64)>,
    walks: Walks,
    /// Order of the largest block that the table could not do without.
    needed_order: u32,
    /// Whether it gave a block back for another one, as tables that grow do.
    replaces_blocks: bool,
}

/// An allocator that never reuses a frame, and records allocations.
struct Frames {
    next: u64,
    given: BTreeMap<u64, u32>,
}

impl Frames {
    fn take(&mut self, order: u32) -> Pfn {
        let first = self.next.next_multiple_of(1 << order);
        self.next = first + (1 << order);
        self.given.insert(first, order);
        Pfn(first)
    }

    fn give_back(&mut self, first: Pfn) {
        self.given.remove(&first.0).unwrap_or_else(|| panic!("{first:?} was not given out, or is back already"));
    }
}

fn va(vpn: u64) -> VirtAddr {
    VirtAddr::from_page_number(vpn)
}

/// Order of the smallest blocks with which a space's table can be created.
fn order_to_create(config: &PageTableConfig, boot: &Boot) -> u32 {
    let can_be_created = |most: &u32| {
        let (mut mem, mut next) = (PhysMem::default(), FIRST_FRAME);
        let mut tables = LayerTables::boot(config, boot, &mut mem).unwrap();
        let mut frames = |order: u32| {
            next += 2 << order;
            (order <= *most).then_some(Pfn(next >> order << order))
        };
        tables.create(&mut mem, &mut frames, Some(GUEST_BYTES)).is_ok()
    };
    (0..=PageSize::Size1G.order()).find(can_be_created).expect("there are blocks of 1 GiB")
}

/// Number of 4 KiB pages in a page.
fn pages_of(size: PageSize) -> u64 {
    1 << size.order()
}

impl Lab {
    fn new(config: &PageTableConfig, seed: u64) -> Self {
        let (mut mem, mut frames) = (PhysMem::default(), Frames { next: FIRST_FRAME, given: BTreeMap::new() });
        let boot = Boot { layer: "test", frames: 1 << 22, taken: 8, guests: &[GUEST_BYTES] };
        let mut tables = LayerTables::boot(config, &boot, &mut mem).unwrap();
        assert!(tables.set_aside().end <= frames.next);
        let guest = Some(GUEST_BYTES);
        let needed_order = order_to_create(config, &boot);
        let table = tables.create(&mut mem, &mut |order| Some(frames.take(order)), guest).expect("there is memory");
        let rng = Rng::new(seed, config.name());
        let (pages, words) = (BTreeMap::new(), BTreeMap::new());
        let (config, walks) = (config.clone(), Walks::new(config));
        Self { config, mem, tables, table, frames, rng, pages, words, walks, needed_order, replaces_blocks: false }
    }

    /// The page that covers a 4 KiB page, with its first page.
    fn covering(&self, vpn: u64) -> Option<(u64, Mapping)> {
        let (&first, &mapping) = self.pages.range(..=vpn).next_back()?;
        (vpn < first + pages_of(mapping.size)).then_some((first, mapping))
    }

    fn is_free(&self, first: u64, size: PageSize) -> bool {
        let end = first + pages_of(size);
        self.covering(first).is_none()
            && self.pages.range(first..end).next().is_none()
            && (size == PageSize::Size4K || self.words.range(first..end).next().is_none())
    }

    /// The page with a word that covers a 4 KiB page, with its first page.
    fn word_over(&self, vpn: u64) -> Option<(u64, PageSize, u64)> {
        let (&first, &(size, word)) = self.words.range(..=vpn).next_back()?;
        (vpn < first + pages_of(size)).then_some((first, size, word))
    }

    /// Clears the word of a larger page than the one to be mapped.
    fn clear_above(&mut self, vpn: u64, size: PageSize) {
        if let Some((first, larger, _)) = self.word_over(vpn).filter(|&(_, larger, _)| larger > size) {
            self.table.set_word(&mut self.mem, va(first), larger, 0);
            self.words.remove(&first);
        }
    }

    /// Checks the result of a walk, and properties of all walks.
    fn check_walk(&mut self, vpn: u64) {
        let mut list = WalkList::new();
        let at = va(vpn) + self.rng.below(FRAME_BYTES);
        self.table.walk(&self.mem, at, &mut list);
        match (self.covering(vpn), list.leaf) {
            (Some((_, mapping)), leaf) => assert_eq!(leaf, Leaf::Present(mapping), "{vpn:#x} {:?}", self.config),
            (None, Leaf::NotPresent { level, word }) => {
                assert!((1..=5).contains(&level), "{level}");
                let known = self.word_over(vpn).map_or(0, |(_, _, word)| word);
                assert_eq!(word, known, "{vpn:#x} {:?}", self.config);
            }
            (None, leaf) => panic!("{vpn:#x} is {leaf:?} {:?}", self.config),
        }
        let refs = list.refs();
        assert!(!refs.is_empty(), "a walk reads an entry at least");
        assert!(refs.iter().all(|r| (1..=5).contains(&r.level)), "{refs:?}");
        assert!(refs.windows(2).all(|pair| pair[0].step <= pair[1].step && pair[0].level >= pair[1].level), "{refs:?}");
        if let Some((_, pfn)) = self.table.peek(&self.mem, at) {
            assert_eq!(self.covering(vpn).map(|(_, mapping)| mapping.pfn), Some(pfn), "{vpn:#x} {:?}", self.config);
        }
        self.table.hint(&self.mem, at);
        // Each looks at several walks.
        if self.rng.below(16) == 0 {
            self.walks.check(&self.table, &mut self.mem, at, &mut self.rng);
        }
    }

    fn flags(&mut self) -> PteFlags {
        let mut flag = || self.rng.below(2) == 0;
        PteFlags { writable: flag(), user: flag(), executable: flag(), accessed: flag(), dirty: flag() }
    }

    fn mapping(&mut self, size: PageSize) -> Mapping {
        let pfn = Pfn(self.rng.below(1 << 40) & !(pages_of(size) - 1));
        Mapping { pfn, size, flags: self.flags() }
    }

    /// Builds the missing tables for a page, with blocks of the preferred or of other sizes.
    fn build(&mut self, vpn: u64, size: PageSize) {
        for _ in 0..64 {
            if self.table.missing_tables(&self.mem, va(vpn), size) == 0 {
                return;
            }
            let orders = self.table.next_table_orders(&self.mem, va(vpn), size);
            self.needed_order = self.needed_order.max(*orders.iter().min().expect("a block of some order is needed"));
            let order = orders[self.rng.below(orders.len() as u64) as usize];
            let block = TableBlock { first: self.frames.take(order), order };
            block.create(&mut self.mem);
            self.table.link_table(&mut self.mem, va(vpn), size, block).expect("a table is missing");
            self.collect_work();
        }
        panic!("{vpn:#x} misses tables for ever: {:?}", self.config);
    }

    fn collect_work(&mut self) {
        let mut work = TableWork::default();
        self.tables.report_work(&mut self.table, &mut work);
        self.replaces_blocks |= !work.released.is_empty();
        work.released.into_iter().for_each(|first| self.frames.give_back(first));
    }

    fn map(&mut self, vpn: u64, size: PageSize) {
        let first = vpn & !(pages_of(size) - 1);
        if !self.is_free(first, size) {
            return;
        }
        if size > PageSize::Size4K {
            self.prune(first, first + pages_of(size));
        }
        self.clear_above(first, size);
        self.build(first, size);
        assert!(vpn.is_multiple_of(2) || self.table.reserve(&mut self.mem, va(first), size), "there is room");
        let mapping = self.mapping(size);
        self.table.map(&mut self.mem, va(first), mapping).expect("there is room for so few");
        self.collect_work();
        self.words.remove(&first);
        self.pages.insert(first, mapping);
    }

    fn unmap(&mut self, first: u64) {
        self.table.unmap(&mut self.mem, va(first));
        self.pages.remove(&first);
    }

    fn change(&mut self, first: u64, old: Mapping) {
        let new = match self.rng.below(3) {
            0 => {
                let flags = self.flags();
                self.table.set_flags(&mut self.mem, va(first), flags);
                Mapping { flags, ..old }
            }
            1 if old.size > PageSize::Size4K => return self.split(first, old),
            _ => {
                let new = self.mapping(old.size);
                self.table.replace(&mut self.mem, va(first), new);
                new
            }
        };
        self.pages.insert(first, new);
    }

    fn split(&mut self, first: u64, old: Mapping) {
        let size = PageSize::ALL[old.size as usize - 1];
        let parts = (0..pages_of(old.size)).step_by(pages_of(size) as usize);
        let parts: Vec<_> = parts.map(|part| (first + part, Mapping { pfn: old.pfn + part, size, ..old })).collect();
        if self.table.has_table_per_large_page() {
            let frame = self.frames.take(0);
            self.mem.create(frame);
            self.table.split(&mut self.mem, va(first), frame);
        } else {
            self.table.unmap(&mut self.mem, va(first));
            for &(vpn, mapping) in &parts {
                self.build(vpn, size);
                self.table.map(&mut self.mem, va(vpn), mapping).expect("there is room for the parts");
                self.collect_work();
            }
        }
        self.pages.extend(parts);
    }

    /// Sets or clears a word where no page is mapped. A large page's word needs a range without pages and other words.
    fn set_word(&mut self, vpn: u64, size: PageSize) {
        let first = vpn & !(pages_of(size) - 1);
        let word = [0, 1 + self.rng.below((1 << WORD_BITS) - 1)][self.rng.below(2) as usize];
        let own = self.words.get(&first).is_some_and(|&(word_size, _)| word_size == size);
        if !self.is_free(first, size) && !own {
            return;
        }
        if size > PageSize::Size4K {
            self.prune(first, first + pages_of(size));
        }
        self.clear_above(first, size);
        self.build(first, size);
        self.table.set_word(&mut self.mem, va(first), size, word);
        self.words.remove(&first);
        if word != 0 {
            self.words.insert(first, (size, word));
        }
    }

    fn prune(&mut self, start: u64, end: u64) {
        let (frames, room) = (&mut self.frames, (VirtAddr(0), VirtAddr(u64::MAX)));
        self.table.prune(&mut self.mem, (va(start), va(end)), room, &mut |first| frames.give_back(first));
    }

    /// Checks the lists of pages and of words in a range.
    fn check_lists(&mut self, start: u64, end: u64) {
        let most = [3, 150, usize::MAX][self.rng.below(3) as usize];
        let (mut pages, mut words) = (Vec::new(), Vec::new());
        self.table.mapped(&self.mem, va(start), va(end), most, &mut pages);
        let from = self.covering(start).map_or(start, |(first, _)| first);
        let known = self.pages.range(from..end).take(most);
        let known: Vec<_> = known.map(|(&vpn, &mapping)| Removed { va: va(vpn), mapping }).collect();
        assert_eq!(pages, known, "{:?}", self.config);
        self.table.words(&self.mem, va(start), va(end), most, &mut words);
        let from = self.word_over(start).map_or(start, |(first, ..)| first);
        let known = self.words.range(from..end).take(most);
        let known: Vec<_> = known.map(|(&vpn, &(size, word))| Word { va: va(vpn), size, word }).collect();
        assert_eq!(words, known, "{:?}", self.config);
    }

    /// The space ends with all its mappings, and its stale entries are scanned. The test continues with an empty table.
    fn abandon(&mut self) {
        assert!(self.tables.abandon(&mut self.mem, &mut self.table), "there are tags");
        self.pages.clear();
        if let Some(mut scan) = self.tables.begin_scan() {
            loop {
                let step = self.tables.plan_scan(&self.mem, &scan);
                assert!(step.read.1 > 0);
                if !self.tables.commit_scan(&mut self.mem, &mut scan) {
                    break;
                }
            }
        }
    }

    /// Everything is unmapped, and nothing must remain.
    fn end(mut self) {
        let (needed, largest) = (self.needed_order, self.config.largest_block());
        assert!(
            needed <= largest,
            "a block of order {needed} is needed, `largest_block` is {largest}: {:?}",
            self.config
        );
        // A table that grows may need larger blocks than it did here.
        assert!(
            needed == largest || self.replaces_blocks,
            "no block of more than order {needed} is needed, `largest_block` is {largest}: {:?}",
            self.config
        );
        self.walks.end();
        let pages = 1 << (self.table.va_bits() - FRAME_SHIFT);
        self.check_lists(0, pages);
        for vpn in self.pages.keys().copied().collect::<Vec<_>>() {
            self.unmap(vpn);
        }
        for (vpn, (size, _)) in std::mem::take(&mut self.words) {
            self.table.set_word(&mut self.mem, va(vpn), size, 0);
        }
        self.prune(0, pages);
        let frames = &mut self.frames;
        self.tables.destroy(self.table, &mut self.mem, &mut |first| frames.give_back(first));
        assert_eq!(self.mem.frames_in_use(), 0, "frames are left of {:?}", self.config);
        assert!(self.frames.given.is_empty(), "blocks are left of {:?}: {:?}", self.config, self.frames.given);
    }
}

/// Random operations on a table, at nearby and distant pages.
pub fn torture(config: &PageTableConfig, operations: u64, seed: u64) {
    let mut lab = Lab::new(config, seed);
    let space = 1 << (lab.table.va_bits() - FRAME_SHIFT);
    let (sizes, words) = (config.page_sizes(), config.keeps_words().unwrap_or(&[]));
    for _ in 0..operations {
        let region = [0, 0x3_ff80, 0x7_f123_4500, space - 2048][lab.rng.below(4) as usize];
        let vpn = (region + lab.rng.below(2048)) % space;
        lab.check_walk(vpn);
        let size = if lab.rng.below(200) == 0 { sizes[lab.rng.below(sizes.len() as u64) as usize] } else { sizes[0] };
        let known = lab.covering(vpn);
        match (known, lab.rng.below(8)) {
            (Some((first, _)), 0..=3) => lab.unmap(first),
            (Some((first, mapping)), _) => lab.change(first, mapping),
            (None, 0 | 1) if words.contains(&size) => lab.set_word(vpn, size),
            (None, _) => lab.map(vpn, size),
        }
        lab.check_walk(vpn);
        if lab.rng.below(1000) == 0 {
            let (start, end) = (vpn.saturating_sub(lab.rng.below(600)), (vpn + lab.rng.below(600)).min(space));
            lab.check_lists(start, end);
            lab.prune(start, end);
        }
        if lab.rng.below(5000) == 0 && lab.table.clears_lazily() {
            lab.abandon();
        }
    }
    lab.end();
}
