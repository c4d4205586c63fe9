//! Whatever programs do, and on whatever system: translations are right, cycles and frames are conserved, and what must
//! not matter does not.

mod common;
#[path = "properties/systems.rs"]
mod systems;

use common::{
    ScriptWriter, assert_all_is_on_an_account, assert_conserved, assert_frames_conserved, config, run, run_beside,
};
use pagelab_cases::cases;
use pagelab_engine::base::addr::{FRAME_BYTES, PageSize};
use pagelab_engine::base::error::EngineError;
use pagelab_engine::base::ids::SpaceId;
use pagelab_engine::kernel::layer::Layer;
use pagelab_engine::kernel::reclaim::Kind;
use pagelab_engine::machine::simulation::{Placed, Simulation};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_engine::programs::arrivals::{Pace, Spacing};
use pagelab_engine::programs::load::{ArrivalStream, Beside, CoRunner, Open};
use pagelab_trace::{Access, AccessKind, EventKind, MapFlags, ProcessIx, Protection, Source};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use systems::{SWAP, SYSTEMS, System};

/// CPUs 2n and 2n + 1 share a core.
const PLACEMENTS: &[&[usize]] = &[&[0], &[0, 1], &[0, 2], &[0, 2, 4], &[0, 1, 2]];

/// Where programs have memory. The third begins where a page of 1 GiB could, the others where pages of 2 MiB could.
const PLACES: [u64; 5] = [0x7f00_0000_0000, 0x7f00_0040_0000, 0x6000_4000_0000, 0x40_0000, 0x7f7f_ffc0_0000];

#[derive(Clone, Copy, Debug)]
struct Area {
    addr: u64,
    len: u64,
}

#[derive(Clone, Debug)]
enum Op {
    Access {
        kind: AccessKind,
        addr: u64,
        bytes: u16,
        pc: u64,
        by_kernel: bool,
    },
    Map {
        area: Area,
        prot: Protection,
        flags: u32,
    },
    Unmap(Area),
    Move {
        from: Area,
        to: Area,
    },
    Protect {
        area: Area,
        prot: Protection,
    },
    Advise {
        area: Area,
        advice: u32,
    },
    Heap {
        end: u64,
    },
    Thread,
    Fork,
    Exec,
    Exit,
    /// The batch ends.
    Cut,
}

fn page() -> impl Strategy<Value = u64> {
    let offset = prop_oneof![4 => 0_u64..12, 2 => 0_u64..1100, 1 => (0_u64..3).prop_map(|n| n * 512)];
    (0..PLACES.len(), offset).prop_map(|(place, page)| PLACES[place] + page * FRAME_BYTES)
}

fn area() -> impl Strategy<Value = Area> {
    let pages = prop_oneof![6 => 1_u64..10, 2 => 1_u64..1200, 2 => Just(512_u64), 1 => Just(1024_u64)];
    (page(), pages).prop_map(|(addr, pages)| Area { addr, len: pages * FRAME_BYTES })
}

fn protection() -> impl Strategy<Value = Protection> {
    let of = Protection::from_bits;
    prop_oneof![6 => Just(of(3)), 2 => Just(of(1)), 1 => Just(of(0)), 1 => Just(of(5)), 1 => Just(of(7)), 1 => Just(of(2))]
}

fn access() -> impl Strategy<Value = Op> {
    use AccessKind::{Fetch, Load, Modify, Store};
    let kind = prop_oneof![4 => Just(Load), 4 => Just(Store), 1 => Just(Modify), 1 => Just(Fetch)];
    let offset = prop_oneof![4 => 0_u64..256, 2 => 0_u64..4096, 2 => 4080_u64..4096];
    let bytes = prop_oneof![6 => Just(8_u16), 2 => 1_u16..200, 1 => Just(4096_u16)];
    let pc = prop_oneof![5 => Just(0), 2 => Just(PLACES[3]), 1 => page()];
    (kind, page(), offset, bytes, pc, prop::bool::weighted(0.1)).prop_map(
        |(kind, page, offset, bytes, pc, by_kernel)| Op::Access { kind, addr: page + offset, bytes, pc, by_kernel },
    )
}

fn op() -> impl Strategy<Value = Op> {
    let flags = prop_oneof![
        8 => Just(MapFlags::PRIVATE | MapFlags::ANONYMOUS),
        1 => Just(MapFlags::SHARED | MapFlags::ANONYMOUS),
        1 => Just(MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::WRITTEN_BEFORE),
        1 => Just(MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::POPULATE),
        2 => Just(MapFlags::PRIVATE),
        1 => Just(MapFlags::SHARED),
        1 => Just(MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::GROWSDOWN),
        1 => Just(MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::HUGETLB),
    ];
    let advice = prop_oneof![4 => Just(4_u32), 1 => 0_u32..26];
    prop_oneof![
        60 => access(),
        9 => (area(), protection(), flags).prop_map(|(area, prot, flags)| Op::Map { area, prot, flags }),
        4 => area().prop_map(Op::Unmap),
        4 => (area(), area(), any::<bool>()).prop_map(|(from, to, same)| {
            Op::Move { from, to: if same { Area { addr: to.addr, len: from.len } } else { to } }
        }),
        4 => (area(), protection()).prop_map(|(area, prot)| Op::Protect { area, prot }),
        4 => (area(), advice).prop_map(|(area, advice)| Op::Advise { area, advice }),
        2 => (0_u64..200_000).prop_map(|bytes| Op::Heap { end: HEAP + bytes }),
        2 => Just(Op::Thread),
        1 => Just(Op::Fork),
        1 => Just(Op::Exec),
        1 => Just(Op::Exit),
        4 => Just(Op::Cut),
    ]
}

const HEAP: u64 = 0x5555_0000_0000;

/// What a case does: each operation is of one of the live threads.
#[derive(Clone, Debug)]
struct Program {
    ops: Vec<(usize, Op)>,
    /// All processes exit in the end.
    ends: bool,
}

fn program() -> impl Strategy<Value = Program> {
    (prop::collection::vec((0_usize..12, op()), 100..140), any::<bool>()).prop_map(|(ops, ends)| Program { ops, ends })
}

/// Where batches end.
#[derive(Clone, Copy)]
enum Cuts {
    AsWritten,
    Never,
    Everywhere,
}

const MOST_THREADS: u32 = 8;

impl Program {
    fn source(&self, cuts: Cuts) -> Box<dyn Source> {
        let mut script = ScriptWriter::new();
        // Live threads with their processes.
        let mut live = vec![(0_u32, 0_u32)];
        let (mut threads, mut processes) = (1, 1);
        for place in PLACES {
            script.mmap(0, place, 16 * FRAME_BYTES);
        }
        for (chosen, op) in &self.ops {
            if live.is_empty() {
                break;
            }
            let (thread, process) = live[chosen % live.len()];
            let kind = match op.clone() {
                Op::Access { kind, addr, bytes, pc, by_kernel } => {
                    script.access_of(thread, Access { pc, by_kernel, ..Access::new(kind, addr, bytes) });
                    None
                }
                Op::Map { area, prot, flags } => Some(EventKind::Mmap {
                    addr: area.addr,
                    len: area.len,
                    prot,
                    flags: MapFlags(flags),
                    file: (flags & MapFlags::ANONYMOUS == 0)
                        .then(|| if area.len & 0x1000 == 0 { "a" } else { "b" }.into()),
                    file_offset: area.len % 0x7000,
                }),
                Op::Unmap(area) => Some(EventKind::Munmap { addr: area.addr, len: area.len }),
                Op::Move { from, to } => Some(EventKind::Mremap {
                    old_addr: from.addr,
                    old_len: from.len,
                    new_addr: to.addr,
                    new_len: to.len,
                }),
                Op::Protect { area, prot } => Some(EventKind::Mprotect { addr: area.addr, len: area.len, prot }),
                Op::Advise { area, advice } => Some(EventKind::Madvise { addr: area.addr, len: area.len, advice }),
                Op::Heap { end } => Some(EventKind::Brk { start: HEAP, end }),
                Op::Thread | Op::Fork if threads == MOST_THREADS => None,
                Op::Thread => {
                    live.push((script.thread(process), process));
                    threads += 1;
                    None
                }
                Op::Fork => {
                    script.event(thread, EventKind::Fork { child: ProcessIx(processes) });
                    live.push((script.thread(processes), processes));
                    (threads, processes) = (threads + 1, processes + 1);
                    None
                }
                Op::Exec => {
                    live.retain(|&(other, of)| of != process || other == thread);
                    script.event(thread, EventKind::Exec { path: "program".into() });
                    Some(common::mmap(PLACES[0], 64 * FRAME_BYTES, Protection::READ_WRITE))
                }
                // The last process goes on, or half of the programs would be short.
                Op::Exit if live.iter().all(|&(_, of)| of == process) => None,
                Op::Exit => {
                    live.retain(|&(_, of)| of != process);
                    Some(EventKind::Exit { code: 0 })
                }
                Op::Cut => {
                    if matches!(cuts, Cuts::AsWritten) {
                        script.cut();
                    }
                    None
                }
            };
            if let Some(kind) = kind {
                script.event(thread, kind);
            }
            if matches!(cuts, Cuts::Everywhere) {
                script.cut();
            }
        }
        while self.ends && !live.is_empty() {
            let (thread, process) = live[0];
            live.retain(|&(_, of)| of != process);
            script.event(thread, EventKind::Exit { code: 0 });
        }
        script.finish()
    }
}

/// Spaces that exist besides the kernels' own: of processes, and of guests.
fn live_spaces(simulation: &Simulation) -> Vec<SpaceId> {
    let processes = simulation.inputs.iter().flat_map(|input| input.spaces());
    processes.chain(simulation.os.layers.iter().filter_map(|layer| layer.host)).collect()
}

/// Frames of each layer that are free, hold files, which no exit takes from the page cache, or that khugepaged has.
fn free_frames(simulation: &Simulation) -> Vec<u64> {
    let of = |layer: &Layer| layer.free_frame_count() + layer.pages.cached_frames() + layer.collapse.held_frames;
    simulation.os.layers.iter().map(of).collect()
}

/// Runs a program as it is written and checks what must be conserved.
fn check_once(program: &Program, config: &pagelab_engine::config::Config, cpus: &[usize]) -> Statistics {
    let (simulation, stats) = run(config, program.source(Cuts::AsWritten), cpus);
    assert_conserved(&stats);
    assert_frames_conserved(&simulation, &live_spaces(&simulation));
    if program.ends {
        let mut nothing = ScriptWriter::new();
        nothing.event(0, EventKind::Exit { code: 0 });
        let (empty, _) = run(config, nothing.finish(), cpus);
        for (layer, (now, booted)) in free_frames(&simulation).iter().zip(free_frames(&empty)).enumerate() {
            // What a host has given to its guests it does not get back.
            if simulation.os.tops().contains(&(layer as u16)) {
                assert_eq!(*now, booted, "free frames of layer {layer} after the last exit");
                if let Some(reclaim) = &simulation.os.layers[layer].reclaim {
                    let cached = simulation.os.layers[layer].pages.cached_frames();
                    let files = if reclaim.storage.is_some() { cached } else { 0 };
                    let listed = [Kind::Anonymous, Kind::File].map(|kind| reclaim.listed(kind));
                    let held = simulation.os.layers[layer].collapse.held_frames;
                    let used = reclaim.used_frames();
                    assert_eq!((listed, used), ([0, files], files + held), "pages left after the last exit");
                    let swap = reclaim.swap.as_ref();
                    assert!(
                        swap.is_none_or(|swap| (swap.pages(), swap.used_slots()) == (0, 0)),
                        "swapped pages are left"
                    );
                }
            }
        }
    }
    stats
}

fn check(program: &Program, (system, set): System, cpus: &[usize]) {
    let all = [&["machine.memory_bytes=1GiB", "engine.sync_quantum_cycles=0"], set].concat();
    let with = |more: &[&str]| config(system, &[&all[..], more].concat());
    let stats = check_once(program, &with(&[]), cpus);
    // Repeated, and without look-ahead.
    let (_, again) = run(&with(&["engine.lookahead=off"]), program.source(Cuts::AsWritten), cpus);
    assert_eq!(stats.values, again.values, "repeated without look-ahead");
    // On one CPU it does not matter how the source cuts its batches.
    let (_, never) = run(&with(&[]), program.source(Cuts::Never), &cpus[..1]);
    let (_, everywhere) = run(&with(&["engine.input_window_accesses=1"]), program.source(Cuts::Everywhere), &cpus[..1]);
    assert_eq!(never.values, everywhere.values, "cut everywhere");
    if cpus.len() == 1 {
        assert_eq!(stats.values, never.values, "not cut");
    }
    assert_eq!(stats.values["accesses"], never.values["accesses"], "every access is made, on however many CPUs");
}

#[test]
fn any_program_on_any_system_is_translated_right_and_conserves_cycles_and_frames() {
    for_programs(cases(400), check);
}

/// More than twenty million operations of programs that fork, exec, exit and run out of memory, in pages of all sizes.
#[test]
#[ignore = "takes minutes: make test-full"]
fn twenty_million_operations_conserve_frames() {
    for_programs(180_000, |program, (system, set), cpus| {
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
        if !fits(&program, system, cpus) {
            return Err(TestCaseError::reject(
                "its cgroup cannot hold the shared memory that it touches, which never leaves",
            ));
        }
        check(&program, system, cpus);
        Ok(())
    });
    result.unwrap_or_else(|e| panic!("{e}"));
}

/// Whether a program can live within its cgroup's limit, if it has one.
fn fits(program: &Program, (system, set): System, cpus: &[usize]) -> bool {
    let config = config(system, &[&["machine.memory_bytes=1GiB", "engine.sync_quantum_cycles=0"], set].concat());
    let run_out = |cpus: &[usize]| {
        let placed = Placed { source: program.source(Cuts::AsWritten), cpus: cpus.to_vec(), memory_limit: None };
        let mut simulation = Simulation::new(&config, vec![placed], None).unwrap_or_else(|e| panic!("{e}"));
        matches!(simulation.run(&mut |_| true), Err(EngineError::OutOfMemory { what }) if what.contains("cgroup"))
    };
    config.kernel.cgroup_limit_bytes.is_none() || !run_out(cpus) && !run_out(&cpus[..1])
}

/// Runs a program beside itself: again and again, and as three arrivals.
fn check_load(program: &Program, (system, set): System, cpus: &[usize]) {
    let more = ["machine.memory_bytes=1GiB", "engine.sync_quantum_cycles=0", "kernel.quantum_cycles=30000"];
    let config = config(system, &[&more, set].concat());
    let open = || -> Open {
        let program = program.clone();
        Box::new(move || Ok(program.source(Cuts::AsWritten)))
    };
    let pace = Pace { per_second: 5000.0, count: Some(3), spacing: Spacing::Poisson };
    let beside = || Beside {
        co_runners: vec![CoRunner { open: open(), cpus: cpus.to_vec(), memory_limit: None }],
        arrivals: vec![ArrivalStream { open: open(), cpus: cpus.to_vec(), pace, memory_limit: None }],
    };
    let (_, stats) = run_beside(&config, vec![(program.source(Cuts::AsWritten), cpus)], beside());
    assert_conserved(&stats);
    assert_all_is_on_an_account(&stats);
    let (_, again) = run_beside(&config, vec![(program.source(Cuts::AsWritten), cpus)], beside());
    assert_eq!(stats.values, again.values, "repeated");
    // Without the co-runner nothing is cut short.
    let arrivals = Beside { co_runners: Vec::new(), ..beside() };
    let (simulation, stats) = run_beside(&config, vec![(program.source(Cuts::AsWritten), cpus)], arrivals);
    assert_all_is_on_an_account(&stats);
    assert_frames_conserved(&simulation, &live_spaces(&simulation));
}

#[test]
fn any_program_beside_itself_is_translated_right_and_conserves_cycles_and_frames() {
    let mut runner = TestRunner::new(Config {
        cases: cases(24),
        failure_persistence: None,
        max_shrink_iters: 300,
        ..Config::default()
    });
    // Without those that take long: programs that thrash, and large pages that are zeroed again and again.
    let quick = |(name, set): &System| !set.contains(&SWAP) && !name.ends_with("-2m") && !name.ends_with("-1g");
    let systems: Vec<System> = SYSTEMS.iter().copied().filter(quick).collect();
    let system = (0..systems.len()).prop_map(move |n| systems[n]);
    let cpus = (0..PLACEMENTS.len()).prop_map(|n| PLACEMENTS[n]);
    let result = runner.run(&(program(), system, cpus), |(program, system, cpus)| {
        check_load(&program, system, cpus);
        Ok(())
    });
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
