//! Memory for page tables: where a layer gets it from, and what becomes of it.

use crate::base::addr::PhysAddr;
use crate::page_table::elastic_cuckoo::CuckooCounters;

/// What the tables of a layer did besides writing the entries that they were asked for.
#[derive(Default)]
pub struct TableWork {
    /// Lines that were read and written for the last insertions, to be charged by whoever asked for them.
    pub lines: Vec<PhysAddr>,
    pub cuckoo: CuckooCounters,
}
