//! All orders of a few faults, calls and scans whose locks are given up for a device, or held for a batch.

use super::interleavings::Actor::{self, Fork, MapAndStore, Reclaim, Unmap};
use super::interleavings::{BASE, FILE, PAGE, Race, SWAP, explore_some, kept, load, store};
use pagelab_engine::base::addr::VirtAddr;
use std::cell::Cell;

/// Races with a file of which nothing is in memory.
fn explore_file(actors: &[Actor], rules: &str, finish: &dyn Fn(&Race)) -> usize {
    let rules = format!("kernel.vma_fallbacks={rules}");
    let set = [
        rules.as_str(),
        r#"kernel.storage={"read_cycles":100,"write_cycles":100,"queue_depth":1}"#,
        "kernel.page_cache=cold",
        "kernel.read_ahead_bytes=4KiB",
        "kernel.fault_around_bytes=4KiB",
        "kernel.threads.kswapd=off",
    ];
    explore_some(actors, &set, 4, finish)
}

/// Pages of the file's mapping that the parent maps; and whether the first of them is anonymous.
fn mapped_of_file(race: &Race) -> (Vec<u64>, Option<bool>) {
    let layer = &race.simulation.kernels.os.layers[0];
    let first = VirtAddr(BASE + FILE * PAGE);
    let pages = layer.mapped(race.parent.index, first, first + 16 * PAGE);
    let numbers = pages.iter().map(|page| (page.va.0 - BASE) / PAGE - FILE).collect();
    (numbers, pages.first().map(|page| layer.memory.page_use.is_anonymous(page.mapping.pfn)))
}

#[test]
fn a_fault_that_waits_for_a_device_without_its_lock_looks_again() {
    // Before 6.7, a fault of a file takes the lock of the space first; later it gives up that of its VMA.
    for rules in ["linux-6.4", "linux-6.10"] {
        let while_it_reads = Cell::new(0);
        let count = explore_file(&[load(FILE), Unmap { page: FILE, pages: 1 }], rules, &|race| {
            assert_eq!(mapped_of_file(race).0, [0; 0], "{rules}");
            let (outside, layer) =
                (race.simulation.kernels.os.faults[0].outside, &race.simulation.kernels.os.layers[0]);
            let read = layer.memory.page_use.cached_frames();
            while_it_reads.set(while_it_reads.get() + u32::from((read, outside) == (1, 1)));
        });
        assert!(count > 5 && while_it_reads.get() > 0, "{rules}: {count} schedules, {while_it_reads:?}");
        let replaced = explore_file(&[load(FILE), MapAndStore { page: FILE }], rules, &|race| {
            assert_eq!(mapped_of_file(race), (vec![0], Some(true)), "{rules}: the page of the mapping that is there");
        });
        assert!(replaced > 10, "{rules}: {replaced} schedules");
        let forked = explore_file(&[load(FILE), Fork], rules, &|race| {
            assert_eq!(mapped_of_file(race), (vec![0], Some(false)), "{rules}");
        });
        assert!(forked > 5, "{rules}: {forked} schedules");
    }
}

#[test]
fn faults_that_wait_for_one_page_of_a_file_read_it_once() {
    for rules in ["linux-6.4", "linux-6.10"] {
        let count = explore_file(&[load(FILE), load(FILE)], rules, &|race| {
            assert_eq!(mapped_of_file(race), (vec![0], Some(false)), "{rules}");
            assert_eq!(race.simulation.kernels.os.layers[0].memory.page_use.cached_frames(), 1, "{rules}");
        });
        assert!(count > 20, "{rules}: {count} schedules");
    }
}

#[test]
fn scans_and_faults_hold_the_lock_of_the_lists_in_turn() {
    let set = [
        SWAP,
        "kernel.threads.kswapd=off",
        r#"kernel.held_locks={"zone_page":{"instructions":1},"lru_page":{"instructions":1}}"#,
        // Each fault of a CPU but its first one puts a page on the lists.
        "kernel.lru_batch=1",
    ];
    let contended = [Cell::new(0), Cell::new(0)];
    for (actors, order, expected, least) in [
        (&[store(0), Reclaim][..], "unordered", &[0, 1][..], 20),
        (&[store(0), Reclaim], "queued", &[0, 1], 20),
        (&[load(1), Unmap { page: 0, pages: 1 }, Reclaim], "unordered", &[1], 20),
        (&[store(0), store(1), Reclaim], "unordered", &[0, 1], 500),
        (&[store(5), store(6), Reclaim], "queued", &[0, 1, 5, 6], 500),
    ] {
        let order = format!("kernel.spin_locks={order}");
        let count = explore_some(actors, &[&set[..], &[&order]].concat(), 3, &|race| {
            assert_eq!(kept(race)[0], expected, "{actors:?}");
            let stats = race.simulation.statistics();
            for (lock, contended) in ["lru", "page_table"].iter().zip(&contended) {
                let waits = stats.values[&format!("layer.native.lock.{lock}.contended")];
                contended.set(contended.get() + u32::from(waits > 0));
            }
        });
        assert!(count > least, "{actors:?}: {count} schedules");
    }
    assert!(contended.iter().all(|count| count.get() > 10), "{contended:?} schedules in which one waits");
}
