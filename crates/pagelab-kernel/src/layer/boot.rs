//! Booting a layer: its memory, the part reserved at boot, and the direct map.

use super::data::{CpuData, KernelData};
use super::{AsidAllocator, Layer, LayerCounters, Mechanisms, PagingPolicy, SharedSegments, Spaces};
use crate::ballooned::BalloonPages;
use crate::config::{HostMode, LayerConfig};
use crate::context::KernelContext;
use crate::direct_segment::SegmentMemory;
use crate::fault_engine::kernel_side::{EngineScope, EngineState};
use crate::frame_tags::FrameTags;
use crate::frames::frame_alloc::FramePurpose;
use crate::frames::page_use::PageUse;
use crate::frames::supply::{Frames, WantedFrames};
use crate::inverted_table::InvertedTable;
use crate::layer::contents::Contents;
use crate::memory::{LayerMemory, PAGE_METADATA_BYTES};
use crate::placement::Placement;
use crate::reclaim::GroupId;
use crate::shadows::Shadows;
use crate::table_blocks::TableBlocks;
use pagelab_base::addr::{FRAME_BYTES, FRAME_SHIFT, PageSize, Pfn};
use pagelab_base::error::EngineError;
use pagelab_base::ids::{DIRECT_MAP, NodeId, SpaceId};
use pagelab_base::memory::PhysMem;
use pagelab_tables::page_table::{Boot, LayerTables, Mapping, PteFlags, TableWork};

impl PagingPolicy {
    fn new(config: &LayerConfig) -> Self {
        Self {
            page_size: config.page_size,
            backing: config.backing,
            large_pages: config.large_pages,
            brk_alignment: config.brk_alignment_bytes,
            folio_orders: config.folio_orders(),
            blocks_ahead: config.placement.block_order().is_some(),
            file_folio_orders: config.file_folio_orders(),
            pages_per_fault: config.pages_per_fault,
            shadowed: config.host_mode.is_shadowed(),
            inverted: config.host_mode == HostMode::InvertedShadow,
        }
    }
}

impl Layer {
    /// Passes the NUMA nodes of the first CPUs to the frame allocator.
    pub fn set_cpu_nodes(&mut self, nodes: &[NodeId]) {
        self.memory.frames.allocator.set_cpu_nodes(nodes);
    }

    /// Boots a kernel on `memory_bytes` of physical memory: reserves memory for the page metadata and for its tables,
    /// including those of guests of the sizes in `guests`, and builds the direct map.
    pub fn boot(
        config: &LayerConfig,
        host: Option<SpaceId>,
        memory_bytes: u64,
        guests: &[u64],
        served: EngineScope,
        check: bool,
        asids: &mut AsidAllocator,
    ) -> Result<Self, EngineError> {
        let name = config.name.as_str();
        let frame_count = memory_bytes >> FRAME_SHIFT;
        let metadata_frames = (frame_count * PAGE_METADATA_BYTES).div_ceil(FRAME_BYTES);
        let mut mem = PhysMem::default();
        let boot = Boot { layer: name, frames: frame_count, taken: metadata_frames, guests };
        let tables = LayerTables::boot(&config.page_table, &boot, &mut mem)?;
        let mut end = tables.set_aside().end;
        let segment_memory = SegmentMemory::set_aside(config, end, frame_count)?;
        end = segment_memory.map_or(end, |memory| memory.end().0);
        let inverted_table = InvertedTable::set_aside(config, end, frame_count)?;
        end = inverted_table.as_ref().map_or(end, |table| table.end().0);
        let frame_tags = FrameTags::set_aside(config, end, frame_count)?;
        end = frame_tags.as_ref().map_or(end, |tags| tags.end().0);
        let want = WantedFrames {
            layer: name,
            allocator: &config.frame_allocator,
            age: config.age.as_ref(),
            largest_block: config.largest_block(),
        };
        let (frames, aged) = Frames::new(&want, frame_count, end, served.cpus)?;
        let set_aside = end - tables.set_aside().of_spaces;
        let memory = LayerMemory {
            contents: mem,
            frames,
            reclaim: None,
            page_use: PageUse::new(Pfn(0)),
            frame_count,
            set_aside,
            checked: check.then(Contents::default),
        };
        let mut layer = Self {
            name: name.to_owned(),
            host,
            guest_bytes: guests.iter().sum(),
            memory,
            spaces: Spaces {
                list: Vec::new(),
                tables,
                table_work: TableWork::default(),
                cut: Vec::new(),
                changed: None,
                retired: Vec::new(),
                check,
            },
            data: KernelData::before_boot(),
            paging: PagingPolicy::new(config),
            mechanisms: Mechanisms {
                placement: Placement::new(&config.placement),
                engine: None,
                translation_caches: None,
                segment_memory,
                shared_segments: config.page_table.shared_segments().map(SharedSegments::new),
                inverted_table,
                frame_tags,
                shadows: Shadows { inverted: config.host_mode == HostMode::InvertedShadow, ..Shadows::default() },
                table_blocks: config.contiguous_tables.map(TableBlocks::new),
                balloon: BalloonPages::default(),
            },
            counters: LayerCounters { aged, ..LayerCounters::default() },
        };
        layer.data.zone = layer.take_frame(KernelContext::BOOT, FramePurpose::KernelObject, "its allocator")?;
        layer.memory.page_use =
            PageUse::new(layer.take_frame(KernelContext::BOOT, FramePurpose::KernelObject, "the zero page")?);
        for _ in 0..served.cpus {
            let frame = layer.take_frame(KernelContext::BOOT, FramePurpose::KernelObject, "a CPU's own data")?;
            layer.data.cpus.push(CpuData { frame, lru: Vec::new(), counted: 0, charged: 0, charged_to: GroupId::REST });
        }
        let direct_map = layer.add_space(KernelContext::BOOT, asids)?;
        assert_eq!(direct_map, DIRECT_MAP);
        layer.build_direct_map()?;
        if let Some(engine) = &config.fault_engine {
            let engine = EngineState::boot(engine, served, &mut layer.memory_for(KernelContext::BOOT));
            layer.mechanisms.engine =
                Some(engine.ok_or_else(|| layer.out_of_memory("the tables of its fault engine"))?);
        }
        Ok(layer)
    }

    /// Maps all physical memory with the largest pages that fit (Linux `init_mem_mapping`).
    fn build_direct_map(&mut self) -> Result<(), EngineError> {
        let flags = PteFlags { writable: true, user: false, executable: false, accessed: true, dirty: true };
        let end = self.memory.frame_count;
        let mut pfn = 0;
        while pfn < end {
            let fits = |size: &PageSize| pfn.is_multiple_of(1 << size.order()) && pfn + (1 << size.order()) <= end;
            let size = PageSize::ALL.into_iter().rev().find(fits).unwrap_or(PageSize::Size4K);
            let va = self.direct(Pfn(pfn).addr());
            self.build_tables(KernelContext::BOOT, DIRECT_MAP, va, size)?;
            let mapping = Mapping { pfn: Pfn(pfn), size, flags };
            self.spaces[DIRECT_MAP].table.map(&mut self.memory.contents, va, mapping).expect("its tables exist");
            pfn += 1 << size.order();
        }
        Ok(())
    }
}
