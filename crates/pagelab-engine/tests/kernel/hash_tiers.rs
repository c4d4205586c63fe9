//! Pages in the frames that a hash says: shares of the tiers compared with their closed form.

use crate::common::{ScriptWriter, checked, config, frames_from, run};
use pagelab_engine::base::hash_tiers::HashDomain;
use pagelab_engine::machine::simulation::Simulation;
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{EventKind, ProcessIx, case_seed};

const BASE: u64 = 0x7f00_0000_0000;
/// Statistics of the pages that got a tier.
const TIERS: [&str; 8] = ["tier_1", "tier_2", "tier_3", "tier_4", "tier_5", "tier_6", "tier_7", "tier_8"];
/// Pages of memory of 128 MiB.
const FRAMES: u64 = 32 << 10;

fn placed(stats: &Statistics, what: &str) -> u64 {
    stats.values[&format!("layer.native.hash_tiers.{what}")]
}

/// A run that stores to pages one by one.
fn filled(set: &[&str], pages: u64, tiers: u32) -> (Simulation, Statistics) {
    let placement = format!(r#"system.layers.native.placement={{"kind":"hash-tiers","tiers":{tiers}}}"#);
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, pages * 4096);
    (0..pages).for_each(|page| script.store(0, BASE + page * 4096));
    let set = [&[placement.as_str(), "machine.memory_bytes=128MiB"], set].concat();
    run(&config("radix", &set), script.finish(), &[0])
}

/// With a share p of free frames, tier i, from 0, gets p(1-p)^i of the pages. Every page takes one.
fn expected(free: f64, pages: u64, tiers: u32) -> Vec<f64> {
    let share = |page: u64| (free - page as f64) / FRAMES as f64;
    let of_tier = |tier: u32| (0..pages).map(|page| share(page) * (1.0 - share(page)).powi(tier as i32)).sum();
    (0..tiers).map(of_tier).collect()
}

#[test]
fn shares_of_tiers_follow_from_the_free_memory_alone() {
    let aged = format!(
        r#"system.layers.native.age={{"free_fraction":0.6,"huge_free_fraction":0.5,"unmovable_fraction":0.1,"seed":{}}}"#,
        case_seed(1)
    );
    let pages = 10_000;
    for (set, used, tiers) in [(vec![], 0.0, 3), (vec![aged.as_str()], 0.4, 8)] {
        let (simulation, stats) = filled(&set, pages, tiers);
        let free = (1.0 - used) * FRAMES as f64;
        let mut left = pages;
        for (tier, expected) in TIERS.iter().zip(expected(free, pages, tiers)) {
            let found = placed(&stats, tier);
            left -= found;
            // Five deviations; and what tables, kernels and the CPU's lists of free pages take, at most 2 % of memory.
            let slack = 5.0 * expected.sqrt() + 0.02 * pages as f64;
            assert!(
                found > 0 && (found as f64 - expected).abs() < slack,
                "{set:?}, {tier}: {found}, expected {expected}"
            );
        }
        assert_eq!(placed(&stats, "missed"), left);
        assert_eq!(in_tiers(&simulation, pages, tiers), pages - left, "as many as the hash says");
    }
}

/// Pages that are in a frame of one of their tiers.
fn in_tiers(simulation: &Simulation, pages: u64, tiers: u32) -> u64 {
    let space = simulation.programs.inputs[0].spaces().next().unwrap();
    let domain = HashDomain { process: space.index.index() as u64, first: 0, frames: FRAMES };
    let says = |page: u64, frame: u64| (0..tiers).any(|tier| domain.frame((BASE >> 12) + page, tier) == frame);
    (0..).zip(frames_from(simulation, BASE, pages)).filter(|&(page, frame)| says(page, frame.unwrap())).count() as u64
}

#[test]
fn a_page_takes_the_first_tier_that_is_free() {
    let (simulation, stats) = filled(&[], 2000, 1);
    let domain = |process| HashDomain { process, first: 0, frames: FRAMES };
    let space = simulation.programs.inputs[0].spaces().next().unwrap();
    let frames: Vec<u64> = frames_from(&simulation, BASE, 2000).into_iter().flatten().collect();
    let first = |page: usize| domain(space.index.index() as u64).frame((BASE >> 12) + page as u64, 0);
    let taken = (0..2000).filter(|&page| frames[page] == first(page)).count() as u64;
    assert_eq!(taken, placed(&stats, "tier_1"));
    // What is not in its frame found another page there, or one of the kernel's: never a later page.
    let before = |page: usize| frames[..page].contains(&first(page));
    let missed: Vec<usize> = (0..2000).filter(|&page| frames[page] != first(page)).collect();
    assert!(missed.iter().filter(|&&page| before(page)).count() > missed.len() / 4, "{} missed", missed.len());
    assert!((0..2000).all(|page| frames[page] != first(page) || !before(page)));
}

#[test]
fn what_is_not_a_page_of_its_own_is_placed_in_the_ordinary_way() {
    let placement = r#"system.layers.native.placement={"kind":"hash-tiers"}"#;
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 4 * 4096);
    (0..4).for_each(|page| script.store(0, BASE + page * 4096));
    // The child's stores copy pages, which are no fresh pages.
    script.event(0, EventKind::Fork { child: ProcessIx(1) });
    let child = script.thread(1);
    (0..4).for_each(|page| script.store(child, BASE + page * 4096));
    let (_, stats) = checked("radix", &[placement], script);
    assert_eq!([placed(&stats, "tier_1"), placed(&stats, "missed")], [4, 0]);
    assert_eq!(stats.values["fault.copy.count"], 4);
}
