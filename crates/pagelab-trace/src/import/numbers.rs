//! Numbers in a text, eight digits at once.
//!
//! A word holds eight letters of the text, the first one in its lowest byte. Which bytes are digits is found for all of
//! them at once; those behind the first other letter are shifted out, which puts zeros before the number; and
//! neighbours are put together until one number is left. No step depends on how many digits there are, so that nothing
//! is mispredicted where this differs from line to line.

/// The lowest bit of each byte.
const ONES: u64 = 0x0101_0101_0101_0101;
/// The highest bit of each byte.
const HIGHS: u64 = 0x80 * ONES;

/// A number of 1 to 16 hexadecimal digits, without prefix, and what follows its last digit.
#[inline(always)]
pub(super) fn hexadecimal_at(text: &[u8]) -> Option<(u64, &[u8])> {
    let Some((first, behind)) = text.split_first_chunk() else {
        return short_hexadecimal_at(text);
    };
    let (high, len) = hexadecimal_digits(*first);
    if len < 8 {
        return (len > 0).then(|| (high, &text[len..]));
    }
    let Some(second) = behind.first_chunk() else {
        return short_hexadecimal_at(text);
    };
    let (low, len) = hexadecimal_digits(*second);
    let rest = &behind[len..];
    let too_long = len == 8 && rest.first().is_some_and(u8::is_ascii_hexdigit);
    (!too_long).then(|| (high << (4 * len) | low, rest))
}

/// A number of decimal digits that fits 64 bits, and what follows its last digit.
#[inline(always)]
pub(super) fn decimal_at(text: &[u8]) -> Option<(u64, &[u8])> {
    let Some((first, behind)) = text.split_first_chunk() else {
        return decimal_on(0, 0, text);
    };
    let (high, len) = decimal_digits(*first);
    if len < 8 {
        return (len > 0).then(|| (high, &text[len..]));
    }
    let Some((second, behind)) = behind.split_first_chunk() else {
        return decimal_on(high, 8, behind);
    };
    let (low, len) = decimal_digits(*second);
    let value = high * POWERS_OF_TEN[len] + low;
    if len < 8 { Some((value, &text[8 + len..])) } else { decimal_on(value, 16, behind) }
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

/// As [`hexadecimal_at`], digit by digit, where the text has fewer letters than a word.
#[cold]
fn short_hexadecimal_at(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().map_while(|&letter| char::from(letter).to_digit(16));
    let (value, len) = digits.fold((0, 0), |(value, len), digit| (value << 4 | u64::from(digit), len + 1));
    (len > 0).then(|| (value, &text[len..]))
}

/// Goes on with the number `value` of `len` digits, digit by digit.
#[cold]
fn decimal_on(mut value: u64, mut len: usize, text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().map_while(|&letter| char::from(letter).to_digit(10));
    let before = len;
    for digit in digits {
        // No number of 64 bits has more.
        if len == 20 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
        len += 1;
    }
    (len > 0).then(|| (value, &text[len - before..]))
}

/// The value of the hexadecimal digits that eight letters begin with, and how many they are.
#[inline(always)]
fn hexadecimal_digits(letters: [u8; 8]) -> (u64, usize) {
    let word = u64::from_le_bytes(letters);
    // Bytes of at most 0x7f, so that no sum reaches into the next one. Capitals become small.
    let (plain, small) = (word & !HIGHS, (word | (0x20 * ONES)) & !HIGHS);
    let decimal = (plain + 0x50 * ONES) & !(plain + 0x46 * ONES);
    let letter = (small + 0x1f * ONES) & !(small + 0x19 * ONES);
    let others = !((decimal | letter) & !word) & HIGHS;
    let len = others.trailing_zeros() / 8;
    // A letter has the bit of 0x40, and those of 1 to 6 below.
    let values = (word & (0x0f * ONES)) + 9 * (word >> 6 & ONES);
    let digits = values.unbounded_shl(64 - 8 * len);
    let twos = (digits << 4 | digits >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = (twos << 8 | twos >> 16) & 0x0000_ffff_0000_ffff;
    ((fours << 16 | fours >> 32) & 0xffff_ffff, len as usize)
}

/// 10^0 to 10^8.
const POWERS_OF_TEN: [u64; 9] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// The value of the decimal digits that eight letters begin with, and how many they are.
#[inline(always)]
fn decimal_digits(letters: [u8; 8]) -> (u64, usize) {
    // A digit becomes its value; a sum reaches into the next byte only from a byte that is none.
    let values = u64::from_le_bytes(letters) ^ (u64::from(b'0') * ONES);
    let others = (values.wrapping_add(0x76 * ONES) | values) & HIGHS;
    let len = others.trailing_zeros() / 8;
    let digits = values.unbounded_shl(64 - 8 * len);
    let pairs = digits.wrapping_mul(10 << 8 | 1) >> 8;
    let fours = (pairs & 0x00ff_00ff_00ff_00ff).wrapping_mul(100 << 16 | 1) >> 16;
    let eight = (fours & 0x0000_ffff_0000_ffff).wrapping_mul(10_000 << 32 | 1) >> 32;
    (eight, len as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_at_any_other_letter() {
        for digits in 1..=20 {
            let number = u64::MAX / 10u64.pow(20 - digits);
            let short = u64::MAX >> (64 - 4 * digits.min(16));
            for other in u8::MIN..=u8::MAX {
                for tail in ["", " 5", "1234567890123"] {
                    let rest = [&[other][..], tail.as_bytes()].concat();
                    if !other.is_ascii_digit() {
                        let text = [number.to_string().as_bytes(), &rest].concat();
                        assert_eq!(decimal_at(&text), Some((number, &rest[..])), "{text:?}");
                    }
                    if !other.is_ascii_hexdigit() {
                        for hexadecimal in [format!("{short:x}"), format!("{short:X}")] {
                            let text = [hexadecimal.as_bytes(), &rest].concat();
                            assert_eq!(hexadecimal_at(&text), Some((short, &rest[..])), "{text:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn every_digit_has_its_value_at_every_place() {
        for len in 1..=16 {
            for place in 0..len {
                for digit in 1..16u64 {
                    let number = digit << (4 * place);
                    let text = format!("{number:0len$x},");
                    assert_eq!(hexadecimal_at(text.as_bytes()), Some((number, &b","[..])), "{text}");
                    assert_eq!(hexadecimal_at(text.to_uppercase().as_bytes()), Some((number, &b","[..])), "{text}");
                    let number = digit % 10 * 10u64.pow(place as u32);
                    let text = format!("{number:0len$},");
                    assert_eq!(decimal_at(text.as_bytes()), Some((number, &b","[..])), "{text}");
                }
            }
        }
    }

    #[test]
    fn numbers_are_read_whole_or_not() {
        assert_eq!(hexadecimal_at(b"11112222333344445,3"), None, "a digit more than 64 bits have");
        assert_eq!(hexadecimal(b"FFFFffffFFFFffff"), Some(u64::MAX));
        assert_eq!(hexadecimal(b"0123456789abcdef"), Some(0x0123_4567_89ab_cdef));
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(decimal(b"00000000000000000007"), Some(7));
        for wrong in
            [&b""[..], b"0x1", b"g", b"11112222333344445", b"1111222233334444f 8", b" 1 2 3 4 5", b"12345678/1234567"]
        {
            assert_eq!(hexadecimal(wrong), None, "{wrong:?}");
        }
        for wrong in
            [&b""[..], b"-1", b"1a", b"18446744073709551616", b"000000000000000000001", b"99999999999999999999 1"]
        {
            assert_eq!(decimal(wrong), None, "{wrong:?}");
        }
    }
}
