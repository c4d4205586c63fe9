//! Do-it-yourself translation: walks of a program's own arrays, checked against tags of machine frames.
//!
//! Models: a walk in a region (`pagelab_tables`, `page_table/do_it_yourself.rs`) reads one entry, natively and in a
//! guest: entries and the region's register hold machine addresses. What a program may use is decided apart from that.
//! Each machine frame has a tag in a table of the machine's own layer, with the virtual machine and the process that
//! own it. The core compares the tag with the running process. A tag cache per core holds lines of 16 tags; a miss of
//! it is one more reference. With `check = "overlapped"` the access goes on meanwhile, with `"waited"` it waits. The
//! hypervisor gives a guest its memory in aligned blocks of `grant_bytes`. The first walk to a frame of a block is an
//! exit (`kernel.vm_exit_cycles`), in which the hypervisor writes the tags of all frames of the block that it backs
//! and tells the guest where they are. A frame that the host has moved or swapped out since then, or that it did not
//! back yet, is another exit. The kernel that gives a frame to a process writes the process into its tag, without an
//! exit; frames that are mapped read-only belong to anybody.
//! Source: Alam, Zhang, Erez, Etsion, "Do-It-Yourself Virtual Memory Translation", ISCA 2017, of which only the
//! abstract was at hand: translation is decoupled from permissions, which stay with the operating system, and
//! two-dimensional walks collapse. The tags, their cache, the grants and all sizes are this project's choice.
//! Parameters: `system.layers.NAME.frame_tags` (`cache_entries`, `cache_ways`, `latency_cycles`, `check`,
//! `grant_bytes`), of the machine's own layer. Without it, arrays are walked as tables are: natively one reference
//! without a check, in a guest of a 4-level host nine.
//! Stats: `frame_tags.*`. `walk.refs` has the reference to the entry alone.
//! Deviations: the kernel's write of a process into a tag is charged to the first walk that needs it, not to the fault
//! that gave the frame away. What an exit does is simulated within the translation. Writing machine frames into the
//! entries costs nothing beyond the exit. To the host, frames of regions are accessed and dirty. MMU caches, nested
//! and guest TLBs are not asked. A walk that the check refuses does not occur, as programs write no entries of their
//! own.

use crate::hardware::Hardware;
use crate::walker::{Faulted, TranslationRequest};
use pagelab_base::addr::{FRAME_SHIFT, MachineAddr, Pfn, PhysAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::{CoreId, LayerId, SpaceId};
use pagelab_base::page_fault::{Intent, PageFault};
use pagelab_base::translation::Translation;
use pagelab_hardware::cache::Requester;
use pagelab_kernel::config::Backing;
use pagelab_kernel::frame_tags::FrameTags;
use pagelab_kernel::layer::{Layer, is_backed};
use pagelab_tables::page_table::{Leaf, Mapping, WalkList};

impl Hardware {
    /// Whether a region with tagged frames translates an address.
    #[inline]
    pub fn walks_region(&self, layers: &[Layer], wanted: &TranslationRequest) -> bool {
        let &TranslationRequest { space, va, .. } = wanted;
        self.tag_checks.is_some() && layers[space.layer].spaces[space.index].table.translates_by_region(va)
    }

    /// Walks a region's array and counts the walk.
    #[inline(never)]
    pub fn walk_region(
        &mut self,
        layers: &mut [Layer],
        wanted: &TranslationRequest,
        cycles: &mut Cycles,
    ) -> Result<Translation, Faulted> {
        self.walks.log.clear();
        let (mut spent, mut exit) = (Cycles::ZERO, Cycles::ZERO);
        let walked = self.walk_array(layers, wanted, &mut spent, &mut exit);
        match &walked {
            Ok(_) => self.walks.complete(wanted.origin, spent),
            // The host already had the page before the run, so this walk never happened.
            Err(Faulted(fault)) if is_backed(layers, fault) => return walked,
            Err(_) => self.walks.abort(wanted.origin, spent),
        }
        *cycles += spent + exit;
        walked
    }

    fn walk_array(
        &mut self,
        layers: &mut [Layer],
        wanted: &TranslationRequest,
        cycles: &mut Cycles,
        exit: &mut Cycles,
    ) -> Result<Translation, Faulted> {
        let &TranslationRequest { core, space, va, intent, .. } = wanted;
        let layer = &layers[space.layer];
        let (host, asid) = (layer.host, layer.spaces[space.index].asid);
        let mut list = WalkList::new();
        layer.spaces[space.index].table.walk(&layer.memory.contents, va, &mut list);
        let read = *list.refs().last().expect("a walk reads an entry at least");
        let entry = self.on_machine_directly(layers, host, read.addr)?;
        let store = intent == Intent::Store;
        let mapping = match list.leaf {
            Leaf::Present(mapping) if mapping.flags.writable || !store => mapping,
            _ => {
                self.read_entry(core, space, entry, cycles);
                let reached = layers[space.layer].reached(space.index, &list);
                return Err(PageFault { space, va, intent, reached }.into());
            }
        };
        // Before anything is charged: a frame that the host does not back yet is a fault first.
        let below = host.map(|host| self.in_host(layers, host, mapping.pfn.addr(), true)).transpose()?;
        if let (Some(host), Some(below)) = (host, below) {
            let machine = below.address(VirtAddr(mapping.pfn.addr().0));
            let known = self.tags(layers).knows(space.layer, mapping.pfn, Pfn(machine.0 >> FRAME_SHIFT));
            if !known && layers[space.layer].paging.backing == Backing::Present {
                self.back_block(layers, (space.layer, host), mapping.pfn)?;
            }
        }
        self.read_entry(core, space, entry, cycles);
        let marked = mapping.flags.accessed && (mapping.flags.dirty || !store);
        let mapping: Mapping =
            if marked { mapping } else { self.mark(layers, core, space, va, mapping, store, entry, cycles) };
        let found = Translation::from_mapping(&mapping);
        let translation = below.map_or(found.on_bare_machine(), |below| found.through(va, below));
        let machine = Pfn(translation.page().0 >> FRAME_SHIFT);
        if let Some(host) = host
            && !self.tags(layers).knows(space.layer, mapping.pfn, machine)
        {
            *exit += self.grant(layers, core, (space.layer, host), mapping.pfn);
        }
        self.check_tag(layers, core, machine, |tags| tags.give(machine, asid, !mapping.flags.writable), cycles);
        if let Some(checks) = &mut self.tag_checks {
            checks.counters.walks += 1;
        }
        Ok(translation)
    }

    /// Machine address of an entry: the register of the region holds it.
    fn on_machine_directly(
        &mut self,
        layers: &mut [Layer],
        host: Option<SpaceId>,
        addr: PhysAddr,
    ) -> Result<MachineAddr, Faulted> {
        match host {
            None => Ok(MachineAddr(addr.0)),
            Some(host) => {
                let page = self.in_host(layers, host, addr, true)?;
                Ok(page.address(VirtAddr(addr.0)))
            }
        }
    }

    fn read_entry(&mut self, core: CoreId, space: SpaceId, entry: MachineAddr, cycles: &mut Cycles) {
        let done = self.system_ref(core, entry, false, false, Requester::Walk);
        self.walks.note(space.layer, 1, done.served, done.cycles);
        *cycles += done.cycles;
    }

    fn tags<'a>(&self, layers: &'a mut [Layer]) -> &'a mut FrameTags {
        let machine = self.tag_checks.as_ref().expect("only regions with tags are walked so").machine;
        layers[machine].mechanisms.frame_tags.as_mut().expect("they were set aside at boot")
    }

    /// The frames of the block in which a frame of a guest is given.
    fn block(&self, layer: &Layer, frame: Pfn) -> std::ops::Range<u64> {
        let frames = self.tag_checks.as_ref().map_or(1, |checks| checks.grant_frames);
        let first = frame.0 / frames * frames;
        first..(first + frames).min(layer.memory.frame_count)
    }

    /// Makes sure that the host maps a block of a guest that has had its memory since before the run. Fails for the
    /// first frame that it does not map yet, which costs nothing.
    fn back_block(
        &mut self,
        layers: &mut [Layer],
        (guest, host): (LayerId, SpaceId),
        frame: Pfn,
    ) -> Result<(), Faulted> {
        for frame in self.block(&layers[guest], frame).map(Pfn) {
            if mapped_frame(&layers[host.layer], host, frame).is_none()
                && let Err(fault) = self.in_host(layers, host, frame.addr(), true)
                && is_backed(layers, &fault.0)
            {
                return Err(fault);
            }
        }
        Ok(())
    }

    /// The exit in which the hypervisor tells a guest where the frames of a block are, and writes their tags. Returns
    /// its cycles.
    fn grant(&mut self, layers: &mut [Layer], core: CoreId, (guest, host): (LayerId, SpaceId), frame: Pfn) -> Cycles {
        let (mut cycles, mut line, mut told) = (self.vm_exit_cycles, None, 0);
        for frame in self.block(&layers[guest], frame).map(Pfn) {
            let Some(machine) = mapped_frame(&layers[host.layer], host, frame) else { continue };
            let tags = self.tags(layers);
            if !tags.tell(guest, frame, machine) {
                continue;
            }
            told += 1;
            let (number, addr) = tags.line(machine);
            if line.replace(number) != Some(number) {
                cycles += self.system_ref(core, addr, true, false, Requester::Kernel).cycles;
            }
        }
        if let Some(checks) = &mut self.tag_checks {
            checks.counters.grants += 1;
            checks.counters.granted_frames += told;
            checks.counters.grant_cycles += cycles;
        }
        cycles
    }

    /// Looks up the tag of a frame in the core's cache or in memory, and has it written where it says something else.
    fn check_tag(
        &mut self,
        layers: &mut [Layer],
        core: CoreId,
        frame: Pfn,
        give: impl FnOnce(&mut FrameTags) -> bool,
        cycles: &mut Cycles,
    ) {
        let tags = self.tags(layers);
        let (line, addr) = tags.line(frame);
        let written = give(tags);
        let Some(checks) = &mut self.tag_checks else { return };
        let (mut spent, waited) = (checks.latency, checks.waited);
        let held = checks.caches[core].lookup(line, line).is_some();
        checks.counters.look_ups += 1;
        if !held {
            checks.caches[core].insert_absent(line, line, 0);
            checks.counters.refs += 1;
        }
        checks.counters.writes += u64::from(written);
        if !held {
            spent += self.system_ref(core, addr, false, false, Requester::Walk).cycles;
        }
        if waited {
            *cycles += spent;
        }
        if written {
            *cycles += self.system_ref(core, addr, true, false, Requester::Kernel).cycles;
        }
    }
}

/// The machine frame of a guest's frame, if the host maps it.
fn mapped_frame(layer: &Layer, host: SpaceId, frame: Pfn) -> Option<Pfn> {
    let va = VirtAddr(frame.addr().0);
    let mut list = WalkList::new();
    layer.spaces[host.index].table.walk(&layer.memory.contents, va, &mut list);
    match list.leaf {
        Leaf::Present(mapping) => Some(Translation::from_mapping(&mapping).address(va).pfn()),
        Leaf::NotPresent { .. } => None,
    }
}
