//! Text of Valgrind's `lackey` tool with `--trace-mem=yes`.
//!
//! One line an instruction or an access, addresses in hexadecimal without prefix, sizes in decimal:
//! ```text
//! I  04001090,3
//!  L 1ffefffe50,8
//!  S 1ffefffe48,8
//!  M 0421d7f0,4
//! ```
//! The accesses of an instruction follow it. Valgrind's own lines (`==12345== …`, `--12345-- …`, `**12345** …`) and
//! blank ones are skipped. So are accesses of 0 bytes, which lackey writes now and then; they are counted. Source:
//! `lackey/lk_main.c` of Valgrind 3.19.
//!
//! Valgrind writes to the standard error output, and so may the program. Lines that do not begin as lackey's are taken
//! for the program's, left out and counted. Where the program has written a part of a line, lackey's next line is
//! behind it, and is found there. A text with more lines of others than of lackey's is refused: a program makes
//! hundreds of lines of lackey's for each that it writes.
//!
//! Lackey's lines do not name their process. If Valgrind's own lines name several, as with `--trace-children=yes` or
//! after a fork, their accesses cannot be told apart: all are taken for one process's, and a note says so.

use std::collections::BTreeSet;

use super::{
    Head, ImportOptions,
    files::only,
    input::Input,
    lines::{each_line, shown},
    numbers::{decimal, decimal_at, hexadecimal_at},
    sink::{Problem, Sink},
};
use crate::{AccessKind, TraceError, format::MAX_ACCESS_BYTES};

/// The most that one access may have. x86 has none larger than XSAVE's and XRSTOR's area, 11,008 bytes with all
/// components (Intel SDM vol. 1, 13.5); more is a damaged number.
const MAX_LINE_ACCESS_BYTES: u64 = 16 << 10;
/// Digits of a size; more are a damaged number.
const MAX_SIZE_DIGITS: usize = 9;
/// Processes that are told apart by Valgrind's lines; more are as many.
const MAX_PROCESSES: usize = 1000;
/// Processes that a note names.
const MAX_SHOWN: usize = 4;
/// Lines of the program among which the format is still recognised.
const MAX_FIRST_STRANGERS: usize = 200;

const EXPECTED: &str = "expected `I  ADDR,SIZE`, ` L ADDR,SIZE`, ` S ADDR,SIZE` or ` M ADDR,SIZE` \
                        (hexadecimal address without 0x, decimal size)";

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// Valgrind's own words.
    Skip,
    /// Not lackey's.
    Stranger,
    /// Lackey's, and malformed.
    Wrong,
    Instruction {
        pc: u64,
        size_bytes: u64,
    },
    Access {
        kind: AccessKind,
        vaddr: u64,
        size_bytes: u64,
    },
}

impl Line {
    #[inline]
    fn new(op: u8, address: u64, size_bytes: u64) -> Self {
        let access = |kind| Self::Access { kind, vaddr: address, size_bytes };
        match op {
            b'L' => access(AccessKind::Load),
            b'S' => access(AccessKind::Store),
            b'M' => access(AccessKind::Modify),
            _ => Self::Instruction { pc: address, size_bytes },
        }
    }
}

#[inline]
fn parse(line: &[u8]) -> Line {
    let line = line.trim_ascii_end();
    let (op, rest) = match line {
        [] | [b'=', b'=', ..] | [b'-', b'-', ..] | [b'*', b'*', ..] => return Line::Skip,
        [b'I', b' ', b' ', rest @ ..] => (b'I', rest),
        [b' ', op @ (b'L' | b'S' | b'M'), b' ', rest @ ..] => (*op, rest),
        _ => return parse_program_line(line),
    };
    let Some((address, size_bytes)) = numbers(rest) else {
        return Line::Wrong;
    };
    Line::new(op, address, size_bytes)
}

#[inline]
fn numbers(text: &[u8]) -> Option<(u64, u64)> {
    let (address, rest) = hexadecimal_at(text)?;
    let size = rest.strip_prefix(b",")?;
    if size.len() > MAX_SIZE_DIGITS {
        return None;
    }
    Some((address, decimal(size)?))
}

/// A line of lackey's at the begin of a text, with its end, and its length.
#[inline]
fn usual(text: &[u8]) -> Option<(Line, usize)> {
    let ([first, second, third], numbers) = text.split_first_chunk()?;
    // No branch where lines differ: it would often be mispredicted.
    let fetch = (*first == b'I') & (*second == b' ');
    let op = if fetch { b'I' } else { *second };
    let data = (*first == b' ') & matches!(op, b'L' | b'S' | b'M');
    if !((fetch | data) & (*third == b' ')) {
        return None;
    }
    let (address, rest) = hexadecimal_at(numbers)?;
    let size = rest.strip_prefix(b",")?;
    let (size_bytes, rest) = decimal_at(size)?;
    let (digits, rest) = (size.len() - rest.len(), rest.strip_prefix(b"\n")?);
    (digits <= MAX_SIZE_DIGITS).then(|| (Line::new(op, address, size_bytes), text.len() - rest.len()))
}

/// The process that a line of Valgrind's own names: `==PID== …`, `--PID-- …` or `**PID** …`.
#[cold]
fn process(line: &[u8]) -> Option<u64> {
    let (marks, rest) = line.split_at_checked(2)?;
    let (process, rest) = decimal_at(rest)?;
    rest.starts_with(marks).then_some(process)
}

/// A line of lackey's that ends a line of the program's.
#[cold]
fn parse_program_line(line: &[u8]) -> Line {
    // The longest one has 3 bytes of kind, 16 digits, a comma and 9 digits.
    for from in line.len().saturating_sub(29)..line.len() {
        let rest = &line[from..];
        if rest.starts_with(b"I  ") || matches!(rest, [b' ', b'L' | b'S' | b'M', b' ', ..]) {
            match parse(rest) {
                found @ (Line::Instruction { .. } | Line::Access { .. }) => return found,
                Line::Skip | Line::Stranger | Line::Wrong => {}
            }
        }
    }
    Line::Stranger
}

/// True if the first line of the data that is not to be skipped is one of lackey's, the program's aside.
pub(super) fn looks_like(head: Head<'_>) -> bool {
    let lines = head.bytes.split_inclusive(|&b| b == b'\n').filter(|line| head.whole || line.ends_with(b"\n"));
    let begins_as_valgrind = head.bytes.starts_with(b"==");
    let strangers = if begins_as_valgrind { MAX_FIRST_STRANGERS } else { 0 };
    let mut said = lines.map(parse).filter(|line| *line != Line::Skip);
    said.by_ref().take(strangers + 1).find(|line| *line != Line::Stranger).is_some_and(|line| line != Line::Wrong)
}

/// Feeds the data to `sink`.
pub(super) fn read(inputs: &mut [Input], sink: &mut Sink, _: &ImportOptions) -> Result<(), TraceError> {
    let input = only(inputs)?;
    sink.enter(0, 1).map_err(|problem| problem.at(input, str::to_owned))?;
    let mut first_stranger = None;
    let (mut own_lines, mut strangers) = (0u64, 0u64);
    let mut processes = BTreeSet::new();
    each_line(input, sink, usual, parse, |meaning, line, number, sink| match meaning {
        Line::Skip => {
            if processes.len() < MAX_PROCESSES {
                processes.extend(process(line));
            }
            Ok(())
        }
        Line::Stranger => {
            sink.skip_record();
            strangers += 1;
            first_stranger.get_or_insert_with(|| (number, shown(line)));
            Ok(())
        }
        Line::Wrong => Err(EXPECTED.to_owned().into()),
        Line::Instruction { pc, size_bytes } => match u16::try_from(size_bytes) {
            Ok(size_bytes) if size_bytes <= MAX_ACCESS_BYTES => {
                own_lines += 1;
                sink.instruction(pc, size_bytes)
            }
            _ => Err(format!("an instruction of {size_bytes} bytes").into()),
        },
        Line::Access { size_bytes: 0, .. } => {
            own_lines += 1;
            sink.skip_empty();
            Ok(())
        }
        Line::Access { size_bytes, .. } if size_bytes > MAX_LINE_ACCESS_BYTES => Err(too_long(size_bytes)),
        Line::Access { kind, vaddr, size_bytes } => {
            own_lines += 1;
            sink.access(kind, vaddr, size_bytes)
        }
    })?;
    sink.merge_processes(processes.len() as u64);
    if processes.len() > 1 {
        let shown: Vec<String> = processes.iter().take(MAX_SHOWN).map(u64::to_string).collect();
        let more = if processes.len() > MAX_SHOWN { ", …" } else { "" };
        sink.note_loss(format!(
            "the text is of several processes ({}{more}), whose accesses cannot be told apart: all are taken for those \
             of one, so first touches and footprints are too few; record a file per process, with \
             --log-file=lackey.%p",
            shown.join(", ")
        ));
    }
    let Some((number, text)) = first_stranger else { return Ok(()) };
    if strangers > own_lines {
        return Err(input.corrupt(format!(
            "line {number}: {EXPECTED}, found {text:?}; of the lines {own_lines} are lackey's and {strangers} are not, \
             and with more of others than of lackey's a text is refused"
        )));
    }
    sink.note(match strangers {
        1 => format!("1 line that is not lackey's was left out, line {number}: {text:?}"),
        several => {
            format!("{several} lines that are not lackey's were left out, the first is line {number}: {text:?}")
        }
    });
    Ok(())
}

#[cold]
fn too_long(size_bytes: u64) -> Problem {
    format!(
        "an access of {size_bytes} bytes; at most {MAX_LINE_ACCESS_BYTES} are allowed, as no x86 instruction accesses more"
    )
    .into()
}

#[cfg(test)]
mod tests {
    use super::{super::lines::tests::check_usual, *};

    #[test]
    fn common_lines_parse_like_any_line() {
        let known = ["I  04001090,3", " L 1ffefffe50,8", " S 0,1", " M FFFFffffFFFFffff,832", "I  1,123456789"];
        let others = [
            "I  12,1234567890",
            " L 11112222333344445,8",
            " S 0,1\r",
            "==77== Lackey",
            "done L 12,8",
            " I 12,3",
            "I 12,3",
            " =  1,2",
        ];
        check_usual(usual, parse, &known, &others);
    }

    #[test]
    fn lines_are_parsed_or_refused() {
        let access = |kind, vaddr, size_bytes| Line::Access { kind, vaddr, size_bytes };
        assert_eq!(parse(b"I  04001090,3\n"), Line::Instruction { pc: 0x0400_1090, size_bytes: 3 });
        assert_eq!(parse(b" L 1ffefffe50,8"), access(AccessKind::Load, 0x1f_feff_fe50, 8));
        assert_eq!(parse(b" S 0,1\r\n"), access(AccessKind::Store, 0, 1));
        assert_eq!(parse(b" M FFFFffffFFFFffff,832\n"), access(AccessKind::Modify, u64::MAX, 832));
        for skip in ["", "\n", "  \n", "==77== Lackey, an example", "--77-- x", "**77** y"] {
            assert_eq!(parse(skip.as_bytes()), Line::Skip, "{skip:?}");
        }
        for wrong in [
            "I  ,3",
            "I  12",
            "I  12,",
            "I  0x12,3",
            "I  12,3x",
            "I  12,-3",
            " L 11112222333344445,8",
            " L 12,1234567890",
            " L 12,3,4",
        ] {
            assert_eq!(parse(wrong.as_bytes()), Line::Wrong, "{wrong:?}");
        }
        for stranger in ["I", "I  ", "I 12,3", " X 12,3", "12,3", "L12,3", "=77", "read 12,3", "I saw ,3"] {
            assert_eq!(parse(stranger.as_bytes()), Line::Stranger, "{stranger:?}");
        }
    }

    #[test]
    fn valgrind_s_lines_name_the_process() {
        for (line, named) in [("==21== Lackey", Some(21)), ("--7-- x", Some(7)), ("**9** y", Some(9)), ("==9", None)] {
            assert_eq!(process(line.as_bytes()), named, "{line:?}");
        }
        for none in ["", "=", "====", "== 21 ==", "==21-- x", "==x== y"] {
            assert_eq!(process(none.as_bytes()), None, "{none:?}");
        }
    }

    #[test]
    fn lines_behind_the_program_s_own_are_found() {
        let load = Line::Access { kind: AccessKind::Load, vaddr: 0x1f_feff_fe50, size_bytes: 8 };
        assert_eq!(parse(b"50 % done L 1ffefffe50,8\n"), load);
        assert_eq!(parse(b"  L 1ffefffe50,8"), load);
        assert_eq!(parse(b"I am here: I  04001090,3"), Line::Instruction { pc: 0x0400_1090, size_bytes: 3 });
    }

    #[test]
    fn text_is_recognised_by_its_first_own_line() {
        let recognised = |bytes: &[u8], whole| looks_like(Head { bytes, whole });
        assert!(recognised(b"==1== Lackey\n\nI  12,3\nrubbish", false));
        assert!(recognised(b"==1== Lackey\nthe program\nI  12,3\n", false));
        assert!(recognised(b"I  12,3", true));
        assert!(!recognised(b"I  12,3", false), "the line may be cut");
        assert!(!recognised(b"==1== Lackey\n", true));
        assert!(!recognised(b"rubbish\nI  12,3\n", false));
    }
}
