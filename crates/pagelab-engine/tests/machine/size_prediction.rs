//! Compares predictions of page sizes with closed forms.

use crate::common::{ScriptWriter, assert_conserved, config, run};
use pagelab_engine::base::measure::StatKind;
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{Access, AccessKind, EventKind, MapFlags, Protection};

const SMALL: u64 = 0x7f00_0000_0000;
/// Its parts of 2 MiB have other counters than the small pages, if there are 4096.
const LARGE: u64 = 0x7e00_4000_0000;
const PAGE: u64 = 4096;
const LARGE_PAGE: u64 = 2 << 20;
const SECOND: u64 = 9;
const PREDICTION: &str = r#"machine.tlb.size_prediction={"counters":4096,"second_cycles":9}"#;
const BY_PC: &str = r#"machine.tlb.size_prediction={"counters":64,"second_cycles":9,"index":"pc"}"#;

/// A run with a first level of few pages and a second level for both sizes, without the kernel's references.
fn simulate(set: &[&str], script: impl Fn(&mut ScriptWriter)) -> Statistics {
    let fixed = [
        r#"machine.tlb.l1d=[{"pages":["4K","2M"],"entries":4,"ways":4}]"#,
        r#"machine.tlb.l2=[{"pages":["4K","2M"],"entries":64,"ways":4},{"pages":["1G"],"entries":4,"ways":4}]"#,
        "engine.kernel_refs=off",
    ];
    let mut writer = ScriptWriter::new();
    writer.mmap(0, SMALL, 64 * PAGE);
    script(&mut writer);
    let set: Vec<&str> = fixed.iter().chain(set).copied().collect();
    let (_, stats) = run(&config("radix", &set), writer.finish(), &[0]);
    assert_conserved(&stats);
    stats
}

fn map_large(script: &mut ScriptWriter, pages: u64) {
    let flags = MapFlags(MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::HUGETLB);
    let (prot, len) = (Protection::READ_WRITE, pages * LARGE_PAGE);
    script.event(0, EventKind::Mmap { addr: LARGE, len, prot, flags, file: None, file_offset: 0 });
}

fn load(script: &mut ScriptWriter, pc: u64, addr: u64) {
    script.access_of(0, Access { pc, ..Access::new(AccessKind::Load, addr, 8) });
}

/// Rounds of loads of small and large pages in turns: more than the first level holds, and less than the second.
fn rounds(script: &mut ScriptWriter, rounds: u64, pages: u64) {
    for _ in 0..rounds {
        for n in 0..pages {
            load(script, 0x40_1000, SMALL + n * PAGE);
            load(script, 0x40_1001, LARGE + n * LARGE_PAGE);
        }
    }
}

/// Right, wrong, missed and single look-ups.
fn counts(stats: &Statistics) -> [u64; 4] {
    ["right", "wrong", "missed", "single"].map(|name| stats.values[&format!("tlb.size_prediction.{name}")])
}

#[test]
fn a_prediction_changes_cycles_alone_by_its_second_attempts() {
    let program = |script: &mut ScriptWriter| {
        map_large(script, 12);
        rounds(script, 4, 12);
    };
    let plain = simulate(&[], program);
    for (prediction, first_hits) in [(PREDICTION, 12), (BY_PC, 0)] {
        let stats = simulate(&[prediction], program);
        let [right, wrong, missed, single] = counts(&stats);
        assert!(missed > 0 && single > 0, "{missed} {single}");
        // A large page was seen once before its first hit; an instruction has seen more of them.
        assert_eq!((right + wrong, wrong), (3 * 24, first_hits));
        for (name, value) in &plain.values {
            let is_timed = plain.meanings[name].kind == StatKind::Timing;
            assert!(is_timed || stats.values[name] == *value, "{name}: {value} without, {} with", stats.values[name]);
        }
        let spent = (wrong + missed) * SECOND;
        assert_eq!(stats.values["tlb.size_prediction.cycles"], spent);
        assert_eq!(stats.values["cycles"] - plain.values["cycles"], spent, "all second attempts are of the program");
        assert_eq!(stats.values["cycles.translation"] - plain.values["cycles.translation"], spent);
        assert_eq!(stats.values["walk.cycles"], plain.values["walk.cycles"]);
    }
}

#[test]
fn each_instruction_or_each_part_learns_its_size() {
    let settled = |prediction: &str| {
        let after = |turns| {
            simulate(&[prediction], |script| {
                map_large(script, 12);
                rounds(script, turns, 12);
            })
        };
        let (all, before) = (counts(&after(5)), counts(&after(4)));
        [0, 1, 2, 3].map(|n| all[n] - before[n])
    };
    assert_eq!(settled(PREDICTION), [24, 0, 0, 0]);
    assert_eq!(settled(BY_PC), [24, 0, 0, 0]);
    // One counter: small and large pages alternate, and it stays on one side.
    let one = settled(r#"machine.tlb.size_prediction={"counters":1,"second_cycles":9}"#);
    assert_eq!(one, [12, 12, 0, 0]);
}

#[test]
fn without_large_pages_a_prediction_costs_nothing() {
    let program = |script: &mut ScriptWriter| {
        (0..2).for_each(|_| (0..64).for_each(|n| load(script, 0x40_1000, SMALL + n * PAGE)));
    };
    let (plain, stats) = (simulate(&[], program), simulate(&[PREDICTION], program));
    let [right, wrong, missed, single] = counts(&stats);
    assert_eq!(([right, wrong, missed], stats.values["cycles"]), ([0; 3], plain.values["cycles"]));
    assert!(single >= 128);
}

#[test]
fn a_page_of_another_array_needs_one_attempt() {
    let program = |script: &mut ScriptWriter| {
        map_large(script, 12);
        rounds(script, 3, 12);
    };
    let small =
        r#"machine.tlb.l2=[{"pages":["4K","1G"],"entries":64,"ways":4},{"pages":["2M"],"entries":64,"ways":4}]"#;
    let stats = simulate(&[small, PREDICTION], program);
    let [right, wrong, missed, single] = counts(&stats);
    assert_eq!([right, wrong, missed], [0; 3]);
    assert!(single > 72);
}
