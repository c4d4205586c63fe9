//! Address translation: TLBs, MMU caches and the page-table walker, over any number of layers.
//!
//! [`Hardware::translate`] is what a core does for one access. A walk of a space reads page-table entries at physical
//! addresses of its layer; each of them, and the address that the leaf gives, is translated by the layer's host, which
//! may walk in turn. With radix tables of L levels and no caches, d layers make (L+1)^d - 1 references. The walk stops
//! at the first translation that some layer's kernel must provide; that kernel's fault handler runs, and the access is
//! translated again from the start, as hardware restarts an instruction.

use crate::addr::{Cycles, FRAME_BYTES, FRAME_SHIFT, MachineAddr, PageSize, PhysAddr, VirtAddr};
use crate::assoc::INVALID_KEY;
use crate::cache::{Requester, Served};
use crate::hardware::Hardware;
use crate::layer::{Layer, SpaceId};
use crate::page_table::{Leaf, Mapping, WalkList};
use crate::tlb::Translation;

/// Why an address is translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    Load,
    Store,
    Fetch,
}

/// On whose behalf: a program's access, or a kernel's reference through its direct map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Program,
    Kernel,
}

/// A translation that a kernel must provide or refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFault {
    pub space: SpaceId,
    pub va: VirtAddr,
    pub intent: Intent,
}

/// Levels that references are counted by: 1 to 5, index 0 unused.
pub const WALK_LEVELS: usize = 6;
/// Places that references are counted by: the five of the caches, and one for references that left the caches alone.
pub const WALK_PLACES: usize = 6;

/// Counters of completed walks of one kind.
#[derive(Clone, Debug, Default)]
pub struct WalkCounts {
    pub count: u64,
    pub cycles: Cycles,
    /// By layer, level and place.
    pub refs: Vec<[[u64; WALK_PLACES]; WALK_LEVELS]>,
}

/// Counters of all walks. A walk that ends in a page fault is counted as aborted only.
#[derive(Clone, Debug)]
pub struct WalkCounters {
    pub program: WalkCounts,
    pub kernel: WalkCounts,
    pub aborted: WalkCounts,
    /// Locked updates of accessed and dirty bits, not among the references above.
    pub ad_updates: u64,
    /// Program walks that only set a dirty bit: their page was in a TLB.
    pub dirty_walks: u64,
    /// References of the walk under way.
    log: Vec<LoggedRef>,
}

#[derive(Clone, Copy, Debug)]
struct LoggedRef {
    layer: u16,
    level: u8,
    place: u8,
}

impl WalkCounters {
    pub fn new(layers: usize) -> Self {
        let counts = || WalkCounts { refs: vec![Default::default(); layers], ..WalkCounts::default() };
        Self {
            program: counts(),
            kernel: counts(),
            aborted: counts(),
            ad_updates: 0,
            dirty_walks: 0,
            log: Vec::with_capacity(1024),
        }
    }

    fn finish(&mut self, kind: fn(&mut Self) -> &mut WalkCounts, cycles: Cycles) {
        let log = std::mem::take(&mut self.log);
        let counts = kind(self);
        counts.count += 1;
        counts.cycles += cycles;
        for r in &log {
            counts.refs[usize::from(r.layer)][usize::from(r.level)][usize::from(r.place)] += 1;
        }
        self.log = log;
    }
}

/// Index of a place in [`WalkCounts::refs`].
pub fn place_index(served: Option<Served>) -> usize {
    match served {
        Some(Served::L1) => 0,
        Some(Served::L2) => 1,
        Some(Served::L3) => 2,
        Some(Served::Dram) => 3,
        Some(Served::Remote) => 4,
        None => 5,
    }
}

/// A physical address of a layer, as far down as the machine.
#[derive(Clone, Copy)]
struct OnMachine {
    addr: MachineAddr,
    /// The smallest page on the way.
    size: PageSize,
    writable: bool,
    dirty: bool,
}

impl Hardware {
    /// Translates `va` of `space` for a core, filling its TLBs. Returns the translation, and the cycles spent beyond a
    /// first-level TLB hit, also for a fault.
    #[inline]
    pub fn translate(
        &mut self,
        layers: &mut [Layer],
        core: usize,
        space: SpaceId,
        va: VirtAddr,
        intent: Intent,
        origin: Origin,
        cycles: &mut Cycles,
    ) -> Result<Translation, PageFault> {
        let asid = layers[usize::from(space.layer)].spaces[space.index as usize].asid;
        let unit = &mut self.units[core];
        let first = if intent == Intent::Fetch { &mut unit.l1i } else { &mut unit.l1d };
        let held = first.look_up(asid, va, origin);
        match held {
            Some(hit) if intent != Intent::Store || hit.stores() => Ok(hit),
            _ => self.translate_beyond_l1(layers, core, space, va, intent, origin, held.is_none(), cycles),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the arguments of `translate`, whose slow half this is")]
    #[inline(never)]
    fn translate_beyond_l1(
        &mut self,
        layers: &mut [Layer],
        core: usize,
        space: SpaceId,
        va: VirtAddr,
        intent: Intent,
        origin: Origin,
        missed: bool,
        cycles: &mut Cycles,
    ) -> Result<Translation, PageFault> {
        let asid = layers[usize::from(space.layer)].spaces[space.index as usize].asid;
        let unit = &mut self.units[core];
        match (origin, intent) {
            (Origin::Kernel, _) => unit.tlb.kernel_l1_misses += 1,
            (_, Intent::Fetch) => unit.tlb.l1i_misses += 1,
            _ => unit.tlb.l1d_misses += 1,
        }
        *cycles += self.l2_tlb_latency;
        let held = unit.l2.look_up(asid, va, origin);
        let translation = match held {
            Some(hit) if intent != Intent::Store || hit.stores() => hit,
            _ => {
                match (origin, intent) {
                    (Origin::Kernel, _) => unit.tlb.kernel_l2_misses += 1,
                    (_, Intent::Fetch) => unit.tlb.l2i_misses += 1,
                    _ => unit.tlb.l2d_misses += 1,
                }
                let translation = self.walk_all(layers, core, space, va, intent, origin, cycles)?;
                if held.is_some() && origin == Origin::Program {
                    self.walks.dirty_walks += 1;
                }
                self.units[core].l2.insert(asid, va, &translation, origin, held.is_none());
                translation
            }
        };
        let unit = &mut self.units[core];
        let first = if intent == Intent::Fetch { &mut unit.l1i } else { &mut unit.l1d };
        first.insert(asid, va, &translation, origin, missed);
        Ok(translation)
    }

    /// A whole walk, from the space's root to the machine.
    #[expect(clippy::too_many_arguments, reason = "the arguments of `translate`")]
    fn walk_all(
        &mut self,
        layers: &mut [Layer],
        core: usize,
        space: SpaceId,
        va: VirtAddr,
        intent: Intent,
        origin: Origin,
        cycles: &mut Cycles,
    ) -> Result<Translation, PageFault> {
        self.walks.log.clear();
        let mut spent = 0;
        let walked = self.walk(layers, core, space, va, intent, &mut spent).and_then(|mapping| {
            let addr = within(&mapping, va);
            let machine = self.on_machine(layers, core, space.layer, addr, intent == Intent::Store, &mut spent)?;
            Ok((mapping, machine))
        });
        *cycles += spent;
        let (mapping, machine) = match walked {
            Ok(found) => found,
            Err(fault) => {
                self.walks.finish(|w| &mut w.aborted, spent);
                return Err(fault);
            }
        };
        match origin {
            Origin::Program => self.walks.finish(|w| &mut w.program, spent),
            Origin::Kernel => self.walks.finish(|w| &mut w.kernel, spent),
        }
        let size = mapping.size.min(machine.size);
        Ok(Translation {
            page: MachineAddr(machine.addr.0 & !(size.bytes() - 1)),
            size,
            writable: mapping.flags.writable && machine.writable,
            dirty: mapping.flags.dirty && machine.dirty,
        })
    }

    /// Walks the page table of one space; every reference is translated by the layer's host.
    fn walk(
        &mut self,
        layers: &mut [Layer],
        core: usize,
        space: SpaceId,
        va: VirtAddr,
        intent: Intent,
        cycles: &mut Cycles,
    ) -> Result<Mapping, PageFault> {
        let layer = &layers[usize::from(space.layer)];
        let of = &layer.spaces[space.index as usize];
        let asid = of.asid;
        let mut list = WalkList::new();
        of.table.walk(&layer.mem, va, &mut list);
        let spared = self.units[core].mmu_caches[usize::from(space.layer)].look_up(asid, va, &list);
        *cycles += spared.cycles;
        // References of one dependency step overlap: the step costs its slowest.
        let (mut step, mut step_cycles) = (u8::MAX, 0);
        let mut leaf_entry = MachineAddr::default();
        for (n, r) in list.refs().iter().enumerate() {
            if n < 32 && spared.skip >> n & 1 != 0 {
                continue;
            }
            let mut spent = 0;
            let entry = match self.on_machine(layers, core, space.layer, r.addr, false, &mut spent) {
                Ok(on_machine) => on_machine.addr,
                Err(fault) => {
                    *cycles += step_cycles + spent;
                    self.units[core].mmu_caches[usize::from(space.layer)].fill(asid, va, &list, n, spared.skip);
                    return Err(fault);
                }
            };
            let done = self.system_ref(core, entry, false, false, Requester::Walk);
            spent += done.cycles;
            let place = place_index(done.served) as u8;
            self.walks.log.push(LoggedRef { layer: space.layer, level: r.level, place });
            if r.step == step {
                step_cycles = spent.max(step_cycles);
            } else {
                *cycles += step_cycles;
                (step, step_cycles) = (r.step, spent);
            }
            leaf_entry = entry;
        }
        *cycles += step_cycles;
        self.units[core].mmu_caches[usize::from(space.layer)].fill(asid, va, &list, list.refs().len(), spared.skip);
        let store = intent == Intent::Store;
        let mut mapping = match list.leaf {
            Leaf::Present(mapping) if mapping.flags.writable || !store => mapping,
            _ => return Err(PageFault { space, va, intent }),
        };
        if !mapping.flags.accessed || store && !mapping.flags.dirty {
            mapping.flags.accessed = true;
            mapping.flags.dirty |= store;
            let layer = &mut layers[usize::from(space.layer)];
            layer.spaces[space.index as usize].table.set_flags(&mut layer.mem, va, mapping.flags);
            *cycles += self.system_ref(core, leaf_entry, true, true, Requester::Walk).cycles;
            self.walks.ad_updates += 1;
        }
        Ok(mapping)
    }

    /// Translates a physical address of a layer down to the machine.
    #[inline]
    fn on_machine(
        &mut self,
        layers: &mut [Layer],
        core: usize,
        layer: u16,
        addr: PhysAddr,
        store: bool,
        cycles: &mut Cycles,
    ) -> Result<OnMachine, PageFault> {
        match layers[usize::from(layer)].host {
            None => Ok(OnMachine { addr: MachineAddr(addr.0), size: PageSize::Size1G, writable: true, dirty: true }),
            Some(host) => self.through_host(layers, core, layer, host, addr, store, cycles),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the arguments of `on_machine` and the host")]
    fn through_host(
        &mut self,
        layers: &mut [Layer],
        core: usize,
        layer: u16,
        host: SpaceId,
        addr: PhysAddr,
        store: bool,
        cycles: &mut Cycles,
    ) -> Result<OnMachine, PageFault> {
        let frame = addr.0 >> FRAME_SHIFT;
        let key = frame << 16 | u64::from(layer);
        debug_assert_ne!(key, INVALID_KEY);
        let unit = &mut self.units[core];
        if let Some(nested) = &mut unit.nested {
            unit.tlb.nested_look_ups += 1;
            *cycles += self.nested_tlb_latency;
            if let Some(value) = nested.lookup(frame, key) {
                let hit = NestedEntry::unpack(value);
                if !store || hit.writable && hit.dirty {
                    return Ok(OnMachine { addr: MachineAddr(hit.addr.0 | addr.0 & (FRAME_BYTES - 1)), ..hit });
                }
            }
            unit.tlb.nested_misses += 1;
        }
        let intent = if store { Intent::Store } else { Intent::Load };
        let va = VirtAddr(addr.0);
        let mapping = self.walk(layers, core, host, va, intent, cycles)?;
        let below = self.on_machine(layers, core, host.layer, within(&mapping, va), store, cycles)?;
        let found = OnMachine {
            addr: below.addr,
            size: mapping.size.min(below.size),
            writable: mapping.flags.writable && below.writable,
            dirty: mapping.flags.dirty && below.dirty,
        };
        if let Some(nested) = &mut self.units[core].nested {
            nested.insert(frame, key, NestedEntry::pack(&found));
        }
        Ok(found)
    }

    /// Translates a physical address of a layer without a TLB, as hardware engines do. Faults of the hosts only.
    pub fn physical(
        &mut self,
        layers: &mut [Layer],
        core: usize,
        layer: u16,
        addr: PhysAddr,
        store: bool,
        cycles: &mut Cycles,
    ) -> Result<MachineAddr, PageFault> {
        self.on_machine(layers, core, layer, addr, store, cycles).map(|found| found.addr)
    }
}

/// The physical address that a mapping gives a virtual one.
#[inline]
fn within(mapping: &Mapping, va: VirtAddr) -> PhysAddr {
    PhysAddr(mapping.pfn.addr().0 | va.0 & (mapping.size.bytes() - 1))
}

/// Packing of a nested TLB's entries: frame address, and in the low bits size, writable, dirty.
struct NestedEntry;

impl NestedEntry {
    fn pack(found: &OnMachine) -> u64 {
        let flags = found.size as u64 | u64::from(found.writable) << 2 | u64::from(found.dirty) << 3;
        found.addr.0 & !(FRAME_BYTES - 1) | flags
    }

    fn unpack(value: u64) -> OnMachine {
        OnMachine {
            addr: MachineAddr(value & !(FRAME_BYTES - 1)),
            size: PageSize::ALL[(value & 3) as usize],
            writable: value & 4 != 0,
            dirty: value & 8 != 0,
        }
    }
}
