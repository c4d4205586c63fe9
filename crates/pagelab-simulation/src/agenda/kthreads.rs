//! When and where kernel threads run.
//!
//! Each thread has a CPU (`Kernels::thread_cpus`). A thread that is woken begins there as soon as nothing is on the
//! CPU's stack: at once if the CPU is idle or waits for a device, otherwise after the current access of its program.

use crate::machine::activity::Activity;
use crate::machine::agenda::AgendaEntry;
use crate::machine::cpu::Cpu;
use crate::machine::kernels::Kernels;
use crate::machine::scheduler::Scheduler;
use crate::machine::simulation::Simulation;
use crate::machine::task::TaskSlot;
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::ids::CpuId;
use pagelab_hardware::core_model::clock::Class;
use pagelab_kernel::effects::Effects;

impl Scheduler {
    /// Puts the next step of a kernel thread on the CPU's stack, if the thread is awake.
    pub(crate) fn begin_thread(&mut self, kernels: &mut Kernels, cpu: CpuId, place: usize) {
        let this_cpu = &mut self.cpus[cpu];
        let thread = this_cpu.threads[place].thread;
        if !this_cpu.task.stack.is_empty() {
            return;
        }
        let alarm = kernels.threads.begin(thread, this_cpu.clock.now());
        alarm.into_iter().for_each(|at| self.agenda.remove(at, AgendaEntry::Alarm { thread }));
        self.cpus[cpu].begin(Activity::Kernel { thread, layer: kernels.threads.get(thread).layer() });
    }
}

impl Cpu {
    /// Begins a scan of page tables for leftovers of ended processes, if one is due.
    pub(crate) fn begin_exit_scan(&mut self, kernels: &mut Kernels) -> bool {
        let scan = if kernels.exit_scan_due { kernels.os.take_exit_scan() } else { None };
        kernels.exit_scan_due &= scan.is_some();
        let due = scan.is_some();
        scan.into_iter().for_each(|scan| self.begin(Activity::ExitScan(scan)));
        due
    }
}

impl Simulation {
    /// Notifies the CPUs of kernel threads that were woken by an action of the CPU `by`.
    #[inline]
    pub(crate) fn wake_kthreads(&mut self, by: CpuId, effects: &mut Effects) {
        self.kernels.wake_needed_threads(effects);
        while let Some(thread) = self.kernels.threads.take_woken() {
            self.wake_thread_at(thread, self.scheduler.cpus[by].clock.now());
            // The CPU that woke them ends its turn.
            self.scheduler.woke = true;
        }
    }

    /// Handles the alarm of a kernel thread.
    pub(crate) fn handle_alarm(&mut self, thread: usize, at: Cycles) {
        self.kernels.threads.wake_by_alarm(thread);
        self.wake_thread_at(thread, at);
    }

    fn wake_thread_at(&mut self, thread: usize, time: Cycles) {
        let cpu = self.kernels.thread_cpus[thread];
        if self.scheduler.make_ready(cpu, Class::Idle, time, &self.kernels.os.locks) {
            self.scheduler.cpus[cpu].charge_unowned(&mut self.programs.unowned);
            self.scheduler.cpus[cpu].exit_idle(&mut self.hw, &mut self.kernels);
        }
    }

    /// With nothing on the stack, switches a CPU to a kernel thread that is awake, or from one back to its queue. False
    /// if there is neither.
    #[inline]
    pub(crate) fn run_thread(&mut self, cpu: CpuId) -> Result<bool, EngineError> {
        let this_cpu = &self.scheduler.cpus[cpu];
        if this_cpu.threads.is_empty() {
            return Ok(false);
        }
        let back = matches!(this_cpu.slot, TaskSlot::Kernel(_)).then_some(TaskSlot::Queue(this_cpu.lane));
        let next = this_cpu.awake_thread(&self.kernels.threads).or(back);
        next.map_or(Ok(()), |slot| self.switch_task(cpu, slot))?;
        Ok(next.is_some())
    }
}
