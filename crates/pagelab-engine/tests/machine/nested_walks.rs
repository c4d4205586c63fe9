//! Walks in virtual machines: references, marks and costs, compared with cases computed by hand.

use crate::common::{ScriptWriter, assert_conserved, config, run};
use pagelab_engine::base::addr::{PhysAddr, VirtAddr};
use pagelab_engine::base::cycles::Cycles;
use pagelab_engine::base::ids::{CoreId, CpuId, DIRECT_MAP, LayerId, SpaceId, SpaceIx};
use pagelab_engine::base::page_fault::{Intent, Origin};
use pagelab_engine::machine::simulation::Simulation;
use pagelab_engine::page_table::PteFlags;
use pagelab_engine::translate::walker::TranslationRequest;

use Intent::{Load, Store};

const BASE: u64 = 0x7f00_0000_0000;
/// The guest's layer and that of its host.
const GUEST: LayerId = LayerId(0);
const HOST: usize = 1;

#[test]
fn walks_that_fault_in_the_host_cost_what_they_have_read() {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 0x1000);
    script.store(0, BASE);
    // References cost an L1 hit, and kernels make none: only the walker accesses the guest's tables.
    let (_, stats) = run(&config("nested-radix-no-mmu-cache-cold", &["engine.kernel_refs=off"]), script.finish(), &[0]);
    assert_conserved(&stats);
    // First the host's own root is empty; then the guest's root, backed by now, is empty, too. Then each table of the
    // guest is missing in an existing leaf table of the host, and last the page itself, in a missing leaf table.
    let host = 4;
    let missing =
        [1, host + 1, (host + 1) + host, 2 * (host + 1) + host, 3 * (host + 1) + host, 4 * (host + 1) + host - 1];
    assert_eq!(stats.values["walk.aborted.count"], missing.len() as u64);
    assert_eq!(stats.values["walk.aborted.refs"], missing.iter().sum::<u64>());
    assert_eq!(stats.values["fault.nested.count"], 5);
    assert_eq!((stats.values["walk.count"], stats.values["walk.refs"]), (1, 24));
    assert_eq!(stats.values["walk.accessed_dirty_updates"], 0);
    let latency_cycles = 4;
    assert_eq!(stats.values["walk.cycles"], latency_cycles * 24);
    assert_eq!(stats.values["walk.aborted.cycles"], latency_cycles * missing.iter().sum::<u64>());
}

#[test]
fn cycles_of_aborted_walks_are_in_the_class_of_what_they_were_made_for() {
    for system in ["radix", "nested-radix", "nested-radix-cold"] {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 64 << 12);
        (0..64).for_each(|page| script.store(0, BASE + (page << 12)));
        let config = config(system, &[]);
        let (_, stats) = run(&config, script.finish(), &[0]);
        assert_conserved(&stats);
        let stat = |name: &str| stats.values[name];
        let cold = system == "nested-radix-cold";
        assert_eq!(stat("walk.aborted.kernel.count") > 0, cold, "{system}: the host gives the guest's kernel memory");
        assert!(stat("walk.aborted.program.count") >= 64, "{system}");
        // Programs wait for the second TLB, and for walks of both kinds.
        let looked_up = ["dtlb.l1.misses", "dtlb.l1.retries", "itlb.l1.misses", "itlb.l1.retries"].map(stat);
        let second = u64::from(config.machine.tlb.l2_latency_cycles);
        let walks = stat("walk.cycles") + stat("walk.aborted.program.cycles");
        assert_eq!(stat("cycles.translation"), walks + second * looked_up.iter().sum::<u64>(), "{system}");
    }
}

#[test]
fn an_mmu_cache_takes_up_what_a_walk_has_read_before_it_faulted_in_the_host_and_no_more() {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 0x1000);
    script.store(0, BASE);
    // Only the guest has an MMU cache.
    let set = ["engine.kernel_refs=off", "system.layers.host.mmu_cache=none"];
    let (_, stats) = run(&config("nested-radix-cold", &set), script.finish(), &[0]);
    assert_conserved(&stats);
    // As without an MMU cache, but each walk starts at the last table read by the previous walk.
    let host = 4;
    let next = (host + 1) + host;
    let missing = [1, host + 1, next, next, next, (host + 1) + host - 1];
    assert_eq!(stats.values["walk.aborted.count"], missing.len() as u64);
    assert_eq!(stats.values["walk.aborted.refs"], missing.iter().sum::<u64>());
    assert_eq!((stats.values["walk.count"], stats.values["walk.refs"]), (1, (host + 1) + host));
}

#[test]
fn memory_that_the_host_has_from_before_costs_it_nothing() {
    let stats = |system: &str, set: &[&str]| {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 64 << 12);
        (0..64).for_each(|page| script.store(0, BASE + (page << 12)));
        let (_, stats) = run(&config(system, set), script.finish(), &[0]);
        assert_conserved(&stats);
        stats.values
    };
    for warm in ["nested-radix", "nested-radix-shadow", "nested-radix-inverted-shadow", "nested-radix-speculative"] {
        // Without references of kernels, only the times of the host's faults differ, and of walks that end in one.
        let set = ["engine.kernel_refs=off"];
        let (cold, warm) = (stats(&format!("{warm}-cold"), &set), stats(warm, &set));
        assert!(cold["fault.nested.count"] > 64, "the pages, and their tables");
        assert_eq!((warm["fault.nested.count"], warm["fault.nested.cycles"]), (0, 0));
        let spared = ["fault.nested.cycles", "walk.aborted.cycles", "shadow.exit_cycles"];
        let spared = spared.map(|name| cold.get(name).map_or(0, |cycles| cycles - warm[name]));
        assert_eq!(warm["cycles"], cold["cycles"] - spared.iter().sum::<u64>());
        for same in ["fault.minor.count", "walk.count", "walk.cycles", "layer.host.page_table_frames"] {
            assert_eq!(warm[same], cold[same], "{same}");
        }
        assert_eq!(warm["walk.aborted.count"], 64 + warm.get("shadow.exits.misses").map_or(0, |misses| misses - 64));
    }
    // With references, too; then the host does not zero pages that the guest finds in the caches.
    let (cold, warm) = (stats("nested-radix-cold", &[]), stats("nested-radix", &[]));
    assert_eq!((warm["fault.nested.count"], warm["fault.nested.cycles"]), (0, 0));
    assert_eq!(warm["fault.minor.count"], cold["fault.minor.count"]);
    assert!(warm["cycles"] < cold["cycles"]);
}

#[test]
fn a_guests_large_page_is_walked_for_once_and_in_the_host_for_each_of_its_pages() {
    let (pages, host) = (512, 4);
    let stats = |set: &[&str]| {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, pages << 12);
        (0..pages).for_each(|page| script.store(0, BASE + (page << 12)));
        let more = ["engine.kernel_refs=off", "system.layers.guest.mmu_cache=none", "machine.mmu_cache.of_hosts=false"];
        let (_, stats) = run(&config("nested-radix-thp-cold", &[set, &more].concat()), script.finish(), &[0]);
        assert_conserved(&stats);
        stats.values
    };
    // Three levels of the guest, whose entries' addresses the host translates, plus the page's address.
    let (without, refs) = (stats(&[]), 3 * (host + 1) + host);
    assert_eq!((without["walk.count"], without["walk.refs"]), (pages, pages * refs));
    assert_eq!((without["guest_tlb.look_ups"], without["guest_tlb.misses"]), (0, 0));
    // For the first page, too, the guest's tables were read before its page was missing in the host.
    let with = stats(&[r#"machine.tlb.guest={"entries":4,"ways":4,"latency_cycles":7}"#]);
    assert_eq!((with["walk.count"], with["walk.refs"]), (pages, pages * host));
    let latency_cycles = 4;
    assert_eq!(with["walk.cycles"], pages * (host * latency_cycles + 7));
    let in_vain = with["guest_tlb.misses"];
    assert!((1..=6).contains(&in_vain), "until all of the guest's tables are there: {in_vain}");
    // Each page takes two look-ups, because it is first missing in the host; the first one of all misses.
    assert_eq!(with["guest_tlb.look_ups"], in_vain + 2 * pages - 1);
    for same in ["fault.minor.count", "fault.nested.count", "dtlb.l2.misses", "dtlb.l1.look_ups"] {
        assert_eq!(with[same], without[same], "{same}");
    }
}

/// A guest that stored to the page at [`BASE`], without MMU caches. The host then made the page clean, as in a
/// migration, and the TLBs are empty.
fn with_a_clean_page(nested_tlb: bool) -> (Simulation, PhysAddr) {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 0x1000);
    script.store(0, BASE);
    let set: &[&str] =
        if nested_tlb { &[r#"machine.tlb.nested={"entries":64,"ways":4,"latency_cycles":1}"#] } else { &[] };
    let (mut simulation, _) = run(&config("nested-radix-no-mmu-cache-cold", set), script.finish(), &[0]);
    let guest = &simulation.kernels.os.layers[GUEST];
    let page = guest.mapped(SpaceIx(1), VirtAddr(BASE), VirtAddr(BASE + 4096))[0];
    let addr = page.mapping.pfn.addr();
    let space = guest.host.expect("the guest has a host").index;
    let host = &mut simulation.kernels.os.layers[HOST];
    let below = host.mapped(space, VirtAddr(addr.0), VirtAddr(addr.0 + 4096))[0];
    let flags = PteFlags { dirty: false, ..below.mapping.flags };
    host.spaces[space].table.set_flags(&mut host.memory.contents, below.va, flags);
    let asid = host.spaces[space].asid;
    for unit in &mut simulation.hw.units {
        [&mut unit.l1d, &mut unit.l1i, &mut unit.l2].into_iter().for_each(|tlb| tlb.clear());
        unit.nested.iter_mut().for_each(|nested| nested.flush(asid));
    }
    (simulation, addr)
}

fn is_dirty_in_the_host(simulation: &Simulation, addr: PhysAddr) -> bool {
    let space = simulation.kernels.os.layers[GUEST].host.expect("the guest has a host").index;
    simulation.kernels.os.layers[HOST].mapped(space, VirtAddr(addr.0), VirtAddr(addr.0 + 4096))[0].mapping.flags.dirty
}

/// Walks, references, walks for a dirty bit, and updates of accessed and dirty bits, for consecutive accesses of an
/// origin.
fn walked(simulation: &mut Simulation, origin: Origin, wanted: (SpaceId, VirtAddr), intents: &[Intent]) -> [u64; 4] {
    let count = |simulation: &Simulation| {
        let (walks, all) = (&simulation.hw.walks, simulation.hw.walks.total());
        let counts = if origin == Origin::Kernel { &all.kernel } else { &all.program };
        let refs = counts.refs.as_flattened().as_flattened().iter().sum::<u64>();
        [counts.count, refs, walks.dirty_walks, walks.ad_updates]
    };
    let before = count(simulation);
    for &intent in intents {
        let wanted = TranslationRequest {
            cpu: CpuId(0),
            core: CoreId::FIRST,
            space: wanted.0,
            va: wanted.1,
            pc: 0,
            intent,
            origin,
        };
        let found = simulation
            .hw
            .translate(&mut simulation.kernels.os.layers, &wanted, &mut Cycles::default())
            .expect("it is mapped");
        assert!(found.writable() && (intent != Intent::Store || found.stores()), "{intent:?} {found:?}");
    }
    let after = count(simulation);
    [0, 1, 2, 3].map(|n| after[n] - before[n])
}

#[test]
fn a_guests_store_to_a_page_that_it_has_loaded_walks_to_make_the_hosts_page_dirty() {
    // The nested TLB contains the addresses of the guest's tables and of the page, but not for stores: to set the
    // host's dirty bit, the host's table is walked again.
    for (nested_tlb, refs) in [(false, 24), (true, 4 + 4)] {
        let (mut simulation, addr) = with_a_clean_page(nested_tlb);
        let page = (SpaceId { layer: GUEST, index: SpaceIx(1) }, VirtAddr(BASE));
        let mut walked = |intents: &[Intent]| {
            let counts = walked(&mut simulation, Origin::Program, page, intents);
            (counts, is_dirty_in_the_host(&simulation, addr))
        };
        assert_eq!(walked(&[Load, Load]), ([1, 24, 0, 0], false), "nested TLB: {nested_tlb}");
        assert_eq!(walked(&[Store]), ([1, refs, 1, 1], true), "nested TLB: {nested_tlb}");
        assert_eq!(walked(&[Store, Load, Store]), ([0; 4], true), "nested TLB: {nested_tlb}");
    }
}

#[test]
fn a_kernels_walk_for_a_dirty_bit_is_none_of_the_programs() {
    let (mut simulation, addr) = with_a_clean_page(false);
    let layer = &simulation.kernels.os.layers[GUEST];
    let place = (SpaceId { layer: GUEST, index: DIRECT_MAP }, layer.direct(addr));
    let mut walked = |intents: &[Intent]| walked(&mut simulation, Origin::Kernel, place, intents);
    // The guest's direct map has pages of 1 GiB: two levels.
    let refs = 2 * 5 + 4;
    assert_eq!(walked(&[Load]), [1, refs, 0, 0]);
    assert_eq!(walked(&[Store]), [1, refs, 0, 1]);
    assert_eq!(walked(&[Store]), [0; 4]);
    assert!(is_dirty_in_the_host(&simulation, addr));
}
