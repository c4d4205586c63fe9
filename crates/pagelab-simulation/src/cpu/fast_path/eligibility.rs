//! Which configurations and hardware the fast path can simulate.
//!
//! The configuration and the hardware are destructured without `..`: a new key or unit does not compile here until it
//! is decided whether the fast path can simulate it. Parts that are ignored (`_`) only matter in the general code, or
//! within code that both paths call. The conformance tests run every registered design with and without the fast path.

use pagelab_base::ids::{CoreId, LayerId};
use pagelab_hardware::cache::CacheConfig;
use pagelab_hardware::core_model::{BranchPredictor, CoreConfig};
use pagelab_kernel::config::{HostMode, LayerConfig, SystemConfig};
use pagelab_run::config::{Config, EngineConfig};
use pagelab_translate::config::{MachineConfig, PrefetchConfig, TlbConfig};
use pagelab_translate::hardware::{CoreUnits, Hardware};
use pagelab_translate::translation_unit::LookUpPlace;

/// Whether the fast path can simulate this configuration.
pub(super) fn is_eligible(config: &Config) -> bool {
    // The kernel runs between the accesses of the fast path. Of its threads, one makes direct segments.
    let Config { machine, system, kernel, engine } = config;
    let SystemConfig { name: _, description: _, layers, origin: _ } = system;
    !kernel.threads.late_segments.is_on()
        && machine_is_eligible(machine)
        && layers.iter().all(layer_is_eligible)
        && engine_is_eligible(engine)
}

fn machine_is_eligible(machine: &MachineConfig) -> bool {
    let MachineConfig {
        name: _,
        description: _,
        class: _,
        year: _,
        cores: _,
        threads_per_core: _,
        frequency_mhz: _,
        memory_bytes: _,
        core,
        tlb,
        // Designs that are looked up by entry are refused below; walkers look up all others.
        mmu_cache: _,
        cache,
        // Decide whether requests have times, for which the loop has its own code.
        memory: _,
        // Both paths call the kernel's handlers.
        bulk: _,
        prefetch,
        origin: _,
    } = machine;
    // Both paths call the data caches. The loop does not fetch instructions.
    let CacheConfig {
        l1: _,
        l1i,
        l2: _,
        l3: _,
        dram_latency_cycles: _,
        cache_to_cache_latency_cycles: _,
        far_cores: _,
        queue_transfers: _,
        upgrade_latency_cycles: _,
        locked_extra_cycles: _,
        walker_entry: _,
        bulk_parallelism: _,
    } = cache;
    // Both paths look up the TLBs, if each entry is of one page; walkers look up those of guests and of nested walks.
    // The loop waits for every walk.
    let TlbConfig {
        l1d: _,
        l1i: _,
        l2: _,
        l2_latency_cycles: _,
        size_prediction,
        nested: _,
        guest: _,
        stages,
        speculation,
    } = tlb;
    let PrefetchConfig { l1: _, l2: _, l3, tlb: tlb_prefetchers } = prefetch;
    l1i.is_none()
        && core_is_eligible(core)
        && tlb.organised().is_none()
        && size_prediction.is_off()
        && stages.prefetcher().is_none()
        && speculation.is_off()
        && tlb_prefetchers.is_off()
        && !l3.follows_walks()
}

/// The loop is compiled for each core model. It passes branches to window cores only.
fn core_is_eligible(core: &CoreConfig) -> bool {
    match core {
        CoreConfig::InOrder(config) => config.branch_predictor == BranchPredictor::Perfect,
        CoreConfig::Window(_) => true,
    }
}

/// Translations must come from page tables alone.
fn layer_is_eligible(layer: &LayerConfig) -> bool {
    let LayerConfig {
        name: _,
        // Decides which walker the loop is compiled for.
        host: _,
        host_mode,
        backing: _,
        // Decides the walker: whether it remembers ways. Those of the loop know no tables in virtual memory.
        page_table,
        mmu_cache: _,
        // Only matters in page faults.
        page_size: _,
        large_pages: _,
        folios: _,
        file_folios: _,
        placement: _,
        placement_for: _,
        contiguous_tables: _,
        pages_per_fault: _,
        translation_cache: _,
        frame_allocator: _,
        brk_alignment_bytes: _,
        age: _,
        memory_bytes: _,
        // The general code makes accesses to pages that are not mapped.
        fault_engine: _,
        fault_engine_for: _,
        // The walk stops at a page that the host has taken back, as at one that was never mapped.
        swap: _,
        direct_segment_bytes,
        speculative_table,
        // Its guests have a host mode of their own.
        inverted_shadow_bytes: _,
        frame_tags,
    } = layer;
    let is_paged = direct_segment_bytes.is_none() && speculative_table.is_none() && frame_tags.is_none();
    let is_physical = !page_table.is_in_virtual_memory();
    matches!(host_mode, HostMode::Nested) && is_paged && is_physical
}

fn engine_is_eligible(engine: &EngineConfig) -> bool {
    let EngineConfig {
        seed: _,
        // Walks that bypass the caches have loops of their own, but none together with times, stages or a third layer.
        kernel_refs: _,
        sync_quantum_cycles: _,
        lookahead: _,
        fast_path,
        input_window_accesses: _,
        // Both paths call the caches, which draw the random latencies of interleavings.
        interleaving: _,
        sample: _,
        fault_engine_calls: _,
        // The general code calls the fast path piece by piece, and compares.
        check: _,
    } = engine;
    fast_path.0
}

/// Whether there are units after the TLBs.
pub(super) fn has_stages(hw: &Hardware) -> bool {
    !hw.shared_stages.is_empty() || hw.units.iter().any(|unit| !unit.stages.is_empty())
}

/// Whether the fast path can simulate the units of this hardware.
pub(super) fn hardware_is_eligible(hw: &mut Hardware, layers: usize) -> bool {
    let is_eligible = |unit: &CoreUnits| {
        let CoreUnits { l1d: _, l1i: _, l2: _, size_prediction: _, nested, guest, stages, speculation: _, tlb: _ } =
            unit;
        let asks = |place: LookUpPlace, is_there: bool| place.is_on_fast_path() || !is_there;
        asks(LookUpPlace::AfterTlbs, !stages.is_empty())
            && asks(LookUpPlace::HostPages, nested.is_some())
            && asks(LookUpPlace::GuestPages, guest.is_some())
    };
    !hw.units.is_empty()
        && [hw.caches.is_timed(), has_stages(hw), !hw.kernel_refs].into_iter().filter(|&own| own).count() <= 1
        && (LookUpPlace::AfterTlbs.is_on_fast_path() || hw.shared_stages.is_empty())
        && hw.units.iter().all(is_eligible)
        && !LayerId::all(layers).any(|layer| hw.mmu_caches.cache(CoreId::FIRST, layer).is_asked_by_entry())
}
