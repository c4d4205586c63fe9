//! Shadow page tables of a layer (`pagelab_translate::scheme::shadow` says what they model).

use crate::vma::VaRange;
use pagelab_tables::page_table::PageTable;

/// What a layer keeps for shadowing; empty in layers that are not shadowed.
#[derive(Clone, Default)]
pub struct Shadows {
    /// By number of the space.
    pub tables: Vec<Option<PageTable>>,
    /// What the guest has changed since the last walk: the entries go before the next.
    pub changed: Vec<(u32, VaRange)>,
}

impl Shadows {
    /// Translations of a range are no longer to be relied on.
    pub fn drop_range(&mut self, index: u32, range: VaRange) {
        if self.tables.get(index as usize).is_some_and(Option::is_some) {
            self.changed.push((index, range));
        }
    }
}
