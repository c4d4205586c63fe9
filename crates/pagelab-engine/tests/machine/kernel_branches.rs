//! Branches of kernel code: how many there are, what they cost, and what they do to those of programs.

use crate::common::{ScriptWriter, assembled, assert_conserved, checked, config, run_workload};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{Access, AccessKind, Branches};

const DATA: u64 = 0x7f00_0000_0000;
const CODE: u64 = 0x40_0000;
const CORE: &str =
    r#"machine.core={"model":"window","cycles_per_instruction":0.5,"branch_predictor":"tage","mispredict_penalty":20}"#;
const BRANCHES: &str = "kernel.code.branch_instructions=6";
const STAGE: &str = "fault.stage.";

fn count(stats: &Statistics, name: &str) -> u64 {
    stats.values[name]
}

/// Loads of pages: each is a fault.
fn faults(pages: u64) -> ScriptWriter {
    let mut script = ScriptWriter::new();
    script.mmap(0, DATA, 1 << 30);
    (0..pages).for_each(|page| script.store(0, DATA + page * 4096));
    script
}

/// A program with a branch whose outcomes repeat after 61, so that earlier outcomes predict it. After each 16 of them,
/// it may touch a new page.
fn pattern(rounds: u64, touches: bool) -> ScriptWriter {
    let mut script = ScriptWriter::new();
    script.mmap(0, DATA, 1 << 30);
    for number in 0..16 * rounds {
        let mut branches = Branches::NONE;
        branches.push(0x9e37_79b9_7f4a_7c15_u64 >> (number % 61) & 1 != 0);
        let page = if touches && number % 16 == 0 { number / 16 } else { 0 };
        let access = Access::new(AccessKind::Store, DATA + page * 4096, 8);
        script.access_after(0, branches, Access { pc: CODE, ..access });
    }
    script
}

/// A branch per six instructions of each step, and a penalty for each misprediction.
#[test]
fn kernels_have_a_branch_per_interval_and_pay_for_mispredictions() {
    let set = [CORE, "kernel.zero_page=off"];
    for interval in [1, 6, 50] {
        let branches = format!("kernel.code.branch_instructions={interval}");
        let [without, with] = [10, 60]
            .map(|pages| {
                let run = |set: &[&str]| checked("radix", set, faults(pages)).1;
                (run(&set), run(&[&set[..], &[&branches]].concat()))
            })
            .map(|(without, with)| {
                let missed = count(&with, "branches.kernel.mispredicted");
                assert!(missed > 0 && missed <= count(&with, "branches.kernel"));
                // Only faults take longer, by the penalties.
                let longer: Vec<_> =
                    without.values.iter().filter(|(name, value)| with.values[*name] != **value).collect();
                assert_eq!(count(&with, "cycles.fault"), count(&without, "cycles.fault") + 20 * missed);
                for name in ["cycles.base", "cycles.data_stall", "cycles.translation", "cycles.branch", "branches"] {
                    assert_eq!(count(&with, name), count(&without, name), "{name} {longer:?}");
                }
                assert_conserved(&with);
                (without, with)
            });
        let per_fault = count(&with.1, "branches.kernel") - count(&without.1, "branches.kernel");
        let stages = |stats: &Statistics| -> Vec<u64> {
            let is_stage = |name: &&String| name.starts_with(STAGE) && name.ends_with(".instructions");
            stats.values.keys().filter(is_stage).map(|name| stats.values[name]).collect()
        };
        // All faults take the same steps, each of which has whole intervals only.
        let each: Vec<u64> =
            stages(&with.1).iter().zip(stages(&without.1)).map(|(all, few)| (all - few) / 50).collect();
        assert!(each.iter().sum::<u64>() > 100, "{each:?}");
        let expected: u64 = each.iter().map(|instructions| instructions / interval).sum();
        assert_eq!(per_fault, 50 * expected, "{interval}: {each:?}");
    }
}

/// Branches that always go the same way are learnt, those that are drawn are not.
#[test]
fn the_share_of_variable_branches_decides_the_rate_of_mispredictions() {
    let missed = |percent: u32| {
        let percent = format!("kernel.code.variable_branches_percent={percent}");
        let rate = |pages| {
            let (_, stats) = checked("radix", &[CORE, BRANCHES, &percent, "kernel.zero_page=off"], faults(pages));
            (count(&stats, "branches.kernel"), count(&stats, "branches.kernel.mispredicted"))
        };
        let [few, more] = [100, 200].map(rate);
        (more.1 - few.1) as f64 / (more.0 - few.0) as f64
    };
    let [none, ten, all] = [0, 10, 100].map(missed);
    assert!(none < 0.01, "{none}");
    assert!((0.03..0.2).contains(&ten), "{ten}");
    assert!((0.4..0.6).contains(&all), "{all}");
}

/// The program's branches are mispredicted after faults whose code has branches, and not otherwise.
#[test]
fn faults_pollute_the_predictor_of_programs() {
    let run = |touches: bool, set: &[&str]| {
        let (_, stats) = checked("radix", &[&[CORE][..], set].concat(), pattern(1000, touches));
        (count(&stats, "branches"), count(&stats, "branches.mispredicted"))
    };
    let (alone, quiet, polluted) = (run(true, &[]), run(false, &[BRANCHES]), run(true, &[BRANCHES]));
    assert_eq!((alone.0, quiet.0, polluted.0), (16_000, 16_000, 16_000));
    // The only other fault is the first access's.
    assert!(alone.1 < 300 && quiet.1 < 300, "{alone:?} {quiet:?}");
    assert!(polluted.1 > alone.1 + 1000, "{alone:?} {polluted:?}");
}

/// Kernel branches come between the accesses of the fast path, in all kinds of systems, and depend on the seed.
#[test]
fn the_fast_path_has_the_same_branches_and_seeds_draw_others() {
    let run = |system: &str, set: &[&str]| {
        let set = [&[CORE, BRANCHES, "engine.check=off"], set].concat();
        run_workload(&config(system, &set), "random:size=4MiB,accesses=2K")
    };
    for system in ["radix", "radix-thp", "nested-radix-cold"] {
        let (fast, general) = (run(system, &[]), run(system, &["engine.fast_path=off"]));
        assert_eq!(fast.values, general.values, "{system}");
        assert!(count(&fast, "branches.kernel") > 100, "{system}");
        let other = run(system, &["engine.seed=77"]);
        let name = "branches.kernel.mispredicted";
        assert!(system == "radix-thp" || count(&fast, name) != count(&other, name), "{system}");
    }
}

#[test]
fn kernel_branches_without_a_predictor_or_a_place_are_refused() {
    let perfect = r#"machine.core={"model":"window","cycles_per_instruction":0.5,"branch_predictor":"perfect"}"#;
    let predicts = "kernel.code.branch_instructions: the machine's core predicts every branch";
    for (set, wrong) in [
        (&[BRANCHES][..], predicts),
        (&[BRANCHES, perfect], predicts),
        (&[BRANCHES, CORE, "kernel.code.path_lines=0"], "kernel.code.branch_instructions: "),
        (&[CORE, "kernel.code.branch_instructions=1025"], "kernel.code.branch_instructions: "),
        (&[CORE, "kernel.code.variable_branches_percent=101"], "kernel.code.variable_branches_percent: "),
    ] {
        let error = assembled("radix", set).unwrap_err().to_string();
        assert!(error.contains(wrong), "{error}");
    }
    let (_, stats) = checked("radix", &[CORE], faults(3));
    assert!(!stats.values.keys().any(|name| name.starts_with("branches.kernel")));
}
