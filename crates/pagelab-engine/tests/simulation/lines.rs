//! Cache lines of a list of references, with a label each.

use pagelab_engine::run::lines::replay;

const LABEL_SHIFT: u32 = 48;
const WRITE: u64 = 1 << 62;
const EMPTY_FIRST: u64 = 1 << 63;

fn reference(line: u64, label: u64, bits: u64) -> u64 {
    line | label << LABEL_SHIFT | bits
}

#[test]
fn lines_are_found_where_they_were_left() {
    let far = (0..4096).map(|line| reference(1000 + line, 9, 0));
    let list: Vec<u64> = [reference(7, 0, WRITE), reference(7, 1, 0)]
        .into_iter()
        .chain(far)
        .chain([reference(7, 2, 0), reference(7, 3, EMPTY_FIRST)])
        .collect();
    let found = replay(None, list.into_iter()).unwrap();
    let counts = |label: usize| [found[label].l1, found[label].l2, found[label].l3, found[label].dram];
    assert_eq!(counts(0), [0, 0, 0, 1]);
    assert_eq!((counts(1), found[1].waited), ([1, 0, 0, 0], 0));
    assert_eq!(counts(2)[0] + counts(2)[3], 0, "256 KiB have pushed it out of the L1, and not out of the L3");
    assert_eq!(counts(3), [0, 0, 0, 1], "nothing is left");
    assert!(found[3].waited > found[2].waited && found[2].waited > 0);
    assert_eq!(found[9].dram, 4096);
}

#[test]
fn lines_beyond_memory_are_refused() {
    let error = replay(None, [reference(1 << 47, 0, 0)].into_iter()).unwrap_err();
    assert!(error.to_string().contains("machine.memory_bytes"), "{error}");
    assert!(replay(Some("no-such-machine"), [].into_iter()).is_err());
}
