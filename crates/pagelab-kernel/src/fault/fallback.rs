//! Faults that are not served under the lock of their VMA alone, and fall back to that of the address space.
//!
//! Models: a handler that finds no VMA, one that a call changes, or one that it may not serve by the lock of the VMA,
//! searches again under the lock of the address space, which it holds for reading to its end. So do handlers that find
//! out later, by the kind of page: they release the VMA's lock first. A VMA has an `anon_vma` from its first anonymous
//! page on. Since 6.10, a handler that makes one tries to take the lock of the address space in addition, and keeps it
//! only until it is done; it falls back if a call holds that lock. A handler that must read a page of a file gives up
//! its lock while the device works, and then searches under the lock of the address space. It does so once.
//! Source: Linux arch/x86/mm/fault.c (`do_user_addr_fault`), mm/memory.c (`lock_vma_under_rcu`, `__vmf_anon_prepare`,
//! `do_anonymous_page`, `vmf_can_call_fault`), mm/rmap.c (`__anon_vma_prepare`), mm/filemap.c
//! (`do_sync_mmap_readahead`, `lock_folio_maybe_drop_mmap`).
//! Parameters: `kernel.vma_fallbacks`; without it, none of this happens.
//! Stats: `layer.NAME.lock.vma.fallbacks.*`, `layer.NAME.lock.vma.anon_vmas`.
//! Deviations: making an `anon_vma` costs references alone. Neighbours' are not shared; that needs the same locks.
//! Memory that calls populate, and a host's memory of guests, is mapped under the lock of the address space, as
//! `get_user_pages` does. Pages of the swap area are read with the lock held. Fault engines take the locks of VMAs.
//! While a device works, calls that change a whole space (fork, exec, exit) still wait.

use super::work::FaultWork;
use super::{Fault, FaultState};
use crate::config::{FaultLock, VmaFallbacks};
use crate::entry_word::EntryWord;
use crate::fault::plan::plan_vma_search;
use crate::fault::stage::Fallback;
use crate::layer::Layer;
use crate::locks::TaskId;
use crate::os::Os;
use crate::vma::{VaRange, Vma};
use pagelab_base::addr::{FRAME_BYTES, VirtAddr};
use pagelab_base::lock_kind::LockKind;
use pagelab_base::page_fault::Intent;
use pagelab_base::step::{RefKind, Step};
use pagelab_tables::page_table::Leaf;
use pagelab_trace::MapFlags;

impl Fault {
    /// The lock by which the handler reads the mappings.
    pub(super) fn lock(&self, os: &Os) -> FaultLock {
        if os.costs.vma_fallbacks.is_none() {
            return os.costs.fault_lock;
        }
        let by_space = self.held.fell_back || !self.request.exception || os.hosts(self.request.space.layer);
        if by_space { FaultLock::Mm } else { FaultLock::Vma }
    }

    /// The rules by which the handler falls back; `None` if it does not, or has.
    fn rules(&self, os: &Os) -> Option<VmaFallbacks> {
        os.costs.vma_fallbacks.filter(|_| self.lock(os) == FaultLock::Vma)
    }

    fn vma<'a>(&self, os: &'a Os) -> Option<&'a Vma> {
        os.layers[self.request.space.layer].spaces[self.request.space.index].vmas.find(self.request.va)
    }

    /// Why a look-up under the lock of the VMA fails.
    pub(super) fn refused_under_vma(&self, os: &Os) -> Option<Fallback> {
        let rules = self.rules(os)?;
        let Some(vma) = self.vma(os) else { return Some(Fallback::NoVma) };
        let is_huge = vma.flags.contains(MapFlags::HUGETLB);
        match () {
            () if rules == VmaFallbacks::Linux64 && !vma.is_anonymous() => Some(Fallback::File),
            () if !os.locks.may_read(self.request.space, Some(vma.range()), FaultLock::Vma) => Some(Fallback::Writer),
            () if rules < VmaFallbacks::Linux610 && is_huge => Some(Fallback::File),
            () if rules < VmaFallbacks::Linux610 && vma.is_anonymous() && !vma.anon_vma => Some(Fallback::AnonVma),
            () => None,
        }
    }

    /// Whether the look-up takes the lock of the VMA.
    fn takes_vma(&self, os: &Os) -> bool {
        match self.refused_under_vma(os) {
            Some(Fallback::NoVma | Fallback::Writer) => false,
            Some(Fallback::File) => os.costs.vma_fallbacks != Some(VmaFallbacks::Linux64),
            Some(Fallback::AnonVma | Fallback::Swap | Fallback::Device) | None => true,
        }
    }

    /// Why the handler may not do this work under the lock of the VMA.
    pub(super) fn refused_work(&self, os: &Os, work: FaultWork, leaf: &Leaf) -> Option<Fallback> {
        let (rules, vma) = (self.rules(os)?, self.vma(os)?);
        let layer = &os.layers[self.request.space.layer];
        let word = layer.word_behind(self.request.space.index, self.request.va, leaf);
        if rules == VmaFallbacks::Linux64 && word.is_some_and(|entry| matches!(entry.word, EntryWord::Swap(_))) {
            return Some(Fallback::Swap);
        }
        let is_around = matches!(work, FaultWork::Cached { .. })
            && self.request.intent != Intent::Store
            && os.costs.fault_around_bytes.0 > FRAME_BYTES;
        let is_present = matches!(leaf, Leaf::Present(_));
        let of_file = match work {
            FaultWork::Read { .. } | FaultWork::Hole { .. } | FaultWork::Cached { .. } => !is_around,
            FaultWork::Copy { .. } => !is_present && !vma.is_anonymous(),
            FaultWork::Reuse => vma.is_shared(),
            FaultWork::Fresh
            | FaultWork::ZeroPage
            | FaultWork::SwapIn
            | FaultWork::SwapCached
            | FaultWork::Ready
            | FaultWork::Split => false,
        };
        if rules < VmaFallbacks::Linux67 && of_file {
            return Some(Fallback::File);
        }
        let lacks = needs_anon_vma(work, vma) && !vma.anon_vma;
        (lacks && rules < VmaFallbacks::Linux610).then_some(Fallback::AnonVma)
    }

    /// Gives up the lock of the VMA, and goes back to the search, under the lock of the space.
    pub(super) fn fall_back(&mut self, os: &mut Os, task: TaskId, why: Fallback) -> FaultState {
        self.held.returns_vma = self.held.mappings || self.takes_vma(os);
        self.counters(os).fallbacks[why as usize] += 1;
        self.end_read(os, task);
        self.held.fell_back = true;
        FaultState::Lookup
    }

    /// The step that makes an `anon_vma`, if the work needs one and the VMA has none.
    pub(super) fn before_anonymous_page(&self, os: &Os) -> Option<FaultState> {
        os.costs.vma_fallbacks?;
        let vma = self.vma(os)?;
        let lacks = needs_anon_vma(self.progress.work, vma) && !vma.anon_vma;
        lacks.then(|| FaultState::AnonVma { locked: self.lock(os) == FaultLock::Mm })
    }

    /// Takes the lock of the space in addition, or makes the `anon_vma`.
    pub(super) fn commit_anon_vma(&mut self, os: &mut Os, task: TaskId, locked: bool) -> FaultState {
        let (space, va) = (self.request.space, self.request.va);
        let Some(range) = self.vma(os).map(Vma::range) else { unreachable!("mappings do not change during a fault") };
        if !locked {
            if os.locks.may_read(space, None, FaultLock::Mm) {
                os.locks.set_read_range(space, task, VaRange::ALL);
                return FaultState::AnonVma { locked: true };
            }
            os.locks.release(self.held.key, task);
            self.held.page = false;
            return self.fall_back(os, task, Fallback::AnonVma);
        }
        let layer = self.layer(os);
        if !layer.spaces[space.index].vmas.find(va).is_some_and(|vma| vma.anon_vma) {
            layer.spaces[space.index].vmas.add_anon_vma(va);
            self.counters(os).anon_vmas += 1;
        }
        if self.lock(os) == FaultLock::Vma {
            os.locks.set_read_range(space, task, range);
        }
        self.after_walk(os)
    }

    /// Gives up the mappings before a device is waited for, unless the handler has done so before.
    pub(super) fn give_up_mappings(&mut self, os: &mut Os, task: TaskId) {
        let may = os.costs.vma_fallbacks.is_some() && self.request.exception && self.held.mappings;
        if !may || self.progress.tried {
            return;
        }
        let device = u64::from(self.lock(os) == FaultLock::Vma);
        self.counters(os).fallbacks[Fallback::Device as usize] += device;
        // The space itself stays until the handler ends.
        let nothing = VaRange { start: VirtAddr(0), end: VirtAddr(0) };
        os.locks.set_read_range(self.request.space, task, nothing);
        self.held.waits_without = true;
    }

    /// A page has been read: looks again, for the VMA, too, if the mappings were given up meanwhile.
    pub(super) fn look_again_after_read(&mut self, os: &mut Os, task: TaskId) -> FaultState {
        let state = self.look_again(os, task);
        if !std::mem::take(&mut self.held.waits_without) {
            return state;
        }
        self.end_read(os, task);
        (self.held.fell_back, self.progress.tried) = (true, true);
        FaultState::Lookup
    }

    /// Plans the search for the VMA, after the release of its lock if that was taken in vain.
    pub(super) fn plan_lookup(&self, os: &Os, layer: &Layer, step: &mut Step) {
        let start = self.vma_start(&layer.spaces[self.request.space.index]);
        if self.held.returns_vma && layer.has_several_cpus() {
            step.take_lock(LockKind::Vma, layer.fault_lock_line(FaultLock::Vma, self.request.space.index, start));
        }
        let takes_vma = self.takes_vma(os);
        plan_vma_search(os, self.request.space, start, self.lock(os), takes_vma, step);
    }

    /// Plans the release of the lock before the handler waits for a device.
    pub(super) fn plan_give_up(&self, os: &Os, layer: &Layer, step: &mut Step) {
        if self.held.waits_without && layer.has_several_cpus() {
            let (lock, start) = (self.lock(os), self.vma_start(&layer.spaces[self.request.space.index]));
            step.take_lock(lock.kind(), layer.fault_lock_line(lock, self.request.space.index, start));
        }
    }

    /// Plans the attempt to take the lock of the space; or the search of the neighbours for their `anon_vma`, a new
    /// one, which the VMA refers to, and the release of the lock.
    pub(super) fn plan_anon_vma(&self, os: &Os, layer: &Layer, locked: bool, step: &mut Step) {
        let space = &layer.spaces[self.request.space.index];
        if !locked {
            return step.take_lock(LockKind::MmapRead, space.lock_line());
        }
        let start = self.vma_start(space);
        let end = space.vmas.find(self.request.va).map_or(self.request.va, |vma| vma.end);
        for neighbour in [end, VirtAddr(start.0.saturating_sub(1))] {
            if let Some(vma) = space.vmas.find(neighbour) {
                step.kernel(RefKind::Read, space.object_line(vma.start.0));
            }
        }
        step.kernel_independent(RefKind::Locked, space.object_line(!start.0));
        step.kernel_independent(RefKind::Write, space.object_line(start.0));
        if self.lock(os) == FaultLock::Vma {
            step.take_lock(LockKind::MmapRead, space.lock_line());
        }
    }
}

/// Whether work maps an anonymous page in a VMA, which then needs an `anon_vma`.
fn needs_anon_vma(work: FaultWork, vma: &Vma) -> bool {
    match work {
        FaultWork::Fresh | FaultWork::Ready => vma.is_anonymous(),
        FaultWork::Copy { .. } => !vma.is_shared(),
        FaultWork::ZeroPage
        | FaultWork::SwapIn
        | FaultWork::SwapCached
        | FaultWork::Hole { .. }
        | FaultWork::Reuse
        | FaultWork::Cached { .. }
        | FaultWork::Read { .. }
        | FaultWork::Split => false,
    }
}
