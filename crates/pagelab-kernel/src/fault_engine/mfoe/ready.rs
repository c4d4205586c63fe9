//! Ready frames of one size: a pre-allocation table per CPU, its target size, and its counters.
//!
//! Source: Tirumalasetty et al., 4.2; 4.5 for adaptive sizes, which are future work there; 4.9 for a second table per
//! CPU if pages of 2 MiB are mapped besides those of 4 KiB.

use crate::fault_engine::kernel_side::UnaccountedPage;
use crate::fault_engine::mfoe::parameters::Parameters;
use crate::fault_engine::mfoe::tables::{TableEntry, Tables};
use crate::memory::Memory;
use pagelab_base::addr::{PageSize, Pfn, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::{CpuId, SpaceIx};
use pagelab_base::measure::Measure;
use pagelab_base::memory::PhysMem;

/// Counters for pages of one size.
#[derive(Clone, Debug, Default)]
pub struct ReadyCounters {
    /// Pages that got a ready frame.
    pub hits: u64,
    /// Armed pages for which no frame was ready.
    pub empty: u64,
    /// Entries that were armed.
    pub armed: u64,
    /// Entries that were disarmed because their process exceeded its share of memory.
    pub disarmed: u64,
    /// Passes of the background threads over a table.
    pub passes: u64,
    /// Entries that the background threads accounted for.
    pub accounted: u64,
    /// Entries that mapping calls accounted for.
    pub accounted_by_calls: u64,
    /// Frames that passes prepared in entries that had been used.
    pub replaced: u64,
    /// Frames that passes prepared in entries that had not been used.
    pub first_filled: u64,
    /// Cycles of passes for frames in entries that had been used.
    pub replace_cycles: Cycles,
    /// Cycles of passes for frames in entries that had not been used.
    pub first_fill_cycles: Cycles,
    /// Other cycles of passes: locks, and entries that need nothing.
    pub pass_cycles: Cycles,
    /// Allocations that failed because memory was short.
    pub no_frame: u64,
    /// Ready frames that were freed because no process was served.
    pub freed: u64,
}

/// Target and state of a CPU's table.
#[derive(Clone, Copy, Debug)]
struct Stock {
    /// Number of ready frames in the table.
    ready: u32,
    /// Number of frames that passes prepare.
    wanted: u32,
    /// Frames taken since the last pass.
    taken: u32,
    missed: bool,
    /// Pages of the CPU that got a frame, and those for which none was ready.
    hits: u64,
    misses: u64,
}

/// Ready frames of one size, see the module's text.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Size of the pages that the frames are for.
    pub size: PageSize,
    /// The tables of all CPUs, in the layer's memory.
    pub tables: Tables,
    /// Counters for pages of this size.
    pub counters: ReadyCounters,
    /// Most frames that each table holds, and with adaptive sizes the least; otherwise 0.
    pub entries: u32,
    least: u32,
    /// By CPU.
    stocks: Vec<Stock>,
    /// Frames of this size that were allocated and are not in a table yet.
    pub in_hand: u32,
}

impl Ready {
    /// Empty tables; `None` if there is no memory for them.
    pub fn boot(size: PageSize, parameters: &Parameters, cpus: u32, memory: &mut Memory) -> Option<Self> {
        let (entries, least) = match size {
            PageSize::Size4K => (parameters.entries, parameters.least_entries),
            PageSize::Size2M | PageSize::Size1G => (parameters.huge_entries, parameters.huge_least_entries),
        };
        let wanted = if least > 0 { least } else { entries };
        Some(Self {
            size,
            tables: Tables::boot(entries, cpus, memory)?,
            counters: ReadyCounters::default(),
            entries,
            least,
            stocks: vec![Stock { ready: 0, wanted, taken: 0, missed: false, hits: 0, misses: 0 }; cpus as usize],
            in_hand: 0,
        })
    }

    /// Whether a CPU has less than this number of ready frames.
    pub fn has_less_than(&self, cpu: CpuId, frames: u32) -> bool {
        self.stocks[cpu].ready < frames
    }

    /// Whether passes should prepare another frame for a CPU.
    pub fn wants_frame(&self, cpu: CpuId) -> bool {
        let stock = self.stocks[cpu];
        stock.ready < stock.wanted
    }

    /// Adapts the target of a CPU's table when a pass begins there.
    pub fn adapt(&mut self, cpu: CpuId) {
        let stock = &mut self.stocks[cpu];
        if self.least > 0 {
            if stock.missed {
                stock.wanted = (2 * stock.wanted).min(self.entries);
            } else if 4 * stock.taken < stock.wanted {
                stock.wanted = (stock.wanted / 2).max(self.least);
            }
        }
        (stock.taken, stock.missed) = (0, false);
    }

    /// Notes that a page's entry is armed, but no frame is ready.
    pub fn note_empty(&mut self, cpu: CpuId) {
        self.counters.empty += 1;
        let stock = &mut self.stocks[cpu];
        (stock.missed, stock.misses) = (true, stock.misses + 1);
    }

    /// Puts a ready frame in the entry at the head.
    pub fn put(&mut self, cpu: CpuId, frame: Pfn, contents: &mut PhysMem) {
        self.tables.put(cpu, frame, contents);
        self.in_hand -= 1;
        self.stocks[cpu].ready += 1;
    }

    /// Takes the frame at the tail for a page of an owner; `None` if it is not ready.
    pub fn take(&mut self, cpu: CpuId, owner: SpaceIx, va: VirtAddr, contents: &mut PhysMem) -> Option<Pfn> {
        let frame = self.tables.take(cpu, owner, va, contents);
        match frame {
            Some(_) => {
                self.counters.hits += 1;
                let stock = &mut self.stocks[cpu];
                (stock.ready, stock.taken, stock.hits) = (stock.ready - 1, stock.taken + 1, stock.hits + 1);
            }
            None => self.note_empty(cpu),
        }
        frame
    }

    /// Removes the frame at the tail without using it; `None` if none is ready.
    pub fn withdraw(&mut self, cpu: CpuId, contents: &mut PhysMem) -> Option<Pfn> {
        let frame = self.tables.withdraw(cpu, contents)?;
        self.stocks[cpu].ready -= 1;
        self.counters.freed += 1;
        Some(frame)
    }

    /// Whether its tables hold nothing: neither ready frames nor used ones.
    pub fn is_clear(&self) -> bool {
        self.held_frames() == 0 && !self.has_used()
    }

    /// Whether some taken frames are not accounted for.
    fn has_used(&self) -> bool {
        self.counters.hits > self.counters.accounted + self.counters.accounted_by_calls
    }

    /// Frames that were taken for pages of an owner and are not accounted for.
    pub fn used_for<'a>(&'a self, space: SpaceIx, contents: &'a PhysMem) -> impl Iterator<Item = UnaccountedPage> + 'a {
        let any = self.has_used();
        let used = self.tables.cpus().filter(move |_| any).flat_map(|cpu| self.tables.used(cpu, contents));
        used.filter_map(move |(place, entry)| match entry {
            TableEntry::Used { owner, va, frame } if owner == space => {
                Some(UnaccountedPage { va, size: self.size, frame, place, file: None })
            }
            TableEntry::Used { .. } | TableEntry::Ready(_) | TableEntry::Empty => None,
        })
    }

    /// Frames of 4 KiB that it keeps for future pages.
    pub fn held_frames(&self) -> u64 {
        let blocks = u64::from(self.in_hand) + self.stocks.iter().map(|stock| u64::from(stock.ready)).sum::<u64>();
        blocks << self.size.order()
    }

    /// Sum of the targets of all CPUs, if they adapt.
    pub fn wanted_frames(&self) -> Option<u64> {
        (self.least > 0).then(|| self.stocks.iter().map(|stock| u64::from(stock.wanted)).sum())
    }

    /// Its statistics: counts, then cycles. Names begin with `prefix`; texts name the size if there are several.
    pub fn measures(&self, prefix: &str, several: bool) -> [Vec<Measure>; 2] {
        let counters = &self.counters;
        let counts = [
            ("hits", counters.hits, "Pages that got a ready frame"),
            ("misses", counters.empty, "Page faults on armed entries that found no frame ready"),
            ("armed", counters.armed, "Entries that were armed"),
            ("disarmed", counters.disarmed, "Entries that were disarmed because their process had too much memory"),
            ("passes", counters.passes, "Passes of the background threads over a CPU's table"),
            ("accounted", counters.accounted, "Pages that the background threads accounted for"),
            (
                "accounted_by_calls",
                counters.accounted_by_calls,
                "Pages that mapping calls, forks, exits and khugepaged accounted for earlier",
            ),
            ("replaced", counters.replaced, "Frames prepared to replace used ones"),
            ("first_filled", counters.first_filled, "Frames prepared in entries that had not been used"),
            ("no_frame", counters.no_frame, "Times that no free frame could be prepared"),
            ("freed", counters.freed, "Ready frames that were freed because no process was served any more"),
        ];
        let cycles = [
            (
                "replaced.cycles",
                counters.replace_cycles,
                "Cycles of accounting for pages and preparing frames to replace theirs",
            ),
            (
                "first_filled.cycles",
                counters.first_fill_cycles,
                "Cycles of preparing frames in entries that had not been used",
            ),
            ("passes.cycles", counters.pass_cycles, "Other cycles of background passes"),
        ];
        let about = |text: &str| if !several { text.to_owned() } else { format!("{text}, of {}", self.size.name()) };
        let by_cpu = self.stocks.iter().enumerate().flat_map(|(n, stock)| {
            let count = |name: &str, count, text: &str| {
                Measure::count(format!("{prefix}cpu.{n}.{name}"), count, about(&format!("{text} of CPU {n}")))
            };
            [
                count("hits", stock.hits, "Pages that got a ready frame"),
                count("misses", stock.misses, "Faults without a ready frame"),
            ]
        });
        let counts = counts.map(|(name, count, text)| Measure::count(format!("{prefix}{name}"), count, about(text)));
        [
            counts.into_iter().chain(by_cpu).collect(),
            cycles.map(|(name, cycles, text)| Measure::cycles(format!("{prefix}{name}"), cycles, about(text))).into(),
        ]
    }
}
