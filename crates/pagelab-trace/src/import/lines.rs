//! Lines of a text.

use super::{input::Input, sink::Problem, sink::Sink};
use crate::TraceError;

/// A longer line is cut into pieces, none of which a format knows.
pub(super) const MAX_LINE_BYTES: usize = 8192;
/// Bytes of a line that an error shows.
const SHOWN_BYTES: usize = 80;

/// Feeds the meaning of every line to `take`, with the line, its end not included, and its number, until `sink` has
/// enough. A problem is told with the line's number and text.
///
/// `parse` is given a whole line. `usual` is asked before: it knows lines in the form that the format's tool writes
/// them in, at the beginning of a text, and how long they are with their end. It saves looking for the end of the line,
/// and reads numbers faster, as the text goes on behind them. What both know means the same.
pub(super) fn each_line<L>(
    input: &mut Input,
    sink: &mut Sink,
    usual: impl Fn(&[u8]) -> Option<(L, usize)>,
    parse: impl Fn(&[u8]) -> L,
    mut take: impl FnMut(L, &[u8], u64, &mut Sink) -> Result<(), Problem>,
) -> Result<(), TraceError> {
    let mut number = 0;
    loop {
        let ahead = input.ahead(MAX_LINE_BYTES)?;
        let mut done = 0;
        while done < ahead.len() {
            let left = &ahead[done..];
            // Two calls, so that the meaning of a usual line stays in registers.
            let (line, taken) = if let Some((meaning, len)) = usual(left) {
                if !sink.next_record()? {
                    return Ok(());
                }
                number += 1;
                done += len;
                let line = &left[..len - 1];
                (line, take(meaning, line, number, sink))
            } else {
                let Some(len) = line_bytes(left, done == 0) else { break };
                if !sink.next_record()? {
                    return Ok(());
                }
                number += 1;
                done += len;
                let line = left[..len].strip_suffix(b"\n").unwrap_or(&left[..len]);
                (line, take(parse(line), line, number, sink))
            };
            if let Err(problem) = taken {
                let shown = shown(line);
                return Err(problem.at(input, |what| format!("line {number}: {what}, found {shown:?}")));
            }
        }
        if done == 0 {
            return Ok(());
        }
        input.consume(done);
    }
}

/// Bytes of the first line of a text, its end included. Only a last line, or one that is cut, has no end: none if more
/// of it is to be read, which it is not if it is `alone`.
fn line_bytes(text: &[u8], alone: bool) -> Option<usize> {
    let within = &text[..text.len().min(MAX_LINE_BYTES)];
    match memchr::memchr(b'\n', within) {
        Some(len) => Some(len + 1),
        None => (alone || text.len() >= MAX_LINE_BYTES).then_some(within.len()),
    }
}

/// The begin of a line, for messages.
pub(super) fn shown(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(SHOWN_BYTES)]).trim_end().to_owned()
}

/// What the formats' own tests share.
#[cfg(test)]
pub(super) mod tests {
    use std::fmt::Debug;

    use crate::{case_seed, cases};

    use crate::rng::Rng;

    /// `usual` knows each of the `known` lines, and whatever it knows is what `parse` makes of the line alone: of
    /// these, of the `others`, and of all of them with random changes, before every kind of text.
    pub(in crate::import) fn check_usual<L: Debug + PartialEq>(
        usual: impl Fn(&[u8]) -> Option<(L, usize)>,
        parse: impl Fn(&[u8]) -> L,
        known: &[&str],
        others: &[&str],
    ) {
        let is_same = |line: &[u8], tail: &[u8]| {
            let text = [line, b"\n", tail].concat();
            let found = usual(&text);
            if let Some((meaning, len)) = &found {
                let shown = String::from_utf8_lossy(line);
                assert_eq!((meaning, *len), (&parse(line), line.len() + 1), "{shown:?}");
            }
            assert_eq!(usual(line), None, "a line without its end");
            found.is_some()
        };
        for line in known {
            for tail in [&b""[..], b"\n", b"0", b" 12345678 12345678 12345678"] {
                assert!(is_same(line.as_bytes(), tail), "{line:?} before {tail:?}");
            }
        }
        // What the formats' lines are made of.
        let letters = b"0123456789abcdefXxILSMDTRW ,.:/[]#\t\r";
        let lines = [known, others].concat();
        let mut draws = Rng::new(case_seed(1), "changes of lines");
        let mut found = 0;
        for _ in 0..cases(50_000u32) {
            let mut line = lines[draws.below(lines.len() as u64) as usize].as_bytes().to_vec();
            for _ in 0..=draws.below(2) {
                let letter = match draws.below(4) {
                    0 => draws.next_u64() as u8,
                    _ => letters[draws.below(letters.len() as u64) as usize],
                };
                let at = draws.below(line.len() as u64 + 1) as usize;
                match draws.below(3) {
                    0 if at < line.len() => drop(line.remove(at)),
                    1 if at < line.len() => line[at] = letter,
                    _ => line.insert(at, letter),
                }
            }
            line.retain(|&letter| letter != b'\n');
            found += u32::from(is_same(&line, b"7 0x7 R\n"));
        }
        assert!(found > cases(2_000u32), "only {found} of the changed lines are usual ones");
    }
}
