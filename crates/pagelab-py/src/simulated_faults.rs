//! The page faults of a simulated run as a fault trace.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroU32;
use std::path::Path;

use pagelab_engine::{base::page_fault::Intent, observe::page_faults::SeenFault, run::Request, run::SystemResult};
use pagelab_faults::{Fault, FaultAccess, FaultKind, FaultTraceInfo, FaultTraceWriter, LatencyOrigin};
use pagelab_trace::TraceError;

/// Numbers from 0 on, in the order in which things are first seen.
#[derive(Default)]
struct Numbers<T>(BTreeMap<T, u32>);

impl<T: Ord> Numbers<T> {
    fn number(&mut self, key: T) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(key).or_insert(next)
    }
}

/// Writes the faults of a run to `path`, by the clock of the simulated machine. Folders that are missing are made.
///
/// # Errors
/// As [`FaultTraceWriter`].
pub fn write(path: &Path, request: &Request, system: &SystemResult) -> Result<(), TraceError> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|e| TraceError::io(path, e))?;
    }
    let mut output = FaultTraceWriter::create(path)?;
    let nanoseconds =
        |cycles: u64| (u128::from(cycles) * 1000 / u128::from(system.config.machine.frequency_mhz)) as u64;
    let (mut spaces, mut threads) = (Numbers::default(), Numbers::default());
    for seen in &system.page_faults {
        let SeenFault { at, took, cpu, space, va, intent, present, thread } = *seen;
        let access = Some(match intent {
            Intent::Load => FaultAccess::Read,
            Intent::Store => FaultAccess::Write,
            Intent::Fetch => FaultAccess::Instruction,
        });
        let latency_ns = nanoseconds(took.0).clamp(1, u32::MAX.into()) as u32;
        output.append(&Fault {
            time_ns: nanoseconds(at.0),
            core: cpu.index() as u16,
            address: va.0,
            kind: FaultKind { access, present, by_kernel: false },
            process: spaces.number((space.layer, space.index)),
            thread: threads.number((thread.0, space.layer, space.index, thread.1.0)),
            latency_ns: NonZeroU32::new(latency_ns),
        })?;
    }
    output.finish(info(request, system, nanoseconds)).map(drop)
}

fn info(request: &Request, system: &SystemResult, nanoseconds: impl Fn(u64) -> u64) -> FaultTraceInfo {
    let mut command = vec!["pagelab".to_owned(), "run".to_owned()];
    command.extend(request.sources.iter().cloned());
    let also = [("--with", &request.with), ("--arrivals", &request.arrivals)];
    command.extend(
        also.iter().flat_map(|(option, specs)| specs.iter().flat_map(|spec| [(*option).to_owned(), spec.clone()])),
    );
    // The system as it was asked for, with its kernel and settings.
    let kernel = request.kernel.iter().flat_map(|kernel| ["-k".to_owned(), kernel.clone()]);
    command.extend(["-s".to_owned(), request.systems[0].clone(), "-m".to_owned(), system.machine.clone()]);
    command.extend(kernel.chain(request.set.iter().flat_map(|setting| ["--set".to_owned(), setting.clone()])));
    command.extend(["--seed".to_owned(), system.seed.to_string()]);
    command.extend(request.max_accesses.iter().flat_map(|most| ["--max-accesses".to_owned(), most.to_string()]));
    let mut info = FaultTraceInfo::new(command, system.stats["cpus"] as u32);
    info.duration_ns = nanoseconds(system.stats["elapsed_cycles"]);
    info.duration_origin = "the simulated run".to_owned();
    let waiting = system.stats["cycles.idle"] + system.stats["cycles.blocked"];
    info.cpu_time_ns = Some(nanoseconds(system.stats["cycles"] - waiting));
    let how = "simulated: from the exception until the access is made again".to_owned();
    info.latency = LatencyOrigin::PerFault { how };
    info.notes = vec![format!("The faults are those of a simulated run, kernel {}.", system.config.kernel.name)];
    info
}
