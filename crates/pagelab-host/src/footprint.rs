//! What a major fault pushes out of the caches: what a program takes longer to read its own lines again.
//!
//! Models: nothing; it measures. A working set is read line by line in random order, each address being the content of
//! the line before (a pointer chase). It is read until it is warm, then twice with a clock, then a page of a file is
//! touched that the page cache does not hold, and then it is read once more with a clock. What the last reading takes
//! longer is the fault's; what the second one takes longer than the first is the control's. Chases through smaller and
//! larger sets tell how long one line takes from each cache.
//! Source: the indirect cost of system calls, measured so by Soares and Stumm (OSDI 2010, section 2), and of context
//! switches by Li, Ding and Shen (ExpCS 2007).
//! Parameters: [`Displacing`]. While a fault sleeps, a loop of a few instructions has the CPU (nice -20), so that
//! neither other programs nor an idle state are measured.
//! Deviations: what the host of a virtual machine does at exits is included, and so is what translations take longer
//! where its pages are small. A working set as large as a cache that goes by physical addresses does not stay in it
//! while it is warm; only what it loses beyond that is seen.

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

/// Readings without a clock before those with one.
const WARM_UP: usize = 2;
/// Readings that a latency is the median of.
const LATENCY_ROUNDS: usize = 31;
const WORD_BYTES: usize = size_of::<u64>();

/// What is to be touched, and what is to be pushed out.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Displacing {
    /// Pages to touch for each working set, at most those of the file.
    pub faults: usize,
    /// Seed of which pages are touched, and in which order.
    pub seed: u64,
    /// The CPU to stay on.
    pub cpu: usize,
    /// What the thread is called; Linux keeps 15 bytes.
    pub thread: String,
    /// Bytes of a line of the caches.
    pub line_bytes: usize,
    /// Bytes of the working sets that faults come into.
    pub working_sets: Vec<usize>,
    /// Bytes of the sets whose latency per line is asked for.
    pub latencies_of: Vec<usize>,
}

/// What happened.
#[derive(Clone, Debug, Serialize)]
pub struct Displaced {
    /// One for each that was asked for.
    pub working_sets: Vec<WorkingSet>,
    /// Cycles per line of each of the sets asked for.
    pub latencies: Vec<f64>,
    /// The most pages of the file that the page cache still held when it was asked to hold none.
    pub resident: usize,
    /// Major faults that the kernel counted for the thread meanwhile.
    pub major_faults: u64,
    /// Whether the thread had real-time priority.
    pub real_time: bool,
}

/// One reading after each fault.
#[derive(Clone, Debug, Serialize)]
pub struct WorkingSet {
    /// Lines that a reading loads.
    pub lines: usize,
    /// Median cycles of a reading while it is warm.
    pub warm_cycles: f64,
    /// Cycles that a reading after the fault takes longer than the one before it.
    pub after_fault: Vec<f64>,
    /// Cycles that a reading takes longer than the one before it, with nothing between.
    pub control: Vec<f64>,
}

/// Touches pages of a file as [`crate::touch`] does, each between readings of a working set, on a thread of its own.
///
/// # Errors
/// If the file cannot be read, has too few pages or other contents than were written, if a set has no lines, or if the
/// processor has no clock for this.
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
            // Without real-time priority, the loop would take the CPU from this thread.
            let fills = real_time.then_some(displacing.cpu);
            let set = while_filled(fills, || around_faults(&chase, &file, stamps, going))?;
            displaced.working_sets.push(set);
        }
        displaced.major_faults = sys::major_faults() - before;
        Ok(displaced)
    })
}

/// Reads the working set around a touch of each page.
fn around_faults(chase: &Chase, file: &Cold, stamps: Stamps, going: &dyn Fn() -> bool) -> io::Result<WorkingSet> {
    let faults = file.pages.len();
    // Written once, so that they do not fault between; NaN, which zeroed memory is not.
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

/// Has a loop keep a CPU busy whenever the calling thread, which is real-time, sleeps on it.
fn while_filled<T>(cpu: Option<usize>, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let Some(cpu) = cpu else { return work() };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let fill = || {
            // Threads inherit real-time priority.
            if sys::ordinary() && sys::stay_on(cpu).is_ok() {
                sys::first_of_the_ordinary();
                // Without PAUSE, at which virtual machines may exit.
                #[allow(clippy::missing_spin_loop)]
                while !done.load(Ordering::Relaxed) {}
            }
        };
        std::thread::Builder::new().name("pagelab-fill".into()).spawn_scoped(scope, fill)?;
        // However the work ends, the loop does.
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

/// Lines that each hold where the next one begins, in a random circle through all of them.
struct Chase {
    words: Words,
    lines: usize,
}

impl Chase {
    fn new(bytes: usize, line_bytes: usize, seed: u64) -> io::Result<Self> {
        let lines = bytes.checked_div(line_bytes).unwrap_or(0);
        if lines < 2 || !line_bytes.is_multiple_of(WORD_BYTES) {
            return Err(io::Error::other(format!(
                "{bytes} bytes have no two lines of {line_bytes} bytes to go between"
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

    /// From the first line to itself, over all others.
    #[inline]
    fn read(&self) -> u64 {
        let words = self.words.words();
        black_box((0..self.lines).fold(0, |at: u64, _| words[at as usize]))
    }

    /// Cycles that it takes.
    fn timed(&self, stamps: Stamps) -> f64 {
        let begin = stamps.begin();
        self.read();
        (stamps.end() - begin) as f64 * stamps.cycles_per_tick
    }

    /// Cycles per line once it is warm.
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
            assert!(refusal.contains("no two lines"), "{refusal}");
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
