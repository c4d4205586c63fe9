//! Costs and savings of MFOE, and effects of mapping calls on armed entries.

use crate::common::{ScriptWriter, assert_conserved, assert_frames_conserved, config, run, run_all, run_workload};
use pagelab_engine::base::addr::VirtAddr;
use pagelab_engine::base::ids::{LayerId, SpaceId};
use pagelab_engine::fault_engine::kernel_side::{ArmingJob, EngineState};
use pagelab_engine::kernel::context::KernelContext;
use pagelab_engine::kernel::entry_word::EntryWord;
use pagelab_engine::kernel::reclaim::LruPageKind;
use pagelab_engine::kernel::vma::VaRange;
use pagelab_engine::machine::simulation::Simulation;
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{EventKind, Protection};

const BASE: u64 = 0x7f00_0000_0000;
const PAGE: u64 = 4096;

/// Zeroing ahead that takes little of a period.
const FAST: &str = "machine.bulk.cost=latency";

/// The system with some parameters changed.
fn mfoe(parameters: &[(&str, u64)], set: &[&str]) -> pagelab_engine::config::Config {
    let key = |&(name, value): &(&str, u64)| format!("system.layers.native.fault_engine.{name}={value}");
    let keys: Vec<String> = parameters.iter().map(key).collect();
    config("mfoe", &keys.iter().map(String::as_str).chain(set.iter().copied()).collect::<Vec<_>>())
}

fn stat(stats: &Statistics, name: &str) -> u64 {
    stats.values[&format!("layer.native.fault_engine.{name}")]
}

/// Gives the threads time to finish their work: accesses to a mapped page, with many instructions between them.
fn pause(script: &mut ScriptWriter, cycles: u64) {
    for _ in 0..cycles / 5000 {
        let mut access = pagelab_trace::Access::new(pagelab_trace::AccessKind::Load, BASE - PAGE, 8);
        access.gap = 10_000;
        script.access_of(0, access);
    }
}

/// A script with a page of its own below `BASE`, which waits until the engine's tables are full.
fn script() -> ScriptWriter {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE - PAGE, PAGE);
    script.load(0, BASE - PAGE);
    pause(&mut script, 20_000_000);
    script
}

/// The same, with this many armed pages from `BASE` on.
fn armed_script(pages: u64) -> ScriptWriter {
    let mut script = script();
    script.mmap(0, BASE, pages * PAGE);
    pause(&mut script, 1_000_000);
    script
}

fn space(simulation: &Simulation) -> SpaceId {
    simulation.programs.inputs[0].spaces().next().expect("the process has not ended")
}

/// Number of armed pages of the mapping at `BASE`, and whether the first of them is writable.
fn armed(simulation: &Simulation, space: SpaceId, pages: u64) -> (usize, Option<bool>) {
    let range = VaRange { start: VirtAddr(BASE), end: VirtAddr(BASE + pages * PAGE) };
    let words = simulation.kernels.os.layers[LayerId(0)].words(space.index, range);
    let first = words.first().map(|entry| match entry.word {
        EntryWord::Armed(armed) => armed.writable,
        EntryWord::Swap(_) | EntryWord::Stored(_) => panic!("{entry:?}"),
    });
    (words.len(), first)
}

#[test]
fn a_page_costs_its_references_and_no_walk_follows() {
    let mut script = armed_script(64);
    (0..64).for_each(|page| script.store(0, BASE + page * PAGE));
    let (simulation, stats) = run(&mfoe(&[], &["engine.kernel_refs=off"]), script.finish(), &[0]);
    assert_conserved(&stats);
    assert_frames_conserved(&simulation, &[space(&simulation)]);
    assert_eq!((stat(&stats, "hits"), stat(&stats, "misses"), stat(&stats, "armed")), (64, 0, 64));
    // Five steps of a cycle each; header, entry, PTE; entry, header; PTE: six references of 4 cycles.
    let latency = 5 + 6 * 4;
    assert_eq!(stat(&stats, "mapped.cycles"), 64 * latency);
    assert_eq!(
        (stat(&stats, "mapped.p50"), stat(&stats, "mapped.p95"), stat(&stats, "mapped.deviation")),
        (latency, latency, 0)
    );
    let steps = ["header", "entry", "lock", "take", "map"].map(|step| stat(&stats, &format!("step.{step}.cycles")));
    assert_eq!(steps, [5, 5, 5, 9, 5].map(|cycles| 64 * cycles));
    // One walk per page, ended by the engine; none when the access is repeated.
    assert_eq!(stats.values["walk.aborted.count"], 64 + 1);
    assert!(stats.values["walk.count"] <= 1, "{} walks", stats.values["walk.count"]);
    assert_eq!(stats.values["fault.minor.count"], 1, "the page before the tables were full");
}

#[test]
fn without_a_ready_frame_the_kernel_is_asked_after_two_references() {
    let mut script = armed_script(64);
    (0..64).for_each(|page| script.store(0, BASE + page * PAGE));
    let config = mfoe(&[("entries", 16), ("period_cycles", 1 << 40)], &["engine.kernel_refs=off"]);
    let (simulation, stats) = run(&config, script.finish(), &[0]);
    assert_frames_conserved(&simulation, &[space(&simulation)]);
    assert_eq!((stat(&stats, "hits"), stat(&stats, "misses")), (16, 48));
    assert_eq!(stats.values["fault.minor.count"], 48 + 1);
    assert_eq!((stat(&stats, "refused.cycles"), stat(&stats, "refused.p95")), (48 * (2 + 2 * 4), 2 + 2 * 4));
}

/// Table 4 has the thread's throughputs: a thread slower than the handler's stages does not make the handler slower.
#[test]
fn the_background_thread_has_costs_of_its_own() {
    let run = |parameters: &[(&str, u64)]| {
        let mut script = armed_script(64);
        (0..64).for_each(|page| script.store(0, BASE + page * PAGE));
        pause(&mut script, 20_000_000);
        // Of all 16 entries the thread makes frames; those of the misses are the handler's.
        let all = [&[("entries", 16)], parameters].concat();
        let (_, stats) = run(&mfoe(&all, &["engine.kernel_refs=off"]), script.finish(), &[0]);
        assert_conserved(&stats);
        stats
    };
    let (usual, slow) = (run(&[]), run(&[("prepare_cycles", 1000), ("account_cycles", 300)]));
    let more = |name: &str| stat(&slow, name) - stat(&usual, name);
    for name in ["hits", "misses", "replaced", "first_filled", "accounted"] {
        assert_eq!(more(name), 0, "{name}");
    }
    let (hits, filled) = (stat(&slow, "replaced"), stat(&slow, "first_filled"));
    assert!(hits == 16 && filled >= 16 && stat(&slow, "misses") == 48, "{hits} replaced, {filled} filled");
    assert_eq!(more("replaced.cycles"), 1300 * hits);
    assert_eq!(more("first_filled.cycles"), 1000 * filled);
    for name in ["fault.handling.cycles", "fault.minor.count", "cycles.fault"] {
        assert_eq!(slow.values[name], usual.values[name], "{name}");
    }
}

/// Section 5.2.3: the engine serves as many faults as there are frames per period, at any addresses.
#[test]
fn the_hit_rate_follows_from_the_frames_per_period() {
    const ENTRIES: u64 = 64;
    let mut seen = Vec::new();
    for gap in [4_000, 20_000, 60_000] {
        let config = mfoe(&[("entries", ENTRIES), ("period_cycles", 1_000_000)], &["machine.cores=2"]);
        let stats = run_workload(&config, &format!("stride:size=32MiB,stride=4KiB,write=1,gap={gap}"));
        let (hits, faults) = (stat(&stats, "hits"), stat(&stats, "hits") + stat(&stats, "misses"));
        assert!(faults > 8000, "{faults} faults of 8192 pages found their entry armed");
        let rate = hits as f64 / faults as f64;
        // The interval between passes is the delay plus their own work.
        let passes = stat(&stats, "passes") as f64 / 4.0;
        let interval = stats.values["elapsed_cycles"] as f64 / faults as f64;
        let expected = (ENTRIES as f64 * interval * passes / stats.values["elapsed_cycles"] as f64).min(1.0);
        assert!((rate - expected).abs() < 0.02, "gap {gap}: {rate} of {expected}");
        let steps = ["header", "entry", "lock", "take", "map"].map(|step| stat(&stats, &format!("step.{step}.cycles")));
        assert_eq!(steps.iter().sum::<u64>(), stat(&stats, "mapped.cycles") + stat(&stats, "refused.cycles"));
        seen.push(rate);
    }
    assert!(seen[0] < 0.5 && seen[1] > 1.5 * seen[0] && seen[2] > 0.97, "{seen:?}");
}

#[test]
fn an_early_pass_and_more_threads_serve_more() {
    let hits = |parameters: &[(&str, u64)]| {
        let all = [&[("entries", 32), ("period_cycles", 2_000_000)], parameters].concat();
        stat(&run_workload(&mfoe(&all, &[]), "stride:size=16MiB,stride=4KiB,write=1,gap=10000"), "hits")
    };
    let plain = hits(&[]);
    assert!(hits(&[("wake_below", 16)]) > 2 * plain, "{plain} hits without");
    assert!(hits(&[("wake_below", 16), ("threads", 4)]) > 2 * plain, "{plain} hits without");
}

/// Choices of the kernel beyond the paper: as many frames as a CPU needed recently.
#[test]
fn a_table_that_adapts_holds_what_is_needed_and_all_if_that_is_too_little() {
    let ran = |least: u64, gap: u64| {
        let config = mfoe(
            &[("entries", 256), ("least_entries", least), ("period_cycles", 1_000_000)],
            &["machine.cores=2", FAST],
        );
        let stats = run_workload(&config, &format!("stride:size=16MiB,stride=4KiB,write=1,gap={gap}"));
        let shown = |name| stats.values.get(&format!("layer.native.fault_engine.{name}")).copied();
        let accounted = stat(&stats, "accounted") + stat(&stats, "accounted_by_calls");
        assert!(accounted + 2 * 256 >= stat(&stats, "hits"), "{accounted} accounted for");
        (stat(&stats, "hits"), shown("ready_frames").expect("it is shown"), shown("wanted_frames"))
    };
    // Four hardware threads, one of which faults: 16 pages per period.
    let (all, kept, none) = ran(0, 60_000);
    assert_eq!((kept > 900, none), (true, None), "{kept} frames");
    let (hits, kept, wanted) = ran(4, 60_000);
    assert!(hits + 100 > all, "{hits} of {all}");
    assert!(
        kept < 80 && wanted.is_some_and(|frames| (16..=64).contains(&(frames - 3 * 4))),
        "{kept} kept, {wanted:?} wanted"
    );
    // More than the maximum.
    let (all, ..) = ran(0, 2000);
    let (hits, _, wanted) = ran(4, 2000);
    assert_eq!(wanted, Some(256 + 3 * 4));
    assert!(hits < all && 10 * hits > 8 * all, "{hits} of {all}");
}

/// Section 4.2: frames come from a core's local node; once it is empty, from other nodes, or not at all.
#[test]
fn ready_frames_come_from_the_node_of_their_cpu() {
    const NODE_PAGES: u64 = (256 << 20) / PAGE;
    // The second node has room for the kernel and about a hundred pages.
    let few = (8 << 20) / PAGE;
    let run_on = |cpu: usize, policy: &str, second: u64| {
        let (first, policy) = (512 * 256 - second, format!("system.layers.native.fault_engine.numa={policy}"));
        let nodes = [first, second].map(|pages| format!(r#"{{"memory_bytes":{}}}"#, pages * PAGE)).join(",");
        let nodes = format!(r#"system.layers.native.frame_allocator={{"kind":"linux","nodes":[{nodes}]}}"#);
        let set = ["machine.memory_bytes=512MiB", "machine.cores=4", "machine.threads_per_core=1", &nodes, &policy];
        let mut script = armed_script(2048);
        for page in 0..2048 {
            script.store(0, BASE + page * PAGE);
            if page % 128 == 0 {
                pause(&mut script, 10_000_000);
            }
        }
        let (simulation, stats) = run(&mfoe(&[], &set), script.finish(), &[cpu]);
        assert_frames_conserved(&simulation, &[space(&simulation)]);
        let frames = crate::common::frames_from(&simulation, BASE, 2048);
        let local = |frame: &Option<u64>| (frame.expect("it is mapped") >= first) == (cpu >= 2);
        (frames.iter().filter(|frame| local(frame)).count(), stat(&stats, "hits"), stat(&stats, "no_frame"))
    };
    for cpu in [0, 2] {
        assert_eq!(run_on(cpu, "prefer-local", NODE_PAGES), (2048, 2048, 0), "CPU {cpu}");
    }
    // The engine's thread has a core of the first node to itself.
    let (local, hits, _) = run_on(2, "of-thread", NODE_PAGES);
    assert_eq!((local, hits), (0, 2048));
    let (local, hits, _) = run_on(2, "prefer-local", few);
    assert!(local < 2048 && hits == 2048, "{local} of {hits} hits are local");
    let (local, hits, failed) = run_on(2, "local-only", few);
    assert!(hits < 2048 && failed > 0 && local as u64 >= hits, "{hits} hits, {local} pages are local");
}

/// Section 4.7: when the last process ends, the engine is disabled and its frames are freed.
#[test]
fn frames_are_freed_without_served_processes_and_prepared_for_the_next() {
    let first = || {
        let mut script = armed_script(64);
        (0..64).for_each(|page| script.store(0, BASE + page * PAGE));
        script.event(0, EventKind::Exit { code: 0 });
        script.finish()
    };
    // Another process, without the engine, continues for several periods.
    let other = || {
        let mut script = script();
        pause(&mut script, 60_000_000);
        script.finish()
    };
    let ran = |unused: &str| {
        let unused = format!("system.layers.native.fault_engine.unused={unused}");
        let set = [r#"system.layers.native.fault_engine_for=["source.0"]"#, &unused, "machine.cores=2"];
        let (simulation, stats) = run_all(&mfoe(&[], &set), vec![(first(), &[0]), (other(), &[1])]);
        let live: Vec<SpaceId> = simulation.programs.inputs.iter().flat_map(|input| input.spaces()).collect();
        assert_frames_conserved(&simulation, &live);
        (stat(&stats, "hits"), stat(&stats, "ready_frames"), stat(&stats, "freed"))
    };
    assert_eq!(ran("keep"), (64, 4 * 256, 0), "of four hardware threads");
    assert_eq!(ran("free"), (64, 0, 4 * 256 - 64), "but for those that were taken");
    // One process after the other: the frames are freed between them, and ready when the second needs them.
    let mut script = script();
    for child in 1..3 {
        script.event(0, EventKind::Fork { child: pagelab_trace::ProcessIx(child) });
        let thread = script.thread(child);
        script.mmap(thread, BASE, 32 * PAGE);
        pause(&mut script, 20_000_000);
        (0..32).for_each(|page| script.store(thread, BASE + page * PAGE));
        script.event(thread, EventKind::Exit { code: 0 });
        pause(&mut script, 20_000_000);
    }
    let (simulation, stats) =
        run(&mfoe(&[], &["system.layers.native.fault_engine.unused=free"]), script.finish(), &[0]);
    assert_frames_conserved(&simulation, &simulation.programs.inputs[0].spaces().collect::<Vec<_>>());
    assert_eq!(stat(&stats, "hits"), 64);
}

#[test]
fn the_kernel_handles_processes_that_have_not_enabled_the_engine() {
    let pages = || {
        let mut script = armed_script(64);
        (0..64).for_each(|page| script.store(0, BASE + page * PAGE));
        script.finish()
    };
    for (form, name) in [("hardware", "source.0"), ("software", "source.1")] {
        let form = format!("system.layers.native.fault_engine.form={form}");
        let named = format!(r#"system.layers.native.fault_engine_for=["{name}"]"#);
        let (_, stats) = run_all(&mfoe(&[], &[&form, &named, FAST]), vec![(pages(), &[0]), (pages(), &[1])]);
        assert_eq!((stat(&stats, "hits"), stat(&stats, "armed")), (64, 64));
    }
}

#[test]
fn the_software_form_allocates_and_zeroes_nothing() {
    let mut script = armed_script(64);
    (0..64).for_each(|page| script.store(0, BASE + page * PAGE));
    let set = ["system.layers.native.fault_engine.form=software"];
    let (simulation, stats) = run(&mfoe(&[], &set), script.finish(), &[0]);
    assert_conserved(&stats);
    assert_frames_conserved(&simulation, &[space(&simulation)]);
    assert_eq!((stat(&stats, "hits"), stats.values["fault.minor.count"]), (64, 64 + 1));
    let (preset, faults) = (&config("radix", &[]).kernel.fault, stats.values["fault.minor.count"]);
    for (stage, cycles) in [("charge", preset.charge), ("rmap", preset.rmap), ("lru", preset.lru)] {
        let spent = stats.values[&format!("fault.stage.{stage}.cycles")];
        assert!(
            spent < 10 * cycles.cost().cycles.0.max(100),
            "{stage}: {spent} cycles are of more than the first fault"
        );
    }
    assert!(
        stats.values["fault.stage.install.cycles"] > faults * preset.install.cost().cycles.0,
        "each writes its PTE"
    );
    assert!(!stats.values.contains_key("layer.native.fault_engine.mapped.cycles"), "no walker is asked");
}

#[test]
fn a_ring_replaces_allocations_and_the_thread_fills_the_lists() {
    let swap = r#"kernel.swap={"size_bytes":"64MiB","read_cycles":250000,"write_cycles":60000,"queue_depth":4}"#;
    let program = |pages: u64| {
        let mut script = script();
        // Nothing is armed, and the script does not wait for it.
        script.mmap(0, BASE, pages * PAGE);
        (0..pages).for_each(|page| script.store(0, BASE + page * PAGE));
        pause(&mut script, 20_000_000);
        script.finish()
    };
    let kept = |simulation: &Simulation| {
        let reclaim = simulation.kernels.os.layers[0].memory.reclaim.as_ref().expect("there is a swap area");
        (reclaim.listed(LruPageKind::Anonymous), reclaim.used_frames())
    };
    let (simulation, stats) = run(&config("mfoe-software-traced", &[swap]), program(64), &[0]);
    assert_conserved(&stats);
    assert_frames_conserved(&simulation, &[space(&simulation)]);
    assert_eq!([stat(&stats, "hits"), stat(&stats, "accounted"), stat(&stats, "arming.runs")], [64, 64, 0]);
    let (plain, _) = run(&config("radix", &[swap]), program(64), &[0]);
    assert_eq!(kept(&simulation), kept(&plain), "lists and charges are those of the kernel");
    let preset = config("radix", &[]).kernel.fault;
    let stage = |stats: &Statistics, name: &str| stats.values[&format!("fault.stage.{name}.instructions")];
    let (charge, rmap) = (64 * u64::from(preset.charge.instructions), 64 * u64::from(preset.rmap.instructions));
    let all = ["allocation", "zeroing", "charge", "rmap", "lru"].map(|name| stage(&stats, name));
    assert_eq!(all, [64 * 163, 0, charge, rmap, 64 * 26]);
    // With fewer frames than pages, the fault itself allocates, zeroes and lists the others.
    let few = ["system.layers.native.fault_engine.entries=16"];
    let (simulation, stats) = run(&config("mfoe-software-traced", &few), program(64), &[0]);
    assert_frames_conserved(&simulation, &[space(&simulation)]);
    let (hits, preset) = (stat(&stats, "hits"), config("radix", &[]).kernel.fault);
    assert!((16..64).contains(&hits), "{hits}");
    let allocated = hits * 163 + (64 - hits) * u64::from(preset.allocation.instructions);
    assert_eq!(stage(&stats, "allocation"), allocated);
    assert_eq!(stage(&stats, "lru"), hits * 26 + (64 - hits) * u64::from(preset.lru.instructions));
}

#[test]
fn a_child_is_not_armed_and_its_parent_still_is() {
    let mut script = armed_script(16);
    script.store(0, BASE);
    script.event(0, EventKind::Fork { child: pagelab_trace::ProcessIx(1) });
    let child = script.thread(1);
    (0..4).for_each(|page| script.store(child, BASE + page * PAGE));
    (4..8).for_each(|page| script.store(0, BASE + page * PAGE));
    let (simulation, stats) = run(&mfoe(&[], &[]), script.finish(), &[0]);
    let spaces: Vec<SpaceId> = simulation.programs.inputs[0].spaces().collect();
    assert_frames_conserved(&simulation, &spaces);
    assert_eq!(stat(&stats, "hits"), 1 + 4, "the parent's");
    // The child copies the mapped page, and touches three unmapped ones.
    assert_eq!((stats.values["fault.copy.count"], stats.values["fault.minor.count"]), (1, 1 + 1 + 3));
    assert_eq!(spaces.iter().map(|&space| armed(&simulation, space, 16).0).collect::<Vec<_>>(), [11, 0]);
}

#[test]
fn permissions_of_armed_entries_follow_the_mapping() {
    let protect = |prot| EventKind::Mprotect { addr: BASE, len: 8 * PAGE, prot };
    let read = Protection { read: true, ..Protection::default() };
    for (prot, expected) in
        [(read, (8, Some(false))), (Protection::default(), (0, None)), (Protection::READ_WRITE, (8, Some(true)))]
    {
        let mut script = armed_script(8);
        script.event(0, protect(prot));
        pause(&mut script, 1_000_000);
        let (simulation, _) = run(&mfoe(&[], &[]), script.finish(), &[0]);
        assert_eq!(armed(&simulation, space(&simulation), 8), expected, "{prot:?}");
    }
    // Memory without permissions, as allocators reserve it, is armed when it becomes accessible.
    let mut script = script();
    script.event(0, crate::common::mmap(BASE, 8 * PAGE, Protection::default()));
    pause(&mut script, 1_000_000);
    script.event(0, protect(Protection::READ_WRITE));
    pause(&mut script, 1_000_000);
    script.load(0, BASE);
    let (simulation, stats) = run(&mfoe(&[], &[]), script.finish(), &[0]);
    assert_eq!(armed(&simulation, space(&simulation), 8), (7, Some(true)));
    assert_eq!((stat(&stats, "hits"), stats.values["fault.zero_page.count"]), (1, 1), "a load gets a frame of its own");
}

#[test]
fn entries_move_as_armed_only_while_their_process_is_served() {
    const ELSEWHERE: u64 = BASE + 1024 * PAGE;
    let pages = |start| VaRange { start: VirtAddr(start), end: VirtAddr(start + 16 * PAGE) };
    for stopped in [false, true] {
        let mut script = armed_script(16);
        script.mmap(0, ELSEWHERE, 16 * PAGE);
        let (mut simulation, _) = run(&mfoe(&[], &[]), script.finish(), &[0]);
        let SpaceId { layer, index } = space(&simulation);
        let layer = &mut simulation.kernels.os.layers[layer];
        layer.drop_words(KernelContext::BOOT, index, pages(ELSEWHERE));
        let Some(EngineState::Mfoe(mfoe)) = &mut layer.mechanisms.engine else { panic!("the layer has an engine") };
        if stopped {
            assert!(mfoe.stop(ArmingJob { space: index, range: VaRange::ALL, arm: false }));
        }
        layer
            .move_words(KernelContext::BOOT, index, pages(BASE), VirtAddr(ELSEWHERE))
            .unwrap_or_else(|e| panic!("{e}"));
        let there = layer.words(index, pages(ELSEWHERE)).len();
        assert_eq!((layer.words(index, pages(BASE)).len(), there), (0, if stopped { 0 } else { 16 }));
    }
}

#[test]
fn an_exit_accounts_only_for_its_own_pages() {
    let program = |pages: u64, exits: bool| {
        let mut script = armed_script(64);
        (0..pages).for_each(|page| script.store(0, BASE + page * PAGE));
        if exits {
            script.event(0, EventKind::Exit { code: 0 });
        } else {
            pause(&mut script, 100_000);
        }
        script.finish()
    };
    let config = mfoe(&[("period_cycles", 1 << 40)], &[]);
    let (_, nothing) = run_all(&config, vec![(program(0, true), &[0]), (program(20, false), &[1])]);
    let (simulation, stats) = run_all(&config, vec![(program(10, true), &[0]), (program(20, false), &[1])]);
    let costs = &config.kernel.fault;
    let each = [costs.charge, costs.rmap, costs.lru].map(|stage| stage.cost().cycles.0).iter().sum::<u64>();
    assert!(each > 0);
    let spent = |stats: &Statistics| stats.values["cycles.kernel"];
    assert_eq!(spent(&stats) - spent(&nothing), 10 * each, "the call takes what a handler would have");
    // Unset cycles are computed by the core model.
    let core = ["charge", "rmap", "lru"].map(|stage| format!("kernel.fault.{stage}.cycles=core"));
    let set: Vec<&str> = core.iter().map(String::as_str).chain(["machine.core.cycles_per_instruction=0.5"]).collect();
    let of_core = mfoe(&[("period_cycles", 1 << 40)], &set);
    let (_, nothing) = run_all(&of_core, vec![(program(0, true), &[0]), (program(20, false), &[1])]);
    let (_, timed) = run_all(&of_core, vec![(program(10, true), &[0]), (program(20, false), &[1])]);
    let each = [costs.charge, costs.rmap, costs.lru].map(|stage| u64::from(stage.instructions)).iter().sum::<u64>();
    assert_eq!(spent(&timed) - spent(&nothing), 10 * each / 2);
    assert_eq!((stat(&stats, "hits"), stat(&stats, "accounted_by_calls"), stat(&stats, "accounted")), (30, 10, 0));
    let live: Vec<SpaceId> = simulation.programs.inputs.iter().flat_map(|input| input.spaces()).collect();
    assert_eq!(live.len(), 1);
    assert_frames_conserved(&simulation, &live);
}

#[test]
fn after_a_pass_lists_and_charges_equal_the_kernels() {
    let swap = r#"kernel.swap={"size_bytes":"64MiB","read_cycles":250000,"write_cycles":60000,"queue_depth":4}"#;
    let program = || {
        let mut script = armed_script(64);
        (0..64).for_each(|page| script.store(0, BASE + page * PAGE));
        pause(&mut script, 20_000_000);
        script.finish()
    };
    let kept = |simulation: &Simulation| {
        let reclaim = simulation.kernels.os.layers[0].memory.reclaim.as_ref().expect("there is a swap area");
        (reclaim.listed(LruPageKind::Anonymous), reclaim.used_frames())
    };
    let (with, stats) = run(&mfoe(&[], &[swap]), program(), &[0]);
    let (without, _) = run(&config("radix", &[swap]), program(), &[0]);
    assert_eq!((stat(&stats, "hits"), stat(&stats, "accounted")), (64, 64));
    assert_eq!(kept(&with), kept(&without));
}

#[test]
fn the_kernel_handles_a_process_beyond_its_share_of_memory() {
    let swap = r#"kernel.swap={"size_bytes":"64MiB","read_cycles":250000,"write_cycles":60000,"queue_depth":4}"#;
    let set = [swap, "kernel.cgroup_limit_bytes=4MiB", FAST];
    let program = "stride:size=3MiB,stride=4KiB,write=1,gap=100000";
    let parameters = [("period_cycles", 500_000), ("limit_percent", 50)];
    let stats = run_workload(&mfoe(&parameters, &set), program);
    assert_eq!(stat(&stats, "stopped"), 1);
    let (hits, disarmed) = (stat(&stats, "hits"), stat(&stats, "disarmed"));
    assert!((512..700).contains(&hits), "{hits} hits: half of 1024 pages, and those until the thread has come by");
    assert!(disarmed > 0 && stats.values["fault.minor.count"] > 60, "{disarmed} entries, and faults for them");
    let within = run_workload(&mfoe(&[("period_cycles", 500_000)], &set), program);
    assert_eq!(stat(&within, "stopped"), 0);
}

/// Section 4.5: each CPU takes frames from its own table, and is starved or not by itself.
#[test]
fn hits_and_misses_are_counted_by_cpu() {
    let program = |pages: u64| {
        let mut script = armed_script(64);
        (0..pages).for_each(|page| script.store(0, BASE + page * PAGE));
        script.finish()
    };
    let config = mfoe(&[("entries", 16), ("period_cycles", 1 << 40)], &["machine.cores=2"]);
    let (_, stats) = run_all(&config, vec![(program(10), &[0]), (program(40), &[2])]);
    let counts = |name: &str| (0..4).map(|cpu| stat(&stats, &format!("cpu.{cpu}.{name}"))).collect::<Vec<_>>();
    assert_eq!((counts("hits"), counts("misses")), (vec![10, 0, 16, 0], vec![0, 0, 24, 0]));
    assert_eq!((stat(&stats, "hits"), stat(&stats, "misses")), (26, 24));
}

/// Section 4.2: a frame of another node takes longer to reach, where nodes have latencies.
#[test]
fn a_remote_frame_costs_the_latency_of_its_node() {
    const PAGES: u64 = 512;
    let stalls = |numa: &str| {
        let node = r#"{"size_bytes":"4GiB","latency_cycles":200,"remote_latency_cycles":500}"#;
        let nodes = format!("machine.memory.nodes=[{node},{node}]");
        let numa = format!("system.layers.native.fault_engine.numa={numa}");
        let entries = "system.layers.native.fault_engine.entries=1024";
        let set = ["machine.cores=4", "machine.threads_per_core=1", "engine.kernel_refs=off", &nodes, &numa, entries];
        let mut script = armed_script(PAGES);
        (0..PAGES).for_each(|page| script.store(0, BASE + page * PAGE));
        // The engine's thread has a core of the first node to itself.
        let (_, stats) = run(&mfoe(&[], &set), script.finish(), &[2]);
        assert_eq!(stat(&stats, "hits"), PAGES);
        stats.values["cycles.data_stall"]
    };
    assert_eq!(stalls("of-thread") - stalls("prefer-local"), PAGES * (500 - 200));
}

/// With `sleep`, passes and periods take turns. With `at-once`, a pass begins in each period, or nobody sleeps.
#[test]
fn a_late_pass_sleeps_or_goes_on() {
    let run = |late_pass: &str, period: u64| {
        let late_pass = format!("system.layers.native.fault_engine.late_pass={late_pass}");
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 1024 * PAGE);
        for n in 0..1024 {
            script.store(0, BASE + n * PAGE);
            pause(&mut script, 20_000);
        }
        let (_, stats) =
            run(&mfoe(&[("period_cycles", period), ("entries", 16)], &[&late_pass]), script.finish(), &[0]);
        assert_conserved(&stats);
        let value = |name: &str| stats.values[name] as f64;
        (value("kthread.runs"), value("kthread.cycles"), value("elapsed_cycles"))
    };
    let near = |found: f64, expected: f64| (found / expected - 1.0).abs() < 0.02;
    let period = 100_000;
    let (runs, busy, elapsed) = run("sleep", period);
    assert!(near(runs * period as f64 + busy, elapsed), "{runs} passes, {busy} of {elapsed} cycles");
    let (runs, busy, elapsed) = run("at-once", period);
    assert!(busy > 0.0 && near(runs * period as f64, elapsed), "{runs} passes, {busy} of {elapsed} cycles");
    let (runs, busy, elapsed) = run("at-once", 1);
    assert!(runs > 100.0 && near(busy, elapsed), "{runs} passes, {busy} of {elapsed} cycles");
}
