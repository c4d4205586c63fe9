//! Storage management units of several sockets, for the drives attached to each.

use crate::common::{ScriptWriter, assert_conserved, run};
use pagelab_engine::base::error::EngineError;
use pagelab_engine::base::ids::LayerId;
use pagelab_engine::config::{Assembly, Config, assemble};
use pagelab_engine::fault_engine::smu::engine_access::smu;
use pagelab_engine::machine::simulation::Simulation;
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{EventKind, MapFlags, Protection};

const BASE: u64 = 0x7f00_0000_0000;
const OWN: u64 = 0x6f00_0000_0000;
const PAGE: u64 = 4096;
const PAGES: u64 = 96;

/// This many sockets, drives and blocks per chunk, on eight cores of two CPUs, plus other keys.
fn try_sockets(sockets: u32, drives: u32, chunk: u64, set: &[&str]) -> Result<Config, EngineError> {
    let mut keys = vec![
        "engine.check=on".to_owned(),
        "machine.cores=8".to_owned(),
        "machine.threads_per_core=2".to_owned(),
        format!(
            r#"kernel.storage={{"model":"drive","queue_depth":32,"controller_ns":100,"block_ns":50,"units":16,"read_ns":9000,"write_ns":900,"program_ns":9000,"buffer_blocks":64,"drives":{drives},"chunk_blocks":{chunk}}}"#
        ),
        format!("system.layers.native.fault_engine.sockets={sockets}"),
        "system.layers.native.fault_engine.kpted_cycles=100000000000".to_owned(),
    ];
    keys.extend(set.iter().map(|&key| key.to_owned()));
    assemble(&Assembly { machine: Some("sandybridge-e5-2420"), system: Some("hwdp"), kernel: None, set: &keys })
}

fn sockets(sockets: u32, drives: u32, chunk: u64, set: &[&str]) -> Config {
    try_sockets(sockets, drives, chunk, set).unwrap_or_else(|e| panic!("{e}"))
}

/// A program on a CPU loads the pages of a file in order, once the queues are full.
fn replay(config: &Config, cpu: usize) -> (Simulation, Statistics) {
    replay_of(config, cpu, PAGES, 1)
}

/// The same with a file of this many pages, this many times.
fn replay_of(config: &Config, cpu: usize, pages: u64, passes: u64) -> (Simulation, Statistics) {
    let mut script = ScriptWriter::new();
    script.mmap(0, OWN, PAGE);
    script.store(0, OWN);
    let (prot, flags) = (Protection::READ_WRITE, MapFlags(MapFlags::SHARED));
    let file = Some("data".into());
    script.event(0, EventKind::Mmap { addr: BASE, len: pages * PAGE, prot, flags, file, file_offset: 0 });
    for _ in 0..2500 {
        let mut access = pagelab_trace::Access::new(pagelab_trace::AccessKind::Load, OWN, 8);
        access.gap = 10_000;
        script.access_of(0, access);
    }
    (0..pages * passes).for_each(|n| script.load(0, BASE + n % pages * PAGE));
    let (simulation, stats) = run(config, script.finish(), &[cpu]);
    assert_conserved(&stats);
    (simulation, stats)
}

fn stat(stats: &Statistics, name: &str) -> u64 {
    stats.values[&format!("layer.native.fault_engine.{name}")]
}

#[test]
fn the_socket_of_its_drive_serves_a_page() {
    // Three drives in chunks of four, on sockets 0, 1 and 0: of twelve pages four are on socket 1.
    let of_socket = [PAGES * 2 / 3, PAGES / 3];
    for (cpu, remote) in [(0, of_socket[1]), (7, of_socket[1]), (8, of_socket[0]), (15, of_socket[0])] {
        let (simulation, stats) = replay(&sockets(2, 3, 4, &[]), cpu);
        assert_eq!(["socket.0.mapped", "socket.1.mapped"].map(|name| stat(&stats, name)), of_socket);
        assert_eq!((stat(&stats, "mapped"), stat(&stats, "remote")), (PAGES, remote), "CPU {cpu}");
        let requests = [0, 1, 2].map(|n| stats.values[&format!("layer.native.storage.drive.{n}.requests")]);
        assert_eq!(requests, [PAGES / 3; 3]);
        // A round trip to the other socket for each, plus one cycle for the look-up itself.
        assert_eq!(stat(&stats, "step.lookup.cycles"), PAGES + remote * 400);
        let units = &smu(&simulation.kernels.os.layers[LayerId(0)]).units;
        assert_eq!(units.iter().map(|unit| unit.pairs.len()).collect::<Vec<_>>(), [2, 1], "a queue pair per drive");
        let held: Vec<u64> =
            units.iter().zip(of_socket).map(|(unit, mapped)| u64::from(unit.free.count()) + mapped).collect();
        assert!(held.iter().all(|&pages| pages >= 4096), "each took of its own queue: {held:?}");
    }
}

#[test]
fn one_socket_may_have_several_drives_and_no_remote_latency() {
    let (_, stats) = replay(&sockets(1, 3, 4, &[]), 15);
    assert_eq!((stat(&stats, "mapped"), stat(&stats, "step.lookup.cycles")), (PAGES, PAGES));
    assert!(!stats.values.contains_key("layer.native.fault_engine.remote"), "there is no other socket");
    let near = replay(&sockets(2, 2, 4, &["system.layers.native.fault_engine.remote_cycles=0"]), 0).1;
    assert_eq!((stat(&near, "remote"), stat(&near, "step.lookup.cycles")), (PAGES / 2, PAGES), "a way of no length");
}

#[test]
fn faults_fill_the_queue_that_was_empty() {
    let few = ["kpoold_cycles=0", "free_pages=8", "prefetch=1", "sync_refill=4"];
    let keys = few.map(|key| format!("system.layers.native.fault_engine.{key}"));
    let (simulation, stats) = replay(&sockets(2, 2, 8, &keys.each_ref().map(String::as_str)), 0);
    // For eight pages in a row, the first finds nothing and has four made ready; so does the sixth, which leaves two.
    let units = &smu(&simulation.kernels.os.layers[LayerId(0)]).units;
    for (socket, unit) in units.iter().enumerate() {
        let chunks = PAGES / 16;
        assert!(unit.lacking == 0 && unit.mapped > 0, "socket {socket}");
        let supplied = u64::from(unit.free.count()) + unit.mapped;
        let empty = chunks * 8 - unit.mapped;
        assert_eq!(supplied, empty * 4, "socket {socket}: four for each page that the kernel read");
    }
    assert_eq!(stat(&stats, "empty"), stats.values["fault.major.count"]);
    assert_eq!(stat(&stats, "empty") + stat(&stats, "mapped"), PAGES);
}

#[test]
fn sockets_without_drives_or_cpus_are_refused() {
    for (count, drives, set, part) in [
        (0, 2, &[][..], "1 to 2"),
        (3, 2, &[], "1 to 2"),
        (3, 3, &["machine.cores=2"], "1 to 2"),
        (1, 9, &["machine.cores=1"], "drives up to 8"),
        (9, 12, &["machine.cores=16"], "2 to 8"),
        (1, 9, &[], "2 to 8"),
    ] {
        let error = try_sockets(count, drives, 4, set).unwrap_err().to_string();
        assert!(error.contains("fault_engine.sockets") && error.contains(part), "{error} lacks {part}");
    }
}

/// If memory is short, kpoold cannot fill all queues; it fills none before the others.
#[test]
fn kpoold_favours_no_socket() {
    const MANY: u64 = 8192;
    let fill = ["kpoold_cycles=1000000", "free_pages=24", "sync_refill=0"];
    let fill = fill.map(|key| format!("system.layers.native.fault_engine.{key}"));
    let mut keys: Vec<&str> = fill.iter().map(String::as_str).collect();
    keys.push("machine.memory_bytes=12MiB");
    let (_, stats) = replay_of(&sockets(4, 4, 1, &keys), 0, MANY, 3);
    let by_kernel: Vec<u64> = (0..4)
        .map(|socket| {
            let requests = stats.values[&format!("layer.native.storage.drive.{socket}.requests")];
            requests - stat(&stats, &format!("socket.{socket}.mapped"))
        })
        .collect();
    let (least, most) = (by_kernel.iter().min().unwrap(), by_kernel.iter().max().unwrap());
    assert!(*least > 100 && most * 4 < least * 5, "read by the kernel, by socket: {by_kernel:?}");
}
