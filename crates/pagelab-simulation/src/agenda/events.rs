//! Events of programs: mapping calls, forks, execs and exits. They are carried out when all CPUs of their process have
//! arrived at them.

use crate::agenda::address_bits::refuse_beyond_table;
use crate::machine::activity::Activity;
use crate::machine::kernels::changed_range;
use crate::machine::simulation::Simulation;
use pagelab_base::addr::VirtAddr;
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::ids::{CpuId, LayerId, SpaceId};
use pagelab_base::page_fault::Intent;
use pagelab_hardware::core_model::clock::Class;
use pagelab_kernel::effects::Effects;
use pagelab_kernel::fault_engine::kernel_side::EngineState;
use pagelab_kernel::fault_engine::mfoe::call::EngineCall;
use pagelab_kernel::fault_engine::smu::fill::FillWork;
use pagelab_kernel::mapping::{Consequences, is_recorded};
use pagelab_kernel::mapping_call::MappingCall;
use pagelab_kernel::os::Os;
use pagelab_kernel::page_out::PageOut;
use pagelab_kernel::populate::Populate;
use pagelab_kernel::sync::Sync;
use pagelab_trace::{Event, EventKind};

impl Simulation {
    /// Whether an event of a space can be carried out now. If not, the CPU waits for the fault in progress that
    /// prevents it.
    pub fn may_carry_out(&mut self, cpu: CpuId, space: SpaceId, kind: &EventKind) -> bool {
        let in_the_way = self.kernels.event_block_key(space, kind);
        in_the_way.into_iter().for_each(|key| self.scheduler.wait_for(cpu, key));
        in_the_way.is_none()
    }

    /// Carries out an event at its place in its process's order, on the CPU of its thread.
    pub(crate) fn carry_out(&mut self, cpu: CpuId, input: usize, event: &Event) -> Result<(), EngineError> {
        if event.kind.begins_stretch() {
            return self.begin_stretch(cpu, &event.kind);
        }
        let mut effects = Effects::default();
        let (accounted, filled) = (self.kernels.os.mapping.pages_accounted, self.kernels.os.mapping.fill_cycles);
        let space = self.programs.space_of(cpu, input, event.process, &mut self.kernels.os)?;
        if let Some(profile) = &mut self.observers.profile {
            profile.note(input as u32, event);
        }
        match &event.kind {
            EventKind::ProcessStart { .. } | EventKind::ThreadStart { .. } | EventKind::ThreadExit => {}
            EventKind::Wake { .. } | EventKind::Woken { .. } => unreachable!("edges are not dealt out as events"),
            EventKind::Allocated { .. } | EventKind::Freed { .. } => {
                unreachable!("sources deliver them separately from events")
            }
            EventKind::Fork { child } => {
                let child_space = self.programs.space_of(cpu, input, *child, &mut self.kernels.os)?;
                self.fork(cpu, space, child_space)?;
            }
            EventKind::Vfork { child } => self.programs.inputs[input].set_space(*child, Some(space)),
            EventKind::Exec { .. } if self.programs.inputs[input].is_shared(space) => {
                let own = self.kernels.os.add_space(cpu, self.programs.inputs[input].home)?;
                self.programs.inputs[input].set_space(event.process, Some(own));
                self.scheduler.cpus[cpu].thread = None;
            }
            EventKind::Exec { .. } => {
                self.drop_mappings(cpu, space)?;
            }
            EventKind::Exit { .. } if self.programs.inputs[input].is_shared(space) => {
                self.programs.inputs[input].set_space(event.process, None);
            }
            EventKind::Exit { .. } => {
                self.exit(cpu, space)?;
                self.programs.inputs[input].set_space(event.process, None);
            }
            &EventKind::EngineCall { enable } => {
                if let Some(call) = EngineCall::new(space, enable, &self.kernels.os) {
                    self.scheduler.cpus[cpu].begin_for(input, event.thread, Activity::EngineCall(call));
                }
            }
            EventKind::Fault { addr, write } => {
                let intent = if *write { Intent::Store } else { Intent::Load };
                self.simulate_recorded_fault(cpu, space, VirtAddr(*addr), intent);
            }
            EventKind::Msync { addr, len, flags } => {
                self.kernels.os.mapping.calls += 1;
                let sync = Sync::new(space, *addr, *len, *flags);
                self.kernels.os.mapping.impossible += u64::from(sync.is_err());
                if let Some(sync) = sync.ok().flatten() {
                    self.begin_sync(cpu, input, event, sync);
                }
            }
            EventKind::Truncate { .. }
            | EventKind::FileData { .. }
            | EventKind::FileHole { .. }
            | EventKind::Relocate { .. } => {
                self.change_file(cpu, space.layer, &event.kind)?;
            }
            kind => {
                for activity in self.call(cpu, space, kind, &mut effects)? {
                    self.scheduler.cpus[cpu].begin_for(input, event.thread, activity);
                }
            }
        }
        let pages = self.kernels.os.mapping.pages_accounted - accounted;
        let fill = self.kernels.os.mapping.fill_cycles - filled;
        self.scheduler.cpus[cpu].clock.spend(Class::Kernel, fill);
        self.scheduler.cpus[cpu].clock.execute(Class::Kernel, pages * self.kernels.os.costs.fault.accounting());
        for filled in std::mem::take(&mut self.kernels.os.fills) {
            self.scheduler.cpus[cpu].begin_for(input, event.thread, Activity::Fill(FillWork::new(filled)));
        }
        self.wake_kthreads(cpu, &mut effects);
        Ok(())
    }

    /// Begins the writing of an msync, if files are read from storage.
    fn begin_sync(&mut self, cpu: CpuId, input: usize, event: &Event, sync: Sync) {
        let space = sync.space();
        let layer = &self.kernels.os.layers[space.layer];
        if layer.storage().is_none() {
            return;
        }
        if layer.mechanisms.engine.as_ref().is_some_and(EngineState::maps_files) {
            self.kernels.os.account_for_taken(space);
        }
        self.scheduler.cpus[cpu].begin_for(input, event.thread, Activity::Sync(sync));
    }

    /// Begins a stretch of the program, which is measured or not. Costs nothing.
    fn begin_stretch(&mut self, cpu: CpuId, kind: &EventKind) -> Result<(), EngineError> {
        let refuse = |key: &str, what: &str| {
            Err(EngineError::config(key, format!("stretches of the program were skipped, and {what}")))
        };
        if self.programs.load.mains != 1 || self.programs.load.has_background {
            return refuse("sources", "other sources would run on during the skipped parts: replay it alone");
        }
        if self.observers.page_faults.is_some() {
            return refuse("faults", "the times of its page faults are unknown: record the program without skipping");
        }
        if self.observers.windows.warms_up() {
            return refuse(
                "warm_up",
                "each recorded window is warmed up by itself: remove this option, and record with warm= in --windows",
            );
        }
        // The warm-up of the first window may start without an event.
        if let (false, Some(profile)) = (self.observers.windows.has_stretches(), &mut self.observers.profile) {
            profile.begin();
        }
        if let EventKind::Resume { .. } = kind {
            self.observers.windows.resume(self.programs.replayed);
        } else {
            self.charge_account(cpu);
            let counted = self.counts();
            self.observers.windows.stretch(*kind == EventKind::Measure, self.programs.replayed, counted);
        }
        Ok(())
    }

    /// Gives a forked child the memory of its parent.
    pub fn fork(&mut self, cpu: CpuId, parent: SpaceId, child: SpaceId) -> Result<(), EngineError> {
        let before = self.kernels.os.mapping.pages_shared;
        let gone = self.kernels.os.fork(cpu, parent, child)?;
        let cycles =
            (self.kernels.os.mapping.pages_shared - before) * Cycles::from(self.kernels.os.costs.fork_page_cycles);
        self.scheduler.cpus[cpu].clock.spend(Class::Kernel, cycles);
        self.invalidate(cpu, parent, &gone, false);
        Ok(())
    }

    /// Carries out a mapping call, on behalf of what the CPU runs.
    pub fn change_mappings(&mut self, cpu: CpuId, space: SpaceId, kind: &EventKind) -> Result<(), EngineError> {
        let mut effects = Effects::default();
        let activities = self.call(cpu, space, kind, &mut effects)?;
        activities.into_iter().for_each(|activity| self.scheduler.cpus[cpu].begin(activity));
        self.wake_kthreads(cpu, &mut effects);
        Ok(())
    }

    /// Carries out an event of a file, which the layer's processes may have mapped.
    pub fn change_file(&mut self, cpu: CpuId, layer: LayerId, kind: &EventKind) -> Result<(), EngineError> {
        for (space, gone) in self.kernels.os.change_file(cpu, layer, kind)? {
            self.invalidate(cpu, space, &gone, false);
        }
        Ok(())
    }

    /// Carries out a mapping call. Returns the activities that follow it, in reverse order.
    fn call(
        &mut self,
        cpu: CpuId,
        space: SpaceId,
        kind: &EventKind,
        effects: &mut Effects,
    ) -> Result<Vec<Activity>, EngineError> {
        refuse_beyond_table(&self.kernels.os, space, kind)?;
        let freed = |os: &Os| os.layers[space.layer].memory.contents.destroyed();
        let before = freed(&self.kernels.os);
        let costs = self.kernels.os.costs.mapping_calls.is_some() && !is_recorded(kind);
        self.kernels.os.layers[space.layer].spaces.changed = costs.then(Vec::new);
        let outcome = self.kernels.os.change_mappings(effects, cpu, space, kind)?;
        let Consequences { gone, elsewhere, writes, absent, populate, .. } = outcome;
        self.invalidate(cpu, space, &gone, freed(&self.kernels.os) > before);
        for (other, gone) in &elsewhere {
            self.invalidate(cpu, *other, gone, false);
        }
        let populate = populate.into_iter().rev();
        let populate = populate.map(|(range, why)| Activity::Populate(Populate::new(space, range, why, cpu)));
        let page_out = (!writes.is_empty()).then(|| Activity::PageOut(PageOut::new(space, writes, absent)));
        let range = changed_range(kind).flatten();
        let own = MappingCall::new(cpu, space, kind, range, &mut self.kernels.os).map(Activity::Mapping);
        Ok(populate.chain(page_out).chain(own).collect())
    }
}
