//! Shadow paging: the hypervisor keeps a second copy of a guest's page tables, whose entries hold machine frames.
//!
//! Models: the walker reads the shadow table of an address space and never the guest's. A walk makes as many references
//! as the guest's table has levels, at machine addresses, counted for the host. If the shadow table has no entry, or
//! none that allows the store, the guest exits and the hypervisor reads the guest's table. A page that the guest has
//! not mapped is a page fault of the guest; a page that the host has not mapped is a page fault of the host. Otherwise
//! the hypervisor enters the translation, with the smaller of both page sizes, writable once the page is dirty in both
//! tables, and the access is retried. The guest also exits when its handler writes a page-table entry, when it
//! invalidates translations (one exit per page, or one for the whole space), and when it switches address spaces.
//! Source: Adams, Agesen, ASPLOS 2006; Linux arch/x86/kvm/mmu (`FNAME(page_fault)`, `kvm_mmu_page_unsync`,
//! Documentation/virt/kvm/x86/mmu.rst), as summarised by Yaniv, Tsafrir, SIGMETRICS 2016, 2.2.
//! Parameters: `system.layers.NAME.host_mode`; `kernel.vm_exit_cycles` for an exit, beyond the references of its work.
//! Stats: `shadow.exits` and what caused them, `shadow.exit_cycles`.
//! Deviations: an exit that the walker causes is simulated within the translation, without interruption. All entries
//! that one step of a handler writes cost one exit together: KVM lets a guest write freely to a leaf table after the
//! first write. Shadow tables are not shared between spaces, are dropped for lack of memory only if there is none left,
//! and only work on a host that runs on the bare machine.

use crate::hardware::Hardware;
use crate::walker::{Faulted, TranslationRequest};
use pagelab_base::addr::{MachineAddr, PhysAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::{CoreId, LayerId, SpaceId};
use pagelab_base::page_fault::{Intent, PageFault};
use pagelab_base::translation::Translation;
use pagelab_hardware::cache::Requester;
use pagelab_kernel::context::KernelContext;
use pagelab_kernel::frames::frame_alloc::FramePurpose;
use pagelab_kernel::layer::{Layer, is_backed};
use pagelab_kernel::vma::VaRange;
use pagelab_tables::page_table::{Leaf, Mapping, PageTable, PteFlags, TableBlock, WalkList};

impl Hardware {
    /// Walks the shadow table of a space and counts the walk; exits to the hypervisor until there is a translation.
    #[inline(never)]
    pub fn walk_shadowed(
        &mut self,
        layers: &mut [Layer],
        wanted: &TranslationRequest,
        cycles: &mut Cycles,
    ) -> Result<Translation, Faulted> {
        let &TranslationRequest { cpu, core, space, va, intent, origin, pc: _ } = wanted;
        let host = layers[space.layer].host.expect("a shadowed layer has a host");
        let context = KernelContext::on(cpu);
        drop_changed(context, layers, space.layer, host);
        loop {
            self.walks.log.clear();
            let mut spent = Cycles::ZERO;
            let found = self.walk_shadow(layers, core, space, host, va, &mut spent);
            if let Some(found) = found.filter(|found| intent != Intent::Store || found.stores()) {
                *cycles += spent;
                self.walks.complete(origin, spent);
                return Ok(found);
            }
            let mut exit = self.vm_exit_cycles;
            let filled = self.fill_shadow(layers, wanted, host, &mut exit);
            // The host already had the page before the run, so this exit never happened.
            if let Err(Faulted(fault)) = &filled
                && is_backed(layers, fault)
            {
                return filled.map(|(found, _)| found);
            }
            self.walks.abort(origin, spent);
            *cycles += spent;
            self.shadow.misses += 1;
            self.shadow.cycles += exit;
            *cycles += exit;
            let (found, entered) = filled?;
            if !entered {
                return Ok(found);
            }
        }
    }

    /// Walks the shadow table; `None` if it has no entry.
    fn walk_shadow(
        &mut self,
        layers: &[Layer],
        core: CoreId,
        space: SpaceId,
        host: SpaceId,
        va: VirtAddr,
        cycles: &mut Cycles,
    ) -> Option<Translation> {
        let layer = &layers[space.layer];
        let asid = layer.spaces[space.index].asid;
        let table = layer.mechanisms.shadows.tables.get(space.index.index())?.as_ref()?;
        let mem = &layers[host.layer].memory.contents;
        let mut list = WalkList::new();
        table.walk(mem, va, &mut list);
        let spared = self.mmu_caches.cache(core, space.layer).look_up(asid, va, &list);
        *cycles += spared.cycles;
        for (n, r) in list.refs().iter().enumerate() {
            let entry = MachineAddr(r.addr.0);
            let cached = spared.by_entry && n + 1 < list.refs().len();
            let held = u64::from(spared.skip).checked_shr(n as u32).is_some_and(|skip| skip & 1 != 0)
                || cached && self.mmu_caches.cache(core, space.layer).holds(entry, cycles);
            if !held {
                let done = self.system_ref(core, entry, false, false, Requester::Walk);
                *cycles += done.cycles;
                self.walks.note(host.layer, r.level, done.served, done.cycles);
            }
        }
        self.mmu_caches.cache(core, space.layer).fill(asid, va, &list, list.refs().len(), spared.skip, mem);
        match list.leaf {
            Leaf::Present(mapping) => Some(Translation::from_mapping(&mapping).on_bare_machine()),
            Leaf::NotPresent { .. } => None,
        }
    }

    /// Enters a translation in the shadow table, as the hypervisor does after an exit. Fails if guest or host does not
    /// map the page. Returns the translation, and whether it was entered: not if the host has no memory for the table.
    fn fill_shadow(
        &mut self,
        layers: &mut [Layer],
        wanted: &TranslationRequest,
        host: SpaceId,
        cycles: &mut Cycles,
    ) -> Result<(Translation, bool), Faulted> {
        let (found, flags) = self.resolve_for_shadow(layers, wanted, host, cycles)?;
        let &TranslationRequest { cpu, core, space, va, .. } = wanted;
        let entered = enter(KernelContext::on(cpu), layers, (space, host), va, found, flags);
        if let Some(entry) = entered {
            *cycles += self.system_ref(core, MachineAddr(entry.0), true, true, Requester::Kernel).cycles;
        }
        Ok((found, entered.is_some()))
    }

    /// Finds the translation of a guest's page as the hypervisor does after an exit: reads the guest's table, and sets
    /// its accessed and dirty bits. Fails if guest or host does not map the page. Returns the translation and the
    /// guest's flags.
    pub(super) fn resolve_for_shadow(
        &mut self,
        layers: &mut [Layer],
        wanted: &TranslationRequest,
        host: SpaceId,
        cycles: &mut Cycles,
    ) -> Result<(Translation, PteFlags), Faulted> {
        let &TranslationRequest { core, space, va, intent, .. } = wanted;
        let store = intent == Intent::Store;
        let guest = &layers[space.layer];
        let mut list = WalkList::new();
        guest.spaces[space.index].table.walk(&guest.memory.contents, va, &mut list);
        let mut entry = MachineAddr::default();
        for r in list.refs() {
            entry = self.in_host(layers, host, r.addr, false)?.address(VirtAddr(r.addr.0));
            *cycles += self.system_ref(core, entry, false, false, Requester::Kernel).cycles;
        }
        let Leaf::Present(mut mapping) = list.leaf else { return fault_at(space, va, intent) };
        if store && !mapping.flags.writable {
            return fault_at(space, va, intent);
        }
        if !mapping.flags.accessed || store && !mapping.flags.dirty {
            mapping.flags.accessed = true;
            mapping.flags.dirty |= store;
            let guest = &mut layers[space.layer];
            guest.spaces[space.index].table.set_flags(&mut guest.memory.contents, va, mapping.flags);
            *cycles += self.system_ref(core, entry, true, true, Requester::Kernel).cycles;
        }
        let guest = Translation::from_mapping(&mapping);
        let found = guest.through(va, self.in_host(layers, host, guest.address(va), store)?);
        Ok((found, mapping.flags))
    }

    /// Looks up a guest page in the host's table and sets its accessed and dirty bits. Costs no walk: the hypervisor
    /// knows the address from its memory slots.
    pub(super) fn in_host(
        &mut self,
        layers: &mut [Layer],
        host: SpaceId,
        addr: PhysAddr,
        store: bool,
    ) -> Result<Translation, Faulted> {
        let (va, layer) = (VirtAddr(addr.0), &mut layers[host.layer]);
        let table = &mut layer.spaces[host.index].table;
        let mut list = WalkList::new();
        table.walk(&layer.memory.contents, va, &mut list);
        match list.leaf {
            Leaf::Present(mut mapping) if mapping.flags.writable || !store => {
                if !mapping.flags.accessed || store && !mapping.flags.dirty {
                    mapping.flags.accessed = true;
                    mapping.flags.dirty |= store;
                    table.set_flags(&mut layer.memory.contents, va, mapping.flags);
                }
                Ok(Translation::from_mapping(&mapping).on_bare_machine())
            }
            _ => fault_at(host, va, if store { Intent::Store } else { Intent::Load }),
        }
    }
}

fn fault_at<T>(space: SpaceId, va: VirtAddr, intent: Intent) -> Result<T, Faulted> {
    Err(PageFault { space, va, intent, reached: None }.into())
}

/// Writes a translation into the shadow table, replacing what is there. Returns the address of the entry, or `None` if
/// there is no memory for the table.
fn enter(
    context: KernelContext,
    layers: &mut [Layer],
    (space, host): (SpaceId, SpaceId),
    va: VirtAddr,
    found: Translation,
    guest: PteFlags,
) -> Option<PhysAddr> {
    let (size, guest_layer) = (found.size(), &mut layers[space.layer]);
    let levels = guest_layer.spaces[space.index].table.levels();
    let tables = &mut guest_layer.mechanisms.shadows.tables;
    tables.resize_with(tables.len().max(space.index.index() + 1), || None);
    let mut kept = tables[space.index].take();
    let host_layer = &mut layers[host.layer];
    if kept.is_none() {
        kept = host_layer.new_shadow_table(context, levels);
    }
    let mut entry = None;
    if let Some(table) = &mut kept {
        let page = VirtAddr(va.0 & !size.offset_mask() & ((1 << table.va_bits()) - 1));
        let end = page + size.bytes();
        drop_pages(context, host_layer, table, VaRange { start: page, end });
        let mut built = true;
        while built && table.missing_tables(&host_layer.memory.contents, page, size) > 0 {
            let frame = host_layer.memory.frames.alloc(0, FramePurpose::PageTable, context.cpu);
            built = frame.is_some();
            if let Some(frame) = frame {
                host_layer.memory.contents.create(frame);
                let block = TableBlock::frame(frame);
                table.link_table(&mut host_layer.memory.contents, page, size, block).expect("a table is missing");
            }
        }
        if built {
            let flags = PteFlags { writable: found.writable(), dirty: found.stores(), accessed: true, ..guest };
            let mapping = Mapping { pfn: PhysAddr(found.page().0).pfn(), size, flags };
            entry = Some(
                table
                    .map(&mut host_layer.memory.contents, page, mapping)
                    .expect("a radix table has room for every page"),
            );
        }
    }
    layers[space.layer].mechanisms.shadows.tables[space.index] = kept;
    entry
}

/// Removes the entries that overlap a range, and tables that become empty.
fn drop_pages(context: KernelContext, host: &mut Layer, table: &mut PageTable, range: VaRange) {
    let mut pages = Vec::new();
    table.mapped(&host.memory.contents, range.start, range.end, usize::MAX, &mut pages);
    for page in pages {
        table.unmap(&mut host.memory.contents, page.va);
    }
    let cpu = context.cpu;
    let (parts, room) = ((range.start, range.end), (VaRange::ALL.start, VaRange::ALL.end));
    table.prune(&mut host.memory.contents, parts, room, &mut |pfn| host.memory.frames.free(pfn, 0, cpu));
}

/// Removes the entries of pages that the guest has changed since.
fn drop_changed(context: KernelContext, layers: &mut [Layer], layer: LayerId, host: SpaceId) {
    let shadows = &mut layers[layer].mechanisms.shadows;
    for (index, range) in std::mem::take(&mut shadows.changed) {
        let shadows = &mut layers[layer].mechanisms.shadows;
        let Some(mut table) = shadows.tables[index].take() else { continue };
        let end = VirtAddr(range.end.0.min(1 << table.va_bits()));
        drop_pages(context, &mut layers[host.layer], &mut table, VaRange { start: range.start, end });
        layers[layer].mechanisms.shadows.tables[index] = Some(table);
    }
}
