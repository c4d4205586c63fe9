//! Exports pagelab traces to formats of other tools.
//!
//! The other tools' formats contain instructions and accesses of one thread, so there is one file per thread. A trace
//! has only the instructions that access memory; `instruction` describes how the others are filled in. Mappings,
//! processes, and the distinction of program and kernel are lost. Each format's file describes what else is lost.
//!
//! A new format is one file with a `Writer` and one line of `formats!`.

mod champsim;
mod instruction;
mod lackey;
mod output;

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    ops::{ControlFlow, Range},
    path::{Path, PathBuf},
};

use serde::{Serialize, Serializer};

use crate::{Batch, EventKind, Segment, Source, TraceError, TraceReader};
use instruction::{Instruction, Thread};
use output::Output;

/// Writes the instructions of a thread as records of a format.
trait Writer {
    /// Appends an instruction's records to `bytes`.
    fn write(&mut self, instruction: &Instruction, bytes: &mut Vec<u8>, lost: &mut Lost);
}

/// The formats: variant, name, writer, and description.
macro_rules! formats {
    ($($variant:ident = $name:literal, $writer:expr, $about:literal;)*) => {
        /// Format of a trace of another tool.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ExportFormat {
            $(#[doc = $about] $variant,)*
        }

        impl ExportFormat {
            /// All formats with name and description.
            pub const KNOWN: &[(Self, &str, &str)] = &[$((Self::$variant, $name, $about),)*];

            fn writer(self) -> Box<dyn Writer> {
                match self {
                    $(Self::$variant => Box::new($writer),)*
                }
            }
        }
    };
}

formats! {
    Lackey = "lackey", lackey::Text, "text of `valgrind --tool=lackey --trace-mem=yes`";
    ChampSim = "champsim", champsim::INPUT, "64-byte `input_instr` records of ChampSim";
    CloudSuite = "champsim-cloudsuite", champsim::CLOUDSUITE, "96-byte `cloudsuite_instr` records of ChampSim";
}

impl ExportFormat {
    /// From a name in [`KNOWN`](Self::KNOWN).
    ///
    /// # Errors
    /// [`TraceError::Usage`] that lists the names.
    pub fn from_name(name: &str) -> Result<Self, TraceError> {
        Self::KNOWN.iter().find(|(_, known, _)| *known == name).map(|(format, _, _)| *format).ok_or_else(|| {
            let names: Vec<_> = Self::KNOWN.iter().map(|(_, name, _)| *name).collect();
            TraceError::usage(format!("unknown format {name:?}; traces can be exported as {}", names.join(", ")))
        })
    }
}

impl Serialize for ExportFormat {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let name = Self::KNOWN.iter().find(|(format, _, _)| format == self).map_or("", |(_, name, _)| name);
        serializer.serialize_str(name)
    }
}

/// Data that a format could not represent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// Instructions that were added because one had more accesses than a record holds, or an access had no instruction.
    pub instructions_added: u64,
    /// Accesses to address 0, which the format cannot represent.
    pub accesses_dropped: u64,
    /// The kernel's accesses, which became the program's.
    pub by_kernel: u64,
}

/// An exported file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExportedFile {
    /// Where it is.
    pub path: PathBuf,
    /// The thread's number in the trace.
    pub thread: u32,
    /// Instructions in it.
    pub instructions: u64,
    /// Accesses to data in it.
    pub accesses: u64,
    /// Data that its format could not represent.
    pub lost: Lost,
}

/// Exports a trace: one thread, or all threads, each to a file of its own if there are several. The thread's number is
/// then part of the file's name, `NAME-THREAD.ENDINGS`. The end of the name determines the compression: `.gz`, `.xz`,
/// `.bz2`, `.zst`, or none. `progress(done, all)` is called with accesses a few times a second; if it breaks, the
/// export stops with an error. After an error no file is left.
///
/// # Errors
/// Those of the trace; [`TraceError::Usage`] for a thread that makes no accesses, a file that exists, or when
/// `progress` breaks; [`TraceError::Io`].
pub fn export(
    trace: impl AsRef<Path>,
    output: impl AsRef<Path>,
    format: ExportFormat,
    thread: Option<u32>,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Vec<ExportedFile>, TraceError> {
    let (trace, output) = (trace.as_ref(), output.as_ref());
    let reader = TraceReader::open(trace)?;
    let threads = reader.event_counts().threads.max(1);
    let all = reader.access_counts().total();
    drop(reader);
    let passes: Vec<Range<u32>> = match thread {
        Some(thread) if thread >= threads => {
            let what = format!("{} has no thread {thread}: it has {threads}, from 0", trace.display());
            return Err(TraceError::usage(what));
        }
        Some(thread) => std::iter::once(thread..thread + 1).collect(),
        None => {
            (0..threads).step_by(FILES_AT_ONCE as usize).map(|from| from..threads.min(from + FILES_AT_ONCE)).collect()
        }
    };
    let name =
        |number: u32| if threads == 1 || thread.is_some() { output.to_path_buf() } else { numbered(output, number) };
    let goal = all.saturating_mul(passes.len() as u64);
    let mut files = Vec::new();
    let mut done = 0;
    let mut outcome = Ok(());
    for range in passes {
        let mut report = |now: u64| progress(done + now, goal);
        match pass(trace, range, &name, format, &mut report) {
            Ok(written) => files.extend(written),
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
        done += all;
    }
    if outcome.is_ok() && files.is_empty() {
        outcome = Err(TraceError::usage(format!("{}: no accesses to export", trace.display())));
    }
    if let Err(error) = outcome {
        files.iter().for_each(|file: &ExportedFile| _ = fs::remove_file(&file.path));
        return Err(error);
    }
    Ok(files)
}

/// Files written per pass over the trace; compressors need about 30 MB each.
const FILES_AT_ONCE: u32 = 8;
/// Bytes passed to a compressor at once.
const BUFFER_BYTES: usize = 64 << 10;

/// `NAME-THREAD.ENDINGS`.
fn numbered(output: &Path, thread: u32) -> PathBuf {
    let name = output.file_name().unwrap_or_default().to_string_lossy();
    let dot = name[1.min(name.len())..].find('.').map_or(name.len(), |at| at + 1);
    output.with_file_name(format!("{}-{thread}{}", &name[..dot], &name[dot..]))
}

/// A file that is being written.
struct OutputFile {
    output: Output,
    thread: Thread,
    writer: Box<dyn Writer>,
    bytes: Vec<u8>,
    lost: Lost,
}

impl OutputFile {
    fn flush(&mut self) -> Result<(), TraceError> {
        self.output.write_all(&self.bytes).map_err(|e| self.output.error(e))?;
        self.bytes.clear();
        Ok(())
    }
}

/// Writes the files of some threads in one pass over the trace.
fn pass(
    trace: &Path,
    threads: Range<u32>,
    name: &dyn Fn(u32) -> PathBuf,
    format: ExportFormat,
    report: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Vec<ExportedFile>, TraceError> {
    let mut lanes: BTreeMap<u32, OutputFile> = BTreeMap::new();
    let mut reader = TraceReader::open(trace)?;
    let (mut batch, mut done, mut skipped) = (Batch::default(), 0, false);
    while reader.next_batch(&mut batch)? {
        let mut begin = 0;
        for segment in &batch.segments {
            let (thread, end) = match segment {
                Segment::Run { thread, end } => (thread, end),
                Segment::Event(event) => {
                    skipped =
                        event.kind == EventKind::Skip || skipped && !matches!(event.kind, EventKind::Resume { .. });
                    continue;
                }
            };
            let run = &batch.accesses[std::mem::replace(&mut begin, *end)..*end];
            // First touches in skipped stretches do not represent what the program did there.
            if skipped || !threads.contains(&thread.0) {
                continue;
            }
            let lane = match lanes.entry(thread.0) {
                std::collections::btree_map::Entry::Occupied(lane) => lane.into_mut(),
                std::collections::btree_map::Entry::Vacant(place) => place.insert(OutputFile {
                    output: Output::create(&name(thread.0))?,
                    thread: Thread::default(),
                    writer: format.writer(),
                    bytes: Vec::with_capacity(2 * BUFFER_BYTES),
                    lost: Lost::default(),
                }),
            };
            for access in run {
                let OutputFile { thread, writer, bytes, lost, .. } = lane;
                thread.access(access, lost, |instruction, lost| writer.write(instruction, bytes, lost));
                if lane.bytes.len() >= BUFFER_BYTES {
                    lane.flush()?;
                }
            }
        }
        done += batch.accesses.len() as u64;
        if report(done).is_break() {
            return Err(TraceError::usage("export interrupted; nothing was written"));
        }
    }
    let mut written = Vec::new();
    for (number, mut lane) in lanes {
        let OutputFile { thread, writer, bytes, lost, .. } = &mut lane;
        thread.end(lost, |instruction, lost| writer.write(instruction, bytes, lost));
        lane.flush()?;
        written.push((number, lane.thread.counts(), lane.lost, lane.output));
    }
    // No file gets its name before all files are complete.
    let mut files: Vec<ExportedFile> = Vec::new();
    for (thread, (instructions, accesses), lost, output) in written {
        match output.finish() {
            Ok(path) => files.push(ExportedFile { path, thread, instructions, accesses, lost }),
            Err(error) => {
                files.iter().for_each(|file| _ = fs::remove_file(&file.path));
                return Err(error);
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_thread_goes_before_the_endings() {
        for (output, expected) in [
            ("a/sort.champsim.xz", "a/sort-3.champsim.xz"),
            ("sort", "sort-3"),
            (".x.gz", ".x-3.gz"),
            ("a.b/c", "a.b/c-3"),
        ] {
            assert_eq!(numbered(Path::new(output), 3), Path::new(expected));
        }
    }
}
