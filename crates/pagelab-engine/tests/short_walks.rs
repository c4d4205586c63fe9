//! The short code of common walks does what the general code does: every statistic of every system and machine is the same.

use std::collections::BTreeMap;

use pagelab_cases::cases;
use pagelab_engine::base::rng::Rng;
use pagelab_engine::config::{PresetKind, presets};
use pagelab_engine::run::{Request, run};

/// At random, at random with stores to what was loaded, and one page after the other.
const WORKLOADS: &[&str] =
    &["random:size=8MiB,accesses=15K", "gups:size=8MiB,updates=8K", "seq:size=4MiB,accesses=30K"];

type Values = BTreeMap<String, u64>;

fn values(source: &str, system: &str, machine: &str, set: &[String]) -> Result<Values, String> {
    let request = Request {
        sources: vec![source.to_owned()],
        systems: vec![system.to_owned()],
        machine: Some(machine.to_owned()),
        set: set.to_vec(),
        threads: Some(1),
        ..Request::default()
    };
    let mut results = run(&request, &|_| true).map_err(|e| e.to_string())?;
    Ok(results.results.remove(0).stats.into_iter().map(|(name, value)| (name.to_string(), value)).collect())
}

/// Runs with either code, each translation compared with the kernel's own record. False if the machine is impossible.
fn assert_same(source: &str, system: &str, machine: &str, set: &[String]) -> bool {
    let with = |code: &str| {
        let all = [set, &[format!("engine.short_walks={code}"), "engine.check=on".to_owned()]].concat();
        values(source, system, machine, &all)
    };
    let (short, general) = (with("on"), with("off"));
    let (Ok(short), Ok(general)) = (&short, &general) else {
        assert_eq!(short, general, "{source} {system} {machine} {set:?}");
        return false;
    };
    assert!(general["walk.count"] > 0);
    let differ: Vec<_> = general.iter().filter(|(name, value)| short.get(*name) != Some(value)).collect();
    assert!(differ.is_empty(), "{source} {system} {machine} {set:?}: {differ:?}");
    assert_eq!(short.len(), general.len());
    true
}

#[test]
fn every_system_has_the_same_results() {
    for system in presets(PresetKind::System) {
        assert!(assert_same(WORKLOADS[0], system.name, "kabylake-7700hq", &[]), "{}", system.name);
    }
}

#[test]
fn every_machine_has_the_same_results() {
    for machine in presets(PresetKind::Machine) {
        for system in ["radix", "radix-5level", "radix-no-mmu-cache", "radix-perfect-mmu-cache", "radix-thp"] {
            for source in &WORKLOADS[1..] {
                assert!(assert_same(source, system, machine.name, &[]), "{system} {}", machine.name);
            }
        }
    }
}

/// A number of entries and of ways, and a policy.
fn array(rng: &mut Rng, ways: &[u64], policies: &[&str]) -> String {
    let ways = ways[rng.below(ways.len() as u64) as usize];
    let entries = ways * (1 + rng.below(40));
    let policy = policies[rng.below(policies.len() as u64) as usize];
    format!(r#""entries":{entries},"ways":{ways},"policy":"{policy}""#)
}

fn random_machine(rng: &mut Rng) -> Vec<String> {
    let policies: &[&str] = if rng.below(3) == 0 { &["lru", "tree-plru", "random"] } else { &["lru"] };
    let mut set = vec![
        format!(r#"machine.tlb.l1d=[{{"pages":["4K","2M","1G"],{}}}]"#, array(rng, &[1, 2, 4, 6, 8], policies)),
        format!(r#"machine.tlb.l2=[{{"pages":["4K","2M"],{}}}]"#, array(rng, &[1, 4, 6, 8, 12, 16], policies)),
    ];
    let levels: Vec<_> = (2..=5).filter(|_| rng.below(4) > 0).collect();
    let arrays: Vec<_> =
        levels.iter().map(|level| format!(r#"{{"level":{level},{}}}"#, array(rng, &[1, 2, 4], policies))).collect();
    set.push(format!(r#"machine.mmu_cache.paging_structure={{"latency_cycles":2,"arrays":[{}]}}"#, arrays.join(",")));
    if rng.below(3) == 0 {
        set.push("machine.cache.walker_entry=l2".to_owned());
    }
    if rng.below(4) == 0 {
        set.push("engine.kernel_refs=off".to_owned());
    }
    set
}

#[test]
fn random_machines_have_the_same_results() {
    let mut rng = Rng::new(17, "machines");
    for case in 0..cases(24_u32) {
        let machines: Vec<_> = presets(PresetKind::Machine).collect();
        let machine = machines[rng.below(machines.len() as u64) as usize].name;
        let system = ["radix", "radix-5level", "radix-ptemagnet"][rng.below(3) as usize];
        let source = WORKLOADS[rng.below(WORKLOADS.len() as u64) as usize];
        let set = random_machine(&mut rng);
        assert!(assert_same(source, system, machine, &set), "case {case}: {set:?}");
    }
}
