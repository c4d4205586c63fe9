//! `seq`: from one end of an array to the other.

use super::{
    Workload,
    array::{self, ACCESSES_OF_PASSES, INITIALISE, PASSES, REGIONS, SIZE_1G, Sweep, WRITE},
    between::BETWEEN,
    spec::{ALIGN, GAP, Kind, Parameter, Preset, SEED, THREADS},
};

pub(super) static WORKLOAD: Workload = Workload {
    name: "seq",
    summary: "accesses an array element by element, from its first byte to its last",
    origin: "the sequential test of the software page walk cache paper (section 5.1) is seq:size=1GiB,step=4K",
    parameters: &[
        SIZE_1G,
        Parameter {
            name: "step",
            kind: Kind::Bytes { min: 1, max: 1 << 40 },
            default: Preset::Value("8"),
            meaning: "bytes from one access to the next; an access reads the first 8 at most",
        },
        PASSES,
        ACCESSES_OF_PASSES,
        WRITE,
        BETWEEN,
        THREADS,
        REGIONS,
        INITIALISE,
        GAP,
        ALIGN,
        SEED,
    ],
    build: |values| {
        let step = values.number("step");
        array::build(values, step, |part| Sweep::new(values, part, step, 0))
    },
};

#[cfg(test)]
mod tests {
    use super::super::program::tests::{arrays, pages, replay};
    use crate::AccessKind;

    #[test]
    fn addresses_follow_each_other_and_begin_again() {
        let (accesses, events) = replay("seq:size=1M,passes=2", 0);
        let (base, len) = arrays(&events)[0];
        assert_eq!((base % (2 << 20), len), (0, 1 << 20));
        assert_eq!(accesses.len(), 2 * (1 << 17));
        for (index, (_, access)) in accesses.iter().enumerate() {
            assert_eq!(access.vaddr, base + (index as u64 % (1 << 17)) * 8);
            assert_eq!((access.size_bytes, access.kind, access.gap), (8, AccessKind::Load, 3));
        }
        assert_eq!(pages(&accesses), 256);
    }

    #[test]
    fn a_step_wider_than_a_word_and_a_narrower_one() {
        let (accesses, events) = replay("seq:size=10000,step=4K,write=1", 0);
        let base = arrays(&events)[0].0;
        let addresses: Vec<_> = accesses.iter().map(|(_, a)| a.vaddr - base).collect();
        assert_eq!(addresses, [0, 4096], "an element that does not fit is left out");
        assert!(accesses.iter().all(|(_, a)| a.kind == AccessKind::Store && a.size_bytes == 8));
        let (accesses, _) = replay("seq:size=5,step=1,accesses=7", 0);
        assert!(accesses.len() == 7 && accesses.iter().all(|(_, a)| a.size_bytes == 1));
        assert_eq!(accesses[5], accesses[0]);
    }

    #[test]
    fn own_regions_are_apart_and_a_shared_one_is_divided() {
        let (own, events) = replay("seq:size=64K,threads=2", 0);
        let bases = arrays(&events);
        assert_eq!((own.len(), bases.len(), pages(&own)), (2 * 8192, 2, 32));
        for (thread, access) in &own {
            assert!((access.vaddr - bases[*thread as usize].0) < 65536);
        }
        let (shared, events) = replay("seq:size=64K,threads=2,regions=shared,init=yes", 0);
        let bases = arrays(&events);
        assert_eq!((shared.len(), bases.len(), pages(&shared)), (2 * 8192, 1, 16));
        assert!(shared.iter().all(|(thread, a)| (a.vaddr - bases[0].0) / 32768 == u64::from(*thread)));
        for thread in 0..2 {
            let mut kinds = shared.iter().filter(|(t, _)| *t == thread).map(|(_, a)| a.kind);
            assert!(kinds.by_ref().take(4096).all(|k| k == AccessKind::Store));
            assert!(kinds.all(|k| k == AccessKind::Load));
        }
    }

    #[test]
    fn the_share_of_stores_is_the_spec_s_and_has_its_own_site() {
        let (accesses, _) = replay("seq:size=1M,write=0.25", 3);
        let stores: Vec<_> = accesses.iter().filter(|(_, a)| a.kind == AccessKind::Store).collect();
        assert!((stores.len() as f64 / accesses.len() as f64 - 0.25).abs() < 0.01);
        assert!(accesses.iter().all(|(_, a)| (a.kind == AccessKind::Store) == (a.pc == stores[0].1.pc)));
    }
}
