//! Statistics by source, if there is more than one.

use super::collector::Collector;
use super::{ABORTED, classes};
use crate::machine::simulation::Simulation;
use pagelab_base::measure::{Measure, StatKind};
use pagelab_kernel::os::Os;
use pagelab_run::observe::statistics::nearest_rank;
use pagelab_run::programs::account::Account;
use pagelab_run::programs::role::Role;

impl Collector {
    /// The accounts of the sources, and of kernel threads.
    pub(super) fn sources(&mut self, simulation: &Simulation) {
        let load = &simulation.programs.load;
        let os = &simulation.kernels.os;
        let mains = 0..load.mains;
        if !mains.is_empty() && simulation.programs.has_accounts() {
            self.cycles(
                "main.elapsed_cycles",
                load.main_end,
                "Cycles from the start to the end of the last main source",
            );
            let each: Vec<Account> =
                mains.map(|input| simulation.programs.account(input, &simulation.hw.walks)).collect();
            self.account("main", "the main sources", &sum(each.iter()), simulation);
            for (number, account) in each.iter().enumerate().filter(|_| each.len() > 1) {
                let text = format!("the main source {number}, {}", simulation.programs.inputs[number].info.name);
                self.account(&format!("source.{number}"), &text, account, simulation);
            }
        }
        if load.has_co_runners() {
            let text = "Times that a co-runner ended and restarted";
            self.timed_count("co_runner.completed", load.co_runs, text);
            let each = co_runners(simulation);
            self.account("co_runner", "the co-runners", &sum(each.iter().map(|(_, account)| account)), simulation);
            for (number, (name, account)) in each.iter().enumerate() {
                let text = format!("the co-runner {number}, {name}");
                self.account(&format!("co_runner.{number}"), &text, account, simulation);
            }
        }
        if load.has_arrivals() {
            let mut sojourns = load.sojourns.clone();
            sojourns.sort_unstable();
            let text = "Processes that arrived and ran to their end";
            self.timed_count("arrivals.count", sojourns.len() as u64, text);
            let sum = sojourns.iter().sum();
            self.cycles("arrivals.sojourn.cycles", sum, "Cycles from arrival to exit, over all arrivals");
            for (name, share, text) in [
                ("p50", 50, "Median time from arrival to exit"),
                ("p99", 99, "99th percentile of the time from arrival to exit"),
                ("max", 100, "Longest time from arrival to exit"),
            ] {
                let cycles = nearest_rank(&sojourns, share);
                let name = format!("arrivals.sojourn.{name}_cycles");
                self.add(Measure::state(name, cycles.0, "cycles", text).with_kind(StatKind::Timing));
            }
            self.account("arrivals", "the arrivals", &load.arrival_account, simulation);
        }
        if simulation.programs.has_accounts() {
            self.unowned(simulation);
            self.kernels("kthread", "kernel threads", &simulation.programs.thread_account(&simulation.hw.walks), os);
        }
    }

    /// Cycles of CPUs that worked for no source: they were idle, were interrupted then, or ran kernel threads.
    fn unowned(&mut self, simulation: &Simulation) {
        let mut unowned = simulation.programs.unowned;
        for cpu in simulation.scheduler.program_cpus() {
            cpu.clone().charge_unowned(&mut unowned);
        }
        let text = "CPUs while they worked for no source";
        self.cycles("no_source.cycles", unowned.iter().sum(), format!("Cycles of {text}"));
        for &(class, name, spent_on) in classes(&simulation.scheduler) {
            let cycles = unowned[class as usize];
            self.cycles(format!("no_source.cycles.{name}"), cycles, format!("Cycles of {text}: {spent_on}"));
        }
    }

    /// The counts of some sources; `text` names them.
    fn account(&mut self, prefix: &str, text: &str, account: &Account, simulation: &Simulation) {
        let sum = account.cycles.iter().sum();
        self.cycles(format!("{prefix}.cycles"), sum, format!("Cycles of CPUs while they ran {text}"));
        for &(class, name, spent_on) in classes(&simulation.scheduler) {
            let cycles = account.cycles[class as usize];
            self.cycles(format!("{prefix}.cycles.{name}"), cycles, format!("Cycles of {text}: {spent_on}"));
        }
        let (walks, faults, os) = (&account.walks.program, &account.faults, &simulation.kernels.os);
        self.cycles(format!("{prefix}.walk.cycles"), walks.cycles, format!("Cycles of page walks of {text}"));
        for (name, count, what) in [
            ("walk.count", walks.count, "Completed page walks"),
            ("fault.minor.count", faults.minor, "Page faults without a read of storage"),
            ("fault.major.count", faults.major, "Page faults that read storage"),
        ] {
            self.timed_count(format!("{prefix}.{name}"), count, format!("{what} of {text}"));
        }
        self.walk_refs(&format!("{prefix}.walk"), walks, StatKind::Timing, &format!("completed page walks of {text}"));
        for (layer, refs) in os.layers.iter().zip(&walks.refs) {
            self.layer_walks(
                &format!("{prefix}.walk"),
                &layer.name,
                refs,
                StatKind::Timing,
                &format!("walks of {text}"),
            );
        }
        self.kernels(prefix, text, account, os);
    }

    /// The work of kernels for some sources, or in kernel threads; `text` names them.
    fn kernels(&mut self, prefix: &str, text: &str, account: &Account, os: &Os) {
        for (name, counts, what) in [
            ("walk.kernel", &account.walks.kernel, "completed page walks of the kernels' direct maps"),
            ("walk.aborted", &account.walks.aborted.total(), ABORTED),
        ] {
            let (prefix, text) = (format!("{prefix}.{name}"), format!("{what}, for {text}"));
            self.timed_count(format!("{prefix}.count"), counts.count, format!("Number of {text}"));
            self.cycles(format!("{prefix}.cycles"), counts.cycles, format!("Cycles of {text}"));
            self.walk_refs(&prefix, counts, StatKind::Timing, &text);
        }
        let aborted = format!("{ABORTED}, of {text}");
        self.aborted_walks(&format!("{prefix}.walk.aborted"), &account.walks.aborted, StatKind::Timing, &aborted);
        for (layer, cycles) in os.layers.iter().zip(&account.faults.stages) {
            let whose = format!("page faults of {text} that the kernel of layer `{}` handled", layer.name);
            self.stages(&format!("{prefix}.layer.{}", layer.name), &cycles[..os.stages()], &whose);
        }
    }
}

/// Names and accounts of the co-runners, including their earlier rounds.
fn co_runners(simulation: &Simulation) -> Vec<(&str, Account)> {
    let mut all: Vec<_> =
        simulation.programs.load.co_runner_accounts.iter().map(|account| ("", account.clone())).collect();
    for (index, input) in simulation.programs.inputs.iter().enumerate() {
        if let Role::CoRunner(number) = input.role {
            all[number].0 = &input.info.name;
            all[number].1.add(&simulation.programs.account(index, &simulation.hw.walks));
        }
    }
    all
}

fn sum<'a>(accounts: impl Iterator<Item = &'a Account>) -> Account {
    let mut sum = Account::default();
    accounts.for_each(|account| sum.add(account));
    sum
}
