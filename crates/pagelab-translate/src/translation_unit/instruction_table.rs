//! The table of ASP and MASP: a row per instruction, with the page of its last miss and the last stride.
//!
//! The rows of a set are in recency order; a new instruction replaces the least recent one of its set. The low bits of
//! the instruction's address choose the set. A row belongs to one address space, so strides of two programs never mix.

use super::prefetcher::DataMiss;
use pagelab_base::error::{EngineError, between};
use pagelab_tables::mmu_cache::Asid;

/// Bits of an instruction's address, as of any virtual address.
const PC_BITS: u64 = 57;

/// What an instruction's misses were.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    asid: Asid,
    /// The instruction's address; 0 for an empty row.
    pc: u64,
    /// The page of the last miss.
    pub page: u64,
    /// Bytes from the miss before to the last one; none after the first miss.
    pub stride: Option<i64>,
    /// How many times in a row the stride was seen again.
    pub confirmed: u32,
}

/// The table, see the module's text.
#[derive(Clone, Debug)]
pub(super) struct InstructionTable {
    rows: Vec<Row>,
    ways: usize,
}

impl InstructionTable {
    /// An empty table; `key` is the configuration key of the prefetcher. Errors: impossible sizes.
    pub fn new(key: &str, rows: u32, ways: u32) -> Result<Self, EngineError> {
        between(&format!("{key}.rows"), rows, 0, 1 << 16)?;
        between(&format!("{key}.ways"), ways, 1, rows.max(1))?;
        if !rows.is_multiple_of(ways) {
            let what = format!("{rows} rows are not a whole number of sets of {ways}; allowed are divisors");
            return Err(EngineError::config(format!("{key}.ways"), what));
        }
        let empty = Row { asid: Asid(0), pc: 0, page: 0, stride: None, confirmed: 0 };
        Ok(Self { rows: vec![empty; rows as usize], ways: ways as usize })
    }

    /// The row of the instruction that missed. A new instruction gets a row with this miss, and there is none to
    /// return; neither is there for an access without an instruction.
    pub fn row(&mut self, miss: &DataMiss) -> Option<&mut Row> {
        if miss.pc == 0 || self.rows.is_empty() {
            return None;
        }
        let set = (miss.pc % (self.rows.len() / self.ways) as u64) as usize;
        let set = &mut self.rows[set * self.ways..][..self.ways];
        let Some(way) = set.iter().position(|row| (row.asid, row.pc) == (miss.asid, miss.pc)) else {
            set.rotate_right(1);
            set[0] = Row { asid: miss.asid, pc: miss.pc, page: miss.page, stride: None, confirmed: 0 };
            return None;
        };
        set[..=way].rotate_right(1);
        Some(&mut set[0])
    }

    /// Empties the rows of an address space.
    pub fn flush(&mut self, asid: Asid) {
        self.rows.iter_mut().filter(|row| row.asid == asid).for_each(|row| row.pc = 0);
    }

    /// Bits of storage: per row the instruction, the tag of the space, the number of the last page, the stride in pages
    /// with its sign, whether it is known, the order within the set, and `more`.
    pub fn storage_bits(&self, more: u64) -> u64 {
        let order = u64::from(self.ways.next_power_of_two().ilog2());
        self.rows.len() as u64 * (PC_BITS + 12 + 45 + 46 + 1 + order + more)
    }
}
