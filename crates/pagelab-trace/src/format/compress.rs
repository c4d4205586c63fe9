//! Compression of pages into reused memory: zstd with parameters for the kinds of pages.

use zstd::{
    bulk::Compressor,
    zstd_safe::{CParameter, Strategy, compress_bound},
};

use super::PAGE_ROWS;

/// Hash table of zstd's level 1: 2^13 entries stay in the first-level cache. 2^14 save 0.3 % of the bytes.
const HASH_LOG: u32 = 13;
/// Minimum length of a match. 6 takes 5 % longer and saves nothing.
const MATCH_BYTES: u32 = 7;
/// Consecutive planes of bytes have nothing in common: a window of one plane saves 3 % of the bytes.
const PLANE_WINDOW_LOG: u32 = PAGE_ROWS.ilog2();
/// Two bytes per row.
const INDEX_WINDOW_LOG: u32 = PLANE_WINDOW_LOG + 1;
/// Level 3, which searches twice, saves 5 % of the bytes and takes 10 % longer.
const STRATEGY: Strategy = Strategy::ZSTD_fast;

fn compressor(window_log: u32) -> std::io::Result<Compressor<'static>> {
    let mut compressor = Compressor::new(super::columns::ZSTD_LEVEL)?;
    for parameter in [
        CParameter::WindowLog(window_log),
        CParameter::HashLog(HASH_LOG),
        CParameter::MinMatch(MATCH_BYTES),
        CParameter::Strategy(STRATEGY),
    ] {
        compressor.set_parameter(parameter)?;
    }
    Ok(compressor)
}

// Frames of zstd, RFC 8878, section 3.1.1.
const MAGIC: u32 = 0xfd2f_b528;
/// Frame descriptor: the header has a window and the content size in 4 bytes.
const CONTENT_SIZE_OF_4_BYTES: u8 = 2 << 6;
const WINDOW_DESCRIPTOR: u8 = ((PLANE_WINDOW_LOG - 10) << 3) as u8;
/// A frame without content size: magic number, descriptor, window.
const SHORT_HEADER_BYTES: usize = 6;
const BLOCK_HEADER_BYTES: usize = 3;
const LAST_BLOCK: u32 = 1;
/// A block that repeats one byte.
const RLE_BLOCK: u32 = 1 << 1;

/// Compresses indices and dictionaries.
pub(super) struct IndexCompressor {
    zstd: Compressor<'static>,
    compressed: Vec<u8>,
}

impl IndexCompressor {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self { zstd: compressor(INDEX_WINDOW_LOG)?, compressed: Vec::new() })
    }

    pub(super) fn compress(&mut self, body: &[u8]) -> std::io::Result<&[u8]> {
        compress(&mut self.zstd, body, &mut self.compressed)?;
        Ok(&self.compressed)
    }
}

/// Compresses the byte planes of addresses, or of dependencies.
pub(super) struct PlaneCompressor {
    zstd: Compressor<'static>,
    compressed: Vec<u8>,
}

impl PlaneCompressor {
    pub(super) fn new() -> std::io::Result<Self> {
        let mut zstd = compressor(PLANE_WINDOW_LOG)?;
        zstd.set_parameter(CParameter::ContentSizeFlag(false))?;
        Ok(Self { zstd, compressed: Vec::new() })
    }

    /// Sets `frame` to `planes`, followed by one plane of `rows` equal bytes for each byte of `constant`: the upper
    /// bytes of addresses are often all equal. Blocks of one repeated byte represent them without any search.
    pub(super) fn compress(
        &mut self,
        planes: &[u8],
        rows: usize,
        constant: &[u8],
        frame: &mut Vec<u8>,
    ) -> std::io::Result<()> {
        compress(&mut self.zstd, planes, &mut self.compressed)?;
        let blocks = &self.compressed[SHORT_HEADER_BYTES..];
        let content_bytes = (planes.len() + rows * constant.len()) as u32;
        frame.clear();
        frame.extend(MAGIC.to_le_bytes());
        frame.extend([CONTENT_SIZE_OF_4_BYTES, WINDOW_DESCRIPTOR]);
        frame.extend(content_bytes.to_le_bytes());
        let mut last = frame.len() + last_block(blocks);
        frame.extend(blocks);
        for &byte in constant {
            frame[last] &= !(LAST_BLOCK as u8);
            last = frame.len();
            let header = (rows as u32) << 3 | RLE_BLOCK | LAST_BLOCK;
            frame.extend(&header.to_le_bytes()[..BLOCK_HEADER_BYTES]);
            frame.push(byte);
        }
        Ok(())
    }
}

fn compress(compressor: &mut Compressor<'_>, body: &[u8], into: &mut Vec<u8>) -> std::io::Result<()> {
    into.clear();
    into.reserve(compress_bound(body.len()));
    compressor.compress_to_buffer(body, into).map(|_| ())
}

/// Offset of the last of `blocks`.
fn last_block(blocks: &[u8]) -> usize {
    let mut at = 0;
    loop {
        let header = u32::from_le_bytes([blocks[at], blocks[at + 1], blocks[at + 2], 0]);
        if header & LAST_BLOCK != 0 {
            return at;
        }
        let repeated = header & (3 << 1) == RLE_BLOCK;
        at += BLOCK_HEADER_BYTES + if repeated { 1 } else { (header >> 3) as usize };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn planes_come_back_whatever_zstd_made_of_them() {
        let mut compressor = PlaneCompressor::new().unwrap();
        let mut frame = Vec::new();
        let mut draw = Rng::new(1, "planes");
        for rows in [1, 7, 1000, PAGE_ROWS] {
            for varying in 0..=8 {
                // Random bytes, few values, runs, and one value, so that blocks are stored raw, compressed and
                // repeated.
                let planes: Vec<u8> = (0..rows * varying)
                    .map(|i| match i / rows {
                        0 => draw.next_u64() as u8,
                        1 => draw.below(3) as u8,
                        2 => (i / 100) as u8,
                        _ => 9,
                    })
                    .collect();
                let constant: Vec<u8> = (varying as u8..8).map(|plane| plane * 31).collect();
                compressor.compress(&planes, rows, &constant, &mut frame).unwrap();
                let whole: Vec<u8> =
                    planes.into_iter().chain(constant.iter().flat_map(|byte| vec![*byte; rows])).collect();
                let content_bytes = zstd::zstd_safe::get_frame_content_size(&frame).unwrap();
                assert_eq!(content_bytes, Some(whole.len() as u64));
                assert!(zstd::bulk::decompress(&frame, whole.len()).unwrap() == whole, "{rows} rows, {varying} planes");
                assert!(zstd::stream::decode_all(&frame[..]).unwrap() == whole);
            }
        }
    }
}
