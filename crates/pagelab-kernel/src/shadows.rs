//! Shadow page tables of a layer (`pagelab_translate::scheme::shadow` says what they model).

use crate::vma::VaRange;
use pagelab_base::ids::SpaceIx;
use pagelab_tables::page_table::PageTable;

/// Shadow page tables of a layer; empty in other layers.
#[derive(Clone, Default)]
pub struct Shadows {
    /// By number of the space.
    pub tables: Vec<Option<PageTable>>,
    /// Whether one inverted table of the host takes the place of these.
    pub inverted: bool,
    /// Ranges that the guest has changed since the last walk: their entries are removed before the next walk.
    pub changed: Vec<(SpaceIx, VaRange)>,
}

impl Shadows {
    /// Invalidates the translations of a range.
    pub fn drop_range(&mut self, index: SpaceIx, range: VaRange) {
        if self.inverted || self.tables.get(index.index()).is_some_and(Option::is_some) {
            self.changed.push((index, range));
        }
    }
}
