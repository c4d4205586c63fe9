//! Checks that every registered fault engine takes faults off the kernel. An engine that is never asked, or that no
//! entry is armed for, translates every address correctly, since the kernel then handles the faults.

use pagelab_engine::base::addr::{FRAME_BYTES, PageSize};
use pagelab_engine::config::Config;
use pagelab_engine::device::DeviceConfig;
use pagelab_engine::fault_engine::config::FaultEngineConfig;
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{Access, AccessKind, EventKind, MapFlags, Protection};

use crate::common::{self, ScriptWriter};
use crate::{system, with_storage};

const BASE: u64 = 0x7f00_0000_0000;
const OWN: u64 = 0x6f00_0000_0000;
const PAGES: u64 = 64;

/// Lets threads of an engine work: accesses to a mapped page, with many instructions between them.
fn pause(script: &mut ScriptWriter, accesses: u64) {
    for _ in 0..accesses {
        script.access_of(0, Access { gap: 10_000, ..Access::new(AccessKind::Load, OWN, 8) });
    }
}

/// Touches the pages of a file or of anonymous memory, with time to prepare frames in between.
fn run(config: &Config, file: Option<&str>) -> Statistics {
    let mut script = ScriptWriter::new();
    // Engines that processes enable themselves; others ignore it.
    script.event(0, EventKind::EngineCall { enable: true });
    script.mmap(0, OWN, FRAME_BYTES);
    script.store(0, OWN);
    let (len, prot) = (PAGES * FRAME_BYTES, Protection::READ_WRITE);
    let flags = if file.is_some() { MapFlags(MapFlags::SHARED) } else { MapFlags::anonymous_private() };
    let file = file.map(Into::into);
    script.event(0, EventKind::Mmap { addr: BASE, len, prot, flags, file, file_offset: 0 });
    pause(&mut script, 1000);
    for page in 0..PAGES {
        script.store(0, BASE + page * FRAME_BYTES);
        pause(&mut script, 20);
    }
    let (_, stats) = common::run(config, script.finish(), &[0]);
    common::assert_conserved(&stats);
    stats
}

/// Faults of the kernel, and its cycles of zeroing: an engine in software gives zeroed frames to faults.
fn faults_and_zeroing(stats: &Statistics) -> [u64; 2] {
    let count = |name: &str| stats.values[name];
    [count("fault.minor.count") + count("fault.major.count"), count("fault.stage.zeroing.cycles")]
}

#[test]
fn every_fault_engine_takes_faults_or_zeroing_off_the_kernel() {
    let storage = DeviceConfig::samples().into_iter().max_by_key(|device| device.striping().drives).expect("a device");
    for engine in FaultEngineConfig::samples() {
        let without = with_storage(system("radix"), &storage);
        let mut with = without.clone();
        with.system.layers[0].fault_engine = Some(engine.clone());
        // An engine for large pages is refused where there are none.
        if with.validate().is_err() {
            with.system.layers[0].page_size = PageSize::Size2M;
        }
        with.validate().unwrap_or_else(|e| panic!("{engine:?}: {e}"));
        let runs = [None, Some("data")].map(|file| [&without, &with].map(|config| run(config, file)));
        let pairs = runs.map(|runs| runs.each_ref().map(faults_and_zeroing));
        let spares = |[before, after]: &[[u64; 2]; 2]| (0..2).any(|n| 10 * after[n] < 9 * before[n]);
        assert!(pairs.iter().any(spares), "{engine:?}: without and with the engine {pairs:?}");
    }
}
