//! Dependencies of accesses and branches.

use pagelab_trace::{AccessKind, Branches};

use super::{compiled, record};

/// For each access of the program to its own memory: the distance to the load that it depends on, the distance to the
/// load that the branches before it depend on, and their outcomes.
#[test]
fn accesses_and_branches_tell_what_they_wait_for() {
    let (output, recorded) = record(&[compiled("dependencies").to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let own =
        recorded.accesses.iter().zip(&recorded.branches).filter(|((_, access), _)| {
            (0x2_0000_0000..0x2_0010_0000).contains(&access.vaddr) && !access.maker.is_kernel()
        });
    let told = |branches: &Branches| -> String { branches.outcomes().map(|t| if t { 'T' } else { 'n' }).collect() };
    let own: Vec<_> = own
        .map(|((_, access), branches)| (access.kind, access.maker.producer(), branches.producer(), told(branches)))
        .collect();
    let (load, store) = (AccessKind::Load, AccessKind::Store);
    let expected = [
        (load, Some(1), None, "T"),
        (load, Some(1), None, "T"),
        (load, Some(1), None, "T"),
        (load, None, None, "n"),
        (load, Some(1), None, ""),
        (store, Some(1), None, ""),
        (load, Some(3), None, ""),
        (load, Some(4), None, ""),
        (load, None, None, ""),
        (load, None, Some(1), "T"),
        (store, None, Some(1), "n"),
        (AccessKind::Modify, None, None, ""),
        (load, None, None, ""),
        (load, Some(1), None, ""),
        (load, Some(1), None, ""),
        (load, None, None, ""),
        (load, Some(1), None, ""),
        (load, None, None, ""),
        (load, Some(2), None, ""),
        (load, Some(1), None, ""),
        (load, Some(4), None, ""),
        (load, Some(2), None, ""),
        (load, Some(3), Some(3), "n"),
        (load, None, None, ""),
        (load, Some(1), None, ""),
        (load, Some(6), None, ""),
        (load, Some(3), None, ""),
        (load, Some(1), None, ""),
        (load, None, Some(1), "T"),
        (load, Some(2), None, ""),
    ];
    // Preceded by the nine stores of C and the chain's first load.
    assert_eq!(own.len(), 10 + expected.len(), "{own:#?}");
    for (number, (found, (kind, producer, of_branches, outcomes))) in own[10..].iter().zip(expected).enumerate() {
        let wanted = (kind, producer, of_branches, outcomes.to_owned());
        assert_eq!(*found, wanted, "access {}", number + 1);
    }
}
