//! Fault traces on disk: one Parquet file that any Parquet reader can open, by convention `NAME.faults`.
//!
//! Columns (none is ever null); rows are sorted by time:
//!
//! | column | type | meaning |
//! |---|---|---|
//! | `time_ns` | u64 | since the beginning of the trace |
//! | `core` | u16 | where the fault was raised |
//! | `address` | u64 | what the program accessed |
//! | `kind` | u8 | bits 0–1: 0 unknown, 1 read, 2 write, 3 instruction; bit 2: the page was present; bit 3: kernel code faulted |
//! | `process` | u32 | process id |
//! | `thread` | u32 | thread id |
//! | `latency_ns` | u32 | how long this fault took; 0 if that was not measured |
//!
//! The key `pagelab` of the footer holds [`FaultTraceInfo`](crate::FaultTraceInfo) as JSON, and the hash of all bytes
//! before the footer, which the reader checks. The file is written under a name ending in `.tmp` and renamed when it is
//! complete.

mod columns;
mod reader;
mod writer;

pub use reader::FaultTraceReader;
pub use writer::FaultTraceWriter;

/// Maximum number of faults in a row group.
pub const GROUP_ROWS: usize = 1 << 20;

/// Key of the facts in the Parquet footer.
const FACTS_KEY: &str = "pagelab";

/// The facts in the footer.
#[derive(serde::Serialize, serde::Deserialize)]
struct Facts {
    info: crate::FaultTraceInfo,
    /// Hash of all bytes before the footer: 128-bit xxh3 in hexadecimal.
    hash: String,
}
