//! Kernel threads: work of a layer's kernel that no program waits for.
//!
//! Models: threads that sleep until a fault wakes them or their time has come, and then run as activities on a CPU, each on
//! its own: on a core that nobody has if the machine has one left, else a hardware thread that nobody has, else one that a source
//! uses, whose program they interrupt.
//! Source: Linux mm/vmscan.c (`kswapd`), mm/khugepaged.c (`khugepaged`).
//! Parameters: `kernel.kswapd`, `kernel.khugepaged`.
//! Deviations: a kernel thread stays on its CPU. Two that share one run one after the other, each to the end of its work or to
//! its first wait.

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

/// What a thread does that begins.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    pub duty: Duty,
    pub layer: u16,
    /// When it would have woken up by itself, and when it will.
    pub alarm: Option<(Cycles, Cycles)>,
}

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub struct KernelThreads {
    threads: Vec<Thread>,
    /// Those that have been woken, until their CPUs know.
    woken: Vec<usize>,
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

    pub fn len(&self) -> usize {
        self.threads.len()
    }

    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Wakes the kswapd of a layer, if it has one and it sleeps.
    pub fn wake_kswapd(&mut self, layer: u16) {
        let is_it = |thread: &Thread| thread.layer == layer && thread.duty == Duty::Reclaim && !thread.awake;
        if let Some(thread) = self.threads.iter().position(is_it) {
            self.threads[thread].awake = true;
            self.woken.push(thread);
        }
    }

    /// A thread that has been woken and not been taken.
    #[inline]
    pub fn take_woken(&mut self) -> Option<usize> {
        self.woken.pop()
    }

    /// When each wakes up by itself, if it does, with its number.
    pub fn alarms(&self) -> impl Iterator<Item = (Cycles, usize)> + '_ {
        self.threads.iter().enumerate().filter_map(|(number, thread)| Some((thread.alarm?.0, number)))
    }

    /// The time of a thread has come.
    pub fn ring(&mut self, thread: usize) {
        self.threads[thread].awake = true;
    }

    pub fn is_awake(&self, thread: usize) -> bool {
        self.threads[thread].awake
    }

    /// A thread that is awake begins at `now`.
    pub fn begin(&mut self, thread: usize, now: Cycles) -> Begun {
        let of = &mut self.threads[thread];
        of.awake = false;
        self.runs += 1;
        let alarm = of.alarm.as_mut().map(|(at, sleep)| (std::mem::replace(at, now + *sleep), now + *sleep));
        Begun { duty: of.duty, layer: of.layer, alarm }
    }
}
