//! The levels of tables, and the choice of tables to merge.

use super::super::ycsb::Key;
use super::table::{Content, Table};

/// Number of tables in level 0 that starts a compaction.
const LEVEL0_TRIGGER: usize = 4;

/// Tables to merge: runs of tables in key order, newer runs first. The result goes to level `to`.
pub(super) struct Picked {
    pub runs: Vec<Vec<Table>>,
    pub to: usize,
}

/// Level 0 contains tables as they were flushed, the oldest first. Each further level is one sorted run.
pub(super) struct Levels {
    levels: Vec<Vec<Table>>,
    /// Maximum number of records of each level; the last level has no limit.
    targets: Vec<u64>,
    /// Where the next table is picked in each level.
    cursors: Vec<Key>,
}

/// The number of records of each level below level 0. The last level has all records, each other level 1/`ratio` of the
/// next one, and the first at most `base`.
pub(super) fn shape(records: u64, base: u64, ratio: u64) -> Vec<u64> {
    let mut levels = vec![records];
    while let Some(&least) = levels.last().filter(|&&least| least > base.max(1)) {
        levels.push(least.div_ceil(ratio));
    }
    levels.reverse();
    levels
}

impl Levels {
    /// Levels without tables; `targets` are the maximum numbers of records from level 1 on.
    pub fn new(targets: &[u64]) -> Self {
        let count = targets.len() + 1;
        let mut levels = Vec::new();
        levels.resize_with(count, Vec::new);
        Self { levels, targets: [&[0], targets].concat(), cursors: vec![Key::loaded(0); count] }
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (usize, &[Table])> {
        self.levels.iter().map(Vec::as_slice).enumerate()
    }

    pub fn tables(&self, level: usize) -> &[Table] {
        &self.levels[level]
    }

    /// Adds a table at its position in its level; in level 0 as the newest.
    pub fn add(&mut self, level: usize, table: Table) {
        let tables = &mut self.levels[level];
        let first = table.content.first_key();
        let at = if level == 0 { tables.len() } else { tables.partition_point(|t| t.content.first_key() < first) };
        tables.insert(at, table);
    }

    /// Removes and returns the tables to merge now. A table that overlaps nothing moves down without being copied.
    pub fn pick(&mut self) -> Option<Picked> {
        if self.levels[0].len() >= LEVEL0_TRIGGER {
            let mut runs: Vec<Vec<Table>> = self.levels[0].drain(..).rev().map(|table| vec![table]).collect();
            let keys = runs.iter().flatten().map(|table| &table.content);
            let (from, to) = keys.fold((None, None), |(from, to): (Option<Key>, Option<Key>), content| {
                let (first, last) = (content.first_key(), content.last_key());
                (Some(from.map_or(first, |key| key.min(first))), Some(to.map_or(last, |key| key.max(last))))
            });
            runs.push(self.take_overlapping(1, from.expect("there are tables"), to.expect("there are tables")));
            return Some(Picked { runs, to: 1 });
        }
        for level in 1..self.levels.len() - 1 {
            while self.records(level) > self.targets[level] {
                let table = self.take_next(level);
                let (from, to) = (table.content.first_key(), table.content.last_key());
                let below = self.take_overlapping(level + 1, from, to);
                if !below.is_empty() {
                    return Some(Picked { runs: vec![vec![table], below], to: level + 1 });
                }
                self.add(level + 1, table);
            }
        }
        None
    }

    fn records(&self, level: usize) -> u64 {
        self.levels[level].iter().map(|table| table.content.len()).sum()
    }

    /// Removes the table after the one that was removed last; after the last table, the first.
    fn take_next(&mut self, level: usize) -> Table {
        let (tables, cursor) = (&mut self.levels[level], &mut self.cursors[level]);
        let at = tables.partition_point(|table| table.content.first_key() < *cursor);
        let table = tables.remove(if at < tables.len() { at } else { 0 });
        *cursor = Key { sequence: table.content.last_key().sequence + 1, ..table.content.last_key() };
        table
    }

    fn take_overlapping(&mut self, level: usize, from: Key, to: Key) -> Vec<Table> {
        let tables = &mut self.levels[level];
        let begin = tables.partition_point(|table| table.content.last_key() < from);
        let end = tables.partition_point(|table| table.content.first_key() <= to);
        tables.drain(begin..end.max(begin)).collect()
    }
}

/// The content of a level's loaded tables: every `step`-th record, `per_table` per table.
pub(super) fn loaded(records: u64, step: u64, per_table: u64, version: u64) -> impl Iterator<Item = Content> {
    let count = records.div_ceil(step);
    (0..count.div_ceil(per_table)).map(move |table| {
        let begin = table * per_table;
        Content::Spaced { first: begin * step, step, len: per_table.min(count - begin), version }
    })
}
