//! Programs of random operations, and what must be conserved for all of them.

use pagelab_engine::base::addr::FRAME_BYTES;
use pagelab_engine::base::error::EngineError;
use pagelab_engine::base::ids::SpaceId;
use pagelab_engine::config::Config;
use pagelab_engine::kernel::layer::Layer;
use pagelab_engine::kernel::reclaim::LruPageKind;
use pagelab_engine::machine::simulation::{PlacedSource, Simulation};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{Access, AccessKind, EventKind, Maker, MapFlags, ProcessIx, Protection, Source};
use proptest::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{
    self, ScriptWriter, assert_clocks_conserved, assert_conserved, assert_frames_conserved, charged_frames, run,
};

/// Operations of programs that have been checked.
static CHECKED: AtomicU64 = AtomicU64::new(0);

/// Counts a program whose translations were compared with the kernels' records.
pub fn count_checked(program: &Program) {
    CHECKED.fetch_add(program.ops.len() as u64, Ordering::Relaxed);
}

/// Prints how many calls and accesses of random programs have been checked, for `tests/soak/soak.py`.
pub fn print_checked() {
    println!("{} operations of random programs checked", CHECKED.load(Ordering::Relaxed));
}

/// Where programs map memory. The third place is aligned for pages of 1 GiB, the others for pages of 2 MiB.
pub const PLACES: [u64; 5] = [0x7f00_0000_0000, 0x7f00_0040_0000, 0x6000_4000_0000, 0x40_0000, 0x7f7f_ffc0_0000];

#[derive(Clone, Copy, Debug)]
pub struct Area {
    pub addr: u64,
    pub len: u64,
}

#[derive(Clone, Debug)]
pub enum Op {
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
    Sync {
        area: Area,
        flags: u32,
    },
    /// A file is truncated, or was before.
    Truncate {
        file: &'static str,
        pages: u64,
    },
    Relocate {
        file: &'static str,
        from: u64,
        pages: u64,
    },
    /// Pages of a file in memory are written by a call.
    Write {
        file: &'static str,
        from: u64,
        pages: u64,
    },
    Punch {
        file: &'static str,
        from: u64,
        pages: u64,
    },
    Heap {
        end: u64,
    },
    /// The process enables or disables its fault engine.
    Engine {
        enable: bool,
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
    let bits = Protection::from_bits;
    prop_oneof![6 => Just(bits(3)), 2 => Just(bits(1)), 1 => Just(bits(0)), 1 => Just(bits(5)), 1 => Just(bits(7)), 1 => Just(bits(2))]
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
        1 => Just(MapFlags::SHARED | MapFlags::MEMORY_FILE),
        1 => Just(MapFlags::PRIVATE | MapFlags::MEMORY_FILE),
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
        2 => (area(), 0_u32..8).prop_map(|(area, flags)| Op::Sync { area, flags }),
        2 => (file(), 0_u64..20).prop_map(|(file, pages)| Op::Truncate { file, pages }),
        2 => (file(), 0_u64..20, 1_u64..20).prop_map(|(file, from, pages)| Op::Relocate { file, from, pages }),
        1 => (memory_file(), 0_u64..20, 1_u64..20).prop_map(|(file, from, pages)| Op::Write { file, from, pages }),
        1 => (prop_oneof![file(), memory_file()], 0_u64..20, 1_u64..20)
            .prop_map(|(file, from, pages)| Op::Punch { file, from, pages }),
        2 => (0_u64..200_000).prop_map(|bytes| Op::Heap { end: HEAP + bytes }),
        1 => any::<bool>().prop_map(|enable| Op::Engine { enable }),
        2 => Just(Op::Thread),
        1 => Just(Op::Fork),
        1 => Just(Op::Exec),
        1 => Just(Op::Exit),
        4 => Just(Op::Cut),
    ]
}

fn file() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("a"), Just("b")]
}

fn memory_file() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("a in memory"), Just("b in memory")]
}

const HEAP: u64 = 0x5555_0000_0000;

/// A test case: each operation is made by one of the live threads.
#[derive(Clone, Debug)]
pub struct Program {
    pub ops: Vec<(usize, Op)>,
    /// Whether all processes exit at the end.
    pub ends: bool,
}

pub fn program() -> impl Strategy<Value = Program> {
    (prop::collection::vec((0_usize..12, op()), 100..140), any::<bool>()).prop_map(|(ops, ends)| Program { ops, ends })
}

/// Where batches end.
#[derive(Clone, Copy)]
pub enum Cuts {
    AsWritten,
    Never,
    Everywhere,
}

const MOST_THREADS: u32 = 8;

impl Program {
    /// The program for a configuration: if a design of it predicts by the addresses of instructions, each access has
    /// one.
    pub fn under(mut self, config: &Config) -> Self {
        if config.machine.needs_pc().is_some() {
            for (_, op) in &mut self.ops {
                if let Op::Access { pc, by_kernel: false, .. } = op
                    && *pc == 0
                {
                    *pc = PLACES[3] + 64;
                }
            }
        }
        self
    }

    pub fn source(&self, cuts: Cuts) -> Box<dyn Source> {
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
                    script.access_of(
                        thread,
                        Access { pc, maker: Maker::kernel_if(by_kernel), ..Access::new(kind, addr, bytes) },
                    );
                    None
                }
                Op::Map { area, prot, flags } => Some(EventKind::Mmap {
                    addr: area.addr,
                    len: area.len,
                    prot,
                    flags: MapFlags(flags),
                    file: (flags & MapFlags::ANONYMOUS == 0).then(|| {
                        match (area.len & 0x1000 == 0, flags & MapFlags::MEMORY_FILE == 0) {
                            (true, true) => "a",
                            (false, true) => "b",
                            (true, false) => "a in memory",
                            (false, false) => "b in memory",
                        }
                        .into()
                    }),
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
                Op::Sync { area, flags } => Some(EventKind::Msync { addr: area.addr, len: area.len, flags }),
                Op::Truncate { file, pages } => {
                    let (file, new_len) = (file.into(), pages * FRAME_BYTES);
                    Some(EventKind::Truncate { file, old_len: u64::MAX, new_len })
                }
                Op::Relocate { file, from, pages } => {
                    let (file, offset, len) = (file.into(), from * FRAME_BYTES, pages * FRAME_BYTES);
                    Some(EventKind::Relocate { file, offset, len })
                }
                Op::Write { file, from, pages } => {
                    let (file, offset, len) = (file.into(), from * FRAME_BYTES, pages * FRAME_BYTES);
                    Some(EventKind::FileData { file, offset, len })
                }
                Op::Punch { file, from, pages } => {
                    let (file, offset, len) = (file.into(), from * FRAME_BYTES, pages * FRAME_BYTES);
                    Some(EventKind::FileHole { file, offset, len })
                }
                Op::Heap { end } => Some(EventKind::Brk { start: HEAP, end }),
                Op::Engine { enable } => Some(EventKind::EngineCall { enable }),
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
                    live.retain(|&(other, owner)| owner != process || other == thread);
                    script.event(thread, EventKind::Exec { path: "program".into() });
                    Some(common::mmap(PLACES[0], 64 * FRAME_BYTES, Protection::READ_WRITE))
                }
                // The last process continues; otherwise half of the programs would be short.
                Op::Exit if live.iter().all(|&(_, owner)| owner == process) => None,
                Op::Exit => {
                    live.retain(|&(_, owner)| owner != process);
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
            live.retain(|&(_, owner)| owner != process);
            script.event(thread, EventKind::Exit { code: 0 });
        }
        script.finish()
    }
}

/// Existing spaces, except the kernels' own: of processes, and of guests.
pub fn live_spaces(simulation: &Simulation) -> Vec<SpaceId> {
    let processes = simulation.programs.inputs.iter().flat_map(|input| input.spaces());
    processes.chain(simulation.kernels.os.layers.iter().filter_map(|layer| layer.host)).collect()
}

/// Frames of each layer that are free, in the page cache (exits do not free them), or owned by khugepaged.
fn free_frames(simulation: &Simulation) -> Vec<u64> {
    let free = |(index, layer): (usize, &Layer)| {
        let held = simulation.kernels.threads.held_frames(index.into()) + layer.mechanisms.balloon.pages();
        let ready = layer.mechanisms.engine.as_ref().map_or(0, |engine| engine.held_frames());
        layer.memory.free_frames() + layer.memory.page_use.cached_frames() + layer.late_segment_frames() + held + ready
    };
    simulation.kernels.os.layers.iter().enumerate().map(free).collect()
}

/// Why a program that does not fit is rejected.
pub const TOO_LARGE: &str = "its cgroup cannot hold the shared memory that it touches, which never leaves, or its \
                             deliberately small hashed page table has too few slots, or its deliberately small \
                             memory has no frames for a call that cannot wait for reclaim";

/// A memory that a program may not fit into, although there is a swap area: fork and other calls do not reclaim.
const SMALL_MEMORY: u64 = 4 << 20;

/// Whether a program fits into its cgroup's limit, if it has one, into the slots of its page table, and into a small
/// memory.
pub fn fits(program: &Program, config: &Config, cpus: &[usize]) -> bool {
    let is_small = config.machine.memory_bytes.0 <= SMALL_MEMORY;
    (config.kernel.cgroup_limit_bytes.is_none() && !is_small) || {
        let placed = PlacedSource { source: program.source(Cuts::AsWritten), cpus: cpus.to_vec(), memory_limit: None };
        let mut simulation = Simulation::new(config, vec![placed], None).unwrap_or_else(|e| panic!("{e}"));
        let too_large = |what: &str| {
            what.contains("cgroup") || what.contains("has no slot for") || is_small && what.contains("no frame left")
        };
        !matches!(simulation.run(&mut |_| true), Err(EngineError::OutOfMemory { what }) if too_large(&what))
    }
}

/// Runs a program in its own batches, checks the conservation laws, and that the fast path changes no statistic.
pub fn check_once(program: &Program, config: &Config, cpus: &[usize]) -> Statistics {
    let (simulation, stats) = run(config, program.source(Cuts::AsWritten), cpus);
    let mut general = config.clone();
    general.engine.fast_path.0 = false;
    let (_, by_general_code) = run(&general, program.source(Cuts::AsWritten), cpus);
    assert_eq!(stats.values, by_general_code.values, "the fast path counts something else");
    assert_conserved(&stats);
    assert_clocks_conserved(&simulation);
    assert_frames_conserved(&simulation, &live_spaces(&simulation));
    if program.ends {
        let mut nothing = ScriptWriter::new();
        nothing.event(0, EventKind::Exit { code: 0 });
        let (empty, _) = run(config, nothing.finish(), cpus);
        for (layer, (now, booted)) in free_frames(&simulation).iter().zip(free_frames(&empty)).enumerate() {
            // Frames that a host gave to its guests are not returned.
            if simulation.kernels.os.tops().contains(&layer.into()) {
                assert_eq!(*now, booted, "free frames of layer {layer} after the last exit");
                if let Some(reclaim) = &simulation.kernels.os.layers[layer].memory.reclaim {
                    let cached = simulation.kernels.os.layers[layer].memory.page_use.cached_frames();
                    let files = if reclaim.storage.is_some() { cached } else { 0 };
                    let listed = [LruPageKind::Anonymous, LruPageKind::File].map(|kind| reclaim.listed(kind));
                    let held = charged_frames(&simulation, layer.into());
                    let used = reclaim.used_frames();
                    assert_eq!((listed, used), ([0, files], files + held), "pages left after the last exit");
                    let swap = reclaim.swap.as_ref();
                    assert!(
                        swap.is_none_or(|swap| (swap.in_use().count(), swap.used_slots()) == (0, 0)),
                        "swapped pages are left"
                    );
                }
            }
        }
    }
    count_checked(program);
    stats
}
