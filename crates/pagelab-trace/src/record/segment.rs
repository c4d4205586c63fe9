//! Segments: pieces of code that are executed completely or not at all. Their executions differ only in the addresses,
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

/// Bytes of the recorded fetch from a code page.
const FETCH_BYTES: u64 = 16;

/// A segment as described by the tool.
#[derive(Debug)]
pub(super) struct Segment {
    /// Its accesses without addresses; the first one's gap excludes the thread's instructions before the segment.
    pub accesses: Box<[Access]>,
    /// Instructions after the last access.
    pub tail: u32,
    /// Accesses that may not happen: one bit per access; the last bit stands for all from the 64th on.
    conditional: u64,
    pub pieces: Box<[Piece]>,
    /// Number of all instructions.
    pub instructions: u64,
    /// Functions that it enters, in order.
    pub entries: Box<[FunctionEntry]>,
    /// What its accesses depend on.
    waits: Waits,
    /// Present if its last access makes a call or return: which one, and the address after the instruction.
    transfer: Option<(Transfer, u64)>,
}

/// The entry of a function at which stretches begin or end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FunctionEntry {
    /// Number of the segment's accesses before it.
    pub access: usize,
    /// Number of the function.
    pub function: usize,
}

impl Segment {
    /// `functions` are the addresses of watched functions, with their numbers.
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

    /// The call or return at its end, with the slot of the frame and the address after the instruction; `addresses` are
    /// those of all accesses.
    pub(super) fn transfer(&self, addresses: &[u8]) -> Option<(Transfer, (u64, u64))> {
        let (transfer, behind) = self.transfer?;
        let (_, slot) = self.with_addresses(self.accesses.len() - 1..self.accesses.len(), addresses).next()?;
        Some((transfer, (slot?, behind)))
    }

    /// Number of instructions up to the last access of the range; with the segment's last access, also those after it.
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

    /// A range of accesses with their addresses; none for accesses that did not happen. `addresses` are those of all
    /// accesses.
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

    /// Appends a range of accesses, without those that did not happen, and the branches before them.
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

    /// Appends the first touches of a range of accesses, without instructions; returns how many accesses were omitted.
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

/// State and destination for expanding a segment.
pub(super) struct Expanding<'a> {
    /// Instructions since the thread's last access.
    pub pending: &'a mut u64,
    pub flow: &'a mut Flow,
    pub steps: &'a mut Steps,
    pub accesses: &'a mut Vec<Access>,
    pub branches: &'a mut Vec<Branches>,
}

/// A segment's call or return, if its last access makes it.
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

/// The functions that a segment enters. Accesses are in the order of the pieces whose instructions make them.
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

/// An element of a process's segment table. A forked child shares the segments and counts its own fetches.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub segment: Option<Arc<Segment>>,
    /// The process's `fetch_epoch` when all code pages of the segment were last known to be fetched.
    pub fetch_epoch: u32,
    /// The result of its last execution, which later executions can reuse.
    expansion: Expansion,
}

/// All of a segment's accesses except their addresses.
#[derive(Debug, Default)]
struct Expansion {
    /// When it is valid.
    validity: Validity,
    accesses: usize,
    /// Gap of the first access, within the segment.
    first_gap: u64,
    /// Gap of the first access, including the instructions before the segment; 0 without accesses.
    gap: u64,
    /// All bits set if there are accesses, otherwise none.
    any: u64,
    tail: u64,
    /// Number of all instructions of the segment.
    instructions: u64,
    /// Indices of the accesses' sites and their constant dependencies, in at least one group.
    columns: Box<[([u16; GROUP], [u32; GROUP])]>,
    waits: Waits,
    transfer: Option<(Transfer, u64)>,
    counts: AccessCounts,
}

/// The process's `fetch_epoch`, from 1 on, and the writer's part: an expansion is valid while both stay the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Validity(u64);

impl Validity {
    pub(super) fn new(fetch_epoch: u32, page: &OpenPage) -> Self {
        Self(u64::from(page.part()) << 32 | u64::from(fetch_epoch))
    }
}

/// A segment table, the current validity of expansions, and the limit for the page's rows.
pub(super) struct KnownSegments<'a> {
    pub table: &'a [Slot],
    pub validity: Validity,
    pub end: usize,
    /// Number of instructions to execute, if they are counted.
    pub most: u64,
}

/// Appends executions of segments from `at` on. Ends when the frame ends, another record comes, something but the
/// addresses is unknown, or the page would have `end` rows; if instructions are counted, also after `most`
/// instructions. `pending` is the number of instructions since the thread's last access. If the page has no
/// dependencies, they are not tracked. `transferred` is called for calls and returns, with the slot of the frame, the
/// address after the instruction, and the number of rows of the page so far.
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

/// Result of [`skim_known`]: executed instructions, and omitted accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Skimmed {
    pub instructions: u64,
    pub left_out: u64,
}

/// Extracts the first touches of `pages` from executions of segments from `at` on. Ends when the frame ends, another
/// record comes, a watched function is entered, a call or return happens while call stacks are recorded, a code page
/// may have to be fetched, or `most` instructions were executed.
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

    /// Prepares what [`execute_known`] needs for an execution after `pending` instructions, for which `page` has room.
    /// Returns false if that is impossible because some accesses are conditional.
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
        // Repeated if one of the sites began a new part, in which all have other indices.
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
