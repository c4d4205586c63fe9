//! `vmsplice`: pages of the program become the pipe's, or bytes of the pipe are copied to the program.

use super::touch::{Touch, Touched};
use super::{Call, Effects, files};

const PAGE_BYTES: u64 = 4096;
/// The kernel takes so many pages of a part at a time, before it looks whether the pipe has room for them. Linux 6.18:
/// fs/splice.c (`iter_to_pipe`), lib/iov_iter.c.
const BYTES_AT_A_TIME: u64 = 16 * PAGE_BYTES;
const PROT_READ: u32 = libc::PROT_READ as u32;

impl Effects<'_> {
    /// After a call that has taken or given bytes.
    pub fn spliced(&mut self, call: &Call) {
        let [pipe, list, count, ..] = call.arguments;
        let accesses = Vec::new();
        let mut touched = Touched { memory: self.memory, arguments: &call.arguments, result: call.result, accesses };
        if files::is_read_only(self.tid, pipe) {
            touched.add(Touch::OutVectors(1, 2));
        } else {
            touched.add(Touch::InArray(1, 2, 16));
            for (address, bytes, is_taken) in faulted(&touched.parts(list, count), call.result as u64) {
                let bytes = if is_taken { bytes } else { self.readable(address, bytes) };
                touched.reads(address, bytes);
            }
        }
        for access in touched.accesses {
            self.access(access);
        }
    }

    /// Bytes from an address on, up to memory that must not be read.
    fn readable(&self, address: u64, bytes: u64) -> u64 {
        let parts = self.mapped_parts(address, bytes, true).0;
        parts.iter().take_while(|part| part.0.protection & PROT_READ != 0).map(|part| part.2).sum()
    }
}

/// What the kernel takes of parts until the pipe is full: address, bytes, and whether the pipe got all of it.
fn faulted(parts: &[(u64, u64)], taken: u64) -> Vec<(u64, u64, bool)> {
    let (mut left, mut all) = (taken, Vec::new());
    for &(start, bytes) in parts {
        let (mut at, end) = (start, start.saturating_add(bytes));
        while at < end {
            let bytes = (BYTES_AT_A_TIME - at % PAGE_BYTES).min(end - at);
            all.push((at, bytes, bytes <= left));
            if bytes > left {
                return all;
            }
            left -= bytes;
            at += bytes;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_pages_are_faulted_at_a_time() {
        let pages = |count: u64| count * PAGE_BYTES;
        let at = 0x10_0000;
        assert_eq!(faulted(&[(at, pages(10))], pages(10)), [(at, pages(10), true)]);
        // The pipe has room for 16 pages.
        let expected = [(at, pages(16), true), (at + pages(16), pages(16), false)];
        assert_eq!(faulted(&[(at, pages(200))], pages(16)), expected);
        let expected = [(at + 100, pages(16) - 100, true), (at + pages(16), pages(16), false)];
        assert_eq!(faulted(&[(at + 100, pages(199))], pages(16) - 100), expected);
        let far = 0x80_0000;
        let expected = [(at, pages(5), true), (far, pages(16), false)];
        assert_eq!(faulted(&[(at, pages(5)), (at, 0), (far, pages(100))], pages(16)), expected);
        assert_eq!(faulted(&[(at, pages(200))], pages(15)), [(at, pages(16), false)]);
    }
}
