//! Sorted tables: their file layout, their content, and the look-up of a key.
//!
//! ```text
//! | data block 0 | data block 1 | … | Bloom filter | index: entries, restart points | footer |
//! ```
//!
//! A data block has as many entries as fit into 4 KiB, rounded up, then its restart points, one per 16 entries, and
//! their number. Blocks follow each other without gaps, so most of them span two pages. The filter is divided into
//! lines of 64 bytes; all bits of a key are in one line. The index contains the last key and the position of each
//! block.

use super::super::{
    layout::Site,
    spec::Values,
    store::touch,
    ycsb::{KEY_BYTES, Key},
};
use crate::rng::{mix, scale};
use crate::{Access, AccessKind};

/// Bytes before an entry's value: three lengths, the key, the version.
pub(super) const HEAD_BYTES: u64 = 4 + KEY_BYTES + 8;
const BLOCK_BYTES: u64 = 4096;
/// Entries per restart point.
const RESTART_INTERVAL: u64 = 16;
const RESTART_BYTES: u64 = 4;
/// Three lengths, a key, and a block's position and size.
pub(super) const INDEX_BYTES: u64 = 4 + KEY_BYTES + 8;
const LINE: u64 = 64;
const FOOTER_BYTES: u64 = 53;
const PAGE_BYTES: u64 = 4096;

/// A version of a record; later versions have higher numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub key: Key,
    pub version: u64,
}

/// The records of a table in key order.
pub(super) enum Content {
    /// As loaded: every `step`-th of the initial records from `first` on.
    Spaced { first: u64, step: u64, len: u64, version: u64 },
    /// As flushed or compacted.
    Listed(Vec<Record>),
}

impl Content {
    pub fn len(&self) -> u64 {
        match self {
            Self::Spaced { len, .. } => *len,
            Self::Listed(records) => records.len() as u64,
        }
    }

    pub fn record(&self, index: u64) -> Record {
        match self {
            Self::Spaced { first, step, version, .. } => {
                Record { key: Key::loaded(first + index * step), version: *version }
            }
            Self::Listed(records) => records[index as usize],
        }
    }

    fn contains(&self, key: Key) -> bool {
        match self {
            Self::Spaced { first, step, len, .. } => {
                let steps = key.place.checked_sub(*first).filter(|distance| distance % step == 0);
                key.sequence == 0 && steps.is_some_and(|distance| distance / step < *len)
            }
            Self::Listed(records) => records.binary_search_by_key(&key, |record| record.key).is_ok(),
        }
    }

    pub fn first_key(&self) -> Key {
        self.record(0).key
    }

    pub fn last_key(&self) -> Key {
        self.record(self.len() - 1).key
    }
}

/// A table and the address of its file's mapping.
pub(super) struct Table {
    pub slot: u64,
    pub addr: u64,
    /// Identifies the table, also among older ones in the same slot.
    pub number: u64,
    pub content: Content,
}

/// Layout of a table's file.
#[derive(Clone, Copy)]
pub(super) struct TableFormat {
    pub value: u64,
    pub entry: u64,
    pub per_block: u64,
    block: u64,
    bloom_bits: u64,
}

impl TableFormat {
    pub fn new(value: u64, bloom_bits: u64) -> Self {
        let entry = HEAD_BYTES + value;
        let per_block = BLOCK_BYTES.div_ceil(entry);
        let block = per_block * entry + (per_block.div_ceil(RESTART_INTERVAL) + 1) * RESTART_BYTES;
        Self { value, entry, per_block, block, bloom_bits }
    }

    /// Offset of entry `index`.
    pub fn entry_at(&self, index: u64) -> u64 {
        index / self.per_block * self.block + index % self.per_block * self.entry
    }

    /// Offset of a block's restart points, and the bytes of these and their number.
    pub fn restarts_at(&self, block: u64) -> (u64, u64) {
        let entries = self.per_block * self.entry;
        (block * self.block + entries, self.block - entries)
    }

    pub fn blocks(&self, records: u64) -> u64 {
        records.div_ceil(self.per_block)
    }

    /// Offset of the filter of a table with this many records, and its number of lines.
    pub fn filter(&self, records: u64) -> (u64, u64) {
        let at = (self.blocks(records) * self.block).next_multiple_of(LINE);
        (at, (records * self.bloom_bits).div_ceil(8 * LINE))
    }

    /// Offset of the index entries.
    pub fn index_at(&self, records: u64) -> u64 {
        let (filter, lines) = self.filter(records);
        filter + lines * LINE
    }

    pub fn index_bytes(&self, records: u64) -> u64 {
        self.blocks(records) * (INDEX_BYTES + RESTART_BYTES) + RESTART_BYTES
    }

    /// Bytes of the whole file and of its mapping.
    pub fn file_bytes(&self, records: u64) -> u64 {
        (self.index_at(records) + self.index_bytes(records) + FOOTER_BYTES).next_multiple_of(PAGE_BYTES)
    }

    /// The filter's false-positive rate, in 2^64ths: 0.6185^bits, the rate of a Bloom filter with the optimal number of
    /// bits per key.
    fn false_positives(&self) -> u64 {
        (libm::pow(0.6185, self.bloom_bits as f64) * (1u128 << 64) as f64) as u64
    }
}

/// Looks up keys in tables.
pub(super) struct Reader {
    pub format: TableFormat,
    false_positives: u64,
    filter: Site,
    index_restart: Site,
    index: Site,
    restart_count: Site,
    restart: Site,
    head: Site,
    value: Site,
}

/// First number of a reader's sites.
const FIRST_SITE: u64 = 16;

impl Reader {
    pub fn new(values: &Values, format: TableFormat) -> Self {
        let site = |number, bytes: u64| Site::new(FIRST_SITE + number, bytes as u16, values.gap());
        Self {
            format,
            false_positives: format.false_positives(),
            filter: site(0, LINE),
            index_restart: site(1, RESTART_BYTES),
            index: site(2, INDEX_BYTES),
            restart_count: site(3, RESTART_BYTES),
            restart: site(4, RESTART_BYTES),
            head: site(5, HEAD_BYTES),
            value: site(6, LINE),
        }
    }

    /// Reads a record of a table, if the table contains it.
    pub fn get(&self, table: &Table, key: Key, out: &mut Vec<Access>) -> Option<Record> {
        if !self.may_contain(table, key, out) {
            return None;
        }
        let index = self.seek(table, key, out)?;
        let record = table.content.record(index);
        if record.key != key {
            return None;
        }
        self.read_value(table, index, out);
        Some(record)
    }

    /// Queries the filter. For an absent key, the result is derived from the key and the table, at the false-positive
    /// rate of a real filter: bits are not stored.
    fn may_contain(&self, table: &Table, key: Key, out: &mut Vec<Access>) -> bool {
        let (filter, lines) = self.format.filter(table.content.len());
        if lines == 0 {
            return true;
        }
        let hash = mix(key.place ^ mix(key.sequence));
        out.push(self.filter.load(table.addr + filter + scale(hash, lines) * LINE));
        table.content.contains(key) || mix(hash ^ mix(table.number)) < self.false_positives
    }

    /// The first entry whose key is not before `key`, found by the index and the restart points of a block; none after
    /// the last.
    pub fn seek(&self, table: &Table, key: Key, out: &mut Vec<Access>) -> Option<u64> {
        let (format, records) = (&self.format, table.content.len());
        let blocks = format.blocks(records);
        let entries = table.addr + format.index_at(records);
        let (mut low, mut high) = (0, blocks);
        while low < high {
            let middle = u64::midpoint(low, high);
            out.push(self.index_restart.load(entries + blocks * INDEX_BYTES + middle * RESTART_BYTES));
            out.push(self.index.load(entries + middle * INDEX_BYTES));
            let last = ((middle + 1) * format.per_block).min(records) - 1;
            if table.content.record(last).key < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low < blocks).then(|| self.seek_in_block(table, low, key, out))
    }

    /// [`Self::seek`] within a block whose last key is not before `key`.
    fn seek_in_block(&self, table: &Table, block: u64, key: Key, out: &mut Vec<Access>) -> u64 {
        let format = &self.format;
        let begin = block * format.per_block;
        let entries = format.per_block.min(table.content.len() - begin);
        let (restarts, bytes) = format.restarts_at(block);
        out.push(self.restart_count.load(table.addr + restarts + bytes - RESTART_BYTES));
        let (mut low, mut high) = (0, entries.div_ceil(RESTART_INTERVAL) - 1);
        while low < high {
            let middle = u64::midpoint(low, high + 1);
            out.push(self.restart.load(table.addr + restarts + middle * RESTART_BYTES));
            let index = begin + middle * RESTART_INTERVAL;
            if self.read_key(table, index, out) < key {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        let mut index = begin + low * RESTART_INTERVAL;
        while self.read_key(table, index, out) < key {
            index += 1;
        }
        index
    }

    /// Reads the part of an entry before its value.
    pub fn read_key(&self, table: &Table, index: u64, out: &mut Vec<Access>) -> Key {
        out.push(self.head.load(table.addr + self.format.entry_at(index)));
        table.content.record(index).key
    }

    pub fn read_value(&self, table: &Table, index: u64, out: &mut Vec<Access>) {
        let at = table.addr + self.format.entry_at(index) + HEAD_BYTES;
        touch(self.value, AccessKind::Load, at, self.format.value, out);
    }

    /// If entry `index` is the first of a block, reads the block's position, as a scan must when it enters a block.
    pub fn enter_block(&self, table: &Table, index: u64, out: &mut Vec<Access>) {
        if index.is_multiple_of(self.format.per_block) {
            let block = index / self.format.per_block;
            let entries = table.addr + self.format.index_at(table.content.len());
            out.push(self.index.load(entries + block * INDEX_BYTES));
        }
    }
}
