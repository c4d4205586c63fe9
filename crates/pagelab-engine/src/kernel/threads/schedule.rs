//! Kernel threads: work of a layer's kernel that no program waits for.
//!
//! Models: threads that sleep until a fault wakes them or their time has come, and then run as activities on a CPU:
//! one that no source uses if the machine has one left, else the first that a source uses, whose program they interrupt.
//! Source: Linux mm/vmscan.c (`kswapd`), mm/khugepaged.c (`khugepaged`).
//! Parameters: `kernel.kswapd`, `kernel.khugepaged`.
//! Deviations: all kernel threads share one CPU and run there one after the other, each to the end of its work.

use crate::base::addr::Cycles;

/// What a thread does when it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    Reclaim,
    Collapse,
}

/// One thread of a layer's kernel.
#[derive(Clone, Copy, Debug)]
struct Thread {
    layer: u16,
    duty: Duty,
    awake: bool,
    /// When it wakes up by itself, and how long it sleeps then.
    alarm: Option<(Cycles, Cycles)>,
}

/// See the module's text.
#[derive(Debug, Default)]
pub struct KernelThreads {
    threads: Vec<Thread>,
    /// One has been woken since the last look.
    woken: bool,
    /// Cycles of their activities, and how often one ran.
    pub cycles: Cycles,
    pub runs: u64,
}

impl KernelThreads {
    pub fn add_kswapd(&mut self, layer: u16) {
        self.threads.push(Thread { layer, duty: Duty::Reclaim, awake: false, alarm: None });
    }

    /// A khugepaged that sleeps for so many cycles between its scans.
    pub fn add_khugepaged(&mut self, layer: u16, sleep: Cycles) {
        self.threads.push(Thread { layer, duty: Duty::Collapse, awake: false, alarm: Some((sleep, sleep)) });
    }

    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Wakes the kswapd of a layer, if it has one and it sleeps.
    pub fn wake_kswapd(&mut self, layer: u16) {
        let is_it = |thread: &&mut Thread| thread.layer == layer && thread.duty == Duty::Reclaim && !thread.awake;
        if let Some(thread) = self.threads.iter_mut().find(is_it) {
            thread.awake = true;
            self.woken = true;
        }
    }

    /// Whether a thread has been woken since the last call.
    #[inline]
    pub fn take_woken(&mut self) -> bool {
        std::mem::take(&mut self.woken)
    }

    /// When the next one wakes up by itself.
    pub fn next_alarm(&self) -> Option<Cycles> {
        self.threads.iter().filter_map(|thread| thread.alarm).map(|(at, _)| at).min()
    }

    /// What is to be run at `now`, if a thread is awake.
    pub fn next(&mut self, now: Cycles) -> Option<(Duty, u16)> {
        let due = |thread: &Thread| thread.awake || thread.alarm.is_some_and(|(at, _)| at <= now);
        let thread = self.threads.iter_mut().find(|thread| due(thread))?;
        thread.awake = false;
        if let Some((at, sleep)) = &mut thread.alarm {
            *at = now + *sleep;
        }
        self.runs += 1;
        Some((thread.duty, thread.layer))
    }
}
