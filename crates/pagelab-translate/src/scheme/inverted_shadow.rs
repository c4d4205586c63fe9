//! Inverted shadow page table: one hashed table of guest pages and their machine frames, kept consistent by exits.
//!
//! Models: a table of the hypervisor in machine memory that all guests and their processes share. It maps a page and
//! the tag of its address space to a machine frame. On a TLB miss the walker reads the page's slot: one reference,
//! whatever the tables of guest and host. A slot that holds another page, or does not allow the store, is a fault: the
//! guest exits, and the hypervisor reads the guest's table, looks up the host's, and fills the slot. The page that had
//! the slot before is lost, and its next TLB miss is an exit. The guest also exits when its handler writes a
//! page-table entry, when it invalidates translations, and when it switches address spaces, so that no slot is ever
//! wrong.
//! Source: Ahn et al., ISCA 2012, as described by Yaniv, Tsafrir, SIGMETRICS 2016, 6.2, before the speculation that
//! avoids these exits (`speculation.rs`).
//! Parameters: `system.layers.NAME.host_mode` of the guests; `system.layers.NAME.inverted_shadow_bytes` of the
//! machine's own layer; `kernel.vm_exit_cycles` for an exit, beyond the references of its work.
//! Stats: `shadow.exits` and what caused them, `shadow.exit_cycles`, `shadow.replaced`. Walks count one reference each,
//! at level 1 of the host.
//! Deviations: as for `speculation.rs`, a slot is 16 bytes, a line has four neighbouring pages, there is one place per
//! page, and each part of a larger page has a slot of its own. As for `shadow.rs`, an exit that the walker causes is
//! simulated within the translation, and all entries that one step of a handler writes cost one exit together. Clearing
//! slots costs nothing beyond the exit that asks for it.

use crate::hardware::Hardware;
use crate::walker::{Faulted, TranslationRequest};
use pagelab_base::addr::{MachineAddr, PageSize};
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::LayerId;
use pagelab_base::page_fault::Intent;
use pagelab_base::translation::Translation;
use pagelab_hardware::cache::Requester;
use pagelab_kernel::inverted_table::InvertedTable;
use pagelab_kernel::layer::{Layer, is_backed};

impl Hardware {
    /// Looks up a page of a guest in the inverted shadow table and counts the walk; exits to the hypervisor until there
    /// is a translation.
    #[inline(never)]
    pub fn walk_inverted(
        &mut self,
        layers: &mut [Layer],
        wanted: &TranslationRequest,
        cycles: &mut Cycles,
    ) -> Result<Translation, Faulted> {
        let &TranslationRequest { core, space, va, intent, origin, .. } = wanted;
        let host = layers[space.layer].host.expect("a shadowed layer has a host");
        drop_changed(layers, space.layer, host.layer);
        let asid = layers[space.layer].spaces[space.index].asid;
        loop {
            self.walks.log.clear();
            let table = table_of(layers, host.layer);
            let (slot, tag) = table.place(asid, va);
            let (address, [held_tag, word]) = (table.address(slot), table.slots[slot]);
            let done = self.system_ref(core, address, false, false, Requester::Walk);
            self.walks.note(host.layer, 1, done.served, done.cycles);
            let held = (held_tag == tag).then(|| Translation::<MachineAddr>::from_word(word));
            if let Some(found) = held.filter(|held| intent != Intent::Store || held.stores()) {
                *cycles += done.cycles;
                self.walks.complete(origin, done.cycles);
                return Ok(found);
            }
            let mut exit = self.vm_exit_cycles;
            let resolved = self.resolve_for_shadow(layers, wanted, host, &mut exit);
            // The host already had the page before the run, so this exit never happened.
            if let Err(Faulted(fault)) = &resolved
                && is_backed(layers, fault)
            {
                return resolved.map(|(found, _)| found);
            }
            if let Ok((found, _)) = &resolved {
                let found = found.fractured(va, PageSize::Size4K);
                table_of(layers, host.layer).slots[slot] = [tag, found.to_word()];
                exit += self.system_ref(core, address, true, true, Requester::Kernel).cycles;
                self.shadow.replaced += u64::from(held_tag != 0 && held_tag != tag);
            }
            self.walks.abort(wanted.origin, done.cycles);
            self.shadow.misses += 1;
            self.shadow.cycles += exit;
            *cycles += done.cycles + exit;
            resolved?;
        }
    }
}

fn table_of(layers: &mut [Layer], machine: LayerId) -> &mut InvertedTable {
    layers[machine].mechanisms.inverted_table.as_mut().expect("it was set aside at boot")
}

/// Clears the slots of pages that the guest has changed since.
fn drop_changed(layers: &mut [Layer], guest: LayerId, machine: LayerId) {
    for (index, range) in std::mem::take(&mut layers[guest].mechanisms.shadows.changed) {
        let asid = layers[guest].spaces[index].asid;
        table_of(layers, machine).clear(asid, range);
    }
}
