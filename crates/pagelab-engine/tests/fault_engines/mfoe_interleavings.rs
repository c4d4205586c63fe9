//! Explores all orders of the steps of engines, handlers, MFOE's threads and mapping calls on one page, through the
//! functions that a run uses.
//!
//! Each actor has a CPU. A schedule selects the actor of each step that is visible to others; steps that only touch
//! private state are not separated. For two actors all schedules are run; for three, those with at most three
//! preemptions.

use std::cell::RefCell;
use std::collections::BTreeSet;

use crate::common::{ScriptWriter, assert_frames_conserved, config, explore, run};
use pagelab_engine::base::addr::{PageSize, VirtAddr};
use pagelab_engine::base::ids::{CpuId, LayerId, SpaceId};
use pagelab_engine::base::page_fault::{Intent, PageFault};
use pagelab_engine::fault_engine::kernel_side::{ArmingJob, EngineState, KernelSide};
use pagelab_engine::fault_engine::mfoe::ahead::AheadCall;
use pagelab_engine::fault_engine::mfoe::state::Mfoe;
use pagelab_engine::kernel::context::KernelContext;
use pagelab_engine::kernel::fault::stage::Stage;
use pagelab_engine::kernel::vma::VaRange;
use pagelab_engine::machine::activity::Activity;
use pagelab_engine::machine::cpu::CpuState;
use pagelab_engine::machine::pcids::Presence;
use pagelab_engine::machine::simulation::Simulation;
use pagelab_trace::EventKind;

const LAYER: LayerId = LayerId(0);
const BASE: u64 = 0x7f00_0000_0000;
const PAGE: u64 = 4096;
/// Pages stored to before the race; the first CPU's table has a used entry for each.
const WRITTEN: u64 = 1;
/// Pages with armed entries; the thread has not yet reached those after them.
const ARMED: u64 = 8;
const PAGES: u64 = 16;
/// Maximum number of preemptions in a schedule of three actors.
const INTERRUPTIONS: usize = 3;

/// The action of a CPU in the race. Pages are numbered from the start of the mapping.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Actor {
    /// An access whose walk found no page: handled by the engine or the kernel.
    Touch {
        page: u64,
        intent: Intent,
    },
    /// A system call ahead of an access to the page.
    Call {
        page: u64,
    },
    /// The background thread of a CPU's table.
    Refill {
        table: u32,
    },
    /// The thread that arms entries: those after the first ones.
    Arm,
    Unmap {
        page: u64,
        pages: u64,
    },
    /// The thread disarms entries, because the process has too much memory.
    Disarm,
    /// Unmaps a distant mapping.
    UnmapElsewhere,
    /// Unmaps everything, as at an exit.
    Exit,
}

/// Counters, summed over page sizes.
#[derive(Clone, Copy, Default)]
struct Counted {
    hits: u64,
    raced: u64,
    accounted: u64,
    accounted_by_calls: u64,
}

use Actor::{Arm, Call, Disarm, Exit, Refill, Touch, Unmap, UnmapElsewhere};

fn store(page: u64) -> Actor {
    Touch { page, intent: Intent::Store }
}

fn load(page: u64) -> Actor {
    Touch { page, intent: Intent::Load }
}

/// A process with a partly armed mapping, on a machine whose threads are idle.
#[derive(Clone)]
struct Race {
    simulation: Simulation,
    space: SpaceId,
    arming: usize,
    /// The thread of each CPU's table.
    refills: Vec<usize>,
    /// Counters before the race.
    before: Counted,
    /// Page size in bytes: 2 MiB or 4 KiB.
    page: u64,
}

impl Race {
    fn new(actors: &[Actor], entries: u32, drained: &[u32]) -> Self {
        Self::of_pages(PageSize::Size4K, actors, entries, drained)
    }

    /// The same with pages of `size`, and tables with `entries` entries for them.
    fn of_pages(size: PageSize, actors: &[Actor], entries: u32, drained: &[u32]) -> Self {
        let cores = format!("machine.cores={}", actors.len());
        // For pages of 2 MiB the arming thread has one page left, because each takes it several steps.
        let (system, key, memory, unarmed) = match size {
            PageSize::Size4K => ("mfoe", "entries", "machine.memory_bytes=8MiB", PAGES - ARMED),
            PageSize::Size2M => ("mfoe-thp", "huge_entries", "machine.memory_bytes=32MiB", 1),
            PageSize::Size1G => unreachable!("the engine maps none"),
        };
        let entries = format!("system.layers.native.fault_engine.{key}={entries}");
        let threads = format!("system.layers.native.fault_engine.threads={}", actors.len());
        let set = [
            memory,
            &cores,
            "machine.threads_per_core=1",
            "machine.cache.l3.size_bytes=80KiB",
            "machine.cache.l2.size_bytes=8KiB",
            "system.layers.native.fault_engine.period_cycles=1000000000000",
            r#"system.layers.0.frame_allocator={"kind":"buddy"}"#,
            &entries,
            &threads,
        ];
        let mut script = ScriptWriter::new();
        // The process starts and stays alive; the race makes its accesses.
        script.mmap(0, BASE + (1 << 30), PAGE);
        script.store(0, BASE + (1 << 30));
        let cpus: Vec<usize> = (0..actors.len()).collect();
        let (simulation, _) = run(&config(system, &set), script.finish(), &cpus);
        let space = simulation.programs.inputs[0].spaces().next().expect("the process has not ended");
        let threads_named = |name: &str| {
            let is_named = |thread: &String| thread.starts_with(name);
            let threads: Vec<String> = simulation.kernels.threads.iter().map(|thread| format!("{thread:?}")).collect();
            (0..threads.len()).filter(|&n| is_named(&threads[n])).collect::<Vec<_>>()
        };
        let (arming, refills) = (threads_named("Arming")[0], threads_named("Refill"));
        let mut race = Self { simulation, space, arming, refills, before: Counted::default(), page: size.bytes() };
        for cpu in &mut race.simulation.scheduler.cpus {
            cpu.state = CpuState::Ready;
            cpu.presence = Presence::Running;
        }
        race.finish_threads();
        let bytes = |pages: u64| pages * size.bytes();
        let map = crate::common::mmap(BASE, bytes(ARMED), pagelab_trace::Protection::READ_WRITE);
        race.simulation.change_mappings(CpuId(0), space, &map).expect("there is memory");
        race.finish_threads();
        for page in 0..WRITTEN {
            race.begin(CpuId(0), store(page));
            while race.simulation.step(CpuId(0)).expect("there is memory") {}
        }
        for (n, cpu) in (1..).zip(drained.iter().map(|&cpu| CpuId(cpu))) {
            race.begin(cpu, store(ARMED - n));
            while race.simulation.step(cpu).expect("there is memory") {}
        }
        let rest = crate::common::mmap(BASE + bytes(ARMED), bytes(unarmed), pagelab_trace::Protection::READ_WRITE);
        race.simulation.change_mappings(CpuId(0), space, &rest).expect("there is memory");
        race.before = race.counted();
        race
    }

    /// Stores to 4 KiB pages until no block of 2 MiB is free.
    fn use_up_contiguous_memory(&mut self) {
        let (start, len) = (BASE + (1 << 31), 32 << 20);
        let map = crate::common::mmap(start, len, pagelab_trace::Protection::READ_WRITE);
        let no_huge = EventKind::Madvise { addr: start, len, advice: 15 };
        for call in [map, no_huge] {
            self.simulation.change_mappings(CpuId(0), self.space, &call).expect("there is memory");
        }
        let order = PageSize::Size2M.order();
        for page in 0.. {
            let layer = &mut self.simulation.kernels.os.layers[LAYER];
            let Some(block) = layer.take_page(KernelContext::BOOT, order) else { return };
            layer.free_block(KernelContext::BOOT, block, order);
            let va = VirtAddr(start + page * PAGE);
            let fault = PageFault { space: self.space, va, intent: Intent::Store, reached: None };
            self.simulation.raise(CpuId(0), &fault);
            while self.simulation.step(CpuId(0)).expect("there is memory") {}
        }
    }

    fn counted(&self) -> Counted {
        let mfoe = self.mfoe();
        let mut all = Counted { raced: mfoe.counters.raced, ..Counted::default() };
        for counters in mfoe.page_sizes().iter().map(|&size| &mfoe.ready(size).counters) {
            all.hits += counters.hits;
            all.accounted += counters.accounted;
            all.accounted_by_calls += counters.accounted_by_calls;
        }
        all
    }

    /// Runs all threads until they are idle.
    fn finish_threads(&mut self) {
        let threads: Vec<usize> = self.refills.iter().copied().chain([self.arming]).collect();
        for thread in threads {
            self.simulation.scheduler.cpus[CpuId(0)].begin(Activity::Kernel { thread, layer: LAYER });
            while self.simulation.step(CpuId(0)).expect("there is memory") {}
            assert!(self.simulation.scheduler.cpus[CpuId(0)].task.stack.is_empty());
        }
    }

    fn begin(&mut self, cpu: CpuId, actor: Actor) {
        let simulation = &mut self.simulation;
        let thread = match actor {
            Touch { page, intent } => {
                // The first CPU touches another part of a 2 MiB page than the others.
                let part = if self.page > PAGE && cpu.0 == 0 { 17 * PAGE } else { 0 };
                let va = VirtAddr(BASE + page * self.page + part);
                return simulation.raise(cpu, &PageFault { space: self.space, va, intent, reached: None });
            }
            Call { page } => {
                let call = AheadCall::new(self.space, VirtAddr(BASE + page * self.page), cpu);
                return simulation.scheduler.cpus[cpu].begin(Activity::Ahead(call));
            }
            Refill { table } => self.refills[table as usize],
            Arm => self.arming,
            Disarm => {
                let Some(EngineState::Mfoe(mfoe)) = &mut simulation.kernels.os.layers[LAYER].mechanisms.engine else {
                    unreachable!("it is there")
                };
                let range = VaRange { start: VirtAddr(0), end: VirtAddr(1 << 47) };
                mfoe.stop(ArmingJob { space: self.space.index, range, arm: false });
                self.arming
            }
            Unmap { .. } | UnmapElsewhere | Exit => unreachable!("it is one step"),
        };
        simulation.scheduler.cpus[cpu].begin(Activity::Kernel { thread, layer: LAYER });
    }

    fn refill(&self, actor: Actor) -> usize {
        let Refill { table } = actor else { unreachable!("it is a thread of a table") };
        self.refills[table as usize]
    }

    fn mfoe(&self) -> &Mfoe {
        let Some(EngineState::Mfoe(mfoe)) = &self.simulation.kernels.os.layers[LAYER].mechanisms.engine else {
            unreachable!("the system has it")
        };
        mfoe
    }

    /// Mapped pages of the mapping.
    fn mapped(&self) -> Vec<u64> {
        let layer = &self.simulation.kernels.os.layers[LAYER];
        let pages = layer.mapped(self.space.index, VirtAddr(BASE), VirtAddr(BASE + PAGES * self.page));
        pages.iter().map(|page| (page.va.0 - BASE) / self.page).collect()
    }
}

impl explore::Race for Race {
    type Actor = Actor;

    fn simulation(&self) -> &Simulation {
        &self.simulation
    }

    fn step(&mut self, cpu: CpuId, actor: Actor) -> bool {
        let simulation = &mut self.simulation;
        let call = match actor {
            Unmap { page, pages } => Some(EventKind::Munmap { addr: BASE + page * self.page, len: pages * self.page }),
            UnmapElsewhere => Some(EventKind::Munmap { addr: BASE + (1 << 30), len: PAGE }),
            Exit => Some(EventKind::Exit { code: 0 }),
            Touch { .. } | Call { .. } | Refill { .. } | Arm | Disarm => None,
        };
        if let Some(kind) = call {
            if !simulation.may_carry_out(cpu, self.space, &kind) {
                return false;
            }
            if actor == Exit {
                simulation.kernels.os.drop_mappings(CpuId(0), self.space).expect("there is memory");
            } else {
                simulation.change_mappings(cpu, self.space, &kind).expect("there is memory");
            }
            return true;
        }
        if simulation.scheduler.cpus[cpu].task.stack.is_empty() {
            self.begin(cpu, actor);
        }
        loop {
            assert!(self.simulation.step(cpu).expect("there is memory"), "a CPU that can go on does");
            let simulation = &self.simulation;
            let Some(entry) = simulation.scheduler.cpus[cpu].task.stack.last() else { return true };
            let visible = match &entry.activity {
                Activity::Fault(fault) => {
                    use Stage::{Allocation, Install, Lookup, Walk};
                    matches!(fault.stage(), Lookup | Walk | Allocation | Install)
                }
                Activity::Engine(_) => true,
                Activity::Kernel { .. } => {
                    let thread = format!(
                        "{:?}",
                        simulation.kernels.threads.get(if matches!(actor, Arm | Disarm) {
                            self.arming
                        } else {
                            self.refill(actor)
                        })
                    );
                    !["Allocate", "Zero", "Batch", "Begin"].iter().any(|own| thread.contains(&format!("state: {own}")))
                }
                Activity::Populate(_)
                | Activity::Sync(_)
                | Activity::PageOut(_)
                | Activity::Mapping(_)
                | Activity::ExitScan(_)
                | Activity::EngineCall(_)
                | Activity::Ahead(_)
                | Activity::Fill(_) => true,
            };
            if visible || simulation.scheduler.cpus[cpu].state != CpuState::Ready {
                return false;
            }
        }
    }

    fn check(&mut self) {
        assert_frames_conserved(&self.simulation, &[self.space]);
    }
}

/// Runs all schedules from `begin`; returns their number.
fn explore_from(begin: &Race, actors: &[Actor], finish: &dyn Fn(&Race)) -> usize {
    let interruptions = if actors.len() > 2 { INTERRUPTIONS } else { usize::MAX };
    explore::explore(begin, actors, interruptions, finish)
}

/// Runs all schedules with pages of 2 MiB, and tables of two entries for them; returns their number.
fn explore_huge(actors: &[Actor], finish: &dyn Fn(&Race)) -> usize {
    explore_from(&Race::of_pages(PageSize::Size2M, actors, 2, &[]), actors, finish)
}

/// Runs all schedules with tables of two entries; returns their number.
fn explore(actors: &[Actor], finish: &dyn Fn(&Race)) -> usize {
    explore_from(&Race::new(actors, 2, &[]), actors, finish)
}

#[test]
fn two_engines_on_a_page_map_it_once() {
    for race in [[store(5), store(5)], [load(5), store(5)]] {
        let count = explore(&race, &|race| {
            assert_eq!(race.mapped(), [0, 5]);
            let (now, before) = (race.counted(), race.before);
            assert_eq!(now.hits - before.hits, 1, "who comes second takes no frame");
            assert!(now.raced - before.raced <= 1);
        });
        assert!(count > 50, "{count} schedules");
    }
}

/// Section 4.8: the call locks the page-table page, and the walker and handlers the entry.
#[test]
fn calls_engines_and_handlers_map_a_page_once() {
    let call = Call { page: 5 };
    for race in [&[call, call][..], &[call, store(5)], &[call, store(5), Refill { table: 0 }]] {
        let count = explore(race, &|race| {
            assert_eq!(race.mapped(), [0, 5]);
            assert_eq!(race.counted().hits - race.before.hits, 1, "who comes second takes no frame");
        });
        assert!(count > 50, "{count} schedules");
    }
    // The second CPU's table is empty, so that the kernel handles its fault.
    let race = [call, store(5)];
    let count = explore_from(&Race::new(&race, 2, &[1, 1]), &race, &|race| {
        assert_eq!(race.mapped(), [0, 5, ARMED - 2, ARMED - 1]);
    });
    assert!(count > 50, "{count} schedules");
    let count = explore(&[call, Unmap { page: 0, pages: 6 }], &|race| assert!(race.mapped().is_empty()));
    assert!(count >= 5, "{count} schedules");
    for thread in [Arm, Disarm] {
        let count = explore(&[call, store(5), thread], &|race| assert_eq!(race.mapped(), [0, 5]));
        assert!(count > 50, "{count} schedules");
    }
}

#[test]
fn an_engine_and_a_handler_map_a_page_once() {
    // The second CPU's table is empty, so the kernel handles the fault.
    let race = [store(5), store(5)];
    let begin = Race::new(&race, 2, &[1, 1]);
    let ways = RefCell::new(BTreeSet::new());
    let count = explore_from(&begin, &race, &|race| {
        assert_eq!(race.mapped(), [0, 5, ARMED - 2, ARMED - 1]);
        let minor = race.simulation.kernels.os.faults[0].minor - begin.simulation.kernels.os.faults[0].minor;
        let hits = race.counted().hits - race.before.hits;
        assert_eq!(hits + minor, 1, "one of them maps it");
        ways.borrow_mut().insert((hits, minor));
    });
    assert!(count > 50, "{count} schedules");
    assert_eq!(ways.take().into_iter().collect::<Vec<_>>(), [(0, 1), (1, 0)], "either of them does");
}

#[test]
fn handlers_engines_and_the_thread_that_arms_map_a_page_once() {
    let count = explore(&[store(ARMED), Arm], &|race| assert_eq!(race.mapped(), [0, ARMED]));
    assert!(count > 50, "{count} schedules");
    let count = explore(&[store(ARMED), store(ARMED), Arm], &|race| assert_eq!(race.mapped(), [0, ARMED]));
    assert!(count > 500, "{count} schedules");
}

#[test]
fn a_table_is_filled_while_its_frames_are_taken() {
    let count = explore(&[store(5), Refill { table: 0 }], &|race| {
        assert_eq!(race.mapped(), [0, 5]);
        let (now, before) = (race.counted(), race.before);
        assert_eq!(now.hits - before.hits, 1, "a frame was left");
        assert!(now.accounted - before.accounted >= WRITTEN);
    });
    assert!(count > 50, "{count} schedules");
}

#[test]
fn an_unmapped_page_stays_unmapped_and_is_accounted_for_once() {
    let unmap = Unmap { page: 0, pages: 6 };
    let count = explore(&[store(5), unmap], &|race| assert!(race.mapped().is_empty()));
    assert!(count >= 5, "{count} schedules");
    let count = explore(&[unmap, Refill { table: 0 }], &|race| {
        assert!(race.mapped().is_empty());
        let (now, before) = (race.counted(), race.before);
        let accounted = |counted: Counted| counted.accounted + counted.accounted_by_calls;
        assert_eq!(accounted(now) - accounted(before), WRITTEN);
    });
    assert!(count >= 4, "{count} schedules");
    let count = explore(&[store(5), unmap, Refill { table: 0 }], &|race| assert!(race.mapped().is_empty()));
    assert!(count > 200, "{count} schedules");
}

#[test]
fn a_page_that_is_about_to_be_mapped_keeps_its_entry() {
    for race in [&[store(5), Disarm][..], &[store(5), store(5), Disarm]] {
        let count = explore(race, &|race| assert_eq!(race.mapped(), [0, 5]));
        assert!(count > 10, "{count} schedules");
    }
}

#[test]
fn a_call_for_another_mapping_ignores_pages_about_to_be_mapped() {
    let count = explore(&[store(5), UnmapElsewhere], &|race| assert_eq!(race.mapped(), [0, 5]));
    assert!(count >= 5, "{count} schedules");
}

#[test]
fn an_exit_leaves_nothing_behind() {
    for thread in [Refill { table: 0 }, Arm] {
        let count = explore(&[store(5), Exit, thread], &|race| {
            assert!(race.mapped().is_empty());
            let layer = &race.simulation.kernels.os.layers[LAYER];
            let all = VaRange { start: VirtAddr(0), end: VirtAddr(1 << 47) };
            assert!(layer.words(race.space.index, all).is_empty(), "armed entries are left");
            let tables = &race.mfoe().ready(PageSize::Size4K).tables;
            let used = tables.cpus().flat_map(|cpu| tables.used(cpu, &layer.memory.contents)).count();
            assert_eq!(used, 0, "used entries are left");
            assert!(race.mfoe().jobs.is_empty(), "mappings are left to be armed");
        });
        assert!(count > 200, "{thread:?}: {count} schedules");
    }
}

/// Pages of 2 MiB, whose entries are one level higher.
#[test]
fn huge_pages_are_mapped_once_and_unmapped_with_their_mapping() {
    let count = explore_huge(&[store(5), load(5)], &|race| {
        assert_eq!(race.mapped(), [0, 5]);
        assert_eq!(race.counted().hits - race.before.hits, 1, "who comes second takes no frame");
    });
    assert!(count > 50, "{count} schedules");
    let count = explore_huge(&[store(ARMED), Arm], &|race| assert_eq!(race.mapped(), [0, ARMED]));
    assert!(count > 50, "{count} schedules");
    let unmap = Unmap { page: 0, pages: 6 };
    let count = explore_huge(&[store(5), unmap], &|race| assert!(race.mapped().is_empty()));
    assert!(count >= 5, "{count} schedules");
    let count = explore_huge(&[store(5), Disarm], &|race| assert_eq!(race.mapped(), [0, 5]));
    assert!(count > 10, "{count} schedules");
}

/// Without a ready frame the kernel handles the fault; without contiguous memory it maps 4 KiB pages instead.
#[test]
fn an_engine_and_a_handler_of_a_huge_page_map_it_once() {
    let race = [store(5), store(5)];
    let begin = Race::of_pages(PageSize::Size2M, &race, 2, &[1, 1]);
    let ways = RefCell::new(BTreeSet::new());
    let minor = begin.simulation.kernels.os.faults[0].minor;
    let count = explore_from(&begin, &race, &|race| {
        let minor = race.simulation.kernels.os.faults[0].minor - minor;
        assert_eq!(race.mapped(), [0, 5, ARMED - 2, ARMED - 1]);
        let hits = race.counted().hits - race.before.hits;
        assert_eq!(hits + minor, 1, "one of them maps it");
        ways.borrow_mut().insert((hits, minor));
    });
    assert!(count > 50, "{count} schedules");
    assert_eq!(ways.take().into_iter().collect::<Vec<_>>(), [(0, 1), (1, 0)], "either of them does");
    let mut begin = begin;
    begin.use_up_contiguous_memory();
    let huge = begin.counted().hits;
    let count = explore_from(&begin, &[store(5), load(5)], &|race| {
        let layer = &race.simulation.kernels.os.layers[LAYER];
        let there = layer.mapped(race.space.index, VirtAddr(BASE + 5 * race.page), VirtAddr(BASE + 6 * race.page));
        let sizes: Vec<PageSize> = there.iter().map(|page| page.mapping.size).collect();
        let whole = race.counted().hits > huge;
        assert_eq!(sizes, if whole { vec![PageSize::Size2M] } else { vec![PageSize::Size4K; 2] });
    });
    assert!(count > 50, "{count} schedules");
}
