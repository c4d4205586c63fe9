//! Text of Intel Pin's example tool `pinatrace`.
//!
//! ```text
//! 0x7f31c2a90103: W 0x7ffd5cd0a9f8                            ManualExamples
//! 0x7f31c2a90103: W     0x7ffd5cd0a9f8  8 0x7f31c2a90108      SimpleExamples: size and, with -values 1, the value
//! #eof
//! ```
//! One line an access: the instruction's address, whether it reads or writes, the address of the data; the tool of the
//! folder `SimpleExamples` adds a size and a value. Lines that begin with `#` are skipped. Prefetches look like reads.
//! Source: `source/tools/ManualExamples/pinatrace.cpp` and `source/tools/SimpleExamples/pinatrace.cpp` of Pin 3.
//!
//! Instructions that access nothing are not in the text, so each access counts for one. Threads and processes are not
//! told: Pin writes a file per process, and the threads of one write to it together.

use super::{
    Head, ImportOptions,
    files::only,
    input::Input,
    lines::each_line,
    numbers::{decimal_at, hexadecimal_at},
    sink::{Problem, Sink},
};
use crate::{AccessKind, TraceError};

/// The most that one access may have: XSAVE's area has 11,008 bytes (Intel SDM vol. 1, 13.5).
const MAX_LINE_ACCESS_BYTES: u64 = 16 << 10;
/// Lines by which a file is recognised.
const FIRST_LINES: usize = 100;

const EXPECTED: &str = "expected `IP: R ADDR` or `IP: W ADDR` with hexadecimal addresses, as pinatrace writes them";

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Skip,
    Access { pc: u64, kind: AccessKind, vaddr: u64, size_bytes: Option<u64> },
}

/// The line's meaning; none if it is malformed.
fn parse(line: &[u8]) -> Option<Line> {
    let line = line.trim_ascii();
    if line.is_empty() || line[0] == b'#' {
        return Some(Line::Skip);
    }
    let (pc, rest) = address_at(line)?;
    let (kind, rest) = kind_at(rest.strip_prefix(b":")?.trim_ascii_start())?;
    let (vaddr, rest) = address_at(rest.trim_ascii_start())?;
    let size = rest.trim_ascii_start();
    if size.is_empty() {
        return Some(Line::Access { pc, kind, vaddr, size_bytes: None });
    }
    if size.len() == rest.len() {
        return None;
    }
    let (size_bytes, value) = decimal_at(size)?;
    // The value is of no interest, but is one: hexadecimal, or bytes of which each is.
    let is_value = |letter: &u8| letter.is_ascii_hexdigit() || matches!(letter, b'x' | b'X' | b'_' | b' ' | b'\t');
    let ends = value.first().is_none_or(u8::is_ascii_whitespace);
    (ends && value.iter().all(is_value)).then_some(Line::Access { pc, kind, vaddr, size_bytes: Some(size_bytes) })
}

/// A line as the tool of `ManualExamples` writes it, at the begin of a text, with its end, and its length.
#[inline]
fn usual(text: &[u8]) -> Option<(Option<Line>, usize)> {
    let (pc, rest) = hexadecimal_at(text.strip_prefix(b"0x")?)?;
    let (kind, rest) = match rest.split_first_chunk()? {
        (b": R 0x", rest) => (AccessKind::Load, rest),
        (b": W 0x", rest) => (AccessKind::Store, rest),
        _ => return None,
    };
    let (vaddr, rest) = hexadecimal_at(rest)?;
    let rest = rest.strip_prefix(b"\n")?;
    Some((Some(Line::Access { pc, kind, vaddr, size_bytes: None }), text.len() - rest.len()))
}

/// A number with or without `0x`: some systems print pointers without it. `(nil)` is 0.
fn address_at(text: &[u8]) -> Option<(u64, &[u8])> {
    match text {
        [b'0', b'x' | b'X', digits @ ..] => hexadecimal_at(digits),
        [b'(', b'n', b'i', b'l', b')', rest @ ..] => Some((0, rest)),
        digits => hexadecimal_at(digits),
    }
}

fn kind_at(text: &[u8]) -> Option<(AccessKind, &[u8])> {
    match text {
        [b'R', rest @ ..] if rest.first().is_some_and(u8::is_ascii_whitespace) => Some((AccessKind::Load, rest)),
        [b'W', rest @ ..] if rest.first().is_some_and(u8::is_ascii_whitespace) => Some((AccessKind::Store, rest)),
        _ => None,
    }
}

/// True if the first lines are accesses.
pub(super) fn looks_like(head: Head<'_>) -> bool {
    let lines = head.bytes.split_inclusive(|&b| b == b'\n').filter(|line| head.whole || line.ends_with(b"\n"));
    let mut first = lines.take(FIRST_LINES).map(parse).filter(|line| *line != Some(Line::Skip)).peekable();
    first.peek().is_some() && first.all(|line| line.is_some())
}

/// Feeds the data to `sink`.
pub(super) fn read(inputs: &mut [Input], sink: &mut Sink, options: &ImportOptions) -> Result<(), TraceError> {
    let input = only(inputs)?;
    sink.enter(0, 1).map_err(|problem| problem.at(input, str::to_owned))?;
    let assumed_bytes = u64::from(options.assumed_size_bytes);
    let mut assumed = 0_u64;
    each_line(input, sink, usual, parse, |meaning, _, _, sink| {
        let line = meaning.ok_or_else(|| Problem::from(EXPECTED.to_owned()))?;
        let Line::Access { pc, kind, vaddr, size_bytes } = line else { return Ok(()) };
        if let Some(size_bytes) = size_bytes.filter(|&bytes| bytes > MAX_LINE_ACCESS_BYTES) {
            return Err(format!("an access of {size_bytes} bytes; at most {MAX_LINE_ACCESS_BYTES} are allowed").into());
        }
        if vaddr == 0 {
            sink.skip_record();
            return Ok(());
        }
        sink.instruction(pc, 1)?;
        match size_bytes {
            Some(0) => sink.skip_empty(),
            Some(bytes) => return sink.access(kind, vaddr, bytes),
            None => {
                assumed += 1;
                return sink.access(kind, vaddr, assumed_bytes);
            }
        }
        Ok(())
    })?;
    if assumed > 0 {
        sink.note(format!(
            "the text does not tell the sizes of accesses: every one is taken for {assumed_bytes} bytes"
        ));
    }
    Ok(())
}

/// What readers of results should know.
pub(super) fn notes(_: &ImportOptions) -> Vec<String> {
    vec![
        "pinatrace does not tell instructions: each access counts for one".to_owned(),
        "pinatrace does not tell threads: all accesses are taken for those of one".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::{super::lines::tests::check_usual, *};

    fn access(pc: u64, kind: AccessKind, vaddr: u64, size_bytes: Option<u64>) -> Option<Line> {
        Some(Line::Access { pc, kind, vaddr, size_bytes })
    }

    #[test]
    fn common_lines_parse_like_any_line() {
        let known = ["0x7f31c2a90103: W 0x7ffd5cd0a9f8", "0x401000: R 0x601000", "0x0: R 0xFFFFffffFFFFffff"];
        let others = [
            "0x401000: R     0x601000  8 0x11",
            "401000: W 601000",
            "# 0x1: R 0x2",
            "0x401000:R 0x1",
            "0x401000: W (nil)",
        ];
        check_usual(usual, parse, &known, &others);
    }

    #[test]
    fn lines_are_parsed_or_refused() {
        let (load, store) = (AccessKind::Load, AccessKind::Store);
        assert_eq!(
            parse(b"0x7f31c2a90103: W 0x7ffd5cd0a9f8\r"),
            access(0x7f31_c2a9_0103, store, 0x7ffd_5cd0_a9f8, None)
        );
        assert_eq!(parse(b"0x401000: R       0x601000  8 0x11"), access(0x40_1000, load, 0x60_1000, Some(8)));
        assert_eq!(parse(b"0x401000: W 0x601000 32 0x11_0x22"), access(0x40_1000, store, 0x60_1000, Some(32)));
        assert_eq!(parse(b"0040CF31: R 0012FF88"), access(0x40_cf31, load, 0x12_ff88, None));
        assert_eq!(parse(b"0x401000: R (nil)"), access(0x40_1000, load, 0, None));
        for skip in ["", "#eof", "# Memory Access Trace Generated By Pin"] {
            assert_eq!(parse(skip.as_bytes()), Some(Line::Skip), "{skip:?}");
        }
        for wrong in [
            "0x401000",
            "0x401000: R",
            "0x401000: X 0x1",
            "0x401000: R0x1",
            "0x1: R 0x2 8z",
            "0x1: R 0x2 x",
            "buy: R 1",
        ] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong:?}");
        }
    }

    #[test]
    fn text_is_recognised_by_its_first_lines() {
        let recognised = |bytes: &[u8]| looks_like(Head { bytes, whole: true });
        assert!(
            recognised(b"#\n# Memory Access Trace Generated By Pin\n0x1: R 0x2 8\n#eof\n") && recognised(b"0x1: W 0x2")
        );
        assert!(
            !recognised(b"#eof\n")
                && !recognised(b"0x1: W 0x2\nrubbish\n")
                && !recognised(b"0x401000\n0x401003\n#eof\n")
        );
    }
}
