//! When kernel threads run.
//!
//! Each has a CPU ([`Simulation::thread_cpus`]). One that is woken begins there when the CPU has nothing on its stack:
//! at once if it idles or waits for a device, else after the access that its program is at.

use crate::machine::activity::Activity;
use crate::machine::agenda::AgendaEntry;
use crate::machine::simulation::Simulation;
use crate::machine::task::TaskSlot;
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::ids::CpuId;
use pagelab_hardware::core_model::clock::Class;

impl Simulation {
    /// Lets the CPUs of kernel threads know that these have been woken by what `by` did.
    #[inline]
    pub(crate) fn wake_kthreads(&mut self, by: CpuId) {
        if !self.os.needs.is_empty() {
            for (layer, need) in self.os.needs.drain(..) {
                self.kthreads.wake(layer, need);
            }
        }
        while let Some(thread) = self.kthreads.take_woken() {
            self.rouse_thread(thread, self.cpus[by].clock.now());
            // Whoever is at work ends its turn, its own program too.
            self.woke = true;
        }
    }

    /// The time of a kernel thread has come.
    pub(crate) fn ring(&mut self, thread: usize, at: Cycles) {
        self.kthreads.ring(thread);
        self.rouse_thread(thread, at);
    }

    fn rouse_thread(&mut self, thread: usize, time: Cycles) {
        let cpu = self.thread_cpus[thread];
        if self.stir(cpu, Class::Idle, time) {
            self.discard_idle(cpu);
            self.leave_idle(cpu);
        }
    }

    /// A kernel thread of a CPU that is awake and has not begun.
    pub(crate) fn awake_thread(&self, cpu: CpuId) -> Option<TaskSlot> {
        let of = &self.cpus[cpu];
        let begins = |place: usize| {
            of.task_at(TaskSlot::Kernel(place)).stack.is_empty() && self.kthreads.is_awake(of.threads[place].thread)
        };
        (0..of.threads.len()).find(|&place| begins(place)).map(TaskSlot::Kernel)
    }

    /// With nothing on its stack, a CPU goes back from a kernel thread or over to one; false if there is neither.
    #[inline]
    pub(crate) fn run_thread(&mut self, cpu: CpuId) -> Result<bool, EngineError> {
        let of = &self.cpus[cpu];
        if of.threads.is_empty() {
            return Ok(false);
        }
        let back = matches!(of.seat, TaskSlot::Kernel(_)).then_some(TaskSlot::Queue(of.lane));
        let next = self.awake_thread(cpu).or(back);
        next.map_or(Ok(()), |seat| self.go_over(cpu, seat))?;
        Ok(next.is_some())
    }

    /// Puts the work of a kernel thread on its stack, if it is awake.
    pub(crate) fn begin_thread(&mut self, cpu: CpuId, place: usize) {
        let of = &mut self.cpus[cpu];
        let thread = of.threads[place].thread;
        if !of.task.stack.is_empty() {
            return;
        }
        let (before, next) = self.kthreads.begin(thread, of.clock.now());
        before.into_iter().for_each(|at| self.agenda.strike(at, AgendaEntry::Alarm { thread }));
        if let Some(next) = next {
            self.agenda.enter(next, AgendaEntry::Alarm { thread });
            self.woke = true;
        }
        of.begin(Activity::Kernel { thread, layer: self.kthreads.get(thread).layer() });
    }

    /// Begins a scan for what ended processes left, if one is due.
    pub(crate) fn begin_exit_scan(&mut self, cpu: CpuId) -> bool {
        let scan = if self.os.scan_due { self.os.take_exit_scan() } else { None };
        let due = scan.is_some();
        scan.into_iter().for_each(|scan| self.cpus[cpu].begin(Activity::ExitScan(scan)));
        due
    }
}
