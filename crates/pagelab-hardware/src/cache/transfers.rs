//! Transfers of lines between cores, which wait for each other.
//!
//! Models: a line has one owner. A request that takes a line from other cores' caches, or that invalidates their
//! copies, is a transfer. A request for a line whose transfer is in progress waits until it ends: requests queue in the
//! order of their times. A store that a core makes while its own transfer of the line is in progress merges with it
//! in the core's fill buffer; a locked read-modify-write does not. So n cores that write one line share its
//! transfers: each of latency s, they make min(n ÷ (z + s), 1 ÷ s) writes per cycle if each waits z cycles between its
//! own.
//! Source: Molka, Hackenberg, Schöne, Nagel, "Cache Coherence Protocol and Memory Performance of the Intel Haswell-EP
//! Architecture", ICPP 2015, for transfers and their latency by distance; Sorin, Hill, Wood, "A Primer on Memory
//! Consistency and Cache Coherence", chapter 8, for a directory that serves one request per line at a time.
//! Parameters: `machine.cache.cache_to_cache_latency_cycles`, `upgrade_latency_cycles`, `far_cores`; the clocks of CPUs
//! may differ by `engine.sync_quantum_cycles`.
//! Stats: `coherence.queued`, `coherence.queue_cycles`, and its parts by who waited.
//! Deviations: bulk writes, prefetches and fetches of instructions take lines without a place in the queue. Walks that
//! miss the first-level TLB make their requests at the time of the access, even if CPUs whose clocks are behind will
//! ask for the line at an earlier time. Until a line is contended, no order is kept.
//!
//! # Order
//! A CPU may run ahead of others by the quantum, but not with accesses to *contended* lines: those that have moved
//! twice within twice the sum of the quantum and the longest transfer. Before such an access, a CPU ends its turn,
//! unless no other CPU's clock is behind its own. All other accesses stay free of this. `Hierarchy::may_be_contended`
//! asks one bit, which several lines share, so it is cheap enough for each access.

use pagelab_base::addr::LineAddr;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::CoreId;
use std::collections::BTreeMap;

/// Recent transfers of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineTransfers {
    /// Time of the last request.
    pub(super) asked: Cycles,
    /// When the last transfer ends.
    pub(super) until: Cycles,
    /// When the line last moved.
    pub(super) moved: Cycles,
    /// Whether it had moved shortly before that.
    pub(super) contended: bool,
}

/// Transfers of all lines that moved recently.
#[derive(Clone, Debug)]
pub(super) struct Transfers {
    /// Time of the current request.
    pub(super) now: Cycles,
    /// Two moves within this time make a line contended.
    pub(super) window: Cycles,
    pub(super) lines: BTreeMap<LineAddr, LineTransfers>,
    /// The last transfer of each core and its end.
    pub(super) own: Vec<(LineAddr, Cycles)>,
    /// Number of `lines` at which those that moved long ago are dropped.
    pub(super) most_lines: usize,
}

/// Bit of a line in the mask of contended lines.
#[inline(always)]
pub(super) fn bit(line: LineAddr) -> u64 {
    1 << ((line.0 ^ line.0 >> 6 ^ line.0 >> 12) & 63)
}

impl Transfers {
    /// Drops lines that have not moved for the window's time. Returns the bits of the contended ones.
    pub(super) fn drop_old(&mut self) -> u64 {
        let since = self.now.saturating_sub(self.window);
        self.lines.retain(|_, line| line.moved >= since || line.until > self.now);
        self.most_lines = 2 * self.lines.len().max(64);
        self.lines.iter().filter(|(_, at)| at.contended).fold(0, |bits, (&line, _)| bits | bit(line))
    }

    /// Places a request in the queue of its line. Returns how long it waits for transfers before it, and whether the
    /// line is contended. A request that does not move the line waits, but lets nothing wait.
    pub(super) fn queue(&mut self, core: CoreId, line: LineAddr, latency: Cycles, moves: bool) -> (Cycles, bool) {
        let Self { now, window, .. } = *self;
        let Some(at) = self.lines.get_mut(&line) else {
            if moves {
                let until = now + latency;
                self.own[core] = (line, until);
                self.lines.insert(line, LineTransfers { asked: now, until, moved: now, contended: false });
            }
            return (Cycles::ZERO, false);
        };
        // A transfer that was requested at a later time, by a CPU that ran ahead, does not delay this one.
        let wait = if at.asked <= now { at.until.saturating_sub(now) } else { Cycles::ZERO };
        if moves {
            let recent = at.moved + window >= now;
            let until = now + wait + latency;
            *at = LineTransfers {
                asked: at.asked.max(now),
                until: at.until.max(until),
                moved: at.moved.max(now),
                contended: recent,
            };
            self.own[core] = (line, until);
        }
        (wait, at.contended)
    }
}
