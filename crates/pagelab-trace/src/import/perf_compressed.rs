//! Compressed records of `perf.data` (`perf record -z`): pieces of one zstd stream of records, cut anywhere.
//!
//! Source: `tools/perf/util/zstd.c` of Linux 6.12. All buffers share the stream.

use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use super::sink::Problem;

/// Bytes that are decompressed at a time.
const CHUNK_BYTES: usize = 128 << 10;
/// As the base-2 logarithm, the largest window; perf's levels up to 22 need 27.
const WINDOW_LOG: u32 = 27;
pub(super) const RECORD_HEADER_BYTES: usize = 8;

/// Type, flags and bytes of the record that begins with this header.
pub(super) fn parse_header([t0, t1, t2, t3, m0, m1, s0, s1]: [u8; RECORD_HEADER_BYTES]) -> (u32, u16, usize) {
    let (kind, misc) = (u32::from_le_bytes([t0, t1, t2, t3]), u16::from_le_bytes([m0, m1]));
    (kind, misc, usize::from(u16::from_le_bytes([s0, s1])))
}

/// Gets type, flags and body of a record, and returns false if no more are wanted.
type Take<'a> = &'a mut dyn FnMut(u32, u16, &[u8]) -> Result<bool, Problem>;

/// The stream, and the beginning of a record whose rest is in the next piece.
pub(super) struct Decompressor {
    decoder: Decoder<'static>,
    plain: Vec<u8>,
}

impl Decompressor {
    pub(super) fn new() -> Result<Self, Problem> {
        let mut decoder = Decoder::new().map_err(|error| error.to_string())?;
        decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG)).map_err(|error| error.to_string())?;
        Ok(Self { decoder, plain: Vec::new() })
    }

    /// Decompresses a piece. `take` gets type, flags and body of each record, until it returns false.
    pub(super) fn feed(&mut self, piece: &[u8], take: Take<'_>) -> Result<bool, Problem> {
        let mut input = InBuffer::around(piece);
        loop {
            let begin = self.plain.len();
            self.plain.resize(begin + CHUNK_BYTES, 0);
            let mut output = OutBuffer::around(&mut self.plain[begin..]);
            let failed = self.decoder.run(&mut input, &mut output).err();
            let written = output.pos();
            self.plain.truncate(begin + written);
            if let Some(error) = failed {
                return Err(format!("compressed records that zstd cannot decompress: {error}").into());
            }
            if !self.take_records(take)? {
                return Ok(false);
            }
            if input.pos() == piece.len() && written < CHUNK_BYTES {
                return Ok(true);
            }
        }
    }

    fn take_records(&mut self, take: Take<'_>) -> Result<bool, Problem> {
        let mut at = 0;
        while let Some(header) = self.plain[at..].first_chunk::<RECORD_HEADER_BYTES>() {
            let (kind, misc, bytes) = parse_header(*header);
            if bytes < RECORD_HEADER_BYTES {
                return Err(format!("a compressed record of {bytes} bytes").into());
            }
            let Some(body) = self.plain.get(at + RECORD_HEADER_BYTES..at + bytes) else { break };
            if !take(kind, misc, body)? {
                return Ok(false);
            }
            at += bytes;
        }
        self.plain.drain(..at);
        Ok(true)
    }

    /// Whether all records were complete.
    pub(super) fn is_complete(&self) -> bool {
        self.plain.is_empty()
    }
}
