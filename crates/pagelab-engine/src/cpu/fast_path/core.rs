//! A core and its program on the fast path.

use super::machines::Machine;
use crate::base::addr::{FRAME_BYTES, FRAME_SHIFT, LINE_SHIFT, MachineAddr, VirtAddr};
use crate::base::cycles::Cycles;
use crate::base::ids::{CpuId, LayerId};
use crate::base::memory::PhysMem;
use crate::base::page_fault::Origin;
use crate::base::translation::Translation;
use crate::cache::{CoreCaches, Requester, Served};
use crate::cpu::lookahead::{ENTRIES_AHEAD, TAGS_AHEAD};
use crate::cpu::replay::{Stop, scan};
use crate::machine::clock::CpuClock;
use crate::machine::cpu::{AccessCounters, Filter};
use crate::machine::simulation::Simulation;
use crate::mmu_cache::{Asid, Pass};
use crate::page_table::Ways;
use crate::translate::counters::{TLB_DATA, TlbCounters, WALK_LEVELS, WalkCounts, place_index};
use crate::translate::tlb::Tlb;
use crate::translate::tlb_arrays::{Found, Level};
use pagelab_trace::{Access, AccessKind};

/// What is counted apart, in the processor's registers where there is room.
#[derive(Clone, Copy, Default)]
struct Counted {
    filtered: u64,
    writes: u64,
    /// Look-ups that the second-level TLB answered.
    second_level_hits: u64,
    walks: u64,
    walk_cycles: Cycles,
    /// References of walks by level and place, as [`Served`].
    walk_refs: [[u64; Served::ALL.len()]; WALK_LEVELS],
}

/// See the module's text.
pub(super) struct Core<'a, M: Machine> {
    asid: Asid,
    layer: LayerId,
    filter: Filter,
    clock: CpuClock,
    counted: Counted,
    first: Level<'a, M::First<'a>>,
    instructions: &'a mut Tlb,
    second: Level<'a, M::Second<'a>>,
    second_latency: Cycles,
    tlb: &'a mut TlbCounters,
    upper: M::Upper<'a>,
    walks: &'a mut WalkCounts,
    caches: M::Caches<'a>,
    ways: Ways<'a>,
    mem: &'a PhysMem,
    looks_ahead: bool,
    /// As the field of [`Simulation`].
    filter_hits_only: bool,
    cpu: CpuParts<'a>,
}

/// Where it is noted in the end.
struct CpuParts<'a> {
    filter: &'a mut Filter,
    clock: &'a mut CpuClock,
    counters: &'a mut AccessCounters,
}

impl<'a, M: Machine> Core<'a, M> {
    /// None if the next access of the CPU is not for this code.
    #[inline(always)]
    pub fn of(simulation: &'a mut Simulation, cpu: CpuId) -> Option<Self> {
        let looks_ahead = simulation.looks_ahead(cpu);
        let of = &mut simulation.cpus[cpu];
        let space = of.space.filter(|_| of.task.outcome.is_none())?;
        let (hw, layer) = (&mut simulation.hw, &simulation.os.layers[space.layer]);
        let unit = &mut hw.units[of.core];
        Some(Self {
            asid: of.asid,
            layer: space.layer,
            filter: of.filter,
            clock: of.clock.clone(),
            counted: Counted::default(),
            cpu: CpuParts { filter: &mut of.filter, clock: &mut of.clock, counters: &mut of.counters },
            first: M::first(&mut unit.l1d)?,
            instructions: &mut unit.l1i,
            second: M::second(&mut unit.l2)?,
            second_latency: hw.l2_tlb_latency,
            tlb: &mut unit.tlb,
            upper: M::upper(hw.mmu_caches.of(of.core, space.layer))?,
            walks: hw.walks.of_programs(),
            caches: M::caches(&mut hw.caches, of.core)?,
            ways: layer.spaces[space.index as usize].table.ways(&layer.mem)?,
            mem: &layer.mem,
            looks_ahead,
            filter_hits_only: simulation.filter_hits_only,
        })
    }

    /// See [`FastPath`](crate::machine::simulation::FastPath).
    #[inline(always)]
    pub fn replay<const MANY: bool>(&mut self, accesses: &[Access], limit: Cycles) -> usize {
        let mut at = 0;
        while let Some(access) = accesses.get(at) {
            if access.by_kernel {
                break;
            }
            if self.filter.answers(access) {
                let hits = scan::<MANY>(&accesses[at..], &self.filter, &Stop { clock: &self.clock, limit });
                hits.pass(&mut self.clock);
                self.counted.filtered += hits.accesses as u64;
                self.counted.writes += hits.writes;
                at += hits.accesses;
            } else {
                if self.looks_ahead {
                    self.look_ahead(accesses, at);
                }
                if self.access(access).is_none() {
                    break;
                }
                at += 1;
            }
            if MANY && self.clock.now() > limit {
                break;
            }
        }
        self.note(at as u64);
        at
    }

    /// Notes what was counted of so many accesses.
    #[inline(always)]
    fn note(&mut self, accesses: u64) {
        let Counted { filtered, writes, second_level_hits, walks, walk_cycles, walk_refs } = &self.counted;
        *self.cpu.filter = self.filter;
        self.cpu.clock.clone_from(&self.clock);
        let counters = &mut self.cpu.counters;
        counters.accesses += accesses;
        counters.filtered += filtered;
        counters.pieces += accesses - filtered;
        counters.writes += writes;
        self.tlb.l1.misses[TLB_DATA] += second_level_hits + walks;
        self.tlb.l2.misses[TLB_DATA] += walks;
        self.walks.count += walks;
        self.walks.cycles += *walk_cycles;
        for (refs, counted) in self.walks.refs[self.layer.index()].iter_mut().zip(walk_refs) {
            Served::ALL.iter().zip(counted).for_each(|(&place, count)| refs[place_index(Some(place))] += count);
        }
    }

    /// Makes an access; none, with nothing changed that the general code would not change first, if it is not for this code.
    #[inline(always)]
    fn access(&mut self, access: &Access) -> Option<()> {
        let last = (access.vaddr + u64::from(access.size_bytes) - 1) >> LINE_SHIFT;
        if last != access.vaddr >> LINE_SHIFT || access.kind == AccessKind::Fetch {
            return None;
        }
        self.fetch(access.pc)?;
        let (va, write) = (VirtAddr(access.vaddr), access.kind.writes());
        let translation = match self.filter.translation(va, write) {
            Some(held) => held,
            None => match self.first.look_up(self.asid, va, write) {
                Found::Fit(held) => held,
                Found::Unfit => return None,
                Found::Nothing => self.translate(va, write)?,
            },
        };
        let outcome = self.caches.access(translation.address(va).line(), write, Requester::Data);
        self.clock.wait_for_data(outcome.cycles.into());
        let unproven = self.filter_hits_only && outcome.served != Served::L1;
        let (loads, stores) = (0b0001, 0b0110 * u8::from(write));
        self.filter.learn(va, translation, if unproven { 0 } else { loads | stores });
        self.counted.writes += u64::from(write);
        self.clock.retire(access.gap.into());
        Some(())
    }

    /// Goes on in the page of an instruction.
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

    /// Translates what the first-level TLB does not hold.
    #[inline(always)]
    fn translate(&mut self, va: VirtAddr, write: bool) -> Option<Translation> {
        let translation = match self.second.look_up(self.asid, va, write) {
            Found::Fit(held) => {
                self.clock.wait_for_translation(self.second_latency);
                self.counted.second_level_hits += 1;
                held
            }
            Found::Unfit => return None,
            Found::Nothing => {
                let translation = self.walk(va, write)?;
                self.second.insert(self.asid, va, translation);
                translation
            }
        };
        self.first.insert(self.asid, va, translation);
        Some(translation)
    }

    /// Walks the page table.
    #[inline(always)]
    fn walk(&mut self, va: VirtAddr, write: bool) -> Option<Translation> {
        let way = self.ways.get(va)?;
        if !way.serves(write) {
            return None;
        }
        let passed = self.upper.pass(self.asid, va, &way, self.mem)?;
        let (mut cycles, mut reads) = (passed.cycles, passed.reads);
        while reads != 0 {
            let level = reads.ilog2() as u8;
            reads ^= 1 << level;
            let entry = MachineAddr(way.entry_addr(level, va).0);
            let outcome = self.caches.access(entry.line(), false, Requester::Walk);
            cycles += outcome.cycles.into();
            self.counted.walk_refs[usize::from(level) % WALK_LEVELS][outcome.served as usize] += 1;
        }
        self.counted.walks += 1;
        self.counted.walk_cycles += cycles;
        self.clock.wait_for_translation(self.second_latency + cycles);
        Some(way.translation())
    }

    /// See [`crate::cpu::lookahead`]. The memo of ways needs no fetching: it fits the host's own caches up to 64 GiB.
    #[inline(always)]
    fn look_ahead(&self, accesses: &[Access], at: usize) {
        let Some([first, .., last]) = accesses.get(at + TAGS_AHEAD..=at + ENTRIES_AHEAD) else { return };
        let here = accesses[at].vaddr >> FRAME_SHIFT;
        if last.vaddr >> FRAME_SHIFT != here {
            self.ways.hint_entry(VirtAddr(last.vaddr));
        }
        if first.vaddr >> FRAME_SHIFT != here
            && let Some((entry, page)) = self.ways.peek(VirtAddr(first.vaddr))
        {
            self.caches.hint(MachineAddr(entry.0).line());
            self.caches.hint(MachineAddr(page.0 | first.vaddr & (FRAME_BYTES - 1)).line());
        }
    }
}
