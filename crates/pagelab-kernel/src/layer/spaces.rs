//! The address spaces of a layer, by number.

use std::ops::{Index, IndexMut};

use super::AddressSpace;
use crate::layer::changed_entries::ChangedEntry;
use crate::vma::VaRange;
use pagelab_base::addr::Pfn;
use pagelab_base::ids::SpaceIx;
use pagelab_base::memory::PhysMem;
use pagelab_tables::page_table::{LayerTables, TableWork};

/// The address spaces by number: the direct map is number 0, then come processes and guests. A later space reuses the
/// number of one that has ended.
#[derive(Clone)]
pub struct Spaces {
    pub(super) list: Vec<AddressSpace>,
    /// State that the page tables of the spaces share, except the direct map's.
    pub tables: LayerTables,
    /// Additional work of page tables, besides the requested operation.
    pub table_work: TableWork,
    /// By space: ranges whose large entries a call removed, and whose parts should be armed for the fault engine.
    pub cut: Vec<(SpaceIx, VaRange)>,
    /// Entries that the current mapping call has changed, if such calls have costs.
    pub changed: Option<Vec<ChangedEntry>>,
    /// Numbers of ended spaces that may be reused.
    pub(super) retired: Vec<SpaceIx>,
    /// Whether mappings are also recorded independent of the page tables (`--check`).
    pub(super) check: bool,
}

impl Spaces {
    /// Number of space numbers in use or used before.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether the direct map does not exist yet.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Their numbers, also those of ended spaces.
    pub fn numbers(&self) -> impl Iterator<Item = SpaceIx> + use<> {
        SpaceIx::all(self.len())
    }

    /// Their numbers from one on.
    pub fn numbers_from(&self, first: SpaceIx) -> impl Iterator<Item = SpaceIx> + use<> {
        self.numbers().skip(first.index())
    }

    /// All spaces in the order of their numbers.
    pub fn iter(&self) -> std::slice::Iter<'_, AddressSpace> {
        self.list.iter()
    }

    /// Collects the work of a space's table; returns the first frames of blocks that the table no longer needs.
    pub(super) fn collect_table_work(&mut self, index: SpaceIx) -> Vec<Pfn> {
        self.tables.report_work(&mut self.list[index].table, &mut self.table_work);
        std::mem::take(&mut self.table_work.released)
    }

    /// Leaves the entries of a space to a later scan; false if there is no tag left for a new table.
    pub(super) fn abandon_table(&mut self, index: SpaceIx, memory: &mut PhysMem) -> bool {
        self.tables.abandon(memory, &mut self.list[index].table)
    }
}

impl Index<SpaceIx> for Spaces {
    type Output = AddressSpace;

    #[inline(always)]
    fn index(&self, number: SpaceIx) -> &AddressSpace {
        &self.list[number]
    }
}

impl IndexMut<SpaceIx> for Spaces {
    #[inline(always)]
    fn index_mut(&mut self, number: SpaceIx) -> &mut AddressSpace {
        &mut self.list[number]
    }
}

impl<'a> IntoIterator for &'a Spaces {
    type Item = &'a AddressSpace;
    type IntoIter = std::slice::Iter<'a, AddressSpace>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
