//! Samples are as near to the exact curve as they say.

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

/// Of 20 seeds, those whose curve leaves its bounds at some size; and the widest relative bounds at sizes that the sample
/// knows something of, as a median.
fn check(spec: &str, sampling: Sampling) {
    let exact = curves(spec, Sampling::All, 1);
    for (number, exact) in exact.curves.iter().enumerate() {
        let mut outside = Vec::new();
        let mut widths = Vec::new();
        for seed in 0..SEEDS {
            let sampled = &curves(spec, sampling, seed).curves[number];
            let mut within = true;
            for (at, &size) in sampled.sizes.iter().enumerate() {
                let Some(place) = exact.sizes.iter().position(|&other| other == size) else { continue };
                let (misses, least, most) = (exact.misses[place], sampled.least_misses[at], sampled.most_misses[at]);
                within &= (least..=most).contains(&misses);
                widths.push((most - least) as f64 / (2 * exact.references) as f64);
            }
            if !within {
                outside.push(seed);
            }
        }
        widths.sort_by(f64::total_cmp);
        let width = widths.get(widths.len() / 2).copied().unwrap_or(0.0);
        let what = format!("{spec}, {sampling:?}, {:?} of {} bytes", exact.stream, exact.granule_bytes);
        println!("{what}: outside {outside:?}, median half width {width:.4} of the references");
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

/// Real sizes: minutes.
#[test]
#[ignore = "minutes"]
fn samples_of_real_sizes_are_within_their_bounds() {
    for spec in ["zipf:size=1GiB,accesses=20M", "gups:size=1GiB,updates=10M", "bfs:vertices=200K"] {
        for sampling in [Sampling::Rate(0.01), Sampling::Rate(0.1), Sampling::Pages(8192)] {
            check(spec, sampling);
        }
    }
}
