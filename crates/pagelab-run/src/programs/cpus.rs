//! The CPUs that are simulated: those of sources, and further ones for kernel threads.

use pagelab_base::ids::{CoreId, CpuId, MachineCore};

/// The simulated CPUs: those that sources use, and further ones for kernel threads.
pub struct Cpus {
    /// Their numbers on the machine, ascending.
    pub numbers: Vec<usize>,
    threads_per_core: usize,
    /// By kernel thread: index of its CPU among these.
    pub of_threads: Vec<CpuId>,
    /// By CPU: whether no source uses it.
    pub is_kernel_only: Vec<bool>,
}

impl Cpus {
    /// `used` are the CPUs of sources. Each kernel thread gets a CPU on an unused core; if there is none, an unused
    /// CPU; otherwise one of the sources' CPUs, in turn.
    pub fn new(mut used: Vec<usize>, kernel_threads: usize, threads_per_core: usize, total: usize) -> Self {
        used.sort_unstable();
        used.dedup();
        let core = |cpu: &usize| cpu / threads_per_core;
        let mut taken = used.clone();
        let mut own = used.iter().copied().cycle();
        let mut of_threads = Vec::new();
        for _ in 0..kernel_threads {
            let free_core = (0..total).find(|cpu| !taken.iter().any(|taken| core(taken) == core(cpu)));
            let free = free_core.or_else(|| (0..total).find(|cpu| !taken.contains(cpu)));
            taken.extend(free);
            of_threads.push(free.or_else(|| own.next()).unwrap_or(0));
        }
        taken.sort_unstable();
        let place = |cpu| taken.binary_search(cpu).expect("it has been taken").into();
        let of_threads = of_threads.iter().map(place).collect();
        let is_kernel_only = taken.iter().map(|cpu| !used.contains(cpu)).collect();
        Self { numbers: taken, threads_per_core, of_threads, is_kernel_only }
    }

    /// By CPU: index of its core among the cores in use. And the machine's number of each of these cores.
    pub fn cores(&self) -> (Vec<CoreId>, Vec<MachineCore>) {
        let of_cpus = self.machine_cores();
        let mut cores = of_cpus.clone();
        cores.dedup();
        (of_cpus.iter().map(|number| cores.partition_point(|core| core < number).into()).collect(), cores)
    }

    /// By CPU: the machine's number of its core.
    pub fn machine_cores(&self) -> Vec<MachineCore> {
        self.numbers.iter().map(|cpu| (cpu / self.threads_per_core).into()).collect()
    }

    /// Indices of CPUs among these.
    ///
    /// # Panics
    /// If one is not among them.
    pub fn places(&self, cpus: &[usize]) -> Vec<CpuId> {
        let place = |cpu| self.numbers.binary_search(cpu).expect("the list was made of these");
        cpus.iter().map(|cpu| place(cpu).into()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_threads_get_cores_then_hardware_threads_then_the_programs_cpus() {
        let place = |used: &[usize], threads, total| {
            let cpus = Cpus::new(used.to_vec(), 3, threads, total);
            let numbers: Vec<usize> = cpus.of_threads.iter().map(|&place| cpus.numbers[place]).collect();
            (
                numbers,
                cpus.is_kernel_only.iter().filter(|&&is_kernel_only| is_kernel_only).count(),
                cpus.cores().1.len(),
            )
        };
        assert_eq!(place(&[0], 1, 8), (vec![1, 2, 3], 3, 4));
        // Two cores with two hardware threads each: CPU 2 is on the free one.
        assert_eq!(place(&[0], 2, 4), (vec![2, 1, 3], 3, 2));
        assert_eq!(place(&[0, 2], 2, 4), (vec![1, 3, 0], 2, 2));
        assert_eq!(place(&[1, 0], 1, 2), (vec![0, 1, 0], 0, 2));
    }
}
