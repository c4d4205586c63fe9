//! `stride`: one access every so many bytes.

use super::{
    Workload,
    array::{self, ACCESSES_OF_PASSES, INITIALISE, PASSES, REGIONS, SIZE_1G, Sweep, WRITE},
    spec::{ALIGN, GAP, Kind, Parameter, Preset, SEED, THREADS},
};

pub(super) static WORKLOAD: Workload = Workload {
    name: "stride",
    summary: "goes through an array with one access every so many bytes, a cache line by default",
    origin: "the classic probe of cache and TLB reach (Saavedra and Smith, IEEE Trans. Computers 44(10), 1995)",
    parameters: &[
        SIZE_1G,
        Parameter {
            name: "stride",
            kind: Kind::Bytes { min: 1, max: 1 << 40 },
            default: Preset::Value("64"),
            meaning: "bytes from one access to the next; an access reads the first 8 at most",
        },
        PASSES,
        ACCESSES_OF_PASSES,
        WRITE,
        THREADS,
        REGIONS,
        INITIALISE,
        GAP,
        ALIGN,
        SEED,
    ],
    build: |values| {
        let stride = values.number("stride");
        array::build(values, stride, |part| Sweep::new(values, part, stride))
    },
};

#[cfg(test)]
mod tests {
    use super::super::program::tests::{arrays, pages, replay};

    #[test]
    fn a_line_each_and_a_page_each() {
        let (accesses, events) = replay("stride:size=1M", 0);
        let base = arrays(&events)[0].0;
        assert_eq!(accesses.len(), 1 << 14);
        assert!(accesses.iter().enumerate().all(|(i, (_, a))| a.vaddr == base + 64 * i as u64 && a.size_bytes == 8));
        let (accesses, _) = replay("stride:size=32GiB,stride=1MiB,passes=3", 0);
        assert_eq!((accesses.len(), pages(&accesses)), (3 << 15, 1 << 15));
    }
}
