//! Translation caches of fault-triggered walks: reads, fills and invalidations, compared with cases computed by hand.

use crate::common::{ScriptWriter, assert_conserved, assert_frames_conserved, config, first_task, mmap, run};
use pagelab_engine::base::addr::VirtAddr;
use pagelab_engine::base::error::EngineError;
use pagelab_engine::base::ids::{CpuId, LayerId, SpaceId};
use pagelab_engine::base::page_fault::{Intent, PageFault};
use pagelab_engine::base::step::Next;
use pagelab_engine::config::Config;
use pagelab_engine::kernel::effects::Effects;
use pagelab_engine::kernel::fault::Fault;
use pagelab_engine::kernel::threads::config::ThreadConfig;
use pagelab_engine::kernel::threads::khugepaged::Khugepaged;
use pagelab_engine::machine::simulation::{PlacedSource, Simulation};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_engine::page_table::WalkList;
use pagelab_trace::{EventKind, MapFlags, ProcessIx, Protection, Source};

const BASE: u64 = 0x7f00_0000_0000;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Another place, with different indices, whose tables reuse freed frames.
const ELSEWHERE: u64 = 0x6000_0000_0000 + 5 * GIB + 10 * MIB;
const READ_ONLY: Protection = Protection { read: true, write: false, execute: false };

fn cache(form: &str, more: &str) -> String {
    format!(r#"kernel.translation_cache={{"form":"{form}"{}{more}}}"#, if more.is_empty() { "" } else { "," })
}

/// Runs a script; errors are those of the run.
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
    let hosts = simulation.kernels.os.layers.iter().filter_map(|layer| layer.host);
    assert_frames_conserved(&simulation, &simulation.programs.inputs[0].spaces().chain(hosts).collect::<Vec<_>>());
    stats
}

fn stc<const N: usize>(stats: &Statistics, names: [&str; N]) -> [u64; N] {
    names.map(|name| stats.values[&format!("stc.{name}")])
}

/// Two pages of one page table, then one of the next.
fn three_pages() -> ScriptWriter {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 8 * MIB);
    [0, 4096, 2 * MIB].into_iter().for_each(|at| script.store(0, BASE + at));
    script
}

#[test]
fn a_walk_begins_at_the_deepest_entry_known_and_fills_what_is_below() {
    let names = ["lookups", "hits.pmd", "hits.pud", "hits.pgd", "fills", "refs.look_up", "refs.spared", "bytes"];
    let counts = |system, form| stc(&checked(system, &cache(form, ""), three_pages()), names);
    // The first walk fills pgd, pud and pmd. The second reads the pmd's tag and pointer and skips the root's address,
    // pgd and pud. The third misses the pmd and hits the pud: two tags and a pointer, two references skipped, and the
    // pmd is filled.
    assert_eq!(counts("radix", "full-prefix"), [3, 1, 1, 0, 3 + 1, 2 + 3, 3 + 2, 1024]);
    // Tags of 32 bytes per level: three levels are in two lines, read from the root on.
    assert_eq!(counts("radix", "as-published"), [3, 1, 1, 0, 3 + 1, 3 + 3, 3 + 2, 512]);
    // One index for all: the second pmd replaces the first one, at any cache size.
    assert_eq!(counts("radix", "pud-index"), [3, 1, 1, 0, 3 + 1, 3 + 3, 3 + 2, 512]);
    // With p4d, one more fill and one more skipped reference.
    assert_eq!(counts("radix-5level", "full-prefix"), [3, 1, 1, 0, 4 + 1, 2 + 3, 4 + 3, 1024]);
    let names = ["lookups", "hits.pte", "hits.pmd", "hits.pud", "hits.pgd", "refs.look_up", "refs.spared"];
    let stats = checked("radix", &cache("mmu-assisted", ""), three_pages());
    // Hardware walks end at the root's entry, at a pte, and at a pmd. The handler checks each time whether that entry
    // is still valid.
    assert_eq!(stc(&stats, names), [3, 1, 1, 0, 1, 3, 1 + 4 + 3]);
}

#[test]
fn saved_and_look_up_references_match_the_kernels_references() {
    // Without caches all references of a walk cost the same, so the walk stage's cycles count them.
    let walk = |cache: &[&str]| {
        let set = [&["engine.kernel_refs=off", "kernel.fault.walk.cycles=0"], cache].concat();
        let (_, stats) = run(&config("radix", &set), three_pages().finish(), &[0]);
        stats.values["fault.stage.walk.cycles"]
    };
    let l1 = u64::from(config("radix", &[]).machine.cache.l1.latency_cycles);
    let with = |form, more| walk(&[&cache(form, more)]);
    let only_refs = r#""cycles":0,"level_cycles":0,"root_cycles":0,"fill_cycles":0"#;
    // In the second and third walk, tags and pointer are read in parallel, and five references skipped. The first and
    // the third fill, which takes no waiting.
    assert_eq!(with("full-prefix", only_refs), walk(&[]) + 4 * l1 - 5 * l1);
    assert_eq!(with("as-published", only_refs), with("full-prefix", only_refs));
    // With several ways, the pointer's address depends on which way hits.
    let of_ways = format!(r#"{only_refs},"ways":2"#);
    assert_eq!(with("full-prefix", &of_ways), with("full-prefix", only_refs) + 2 * l1);
    let set = ["kernel.fault.walk.cycles=100"];
    let costs = r#""cycles":7,"level_cycles":5,"root_cycles":2,"fill_cycles":3"#;
    let statistics =
        |cache: &str| run(&config("radix", &[&set[..], &[cache]].concat()), three_pages().finish(), &[0]).1;
    let preset = |cache: &str| statistics(cache).values["fault.preset.cycles"];
    let beyond = 3 * 7 + 4 * 3 - 3 * 5 - 2 * 2;
    assert_eq!(preset(&cache("full-prefix", costs)), preset(&cache("full-prefix", only_refs)) + beyond);
}

#[test]
fn a_core_that_times_walks_also_times_look_ups_levels_and_fills() {
    let set =
        ["kernel.fault.walk={\"instructions\":100,\"cycles\":\"core\"}", "machine.core.cycles_per_instruction=0.5"];
    let statistics =
        |cache: &[&str]| run(&config("radix", &[&set[..], cache].concat()), three_pages().finish(), &[0]).1;
    let timed =
        |stats: &Statistics| ["fault.stage.walk.instructions", "fault.timed.cycles"].map(|name| stats.values[name]);
    assert_eq!(timed(&statistics(&[])), [3 * 100, 3 * 100 / 2]);
    let instructions = r#""instructions":30,"level_instructions":9,"root_instructions":5,"fill_instructions":7"#;
    let cached = 3 * 100 + 3 * 30 + 4 * 7 - 3 * 9 - 2 * 5;
    let stats = statistics(&[&cache("full-prefix", instructions)]);
    assert_eq!(timed(&stats), [cached, cached / 2]);
    assert_conserved(&stats);
    // A look-up may also have explicit cycles.
    let stats = statistics(&[&cache("full-prefix", &format!(r#"{instructions},"cycles":11"#))]);
    assert_eq!(timed(&stats), [cached, (cached - 3 * 30) / 2]);
}

#[test]
fn references_before_the_pte_are_counted_separately() {
    let set = ["engine.kernel_refs=off", "kernel.fault.walk.cycles=10"];
    let statistics =
        |cache: &[&str]| run(&config("radix", &[&set[..], cache].concat()), three_pages().finish(), &[0]).1;
    let values = |stats: &Statistics| ["fault.walk.count", "fault.before_pte.cycles"].map(|name| stats.values[name]);
    let l1 = u64::from(config("radix", &[]).machine.cache.l1.latency_cycles);
    let plain = statistics(&[]);
    // The first walk ends at the pgd; each new table (pud, pmd) costs its zeroing, a page's metadata and the entry. The
    // second and third read pgd, pud, pmd. All three first read the root's address.
    let table = 3 * l1;
    assert_eq!(values(&plain), [3, 3 * 10 + (2 + 4 + 4) * l1 + 2 * table]);
    let stages = ["walk", "allocation", "zeroing", "charge", "rmap", "lru", "install"];
    let handling: u64 = stages.iter().map(|stage| plain.values[&format!("fault.stage.{stage}.cycles")]).sum();
    assert_eq!(plain.values["fault.handling.cycles"], handling);
    // The cache is filled after the first walk; the second hits the pmd, the third hits the pud and fills the pmd.
    let cached = statistics(&[&cache("full-prefix", r#""cycles":2,"level_cycles":3,"root_cycles":1,"fill_cycles":1"#)]);
    let fills = (3 + 1) + 2 * l1;
    let look_ups = 3 * 2 + 2 * l1;
    assert_eq!(cached.values["fault.fill.cycles"], fills);
    assert!(!plain.values.contains_key("fault.fill.cycles"));
    assert_eq!(values(&cached), [3, 3 * 10 + look_ups - 3 * 3 - 2 + fills + (2 + 1 + 2) * l1 + 2 * table]);
}

#[test]
fn a_layer_can_have_no_translation_cache() {
    let counts = |set: &[&str]| {
        let cache = cache("full-prefix", "");
        let set = [&[&cache[..]], set].concat();
        let (_, stats) = run(&config("nested-radix-cold", &set), three_pages().finish(), &[0]);
        ["stc.lookups", "fault.nested.count"].map(|name| stats.values.get(name).copied())
    };
    let [both, nested] = counts(&[]);
    assert!(nested > Some(0));
    assert_eq!(both, nested.map(|faults| 3 + faults));
    assert_eq!(counts(&["system.layers.host.translation_cache=off"]), [Some(3), nested]);
    // The guest need not request memory for its own cache from the host.
    let [host, faults] = counts(&["system.layers.guest.translation_cache=off"]);
    assert_eq!((host, faults), (faults, nested.map(|faults| faults - 1)));
    assert_eq!(
        counts(&["system.layers.guest.translation_cache=off", "system.layers.host.translation_cache=off"])[0],
        None
    );
}

#[test]
fn one_fault_walks_once_however_many_pages_of_a_table_it_maps() {
    let walks_and_cycles = |pages: u64| {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 4 * MIB);
        // The last page of one table and the first pages of the next.
        script.store(0, BASE + 2 * MIB - 4096);
        let pages = format!("kernel.pages_per_fault={pages}");
        let set = ["engine.kernel_refs=off", "kernel.fault.walk.cycles=1000", &cache("full-prefix", ""), &pages];
        let (_, stats) = run(&config("radix", &set), script.finish(), &[0]);
        let values = ["fault.minor.count", "fault.walk.count", "stc.lookups"].map(|name| stats.values[name]);
        (values, stats.values["fault.stage.walk.cycles"])
    };
    let l1 = u64::from(config("radix", &[]).machine.cache.l1.latency_cycles);
    assert_eq!(walks_and_cycles(1).0, [1, 1, 1]);
    assert_eq!(walks_and_cycles(2).0, [1, 2, 2]);
    // Each further page costs its PTE.
    assert_eq!(walks_and_cycles(9), (walks_and_cycles(2).0, walks_and_cycles(2).1 + 7 * l1));
}

#[test]
fn walks_of_populate_calls_use_the_cache_too() {
    let mut script = ScriptWriter::new();
    let flags = MapFlags(MapFlags::anonymous_private().0 | MapFlags::POPULATE);
    let (addr, len, prot) = (BASE, 64 * 4096, Protection::READ_WRITE);
    script.event(0, EventKind::Mmap { addr, len, prot, flags, file: None, file_offset: 0 });
    script.store(0, BASE);
    let stats = checked("radix", &cache("full-prefix", ""), script);
    assert_eq!(stc(&stats, ["lookups", "hits.pmd", "fills"]), [64, 63, 3]);
}

#[test]
fn a_cache_belongs_to_a_mapping_a_space_or_a_cpu() {
    let script = || {
        let mut script = ScriptWriter::new();
        let second = script.thread(0);
        // Different protections keep the mappings separate.
        script.mmap(0, BASE, MIB);
        script.event(0, mmap(BASE + MIB, MIB, READ_ONLY));
        script.store(0, BASE);
        script.load(0, BASE + MIB);
        // The threads wait for each other here.
        script.mmap(0, ELSEWHERE, MIB);
        script.load(second, BASE + MIB + 4096);
        script
    };
    let counts = |per: &str| {
        let config = config("radix", &[&cache("full-prefix", &format!(r#""per":"{per}""#))]);
        let (simulation, stats) = run(&config, script().finish(), &[0, 2]);
        assert_frames_conserved(&simulation, &simulation.programs.inputs[0].spaces().collect::<Vec<_>>());
        stc(&stats, ["lookups", "hits.pmd", "fills", "bytes"])
    };
    assert_eq!(counts("vma"), [3, 1, 6, 2048]);
    assert_eq!(counts("mm"), [3, 2, 3, 1024]);
    assert_eq!(counts("cpu"), [3, 1, 6, 2048]);
}

#[test]
fn ways_keep_what_a_direct_mapped_cache_replaces() {
    let counts = |ways: u32| {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 256 * MIB);
        // Two page tables whose pmds share one of four indices, alternately.
        (0..8).for_each(|n| script.store(0, BASE + n % 2 * 8 * MIB + n * 4096));
        let stats = checked("radix", &cache("full-prefix", &format!(r#""entries":4,"ways":{ways}"#)), script);
        stc(&stats, ["hits.pmd", "hits.pud", "fills"])
    };
    assert_eq!(counts(1), [0, 7, 3 + 7]);
    assert_eq!(counts(2), [6, 1, 3 + 1]);
}

#[test]
fn the_paper_rejects_one_index_for_all_levels_since_it_keeps_one_pmd_of_a_gigabyte() {
    let counts = |form: &str| {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 2 * GIB);
        // Two pmds of one pud alternately, then two puds.
        (0..8).for_each(|n| script.store(0, BASE + n % 2 * 2 * MIB + n * 4096));
        (0..4).for_each(|n| script.store(0, BASE + n % 2 * GIB + 64 * MIB + n * 4096));
        stc(&checked("radix", &cache(form, ""), script), ["hits.pmd", "hits.pud", "hits.pgd"])
    };
    // Pmds 0 and 32 share an index, in any pud.
    assert_eq!(counts("full-prefix"), [6, 1 + 1 + 2, 1]);
    // Only the last pmd of each pud is cached; after a change of the pud, not even the pgd.
    assert_eq!(counts("pud-index"), [2, 7 + 1, 0]);
}

/// Runs a script with full prefixes: correct as it is, and detected as wrong if the invalidation is omitted.
fn needs(cause: &str, per: &str, script: impl Fn() -> ScriptWriter) -> Statistics {
    let cache_with = |more: &str| cache("full-prefix", &format!(r#""per":"{per}"{more}"#));
    let stats = checked("radix", &cache_with(""), script());
    assert!(stats.values[&format!("stc.invalidations.{cause}")] > 0, "{cause}");
    let omitted = config("radix", &[&cache_with(&format!(r#","omit_invalidation":"{cause}""#))]);
    let Err(EngineError::Check { what }) = try_run(&omitted, script().finish()).map(|_| ()) else {
        panic!("nothing is wrong without invalidations of {cause}")
    };
    assert!(what.contains("translation cache"), "{what}");
    stats
}

fn munmap(addr: u64, len: u64) -> EventKind {
    EventKind::Munmap { addr, len }
}

fn mprotect(addr: u64, len: u64, prot: Protection) -> EventKind {
    EventKind::Mprotect { addr, len, prot }
}

#[test]
fn page_tables_that_munmap_frees_are_forgotten() {
    for per in ["mm", "cpu"] {
        needs("unmap", per, || {
            let mut script = ScriptWriter::new();
            script.mmap(0, BASE, MIB);
            script.store(0, BASE);
            script.event(0, munmap(BASE, MIB));
            script.mmap(0, ELSEWHERE, MIB);
            script.store(0, ELSEWHERE);
            script.mmap(0, BASE, MIB);
            script.store(0, BASE);
            script
        });
    }
    // One mapping replaces another.
    needs("unmap", "vma", || {
        let mut script = ScriptWriter::new();
        for addr in [BASE, ELSEWHERE, BASE] {
            script.mmap(0, addr, MIB);
            script.store(0, addr);
        }
        script.mmap(0, ELSEWHERE + GIB, MIB);
        script.event(0, EventKind::Munmap { addr: BASE, len: MIB });
        script.store(0, ELSEWHERE + GIB);
        script.mmap(0, BASE, MIB);
        script.store(0, BASE);
        script
    });
}

#[test]
fn page_tables_of_a_place_that_pages_moved_from_are_forgotten() {
    for per in ["vma", "mm"] {
        needs("move", per, || {
            let mut script = ScriptWriter::new();
            script.mmap(0, BASE, MIB);
            script.store(0, BASE);
            let (old_addr, new_addr) = (BASE, ELSEWHERE);
            script.event(0, EventKind::Mremap { old_addr, old_len: MIB, new_addr, new_len: MIB });
            script.store(0, ELSEWHERE + 4096);
            script.mmap(0, ELSEWHERE + GIB, MIB);
            script.store(0, ELSEWHERE + GIB);
            script.mmap(0, BASE, MIB);
            script.store(0, BASE);
            script
        });
    }
}

#[test]
fn a_mapping_that_was_cut_forgets_entries_that_may_return() {
    needs("split", "vma", || {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 2 * GIB);
        script.store(0, BASE);
        script.store(0, BASE + GIB);
        script.event(0, mprotect(BASE + GIB, GIB, READ_ONLY));
        // Only the upper part's own cache is affected.
        script.event(0, munmap(BASE + GIB, GIB));
        script.mmap(0, ELSEWHERE, MIB);
        script.store(0, ELSEWHERE);
        script.mmap(0, BASE + GIB, GIB);
        script.store(0, BASE + GIB);
        script
    });
}

#[test]
fn the_cache_of_a_mapping_that_is_joined_to_another_ends() {
    let stats = needs("merge", "vma", || {
        let mut script = ScriptWriter::new();
        // Mappings that were never writable would stay separate.
        script.mmap(0, BASE, GIB);
        script.event(0, mprotect(BASE, GIB, READ_ONLY));
        script.mmap(0, BASE + GIB, 2 * GIB);
        script.store(0, BASE + 2 * GIB);
        script.event(0, mprotect(BASE + GIB, 2 * GIB, READ_ONLY));
        script.event(0, munmap(BASE + 2 * GIB, GIB));
        script.mmap(0, ELSEWHERE, MIB);
        script.store(0, ELSEWHERE);
        script.event(0, mmap(BASE + 2 * GIB, GIB, READ_ONLY));
        script.event(0, mprotect(BASE + GIB, 2 * GIB, Protection::READ_WRITE));
        script.store(0, BASE + 2 * GIB);
        script
    });
    assert_eq!(stc(&stats, ["invalidations.merge", "bytes"]), [1, 2048]);
}

#[test]
fn exec_and_exit_free_all_caches() {
    for per in ["vma", "mm", "cpu"] {
        needs("exit", per, || {
            let mut script = ScriptWriter::new();
            script.mmap(0, BASE, MIB);
            script.store(0, BASE);
            script.event(0, EventKind::Exec { path: "program".into() });
            for addr in [ELSEWHERE, BASE] {
                script.mmap(0, addr, MIB);
                script.store(0, addr);
            }
            script
        });
    }
    // A child starts without caches, and its own are freed with it.
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, MIB);
    script.store(0, BASE);
    script.event(0, EventKind::Fork { child: ProcessIx(1) });
    let child = script.thread(1);
    (0..3).for_each(|n| script.store(child, BASE + 4096 * n));
    script.event(child, EventKind::Exit { code: 0 });
    let stats = checked("radix", &cache("full-prefix", ""), script);
    let names = ["lookups", "hits.pmd", "fills", "invalidations.exit", "bytes", "peak_bytes"];
    // The child's first store splits nothing: it copies a shared page.
    assert_eq!(stc(&stats, names), [1 + 3, 2, 3 + 3, 1, 1024, 2048]);
}

/// A program with a page at `BASE` and a fault at another page of the same page table: hardware has ended its walk and
/// the handler has not yet begun. Then something happens, and the handler runs.
fn interrupted(
    omitted: Option<&str>,
    cause: &str,
    happens: impl Fn(&mut Simulation, SpaceId),
) -> Result<(), EngineError> {
    let omit = omitted.map_or(String::new(), |cause| format!(r#""omit_invalidation":"{cause}""#));
    let khugepaged = r#"kernel.threads.khugepaged={"scan_sleep_cycles":2000,"pages_to_scan":4096,"max_ptes_none":511}"#;
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 2 * MIB);
    script.store(0, BASE);
    let (mut simulation, _) =
        run(&config("radix", &[&cache("mmu-assisted", &omit), khugepaged]), script.finish(), &[0]);
    let space = simulation.programs.inputs[0].spaces().next().expect("the process has not ended");
    let layer = &simulation.kernels.os.layers[0];
    let (va, mut list) = (VirtAddr(BASE + 5 * 4096), WalkList::new());
    layer.spaces[space.index].table.walk(&layer.memory.contents, va, &mut list);
    let reached = layer.reached(space.index, &list);
    assert_eq!(reached.map(|reached| reached.level), Some(1));
    let mut fault = Fault::new(&PageFault { space, va, intent: Intent::Store, reached }, CpuId(0));
    happens(&mut simulation, space);
    while fault.commit(&mut simulation.kernels.os, &mut Effects::default(), first_task(CpuId(0)))? != Next::Done {}
    let stats = simulation.statistics();
    assert_frames_conserved(&simulation, &[space]);
    assert_eq!(stats.values[&format!("stc.invalidations.{cause}")], 1);
    assert_eq!(stats.values["stc.hits.pte"], 0, "what hardware told does not hold any more");
    assert!(!simulation.kernels.os.layers[0].is_unmapped(space.index, va));
    Ok(())
}

#[test]
fn hardware_reports_are_valid_until_page_tables_are_freed() {
    let anew = |simulation: &mut Simulation, space| {
        let mapped = mmap(BASE, 2 * MIB, Protection::READ_WRITE);
        _ = simulation
            .kernels
            .os
            .change_mappings(&mut Effects::default(), CpuId(0), space, &mapped)
            .expect("there is memory");
    };
    type Happens<'a> = &'a dyn Fn(&mut Simulation, SpaceId);
    let cases: [(&str, Happens); 4] = [
        ("collapse", &|simulation, _| {
            let ThreadConfig::On(config) = simulation.kernels.os.costs.threads.khugepaged else {
                unreachable!("it is configured")
            };
            let thread = simulation.kernels.threads.add(Khugepaged::new(LayerId(0), config).into());
            while simulation.kernels.threads.commit(
                thread,
                &mut simulation.kernels.os,
                &mut Effects::default(),
                first_task(CpuId(0)),
            ) != Next::Done
            {}
            assert!(
                simulation
                    .kernels
                    .threads
                    .counters()
                    .iter()
                    .any(|&(name, count, _)| (name, count) == ("khugepaged.collapsed", 1))
            );
        }),
        ("unmap", &|simulation, space| {
            simulation
                .kernels
                .os
                .change_mappings(&mut Effects::default(), CpuId(0), space, &munmap(BASE, 2 * MIB))
                .expect("there is memory");
            anew(simulation, space);
        }),
        ("move", &|simulation, space| {
            let (old_len, new_len) = (2 * MIB, 2 * MIB);
            let moved = EventKind::Mremap { old_addr: BASE, old_len, new_addr: ELSEWHERE, new_len };
            simulation
                .kernels
                .os
                .change_mappings(&mut Effects::default(), CpuId(0), space, &moved)
                .expect("there is memory");
            anew(simulation, space);
        }),
        ("exit", &|simulation, space| {
            simulation.kernels.os.drop_mappings(CpuId(0), space).expect("there is memory");
            anew(simulation, space);
        }),
    ];
    for (cause, happens) in cases {
        interrupted(None, cause, happens).unwrap_or_else(|e| panic!("{cause}: {e}"));
        let wrong = interrupted(Some(cause), cause, happens);
        assert!(matches!(wrong, Err(EngineError::Check { .. })), "{cause}");
    }
}

#[test]
fn a_collapse_keeps_the_tables_that_caches_point_to() {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 2 * GIB);
    // khugepaged collapses one range while the program runs in another; then part of the large page is freed.
    let advise = |script: &mut ScriptWriter, advice| {
        script.event(0, EventKind::Madvise { addr: BASE, len: 4 * MIB, advice });
    };
    advise(&mut script, 15);
    script.store(0, BASE);
    advise(&mut script, 14);
    script.mmap(0, ELSEWHERE, GIB);
    (0..1000).for_each(|n| script.store(0, ELSEWHERE + 4096 * n));
    (1..8).for_each(|n| script.store(0, BASE + 4096 * n));
    script.event(0, munmap(BASE + 4096, 4096));
    script.mmap(0, BASE + 4096, 4096);
    script.store(0, BASE + 4096);
    let khugepaged = r#"kernel.threads.khugepaged={"scan_sleep_cycles":2000,"pages_to_scan":4096,"max_ptes_none":511}"#;
    let set = [&cache("full-prefix", r#""per":"mm""#), khugepaged, "system.layers.native.large_pages=madvise"];
    let (_, stats) = run(&config("radix-2m", &set), script.finish(), &[0]);
    assert_eq!((stats.values["khugepaged.collapsed"], stats.values["stc.invalidations.collapse"]), (1, 0));
    assert!(stats.values["stc.hits.pmd"] > 990);
}

#[test]
fn the_published_rule_is_never_wrong_within_an_aligned_gigabyte_and_never_used_where_it_is() {
    let counts = |gigabytes: u64| {
        let spec = format!("random:size={gigabytes}GiB,accesses=12000");
        let config = config("radix", &[&cache("as-published", "")]);
        let source = pagelab_trace::workload::parse(&spec, 1).unwrap_or_else(|e| panic!("{e}"));
        let (_, stats) = run(&config, source, &[0]);
        stc(&stats, ["hits.pmd", "false_hits.pmd"])
    };
    let [hits, wrong] = counts(1);
    assert!(hits > 250 && wrong == 0, "{wrong} of {hits}");
    let [hits, wrong] = counts(4);
    // Three of four regions of 1 GiB are different ones.
    assert!(hits > 250 && (64..=86).contains(&(wrong * 100 / hits)), "{wrong} of {hits}");
}

#[test]
fn impossible_caches_are_refused() {
    use pagelab_engine::config::{Assembly, assemble};
    let error = |system: &str, cache: &str| {
        let set = [cache.to_owned()];
        let assembled = assemble(&Assembly { machine: None, system: Some(system), kernel: None, set: &set });
        assembled.err().unwrap_or_else(|| panic!("{cache} is possible")).to_string()
    };
    for (system, form, more, what) in [
        (
            "radix",
            "full-prefix",
            r#""entries":12"#,
            "kernel.translation_cache.entries: 12 is not possible; allowed are powers of two from 4 to 512",
        ),
        ("radix", "full-prefix", r#""entries":1024"#, "from 4 to 512"),
        (
            "radix",
            "full-prefix",
            r#""entries":4,"ways":8"#,
            "kernel.translation_cache.ways: 8 is not possible; allowed are powers of two from 1 to 4",
        ),
        ("radix", "full-prefix", r#""pud_entries":2"#, "kernel.translation_cache.pud_entries: 2 is not possible"),
        ("radix", "full-prefix", r#""ways":8,"pud_entries":4"#, "kernel.translation_cache.ways: 8 is not possible"),
        ("radix", "pud-index", r#""pud_entries":32"#, "kernel.translation_cache.pud_entries: the index of the pud"),
        ("radix", "pud-index", r#""ways":2"#, "allowed is 1"),
        (
            "hashed-open",
            "full-prefix",
            "",
            "kernel.translation_cache: it holds entries of the upper levels of a radix page table, and layer `native`",
        ),
        ("nested-radix-linear-host", "mmu-assisted", "", "layer `host`"),
        ("radix", "mmu-assisted", r#""entries":16"#, "no key `entries`"),
        ("radix", "nothing", "", "`nothing` is not known"),
    ] {
        let error = error(system, &cache(form, more));
        assert!(error.contains(what), "{error}");
    }
}
