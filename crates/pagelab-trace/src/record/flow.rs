//! Dependencies of a thread's accesses and branches: the loads that their registers depend on, tracked from segment to
//! segment.
//!
//! For each segment the tool reports what its addresses, branches and registers depend on: accesses of the same
//! superblock, or registers at the segment's entry. So one load per register is sufficient: the youngest that its value
//! depends on. But a load whose address is known at once, such as a reload of a spilled register, counts as older: it
//! completes early, and would hide the load that really determines the time. Values are not tracked through memory.

use std::ops::Range;

use super::protocol::{OriginRecord, REGISTERS, SegmentRecord};
use crate::format::waits_of;
use crate::{Branches, Maker};

/// The first row of a thread; beyond the reach of row 0, which means no load.
const FIRST_ROW: u64 = 2 * (Maker::REACH + 1);

/// A load whose address is not known at once counts as younger by this many accesses than one whose address is. That is
/// about the number in a reorder window, after which a load has completed in any case.
const LATER: u64 = 64;

/// Number of slots; a power of two, so that no index is out of range.
const SLOTS: usize = 64;
/// Slot for values that never depend on a load.
const NOTHING: u8 = SLOTS as u8 - 1;
/// Slot for the branches since the last access.
const BRANCHES: u8 = SLOTS as u8 - 2;
/// Slot for the branch at the end of the executed segment; it depends on nothing if there is none.
const BRANCH: u8 = SLOTS as u8 - 3;
/// Slot that is never read.
const UNREAD: u8 = SLOTS as u8 - 4;
/// Maximum number of registers that share the branch's dependency; others have links of their own. Tested values often
/// have the same dependency as the flags.
const LIKE_BRANCH: usize = 2;
// Half as many again for exchanges. Only if nearly all registers are permuted, which no code does, must the last slot
// serve for several.
const _: () = assert!(REGISTERS + REGISTERS / 2 <= UNREAD as usize);

/// Dependencies of a thread's registers and branches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    /// Number of its accesses so far, starting at [`FIRST_ROW`].
    row: u64,
    /// For each register, the [`key`] of the load that its value depends on.
    from: [u64; SLOTS],
    /// Branches since the last access.
    branches: Branches,
    /// Address at which the program continues if it does not take the branch that it has just reached; 0 without a
    /// branch.
    fall_through: u64,
}

impl Default for Flow {
    fn default() -> Self {
        let branches = Branches::NONE;
        Self { row: FIRST_ROW, from: [0; SLOTS], branches, fall_through: 0 }
    }
}

/// Dependencies of a segment's accesses, and the segment's effect on a [`Flow`].
#[derive(Clone, Debug)]
pub(super) struct Waits {
    /// Address of its first instruction; 0 if it continues within an instruction.
    begins: u64,
    /// Fall-through address of the conditional branch at its end; 0 if there is none.
    falls_through_to: u64,
    /// Registers with the same dependency as the branch at its end, as flags usually have; [`UNREAD`] in unused
    /// elements.
    like_branch: [u8; LIKE_BRANCH],
    accesses: u16,
    /// Links of accesses' addresses, then of moves to registers and to the branch; each link is from a register at the
    /// entry.
    links: Box<[Link]>,
    /// How many of the links are for addresses.
    addresses: u16,
    /// Dependencies on loads, which apply after the moves.
    loads: Box<[FromLoad]>,
    /// For each access, distance to the load of the same superblock that it depends on; 0: none in reach.
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

/// A dependency of an access (by its number in the segment), of a register at the segment's end or of the branch, on a
/// register at the segment's entry.
#[derive(Clone, Copy, Debug)]
struct Link {
    number: u16,
    register: u8,
    /// A dependency on several registers has several consecutive links.
    is_last: bool,
}

/// A dependency of a register at a segment's end, or of the branch, on a load.
#[derive(Clone, Copy, Debug)]
struct FromLoad {
    /// Distance to the load in accesses, from the segment's end.
    back: u16,
    register: u8,
    is_late: bool,
    /// Whether it also depends on registers, which have links.
    has_links: bool,
}

impl FromLoad {
    fn new((register, origin): (u8, OriginRecord)) -> Self {
        Self { back: origin.back, register, is_late: !origin.is_early(), has_links: origin.registers != 0 }
    }
}

/// The links from all registers that something depends on.
fn links(number: u16, registers: u64) -> impl Iterator<Item = Link> {
    let last = u64::BITS - 1 - registers.max(1).leading_zeros();
    bits(registers).map(move |register| Link { number, register, is_last: u32::from(register) == last })
}

/// Orders simultaneous moves between registers so that executing them one after the other has the same result. Where
/// that is impossible, as in an exchange, additional slots save overwritten values.
fn sequentialize(mut moves: Vec<(u8, u64)>) -> Vec<(u8, u64)> {
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
        for (to, from) in sequentialize(moves.map(|(to, origin)| (to, origin.registers)).collect()) {
            // Without any dependency, it copies the slot that never depends on a load.
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

    /// The constant parts of the words of [`waits_of`].
    pub(super) fn words(&self) -> impl Iterator<Item = u32> + '_ {
        self.producers.iter().map(|&producer| producer.into())
    }

    /// The links of addresses, and those of moves.
    #[inline(always)]
    fn links(&self) -> (&[Link], &[Link]) {
        self.links.split_at_checked(self.addresses.into()).unwrap_or_default()
    }
}

/// The positions of a mask's bits.
fn bits(mut mask: u64) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (bit < u64::BITS).then_some(bit as u8)
    })
}

/// Priority of a load, by its row: of two loads, the one with the greater key counts; 0 for no load.
#[inline(always)]
fn key(row: u64, is_late: bool) -> u64 {
    let late = u64::from(is_late);
    if row == 0 { 0 } else { (row + LATER * late) << 1 | late }
}

/// The distance from a row to a load, as a byte.
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
    /// Counts accesses without known dependencies: the kernel's, fetches.
    pub(super) fn skip(&mut self, accesses: usize) {
        self.row += accesses as u64;
    }

    /// Forgets the dependencies of registers.
    pub(super) fn forget(&mut self) {
        *self = Self { row: self.row, ..Self::default() };
    }

    /// Completes the words of a segment's accesses, which are the first elements of `words`.
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
                    // Stored as a whole, since a partial store would delay the following load.
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

    /// The [`key`] of the load that a register depends on.
    #[inline(always)]
    fn from(&self, register: u8) -> u64 {
        self.from[usize::from(register) % SLOTS]
    }

    /// Begins a segment: determines whether the previous branch was taken.
    #[inline(always)]
    fn begin(&mut self, waits: &Waits) {
        if self.fall_through != 0 {
            self.branches.push(waits.begins != self.fall_through);
        }
    }

    /// Takes the branches before the next access.
    #[inline(always)]
    fn take_branches(&mut self) -> Branches {
        let mut branches = std::mem::take(&mut self.branches);
        branches.wait_for(back_to(self.row, std::mem::take(&mut self.from[usize::from(BRANCHES)])).into());
        branches
    }

    /// Ends a segment; `row_of` maps a distance from the segment's end to an access's row, or to 0 if it was skipped.
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

/// A segment that is executed access by access, since some accesses may not happen.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// The thread's row at the segment's start.
    begin: u64,
    /// The row of each access; for one that did not happen, the row of the next.
    rows: Vec<u64>,
}

impl Steps {
    /// Begins a segment.
    pub(super) fn begin(&mut self, flow: &mut Flow, waits: &Waits) {
        flow.begin(waits);
        self.begin = flow.row;
        self.rows.clear();
    }

    /// The next access: what it depends on, and the branches before it; none if it did not happen.
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

    /// Skips accesses at the segment's start or in its middle: nothing is known to depend on them.
    pub(super) fn skip(&mut self, part: Range<usize>) {
        if part.start == 0 {
            self.begin = 0;
            self.rows.clear();
        }
        self.rows.resize(part.end, 0);
    }

    /// Ends the segment.
    pub(super) fn finish(&self, flow: &mut Flow, waits: &Waits) {
        flow.finish(waits, |back| self.row(self.rows.len() as u64, back));
    }

    /// The row of the access at distance `back` from access `number` of the segment.
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
