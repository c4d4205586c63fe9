//! The steps of scans that hold the lock of the LRU lists or of a page-table page for a time: what they do under it,
//! and to which pages.

use crate::common::{ScriptWriter, config, first_task, run};
use pagelab_engine::base::addr::{PageSize, PhysAddr, VirtAddr};
use pagelab_engine::base::ids::{CpuId, LayerId};
use pagelab_engine::base::lock_kind::LockKind;
use pagelab_engine::base::step::{BlockKey, RefKind, Step};
use pagelab_engine::kernel::config::SpinLocks;
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
#[derive(Clone, Debug, PartialEq, Eq)]
enum Does {
    /// Takes the lock.
    Take,
    /// Holds it, for pages with metadata at these addresses.
    Hold(Vec<u64>),
    /// Takes the lock of a page-table page, after it has written the metadata of these pages.
    TakeTable(Vec<u64>),
    /// Reads or clears an entry there.
    Entry,
}

/// The steps that examine pages, each of which is mapped once.
fn examination(pages: &[u64]) -> Vec<Does> {
    pages.iter().flat_map(|&page| [Does::TakeTable(vec![page]), Does::Entry]).collect()
}

/// The steps that unmap so many pages.
fn unmapping(pages: usize) -> Vec<Does> {
    (0..pages).flat_map(|_| [Does::TakeTable(Vec::new()), Does::Entry]).collect()
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
        Some((Some(LockKind::PageTable), RefKind::Locked)) => Does::TakeTable(pages),
        Some((Some(LockKind::PageTable), RefKind::Write)) => {
            assert!(pages.is_empty(), "{pages:?}");
            // Who gets the lock from another one writes its word.
            let entries = step.refs.iter().filter(|r| r.kind == RefKind::Locked).count();
            if entries == 1 { Does::Entry } else { Does::TakeTable(pages) }
        }
        last => panic!("{last:?}"),
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
    use Does::{Hold, Take};
    let mut simulation = kernel_with(100, "active");
    let steps = steps_to_end(&mut simulation, &mut Scanning::new(Pressure::Memory), 0);
    let Some(Hold(pages)) = steps.get(1) else { panic!("{steps:?}") };
    assert_eq!(pages.len(), 32);
    // The inactive list is empty: pages leave the active list, are examined, go to the other one, and are taken from
    // there. Now their accessed bits are clear.
    let (hold, examined) = (|| Hold(pages.clone()), examination(pages));
    let isolated = [vec![Take, hold()], examination(pages), vec![Take, hold(), Take, hold()]].concat();
    assert_eq!(steps, [isolated, examined, unmapping(32)].concat());

    let mut simulation = kernel_with(100, "inactive");
    let steps = steps_to_end(&mut simulation, &mut Scanning::new(Pressure::Memory), 0);
    let Some(Hold(pages)) = steps.get(1) else { panic!("{steps:?}") };
    assert_eq!(pages.len(), 32);
    // They were accessed, and are put back.
    let hold = || Hold(pages.clone());
    assert_eq!(steps, [vec![Take, hold()], examination(pages), vec![Take, hold()]].concat());
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
        assert_eq!(steps, [examination(pages), vec![Does::Take, Does::Hold(pages.clone())]].concat());
    }
    let all: BTreeSet<u64> = examined.concat().into_iter().collect();
    let scanned = simulation.kernels.os.layers[LAYER].memory.reclaim.as_ref().unwrap().counters.scanned;
    assert_eq!((all.len(), scanned), (70, 70));
}

#[test]
fn a_scan_waits_for_the_lock_of_the_page_table_page_alone() {
    for order in ["unordered", "queued"] {
        let mut simulation = kernel_with(70, "inactive");
        if order == "queued" {
            simulation.kernels.os.costs.spin_locks = SpinLocks::Queued;
        }
        let (space, other) = (&simulation.kernels.os.layers[LAYER].spaces, first_task(CpuId(1)));
        let program = space.numbers().last().expect("there is a program");
        let entry: PhysAddr = space[program].table.entry(
            &simulation.kernels.os.layers[LAYER].memory.contents,
            VirtAddr(BASE),
            PageSize::Size4K,
        );
        let key = BlockKey::PageTable { layer: LAYER, frame: entry.pfn() };
        assert!(simulation.kernels.os.locks.acquire(key, other), "nobody holds it");
        let mut scan = Scanning::new(Pressure::Memory);
        // The lock of the lists is free again when it comes to the table.
        let taken: Vec<ScanProgress> = (0..2).map(|_| step(&mut simulation, &mut scan, 0).1).collect();
        assert_eq!(taken, [ScanProgress::Continues, ScanProgress::Continues], "{order}");
        assert!(!simulation.kernels.os.locks.is_held(BlockKey::Lru { layer: LAYER, group: 0 }), "{order}");
        let mut waits = 0;
        while step(&mut simulation, &mut scan, 0).1 != ScanProgress::Waits(key) {
            waits += 1;
            assert!(waits < 3, "{order}: it does not wait");
        }
        // In a queue, it has entered that first.
        assert_eq!(waits, u32::from(order == "queued"), "{order}");
        simulation.kernels.os.locks.release(key, other);
        assert_eq!(step(&mut simulation, &mut scan, 0).1, ScanProgress::Continues, "{order}");
        assert!(simulation.kernels.os.locks.is_held(key), "{order}: the scan has it");
        steps_to_end(&mut simulation, &mut scan, 0);
        assert!(!simulation.kernels.os.locks.any_held(), "{order}");
    }
}
