//! Speculative inverted shadow page table: a guest goes on with what a hashed table in memory says while the walk verifies it.
//!
//! Models: a table of the hypervisor, shared by all guests and their processes, from an address space's tag and a page to the
//! page's machine frame. On a miss of the TLBs the core reads the slot of the page, one reference, and starts the nested walk.
//! A slot that is the page's, and allows the access, lets the core go on; it has waited for that reference alone. If the
//! walk finds another frame, or a page fault, the core has waited for the walk and flushes its pipeline. A slot that is not the
//! page's costs nothing beside the walk. What the walk finds is written to the slot if it holds anything else. Nobody else keeps
//! the table right: guests change their page tables without an exit, and stale slots are found out when they are used.
//! Source: Ahn et al., ISCA 2012, as described by Yaniv, Tsafrir, SIGMETRICS 2016, 6.2.
//! Parameters: `system.layers.NAME.speculative_table` (`table_bytes`, `flush_cycles`), of the machine's own layer.
//! Stats: `speculation.*`; `walk.cycles` are what the core waits for, `walk.refs` those of the verifying walks, all of them.
//! Deviations: the description leaves the table's form open. Here a slot is 16 bytes (tag and entry), a hash of the tag and of
//! the number of four pages chooses a line, and a new entry replaces the old one. In the paper's short description a miss
//! is a page fault that the hypervisor handles; here the walk is under way by then and its result is used. Verifying walks are
//! never in each other's way, however many are under way, and what a core does on a wrong frame until the flush touches no
//! cache. The table's entries are for 4 KiB pages; parts of larger ones have one each.

use crate::base::addr::{Cycles, FRAME_SHIFT, MachineAddr, PageSize, Pfn, VirtAddr};
use crate::base::error::EngineError;
use crate::base::translation::Translation;
use crate::cache::Requester;
use crate::config::LayerConfig;
use crate::kernel::layer::Layer;
use crate::mmu_cache::Asid;
use crate::translate::hardware::Hardware;
use crate::translate::walker::{Faulted, Intent, Origin, Wanted};

const SLOT_BYTES: u64 = 16;
/// Slots of a line, which hold neighbouring pages.
const SLOTS_PER_LINE: u64 = 4;
/// Marks a slot that has been written: no tag is 0.
const VALID: u64 = 1 << 63;

/// The table and where it is.
pub struct SpeculativeTable {
    first: Pfn,
    /// Tag and translation of each slot.
    slots: Vec<[u64; 2]>,
    flush_cycles: Cycles,
}

impl SpeculativeTable {
    /// The table that a layer's configuration asks for, behind its first `taken` of `frames` frames.
    pub fn set_aside(config: &LayerConfig, taken: u64, frames: u64) -> Result<Option<Self>, EngineError> {
        let Some(of) = config.speculative_table else { return Ok(None) };
        let bytes = of.table_bytes.0;
        let most = frames.saturating_sub(taken) << FRAME_SHIFT >> 1;
        if bytes > most || !bytes.is_power_of_two() || bytes >> FRAME_SHIFT == 0 {
            let what = format!(
                "{} is not possible; allowed are powers of two from 4096 to half of the layer's free memory, {most} bytes",
                of.table_bytes
            );
            let key = format!("system.layers.{}.speculative_table.table_bytes", config.name);
            return Err(EngineError::config(key, what));
        }
        let slots = vec![[0; 2]; (bytes / SLOT_BYTES) as usize];
        Ok(Some(Self { first: Pfn(taken), slots, flush_cycles: of.flush_cycles.into() }))
    }

    /// The first frame behind it.
    pub fn end(&self) -> Pfn {
        Pfn(self.first.0 + ((self.slots.len() as u64 * SLOT_BYTES) >> FRAME_SHIFT))
    }

    /// Number of a page's slot, and its tag.
    fn place(&self, asid: Asid, va: VirtAddr) -> (usize, u64) {
        let page = va.0 >> FRAME_SHIFT;
        let tag = VALID | u64::from(asid.0) << 45 | page;
        let group = (tag / SLOTS_PER_LINE).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let lines = self.slots.len() as u64 / SLOTS_PER_LINE;
        // The upper bits of a product depend on all of the number's.
        let line = ((u128::from(group) * u128::from(lines)) >> 64) as u64;
        ((line * SLOTS_PER_LINE + page % SLOTS_PER_LINE) as usize, tag)
    }

    fn address(&self, slot: usize) -> MachineAddr {
        MachineAddr(self.first.addr().0 + slot as u64 * SLOT_BYTES)
    }
}

/// What speculation did for the programs' completed walks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpeculationCounters {
    pub right: u64,
    /// Another frame was found, or a page fault.
    pub wrong: u64,
    /// Slots that were not the page's, or did not allow the access.
    pub missed: u64,
    /// Slots written.
    pub updates: u64,
    /// References that the core waited for.
    pub critical_refs: u64,
    /// Those of walks, look-ups and updates.
    pub all_refs: u64,
    /// Cycles of walks that the core did not wait for.
    pub hidden_cycles: Cycles,
}

impl Hardware {
    /// A whole walk beside a look-up in the speculative table of layer `machine`, and its place in the counters.
    #[inline(never)]
    pub(crate) fn walk_speculatively(
        &mut self,
        layers: &mut [Layer],
        machine: u16,
        wanted: &Wanted,
        cycles: &mut Cycles,
    ) -> Result<Translation, Faulted> {
        let &Wanted { core, space, va, intent, origin } = wanted;
        let asid = layers[usize::from(space.layer)].spaces[space.index as usize].asid;
        let table = table_of(layers, machine);
        let (slot, tag) = table.place(asid, va);
        let (address, [held_tag, word], flush) = (table.address(slot), table.slots[slot], table.flush_cycles);
        let look_up = self.system_ref(core, address, false, false, Requester::Walk).cycles;
        let held = (held_tag == tag).then(|| Translation::<MachineAddr>::from_word(word));
        let usable = held.filter(|held| intent != Intent::Store || held.stores());

        self.walks.log.clear();
        let mut spent = 0;
        let walked = self.walk_to_machine(layers, core, space, va, intent, &mut spent);
        let refs = self.walks.log.len() as u64;
        let Ok(found) = walked else {
            let waited = spent + if usable.is_some() { flush } else { 0 };
            self.speculation.wrong += u64::from(usable.is_some() && origin == Origin::Program);
            self.walks.finish(|w| &mut w.aborted, waited);
            *cycles += waited;
            return Err(Faulted);
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
        self.walks.finish(if origin == Origin::Program { |w| &mut w.program } else { |w| &mut w.kernel }, waited);
        *cycles += waited;
        Ok(found)
    }
}

fn table_of(layers: &mut [Layer], machine: u16) -> &mut SpeculativeTable {
    layers[usize::from(machine)].speculative_table.as_mut().expect("it was set aside at boot")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_share_a_line_and_spaces_do_not() {
        let table = SpeculativeTable { first: Pfn(7), slots: vec![[0; 2]; 1 << 12], flush_cycles: 0 };
        assert_eq!(table.end(), Pfn(7 + 16));
        let line = |asid, page: u64| table.address(table.place(Asid(asid), VirtAddr(page << FRAME_SHIFT)).0).line();
        assert_eq!(line(1, 400), line(1, 403));
        let lines: std::collections::BTreeSet<_> = (0..100).map(|group| line(1, 4 * group)).collect();
        assert!(lines.len() > 85, "{} lines of 100 groups in 1024", lines.len());
        assert_ne!(line(1, 400), line(2, 400));
        let tags = [(1, 400), (2, 400), (1, 401)].map(|(asid, page)| table.place(Asid(asid), VirtAddr(page << 12)).1);
        assert!(tags[0] != tags[1] && tags[0] != tags[2] && tags[1] != tags[2]);
    }
}
