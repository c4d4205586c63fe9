//! For all programs on all systems: translations are correct, cycles and frames are conserved, and results do not
//! depend on what must not matter.

mod systems;

use crate::common::programs::{
    Area, Cuts, Op, PLACES, Program, TOO_LARGE, check_once, count_checked, fits, live_spaces, print_checked, program,
};
use crate::common::{
    assert_all_is_on_an_account, assert_clocks_conserved, assert_conserved, assert_frames_conserved, config, run,
    run_beside, try_beside,
};
use pagelab_engine::base::addr::{FRAME_BYTES, PageSize};
use pagelab_engine::base::error::EngineError;
use pagelab_engine::programs::arrivals::{ArrivalRate, Spacing};
use pagelab_engine::programs::load::{ArrivalStream, BackgroundLoad, CoRunner, Open};
use pagelab_trace::{AccessKind, MapFlags, Protection, cases};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use systems::{SWAP, SYSTEMS, System};

/// CPUs 2n and 2n + 1 share a core.
const PLACEMENTS: &[&[usize]] = &[&[0], &[0, 1], &[0, 2], &[0, 2, 4], &[0, 1, 2]];

const SCHEDULERS: [&str; 3] = [
    r#"kernel.scheduler={"kind":"recorded"}"#,
    r#"kernel.scheduler={"kind":"eevdf","tick_cycles":0}"#,
    r#"kernel.scheduler={"kind":"cfs","tick_cycles":500,"latency_cycles":6000,"wakeup_granularity_cycles":1000}"#,
];

/// Each program has one of the schedulers, with slices of a few accesses.
fn scheduler_of(program: &Program) -> &'static str {
    SCHEDULERS[format!("{program:?}").len() % SCHEDULERS.len()]
}

/// The settings of a program's runs on a system.
fn settings<'a>(program: &Program, set: &[&'a str]) -> Vec<&'a str> {
    let small = ["machine.memory_bytes=1GiB", "engine.sync_quantum_cycles=0", "kernel.quantum_cycles=3000"];
    [&small[..], &[scheduler_of(program)], set].concat()
}

fn check(program: &Program, (system, set): System, cpus: &[usize]) {
    let all = settings(program, set);
    let with = |more: &[&str]| config(system, &[&all[..], more].concat());
    let stats = check_once(program, &with(&[]), cpus);
    // Repeated, without look-ahead and with the general code for all accesses.
    let (_, again) =
        run(&with(&["engine.lookahead=off", "engine.fast_path=off"]), program.source(Cuts::AsWritten), cpus);
    assert_eq!(stats.values, again.values, "repeated without look-ahead and the fast path");
    // The source's batch boundaries do not matter.
    let (_, everywhere) = run(&with(&[]), program.source(Cuts::Everywhere), cpus);
    assert_eq!(stats.values, everywhere.values, "cut everywhere");
    let (_, never) = run(&with(&[]), program.source(Cuts::Never), &cpus[..1]);
    // With a window of one access, no thread can overtake one that waits for a device, or for its turn.
    let (simulation, narrow) =
        run(&with(&["engine.input_window_accesses=1"]), program.source(Cuts::Everywhere), &cpus[..1]);
    let recorded =
        scheduler_of(program) == SCHEDULERS[0] || simulation.programs.inputs.iter().all(|input| !input.threads_share());
    if recorded && simulation.kernels.os.layers.iter().all(|layer| layer.memory.reclaim.is_none()) {
        assert_eq!(never.values, narrow.values, "a window of one access");
    }
    assert_eq!(never.values["accesses"], narrow.values["accesses"], "every access is made, in whatever window");
    if cpus.len() == 1 {
        assert_eq!(stats.values, never.values, "not cut");
    }
    assert_eq!(stats.values["accesses"], never.values["accesses"], "every access is made, on however many CPUs");
}

#[test]
fn any_program_on_any_system_is_translated_right_and_conserves_cycles_and_frames() {
    for_programs(cases(400), check);
}

/// About two million operations of programs that fork, exec, exit and run out of memory, with pages of all sizes.
#[test]
#[ignore = "takes minutes: make test-full"]
fn millions_of_operations_conserve_frames() {
    for_programs(cases(18_000), |program, (system, set), cpus| {
        let all = [&["machine.memory_bytes=1GiB", "engine.sync_quantum_cycles=0"], set].concat();
        check_once(program, &config(system, &all), cpus);
    });
}

fn for_programs(cases: u32, check: impl Fn(&Program, System, &[usize])) {
    let rejects = 100 + cases / 100;
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 300,
        max_global_rejects: rejects,
        ..Config::default()
    });
    let system = (0..SYSTEMS.len()).prop_map(|n| SYSTEMS[n]);
    let cpus = (0..PLACEMENTS.len()).prop_map(|n| PLACEMENTS[n]);
    let result = runner.run(&(program(), system, cpus), |(program, system, cpus)| {
        let (name, set) = system;
        let all = settings(&program, set);
        let narrow = config(name, &[&all[..], &["engine.input_window_accesses=1"]].concat());
        let config = config(name, &all);
        if !fits(&program, &config, cpus) || ![&config, &narrow].iter().all(|one| fits(&program, one, &cpus[..1])) {
            return Err(TestCaseError::reject(TOO_LARGE));
        }
        check(&program, system, cpus);
        Ok(())
    });
    print_checked();
    result.unwrap_or_else(|e| panic!("{e}"));
}

/// Why a program that does not fit several times is rejected.
const TOO_MANY: &str = "memory has no room for five of it at once";

/// Runs a program in parallel with itself: as a restarting co-runner, and as three arrivals. Errors: together they need
/// more memory than a deliberately small system has.
fn check_load(program: &Program, (system, set): System, cpus: &[usize]) -> Result<(), TestCaseError> {
    let config = config(system, &settings(program, set));
    let open = || -> Open {
        let program = program.clone();
        std::sync::Arc::new(move || Ok(program.source(Cuts::AsWritten)))
    };
    let pace = ArrivalRate { per_second: 5000.0, count: Some(3), spacing: Spacing::Poisson };
    let beside = || BackgroundLoad {
        co_runners: vec![CoRunner { open: open(), cpus: cpus.to_vec(), memory_limit: None }],
        arrivals: vec![ArrivalStream { open: open(), cpus: cpus.to_vec(), pace, memory_limit: None }],
    };
    let ended = try_beside(&config, vec![(program.source(Cuts::AsWritten), cpus)], beside());
    let (simulation, stats) = match ended {
        Err(EngineError::OutOfMemory { what })
            if config.machine.memory_bytes.0 < 1 << 30 || what.contains("cgroup") =>
        {
            return Err(TestCaseError::reject(TOO_MANY));
        }
        ended => ended.unwrap_or_else(|e| panic!("{e}")),
    };
    assert_conserved(&stats);
    assert_clocks_conserved(&simulation);
    assert_all_is_on_an_account(&stats);
    let (_, again) = run_beside(&config, vec![(program.source(Cuts::AsWritten), cpus)], beside());
    assert_eq!(stats.values, again.values, "repeated");
    // Without the co-runner no process is cut short.
    let arrivals = BackgroundLoad { co_runners: Vec::new(), ..beside() };
    let (simulation, stats) = run_beside(&config, vec![(program.source(Cuts::AsWritten), cpus)], arrivals);
    assert_all_is_on_an_account(&stats);
    assert_frames_conserved(&simulation, &live_spaces(&simulation));
    count_checked(program);
    Ok(())
}

#[test]
fn two_copies_of_any_program_translate_right_and_conserve_cycles_and_frames() {
    let mut runner = TestRunner::new(Config {
        cases: cases(24),
        failure_persistence: None,
        max_shrink_iters: 300,
        max_global_rejects: 2 + cases(24) / 24,
        ..Config::default()
    });
    // Without slow ones: programs that thrash, and large pages that are zeroed again and again.
    let quick = |(name, set): &System| !set.contains(&SWAP) && !name.ends_with("-2m") && !name.ends_with("-1g");
    let systems: Vec<System> = SYSTEMS.iter().copied().filter(quick).collect();
    let system = (0..systems.len()).prop_map(move |n| systems[n]);
    let cpus = (0..PLACEMENTS.len()).prop_map(|n| PLACEMENTS[n]);
    let result = runner.run(&(program(), system, cpus), |(program, system, cpus)| check_load(&program, system, cpus));
    print_checked();
    result.unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn pages_of_a_gigabyte_are_split_moved_and_freed() {
    let gigabyte = PageSize::Size1G.bytes();
    let base = PLACES[2];
    let page = |n: u64| base + n * FRAME_BYTES;
    let area = |addr, len| Area { addr, len };
    let access = |addr| Op::Access { kind: AccessKind::Store, addr, bytes: 8, pc: 0, by_kernel: false };
    let read_only = Protection { read: true, ..Protection::default() };
    let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS;
    let ops = [
        Op::Map { area: area(base, gigabyte), prot: Protection::READ_WRITE, flags },
        access(base),
        access(page(100_000)),
        Op::Protect { area: area(page(5), 8 * FRAME_BYTES), prot: read_only },
        access(page(4)),
        access(page(5)),
        Op::Unmap(area(page(1000), 700 * FRAME_BYTES)),
        access(page(999)),
        access(page(1000)),
        Op::Move { from: area(page(2048), 1024 * FRAME_BYTES), to: area(base + 2 * gigabyte, 1024 * FRAME_BYTES) },
        access(base + 2 * gigabyte),
        Op::Move { from: area(page(4096), 512 * FRAME_BYTES), to: area(base + 3 * gigabyte + 4096, 512 * FRAME_BYTES) },
        access(base + 3 * gigabyte + 4096),
    ];
    for ends in [false, true] {
        let program = Program { ops: ops.iter().map(|op| (0, op.clone())).collect(), ends };
        let stats = check_once(&program, &config("radix-1g", &["machine.memory_bytes=3GiB"]), &[0]);
        assert_eq!(stats.values["layer.native.pages.1G"], 1);
        assert_eq!(stats.values["accesses.refused"], 2, "the store to a read-only page and that to an unmapped one");
    }
}
