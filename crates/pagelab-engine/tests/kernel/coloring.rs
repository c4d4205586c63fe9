//! Frames of the right colour, by the mappings that a run ends with.

use pagelab_engine::base::addr::FRAME_BYTES;
use pagelab_engine::config::{Assembly, assemble};
use pagelab_engine::machine::simulation::{PlacedSource, Simulation};

#[test]
fn pages_have_frames_of_their_colour_while_there_are_blocks() {
    let placement = r#"system.layers.native.placement={"kind":"coloring","colours":16}"#.to_owned();
    let config = assemble(&Assembly { system: Some("radix"), set: &[placement], ..Assembly::default() }).unwrap();
    let source = pagelab_trace::workload::parse("random:size=4MiB,accesses=20K", 1).unwrap();
    let placed = PlacedSource { source, cpus: vec![0], memory_limit: None };
    let mut simulation = Simulation::new(&config, vec![placed], Some(20_000)).unwrap();
    simulation.run(&mut |_| true).unwrap();
    let space = simulation.programs.inputs[0].spaces().next().unwrap();
    let layer = &simulation.kernels.os.layers[0];
    let mappings = layer.spaces[space.index].vmas.iter().map(|vma| vma.range());
    let vma = mappings.max_by_key(|range| range.len_bytes()).unwrap();
    let pages = layer.mapped(space.index, vma.start, vma.end);
    assert!(pages.len() > 1000, "{}", pages.len());
    assert!(pages.iter().all(|page| page.mapping.pfn.0 % 16 == page.va.page_number() & 15));
    // Whole blocks were split: the kept frames are those that no page of the right colour has used.
    let taken = pages.len() as u64;
    let blocks = (taken + layer.mechanisms.placement.held_frames()) / 16;
    assert_eq!(taken + layer.mechanisms.placement.held_frames(), blocks * 16);
    let measures = layer.mechanisms.placement.measures();
    let value = |name: &str| measures.iter().find(|measure| measure.name == name).unwrap().value;
    assert_eq!([value("coloring.taken"), value("coloring.blocks")], [taken, blocks]);
    assert_eq!(value("coloring.kept_bytes"), (blocks * 16 - taken) * FRAME_BYTES);
}
