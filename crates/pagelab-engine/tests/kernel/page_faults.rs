//! The single page faults of a run: they agree with the statistics, and their latencies with the stages.

use crate::common::{ScriptWriter, assert_conserved, config};
use pagelab_engine::base::page_fault::Intent;
use pagelab_engine::machine::simulation::{PlacedSource, Simulation};
use pagelab_engine::observe::page_faults::{PageFaults, SeenFault};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{EventKind, MapFlags, ProcessIx, Protection, Source, workload};

const BASE: u64 = 0x7f00_0000_0000;
const PAGE: u64 = 4096;

fn seen(system: &str, set: &[&str], sources: Vec<Box<dyn Source>>) -> (Vec<SeenFault>, Statistics) {
    let placed = |(cpu, source)| PlacedSource { source, cpus: vec![cpu], memory_limit: None };
    let placed = sources.into_iter().enumerate().map(placed).collect();
    let mut simulation = Simulation::new(&config(system, set), placed, None).unwrap_or_else(|e| panic!("{e}"));
    simulation.observers.page_faults = Some(PageFaults::default());
    simulation.run(&mut |_| true).unwrap_or_else(|e| panic!("{e}"));
    let stats = simulation.statistics();
    (simulation.observers.page_faults.take().expect("they are kept").in_order(), stats)
}

fn program(spec: &str) -> Box<dyn Source> {
    workload::parse(spec, 1).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn page_faults_are_one_per_first_touch_and_sum_to_the_fault_cycles() {
    let (faults, stats) = seen("radix", &[], vec![program("stride:size=4MiB,stride=4KiB,write=1,gap=100")]);
    assert_eq!(faults.len() as u64, stats.values["fault.minor.count"]);
    assert_eq!(faults.iter().map(|fault| fault.took.0).sum::<u64>(), stats.values["cycles.fault"]);
    assert!(faults.is_sorted_by_key(|fault| fault.at + fault.took), "one thread is in one fault at a time");
    let stores = faults.iter().filter(|fault| fault.intent == Intent::Store && !fault.present);
    let mut pages: Vec<u64> = stores.map(|fault| fault.va.0 / PAGE).collect();
    pages.dedup();
    assert_eq!(pages.len(), 1024);
}

#[test]
fn a_copy_on_write_finds_its_page_present_and_a_populated_page_raises_nothing() {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 4 * PAGE);
    script.load(0, BASE);
    script.store(0, BASE + PAGE);
    script.event(0, EventKind::Fork { child: ProcessIx(1) });
    let child = script.thread(1);
    script.store(child, BASE + PAGE);
    let (faults, stats) = seen("radix", &[], vec![script.finish()]);
    let accesses: Vec<_> = faults.iter().map(|fault| (fault.va.0, fault.intent, fault.present)).collect();
    assert_eq!(
        accesses,
        [(BASE, Intent::Load, false), (BASE + PAGE, Intent::Store, false), (BASE + PAGE, Intent::Store, true),]
    );
    assert_ne!((faults[1].space, faults[1].thread), (faults[2].space, faults[2].thread), "the child's");
    assert_eq!(stats.values["fault.copy.count"], 1);
}

#[test]
fn page_faults_exclude_those_of_hosts_and_engines() {
    let spec = "stride:size=4MiB,stride=4KiB,write=1,gap=60000";
    let (faults, stats) = seen("nested-radix-cold", &[], vec![program(spec)]);
    assert_eq!(faults.len() as u64, stats.values["fault.minor.count"]);
    assert!(stats.values["fault.nested.count"] > 1024, "the host had some too");
    let (faults, stats) = seen("mfoe", &[], vec![program(spec)]);
    assert_eq!(faults.len() as u64, stats.values["fault.minor.count"]);
    assert!(faults.len() < 300, "{} of 1024: the engine had the others", faults.len());
}

#[test]
fn page_faults_are_in_order_across_cpus() {
    let spec = "stride:size=4MiB,stride=4KiB,write=1,gap=100";
    let (faults, stats) = seen("radix", &[], vec![program(spec), program(spec)]);
    assert_eq!(faults.len() as u64, stats.values["fault.minor.count"]);
    assert!(faults.is_sorted_by_key(|fault| (fault.at, fault.cpu.index())));
    let of_cpu = |cpu| faults.iter().filter(|fault| fault.cpu.index() == cpu).count();
    assert_eq!((of_cpu(0), of_cpu(1)), (1025, 1025), "each page, and one of code");
}

/// Instructions and lines of a stage of a run, summed over all places.
fn work_of(stats: &Statistics, stage: &str) -> (u64, u64) {
    let places = ["l1", "l2", "l3", "remote", "dram"];
    let lines = places.map(|place| stats.values[&format!("fault.stage.{stage}.lines.{place}")]);
    (stats.values[&format!("fault.stage.{stage}.instructions")], lines.iter().sum())
}

#[test]
fn stages_touch_the_lines_that_the_preset_gives_them_and_no_others() {
    let program = || vec![program("stride:size=4MiB,stride=4KiB,write=1,gap=100")];
    let (_, before) = seen("radix", &[], program());
    let given = [
        "kernel.fault.entry.lines.cpu=5",
        "kernel.fault.lookup.lines.space=7",
        "kernel.fault.rmap.lines={\"cpu\":1,\"kernel\":2,\"again\":4}",
    ];
    let (_, after) = seen("radix", &given, program());
    let faults = after.values["fault.minor.count"];
    assert_eq!(before.values["fault.minor.count"], faults);
    for (stage, more) in
        [("entry", 5), ("lookup", 7), ("walk", 0), ("zeroing", 0), ("rmap", 7), ("install", 0), ("return", 0)]
    {
        let ((instructions, lines), with) = (work_of(&before, stage), work_of(&after, stage));
        assert_eq!(with, (instructions, lines + more * faults), "{stage}");
    }
    // The lines stay in the L1 between faults: 15 come from memory once, in the first fault.
    let dram = |stats: &Statistics| -> u64 {
        ["entry", "lookup", "rmap"].iter().map(|stage| stats.values[&format!("fault.stage.{stage}.lines.dram")]).sum()
    };
    assert_eq!(dram(&after), dram(&before) + 15);
}

#[test]
fn unstated_cycles_come_from_the_core_and_rounding_is_lost_once() {
    let statistics = |set: &[&str]| {
        let set = [&["machine.core.cycles_per_instruction=0.25"], set].concat();
        seen("radix", &set, vec![program("stride:size=4MiB,stride=4KiB,write=1,gap=100")]).1
    };
    let of_fault = |stats: &Statistics| {
        let names =
            ["fault.cycles", "fault.preset.cycles", "fault.timed.cycles", "fault.instructions", "fault.minor.count"];
        names.map(|name| stats.values[name])
    };
    let [before, preset_before, none, instructions, faults] = of_fault(&statistics(&[]));
    assert_eq!(none, 0);
    let stated = 220 + 440;
    let stats = statistics(&[
        "kernel.fault.lookup.cycles=core",
        "kernel.fault.install={\"cycles\":\"core\",\"instructions\":421}",
    ]);
    assert_conserved(&stats);
    let [after, preset, timed, more, _] = of_fault(&stats);
    // 200 and 421 instructions a fault: 621 take 155.25 cycles, and no fault loses the quarter.
    assert_eq!(timed, faults * (200 + 421) / 4);
    assert_eq!((more, preset), (instructions + faults, preset_before - faults * stated));
    assert_eq!(after, before - faults * stated + timed);
    let [_, with, ..] = of_fault(&statistics(&[
        "kernel.fault.lookup={\"instructions\":200,\"cycles\":\"core\",\"hardware_cycles\":13}",
    ]));
    assert_eq!(with, preset_before - faults * (220 - 13), "what the processor does comes on top, and is stated");
}

#[test]
fn instructions_of_stages_sum_to_those_of_faults_and_zeroed_lines_are_among_the_lines() {
    let (_, stats) = seen("radix", &[], vec![program("stride:size=1MiB,stride=4KiB,write=1,gap=100")]);
    let ends = |name: &&String| name.starts_with("fault.stage.") && name.ends_with(".instructions");
    let sum: u64 = stats.values.keys().filter(ends).map(|name| stats.values[name]).sum();
    assert_eq!(sum, stats.values["fault.instructions"]);
    assert!(work_of(&stats, "zeroing").1 >= 64 * stats.values["fault.minor.count"]);
}

const PRIVATE_FILE: u64 = BASE + (1 << 30);
const SHARED_FILE: u64 = BASE + (2 << 30);
/// Kinds of [`faults_of_all_kinds`], and their numbers.
const KINDS: [(&str, u64); 7] = [
    ("zero-page", 7),
    ("zero-page-replaced", 3),
    ("copy", 5),
    ("reuse", 2),
    ("file-around", 1),
    ("file-shared", 4),
    ("file-copy", 6),
];

/// Eleven first touches and other faults; the number of each kind is different.
fn faults_of_all_kinds() -> Box<dyn Source> {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 64 * PAGE);
    for (addr, flags) in [(PRIVATE_FILE, MapFlags::PRIVATE), (SHARED_FILE, MapFlags::SHARED)] {
        let (prot, flags, file) = (Protection::READ_WRITE, MapFlags(flags), Some("data".into()));
        script.event(0, EventKind::Mmap { addr, len: 64 * PAGE, prot, flags, file, file_offset: 0 });
    }
    (0..11).for_each(|page| script.store(0, BASE + page * PAGE));
    (32..39).for_each(|page| script.load(0, BASE + page * PAGE));
    (32..35).for_each(|page| script.store(0, BASE + page * PAGE));
    script.load(0, PRIVATE_FILE + 3 * PAGE);
    (32..38).for_each(|page| script.store(0, PRIVATE_FILE + page * PAGE));
    (0..4).for_each(|page| script.store(0, SHARED_FILE + page * PAGE));
    script.event(0, EventKind::Fork { child: ProcessIx(1) });
    (0..5).for_each(|page| script.store(0, BASE + page * PAGE));
    let child = script.thread(1);
    (3..5).for_each(|page| script.store(child, BASE + page * PAGE));
    script.finish()
}

/// Instructions and lines by stage.
fn work_of_stages(set: &[&str]) -> Vec<(u64, u64)> {
    let (_, stats) = seen("radix", set, vec![faults_of_all_kinds()]);
    ["entry", "lookup", "walk", "allocation", "zeroing", "charge", "rmap", "lru", "install", "return"]
        .map(|stage| work_of(&stats, stage))
        .to_vec()
}

#[test]
fn kinds_of_faults_have_the_presets_costs_or_those_of_a_first_touch() {
    let plain = work_of_stages(&[]);
    let with = |at: usize, more: (u64, u64)| {
        let mut all = plain.clone();
        all[at] = (plain[at].0 + more.0, plain[at].1 + more.1);
        all
    };
    for (kind, faults) in KINDS {
        let install = format!(r#"kernel.fault_kinds.{kind}.install={{"instructions":1420,"lines":{{"kernel":3}}}}"#);
        assert_eq!(work_of_stages(&[&install]), with(8, (1000 * faults, 3 * faults)), "{kind}");
        let none = format!(r#"kernel.fault_kinds.{kind}.return={{"instructions":0}}"#);
        let mut without = plain.clone();
        without[9].0 -= 120 * faults;
        assert_eq!(work_of_stages(&[&none]), without, "{kind}");
    }
    let copy = r#"kernel.fault_kinds.copy={"allocation":{"instructions":407},"install":{"instructions":420}}"#;
    assert_eq!(work_of_stages(&[copy]), with(3, (7 * 5, 0)));
}

#[test]
fn further_pages_have_instructions_of_their_own() {
    let plain = work_of_stages(&[]);
    // 16 pages around one are mapped.
    let around = r#"kernel.fault_kinds.file-around.rmap={"instructions":120,"page_instructions":10}"#;
    let mut with = plain.clone();
    with[6].0 += 15 * 10;
    assert_eq!(work_of_stages(&[around]), with);
    let folios = |set: &[&str]| {
        let set =
            [&[r#"system.layers.native.folios=["32KiB"]"#, "machine.core.cycles_per_instruction=0.5"], set].concat();
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 64 * PAGE);
        (0..20).for_each(|page| script.store(0, BASE + page * PAGE));
        let (_, stats) = seen("radix", &set, vec![script.finish()]);
        ["fault.minor.count", "fault.stage.allocation.instructions", "fault.timed.cycles"]
            .map(|name| stats.values[name])
    };
    let [faults, instructions, timed] = folios(&[]);
    assert_eq!((faults, timed), (3, 0));
    let more = 3 * 7 * 6;
    assert_eq!(folios(&["kernel.fault.allocation.page_instructions=6"]), [faults, instructions + more, more / 2]);
}
