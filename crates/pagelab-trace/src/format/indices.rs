//! Dictionary indices of a page in Parquet's encoding: the bit width, then one run of the RLE/bit-packing hybrid.

/// Encodes at least one index into `body`: as a repeated one if all are equal, otherwise packed at 8 or 16 bits (padded
/// to whole groups of eight).
pub(super) fn put(body: &mut Vec<u8>, indices: &[u16]) {
    let first = indices[0];
    // Without an early exit, so that the host's vector instructions can be used.
    let (all, different) = indices.iter().fold((0, 0), |(all, different), &i| (all | i, different | (i ^ first)));
    if different == 0 {
        return put_repeated(body, first, indices.len());
    }
    body.clear();
    let groups = indices.len().div_ceil(8);
    let wide = all > 255;
    body.push(if wide { 16 } else { 8 });
    put_varint(body, (groups as u64) << 1 | 1);
    // Resized first and then filled: appending value by value would check for room each time.
    let begin = body.len();
    if wide {
        body.resize(begin + groups * 16, 0);
        for (pair, &index) in body[begin..].as_chunks_mut::<2>().0.iter_mut().zip(indices) {
            *pair = index.to_le_bytes();
        }
    } else {
        body.resize(begin + groups * 8, 0);
        for (byte, &index) in body[begin..].iter_mut().zip(indices) {
            *byte = index as u8;
        }
    }
}

/// Encodes `rows` repetitions of `index` into `body`.
pub(super) fn put_repeated(body: &mut Vec<u8>, index: u16, rows: usize) {
    body.clear();
    body.push(16);
    put_varint(body, (rows as u64) << 1);
    body.extend(index.to_le_bytes());
}

fn put_varint(body: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        body.push(value as u8 | 0x80);
        value >>= 7;
    }
    body.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_indices_are_repeated_and_others_packed() {
        let body = |indices: &[u16]| {
            let mut body = vec![1; 9];
            put(&mut body, indices);
            body
        };
        assert_eq!(body(&[300; 100]), [16, 200, 1, 44, 1]);
        assert_eq!(body(&[7]), [16, 2, 7, 0]);
        assert_eq!(body(&[1, 255]), [8, 3, 1, 255, 0, 0, 0, 0, 0, 0]);
        assert_eq!(body(&[1, 2, 3, 4, 5, 6, 7, 8, 9])[..2], [8, 5]);
        let mut wide = vec![16, 3, 0, 1, 1, 0];
        wide.resize(2 + 16, 0);
        assert_eq!(body(&[256, 1]), wide);
    }
}
