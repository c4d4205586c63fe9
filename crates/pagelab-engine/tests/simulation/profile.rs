//! Profiles of paging costs: a profile agrees with the statistics, and changes none of them.

use pagelab_engine::observe::profile::{Cost, FaultSample, ProfileReport, Rows, SampledStage};
use pagelab_engine::run::{Request, Results, run};
use serde_json::{Value, json};

const SWAP: &str = r#"kernel.swap={"size_bytes":"64MiB","read_cycles":250000,"write_cycles":60000,"queue_depth":4}"#;

fn results(request: Value) -> Results {
    run(&Request::parse(&request.to_string()).unwrap(), &|_| true).unwrap()
}

fn with_profile(mut request: Value, profile: bool) -> Value {
    request["profile"] = profile.into();
    request
}

fn sum<T>(rows: &Rows<T>, cost: impl Fn(&T) -> &Cost) -> Cost {
    let mut sum = rows.others_cost;
    rows.rows.iter().for_each(|row| sum.add(cost(row)));
    sum
}

/// The totals of its tables, which must be equal.
fn total(profile: &ProfileReport) -> Cost {
    let total = sum(&profile.code, |row| &row.cost);
    assert_eq!(sum(&profile.pages, |row| &row.cost), total);
    assert_eq!(sum(&profile.regions, |row| &row.cost), total);
    total
}

fn requests() -> Vec<Value> {
    let systems = ["radix", "nested-radix", "hashed-open", "radix-thp", "nested-radix-shadow", "radix-2m"];
    vec![
        json!({"sources": ["gups:size=32MiB,updates=60K"], "systems": systems}),
        json!({"sources": ["bfs:vertices=8K"], "systems": ["radix", "nested-radix"], "warm_up": 100_000}),
        json!({"sources": ["gups:size=16MiB,updates=40K"], "systems": ["nested-radix"],
            "set": ["system.layers.guest.backing=present", "engine.kernel_refs=off"]}),
        json!({"sources": ["gups:size=16MiB,updates=40K@0", "seq:size=8MiB@1"], "systems": ["radix"]}),
        json!({"sources": ["gups:size=16MiB,updates=40K@0,memory_limit=4MiB"], "systems": ["radix"],
            "set": [SWAP]}),
        json!({"sources": ["pagerank:vertices=8K,threads=2@0-1"], "systems": ["radix", "mfoe"]}),
        json!({"sources": ["gups:size=16MiB,updates=200K"], "systems": ["radix", "nested-radix"],
            "sample": "every=20K,length=2K,warm=2K"}),
    ]
}

#[test]
fn a_profile_changes_no_result() {
    for request in requests() {
        let mut with = results(with_profile(request.clone(), true));
        for result in &mut with.results {
            assert!(result.profile.take().is_some());
        }
        let without = results(with_profile(request, false));
        assert_eq!(serde_json::to_string(&with).unwrap(), serde_json::to_string(&without).unwrap());
    }
}

#[test]
fn its_sums_are_the_statistics() {
    for request in requests() {
        for result in results(with_profile(request.clone(), true)).results {
            let (profile, count) = (result.profile.unwrap(), |name: &str| result.stats[name]);
            let total = total(&profile);
            let about = format!("{} of {request}", result.label);
            assert_eq!(total.walks, count("walk.count"), "{about}");
            // The program waits for an engine as for a walk; a profile attributes this to the fault.
            let by_engine = if result.label == "mfoe" { total.fault_cycles } else { 0 };
            let translation = total.translation_cycles..=total.translation_cycles + by_engine;
            assert!(translation.contains(&count("cycles.translation")), "{about}: {translation:?}");
            let faults = ["minor", "major", "raced", "outside", "forbidden"];
            let own = faults.map(|kind| count(&format!("fault.{kind}.count"))).iter().sum::<u64>();
            let engine =
                |name: &str| result.stats.get(&format!("layer.native.fault_engine.{name}")).copied().unwrap_or(0);
            let least = own + engine("hits") + engine("raced");
            // Hosts handle faults of accesses and of handlers.
            let hosts = count("fault.nested.count");
            assert!(
                (least..=least + hosts).contains(&total.faults),
                "{about}: {} of {least} and {hosts}",
                total.faults
            );
            let walks = profile.walks.latencies.iter().map(|&(_, many)| many).sum::<u64>();
            assert_eq!(walks, total.walks, "{about}");
            let parts = profile.regions.rows.iter().flat_map(|row| &row.walks_by_part).sum::<u64>();
            assert_eq!(parts, profile.regions.rows.iter().map(|row| row.cost.walks).sum::<u64>(), "{about}");
        }
    }
}

/// On one CPU whose program never waits for others, in a system without an engine, faults take the cycles of their
/// class.
#[test]
fn faults_take_the_cycles_of_their_class() {
    let request = json!({"sources": ["gups:size=32MiB,updates=60K"], "systems": ["radix", "nested-radix"]});
    for result in results(with_profile(request, true)).results {
        let took = total(&result.profile.unwrap()).fault_cycles;
        assert_eq!(took, result.stats["cycles.fault"], "{}", result.label);
    }
}

#[test]
fn samples_add_up() {
    let request = json!({"sources": ["gups:size=64MiB,updates=60K"], "systems": ["radix", "nested-radix"]});
    for result in results(with_profile(request, true)).results {
        let profile = result.profile.unwrap();
        assert_eq!((profile.walks.samples.len(), profile.faults.samples.len()), (8, 8));
        let slowest = profile.walks.slowest.unwrap();
        assert!(profile.walks.samples.iter().all(|walk| walk.cycles <= slowest.cycles));
        for walk in profile.walks.samples.iter().chain([&slowest]) {
            // The other cycles are those of MMU caches and nested TLBs.
            let refs = walk.refs.iter().map(|made| made.cycles).sum::<u64>();
            assert!(refs <= walk.cycles && walk.cycles <= refs + 100, "{walk:?}");
            assert_eq!(
                walk.refs.iter().filter(|made| made.level == 1).count(),
                walk.refs.len().min(if result.label == "radix" { 1 } else { 3 }),
                "{walk:?}"
            );
            assert_eq!(walk.access.area.kind, "anonymous");
        }
        for fault in profile.faults.samples.iter().chain(&profile.faults.slowest) {
            assert_eq!(fault.stages.iter().map(|stage| stage.cycles).sum::<u64>(), fault.cycles, "{fault:?}");
            assert!(!fault.major);
            steps_are_the_stages(fault);
        }
    }
}

/// The steps of a fault sum to its stages.
fn steps_are_the_stages(fault: &FaultSample) {
    let of_stage = |stage: &SampledStage| {
        let (mut cycles, mut lines) = (0, [0; 5]);
        for step in fault.steps.iter().filter(|step| (&step.layer, step.stage) == (&stage.layer, stage.stage)) {
            cycles += step.cycles;
            lines.iter_mut().zip(step.lines).for_each(|(sum, more)| *sum += more);
        }
        SampledStage { cycles, lines, ..stage.clone() }
    };
    assert_eq!(fault.stages.iter().map(of_stage).collect::<Vec<_>>(), fault.stages, "{fault:?}");
    let cycles = fault.steps.iter().map(|step| step.cycles).sum::<u64>();
    assert_eq!(cycles, fault.stages.iter().map(|stage| stage.cycles).sum::<u64>(), "no step is of another stage");
    // Zeroing a page is one step, a reference another: no step covers a whole stage.
    assert!(fault.steps.len() > 2 * fault.stages.len(), "{fault:?}");
}

#[test]
fn memory_is_where_the_workload_has_it() {
    let request = json!({"sources": ["random:size=64MiB,accesses=400K"], "systems": ["radix"], "profile": true});
    let profile = results(request).results.remove(0).profile.unwrap();
    let table = &profile.regions.rows[0];
    assert_eq!((table.end - table.start, table.touched_bytes), (64 << 20, table.cost.faults << 12));
    assert_eq!(table.area.kind, "anonymous");
    // Accesses are spread evenly: about 6,000 walks per part.
    let (least, most) = (table.walks_by_part.iter().min().unwrap(), table.walks_by_part.iter().max().unwrap());
    assert!(table.walks_by_part.len() == 64 && *least * 10 > *most * 8, "{least} to {most}");
    assert_eq!(profile.granularity_bytes, 4096);
}

/// If CPUs fault at the same time, no sample contains steps of the other CPU.
#[test]
fn samples_of_several_cpus_are_their_own() {
    let request = json!({"sources": ["gups:size=16MiB,updates=40K@0", "seq:size=16MiB@1"], "systems": ["radix"]});
    let profile = results(with_profile(request, true)).results.remove(0).profile.unwrap();
    for fault in profile.faults.samples.iter().chain(&profile.faults.slowest) {
        let stages = fault.stages.iter().map(|stage| stage.cycles).sum::<u64>();
        assert!(stages <= fault.cycles, "{fault:?}");
        steps_are_the_stages(fault);
    }
}
