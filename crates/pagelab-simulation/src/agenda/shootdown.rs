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

use crate::machine::cpu::{Cpu, Filter};
use crate::machine::kernels::ShootdownCosts;
use crate::machine::pcids::{PcidState, Presence};
use crate::machine::simulation::Simulation;
use pagelab_base::addr::VirtAddr;
use pagelab_base::ids::{CoreId, CpuId, LayerId, SpaceId};
use pagelab_hardware::core_model::clock::Class;
use pagelab_kernel::config::IdleTlb;
use pagelab_kernel::invalidation::Invalidation;
use pagelab_kernel::vma::VaRange;

impl Simulation {
    /// Loads an address space on a CPU.
    pub(crate) fn load_space(&mut self, cpu: CpuId, space: SpaceId) {
        let asid = self.kernels.os.asid(space);
        let this_cpu = &mut self.scheduler.cpus[cpu];
        if this_cpu.space != Some(space) {
            let held = this_cpu.pcids.load(space, self.kernels.generations.generation(asid));
            if let PcidState::Nothing { before } = held {
                self.kernels.shootdowns.pcid_flushes += 1;
                // Another hardware thread of the core may have filled some in, under a PCID of its own.
                for gone in before.into_iter().chain([space]) {
                    self.hw.flush_own(self.scheduler.cpus[cpu].core, gone.layer, self.kernels.os.asid(gone));
                }
            }
            self.after_load(cpu, space, held);
            if self.kernels.os.layers[space.layer].paging.shadowed {
                self.hw.shadow.switches += 1;
                self.exit_shadowed(cpu, 1);
            }
        }
        self.scheduler.cpus[cpu].set_space(Some((space, asid)));
    }

    /// Charges exits of a guest with shadow page tables to its hypervisor, other than those for walks.
    fn exit_shadowed(&mut self, cpu: CpuId, exits: u64) {
        let cycles = exits * self.hw.vm_exit_cycles;
        self.hw.shadow.cycles += cycles;
        self.scheduler.cpus[cpu].clock.spend(Class::Kernel, cycles);
    }

    /// Takes a CPU out of idle.
    pub(crate) fn exit_idle(&mut self, cpu: CpuId) {
        let this_cpu = &mut self.scheduler.cpus[cpu];
        this_cpu.presence = Presence::Running;
        if let Some(space) = this_cpu.space {
            let held = this_cpu.pcids.load(space, self.kernels.generations.generation(this_cpu.asid));
            self.after_load(cpu, space, held);
        }
    }

    fn after_load(&mut self, cpu: CpuId, space: SpaceId, held: PcidState) {
        if held == PcidState::Behind {
            self.kernels.shootdowns.generation_flushes += 1;
            self.hw.flush_space(self.scheduler.cpus[cpu].core, space.layer, self.kernels.os.asid(space));
        }
        if held != PcidState::Current {
            self.scheduler.cpus[cpu].filter = Filter::EMPTY;
            self.scheduler.cpus[cpu].clock.spend(Class::Kernel, self.kernels.os.costs.flush_space_cycles.into());
        }
    }

    /// Makes a CPU idle.
    pub(crate) fn enter_idle(&mut self, cpu: CpuId) {
        let leaves = self.kernels.os.costs.idle_tlb == IdleTlb::Leave;
        self.scheduler.cpus[cpu].presence = if leaves { Presence::Away } else { Presence::Lazy };
    }

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
            self.exit_shadowed(by, exits);
        }
        let ShootdownCosts { local, interrupt, wait } = self.kernels.shootdown_costs(what);
        let lazy = self.kernels.os.costs.idle_tlb == IdleTlb::Lazy && !freed_tables;
        let guests = self.kernels.guests_in(space);
        if !guests.is_empty() {
            self.drop_guests(space, &guests);
        }
        let asid = self.kernels.os.asid(space);
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
                    cpu.filter = Filter::EMPTY;
                }
                Presence::Running => cpu.filter = Filter::EMPTY,
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

    /// Interrupts all other CPUs that are at work to have a register of each written (Linux `schedule_on_each_cpu`),
    /// and waits for them.
    #[cold]
    pub(crate) fn interrupt_others(&mut self, by: CpuId) {
        let costs = &self.kernels.os.costs;
        let (interrupt, wait) = (costs.fault.entry.cost() + costs.fault.exit.cost(), costs.shootdown_ipi_cycles);
        let mut interrupted = false;
        for (index, cpu) in self.scheduler.cpus.iter_mut().enumerate() {
            // An idle CPU writes it when it resumes.
            if index != by.index() && cpu.presence == Presence::Running {
                cpu.clock.execute(Class::Stolen, interrupt);
                interrupted = true;
            }
        }
        if interrupted {
            self.scheduler.cpus[by].clock.spend(Class::Kernel, wait.into());
        }
    }

    /// Drops, on every core, all translations that depend on a hypervisor's mapping of its guests' memory. Translations
    /// of guests lead to machine memory, so those that passed through the changed pages cannot be identified. This also
    /// holds for the entries of their shadow tables.
    fn drop_guests(&mut self, host: SpaceId, guests: &[LayerId]) {
        for &guest in guests {
            let layer = &mut self.kernels.os.layers[guest];
            if layer.paging.shadowed {
                for space in layer.spaces.numbers() {
                    let end = VirtAddr(1 << layer.spaces[space].table.va_bits());
                    layer.mechanisms.shadows.drop_range(space, VaRange { start: VirtAddr(0), end });
                }
            }
        }
        for core in CoreId::all(self.hw.units.len()) {
            self.hw.flush_space(core, host.layer, self.kernels.os.asid(host));
            for &guest in guests {
                for space in &self.kernels.os.layers[guest].spaces {
                    self.hw.flush_space(core, guest, space.asid);
                }
            }
        }
    }

    /// Removes a space that has ended from all CPUs and their translations.
    pub(crate) fn forget_space(&mut self, space: SpaceId) {
        let asid = self.kernels.os.asid(space);
        for core in CoreId::all(self.hw.units.len()) {
            self.hw.flush_space(core, space.layer, asid);
        }
        for cpu in &mut self.scheduler.cpus {
            cpu.pcids.forget(space);
            if cpu.space == Some(space) {
                cpu.thread = None;
                cpu.set_space(None);
            }
        }
    }
}
