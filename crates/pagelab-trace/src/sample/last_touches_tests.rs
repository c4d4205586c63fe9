use proptest::prelude::*;

use super::*;

const PAGE: u64 = 4096;
const MAIN: ThreadIx = ThreadIx(0);
const PROCESS: ProcessIx = ProcessIx(0);

/// Records accesses of a thread in the first stretch.
fn note(touches: &mut LastTouches, thread: u32, accesses: &[Access]) {
    let mut touching = touches.begin(1, ThreadIx(thread), ProcessIx(thread));
    accesses.iter().for_each(|access| touching.touch(access));
}

fn loads(addresses: &[u64]) -> Vec<Access> {
    addresses.iter().map(|&vaddr| Access::new(AccessKind::Load, vaddr, 1)).collect()
}

/// Thread, kind and address of each touch, in order.
fn made(touches: &mut LastTouches) -> Vec<(u32, AccessKind, u64)> {
    let mut batch = Batch::default();
    let read = Batch { branches: vec![Branches::NONE], ..Batch::default() };
    assert_eq!(touches.make(&mut batch, &read), batch.accesses.len() as u64);
    assert_eq!(batch.branches, vec![Branches::NONE; batch.accesses.len()]);
    let mut at = 0;
    let mut found = Vec::new();
    for segment in &batch.segments {
        let crate::Segment::Run { thread, end } = segment else { panic!("an event") };
        for access in &batch.accesses[at..*end] {
            assert_eq!((access.gap, access.size_bytes, access.pc), (0, 1, 0));
            found.push((thread.0, access.kind, access.vaddr));
        }
        at = *end;
    }
    assert_eq!(at, batch.accesses.len());
    found
}

fn addresses(touches: &mut LastTouches) -> Vec<u64> {
    made(touches).into_iter().map(|(_, _, vaddr)| vaddr).collect()
}

proptest! {
    #[test]
    fn touches_leave_the_order_of_use_that_all_accesses_leave(
        accesses in prop::collection::vec((0_u32..3, 0_u64..40 * 64, 0_usize..3, 1_u16..200), 1..600)
    ) {
        let kinds = [AccessKind::Load, AccessKind::Store, AccessKind::Fetch];
        let mut touches = LastTouches::default();
        // Lines in the order of their last use, and whether they were written.
        let mut used: Vec<(u32, bool, u64, bool)> = Vec::new();
        for (thread, place, kind, size) in accesses {
            let (thread, kind) = (thread / 2, kinds[kind]);
            // Pages far apart, and neighbours.
            let vaddr = place % 64 * 64 + (place / 64) * if place % 2 == 0 { PAGE } else { 13 * PAGE * RECENT as u64 };
            let access = Access::new(kind, vaddr, size);
            note(&mut touches, thread, &[access]);
            for line in vaddr >> LINE_SHIFT..=(vaddr + u64::from(size) - 1) >> LINE_SHIFT {
                let key = (thread, kind == AccessKind::Fetch, line);
                let before = used.iter().position(|&(thread, fetch, line, _)| (thread, fetch, line) == key);
                let written = before.is_some_and(|at| used.remove(at).3) || kind == AccessKind::Store;
                used.push((key.0, key.1, key.2, written));
            }
        }
        let expected: Vec<_> = used.into_iter().map(|(thread, fetch, line, written)| {
            let kind = if fetch { AccessKind::Fetch } else if written { AccessKind::Store } else { AccessKind::Load };
            (thread, kind, line << LINE_SHIFT)
        }).collect();
        prop_assert_eq!(made(&mut touches), expected);
        prop_assert_eq!(made(&mut touches), vec![]);
    }
}

#[test]
fn unmapped_pages_are_not_touched() {
    let pages = [1, 2, 3, 4].map(|page| page * PAGE);
    let with = |change: &dyn Fn(&mut LastTouches)| {
        let mut touches = LastTouches::default();
        note(&mut touches, 0, &loads(&pages));
        note(&mut touches, 1, &loads(&[2 * PAGE]));
        change(&mut touches);
        addresses(&mut touches)
    };
    assert_eq!(with(&|_| {}), [1, 2, 3, 4, 2].map(|page| page * PAGE));
    // The other process keeps its page.
    assert_eq!(with(&|touches| touches.forget(PROCESS, 2 * PAGE + 1, PAGE)), [1, 4, 2].map(|page| page * PAGE));
    assert_eq!(with(&|touches| touches.forget(PROCESS, 0, u64::MAX)), [2 * PAGE]);
    assert_eq!(with(&|touches| touches.forget(PROCESS, 0, 0)).len(), 5);
    assert_eq!(with(&|touches| touches.forget_process(ProcessIx(1))), pages);
    assert_eq!(with(&|touches| touches.forget_thread(MAIN)), [2 * PAGE]);
    assert_eq!(with(&|touches| _ = touches.begin(2, MAIN, PROCESS)), Vec::<u64>::new(), "another stretch");
    // A page that is accessed again.
    assert_eq!(
        with(&|touches| {
            touches.forget(PROCESS, 0, 3 * PAGE);
            note(touches, 0, &loads(&[PAGE + 64]));
        }),
        [3 * PAGE, 4 * PAGE, 2 * PAGE, PAGE + 64]
    );
}

#[test]
fn after_a_fork_nothing_is_written_that_was_only_written_before() {
    let mut touches = LastTouches::default();
    let store = |vaddr| Access::new(AccessKind::Store, vaddr, 1);
    note(&mut touches, 0, &[store(PAGE), store(2 * PAGE)]);
    touches.forget_writes(PROCESS);
    note(&mut touches, 0, &[store(2 * PAGE)]);
    assert_eq!(made(&mut touches), [(0, AccessKind::Load, PAGE), (0, AccessKind::Store, 2 * PAGE)]);
}

#[test]
fn code_pages_are_fetched_in_the_order_in_which_they_were_left() {
    let mut touches = LastTouches::default();
    let from = |code: u64, vaddr| Access { pc: code * PAGE + 40, ..Access::new(AccessKind::Load, vaddr, 1) };
    note(&mut touches, 0, &[from(7, 64), from(7, 128), from(8, 192), from(9, 256), from(8, 320)]);
    let fetched: Vec<_> = made(&mut touches)
        .into_iter()
        .filter(|touch| touch.1 == AccessKind::Fetch)
        .map(|touch| touch.2 / PAGE)
        .collect();
    assert_eq!(fetched, [7, 9, 8]);
    let by_kernel = Access { maker: crate::Maker::kernel_if(true), ..from(7, 64) };
    note(&mut touches, 0, &[by_kernel]);
    assert_eq!(made(&mut touches), [(0, AccessKind::Load, 64)], "where the kernel is, is not known");
}

#[test]
fn old_touches_keep_a_line_per_page_and_then_nothing() {
    let limited = |lines, pages| {
        let limits = Limits { lines, pages, ..LIMITS };
        LastTouches { limits, ..LastTouches::default() }
    };
    let all: Vec<u64> = (1..=8).flat_map(|page| (0..3).map(move |line| page * PAGE + line * 64)).collect();
    let mut touches = limited(5, 100);
    note(&mut touches, 0, &loads(&all));
    let (older, newest) = all.split_at(all.len() - 5);
    let ends = older.iter().copied().filter(|vaddr| vaddr % PAGE == 128);
    assert_eq!(addresses(&mut touches), ends.chain(newest.iter().copied()).collect::<Vec<_>>());
    let mut touches = limited(100, 4);
    note(&mut touches, 0, &loads(&all));
    // When the fifth arrives, two of the first four stay; the same happens when the seventh arrives.
    assert_eq!(addresses(&mut touches), all[4 * 3..]);
}

#[test]
fn beyond_a_reach_and_its_pages_a_line_in_each_large_page_stays() {
    const LARGE_PAGE: u64 = 1 << LARGE_PAGE_SHIFT;
    let mut touches = LastTouches::default();
    touches.reach(4 * 64);
    touches.limits.small_pages = 2;
    // Two lines in each of four pages of three large pages.
    let pages = (1..=3).flat_map(|large| (0..4).map(move |page| large * LARGE_PAGE + page * PAGE));
    let all: Vec<u64> = pages.flat_map(|page| [page, page + 64]).collect();
    note(&mut touches, 0, &loads(&all));
    // The last line of the first large page, then of the second, the last lines of two pages, and the four lines of the
    // reach.
    let [first, second, third] = [1, 2, 3].map(|large| large * LARGE_PAGE);
    let older = [first + 3 * PAGE + 64, second + 3 * PAGE + 64, third + 64, third + PAGE + 64];
    let newest = [2, 3].map(|page| third + page * PAGE).into_iter().flat_map(|page| [page, page + 64]);
    assert_eq!(addresses(&mut touches), older.into_iter().chain(newest).collect::<Vec<_>>());

    // No reach exceeds that of all samples; without a reach, nothing more is dropped.
    touches.reach(u64::MAX);
    assert_eq!(touches.limits.lines, LIMITS.lines);
    assert_eq!(LIMITS.small_pages, usize::MAX);
}
