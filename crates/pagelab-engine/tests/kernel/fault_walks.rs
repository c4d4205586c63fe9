//! References of the page walk in a fault handler, from the root's address on, and the locks that it waits for.

use crate::common::{ScriptWriter, assert_conserved, config, first_task, mmap, run};
use pagelab_engine::base::addr::{PhysAddr, VirtAddr};
use pagelab_engine::base::ids::CpuId;
use pagelab_engine::base::lock_kind::LockKind;
use pagelab_engine::base::page_fault::{Intent, PageFault};
use pagelab_engine::base::step::{Next, Ref, RefKind, RefSpace, Step};
use pagelab_engine::kernel::effects::Effects;
use pagelab_engine::kernel::fault::Fault;
use pagelab_engine::observe::statistics::Statistics;
use pagelab_engine::page_table::WalkList;
use pagelab_trace::Protection;

const BASE: u64 = 0x7f00_0000_0000;
const ELSEWHERE: u64 = 0x6000_0000_0000;
const MIB: u64 = 1 << 20;
const CACHE: &str = r#"kernel.translation_cache={"form":"full-prefix","per":"cpu"}"#;
/// Of each thread.
const PAGES: u64 = 400;

/// The root's address and the entries on the path to a page next to a mapped one; all references of that page's fault
/// handler until it allocates a frame, and the number of them before the PTE.
fn references(system: &str, set: &[&str]) -> (Vec<PhysAddr>, Vec<Ref>, usize) {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, MIB);
    script.store(0, BASE);
    let (mut simulation, _) = run(&config(system, set), script.finish(), &[0]);
    let space = simulation.programs.inputs[0].spaces().next().expect("the process has not ended");
    let (layer, va) = (&simulation.kernels.os.layers[0], VirtAddr(BASE + 5 * 4096));
    let address_space = &layer.spaces[space.index];
    let mut list = WalkList::new();
    address_space.table.walk(&layer.memory.contents, va, &mut list);
    let way: Vec<_> = std::iter::once(address_space.lock_line()).chain(list.refs().iter().map(|r| r.addr)).collect();
    let mut fault = Fault::new(&PageFault { space, va, intent: Intent::Store, reached: None }, CpuId(0));
    let mut step = Step::default();
    loop {
        step.clear();
        fault.plan(&simulation.kernels.os, &mut step);
        if step.refs.last().map(|r| r.addr) == way.last().copied() {
            return (way, step.refs, step.before_pte);
        }
        assert_ne!(
            fault
                .commit(&mut simulation.kernels.os, &mut Effects::default(), first_task(CpuId(0)))
                .expect("there is memory"),
            Next::Done
        );
    }
}

#[test]
fn a_walk_reads_where_the_root_is_and_each_entry_after_the_one_before() {
    for (system, levels) in [("radix", 4), ("radix-5level", 5)] {
        for lock in ["kernel.fault_lock=mm", "kernel.fault_lock=vma"] {
            let (way, made, before_pte) = references(system, &[lock]);
            assert_eq!(way.len(), levels + 1);
            let reads = |(step, &addr): (usize, &PhysAddr)| Ref {
                addr,
                space: RefSpace::Kernel,
                kind: RefKind::Read,
                step: step as u8,
                independent: step == 0,
                lock: (step == 0).then_some(LockKind::MmapRead),
            };
            assert_eq!(made, way.iter().enumerate().map(reads).collect::<Vec<_>>(), "{system}, {lock}");
            assert_eq!(before_pte, levels);
        }
    }
    // A hashed table's slots are found from data in the mm.
    let (way, made, before_pte) = references("hashed-open", &[]);
    assert_eq!((made[0].addr, made[0].step, made[1].step, before_pte), (way[0], 0, 1, 1));
}

#[test]
fn a_hit_of_a_translation_cache_needs_no_root() {
    let (way, made, _) = references("radix", &[CACHE]);
    // Tag and pointer, then the entries of pmd and PTE.
    let made: Vec<_> = made.iter().map(|r| r.addr).collect();
    assert_eq!((made.len(), &made[2..]), (4, &way[3..]));
    assert!(!made.contains(&way[0]));
}

/// Cycles before the PTE of two threads of a program that touch new pages of two mappings, on separate cores.
fn beside(set: &[&str]) -> u64 {
    let mut script = ScriptWriter::new();
    let second = script.thread(0);
    script.mmap(0, BASE, 2 * MIB);
    script.event(0, mmap(ELSEWHERE, 2 * MIB, Protection::READ_WRITE));
    for page in 0..PAGES {
        script.store(0, BASE + 4096 * page);
        script.store(second, ELSEWHERE + 4096 * page);
    }
    let set = [&["engine.sync_quantum_cycles=0"], set].concat();
    let (_, stats): (_, Statistics) = run(&config("radix", &set), script.finish(), &[0, 2]);
    assert_conserved(&stats);
    assert_eq!(stats.values["fault.walk.count"], 2 * PAGES);
    stats.values["fault.before_pte.cycles"]
}

#[test]
fn threads_contend_for_the_line_of_the_roots_lock() {
    let (mm, vma) = ("kernel.fault_lock=mm", "kernel.fault_lock=vma");
    let waited = |more: &[&str]| beside(&[&[mm], more].concat()) as i64 - beside(&[&[vma], more].concat()) as i64;
    let l1 = config("radix", &[]).machine.cache.l1.latency_cycles as i64;
    let (plain, cached) = (waited(&[]), waited(&[CACHE]));
    assert!(plain > 2 * PAGES as i64 * 2 * l1, "each waits for the line more than for the cache: {plain}");
    assert!(cached.abs() < plain / 20, "hits do not read it: {cached} of {plain}");
}
