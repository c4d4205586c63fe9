//! `stride`: accesses at a constant distance.

use super::{
    Workload,
    array::{self, ACCESSES_OF_PASSES, INITIALISE, PASSES, REGIONS, SIZE_1G, Sweep, WRITE},
    spec::{ALIGN, GAP, Kind, Parameter, Preset, SEED, THREADS},
};

pub(super) static WORKLOAD: Workload = Workload {
    name: "stride",
    summary: "accesses an array with a constant stride, by default a cache line",
    origin: "the classic probe of cache and TLB reach (Saavedra and Smith, IEEE Trans. Computers 44(10), 1995)",
    parameters: &[
        SIZE_1G,
        Parameter {
            name: "stride",
            kind: Kind::Bytes { min: 1, max: 1 << 40 },
            default: Preset::Value("64"),
            meaning: "bytes from one access to the next; an access reads the first 8 at most",
        },
        Parameter {
            name: "advance",
            kind: Kind::Bytes { min: 0, max: 1 << 40 },
            default: Preset::Value("0"),
            meaning: "bytes by which the start of each pass advances; back to 0 at the end of a stride",
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
        let (stride, advance) = (values.number("stride"), values.number("advance"));
        array::build(values, stride, |part| Sweep::new(values, part, stride, advance))
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
    #[test]
    fn passes_begin_behind_each_other_until_a_stride_is_through() {
        let (accesses, events) = replay("stride:size=300,stride=100,advance=40,passes=4", 0);
        let base = arrays(&events)[0].0;
        let offsets: Vec<_> = accesses.iter().map(|(_, a)| a.vaddr - base).collect();
        // An access at 120 would lie in the next element.
        assert_eq!(offsets, [0, 100, 200, 40, 140, 240, 80, 180, 280, 0, 100, 200]);
        let (accesses, _) = replay("stride:size=192,stride=64,advance=57,passes=3", 0);
        assert!(accesses.iter().all(|(_, a)| a.vaddr % 64 == 0), "8 bytes at 57 would reach into the next element");
        let (shared, events) = replay("stride:size=400,stride=100,advance=50,passes=3,threads=2,regions=shared", 0);
        let base = arrays(&events)[0].0;
        let second: Vec<_> = shared.iter().filter(|(t, _)| *t == 1).map(|(_, a)| a.vaddr - base).collect();
        assert_eq!(second, [200, 300, 250, 350, 200, 300]);
    }
}
