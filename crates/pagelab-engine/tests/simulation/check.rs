//! Checks that `--check` finds a translation that contradicts the kernels' records.

use pagelab_engine::base::addr::PhysAddr;
use pagelab_engine::base::error::EngineError;
use pagelab_engine::base::ids::DIRECT_MAP;
use pagelab_engine::config::{Assembly, assemble};
use pagelab_engine::machine::simulation::{PlacedSource, Simulation};
use pagelab_engine::page_table::WalkList;

#[test]
fn a_table_that_lies_is_found_out() {
    let set = ["engine.check=on".to_owned()];
    let config = assemble(&Assembly { machine: None, system: Some("radix"), kernel: None, set: &set }).unwrap();
    let source = pagelab_trace::workload::parse("seq:size=1MiB,passes=1", 1).unwrap();
    let mut simulation =
        Simulation::new(&config, vec![PlacedSource { source, cpus: vec![0], memory_limit: None }], None).unwrap();
    // The direct map's first gigabyte page is mapped to another address.
    let layer = &mut simulation.kernels.os.layers[0];
    let mut list = WalkList::new();
    let va = layer.direct(PhysAddr(0));
    layer.spaces[DIRECT_MAP].table.walk(&layer.memory.contents, va, &mut list);
    let entry = list.refs().last().unwrap().addr;
    let told = layer.memory.contents.read(entry);
    layer.memory.contents.write(entry, told ^ 1 << 30);
    let error = simulation.run(&mut |_| true).unwrap_err();
    let EngineError::Check { what } = &error else { panic!("{error}") };
    assert!(what.contains("translates to frame 0x4") && what.contains("but 0x"), "{what}");
}
