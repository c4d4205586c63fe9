//! Other data that a program accesses between the accesses of interest.

use super::{
    layout::{Layout, Site},
    program::Stream,
    spec::{Kind, Parameter, Preset, Values},
};
use crate::{Access, AccessKind, TraceError};

pub(super) const BETWEEN: Parameter = Parameter {
    name: "between",
    kind: Kind::Bytes { min: 0, max: 1 << 30 },
    default: Preset::Value("0"),
    meaning: "bytes of other data, a thread's own, that are read after each access, 8 of each 64; the reads are counted among \
              the accesses",
};
const LINE_BYTES: u64 = 64;
/// Site of the reads.
const SITE: u64 = 14;

/// A thread's other data.
#[derive(Clone, Copy, Debug)]
pub(super) struct OtherData {
    base: u64,
    lines: u64,
    site: Site,
}

impl OtherData {
    /// Maps the other data of the spec; none if there is none.
    ///
    /// # Errors
    /// If there is no room left in the address space.
    pub fn map(values: &Values, layout: &mut Layout, thread: u32) -> Result<Option<Self>, TraceError> {
        let bytes = if values.has(BETWEEN.name) { values.number(BETWEEN.name) } else { 0 };
        let lines = bytes.div_ceil(LINE_BYTES);
        if lines == 0 {
            return Ok(None);
        }
        layout.leave_hole();
        let base = layout.map(thread, lines * LINE_BYTES)?;
        layout.leave_hole();
        Ok(Some(Self { base, lines, site: Site::new(SITE, 8, values.gap()) }))
    }

    /// Total number of accesses per access of the workload.
    pub fn accesses_per_access(&self) -> u64 {
        1 + self.lines
    }
}

/// A stream that reads the other data after each of its accesses.
pub(super) struct Between<S> {
    inner: S,
    other: OtherData,
    /// The stream's next accesses, in reverse order.
    ahead: Vec<Access>,
    /// Lines that must still be read before the next access.
    left: u64,
}

impl<S: Stream> Between<S> {
    pub fn new(inner: S, other: OtherData) -> Self {
        Self { inner, other, ahead: Vec::new(), left: 0 }
    }

    fn next(&mut self) -> Access {
        if self.ahead.is_empty() {
            self.ahead.resize(self.inner.unit(), Access::new(AccessKind::Load, 0, 1));
            let filled = self.inner.fill(&mut self.ahead);
            self.ahead.truncate(filled);
            self.ahead.reverse();
        }
        self.ahead.pop().expect("a stream makes one access at least")
    }
}

impl<S: Stream> Stream for Between<S> {
    fn fill(&mut self, out: &mut [Access]) -> usize {
        let mut filled = 0;
        while filled < out.len() {
            if self.left == 0 {
                out[filled] = self.next();
                filled += 1;
                self.left = self.other.lines;
                continue;
            }
            let now = usize::try_from(self.left).unwrap_or(usize::MAX).min(out.len() - filled);
            let first = self.other.base + (self.other.lines - self.left) * LINE_BYTES;
            for (slot, line) in out[filled..filled + now].iter_mut().zip(0..) {
                *slot = self.other.site.load(first + line * LINE_BYTES);
            }
            (filled, self.left) = (filled + now, self.left - now as u64);
        }
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::super::program::tests::{arrays, replay};

    #[test]
    fn every_line_of_the_other_data_is_read_after_each_access() {
        for pattern in ["seq:step=4K", "semirandom:steps=3", "random:every=2"] {
            let spec = format!("{pattern},size=1M,write=1,threads=2");
            let (plain, _) = replay(&format!("{spec},accesses=400"), 3);
            let (with, events) = replay(&format!("{spec},between=70000,accesses={}", 400 * 1095), 3);
            let arrays = arrays(&events);
            let [(own, _), (other, bytes), ..] = arrays[..] else { panic!("{arrays:?}") };
            assert_eq!((arrays.len(), bytes), (4, 73_728));
            // The arrays are not adjacent.
            assert!(other + bytes < own && arrays[2].0 + arrays[2].1 < other);
            for thread in 0..2 {
                let of_thread = |all: &[(u32, crate::Access)]| -> Vec<_> {
                    all.iter().filter(|(t, _)| *t == thread).map(|(_, access)| *access).collect()
                };
                let (plain, with) = (of_thread(&plain), of_thread(&with));
                assert_eq!((plain.len(), with.len()), (200, 200 * 1095), "{spec}");
                let base = arrays[2 * thread as usize + 1].0;
                for (group, access) in with.chunks(1095).zip(plain) {
                    let place = |a: u64| a & ((1 << 20) - 1);
                    assert_eq!((place(group[0].vaddr), group[0].kind), (place(access.vaddr), access.kind), "{spec}");
                    let lines = group[1..].iter().zip(0..);
                    assert!(
                        lines.into_iter().all(|(read, line)| read.vaddr == base + line * 64 && !read.kind.writes())
                    );
                }
            }
        }
    }

    #[test]
    fn a_pass_goes_through_the_array_once() {
        let (accesses, _) = replay("seq:size=64K,step=4K,between=100", 0);
        assert_eq!(accesses.len(), 16 * 3);
    }

    #[test]
    fn regions_apart_are_no_neighbours() {
        let (own, apart) = (replay("seq:size=2M,threads=2", 0).1, replay("seq:size=2M,threads=2,regions=apart", 0).1);
        let [below, above] = [1, 0].map(|n| arrays(&own)[n]);
        assert_eq!(below.0 + below.1, above.0);
        let [below, above] = [1, 0].map(|n| arrays(&apart)[n]);
        assert!(below.0 + below.1 + 4096 <= above.0);
    }
}
