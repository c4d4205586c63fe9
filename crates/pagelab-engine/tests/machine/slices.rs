//! Slices of the last-level cache: lines that collide in one cache are spread over slices by a hash.

use pagelab_engine::base::addr::LineAddr;
use pagelab_engine::base::ids::CoreId;
use pagelab_engine::cache::{Hierarchy, HitLevel, Requester};
use pagelab_engine::config::{Assembly, assemble};

/// Caches of a preset with this slice setting.
fn caches(machine: &str, set: &[&str]) -> Hierarchy {
    let set: Vec<String> = set.iter().map(|&set| set.to_owned()).collect();
    let config = assemble(&Assembly { machine: Some(machine), set: &set, ..Assembly::default() }).unwrap();
    Hierarchy::new(&config.machine.cache, 1, 1).unwrap()
}

/// Accesses served by memory in the last of three rounds over lines that are `apart` lines from each other.
fn missed(mut caches: Hierarchy, apart: u64, lines: u64) -> usize {
    let mut round = || {
        let served =
            (0..lines).map(|n| caches.access(CoreId::FIRST, LineAddr(n * apart), false, Requester::Data).served);
        served.filter(|&served| served == HitLevel::Dram).count()
    };
    (round(), round(), round()).2
}

#[test]
fn lines_that_fall_into_one_set_are_spread_over_the_slices() {
    // 8192 sets of 12 ways: 24 lines that many lines apart are in one set, and in six for each of four slices.
    let (sets, ways) = (8192, 12);
    let kabylake = |set: &[&str]| missed(caches("kabylake-7700hq", set), sets, 2 * ways);
    assert_eq!(kabylake(&[]), 2 * ways as usize);
    assert_eq!(kabylake(&["machine.cache.l3.slices=4"]), 0);
    assert_eq!(kabylake(&["machine.cache.l3.slices=4", "machine.cache.l3.slice_hash=none"]), 2 * ways as usize);
}

#[test]
fn slices_change_nothing_for_what_fits_and_nothing_by_themselves() {
    for machine in ["kabylake-7700hq", "xeon-e-2136", "broadwell-e5-2640v3", "xeon-silver-4114"] {
        for slices in [1, 2] {
            let set = format!("machine.cache.l3.slices={slices}");
            // A megabyte, line after line.
            assert_eq!(missed(caches(machine, &[&set]), 1, 1 << 14), 0, "{machine}, {slices}");
        }
    }
}

#[test]
fn impossible_slices_are_refused() {
    let refused = |slices: &str| {
        let set = [format!("machine.cache.l3.slices={slices}")];
        assemble(&Assembly { set: &set, ..Assembly::default() }).unwrap_err().to_string()
    };
    assert!(refused("3").contains("divisors of its 8192 sets"), "{}", refused("3"));
    assert!(refused("0").contains("divisors"), "{}", refused("0"));
    assert!(refused("16").contains("1, 2, 4 or 8 times an odd number"), "{}", refused("16"));
}
