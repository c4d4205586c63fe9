//! Faults that get a frame which a fault engine keeps ready: its software form.
//!
//! Models: with the lock of the page-table page, the handler takes the frame from where the engine would, and writes the PTE. It
//! allocates, zeroes, charges and lists nothing: the engine's threads have done so, or will. Without a frame it goes the
//! ordinary way.
//! Source: Tirumalasetty et al., "Reducing Minor Page Fault Overheads through Enhanced Page Walker", 4.8.
//! Deviations: the paper calls this by a system call before each access; here it is in the fault handler, as it proposes.

use super::work::Work;
use super::{Fault, State};
use crate::base::addr::PhysAddr;
use crate::base::ids::CpuId;
use crate::base::step::Step;
use crate::kernel::layer::Layer;
use crate::kernel::os::Os;

impl Fault {
    pub(super) fn plan_take_ready(&self, layer: &Layer, step: &mut Step) {
        if let Some(engine) = &layer.engine {
            engine.plan_take((self.cpu, self.size), &layer.mem, step);
        }
    }

    /// With the lock of the page-table page: takes a frame, or goes for one the ordinary way.
    pub(super) fn take_ready(&mut self, os: &mut Os, cpu: CpuId, entry: PhysAddr) -> State {
        let zero_page = os.costs.zero_page.0;
        let (space, page, table) = (self.space.index, self.page, (self.cpu, self.size));
        let layer = self.layer(os);
        let engine = layer.engine.as_mut().expect("the page's entry is armed for one");
        if let Some(frame) = engine.take(table, space, page, &mut layer.mem) {
            self.frame = frame;
            return State::Install { entry };
        }
        os.locks.release(self.table_key(os, entry), cpu);
        let layer = self.layer(os);
        let vma = layer.spaces[space as usize].vmas.find(self.va);
        let vma = vma.expect("mappings do not change during a fault").clone();
        self.work = self.choose_anonymous(layer, &vma, zero_page);
        debug_assert_ne!(self.work, Work::Ready);
        self.after_walk(os)
    }
}
