//! The slice of the last-level cache that contains a line.
//!
//! Models: a cache of 2^n × m slices (m odd) whose lines are distributed by their machine address. n bits of the
//! slice's number are each the parity of some address bits ("complex addressing"). The odd factor is the remainder of
//! the line's number, which the set already contains, since the set is also chosen by a remainder.
//! Source: Maurice, Le Scouarnec, Neumann, Heen, Francillon, "Reverse Engineering Intel Last-Level Cache Complex
//! Addressing Using Performance Counters", RAID 2015: the functions of processors with 2, 4 and 8 slices.
//! Parameters: `machine.cache.l3.slices`, `machine.cache.l3.slice_hash`.
//! Deviations: for processors whose number of slices is not a power of two, the functions are published as tables
//! (McCalpin, "Mapping Addresses to L3/CHA Slices in Intel Processors", 2021), but for other numbers of slices than the
//! presets have. So the odd factor is an approximation. All slices have the same latency.

use pagelab_base::addr::LINE_SHIFT;

/// Maximum number of hashed bits of a slice's number.
pub(super) const MAX_HASH_BITS: u32 = 3;
/// For each bit of a slice's number: mask of the machine-address bits whose parity it is.
const MASKS: [u64; MAX_HASH_BITS as usize] = [0x1b_5f57_5440, 0x2e_b5fa_a880, 0x3c_ccc9_3100];
/// Number of bytes of a line's number that the masks cover.
const BYTES: usize = 4;
/// Contribution of each byte of a line's number to all bits of the slice's number.
const PARTS: [[u8; 256]; BYTES] = parts();

const fn parts() -> [[u8; 256]; BYTES] {
    let mut parts = [[0; 256]; BYTES];
    let mut at = 0;
    while at < BYTES * 256 {
        let (byte, value) = (at / 256, at % 256);
        let address = (value as u64) << (8 * byte as u32 + LINE_SHIFT);
        let mut bit = 0;
        while bit < MASKS.len() {
            parts[byte][value] |= (((address & MASKS[bit]).count_ones() & 1) << bit) as u8;
            bit += 1;
        }
        at += 1;
    }
    parts
}

/// The hashed part of the number of a line's slice; it has `bits` bits.
#[inline(always)]
pub(super) fn hash(line: u64, bits: u32) -> usize {
    let [a, b, c, d, ..] = line.to_le_bytes();
    let all = PARTS[0][usize::from(a)] ^ PARTS[1][usize::from(b)] ^ PARTS[2][usize::from(c)] ^ PARTS[3][usize::from(d)];
    usize::from(all) & ((1 << bits) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits of an address that each bit of the slice is the parity of, as the paper's table lists them.
    const PAPER: [&[u32]; 3] = [
        &[6, 10, 12, 14, 16, 17, 18, 20, 22, 24, 25, 26, 27, 28, 30, 32, 33, 35, 36],
        &[7, 11, 13, 15, 17, 19, 20, 21, 22, 23, 24, 26, 28, 29, 31, 33, 34, 35, 37],
        &[8, 12, 13, 16, 19, 22, 23, 26, 27, 30, 31, 34, 35, 36, 37],
    ];

    #[test]
    fn each_bit_is_the_parity_of_the_papers_address_bits() {
        for address_bit in LINE_SHIFT..48 {
            let expected = (0..3).filter(|&bit| PAPER[bit].contains(&address_bit)).map(|bit| 1 << bit).sum::<usize>();
            // One bit alone, and the same bit on top of others.
            for other in [0, 0x35_a5a5_a5c0 & !(1 << address_bit)] {
                let moved = hash((other | 1 << address_bit) >> LINE_SHIFT, 3) ^ hash(other >> LINE_SHIFT, 3);
                assert_eq!(moved, expected, "address bit {address_bit}");
            }
        }
        assert_eq!([1, 2].map(|bits| hash(7, bits)), [1, 3]);
    }

    #[test]
    fn lines_of_any_page_are_spread_evenly() {
        for page in [0, 1, 77, 0x12_3456, 0x3ff_ffff] {
            for bits in 1..=MAX_HASH_BITS {
                let mut counts = vec![0; 1 << bits];
                (0..64).for_each(|line| counts[hash(page * 64 + line, bits)] += 1);
                assert!(counts.iter().all(|&count| count == 64 >> bits), "page {page}, {bits} bits: {counts:?}");
            }
        }
    }
}
