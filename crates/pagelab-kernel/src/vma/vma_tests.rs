use std::collections::BTreeMap;

use pagelab_trace::event::{EventKind, ProcessIx};
use pagelab_trace::{case_seed, cases};

use super::*;
use pagelab_base::rng::Rng;

const PAGE: u64 = FRAME_BYTES;
const BASE: u64 = 0x10_0000;

fn mmap(addr: u64, len: u64, flags: u32) -> EventKind {
    let flags = MapFlags(flags);
    EventKind::Mmap { addr, len, prot: Protection::READ_WRITE, flags, file: None, file_offset: 0 }
}

fn file_mmap(addr: u64, len: u64, name: &str, file_offset: u64) -> EventKind {
    let (prot, flags) = (Protection::READ_WRITE, MapFlags(MapFlags::PRIVATE));
    EventKind::Mmap { addr, len, prot, flags, file: Some(name.into()), file_offset }
}

const ANON: u32 = MapFlags::PRIVATE | MapFlags::ANONYMOUS;

fn range(start: u64, end: u64) -> VaRange {
    VaRange { start: VirtAddr(start), end: VirtAddr(end) }
}

fn spans(set: &VmaSet) -> Vec<(u64, u64)> {
    set.iter().map(|vma| (vma.start.0, vma.end.0)).collect()
}

/// State of one page, without VMAs: the offset is the page's own.
#[derive(Clone, Debug, PartialEq)]
struct Page {
    prot: Protection,
    flags: MapFlags,
    kind: VmaKind,
    file: Option<Arc<str>>,
    offset: u64,
    advice: VmaAdvice,
    accounted: bool,
}

/// An address space by page, with a token for the translation of each touched page.
#[derive(Clone, Default)]
struct NaiveSpace {
    pages: BTreeMap<u64, Page>,
    tokens: BTreeMap<u64, u64>,
    heap: Option<(u64, u64)>,
}

fn pages_of(addr: u64, len: u64) -> impl Iterator<Item = u64> {
    (0..len.div_ceil(PAGE)).map(move |n| addr + n * PAGE)
}

impl NaiveSpace {
    fn drop_page(&mut self, at: u64) {
        self.pages.remove(&at);
        self.tokens.remove(&at);
    }

    fn has_offset(page: &Page) -> bool {
        page.kind == VmaKind::File || page.flags.contains(MapFlags::SHARED)
    }

    fn protect(page: &mut Page, prot: Protection) {
        page.prot = prot;
        let without = MapFlags::SHARED | MapFlags::HUGETLB | super::apply::MAP_NORESERVE;
        if prot.write && page.flags.0 & without == 0 {
            page.accounted = true;
        }
    }

    fn apply(&mut self, event: &EventKind) {
        match event {
            EventKind::Mmap { addr, len, prot, flags, file, file_offset } => {
                for at in pages_of(*addr, *len) {
                    self.drop_page(at);
                    let grows = flags.contains(MapFlags::GROWSDOWN);
                    let kind = match file {
                        Some(_) => VmaKind::File,
                        None if grows => VmaKind::Stack,
                        None => VmaKind::Anonymous,
                    };
                    let mut page = Page {
                        prot: *prot,
                        flags: *flags,
                        kind,
                        file: file.clone(),
                        offset: 0,
                        advice: VmaAdvice::default(),
                        accounted: false,
                    };
                    Self::protect(&mut page, *prot);
                    if Self::has_offset(&page) {
                        page.offset = file_offset + (at - addr);
                    }
                    self.pages.insert(at, page);
                }
            }
            EventKind::Munmap { addr, len } => pages_of(*addr, *len).for_each(|at| self.drop_page(at)),
            EventKind::Mprotect { addr, len, prot } => {
                for at in pages_of(*addr, *len) {
                    self.pages.entry(at).and_modify(|page| Self::protect(page, *prot));
                }
            }
            EventKind::Madvise { addr, len, advice } => {
                for at in pages_of(*addr, *len) {
                    if *advice == 4 {
                        self.tokens.remove(&at);
                    }
                    if let Some(page) = self.pages.get_mut(&at) {
                        match advice {
                            10 => page.advice.dont_fork = true,
                            11 => page.advice.dont_fork = false,
                            14 => page.advice.huge = HugeAdvice::Huge,
                            15 => page.advice.huge = HugeAdvice::NoHuge,
                            _ => {}
                        }
                    }
                }
            }
            EventKind::Brk { start, end } => {
                let end = end.next_multiple_of(PAGE);
                let old = self.heap.map_or(*start, |h| h.1);
                pages_of(end, old.saturating_sub(end)).for_each(|at| self.drop_page(at));
                for at in pages_of(old, end.saturating_sub(old)) {
                    self.pages.entry(at).or_insert_with(|| Page {
                        prot: Protection::READ_WRITE,
                        flags: MapFlags::anonymous_private(),
                        kind: VmaKind::Heap,
                        file: None,
                        offset: 0,
                        advice: VmaAdvice::default(),
                        accounted: true,
                    });
                }
                self.heap = Some((*start, end));
            }
            EventKind::Mremap { old_addr, old_len, new_addr, new_len } => {
                let old: Vec<u64> = pages_of(*old_addr, *old_len).collect();
                let new: Vec<u64> = pages_of(*new_addr, *new_len).collect();
                let moves = old_addr != new_addr;
                if moves {
                    new.iter().for_each(|at| self.drop_page(*at));
                }
                let last = self.pages.get(old.last().unwrap()).cloned();
                for (n, from) in old.iter().enumerate() {
                    let (page, token) = (self.pages.get(from).cloned(), self.tokens.get(from).copied());
                    if moves || n >= new.len() {
                        self.drop_page(*from);
                    }
                    let (Some(mut page), Some(to), true) = (page, new.get(n), moves) else { continue };
                    if page.kind == VmaKind::Heap {
                        page.kind = VmaKind::Anonymous;
                    }
                    self.pages.insert(*to, page);
                    token.map(|token| self.tokens.insert(*to, token));
                }
                for (n, at) in new.iter().enumerate().skip(old.len()) {
                    let mut page = last.clone().unwrap();
                    if Self::has_offset(&page) {
                        page.offset += (n + 1 - old.len()) as u64 * PAGE;
                    }
                    if moves && page.kind == VmaKind::Heap {
                        page.kind = VmaKind::Anonymous;
                    }
                    self.drop_page(*at);
                    self.pages.insert(*at, page);
                }
            }
            other => panic!("{other:?}"),
        }
    }

    /// Adds pages of the growing stack above `addr`, down to it.
    fn grow(&mut self, addr: u64, limits: StackLimits) -> bool {
        let start = addr & !(PAGE - 1);
        let Some((&low, stack)) = self.pages.range(start..).next() else { return false };
        if stack.kind != VmaKind::Stack {
            return false;
        }
        let stack = stack.clone();
        let mut end = low;
        while self.pages.get(&end) == Some(&stack) {
            end += PAGE;
        }
        if end - start > limits.max_bytes {
            return false;
        }
        if let Some((below, page)) = self.pages.range(..start).next_back() {
            let accessible = page.prot != Protection::from_bits(0);
            if accessible && page.kind != VmaKind::Stack && start - (below + PAGE) < limits.guard_gap_bytes {
                return false;
            }
        }
        (start..low).step_by(PAGE as usize).for_each(|at| _ = self.pages.insert(at, stack.clone()));
        true
    }
}

fn flatten(set: &VmaSet) -> BTreeMap<u64, Page> {
    let mut pages = BTreeMap::new();
    for vma in set.iter() {
        for at in pages_of(vma.start.0, vma.range().len_bytes()) {
            let Vma { prot, flags, kind, file, file_offset, advice, accounted, .. } = vma.clone();
            let mut page = Page { prot, flags, kind, file, offset: file_offset, advice, accounted };
            if NaiveSpace::has_offset(&page) {
                page.offset += at - vma.start.0;
            }
            pages.insert(at, page);
        }
    }
    pages
}

/// Applies the changes as page tables would.
fn follow(tokens: &mut BTreeMap<u64, u64>, changes: &[VmaChange]) {
    for change in changes {
        match change {
            VmaChange::Unmapped { vma, .. } => tokens.retain(|at, _| !vma.contains(VirtAddr(*at))),
            VmaChange::Discarded { range } => tokens.retain(|at, _| !range.contains(VirtAddr(*at))),
            VmaChange::Moved { from, to, .. } => {
                for at in pages_of(from.start.0, from.len_bytes()) {
                    if let Some(token) = tokens.remove(&at) {
                        let old = tokens.insert(to.0 + (at - from.start.0), token);
                        assert_eq!(old, None, "moved onto a translation");
                    }
                }
            }
            VmaChange::Mapped { range, .. } | VmaChange::Recorded { range } => {
                assert!(tokens.range(range.start.0..range.end.0).next().is_none(), "mapped over a translation");
            }
            VmaChange::Protected { .. } | VmaChange::Advised { .. } => {}
        }
    }
}

/// Checks the protection of each page, as far as the changes specify it.
fn check_protections(before: &BTreeMap<u64, Page>, after: &BTreeMap<u64, Page>, changes: &[VmaChange]) {
    let mut told = BTreeMap::new();
    for change in changes {
        if let VmaChange::Protected { range, from, to } = change {
            for at in pages_of(range.start.0, range.len_bytes()) {
                assert_eq!(before[&at].prot, *from);
                told.insert(at, *to);
            }
        }
    }
    for (at, page) in after {
        let old = before[at].prot;
        assert_eq!(told.get(at).copied(), (old != page.prot).then_some(page.prot), "page {at:#x}");
    }
}

fn random_event(rng: &mut Rng, heap_start: u64, space_pages: u64) -> EventKind {
    let addr = BASE + rng.below(space_pages) * PAGE;
    // Lengths in bytes: whole pages or a part of the last.
    let len = (1 + rng.below(12)) * PAGE - rng.below(2) * rng.below(PAGE);
    let prot = Protection::from_bits([0, 1, 3, 5][rng.below(4) as usize]);
    match rng.below(100) {
        0..30 => {
            let (flags, file) = match rng.below(6) {
                0 => (MapFlags::SHARED | MapFlags::ANONYMOUS, None),
                1 => (MapFlags::PRIVATE, Some(["a", "b"][rng.below(2) as usize].into())),
                2 => (MapFlags::SHARED, Some("a".into())),
                3 => (ANON | MapFlags::GROWSDOWN, None),
                _ => (ANON, None),
            };
            // Often with offsets that make neighbours of one file contiguous.
            let file_offset = if file.is_some() { addr - BASE + rng.below(2) * PAGE } else { 0 };
            EventKind::Mmap { addr, len, prot, flags: MapFlags(flags), file, file_offset }
        }
        30..50 => EventKind::Munmap { addr, len },
        50..70 => EventKind::Mprotect { addr, len, prot },
        70..80 => EventKind::Madvise { addr, len, advice: [4, 4, 8, 10, 11, 14, 15][rng.below(7) as usize] },
        80..88 => EventKind::Brk { start: heap_start, end: heap_start + rng.below(20 * PAGE) },
        _ => {
            let old_len = (1 + rng.below(8)) * PAGE;
            let new_len = (1 + rng.below(8)) * PAGE;
            let in_place = rng.below(3) == 0;
            let new_addr = if in_place { addr } else { BASE + rng.below(space_pages) * PAGE };
            EventKind::Mremap { old_addr: addr, old_len, new_addr, new_len }
        }
    }
}

#[test]
fn equals_a_map_page_by_page() {
    let limits = StackLimits { max_bytes: 16 * PAGE, guard_gap_bytes: 3 * PAGE };
    let space_pages = 160;
    let heap_start = BASE + 60 * PAGE;
    let (mut grown, mut refused, mut moves) = (0, 0, 0);
    for seed in 0..cases(40) {
        let mut rng = Rng::new(case_seed(seed), "vma events");
        let mut set = VmaSet::new(limits);
        let mut naive = NaiveSpace::default();
        let mut tokens = BTreeMap::new();
        for step in 0..6_000_u64 {
            let addr = VirtAddr(BASE + rng.below(space_pages * PAGE));
            match rng.below(4) {
                0 => {
                    let event = random_event(&mut rng, heap_start, space_pages);
                    let before = flatten(&set);
                    match set.apply(&event) {
                        Ok(changes) => {
                            naive.apply(&event);
                            follow(&mut tokens, &changes);
                            if matches!(event, EventKind::Mprotect { .. }) {
                                check_protections(&before, &flatten(&set), &changes);
                            }
                            moves += u64::from(changes.iter().any(|c| matches!(c, VmaChange::Moved { .. })));
                        }
                        Err(VmaError::NotMapped { .. } | VmaError::Overlap { .. }) => {
                            assert!(matches!(event, EventKind::Mremap { .. }));
                            assert_eq!(flatten(&set), before);
                            refused += 1;
                        }
                        Err(error) => panic!("{error}"),
                    }
                    set.check_invariants();
                    assert_eq!(flatten(&set), naive.pages, "seed {seed} step {step}: {event:?}");
                    assert_eq!(tokens, naive.tokens, "seed {seed} step {step}: {event:?}");
                }
                1 if rng.below(4) == 0 => {
                    let page = addr.0 & !(PAGE - 1);
                    let expected = naive.pages.contains_key(&page) || {
                        let grew = naive.grow(addr.0, limits);
                        grown += u64::from(grew);
                        grew
                    };
                    assert_eq!(set.find_or_grow(addr).is_some(), expected, "seed {seed} step {step} {addr:?}");
                    assert_eq!(flatten(&set), naive.pages, "seed {seed} step {step}");
                }
                _ => {
                    let page = addr.0 & !(PAGE - 1);
                    let found = set.find(addr);
                    assert_eq!(found.is_some(), naive.pages.contains_key(&page));
                    if let Some(vma) = found {
                        assert!(vma.contains(addr));
                        tokens.insert(page, step);
                        naive.tokens.insert(page, step);
                    }
                }
            }
            assert_eq!(set.mapped_pages(), naive.pages.len() as u64);
        }
        assert_eq!(flatten(&set.fork()), {
            let mut child = naive.pages.clone();
            child.retain(|_, page| !page.advice.dont_fork);
            child
        });
        follow(&mut tokens, &set.clear());
        assert!(tokens.is_empty() && set.is_empty() && set.mapped_pages() == 0);
    }
    assert!(grown > 100 && refused > 1000 && moves > 500, "{grown} {refused} {moves}: the test misses cases");
}

#[test]
fn once_writable_vmas_do_not_merge_with_never_writable_ones() {
    // A library: constants, then data, of which the loader makes a part read-only.
    let (read, write) = (Protection::from_bits(1), Protection::READ_WRITE);
    let file = |at: u64, prot| EventKind::Mmap {
        addr: BASE + at * PAGE,
        len: 2 * PAGE,
        prot,
        flags: MapFlags(MapFlags::PRIVATE),
        file: Some("a".into()),
        file_offset: at * PAGE,
    };
    let mut set = VmaSet::default();
    for event in [file(0, read), file(2, write), EventKind::Mprotect { addr: BASE + 2 * PAGE, len: PAGE, prot: read }] {
        set.apply(&event).unwrap();
    }
    assert_eq!(spans(&set), [(0, 2), (2, 3), (3, 4)].map(|(start, end)| (BASE + start * PAGE, BASE + end * PAGE)));
    // Being writable once is enough.
    set.apply(&EventKind::Mprotect { addr: BASE, len: 2 * PAGE, prot: write }).unwrap();
    set.apply(&EventKind::Mprotect { addr: BASE, len: 2 * PAGE, prot: read }).unwrap();
    assert_eq!(spans(&set), [(0, 3), (3, 4)].map(|(start, end)| (BASE + start * PAGE, BASE + end * PAGE)));
}

#[test]
fn neighbours_join_as_in_linux() {
    let mut set = VmaSet::default();
    let apply = |set: &mut VmaSet, event| set.apply(&event).unwrap();
    apply(&mut set, mmap(BASE, 2 * PAGE, ANON));
    // The rest of the last page counts, and MAP_FIXED concerns only the call.
    apply(&mut set, mmap(BASE + 2 * PAGE, 1, ANON | MapFlags::FIXED));
    assert_eq!(spans(&set), [(BASE, BASE + 3 * PAGE)]);
    let middle = EventKind::Mprotect { addr: BASE + PAGE, len: PAGE, prot: Protection::from_bits(1) };
    let changes = apply(&mut set, middle);
    let (from, to) = (Protection::READ_WRITE, Protection::from_bits(1));
    assert_eq!(changes, [VmaChange::Protected { range: range(BASE + PAGE, BASE + 2 * PAGE), from, to }]);
    assert_eq!(set.len(), 3);
    apply(&mut set, EventKind::Mprotect { addr: BASE, len: 3 * PAGE, prot: Protection::READ_WRITE });
    assert_eq!(set.len(), 1);

    // Mappings of a file are merged if they are contiguous; so are the pieces of one mapping.
    apply(&mut set, file_mmap(BASE + 8 * PAGE, PAGE, "a", 0));
    apply(&mut set, file_mmap(BASE + 9 * PAGE, PAGE, "a", PAGE));
    apply(&mut set, file_mmap(BASE + 10 * PAGE, PAGE, "a", 3 * PAGE));
    apply(&mut set, file_mmap(BASE + 11 * PAGE, PAGE, "b", 4 * PAGE));
    assert_eq!(set.len(), 4);
    assert_eq!(set.find(VirtAddr(BASE + 9 * PAGE + 5)).unwrap().range(), range(BASE + 8 * PAGE, BASE + 10 * PAGE));

    // Two shared mappings are two objects; huge-page mappings are never merged and are rounded to their page size.
    apply(&mut set, mmap(BASE + 20 * PAGE, PAGE, MapFlags::SHARED | MapFlags::ANONYMOUS));
    apply(&mut set, mmap(BASE + 21 * PAGE, PAGE, MapFlags::SHARED | MapFlags::ANONYMOUS));
    assert_eq!(set.len(), 6);
    let huge = ANON | MapFlags::HUGETLB;
    apply(&mut set, mmap(0x4000_0000, 5, huge));
    apply(&mut set, mmap(0x4020_0000, 5, huge));
    assert_eq!(&spans(&set)[6..], [(0x4000_0000, 0x4020_0000), (0x4020_0000, 0x4040_0000)]);
}

#[test]
fn the_stack_grows_within_its_limits() {
    let top = 0x7fff_0000_0000;
    let stack = EventKind::Mmap {
        addr: top - 4 * PAGE,
        len: 4 * PAGE,
        prot: Protection::READ_WRITE,
        flags: MapFlags(ANON),
        file: Some("[stack]".into()),
        file_offset: 0,
    };
    let mut set = VmaSet::default();
    set.apply(&stack).unwrap();
    assert_eq!(set.find(VirtAddr(top - 5 * PAGE)), None);
    assert_eq!(set.find_or_grow(VirtAddr(top - 10 * PAGE + 7)).unwrap().start.0, top - 10 * PAGE);
    assert_eq!(set.find_or_grow(VirtAddr(top - (8 << 20) - 1)), None, "above 8 MiB");
    assert_eq!(set.find_or_grow(VirtAddr(top)), None, "never upwards");
    assert_eq!(set.mapped_pages(), 10);

    // A mapping 257 pages below the 20th page: the gap of 256 pages is just kept.
    let below = top - 20 * PAGE - 257 * PAGE;
    set.apply(&mmap(below, PAGE, ANON)).unwrap();
    assert_eq!(set.find_or_grow(VirtAddr(top - 21 * PAGE)), None, "into the guard gap");
    assert_eq!(set.find_or_grow(VirtAddr(top - 20 * PAGE)).unwrap().pages(), 20);
    // An inaccessible mapping below serves as a guard.
    set.apply(&EventKind::Mprotect { addr: below, len: PAGE, prot: Protection::default() }).unwrap();
    assert_eq!(set.find_or_grow(VirtAddr(top - 21 * PAGE)).unwrap().pages(), 21);
    set.check_invariants();
}

#[test]
fn the_heap_follows_brk() {
    let mut set = VmaSet::default();
    let brk = |set: &mut VmaSet, start, end| set.apply(&EventKind::Brk { start, end }).unwrap();
    assert_eq!(brk(&mut set, BASE, BASE), []);
    let mapped = |start, end| VmaChange::Mapped { range: range(start, end), populate: false };
    assert_eq!(brk(&mut set, BASE, BASE + 1), [mapped(BASE, BASE + PAGE)]);
    assert_eq!(brk(&mut set, BASE, BASE + PAGE), []);
    assert_eq!(brk(&mut set, BASE, BASE + 3 * PAGE - 1), [mapped(BASE + PAGE, BASE + 3 * PAGE)]);
    assert_eq!(spans(&set), [(BASE, BASE + 3 * PAGE)]);
    let changes = brk(&mut set, BASE, BASE + PAGE);
    assert!(
        matches!(&changes[..], [VmaChange::Unmapped { vma, .. }] if vma.range() == range(BASE + PAGE, BASE + 3 * PAGE))
    );

    // The recording started in mid-run: the heap exists before its first brk.
    let mut set = VmaSet::default();
    let heap = EventKind::Mmap {
        addr: BASE,
        len: 4 * PAGE,
        prot: Protection::READ_WRITE,
        flags: MapFlags(ANON),
        file: Some("[heap]".into()),
        file_offset: 0,
    };
    set.apply(&heap).unwrap();
    assert_eq!(brk(&mut set, BASE, BASE + 4 * PAGE), []);
    assert_eq!(brk(&mut set, BASE, BASE + 5 * PAGE), [mapped(BASE + 4 * PAGE, BASE + 5 * PAGE)]);
    assert_eq!(spans(&set), [(BASE, BASE + 5 * PAGE)]);
    brk(&mut set, BASE, BASE + 2 * PAGE);
    assert_eq!(spans(&set), [(BASE, BASE + 2 * PAGE)]);
}

#[test]
fn what_is_unmapped_has_room_up_to_its_neighbours() {
    let mut set = VmaSet::default();
    for (first, pages) in [(0, 2), (4, 4), (12, 2), (20, 4)] {
        set.apply(&mmap(BASE + first * PAGE, pages * PAGE, ANON)).unwrap();
    }
    let mut rooms = |from: u64, to: u64| {
        let changes = set.unmap(range(BASE + from * PAGE, BASE + to * PAGE)).into_iter();
        let room = |change| match change {
            VmaChange::Unmapped { room, .. } => (room.start.0.saturating_sub(BASE) / PAGE, (room.end.0 - BASE) / PAGE),
            other => panic!("{other:?}"),
        };
        changes.map(room).collect::<Vec<_>>()
    };
    assert_eq!(rooms(5, 6), [(5, 6)], "both neighbours are parts of the same mapping");
    assert_eq!(rooms(5, 14), [(5, 20); 2], "one for all that a call unmaps");
    assert_eq!(rooms(0, 1), [(0, 1)]);
    let whole = set.unmap(range(BASE, BASE + 8 * PAGE));
    let room = VaRange { start: VirtAddr(0), end: VirtAddr(BASE + 20 * PAGE) };
    assert!(whole.iter().all(|change| matches!(change, VmaChange::Unmapped { room: found, .. } if *found == room)));
}

#[test]
fn remap_reports_what_page_tables_must_do() {
    let mut set = VmaSet::default();
    set.apply(&file_mmap(BASE, 4 * PAGE, "a", 16 * PAGE)).unwrap();
    set.apply(&mmap(BASE + 32 * PAGE, PAGE, ANON)).unwrap();
    let to = BASE + 31 * PAGE;
    let event = EventKind::Mremap { old_addr: BASE + PAGE, old_len: 3 * PAGE, new_addr: to, new_len: 5 * PAGE };
    let changes = set.apply(&event).unwrap();
    assert!(matches!(&changes[0], VmaChange::Unmapped { vma, .. } if vma.start.0 == BASE + 32 * PAGE));
    let room = range(BASE + PAGE, to);
    assert_eq!(changes[1], VmaChange::Moved { from: range(BASE + PAGE, BASE + 4 * PAGE), to: VirtAddr(to), room });
    assert_eq!(changes[2], VmaChange::Mapped { range: range(to + 3 * PAGE, to + 5 * PAGE), populate: false });
    assert_eq!(changes.len(), 3);
    assert_eq!(spans(&set), [(BASE, BASE + PAGE), (to, to + 5 * PAGE)]);
    assert_eq!(set.find(VirtAddr(to)).unwrap().file_offset, 17 * PAGE);

    // Back, to below the old address and with fewer pages than there are.
    let event = EventKind::Mremap { old_addr: to, old_len: 5 * PAGE, new_addr: BASE + 8 * PAGE, new_len: PAGE };
    let room = VaRange { start: VirtAddr(BASE + 9 * PAGE), end: VaRange::ALL.end };
    let moved = VmaChange::Moved { from: range(to, to + PAGE), to: VirtAddr(BASE + 8 * PAGE), room };
    assert_eq!(set.apply(&event).unwrap()[1], moved);

    // An old length of 0 creates a second mapping of shared memory.
    set.apply(&mmap(BASE + 64 * PAGE, 2 * PAGE, MapFlags::SHARED | MapFlags::ANONYMOUS)).unwrap();
    let (old_addr, new_addr) = (BASE + 65 * PAGE, BASE + 80 * PAGE);
    set.apply(&EventKind::Mremap { old_addr, old_len: 0, new_addr, new_len: PAGE }).unwrap();
    let copy = set.find(VirtAddr(new_addr)).unwrap();
    assert_eq!((copy.pages(), copy.file_offset, copy.is_shared()), (1, PAGE, true));
    assert_eq!(set.find(VirtAddr(old_addr)).unwrap().pages(), 2);
}

#[test]
fn mappings_of_recorded_kernels_replace_others_and_are_of_files() {
    let mut set = VmaSet::default();
    set.apply(&mmap(BASE, 8 * PAGE, ANON)).unwrap();
    let flags = MapFlags(MapFlags::SHARED | MapFlags::RECORDED);
    let EventKind::Mmap { addr, len, prot, file, file_offset, .. } = file_mmap(BASE + PAGE, PAGE, "a", 5 * PAGE) else {
        unreachable!("it maps")
    };
    let changes = set.apply(&EventKind::Mmap { addr, len, prot, flags, file, file_offset }).unwrap();
    let [VmaChange::Unmapped { vma, .. }, VmaChange::Recorded { range: new }] = &changes[..] else {
        panic!("{changes:?}")
    };
    assert_eq!((vma.range(), *new), (range(BASE + PAGE, BASE + 2 * PAGE), range(BASE + PAGE, BASE + 2 * PAGE)));
    assert_eq!(set.find(new.start).unwrap().flags, MapFlags(MapFlags::SHARED), "a child's mapping is an ordinary one");
    let of_no_file = set.apply(&mmap(BASE, PAGE, MapFlags::SHARED | MapFlags::ANONYMOUS | MapFlags::RECORDED));
    assert_eq!(of_no_file, Err(VmaError::RecordedWithoutFile { addr: BASE }));
    assert_eq!(set.len(), 3);
}

#[test]
fn populate_advice_and_process_events() {
    let mut set = VmaSet::default();
    let populate = |set: &mut VmaSet, flags| match &set.apply(&mmap(BASE, 8 * PAGE, ANON | flags)).unwrap()[..] {
        [.., VmaChange::Mapped { populate, .. }] => *populate,
        other => panic!("{other:?}"),
    };
    assert!(populate(&mut set, MapFlags::POPULATE));
    assert!(!populate(&mut set, MapFlags::POPULATE | 0x1_0000), "MAP_NONBLOCK");
    assert!(populate(&mut set, 0x2000), "MAP_LOCKED");
    assert!(!populate(&mut set, 0));
    set.apply(&EventKind::Munmap { addr: BASE + 2 * PAGE, len: PAGE }).unwrap();
    let changes = set.apply(&EventKind::Madvise { addr: BASE + PAGE, len: 3 * PAGE, advice: 22 }).unwrap();
    let advised = |start, end| VmaChange::Advised { range: range(start, end), advice: PageAdvice::PopulateRead };
    assert_eq!(changes, [advised(BASE + PAGE, BASE + 2 * PAGE), advised(BASE + 3 * PAGE, BASE + 4 * PAGE)]);
    assert_eq!(set.apply(&EventKind::Madvise { addr: BASE, len: PAGE, advice: 77 }), Ok(vec![]));
    assert_eq!(set.apply(&EventKind::Fork { child: ProcessIx(1) }), Ok(vec![]));
    assert_eq!(set.len(), 2);
    assert_eq!(set.apply(&EventKind::Exec { path: "/bin/true".into() }).unwrap().len(), 2);
    assert!(set.is_empty());
}

#[test]
fn impossible_events_are_errors_and_change_nothing() {
    let mut set = VmaSet::default();
    set.apply(&mmap(BASE, 4 * PAGE, ANON)).unwrap();
    let top = u64::MAX - PAGE + 1;
    let remap = |old_addr, old_len, new_addr, new_len| EventKind::Mremap { old_addr, old_len, new_addr, new_len };
    let of_file = |file_offset| EventKind::Mmap {
        addr: BASE,
        len: PAGE,
        prot: Protection::READ_WRITE,
        flags: MapFlags(MapFlags::SHARED),
        file: Some("data".into()),
        file_offset,
    };
    for (event, part) in [
        (mmap(BASE + 1, PAGE, ANON), "not a multiple of the page size"),
        (mmap(BASE, 0, ANON), "at least one byte"),
        (mmap(BASE, u64::MAX, ANON), "pass the end"),
        (mmap(BASE, u64::MAX, ANON | MapFlags::HUGETLB), "pass the end"),
        (mmap(top, PAGE, ANON), "pass the end"),
        (of_file(100), "offset 0x64 in a file"),
        (of_file(1 << 63), "pass the end of any file"),
        (of_file(u64::MAX - PAGE + 1), "pass the end of any file"),
        (EventKind::Munmap { addr: 5, len: 1 }, "not a multiple"),
        (EventKind::Mprotect { addr: top, len: PAGE + 1, prot: Protection::default() }, "pass the end"),
        (EventKind::Madvise { addr: 1, len: 1, advice: 4 }, "not a multiple"),
        (EventKind::Brk { start: BASE, end: BASE - 1 }, "before its start"),
        (EventKind::Brk { start: BASE, end: u64::MAX }, "pass the end"),
        (remap(BASE, PAGE, BASE + PAGE, 0), "at least one byte"),
        (remap(BASE, 2 * PAGE, BASE + PAGE, PAGE), "overlap"),
        (remap(BASE + 4 * PAGE, PAGE, BASE + 8 * PAGE, PAGE), "nothing is mapped"),
        (remap(BASE + 2 * PAGE, 3 * PAGE, BASE + 8 * PAGE, 4 * PAGE), "nothing is mapped"),
        (remap(0, 0, BASE + 8 * PAGE, 4 * PAGE), "nothing is mapped"),
    ] {
        let error = set.apply(&event).unwrap_err().to_string();
        assert!(error.contains(part), "{event:?}: {error}");
        assert_eq!(spans(&set), [(BASE, BASE + 4 * PAGE)]);
    }
    // An event without any effect is no error.
    assert_eq!(set.apply(&EventKind::Munmap { addr: BASE, len: 0 }), Ok(vec![]));
    assert_eq!(set.apply(&EventKind::Munmap { addr: 0, len: BASE }), Ok(vec![]));
    // Growth of a mapping at the very end of the address space does not wrap.
    set.apply(&mmap(top - PAGE, PAGE, ANON)).unwrap();
    assert!(set.apply(&remap(top - PAGE, PAGE, BASE + 16 * PAGE, 1 << 40)).is_ok());
}
