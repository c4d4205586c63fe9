//! Lines of a text, and the numbers in them.

use super::{input::Input, sink::Problem, sink::Sink};
use crate::TraceError;

/// A longer line is cut into pieces, none of which a format knows.
const MAX_LINE_BYTES: usize = 8192;
/// Bytes of a line that an error shows.
const SHOWN_BYTES: usize = 80;

/// Feeds every line without its end to `take`, until `sink` has enough. A problem is told with the line's number and text.
pub(super) fn each_line(
    input: &mut Input,
    sink: &mut Sink,
    mut take: impl FnMut(&[u8], u64, &mut Sink) -> Result<(), Problem>,
) -> Result<(), TraceError> {
    let mut number = 0;
    loop {
        let ahead = input.ahead(MAX_LINE_BYTES)?;
        let mut done = 0;
        // Only a last line, or one that is cut, has no end within what is ahead.
        while done < ahead.len() {
            let left = &ahead[done..];
            let len = match memchr::memchr(b'\n', &left[..left.len().min(MAX_LINE_BYTES)]) {
                Some(len) => len + 1,
                None if done == 0 || left.len() >= MAX_LINE_BYTES => left.len().min(MAX_LINE_BYTES),
                None => break,
            };
            if !sink.next_record()? {
                return Ok(());
            }
            number += 1;
            let line = &left[..len];
            if let Err(problem) = take(line.strip_suffix(b"\n").unwrap_or(line), number, sink) {
                let shown = shown(line);
                return Err(problem.at(input, |what| format!("line {number}: {what}, found {shown:?}")));
            }
            done += len;
        }
        if done == 0 {
            return Ok(());
        }
        input.consume(done);
    }
}

/// The begin of a line, for messages.
pub(super) fn shown(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(SHOWN_BYTES)]).trim_end().to_owned()
}

/// Digits by their letters; others have bits above the fourth.
const DIGITS: [u8; 256] = {
    let mut table = [0xff; 256];
    let mut value = 0;
    while value < 16 {
        let letters = if value < 10 { [b'0' + value; 2] } else { [b'a' + value - 10, b'A' + value - 10] };
        table[letters[0] as usize] = value;
        table[letters[1] as usize] = value;
        value += 1;
    }
    table
};

/// A number of 1 to 16 hexadecimal digits, without prefix, and what follows its last digit.
#[inline]
pub(super) fn hexadecimal_at(text: &[u8]) -> Option<(u64, &[u8])> {
    let (mut value, mut len) = (0, 0);
    for &byte in text {
        let digit = DIGITS[usize::from(byte)];
        if digit > 15 {
            break;
        }
        value = value << 4 | u64::from(digit);
        len += 1;
    }
    (1..=16).contains(&len).then(|| (value, &text[len..]))
}

/// A number of decimal digits that fits 64 bits, and what follows its last digit.
#[inline]
pub(super) fn decimal_at(text: &[u8]) -> Option<(u64, &[u8])> {
    let (mut value, mut len) = (0u64, 0);
    // Two times eight digits fit.
    while len < 16
        && let Some(eight) = text[len..].first_chunk().and_then(eight_digits)
    {
        value = value * 100_000_000 + eight;
        len += 8;
    }
    for &byte in &text[len..] {
        let digit = DIGITS[usize::from(byte)];
        if digit > 9 {
            break;
        }
        // Up to 19 digits fit.
        value = if len < 19 { value * 10 + u64::from(digit) } else { next_digit(value, digit, len)? };
        len += 1;
    }
    (len > 0).then(|| (value, &text[len..]))
}

/// Eight decimal digits at once: pairs, then fours, then all of them are put together within the word.
#[inline]
fn eight_digits(text: &[u8; 8]) -> Option<u64> {
    let word = u64::from_le_bytes(*text);
    let high = word & 0xf0f0_f0f0_f0f0_f0f0 | (word.wrapping_add(0x0606_0606_0606_0606) & 0xf0f0_f0f0_f0f0_f0f0) >> 4;
    if high != 0x3333_3333_3333_3333 {
        return None;
    }
    let pairs = (word & 0x0f0f_0f0f_0f0f_0f0f).wrapping_mul(10 << 8 | 1) >> 8;
    let fours = (pairs & 0x00ff_00ff_00ff_00ff).wrapping_mul(100 << 16 | 1) >> 16;
    Some((fours & 0x0000_ffff_0000_ffff).wrapping_mul(10_000 << 32 | 1) >> 32)
}

#[cold]
fn next_digit(value: u64, digit: u8, len: usize) -> Option<u64> {
    if len > 19 { None } else { value.checked_mul(10)?.checked_add(u64::from(digit)) }
}

/// A number of 1 to 16 hexadecimal digits, without prefix, and nothing else.
#[inline]
pub(super) fn hexadecimal(text: &[u8]) -> Option<u64> {
    hexadecimal_at(text).filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
}

/// A number of decimal digits that fits 64 bits, and nothing else.
#[inline]
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    decimal_at(text).filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_whole_or_not() {
        assert_eq!(hexadecimal(b"FFFFffffFFFFffff"), Some(u64::MAX));
        assert_eq!(hexadecimal(b"0123456789abcdef"), Some(0x0123_4567_89ab_cdef));
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        for digits in 1..=19 {
            let number = 9_876_543_210_123_456_789 / 10u64.pow(19 - digits);
            assert_eq!(decimal_at(format!("{number} 5").as_bytes()), Some((number, &b" 5"[..])));
            for other in [b'/', b':', 0xb5, b'a'] {
                let mut text = number.to_string().into_bytes();
                text.push(other);
                assert_eq!(decimal_at(&text), Some((number, &[other][..])));
            }
        }
        for wrong in [&b""[..], b"0x1", b"g", b"11112222333344445"] {
            assert_eq!(hexadecimal(wrong), None, "{wrong:?}");
        }
        for wrong in [&b""[..], b"-1", b"1a", b"18446744073709551616", b"000000000000000000001"] {
            assert_eq!(decimal(wrong), None, "{wrong:?}");
        }
    }
}
