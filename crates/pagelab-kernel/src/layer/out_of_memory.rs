//! Errors that end a run when memory, or a table of fixed size, is exhausted: what uses it, and what to set.

use crate::context::KernelContext;
use crate::layer::Layer;
use pagelab_base::addr::FRAME_SHIFT;
use pagelab_base::error::EngineError;
use pagelab_tables::page_table::Exhausted;

impl Layer {
    /// The error for a frame that cannot be allocated, with the use of the memory.
    pub fn out_of_memory(&self, what_for: &str) -> EngineError {
        let bytes = |frames: u64| pagelab_trace::quantity::format_bytes(frames << FRAME_SHIFT);
        let (free, files, tables) =
            (self.memory.free_frames(), self.memory.page_use.cached_frames(), self.table_frames());
        let (total, set_aside) = (self.memory_bytes() >> FRAME_SHIFT, self.boot_reserved_frames());
        let others = total - free - files - tables - set_aside;
        let metadata = match (
            self.spaces.tables.set_aside().what,
            self.mechanisms.segment_memory.filter(|memory| memory.late.is_none()),
            &self.mechanisms.inverted_table,
        ) {
            (None, None, None) => "page metadata".to_owned(),
            (Some(what), None, None) => format!("page metadata and {what}"),
            _ => "page metadata and memory reserved at boot for a segment or a table".to_owned(),
        };
        let name = &self.name;
        let swap = match self.memory.reclaim.as_ref().and_then(|reclaim| reclaim.swap.as_ref()) {
            Some(swap) => {
                format!("{} are swapped out and {} of swap are left", bytes(swap.used_slots()), bytes(swap.room()))
            }
            None => format!("there is no swap device (kernel.swap, for layers with system.layers.{name}.swap=on)"),
        };
        let guests = match self.guest_bytes {
            0 => String::new(),
            given => format!("; its guests may use {} together", pagelab_trace::quantity::format_bytes(given)),
        };
        let what = format!(
            "layer `{name}` has no frame left of its {} for {what_for}: programs and kernel objects hold {}, files {}, page tables \
             {}, {metadata} {}, {} are free but kept for the kernel or other zones; {swap}{guests}. Give it more by \
             --set system.layers.{name}.memory_bytes=SIZE or the machine by --set machine.memory_bytes=SIZE",
            bytes(total),
            bytes(others),
            bytes(files),
            bytes(tables),
            bytes(set_aside),
            bytes(free),
        );
        EngineError::OutOfMemory { what }
    }

    /// The error for a page whose cgroup is at its limit and has nothing to reclaim.
    pub fn cgroup_limit_error(&self, context: KernelContext) -> EngineError {
        let reclaim = self.memory.reclaim.as_ref().expect("only such layers have limits");
        let group = &reclaim.groups()[context.group];
        let key = match group.name.as_str() {
            "" => "kernel.cgroup_limit_bytes".to_owned(),
            name => format!("memory_limit of {name}"),
        };
        let what = format!(
            "layer `{}`: programs use all of the {} that their cgroup allows, and none of it can be reclaimed: {} of swap are free, and memory \
             that is not on an LRU list (shared anonymous memory) stays; set a larger {key}",
            self.name,
            pagelab_trace::quantity::format_bytes(group.limit_frames << FRAME_SHIFT),
            pagelab_trace::quantity::format_bytes(reclaim.swap.as_ref().map_or(0, |swap| swap.room()) << FRAME_SHIFT),
        );
        EngineError::OutOfMemory { what }
    }

    /// The error for exhausted page tables.
    pub fn exhausted(&self, what: Exhausted) -> EngineError {
        EngineError::OutOfMemory { what: self.spaces.tables.exhausted(&self.memory.contents, &self.name, what) }
    }
}
