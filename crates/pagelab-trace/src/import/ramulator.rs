//! Ramulator's traces: one line an access or two, addresses in decimal, or in hexadecimal behind `0x`.
//!
//! ```text
//! LD 0x7ffe3d40          loads and stores (LoadStoreTrace of Ramulator 2)
//! ST 140731903
//! 0x12345680 R           reads and writes (Ramulator 1)
//! R 0x12345680           the same, in the order of Ramulator 2
//! 12 20734016 20850816   instructions before a load, its address and, for some, that of a store (SimpleO3; Ramulator 1's CPU)
//! ```
//! A file is of one of these kinds. Blank lines and lines that begin with `#` are skipped. Ramulator 2 also writes
//! `R 0,1,2,3,4,5`: places in DRAM, which have no addresses and are refused. In the last kind, a store is a write-back
//! that no instruction makes.
//!
//! Nothing tells sizes, instruction pointers or, but in the last kind, instructions: each access counts for one.
//! Source: `loadstore_trace.cpp`, `readwrite_trace.cpp` and `simpleO3/trace.cpp` of Ramulator 2, `Processor.cpp` of
//! Ramulator 1.

use super::{
    Head, ImportOptions,
    files::only,
    input::Input,
    lines::each_line,
    numbers::{decimal_at, hexadecimal_at},
    sink::{Problem, Sink},
};
use crate::{AccessKind, TraceError};

/// The kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    LoadStore,
    ReadWrite,
    Instructions,
}

/// Lines by which a file is recognised.
const FIRST_LINES: usize = 100;
/// Labels of Dinero IV: 0 read, 1 write, 2 instruction fetch, 3 escape, 4 flush.
const MAX_DINERO_LABEL: u64 = 4;

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Skip,
    Access {
        shape: Shape,
        kind: AccessKind,
        vaddr: u64,
    },
    Instructions {
        before: u64,
        load: u64,
        store: Option<u64>,
    },
    /// A place in DRAM.
    Place,
}

impl Line {
    fn shape(self) -> Option<Shape> {
        match self {
            Self::Skip => None,
            Self::Access { shape, .. } => Some(shape),
            Self::Instructions { .. } => Some(Shape::Instructions),
            Self::Place => Some(Shape::ReadWrite),
        }
    }
}

const EXPECTED: &str = "expected `LD ADDR` or `ST ADDR`, `ADDR R` or `ADDR W`, or `INSTRUCTIONS LOAD_ADDR [STORE_ADDR]`; ADDR is \
     decimal, or hexadecimal with 0x";

/// The line's meaning; none if it is malformed.
#[inline]
fn parse(line: &[u8]) -> Option<Line> {
    let line = line.trim_ascii_start();
    let access = |shape, kind, text| {
        let (vaddr, rest) = number_at(text)?;
        rest.trim_ascii_start().is_empty().then_some(Line::Access { shape, kind, vaddr })
    };
    match line {
        [] | [b'#', ..] => Some(Line::Skip),
        [b'L', b'D', b' ' | b'\t', rest @ ..] => access(Shape::LoadStore, AccessKind::Load, rest),
        [b'S', b'T', b' ' | b'\t', rest @ ..] => access(Shape::LoadStore, AccessKind::Store, rest),
        [b'R' | b'W', b' ' | b'\t', rest @ ..] if rest.contains(&b',') => Some(Line::Place),
        [b'R', b' ' | b'\t', rest @ ..] => access(Shape::ReadWrite, AccessKind::Load, rest),
        [b'W', b' ' | b'\t', rest @ ..] => access(Shape::ReadWrite, AccessKind::Store, rest),
        _ => numbers(line),
    }
}

/// A load or store, or instructions, at the begin of a text, with its end, and its length.
#[inline]
fn usual(text: &[u8]) -> Option<(Option<Line>, usize)> {
    let access = |kind, text| {
        let (vaddr, rest) = number_at_once(text)?;
        Some((Line::Access { shape: Shape::LoadStore, kind, vaddr }, rest))
    };
    let (line, rest) = match text {
        [b'L', b'D', b' ', rest @ ..] => access(AccessKind::Load, rest)?,
        [b'S', b'T', b' ', rest @ ..] => access(AccessKind::Store, rest)?,
        [b'0'..=b'9', ..] => {
            let (before, rest) = decimal_at(text)?;
            let (load, rest) = number_at_once(rest.strip_prefix(b" ")?)?;
            let (store, rest) = match rest {
                [b' ', rest @ ..] => number_at_once(rest).map(|(store, rest)| (Some(store), rest))?,
                _ => (None, rest),
            };
            (Line::Instructions { before, load, store }, rest)
        }
        _ => return None,
    };
    let rest = rest.strip_prefix(b"\n")?;
    Some((Some(line), text.len() - rest.len()))
}

/// A number, and what is behind it.
#[inline(always)]
fn number_at_once(text: &[u8]) -> Option<(u64, &[u8])> {
    match text {
        [b'0', b'x' | b'X', digits @ ..] => hexadecimal_at(digits),
        digits => decimal_at(digits),
    }
}

/// A line that begins with a number.
#[inline]
fn numbers(line: &[u8]) -> Option<Line> {
    let (first, behind) = number_at(line)?;
    let behind = behind.trim_ascii_start();
    let read_write = |kind| Some(Line::Access { shape: Shape::ReadWrite, kind, vaddr: first });
    match behind.trim_ascii_end() {
        b"R" => return read_write(AccessKind::Load),
        b"W" => return read_write(AccessKind::Store),
        _ => {}
    }
    // Instructions are counted in decimal.
    let before = decimal_at(line).filter(|(_, rest)| !rest.starts_with(b"x") && !rest.starts_with(b"X"))?.0;
    let (load, rest) = number_at(behind)?;
    let rest = rest.trim_ascii_start();
    if rest.is_empty() {
        return Some(Line::Instructions { before, load, store: None });
    }
    let (store, rest) = number_at(rest)?;
    rest.trim_ascii_start().is_empty().then_some(Line::Instructions { before, load, store: Some(store) })
}

/// A number behind blanks, and what is behind it: nothing, or something from a blank on.
#[inline]
fn number_at(text: &[u8]) -> Option<(u64, &[u8])> {
    number_at_once(text.trim_ascii_start()).filter(|(_, rest)| rest.first().is_none_or(u8::is_ascii_whitespace))
}

/// True if the first lines are of one of the kinds.
pub(super) fn looks_like(head: Head<'_>) -> bool {
    let mut shapes = first_lines(&head).map(|line| parse(line).map(Line::shape)).filter(|shape| *shape != Some(None));
    let first = shapes.next().flatten();
    first.is_some() && shapes.all(|shape| shape == first)
}

fn first_lines<'a>(head: &Head<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    let whole = head.whole;
    let lines = head.bytes.split_inclusive(|&b| b == b'\n').filter(move |line| whole || line.ends_with(b"\n"));
    lines.take(FIRST_LINES)
}

/// Why lines of numbers are not certain to be Ramulator's; none if they are.
///
/// Two decimal numbers, the first one always small, may be a label and an address of Dinero IV (`0 read, 1 write, 2
/// fetch`), whose addresses are hexadecimal without a prefix.
pub(super) fn doubt(head: Head<'_>) -> Option<String> {
    let mut numbers = first_lines(&head).filter(|line| !matches!(parse(line), Some(Line::Skip))).peekable();
    numbers.peek()?;
    let as_dinero = |line: &[u8]| match parse(line) {
        Some(Line::Instructions { before, store: None, .. }) => {
            before <= MAX_DINERO_LABEL && !line.iter().any(|letter| matches!(letter, b'x' | b'X'))
        }
        _ => false,
    };
    numbers.all(as_dinero).then(|| {
        "lines of two numbers, which may be Ramulator's (instructions, decimal address) or Dinero's (label, hexadecimal \
         address); if they are Ramulator's, give --format ramulator"
            .to_owned()
    })
}

/// Feeds the data to `sink`.
pub(super) fn read(inputs: &mut [Input], sink: &mut Sink, options: &ImportOptions) -> Result<(), TraceError> {
    let input = only(inputs)?;
    sink.enter(0, 1).map_err(|problem| problem.at(input, str::to_owned))?;
    let size_bytes = u64::from(options.assumed_size_bytes);
    let mut of_file = None;
    each_line(input, sink, usual, parse, |meaning, _, _, sink| {
        let line = meaning.ok_or_else(|| Problem::from(EXPECTED.to_owned()))?;
        if let Some(shape) = line.shape()
            && *of_file.get_or_insert(shape) != shape
        {
            return Err("a line of another kind than those before".to_owned().into());
        }
        match line {
            Line::Skip => Ok(()),
            Line::Place => Err("a place in DRAM; only traces of addresses can be imported".to_owned().into()),
            Line::Access { kind, vaddr, .. } => {
                sink.count(1);
                sink.access(kind, vaddr, size_bytes)
            }
            Line::Instructions { before, load, store } => {
                sink.count(before.saturating_add(1));
                sink.access(AccessKind::Load, load, size_bytes)?;
                store.map_or(Ok(()), |store| sink.access(AccessKind::Store, store, size_bytes))
            }
        }
    })
}

/// What readers of results should know.
pub(super) fn notes(options: &ImportOptions) -> Vec<String> {
    let size = options.assumed_size_bytes;
    vec![
        format!("Ramulator does not tell the sizes of accesses: every one is taken for {size} bytes"),
        "Ramulator's traces have no instruction pointers, and their addresses may be physical".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::{super::lines::tests::check_usual, *};

    #[test]
    fn common_lines_parse_like_any_line() {
        let known = [
            "LD 0x7ffe3D40",
            "ST 140731903",
            "3 20734016",
            "0 16 0x20",
            "12 20734016 20850816",
            "0 18446744073709551615",
        ];
        let others =
            ["W 0X10", "0x12345680 R", "R 0,1,2", "ST\t4096", "1 2 3 4", "0x1 2", "0 18446744073709551616", "# 1 2"];
        check_usual(usual, parse, &known, &others);
    }

    #[test]
    fn lines_are_parsed_or_refused() {
        let access = |shape, kind, vaddr| Some(Line::Access { shape, kind, vaddr });
        let (load_store, read_write) = (Shape::LoadStore, Shape::ReadWrite);
        assert_eq!(parse(b"LD 0x7ffe3D40"), access(load_store, AccessKind::Load, 0x7ffe_3d40));
        assert_eq!(parse(b" ST\t4096 \r"), access(load_store, AccessKind::Store, 4096));
        assert_eq!(parse(b"0x12345680 R"), access(read_write, AccessKind::Load, 0x1234_5680));
        assert_eq!(parse(b"W 0X10"), access(read_write, AccessKind::Store, 16));
        assert_eq!(parse(b"3 20734016"), Some(Line::Instructions { before: 3, load: 20_734_016, store: None }));
        assert_eq!(parse(b"0 16 0x20"), Some(Line::Instructions { before: 0, load: 16, store: Some(32) }));
        assert_eq!(parse(b"R 0,1,2,3,4,5"), Some(Line::Place));
        for skip in ["", "  ", "# made by hand", "\r"] {
            assert_eq!(parse(skip.as_bytes()), Some(Line::Skip), "{skip:?}");
        }
        for wrong in ["LD", "LD x", "LD 1 2", "ld 1", "0x1 2", "1", "1 2 3 4", "1 0xg", "R", "1 R 2", "-1 5", "LD -1"] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong:?}");
        }
    }

    #[test]
    fn lines_that_may_be_dinero_s_are_in_doubt() {
        let doubted = |bytes: &[u8]| doubt(Head { bytes, whole: true }).is_some();
        assert!(doubted(b"2 408000\n0 10019\n1 7008\n") && doubted(b"0 400000"));
        assert!(!doubted(b"3 20734016\n12 16384\n") && !doubted(b"2 20734016\n0 16384 20480\n"));
        assert!(!doubted(b"2 0x1000\n") && !doubted(b"LD 1\n") && !doubted(b"# nothing\n") && !doubted(b""));
    }

    #[test]
    fn a_file_of_one_kind_is_recognised() {
        let recognised = |bytes: &[u8]| looks_like(Head { bytes, whole: true });
        assert!(
            recognised(b"# traced\n\nLD 1\nST 2\n") && recognised(b"1 2 3\n4 5\n") && recognised(b"0x10 R\n0x20 W")
        );
        assert!(
            !recognised(b"LD 1\n1 2 3\n")
                && !recognised(b"# nothing\n")
                && !recognised(b"")
                && !recognised(b"LD 1\nrubbish\n")
        );
    }
}
