//! The loop over a run's accesses: what a core does for its program.

use crate::activity::Activity;
use crate::addr::{Cycles, FRAME_BYTES, FRAME_SHIFT, LINE_BYTES, LINE_SHIFT, VirtAddr};
use crate::cache::{Requester, Served};
use crate::clock::{Class, CpuClock};
use crate::cpu::Filter;
use crate::error::EngineError;
use crate::layer::SpaceId;
use crate::os::fault::{Fault, Outcome};
use crate::simulation::{RefusedAccess, Simulation, Stack};
use crate::tlb::Translation;
use crate::walker::{Intent, Origin};
use pagelab_trace::{Access, AccessKind};

/// Whether an access went through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Done,
    /// A fault handler blocked or used the turn up; the access is to be made again.
    Again,
}

/// How far a translation got.
enum Translated {
    Found(Translation),
    Refused,
    Again,
}

impl Simulation {
    /// Makes the accesses of a run, one after the other; returns how many were made. With `MANY` it stops when the clock
    /// passes `limit`; in any case when a fault handler blocks.
    pub(crate) fn replay<const MANY: bool>(
        &mut self,
        cpu: usize,
        accesses: &[Access],
        limit: Cycles,
    ) -> Result<usize, EngineError> {
        let mut at = 0;
        while at < accesses.len() {
            let of = &self.cpus[cpu];
            let stop = Stop { clock: &of.clock, limit, l1_visible: self.l1_visible };
            let hits = scan::<MANY>(&accesses[at..], &of.filter, &stop);
            self.settle(cpu, &hits);
            at += hits.accesses;
            let Some(access) = accesses.get(at) else { break };
            if MANY && self.turn_is_over(cpu, limit) {
                break;
            }
            if self.lookahead {
                self.look_ahead(cpu, accesses, at);
            }
            if self.access::<MANY>(cpu, access, limit)? == Flow::Again {
                break;
            }
            at += 1;
            if MANY && self.turn_is_over(cpu, limit) {
                break;
            }
        }
        Ok(at)
    }

    /// Counts accesses that the filter answered.
    #[inline]
    fn settle(&mut self, cpu: usize, hits: &Hits) {
        let of = &mut self.cpus[cpu];
        of.counters.accesses += hits.accesses as u64;
        of.counters.filtered += hits.accesses as u64;
        of.counters.writes += hits.writes;
        of.clock.retire(hits.instructions);
        of.clock.spend(Class::DataStall, hits.accesses as u64 * self.l1_visible);
    }

    /// One access that the filter did not answer.
    #[inline]
    fn access<const MANY: bool>(&mut self, cpu: usize, access: &Access, limit: Cycles) -> Result<Flow, EngineError> {
        let space = self.cpus[cpu].space.expect("a run's thread has a space");
        let fetch = access.kind == AccessKind::Fetch;
        if access.pc == 0 {
            // The trace does not know the instruction; accesses that follow without one pass the filter.
            self.cpus[cpu].filter.code_page = 0;
        } else if !access.by_kernel && access.pc >> FRAME_SHIFT != self.cpus[cpu].filter.code_page {
            match self.translate::<MANY>(cpu, space, VirtAddr(access.pc), Intent::Fetch, limit)? {
                // A program counter without a mapping is reported by its own access, if there is one.
                Translated::Found(_) | Translated::Refused => {
                    self.cpus[cpu].filter.code_page = access.pc >> FRAME_SHIFT;
                }
                Translated::Again => return Ok(Flow::Again),
            }
        }
        let mut refused = false;
        if fetch {
            match self.translate::<MANY>(cpu, space, VirtAddr(access.vaddr), Intent::Fetch, limit)? {
                Translated::Found(_) => {}
                Translated::Refused => refused = true,
                Translated::Again => return Ok(Flow::Again),
            }
        } else if self.data::<MANY>(cpu, space, access, limit, &mut refused)? == Flow::Again {
            return Ok(Flow::Again);
        }
        let of = &mut self.cpus[cpu];
        of.counters.accesses += 1;
        of.counters.writes += u64::from(access.kind.writes());
        of.counters.fetches += u64::from(fetch);
        of.counters.by_kernel += u64::from(access.by_kernel);
        of.clock.retire(access.gap.into());
        if refused {
            of.counters.refused += 1;
            let (vaddr, pc, write) = (access.vaddr, access.pc, access.kind.writes());
            self.note_refused(RefusedAccess { vaddr, pc, write });
        }
        Ok(Flow::Done)
    }

    /// The data of an access, line by line.
    #[inline]
    fn data<const MANY: bool>(
        &mut self,
        cpu: usize,
        space: SpaceId,
        access: &Access,
        limit: Cycles,
        refused: &mut bool,
    ) -> Result<Flow, EngineError> {
        let write = access.kind.writes();
        let first = access.vaddr >> LINE_SHIFT;
        let last = (access.vaddr + u64::from(access.size_bytes) - 1) >> LINE_SHIFT;
        let mut line = first + self.cpus[cpu].pieces_done;
        let mut missed = [false; 3];
        while line <= last {
            let va = VirtAddr(access.vaddr.max(line * LINE_BYTES));
            let page = VirtAddr(va.0 & !(FRAME_BYTES - 1));
            let filter = &self.cpus[cpu].filter;
            let translation = match filter.translation {
                Some(held) if filter.page == page && (!write || held.stores()) => held,
                _ => {
                    let intent = if write { Intent::Store } else { Intent::Load };
                    match self.translate::<MANY>(cpu, space, va, intent, limit)? {
                        Translated::Found(found) => found,
                        Translated::Refused => {
                            *refused = true;
                            self.cpus[cpu].filter.forget_data();
                            line += 1;
                            continue;
                        }
                        Translated::Again => {
                            self.cpus[cpu].pieces_done = line - first;
                            return Ok(Flow::Again);
                        }
                    }
                }
            };
            if access.by_kernel && !self.hw.kernel_refs {
                line += 1;
                continue;
            }
            let core = self.cpus[cpu].core;
            let machine = translation.machine(va);
            let outcome = self.hw.caches.access(core, machine.line(), write, Requester::Data);
            let of = &mut self.cpus[cpu];
            if last > first && !access.by_kernel {
                of.counters.count_split_miss(&mut missed, outcome.served);
            }
            of.clock.spend(Class::DataStall, Cycles::from(outcome.cycles) - self.l1_hidden);
            of.counters.pieces += 1;
            of.filter.line = line;
            of.filter.kinds = match (write, outcome.served) {
                // Under SRRIP the first hit after a fill changes the line's prediction.
                (_, served) if served != Served::L1 && self.filter_hits_only => 0,
                (true, _) => 0b0111,
                (false, _) => 0b0001,
            };
            of.filter.page = page;
            of.filter.translation = Some(translation);
            line += 1;
        }
        self.cpus[cpu].pieces_done = 0;
        Ok(Flow::Done)
    }

    /// Translates for the program, running fault handlers until there is a translation or a refusal.
    #[inline]
    fn translate<const MANY: bool>(
        &mut self,
        cpu: usize,
        space: SpaceId,
        va: VirtAddr,
        intent: Intent,
        limit: Cycles,
    ) -> Result<Translated, EngineError> {
        loop {
            if self.cpus[cpu].outcome.take() == Some(Outcome::Refused) {
                return Ok(Translated::Refused);
            }
            let core = self.cpus[cpu].core;
            let mut cycles = 0;
            let layers = &mut self.os.layers;
            let found = self.hw.translate(layers, core, space, va, intent, Origin::Program, &mut cycles);
            let of = &mut self.cpus[cpu];
            of.clock.spend(Class::Translation, cycles);
            if cycles > 0 {
                // A walk may have taken the last line's place in the cache, and a fill the last page's in the TLB.
                of.filter.forget_data();
            }
            match found {
                Ok(translation) => {
                    self.hw.check(&self.os.layers, space, va, &translation);
                    return Ok(Translated::Found(translation));
                }
                Err(fault) => {
                    self.cpus[cpu].begin(Activity::Fault(Fault::new(&fault)));
                    self.cpus[cpu].filter.forget_data();
                    if self.run_stack::<MANY>(cpu, limit)? == Stack::Yields {
                        return Ok(Translated::Again);
                    }
                }
            }
        }
    }
}

/// Accesses that the filter answered.
struct Hits {
    accesses: usize,
    instructions: u64,
    writes: u64,
}

/// When a CPU with others beside it must stop.
struct Stop<'a> {
    clock: &'a CpuClock,
    limit: Cycles,
    l1_visible: Cycles,
}

/// The accesses from the first on that the filter answers: hits of the last line that change nothing. Not inlined, so that
/// the loop has the processor's registers for itself.
#[inline(never)]
fn scan<const MANY: bool>(accesses: &[Access], filter: &Filter, stop: &Stop) -> Hits {
    let mut hits = Hits { accesses: 0, instructions: 0, writes: 0 };
    let Filter { line, kinds, code_page, .. } = *filter;
    for access in accesses {
        let last = (access.vaddr + u64::from(access.size_bytes) - 1) >> LINE_SHIFT;
        let differs = (access.vaddr >> LINE_SHIFT ^ line) | (last ^ line) | (access.pc >> FRAME_SHIFT ^ code_page);
        if differs != 0 || kinds >> (access.kind as u8) & 1 == 0 {
            break;
        }
        hits.accesses += 1;
        hits.instructions += u64::from(access.gap);
        hits.writes += u64::from(access.kind as u8 != AccessKind::Load as u8);
        if MANY {
            let now = stop.clock.now_after(hits.instructions) + hits.accesses as u64 * stop.l1_visible;
            if now > stop.limit {
                break;
            }
        }
    }
    hits
}
