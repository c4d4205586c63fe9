//! Impossible speculations and predictions of page sizes are refused, with an error that says what is possible.

use crate::common::{ScriptWriter, config};
use crate::config_errors::assert_refused;
use pagelab_engine::machine::simulation::{PlacedSource, Simulation};

const KEY: &str = "machine.tlb.speculation";

fn set(model: &str, more: &str) -> String {
    format!(r#"{KEY}={{"model":"{model}"{more}}}"#)
}

fn refused(model: &str, more: &str, part: &str, words: &[&str]) {
    assert_refused(&[("radix", &[&set(model, more)], &format!("{KEY}{part}"), words)]);
}

#[test]
fn impossible_speculations() {
    for model in ["spec-tlb", "spot"] {
        refused(model, r#","entries":0"#, ".entries", &["0 is out of range", "1 to 65536"]);
        refused(model, r#","entries":65537"#, ".entries", &["1 to 65536"]);
        refused(model, r#","entries":8,"ways":3"#, ".ways", &["8 entries", "3"]);
        refused(model, r#","entry":8"#, ".entry", &["entries"]);
        for (system, word) in [
            ("nested-radix-shadow", "shadow page tables"),
            ("direct-segment", "a direct segment"),
            ("nested-radix-speculative", "a speculative table"),
            ("do-it-yourself", "tags of frames"),
        ] {
            assert_refused(&[(system, &[&set(model, "")], KEY, &[word, "model=none"])]);
        }
    }
    for pages in [0, 1, 3, 1024] {
        let more = format!(r#","region_pages":{pages}"#);
        refused("spec-tlb", &more, ".region_pages", &[&format!("{pages} is not"), "powers of two from 2 to 512"]);
    }
    refused("spot", r#","ways":0"#, ".ways", &["0 is out of range", "1 to 32"]);
    refused("spot", r#","confidence":4"#, ".confidence", &["4 is out of range", "1 to 3"]);
    refused("spot", r#","confidence":0"#, ".confidence", &["1 to 3"]);
    refused("spot", r#","initial":4"#, ".initial", &["0 to 3"]);
    refused("spot", r#","run_pages":0"#, ".run_pages", &["1 to 512"]);
    refused("revelator", r#","tiers":9"#, ".tiers", &["9 is out of range", "1 to 8"]);
    refused("revelator", r#","window":0"#, ".window", &["0 is out of range", "1 to 65536"]);
    refused("revelator", r#","least_share_percent":101"#, ".least_share_percent", &["101", "0 to 100"]);
    refused("spectlb", "", ".model", &["spectlb", "spec-tlb"]);
}

#[test]
fn guesses_by_a_hash_need_a_kernel_that_places_pages_by_it() {
    let model = set("revelator", "");
    refused("revelator", "", "", &["system.layers.native.placement", "hash-tiers", "model=none"]);
    let both = ["guest", "host"].map(|layer| format!(r#"system.layers.{layer}.placement={{"kind":"hash-tiers"}}"#));
    assert_refused(&[("nested-radix", &[&both[0], &both[1], &model], KEY, &["guest", "model=none"])]);
    let native = r#"system.layers.native.placement={"kind":"hash-tiers"}"#;
    assert_refused(&[("radix", &[native, &model, "machine.cache.l2=null"], KEY, &["machine.cache.l2"])]);
    config("radix", &[native, &model]);
}

/// A run of a program whose instructions have no addresses.
fn run_without_instructions(set: &[&str]) -> Result<(), String> {
    let mut script = ScriptWriter::new();
    script.mmap(0, 0x7f00_0000_0000, 4096);
    script.load(0, 0x7f00_0000_0000);
    let placed = PlacedSource { source: script.finish(), cpus: vec![0], memory_limit: None };
    let mut simulation = Simulation::new(&config("radix", set), vec![placed], None).unwrap();
    simulation.run(&mut |_| true).map_err(|e| e.to_string())
}

#[test]
fn a_speculation_by_instructions_refuses_programs_without_them() {
    let error = run_without_instructions(&[&set("spot", "")]).unwrap_err();
    assert!(error.contains(KEY) && error.contains("addresses of"), "{error}");
    run_without_instructions(&[&set("spec-tlb", "")]).unwrap();
}

#[test]
fn impossible_predictions_of_page_sizes() {
    const KEY: &str = "machine.tlb.size_prediction";
    let refused = |set: &[&str], part: &str, words: &[&str]| {
        assert_refused(&[("radix", set, &format!("{KEY}{part}"), words)]);
    };
    refused(&[&format!("{KEY}.counters=0")], ".counters", &["0 is out of range", "1 to 65536"]);
    refused(&[&format!("{KEY}.index=register")], ".index", &["register", "address", "pc"]);
    let on = format!("{KEY}=on");
    let split = r#"machine.tlb.l2=[{"pages":["4K"],"entries":64,"ways":4},{"pages":["2M"],"entries":64,"ways":4}]"#;
    refused(&[split, &on], "", &["no array of machine.tlb.l2", "4K", "off"]);
    refused(&["machine.tlb.l2=[]", &on], "", &["no array of machine.tlb.l2"]);
    refused(&["machine.tlb.l2.0.organisation.model=coalesced", &on], "", &["machine.tlb.l2.0.organisation=coalesced"]);
}

#[test]
fn a_prediction_by_instructions_refuses_programs_without_them() {
    let shared = r#"machine.tlb.l2=[{"pages":["4K","2M"],"entries":64,"ways":4}]"#;
    let by = |index: &str| run_without_instructions(&[shared, &format!("machine.tlb.size_prediction.index={index}")]);
    let error = by("pc").unwrap_err();
    assert!(error.contains("machine.tlb.size_prediction.index") && error.contains("addresses of"), "{error}");
    by("address").unwrap();
}
