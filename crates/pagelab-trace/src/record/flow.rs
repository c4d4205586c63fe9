//! What a thread's accesses and branches wait for: the loads that its registers come from, followed from segment to
//! segment.
//!
//! The tool says of each segment what its addresses, branches and registers come from: an access of the same
//! superblock, or registers as they are at the segment's entry. So for each register it is enough to keep one load.
//! That is the youngest that its value depends on, but one at an address that is known at once, as of what was spilled,
//! counts as older: it is there early, and would hide the load that really is waited for. Values are not followed
//! through memory.

use std::ops::Range;

use super::protocol::{OriginRecord, REGISTERS, SegmentRecord};
use crate::format::waits_of;
use crate::{Branches, Maker};

/// Rows of a thread begin beyond the reach of row 0, which stands for no load.
const FIRST_ROW: u64 = 2 * (Maker::REACH + 1);

/// A load whose address is not known at once counts as younger by so many accesses than one whose address is: about as
/// many as a reorder window holds, after which it is there in any case.
const LATER: u64 = 64;

/// As many as there are values of a register's number that matter, so that none is out of range.
const SLOTS: usize = 64;
/// The place of what never comes from a load.
const NOTHING: u8 = SLOTS as u8 - 1;
/// That of the branches since the last access.
const BRANCHES: u8 = SLOTS as u8 - 2;
/// That of the branch at the end of the segment that is executed; comes from nothing if there is none.
const BRANCH: u8 = SLOTS as u8 - 3;
/// That of what nobody reads.
const UNREAD: u8 = SLOTS as u8 - 4;
/// Registers that are taken as the branch is at most; others have links of their own. With the flags often goes what
/// was tested.
const LIKE_BRANCH: usize = 2;
// Half as many again for exchanges. Only where nearly all registers mix, which no code does, does the last place have
// to do for several.
const _: () = assert!(REGISTERS + REGISTERS / 2 <= UNREAD as usize);

/// A thread's registers and branches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    /// Its accesses so far, from [`FIRST_ROW`] on.
    row: u64,
    /// By register, the [`key`] of the load that the value comes from.
    from: [u64; SLOTS],
    /// Since the last access.
    branches: Branches,
    /// Where the program goes on if it does not take the branch that it has just come to; 0 if that was no branch.
    fall_through: u64,
}

impl Default for Flow {
    fn default() -> Self {
        let branches = Branches::NONE;
        Self { row: FIRST_ROW, from: [0; SLOTS], branches, fall_through: 0 }
    }
}

/// What a segment's accesses wait for, and how it changes a [`Flow`].
#[derive(Clone, Debug)]
pub(super) struct Waits {
    /// Its first instruction; 0 if it goes on in the middle of one.
    begins: u64,
    /// Where the conditional branch at its end falls through to; 0 if there is none.
    falls_through_to: u64,
    /// Registers that come from what the branch at its end comes from, as flags mostly do; [`UNREAD`] where there is
    /// none.
    like_branch: [u8; LIKE_BRANCH],
    accesses: u16,
    /// Of accesses' addresses, then of moves to registers and to the branch: each from a register at the entry.
    links: Box<[Link]>,
    /// As many of them are of addresses.
    addresses: u16,
    /// What comes from loads, after the moves.
    loads: Box<[FromLoad]>,
    /// By access, those back to the load of the same superblock that it waits for; 0: none in reach.
    producers: Box<[u8]>,
}

impl Default for Waits {
    fn default() -> Self {
        let (links, loads, producers) = Default::default();
        Self {
            begins: 0,
            falls_through_to: 0,
            like_branch: [UNREAD; LIKE_BRANCH],
            accesses: 0,
            links,
            addresses: 0,
            loads,
            producers,
        }
    }
}

/// An access by its number in the segment, or a register at its end or the branch, and a register at the entry that its
/// address or value comes from.
#[derive(Clone, Copy, Debug)]
struct Link {
    number: u16,
    register: u8,
    /// What comes from several registers has one link after the other.
    is_last: bool,
}

/// A register at a segment's end, or the branch, that comes from a load.
#[derive(Clone, Copy, Debug)]
struct FromLoad {
    /// Accesses back from the segment's end.
    back: u16,
    register: u8,
    is_late: bool,
    /// It also comes from registers, and there are links of that.
    has_links: bool,
}

impl FromLoad {
    fn new((register, origin): (u8, OriginRecord)) -> Self {
        Self { back: origin.back, register, is_late: !origin.is_early(), has_links: origin.registers != 0 }
    }
}

/// Links of one thing and all the registers that it comes from.
fn links(number: u16, registers: u64) -> impl Iterator<Item = Link> {
    let last = u64::BITS - 1 - registers.max(1).leading_zeros();
    bits(registers).map(move |register| Link { number, register, is_last: u32::from(register) == last })
}

/// Moves to registers from what others hold before all of them, so ordered that one after the other does the same.
/// Where that cannot be, as in an exchange, slots beyond the registers keep what is overwritten.
fn one_after_the_other(mut moves: Vec<(u8, u64)>) -> Vec<(u8, u64)> {
    let (mut ordered, mut spare) = (Vec::new(), REGISTERS as u8);
    while let Some(&(first, _)) = moves.first() {
        let is_read = |to: u8| moves.iter().any(|&(other, from)| other != to && from >> to & 1 != 0);
        if let Some(at) = moves.iter().position(|&(to, _)| !is_read(to)) {
            ordered.push(moves.remove(at));
            continue;
        }
        ordered.push((spare, 1 << first));
        for (_, from) in moves.iter_mut().filter(|(other, from)| *other != first && from >> first & 1 != 0) {
            *from = *from & !(1 << first) | 1 << spare;
        }
        spare = (spare + 1).min(UNREAD - 1);
    }
    ordered
}

impl Waits {
    pub(super) fn new(record: &SegmentRecord) -> Self {
        let branch = record.branch.map_or(OriginRecord::default(), |branch| branch.origin);
        let mut like_branch = [UNREAD; LIKE_BRANCH];
        let alike = record.registers.iter().filter(|(_, origin)| *origin == branch);
        like_branch.iter_mut().zip(alike).for_each(|(like, &(register, _))| *like = register);
        let others = || record.registers.iter().filter(move |(register, _)| !like_branch.contains(register));
        let addresses = record.accesses.iter().zip(0..);
        let mut all: Vec<Link> =
            addresses.flat_map(|(access, number)| links(number, access.origin.registers)).collect();
        let addresses = all.len() as u16;
        let set = || others().copied().chain((branch != OriginRecord::default()).then_some((BRANCH, branch)));
        let moves = set().filter(|(_, origin)| origin.registers != 0 || origin.back == 0);
        for (to, from) in one_after_the_other(moves.map(|(to, origin)| (to, origin.registers)).collect()) {
            // What comes from nothing comes from the register that never changes.
            all.extend(links(to.into(), if from == 0 { 1 << NOTHING } else { from }));
        }
        Self {
            begins: record.pieces.first().map_or(0, |piece| piece.start),
            falls_through_to: record.branch.map_or(0, |branch| branch.fall_through),
            like_branch,
            accesses: record.accesses.len() as u16,
            links: all.into(),
            addresses,
            loads: set().filter(|(_, origin)| origin.back > 0).map(FromLoad::new).collect(),
            producers: record.accesses.iter().map(|access| reach(access.origin.back.into())).collect(),
        }
    }

    /// The words of [`waits_of`] as far as they are always the same.
    pub(super) fn words(&self) -> impl Iterator<Item = u32> + '_ {
        self.producers.iter().map(|&producer| producer.into())
    }

    /// Links of addresses, and of moves.
    #[inline(always)]
    fn links(&self) -> (&[Link], &[Link]) {
        self.links.split_at_checked(self.addresses.into()).unwrap_or_default()
    }
}

/// The numbers of a mask's bits.
fn bits(mut mask: u64) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (bit < u64::BITS).then_some(bit as u8)
    })
}

/// Of a load by its row: greater for the one of two that is waited for; 0 for no load.
#[inline(always)]
fn key(row: u64, is_late: bool) -> u64 {
    let late = u64::from(is_late);
    if row == 0 { 0 } else { (row + LATER * late) << 1 | late }
}

/// The distance from a row back to a load, as a byte.
#[inline(always)]
fn back_to(row: u64, key: u64) -> u8 {
    reach(row - ((key >> 1) - LATER * (key & 1)))
}

/// A distance as a byte; 0 beyond the reach.
#[inline(always)]
fn reach(distance: u64) -> u8 {
    if distance <= Maker::REACH { distance as u8 } else { 0 }
}

impl Flow {
    /// The thread made accesses that nothing is known of: the kernel's, fetches.
    pub(super) fn skip(&mut self, accesses: usize) {
        self.row += accesses as u64;
    }

    /// What its registers come from is no longer known.
    pub(super) fn forget(&mut self) {
        *self = Self { row: self.row, ..Self::default() };
    }

    /// Completes the words of a segment's accesses, of which `words` begins with as many as there are.
    #[inline(always)]
    pub(super) fn execute(&mut self, waits: &Waits, words: &mut [u32]) {
        self.begin(waits);
        let mut from = 0;
        for link in waits.links().0 {
            from = self.from(link.register).max(from);
            if link.is_last {
                if let Some(word) = words.get_mut(usize::from(link.number)) {
                    let row = self.row + u64::from(link.number);
                    let early = if *word == 0 { 0 } else { key(row - u64::from(*word), false) };
                    // Stored whole: what follows a store of a part waits for it.
                    *word = back_to(row, from.max(early)).into();
                }
                from = 0;
            }
        }
        if waits.accesses > 0
            && let Some(first) = words.first_mut()
        {
            *first |= waits_of(Maker::PROGRAM, self.take_branches());
        }
        self.row += u64::from(waits.accesses);
        let end = self.row;
        self.finish(waits, |back| end.saturating_sub(back));
    }

    /// The [`key`] of the load that a register comes from.
    #[inline(always)]
    fn from(&self, register: u8) -> u64 {
        self.from[usize::from(register) % SLOTS]
    }

    /// It comes to a segment.
    #[inline(always)]
    fn begin(&mut self, waits: &Waits) {
        if self.fall_through != 0 {
            self.branches.push(waits.begins != self.fall_through);
        }
    }

    /// The branches before the access that comes.
    #[inline(always)]
    fn take_branches(&mut self) -> Branches {
        let mut branches = std::mem::take(&mut self.branches);
        branches.wait_for(back_to(self.row, std::mem::take(&mut self.from[usize::from(BRANCHES)])).into());
        branches
    }

    /// It has come to a segment's end, where `row_of` says which row an access so far back has; 0 if that was skipped.
    #[inline(always)]
    fn finish(&mut self, waits: &Waits, row_of: impl Fn(u64) -> u64) {
        self.fall_through = waits.falls_through_to;
        self.from[usize::from(BRANCH)] = 0;
        let mut from = 0;
        for link in waits.links().1 {
            from = self.from(link.register).max(from);
            if link.is_last {
                self.from[usize::from(link.number) % SLOTS] = std::mem::take(&mut from);
            }
        }
        for &FromLoad { back, register, is_late, has_links } in &waits.loads {
            let from = &mut self.from[usize::from(register) % SLOTS];
            *from = key(row_of(back.into()), is_late).max(if has_links { *from } else { 0 });
        }
        let branch = self.from[usize::from(BRANCH)];
        for register in waits.like_branch {
            self.from[usize::from(register) % SLOTS] = branch;
        }
        self.from[usize::from(BRANCHES)] = self.from[usize::from(BRANCHES)].max(branch);
    }
}

/// A segment that is executed access by access, since some of them may not happen.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// The thread's row when it began.
    begin: u64,
    /// By access of the segment, its row; of one that did not happen that of the next.
    rows: Vec<u64>,
}

impl Steps {
    /// The thread comes to a segment.
    pub(super) fn begin(&mut self, flow: &mut Flow, waits: &Waits) {
        flow.begin(waits);
        self.begin = flow.row;
        self.rows.clear();
    }

    /// The next access: what it waits for, and the branches before it; nothing if it did not happen.
    pub(super) fn access(&mut self, flow: &mut Flow, waits: &Waits, happens: bool) -> Option<(u8, Branches)> {
        let number = self.rows.len();
        self.rows.push(flow.row);
        if !happens {
            return None;
        }
        let in_superblock = match u64::from(waits.producers[number]) {
            0 => 0,
            back => key(self.row(number as u64, back), false),
        };
        let links = waits.links().0.iter().filter(|link| usize::from(link.number) == number);
        let from = links.map(|link| flow.from(link.register)).fold(in_superblock, u64::max);
        let producer = back_to(flow.row, from);
        let branches = flow.take_branches();
        flow.row += 1;
        Some((producer, branches))
    }

    /// The segment's first accesses were skipped, or some in its middle: nothing is known to wait for them.
    pub(super) fn skip(&mut self, part: Range<usize>) {
        if part.start == 0 {
            self.begin = 0;
            self.rows.clear();
        }
        self.rows.resize(part.end, 0);
    }

    /// The thread has come to the segment's end.
    pub(super) fn finish(&self, flow: &mut Flow, waits: &Waits) {
        flow.finish(waits, |back| self.row(self.rows.len() as u64, back));
    }

    /// The row of the access so far back from one of the segment.
    fn row(&self, number: u64, back: u64) -> u64 {
        match number.checked_sub(back) {
            Some(number) => self.rows.get(number as usize).copied().unwrap_or(0),
            None => self.begin.saturating_sub(back - number),
        }
    }
}

#[cfg(test)]
#[path = "flow_tests.rs"]
mod tests;
