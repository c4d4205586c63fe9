//! Scheduling of kernel threads: which ones exist, which are awake, and when the others wake up by themselves.
//!
//! Models: threads that sleep until a fault or a timer wakes them, and then run as activities on a CPU. Each has its
//! own CPU: on an unused core if the machine has one left, otherwise an unused hardware thread, otherwise one that a
//! source uses, whose program they interrupt.
//! Source: Linux mm/vmscan.c (`kswapd`), mm/khugepaged.c (`khugepaged`).
//! Stats: `kthread.runs`, `kthread.cycles`.
//! Deviations: a kernel thread stays on its CPU. Two threads on one CPU run one after the other, each to the end of its
//! work or to its first wait.

use super::config::ThreadsConfig;
use super::{Delay, KernelThread};
use crate::effects::Effects;
use crate::layer::Layer;
use crate::locks::TaskId;
use crate::needs::Need;
use crate::os::Os;
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::ids::LayerId;
use pagelab_base::step::Next;

#[derive(Clone, Debug)]
struct ThreadSlot {
    thread: KernelThread,
    awake: bool,
    /// Time when it wakes up by itself.
    alarm: Option<Cycles>,
    /// When it wakes up by itself, for threads of engines.
    delay: Option<Delay>,
    /// Start of its last work.
    began: Cycles,
}

/// See the module's text. Threads are identified by number.
#[derive(Clone, Debug, Default)]
pub struct KernelThreads {
    slots: Vec<ThreadSlot>,
    /// Threads that have been woken and not yet dispatched to their CPUs.
    woken: Vec<usize>,
    /// Cycles of the threads' activities.
    pub cycles: Cycles,
    /// Number of times that a thread has woken up and run.
    pub runs: u64,
}

impl KernelThreads {
    /// Adds a thread, asleep, and returns its number.
    pub fn add(&mut self, thread: KernelThread) -> usize {
        let alarm = thread.sleep_cycles();
        self.slots.push(ThreadSlot { thread, awake: false, alarm, delay: None, began: Cycles::ZERO });
        self.slots.len() - 1
    }

    /// Adds the threads of a layer that work for its fault engine.
    pub fn add_engine_threads(&mut self, id: LayerId, layer: &Layer) {
        for thread in KernelThread::new_for_engine(id, layer) {
            let delay = thread.delay(layer);
            let alarm = delay.map(|_| Cycles::ZERO);
            self.slots.push(ThreadSlot { thread, awake: false, alarm, delay, began: Cycles::ZERO });
        }
    }

    /// Adds the threads that the configuration starts in a layer, which `hosts` guests or runs programs.
    ///
    /// # Errors
    /// One of them cannot run there: see [`Thread::check`](super::Thread::check).
    pub fn add_all(
        &mut self,
        id: LayerId,
        layer: &Layer,
        hosts: bool,
        config: &ThreadsConfig,
    ) -> Result<(), EngineError> {
        KernelThread::check(layer, hosts, config)?;
        KernelThread::new_in_layer(id, layer, hosts, config).into_iter().for_each(|thread| _ = self.add(thread));
        Ok(())
    }

    /// See [`KernelThread::counters`].
    pub fn counters(&self) -> Vec<(&'static str, u64, &'static str)> {
        KernelThread::counters(self.iter())
    }

    /// Number of threads, over all layers.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is no thread.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The threads in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &KernelThread> + Clone {
        self.slots.iter().map(|slot| &slot.thread)
    }

    /// The thread of this number.
    pub fn get(&self, number: usize) -> &KernelThread {
        &self.slots[number].thread
    }

    /// Wakes the sleeping threads of a layer that this need wakes.
    pub fn wake(&mut self, layer: LayerId, need: Need) {
        for (number, slot) in self.slots.iter_mut().enumerate() {
            if !slot.awake && slot.thread.layer() == layer && slot.thread.wakes_for(need) {
                slot.awake = true;
                self.woken.push(number);
            }
        }
    }

    /// Takes a thread that has been woken and not yet dispatched.
    #[inline]
    pub fn take_woken(&mut self) -> Option<usize> {
        self.woken.pop()
    }

    /// The times when threads wake up by themselves, with their numbers.
    pub fn alarms(&self) -> impl Iterator<Item = (Cycles, usize)> + '_ {
        self.slots.iter().enumerate().filter_map(|(number, slot)| Some((slot.alarm?, number)))
    }

    /// Wakes a thread whose time has come.
    pub fn wake_by_alarm(&mut self, number: usize) {
        self.slots[number].awake = true;
    }

    /// Whether the thread is awake and has not started.
    pub fn is_awake(&self, number: usize) -> bool {
        self.slots[number].awake
    }

    /// Starts a thread that is awake, at `now`. Returns the time when it would have woken up by itself.
    pub fn begin(&mut self, number: usize, now: Cycles) -> Option<Cycles> {
        let slot = &mut self.slots[number];
        slot.thread.begin();
        slot.awake = false;
        slot.began = now;
        self.runs += 1;
        slot.alarm.take()
    }

    /// Records that the work of a thread has ended at `now`. Returns the time when it wakes up by itself, if it does.
    pub fn end(&mut self, number: usize, now: Cycles) -> Option<Cycles> {
        let slot = &mut self.slots[number];
        slot.alarm = Some(match slot.delay {
            Some(Delay::FromEnd(cycles)) => now.saturating_add(cycles),
            Some(Delay::FromBegin(cycles)) => slot.began.saturating_add(cycles).max(now),
            None => now.saturating_add(slot.thread.sleep_cycles()?),
        });
        slot.alarm
    }

    /// Counts cycles of a thread's work.
    pub fn charge(&mut self, number: usize, os: &mut Os, cycles: Cycles) {
        self.cycles += cycles;
        self.slots[number].thread.charge(os, cycles);
    }

    /// Carries out the planned step of a thread.
    pub fn commit(&mut self, number: usize, os: &mut Os, effects: &mut Effects, task: TaskId) -> Next {
        self.slots[number].thread.commit(os, effects, task)
    }

    /// Number of frames that the threads of a layer have allocated and not mapped.
    pub fn held_frames(&self, layer: LayerId) -> u64 {
        self.iter().filter(|thread| thread.layer() == layer).map(KernelThread::held_frames).sum()
    }
}
