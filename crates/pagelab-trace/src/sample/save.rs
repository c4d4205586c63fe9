//! Saves a sample as a trace of its own: the source is read once, and each replay reads only the sample.
//!
//! Source: Wenisch, Wunderlich, Falsafi, Hoe, "Simulation Sampling with Live-Points", ISPASS 2006, for windows stored
//! with the state that they need. Deviations: touches are stored, which suit any TLB and cache, instead of the contents
//! of given ones.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{Sampled, Sampling};
use crate::format::{StretchTotals, TraceSummary, WriterOptions};
use crate::{Batch, Segment, Source, TraceError, TraceMeta, TraceReader, TraceWriter, names_trace, workload};

/// A saved sample.
#[derive(Clone, Debug, Serialize)]
pub struct SavedSample {
    /// The trace.
    pub path: PathBuf,
    /// Its windows, as the trace records them.
    pub sample: Sampling,
    /// Number of the source's accesses that were read.
    pub read: u64,
    /// Number of accesses in the sample.
    pub accesses: u64,
    /// Bytes of the trace.
    pub size_bytes: u64,
    /// Totals of its stretches.
    pub stretches: StretchTotals,
}

/// Writes a sample of the first `max_accesses` of a source (a trace, or a workload with a seed) as a trace at `output`.
/// Windows are those of `sampling`, or derived from the length of the source; `seed` draws their start unless it is
/// given. `reach` is the size in bytes of the largest cache that the sample must suit; without it, it suits any size
/// ([`Sampled::reaching`]). `progress` is called with the number of accesses read, and of all if known; if it breaks,
/// the work stops with an error. After an error nothing is left at `output`.
///
/// # Errors
/// [`TraceError::Usage`] for a source that is too short for windows, or already sampled, for an output that exists, or
/// when `progress` breaks; those of the source; [`TraceError::Io`].
pub fn save(
    source: &str,
    output: &Path,
    sampling: Option<Sampling>,
    seed: u64,
    max_accesses: Option<u64>,
    reach: Option<u64>,
    progress: &mut dyn FnMut(u64, Option<u64>) -> ControlFlow<()>,
) -> Result<SavedSample, TraceError> {
    let (origin, mut meta): (Box<dyn Source>, TraceMeta) = if names_trace(source)? {
        let reader = TraceReader::open(source)?;
        let mut meta = reader.meta().clone();
        // Contexts refer to all accesses; a sample has none.
        meta.call_stacks = false;
        (Box::new(reader), meta)
    } else {
        let source_of = workload::parse(source, seed)?;
        let mut meta = TraceMeta::new(vec![source.to_owned()]);
        meta.dependencies = source_of.info().dependencies || source_of.info().branches;
        (source_of, meta)
    };
    let info = origin.info().clone();
    if info.sampled {
        let what = "its accesses are already samples, so the number of instructions between them is unknown: replay all of them";
        return Err(TraceError::usage(format!("{source}: {what}")));
    }
    let total = info.accesses.into_iter().chain(max_accesses).min();
    let sampling = sampling.map_or_else(|| Sampling::scaled(total), Ok)?.placed(seed);
    meta.sample = Some(sampling);
    meta.notes
        .push(format!("windows of {}, {sampling}, and the first and last touches of what lies between", info.name));
    if let Some(most) = max_accesses.filter(|&most| info.accesses.is_none_or(|all| all > most)) {
        meta.notes.push(format!("sampling was stopped after {most} accesses"));
    }
    let mut sampled = Sampled::new(origin, &sampling, seed, max_accesses);
    if let Some(bytes) = reach {
        sampled = sampled.reaching(bytes);
    }
    let written = TraceWriter::write_whole(output, meta, WriterOptions::default(), |writer| {
        fill(writer, &mut sampled, &mut |read| progress(read, total))
    });
    let TraceSummary { path, accesses, size_bytes, .. } = written?;
    let (read, stretches) = (sampled.accesses_read(), sampled.totals());
    Ok(SavedSample { path, sample: sampling, read, accesses: accesses.total(), size_bytes, stretches })
}

fn fill(
    mut writer: TraceWriter,
    sampled: &mut Sampled,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<TraceSummary, TraceError> {
    let mut batch = Batch::default();
    while sampled.next_batch(&mut batch)? {
        let mut begin = 0;
        for segment in &batch.segments {
            match segment {
                Segment::Run { thread, end } => {
                    let branches = batch.branches.get(begin..*end).unwrap_or_default();
                    writer.append_with_branches(*thread, &batch.accesses[begin..*end], branches)?;
                    begin = *end;
                }
                Segment::Event(event) => writer.event(event.clone())?,
            }
        }
        if progress(sampled.accesses_read()).is_break() {
            return Err(TraceError::usage("the sample was interrupted; nothing is left of it"));
        }
    }
    writer.meta_mut().stretches = Some(sampled.totals());
    writer.finish()
}
