//! The TLBs of machine presets: a pass over the pages of a buffer, one line each, takes more cycles once a TLB is full.
//! The figures here are those of the presets' sources, so a wrong number in a preset fails.

use crate::common::{ScriptWriter, run};
use pagelab_engine::config::{Assembly, Config, PresetKind, assemble, presets};
use pagelab_trace::AccessKind;

const BASE: u64 = 0x7f00_0000_0000;

/// Entries for pages of 4 KiB, and ways.
type Array = (u64, u64);

/// A second level, and cycles of a look-up in it.
type Second = (Array, u64);

/// Name; first levels for data and for instructions; second level.
type Row = (&'static str, Array, Array, Option<Second>);

const TLBS: &[Row] = &[
    ("kabylake-7700hq", (64, 4), (128, 8), Some(((1536, 12), 9))),
    ("sandybridge-e5-2420", (64, 4), (128, 4), Some(((512, 4), 7))),
    ("xeon-e-2136", (64, 4), (128, 8), Some(((1536, 12), 9))),
    ("broadwell-e5-2640v3", (64, 4), (128, 4), Some(((1024, 8), 8))),
    ("xeon-silver-4114", (64, 4), (128, 8), Some(((1536, 12), 9))),
    ("gem5-timing", (64, 64), (64, 64), None),
    ("epyc-7763", (64, 64), (64, 64), Some(((2048, 16), 7))),
    ("epyc-9654", (72, 72), (64, 64), Some(((3072, 24), 7))),
    ("ryzen-9950x", (96, 96), (64, 64), Some(((4096, 16), 7))),
    ("xeon-platinum-8480", (96, 6), (256, 8), Some(((2048, 16), 7))),
    ("core-ultra-258v", (128, 8), (256, 8), Some(((2048, 16), 7))),
];

/// What a pass over `pages` pages costs, after passes that have filled the TLBs: first-level misses, walks, and cycles
/// of translation.
fn pass(config: &Config, kind: AccessKind, pages: u64) -> [u64; 3] {
    let after = |passes: u64| {
        let mut script = ScriptWriter::new();
        script.event(0, crate::common::mmap(BASE, pages * 4096, pagelab_trace::Protection::from_bits(7)));
        for page in (0..passes).flat_map(|_| 0..pages) {
            // A different line of each page, so that no cache set fills up.
            script.access(0, kind, BASE + page * 4096 + page % 64 * 64);
        }
        let stats = run(config, script.finish(), &[0]).1;
        let misses = if kind == AccessKind::Fetch { "itlb.l1.misses" } else { "dtlb.l1.misses" };
        [misses, "walk.count", "cycles.translation"].map(|name| stats.values[name])
    };
    let (before, then) = (after(2), after(3));
    [0, 1, 2].map(|n| then[n] - before[n])
}

#[test]
fn steps_stand_at_the_sizes_of_the_tlbs_and_are_as_high_as_the_second_levels_latency() {
    assert!(presets(PresetKind::Machine).all(|preset| TLBS.iter().any(|row| row.0 == preset.name)));
    for &(name, data, instructions, second) in TLBS {
        let set = ["machine.memory_bytes=1GiB".to_owned()];
        let assembly = Assembly { machine: Some(name), system: Some("radix"), kernel: None, set: &set };
        let config = assemble(&assembly).unwrap();
        for (kind, (entries, ways)) in [(AccessKind::Load, data), (AccessKind::Fetch, instructions)] {
            assert_eq!(pass(&config, kind, entries), [0; 3], "{name} {kind:?}: {entries} pages fit");
            assert!(pass(&config, kind, entries + 1)[0] > ways, "{name} {kind:?}: {entries} pages and one do not fit");
            // With a page more per set, LRU evicts each page before its next use.
            let more = entries + entries / ways;
            let [misses, walks, cycles] = pass(&config, kind, more);
            assert_eq!(misses, more, "{name} {kind:?}");
            if let Some((_, latency)) = second {
                assert_eq!((walks, cycles), (0, more * latency), "{name} {kind:?}");
            }
        }
        let Some(((entries, ways), latency)) = second else { continue };
        assert_eq!(pass(&config, AccessKind::Load, entries), [entries, 0, entries * latency], "{name}: {entries} fit");
        assert!(pass(&config, AccessKind::Load, entries + 1)[1] > ways, "{name}: {entries} pages and one do not fit");
        let more = entries + entries / ways;
        let [_, walks, cycles] = pass(&config, AccessKind::Load, more);
        assert_eq!(walks, more, "{name}");
        assert!(cycles > more * latency, "{name}: {cycles}");
    }
}
