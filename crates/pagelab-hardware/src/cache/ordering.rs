//! Requests in the order of the transfers of their lines: see [`super::transfers`].

use super::config::FarCores;
use super::transfers::{Transfers, bit};
use super::{CoreCacheStats, Hierarchy, HitLevel, RequestOutcome, Requester};
use pagelab_base::addr::LineAddr;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::CoreId;
use std::collections::BTreeMap;

impl Hierarchy {
    /// From now on, transfers of lines between cores wait for each other; `quantum` is how far the clocks of CPUs may
    /// differ.
    pub fn order_transfers(&mut self, quantum: Cycles) {
        let cores = self.private.len();
        let longest = self.latency[HitLevel::Remote as usize] + self.distance.iter().max().unwrap_or(&0);
        self.transfers = (cores > 1).then(|| {
            Box::new(Transfers {
                now: Cycles::ZERO,
                window: 2 * (quantum + Cycles::from(longest)),
                lines: BTreeMap::new(),
                own: vec![(LineAddr(u64::MAX), Cycles::ZERO); cores],
                most_lines: 64,
            })
        });
    }

    /// Sets how far apart cores are; `numbers` has the number of each core within the machine.
    pub fn set_distances(&mut self, numbers: &[usize], far: &[FarCores]) {
        let near = self.latency[HitLevel::Remote as usize];
        let additional = |a: usize, b: usize| {
            let apart = |far: &&FarCores| a / far.cores as usize != b / far.cores as usize;
            far.iter().filter(apart).map(|far| far.latency_cycles - near).max().unwrap_or(0)
        };
        self.distance = if far.is_empty() {
            Vec::new()
        } else {
            numbers.iter().flat_map(|&a| numbers.iter().map(move |&b| additional(a, b))).collect()
        };
    }

    /// Whether transfers wait for each other, so that requests need a time.
    #[inline(always)]
    pub fn orders_transfers(&self) -> bool {
        self.transfers.is_some()
    }

    /// Sets the time of the following requests in the queues of transfers.
    #[inline(always)]
    pub fn set_request_time(&mut self, now: Cycles) {
        if let Some(transfers) = &mut self.transfers {
            transfers.now = now;
        }
    }

    /// Whether a line may be contended; false if it is not.
    #[inline(always)]
    pub fn may_be_contended(&self, line: LineAddr) -> bool {
        self.contended & bit(line) != 0
    }

    /// Whether any line may be contended.
    #[inline(always)]
    pub fn any_contended(&self) -> bool {
        self.contended != 0
    }

    /// Whether a request for a line, made now, must wait for CPUs whose clocks are behind: `others` is the smallest
    /// clock of the other CPUs.
    #[inline(always)]
    pub fn must_defer(&mut self, line: LineAddr, others: Cycles) -> bool {
        self.may_be_contended(line) && self.is_ahead_of(line, others)
    }

    #[cold]
    fn is_ahead_of(&mut self, line: LineAddr, others: Cycles) -> bool {
        let Some(transfers) = self.transfers.as_mut().filter(|transfers| transfers.now > others) else { return false };
        let at = transfers.lines.get(&line);
        let contended = at.is_some_and(|at| at.contended && at.moved + transfers.window >= transfers.now);
        if !contended {
            self.contended = transfers.drop_old();
        }
        contended
    }

    /// A store that merges with a transfer of its line that the core waits for.
    #[cold]
    pub(super) fn merge(&mut self, core: CoreId, line: LineAddr, requester: Requester) -> Option<RequestOutcome> {
        let transfers = self.transfers.as_ref()?;
        let (own, until) = transfers.own[core];
        // A core hides the latency of a hit.
        let hit = transfers.now + Cycles::from(self.l1_latency());
        (own == line && hit < until).then(|| {
            self.private[core].stats.served[requester as usize][HitLevel::L1 as usize] += 1;
            RequestOutcome { served: HitLevel::L1, cycles: self.l1_latency() }
        })
    }

    /// Makes the next store of a core to a line wait for a transfer of its own.
    #[cold]
    pub(super) fn do_not_merge(&mut self, core: CoreId, line: LineAddr) {
        if let Some(transfers) = &mut self.transfers
            && transfers.own[core].0 == line
        {
            transfers.own[core].1 = Cycles::ZERO;
        }
    }

    /// Requests of kernel code on a core that waited for transfers of their lines so far, and the cycles.
    pub fn kernel_queue(&self, core: CoreId) -> (u64, u64) {
        let CoreCacheStats { queued, queue_cycles, .. } = &self.private[core].stats;
        (queued[Requester::Kernel as usize], queue_cycles[Requester::Kernel as usize])
    }

    /// How long a request that takes `latency` waits for transfers of its line before it.
    #[cold]
    pub(super) fn wait_in_queue(
        &mut self,
        core: CoreId,
        line: LineAddr,
        requester: Requester,
        latency: u32,
        moves: bool,
    ) -> u32 {
        let Some(transfers) = &mut self.transfers else { return 0 };
        let (wait, contended) = transfers.queue(core, line, latency.into(), moves);
        if contended {
            self.contended |= bit(line);
        }
        if transfers.lines.len() > transfers.most_lines {
            self.contended = transfers.drop_old();
        }
        let stats = &mut self.private[core].stats;
        stats.queued[requester as usize] += u64::from(wait > Cycles::ZERO);
        stats.queue_cycles[requester as usize] += wait.0;
        u32::try_from(wait.0).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_support::sandy_bridge;
    use super::*;

    const LINE: LineAddr = LineAddr(5);
    /// Latency of a transfer, as in the configuration.
    const TRANSFER: u32 = 60;

    fn caches(cores: usize, far: &[FarCores]) -> Hierarchy {
        let mut caches = Hierarchy::new(&sandy_bridge(), cores, 1).unwrap();
        caches.set_distances(&(0..cores).collect::<Vec<_>>(), far);
        caches.order_transfers(Cycles(1000));
        caches
    }

    /// Cycles of a store at a time.
    fn store(caches: &mut Hierarchy, core: usize, at: u64) -> u32 {
        caches.set_request_time(Cycles(at));
        caches.access(CoreId(core), LINE, true, Requester::Data).cycles
    }

    #[test]
    fn a_request_waits_for_the_transfers_before_it() {
        let mut caches = caches(4, &[]);
        store(&mut caches, 0, 0);
        assert_eq!(store(&mut caches, 1, 1000), TRANSFER);
        // Until 1060; then until 1120 and 1180.
        assert_eq!(store(&mut caches, 2, 1010), 50 + TRANSFER);
        assert_eq!(store(&mut caches, 3, 1110), 10 + TRANSFER);
        assert_eq!(store(&mut caches, 0, 1180), TRANSFER);
        let total = caches.stats().total();
        assert_eq!((total.queued, total.queue_cycles), ([2, 0, 0], [60, 0, 0]));
        // A request of an earlier time, by a CPU whose clock is behind, does not wait.
        assert_eq!(store(&mut caches, 1, 1150), TRANSFER);
    }

    #[test]
    fn takers_of_a_lock_wait_for_its_line_as_a_closed_queue() {
        // n cores that work z cycles and then need the line for s wait n s - (z + s) each time, or not at all.
        let s = u64::from(TRANSFER);
        for (cores, think) in [(2, 30), (4, 100), (4, 1000), (8, 100), (8, 400)] {
            let mut caches = caches(cores, &[]);
            let mut ready: Vec<u64> = (0..cores as u64).collect();
            let rounds = 200 * cores;
            for _ in 0..rounds {
                let core = (0..cores).min_by_key(|&core| ready[core]).expect("there are cores");
                caches.set_request_time(Cycles(ready[core]));
                let spent = caches.access_locked(CoreId(core), LINE, Requester::Kernel).cycles;
                ready[core] += u64::from(spent) + think;
            }
            let cycle = think + s + u64::from(caches.locked_extra);
            let expected = (cores as u64 * s).saturating_sub(cycle) * rounds as u64;
            let (_, waited) = (0..cores)
                .map(|core| caches.kernel_queue(CoreId(core)))
                .fold((0, 0), |sum, queue| (sum.0 + queue.0, sum.1 + queue.1));
            let apart = waited.abs_diff(expected);
            assert!(apart <= 2 * cores as u64 * cores as u64 * s, "{cores} cores, {think}: {waited}, not {expected}");
        }
    }

    #[test]
    fn a_store_merges_with_its_cores_transfer_and_a_locked_one_does_not() {
        let mut caches = caches(2, &[]);
        store(&mut caches, 0, 0);
        store(&mut caches, 1, 100);
        store(&mut caches, 0, 110);
        // Core 1 has asked for the line until 160 and core 0 until 220.
        assert_eq!(store(&mut caches, 1, 120), caches.l1_latency());
        caches.set_request_time(Cycles(130));
        let locked = caches.access_locked(CoreId(1), LINE, Requester::Kernel);
        assert_eq!((locked.served, locked.cycles), (HitLevel::Remote, 220 - 130 + TRANSFER + 18));
    }

    #[test]
    fn a_line_is_contended_while_it_moves_often() {
        let mut caches = caches(2, &[]);
        store(&mut caches, 0, 0);
        store(&mut caches, 1, 100);
        assert!(!caches.must_defer(LINE, Cycles(50)), "it has moved once");
        store(&mut caches, 0, 200);
        assert!(caches.must_defer(LINE, Cycles(150)), "another CPU is behind");
        assert!(!caches.must_defer(LINE, Cycles(200)), "none is behind");
        assert!(!caches.must_defer(LineAddr(6), Cycles(150)));
        // Twice the quantum and a transfer later.
        caches.set_request_time(Cycles(2321));
        assert!(!caches.must_defer(LINE, Cycles(150)));
        assert!(!caches.any_contended());
        // Moves that far apart do not count together.
        store(&mut caches, 1, 5000);
        assert!(!caches.must_defer(LINE, Cycles(0)));
    }

    #[test]
    fn distance_prolongs_transfers_and_upgrades() {
        let far = [FarCores { cores: 2, latency_cycles: 90 }, FarCores { cores: 4, latency_cycles: 300 }];
        let mut caches = caches(8, &far);
        for (from, to, latency) in [(0, 1, 60), (1, 2, 90), (2, 3, 60), (3, 4, 300), (4, 7, 90)] {
            store(&mut caches, from, 10_000 * from as u64);
            let at = 10_000 * from as u64 + 5000;
            assert_eq!(store(&mut caches, to, at), latency, "{from} to {to}");
        }
        // Cores 7 and 0 share the line; core 0 upgrades.
        caches.set_request_time(Cycles(200_000));
        assert_eq!(caches.access(CoreId(0), LINE, false, Requester::Data).cycles, 300);
        assert_eq!(store(&mut caches, 0, 300_000), caches.l1_latency() + 43 + 240);
    }
}
