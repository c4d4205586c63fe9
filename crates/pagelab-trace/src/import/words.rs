//! Words of a line and the blanks between them, eight letters at once.

/// The lowest bit of each of eight letters.
const ONES: u64 = u64::from_le_bytes([1; 8]);
/// Eight blanks.
const BLANKS: u64 = u64::from_le_bytes([b' '; 8]);

/// A text without the blanks that it begins with, of which eight are looked at once.
#[inline]
pub(super) fn after_blanks(mut text: &[u8]) -> &[u8] {
    while let Some((letters, behind)) = text.split_first_chunk() {
        let others = u64::from_le_bytes(*letters) ^ BLANKS;
        if others != 0 {
            return &text[others.trailing_zeros() as usize / 8..];
        }
        text = behind;
    }
    &text[text.iter().take_while(|&&letter| letter == b' ').count()..]
}

/// A word that a blank ends, no other white space, and what follows it.
#[inline]
pub(super) fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = letters(text)?;
    (len > 0 && text[len] == b' ').then(|| text.split_at(len))
}

/// Letters before the first blank or control character; none if there is no such character.
#[inline]
fn letters(text: &[u8]) -> Option<usize> {
    let mut done = 0;
    while let Some(next) = text[done..].first_chunk() {
        let next = u64::from_le_bytes(*next);
        // The lowest of these bits is that of the first byte up to a blank; a borrow only reaches bytes behind it.
        let up_to_blank = next.wrapping_sub(BLANKS + ONES) & !next & (0x80 * ONES);
        if up_to_blank != 0 {
            return Some(done + up_to_blank.trailing_zeros() as usize / 8);
        }
        done += 8;
    }
    text[done..].iter().position(|&letter| letter <= b' ').map(|len| done + len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_blanks_end_where_each_letter_says() {
        let words = [&b"a"[..], b"cpu/mem-loads,ldlat=30/P:", b"\x21\x7f\x80\xff\xa0", b"12345678", b""];
        for (word, blanks) in words.into_iter().flat_map(|word| (0..20).map(move |blanks| (word, blanks))) {
            for end in [&b" "[..], b"\n", b"\t", b"\0", b""] {
                let text = [word, end, b"12345678 9"].concat();
                assert_eq!(letters(&text), text.iter().position(|&letter| letter <= b' '), "{text:?}");
                let behind = [b" ".repeat(blanks), text.clone()].concat();
                let rest = text.iter().take_while(|&&letter| letter == b' ').count();
                assert_eq!(after_blanks(&behind), &text[rest..], "{behind:?}");
            }
            assert_eq!(letters(word), None);
            assert_eq!(after_blanks(&b" ".repeat(blanks)), b"");
        }
    }
}
