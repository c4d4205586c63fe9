//! Random programs and workloads in guests whose host is short of memory.

use std::collections::BTreeSet;

use super::{SHORT_OF_MEMORY, check, common, nested, with};
use pagelab_engine::config::Config;
use pagelab_trace::quantity::Bytes;

/// Gives a host less memory than programs touch, and its guests more than the host has. Some hosts need room for tables
/// of a fixed size, or for a segment.
fn short_of_memory(mut config: Config) -> Config {
    let host = config.system.layers.iter().find(|layer| layer.host.is_none()).expect("one is the machine's own");
    let mib = match (host.page_table.name(), host.direct_segment_bytes) {
        ("radix", None) => 3,
        ("radix", Some(_)) => 6,
        _ => 14,
    };
    config.kernel.swap = with("nested-radix-cold", &[SHORT_OF_MEMORY[0]]).kernel.swap;
    for layer in &mut config.system.layers {
        layer.memory_bytes = Some(Bytes(if layer.host.is_none() { mib << 20 } else { 48 << 20 }));
    }
    config
}

/// Pages that the host has read back.
const READ_BACK: &str = "layer.host.reclaim.swapped_in";

/// Runs a workload that needs more than most of these hosts have. Returns the pages that the host read back.
fn run_large(config: &Config) -> u64 {
    let source = pagelab_trace::workload::parse("random:size=16MiB,accesses=2500,write=0.5", 1).unwrap();
    let (simulation, stats) = common::run(config, source, &[0]);
    common::assert_conserved(&stats);
    common::assert_frames_conserved(&simulation, &common::programs::live_spaces(&simulation));
    stats.values[READ_BACK]
}

#[test]
fn every_page_table_translates_right_in_hosts_that_swap_their_guests_out() {
    let mut read_back = 0;
    let mut designs = BTreeSet::new();
    let one_of_each = nested().filter(|config| designs.insert(config.system.layers[0].page_table.name()));
    for config in one_of_each.map(short_of_memory) {
        // Pages that collide in a small table, and whose collisions the kernel handles, evict each other for ever.
        let by_kernel = |table| serde_json::to_value(table).expect("it is written")["collisions"] == "kernel";
        if !config.system.layers.iter().any(|layer| by_kernel(&layer.page_table)) {
            read_back += run_large(&config);
        }
    }
    assert!(read_back > 1000, "few hosts were short of memory: {read_back} pages");
}

/// Systems whose hardware keeps translations of guests to machine addresses in other places than TLBs.
const OTHERS: &[(&str, &[&str])] = &[
    ("nested-radix-cold", &["kernel.idle_tlb=leave", "kernel.pcids=1"]),
    ("nested-radix-2m-cold", &[]),
    ("nested-radix-shadow-cold", &[]),
    ("nested-radix-inverted-shadow-cold", &["system.layers.host.inverted_shadow_bytes=64KiB"]),
    ("nested-radix-speculative-cold", &["system.layers.host.speculative_table.table_bytes=64KiB"]),
    ("nested-radix-unified-translation-cache-cold", &[]),
    ("nested-radix-ptemagnet-cold", &[]),
    ("nested-guest-direct-cold", &["system.layers.guest.direct_segment_bytes=1MiB"]),
    ("nested-vmm-direct-cold", &["system.layers.host.direct_segment_bytes=1MiB"]),
    ("nested-do-it-yourself-cold", &[]),
];

#[test]
fn every_other_way_to_translate_is_right_in_hosts_that_swap_their_guests_out() {
    for (system, set) in OTHERS {
        let config = short_of_memory(with(system, set));
        check(&config, 2);
        assert!(run_large(&config) > 100, "{system}: its host is short of memory");
    }
}
