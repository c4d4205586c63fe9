//! Rate of a workload's generator: `cargo run --release -p pagelab-trace --example generate -- SPEC…`.
//!
//! Reads every access once, adding up the addresses, as the least that an engine must do with it. Rates are by the
//! processor time of the thread where Linux tells it, so that other programs do not count.

use std::time::{Duration, Instant};

use pagelab_trace::{Batch, workload};

/// Stops after this many accesses or this time, whichever comes first.
const MAX_ACCESSES: u64 = 2_000_000_000;
const MAX_TIME: Duration = Duration::from_secs(4);

/// Time that this thread has been running, since some moment.
fn running(start: Instant) -> Duration {
    let schedule = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = schedule.and_then(|text| text.split(' ').next()?.parse().ok());
    nanoseconds.map_or_else(|| start.elapsed(), Duration::from_nanos)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for spec in std::env::args().skip(1) {
        let mut source = workload::parse(&spec, 0)?;
        let mut batch = Batch::default();
        let (mut accesses, mut sum) = (0u64, 0u64);
        // The first two batches hold the mappings and what is built before the first access.
        for _ in 0..2 {
            source.next_batch(&mut batch)?;
        }
        let start = Instant::now();
        let begin = running(start);
        while accesses < MAX_ACCESSES && start.elapsed() < MAX_TIME && source.next_batch(&mut batch)? {
            accesses += batch.accesses.len() as u64;
            sum = batch.accesses.iter().fold(sum, |sum, access| sum.wrapping_add(access.vaddr));
        }
        let rate = accesses as f64 / (running(start) - begin).as_secs_f64() / 1e6;
        println!("{rate:8.1} M accesses/s  {spec}  ({accesses} accesses, sum {sum:x})");
    }
    Ok(())
}
