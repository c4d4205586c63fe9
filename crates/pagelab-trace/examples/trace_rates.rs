//! How fast traces are written and read, and how small they are.
//!
//! `cargo run --release -p pagelab-trace --example trace_rates -- TRACE…` takes up to 16 M accesses of each trace,
//! writes them anew and reads them back. Rates count the CPU time of all threads, compression and files included.

use std::{fs, time::Instant};

use pagelab_trace::{
    Access, Batch, Segment, Source, ThreadIx, TraceError, TraceMeta, TraceReader, TraceWriter, format,
};

const MAX_ACCESSES: usize = 16 << 20;

/// Seconds of CPU that this process has used, in user and in kernel mode.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program, in parentheses, may hold blanks; utime and stime are fields 14 and 15, in 1/100 s.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

fn main() -> Result<(), TraceError> {
    let folder = std::env::temp_dir().join(format!("pagelab-trace-rates-{}", std::process::id()));
    println!(
        "{:24} {:>10} {:>9} {:>21} {:>21}",
        "trace", "accesses", "B/access", "write M/CPU-s (wall)", "read M/CPU-s (wall)"
    );
    for path in std::env::args().skip(1) {
        let mut runs: Vec<(ThreadIx, Vec<Access>)> = Vec::new();
        let mut reader = TraceReader::open(&path)?;
        let mut batch = Batch::default();
        let mut count = 0;
        while count < MAX_ACCESSES && reader.next_batch(&mut batch)? {
            let mut begin = 0;
            for segment in &batch.segments {
                if let Segment::Run { thread, end } = segment {
                    runs.push((*thread, batch.accesses[begin..*end].to_vec()));
                    begin = *end;
                }
            }
            count += begin;
        }
        let name = reader.info().name.clone();
        drop(reader);

        let (cpu, wall) = (cpu_seconds(), Instant::now());
        let mut writer = TraceWriter::create(&folder, TraceMeta::new(vec![name.clone()]))?;
        for (thread, accesses) in &runs {
            writer.append(*thread, accesses)?;
        }
        writer.finish()?;
        let write = (cpu_seconds() - cpu, wall.elapsed().as_secs_f64());
        let info = format::info(&folder)?;

        let (cpu, wall) = (cpu_seconds(), Instant::now());
        let mut reader = TraceReader::open(&folder)?;
        let mut total = 0;
        while reader.next_batch(&mut batch)? {
            total += batch.accesses.len();
        }
        let read = (cpu_seconds() - cpu, wall.elapsed().as_secs_f64());
        assert_eq!(total, count);
        drop(reader);
        fs::remove_dir_all(&folder).map_err(|e| TraceError::io(&folder, e))?;
        let rate = |seconds: f64| count as f64 / seconds / 1e6;
        println!(
            "{name:24} {count:>10} {:>9.3} {:>12.1} ({:>6.1}) {:>12.1} ({:>6.1})",
            info.bytes_per_access.unwrap_or(0.0),
            rate(write.0),
            rate(write.1),
            rate(read.0),
            rate(read.1)
        );
    }
    Ok(())
}
