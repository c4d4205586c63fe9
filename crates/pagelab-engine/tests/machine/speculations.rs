//! Compares guesses of frames with closed forms, and with sequences worked out by hand.

use crate::common::{ScriptWriter, assert_conserved, config, run};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{Access, AccessKind, EventKind, Maker, MapFlags, ProcessIx, Protection};

const BASE: u64 = 0x7f00_0000_0000;
const PAGES: u64 = 256;
const TLBS: [&str; 2] = [
    r#"machine.tlb.l1d=[{"pages":["4K","2M"],"entries":4,"ways":4}]"#,
    r#"machine.tlb.l2=[{"pages":["4K","2M"],"entries":16,"ways":4}]"#,
];
const IN_ORDER: &str = r#"machine.core={"model":"in-order","cycles_per_instruction":1.0,"l1_hit_hidden":false}"#;
const WINDOW: &str = r#"machine.core={"model":"window","cycles_per_instruction":0.25}"#;
const GROUPS: &str = "system.layers.native.placement.group_pages=64";
const SPEC_TLB: &str = r#"machine.tlb.speculation={"model":"spec-tlb","region_pages":64}"#;
const SPOT: &str = r#"machine.tlb.speculation={"model":"spot"}"#;

/// An access by an instruction, to another line of each page, whose address depends on the access before.
fn load(script: &mut ScriptWriter, pc: u64, page: u64) {
    let at = BASE + page * 4096 + page % 64 * 64;
    script.access_of(0, Access { pc, maker: Maker::after(1), ..Access::new(AccessKind::Load, at, 8) });
}

fn map(script: &mut ScriptWriter, pages: u64) {
    let flags = MapFlags(MapFlags::anonymous_private().0 | MapFlags::WRITTEN_BEFORE);
    let prot = Protection { read: true, write: true, ..Protection::default() };
    script.event(0, EventKind::Mmap { addr: BASE, len: pages * 4096, prot, flags, file: None, file_offset: 0 });
}

/// What happens in a script after another one.
fn difference(system: &str, set: &[&str], script: impl Fn(&mut ScriptWriter, bool)) -> Statistics {
    let set: Vec<&str> = TLBS.iter().chain(set).copied().collect();
    let after = |whole: bool| {
        let mut writer = ScriptWriter::new();
        script(&mut writer, whole);
        let stats = run(&config(system, &set), writer.finish(), &[0]).1;
        assert_conserved(&stats);
        stats
    };
    let (mut all, before) = (after(true), after(false));
    // Of a window's cycles, those of a class may become fewer by an access.
    for (name, value) in &mut all.values {
        *value = value.wrapping_sub(before.values.get(name).copied().unwrap_or(0));
    }
    all
}

/// A pass over pages that were loaded twice.
fn pass(system: &str, set: &[&str]) -> Statistics {
    difference(system, set, |script, whole| {
        map(script, PAGES);
        (0..2 + u64::from(whole)).for_each(|_| (0..PAGES).for_each(|page| load(script, 0x40_1000, page)));
    })
}

fn counts<const N: usize>(stats: &Statistics, names: [&str; N]) -> [u64; N] {
    names.map(|name| stats.values[&format!("tlb.speculation.{name}")])
}

#[test]
fn pages_of_reservations_are_always_guessed_right() {
    for core in [IN_ORDER, WINDOW] {
        let at_once = r#"machine.tlb.speculation={"model":"spec-tlb","region_pages":64,"latency_cycles":0}"#;
        let stats = pass("radix-ptemagnet", &[core, GROUPS, at_once]);
        assert_eq!(stats.values["dtlb.l2.misses"], PAGES);
        assert_eq!(counts(&stats, ["right", "wrong", "none", "faulted", "wrong_lines"]), [PAGES, 0, 0, 0, 0]);
        assert_eq!(counts(&stats, ["late", "hidden_walks", "hidden_cycles"]), [0, PAGES, stats.values["walk.cycles"]]);
        // All of its references are made, and the walker has its cycles.
        let plain = pass("radix-ptemagnet", &[core, GROUPS]);
        for name in ["walk.count", "walk.refs", "walk.cycles"] {
            assert_eq!(stats.values[name], plain.values[name], "{name}");
        }
        assert!(stats.values["cycles"] < plain.values["cycles"], "{core}");
    }
    // From the start, no page is guessed elsewhere, and a page that faults was not there.
    let all = difference("radix-ptemagnet", &[GROUPS, SPEC_TLB], |script, whole| {
        map(script, PAGES);
        (0..3).for_each(|_| (0..if whole { PAGES } else { 0 }).for_each(|page| load(script, 0x40_1000, page)));
    });
    let [right, wrong, none, faulted] = counts(&all, ["right", "wrong", "none", "faulted"]);
    assert_eq!((wrong, right + none), (0, all.values["dtlb.l2.misses"]), "{faulted} faulted");
    assert!(right > 2 * PAGES - 8 && faulted > PAGES / 2);
}

#[test]
fn in_a_guest_both_layers_must_keep_pages_in_place() {
    let guest = r#"system.layers.guest.placement={"kind":"ptemagnet","group_pages":64}"#;
    let host = r#"system.layers.host.placement={"kind":"ptemagnet","group_pages":64}"#;
    let cold = r#"system.layers.guest.backing=on-demand"#;
    let both = pass("nested-radix-ptemagnet", &[SPEC_TLB, guest, host, cold]);
    assert_eq!(counts(&both, ["right", "wrong", "none"]), [PAGES, 0, 0]);
    let neither = pass("nested-radix", &[SPEC_TLB]);
    let [right, wrong, none] = counts(&neither, ["right", "wrong", "none"]);
    assert_eq!(right + wrong + none, neither.values["dtlb.l2.misses"]);
    assert!(right < PAGES / 4, "{right} of {PAGES} are in place by chance");
}

#[test]
fn an_instruction_guesses_at_a_distance_once_its_counter_allows() {
    for (system, more) in [
        ("radix-ca-paging", &[][..]),
        (
            "nested-radix-ca-paging",
            &[r#"system.layers.host.placement={"kind":"ca-paging"}"#, "system.layers.guest.backing=on-demand"],
        ),
    ] {
        let set: Vec<&str> = [SPOT].iter().chain(more).copied().collect();
        let stats = pass(system, &set);
        assert_eq!(counts(&stats, ["right", "wrong", "none"]), [PAGES, 0, 0], "{system}");
        // A new instruction needs a row, and a walk that confirms it.
        let fresh = difference(system, &set, |script, whole| {
            map(script, PAGES);
            (0..2).for_each(|_| (0..PAGES).for_each(|page| load(script, 0x40_1000, page)));
            (0..if whole { PAGES } else { 0 }).for_each(|page| load(script, 0x40_2004, page));
        });
        assert_eq!(counts(&fresh, ["right", "wrong", "none"]), [PAGES - 2, 0, 2], "{system}");
    }
    // Pages that are in no run enter nothing.
    let none = pass("radix-ca-paging", &[r#"machine.tlb.speculation={"model":"spot","run_pages":512}"#]);
    assert_eq!(counts(&none, ["right", "wrong", "none"]), [0, 0, PAGES]);
}

/// Cycles of the data and of the translation of one access, and its walk.
fn last_load(set: &[&str], page: u64, again: bool) -> [u64; 4] {
    let stats = difference("radix-ptemagnet", &[set, &[IN_ORDER, GROUPS]].concat(), |script, whole| {
        map(script, PAGES);
        (0..2).for_each(|_| (0..PAGES).for_each(|page| load(script, 0x40_1000, page)));
        if again {
            // Its line is in the first-level cache, and its translation in no TLB.
            load(script, 0x40_1000, page);
            (1..40).for_each(|n| load(script, 0x40_1000, (page + n * 5) % PAGES));
        }
        (0..u64::from(whole)).for_each(|_| load(script, 0x40_1000, page));
    });
    ["cycles.data_stall", "cycles.translation", "walk.cycles", "dtlb.l2.misses"].map(|name| stats.values[name])
}

#[test]
fn a_right_guess_takes_the_longer_of_data_and_walk() {
    let look_up = u64::from(config("radix", &[]).machine.tlb.l2_latency_cycles);
    for (page, again) in [(3, true), (100, true), (17, false), (200, false)] {
        let [data, translation, walk, missed] = last_load(&[], page, again);
        assert_eq!((translation, missed), (look_up + walk, 1), "without a guess it takes both");
        for latency in [0, 2, walk.saturating_sub(1), walk, walk + 100] {
            let model = format!(
                r#"machine.tlb.speculation={{"model":"spec-tlb","region_pages":64,"latency_cycles":{latency}}}"#
            );
            let [guessed_data, waited, same, _] = last_load(&[&model], page, again);
            assert_eq!((guessed_data, same), (data, walk), "page {page}, guess after {latency}");
            let whole = if latency < walk { walk.max(latency + data) } else { walk + data };
            assert_eq!(guessed_data + waited, look_up + whole, "page {page}, guess after {latency}");
        }
    }
}

/// Small caches, so that lines come from the L3 or from memory.
const SMALL_CACHES: [&str; 2] = [
    r#"machine.cache.l1={"size_bytes":"2KiB","ways":2,"latency_cycles":4}"#,
    r#"machine.cache.l2={"size_bytes":"8KiB","ways":4,"latency_cycles":12}"#,
];
const BY_HASH: &str = r#"system.layers.native.placement={"kind":"hash-tiers"}"#;

fn revelator(more: &str) -> String {
    format!(r#"machine.tlb.speculation={{"model":"revelator"{more}}}"#)
}

#[test]
fn lines_of_hashed_frames_are_fetched_beside_walks() {
    let set = |core, more: &[&'static str]| [&SMALL_CACHES[..], &[core, BY_HASH], more].concat();
    for core in [IN_ORDER, WINDOW] {
        let plain = pass("radix", &set(core, &[]));
        let model = revelator("");
        let fetched = pass("radix", &[&set(core, &[])[..], &[&model]].concat());
        assert_eq!(counts(&fetched, ["right", "wrong", "none", "hidden_walks"]), [PAGES, 0, 0, 0], "{core}");
        for name in ["walk.count", "walk.refs", "l1d.misses.data"] {
            assert_eq!(fetched.values[name], plain.values[name], "{name}");
        }
        // Each walk fetches the line that its access needs, and two of frames that it does not find.
        let fetches = ["issued", "useful", "late"].map(|name| fetched.values[&format!("prefetch.l2.{name}")]);
        assert_eq!(fetches[1] + fetches[2], PAGES, "{core}: {fetches:?}");
        let [wrong_lines] = counts(&fetched, ["wrong_lines"]);
        assert_eq!(fetches[0], PAGES + wrong_lines);
        assert!(wrong_lines > PAGES, "but for lines that are near already: {wrong_lines}");
        assert!(fetched.values["cycles"] < plain.values["cycles"], "{core}");
    }
}

#[test]
fn an_access_waits_for_its_walk_and_for_what_is_left_of_the_fetch() {
    let timed = |model: &str, page: u64| {
        let set = [&SMALL_CACHES[..], &[IN_ORDER, BY_HASH, model]].concat();
        let stats = difference("radix", &set, |script, whole| {
            map(script, PAGES);
            (0..2).for_each(|_| (0..PAGES).for_each(|page| load(script, 0x40_1000, page)));
            (0..u64::from(whole)).for_each(|_| load(script, 0x40_1000, page));
        });
        ["cycles.data_stall", "cycles.translation", "walk.cycles"].map(|name| stats.values[name])
    };
    let mut shorter = 0;
    for page in [3, 17, 60, 100] {
        let [data, translation, walk] = timed(r#"machine.tlb.speculation={"model":"none"}"#, page);
        assert!(data > 12, "its line is beyond the L2: {data}");
        for latency in [0, 2, walk - 1, walk, 1000] {
            let model = revelator(&format!(r#","tiers":1,"latency_cycles":{latency}"#));
            let [fetched, same_translation, same_walk] = timed(&model, page);
            assert_eq!((same_translation, same_walk), (translation, walk), "page {page}, fetched after {latency}");
            let expected = if latency < walk { (latency + data).saturating_sub(walk).max(12) } else { data };
            assert_eq!(fetched, expected, "page {page}, {data} cycles, walk {walk}, fetched after {latency}");
            shorter += u64::from(fetched < data);
        }
    }
    assert!(shorter > 8, "{shorter}");
}

#[test]
fn a_childs_pages_have_the_frames_of_its_parents_hash() {
    let stats = difference("radix", &[BY_HASH, &revelator("")], |script, whole| {
        map(script, PAGES);
        (0..2).for_each(|_| (0..PAGES).for_each(|page| load(script, 0x40_1000, page)));
        script.event(0, EventKind::Fork { child: ProcessIx(1) });
        let child = script.thread(1);
        for page in 0..if whole { PAGES } else { 0 } {
            script.load(child, BASE + page * 4096);
        }
    });
    let [right, wrong, none] = counts(&stats, ["right", "wrong", "none"]);
    assert_eq!((right, wrong, none), (0, PAGES, 0), "the child has another number");
}

/// A script in which page 5 of a region has moved to another frame, and its old frame is that of page 130: after a
/// guess, page 5 is loaded.
fn moved(script: &mut ScriptWriter, whole: bool) {
    map(script, PAGES);
    (0..64).for_each(|page| load(script, 0x40_1000, page));
    script.event(0, EventKind::Munmap { addr: BASE + 5 * 4096, len: 4096 });
    script.mmap(0, BASE + 5 * 4096, 4096);
    // Another page first takes its frame.
    load(script, 0x40_1000, 130);
    load(script, 0x40_1000, 5);
    // The others leave the TLBs, and enter the region again.
    (0..64).filter(|page| *page != 5).for_each(|page| load(script, 0x40_1000, page));
    (0..u64::from(whole)).for_each(|_| load(script, 0x40_1000, 5));
}

#[test]
fn a_wrong_guess_is_made_again_and_leaves_its_line() {
    let set = |core: &'static str, flush: u64| {
        let model = format!(
            r#"machine.tlb.speculation={{"model":"spec-tlb","region_pages":64,"flush_cycles":{flush},"latency_cycles":0}}"#
        );
        difference("radix-ptemagnet", &[core, GROUPS, &model], moved)
    };
    let plain = |core| difference("radix-ptemagnet", &[core, GROUPS], moved);
    for core in [IN_ORDER, WINDOW] {
        let stats = set(core, 0);
        assert_eq!(counts(&stats, ["right", "wrong", "none", "wrong_lines"]), [0, 1, 0, 1], "{core}");
        for name in ["walk.count", "walk.refs", "l1d.misses.data"] {
            assert_eq!(stats.values[name], plain(core).values[name], "{name}");
        }
    }
    // The access waits for the whole walk, as without a guess; a window is flushed as well.
    assert_eq!(set(IN_ORDER, 500).values["cycles"], plain(IN_ORDER).values["cycles"]);
    assert_eq!(set(WINDOW, 500).values["cycles"] - set(WINDOW, 0).values["cycles"], 500);
}

#[test]
fn nothing_is_guessed_of_pages_that_were_unmapped() {
    let stats = difference("radix-ptemagnet", &[GROUPS, SPEC_TLB], |script, whole| {
        map(script, PAGES);
        (0..2).for_each(|_| (0..PAGES).for_each(|page| load(script, 0x40_1000, page)));
        script.event(0, EventKind::Munmap { addr: BASE, len: PAGES * 4096 });
        map(script, PAGES);
        (0..if whole { 1 } else { 0 }).for_each(|page| load(script, 0x40_1000, page));
    });
    assert_eq!(counts(&stats, ["right", "wrong", "none", "faulted", "wrong_lines"]), [0, 0, 1, 0, 0]);
}

#[test]
fn a_guess_that_always_comes_too_late_changes_nothing() {
    for (system, core) in
        [("radix", IN_ORDER), ("radix-thp", WINDOW), ("nested-radix", WINDOW), ("hashed-open", IN_ORDER)]
    {
        let stats = |model: &str| {
            let mut stats = pass(system, &[core, model]);
            stats.values.retain(|name, _| !name.starts_with("tlb.speculation."));
            stats.values
        };
        let plain = stats(r#"machine.tlb.speculation={"model":"none"}"#);
        for model in ["spec-tlb", "spot"] {
            let late = format!(r#"machine.tlb.speculation={{"model":"{model}","latency_cycles":1000000}}"#);
            assert_eq!(stats(&late), plain, "{system} {model}");
        }
    }
}
