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
//! blank ones are skipped. So are accesses of 0 bytes, which lackey writes now and then; they are counted. Source: `lackey/lk_main.c` of Valgrind 3.19.

use std::ops::ControlFlow;

use super::{Progress, input::Input, sink::Sink};
use crate::{AccessKind, TraceError, format::MAX_ACCESS_BYTES};

/// A longer line is no line of lackey's; Valgrind's own lines may carry file names.
const MAX_LINE_BYTES: u64 = 8192;
/// Lines between two looks at the progress.
const LINES_PER_REPORT: u64 = 1 << 14;

/// The most that one access may have. x86 has none larger than XSAVE's and XRSTOR's area, 11,008 bytes with all
/// components (Intel SDM vol. 1, 13.5); more is a damaged number.
const MAX_LINE_ACCESS_BYTES: u64 = 16 << 10;

const EXPECTED: &str = "`I  ADDR,SIZE`, ` L ADDR,SIZE`, ` S ADDR,SIZE` or ` M ADDR,SIZE` \
                        (hexadecimal address without 0x, decimal size)";

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// Nothing about the program.
    Skip,
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

/// The line's meaning; none if it is malformed.
fn parse(line: &[u8]) -> Option<Line> {
    let line = line.trim_ascii_end();
    let (op, rest) = match line {
        [] | [b'=', b'=', ..] | [b'-', b'-', ..] | [b'*', b'*', ..] => return Some(Line::Skip),
        [op, b' ', rest @ ..] | [b' ', op, b' ', rest @ ..] => (*op, rest.trim_ascii_start()),
        _ => return None,
    };
    let comma = rest.iter().position(|&b| b == b',')?;
    let (address, size_bytes) = (hexadecimal(&rest[..comma])?, decimal(&rest[comma + 1..])?);
    let kind = match op {
        b'I' => return Some(Line::Instruction { pc: address, size_bytes }),
        b'L' => AccessKind::Load,
        b'S' => AccessKind::Store,
        b'M' => AccessKind::Modify,
        _ => return None,
    };
    Some(Line::Access { kind, vaddr: address, size_bytes })
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0, |value, &b| Some(value << 4 | u64::from((b as char).to_digit(16)?)))
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 9 {
        return None;
    }
    digits.iter().try_fold(0, |value, &b| Some(value * 10 + u64::from((b as char).to_digit(10)?)))
}

/// True if the first line of `head` that is not to be skipped is one of lackey's; `whole` if no data follows.
pub(super) fn looks_like(head: &[u8], whole: bool) -> bool {
    let mut lines = head.split_inclusive(|&b| b == b'\n');
    lines
        .find_map(|line| match parse(line) {
            Some(Line::Skip) => None,
            Some(_) => Some(whole || line.ends_with(b"\n")),
            None => Some(false),
        })
        .unwrap_or(false)
}

/// Feeds the data to `sink`.
pub(super) fn read(
    input: &mut Input,
    sink: &mut Sink,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<(), TraceError> {
    let mut line = Vec::new();
    let mut number = 0u64;
    while !sink.is_full() {
        if number.is_multiple_of(LINES_PER_REPORT) {
            sink.report(input, progress)?;
        }
        line.clear();
        if input.line(&mut line, MAX_LINE_BYTES)? == 0 {
            break;
        }
        number += 1;
        let taken = match parse(&line) {
            Some(Line::Skip) => Ok(()),
            Some(Line::Instruction { pc, size_bytes }) => match u16::try_from(size_bytes) {
                Ok(size_bytes) if size_bytes <= MAX_ACCESS_BYTES => sink.instruction(pc, size_bytes)?,
                _ => Err(format!("an instruction of {size_bytes} bytes")),
            },
            Some(Line::Access { size_bytes: 0, .. }) => {
                sink.skip_empty();
                Ok(())
            }
            Some(Line::Access { size_bytes, .. }) if size_bytes > MAX_LINE_ACCESS_BYTES => Err(format!(
                "an access of {size_bytes} bytes; at most {MAX_LINE_ACCESS_BYTES} are allowed, as no x86 instruction \
                 accesses more"
            )),
            Some(Line::Access { kind, vaddr, size_bytes }) => sink.access(kind, vaddr, size_bytes)?,
            None => Err(format!("expected {EXPECTED}")),
        };
        if let Err(what) = taken {
            let shown = String::from_utf8_lossy(&line[..line.len().min(80)]).trim_end().to_owned();
            return Err(input.corrupt(format!("line {number}: {what}, found {shown:?}")));
        }
    }
    sink.report(input, progress)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed_or_refused() {
        let access = |kind, vaddr, size_bytes| Some(Line::Access { kind, vaddr, size_bytes });
        assert_eq!(parse(b"I  04001090,3\n"), Some(Line::Instruction { pc: 0x0400_1090, size_bytes: 3 }));
        assert_eq!(parse(b" L 1ffefffe50,8"), access(AccessKind::Load, 0x1f_feff_fe50, 8));
        assert_eq!(parse(b" S 0,1\r\n"), access(AccessKind::Store, 0, 1));
        assert_eq!(parse(b" M FFFFffffFFFFffff,832\n"), access(AccessKind::Modify, u64::MAX, 832));
        for skip in ["", "\n", "  \n", "==77== Lackey, an example", "--77-- x", "**77** y"] {
            assert_eq!(parse(skip.as_bytes()), Some(Line::Skip), "{skip:?}");
        }
        for wrong in [
            "I",
            "I  ",
            "I  ,3",
            "I  12",
            "I  12,",
            "I  0x12,3",
            "I  12,3x",
            "I  12,-3",
            " X 12,3",
            "  L 12,3",
            "12,3",
            " L 11112222333344445,8",
            " L 12,1234567890",
            "L12,3",
            " L 12,3,4",
            "=77",
        ] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong:?}");
        }
    }

    #[test]
    fn text_is_recognised_by_its_first_own_line() {
        assert!(looks_like(b"==1== Lackey\n\nI  12,3\nrubbish", false));
        assert!(looks_like(b"I  12,3", true));
        assert!(!looks_like(b"I  12,3", false), "the line may be cut");
        assert!(!looks_like(b"==1== Lackey\n", true));
        assert!(!looks_like(b"rubbish\nI  12,3\n", false));
    }
}
