//! Parameters of the storage management unit. This module lies below the kernels and imports nothing from them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fault_engine::config::{EngineContext, EngineParameters};
use pagelab_base::addr::PageSize;
use pagelab_base::error::LayerConfigError;

/// Most entries of an NVMe queue (NVMe 1.4, 3.1.1: CAP.MQES has 16 bits and counts from 0).
const MOST_ENTRIES: u32 = 65_536;
/// Most free pages of the queue: 1 GiB, with a ring of 4 MiB, the largest block of Linux's allocator.
const MOST_PAGES: u32 = 1 << 18;

/// Number of sockets that an entry can name: 3 bits (the talk's slides).
pub const MOST_SOCKETS: u32 = 8;
/// Number of devices per socket that an entry can name: 3 bits (the talk's slides).
pub const MOST_DEVICES: u32 = 8;

/// The queues may hold this fraction of the memory, since nothing else can use it.
const MOST_SHARE: u64 = 8;

/// Which mappings of files the unit serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FastMmap {
    /// All of the files that it may serve.
    #[default]
    All,
    /// Those whose call asks for it, by the flag 0x400000 of mmap.
    ByCall,
}

/// The references of a call that writes the entries of a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FillCosts {
    /// None: cycles alone.
    #[default]
    Cycles,
    /// Those to the tables of the page table, in addition to the cycles.
    References,
}

/// What happens to a file of which a fork has made a second mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AfterFork {
    /// The kernel serves it to parent and child, and to whoever is left, until the end.
    #[default]
    Kernel,
    /// The kernel serves it to both. Once one mapping is left, the unit serves that again.
    Resume,
}

/// Parameters of a layer's storage management unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Parameters {
    /// Number of sockets; each has a unit. The queues and registers below are per unit.
    pub sockets: u32,
    /// Additional cycles of a miss whose CPU is on another socket than the drive, for the way to that unit and back.
    pub remote_cycles: u32,
    /// Number of misses that may be in progress at a time (page miss status holding registers).
    pub pmshr: u32,
    /// Entries of the unit's submission queue and of its completion queue; one stays free.
    pub nvme_entries: u32,
    /// Capacity of the queue of free pages.
    pub free_pages: u32,
    /// Number of free pages that the unit fetches at a time, if there are that many.
    pub prefetch: u32,
    /// Number of free pages that a fault prepares if it found the queue empty, as far as there is room.
    pub sync_refill: u32,
    /// Cycles between the end of a pass of kpted and the next one.
    pub kpted_cycles: u64,
    /// Cycles between the end of a pass of kpoold and the next one; 0 if only faults fill the queue.
    pub kpoold_cycles: u64,
    /// Cycles of each step of the unit, beyond its references.
    pub step_cycles: u32,
    /// Cycles until a write to a doorbell reaches the drive.
    pub doorbell_cycles: u32,
    /// Cycles per entry that a mapping call writes.
    pub fill_cycles: u32,
    /// What else writing these entries costs.
    pub fill: FillCosts,
    /// Which mappings of the files to serve it serves.
    pub fast_mmap: FastMmap,
    /// What happens to a file when a process that has mapped it forks.
    pub after_fork: AfterFork,
    /// Names of the files to serve; a `*` at the end matches any rest. It is an error if a second mapping
    /// of one of these is made, except by a fork.
    /// If empty, all files that can be served are.
    pub files: Vec<String>,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            sockets: 1,
            remote_cycles: 400,
            pmshr: 32,
            nvme_entries: 64,
            free_pages: 4096,
            prefetch: 4,
            sync_refill: 64,
            kpted_cycles: 2_600_000_000,
            kpoold_cycles: 10_400_000,
            step_cycles: 1,
            doorbell_cycles: 200,
            fill_cycles: 12,
            fill: FillCosts::Cycles,
            fast_mmap: FastMmap::All,
            after_fork: AfterFork::Kernel,
            files: Vec::new(),
        }
    }
}

impl EngineParameters for Parameters {
    fn check(&self, around: &EngineContext) -> Result<(), LayerConfigError> {
        if !around.marks {
            let what = "smu needs entries with a bit for kpted, in leaves and above, and those of this page table have none; allowed \
                        here is page_table.kind = radix";
            return Err(LayerConfigError::new("fault_engine", what));
        }
        if !around.alone {
            let what = "smu needs a machine without guests, since guests have no drive of their own; allowed is a single layer";
            return Err(LayerConfigError::new("fault_engine", what));
        }
        if around.drives == 0 {
            let what = "smu reads pages of files, and there is nothing to read them from; set kernel.storage, for example to \
                        z-ssd-sz985";
            return Err(LayerConfigError::new("fault_engine", what));
        }
        if !around.walked {
            let what = "smu is asked by the walker, and hardware walks no tables of this layer for some of its pages; allowed here is \
                        no direct_segment_bytes or late_segments";
            return Err(LayerConfigError::new("fault_engine", what));
        }
        let (least, most) = (around.drives.div_ceil(MOST_DEVICES), around.drives.min(around.cores).min(MOST_SOCKETS));
        if least > most {
            let what = format!(
                "{} drives are more than {MOST_DEVICES} for each of the {most} sockets that there can be; allowed here is \
                 kernel.storage.drives up to {}",
                around.drives,
                most * MOST_DEVICES
            );
            return Err(LayerConfigError::new("fault_engine.sockets", what));
        }
        if !(least..=most).contains(&self.sockets) {
            let what = format!(
                "{} is not possible; allowed here is {least} to {most}: no more than drives (kernel.storage.drives, {}), cores ({}) or \
                 {MOST_SOCKETS}, and no more than {MOST_DEVICES} drives each",
                self.sockets, around.drives, around.cores
            );
            return Err(LayerConfigError::new("fault_engine.sockets", what));
        }
        debug_assert!(around.words.is_ok_and(|sizes| sizes.contains(&PageSize::Size4K)), "marks come with words");
        LayerConfigError::unless_between("fault_engine.nvme_entries", self.nvme_entries, 2, MOST_ENTRIES)?;
        if self.pmshr == 0 || self.pmshr >= self.nvme_entries {
            let what = format!(
                "{} is not possible; allowed is 1 to {}, since each miss has an entry of the submission queue and one entry stays free",
                self.pmshr,
                self.nvme_entries - 1
            );
            return Err(LayerConfigError::new("fault_engine.pmshr", what));
        }
        LayerConfigError::unless_between("fault_engine.free_pages", self.free_pages, 1, MOST_PAGES)?;
        let most = around.frames / MOST_SHARE;
        if u64::from(self.free_pages) * u64::from(self.sockets) > most {
            let what = format!(
                "{} free pages for each of {} sockets are more than an eighth of the memory's {}; allowed here is 1 to {}",
                self.free_pages,
                self.sockets,
                around.frames,
                most / u64::from(self.sockets)
            );
            return Err(LayerConfigError::new("fault_engine.free_pages", what));
        }
        LayerConfigError::unless_between("fault_engine.prefetch", self.prefetch, 1, MOST_PAGES)?;
        LayerConfigError::unless_between("fault_engine.sync_refill", self.sync_refill, 0, MOST_PAGES)?;
        LayerConfigError::unless_between("fault_engine.kpted_cycles", self.kpted_cycles, 1, u64::MAX)
    }

    fn samples() -> Vec<Self> {
        let short = Self {
            pmshr: 2,
            nvme_entries: 3,
            free_pages: 4,
            prefetch: 1,
            sync_refill: 2,
            kpted_cycles: 300_000,
            kpoold_cycles: 0,
            ..Self::default()
        };
        let busy = Self { free_pages: 32, kpted_cycles: 1_000_000, kpoold_cycles: 200_000, ..Self::default() };
        let sockets = Self { sockets: 2, pmshr: 1, ..short.clone() };
        let (fill, after_fork) = (FillCosts::References, AfterFork::Resume);
        let resumed = Self { fill, after_fork, ..busy.clone() };
        vec![busy, short, sockets, resumed]
    }
}
