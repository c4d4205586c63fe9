//! A sample as a trace of its own: the source is read once, and each replay reads the windows and what lies between
//! alone.
//!
//! Source: Wenisch, Wunderlich, Falsafi, Hoe, "Simulation Sampling with Live-Points", ISPASS 2006, for windows that are
//! kept with the state they need. Deviations: what is kept are touches, which fit any TLB and cache, instead of the
//! contents of given ones.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{Sampled, Sampling};
use crate::format::{StretchTotals, TraceSummary, WriterOptions};
use crate::{Batch, Segment, Source, TraceError, TraceMeta, TraceReader, TraceWriter, names_trace, workload};

/// What became of a sample that was written.
#[derive(Clone, Debug, Serialize)]
pub struct SavedSample {
    /// The trace.
    pub path: PathBuf,
    /// Its windows, as they are written.
    pub sample: Sampling,
    /// Accesses of the source that were read.
    pub read: u64,
    /// Accesses of the sample.
    pub accesses: u64,
    /// Bytes of the trace.
    pub size_bytes: u64,
    /// What its stretches came to.
    pub stretches: StretchTotals,
}

/// Writes a sample of the first `max_accesses` of a source, a trace or a workload with a seed, as a trace at `output`.
/// Windows are those of `sampling`, or by the length of the source if there is none; `seed` draws where they begin
/// unless that is said. `reach` is the size of the largest cache that the sample is for, in bytes; without it, any size
/// will do ([`Sampled::reaching`]). `progress` is told of the accesses that were read, and of all if that is known; if
/// it breaks, the work stops with an error. After an error nothing is left at `output`.
///
/// # Errors
/// [`TraceError::Usage`] for a source that is too short for windows, or has been sampled before, for an output that
/// exists, or when `progress` breaks; those of the source; [`TraceError::Io`].
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
        // Contexts are those of all accesses; a sample has none.
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
        let what =
            "its accesses are samples already, so nobody knows how many instructions lie between: replay all of them";
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
