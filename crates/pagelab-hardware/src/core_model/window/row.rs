//! Rows of accesses, most of which never have to wait. Those are made in a loop that keeps its state in the host's
//! registers. It has the same effect as `WindowState::enter_window` and `WindowState::access`.

use super::WindowState;
use super::entered::{Times, is_load};
use crate::core_model::{CoreTime, Data, IncomingAccess, ROW, Row, Stall};
use pagelab_base::cycles::Cycles;

impl WindowState {
    /// See [`Timing::make_all`](super::Timing::make_all).
    #[inline(always)]
    pub(super) fn make_all(&mut self, row: &Row, mut at: CoreTime) -> Stall {
        let mut missed = [0; ROW];
        if let Some(unit) = &mut self.branches {
            unit.predict_all(row.accesses, row.branches, &mut missed);
        }
        let (mut number, mut stall) = (0, Stall::default());
        loop {
            number += self.make_without_stalls(row, &missed, number, &mut at);
            let Some(access) = row.accesses.get(number) else { return stall };
            let of_one = self.make_with_stall(row, number, missed[number].into(), at);
            at.now += of_one.sum() + self.enters(at, access.gap.into());
            at.instructions += u64::from(access.gap);
            stall += of_one;
            number += 1;
        }
    }

    /// Makes one access of the row, after `missed` mispredicted branches.
    #[inline(never)]
    fn make_with_stall(&mut self, row: &Row, number: usize, missed: u64, at: CoreTime) -> Stall {
        let branches = row.branches.get(number).copied().unwrap_or_default();
        let incoming = IncomingAccess {
            access: &row.accesses[number],
            again: false,
            has_dependencies: row.has_dependencies,
            branches,
        };
        let mut stall = self.enter_window(&incoming, missed, at);
        let data = Data { latency: row.found[number].latency, line: row.found[number].line, traffic: None };
        stall += self.data_stall(data, CoreTime { now: at.now + stall.sum(), ..at });
        stall
    }

    /// Makes accesses of a row from `first` on. Stops before an access that may have to wait until it is in the window,
    /// for which another must leave, or whose line is not in the first-level cache. Returns their number and advances
    /// `at`.
    #[inline(always)]
    fn make_without_stalls(&mut self, row: &Row, missed: &[u8; ROW], first: usize, at: &mut CoreTime) -> usize {
        // In a window of one entry, each access must leave before the next enters.
        if self.smt_thread.shares_core() || self.entered.room.window == 1 {
            return 0;
        }
        let is_serial = self.is_serial(row.has_dependencies);
        let Self { retire_rate, entered, lines, pages, .. } = self;
        let (retire_rate, l1_latency, waits_for_stores) = (*retire_rate, lines.l1_latency, entered.waits_for_stores());
        // From this time on nothing is in flight.
        let last = lines.last().max(pages.last());
        let (mut progress, mut instructions, mut now) = (self.progress, at.instructions, at.now);
        let beyond = now - retire_rate.base_cycles(instructions);
        let mut made = 0;
        for ((access, found), of_one) in row.accesses[first..].iter().zip(&row.found[first..]).zip(&missed[first..]) {
            let mut next = progress.with(access);
            let (loads, stores) = (is_load(access), access.kind.writes());
            if (*of_one > 0) | next.may_stall(loads, stores) | (found.latency > l1_latency) {
                break;
            }
            instructions += u64::from(access.gap);
            now = beyond + retire_rate.base_cycles(instructions);
            let distance = next.distance(access, is_serial);
            let begin = now.max(entered.complete(&next, distance));
            let mut ready = begin;
            let mut line = Times { complete: begin + found.latency, translation: Cycles::ZERO };
            if begin < last {
                ready = pages.arrival(begin, found.line);
                line = lines.hit_alone(found.line, ready + found.latency, ready - begin);
            }
            let is_waited_for = loads | waits_for_stores;
            let times = if is_waited_for { line } else { Times { complete: ready, translation: ready - begin } };
            entered.note(&mut next, loads, (times, times), now, distance);
            if stores {
                entered.note_store(&next, line.complete);
            }
            progress = next;
            made += 1;
        }
        self.progress = progress;
        *at = CoreTime { instructions, now };
        made
    }
}
