//! Words in non-present entries, under every page table: effects of faults, mapping calls, forks, exits, reclaim and
//! khugepaged, compared with a flat map of each page's contents.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{
    ScriptWriter, assert_frames_conserved, config, first_task, on_two_threads, page_tables_of_programs, run,
    set_page_table,
};
use pagelab_engine::base::addr::{FRAME_BYTES, PageSize, Pfn, VirtAddr};
use pagelab_engine::base::cycles::Cycles;
use pagelab_engine::base::ids::{CpuId, LayerId, SpaceId, SpaceIx};
use pagelab_engine::base::page_fault::{Intent, PageFault};
use pagelab_engine::base::rng::Rng;
use pagelab_engine::base::step::Next;
use pagelab_engine::config::Config;
use pagelab_engine::kernel::effects::Effects;
use pagelab_engine::kernel::entry_word::{EntryWord, SwapSlot};
use pagelab_engine::kernel::fault::Fault;
use pagelab_engine::kernel::home::ProcessTarget;
use pagelab_engine::kernel::layer::Layer;
use pagelab_engine::kernel::layer::words::WordOf;
use pagelab_engine::kernel::reclaim::{GroupId, Pressure};
use pagelab_engine::kernel::threads::config::ThreadConfig;
use pagelab_engine::kernel::threads::khugepaged::Khugepaged;
use pagelab_engine::kernel::vma::VaRange;
use pagelab_engine::machine::simulation::Simulation;
use pagelab_engine::page_table::PteFlags;
use pagelab_trace::{EventKind, Protection, case_seed, cases};

const LAYER: LayerId = LayerId(0);
const CPU: CpuId = CpuId(0);
/// Where programs have memory, in 4 KiB pages; each area has two pages of 2 MiB.
const AREAS: [u64; 2] = [0x7_f000_0000, 0x6_0000_0200];
const AREA_PAGES: u64 = 1024;
const MOST_SPACES: usize = 3;
const SWAP: &str = r#"kernel.swap={"size_bytes":"256MiB","read_cycles":100,"write_cycles":100,"queue_depth":1}"#;
const KHUGEPAGED: &str =
    r#"kernel.threads.khugepaged={"scan_sleep_cycles":1000,"pages_to_scan":100000,"max_ptes_none":511}"#;

/// A page of an address space: numbers of the space and the page.
type Page = (SpaceIx, u64);
/// A page's contents, identified by the store that wrote them; 0 for zeroes.
type Contents = u64;

/// The location of a page's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Frame(Pfn),
    Slot(SwapSlot),
}

/// A kernel without a program, and the expected contents of its pages.
struct Lab {
    simulation: Simulation,
    khugepaged: Option<usize>,
    spaces: Vec<SpaceId>,
    rng: Rng,
    written: Contents,
    /// Contents of each touched page.
    pages: BTreeMap<Page, Contents>,
    /// Contents of frames and slots. Unused ones may remain here.
    frames: BTreeMap<Pfn, Contents>,
    slots: BTreeMap<SwapSlot, Contents>,
    /// Counts of words that were kept, moved, inherited, dropped or read back, and of new large pages.
    seen: BTreeMap<&'static str, usize>,
}

fn va(page: u64) -> VirtAddr {
    VirtAddr::from_page_number(page)
}

fn range(from: u64, pages: u64) -> VaRange {
    VaRange { start: va(from), end: va(from + pages) }
}

fn map_at(from: u64, pages: u64) -> EventKind {
    crate::common::mmap(from * FRAME_BYTES, pages * FRAME_BYTES, Protection::READ_WRITE)
}

/// Locations of the pages of a space.
fn places(layer: &Layer, space: SpaceId) -> BTreeMap<Page, Place> {
    let mut all = BTreeMap::new();
    for page in layer.mapped(space.index, va(0), VirtAddr(1 << 48)) {
        for n in 0..1 << page.mapping.size.order() {
            let at = (space.index, page.va.page_number() + n);
            all.insert(at, Place::Frame(page.mapping.pfn + n));
        }
    }
    for WordOf { va: at, word, .. } in layer.words(space.index, VaRange { start: va(0), end: VirtAddr(1 << 48) }) {
        let EntryWord::Swap(slot) = word else { panic!("{at:?} is armed, though there is no engine") };
        let old = all.insert((space.index, at.page_number()), Place::Slot(slot));
        assert_eq!(old, None, "{at:?} is mapped and has a word");
    }
    all
}

impl Lab {
    fn new(config: &Config, seed: u64) -> Self {
        let mut script = ScriptWriter::new();
        AREAS.iter().for_each(|&area| script.event(0, map_at(area, AREA_PAGES)));
        let (mut simulation, _) = run(config, script.finish(), &[0]);
        let spaces = simulation.programs.inputs[0].spaces().collect();
        let khugepaged = match config.kernel.threads.khugepaged {
            ThreadConfig::On(parameters) if simulation.kernels.os.layers[LAYER].paging.page_size > PageSize::Size4K => {
                Some(simulation.kernels.threads.add(Khugepaged::new(LAYER, parameters).into()))
            }
            ThreadConfig::On(_) | ThreadConfig::Off => None,
        };
        let rng = Rng::new(seed, "words");
        let (pages, frames, slots, seen) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { simulation, khugepaged, spaces, rng, written: 0, pages, frames, slots, seen }
    }

    fn layer(&self) -> &Layer {
        &self.simulation.kernels.os.layers[LAYER]
    }

    fn places(&self) -> BTreeMap<Page, Place> {
        self.spaces.iter().flat_map(|&space| places(self.layer(), space)).collect()
    }

    fn count(&mut self, what: &'static str, words: usize) {
        *self.seen.entry(what).or_default() += words;
    }

    fn words_of(&self, space: SpaceId, range: VaRange) -> usize {
        self.layer().words(space.index, range).len()
    }

    /// Every touched page is where its contents are, and no other page has a location.
    fn check(&mut self) {
        let places = self.places();
        assert!(places.keys().eq(self.pages.keys()), "other pages are there than were touched");
        for (page, place) in &places {
            let held = match place {
                Place::Frame(frame) => self.frames.get(frame),
                Place::Slot(slot) => self.slots.get(slot),
            };
            assert_eq!(held, Some(&self.pages[page]), "page {page:x?} is in {place:?}");
        }
        // Compares walks of a few pages.
        for _ in 0..8 {
            let (space, page) = (self.any_space(), self.any_page());
            let expected = match places.get(&(space.index, page)) {
                Some(Place::Slot(slot)) => Some(EntryWord::Swap(*slot)),
                Some(Place::Frame(_)) | None => None,
            };
            assert_eq!(self.layer().word(space.index, va(page)).map(|entry| entry.word), expected);
            assert_eq!(self.layer().has_words(space.index, range(page, 1)), expected.is_some());
        }
    }

    fn any_space(&mut self) -> SpaceId {
        self.spaces[self.rng.below(self.spaces.len() as u64) as usize]
    }

    fn any_page(&mut self) -> u64 {
        // Most pages are near each other.
        let near = if self.rng.below(3) > 0 { 24 } else { AREA_PAGES };
        AREAS[self.rng.below(2) as usize] + self.rng.below(near)
    }

    /// The first page and the number of pages.
    fn any_range(&mut self) -> (u64, u64) {
        let (area, from) = (AREAS[self.rng.below(2) as usize], self.rng.below(24));
        let pages = [1, 8, 24, AREA_PAGES][self.rng.below(4) as usize];
        (area + from, pages.min(AREA_PAGES - from))
    }

    fn change(&mut self, space: SpaceId, kind: &EventKind) {
        self.simulation
            .kernels
            .os
            .change_mappings(&mut Effects::default(), CpuId(0), space, kind)
            .expect("there is memory");
    }

    /// Applies the effects of a fault or a kernel thread on pages other than `but`.
    fn follow(&mut self, before: &BTreeMap<Page, Place>, but: Option<Page>) {
        let after = self.places();
        for (&page, &place) in after.iter().filter(|(page, _)| Some(**page) != but) {
            match (before.get(&page).copied(), place) {
                (None, Place::Frame(frame)) => {
                    self.pages.insert(page, 0);
                    self.frames.insert(frame, 0);
                }
                (Some(Place::Frame(from)), Place::Slot(slot)) => {
                    let contents = self.frames[&from];
                    if before.values().any(|&other| other == place) {
                        assert_eq!(self.slots[&slot], contents, "{page:x?} goes to what another page has there");
                    }
                    self.slots.insert(slot, contents);
                }
                // A copy.
                (Some(Place::Frame(from)), Place::Frame(to)) if from != to => {
                    assert_eq!(but, None, "a fault copies its own page alone");
                    self.frames.insert(to, self.pages[&page]);
                }
                (old, _) => assert_eq!(old, Some(place), "{page:x?}"),
            }
        }
    }

    fn access(&mut self, space: SpaceId, page: u64, intent: Intent) {
        let (before, at) = (self.places(), (space.index, page));
        let old = before.get(&at).copied();
        if old.is_none() && intent == Intent::Load {
            // A page mapped to the zero page has no contents that could be lost.
            return;
        }
        let cached = self.simulation.kernels.os.layers[LAYER].swap().expect("it was configured").in_memory();
        let cached: BTreeSet<Pfn> = cached.map(|(frame, _)| frame).collect();
        let fault = PageFault { space, va: va(page), intent, reached: None };
        let mut fault = Fault::new(&fault, CPU);
        while fault
            .commit(&mut self.simulation.kernels.os, &mut Effects::default(), first_task(CPU))
            .expect("there is memory")
            != Next::Done
        {}
        let after = self.places();
        let Some(&Place::Frame(frame)) = after.get(&at) else { panic!("{page:#x} is not mapped after a fault") };
        match (old, intent) {
            (_, Intent::Store) => {
                let sharing = after.values().filter(|&&place| place == Place::Frame(frame)).count();
                assert_eq!(sharing, 1, "what is written is the page's own");
                self.written += 1;
                self.pages.insert(at, self.written);
                self.frames.insert(frame, self.written);
            }
            (Some(Place::Slot(slot)), _) if !cached.contains(&frame) => {
                _ = self.frames.insert(frame, self.slots[&slot])
            }
            _ => {}
        }
        self.count("read", usize::from(matches!(old, Some(Place::Slot(_)))));
        self.follow(&before, Some(at));
    }

    fn reclaim(&mut self) {
        for _ in 0..=self.rng.below(6) {
            let before = self.places();
            self.simulation.kernels.os.scan_pages(
                &mut Effects::default(),
                LAYER,
                Pressure::Memory,
                first_task(CpuId(0)),
            );
            self.follow(&before, None);
        }
    }

    fn collapse(&mut self) {
        let Some(thread) = self.khugepaged else { return };
        let before = self.places();
        self.simulation.kernels.threads.begin(thread, Cycles::ZERO);
        while self.simulation.kernels.threads.commit(
            thread,
            &mut self.simulation.kernels.os,
            &mut Effects::default(),
            first_task(CPU),
        ) != Next::Done
        {}
        let now = self.places();
        let moved = before.iter().filter(|&(page, place)| matches!(place, Place::Frame(_)) && now[page] != *place);
        self.count("collapsed", moved.count());
        self.count("left by khugepaged", before.values().filter(|place| matches!(place, Place::Slot(_))).count());
        self.follow(&before, None);
    }

    fn forget(&mut self, space: SpaceId, from: u64, pages: u64) {
        self.pages.retain(|&(index, page), _| index != space.index || !(from..from + pages).contains(&page));
    }

    fn unmap(&mut self, space: SpaceId) {
        let (from, pages) = self.any_range();
        self.count("dropped", self.words_of(space, range(from, pages)));
        let (addr, len) = (from * FRAME_BYTES, pages * FRAME_BYTES);
        if self.rng.below(2) == 0 {
            self.change(space, &EventKind::Munmap { addr, len });
            self.change(space, &map_at(from, pages));
        } else {
            self.change(space, &EventKind::Madvise { addr, len, advice: 4 });
        }
        self.forget(space, from, pages);
    }

    fn relocate(&mut self, space: SpaceId) {
        let (from, pages) = self.any_range();
        let from_first = (AREAS[0]..AREAS[0] + AREA_PAGES).contains(&from);
        let area = AREAS[usize::from(from_first)];
        let to = area + self.rng.below(AREA_PAGES - pages + 1);
        self.count("moved", self.words_of(space, range(from, pages)));
        let (old_addr, new_addr, len) = (from * FRAME_BYTES, to * FRAME_BYTES, pages * FRAME_BYTES);
        self.change(space, &EventKind::Mremap { old_addr, old_len: len, new_addr, new_len: len });
        self.change(space, &map_at(from, pages));
        self.forget(space, to, pages);
        let is_inside = |page: &u64| (from..from + pages).contains(page);
        let moving: Vec<_> = self.pages.iter().filter(|((s, page), _)| *s == space.index && is_inside(page)).collect();
        let moved: Vec<_> = moving.into_iter().map(|(&(s, page), &held)| ((s, page - from + to), held)).collect();
        self.forget(space, from, pages);
        self.pages.extend(moved);
    }

    fn protect(&mut self, space: SpaceId) {
        let (from, pages) = self.any_range();
        let (addr, len) = (from * FRAME_BYTES, pages * FRAME_BYTES);
        self.change(space, &EventKind::Mprotect { addr, len, prot: Protection::from_bits(1) });
        self.check();
        self.change(space, &EventKind::Mprotect { addr, len, prot: Protection::READ_WRITE });
    }

    fn fork(&mut self, parent: SpaceId) {
        if self.spaces.len() == MOST_SPACES {
            return;
        }
        let home = ProcessTarget {
            layer: LAYER,
            group: GroupId::REST,
            uses_placement: true,
            uses_fault_engine: true,
            reported: false,
        };
        let child = self.simulation.kernels.os.add_space(CpuId(0), home).expect("there is memory");
        self.simulation.kernels.os.fork(CpuId(0), parent, child).expect("there is memory");
        self.spaces.push(child);
        self.count("inherited", self.words_of(child, range(0, 1 << 36)));
        let inherited: Vec<_> = self.pages.iter().filter(|((space, _), _)| *space == parent.index).collect();
        let inherited: Vec<_> = inherited.into_iter().map(|(&(_, page), &held)| ((child.index, page), held)).collect();
        self.pages.extend(inherited);
    }

    fn exit(&mut self, space: SpaceId) {
        self.count("ended", self.words_of(space, range(0, 1 << 36)));
        self.simulation.kernels.os.drop_mappings(CpuId(0), space).expect("nothing is built");
        self.simulation.kernels.os.retire(CpuId(0), space);
        self.spaces.retain(|&other| other != space);
        self.pages.retain(|&(index, _), _| index != space.index);
    }

    /// All processes end, and nothing must remain.
    fn end(mut self) -> BTreeMap<&'static str, usize> {
        assert_frames_conserved(&self.simulation, &self.spaces);
        for space in self.spaces.clone() {
            self.exit(space);
        }
        assert_frames_conserved(&self.simulation, &[]);
        let swap = self.simulation.kernels.os.layers[LAYER].swap().expect("it was configured");
        assert_eq!((swap.in_use().count(), swap.used_slots()), (0, 0), "slots are left");
        self.seen
    }
}

fn torture(config: &Config, operations: u64, seed: u64) -> BTreeMap<&'static str, usize> {
    let mut lab = Lab::new(config, seed);
    for n in 0..operations {
        let space = lab.any_space();
        match lab.rng.below(24) {
            0..=8 => {
                let page = lab.any_page();
                lab.access(space, page, Intent::Store);
            }
            9..=11 => {
                let page = lab.any_page();
                lab.access(space, page, Intent::Load);
            }
            12..=16 => lab.reclaim(),
            17 => lab.collapse(),
            18 => lab.unmap(space),
            19 | 20 => lab.relocate(space),
            21 => lab.protect(space),
            22 => lab.fork(space),
            _ if lab.spaces.len() > 1 => lab.exit(space),
            _ => {}
        }
        lab.check();
        if n % 64 == 0 {
            assert_frames_conserved(&lab.simulation, &lab.spaces);
        }
    }
    lab.end()
}

/// Systems with each page table for programs, with and without large pages.
fn systems() -> Vec<Config> {
    let mut all = Vec::new();
    for table in page_tables_of_programs() {
        for &page_size in table.page_sizes().iter().filter(|&&size| size < PageSize::Size1G) {
            let mut config = config("radix", &[SWAP, KHUGEPAGED, "machine.memory_bytes=1GiB", "machine.cores=1"]);
            config.kernel.threads.kswapd = ThreadConfig::Off;
            let layer = &mut config.system.layers[0];
            layer.page_size = page_size;
            set_page_table(layer, &table);
            config.validate().unwrap();
            all.push(config);
        }
    }
    all
}

#[test]
fn words_go_where_their_pages_go() {
    let collapsed = AtomicUsize::new(0);
    on_two_threads(&systems(), |config| {
        let layer = &config.system.layers[0];
        println!("{:?} {:?}", layer.page_table, layer.page_size);
        let mut seen = torture(config, cases(600), case_seed(1));
        for (what, count) in torture(config, cases(600), case_seed(2)) {
            *seen.entry(what).or_default() += count;
        }
        let large = layer.page_size > PageSize::Size4K;
        for (what, count) in &seen {
            // These programs rarely have a range that khugepaged collapses.
            assert!(*count > 0 || what.contains("coll"), "{:?}: {seen:?}", layer.page_table);
        }
        collapsed.fetch_add(seen.get("collapsed").copied().unwrap_or(0), Ordering::Relaxed);
        println!("  {seen:?}");
        assert_eq!(seen.len(), if large { 7 } else { 5 }, "{seen:?}");
    });
    assert!(collapsed.into_inner() > 0);
}

/// A page that khugepaged did not find is written and evicted while khugepaged copies the pages next to it.
#[test]
fn khugepaged_looks_again_for_what_left_while_it_copied() {
    let config = config("radix-2m", &[SWAP, KHUGEPAGED, "kernel.threads.kswapd=off", "machine.memory_bytes=64MiB"]);
    let mut lab = Lab::new(&config, 1);
    let (thread, space) = (lab.khugepaged.expect("it is configured"), lab.spaces[0]);
    lab.simulation.kernels.os.layers[LAYER].paging.page_size = PageSize::Size4K;
    (0..8).for_each(|n| lab.access(space, AREAS[0] + n, Intent::Store));
    lab.simulation.kernels.threads.begin(thread, Cycles::ZERO);
    while lab.simulation.kernels.threads.held_frames(LAYER) == 0 {
        assert_eq!(
            lab.simulation.kernels.threads.commit(
                thread,
                &mut lab.simulation.kernels.os,
                &mut Effects::default(),
                first_task(CPU)
            ),
            Next::Continue
        );
    }
    let late = AREAS[0] + 20;
    lab.access(space, late, Intent::Store);
    let layer = &mut lab.simulation.kernels.os.layers[LAYER];
    for page in layer.mapped(space.index, va(AREAS[0]), va(AREAS[0] + AREA_PAGES)) {
        let flags = PteFlags { accessed: page.va != va(late), ..page.mapping.flags };
        layer.protect(space.index, &page, flags);
    }
    let before = lab.places();
    lab.simulation.kernels.os.scan_pages(&mut Effects::default(), LAYER, Pressure::Memory, first_task(CpuId(0)));
    lab.follow(&before, None);
    lab.check();
    assert_eq!(lab.words_of(space, VaRange::ALL), 1, "that one has left");
    while lab.simulation.kernels.threads.commit(
        thread,
        &mut lab.simulation.kernels.os,
        &mut Effects::default(),
        first_task(CPU),
    ) != Next::Done
    {}
    assert_eq!(lab.simulation.kernels.threads.held_frames(LAYER), 0);
    lab.check();
    lab.access(space, late, Intent::Load);
    lab.check();
    lab.end();
}
