//! Translation caches in slots with generations, as in pagelab's Linux: reads, fills and validity, compared with cases
//! computed by hand.

use crate::common::{ScriptWriter, assert_conserved, assert_frames_conserved, config, run};
use pagelab_engine::base::error::EngineError;
use pagelab_engine::config::Config;
use pagelab_engine::machine::simulation::{PlacedSource, Simulation};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{EventKind, ProcessIx, Source};

const BASE: u64 = 0x7f00_0000_0000;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Another place, whose tables reuse freed frames.
const ELSEWHERE: u64 = 0x6000_0000_0000 + 5 * GIB + 10 * MIB;
const KINDS: [&str; 3] = ["vma", "cpu", "cpu-table"];

fn cache(kind: &str, more: &str) -> String {
    format!(r#"kernel.translation_cache={{"form":"generations","kind":"{kind}"{more}}}"#)
}

fn try_run(config: &Config, source: Box<dyn Source>) -> Result<(Simulation, Statistics), EngineError> {
    let placed = vec![PlacedSource { source, cpus: vec![0], memory_limit: None }];
    let mut simulation = Simulation::new(config, placed, None)?;
    simulation.run(&mut |_| true)?;
    let stats = simulation.statistics();
    Ok((simulation, stats))
}

fn checked(system: &str, cache: &str, script: ScriptWriter) -> Statistics {
    let (simulation, stats) = try_run(&config(system, &[cache]), script.finish()).unwrap_or_else(|e| panic!("{e}"));
    assert_conserved(&stats);
    assert_frames_conserved(&simulation, &simulation.programs.inputs[0].spaces().collect::<Vec<_>>());
    stats
}

fn stc<const N: usize>(stats: &Statistics, names: [&str; N]) -> [u64; N] {
    names.map(|name| stats.values[&format!("stc.{name}")])
}

/// Two pages of a page table: the first walk gives the space a generation, the second fills. Then one more page there,
/// one of the next page table, and one of the next gigabyte.
fn five_pages() -> ScriptWriter {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 2 * GIB);
    [0, 4096, 8192, 2 * MIB, GIB].into_iter().for_each(|at| script.store(0, BASE + at));
    script
}

#[test]
fn a_walk_starts_at_the_slot_with_its_address() {
    let names = ["lookups", "hits.pmd", "hits.pud", "fills", "refs.look_up", "refs.spared", "bytes"];
    let counts = |system, kind| stc(&checked(system, &cache(kind, ""), five_pages()), names);
    // A cache exists from the second walk on, so the third looks up: generation and PMD slot. It skips the root's
    // address, PGD and PUD. The fourth finds the PUD in a second slot, and skips two references; the fifth finds
    // nothing in two slots.
    for kind in ["vma", "cpu"] {
        assert_eq!(counts("radix", kind), [5, 1, 1, 2 + 1 + 2, 2 + 3 + 3, 3 + 2, 1024], "{kind}");
        assert_eq!(counts("radix-5level", kind), [5, 1, 1, 2 + 1 + 2, 2 + 3 + 3, 4 + 3, 1024], "{kind}");
    }
    // A table's slot also serves the fourth walk, and there is one level of slots.
    assert_eq!(counts("radix", "cpu-table"), [5, 2, 0, 1 + 1, 2 + 2 + 2, 3 + 3, 512]);
}

#[test]
fn instructions_depend_on_the_result_of_the_look_up() {
    let walk = |system: &str, cache: &[&str]| {
        let set = [&["kernel.fault.walk.instructions=228", "kernel.fault.walk.cycles=114"], cache].concat();
        let (_, stats) = run(&config(system, &set), five_pages().finish(), &[0]);
        let value = |name: &str| i64::try_from(stats.values[&format!("fault.{name}")]).expect("it is small");
        [value("stage.walk.instructions"), value("preset.cycles")]
    };
    // Before the second walk there is no cache, which still counts as a miss.
    for (kind, hits, misses, fills) in [
        ("vma", -41 + 21, 3 * 30, 74 + 65 + 74),
        ("cpu", -51 + 7, 3 * 23, 46 + 45 + 46),
        ("cpu-table", 2 * -47, 3 * 16, 2 * 38),
    ] {
        let added = |system: &str| {
            let ([with, cycles], [without, before]) = (walk(system, &[&cache(kind, "")]), walk(system, &[]));
            // Half a cycle per instruction, as in the stage, plus one cycle for each of five walks and three fills.
            assert!((2 * (cycles - before) - (with - without)).abs() <= 8, "{kind}");
            with - without
        };
        assert_eq!(added("radix"), hits + misses + fills, "{kind}");
        assert_eq!(added("radix-5level"), hits + misses + fills - 2 * 12, "{kind}");
    }
    let costs = r#","costs":{"pmd_hit":-7,"pud_hit":0,"miss":100,"level":0,"fill":1000,"fill_slot":0}"#;
    assert_eq!(walk("radix", &[&cache("cpu-table", costs)])[0] - walk("radix", &[])[0], 2 * -7 + 300 + 2000);
}

/// Correct as it is, and detected as wrong if the invalidation is omitted.
fn needs(cause: &str, script: impl Fn() -> ScriptWriter) {
    for kind in KINDS {
        let stats = checked("radix", &cache(kind, ""), script());
        assert!(cause == "exit" || stats.values[&format!("stc.invalidations.{cause}")] > 0, "{kind}, {cause}");
        let omitted = config("radix", &[&cache(kind, &format!(r#","omit_invalidation":"{cause}""#))]);
        let Err(EngineError::Check { what }) = try_run(&omitted, script().finish()).map(|_| ()) else {
            // A mapping's cache is freed with it.
            assert!(kind == "vma", "{kind}: nothing is wrong without invalidations of {cause}");
            continue;
        };
        assert!(what.contains("translation cache"), "{what}");
    }
}

fn twice(script: &mut ScriptWriter, addr: u64) {
    (0..2).for_each(|n| script.store(0, addr + 4096 * n));
}

#[test]
fn pmd_tables_that_are_freed_give_the_space_another_generation() {
    needs("unmap", || {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, MIB);
        twice(&mut script, BASE);
        script.event(0, EventKind::Munmap { addr: BASE, len: MIB });
        script.mmap(0, ELSEWHERE, MIB);
        script.store(0, ELSEWHERE);
        script.mmap(0, BASE, MIB);
        script.store(0, BASE);
        script
    });
    needs("move", || {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, MIB);
        twice(&mut script, BASE);
        let (old_addr, new_addr) = (BASE, ELSEWHERE);
        script.event(0, EventKind::Mremap { old_addr, old_len: MIB, new_addr, new_len: MIB });
        script.mmap(0, ELSEWHERE + GIB, MIB);
        script.store(0, ELSEWHERE + GIB);
        script.mmap(0, BASE, MIB);
        script.store(0, BASE);
        script
    });
    needs("exit", || {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, MIB);
        twice(&mut script, BASE);
        script.event(0, EventKind::Exec { path: "program".into() });
        for addr in [ELSEWHERE, BASE] {
            script.mmap(0, addr, MIB);
            script.store(0, addr);
        }
        script
    });
    // The rest of a split mapping keeps its cache, whose entries point to freed PMD tables.
    let kept = || {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 2 * GIB);
        twice(&mut script, BASE + GIB);
        script.event(0, EventKind::Munmap { addr: BASE + GIB, len: GIB });
        script.mmap(0, ELSEWHERE, MIB);
        script.store(0, ELSEWHERE);
        script.mmap(0, BASE + GIB, GIB);
        script.store(0, BASE + GIB);
        script
    };
    let omitted = config("radix", &[&cache("vma", r#","omit_invalidation":"unmap""#)]);
    assert!(matches!(try_run(&omitted, kept().finish()), Err(EngineError::Check { .. })));
    assert_eq!(
        stc(&checked("radix", &cache("vma", ""), kept()), ["invalidations.unmap", "invalidations.split"]),
        [1, 0]
    );
}

#[test]
fn tables_of_ptes_that_are_freed_change_nothing() {
    for kind in KINDS {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 8 * MIB);
        twice(&mut script, BASE);
        script.store(0, BASE + 4 * MIB);
        script.event(0, EventKind::Munmap { addr: BASE + 4 * MIB, len: 4 * MIB });
        script.store(0, BASE + 8192);
        let stats = checked("radix", &cache(kind, ""), script);
        // The second walk fills; the third has another PMD, and finds the PUD or the table.
        let hits = if kind == "cpu-table" { [2, 0] } else { [1, 1] };
        assert_eq!(stc(&stats, ["hits.pmd", "hits.pud"]), hits, "{kind}");
        assert_eq!(stc(&stats, ["lookups", "invalidations.unmap"]), [4, 0], "{kind}");
    }
}

#[test]
fn a_cpu_has_one_cache_for_all_spaces_and_takes_no_entry_for_another_space() {
    let counts = |kind: &str| {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 8 * MIB);
        twice(&mut script, BASE);
        script.event(0, EventKind::Fork { child: ProcessIx(1) });
        let child = script.thread(1);
        // At the parent's addresses: a copy, and new pages. The slots belong to the parent at first, and then to the
        // child.
        (0..4).for_each(|n| script.store(child, BASE + 4096 * n));
        script.event(child, EventKind::Exit { code: 0 });
        (4..6).for_each(|n| script.store(0, BASE + 4096 * n));
        stc(&checked("radix", &cache(kind, ""), script), ["lookups", "hits.pmd", "fills", "bytes", "peak_bytes"])
    };
    // The child's first walk gives it a generation, its second fills, and two hit. Of the parent's last two walks, one
    // finds the child's entry in its slot and fills again.
    assert_eq!(counts("cpu"), [2 + 4 + 2, 2 + 1, 2 + 2 + 2, 1024, 1024]);
    assert_eq!(counts("cpu-table"), [2 + 4 + 2, 2 + 1, 1 + 1 + 1, 512, 512]);
    // With caches per mapping, the child has its own, which are freed with it.
    assert_eq!(counts("vma"), [2 + 4 + 2, 2 + 2, 2 + 2, 1024, 2048]);
}

#[test]
fn impossible_slots_are_refused() {
    use pagelab_engine::config::{Assembly, assemble};
    let error = |cache: &str, walk: &str| {
        let set = [cache.to_owned(), format!("kernel.fault.walk.instructions={walk}")];
        let assembled = assemble(&Assembly { machine: None, system: Some("radix-5level"), kernel: None, set: &set });
        assembled.err().unwrap_or_else(|| panic!("{cache} is possible")).to_string()
    };
    let slots = error(&cache("cpu", r#","slots":20"#), "225");
    assert!(
        slots.contains("kernel.translation_cache.slots: 20 is not possible; allowed are powers of two from 4"),
        "{slots}"
    );
    let saved = error(&cache("cpu", ""), "50");
    let what = "kernel.translation_cache.costs.pmd_hit: would save 63 of the 50 instructions";
    assert!(saved.contains(what) && saved.contains("no less than -38 with 5 levels"), "{saved}");
    let kind = error(&cache("mm", ""), "225");
    assert!(kind.contains("`mm`") && kind.contains("cpu-table"), "{kind}");
}
