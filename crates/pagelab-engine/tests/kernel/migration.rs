//! Migration of guests: pages sent, exits for write-protected pages, and segments that are dissolved and made again.

use crate::common::{ScriptWriter, assert_conserved, config, run};
use pagelab_engine::observe::statistics::Statistics;

const BASE: u64 = 0x7f00_0000_0000;
/// Pages of the guest's memory.
const GUEST: u64 = 64 << 8;
const MACHINE: [&str; 3] = [
    "machine.memory_bytes=1GiB",
    "system.layers.guest.memory_bytes=64MiB",
    "system.layers.host.direct_segment_bytes=64MiB",
];
const PAGED: [&str; 2] = ["machine.memory_bytes=1GiB", "system.layers.guest.memory_bytes=64MiB"];

/// A program that stores to `pages` pages, `passes` times.
fn stores(pages: u64, passes: u64) -> ScriptWriter {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, pages * 4096);
    for _ in 0..passes {
        (0..pages).for_each(|page| script.store(0, BASE + page * 4096));
    }
    script
}

fn migrate(system: &str, machine: &[&str], parameters: &str, script: ScriptWriter) -> Statistics {
    let thread = format!("kernel.threads.migration={{{parameters}}}");
    let (_, stats) = run(&config(system, &[machine, &[thread.as_str()]].concat()), script.finish(), &[0]);
    assert_conserved(&stats);
    stats
}

#[test]
fn a_segment_is_mapped_sent_and_made_again() {
    // The program ends long after the migration.
    let parameters = r#""start_cycles":1000000,"page_cycles":0,"rounds":5,"stop_pages":0"#;
    let stats = migrate("nested-vmm-direct-cold", &MACHINE, parameters, stores(2000, 400));
    let count = |name: &str| stats.values[&format!("migration.{name}")];
    assert_eq!((count("guests"), count("refused")), (1, 0));
    assert_eq!((count("mapped"), count("removed")), (GUEST, GUEST));
    // A page is sent once at first, and once more for each exit by which it became dirty.
    let exits = stats.values["fault.nested.count"];
    assert!(exits > 0, "the program goes on");
    assert!(count("copied") <= GUEST + exits && count("copied") + 2000 >= GUEST + exits, "{} {exits}", count("copied"));
    assert!((2..=5).contains(&count("rounds")));
    // Afterwards, the host is asked for nothing: the same walks as without a migration.
    let never = r#""start_cycles":100000000000,"page_cycles":0,"rounds":5,"stop_pages":0"#;
    let without = migrate("nested-vmm-direct-cold", &MACHINE, never, stores(2000, 400));
    assert_eq!((without.values["migration.copied"], without.values["fault.nested.count"]), (0, 0));
    assert!(stats.values["walk.refs"] > without.values["walk.refs"], "walks of the host while pages are tracked");
    assert_eq!(stats.values["fault.minor.count"], without.values["fault.minor.count"]);
}

/// The host keeps about 1 MiB besides a segment of 640 MiB, whose pages need 320 tables of 4 KiB and more.
#[test]
fn a_guest_is_not_migrated_without_memory_for_the_tables_of_its_segment() {
    let machine = [
        "machine.memory_bytes=653MiB",
        "system.layers.guest.memory_bytes=640MiB",
        "system.layers.host.direct_segment_bytes=640MiB",
    ];
    let run = |start_cycles: u64| {
        let parameters = format!(r#""start_cycles":{start_cycles},"page_cycles":0,"rounds":5,"stop_pages":0"#);
        migrate("nested-vmm-direct-cold", &machine, &parameters, stores(2000, 100))
    };
    let (stats, without) = (run(1_000_000), run(100_000_000_000));
    let count = |name: &str| stats.values[&format!("migration.{name}")];
    assert_eq!((count("guests"), count("refused"), count("rounds"), count("copied")), (0, 1, 0, 0));
    // Each table that there was memory for maps 512 pages. All entries are removed, and the segment stays.
    assert!((1..640 << 8).contains(&count("mapped")), "{}", count("mapped"));
    assert_eq!((count("mapped") % 512, count("removed")), (0, count("mapped")));
    for name in ["fault.nested.count", "fault.minor.count", "walk.refs"] {
        assert_eq!(stats.values[name], without.values[name], "{name}");
    }
}

#[test]
fn a_single_round_stops_the_guest_for_all_its_pages() {
    let parameters = r#""start_cycles":1000000,"page_cycles":0,"rounds":1,"stop_pages":0"#;
    let stats = migrate("nested-vmm-direct-cold", &MACHINE, parameters, stores(2000, 200));
    let count = |name: &str| stats.values[&format!("migration.{name}")];
    assert_eq!((count("rounds"), count("copied"), count("stopped")), (1, GUEST, GUEST));
}

#[test]
fn paged_guests_send_what_the_host_has_mapped() {
    // It begins when the program has touched all its pages.
    let parameters = r#""start_cycles":40000000,"page_cycles":0,"rounds":4,"stop_pages":0"#;
    let stats = migrate("nested-radix-cold", &PAGED, parameters, stores(2000, 1500));
    let count = |name: &str| stats.values[&format!("migration.{name}")];
    assert_eq!((count("guests"), count("mapped"), count("removed")), (1, 0, 0));
    assert!(count("copied") > 2000 && count("copied") < GUEST, "{}", count("copied"));
    // Exits: the first touches, and the stores to protected pages.
    let never = r#""start_cycles":100000000000,"page_cycles":0,"rounds":4,"stop_pages":0"#;
    let without = migrate("nested-radix-cold", &PAGED, never, stores(2000, 1500));
    assert!(stats.values["fault.nested.count"] > without.values["fault.nested.count"] + 500);
}

#[test]
fn a_migration_that_takes_longer_finds_more_dirty_pages() {
    let copied = |page_cycles: u64| {
        let parameters = format!(r#""start_cycles":1000000,"page_cycles":{page_cycles},"rounds":3,"stop_pages":0"#);
        let stats = migrate("nested-vmm-direct-cold", &MACHINE, &parameters, stores(2000, 400));
        stats.values["migration.copied"]
    };
    assert!(copied(0) <= copied(300));
}

/// `engine.check` compares each translation with what the host allows: a stale one would allow stores.
#[test]
fn protection_reaches_every_translation_of_the_guest() {
    let parameters = r#""start_cycles":1000000,"page_cycles":0,"rounds":6,"stop_pages":0"#;
    for (system, more) in [
        ("nested-radix-cold", ""),
        ("nested-radix-2m-cold", ""),
        ("nested-radix-shadow-cold", ""),
        ("nested-radix-inverted-shadow-cold", "system.layers.host.inverted_shadow_bytes=64KiB"),
        ("nested-radix-speculative-cold", ""),
        ("nested-do-it-yourself-cold", ""),
    ] {
        let mut set = PAGED.to_vec();
        set.extend(Some(more).filter(|more| !more.is_empty()));
        let stats = migrate(system, &set, parameters, stores(600, 400));
        assert!(stats.values["migration.rounds"] > 1 && stats.values["migration.guests"] == 1, "{system}");
    }
}
