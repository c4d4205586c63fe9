//! How many accesses a pass takes per second of CPU time, of traces or workloads: `rates SPEC…`. The best of three.
//! Workloads are generated meanwhile; traces are decoded by a thread that is not counted.

use pagelab_mrc::{Options, Sampling, analyse};

fn main() {
    let pages = [4 << 10, 64 << 10, 2 << 20, 1 << 30];
    let cases = [
        ("all curves", &pages[..], Some(64), Sampling::All),
        ("  pages", &pages[..], None, Sampling::All),
        ("  pages of 4 KiB", &pages[..1], None, Sampling::All),
        ("  lines", &[], Some(64), Sampling::All),
        ("1 % of all", &pages[..], Some(64), Sampling::Rate(0.01)),
        ("8,192 pages of each", &pages[..], Some(64), Sampling::Pages(8192)),
    ];
    for spec in std::env::args().skip(1) {
        println!("{spec}");
        for (name, page_bytes, line_bytes, sampling) in &cases {
            let options = Options {
                page_bytes: page_bytes.to_vec(),
                line_bytes: *line_bytes,
                sampling: *sampling,
                seed: 1,
                max_accesses: None,
                sizes: Vec::new(),
                ways: None,
            };
            let rate = (0..3).map(|_| rate(&spec, &options)).fold(0.0, f64::max);
            println!("  {name:22} {rate:7.1} M/s");
        }
    }
}

fn rate(spec: &str, options: &Options) -> f64 {
    let started = cpu_seconds();
    let mut source = pagelab_trace::open(spec, 1).expect("a trace or a workload").source;
    let found = analyse(&mut *source, options, &mut |_| true).expect("it can be read");
    found.accesses as f64 / (cpu_seconds() - started) / 1e6
}

/// That this thread has run (Linux, Documentation/scheduler/sched-stats.rst).
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel has it");
    let nanoseconds: u64 = text.split(' ').next().and_then(|first| first.parse().ok()).expect("it is a number");
    nanoseconds as f64 / 1e9
}
