//! Host memory of a replay. Only one test: it reads the peak of its whole process.

use pagelab_engine::run::{Request, run};

/// Peak resident memory of this process, bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells a process of its memory");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its peak too");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("in kB") * 1024
}

#[test]
fn a_replay_takes_little_beyond_page_tables_and_caches() {
    // 4 GiB are touched and unmapped at the end; the other program's threads are far apart in time.
    let sources = ["stride:size=4GiB,stride=4096,passes=1@0", "bfs:vertices=200K,degree=8,threads=4@1-4"];
    let request = Request {
        sources: sources.map(String::from).to_vec(),
        systems: vec!["radix".to_owned()],
        set: vec!["machine.cores=8".to_owned()],
        threads: Some(1),
        ..Request::default()
    };
    let results = run(&request, &|_| true).unwrap_or_else(|e| panic!("{e}"));
    let stats = &results.results[0].stats;
    assert!(stats["fault.minor.count"] > 1_000_000);
    let tables = stats["layer.native.fault.tables"] * 4096;
    // Tags of 8 cores' caches take 4 bytes per 64-byte line.
    let caches = (8 * (32 + 256) + 6 * 1024) * 1024 / 16;
    let beyond = peak() - tables - caches;
    println!("{} MB beyond page tables and caches", beyond / 1_000_000);
    assert!(beyond < 200_000_000, "{beyond} bytes");
}
