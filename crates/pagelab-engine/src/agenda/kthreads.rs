//! When kernel threads run.
//!
//! They have a CPU ([`Simulation::kthread_cpu`]). One that is woken begins there when the CPU has nothing on its stack: at
//! once if it idles, else after the access that its program is at. A CPU of their own jumps to the next alarm.

use crate::base::addr::Cycles;
use crate::kernel::threads::khugepaged::Khugepaged;
use crate::kernel::threads::kswapd::Kswapd;
use crate::kernel::threads::schedule::Duty;
use crate::machine::activity::Activity;
use crate::machine::clock::Class;
use crate::machine::cpu::CpuState;
use crate::machine::simulation::Simulation;

impl Simulation {
    /// Lets the CPU of the kernel threads know that one has been woken by what `by` did.
    #[inline]
    pub(crate) fn wake_kthreads(&mut self, by: usize) {
        if self.os.kthreads.take_woken() {
            let now = self.cpus[by].clock.now();
            if let Some(cpu) = self.kthread_cpu {
                self.rouse_for_kthread(cpu, now);
                // Whoever is at work ends its turn, its own program too.
                self.woke = true;
            }
        }
    }

    /// Lets a CPU go on at `time` at the earliest, if it idles.
    pub(crate) fn rouse_for_kthread(&mut self, cpu: usize, time: Cycles) {
        if self.cpus[cpu].resume(Class::Idle, time) {
            self.discard_idle(cpu);
            self.leave_idle(cpu);
        }
    }

    /// Puts the work of a thread that is awake on the stack of a CPU, if it is theirs.
    #[inline]
    pub(crate) fn begin_kthread(&mut self, cpu: usize) -> bool {
        if self.kthread_cpu != Some(cpu) {
            return false;
        }
        let now = self.cpus[cpu].clock.now();
        let Some((duty, layer)) = self.os.kthreads.next(now) else { return false };
        let activity = match duty {
            Duty::Reclaim => Activity::Kswapd(Kswapd::new(layer)),
            Duty::Collapse => Activity::Khugepaged(Khugepaged::new(layer)),
        };
        let of = &mut self.cpus[cpu];
        of.filter.forget_data();
        of.begin(activity);
        true
    }

    /// When the CPU of the kernel threads goes on by itself, if it idles.
    pub(crate) fn kthread_alarm(&self, cpu: usize) -> Option<Cycles> {
        let idles = self.kthread_cpu == Some(cpu) && self.cpus[cpu].state == CpuState::Waiting;
        self.os.kthreads.next_alarm().filter(|_| idles)
    }

    /// Begins a scan for what ended processes left, if one is due.
    pub(crate) fn begin_exit_scan(&mut self, cpu: usize) -> bool {
        let scan = if self.os.scan_due { self.os.take_exit_scan() } else { None };
        let due = scan.is_some();
        scan.into_iter().for_each(|scan| self.cpus[cpu].begin(Activity::ExitScan(scan)));
        due
    }
}

/// The CPU for kernel threads: on a core that no source uses, else one that none uses, else the first that one does.
pub(crate) fn choose_cpu(used: &[usize], cores: &[usize], threads: usize, total: usize) -> usize {
    let free_core = (0..total).find(|cpu| !cores.contains(&(cpu / threads)));
    let free = free_core.or_else(|| (0..total).find(|cpu| !used.contains(cpu)));
    free.or(used.first().copied()).unwrap_or(0)
}
