//! Addresses and dependencies of a page as Parquet's byte streams: plane `k` holds byte `k` of each value.

/// Addresses that are split at once. Intermediate results stay in the host's first-level cache.
const BLOCK: usize = 1 << 9;

/// The bytes of a column's values in a page, plane by plane.
#[derive(Default)]
pub(super) struct Planes {
    /// The lower planes, up to the last one whose bytes differ.
    pub varying: Vec<u8>,
    /// The bytes above, which are the same in all values.
    pub constant: Vec<u8>,
    /// All planes, compressed.
    pub compressed: Vec<u8>,
}

impl Planes {
    /// Sets the planes of `addresses`, at least one.
    pub fn split(&mut self, addresses: &[u64]) {
        let different = addresses.iter().fold(0, |all, address| all | (address ^ addresses[0]));
        let count = (u64::BITS - different.leading_zeros()).div_ceil(8) as usize;
        // Resized without clearing the old content.
        self.varying.resize(addresses.len() * count, 0);
        fill(addresses, count, &mut self.varying);
        self.constant.clear();
        self.constant.extend(&addresses[0].to_le_bytes()[count..]);
    }

    /// Sets the planes of `words`, at least one.
    pub fn split_words(&mut self, words: &[u32]) {
        let different = words.iter().fold(0, |all, word| all | (word ^ words[0]));
        let count = (u32::BITS - different.leading_zeros()).div_ceil(8) as usize;
        self.varying.resize(words.len() * count, 0);
        for (plane, bytes) in self.varying.chunks_exact_mut(words.len()).enumerate() {
            for (byte, word) in bytes.iter_mut().zip(words) {
                *byte = (word >> (8 * plane)) as u8;
            }
        }
        self.constant.clear();
        self.constant.extend(&words[0].to_le_bytes()[count..]);
    }
}

/// Writes byte `k` of each address to plane `k`, for the first `count` planes. Words are halved repeatedly, which the
/// compiler turns into vector instructions.
fn fill(addresses: &[u64], count: usize, planes: &mut [u8]) {
    let mut halves = [[0u32; BLOCK]; 2];
    let mut quarters = [[0u16; BLOCK]; 2];
    for (number, block) in addresses.chunks(BLOCK).enumerate() {
        let (begin, len) = (number * BLOCK, block.len());
        let [lower, upper] = &mut halves;
        for ((address, lower), upper) in block.iter().zip(lower).zip(upper) {
            (*lower, *upper) = (*address as u32, (*address >> 32) as u32);
        }
        for (half, first) in halves.iter().zip([0, 4]).take_while(|(_, first)| *first < count) {
            let [lower, upper] = &mut quarters;
            for ((half, lower), upper) in half[..len].iter().zip(lower).zip(upper) {
                (*lower, *upper) = (*half as u16, (*half >> 16) as u16);
            }
            for (quarter, first) in quarters.iter().zip([first, first + 2]).take_while(|(_, first)| *first < count) {
                for plane in first..count.min(first + 2) {
                    let shift = 8 * (plane - first);
                    let bytes = &mut planes[plane * addresses.len() + begin..][..len];
                    for (byte, quarter) in bytes.iter_mut().zip(quarter) {
                        *byte = (*quarter >> shift) as u8;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn planes_hold_the_bytes_of_addresses() {
        let mut draw = Rng::new(1, "addresses");
        for rows in [1, 7, BLOCK, 3 * BLOCK + 5] {
            for count in 0..=8 {
                let lower = u64::MAX.checked_shr(64 - 8 * count as u32).unwrap_or(0);
                let upper = 0x8877_6655_4433_2211 & !lower;
                let mut addresses: Vec<u64> = (0..rows).map(|_| upper | draw.next_u64() & lower).collect();
                addresses.push(addresses[0] ^ lower);
                let mut planes = Planes { varying: vec![1; 9], constant: vec![1; 9], compressed: Vec::new() };
                planes.split(&addresses);
                assert_eq!(planes.constant, addresses[0].to_le_bytes()[count..]);
                assert_eq!(planes.varying.len(), addresses.len() * count);
                for (plane, bytes) in planes.varying.chunks(addresses.len()).enumerate() {
                    assert!(bytes.iter().zip(&addresses).all(|(byte, address)| *byte == address.to_le_bytes()[plane]));
                }
                let words: Vec<u32> = addresses.iter().map(|address| *address as u32).collect();
                planes.split_words(&words);
                assert_eq!(planes.constant, words[0].to_le_bytes()[count.min(4)..]);
                assert_eq!(planes.varying.len(), words.len() * count.min(4));
                for (plane, bytes) in planes.varying.chunks(words.len()).enumerate() {
                    assert!(bytes.iter().zip(&words).all(|(byte, word)| *byte == word.to_le_bytes()[plane]));
                }
            }
        }
    }
}
