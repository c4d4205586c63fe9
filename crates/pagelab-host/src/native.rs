//! Runs the benchmarks on the host.

use std::{collections::BTreeMap, io, time::Instant};

use pagelab_trace::format::HostFacts;

use crate::{
    Cost, FaultCost, Report, clock,
    fault::{Before, FAULTS, FaultBenchmark, MemoryKind},
    operation::OPERATIONS,
    sys::{self, Child, MappedMemory},
    walk,
};

/// Samples of each benchmark.
const REPEATS: usize = 101;
/// Samples discarded first: page tables, the kernel's caches and the CPU's frequency must settle.
const WARM_UP: usize = 5;

/// Runs all benchmarks on the calling thread.
pub fn run(going: &(dyn Fn() -> bool + Sync)) -> io::Result<Report> {
    let cpus = sys::allowed_cpus().unwrap_or_default();
    // If pinning is not allowed, migrations between CPUs increase the spread.
    let _ = cpus.first().map(|&cpu| sys::stay_on(cpu));
    let clock = clock::measure()?;
    let (mut costs, mut missing) = (BTreeMap::new(), BTreeMap::new());
    let mut keep = |name, samples: io::Result<Vec<f64>>| match samples.and_then(in_cycles) {
        Ok(cost) => drop(costs.insert(name, cost)),
        Err(error) => drop(missing.insert(name, error.to_string())),
    };
    for benchmark in FAULTS {
        keep(benchmark.name, if going() { faults(benchmark) } else { Err(stopped()) });
    }
    for operation in OPERATIONS {
        keep(operation.name, if going() { (operation.run)(&cpus) } else { Err(stopped()) });
    }
    let host = HostFacts::this_machine();
    let stated_rates = clock::stated();
    let mut report = Report { host, clock, stated_rates, cpus: cpus.len(), costs, walks: Vec::new(), missing };
    match if going() { walk::parts() } else { Err(stopped()) } {
        Ok(parts) => report.costs.extend(walk::PARTS.into_iter().zip(parts)),
        Err(error) => report.missing.extend(walk::PARTS.map(|part| (part, error.to_string()))),
    }
    match walk::walks(going) {
        Ok(walks) => report.walks = walks,
        Err(error) => drop(report.missing.insert("walk-patterns", error.to_string())),
    }
    Ok(report)
}

/// Converts nanoseconds to a cost in cycles with the current frequency, since cores change it.
fn in_cycles(samples: Vec<f64>) -> io::Result<Cost> {
    let rate = clock::measure()?.cycles_per_nanosecond;
    Ok(Cost::from_samples(samples.into_iter().map(|ns| ns * rate).collect()))
}

/// Runs one benchmark on the calling thread.
pub fn one_fault(benchmark: &FaultBenchmark) -> io::Result<FaultCost> {
    let _ = sys::allowed_cpus().unwrap_or_default().first().map(|&cpu| sys::stay_on(cpu));
    let clock = clock::measure()?;
    let rate = clock.cycles_per_nanosecond;
    let samples = faults(benchmark)?.into_iter().map(|ns| ns * rate).collect();
    Ok(FaultCost { host: HostFacts::this_machine(), clock, cost: Cost::from_samples(samples) })
}

fn stopped() -> io::Error {
    io::ErrorKind::Interrupted.into()
}

/// Nanoseconds of some work.
pub fn timed(work: impl FnOnce() -> io::Result<()>) -> io::Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_nanos() as f64)
}

/// Samples from `sample`, without the first few.
pub fn repeated(mut sample: impl FnMut() -> io::Result<f64>) -> io::Result<Vec<f64>> {
    for _ in 0..WARM_UP {
        sample()?;
    }
    (0..REPEATS).map(|_| sample()).collect()
}

/// CPU time of some work in nanoseconds. The work is everything that this thread does, so time in which other programs
/// have the CPU does not count.
fn cpu_timed(work: impl FnOnce()) -> f64 {
    let begin = sys::thread_cpu_time();
    work();
    (sys::thread_cpu_time() - begin).as_nanos() as f64
}

/// Nanoseconds per fault.
fn faults(benchmark: &FaultBenchmark) -> io::Result<Vec<f64>> {
    let memory = match benchmark.kind {
        MemoryKind::Anonymous => MappedMemory::anonymous(benchmark.pages)?,
        MemoryKind::File => MappedMemory::file(benchmark.pages, false)?,
        MemoryKind::FileByPage => MappedMemory::file(benchmark.pages, true)?,
    };
    let pass = |writes: bool| {
        cpu_timed(|| {
            let touch = |page| if writes { memory.write(page) } else { memory.read(page) };
            benchmark.touched().for_each(touch);
        })
    };
    repeated(|| {
        let _child = match benchmark.before {
            Before::Nothing => None,
            Before::Read => {
                pass(false);
                None
            }
            Before::WriteAndFork => {
                pass(true);
                let mut child = Child::fork()?;
                // The child runs, and competes for the CPU, until it has answered.
                child.ask()?;
                Some(child)
            }
        };
        let first = pass(benchmark.writes);
        let again = pass(benchmark.writes);
        memory.discard()?;
        Ok((first - again) / benchmark.faults() as f64)
    })
}
