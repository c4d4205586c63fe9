//! The walking skeleton: several cores, several layers, faults inside faults.

use crate::common::{ScriptWriter, assert_conserved, config, mmap, run, run_all, run_workload};
use pagelab_engine::base::addr::{PageSize, VirtAddr};
use pagelab_engine::base::cycles::Cycles;
use pagelab_engine::base::ids::SpaceIx;
use pagelab_engine::machine::cpu::Cpu;
use pagelab_trace::{Access, AccessKind, EventKind, MapFlags, Protection};

const BASE: u64 = 0x7f00_0000_0000;

#[test]
fn two_cores_fault_on_one_page_and_share_the_frame() {
    let mut script = ScriptWriter::new();
    let other = script.thread(0);
    script.mmap(0, BASE, 0x10_0000);
    script.store(0, BASE);
    script.store(other, BASE + 64);
    let (simulation, stats) = run(&config("radix", &["engine.sync_quantum_cycles=0"]), script.finish(), &[0, 2]);
    assert_eq!(stats.values["fault.minor.count"], 1, "one handler maps the page");
    assert_eq!(stats.values["fault.raced.count"], 1, "the other finds it");
    assert!(stats.values["cycles.lock_wait"] > 0, "after it has waited");
    let layer = &simulation.kernels.os.layers[0];
    let pages = layer.mapped(SpaceIx(1), VirtAddr(BASE), VirtAddr(BASE + 0x10_0000));
    assert_eq!(pages.len(), 1);
    assert_conserved(&stats);
}

#[test]
fn one_core_runs_while_the_other_is_blocked() {
    let mut script = ScriptWriter::new();
    let other = script.thread(0);
    script.mmap(0, BASE, 0x10_0000);
    // One CPU maps the page that the other one waits for. CPU 0 runs for much longer than the handler.
    script.store(0, BASE);
    script.store(other, BASE + 64);
    for n in 0..200 {
        script.load(0, BASE + n * 4096);
    }
    // A short handler, with few frames for the CPU's list.
    let set = ["engine.sync_quantum_cycles=0", "kernel.per_cpu_lists=linux-4.19"];
    let (simulation, stats) = run(&config("radix", &set), script.finish(), &[0, 2]);
    let waited = |cpu: &Cpu| cpu.clock.spent(pagelab_engine::core_model::clock::Class::LockWait);
    let waited = simulation.scheduler.cpus.iter().map(waited).sum::<Cycles>();
    assert!(waited > Cycles::ZERO && waited * 20 < simulation.scheduler.cpus[0].clock.now(), "{waited:?}");
    assert_eq!(stats.values["fault.minor.count"], 200);
    assert_conserved(&stats);
}

#[test]
fn walks_make_one_reference_a_level_and_layer() {
    for (system, refs) in [
        ("radix-no-mmu-cache", 4),
        ("nested-radix-no-mmu-cache", 24),
        ("nested-3", 124),
        ("radix-perfect-mmu-cache", 1),
        ("nested-radix-perfect-mmu-cache", 3),
    ] {
        let stats = run_workload(&config(system, &[]), "random:size=64MiB,accesses=60K");
        let (count, made) = (stats.values["walk.count"], stats.values["walk.refs"]);
        assert!(count > 10_000, "{system}: {count} walks");
        assert_eq!(made, refs * count, "{system}");
        assert_conserved(&stats);
    }
}

#[test]
fn a_guests_fault_step_faults_in_the_host() {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 0x10_0000);
    script.store(0, BASE);
    let (simulation, stats) = run(&config("nested-radix-cold", &[]), script.finish(), &[0]);
    assert_eq!(stats.values["fault.minor.count"], 1);
    // The guest's handler touches at least its page's metadata, the new table pages, the zeroed frame and the
    // allocator's line for the first time, each in an unbacked frame.
    assert!(stats.values["fault.nested.count"] >= 5, "{}", stats.values["fault.nested.count"]);
    assert!(stats.values["fault.nested.cycles"] < stats.values["fault.cycles"]);
    // All pages mapped by the guest have frames of the machine.
    let guest = &simulation.kernels.os.layers[0];
    let page = guest.mapped(SpaceIx(1), VirtAddr(BASE), VirtAddr(BASE + 4096))[0];
    let host = guest.host.expect("the guest has a host");
    let below = &simulation.kernels.os.layers[host.layer];
    let gpa = VirtAddr(page.mapping.pfn.addr().0);
    assert_eq!(below.mapped(host.index, gpa, gpa + 4096).len(), 1);
    assert_conserved(&stats);
}

#[test]
fn guests_of_one_host_never_share_a_frame() {
    let source = |seed: u64| {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 0x100_0000);
        for n in 0..3000_u64 {
            script.store(0, BASE + (n * 7919 + seed) % 4096 * 4096);
        }
        script.finish()
    };
    let (simulation, stats) = run_all(&config("two-guests", &[]), vec![(source(1), &[0][..]), (source(2), &[2][..])]);
    let mut frames = Vec::new();
    let host = &simulation.kernels.os.layers[2];
    for guest in &simulation.kernels.os.layers[..2] {
        let space = guest.host.expect("both are guests").index;
        for page in host.mapped(space, VirtAddr(0), VirtAddr(guest.memory_bytes())) {
            frames.extend((0..1 << page.mapping.size.order()).map(|n| page.mapping.pfn.0 + n));
        }
    }
    let all = frames.len();
    frames.sort_unstable();
    frames.dedup();
    assert_eq!(frames.len(), all, "a frame is mapped twice");
    assert_eq!(simulation.kernels.os.layers[1].paging.page_size, PageSize::Size2M);
    assert_conserved(&stats);
}

#[test]
fn after_the_last_exit_all_memory_is_free() {
    for system in ["radix", "radix-2m", "radix-5level"] {
        let config = config(system, &[]);
        let mut nothing = ScriptWriter::new();
        nothing.event(0, EventKind::Exit { code: 0 });
        let (empty, _) = run(&config, nothing.finish(), &[0]);
        let booted = empty.kernels.os.layers[0].memory.free_frames();
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 0x100_0000);
        for n in 0..500_u64 {
            script.store(0, BASE + n * 31 % 4096 * 4096);
        }
        script.event(0, EventKind::Munmap { addr: BASE + 0x10_1000, len: 0x7000 });
        script.event(
            0,
            EventKind::Mprotect {
                addr: BASE + 0x1000,
                len: 0x1000,
                prot: Protection { read: true, ..Protection::default() },
            },
        );
        script.event(
            0,
            EventKind::Mremap {
                old_addr: BASE + 0x40_0000,
                old_len: 0x3000,
                new_addr: BASE + 0x4000_1000,
                new_len: 0x5000,
            },
        );
        script.load(0, BASE + 0x4000_1000);
        script.event(0, EventKind::Fork { child: pagelab_trace::ProcessIx(1) });
        let child = script.thread(1);
        script.store(child, BASE);
        script.event(child, EventKind::Exit { code: 0 });
        script.event(0, EventKind::Exec { path: "/bin/true".into() });
        script.event(0, mmap(BASE, 0x2000, Protection::READ_WRITE));
        script.store(0, BASE);
        script.event(0, EventKind::Exit { code: 0 });
        let (simulation, stats) = run(&config, script.finish(), &[0]);
        let allocator = simulation.kernels.os.layers[0].frame_allocator();
        assert_eq!(simulation.kernels.os.layers[0].memory.free_frames(), booted, "{system}");
        allocator.check_invariants();
        assert_eq!(stats.values["accesses.refused"], 0, "{system}");
        assert_conserved(&stats);
    }
}

#[test]
fn a_forked_child_begins_after_the_fork() {
    for quantum in ["engine.sync_quantum_cycles=0", "engine.sync_quantum_cycles=100000"] {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 0x10_0000);
        // The parent's CPU is busy long before the fork; the child's is otherwise idle.
        for n in 0..200 {
            script.store(0, BASE + n * 4096);
        }
        script.event(0, EventKind::Fork { child: pagelab_trace::ProcessIx(1) });
        let child = script.thread(1);
        script.store(child, BASE);
        script.event(child, EventKind::Exit { code: 0 });
        let (simulation, stats) = run(&config("radix", &[quantum]), script.finish(), &[0, 2]);
        assert_eq!(stats.values["accesses.refused"], 0, "the child has its parent's mappings");
        assert_eq!(simulation.programs.inputs[0].spaces().count(), 1, "the child has ended");
        assert_conserved(&stats);
    }
}

#[test]
fn an_access_that_a_fault_interrupts_makes_each_of_its_lines_once() {
    let mut script = ScriptWriter::new();
    let other = script.thread(0);
    script.mmap(0, BASE, 0x100_0000);
    // Accesses across two new pages, from two CPUs that alternate step by step.
    for n in 0..300 {
        for (thread, first) in [(0, BASE), (other, BASE + 0x80_0000)] {
            script.access_of(thread, Access::new(AccessKind::Store, first + n * 0x2000 + 0xffc, 8));
        }
    }
    let (_, stats) = run(&config("radix", &["engine.sync_quantum_cycles=0"]), script.finish(), &[0, 2]);
    assert_eq!(stats.values["fault.minor.count"], 1200);
    assert_eq!(stats.values["cache.refs.data"], 1200, "a line an access and page");
    // Zeroing brought the first line of each page into the caches, except what 128 KiB of later pages evicted.
    assert!(stats.values["l1d.misses.data"] <= 600, "an access misses once: {}", stats.values["l1d.misses.data"]);
    assert_conserved(&stats);
}

#[test]
fn a_table_that_two_handlers_build_at_once_is_linked_once() {
    let boot = |accesses: u64| {
        let mut script = ScriptWriter::new();
        let other = script.thread(0);
        script.mmap(0, BASE, 0x1000_0000);
        // Neighbouring pages of regions without tables, from two CPUs in parallel.
        for n in 0..accesses {
            script.store(0, BASE + n * 0x20_0000);
            script.store(other, BASE + n * 0x20_0000 + 0x1000);
        }
        script.event(other, EventKind::ThreadExit);
        script.event(0, EventKind::Exit { code: 0 });
        let (simulation, stats) = run(&config("radix", &["engine.sync_quantum_cycles=0"]), script.finish(), &[0, 2]);
        assert!(
            simulation.scheduler.cpus.iter().all(|cpu| cpu.space.is_none()),
            "nobody runs in a space that has ended"
        );
        (simulation.kernels.os.layers[0].memory.free_frames(), stats)
    };
    let ((booted, _), (free, stats)) = (boot(0), boot(100));
    assert_eq!(free, booted, "the frame of a table that came second is given back");
    let (tables, pages) = (stats.values["layer.native.fault.tables"], stats.values["fault.minor.count"]);
    assert_eq!((tables, pages), (100 + 2, 200));
    assert_conserved(&stats);
}

#[test]
fn an_unmapped_range_keeps_the_tables_that_its_neighbours_need() {
    // Two mappings in one leaf table; a third one in another leaf table of the same upper ones.
    let tables = |neighbour: bool, again: bool| {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 0x10_0000);
        if neighbour {
            script.mmap(0, BASE + 0x18_0000, 0x1000);
        }
        script.mmap(0, BASE + 0x40_0000, 0x1000);
        script.store(0, BASE + 0x40_0000);
        script.store(0, BASE);
        script.event(0, EventKind::Munmap { addr: BASE, len: 0x10_0000 });
        if again {
            script.store(0, BASE + 0x18_0000);
        }
        let (simulation, stats) = run(&config("radix", &[]), script.finish(), &[0]);
        let spaces: Vec<_> = simulation.programs.inputs[0].spaces().collect();
        crate::common::assert_frames_conserved(&simulation, &spaces);
        (stats.values["layer.native.page_table_frames"], stats.values["layer.native.fault.tables"])
    };
    let ((alone, built), (shared, _), (_, built_again)) =
        (tables(false, false), tables(true, false), tables(true, true));
    assert_eq!(shared, alone + 1, "the empty table is still the neighbour's");
    assert_eq!(built_again, built, "the neighbour's first fault finds it");
}

#[test]
fn a_vforked_child_shares_its_parents_memory_until_it_execs() {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 0x10_0000);
    script.store(0, BASE);
    script.event(0, EventKind::Vfork { child: pagelab_trace::ProcessIx(1) });
    let child = script.thread(1);
    // One page is mapped already, the other one by the child, for both.
    script.store(child, BASE);
    script.store(child, BASE + 4096);
    script.event(child, EventKind::Exec { path: "/bin/true".into() });
    script.event(child, mmap(BASE, 0x2000, Protection::READ_WRITE));
    script.store(child, BASE);
    script.event(child, EventKind::Exit { code: 0 });
    script.load(0, BASE);
    script.load(0, BASE + 4096);
    let (simulation, stats) = run(&config("radix", &[]), script.finish(), &[0]);
    assert_eq!(stats.values["fault.minor.count"], 3, "two in the shared memory, one in the child's own");
    assert_eq!(stats.values["accesses.refused"], 0);
    assert_eq!((stats.values["fork.pages"], stats.values["fault.copy.count"]), (0, 0));
    assert_eq!(simulation.programs.inputs[0].spaces().count(), 1, "the child has ended");
    assert_conserved(&stats);
}

#[test]
fn a_fork_shares_pages_until_one_side_writes() {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 0x10_0000);
    (0..3).for_each(|page| script.store(0, BASE + page * 4096));
    script.event(0, EventKind::Fork { child: pagelab_trace::ProcessIx(1) });
    let child = script.thread(1);
    script.load(child, BASE); // shared
    script.store(child, BASE); // copied
    script.store(0, BASE); // the parent's alone by now
    script.store(0, BASE + 4096); // copied
    script.event(child, EventKind::Exit { code: 0 });
    script.store(0, BASE + 2 * 4096); // the child's share is gone
    script.store(0, BASE + 2 * 4096); // written already
    let (_, stats) = run(&config("radix", &[]), script.finish(), &[0]);
    assert_eq!(stats.values["fork.pages"], 3);
    assert_eq!(stats.values["fault.copy.count"], 2);
    assert_eq!(stats.values["fault.reuse.count"], 2);
    assert_eq!(stats.values["fault.minor.count"], 3 + 2 + 2);
    assert_conserved(&stats);
}

#[test]
fn reads_of_untouched_memory_share_the_zero_page() {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 0x10_0000);
    (0..10).for_each(|page| script.load(0, BASE + page * 4096));
    script.store(0, BASE);
    let (simulation, stats) = run(&config("radix", &[]), script.finish(), &[0]);
    assert_eq!((stats.values["fault.zero_page.count"], stats.values["fault.minor.count"]), (10, 11));
    let pages = simulation.kernels.os.layers[0].mapped(SpaceIx(1), VirtAddr(BASE), VirtAddr(BASE + 0x10_0000));
    let zero = simulation.kernels.os.layers[0].memory.page_use.zero_page();
    assert_eq!(pages.iter().filter(|page| page.mapping.pfn == zero).count(), 9);
    assert!(stats.values["shootdown.count"] > 0, "the page's old translation is dropped");
    let off = config("radix", &["kernel.zero_page=off"]);
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 0x10_0000);
    script.load(0, BASE);
    script.store(0, BASE);
    assert_eq!(run(&off, script.finish(), &[0]).1.values["fault.minor.count"], 1);
}

#[test]
fn a_read_of_a_file_maps_the_pages_around_it() {
    let file = |script: &mut ScriptWriter, flags: u32| {
        let (prot, flags) = (Protection::READ_WRITE, MapFlags(flags));
        // The window of 16 pages starts with the mapping if the mapping starts inside an aligned window.
        let addr = BASE + 5 * 4096;
        script.event(
            0,
            EventKind::Mmap { addr, len: 0x40_0000, prot, flags, file: Some("f".into()), file_offset: 0x3000 },
        );
        addr
    };
    let mut script = ScriptWriter::new();
    let addr = file(&mut script, MapFlags::PRIVATE);
    script.load(0, addr + 7 * 4096);
    (0..16).for_each(|page| script.load(0, addr + page * 4096)); // in the window
    script.load(0, addr + 16 * 4096); // the next one
    script.store(0, addr); // copied: it was mapped to be read
    script.store(0, addr + 300 * 4096); // copied at once, without a window
    script.load(0, addr + 301 * 4096);
    let (simulation, stats) = run(&config("radix", &[]), script.finish(), &[0]);
    assert_eq!((stats.values["fault.cached.count"], stats.values["fault.copy.count"]), (3, 2));
    assert_eq!(stats.values["fault.minor.count"], 5);
    // 21 to 31 of the second window, because windows are aligned; the third lacks the page that the store mapped.
    assert_eq!(stats.values["fault.around.pages"], 15 + 10 + 14);
    assert_eq!(simulation.kernels.os.layers[0].memory.page_use.cached_frames(), 16 + 11 + 1 + 15);
    assert_conserved(&stats);
}

#[test]
fn populated_memory_takes_no_exception() {
    for (flags, pages) in [(MapFlags::POPULATE, 64), (0, 0)] {
        let mut script = ScriptWriter::new();
        let (prot, private) = (Protection::READ_WRITE, MapFlags::anonymous_private().0);
        let flags = MapFlags(private | flags);
        script.event(0, EventKind::Mmap { addr: BASE, len: 64 * 4096, prot, flags, file: None, file_offset: 0 });
        (0..64).for_each(|page| script.store(0, BASE + page * 4096));
        let (_, stats) = run(&config("radix", &[]), script.finish(), &[0]);
        assert_eq!(stats.values["populate.pages"], pages);
        assert_eq!(stats.values["fault.minor.count"], 64);
        assert_eq!(stats.values["fault.stage.entry.cycles"] == 0, pages > 0);
        assert_conserved(&stats);
    }
}

#[test]
fn a_fault_may_map_several_pages() {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 10 * 4096);
    (0..10).for_each(|page| script.store(0, BASE + page * 4096));
    let (_, stats) = run(&config("radix", &["kernel.pages_per_fault=4"]), script.finish(), &[0]);
    assert_eq!((stats.values["fault.minor.count"], stats.values["layer.native.pages.4K"]), (3, 10));
    assert_conserved(&stats);
}

#[test]
fn each_layer_may_map_its_own_number_of_pages_per_fault() {
    const PAGES: u64 = 64;
    let counts = |set: &[&str]| {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, PAGES * 4096);
        (0..PAGES).for_each(|page| script.store(0, BASE + page * 4096));
        let (_, stats) = run(&config("nested-radix-cold", set), script.finish(), &[0]);
        assert_conserved(&stats);
        ["fault.minor.count", "fault.nested.count"].map(|name| stats.values[name])
    };
    let of_layer = |layer: &str, pages: u64| format!("system.layers.{layer}.pages_per_fault={pages}");
    let [_, nested] = counts(&[]);
    assert!(nested >= PAGES);
    for pages in [1, 4, 16] {
        // The host still gets a fault for each of the guest's frames.
        assert_eq!(counts(&[&of_layer("guest", pages)]), [PAGES / pages, nested]);
        let kernel = format!("kernel.pages_per_fault={pages}");
        assert_eq!(counts(&[&kernel, &of_layer("host", 1)]), [PAGES / pages, nested]);
        let [minor, host_alone] = counts(&[&of_layer("host", pages)]);
        assert_eq!(minor, PAGES);
        assert!(pages == 1 || host_alone <= nested / 2, "{host_alone} of {nested} with {pages}");
    }
}

#[test]
fn a_fault_that_maps_several_pages_passes_by_those_that_are_there() {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE + 2 * 4096, 4096);
    script.store(0, BASE + 2 * 4096);
    // The merged mapping includes the page.
    script.mmap(0, BASE, 2 * 4096);
    script.mmap(0, BASE + 3 * 4096, 5 * 4096);
    script.store(0, BASE);
    let (_, stats) = run(&config("radix", &["kernel.pages_per_fault=5"]), script.finish(), &[0]);
    let values = ["fault.minor.count", "fault.walk.count", "layer.native.pages.4K"].map(|name| stats.values[name]);
    assert_eq!(values, [2, 2, 5], "of pages 0 to 4 all but 2");
    assert_conserved(&stats);
}

#[test]
fn shared_anonymous_memory_is_one_for_all_that_inherit_it() {
    let mut script = ScriptWriter::new();
    let (prot, flags) = (Protection::READ_WRITE, MapFlags(MapFlags::SHARED | MapFlags::ANONYMOUS));
    for addr in [BASE, BASE + 0x10_0000] {
        script.event(0, EventKind::Mmap { addr, len: 0x10_0000, prot, flags, file: None, file_offset: 0 });
    }
    script.store(0, BASE);
    script.event(0, EventKind::Fork { child: pagelab_trace::ProcessIx(1) });
    let child = script.thread(1);
    script.load(child, BASE);
    script.store(child, BASE + 4096);
    script.store(0, BASE + 4096);
    script.store(0, BASE + 0x10_0000); // another object
    let set = [r#"kernel.scheduler={"kind":"recorded"}"#];
    let (simulation, stats) = run(&config("radix", &set), script.finish(), &[0]);
    assert_eq!((stats.values["fault.minor.count"], stats.values["fault.copy.count"]), (5, 0));
    let frames = |space| {
        let pages = simulation.kernels.os.layers[0].mapped(space, VirtAddr(BASE), VirtAddr(BASE + 0x20_0000));
        pages.iter().map(|page| page.mapping.pfn).collect::<Vec<_>>()
    };
    let (parent, child) = (frames(SpaceIx(1)), frames(SpaceIx(2)));
    assert_eq!((parent.len(), &parent[..2]), (3, &child[..]));
    crate::common::assert_frames_conserved(&simulation, &simulation.programs.inputs[0].spaces().collect::<Vec<_>>());
}

#[test]
fn advice_decides_which_mappings_get_large_pages() {
    // MADV_HUGEPAGE for the first, MADV_NOHUGEPAGE for the second, none for the third.
    for (policy, large) in [("always", 2), ("madvise", 1)] {
        let mut script = ScriptWriter::new();
        for (n, advice) in [(0, Some(14)), (1, Some(15)), (2, None)] {
            let addr = BASE + n * 0x4000_0000;
            script.mmap(0, addr, 0x20_0000);
            if let Some(advice) = advice {
                script.event(0, EventKind::Madvise { addr, len: 0x20_0000, advice });
            }
            script.store(0, addr);
        }
        let policy = format!("system.layers.0.large_pages={policy}");
        let (_, stats) = run(&config("radix-2m", &[&policy]), script.finish(), &[0]);
        assert_eq!(stats.values["layer.native.pages.2M"], large, "{policy}");
        assert_eq!(stats.values["layer.native.pages.4K"], 3 - large, "{policy}");
    }
}

#[test]
fn aged_memory_has_few_large_blocks_and_says_so() {
    let age = r#"system.layers.0.age={"free_fraction":0.5,"huge_free_fraction":0.1,"unmovable_fraction":0.2,"seed":1}"#;
    let large = |set: &[&str]| run_workload(&config("radix-2m", set), "stride:size=2GiB,stride=4096,passes=1").values;
    let (fresh, aged) = (large(&[]), large(&[age]));
    assert_eq!(fresh["layer.native.pages.2M"], 1024);
    let huge = aged["layer.native.aged.huge_free_bytes"];
    assert!(aged["layer.native.aged.free_bytes"].abs_diff(10 * huge) < 64 << 20, "a tenth of the free memory");
    assert!(aged["layer.native.pages.2M"] <= huge >> 21, "no more than there were");
    assert!(aged["layer.native.pages.4K"] > 100_000, "the rest is mapped by small pages");
    assert!(aged["layer.native.frames.per_cpu_hits"] > 10 * aged["layer.native.frames.zone_locks"]);
}
