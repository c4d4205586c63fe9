//! Replays workloads or traces under a system and prints the rate, without Python: for profilers and benchmarks.
//!
//! `cargo run --release --example replay -- SYSTEM SOURCE… [key=value…] [max=N] [stats]`

use std::time::Instant;

use pagelab_engine::run::{Request, run};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let system = arguments.next().unwrap_or_else(|| usage());
    let (mut sources, mut set, mut max, mut print) = (Vec::new(), Vec::new(), None, false);
    for argument in arguments {
        if let Some(limit) = argument.strip_prefix("max=") {
            max = Some(pagelab_trace::quantity::parse_count(limit).unwrap_or_else(|e| fail(&e.to_string())));
        } else if argument == "stats" {
            print = true;
        } else if argument.split_once('=').is_some_and(|(key, _)| !key.contains(':')) {
            set.push(argument);
        } else {
            sources.push(argument);
        }
    }
    if sources.is_empty() {
        usage();
    }
    let request = Request {
        sources,
        systems: vec![system],
        machine: std::env::var("MACHINE").ok(),
        set,
        max_accesses: max,
        threads: Some(1),
        ..Request::default()
    };
    let start = Instant::now();
    let results = run(&request, &|_| true).unwrap_or_else(|e| fail(&e.to_string()));
    let seconds = start.elapsed().as_secs_f64();
    let result = &results.results[0];
    let accesses = result.stats["accesses"];
    println!("{:8.2} M accesses/s  ({accesses} accesses in {seconds:.2} s)", accesses as f64 / seconds / 1e6);
    result.warnings.iter().for_each(|warning| println!("warning: {warning}"));
    if print {
        result.stats.iter().filter(|(_, value)| **value > 0).for_each(|(name, value)| println!("{name} = {value}"));
    }
}

fn usage() -> ! {
    fail("usage: replay SYSTEM SOURCE… [key=value…] [max=N] [stats]")
}

fn fail(message: &str) -> ! {
    eprintln!("{message}");
    std::process::exit(2)
}
