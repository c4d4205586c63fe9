//! Hosts that take memory of their guests back.

use crate::common::programs::live_spaces;
use crate::common::{ScriptWriter, assembled, assert_conserved, assert_frames_conserved, config, run, run_all};
use pagelab_engine::config::Config;
use pagelab_engine::machine::simulation::{PlacedSource, Simulation};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{EventKind, MapFlags, Source};

const SWAP: &str = r#"kernel.swap={"size_bytes":"64MiB","read_cycles":250000,"write_cycles":60000,"queue_depth":32}"#;

/// Runs a workload in each of two guests, each on a CPU of its own.
fn run_both(config: &Config, spec: &str) -> Statistics {
    let source = |seed| pagelab_trace::workload::parse(spec, seed).unwrap();
    let (_, stats) = run_all(config, vec![(source(1), &[0]), (source(2), &[2])]);
    assert_conserved(&stats);
    stats
}

fn fails(config: &Config, spec: &str) -> String {
    let source = || pagelab_trace::workload::parse(spec, 1).unwrap();
    let placed = |cpu| PlacedSource { source: source(), cpus: vec![cpu], memory_limit: None };
    let mut simulation = Simulation::new(config, vec![placed(0), placed(2)], None).unwrap();
    simulation.run(&mut |_| true).unwrap_err().to_string()
}

/// Each guest has 7 MiB, their host 8 MiB.
#[test]
fn guests_that_use_more_than_their_host_has_are_swapped_out() {
    let (short, roomy) = (&[SWAP][..], &["system.layers.host.memory_bytes=64MiB"][..]);
    let (short, roomy) = (config("small-guests", short), config("small-guests", roomy));
    let (pages, passes) = (5 * 256, 3);
    let spec = "stride:size=5MiB,stride=4KiB,passes=3,write=1";
    let stats = run_both(&short, spec);
    let stat = |name: &str| stats.values[name];
    // In a circle through more pages than fit, the oldest page is always the next one: each page of the later passes is
    // read back. Beyond those, the guests' tables and metadata may leave and come back.
    let (major, least) = (stat("layer.host.fault.major.count"), 2 * pages * (passes - 1));
    assert!((least..=least * 101 / 100).contains(&major), "{major} major faults, {least} by the working sets");
    assert_eq!((stat("layer.host.reclaim.swapped_in"), stat("swap.in.pages")), (major, major));
    // What has left, has come back or is on the device.
    assert!(stat("layer.host.reclaim.swapped_out") >= major);
    let roomy = run_both(&roomy, spec);
    for name in ["fault.major.count", "fault.minor.count", "layer.left.free_bytes"] {
        assert_eq!(stat(name), roomy.values[name], "the guests have memory: {name}");
    }
    assert!(stat("fault.nested.latency.cycles") >= major * 250_000, "each waits for the device");
    assert!(stat("layer.host.reclaim.scanned") >= stat("layer.host.reclaim.swapped_out"));
    assert!(stat("shootdown.count") > 0, "translations through these pages are flushed");
}

#[test]
fn guests_that_fit_are_never_swapped_out() {
    let stats = run_both(&config("small-guests", &[SWAP]), "stride:size=2MiB,stride=4KiB,passes=3,write=1");
    for name in ["scanned", "activated", "deactivated", "swapped_out"].map(|what| format!("layer.host.reclaim.{what}"))
    {
        assert_eq!(stats.values[&*name], 0, "{name}");
    }
    // The same run without a swap area counts the same.
    let without = run_both(&config("small-guests", &[]), "stride:size=2MiB,stride=4KiB,passes=3,write=1");
    for (name, value) in &without.values {
        assert_eq!(stats.values.get(name), Some(value), "{name}");
    }
}

#[test]
fn hosts_without_a_swap_area_run_out_of_memory() {
    let all_off = &[SWAP, "system.layers.host.swap=off"][..];
    for set in [&[][..], all_off] {
        let error = fails(&config("small-guests", set), "stride:size=5MiB,stride=4KiB,write=1");
        assert!(error.contains("layer `host` has no frame left of its 8MiB"), "{error}");
        assert!(error.contains("no swap device (kernel.swap, for layers with system.layers.host.swap=on)"), "{error}");
        assert!(error.contains("its guests may use 14MiB together"), "{error}");
    }
    let small = SWAP.replace("64MiB", "1MiB");
    let error = fails(&config("small-guests", &[&small]), "stride:size=5MiB,stride=4KiB,write=1");
    assert!(error.contains("1MiB are swapped out and 0B of swap are left"), "{error}");
}

#[test]
fn a_guest_may_have_what_its_host_can_hold() {
    let large = "system.layers.left.memory_bytes=72MiB";
    assembled("small-guests", &[SWAP, large]).unwrap();
    let boot = |set: &[&str]| {
        let source = pagelab_trace::workload::parse("seq:size=1MiB", 1).unwrap();
        let placed = PlacedSource { source, cpus: vec![0], memory_limit: None };
        Simulation::new(&config("small-guests", set), vec![placed], None).map(|_| ()).map_err(|e| e.to_string())
    };
    boot(&[SWAP, large]).unwrap();
    let error = boot(&[SWAP, "system.layers.left.memory_bytes=74MiB"]).unwrap_err();
    assert!(error.contains("system.layers.left.memory_bytes") && error.contains("64MiB of its swap area"), "{error}");
    let error = boot(&[large]).unwrap_err();
    assert!(error.contains("may give its guests more than it has"), "{error}");
    let limited = [SWAP, "kernel.cgroup_limit_bytes=2MiB", "system.layers.right.swap=off"];
    let error = assembled("small-guests", &limited).unwrap_err().to_string();
    assert!(error.contains("system.layers.right.swap=off"), "{error}");
}

const BASE: u64 = 0x7f00_0000_0000;

/// Touches 4 MiB and another 1 MiB, unmaps the latter, and then only uses the former.
fn frees_a_mebibyte() -> Box<dyn Source> {
    let mut script = ScriptWriter::new();
    let other = BASE + (1 << 30);
    script.mmap(0, other, 4 << 20);
    (0..1024).for_each(|page| script.store(0, other + page * 4096));
    script.mmap(0, BASE, 1 << 20);
    (0..256).for_each(|page| script.store(0, BASE + page * 4096));
    script.event(0, EventKind::Munmap { addr: BASE, len: 1 << 20 });
    (0..20_000).for_each(|n| script.load(0, other + n * 37 % 1024 * 4096));
    script.finish()
}

fn balloon(bytes: &str, start_cycles: u64) -> String {
    format!(
        r#"kernel.threads.balloon={{"bytes":"{bytes}","start_cycles":{start_cycles},"retry_cycles":500000,"page_cycles":100}}"#
    )
}

/// A balloon that is inflated when the program has unmapped its memory.
fn late_balloon(system: &str, set: &[&str], bytes: &str) -> String {
    let (_, stats) = run(&config(system, set), frees_a_mebibyte(), &[0]);
    balloon(bytes, stats.values["elapsed_cycles"] - 300_000)
}

#[test]
fn a_balloon_gives_frames_back_to_the_host() {
    for system in ["nested-radix-cold", "nested-vmm-direct-cold"] {
        let mut set = vec!["system.layers.guest.memory_bytes=64MiB"];
        if system == "nested-vmm-direct-cold" {
            set.push("system.layers.host.direct_segment_bytes=64MiB");
        }
        let balloon = late_balloon(system, &set, "512KiB");
        set.push(&balloon);
        let (simulation, stats) = run(&config(system, &set), frees_a_mebibyte(), &[0]);
        assert_conserved(&stats);
        assert_frames_conserved(&simulation, &live_spaces(&simulation));
        let stat = |name: &str| stats.values[name];
        assert_eq!((stat("balloon.pages"), stat("balloon.exits"), stat("balloon.short")), (128, 1, 0), "{system}");
        let os = &simulation.kernels.os;
        let host = os.layers[os.tops()[0]].host.unwrap();
        let mapped = os.layers[host.layer].spaces[host.index].resident;
        // What the host maps is what it has mapped, less what the balloon has freed.
        assert_eq!(mapped, stat("fault.nested.count") - stat("balloon.freed"), "{system}");
        if system == "nested-radix-cold" {
            assert!(stat("balloon.freed") > 64, "the guest gives back what it has used");
            assert_eq!(stat("balloon.kept"), 0);
        } else {
            // All of the guest's memory is the host's segment.
            assert_eq!((stat("balloon.freed"), stat("balloon.kept")), (0, 128));
        }
    }
}

#[test]
fn a_balloon_is_no_larger_than_its_guest() {
    let boot = |bytes: &str| {
        let config = config("small-guests", &[&balloon(bytes, 1)]);
        let placed = PlacedSource { source: frees_a_mebibyte(), cpus: vec![0], memory_limit: None };
        Simulation::new(&config, vec![placed], None).map(|_| ()).map_err(|e| e.to_string())
    };
    boot("7MiB").unwrap();
    let error = boot("8MiB").unwrap_err();
    assert!(error.contains("kernel.threads.balloon.bytes: 8MiB are more than the 7MiB of the guest `left`"), "{error}");
    let error = assembled("small-guests", &[&balloon("1KiB", 1)]).unwrap_err().to_string();
    assert!(error.contains("allowed are multiples of 4096"), "{error}");
    // A guest keeps what it needs: the driver stops when memory is short.
    let config = config("small-guests", &[&late_balloon("small-guests", &[], "7MiB")]);
    let (_, stats) = run(&config, frees_a_mebibyte(), &[0]);
    let (short, pages) = (stats.values["balloon.short"], stats.values["balloon.pages"]);
    // The left guest's program has 1,024 pages, and the right guest has no program.
    assert!(short >= 2 && (1792..1792 + 1792 - 1024).contains(&pages), "{pages} pages, {short} times short");
}

/// A balloon of 4 MiB from the beginning, which takes all that the guest of 7 MiB does not use yet.
fn early_balloon(page_cycles: u32, deflates: bool) -> String {
    format!(
        r#"kernel.threads.balloon={{"bytes":"4MiB","start_cycles":1,"retry_cycles":1000000000,"page_cycles":{page_cycles},"deflate_on_oom":{deflates}}}"#
    )
}

#[test]
fn a_guest_without_memory_takes_pages_back_from_its_balloon() {
    let spec = "stride:size=5MiB,stride=4KiB,passes=2,write=1";
    let source = || pagelab_trace::workload::parse(spec, 1).unwrap();
    let error =
        fails(&config("small-guests", &[SWAP, &early_balloon(100, false), "system.layers.left.swap=off"]), spec);
    assert!(error.contains("layer `left` has no frame left of its 7MiB"), "{error}");
    let run_with = |set: &[&str]| {
        let (simulation, stats) = run(&config("small-guests", set), source(), &[0]);
        assert_conserved(&stats);
        assert_frames_conserved(&simulation, &live_spaces(&simulation));
        (simulation, stats)
    };
    let without = run_with(&[]).1;
    let (simulation, stats) = run_with(&[&early_balloon(100, true)]);
    let stat = |name: &str| stats.values[name];
    // Of the guest's 1,792 frames, the balloon has 1,024 and the program wants 1,280: 512 are missing, and less than
    // 256 more for the kernel, page tables and the watermark. So three batches of 256 leave the balloon.
    assert_eq!((stat("balloon.oom"), stat("balloon.deflated")), (3, 768));
    assert_eq!(stat("balloon.pages"), 2 * 1024 - 768, "the balloons of both guests had their size");
    for name in ["fault.minor.count", "accesses", "walk.count"] {
        assert_eq!(stat(name), without.values[name], "{name}");
    }
    // The host gives memory again for what the guest uses of the pages that it took back.
    let os = &simulation.kernels.os;
    let hosts = os.tops().iter().map(|&guest| os.layers[guest].host.unwrap());
    let mapped: u64 = hosts.map(|host| os.layers[host.layer].spaces[host.index].resident).sum();
    assert_eq!(mapped, stat("fault.nested.count") - stat("balloon.freed"));
    // The host works for each page while the fault waits.
    let slow = run_with(&[&early_balloon(1100, true)]).1;
    let spent = |stats: &Statistics| stats.values["layer.left.fault.stage.allocation.cycles"];
    assert_eq!(slow.values["balloon.deflated"], stat("balloon.deflated"));
    let (more, pages) = (spent(&slow) - spent(&stats), stat("balloon.deflated"));
    assert!(more.abs_diff(1000 * pages) < 1000, "{more} cycles for {pages} pages, but for what the caches hold");
}

/// What a program writes with MADV_PAGEOUT or msync, after its host has swapped it out, is read back first.
#[test]
fn pages_that_a_program_writes_itself_are_read_back_first() {
    const PAGES: u64 = 256;
    const STORAGE: &str = r#"kernel.storage={"read_cycles":300000,"write_cycles":70000,"queue_depth":8}"#;
    let written = |of_file: bool, host: &str| {
        let mut script = ScriptWriter::new();
        let (prot, other, len) = (pagelab_trace::Protection::READ_WRITE, BASE + (1 << 30), PAGES * 4096);
        let flags = if of_file { MapFlags(MapFlags::SHARED) } else { MapFlags::anonymous_private() };
        let file = of_file.then(|| "data".into());
        script.event(0, EventKind::Mmap { addr: BASE, len, prot, flags, file, file_offset: 0 });
        script.mmap(0, other, 5 * PAGES * 4096);
        (0..PAGES).for_each(|page| script.store(0, BASE + page * 4096));
        (0..9 * PAGES / 2).for_each(|page| script.store(0, other + page * 4096));
        script.event(
            0,
            match of_file {
                false => EventKind::Madvise { addr: BASE, len, advice: 21 },
                true => EventKind::Msync { addr: BASE, len, flags: 4 },
            },
        );
        let host = format!("system.layers.host.memory_bytes={host}");
        let set = [SWAP, STORAGE, "system.layers.right.memory_bytes=1MiB", &host, "kernel.threads.kswapd=off"];
        let (simulation, stats) = run(&config("small-guests", &set), script.finish(), &[0]);
        assert_conserved(&stats);
        assert_frames_conserved(&simulation, &live_spaces(&simulation));
        let [double, major, own] =
            ["swap.double.pages", "layer.host.fault.major.count", "fault.major.count"].map(|name| stats.values[name]);
        assert_eq!([stats.values["pageout.pages"], stats.values["msync.pages"]][usize::from(of_file)], PAGES);
        assert!(major >= double, "{major} major faults of the host, {double} before writes");
        (double, own)
    };
    for of_file in [false, true] {
        let (double, _) = written(of_file, "5MiB");
        assert!((PAGES * 9 / 10..=PAGES).contains(&double), "file: {of_file}: {double} pages");
        assert_eq!(written(of_file, "64MiB").0, 0);
    }
}

/// A guest of 7 MiB on a host of 5 MiB goes in a circle through 8 MiB. Its oldest page is one that the host has
/// swapped out before, unless the host's lists gave it another round.
#[test]
fn a_page_that_both_kernels_swap_out_is_read_back_in_between() {
    let run_with = |set: &[&str]| {
        let source = pagelab_trace::workload::parse("stride:size=8MiB,stride=4KiB,passes=3,write=1", 1).unwrap();
        // An eighth of so little memory would be on lists of free pages.
        let mut all = vec![SWAP, "system.layers.right.memory_bytes=1MiB", "kernel.per_cpu_lists=linux-4.19"];
        all.extend(set);
        let (simulation, stats) = run(&config("small-guests", &all), source, &[0]);
        assert_conserved(&stats);
        (simulation, stats)
    };
    let (small, roomy) = ("system.layers.host.memory_bytes=5MiB", "system.layers.host.memory_bytes=64MiB");
    for kswapd in ["kernel.threads.kswapd=off", "kernel.threads.kswapd=on"] {
        let (simulation, stats) = run_with(&[small, kswapd]);
        assert_frames_conserved(&simulation, &live_spaces(&simulation));
        let stat = |name: &str| stats.values[name];
        let of_host = |what: &str| stat(&format!("layer.host.reclaim.{what}"));
        let guest_out = stat("swap.out.pages") - of_host("swapped_out");
        let double = stat("swap.double.pages");
        assert!((guest_out * 97 / 100..=guest_out).contains(&double), "{double} of {guest_out} pages");
        // The host reads each of them, and hardly anything else: page tables, and metadata of the guest.
        assert!((double..=double * 103 / 100).contains(&of_host("swapped_in")), "{} pages", of_host("swapped_in"));
        assert!(stat("layer.host.fault.major.count") >= double);
        // That is before the guest's device writes the page: whoever gets the frame next finds it in memory, so the
        // program causes few faults of the host.
        let (own, all) = (stat("fault.minor.count") + stat("fault.major.count"), stat("walk.aborted.program.count"));
        assert!((own..own + double / 4).contains(&all), "{all} walks ended in {own} faults of the guest");
    }
    // With a host that has room for its guests, no page is on two devices.
    let (_, roomy) = run_with(&[roomy]);
    assert!(roomy.values["swap.out.pages"] > 0);
    assert_eq!(roomy.values["swap.double.pages"], 0);
}
