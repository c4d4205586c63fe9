//! kpted, the kernel thread that accounts for the pages that the unit has mapped.
//!
//! Models: a thread that wakes up periodically and walks the page tables of all served mappings. At a marked entry
//! above the leaves it clears the mark and goes through the entries below. For a marked leaf it does what a fault
//! handler would have done for the page, and clears the mark. Since it clears a mark before it descends, a mark that
//! the unit sets meanwhile leads there in the next pass. It reads entries by cache line.
//! Source: as in [`super`], the code on the slide "Updating OS Metadata for HWDP".
//! Parameters: `fault_engine.kpted_cycles`.
//! Choices: it also wakes up when memory is low. If a process reaches its cgroup's limit through these charges, the
//! thread reclaims memory, as every charging task does.

use crate::effects::Effects;
use crate::fault::stage::Stage;
use crate::fault_engine::kernel_side::UnaccountedPage;
use crate::fault_engine::smu::engine_access::{self, smu, smu_mut};
use crate::fault_engine::smu::state::LEAF;
use crate::layer::Layer;
use crate::locks::TaskId;
use crate::memory::page_metadata;
use crate::needs::Need;
use crate::os::Os;
use crate::reclaim::{Pressure, ReclaimScan};
use crate::scanning::{ScanProgress, Scanning};
use crate::threads::{Delay, EngineThread};
use pagelab_base::addr::{FRAME_BYTES, PageSize, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::{CpuId, DIRECT_MAP, LayerId, SpaceIx};
use pagelab_base::step::{Next, RefKind, Step};

/// Highest level of entries that it goes through: 1 GiB each, above 2 MiB and 4 KiB.
const TOP: u8 = 3;
/// Entries per cache line.
const LINE_ENTRIES: u64 = 8;

/// Bytes that an entry of a level covers.
fn reach(level: u8) -> u64 {
    FRAME_BYTES << (9 * (level - 1))
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum KptedState {
    /// Read the entries of a cache line, starting at `at`, and handle the marked ones.
    Line,
    /// A process is at its cgroup's limit.
    Reclaim(Scanning),
    WriteBack(Box<ReclaimScan>),
}

/// The thread, see the module's text.
#[derive(Clone, Debug)]
pub struct Kpted {
    layer: LayerId,
    cpu: CpuId,
    state: KptedState,
    /// Its position: a space, an address, and the level of the entries that it reads.
    space: SpaceIx,
    at: VirtAddr,
    level: u8,
    /// For each level above: where the part below its marked entry ends.
    until: [VirtAddr; TOP as usize + 1],
}

impl Kpted {
    /// The next served mapping at or after the current position; `None` if there is no more.
    fn mapping(&self, layer: &Layer) -> Option<(SpaceIx, VirtAddr)> {
        let mut from = self.at;
        for index in layer.spaces.numbers_from(self.space) {
            let space = &layer.spaces[index];
            let vma = space.vmas.iter().find(|vma| vma.end > from && layer.is_served(index, vma.start));
            if let Some(vma) = vma {
                return Some((index, from.max(vma.start)));
            }
            from = VirtAddr(0);
        }
        None
    }

    /// Whether the current space has ended.
    fn is_lost(&self, layer: &Layer) -> bool {
        self.level < TOP && layer.spaces[self.space].vmas.iter().next().is_none()
    }

    /// The addresses of the current cache line's entries, up to the end of the part below the marked entry.
    fn line(&self) -> impl Iterator<Item = VirtAddr> + use<> {
        let bytes = reach(self.level);
        let end = (self.at.0 | (bytes * LINE_ENTRIES - 1)) + 1;
        let end = if self.level == TOP { end } else { end.min(self.until[usize::from(self.level)].0) };
        (self.at.0 & !(bytes - 1)..end).step_by(bytes as usize).map(VirtAddr)
    }

    /// Goes on after a cache line; goes up again at the end of the part below a marked entry.
    fn pass(&mut self, end: VirtAddr) {
        self.at = end;
        while self.level < TOP && self.at >= self.until[usize::from(self.level)] {
            self.level += 1;
        }
    }

    /// Accounts for a marked page.
    fn account(&self, os: &mut Os, va: VirtAddr) {
        let index = self.space;
        let layer = &mut os.layers[self.layer];
        let (frame, file) = smu_mut(layer).pending.remove(&(index, va)).expect("its entry is marked");
        let space = &mut layer.spaces[index];
        let place = space.table.set_mark(&mut layer.memory.contents, va, LEAF, false);
        let group = space.group;
        layer.consume_charge(self.cpu, group, 1, os.costs.charge_batch);
        layer.gather(self.cpu, frame, os.costs.lru_batch);
        layer.account(index, UnaccountedPage { va, size: PageSize::Size4K, frame, place, file: Some(file) });
        smu_mut(layer).counters.accounted += 1;
    }

    /// Handles the marks of a cache line; above the leaves, descends at the first mark.
    fn marks(&mut self, os: &mut Os) {
        for va in self.line() {
            let layer = &mut os.layers[self.layer];
            smu_mut(layer).counters.kpted_entries += 1;
            let space = &mut layer.spaces[self.space];
            if !space.table.mark(&layer.memory.contents, va, self.level).is_some_and(|(_, marked)| marked) {
                continue;
            }
            if self.level == LEAF {
                self.account(os, va);
                continue;
            }
            space.table.set_mark(&mut layer.memory.contents, va, self.level, false);
            self.level -= 1;
            self.until[usize::from(self.level)] = va + reach(self.level + 1);
            self.at = va;
            return;
        }
        let end = self.line().last().map_or(self.at, |va| va + reach(self.level));
        self.pass(end);
    }

    /// Scans next if the current space's cgroup is at its limit.
    fn reclaim_at_limit(&mut self, os: &mut Os) {
        let layer = &mut os.layers[self.layer];
        let group = layer.spaces[self.space].group;
        let pressure = layer.memory.pressure(0, group).filter(|pressure| matches!(pressure, Pressure::Limit(_)));
        if let Some(pressure) = pressure.filter(|&pressure| layer.memory.can_reclaim(pressure)) {
            self.state = KptedState::Reclaim(Scanning::new(pressure));
        }
    }
}

impl EngineThread for Kpted {
    fn new_in_layer(id: LayerId, layer: &Layer) -> Vec<Self> {
        let at = VirtAddr(0);
        let thread = Self {
            layer: id,
            cpu: CpuId(0),
            state: KptedState::Line,
            space: DIRECT_MAP,
            at,
            level: TOP,
            until: [at; TOP as usize + 1],
        };
        engine_access::find(layer).map(|_| thread).into_iter().collect()
    }

    fn layer(&self) -> LayerId {
        self.layer
    }

    fn delay(&self, layer: &Layer) -> Option<Delay> {
        Some(Delay::FromEnd(Cycles(smu(layer).parameters.kpted_cycles)))
    }

    fn wakes_for(&self, need: Need) -> bool {
        need == Need::Memory
    }

    fn begin(&mut self) {}

    fn plan(&self, os: &Os, step: &mut Step) {
        let layer = &os.layers[self.layer];
        match &self.state {
            KptedState::Reclaim(scan) => scan.plan(os, self.layer, step),
            KptedState::WriteBack(scan) => scan.plan_io(step),
            KptedState::Line => {
                if self.is_lost(layer) || self.level == TOP && self.mapping(layer) != Some((self.space, self.at)) {
                    return;
                }
                let space = &layer.spaces[self.space];
                let mut line = self.line();
                let Some((addr, _)) = line.find_map(|va| space.table.mark(&layer.memory.contents, va, self.level))
                else {
                    return;
                };
                step.kernel(RefKind::Read, addr);
                let marked =
                    |&va: &VirtAddr| space.table.mark(&layer.memory.contents, va, self.level).is_some_and(|(_, on)| on);
                if self.level > LEAF {
                    if self.line().any(|va| marked(&va)) {
                        step.kernel(RefKind::Locked, addr);
                    }
                    return;
                }
                for va in self.line().filter(marked) {
                    self.plan_account(os, layer, va, step);
                }
            }
        }
    }

    fn commit(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId) -> Next {
        let cpu = task.cpu;
        self.cpu = cpu;
        match std::mem::replace(&mut self.state, KptedState::Line) {
            KptedState::WriteBack(mut scan) if !scan.absent.is_empty() => {
                scan.absent.clear();
                self.state = KptedState::WriteBack(scan);
            }
            KptedState::WriteBack(scan) => os.written_back(self.layer, &scan, task),
            KptedState::Reclaim(mut work) => match work.commit(os, effects, self.layer, task) {
                ScanProgress::Continues => self.state = KptedState::Reclaim(work),
                ScanProgress::Waits(key) => {
                    self.state = KptedState::Reclaim(work);
                    return Next::Block(key);
                }
                ScanProgress::Ends(scan) if !scan.io.is_empty() => self.state = KptedState::WriteBack(scan),
                ScanProgress::Ends(scan) if scan.freed > 0 => self.reclaim_at_limit(os),
                ScanProgress::Ends(_) => {}
            },
            KptedState::Line => {
                let layer = &mut os.layers[self.layer];
                if self.is_lost(layer) {
                    self.level = TOP;
                }
                if self.level == TOP {
                    match self.mapping(layer) {
                        None => {
                            smu_mut(layer).counters.kpted_passes += 1;
                            (self.space, self.at) = (DIRECT_MAP, VirtAddr(0));
                            return Next::Done;
                        }
                        Some(next) if next != (self.space, self.at) => {
                            (self.space, self.at) = next;
                            return Next::Continue;
                        }
                        Some(_) => {}
                    }
                }
                self.marks(os);
                self.reclaim_at_limit(os);
            }
        }
        Next::Continue
    }

    fn charge(&self, os: &mut Os, cycles: Cycles) {
        smu_mut(&mut os.layers[self.layer]).counters.kpted_cycles += cycles;
    }
}

impl Kpted {
    /// Plans the cost of accounting for a page.
    fn plan_account(&self, os: &Os, layer: &Layer, va: VirtAddr, step: &mut Step) {
        for stage in [Stage::Charge, Stage::Rmap, Stage::Lru] {
            step.preset += os.costs.fault.all()[stage as usize].cost();
        }
        let space = &layer.spaces[self.space];
        let start = space.vmas.find(va).map_or(va, |vma| vma.start);
        step.kernel(RefKind::Read, space.object_line(!start.0));
        step.kernel(RefKind::Write, space.counter_line());
        if let Some(&(frame, _)) = smu(layer).pending.get(&(self.space, va)) {
            step.kernel(RefKind::Write, page_metadata(frame));
        }
        layer.plan_charge(self.cpu, space.group, 1, step);
        layer.plan_gather(self.cpu, space.group, os.costs.lru_batch, step);
        if let Some((addr, _)) = space.table.mark(&layer.memory.contents, va, LEAF) {
            step.kernel(RefKind::Locked, addr);
        }
    }
}
