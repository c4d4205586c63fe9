//! TLB shootdowns, and the address spaces whose translations a CPU still holds.
//!
//! Models: a CPU holds translations of the spaces that it ran last, each under a PCID. A shootdown drops the changed
//! translations on the CPUs that run the space, and interrupts all of them except its own. Other CPUs notice later by a
//! generation number: every shootdown raises the generation of its space, and a CPU that switches to a space whose
//! generation has changed flushes all translations of it. A CPU that switches to a space for which it has no PCID takes
//! the next PCID in turn and flushes it. An idle CPU keeps its last space loaded, as `kernel.idle_tlb` says.
//! Source: Linux arch/x86/mm/tlb.c (`choose_new_asid`, `switch_mm_irqs_off`, `flush_tlb_func`,
//! `native_flush_tlb_multi`, `enter_lazy_tlb`; `leave_mm` before 4.14). For a hypervisor's own mappings
//! arch/x86/kvm/mmu (`kvm_flush_remote_tlbs`).
//! Parameters: `kernel.pcids`, `kernel.idle_tlb`, `kernel.shootdown_ipi_cycles`, `kernel.invalidate_page_cycles`,
//! `kernel.flush_space_cycles`.
//! Stats: `shootdown.*`.
//! Deviations: entries are tagged by address space, not by PCID. So the hardware threads of a core share entries of a
//! space, which Linux's numbering prevents. A flush by one of them drops the entries for both, so no entry outlives a
//! flush. An idle CPU compares generations when it resumes, whatever it runs next. When a space ends, its translations
//! leave all TLBs at once and for free, because tags are reused; its PCIDs stay occupied until their turn comes.

use crate::machine::cpu::Cpu;
use crate::machine::kernels::{Kernels, ShootdownCosts};
use crate::machine::pcids::{PcidState, Presence};
use crate::machine::scheduler::Scheduler;
use crate::machine::simulation::Simulation;
use pagelab_base::ids::{CoreId, CpuId, SpaceId};
use pagelab_hardware::core_model::clock::Class;
use pagelab_kernel::config::IdleTlb;
use pagelab_kernel::invalidation::Invalidation;
use pagelab_translate::hardware::Hardware;

impl Cpu {
    /// Loads an address space.
    pub(crate) fn load_space(&mut self, hw: &mut Hardware, kernels: &mut Kernels, space: SpaceId) {
        let asid = kernels.os.asid(space);
        if self.space != Some(space) {
            let held = self.pcids.load(space, kernels.generations.generation(asid));
            if let PcidState::Nothing { before } = held {
                kernels.shootdowns.pcid_flushes += 1;
                // Another hardware thread of the core may have filled some in, under a PCID of its own.
                for gone in before.into_iter().chain([space]) {
                    hw.flush_own(self.core, gone.layer, kernels.os.asid(gone));
                }
            }
            self.after_load(hw, kernels, space, held);
            if kernels.os.layers[space.layer].paging.shadowed {
                hw.shadow.switches += 1;
                self.exit_shadowed(hw, 1);
            }
        }
        self.set_space(Some((space, asid)));
    }

    /// Charges exits of a guest with shadow page tables to its hypervisor, other than those for walks.
    fn exit_shadowed(&mut self, hw: &mut Hardware, exits: u64) {
        let cycles = exits * hw.vm_exit_cycles;
        hw.shadow.cycles += cycles;
        self.clock.spend(Class::Kernel, cycles);
    }

    /// Takes it out of idle.
    pub(crate) fn exit_idle(&mut self, hw: &mut Hardware, kernels: &mut Kernels) {
        self.presence = Presence::Running;
        if let Some(space) = self.space {
            let held = self.pcids.load(space, kernels.generations.generation(self.asid));
            self.after_load(hw, kernels, space, held);
        }
    }

    fn after_load(&mut self, hw: &mut Hardware, kernels: &mut Kernels, space: SpaceId, held: PcidState) {
        if held == PcidState::Behind {
            kernels.shootdowns.generation_flushes += 1;
            hw.flush_space(self.core, space.layer, kernels.os.asid(space));
        }
        if held != PcidState::Current {
            self.filter.clear();
            self.clock.spend(Class::Kernel, kernels.os.costs.flush_space_cycles.into());
        }
    }

    /// Makes it idle.
    pub(crate) fn enter_idle(&mut self, kernels: &Kernels) {
        let leaves = kernels.os.costs.idle_tlb == IdleTlb::Leave;
        self.presence = if leaves { Presence::Away } else { Presence::Lazy };
    }
}

impl Scheduler {
    /// Interrupts all other CPUs that are at work to have a register of each written (Linux `schedule_on_each_cpu`),
    /// and waits for them.
    #[cold]
    pub(crate) fn interrupt_others(&mut self, kernels: &Kernels, by: CpuId) {
        let costs = &kernels.os.costs;
        let (interrupt, wait) = (costs.fault.entry.cost() + costs.fault.exit.cost(), costs.shootdown_ipi_cycles);
        let mut interrupted = false;
        for (index, cpu) in self.cpus.iter_mut().enumerate() {
            // An idle CPU writes it when it resumes.
            if index != by.index() && cpu.presence == Presence::Running {
                cpu.clock.execute(Class::Stolen, interrupt);
                interrupted = true;
            }
        }
        if interrupted {
            self.cpus[by].clock.spend(Class::Kernel, wait.into());
        }
    }
}

impl Simulation {
    /// TLB shootdown: drops translations on the CPUs that run the space, and charges the CPU `by` and those that it
    /// interrupts. `freed_tables` if page-table pages were freed: idle CPUs might still read their entries.
    pub fn invalidate(&mut self, by: CpuId, space: SpaceId, what: &Invalidation, freed_tables: bool) {
        if what.ranges.is_empty() {
            return;
        }
        self.kernels.shootdowns.count += 1;
        let layer = &mut self.kernels.os.layers[space.layer];
        if layer.paging.shadowed {
            what.ranges.iter().for_each(|range| layer.mechanisms.shadows.drop_range(space.index, *range));
            let exits = if what.full { 1 } else { what.pages };
            self.hw.shadow.invalidations += exits;
            self.scheduler.cpus[by].exit_shadowed(&mut self.hw, exits);
        }
        let ShootdownCosts { local, interrupt, wait } = self.kernels.shootdown_costs(what);
        let lazy = self.kernels.os.costs.idle_tlb == IdleTlb::Lazy && !freed_tables;
        let guests = self.kernels.guests_in(space);
        if !guests.is_empty() {
            self.kernels.drop_guests(&mut self.hw, space, &guests);
        }
        let asid = self.kernels.os.asid(space);
        if !self.hw.shared_stages.is_empty() {
            let core = self.scheduler.cpus[by].core;
            let spent = self.hw.drop_shared(core, asid, what);
            self.scheduler.cpus[by].clock.spend(Class::Kernel, spent);
        }
        let generation = self.kernels.generations.advance(asid);
        let runs = |cpu: &Cpu| cpu.space.is_some_and(|loaded| loaded == space || guests.contains(&loaded.layer));
        let mut interrupted = 0;
        for (index, cpu) in self.scheduler.cpus.iter_mut().enumerate().filter(|(_, cpu)| runs(cpu)) {
            match cpu.presence {
                Presence::Away => continue,
                Presence::Lazy if lazy => {
                    self.kernels.shootdowns.spared += 1;
                    continue;
                }
                // An idle CPU that is interrupted switches to the kernel's own page table and flushes when it resumes.
                Presence::Lazy => cpu.presence = Presence::Away,
                Presence::Running if cpu.space == Some(space) => {
                    self.hw.drop_translations(cpu.core, space.layer, asid, what);
                    cpu.pcids.catch_up(space, generation);
                    cpu.filter.clear();
                }
                Presence::Running => cpu.filter.clear(),
            }
            if index == by.index() {
                cpu.clock.spend(Class::Kernel, local);
            } else {
                cpu.clock.spend(Class::Stolen, local);
                cpu.clock.execute(Class::Stolen, interrupt);
                interrupted += 1;
            }
        }
        if interrupted > 0 {
            self.scheduler.cpus[by].clock.spend(Class::Kernel, wait);
        }
        self.kernels.shootdowns.interrupts += interrupted;
    }

    /// Removes a space that has ended from all CPUs and their translations.
    pub(crate) fn forget_space(&mut self, space: SpaceId) {
        let asid = self.kernels.os.asid(space);
        for core in CoreId::all(self.hw.units.len()) {
            self.hw.flush_space(core, space.layer, asid);
        }
        self.hw.flush_shared(asid);
        for cpu in &mut self.scheduler.cpus {
            cpu.pcids.forget(space);
            if cpu.space == Some(space) {
                cpu.thread = None;
                cpu.set_space(None);
            }
        }
    }
}
