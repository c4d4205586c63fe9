//! A zip archive read as one stream: its members in the order of their names' numbers.
//!
//! DynamoRIO cuts the trace of a thread into members `chunk.0000`, `chunk.0001`, …. Any other archive must have one
//! file in it. Only the list of members is held, whose size the archive's own size bounds; what a member claims to hold
//! is not believed but checked at its end.

use std::{
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom},
};

use flate2::{Crc, bufread::DeflateDecoder};
use zip::{CompressionMethod, ZipArchive};

use super::input::Counted;

/// Where a member is, and what it must turn out to be.
struct Member {
    name: String,
    start: u64,
    compressed_bytes: u64,
    bytes: u64,
    crc: u32,
    deflated: bool,
}

/// The members of an archive, one after the other.
pub(super) struct ZipMembers {
    /// In the opposite order.
    left: Vec<Member>,
    state: MemberState,
    buffer_bytes: usize,
}

enum MemberState {
    Between(Counted<File>),
    Inside { member: Member, crc: Crc, data: Data },
    Ended,
}

enum Data {
    Stored(BufReader<io::Take<Counted<File>>>),
    Deflated(DeflateDecoder<BufReader<io::Take<Counted<File>>>>),
}

impl ZipMembers {
    pub(super) fn open(file: Counted<File>, buffer_bytes: usize) -> io::Result<Self> {
        // The directory is at the end and does not count as data read.
        let mut archive = ZipArchive::new(file.inner.try_clone()?)?;
        let mut members = Vec::new();
        for index in 0..archive.len() {
            let member = archive.by_index_raw(index)?;
            let name = member.name()?.into_owned();
            if !member.is_file() {
                continue;
            }
            if member.encrypted() {
                return Err(io::Error::other(format!("its member {name:?} is encrypted")));
            }
            let deflated = match member.compression() {
                CompressionMethod::Stored => false,
                CompressionMethod::Deflated => true,
                other => return Err(io::Error::other(format!("its member {name:?} is compressed by {other}"))),
            };
            members.push(Member {
                start: member
                    .data_start()
                    .ok_or_else(|| io::Error::other(format!("its member {name:?} is nowhere")))?,
                compressed_bytes: member.compressed_size(),
                bytes: member.size(),
                crc: member.crc32(),
                deflated,
                name,
            });
        }
        sort(&mut members)?;
        members.reverse();
        Ok(Self { left: members, state: MemberState::Between(file), buffer_bytes })
    }

    fn begin(&mut self, member: Member, mut file: Counted<File>) -> io::Result<()> {
        file.inner.seek(SeekFrom::Start(member.start))?;
        let raw = BufReader::with_capacity(self.buffer_bytes, file.take(member.compressed_bytes));
        let data = if member.deflated { Data::Deflated(DeflateDecoder::new(raw)) } else { Data::Stored(raw) };
        self.state = MemberState::Inside { member, crc: Crc::new(), data };
        Ok(())
    }
}

/// Chunks by number; anything else must be alone.
fn sort(members: &mut [Member]) -> io::Result<()> {
    let number = |member: &Member| {
        let name = member.name.rsplit('/').next().unwrap_or_default();
        name.strip_prefix("chunk.").and_then(|digits| digits.parse::<u64>().ok())
    };
    match members {
        [] => Err(io::Error::other("it holds no file")),
        [_] => Ok(()),
        _ => {
            if let Some(stranger) = members.iter().find(|member| number(member).is_none()) {
                let what = format!(
                    "it holds {} files, of which {:?} is no chunk.NNNN of a thread's trace; extract it and name one",
                    members.len(),
                    stranger.name
                );
                return Err(io::Error::other(what));
            }
            members.sort_by_key(|member| number(member));
            let at = members.windows(2).enumerate().find(|(_, pair)| number(&pair[0]) == number(&pair[1]));
            let gap = |at: usize| number(&members[at]) != Some(at as u64);
            match (at, (0..members.len()).find(|at| gap(*at))) {
                (Some((at, _)), _) => Err(io::Error::other(format!("it holds {:?} twice", members[at].name))),
                (None, Some(at)) => Err(io::Error::other(format!("chunk.{at:04} is missing"))),
                (None, None) => Ok(()),
            }
        }
    }
}

impl Read for ZipMembers {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match std::mem::replace(&mut self.state, MemberState::Ended) {
                MemberState::Ended => return Ok(0),
                MemberState::Between(file) => match self.left.pop() {
                    Some(member) => self.begin(member, file)?,
                    None => return Ok(0),
                },
                MemberState::Inside { member, mut crc, mut data } => {
                    let read = match &mut data {
                        Data::Stored(data) => data.read(buffer),
                        Data::Deflated(data) => data.read(buffer),
                    };
                    let len = read.map_err(|e| in_member(&member, &e.to_string()))?;
                    if len > 0 {
                        crc.update(&buffer[..len]);
                        self.state = MemberState::Inside { member, crc, data };
                        return Ok(len);
                    }
                    if crc.sum() != member.crc || u64::from(crc.amount()) != member.bytes & u64::from(u32::MAX) {
                        return Err(in_member(&member, "its size or its CRC-32 is not what the archive says"));
                    }
                    let raw = match data {
                        Data::Stored(raw) => raw,
                        Data::Deflated(data) => data.into_inner(),
                    };
                    self.state = MemberState::Between(raw.into_inner().into_inner());
                }
            }
        }
    }
}

fn in_member(member: &Member, what: &str) -> io::Error {
    io::Error::other(format!("in member {:?}: {what}", member.name))
}
