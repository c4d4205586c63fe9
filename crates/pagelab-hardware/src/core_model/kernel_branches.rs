//! Conditional branches of kernel code, which share the core's predictor with those of programs.
//!
//! Models: a kernel path has one branch per `interval` instructions, at an address of its own. A step executes those
//! that its instructions reach; more of them are loops over the path. They change the predictor's tables and its
//! history, as the program's branches do, so that the program's entries are evicted and its histories are different
//! after a page fault.
//! Source: Lee, Jin et al., ISCA 2020 (pollution of branch predictors by page faults). The numbers are estimates.
//! Parameters: `kernel.code.branch_instructions`, `kernel.code.variable_branches_percent`.
//! Stats: `branches.kernel`, `branches.kernel.mispredicted`.
//! Deviations: whether a branch is variable, and its direction if not, follows from a hash of its address. The outcomes
//! of variable ones are drawn, taken and not taken with the same probability, and do not depend on each other.

use pagelab_trace::rng::{mix, scale};

/// Where the first kernel's code is: the address of x86-64 Linux's text. Later layers' codes follow.
const TEXT: u64 = 0xffff_ffff_8100_0000;

/// The branches of all paths of kernels.
#[derive(Clone, Copy, Debug)]
pub struct KernelBranches {
    /// Instructions per branch; at least 1.
    pub interval: u64,
    /// Bytes of an instruction.
    pub instruction_bytes: u64,
    /// Bytes of code of a path: at least those of `interval` instructions.
    pub path_bytes: u64,
    /// Percentage of the branches that do not always go the same way.
    pub variable_percent: u64,
    /// The seed of the run.
    pub seed: u64,
}

/// The branches of a step.
#[derive(Clone, Copy, Debug)]
pub struct BranchRun {
    all: KernelBranches,
    /// Where the code of its path begins.
    base: u64,
    /// Number of branches.
    pub count: u64,
}

impl KernelBranches {
    /// The branches of a step with this many instructions of a path; paths are numbered over all layers.
    pub fn run(&self, path: usize, instructions: u64) -> BranchRun {
        BranchRun { all: *self, base: TEXT + path as u64 * self.path_bytes, count: instructions / self.interval }
    }

    /// Whether a branch is taken; `drawn` selects the outcome of a variable one.
    fn is_taken(&self, address: u64, drawn: u64) -> bool {
        let random = mix(mix(self.seed) ^ address);
        let is_variable = scale(random, 100) < self.variable_percent;
        let chosen = if is_variable { mix(random ^ mix(drawn)) } else { random };
        chosen & 1 != 0
    }
}

impl BranchRun {
    /// Address and outcome of a branch of the step; `executed` is the number of kernel branches before it.
    pub fn branch(&self, number: u64, executed: u64) -> (u64, bool) {
        let bytes = self.all.interval * self.all.instruction_bytes;
        let places = (self.all.path_bytes / bytes).max(1);
        let address = self.base + (number % places + 1) * bytes - self.all.instruction_bytes;
        (address, self.all.is_taken(address, executed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: KernelBranches =
        KernelBranches { interval: 5, instruction_bytes: 4, path_bytes: 4096, variable_percent: 10, seed: 1 };

    #[test]
    fn branches_are_at_the_ends_of_their_intervals_and_repeat_beyond_the_path() {
        let run = ALL.run(2, 1999);
        assert_eq!(run.count, 399);
        let address = |number| run.branch(number, 0).0 - TEXT;
        // 204 intervals of 20 bytes are in a path.
        assert_eq!([0, 1, 203, 204].map(address), [8192 + 16, 8192 + 36, 8192 + 4076, 8192 + 16]);
    }

    #[test]
    fn the_stated_part_of_the_branches_is_variable() {
        let variable = |all: KernelBranches| {
            let differs =
                |address: &u64| (1..40).any(|drawn| all.is_taken(*address, drawn) != all.is_taken(*address, 0));
            (0..10_000).map(|number| TEXT + 20 * number).filter(differs).count()
        };
        assert!((900..1100).contains(&variable(ALL)), "{}", variable(ALL));
        assert_eq!(variable(KernelBranches { variable_percent: 0, ..ALL }), 0);
        assert_eq!(variable(KernelBranches { variable_percent: 100, ..ALL }), 10_000);
        // Of those that always go the same way, as many are taken as not.
        let fixed = KernelBranches { variable_percent: 0, ..ALL };
        let taken = (0..10_000).filter(|number| fixed.is_taken(TEXT + 20 * number, 0)).count();
        assert!((4800..5200).contains(&taken), "{taken}");
    }
}
