//! Segments: stretches of code that are executed whole or not at all. Their executions differ in the addresses alone,
//! and in what the thread did between its last access and the segment's first one.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::flow::{Flow, Steps, Waits};
use super::frame::Frame;
use super::pages::{PAGE_SHIFT, Pages};
use super::protocol::{ADDRESS_BYTES, Piece, SEGMENT_WORD_BYTES, SegmentRecord, Transfer, address};
use crate::format::{AccessCounts, Columns, GROUP, OpenPage, Site};
use crate::{Access, AccessKind, Branches, Maker};

/// Bytes of the fetch recorded for a code page.
const FETCH_BYTES: u64 = 16;

/// A segment as its tool has described it.
#[derive(Debug)]
pub(super) struct Segment {
    /// Its accesses without addresses; the first one's gap lacks what the thread did before the segment.
    pub accesses: Box<[Access]>,
    /// Instructions after the last access.
    pub tail: u32,
    /// Some accesses may not happen: bit per access, the last bit for all from the 64th on.
    conditional: u64,
    pub pieces: Box<[Piece]>,
    /// All instructions.
    pub instructions: u64,
    /// Functions that it enters, in order.
    pub entries: Box<[FunctionEntry]>,
    /// What its accesses wait for.
    waits: Waits,
    /// How it ends, if that is by the last access's calling or returning, and the instruction behind it.
    transfer: Option<(Transfer, u64)>,
}

/// The entry of a function that stretches begin or end at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FunctionEntry {
    /// Accesses of the segment before it.
    pub access: usize,
    /// Number of the function.
    pub function: usize,
}

impl Segment {
    /// `functions` are addresses of functions that matter, with their numbers.
    pub(super) fn new(record: SegmentRecord, functions: &[(u64, usize)]) -> Option<Self> {
        let mut conditional = 0;
        let mut accesses = Vec::with_capacity(record.accesses.len());
        for (i, access) in record.accesses.iter().enumerate() {
            conditional |= u64::from(access.conditional) << i.min(63);
            accesses.push(Access {
                vaddr: 0,
                pc: access.pc,
                gap: access.gap,
                size_bytes: access.size_bytes,
                kind: AccessKind::from_code(access.kind)?,
                maker: Maker::PROGRAM,
            });
        }
        let waits = Waits::new(&record);
        let transfer = transfer(&record);
        let entries = entries(&record.pieces, &accesses, functions).into();
        let instructions = instructions(&accesses) + u64::from(record.tail);
        let (accesses, pieces) = (accesses.into(), record.pieces.into());
        Some(Self { accesses, tail: record.tail, conditional, pieces, instructions, entries, waits, transfer })
    }

    /// Whether it ends with a call or a return.
    pub(super) fn transfers(&self) -> bool {
        self.transfer.is_some()
    }

    /// The call or return at its end, with the slot of the frame and the instruction behind; `addresses` are those of
    /// all accesses.
    pub(super) fn transfer(&self, addresses: &[u8]) -> Option<(Transfer, (u64, u64))> {
        let (transfer, behind) = self.transfer?;
        let (_, slot) = self.with_addresses(self.accesses.len() - 1..self.accesses.len(), addresses).next()?;
        Some((transfer, (slot?, behind)))
    }

    /// Instructions up to the last of some accesses; with the last one those behind it, too.
    pub(super) fn instructions_of(&self, part: Range<usize>) -> u64 {
        let tail = if part.end == self.accesses.len() { self.tail } else { 0 };
        instructions(&self.accesses[part]) + u64::from(tail)
    }

    fn may_skip(&self, access: usize) -> bool {
        self.conditional >> access.min(63) & 1 != 0
    }

    pub(super) fn holds(&self, pc: u64) -> bool {
        self.pieces.iter().any(|piece| pc.wrapping_sub(piece.start) < u64::from(piece.len))
    }

    /// Some of its accesses with their addresses, none for those that did not happen; `addresses` are those of all.
    #[inline(always)]
    fn with_addresses<'s>(
        &'s self,
        part: Range<usize>,
        addresses: &'s [u8],
    ) -> impl Iterator<Item = (&'s Access, Option<u64>)> {
        let (addresses, _) = addresses.as_chunks::<ADDRESS_BYTES>();
        let first = part.start;
        self.accesses[part.clone()].iter().zip(&addresses[first..]).enumerate().map(move |(i, (access, bytes))| {
            let mut word = [0; 8];
            word[..ADDRESS_BYTES].copy_from_slice(bytes);
            let vaddr = address(u64::from_le_bytes(word));
            (access, (vaddr != 0 || !self.may_skip(first + i)).then_some(vaddr))
        })
    }

    /// Appends some accesses, without those that did not happen, and the branches before them.
    pub(super) fn expand(&self, part: Range<usize>, addresses: &[u8], run: &mut Expanding<'_>) {
        let (Expanding { pending, flow, steps, accesses, branches }, waits) = (run, &self.waits);
        if part.start == 0 {
            steps.begin(flow, waits);
        }
        for (access, vaddr) in self.with_addresses(part.clone(), addresses) {
            **pending += u64::from(access.gap);
            let Some((producer, before)) = steps.access(flow, waits, vaddr.is_some()) else { continue };
            let (vaddr, gap) = (vaddr.unwrap_or(0), saturate(std::mem::take(*pending)));
            accesses.push(Access { vaddr, gap, ..*access }.after(producer.into()));
            branches.push(before);
        }
        if part.end == self.accesses.len() {
            **pending += u64::from(self.tail);
            steps.finish(flow, waits);
        }
    }

    /// Appends those of some accesses that are first touches, without instructions; says how many were left out.
    #[inline(always)]
    pub(super) fn skim(&self, part: Range<usize>, addresses: &[u8], pages: &mut Pages, into: &mut Vec<Access>) -> u64 {
        let mut left_out = 0;
        for (access, vaddr) in self.with_addresses(part, addresses) {
            let Some(vaddr) = vaddr else { continue };
            if pages.touch(vaddr, access.size_bytes, access.kind.writes()) {
                into.push(Access { vaddr, gap: 0, ..*access });
            } else {
                left_out += 1;
            }
        }
        left_out
    }

    /// Appends a fetch for each code page that was not fetched yet.
    pub(super) fn fetch_pages(&self, fetched: &mut BTreeSet<u64>, into: &mut Vec<Access>) {
        for piece in &self.pieces {
            let end = piece.start + u64::from(piece.len.max(1));
            let mut vaddr = piece.start;
            while vaddr < end {
                let page_end = (vaddr | ((1 << PAGE_SHIFT) - 1)) + 1;
                if fetched.insert(vaddr >> PAGE_SHIFT) {
                    let size_bytes = (end.min(page_end) - vaddr).min(FETCH_BYTES) as u16;
                    let kind = AccessKind::Fetch;
                    into.push(Access { vaddr, pc: vaddr, gap: 0, size_bytes, kind, maker: Maker::PROGRAM });
                }
                vaddr = page_end;
            }
        }
    }
}

/// What a segment is expanded with, and into.
pub(super) struct Expanding<'a> {
    /// Instructions since the thread's last access.
    pub pending: &'a mut u64,
    pub flow: &'a mut Flow,
    pub steps: &'a mut Steps,
    pub accesses: &'a mut Vec<Access>,
    pub branches: &'a mut Vec<Branches>,
}

/// A segment's call or return, if its last access is one that makes it.
fn transfer(record: &SegmentRecord) -> Option<(Transfer, u64)> {
    let transfer = record.transfer?;
    let last = record.accesses.last().filter(|access| !access.conditional && access.size_bytes == 8)?;
    let writes = AccessKind::from_code(last.kind)?.writes();
    let code = record.pieces.last()?;
    (writes == (transfer == Transfer::Call)).then_some((transfer, code.start + u64::from(code.len)))
}

fn instructions(accesses: &[Access]) -> u64 {
    accesses.iter().map(|access| u64::from(access.gap)).sum()
}

/// Where a segment enters functions. Accesses are in the order of the pieces whose instructions make them.
fn entries(pieces: &[Piece], accesses: &[Access], functions: &[(u64, usize)]) -> Vec<FunctionEntry> {
    let (mut entries, mut at) = (Vec::new(), 0);
    if functions.is_empty() {
        return entries;
    }
    for piece in pieces {
        let holds = |pc: u64| pc.wrapping_sub(piece.start) < u64::from(piece.len);
        let of_piece = accesses[at..].iter().take_while(|access| holds(access.pc));
        let mut inside: Vec<(u64, usize)> = functions.iter().copied().filter(|&(entry, _)| holds(entry)).collect();
        inside.sort_unstable();
        entries.extend(inside.into_iter().map(|(entry, function)| FunctionEntry {
            access: at + of_piece.clone().take_while(|access| access.pc < entry).count(),
            function,
        }));
        at += of_piece.count();
    }
    entries
}

/// A number of a process's segment table. A forked child shares the segments and counts its own fetches.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub segment: Option<Arc<Segment>>,
    /// The process's `fetch_epoch` when all code pages of the segment were last known to be fetched.
    pub fetch_epoch: u32,
    /// How it was executed last, and so will be again.
    expansion: Expansion,
}

/// All of a segment's accesses but their addresses.
#[derive(Debug, Default)]
struct Expansion {
    /// When it holds.
    validity: Validity,
    accesses: usize,
    /// Of the first access, in the segment.
    first_gap: u64,
    /// Of the first access, with the instructions before the segment; 0 without accesses.
    gap: u64,
    /// All bits with accesses, else none.
    any: u64,
    tail: u64,
    /// All instructions of the segment.
    instructions: u64,
    /// Indices of the accesses' sites and what they always wait for, a group at least.
    columns: Box<[([u16; GROUP], [u32; GROUP])]>,
    waits: Waits,
    transfer: Option<(Transfer, u64)>,
    counts: AccessCounts,
}

/// The process's `fetch_epoch`, from 1 on, and the writer's part: while both stay, so does what is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Validity(u64);

impl Validity {
    pub(super) fn new(fetch_epoch: u32, page: &OpenPage) -> Self {
        Self(u64::from(page.part()) << 32 | u64::from(fetch_epoch))
    }
}

/// Segments, when what is known of them holds, and how many rows the page may have.
pub(super) struct KnownSegments<'a> {
    pub table: &'a [Slot],
    pub validity: Validity,
    pub end: usize,
    /// Instructions to execute at least, if they are counted.
    pub most: u64,
}

/// Appends executions of segments from `at` on, until the frame ends, something else comes, anything but the addresses
/// is unknown, or the page would have its rows. `pending` are the instructions since the thread's last access. If they
/// are counted, it also ends once `most` were executed. Where the page does not tell dependencies, they are not
/// followed. `transferred` is told of calls and returns: with the slot of the frame and the instruction behind, and the
/// rows of the page until then.
pub(super) fn execute_known<const COUNTED: bool, const TELLS: bool, const CALLS: bool>(
    known: &KnownSegments<'_>,
    frame: &Frame,
    at: &mut usize,
    (pending, flow): (&mut u64, &mut Flow),
    columns: &mut Columns<'_>,
    executed: &mut u64,
    transferred: &mut dyn FnMut(Transfer, (u64, u64), usize),
) {
    let &KnownSegments { table, validity, end, most } = known;
    let (mut begin, mut since) = (*at, *pending);
    while let Some(word) = frame.word(begin)
        && let Some(Slot { expansion: known, .. }) = table.get(word as usize)
        && (!COUNTED || *executed < most)
    {
        let addresses = begin + SEGMENT_WORD_BYTES;
        let next = addresses + known.accesses * ADDRESS_BYTES;
        if known.validity != validity
            || (known.first_gap + since) & known.any != known.gap
            || next > frame.len()
            || columns.rows() + known.accesses >= end
        {
            break;
        }
        let group = |number| frame.group(addresses + number * (GROUP * ADDRESS_BYTES));
        let Some(words) = columns.append(known.accesses, &known.columns, &known.counts, group) else { break };
        if TELLS {
            flow.execute(&known.waits, words);
        }
        if CALLS && let Some((transfer, behind)) = known.transfer {
            let slot = frame.group(next - ADDRESS_BYTES).map_or(0, |group| group[0]);
            transferred(transfer, (slot, behind), columns.rows());
        }
        since = known.tail + (since & !known.any);
        begin = next;
        if COUNTED {
            *executed += known.instructions;
        }
    }
    (*at, *pending) = (begin, since);
}

/// What [`skim_known`] came to: instructions that were executed, and accesses that were left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Skimmed {
    pub instructions: u64,
    pub left_out: u64,
}

/// Takes the first touches of `pages` out of executions of segments from `at` on, until the frame ends, something else
/// comes, a function is entered, called or left while anybody looks at that, a code page may have to be fetched, or
/// `most` instructions were executed.
pub(super) fn skim_known(
    table: &[Slot],
    fetch_epoch: u32,
    frame: &Frame,
    at: &mut usize,
    pages: &mut Pages,
    (most, calls): (u64, bool),
    into: &mut Vec<Access>,
) -> Skimmed {
    let (mut begin, mut sum) = (*at, Skimmed::default());
    while sum.instructions < most
        && let Some(word) = frame.word(begin)
        && let Some(Slot { segment: Some(segment), fetch_epoch: fetched, .. }) = table.get(word as usize)
        && *fetched == fetch_epoch
        && segment.entries.is_empty()
        && !(calls && segment.transfers())
    {
        let (addresses, accesses) = (begin + SEGMENT_WORD_BYTES, segment.accesses.len());
        let end = addresses + accesses * ADDRESS_BYTES;
        let Some(bytes) = frame.bytes().get(addresses..end) else { break };
        sum.left_out += segment.skim(0..accesses, bytes, pages, into);
        sum.instructions += segment.instructions;
        begin = end;
    }
    *at = begin;
    sum
}

impl Slot {
    pub(super) fn new(segment: Segment) -> Self {
        Self { segment: Some(Arc::new(segment)), ..Self::default() }
    }

    /// The same segment for a forked child.
    pub(super) fn fork(&self) -> Self {
        Self { segment: self.segment.clone(), ..Self::default() }
    }

    /// Learns what [`execute_known`] needs for an execution after `pending` instructions, for which `page` has room.
    /// False if nothing can be known, since there are conditions.
    #[must_use]
    pub(super) fn learn(&mut self, fetch_epoch: u32, pending: u64, page: &mut OpenPage) -> bool {
        let Some(segment) = self.segment.as_deref().filter(|segment| segment.conditional == 0) else { return false };
        let known = &mut self.expansion;
        let mut first = segment.accesses.first().copied();
        let first_gap = first.map_or(0, |access| u64::from(access.gap));
        if let Some(first) = &mut first {
            first.gap = saturate(first_gap + pending);
            if known.validity == Validity::new(fetch_epoch, page) {
                known.columns[0].0[0] = page.index_of(Site::from_access(first));
                known.counts.instructions -= u64::from(saturate(known.gap));
                known.counts.instructions += u64::from(first.gap);
                known.gap = first_gap + pending;
            }
        }
        let accesses: Vec<Access> = first.into_iter().chain(segment.accesses.iter().skip(1).copied()).collect();
        // Again if one of the sites began a part: there all have other indices.
        while known.validity != Validity::new(fetch_epoch, page) {
            let validity = Validity::new(fetch_epoch, page);
            let mut columns = vec![([0; GROUP], [0; GROUP]); accesses.len().div_ceil(GROUP).max(1)];
            for (number, (access, word)) in accesses.iter().zip(segment.waits.words()).enumerate() {
                let (sites, words) = &mut columns[number / GROUP];
                sites[number % GROUP] = page.index_of(Site::from_access(access));
                words[number % GROUP] = word;
            }
            *known = Expansion {
                validity,
                accesses: accesses.len(),
                first_gap,
                gap: if accesses.is_empty() { 0 } else { first_gap + pending },
                any: if accesses.is_empty() { 0 } else { u64::MAX },
                tail: u64::from(segment.tail),
                instructions: segment.instructions,
                columns: columns.into(),
                waits: segment.waits.clone(),
                transfer: segment.transfer,
                counts: AccessCounts::from_accesses(&accesses),
            };
        }
        true
    }
}

pub(super) fn saturate(gap: u64) -> u32 {
    u32::try_from(gap).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[path = "segment_tests.rs"]
mod tests;
