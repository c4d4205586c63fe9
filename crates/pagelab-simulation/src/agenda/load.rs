//! Background load: co-runners that restart, and processes that arrive.

use crate::machine::agenda::AgendaEntry;
use crate::machine::cpu::CpuState;
use crate::machine::simulation::Simulation;
use crate::machine::task::LaneState;
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::ids::{CpuId, SpaceId};
use pagelab_hardware::core_model::clock::Class;
use pagelab_run::programs::account::walk_account;
use pagelab_run::programs::role::Role;
use std::collections::BTreeSet;

impl Simulation {
    /// Starts a process of a stream at its arrival.
    pub(crate) fn arrive(&mut self, at: Cycles, stream: usize) -> Result<(), EngineError> {
        let models_dependencies = self.scheduler.models_dependencies();
        let (next, cpus) = self.programs.load.next_arrival(stream);
        if let Some(next) = next {
            self.scheduler.agenda.enter(next, AgendaEntry::Arrival { stream });
        }
        let cpu = self.scheduler.least_busy(cpus).expect("a stream has CPUs");
        let input = self.programs.add_arrival(stream, at, cpu, models_dependencies)?;
        let shared = self.programs.inputs[input].threads_share();
        self.scheduler.add_lane(cpu, input, shared);
        self.wake_idle_cpu(cpu, input, at);
        Ok(())
    }

    /// Makes a CPU that has nothing to run continue with an input, at `time` at the earliest.
    fn wake_idle_cpu(&mut self, cpu: CpuId, input: usize, time: Cycles) {
        let this_cpu = &mut self.scheduler.cpus[cpu];
        if this_cpu.state == CpuState::Finished {
            this_cpu.state = CpuState::Waiting;
        }
        if self.scheduler.make_ready(cpu, Class::Idle, time, &self.kernels.os.locks) {
            let this_cpu = &mut self.scheduler.cpus[cpu];
            this_cpu.charge_unowned(&mut self.programs.unowned);
            this_cpu.owner = Some(input);
            self.scheduler.cpus[cpu].exit_idle(&mut self.hw, &mut self.kernels);
        }
    }

    /// Handles the end of inputs; true if any has ended.
    pub(crate) fn end_inputs(&mut self, cpu: CpuId) -> Result<bool, EngineError> {
        let any = !self.programs.load.ended.is_empty();
        while let Some(input) = self.programs.load.ended.pop() {
            self.end_input(cpu, input)?;
        }
        if any && self.programs.load.is_over() {
            self.scheduler.woke = true;
        }
        Ok(any)
    }

    /// Handles the end of an input, whose last lane has ended on `cpu`.
    fn end_input(&mut self, cpu: CpuId, input: usize) -> Result<(), EngineError> {
        self.charge_account(cpu);
        for other in CpuId::all(self.scheduler.cpus.len()) {
            if self.scheduler.cpus[other].owner == Some(input) {
                self.charge_account(other);
            }
        }
        let role = self.programs.inputs[input].role;
        if role != Role::Main {
            // A trace may end before its processes do. No other input uses their spaces.
            for space in self.programs.inputs[input].spaces().collect::<BTreeSet<_>>() {
                self.exit(cpu, space)?;
            }
            self.programs.inputs[input].forget_processes();
            self.scheduler.forget_threads(input);
            self.charge_source(cpu, input);
        }
        let now = self.scheduler.cpus[cpu].clock.now();
        let account = self.programs.account(input, &self.hw.walks);
        match role {
            Role::Main => {
                if self.programs.load.end_main(now) {
                    self.scheduler.agenda.remove_arrivals();
                }
                self.scheduler.drop_lanes(input);
            }
            Role::Arrival { at } => {
                self.programs.load.end_arrival(input, now - at, &account);
                self.scheduler.drop_lanes(input);
            }
            Role::CoRunner(number) => {
                self.programs.load.end_round(number, &account);
                self.restart(input, number, now)?;
            }
        }
        if role != Role::Main {
            // From here on, another input uses this account.
            self.hw.walks.close(walk_account(input));
        }
        self.begin_account(cpu);
        Ok(())
    }

    /// Restarts a co-runner that has ended.
    fn restart(&mut self, input: usize, number: usize, now: Cycles) -> Result<(), EngineError> {
        for cpu in self.programs.restart(input, number, self.scheduler.models_dependencies())? {
            self.scheduler.cpus[cpu].lane_of(input).state = LaneState::Ready;
            self.wake_idle_cpu(cpu, input, now);
        }
        Ok(())
    }

    /// Ends a process: removes its mappings and its space.
    pub(crate) fn exit(&mut self, cpu: CpuId, space: SpaceId) -> Result<(), EngineError> {
        self.drop_mappings(cpu, space)?;
        self.forget_space(space);
        self.kernels.os.retire(cpu, space);
        Ok(())
    }

    /// Removes all mappings of a process.
    pub(crate) fn drop_mappings(&mut self, cpu: CpuId, space: SpaceId) -> Result<(), EngineError> {
        let gone = self.kernels.os.drop_mappings(cpu, space)?;
        self.kernels.exit_scan_due |= self.kernels.os.layers[space.layer].spaces.tables.is_scan_due();
        self.invalidate(cpu, space, &gone, true);
        Ok(())
    }
}
