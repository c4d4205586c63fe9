//! Traces of other tools become pagelab traces.
//!
//! [`ImportFormat::KNOWN`] lists the formats. Their data is plain or compressed ([`Compression`]), read once and never
//! held whole. None of them knows mappings: these are inferred from the pages touched (see [`mappings`]), and the trace
//! is marked so. Most know no threads.
//!
//! A new format is one file and one line of `formats!`. The file says how the data is recognised (`looks_like`), which
//! records it has and what they become (`read`), and what readers of results should know (`notes`). It upholds:
//!
//! - records go to the `Sink` in their order, each after `next_record` and with its thread entered before;
//! - what is malformed is an error that says where: the number of the line or the offset in the decompressed data;
//! - what has no meaning for a trace is left out and counted, never silently, and never most of a text;
//! - data that may be of another layout is refused (`doubt`), with the option that decides it;
//! - memory stays bounded, whatever the data claims.

mod addresses;
mod archive;
mod champsim;
mod compression;
mod drmemtrace;
mod files;
mod gem5;
mod input;
mod lackey;
mod lines;
pub mod mappings;
mod members;
mod numbers;
mod other_tools;
mod perf;
mod perf_compressed;
mod perf_data;
mod perf_fields;
mod perf_sample;
mod pinatrace;
mod protobuf;
mod ramulator;
pub mod rows;
mod sink;
mod words;
mod zip_members;

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use serde::{Serialize, Serializer};

pub use input::{Compression, Head, Input};
use sink::Sink;

use crate::{
    TraceError, TraceMeta, TraceWriter,
    format::{MAX_ACCESS_BYTES, MAX_PART_ROWS, WriterOptions},
};

/// The formats: variant, name, whether its accesses are samples, how it is recognised, why it may be another format
/// after all, how it is read, what is to be known of it, and what it is.
macro_rules! formats {
    ($($variant:ident = $name:literal, $sampled:literal, $looks_like:path, $doubt:path, $read:path, $notes:path, $about:literal;)*) => {
        /// Format of a trace of another tool.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ImportFormat {
            /// Recognised by the content.
            Auto,
            $(#[doc = $about] $variant,)*
        }

        impl ImportFormat {
            /// The formats there are, with what their documentation calls them, in the order in which they are
            /// recognised.
            pub const KNOWN: &[(Self, &str, &str)] = &[$((Self::$variant, $name, $about),)*];

            fn looks_like(self, head: Head<'_>) -> bool {
                match self {
                    Self::Auto => false,
                    $(Self::$variant => $looks_like(head),)*
                }
            }

            /// Why data that looks like this format may be of another one.
            fn doubt(self, head: Head<'_>) -> Option<String> {
                match self {
                    Self::Auto => None,
                    $(Self::$variant => $doubt(head),)*
                }
            }

            fn read(self, files: &mut [Input], sink: &mut Sink, options: &ImportOptions) -> Result<(), TraceError> {
                match self {
                    Self::Auto => Ok(()),
                    $(Self::$variant => $read(files, sink, options),)*
                }
            }

            fn notes(self, options: &ImportOptions) -> Vec<String> {
                match self {
                    Self::Auto => Vec::new(),
                    $(Self::$variant => $notes(options),)*
                }
            }

            fn sampled(self) -> bool {
                match self {
                    Self::Auto => false,
                    $(Self::$variant => $sampled,)*
                }
            }
        }
    };
}

formats! {
    Drmemtrace = "drmemtrace", false, drmemtrace::looks_like, no_doubt, drmemtrace::read, no_notes,
        "DynamoRIO's drmemtrace: the file of a thread, or the folder of all";
    Gem5 = "gem5", false, gem5::looks_like, no_doubt, gem5::read, gem5::notes, "protobuf packet traces of gem5";
    Lackey = "lackey", false, lackey::looks_like, no_doubt, lackey::read, no_notes,
        "text of `valgrind --tool=lackey --trace-mem=yes`";
    Perf = "perf", true, perf::looks_like, no_doubt, perf::read, perf::notes,
        "samples with addresses, as `perf script` prints them";
    PerfData = "perf-data", true, perf_data::looks_like, no_doubt, perf_data::read, perf::notes,
        "perf's own file: samples with addresses";
    PinAtrace = "pinatrace", false, pinatrace::looks_like, no_doubt, pinatrace::read, pinatrace::notes,
        "text of Intel Pin's tool pinatrace";
    Ramulator = "ramulator", false, ramulator::looks_like, ramulator::doubt, ramulator::read, ramulator::notes,
        "text of Ramulator: loads and stores, reads and writes, or instructions";
    ChampSim = "champsim", false, champsim::looks_like, champsim::doubt, champsim::read, champsim::notes,
        "64-byte `input_instr` records of ChampSim";
    CloudSuite = "champsim-cloudsuite", false, champsim::looks_like_cloudsuite, champsim::doubt,
        champsim::read_cloudsuite, champsim::notes, "96-byte `cloudsuite_instr` records of ChampSim";
}

fn no_notes(_: &ImportOptions) -> Vec<String> {
    Vec::new()
}

fn no_doubt(_: Head<'_>) -> Option<String> {
    None
}

impl ImportFormat {
    /// From a name in [`KNOWN`](Self::KNOWN) or `auto`.
    ///
    /// # Errors
    /// [`TraceError::Usage`] that lists the names.
    pub fn from_name(name: &str) -> Result<Self, TraceError> {
        if name == "auto" {
            return Ok(Self::Auto);
        }
        Self::KNOWN.iter().find(|(_, known, _)| *known == name).map(|(format, _, _)| *format).ok_or_else(|| {
            TraceError::usage(format!("unknown trace format {name:?}; known are auto, {}", Self::names()))
        })
    }

    /// Its name in [`KNOWN`](Self::KNOWN), or `auto`.
    pub fn name(self) -> &'static str {
        Self::KNOWN.iter().find(|(format, _, _)| *format == self).map_or("auto", |(_, name, _)| name)
    }

    fn names() -> String {
        Self::KNOWN.iter().map(|(_, name, _)| *name).collect::<Vec<_>>().join(", ")
    }

    /// The format that options decide, whatever the data is like.
    fn decided_by(self, options: &ImportOptions) -> Result<Self, TraceError> {
        let wrong = |option: &str, what: &str| {
            Err(TraceError::usage(format!("{option} is of {what}, not of format {}", self.name())))
        };
        let by_size = match options.record_bytes {
            None => None,
            Some(64) => Some(Self::ChampSim),
            Some(96) => Some(Self::CloudSuite),
            Some(bytes) => {
                let what = format!("--record-bytes {bytes}: ChampSim's records have 64 or 96 bytes");
                return Err(TraceError::usage(what));
            }
        };
        match (self, by_size, &options.fields) {
            (_, Some(_), Some(_)) => {
                Err(TraceError::usage("--record-bytes is of ChampSim's records, and --fields of perf's text: give one"))
            }
            (_, None, None) => Ok(self),
            (Self::Auto | Self::ChampSim | Self::CloudSuite, Some(format), None)
                if self == Self::Auto || self == format =>
            {
                Ok(format)
            }
            (_, Some(format), None) => wrong("--record-bytes", &format!("format {}", format.name())),
            (Self::Auto | Self::Perf, None, Some(_)) => Ok(Self::Perf),
            (_, None, Some(_)) => wrong("--fields", "perf's text"),
        }
    }

    /// The format of an input; none if it is of none.
    fn recognise(input: &Input) -> Option<Self> {
        Self::KNOWN.iter().map(|(format, _, _)| *format).find(|format| format.looks_like(input.head()))
    }
}

impl Serialize for ImportFormat {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// How a foreign trace is read.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// How the files are compressed.
    pub compression: Compression,
    /// Untouched stretches up to this many bytes belong to the mapping around them. Default 1 MiB.
    pub merge_gap_bytes: u64,
    /// Size given to accesses of formats that do not tell it, 1 to 4096. Default 8.
    pub assumed_size_bytes: u16,
    /// Stop after this many accesses.
    pub max_accesses: Option<u64>,
    /// Stop after this many records of the origin (lines, instructions, entries, packets).
    pub max_records: Option<u64>,
    /// The fields of a text of `perf script`, as behind its `-F`. None to tell them by the lines.
    pub fields: Option<String>,
    /// Bytes of a record of a format that has several sizes (ChampSim's: 64 or 96). None to tell them by the content.
    pub record_bytes: Option<u32>,
    /// Take the highest byte of addresses for a tag, as AArch64 does, and remove it. Default false: an address with
    /// more bits than page tables translate is an error.
    pub remove_tags: bool,
    /// Leave out and count instructions and accesses at addresses of the kernel's half. Default false: they are
    /// errors.
    pub leave_out_kernel: bool,
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
            max_records: None,
            fields: None,
            record_bytes: None,
            remove_tags: false,
            leave_out_kernel: false,
            rows_per_part: MAX_PART_ROWS,
        }
    }
}

/// How far an import is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportProgress {
    /// Bytes of the input files read so far, before decompression.
    pub read_bytes: u64,
    /// Size of the input files; none for pipes.
    pub total_bytes: Option<u64>,
    /// Accesses written so far.
    pub accesses: u64,
}

/// What an import did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImportSummary {
    /// The trace's folder.
    pub output: PathBuf,
    /// Never [`ImportFormat::Auto`].
    pub format: ImportFormat,
    /// Never [`Compression::Auto`].
    pub compression: Compression,
    /// Records of the origin that were read: lines, instructions, entries or packets.
    pub records: u64,
    /// Accesses of the trace, fetches included.
    pub accesses: u64,
    /// Fetches among the accesses: the first one of each code page, and one at the end for the instructions after the
    /// last access.
    pub fetches: u64,
    /// Instructions of the trace: the sum of its gaps.
    pub instructions: u64,
    /// Accesses of 0 bytes, which were left out.
    pub empty_accesses: u64,
    /// Records that say nothing about the program's own accesses, which were left out.
    pub left_out: u64,
    /// True if the accesses are samples.
    pub sampled: bool,
    /// Threads and processes that made the accesses.
    pub threads: u64,
    /// Processes that made the accesses.
    pub processes: u64,
    /// Mappings inferred.
    pub mappings: u64,
    /// What turned out on the way and matters to readers of results; the trace has it, too.
    pub notes: Vec<String>,
    /// Bytes of the input files read.
    pub read_bytes: u64,
    /// Bytes of the trace.
    pub size_bytes: u64,
    /// Hash of the accesses and events, as `trace info` shows it.
    pub content_hash: String,
    /// True if the import stopped at `max_accesses` or `max_records`.
    pub cut_short: bool,
}

/// Imports `input`, a file or a folder of the files of threads, into a new trace at `output`. `progress` is called
/// every few hundred kilobytes; if it breaks, the import stops with an error. After an error nothing is left at
/// `output`.
///
/// # Errors
/// [`TraceError::Corrupt`] with the line number or the byte offset (of the decompressed data) of what is malformed, or
/// if nothing is to be imported; [`TraceError::Usage`] for options, an unrecognised format, an output that exists, or
/// when `progress` breaks; [`TraceError::Io`].
pub fn import(
    input: impl AsRef<Path>,
    output: impl AsRef<Path>,
    format: ImportFormat,
    options: &ImportOptions,
    progress: &mut dyn FnMut(ImportProgress) -> ControlFlow<()>,
) -> Result<ImportSummary, TraceError> {
    let (input, output) = (input.as_ref(), output.as_ref());
    if !(1..=MAX_ACCESS_BYTES).contains(&options.assumed_size_bytes) {
        let what = format!("assumed size is {} bytes, allowed are 1 to {MAX_ACCESS_BYTES}", options.assumed_size_bytes);
        return Err(TraceError::usage(what));
    }
    let mut files = files::open(input, options.compression, progress)?;
    let (format, rather) = match format.decided_by(options)? {
        ImportFormat::Auto => (recognise(&files)?, None),
        given => (given, ImportFormat::recognise(&files[0]).filter(|found| *found != given)),
    };
    let mut meta = TraceMeta::new(vec![input.display().to_string()]);
    meta.mappings_inferred = true;
    meta.sampled = format.sampled();
    let writing = WriterOptions { rows_per_part: options.rows_per_part };
    let result = TraceWriter::write_whole(output, meta, writing, |writer| {
        fill(writer, &mut files, format, rather, options, progress)
    });
    result.map_err(|error| match (error, rather) {
        (TraceError::Corrupt { path, what }, Some(rather)) => {
            TraceError::corrupt(path, format!("{what}; read as {}, but it looks like {}", format.name(), rather.name()))
        }
        (error, _) => error,
    })
}

/// The format that all files are of.
fn recognise(files: &[Input]) -> Result<ImportFormat, TraceError> {
    let mut of_all = None;
    for file in files {
        let format = ImportFormat::recognise(file).ok_or_else(|| file.corrupt(unknown(file)))?;
        if *of_all.get_or_insert(format) != format {
            return Err(file.corrupt(format!("of another format ({}) than the files before it", format.name())));
        }
        if let Some(doubt) = format.doubt(file.head()) {
            return Err(file.corrupt(doubt));
        }
    }
    Ok(of_all.unwrap_or(ImportFormat::Auto))
}

fn unknown(file: &Input) -> String {
    match Compression::recognise(file.head().bytes) {
        Compression::None => {
            if let Some(what) = other_tools::describe(file.head().bytes) {
                return format!("{what}; formats that are known: {}", ImportFormat::names());
            }
            let line = file.head().bytes.split(|&byte| byte == b'\n').find(|line| !line.trim_ascii().is_empty());
            let begins =
                line.map(lines::shown).filter(|text| !text.contains(|c: char| c.is_control() || c == '\u{fffd}'));
            let begins = begins.map_or(String::new(), |text| format!(", its first line is {text:?}"));
            format!(
                "no trace of a format that is known ({}){begins}; name the format if it is one",
                ImportFormat::names()
            )
        }
        inner => format!("{} data within {} data; decompress it once", inner.name(), file.compression().name()),
    }
}

fn fill(
    writer: TraceWriter,
    files: &mut [Input],
    format: ImportFormat,
    rather: Option<ImportFormat>,
    options: &ImportOptions,
    progress: &mut dyn FnMut(ImportProgress) -> ControlFlow<()>,
) -> Result<ImportSummary, TraceError> {
    let (counter, total_bytes) = (files[0].counter(), files.iter().map(Input::total_bytes).sum());
    let mut sink = Sink::new(writer, options, counter, total_bytes, progress);
    if let Some(rather) = rather {
        sink.note(format!("read as {}, as asked for, but it looks like {}", format.name(), rather.name()));
    }
    format.read(files, &mut sink, options)?;
    sink.report()?;
    let cut_short = sink.is_full();
    let totals = sink.totals();
    if sink.accesses() == 0 {
        let what = match totals.instructions {
            0 => "an empty trace: it has no instructions and no accesses".to_owned(),
            1 => "nothing to replay: an instruction and no accesses".to_owned(),
            n => format!("nothing to replay: {n} instructions and no accesses"),
        };
        let what = match totals.left_out {
            0 => what,
            1 => format!("{what}; its 1 record was left out"),
            several => format!("{what}; {several} records were left out"),
        };
        return Err(files[0].corrupt(what));
    }
    let (compression, read_bytes) = (files[0].compression(), files[0].read_bytes());
    let (threads, processes) = sink.threads();
    let gap = options.merge_gap_bytes;
    let who = match sink.merged_processes() {
        0 | 1 => who(threads, processes),
        several => format!("{several} processes, taken for one"),
    };
    let mut notes = vec![format!("imported from {}: {who}", format.name())];
    notes.extend(format.notes(options));
    let mappings = format!("mappings are the touched pages and the gaps between them up to {gap} bytes");
    let (summary, found, mappings) = sink.finish(gap, notes, mappings)?;
    Ok(ImportSummary {
        output: summary.path,
        format,
        compression,
        records: totals.records,
        accesses: summary.accesses.total(),
        fetches: summary.accesses.fetches,
        instructions: summary.accesses.instructions,
        empty_accesses: totals.empty,
        left_out: totals.left_out,
        sampled: format.sampled(),
        threads,
        processes,
        mappings,
        notes: found,
        read_bytes,
        size_bytes: summary.size_bytes,
        content_hash: summary.content_hash,
        cut_short,
    })
}

fn who(threads: u64, processes: u64) -> String {
    match (processes, threads) {
        (1, 1) => "one process, one thread".to_owned(),
        (1, _) => format!("one process, {threads} threads"),
        _ => format!("{processes} processes, {threads} threads"),
    }
}
