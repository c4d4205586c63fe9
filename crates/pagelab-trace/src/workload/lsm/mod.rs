//! `lsm`: a log-structured merge tree in memory-mapped files, under YCSB's requests.

mod levels;
mod memtable;
mod merge;
mod table;
#[cfg(test)]
mod tests;

use super::{
    Workload,
    layout::{Layout, Site},
    popularity::THETA,
    program::Plan,
    spec::{ALIGN, GAP, Kind, Parameter, Preset, SEED, THREADS, Values},
    store::{Store, plan, touch},
    ycsb::{
        ACCESSES_OF_OPERATIONS, DISTRIBUTION, INSERT_ORDER, Key, MIX, OPERATIONS, RECORDS, Request, Requests, SCAN,
    },
};
use crate::{Access, AccessKind, Batch, ThreadIx, TraceError, quantity::format_bytes};

use levels::{Levels, loaded, shape};
use memtable::Memtable;
use merge::{Actions, Compaction, Files, Flush, file_name};
use table::{Content, Reader, Record, Table, TableFormat};

/// Models: an embedded store such as RocksDB that reads and writes its files through mappings. Writes go to a log and
/// to a memtable, a skip list in anonymous memory. A full memtable becomes a sorted table of level 0. Four of these are
/// merged into level 1, and a level that has grown too large passes tables to the next. A get searches the memtable,
/// the tables of level 0 from the newest on, and one table of each further level: a line of the Bloom filter, a binary
/// search of the index, then a data block from a restart point on. All of that is really executed; a get ends at the
/// newest version.
///
/// The tables exist before the program starts: the last level has all records, each level above it every `ratio`-th of
/// the next level's, spread evenly, so that levels are as full as possible. The content of a loaded table is computed.
/// Tables written later are listed, 24 bytes per record.
///
/// Source: RocksDB's block-based tables (format version 5: filters of one line per key), its skip list, its leveled
/// compaction with level sizes derived from the last level, and YCSB's binding, in which an update reads its record and
/// then writes it completely. Cooper et al., "Benchmarking Cloud Serving Systems with YCSB", SoCC 2010, for requests.
///
/// Parameters: `memtable`, `table`, `ratio` and `bloom` are RocksDB's write_buffer_size, target_file_size_base,
/// max_bytes_for_level_multiplier and bits per key. RocksDB's default sizes are 64 MiB; with the smaller ones here a
/// short run includes flushes and compactions.
///
/// Deviations: the thread whose turn it is makes flushes and compactions at once, and requests wait for them; RocksDB
/// has background threads. The first level that is too large is compacted first, its tables in turn. The last level
/// grows without limit. False positives of filters are drawn at the rate of real ones. Blocks are not compressed, keys
/// not shortened. There is no block cache. Nothing is written when the list of tables changes. A memtable's memory and
/// the log's file are reused; so are the files of deleted tables, since a trace cannot delete a file.
pub(super) static WORKLOAD: Workload = Workload {
    name: "lsm",
    summary: "a log-structured merge tree in memory-mapped files: searched, flushed and compacted, under YCSB's requests",
    origin: "tables and levels as in RocksDB; requests of YCSB's core workloads A to F (Cooper et al., SoCC 2010)",
    parameters: &[
        RECORDS,
        Parameter {
            name: "value",
            kind: Kind::Bytes { min: 1, max: 64 << 10 },
            default: Preset::Value("1000B"),
            meaning: "bytes of each record's value",
        },
        MIX,
        DISTRIBUTION,
        THETA,
        SCAN,
        INSERT_ORDER,
        Parameter {
            name: "memtable",
            kind: Kind::Bytes { min: 4096, max: 1 << 30 },
            default: Preset::Value("16MiB"),
            meaning: "bytes of the memtable; level 1 has at most four times as many",
        },
        Parameter {
            name: "table",
            kind: Kind::Bytes { min: 4096, max: 256 << 20 },
            default: Preset::Value("16MiB"),
            meaning: "bytes of the entries of a table from level 1 on",
        },
        Parameter {
            name: "ratio",
            kind: Kind::Count { min: 2, max: 1000 },
            default: Preset::Value("10"),
            meaning: "size of a level over that of the level above it",
        },
        Parameter {
            name: "level0",
            kind: Kind::Count { min: 0, max: 3 },
            default: Preset::Value("2"),
            meaning: "tables that level 0 has at first; the fourth starts a compaction",
        },
        Parameter {
            name: "bloom",
            kind: Kind::Count { min: 0, max: 64 },
            default: Preset::Value("10"),
            meaning: "bits per key of the Bloom filters; 0: none",
        },
        OPERATIONS,
        ACCESSES_OF_OPERATIONS,
        THREADS,
        GAP,
        ALIGN,
        SEED,
    ],
    build,
};

/// Bytes that a put writes to the log before the value: the headers of the record and its batch, the key, lengths.
const LOG_HEAD_BYTES: u64 = 7 + 12 + 5 + super::ycsb::KEY_BYTES;
/// Bytes of a table's description in memory: its smallest and its largest key.
const FENCE_BYTES: u64 = 64;

fn build(values: &Values) -> Result<Plan, TraceError> {
    let (layout, requests, store) = store(values)?;
    Ok(plan(values, layout, requests, store))
}

fn store(values: &Values) -> Result<(Layout, Requests, Lsm), TraceError> {
    let requests = Requests::new(values)?;
    let format = TableFormat::new(values.number("value"), values.number("bloom"));
    let memtable_bytes = values.number("memtable");
    let least = 16 * Memtable::node_bytes(format.entry);
    if memtable_bytes < least {
        return Err(values.refuse("memtable", &format!("at least {}, for 16 records", format_bytes(least))));
    }
    let per_memtable = Memtable::most_records(memtable_bytes, format.entry);
    let per_table = (values.number("table") / format.entry).max(1);
    let targets = shape(requests.loaded(), 4 * memtable_bytes / format.entry, values.number("ratio"));

    let mut layout = Layout::new(values);
    let memtable = Memtable::new(values, layout.map(0, memtable_bytes)?, memtable_bytes, format.entry);
    // Room for four times the initial number of tables of the last level.
    let fences = (4 * requests.loaded().div_ceil(per_table) + 64).next_power_of_two();
    let fences_addr = layout.map(0, (targets.len() as u64 + 1) * fences * FENCE_BYTES)?;
    let log_record = LOG_HEAD_BYTES + format.value;
    let log = layout.map_file(0, per_memtable * log_record, "/data/lsm/log")?;
    let level0 = values.number("level0");
    let tables = level0 + targets.iter().map(|records| records.div_ceil(per_table)).sum::<u64>();
    let slots = layout.reserve_slots(format.file_bytes(per_table.max(per_memtable)), tables)?;
    let site = |number, bytes| Site::new(number, bytes, values.gap());
    let mut lsm = Lsm {
        memtable,
        levels: Levels::new(&targets),
        reader: Reader::new(values, format),
        files: Files::new(values, slots, format, per_table),
        per_memtable,
        log,
        log_at: 0,
        log_record,
        fences_addr,
        fences,
        version: 0,
        work: Work::None,
        cursors: Vec::new(),
        fence: site(FIRST_SITE, FENCE_BYTES as u16),
        write_log: site(FIRST_SITE + 1, 64),
    };
    lsm.load(&targets, values.number("ratio"), per_table, level0, &mut layout)?;
    Ok((layout, requests, lsm))
}

/// First number of the sites in this file; memtables have those before.
const FIRST_SITE: u64 = 8;

/// Work before the next request.
enum Work {
    None,
    Flush(Flush),
    Compaction(Compaction),
    /// Levels have changed, so a compaction may be due.
    Pick,
}

/// Position of a scan in one sorted run.
#[derive(Clone, Copy)]
struct Cursor {
    key: Key,
    at: Place,
}

#[derive(Clone, Copy)]
enum Place {
    Memtable(u32),
    Table { level: usize, table: usize, index: u64 },
}

struct Lsm {
    memtable: Memtable,
    levels: Levels,
    reader: Reader,
    files: Files,
    /// Maximum number of records of a memtable.
    per_memtable: u64,
    /// Address of the log, and the number of bytes written.
    log: u64,
    log_at: u64,
    log_record: u64,
    /// Address of the tables' keys in memory, and their number per level.
    fences_addr: u64,
    fences: u64,
    /// The last version written.
    version: u64,
    work: Work,
    /// The cursors of the scan, newer runs first.
    cursors: Vec<Cursor>,
    fence: Site,
    write_log: Site,
}

impl Lsm {
    /// Creates the initial tables. Newer levels have newer versions.
    fn load(
        &mut self,
        targets: &[u64],
        ratio: u64,
        per_table: u64,
        level0: u64,
        layout: &mut Layout,
    ) -> Result<(), TraceError> {
        let records = targets[targets.len() - 1];
        let mut step = 1_u64;
        for level in (1..=targets.len()).rev() {
            for content in loaded(records, step, per_table, self.version) {
                self.add_loaded(level, content, layout)?;
            }
            self.version += 1;
            step = step.saturating_mul(ratio);
        }
        let step = records.div_ceil(self.per_memtable);
        for table in 0..level0 {
            let first = table * step / level0;
            let len = (records - first).div_ceil(step);
            let content = Content::Spaced { first, step, len, version: self.version };
            self.add_loaded(0, content, layout)?;
            self.version += 1;
        }
        Ok(())
    }

    fn add_loaded(&mut self, level: usize, content: Content, layout: &mut Layout) -> Result<(), TraceError> {
        let bytes = self.files.format.file_bytes(content.len());
        let (slot, addr) = layout.map_into(&mut self.files.slots, 0, bytes, file_name)?;
        self.levels.add(level, Table { slot, addr, number: self.files.number(), content });
        Ok(())
    }

    fn read_fence(&self, level: usize, table: usize, out: &mut Vec<Access>) {
        // If there are more tables than expected, the slots of the first ones are reused.
        let index = level as u64 * self.fences + table as u64 % self.fences;
        out.push(self.fence.load(self.fences_addr + index * FENCE_BYTES));
    }

    /// The first table of a level (1 or higher) whose last key is not before `key`.
    fn find_table(&self, level: usize, key: Key, out: &mut Vec<Access>) -> Option<usize> {
        let tables = self.levels.tables(level);
        let (mut low, mut high) = (0, tables.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            self.read_fence(level, middle, out);
            if tables[middle].content.last_key() < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low < tables.len()).then_some(low)
    }

    /// Reads the newest version of a record.
    fn get(&self, key: Key, out: &mut Vec<Access>) -> Option<Record> {
        if let Some(record) = self.memtable.get(key, out) {
            return Some(record);
        }
        let covers = |table: &Table| table.content.first_key() <= key && key <= table.content.last_key();
        for (index, table) in self.levels.tables(0).iter().enumerate().rev() {
            self.read_fence(0, index, out);
            if covers(table)
                && let Some(record) = self.reader.get(table, key, out)
            {
                return Some(record);
            }
        }
        for (level, tables) in self.levels.iter().skip(1) {
            if let Some(index) = self.find_table(level, key, out)
                && covers(&tables[index])
                && let Some(record) = self.reader.get(&tables[index], key, out)
            {
                return Some(record);
            }
        }
        None
    }

    fn read(&self, key: Key, out: &mut Vec<Access>) {
        self.get(key, out).expect("records that are asked for are there");
    }

    /// Writes a new version of a record to the log and to the memtable.
    fn put(&mut self, key: Key, out: &mut Vec<Access>) {
        touch(self.write_log, AccessKind::Store, self.log + self.log_at, self.log_record, out);
        self.log_at += self.log_record;
        self.version += 1;
        self.memtable.insert(Record { key, version: self.version }, out);
    }

    fn update(&mut self, key: Key, out: &mut Vec<Access>) {
        self.read(key, out);
        self.put(key, out);
    }

    /// Reads the newest versions of up to `records` records in order, from the first that is not less than `from`.
    fn scan(&mut self, from: Key, records: u64, out: &mut Vec<Access>) {
        let mut cursors = std::mem::take(&mut self.cursors);
        cursors.clear();
        self.seek(from, &mut cursors, out);
        for _ in 0..records {
            let Some(key) = cursors.iter().map(|cursor| cursor.key).min() else { break };
            let mut found = false;
            cursors.retain_mut(|cursor| {
                if cursor.key != key {
                    return true;
                }
                if !found {
                    match cursor.at {
                        Place::Memtable(node) => self.memtable.read_value(node, out),
                        Place::Table { level, table, index } => {
                            self.reader.read_value(&self.levels.tables(level)[table], index, out);
                        }
                    }
                }
                found = true;
                self.advance(cursor, out)
            });
        }
        self.cursors = cursors;
    }

    /// Puts a cursor at the first record from `from` on, for each sorted run that has one.
    fn seek(&self, from: Key, cursors: &mut Vec<Cursor>, out: &mut Vec<Access>) {
        if let Some(node) = self.memtable.seek(from, out) {
            cursors.push(Cursor { key: self.memtable.record(node).key, at: Place::Memtable(node) });
        }
        let mut seek = |level, table: usize, out: &mut Vec<Access>| {
            let content = &self.levels.tables(level)[table];
            if let Some(index) = self.reader.seek(content, from, out) {
                let key = content.content.record(index).key;
                cursors.push(Cursor { key, at: Place::Table { level, table, index } });
            }
        };
        for table in (0..self.levels.tables(0).len()).rev() {
            self.read_fence(0, table, out);
            seek(0, table, out);
        }
        for (level, _) in self.levels.iter().skip(1) {
            if let Some(table) = self.find_table(level, from, out) {
                seek(level, table, out);
            }
        }
    }

    /// Advances to the next key of a run; false at its end.
    fn advance(&self, cursor: &mut Cursor, out: &mut Vec<Access>) -> bool {
        match cursor.at {
            Place::Memtable(mut node) => loop {
                let Some(next) = self.memtable.after(Some(node), out) else { return false };
                self.memtable.read_key(next, out);
                let key = self.memtable.record(next).key;
                if key != cursor.key {
                    *cursor = Cursor { key, at: Place::Memtable(next) };
                    return true;
                }
                node = next;
            },
            Place::Table { level, mut table, mut index } => {
                let tables = self.levels.tables(level);
                index += 1;
                if index == tables[table].content.len() {
                    if level == 0 || table + 1 == tables.len() {
                        return false;
                    }
                    (table, index) = (table + 1, 0);
                    self.read_fence(level, table, out);
                }
                self.reader.enter_block(&tables[table], index, out);
                let key = self.reader.read_key(&tables[table], index, out);
                *cursor = Cursor { key, at: Place::Table { level, table, index } };
                true
            }
        }
    }
}

impl Store for Lsm {
    fn serve(&mut self, request: Request, out: &mut Vec<Access>) {
        match request {
            Request::Read(key) => self.read(key, out),
            Request::Update { key, .. } => self.update(key, out),
            Request::Insert(key) => self.put(key, out),
            Request::Scan { from, records } => self.scan(from, records, out),
            Request::ReadModifyWrite { key, .. } => {
                self.read(key, out);
                self.update(key, out);
            }
        }
    }

    fn maintain(&mut self, batch: &mut Batch, thread: ThreadIx) -> bool {
        let mut actions = Actions { batch, thread };
        self.work = match std::mem::replace(&mut self.work, Work::None) {
            Work::None if self.memtable.is_full() => {
                Work::Flush(Flush::new(&mut self.files, self.per_memtable, &mut actions))
            }
            Work::None => return false,
            Work::Flush(flush) => match flush.step(&self.memtable, &mut self.files, &mut actions) {
                Ok(flush) => Work::Flush(flush),
                Err(table) => {
                    self.levels.add(0, table);
                    self.memtable.clear();
                    self.log_at = 0;
                    Work::Pick
                }
            },
            Work::Pick => self.levels.pick().map_or(Work::None, |picked| Work::Compaction(Compaction::new(picked))),
            Work::Compaction(mut compaction) => {
                let more = compaction.step(&self.reader, &mut self.files, &mut self.levels, &mut actions);
                if more { Work::Compaction(compaction) } else { Work::Pick }
            }
        };
        true
    }
}
