//! A frame: a piece of a process's stream that was sent at once.

use super::protocol::{ADDRESS_BYTES, address};
use crate::format::GROUP;

/// Number of bytes that are read for the last address of a group.
const WORD_BYTES: usize = size_of::<u64>();
/// Bytes of a group of addresses, including the excess bytes of its last word.
const GROUP_BYTES: usize = (GROUP - 1) * ADDRESS_BYTES + WORD_BYTES;

/// The bytes, followed by as many as reading a group of addresses may need.
#[derive(Debug, Default)]
pub(super) struct Frame {
    bytes: Vec<u8>,
    len: usize,
}

impl Frame {
    /// Resizes it to `len` bytes, which the caller must fill.
    pub(super) fn resize(&mut self, len: usize) -> &mut [u8] {
        self.len = len;
        if self.bytes.len() < len + GROUP_BYTES {
            self.bytes.resize(len + GROUP_BYTES, 0);
        }
        &mut self.bytes[..len]
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The word at byte `at`; none if the frame ends before.
    #[inline(always)]
    pub(super) fn word(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(*self.bytes().get(at..)?.first_chunk()?))
    }

    /// The addresses from byte `at` on, some of which may lie beyond the end; none if all do.
    #[inline(always)]
    pub(super) fn group(&self, at: usize) -> Option<[u64; GROUP]> {
        let bytes = self.bytes.get(at..)?.first_chunk::<GROUP_BYTES>()?;
        Some(std::array::from_fn(|i| {
            let word = bytes[i * ADDRESS_BYTES..][..WORD_BYTES].try_into().expect("8 bytes");
            address(u64::from_le_bytes(word))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_reach_beyond_the_end() {
        let addresses = [0x7fff_1234_5678u64, 0xffff_ffff_ff60_0000, 1];
        let mut frame = Frame::default();
        for _ in 0..2 {
            let bytes: Vec<u8> = addresses.iter().flat_map(|a| a.to_le_bytes()[..6].to_vec()).collect();
            frame.resize(bytes.len()).copy_from_slice(&bytes);
            assert_eq!(frame.bytes(), bytes);
            assert_eq!(frame.group(0).unwrap()[..3], addresses);
            assert_eq!(frame.group(12).unwrap()[..1], addresses[2..]);
        }
        assert!(frame.group(frame.len()).is_some());
        assert!(frame.group(frame.len() + 1).is_none());
    }
}
