//! What executions of a segment have in common but for the addresses, in the form that the page takes it.
//!
//! Programs with much code execute each segment a few times and others in between, so an execution finds little in the
//! host's caches. Hence all that it needs lies in one place, an element of the process's table, and the next element is
//! read while a segment is executed.

use std::hint::black_box;
use std::sync::Arc;

use super::flow::{Flow, FromLoad, Known, LIKE_BRANCH, Link};
use super::frame::Frame;
use super::protocol::{ADDRESS_BYTES, SEGMENT_WORD_BYTES, Transfer};
use super::segment::Segment;
use crate::Access;
use crate::format::{Columns, GROUP, KindCounts, KnownGroup, OpenPage, Site};

/// Room in an element for groups of accesses, links and dependencies on loads. Segments that need more have them
/// elsewhere.
const GROUPS: usize = 2;
const LINKS: usize = 12;
const LOADS: usize = 6;

/// An element of a process's segment table. A forked child shares the segments and counts its own fetches.
#[repr(C, align(64))]
#[derive(Clone, Debug, Default)]
pub(super) struct Slot {
    /// When the sites' indices are valid.
    validity: Validity,
    /// Instructions before the segment that the index of the first site holds for; 0 without accesses.
    pending: u32,
    /// Instructions of the segment up to its last access.
    gaps: u32,
    tail: u32,
    accesses: u16,
    links_n: u8,
    /// How many of the links are for addresses.
    addresses: u8,
    loads_n: u8,
    like_branch: [u8; LIKE_BRANCH],
    /// Whether executions differ in nothing but the addresses, and in the first access's gap.
    is_constant: bool,
    /// The process's `fetch_epoch` when all code pages of the segment were last known to be fetched.
    pub fetch_epoch: u32,
    begins: u64,
    falls_through_to: u64,
    kinds: KindCounts,
    /// Instead of what follows, if there is no room for it.
    elsewhere: Option<Box<Elsewhere>>,
    pub segment: Option<Arc<Segment>>,
    /// Indices of the accesses' sites and their constant dependencies.
    groups: [KnownGroup; GROUPS],
    links: [Link; LINKS],
    loads: [FromLoad; LOADS],
}

/// An element fills three lines of the host's caches.
const _: () = assert!(size_of::<Slot>() == 192);

#[derive(Clone, Debug)]
struct Elsewhere {
    groups: Box<[KnownGroup]>,
    links: Box<[Link]>,
    addresses: usize,
    loads: Box<[FromLoad]>,
}

/// The process's `fetch_epoch`, from 1 on, and the writer's part: an expansion is valid while both stay the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Validity(u64);

impl Validity {
    pub(super) fn new(fetch_epoch: u32, page: &OpenPage) -> Self {
        Self(u64::from(page.part()) << 32 | u64::from(fetch_epoch))
    }
}

/// Puts elements into the array if there is room.
fn put<T: Copy>(into: &mut [T], from: &[T]) -> bool {
    into.get_mut(..from.len()).map(|into| into.copy_from_slice(from)).is_some()
}

impl Slot {
    pub(super) fn new(segment: Segment) -> Self {
        let (accesses, waits) = (&segment.accesses, segment.waits.known());
        let mut groups = vec![KnownGroup::default(); accesses.len().div_ceil(GROUP).max(1)];
        for (number, word) in segment.waits.words().enumerate() {
            groups[number / GROUP].1[number % GROUP] = word;
        }
        let gaps = u32::try_from(segment.instructions - u64::from(segment.tail));
        let kinds = KindCounts::count(accesses).filter(|_| segment.conditional == 0);
        let mut slot = Self {
            gaps: gaps.unwrap_or(0),
            tail: segment.tail,
            accesses: waits.accesses,
            like_branch: waits.like_branch,
            is_constant: gaps.is_ok() && kinds.is_some(),
            begins: waits.begins,
            falls_through_to: waits.falls_through_to,
            kinds: kinds.unwrap_or_default(),
            ..Self::default()
        };
        let (addresses, moves) = waits.links;
        let links = [addresses, moves].concat();
        if put(&mut slot.groups, &groups) && put(&mut slot.links, &links) && put(&mut slot.loads, waits.loads) {
            (slot.links_n, slot.addresses) = (links.len() as u8, addresses.len() as u8);
            slot.loads_n = waits.loads.len() as u8;
        } else {
            let (groups, links, loads) = (groups.into(), links.into(), waits.loads.into());
            slot.elsewhere = Some(Box::new(Elsewhere { groups, links, addresses: addresses.len(), loads }));
        }
        slot.segment = Some(Arc::new(segment));
        slot
    }

    /// The same segment for a forked child.
    pub(super) fn fork(&self) -> Self {
        Self { validity: Validity::default(), fetch_epoch: 0, ..self.clone() }
    }

    #[inline(always)]
    fn groups(&self) -> &[KnownGroup] {
        match &self.elsewhere {
            None if usize::from(self.accesses) <= GROUP => &self.groups[..1],
            None => &self.groups,
            Some(elsewhere) => &elsewhere.groups,
        }
    }

    #[inline(always)]
    fn waits(&self) -> Known<'_> {
        let (links, loads, addresses) = match &self.elsewhere {
            None => {
                let (links, loads) = (self.links.get(..self.links_n.into()), self.loads.get(..self.loads_n.into()));
                (links.unwrap_or_default(), loads.unwrap_or_default(), self.addresses.into())
            }
            Some(elsewhere) => (&*elsewhere.links, &*elsewhere.loads, elsewhere.addresses),
        };
        Known {
            begins: self.begins,
            falls_through_to: self.falls_through_to,
            like_branch: self.like_branch,
            accesses: self.accesses,
            links: links.split_at_checked(addresses).unwrap_or_default(),
            loads,
        }
    }

    /// Reads it, so that it is in the host's caches when it is executed. The processor goes on meanwhile.
    #[inline(always)]
    fn approach<const TELLS: bool>(&self) {
        black_box((self.validity.0, self.groups[0].0[0]));
        if TELLS {
            black_box(self.loads[0]);
        }
    }

    /// Prepares what [`execute_known`] needs for an execution after `pending` instructions, for which `page` has room.
    /// Returns false if that is impossible, mostly because some accesses are conditional.
    #[must_use]
    pub(super) fn learn(&mut self, fetch_epoch: u32, pending: u64, page: &mut OpenPage) -> bool {
        let Self { segment: Some(segment), is_constant: true, validity, groups, elsewhere, .. } = self else {
            return false;
        };
        let groups = elsewhere.as_mut().map_or(&mut groups[..], |elsewhere| &mut elsewhere.groups);
        let Some(first) = segment.accesses.first() else {
            *validity = Validity::new(fetch_epoch, page);
            return true;
        };
        let (Ok(gap), Ok(known)) = (u32::try_from(u64::from(first.gap) + pending), u32::try_from(pending)) else {
            return false;
        };
        let first = Access { gap, ..*first };
        if *validity == Validity::new(fetch_epoch, page) {
            groups[0].0[0] = page.index_of(Site::from_access(&first));
        }
        // Repeated if one of the sites began a new part, in which all have other indices.
        while *validity != Validity::new(fetch_epoch, page) {
            *validity = Validity::new(fetch_epoch, page);
            groups[0].0[0] = page.index_of(Site::from_access(&first));
            for (number, access) in segment.accesses.iter().enumerate().skip(1) {
                groups[number / GROUP].0[number % GROUP] = page.index_of(Site::from_access(access));
            }
        }
        self.pending = known;
        true
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
    let slot_of = |at| frame.word(at).and_then(|word| table.get(word as usize));
    let (mut begin, mut since, mut slot) = (*at, *pending, slot_of(*at));
    while let Some(known) = slot
        && (!COUNTED || *executed < most)
    {
        let (addresses, accesses) = (begin + SEGMENT_WORD_BYTES, usize::from(known.accesses));
        let next = addresses + accesses * ADDRESS_BYTES;
        // Instructions before the segment count with its first access, if it has any.
        let counted = if accesses > 0 { since } else { 0 };
        if known.validity != validity
            || counted != u64::from(known.pending)
            || next > frame.len()
            || columns.rows() + accesses >= end
        {
            break;
        }
        slot = slot_of(next);
        if let Some(next) = slot {
            next.approach::<TELLS>();
        }
        let group = |number| frame.group(addresses + number * (GROUP * ADDRESS_BYTES));
        // Those before the first access are its own, the others' are behind the last one.
        let instructions = if accesses > 0 { u64::from(known.gaps) + since } else { 0 };
        let Some(words) = columns.append(accesses, known.groups(), (known.kinds, instructions), group) else { break };
        if TELLS {
            flow.execute(known.waits(), words);
        }
        if CALLS && let Some((transfer, behind)) = known.segment.as_ref().and_then(|segment| segment.transfer) {
            let slot = frame.group(next - ADDRESS_BYTES).map_or(0, |group| group[0]);
            transferred(transfer, (slot, behind), columns.rows());
        }
        since = u64::from(known.tail) + (since - counted);
        begin = next;
        if COUNTED {
            *executed += u64::from(known.gaps) + u64::from(known.tail);
        }
    }
    (*at, *pending) = (begin, since);
}
