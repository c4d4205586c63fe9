//! `mapped-read`: reads blocks of a memory-mapped file like a storage benchmark.

use super::{
    Workload,
    array::{Mix, WRITE, portion, share},
    layout::Layout,
    popularity::{Popularity, THETA},
    program::{Plan, Stream, Worker, plan},
    spec::{ALIGN, COUNT, GAP, Kind, Parameter, Preset, SEED, SIZE, THREADS, Values, YES_NO},
};
use crate::rng::Rng;
use crate::{Access, MapFlags, TraceError, quantity::format_bytes};

/// Bytes that one access copies: a cache line.
const LINE: u64 = 64;
const DEFAULT_ACCESSES: u64 = 10_000_000;
// Advice of madvise(2).
const MADV_RANDOM: u32 = 1;
const MADV_SEQUENTIAL: u32 = 2;

/// Models: fio's engine `mmap`. One file is mapped as a whole, shared, for reading and writing. An operation copies a
/// block out of the mapping or into it, line by line from its beginning. Blocks are aligned to their size. The rest of
/// the file after the last whole block is not used.
///
/// Source: fio, engines/mmap.c: one mapping, memcpy of a block, and the advice. `zipf` is fio's
/// random_distribution=zipf:theta; `latest` is that of YCSB, with the file's end as its newest part.
///
/// Parameters: see the table below. `pattern=sequential` reads the file in order and restarts at its end; each thread
/// has an equal part of the file. With the other patterns each thread chooses from all blocks.
///
/// Deviations: the buffer at the other end of the copy is omitted; it is reused and stays in the first-level cache. fio
/// maps a file that it only reads read-only. Its threads map the file once each; here they share one mapping. fio's
/// `zipf` by default scatters blocks with a hash that maps several to the same place; here each has a place of its own.
pub(super) static WORKLOAD: Workload = Workload {
    name: "mapped-read",
    summary: "reads blocks of a memory-mapped file, or writes them: at random, in order, by Zipf's law, or the latest first",
    origin: "fio with ioengine=mmap (rw=randread, read, randrw, rw; random_distribution=zipf:0.99); YCSB's latest",
    parameters: &[
        Parameter {
            name: "size",
            kind: SIZE,
            default: Preset::Value("1GiB"),
            meaning: "bytes of the file, which all threads share",
        },
        Parameter {
            name: "pattern",
            kind: Kind::Choice(&["random", "sequential", "zipf", "latest"]),
            default: Preset::Value("random"),
            meaning: "which block is next: each equally likely, the following one, as Zipf's law has it with popular blocks \
                      spread at random, or the same with the file's last blocks the most popular",
        },
        THETA,
        Parameter { name: "block", kind: SIZE, default: Preset::Value("4KiB"), meaning: "bytes of an operation" },
        Parameter {
            name: "lines",
            kind: COUNT,
            default: Preset::Derived("all of the block"),
            meaning: "lines of 64 bytes that an operation touches, from the block's first on; each is one access",
        },
        Parameter { meaning: "fraction of the operations that write their block, chosen at random", ..WRITE },
        Parameter {
            name: "operations",
            kind: COUNT,
            default: Preset::Derived("as many as the accesses need"),
            meaning: "operations of all threads together, instead of accesses",
        },
        Parameter {
            name: "accesses",
            kind: COUNT,
            default: Preset::Derived("10M, or as many as the operations need"),
            meaning: "accesses of all threads together",
        },
        Parameter {
            name: "advice",
            kind: YES_NO,
            default: Preset::Value("yes"),
            meaning: "whether to advise the kernel of the pattern: MADV_SEQUENTIAL if sequential, MADV_RANDOM otherwise",
        },
        Parameter {
            name: "fast",
            kind: YES_NO,
            default: Preset::Value("no"),
            meaning: "whether the call asks for a mapping that a storage management unit serves (fault_engine.fast_mmap)",
        },
        THREADS,
        GAP,
        ALIGN,
        SEED,
    ],
    build,
};

fn build(values: &Values) -> Result<Plan, TraceError> {
    let (bytes, block, threads) = (values.number("size"), values.number("block"), values.threads());
    if block > bytes {
        return Err(values.refuse("size", &format!("at least one block of {}", format_bytes(block))));
    }
    let lines = values.optional("lines").unwrap_or(block.div_ceil(LINE));
    if lines > block.div_ceil(LINE) {
        return Err(values.refuse("lines", &format!("at most {}, the lines of a block", block.div_ceil(LINE))));
    }
    let (total, each) = match (values.optional("operations"), values.optional("accesses")) {
        (Some(_), Some(_)) => return Err(values.conflict("give operations or accesses, not both")),
        (Some(operations), None) => (operations, lines),
        (None, accesses) => (accesses.unwrap_or(DEFAULT_ACCESSES), 1),
    };
    if total.checked_mul(each).is_none_or(|accesses| accesses > u64::MAX >> 1) {
        return Err(values.refuse("operations", "small enough that 64 bits count the accesses"));
    }
    let mut layout = Layout::new(values);
    let flags = if values.is_yes("fast") { MapFlags::FAST } else { 0 };
    let base = layout.map_file_as(0, bytes, "/data/mapped-read", flags)?;
    let pattern = values.word("pattern");
    if values.is_yes("advice") {
        let advice = if pattern == "sequential" { MADV_SEQUENTIAL } else { MADV_RANDOM };
        layout.advise(0, base, bytes, advice);
    }
    let workers = (0..threads).map(|thread| Worker {
        initialise: Vec::new(),
        stream: MappedRead {
            base,
            block,
            blocks: bytes / block,
            lines,
            order: Order::new(values, pattern, bytes / block, thread),
            at: base,
            end: base,
            left: 0,
            choice: 0,
            mix: Mix::new(values, LINE as u16),
            rng: Rng::for_thread(values.seed(), "mapped-read", thread),
        },
        accesses: portion(total, thread, threads) * each,
    });
    let workers = workers.collect();
    Ok(plan(layout, workers))
}

/// The order in which a thread accesses blocks.
enum Order {
    /// From `begin` to `end`, repeatedly.
    Sequential {
        begin: u64,
        end: u64,
        next: u64,
    },
    Drawn(Popularity),
}

impl Order {
    fn new(values: &Values, pattern: &str, blocks: u64, thread: u64) -> Self {
        if pattern != "sequential" {
            return Self::Drawn(Popularity::new(values, pattern, blocks));
        }
        // With more threads than blocks, a thread without a share uses all of them.
        let (begin, end) =
            Some(share(blocks, thread, values.threads())).filter(|(begin, end)| begin < end).unwrap_or((0, blocks));
        Self::Sequential { begin, end, next: begin }
    }
}

struct MappedRead {
    base: u64,
    block: u64,
    blocks: u64,
    /// Number of lines that an operation accesses.
    lines: u64,
    order: Order,
    /// The next line of the operation, the end of its block, and the number of lines left.
    at: u64,
    end: u64,
    left: u64,
    /// Determines whether the operation writes.
    choice: u64,
    mix: Mix,
    rng: Rng,
}

impl MappedRead {
    fn begin(&mut self) {
        self.choice = self.rng.next_u64();
        let block = match &mut self.order {
            Order::Drawn(popularity) => popularity.draw(&mut self.rng, self.blocks),
            Order::Sequential { begin, end, next } => {
                let block = *next;
                *next = if block + 1 == *end { *begin } else { block + 1 };
                block
            }
        };
        self.at = self.base + block * self.block;
        (self.end, self.left) = (self.at + self.block, self.lines);
    }
}

impl Stream for MappedRead {
    fn fill(&mut self, out: &mut [Access]) -> usize {
        let mut rest = &mut *out;
        while !rest.is_empty() {
            if self.left == 0 {
                self.begin();
            }
            let now = usize::try_from(self.left).unwrap_or(usize::MAX).min(rest.len());
            let (now, later) = rest.split_at_mut(now);
            let (mix, choice, first, end) = (self.mix, self.choice, self.at, self.end);
            for (slot, line) in now.iter_mut().zip(0..) {
                let vaddr = first + line * LINE;
                *slot = Access { size_bytes: (end - vaddr).min(LINE) as u16, ..mix.access(choice, vaddr) };
            }
            self.at += now.len() as u64 * LINE;
            self.left -= now.len() as u64;
            rest = later;
        }
        out.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::program::tests::{arrays, files, replay};
    use crate::{AccessKind, Event, EventKind};

    /// Number of reads of each of `blocks` blocks of 4 KiB.
    fn counts(spec: &str, blocks: usize) -> Vec<f64> {
        let (accesses, events) = replay(spec, 5);
        let base = files(&events)[0].1;
        let mut counts = vec![0.0; blocks];
        accesses.iter().for_each(|(_, a)| counts[((a.vaddr - base) / 4096) as usize] += 1.0);
        counts
    }

    /// Chi-square of `counts` against `shares`, in standard deviations from its mean.
    fn deviation(counts: &[f64], shares: &[f64]) -> f64 {
        let total: f64 = counts.iter().sum();
        let chi: f64 = counts.iter().zip(shares).map(|(n, p)| (n - p * total).powi(2) / (p * total)).sum();
        (chi - counts.len() as f64) / f64::sqrt(2.0 * counts.len() as f64)
    }

    fn zipf_shares(blocks: usize, theta: f64) -> Vec<f64> {
        let weights: Vec<f64> = (1..=blocks).map(|rank| (rank as f64).powf(-theta)).collect();
        let sum: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / sum).collect()
    }

    fn advices(events: &[Event]) -> Vec<(u64, u64, u32)> {
        let advice = |event: &Event| match event.kind {
            EventKind::Madvise { addr, len, advice } => Some((addr, len, advice)),
            _ => None,
        };
        events.iter().filter_map(advice).collect()
    }

    #[test]
    fn blocks_are_as_popular_as_the_laws_say() {
        let uniform = counts("mapped-read:size=256K,lines=1,operations=60K", 64);
        assert!(deviation(&uniform, &[1.0 / 64.0; 64]).abs() < 4.0, "{uniform:?}");
        for theta in [0.5, 0.99, 1.2] {
            let settings = format!("size=256K,lines=1,operations=60K,theta={theta}");
            let mut latest = counts(&format!("mapped-read:{settings},pattern=latest"), 64);
            latest.reverse();
            assert!(deviation(&latest, &zipf_shares(64, theta)).abs() < 4.0, "{theta}: {latest:?}");
            let mut zipf = counts(&format!("mapped-read:{settings},pattern=zipf"), 64);
            assert!(zipf.windows(2).any(|pair| pair[0] < pair[1]), "popular blocks are spread");
            zipf.sort_by(|a, b| b.total_cmp(a));
            assert!(deviation(&zipf, &zipf_shares(64, theta)).abs() < 4.0, "{theta}: {zipf:?}");
        }
    }

    #[test]
    fn an_operation_copies_its_block_line_by_line() {
        let (accesses, events) = replay("mapped-read:size=1M,operations=500,write=0.4", 5);
        let base = files(&events)[0].1;
        assert_eq!(accesses.len(), 500 * 64);
        let mut writes = 0;
        for operation in accesses.chunks(64) {
            let first = operation[0].1;
            assert_eq!((first.vaddr - base) % 4096, 0);
            for (line, (_, access)) in (0..).zip(operation) {
                assert_eq!((access.vaddr, access.size_bytes), (first.vaddr + line * 64, 64));
                assert_eq!((access.kind, access.pc), (first.kind, first.pc), "an operation reads or writes");
            }
            writes += u32::from(first.kind == AccessKind::Store);
        }
        assert!((160..240).contains(&writes), "{writes} of 500");
    }

    #[test]
    fn odd_blocks_end_where_they_end() {
        let (accesses, events) = replay("mapped-read:size=1000,block=100,pattern=sequential,operations=25", 5);
        let base = files(&events)[0].1;
        assert_eq!(accesses.len(), 50);
        for (operation, pair) in (0..).zip(accesses.chunks(2)) {
            let at = base + operation % 10 * 100;
            assert_eq!((pair[0].1.vaddr, pair[0].1.size_bytes), (at, 64));
            assert_eq!((pair[1].1.vaddr, pair[1].1.size_bytes), (at + 64, 36));
        }
    }

    #[test]
    fn threads_go_through_parts_of_one_file() {
        let (accesses, events) = replay("mapped-read:size=64K,pattern=sequential,operations=16,threads=3", 5);
        let [(_, base, len)] = files(&events)[..] else { panic!("one file is mapped") };
        let mut seen: Vec<u64> = accesses.iter().map(|(_, a)| a.vaddr - base).collect();
        seen.sort_unstable();
        assert_eq!(len, 65_536);
        // Parts of 5, 5 and 6 blocks; the first thread has 6 operations, so it restarts its part.
        let twice = seen.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert_eq!((seen.len(), twice), (1024, 64));
        let many = replay("mapped-read:size=8K,pattern=sequential,operations=5,threads=5", 5).0;
        assert_eq!(many.len(), 5 * 64);
    }

    #[test]
    fn the_file_is_shared_and_the_kernel_is_told_the_pattern() {
        for (settings, advice) in
            [("", Some(1)), (",pattern=zipf", Some(1)), (",pattern=sequential", Some(2)), (",advice=no", None)]
        {
            let (_, events) = replay(&format!("mapped-read:size=65537,accesses=9{settings}"), 5);
            let files = files(&events);
            assert!(arrays(&events).is_empty() && files.len() == 1);
            let (name, addr, len) = files[0].clone();
            assert_eq!((&*name, addr % (2 << 20), len), ("/data/mapped-read", 0, 17 * 4096));
            assert_eq!(advices(&events), Vec::from_iter(advice.map(|advice| (addr, len, advice))));
        }
    }

    #[test]
    fn large_files_cost_no_memory() {
        for pattern in ["random", "zipf", "latest", "sequential"] {
            let spec = format!("mapped-read:size=4TiB,pattern={pattern},block=1MiB,accesses=20K,threads=2");
            assert_eq!(replay(&spec, 5).0.len(), 20_000);
        }
    }

    #[test]
    fn impossible_parameters_are_refused() {
        let error = |spec: &str| crate::workload::parse(spec, 0).err().expect("it must be refused").to_string();
        assert_eq!(error("mapped-read:size=4095"), "mapped-read: size=4095: must be at least one block of 4KiB");
        assert_eq!(error("mapped-read:lines=65"), "mapped-read: lines=65: must be at most 64, the lines of a block");
        assert_eq!(error("mapped-read:operations=1,accesses=2"), "mapped-read: give operations or accesses, not both");
        assert!(error("mapped-read:operations=4e18").contains("must be small enough that 64 bits"));
        assert!(error("mapped-read:pattern=backwards").contains("must be random or sequential or zipf or latest"));
    }
}
