//! Waiting by kind of lock: closed queues of n CPUs, each of which works z cycles and then needs a lock for h.

use crate::common::{ScriptWriter, assert_conserved, run, run_all};
use pagelab_engine::config::{Assembly, Config, assemble};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{Access, AccessKind, EventKind, MapFlags, ProcessIx, Protection};

const BASE: u64 = 0x7f00_0000_0000;
/// Pages that each thread touches.
const PAGES: u64 = 32;

/// Bytes from the pages of a thread to those of the next one: in one page-table page, or with one each.
const TOGETHER: u64 = 0x1000 * PAGES;
const APART: u64 = 0x20_0000;

/// Threads on cores of their own that touch pages of one mapping.
fn faults(kernel: &str, threads: u32, distance: u64, extra: &[&str]) -> Statistics {
    let mut script = ScriptWriter::new();
    let all: Vec<u32> = std::iter::once(0).chain((1..threads).map(|_| script.thread(0))).collect();
    script.mmap(0, BASE, 8 * APART);
    for page in 0..PAGES {
        for (&thread, number) in all.iter().zip(0..) {
            let at = BASE + distance * number + 0x1000 * page;
            script.access_of(thread, Access::new(AccessKind::Store, at, 8));
        }
    }
    on_cores_with(kernel, extra, threads, script)
}

fn on_cores(extra: &[&str], threads: u32, script: ScriptWriter) -> Statistics {
    on_cores_with("linux-6.12", extra, threads, script)
}

/// A run on cores of their own.
fn on_cores_with(kernel: &str, extra: &[&str], threads: u32, script: ScriptWriter) -> Statistics {
    let config = configured(kernel, extra);
    let (_, stats) = run(&config, script.finish(), &(0..threads as usize).collect::<Vec<_>>());
    assert_conserved(&stats);
    stats
}

fn configured(kernel: &str, extra: &[&str]) -> Config {
    let fixed = ["machine.cores=8", "machine.threads_per_core=1", "engine.check=on"];
    let set: Vec<String> = fixed.iter().chain(extra).map(|&set| set.to_owned()).collect();
    let (machine, system) = (Some("xeon-silver-4114"), Some("radix"));
    assemble(&Assembly { machine, system, kernel: Some(kernel), set: &set }).unwrap()
}

/// Processes that run the same script, each on a core of its own.
fn processes(extra: &[&str], count: usize, script: &ScriptWriter) -> Statistics {
    let cpus: Vec<usize> = (0..count).collect();
    let sources = cpus.iter().map(|cpu| (script.clone().finish(), std::slice::from_ref(cpu))).collect();
    let (_, stats) = run_all(&configured("linux-6.12", extra), sources);
    assert_conserved(&stats);
    stats
}

/// Cycles per page under the lock of free pages and under that of the LRU lists.
fn held(zone: u64, lru: u64) -> String {
    format!(
        r#"kernel.held_locks={{"zone_page":{{"instructions":1,"cycles":{zone}}},"lru_page":{{"instructions":1,"cycles":{lru}}}}}"#
    )
}

fn lock(stats: &Statistics, what: &str) -> u64 {
    stats.values[&format!("layer.native.lock.{what}")]
}

#[test]
fn faults_wait_for_the_lock_of_a_page_table_as_a_closed_queue() {
    for held in [5_000, 50_000] {
        let install = format!("kernel.fault.install.cycles={held}");
        // Lines cost the same everywhere, so that only the lock is waited for.
        let set = [install.as_str(), "engine.kernel_refs=off", "engine.sync_quantum_cycles=0"];
        let alone = faults("linux-6.12", 1, TOGETHER, &set);
        let cycle = alone.values["fault.cycles"] / alone.values["fault.minor.count"];
        for (threads, order) in [2, 4, 8].into_iter().flat_map(|threads| [(threads, "unordered"), (threads, "queued")])
        {
            let order = format!("kernel.spin_locks={order}");
            let set: Vec<&str> = set.into_iter().chain([order.as_str()]).collect();
            let stats = faults("linux-6.12", threads, TOGETHER, &set);
            let n = u64::from(threads);
            let expected = (n * held).saturating_sub(cycle) * n * PAGES;
            let (waited, idle) = (lock(&stats, "page_table.wait_cycles"), stats.values["cycles.idle"]);
            let busy = stats.values["fault.cycles"];
            // Without a queue, threads that get the lock less often end later, while the others are idle.
            let apart = (waited + idle).abs_diff(expected) * 100 / (busy + expected);
            assert!(apart <= 4, "{n} CPUs, {held} of {cycle} cycles, {order}: waited {waited}, not {expected}");
            if n * held > cycle {
                let contended = lock(&stats, "page_table.contended");
                assert!(contended * 10 > n * PAGES * 8, "{n} CPUs, {held}, {order}");
                // A task that waits in a queue is woken once, when it has the lock, and all end at about the same time.
                let queued = order.ends_with("queued")
                    && contended <= n * PAGES
                    && idle * 50 < n * stats.values["elapsed_cycles"];
                assert!(queued || order.ends_with("unordered"), "{n} CPUs, {held}: {contended} waits, {idle} idle");
            }
        }
    }
}

#[test]
fn a_queue_refers_to_the_lock_and_to_the_nodes_of_its_waiters() {
    // Without caches, each reference takes four cycles.
    let set = ["kernel.fault.install.cycles=50000", "engine.kernel_refs=off", "engine.sync_quantum_cycles=0"];
    let queued: Vec<&str> = set.iter().copied().chain(["kernel.spin_locks=queued"]).collect();
    let install = |stats: &Statistics| stats.values["fault.stage.install.cycles"];
    let alone = install(&faults("linux-6.12", 1, TOGETHER, &queued)) / PAGES;
    for threads in [2, 3, 8] {
        let stats = faults("linux-6.12", threads, TOGETHER, &queued);
        let (count, contended) = (stats.values["fault.minor.count"], lock(&stats, "page_table.contended"));
        assert!(contended * 10 > count * 9, "{threads} CPUs: {contended} of {count}");
        // With several CPUs, mapped pages are counted in batches, which may cost a reference more.
        let more = (install(&stats) - alone * count) / 4;
        let batches = count / 64 + 8;
        let expected = match threads {
            // Its pending bit; then the word, read and written.
            2 => 3 * contended,
            // Behind the holder and other waiters: its node, the word, the tail, the node before its own; at the
            // hand-over its node, the word, read and written, and the node behind it.
            _ => 8 * contended,
        };
        let apart = more.abs_diff(expected);
        assert!(apart <= batches + expected / 10, "{threads} CPUs: {more} references, not {expected}, for {contended}");
        if threads == 2 {
            assert!(apart <= batches, "{more} references, not {expected}");
        }
    }
}

#[test]
fn faults_of_old_kernels_wait_for_the_line_of_mmap_sem_alone() {
    let set = ["machine.cache.cache_to_cache_latency_cycles=20000", "engine.sync_quantum_cycles=0"];
    for (kernel, lock_name) in [("linux-4.9", "mmap_read"), ("linux-6.12", "vma")] {
        let stats = faults(kernel, 8, APART, &set);
        let count = stats.values["fault.minor.count"];
        let waited = lock(&stats, &format!("{lock_name}.queue_cycles"));
        let all = stats.values["coherence.queue_cycles"];
        assert!(waited * 10 > all * 9, "{kernel}: {waited} of {all}");
        // All but a few faults find the line on its way to another core.
        assert!(lock(&stats, &format!("{lock_name}.queued")) * 10 > count * 9, "{kernel}");
        // They take the time of their CPUs: the line serves a fault at a time.
        assert!(waited > stats.values["cycles"] / 2, "{kernel}: {waited}");
    }
}

#[test]
fn faults_that_move_batches_wait_for_shared_locks_as_a_closed_queue() {
    const TOUCHED: u64 = 1024;
    let simulate = |threads: u32, extra: &[&str]| {
        let mut script = ScriptWriter::new();
        let all: Vec<u32> = std::iter::once(0).chain((1..threads).map(|_| script.thread(0))).collect();
        script.mmap(0, BASE, 64 * APART);
        for page in 0..TOUCHED {
            for (&thread, number) in all.iter().zip(0..) {
                script.access_of(thread, Access::new(AccessKind::Store, BASE + 8 * APART * number + 0x1000 * page, 8));
            }
        }
        // Without caches, and with a table for each thread.
        on_cores(extra, threads, script)
    };
    // The lock of free pages, then that of the LRU lists; the cycles per page are so many that their work dominates.
    for (name, zone, lru) in [("zone", 2000, 0), ("lru", 0, 2000)] {
        let costs = held(zone, lru);
        // In turn, so that all end at about the same time.
        let queued = "kernel.spin_locks=queued";
        // Batches of one size, so that the last one is short beside all.
        let lists = "kernel.per_cpu_lists=linux-4.19";
        let set = [costs.as_str(), queued, lists, "engine.kernel_refs=off", "engine.sync_quantum_cycles=0"];
        let without = simulate(1, &set[1..]);
        let alone = simulate(1, &set);
        // The held time of all batches of a thread.
        let held = alone.values["elapsed_cycles"] - without.values["elapsed_cycles"];
        assert!(held > TOUCHED * 2000 / 2, "{name}: {held} cycles");
        for threads in [2, 4, 8] {
            let stats = simulate(threads, &set);
            let expected = alone.values["elapsed_cycles"].max(u64::from(threads) * held);
            let elapsed = stats.values["elapsed_cycles"];
            let apart = elapsed.abs_diff(expected) * 100 / expected;
            assert!(apart <= 15, "{name}, {threads} CPUs: {elapsed} cycles, not {expected}");
            assert!(lock(&stats, &format!("{name}.contended")) > 0, "{name}, {threads} CPUs");
        }
    }
}

#[test]
fn a_wait_begins_when_the_core_has_its_data() {
    // A child's loads are on their way when it truncates a file, of which its parent has a page mapped for a long time.
    let mut script = ScriptWriter::new();
    let (own, len) = (BASE + APART, 0x1000);
    script.mmap(0, own, len);
    script.store(0, own);
    let (file, flags) = (Some("data".into()), MapFlags(MapFlags::PRIVATE));
    let map = EventKind::Mmap { addr: BASE, len, prot: Protection::READ_WRITE, flags, file, file_offset: 0 };
    script.event(0, map);
    script.load(0, BASE);
    script.event(0, EventKind::Fork { child: ProcessIx(1) });
    let child = script.thread(1);
    script.store(0, BASE);
    script.access_of(child, Access { gap: 40_000, ..Access::new(AccessKind::Load, own, 8) });
    (1..9).for_each(|line| script.load(child, own + line * 64));
    script.event(child, EventKind::Truncate { file: "data".into(), old_len: len, new_len: 0 });
    let core = r#"machine.core={"model":"window","cycles_per_instruction":0.25}"#;
    let stats = on_cores(&["kernel.fault.install.cycles=1000000", "engine.sync_quantum_cycles=0", core], 2, script);
    let waited = lock(&stats, "mmap_write.wait_cycles");
    assert!(waited > 900_000, "{waited}");
    assert_eq!(waited, stats.values["cycles.lock_wait"]);
}

/// In turn, without caches, and with lines that cost the same everywhere, so that only locks are waited for.
const IN_TURN: [&str; 3] = ["kernel.spin_locks=queued", "engine.kernel_refs=off", "engine.sync_quantum_cycles=0"];
/// Pages that faults of a CPU add to the LRU lists at a time.
const BATCH: u64 = 255;

/// CPUs' lists of free pages that give a batch of 63 back when they have 256.
const SHORT_LISTS: &str =
    r#"system.layers.native.frame_allocator={"kind":"linux","pcp":{"rules":"linux-4.19","batch":63,"high":256}}"#;

/// Pages that each process touches, and then unmaps by a call.
const UNMAPPED: u64 = 2048;

/// Processes on CPUs of their own that touch pages and perhaps unmap them, at a cost per page of the call.
fn unmapping(count: usize, calls: bool, unmap: u64, costs: &str) -> Statistics {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, UNMAPPED * 0x1000);
    (0..UNMAPPED).for_each(|page| script.store(0, BASE + page * 0x1000));
    if calls {
        script.event(0, EventKind::Munmap { addr: BASE, len: UNMAPPED * 0x1000 });
    }
    let price = format!(
        r#"kernel.mapping_calls={{"call":{{"instructions":1,"cycles":100}},"unmap_page":{{"instructions":1,"cycles":{unmap}}},"change_page":{{"instructions":1}},"downgrade":"on"}}"#
    );
    let set: Vec<&str> = IN_TURN.into_iter().chain([SHORT_LISTS, &price, costs]).collect();
    processes(&set, count, &script)
}

#[test]
fn calls_that_free_pages_wait_for_the_lock_of_the_lists_as_a_closed_queue() {
    const LRU: u64 = 2000;
    // Pages are freed when all are unmapped, whatever the call's own work for them takes. So all calls wait for all
    // others.
    for unmap in [100, 5000] {
        let simulate = |count: usize, cycles: u64| {
            let [busy, idle] = [true, false].map(|calls| unmapping(count, calls, unmap, &held(0, cycles)));
            let waited = |stats: &Statistics| if count > 1 { lock(stats, "lru.wait_cycles") } else { 0 };
            (busy.values["elapsed_cycles"] - idle.values["elapsed_cycles"], waited(&busy) - waited(&idle))
        };
        let (without, alone) = (simulate(1, 0).0, simulate(1, LRU).0);
        let all_held = alone - without;
        assert_eq!(all_held, UNMAPPED * LRU, "each freed page is under the lock once");
        for n in [2, 4, 8] {
            let ((elapsed, waited), n) = (simulate(n, LRU), n as u64);
            let (expected, waits) = (alone + (n - 1) * all_held, (n - 1) * all_held * n);
            let what = format!("{unmap} per page, {n} CPUs");
            assert!(elapsed.abs_diff(expected) * 10 <= expected, "{what}: {elapsed} cycles, not {expected}");
            let most = (waits + n * alone) / 10;
            assert!(waited.abs_diff(waits) <= most, "{what}: waited {waited} cycles, not {waits}");
        }
    }
}

#[test]
fn calls_give_pages_back_to_the_zone_one_after_the_other() {
    const ZONE: u64 = 20_000;
    // With and without calls.
    let simulate = |count: usize, cycles: u64| {
        [true, false].map(|calls| unmapping(count, calls, 100, &held(cycles, 0)).values["elapsed_cycles"])
    };
    let ([busy, idle], [busy_without, idle_without]) = (simulate(1, ZONE), simulate(1, 0));
    let (refilled, all) = (idle - idle_without, busy - busy_without);
    let (returned, rest) = ((all - refilled) / (63 * ZONE), (all - refilled) % (63 * ZONE));
    // Batches are of 63 pages, and the CPU's list keeps fewer than 256.
    assert_eq!((rest, refilled % (63 * ZONE)), (0, 0), "{all} cycles, {refilled} of them before the calls");
    assert!(returned * 63 > UNMAPPED - 256 && returned * 63 <= UNMAPPED, "{returned} batches");
    for n in [2, 4, 8] {
        let (elapsed, expected) = (simulate(n, ZONE)[0], n as u64 * all);
        assert!(elapsed.abs_diff(expected) * 10 <= expected, "{n} CPUs: {elapsed} cycles, not {expected}");
    }
}

/// Pages that scans have had under the lock of the LRU lists: those examined, those of them put back, and those taken
/// from the active list, twice.
fn scanned(stats: &Statistics) -> u64 {
    let count = |what: &str| stats.values[what];
    2 * count("reclaim.scanned") - count("swap.out.pages") + 2 * count("reclaim.deactivated")
}

const SWAP: &str = r#"kernel.swap={"size_bytes":"256MiB","read_cycles":100,"write_cycles":100,"queue_depth":32}"#;

#[test]
fn scans_wait_for_the_lock_of_the_lists_as_a_closed_queue() {
    const LRU: u64 = 20_000;
    const TOUCHED: u64 = 2048;
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, TOUCHED * 0x1000);
    for _ in 0..2 {
        (0..TOUCHED).for_each(|page| script.store(0, BASE + page * 0x1000));
    }
    // Faults scan at the limit of their cgroup. Pages that start on the active list are examined as soon as they have
    // moved to the other one.
    for new_pages in ["inactive", "active"] {
        let (batch, new) = (format!("kernel.lru_batch={BATCH}"), format!("kernel.new_pages={new_pages}"));
        let limit = ["kernel.cgroup_limit_bytes=4MiB", "kernel.threads.kswapd=off", SWAP, &batch, &new];
        let simulate = |count: usize, cycles: u64| {
            let costs = held(0, cycles);
            let set: Vec<&str> = IN_TURN.into_iter().chain(limit).chain([costs.as_str()]).collect();
            processes(&set, count, &script)
        };
        let (without, alone) = (simulate(1, 0), simulate(1, LRU));
        assert_eq!(scanned(&alone), scanned(&without));
        let held = alone.values["elapsed_cycles"] - without.values["elapsed_cycles"];
        let faults = |stats: &Statistics| stats.values["fault.minor.count"] + stats.values["fault.major.count"];
        // A fault that finds its CPU's batch full adds it to the lists.
        let moved = scanned(&alone) + (faults(&alone) - 1) / BATCH * BATCH;
        assert_eq!(held, LRU * moved, "{new_pages}: each page is under the lock as often as it is moved");
        for count in [2, 4, 8] {
            let stats = simulate(count, LRU);
            let elapsed = stats.values["elapsed_cycles"];
            // One task at a time moves pages, and there is nearly always one.
            let expected = LRU * (scanned(&stats) + faults(&stats));
            let what = format!("{new_pages}, {count} CPUs: {elapsed} cycles");
            assert!(elapsed >= LRU * scanned(&stats), "{what}");
            assert!(elapsed.abs_diff(expected) * 10 <= expected, "{what}, not {expected}");
            assert!(lock(&stats, "lru.contended") > 0);
        }
    }
}
