//! The naive simulator and the engine were written independently; for loads without faults they count the same.

use pagelab_engine::run::{Request, run};
use pagelab_host::{Misses, yardsticks};
use pagelab_trace::workload;

/// Memory is mapped in advance, and only the program uses the caches.
fn counted_by_engine(workload: &str) -> Misses {
    let request = Request {
        sources: vec![workload.to_owned()],
        systems: vec!["radix-eager".to_owned()],
        machine: Some("kabylake-7700hq".to_owned()),
        set: vec!["engine.kernel_refs=off".to_owned()],
        threads: Some(1),
        ..Request::default()
    };
    let stats = run(&request, &|_| true).unwrap().results.remove(0).stats;
    let value =
        |name: &str| *stats.iter().find(|(statistic, _)| *statistic == name).unwrap_or_else(|| panic!("{name}")).1;
    Misses {
        tlb: [value("dtlb.l1.misses"), value("dtlb.l2.misses")],
        cache: [value("l1d.misses.data"), value("l2.misses.data"), value("l3.misses.data")],
    }
}

fn counted_naively(workload: &str) -> Misses {
    yardsticks(&mut *workload::parse(workload, 1).unwrap(), 0..u64::MAX, 0, &|| true).unwrap().misses
}

#[test]
fn loads_miss_the_same_tlbs_and_caches() {
    // Uniform, mostly within a cache line, beyond every level, within the TLBs, and line by line.
    let workloads = [
        "random:size=4MiB,accesses=200K",
        "random:size=16MiB,every=8,accesses=200K",
        "random:size=256MiB,accesses=200K",
        "random:size=128KiB,accesses=50K",
        "stride:size=8MiB,stride=64,passes=2",
    ];
    for workload in workloads {
        assert_eq!(counted_naively(workload), counted_by_engine(workload), "{workload}");
    }
}
