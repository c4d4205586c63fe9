//! Files of tools that cannot be imported, by what they begin with: the error names the tool and what to do instead.

use super::numbers::hexadecimal;

/// Begin of the data, the tool that wrote it, and what can be done.
const BEGINNINGS: [(&[u8], &str); 11] = [
    (b"\x7fELF", "an ELF file, which is a program or a core dump; record the program by `pagelab record`"),
    (b"PAR1", "a Parquet file; a trace of pagelab is the folder around such files, and needs no import"),
    (b"SIFT", "a SIFT trace of Sniper; its instructions need the program's decoder"),
    (b"desc: ", "the output of Valgrind's massif or cachegrind, which has counts and no addresses; use --tool=lackey"),
    (b"# callgrind format", "the output of callgrind, which has counts and no addresses; use --tool=lackey"),
    (
        b"version: 1\ncreator: callgrind",
        "the output of callgrind, which has counts and no addresses; use --tool=lackey",
    ),
    (b"# tracer:", "a text of ftrace, which has no accesses"),
    (
        b"Format: <data address>: <data size>",
        "the text of DynamoRIO's sample memtrace, which is no trace of drmemtrace; use `drrun -t drmemtrace -offline`",
    ),
    (b"core   0: 0x", "a log of Spike's instructions; it has no data addresses"),
    (b"<?xml", "an XML file"),
    (b"{", "a JSON file"),
];
/// Tools of Valgrind that write no accesses, as their first line names them.
const VALGRIND_TOOLS: [&str; 8] =
    ["Memcheck", "Cachegrind", "Callgrind", "Helgrind", "DRD", "DHAT", "Massif", "Nulgrind"];
/// Lines by which a text is recognised.
const FIRST_LINES: usize = 20;

/// What data is that no format fits; none if nothing is known of it.
pub(super) fn describe(head: &[u8]) -> Option<String> {
    let beginning = BEGINNINGS.iter().find(|(beginning, _)| head.starts_with(beginning));
    if let Some((_, what)) = beginning {
        return Some((*what).to_owned());
    }
    let text = std::str::from_utf8(head).or_else(|e| std::str::from_utf8(&head[..e.valid_up_to()])).ok()?;
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let first = lines.next()?;
    if first.starts_with("==") {
        let tool = VALGRIND_TOOLS.into_iter().find(|tool| first.contains(tool))?;
        return Some(format!("a text of Valgrind's {tool}, which has no accesses; use --tool=lackey --trace-mem=yes"));
    }
    let all: Vec<&str> = std::iter::once(first).chain(lines).take(FIRST_LINES).collect();
    // The last line may be cut.
    let whole = &all[..all.len().max(2) - 1];
    if whole.iter().all(|line| is_instruction_pointer(line)) {
        return Some("a list of addresses, such as Pin's itrace writes: it has no accesses; use pinatrace".to_owned());
    }
    if whole.iter().all(|line| is_execlog(line)) {
        return Some("a log of QEMU's plugin execlog, which does not tell the sizes of accesses".to_owned());
    }
    if whole.iter().all(|line| is_dinero(line)) {
        return Some("a text of labels and hexadecimal addresses, as Dinero reads it".to_owned());
    }
    None
}

fn is_instruction_pointer(line: &str) -> bool {
    line.strip_prefix("0x").is_some_and(|digits| hexadecimal(digits.as_bytes()).is_some())
}

/// `CPU, 0xADDRESS, 0xOPCODE, "instruction", …`.
fn is_execlog(line: &str) -> bool {
    let mut parts = line.splitn(4, ", ");
    parts.next().is_some_and(|cpu| cpu.parse::<u32>().is_ok())
        && parts.next().is_some_and(is_instruction_pointer)
        && parts.next().is_some_and(is_instruction_pointer)
        && parts.next().is_some_and(|instruction| instruction.starts_with('"'))
}

/// A label from 0 to 4 and a hexadecimal address without prefix.
fn is_dinero(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    let label = words.next().is_some_and(|label| matches!(label, "0" | "1" | "2" | "3" | "4"));
    label && words.next().is_some_and(|address| hexadecimal(address.as_bytes()).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_named_by_what_their_files_begin_with() {
        for (head, part) in [
            (&b"\x7fELF\x02\x01"[..], "ELF"),
            (b"PAR1\x15\x04", "folder around"),
            (b"desc: --time-unit=i\ncmd: a\n", "massif"),
            (b"==5== Memcheck, a memory error detector\n", "Valgrind's Memcheck"),
            (b"0x7f31c2a90103\n0x7f31c2a90107\n#eof\n", "itrace"),
            (b"0, 0xa12, 0xf8012400, \"movs r0, #0\"\n0, 0xa14, 0xf87f42b4, \"cmp r4, r6\"\n", "execlog"),
            (b"2 408ed4\n0 10019d94\n2 408ed8\n", "Dinero"),
        ] {
            let what = describe(head).unwrap();
            assert!(what.contains(part), "{what}");
        }
        for unknown in [&b""[..], b"\n\n", b"some text\n", &[0xee; 100], b"==5== Lackey\n", b"5 408ed4\n"] {
            assert_eq!(describe(unknown), None, "{unknown:?}");
        }
    }
}
