//! Traces of other tools become pagelab traces.
//!
//! | format | what it is |
//! |---|---|
//! | [`lackey`] | text of `valgrind --tool=lackey --trace-mem=yes` |
//! | [`champsim`] | `input_instr` records of ChampSim's tracers |
//!
//! plain or compressed with gzip, xz or zstd. The input is read once and never held whole. Neither format knows
//! mappings, processes or threads: the result is one thread of one process, whose mappings are inferred from the pages
//! touched (see [`mappings`]) and marked so.
//!
//! A new format is one file with a function that feeds a `Sink` and a line in [`Format::KNOWN`].

pub mod champsim;
mod input;
pub mod lackey;
pub mod mappings;
pub mod rows;
mod sink;

use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use serde::Serialize;

pub use input::{Compression, Head, Input};
use sink::Sink;

use crate::{
    TraceError, TraceMeta, TraceWriter,
    format::{MAX_ACCESS_BYTES, MAX_PART_ROWS, TraceSummary, WriterOptions},
};

/// Format of a trace of another tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Recognised by the content.
    Auto,
    Lackey,
    ChampSim,
}

impl Format {
    /// The formats there are, with what their documentation calls them.
    pub const KNOWN: [(Self, &str, &str); 2] = [
        (Self::Lackey, "lackey", "text of `valgrind --tool=lackey --trace-mem=yes`"),
        (Self::ChampSim, "champsim", "64-byte `input_instr` records of ChampSim"),
    ];

    /// From a name in [`KNOWN`](Self::KNOWN) or `auto`.
    ///
    /// # Errors
    /// [`TraceError::Usage`] that lists the names.
    pub fn from_name(name: &str) -> Result<Self, TraceError> {
        if name == "auto" {
            return Ok(Self::Auto);
        }
        Self::KNOWN.into_iter().find(|(_, known, _)| *known == name).map(|(format, _, _)| format).ok_or_else(|| {
            TraceError::usage(format!("unknown trace format {name:?}; known are auto, lackey and champsim"))
        })
    }

    /// The format of an input that begins with `head`; `whole` if that is all there is.
    fn recognise(head: &[u8], whole: bool) -> Option<Self> {
        if lackey::looks_like(head, whole) {
            Some(Self::Lackey)
        } else if champsim::looks_like(head) {
            Some(Self::ChampSim)
        } else {
            None
        }
    }
}

/// How a foreign trace is read.
#[derive(Clone, Copy, Debug)]
pub struct ImportOptions {
    pub compression: Compression,
    /// Untouched stretches up to this many bytes belong to the mapping around them. Default 1 MiB.
    pub merge_gap_bytes: u64,
    /// Size given to accesses of formats that do not tell it (ChampSim), 1 to 4096. Default 8.
    pub assumed_size_bytes: u16,
    /// Stop after this many accesses.
    pub max_accesses: Option<u64>,
    /// As [`WriterOptions::rows_per_part`].
    pub rows_per_part: usize,
}

impl Default for ImportOptions {
    fn default() -> Self {
        Self {
            compression: Compression::Auto,
            merge_gap_bytes: 1 << 20,
            assumed_size_bytes: 8,
            max_accesses: None,
            rows_per_part: MAX_PART_ROWS,
        }
    }
}

/// How far an import is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the input file read so far, before decompression.
    pub read_bytes: u64,
    /// Size of the input file; none for pipes.
    pub total_bytes: Option<u64>,
    /// Accesses written so far.
    pub accesses: u64,
}

/// What an import did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImportSummary {
    pub output: PathBuf,
    /// Never [`Format::Auto`].
    pub format: Format,
    /// Never [`Compression::Auto`].
    pub compression: Compression,
    pub accesses: u64,
    /// Fetches among the accesses: the first one of each code page, and one at the end for the instructions after the
    /// last access.
    pub fetches: u64,
    pub instructions: u64,
    /// Accesses of 0 bytes, which were left out.
    pub empty_accesses: u64,
    /// Mappings inferred.
    pub mappings: u64,
    /// Bytes of the input file read.
    pub read_bytes: u64,
    /// Bytes of the trace.
    pub size_bytes: u64,
    pub content_hash: String,
    /// True if the import stopped at `max_accesses`.
    pub cut_short: bool,
}

/// Imports the file `input` into a new trace at `output`. `progress` is called every few hundred kilobytes; if it
/// breaks, the import stops with an error. After an error nothing is left at `output`.
///
/// # Errors
/// [`TraceError::Corrupt`] with the line number or the byte offset (of the decompressed data) of what is malformed, or
/// if nothing is to be imported; [`TraceError::Usage`] for options, an unrecognised format, an output that exists, or
/// when `progress` breaks; [`TraceError::Io`].
pub fn import(
    input: impl AsRef<Path>,
    output: impl AsRef<Path>,
    format: Format,
    options: &ImportOptions,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<ImportSummary, TraceError> {
    let (input, output) = (input.as_ref(), output.as_ref());
    if !(1..=MAX_ACCESS_BYTES).contains(&options.assumed_size_bytes) {
        let what = format!("assumed size is {} bytes, allowed are 1 to {MAX_ACCESS_BYTES}", options.assumed_size_bytes);
        return Err(TraceError::usage(what));
    }
    let source = Input::open(input, options.compression)?;
    let head = source.head();
    if head.bytes.is_empty() {
        return Err(TraceError::corrupt(input, "an empty trace: it has no data"));
    }
    let format = match format {
        Format::Auto => Format::recognise(head.bytes, head.whole).ok_or_else(|| {
            let what = "neither Valgrind lackey text nor ChampSim records; name the format if it is one of them";
            TraceError::corrupt(input, what)
        })?,
        given => given,
    };
    let meta = meta(input, format, options);
    let existed = output.exists();
    let writer = TraceWriter::with_options(output, meta, WriterOptions { rows_per_part: options.rows_per_part })?;
    let result = fill(writer, source, format, options, progress);
    if result.is_err() {
        // Only what the writer made is removed: it refuses a folder that is not empty.
        let _ = fs::remove_dir_all(output);
        if existed {
            let _ = fs::create_dir(output);
        }
    }
    result
}

fn fill(
    writer: TraceWriter,
    mut source: Input,
    format: Format,
    options: &ImportOptions,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<ImportSummary, TraceError> {
    let mut sink = Sink::new(writer, options.max_accesses);
    match format {
        Format::ChampSim => champsim::read(&mut source, &mut sink, options.assumed_size_bytes, progress)?,
        Format::Lackey | Format::Auto => lackey::read(&mut source, &mut sink, progress)?,
    }
    let cut_short = sink.is_full();
    if sink.accesses() == 0 && sink.instructions() == 0 {
        return Err(source.corrupt("an empty trace: it has no instructions and no accesses"));
    }
    let (instructions, empty_accesses) = (sink.instructions(), sink.empty());
    let (compression, read_bytes) = (source.compression(), source.read_bytes());
    let (summary, mappings): (TraceSummary, u64) = sink.finish(options.merge_gap_bytes)?;
    Ok(ImportSummary {
        output: summary.path,
        format,
        compression,
        accesses: summary.accesses.total(),
        fetches: summary.accesses.fetches,
        instructions,
        empty_accesses,
        mappings,
        read_bytes,
        size_bytes: summary.size_bytes,
        content_hash: summary.content_hash,
        cut_short,
    })
}

fn meta(input: &Path, format: Format, options: &ImportOptions) -> TraceMeta {
    let mut meta = TraceMeta::new(vec![input.display().to_string()]);
    meta.mappings_inferred = true;
    let gap = options.merge_gap_bytes;
    let (name, notes) = match format {
        Format::ChampSim => {
            let size = options.assumed_size_bytes;
            let note = format!("ChampSim does not tell the sizes of accesses: every one is taken for {size} bytes");
            ("ChampSim records", Some(note))
        }
        Format::Lackey | Format::Auto => ("Valgrind lackey text", None),
    };
    meta.notes.push(format!("imported from {name}: one process, one thread"));
    meta.notes.extend(notes);
    meta.notes.push(format!("mappings are the touched pages and the gaps between them up to {gap} bytes"));
    meta
}
