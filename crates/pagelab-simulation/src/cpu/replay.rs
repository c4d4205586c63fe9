//! The loop over a run's accesses: what a core does for its program.

use crate::machine::cpu::Filter;
use crate::machine::simulation::{Simulation, StackOutcome};
use crate::machine::task::{CallsAhead, SplitAccess};
use pagelab_base::addr::{LINE_BYTES, LINE_SHIFT, LineAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::ids::CpuId;
use pagelab_base::page_fault::{Intent, Origin, PageFault};
use pagelab_base::translation::Translation;
use pagelab_hardware::cache::prefetch::ObservedAccess;
use pagelab_hardware::cache::{CodeOwner, HitLevel, Requester};
use pagelab_hardware::core_model::clock::CpuClock;
use pagelab_hardware::core_model::{CoreModel, DataLocation, Timing};
use pagelab_kernel::fault::FaultOutcome;
use pagelab_run::observe::RefusedAccess;
use pagelab_trace::{Access, AccessKind, Branches};
use pagelab_translate::counters::place_index;
use pagelab_translate::walker::{Faulted, TranslationRequest};

/// Whether an access was completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AccessOutcome {
    Done,
    /// A fault handler blocked or used up the turn; the access must be retried.
    Again,
}

/// Result of a translation.
enum TranslationOutcome {
    Found(Translation),
    Refused,
    Again,
}

impl Simulation {
    /// Makes the accesses of a run one after the other; returns how many. Stops when a fault handler blocks and, with
    /// `MANY`, when the clock passes `limit`. `branches` has the branches before each access; empty if they are not
    /// known.
    pub(crate) fn replay<const MANY: bool>(
        &mut self,
        cpu: CpuId,
        accesses: &[Access],
        branches: &[Branches],
        limit: Cycles,
    ) -> Result<usize, EngineError> {
        let mut at = 0;
        let looks_ahead = self.looks_ahead(cpu);
        while at < accesses.len() {
            let fast = self.replay_fast::<MANY>(cpu, &accesses[at..], branches.get(at..).unwrap_or_default(), limit);
            self.replay.fast_path_accesses += fast as u64;
            if self.replay.calls_ahead && fast > 0 {
                self.scheduler.cpus[cpu].task.ahead = CallsAhead::default();
            }
            at += fast;
            // A turn makes at least one access, even if it is over before.
            if MANY && fast > 0 && self.scheduler.turn_is_over(cpu, limit) {
                break;
            }
            let Some(access) = accesses.get(at) else { break };
            let this_cpu = &self.scheduler.cpus[cpu];
            if this_cpu.filter.answers(access) {
                let stop = StopCondition { clock: &this_cpu.clock, limit };
                let hits = scan::<MANY, _>(&accesses[at..], &this_cpu.filter, &stop);
                self.count_filtered(
                    cpu,
                    &accesses[at..at + hits.accesses],
                    branches.get(at..).unwrap_or_default(),
                    &hits,
                );
                at += hits.accesses;
            } else {
                if self.replay.calls_ahead && self.call_ahead::<MANY>(cpu, access, limit)? {
                    break;
                }
                if looks_ahead {
                    self.look_ahead(cpu, accesses, at);
                }
                let this_cpu = &mut self.scheduler.cpus[cpu];
                if this_cpu.clock.models_dependencies() {
                    let branches = branches.get(at).copied().unwrap_or_default();
                    let again = this_cpu.task.is_within_access();
                    if MANY {
                        self.hw.caches.set_request_time(this_cpu.clock.now());
                    }
                    this_cpu.clock.begin_access(access, branches, again);
                }
                let flow = if self.scheduler.cpus[cpu].is_plain(access) {
                    self.plain_access::<MANY>(cpu, access, limit)
                } else {
                    self.access::<MANY>(cpu, access, limit)
                };
                if flow? == AccessOutcome::Again {
                    break;
                }
                at += 1;
                let task = &mut self.scheduler.cpus[cpu].task;
                (task.ahead, task.deferred) = (CallsAhead::default(), false);
            }
            if MANY && self.scheduler.turn_is_over(cpu, limit) {
                break;
            }
        }
        Ok(at)
    }

    /// Makes accesses on the fast path; returns how many.
    #[inline(always)]
    fn replay_fast<const MANY: bool>(
        &mut self,
        cpu: CpuId,
        accesses: &[Access],
        branches: &[Branches],
        limit: Cycles,
    ) -> usize {
        // A turn that is over before it begins makes one access, in the general code.
        let Some(code) = self.replay.fast_path.filter(|_| !(MANY && self.scheduler.woke)) else { return 0 };
        let replay = if MANY { code.with_other_cpus } else { code.alone };
        if !self.hw.check {
            return replay(self, cpu, accesses, branches, limit);
        }
        self.replay_checked::<MANY>(replay, cpu, accesses, branches, limit)
    }

    /// Counts accesses that the filter answered.
    #[inline]
    fn count_filtered(&mut self, cpu: CpuId, accesses: &[Access], branches: &[Branches], hits: &Hits) {
        let mark = hits.by_kernel.then(|| self.scheduler.cpus[cpu].mark(&self.hw));
        let cpu = &mut self.scheduler.cpus[cpu];
        cpu.counters.accesses += hits.accesses as u64;
        cpu.counters.filtered += hits.accesses as u64;
        cpu.counters.writes += hits.writes;
        if cpu.clock.models_dependencies() {
            let hit = DataLocation { latency: self.hw.caches.l1_latency().into(), line: cpu.filter.physical_line() };
            cpu.clock.make_hits(accesses, branches, hit);
        } else {
            hits.pass(&mut cpu.clock);
        }
        if let Some(mark) = mark {
            let by_kernel = &mut cpu.counters.by_kernel;
            by_kernel.accesses += hits.accesses as u64;
            by_kernel.refs[place_index(Some(HitLevel::L1))] += hits.accesses as u64;
            cpu.count_by_kernel(&self.hw, &mark);
        }
    }

    /// [`Self::access`] for the common case, see [`Cpu::is_plain`].
    #[inline(always)]
    fn plain_access<const MANY: bool>(
        &mut self,
        cpu: CpuId,
        access: &Access,
        limit: Cycles,
    ) -> Result<AccessOutcome, EngineError> {
        let (va, write) = (VirtAddr(access.vaddr), access.kind.writes());
        if MANY && self.hw.caches.any_contended() && self.defers(cpu, va, write) {
            return Ok(AccessOutcome::Again);
        }
        let this_cpu = &self.scheduler.cpus[cpu];
        let core = this_cpu.core;
        let mut found = this_cpu.filter.translation(va, write);
        if found.is_none() {
            let held = self.hw.units[core].l1d.look_up(this_cpu.asid, va, Origin::Program);
            found = held.filter(|held| !write || held.stores());
            if found.is_none() {
                match self.translate_after_l1_miss::<MANY>(cpu, access, held.is_none(), limit)? {
                    TranslationOutcome::Found(translation) => found = Some(translation),
                    TranslationOutcome::Again => return Ok(AccessOutcome::Again),
                    TranslationOutcome::Refused => {}
                }
            }
        }
        match found {
            Some(translation) => {
                self.touch(cpu, ObservedAccess { pc: access.pc, va, translation }, write, false);
            }
            None => self.refuse(cpu, access),
        }
        let this_cpu = &mut self.scheduler.cpus[cpu];
        this_cpu.counters.accesses += 1;
        this_cpu.counters.writes += u64::from(write);
        this_cpu.clock.retire(access.gap.into());
        Ok(AccessOutcome::Done)
    }

    /// Makes one access of any kind.
    #[inline(never)]
    fn access<const MANY: bool>(
        &mut self,
        cpu: CpuId,
        access: &Access,
        limit: Cycles,
    ) -> Result<AccessOutcome, EngineError> {
        if !access.maker.is_kernel() {
            return self.make_access::<MANY>(cpu, access, limit);
        }
        let mark = self.scheduler.cpus[cpu].mark(&self.hw);
        self.hw.walks.are_by_kernel = true;
        let flow = self.make_access::<MANY>(cpu, access, limit);
        self.hw.walks.are_by_kernel = false;
        self.scheduler.cpus[cpu].count_by_kernel(&self.hw, &mark);
        flow
    }

    fn make_access<const MANY: bool>(
        &mut self,
        cpu: CpuId,
        access: &Access,
        limit: Cycles,
    ) -> Result<AccessOutcome, EngineError> {
        let fetch = access.kind == AccessKind::Fetch;
        let fetches_lines = self.scheduler.cpus[cpu].filter.fetches_lines();
        if access.pc == 0 && fetches_lines && !access.maker.is_kernel() {
            let what = "the program's source does not know the addresses of its instructions, which an instruction cache \
                        needs; use a source that does, such as a recording or a workload, or leave l1i out";
            return Err(EngineError::config("machine.cache.l1i", what));
        }
        if access.pc == 0 {
            // The trace does not know the instruction; further accesses without one pass the filter.
            self.scheduler.cpus[cpu].filter.code_page = 0;
        } else if self.scheduler.cpus[cpu].enters_code(access) {
            match self.translate::<MANY>(cpu, VirtAddr(access.pc), access.pc, Intent::Fetch, limit)? {
                TranslationOutcome::Found(translation) => {
                    if fetches_lines {
                        self.fetch_line(cpu, translation.address(VirtAddr(access.pc)).line());
                    }
                    self.scheduler.cpus[cpu].filter.learn_code(access.pc);
                }
                // A program counter without a mapping is reported at its own access, if there is one.
                TranslationOutcome::Refused => self.scheduler.cpus[cpu].filter.learn_refused_code(access.pc),
                TranslationOutcome::Again => return Ok(AccessOutcome::Again),
            }
        }
        let mut refused = false;
        if fetch {
            match self.translate::<MANY>(cpu, VirtAddr(access.vaddr), access.pc, Intent::Fetch, limit)? {
                TranslationOutcome::Found(_) => {}
                TranslationOutcome::Refused => refused = true,
                TranslationOutcome::Again => return Ok(AccessOutcome::Again),
            }
        } else if self.data::<MANY>(cpu, access, limit, &mut refused)? == AccessOutcome::Again {
            return Ok(AccessOutcome::Again);
        }
        if refused {
            self.refuse(cpu, access);
        }
        let cpu = &mut self.scheduler.cpus[cpu];
        cpu.counters.accesses += 1;
        cpu.counters.writes += u64::from(access.kind.writes());
        cpu.counters.fetches += u64::from(fetch);
        cpu.counters.by_kernel.accesses += u64::from(access.maker.is_kernel());
        cpu.clock.retire(access.gap.into());
        Ok(AccessOutcome::Done)
    }

    /// Fetches a line of the program's code from the instruction cache.
    fn fetch_line(&mut self, cpu: CpuId, line: LineAddr) {
        self.set_time(cpu);
        let this_cpu = &mut self.scheduler.cpus[cpu];
        this_cpu.task.code_line = Some(line);
        let latency = self.hw.caches.fetch_lines(this_cpu.core, line, 1, CodeOwner::Program);
        if latency > Cycles::ZERO {
            this_cpu.clock.wait_for_instructions(latency);
            // An inclusive L3 may have evicted the line of the last data access.
            this_cpu.filter.forget_data();
        }
    }

    /// Loads or stores the data of an access, line by line.
    fn data<const MANY: bool>(
        &mut self,
        cpu: CpuId,
        access: &Access,
        limit: Cycles,
        refused: &mut bool,
    ) -> Result<AccessOutcome, EngineError> {
        let write = access.kind.writes();
        let first = access.vaddr >> LINE_SHIFT;
        let last = (access.vaddr + u64::from(access.size_bytes) - 1) >> LINE_SHIFT;
        let split = last > first && !access.maker.is_kernel();
        let mut line = first + self.scheduler.cpus[cpu].task.split.lines;
        while line <= last {
            let va = VirtAddr(access.vaddr.max(line * LINE_BYTES));
            if MANY && self.hw.caches.any_contended() && self.defers(cpu, va, write) {
                self.scheduler.cpus[cpu].task.split.lines = line - first;
                return Ok(AccessOutcome::Again);
            }
            let translation = match self.scheduler.cpus[cpu].filter.translation(va, write) {
                Some(held) => held,
                None => {
                    let intent = if write { Intent::Store } else { Intent::Load };
                    match self.translate::<MANY>(cpu, va, access.pc, intent, limit)? {
                        TranslationOutcome::Found(found) => found,
                        TranslationOutcome::Refused => {
                            *refused = true;
                            line += 1;
                            continue;
                        }
                        TranslationOutcome::Again => {
                            self.scheduler.cpus[cpu].task.split.lines = line - first;
                            return Ok(AccessOutcome::Again);
                        }
                    }
                }
            };
            let demanded = ObservedAccess { pc: access.pc, va, translation };
            if !access.maker.is_kernel() {
                self.touch(cpu, demanded, write, split);
            } else {
                let served = self.hw.kernel_refs.then(|| self.touch(cpu, demanded, write, split));
                self.scheduler.cpus[cpu].counters.by_kernel.refs[place_index(served)] += 1;
            }
            line += 1;
        }
        self.scheduler.cpus[cpu].task.split = SplitAccess::default();
        Ok(AccessOutcome::Done)
    }

    /// Whether an access is to a contended line and must wait for CPUs whose clocks are behind; the turn is then over.
    /// An access that misses the first-level TLB does not wait.
    #[cold]
    fn defers(&mut self, cpu: CpuId, va: VirtAddr, write: bool) -> bool {
        self.set_request_time(cpu);
        let this_cpu = &mut self.scheduler.cpus[cpu];
        let held = this_cpu.filter.translation(va, write).or_else(|| {
            let held = self.hw.units[this_cpu.core].l1d.look_up(this_cpu.asid, va, Origin::Program);
            held.filter(|held| !write || held.stores())
        });
        let Some(translation) = held else { return false };
        let defers = self.hw.caches.must_defer(translation.address(va).line(), self.scheduler.others);
        this_cpu.task.deferred |= defers;
        self.scheduler.woke |= defers;
        defers
    }

    /// Sets the time of a CPU's next requests in the queues of transfers between cores. A core that overlaps accesses
    /// makes them at the time when the access began.
    #[inline(always)]
    fn set_request_time(&mut self, cpu: CpuId) {
        let clock = &self.scheduler.cpus[cpu].clock;
        if self.hw.caches.orders_transfers() && !clock.models_dependencies() {
            self.hw.caches.set_request_time(clock.now());
        }
    }

    /// Loads or stores a line; `split` if the access has several lines. Returns the level that held the line.
    #[inline(always)]
    fn touch(&mut self, cpu: CpuId, demanded: ObservedAccess, write: bool, split: bool) -> HitLevel {
        let ObservedAccess { va, translation, .. } = demanded;
        self.set_request_time(cpu);
        let this_cpu = &mut self.scheduler.cpus[cpu];
        let line = translation.address(va).line();
        let outcome = self.hw.caches.access(this_cpu.core, line, write, Requester::Data);
        if split {
            this_cpu.counters.count_split_miss(&mut this_cpu.task.split.missed, outcome.served);
        }
        let watched = self.replay.watches_data;
        if watched {
            self.wait_for_watched_data(cpu, outcome.cycles, &demanded);
        } else {
            this_cpu.clock.wait_for_data(outcome.cycles.into(), line.0);
        }
        let this_cpu = &mut self.scheduler.cpus[cpu];
        this_cpu.counters.pieces += 1;
        // Under SRRIP, the first hit after a fill changes the line's prediction. Prefetchers need each access.
        let unproven = self.replay.filter_hits_only && outcome.served != HitLevel::L1
            || watched
            || self.hw.caches.may_be_contended(line);
        let (loads, stores) = (0b0001, 0b0110 * u8::from(write));
        this_cpu.filter.learn(va, translation, if unproven { 0 } else { loads | stores });
        outcome.served
    }

    /// Sets the time of a CPU's next access in the caches.
    #[inline(always)]
    fn set_time(&mut self, cpu: CpuId) {
        if self.hw.caches.is_timed() {
            self.hw.caches.set_time(self.scheduler.cpus[cpu].clock.now());
        }
    }

    /// Records that no mapping allows an access, or a part of it.
    #[cold]
    fn refuse(&mut self, cpu: CpuId, access: &Access) {
        let cpu = &mut self.scheduler.cpus[cpu];
        cpu.counters.refused += 1;
        cpu.filter.forget_data();
        let (vaddr, pc, write) = (access.vaddr, access.pc, access.kind.writes());
        self.observers.note_refused(RefusedAccess { vaddr, pc, write });
    }

    /// [`Self::translate`] for data that has just missed in the first-level TLB; `missed` if there is no entry at all,
    /// not even one that forbids the access.
    #[inline(always)]
    fn translate_after_l1_miss<const MANY: bool>(
        &mut self,
        cpu: CpuId,
        access: &Access,
        missed: bool,
        limit: Cycles,
    ) -> Result<TranslationOutcome, EngineError> {
        self.set_time(cpu);
        self.set_request_time(cpu);
        let (this_cpu, made) = (&self.scheduler.cpus[cpu], self.hw.walks.made);
        let (va, intent) = (VirtAddr(access.vaddr), if access.kind.writes() { Intent::Store } else { Intent::Load });
        let wanted = TranslationRequest {
            cpu,
            core: this_cpu.core,
            space: this_cpu.running(),
            va,
            pc: access.pc,
            intent,
            origin: Origin::Program,
        };
        let mut cycles = Cycles::ZERO;
        let found =
            self.hw.translate_beyond_l1(&mut self.kernels.os.layers, this_cpu.asid, &wanted, missed, &mut cycles);
        self.wait_for_translation(cpu, cycles, found.as_ref().ok().copied(), false);
        if self.observers.profile.is_some() {
            self.profile_translation(cpu, va, access.pc, intent, cycles, found.is_ok() && self.hw.walks.made > made);
        }
        match found {
            Ok(translation) => {
                self.check(&wanted, translation);
                Ok(TranslationOutcome::Found(translation))
            }
            Err(Faulted(fault)) => self.fault_and_translate::<MANY>(cpu, &fault, va, access.pc, intent, limit),
        }
    }

    /// Runs the handler of the fault that the translation of an access raised, and then translates again.
    #[inline(never)]
    fn fault_and_translate<const MANY: bool>(
        &mut self,
        cpu: CpuId,
        fault: &PageFault,
        va: VirtAddr,
        pc: u64,
        intent: Intent,
        limit: Cycles,
    ) -> Result<TranslationOutcome, EngineError> {
        self.scheduler.cpus[cpu].filter.forget_data();
        if !self.kernels.is_backed(fault) {
            if self.observers.profile.is_some() {
                self.profile_miss(cpu, va, pc, intent);
            }
            // An exception waits for everything before it.
            self.scheduler.cpus[cpu].clock.drain();
        }
        self.scheduler.cpus[cpu].task.faulted = Some((va, intent));
        self.raise(cpu, fault);
        if self.run_stack::<MANY>(cpu, limit)? == StackOutcome::Yields {
            return Ok(TranslationOutcome::Again);
        }
        self.translate::<MANY>(cpu, va, pc, intent, limit)
    }

    /// Translates for the program; runs fault handlers until there is a translation or a refusal.
    fn translate<const MANY: bool>(
        &mut self,
        cpu: CpuId,
        va: VirtAddr,
        pc: u64,
        intent: Intent,
        limit: Cycles,
    ) -> Result<TranslationOutcome, EngineError> {
        let task = &mut self.scheduler.cpus[cpu].task;
        // The code of an access may be looked up anew before its data: if a shootdown has cleared the filter.
        let fault = if task.faulted == Some((va, intent)) { task.outcome.take() } else { None };
        if std::mem::take(&mut task.refetches)
            && intent != Intent::Fetch
            && let Some(line) = task.code_line
        {
            self.fetch_line(cpu, line);
        }
        self.set_time(cpu);
        self.set_request_time(cpu);
        if fault.is_some() {
            self.hw.caches.set_request_time(self.scheduler.cpus[cpu].clock.now());
        }
        let this_cpu = &self.scheduler.cpus[cpu];
        if fault == Some(FaultOutcome::Refused) {
            return Ok(TranslationOutcome::Refused);
        }
        let mut cycles = Cycles::ZERO;
        let wanted = TranslationRequest {
            cpu,
            core: this_cpu.core,
            space: this_cpu.running(),
            va,
            pc,
            intent,
            origin: Origin::Program,
        };
        // An access is counted once, however often it is retried after faults.
        let (counted, made) = (fault.is_some().then(|| self.hw.units[wanted.core].tlb), self.hw.walks.made);
        let found = self.hw.translate(&mut self.kernels.os.layers, &wanted, &mut cycles);
        if let Some(counted) = counted {
            self.hw.units[wanted.core].tlb.move_retries(&counted);
        }
        if cycles > Cycles::ZERO {
            self.wait_for_translation(cpu, cycles, found.as_ref().ok().copied(), intent == Intent::Fetch);
            // A walk may have evicted the last line from the cache, and a fill the last page from the TLB.
            self.scheduler.cpus[cpu].filter.forget_data();
            if self.observers.profile.is_some() {
                self.profile_translation(cpu, va, pc, intent, cycles, found.is_ok() && self.hw.walks.made > made);
            }
        }
        match found {
            Ok(translation) => {
                self.check(&wanted, translation);
                Ok(TranslationOutcome::Found(translation))
            }
            Err(Faulted(fault)) => self.fault_and_translate::<MANY>(cpu, &fault, va, pc, intent, limit),
        }
    }
}

/// Accesses that the filter answered.
pub(super) struct Hits {
    pub accesses: usize,
    instructions: u64,
    pub writes: u64,
    /// Whether a kernel made all of them; otherwise the program did.
    by_kernel: bool,
}

/// Condition under which a CPU must stop if there are others.
pub(super) struct StopCondition<'a, C = CoreModel> {
    pub clock: &'a CpuClock<C>,
    pub limit: Cycles,
}

impl Hits {
    /// Advances a CPU's clock by these accesses.
    #[inline(always)]
    pub fn pass<C: Timing>(&self, clock: &mut CpuClock<C>) {
        clock.retire(self.instructions);
        clock.repeat(self.accesses as u64);
    }
}

/// The leading accesses that the filter answers: hits of the last line that change no state. Not inlined, so that the
/// loop has all registers of the processor.
#[inline(never)]
pub(super) fn scan<const MANY: bool, C: Timing>(accesses: &[Access], filter: &Filter, stop: &StopCondition<C>) -> Hits {
    let by_kernel = accesses.first().is_some_and(|access| access.maker.is_kernel());
    let mut hits = Hits { accesses: 0, instructions: 0, writes: 0, by_kernel };
    let filter = *filter;
    for access in accesses {
        if !filter.answers(access) || access.maker.is_kernel() != by_kernel {
            break;
        }
        hits.accesses += 1;
        hits.instructions += u64::from(access.gap);
        hits.writes += u64::from(access.kind as u8 != AccessKind::Load as u8);
        if MANY && stop.clock.now_after(hits.instructions, hits.accesses as u64) > stop.limit {
            break;
        }
    }
    hits
}
