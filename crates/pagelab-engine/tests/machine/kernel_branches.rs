//! Branches of kernel code: how many there are, what they cost, and what they do to those of programs.

use crate::common::{ScriptWriter, assembled, assert_conserved, checked, config, run_workload};
use pagelab_engine::machine::simulation::{PlacedSource, Simulation};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{Access, AccessKind, Batch, Branches, Source, SourceInfo, TraceError};

const DATA: u64 = 0x7f00_0000_0000;
const CODE: u64 = 0x40_0000;
const CORE: &str =
    r#"machine.core={"model":"window","cycles_per_instruction":0.5,"branch_predictor":"tage","mispredict_penalty":20}"#;
const IN_ORDER: &str = r#"machine.core={"model":"in-order","cycles_per_instruction":0.5,"l1_hit_hidden":true,
    "branch_predictor":"tage","mispredict_penalty":20}"#;
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
    for (core, interval) in [(CORE, 1), (CORE, 6), (CORE, 50), (IN_ORDER, 6)] {
        let set = [core, "kernel.zero_page=off"];
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
    let both = [CORE, IN_ORDER].map(|core| {
        let run = |touches: bool, set: &[&str]| {
            let (_, stats) = checked("radix", &[&[core][..], set].concat(), pattern(1000, touches));
            (count(&stats, "branches"), count(&stats, "branches.mispredicted"))
        };
        let (alone, quiet, polluted) = (run(true, &[]), run(false, &[BRANCHES]), run(true, &[BRANCHES]));
        assert_eq!((alone.0, quiet.0, polluted.0), (16_000, 16_000, 16_000));
        // The only other fault is the first access's.
        assert!(alone.1 < 300 && quiet.1 < 300, "{alone:?} {quiet:?}");
        assert!(polluted.1 > alone.1 + 1000, "{alone:?} {polluted:?}");
        (alone, quiet, polluted)
    });
    // The cores have the same predictor, and see the same branches.
    assert_eq!(both[0], both[1]);
}

/// Kernel branches come between the accesses of the fast path, in all kinds of systems, and depend on the seed.
#[test]
fn the_fast_path_has_the_same_branches_and_seeds_draw_others() {
    for (core, system) in [
        (CORE, "radix"),
        (CORE, "radix-thp"),
        (CORE, "nested-radix-cold"),
        (IN_ORDER, "radix"),
        (IN_ORDER, "radix-thp"),
    ] {
        let run = |system: &str, set: &[&str]| {
            let set = [&[core, BRANCHES, "engine.check=off"], set].concat();
            run_workload(&config(system, &set), "random:size=4MiB,accesses=2K")
        };
        let (fast, general) = (run(system, &[]), run(system, &["engine.fast_path=off"]));
        assert_eq!(fast.values, general.values, "{system}");
        assert!(count(&fast, "branches.kernel") > 100, "{system}");
        let other = run(system, &["engine.seed=77"]);
        let name = "branches.kernel.mispredicted";
        assert!(system == "radix-thp" || count(&fast, name) != count(&other, name), "{system}");
    }
}

/// On a core in order, a mispredicted branch of the program takes the penalty and changes nothing else.
#[test]
fn a_core_in_order_pays_for_mispredicted_branches() {
    let run = |set: &str| checked("radix", &[IN_ORDER, set], pattern(50, true)).1;
    let with = run("machine.core.mispredict_penalty=20");
    let missed = count(&with, "branches.mispredicted");
    assert!(missed > 20, "{missed}");
    assert_eq!(count(&with, "cycles.branch"), 20 * missed);
    assert_conserved(&with);
    for (without, penalty) in
        [(run("machine.core.branch_predictor=perfect"), 0), (run("machine.core.mispredict_penalty=7"), 7)]
    {
        for (name, value) in &without.values {
            let more = match name.as_str() {
                "cycles.branch" | "cycles" | "elapsed_cycles" => (20 - penalty) * missed,
                _ => 0,
            };
            assert!(name.contains("cycles") && more > 0 || with.values[name] == *value, "{name}");
            assert_eq!(with.values[name], value + more, "{name}");
        }
        assert_eq!(without.values.contains_key("branches"), penalty > 0);
    }
}

/// Accesses that the filter answers have branches, too.
#[test]
fn both_cores_see_the_branches_of_every_access() {
    let all = [CORE, IN_ORDER].map(|core| {
        let mut script = ScriptWriter::new();
        script.mmap(0, DATA, 1 << 20);
        for number in 0..300 {
            let mut branches = Branches::NONE;
            (0..number % 4).for_each(|bit| branches.push((number >> bit) & 1 != 0));
            let access = Access::new(AccessKind::Load, DATA + number / 10 * 64, 8);
            script.access_after(0, branches, Access { pc: CODE + number % 7, ..access });
        }
        let (_, stats) = checked("radix", &[core, "engine.check=off"], script);
        (count(&stats, "branches"), count(&stats, "branches.mispredicted"))
    });
    assert_eq!(all[0], all[1]);
    assert_eq!(all[0].0, 75 * 6);
    assert!(all[0].1 > 20);
}

/// A source that has branches for some accesses of a batch only.
struct Short(Box<dyn Source>);

impl Source for Short {
    fn info(&self) -> &SourceInfo {
        self.0.info()
    }

    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        let read = self.0.next_batch(batch)?;
        batch.branches.pop();
        Ok(read)
    }
}

#[test]
fn a_source_with_branches_for_a_part_of_a_batch_is_refused() {
    let source: Box<dyn Source> = Box::new(Short(pattern(1, false).finish()));
    let sources = vec![PlacedSource { source, cpus: vec![0], memory_limit: None }];
    let mut simulation = Simulation::new(&config("radix", &[CORE]), sources, None).unwrap();
    let error = simulation.run(&mut |_| true).unwrap_err().to_string();
    assert!(error.contains("script: a batch has branches for 15 of its 16 accesses"), "{error}");
}

#[test]
fn kernel_branches_without_a_predictor_or_a_place_are_refused() {
    let perfect = r#"machine.core={"model":"window","cycles_per_instruction":0.5,"branch_predictor":"perfect"}"#;
    let predicts = "kernel.code.branch_instructions: the machine's core predicts every branch";
    for (set, wrong) in [
        (&[BRANCHES][..], predicts),
        (&[BRANCHES, perfect], predicts),
        (&[BRANCHES, CORE, "kernel.code.path_lines=0"], "kernel.code.branch_instructions: "),
        (&["machine.core.mispredict_penalty=1001"], "machine.core.mispredict_penalty: 1001 is out of range"),
        (&[CORE, "kernel.code.branch_instructions=1025"], "kernel.code.branch_instructions: "),
        (&[CORE, "kernel.code.variable_branches_percent=101"], "kernel.code.variable_branches_percent: "),
    ] {
        let error = assembled("radix", set).unwrap_err().to_string();
        assert!(error.contains(wrong), "{error}");
    }
    let (_, stats) = checked("radix", &[CORE], faults(3));
    assert!(!stats.values.keys().any(|name| name.starts_with("branches.kernel")));
}
