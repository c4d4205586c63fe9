//! Compressed data of several members one after another, as compressors and `cat` make them.

use std::{
    error::Error,
    fmt,
    io::{self, BufRead, Read},
};

/// A decoder of one member.
pub(super) trait Member: Read {
    type Source: BufRead;

    /// What comes behind the member, after its end was read.
    fn rest(self) -> Self::Source;
}

impl<R: BufRead> Member for flate2::bufread::GzDecoder<R> {
    type Source = R;

    fn rest(self) -> R {
        self.into_inner()
    }
}

impl<R: BufRead> Member for bzip2::bufread::BzDecoder<R> {
    type Source = R;

    fn rest(self) -> R {
        self.into_inner()
    }
}

impl<R: BufRead> Member for liblzma::bufread::XzDecoder<R> {
    type Source = R;

    fn rest(self) -> R {
        self.into_inner()
    }
}

impl<R: BufRead> Member for zstd::stream::read::Decoder<'static, R> {
    type Source = R;

    fn rest(self) -> R {
        self.finish()
    }
}

impl<R: BufRead> Member for lz4_flex::frame::FrameDecoder<R> {
    type Source = R;

    fn rest(self) -> R {
        self.into_inner()
    }
}

/// What follows the last member is no other one.
#[derive(Debug)]
pub(super) struct TrailingData;

impl fmt::Display for TrailingData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("something else follows the compressed data")
    }
}

impl Error for TrailingData {}

/// How members are opened and told from other data.
#[derive(Clone, Copy)]
pub(super) struct Kind<M: Member> {
    pub open: fn(M::Source) -> io::Result<M>,
    /// By its first byte.
    pub is_member: fn(u8) -> bool,
    /// Zeros may stand between members.
    pub padded: bool,
}

/// All members, as one stream of data.
pub(super) struct Members<M: Member> {
    kind: Kind<M>,
    /// None at the end of the data.
    member: Option<M>,
}

impl<M: Member> Members<M> {
    pub(super) fn open(source: M::Source, kind: Kind<M>) -> io::Result<Self> {
        Ok(Self { member: Some((kind.open)(source)?), kind })
    }

    /// Goes to the next member.
    fn advance(&mut self) -> io::Result<()> {
        let Some(member) = self.member.take() else { return Ok(()) };
        let mut rest = member.rest();
        loop {
            match rest.fill_buf()?.first() {
                None => return Ok(()),
                Some(0) if self.kind.padded => rest.consume(1),
                Some(&byte) if (self.kind.is_member)(byte) => {
                    self.member = Some((self.kind.open)(rest)?);
                    return Ok(());
                }
                Some(_) => return Err(io::Error::new(io::ErrorKind::InvalidData, TrailingData)),
            }
        }
    }
}

impl<M: Member> Read for Members<M> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let len = member.read(buffer)?;
            if len > 0 || buffer.is_empty() {
                return Ok(len);
            }
            self.advance()?;
        }
        Ok(0)
    }
}
