//! Walks that probe for several page sizes, one after the other or at once.

use arrayvec::ArrayVec;

use super::{Hashed, Kind, PartOfSize, reference};
use crate::page_table::{Leaf, Mapping, WalkList, WalkRef};
use pagelab_base::addr::{PageSize, VirtAddr};
use pagelab_base::memory::PhysMem;

impl<K: Kind> Hashed<K> {
    /// Lists the references of a walk that probes for several sizes.
    pub(super) fn walk_sizes(&self, parts: &[PartOfSize], mem: &PhysMem, va: VirtAddr, list: &mut WalkList) {
        let mut step = 0_u8;
        let mut found = None;
        if self.serial {
            for part in parts {
                found = self.search((part, None), mem, self.key(part.size, va), |addr, _| {
                    list.push(reference(addr, part.size, step));
                    step = step.wrapping_add(1);
                });
                if found.is_some() {
                    break;
                }
            }
        } else {
            found = self.walk_in_parallel(parts, mem, va, list);
        }
        let missing = || Leaf::nothing(self.pages.free_level(va, &PageSize::ALL[..self.parts.len()]));
        list.leaf = found.map_or_else(missing, Leaf::Present);
    }

    /// The same, a reference of each search per step, until one hits.
    fn walk_in_parallel(
        &self,
        parts: &[PartOfSize],
        mem: &PhysMem,
        va: VirtAddr,
        list: &mut WalkList,
    ) -> Option<Mapping> {
        let mut searches = ArrayVec::<WalkList, { PageSize::ALL.len() }>::new();
        // The search that hits, the number of its steps before the others stop, and the mapping.
        let mut hit = None;
        for (n, part) in parts.iter().enumerate() {
            let (mut search, mut steps) = (WalkList::new(), 0);
            let found = self.search((part, None), mem, self.key(part.size, va), |addr, is_entry| {
                search.push(reference(addr, part.size, 0));
                steps += usize::from(!is_entry);
            });
            hit = hit.or(found.map(|mapping| (n, steps, mapping)));
            searches.push(search);
        }
        let longest = searches.iter().map(|search| search.refs().len()).max().unwrap_or(0);
        let (last, steps) = hit.map_or((searches.len() - 1, longest), |(n, steps, _)| (n, steps));
        for step in 0..steps.max(1) {
            let others = (0..searches.len()).filter(|&n| n != last);
            for search in others.chain([last]) {
                if let Some(&found) = searches[search].refs().get(step) {
                    list.push(WalkRef { step: step as u8, ..found });
                }
            }
        }
        let (hit, steps, mapping) = hit?;
        for (n, &found) in searches[hit].refs().iter().enumerate().skip(steps) {
            list.push(WalkRef { step: n as u8, ..found });
        }
        Some(mapping)
    }
}
