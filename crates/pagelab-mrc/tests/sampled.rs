//! Samples are as close to the exact curve as they state.

use pagelab_mrc::{Analysis, Options, Sampling, analyse};
use pagelab_trace::workload;

const SEEDS: u64 = 20;

fn curves(spec: &str, sampling: Sampling, seed: u64) -> Analysis {
    let options = Options {
        page_bytes: vec![4096, 2 << 20],
        line_bytes: Some(64),
        sampling,
        seed,
        max_accesses: None,
        sizes: vec![],
        ways: None,
    };
    analyse(&mut *workload::parse(spec, 1).unwrap(), &options, &mut |_| true).unwrap()
}

/// At most one seed of 20 has a curve that leaves its bounds at some size. Prints the width of the bounds at the median
/// size.
fn check(spec: &str, sampling: Sampling) {
    let exact = curves(spec, Sampling::All, 1);
    let samples: Vec<Analysis> = (0..SEEDS).map(|seed| curves(spec, sampling, seed)).collect();
    for (number, exact) in exact.curves.iter().enumerate() {
        let (mut outside, mut widths) = (Vec::new(), Vec::new());
        for (seed, sample) in samples.iter().enumerate() {
            let sampled = &sample.curves[number];
            let mut within = true;
            for (at, &size) in sampled.sizes.iter().enumerate() {
                // Beyond its last size a curve is constant.
                let place = exact.sizes.binary_search(&size).unwrap_or(exact.sizes.len() - 1);
                let (least, most) = (sampled.least_misses[at], sampled.most_misses[at]);
                within &= (least..=most).contains(&exact.misses[place]);
                widths.push((most - least) as f64 / (2 * exact.changes.max(1)) as f64);
            }
            if !within {
                outside.push(seed);
            }
        }
        widths.sort_by(f64::total_cmp);
        let what = format!("{spec}, {sampling:?}, {:?} of {} bytes", exact.stream, exact.granule_bytes);
        println!("{what}: outside {outside:?}, ± {:.4} of all misses", widths[widths.len() / 2]);
        assert!(outside.len() <= 1, "{what}: {outside:?}");
    }
}

#[test]
fn a_rate_is_within_its_bounds() {
    check("zipf:size=64MiB,accesses=400K", Sampling::Rate(0.1));
}

#[test]
fn a_number_of_pages_is_within_its_bounds() {
    check("random:size=64MiB,accesses=400K", Sampling::Pages(2048));
}

/// A realistic size, which takes minutes: by rate, and by number of pages.
fn check_both(spec: &str) {
    for sampling in [Sampling::Pages(8192), Sampling::Rate(0.01)] {
        check(spec, sampling);
    }
}

#[test]
#[ignore = "minutes"]
fn samples_of_random_updates_are_within_their_bounds() {
    check_both("gups:size=1GiB,updates=5M");
}

#[test]
#[ignore = "minutes"]
fn samples_of_popular_pages_are_within_their_bounds() {
    check_both("zipf:size=1GiB,accesses=10M");
}

#[test]
#[ignore = "minutes"]
fn samples_of_a_search_are_within_their_bounds() {
    check_both("bfs:vertices=100K");
}
