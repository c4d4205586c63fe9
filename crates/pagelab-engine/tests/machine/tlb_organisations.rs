//! Compares TLB arrays whose entries cover several pages with closed forms, and with sequences worked out by hand.

use crate::common::{ScriptWriter, assert_conserved, config, run};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{EventKind, MapFlags, Protection};

const BASE: u64 = 0x7f00_0000_0000;
/// Frames of 64 KiB: 16 pages next to each other, virtually and physically.
const FOLIOS: &str = r#"system.layers.native.folios=["64KiB"]"#;

/// A level of TLBs with one array.
fn level(name: &str, entries: u64, ways: u64, organisation: &str) -> String {
    let more = if organisation.is_empty() { String::new() } else { format!(r#","organisation":{organisation}"#) };
    format!(r#"machine.tlb.{name}=[{{"pages":["4K","2M"],"entries":{entries},"ways":{ways}{more}}}]"#)
}

fn coalesced(pages: u64) -> String {
    format!(r#"{{"model":"coalesced","pages":{pages}}}"#)
}

/// What happens in a script after another one.
fn difference(system: &str, set: &[String], script: impl Fn(&mut ScriptWriter, bool)) -> Statistics {
    let set: Vec<&str> = set.iter().map(String::as_str).collect();
    let after = |whole: bool| {
        let mut writer = ScriptWriter::new();
        let flags = MapFlags(MapFlags::anonymous_private().0 | MapFlags::WRITTEN_BEFORE);
        let prot = Protection { read: true, write: true, ..Protection::default() };
        // Pages that are only loaded have frames of their own, and are clean.
        writer.event(0, EventKind::Mmap { addr: BASE, len: 1 << 22, prot, flags, file: None, file_offset: 0 });
        script(&mut writer, whole);
        let stats = run(&config(system, &set), writer.finish(), &[0]).1;
        assert_conserved(&stats);
        stats
    };
    after(true).since(&after(false))
}

fn load_all(script: &mut ScriptWriter, pages: u64) {
    // Another line of each page, so that no cache set fills up.
    (0..pages).for_each(|page| script.load(0, BASE + page * 4096 + page % 64 * 64));
}

/// A pass over pages that were loaded twice.
fn pass(system: &str, set: &[String], pages: u64) -> Statistics {
    difference(system, set, |script, whole| (0..2 + u64::from(whole)).for_each(|_| load_all(script, pages)))
}

#[test]
fn misses_of_a_pass_over_memory_in_one_piece_fall_by_the_pages_of_an_entry() {
    let pages = 256;
    for k in [1, 2, 4, 8] {
        let set =
            |first: &str, second: &str| vec![FOLIOS.to_owned(), level("l1d", 4, 4, first), level("l2", 16, 4, second)];
        let both = pass("radix", &set(&coalesced(k), &coalesced(k)), pages);
        let misses = |stats: &Statistics| ["dtlb.l1.misses", "dtlb.l2.misses", "walk.count"].map(|n| stats.values[n]);
        assert_eq!(misses(&both), [pages / k; 3], "{k} pages per entry");
        let second = pass("radix", &set("", &coalesced(k)), pages);
        assert_eq!(misses(&second), [pages, pages / k, pages / k], "{k} pages per entry of the second level");
        // Here the second level passes on what its entry covers.
        let large = vec![FOLIOS.to_owned(), level("l1d", 4, 4, &coalesced(k)), level("l2", 1024, 4, &coalesced(8))];
        assert_eq!(misses(&pass("radix", &large, pages)), [pages / k, 0, 0], "{k} pages per entry of the first level");
        let fills = ["fills", "filled_pages"].map(|name| both.values[&format!("tlb.l2.coalesced.{name}")]);
        assert_eq!(fills, [pages / k, pages], "{k} pages per entry");
    }
}

#[test]
fn an_entry_of_one_page_is_what_it_is_without_coalescing() {
    for (first, second) in [((2, 1), (4, 2)), ((1, 1), (1, 1)), ((64, 4), (512, 4))] {
        for system in ["radix", "hashed-open", "nested-radix-cold", "radix-thp"] {
            let stats = |organisation: &str| {
                let levels =
                    [level("l1d", first.0, first.1, organisation), level("l2", second.0, second.1, organisation)];
                difference(system, &levels, |script, whole| {
                    for page in (0..if whole { 300 } else { 0 }).map(|n| n * 7 % 40) {
                        script.load(0, BASE + page * 4096);
                        script.store(0, BASE + page % 5 * 4096);
                    }
                })
            };
            let (plain, mut one) = (stats(""), stats(&coalesced(1)));
            one.values.retain(|name, _| !name.starts_with("tlb.l"));
            assert_eq!(one.values, plain.values, "{system}");
        }
    }
}

/// Both levels with entries of four pages, which are enough for all.
fn four() -> Vec<String> {
    vec![FOLIOS.to_owned(), level("l1d", 64, 4, &coalesced(4)), level("l2", 512, 4, &coalesced(4))]
}

/// Pages of shared memory that were only loaded are clean.
const SHARED: u64 = BASE + (1 << 30);

#[test]
fn a_store_to_a_clean_page_sets_its_dirty_bit_alone() {
    let stores = |organisation: &str, pages: &'static [u64]| {
        let set = [level("l1d", 64, 4, organisation), level("l2", 512, 4, organisation)];
        let load = |script: &mut ScriptWriter| (0..16).for_each(|page| script.load(0, SHARED + page * 4096));
        let stats = difference("radix", &set, |script, whole| {
            let flags = MapFlags(MapFlags::SHARED | MapFlags::ANONYMOUS);
            let prot = Protection { read: true, write: true, ..Protection::default() };
            let len = 16 * 4096;
            script.event(0, EventKind::Mmap { addr: SHARED, len, prot, flags, file: None, file_offset: 0 });
            (0..3).for_each(|_| load(script));
            if whole {
                pages.iter().for_each(|page| script.store(0, SHARED + page * 4096));
                // Whoever was in the entry is still there.
                load(script);
            }
        });
        ["dtlb.l1.unwritable", "walk.accessed_dirty_updates", "dtlb.l1.misses"].map(|name| stats.values[name])
    };
    let mixed = r#"{"model":"coalesced","mixed_dirty":true}"#;
    for organisation in [coalesced(4).as_str(), mixed, r#"{"model":"pages"}"#] {
        assert_eq!(stores(organisation, &[1]), [1, 1, 0], "{organisation}");
        assert_eq!(stores(organisation, &[1, 1, 2, 1, 3, 0, 0, 5, 5]), [5, 5, 0], "{organisation}");
    }
    // Entries that do not keep the rest lose other pages with the first, if they had several.
    for organisation in [r#"{"model":"coalesced","shrinks":false}"#, r#"{"model":"blocks"}"#] {
        let [unwritable, updates, misses] = stores(organisation, &[5]);
        assert_eq!((unwritable, updates), (1, 1), "{organisation}");
        assert!(misses > 0, "{organisation}");
    }
}

#[test]
fn a_changed_page_leaves_its_entry_and_the_others_stay() {
    let misses = |set: &[String], pages: u64, event: Option<fn(u64, u64) -> EventKind>| {
        let stats = difference("radix", set, |script, whole| {
            (0..3).for_each(|_| load_all(script, 64));
            if whole && let Some(event) = event {
                script.event(0, event(BASE + 5 * 4096, pages * 4096));
            }
            (0..if whole { 64 } else { 0 })
                .filter(|page| event.is_none() || !(5..5 + pages).contains(page))
                .for_each(|page| script.load(0, BASE + page * 4096));
        });
        stats.values["dtlb.l1.misses"]
    };
    let read_only = |addr, len| {
        let prot = Protection { read: true, ..Protection::default() };
        EventKind::Mprotect { addr, len, prot }
    };
    let unmapped = |addr, len| EventKind::Munmap { addr, len };
    for pages in [1, 2, 9, 20] {
        assert_eq!(misses(&four(), pages, None), 0);
        for event in [read_only as fn(u64, u64) -> EventKind, unmapped] {
            assert_eq!(misses(&four(), pages, Some(event)), 0, "{pages} pages: only they are dropped");
        }
        let whole = r#"{"model":"coalesced","shrinks":false}"#;
        let set = [FOLIOS.to_owned(), level("l1d", 64, 4, whole), level("l2", 512, 4, whole)];
        // The groups at both ends lose their other pages: page 4, and those after the last.
        let ends = [4..5, 5 + pages..(5 + pages).next_multiple_of(4)];
        let lost = ends.iter().filter(|pages| !pages.is_empty()).count() as u64;
        let found = misses(&set, pages, Some(read_only));
        assert!(found >= 1 && found <= 4 * lost, "{pages} pages: {found} misses");
    }
}

#[test]
fn an_entry_that_loses_a_page_and_keeps_others_counts_as_shrunk() {
    let stats = difference("radix", &four(), |script, whole| {
        (0..3).for_each(|_| load_all(script, 64));
        if whole {
            script.event(0, EventKind::Munmap { addr: BASE + 5 * 4096, len: 4096 });
        }
    });
    let shrunk = |level: &str| stats.values[&format!("tlb.{level}.coalesced.shrunk")];
    assert!(shrunk("l1d") >= 1 && shrunk("l2") >= 1);
}

#[test]
fn a_run_of_a_guest_is_as_long_as_that_of_the_layer_with_the_shorter_one() {
    let misses = |guest: &str, host: &str| {
        let set = vec![
            format!(r#"system.layers.guest.folios={guest}"#),
            format!(r#"system.layers.host.folios={host}"#),
            level("l1d", 4, 4, &coalesced(8)),
            level("l2", 16, 4, &coalesced(8)),
        ];
        pass("nested-radix-cold", &set, 256).values["dtlb.l2.misses"]
    };
    let (long, short) = (r#"["64KiB"]"#, r#"["16KiB"]"#);
    assert_eq!(misses(long, long), 256 / 8);
    // A host's folio of four pages may happen to continue the one before.
    for (guest, host) in [(long, short), (short, long), (short, short)] {
        assert!((256 / 8..=256 / 4).contains(&misses(guest, host)), "{guest} {host}: {}", misses(guest, host));
    }
}

/// A level of an array for small pages, and one for large pages that is fully associative.
fn two(name: &str, small: (u64, u64, &str), large: (u64, &str)) -> String {
    let more = |text: &str| if text.is_empty() { String::new() } else { format!(r#","organisation":{text}"#) };
    let ((entries, ways, first), (all, second)) = (small, large);
    format!(
        r#"machine.tlb.{name}=[{{"pages":["4K"],"entries":{entries},"ways":{ways}{}}},{{"pages":["2M"],"entries":{all},"ways":{all}{}}}]"#,
        more(first),
        more(second)
    )
}

const RANGES: &str = r#"{"model":"ranges"}"#;

#[test]
fn an_array_for_large_pages_takes_the_runs_that_the_one_for_small_pages_cannot_hold_in_an_entry() {
    let pages = 256;
    // Folios are aligned to runs of eight, so no two ranges merge: each has eight pages already.
    for (name, small, entries) in [("CoLT-FA", String::new(), pages / 8), ("CoLT-All", coalesced(4), pages / 8)] {
        let set = |all: u64| {
            vec![FOLIOS.to_owned(), two("l1d", (4, 4, &small), (all, RANGES)), two("l2", (16, 4, ""), (4, ""))]
        };
        let misses = |all: u64| pass("radix", &set(all), pages).values["dtlb.l1.misses"];
        // The second level of pages passes on one page at a time, so only walks make ranges: all misses are walks.
        assert_eq!([misses(4), misses(entries - 1), misses(entries)], [pages / 8, pages / 8, 0], "{name}");
    }
    // With groups of eight, the array for small pages needs one entry for each run, and takes it.
    let set =
        vec![FOLIOS.to_owned(), two("l1d", (32, 32, &coalesced(8)), (1, RANGES)), two("l2", (16, 4, ""), (4, ""))];
    let stats = pass("radix", &set, pages);
    assert_eq!((stats.values["dtlb.l1.misses"], stats.values["tlb.l1d.ranges.fills"]), (0, 0));
}

#[test]
fn a_range_that_loses_a_page_keeps_its_longer_part() {
    let misses = |ranges: &str, page: u64, load: &'static [u64]| {
        let set = [FOLIOS.to_owned(), two("l1d", (4, 4, ""), (4, ranges)), "machine.tlb.l2=[]".to_owned()];
        let stats = difference("radix", &set, |script, whole| {
            (0..3).for_each(|_| load_all(script, 8));
            if whole {
                script.event(0, EventKind::Munmap { addr: BASE + page * 4096, len: 4096 });
                load.iter().for_each(|page| script.load(0, BASE + page * 4096));
            }
        });
        stats.values["dtlb.l1.misses"]
    };
    assert_eq!([misses(RANGES, 2, &[3, 4, 5, 6, 7]), misses(RANGES, 2, &[1])], [0, 1]);
    assert_eq!([misses(RANGES, 5, &[0, 1, 2, 3, 4]), misses(RANGES, 5, &[6])], [0, 1]);
    let dropped = r#"{"model":"ranges","shrinks":false}"#;
    assert_eq!(misses(dropped, 0, &[7]), 1);
}

#[test]
fn a_block_is_whole_and_aligned_or_its_pages_are_alone() {
    const BLOCKS: &str = r#"{"model":"blocks"}"#;
    let (pages, set) = (256, |entries: u64| {
        vec![FOLIOS.to_owned(), level("l1d", entries, entries, BLOCKS), level("l2", 16, 4, BLOCKS)]
    });
    let misses = |entries: u64| pass("radix", &set(entries), pages).values["dtlb.l1.misses"];
    assert_eq!([misses(1), misses(pages / 4 - 1), misses(pages / 4)], [pages / 4, pages / 4, 0]);
    // Without page 2, the other three of its block need an entry each.
    let after = |organisation: &str, unmapped: bool| {
        let set = [FOLIOS.to_owned(), level("l1d", 64, 4, organisation), level("l2", 512, 4, organisation)];
        let stats = difference("radix", &set, |script, whole| {
            (0..3).for_each(|_| load_all(script, 8));
            if whole && unmapped {
                script.event(0, EventKind::Munmap { addr: BASE + 2 * 4096, len: 4096 });
            }
            let loaded = [0, 1, 3, 4, 5, 6, 7, 0, 1, 3];
            loaded.iter().filter(|_| whole).for_each(|page| script.load(0, BASE + page * 4096));
        });
        stats.values["dtlb.l1.misses"]
    };
    assert_eq!([after(BLOCKS, false), after(BLOCKS, true), after(&coalesced(4), true)], [0, 3, 0]);
}
