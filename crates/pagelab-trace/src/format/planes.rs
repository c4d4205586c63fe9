//! Addresses of a page as Parquet's byte streams: plane `k` holds byte `k` of each.

/// Addresses that are split at once. Between the steps they stay in the host's first-level cache.
const BLOCK: usize = 1 << 9;

/// Sets `planes` to those in which `addresses`, at least one, differ, and those below, and `constant` to the bytes above.
pub(super) fn split(addresses: &[u64], planes: &mut Vec<u8>, constant: &mut Vec<u8>) {
    let varying = varying_bytes(addresses);
    // Without zeroing what there is.
    planes.resize(addresses.len() * varying, 0);
    fill(addresses, varying, planes);
    constant.clear();
    constant.extend(&addresses[0].to_le_bytes()[varying..]);
}

/// Number of lower bytes beyond which all addresses are the same.
fn varying_bytes(addresses: &[u64]) -> usize {
    let different = addresses.iter().fold(0, |all, address| all | (address ^ addresses[0]));
    (u64::BITS - different.leading_zeros()).div_ceil(8) as usize
}

/// Writes byte `k` of each address to plane `k`, for the first `count` planes. Words are halved again and again, which the
/// compiler makes vector instructions of.
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
                let (mut planes, mut constant) = (vec![1; 9], vec![1; 9]);
                split(&addresses, &mut planes, &mut constant);
                assert_eq!(constant, addresses[0].to_le_bytes()[count..]);
                assert_eq!(planes.len(), addresses.len() * count);
                for (plane, bytes) in planes.chunks(addresses.len()).enumerate() {
                    assert!(bytes.iter().zip(&addresses).all(|(byte, address)| *byte == address.to_le_bytes()[plane]));
                }
            }
        }
    }
}
