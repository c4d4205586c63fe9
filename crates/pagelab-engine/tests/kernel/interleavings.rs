//! Explores all orders of the steps of a few faults and mapping calls, through the functions that a run uses.
//!
//! A schedule selects the CPU of each step that is visible to others: VMA look-up, walk, allocation, lock of the
//! page-table page, write of the entry, and return. Other steps only touch private state of the CPU or an unpublished
//! frame, so their order does not matter and they are not separated.

use crate::common::{ScriptWriter, assert_frames_conserved, config, explore, first_task, run};
use pagelab_engine::base::addr::VirtAddr;
use pagelab_engine::base::ids::{CpuId, LayerId, SpaceId};
use pagelab_engine::base::page_fault::{Intent, PageFault};
use pagelab_engine::config::Config;
use pagelab_engine::kernel::effects::Effects;
use pagelab_engine::kernel::fault::Fault;
use pagelab_engine::kernel::fault::stage::Stage;
use pagelab_engine::kernel::os::Os;
use pagelab_engine::kernel::reclaim::Pressure;
use pagelab_engine::kernel::threads::kswapd::Kswapd;
use pagelab_engine::machine::activity::Activity;
use pagelab_engine::machine::cpu::CpuState;
use pagelab_engine::machine::pcids::Presence;
use pagelab_engine::machine::simulation::Simulation;
use pagelab_trace::{EventKind, MapFlags, Protection};

pub(crate) const BASE: u64 = 0x7f00_0000_0000;
pub(crate) const PAGE: u64 = 4096;
/// Pages that the program wrote before the race, the first ones of its mapping.
const WRITTEN: u64 = 2;

/// The action of a CPU in the race. Pages are numbered from the start of the mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Actor {
    Fault {
        page: u64,
        intent: Intent,
    },
    /// The same in the child.
    ChildFault {
        page: u64,
        intent: Intent,
    },
    Unmap {
        page: u64,
        pages: u64,
    },
    /// Unmaps the first pages, between which and the others a page was unmapped before the race.
    UnmapApart {
        pages: u64,
    },
    Protect {
        page: u64,
        pages: u64,
    },
    Fork,
    /// Maps a page that was unmapped before the race, so that the mappings around it merge, and stores to it.
    MapAndStore {
        page: u64,
    },
    /// Stores to the page below a stack, which starts at the next page.
    Grow {
        page: u64,
    },
    /// A scan of kswapd, and the write-back that follows.
    Reclaim,
}

use Actor::{ChildFault, Fork, Grow, MapAndStore, Protect, Reclaim, Unmap, UnmapApart};

pub(crate) fn store(page: u64) -> Actor {
    Actor::Fault { page, intent: Intent::Store }
}

pub(crate) fn load(page: u64) -> Actor {
    Actor::Fault { page, intent: Intent::Load }
}

/// First page of a second mapping, which no one has touched before the race. It is made if a fault needs it.
const SECOND: u64 = 2048;
/// First page of a mapping of a file, made in the same way.
pub(crate) const FILE: u64 = 3072;

/// A race before its first step: a process with a mapping, and a child that exists before the race or is created in it.
#[derive(Clone)]
pub(crate) struct Race {
    pub(crate) simulation: Simulation,
    /// Number of a kernel thread that reclaims for its layer.
    kswapd: usize,
    pub(crate) parent: SpaceId,
    child: SpaceId,
    /// Number of steps of each CPU so far.
    steps: Vec<u32>,
}

impl Race {
    fn new(config: &Config, actors: &[Actor]) -> Self {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 0x40_0000);
        (0..WRITTEN).for_each(|page| script.store(0, BASE + page * PAGE));
        let cpus: Vec<usize> = (0..actors.len()).collect();
        let (mut simulation, _) = run(config, script.finish(), &cpus);
        let parent = simulation.programs.inputs[0].spaces().next().expect("the process has not ended");
        let child =
            simulation.kernels.os.add_space(CpuId(0), simulation.programs.inputs[0].home).expect("there is memory");
        let faults_in = |pages: std::ops::Range<u64>| {
            actors.iter().any(|actor| matches!(actor, Actor::Fault { page, .. } if pages.contains(page)))
        };
        if faults_in(FILE..FILE + 16) {
            let (flags, prot) = (MapFlags(MapFlags::PRIVATE), Protection::READ_WRITE);
            let (addr, len, file) = (BASE + FILE * PAGE, 16 * PAGE, Some("data".into()));
            let map = EventKind::Mmap { addr, len, prot, flags, file, file_offset: 0 };
            simulation.change_mappings(CpuId(0), parent, &map).expect("there is memory");
        }
        if faults_in(SECOND..FILE) {
            let map = crate::common::mmap(BASE + SECOND * PAGE, 16 * PAGE, Protection::READ_WRITE);
            simulation.change_mappings(CpuId(0), parent, &map).expect("there is memory");
        }
        for actor in actors {
            let mut change =
                |kind: EventKind| simulation.change_mappings(CpuId(0), parent, &kind).expect("there is memory");
            match *actor {
                MapAndStore { page: FILE.. } => {}
                MapAndStore { page } | UnmapApart { pages: page } => {
                    change(EventKind::Munmap { addr: BASE + page * PAGE, len: PAGE });
                }
                Grow { page } => {
                    change(EventKind::Munmap { addr: BASE + WRITTEN * PAGE, len: (1024 - WRITTEN) * PAGE });
                    let (addr, len) = (BASE + (page + 1) * PAGE, (1023 - page) * PAGE);
                    let flags = MapFlags(MapFlags::anonymous_private().0 | MapFlags::GROWSDOWN);
                    let prot = Protection::READ_WRITE;
                    change(EventKind::Mmap { addr, len, prot, flags, file: None, file_offset: 0 });
                }
                _ => {}
            }
        }
        if actors.iter().any(|actor| matches!(actor, ChildFault { .. })) {
            simulation.fork(CpuId(0), parent, child).expect("there is memory");
        }
        if let Some(reclaim) = &mut simulation.kernels.os.layers[0].memory.reclaim {
            // The watermark is never reached, and the pages have not been accessed for a while.
            reclaim.marks.high = u64::MAX;
            let scan = simulation.kernels.os.scan_pages(
                &mut Effects::default(),
                LayerId(0),
                Pressure::Memory,
                first_task(CpuId(0)),
            );
            assert_eq!(scan.freed, 0, "pages that were accessed stay for a round");
        }
        for cpu in &mut simulation.scheduler.cpus {
            cpu.state = CpuState::Ready;
            cpu.presence = Presence::Running;
        }
        let kswapd = simulation.kernels.threads.add(Kswapd::new(LayerId(0)).into());
        Self { simulation, kswapd, parent, child, steps: vec![0; actors.len()] }
    }
}

impl explore::Race for Race {
    type Actor = Actor;

    fn simulation(&self) -> &Simulation {
        &self.simulation
    }

    fn step(&mut self, cpu: CpuId, actor: Actor) -> bool {
        let fault =
            |space, page: u64, intent| PageFault { space, va: VirtAddr(BASE + page * PAGE), intent, reached: None };
        let (simulation, parent, steps) = (&mut self.simulation, self.parent, &mut self.steps[cpu.index()]);
        let change = |simulation: &mut Simulation, kind: &EventKind| {
            simulation.may_carry_out(cpu, parent, kind)
                && simulation.change_mappings(cpu, parent, kind).map(|()| true).expect("there is memory")
        };
        let activity = match actor {
            Actor::Fault { page, intent } => Activity::Fault(Fault::new(&fault(parent, page, intent), cpu)),
            ChildFault { page, intent } => Activity::Fault(Fault::new(&fault(self.child, page, intent), cpu)),
            MapAndStore { page } => {
                if *steps == 0 {
                    let map = crate::common::mmap(BASE + page * PAGE, PAGE, Protection::READ_WRITE);
                    *steps = u32::from(change(simulation, &map));
                    return false;
                }
                Activity::Fault(Fault::new(&fault(parent, page, Intent::Store), cpu))
            }
            Grow { page } => Activity::Fault(Fault::new(&fault(parent, page, Intent::Store), cpu)),
            Reclaim => Activity::Kernel { thread: self.kswapd, layer: parent.layer },
            Unmap { page, pages } => {
                return change(simulation, &EventKind::Munmap { addr: BASE + page * PAGE, len: pages * PAGE });
            }
            UnmapApart { pages } => {
                return change(simulation, &EventKind::Munmap { addr: BASE, len: pages * PAGE });
            }
            Protect { page, pages } => {
                let prot = Protection { read: true, ..Protection::default() };
                return change(simulation, &EventKind::Mprotect { addr: BASE + page * PAGE, len: pages * PAGE, prot });
            }
            Fork => {
                let may =
                    simulation.may_carry_out(cpu, parent, &EventKind::Fork { child: pagelab_trace::ProcessIx(1) });
                return may && simulation.fork(cpu, parent, self.child).map(|()| true).expect("there is memory");
            }
        };
        *steps += 1;
        if simulation.scheduler.cpus[cpu].task.stack.is_empty() {
            simulation.scheduler.cpus[cpu].begin(activity);
        }
        loop {
            let holds = |os: &Os| os.locks.all_holders().any(|holder| holder.cpu == cpu);
            let held = holds(&simulation.kernels.os);
            assert!(simulation.step(cpu).expect("there is memory"), "a CPU that can go on does");
            match simulation.scheduler.cpus[cpu].task.stack.last() {
                None => return true,
                Some(_) if matches!(actor, Reclaim) => {
                    let os = &simulation.kernels.os;
                    // The lock of the lists is taken and released before and after, that of a table for each entry. Who
                    // has just released a lock is in no queue.
                    let least = if os.costs.held_locks.is_some() { 12 } else { 2 };
                    return *steps >= least && !holds(os) && (held || least == 2);
                }
                Some(_) if simulation.scheduler.cpus[cpu].state != CpuState::Ready => return false,
                Some(frame) => {
                    use Stage::{Allocation, Install, Lookup, Lru, Return, Rmap, Walk, Zeroing};
                    let takes_both = simulation.kernels.os.costs.vma_fallbacks.is_some();
                    // A page is read in the stage of zeroing, perhaps without the lock of its mapping.
                    let reads = takes_both && simulation.kernels.os.layers[0].storage().is_some();
                    if let Activity::Fault(fault) = &frame.activity
                        && (matches!(fault.stage(), Lookup | Walk | Allocation | Install | Return)
                            || takes_both && fault.stage() == Rmap
                            || simulation.kernels.os.costs.held_locks.is_some() && fault.stage() == Lru
                            || reads && fault.stage() == Zeroing)
                    {
                        return false;
                    }
                }
            }
        }
    }

    fn check(&mut self) {
        assert_frames_conserved(&self.simulation, &[self.parent, self.child]);
    }
}

/// Runs all schedules; returns their number.
fn explore(actors: &[Actor], set: &[&str], finish: &dyn Fn(&Race)) -> usize {
    explore_some(actors, set, usize::MAX, finish)
}

/// Runs the schedules with at most this many interruptions; returns their number.
pub(crate) fn explore_some(actors: &[Actor], set: &[&str], interruptions: usize, finish: &dyn Fn(&Race)) -> usize {
    // Small, since every schedule begins with a new machine.
    let small = [
        "machine.memory_bytes=8MiB",
        "machine.cores=3",
        "machine.threads_per_core=1",
        "machine.cache.l3.size_bytes=80KiB",
        "machine.cache.l2.size_bytes=8KiB",
        r#"system.layers.0.frame_allocator={"kind":"buddy"}"#,
    ];
    let config = config("radix", &[&small, set].concat());
    explore::explore(&Race::new(&config, actors), actors, interruptions, finish)
}

/// Pages mapped in the parent.
fn mapped(race: &Race) -> Vec<u64> {
    let layer = &race.simulation.kernels.os.layers[0];
    let pages = layer.mapped(race.parent.index, VirtAddr(BASE), VirtAddr(BASE + 0x40_0000));
    pages.iter().map(|page| (page.va.0 - BASE) / PAGE).collect()
}

#[test]
fn faults_on_one_page_map_it_once() {
    let written: Vec<u64> = (0..WRITTEN).chain([5]).collect();
    for race in [[store(5), store(5)], [load(5), store(5)], [load(5), load(5)]] {
        let count = explore(&race, &[], &|race| {
            assert_eq!(mapped(race), written);
            let faults = race.simulation.kernels.os.faults[0];
            assert!(faults.minor + faults.raced >= WRITTEN + 2);
        });
        assert!(count > 10, "{count} schedules");
    }
}

#[test]
fn faults_in_a_region_without_tables_build_them_once() {
    let count = explore(&[store(600), store(601)], &[], &|race| {
        assert_eq!(mapped(race), [0, 1, 600, 601]);
        assert_eq!(race.simulation.kernels.os.faults[0].tables, 3 + 1);
    });
    assert!(count > 100, "{count} schedules");
}

#[test]
fn faults_in_one_table_queue_for_its_lock() {
    let pages = [store(5), store(6), store(7)];
    let count = explore_some(&pages, &["kernel.spin_locks=queued"], 3, &|race| {
        assert_eq!(mapped(race), [0, 1, 5, 6, 7]);
    });
    assert!(count > 500, "{count} schedules");
    let actors = [store(5), store(6), Unmap { page: 0, pages: 1024 }];
    let count = explore_some(&actors, &["kernel.spin_locks=queued"], 3, &|race| assert_eq!(mapped(race), [0; 0]));
    assert!(count > 300, "{count} schedules");
}

#[test]
fn an_unmapped_page_stays_unmapped() {
    for lock in ["kernel.fault_lock=mm", "kernel.fault_lock=vma"] {
        let count = explore(&[store(5), store(6), Unmap { page: 4, pages: 3 }], &[lock], &|race| {
            assert_eq!(mapped(race), [0, 1], "the call came after each fault, or each fault after the call");
        });
        assert!(count > 500, "{count} schedules");
    }
}

#[test]
fn a_table_that_a_neighbour_needs_stays() {
    let tables = |race: &Race| race.simulation.kernels.os.layers[0].table_frames();
    // The call waits for no fault in the other mapping, and empties the table that both have.
    let set = ["kernel.fault_lock=vma"];
    let before = std::cell::Cell::new(None);
    let actors = [store(9), UnmapApart { pages: 4 }];
    let count = explore(&actors, &set, &|race| {
        assert_eq!(mapped(race), [9]);
        assert_eq!(*before.get().get_or_insert(tables(race)), tables(race));
        before.set(Some(tables(race)));
    });
    assert!(count > 5, "{count} schedules");
    let alone = std::cell::Cell::new(0);
    explore(&[store(9)], &set, &|race| alone.set(tables(race)));
    assert_eq!(before.get(), Some(alone.get()), "the mapping that has gone was not alone in its table");
}

#[test]
fn faults_that_share_a_translation_cache_never_go_wrong_while_tables_come_and_go() {
    // Any wrong hit ends the run with an error.
    for per in ["vma", "mm", "cpu"] {
        let cache = format!(r#"kernel.translation_cache={{"form":"full-prefix","entries":4,"per":"{per}"}}"#);
        let count = explore(&[store(5), store(600)], &[&cache], &|race| assert_eq!(mapped(race), [0, 1, 5, 600]));
        assert!(count > 50, "{count} schedules");
        for lock in ["kernel.fault_lock=mm", "kernel.fault_lock=vma"] {
            let count = explore(&[store(600), Unmap { page: 0, pages: 1024 }], &[&cache, lock], &|race| {
                assert_eq!(mapped(race), [0; 0]);
                assert_eq!(race.simulation.kernels.os.layers[0].translation_cache_frames(), u64::from(per != "vma"));
            });
            assert!(count > 5, "{count} schedules");
        }
    }
}

#[test]
fn a_mapping_that_grows_waits_for_faults_that_know_it_as_it_was() {
    // There is room for a large page around page 513 only with page 512.
    let count = explore(&[store(513), MapAndStore { page: 512 }], &["system.layers.native.page_size=2M"], &|race| {
        let pages = mapped(race);
        assert!(pages == [0, 512] || pages == [0, 512, 513], "{pages:?}");
    });
    assert!(count > 10, "{count} schedules");
}

#[test]
fn a_stack_that_grows_waits_for_faults_that_know_it_as_it_was() {
    // Its lowest page is 513; with 512 there is room for a large page.
    let count = explore(&[store(513), Grow { page: 512 }], &["system.layers.native.page_size=2M"], &|race| {
        let pages = mapped(race);
        assert!(pages == [0, 1, 512] || pages == [0, 1, 512, 513], "{pages:?}");
    });
    assert!(count > 10, "{count} schedules");
}

#[test]
fn the_first_faults_of_a_mapping_make_its_anon_vma_once() {
    for (rules, least) in [("linux-6.4", 100), ("linux-6.10", 100)] {
        let set = format!("kernel.vma_fallbacks={rules}");
        let actors = [store(SECOND), store(SECOND + 1), Unmap { page: SECOND, pages: 1 }];
        let count = explore_some(&actors, &[&set], 3, &|race| {
            let layer = &race.simulation.kernels.os.layers[0];
            let second = VirtAddr(BASE + SECOND * PAGE);
            let pages = layer.mapped(race.parent.index, second, second + 16 * PAGE);
            assert_eq!(pages.iter().map(|page| page.va).collect::<Vec<_>>(), [second + PAGE], "{rules}");
            assert_eq!(race.simulation.kernels.os.faults[0].anon_vmas, 2, "{rules}");
        });
        assert!(count > least, "{rules}: {count} schedules");
    }
}

#[test]
fn a_stack_that_grows_falls_back_and_waits() {
    let set = ["system.layers.native.page_size=2M", "kernel.vma_fallbacks=linux-6.10"];
    let count = explore_some(&[store(513), Grow { page: 512 }], &set, 4, &|race| {
        let pages = mapped(race);
        assert!(pages == [0, 1, 512] || pages == [0, 1, 512, 513], "{pages:?}");
    });
    assert!(count > 10, "{count} schedules");
}

#[test]
fn a_protected_page_is_not_written() {
    let count = explore(&[store(5), load(0), Protect { page: 0, pages: 8 }], &[], &|race| {
        let layer = &race.simulation.kernels.os.layers[0];
        let pages = layer.mapped(race.parent.index, VirtAddr(BASE), VirtAddr(BASE + 8 * PAGE));
        assert!(pages.iter().all(|page| !page.mapping.flags.writable), "{pages:?}");
    });
    assert!(count > 20, "{count} schedules");
}

#[test]
fn a_forked_page_has_two_owners_until_one_of_them_writes() {
    let count = explore(&[store(0), store(5), Fork], &[], &|race| {
        let pages = mapped(race);
        assert_eq!(pages, [0, 1, 5]);
    });
    assert!(count > 100, "{count} schedules");
    let both = [store(0), ChildFault { page: 0, intent: Intent::Store }, Unmap { page: 0, pages: 1 }];
    let count = explore(&both, &[], &|race| {
        let faults = race.simulation.kernels.os.faults[0];
        assert!(faults.copied <= 2 && faults.copied + faults.reused + faults.outside >= 1, "{faults:?}");
    });
    assert!(count > 100, "{count} schedules");
}

/// A swap area of a few pages.
pub(crate) const SWAP: &str =
    r#"kernel.swap={"size_bytes":"8KiB","read_cycles":100,"write_cycles":100,"queue_depth":1}"#;

/// Pages of the parent and of the child that are mapped or on the swap device; each must be in one of the two states.
pub(crate) fn kept(race: &Race) -> [Vec<u64>; 2] {
    let layer = &race.simulation.kernels.os.layers[0];
    [race.parent, race.child].map(|space| {
        let there = |page: &u64| {
            let va = VirtAddr(BASE + page * PAGE);
            let (mapped, swapped) = (!layer.is_unmapped(space.index, va), layer.word(space.index, va).is_some());
            assert!(!(mapped && swapped), "page {page} is mapped and swapped out");
            mapped || swapped
        };
        (0..10).filter(there).collect()
    })
}

fn explore_reclaim(races: &[(&[Actor], [&[u64]; 2])]) -> usize {
    let explored = races.iter().map(|&(actors, expected)| {
        explore(actors, &[SWAP, "kernel.threads.kswapd=off"], &|race| {
            assert_eq!(kept(race), expected.map(<[u64]>::to_vec), "{actors:?}");
        })
    });
    explored.sum()
}

#[test]
fn reclaimed_pages_are_on_the_device_or_back_in_memory() {
    let child = |page| ChildFault { page, intent: Intent::Store };
    let count = explore_reclaim(&[
        (&[store(0), Reclaim], [&[0, 1], &[]]),
        (&[store(0), Unmap { page: 0, pages: 1 }, Reclaim], [&[1], &[]]),
        (&[load(1), Protect { page: 0, pages: 2 }, Reclaim], [&[0, 1], &[]]),
        (&[child(0), Reclaim], [&[0, 1], &[0, 1]]),
        (&[child(1), Unmap { page: 0, pages: 2 }, Reclaim], [&[], &[0, 1]]),
        (&[store(0), Fork, Reclaim], [&[0, 1], &[0, 1]]),
    ]);
    assert!(count > 800, "{count} schedules");
}

#[test]
#[ignore = "400,000 schedules take a minute: make test-full"]
fn both_owners_of_a_page_write_to_it_while_it_is_reclaimed() {
    let child = ChildFault { page: 0, intent: Intent::Store };
    assert!(explore_reclaim(&[(&[store(0), child, Reclaim], [&[0, 1], &[0, 1]])]) > 100_000);
}

const PTEMAGNET: &str = r#"system.layers.native.placement={"kind":"ptemagnet"}"#;

/// Faults in one group of pages, whose frames are adjacent unless the group's reservation was ended.
fn explore_group(actors: &[Actor], set: &[&str], group: [u64; 2]) -> usize {
    explore(actors, &[&[PTEMAGNET], set].concat(), &|race| {
        let layer = &race.simulation.kernels.os.layers[0];
        let frame = |page: u64| {
            let pages = layer.mapped(race.parent.index, VirtAddr(BASE + page * PAGE), VirtAddr(BASE + page * PAGE + 1));
            pages.first().map(|page| page.mapping.pfn.0)
        };
        let measures = layer.mechanisms.placement.measures();
        let ended: u64 =
            measures.iter().filter(|measure| measure.name.contains(".ended.")).map(|measure| measure.value).sum();
        if let ([Some(first), Some(second)], 0) = (group.map(frame), ended) {
            assert_eq!(second - first, group[1] - group[0], "{actors:?}");
        }
    })
}

#[test]
fn faults_in_one_group_share_its_reservation() {
    // Pages 0 and 1 have a reservation; 8 and 9 have none.
    for group in [[2, 3], [8, 9]] {
        let count = explore_group(&group.map(store), &[], group);
        assert!(count > 10_000, "{count} schedules");
    }
}

#[test]
fn a_reservation_ends_with_its_pages_despite_concurrent_faults() {
    let (unmap, child) = (Unmap { page: 1, pages: 2 }, ChildFault { page: 0, intent: Intent::Store });
    for (actors, set, least) in [
        (&[store(2), unmap][..], &[][..], 9),
        (&[store(3), Reclaim], &[SWAP, "kernel.threads.kswapd=off"], 40),
        (&[store(3), Fork], &[], 9),
        (&[store(3), child], &[], 5000),
        // After the fork, both write to shared and to new pages.
        (&[store(0), child, Unmap { page: 1, pages: 1 }], &[], 5000),
    ] {
        let count = explore_group(actors, set, [0, 3]);
        assert!(count >= least, "{actors:?}: {count} schedules");
    }
}

#[test]
#[ignore = "hundreds of thousands of schedules take minutes: make test-full"]
fn two_faults_in_one_group_race_with_unmapping_and_reclaim() {
    let unmap = Unmap { page: 3, pages: 1 };
    let count = explore_group(&[store(3), store(2), unmap], &[], [0, 2])
        + explore_group(&[store(9), store(8), Unmap { page: 8, pages: 1 }], &[], [8, 9])
        + explore_group(&[store(3), store(2), Reclaim], &[SWAP, "kernel.threads.kswapd=off"], [0, 2]);
    assert!(count > 100_000, "{count} schedules");
}

#[test]
fn faults_in_one_mapping_share_its_place() {
    let placement = r#"system.layers.native.placement={"kind":"ca-paging"}"#;
    // The child has no offset before the race.
    let fault = |page| ChildFault { page, intent: Intent::Store };
    let count = explore(&[fault(8), fault(9)], &[placement, "machine.memory_bytes=16MiB"], &|race| {
        let layer = &race.simulation.kernels.os.layers[0];
        let frames = layer.mapped(race.child.index, VirtAddr(BASE + 8 * PAGE), VirtAddr(BASE + 10 * PAGE));
        assert_eq!(frames[1].mapping.pfn.0, frames[0].mapping.pfn.0 + 1);
        let measures = layer.mechanisms.placement.measures();
        let count = |name: &str| measures.iter().find(|measure| measure.name == name).expect("it is counted").value;
        let [placed, again, misses] =
            ["placed", "placed_again", "misses"].map(|name| count(&format!("ca_paging.{name}")));
        assert_eq!((placed, again, misses), (2, 0, 0), "one of them chooses");
    });
    assert!(count > 10_000, "{count} schedules");
}
