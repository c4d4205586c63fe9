//! Hashed page tables in the kernel's virtual memory: a walk's references to them need a translation themselves.
//!
//! Models: the kernel keeps the table in memory that is pinned, at addresses of its direct map. Fixed TLB entries
//! translate the first part of the table, and of the table of each page size that has one of its own, without a look-
//! up. For the rest the core's data TLBs are asked, in which these pages compete with those of programs. A miss walks
//! the direct map's table, whose addresses are physical, and fills the TLBs.
//! Source: Yaniv and Tsafrir, SIGMETRICS 2016, 4.1 (Itanium's table is in virtual memory that the operating system
//! pins); Intel Itanium Architecture Software Developer's Manual, vol. 2, 4.1 (translation registers, VHPT).
//! Parameters: `page_table.pinned` of the hashed designs.
//! Stats: `pinned_table.*`.
//! Deviations: Itanium's walker raises a fault when the TLBs do not hold a part of its table; here a walk of the direct
//! map follows, with `miss_cycles` for a handler.

use pagelab_base::addr::{MachineAddr, PhysAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::{CoreId, DIRECT_MAP, LayerId, SpaceId};
use pagelab_base::page_fault::{Intent, Origin};
use pagelab_kernel::layer::Layer;
use pagelab_tables::page_table::PinnedTable;

use crate::hardware::Hardware;
use crate::tlb_organisation::Run;
use crate::walker::Faulted;

impl Hardware {
    /// Machine address of a table's line at an address of a layer.
    pub(crate) fn through_direct_map(
        &mut self,
        layers: &mut [Layer],
        core: CoreId,
        (layer, pinned): (LayerId, PinnedTable),
        addr: PhysAddr,
        cycles: &mut Cycles,
    ) -> Result<MachineAddr, Faulted> {
        if pinned.is_fixed(addr) {
            let host = layers[layer].host;
            return self.on_machine(layers, core, host, addr, cycles);
        }
        let (va, space) = (layers[layer].direct(addr), SpaceId { layer, index: DIRECT_MAP });
        let asid = layers[layer].spaces[DIRECT_MAP].asid;
        self.pinned.translations += 1;
        if let Some(hit) = self.units[core].l1d.look_up(asid, va, Origin::Kernel) {
            return Ok(hit.address(va));
        }
        *cycles += self.l2_tlb_latency;
        self.caches.pass(self.l2_tlb_latency);
        let held = self.units[core].l2.look_up(asid, va, Origin::Kernel);
        let found = match held {
            Some(hit) => hit,
            None => {
                self.pinned.misses += 1;
                *cycles += pinned.miss_cycles;
                self.caches.pass(pinned.miss_cycles);
                let found = self.walk_to_machine(layers, core, space, va, Intent::Load, cycles)?;
                self.enter_second(core, asid, va, found, Run::ALONE, Origin::Kernel, true);
                found
            }
        };
        self.enter_first(core, Intent::Load, asid, va, found, Run::ALONE, Origin::Kernel, true);
        Ok(found.address(va))
    }
}
