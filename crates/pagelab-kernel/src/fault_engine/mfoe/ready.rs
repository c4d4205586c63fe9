//! Frames of one size that are ready: a pre-allocation table per CPU, how full each is to be, and what is counted of
//! it.
//!
//! Source: Tirumalasetty et al., 4.2; 4.5 for sizes that adapt, which are future work there; 4.9 for another table per
//! CPU if pages of 2 MiB are to be mapped beside those of 4 KiB.

use crate::fault_engine::kernel_side::UnaccountedPage;
use crate::fault_engine::mfoe::parameters::Parameters;
use crate::fault_engine::mfoe::tables::{TableEntry, Tables};
use crate::memory::Memory;
use pagelab_base::addr::{PageSize, Pfn, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::CpuId;
use pagelab_base::measure::Measure;
use pagelab_base::memory::PhysMem;

/// What was counted of pages of one size.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Pages that got a frame that was ready.
    pub hits: u64,
    /// Pages whose entry was armed and for which no frame was ready.
    pub empty: u64,
    /// Entries that were armed.
    pub armed: u64,
    /// Entries that were taken back for a process beyond its share of memory.
    pub disarmed: u64,
    /// Passes of the background threads over a table.
    pub passes: u64,
    /// Entries that they accounted for.
    pub accounted: u64,
    /// Entries that mapping calls accounted for.
    pub accounted_by_calls: u64,
    /// Frames that they made ready in entries that had been used.
    pub replaced: u64,
    /// Frames that passes made ready in entries that had not been used.
    pub first_filled: u64,
    /// Cycles of passes for frames in entries that had been used.
    pub replace_cycles: Cycles,
    /// Cycles of passes for frames in other entries.
    pub first_fill_cycles: Cycles,
    /// Other cycles of theirs: locks, and entries that need nothing.
    pub pass_cycles: Cycles,
    /// Allocations that failed because memory was short.
    pub no_frame: u64,
    /// Ready frames that were freed because nobody was served.
    pub freed: u64,
}

/// What a CPU's table is to hold, and what became of it since the last pass.
#[derive(Clone, Copy, Debug)]
struct Stock {
    /// Frames that are ready: what the table says.
    ready: u32,
    /// Frames that passes make ready.
    wanted: u32,
    /// Since the last pass.
    taken: u32,
    missed: bool,
}

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Size of the pages that the frames are for.
    pub size: PageSize,
    /// The tables of all CPUs, in the layer's memory.
    pub tables: Tables,
    /// What was counted of pages of this size.
    pub counters: Counters,
    /// Frames that each table holds at most, and at least where sizes adapt; else 0.
    pub entries: u32,
    least: u32,
    /// By CPU.
    stocks: Vec<Stock>,
    /// Frames of this size that have been taken and are not in a table yet.
    pub in_hand: u32,
}

impl Ready {
    /// Empty tables; none if there is no memory for them. Those of pages of 4 KiB may adapt.
    pub fn boot(size: PageSize, parameters: &Parameters, cpus: u32, memory: &mut Memory) -> Option<Self> {
        let (entries, least) = match size {
            PageSize::Size4K => (parameters.entries, parameters.least_entries),
            PageSize::Size2M | PageSize::Size1G => (parameters.huge_entries, 0),
        };
        let wanted = if least > 0 { least } else { entries };
        Some(Self {
            size,
            tables: Tables::boot(entries, cpus, memory)?,
            counters: Counters::default(),
            entries,
            least,
            stocks: vec![Stock { ready: 0, wanted, taken: 0, missed: false }; cpus as usize],
            in_hand: 0,
        })
    }

    /// Whether fewer frames are ready for a CPU than so many.
    pub fn has_less_than(&self, cpu: CpuId, frames: u32) -> bool {
        self.stocks[cpu.index()].ready < frames
    }

    /// Whether passes are to make another frame ready for a CPU.
    pub fn wants_frame(&self, cpu: CpuId) -> bool {
        let stock = self.stocks[cpu.index()];
        stock.ready < stock.wanted
    }

    /// A pass begins at a CPU's table: how many frames it is to hold.
    pub fn adapt(&mut self, cpu: CpuId) {
        let stock = &mut self.stocks[cpu.index()];
        if self.least > 0 {
            if stock.missed {
                stock.wanted = (2 * stock.wanted).min(self.entries);
            } else if 4 * stock.taken < stock.wanted {
                stock.wanted = (stock.wanted / 2).max(self.least);
            }
        }
        (stock.taken, stock.missed) = (0, false);
    }

    /// A page's entry is armed, and no frame is ready for it.
    pub fn note_empty(&mut self, cpu: CpuId) {
        self.counters.empty += 1;
        self.stocks[cpu.index()].missed = true;
    }

    /// A frame is ready in the entry at the head.
    pub fn put(&mut self, cpu: CpuId, frame: Pfn, contents: &mut PhysMem) {
        self.tables.put(cpu, frame, contents);
        self.in_hand -= 1;
        self.stocks[cpu.index()].ready += 1;
    }

    /// The frame at the tail, for a page of an owner; none if it is not ready.
    pub fn take(&mut self, cpu: CpuId, owner: u32, va: VirtAddr, contents: &mut PhysMem) -> Option<Pfn> {
        let frame = self.tables.take(cpu, owner, va, contents);
        match frame {
            Some(_) => {
                self.counters.hits += 1;
                let stock = &mut self.stocks[cpu.index()];
                (stock.ready, stock.taken) = (stock.ready - 1, stock.taken + 1);
            }
            None => self.note_empty(cpu),
        }
        frame
    }

    /// The frame at the tail, which nobody is to get; none if none is ready.
    pub fn withdraw(&mut self, cpu: CpuId, contents: &mut PhysMem) -> Option<Pfn> {
        let frame = self.tables.withdraw(cpu, contents)?;
        self.stocks[cpu.index()].ready -= 1;
        self.counters.freed += 1;
        Some(frame)
    }

    /// Whether something has been taken that nobody has accounted for.
    fn has_used(&self) -> bool {
        self.counters.hits > self.counters.accounted + self.counters.accounted_by_calls
    }

    /// What has been taken for pages of an owner, and what nobody has accounted for.
    pub fn used_for<'a>(&'a self, space: u32, contents: &'a PhysMem) -> impl Iterator<Item = UnaccountedPage> + 'a {
        let any = self.has_used();
        let used = self.tables.cpus().filter(move |_| any).flat_map(|cpu| self.tables.used(cpu, contents));
        used.filter_map(move |(place, entry)| match entry {
            TableEntry::Used { owner, va, frame } if owner == space => {
                Some(UnaccountedPage { va, size: self.size, frame, place, file: None })
            }
            TableEntry::Used { .. } | TableEntry::Ready(_) | TableEntry::Empty => None,
        })
    }

    /// Frames of 4 KiB that it keeps for pages to come.
    pub fn held_frames(&self) -> u64 {
        let blocks = u64::from(self.in_hand) + self.stocks.iter().map(|stock| u64::from(stock.ready)).sum::<u64>();
        blocks << self.size.order()
    }

    /// Frames that passes make ready, of all CPUs, if that adapts.
    pub fn wanted_frames(&self) -> Option<u64> {
        (self.least > 0).then(|| self.stocks.iter().map(|stock| u64::from(stock.wanted)).sum())
    }

    /// What it counts: counts, then cycles. Names begin with `prefix`; texts name the size where there are several.
    pub fn measures(&self, prefix: &str, several: bool) -> [Vec<Measure>; 2] {
        let of = &self.counters;
        let counts = [
            ("hits", of.hits, "Pages that got a frame which was ready"),
            ("misses", of.empty, "Page faults on armed entries that found no frame ready"),
            ("armed", of.armed, "Entries that were armed"),
            ("disarmed", of.disarmed, "Entries that were armed no more because their process had too much memory"),
            ("passes", of.passes, "Passes of the background threads over a CPU's table"),
            ("accounted", of.accounted, "Pages that the background threads entered in the kernel's lists"),
            (
                "accounted_by_calls",
                of.accounted_by_calls,
                "Pages that mapping calls, forks, exits and khugepaged entered before",
            ),
            ("replaced", of.replaced, "Frames made ready to replace others that were used"),
            ("first_filled", of.first_filled, "Frames made ready in entries that had not been used"),
            ("no_frame", of.no_frame, "Times that no frame was free to be made ready"),
            ("freed", of.freed, "Ready frames that were freed because no process was served any more"),
        ];
        let cycles = [
            (
                "replaced.cycles",
                of.replace_cycles,
                "Cycles of accounting for pages and of making frames ready for others",
            ),
            ("first_filled.cycles", of.first_fill_cycles, "Cycles of making frames ready where none had been used"),
            ("passes.cycles", of.pass_cycles, "Other cycles of background passes"),
        ];
        let about = |text: &str| if !several { text.to_owned() } else { format!("{text}, of {}", self.size.name()) };
        [
            counts.map(|(name, count, text)| Measure::count(format!("{prefix}{name}"), count, about(text))).into(),
            cycles.map(|(name, cycles, text)| Measure::cycles(format!("{prefix}{name}"), cycles, about(text))).into(),
        ]
    }
}
