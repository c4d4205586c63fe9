//! The steps of scans that hold the lock of the LRU lists for a time: what they do under it, and to which pages.

use crate::common::{ScriptWriter, config, first_task, run};
use pagelab_engine::base::ids::{CpuId, LayerId};
use pagelab_engine::base::lock_kind::LockKind;
use pagelab_engine::base::step::{BlockKey, RefKind, Step};
use pagelab_engine::kernel::effects::Effects;
use pagelab_engine::kernel::reclaim::Pressure;
use pagelab_engine::kernel::scanning::{ScanProgress, Scanning};
use pagelab_engine::machine::simulation::Simulation;
use std::collections::BTreeSet;

const BASE: u64 = 0x7f00_0000_0000;
const LAYER: LayerId = LayerId(0);
/// Cycles under the lock per page.
const LRU: u64 = 70;

/// What a step does.
#[derive(Debug, PartialEq, Eq)]
enum Does {
    /// Takes the lock.
    Take,
    /// Holds it, for pages with metadata at these addresses.
    Hold(Vec<u64>),
    /// Examines these pages, without the lock.
    Examine(Vec<u64>),
}

/// A kernel that has so many pages of a program on its lists, which were all accessed.
fn kernel_with(pages: u64, new_pages: &str) -> Simulation {
    let held = format!(
        r#"kernel.held_locks={{"zone_page":{{"instructions":1}},"lru_page":{{"instructions":1,"cycles":{LRU}}}}}"#
    );
    let new_pages = format!("kernel.new_pages={new_pages}");
    let swap = r#"kernel.swap={"size_bytes":"1MiB","read_cycles":1,"write_cycles":1,"queue_depth":1}"#;
    let config = config("radix", &[swap, &held, &new_pages, "kernel.threads.kswapd=off"]);
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, pages << 12);
    (0..pages).for_each(|page| script.store(0, BASE + (page << 12)));
    run(&config, script.finish(), &[0]).0
}

/// A step of a scan of a CPU, and what comes after it.
fn step(simulation: &mut Simulation, scan: &mut Scanning, cpu: usize) -> (Does, ScanProgress) {
    let os = &mut simulation.kernels.os;
    let mut step = Step::default();
    scan.plan(os, LAYER, &mut step);
    let written = step.refs.iter().filter(|r| r.kind == RefKind::Write && r.lock.is_none());
    let pages: Vec<u64> = written.map(|r| r.addr.0).collect();
    let lock = step.refs.last().map(|last| (last.lock, last.kind));
    let does = match lock {
        Some((Some(LockKind::Lru), RefKind::Locked)) => Does::Take,
        Some((Some(LockKind::Lru), RefKind::Write)) => {
            assert_eq!(step.preset.cycles.0, LRU * pages.len() as u64);
            Does::Hold(pages)
        }
        _ => Does::Examine(pages),
    };
    (does, scan.commit(os, &mut Effects::default(), LAYER, first_task(CpuId::from(cpu))))
}

fn steps_to_end(simulation: &mut Simulation, scan: &mut Scanning, cpu: usize) -> Vec<Does> {
    let mut all = Vec::new();
    loop {
        let (does, progress) = step(simulation, scan, cpu);
        all.push(does);
        match progress {
            ScanProgress::Continues => {}
            ScanProgress::Waits(key) => panic!("nobody else holds {key:?}"),
            ScanProgress::Ends(_) => return all,
        }
    }
}

#[test]
fn a_scan_isolates_each_page_that_it_examines_once() {
    use Does::{Examine, Hold, Take};
    let mut simulation = kernel_with(100, "active");
    let steps = steps_to_end(&mut simulation, &mut Scanning::new(Pressure::Memory), 0);
    let Some(Hold(pages)) = steps.get(1) else { panic!("{steps:?}") };
    assert_eq!(pages.len(), 32);
    // The inactive list is empty: pages leave the active list, go to the other one, and are taken from there.
    let [hold, examine] = [Hold, Examine].map(|does| does(pages.clone()));
    assert_eq!(steps.iter().collect::<Vec<_>>(), [&Take, &hold, &Take, &hold, &Take, &hold, &examine]);

    let mut simulation = kernel_with(100, "inactive");
    let steps = steps_to_end(&mut simulation, &mut Scanning::new(Pressure::Memory), 0);
    let Some(Hold(pages)) = steps.get(1) else { panic!("{steps:?}") };
    assert_eq!(pages.len(), 32);
    // They were accessed, and are put back.
    let [hold, examine] = [Hold, Examine].map(|does| does(pages.clone()));
    assert_eq!(steps.iter().collect::<Vec<_>>(), [&Take, &hold, &examine, &Take, &hold]);
}

#[test]
fn scans_at_the_same_time_examine_different_pages() {
    let mut simulation = kernel_with(70, "inactive");
    let mut scans = [0, 1, 2].map(|_| Scanning::new(Pressure::Memory));
    let mut examined = Vec::new();
    for cpu in 0..3 {
        assert_eq!(step(&mut simulation, &mut scans[cpu], cpu), (Does::Take, ScanProgress::Continues));
        if let Some(next) = scans.get_mut(cpu + 1) {
            let key = BlockKey::Lru { layer: LAYER, group: 0 };
            assert_eq!(step(&mut simulation, next, cpu + 1), (Does::Take, ScanProgress::Waits(key)));
        }
        let (Does::Hold(pages), ScanProgress::Continues) = step(&mut simulation, &mut scans[cpu], cpu) else {
            panic!("scan {cpu} does not isolate")
        };
        examined.push(pages);
    }
    assert_eq!(examined.iter().map(Vec::len).collect::<Vec<_>>(), [32, 32, 70 - 64]);
    for (cpu, (scan, pages)) in scans.iter_mut().zip(&examined).enumerate().rev() {
        let steps = steps_to_end(&mut simulation, scan, cpu);
        assert_eq!(steps, [Does::Examine(pages.clone()), Does::Take, Does::Hold(pages.clone())]);
    }
    let all: BTreeSet<u64> = examined.concat().into_iter().collect();
    let scanned = simulation.kernels.os.layers[LAYER].memory.reclaim.as_ref().unwrap().counters.scanned;
    assert_eq!((all.len(), scanned), (70, 70));
}
