//! Speculative inverted shadow page table: a guest continues with a translation from a hashed table in memory while the
//! nested walk verifies it.
//!
//! Models: a table of the hypervisor that all guests and their processes share. It maps a page and the tag of its
//! address space to a machine frame. On a TLB miss the core reads the page's slot, one reference, and starts the nested
//! walk. If the slot holds the page and allows the access, the core continues, having waited for that reference alone.
//! If the walk then finds another frame or a page fault, the core has waited for the walk and flushes its pipeline. A
//! slot that holds another page costs no time beyond the walk. The walk's result is written to the slot if it differs.
//! Nothing else keeps the table correct: guests change their page tables without an exit, and stale slots are detected
//! when they are used.
//! Source: Ahn et al., ISCA 2012, as described by Yaniv, Tsafrir, SIGMETRICS 2016, 6.2.
//! Parameters: `system.layers.NAME.speculative_table` (`table_bytes`, `flush_cycles`), of the machine's own layer.
//! Stats: `speculation.*`. `walk.cycles` are the cycles that the core waits for; `walk.refs` counts all references of
//! the verifying walks.
//! Deviations: the description does not define the table's layout. Here a slot is 16 bytes (tag and entry), a hash of
//! the tag and of the number of a group of four pages selects a line, and a new entry replaces the old one. In the
//! paper's short description a miss is a page fault that the hypervisor handles; here the walk has already started and
//! its result is used. Any number of verifying walks may overlap without contention. What a core executes on a wrong
//! frame until the flush does not touch the caches. The table's entries are for 4 KiB pages; each part of a larger page
//! has its own.

use crate::hardware::Hardware;
use crate::walker::{Faulted, TranslationRequest};
use pagelab_base::addr::{MachineAddr, PageSize};
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::LayerId;
use pagelab_base::page_fault::{Intent, Origin};
use pagelab_base::translation::Translation;
use pagelab_hardware::cache::Requester;
use pagelab_kernel::inverted_table::InvertedTable;
use pagelab_kernel::layer::{Layer, is_backed};

impl Hardware {
    /// Walks while the speculative table of layer `machine` is looked up, and counts the walk and the speculation.
    #[inline(never)]
    pub fn walk_speculatively(
        &mut self,
        layers: &mut [Layer],
        machine: LayerId,
        wanted: &TranslationRequest,
        cycles: &mut Cycles,
    ) -> Result<Translation, Faulted> {
        let &TranslationRequest { core, space, va, intent, origin, .. } = wanted;
        let asid = layers[space.layer].spaces[space.index].asid;
        let table = table_of(layers, machine);
        let (slot, tag) = table.place(asid, va);
        let (address, [held_tag, word], flush) = (table.address(slot), table.slots[slot], table.flush_cycles);
        let look_up = self.system_ref(core, address, false, false, Requester::Walk).cycles;
        let held = (held_tag == tag).then(|| Translation::<MachineAddr>::from_word(word));
        let usable = held.filter(|held| intent != Intent::Store || held.stores());

        self.walks.log.clear();
        let mut spent = Cycles::ZERO;
        let walked = self.walk_to_machine(layers, core, space, va, intent, &mut spent);
        let refs = self.walks.log.len() as u64;
        let found = match walked {
            Ok(found) => found,
            Err(Faulted(fault)) => {
                // The host already had the page before the run, so this walk never happened.
                if !is_backed(layers, &fault) {
                    let waited = spent + if usable.is_some() { flush } else { Cycles::ZERO };
                    self.speculation.wrong += u64::from(usable.is_some() && origin == Origin::Program);
                    self.walks.abort(origin, waited);
                    *cycles += waited;
                }
                return Err(Faulted(fault));
            }
        };
        let entry = found.fractured(va, PageSize::Size4K);
        let right = usable.is_some_and(|held| held.page() == entry.page());
        let waited = match usable {
            Some(_) if right => look_up,
            Some(_) => spent + flush,
            None => spent,
        };
        let update = held != Some(entry);
        if update {
            table_of(layers, machine).slots[slot] = [tag, entry.to_word()];
            self.system_ref(core, address, true, false, Requester::Walk);
        }
        if origin == Origin::Program {
            let counters = &mut self.speculation;
            *match usable {
                Some(_) if right => &mut counters.right,
                Some(_) => &mut counters.wrong,
                None => &mut counters.missed,
            } += 1;
            counters.updates += u64::from(update);
            counters.critical_refs += if right { 1 } else { refs };
            counters.all_refs += refs + 1 + u64::from(update);
            counters.hidden_cycles += spent.saturating_sub(waited);
        }
        self.walks.complete(origin, waited);
        *cycles += waited;
        Ok(found)
    }
}

fn table_of(layers: &mut [Layer], machine: LayerId) -> &mut InvertedTable {
    layers[machine].mechanisms.inverted_table.as_mut().expect("it was set aside at boot")
}
