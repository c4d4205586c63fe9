//! How foreign traces are compressed, and the readers that decompress them.

use std::{
    fs::File,
    io::{self, BufReader, Chain, Cursor, Read},
};

use liblzma::stream::Stream;
use serde::Serialize;

use super::{
    members::{Kind, Members},
    zip_members::ZipMembers,
};
use crate::TraceError;

/// How an input is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Recognised by the first bytes.
    Auto,
    /// Plain data.
    None,
    /// gzip, several members too.
    Gzip,
    /// xz.
    Xz,
    /// bzip2, several streams too.
    Bzip2,
    /// Zstandard, several frames too.
    Zstd,
    /// LZ4 frames, several too.
    Lz4,
    /// Framed Snappy.
    Snappy,
    /// Members of an archive, one after the other.
    Zip,
}

/// Bytes by which a compression is recognised.
pub(super) const MAGIC_BYTES: usize = 10;
/// An xz file that needs more memory than this is refused; `xz -9` needs 65 MiB.
const XZ_MEMORY_BYTES: u64 = 512 << 20;
/// As the base-2 logarithm, the largest window of a zstd file; `zstd --ultra -22` needs 27.
const ZSTD_WINDOW_LOG: u32 = 27;

/// A file whose first bytes were read to recognise it.
pub(super) type Whole = Chain<Cursor<Vec<u8>>, super::input::Counted<File>>;

impl Compression {
    const NAMES: [(&str, Self); 9] = [
        ("auto", Self::Auto),
        ("none", Self::None),
        ("gzip", Self::Gzip),
        ("xz", Self::Xz),
        ("bzip2", Self::Bzip2),
        ("zstd", Self::Zstd),
        ("lz4", Self::Lz4),
        ("snappy", Self::Snappy),
        ("zip", Self::Zip),
    ];

    /// From `auto`, `none`, `gzip`, `xz`, `bzip2`, `zstd`, `lz4`, `snappy` or `zip`.
    ///
    /// # Errors
    /// [`TraceError::Usage`] that lists the names.
    pub fn from_name(name: &str) -> Result<Self, TraceError> {
        Self::NAMES.into_iter().find(|(known, _)| *known == name).map(|(_, compression)| compression).ok_or_else(|| {
            let names: Vec<&str> = Self::NAMES.iter().map(|(name, _)| *name).collect();
            TraceError::usage(format!("unknown compression {name:?}; known are {}", names.join(", ")))
        })
    }

    /// By the magic numbers of RFC 1952, the .xz file format (section 2.1.1.1), bzip2, RFC 8878, LZ4's and Snappy's
    /// framing formats, and zip.
    pub(super) fn recognise(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31 | 0x17, ..] => Self::Bzip2,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            [0x04, 0x22, 0x4d, 0x18, ..] => Self::Lz4,
            [0xff, 6, 0, 0, b's', b'N', b'a', b'P', b'p', b'Y', ..] => Self::Snappy,
            [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] => Self::Zip,
            _ => Self::None,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Auto | Self::None => "plain",
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Bzip2 => "bzip2",
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
            Self::Snappy => "snappy",
            Self::Zip => "zip",
        }
    }

    /// The decompressed data of `file`, which is read `buffer_bytes` at a time.
    pub(super) fn decompress(self, file: Whole, buffer_bytes: usize) -> io::Result<Box<dyn Read>> {
        let buffered = |file| BufReader::with_capacity(buffer_bytes, file);
        Ok(match self {
            Self::Auto | Self::None => Box::new(file),
            Self::Gzip => Box::new(Members::open(buffered(file), GZIP)?),
            Self::Xz => Box::new(Members::open(buffered(file), XZ)?),
            Self::Bzip2 => Box::new(Members::open(buffered(file), BZIP2)?),
            Self::Zstd => Box::new(Members::open(buffered(file), ZSTD)?),
            Self::Lz4 => Box::new(Members::open(buffered(file), LZ4)?),
            Self::Snappy => Box::new(snap::read::FrameDecoder::new(buffered(file))),
            Self::Zip => Box::new(ZipMembers::open(file.into_inner().1, buffer_bytes)?),
        })
    }
}

type Buffered = BufReader<Whole>;

const GZIP: Kind<flate2::bufread::GzDecoder<Buffered>> = Kind {
    open: |source| Ok(flate2::bufread::GzDecoder::new(source)),
    is_member: |byte| byte == 0x1f,
    // Tapes end in zeros; gzip ignores them, too.
    padded: true,
};
const XZ: Kind<liblzma::bufread::XzDecoder<Buffered>> = Kind {
    open: |source| {
        let stream = Stream::new_stream_decoder(XZ_MEMORY_BYTES, 0)?;
        Ok(liblzma::bufread::XzDecoder::new_stream(source, stream))
    },
    is_member: |byte| byte == 0xfd,
    padded: true,
};
const BZIP2: Kind<bzip2::bufread::BzDecoder<Buffered>> =
    Kind { open: |source| Ok(bzip2::bufread::BzDecoder::new(source)), is_member: |byte| byte == b'B', padded: false };
const ZSTD: Kind<zstd::stream::read::Decoder<'static, Buffered>> = Kind {
    open: |source| {
        let mut decoder = zstd::stream::read::Decoder::with_buffer(source)?.single_frame();
        decoder.window_log_max(ZSTD_WINDOW_LOG)?;
        Ok(decoder)
    },
    // A frame, or one to be skipped.
    is_member: |byte| byte == 0x28 || byte & 0xf0 == 0x50,
    padded: false,
};
const LZ4: Kind<lz4_flex::frame::FrameDecoder<Buffered>> = Kind {
    open: |source| Ok(lz4_flex::frame::FrameDecoder::new(source)),
    is_member: |byte| byte == 0x04 || byte & 0xf0 == 0x50,
    padded: false,
};
