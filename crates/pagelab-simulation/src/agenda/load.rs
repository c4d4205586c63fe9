//! What runs beside the main sources: beginning anew, and arriving.

use crate::machine::agenda::AgendaEntry;
use crate::machine::cpu::CpuState;
use crate::machine::simulation::Simulation;
use crate::machine::task::LaneState;
use crate::programs::input::Input;
use crate::programs::role::Role;
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::ids::{CpuId, SpaceId};
use pagelab_hardware::core_model::clock::Class;
use std::collections::BTreeSet;

impl Simulation {
    /// A process of a stream arrives.
    pub(crate) fn arrive(&mut self, at: Cycles, stream: usize) -> Result<(), EngineError> {
        let models_dependencies = self.models_dependencies();
        let of = &mut self.load.streams[stream];
        of.next = of.times.next();
        if let Some(next) = of.next {
            self.agenda.enter(next, AgendaEntry::Arrival { stream });
        }
        let busy = |&cpu: &CpuId| self.cpus[cpu].lanes.iter().filter(|lane| lane.state != LaneState::Finished).count();
        let cpu = of.cpus.iter().copied().min_by_key(busy).expect("a stream has CPUs");
        let role = Role::Arrival { at };
        let input =
            Input::new((of.open)()?, models_dependencies, role, of.home, vec![cpu], self.max_accesses, self.window);
        let index = match self.load.vacant.pop() {
            Some(index) => {
                self.inputs[index] = input;
                index
            }
            None => {
                self.inputs.push(input);
                self.inputs.len() - 1
            }
        };
        self.load.live += 1;
        self.cpus[cpu].add_lane(index);
        if self.cpus[cpu].lanes.len() == 2 {
            // Who had the CPU alone had no time slice.
            self.cpus[cpu].slice_end = self.cpus[cpu].clock.now() + self.slice;
        }
        self.rouse(cpu, index, at);
        Ok(())
    }

    /// Lets a CPU that has nothing to run go on at `time` at the earliest, with an input.
    fn rouse(&mut self, cpu: CpuId, input: usize, time: Cycles) {
        let of = &mut self.cpus[cpu];
        if of.state == CpuState::Finished {
            of.state = CpuState::Waiting;
        }
        if self.stir(cpu, Class::Idle, time) {
            self.discard_idle(cpu);
            self.cpus[cpu].owner = Some(input);
            self.leave_idle(cpu);
        }
    }

    /// Notes that a lane has come to its end.
    pub(crate) fn lane_ended(&mut self, input: usize) {
        let mut lanes = self.inputs[input].cpus.iter().flat_map(|&cpu| &self.cpus[cpu].lanes);
        if lanes.all(|lane| lane.input != input || lane.state == LaneState::Finished) {
            self.load.ended.push(input);
        }
    }

    /// Does what follows the end of inputs; true if there was one.
    pub(crate) fn end_inputs(&mut self, cpu: CpuId) -> Result<bool, EngineError> {
        let any = !self.load.ended.is_empty();
        while let Some(input) = self.load.ended.pop() {
            self.end_input(cpu, input)?;
        }
        if any && self.load.is_over() {
            self.woke = true;
        }
        Ok(any)
    }

    /// The last lane of an input has ended, on `cpu`.
    fn end_input(&mut self, cpu: CpuId, input: usize) -> Result<(), EngineError> {
        self.charge_account(cpu);
        for other in CpuId::all(self.cpus.len()) {
            if self.cpus[other].owner == Some(input) {
                self.charge_account(other);
            }
        }
        let role = self.inputs[input].role;
        if role != Role::Main {
            // A trace may end before its processes do. Nobody else has their spaces.
            for space in self.inputs[input].spaces().collect::<BTreeSet<_>>() {
                self.exit(cpu, space)?;
            }
            self.inputs[input].forget_processes();
            for of in self.cpus.iter_mut().filter(|of| of.thread.is_some_and(|(running, _)| running == input)) {
                of.thread = None;
            }
            self.charge_source(cpu, input);
        }
        let now = self.cpus[cpu].clock.now();
        let account = self.account_of(input);
        match role {
            Role::Main => {
                self.load.mains_left -= 1;
                self.load.main_end = self.load.main_end.max(now);
                if self.load.mains_left == 0 {
                    self.agenda.strike_arrivals();
                }
                self.drop_lanes(input);
            }
            Role::Arrival { at } => {
                self.load.live -= 1;
                self.load.sojourns.push(now - at);
                self.load.arrival_account.add(&account);
                self.load.vacant.push(input);
                self.drop_lanes(input);
            }
            Role::CoRunner(number) => {
                self.load.co_runs += 1;
                self.load.co_runner_accounts[number].add(&account);
                self.begin_anew(input, number, now)?;
            }
        }
        if role != Role::Main {
            self.close_account(input);
        }
        self.begin_account(cpu);
        Ok(())
    }

    fn begin_anew(&mut self, input: usize, number: usize, now: Cycles) -> Result<(), EngineError> {
        let old = &self.inputs[input];
        if old.dealt == 0 {
            let what = format!("`{}` makes no access, so it cannot run again and again", old.info.name);
            return Err(EngineError::config("with", what));
        }
        let (home, cpus) = (old.home, old.cpus.clone());
        let source = (self.load.co_runners[number])()?;
        let role = Role::CoRunner(number);
        let models_dependencies = self.models_dependencies();
        self.inputs[input] =
            Input::new(source, models_dependencies, role, home, cpus.clone(), self.max_accesses, self.window);
        for cpu in cpus {
            self.cpus[cpu].lane_of(input).state = LaneState::Ready;
            self.rouse(cpu, input, now);
        }
        Ok(())
    }

    /// Takes the queues of an input away.
    fn drop_lanes(&mut self, input: usize) {
        for of in &mut self.cpus {
            of.remove_lane(input);
            if of.owner == Some(input) {
                // Whoever's task it has in its hands now may be in the middle of something.
                of.owner = of.lanes.get(of.lane).filter(|_| !of.task.is_idle()).map(|lane| lane.input);
            }
        }
    }

    /// A process ends: its mappings and its space go.
    pub(crate) fn exit(&mut self, cpu: CpuId, space: SpaceId) -> Result<(), EngineError> {
        self.os.layers.iter_mut().for_each(|layer| layer.acting_cpu = cpu.0);
        let gone = self.os.drop_mappings(space)?;
        self.invalidate(cpu, space, &gone, true);
        self.forget_space(space);
        self.os.retire(space);
        Ok(())
    }
}
