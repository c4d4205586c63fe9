//! The reverse map: the page-table entries that map a frame.
//!
//! Models: what Linux finds through the trees of anon_vma and address_space, as a list per frame.
//! Source: Linux mm/rmap.c (`rmap_walk`).
//! Deviations: a separate list instead of the trees. [`Layer`](crate::layer::Layer)'s mapping calls maintain it. It
//! costs the simulated kernel nothing, and represents large pages by their frames.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use pagelab_base::addr::Pfn;
use pagelab_base::ids::SpaceIx;

/// A page of an address space of the layer: number of the space, and number of the 4 KiB page.
pub type PageOf = (SpaceIx, u64);

/// See the module's text.
#[derive(Clone, Default)]
pub struct Rmap {
    first: FxHashMap<Pfn, PageOf>,
    further: FxHashMap<Pfn, Vec<PageOf>>,
}

impl Rmap {
    /// Adds a page-table entry that maps the frame.
    pub fn add(&mut self, pfn: Pfn, page: PageOf) {
        match self.first.entry(pfn) {
            Entry::Vacant(first) => _ = first.insert(page),
            Entry::Occupied(_) => self.further.entry(pfn).or_default().push(page),
        }
    }

    /// Removes an entry that mapped the frame.
    pub fn remove(&mut self, pfn: Pfn, page: PageOf) {
        let further = self.further.get_mut(&pfn);
        if self.first.get(&pfn) == Some(&page) {
            match further.and_then(Vec::pop) {
                Some(other) => _ = self.first.insert(pfn, other),
                None => _ = self.first.remove(&pfn),
            }
        } else {
            let further = further.expect("the frame is mapped there");
            let at = further.iter().position(|other| *other == page).expect("the frame is mapped there");
            further.swap_remove(at);
        }
        if self.further.get(&pfn).is_some_and(Vec::is_empty) {
            self.further.remove(&pfn);
        }
    }

    /// The pages that map a frame.
    pub fn pages(&self, pfn: Pfn) -> impl Iterator<Item = PageOf> + '_ {
        let further = self.further.get(&pfn).into_iter().flatten();
        self.first.get(&pfn).into_iter().chain(further).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_the_places_that_were_added_and_not_removed() {
        let mut map = Rmap::default();
        let sorted = |map: &Rmap| {
            let mut places: Vec<_> = map.pages(Pfn(3)).collect();
            places.sort_unstable();
            places
        };
        let (one, other) = (SpaceIx(1), SpaceIx(2));
        for page in [(one, 10), (other, 10), (one, 11)] {
            map.add(Pfn(3), page);
        }
        assert_eq!(sorted(&map), [(one, 10), (one, 11), (other, 10)]);
        map.remove(Pfn(3), (one, 10));
        assert_eq!(sorted(&map), [(one, 11), (other, 10)]);
        map.remove(Pfn(3), (other, 10));
        map.remove(Pfn(3), (one, 11));
        assert!(sorted(&map).is_empty() && map.first.is_empty() && map.further.is_empty());
    }
}
