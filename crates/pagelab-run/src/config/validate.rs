//! Checks of a configuration whose values have the right types but may contradict each other.

use super::Config;
use pagelab_base::addr::{FRAME_BYTES, PageSize};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::{EngineError, LayerConfigError, between};
use pagelab_hardware::core_model::{CoreModel, Timing};
use pagelab_hardware::device::DeviceConfig;
use pagelab_kernel::config::{
    Backing, FrameTagsConfig, HostMode, KernelConfig, LargePages, LayerConfig, PageCache, check_limit,
    validate_translation_cache,
};
use pagelab_kernel::dissolve::Dissolve;
use pagelab_kernel::fault_engine::config as engine;
use pagelab_kernel::placement::{PlacementConfig, PolicyContext};
use pagelab_kernel::table_blocks::TableBlocks;
use pagelab_kernel::threads::config::ThreadsConfig;
use pagelab_kernel::vma::check_brk_alignment;
use pagelab_trace::quantity::Bytes;
use pagelab_translate::speculation::SpeculationConfig;

/// Most cores of a machine (limited by presence masks of the shared cache), and most hardware threads per core.
const MAX_CORES: u32 = pagelab_hardware::cache::MAX_CORES as u32;
const MAX_THREADS_PER_CORE: u32 = 8;
/// Most pages that a CPU may batch for the LRU lists; Linux batches 14 to 31.
const MAX_LRU_BATCH: u32 = 255;
/// Largest `kernel.rss_batch`: twice as many CPUs as Linux supports (`NR_CPUS` of x86, 8192).
const MAX_RSS_BATCH: u32 = 16384;
/// Sizes of folios between single pages and large ones. Linux has no anonymous folios of 8 KiB.
const LEAST_FOLIO: u64 = 16 << 10;
const MOST_FOLIO: u64 = 1 << 20;
/// Most pages that a fault may map: those of a page-table page.
const MAX_PAGES_PER_FAULT: u32 = 512;
/// Largest read-ahead around a page.
const MOST_READ_AHEAD: u64 = 2 << 20;
/// Most layers of a system; the references of a walk grow exponentially with them.
const MAX_LAYERS: usize = 8;

impl Config {
    /// Checks the configuration for contradictions. Errors name the key and what is allowed. Geometries of TLBs and MMU
    /// caches, and the stacking of layers, are checked where these are built.
    pub fn validate(&self) -> Result<(), EngineError> {
        let machine = &self.machine;
        between("machine.cores", machine.cores, 1, MAX_CORES)?;
        between("machine.threads_per_core", machine.threads_per_core, 1, MAX_THREADS_PER_CORE)?;
        between("machine.frequency_mhz", machine.frequency_mhz, 1, 100_000)?;
        machine.core.validate("machine.core")?;
        let in_cache = |e: pagelab_hardware::cache::CacheConfigError| {
            EngineError::config(format!("machine.cache.{}", e.key), e.what)
        };
        machine.cache.validate().map_err(in_cache)?;
        self.validate_code()?;
        machine.cache.check_memory(machine.memory_bytes).map_err(in_cache)?;
        let nearest = machine.cache.last_latency_cycles();
        let in_memory = |e: pagelab_hardware::cache::CacheConfigError| {
            EngineError::config(format!("machine.memory.{}", e.key), e.what)
        };
        machine.memory.validate(machine.memory_bytes, machine.cores, nearest).map_err(in_memory)?;
        machine.bulk.validate().map_err(|e| EngineError::config(format!("machine.bulk.{}", e.key), e.what))?;
        machine.prefetch.validate("machine.prefetch", &machine.cache)?;
        if machine.tlb.l1d.is_empty() || machine.tlb.l1i.is_empty() {
            return Err(EngineError::config("machine.tlb", "l1d and l1i need at least one array each"));
        }
        machine.tlb.validate_size_prediction()?;
        let (cores, mut bytes) = (machine.cores.into(), machine.memory_bytes.0);
        for (key, of_units) in [
            ("machine.tlb.stages", machine.tlb.stages.validate(cores)?),
            ("machine.prefetch.tlb", machine.prefetch.tlb.validate(cores)?),
        ] {
            bytes += of_units;
            machine.cache.check_memory(Bytes(bytes)).map_err(|e| EngineError::config(key, e.what))?;
        }
        memory("machine.memory_bytes", machine.memory_bytes.0)?;
        let kernel = &self.kernel;
        between("kernel.pages_per_fault", kernel.pages_per_fault, 1, MAX_PAGES_PER_FAULT)?;
        kernel.fault.validate()?;
        kernel.fault_kinds.validate(&kernel.fault)?;
        between("kernel.lru_batch", kernel.lru_batch, 1, MAX_LRU_BATCH)?;
        between("kernel.freed_batch", kernel.freed_batch, 1, MAX_LRU_BATCH)?;
        between("kernel.rss_batch", kernel.rss_batch, 1, MAX_RSS_BATCH)?;
        kernel.scheduler.validate(kernel.quantum_cycles)?;
        kernel.check_vma_fallbacks()?;
        between("kernel.charge_batch", kernel.charge_batch, 1, 1 << 20)?;
        let around = kernel.fault_around_bytes.0;
        if !around.is_power_of_two() || !(FRAME_BYTES..=1 << 21).contains(&around) {
            let what = format!("{around} is not possible; allowed are powers of two from 4096 (none) to 2 MiB");
            return Err(EngineError::config("kernel.fault_around_bytes", what));
        }
        if let Some(cache) = &kernel.translation_cache {
            let having = self.system.layers.iter().filter(|layer| layer.translation_cache.0);
            let tables = having.map(|layer| (layer.name.as_str(), &layer.page_table));
            validate_translation_cache(cache, kernel.fault.walk, tables)?;
        }
        self.validate_reclaim()?;
        self.validate_system()
    }

    fn validate_code(&self) -> Result<(), EngineError> {
        let code = &self.kernel.code;
        code.validate("kernel.code")?;
        let predicts = || CoreModel::new(&self.machine.core, Cycles::ZERO).branches().is_some();
        if code.branch_instructions > 0 && !predicts() {
            let what = "the machine's core predicts every branch, so the kernel's branches have no effect; give it \
                        a predictor, such as machine.core.branch_predictor=tage, or leave branch_instructions at 0";
            return Err(EngineError::config("kernel.code.branch_instructions", what));
        }
        Ok(())
    }

    fn validate_reclaim(&self) -> Result<(), EngineError> {
        let kernel = &self.kernel;
        if let Some(swap) = &kernel.swap {
            swap.device.validate("kernel.swap")?;
            if swap.size_bytes.0 < FRAME_BYTES {
                let what = format!("{} bytes hold no page; allowed is 4096 and more", swap.size_bytes.0);
                return Err(EngineError::config("kernel.swap.size_bytes", what));
            }
            if let Some(capacity) = swap.device.capacity().filter(|&capacity| swap.size_bytes > capacity) {
                let what = format!("{} are more than the device's {capacity}", swap.size_bytes);
                return Err(EngineError::config("kernel.swap.size_bytes", what));
            }
        }
        if let Some(storage) = &kernel.storage {
            storage.validate("kernel.storage")?;
        } else if kernel.page_cache == PageCache::Cold {
            let device = DeviceConfig::example();
            let what = format!(
                "files must be read from something: set kernel.storage, for example `--set 'kernel.storage={device}'`"
            );
            return Err(EngineError::config("kernel.page_cache", what));
        }
        if let Some(block_io) = &kernel.block_io {
            block_io.validate()?;
        }
        between("kernel.swappiness", kernel.swappiness, 0, 200)?;
        kernel.threads.validate("kernel.threads")?;
        let read_ahead = kernel.read_ahead_bytes.0;
        if !read_ahead.is_multiple_of(FRAME_BYTES) || !(FRAME_BYTES..=MOST_READ_AHEAD).contains(&read_ahead) {
            let what = format!("{read_ahead} is not possible; allowed are multiples of 4096 (one page) up to 2 MiB");
            return Err(EngineError::config("kernel.read_ahead_bytes", what));
        }
        let Some(limit) = kernel.cgroup_limit_bytes else { return Ok(()) };
        check_limit("kernel.cgroup_limit_bytes", limit, kernel)?;
        let tops = self.system.tops().into_iter().map(|layer| &self.system.layers[layer]);
        match tops.filter(|_| kernel.storage.is_none()).find(|layer| !layer.swap.0) {
            Some(LayerConfig { name, .. }) => {
                let what = format!(
                    "layer `{name}` has no swap area to make room with (system.layers.{name}.swap=off): set it to on, \
                     or remove the limit"
                );
                Err(EngineError::config("kernel.cgroup_limit_bytes", what))
            }
            None => Ok(()),
        }
    }

    /// Refuses guesses of frames where some addresses have no walk, and those by the kernel's hash where no kernel
    /// places pages by it.
    fn validate_speculation(&self, late_segments: bool) -> Result<(), EngineError> {
        let speculation = &self.machine.tlb.speculation;
        if !speculation.is_off() {
            speculation.validate(SpeculationConfig::KEY)?;
            validate_walks(SpeculationConfig::KEY, "model=none", &self.system.layers, late_segments)?;
        }
        if !speculation.is_by_hash() {
            return Ok(());
        }
        let refused = |what: String| Err(EngineError::config(SpeculationConfig::KEY, what));
        if self.machine.cache.l2.is_none() {
            return refused("it fetches lines into the second-level cache: configure machine.cache.l2".to_owned());
        }
        for layer in &self.system.layers {
            let name = &layer.name;
            if layer.host.is_some() {
                return refused(format!(
                    "it guesses frames of the machine, and the kernel of the guest {name:?} chooses its own: run a \
                     system without guests, or set model=none"
                ));
            }
            if !layer.placement.is_by_hash() {
                return refused(format!(
                    "it guesses by the hash by which a kernel places pages: set \
                     system.layers.{name}.placement={{kind=\"hash-tiers\"}}, or model=none"
                ));
            }
        }
        Ok(())
    }

    fn validate_system(&self) -> Result<(), EngineError> {
        let layers = &self.system.layers;
        let machine = &self.machine;
        let late_segments = self.kernel.threads.late_segments.is_on();
        if let Some(key) = machine.tlb.stages.prefetcher().or(machine.prefetch.tlb.prefetcher()) {
            validate_walks(key, "off", layers, late_segments)?;
        }
        if let Some(key) = machine.tlb.stages.in_second_level_cache().filter(|_| machine.cache.l2.is_none()) {
            let what = "its translations are in the second-level cache: configure machine.cache.l2, or set it to off";
            return Err(EngineError::config(key, what));
        }
        if machine.prefetch.l3.follows_walks() {
            validate_walks("machine.prefetch.l3.replay", "off", layers, late_segments)?;
        }
        if let Some(key) = machine.tlb.organised() {
            validate_walks(&key, "an entry per page (model=pages)", layers, late_segments)?;
        }
        self.validate_speculation(late_segments)?;
        if layers.is_empty() || layers.len() > MAX_LAYERS {
            let what = format!("{} layers are not possible; allowed are 1 to {MAX_LAYERS}", layers.len());
            return Err(EngineError::config("system.layers", what));
        }
        for layer in layers {
            let key = |part: &str| format!("system.layers.{}.{part}", layer.name);
            let hosts = layers.iter().any(|guest| guest.host.as_ref() == Some(&layer.name));
            let table = &layer.page_table;
            table.validate(&layer.name, layer.page_size, hosts)?;
            layer.mmu_cache.validate(&layer.name, table.name(), table.upper_entries())?;
            if layer.host_mode.is_shadowed() {
                let bottom = layers.iter().any(|host| host.host.is_none() && layer.host.as_ref() == Some(&host.name));
                if !bottom || hosts {
                    let what = "shadow page tables are for guests of the machine's own layer that host nobody; allowed here is nested";
                    return Err(EngineError::config(key("host_mode"), what));
                }
            }
            if layer.backing == Backing::Present && layer.host.is_none() {
                let what = "present is for guests, and this layer has no host; allowed here is on-demand";
                return Err(EngineError::config(key("backing"), what));
            }
            if let Some(bytes) = layer.direct_segment_bytes {
                validate_segment(bytes, layer, layers)?;
            }
            if self.kernel.threads.late_segments.is_on() {
                validate_late_segments(layer, &self.kernel.threads)?;
            }
            if layer.speculative_table.is_some() {
                validate_speculation(layer, layers)?;
            }
            validate_inverted_shadow(layer, layers)?;
            if let Some(tags) = &layer.frame_tags {
                validate_frame_tags(tags, layer, layers)?;
            }
            if let Some(pages) = layer.pages_per_fault {
                between(&key("pages_per_fault"), pages, 1, MAX_PAGES_PER_FAULT)?;
            }
            folios(layer)?;
            validate_large_pages(layer, &self.kernel)?;
            let around = PolicyContext {
                page_size: layer.page_size,
                guest: layers.iter().find(|g| g.host.as_ref() == Some(&layer.name)).map(|guest| guest.name.as_str()),
                folios: !layer.folios.is_empty(),
            };
            if let Some(bytes) = layer.brk_alignment_bytes {
                check_brk_alignment(bytes, around.guest).map_err(|misfit| misfit.into_engine_error(&layer.name))?;
            }
            layer.placement.check(&around).map_err(|misfit| misfit.into_engine_error(&layer.name))?;
            if let Some(tables) = layer.contiguous_tables {
                let checked = TableBlocks::check(tables, table.upper_entries());
                checked.map_err(|misfit| misfit.into_engine_error(&layer.name))?;
            }
            validate_engine(layer, layers, self)?;
            if let Some(bytes) = layer.memory_bytes {
                memory(&key("memory_bytes"), bytes.0)?;
            }
        }
        Ok(())
    }
}

/// Checks a fault engine against its layer and the machine.
fn validate_engine(layer: &LayerConfig, layers: &[LayerConfig], config: &Config) -> Result<(), EngineError> {
    let Some(engine) = &layer.fault_engine else {
        return match layer.fault_engine_for {
            Some(_) => Err(LayerConfigError::new("fault_engine_for", "the layer has no fault_engine")
                .into_engine_error(&layer.name)),
            None => Ok(()),
        };
    };
    let shadow = |layer: &LayerConfig| layer.host_mode.is_shadowed();
    let guest_is_shadowed = layers.iter().any(|guest| guest.host.as_ref() == Some(&layer.name) && shadow(guest));
    let around = engine::EngineContext {
        words: layer.page_table.keeps_words(),
        page_size: layer.page_size,
        single_pages: layer.folios.is_empty() && layer.placement == PlacementConfig::default(),
        marks: layer.page_table.keeps_marks(),
        alone: layers.len() == 1,
        frames: layer.memory_bytes.unwrap_or(config.machine.memory_bytes).0 / FRAME_BYTES,
        drives: config.kernel.storage.as_ref().map_or(0, |device| device.striping().drives),
        cores: config.machine.cores,
        walked: !shadow(layer)
            && !guest_is_shadowed
            && layer.direct_segment_bytes.is_none()
            && !config.kernel.threads.late_segments.is_on(),
    };
    engine.check(&around).map_err(|misfit| misfit.into_engine_error(&layer.name))
}

/// `madvise` requires large pages, folios, or a kernel thread that makes large pages.
fn validate_large_pages(layer: &LayerConfig, kernel: &KernelConfig) -> Result<(), EngineError> {
    let threads = ThreadsConfig::that_make_large_pages();
    let thread = kernel.threads.running().iter().any(|name| threads.contains(name));
    let some = layer.page_size != PageSize::Size4K || !layer.folios.is_empty() || thread;
    if layer.large_pages == LargePages::Always || some {
        return Ok(());
    }
    let what = format!(
        "madvise has no effect if the largest page is 4K: also set page_size = 2M, as the system radix-thp-madvise does, or \
         folios, or a kernel thread that makes large pages (kernel.threads: {})",
        threads.join(", ")
    );
    Err(EngineError::config(format!("system.layers.{}.large_pages", layer.name), what))
}

/// Prefetch walks of translations, TLB entries of several pages, and guesses of frames require page tables that the
/// walker reads. What is allowed without is named by `plain`.
fn validate_walks(key: &str, plain: &str, layers: &[LayerConfig], late_segments: bool) -> Result<(), EngineError> {
    for layer in layers {
        let found = match layer {
            layer if layer.host_mode.is_shadowed() => "shadow page tables",
            layer if late_segments || layer.direct_segment_bytes.is_some() => "a direct segment",
            layer if layer.speculative_table.is_some() => "a speculative table",
            layer if layer.frame_tags.is_some() => "tags of frames",
            LayerConfig { .. } => continue,
        };
        let what = format!(
            "the walker of `{}` has {found}; allowed there is {plain}, and others with page tables that the walker reads",
            layer.name
        );
        return Err(EngineError::config(key, what));
    }
    Ok(())
}

/// What does not combine with segments that are made late: page tables that do not decide alone where a page is.
fn validate_late_segments(layer: &LayerConfig, threads: &ThreadsConfig) -> Result<(), EngineError> {
    if let Some(late) = threads.late_segments.on()
        && late.dissolve == Dissolve::LowWatermark
        && !threads.kswapd.is_on()
    {
        let what = "low-watermark is for kswapd, which is off; allowed here are never and last-resort, \
                    and low-watermark with kernel.threads.kswapd=on";
        return Err(EngineError::config("kernel.threads.late_segments.dissolve", what));
    }
    let found = match layer {
        layer if layer.host_mode.is_shadowed() => "shadow page tables",
        layer if layer.speculative_table.is_some() => "a speculative table",
        layer if layer.frame_tags.is_some() => "tags of frames",
        layer if layer.placement != PlacementConfig::default() => "a placement policy, which keeps track of frames",
        layer if layer.page_table.shared_segments().is_some() => "segments that processes share",
        LayerConfig { .. } => return Ok(()),
    };
    let what = format!("`{}` has {found}; allowed there is off, and on without it", layer.name);
    Err(EngineError::config("kernel.threads.late_segments", what))
}

/// A direct segment consists of whole pages, and does not combine with shadow page tables.
fn validate_segment(bytes: Bytes, layer: &LayerConfig, layers: &[LayerConfig]) -> Result<(), EngineError> {
    let key = format!("system.layers.{}.direct_segment_bytes", layer.name);
    if !bytes.0.is_multiple_of(FRAME_BYTES) || bytes.0 == 0 {
        return Err(EngineError::config(
            key,
            format!("{bytes} is not possible; allowed are multiples of 4096 from 4096 on"),
        ));
    }
    let shadow = |layer: &&LayerConfig| layer.host_mode.is_shadowed();
    let guests = layers.iter().filter(|guest| guest.host.as_ref() == Some(&layer.name));
    if let Some(shadowed) = guests.chain([layer]).find(shadow) {
        let what = format!(
            "shadow page tables hold every page of `{}`, so a segment would save no walk; set host_mode = nested there",
            shadowed.name
        );
        return Err(EngineError::config(key, what));
    }
    Ok(())
}

/// A speculative table is for guests with nested walks, and all guests of a machine share one.
fn validate_speculation(layer: &LayerConfig, layers: &[LayerConfig]) -> Result<(), EngineError> {
    let key = format!("system.layers.{}.speculative_table", layer.name);
    if layer.host.is_some() || layers.len() == 1 {
        let what = "all guests share one table, which belongs to the machine's own layer, and that layer must host a guest; remove it here";
        return Err(EngineError::config(key, what));
    }
    match layers.iter().find(|guest| guest.host_mode.is_shadowed()) {
        None => Ok(()),
        Some(guest) => {
            let what = format!(
                "the shadow tables of `{}` leave no nested walk to verify; set host_mode = nested there",
                guest.name
            );
            Err(EngineError::config(key, what))
        }
    }
}

/// Tags of frames belong to the machine's own layer, and are for regions of that layer or of its guests.
fn validate_frame_tags(tags: &FrameTagsConfig, layer: &LayerConfig, layers: &[LayerConfig]) -> Result<(), EngineError> {
    let key = format!("system.layers.{}.frame_tags", layer.name);
    if layer.host.is_some() {
        let what = "machine frames belong to the machine's own layer, and this layer has a host; set it there";
        return Err(EngineError::config(key, what));
    }
    let near = |other: &LayerConfig| other.name == layer.name || other.host.as_ref() == Some(&layer.name);
    let regions = |other: &&LayerConfig| other.page_table.has_regions();
    if !layers.iter().any(|other| regions(&other)) {
        let what = "no layer has regions to check; set page_table.kind = do-it-yourself on one, or remove the tags";
        return Err(EngineError::config(key, what));
    }
    if let Some(far) = layers.iter().find(|other| regions(other) && !near(other)) {
        let what = format!("the regions of `{}` lie deeper; tags are for this layer and its own guests", far.name);
        return Err(EngineError::config(key, what));
    }
    let other_ways = |other: &&LayerConfig| {
        other.host_mode.is_shadowed() || other.direct_segment_bytes.is_some() || other.speculative_table.is_some()
    };
    if let Some(other) = layers.iter().find(other_ways) {
        let what = format!("`{}` has shadow tables, a segment or a speculative table; remove one of both", other.name);
        return Err(EngineError::config(key, what));
    }
    let grant = tags.grant_bytes;
    if !grant.0.is_power_of_two() || !(FRAME_BYTES..=1 << 30).contains(&grant.0) {
        let what = format!("{grant} is not possible; allowed are powers of two from 4096 to 1 GiB");
        return Err(EngineError::config(format!("{key}.grant_bytes"), what));
    }
    Ok(())
}

/// An inverted shadow table belongs to the layer whose guests look it up.
fn validate_inverted_shadow(layer: &LayerConfig, layers: &[LayerConfig]) -> Result<(), EngineError> {
    let inverted = |guest: &&LayerConfig| guest.host_mode == HostMode::InvertedShadow;
    let host = layers.iter().find(|host| layer.host.as_ref() == Some(&host.name));
    if let (true, Some(host)) = (inverted(&layer), host)
        && host.inverted_shadow_bytes.is_none()
    {
        let what =
            format!("inverted-shadow needs the table's size: set system.layers.{}.inverted_shadow_bytes", host.name);
        return Err(EngineError::config(format!("system.layers.{}.host_mode", layer.name), what));
    }
    let mut guests = layers.iter().filter(|guest| guest.host.as_ref() == Some(&layer.name));
    if layer.inverted_shadow_bytes.is_some() && !guests.any(|guest| inverted(&guest)) {
        let what = "no guest of this layer has host_mode = inverted-shadow; set it there, or remove the table here";
        return Err(EngineError::config(format!("system.layers.{}.inverted_shadow_bytes", layer.name), what));
    }
    Ok(())
}

/// Checks that memory consists of whole frames and is large enough to boot a kernel.
fn memory(key: &str, bytes: u64) -> Result<(), EngineError> {
    const LEAST: u64 = 1 << 20;
    if bytes.is_multiple_of(FRAME_BYTES) && bytes >= LEAST {
        return Ok(());
    }
    Err(EngineError::config(
        key,
        format!("{bytes} bytes are not possible; allowed are multiples of 4096 from 1 MiB on"),
    ))
}

/// Checks the sizes of folios.
fn folios(layer: &LayerConfig) -> Result<(), EngineError> {
    for (name, folios) in [("folios", &layer.folios), ("file_folios", &layer.file_folios)] {
        for &Bytes(folio) in folios {
            if !folio.is_power_of_two() || !(LEAST_FOLIO..=MOST_FOLIO).contains(&folio) {
                let what = format!("{folio} bytes are not possible; allowed are powers of two from 16 KiB to 1 MiB");
                return Err(EngineError::config(format!("system.layers.{}.{name}", layer.name), what));
            }
        }
    }
    Ok(())
}
