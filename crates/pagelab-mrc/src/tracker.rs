//! One granule of one stream: its uses, their depths in the stack, and the sample's statistics.

use pagelab_trace::TraceError;

use crate::curve::{Counts, Estimate};
use crate::histogram::Histogram;
use crate::marks::MOST_MARKS;
use crate::sampling::{Sampler, Sampling};
use crate::stack::{NO_PAGE, Stack, Use};
use crate::top::{self, Top};

/// Uses that are queued so that several table entries can be prefetched together.
const QUEUE: usize = 256;
/// Parts of a sample, whose spread gives the error bounds.
pub(crate) const PARTS: usize = 64;

/// Pages or lines of one size.
pub(crate) struct Tracker {
    shift: u32,
    /// Number of the last used page, or none.
    last: u64,
    /// The most recently used pages; with sampling, only those in the sample.
    top: Top,
    sampler: Option<Sampler>,
    salt: u64,
    space: usize,
    queue: Vec<Use>,
    /// Pages of the queue that are not yet in the stack.
    fresh: Vec<u64>,
    stack: Stack,
    /// Uses of another page than the previous one.
    changes: u64,
    /// Additional uses of accesses that cross a page boundary.
    crossings: u64,
    found: UseCounts,
}

/// Counts of uses.
#[derive(Default)]
struct UseCounts {
    /// By depth, uses of pages on top that are not yet in `depths`.
    on_top: [u64; top::PAGES],
    depths: Histogram<12>,
    first: f64,
    parts: Vec<Part>,
}

/// Counts of uses for one part of the sample's pages.
#[derive(Clone, Default)]
struct Part {
    depths: Histogram<4>,
    first: f64,
}

impl Tracker {
    /// A tracker for pages of 2^`shift` bytes.
    pub fn new(shift: u32, sampling: Sampling, seed: u64, name: &str) -> Self {
        let sampler = (sampling != Sampling::All).then(|| Sampler::new(sampling, seed, name));
        let parts = vec![Part::default(); if sampler.is_some() { PARTS } else { 0 }];
        let salt = sampler.as_ref().map_or(0, |sampler| sampler.salt(0));
        Self {
            shift,
            last: NO_PAGE,
            top: Top::default(),
            sampler,
            salt,
            space: 0,
            queue: Vec::with_capacity(QUEUE),
            fresh: Vec::with_capacity(QUEUE),
            stack: Stack::default(),
            changes: 0,
            crossings: 0,
            found: UseCounts { parts, ..UseCounts::default() },
        }
    }

    pub fn shift(&self) -> u32 {
        self.shift
    }

    /// Uses the pages of the bytes from `first` to `last`; true if all are in the last used page.
    #[inline(always)]
    pub fn touch(&mut self, first: u64, last: u64) -> Result<bool, TraceError> {
        let (first, last) = (first >> self.shift, last >> self.shift);
        if first == last && self.last == first {
            return Ok(true);
        }
        self.crossings += last - first;
        for page in first..=last {
            if self.last != page {
                self.last = page;
                self.change(page)?;
            }
        }
        Ok(false)
    }

    #[inline(always)]
    fn change(&mut self, page: u64) -> Result<(), TraceError> {
        self.changes += 1;
        let sample = self.sampler.as_ref().map(|sampler| (sampler, Sampler::hash(self.salt, page)));
        if sample.is_some_and(|(sampler, hash)| !sampler.takes(hash)) {
            return Ok(());
        }
        let down = match (self.top.touch(page), sample) {
            (Err(lowest), _) => lowest,
            (Ok(above), None) => {
                self.found.on_top[above] += 1;
                return Ok(());
            }
            (Ok(above), Some((sampler, hash))) => {
                self.found.add_sampled(hash, Some(above), sampler.rate());
                return Ok(());
            }
        };
        self.queue.push(Use { page, down });
        if self.queue.len() == QUEUE {
            self.flush()?;
        }
        Ok(())
    }

    /// The following accesses are in this address space.
    pub fn enter(&mut self, space: usize) -> Result<(), TraceError> {
        self.hand_down()?;
        self.space = space;
        self.salt = self.sampler.as_ref().map_or(0, |sampler| sampler.salt(space));
        Ok(())
    }

    /// Drops the bytes from `first` to `last` of a space. A page that also contains other bytes stays.
    pub fn forget(&mut self, space: usize, first: u64, last: u64) -> Result<(), TraceError> {
        let size = 1_u64 << self.shift;
        let (Some(begin), Some(end)) = (first.checked_next_multiple_of(size), last.checked_add(1)) else {
            return Ok(());
        };
        let (begin, end) = (begin >> self.shift, end >> self.shift);
        if begin < end {
            self.hand_down()?;
            self.stack.forget(space, begin, end - 1);
        }
        Ok(())
    }

    /// Drops an address space that has ended.
    pub fn forget_space(&mut self, space: usize) -> Result<(), TraceError> {
        self.hand_down()?;
        self.stack.forget_space(space);
        Ok(())
    }

    /// Processes queued uses and moves all pages into the stack.
    fn hand_down(&mut self) -> Result<(), TraceError> {
        self.flush()?;
        self.last = NO_PAGE;
        self.stack.hand_down(self.space, self.top.take());
        Ok(())
    }

    /// Processes queued uses.
    #[inline(never)]
    pub fn flush(&mut self) -> Result<(), TraceError> {
        for (above, uses) in self.found.on_top.iter_mut().enumerate() {
            if *uses > 0 {
                self.found.depths.add(above as u64, std::mem::take(uses) as f64);
            }
        }
        match &mut self.sampler {
            None => {
                let found = &mut self.found;
                self.stack.touch(self.space, &self.queue, |_, above| match above {
                    Some(above) => found.depths.add(above as u64, 1.0),
                    None => found.first += 1.0,
                });
            }
            Some(sampler) => {
                let (found, queue, salt, rate) = (&mut self.found, &self.queue, self.salt, sampler.rate());
                let fresh = &mut self.fresh;
                self.stack.touch(self.space, queue, |at, above| {
                    let page = queue[at].page;
                    found.add_sampled(Sampler::hash(salt, page), above, rate);
                    if above.is_none() {
                        fresh.push(page);
                    }
                });
                if sampler.is_bounded() && !fresh.is_empty() {
                    self.stack.hand_down(self.space, self.top.take());
                    sampler.bound(&mut self.stack, self.space, fresh.drain(..));
                }
                fresh.clear();
            }
        }
        self.queue.clear();
        if self.stack.marks() > MOST_MARKS - QUEUE {
            let what = "more than 2^31 pages or lines at once: sample them (--sample 0.1), or leave small ones out";
            return Err(TraceError::usage(what));
        }
        Ok(())
    }

    /// All counts of a stream with this many accesses. Queued uses must have been flushed.
    pub fn counts(&self, accesses: u64) -> Counts<'_> {
        let estimate = self.sampler.as_ref().map(|sampler| Estimate { rate: sampler.rate(), tracker: self });
        Counts {
            references: accesses + self.crossings,
            changes: self.changes,
            pages: self.stack.pages() as u64,
            depths: &self.found.depths,
            tails: self.found.depths.tails(),
            first: self.found.first,
            estimate,
        }
    }

    /// Misses of a cache of `size` entries, for each part of the sample.
    pub fn misses_by_part(&self, size: u64) -> impl Iterator<Item = f64> {
        self.found.parts.iter().map(move |part| part.first + part.depths.at_least(size))
    }
}

impl UseCounts {
    #[inline(always)]
    fn add_sampled(&mut self, hash: u64, above: Option<usize>, rate: f64) {
        let (weight, part) = (1.0 / rate, &mut self.parts[hash as usize % PARTS]);
        match above {
            Some(above) => {
                let depth = (above as f64 / rate) as u64;
                self.depths.add(depth, weight);
                part.depths.add(depth, weight);
            }
            None => {
                self.first += weight;
                part.first += weight;
            }
        }
    }
}
