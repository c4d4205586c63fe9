//! The reverse map: which page tables map a frame, and where.
//!
//! Models: what Linux finds through anon_vma and address_space trees, as a list a frame.
//! Source: Linux mm/rmap.c (`rmap_walk`).
//! Deviations: a list of its own instead of the trees; it is kept by [`Layer`](crate::layer::Layer)'s mapping calls,
//! costs the simulated kernel nothing, and knows large pages as the frames that they are made of.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use pagelab_base::addr::Pfn;

/// A page of an address space of the layer: the space's number, and the page's (4 KiB).
pub type PageOf = (u32, u64);

/// See the module's text.
#[derive(Clone, Default)]
pub struct Rmap {
    first: FxHashMap<Pfn, PageOf>,
    further: FxHashMap<Pfn, Vec<PageOf>>,
}

impl Rmap {
    /// A page table maps the frame from now on.
    pub fn add(&mut self, pfn: Pfn, page: PageOf) {
        match self.first.entry(pfn) {
            Entry::Vacant(first) => _ = first.insert(page),
            Entry::Occupied(_) => self.further.entry(pfn).or_default().push(page),
        }
    }

    /// It maps the frame no more.
    pub fn remove(&mut self, pfn: Pfn, page: PageOf) {
        let further = self.further.get_mut(&pfn);
        if self.first.get(&pfn) == Some(&page) {
            match further.and_then(Vec::pop) {
                Some(other) => _ = self.first.insert(pfn, other),
                None => _ = self.first.remove(&pfn),
            }
        } else {
            let further = further.expect("the frame is mapped there");
            let at = further.iter().position(|of| *of == page).expect("the frame is mapped there");
            further.swap_remove(at);
        }
        if self.further.get(&pfn).is_some_and(Vec::is_empty) {
            self.further.remove(&pfn);
        }
    }

    /// The pages that are mapped to a frame.
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
        for page in [(1, 10), (2, 10), (1, 11)] {
            map.add(Pfn(3), page);
        }
        assert_eq!(sorted(&map), [(1, 10), (1, 11), (2, 10)]);
        map.remove(Pfn(3), (1, 10));
        assert_eq!(sorted(&map), [(1, 11), (2, 10)]);
        map.remove(Pfn(3), (2, 10));
        map.remove(Pfn(3), (1, 11));
        assert!(sorted(&map).is_empty() && map.first.is_empty() && map.further.is_empty());
    }
}
