//! Impossible speculations are refused, with an error that says what is possible.

use crate::config_errors::assert_refused;

const KEY: &str = "machine.tlb.speculation";
const MODELS: [&str; 1] = ["spec-tlb"];

fn set(model: &str, more: &str) -> String {
    format!(r#"{KEY}={{"model":"{model}"{more}}}"#)
}

fn refused(model: &str, more: &str, part: &str, words: &[&str]) {
    assert_refused(&[("radix", &[&set(model, more)], &format!("{KEY}{part}"), words)]);
}

#[test]
fn impossible_speculations() {
    for model in MODELS {
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
    refused("spectlb", "", ".model", &["spectlb", "spec-tlb"]);
}
