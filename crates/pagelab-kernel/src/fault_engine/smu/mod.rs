//! The storage management unit of hardware-based demand paging.
//!
//! Models: page-table entries that say which block of storage a page of a file is in ([`crate::entry_word::Stored`]),
//! written when the file is mapped; a unit beside the walker that reads such a page ([`miss`]): it notes the miss where
//! later ones to the page find it, takes a frame from a queue that the kernel fills ([`free_pages`]), asks the drive by
//! a queue pair of its own ([`queue_pair`]), and writes the entry. The thread that missed stalls until then, and no
//! exception is raised. What the kernel keeps of pages, a thread does later ([`kpted`]): the entry of such a page is
//! marked, and so are those above it, which lead the thread there. Another one fills the queue ([`kpoold`]); a fault
//! that found it empty does so, too.
//! Source: Lee, Jin et al., "A Case for Hardware-Based Demand Paging", ISCA 2020, as far as the talk's slides tell it.
//! How the states of an entry and the steps of a miss follow each other is reconstructed from the slides' labels, the
//! code of kpted on them, and the claims of patent US 11,436,150.
//! Parameters: those of `fault_engine` ([`parameters`]).
//! Stats: `layer.NAME.fault_engine.*`.
//!
//! Choices where the source is silent:
//!
//! - A miss that finds no entry free for it waits until one is.
//! - A request that the drive answers with an error, and a miss without a free page, end in a page fault, which the
//!   kernel handles.
//! - The free pages that the unit has fetched ahead fill a line; it fetches the next while the drive is at work.
//! - A fault that found the queue empty makes `sync_refill` pages ready before it does anything else. kpoold fills the
//!   queue whole.
//! - Pages that kpted has not seen cannot leave memory: it runs before its time when memory is low, and a fault that
//!   finds no memory accounts for them all.
//! - A dirty page that leaves gets its block's address back once it is written; a clean one at once.
//! - Which files are served: those that one mapping has, or several of one process that do not overlap. One that is
//!   mapped by others, too, is served no more. Private mappings that can be written are served for reads.
//! - Guests have no drive of their own here, so the unit is for the machine's own layer.
//!
//! - A socket has a unit ([`mod@unit`]), with registers, a queue of free pages, and a queue pair for each drive that is
//!   attached there. An entry names socket and drive, so that unit serves the page, whichever CPU misses. Drives are
//!   attached to one socket after the other, and cores in parts as equal as can be. A miss on another socket's page
//!   takes `remote_cycles` more, on its way there and back.
//! - One kpted and one kpoold serve all units.
//!
//! Deviations: memory is one node, so a unit's queue holds frames of anywhere. A miss that waits while its page moves
//! to another socket's drive pays no second way. The mapping call that fills entries makes no references for it.

pub mod free_pages;
pub mod kpoold;
pub mod kpted;
pub mod miss;
pub mod of_layer;
pub mod parameters;
pub mod queue_pair;
pub mod state;
pub mod unit;

pub use miss::Offload;
