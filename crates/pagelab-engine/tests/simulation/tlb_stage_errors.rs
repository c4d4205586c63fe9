//! Impossible TLB stages are refused, with an error that says what is possible.

use crate::config_errors::assert_refused;

#[test]
fn impossible_tlb_stages() {
    const VICTIM: &str = "machine.tlb.stages.victim";
    const LARGE: &str = "machine.tlb.stages.large";
    const POM: &str = "machine.tlb.stages.pom";
    assert_refused(&[
        ("radix", &[&format!("{LARGE}={{\"entries\":0,\"ways\":1}}")], LARGE, &["0 entries", "sets of 1 ways"]),
        ("radix", &[&format!("{LARGE}={{\"entries\":100}}")], LARGE, &["100 entries", "sets of 16 ways", "multiple"]),
        (
            "radix",
            &[&format!("{LARGE}={{\"entries\":-1}}")],
            "machine.tlb.stages.large.entries",
            &["-1", "whole number"],
        ),
        ("radix", &[&format!("{LARGE}={{\"ways\":0}}")], LARGE, &["131072 entries", "sets of 0 ways"]),
        (
            "radix",
            &[&format!("{LARGE}={{\"entries\":\"no limit\"}}")],
            "machine.tlb.stages.large.entries",
            &["no limit", "unlimited"],
        ),
        (
            "radix",
            &[&format!("{POM}={{\"small_bytes\":100}}")],
            "machine.tlb.stages.pom.small_bytes",
            &["100B", "multiples of 64"],
        ),
        (
            "radix",
            &[&format!("{POM}={{\"large_bytes\":\"1GiB\"}}")],
            "machine.tlb.stages.pom.large_bytes",
            &["1GiB", "64 to 256MiB"],
        ),
        ("radix", &[&format!("{POM}={{\"ways\":5}}")], "machine.tlb.stages.pom.ways", &["5 is out of range", "1 to 4"]),
        (
            "radix",
            &[&format!("{POM}={{\"size_predictor\":100000}}")],
            "machine.tlb.stages.pom.size_predictor",
            &["100000", "0 to 65536"],
        ),
        (
            "radix",
            &[&format!("{POM}={{\"wrong_size\":\"guess\"}}")],
            "machine.tlb.stages.pom.wrong_size",
            &["guess", "probe", "walk"],
        ),
        ("radix", &["machine.tlb.stages.victims=on"], "machine.tlb.stages.victims", &["did you mean `victim`?"]),
        ("radix", &["machine.tlb.stages.victim=8"], VICTIM, &["allowed are on, off"]),
        (
            "radix",
            &[&format!("{VICTIM}={{\"entries\":0}}")],
            "machine.tlb.stages.victim.entries",
            &["0 is out of range", "1 to 65536"],
        ),
        (
            "radix",
            &[&format!("{VICTIM}={{\"ways\":4}}")],
            "machine.tlb.stages.victim.ways",
            &["entries", "latency_cycles"],
        ),
    ]);
}
