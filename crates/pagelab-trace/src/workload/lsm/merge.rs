//! Writing tables: from a memtable, or from other tables.

use super::super::{
    layout::{Site, Slots, shared_file},
    spec::Values,
    store::{copy, touch},
};
use super::{
    levels::{Levels, Picked},
    memtable::Memtable,
    table::{Content, Reader, Record, Table, TableFormat},
};
use crate::{Access, AccessKind, Batch, Event, EventKind, ProcessIx, ThreadIx};

/// First number of the sites in this file.
const FIRST_SITE: u64 = 32;

/// The name of the file in a slot.
pub(super) fn file_name(slot: u64) -> String {
    format!("/data/lsm/{slot:06}.sst")
}

/// Output of work on tables: a thread's accesses, and the mappings that it creates and removes.
pub(super) struct Actions<'a> {
    pub batch: &'a mut Batch,
    pub thread: ThreadIx,
}

impl Actions<'_> {
    fn out(&mut self) -> &mut Vec<Access> {
        &mut self.batch.accesses
    }

    fn event(&mut self, kind: EventKind) {
        self.batch.close_run(self.thread);
        // Its position is set when the batch is complete.
        self.batch.push_event(Event { position: 0, process: ProcessIx(0), thread: self.thread, kind });
    }
}

/// A table that is being written. Its file is mapped with room for a full table.
struct Builder {
    slot: u64,
    addr: u64,
    most: u64,
    records: Vec<Record>,
}

/// Creates and deletes tables.
pub(super) struct Files {
    pub slots: Slots,
    pub format: TableFormat,
    /// Number of records of a table that a compaction writes.
    per_table: u64,
    /// Number of the next table.
    next: u64,
    copy_from: Site,
    copy_to: Site,
    write: Site,
    discard: Site,
}

impl Files {
    pub fn new(values: &Values, slots: Slots, format: TableFormat, per_table: u64) -> Self {
        let site = |number| Site::new(FIRST_SITE + number, 64, values.gap());
        Self {
            slots,
            format,
            per_table,
            next: 0,
            copy_from: site(0),
            copy_to: site(1),
            write: site(2),
            discard: site(3),
        }
    }

    fn begin(&mut self, most: u64, actions: &mut Actions) -> Builder {
        let (slot, addr) = self.slots.take().expect("tables are far fewer than the address space has room for");
        actions.event(shared_file(addr, self.format.file_bytes(most), &file_name(slot), 0));
        Builder { slot, addr, most, records: Vec::new() }
    }

    /// Appends a copy of an entry.
    fn append(&self, builder: &mut Builder, record: Record, from: u64, out: &mut Vec<Access>) {
        let index = builder.records.len() as u64;
        let to = builder.addr + self.format.entry_at(index);
        copy(self.copy_from, from, self.copy_to, to, self.format.entry, out);
        builder.records.push(record);
        if (index + 1).is_multiple_of(self.format.per_block) {
            self.end_block(builder, index / self.format.per_block, out);
        }
    }

    fn end_block(&self, builder: &Builder, block: u64, out: &mut Vec<Access>) {
        let (at, bytes) = self.format.restarts_at(block);
        touch(self.write, AccessKind::Store, builder.addr + at, bytes, out);
    }

    /// Writes the rest of the file after the data. Then the file is truncated and mapped again for reading.
    fn finish(&mut self, builder: Builder, actions: &mut Actions) -> Table {
        let (format, count) = (self.format, builder.records.len() as u64);
        if !count.is_multiple_of(format.per_block) {
            self.end_block(&builder, count / format.per_block, actions.out());
        }
        let Builder { slot, addr, most, records } = builder;
        let (filter, lines) = format.filter(count);
        touch(self.write, AccessKind::Store, addr + filter, lines * 64, actions.out());
        touch(self.write, AccessKind::Store, addr + format.index_at(count), format.index_bytes(count), actions.out());
        actions.event(EventKind::Munmap { addr, len: format.file_bytes(most) });
        actions.event(shared_file(addr, format.file_bytes(count), &file_name(slot), 0));
        Table { slot, addr, number: self.number(), content: Content::Listed(records) }
    }

    /// The number of a new table.
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn delete(&mut self, table: Table, actions: &mut Actions) {
        let len = self.format.file_bytes(table.content.len());
        actions.event(EventKind::Munmap { addr: table.addr, len });
        self.slots.give_back(table.slot);
    }
}

/// A memtable that is being flushed to a table of level 0.
pub(super) struct Flush {
    at: Option<u32>,
    builder: Builder,
}

impl Flush {
    /// `most` is the maximum number of records of a memtable.
    pub fn new(files: &mut Files, most: u64, actions: &mut Actions) -> Self {
        Self { at: None, builder: files.begin(most, actions) }
    }

    /// Copies the next record, or skips an older version of the last one. At the end, returns the table.
    pub fn step(self, memtable: &Memtable, files: &mut Files, actions: &mut Actions) -> Result<Self, Table> {
        let Self { at, mut builder } = self;
        let Some(node) = memtable.after(at, actions.out()) else {
            return Err(files.finish(builder, actions));
        };
        let record = memtable.record(node);
        if builder.records.last().is_some_and(|last| last.key == record.key) {
            memtable.read_key(node, actions.out());
        } else {
            files.append(&mut builder, record, memtable.entry_addr(node), actions.out());
        }
        Ok(Self { at: Some(node), builder })
    }
}

/// Tables that are being merged, from their first records to their last.
pub(super) struct Compaction {
    runs: Vec<Run>,
    to: usize,
    builder: Option<Builder>,
}

/// Consecutive tables, and their next record.
struct Run {
    tables: Vec<Table>,
    table: usize,
    index: u64,
}

impl Run {
    fn next(&self) -> Option<Record> {
        self.tables.get(self.table).map(|table| table.content.record(self.index))
    }

    fn advance(&mut self) {
        self.index += 1;
        if self.index == self.tables[self.table].content.len() {
            (self.table, self.index) = (self.table + 1, 0);
        }
    }
}

impl Compaction {
    pub fn new(picked: Picked) -> Self {
        let runs = picked.runs.into_iter().map(|tables| Run { tables, table: 0, index: 0 }).collect();
        Self { runs, to: picked.to, builder: None }
    }

    /// Copies the newest version of the next record; reads and drops older ones. Full tables are added to their level.
    /// At the end deletes the merged tables and returns false.
    pub fn step(&mut self, reader: &Reader, files: &mut Files, levels: &mut Levels, actions: &mut Actions) -> bool {
        let Some(key) = self.runs.iter().filter_map(Run::next).map(|record| record.key).min() else {
            if let Some(builder) = self.builder.take() {
                levels.add(self.to, files.finish(builder, actions));
            }
            for table in self.runs.drain(..).flat_map(|run| run.tables) {
                files.delete(table, actions);
            }
            return false;
        };
        let mut builder = match self.builder.take() {
            Some(builder) => builder,
            None => files.begin(files.per_table, actions),
        };
        let mut found = false;
        for run in &mut self.runs {
            let Some(record) = run.next().filter(|record| record.key == key) else { continue };
            let table = &run.tables[run.table];
            let from = table.addr + files.format.entry_at(run.index);
            reader.enter_block(table, run.index, actions.out());
            if found {
                touch(files.discard, AccessKind::Load, from, files.format.entry, actions.out());
            } else {
                files.append(&mut builder, record, from, actions.out());
            }
            found = true;
            run.advance();
        }
        if builder.records.len() as u64 == files.per_table {
            levels.add(self.to, files.finish(builder, actions));
        } else {
            self.builder = Some(builder);
        }
        true
    }
}
