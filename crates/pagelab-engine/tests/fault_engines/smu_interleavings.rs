//! Explores all orders of the steps of misses in the storage management unit, handlers, kpted, kpoold, reclaim, msync,
//! truncation, block moves and mapping calls on one page, through the functions that a run uses. At the end of each,
//! every mapped page contains the last value stored to it.
//!
//! Each actor has a CPU. A schedule selects the actor of each step that is visible to others. For two actors all
//! schedules are run; for three, or with kpted (which scans two tables entry by entry), those with at most two
//! preemptions.

use std::cell::RefCell;
use std::collections::BTreeSet;

use crate::common::explore::{self, Race as _};
use crate::common::{ScriptWriter, assert_frames_conserved, config, first_task, run};
use pagelab_engine::base::addr::VirtAddr;
use pagelab_engine::base::ids::{CpuId, LayerId, SpaceId};
use pagelab_engine::base::page_fault::{Intent, PageFault};
use pagelab_engine::base::translation::Translation;
use pagelab_engine::fault_engine::smu::engine_access::smu;
use pagelab_engine::fault_engine::smu::state::SmuCounters;
use pagelab_engine::kernel;
use pagelab_engine::kernel::effects::Effects;
use pagelab_engine::kernel::fault::stage::Stage;
use pagelab_engine::kernel::reclaim::Pressure;
use pagelab_engine::machine::activity::Activity;
use pagelab_engine::machine::cpu::CpuState;
use pagelab_engine::machine::pcids::Presence;
use pagelab_engine::machine::simulation::Simulation;
use pagelab_trace::{EventKind, MapFlags, Protection};

const LAYER: LayerId = LayerId(0);
const BASE: u64 = 0x7f00_0000_0000;
const PAGE: u64 = 4096;
const PAGES: u64 = 16;
/// A page that the unit mapped and that is not yet accounted for; one that is accounted for, written and not in use;
/// and one that is not in memory.
const PENDING: u64 = 0;
const OLD: u64 = 1;
const ABSENT: u64 = 5;
const SCAN_STEPS: u32 = 6;
const MS_SYNC: u32 = 4;
/// Maximum number of preemptions in a schedule of three actors, or with kpted.
const INTERRUPTIONS: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Actor {
    /// An access whose walk found no page.
    Touch {
        page: u64,
        intent: Intent,
    },
    Kpted,
    Kpoold,
    /// kswapd, for a limited number of steps.
    Reclaim,
    Unmap {
        page: u64,
        pages: u64,
    },
    /// The file is truncated before a page.
    Truncate {
        page: u64,
    },
    /// The blocks of the first pages move.
    Relocate {
        pages: u64,
    },
    /// msync of the mapping.
    Sync,
    /// Another mapping of the same file.
    Share,
    /// The mapping is made inaccessible and accessible again, which rewrites its entries.
    Rearm,
    Exit,
}

use Actor::{Exit, Kpoold, Kpted, Rearm, Reclaim, Relocate, Share, Sync, Touch, Truncate, Unmap};

fn store(page: u64) -> Actor {
    Touch { page, intent: Intent::Store }
}

fn load(page: u64) -> Actor {
    Touch { page, intent: Intent::Load }
}

#[derive(Clone)]
struct Race {
    simulation: Simulation,
    space: SpaceId,
    threads: Vec<(&'static str, usize)>,
    /// Steps of kswapd so far.
    scan_steps: u32,
    before: SmuCounters,
}

impl Race {
    /// With this many free pages in the queue, and this many registers.
    fn new(actors: usize, free: usize, registers: u32) -> Self {
        Self::on(actors, free, registers, &[])
    }

    /// The same with some keys changed; `free` is the number of pages in the first socket's queue.
    fn on(actors: usize, free: usize, registers: u32, keys: &[&str]) -> Self {
        let cores = format!("machine.cores={actors}");
        let registers = format!("system.layers.native.fault_engine.pmshr={registers}");
        let mut set = vec![
            "machine.memory_bytes=8MiB",
            &cores,
            "machine.threads_per_core=1",
            "machine.cache.l3.size_bytes=80KiB",
            "machine.cache.l2.size_bytes=8KiB",
            "system.layers.native.fault_engine.kpted_cycles=1000000000000",
            "system.layers.native.fault_engine.kpoold_cycles=1000000000000",
            "system.layers.native.fault_engine.free_pages=4",
            "system.layers.native.fault_engine.prefetch=1",
            "system.layers.native.fault_engine.sync_refill=0",
            r#"system.layers.0.frame_allocator={"kind":"buddy"}"#,
            r#"kernel.storage={"read_cycles":30000,"write_cycles":9000,"queue_depth":64}"#,
            &registers,
        ];
        set.extend(keys);
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE + (1 << 30), PAGE);
        script.store(0, BASE + (1 << 30));
        let (prot, flags) = (Protection::READ_WRITE, MapFlags(MapFlags::SHARED));
        let file = Some("data".into());
        script.event(0, EventKind::Mmap { addr: BASE, len: PAGES * PAGE, prot, flags, file, file_offset: 0 });
        let cpus: Vec<usize> = (0..actors).collect();
        let (simulation, _) = run(&config("hwdp", &set), script.finish(), &cpus);
        let space = simulation.programs.inputs[0].spaces().next().expect("the process has not ended");
        let named: Vec<String> = simulation.kernels.threads.iter().map(|thread| format!("{thread:?}")).collect();
        let number =
            |name: &str| named.iter().position(|thread| thread.starts_with(name)).expect("there is such a thread");
        let threads = ["Kpted", "Kpoold", "Kswapd"].map(|name| (name, number(name))).into();
        let mut race = Self { simulation, space, threads, scan_steps: 0, before: SmuCounters::default() };
        for cpu in &mut race.simulation.scheduler.cpus {
            cpu.state = CpuState::Ready;
            cpu.presence = Presence::Running;
        }
        race.finish(Kpoold);
        race.finish(store(OLD));
        race.finish(Kpted);
        race.age();
        race.finish(load(PENDING));
        // The last touches leave this many free pages.
        while smu(&race.simulation.kernels.os.layers[LAYER]).units[0].free.count() as usize > free {
            let last = PAGES - 1 - u64::from(smu(&race.simulation.kernels.os.layers[LAYER]).units[0].free.count());
            race.finish(load(last));
        }
        race.before = *smu(&race.simulation.kernels.os.layers[LAYER]).counters;
        race
    }

    /// Ages the pages in the lists: they have not been accessed for a while.
    fn age(&mut self) {
        let scan = self.simulation.kernels.os.scan_pages(
            &mut Effects::default(),
            LAYER,
            Pressure::Memory,
            first_task(CpuId(0)),
        );
        assert_eq!(scan.freed, 0, "pages that were accessed stay for a round");
    }

    /// Runs one actor to its end.
    fn finish(&mut self, actor: Actor) {
        self.begin(CpuId(0), actor);
        while self.simulation.step(CpuId(0)).expect("there is memory") {}
        self.end(CpuId(0), actor);
    }

    fn begin(&mut self, cpu: CpuId, actor: Actor) {
        let name = match actor {
            Touch { page, intent } => {
                let va = VirtAddr(BASE + page * PAGE);
                return self.simulation.raise(cpu, &PageFault { space: self.space, va, intent, reached: None });
            }
            Kpted => "Kpted",
            Kpoold => "Kpoold",
            Reclaim => "Kswapd",
            Sync => {
                let sync = kernel::sync::Sync::new(self.space, BASE, PAGES * PAGE, MS_SYNC);
                let sync = sync.expect("it is possible").expect("it is one that waits");
                self.simulation.kernels.os.account_for_taken(self.space);
                return self.simulation.scheduler.cpus[cpu].begin(Activity::Sync(sync));
            }
            Unmap { .. } | Truncate { .. } | Relocate { .. } | Share | Rearm | Exit => unreachable!("it is one step"),
        };
        let thread = self.threads.iter().find(|(other, _)| *other == name).expect("it is listed").1;
        self.simulation.scheduler.cpus[cpu].begin(Activity::Kernel { thread, layer: LAYER });
    }

    /// Makes the access, and checks its value.
    fn end(&mut self, _: CpuId, actor: Actor) {
        let Touch { page, intent } = actor else { return };
        let va = VirtAddr(BASE + page * PAGE);
        let layer = &mut self.simulation.kernels.os.layers[LAYER];
        let Some((frame, writable)) = layer.recorded(self.space.index, va) else { return };
        let store = intent == Intent::Store && writable;
        let wrong = layer.access_contents(self.space.index, va, frame, store);
        assert_eq!(wrong, None, "what {actor:?} sees");
        if store {
            let table = &mut layer.spaces[self.space.index].table;
            let mut list = pagelab_engine::page_table::WalkList::new();
            table.walk(&layer.memory.contents, va, &mut list);
            let pagelab_engine::page_table::Leaf::Present(mapping) = list.leaf else { unreachable!("it is recorded") };
            assert!(Translation::from_mapping(&mapping).writable());
            let flags = pagelab_engine::page_table::PteFlags { dirty: true, ..mapping.flags };
            table.set_flags(&mut layer.memory.contents, va, flags);
        }
    }

    fn mapped(&self) -> Vec<u64> {
        let layer = &self.simulation.kernels.os.layers[LAYER];
        let pages = layer.mapped(self.space.index, VirtAddr(BASE), VirtAddr(BASE + PAGES * PAGE));
        pages.iter().map(|page| (page.va.0 - BASE) / PAGE).collect()
    }

    /// Counts during the race.
    fn counted(&self, get: fn(&SmuCounters) -> u64) -> u64 {
        get(&smu(&self.simulation.kernels.os.layers[LAYER]).counters) - get(&self.before)
    }
}

impl explore::Race for Race {
    type Actor = Actor;

    fn simulation(&self) -> &Simulation {
        &self.simulation
    }

    fn step(&mut self, cpu: CpuId, actor: Actor) -> bool {
        let call = match actor {
            Unmap { page, pages } => Some(EventKind::Munmap { addr: BASE + page * PAGE, len: pages * PAGE }),
            Share => {
                let (prot, flags) = (Protection::READ_WRITE, MapFlags(MapFlags::SHARED));
                let (addr, file) = (BASE + (1 << 32), Some("data".into()));
                Some(EventKind::Mmap { addr, len: PAGES * PAGE, prot, flags, file, file_offset: 0 })
            }
            Truncate { page } => {
                Some(EventKind::Truncate { file: "data".into(), old_len: PAGES * PAGE, new_len: page * PAGE })
            }
            Relocate { pages } => Some(EventKind::Relocate { file: "data".into(), offset: 0, len: pages * PAGE }),
            Exit => Some(EventKind::Exit { code: 0 }),
            Rearm => {
                let prot = Protection { read: false, write: false, execute: false };
                Some(EventKind::Mprotect { addr: BASE, len: PAGES * PAGE, prot })
            }
            Touch { .. } | Kpted | Kpoold | Reclaim | Sync => None,
        };
        let simulation = &mut self.simulation;
        if let Some(kind) = call {
            if !simulation.may_carry_out(cpu, self.space, &kind) {
                return false;
            }
            if let Truncate { .. } | Relocate { .. } = actor {
                simulation.change_file(cpu, self.space.layer, &kind).expect("there is memory");
                return true;
            }
            if actor == Exit {
                simulation.kernels.os.drop_mappings(CpuId(0), self.space).expect("there is memory");
            } else {
                simulation.change_mappings(cpu, self.space, &kind).expect("there is memory");
            }
            if actor == Rearm {
                let again = EventKind::Mprotect { addr: BASE, len: PAGES * PAGE, prot: Protection::READ_WRITE };
                simulation.change_mappings(cpu, self.space, &again).expect("there is memory");
            }
            return true;
        }
        if actor == Reclaim {
            self.scan_steps += 1;
            let reclaim = simulation.kernels.os.layers[LAYER].memory.reclaim.as_mut().expect("there is storage");
            reclaim.marks.high = if self.scan_steps < SCAN_STEPS { u64::MAX } else { 0 };
        }
        if self.simulation.scheduler.cpus[cpu].task.stack.is_empty() {
            self.begin(cpu, actor);
        }
        loop {
            assert!(self.simulation.step(cpu).expect("there is memory"), "a CPU that can go on does");
            let Some(entry) = self.simulation.scheduler.cpus[cpu].task.stack.last() else {
                self.end(cpu, actor);
                return true;
            };
            let visible = match &entry.activity {
                Activity::Fault(fault) => {
                    use Stage::{Allocation, Install, Lookup, Walk};
                    matches!(fault.stage(), Lookup | Walk | Allocation | Install)
                }
                Activity::Engine(_)
                | Activity::Kernel { .. }
                | Activity::Populate(_)
                | Activity::Sync(_)
                | Activity::PageOut(_)
                | Activity::Mapping(_)
                | Activity::ExitScan(_)
                | Activity::EngineCall(_)
                | Activity::Ahead(_)
                | Activity::Fill(_) => true,
            };
            if visible || self.simulation.scheduler.cpus[cpu].state != CpuState::Ready {
                return false;
            }
        }
    }

    /// Checks that marks and the engine's records agree, pages contain the stored values, and nothing is lost.
    fn check(&mut self) {
        let layer = &mut self.simulation.kernels.os.layers[LAYER];
        let index = self.space.index;
        for page in layer.mapped(index, VirtAddr(BASE), VirtAddr(BASE + PAGES * PAGE)) {
            let marked = layer.spaces[index].table.mark(&layer.memory.contents, page.va, 1).is_some_and(|(_, on)| on);
            assert_eq!(marked, smu(layer).pending.contains_key(&(index, page.va)), "the mark of {:?}", page.va);
            assert_eq!(layer.access_contents(index, page.va, page.mapping.pfn, false), None);
        }
        assert_frames_conserved(&self.simulation, &[self.space]);
    }
}

/// Runs all schedules; returns their number.
fn explore(begin: &Race, actors: &[Actor], finish: &dyn Fn(&Race)) -> usize {
    let many = actors.len() > 2 || actors.contains(&Kpted);
    explore::explore(begin, actors, if many { INTERRUPTIONS } else { usize::MAX }, finish)
}

#[test]
fn misses_on_a_page_read_it_once() {
    let begin = Race::new(2, 2, 2);
    let count = explore(&begin, &[load(ABSENT), store(ABSENT)], &|race| {
        assert_eq!((race.counted(|counters| counters.mapped), race.counted(|counters| counters.gone)), (1, 0));
        assert!(race.mapped().contains(&ABSENT));
    });
    assert!(count > 10, "{count} schedules");
}

#[test]
fn with_one_register_misses_take_turns() {
    let begin = Race::new(2, 2, 1);
    let full = RefCell::new(BTreeSet::new());
    let count = explore(&begin, &[load(ABSENT), store(ABSENT + 1)], &|race| {
        assert_eq!(race.counted(|counters| counters.mapped), 2);
        full.borrow_mut().insert(race.counted(|counters| counters.full));
    });
    assert!(count > 10, "{count} schedules");
    assert_eq!(
        full.take().into_iter().collect::<Vec<_>>(),
        [0, 1],
        "the second waits, or comes when the first is done"
    );
}

/// Two sockets with a drive each; the file's pages alternate between them.
const SOCKETS: &[&str] = &[
    r#"kernel.storage={"model":"drive","queue_depth":32,"controller_ns":100,"block_ns":50,"units":16,"read_ns":9000,"write_ns":900,"program_ns":9000,"buffer_blocks":64,"drives":2,"chunk_blocks":1}"#,
    "system.layers.native.fault_engine.sockets=2",
];

#[test]
fn units_of_two_sockets_do_not_wait_for_each_other() {
    let begin = Race::on(2, 2, 1, SOCKETS);
    for (other, most) in [(ABSENT - 1, 0), (ABSENT + 2, 1)] {
        let full = RefCell::new(BTreeSet::new());
        let count = explore(&begin, &[load(ABSENT), store(other)], &|race| {
            assert_eq!(race.counted(|counters| counters.mapped), 2);
            full.borrow_mut().insert(race.counted(|counters| counters.full));
            read_all(race);
        });
        assert!(count > 10, "{count} schedules");
        assert_eq!(full.take(), (0..=most).collect(), "page {other}");
    }
    // One waits for a register of one socket while its page moves to the other.
    let begin_three = Race::on(3, 2, 1, SOCKETS);
    let count = explore(&begin_three, &[load(ABSENT), store(ABSENT + 2), Relocate { pages: 7 }], &read_all);
    assert!(count > 20, "{count} schedules");
    for actors in [[store(ABSENT), Relocate { pages: 7 }], [Kpoold, load(ABSENT)], [Reclaim, store(OLD)]] {
        let count = explore(&begin, &actors, &read_all);
        assert!(count >= 2, "{actors:?}: {count} schedules");
    }
}

#[test]
fn one_of_two_misses_gets_the_last_free_page() {
    let begin = Race::new(2, 1, 2);
    let majors = begin.simulation.kernels.os.faults[LAYER].major;
    let count = explore(&begin, &[load(ABSENT), load(ABSENT + 1)], &|race| {
        assert_eq!((race.counted(|counters| counters.mapped), race.counted(|counters| counters.empty)), (1, 1));
        assert_eq!(race.simulation.kernels.os.faults[LAYER].major - majors, 1, "the kernel reads the other one");
        assert!([ABSENT, ABSENT + 1].iter().all(|page| race.mapped().contains(page)));
    });
    assert!(count > 10, "{count} schedules");
    let begin = Race::new(2, 0, 2);
    let count = explore(&begin, &[store(ABSENT), Kpoold], &|race| assert!(race.mapped().contains(&ABSENT)));
    assert!(count > 20, "{count} schedules");
}

/// The kernel reads a page for which no free page was available; once one is, the unit must not read the page again.
#[test]
fn a_page_read_by_the_kernel_is_read_once() {
    let begin = Race::new(3, 0, 2);
    let count = explore(&begin, &[load(ABSENT), load(ABSENT), Kpoold], &|race| {
        assert!(race.mapped().contains(&ABSENT));
        let mut race = race.clone();
        race.finish(Kpted);
        race.check();
    });
    assert!(count > 50, "{count} schedules");
}

#[test]
fn marks_lead_kpted_to_every_page() {
    let begin = Race::new(2, 2, 2);
    let count = explore(&begin, &[store(ABSENT), Kpted], &|race| {
        // A second pass finds what the first one missed.
        let mut race = race.clone();
        race.finish(Kpted);
        assert!(smu(&race.simulation.kernels.os.layers[LAYER]).pending.is_empty(), "a page is marked and not found");
        assert!(race.mapped().contains(&ABSENT));
    });
    assert!(count > 10, "{count} schedules");
}

#[test]
fn reclaimed_pages_are_read_back_unchanged() {
    let begin = Race::new(2, 2, 2);
    for touch in [load(OLD), store(OLD)] {
        let ways = RefCell::new(BTreeSet::new());
        let count = explore(&begin, &[Reclaim, touch], &|race| {
            ways.borrow_mut().insert(race.mapped().contains(&OLD));
            // Wherever the page is now, the next access sees its last value.
            let mut race = race.clone();
            race.finish(load(OLD));
            race.check();
        });
        assert!(count > 20, "{count} schedules");
        assert_eq!(ways.take().len(), 2, "it leaves before or after the access");
    }
}

#[test]
fn unmapped_or_shared_mappings_lose_no_pages() {
    let begin = Race::new(2, 2, 2);
    let unmap = Unmap { page: 0, pages: 8 };
    for call in [unmap, Exit] {
        let count = explore(&begin, &[store(ABSENT), call], &|race| {
            assert!(!race.mapped().iter().any(|&page| page < 8), "{:?}", race.mapped());
        });
        assert!(count >= 5, "{count} schedules");
        let count = explore(&begin, &[Kpted, call], &|race| assert!(!race.mapped().iter().any(|&page| page < 8)));
        assert!(count >= 5, "{count} schedules");
    }
    let count = explore(&begin, &[store(ABSENT), Share], &|race| {
        assert!(race.mapped().contains(&ABSENT));
        let mut race = race.clone();
        race.finish(load(PENDING));
        race.check();
    });
    assert!(count >= 5, "{count} schedules");
}

/// Whatever happened to the pages, the next accesses see their last values.
fn read_all(race: &Race) {
    let mut race = race.clone();
    [PENDING, OLD, ABSENT].into_iter().for_each(|page| race.finish(load(page)));
    race.check();
}

#[test]
fn truncated_or_moved_files_are_read_correctly() {
    let begin = Race::new(2, 2, 2);
    for call in [Truncate { page: 0 }, Truncate { page: 4 }, Relocate { pages: 8 }] {
        for other in [store(ABSENT), load(PENDING), store(OLD), Kpted, Kpoold, Reclaim, Sync] {
            let count = explore(&begin, &[other, call], &read_all);
            assert!(count >= 2, "{other:?} and {call:?}: {count} schedules");
        }
    }
}

#[test]
fn synced_pages_are_on_storage() {
    let begin = Race::new(2, 2, 2);
    for other in [store(ABSENT), store(OLD), store(PENDING), Reclaim, Kpted, Sync, Unmap { page: 0, pages: 8 }] {
        let count = explore(&begin, &[other, Sync], &|race| {
            let mut race = race.clone();
            race.finish(Sync);
            let synced = race.simulation.kernels.os.mapping.pages_synced;
            race.finish(Sync);
            assert_eq!(race.simulation.kernels.os.mapping.pages_synced, synced, "nothing is left to write");
            read_all(&race);
        });
        assert!(count >= 2, "{other:?}: {count} schedules");
    }
}

fn three_at_a_time(races: &[[Actor; 3]]) {
    let begin = Race::new(3, 2, 2);
    for race in races {
        let count = explore(&begin, race, &read_all);
        assert!(count > 10, "{race:?}: {count} schedules");
    }
}

#[test]
fn three_at_a_time_while_pages_are_mapped_and_reclaimed() {
    three_at_a_time(&[
        [store(ABSENT), Kpted, Reclaim],
        [store(OLD), Kpted, Reclaim],
        [Reclaim, Rearm, load(OLD)],
        [store(OLD), Sync, Reclaim],
        [store(ABSENT), Relocate { pages: 8 }, Reclaim],
    ]);
}

#[test]
fn three_at_a_time_while_pages_go() {
    let unmap = Unmap { page: 0, pages: 8 };
    three_at_a_time(&[
        [store(ABSENT), load(ABSENT), unmap],
        [load(ABSENT), Kpted, unmap],
        [store(ABSENT), Kpoold, Exit],
        [store(ABSENT), Kpted, Truncate { page: 1 }],
        [Sync, Truncate { page: 1 }, Relocate { pages: 8 }],
    ]);
}
