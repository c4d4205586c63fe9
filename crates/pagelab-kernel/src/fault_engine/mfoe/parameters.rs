//! Parameters of MFOE. This module lies below the kernels and imports nothing from them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fault_engine::config::{EngineContext, EngineParameters, RingCost, RingCosts};
use pagelab_base::addr::PageSize;
use pagelab_base::code_cost::CodeCycles;
use pagelab_base::error::LayerConfigError;

/// Most entries of a pre-allocation table: the count in CR9 has 16 bits.
const MOST_ENTRIES: u32 = 0xffff;
/// The page size above 4 KiB that it can map.
pub const HUGE: PageSize = PageSize::Size2M;
/// Most lines of a kind that a part of a fault may touch.
const MOST_LINES: u32 = 16;
/// Most threads that fill the tables of a layer.
const MOST_THREADS: u32 = 64;

/// What takes frames from the pre-allocation tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// The walker.
    #[default]
    Hardware,
    /// The kernel's page-fault handler.
    Software,
    /// A system call that the program makes ahead of an access that would fault.
    Call,
}

/// When a process has the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Enabled {
    /// From its start, until it disables the engine.
    #[default]
    Always,
    /// Once it has enabled the engine by a system call.
    ByCall,
}

/// The NUMA nodes from which the frames of a CPU's table come, if memory has several (`frame_allocator.nodes`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Numa {
    /// The CPU's own node, and others once that has none left.
    #[default]
    PreferLocal,
    /// The CPU's own node only: once that has none left, the kernel handles its pages.
    LocalOnly,
    /// The node of the CPU on which the background thread runs.
    #[serde(rename = "of-thread")]
    Thread,
}

/// What happens to ready frames when no process is served any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unused {
    /// They stay ready for the next process.
    #[default]
    Keep,
    /// The background thread frees them, and refills the tables when a process is served again.
    Free,
}

/// When the background thread begins its next pass. The paper says that it sleeps for 2 ms (§4.5), not from when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LatePass {
    /// A period after the end of the pass before.
    #[default]
    Sleep,
    /// A period after the begin of the pass before, or at once if that took longer.
    AtOnce,
}

/// Parameters of a layer's MFOE.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Parameters {
    /// What takes frames from the pre-allocation tables.
    pub form: Form,
    /// When a process has the engine; calls that enable and disable it are events of a trace, or
    /// `engine.fault_engine_calls`.
    pub enabled: Enabled,
    /// Frames that are kept ready per CPU.
    pub entries: u32,
    /// Initial and smallest number of frames that passes prepare for a CPU; 0 for always `entries`. A pass doubles the
    /// number if no frame was ready for a page since the last pass, and halves it if less than a quarter were taken.
    pub least_entries: u32,
    /// Frames of 2 MiB that are kept ready per CPU, in a table of their own; 0 to leave pages of 2 MiB to the kernel.
    pub huge_entries: u32,
    /// The same as `least_entries` for pages of 2 MiB.
    pub huge_least_entries: u32,
    /// NUMA nodes of the ready frames.
    pub numa: Numa,
    /// What happens to ready frames when no process is served.
    pub unused: Unused,
    /// Cycles between two background passes; `late_pass` says from where they count.
    pub period_cycles: u64,
    /// When the next pass begins if one takes longer than the period.
    pub late_pass: LatePass,
    /// Background threads; with N threads, each handles every Nth CPU's table.
    pub threads: u32,
    /// Number of ready 4 KiB frames of a CPU below which a pass starts early; 0 for never.
    pub wake_below: u32,
    /// The same as `wake_below` for pages of 2 MiB.
    pub huge_wake_below: u32,
    /// Cycles of the background thread per frame that it prepares, beyond those of the handler's stages for the same.
    pub prepare_cycles: u32,
    /// Cycles of the background thread per page that it accounts for, beyond those of the handler's stages.
    pub account_cycles: u32,
    /// Percentage of its cgroup's limit, or of the memory, above which a process gets no more frames from the engine.
    pub limit_percent: u32,
    /// Cycles of each step of the engine, beyond its references.
    pub step_cycles: u32,
    /// Cycles until the thread that arms a new mapping runs.
    pub spawn_cycles: u32,
    /// Cycles per entry that it arms, beyond references.
    pub arm_cycles: u32,
    /// Cycles of entry, dispatch and return of a system call of the engine, beyond references.
    pub call_cycles: u32,
    /// For the software form: nothing is armed. Every first write to a page of anonymous memory takes a ready frame
    /// instead of allocating one. The fault charges it and adds it to the reverse map, and leaves the LRU lists to the
    /// thread, at these costs.
    pub in_fault: Option<Box<RingCosts>>,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            form: Form::Hardware,
            enabled: Enabled::Always,
            entries: 256,
            least_entries: 0,
            huge_entries: 0,
            huge_least_entries: 0,
            numa: Numa::PreferLocal,
            unused: Unused::Keep,
            period_cycles: 6_000_000,
            late_pass: LatePass::Sleep,
            threads: 1,
            wake_below: 0,
            huge_wake_below: 0,
            prepare_cycles: 0,
            account_cycles: 0,
            limit_percent: 80,
            step_cycles: 1,
            spawn_cycles: 6000,
            arm_cycles: 12,
            call_cycles: 300,
            in_fault: None,
        }
    }
}

impl EngineParameters for Parameters {
    fn check(&self, around: &EngineContext) -> Result<(), LayerConfigError> {
        let words = around.words.map_err(|why| {
            let what =
                format!("mfoe needs page-table entries that can hold words for pages that are not present, but {why}");
            LayerConfigError::new("fault_engine", what)
        })?;
        if !around.single_pages {
            let what = "mfoe maps single pages in frames that were taken before the fault: allowed beside it are folios = [] and \
                        the placement order0";
            return Err(LayerConfigError::new("fault_engine", what));
        }
        if self.huge_entries == 0 && around.page_size != PageSize::Size4K {
            let what = "0 keeps no frames ready for pages above 4 KiB, which are the layer's page_size; allowed are huge_entries of 1 \
                        and more with page_size = 2M, or page_size = 4K";
            return Err(LayerConfigError::new("fault_engine.huge_entries", what));
        }
        if self.huge_entries > 0 && around.page_size != HUGE {
            let what = "frames of 2 MiB need a layer with page_size = 2M; allowed here is 0";
            return Err(LayerConfigError::new("fault_engine.huge_entries", what));
        }
        if self.huge_entries > 0 && !words.contains(&HUGE) {
            let what = "entries of pages of 2 MiB hold no words in this page table; allowed here is 0";
            return Err(LayerConfigError::new("fault_engine.huge_entries", what));
        }
        if !around.walked {
            let what = "mfoe is a part of the walker, and hardware walks no tables of this layer for some of its pages; allowed \
                        here are host_mode = nested and no direct_segment_bytes or late_segments";
            return Err(LayerConfigError::new("fault_engine", what));
        }
        if let Some(&RingCosts { take, defer }) = self.in_fault.as_deref() {
            if self.form != Form::Software || self.huge_entries > 0 {
                let what = "is for rings of 4 KiB frames that the kernel takes from; allowed with it are form = software and \
                            huge_entries = 0";
                return Err(LayerConfigError::new("fault_engine.in_fault", what));
            }
            for (key, lines) in [("take.cpu", take.cpu), ("defer.cpu", defer.cpu)] {
                LayerConfigError::unless_between(&format!("fault_engine.in_fault.{key}"), lines, 0, MOST_LINES)?;
            }
            for (key, lines) in [("take.space", take.space), ("defer.space", defer.space)] {
                LayerConfigError::unless_between(&format!("fault_engine.in_fault.{key}"), lines, 0, MOST_LINES)?;
            }
        }
        LayerConfigError::unless_between("fault_engine.entries", self.entries, 1, MOST_ENTRIES)?;
        LayerConfigError::unless_between("fault_engine.huge_entries", self.huge_entries, 0, MOST_ENTRIES)?;
        LayerConfigError::unless_between("fault_engine.least_entries", self.least_entries, 0, self.entries)?;
        let most = self.huge_entries;
        LayerConfigError::unless_between("fault_engine.huge_least_entries", self.huge_least_entries, 0, most)?;
        LayerConfigError::unless_between("fault_engine.huge_wake_below", self.huge_wake_below, 0, most)?;
        LayerConfigError::unless_between("fault_engine.threads", self.threads, 1, MOST_THREADS)?;
        LayerConfigError::unless_between("fault_engine.period_cycles", self.period_cycles, 1, u64::MAX)?;
        LayerConfigError::unless_between("fault_engine.wake_below", self.wake_below, 0, self.entries)?;
        LayerConfigError::unless_between("fault_engine.limit_percent", self.limit_percent, 1, 100)
    }

    fn samples() -> Vec<Self> {
        let software = Self { form: Form::Software, entries: 16, period_cycles: 50_000, ..Self::default() };
        let hurried = Self {
            entries: 3,
            period_cycles: 400_000,
            late_pass: LatePass::AtOnce,
            threads: 2,
            wake_below: 2,
            ..Self::default()
        };
        let adaptive = Self {
            entries: 64,
            least_entries: 2,
            period_cycles: 200_000,
            prepare_cycles: 500,
            account_cycles: 300,
            unused: Unused::Free,
            numa: Numa::Thread,
            ..Self::default()
        };
        let huge = Self { entries: 16, huge_entries: 2, period_cycles: 100_000, ..Self::default() };
        let huge_adaptive = Self { huge_entries: 4, huge_least_entries: 1, huge_wake_below: 1, ..huge.clone() };
        let take = RingCost { instructions: 163, cycles: CodeCycles::Core, cpu: 4, space: 4, again: 7 };
        let defer = RingCost { instructions: 26, cycles: CodeCycles::Core, cpu: 0, space: 1, again: 6 };
        let by_call = Self { enabled: Enabled::ByCall, ..adaptive.clone() };
        let call = Self { form: Form::Call, ..software.clone() };
        let in_fault = Self { in_fault: Some(Box::new(RingCosts { take, defer })), ..software.clone() };
        vec![
            Self { period_cycles: 100_000, ..Self::default() },
            software,
            call,
            in_fault,
            hurried,
            adaptive,
            by_call,
            huge,
            huge_adaptive,
        ]
    }
}
