//! The trace format: a folder `NAME.trace/` that any Parquet reader can open.
//!
//! | file | content |
//! |---|---|
//! | `accesses-000000.parquet` … | the accesses, a million in the first parts and up to [`MAX_PART_ROWS`] in later ones, one row group each |
//! | `events-000000.parquet` … | the events; a part is written before the part of accesses it belongs to |
//! | `trace.json` | [`TraceMeta`]: command, host, counts, hash; `"complete": false` until the very end |
//!
//! Columns of accesses (none is ever null):
//!
//! | column | type | meaning |
//! |---|---|---|
//! | `kind` | u8 | number of [`AccessKind`](crate::AccessKind); bit 4 (16) is set if the kernel made the access |
//! | `size` | u16 | bytes, 1 to 4096 |
//! | `vaddr` | u64 | virtual address of the first byte |
//! | `pc` | u64 | address of the instruction, 0 if unknown |
//! | `tid` | u32 | dense thread number, [`ThreadIx`](crate::ThreadIx) |
//! | `gap` | u32 | instructions the thread retired since its last access, this access's own included |
//! | `waits` | u32 | only if `trace.json` contains `"dependencies": true`: see below |
//!
//! The lowest byte of `waits` is the distance to the load that the address (for a store, also its data) depends on, in
//! accesses of the thread; 0 if none is known within 254. The next byte is the distance to the load that the
//! conditional branches since the last access depend on; if there are several loads, the one that probably completes
//! last. The third byte contains the branches' outcomes ([`Branches`](crate::Branches)). The highest byte is 0. The
//! stored value is the exclusive or of this word and that of the page's previous row with the same `kind`, `size`, `pc`
//! and `gap`, so repetitions are 0.
//!
//! Columns of events: see [`EventRow`].
//!
//! **Crash safety.** A part is written under a name ending in `.tmp` and renamed when it is complete. So a process that
//! is killed leaves all finished parts and nothing partial under a final name. Events are written before the accesses
//! that follow them. So an incomplete trace may contain events beyond its last access; the reader drops those. This
//! protects against the death of the recorder, not against power loss: nothing is synced to the disk.
//!
//! **Integrity.** The footer of every part contains its position in the trace and the hash of all bytes before the
//! footer; `trace.json` of a complete trace contains the hash of these hashes. The reader checks both.
//!
//! **Encoding.** Plain Parquet 1.0 data pages of up to [`PAGE_ROWS`] rows, divided at the same rows in every column and
//! compressed by zstd. Addresses and `waits` are split into byte streams; the upper ones, mostly constant, are blocks
//! of one repeated byte. Every other column consists of dictionary indices in one run per page: repeated, or packed at
//! a width of whole bytes, because zstd finds repetitions of bytes, not of bits.
//!
//! `kind`, `size`, `pc` and `gap` repeat together, so their dictionaries have one entry per combination, and their data
//! pages are identical: looked up and compressed once, written four times, read and decompressed once. A part whose
//! dictionaries are full (65,536 entries) ends early.
//!
//! **Threads.** The writer's caller fills a page and splits it into planes and indices (`page`). Two threads encode:
//! one compresses addresses, the other everything else, and writes the files (`pipeline`).

mod anonymize;
mod call_parts;
mod columns;
mod compress;
mod decode;
mod dictionary;
mod encode;
mod encoder;
mod event_part;
mod event_row;
mod folder;
mod indices;
mod info;
mod last_waits;
mod meta;
mod page;
mod part;
mod pipeline;
mod planes;
mod reader;
mod replace_advice;
mod row_columns;
mod tally;
mod writer;

pub(crate) use anonymize::FileNames;
pub use anonymize::anonymize;
pub(crate) use call_parts::{CallRow, CallsWriter};
pub(crate) use columns::waits_of;
pub(crate) use dictionary::Site;
pub use event_row::EventRow;
pub use info::{Footprint, Row, TraceInfo, footprint, head, info};
pub use meta::{AccessCounts, EventCounts, FORMAT_VERSION, HostFacts, ProgramExit, StretchTotals, TraceMeta};
pub(crate) use page::{Columns, GROUP, OpenPage};
pub use reader::TraceReader;
pub use replace_advice::{Advice, replace_advice};
pub use writer::{TraceSummary, TraceWriter, WriterOptions};

/// Maximum number of accesses in a part, and the default of [`WriterOptions`]: about 16 MB.
pub const MAX_PART_ROWS: usize = 1 << 23;
/// Accesses in each of the first parts, so that a short recording that is killed loses little.
pub(crate) const FIRST_PART_ROWS: usize = 1 << 20;
/// Number of parts before the part size doubles.
const PARTS_OF_ONE_SIZE: u32 = 4;
/// Accesses in a page of every column. 64 Ki cost 3 % more bytes than 128 Ki and keep a batch at 1.5 MiB.
pub const PAGE_ROWS: usize = 1 << 16;
/// Maximum number of bytes of an access (system-call buffers are recorded page by page).
pub const MAX_ACCESS_BYTES: u16 = 4096;
