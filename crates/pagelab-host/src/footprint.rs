//! The cache footprint of a major fault: how much longer a program takes afterwards to read its own lines again.
//!
//! Models: nothing; it measures. A working set is read line by line in random order; each line contains the address of
//! the next (pointer chase). It is read until it is warm, then twice with timing, then a page of a file that is not in
//! the page cache is accessed, and then it is read once more with timing. The additional time of the last reading is
//! due to the fault; the additional time of the second compared to the first is the control. Chases through smaller and
//! larger sets measure the latency of a line from each cache.
//! Source: the indirect cost of system calls, measured in this way by Soares and Stumm (OSDI 2010, section 2), and of
//! context switches by Li, Ding and Shen (ExpCS 2007).
//! Parameters: [`Displacing`]. While a fault sleeps, a loop of a few instructions runs on the CPU (nice -20), so that
//! neither other programs nor an idle state affect the measurement.
//! Deviations: a virtual machine's results include the work of its host at exits, and the additional translation time
//! if the host uses small pages. A working set as large as a physically indexed cache does not stay in it completely
//! even when warm; only additional losses are measured.

use std::{
    hint::black_box,
    io,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use pagelab_trace::rng::Rng;
use serde::{Deserialize, Serialize};

use crate::{
    Cost,
    major::{Cold, on_its_own_thread},
    stamp::Stamps,
    sys::{self, Words},
};

/// Untimed readings before the timed ones.
const WARM_UP: usize = 2;
/// Number of readings for the median latency.
const LATENCY_ROUNDS: usize = 31;
const WORD_BYTES: usize = size_of::<u64>();

/// Which pages to access, and which working sets to measure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Displacing {
    /// Pages to access for each working set, at most the pages of the file.
    pub faults: usize,
    /// Seed for the choice and order of the pages.
    pub seed: u64,
    /// The CPU to run on.
    pub cpu: usize,
    /// The thread's name; Linux keeps 15 bytes.
    pub thread: String,
    /// Bytes of a line of the caches.
    pub line_bytes: usize,
    /// Sizes in bytes of the working sets around faults.
    pub working_sets: Vec<usize>,
    /// Sizes in bytes of the sets whose latency per line is measured.
    pub latencies_of: Vec<usize>,
}

/// The results.
#[derive(Clone, Debug, Serialize)]
pub struct Displaced {
    /// One for each requested working set.
    pub working_sets: Vec<WorkingSet>,
    /// Cycles per line of each requested set.
    pub latencies: Vec<f64>,
    /// Maximum number of the file's pages that were still in the page cache after it was asked to drop them.
    pub resident: usize,
    /// Major faults that the kernel counted for the thread in this time.
    pub major_faults: u64,
    /// Whether the thread had real-time priority.
    pub real_time: bool,
}

/// Readings of a working set around faults.
#[derive(Clone, Debug, Serialize)]
pub struct WorkingSet {
    /// Number of lines that a reading loads.
    pub lines: usize,
    /// Median cycles of a reading of the warm set.
    pub warm_cycles: f64,
    /// Additional cycles of the reading after the fault, compared to the one before.
    pub after_fault: Vec<f64>,
    /// Additional cycles of a reading compared to the one before, with nothing in between.
    pub control: Vec<f64>,
}

/// Accesses pages of a file like [`crate::touch`], each between readings of a working set, on a thread of its own.
///
/// # Errors
/// If the file cannot be read, has too few pages or unexpected contents, if a set has no lines, or if the processor has
/// no suitable clock.
pub fn displace(path: &Path, displacing: &Displacing, going: &(dyn Fn() -> bool + Sync)) -> io::Result<Displaced> {
    on_its_own_thread(&displacing.thread, || {
        let stamps = Stamps::new()?;
        sys::stay_on(displacing.cpu)?;
        let real_time = sys::real_time();
        let before = sys::major_faults();
        let mut displaced =
            Displaced { working_sets: vec![], latencies: vec![], resident: 0, major_faults: 0, real_time };
        for &bytes in &displacing.latencies_of {
            displaced.latencies.push(Chase::new(bytes, displacing.line_bytes, displacing.seed)?.latency(stamps));
        }
        for (at, &bytes) in displacing.working_sets.iter().enumerate() {
            let chase = Chase::new(bytes, displacing.line_bytes, displacing.seed)?;
            let file = Cold::new(path, displacing.faults, displacing.seed.wrapping_add(at as u64))?;
            displaced.resident = displaced.resident.max(file.resident);
            // Without real-time priority, the loop would compete with this thread for the CPU.
            let fills = real_time.then_some(displacing.cpu);
            let set = while_filled(fills, || around_faults(&chase, &file, stamps, going))?;
            displaced.working_sets.push(set);
        }
        displaced.major_faults = sys::major_faults() - before;
        Ok(displaced)
    })
}

/// Reads the working set before and after an access to each page.
fn around_faults(chase: &Chase, file: &Cold, stamps: Stamps, going: &dyn Fn() -> bool) -> io::Result<WorkingSet> {
    let faults = file.pages.len();
    // Written once to avoid faults later; with NaN, since zeroed memory might not be written.
    let (mut warm, mut control, mut after_fault) =
        (vec![f64::NAN; faults], vec![f64::NAN; faults], vec![f64::NAN; faults]);
    for (at, &page) in file.pages.iter().enumerate() {
        if !going() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        for _ in 0..WARM_UP {
            chase.read();
        }
        let (first, second) = (chase.timed(stamps), chase.timed(stamps));
        file.touch(page)?;
        let last = chase.timed(stamps);
        (warm[at], control[at], after_fault[at]) = (second, second - first, last - second);
    }
    let warm_cycles = if faults == 0 { f64::NAN } else { Cost::from_samples(warm).median_cycles };
    Ok(WorkingSet { lines: chase.lines, warm_cycles, after_fault, control })
}

/// Keeps a CPU busy with a loop whenever the calling thread, which has real-time priority, sleeps on it.
fn while_filled<T>(cpu: Option<usize>, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let Some(cpu) = cpu else { return work() };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let fill = || {
            // The thread has inherited real-time priority.
            if sys::ordinary() && sys::stay_on(cpu).is_ok() {
                sys::first_of_the_ordinary();
                // Without PAUSE, which can make a virtual machine exit.
                #[allow(clippy::missing_spin_loop)]
                while !done.load(Ordering::Relaxed) {}
            }
        };
        std::thread::Builder::new().name("pagelab-fill".into()).spawn_scoped(scope, fill)?;
        // Ends the loop however the work ends.
        let _ends = Ends(&done);
        work()
    })
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Lines that each contain the position of the next, in a random cycle through all of them.
struct Chase {
    words: Words,
    lines: usize,
}

impl Chase {
    fn new(bytes: usize, line_bytes: usize, seed: u64) -> io::Result<Self> {
        let lines = bytes.checked_div(line_bytes).unwrap_or(0);
        if lines < 2 || !line_bytes.is_multiple_of(WORD_BYTES) {
            return Err(io::Error::other(format!(
                "a working set of {bytes} bytes has fewer than two lines of {line_bytes} bytes"
            )));
        }
        let stride = line_bytes / WORD_BYTES;
        let mut words = Words::new(lines * stride)?;
        let mut order: Vec<usize> = (0..lines).collect();
        let mut rng = Rng::new(seed, "lines");
        for at in (1..lines).rev() {
            order.swap(at, rng.below(at as u64 + 1) as usize);
        }
        for (at, &line) in order.iter().enumerate() {
            words.words_mut()[line * stride] = (order[(at + 1) % lines] * stride) as u64;
        }
        Ok(Self { words, lines })
    }

    /// Follows the cycle from the first line back to itself.
    #[inline]
    fn read(&self) -> u64 {
        let words = self.words.words();
        black_box((0..self.lines).fold(0, |at: u64, _| words[at as usize]))
    }

    /// Cycles of one reading.
    fn timed(&self, stamps: Stamps) -> f64 {
        let begin = stamps.begin();
        self.read();
        (stamps.end() - begin) as f64 * stamps.cycles_per_tick
    }

    /// Cycles per line of the warm set.
    fn latency(&self, stamps: Stamps) -> f64 {
        for _ in 0..WARM_UP {
            self.read();
        }
        let rounds = (0..LATENCY_ROUNDS).map(|_| self.timed(stamps)).collect();
        Cost::from_samples(rounds).median_cycles / self.lines as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::major::tests::numbered;
    use std::collections::BTreeSet;

    fn displacing(faults: usize, sets: &[usize]) -> Displacing {
        Displacing {
            faults,
            seed: 1,
            cpu: sys::allowed_cpus().unwrap()[0],
            thread: "displace".into(),
            line_bytes: 64,
            working_sets: sets.to_vec(),
            latencies_of: vec![4096, 8192],
        }
    }

    #[test]
    fn a_chase_comes_to_every_line_once_and_back() {
        for (bytes, line_bytes) in [(128, 64), (4096, 64), (40_000, 64), (3 << 20, 128)] {
            let chase = Chase::new(bytes, line_bytes, 3).unwrap();
            assert_eq!(chase.lines, bytes / line_bytes);
            let mut at = 0;
            let mut way = Vec::new();
            for _ in 0..chase.lines {
                way.push(at);
                at = chase.words.words()[at] as usize;
            }
            assert_eq!(at, 0);
            assert_eq!(chase.read(), 0);
            assert!(way.iter().all(|word| word % (line_bytes / WORD_BYTES) == 0));
            assert_eq!(way.iter().collect::<BTreeSet<_>>().len(), chase.lines);
            let steps: BTreeSet<_> = way.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
            assert!(bytes < 4096 || steps.len() > chase.lines / 4, "no stride that a prefetcher could follow");
        }
    }

    #[test]
    fn sets_without_two_lines_are_refused() {
        for (bytes, line_bytes) in [(64, 64), (0, 64), (4096, 0), (4096, 12)] {
            let refusal = Chase::new(bytes, line_bytes, 1).err().unwrap().to_string();
            assert!(refusal.contains("fewer than two lines"), "{refusal}");
        }
    }

    #[test]
    fn a_set_that_is_twice_as_large_has_twice_the_lines_and_each_fault_is_timed() {
        let file = numbered(64);
        let displaced = displace(file.path(), &displacing(64, &[8192, 16_384]), &|| true).unwrap();
        let lines: Vec<_> = displaced.working_sets.iter().map(|set| set.lines).collect();
        assert_eq!(lines, [128, 256]);
        for set in &displaced.working_sets {
            assert!(set.after_fault.len() == 64 && set.control.len() == 64);
            assert!(set.after_fault.iter().chain(&set.control).all(|cycles| cycles.is_finite()), "{set:?}");
            // A load from a cache takes a cycle at least.
            assert!(set.warm_cycles > set.lines as f64 / 2.0, "{set:?}");
        }
        assert!(displaced.latencies.len() == 2 && displaced.latencies.iter().all(|&cycles| cycles > 0.5));
        // A file in memory cannot be dropped and has no major faults.
        assert!(displaced.major_faults + 2 * displaced.resident as u64 >= 128, "{displaced:?}");
    }

    #[test]
    fn what_cannot_be_measured_is_said_and_the_loop_ends() {
        let file = numbered(16);
        let more = displace(file.path(), &displacing(17, &[4096]), &|| true).unwrap_err();
        assert!(more.to_string().contains("16 pages, fewer than the 17"));
        let stopped = displace(file.path(), &displacing(16, &[4096]), &|| false).unwrap_err();
        assert_eq!(stopped.kind(), io::ErrorKind::Interrupted);
        file.as_file().set_len(0).unwrap();
        file.as_file().set_len(16 * sys::PAGE_BYTES as u64).unwrap();
        let other = displace(file.path(), &displacing(16, &[4096]), &|| true).unwrap_err();
        assert!(other.to_string().contains("holds 0, not its own number"));
    }
}
