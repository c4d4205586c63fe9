//! The kernel's part of MFOE: what stands in the entries of pages, what its tables hold, and what is counted.

use std::collections::{BTreeSet, VecDeque};

use crate::base::addr::{FRAME_BYTES, Pfn, VirtAddr};
use crate::base::cycles::Cycles;
use crate::base::ids::CpuId;
use crate::base::measure::Measure;
use crate::base::memory::PhysMem;
use crate::base::step::{RefKind, Step};
use crate::engine::kernel_side::{Job, KernelSide, Taken};
use crate::engine::mfoe::parameters::{Form, Parameters};
use crate::engine::mfoe::tables::{Entry, Tables};
use crate::kernel::entry_word::{Armed, MOST_OWNERS};
use crate::kernel::memory::Memory;
use crate::kernel::vma::{Vma, VmaKind};
use pagelab_trace::MapFlags;

/// Latencies of single cycles up to here are told apart; those beyond count as this.
const LONGEST: usize = 1 << 14;

/// Cycles of the walker's steps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steps {
    pub header: Cycles,
    pub entry: Cycles,
    pub lock: Cycles,
    pub take: Cycles,
    pub map: Cycles,
}

/// What was counted.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Pages that got a frame that was ready.
    pub hits: u64,
    /// Pages whose entry was armed and for which no frame was ready.
    pub empty: u64,
    /// Pages that were there by the time the engine had their lock.
    pub raced: u64,
    /// Pages whose entry was armed no more by then.
    pub gone: u64,
    /// Entries that were armed, and that were taken back for a process beyond its share of memory.
    pub armed: u64,
    pub disarmed: u64,
    pub jobs: u64,
    pub arm_cycles: Cycles,
    /// Passes of the background threads over a table.
    pub passes: u64,
    /// Entries that they accounted for, and those that calls did.
    pub accounted: u64,
    pub accounted_by_calls: u64,
    /// Frames that they made ready: in entries that had been used, and in others.
    pub replaced: u64,
    pub first_filled: u64,
    pub replace_cycles: Cycles,
    pub first_fill_cycles: Cycles,
    /// Other cycles of theirs: locks, and entries that need nothing.
    pub pass_cycles: Cycles,
    /// Allocations that failed because memory was short.
    pub no_frame: u64,
    /// Processes that got too much memory.
    pub stopped: u64,
    pub steps: Steps,
}

/// How long something took, as a distribution.
#[derive(Clone, Debug, Default)]
struct Latencies {
    counts: Vec<u64>,
    number: u64,
    sum: u64,
    squares: u128,
}

impl Latencies {
    fn note(&mut self, latency: Cycles) {
        self.counts.resize(LONGEST + 1, 0);
        self.counts[(latency.0 as usize).min(LONGEST)] += 1;
        self.number += 1;
        self.sum += latency.0;
        self.squares += u128::from(latency.0).pow(2);
    }

    /// Cycles that this share of them, in percent, does not exceed; 0 of none.
    fn percentile(&self, percent: u64) -> u64 {
        let wanted = (self.number * percent).div_ceil(100);
        let mut seen = 0;
        let reaches = |count: &u64| {
            seen += count;
            seen >= wanted
        };
        self.counts.iter().position(reaches).unwrap_or(0) as u64
    }

    /// In hundredths of a cycle.
    fn deviation(&self) -> u64 {
        let number = u128::from(self.number.max(1));
        let variance = (self.squares * number - u128::from(self.sum).pow(2)) * 10_000 / (number * number);
        variance.isqrt() as u64
    }

    fn measures(&self, name: &str, text: &str) -> Vec<Measure> {
        let state = |what: &str, value, unit, says: &str| {
            Measure::state(format!("{name}.{what}"), value, unit, format!("{says} of {text}"))
        };
        vec![
            Measure::cycles(format!("{name}.cycles"), Cycles(self.sum), format!("Cycles of {text}")),
            state(
                "deviation",
                self.deviation(),
                "hundredths of a cycle",
                "Over the whole run, standard deviation of the cycles",
            ),
            state("median", self.percentile(50), "cycles", "Over the whole run, median of the cycles"),
            state("p95", self.percentile(95), "cycles", "Over the whole run, 95th percentile of the cycles"),
        ]
    }
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
pub struct Mfoe {
    pub parameters: Parameters,
    pub tables: Tables,
    pub counters: Counters,
    /// By CPU.
    stocks: Vec<Stock>,
    /// Frames that have been taken and are not in a table yet.
    pub in_hand: u32,
    /// Times that a space has ended: what a thread has seen of its pages before holds no more.
    pub ended: u64,
    /// Mappings whose entries are to be armed, or not to be any more. The first is under way.
    pub jobs: VecDeque<Job>,
    /// Spaces that get no more frames this way.
    stopped: BTreeSet<u32>,
    hits: Latencies,
    misses: Latencies,
}

impl Mfoe {
    /// Whether something has been taken that nobody has accounted for.
    fn has_used(&self) -> bool {
        self.counters.hits > self.counters.accounted + self.counters.accounted_by_calls
    }

    /// Whether a background pass is to begin before its time.
    pub fn runs_low(&self, cpu: CpuId) -> bool {
        self.stocks[cpu.index()].ready < self.parameters.wake_below
    }

    /// Whether passes are to make another frame ready for a CPU.
    pub fn wants_frame(&self, cpu: CpuId) -> bool {
        let stock = self.stocks[cpu.index()];
        stock.ready < stock.wanted
    }

    /// A pass begins at a CPU's table: how many frames it is to hold.
    pub fn adapt(&mut self, cpu: CpuId) {
        let Parameters { entries, least_entries, .. } = self.parameters;
        let stock = &mut self.stocks[cpu.index()];
        if least_entries > 0 {
            if stock.missed {
                stock.wanted = (2 * stock.wanted).min(entries);
            } else if 4 * stock.taken < stock.wanted {
                stock.wanted = (stock.wanted / 2).max(least_entries);
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

    /// A space gets no more frames this way: its entries are to be armed no more. False if that is so already.
    pub fn stop(&mut self, job: Job) -> bool {
        let new = self.stopped.insert(job.space);
        if new {
            self.jobs.retain(|of| of.space != job.space);
            self.jobs.push_back(job);
            self.counters.stopped += 1;
        }
        new
    }
}

impl KernelSide for Mfoe {
    type Parameters = Parameters;

    fn boot(parameters: &Parameters, cpus: u32, memory: &mut Memory) -> Option<Self> {
        let wanted = if parameters.least_entries > 0 { parameters.least_entries } else { parameters.entries };
        Some(Self {
            tables: Tables::boot(parameters.entries, cpus, memory)?,
            parameters: parameters.clone(),
            counters: Counters::default(),
            stocks: vec![Stock { ready: 0, wanted, taken: 0, missed: false }; cpus as usize],
            in_hand: 0,
            ended: 0,
            jobs: VecDeque::new(),
            stopped: BTreeSet::new(),
            hits: Latencies::default(),
            misses: Latencies::default(),
        })
    }

    fn arms(&self, space: u32, vma: &Vma) -> Option<Armed> {
        let own = matches!(vma.kind, VmaKind::Anonymous | VmaKind::Heap) && !vma.is_shared() && vma.file.is_none();
        let plain = own && !vma.flags.contains(MapFlags::HUGETLB) && (vma.prot.read || vma.prot.write);
        let serves = plain && space < MOST_OWNERS && !self.stopped.contains(&space);
        let (writable, executable) = (vma.prot.write, vma.prot.execute);
        serves.then_some(Armed { owner: space, writable, executable })
    }

    fn want(&mut self, job: Job) {
        self.jobs.push_back(job);
    }

    fn take_used(&mut self, space: u32, is_busy: &dyn Fn(u64) -> bool, contents: &mut PhysMem) -> Vec<Taken> {
        let mut taken = Vec::new();
        if !self.has_used() {
            return taken;
        }
        for cpu in self.tables.cpus() {
            let used: Vec<_> = self.tables.used(cpu, contents).collect();
            for (at, entry) in used {
                if let Entry::Used { owner, va, frame } = entry
                    && owner == space
                    && !is_busy(va.0 / FRAME_BYTES)
                {
                    self.tables.clear(at, contents);
                    taken.push(Taken { va, frame });
                }
            }
        }
        self.counters.accounted_by_calls += taken.len() as u64;
        taken
    }

    fn is_used_at(&self, cpu: CpuId, space: u32, contents: &PhysMem) -> bool {
        let is_own = |(_, entry): (_, Entry)| matches!(entry, Entry::Used { owner, .. } if owner == space);
        self.tables.used(cpu, contents).any(is_own)
    }

    fn serves_faults(&self) -> bool {
        self.parameters.form == Form::Software
    }

    fn plan_take(&self, cpu: CpuId, contents: &PhysMem, step: &mut Step) {
        step.kernel(RefKind::Read, self.tables.header(cpu));
        let tail = self.tables.tail(cpu, contents);
        step.kernel(RefKind::Read, tail);
        if let Entry::Ready(_) = self.tables.entry(tail, contents) {
            step.kernel(RefKind::Write, tail);
            step.kernel(RefKind::Write, self.tables.header(cpu));
        }
    }

    fn take(&mut self, cpu: CpuId, space: u32, va: VirtAddr, contents: &mut PhysMem) -> Option<Pfn> {
        let frame = self.tables.take(cpu, space, va, contents);
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

    fn space_ended(&mut self, space: u32) {
        self.jobs.retain(|job| job.space != space);
        self.stopped.remove(&space);
        self.ended += 1;
    }

    fn held_frames(&self) -> u64 {
        u64::from(self.in_hand) + self.stocks.iter().map(|stock| u64::from(stock.ready)).sum::<u64>()
    }

    fn table_frames(&self) -> u64 {
        self.tables.frames()
    }

    fn note(&mut self, mapped: bool, latency: Cycles) {
        if mapped { &mut self.hits } else { &mut self.misses }.note(latency);
    }

    fn measures(&self) -> Vec<Measure> {
        let of = &self.counters;
        let mut all = Vec::new();
        for (name, count, text) in [
            ("hits", of.hits, "Pages that got a frame which was ready"),
            ("misses", of.empty, "Page faults on armed entries that found no frame ready"),
            ("raced", of.raced, "Page faults that found the page mapped once the engine had the lock of its entry"),
            ("gone", of.gone, "Page faults that found the entry armed no more once the engine had its lock"),
            ("armed", of.armed, "Entries that were armed"),
            ("disarmed", of.disarmed, "Entries that were armed no more because their process had too much memory"),
            ("arming.runs", of.jobs, "Mappings whose entries were armed"),
            ("passes", of.passes, "Passes of the background threads over a CPU's table"),
            ("accounted", of.accounted, "Pages that the background threads entered in the kernel's lists"),
            ("accounted_by_calls", of.accounted_by_calls, "Pages that mapping calls, forks and exits entered before"),
            ("replaced", of.replaced, "Frames made ready in place of others that were used"),
            ("first_filled", of.first_filled, "Frames made ready in entries that had not been used"),
            ("no_frame", of.no_frame, "Times that memory was too short to make a frame ready"),
            ("stopped", of.stopped, "Processes that got no more frames this way since they had too much memory"),
        ] {
            all.push(Measure::count(name, count, text));
        }
        for (name, cycles, text) in [
            ("arming.cycles", of.arm_cycles, "Cycles of the thread that arms entries"),
            (
                "replaced.cycles",
                of.replace_cycles,
                "Cycles of accounting for pages and of making frames ready for others",
            ),
            ("first_filled.cycles", of.first_fill_cycles, "Cycles of making frames ready where none had been used"),
            ("passes.cycles", of.pass_cycles, "Other cycles of background passes"),
        ] {
            all.push(Measure::cycles(name, cycles, text));
        }
        if self.parameters.form == Form::Hardware {
            all.extend(self.hits.measures("mapped", "page faults that the engine ended with a translation"));
            all.extend(self.misses.measures("refused", "what the engine did before it gave a fault to the kernel"));
            for (name, cycles, text) in [
                ("header", of.steps.header, "reading the header of the CPU's table"),
                ("entry", of.steps.entry, "reading the table's entry"),
                ("lock", of.steps.lock, "locking the page's entry, without waiting for others"),
                ("take", of.steps.take, "writing the table's entry and its header"),
                ("map", of.steps.map, "writing the page's entry"),
            ] {
                all.push(Measure::cycles(format!("step.{name}.cycles"), cycles, format!("Cycles of {text}")));
            }
        }
        all.push(Measure::state(
            "ready_frames",
            self.held_frames(),
            "count",
            "Frames that are ready at the end, or about to be",
        ));
        if self.parameters.least_entries > 0 {
            let wanted = self.stocks.iter().map(|stock| u64::from(stock.wanted)).sum();
            let text = "Frames that passes make ready at the end, of all CPUs";
            all.push(Measure::state("wanted_frames", wanted, "count", text));
        }
        all.push(Measure::state("table_frames", self.table_frames(), "count", "Frames of the pre-allocation tables"));
        all
    }
}
