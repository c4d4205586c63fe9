//! The storage management unit of hardware-based demand paging.
//!
//! Models: page-table entries that hold the block of storage of a page of a file ([`crate::entry_word::Stored`]),
//! written when the file is mapped; and a unit next to the walker that reads such a page ([`miss`]). It records the
//! miss so that later misses on the page find it, takes a frame from a queue that the kernel fills ([`free_pages`]),
//! sends a request to the drive through its own queue pair ([`queue_pair`]), and writes the entry. The faulting thread
//! stalls until then, and no exception is raised. A kernel thread does the accounting later ([`kpted`]): the entry of
//! such a page is marked, and so are those above it, which lead the thread to it. Another thread fills the queue
//! ([`kpoold`]); a fault that finds it empty does so, too.
//! Source: Lee, Jin et al., "A Case for Hardware-Based Demand Paging", ISCA 2020, as far as the talk's slides describe
//! it. The order of the states of an entry and of the steps of a miss is reconstructed from the slides' labels, the
//! code of kpted on them, and the claims of patent US 11,436,150.
//! Parameters: those of `fault_engine` ([`parameters`]).
//! Stats: `layer.NAME.fault_engine.*`.
//!
//! Choices where the source is silent:
//!
//! - A miss that finds no free register waits for one.
//! - A request that the drive answers with an error, and a miss without a free page, end in a page fault, which the
//!   kernel handles.
//! - The free pages that the unit prefetches fill a cache line; it fetches the next line while the drive is busy.
//! - A fault that found the queue empty prepares `sync_refill` pages before it does anything else. kpoold fills the
//!   whole queue.
//! - Pages that kpted has not accounted for cannot be reclaimed. So kpted runs early when memory is low, and a fault
//!   that finds no memory accounts for all of them.
//! - A page that a page fault is reading gets no block's address: to Linux, it is in the page cache already.
//! - The entry of a dirty page that is reclaimed gets its block's address back when the page has been written; that of
//!   a clean page at once.
//! - Files that are served: those with one mapping, or with several of one process that do not overlap. A file that
//!   another process maps as well is no longer served. Private writable mappings are served for reads.
//! - fork: the child works, and so does its parent: both leave the file to the kernel (`after_fork`). Once the child
//!   has exited or runs another program, the entries of pages that are not in memory may get their blocks back.
//! - The slides' interface of fast mmap is a flag of the call here (`fast_mmap`); without it, all mappings have it.
//! - Guests have no drive of their own here, so the unit only works in the machine's own layer.
//! - Each socket has a unit ([`mod@unit`]) with registers, a queue of free pages, and a queue pair for each drive
//!   attached there. An entry names socket and drive, so that socket's unit serves the page, whichever CPU misses.
//!   Drives are attached to the sockets in turn, and cores are divided as equally as possible. A miss on another
//!   socket's page takes `remote_cycles` more, for the way there and back.
//! - One kpted and one kpoold serve all units.
//!
//! Deviations: memory is one node, so a unit's queue holds frames from anywhere. A miss that waits while its page moves
//! to another socket's drive pays no second way. The mapping call that fills entries makes references for it only with
//! `fill = "references"` ([`fill`]).

pub mod engine_access;
pub mod fill;
pub mod free_pages;
pub mod kpoold;
pub mod kpted;
pub mod miss;
pub mod parameters;
pub mod queue_pair;
pub mod state;
pub mod unit;

pub use miss::Offload;
