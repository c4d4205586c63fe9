//! Impossible organisations of TLB arrays are refused, with an error that says what is possible.

use crate::config_errors::assert_refused;

/// Arrays of the second level: pages, entries, ways, and organisation of each.
fn second(arrays: &[(&str, u64, u64, &str)]) -> String {
    let arrays: Vec<_> = arrays
        .iter()
        .map(|(pages, entries, ways, organisation)| {
            format!(r#"{{"pages":[{pages}],"entries":{entries},"ways":{ways},"organisation":{organisation}}}"#)
        })
        .collect();
    format!("machine.tlb.l2=[{}]", arrays.join(","))
}

fn model(name: &str, more: &str) -> String {
    format!(r#"{{"model":"{name}"{more}}}"#)
}

#[test]
fn impossible_tlb_organisations() {
    const KEY: &str = "machine.tlb.l2.0.organisation";
    const SECOND_KEY: &str = "machine.tlb.l2.1.organisation";
    let plain = model("pages", "");
    let one = |organisation: &str| second(&[(r#""4K""#, 64, 4, organisation)]);
    let alone = |organisation: &str| second(&[(r#""2M""#, 16, 16, organisation)]);
    for pages in [0, 3, 16] {
        let set = one(&model("coalesced", &format!(r#","pages":{pages}"#)));
        let what = format!("{pages} is not possible");
        assert_refused(&[("radix", &[&set], "machine.tlb.l2.0.organisation.pages", &[&what, "1, 2, 4 and 8", "line"])]);
    }
    let with_model = |name: &str, more: &str| one(&model(name, more));
    let three = second(&[
        (r#""4K""#, 64, 4, &plain),
        (r#""2M""#, 16, 16, &model("ranges", "")),
        (r#""1G""#, 4, 4, &model("ranges", "")),
    ]);
    assert_refused(&[
        (
            "radix",
            &[&with_model("blocks", r#","pages":1"#)],
            "machine.tlb.l2.0.organisation.pages",
            &["1 is not", "2, 4 and 8"],
        ),
        (
            "radix",
            &[&with_model("ranges", r#","pages":9"#)],
            "machine.tlb.l2.0.organisation.pages",
            &["9 is out", "1 to 8"],
        ),
        ("radix", &[&with_model("ranges", "")], KEY, &["fully associative", "4 ways", "ways=64"]),
        ("radix", &[&alone(&model("coalesced", ""))], KEY, &["coalesced", "hold 4K", "holds 2M"]),
        ("radix", &[&alone(&model("ranges", ""))], KEY, &["no array of the level lists 4K"]),
        (
            "radix",
            &[&three],
            "machine.tlb.l2.2.organisation",
            &["machine.tlb.l2.1.organisation=ranges", "so ranges is not possible", "pages"],
        ),
        ("nested-radix-shadow", &[&with_model("coalesced", "")], KEY, &["shadow page tables", "an entry per page"]),
        ("direct-segment", &[&with_model("coalesced", "")], KEY, &["direct segment"]),
        (
            "nested-radix-speculative",
            &[&second(&[(r#""4K""#, 64, 4, &plain), (r#""2M""#, 16, 16, &model("ranges", ""))])],
            SECOND_KEY,
            &["speculative table"],
        ),
        ("radix", &[&with_model("colt", "")], "machine.tlb.l2.0.organisation.model", &["colt", "coalesced"]),
        ("radix", &[&with_model("coalesced", r#","page":4"#)], "machine.tlb.l2.0.organisation.page", &["pages"]),
    ]);
}
