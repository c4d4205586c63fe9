//! A core and its program on the fast path.

use super::machine::MachineShape;
use super::stage_units::StageUnits;
use super::walker::{WalkMemory, Walker, WalkerParts};
use crate::cpu::replay::{StopCondition, scan};
use crate::machine::cpu::{AccessCounters, Filter};
use crate::machine::simulation::Simulation;
use pagelab_base::addr::{FRAME_SHIFT, LINE_SHIFT, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::host::{VectorWork, Vectors};
use pagelab_base::ids::CpuId;
use pagelab_base::page_fault::Origin;
use pagelab_base::translation::Translation;
use pagelab_hardware::cache::{CoreCaches, HitLevel, Requester};
use pagelab_hardware::core_model::clock::CpuClock;
use pagelab_hardware::core_model::{CompiledCore, DataLocation, L1TlbMiss, ROW};
use pagelab_tables::mmu_cache::Asid;
use pagelab_trace::{Access, AccessKind, Branches};
use pagelab_translate::counters::{TLB_DATA, TlbCounters, WalkCounts};
use pagelab_translate::hardware::{CoreUnits, Hardware};
use pagelab_translate::tlb::Tlb;
use pagelab_translate::tlb_arrays::{self, Level};

/// Counters of the loop, which the compiler can keep in the processor's registers.
#[derive(Clone, Copy, Default)]
pub(super) struct RegisterCounts {
    filtered: u64,
    pub writes: u64,
    /// Look-ups that hit in the second-level TLB.
    pub second_level_hits: u64,
    /// Those that hit in a unit after the TLBs.
    pub stage_hits: u64,
    pub walks: u64,
    pub walk_cycles: Cycles,
}

/// A core on the fast path, see the module's text.
pub(super) struct FastCore<'a, M: MachineShape, W, C> {
    pub(super) asid: Asid,
    pub(super) filter: Filter,
    pub(super) clock: CpuClock<C>,
    l1_latency: Cycles,
    pub(super) counted: RegisterCounts,
    pub(super) first: Level<'a, M::First<'a>>,
    instructions: &'a mut Tlb,
    pub(super) second: Level<'a, M::Second<'a>>,
    pub(super) second_latency: Cycles,
    pub(super) stages: M::Stages<'a>,
    tlb: &'a mut TlbCounters,
    pub(super) walker: W,
    walks: &'a mut WalkCounts,
    pub(super) memory: WalkMemory<M::Caches<'a>>,
    looks_ahead: bool,
    /// The smallest clock of the other CPUs.
    pub(super) others: Cycles,
    /// Like the field of [`Simulation`].
    filter_hits_only: bool,
    cpu: CpuParts<'a>,
}

/// Accesses that have been looked up but not yet passed to the core model. Looking up and timing are separate loops,
/// since both together need more registers than the computer has.
struct PendingAccesses {
    found: [DataLocation; ROW],
    len: usize,
}

impl PendingAccesses {
    fn new() -> Self {
        Self { found: [DataLocation { latency: Cycles::ZERO, line: 0 }; ROW], len: 0 }
    }

    #[inline(always)]
    fn push(&mut self, found: DataLocation) {
        self.found[self.len % ROW] = found;
        self.len += 1;
    }

    fn is_full(&self) -> bool {
        self.len == ROW
    }

    /// The accesses that were pushed since the last call.
    #[inline(always)]
    fn take(&mut self) -> &[DataLocation] {
        &self.found[..std::mem::take(&mut self.len)]
    }
}

/// The parts of the CPU to which the loop's state is written back.
struct CpuParts<'a> {
    filter: &'a mut Filter,
    clock: &'a mut CpuClock,
    counters: &'a mut AccessCounters,
}

/// Passes accesses that were looked up to the core model, in a loop that is compiled for `V` on its own.
#[inline(never)]
fn pass_to_core<V: Vectors, C: CompiledCore>(
    clock: &mut CpuClock<C>,
    accesses: &[Access],
    branches: &[Branches],
    found: &[DataLocation],
) {
    struct ClockUpdate<'a, C>(&'a mut CpuClock<C>, &'a [Access], &'a [Branches], &'a [DataLocation]);
    impl<C: CompiledCore> VectorWork for ClockUpdate<'_, C> {
        type Output = ();

        #[inline(always)]
        fn run<V: Vectors>(self) {
            let Self(clock, accesses, branches, found) = self;
            clock.make_all(accesses, branches, found);
        }
    }
    V::run(ClockUpdate(clock, accesses, branches, found));
}

impl<'a, M: MachineShape, W: Walker<'a, M>, C: CompiledCore> FastCore<'a, M, W, C> {
    /// `None` if the fast path cannot make the CPU's next access.
    #[inline(always)]
    pub fn new(simulation: &'a mut Simulation, cpu: CpuId) -> Option<Self> {
        let (looks_ahead, others) = (simulation.looks_ahead(cpu), simulation.scheduler.others);
        let cpu = &mut simulation.scheduler.cpus[cpu];
        let space = cpu.space.filter(|_| cpu.task.outcome.is_none() && !cpu.task.deferred)?;
        // [`super::eligibility`] decides which of these are used, and which do not matter or are off.
        let Hardware {
            units,
            shared_stages,
            mmu_caches,
            caches,
            walks,
            l2_tlb_latency,
            second_attempt: _,
            is_ahead: _,
            leaf_of: _,
            leaf: _,
            kernel_refs: _,
            l1_latency: _,
            vm_exit_cycles: _,
            shadow: _,
            segments: _,
            segment: _,
            speculative: _,
            tag_checks: _,
            speculation: _,
            check: _,
            check_failure: _,
            virtual_tables: _,
            pinned: _,
            organised: _,
            guessed: _,
            frames: _,
        } = &mut simulation.hw;
        let CoreUnits { l1d, l1i, l2, size_prediction: _, nested, guest, stages, speculation: _, tlb } =
            &mut units[cpu.core];
        let walker = W::from_parts(WalkerParts {
            layers: &simulation.kernels.os.layers,
            space,
            core: cpu.core,
            mmu_caches,
            nested_tlb: nested.as_mut(),
            guest_tlb: guest.as_mut(),
        })?;
        let (first, second) = (M::first(l1d)?, M::second(l2)?);
        let l1_latency = caches.l1_latency().into();
        let caches = M::caches(caches, cpu.core)?;
        Some(Self {
            asid: cpu.asid,
            filter: cpu.filter,
            // Must come last: after it, no failure may return.
            clock: cpu.clock.take_known()?,
            l1_latency,
            counted: RegisterCounts::default(),
            cpu: CpuParts { filter: &mut cpu.filter, clock: &mut cpu.clock, counters: &mut cpu.counters },
            first,
            instructions: l1i,
            second,
            second_latency: *l2_tlb_latency,
            stages: M::Stages::new(stages, shared_stages),
            tlb,
            walker,
            walks: walks.program_counts(),
            memory: WalkMemory { caches, refs: Default::default() },
            looks_ahead,
            others,
            filter_hits_only: simulation.replay.filter_hits_only,
        })
    }

    /// See [`FastPath`](crate::machine::simulation::FastPath).
    #[inline(always)]
    pub fn replay<V: Vectors, const MANY: bool>(
        mut self,
        accesses: &[Access],
        branches: &[Branches],
        limit: Cycles,
    ) -> usize {
        let (mut at, mut row) = (0, PendingAccesses::new());
        while let Some(access) = accesses.get(at) {
            if access.maker.is_kernel() {
                break;
            }
            if M::Caches::ARE_TIMED {
                if self.looks_ahead {
                    self.walker.look_ahead(&self.memory.caches, accesses, at);
                }
                let branches = branches.get(at).copied().unwrap_or_default();
                if self.timed_access(access, branches).is_none() {
                    break;
                }
                at += 1;
                if MANY && self.clock.now() > limit {
                    break;
                }
                continue;
            }
            let answers = self.filter.answers(access);
            if answers && (MANY || !self.clock.models_dependencies()) {
                let hits = scan::<MANY, _>(&accesses[at..], &self.filter, &StopCondition { clock: &self.clock, limit });
                if self.clock.models_dependencies() {
                    let hits = &accesses[at..at + hits.accesses];
                    self.clock.make_hits(hits, branches.get(at..).unwrap_or_default(), self.last_line());
                } else {
                    hits.pass(&mut self.clock);
                }
                self.counted.filtered += hits.accesses as u64;
                self.counted.writes += hits.writes;
                at += hits.accesses;
            } else {
                if self.looks_ahead && !answers {
                    self.walker.look_ahead(&self.memory.caches, accesses, at);
                }
                let Some((found, translating)) = self.access(access, answers) else { break };
                if !self.clock.models_dependencies() {
                    self.clock.wait_for_data(found.latency, found.line);
                    self.clock.retire(access.gap.into());
                } else if let Some(translating) = translating {
                    self.make_row::<V>(&mut row, &accesses[..at], branches);
                    self.clock.make_translated(
                        access,
                        branches.get(at).copied().unwrap_or_default(),
                        translating,
                        found,
                    );
                } else {
                    row.push(found);
                    if MANY || row.is_full() {
                        self.make_row::<V>(&mut row, &accesses[..=at], branches);
                    }
                }
                at += 1;
            }
            if MANY && self.clock.now() > limit {
                break;
            }
        }
        self.make_row::<V>(&mut row, &accesses[..at], branches);
        self.note(at as u64);
        at
    }

    /// Passes a row, the last of `accesses`, to the core model.
    #[inline(always)]
    fn make_row<V: Vectors>(&mut self, row: &mut PendingAccesses, accesses: &[Access], branches: &[Branches]) {
        let found = row.take();
        let begin = accesses.len() - found.len();
        if !found.is_empty() {
            pass_to_core::<V, C>(&mut self.clock, &accesses[begin..], branches.get(begin..).unwrap_or_default(), found);
        }
    }

    /// Adds the counts of this many accesses to the simulation's.
    #[inline(always)]
    fn note(mut self, accesses: u64) {
        let RegisterCounts { filtered, writes, second_level_hits, stage_hits, walks, walk_cycles } = self.counted;
        *self.cpu.filter = self.filter;
        self.cpu.clock.take_over(self.clock);
        let counters = &mut self.cpu.counters;
        counters.accesses += accesses;
        counters.filtered += filtered;
        counters.pieces += accesses - filtered;
        counters.writes += writes;
        self.tlb.l1.misses[TLB_DATA] += second_level_hits + stage_hits + walks;
        self.tlb.l2.misses[TLB_DATA] += stage_hits + walks;
        self.walks.count += walks;
        self.walks.cycles += walk_cycles;
        self.walker.note(&self.memory.refs, self.memory.caches.bypass().is_some(), self.walks);
    }

    /// Looks up an access; `answers` says whether the filter answers it. Returns the location of its data, and its
    /// translation beyond the first-level TLB for core models that need each access. `None` if the fast path cannot
    /// make the access; then only what the general code changes first has changed.
    #[inline(always)]
    fn access(&mut self, access: &Access, answers: bool) -> Option<(DataLocation, Option<L1TlbMiss>)> {
        let (write, mut translating) = (access.kind.writes(), None);
        let found = if answers {
            self.counted.filtered += 1;
            self.last_line()
        } else {
            self.data(access, write, &mut translating)?
        };
        self.counted.writes += u64::from(write);
        Some((found, translating))
    }

    /// The location of the filter's line.
    #[inline(always)]
    fn last_line(&self) -> DataLocation {
        DataLocation { latency: self.l1_latency, line: self.filter.physical_line() }
    }

    /// Translates an address and looks up its line in the caches.
    #[inline(always)]
    fn data(&mut self, access: &Access, write: bool, translating: &mut Option<L1TlbMiss>) -> Option<DataLocation> {
        self.begin(access)?;
        let va = VirtAddr(access.vaddr);
        self.memory.caches.set_request_time(|| self.clock.now());
        let (translation, is_held) = match self.filter.translation(va, write) {
            Some(held) => (held, true),
            None => match self.first.look_up(self.asid, va, write) {
                tlb_arrays::TlbLookup::Fit(held) => (held, true),
                tlb_arrays::TlbLookup::Unfit => return None,
                tlb_arrays::TlbLookup::Nothing => (self.translate(access, va, write, translating)?, false),
            },
        };
        let line = translation.address(va).line();
        if is_held && self.memory.caches.must_defer(line, self.others) {
            return None;
        }
        if !is_held && !self.clock.models_dependencies() {
            self.memory.caches.set_request_time(|| self.clock.now());
        }
        let outcome = self.memory.caches.access(line, write, Requester::Data);
        let unproven =
            self.filter_hits_only && outcome.served != HitLevel::L1 || self.memory.caches.may_be_contended(line);
        let (loads, stores) = (0b0001, 0b0110 * u8::from(write));
        self.filter.learn(va, translation, if unproven { 0 } else { loads | stores });
        Some(DataLocation { latency: outcome.cycles.into(), line: line.0 })
    }

    /// `None` for an access of several lines, or by an instruction whose page must be translated.
    #[inline(always)]
    pub(super) fn begin(&mut self, access: &Access) -> Option<()> {
        let last = (access.vaddr + u64::from(access.size_bytes) - 1) >> LINE_SHIFT;
        if last != access.vaddr >> LINE_SHIFT || access.kind == AccessKind::Fetch {
            return None;
        }
        self.fetch(access.pc)
    }

    /// Looks up the page of an instruction, if it is another page than the last one.
    #[inline(always)]
    fn fetch(&mut self, pc: u64) -> Option<()> {
        if pc >> FRAME_SHIFT != self.filter.code_page {
            if pc == 0 {
                return None;
            }
            self.instructions.look_up(self.asid, VirtAddr(pc), Origin::Program)?;
            self.filter.code_page = pc >> FRAME_SHIFT;
        }
        Some(())
    }

    /// Makes the core wait for a translation: at once, or in `later` if the core model needs the access first.
    #[inline(always)]
    pub(super) fn wait_for_translation(&mut self, walk: Cycles, page: Translation, later: &mut Option<L1TlbMiss>) {
        let translating = L1TlbMiss { look_up: self.second_latency, walk, page: Some(page), fetches: false };
        if self.clock.models_dependencies() {
            *later = Some(translating);
        } else {
            self.clock.wait_for_translation(translating);
        }
    }

    /// Translates an address that missed the first-level TLB.
    #[inline(always)]
    fn translate(
        &mut self,
        access: &Access,
        va: VirtAddr,
        write: bool,
        later: &mut Option<L1TlbMiss>,
    ) -> Option<Translation> {
        let translation = match self.second.look_up(self.asid, va, write) {
            tlb_arrays::TlbLookup::Fit(held) => {
                self.wait_for_translation(Cycles::ZERO, held, later);
                self.counted.second_level_hits += 1;
                held
            }
            tlb_arrays::TlbLookup::Unfit => return None,
            tlb_arrays::TlbLookup::Nothing if M::Stages::ARE_ANY => self.translate_after_tlbs(access, write, later)?,
            tlb_arrays::TlbLookup::Nothing => {
                let found = self.walker.find(va, write)?;
                let (translation, cycles) = self.walk(va, write, &found);
                self.wait_for_translation(cycles, translation, later);
                self.second.insert(self.asid, va, translation);
                translation
            }
        };
        let evicted = self.first.insert(self.asid, va, translation);
        if M::Stages::ARE_ANY {
            self.offer_from_first(evicted);
        }
        Some(translation)
    }

    /// Walks for `va` the way that the walker has just found; returns the cycles, too.
    #[inline(always)]
    pub(super) fn walk(&mut self, va: VirtAddr, write: bool, found: &W::Found) -> (Translation, Cycles) {
        let mut cycles = Cycles::ZERO;
        let translation = self.walker.walk(&mut self.memory, va, write, found, &mut cycles);
        self.counted.walks += 1;
        self.counted.walk_cycles += cycles;
        (translation, cycles)
    }
}
