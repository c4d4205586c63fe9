//! Protocol Buffers on the wire: varints, and the fields of a message.
//!
//! Source: "Encoding" in the language guide of Protocol Buffers.

/// A number of up to 64 bits in groups of 7, the lowest first, and its bytes; none if it does not end.
#[inline(always)]
pub(super) fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    match bytes {
        [byte @ 0..0x80, ..] => Some((u64::from(*byte), 1)),
        _ => long_varint(bytes),
    }
}

#[inline]
fn long_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    if let Some(word) = bytes.first_chunk().map(|chunk| u64::from_le_bytes(*chunk)) {
        let ends = !word & 0x8080_8080_8080_8080;
        if ends != 0 {
            // The groups of all bytes up to the end are moved together: two by two, four by four, eight.
            let bits = ends.trailing_zeros() + 1;
            let groups = word & (u64::MAX >> (64 - bits)) & 0x7f7f_7f7f_7f7f_7f7f;
            let pairs = groups & 0x007f_007f_007f_007f | (groups & 0x7f00_7f00_7f00_7f00) >> 1;
            let fours = pairs & 0x0000_3fff_0000_3fff | (pairs & 0x3fff_0000_3fff_0000) >> 2;
            return Some((fours & 0x0fff_ffff | (fours & 0x0fff_ffff_0000_0000) >> 4, bits as usize / 8));
        }
    }
    let mut value = 0;
    for (at, &byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            return Some((value, at + 1));
        }
    }
    None
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// 4 or 8 bytes, which nothing here uses.
    Fixed,
}

/// The fields of a message, each with its number.
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    #[inline(always)]
    fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let (key, len) = varint(self.0)?;
        let rest = &self.0[len..];
        let (value, rest) = match key & 7 {
            0 => varint(rest).map(|(value, len)| (Value::Varint(value), &rest[len..]))?,
            1 => (Value::Fixed, rest.get(8..)?),
            2 => {
                let (count, len) = varint(rest)?;
                let (content, rest) = rest[len..].split_at_checked(usize::try_from(count).ok()?)?;
                (Value::Bytes(content), rest)
            }
            5 => (Value::Fixed, rest.get(4..)?),
            _ => return None,
        };
        self.0 = rest;
        Some((key >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), String>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or_else(|| "a message whose fields cannot be told apart".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_end_or_are_none() {
        assert_eq!(varint(&[0xac, 0x02, 7]), Some((300, 2)));
        assert_eq!(varint(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]), Some((u64::MAX, 10)));
        assert_eq!(varint(&[0x80; 9]), None);
        for shift in 0..64 {
            for value in [1u64 << shift, u64::MAX >> shift, 0xfedc_ba98_7654_3210 >> shift] {
                let (mut bytes, mut left) = (Vec::new(), value);
                while left >= 0x80 {
                    bytes.push(left as u8 | 0x80);
                    left >>= 7;
                }
                bytes.push(left as u8);
                let len = bytes.len();
                assert_eq!(varint(&bytes), Some((value, len)));
                bytes.extend([0xff; 9]);
                assert_eq!(varint(&bytes), Some((value, len)), "whatever follows");
            }
        }
        assert_eq!(varint(&[0xff; 11]), None);
    }

    #[test]
    fn fields_are_distinguished_or_refused() {
        let message = [0x08, 5, 0x12, 2, b'h', b'i', 0x1d, 1, 2, 3, 4, 0x21, 1, 2, 3, 4, 5, 6, 7, 8];
        let fields: Result<Vec<_>, String> = Fields::new(&message).collect();
        let expected = vec![(1, Value::Varint(5)), (2, Value::Bytes(b"hi")), (3, Value::Fixed), (4, Value::Fixed)];
        assert_eq!(fields.unwrap(), expected);
        for wrong in [&[0x08][..], &[0x12, 9, 1], &[0x1d, 1], &[0x0b], &[0x12, 0xff, 0xff, 0xff, 0xff, 0x0f]] {
            assert!(Fields::new(wrong).last().unwrap().is_err(), "{wrong:?}");
        }
    }
}
