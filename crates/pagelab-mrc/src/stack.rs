//! The LRU stack: the depth of a page when it is used.
//!
//! A fully associative cache with LRU replacement contains the top pages of the stack, as many as it has entries. So a
//! use hits in every cache with more entries than there are pages above (Mattson, Gecsei, Slutz, Traiger, "Evaluation
//! techniques for storage hierarchies", IBM Systems J. 9(2), 1970).
//!
//! **Dropped pages** leave holes, as an invalidated entry leaves a free entry in each cache that held it. The next use
//! that misses in a cache fills its uppermost hole, and the pages below stay where they are. If the used page lies
//! below the hole, it leaves a hole itself, since every cache that hits still has a free entry. So the stack remains
//! correct for all cache sizes at once.
//!
//! **The top of the stack** can be kept by the caller, who finds the most recently used pages without a table. It
//! passes a page to the stack when another replaces it, and all of them before pages are dropped.

use std::collections::BinaryHeap;

use crate::host::{self, Work};
use crate::marks::{Marks, Stamp};
use crate::positions::{NONE, Place, Positions};

/// Number of uses whose table entries are prefetched together.
const AHEAD: usize = 32;

/// No page.
pub(crate) const NO_PAGE: u64 = u64::MAX;

/// A use of a page, which moves to the top; another page may leave the caller's top for the stack.
#[derive(Clone, Copy)]
pub(crate) struct Use {
    pub page: u64,
    /// [`NO_PAGE`] as long as there is room in the caller's top.
    pub down: u64,
}

/// The pages of several address spaces in one LRU stack.
pub(crate) struct Stack {
    spaces: Vec<Positions>,
    marks: Marks,
    /// Stamps of holes; the latest is the uppermost.
    holes: BinaryHeap<Stamp>,
    /// Pages in the stack and on the caller's top.
    pages: usize,
    /// Number of pages on the caller's top.
    on_top: usize,
}

impl Default for Stack {
    fn default() -> Self {
        Self { spaces: Vec::new(), marks: Marks::new(0), holes: BinaryHeap::new(), pages: 0, on_top: 0 }
    }
}

impl Stack {
    /// Uses pages of an address space in order. For each, calls `found` with its index in the list and the number of
    /// pages above it; none if it was not in the stack.
    pub fn touch(&mut self, space: usize, uses: &[Use], found: impl FnMut(usize, Option<usize>)) {
        if self.spaces.len() <= space {
            self.spaces.resize_with(space + 1, Positions::default);
        }
        host::run(Touch { stack: self, space, uses, found });
    }

    /// Takes over the pages of the caller's top, the lowest first.
    pub fn hand_down(&mut self, space: usize, pages: impl Iterator<Item = u64>) {
        for page in pages {
            self.spaces[space].reserve(1);
            let place = self.spaces[space].place(page);
            self.mark(space, place);
            self.on_top -= 1;
        }
    }

    /// Number of pages in the stack.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Number of pages and holes.
    pub fn marks(&self) -> usize {
        self.marks.count()
    }

    pub fn holds(&self, space: usize, page: u64) -> bool {
        let Some(positions) = self.spaces.get(space) else { return false };
        positions.find(page).is_some_and(|place| positions.stamp(place) != NONE)
    }

    /// Drops the pages of a space from `first` to `last`; they leave holes.
    pub fn forget(&mut self, space: usize, first: u64, last: u64) {
        let Some(positions) = self.spaces.get_mut(space) else { return };
        let before = self.holes.len();
        positions.take(first, last, |stamp| self.holes.push(stamp));
        self.pages -= self.holes.len() - before;
    }

    /// Drops all pages of a space and frees their memory; they leave holes.
    pub fn forget_space(&mut self, space: usize) {
        self.forget(space, 0, u64::MAX);
        if let Some(positions) = self.spaces.get_mut(space) {
            *positions = Positions::default();
        }
    }

    /// Removes a page as though it had never been used.
    pub fn remove(&mut self, space: usize, page: u64) {
        let Some(positions) = self.spaces.get_mut(space) else { return };
        if let Some(place) = positions.find(page)
            && positions.stamp(place) != NONE
        {
            self.marks.take(positions.stamp(place));
            positions.set(place, NONE);
            self.pages -= 1;
        }
    }

    /// Removes the lowest holes until at most `most` are left.
    pub fn limit_holes(&mut self, most: usize) {
        if self.holes.len() > most {
            let mut holes = std::mem::take(&mut self.holes).into_sorted_vec();
            for stamp in holes.drain(..holes.len() - most) {
                self.marks.take(stamp);
            }
            self.holes = holes.into();
        }
    }

    /// Removes the page at a position, to move it to the top; returns the number of pages above it.
    #[inline(always)]
    fn lift(&mut self, space: usize, place: Place) -> Option<usize> {
        let last = self.spaces[space].stamp(place);
        self.spaces[space].set(place, NONE);
        self.pages += usize::from(last == NONE);
        let above = if self.holes.is_empty() {
            (last != NONE).then(|| self.marks.take(last))
        } else {
            self.take_beside_holes(last)
        };
        above.map(|above| above + self.on_top)
    }

    /// Puts the page at a position on top of the stack.
    #[inline(always)]
    fn mark(&mut self, space: usize, place: Place) {
        if self.marks.is_full() {
            self.renumber();
        }
        let now = self.marks.push();
        self.spaces[space].set(place, now);
    }

    /// Removes the mark of a page that moves to the top, or instead the mark of a hole above it.
    #[inline(never)]
    fn take_beside_holes(&mut self, last: Stamp) -> Option<usize> {
        let above = (last != NONE).then(|| self.marks.behind(last));
        match self.holes.peek() {
            Some(&hole) if last == NONE || hole > last => {
                self.holes.pop();
                self.marks.take(hole);
                if last != NONE {
                    self.holes.push(last);
                }
            }
            _ if last != NONE => _ = self.marks.take(last),
            _ => {}
        }
        above
    }

    /// Gives all marks the lowest stamps, in order, and makes room for more.
    #[inline(never)]
    fn renumber(&mut self) {
        for stamp in self.spaces.iter_mut().flat_map(Positions::stamps_mut) {
            *stamp = self.marks.before(*stamp) as Stamp;
        }
        self.holes = self.holes.drain().map(|stamp| self.marks.before(stamp) as Stamp).collect();
        self.marks = Marks::new(self.marks.count());
    }
}

struct Touch<'a, F> {
    stack: &'a mut Stack,
    space: usize,
    uses: &'a [Use],
    found: F,
}

impl<F: FnMut(usize, Option<usize>)> Work for Touch<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run(mut self) {
        let (stack, space) = (self.stack, self.space);
        let mut places = [(Place::default(), Place::default()); AHEAD];
        for (number, uses) in self.uses.chunks(AHEAD).enumerate() {
            let positions = &mut stack.spaces[space];
            positions.reserve(2 * AHEAD);
            for usage in uses {
                positions.prefetch(usage.page);
                positions.prefetch(usage.down);
            }
            for (place, usage) in places.iter_mut().zip(uses) {
                place.0 = positions.place(usage.page);
                stack.marks.prefetch(positions.stamp(place.0));
            }
            // No position changes any more, since no page is inserted from here on.
            for (place, usage) in places.iter_mut().zip(uses) {
                if usage.down != NO_PAGE {
                    place.1 = positions.place(usage.down);
                }
            }
            for (at, (&(page, down), usage)) in places.iter().zip(uses).enumerate() {
                let above = stack.lift(space, page);
                if usage.down == NO_PAGE {
                    stack.on_top += 1;
                } else {
                    stack.mark(space, down);
                }
                (self.found)(number * AHEAD + at, above);
            }
        }
    }
}
